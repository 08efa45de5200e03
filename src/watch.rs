//! API streams to cluster events, and the one task that owns the cluster state.
//!
//! A watch says that something changed; what is decided is always read again from the [`Snapshot`]. Must never: decide, or write to
//! the API.

mod streams;
mod writer;

pub use streams::run;
pub use writer::Writer;

#[cfg(doc)]
use crate::cluster::Snapshot;
