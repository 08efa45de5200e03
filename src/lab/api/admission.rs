//! Admission webhooks and the schema rules of custom resources.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::Server;
use super::error::ApiError;
use super::kinds::Kind;
use super::object::{Object, text};
use super::write::WriteOptions;

/// Which of the two reviews a webhook is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It may answer with a patch.
    Mutate,
    /// It may only allow or deny.
    Validate,
}

/// Webhooks that review writes, called as the API server calls them.
pub trait Admission: Send + Sync {
    /// Answers an `AdmissionReview` (admission.k8s.io/v1) with one. An error stands for a call that failed.
    fn review(&self, phase: Phase, review: Value) -> BoxFuture<'_, Result<Value, String>>;

    /// Whether writes of a type are reviewed.
    fn wants(&self, kind: Kind) -> bool {
        kind.info().custom
    }

    /// The webhook's name in refusals.
    fn name(&self, phase: Phase) -> &str {
        match phase {
            Phase::Mutate => "defaulting.webhook.karpenter.sh",
            Phase::Validate => "validation.webhook.karpenter.sh",
        }
    }
}

/// What the API server does with a custom resource because of its schema.
pub trait CustomResourceRules: Send + Sync {
    /// Fills in the schema's defaults.
    fn apply_defaults(&self, kind: Kind, object: &mut Value);

    /// Takes out what the schema does not know; returns the paths taken out.
    fn prune(&self, kind: Kind, object: &mut Value) -> Vec<String>;

    /// Checks an object, and on an update the transition from `old`. Each problem is `path: message`.
    fn validate(&self, kind: Kind, object: &Value, old: Option<&Value>) -> Vec<String>;
}

/// What is under review.
pub(super) struct Review<'a> {
    pub(super) kind: Kind,
    pub(super) operation: &'static str,
    pub(super) object: Option<&'a Value>,
    pub(super) old: Option<&'a Object>,
    pub(super) options: &'a WriteOptions,
}

impl Review<'_> {
    fn to_value(&self, uid: &str) -> Value {
        let info = self.kind.info();
        let kind = json!({"group": info.group, "version": info.version, "kind": info.kind});
        let resource =
            json!({"group": info.group, "version": info.version, "resource": info.plural});
        let null = Value::Null;
        let object = self.object.unwrap_or(&null);
        let old = self.old.map_or(&null, Object::value);
        let subject = if object.is_null() { old } else { object };
        let options_kind = match self.operation {
            "CREATE" => "CreateOptions",
            "DELETE" => "DeleteOptions",
            _ => "UpdateOptions",
        };
        let mut options = json!({"kind": options_kind, "apiVersion": "meta.k8s.io/v1"});
        if !self.options.field_manager.is_empty() {
            options["fieldManager"] = json!(self.options.field_manager);
        }
        let mut request = json!({
            "uid": uid,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": text(subject, &["metadata", "name"]),
            "operation": self.operation,
            "userInfo": {
                "username": "admin",
                "uid": "admin",
                "groups": ["system:masters", "system:authenticated"],
            },
            "object": object,
            "oldObject": old,
            "dryRun": self.options.dry_run,
            "options": options,
        });
        if info.namespaced {
            request["namespace"] = json!(text(subject, &["metadata", "namespace"]));
        }
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
    }
}

impl Server {
    /// Asks the webhooks, if any want the type. Returns the patched object when one was patched.
    pub(super) async fn review(
        &self,
        phase: Phase,
        review: Review<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Value>, ApiError> {
        let admission = self.hooks().admission.clone();
        let Some(admission) = admission.filter(|a| a.wants(review.kind)) else {
            return Ok(None);
        };
        let name = admission.name(phase).to_owned();
        let uid = self.state().seeded.uid();
        let failed =
            |why: String| ApiError::internal(format!("failed calling webhook {name:?}: {why}"));
        let answer = admission
            .review(phase, review.to_value(&uid))
            .await
            .map_err(failed)?;
        let response = &answer["response"];
        if response["uid"].as_str() != Some(&uid) {
            return Err(failed(
                "expected response.uid to equal request.uid".to_owned(),
            ));
        }
        let given = response["warnings"].as_array().into_iter().flatten();
        warnings.extend(given.filter_map(|w| w.as_str().map(str::to_owned)));
        if response["allowed"] != true {
            return Err(denied(&name, &response["status"]));
        }
        let patch = match (&response["patch"], phase) {
            (Value::Null, _) => return Ok(None),
            (_, Phase::Validate) => {
                return Err(failed(
                    "validating webhooks may not return a patch".to_owned(),
                ));
            }
            (patch, Phase::Mutate) => patch,
        };
        if response["patchType"] != "JSONPatch" {
            return Err(failed(format!(
                "unsupported patchType {}",
                response["patchType"]
            )));
        }
        let bytes = STANDARD
            .decode(patch.as_str().unwrap_or_default())
            .map_err(|e| failed(format!("the patch is not base64: {e}")))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let patch: json_patch::Patch = serde_json::from_slice(&bytes)
            .map_err(|e| failed(format!("the patch cannot be read: {e}")))?;
        let mut patched = review.object.cloned().unwrap_or_default();
        json_patch::patch(&mut patched, &patch).map_err(|e| ApiError::internal(e.to_string()))?;
        Ok(Some(patched))
    }
}

fn denied(name: &str, status: &Value) -> ApiError {
    let by = format!("admission webhook {name:?} denied the request");
    let code = status["code"]
        .as_u64()
        .and_then(|c| u16::try_from(c).ok())
        .filter(|c| *c >= 400)
        .unwrap_or(400);
    let reason = text(status, &["reason"]);
    let message = match (text(status, &["message"]), reason) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let mut error = ApiError::new(code, reason, message);
    error.details = status["details"].clone();
    error
}
