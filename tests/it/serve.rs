//! The routes, asked with what a real API server and a real scheduler sent.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tenon::{
    clock::Clock,
    cluster::{Hint, Nomination, PodKey, Snapshot},
    serve::{ServeState, router},
};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt;

use crate::support::{at, cluster};

const NOW: &str = "2026-12-01T01:00:00Z";

/// The routes over one snapshot.
struct Face {
    router: Router,
    hints: mpsc::Receiver<Hint>,
    snapshot: watch::Sender<Arc<Snapshot>>,
}

impl Face {
    fn over(snapshot: Snapshot) -> Self {
        let (snapshot, seen) = watch::channel(Arc::new(snapshot));
        let (hint, hints) = mpsc::channel(8);
        Self {
            router: router(ServeState::new(seen, hint, Clock::starting_at(at(NOW)))),
            hints,
            snapshot,
        }
    }

    async fn ask(&self, request: Request<Body>) -> (StatusCode, String) {
        let response = self
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("an answer");
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX)
            .await
            .expect("a body");
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        self.ask(Request::get(path).body(Body::empty()).expect("a request"))
            .await
    }

    async fn post(&self, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
        self.ask(Request::post(path).body(body.into()).expect("a request"))
            .await
    }

    /// What a well-formed question is answered with.
    async fn answer(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.post(path, body.to_string()).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    fn heard(&mut self) -> Vec<Hint> {
        std::iter::from_fn(|| self.hints.try_recv().ok()).collect()
    }
}

fn fixture(path: &str) -> Value {
    let path = format!("{}/tests/fixtures/{path}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).expect("JSON")
}

/// Recorded reviews by file name, in the order of recording.
fn reviews() -> Vec<(String, Value)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/admission");
    let names: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|f| {
            f.expect("a file")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    let read = |name: String| {
        let review = fixture(&format!("admission/{name}"));
        (name, review)
    };
    names.into_iter().map(read).collect()
}

fn route_of(name: &str) -> &'static str {
    if name.contains("-mutating-") {
        "/admission/default"
    } else {
        "/admission/validate"
    }
}

fn node(name: &str, meta: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Node",
            "metadata": {{"name": "{name}", "uid": "node-{name}"{meta}}},
            "spec": {{"providerID": "aws:///z1/i-{name}"{spec}}},
            "status": {{"allocatable": {{"cpu": "4", "memory": "4Gi", "pods": "110"}}}}}}"#
    )
}

fn claim(name: &str, meta: &str) -> String {
    format!(
        r#"{{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {{"name": "claim-{name}", "uid": "claim-{name}"{meta}}},
            "spec": {{"nodeClassRef": {{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}, "requirements": []}},
            "status": {{"providerID": "aws:///z1/i-{name}"}}}}"#
    )
}

fn pod(name: &str, node: &str, cpu: &str, memory: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Pod",
            "metadata": {{"name": "{name}", "namespace": "default", "uid": "pod-{name}"}},
            "spec": {{"nodeName": "{node}", "containers": [
                {{"name": "c", "resources": {{"requests": {{"cpu": "{cpu}", "memory": "{memory}"}}}}}}]}},
            "status": {{"phase": "Running"}}}}"#
    )
}

fn snapshot(objects: &[String]) -> Snapshot {
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    cluster(&objects, at(NOW))
}

/// The nodes of the recording, none of which leaves.
fn calm() -> Snapshot {
    snapshot(&["n1", "n2", "n3"].map(|n| node(n, "", "")))
}

const TAINT: &str = r#", "taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]"#;
const DELETED: &str =
    r#", "deletionTimestamp": "2026-12-01T00:59:00Z", "finalizers": ["karpenter.sh/termination"]"#;

#[tokio::test]
async fn every_recorded_review_is_answered_in_the_form_that_api_servers_take() {
    let mut face = Face::over(Snapshot::default());
    let reviews = reviews();
    assert_eq!(reviews.len(), 14);
    for (name, review) in &reviews {
        let answer = face.answer(route_of(name), review).await;
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1", "{name}");
        assert_eq!(answer["kind"], "AdmissionReview", "{name}");
        let response = &answer["response"];
        assert_eq!(response["uid"], review["request"]["uid"], "{name}");
        assert_eq!(response["allowed"], true, "{name}: {response}");
        match response.get("patch") {
            None => assert_eq!(response.get("patchType"), None, "{name}"),
            Some(patch) => {
                assert_eq!(route_of(name), "/admission/default", "{name}");
                assert_eq!(response["patchType"], "JSONPatch", "{name}");
                let bytes = STANDARD.decode(patch.as_str().unwrap()).unwrap();
                let patch: json_patch::Patch = serde_json::from_slice(&bytes).unwrap();
                let mut object = review["request"]["object"].clone();
                json_patch::patch(&mut object, &patch).unwrap();
            }
        }
    }
    // Of the reviews that are not dry runs, those that a schema or we let in and that change a spec.
    let admitted = |kind: &str, name: &str| Hint::Admitted {
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    let expected: Vec<Hint> = reviews
        .iter()
        .filter(|(name, review)| {
            let request = &review["request"];
            route_of(name) == "/admission/validate"
                && request["operation"] != "DELETE"
                && request["subResource"].is_null()
                && request["dryRun"] != true
        })
        .map(|(_, review)| {
            let request = &review["request"];
            let kind = request["kind"]["kind"].as_str().unwrap();
            admitted(kind, request["name"].as_str().unwrap())
        })
        .collect();
    assert_eq!(expected.len(), 4);
    assert_eq!(face.heard(), expected);
}

#[tokio::test]
async fn what_is_not_ours_to_judge_passes_untouched() {
    let mut face = Face::over(Snapshot::default());
    let original = fixture("admission/002-validating-create-nodepool.json");
    let with = |pointer: &str, value: Value| {
        let mut review = original.clone();
        *review.pointer_mut(pointer).unwrap() = value;
        review
    };
    let mut ending = with("/request/object/spec", json!({"weight": "heavy"}));
    ending["request"]["operation"] = json!("UPDATE");
    ending["request"]["object"]["metadata"]["deletionTimestamp"] = json!(NOW);
    for review in [
        with("/request/kind/kind", json!("Deployment")),
        with("/request/kind/group", json!("apps")),
        with("/request/kind/version", json!("v1beta1")),
        with("/request/operation", json!("CONNECT")),
        ending,
    ] {
        for path in ["/admission/default", "/admission/validate"] {
            let answer = face.answer(path, &review).await;
            let uid = &original["request"]["uid"];
            assert_eq!(answer["response"], json!({"uid": uid, "allowed": true}));
        }
    }
    let dry = with("/request/dryRun", json!(true));
    let answer = face.answer("/admission/validate", &dry).await;
    assert_eq!(answer["response"]["allowed"], true);
    assert_eq!(face.heard(), []);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_with_the_reason_and_the_next_is_answered() {
    let face = Face::over(calm());
    let review = fixture("admission/001-mutating-create-nodepool.json");
    let args = fixture("extender/filter.json")["body"].clone();
    let without = |body: &Value, pointer: &str, key: &str| {
        let mut body = body.clone();
        let parent = body.pointer_mut(pointer).unwrap();
        parent.as_object_mut().unwrap().remove(key);
        body.to_string()
    };
    let mut no_object = review.clone();
    no_object["request"]["object"] = json!("text");
    let mut nameless = args.clone();
    nameless["NodeNames"] = Value::Null;
    nameless["Nodes"] = json!({"items": [{"metadata": {}}]});
    let mut long = args.clone();
    long["NodeNames"] = json!("x".repeat(100_000));
    let reviews: Vec<(String, &str)> = vec![
        (String::new(), "EOF"),
        ("{".to_owned(), "EOF"),
        (
            format!(r#"{{"request": {{"object": {}"#, "[".repeat(100_000)),
            "recursion",
        ),
        ("\u{0}".to_owned(), "expected value"),
        ("[]".to_owned(), "AdmissionReview cannot be read"),
        ("{}".to_owned(), "expected AdmissionReview"),
        (without(&review, "", "request"), "has no request"),
        (without(&review, "/request", "uid"), "uid"),
        (without(&review, "/request", "operation"), "operation"),
        (without(&review, "/request", "object"), "request.object"),
        (no_object.to_string(), "request.object"),
    ];
    let calls: Vec<(String, &str)> = vec![
        (String::new(), "EOF"),
        ("null".to_owned(), "ExtenderArgs cannot be read"),
        (without(&args, "", "Pod"), "Pod"),
        (without(&args, "/Pod/metadata", "name"), "metadata.name"),
        (
            without(&args, "", "NodeNames"),
            "neither Nodes nor NodeNames",
        ),
        (nameless.to_string(), "node without metadata.name"),
        (long.to_string(), "invalid type"),
    ];
    for (path, bodies, good) in [
        ("/admission/default", &reviews, &review),
        ("/admission/validate", &reviews, &review),
        ("/scheduler/filter", &calls, &args),
        ("/scheduler/prioritize", &calls, &args),
    ] {
        for (body, reason) in bodies {
            let (status, text) = face.post(path, body.clone()).await;
            let sent: String = body.chars().take(60).collect();
            assert_eq!(status, 400, "{path} {sent}: {text}");
            assert!(text.contains(reason), "{path} {sent}: {text}");
            assert!(text.chars().count() <= 501, "{path} {sent}");
        }
        face.answer(path, good).await;
        let counted = format!(r#"tenon_requests_total{{route="{path}",verdict="malformed"}}"#);
        let (_, metrics) = face.get("/metrics").await;
        let line = format!("{counted} {}", bodies.len());
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_one_at_the_limit_is_read() {
    let face = Face::over(calm());
    let review = fixture("admission/001-mutating-create-nodepool.json").to_string();
    let args = fixture("extender/filter.json")["body"].to_string();
    for (path, body, limit) in [
        ("/admission/default", &review, 8 << 20),
        ("/admission/validate", &review, 8 << 20),
        ("/scheduler/filter", &args, 64 << 20),
    ] {
        let padded = |size: usize| format!("{body}{}", " ".repeat(size - body.len()));
        let (status, _) = face.post(path, padded(limit + 1)).await;
        assert_eq!(status, 413, "{path}");
        let (status, text) = face.post(path, padded(limit)).await;
        assert_eq!(status, 200, "{path}: {text}");
    }
}

#[tokio::test]
async fn a_filter_leaves_what_does_not_leave() {
    let mut leaving = snapshot(&[
        node("n1", "", TAINT),
        node("n2", DELETED, ""),
        node("n3", "", ""),
        node("n4", "", ""),
        node("n5", "", ""),
        claim("n4", DELETED),
        claim("n5", ""),
        node("n6", "", ""),
        claim("n6", ""),
    ]);
    leaving.leaving.insert("aws:///z1/i-n5".to_owned());
    let mut face = Face::over(leaving);
    let mut args = fixture("extender/filter.json")["body"].clone();
    args["NodeNames"] = json!(["n1", "n2", "n3", "n4", "n5", "n6", "unknown"]);
    let answer = face.answer("/scheduler/filter", &args).await;
    let refused = json!({
        "n1": "node is leaving: it has taint karpenter.sh/disrupted",
        "n2": "node is leaving: it is being deleted",
        "n4": "node is leaving: its NodeClaim is being deleted",
        "n5": "node is leaving: it is being disrupted",
    });
    assert_eq!(
        answer,
        json!({
            "Nodes": null,
            "NodeNames": ["n3", "n6", "unknown"],
            "FailedNodes": refused,
            "FailedAndUnresolvableNodes": refused,
            "Error": "",
        })
    );
    assert_eq!(face.heard(), []);

    // Drain leaves such pods where they are, so they may as well come.
    args["Pod"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let answer = face.answer("/scheduler/filter", &args).await;
    assert_eq!(answer["NodeNames"], args["NodeNames"]);
    assert_eq!(answer["FailedNodes"], json!({}));
}

#[tokio::test]
async fn whole_nodes_come_back_as_they_were_sent() {
    let args = fixture("extender/filter-full-nodes.json")["body"].clone();
    let sent = args["Nodes"]["items"].as_array().unwrap();
    let face = Face::over(calm());
    let answer = face.answer("/scheduler/filter", &args).await;
    assert_eq!(answer["Nodes"], args["Nodes"]);
    assert_eq!(answer["NodeNames"], Value::Null);

    let gone = sent[0]["metadata"]["name"].as_str().unwrap();
    let face = Face::over(snapshot(&[node(gone, "", TAINT)]));
    let answer = face.answer("/scheduler/filter", &args).await;
    assert_eq!(answer["Nodes"]["items"], json!(sent[1..]));
    assert!(answer["FailedNodes"][gone].is_string(), "{answer}");

    let scores = face.answer("/scheduler/prioritize", &args).await;
    assert_eq!(scores.as_array().unwrap().len(), sent.len());
    assert_eq!(scores[0]["Host"], gone);
}

#[tokio::test]
async fn a_pod_left_without_a_node_is_a_hint_and_a_full_queue_is_counted() {
    let mut face = Face::over(snapshot(&["n1", "n2", "n3"].map(|n| node(n, "", TAINT))));
    let args = fixture("extender/filter.json")["body"].clone();
    let answer = face.answer("/scheduler/filter", &args).await;
    assert_eq!(answer["NodeNames"], json!([]));
    let hint = Hint::PodWithoutNode(PodKey::new("default", "inflate-5778bc845c-fjxxm"));
    assert_eq!(face.heard(), std::slice::from_ref(&hint));

    // Eight fit.
    for _ in 0..10 {
        face.answer("/scheduler/filter", &args).await;
    }
    let (_, metrics) = face.get("/metrics").await;
    for line in [
        "tenon_hints_dropped_total 2",
        r#"tenon_requests_total{route="/scheduler/filter",verdict="none_left"} 11"#,
        r#"tenon_extender_duration_seconds_count{verb="filter"} 11"#,
        "tenon_extender_refused_nodes_total 33",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
    assert_eq!(face.heard(), vec![hint; 8]);
}

#[tokio::test]
async fn the_planned_node_comes_first_then_the_fuller() {
    // Of 4 CPU and 4 GiB: n1 is empty, n2 is at 3/4 by CPU, n3 at 1/2 by memory, n4 is full.
    let mut planned = snapshot(&[
        node("n1", "", ""),
        claim("n1", ""),
        node("n2", "", ""),
        node("n3", "", ""),
        node("n4", "", ""),
        pod("a", "n2", "1", "1Gi"),
        pod("b", "n2", "2", "1Gi"),
        pod("c", "n3", "1", "2Gi"),
        pod("d", "n4", "4", "1Gi"),
    ]);
    let mut args = fixture("extender/prioritize.json")["body"].clone();
    args["NodeNames"] = json!(["n1", "n2", "n3", "n4", "unknown"]);
    // Ninths, rounded down: 3/4 is 6.75, 1/2 is 4.5.
    let scored = |n1: i64, n3: i64| {
        let scores = [("n1", n1), ("n2", 6), ("n3", n3), ("n4", 9), ("unknown", 0)];
        json!(scores.map(|(host, score)| json!({"Host": host, "Score": score})))
    };
    let key = PodKey::new("default", "inflate-5778bc845c-fjxxm");
    for (nomination, expected) in [
        (None, scored(0, 4)),
        (Some(Nomination::Node("n3".into())), scored(0, 10)),
        (Some(Nomination::Claim("claim-n1".into())), scored(10, 4)),
        (Some(Nomination::Claim("claim-n9".into())), scored(0, 4)),
    ] {
        match &nomination {
            Some(place) => planned.nominations.insert(key.clone(), place.clone()),
            None => planned.nominations.remove(&key),
        };
        let face = Face::over(planned.clone());
        let scores = face.answer("/scheduler/prioritize", &args).await;
        assert_eq!(scores, expected, "{nomination:?}");
    }
}

#[tokio::test]
async fn ready_means_that_the_cluster_has_been_listed() {
    let face = Face::over(Snapshot::default());
    assert_eq!(face.get("/healthz").await.0, 200);
    let (status, why) = face.get("/readyz").await;
    assert_eq!(status, 503);
    assert_eq!(why, "the cluster has not been listed yet");

    let mut known = calm();
    known.revision = 42;
    face.snapshot.send_replace(Arc::new(known));
    assert_eq!(face.get("/readyz").await.0, 200);
    let (status, metrics) = face.get("/metrics").await;
    assert_eq!(status, 200);
    assert!(
        metrics.contains("tenon_snapshot_revision 42\n"),
        "{metrics}"
    );
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
}
