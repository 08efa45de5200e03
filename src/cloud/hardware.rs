//! What EC2 says about an instance type, free of class and price.

use std::sync::Arc;

use super::CapacityType;

/// Processor architectures that nodes can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arch {
    /// `x86_64` in EC2's words, `amd64` in Kubernetes'.
    Amd64,
    /// `arm64` in both.
    Arm64,
}

impl Arch {
    /// The value of label `kubernetes.io/arch`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// EC2's name.
    pub fn ec2_name(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "arm64",
        }
    }

    /// Reads EC2's name.
    pub fn from_ec2(text: &str) -> Option<Self> {
        [Self::Amd64, Self::Arm64]
            .into_iter()
            .find(|a| a.ec2_name() == text)
    }
}

/// GPUs of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// As EC2 writes it: `NVIDIA`, `AMD`, `Habana`.
    pub manufacturer: String,
    /// Model, such as `T4`.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Memory of one, MiB.
    pub memory_mib: u64,
}

/// Neuron devices or inference accelerators of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerator {
    /// Model, such as `Inferentia2`.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Neuron cores of one; 0 where there are none.
    pub cores: u32,
}

/// The facts of one instance type that capacity, labels and compatibility follow from.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// EC2 name, such as `m7g.large`.
    pub name: Arc<str>,
    /// First architecture that nodes can have.
    pub arch: Arch,
    /// Default number of vCPUs.
    pub vcpus: u32,
    /// Memory as EC2 reports it, MiB.
    pub memory_mib: u64,
    /// `nitro`, `xen`, or empty for bare metal.
    pub hypervisor: String,
    /// Maker of the processor as EC2 writes it: `Intel`, `AMD`, `AWS`.
    pub cpu_manufacturer: String,
    /// Sustained clock speed in MHz, 0 when EC2 gives none.
    pub clock_mhz: u32,
    /// One entry for each kind.
    pub gpus: Vec<Gpu>,
    /// Neuron devices, one entry for each kind.
    pub neuron: Vec<Accelerator>,
    /// Other inference accelerators, one entry for each kind.
    pub inference: Vec<Accelerator>,
    /// Instance store, decimal GB in all; 0 when there is none.
    pub instance_store_gb: u64,
    /// Whether the instance store is NVMe.
    pub nvme: bool,
    /// Interfaces that the default network card can have.
    pub default_card_enis: u32,
    /// Network cards.
    pub network_cards: u32,
    /// IPv4 addresses of one interface.
    pub ipv4_per_eni: u32,
    /// Elastic fabric adapters at most.
    pub efa: u32,
    /// Branch interfaces for pods; 0 where they are not supported or not known.
    pub branch_enis: u32,
    /// Baseline network bandwidth in Mbps.
    pub network_mbps: Option<u32>,
    /// EBS bandwidth in Mbps, only where EBS optimisation is on by default.
    pub ebs_mbps: Option<u32>,
    /// Whether traffic between instances is encrypted.
    pub encryption_in_transit: bool,
    /// On-demand, spot or both, in order.
    pub usage_classes: Vec<CapacityType>,
    /// Whether the processor can nest virtual machines, where that is known.
    pub nested_virtualization: Option<bool>,
    /// Whether Nitro Enclaves are supported, where that is known.
    pub enclaves: Option<bool>,
}

impl Hardware {
    /// The part of the name before the dot.
    pub fn family(&self) -> &str {
        self.name.split_once('.').map_or(&*self.name, |(f, _)| f)
    }

    /// The part of the name after the dot.
    pub fn size(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, s)| s)
    }

    /// Category and generation: the leading letters of the family and the first number after them, a `-6tb` in between skipped.
    pub fn category_and_generation(&self) -> Option<(&str, &str)> {
        let family = self.family();
        let end =
            |text: &str, of: fn(&char) -> bool| text.find(|c: char| !of(&c)).unwrap_or(text.len());
        let (category, rest) = family.split_at(end(family, char::is_ascii_lowercase));
        let rest = match rest.strip_prefix('-') {
            Some(size) => {
                let after = size.trim_start_matches(|c: char| c.is_ascii_digit());
                after.strip_prefix("tb")?
            }
            None => rest,
        };
        let generation = &rest[..end(rest, char::is_ascii_digit)];
        (!category.is_empty() && !generation.is_empty()).then_some((category, generation))
    }

    /// Whether it is bare metal, GPU or accelerator hardware, which a launch takes only when nothing plain would do.
    pub fn is_exotic(&self) -> bool {
        self.size().contains("metal") || !self.gpus.is_empty() || !self.neuron.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use crate::cloud::catalog::Catalog;

    /// The regular expression of the specification, group 1 and group 3, on names chosen for their odd shapes.
    #[test]
    fn category_and_generation_of_odd_names() {
        let catalog = Catalog::built_in();
        let mut hardware = catalog.rows[0].hardware.clone();
        for (name, expected) in [
            ("m5.large", Some(("m", "5"))),
            ("u-6tb1.56xlarge", Some(("u", "1"))),
            ("u7in-16tb.224xlarge", Some(("u", "7"))),
            ("m7i-flex.large", Some(("m", "7"))),
            ("inf2.xlarge", Some(("inf", "2"))),
            ("trn1n.32xlarge", Some(("trn", "1"))),
            ("hpc6a.48xlarge", Some(("hpc", "6"))),
            ("mac-m4.metal", None),
            ("large", None),
        ] {
            hardware.name = name.into();
            assert_eq!(hardware.category_and_generation(), expected, "{name}");
        }
    }
}
