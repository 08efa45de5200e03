//! What is known of the cluster. Events go in through [`State::apply`] (one writer owns it), an immutable [`Snapshot`] comes out.
//!
//! Objects are parsed once, at the border: amounts are integers, selectors are requirements. Readers never parse strings.
//! Must never: do I/O, read a clock, or be changed by two owners.

mod claim;
mod daemon;
mod event;
mod hint;
mod node;
mod pdb;
mod pod;
mod pool;
mod snapshot;
mod state;
mod state_node;

pub use claim::Claim;
pub use daemon::DaemonSet;
pub use event::{Event, Malformed};
pub use hint::Hint;
pub use node::{Node, Readiness};
pub use pdb::{DisruptionBudgetState, LabelSelector};
pub use pod::{DoNotDisrupt, Owner, Pod, PodKey, Preference, Term};
pub use pool::{Class, Pool};
pub use snapshot::{Catalog, Hold, Nomination, Snapshot};
pub use state::{State, WATCHED};
pub use state_node::StateNode;
