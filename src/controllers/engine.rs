//! Lifecycle and disruption: decide on each new snapshot, carry the steps out side by side, at most one per target.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{sync::Notify, task::JoinSet};

use super::Context;
use crate::{
    actuate::{ActuateError, Done},
    config::Mode,
    disruption, lifecycle,
    plan::{Action, Plan, Step, Target},
};

/// Changes within this time are looked at together: a burst of watch events is one decision.
const COALESCE: Duration = Duration::from_millis(5);

/// Voluntary disruption is looked at this often at most; it is never urgent.
const DISRUPTION_INTERVAL: Duration = Duration::from_secs(1);

/// Look at everything at least this often, should a wake-up have been missed.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Actions under way at once, launches included. One that hangs takes one of these places until its time-out and delays nothing else.
const MOST_AT_ONCE: usize = 1_000;

/// A target that waits before its next action.
#[derive(Clone, Copy)]
struct Delay {
    failures: u32,
    until: Timestamp,
}

struct Ended {
    target: Target,
    verb: &'static str,
    result: Result<Done, ActuateError>,
}

pub(super) async fn run(context: Context, refresh: Arc<Notify>) {
    let mut snapshots = context.writer.snapshots();
    let mut under_way: JoinSet<Ended> = JoinSet::new();
    let mut busy: BTreeMap<Target, &'static str> = BTreeMap::new();
    let mut delays: BTreeMap<Target, Delay> = BTreeMap::new();
    let mut next_disruption = Timestamp::UNIX_EPOCH;
    let mut wake = context.clock.now();
    loop {
        tokio::select! {
            biased;
            () = context.stop.cancelled() => break,
            Some(ended) = under_way.join_next() => {
                match ended {
                    Ok(ended) => {
                        busy.remove(&ended.target);
                        settle(&context, &refresh, &mut delays, ended);
                    }
                    Err(error) => super::rethrow(Err(error)),
                }
            }
            changed = snapshots.changed() => {
                if changed.is_err() {
                    break;
                }
                context.clock.sleep(COALESCE).await;
            }
            () = context.clock.sleep_until(wake) => {}
        }
        let snapshot = snapshots.borrow_and_update().clone();
        let now = context.clock.now();
        let mut plan = lifecycle::decide(&snapshot, now);
        if next_disruption <= now {
            merge(&mut plan, disruption::decide(&snapshot, now));
            next_disruption = now + DISRUPTION_INTERVAL;
        } else {
            plan.wake(next_disruption);
        }
        delays.retain(|_, d| d.until + LONGEST_SLEEP * 2 > now);
        for notice in plan.notices.drain(..) {
            context.teller.tell(notice);
        }
        for step in std::mem::take(&mut plan.steps) {
            let target = step.action.target();
            if busy.contains_key(&target) || under_way.len() >= MOST_AT_ONCE {
                continue;
            }
            if let Some(delay) = delays.get(&target).filter(|d| d.until > now) {
                plan.wake(delay.until);
                continue;
            }
            busy.insert(target.clone(), step.action.verb());
            begin(&context, &mut under_way, target, step);
        }
        wake = plan
            .wake_at
            .unwrap_or(now + LONGEST_SLEEP)
            .min(now + LONGEST_SLEEP)
            .max(now + Duration::from_millis(1));
    }
    // Nothing new begins; what is under way ends by itself, every call has its time-out.
    while let Some(ended) = under_way.join_next().await {
        super::rethrow(ended.map(drop));
    }
}

/// Adds one plan to another; the first step about a target stays.
fn merge(plan: &mut Plan, other: Plan) {
    plan.steps.extend(other.steps);
    plan.notices.extend(other.notices);
    if let Some(at) = other.wake_at {
        plan.wake(at);
    }
}

fn begin(context: &Context, under_way: &mut JoinSet<Ended>, target: Target, step: Step) {
    let verb = step.action.verb();
    if context.settings.mode == Mode::Advise {
        tracing::info!(%target, verb, reason = step.reason, "would act");
        let actuator = context.actuator.clone();
        under_way.spawn(async move {
            actuator.assume(&step.action).await;
            let result = Ok(Done::Again(LONGEST_SLEEP));
            Ended {
                target,
                verb,
                result,
            }
        });
        return;
    }
    match &step.action {
        Action::ClaimStatus { .. } | Action::PoolStatus { .. } => {
            tracing::debug!(%target, verb, reason = step.reason, "acting")
        }
        _ => tracing::info!(%target, verb, reason = step.reason, "acting"),
    }
    let actuator = context.actuator.clone();
    under_way.spawn(async move {
        let result = Box::pin(actuator.carry_out(&step.action)).await;
        Ended {
            target,
            verb,
            result,
        }
    });
}

fn settle(context: &Context, refresh: &Notify, delays: &mut BTreeMap<Target, Delay>, ended: Ended) {
    let now = context.clock.now();
    let Ended {
        target,
        verb,
        result,
    } = ended;
    if verb == "launch" {
        // What was sold out, and what is left of it, is read again before the next plan.
        refresh.notify_one();
    }
    match result {
        Ok(Done::Finished) => {
            delays.remove(&target);
        }
        Ok(Done::Again(after)) => {
            delays.insert(
                target,
                Delay {
                    failures: 0,
                    until: now + after,
                },
            );
        }
        Err(error) => {
            let failures = delays.get(&target).map_or(0, |d| d.failures) + 1;
            let after = error.retry_after(failures);
            if error.is_conflict() || error.is_gone() {
                tracing::debug!(%target, verb, failures, error = %chain(&error), "overtaken, looking again");
            } else {
                tracing::warn!(%target, verb, failures, error = %chain(&error), "failed, trying again");
            }
            delays.insert(
                target,
                Delay {
                    failures,
                    until: now + after,
                },
            );
        }
    }
}

/// An error with its causes on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
