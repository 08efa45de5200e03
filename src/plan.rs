//! Decisions as data. A [`Plan`] says what to do, to what, and why; [`crate::actuate`] carries it out and decides nothing.
//!
//! Must never: do I/O or read a clock. Everything that can launch, evict or delete is an [`Action`] here, so whoever asks what Tenon
//! can do to a cluster reads this one file.

pub mod brakes;
pub mod claim;
pub mod words;

use std::{fmt, sync::Arc};

use jiff::Timestamp;

use crate::{
    api::{Condition, NodeClaim},
    cluster::PodKey,
    units::Resources,
};

/// What an action is about. At most one action per target is under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A NodeClaim, by name.
    Claim(Arc<str>),
    /// A Node, by name.
    Node(Arc<str>),
    /// A pod.
    Pod(PodKey),
    /// A NodePool, by name.
    Pool(Arc<str>),
    /// A node class, by name.
    Class(Arc<str>),
    /// A cloud instance, by provider id.
    Instance(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(n) => write!(f, "nodeclaim/{n}"),
            Self::Node(n) => write!(f, "node/{n}"),
            Self::Pod(k) => write!(f, "pod/{k}"),
            Self::Pool(n) => write!(f, "nodepool/{n}"),
            Self::Class(n) => write!(f, "ec2nodeclass/{n}"),
            Self::Instance(n) => write!(f, "instance/{n}"),
        }
    }
}

/// How a pool's last launch ended, for its brake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchOutcome {
    /// The node registered.
    Registered,
    /// The launch or the registration timed out.
    Failed,
}

/// One thing to do. The first group costs money, the second takes nodes or pods away, the third only writes.
#[derive(Clone, Debug)]
pub enum Action {
    /// Create a NodeClaim, whose launch follows; pods are nominated to it.
    CreateClaim {
        /// The object, name chosen, finalizer set.
        claim: Box<NodeClaim>,
        /// Pods planned onto it.
        pods: Vec<PodKey>,
    },
    /// Ask the cloud for the claim's instance (idempotent by the claim's UID) and record it on the claim.
    Launch {
        /// Claim name.
        claim: Arc<str>,
    },

    /// Delete a NodeClaim; its finalizer drains the node and terminates the instance.
    DeleteClaim {
        /// Claim name.
        claim: Arc<str>,
        /// UID that must match.
        uid: String,
        /// Condition `DisruptionReason` to record first, for voluntary disruption.
        disruption: Option<&'static str>,
        /// What it says about the pool's health.
        outcome: Option<LaunchOutcome>,
    },
    /// Delete a Node; its finalizer drains it first.
    DeleteNode {
        /// Node name.
        node: Arc<str>,
        /// UID that must match.
        uid: String,
    },
    /// Evict a pod through the eviction API, which honours PodDisruptionBudgets.
    Evict {
        /// The pod.
        pod: PodKey,
        /// UID that must match.
        uid: String,
        /// Its node, for events.
        node: Arc<str>,
    },
    /// Delete a pod so that it is gone by the termination deadline, whatever budgets say.
    DeletePod {
        /// The pod.
        pod: PodKey,
        /// UID that must match.
        uid: String,
        /// Grace period in seconds, at least 1.
        grace_seconds: i64,
    },
    /// Ask the cloud to terminate the claim's instance; once it is gone, release the node and the claim.
    Terminate {
        /// Claim name.
        claim: Arc<str>,
        /// The node to release before the claim, when there is one.
        node: Option<Arc<str>>,
        /// Provider id; empty when the launch was never recorded: the instance is then looked for by token.
        provider_id: String,
        /// The claim's UID, the launch token.
        token: String,
    },
    /// Terminate an instance that no claim owns.
    TerminateOrphan {
        /// Provider id.
        provider_id: String,
    },

    /// Take the finalizer off a node, which lets it go.
    ReleaseNode {
        /// Node name.
        node: Arc<str>,
    },
    /// Look whether the instance of a node that is not Ready is gone, and if so release the node without a drain.
    ReleaseNodeIfInstanceGone {
        /// Node name.
        node: Arc<str>,
        /// Provider id.
        provider_id: String,
    },
    /// Add the finalizer to a claim.
    HoldClaim {
        /// Claim name.
        claim: Arc<str>,
    },
    /// Bring a node that joined into the fold: finalizer, owner, labels, taints; then Registered=True on the claim.
    Register {
        /// Claim name.
        claim: Arc<str>,
        /// Node name.
        node: Arc<str>,
    },
    /// Label the node initialized, then Initialized=True on the claim.
    Initialize {
        /// Claim name.
        claim: Arc<str>,
        /// Node name.
        node: Arc<str>,
    },
    /// Taint a node `karpenter.sh/disrupted:NoSchedule` and keep load balancers away.
    TaintNode {
        /// Node name.
        node: Arc<str>,
    },
    /// Write the termination deadline on a claim.
    SetDeadline {
        /// Claim name.
        claim: Arc<str>,
        /// The deadline.
        at: Timestamp,
    },
    /// Write conditions (whole list) and the last pod event of a claim.
    ClaimStatus {
        /// Claim name.
        claim: Arc<str>,
        /// The conditions as they should be.
        conditions: Vec<Condition>,
        /// `status.lastPodEventTime`, when it moved.
        last_pod_event: Option<Timestamp>,
    },
    /// Write status and hash of a NodePool.
    PoolStatus {
        /// Pool name.
        pool: Arc<str>,
        /// The conditions as they should be.
        conditions: Vec<Condition>,
        /// Resources in use.
        resources: Resources,
        /// Nodes in use.
        nodes: i64,
        /// Template hash.
        hash: String,
    },
}

impl Action {
    /// What it is about.
    pub fn target(&self) -> Target {
        match self {
            Self::CreateClaim { claim, .. } => {
                Target::Claim(claim.metadata.name.as_deref().unwrap_or_default().into())
            }
            Self::Launch { claim }
            | Self::DeleteClaim { claim, .. }
            | Self::Terminate { claim, .. }
            | Self::HoldClaim { claim }
            | Self::Register { claim, .. }
            | Self::Initialize { claim, .. }
            | Self::SetDeadline { claim, .. }
            | Self::ClaimStatus { claim, .. } => Target::Claim(claim.clone()),
            Self::DeleteNode { node, .. }
            | Self::ReleaseNode { node }
            | Self::ReleaseNodeIfInstanceGone { node, .. }
            | Self::TaintNode { node } => Target::Node(node.clone()),
            Self::Evict { pod, .. } | Self::DeletePod { pod, .. } => Target::Pod(pod.clone()),
            Self::TerminateOrphan { provider_id } => Target::Instance(provider_id.clone()),
            Self::PoolStatus { pool, .. } => Target::Pool(pool.clone()),
        }
    }

    /// Short verb for logs and metrics.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::CreateClaim { .. } => "create_claim",
            Self::Launch { .. } => "launch",
            Self::DeleteClaim { .. } => "delete_claim",
            Self::DeleteNode { .. } => "delete_node",
            Self::Evict { .. } => "evict",
            Self::DeletePod { .. } => "delete_pod",
            Self::Terminate { .. } => "terminate",
            Self::TerminateOrphan { .. } => "terminate_orphan",
            Self::ReleaseNode { .. } => "release_node",
            Self::ReleaseNodeIfInstanceGone { .. } => "release_node_if_instance_gone",
            Self::HoldClaim { .. } => "hold_claim",
            Self::Register { .. } => "register",
            Self::Initialize { .. } => "initialize",
            Self::TaintNode { .. } => "taint_node",
            Self::SetDeadline { .. } => "set_deadline",
            Self::ClaimStatus { .. } => "claim_status",
            Self::PoolStatus { .. } => "pool_status",
        }
    }
}

/// One step of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// What to do.
    pub action: Action,
    /// Why, in words that can be shown as they stand.
    pub reason: String,
}

/// Something to tell the user about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The object.
    pub about: Target,
    /// Event reason, one of `api::names::reason`.
    pub reason: &'static str,
    /// Whether it is a warning.
    pub warning: bool,
    /// The text.
    pub message: String,
}

/// What one look at one snapshot led to.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Revision of the snapshot it was made from.
    pub revision: u64,
    /// Steps; independent of each other, one per target.
    pub steps: Vec<Step>,
    /// Events to publish.
    pub notices: Vec<Notice>,
    /// When to look again even if nothing changes.
    pub wake_at: Option<Timestamp>,
}

impl Plan {
    /// An empty plan for a revision.
    pub fn new(revision: u64) -> Self {
        Self {
            revision,
            ..Self::default()
        }
    }

    /// Adds a step.
    pub fn step(&mut self, action: Action, reason: impl Into<String>) {
        self.steps.push(Step {
            action,
            reason: reason.into(),
        });
    }

    /// Adds something to tell.
    pub fn tell(
        &mut self,
        about: Target,
        reason: &'static str,
        warning: bool,
        message: impl Into<String>,
    ) {
        self.notices.push(Notice {
            about,
            reason,
            warning,
            message: message.into(),
        });
    }

    /// Looks again at `at` at the latest.
    pub fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |w| w.min(at)));
    }
}
