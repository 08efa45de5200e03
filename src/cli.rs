//! Placeholder doc for the cli room.
