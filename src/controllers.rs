//! Placeholder doc for the controllers room.
