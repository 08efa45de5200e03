//! What the API server fills in on, and refuses of, the built-in types, as far as scheduling and the lab's controllers
//! depend on it.

use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::kinds::Kind;
use super::object::{Key, Object, object_at, text};
use super::select::LabelSelector;
use super::store::State;

/// Fills in a new object of a built-in type and checks it.
pub(super) fn on_create(kind: Kind, value: &mut Value, state: &State) -> Result<(), ApiError> {
    match kind {
        Kind::Pod => pod(value, state)?,
        // The kubelet registers its node with a status, and events have none.
        Kind::Node | Kind::Event | Kind::ConfigMap => {}
        Kind::Namespace => {
            let name = text(value, &["metadata", "name"]).to_owned();
            let metadata = object_at(value, "metadata");
            let labels = metadata
                .entry("labels")
                .or_insert_with(|| Value::Object(Map::new()));
            labels["kubernetes.io/metadata.name"] = json!(name);
            value["spec"] = json!({"finalizers": ["kubernetes"]});
            value["status"] = json!({"phase": "Active"});
        }
        Kind::PersistentVolumeClaim | Kind::PersistentVolume => {
            value["status"] = json!({"phase": "Pending"});
        }
        _ if kind.info().status => {
            if let Some(map) = value.as_object_mut() {
                map.remove("status");
            }
        }
        _ => {}
    }
    let spec = match kind {
        Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::DaemonSet | Kind::Job => {
            object_at(value, "spec")
        }
        _ => return Ok(()),
    };
    match kind {
        Kind::Deployment => {
            default(spec, "replicas", json!(1));
            let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
            default(spec, "strategy", rolling);
            default(spec, "revisionHistoryLimit", json!(10));
            default(spec, "progressDeadlineSeconds", json!(600));
        }
        Kind::ReplicaSet => default(spec, "replicas", json!(1)),
        Kind::StatefulSet => {
            default(spec, "replicas", json!(1));
            default(spec, "podManagementPolicy", json!("OrderedReady"));
        }
        Kind::DaemonSet => {
            let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
            default(spec, "updateStrategy", rolling);
        }
        _ => {
            default(spec, "parallelism", json!(1));
            default(spec, "completions", json!(1));
            default(spec, "backoffLimit", json!(6));
            default(spec, "completionMode", json!("NonIndexed"));
        }
    }
    check_workload(kind, value)
}

/// The selector of a workload must select the pods of its template.
fn check_workload(kind: Kind, value: &Value) -> Result<(), ApiError> {
    if kind == Kind::Job {
        return Ok(());
    }
    let name = text(value, &["metadata", "name"]);
    let selector = &value["spec"]["selector"];
    let problem = if selector.is_null() {
        "spec.selector: Required value".to_owned()
    } else if !LabelSelector::from_value(selector)
        .matches(&value["spec"]["template"]["metadata"]["labels"])
    {
        format!(
            "spec.template.metadata.labels: Invalid value: {}: `selector` does not match template `labels`",
            value["spec"]["template"]["metadata"]["labels"]
        )
    } else {
        return Ok(());
    };
    Err(ApiError::invalid(kind, name, &[problem]))
}

fn default(map: &mut Map<String, Value>, key: &str, value: Value) {
    let slot = map.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value;
    }
}

fn pod(value: &mut Value, state: &State) -> Result<(), ApiError> {
    let name = text(value, &["metadata", "name"]).to_owned();
    let containers = value["spec"]["containers"].as_array();
    if containers.is_none_or(Vec::is_empty) {
        let problem = "spec.containers: Required value".to_owned();
        return Err(ApiError::invalid(Kind::Pod, &name, &[problem]));
    }
    let spec = object_at(value, "spec");
    for (key, to) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("serviceAccountName", json!("default")),
        ("enableServiceLinks", json!(true)),
    ] {
        default(spec, key, to);
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            requests_from_limits(container);
        }
    }
    priority(spec, &name, state)?;
    not_ready_tolerations(spec);
    let qos = qos_class(&value["spec"]);
    value["status"] = json!({"phase": "Pending", "qosClass": qos});
    Ok(())
}

/// A limit without a request is also the request.
fn requests_from_limits(container: &mut Value) {
    let limits = container["resources"]["limits"].as_object().cloned();
    let Some(limits) = limits.filter(|l| !l.is_empty()) else {
        return;
    };
    let requests = object_at(&mut container["resources"], "requests");
    for (resource, limit) in limits {
        default(requests, &resource, limit);
    }
}

/// The priority admission plugin: the class, or the default class, gives the number.
fn priority(spec: &mut Map<String, Value>, name: &str, state: &State) -> Result<(), ApiError> {
    let class = spec
        .get("priorityClassName")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let (number, policy) = match class.as_str() {
        "system-node-critical" => (json!(2_000_001_000), Value::Null),
        "system-cluster-critical" => (json!(2_000_000_000), Value::Null),
        "" => {
            let default_class = state
                .objects(Kind::PriorityClass, None)
                .filter(|c| c["globalDefault"] == true)
                .min_by_key(|c| c["value"].as_i64().unwrap_or(0));
            match default_class {
                Some(found) => {
                    spec.insert("priorityClassName".to_owned(), json!(found.name()));
                    (found["value"].clone(), found["preemptionPolicy"].clone())
                }
                None => (json!(0), Value::Null),
            }
        }
        class => match state.get(Kind::PriorityClass, &Key::new("", class)) {
            Some(found) => (found["value"].clone(), found["preemptionPolicy"].clone()),
            None => {
                let why = format!("no PriorityClass with name {class} was found");
                return Err(ApiError::forbidden(Kind::Pod, name, why));
            }
        },
    };
    spec.insert("priority".to_owned(), number);
    let policy = if policy.is_null() {
        json!("PreemptLowerPriority")
    } else {
        policy
    };
    default(spec, "preemptionPolicy", policy);
    Ok(())
}

/// Pods bear an unready or unreachable node for five minutes, unless they say otherwise.
fn not_ready_tolerations(spec: &mut Map<String, Value>) {
    let slot = spec
        .entry("tolerations")
        .or_insert_with(|| Value::Array(Vec::new()));
    if slot.is_null() {
        *slot = Value::Array(Vec::new());
    }
    let Some(list) = slot.as_array_mut() else {
        return;
    };
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerated = list.iter().any(|t| {
            let same_key = t["key"] == key || text(t, &["key"]).is_empty();
            let same_effect = matches!(text(t, &["effect"]), "" | "NoExecute");
            same_key && same_effect
        });
        if !tolerated {
            list.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }));
        }
    }
}

/// Guaranteed when each container limits CPU and memory to what it requests, BestEffort when none names either.
fn qos_class(spec: &Value) -> &'static str {
    let lists = [&spec["containers"], &spec["initContainers"]];
    let containers = lists.into_iter().flat_map(|l| l.as_array()).flatten();
    let (mut any, mut all) = (false, true);
    for container in containers {
        let resources = &container["resources"];
        for resource in ["cpu", "memory"] {
            let (request, limit) = (
                &resources["requests"][resource],
                &resources["limits"][resource],
            );
            any |= !request.is_null() || !limit.is_null();
            all &= !limit.is_null() && request == limit;
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Refuses changes of a pod's spec other than those that the API server allows.
pub(super) fn check_update(old: &Object, new: &Value) -> Result<(), ApiError> {
    if old.kind() != Kind::Pod || old["spec"] == new["spec"] {
        return Ok(());
    }
    let fixed = |value: &Value| {
        let mut spec = value["spec"].clone();
        if let Some(map) = spec.as_object_mut() {
            for key in [
                "activeDeadlineSeconds",
                "terminationGracePeriodSeconds",
                "tolerations",
                "schedulingGates",
            ] {
                map.remove(key);
            }
            // A gated pod may still be narrowed down.
            if !old["spec"]["schedulingGates"].is_null() {
                map.remove("nodeSelector");
                map.remove("affinity");
            }
        }
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if let Some(map) = container.as_object_mut() {
                    map.remove("image");
                }
            }
        }
        spec
    };
    if fixed(old) == fixed(new) {
        return Ok(());
    }
    let problem = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
         `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
         tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    Err(ApiError::invalid(
        Kind::Pod,
        old.name(),
        &[problem.to_owned()],
    ))
}
