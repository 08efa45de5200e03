//! Defaulting and pruning by a structural schema, as the API server does them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

/// Fills in the schema's defaults. A null where the schema allows none counts as absent.
pub fn apply_defaults(crd: &CustomResourceDefinition, object: &mut Value) {
    if let Some(schema) = schema_of(crd, object) {
        drop_nulls(schema, object);
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

/// The schema of a member of an object: its own, or that of a map's values.
fn member<'a>(schema: &'a JSONSchemaProps, name: &str) -> Option<&'a JSONSchemaProps> {
    schema
        .properties
        .as_ref()
        .and_then(|properties| properties.get(name))
        .or(map_values(schema))
}

fn drop_nulls(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(members) => members.retain(|name, value| match member(schema, name) {
            Some(schema) if value.is_null() => schema.nullable == Some(true),
            Some(schema) => {
                drop_nulls(schema, value);
                true
            }
            None => true,
        }),
        Value::Array(entries) => {
            if let Some(items) = items(schema) {
                entries
                    .iter_mut()
                    .for_each(|entry| drop_nulls(items, entry));
            }
        }
        _ => {}
    }
}

fn fill(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, property) in schema.properties.iter().flatten() {
                let Some(default) = &property.default else {
                    continue;
                };
                if !members.contains_key(name) {
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
    members.retain(|name, value| {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match member(schema, name) {
            Some(schema) => {
                cut(schema, value, &path, unknown);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::all;
    use super::*;
    use crate::api::{EC2NodeClass, NodeClaim, NodePool};

    fn crd(kind: &str) -> CustomResourceDefinition {
        all()
            .into_iter()
            .find(|crd| crd.spec.names.kind == kind)
            .unwrap()
    }

    fn pool() -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": { "name": "default", "labels": { "a": "b" } },
            "spec": { "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                "requirements": [],
            } } },
        })
    }

    #[test]
    fn defaults_of_a_pool() {
        let mut object = pool();
        apply_defaults(&crd("NodePool"), &mut object);
        assert_eq!(
            object["spec"]["disruption"],
            json!({
                "budgets": [{ "nodes": "10%" }],
                "consolidateAfter": "0s",
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
            })
        );
        assert_eq!(object["spec"]["template"]["spec"]["expireAfter"], "720h");
        assert_eq!(object.get("status"), None);
    }

    #[test]
    fn what_is_written_stays() {
        let mut object = pool();
        object["spec"]["disruption"] =
            json!({ "budgets": [], "consolidateAfter": null, "expireAfter": null });
        object["spec"]["limits"] = json!({ "cpu": null, "memory": "1Gi" });
        apply_defaults(&crd("NodePool"), &mut object);
        assert_eq!(
            object["spec"]["disruption"],
            json!({ "budgets": [], "consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized" })
        );
        assert_eq!(object["spec"]["limits"], json!({ "memory": "1Gi" }));

        let mut class = json!({ "spec": { "metadataOptions": { "httpTokens": "optional" } } });
        apply_defaults(&crd("EC2NodeClass"), &mut class);
        assert_eq!(
            class["spec"]["metadataOptions"],
            json!({
                "httpEndpoint": "enabled",
                "httpProtocolIPv6": "disabled",
                "httpPutResponseHopLimit": 1,
                "httpTokens": "optional",
            })
        );
    }

    /// The types carry the schema's defaults, so that an object from a file reads as one from the API server.
    #[test]
    fn types_and_schemas_agree_on_defaults() {
        let mut object = pool();
        let plain: NodePool = serde_json::from_value(object.clone()).unwrap();
        apply_defaults(&crd("NodePool"), &mut object);
        assert_eq!(plain, serde_json::from_value::<NodePool>(object).unwrap());

        let mut object = json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {}, "spec": {} });
        let plain: NodeClaim = serde_json::from_value(object.clone()).unwrap();
        apply_defaults(&crd("NodeClaim"), &mut object);
        assert_eq!(plain, serde_json::from_value::<NodeClaim>(object).unwrap());
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        let mut object = pool();
        let mut expected = object.clone();
        object["extra"] = json!(1);
        object["spec"]["template"]["metadata"] = json!({ "name": "x", "labels": { "team": "a" } });
        object["spec"]["template"]["spec"]["requirements"] =
            json!([{ "key": "a", "operator": "Exists", "valeus": [] }]);
        object["spec"]["template"]["spec"]["kubelet"] = json!({ "maxPods": { "any": ["thing"] } });
        let mut unknown = prune(&crd("NodePool"), &mut object);
        unknown.sort();
        assert_eq!(
            unknown,
            [
                "extra",
                "spec.template.metadata.name",
                "spec.template.spec.requirements[0].valeus"
            ]
        );
        expected["spec"]["template"]["metadata"] = json!({ "labels": { "team": "a" } });
        expected["spec"]["template"]["spec"]["requirements"] =
            json!([{ "key": "a", "operator": "Exists" }]);
        expected["spec"]["template"]["spec"]["kubelet"] =
            json!({ "maxPods": { "any": ["thing"] } });
        assert_eq!(object, expected);
    }

    /// What a type writes must be known to its schema, else the API server would drop it.
    #[test]
    fn every_written_field_is_known() {
        let texts = [
            include_str!("../../../tests/data/every_field_nodepool.yaml"),
            include_str!("../../../tests/data/every_field_nodeclaim.yaml"),
            include_str!("../../../tests/data/every_field_ec2nodeclass.yaml"),
        ];
        for text in texts {
            let written: Value = serde_saphyr::from_str(text).unwrap();
            let kind = written["kind"].as_str().unwrap().to_owned();
            let read = match kind.as_str() {
                "NodePool" => serde_json::to_value(
                    serde_json::from_value::<NodePool>(written.clone()).unwrap(),
                ),
                "NodeClaim" => serde_json::to_value(
                    serde_json::from_value::<NodeClaim>(written.clone()).unwrap(),
                ),
                _ => serde_json::to_value(
                    serde_json::from_value::<EC2NodeClass>(written.clone()).unwrap(),
                ),
            };
            assert_eq!(
                read.unwrap(),
                written,
                "the type drops or changes a field of {kind}"
            );
            assert_eq!(
                prune(&crd(&kind), &mut written.clone()),
                Vec::<String>::new()
            );
        }
    }
}
