//! Placeholder doc for the watch room.
