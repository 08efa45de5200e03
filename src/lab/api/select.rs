//! Label and field selectors.

use serde_json::Value;

use super::error::ApiError;
use super::object::text;

/// What a list or watch is limited to. The default selects everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selectors {
    /// Terms over `metadata.labels`, all of which must hold.
    pub labels: LabelSelector,
    /// Terms over fields, all of which must hold.
    pub fields: Vec<FieldTerm>,
}

/// A field that must equal, or must not equal, a text.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldTerm {
    path: Vec<String>,
    equal: bool,
    value: String,
}

/// A label selector.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LabelSelector {
    terms: Vec<LabelTerm>,
    nothing: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct LabelTerm {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl Selectors {
    /// Selectors from the texts of `labelSelector` and `fieldSelector`; an empty text selects everything.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, ApiError> {
        Ok(Self {
            labels: LabelSelector::parse(labels)?,
            fields: parse_fields(fields)?,
        })
    }

    /// Pods bound to a node.
    pub fn on_node(node: &str) -> Self {
        Self {
            labels: LabelSelector::default(),
            fields: vec![FieldTerm {
                path: vec!["spec".to_owned(), "nodeName".to_owned()],
                equal: true,
                value: node.to_owned(),
            }],
        }
    }

    /// Objects that a label selector object (`matchLabels`, `matchExpressions`) selects.
    pub fn by_labels(labels: LabelSelector) -> Self {
        Self {
            labels,
            fields: Vec::new(),
        }
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.fields.is_empty() && self.labels.is_everything()
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        self.fields.iter().all(|f| f.matches(object))
            && self.labels.matches(&object["metadata"]["labels"])
    }

    pub(super) fn node(&self) -> Option<&str> {
        self.fields
            .iter()
            .find(|f| f.equal && f.path == ["spec", "nodeName"])
            .map(|f| f.value.as_str())
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.fields
            .iter()
            .find(|f| f.equal && f.path == ["metadata", "name"])
            .map(|f| f.value.as_str())
    }
}

impl FieldTerm {
    fn matches(&self, object: &Value) -> bool {
        let mut at = object;
        for key in &self.path {
            at = &at[key.as_str()];
        }
        let is = match at {
            Value::String(s) => s == &self.value,
            Value::Null => self.value.is_empty(),
            Value::Bool(b) => {
                let text = if *b { "true" } else { "false" };
                text == self.value
            }
            _ => false,
        };
        is == self.equal
    }
}

fn parse_fields(text: &str) -> Result<Vec<FieldTerm>, ApiError> {
    /// The fields that an API server can select on for the types served here.
    const KNOWN: &[&str] = &[
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "spec.schedulerName",
        "spec.restartPolicy",
        "spec.unschedulable",
        "status.phase",
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
    ];
    let mut terms = Vec::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (path, equal, value) = if let Some((path, value)) = part.split_once("!=") {
            (path, false, value)
        } else if let Some((path, value)) = part.split_once("==") {
            (path, true, value)
        } else if let Some((path, value)) = part.split_once('=') {
            (path, true, value)
        } else {
            return Err(ApiError::bad_request(format!(
                "invalid field selector {part:?}: no operator"
            )));
        };
        let path = path.trim();
        if !KNOWN.contains(&path) {
            return Err(ApiError::bad_request(format!(
                "field label not supported: {path}"
            )));
        }
        terms.push(FieldTerm {
            path: path.split('.').map(str::to_owned).collect(),
            equal,
            value: value.trim().to_owned(),
        });
    }
    Ok(terms)
}

impl LabelSelector {
    /// A selector from the text of `labelSelector`.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for part in split_outside_brackets(text) {
            let part = part.trim();
            if !part.is_empty() {
                let bad =
                    || ApiError::bad_request(format!("unable to parse requirement: {part:?}"));
                terms.push(LabelTerm::parse(part).ok_or_else(bad)?);
            }
        }
        Ok(Self {
            terms,
            nothing: false,
        })
    }

    /// A selector from an object with `matchLabels` and `matchExpressions`. Null selects nothing, `{}` everything;
    /// an unknown operator selects nothing.
    pub fn from_value(selector: &Value) -> Self {
        let nothing = Self {
            terms: Vec::new(),
            nothing: true,
        };
        if !selector.is_object() {
            return nothing;
        }
        let mut terms = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            terms.push(LabelTerm {
                key: key.clone(),
                operator: Operator::In,
                values: vec![value.as_str().unwrap_or_default().to_owned()],
            });
        }
        for expression in selector["matchExpressions"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let operator = match text_of(expression, "operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return nothing,
            };
            let values = expression["values"].as_array();
            terms.push(LabelTerm {
                key: text_of(expression, "key").to_owned(),
                operator,
                values: values
                    .into_iter()
                    .flatten()
                    .filter_map(|v| v.as_str().map(str::to_owned))
                    .collect(),
            });
        }
        Self {
            terms,
            nothing: false,
        }
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty() && !self.nothing
    }

    /// Whether a `metadata.labels` map is selected.
    pub fn matches(&self, labels: &Value) -> bool {
        !self.nothing
            && self
                .terms
                .iter()
                .all(|term| term.matches(labels[term.key.as_str()].as_str()))
    }
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    text(value, &[key])
}

impl LabelTerm {
    fn parse(part: &str) -> Option<Self> {
        let term = |key: &str, operator, values: Vec<&str>| LabelTerm {
            key: key.trim().to_owned(),
            operator,
            values: values.into_iter().map(|v| v.trim().to_owned()).collect(),
        };
        if let Some((head, rest)) = part.split_once('(') {
            let values: Vec<&str> = rest.strip_suffix(')')?.split(',').collect();
            let mut words = head.split_whitespace();
            let (key, word) = (words.next()?, words.next()?);
            let operator = match word {
                "in" => Operator::In,
                "notin" => Operator::NotIn,
                _ => return None,
            };
            return words.next().is_none().then(|| term(key, operator, values));
        }
        let parsed = if let Some((key, value)) = part.split_once("!=") {
            term(key, Operator::NotIn, vec![value])
        } else if let Some((key, value)) = part.split_once("==") {
            term(key, Operator::In, vec![value])
        } else if let Some((key, value)) = part.split_once('=') {
            term(key, Operator::In, vec![value])
        } else if let Some((key, value)) = part.split_once('>') {
            term(key, Operator::Gt, vec![value])
        } else if let Some((key, value)) = part.split_once('<') {
            term(key, Operator::Lt, vec![value])
        } else if let Some(key) = part.strip_prefix('!') {
            term(key, Operator::DoesNotExist, Vec::new())
        } else {
            term(part, Operator::Exists, Vec::new())
        };
        (!parsed.key.is_empty() && !parsed.key.contains(char::is_whitespace)).then_some(parsed)
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let number = |text: Option<&str>| text.and_then(|t| t.parse::<i64>().ok());
        let bound = || number(self.values.first().map(String::as_str));
        let in_values = || label.is_some_and(|l| self.values.iter().any(|v| v == l));
        match self.operator {
            Operator::In => in_values(),
            Operator::NotIn => !in_values(),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::Gt => matches!((number(label), bound()), (Some(a), Some(b)) if a > b),
            Operator::Lt => matches!((number(label), bound()), (Some(a), Some(b)) if a < b),
        }
    }
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0usize, 0usize);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_texts_select_as_in_the_api_reference() {
        let labels = json!({"app": "web", "tier": "1"});
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=1", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (api, web)", true),
            ("app in (api),tier=1", false),
            ("app notin (api)", true),
            ("other notin (api)", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("tier>0", true),
            ("tier<1", false),
        ] {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.matches(&labels), expected, "{text}");
        }
        assert!(LabelSelector::parse("app like (x)").is_err());
        assert!(LabelSelector::parse("a b=c").is_err());
    }

    #[test]
    fn a_null_selector_selects_nothing_and_an_empty_one_everything() {
        let labels = json!({"app": "web"});
        assert!(!LabelSelector::from_value(&Value::Null).matches(&labels));
        assert!(LabelSelector::from_value(&json!({})).matches(&labels));
        let expressions =
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]});
        assert!(!LabelSelector::from_value(&expressions).matches(&labels));
    }

    #[test]
    fn field_texts_select_by_value_and_refuse_unknown_fields() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}});
        let selected = |text| Selectors::parse("", text).unwrap().matches(&pod);
        assert!(selected("spec.nodeName=n1,metadata.name=a"));
        assert!(!selected("spec.nodeName="));
        assert!(selected("status.phase!=Running"));
        let error = Selectors::parse("", "spec.colour=red").unwrap_err();
        assert_eq!(error.code, 400);
    }
}
