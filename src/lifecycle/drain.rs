//! Which pods leave a node now, and how (`spec/disruption-and-lifecycle.md` 2.3 and 2.5).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::{
    api::names::reason,
    cluster::{Node, Owner, Pod, Snapshot},
    plan::{Action, Plan, Target},
};

/// A pod that should have been gone for this long no longer holds the drain (upstream's constant).
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Priority classes whose pods leave last.
const CRITICAL: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// How often a drain that waits for pods is looked at again, besides every change of a pod.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Plans the evictions of one pass and says whether the node is drained.
pub(super) fn decide(
    plan: &mut Plan,
    snapshot: &Snapshot,
    node: &Node,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> bool {
    let waiting: Vec<_> = snapshot
        .pods_on(&node.name)
        .filter(|p| holds_drain(p, now))
        .collect();
    if waiting.is_empty() {
        return true;
    }
    let (forced, graceful): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|p| must_go(p, deadline, now));
    for pod in forced {
        let left = deadline
            .map_or(1, |d| d.duration_since(now).as_secs())
            .max(1);
        let action = Action::DeletePod {
            pod: pod.key.clone(),
            uid: pod.uid.clone(),
            grace_seconds: left,
        };
        plan.step(
            action,
            format!(
                "the termination deadline of node {} leaves {left} s",
                node.name
            ),
        );
    }
    let first_tier = graceful.iter().map(|p| tier(p)).min();
    let mut protected = 0;
    for pod in graceful
        .iter()
        .filter(|p| Some(tier(p)) == first_tier && p.is_active())
    {
        if pod.is_protected(now) {
            protected += 1;
            continue;
        }
        let action = Action::Evict {
            pod: pod.key.clone(),
            uid: pod.uid.clone(),
            node: node.name.clone(),
        };
        plan.step(action, format!("node {} is being drained", node.name));
    }
    if protected > 0 {
        let text = format!("{protected} pods with karpenter.sh/do-not-disrupt hold the drain");
        plan.tell(
            Target::Node(node.name.clone()),
            reason::FAILED_DRAINING,
            true,
            text,
        );
    }
    plan.wake(now + LOOK_AGAIN);
    if let Some(next) = graceful
        .iter()
        .filter_map(|p| next_change(p, deadline))
        .filter(|t| *t > now)
        .min()
    {
        plan.wake(next);
    }
    false
}

/// Whether a pod keeps the node from being drained: neither finished, nor tolerating the taint, nor static, nor stuck.
fn holds_drain(pod: &Pod, now: Timestamp) -> bool {
    let stuck = pod
        .deletion
        .is_some_and(|d| now.duration_since(d).as_secs() > STUCK_AFTER.as_secs().cast_signed());
    !pod.terminal && !pod.tolerates_disruption() && !matches!(pod.owner, Owner::Node) && !stuck
}

/// Whether the pod's own grace period no longer fits before the deadline.
fn must_go(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp) -> bool {
    let Some(deadline) = deadline else {
        return false;
    };
    match (pod.deletion, pod.grace_seconds) {
        (Some(deletion), _) => deletion > deadline,
        (None, Some(grace)) => now > deadline - SignedDuration::from_secs(grace.max(0)),
        (None, None) => false,
    }
}

/// When the pod may need another decision.
fn next_change(pod: &Pod, deadline: Option<Timestamp>) -> Option<Timestamp> {
    match (pod.deletion, deadline, pod.grace_seconds) {
        (Some(deletion), _, _) => Some(deletion + STUCK_AFTER + Duration::from_secs(1)),
        (None, Some(deadline), Some(grace)) => Some(
            deadline - SignedDuration::from_secs(grace.max(0)) + SignedDuration::from_millis(1),
        ),
        _ => None,
    }
}

/// Order of leaving: workloads, then their DaemonSets, then critical workloads, then critical DaemonSets.
fn tier(pod: &Pod) -> u8 {
    let critical = CRITICAL.contains(&pod.priority_class.as_str());
    let daemon = matches!(pod.owner, Owner::DaemonSet(_));
    u8::from(critical) * 2 + u8::from(daemon)
}
