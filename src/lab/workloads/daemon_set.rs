//! DaemonSets: one pod for each node that its template's constraints admit.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};

use super::{Again, BURST, Workloads, count, is_over, is_ready, paced, template};
use crate::{
    cluster,
    lab::{
        api::{Kind, Object},
        scheduler::Constraints,
    },
};

const HASH: &str = "controller-revision-hash";

/// Taints that every daemon pod tolerates.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

impl Workloads {
    pub(super) async fn daemon_set(&mut self, set: &Object) -> Again {
        let spec = &set["spec"];
        let hash = template::hash(&spec["template"]);
        let mut pod = template::pod(set, &spec["template"]);
        pod["metadata"]["labels"][HASH] = json!(hash);
        tolerate(&mut pod["spec"]);
        let constraints = match constraints(&pod) {
            Ok(constraints) => constraints,
            Err(error) => {
                tracing::warn!(daemon_set = set.name(), %error, "template cannot be read");
                return None;
            }
        };

        let pods = self.server.owned_by(Kind::Pod, set.uid());
        let mut by_node: BTreeMap<String, Vec<&Object>> = BTreeMap::new();
        for pod in &pods {
            if let Some(node) = target(pod) {
                by_node.entry(node.to_owned()).or_default().push(pod);
            }
        }
        let (mut going, mut coming, mut outdated) = (Vec::new(), Vec::new(), Vec::new());
        let mut tally = Tally::default();
        for node in self.nodes.values() {
            let here = by_node.remove(&*node.name).unwrap_or_default();
            let selected = constraints.selects(&node.name, &node.labels);
            let may_start = selected && constraints.kept_off_by(&node.taints).is_none();
            let may_stay = selected && constraints.driven_off_by(&node.taints).is_none();
            let (over, alive): (Vec<&Object>, Vec<&Object>) =
                here.into_iter().partition(|p| is_over(p));
            let standing: Vec<&Object> =
                alive.iter().copied().filter(|p| !p.is_deleting()).collect();
            tally.add(may_start, &standing, &hash);
            going.extend(over.iter().filter(|p| !p.is_deleting()));
            if !may_stay {
                going.extend(standing);
                continue;
            }
            // A pod that is on its way out keeps its place until it is gone.
            if may_start && alive.is_empty() && over.is_empty() {
                coming.push(node.name.to_string());
            }
            let mut standing = standing.into_iter();
            outdated.extend(standing.next().filter(|p| p.label(HASH) != Some(&hash)));
            going.extend(standing);
        }
        // Pods that wait for a node that is gone will never start; the bound ones are the pod collector's.
        let stray = by_node.into_values().flatten();
        going.extend(stray.filter(|p| p["spec"]["nodeName"].is_null() && !p.is_deleting()));
        self.set_status(set, |status| tally.write(status));

        let on_delete = spec["updateStrategy"]["type"] == "OnDelete";
        if !on_delete && coming.is_empty() {
            let most = count(&spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"]).max(1);
            let down = tally.desired.saturating_sub(tally.ready);
            going.extend(outdated.into_iter().take(most.saturating_sub(down)));
        }
        self.delete_pods(&going).await;
        for node in coming.iter().take(BURST) {
            let mut pod = pod.clone();
            aim(&mut pod["spec"], node);
            if !self.create_pod(set, pod).await {
                return Some(std::time::Duration::from_secs(1));
            }
        }
        (coming.len() > BURST).then(|| paced(BURST))
    }
}

#[derive(Debug, Default)]
struct Tally {
    desired: usize,
    current: usize,
    ready: usize,
    updated: usize,
    misscheduled: usize,
}

impl Tally {
    fn add(&mut self, wanted: bool, pods: &[&Object], hash: &str) {
        if !wanted {
            self.misscheduled += usize::from(!pods.is_empty());
            return;
        }
        let any = |is: &dyn Fn(&Object) -> bool| usize::from(pods.iter().any(|p| is(p)));
        self.desired += 1;
        self.current += any(&|_| true);
        self.ready += any(&is_ready);
        self.updated += any(&|p| p.label(HASH) == Some(hash));
    }

    fn write(&self, status: &mut Value) {
        status["desiredNumberScheduled"] = json!(self.desired);
        status["currentNumberScheduled"] = json!(self.current);
        status["updatedNumberScheduled"] = json!(self.updated);
        status["numberReady"] = json!(self.ready);
        status["numberAvailable"] = json!(self.ready);
        status["numberUnavailable"] = json!(self.desired.saturating_sub(self.ready));
        status["numberMisscheduled"] = json!(self.misscheduled);
    }
}

fn constraints(pod: &Value) -> Result<Constraints, serde_json::Error> {
    let typed: core::Pod = serde::Deserialize::deserialize(pod)?;
    let tolerations = cluster::Pod::from_k8s(&typed).tolerations;
    Ok(Constraints::new(
        &typed.spec.unwrap_or_default(),
        tolerations,
    ))
}

fn tolerate(spec: &mut Value) {
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    let network = ("node.kubernetes.io/network-unavailable", "NoSchedule");
    let more = (spec["hostNetwork"] == true).then_some(network);
    for (key, effect) in TOLERATED.into_iter().chain(more) {
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": effect}));
    }
    spec["tolerations"] = Value::Array(tolerations);
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Binds a pod to one node by affinity: each term gets the node's name, and there is at least one term.
fn aim(spec: &mut Value, node: &str) {
    let required = &mut spec["affinity"]["nodeAffinity"][REQUIRED];
    let name = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let terms = required["nodeSelectorTerms"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut terms = if terms.is_empty() {
        vec![json!({})]
    } else {
        terms
    };
    for term in &mut terms {
        term["matchFields"] = name.clone();
    }
    required["nodeSelectorTerms"] = Value::Array(terms);
}

/// The node a daemon pod is on or is meant for.
fn target(pod: &Object) -> Option<&str> {
    if let Some(node) = pod["spec"]["nodeName"].as_str() {
        return Some(node);
    }
    let required = &pod["spec"]["affinity"]["nodeAffinity"][REQUIRED];
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str()
}
