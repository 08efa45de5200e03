//! Pods that are alike to the scheduler's own filters, so that what is found out for one holds for all.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use serde_json::Value;

use super::cache::{Cache, Demand, NodeInfo};
use super::fit::Constraints;
use crate::{api::taint::Taint, cluster, units};

/// Why a node does not do, in kube-scheduler's words.
pub(super) type Reasons = Arc<[String]>;

/// What makes a node better than another, before it is set in relation to the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Merits {
    /// Weights of the preferred affinity terms that match.
    pub(super) preference: i64,
    /// Soft taints that the pod does not tolerate.
    pub(super) unwelcome: i64,
    /// 0 to 100, the emptier the higher.
    pub(super) least_allocated: i64,
    /// 0 to 100, the more alike the shares of CPU and memory the higher.
    pub(super) balanced: i64,
}

/// What the filters and scores say of one node.
pub(super) type Verdict = Result<Merits, Reasons>;

/// One class of pods.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) constraints: Constraints,
    pub(super) demand: Arc<Demand>,
    /// Verdicts by slot, each with the stamp of the node it is about.
    verdicts: Vec<Option<(u64, Verdict)>>,
    /// The state of the cluster in which no node did, and the message.
    pub(super) refused: Option<(u64, Arc<str>)>,
    /// How many pending pods are of this class.
    members: usize,
}

impl Class {
    /// The verdict on a node, made anew only if the node has changed.
    pub(super) fn verdict(&mut self, slot: usize, info: &NodeInfo) -> &Verdict {
        if self.verdicts.len() <= slot {
            self.verdicts.resize_with(slot + 1, || None);
        }
        let known = matches!(&self.verdicts[slot], Some((stamp, _)) if *stamp == info.stamp);
        if !known {
            self.verdicts[slot] = Some((info.stamp, judge(&self.constraints, &self.demand, info)));
        }
        match &self.verdicts[slot] {
            Some((_, verdict)) => verdict,
            None => unreachable!("filled in just above"),
        }
    }
}

/// The classes of the pending pods.
#[derive(Debug, Default)]
pub(super) struct Classes {
    list: Vec<Class>,
    by_likeness: BTreeMap<String, usize>,
    unused: Vec<usize>,
}

impl Classes {
    pub(super) fn get(&mut self, class: usize) -> &mut Class {
        &mut self.list[class]
    }

    /// The class of a pod, which counts as a member until [`Classes::leave`].
    pub(super) fn join(&mut self, value: &Value) -> Result<usize, serde_json::Error> {
        let likeness = likeness(&value["spec"]);
        if let Some(class) = self.by_likeness.get(&likeness) {
            self.list[*class].members += 1;
            return Ok(*class);
        }
        let (demand, constraints) = read(value)?;
        let class = Class {
            constraints,
            demand: Arc::new(demand),
            verdicts: Vec::new(),
            refused: None,
            members: 1,
        };
        let at = self.unused.pop().unwrap_or(self.list.len());
        if at == self.list.len() {
            self.list.push(class);
        } else {
            self.list[at] = class;
        }
        self.by_likeness.insert(likeness, at);
        Ok(at)
    }

    /// Takes a pod out of its class; a class without pods is forgotten.
    pub(super) fn leave(&mut self, class: usize) {
        let members = &mut self.list[class].members;
        *members = members.saturating_sub(1);
        if *members == 0 {
            self.by_likeness.retain(|_, at| *at != class);
            self.unused.push(class);
        }
    }
}

/// The amounts of a pod that is bound already.
pub(super) fn demand(value: &Value) -> Result<Demand, serde_json::Error> {
    read(value).map(|(demand, _)| demand)
}

fn read(value: &Value) -> Result<(Demand, Constraints), serde_json::Error> {
    let typed: core::Pod = serde::Deserialize::deserialize(value)?;
    let pod = cluster::Pod::from_k8s(&typed);
    let spec = typed.spec.unwrap_or_default();
    let demand = Demand::new(pod.requests, &spec);
    Ok((demand, Constraints::new(&spec, pod.tolerations)))
}

/// The text of all that the filters look at; equal texts, equal verdicts.
fn likeness(spec: &Value) -> String {
    let mut parts = vec![
        &spec["nodeSelector"],
        &spec["tolerations"],
        &spec["overhead"],
        &spec["resources"],
        &spec["affinity"]["nodeAffinity"],
    ];
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array().into_iter().flatten() {
            parts.extend([&container["restartPolicy"], &container["resources"]]);
        }
        // Ends the list: one init container and two containers are not two and one.
        parts.push(&Value::Bool(true));
    }
    let texts: Vec<String> = parts.into_iter().map(Value::to_string).collect();
    texts.join("\n")
}

/// The filters in kube-scheduler's order, the first that fails deciding, then the scores.
fn judge(constraints: &Constraints, demand: &Demand, info: &NodeInfo) -> Verdict {
    let refuse = |reason: String| Err(Reasons::from([reason]));
    let Some(node) = &info.node else {
        return refuse("node(s) not found".to_owned());
    };
    if node.cordoned && !constraints.tolerates(&cordon()) {
        return refuse("node(s) were unschedulable".to_owned());
    }
    if let Some(taint) = constraints.kept_off_by(&node.taints) {
        let (key, value) = (&taint.key, &taint.value);
        return refuse(format!("node(s) had untolerated taint {{{key}: {value}}}"));
    }
    if !constraints.selects(&node.name, &node.labels) {
        return refuse("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    let lacking: Vec<String> = (demand.requests.iter())
        .filter(|(name, amount)| *amount > 0 && *amount > info.free.get(name))
        .map(|(name, _)| match name {
            units::PODS => "Too many pods".to_owned(),
            name => format!("Insufficient {name}"),
        })
        .collect();
    if !lacking.is_empty() {
        return Err(lacking.into());
    }
    let cpu = node.allocatable.get(units::CPU);
    let memory = node.allocatable.get(units::MEMORY);
    let left = |has: i64, taken: i64| match has {
        has if has <= 0 || taken > has => 0,
        has => (has - taken) * 100 / has,
    };
    let requested = |name: &str| info.requested.get(name) + demand.requests.get(name);
    let (cpu_share, memory_share) = (
        share(requested(units::CPU), cpu),
        share(requested(units::MEMORY), memory),
    );
    Ok(Merits {
        preference: constraints.preference(&node.name, &node.labels),
        unwelcome: constraints.unwelcome(&node.taints),
        least_allocated: i64::midpoint(
            left(cpu, info.scored_cpu + demand.scored_cpu),
            left(memory, info.scored_memory + demand.scored_memory),
        ),
        // The standard deviation of two shares is half their distance; in tenths of a percent to stay in integers.
        balanced: (1000 - (cpu_share - memory_share).abs() / 2) / 10,
    })
}

/// What is taken of what there is, in thousandths, at most all of it.
fn share(taken: i64, has: i64) -> i64 {
    if has <= 0 {
        return 1000;
    }
    (taken.saturating_mul(1000) / has).clamp(0, 1000)
}

/// The taint that stands for `spec.unschedulable`.
fn cordon() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    }
}

/// kube-scheduler's message: how many nodes have which reasons, sorted as texts.
pub(super) fn message<'a>(nodes: usize, reasons: impl Iterator<Item = (&'a str, usize)>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, count) in reasons {
        *counts.entry(reason).or_default() += count;
    }
    let mut parts: Vec<String> = counts.iter().map(|(r, n)| format!("{n} {r}")).collect();
    parts.sort();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

/// What the filters found: nodes that do, by slot, with their merits, and why the others do not.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) feasible: Vec<(usize, Merits)>,
    pub(super) refusals: Vec<Reasons>,
    /// Nodes that were not looked at because the pod names others.
    pub(super) not_named: usize,
    /// How many nodes were looked at.
    pub(super) seen: usize,
}

/// Looks for nodes from the `start`th on, round and round, until `enough` do.
pub(super) fn find(class: &mut Class, cache: &Cache, start: usize, enough: usize) -> Found {
    let mut found = Found::default();
    let order = cache.order();
    let named: Option<Vec<usize>> = class
        .constraints
        .names()
        .map(|names| names.iter().filter_map(|n| cache.slot(n)).collect());
    let slots: Box<dyn Iterator<Item = usize>> = match named {
        Some(slots) => {
            found.not_named = order.len() - slots.len();
            Box::new(slots.into_iter())
        }
        None => {
            let at = start % order.len().max(1);
            Box::new(order[at..].iter().chain(&order[..at]).copied())
        }
    };
    for slot in slots {
        if found.feasible.len() >= enough {
            break;
        }
        found.seen += 1;
        match class.verdict(slot, cache.info(slot)) {
            Ok(merits) => found.feasible.push((slot, *merits)),
            Err(reasons) => found.refusals.push(reasons.clone()),
        }
    }
    found
}
