//! What kubelets do with the pods bound to their machines.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Due, Kubelets, RUN_FOR, START_AFTER, STOP_AFTER, STOPS_AFTER};
use crate::{
    lab::{
        api::{Change, DeleteOptions, Event, Key, Kind, Object, Server},
        status::{rfc3339, set_condition},
    },
    units::GoDuration,
};

/// How long a pod that is meant to end runs when it does not say.
const DEFAULT_RUN: Duration = Duration::from_secs(30);

/// A pod in a kubelet's care.
#[derive(Debug)]
pub(super) struct Run {
    uid: String,
    pub(super) node: String,
    /// When the kubelet first saw it.
    since: Timestamp,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Starting,
    Running,
    Stopping,
}

impl Kubelets {
    pub(super) fn pod_event(&mut self, event: &Event) {
        let pod = &event.object;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let Some(running) = self.machines.get(node) else {
            return;
        };
        let key = Key::new(pod.namespace(), pod.name());
        let uid = pod.uid();
        let known = self.runs.get(&key).filter(|run| run.uid == uid);
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let now = Instant::now();
        if event.change == Change::Deleted {
            if known.is_some() {
                self.runs.remove(&key);
            }
        } else if pod.is_deleting() {
            if known.is_some_and(|run| run.stage == Stage::Stopping) {
                return;
            }
            let own = match annotated(pod, STOP_AFTER) {
                Some(own) => own,
                None => self.between(uid, "stop", STOPS_AFTER),
            };
            let grace = pod["metadata"]["deletionGracePeriodSeconds"]
                .as_u64()
                .unwrap_or(0);
            let delay = own.min(Duration::from_secs(grace));
            self.timers
                .add(now + delay, Due::Stopped(key.clone(), uid.to_owned()));
            self.keep(key, pod, Stage::Stopping);
        } else if known.is_none() && phase == "Pending" {
            let host_network = pod["spec"]["hostNetwork"] == true;
            let from = if host_network {
                now
            } else {
                running.ready_at.max(now)
            };
            let at = from + self.between(uid, "start", START_AFTER);
            self.timers.add(at, Due::Start(key.clone(), uid.to_owned()));
            self.keep(key, pod, Stage::Starting);
        } else if known.is_none() && phase == "Running" {
            // Started by these kubelets before they were restarted.
            self.keep(key.clone(), pod, Stage::Running);
            self.end_later(&key, pod);
        }
    }

    fn keep(&mut self, key: Key, pod: &Object, stage: Stage) {
        let (now, uid) = (self.server.now(), pod.uid());
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let since = self
            .runs
            .get(&key)
            .filter(|run| run.uid == uid)
            .map(|run| run.since);
        let run = Run {
            uid: uid.to_owned(),
            node: node.to_owned(),
            since: since.unwrap_or(now),
            stage,
        };
        self.runs.insert(key, run);
    }

    /// The pod, if it is still in that stage of this kubelet's care.
    fn in_care(&self, key: &Key, uid: &str, stage: Stage) -> Option<Object> {
        self.runs
            .get(key)
            .filter(|run| run.uid == uid && run.stage == stage)?;
        let pod = self.server.get(Kind::Pod, &key.namespace, &key.name).ok()?;
        (pod.uid() == uid).then_some(pod)
    }

    pub(super) fn start(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.in_care(key, uid, Stage::Starting) else {
            return;
        };
        let Some(run) = self.runs.get_mut(key) else {
            return;
        };
        run.stage = Stage::Running;
        let since = run.since;
        let Some(running) = self.machines.get(&run.node) else {
            return;
        };
        let host = running.machine.address.clone();
        let [.., a, b] = self.seed.draw(&format!("{uid}/address")).to_be_bytes();
        let address = match pod["spec"]["hostNetwork"] == true {
            true => host.clone(),
            false => format!("10.128.{a}.{b}"),
        };
        let now = self.server.now();
        let edited = self
            .server
            .edit_status(Kind::Pod, &key.namespace, &key.name, |status| {
                status["phase"] = json!("Running");
                status["startTime"] = json!(rfc3339(since));
                status["hostIP"] = json!(host);
                status["podIP"] = json!(address);
                status["podIPs"] = json!([{"ip": address}]);
                for kind in [
                    "PodReadyToStartContainers",
                    "Initialized",
                    "Ready",
                    "ContainersReady",
                ] {
                    set_condition(status, json!({"type": kind, "status": "True"}), now);
                }
                let state = json!({"running": {"startedAt": rfc3339(now)}});
                status["containerStatuses"] = containers(&pod, &state, true);
            });
        match edited {
            Ok(pod) => self.end_later(key, &pod),
            Err(error) => tracing::debug!(pod = %key.name, %error, "pod not started"),
        }
    }

    /// Sets the end of a pod that is meant to end.
    fn end_later(&mut self, key: &Key, pod: &Object) {
        let restarts = pod["spec"]["restartPolicy"] == "Always";
        let run = match (annotated(pod, RUN_FOR), restarts) {
            (Some(run), _) => run,
            (None, true) => return,
            (None, false) => DEFAULT_RUN,
        };
        let due = Due::Finish(key.clone(), pod.uid().to_owned());
        self.timers.add(Instant::now() + run, due);
    }

    pub(super) fn finish(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.in_care(key, uid, Stage::Running) else {
            return;
        };
        self.runs.remove(key);
        let now = self.server.now();
        let edited = self
            .server
            .edit_status(Kind::Pod, &key.namespace, &key.name, |status| {
                status["phase"] = json!("Succeeded");
                for kind in ["Ready", "ContainersReady"] {
                    let condition =
                        json!({"type": kind, "status": "False", "reason": "PodCompleted"});
                    set_condition(status, condition, now);
                }
                let ended =
                    json!({"exitCode": 0, "reason": "Completed", "finishedAt": rfc3339(now)});
                status["containerStatuses"] =
                    containers(&pod, &json!({"terminated": ended}), false);
            });
        if let Err(error) = edited {
            tracing::debug!(pod = %key.name, %error, "pod not finished");
        }
    }

    pub(super) async fn stopped(&mut self, key: &Key, uid: &str) {
        if self.in_care(key, uid, Stage::Stopping).is_none() {
            return;
        }
        self.runs.remove(key);
        let options = DeleteOptions {
            uid: Some(uid.to_owned()),
            ..DeleteOptions::now()
        };
        let deleted = self
            .server
            .delete(Kind::Pod, &key.namespace, &key.name, &options)
            .await;
        if let Err(error) = deleted {
            tracing::debug!(pod = %key.name, %error, "pod not cleaned up");
        }
    }
}

/// A pod of a node that is not heard of does not count as ready.
pub(super) fn set_unready(server: &Server, pod: &Object, now: Timestamp) {
    if pod.condition("Ready") != Some("True") {
        return;
    }
    let edited = server.edit_status(Kind::Pod, pod.namespace(), pod.name(), |status| {
        let unready = json!({"type": "Ready", "status": "False", "reason": "NodeNotReady"});
        set_condition(status, unready, now);
    });
    if let Err(error) = edited {
        tracing::debug!(pod = pod.name(), %error, "pod not marked unready");
    }
}

/// A duration from an annotation; what cannot be read counts as not there.
fn annotated(pod: &Object, key: &str) -> Option<Duration> {
    let text = pod.annotation(key)?;
    let duration = text.parse::<GoDuration>().ok();
    let nanos = duration.and_then(|d| u64::try_from(d.0).ok());
    if nanos.is_none() {
        tracing::warn!(
            pod = pod.name(),
            annotation = key,
            value = text,
            "not a duration"
        );
    }
    nanos.map(Duration::from_nanos)
}

fn containers(pod: &Value, state: &Value, ready: bool) -> Value {
    let each = pod["spec"]["containers"].as_array().into_iter().flatten();
    each.map(|container| {
        json!({
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
        })
    })
    .collect()
}
