//! The rules of NodeClaim.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use super::edit::Edit;
use super::shared::{self, KeysOf, Reason};
use crate::api::NodeClaim;

pub(super) fn crd() -> CustomResourceDefinition {
    let mut edit = Edit::new(NodeClaim::crd());
    edit.require("", &["spec"]);
    edit.require("spec", &["nodeClassRef", "requirements"]);
    edit.rule(
        "spec",
        "self == oldSelf",
        "spec is immutable, delete the claim and let another be made",
    );
    shared::requirements(&mut edit, "spec.requirements", KeysOf::NodeClaim);
    shared::node_class_ref(&mut edit, "spec.nodeClassRef");
    edit.remove("spec.nodeClassRef", "apiVersion");
    shared::taints(&mut edit, "spec.taints");
    shared::taints(&mut edit, "spec.startupTaints");
    shared::lifetime(&mut edit, "spec");
    shared::conditions(&mut edit, Reason::Optional);
    shared::conditions_by_type(&mut edit);
    edit.finish()
}
