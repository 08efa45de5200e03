//! Settings, from arguments and environment. Everything that limits money or disruption is here or in the NodePools.
//! Must never: hold a secret, or be read again while the program runs.

use std::time::Duration;

use crate::{plan::brakes::Brakes, scheduling};

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Decide and act.
    #[default]
    Act,
    /// Decide and tell; never write to Kubernetes, never launch or terminate.
    Advise,
}

/// Settings of the product.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether decisions are carried out.
    pub mode: Mode,
    /// Cluster-wide brakes on launching.
    pub brakes: Brakes,
    /// The solver's settings.
    pub solver: scheduling::Options,
    /// Name of the component in events.
    pub component: String,
    /// Time-out of one cloud call. A launch that takes longer is repeated with the same token.
    pub cloud_timeout: Duration,
    /// Time-out of one Kubernetes call.
    pub api_timeout: Duration,
    /// After the first hint, planning waits until none came for this long ...
    pub settle_idle: Duration,
    /// ... but no longer than this.
    pub settle_most: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Act,
            brakes: Brakes::default(),
            solver: scheduling::Options::default(),
            component: "karpenter".to_owned(),
            // CreateFleet answers within seconds; a minute of silence is a lost connection.
            cloud_timeout: Duration::from_secs(60),
            api_timeout: Duration::from_secs(30),
            // A burst of pods arrives within milliseconds of each other; the first launch call is to follow within 100 ms.
            settle_idle: Duration::from_millis(20),
            settle_most: Duration::from_millis(80),
        }
    }
}
