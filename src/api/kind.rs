//! The kinds that admission knows.

use crate::api::names;

/// A kind of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `karpenter.sh/v1` NodePool.
    NodePool,
    /// `karpenter.sh/v1` NodeClaim.
    NodeClaim,
    /// `karpenter.k8s.aws/v1` EC2NodeClass.
    EC2NodeClass,
}

impl Kind {
    /// The kind of that name in that group and version; `None` if it is not one of ours.
    pub fn of(group: &str, version: &str, kind: &str) -> Option<Self> {
        [Self::NodePool, Self::NodeClaim, Self::EC2NodeClass]
            .into_iter()
            .find(|k| version == names::VERSION && group == k.group() && kind == k.as_str())
    }

    /// The kind of a manifest, by its `apiVersion` and `kind`.
    pub fn of_manifest(object: &serde_json::Value) -> Option<Self> {
        let (group, version) = object["apiVersion"].as_str()?.split_once('/')?;
        Self::of(group, version, object["kind"].as_str()?)
    }

    /// API group.
    pub fn group(self) -> &'static str {
        match self {
            Self::NodePool | Self::NodeClaim => names::GROUP,
            Self::EC2NodeClass => names::AWS_GROUP,
        }
    }

    /// Name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodePool => "NodePool",
            Self::NodeClaim => "NodeClaim",
            Self::EC2NodeClass => names::EC2_NODE_CLASS_KIND,
        }
    }
}
