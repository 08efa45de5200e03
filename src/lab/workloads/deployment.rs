//! Deployments: one ReplicaSet for each template, the newest scaled up while the others go down.

use serde_json::{Value, json};

use super::{Again, Workloads, count, template};
use crate::lab::{
    api::{DeleteOptions, Kind, Object, WriteOptions},
    status::set_condition,
};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

impl Workloads {
    pub(super) async fn deployment(&mut self, deployment: &Object) -> Again {
        let sets = self.server.owned_by(Kind::ReplicaSet, deployment.uid());
        let sets: Vec<Object> = sets.into_iter().filter(|s| !s.is_deleting()).collect();
        let template = &deployment["spec"]["template"];
        let newest = sets.iter().find(|s| template_of(s) == *template);
        let old: Vec<&Object> = (sets.iter())
            .filter(|s| newest.is_none_or(|n| n.uid() != s.uid()))
            .collect();
        self.deployment_status(deployment, newest, &sets);
        if deployment["spec"]["paused"] == true {
            return None;
        }
        let wanted = count(&deployment["spec"]["replicas"]);
        let recreate = deployment["spec"]["strategy"]["type"] == "Recreate";
        let old_wanted: usize = old.iter().map(|s| count(&s["spec"]["replicas"])).sum();
        if recreate {
            for set in old.iter().filter(|s| count(&s["spec"]["replicas"]) > 0) {
                self.scale(set, 0).await;
            }
            let remaining: usize = (old.iter())
                .map(|s| self.server.owned_by(Kind::Pod, s.uid()).len())
                .sum();
            if remaining > 0 {
                return None;
            }
        }
        let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
        let surge = share(&rolling["maxSurge"], wanted, Round::Up);
        let mut unavailable = share(&rolling["maxUnavailable"], wanted, Round::Down);
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        let has = newest.map_or(0, |s| count(&s["spec"]["replicas"]));
        let next = if old_wanted == 0 || recreate || has > wanted {
            wanted
        } else {
            // What is over after the old ones, up to what may be over.
            wanted.min(has.max((wanted + surge).saturating_sub(old_wanted)))
        };
        match newest {
            None => self.create_set(deployment, &sets, next).await,
            Some(set) if has != next => self.scale(set, next).await,
            Some(_) => {}
        }
        if !recreate && old_wanted > 0 {
            let ready = |s: &Object| count(&s["status"]["readyReplicas"]);
            let fresh = newest.map_or(0, ready);
            let needed = wanted.saturating_sub(unavailable);
            // What the old ones must still hold up so that enough pods stay ready.
            let mut surplus = old_wanted.saturating_sub(needed.saturating_sub(fresh));
            for set in old {
                let has = count(&set["spec"]["replicas"]);
                let down = has.min(surplus);
                surplus -= down;
                if down > 0 {
                    self.scale(set, has - down).await;
                }
            }
        } else {
            self.forget_old_sets(deployment, old).await;
        }
        None
    }

    async fn scale(&self, set: &Object, replicas: usize) {
        self.patch(set, json!({"spec": {"replicas": replicas}}))
            .await;
    }

    async fn create_set(&self, deployment: &Object, sets: &[Object], replicas: usize) {
        let mut template = deployment["spec"]["template"].clone();
        let revisions = sets
            .iter()
            .filter_map(|s| s.annotation(REVISION)?.parse::<u64>().ok());
        let revision = revisions.max().unwrap_or(0) + 1;
        let mut hash = template::hash(&template);
        let taken = |hash: &str| {
            let name = format!("{}-{hash}", deployment.name());
            self.server
                .get(Kind::ReplicaSet, deployment.namespace(), &name)
                .is_ok()
        };
        while taken(&hash) {
            hash = template::hash(&json!([template, hash]));
        }
        let mut selector = deployment["spec"]["selector"].clone();
        template["metadata"]["labels"][HASH] = json!(hash);
        selector["matchLabels"][HASH] = json!(hash);
        let set = json!({
            "metadata": {
                "name": format!("{}-{hash}", deployment.name()),
                "labels": template["metadata"]["labels"],
                "annotations": {REVISION: revision.to_string()},
                "ownerReferences": [template::owner_reference(deployment)],
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        });
        let options = WriteOptions::default();
        let namespace = deployment.namespace();
        let created = self
            .server
            .create(Kind::ReplicaSet, namespace, set, &options)
            .await;
        if let Err(error) = created {
            tracing::warn!(deployment = deployment.name(), %error, "replica set not created");
        }
    }

    /// Deletes old sets without pods beyond the history limit, the oldest first.
    async fn forget_old_sets(&self, deployment: &Object, old: Vec<&Object>) {
        let limit = count(&deployment["spec"]["revisionHistoryLimit"]);
        let mut empty: Vec<&Object> = (old.into_iter())
            .filter(|s| count(&s["status"]["replicas"]) == 0)
            .collect();
        empty.sort_by_key(|s| s.annotation(REVISION).and_then(|r| r.parse::<u64>().ok()));
        for set in empty.iter().rev().skip(limit) {
            let options = DeleteOptions::default();
            let deleted =
                self.server
                    .delete(Kind::ReplicaSet, set.namespace(), set.name(), &options);
            if let Err(error) = deleted.await {
                tracing::debug!(set = set.name(), %error, "old replica set not deleted");
            }
        }
    }

    fn deployment_status(&self, deployment: &Object, newest: Option<&Object>, sets: &[Object]) {
        let sum = |key: &str| -> usize { sets.iter().map(|s| count(&s["status"][key])).sum() };
        let updated = newest.map_or(0, |s| count(&s["status"]["replicas"]));
        let (all, ready) = (sum("replicas"), sum("readyReplicas"));
        let wanted = count(&deployment["spec"]["replicas"]);
        let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
        let unavailable = share(&rolling["maxUnavailable"], wanted, Round::Down);
        let enough = ready >= wanted.saturating_sub(unavailable);
        let available = match enough {
            true => (
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            ),
            false => (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            ),
        };
        let now = self.server.now();
        self.set_status(deployment, |status| {
            status["replicas"] = json!(all);
            status["updatedReplicas"] = json!(updated);
            status["readyReplicas"] = json!(ready);
            status["availableReplicas"] = json!(ready);
            status["unavailableReplicas"] = json!(wanted.max(all).saturating_sub(ready));
            let (is, reason, message) = available;
            let condition =
                json!({"type": "Available", "status": is, "reason": reason, "message": message});
            set_condition(status, condition, now);
        });
    }
}

/// A set's template as the Deployment has it.
fn template_of(set: &Object) -> Value {
    let mut template = set["spec"]["template"].clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    template
}

#[derive(Clone, Copy)]
enum Round {
    Up,
    Down,
}

/// A count, or a percentage of the replicas.
fn share(value: &Value, replicas: usize, round: Round) -> usize {
    let percent = value
        .as_str()
        .and_then(|t| t.strip_suffix('%')?.parse::<usize>().ok());
    match (percent, round) {
        (None, _) => count(value),
        (Some(percent), Round::Up) => replicas.saturating_mul(percent).div_ceil(100),
        (Some(percent), Round::Down) => replicas.saturating_mul(percent) / 100,
    }
}
