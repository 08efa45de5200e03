//! Emptiness: nodes that carry nothing worth keeping go after their pool's quiet time (`spec/disruption-and-lifecycle.md` 3.6).

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;

use crate::{
    api::names::{annotation, disruption_reason, reason},
    cluster::{Nomination, Pod, Snapshot, StateNode},
    disruption::budgets,
    lifecycle::quiet_from,
    plan::{Action, Plan, Target},
};

/// What deciding looks at again even if nothing changes: a budget window may open. One minute is cron's resolution.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(60);

pub(super) fn decide(plan: &mut Plan, snapshot: &Snapshot, now: Timestamp) {
    let nodes = snapshot.state_nodes();
    let mut counts = budgets::count(&nodes);
    let awaited: BTreeSet<&Arc<str>> = snapshot
        .nominations
        .values()
        .map(|n| match n {
            Nomination::Node(name) | Nomination::Claim(name) => name,
        })
        .collect();
    for node in nodes.iter().filter(|n| is_candidate(n, &awaited)) {
        let Some(claim) = &node.claim else { continue };
        let Some(pool) = snapshot.pools.get(&claim.pool) else {
            continue;
        };
        match quiet_from(snapshot, claim) {
            Some(at) if at <= now => {}
            Some(at) => {
                plan.wake(at);
                continue;
            }
            None => continue,
        }
        let count = counts.entry(claim.pool.clone()).or_default();
        let allowed = budgets::allowed(pool, disruption_reason::EMPTY, count.total, now);
        if count.disrupting >= allowed {
            plan.wake(now + LOOK_AGAIN);
            if allowed == 0 {
                let text =
                    "empty nodes stay: the disruption budgets allow none for reason Empty now";
                plan.tell(
                    Target::Pool(pool.name.clone()),
                    reason::DISRUPTION_BLOCKED,
                    false,
                    text,
                );
            }
            continue;
        }
        count.disrupting += 1;
        let after = pool.object.spec.disruption.consolidate_after.raw();
        let text = format!("Empty: no workload pod for {after} on node {}", node.name);
        for target in [
            Target::Node(node.name.clone()),
            Target::Claim(claim.name.clone()),
        ] {
            plan.tell(target, reason::DISRUPTION_TERMINATING, false, text.clone());
        }
        let action = Action::DeleteClaim {
            claim: claim.name.clone(),
            uid: claim.uid.clone(),
            disruption: Some(disruption_reason::EMPTY),
            outcome: None,
        };
        plan.step(action, text);
    }
}

/// An initialized node of ours that is not leaving, not awaited by a plan, not protected, and empty.
fn is_candidate(node: &StateNode, awaited: &BTreeSet<&Arc<str>>) -> bool {
    let (Some(claim), Some(object)) = (&node.claim, &node.node) else {
        return false;
    };
    let is_protected = |annotations: &std::collections::BTreeMap<String, String>| {
        annotations
            .get(annotation::DO_NOT_DISRUPT)
            .is_some_and(|v| v == "true")
    };
    node.is_initialized()
        && !node.marked_for_deletion
        && object.deletion.is_none()
        && !awaited.contains(&node.name)
        && !awaited.contains(&claim.name)
        && !is_protected(&object.annotations)
        && !node.pods.iter().any(|p| is_kept(p))
}

/// A pod that has to go elsewhere and whose eviction costs something.
fn is_kept(pod: &Pod) -> bool {
    pod.is_reschedulable() && eviction_cost(pod) > 0.0
}

/// Upstream's cost of evicting a pod: 1, plus the cost annotation over 2^27, plus priority over 2^25, within -10 and 10. An annotation
/// that cannot be read counts 0.
fn eviction_cost(pod: &Pod) -> f64 {
    let annotation = pod
        .cost_annotation
        .as_ref()
        .and_then(|t| t.parse::<i32>().ok())
        .unwrap_or(0);
    let cost = 1.0
        + f64::from(annotation) / f64::from(1 << 27)
        + f64::from(pod.priority) / f64::from(1 << 25);
    cost.clamp(-10.0, 10.0)
}
