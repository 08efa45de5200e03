//! Node classes: resolve what they select, keep their status, read their instance types and prices.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Notify;

use super::{Context, engine::chain};
use crate::{
    actuate::ActuateError,
    api::{
        Condition, EC2NodeClass,
        conditions::{self, ConditionStatus},
        names::{condition, finalizer, reason},
    },
    cloud::ResolvedClass,
    cluster::{Class, Event, Snapshot},
    config::Mode,
    plan::{Notice, Target},
};

/// What a class selects is resolved again this often (upstream: one to five minutes by part).
const RESOLVE_INTERVAL: Duration = Duration::from_secs(300);

/// A class that could not be resolved is tried again sooner.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Prices and stock are read again this often, and after every launch.
const CATALOG_INTERVAL: Duration = Duration::from_secs(60);

/// The conditions that make a class Ready.
const DEPENDENTS: [&str; 5] = [
    condition::AMIS_READY,
    condition::SUBNETS_READY,
    condition::SECURITY_GROUPS_READY,
    condition::INSTANCE_PROFILE_READY,
    condition::VALIDATION_SUCCEEDED,
];

/// When a class is resolved next, and for which generation it was.
struct Resolved {
    generation: i64,
    next: Timestamp,
}

pub(super) async fn run(context: Context, refresh: Arc<Notify>) {
    let mut snapshots = context.writer.snapshots();
    let mut resolved: BTreeMap<Arc<str>, Resolved> = BTreeMap::new();
    let mut next_catalog = context.clock.now();
    loop {
        let next = resolved
            .values()
            .map(|r| r.next)
            .min()
            .unwrap_or(next_catalog)
            .min(next_catalog);
        let mut told_to = false;
        tokio::select! {
            biased;
            () = context.stop.cancelled() => return,
            () = refresh.notified() => told_to = true,
            changed = snapshots.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = context.clock.sleep_until(next) => {}
        }
        let snapshot = snapshots.borrow_and_update().clone();
        if !snapshot.synced {
            next_catalog = context.clock.now() + CATALOG_INTERVAL;
            continue;
        }
        resolved.retain(|name, _| snapshot.classes.contains_key(name));
        let now = context.clock.now();
        let mut fresh = Vec::new();
        for class in snapshot.classes.values() {
            if class.deletion.is_some() {
                release(&context, &snapshot, class).await;
                continue;
            }
            let generation = class.object.metadata.generation.unwrap_or(0);
            if resolved
                .get(&class.name)
                .is_none_or(|r| r.generation != generation || r.next <= now)
            {
                let wait = resolve(&context, class, generation).await;
                resolved.insert(
                    class.name.clone(),
                    Resolved {
                        generation,
                        next: context.clock.now() + wait,
                    },
                );
                fresh.push(class.name.clone());
            }
        }
        let all = told_to || next_catalog <= now;
        if all {
            next_catalog = context.clock.now() + CATALOG_INTERVAL;
        }
        let current = context.writer.snapshot();
        for class in current
            .classes
            .values()
            .filter(|c| c.ready && (all || fresh.contains(&c.name)))
        {
            read_types(&context, &current, class).await;
        }
    }
}

async fn read_types(context: &Context, snapshot: &Snapshot, class: &Class) {
    let call = context.cloud.instance_types(&class.object);
    match tokio::time::timeout(context.settings.cloud_timeout, call).await {
        Ok(Ok(types)) => {
            if snapshot
                .catalogs
                .get(&*class.name)
                .is_none_or(|known| !Arc::ptr_eq(known, &types))
            {
                context
                    .writer
                    .put(vec![Event::InstanceTypes {
                        class: class.name.to_string(),
                        types,
                    }])
                    .await;
            }
        }
        Ok(Err(error)) => {
            tracing::warn!(EC2NodeClass = &*class.name, %error, "instance types could not be read")
        }
        Err(_) => tracing::warn!(
            EC2NodeClass = &*class.name,
            "instance types were not read in time"
        ),
    }
}

/// Resolves a class, writes its status when it changed, and says when to look again.
async fn resolve(context: &Context, class: &Class, generation: i64) -> Duration {
    let call = context.cloud.resolve_class(&class.object);
    let answer = match tokio::time::timeout(context.settings.cloud_timeout, call).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::warn!(EC2NodeClass = &*class.name, %error, "class could not be resolved");
            return RETRY_INTERVAL;
        }
        Err(_) => {
            tracing::warn!(
                EC2NodeClass = &*class.name,
                "class was not resolved in time"
            );
            return RETRY_INTERVAL;
        }
    };
    if context.settings.mode == Mode::Advise {
        let mut object = EC2NodeClass::clone(&class.object);
        let status = object.status.get_or_insert_default();
        status.conditions = conditions_of(&[], &answer, context.clock.now(), generation);
        context
            .writer
            .put(vec![Event::AssumedClass(Box::new(object))])
            .await;
    } else if let Err(error) = write_status(context, class, &answer, generation).await {
        tracing::warn!(EC2NodeClass = &*class.name, error = %chain(&error), "status of the class not written");
        return Duration::from_secs(1);
    }
    if answer.problems.is_empty() {
        RESOLVE_INTERVAL
    } else {
        RETRY_INTERVAL
    }
}

async fn write_status(
    context: &Context,
    class: &Class,
    answer: &ResolvedClass,
    generation: i64,
) -> Result<(), ActuateError> {
    let api = context.actuator.classes();
    let held = class.object.metadata.finalizers.clone().unwrap_or_default();
    if !held.iter().any(|f| f == finalizer::EC2_NODE_CLASS) {
        let finalizers: Vec<&str> = held
            .iter()
            .map(String::as_str)
            .chain([finalizer::EC2_NODE_CLASS])
            .collect();
        let version = &class.object.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
        let object: EC2NodeClass = context
            .actuator
            .merge("adding the finalizer to a class", &api, &class.name, &patch)
            .await?;
        context
            .writer
            .put(vec![Event::Class(Box::new(object))])
            .await;
    }
    let before = class.object.status.clone().unwrap_or_default();
    let mut status = answer.status.clone();
    status.conditions = conditions_of(&before.conditions, answer, context.clock.now(), generation);
    if status != before {
        let patch = json!({ "status": status });
        let object: EC2NodeClass = context
            .actuator
            .merge_status("writing a class's status", &api, &class.name, &patch)
            .await?;
        context
            .writer
            .put(vec![Event::Class(Box::new(object))])
            .await;
    }
    Ok(())
}

fn conditions_of(
    before: &[Condition],
    answer: &ResolvedClass,
    now: Timestamp,
    generation: i64,
) -> Vec<Condition> {
    let mut all = before.to_vec();
    for kind in DEPENDENTS {
        match answer.problems.iter().find(|(k, _, _)| k == kind) {
            Some((_, reason, message)) => {
                conditions::set(
                    &mut all,
                    kind,
                    ConditionStatus::False,
                    reason,
                    message,
                    now,
                    generation,
                );
            }
            None => {
                conditions::set_true(&mut all, kind, now, generation);
            }
        }
    }
    conditions::ready(&mut all, &DEPENDENTS, now, generation);
    all
}

/// A class that is being deleted waits for the last claim that uses it.
async fn release(context: &Context, snapshot: &Snapshot, class: &Class) {
    let held = class.object.metadata.finalizers.clone().unwrap_or_default();
    if !held.iter().any(|f| f == finalizer::EC2_NODE_CLASS) || context.settings.mode == Mode::Advise
    {
        return;
    }
    let users = snapshot
        .claims
        .values()
        .filter(|c| c.object.spec.node_class_ref.name == *class.name)
        .count();
    if users > 0 {
        context.teller.tell(Notice {
            about: Target::Class(class.name.clone()),
            reason: reason::WAITING_ON_NODE_CLAIM_TERMINATION,
            warning: false,
            message: format!("{users} NodeClaims still use the class"),
        });
        return;
    }
    let rest: Vec<&String> = held
        .iter()
        .filter(|f| *f != finalizer::EC2_NODE_CLASS)
        .collect();
    let is_last = rest.is_empty();
    let version = &class.object.metadata.resource_version;
    let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": rest } });
    let api = context.actuator.classes();
    match context
        .actuator
        .merge::<EC2NodeClass>("releasing a class", &api, &class.name, &patch)
        .await
    {
        Ok(object) => {
            let gone = Event::ClassGone(class.name.to_string());
            let event = if is_last {
                gone
            } else {
                Event::Class(Box::new(object))
            };
            context.writer.put(vec![event]).await;
        }
        Err(error) if error.is_gone() => {
            context
                .writer
                .put(vec![Event::ClassGone(class.name.to_string())])
                .await
        }
        Err(error) => {
            tracing::warn!(EC2NodeClass = &*class.name, error = %chain(&error), "class not released")
        }
    }
}
