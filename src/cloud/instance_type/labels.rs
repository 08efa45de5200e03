//! Labels that nodes of a type have, as requirements (`spec/ec2-provider.md` 1.5).

use super::class::ClassView;
use crate::{
    api::{
        names::label,
        requirement::{Requirement, Requirements},
    },
    cloud::{
        CapacityType,
        catalog::Zone,
        hardware::{Arch, Hardware},
    },
};

/// The labels that follow from the hardware alone; `DoesNotExist` for those that it lacks. Of reservations there are none.
pub fn hardware_requirements(hardware: &Hardware) -> Requirements {
    let gpu = match hardware.gpus.as_slice() {
        [one] => Some(one),
        _ => None,
    };
    let accelerator = match (hardware.neuron.as_slice(), hardware.inference.as_slice()) {
        ([one], _) | ([], [one]) => Some(one),
        _ => None,
    };
    let family = hardware.family();
    let named = hardware.category_and_generation();
    let one = |value: &str| Some(value.to_owned());
    let values: [(&str, Option<String>); 24] = [
        (label::INSTANCE_TYPE, one(&hardware.name)),
        (label::ARCH, one(hardware.arch.as_str())),
        (label::INSTANCE_CPU, Some(hardware.vcpus.to_string())),
        (
            label::INSTANCE_MEMORY,
            Some(hardware.memory_mib.to_string()),
        ),
        (
            label::INSTANCE_CPU_MANUFACTURER,
            Some(kebab(&hardware.cpu_manufacturer)).filter(|m| !m.is_empty()),
        ),
        (
            label::INSTANCE_CPU_CLOCK_SPEED,
            Some(hardware.clock_mhz.to_string()),
        ),
        (
            label::INSTANCE_EBS_BANDWIDTH,
            hardware.ebs_mbps.map(|n| n.to_string()),
        ),
        (
            label::INSTANCE_NETWORK_BANDWIDTH,
            hardware.network_mbps.map(|n| n.to_string()),
        ),
        (label::INSTANCE_CATEGORY, named.and_then(|n| one(n.0))),
        (label::INSTANCE_GENERATION, named.and_then(|n| one(n.1))),
        (label::INSTANCE_FAMILY, one(family)),
        (label::INSTANCE_SIZE, one(hardware.size())),
        (
            label::INSTANCE_CAPABILITY_FLEX,
            Some(family.contains("-flex").to_string()),
        ),
        (
            label::INSTANCE_LOCAL_NVME,
            hardware
                .nvme
                .then(|| hardware.instance_store_gb.to_string()),
        ),
        (label::INSTANCE_HYPERVISOR, one(&hardware.hypervisor)),
        (
            label::INSTANCE_ENCRYPTION_IN_TRANSIT,
            Some(hardware.encryption_in_transit.to_string()),
        ),
        (label::INSTANCE_GPU_NAME, gpu.map(|g| kebab(&g.name))),
        (
            label::INSTANCE_GPU_MANUFACTURER,
            gpu.map(|g| kebab(&g.manufacturer)),
        ),
        (label::INSTANCE_GPU_COUNT, gpu.map(|g| g.count.to_string())),
        (
            label::INSTANCE_GPU_MEMORY,
            gpu.map(|g| g.memory_mib.to_string()),
        ),
        (
            label::INSTANCE_ACCELERATOR_NAME,
            accelerator.map(|a| kebab(&a.name)),
        ),
        (
            label::INSTANCE_ACCELERATOR_MANUFACTURER,
            accelerator.map(|_| "aws".to_owned()),
        ),
        (
            label::INSTANCE_ACCELERATOR_COUNT,
            accelerator.map(|a| a.count.to_string()),
        ),
        (label::CAPACITY_RESERVATION_ID, None),
    ];
    let mut all: Requirements = values
        .into_iter()
        .map(|(key, value)| Requirement::of(key, value))
        .collect();
    all.add(Requirement::of(
        label::INSTANCE_TENANCY,
        ["default", "dedicated"],
    ));
    for key in [
        label::CAPACITY_RESERVATION_TYPE,
        label::CAPACITY_RESERVATION_INTERRUPTIBLE,
    ] {
        all.add(Requirement::does_not_exist(key));
    }
    all
}

/// Adds the labels that follow from class and region: operating system, zones, capacity types.
pub(super) fn add_class_requirements(
    requirements: &mut Requirements,
    hardware: &Hardware,
    class: &ClassView,
    region: &str,
    zones: &[&Zone],
) {
    let os = match (class.family.is_windows(), hardware.arch) {
        (false, _) => Some("linux"),
        (true, Arch::Amd64) => Some("windows"),
        (true, Arch::Arm64) => None,
    };
    for requirement in [
        Requirement::of(label::OS, os),
        Requirement::of(label::WINDOWS_BUILD, class.family.windows_build()),
        Requirement::of(label::REGION, [region]),
        Requirement::of(label::ZONE, zones.iter().map(|z| &z.name)),
        Requirement::of(
            label::CAPACITY_TYPE,
            hardware
                .usage_classes
                .iter()
                .map(|c| CapacityType::as_str(*c)),
        ),
    ] {
        requirements.replace(requirement);
    }
    if !zones.is_empty() {
        requirements.replace(Requirement::of(label::ZONE_ID, zones.iter().map(|z| &z.id)));
    }
}

fn kebab(text: &str) -> String {
    text.to_ascii_lowercase().replace(' ', "-")
}
