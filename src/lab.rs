//! Placeholder doc for the lab room.
