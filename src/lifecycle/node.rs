//! A Node's end: taint, drain, terminate (`spec/disruption-and-lifecycle.md` 2.2).

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    api::{
        conditions::{self, ConditionStatus},
        names::{annotation, condition, finalizer, reason, taint_key},
    },
    cluster::{Claim, Node, Readiness, Snapshot},
    lifecycle::{SHORTEST_DRAIN, claim::generation, drain},
    plan::{Action, Plan, Target},
};

pub(super) fn decide(plan: &mut Plan, snapshot: &Snapshot, node: &Arc<Node>, now: Timestamp) {
    if node.deletion.is_none() || !node.finalizers.iter().any(|f| f == finalizer::TERMINATION) {
        return;
    }
    let claim = snapshot.claim_of(node);
    if let Some(claim) = claim.filter(|c| c.deletion.is_none()) {
        let action = Action::DeleteClaim {
            claim: claim.name.clone(),
            uid: claim.uid.clone(),
            disruption: None,
            outcome: None,
        };
        plan.step(action, format!("node {} was deleted", node.name));
    }
    if !node.taints.iter().any(|t| t.key == taint_key::DISRUPTED) {
        plan.step(
            Action::TaintNode {
                node: node.name.clone(),
            },
            "the node is being terminated",
        );
    } else if node.readiness != Readiness::Ready && !node.provider_id.is_empty() {
        let action = Action::ReleaseNodeIfInstanceGone {
            node: node.name.clone(),
            provider_id: node.provider_id.clone(),
        };
        plan.step(
            action,
            "the node is not Ready: if its instance is gone there is nothing to drain",
        );
    }
    let deadline = match claim.map(|c| deadline(c)) {
        Some(Err(text)) => {
            plan.tell(
                Target::Node(node.name.clone()),
                reason::FAILED_DRAINING,
                true,
                text,
            );
            return;
        }
        Some(Ok(deadline)) => deadline,
        None => None,
    };
    let drained = drain::decide(plan, snapshot, node, deadline, now);
    match claim {
        Some(claim) if claim.deletion.is_some() => finish(plan, node, claim, drained, now),
        None if drained => {
            plan.step(
                Action::ReleaseNode {
                    node: node.name.clone(),
                },
                "drained, and no NodeClaim owns its instance",
            );
        }
        _ => {}
    }
}

/// The termination deadline on the claim.
fn deadline(claim: &Claim) -> Result<Option<Timestamp>, String> {
    let text = claim
        .object
        .metadata
        .annotations
        .iter()
        .flatten()
        .find(|(k, _)| k.as_str() == annotation::TERMINATION_TIMESTAMP);
    text.map(|(_, v)| {
        v.parse::<Timestamp>().map_err(|_| {
            format!(
                "annotation {} on NodeClaim {} is not an RFC 3339 time: {v}",
                annotation::TERMINATION_TIMESTAMP,
                claim.name
            )
        })
    })
    .transpose()
}

/// Records the drain on the claim, and terminates the instance once it is over.
fn finish(plan: &mut Plan, node: &Node, claim: &Claim, drained: bool, now: Timestamp) {
    let mut conditions = claim
        .object
        .status
        .as_ref()
        .map(|s| s.conditions.clone())
        .unwrap_or_default();
    let status = conditions::status(&conditions, condition::DRAINED);
    if status == Some(ConditionStatus::True) {
        let action = Action::Terminate {
            claim: claim.name.clone(),
            node: Some(node.name.clone()),
            provider_id: claim.provider_id.clone(),
            token: claim.uid.clone(),
        };
        return plan.step(action, format!("node {} is drained", node.name));
    }
    let since = conditions::since(&conditions, condition::DRAINED).filter(|_| status.is_some());
    let over = since.map(|t| t + SHORTEST_DRAIN);
    let (status, reason, message) = match over {
        Some(over) if drained && over <= now => (ConditionStatus::True, "", ""),
        _ => (
            ConditionStatus::Unknown,
            "Draining",
            "pods are being moved off the node",
        ),
    };
    if let Some(over) = over.filter(|over| drained && *over > now) {
        plan.wake(over);
    }
    if conditions::set(
        &mut conditions,
        condition::DRAINED,
        status,
        reason,
        message,
        now,
        generation(claim),
    ) {
        let action = Action::ClaimStatus {
            claim: claim.name.clone(),
            conditions,
            last_pod_event: None,
        };
        plan.step(
            action,
            if status == ConditionStatus::True {
                "drained"
            } else {
                "drain begins"
            },
        );
    }
}
