//! A machine: its Node, its NodeClaim, or both, read as one (`spec/scheduling.md` 1.4).

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    api::{names, taint::Taint},
    cluster::{Claim, Node, Pod, Snapshot},
    units::Resources,
};

/// A Node and its NodeClaim merged.
#[derive(Clone, Debug)]
pub struct StateNode {
    /// Node name once there is a Node, else the claim's name.
    pub name: Arc<str>,
    /// The Node.
    pub node: Option<Arc<Node>>,
    /// The NodeClaim; `None` for a node that is not ours.
    pub claim: Option<Arc<Claim>>,
    /// Being deleted, terminated or taken out by us: its capacity is gone and its pods need places.
    pub marked_for_deletion: bool,
    /// Unfinished pods bound to it.
    pub pods: Vec<Arc<Pod>>,
}

impl StateNode {
    pub(super) fn new(
        node: Option<Arc<Node>>,
        claim: Option<Arc<Claim>>,
        snapshot: &Snapshot,
    ) -> Self {
        let name = match (&node, &claim) {
            (Some(n), _) => n.name.clone(),
            (None, Some(c)) => c.name.clone(),
            (None, None) => "".into(),
        };
        let marked_for_deletion = match (&node, &claim) {
            (_, Some(c)) => {
                c.deletion.is_some()
                    || c.is(names::condition::INSTANCE_TERMINATING)
                    || (!c.provider_id.is_empty() && snapshot.leaving.contains(&c.provider_id))
            }
            (Some(n), None) => n.deletion.is_some(),
            (None, None) => false,
        };
        let pods = node
            .iter()
            .flat_map(|n| snapshot.pods_on(&n.name))
            .cloned()
            .collect();
        Self {
            name,
            node,
            claim,
            marked_for_deletion,
            pods,
        }
    }

    /// Whether Tenon manages it.
    pub fn is_managed(&self) -> bool {
        self.claim.is_some()
    }

    /// Managed: label `karpenter.sh/registered=true` is on the Node. Unmanaged nodes always are.
    pub fn is_registered(&self) -> bool {
        self.has_label(names::label::REGISTERED)
    }

    /// Managed: label `karpenter.sh/initialized=true` is on the Node. Unmanaged nodes always are.
    pub fn is_initialized(&self) -> bool {
        self.has_label(names::label::INITIALIZED)
    }

    fn has_label(&self, key: &str) -> bool {
        !self.is_managed()
            || self
                .node
                .as_ref()
                .is_some_and(|n| n.labels.get(key).is_some_and(|v| v == "true"))
    }

    /// Labels: the claim's until registered, the Node's afterwards; `kubernetes.io/hostname` is the node's name.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = match (&self.node, &self.claim) {
            (Some(n), Some(_)) if self.is_registered() => n.labels.clone(),
            (_, Some(c)) => c.labels.clone(),
            (Some(n), None) => n.labels.clone(),
            (None, None) => BTreeMap::new(),
        };
        labels
            .entry(names::label::HOSTNAME.to_owned())
            .or_insert_with(|| self.name.to_string());
        labels
    }

    /// Taints that count for placement. While a managed node starts, ephemeral and startup taints are expected to go and are left out.
    pub fn taints(&self) -> Vec<Taint> {
        let (taints, startup): (&[Taint], &[Taint]) = match (&self.node, &self.claim) {
            (Some(n), Some(c)) if self.is_registered() => (&n.taints, &c.startup_taints),
            (_, Some(c)) => (&c.taints, &c.startup_taints),
            (Some(n), None) => (&n.taints, &[]),
            (None, None) => (&[], &[]),
        };
        let rebooting = self
            .claim
            .as_ref()
            .is_some_and(|c| c.is(names::condition::REBOOTING));
        if self.is_managed() && (!self.is_initialized() || rebooting) {
            let expected = |t: &Taint| {
                t.is_ephemeral()
                    || (t.key == names::taint_key::REBOOTING && t.effect == "NoSchedule")
                    || startup.iter().any(|s| s.matches(t))
            };
            taints.iter().filter(|t| !expected(t)).cloned().collect()
        } else {
            taints.to_vec()
        }
    }

    /// Capacity; what a starting node does not report yet comes from its claim, and a claim that has not launched has its requests.
    pub fn capacity(&self) -> Resources {
        self.amounts(
            |n| &n.capacity,
            |c| {
                if c.provider_id.is_empty() {
                    &c.requests
                } else {
                    &c.capacity
                }
            },
        )
    }

    /// Allocatable; what a starting node does not report yet comes from its claim, and a claim that has not launched has its requests.
    pub fn allocatable(&self) -> Resources {
        self.amounts(
            |n| &n.allocatable,
            |c| {
                if c.provider_id.is_empty() {
                    &c.requests
                } else {
                    &c.allocatable
                }
            },
        )
    }

    fn amounts<'a>(
        &'a self,
        of_node: impl Fn(&'a Node) -> &'a Resources,
        of_claim: impl Fn(&'a Claim) -> &'a Resources,
    ) -> Resources {
        match (&self.node, &self.claim) {
            (Some(n), Some(c)) if !self.is_initialized() => {
                let mut all = of_node(n).clone();
                for (name, amount) in of_claim(c).iter() {
                    if all.get(name) == 0 {
                        all.set(name, amount);
                    }
                }
                all
            }
            (Some(n), _) => of_node(n).clone(),
            (None, Some(c)) => of_claim(c).clone(),
            (None, None) => Resources::default(),
        }
    }

    /// Allocatable minus the requests of the unfinished pods bound to it.
    pub fn available(&self) -> Resources {
        let mut available = self.allocatable();
        for pod in &self.pods {
            available.sub(&pod.requests);
        }
        available
    }
}
