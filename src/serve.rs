//! Placeholder doc for the serve room.
