//! The lab's Kubernetes API: one process, one global resource version, the semantics that controllers rely on.
//!
//! [`Server`] is the store and its verbs; the lab's own scheduler, kubelets and workload controllers call them
//! directly. [`service`] wraps a server as the tower service that a `kube::Client` speaks to.
//!
//! Same calls, same clock and same seed give the same history: nothing here reads another clock, draws other
//! randomness or iterates a hash map. What is left out, compared with a real API server: managed fields (a server-side
//! apply creates or merges and never removes), paging (lists come whole), foreground deletion (treated as background),
//! authentication and authorisation.

mod admission;
mod budgets;
mod defaults;
mod delete;
mod error;
mod http;
mod kinds;
mod object;
mod patch;
mod pods;
mod rules;
mod select;
mod store;
mod watch;
mod write;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Notify;

pub use admission::{Admission, CustomResourceRules, Phase};
pub use budgets::BudgetStatus;
pub use delete::{DeleteOptions, Deleted};
pub use error::ApiError;
pub use http::{Body, Call, Service, service};
pub use kinds::{Kind, KindInfo};
pub use object::{Key, Object};
pub use patch::Patch;
pub use pods::Eviction;
pub use select::{FieldTerm, LabelSelector, Selectors};
pub use watch::{Change, Event, Watch};
pub use write::{FieldValidation, WriteOptions, Written};

use store::State;

/// The namespaces that a new cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// How many changes of each type a server remembers for watches that resume.
const HISTORY: usize = 20_000;

/// A closure that may refuse a write before it takes effect.
pub type Fault = Arc<dyn Fn(&Call) -> Option<ApiError> + Send + Sync>;

/// A closure told of each request and of the HTTP status it got.
pub type Recorder = Arc<dyn Fn(&Call, u16) + Send + Sync>;

/// The API server. Clones share one store.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    hooks: Mutex<Hooks>,
    budgets: Notify,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

#[derive(Clone)]
struct Hooks {
    admission: Option<Arc<dyn Admission>>,
    rules: Option<Arc<dyn CustomResourceRules>>,
    fault: Option<Fault>,
    recorder: Option<Recorder>,
    version: String,
}

impl Server {
    /// An API server with the standard namespaces. `now` is read for time stamps, `seed` decides UIDs and generated
    /// names.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static, seed: u64) -> Self {
        let server = Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State::new(seed, HISTORY)),
                hooks: Mutex::new(Hooks {
                    admission: None,
                    rules: None,
                    fault: None,
                    recorder: None,
                    version: "v1.32.0".to_owned(),
                }),
                budgets: Notify::new(),
                now: Box::new(now),
            }),
        };
        let now = server.now();
        let mut state = server.state();
        for name in NAMESPACES {
            let mut namespace = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            });
            state.stamp_new(Kind::Namespace, &mut namespace, now);
            state.put(Kind::Namespace, namespace);
        }
        drop(state);
        server
    }

    /// Sets the webhooks that review writes.
    pub fn set_admission(&self, admission: Arc<dyn Admission>) {
        self.hooks().admission = Some(admission);
    }

    /// Sets the schema rules for custom resources.
    pub fn set_custom_resource_rules(&self, rules: Arc<dyn CustomResourceRules>) {
        self.hooks().rules = Some(rules);
    }

    /// Sets or clears the closure that may refuse a write that comes over HTTP.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.hooks().fault = fault;
    }

    /// Sets or clears the closure that is told of each HTTP request.
    pub fn set_recorder(&self, recorder: Option<Recorder>) {
        self.hooks().recorder = recorder;
    }

    /// Sets the Kubernetes version that `/version` names, such as `v1.32.0`.
    pub fn set_version(&self, version: &str) {
        self.hooks().version = version.to_owned();
    }

    /// Sets how many changes of each type are remembered for watches that resume.
    pub fn set_history(&self, changes: usize) {
        self.state().set_history(changes);
    }

    /// The latest resource version.
    pub fn version(&self) -> u64 {
        self.state().version()
    }

    /// The time on the server's clock.
    pub fn now(&self) -> Timestamp {
        (self.shared.now)()
    }

    /// One object. `namespace` is empty for cluster-wide types.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Object, ApiError> {
        if kind == Kind::PodDisruptionBudget {
            self.refresh_budgets();
        }
        let found = self.state().get(kind, &Key::new(namespace, name));
        found.ok_or_else(|| ApiError::not_found(kind, name))
    }

    /// The selected objects in order of namespace and name, and the resource version the list stands for.
    pub fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selectors: &Selectors,
    ) -> (u64, Vec<Object>) {
        if kind == Kind::PodDisruptionBudget {
            self.refresh_budgets();
        }
        let state = self.state();
        (state.version(), state.list(kind, namespace, selectors))
    }

    /// The number of objects of a type.
    pub fn count(&self, kind: Kind) -> usize {
        self.state().count(kind)
    }

    /// Pods bound to a node.
    pub fn pods_on_node(&self, node: &str) -> Vec<Object> {
        self.list(Kind::Pod, None, &Selectors::on_node(node)).1
    }

    /// Objects of a type that name `uid` among their owners.
    pub fn owned_by(&self, kind: Kind, uid: &str) -> Vec<Object> {
        self.state().owned_by(kind, uid)
    }

    /// The object with that UID.
    pub fn by_uid(&self, uid: &str) -> Option<Object> {
        self.state().by_uid(uid)
    }

    /// Changes after resource version `since`, or, without it, the current objects as additions and then all
    /// changes. Fails with 410 when `since` is older than the history kept.
    pub fn watch(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        since: Option<u64>,
        selectors: &Selectors,
    ) -> Result<Watch, ApiError> {
        self.state().watch(kind, namespace, since, selectors)
    }

    /// The current objects of a type as additions, then all its changes.
    pub fn subscribe(&self, kind: Kind) -> Watch {
        self.state().subscribe(kind, None, &Selectors::default())
    }

    /// Every object, by type and name: equal for equal histories.
    pub fn dump(&self) -> Value {
        let state = self.state();
        let all = Kind::ALL.iter().map(|&kind| {
            let objects = state.list(kind, None, &Selectors::default());
            let values = objects.iter().map(|o| o.value().clone()).collect();
            (kind.resource(), Value::Array(values))
        });
        Value::Object(all.collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn hooks(&self) -> MutexGuard<'_, Hooks> {
        self.shared
            .hooks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a write: garbage goes, and the budget controller is woken.
    fn settle(&self, mut state: MutexGuard<'_, State>, now: Timestamp) {
        state.collect_garbage(now);
        if state.has_dirty_budgets() {
            self.shared.budgets.notify_one();
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

/// A time as the API writes it.
fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
