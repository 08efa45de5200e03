//! Changes to a generated schema, by the path of the field.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

/// A CRD whose schema is being completed.
///
/// A path is the field's path as users write it, `[]` standing for each entry of a list and `{}` for each value of a
/// map; the empty path is the object itself.
pub(super) struct Edit {
    crd: CustomResourceDefinition,
    schema: Value,
}

impl Edit {
    /// Takes the generated schema, without its defaults, its nullable marks, its titles and its order of `required`.
    pub(super) fn new(mut crd: CustomResourceDefinition) -> Self {
        let version = crd
            .spec
            .versions
            .first_mut()
            .expect("a derived CRD has one version");
        let schema = version
            .schema
            .take()
            .and_then(|schema| schema.open_api_v3_schema);
        let mut schema = serde_json::to_value(schema).expect("a schema is JSON");
        clean(&mut schema);
        Self { crd, schema }
    }

    /// Sets keywords of the field's schema.
    pub(super) fn set(&mut self, path: &str, keywords: Value) {
        let Value::Object(keywords) = keywords else {
            unreachable!("keywords come as an object")
        };
        self.at(path).extend(keywords);
    }

    /// Makes members of the object mandatory.
    pub(super) fn require(&mut self, path: &str, members: &[&str]) {
        self.set(path, json!({ "required": members }));
    }

    /// Gives the field a default.
    pub(super) fn default(&mut self, path: &str, value: Value) {
        self.set(path, json!({ "default": value }));
    }

    /// Adds a CEL rule, with the message that is shown when it is broken.
    pub(super) fn rule(&mut self, path: &str, rule: &str, message: &str) {
        let rules = self
            .at(path)
            .entry("x-kubernetes-validations")
            .or_insert_with(|| json!([]));
        rules
            .as_array_mut()
            .expect("rules are a list")
            .push(json!({ "rule": rule, "message": message }));
    }

    /// Makes the field an object that keeps whatever it holds.
    pub(super) fn open(&mut self, path: &str) {
        let schema = self.at(path);
        schema.remove("additionalProperties");
        schema.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    }

    /// Takes a member out of the object.
    pub(super) fn remove(&mut self, path: &str, member: &str) {
        if let Some(properties) = self
            .at(path)
            .get_mut("properties")
            .and_then(Value::as_object_mut)
        {
            properties.remove(member);
        }
    }

    /// The completed CRD.
    pub(super) fn finish(mut self) -> CustomResourceDefinition {
        let schema =
            serde_json::from_value(self.schema).expect("the edits are keywords of a schema");
        let version = self
            .crd
            .spec
            .versions
            .first_mut()
            .expect("a derived CRD has one version");
        version.schema.get_or_insert_default().open_api_v3_schema = Some(schema);
        self.crd
    }

    fn at(&mut self, path: &str) -> &mut Map<String, Value> {
        let mut schema = &mut self.schema;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let field = step.trim_end_matches(['[', ']', '{', '}']);
            schema = member(schema, &["properties", field], path);
            for inner in step.as_bytes()[field.len()..].chunks(2) {
                schema = member(
                    schema,
                    &[if inner == b"[]" {
                        "items"
                    } else {
                        "additionalProperties"
                    }],
                    path,
                );
            }
        }
        schema.as_object_mut().expect("a schema is an object")
    }
}

fn member<'a>(mut schema: &'a mut Value, keys: &[&str], path: &str) -> &'a mut Value {
    for key in keys {
        schema = schema
            .get_mut(key)
            .unwrap_or_else(|| unreachable!("the schema has no {path}: {key} is missing"));
    }
    schema
}

fn clean(schema: &mut Value) {
    match schema {
        Value::Object(keywords) => {
            for keyword in ["nullable", "default", "title", "required"] {
                // A field may bear the name of a keyword; then its value is a schema.
                if keywords.get(keyword).is_some_and(|value| !is_schema(value)) {
                    keywords.remove(keyword);
                }
            }
            // The generator drops the types of the alternatives.
            if keywords.contains_key("x-kubernetes-int-or-string") {
                keywords.insert(
                    "anyOf".into(),
                    json!([{ "type": "integer" }, { "type": "string" }]),
                );
            }
            keywords.values_mut().for_each(clean);
        }
        Value::Array(entries) => entries.iter_mut().for_each(clean),
        _ => {}
    }
}

fn is_schema(value: &Value) -> bool {
    value.get("type").is_some() || value.get("x-kubernetes-int-or-string").is_some()
}
