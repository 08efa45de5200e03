//! Pods bound to nodes that are not there are deleted without grace, as kube-controller-manager's pod collector does.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::lab::{
    api::{Change, DeleteOptions, Event, Kind, Object, Server},
    timers::Timers,
};

/// How long a node must be gone before its pods are (the collector's quarantine).
const QUARANTINE: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub(super) struct PodGc {
    server: Server,
    nodes: BTreeSet<String>,
    /// Missing nodes that wait in `timers`.
    missing: BTreeSet<String>,
    timers: Timers<String>,
}

impl PodGc {
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            nodes: BTreeSet::new(),
            missing: BTreeSet::new(),
            timers: Timers::default(),
        }
    }

    pub(super) fn node(&mut self, event: &Event) {
        let name = event.object.name();
        match event.change {
            Change::Bookmark => {}
            Change::Deleted => {
                self.nodes.remove(name);
                self.quarantine(name);
            }
            Change::Added | Change::Modified => {
                if !self.nodes.contains(name) {
                    self.nodes.insert(name.to_owned());
                }
            }
        }
    }

    pub(super) fn pod(&mut self, pod: &Object) {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if !node.is_empty() && !self.nodes.contains(node) {
            self.quarantine(node);
        }
    }

    fn quarantine(&mut self, node: &str) {
        if self.missing.insert(node.to_owned()) {
            self.timers
                .add(Instant::now() + QUARANTINE, node.to_owned());
        }
    }

    pub(super) async fn due(&self) {
        self.timers.due().await;
    }

    pub(super) async fn tick(&mut self) {
        while let Some(node) = self.timers.pop_due(Instant::now()) {
            self.missing.remove(&node);
            if self.server.get(Kind::Node, "", &node).is_ok() {
                continue;
            }
            for pod in self.server.pods_on_node(&node) {
                let options = DeleteOptions {
                    uid: Some(pod.uid().to_owned()),
                    ..DeleteOptions::now()
                };
                let (namespace, name) = (pod.namespace(), pod.name());
                let deleted = self
                    .server
                    .delete(Kind::Pod, namespace, name, &options)
                    .await;
                if let Err(error) = deleted {
                    tracing::debug!(pod = name, %error, "orphaned pod not deleted");
                }
            }
        }
    }
}
