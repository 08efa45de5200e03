//! What a machine has (`spec/ec2-provider.md` 1.2).

use super::class::{CapacityOptions, ClassView};
use crate::{
    api::names::resource,
    cloud::{ami_family::AmiFamily, hardware::Hardware},
    units::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources},
};

const MIB: i64 = 1 << 20;

/// Capacity of a node of this type and class. Resources of which there are none are left out.
pub fn capacity(hardware: &Hardware, class: &ClassView, options: &CapacityOptions) -> Resources {
    let mut all = Resources::new();
    all.set(CPU, i64::from(hardware.vcpus) * 1000);
    all.set(MEMORY, memory_mib(hardware, options) * MIB);
    all.set(EPHEMERAL_STORAGE, ephemeral_storage(hardware, class));
    all.set(PODS, pods(hardware, class, options));
    let gpus = |manufacturer: &str| {
        let of_it = hardware.gpus.iter();
        of_it
            .filter(|g| g.manufacturer == manufacturer)
            .map(|g| i64::from(g.count))
            .sum()
    };
    let neuron = hardware.neuron.iter().map(|d| i64::from(d.count)).sum();
    let neuron_cores = hardware
        .neuron
        .first()
        .map_or(0, |d| i64::from(d.count) * i64::from(d.cores));
    let efa = match &class.interfaces {
        Some(_) => class.efa_only(None),
        None => i64::from(hardware.efa),
    };
    let private_ipv4 = if class.family.is_windows() {
        i64::from(hardware.ipv4_per_eni) - 1
    } else {
        0
    };
    for (name, count) in [
        (resource::NVIDIA_GPU, gpus("NVIDIA")),
        (resource::AMD_GPU, gpus("AMD")),
        (resource::HABANA_GAUDI, gpus("Habana")),
        (resource::AWS_NEURON, neuron),
        (resource::AWS_NEURON_CORE, neuron_cores),
        (resource::AWS_EFA, efa),
        (resource::AWS_POD_ENI, i64::from(hardware.branch_enis)),
        (resource::AWS_PRIVATE_IPV4, private_ipv4),
    ] {
        if count > 0 {
            all.set(name, count);
        }
    }
    all
}

/// Memory that the operating system sees, as estimated: less on arm64, and less the hypervisor's share, which is rounded up.
fn memory_mib(hardware: &Hardware, options: &CapacityOptions) -> i64 {
    let lost = match hardware.arch {
        crate::cloud::hardware::Arch::Arm64 => 64,
        crate::cloud::hardware::Arch::Amd64 => 0,
    };
    let given = hardware.memory_mib.saturating_sub(lost);
    let share =
        (u128::from(given) * u128::from(options.vm_memory_overhead_ppm)).div_ceil(1_000_000);
    i64::try_from(u128::from(given).saturating_sub(share)).unwrap_or(i64::MAX / MIB)
}

fn ephemeral_storage(hardware: &Hardware, class: &ClassView) -> i64 {
    match i64::try_from(hardware.instance_store_gb) {
        Ok(gb) if class.raid0 && gb > 0 => gb.saturating_mul(1_000_000_000),
        _ => class.volume_bytes,
    }
}

/// Pods that a node admits.
pub(super) fn pods(hardware: &Hardware, class: &ClassView, options: &CapacityOptions) -> i64 {
    const WINDOWS_PODS: i64 = 110;
    let limit = match class.max_pods {
        Some(max) => max,
        None if class.family.limits_pods_by_interfaces() => {
            pods_by_interfaces(hardware, class, options.reserved_enis)
        }
        None => WINDOWS_PODS,
    };
    match class.pods_per_core {
        Some(per_core) if class.family.honours_pods_per_core() => {
            limit.min(per_core.saturating_mul(i64::from(hardware.vcpus)))
        }
        _ => limit,
    }
}

/// Pods for which the default network card has addresses: one address of each interface is the interface's own, and two pods use the
/// host's network.
pub(super) fn pods_by_interfaces(hardware: &Hardware, class: &ClassView, reserved: u32) -> i64 {
    let interfaces =
        i64::from(hardware.default_card_enis) - i64::from(reserved) - class.efa_only(Some(0));
    if interfaces <= 0 {
        return 0;
    }
    interfaces * (i64::from(hardware.ipv4_per_eni) - 1) + 2
}

/// Pods by which the kubelet's memory reservation is reckoned.
pub(super) fn pods_for_reservation(
    hardware: &Hardware,
    class: &ClassView,
    options: &CapacityOptions,
) -> i64 {
    if AmiFamily::reserves_memory_by_interfaces(class.family) {
        pods_by_interfaces(hardware, class, 0)
    } else {
        pods(hardware, class, options)
    }
}
