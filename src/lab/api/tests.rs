//! The behaviours that controllers rely on, through `kube::Client`.

mod budgets;
mod deletion;
mod hooks;
mod watches;
mod writes;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};

use super::{Kind, Server, WriteOptions, service};

/// A server on the paused clock, which starts at a round time.
fn server() -> Server {
    let start = tokio::time::Instant::now();
    let now = move || {
        let passed = i64::try_from(start.elapsed().as_millis()).unwrap();
        let zero: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        zero.checked_add(SignedDuration::from_millis(passed))
            .unwrap()
    };
    Server::new(now, 7)
}

fn client(server: &Server) -> Client {
    Client::new(service(server.clone()), "default")
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "pause"}]},
    })
}

fn typed_pod(name: &str) -> Pod {
    serde_json::from_value(pod(name)).unwrap()
}

/// A pod on a node, running and ready.
async fn running_pod(server: &Server, value: Value, node: &str) {
    let options = WriteOptions::default();
    let made = server
        .create(Kind::Pod, "default", value, &options)
        .await
        .unwrap();
    let name = made.object.name();
    server.bind("default", name, node, None).unwrap();
    server
        .edit_status(Kind::Pod, "default", name, |status| {
            status["phase"] = json!("Running");
            let conditions = status["conditions"].as_array_mut().unwrap();
            conditions.push(json!({"type": "Ready", "status": "True"}));
        })
        .unwrap();
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("not an answer of the API: {other}"),
    }
}

fn status(error: kube::Error) -> Arc<kube::core::Status> {
    match error {
        kube::Error::Api(status) => Arc::new(*status),
        other => panic!("not an answer of the API: {other}"),
    }
}
