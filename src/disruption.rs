//! Placeholder doc for the disruption room.
