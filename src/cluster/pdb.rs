//! PodDisruptionBudgets.

use std::collections::BTreeMap;

use k8s_openapi::{api::policy::v1 as policy, apimachinery::pkg::apis::meta::v1 as meta};

use crate::cluster::PodKey;

/// A label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    labels: BTreeMap<String, String>,
    expressions: Vec<(String, String, Vec<String>)>,
}

impl LabelSelector {
    /// Reads a selector of the API.
    pub fn from_k8s(selector: &meta::LabelSelector) -> Self {
        let expressions = selector.match_expressions.iter().flatten();
        Self {
            labels: selector.match_labels.clone().unwrap_or_default(),
            expressions: expressions
                .map(|e| {
                    (
                        e.key.clone(),
                        e.operator.clone(),
                        e.values.clone().unwrap_or_default(),
                    )
                })
                .collect(),
        }
    }

    /// Whether labels satisfy it; an empty selector matches everything.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.expressions.iter().all(|(key, operator, values)| {
                let value = labels.get(key);
                match operator.as_str() {
                    "In" => value.is_some_and(|v| values.contains(v)),
                    "NotIn" => value.is_none_or(|v| !values.contains(v)),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}

/// A PodDisruptionBudget with the state that its controller last wrote.
#[derive(Clone, Debug)]
pub struct DisruptionBudgetState {
    /// Namespace and name.
    pub key: PodKey,
    /// Pods it covers; `None` covers none.
    pub selector: Option<LabelSelector>,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
    /// `maxUnavailable` 0 or 0%, or `minAvailable` 100%: it never allows an eviction.
    pub never_allows: bool,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    pub always_allows_unhealthy: bool,
}

impl DisruptionBudgetState {
    /// Reads a budget of the API.
    pub fn from_k8s(budget: &policy::PodDisruptionBudget) -> Self {
        use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
        let spec = budget.spec.clone().unwrap_or_default();
        let is = |v: &Option<IntOrString>, number: Option<i32>, text: &str| match v {
            Some(IntOrString::Int(n)) => Some(*n) == number,
            Some(IntOrString::String(s)) => s == text,
            None => false,
        };
        Self {
            key: PodKey::new(
                budget.metadata.namespace.as_deref().unwrap_or("default"),
                budget.metadata.name.as_deref().unwrap_or_default(),
            ),
            selector: spec.selector.as_ref().map(LabelSelector::from_k8s),
            disruptions_allowed: budget.status.as_ref().map_or(0, |s| s.disruptions_allowed),
            never_allows: is(&spec.max_unavailable, Some(0), "0%")
                || is(&spec.min_available, None, "100%"),
            always_allows_unhealthy: spec.unhealthy_pod_eviction_policy.as_deref()
                == Some("AlwaysAllow"),
        }
    }

    /// Whether the budget covers a pod.
    pub fn covers(&self, pod: &super::Pod) -> bool {
        *self.key.namespace == *pod.key.namespace
            && self
                .selector
                .as_ref()
                .is_some_and(|s| s.matches(&pod.labels))
    }
}
