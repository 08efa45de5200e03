//! Placeholder doc for the scheduling room.
