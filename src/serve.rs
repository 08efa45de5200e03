//! The HTTPS face: admission, scheduler extender, health, metrics. Must never: decide; handlers parse, ask a pure function, render.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::{
    clock::Clock,
    cluster::{Hint, Snapshot},
};

/// What handlers read.
#[derive(Clone)]
pub struct ServeState {
    /// Newest snapshot.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// Where hints go; full means dropped.
    pub hints: mpsc::Sender<Hint>,
    /// Time.
    pub clock: Clock,
}

impl ServeState {
    /// Builds the state.
    pub fn new(
        snapshot: watch::Receiver<Arc<Snapshot>>,
        hints: mpsc::Sender<Hint>,
        clock: Clock,
    ) -> Self {
        Self {
            snapshot,
            hints,
            clock,
        }
    }
}

/// All routes.
pub fn router(state: ServeState) -> axum::Router {
    axum::Router::new()
        .route("/healthz", axum::routing::get(|| async { "ok" }))
        .with_state(state)
}
