//! What each NodeClaim, Node and NodePool needs next: status, launch, registration, initialization, time-outs, drain, termination
//! (`spec/disruption-and-lifecycle.md` sections 1 and 2).
//!
//! [`decide`] looks at one snapshot and returns steps; it remembers nothing, so a restart loses nothing. Must never: do I/O, read a
//! clock, or take a voluntary decision (that is [`crate::disruption`]).

pub(crate) mod claim;
mod drain;
mod node;
mod pool;

use std::time::Duration;

use jiff::Timestamp;

pub use claim::quiet_from;

use crate::{cluster::Snapshot, plan::Plan};

/// A claim that has not launched for this long is given up (upstream's constant).
pub const LAUNCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A claim whose node has not registered this long after its creation is given up (upstream's constant).
pub const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Shortest drain: a scheduler that has not yet seen the taint may still bind a pod (upstream's constant).
pub const SHORTEST_DRAIN: Duration = Duration::from_secs(5);

/// Everything that claims and nodes need at `now`.
pub fn decide(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::new(snapshot.revision);
    if !snapshot.synced {
        return plan;
    }
    for claim in snapshot.claims.values() {
        claim::decide(&mut plan, snapshot, claim, now);
    }
    for node in snapshot.nodes.values() {
        node::decide(&mut plan, snapshot, node, now);
    }
    let usage = snapshot.pool_usage();
    for pool in snapshot.pools.values() {
        pool::decide(&mut plan, snapshot, pool, usage.get(&pool.name), now);
    }
    plan
}
