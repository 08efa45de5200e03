//! Placeholder doc for the cloud room.
