//! Instance types as a class sees them: labels, capacity, overhead and offerings together.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    InstanceType, Offering,
    capacity::capacity,
    class::{CapacityOptions, ClassView},
    compatibility::is_compatible,
    labels::{add_class_requirements, hardware_requirements},
    overhead::overhead,
};
use crate::{
    api::{
        names::label,
        requirement::{Requirement, Requirements},
    },
    cloud::{CapacityType, catalog::Zone, hardware::Hardware},
};

/// The market that offerings come from.
pub struct Market<'a> {
    /// Region name.
    pub region: &'a str,
    /// Every zone of the region, by name.
    pub zones: &'a [Zone],
    /// Price per hour in USD of a type in a zone; `None` when there is none, and the offering is not available.
    pub price: &'a dyn Fn(&Hardware, &Zone, CapacityType) -> Option<f64>,
}

/// Hardware with the requirements that follow from it, kept so that classes share them.
#[derive(Clone, Debug)]
pub struct Known {
    /// Facts.
    pub hardware: Hardware,
    /// Zones that sell it, by name.
    pub sold_in: Vec<Arc<str>>,
    requirements: Requirements,
}

impl Known {
    /// Works out the labels once.
    pub fn new(hardware: Hardware, sold_in: Vec<Arc<str>>) -> Self {
        Self {
            requirements: hardware_requirements(&hardware),
            hardware,
            sold_in,
        }
    }
}

/// Resolves one type for one class. There is an offering for each zone of the region and each usage class; it is available when the type
/// suits the class, is sold in the zone, the class has a subnet there and there is a price. Stock-outs are the provider's to add.
pub fn resolve(
    known: &Known,
    class: &ClassView,
    market: &Market<'_>,
    options: &CapacityOptions,
) -> InstanceType {
    let hardware = &known.hardware;
    let usable: Vec<&Zone> = class
        .zones
        .iter()
        .filter(|z| known.sold_in.contains(&z.name))
        .collect();
    let mut requirements = known.requirements.clone();
    add_class_requirements(&mut requirements, hardware, class, market.region, &usable);

    let capacity = capacity(hardware, class, options);
    let overhead = overhead(hardware, class, options, &capacity).total();
    let mut allocatable = capacity.clone();
    allocatable.sub(&overhead);

    let compatible = is_compatible(hardware, class);
    let with_subnet: BTreeSet<&str> = class.zones.iter().map(|z| &*z.name).collect();
    let mut offerings = Vec::with_capacity(market.zones.len() * hardware.usage_classes.len());
    for zone in market.zones {
        let reachable = compatible && usable.iter().any(|z| z.name == zone.name);
        for &capacity_type in &hardware.usage_classes {
            let price = (market.price)(hardware, zone, capacity_type);
            let mut offering = Offering::new(
                &zone.name,
                capacity_type,
                price.unwrap_or(0.0),
                reachable && price.is_some(),
            );
            if with_subnet.contains(&*zone.name) {
                let id = Requirement::of(label::ZONE_ID, [&zone.id]);
                offering.requirements.add(id);
            }
            offerings.push(offering);
        }
    }
    InstanceType {
        name: hardware.name.clone(),
        requirements,
        capacity,
        overhead,
        allocatable,
        offerings,
    }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
