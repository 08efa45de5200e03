//! Placeholder doc for the telemetry room.
