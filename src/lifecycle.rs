//! Placeholder doc for the lifecycle room.
