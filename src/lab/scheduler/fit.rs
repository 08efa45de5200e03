//! Node selectors, affinity and taints by kube-scheduler's own rules: labels as they are on the node, no aliases.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as core;

use crate::api::taint::{Taint, Toleration};

type Labels = BTreeMap<String, String>;

/// Which nodes a pod may go to, and which of them it likes better.
#[derive(Clone, Debug, Default)]
pub(in crate::lab) struct Constraints {
    selector: Labels,
    required: Option<Vec<core::NodeSelectorTerm>>,
    preferred: Vec<core::PreferredSchedulingTerm>,
    tolerations: Vec<Toleration>,
}

impl Constraints {
    /// The constraints of a pod's spec, with its tolerations already read.
    pub(in crate::lab) fn new(spec: &core::PodSpec, tolerations: Vec<Toleration>) -> Self {
        let affinity = spec
            .affinity
            .as_ref()
            .and_then(|a| a.node_affinity.clone())
            .unwrap_or_default();
        Self {
            selector: spec.node_selector.clone().unwrap_or_default(),
            required: affinity
                .required_during_scheduling_ignored_during_execution
                .map(|s| s.node_selector_terms),
            preferred: affinity
                .preferred_during_scheduling_ignored_during_execution
                .unwrap_or_default(),
            tolerations,
        }
    }

    /// Whether node selector and required affinity admit the node. Terms are alternatives.
    pub(in crate::lab) fn selects(&self, name: &str, labels: &Labels) -> bool {
        self.selector.iter().all(|(k, v)| labels.get(k) == Some(v))
            && (self.required.as_ref())
                .is_none_or(|terms| terms.iter().any(|t| term_matches(t, name, labels)))
    }

    /// The only nodes that can do, when every term names nodes.
    pub(super) fn names(&self) -> Option<BTreeSet<&str>> {
        let terms = self.required.as_ref()?;
        let mut names = BTreeSet::new();
        for term in terms {
            let fields = term.match_fields.iter().flatten();
            let named = fields.filter(|f| f.key == "metadata.name" && f.operator == "In");
            let values = named.flat_map(|f| f.values.iter().flatten());
            let before = names.len();
            names.extend(values.map(String::as_str));
            if names.len() == before {
                return None;
            }
        }
        Some(names)
    }

    /// The weights of the preferred terms that the node matches, summed.
    pub(super) fn preference(&self, name: &str, labels: &Labels) -> i64 {
        let matching = self.preferred.iter().filter(|p| {
            let empty = p.preference.match_expressions.is_none();
            // A preferred term without anything in it is matched by all nodes.
            (empty && p.preference.match_fields.is_none())
                || term_matches(&p.preference, name, labels)
        });
        matching.map(|p| i64::from(p.weight)).sum()
    }

    /// The first taint that keeps the pod off the node.
    pub(in crate::lab) fn kept_off_by<'a>(&self, taints: &'a [Taint]) -> Option<&'a Taint> {
        self.first_untolerated(taints, &["NoSchedule", "NoExecute"])
    }

    /// The first taint that drives a running pod off the node.
    pub(in crate::lab) fn driven_off_by<'a>(&self, taints: &'a [Taint]) -> Option<&'a Taint> {
        self.first_untolerated(taints, &["NoExecute"])
    }

    /// How many taints would rather not have the pod.
    pub(super) fn unwelcome(&self, taints: &[Taint]) -> i64 {
        let soft = |t: &&Taint| t.effect == "PreferNoSchedule" && !self.tolerates(t);
        i64::try_from(taints.iter().filter(soft).count()).unwrap_or(i64::MAX)
    }

    fn first_untolerated<'a>(&self, taints: &'a [Taint], effects: &[&str]) -> Option<&'a Taint> {
        taints
            .iter()
            .find(|t| effects.contains(&t.effect.as_str()) && !self.tolerates(t))
    }

    /// Whether some toleration covers the taint.
    pub(super) fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|t| t.tolerates(taint))
    }
}

/// All expressions and fields must hold; a term without any matches no node.
fn term_matches(term: &core::NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let field = |f: &core::NodeSelectorRequirement| {
        let value = (f.key == "metadata.name").then_some(name);
        holds(f, value)
    };
    (!expressions.is_empty() || !fields.is_empty())
        && (expressions.iter()).all(|e| holds(e, labels.get(&e.key).map(String::as_str)))
        && fields.iter().all(field)
}

fn holds(requirement: &core::NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || value.is_some_and(|v| values.iter().any(|w| w == v));
    let numbers = || {
        let bound = match values {
            [one] => one.parse::<i64>().ok()?,
            _ => return None,
        };
        Some((value?.parse::<i64>().ok()?, bound))
    };
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(v, bound)| v > bound),
        "Lt" => numbers().is_some_and(|(v, bound)| v < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn constraints(spec: Value) -> Constraints {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let spec: core::PodSpec = serde_json::from_value(spec).unwrap();
        Constraints::new(&spec, Vec::new())
    }

    fn required(terms: Value) -> Constraints {
        constraints(json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}))
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs.iter();
        pairs
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn terms_are_alternatives_and_their_parts_are_not() {
        let node = labels(&[("zone", "a"), ("cpus", "8")]);
        for (terms, expected) in [
            (json!([]), false),
            (json!([{}]), false),
            (
                json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]),
                true,
            ),
            (
                json!([{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}]),
                false,
            ),
            (
                json!([{"matchExpressions": [{"key": "other", "operator": "NotIn", "values": ["a"]}]}]),
                true,
            ),
            (
                json!([{"matchExpressions": [{"key": "cpus", "operator": "Gt", "values": ["7"]}]}]),
                true,
            ),
            (
                json!([{"matchExpressions": [{"key": "cpus", "operator": "Lt", "values": ["8"]}]}]),
                false,
            ),
            (
                json!([{"matchExpressions": [{"key": "other", "operator": "DoesNotExist"}]}]),
                true,
            ),
            (
                json!([{"matchExpressions": [
                    {"key": "zone", "operator": "Exists"}, {"key": "other", "operator": "Exists"}]}]),
                false,
            ),
            (
                json!([
                    {"matchExpressions": [{"key": "other", "operator": "Exists"}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]),
                true,
            ),
            (
                json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]),
                false,
            ),
        ] {
            assert_eq!(
                required(terms.clone()).selects("n1", &node),
                expected,
                "{terms}"
            );
        }
    }

    #[test]
    fn names_are_known_only_when_every_term_has_some() {
        let field =
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
        let open = json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]});
        assert_eq!(
            required(json!([field])).names(),
            Some(BTreeSet::from(["n1"]))
        );
        assert_eq!(required(json!([field, open])).names(), None);
        assert_eq!(constraints(json!({})).names(), None);
    }

    #[test]
    fn preferences_add_up() {
        let spec = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}},
            {"weight": 5, "preference": {"matchExpressions": [{"key": "other", "operator": "Exists"}]}},
            {"weight": 2, "preference": {}},
        ]}}});
        assert_eq!(
            constraints(spec).preference("n1", &labels(&[("zone", "a")])),
            12
        );
    }
}
