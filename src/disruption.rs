//! Which nodes may go on our own decision, and how many at once. First method: emptiness.
//!
//! Must never: do I/O, read a clock, or touch a node that its pool's budgets, a nomination or do-not-disrupt protect.

pub mod budgets;
mod emptiness;

use jiff::Timestamp;

use crate::{cluster::Snapshot, plan::Plan};

/// The voluntary disruptions that may begin at `now`.
pub fn decide(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::new(snapshot.revision);
    if snapshot.synced {
        emptiness::decide(&mut plan, snapshot, now);
    }
    plan
}
