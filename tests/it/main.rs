//! The one integration test binary: one module per surface.
mod vectors_scheduling;
