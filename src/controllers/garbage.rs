//! Both ends of a lost thread: instances that no claim owns, and claims whose instance is gone (`spec/disruption-and-lifecycle.md` 1.10).

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use super::{Context, engine::chain};
use crate::{
    api::names::condition,
    cloud::Instance,
    cluster::{Readiness, Snapshot},
    config::Mode,
    plan::{Action, Plan},
};

/// How often (upstream's constant).
const INTERVAL: Duration = Duration::from_secs(120);

/// First look after a start: a crash may have left something.
const FIRST: Duration = Duration::from_secs(10);

/// An instance younger than this may belong to a claim whose status is being written (upstream's constant).
const YOUNG: Duration = Duration::from_secs(30);

pub(super) async fn run(context: Context) {
    let mut wait = FIRST;
    loop {
        tokio::select! {
            biased;
            () = context.stop.cancelled() => return,
            () = context.clock.sleep(wait) => {}
        }
        wait = INTERVAL;
        let listed =
            tokio::time::timeout(context.settings.cloud_timeout, context.cloud.list()).await;
        let instances = match listed {
            Ok(Ok(instances)) => instances,
            Ok(Err(error)) => {
                tracing::warn!(%error, "instances could not be listed, garbage is collected later");
                continue;
            }
            Err(_) => {
                tracing::warn!("instances were not listed in time, garbage is collected later");
                continue;
            }
        };
        let plan = decide(&context.writer.snapshot(), &instances, context.clock.now());
        for step in plan.steps {
            let target = step.action.target();
            tracing::warn!(%target, verb = step.action.verb(), reason = step.reason, mode = ?context.settings.mode, "collecting garbage");
            if context.settings.mode == Mode::Act
                && let Err(error) = context.actuator.carry_out(&step.action).await
            {
                tracing::warn!(%target, error = %chain(&error), "garbage not collected, trying again later");
            }
        }
    }
}

fn decide(snapshot: &Snapshot, instances: &[Instance], now: Timestamp) -> Plan {
    let mut plan = Plan::new(snapshot.revision);
    if !snapshot.synced {
        return plan;
    }
    let owned: BTreeSet<&str> = snapshot
        .claims
        .values()
        .flat_map(|c| [c.uid.as_str(), c.provider_id.as_str()])
        .filter(|s| !s.is_empty())
        .collect();
    for instance in instances.iter().filter(|i| !i.terminating) {
        let young = now.duration_since(instance.launched).unsigned_abs() < YOUNG;
        if !young
            && !owned.contains(instance.token.as_str())
            && !owned.contains(instance.provider_id.as_str())
        {
            let action = Action::TerminateOrphan {
                provider_id: instance.provider_id.clone(),
            };
            plan.step(
                action,
                format!(
                    "no NodeClaim owns it; it was launched for {}",
                    instance.claim
                ),
            );
        }
    }
    let alive: BTreeSet<&str> = instances.iter().map(|i| i.provider_id.as_str()).collect();
    for claim in snapshot
        .claims
        .values()
        .filter(|c| c.deletion.is_none() && c.is(condition::REGISTERED))
    {
        let kubelet_lives = snapshot
            .node_of(claim)
            .is_some_and(|n| n.readiness == Readiness::Ready);
        if !alive.contains(claim.provider_id.as_str()) && !kubelet_lives {
            let action = Action::DeleteClaim {
                claim: claim.name.clone(),
                uid: claim.uid.clone(),
                disruption: None,
                outcome: None,
            };
            plan.step(action, format!("instance {} is gone", claim.provider_id));
        }
    }
    plan
}
