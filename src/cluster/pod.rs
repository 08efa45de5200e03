//! Pods, parsed once.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;

use crate::{
    api::{
        names,
        requirement::{Operator, Requirement, RequirementError, Requirements},
        taint::{Taint, Tolerates, Toleration},
    },
    units::{GoDuration, PODS, Resources, Rounding},
};

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl PodKey {
    /// Builds a key.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Who owns a pod, as far as placement and drain care.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// Nobody.
    None,
    /// A DaemonSet, by UID.
    DaemonSet(String),
    /// The node itself: static and mirror pods.
    Node,
    /// A StatefulSet, by UID.
    StatefulSet(String),
    /// Anything else, by UID.
    Other(String),
}

/// Annotation `karpenter.sh/do-not-disrupt` on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoNotDisrupt {
    /// Not set.
    Unset,
    /// `true`: as long as the pod runs.
    Always,
    /// A positive duration, counted from the pod's start.
    For(GoDuration),
    /// Anything else: ignored, with an event.
    Invalid(String),
}

/// One expression of a node affinity term, as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expression {
    /// Label key as written.
    pub key: String,
    /// Operator as written.
    pub operator: String,
    /// Values as written.
    pub values: Vec<String>,
}

/// A node selector term: all expressions must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The expressions as written, for validation and messages.
    pub expressions: Vec<Expression>,
    /// Whether the term has `matchFields`, which a planned node cannot satisfy.
    pub match_fields: bool,
    /// The expressions as requirements, or why one could not be read.
    pub requirements: Result<Requirements, RequirementError>,
}

/// A preferred node affinity term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    /// 1 to 100, heavier first.
    pub weight: i32,
    /// What is preferred.
    pub term: Term,
}

/// A pod. Immutable; a change makes a new one.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// UID.
    pub uid: String,
    /// API version of the object, for preconditions.
    pub resource_version: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Creation time.
    pub created: Timestamp,
    /// Start time as the kubelet reported it.
    pub started: Option<Timestamp>,
    /// When it is to be gone, if it is being deleted (grace period included).
    pub deletion: Option<Timestamp>,
    /// Grace period of the pod's spec, seconds.
    pub grace_seconds: Option<i64>,
    /// Succeeded or Failed.
    pub terminal: bool,
    /// Phase Running.
    pub running: bool,
    /// Condition Ready is True.
    pub ready: bool,
    /// Node it is bound to.
    pub node: Option<Arc<str>>,
    /// Node that preemption chose.
    pub nominated_node: Option<String>,
    /// Condition PodScheduled has reason `Unschedulable`.
    pub unschedulable: bool,
    /// Owner class.
    pub owner: Owner,
    /// Annotation `karpenter.sh/do-not-disrupt`.
    pub do_not_disrupt: DoNotDisrupt,
    /// Numeric priority.
    pub priority: i32,
    /// Priority class name.
    pub priority_class: String,
    /// Text of annotation `controller.kubernetes.io/pod-deletion-cost` or `karpenter.sh/disruption-cost`, whichever counts.
    pub cost_annotation: Option<String>,
    /// Effective requests: containers, init containers, sidecars, overhead, pod level; `pods` is 1.
    pub requests: Resources,
    /// `spec.nodeSelector` as written.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity terms, alternatives of each other; empty when there is none.
    pub required_terms: Vec<Term>,
    /// Preferred node affinity terms, as listed.
    pub preferences: Vec<Preference>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Hard constraints in the spec that the solver does not know yet; such a pod is refused with these as the reason.
    pub unsupported: Vec<&'static str>,
}

impl Pod {
    /// Reads a pod of the API.
    pub fn from_k8s(pod: &core::Pod) -> Self {
        let meta = &pod.metadata;
        let spec = pod.spec.clone().unwrap_or_default();
        let status = pod.status.clone().unwrap_or_default();
        let annotations = meta.annotations.clone().unwrap_or_default();
        let affinity = spec
            .affinity
            .clone()
            .unwrap_or_default()
            .node_affinity
            .unwrap_or_default();
        let condition = |kind: &str| status.conditions.iter().flatten().find(|c| c.type_ == kind);
        let phase = status.phase.as_deref().unwrap_or("Pending");
        Self {
            key: PodKey::new(
                meta.namespace.as_deref().unwrap_or("default"),
                meta.name.as_deref().unwrap_or_default(),
            ),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            created: meta
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            started: status.start_time.as_ref().map(|t| t.0),
            deletion: meta.deletion_timestamp.as_ref().map(|t| t.0),
            grace_seconds: spec.termination_grace_period_seconds,
            terminal: matches!(phase, "Succeeded" | "Failed"),
            running: phase == "Running",
            ready: condition("Ready").is_some_and(|c| c.status == "True"),
            node: spec
                .node_name
                .as_deref()
                .filter(|n| !n.is_empty())
                .map(Arc::from),
            nominated_node: status.nominated_node_name.clone().filter(|n| !n.is_empty()),
            unschedulable: condition("PodScheduled")
                .is_some_and(|c| c.reason.as_deref() == Some("Unschedulable")),
            owner: owner(meta.owner_references.as_deref().unwrap_or_default()),
            do_not_disrupt: do_not_disrupt(annotations.get(names::annotation::DO_NOT_DISRUPT)),
            priority: spec.priority.unwrap_or(0),
            priority_class: spec.priority_class_name.clone().unwrap_or_default(),
            cost_annotation: annotations
                .get(names::annotation::DISRUPTION_COST)
                .or_else(|| annotations.get(names::annotation::POD_DELETION_COST))
                .cloned(),
            requests: requests(&spec),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            required_terms: affinity
                .required_during_scheduling_ignored_during_execution
                .map(|s| s.node_selector_terms.iter().map(term).collect())
                .unwrap_or_default(),
            preferences: affinity
                .preferred_during_scheduling_ignored_during_execution
                .unwrap_or_default()
                .iter()
                .map(|p| Preference {
                    weight: p.weight,
                    term: term(&p.preference),
                })
                .collect(),
            tolerations: spec
                .tolerations
                .as_deref()
                .unwrap_or_default()
                .iter()
                .map(toleration)
                .collect(),
            unsupported: unsupported(&spec),
        }
    }

    /// Upstream's predicate (`spec/scheduling.md` 1.1): the scheduler has found no node, nobody is preempting for it, and it is
    /// neither a DaemonSet's nor a static pod.
    pub fn is_provisionable(&self) -> bool {
        self.unschedulable
            && self.node.is_none()
            && self.nominated_node.is_none()
            && !matches!(self.owner, Owner::DaemonSet(_) | Owner::Node)
    }

    /// Neither finished nor being deleted.
    pub fn is_active(&self) -> bool {
        !self.terminal && self.deletion.is_none()
    }

    /// Whether do-not-disrupt protects the pod at `now`; a duration counts from the start, and a pod not started is protected.
    pub fn is_protected(&self, now: Timestamp) -> bool {
        match &self.do_not_disrupt {
            DoNotDisrupt::Always => true,
            DoNotDisrupt::For(d) => self
                .started
                .is_none_or(|s| now.duration_since(s).as_nanos() < i128::from(d.0)),
            DoNotDisrupt::Unset | DoNotDisrupt::Invalid(_) => false,
        }
    }

    /// Tolerates `karpenter.sh/disrupted:NoSchedule`: such pods are never drained.
    pub fn tolerates_disruption(&self) -> bool {
        let taint = Taint {
            key: names::taint_key::DISRUPTED.to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        };
        self.tolerations.iter().any(|t| t.tolerates(&taint))
    }

    /// Whether losing its node makes the pod need another one (`spec/disruption-and-lifecycle.md` 2.3).
    pub fn is_reschedulable(&self) -> bool {
        let alive = self.is_active()
            || (!self.terminal
                && matches!(self.owner, Owner::StatefulSet(_))
                && self.deletion.is_some());
        alive && !matches!(self.owner, Owner::DaemonSet(_) | Owner::Node)
    }
}

fn owner(references: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]) -> Owner {
    let find = |api: &str, kind: &str| {
        references
            .iter()
            .find(|o| o.api_version == api && o.kind == kind)
    };
    if let Some(o) = find("apps/v1", "DaemonSet") {
        Owner::DaemonSet(o.uid.clone())
    } else if find("v1", "Node").is_some() {
        Owner::Node
    } else if let Some(o) = find("apps/v1", "StatefulSet") {
        Owner::StatefulSet(o.uid.clone())
    } else if let Some(o) = references.first() {
        Owner::Other(o.uid.clone())
    } else {
        Owner::None
    }
}

fn do_not_disrupt(value: Option<&String>) -> DoNotDisrupt {
    match value.map(String::as_str) {
        None => DoNotDisrupt::Unset,
        Some("true") => DoNotDisrupt::Always,
        Some(text) => match text.parse::<GoDuration>() {
            Ok(d) if d.0 > 0 => DoNotDisrupt::For(d),
            _ => DoNotDisrupt::Invalid(text.to_owned()),
        },
    }
}

fn term(term: &core::NodeSelectorTerm) -> Term {
    let expressions: Vec<Expression> = term
        .match_expressions
        .iter()
        .flatten()
        .map(|e| Expression {
            key: e.key.clone(),
            operator: e.operator.clone(),
            values: e.values.clone().unwrap_or_default(),
        })
        .collect();
    let requirements = expressions
        .iter()
        .map(|e| {
            let operator = Operator::parse(&e.operator)
                .ok_or_else(|| RequirementError::Operator(e.operator.clone()))?;
            Requirement::new(&e.key, operator, &e.values, None)
        })
        .collect::<Result<Requirements, _>>();
    let match_fields = term.match_fields.as_ref().is_some_and(|f| !f.is_empty());
    Term {
        expressions,
        match_fields,
        requirements,
    }
}

fn toleration(t: &core::Toleration) -> Toleration {
    Toleration {
        key: t.key.clone().unwrap_or_default(),
        operator: match t.operator.as_deref().unwrap_or("Equal") {
            "" | "Equal" => Tolerates::Equal,
            "Exists" => Tolerates::Exists,
            "Gt" => Tolerates::Gt,
            "Lt" => Tolerates::Lt,
            _ => Tolerates::Unknown,
        },
        value: t.value.clone().unwrap_or_default(),
        effect: t.effect.clone().unwrap_or_default(),
    }
}

/// kube-scheduler's sum: the larger of what runs together and what each init container needs on top of the sidecars before it,
/// pod-level requests replacing it where given, plus overhead. A limit without a request counts as the request.
fn requests(spec: &core::PodSpec) -> Resources {
    let of = |r: &Option<core::ResourceRequirements>| {
        let r = r.clone().unwrap_or_default();
        let mut all = r.limits.unwrap_or_default();
        all.extend(r.requests.unwrap_or_default());
        Resources::from_k8s(&all, Rounding::Up).unwrap_or_default()
    };
    let mut running = Resources::default();
    let mut most = Resources::default();
    for c in spec.init_containers.iter().flatten() {
        let mut here = of(&c.resources);
        if c.restart_policy.as_deref() == Some("Always") {
            running.add(&here);
            most.max_with(&running);
        } else {
            here.add(&running);
            most.max_with(&here);
        }
    }
    for c in &spec.containers {
        running.add(&of(&c.resources));
    }
    most.max_with(&running);
    let level = of(&spec.resources);
    for (name, amount) in level.iter() {
        most.set(name, amount);
    }
    if let Some(overhead) = &spec.overhead {
        most.add(&Resources::from_k8s(overhead, Rounding::Up).unwrap_or_default());
    }
    most.set(PODS, 1);
    most
}

fn unsupported(spec: &core::PodSpec) -> Vec<&'static str> {
    let mut all = Vec::new();
    let affinity = spec.affinity.clone().unwrap_or_default();
    if spec
        .topology_spread_constraints
        .iter()
        .flatten()
        .any(|c| c.when_unsatisfiable != "ScheduleAnyway")
    {
        all.push("topologySpreadConstraints");
    }
    if affinity.pod_affinity.is_some_and(|a| {
        a.required_during_scheduling_ignored_during_execution
            .is_some_and(|t| !t.is_empty())
    }) {
        all.push("podAffinity");
    }
    if affinity.pod_anti_affinity.is_some_and(|a| {
        a.required_during_scheduling_ignored_during_execution
            .is_some_and(|t| !t.is_empty())
    }) {
        all.push("podAntiAffinity");
    }
    if spec
        .volumes
        .iter()
        .flatten()
        .any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some())
    {
        all.push("volumes");
    }
    if spec
        .containers
        .iter()
        .flat_map(|c| c.ports.iter().flatten())
        .any(|p| p.host_port.is_some_and(|n| n > 0))
    {
        all.push("hostPorts");
    }
    if spec.resource_claims.as_ref().is_some_and(|c| !c.is_empty()) {
        all.push("resourceClaims");
    }
    all
}
