//! The effect of a launch call: an instance, or the reason why there is none.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    ADDRESSES, BOOT_TIME, Inner,
    choose::{self, Candidate},
    machine::{Booted, Machine},
    state::{Record, State},
};
use crate::{
    api::names::resource,
    cloud::{CapacityType, CloudError, ErrorClass, Instance, LaunchRequest},
    units::Resources,
};

impl Inner {
    /// The instant at which a launch takes effect.
    pub(super) fn make_instance(
        self: &Arc<Self>,
        request: &LaunchRequest,
    ) -> Result<Instance, CloudError> {
        let now = self.clock.now();
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(id) = state.tokens.get(&request.token) {
            return match state.instances.get(id) {
                Some(record) => Ok(record.instance.clone()),
                None => Err(launch_error(
                    "IdempotentInstanceTerminated",
                    format!("{id}, launched with this token, is gone"),
                )),
            };
        }
        if let Some(code) = state.faults.launch_error(request) {
            return Err(launch_error(&code, "injected"));
        }
        if request.class.metadata.deletion_timestamp.is_some() {
            let class = ErrorClass::InsufficientCapacity;
            let message = "the node class is being deleted";
            return Err(CloudError::new(
                "launch instance",
                class,
                "NodeClassTerminating",
                message,
            ));
        }
        let class = self.class(state, &request.class)?;
        if let Some((_, reason, message)) = class.resolved.problems.first() {
            let class = ErrorClass::ClassNotReady;
            return Err(CloudError::new("launch instance", class, reason, message));
        }
        let images = &class.resolved.status.amis;
        let candidates = choose::candidates(&class.current, request, images, |instance_type| {
            let known = self.types.get(&instance_type.name);
            known.is_some_and(|k| k.hardware.is_exotic())
        });
        let mut refused = None;
        for candidate in &candidates {
            match self.take(state, candidate, &request.token) {
                Ok(address) => {
                    return Ok(self.start(state, candidate, request, address, now));
                }
                Err(error) => {
                    let key = (
                        candidate.instance_type.name.clone(),
                        candidate.zone.clone(),
                        candidate.capacity_type,
                    );
                    state.mark_unavailable(key, now);
                    // Capacity that is missing anywhere outweighs a quota: another plan may do.
                    if refused
                        .as_ref()
                        .is_none_or(|e: &CloudError| e.class == ErrorClass::Quota)
                    {
                        refused = Some(error);
                    }
                }
            }
        }
        Err(refused.unwrap_or_else(|| {
            let message = "no offering that the request admits is available";
            launch_error("InsufficientInstanceCapacity", message)
        }))
    }

    /// Takes quota, stock and an address for a launch, or nothing.
    fn take(
        &self,
        state: &mut State,
        candidate: &Candidate<'_>,
        token: &str,
    ) -> Result<String, CloudError> {
        let capacity_type = candidate.capacity_type;
        let (name, zone) = (&candidate.instance_type.name, candidate.zone);
        let settings = self.config.vcpu_quota.get(&capacity_type).copied();
        let quota = match (settings, state.faults.vcpu_quota(capacity_type)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let vcpus = self.types.get(name).map_or(0, |k| k.hardware.vcpus);
        if quota.is_some_and(|most| state.vcpus(capacity_type).saturating_add(vcpus) > most) {
            let code = match capacity_type {
                CapacityType::Spot => "MaxSpotInstanceCountExceeded",
                _ => "VcpuLimitExceeded",
            };
            return Err(launch_error(
                code,
                format!("{name} would exceed the {capacity_type} vCPU quota"),
            ));
        }
        let Some(address) = self.free_address(state, zone, token) else {
            let message = format!("no free address in {zone}");
            return Err(launch_error("InsufficientFreeAddressesInSubnet", message));
        };
        if !state.faults.take_from_stock(name, zone, capacity_type) {
            let message = format!("no {capacity_type} capacity for {name} in {zone}");
            return Err(launch_error("InsufficientInstanceCapacity", message));
        }
        Ok(address)
    }

    /// An address of the zone's subnet that no machine has, drawn from the token.
    fn free_address(&self, state: &State, zone: &str, token: &str) -> Option<String> {
        let index = self.zones.iter().position(|z| *z.name == *zone)? as u64;
        let first = self.random(&["address", token]).between(0, ADDRESSES - 1);
        (0..ADDRESSES)
            .map(|step| {
                let host = index * 8192 + 4 + (first + step) % ADDRESSES;
                format!("10.0.{}.{}", host / 256 % 256, host % 256)
            })
            .find(|address| !state.addresses.contains(address))
    }

    /// Starts the machine for which everything has been taken.
    fn start(
        self: &Arc<Self>,
        state: &mut State,
        candidate: &Candidate<'_>,
        request: &LaunchRequest,
        address: String,
        now: Timestamp,
    ) -> Instance {
        let instance_type = candidate.instance_type;
        let zone = candidate.zone;
        let mut random = self.random(&["instance", &request.token]);
        let provider_id = loop {
            let id = format!("aws:///{zone}/i-{}", random.hex(17));
            if !state.instances.contains_key(&id) {
                break id;
            }
        };
        let zone_id = self.zones.iter().find(|z| z.name == *zone);
        let zone_id = zone_id.map_or("", |z| &z.id);
        let with_efa = has_efa(request);
        let amounts = |of: &Resources| {
            let mut of = of.clone();
            if !with_efa {
                of.remove(resource::AWS_EFA);
            }
            of
        };
        let instance = Instance {
            provider_id: provider_id.clone(),
            token: request.token.clone(),
            claim: request.claim.clone(),
            instance_type: instance_type.name.to_string(),
            zone: zone.to_string(),
            capacity_type: candidate.capacity_type,
            image: candidate.image.to_owned(),
            price_per_hour: candidate.price,
            launched: now,
            terminating: false,
            labels: choose::labels(candidate, zone_id, &request.requirements),
            capacity: amounts(&instance_type.capacity),
            allocatable: amounts(&instance_type.allocatable),
        };
        let booted = Booted::new(
            &instance,
            request,
            address.clone(),
            &self.config.kubernetes_version,
        );
        let known = self.types.get(&instance_type.name);
        let record = Record {
            vcpus: known.map_or(0, |k| k.hardware.vcpus),
            node_name: booted.node_name.clone(),
            kubelet: (!state.faults.never_registers(request)).then_some(booted),
            instance: instance.clone(),
        };
        state.addresses.insert(address);
        state
            .tokens
            .insert(request.token.clone(), provider_id.clone());
        state.instances.insert(provider_id.clone(), record);
        state.ledger.launched += 1;
        let boot = self.random(&["boot", &request.token]).time(BOOT_TIME);
        self.later(boot, move |inner| {
            let state = inner.state();
            let record = state.instances.get(&provider_id);
            let running = record.filter(|r| !r.instance.terminating);
            let kubelet = running.and_then(|r| r.kubelet.clone());
            kubelet
                .map(|k| Machine::Booted(Box::new(k)))
                .into_iter()
                .collect()
        });
        instance
    }
}

fn launch_error(code: &str, message: impl Into<String>) -> CloudError {
    CloudError::new("launch instance", ErrorClass::of_code(code), code, message)
}

/// Whether the instance gets fabric adapters: the class lists some, or something asks for them.
fn has_efa(request: &LaunchRequest) -> bool {
    let interfaces = request.class.spec.network_interfaces.iter().flatten();
    request.requests.get(resource::AWS_EFA) > 0
        || interfaces
            .into_iter()
            .any(|i| i.interface_type == "efa-only")
}
