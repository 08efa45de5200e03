//! Placeholder doc for the api room.
