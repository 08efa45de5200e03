//! Placeholder doc for repair.
