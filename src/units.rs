//! Placeholder doc for the units room.
