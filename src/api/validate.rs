//! Placeholder doc for validate.
