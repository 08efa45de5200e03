//! ReplicaSets: as many active pods as wanted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;

use super::{Again, BURST, Workloads, count, is_active, is_ready, paced, phase, template};
use crate::{
    api::names::annotation,
    lab::api::{Kind, Object},
};

impl Workloads {
    pub(super) async fn replica_set(&mut self, set: &Object) -> Again {
        let pods = self.server.owned_by(Kind::Pod, set.uid());
        let active: Vec<&Object> = pods.iter().filter(|p| is_active(p)).collect();
        let wanted = count(&set["spec"]["replicas"]);
        let ready = active.iter().filter(|p| is_ready(p)).count();
        self.set_status(set, |status| {
            status["replicas"] = json!(active.len());
            status["fullyLabeledReplicas"] = json!(active.len());
            status["readyReplicas"] = json!(ready);
            status["availableReplicas"] = json!(ready);
        });
        if active.len() > wanted {
            let surplus = active.len() - wanted;
            let going = to_delete(active, surplus.min(BURST));
            self.delete_pods(&going).await;
            return (surplus > BURST).then(|| paced(BURST));
        }
        let missing = wanted - active.len();
        let pod = template::pod(set, &set["spec"]["template"]);
        self.create_pods(set, missing, &pod).await
    }
}

/// The pods to delete first, in the order of the ReplicaSet controller.
fn to_delete(mut pods: Vec<&Object>, surplus: usize) -> Vec<&Object> {
    let mut on_node: BTreeMap<String, usize> = BTreeMap::new();
    for pod in &pods {
        *on_node.entry(node(pod).to_owned()).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let assigned = !node(pod).is_empty();
        let running = match phase(pod) {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        };
        let cost = pod.annotation(annotation::POD_DELETION_COST);
        let cost: i32 = cost.and_then(|c| c.parse().ok()).unwrap_or(0);
        let neighbours = if assigned { on_node[node(pod)] } else { 0 };
        let key = (
            assigned,
            running,
            is_ready(pod),
            cost,
            Reverse(neighbours),
            Reverse(ready_since(pod)),
            Reverse(created(pod)),
        );
        (key, pod.name().to_owned())
    });
    pods.truncate(surplus);
    pods
}

fn node(pod: &Object) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

fn created(pod: &Object) -> Option<Timestamp> {
    pod["metadata"]["creationTimestamp"].as_str()?.parse().ok()
}

fn ready_since(pod: &Object) -> Option<Timestamp> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions
        .iter()
        .find(|c| c["type"] == "Ready" && c["status"] == "True")?;
    ready["lastTransitionTime"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use serde_json::Value;

    use super::*;
    use crate::lab::api::WriteOptions;

    fn pod(name: &str, node: &str, phase: &str, ready: bool, cost: &str) -> Value {
        json!({
            "metadata": {
                "name": name,
                "annotations": {"controller.kubernetes.io/pod-deletion-cost": cost},
            },
            "spec": if node.is_empty() { json!({}) } else { json!({"nodeName": node}) },
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        })
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_useful_pods_go_first() {
        let (early, late) = (0, 60);
        // Each is worth more than the one before it for the reason in its name.
        let sorted = [
            (early, pod("unassigned", "", "Pending", false, "9")),
            (early, pod("pending", "n0", "Pending", false, "9")),
            (early, pod("not-ready", "n1", "Running", false, "9")),
            (early, pod("cheap", "n2", "Running", true, "-1")),
            (early, pod("crowded", "n3", "Running", true, "0")),
            (late, pod("newer", "n4", "Running", true, "0")),
            (early, pod("older", "n5", "Running", true, "0")),
            (late, pod("dear", "n3", "Running", true, "1")),
        ];
        // Made in reverse, so that the order comes from what the pods are; each with its own creation time.
        let clock = Arc::new(AtomicI64::new(0));
        let now = clock.clone();
        let now = move || Timestamp::from_second(now.load(Ordering::Relaxed)).unwrap();
        let server = crate::lab::api::Server::new(now, 1);
        let mut objects = Vec::new();
        for (created, value) in sorted.iter().rev() {
            clock.store(*created, Ordering::Relaxed);
            let mut made = value.clone();
            made["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
            let options = WriteOptions::default();
            let made = server.create(Kind::Pod, "default", made, &options).await;
            let name = made.unwrap().object.name().to_owned();
            let set = |status: &mut Value| *status = value["status"].clone();
            objects.push(
                server
                    .edit_status(Kind::Pod, "default", &name, set)
                    .unwrap(),
            );
        }
        let gone = to_delete(objects.iter().collect(), 7);
        let names: Vec<&str> = gone.iter().map(|p| p.name()).collect();
        assert_eq!(
            names,
            [
                "unassigned",
                "pending",
                "not-ready",
                "cheap",
                "crowded",
                "newer",
                "older"
            ]
        );
    }
}
