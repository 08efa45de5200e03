//! A whole cluster in memory: a Kubernetes API, and what acts on it, for people and for tests.
//!
//! Everything runs in one process and, by default, on a paused clock, so that the same seed gives the same history.
//! It must never decide whether behaviour is right: where it differs from a real control plane, the lab is wrong.

pub mod api;
pub mod gate;
pub mod kubelet;
pub mod manifests;
pub mod observe;
pub mod run;
pub mod scenario;
pub mod scheduler;
pub mod seed;
mod status;
pub mod summary;
#[cfg(test)]
mod testing;
pub mod timeline;
mod timers;
pub mod workloads;
pub mod world;
