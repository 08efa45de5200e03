//! Stored objects and small readers of JSON.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::ApiError;
use super::kinds::Kind;

/// One version of one object: shared, never changed. Reads as its JSON through `Deref`.
#[derive(Clone)]
pub struct Object(Arc<Stored>);

struct Stored {
    kind: Kind,
    value: Value,
    version: u64,
    bytes: OnceLock<Bytes>,
}

impl Object {
    pub(super) fn new(kind: Kind, value: Value, version: u64) -> Self {
        Self(Arc::new(Stored {
            kind,
            value,
            version,
            bytes: OnceLock::new(),
        }))
    }

    pub(super) fn from_bytes(kind: Kind, bytes: &Bytes, version: u64) -> Self {
        let value = serde_json::from_slice(bytes).unwrap_or_default();
        let object = Self::new(kind, value, version);
        let _ = object.0.bytes.set(bytes.clone());
        object
    }

    /// The object's type.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The object's JSON.
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// `metadata.resourceVersion` as a number.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// The object's JSON text, made once per version.
    pub fn bytes(&self) -> Bytes {
        let make = || Bytes::from(self.0.value.to_string());
        self.0.bytes.get_or_init(make).clone()
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        text(&self.0.value, &["metadata", "name"])
    }

    /// `metadata.namespace`, empty for cluster-wide objects.
    pub fn namespace(&self) -> &str {
        text(&self.0.value, &["metadata", "namespace"])
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        text(&self.0.value, &["metadata", "uid"])
    }

    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.0.value["metadata"]["labels"][key].as_str()
    }

    /// An annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.0.value["metadata"]["annotations"][key].as_str()
    }

    /// Whether deletion has been asked for.
    pub fn is_deleting(&self) -> bool {
        self.0.value["metadata"]["deletionTimestamp"].is_string()
    }

    /// The status of a condition, such as `True`.
    pub fn condition(&self, r#type: &str) -> Option<&str> {
        condition(&self.0.value, r#type)?["status"].as_str()
    }

    /// The UID of the owner that controls the object.
    pub fn controller_uid(&self) -> Option<&str> {
        controller(&self.0.value)?["uid"].as_str()
    }

    /// The object as a typed value.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        T::deserialize(&self.0.value).map_err(|e| {
            ApiError::internal(format!("{} {}: {e}", self.kind().resource(), self.name()))
        })
    }
}

impl Deref for Object {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0.value
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.value.fmt(f)
    }
}

/// Namespace (empty for cluster-wide types) and name: the order in which lists come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// `metadata.namespace` or empty.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl Key {
    /// A key from its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(super) fn of(value: &Value) -> Self {
        Self::new(
            text(value, &["metadata", "namespace"]),
            text(value, &["metadata", "name"]),
        )
    }
}

/// The text at a path of keys, empty when absent.
pub(super) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    let mut at = value;
    for key in path {
        at = &at[*key];
    }
    at.as_str().unwrap_or_default()
}

/// The condition of that type.
pub(super) fn condition<'a>(value: &'a Value, r#type: &str) -> Option<&'a Value> {
    let conditions = value["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == r#type)
}

/// The owner reference marked as controller.
pub(super) fn controller(value: &Value) -> Option<&Value> {
    let owners = value["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|o| o["controller"] == true)
}

/// UIDs of all owners.
pub(super) fn owner_uids(value: &Value) -> impl Iterator<Item = &str> {
    let owners = value["metadata"]["ownerReferences"].as_array();
    owners
        .into_iter()
        .flatten()
        .filter_map(|owner| owner["uid"].as_str())
}

/// Sets or removes a key of `metadata`.
pub(super) fn set_metadata(value: &mut Value, key: &str, to: Option<Value>) {
    let metadata = object_at(value, "metadata");
    match to {
        Some(to) => {
            metadata.insert(key.to_owned(), to);
        }
        None => {
            metadata.remove(key);
        }
    }
}

/// The map under a key, made when absent or of another type. `value` itself becomes a map if it is none.
pub(super) fn object_at<'a>(
    value: &'a mut Value,
    key: &str,
) -> &'a mut serde_json::Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(serde_json::Map::new());
    }
    let slot = &mut value[key];
    if !slot.is_object() {
        *slot = Value::Object(serde_json::Map::new());
    }
    slot.as_object_mut().expect("made a map just above")
}

/// A seeded source of identifiers (splitmix64).
#[derive(Debug)]
pub(super) struct Seeded(u64);

impl Seeded {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A version 4 UUID.
    pub(super) fn uid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | ((b >> 48) & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }

    /// The five letters that the API server puts after a `generateName`.
    pub(super) fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5)
            .map(|_| char::from(LETTERS[(self.next() % LETTERS.len() as u64) as usize]))
            .collect()
    }
}
