//! One cluster with everything in it: the API, the simulated cloud, the workload controllers, the scheduler, the kubelets and the
//! product.
//!
//! The product gets a `kube::Client`, a `Cloud` and a clock, and does not know that they are the lab's. It can be killed and started
//! again while the rest goes on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Router, body::Body};
use futures::{
    FutureExt,
    future::{BoxFuture, pending},
};
use http::{Request, StatusCode, header};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{
    api::{
        self, Admission, ApiError, CustomResourceRules, Kind, Phase, Server, WriteOptions, Written,
    },
    gate::Gate,
    kubelet::Kubelets,
    manifests::{self, Files, InputError},
    scheduler::{self, Scheduler},
    seed::Seed,
    workloads::Workloads,
};
use crate::{
    api::crd,
    clock::Clock,
    cloud::simulated::{self, Simulated},
    config,
    controllers::{self, Product},
};

/// The most that a webhook may answer with: an object of the API is at most 1.5 MiB, base64 and its frame make it more.
const MAX_ANSWER: usize = 4 << 20;

/// A webhook's `timeoutSeconds` when its configuration names none.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// When virtual time begins: a Monday morning, so that budgets with office hours matter.
const VIRTUAL_START: &str = "2026-06-01T09:00:00Z";

/// How long a product that died stays away: a container is started again within seconds.
const RESTART_AFTER: Duration = Duration::from_secs(5);

/// How the lab's time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// As fast as there is anything to do; every run begins at the same time of day.
    Virtual,
    /// With the wall clock.
    Real,
}

impl Time {
    /// Runs a future on a runtime of this time.
    pub fn block_on<F: Future>(self, future: F) -> std::io::Result<F::Output> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(self == Time::Virtual);
        Ok(builder.build()?.block_on(future))
    }

    /// A clock to start a world with; must be called within the runtime.
    pub fn clock(self) -> Clock {
        let start = match self {
            Time::Virtual => VIRTUAL_START.parse().unwrap_or(Timestamp::UNIX_EPOCH),
            Time::Real => Clock::system().now(),
        };
        Clock::starting_at(start)
    }
}

/// How a world is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Decides UIDs, names, prices and delays.
    pub seed: u64,
    /// Kubernetes minor version, such as `1.32`.
    pub kubernetes_version: String,
    /// The product's settings.
    pub settings: config::Settings,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            kubernetes_version: "1.32".to_owned(),
            settings: config::Settings::default(),
        }
    }
}

/// A running cluster. Dropping it ends everything in it.
pub struct World {
    /// The API.
    pub server: Server,
    /// The clock that everything goes by.
    pub clock: Clock,
    /// The cloud.
    pub cloud: Simulated,
    options: Options,
    door: Door,
    product: Option<Product>,
    /// How often the product was started.
    starts: u64,
    gate: Option<Arc<Gate>>,
    /// When a product that died at its gate is started again.
    restart_at: Option<Instant>,
    evictions: Arc<std::sync::atomic::AtomicU64>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl World {
    /// Starts a cluster without nodes, with the base objects, and without the product. Must be called within a runtime with time.
    pub async fn start(options: Options, clock: Clock) -> Result<Self, InputError> {
        let seed = Seed::new(options.seed);
        let time = clock.clone();
        let server = Server::new(move || time.now(), seed.of("api").draw("uids"));
        server.set_version(&format!("v{}.0", options.kubernetes_version));
        server.set_custom_resource_rules(Arc::new(Schemas(crd::all())));
        let door = Door::default();
        server.set_admission(Arc::new(door.clone()));
        let evictions = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let count = evictions.clone();
        server.set_recorder(Some(Arc::new(move |call: &api::Call, status| {
            if call.subresource == "eviction" && status < 300 {
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        })));
        let config = simulated::Config {
            seed: seed.of("cloud").draw("cloud"),
            kubernetes_version: options.kubernetes_version.clone(),
            ..simulated::Config::default()
        };
        let cloud = Simulated::new(config, clock.clone());
        let mut world = Self {
            server,
            clock,
            cloud,
            options,
            door,
            product: None,
            starts: 0,
            gate: None,
            restart_at: None,
            evictions,
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
        };
        world.start_cluster(seed);
        for object in manifests::parse(manifests::BASE, &Files::Shipped.read(manifests::BASE)?)? {
            let applied = apply(&world.server, object).await;
            applied.map_err(|e| InputError::new(manifests::BASE, e))?;
        }
        Ok(world)
    }

    fn start_cluster(&mut self, seed: Seed) {
        let (server, stop) = (self.server.clone(), self.stop.clone());
        let budgets = server.clone();
        self.tasks
            .spawn(async move { budgets.run_disruption_controller().await });
        self.tasks
            .spawn(Workloads::new(server.clone(), seed).run(stop.clone()));
        let settings = scheduler::Settings {
            extender: Some(self.door.router()),
            ..scheduler::Settings::default()
        };
        self.tasks
            .spawn(Scheduler::new(server.clone(), seed, settings).run(stop.clone()));
        if let Some(machines) = self.cloud.machine_events() {
            self.tasks
                .spawn(Kubelets::new(server, seed).run(machines, stop));
        }
    }

    /// Starts the product, or starts it again. With a gate, everything that it asks of the outside goes through that.
    pub fn start_product(&mut self, gate: Option<Arc<Gate>>) {
        self.kill_product();
        self.starts += 1;
        let service = api::service(self.server.clone());
        let cloud = Arc::new(self.cloud.clone());
        self.restart_at = None;
        self.gate = gate.clone();
        let (client, cloud) = match gate {
            None => (kube::Client::new(service, "default"), cloud as _),
            Some(gate) => (
                kube::Client::new(gate.around_api(service), "default"),
                gate.around_cloud(cloud),
            ),
        };
        let product = controllers::start(controllers::Parts {
            client,
            cloud,
            clock: self.clock.clone(),
            settings: self.options.settings.clone(),
            salt: Seed::new(self.options.seed)
                .of("product")
                .draw(&self.starts.to_string()),
        });
        self.door.open(Some(product.router.clone()));
        self.product = Some(product);
    }

    /// Ends the product at once, as `kill -9` would.
    pub fn kill_product(&mut self) {
        self.door.open(None);
        self.product = None;
    }

    /// The product, if it runs.
    pub fn product(&self) -> Option<&Product> {
        self.product.as_ref()
    }

    /// Looks after the world until something in it ends that should not; a panic is passed on. A product that dies at its gate is
    /// started again, with an open gate, after [`RESTART_AFTER`]. May be dropped and called again at any time.
    pub async fn tend(&mut self) -> &'static str {
        loop {
            let gate = self.gate.clone().filter(|_| self.product.is_some());
            let closed = async {
                match gate {
                    Some(gate) => gate.closed().await,
                    None => pending().await,
                }
            };
            let restart = async {
                match self.restart_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => pending().await,
                }
            };
            let failed = async {
                match &mut self.product {
                    Some(product) => product.failed().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = closed => {
                    self.kill_product();
                    self.restart_at = Some(Instant::now() + RESTART_AFTER);
                }
                () = restart => self.start_product(Some(Gate::new(None))),
                () = failed => return "the product",
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        std::panic::resume_unwind(error.into_panic());
                    }
                    return "a part of the lab";
                }
            }
        }
    }

    /// Settings of the world.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Evictions that the API granted.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Creates an object, or replaces all but the status of the one that is there. Labels, annotations and finalizers that others
/// set stay.
pub async fn apply(server: &Server, manifest: Value) -> Result<Written, ApiError> {
    let options = WriteOptions {
        field_manager: "kubectl-client-side-apply".to_owned(),
        ..WriteOptions::default()
    };
    let text = |pointer: &str| {
        manifest
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (version, name, kind) = (text("/apiVersion"), text("/metadata/name"), text("/kind"));
    let kind = Kind::by_manifest(version, kind).ok_or_else(|| {
        ApiError::new(
            404,
            "NotFound",
            format!("no matches for kind {kind:?} in version {version:?}"),
        )
    })?;
    let namespace = match text("/metadata/namespace") {
        _ if !kind.info().namespaced => "",
        "" => "default",
        given => given,
    };
    let Ok(old) = server.get(kind, namespace, name) else {
        let namespace = namespace.to_owned();
        return server.create(kind, &namespace, manifest, &options).await;
    };
    let mut object = manifest.clone();
    object["metadata"] = old["metadata"].clone();
    for map in ["labels", "annotations"] {
        for (key, value) in manifest["metadata"][map].as_object().into_iter().flatten() {
            object["metadata"][map][key] = value.clone();
        }
    }
    server.update(kind, namespace, object, &options).await
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill_product();
        self.stop.cancel();
    }
}

/// The way to the product's routes, whichever product runs: what a Service is in a cluster.
#[derive(Clone, Default)]
struct Door(Arc<Mutex<Option<Router>>>);

impl Door {
    fn open(&self, router: Option<Router>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = router;
    }

    /// Sends a request on; 503 when there is nobody.
    async fn send(&self, request: Request<Body>) -> http::Response<Body> {
        let router = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(router) = router else {
            let mut response =
                http::Response::new(Body::from("no endpoints available for service \"tenon\""));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return response;
        };
        match router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn router(&self) -> Router {
        let door = self.clone();
        Router::new().fallback(move |request: Request<Body>| {
            let door = door.clone();
            async move { door.send(request).await }
        })
    }

    async fn post(&self, path: &str, review: &Value) -> Result<Value, String> {
        let body = serde_json::to_vec(review).map_err(|e| e.to_string())?;
        let request = Request::post(path)
            .header(header::HOST, "tenon.kube-system.svc")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::CONTENT_LENGTH, body.len())
            .body(Body::from(body))
            .map_err(|e| e.to_string())?;
        let exchange = async {
            let response = self.send(request).await;
            let status = response.status();
            let bytes = axum::body::to_bytes(response.into_body(), MAX_ANSWER)
                .await
                .map_err(|e| e.to_string())?;
            if status != StatusCode::OK {
                return Err(format!("{status}: {}", String::from_utf8_lossy(&bytes)));
            }
            serde_json::from_slice(&bytes).map_err(|e| e.to_string())
        };
        let answered = tokio::time::timeout(WEBHOOK_TIMEOUT, exchange).await;
        answered.map_err(|_| "context deadline exceeded".to_owned())?
    }
}

/// The product's webhooks, registered for the kinds that people write.
impl Admission for Door {
    fn review(&self, phase: Phase, review: Value) -> BoxFuture<'_, Result<Value, String>> {
        let path = match phase {
            Phase::Mutate => "/admission/default",
            Phase::Validate => "/admission/validate",
        };
        async move { self.post(path, &review).await }.boxed()
    }

    fn wants(&self, kind: Kind) -> bool {
        matches!(kind, Kind::NodePool | Kind::EC2NodeClass)
    }
}

/// The CRDs as the API server uses them: pruning and defaults. Bounds and CEL rules are the real control plane's to check.
struct Schemas(Vec<CustomResourceDefinition>);

impl Schemas {
    fn of(&self, kind: Kind) -> Option<&CustomResourceDefinition> {
        self.0
            .iter()
            .find(|crd| crd.spec.names.kind == kind.info().kind)
    }
}

impl CustomResourceRules for Schemas {
    fn apply_defaults(&self, kind: Kind, object: &mut Value) {
        if let Some(crd) = self.of(kind) {
            crd::apply_defaults(crd, object);
        }
    }

    fn prune(&self, kind: Kind, object: &mut Value) -> Vec<String> {
        self.of(kind)
            .map(|crd| crd::prune(crd, object))
            .unwrap_or_default()
    }

    fn validate(&self, _: Kind, _: &Value, _: Option<&Value>) -> Vec<String> {
        Vec::new()
    }
}
