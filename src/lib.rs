//! Tenon: a Kubernetes node autoscaler that speaks Karpenter's API.
//!
//! Events come in by [`watch`], become a [`cluster::Snapshot`], the pure rooms make a [`plan::Plan`] of it, [`actuate`] carries it out.
//! The rooms stand in the direction in which data may flow: a room imports only from rooms above it, and pure rooms have no I/O, no
//! clock, no randomness, no globals and no order that differs between runs. A test reads this table and holds the code to it.
//!
//! | room | pure | what it holds |
//! |---|---|---|
//! | [`units`] | yes | quantities, resource amounts, durations, cron schedules |
//! | [`api`] | yes | NodePool, NodeClaim, EC2NodeClass: types, names, requirements, taints, repair, validation, CRDs |
//! | [`cloud`] | yes | the `Cloud` trait, instance types, offerings, error classes, the catalogue that ships with us |
//! | [`cluster`] | yes | what is known of the cluster: events in, `Snapshot` out |
//! | [`scheduling`] | yes | where would these pods go: the solver |
//! | [`plan`] | yes | decisions as data: steps with reasons, and the brakes on launching |
//! | [`lifecycle`] | yes | what a claim, a node or a pool needs next |
//! | [`disruption`] | yes | which nodes may go, and how many at once |
//! | [`clock`] | no | the one clock |
//! | [`config`] | no | settings from arguments and environment |
//! | [`telemetry`] | no | log set-up, the text form of metrics |
//! | [`watch`] | no | API streams to cluster events, and the one writer of the cluster state |
//! | [`actuate`] | no | the only room that writes to Kubernetes or the cloud |
//! | [`serve`] | no | admission, scheduler extender, metrics, health |
//! | [`controllers`] | no | the loops that tie the above |
//! | [`cloud::simulated`] | no | EC2 in memory, for the lab and for tests |
//! | [`lab`] | no | a whole cluster in memory, for people and tests |
//! | [`cli`] | no | the commands |

pub mod actuate;
pub mod api;
pub mod cli;
pub mod clock;
pub mod cloud;
pub mod cluster;
pub mod config;
pub mod controllers;
pub mod disruption;
pub mod lab;
pub mod lifecycle;
pub mod plan;
pub mod scheduling;
pub mod serve;
pub mod telemetry;
pub mod units;
pub mod watch;
