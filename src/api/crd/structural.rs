//! Defaulting and pruning by a structural schema, as the API server does them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

/// Fills in the schema's defaults. A null where the schema has a default and allows no null counts as absent.
pub fn apply_defaults(crd: &CustomResourceDefinition, object: &mut Value) {
    if let Some(schema) = schema_of(crd, object) {
        fill(schema, object);
    }
}

/// Removes the fields that the schema does not know and returns their paths.
pub fn prune(crd: &CustomResourceDefinition, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let (Some(schema), Value::Object(members)) = (schema_of(crd, object).cloned(), object) {
        // The API server owns these, whatever the schema says.
        let owned: Vec<(String, Value)> = ["apiVersion", "kind", "metadata"]
            .iter()
            .filter_map(|key| members.remove_entry(*key))
            .collect();
        cut_members(&schema, members, "", &mut unknown);
        members.extend(owned);
    }
    unknown
}

/// The schema of the object's version, or of the first if its version is not among them.
fn schema_of<'a>(crd: &'a CustomResourceDefinition, object: &Value) -> Option<&'a JSONSchemaProps> {
    let version = object
        .get("apiVersion")
        .and_then(Value::as_str)
        .and_then(|v| v.rsplit('/').next());
    let versions = &crd.spec.versions;
    let found = versions
        .iter()
        .find(|v| Some(v.name.as_str()) == version)
        .or(versions.first())?;
    found.schema.as_ref()?.open_api_v3_schema.as_ref()
}

fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(items) => Some(items),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

fn map_values(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.additional_properties.as_ref()? {
        JSONSchemaPropsOrBool::Schema(values) => Some(values),
        JSONSchemaPropsOrBool::Bool(_) => None,
    }
}

fn fill(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, property) in schema.properties.iter().flatten() {
                let Some(default) = &property.default else {
                    continue;
                };
                let absent = match members.get(name) {
                    None => true,
                    Some(Value::Null) => property.nullable != Some(true),
                    Some(_) => false,
                };
                if absent {
                    members.insert(name.clone(), default.0.clone());
                }
            }
            for (name, member) in members.iter_mut() {
                let property = schema
                    .properties
                    .as_ref()
                    .and_then(|properties| properties.get(name));
                if let Some(property) = property.or(map_values(schema)) {
                    fill(property, member);
                }
            }
        }
        Value::Array(entries) => {
            if let Some(items) = items(schema) {
                entries.iter_mut().for_each(|entry| fill(items, entry));
            }
        }
        _ => {}
    }
}

fn cut(schema: &JSONSchemaProps, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(members) => cut_members(schema, members, path, unknown),
        Value::Array(entries) => {
            if let Some(items) = items(schema) {
                for (index, entry) in entries.iter_mut().enumerate() {
                    cut(items, entry, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

fn cut_members(
    schema: &JSONSchemaProps,
    members: &mut Map<String, Value>,
    path: &str,
    unknown: &mut Vec<String>,
) {
    let open = schema.x_kubernetes_preserve_unknown_fields == Some(true)
        || matches!(
            schema.additional_properties,
            Some(JSONSchemaPropsOrBool::Bool(true))
        );
    members.retain(|name, member| {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let property = schema
            .properties
            .as_ref()
            .and_then(|properties| properties.get(name))
            .or(map_values(schema));
        match property {
            Some(property) => {
                cut(property, member, &path, unknown);
                true
            }
            None if open => true,
            None => {
                unknown.push(path);
                false
            }
        }
    });
}
