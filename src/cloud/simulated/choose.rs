//! Which offering a launch takes (`spec/ec2-provider.md` 4.2 and 4.3): filters, the preferred capacity type, then the cheapest.

use std::sync::Arc;

use crate::{
    api::{
        AmiStatus,
        names::label,
        requirement::{Operator, Requirement, Requirements},
    },
    cloud::{CapacityType, InstanceType, LaunchRequest},
};

/// Instance types that one launch call may name.
const MOST_TYPES: usize = 60;

/// An offering that a launch may take.
pub(super) struct Candidate<'a> {
    pub(super) instance_type: &'a Arc<InstanceType>,
    pub(super) zone: &'a Arc<str>,
    pub(super) capacity_type: CapacityType,
    pub(super) price: f64,
    pub(super) image: &'a str,
}

/// The offerings of the preferred capacity type that the request admits, cheapest first. Empty when nothing does.
pub(super) fn candidates<'a>(
    types: &'a [Arc<InstanceType>],
    request: &LaunchRequest,
    images: &'a [AmiStatus],
    is_exotic: impl Fn(&InstanceType) -> bool,
) -> Vec<Candidate<'a>> {
    let wanted = &request.requirements;
    let image_requirements: Vec<(&AmiStatus, Requirements)> =
        images.iter().map(|i| (i, requirements_of(i))).collect();
    let named_types = wanted.get(label::INSTANCE_TYPE);
    let mut found: Vec<Candidate<'a>> = Vec::new();
    for instance_type in types {
        if !named_types.is_none_or(|r| r.has(&instance_type.name))
            || !request.requests.fits_in(&instance_type.allocatable)
            || !meet(&instance_type.requirements, wanted)
        {
            continue;
        }
        let image = image_requirements
            .iter()
            .find(|(_, r)| meet(&instance_type.requirements, r));
        let Some((image, _)) = image else {
            continue;
        };
        let offerings = instance_type.offerings.iter();
        found.extend(
            offerings
                .filter(|o| o.is_launchable() && meet(&o.requirements, wanted))
                .map(|o| Candidate {
                    instance_type,
                    zone: &o.zone,
                    capacity_type: o.capacity_type,
                    price: o.price_per_hour,
                    image: &image.id,
                }),
        );
    }
    if wanted.iter().all(|r| r.min_values.is_none()) {
        if found.iter().any(|c| !is_exotic(c.instance_type)) {
            found.retain(|c| !is_exotic(c.instance_type));
        }
        drop_dear_spot(&mut found);
    }
    // Reserved before spot before on-demand.
    let preferred = found.iter().map(|c| c.capacity_type).min();
    found.retain(|c| Some(c.capacity_type) == preferred);
    found.sort_by(|a, b| {
        (a.price.total_cmp(&b.price))
            .then_with(|| a.instance_type.name.cmp(&b.instance_type.name))
            .then_with(|| a.zone.cmp(b.zone))
    });
    let mut named: Vec<&str> = Vec::new();
    found.retain(|c| {
        let name: &str = &c.instance_type.name;
        let known = named.contains(&name);
        if !known && named.len() < MOST_TYPES {
            named.push(name);
            return true;
        }
        known
    });
    found
}

/// [`Requirements::intersects`] for many types at once: stops at the first conflict and does not describe it.
fn meet(existing: &Requirements, wanted: &Requirements) -> bool {
    wanted.iter().all(|w| {
        existing
            .get(&w.key)
            .is_none_or(|e| e.overlaps(w) || (e.admits_absence() && w.admits_absence()))
    })
}

/// Where on-demand is allowed too, spot must not cost more than the cheapest on-demand offering of the request.
fn drop_dear_spot(found: &mut Vec<Candidate<'_>>) {
    let on_demand = found
        .iter()
        .filter(|c| c.capacity_type == CapacityType::OnDemand)
        .map(|c| c.price)
        .min_by(f64::total_cmp);
    if let Some(ceiling) = on_demand {
        found.retain(|c| c.capacity_type != CapacityType::Spot || c.price <= ceiling);
    }
}

fn requirements_of(image: &AmiStatus) -> Requirements {
    image
        .requirements
        .iter()
        .filter_map(|r| {
            let values = r.values.as_deref().unwrap_or_default();
            Requirement::new(&r.key, Operator::parse(&r.operator)?, values, None).ok()
        })
        .collect()
}

/// Labels of an instance: whatever has one value on the type, the offering's zone and capacity type, and the tenancy.
pub(super) fn labels(
    candidate: &Candidate<'_>,
    zone_id: &str,
    wanted: &Requirements,
) -> std::collections::BTreeMap<String, String> {
    let single = candidate.instance_type.requirements.iter();
    let mut all: std::collections::BTreeMap<String, String> = single
        .filter_map(|r| Some((r.key.to_string(), r.single()?.to_string())))
        .collect();
    let tenancy = match wanted.get(label::INSTANCE_TENANCY) {
        Some(r) if !r.has("default") => "dedicated",
        _ => "default",
    };
    for (key, value) in [
        (label::ZONE, &**candidate.zone),
        (label::ZONE_ID, zone_id),
        (label::CAPACITY_TYPE, candidate.capacity_type.as_str()),
        (label::INSTANCE_TENANCY, tenancy),
    ] {
        all.insert(key.to_owned(), value.to_owned());
    }
    all
}
