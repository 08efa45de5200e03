//! The one integration test binary: one module per surface.
mod cluster;
mod lifecycle;
mod product;
mod serve;
mod support;
mod tidy;
mod vectors_scheduling;
