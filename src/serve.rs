//! The HTTPS face: admission, scheduler extender, health, metrics. Must never: decide; handlers parse, ask a pure function, render.
//!
//! Every route has a limit on the size of its body, on its time and on how many calls run at once. A panic in a handler answers 500 and
//! ends nothing else.

mod admission;
mod extender;
mod metrics;

use std::{any::Any, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, MatchedPath, Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, mpsc, watch};
use tower_http::{catch_panic::CatchPanicLayer, timeout::TimeoutLayer};

use crate::{
    clock::Clock,
    cluster::{Hint, Snapshot},
    telemetry,
};
use metrics::{Metrics, Verdict};

/// What a group of routes allows.
struct Limits {
    /// Largest body in bytes; more is answered with 413.
    body: usize,
    /// Longest a call may take; longer is answered with 503.
    time: Duration,
    /// Calls that run at once; more wait for their turn, within their time.
    calls: usize,
}

/// API servers read at most 3 MiB of an object, and a review carries the old object beside the new one. They wait 10 s unless told
/// otherwise; a call is well under a millisecond of work, so 2 s is a caller that stalls. 16 bodies at once bound the memory.
const ADMISSION: Limits = Limits {
    body: 8 << 20,
    time: Duration::from_secs(2),
    calls: 16,
};

/// With `nodeCacheCapable: true` 5,000 node names are 0.3 MiB; with `false` the same number of whole nodes is some 60 MiB. A scheduler
/// places one pod at a time and waits 5 s unless told otherwise: four schedulers at once bound the memory.
const EXTENDER: Limits = Limits {
    body: 64 << 20,
    time: Duration::from_secs(5),
    calls: 4,
};

/// Probes and scrapes carry no body; kubelets wait 1 s for a probe, scrapers 10 s.
const PROBES: Limits = Limits {
    body: 1 << 10,
    time: Duration::from_secs(5),
    calls: 16,
};

impl Limits {
    /// Puts the routes behind these limits. All that can go wrong in them is inside what is counted.
    fn guard(&self, routes: Router<ServeState>, metrics: &Metrics) -> Router<ServeState> {
        let permits = Arc::new(Semaphore::new(self.calls));
        routes
            .route_layer(DefaultBodyLimit::max(self.body))
            .route_layer(middleware::from_fn_with_state(permits, in_turn))
            .route_layer(TimeoutLayer::with_status_code(
                StatusCode::SERVICE_UNAVAILABLE,
                self.time,
            ))
            .route_layer(CatchPanicLayer::custom(panicked))
            .route_layer(middleware::from_fn_with_state(metrics.clone(), count))
    }
}

async fn in_turn(State(permits): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    match permits.acquire().await {
        Ok(_permit) => next.run(request).await,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn count(
    State(metrics): State<Metrics>,
    route: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    let label = metrics::Request {
        route: route.as_str().to_owned(),
        verdict: Verdict::of(&response),
    };
    metrics.requests.get_or_create(&label).inc();
    response
}

/// What handlers read.
#[derive(Clone)]
pub struct ServeState {
    /// Newest snapshot.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// Where hints go; full means dropped and counted.
    pub hints: mpsc::Sender<Hint>,
    /// Time.
    pub clock: Clock,
    metrics: Metrics,
    registry: Arc<Registry>,
}

impl ServeState {
    /// State with a registry of its own.
    pub fn new(
        snapshot: watch::Receiver<Arc<Snapshot>>,
        hints: mpsc::Sender<Hint>,
        clock: Clock,
    ) -> Self {
        Self::with_registry(snapshot, hints, clock, Registry::default())
    }

    /// State that serves the metrics of other rooms too: those already in the registry.
    pub fn with_registry(
        snapshot: watch::Receiver<Arc<Snapshot>>,
        hints: mpsc::Sender<Hint>,
        clock: Clock,
        mut registry: Registry,
    ) -> Self {
        let metrics = Metrics::register(&mut registry);
        Self {
            snapshot,
            hints,
            clock,
            metrics,
            registry: Arc::new(registry),
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    /// Hands on a hint. Nothing is lost with a dropped one but time: the watch tells the same a little later.
    fn hint(&self, hint: Hint) {
        if self.hints.try_send(hint).is_err() {
            self.metrics.hints_dropped.inc();
        }
    }
}

/// All routes.
pub fn router(state: ServeState) -> Router {
    let admission = Router::new()
        .route("/admission/default", post(admission::default))
        .route("/admission/validate", post(admission::validate));
    let extender = Router::new()
        .route("/scheduler/filter", post(extender::filter))
        .route("/scheduler/prioritize", post(extender::prioritize));
    let probes = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_text));
    ADMISSION
        .guard(admission, &state.metrics)
        .merge(EXTENDER.guard(extender, &state.metrics))
        .merge(PROBES.guard(probes, &state.metrics))
        .with_state(state)
}

async fn ready(State(state): State<ServeState>) -> Response {
    if state.snapshot().synced {
        "ok".into_response()
    } else {
        let why = "the cluster has not been listed yet";
        (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
    }
}

async fn metrics_text(State(state): State<ServeState>) -> Response {
    let revision = state.snapshot().revision;
    state
        .metrics
        .snapshot_revision
        .set(i64::try_from(revision).unwrap_or(i64::MAX));
    match telemetry::metrics_text(&state.registry) {
        Ok(text) => ([(header::CONTENT_TYPE, telemetry::METRICS_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!(panic = what, "a handler panicked");
    (StatusCode::INTERNAL_SERVER_ERROR, "internal error").into_response()
}

/// Longest reason in characters: parsers quote what they could not read, whole.
const LONGEST_REASON: usize = 500;

/// What is wrong with a body, for the caller's log and for ours.
fn malformed(why: String) -> Response {
    let why: String = why.chars().take(LONGEST_REASON).collect();
    tracing::warn!(%why, "a request cannot be read");
    (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt;

    use super::*;

    const TIGHT: Limits = Limits {
        body: 8,
        time: Duration::from_secs(2),
        calls: 1,
    };

    /// A router whose routes are `/panics`, `/hangs`, `/reads` and `/held`, which waits for the semaphore.
    fn guarded(held: Arc<Semaphore>) -> (Router, Metrics) {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let (_, snapshot) = watch::channel(Arc::new(Snapshot::default()));
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let state = ServeState::new(snapshot, mpsc::channel(1).0, clock);
        let wait = move || async move { held.acquire().await.map(|_| "ok").unwrap_or("closed") };
        let routes = Router::new()
            .route("/panics", get(|| async { panic!("no") as &str }))
            .route("/hangs", get(std::future::pending::<&str>))
            .route("/reads", post(|body: axum::body::Bytes| async { body }))
            .route("/held", get(wait));
        (TIGHT.guard(routes, &metrics).with_state(state), metrics)
    }

    async fn call(router: &Router, method: &str, path: &str, body: &'static str) -> StatusCode {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(body)).unwrap();
        router.clone().oneshot(request).await.unwrap().status()
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_wrong_in_one_call_is_answered_counted_and_ends_nothing_else() {
        let (router, metrics) = guarded(Arc::new(Semaphore::new(1)));
        for (method, path, body, status, verdict) in [
            ("GET", "/panics", "", 500, Verdict::Failed),
            ("GET", "/hangs", "", 503, Verdict::Unavailable),
            ("POST", "/reads", "123456789", 413, Verdict::TooLarge),
            ("GET", "/reads", "", 405, Verdict::Rejected),
            ("POST", "/reads", "12345678", 200, Verdict::Answered),
        ] {
            assert_eq!(call(&router, method, path, body).await, status, "{path}");
            let label = metrics::Request {
                route: path.to_owned(),
                verdict,
            };
            let count = metrics.requests.get_or_create(&label).get();
            assert_eq!(count, 1, "{path} {verdict:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_the_limit_wait_for_their_turn() {
        let held = Arc::new(Semaphore::new(0));
        let (router, _) = guarded(held.clone());
        let first = call(&router, "GET", "/held", "");
        let second = call(&router, "POST", "/reads", "");
        tokio::pin!(first, second);
        let soon = Duration::from_secs(1);
        let both = futures::future::select(&mut first, &mut second);
        assert!(tokio::time::timeout(soon, both).await.is_err());
        held.add_permits(1);
        assert_eq!(
            futures::join!(first, second),
            (StatusCode::OK, StatusCode::OK)
        );
    }
}
