//! Placeholder doc for the cluster room.
