//! Quantities, resource amounts, durations and cron schedules, read and printed exactly as Kubernetes and Go do.
//!
//! The bottom room. Amounts are parsed once at the border into [`Resources`]; everything that decides works on integers. Must never:
//! import anything of ours, read a clock, or round in silence.

pub mod cron;
pub mod duration;
mod quantity;
mod resources;

pub use cron::Schedule;
pub use duration::{GoDuration, NillableDuration};
pub use quantity::{Format, ParseQuantityError, QUANTITY_PATTERN, Quantity};
pub use resources::{CPU, EPHEMERAL_STORAGE, MEMORY, NODES, PODS, Resources, Rounding};
