//! From pod templates to pods.

use serde_json::{Value, json};

use crate::lab::api::Object;

/// The pod that an owner's template makes, without a name.
pub(super) fn pod(owner: &Object, template: &Value) -> Value {
    let mut metadata = json!({"ownerReferences": [owner_reference(owner)]});
    for key in ["labels", "annotations"] {
        if template["metadata"][key].is_object() {
            metadata[key] = template["metadata"][key].clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

pub(super) fn owner_reference(owner: &Object) -> Value {
    json!({
        "apiVersion": owner.kind().api_version(),
        "kind": owner.kind().info().kind,
        "name": owner.name(),
        "uid": owner.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// A template's hash, as a label value: decimal digits in letters that make no words.
pub(super) fn hash(template: &Value) -> String {
    const LETTERS: &[u8] = b"bcdfghjklm";
    let text = template.to_string();
    // FNV-1a, 32 bits.
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let digits = hash.to_string();
    let letter = |digit: u8| char::from(LETTERS[usize::from(digit.wrapping_sub(b'0')) % 10]);
    digits.bytes().map(letter).collect()
}
