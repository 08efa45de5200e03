//! Pod disruption budgets: their status, and what an eviction takes from it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::error::ApiError;
use super::kinds::Kind;
use super::object::{Key, Object, object_at, text};
use super::pods::set_condition;
use super::select::LabelSelector;
use super::store::State;
use super::{Server, rfc3339, watch};

/// What a budget allows at this moment, in pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetStatus {
    /// Pods that the budget counts on.
    pub expected_pods: i64,
    /// Ready pods that are not being deleted.
    pub current_healthy: i64,
    /// Ready pods that must remain.
    pub desired_healthy: i64,
    /// Evictions allowed now.
    pub disruptions_allowed: i64,
}

impl Server {
    /// A budget's status, computed from the pods as they are.
    pub fn budget_status(&self, namespace: &str, name: &str) -> Result<BudgetStatus, ApiError> {
        let state = self.state();
        let budget = state
            .get(Kind::PodDisruptionBudget, &Key::new(namespace, name))
            .ok_or_else(|| ApiError::not_found(Kind::PodDisruptionBudget, name))?;
        Ok(compute(&state, &budget))
    }

    /// Writes the status of each budget whose pods have changed.
    pub fn refresh_budgets(&self) {
        let now = self.now();
        let mut state = self.state();
        while let Some(key) = state.dirty_budgets.pop_first() {
            if let Some(budget) = state.get(Kind::PodDisruptionBudget, &key) {
                let status = compute(&state, &budget);
                write_status(&mut state, &budget, status, now);
            }
        }
    }

    /// Keeps the status of budgets up to date: the disruption controller. Runs until dropped.
    pub async fn run_disruption_controller(&self) {
        loop {
            self.shared.budgets.notified().await;
            self.refresh_budgets();
        }
    }
}

impl State {
    /// Notes the budgets whose status a change may concern.
    pub(super) fn mark_budgets(
        &mut self,
        kind: Kind,
        before: Option<&Object>,
        after: Option<&Object>,
    ) {
        let Some(object) = after.or(before) else {
            return;
        };
        match kind {
            Kind::PodDisruptionBudget => {
                let spec = |o: Option<&Object>| o.map(|o| o["spec"].clone());
                if after.is_some() && spec(before) != spec(after) {
                    self.dirty_budgets.insert(watch::key(object));
                }
            }
            Kind::Pod => {
                let counts = |o: &Object| (o.condition("Ready") == Some("True"), o.is_deleting());
                if before.map(counts) == after.map(counts)
                    && before.map(|o| &o["metadata"]["labels"])
                        == after.map(|o| &o["metadata"]["labels"])
                {
                    return;
                }
                let selected: Vec<Key> = self
                    .objects(Kind::PodDisruptionBudget, Some(object.namespace()))
                    .filter(|budget| {
                        let selector = LabelSelector::from_value(&budget["spec"]["selector"]);
                        let pods = before.into_iter().chain(after);
                        pods.into_iter()
                            .any(|pod| selector.matches(&pod["metadata"]["labels"]))
                    })
                    .map(watch::key)
                    .collect();
                self.dirty_budgets.extend(selected);
            }
            Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet => {
                let replicas = |o: Option<&Object>| o.map(|o| o["spec"]["replicas"].clone());
                if replicas(before) != replicas(after) {
                    let keys: Vec<Key> = self
                        .objects(Kind::PodDisruptionBudget, Some(object.namespace()))
                        .map(watch::key)
                        .collect();
                    self.dirty_budgets.extend(keys);
                }
            }
            _ => {}
        }
    }
}

/// The rules of the disruption controller: `minAvailable` as a number counts on the pods there are; a percentage,
/// and `maxUnavailable`, on the scale of their controllers. Percentages round up.
fn compute(state: &State, budget: &Object) -> BudgetStatus {
    let spec = &budget["spec"];
    let selector = LabelSelector::from_value(&spec["selector"]);
    let pods: Vec<&Object> = state
        .objects(Kind::Pod, Some(budget.namespace()))
        .filter(|pod| selector.matches(&pod["metadata"]["labels"]))
        .collect();
    let there = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let healthy = pods
        .iter()
        .filter(|pod| !pod.is_deleting() && is_ready(pod))
        .count();
    let current_healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let (expected_pods, desired_healthy) = match (&spec["maxUnavailable"], &spec["minAvailable"]) {
        (Value::Null, Value::Null) => (there, 0),
        (Value::Null, min) => match min.as_i64() {
            Some(min) => (there, min),
            None => {
                let expected = expected_scale(state, &pods);
                (expected, scaled(min, expected))
            }
        },
        (max, _) => {
            let expected = expected_scale(state, &pods);
            (expected, (expected - scaled(max, expected)).max(0))
        }
    };
    let disruptions_allowed = if expected_pods <= 0 {
        0
    } else {
        (current_healthy - desired_healthy).max(0)
    };
    BudgetStatus {
        expected_pods,
        current_healthy,
        desired_healthy,
        disruptions_allowed,
    }
}

/// The replicas that the pods' controllers want; a pod without a known controller counts for itself.
fn expected_scale(state: &State, pods: &[&Object]) -> i64 {
    let mut scales: BTreeMap<String, i64> = BTreeMap::new();
    let mut alone = 0;
    for pod in pods {
        let Some(mut owner) = pod.controller_uid().and_then(|uid| state.by_uid(uid)) else {
            alone += 1;
            continue;
        };
        if owner.kind() == Kind::ReplicaSet
            && let Some(parent) = owner.controller_uid().and_then(|uid| state.by_uid(uid))
        {
            owner = parent;
        }
        match owner["spec"]["replicas"].as_i64() {
            Some(replicas) => {
                scales.insert(owner.uid().to_owned(), replicas);
            }
            None => alone += 1,
        }
    }
    alone + scales.values().sum::<i64>()
}

/// A number, or a percentage of `of` rounded up.
fn scaled(value: &Value, of: i64) -> i64 {
    if let Some(number) = value.as_i64() {
        return number;
    }
    let percent = value.as_str().and_then(|s| s.strip_suffix('%'));
    let percent = percent.and_then(|p| p.parse::<i64>().ok()).unwrap_or(0);
    (of.saturating_mul(percent).saturating_add(99)).div_euclid(100)
}

fn is_ready(pod: &Object) -> bool {
    pod.condition("Ready") == Some("True")
}

fn write_status(state: &mut State, budget: &Object, status: BudgetStatus, now: Timestamp) {
    let generation = &budget["metadata"]["generation"];
    let mut value = budget.value().clone();
    let map = object_at(&mut value, "status");
    map.insert("observedGeneration".to_owned(), generation.clone());
    for (key, number) in [
        ("expectedPods", status.expected_pods),
        ("currentHealthy", status.current_healthy),
        ("desiredHealthy", status.desired_healthy),
        ("disruptionsAllowed", status.disruptions_allowed),
    ] {
        map.insert(key.to_owned(), json!(number));
    }
    let (allowed, reason) = if status.disruptions_allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let condition = json!({
        "type": "DisruptionAllowed",
        "status": allowed,
        "reason": reason,
        "message": "",
        "lastTransitionTime": rfc3339(now),
        "observedGeneration": generation,
    });
    set_condition(&mut value, condition);
    if value != *budget.value() {
        state.put(Kind::PodDisruptionBudget, value);
    }
}

/// Takes one disruption from the budget that selects a pod. Returns the budget's name if one had to pay.
pub(super) fn charge(
    state: &mut State,
    pod: &Object,
    dry_run: bool,
    now: Timestamp,
) -> Result<Option<String>, ApiError> {
    let labels = &pod["metadata"]["labels"];
    let selecting: Vec<Object> = state
        .objects(Kind::PodDisruptionBudget, Some(pod.namespace()))
        .filter(|budget| LabelSelector::from_value(&budget["spec"]["selector"]).matches(labels))
        .cloned()
        .collect();
    let [budget] = selecting.as_slice() else {
        if selecting.is_empty() {
            return Ok(None);
        }
        return Err(ApiError::new(
            500,
            "",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    };
    let mut status = compute(state, budget);
    if !is_ready(pod) {
        let policy = text(budget, &["spec", "unhealthyPodEvictionPolicy"]);
        let enough = status.desired_healthy > 0 && status.current_healthy >= status.desired_healthy;
        if policy == "AlwaysAllow" || enough {
            return Ok(None);
        }
    }
    if status.disruptions_allowed == 0 {
        let mut error = ApiError::new(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        );
        let cause = format!(
            "The disruption budget {} needs {} healthy pods and has {} currently",
            budget.name(),
            status.desired_healthy,
            status.current_healthy
        );
        error.details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
        return Err(error);
    }
    if !dry_run {
        status.disruptions_allowed -= 1;
        write_status(state, budget, status, now);
        state.dirty_budgets.insert(watch::key(budget));
    }
    Ok(Some(budget.name().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_up_and_numbers_stand() {
        assert_eq!(scaled(&json!(2), 10), 2);
        assert_eq!(scaled(&json!("50%"), 7), 4); // 3.5
        assert_eq!(scaled(&json!("100%"), 7), 7);
        assert_eq!(scaled(&json!("0%"), 7), 0);
        assert_eq!(scaled(&json!("x"), 7), 0);
    }
}
