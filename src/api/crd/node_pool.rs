//! The rules of NodePool.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::json;

use super::edit::Edit;
use super::shared::{self, DURATION_OR_NEVER, KeysOf, LABEL_VALUE, Reason};
use crate::api::NodePool;

/// Minutes, hours, or hours and minutes.
const BUDGET_DURATION: &str = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";
/// Five words or an @ name. Wider than cron, the validating webhook reads the rest.
const SCHEDULE: &str =
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$";
const NODES: &str = "^((100|[0-9]{1,2})%|[0-9]+)$";

pub(super) fn crd() -> CustomResourceDefinition {
    let mut edit = Edit::new(NodePool::crd());
    edit.require("", &["spec"]);
    edit.require("spec", &["template"]);
    edit.set("spec.weight", json!({ "minimum": 1, "maximum": 100 }));
    edit.set("spec.replicas", json!({ "minimum": 0 }));
    edit.rule(
        "spec",
        "has(self.replicas) == has(oldSelf.replicas)",
        "a pool cannot change between having and not having replicas, create a new pool",
    );
    edit.rule(
        "spec",
        "!has(self.replicas) || !has(self.limits) || self.limits.size() == 0 || (self.limits.size() == 1 && 'nodes' in self.limits)",
        "with replicas, limits may hold nodes only",
    );
    edit.rule(
        "spec",
        "!has(self.replicas) || !has(self.weight)",
        "with replicas, weight must not be set",
    );
    template(&mut edit);
    disruption(&mut edit);
    edit.default("status.nodes", json!(0));
    shared::conditions(&mut edit, Reason::Required);
    shared::conditions_by_type(&mut edit);
    edit.finish()
}

fn template(edit: &mut Edit) {
    edit.require("spec.template", &["spec"]);
    let labels = "spec.template.metadata.labels";
    edit.set(
        labels,
        json!({ "maxProperties": 100, "x-kubernetes-map-type": "atomic" }),
    );
    edit.set(
        "spec.template.metadata.labels{}",
        json!({ "maxLength": 63, "pattern": LABEL_VALUE }),
    );
    for (rule, message) in shared::key_rules("k", KeysOf::NodePool) {
        edit.rule(labels, &format!("self.all(k, {rule})"), &message);
    }
    let spec = "spec.template.spec";
    edit.require(spec, &["nodeClassRef", "requirements"]);
    shared::requirements(edit, "spec.template.spec.requirements", KeysOf::NodePool);
    let class = "spec.template.spec.nodeClassRef";
    shared::node_class_ref(edit, class);
    for member in ["group", "kind"] {
        edit.rule(
            class,
            &format!("self.{member} == oldSelf.{member}"),
            &format!("nodeClassRef.{member} cannot be changed, create a new pool"),
        );
    }
    shared::taints(edit, "spec.template.spec.taints");
    shared::taints(edit, "spec.template.spec.startupTaints");
    shared::lifetime(edit, spec);
    edit.open("spec.template.spec.kubelet");
}

fn disruption(edit: &mut Edit) {
    edit.default("spec.disruption", json!({ "consolidateAfter": "0s" }));
    edit.set(
        "spec.disruption.consolidateAfter",
        json!({ "default": "0s", "pattern": DURATION_OR_NEVER }),
    );
    edit.set(
        "spec.disruption.consolidationPolicy",
        json!({
            "default": "WhenEmptyOrUnderutilized",
            "enum": ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"],
        }),
    );
    let budgets = "spec.disruption.budgets";
    edit.set(
        budgets,
        json!({ "default": [{ "nodes": "10%" }], "maxItems": 50 }),
    );
    edit.rule(
        budgets,
        "self.all(x, has(x.schedule) == has(x.duration))",
        "a budget needs both schedule and duration, or neither",
    );
    edit.require("spec.disruption.budgets[]", &["nodes"]);
    edit.set(
        "spec.disruption.budgets[].nodes",
        json!({ "default": "10%", "pattern": NODES }),
    );
    edit.set(
        "spec.disruption.budgets[].schedule",
        json!({ "pattern": SCHEDULE }),
    );
    edit.set(
        "spec.disruption.budgets[].duration",
        json!({ "pattern": BUDGET_DURATION }),
    );
    edit.set(
        "spec.disruption.budgets[].reasons",
        json!({ "maxItems": 50, "x-kubernetes-list-type": "set" }),
    );
    edit.set(
        "spec.disruption.budgets[].reasons[]",
        json!({ "enum": ["Underutilized", "Empty", "Drifted", "Unhealthy"] }),
    );
}
