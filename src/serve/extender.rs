//! The scheduler extender: the wire of k8s.io/kube-scheduler/extender/v1, whose Go types carry no JSON tags.

mod rank;

use std::collections::BTreeMap;

use axum::{
    Extension, Json,
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
    serve::{
        ServeState, malformed,
        metrics::{Call, Verdict},
    },
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
    /// The same nodes again: this list has precedence, and a scheduler does not preempt pods on what it names.
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
    if args.pod.metadata.name.as_deref().unwrap_or_default() == "" {
        return Err("ExtenderArgs has a Pod without metadata.name".to_owned());
    }
    match (&args.nodes, &args.node_names) {
        (None, None) => Err("ExtenderArgs has neither Nodes nor NodeNames".to_owned()),
        (Some(nodes), _) if nodes.items.iter().any(|n| name_of(n).is_empty()) => {
            Err("ExtenderArgs has a node without metadata.name".to_owned())
        }
        _ => Ok(args),
    }
}

fn name_of(node: &Value) -> &str {
    node["metadata"]["name"].as_str().unwrap_or_default()
}

/// Refuses nodes that are leaving. A pod left without a node becomes a hint.
pub(super) async fn filter(State(state): State<ServeState>, body: Bytes) -> Response {
    let watch = Stopwatch::start();
    let args = match parse(&body) {
        Ok(args) => args,
        Err(why) => return malformed(why),
    };
    let snapshot = state.snapshot();
    let pod = Pod::from_k8s(&args.pod);
    let mut result = Filtered::default();
    let mut stays = |name: &str| match rank::refusal(&snapshot, &pod, name) {
        Some(why) => {
            result.failed.insert(name.to_owned(), why.to_owned());
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
    result.unresolvable = result.failed.clone();
    let refused = result.failed.len() as u64;
    state.metrics.refused_nodes.inc_by(refused);
    let verdict = if left == 0 {
        state.hint(Hint::PodWithoutNode(pod.key));
        Verdict::NoneLeft
    } else {
        Verdict::Answered
    };
    observe(&state, "filter", &watch);
    (Extension(verdict), Json(result)).into_response()
}

/// Scores nodes from 0 to 10: the one that the plan chose first, then the fuller ones.
pub(super) async fn prioritize(State(state): State<ServeState>, body: Bytes) -> Response {
    let watch = Stopwatch::start();
    let args = match parse(&body) {
        Ok(args) => args,
        Err(why) => return malformed(why),
    };
    let snapshot = state.snapshot();
    let planned = rank::planned_node(&snapshot, &Pod::from_k8s(&args.pod).key);
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
    observe(&state, "prioritize", &watch);
    (Extension(Verdict::Answered), Json(scores)).into_response()
}

fn observe(state: &ServeState, verb: &'static str, watch: &Stopwatch) {
    let seconds = state.metrics.call_seconds.get_or_create(&Call { verb });
    seconds.observe(watch.elapsed().as_secs_f64());
}
