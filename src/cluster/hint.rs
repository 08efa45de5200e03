//! Hints: somebody saw something that may need a decision. The decision is always made from a snapshot.

use crate::cluster::PodKey;

/// Something worth looking at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The scheduler extender refused the last node that was left for a pod.
    PodWithoutNode(PodKey),
    /// An object of ours was admitted and will change.
    Admitted {
        /// Kind.
        kind: String,
        /// Name.
        name: String,
    },
}
