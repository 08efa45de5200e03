//! The brakes on launching, in force from the first day: how many nodes, how fast, and how long a pool waits after failures.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use crate::cluster::Snapshot;

/// What holds launching back, for the whole cluster. Changed by settings only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brakes {
    /// Most machines that Tenon keeps at once, starting and leaving ones included.
    pub max_nodes: usize,
    /// Most NodeClaims created within any [`RATE_WINDOW`].
    pub max_launches_per_minute: usize,
}

impl Default for Brakes {
    /// 5,000 nodes is the size that Kubernetes is tested for; 500 launches a minute brings 10,000 pods of 20 to a node up in one
    /// minute and still stops a runaway loop long before it fills an account.
    fn default() -> Self {
        Self {
            max_nodes: 5_000,
            max_launches_per_minute: 500,
        }
    }
}

/// The window of the launch rate.
pub const RATE_WINDOW: Duration = Duration::from_secs(60);

/// First delay of a pool whose node did not come up; doubles with each failure in a row. A minute is about one boot time.
const FIRST_HOLD: Duration = Duration::from_secs(60);

/// Longest delay of a pool: half an hour, so that a repaired pool is tried again within a coffee break.
const LONGEST_HOLD: Duration = Duration::from_secs(30 * 60);

/// Why a launch that the solver wants is put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brake {
    /// The cluster has as many nodes as it may have.
    MaxNodes(usize),
    /// Too many launches within the last minute; the next may start then.
    LaunchRate(usize, Timestamp),
}

impl std::fmt::Display for Brake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MaxNodes(n) => write!(
                f,
                "the cluster-wide limit of {n} nodes is reached (--max-nodes)"
            ),
            Self::LaunchRate(n, at) => {
                write!(
                    f,
                    "{n} launches in the last minute are the most allowed (--max-launches-per-minute); next at {at}"
                )
            }
        }
    }
}

impl Brakes {
    /// How many of `wanted` launches may start now, and what stops the rest. Reads only what the API server knows, so a restart does
    /// not lift the brake.
    pub fn allow(
        &self,
        snapshot: &Snapshot,
        now: Timestamp,
        wanted: usize,
    ) -> (usize, Option<Brake>) {
        let nodes = snapshot.claims.len();
        let mut recent: Vec<Timestamp> = snapshot
            .claims
            .values()
            .map(|c| c.created)
            .filter(|t| now.duration_since(*t).unsigned_abs() < RATE_WINDOW)
            .collect();
        recent.sort_unstable();
        let room = self.max_nodes.saturating_sub(nodes);
        let rate = self.max_launches_per_minute.saturating_sub(recent.len());
        let allowed = wanted.min(room).min(rate);
        let brake = if allowed == wanted {
            None
        } else if room <= rate {
            Some(Brake::MaxNodes(self.max_nodes))
        } else {
            let freed = recent.first().copied().unwrap_or(now) + RATE_WINDOW;
            Some(Brake::LaunchRate(self.max_launches_per_minute, freed))
        };
        (allowed, brake)
    }
}

/// When a pool may launch again after `failures` failures in a row, the last one at `now`.
pub fn hold_until(failures: u32, now: Timestamp) -> Timestamp {
    let doublings = failures.saturating_sub(1).min(16);
    now + FIRST_HOLD.saturating_mul(1 << doublings).min(LONGEST_HOLD)
}

/// A pool that waits, and until when.
pub fn held(snapshot: &Snapshot, pool: &Arc<str>, now: Timestamp) -> Option<Timestamp> {
    snapshot
        .held_pools
        .get(&**pool)
        .map(|h| h.until)
        .filter(|until| *until > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_waits_twice_as_long_after_each_failure_up_to_half_an_hour() {
        let now = Timestamp::UNIX_EPOCH;
        let seconds = |n: u32| hold_until(n, now).as_second();
        assert_eq!(
            [seconds(1), seconds(2), seconds(3), seconds(5)],
            [60, 120, 240, 960]
        );
        assert_eq!([seconds(6), seconds(40)], [1_800, 1_800]);
    }
}
