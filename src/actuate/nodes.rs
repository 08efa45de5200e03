//! Writes to Nodes.

use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};

use super::{ActuateError, Actuator, Done, pods::only};
use crate::{
    api::{
        conditions,
        names::{self, condition, finalizer, label, taint_effect, taint_key},
        taint::Taint,
    },
    cluster::{Claim, Event, Node},
    lifecycle::claim::{DEPENDENTS, generation, node_labels},
};

/// How soon to look again whether the instance of a node that is not Ready is gone.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(10);

impl Actuator {
    fn node(&self, name: &str) -> Result<std::sync::Arc<Node>, ActuateError> {
        let snapshot = self.writer.snapshot();
        snapshot
            .nodes
            .get(name)
            .cloned()
            .ok_or_else(|| ActuateError::Unknown(format!("node {name}")))
    }

    async fn patch_node(
        &self,
        doing: &'static str,
        name: &str,
        patch: &Value,
    ) -> Result<(), ActuateError> {
        let node: core::Node = self.merge(doing, &self.nodes(), name, patch).await?;
        self.writer.put(vec![Event::Node(Box::new(node))]).await;
        Ok(())
    }

    pub(super) async fn register(&self, claim: &str, node: &str) -> Result<Done, ActuateError> {
        let (claim, node) = (self.claim(claim)?, self.node(node)?);
        if node
            .labels
            .get(label::REGISTERED)
            .is_none_or(|v| v != "true")
        {
            self.patch_node(
                "registering a node",
                &node.name,
                &registration(&claim, &node),
            )
            .await?;
        }
        let mut conditions = self.conditions(&claim);
        let now = self.clock.now();
        conditions::set_true(
            &mut conditions,
            condition::REGISTERED,
            now,
            generation(&claim),
        );
        conditions::ready(&mut conditions, &DEPENDENTS, now, generation(&claim));
        self.write_claim_status(
            &claim,
            json!({ "conditions": conditions, "nodeName": &*node.name }),
        )
        .await?;
        self.pool_recovered(&claim.pool).await;
        tracing::info!(
            NodeClaim = &*claim.name,
            Node = &*node.name,
            "provider-id" = claim.provider_id,
            "registered nodeclaim"
        );
        Ok(Done::Finished)
    }

    pub(super) async fn initialize(&self, claim: &str, node: &str) -> Result<Done, ActuateError> {
        let (claim, node) = (self.claim(claim)?, self.node(node)?);
        let patch = json!({ "metadata": { "labels": { label::INITIALIZED: "true" } } });
        self.patch_node("labelling a node initialized", &node.name, &patch)
            .await?;
        let mut conditions = self.conditions(&claim);
        let now = self.clock.now();
        conditions::set_true(
            &mut conditions,
            condition::INITIALIZED,
            now,
            generation(&claim),
        );
        conditions::ready(&mut conditions, &DEPENDENTS, now, generation(&claim));
        self.write_claim_status(&claim, json!({ "conditions": conditions }))
            .await?;
        tracing::info!(
            NodeClaim = &*claim.name,
            Node = &*node.name,
            "initialized nodeclaim"
        );
        Ok(Done::Finished)
    }

    pub(super) async fn delete_node(&self, node: &str, uid: &str) -> Result<Done, ActuateError> {
        match self
            .kube("deleting a node", self.nodes().delete(node, &only(uid)))
            .await
        {
            Ok(answer) => {
                let event = answer.left().map_or_else(
                    || Event::NodeGone(node.to_owned()),
                    |n| Event::Node(Box::new(n)),
                );
                self.writer.put(vec![event]).await;
                Ok(Done::Finished)
            }
            Err(error) if error.is_gone() => {
                self.writer
                    .put(vec![Event::NodeGone(node.to_owned())])
                    .await;
                Ok(Done::Finished)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn taint_node(&self, name: &str) -> Result<Done, ActuateError> {
        let node = self.node(name)?;
        let mut taints: Vec<Taint> = node
            .taints
            .iter()
            .filter(|t| t.key != taint_key::DISRUPTED)
            .cloned()
            .collect();
        taints.push(Taint {
            key: taint_key::DISRUPTED.to_owned(),
            value: String::new(),
            effect: taint_effect::NO_SCHEDULE.to_owned(),
        });
        let patch = json!({
            "metadata": {
                "resourceVersion": node.resource_version,
                "labels": { label::EXCLUDE_FROM_LOAD_BALANCERS: names::GROUP.split('.').next() },
            },
            "spec": { "taints": written(&taints) },
        });
        self.patch_node("tainting a node", name, &patch).await?;
        tracing::info!(
            Node = name,
            "taint.Key" = taint_key::DISRUPTED,
            "taint.Effect" = taint_effect::NO_SCHEDULE,
            "tainted node"
        );
        Ok(Done::Finished)
    }

    /// Takes our finalizer off; the API server then lets the node go.
    pub(super) async fn release_node(&self, name: &str) -> Result<Done, ActuateError> {
        let Ok(node) = self.node(name) else {
            return Ok(Done::Finished);
        };
        let rest: Vec<&String> = node
            .finalizers
            .iter()
            .filter(|f| *f != finalizer::TERMINATION)
            .collect();
        let is_last = rest.is_empty() && node.deletion.is_some();
        let patch =
            json!({ "metadata": { "resourceVersion": node.resource_version, "finalizers": rest } });
        match self
            .merge("releasing a node", &self.nodes(), name, &patch)
            .await
        {
            Ok(node) => {
                let event = if is_last {
                    Event::NodeGone(name.to_owned())
                } else {
                    Event::Node(Box::new(node))
                };
                self.writer.put(vec![event]).await;
            }
            Err(error) if error.is_gone() => {
                self.writer
                    .put(vec![Event::NodeGone(name.to_owned())])
                    .await
            }
            Err(error) => return Err(error),
        }
        tracing::info!(Node = name, "deleted node");
        Ok(Done::Finished)
    }

    pub(super) async fn release_node_if_instance_gone(
        &self,
        name: &str,
        provider_id: &str,
    ) -> Result<Done, ActuateError> {
        match self
            .cloud("looking up an instance", self.cloud.get(provider_id))
            .await
        {
            Err(error) if error.is_not_found() => self.release_node(name).await,
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Done::Again(LOOK_AGAIN)),
        }
    }
}

/// What registration writes on the node (`spec/disruption-and-lifecycle.md` 1.4). Taints of the claim are added unless the node says
/// that its bootstrap owns them; a taint that was there and has been removed is never brought back, since this runs once.
fn registration(claim: &Claim, node: &Node) -> Value {
    let mut finalizers = node.finalizers.clone();
    if !finalizers.iter().any(|f| f == finalizer::TERMINATION) {
        finalizers.push(finalizer::TERMINATION.to_owned());
    }
    let mut taints: Vec<Taint> = node.taints.clone();
    if node
        .labels
        .get(label::DO_NOT_SYNC_TAINTS)
        .is_none_or(|v| v != "true")
    {
        for taint in claim.taints.iter().chain(&claim.startup_taints) {
            if !taints.iter().any(|t| t.matches(taint)) {
                taints.push(taint.clone());
            }
        }
    }
    taints.retain(|t| t.key != taint_key::UNREGISTERED);
    let mut labels: serde_json::Map<String, Value> = node_labels(claim)
        .map(|(k, v)| (k.clone(), json!(v)))
        .collect();
    labels.insert(label::REGISTERED.to_owned(), json!("true"));
    let annotations: serde_json::Map<String, Value> = claim
        .object
        .metadata
        .annotations
        .iter()
        .flatten()
        .map(|(k, v)| (k.clone(), json!(v)))
        .collect();
    json!({
        "metadata": {
            "resourceVersion": node.resource_version,
            "finalizers": finalizers,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
                "kind": "NodeClaim",
                "name": &*claim.name,
                "uid": claim.uid,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": { "taints": written(&taints) },
    })
}

/// Taints as the API has them.
fn written(taints: &[Taint]) -> Value {
    let one = |t: &Taint| {
        if t.value.is_empty() {
            json!({ "key": t.key, "effect": t.effect })
        } else {
            json!({ "key": t.key, "value": t.value, "effect": t.effect })
        }
    };
    Value::Array(taints.iter().map(one).collect())
}
