//! What the lab sees of its cluster: counts kept up to date from watches, and the timeline.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    api::{Change, Event, Key, Kind, Object, Selectors, Server, Watch},
    timeline::{Batch, Happened, Row},
};
use crate::{
    api::names::{condition, label},
    cloud::simulated::Simulated,
};

/// How things stand.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Standing {
    /// Seconds since the start.
    pub at_s: f64,
    /// Pods that their owners ask for, DaemonSets' left out.
    pub wanted: usize,
    /// Pods that run.
    pub running: usize,
    /// Pods that wait.
    pub pending: usize,
    /// Pods that are on their way out.
    pub ending: usize,
    /// Nodes that the API knows.
    pub nodes: usize,
    /// NodeClaims.
    pub claims: usize,
    /// Instances of the cloud that are not gone.
    pub instances: usize,
    /// What the running instances cost, USD.
    pub price_per_hour: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Pending,
    Running,
    Ending,
    Finished,
}

#[derive(Debug, Clone, Copy)]
struct PodSeen {
    phase: Phase,
    /// Nobody controls it, so it is wanted for as long as it is there.
    bare: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct ClaimSeen {
    launched: bool,
    leaving: bool,
}

/// Watches the API and keeps count.
pub(super) struct Observer {
    server: Server,
    cloud: Simulated,
    start: Timestamp,
    pod_events: Watch,
    node_events: Watch,
    claim_events: Watch,
    owner_events: [Watch; 3],
    pods: BTreeMap<Key, PodSeen>,
    /// Ready or not, by name.
    nodes: BTreeMap<String, bool>,
    claims: BTreeMap<String, ClaimSeen>,
    /// Pods that each owner asks for.
    owners: BTreeMap<(Kind, Key), usize>,
    /// When a pod last began to run.
    pub(super) last_running: Option<Timestamp>,
    batch: Batch,
    pub(super) rows: Vec<Row>,
}

impl Observer {
    pub(super) fn new(server: Server, cloud: Simulated) -> Self {
        Self {
            start: server.now(),
            pod_events: server.subscribe(Kind::Pod),
            node_events: server.subscribe(Kind::Node),
            claim_events: server.subscribe(Kind::NodeClaim),
            owner_events: [Kind::Deployment, Kind::ReplicaSet, Kind::Job]
                .map(|k| server.subscribe(k)),
            server,
            cloud,
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
            owners: BTreeMap::new(),
            last_running: None,
            batch: Batch::default(),
            rows: Vec::new(),
        }
    }

    /// Seconds from the start to a time, to the millisecond.
    pub(super) fn seconds(&self, at: Timestamp) -> f64 {
        at.duration_since(self.start).as_millis() as f64 / 1000.0
    }

    pub(super) fn now_s(&self) -> f64 {
        self.seconds(self.server.now())
    }

    /// Waits for a change; false when a watch has ended.
    pub(super) async fn changed(&mut self) -> bool {
        let [deployments, replica_sets, jobs] = &mut self.owner_events;
        let event = tokio::select! {
            biased;
            event = deployments.next() => event.map(|e| (Seen::Owner, e)),
            event = replica_sets.next() => event.map(|e| (Seen::Owner, e)),
            event = jobs.next() => event.map(|e| (Seen::Owner, e)),
            event = self.claim_events.next() => event.map(|e| (Seen::Claim, e)),
            event = self.node_events.next() => event.map(|e| (Seen::Node, e)),
            event = self.pod_events.next() => event.map(|e| (Seen::Pod, e)),
        };
        let Some((seen, event)) = event else {
            return false;
        };
        self.see(seen, &event);
        self.catch_up();
        true
    }

    /// Takes in everything that has happened up to now.
    pub(super) fn catch_up(&mut self) {
        for i in 0..self.owner_events.len() {
            while let Some(event) = self.owner_events[i].try_next() {
                self.see(Seen::Owner, &event);
            }
        }
        while let Some(event) = self.claim_events.try_next() {
            self.see(Seen::Claim, &event);
        }
        while let Some(event) = self.node_events.try_next() {
            self.see(Seen::Node, &event);
        }
        while let Some(event) = self.pod_events.try_next() {
            self.see(Seen::Pod, &event);
        }
    }

    fn see(&mut self, seen: Seen, event: &Event) {
        if event.change == Change::Bookmark {
            return;
        }
        let (object, gone) = (&event.object, event.change == Change::Deleted);
        match seen {
            Seen::Owner => self.owner(object, gone),
            Seen::Claim => self.claim(object, gone),
            Seen::Node => self.node(object, gone),
            Seen::Pod => self.pod(object, gone),
        }
    }

    fn owner(&mut self, owner: &Object, gone: bool) {
        let key = (owner.kind(), Key::new(owner.namespace(), owner.name()));
        if gone || owner.is_deleting() || owner.controller_uid().is_some() {
            self.owners.remove(&key);
        } else {
            self.owners.insert(key, wanted_by(owner));
        }
    }

    fn pod(&mut self, pod: &Object, gone: bool) {
        let key = Key::new(pod.namespace(), pod.name());
        if gone {
            self.pods.remove(&key);
            return;
        }
        let controller = controller_kind(pod);
        if controller == Some("DaemonSet") {
            return;
        }
        let phase = match pod["status"]["phase"].as_str() {
            Some("Succeeded" | "Failed") => Phase::Finished,
            _ if pod.is_deleting() => Phase::Ending,
            Some("Running") => Phase::Running,
            _ => Phase::Pending,
        };
        let seen = PodSeen {
            phase,
            bare: controller.is_none(),
        };
        let was = self.pods.insert(key, seen);
        if phase == Phase::Running && was.is_none_or(|w| w.phase != Phase::Running) {
            self.last_running = Some(self.server.now());
        }
    }

    fn node(&mut self, node: &Object, gone: bool) {
        let now = self.now_s();
        let name = node.name().to_owned();
        if gone {
            self.nodes.remove(&name);
            self.batch.add(now, Happened::Unregistered, "");
            return;
        }
        let ready = node.condition("Ready") == Some("True");
        let was = self.nodes.insert(name, ready);
        if was.is_none() {
            self.batch.add(now, Happened::Registered, "");
        }
        if ready && was != Some(true) {
            self.batch.add(now, Happened::Ready, "");
        }
    }

    fn claim(&mut self, claim: &Object, gone: bool) {
        let now = self.now_s();
        let name = claim.name().to_owned();
        if gone {
            let launched = self.claims.remove(&name).is_some_and(|c| c.launched);
            let happened = if launched {
                Happened::Terminated
            } else {
                Happened::Failed
            };
            self.batch.add(now, happened, "");
            return;
        }
        let was = self.claims.get(&name).copied();
        let seen = ClaimSeen {
            launched: claim.condition(condition::LAUNCHED) == Some("True"),
            leaving: claim.is_deleting(),
        };
        self.claims.insert(name, seen);
        let text = |key: &str| claim.label(key).unwrap_or_default().to_owned();
        if was.is_none() {
            self.batch
                .add(now, Happened::Claimed, &text(label::NODEPOOL));
        }
        let was = was.unwrap_or_default();
        if seen.launched && !was.launched {
            let sort = format!(
                "{} {}",
                text(label::INSTANCE_TYPE),
                text(label::CAPACITY_TYPE)
            );
            self.batch.add(now, Happened::Launched, sort.trim());
        }
        if seen.leaving && !was.leaving {
            self.batch.add(now, Happened::Leaving, "");
        }
    }

    /// How things stand now.
    pub(super) fn standing(&self) -> Standing {
        let count = |phase| self.pods.values().filter(|p| p.phase == phase).count();
        let bare = |p: &&PodSeen| p.bare && matches!(p.phase, Phase::Pending | Phase::Running);
        let counters = self.cloud.counters();
        Standing {
            at_s: self.now_s(),
            wanted: self.owners.values().sum::<usize>() + self.pods.values().filter(bare).count(),
            running: count(Phase::Running),
            pending: count(Phase::Pending),
            ending: count(Phase::Ending),
            nodes: self.nodes.len(),
            claims: self.claims.len(),
            instances: usize::try_from(counters.left_over).unwrap_or(usize::MAX),
            price_per_hour: dollars(counters.price_per_hour),
        }
    }

    /// When events become rows, seconds since the start.
    pub(super) fn rows_due(&self) -> Option<f64> {
        self.batch.due()
    }

    /// Turns the events so far into rows, if they are due or `all` are asked for; returns the index of the first new row.
    pub(super) fn make_rows(&mut self, all: bool) -> usize {
        let first = self.rows.len();
        if all || self.batch.due().is_some_and(|due| due <= self.now_s()) {
            for (at_s, what) in self.batch.take() {
                self.add_row(at_s, what);
            }
        }
        first
    }

    /// Adds a row of its own.
    pub(super) fn add_row(&mut self, at_s: f64, what: String) {
        let standing = self.standing();
        self.rows.push(Row {
            at_s,
            what,
            nodes: standing.nodes,
            pending: standing.pending,
            price_per_hour: standing.price_per_hour,
        });
    }

    /// NodePools and node classes whose readiness is not decided, and those that are not ready with the reason.
    pub(super) fn readiness(&self) -> (usize, Vec<String>) {
        let (mut undecided, mut unready) = (0, Vec::new());
        for kind in [Kind::EC2NodeClass, Kind::NodePool] {
            for object in self.server.list(kind, None, &Selectors::default()).1 {
                match object.condition(condition::READY) {
                    Some("True") => {}
                    Some("False") => unready.push(format!(
                        "{} {}: {}",
                        kind.info().kind,
                        object.name(),
                        why(&object)
                    )),
                    _ => undecided += 1,
                }
            }
        }
        (undecided, unready)
    }
}

#[derive(Debug, Clone, Copy)]
enum Seen {
    Owner,
    Claim,
    Node,
    Pod,
}

/// Dollars to the micro-dollar, so that sums in another order show the same.
pub(super) fn dollars(amount: f64) -> f64 {
    // A sum of nothing is negative zero; adding zero makes it plain.
    (amount * 1e6).round() / 1e6 + 0.0
}

/// What the conditions that are not true say.
fn why(object: &Object) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let bad = conditions
        .into_iter()
        .flatten()
        .filter(|c| c["status"] != "True");
    let text = |c: &Value| {
        let get = |key: &str| c[key].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", get("type"), get("reason"), get("message"))
            .trim()
            .to_owned()
    };
    bad.map(text).collect::<Vec<_>>().join("; ")
}

fn controller_kind(object: &Object) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|o| o["controller"] == true)?["kind"].as_str()
}

/// How many pods a workload asks for at once.
fn wanted_by(owner: &Object) -> usize {
    let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
    let spec = &owner["spec"];
    if owner.kind() != Kind::Job {
        return number(&spec["replicas"]).unwrap_or(1);
    }
    let status = &owner["status"];
    let ended = ["Complete", "Failed"]
        .iter()
        .any(|c| owner.condition(c) == Some("True"));
    if ended || spec["suspend"] == true {
        return 0;
    }
    let parallel = number(&spec["parallelism"]).unwrap_or(1);
    let left = number(&spec["completions"])
        .unwrap_or(1)
        .saturating_sub(number(&status["succeeded"]).unwrap_or(0));
    parallel.min(left)
}
