//! Pods without a place -> solver -> NodeClaims. A hint or a change wakes it; there is no fixed batch window.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use tokio::{sync::mpsc, task::JoinSet};

use super::{Context, Stats, engine::chain};
use crate::{
    api::names::reason,
    clock::Stopwatch,
    cluster::{Event, Hint, Nomination, Pod, PodKey, Snapshot},
    config::Mode,
    plan::{Action, Notice, Target, brakes::Brake, claim, words},
    scheduling::{self, NewNode, Placement, Problem},
};

pub(super) async fn run(
    context: Context,
    mut hints: mpsc::Receiver<Hint>,
    stats: Arc<Stats>,
    salt: u64,
) {
    let mut snapshots = context.writer.snapshots();
    let mut planned: Option<Arc<Snapshot>> = None;
    let mut look_again: Option<Timestamp> = None;
    loop {
        let again = look_again.unwrap_or(Timestamp::MAX);
        tokio::select! {
            biased;
            () = context.stop.cancelled() => return,
            Some(_) = hints.recv() => {}
            changed = snapshots.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = context.clock.sleep_until(again), if look_again.is_some() => planned = None,
        }
        if !wants_plan(&snapshots.borrow(), planned.as_deref()) {
            continue;
        }
        settle(&context, &mut snapshots, &mut hints).await;
        let snapshot = snapshots.borrow_and_update().clone();
        look_again = plan(&context, &snapshot, &stats, salt).await;
        planned = Some(snapshot);
    }
}

/// Waits until a burst is over, but not for long.
async fn settle(
    context: &Context,
    snapshots: &mut tokio::sync::watch::Receiver<Arc<Snapshot>>,
    hints: &mut mpsc::Receiver<Hint>,
) {
    let latest = context.clock.now() + context.settings.settle_most;
    loop {
        let quiet = context.clock.now() + context.settings.settle_idle;
        tokio::select! {
            biased;
            () = context.stop.cancelled() => return,
            () = context.clock.sleep_until(quiet.min(latest)) => return,
            Some(_) = hints.recv() => {}
            changed = snapshots.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// Whether there is a pod without a place and anything that could change its lot since the last plan.
fn wants_plan(snapshot: &Snapshot, planned: Option<&Snapshot>) -> bool {
    if !snapshot.synced {
        return false;
    }
    let unchanged = planned.is_some_and(|p| {
        p.unbound.ptr_eq(&snapshot.unbound)
            && p.pods.ptr_eq(&snapshot.pods)
            && p.nodes.ptr_eq(&snapshot.nodes)
            && p.claims.ptr_eq(&snapshot.claims)
            && p.pools.ptr_eq(&snapshot.pools)
            && p.classes.ptr_eq(&snapshot.classes)
            && p.catalogs.ptr_eq(&snapshot.catalogs)
            && p.daemon_sets.ptr_eq(&snapshot.daemon_sets)
            && p.held_pools.ptr_eq(&snapshot.held_pools)
            && p.leaving.ptr_eq(&snapshot.leaving)
    });
    if unchanged {
        return false;
    }
    let waits = |pod: &Pod| pod.is_provisionable() && !has_place(snapshot, &pod.key);
    let displaced = |pod: &Pod| pod.is_reschedulable() && !has_place(snapshot, &pod.key);
    snapshot
        .unbound
        .iter()
        .filter_map(|k| snapshot.pods.get(k))
        .any(|p| waits(p))
        || snapshot
            .claims
            .values()
            .filter(|c| c.deletion.is_some() || snapshot.leaving.contains(&c.provider_id))
            .filter_map(|c| snapshot.node_of(c))
            .any(|n| snapshot.pods_on(&n.name).any(|p| displaced(p)))
}

/// Whether an earlier plan holds a place for the pod that is still on its way. Once the node is up, a pod that is still waiting there
/// is planned again: somebody else may have taken the room.
fn has_place(snapshot: &Snapshot, pod: &PodKey) -> bool {
    match snapshot.nominations.get(pod) {
        Some(Nomination::Claim(name)) => snapshot.claims.get(name).is_some_and(|c| {
            c.deletion.is_none() && !c.is(crate::api::names::condition::INITIALIZED)
        }),
        Some(Nomination::Node(_)) | None => false,
    }
}

/// Solves, tells, launches. Returns when to look again even if nothing changes.
async fn plan(
    context: &Context,
    snapshot: &Arc<Snapshot>,
    stats: &Stats,
    salt: u64,
) -> Option<Timestamp> {
    let now = context.clock.now();
    let stopwatch = Stopwatch::start();
    let problem = Problem::from_snapshot(snapshot, now, &context.settings.solver);
    let placement = scheduling::solve(&problem);
    stats.solved(stopwatch.elapsed());
    tell(context, &placement);

    let existing: Vec<(PodKey, Nomination)> = placement
        .existing
        .iter()
        .flat_map(|(name, pods)| {
            let place = place(&problem, name);
            pods.iter().map(move |p| (p.clone(), place.clone()))
        })
        .collect();
    if !existing.is_empty() {
        context
            .writer
            .put(vec![Event::Nominated(Arc::new(existing))])
            .await;
    }
    if placement.new_nodes.is_empty() {
        return held_until(snapshot, now);
    }
    let (allowed, brake) = context
        .settings
        .brakes
        .allow(snapshot, now, placement.new_nodes.len());
    create(
        context,
        snapshot,
        &placement.new_nodes[..allowed],
        stats,
        salt,
        now,
    )
    .await;
    let held = held_until(snapshot, now);
    let Some(brake) = brake else { return held };
    let waiting = &placement.new_nodes[allowed..];
    tracing::warn!(launches = waiting.len(), %brake, "launches are put off");
    for pod in waiting.iter().flat_map(|n| &n.pods) {
        notify(
            context,
            Target::Pod(pod.clone()),
            reason::FAILED_SCHEDULING,
            true,
            format!("Waiting: {brake}"),
        );
    }
    match brake {
        Brake::LaunchRate(_, at) => Some(held.map_or(at, |h| h.min(at))),
        Brake::MaxNodes(_) => held,
    }
}

/// When the next pool that is held back may launch again.
fn held_until(snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    snapshot
        .held_pools
        .values()
        .map(|h| h.until)
        .filter(|t| *t > now)
        .min()
}

/// A machine of the problem as a nomination names it: by claim where there is one, since the claim outlives the change from "to be
/// launched" to "node".
fn place(problem: &Problem, name: &Arc<str>) -> Nomination {
    let claim = problem
        .nodes
        .iter()
        .find(|n| n.name == *name)
        .and_then(|n| n.claim.as_ref());
    claim.map_or_else(
        || Nomination::Node(name.clone()),
        |c| Nomination::Claim(c.name.clone()),
    )
}

async fn create(
    context: &Context,
    snapshot: &Snapshot,
    nodes: &[NewNode],
    stats: &Stats,
    salt: u64,
    now: Timestamp,
) {
    let mut names = claim::Names::new(snapshot, now, salt);
    let mut creating = JoinSet::new();
    for node in nodes {
        let name = names.next(&node.pool.name);
        let types: Vec<&str> = node
            .instance_types
            .iter()
            .take(5)
            .map(|t| &*t.name)
            .collect();
        tracing::info!(
            NodeClaim = name,
            NodePool = &*node.pool.name,
            pods = node.pods.len(),
            "instance-types" = %format_args!("{} and {} more", types.join(", "), node.instance_types.len() - types.len()),
            "price-per-hour" = node.price_per_hour,
            mode = ?context.settings.mode,
            "created nodeclaim"
        );
        if context.settings.mode == Mode::Advise {
            continue;
        }
        for pod in &node.pods {
            let text = format!("Pod should schedule on NodeClaim {name}");
            notify(
                context,
                Target::Pod(pod.clone()),
                reason::NOMINATED,
                false,
                text,
            );
        }
        let action = Action::CreateClaim {
            claim: Box::new(claim::build(node, name)),
            pods: node.pods.clone(),
        };
        let actuator = context.actuator.clone();
        creating.spawn(async move { (action.target(), actuator.carry_out(&action).await) });
    }
    while let Some(created) = creating.join_next().await {
        match created {
            Ok((_, Ok(_))) => {
                stats
                    .claims_created
                    .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            // Its pods have no place still, so the next plan tries again.
            Ok((target, Err(error))) => {
                tracing::warn!(%target, error = %chain(&error), "claim not created")
            }
            Err(error) => super::rethrow(Err(error)),
        }
    }
}

fn tell(context: &Context, placement: &Placement) {
    for (pod, why) in &placement.pending {
        let text = words::pending(why);
        notify(
            context,
            Target::Pod(pod.clone()),
            reason::FAILED_SCHEDULING,
            true,
            text,
        );
    }
    for (pod, why) in &placement.ignored {
        if let Some(text) = words::ignored(why) {
            notify(
                context,
                Target::Pod(pod.clone()),
                reason::FAILED_SCHEDULING,
                true,
                text,
            );
        }
    }
    for pool in &placement.empty_pools {
        let text = "NodePool requirements leave no instance type".to_owned();
        notify(
            context,
            Target::Pool(pool.clone()),
            reason::NO_COMPATIBLE_INSTANCE_TYPES,
            true,
            text,
        );
    }
    let reasons: BTreeSet<String> = placement.pending.values().map(words::pending).collect();
    let placed: usize = placement.existing.values().map(Vec::len).sum();
    let new: usize = placement.new_nodes.iter().map(|n| n.pods.len()).sum();
    tracing::info!(
        "pods-on-existing" = placed,
        "pods-on-new" = new,
        "new-nodes" = placement.new_nodes.len(),
        pending = placement.pending.len(),
        reasons = ?reasons,
        "computed new nodeclaim(s) to fit pod(s)"
    );
}

fn notify(context: &Context, about: Target, reason: &'static str, warning: bool, message: String) {
    context.teller.tell(Notice {
        about,
        reason,
        warning,
        message,
    });
}
