//! The cloud's own books: calls, instances and cost.

use std::collections::VecDeque;

use jiff::Timestamp;

use super::faults::Verb;

/// Calls kept; older ones are forgotten.
const CALLS_KEPT: usize = 100_000;

/// A call that changes something, at the time it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it arrived.
    pub at: Timestamp,
    /// Launch or terminate.
    pub verb: Verb,
    /// NodeClaim of the instance; empty when the instance is not known.
    pub claim: String,
}

/// What the cloud has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Instances made.
    pub launched: u64,
    /// Instances gone.
    pub terminated: u64,
    /// Instances that are not gone, those on their way out included.
    pub left_over: u64,
    /// USD per hour of the instances that run now; one that terminates costs nothing more.
    pub price_per_hour: f64,
    /// USD up to now.
    pub accrued_cost: f64,
}

/// Counters and calls.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) launched: u64,
    pub(super) terminated: u64,
    /// Cost of instances that run no more, USD.
    pub(super) closed_cost: f64,
    pub(super) calls: VecDeque<Call>,
}

impl Ledger {
    pub(super) fn log(&mut self, at: Timestamp, verb: Verb, claim: &str) {
        if self.calls.len() == CALLS_KEPT {
            self.calls.pop_front();
        }
        self.calls.push_back(Call {
            at,
            verb,
            claim: claim.to_owned(),
        });
    }
}

/// USD for a time at a price per hour.
pub(super) fn cost(price_per_hour: f64, from: Timestamp, to: Timestamp) -> f64 {
    price_per_hour * to.duration_since(from).as_secs_f64().max(0.0) / 3600.0
}
