//! A NodeClaim's way from creation to initialization, and its end.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use crate::{
    api::{
        Condition,
        conditions::{self, ConditionStatus},
        names::{annotation, condition, finalizer, label, reason},
    },
    cluster::{Claim, Node, Readiness, Snapshot},
    lifecycle::{LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT},
    plan::{Action, LaunchOutcome, Plan, Target},
    units::GoDuration,
};

/// A pod event is written at most this often (upstream's constant, below its validation delay).
const POD_EVENT_RESOLUTION: Duration = Duration::from_secs(10);

/// The conditions that make a claim Ready.
pub(crate) const DEPENDENTS: [&str; 3] = [
    condition::LAUNCHED,
    condition::REGISTERED,
    condition::INITIALIZED,
];

pub(super) fn decide(plan: &mut Plan, snapshot: &Snapshot, claim: &Arc<Claim>, now: Timestamp) {
    if claim.deletion.is_some() {
        return finalize(plan, snapshot, claim);
    }
    if !has_finalizer(claim) {
        plan.step(
            Action::HoldClaim {
                claim: claim.name.clone(),
            },
            "nothing is launched before the finalizer is stored",
        );
    } else if !claim.is(condition::LAUNCHED) {
        launch(plan, snapshot, claim, now);
    } else if !claim.is(condition::REGISTERED) {
        register(plan, snapshot, claim, now);
    } else if !claim.is(condition::INITIALIZED) {
        initialize(plan, snapshot, claim, now);
    } else {
        settle(plan, snapshot, claim, now);
    }
}

fn has_finalizer(claim: &Claim) -> bool {
    claim
        .object
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|f| f == finalizer::TERMINATION)
}

fn launch(plan: &mut Plan, snapshot: &Snapshot, claim: &Claim, now: Timestamp) {
    if give_up(plan, claim, now, LAUNCH_TIMEOUT, "did not launch") {
        return;
    }
    let class_name = &claim.object.spec.node_class_ref.name;
    match snapshot.classes.get(class_name.as_str()) {
        Some(class) if class.ready => {
            plan.step(
                Action::Launch {
                    claim: claim.name.clone(),
                },
                "the claim has no instance yet",
            );
        }
        found => {
            let state = if found.is_some() {
                "is not Ready"
            } else {
                "does not exist"
            };
            let text = format!(
                "EC2NodeClass {class_name} {state}; the claim is removed and its pods are planned again"
            );
            plan.tell(
                Target::Claim(claim.name.clone()),
                reason::NODE_CLASS_NOT_READY,
                true,
                text.clone(),
            );
            plan.step(delete(claim, None), text);
        }
    }
}

fn delete(claim: &Claim, outcome: Option<LaunchOutcome>) -> Action {
    Action::DeleteClaim {
        claim: claim.name.clone(),
        uid: claim.uid.clone(),
        disruption: None,
        outcome,
    }
}

/// Deletes a claim whose time is up; otherwise makes sure that someone looks again at that time.
fn give_up(plan: &mut Plan, claim: &Claim, now: Timestamp, after: Duration, what: &str) -> bool {
    let deadline = claim.created + after;
    if now < deadline {
        plan.wake(deadline);
        return false;
    }
    let text = format!(
        "{what} within {} minutes; the claim and its instance are removed",
        after.as_secs() / 60
    );
    plan.step(delete(claim, Some(LaunchOutcome::Failed)), text);
    true
}

fn register(plan: &mut Plan, snapshot: &Snapshot, claim: &Claim, now: Timestamp) {
    if give_up(
        plan,
        claim,
        now,
        REGISTRATION_TIMEOUT,
        "the node did not register",
    ) {
        return;
    }
    let nodes = snapshot.nodes_by_provider_id.get(&claim.provider_id);
    match nodes.map_or(0, |n| n.len()) {
        0 => progress(
            plan,
            claim,
            condition::REGISTERED,
            ConditionStatus::Unknown,
            "NodeNotFound",
            "the node has not joined the cluster yet",
            now,
        ),
        1 => {
            if let Some(node) = snapshot.node_of(claim) {
                let action = Action::Register {
                    claim: claim.name.clone(),
                    node: node.name.clone(),
                };
                plan.step(action, "the node joined the cluster");
            }
        }
        n => {
            let text = format!("{n} nodes carry provider id {}", claim.provider_id);
            progress(
                plan,
                claim,
                condition::REGISTERED,
                ConditionStatus::False,
                "MultipleNodesFound",
                &text,
                now,
            );
        }
    }
}

fn initialize(plan: &mut Plan, snapshot: &Snapshot, claim: &Claim, now: Timestamp) {
    match initialization_blocker(snapshot.node_of(claim), claim) {
        None => {
            if let Some(node) = snapshot.node_of(claim) {
                let action = Action::Initialize {
                    claim: claim.name.clone(),
                    node: node.name.clone(),
                };
                plan.step(
                    action,
                    "the node is Ready, its startup taints are gone and its resources are there",
                );
            }
        }
        Some((reason, message)) => {
            progress(
                plan,
                claim,
                condition::INITIALIZED,
                ConditionStatus::Unknown,
                reason,
                &message,
                now,
            );
        }
    }
}

/// What a registered node still lacks, in upstream's order (`spec/disruption-and-lifecycle.md` 1.5).
fn initialization_blocker(
    node: Option<&Arc<Node>>,
    claim: &Claim,
) -> Option<(&'static str, String)> {
    let Some(node) = node else {
        return Some(("NodeNotFound", "the node is gone".to_owned()));
    };
    if node.readiness != Readiness::Ready {
        return Some(("NodeNotReady", format!("node {} is not Ready", node.name)));
    }
    if let Some(taint) = node
        .taints
        .iter()
        .find(|t| claim.startup_taints.iter().any(|s| s.matches(t)))
    {
        return Some((
            "StartupTaintsExist",
            format!("startup taint {taint} is still on the node"),
        ));
    }
    if let Some(taint) = node.taints.iter().find(|t| t.is_ephemeral()) {
        return Some((
            "KnownEphemeralTaintsExist",
            format!("taint {taint} is still on the node"),
        ));
    }
    let missing = claim
        .requests
        .iter()
        .find(|(name, amount)| *amount > 0 && node.allocatable.get(name) == 0);
    missing.map(|(name, _)| {
        (
            "ResourceNotRegistered",
            format!("the node does not offer {name} yet"),
        )
    })
}

/// Keeps an initialized claim's `Consolidatable` condition and last pod event true.
fn settle(plan: &mut Plan, snapshot: &Snapshot, claim: &Claim, now: Timestamp) {
    let mut conditions = current(claim);
    let heard = snapshot
        .node_of(claim)
        .and_then(|n| snapshot.pod_events.get(&n.name))
        .copied();
    let last_pod_event = heard.filter(|t| {
        claim.last_pod_event.is_none_or(|known| {
            t.duration_since(known).as_secs() >= POD_EVENT_RESOLUTION.as_secs().cast_signed()
        })
    });
    let mut changed = last_pod_event.is_some();
    match quiet_from(snapshot, claim) {
        Some(at) if at <= now => {
            changed |= conditions::set_true(
                &mut conditions,
                condition::CONSOLIDATABLE,
                now,
                generation(claim),
            );
        }
        Some(at) => {
            plan.wake(at);
            changed |= conditions::clear(&mut conditions, condition::CONSOLIDATABLE);
        }
        None => changed |= conditions::clear(&mut conditions, condition::CONSOLIDATABLE),
    }
    let leaving = snapshot.leaving.contains(&claim.provider_id);
    if !leaving {
        changed |= conditions::clear(&mut conditions, condition::DISRUPTION_REASON);
    }
    if changed {
        let action = Action::ClaimStatus {
            claim: claim.name.clone(),
            conditions,
            last_pod_event,
        };
        plan.step(
            action,
            "pods came or went, or the quiet time of the pool passed",
        );
    }
}

/// When the claim's quiet time (`consolidateAfter`) ends: counted from its last pod event, or from initialization if there was none.
/// `None` when the pool says `Never`, is static or is gone, or the claim is not initialized.
pub fn quiet_from(snapshot: &Snapshot, claim: &Claim) -> Option<Timestamp> {
    let pool = snapshot.pools.get(&claim.pool).filter(|p| !p.is_static)?;
    let after = pool.object.spec.disruption.consolidate_after.get()?;
    let initialized = claim
        .is(condition::INITIALIZED)
        .then(|| conditions::since(&current(claim), condition::INITIALIZED))??;
    let heard = snapshot
        .node_of(claim)
        .and_then(|n| snapshot.pod_events.get(&n.name))
        .copied();
    let from = heard
        .max(claim.last_pod_event)
        .unwrap_or(initialized)
        .max(initialized);
    Some(from + after.to_signed())
}

fn current(claim: &Claim) -> Vec<Condition> {
    claim
        .object
        .status
        .as_ref()
        .map(|s| s.conditions.clone())
        .unwrap_or_default()
}

pub(crate) fn generation(claim: &Claim) -> i64 {
    claim.object.metadata.generation.unwrap_or(0)
}

fn progress(
    plan: &mut Plan,
    claim: &Claim,
    kind: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let mut conditions = current(claim);
    if conditions::set(
        &mut conditions,
        kind,
        status,
        reason,
        message,
        now,
        generation(claim),
    ) {
        conditions::ready(&mut conditions, &DEPENDENTS, now, generation(claim));
        let action = Action::ClaimStatus {
            claim: claim.name.clone(),
            conditions,
            last_pod_event: None,
        };
        plan.step(action, format!("{kind}: {message}"));
    }
}

fn finalize(plan: &mut Plan, snapshot: &Snapshot, claim: &Claim) {
    if !has_finalizer(claim) {
        return;
    }
    let deadline_is_set = claim
        .object
        .metadata
        .annotations
        .iter()
        .flatten()
        .any(|(k, _)| k == annotation::TERMINATION_TIMESTAMP);
    if let (Some(period), Some(deletion), false) = (grace(claim), claim.deletion, deadline_is_set) {
        let at = deletion + period.to_signed();
        let text =
            format!("terminationGracePeriod {period}: the node is gone by {at} at the latest");
        plan.tell(
            Target::Claim(claim.name.clone()),
            reason::TERMINATION_GRACE_PERIOD_EXPIRING,
            true,
            text.clone(),
        );
        plan.step(
            Action::SetDeadline {
                claim: claim.name.clone(),
                at,
            },
            text,
        );
        return;
    }
    let nodes = snapshot
        .nodes_by_provider_id
        .get(&claim.provider_id)
        .filter(|_| !claim.provider_id.is_empty());
    let nodes: Vec<&Arc<Node>> = nodes
        .into_iter()
        .flatten()
        .filter_map(|n| snapshot.nodes.get(n))
        .collect();
    if claim.is(condition::REGISTERED) && !nodes.is_empty() {
        for node in nodes.iter().filter(|n| n.deletion.is_none()) {
            let action = Action::DeleteNode {
                node: node.name.clone(),
                uid: node.uid.clone(),
            };
            plan.step(action, format!("NodeClaim {} is being deleted", claim.name));
        }
        // The node's own finalizer drains it and then terminates the instance.
        return;
    }
    let action = Action::Terminate {
        claim: claim.name.clone(),
        node: None,
        provider_id: claim.provider_id.clone(),
        token: claim.uid.clone(),
    };
    plan.step(action, format!("NodeClaim {} is being deleted", claim.name));
}

fn grace(claim: &Claim) -> Option<GoDuration> {
    claim
        .object
        .spec
        .termination_grace_period
        .as_ref()
        .and_then(|d| d.get())
}

/// Labels that registration copies from the claim onto the node.
pub(crate) fn node_labels(claim: &Claim) -> impl Iterator<Item = (&String, &String)> {
    claim
        .labels
        .iter()
        .filter(|(k, _)| k.as_str() != label::HOSTNAME)
}
