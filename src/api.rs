//! NodePool, NodeClaim and EC2NodeClass: their types, names, rules and CRDs.
//!
//! Imports `units` only. Types mirror the fields of the API one to one; what people may write wrongly stays text in
//! them, so that a bad object can still be read and every mistake told by its path.

pub mod repair;
pub mod requirement;
pub mod taint;
pub mod validate;
