//! Placeholder doc for the config room.
