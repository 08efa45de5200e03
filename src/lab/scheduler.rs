//! The lab's scheduler: kube-scheduler's rules for what decides where a pod goes, and its way of asking an extender.
//!
//! Filters: `unschedulable`, taints, node selector and affinity, resources. Scores: soft taints, preferred affinity,
//! least allocated, balanced allocation, and ten times the extender's score times its weight. Left out: preemption,
//! spread, pod affinity, volumes, host ports. As in the real one an extender is asked to filter only when some node is
//! left, to prioritise only when more than one is, and a failure of it is ignored (`ignorable: true`).
//!
//! Must never: read what the product knows; it sees the API and the extender's answers, no more.

mod cache;
mod class;
mod extender;
mod fit;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(in crate::lab) use fit::Constraints;

use self::{
    cache::{Cache, NodeChange},
    class::{Classes, Merits, Reasons},
    extender::Extender,
    queue::Queue,
};
use super::{
    api::{Change, Event, Key, Kind, Object, Server},
    seed::Seed,
};
use crate::cluster;

/// Weights of kube-scheduler's default profile.
const TAINT_WEIGHT: i64 = 3;
const AFFINITY_WEIGHT: i64 = 2;
const FIT_WEIGHT: i64 = 1;
const BALANCE_WEIGHT: i64 = 1;

/// Scores of an extender go from 0 to 10 and count ten times, to be on the scale of the others.
const EXTENDER_SCALE: i64 = 10;

/// How many pods are tried in a row before everything else gets its turn, and what one try takes: kube-scheduler
/// manages some thousand pods a second.
const RUN: u32 = 16;
const TRY: Duration = Duration::from_millis(1);

/// How a scheduler is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Pods with this `spec.schedulerName` are its own.
    pub name: String,
    /// The extender's routes; without them none is asked.
    pub extender: Option<Router>,
    /// The extender's `weight` in the scheduler's configuration.
    pub extender_weight: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: "default-scheduler".to_owned(),
            extender: None,
            extender_weight: 10,
        }
    }
}

/// The scheduler. [`Scheduler::run`] is its one task.
#[derive(Debug)]
pub struct Scheduler {
    server: Server,
    seed: Seed,
    name: String,
    extender: Option<Extender>,
    extender_weight: i64,
    cache: Cache,
    classes: Classes,
    queue: Queue,
    /// Where the next search for nodes begins, so that all nodes get their turn.
    start: usize,
}

/// What came of trying a pod.
enum Outcome {
    Bound,
    Refused {
        message: Arc<str>,
        by_extender: bool,
    },
    /// The pod changed meanwhile.
    Overtaken,
}

impl Scheduler {
    /// A scheduler for the pods of a server. The seed decides between nodes of equal score.
    pub fn new(server: Server, seed: Seed, settings: Settings) -> Self {
        Self {
            server,
            seed: seed.of("scheduler"),
            name: settings.name,
            extender: settings.extender.map(Extender::new),
            extender_weight: settings.extender_weight,
            cache: Cache::default(),
            classes: Classes::default(),
            queue: Queue::default(),
            start: 0,
        }
    }

    /// Schedules until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut nodes = self.server.subscribe(Kind::Node);
        let mut pods = self.server.subscribe(Kind::Pod);
        let mut tries = 0;
        loop {
            // Nodes first: a pod bound to a node that is not known yet would be charged to nothing.
            while let Some(event) = nodes.try_next() {
                self.node_event(&event);
            }
            while let Some(event) = pods.try_next() {
                self.pod_event(&event);
            }
            self.queue.tick();
            if let Some(key) = self.queue.next() {
                self.schedule(&key).await;
                tries += 1;
                if tries < RUN && !stop.is_cancelled() {
                    continue;
                }
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(TRY * tries) => {}
                }
                tries = 0;
                continue;
            }
            tries = 0;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                event = nodes.next() => match event {
                    Some(event) => self.node_event(&event),
                    None => return,
                },
                event = pods.next() => match event {
                    Some(event) => self.pod_event(&event),
                    None => return,
                },
                () = self.queue.due() => {}
            }
        }
    }

    fn node_event(&mut self, event: &Event) {
        let name = event.object.name();
        match event.change {
            Change::Bookmark => {}
            Change::Deleted => {
                if self.cache.remove_node(name) {
                    self.queue.wake_refused_by_extender();
                }
            }
            Change::Added | Change::Modified => match event.object.parse() {
                Ok(node) => {
                    let node = cluster::Node::from_k8s(&node);
                    if self.cache.set_node(node) != NodeChange::Nothing {
                        self.wake_for(name);
                    }
                }
                Err(error) => tracing::warn!(node = name, %error, "node cannot be read"),
            },
        }
    }

    fn pod_event(&mut self, event: &Event) {
        let pod = &event.object;
        let key = Key::new(pod.namespace(), pod.name());
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let gone = event.change == Change::Deleted || matches!(phase, "Succeeded" | "Failed");
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if event.change == Change::Bookmark {
            return;
        }
        if gone {
            self.forget(&key);
            if let Some(node) = self.cache.unbind(&key) {
                self.wake_for(&node);
            }
        } else if !node.is_empty() {
            self.forget(&key);
            if self.cache.node_of(&key) != Some(node) {
                match class::demand(pod) {
                    Ok(demand) => self.cache.bind(&key, node, &Arc::new(demand)),
                    Err(error) => tracing::warn!(pod = pod.name(), %error, "pod cannot be read"),
                }
            }
        } else if !self.is_mine(pod) {
            self.forget(&key);
        } else if let Some(pending) = self.queue.get_mut(&key)
            && pending.pod.uid() == pod.uid()
            && is_alike(&pending.pod, pod)
        {
            pending.pod = pod.clone();
        } else {
            // New, or changed in what decides where it may go.
            self.forget(&key);
            match self.classes.join(pod) {
                Ok(class) => self.queue.add(&key, pod.clone(), class),
                Err(error) => tracing::warn!(pod = pod.name(), %error, "pod cannot be read"),
            }
        }
    }

    fn is_mine(&self, pod: &Object) -> bool {
        let gates = pod["spec"]["schedulingGates"].as_array();
        pod["spec"]["schedulerName"] == *self.name
            && !pod.is_deleting()
            && gates.is_none_or(Vec::is_empty)
    }

    fn forget(&mut self, key: &Key) {
        if let Some(pending) = self.queue.remove(key) {
            self.classes.leave(pending.class);
        }
    }

    /// Wakes the pods for which a change of a node may have made a difference.
    fn wake_for(&mut self, node: &str) {
        self.queue.wake_refused_by_extender();
        let Some(slot) = self.cache.slot(node) else {
            return;
        };
        for class in self.queue.sleeping_classes() {
            let info = self.cache.info(slot);
            if self.classes.get(class).verdict(slot, info).is_ok() {
                self.queue.wake_class(class);
            }
        }
    }

    async fn schedule(&mut self, key: &Key) {
        let Some(pending) = self.queue.get(key) else {
            return;
        };
        let (pod, class) = (pending.pod.clone(), pending.class);
        match self.attempt(key, &pod, class).await {
            Outcome::Bound => self.forget(key),
            Outcome::Overtaken => self.queue.put_back(key),
            Outcome::Refused {
                message,
                by_extender,
            } => {
                self.queue.sleep(key, by_extender);
                if self.queue.is_to_be_told(key, &message) {
                    self.report(&pod, &message);
                }
            }
        }
    }

    async fn attempt(&mut self, key: &Key, pod: &Object, class: usize) -> Outcome {
        let room = self.cache.room;
        let known = self.classes.get(class).refused.clone();
        if let Some((_, message)) = known.filter(|(at, _)| *at == room) {
            return Outcome::Refused {
                message,
                by_extender: false,
            };
        }
        let all = self.cache.order().len();
        let kind = self.classes.get(class);
        let found = class::find(kind, &self.cache, self.start, enough(all));
        self.start = (self.start + found.seen) % all.max(1);
        let mut reasons: Vec<(Reasons, usize)> =
            found.refusals.iter().map(|r| (r.clone(), 1)).collect();
        if found.not_named > 0 {
            let other = "node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned();
            reasons.push((Reasons::from([other]), found.not_named));
        }
        let tell = |reasons: &[(Reasons, usize)]| -> Arc<str> {
            let each = reasons.iter();
            let each = each.flat_map(|(all, n)| all.iter().map(|r| (r.as_str(), *n)));
            class::message(all, each).into()
        };
        if found.feasible.is_empty() {
            let message = tell(&reasons);
            kind.refused = Some((room, message.clone()));
            return Outcome::Refused {
                message,
                by_extender: false,
            };
        }

        let mut left: Vec<(String, Merits)> = found
            .feasible
            .iter()
            .filter_map(|(slot, merits)| {
                let node = self.cache.info(*slot).node.as_ref()?;
                Some((node.name.to_string(), *merits))
            })
            .collect();
        if let Some(extender) = &self.extender {
            let names: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
            match extender.filter(pod, &names).await {
                Ok(filtered) => {
                    let why = filtered.refused.into_values();
                    reasons.extend(why.map(|r| (Reasons::from([r]), 1)));
                    left.retain(|(name, _)| filtered.nodes.contains(name));
                }
                Err(error) => tracing::debug!(%error, "extender ignored"),
            }
            if left.is_empty() {
                return Outcome::Refused {
                    message: tell(&reasons),
                    by_extender: true,
                };
            }
        }
        let node = self.choose(pod, &left).await;
        self.bind(key, pod, &node, class)
    }

    /// The node with the highest score; the seed decides between equals.
    async fn choose(&self, pod: &Object, nodes: &[(String, Merits)]) -> String {
        if let [(only, _)] = nodes {
            return only.clone();
        }
        let extra = match &self.extender {
            None => None,
            Some(extender) => {
                let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
                let scores = extender.prioritize(pod, &names).await;
                let ignored = |error| tracing::debug!(%error, "extender ignored");
                scores.map_err(ignored).ok()
            }
        };
        let most = |of: fn(&Merits) -> i64| nodes.iter().map(|(_, m)| of(m)).max().unwrap_or(0);
        let (liked, unwelcome) = (most(|m| m.preference), most(|m| m.unwelcome));
        let part = |value: i64, most: i64| if most == 0 { 0 } else { value * 100 / most };
        let score = |(name, merits): &(String, Merits)| {
            let extended = extra
                .as_ref()
                .and_then(|e| e.get(name))
                .copied()
                .unwrap_or(0);
            TAINT_WEIGHT * (100 - part(merits.unwelcome, unwelcome))
                + AFFINITY_WEIGHT * part(merits.preference, liked)
                + FIT_WEIGHT * merits.least_allocated
                + BALANCE_WEIGHT * merits.balanced
                + extended * self.extender_weight * EXTENDER_SCALE
        };
        let scores: Vec<i64> = nodes.iter().map(score).collect();
        let best = scores.iter().max().copied().unwrap_or(0);
        let ties: Vec<&String> = nodes
            .iter()
            .zip(&scores)
            .filter(|(_, s)| **s == best)
            .map(|((name, _), _)| name)
            .collect();
        ties[self.seed.index(pod.uid(), ties.len())].clone()
    }

    fn bind(&mut self, key: &Key, pod: &Object, node: &str, class: usize) -> Outcome {
        let uid = Some(pod.uid());
        match self.server.bind(&key.namespace, &key.name, node, uid) {
            Ok(_) => {
                let demand = self.classes.get(class).demand.clone();
                self.cache.bind(key, node, &demand);
                Outcome::Bound
            }
            Err(error) => {
                // Deleted, replaced or bound by another: the watch tells.
                tracing::debug!(pod = %pod.name(), %node, %error, "pod not bound");
                Outcome::Overtaken
            }
        }
    }

    /// Tells the pod why it has no node, unless it has been told.
    fn report(&self, pod: &Object, message: &str) {
        let now = self.server.now();
        let (namespace, name) = (pod.namespace(), pod.name());
        let current = self.server.get(Kind::Pod, namespace, name);
        if !current.is_ok_and(|p| p.uid() == pod.uid() && p["spec"]["nodeName"].is_null()) {
            return;
        }
        let edited = self
            .server
            .edit_status(Kind::Pod, namespace, name, |status| {
                let condition = json!({
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": message,
                });
                super::status::set_condition(status, condition, now);
            });
        if let Err(error) = edited {
            tracing::debug!(pod = name, %error, "pod not told why it waits");
        }
    }
}

/// How many feasible nodes kube-scheduler looks for: all up to 100, then a share that falls with the cluster's size, at
/// least 5 % and 100.
fn enough(nodes: usize) -> usize {
    if nodes < 100 {
        return nodes;
    }
    let percent = 50usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(100)
}

/// Whether two versions of a pod are the same but for what the scheduler itself and the kubelet write.
fn is_alike(old: &Value, new: &Value) -> bool {
    let (was, is) = (&old["metadata"], &new["metadata"]);
    old["spec"] == new["spec"] && was["labels"] == is["labels"]
}
