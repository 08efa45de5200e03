//! The admission webhooks: `AdmissionReview` of admission.k8s.io/v1 in and out.

use axum::{
    Json,
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    api::{
        Kind,
        repair::{self, Operation},
        validate::{self, FieldError},
    },
    cluster::Hint,
    serve::{
        ServeState, bad_request,
        metrics::{Repaired, Review},
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

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        Json(ReviewOut {
            api_version: API_VERSION,
            kind: KIND,
            response: self,
        })
        .into_response()
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
    /// The kind and what is being done, if it is for us to judge: a write of an object of ours, not of a part of it.
    fn subject(&self) -> Option<(Kind, Operation)> {
        let operation = match self.operation.as_str() {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            _ => return None,
        };
        let kind = Kind::of(&self.kind.group, &self.kind.version, &self.kind.kind)?;
        (self.sub_resource.is_empty() && self.object.is_object()).then_some((kind, operation))
    }
}

/// Repairs old and mistaken forms, with a warning for each. Refuses nothing.
pub(super) async fn default(State(state): State<ServeState>, body: Bytes) -> Response {
    let counted = |verdict| count(&state, "default", verdict);
    let request = match parse(&body) {
        Ok(request) => request,
        Err(why) => {
            counted("malformed");
            return bad_request(why);
        }
    };
    let Some((kind, operation)) = request.subject() else {
        counted("allowed");
        return Answer::allowed(request.uid).into_response();
    };
    let mut repaired = request.object.clone();
    let warnings = repair::repair(kind, &mut repaired, operation);
    let mut answer = Answer::allowed(request.uid);
    let patch = json_patch::diff(&request.object, &repaired);
    if patch.is_empty() {
        counted("allowed");
    } else {
        match serde_json::to_vec(&patch) {
            Ok(bytes) => {
                answer.patch_type = Some("JSONPatch");
                answer.patch = Some(STANDARD.encode(bytes));
            }
            Err(error) => return bad_request(error),
        }
        counted("repaired");
        let label = Repaired {
            kind: kind.as_str(),
        };
        let repairs = state.metrics.repairs.get_or_create(&label);
        repairs.inc_by(warnings.len() as u64);
    }
    answer.warnings = warnings.iter().map(ToString::to_string).collect();
    answer.into_response()
}

/// Refuses an object with all its mistakes at once.
pub(super) async fn validate(State(state): State<ServeState>, body: Bytes) -> Response {
    let counted = |verdict| count(&state, "validate", verdict);
    let request = match parse(&body) {
        Ok(request) => request,
        Err(why) => {
            counted("malformed");
            return bad_request(why);
        }
    };
    let Some((kind, operation)) = request.subject() else {
        counted("allowed");
        return Answer::allowed(request.uid).into_response();
    };
    let old = Some(&request.old_object).filter(|o| o.is_object() && operation == Operation::Update);
    let errors = validate::validate(kind, &request.object, old);
    if !errors.is_empty() {
        counted("denied");
        let mut answer = Answer::allowed(request.uid);
        answer.allowed = false;
        answer.status = Some(denial(kind, &request.name, &errors));
        return answer.into_response();
    }
    counted("allowed");
    // Claims are our own writes; the watch tells of them in time.
    if kind != Kind::NodeClaim && request.dry_run != Some(true) {
        state.hint(Hint::Admitted {
            kind: kind.as_str().to_owned(),
            name: request.name,
        });
    }
    Answer::allowed(request.uid).into_response()
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

fn count(state: &ServeState, route: &'static str, verdict: &'static str) {
    let label = Review { route, verdict };
    state.metrics.reviews.get_or_create(&label).inc();
}
