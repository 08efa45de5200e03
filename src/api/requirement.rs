//! Placeholder doc for requirement.
