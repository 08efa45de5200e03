//! Builders that several tests share: cluster states from manifests.

use jiff::Timestamp;
use serde_json::Value;
use tenon::cluster::{Event, Snapshot, State, WATCHED};

/// A moment that has no meaning of its own.
pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// Reads one manifest.
pub(crate) fn manifest(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).expect("a manifest")
}

/// A synced cluster holding these objects, heard at `now`.
pub(crate) fn cluster(objects: &[&str], now: Timestamp) -> Snapshot {
    let mut state = State::default();
    for yaml in objects {
        state.apply(event(manifest(yaml)), now);
    }
    for resource in WATCHED {
        let present = objects.iter().map(|o| key(&manifest(o))).collect();
        state.apply(Event::Listed { resource, present }, now);
    }
    state.snapshot()
}

fn key(object: &Value) -> String {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    meta["namespace"]
        .as_str()
        .map_or_else(|| name.to_owned(), |ns| format!("{ns}/{name}"))
}

/// The event of an object that was added.
pub(crate) fn event(object: Value) -> Event {
    fn read<T: serde::de::DeserializeOwned>(object: Value) -> Box<T> {
        Box::new(serde_json::from_value(object).expect("an object of its kind"))
    }
    match object["kind"].as_str().unwrap_or_default() {
        "Pod" => Event::Pod(read(object)),
        "Node" => Event::Node(read(object)),
        "NodeClaim" => Event::Claim(read(object)),
        "NodePool" => Event::Pool(read(object)),
        "EC2NodeClass" => Event::Class(read(object)),
        "DaemonSet" => Event::DaemonSet(read(object)),
        "PodDisruptionBudget" => Event::Budget(read(object)),
        other => panic!("no event for kind {other}"),
    }
}
