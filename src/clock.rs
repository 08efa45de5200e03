//! Placeholder doc for the clock room.
