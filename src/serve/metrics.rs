//! What this room counts.

use std::fmt::{self, Write as _};

use axum::{http::StatusCode, response::Response};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    /// A question was answered.
    Answered,
    /// A filter left no node.
    NoneLeft,
    /// An object was let through as it is.
    Allowed,
    /// An object was let through with repairs.
    Repaired,
    /// An object was refused.
    Denied,
    /// The body could not be read.
    Malformed,
    /// The body was too large.
    TooLarge,
    /// We cannot answer yet, or not in time.
    Unavailable,
    /// We failed.
    Failed,
    /// Any other refusal of the request itself.
    Rejected,
}

impl Verdict {
    /// What the handler said, else what the status says.
    pub(super) fn of(response: &Response) -> Self {
        if let Some(verdict) = response.extensions().get::<Self>() {
            return *verdict;
        }
        match response.status() {
            StatusCode::BAD_REQUEST => Self::Malformed,
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            status if status.is_server_error() => Self::Failed,
            status if status.is_client_error() => Self::Rejected,
            _ => Self::Answered,
        }
    }
}

impl EncodeLabelValue for Verdict {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let text = match self {
            Self::Answered => "answered",
            Self::NoneLeft => "none_left",
            Self::Allowed => "allowed",
            Self::Repaired => "repaired",
            Self::Denied => "denied",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
        };
        encoder.write_str(text)
    }
}

/// Labels of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Request {
    /// Path as registered.
    pub(super) route: String,
    /// How it ended.
    pub(super) verdict: Verdict,
}

/// Labels of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Repaired {
    /// Kind of the object.
    pub(super) kind: &'static str,
}

/// Labels of a call by a scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Call {
    /// `filter` or `prioritize`.
    pub(super) verb: &'static str,
}

/// Seconds: from a tenth of a millisecond, which a call takes, to a scheduler's own time-out.
const SECONDS: [f64; 9] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.05, 0.5, 5.0];

/// Counters and gauges of the routes.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    pub(super) requests: Family<Request, Counter>,
    pub(super) repairs: Family<Repaired, Counter>,
    pub(super) call_seconds: Family<Call, Histogram, fn() -> Histogram>,
    pub(super) refused_nodes: Counter,
    pub(super) hints_dropped: Counter,
    pub(super) snapshot_revision: Gauge,
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            repairs: Family::default(),
            call_seconds: Family::new_with_constructor(histogram as fn() -> Histogram),
            refused_nodes: Counter::default(),
            hints_dropped: Counter::default(),
            snapshot_revision: Gauge::default(),
        };
        registry.register(
            "tenon_requests",
            "Requests answered, by route and verdict",
            metrics.requests.clone(),
        );
        registry.register(
            "tenon_admission_repairs",
            "Legacy or mistaken fields that the defaulting webhook rewrote, by kind",
            metrics.repairs.clone(),
        );
        registry.register(
            "tenon_extender_duration_seconds",
            "Time of our own that a scheduler's call took, by verb",
            metrics.call_seconds.clone(),
        );
        registry.register(
            "tenon_extender_refused_nodes",
            "Nodes refused to schedulers because they are leaving",
            metrics.refused_nodes.clone(),
        );
        registry.register(
            "tenon_hints_dropped",
            "Hints dropped because the queue was full",
            metrics.hints_dropped.clone(),
        );
        registry.register(
            "tenon_snapshot_revision",
            "Revision of the newest picture of the cluster",
            metrics.snapshot_revision.clone(),
        );
        metrics
    }
}
