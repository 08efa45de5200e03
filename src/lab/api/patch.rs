//! Patches: JSON patch, merge patch, strategic merge, apply.

use serde_json::{Map, Value};

use super::error::ApiError;
use super::kinds::Kind;
use super::object::Object;

/// A patch of an object.
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    /// A merge that merges lists of objects by their keys. Refused for custom resources.
    Strategic(Value),
    /// Server-side apply, without field ownership: it creates or merges, and never removes what an earlier apply set.
    Apply(Value),
}

impl Patch {
    pub(super) fn apply(&self, kind: Kind, old: &Object) -> Result<Value, ApiError> {
        let mut value = old.value().clone();
        match self {
            Patch::Json(patch) => {
                json_patch::patch(&mut value, patch)
                    .map_err(|e| ApiError::new(422, "Invalid", e.to_string()))?;
            }
            Patch::Merge(patch) => json_patch::merge(&mut value, patch),
            Patch::Strategic(_) if kind.info().custom => {
                return Err(ApiError::new(
                    415,
                    "UnsupportedMediaType",
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ));
            }
            // The lists in custom resources' specs are whole values.
            Patch::Apply(patch) if kind.info().custom => json_patch::merge(&mut value, patch),
            Patch::Strategic(patch) | Patch::Apply(patch) => strategic(&mut value, patch),
        }
        if value.is_object() {
            Ok(value)
        } else {
            Err(ApiError::bad_request(
                "the patched object is not a JSON object",
            ))
        }
    }
}

/// How a strategic merge treats the list under a field name.
enum List {
    Replace,
    Set,
    ByKey(&'static str),
}

fn list_kind(field: &str) -> List {
    match field {
        "conditions" | "addresses" => List::ByKey("type"),
        "taints" => List::ByKey("key"),
        "ownerReferences" => List::ByKey("uid"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "schedulingGates" => List::ByKey("name"),
        "volumeMounts" => List::ByKey("mountPath"),
        "topologySpreadConstraints" => List::ByKey("topologyKey"),
        "finalizers" => List::Set,
        _ => List::Replace,
    }
}

fn strategic(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        let mut rest = patch.clone();
        rest.remove("$patch");
        *target = Value::Object(rest);
        return;
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else {
        return;
    };
    for (field, new) in patch {
        if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = new.as_array().cloned().unwrap_or_default();
            if let Some(list) = map.get_mut(list).and_then(Value::as_array_mut) {
                list.retain(|v| !gone.contains(v));
            }
        } else if field.starts_with('$') {
            // Orderings and retained keys do not change what is in the result.
        } else if new.is_null() {
            map.remove(field);
        } else if let Some(items) = new.as_array() {
            let slot = map.entry(field.clone()).or_insert(Value::Null);
            merge_list(slot, items, list_kind(field));
        } else {
            strategic(map.entry(field.clone()).or_insert(Value::Null), new);
        }
    }
}

fn merge_list(target: &mut Value, items: &[Value], kind: List) {
    let replaced = items
        .iter()
        .any(|i| i.get("$patch").and_then(Value::as_str) == Some("replace"));
    let kind = if replaced { List::Replace } else { kind };
    let old = target.as_array().cloned().unwrap_or_default();
    let list = match kind {
        List::Replace => items
            .iter()
            .filter(|i| i.get("$patch").is_none())
            .cloned()
            .collect(),
        List::Set => {
            let mut list = old;
            for item in items {
                if !list.contains(item) {
                    list.push(item.clone());
                }
            }
            list
        }
        List::ByKey(key) => {
            let mut list = old;
            for item in items {
                let at = list.iter().position(|o| o[key] == item[key]);
                let delete = item.get("$patch").and_then(Value::as_str) == Some("delete");
                match (at, delete) {
                    (Some(at), true) => {
                        list.remove(at);
                    }
                    (Some(at), false) => strategic(&mut list[at], item),
                    (None, true) => {}
                    (None, false) => {
                        let mut new = Value::Null;
                        strategic(&mut new, item);
                        list.push(new);
                    }
                }
            }
            list
        }
    };
    *target = Value::Array(list);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(mut target: Value, patch: Value) -> Value {
        strategic(&mut target, &patch);
        target
    }

    #[test]
    fn lists_of_objects_merge_by_their_key() {
        let node = json!({
            "metadata": {"finalizers": ["a", "b"]},
            "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}, {"key": "y", "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Boot"}]},
        });
        let patch = json!({
            "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
            "spec": {"taints": [{"key": "x", "$patch": "delete"}, {"key": "z", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let expected = json!({
            "metadata": {"finalizers": ["b", "c"]},
            "spec": {"taints": [{"key": "y", "effect": "NoExecute"}, {"key": "z", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Boot"}]},
        });
        assert_eq!(merged(node, patch), expected);
    }

    #[test]
    fn plain_lists_are_replaced_and_nulls_remove() {
        let old = json!({"spec": {"args": ["a"], "gone": 1, "map": {"a": 1}}});
        let patch = json!({"spec": {"args": ["b"], "gone": null, "map": {"b": 2}}});
        let expected = json!({"spec": {"args": ["b"], "map": {"a": 1, "b": 2}}});
        assert_eq!(merged(old, patch), expected);
    }
}
