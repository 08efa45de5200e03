//! The scheduler extender: the wire of k8s.io/kube-scheduler/extender/v1, whose Go types carry no JSON tags.

mod rank;

use std::collections::BTreeMap;

use axum::{
    Json,
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
};
use k8s_openapi::api::core::v1 as core;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    clock::Stopwatch,
    cluster::{Hint, Pod},
    serve::{ServeState, bad_request, metrics::Call},
};

/// `ExtenderArgs`.
#[derive(Deserialize)]
struct Args {
    #[serde(rename = "Pod")]
    pod: Box<core::Pod>,
    #[serde(rename = "Nodes", default)]
    nodes: Option<NodeList>,
    #[serde(rename = "NodeNames", default)]
    node_names: Option<Vec<String>>,
}

/// Nodes as they came: what is left goes back untouched.
#[derive(Deserialize, Serialize)]
struct NodeList {
    #[serde(default)]
    metadata: Value,
    items: Vec<Value>,
}

/// `ExtenderFilterResult`.
#[derive(Default, Serialize)]
struct Filtered {
    #[serde(rename = "Nodes")]
    nodes: Option<NodeList>,
    #[serde(rename = "NodeNames")]
    node_names: Option<Vec<String>>,
    #[serde(rename = "FailedNodes")]
    failed: BTreeMap<String, String>,
    /// A node that leaves is no better for evicting pods from it, so preemption need not look.
    #[serde(rename = "FailedAndUnresolvableNodes")]
    unresolvable: BTreeMap<String, String>,
    #[serde(rename = "Error")]
    error: String,
}

/// `HostPriority`.
#[derive(Serialize)]
struct HostPriority {
    #[serde(rename = "Host")]
    host: String,
    #[serde(rename = "Score")]
    score: i64,
}

fn parse(body: &[u8]) -> Result<Args, String> {
    let args: Args =
        serde_json::from_slice(body).map_err(|e| format!("ExtenderArgs cannot be read: {e}"))?;
    if args.nodes.is_none() && args.node_names.is_none() {
        return Err("ExtenderArgs has neither Nodes nor NodeNames".to_owned());
    }
    Ok(args)
}

fn name_of(node: &Value) -> &str {
    node["metadata"]["name"].as_str().unwrap_or_default()
}

/// Refuses nodes that are leaving. A pod left without a node becomes a hint.
pub(super) async fn filter(State(state): State<ServeState>, body: Bytes) -> Response {
    let watch = Stopwatch::start();
    let args = match parse(&body) {
        Ok(args) => args,
        Err(why) => return bad_request(why),
    };
    let snapshot = state.snapshot();
    let pod = Pod::from_k8s(&args.pod);
    let mut result = Filtered::default();
    let mut stays = |name: &str| match rank::refusal(&snapshot, &pod, name) {
        Some(why) => {
            result.unresolvable.insert(name.to_owned(), why.to_owned());
            false
        }
        None => true,
    };
    let left = match (args.node_names, args.nodes) {
        (Some(mut names), _) => {
            names.retain(|name| stays(name));
            let left = names.len();
            result.node_names = Some(names);
            left
        }
        (None, Some(mut nodes)) => {
            nodes.items.retain(|node| stays(name_of(node)));
            let left = nodes.items.len();
            result.nodes = Some(nodes);
            left
        }
        (None, None) => 0,
    };
    state
        .metrics
        .refused_nodes
        .inc_by(result.unresolvable.len() as u64);
    if left == 0 {
        state.hint(Hint::PodWithoutNode(pod.key));
    }
    count(&state, "filter", &watch);
    Json(result).into_response()
}

/// Scores nodes from 0 to 10: the one that the plan chose first, then the fuller ones.
pub(super) async fn prioritize(State(state): State<ServeState>, body: Bytes) -> Response {
    let watch = Stopwatch::start();
    let args = match parse(&body) {
        Ok(args) => args,
        Err(why) => return bad_request(why),
    };
    let snapshot = state.snapshot();
    let meta = &args.pod.metadata;
    let planned = rank::planned_node(
        &snapshot,
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    );
    let names = args.node_names.unwrap_or_else(|| {
        let items = args.nodes.map(|list| list.items).unwrap_or_default();
        items.iter().map(|node| name_of(node).to_owned()).collect()
    });
    let scores: Vec<HostPriority> = names
        .into_iter()
        .map(|host| HostPriority {
            score: rank::score(&snapshot, planned.as_deref(), &host),
            host,
        })
        .collect();
    count(&state, "prioritize", &watch);
    Json(scores).into_response()
}

fn count(state: &ServeState, verb: &'static str, watch: &Stopwatch) {
    let call = Call { verb };
    state.metrics.calls.get_or_create(&call).inc();
    state
        .metrics
        .call_seconds
        .get_or_create(&call)
        .observe(watch.elapsed().as_secs_f64());
}
