//! NodePools and node classes, parsed once.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use crate::{
    api::{
        self, EC2NodeClass, NodePool, conditions, names,
        requirement::{Operator, Requirement, RequirementError, Requirements},
        taint::Taint,
    },
    units::{Quantity, Resources, Rounding},
};

/// A NodePool with what the solver reads of it.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The object as the API has it.
    pub object: Arc<NodePool>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: String,
    /// `spec.weight`, 0 when unset.
    pub weight: i32,
    /// `spec.template.spec.requirements`.
    pub requirements: Requirements,
    /// Requirements that cannot be read; such a pool launches nothing.
    pub problems: Vec<RequirementError>,
    /// Template labels.
    pub labels: BTreeMap<String, String>,
    /// Template taints.
    pub taints: Vec<Taint>,
    /// Template startup taints.
    pub startup_taints: Vec<Taint>,
    /// `spec.limits`; `nodes` counts nodes.
    pub limits: Resources,
    /// Name of the node class.
    pub class: Arc<str>,
    /// Label key that names the node class on claims and nodes, `<group>/<lower-case kind>`.
    pub class_label: String,
    /// Whether `spec.replicas` makes the pool static.
    pub is_static: bool,
    /// Deletion time.
    pub deletion: Option<Timestamp>,
}

impl Pool {
    /// Reads a pool of the API.
    pub fn from_api(object: Arc<NodePool>) -> Self {
        let template = &object.spec.template;
        let reference = &template.spec.node_class_ref;
        let (requirements, problems) = requirements(&template.spec.requirements);
        Self {
            name: object.metadata.name.as_deref().unwrap_or_default().into(),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            weight: object.spec.weight.unwrap_or(0),
            requirements,
            problems,
            labels: template.metadata.labels().clone(),
            taints: taints(template.spec.taints()),
            startup_taints: taints(template.spec.startup_taints()),
            limits: amounts(&object.spec.limits, Rounding::Down),
            class: reference.name.as_str().into(),
            class_label: format!("{}/{}", reference.group, reference.kind.to_lowercase()),
            is_static: object.spec.replicas.is_some(),
            deletion: object.metadata.deletion_timestamp.as_ref().map(|t| t.0),
            object,
        }
    }

    /// Whether the pool may launch for pending pods: Ready, dynamic, not being deleted, every requirement readable
    /// (`spec/scheduling.md` 1.5).
    pub fn is_usable(&self) -> bool {
        let ready = self
            .object
            .status
            .as_ref()
            .is_some_and(|s| conditions::is_true(&s.conditions, names::condition::READY));
        ready && !self.is_static && self.deletion.is_none() && self.problems.is_empty()
    }
}

/// A node class.
#[derive(Clone, Debug)]
pub struct Class {
    /// The object as the API has it.
    pub object: Arc<EC2NodeClass>,
    /// Name.
    pub name: Arc<str>,
    /// Condition Ready is True.
    pub ready: bool,
    /// Deletion time.
    pub deletion: Option<Timestamp>,
}

impl Class {
    /// Reads a class of the API.
    pub fn from_api(object: Arc<EC2NodeClass>) -> Self {
        Self {
            name: object.metadata.name.as_deref().unwrap_or_default().into(),
            ready: object
                .status
                .as_ref()
                .is_some_and(|s| conditions::is_true(&s.conditions, names::condition::READY)),
            deletion: object.metadata.deletion_timestamp.as_ref().map(|t| t.0),
            object,
        }
    }
}

/// Reads a requirement list; what cannot be read is returned beside it.
pub(super) fn requirements(
    specs: &[api::RequirementSpec],
) -> (Requirements, Vec<RequirementError>) {
    let mut all = Requirements::new();
    let mut problems = Vec::new();
    for spec in specs {
        let min_values = spec.min_values.and_then(|n| u32::try_from(n).ok());
        let read = Operator::parse(&spec.operator)
            .ok_or_else(|| RequirementError::Operator(spec.operator.clone()))
            .and_then(|operator| Requirement::new(&spec.key, operator, &spec.values, min_values));
        match read {
            Ok(requirement) => all.add(requirement),
            Err(problem) => problems.push(problem),
        }
    }
    (all, problems)
}

/// Reads a taint list.
pub(super) fn taints(specs: &[api::Taint]) -> Vec<Taint> {
    let one = |t: &api::Taint| Taint {
        key: t.key.clone(),
        value: t.value.clone().unwrap_or_default(),
        effect: t.effect.clone(),
    };
    specs.iter().map(one).collect()
}

/// Reads a map of quantities.
pub(super) fn amounts(map: &BTreeMap<String, Quantity>, rounding: Rounding) -> Resources {
    Resources::from_quantities(map.iter().map(|(k, v)| (k.as_str(), v)), rounding)
}
