//! Placeholder doc for the actuate room.
