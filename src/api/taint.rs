//! Taints and tolerations as placement sees them.

use std::fmt;

/// A node's taint. Identity is key and effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// Taint key.
    pub key: String,
    /// Value, often empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl Taint {
    /// Same key and effect: the identity that Kubernetes uses.
    pub fn matches(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}:{}", self.key, self.effect)
        } else {
            write!(f, "{}={}:{}", self.key, self.value, self.effect)
        }
    }
}

/// How a toleration compares a taint's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tolerates {
    /// Any value.
    Exists,
    /// The same value.
    Equal,
    /// Taint value is an integer greater than the toleration's.
    Gt,
    /// Taint value is an integer less than the toleration's.
    Lt,
    /// An operator that Kubernetes does not know: tolerates nothing.
    Unknown,
}

/// A pod's toleration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// Key; empty with `Exists` means every key.
    pub key: String,
    /// Comparison.
    pub operator: Tolerates,
    /// Value for the comparison.
    pub value: String,
    /// Effect; empty means every effect.
    pub effect: String,
}

impl Toleration {
    /// Tolerates everything.
    pub fn everything() -> Self {
        Self {
            key: String::new(),
            operator: Tolerates::Exists,
            value: String::new(),
            effect: String::new(),
        }
    }

    /// Kubernetes' rule, with the numeric operators (`spec/scheduling.md` 3.6).
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if !self.effect.is_empty() && self.effect != taint.effect {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        let numbers = || {
            Some((
                taint.value.parse::<i64>().ok()?,
                self.value.parse::<i64>().ok()?,
            ))
        };
        match self.operator {
            Tolerates::Exists => true,
            Tolerates::Equal => !self.key.is_empty() && self.value == taint.value,
            Tolerates::Gt => numbers().is_some_and(|(t, v)| t > v),
            Tolerates::Lt => numbers().is_some_and(|(t, v)| t < v),
            Tolerates::Unknown => false,
        }
    }
}

/// The taints that none of the tolerations covers.
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Vec<&'a Taint> {
    taints
        .iter()
        .filter(|t| !tolerations.iter().any(|o| o.tolerates(t)))
        .collect()
}

impl Taint {
    /// Taints that a starting node carries for a while: they block initialization, and placement expects them to go
    /// (`spec/disruption-and-lifecycle.md` 0.1).
    pub fn is_ephemeral(&self) -> bool {
        use crate::api::names::{taint_effect, taint_key};
        let known = [
            (taint_key::NOT_READY, taint_effect::NO_SCHEDULE),
            (taint_key::NOT_READY, taint_effect::NO_EXECUTE),
            (taint_key::UNREACHABLE, taint_effect::NO_SCHEDULE),
            (taint_key::CLOUD_UNINITIALIZED, taint_effect::NO_SCHEDULE),
            (taint_key::UNREGISTERED, taint_effect::NO_EXECUTE),
        ];
        known.contains(&(self.key.as_str(), self.effect.as_str()))
            || self.key.starts_with(taint_key::READINESS_PREFIX)
    }
}
