//! The admission webhooks: `AdmissionReview` of admission.k8s.io/v1 in and out.

use axum::{
    Extension, Json,
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    api::{
        Kind, repair,
        validate::{self, FieldError},
    },
    cluster::Hint,
    serve::{
        ServeState, malformed,
        metrics::{Repaired, Verdict},
    },
};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewIn {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    Update,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    kind: GroupVersionKind,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    operation: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    #[serde(default)]
    dry_run: Option<bool>,
}

#[derive(Deserialize)]
struct GroupVersionKind {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
}

/// kube's own response writes the patch as a list of numbers, which API servers refuse.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewOut {
    api_version: &'static str,
    kind: &'static str,
    response: Answer,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// Only ever beside a patch: API servers refuse it alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// RFC 6902 in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

impl Answer {
    fn allowed(uid: String) -> Self {
        Self {
            uid,
            allowed: true,
            status: None,
            warnings: Vec::new(),
            patch_type: None,
            patch: None,
        }
    }
}

impl Answer {
    fn render(self, verdict: Verdict) -> Response {
        let review = ReviewOut {
            api_version: API_VERSION,
            kind: KIND,
            response: self,
        };
        (Extension(verdict), Json(review)).into_response()
    }
}

fn parse(body: &[u8]) -> Result<Request, String> {
    let review: ReviewIn =
        serde_json::from_slice(body).map_err(|e| format!("{KIND} cannot be read: {e}"))?;
    if review.kind != KIND || review.api_version != API_VERSION {
        return Err(format!(
            "expected {KIND} of {API_VERSION}, got {:?} of {:?}",
            review.kind, review.api_version
        ));
    }
    let request = review
        .request
        .ok_or_else(|| format!("{KIND} has no request"))?;
    if request.uid.is_empty() {
        return Err(format!("request of {KIND} has no uid"));
    }
    Ok(request)
}

impl Request {
    /// The kind and what is being done, if it is for us to judge: a write of an object of ours, not of a part of it. An object that is
    /// being deleted only loses its finalizers, and must be able to, whatever else it says.
    fn subject(&self) -> Result<Option<(Kind, Operation)>, String> {
        let operation = match self.operation.as_str() {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            _ => return Ok(None),
        };
        let kind = Kind::of(&self.kind.group, &self.kind.version, &self.kind.kind);
        let Some(kind) = kind.filter(|_| self.sub_resource.is_empty()) else {
            return Ok(None);
        };
        if !self.object.is_object() {
            return Err(format!("request.object of {KIND} is not an object"));
        }
        let ending = self.object["metadata"]["deletionTimestamp"].is_string();
        Ok((!ending).then_some((kind, operation)))
    }

    fn name(&self) -> &str {
        match self.name.as_str() {
            "" => self.object["metadata"]["name"].as_str().unwrap_or_default(),
            name => name,
        }
    }
}

/// Reads a request and what it asks us to judge.
fn read(body: &[u8]) -> Result<(Request, Option<(Kind, Operation)>), String> {
    let request = parse(body)?;
    let subject = request.subject()?;
    Ok((request, subject))
}

/// Repairs old and mistaken forms, with a warning for each. Refuses nothing. The spec of a NodeClaim cannot change, so a claim is
/// repaired only when it is created.
pub(super) async fn default(State(state): State<ServeState>, body: Bytes) -> Response {
    let (request, subject) = match read(&body) {
        Ok(read) => read,
        Err(why) => return malformed(why),
    };
    let kind = match subject {
        Some((kind, operation)) if kind != Kind::NodeClaim || operation == Operation::Create => {
            kind
        }
        _ => return Answer::allowed(request.uid).render(Verdict::Allowed),
    };
    let mut repaired = request.object.clone();
    let warnings = repair::repair(kind.as_str(), &mut repaired);
    let label = Repaired {
        kind: kind.as_str(),
    };
    let repairs = state.metrics.repairs.get_or_create(&label);
    repairs.inc_by(warnings.len() as u64);
    let mut answer = Answer::allowed(request.uid);
    answer.warnings = warnings;
    let patch = json_patch::diff(&request.object, &repaired);
    if patch.is_empty() {
        return answer.render(Verdict::Allowed);
    }
    answer.patch_type = Some("JSONPatch");
    answer.patch = Some(STANDARD.encode(json!(patch).to_string()));
    answer.render(Verdict::Repaired)
}

/// Refuses an object with all its mistakes at once.
pub(super) async fn validate(State(state): State<ServeState>, body: Bytes) -> Response {
    let (request, subject) = match read(&body) {
        Ok(read) => read,
        Err(why) => return malformed(why),
    };
    let Some((kind, operation)) = subject else {
        return Answer::allowed(request.uid).render(Verdict::Allowed);
    };
    let old = Some(&request.old_object).filter(|o| o.is_object() && operation == Operation::Update);
    let errors = validate::validate(kind.as_str(), &request.object, old);
    if !errors.is_empty() {
        let status = denial(kind, request.name(), &errors);
        let mut answer = Answer::allowed(request.uid);
        answer.allowed = false;
        answer.status = Some(status);
        return answer.render(Verdict::Denied);
    }
    // Claims are our own writes; the watch tells of them in time.
    if kind != Kind::NodeClaim && request.dry_run != Some(true) {
        state.hint(Hint::Admitted {
            kind: kind.as_str().to_owned(),
            name: request.name().to_owned(),
        });
    }
    Answer::allowed(request.uid).render(Verdict::Allowed)
}

/// A `Status` as the API server itself makes of an invalid object, one error a line.
fn denial(kind: Kind, name: &str, errors: &[FieldError]) -> Value {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let causes: Vec<Value> = errors
        .iter()
        .map(|e| {
            json!({
                "reason": "FieldValueInvalid",
                "field": e.path,
                "message": format!("{}; {}", e.message, e.fix),
            })
        })
        .collect();
    json!({
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": lines.join("\n"),
        "details": {
            "group": kind.group(),
            "kind": kind.as_str(),
            "name": name,
            "causes": causes,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_tells_every_mistake_on_its_own_line() {
        let error = |path: &str, message: &str, fix: &str| FieldError {
            path: path.to_owned(),
            message: message.to_owned(),
            fix: fix.to_owned(),
        };
        let errors = [
            error("spec.limits.cpu", "not a quantity", "write for example 100"),
            error("spec.weight", "above 100", "write 1 to 100"),
        ];
        let expected = json!({
            "status": "Failure",
            "code": 422,
            "reason": "Invalid",
            "message": "spec.limits.cpu: not a quantity; write for example 100\nspec.weight: above 100; write 1 to 100",
            "details": {
                "group": "karpenter.sh",
                "kind": "NodePool",
                "name": "default",
                "causes": [
                    {
                        "reason": "FieldValueInvalid",
                        "field": "spec.limits.cpu",
                        "message": "not a quantity; write for example 100",
                    },
                    {
                        "reason": "FieldValueInvalid",
                        "field": "spec.weight",
                        "message": "above 100; write 1 to 100",
                    },
                ],
            },
        });
        assert_eq!(denial(Kind::NodePool, "default", &errors), expected);
    }
}
