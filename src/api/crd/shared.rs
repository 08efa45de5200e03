//! What the kinds have in common: requirements, taints, class references, durations, conditions.

use serde_json::json;

use super::edit::Edit;
use crate::api::names::{AWS_GROUP, AWS_WELL_KNOWN, GROUP, domain, label};

/// Hours, minutes and seconds.
const DURATION: &str = r"^([0-9]+(s|m|h))+$";
/// Hours, minutes and seconds, or `Never`.
pub(super) const DURATION_OR_NEVER: &str = r"^(([0-9]+(s|m|h))+|Never)$";
/// An optional DNS prefix and a name.
const KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
/// What a label's value may be.
pub(super) const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// Whose keys are being restricted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeysOf {
    /// A NodePool, which adds its own label `karpenter.sh/nodepool`.
    NodePool,
    /// A NodeClaim, which may require that label.
    NodeClaim,
}

/// Rules of restricted keys, for a CEL variable that holds the key: rule and message.
pub(super) fn key_rules(variable: &str, of: KeysOf) -> Vec<(String, String)> {
    // The domain is what stands before the slash, or the whole key.
    let domain_ends = |suffix: &str| format!("{variable}.find('^([^/]+)').endsWith('{suffix}')");
    let list = |keys: &[&str]| {
        keys.iter()
            .map(|key| format!("'{key}'"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut core = vec![label::CAPACITY_TYPE];
    core.push(label::NODEPOOL); // refused on its own below, with its own message
    let mut aws: Vec<&str> = AWS_WELL_KNOWN
        .into_iter()
        .filter(|key| domain(key) == AWS_GROUP)
        .collect();
    aws.push(label::EC2_NODE_CLASS);
    let mut rules = vec![
        (
            format!("{variable} in [{}] || !{}", list(&core), domain_ends(GROUP)),
            format!(
                "keys of the domain {GROUP} are set by the controller, only {} may be written",
                label::CAPACITY_TYPE
            ),
        ),
        (
            format!(
                "{variable} in [{}] || !{}",
                list(&aws),
                domain_ends(AWS_GROUP)
            ),
            format!("not a known key of the domain {AWS_GROUP}, see the list of instance labels"),
        ),
        (
            format!("{variable} != '{}'", label::HOSTNAME),
            format!("{} is set by the kubelet, remove it", label::HOSTNAME),
        ),
    ];
    if of == KeysOf::NodePool {
        rules.push((
            format!("{variable} != '{}'", label::NODEPOOL),
            format!("{} is set by the controller, remove it", label::NODEPOOL),
        ));
    }
    rules
}

/// The list of requirements at this path.
pub(super) fn requirements(edit: &mut Edit, path: &str, of: KeysOf) {
    edit.set(
        path,
        json!({ "maxItems": 100, "x-kubernetes-list-type": "atomic" }),
    );
    edit.rule(
        path,
        "self.all(x, x.operator == 'In' ? (has(x.values) && x.values.size() > 0) : true)",
        "operator In needs at least one value",
    );
    edit.rule(
        path,
        "self.all(x, x.operator in ['Gt', 'Lt', 'Gte', 'Lte'] ? (has(x.values) && x.values.size() == 1 && int(x.values[0]) >= 0) : true)",
        "operators Gt, Lt, Gte and Lte need exactly one value, a whole number of at least 0",
    );
    edit.rule(
        path,
        "self.all(x, (x.operator == 'In' && has(x.minValues)) ? (has(x.values) && x.values.size() >= x.minValues) : true)",
        "operator In with minValues needs at least that many values",
    );
    let entry = format!("{path}[]");
    edit.require(&entry, &["key", "operator"]);
    edit.set(
        &format!("{entry}.key"),
        json!({ "maxLength": 316, "pattern": KEY }),
    );
    for (rule, message) in key_rules("self", of) {
        edit.rule(&format!("{entry}.key"), &rule, &message);
    }
    edit.set(
        &format!("{entry}.operator"),
        json!({ "enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"] }),
    );
    edit.set(
        &format!("{entry}.values"),
        json!({ "x-kubernetes-list-type": "atomic" }),
    );
    edit.set(
        &format!("{entry}.minValues"),
        json!({ "minimum": 1, "maximum": 50 }),
    );
}

/// The list of taints at this path.
pub(super) fn taints(edit: &mut Edit, path: &str) {
    edit.set(path, json!({ "x-kubernetes-list-type": "atomic" }));
    let entry = format!("{path}[]");
    edit.require(&entry, &["key", "effect"]);
    edit.set(
        &format!("{entry}.key"),
        json!({ "minLength": 1, "pattern": KEY }),
    );
    edit.set(&format!("{entry}.value"), json!({ "pattern": KEY }));
    edit.set(
        &format!("{entry}.effect"),
        json!({ "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"] }),
    );
}

/// The reference to a class at this path.
pub(super) fn node_class_ref(edit: &mut Edit, path: &str) {
    edit.require(path, &["group", "kind", "name"]);
    edit.set(
        &format!("{path}.group"),
        json!({ "minLength": 1, "pattern": "^[^/]*$" }),
    );
    edit.set(&format!("{path}.kind"), json!({ "minLength": 1 }));
    edit.set(&format!("{path}.name"), json!({ "minLength": 1 }));
}

/// `expireAfter` and `terminationGracePeriod` of the spec at this path.
pub(super) fn lifetime(edit: &mut Edit, path: &str) {
    edit.set(
        &format!("{path}.expireAfter"),
        json!({ "default": "720h", "pattern": DURATION_OR_NEVER }),
    );
    edit.set(
        &format!("{path}.terminationGracePeriod"),
        json!({ "pattern": DURATION }),
    );
}

/// Whether a condition must have a reason and a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// As Kubernetes' own conditions.
    Required,
    /// On NodeClaim.
    Optional,
}

/// `status.conditions`.
pub(super) fn conditions(edit: &mut Edit, reason: Reason) {
    let path = "status.conditions[]";
    let pattern = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?";
    if reason == Reason::Required {
        edit.require(
            path,
            &["lastTransitionTime", "message", "reason", "status", "type"],
        );
        edit.set(
            "status.conditions[].reason",
            json!({ "minLength": 1, "maxLength": 1024, "pattern": format!("^{pattern}$") }),
        );
    } else {
        edit.require(path, &["lastTransitionTime", "status", "type"]);
        edit.set(
            "status.conditions[].reason",
            json!({ "maxLength": 1024, "pattern": format!("^({pattern})?$") }),
        );
    }
    edit.set("status.conditions[].type", json!({ "maxLength": 316 }));
    edit.set("status.conditions[].message", json!({ "maxLength": 32768 }));
    edit.set(
        "status.conditions[].observedGeneration",
        json!({ "minimum": 0 }),
    );
}

/// Keys the conditions by their type.
pub(super) fn conditions_by_type(edit: &mut Edit) {
    edit.set(
        "status.conditions",
        json!({ "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"] }),
    );
}
