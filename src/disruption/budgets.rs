//! Disruption budgets: how many nodes of a pool may be taken out at once (`spec/disruption-and-lifecycle.md` 3.4).

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use crate::{
    api::{Budget, names::condition},
    cluster::{Pool, Readiness, StateNode},
    units::{GoDuration, Schedule},
};

/// What "no budget applies" allows.
pub const UNLIMITED: usize = i32::MAX as usize;

/// Nodes of a pool as budgets count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Managed, initialized, instance not yet terminating.
    pub total: usize,
    /// Those among them that are not Ready or on their way out, for whatever reason.
    pub disrupting: usize,
}

/// Counts the nodes of each pool.
pub fn count(nodes: &[StateNode]) -> BTreeMap<Arc<str>, Count> {
    let mut counts: BTreeMap<Arc<str>, Count> = BTreeMap::new();
    for node in nodes.iter().filter(|n| n.is_initialized()) {
        let (Some(claim), Some(object)) = (&node.claim, &node.node) else {
            continue;
        };
        if claim.is(condition::INSTANCE_TERMINATING) {
            continue;
        }
        let count = counts.entry(claim.pool.clone()).or_default();
        count.total += 1;
        count.disrupting +=
            usize::from(node.marked_for_deletion || object.readiness != Readiness::Ready);
    }
    counts
}

/// How many nodes may be out at once for a reason: the smallest of the active budgets that apply. One that cannot be read allows
/// nothing, whatever reasons it lists.
pub fn allowed(pool: &Pool, reason: &str, total: usize, now: Timestamp) -> usize {
    let mut least = UNLIMITED;
    for budget in &pool.object.spec.disruption.budgets {
        let applies = budget
            .reasons
            .as_ref()
            .is_none_or(|r| r.iter().any(|r| r == reason));
        match contribution(budget, total, now) {
            Ok(n) if applies => least = least.min(n),
            Ok(_) => {}
            Err(()) => return 0,
        }
    }
    least
}

fn contribution(budget: &Budget, total: usize, now: Timestamp) -> Result<usize, ()> {
    let nodes = match budget.nodes.strip_suffix('%') {
        Some(percent) => {
            let percent: usize = percent.parse().map_err(|_| ())?;
            (total * percent).div_ceil(100)
        }
        None => budget.nodes.parse().map_err(|_| ())?,
    };
    Ok(if is_active(budget, now)? {
        nodes
    } else {
        UNLIMITED
    })
}

/// Windows are half open: from each firing of the schedule until the duration has passed, in UTC.
fn is_active(budget: &Budget, now: Timestamp) -> Result<bool, ()> {
    match (&budget.schedule, &budget.duration) {
        (None, None) => Ok(true),
        (Some(schedule), Some(duration)) => {
            let schedule = Schedule::parse(schedule).map_err(|_| ())?;
            let duration: GoDuration = duration.parse().map_err(|_| ())?;
            Ok(schedule
                .next_after(now - duration.to_signed())
                .is_some_and(|hit| hit <= now))
        }
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NodePool;

    type Row<'a> = (&'a str, Option<(&'a str, &'a str)>, Option<&'a [&'a str]>);

    fn pool(budgets: &[Row<'_>]) -> Pool {
        let mut object = NodePool::default();
        object.spec.disruption.budgets = budgets
            .iter()
            .map(|(nodes, window, reasons)| Budget {
                nodes: (*nodes).to_owned(),
                schedule: window.map(|w| w.0.to_owned()),
                duration: window.map(|w| w.1.to_owned()),
                reasons: reasons.map(|r| r.iter().map(|s| (*s).to_owned()).collect()),
            })
            .collect();
        Pool::from_api(Arc::new(object))
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn percentages_round_up() {
        // 10 % of 1 is 0.1, of 10 is 1, of 11 is 1.1.
        let tenth = pool(&[("10%", None, None)]);
        let now = at("2030-01-01T12:00:00Z");
        let allowed = |n| allowed(&tenth, "Empty", n, now);
        assert_eq!(
            [allowed(0), allowed(1), allowed(10), allowed(11)],
            [0, 1, 1, 2]
        );
    }

    #[test]
    fn the_smallest_active_budget_that_lists_the_reason_counts() {
        let p = pool(&[
            ("50%", None, None),
            ("1", Some(("0 9 * * *", "8h")), Some(&["Empty"])),
        ]);
        let day = at("2030-01-01T16:59:59Z");
        let evening = at("2030-01-01T17:00:00Z");
        assert_eq!(allowed(&p, "Empty", 10, day), 1);
        assert_eq!(allowed(&p, "Empty", 10, evening), 5);
        assert_eq!(allowed(&p, "Drifted", 10, day), 5);
    }

    #[test]
    fn no_budget_means_no_cap_and_a_broken_one_means_none() {
        let now = at("2030-01-01T12:00:00Z");
        assert_eq!(allowed(&pool(&[]), "Empty", 3, now), UNLIMITED);
        let broken = pool(&[("10%", Some(("every day at nine", "1h")), Some(&["Drifted"]))]);
        assert_eq!(allowed(&broken, "Empty", 3, now), 0);
    }
}
