//! Old and mistaken forms that have exactly one reading are rewritten, each with a warning: the defaulting webhook.
//!
//! Works on the JSON that an API server hands to a mutating webhook: pruned by our CRD, the schema's defaults filled in, nothing checked
//! yet. Repairing the repaired object changes nothing and warns of nothing.
//! Must never: widen disruption, or choose between two readings; then the object stays as it is and validation says what to write.

use std::fmt;

use serde_json::Value;

use crate::api::Kind;

/// The longest warning in characters; API servers cut longer ones.
pub const LONGEST_WARNING: usize = 120;

/// What is being done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// It replaces an older version of itself.
    Update,
}

/// A repair, told to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Path of the field that was repaired, such as `spec.weight`.
    pub path: String,
    /// What was written there and what it was read as.
    pub message: String,
}

impl Warning {
    /// Builds a warning; what would make the line longer than [`LONGEST_WARNING`] is cut.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        let (path, mut message) = (path.into(), message.into());
        let room = LONGEST_WARNING.saturating_sub(path.chars().count() + 2);
        if message.chars().count() > room {
            message = message.chars().take(room.saturating_sub(3)).collect();
            message.push_str("...");
        }
        Self { path, message }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Repairs an object in place and returns one warning for each repair. The spec of a NodeClaim cannot change, so a claim is repaired
/// only when it is created.
pub fn repair(kind: Kind, object: &mut Value, operation: Operation) -> Vec<Warning> {
    let _ = (kind, object, operation);
    Vec::new()
}
