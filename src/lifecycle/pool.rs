//! A NodePool's status: validity, its class, what it uses, whether it may launch (`spec/disruption-and-lifecycle.md` 1.7 and 1.8).

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    api::{
        conditions::{self, ConditionStatus},
        hash,
        names::{annotation, condition},
    },
    cluster::{Pool, Snapshot},
    plan::{Action, Plan},
    units::{CPU, EPHEMERAL_STORAGE, MEMORY, NODES, PODS, Resources},
};

/// The conditions that make a pool Ready.
const DEPENDENTS: [&str; 2] = [condition::VALIDATION_SUCCEEDED, condition::NODE_CLASS_READY];

/// Failures in a row from which a pool counts as unhealthy (upstream: two among the last four).
const UNHEALTHY_FROM: u32 = 2;

pub(super) fn decide(
    plan: &mut Plan,
    snapshot: &Snapshot,
    pool: &Arc<Pool>,
    used: Option<&Resources>,
    now: Timestamp,
) {
    if pool.deletion.is_some() {
        return;
    }
    let generation = pool.object.metadata.generation.unwrap_or(0);
    let created = pool
        .object
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(now, |t| t.0);
    let status = pool.object.status.clone().unwrap_or_default();
    let mut all = status.conditions.clone();
    let mut changed = conditions::await_dependents(&mut all, &DEPENDENTS, created, generation);
    let mut set = |kind: &str, (status, reason, message): (ConditionStatus, &str, String)| {
        changed |= conditions::set(&mut all, kind, status, reason, &message, now, generation);
    };
    set(condition::VALIDATION_SUCCEEDED, validity(pool));
    set(condition::NODE_CLASS_READY, class_readiness(snapshot, pool));
    set(condition::NODE_REGISTRATION_HEALTHY, health(snapshot, pool));
    changed |= conditions::ready(&mut all, &DEPENDENTS, now, generation);

    let mut resources: Resources = [CPU, MEMORY, PODS, EPHEMERAL_STORAGE, NODES]
        .into_iter()
        .fold(Resources::default(), |mut r, name| {
            r.set(name, 0);
            r
        });
    if let Some(used) = used {
        resources.max_with(used);
    }
    let nodes = resources.get(NODES);
    let quantities = resources.to_quantities();
    let hash = hash::pool_hash(&pool.object.spec.template);
    let annotations = pool.object.metadata.annotations.as_ref();
    let is_hashed = annotations.and_then(|a| a.get(annotation::NODEPOOL_HASH)) == Some(&hash);
    if changed || !is_hashed || status.nodes != nodes || status.resources != quantities {
        let action = Action::PoolStatus {
            pool: pool.name.clone(),
            conditions: all,
            resources,
            nodes,
            hash,
        };
        plan.step(action, "the pool's conditions, template or use changed");
    }
}

fn validity(pool: &Pool) -> (ConditionStatus, &'static str, String) {
    if pool.problems.is_empty() {
        return (ConditionStatus::True, "", String::new());
    }
    let texts: Vec<String> = pool.problems.iter().map(ToString::to_string).collect();
    (
        ConditionStatus::False,
        "NodePoolValidationFailed",
        texts.join("; "),
    )
}

fn class_readiness(snapshot: &Snapshot, pool: &Pool) -> (ConditionStatus, &'static str, String) {
    let name = &pool.class;
    match snapshot.classes.get(name) {
        None => (
            ConditionStatus::False,
            "NodeClassNotFound",
            format!("EC2NodeClass {name} does not exist"),
        ),
        Some(c) if c.deletion.is_some() => (
            ConditionStatus::False,
            "NodeClassTerminating",
            format!("EC2NodeClass {name} is being deleted"),
        ),
        Some(c) if c.ready => (ConditionStatus::True, "", String::new()),
        Some(c) => {
            let conditions = c.object.status.clone().unwrap_or_default().conditions;
            let is_false = |c: &&crate::api::Condition| c.status == ConditionStatus::False;
            let causes: Vec<String> = conditions
                .iter()
                .filter(|c| c.type_ != condition::READY)
                .filter(is_false)
                .map(|c| format!("{}: {}", c.reason, c.message))
                .collect();
            match conditions::get(&conditions, condition::READY).filter(is_false) {
                Some(_) => {
                    let text = format!("EC2NodeClass {name}: {}", causes.join("; "));
                    (
                        ConditionStatus::False,
                        conditions::UNHEALTHY_DEPENDENTS,
                        text,
                    )
                }
                None => {
                    let text = format!("EC2NodeClass {name} has not been resolved yet");
                    (ConditionStatus::Unknown, "NodeClassReadinessUnknown", text)
                }
            }
        }
    }
}

fn health(snapshot: &Snapshot, pool: &Pool) -> (ConditionStatus, &'static str, String) {
    let registered = snapshot
        .claims
        .values()
        .any(|c| c.pool == pool.name && c.is(condition::REGISTERED));
    match snapshot.held_pools.get(&*pool.name) {
        Some(hold) if hold.failures >= UNHEALTHY_FROM => {
            let text = format!(
                "{} nodes in a row did not register; next launch at {}",
                hold.failures, hold.until
            );
            (ConditionStatus::False, "RegistrationFailed", text)
        }
        None if registered => (ConditionStatus::True, "", String::new()),
        _ => {
            let known = pool.object.status.as_ref();
            let was_healthy = known.is_some_and(|s| {
                conditions::is_true(&s.conditions, condition::NODE_REGISTRATION_HEALTHY)
            });
            if was_healthy && snapshot.held_pools.get(&*pool.name).is_none() {
                (ConditionStatus::True, "", String::new())
            } else {
                (
                    ConditionStatus::Unknown,
                    "AwaitingReconciliation",
                    "no node of the pool has registered yet".to_owned(),
                )
            }
        }
    }
}
