//! The catalogue that ships with the program: instance types of us-east-1 with zones and on-demand prices
//! (`data/ec2-catalog.csv`, remade by `tools/make_catalog.py`).
//!
//! Three things that EC2 knows are not in it. The EBS bandwidth is the baseline and not the maximum, so the label says too little for
//! small types. Branch interfaces are missing, so no type has `vpc.amazonaws.com/pod-eni`. Support for nested virtualization and for
//! enclaves is not known. The interfaces of the default network card are worked out from those of all cards.

use std::{collections::BTreeSet, str::FromStr, sync::Arc};

use super::{
    CapacityType,
    hardware::{Accelerator, Arch, Gpu, Hardware},
};

const BUILT_IN: &str = include_str!("../../data/ec2-catalog.csv");

/// A zone of the region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Zone {
    /// Name, such as `us-east-1a`.
    pub name: Arc<str>,
    /// Id, such as `use1-az1`.
    pub id: Arc<str>,
}

/// One instance type with where it is sold and for how much.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogRow {
    /// Facts of the instance type.
    pub hardware: Hardware,
    /// Zone names, ascending.
    pub zones: Vec<Arc<str>>,
    /// On-demand price for Linux, USD per hour.
    pub on_demand_price: f64,
}

/// Instance types by name and the zones of their region.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    /// Region name.
    pub region: &'static str,
    /// Every zone that some type is sold in, by name.
    pub zones: Vec<Zone>,
    /// Instance types, by name.
    pub rows: Vec<CatalogRow>,
}

/// A row of a catalogue that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("catalogue line {line}: {column} cannot be {value:?}")]
pub struct CatalogError {
    /// Line in the file, from 1.
    pub line: usize,
    /// Name of the column.
    pub column: &'static str,
    /// What is there.
    pub value: String,
}

/// Columns, in the file's order.
const COLUMNS: [&str; 28] = [
    "instance_type",
    "arch",
    "vcpus",
    "memory_mib",
    "hypervisor",
    "bare_metal",
    "burstable",
    "current_generation",
    "cpu_manufacturer",
    "clock_ghz",
    "gpu_manufacturer",
    "gpu_name",
    "gpu_count",
    "gpu_memory_mib",
    "accelerator_manufacturer",
    "accelerator_name",
    "accelerator_count",
    "local_storage_gb",
    "local_nvme",
    "enis",
    "ipv4_per_eni",
    "efa",
    "network_mbps",
    "ebs_mbps",
    "encryption_in_transit",
    "usage_classes",
    "zones",
    "price_usd_hour",
];

impl Catalog {
    /// The catalogue that ships with the program. Parsed on each call: keep the result.
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).expect("a test reads the shipped catalogue")
    }

    /// Reads a catalogue in the shipped format.
    ///
    /// # Errors
    /// The first cell that cannot be read.
    pub fn parse(text: &str) -> Result<Self, CatalogError> {
        let mut lines = text.lines().enumerate();
        let header = lines.next().map_or("", |(_, line)| line);
        if !header.split(',').eq(COLUMNS) {
            return Err(CatalogError {
                line: 1,
                column: "header",
                value: header.to_owned(),
            });
        }
        let region = "us-east-1";
        let mut rows = lines
            .map(|(index, line)| Row::new(index + 1, line)?.read(region))
            .collect::<Result<Vec<_>, _>>()?;
        rows.sort_by(|a, b| a.hardware.name.cmp(&b.hardware.name));
        let names: BTreeSet<Arc<str>> = rows.iter().flat_map(|r| r.zones.clone()).collect();
        let zones = names
            .into_iter()
            .map(|name| Zone {
                id: zone_id(&name).into(),
                name,
            })
            .collect();
        Ok(Self {
            region,
            zones,
            rows,
        })
    }

    /// The row of an instance type.
    pub fn get(&self, instance_type: &str) -> Option<&CatalogRow> {
        self.rows
            .binary_search_by(|r| (*r.hardware.name).cmp(instance_type))
            .ok()
            .map(|i| &self.rows[i])
    }
}

/// Zone ids follow the letters here; in a real account the two are shuffled.
fn zone_id(name: &str) -> String {
    let letter = name.bytes().next_back().unwrap_or(b'a');
    format!("use1-az{}", letter.saturating_sub(b'a') + 1)
}

/// Interfaces of the default network card and number of cards, from the interfaces of all cards. No card has more than 15, and the types
/// with more have one EFA on each card. (Compared with EC2's own answer for all 719 rows: one differs, i7ie.48xlarge with 8 + 7.)
fn default_card(enis: u32, efa: u32) -> (u32, u32) {
    if enis > 15 && efa > 0 {
        (enis / efa, efa)
    } else {
        (enis, 1)
    }
}

/// Neuron cores of one device, by the device's name.
fn neuron_cores(device: &str) -> u32 {
    match device {
        "Inferentia" => 4,
        "Inferentia2" | "Trainium" => 2,
        _ => 0,
    }
}

struct Row<'a> {
    line: usize,
    cells: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn new(line: usize, text: &'a str) -> Result<Self, CatalogError> {
        let cells: Vec<&str> = text.split(',').collect();
        if cells.len() == COLUMNS.len() {
            Ok(Self { line, cells })
        } else {
            Err(CatalogError {
                line,
                column: "line",
                value: text.to_owned(),
            })
        }
    }

    fn text(&self, column: &'static str) -> &'a str {
        let index = COLUMNS.iter().position(|c| *c == column);
        index.and_then(|i| self.cells.get(i)).copied().unwrap_or("")
    }

    fn bad(&self, column: &'static str) -> CatalogError {
        CatalogError {
            line: self.line,
            column,
            value: self.text(column).to_owned(),
        }
    }

    fn value<T: FromStr>(&self, column: &'static str) -> Result<T, CatalogError> {
        self.text(column).parse().map_err(|_| self.bad(column))
    }

    fn optional<T: FromStr>(&self, column: &'static str) -> Result<Option<T>, CatalogError> {
        match self.text(column) {
            "" => Ok(None),
            _ => self.value(column).map(Some),
        }
    }

    fn read(&self, region: &str) -> Result<CatalogRow, CatalogError> {
        let arch = self.text("arch").split('/').find_map(Arch::from_ec2);
        let (default_card_enis, network_cards) =
            default_card(self.value("enis")?, self.value("efa")?);
        let gpu = Gpu {
            manufacturer: self.text("gpu_manufacturer").to_owned(),
            name: self.text("gpu_name").to_owned(),
            count: self.value("gpu_count")?,
            memory_mib: self.value("gpu_memory_mib")?,
        };
        let neuron = Accelerator {
            name: self.text("accelerator_name").to_owned(),
            count: self.value("accelerator_count")?,
            cores: neuron_cores(self.text("accelerator_name")),
        };
        let clock_ghz: f64 = self.optional("clock_ghz")?.unwrap_or(0.0);
        // The published table is exact below 10 Gbps and whole tens of Mbps above.
        let network_mbps = match self.value::<u32>("network_mbps")? {
            0 => None,
            mbps if mbps < 10_000 => Some(mbps),
            mbps => Some(mbps / 10 * 10),
        };
        let mut usage_classes: Vec<CapacityType> = self
            .text("usage_classes")
            .split('/')
            .filter_map(CapacityType::parse)
            .collect();
        usage_classes.sort_unstable();
        let on_demand_price: f64 = self.value("price_usd_hour")?;
        if !on_demand_price.is_finite() || on_demand_price <= 0.0 {
            return Err(self.bad("price_usd_hour"));
        }
        let hardware = Hardware {
            name: self.text("instance_type").into(),
            arch: arch.ok_or_else(|| self.bad("arch"))?,
            vcpus: self.value("vcpus")?,
            memory_mib: self.value("memory_mib")?,
            hypervisor: self.text("hypervisor").to_owned(),
            cpu_manufacturer: self.text("cpu_manufacturer").to_owned(),
            clock_mhz: (clock_ghz * 1000.0).round() as u32,
            gpus: if gpu.count > 0 { vec![gpu] } else { vec![] },
            neuron: if neuron.count > 0 {
                vec![neuron]
            } else {
                vec![]
            },
            inference: vec![],
            instance_store_gb: self.value("local_storage_gb")?,
            nvme: self.value("local_nvme")?,
            default_card_enis,
            network_cards,
            ipv4_per_eni: self.value("ipv4_per_eni")?,
            efa: self.value("efa")?,
            branch_enis: 0,
            network_mbps,
            ebs_mbps: self.optional("ebs_mbps")?,
            encryption_in_transit: self.value("encryption_in_transit")?,
            usage_classes,
            nested_virtualization: None,
            enclaves: None,
        };
        let letters: BTreeSet<char> = self.text("zones").chars().collect();
        if letters.is_empty() || !letters.iter().all(char::is_ascii_lowercase) {
            return Err(self.bad("zones"));
        }
        Ok(CatalogRow {
            hardware,
            zones: letters
                .iter()
                .map(|letter| format!("{region}{letter}").into())
                .collect(),
            on_demand_price,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_catalogue_can_be_read() {
        let catalog = Catalog::parse(BUILT_IN).unwrap();
        // 720 lines, one of them the header.
        assert_eq!(catalog.rows.len(), 719);
        let zones: Vec<&str> = catalog.zones.iter().map(|z| &*z.name).collect();
        assert_eq!(
            zones,
            [
                "us-east-1a",
                "us-east-1b",
                "us-east-1c",
                "us-east-1d",
                "us-east-1e",
                "us-east-1f"
            ]
        );
        assert_eq!(&*catalog.zones[5].id, "use1-az6");
    }

    /// Values read off the file's line for g4dn.12xlarge and facts of multi-card types from EC2's own answer.
    #[test]
    fn rows_are_typed() {
        let catalog = Catalog::built_in();
        let row = catalog.get("c5.18xlarge").unwrap();
        assert_eq!(row.hardware.arch, Arch::Amd64);
        assert_eq!(row.hardware.vcpus, 72);
        assert_eq!(row.hardware.memory_mib, 147_456);
        assert_eq!(row.hardware.clock_mhz, 3400);
        assert_eq!(row.hardware.default_card_enis, 15);
        assert_eq!(row.hardware.network_mbps, Some(25_000));
        assert_eq!(row.zones.len(), 5);
        assert_eq!(row.on_demand_price, 3.06);
        assert_eq!(
            row.hardware.usage_classes,
            [CapacityType::Spot, CapacityType::OnDemand]
        );
        for (name, card, cards) in [
            ("p5.48xlarge", 2, 32),
            ("dl1.24xlarge", 15, 4),
            ("trn1.32xlarge", 5, 8),
            ("m6idn.32xlarge", 8, 2),
        ] {
            let hardware = &catalog.get(name).unwrap().hardware;
            assert_eq!(
                (hardware.default_card_enis, hardware.network_cards),
                (card, cards),
                "{name}"
            );
        }
        assert_eq!(catalog.get("m5.nothing"), None);
    }

    #[test]
    fn a_bad_cell_is_named() {
        let line = BUILT_IN.lines().nth(1).unwrap();
        let header = BUILT_IN.lines().next().unwrap();
        let parse = |line: String| Catalog::parse(&format!("{header}\n{line}")).unwrap_err();
        assert_eq!(
            parse(line.replace(",8,16384,", ",eight,16384,")).to_string(),
            "catalogue line 2: vcpus cannot be \"eight\""
        );
        assert_eq!(parse(line.replace(",0.204", ",0")).column, "price_usd_hour");
        assert_eq!(parse("a1.large".to_owned()).column, "line");
        assert_eq!(Catalog::parse("a,b").unwrap_err().column, "header");
    }
}
