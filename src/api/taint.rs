//! Placeholder doc for taint.
