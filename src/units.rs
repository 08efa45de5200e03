//! Quantities, resource amounts, durations and cron schedules, read and printed exactly as Kubernetes and Go do.
//!
//! The bottom room: it imports nothing of ours, and nothing here reads a clock. Amounts are parsed once at the
//! border into [`Resources`]; everything that decides works on integers.

pub mod cron;
pub mod duration;
mod quantity;
mod resources;

pub use cron::Schedule;
pub use duration::{GoDuration, NillableDuration};
pub use quantity::{Format, ParseQuantityError, QUANTITY_PATTERN, Quantity};
pub use resources::{CPU, EPHEMERAL_STORAGE, MEMORY, NODES, PODS, Resources, Rounding};
