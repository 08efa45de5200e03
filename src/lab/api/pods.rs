//! The binding and eviction subresources of pods.

use serde_json::{Value, json};

use super::Server;
use super::budgets;
use super::delete::{DeleteOptions, Deleted, check_preconditions};
use super::error::ApiError;
use super::kinds::Kind;
use super::object::{Key, Object, condition, object_at, text};
use super::rfc3339;

/// What an eviction led to.
#[derive(Debug, Clone)]
pub struct Eviction {
    /// The pod, gone or in its grace period.
    pub deleted: Deleted,
    /// The budget that paid for it.
    pub budget: Option<String>,
}

impl Server {
    /// Binds a pod to a node, as a scheduler does. `uid`, when given, must be the pod's.
    pub fn bind(
        &self,
        namespace: &str,
        name: &str,
        node: &str,
        uid: Option<&str>,
    ) -> Result<Object, ApiError> {
        let now = self.now();
        let mut state = self.state();
        let old = state
            .get(Kind::Pod, &Key::new(namespace, name))
            .ok_or_else(|| ApiError::not_found(Kind::Pod, name))?;
        let conflict = |why: String| ApiError::conflict(Kind::Pod, name, why);
        if let Some(uid) = uid.filter(|uid| !uid.is_empty() && *uid != old.uid()) {
            let is = old.uid();
            return Err(conflict(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {is}"
            )));
        }
        if node.is_empty() {
            let problem = "target.name: Required value".to_owned();
            return Err(ApiError::invalid(Kind::Pod, name, &[problem]));
        }
        if old.is_deleting() {
            return Err(conflict(format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            )));
        }
        let bound = text(&old, &["spec", "nodeName"]);
        if !bound.is_empty() {
            return Err(conflict(format!(
                "pod {name} is already assigned to node {bound:?}"
            )));
        }
        let gates = old["spec"]["schedulingGates"].as_array();
        if gates.is_some_and(|gates| !gates.is_empty()) {
            return Err(conflict(format!(
                "pod {name} has non-empty .spec.schedulingGates"
            )));
        }
        let mut value = old.value().clone();
        object_at(&mut value, "spec").insert("nodeName".to_owned(), json!(node));
        let scheduled =
            json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(now)});
        set_condition(&mut value, scheduled);
        let object = state.put(Kind::Pod, value);
        self.settle(state, now);
        Ok(object)
    }

    /// Evicts a pod if its disruption budget allows it.
    pub fn evict(
        &self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Eviction, ApiError> {
        let now = self.now();
        let mut state = self.state();
        let key = Key::new(namespace, name);
        let pod = state
            .get(Kind::Pod, &key)
            .ok_or_else(|| ApiError::not_found(Kind::Pod, name))?;
        check_preconditions(&pod, options)?;
        let budget = if is_free_to_go(&pod) {
            None
        } else {
            budgets::charge(&mut state, &pod, options.dry_run, now)?
        };
        if !options.dry_run && !pod.is_deleting() {
            let mut value = pod.value().clone();
            let target = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
                "lastTransitionTime": rfc3339(now),
            });
            set_condition(&mut value, target);
            state.put(Kind::Pod, value);
        }
        let options = DeleteOptions {
            // Checked above, against the version before the condition was added.
            resource_version: None,
            ..options.clone()
        };
        let deleted = state.delete(Kind::Pod, &key, &options, now);
        self.settle(state, now);
        Ok(Eviction {
            deleted: deleted?,
            budget,
        })
    }
}

/// Pods that no budget protects: ended, not yet running, or already going.
fn is_free_to_go(pod: &Object) -> bool {
    let phase = text(pod, &["status", "phase"]);
    matches!(phase, "Succeeded" | "Failed" | "Pending") || pod.is_deleting()
}

/// Puts a condition in place of the one of its type. The transition time stays when the status does.
pub(super) fn set_condition(value: &mut Value, mut new: Value) {
    let r#type = text(&new, &["type"]).to_owned();
    if let Some(old) = condition(value, &r#type)
        && old["status"] == new["status"]
        && !old["lastTransitionTime"].is_null()
    {
        new["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    let status = object_at(value, "status");
    let conditions = status
        .entry("conditions")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Some(list) = conditions.as_array_mut() else {
        *conditions = Value::Array(vec![new]);
        return;
    };
    match list.iter_mut().find(|c| c["type"] == r#type) {
        Some(old) => *old = new,
        None => list.push(new),
    }
}
