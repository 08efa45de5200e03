//! A whole cluster in memory: a Kubernetes API, and what acts on it, for people and for tests.
//!
//! Everything runs in one process and, by default, on a paused clock, so that the same seed gives the same history.
//! It must never decide whether behaviour is right: where it differs from a real control plane, the lab is wrong.

pub mod api;
pub mod kubelet;
pub mod scheduler;
pub mod seed;
mod status;
#[cfg(test)]
mod testing;
mod timers;
pub mod workloads;
