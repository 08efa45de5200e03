//! Placeholder doc for the plan room.
