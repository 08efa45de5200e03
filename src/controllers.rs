//! The loops that tie the rooms together: watch, decide, carry out. Each loop reads snapshots and owns nothing but its timers.
//!
//! [`start`] brings the whole product up on a Kubernetes client, a cloud and a clock; it does not know whether they are real. Must
//! never: decide anything itself; the pure rooms do.

mod classes;
mod engine;
mod garbage;
mod provisioner;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::Client;
use tokio::{
    sync::{Notify, mpsc, watch as channel},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    actuate::{Actuator, Teller},
    clock::Clock,
    cloud::Cloud,
    cluster::{Hint, Snapshot},
    config::Settings,
    serve,
    watch::{self, Writer},
};

/// Hints that may wait. A hint only says "look again", so one is as good as a thousand; the bound is for memory.
const HINTS: usize = 1_024;

/// What the product runs on.
pub struct Parts {
    /// Kubernetes. Must not retry by itself: eviction answers 429 when a budget blocks it.
    pub client: Client,
    /// The cloud.
    pub cloud: Arc<dyn Cloud>,
    /// Time.
    pub clock: Clock,
    /// Settings.
    pub settings: Settings,
    /// Goes into claim names, so that two processes do not choose the same ones.
    pub salt: u64,
}

/// What the product counts about itself.
#[derive(Debug, Default)]
pub struct Stats {
    /// Solver runs.
    pub solves: AtomicU64,
    /// Time spent in the solver, microseconds of the wall clock as the caller's timer gives it.
    pub solve_micros: AtomicU64,
    /// NodeClaims created.
    pub claims_created: AtomicU64,
}

impl Stats {
    pub(crate) fn solved(&self, took: Duration) {
        self.solves.fetch_add(1, Ordering::Relaxed);
        self.solve_micros.fetch_add(
            u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }
}

/// The running product. Dropping it aborts every task at once, as `kill -9` would.
pub struct Product {
    /// Admission, extender, health and metrics.
    pub router: axum::Router,
    /// Snapshots as they are published.
    pub snapshot: channel::Receiver<Arc<Snapshot>>,
    /// Figures.
    pub stats: Arc<Stats>,
    stop: CancellationToken,
    deciders: JoinSet<()>,
    feeders: JoinSet<()>,
}

impl Product {
    /// Ordered shutdown: stop deciding, finish what is being carried out, then stop listening.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.deciders.join_next().await {
            rethrow(ended);
        }
        self.feeders.shutdown().await;
    }

    /// Waits until a task ends, which none should: a panic in one ends the process loudly.
    pub async fn failed(&mut self) {
        tokio::select! {
            biased;
            Some(ended) = self.deciders.join_next() => rethrow(ended),
            Some(ended) = self.feeders.join_next() => rethrow(ended),
        }
    }
}

fn rethrow(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Starts the product.
pub fn start(parts: Parts) -> Product {
    let Parts {
        client,
        cloud,
        clock,
        settings,
        salt,
    } = parts;
    let settings = Arc::new(settings);
    let stop = CancellationToken::new();
    let stats = Arc::new(Stats::default());
    let (hints, heard) = mpsc::channel::<Hint>(HINTS);
    let refresh = Arc::new(Notify::new());

    let mut feeders = JoinSet::new();
    let (writer, write) = Writer::new(clock.clone());
    feeders.spawn(write);
    feeders.spawn(watch::run(client.clone(), writer.clone()));
    let (teller, tell) = Teller::new(client.clone(), clock.clone(), writer.clone(), &settings);
    feeders.spawn(tell);

    let actuator = Actuator::new(
        client,
        cloud.clone(),
        clock.clone(),
        writer.clone(),
        teller.clone(),
        settings.clone(),
    );
    let context = Context {
        actuator,
        cloud,
        clock: clock.clone(),
        writer: writer.clone(),
        teller,
        settings,
        stop: stop.clone(),
    };
    let mut deciders = JoinSet::new();
    deciders.spawn(engine::run(context.clone(), refresh.clone()));
    deciders.spawn(provisioner::run(
        context.clone(),
        heard,
        stats.clone(),
        salt,
    ));
    deciders.spawn(classes::run(context.clone(), refresh));
    deciders.spawn(garbage::run(context));

    let snapshot = writer.snapshots();
    let router = serve::router(serve::ServeState::new(snapshot.clone(), hints, clock));
    Product {
        router,
        snapshot,
        stats,
        stop,
        deciders,
        feeders,
    }
}

/// What every loop needs.
#[derive(Clone)]
struct Context {
    actuator: Actuator,
    cloud: Arc<dyn Cloud>,
    clock: Clock,
    writer: Writer,
    teller: Teller,
    settings: Arc<Settings>,
    stop: CancellationToken,
}
