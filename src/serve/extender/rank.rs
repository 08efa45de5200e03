//! Which nodes a pod may have and which it should have: pure look-ups by name in a snapshot, since a scheduler asks for every pod.

use std::sync::Arc;

use crate::{
    api::names,
    cluster::{Node, Nomination, Pod, PodKey, Snapshot},
    units::{CPU, MEMORY},
};

/// Score of the node that the plan chose, the most that a scheduler takes.
const PLANNED: i64 = 10;
/// Score of a full node that the plan did not choose.
const FULL: i64 = 9;

/// Why the pod may not go to the node: the node is leaving. Pods that tolerate the taint of leaving nodes stay on them to the end and
/// may come; nodes that we do not know are the scheduler's business.
pub(super) fn refusal(snapshot: &Snapshot, pod: &Pod, name: &str) -> Option<&'static str> {
    let node = snapshot.nodes.get(name)?;
    leaving(snapshot, node).filter(|_| !pod.tolerates_disruption())
}

fn leaving(snapshot: &Snapshot, node: &Node) -> Option<&'static str> {
    if node.deletion.is_some() {
        return Some("node is leaving: it is being deleted");
    }
    if node
        .taints
        .iter()
        .any(|t| t.key == names::taint_key::DISRUPTED)
    {
        return Some("node is leaving: it has taint karpenter.sh/disrupted");
    }
    if !node.provider_id.is_empty() && snapshot.leaving.contains(&node.provider_id) {
        return Some("node is leaving: it is being disrupted");
    }
    let claim = snapshot.claim_of(node)?;
    (claim.deletion.is_some() || claim.is(names::condition::INSTANCE_TERMINATING))
        .then_some("node is leaving: its NodeClaim is being deleted")
}

/// The node that the plan chose for the pod, once it is there.
pub(super) fn planned_node(snapshot: &Snapshot, pod: &PodKey) -> Option<Arc<str>> {
    match snapshot.nominations.get(pod)? {
        Nomination::Node(node) => Some(node.clone()),
        Nomination::Claim(claim) => {
            let claim = snapshot.claims.get(claim)?;
            snapshot.node_of(claim).map(|node| node.name.clone())
        }
    }
}

/// 10 for the planned node, else 0 to 9 by the fuller of CPU and memory: pods gather, so that other nodes can go.
pub(super) fn score(snapshot: &Snapshot, planned: Option<&str>, name: &str) -> i64 {
    if planned == Some(name) {
        return PLANNED;
    }
    let (Some(node), Some(requested)) = (snapshot.nodes.get(name), snapshot.requested.get(name))
    else {
        return 0;
    };
    [CPU, MEMORY]
        .into_iter()
        .map(|resource| {
            let (used, all) = (requested.get(resource), node.allocatable.get(resource));
            if all <= 0 {
                return 0;
            }
            let ninths = i128::from(used.max(0)) * i128::from(FULL) / i128::from(all);
            i64::try_from(ninths).map_or(FULL, |n| n.min(FULL))
        })
        .max()
        .unwrap_or(0)
}
