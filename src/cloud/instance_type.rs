//! Instance types and their offerings, as the solver reads them, and how they follow from hardware and class.

pub mod capacity;
pub mod class;
pub mod compatibility;
pub mod labels;
pub mod overhead;
pub mod resolve;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    api::{
        names,
        requirement::{Requirement, Requirements},
    },
    units::{MEMORY, Resources},
};

/// How capacity is bought. Ordered by preference at launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// A capacity reservation.
    Reserved,
    /// Spot market.
    Spot,
    /// List price.
    OnDemand,
}

impl CapacityType {
    /// The value of label `karpenter.sh/capacity-type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// Reads the label value.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Reserved, Self::Spot, Self::OnDemand]
            .into_iter()
            .find(|c| c.as_str() == text)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One way to buy an instance type: zone and capacity type (and reservation) with a price.
#[derive(Clone, Debug, PartialEq)]
pub struct Offering {
    /// Zone name.
    pub zone: Arc<str>,
    /// Spot, on-demand or reserved.
    pub capacity_type: CapacityType,
    /// USD per hour.
    pub price_per_hour: f64,
    /// False while it is known to be out of stock or not sold in the class's zones.
    pub available: bool,
    /// Reservation id and remaining count.
    pub reservation: Option<(Arc<str>, u32)>,
    /// Zone, capacity type and reservation as requirements.
    pub requirements: Requirements,
}

impl Offering {
    /// An on-demand or spot offering with the requirements of its zone and capacity type.
    pub fn new(
        zone: &str,
        capacity_type: CapacityType,
        price_per_hour: f64,
        available: bool,
    ) -> Self {
        let requirements = Requirements::from_iter([
            Requirement::of(names::label::ZONE, [zone]),
            Requirement::of(names::label::CAPACITY_TYPE, [capacity_type.as_str()]),
        ]);
        Self {
            zone: zone.into(),
            capacity_type,
            price_per_hour,
            available,
            reservation: None,
            requirements,
        }
    }

    /// Whether a launch may use it now: available and, if reserved, with room.
    pub fn is_launchable(&self) -> bool {
        self.available
            && self
                .reservation
                .as_ref()
                .is_none_or(|(_, count)| *count > 0)
    }
}

/// An instance type as a node class resolves it.
#[derive(Clone, Debug)]
pub struct InstanceType {
    /// EC2 name, e.g. `m7g.large`.
    pub name: Arc<str>,
    /// Labels that a node of it has, as requirements; `DoesNotExist` for known labels that it lacks.
    pub requirements: Requirements,
    /// What the machine has.
    pub capacity: Resources,
    /// What the system keeps (kube-reserved, system-reserved, eviction threshold).
    pub overhead: Resources,
    /// Capacity minus overhead; may be negative when the overhead exceeds the machine, such a type never fits.
    pub allocatable: Resources,
    /// Every zone and capacity type, available or not.
    pub offerings: Vec<Offering>,
}

impl InstanceType {
    /// What pods may use of a machine: capacity less the system's share; huge pages are cut out of ordinary memory, down to nothing.
    pub fn allocatable_of(capacity: &Resources, overhead: &Resources) -> Resources {
        let mut allocatable = capacity.clone();
        allocatable.sub(overhead);
        let pages = capacity
            .iter()
            .filter(|(name, _)| name.starts_with("hugepages-"));
        let cut: i64 = pages.fold(0, |sum, (_, amount)| sum.saturating_add(amount));
        if cut > 0 {
            let memory = allocatable.get(MEMORY);
            allocatable.set(MEMORY, memory.saturating_sub(cut).max(0));
        }
        allocatable
    }

    /// The cheapest launchable offering that the requirements admit (well-known keys may be undefined), ties by zone then capacity type.
    pub fn cheapest(&self, requirements: &Requirements) -> Option<&Offering> {
        self.offerings
            .iter()
            .filter(|o| o.is_launchable() && requirements.intersects(&o.requirements).is_ok())
            .min_by(|a, b| {
                (a.price_per_hour.total_cmp(&b.price_per_hour))
                    .then_with(|| a.zone.cmp(&b.zone))
                    .then_with(|| a.capacity_type.cmp(&b.capacity_type))
            })
    }
}
