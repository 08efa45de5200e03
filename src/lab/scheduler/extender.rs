//! The scheduler extender's wire, as kube-scheduler speaks it to a service with `nodeCacheCapable: true`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{Request, header};
use serde::Serialize;
use serde_json::Value;
use tower::ServiceExt;

/// kube-scheduler's `httpTimeout` when the configuration names none.
const TIMEOUT: Duration = Duration::from_secs(5);

/// More than an answer that names each of some thousand nodes with a reason.
const MAX_ANSWER: usize = 16 << 20;

/// Why the extender gave no answer that counts.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExtenderError {
    #[error("no answer from the extender within {} s", TIMEOUT.as_secs())]
    Timeout,
    #[error("the extender answered with status {0}")]
    Status(u16),
    #[error("the extender's answer cannot be read: {0}")]
    Unreadable(String),
    #[error("the extender reports: {0}")]
    Reported(String),
    #[error("the extender names node {0}, which it was not asked about")]
    UnknownNode(String),
}

/// What the extender's filter says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Filtered {
    /// Nodes that it leaves.
    pub(super) nodes: Vec<String>,
    /// Reasons for the others.
    pub(super) refused: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Args<'a> {
    #[serde(rename = "Pod")]
    pod: PodBody<'a>,
    #[serde(rename = "Nodes")]
    nodes: Option<()>,
    #[serde(rename = "NodeNames")]
    node_names: &'a [&'a str],
}

/// A pod as Go writes it from its own type: without `kind` and `apiVersion`.
#[derive(Serialize)]
struct PodBody<'a> {
    metadata: &'a Value,
    spec: &'a Value,
    status: &'a Value,
}

/// Calls the routes of one extender in process.
#[derive(Clone, Debug)]
pub(super) struct Extender {
    router: Router,
}

impl Extender {
    pub(super) fn new(router: Router) -> Self {
        Self { router }
    }

    /// Which of the nodes the extender leaves.
    pub(super) async fn filter(
        &self,
        pod: &Value,
        nodes: &[&str],
    ) -> Result<Filtered, ExtenderError> {
        let answer = self.post("/scheduler/filter", pod, nodes).await?;
        let answer: Value = read(&answer)?;
        let error = field(&answer, "Error").as_str().unwrap_or_default();
        if !error.is_empty() {
            return Err(ExtenderError::Reported(error.to_owned()));
        }
        let mut filtered = Filtered::default();
        for name in field(&answer, "NodeNames").as_array().into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            if !nodes.contains(&name) {
                return Err(ExtenderError::UnknownNode(name.to_owned()));
            }
            filtered.nodes.push(name.to_owned());
        }
        for key in ["FailedNodes", "FailedAndUnresolvableNodes"] {
            for (node, why) in field(&answer, key).as_object().into_iter().flatten() {
                let why = why.as_str().unwrap_or_default().to_owned();
                filtered.refused.insert(node.clone(), why);
            }
        }
        Ok(filtered)
    }

    /// The extender's scores, 0 to 10, by node.
    pub(super) async fn prioritize(
        &self,
        pod: &Value,
        nodes: &[&str],
    ) -> Result<BTreeMap<String, i64>, ExtenderError> {
        let answer = self.post("/scheduler/prioritize", pod, nodes).await?;
        let answer: Value = read(&answer)?;
        let list = answer
            .as_array()
            .ok_or_else(|| ExtenderError::Unreadable("not a list".to_owned()))?;
        let score = |entry: &Value| {
            let host = field(entry, "Host").as_str()?.to_owned();
            Some((host, field(entry, "Score").as_i64()?))
        };
        Ok(list.iter().filter_map(score).collect())
    }

    async fn post(&self, path: &str, pod: &Value, nodes: &[&str]) -> Result<Bytes, ExtenderError> {
        let args = Args {
            pod: PodBody {
                metadata: &pod["metadata"],
                spec: &pod["spec"],
                status: &pod["status"],
            },
            nodes: None,
            node_names: nodes,
        };
        let unreadable = |e: &dyn std::fmt::Display| ExtenderError::Unreadable(e.to_string());
        let body = serde_json::to_vec(&args).map_err(|e| unreadable(&e))?;
        let request = Request::post(path)
            .header(header::HOST, "tenon.kube-system.svc")
            .header(header::USER_AGENT, "Go-http-client/1.1")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONTENT_LENGTH, body.len())
            .body(Body::from(body))
            .map_err(|e| unreadable(&e))?;
        let exchange = async {
            let response = match self.router.clone().oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            if response.status() != http::StatusCode::OK {
                return Err(ExtenderError::Status(response.status().as_u16()));
            }
            axum::body::to_bytes(response.into_body(), MAX_ANSWER)
                .await
                .map_err(|e| unreadable(&e))
        };
        tokio::time::timeout(TIMEOUT, exchange)
            .await
            .map_err(|_| ExtenderError::Timeout)?
    }
}

fn read(bytes: &Bytes) -> Result<Value, ExtenderError> {
    serde_json::from_slice(bytes).map_err(|e| ExtenderError::Unreadable(e.to_string()))
}

/// A field by its name in any case, as Go reads JSON.
fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    let fields = value.as_object().into_iter().flatten();
    let mut same = fields.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    same.next().map_or(&Value::Null, |(_, value)| value)
}
