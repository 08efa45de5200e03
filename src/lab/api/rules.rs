//! What every write goes through: addresses, names, preconditions, fields that only the server sets.

use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::kinds::Kind;
use super::object::{Object, object_at, set_metadata, text};

/// Fills in, or checks, `apiVersion`, `kind` and `metadata.namespace`.
pub(super) fn address(kind: Kind, namespace: &str, value: &mut Value) -> Result<(), ApiError> {
    let info = kind.info();
    if !value.is_object() {
        return Err(ApiError::bad_request("the object is not a JSON object"));
    }
    for (key, is) in [
        ("apiVersion", kind.api_version()),
        ("kind", info.kind.to_owned()),
    ] {
        let given = text(value, &[key]);
        if !given.is_empty() && given != is {
            return Err(ApiError::bad_request(format!(
                "the {key} in the data ({given}) does not match the expected {key} ({is})"
            )));
        }
        value[key] = Value::String(is);
    }
    object_at(value, "metadata");
    if !info.namespaced {
        set_metadata(value, "namespace", None);
        return Ok(());
    }
    let given = text(value, &["metadata", "namespace"]);
    if !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    set_metadata(value, "namespace", Some(json!(namespace)));
    Ok(())
}

/// Names are DNS subdomains (RFC 1123).
pub(super) fn check_name(kind: Kind, name: &str) -> Result<(), ApiError> {
    if name.is_empty() {
        let problem = "metadata.name: Required value: name or generateName is required";
        return Err(ApiError::invalid(kind, name, &[problem.to_owned()]));
    }
    let alphanumeric =
        |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let fine = name.len() <= 253
        && name.split('.').all(|part| {
            alphanumeric(part.chars().next())
                && alphanumeric(part.chars().last())
                && part
                    .chars()
                    .all(|c| c == '-' || c.is_ascii_lowercase() || c.is_ascii_digit())
        });
    if fine {
        return Ok(());
    }
    let problem = format!(
        "metadata.name: Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case \
         alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
    );
    Err(ApiError::invalid(kind, name, &[problem]))
}

pub(super) fn check_preconditions(old: &Object, value: &Value) -> Result<(), ApiError> {
    let (kind, name) = (old.kind(), old.name());
    let given = text(value, &["metadata", "name"]);
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let uid = text(value, &["metadata", "uid"]);
    if !uid.is_empty() && uid != old.uid() {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            old.uid()
        );
        return Err(ApiError::conflict(kind, name, why));
    }
    let version = text(value, &["metadata", "resourceVersion"]);
    if !version.is_empty() && version != text(old, &["metadata", "resourceVersion"]) {
        return Err(ApiError::modified(kind, name));
    }
    Ok(())
}

/// Puts back what a write to the main resource cannot change.
pub(super) fn keep_system_fields(old: &Object, value: &mut Value) {
    for key in [
        "uid",
        "name",
        "namespace",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        let was = &old["metadata"][key];
        set_metadata(value, key, (!was.is_null()).then(|| was.clone()));
    }
    set_metadata(value, "managedFields", None);
    value["apiVersion"] = old["apiVersion"].clone();
    value["kind"] = old["kind"].clone();
    let keep_deleted = ["labels", "annotations", "finalizers", "ownerReferences"];
    if let Some(metadata) = value["metadata"].as_object_mut() {
        for key in keep_deleted {
            let empty = metadata.get(key).is_some_and(|v| {
                v.is_null()
                    || v.as_array().is_some_and(Vec::is_empty)
                    || v.as_object().is_some_and(Map::is_empty)
            });
            if empty {
                metadata.remove(key);
            }
        }
    }
    if old.kind().info().status {
        set_status(value, old["status"].clone());
    }
}

pub(super) fn set_status(value: &mut Value, status: Value) {
    if let Some(map) = value.as_object_mut() {
        if status.is_null() {
            map.remove("status");
        } else {
            map.insert("status".to_owned(), status);
        }
    }
}

/// Whether anything but metadata and status differs.
pub(super) fn differs(old: &Value, new: &Value) -> bool {
    let counted = |(key, _): &(&String, &Value)| *key != "metadata" && *key != "status";
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return true;
    };
    let count = |map: &Map<String, Value>| map.iter().filter(counted).count();
    count(old) != count(new)
        || old
            .iter()
            .filter(counted)
            .any(|(k, v)| new.get(k) != Some(v))
}

pub(super) fn check_finalizers(old: &Object, value: &Value) -> Result<(), ApiError> {
    if !old.is_deleting() {
        return Ok(());
    }
    let was = old["metadata"]["finalizers"].as_array();
    let new = value["metadata"]["finalizers"].as_array();
    let added: Vec<&Value> = new
        .into_iter()
        .flatten()
        .filter(|f| !was.is_some_and(|was| was.contains(f)))
        .collect();
    if added.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers {added:?}"
    );
    Err(ApiError::invalid(old.kind(), old.name(), &[problem]))
}

/// Whether a deleting object has nothing left that keeps it.
pub(super) fn is_finished(value: &Value) -> bool {
    let metadata = &value["metadata"];
    metadata["deletionTimestamp"].is_string()
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
}
