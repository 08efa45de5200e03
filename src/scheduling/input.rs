//! From a snapshot to a problem: who waits, what stays, which pools take part (`spec/scheduling.md` 1.1 to 1.5).

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Ignored, Options, Problem, Refusal, classes::selector};
use crate::{
    api::{
        names::{self, label},
        requirement::{Operator, Requirements},
    },
    cloud::CapacityType,
    cluster::{Owner, Pod, Snapshot},
};

impl Problem {
    /// The pods that need a place at `now`: those that the scheduler gave up on and those of machines that are going. Machines that stay,
    /// launched or not, are where they may go, beside new nodes of the usable pools.
    pub fn from_snapshot(snapshot: &Snapshot, now: Timestamp, options: &Options) -> Self {
        let mut problem = Self {
            pods: Vec::new(),
            nodes: Vec::new(),
            pools: Vec::new(),
            refusing: Vec::new(),
            usage: snapshot.pool_usage(),
            daemons: snapshot
                .daemon_sets
                .values()
                .map(|d| d.pod.clone())
                .collect(),
            nominations: snapshot
                .nominations
                .iter()
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
            ignored: BTreeMap::new(),
            options: options.clone(),
        };
        for pod in snapshot.unbound.iter().filter_map(|k| snapshot.pods.get(k)) {
            match refused_before_trying(pod, options) {
                Some(why) => {
                    problem.ignored.insert(pod.key.clone(), why);
                }
                None => problem.pods.push(pod.clone()),
            }
        }
        for node in snapshot.state_nodes() {
            if node.marked_for_deletion {
                problem.pods.extend(
                    node.pods
                        .iter()
                        .filter(|p| must_move(p, snapshot, now))
                        .cloned(),
                );
            } else {
                problem.nodes.push(node);
            }
        }
        for pool in snapshot.pools.values().filter(|p| p.is_usable()) {
            let hold = snapshot
                .held_pools
                .get(&*pool.name)
                .filter(|h| h.until > now);
            let catalog = snapshot
                .catalogs
                .get(&*pool.class)
                .filter(|c| !c.is_empty());
            match (hold, catalog) {
                (Some(hold), _) => problem
                    .refusing
                    .push((pool.clone(), Refusal::Held(hold.until))),
                (None, None) => problem.refusing.push((pool.clone(), Refusal::NoCatalog)),
                (None, Some(catalog)) => problem.pools.push((pool.clone(), catalog.clone())),
            }
        }
        problem
            .pools
            .sort_by(|(a, _), (b, _)| b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name)));
        problem
    }
}

/// Whether a pod on a machine that is going needs a place now: protected pods and pods whose budget never lets them go stay until the end.
fn must_move(pod: &Pod, snapshot: &Snapshot, now: Timestamp) -> bool {
    if !pod.is_reschedulable() || pod.is_protected(now) {
        return false;
    }
    let evictable =
        pod.is_active() && !pod.tolerates_disruption() && !matches!(pod.owner, Owner::Node);
    if !evictable {
        return true;
    }
    let mut budgets = snapshot.budgets.values().filter(|b| b.covers(pod));
    match (budgets.next(), budgets.next()) {
        (None, _) => true,
        (Some(_), Some(_)) => false,
        (Some(only), None) => !only.never_allows || (only.always_allows_unhealthy && !pod.ready),
    }
}

/// Why a pod that waits is not tried at all.
fn refused_before_trying(pod: &Pod, options: &Options) -> Option<Ignored> {
    if !pod.is_provisionable() {
        return Some(Ignored::NotProvisionable);
    }
    if opts_out(pod) {
        return Some(Ignored::OptedOut);
    }
    let restricted = |key: &str| {
        names::is_restricted_key(names::normalize_key(key))
            && !options.extra_well_known.iter().any(|k| **k == *key)
    };
    for (key, value) in &pod.node_selector {
        if restricted(key) {
            return Some(Ignored::RestrictedLabel(key.clone()));
        }
        if let Some(problem) = unreadable(key, [value]) {
            return Some(Ignored::Malformed(problem));
        }
        if let Some(unknown) = unknown_value(key, "In", std::slice::from_ref(value)) {
            return Some(unknown);
        }
    }
    for term in &pod.required_terms {
        if term.match_fields {
            return Some(Ignored::MatchFields);
        }
        for e in &term.expressions {
            if restricted(&e.key) {
                return Some(Ignored::RestrictedLabel(e.key.clone()));
            }
            if let Some(problem) = unreadable(&e.key, &e.values) {
                return Some(Ignored::Malformed(problem));
            }
        }
        if let Err(problem) = &term.requirements {
            return Some(Ignored::Malformed(problem.to_string()));
        }
        if let Some(unknown) = term
            .expressions
            .iter()
            .find_map(|e| unknown_value(&e.key, &e.operator, &e.values))
        {
            return Some(unknown);
        }
    }
    None
}

/// Whether the selector, the first required term and the heaviest preference together rule out the pool label. Upstream lets a mere
/// preference count here.
fn opts_out(pod: &Pod) -> bool {
    let mut set: Requirements = selector(pod);
    let heaviest = pod
        .preferences
        .iter()
        .rev()
        .max_by_key(|p| p.weight)
        .map(|p| &p.term);
    for term in pod.required_terms.first().into_iter().chain(heaviest) {
        if let Ok(requirements) = &term.requirements {
            set.add_all(requirements);
        }
    }
    set.get(label::NODEPOOL)
        .is_some_and(|r| r.operator() == Operator::DoesNotExist)
}

/// A capacity type that nobody sells, unless a known one is listed beside it.
fn unknown_value(key: &str, operator: &str, values: &[String]) -> Option<Ignored> {
    let known = values.iter().any(|v| CapacityType::parse(v).is_some());
    (key == label::CAPACITY_TYPE && operator == "In" && !known)
        .then(|| Ignored::UnknownValue(format!("{key} In {}", values.join(","))))
}

/// What is wrong with a label key or its values, by Kubernetes' rules.
fn unreadable<'a>(key: &str, values: impl IntoIterator<Item = &'a String>) -> Option<String> {
    if !is_qualified_name(key) {
        return Some(format!("{key:?} is not a label key"));
    }
    let bad = values.into_iter().find(|v| !v.is_empty() && !is_name(v));
    bad.map(|v| format!("{v:?} is not a value of label {key}"))
}

fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((domain, name)) => {
            is_name(name) && domain.len() <= 253 && domain.split('.').all(is_dns_label)
        }
    }
}

/// At most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

fn is_dns_label(text: &str) -> bool {
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(inner)
        && bytes.last().is_some_and(inner)
        && bytes.iter().all(|b| inner(b) || *b == b'-')
}
