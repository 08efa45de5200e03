//! What the system keeps of a machine (`spec/ec2-provider.md` 1.3).

use super::{
    capacity::pods_for_reservation,
    class::{CapacityOptions, ClassView, Threshold},
};
use crate::{
    cloud::hardware::Hardware,
    units::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources},
};

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

/// The three parts of a node's overhead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Kept for Kubernetes' own daemons.
    pub kube_reserved: Resources,
    /// Kept for the operating system, by the class alone.
    pub system_reserved: Resources,
    /// Below which the kubelet evicts.
    pub eviction_threshold: Resources,
}

impl Overhead {
    /// The sum of the parts.
    pub fn total(&self) -> Resources {
        let mut all = self.kube_reserved.clone();
        all.add(&self.system_reserved);
        all.add(&self.eviction_threshold);
        all
    }
}

/// Overhead of a node of this type and class; `estimated` is its capacity as [`super::capacity::capacity`] gives it.
pub fn overhead(
    hardware: &Hardware,
    class: &ClassView,
    options: &CapacityOptions,
    estimated: &Resources,
) -> Overhead {
    let pods = pods_for_reservation(hardware, class, options);
    let mut kube_reserved = Resources::new();
    kube_reserved.set(CPU, reserved_millicores(hardware.vcpus));
    kube_reserved.set(
        MEMORY,
        pods.saturating_mul(11)
            .saturating_add(255)
            .saturating_mul(MIB),
    );
    kube_reserved.set(EPHEMERAL_STORAGE, GIB);
    for (name, amount) in class.kube_reserved.iter() {
        kube_reserved.set(name, amount);
    }
    let threshold = |set: Option<Threshold>, default: Threshold, name: &str| {
        set.unwrap_or(default).of(estimated.get(name))
    };
    const TEN_PERCENT: Threshold = Threshold::Percent(10 * 1_000_000_000);
    let mut eviction_threshold = Resources::new();
    eviction_threshold.set(
        MEMORY,
        threshold(class.eviction_memory, Threshold::Bytes(100 * MIB), MEMORY),
    );
    eviction_threshold.set(
        EPHEMERAL_STORAGE,
        threshold(class.eviction_storage, TEN_PERCENT, EPHEMERAL_STORAGE),
    );
    Overhead {
        kube_reserved,
        system_reserved: class.system_reserved.clone(),
        eviction_threshold,
    }
}

/// 6 % of the first core, 1 % of the second, 0.5 % of the third and fourth, 0.25 % of the rest; each band in whole millicores.
fn reserved_millicores(vcpus: u32) -> i64 {
    let millicores = i64::from(vcpus) * 1000;
    let mut kept = 0;
    for (from, to, per_100_000) in [
        (0, 1000, 6000),
        (1000, 2000, 1000),
        (2000, 4000, 500),
        (4000, i64::MAX, 250),
    ] {
        let band = millicores.min(to) - from;
        if band > 0 {
            kept += band * per_100_000 / 100_000;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of the specification.
    #[test]
    fn cores_kept_for_kubernetes() {
        for (vcpus, millicores) in [(1, 60), (2, 70), (4, 80), (8, 90), (16, 110), (96, 310)] {
            assert_eq!(reserved_millicores(vcpus), millicores, "{vcpus} vCPUs");
        }
    }
}
