//! The part of a node class that instance types depend on, read once per class.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    api::{EC2NodeClassSpec, NetworkInterface},
    cloud::{
        ami_family::{AmiFamily, whole},
        catalog::Zone,
    },
    units::{CPU, EPHEMERAL_STORAGE, MEMORY, Quantity, Resources},
};

/// Settings of the installation that capacity depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityOptions {
    /// Share of memory that the hypervisor takes, in millionths (`VM_MEMORY_OVERHEAD_PERCENT`, 7.5 % by default).
    pub vm_memory_overhead_ppm: u32,
    /// Network interfaces that pods cannot use (`RESERVED_ENIS`).
    pub reserved_enis: u32,
}

impl Default for CapacityOptions {
    fn default() -> Self {
        Self {
            vm_memory_overhead_ppm: 75_000,
            reserved_enis: 0,
        }
    }
}

/// An eviction threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Bytes.
    Bytes(i64),
    /// Billionths of a percent of capacity.
    Percent(i128),
}

impl Threshold {
    /// Reads `5%` or `100Mi`; `None` when it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(number) => {
                let plain = |c: char| c.is_ascii_digit() || c == '.';
                let percent: Quantity =
                    number.parse().ok().filter(|_| number.chars().all(plain))?;
                Some(Self::Percent(percent.nanos()))
            }
            None => whole(text).map(Self::Bytes),
        }
    }

    /// Bytes of a capacity, rounded up; 100 % turns the threshold off.
    pub fn of(self, capacity: i64) -> i64 {
        const WHOLE: i128 = 100 * 1_000_000_000;
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(WHOLE) => 0,
            Self::Percent(part) => {
                let product = i128::from(capacity).saturating_mul(part);
                let bytes = product.div_euclid(WHOLE) + i128::from(product.rem_euclid(WHOLE) != 0);
                i64::try_from(bytes).unwrap_or(i64::MAX)
            }
        }
    }
}

/// What instance types need to know of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassView {
    /// AMI family.
    pub family: AmiFamily,
    /// Zones of the class's subnets, by name.
    pub zones: Vec<Zone>,
    /// `kubelet.maxPods`, when it is a number.
    pub max_pods: Option<i64>,
    /// `kubelet.podsPerCore`, when it is above zero.
    pub pods_per_core: Option<i64>,
    /// `kubelet.kubeReserved`.
    pub kube_reserved: Resources,
    /// `kubelet.systemReserved`.
    pub system_reserved: Resources,
    /// `kubelet.evictionHard` of `memory.available`.
    pub eviction_memory: Option<Threshold>,
    /// `kubelet.evictionHard` of `nodefs.available`.
    pub eviction_storage: Option<Threshold>,
    /// Bytes of disk that pods share, where volumes say so.
    pub volume_bytes: i64,
    /// Whether the instance store takes the place of the volume.
    pub raid0: bool,
    /// `networkInterfaces`; `None` when the class lists none.
    pub interfaces: Option<Vec<NetworkInterface>>,
    /// Whether connection tracking is set.
    pub connection_tracking: bool,
    /// Whether nested virtualization is asked for.
    pub nested_virtualization: bool,
    /// Whether enclaves are asked for.
    pub enclaves: bool,
}

impl ClassView {
    /// Reads a class whose subnets lie in `zones`. Kubelet values that cannot be read are passed over; class validation reports them.
    pub fn new(spec: &EC2NodeClassSpec, zones: Vec<Zone>) -> Self {
        let empty = BTreeMap::new();
        let kubelet = spec.kubelet.as_ref().unwrap_or(&empty);
        let count = |key: &str| {
            let number = kubelet.get(key).and_then(Value::as_i64);
            number.filter(|n| *n >= 0)
        };
        let threshold = |signal: &str| {
            let text = kubelet.get("evictionHard")?.get(signal)?.as_str()?;
            Threshold::parse(text)
        };
        let family = AmiFamily::of(spec);
        Self {
            family,
            zones,
            max_pods: count("maxPods"),
            pods_per_core: count("podsPerCore").filter(|n| *n > 0),
            kube_reserved: reserved(kubelet.get("kubeReserved")),
            system_reserved: reserved(kubelet.get("systemReserved")),
            eviction_memory: threshold("memory.available"),
            eviction_storage: threshold("nodefs.available"),
            volume_bytes: volume_bytes(spec, family),
            raid0: spec.instance_store_policy.as_deref() == Some("RAID0"),
            interfaces: spec.network_interfaces.clone().filter(|i| !i.is_empty()),
            connection_tracking: spec.connection_tracking.is_some(),
            nested_virtualization: spec
                .cpu_options
                .as_ref()
                .is_some_and(|o| o.nested_virtualization.as_deref() == Some("enabled")),
            enclaves: spec.enclave_options.as_ref().is_some_and(|o| o.enabled),
        }
    }

    /// EFA-only interfaces of the class, of one card or of all.
    pub(crate) fn efa_only(&self, card: Option<i32>) -> i64 {
        let interfaces = self.interfaces.iter().flatten();
        interfaces
            .filter(|i| i.interface_type == "efa-only")
            .filter(|i| card.is_none_or(|c| i.network_card_index == c))
            .count() as i64
    }
}

/// Amounts of a kubelet reservation; expressions and unknown resources are left out.
fn reserved(map: Option<&Value>) -> Resources {
    let mut amounts = Resources::new();
    for name in [CPU, MEMORY, EPHEMERAL_STORAGE] {
        let text = map.and_then(|m| m.get(name)).and_then(Value::as_str);
        let quantity = text.and_then(|t| t.parse::<Quantity>().ok());
        if let Some(quantity) = quantity {
            let amount = if name == CPU {
                quantity.milli_ceil()
            } else {
                quantity.value_ceil()
            };
            amounts.set(name, amount);
        }
    }
    amounts
}

/// Size of the volume that pods' disk space comes from: the root volume, else the last one (Custom) or the one on the family's device,
/// else the family's default.
fn volume_bytes(spec: &EC2NodeClassSpec, family: AmiFamily) -> i64 {
    const DEFAULT: i64 = 20 << 30;
    let mappings = spec.block_device_mappings.as_deref().unwrap_or_default();
    let size = |m: &crate::api::BlockDeviceMapping| whole(m.ebs.as_ref()?.volume_size.as_ref()?);
    if let Some(bytes) = mappings.iter().find(|m| m.root_volume).and_then(size) {
        return bytes;
    }
    match family.ephemeral_device() {
        None => mappings.last().and_then(size).unwrap_or(DEFAULT),
        Some((device, default)) => mappings
            .iter()
            .find(|m| m.device_name.as_deref() == Some(device))
            .and_then(size)
            .unwrap_or(default),
    }
}
