//! Builds the cluster of a row from Kubernetes objects, through the border that production uses.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon::{
    api::{
        names::label,
        requirement::{Operator, Requirement, Requirements},
    },
    cloud::{CapacityType, InstanceType, Offering},
    cluster::{Event, State},
    scheduling::{MinValuesPolicy, NodeLimit, Options, PreferencePolicy, Problem},
    units::{Quantity, Resources, Rounding},
};

use super::rows::{File, NodeRow, PodRow, PoolRow, Row, Scalar, TypeRow};

/// The provider's key for reservations, which rows call `rid`.
const RESERVATION: &str = "example.com/reservation-id";

/// Replaces the file's short names of label keys.
pub(super) fn key(short: &str) -> &str {
    match short {
        "zone" => label::ZONE,
        "region" => label::REGION,
        "ct" => label::CAPACITY_TYPE,
        "it" => label::INSTANCE_TYPE,
        "arch" => label::ARCH,
        "os" => label::OS,
        "np" => label::NODEPOOL,
        "host" => label::HOSTNAME,
        "rid" => RESERVATION,
        other => other,
    }
}

fn created() -> Timestamp {
    "2026-12-01T00:00:00Z".parse().unwrap()
}

/// Two hours after everything was created.
pub(super) fn now() -> Timestamp {
    created() + SignedDuration::from_hours(2)
}

fn at(seconds: i64) -> String {
    (created() + SignedDuration::from_secs(seconds)).to_string()
}

/// A requirement string in parts: key, operator, values, minValues.
struct Parts {
    key: String,
    operator: String,
    values: Vec<String>,
    min_values: Option<u32>,
}

fn parts(text: &str) -> Parts {
    let mut words = text.split_whitespace();
    let mut parts = Parts {
        key: key(words.next().unwrap()).to_owned(),
        operator: words.next().unwrap().to_owned(),
        values: Vec::new(),
        min_values: None,
    };
    for word in words {
        match word.strip_prefix("min=") {
            Some(n) => parts.min_values = Some(n.parse().unwrap()),
            None => parts.values = word.split(',').map(str::to_owned).collect(),
        }
    }
    parts
}

/// A requirement string as the algebra reads it.
pub(super) fn requirement(text: &str) -> Requirement {
    let p = parts(text);
    Requirement::new(
        &p.key,
        Operator::parse(&p.operator).unwrap(),
        &p.values,
        p.min_values,
    )
    .unwrap()
}

fn expression(text: &str) -> Value {
    let p = parts(text);
    let mut e = json!({"key": p.key, "operator": p.operator, "values": p.values});
    if let Some(n) = p.min_values {
        e["minValues"] = n.into();
    }
    e
}

fn taint(text: &str) -> Value {
    let (name, effect) = text.rsplit_once(':').unwrap();
    match name.split_once('=') {
        Some((k, v)) => json!({"key": k, "value": v, "effect": effect}),
        None => json!({"key": name, "effect": effect}),
    }
}

fn taints(all: &[String]) -> Vec<Value> {
    all.iter().map(|t| taint(t)).collect()
}

fn toleration(text: &str) -> Value {
    if text == "*" {
        return json!({"operator": "Exists"});
    }
    let (name, effect) = text.split_once(':').unwrap_or((text, ""));
    let mut t = json!({});
    if !effect.is_empty() {
        t["effect"] = effect.into();
    }
    for (sign, operator) in [('=', "Equal"), ('>', "Gt"), ('<', "Lt")] {
        if let Some((k, v)) = name.split_once(sign) {
            t["key"] = k.into();
            t["operator"] = operator.into();
            t["value"] = v.into();
            return t;
        }
    }
    if !name.is_empty() {
        t["key"] = name.into();
    }
    t["operator"] = "Exists".into();
    t
}

fn labels(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    all.iter()
        .map(|(k, v)| (key(k).to_owned(), v.clone()))
        .collect()
}

fn amounts(all: &BTreeMap<String, Scalar>) -> BTreeMap<String, String> {
    all.iter()
        .map(|(k, v)| (k.clone(), v.to_string()))
        .collect()
}

/// Amounts as the solver counts them.
pub(super) fn resources(all: &BTreeMap<String, Scalar>) -> Resources {
    let read: BTreeMap<String, Quantity> = all
        .iter()
        .map(|(k, v)| (k.clone(), v.to_string().parse().unwrap()))
        .collect();
    Resources::from_quantities(read.iter().map(|(k, v)| (k.as_str(), v)), Rounding::Up)
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The pods of an entry: `count` copies named `name-0` and on.
pub(super) fn copies(row: &PodRow) -> Vec<String> {
    match row.count {
        None => vec![row.name.clone()],
        Some(n) => (0..n).map(|i| format!("{}-{i}", row.name)).collect(),
    }
}

fn pod(row: &PodRow, name: &str, node: Option<&str>) -> Value {
    let mut requests = amounts(&row.resources);
    requests.extend(row.cpu.iter().map(|c| ("cpu".to_owned(), c.to_string())));
    requests.extend(row.mem.iter().map(|m| ("memory".to_owned(), m.to_string())));
    let ns = row.ns.as_deref().unwrap_or("default");
    let uid = row.uid.clone().unwrap_or_else(|| {
        if node.is_some() {
            format!("bound-{name}")
        } else {
            name.to_owned()
        }
    });
    let mut metadata = json!({
        "name": name, "namespace": ns, "uid": uid, "labels": row.labels, "creationTimestamp": at(row.created),
    });
    if row.terminating {
        metadata["deletionTimestamp"] = at(7000).into();
    }
    if let Some(value) = &row.do_not_disrupt {
        metadata["annotations"] = json!({"karpenter.sh/do-not-disrupt": value.to_string()});
    }
    if let Some(kind) = &row.owner {
        let version = if kind == "Node" { "v1" } else { "apps/v1" };
        metadata["ownerReferences"] =
            json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "o"}]);
    }
    let mut terms: Vec<Value> = row
        .node_required
        .iter()
        .map(|t| json!({"matchExpressions": t.iter().map(|e| expression(e)).collect::<Vec<_>>()}))
        .collect();
    if row.match_fields {
        terms.push(
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}),
        );
    }
    let preferred: Vec<Value> = row
        .node_preferred
        .iter()
        .map(|p| {
            let all: Vec<Value> = p.m.iter().map(|e| expression(e)).collect();
            json!({"weight": p.w, "preference": {"matchExpressions": all}})
        })
        .collect();
    let mut node_affinity = json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred});
    if !terms.is_empty() {
        node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
    }
    let soft = |all: &[super::rows::AffinityRow]| -> Vec<Value> {
        let soft = all.iter().filter_map(|a| Some((a.w?, a)));
        soft.map(|(w, a)| {
            json!({"weight": w, "podAffinityTerm": {"topologyKey": key(&a.key), "labelSelector": {}}})
        })
        .collect()
    };
    let spread: Vec<Value> = row
        .spread
        .iter()
        .map(|s| {
            let when = s.when.as_deref().unwrap_or("DoNotSchedule");
            json!({
                "topologyKey": key(&s.key), "maxSkew": s.skew.unwrap_or(1), "whenUnsatisfiable": when,
                "labelSelector": {},
            })
        })
        .collect();
    let mut spec = json!({
        "containers": [{"name": "c", "resources": {"requests": requests}}],
        "nodeSelector": labels(&row.node_selector),
        "tolerations": row.tolerations.iter().map(|t| toleration(t)).collect::<Vec<_>>(),
        "topologySpreadConstraints": spread,
        "affinity": {
            "nodeAffinity": node_affinity,
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": soft(&row.pod_affinity)},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": soft(&row.pod_anti)},
        },
    });
    if let Some(node) = node {
        spec["nodeName"] = node.into();
    }
    if row.dra {
        spec["resourceClaims"] = json!([{"name": "d", "resourceClaimName": "d"}]);
    }
    let waits = node.is_none() && row.unschedulable != Some(false);
    let mut status = json!({
        "phase": row.phase.as_deref().unwrap_or(if node.is_some() { "Running" } else { "Pending" }),
        "conditions": [{
            "type": "PodScheduled",
            "status": if node.is_some() { "True" } else { "False" },
            "reason": if waits { "Unschedulable" } else { "" },
        }],
    });
    if node.is_some() {
        status["startTime"] = at(row.created).into();
    }
    if let Some(nominated) = &row.nominated_node {
        status["nominatedNodeName"] = nominated.clone().into();
    }
    json!({"metadata": metadata, "spec": spec, "status": status})
}

fn condition(kind: &str, status: bool) -> Value {
    let status = if status { "True" } else { "False" };
    json!({"type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": at(0)})
}

fn class_ref(name: &str) -> Value {
    json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name})
}

/// Each pool has a class of its own name, so that each can have its own list of types.
fn pool(row: &PoolRow) -> Value {
    let mut metadata =
        json!({"name": row.name, "uid": format!("pool-{}", row.name), "creationTimestamp": at(0)});
    if row.deleting {
        metadata["deletionTimestamp"] = at(7000).into();
    }
    let requirements: Vec<Value> = row.requirements.iter().map(|r| expression(r)).collect();
    let mut spec = json!({
        "limits": amounts(&row.limits),
        "template": {
            "metadata": {"labels": labels(&row.labels)},
            "spec": {
                "nodeClassRef": class_ref(&row.name),
                "requirements": requirements,
                "taints": taints(&row.taints),
                "startupTaints": taints(&row.startup_taints),
            },
        },
    });
    if row.weight != 0 {
        spec["weight"] = row.weight.into();
    }
    if let Some(replicas) = row.replicas {
        spec["replicas"] = replicas.into();
    }
    let status = json!({"conditions": [condition("Ready", row.ready.unwrap_or(true))]});
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata, "spec": spec, "status": status})
}

/// The Node of an entry, unless only its claim is there.
fn node(row: &NodeRow) -> Option<Value> {
    let state = row.state.as_deref().unwrap_or("initialized");
    if state == "launched" {
        return None;
    }
    let mut all = labels(&row.labels);
    all.insert(label::HOSTNAME.to_owned(), row.name.clone());
    if let Some(pool) = &row.nodepool {
        all.insert(label::NODEPOOL.to_owned(), pool.clone());
        all.entry(label::INSTANCE_TYPE.to_owned())
            .or_insert("unknown".to_owned());
        if state != "joined" {
            all.insert(label::REGISTERED.to_owned(), "true".to_owned());
        }
        if state == "initialized" {
            all.insert(label::INITIALIZED.to_owned(), "true".to_owned());
        }
    }
    let mut metadata = json!({
        "name": row.name, "uid": format!("node-{}", row.name), "labels": all, "creationTimestamp": at(0),
    });
    if row.deleting && row.nodepool.is_none() {
        metadata["deletionTimestamp"] = at(7000).into();
    }
    Some(json!({
        "metadata": metadata,
        "spec": {"providerID": format!("test:///{}", row.name), "taints": taints(&row.taints)},
        "status": {"allocatable": with_pods(&row.alloc), "capacity": capacity(row)},
    }))
}

fn with_pods(all: &BTreeMap<String, Scalar>) -> BTreeMap<String, String> {
    let mut all = amounts(all);
    all.entry("pods".to_owned()).or_insert("110".to_owned());
    all
}

fn capacity(row: &NodeRow) -> BTreeMap<String, String> {
    with_pods(row.capacity.as_ref().unwrap_or(&row.alloc))
}

/// The NodeClaim of a managed entry.
fn claim(row: &NodeRow) -> Option<Value> {
    let pool = row.nodepool.as_ref()?;
    let only = row.state.as_deref() == Some("launched");
    let mut all = labels(&row.labels);
    all.insert(label::NODEPOOL.to_owned(), pool.clone());
    all.entry(label::INSTANCE_TYPE.to_owned())
        .or_insert("unknown".to_owned());
    let name = if only {
        row.name.clone()
    } else {
        format!("{}-claim", row.name)
    };
    let mut metadata = json!({
        "name": name, "uid": format!("claim-{}", row.name), "labels": all, "creationTimestamp": at(0),
    });
    if row.deleting {
        metadata["deletionTimestamp"] = at(7000).into();
    }
    let alloc = row.claim_alloc.as_ref().unwrap_or(&row.alloc);
    let capacity = if row.claim_alloc.is_some() {
        with_pods(alloc)
    } else {
        capacity(row)
    };
    Some(json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": metadata,
        "spec": {
            "nodeClassRef": class_ref(pool),
            "requirements": [],
            "taints": if only { taints(&row.taints) } else { Vec::new() },
            "startupTaints": taints(&row.startup_taints),
        },
        "status": {
            "providerID": format!("test:///{}", row.name),
            "allocatable": with_pods(alloc),
            "capacity": capacity,
            "conditions": [condition("Rebooting", row.rebooting)],
        },
    }))
}

/// Offerings of `od|spot/<zones>@<price>[!off]`.
fn offerings(text: &str) -> Vec<Offering> {
    let (text, available) = text
        .strip_suffix("!off")
        .map_or((text, true), |t| (t, false));
    let (kind, rest) = text.split_once('/').unwrap();
    let (zones, price) = rest.split_once('@').unwrap();
    let kind = match kind {
        "od" => CapacityType::OnDemand,
        "spot" => CapacityType::Spot,
        other => panic!("unknown kind of offer {other}"),
    };
    let price: f64 = price.parse().unwrap();
    zones
        .split(',')
        .map(|zone| Offering::new(zone, kind, price, available))
        .collect()
}

fn instance_type(row: &TypeRow) -> InstanceType {
    let mut listed = row.resources.clone();
    listed.insert("cpu".to_owned(), row.cpu.clone());
    listed.insert("memory".to_owned(), row.mem.clone());
    listed.insert("pods".to_owned(), Scalar::Whole(row.pods.unwrap_or(110)));
    let (capacity, overhead) = (resources(&listed), resources(&row.overhead));
    let offerings: Vec<Offering> = row.offers.iter().flat_map(|o| offerings(o)).collect();
    let sold = || offerings.iter().filter(|o| o.available);
    let linux = vec!["linux".to_owned()];
    let mut requirements = Requirements::from_iter([
        Requirement::of(label::INSTANCE_TYPE, [&row.name]),
        Requirement::of(label::ARCH, [row.arch.as_deref().unwrap_or("amd64")]),
        Requirement::of(label::OS, row.os.as_ref().unwrap_or(&linux)),
        Requirement::of(label::ZONE, sold().map(|o| o.zone.clone())),
        Requirement::of(
            label::CAPACITY_TYPE,
            sold().map(|o| o.capacity_type.as_str()),
        ),
        Requirement::of("integer", [row.cpu.to_string()]),
    ]);
    for (name, value) in &row.labels {
        requirements.replace(Requirement::of(key(name), value));
    }
    InstanceType {
        name: row.name.as_str().into(),
        requirements,
        allocatable: InstanceType::allocatable_of(&capacity, &overhead),
        capacity,
        overhead,
        offerings,
    }
}

/// The settings of a row. Upstream counts a limit on nodes only at the start of a pass.
fn options(row: &Row) -> Options {
    Options {
        preferences: match row.options.preference_policy.as_deref() {
            Some("Ignore") => PreferencePolicy::Ignore,
            _ => PreferencePolicy::Respect,
        },
        min_values: match row.options.min_values_policy.as_deref() {
            Some("BestEffort") => MinValuesPolicy::BestEffort,
            _ => MinValuesPolicy::Strict,
        },
        node_limit: NodeLimit::AtStart,
        max_instance_types: row.options.max_instance_types.unwrap_or(600),
        extra_well_known: ["size", "integer", RESERVATION].map(Arc::from).to_vec(),
    }
}

/// The world of a row as a problem, and the state that it came from.
pub(super) fn problem(row: &Row, file: &File) -> (Problem, State) {
    let mut state = State::default();
    let mut tell = |event: Event| {
        state.apply(event, now());
    };
    for p in &row.nodepools {
        tell(Event::Pool(read(pool(p))));
        let all = row.types(file);
        let types = all.iter().filter(|t| {
            p.instance_types
                .as_ref()
                .is_none_or(|names| names.contains(&t.name))
        });
        let types = Arc::new(
            types
                .map(|t| Arc::new(instance_type(t)))
                .collect::<Vec<_>>(),
        );
        tell(Event::InstanceTypes {
            class: p.name.clone(),
            types,
        });
    }
    for d in &row.daemonsets {
        let template = pod(d, &d.name, None);
        tell(Event::DaemonSet(read(json!({
            "metadata": {"name": d.name, "namespace": "default", "uid": format!("set-{}", d.name)},
            "spec": {
                "selector": {},
                "template": {"metadata": {"labels": d.labels}, "spec": template["spec"].clone()},
            },
        }))));
    }
    for b in &row.pdbs {
        let mut spec = json!({"selector": {"matchLabels": b.sel}});
        for (name, value) in [
            ("maxUnavailable", &b.max_unavailable),
            ("minAvailable", &b.min_available),
        ] {
            if let Some(value) = value {
                spec[name] = value.clone();
            }
        }
        tell(Event::Budget(read(
            json!({"metadata": {"name": b.name, "namespace": "default"}, "spec": spec}),
        )));
    }
    for n in &row.existing_nodes {
        node(n).into_iter().for_each(|n| tell(Event::Node(read(n))));
        claim(n)
            .into_iter()
            .for_each(|c| tell(Event::Claim(read(c))));
        for p in &n.pods {
            copies(p)
                .iter()
                .for_each(|name| tell(Event::Pod(read(pod(p, name, Some(&n.name))))));
        }
    }
    for p in &row.pods {
        copies(p)
            .iter()
            .for_each(|name| tell(Event::Pod(read(pod(p, name, None)))));
    }
    let problem = Problem::from_snapshot(&state.snapshot(), now(), &options(row));
    (problem, state)
}
