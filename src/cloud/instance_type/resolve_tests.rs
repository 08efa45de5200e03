//! Rows of `tests/vectors/ec2.yaml` about capacity, labels and compatibility, and types of the catalogue.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{super::overhead::overhead, *};
use crate::{
    api::EC2NodeClassSpec,
    cloud::{
        catalog::Catalog,
        hardware::{Accelerator, Arch, Gpu},
    },
    units::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources},
};

const VECTORS: &str = include_str!("../../../tests/vectors/ec2.yaml");

#[derive(Deserialize)]
struct Vectors {
    capacity: Vec<CapacityRow>,
    labels: Vec<LabelRow>,
    compatibility: Vec<CompatibilityRow>,
}

#[derive(Deserialize)]
struct CapacityRow {
    id: String,
    facts: Facts,
    settings: Settings,
    expect: BTreeMap<String, BTreeMap<String, i64>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Facts {
    instance_type: String,
    arch: String,
    vcpu: u32,
    memory_mib: u64,
    default_card_enis: u32,
    ipv4_per_eni: u32,
    branch_enis: u32,
    network_cards: Option<u32>,
    max_efa: u32,
    instance_store_gb: u64,
    gpus: Vec<Value>,
    neuron_devices: Vec<Value>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    ami_family: String,
    vm_memory_overhead_percent: f64,
    reserved_enis: u32,
    kubelet: Value,
    instance_store_policy: Value,
    block_device_mappings: Vec<Value>,
    network_interfaces: Vec<Value>,
    discovered_memory_bytes: Option<i64>,
}

#[derive(Deserialize)]
struct LabelRow {
    id: String,
    instance_type: String,
    raw: Value,
    expect: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CompatibilityRow {
    id: String,
    r#type: String,
    family: Option<String>,
    hypervisor: Option<String>,
    connection_tracking: bool,
    processor_features: Option<Vec<String>>,
    nested_virtualization: Option<String>,
    cards: Option<u32>,
    card_enis: Option<u32>,
    max_efa: Option<u32>,
    interfaces: Vec<String>,
    enclaves: Option<bool>,
    nitro_enclaves: Option<String>,
    expect: bool,
}

fn vectors() -> Vectors {
    serde_saphyr::from_str(VECTORS).unwrap()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
}

/// A plain machine that the rows change.
fn plain(name: &str) -> Hardware {
    Hardware {
        name: name.into(),
        arch: Arch::Amd64,
        vcpus: 2,
        memory_mib: 8192,
        hypervisor: "nitro".to_owned(),
        cpu_manufacturer: "Intel".to_owned(),
        clock_mhz: 3100,
        gpus: vec![],
        neuron: vec![],
        inference: vec![],
        instance_store_gb: 0,
        nvme: false,
        default_card_enis: 3,
        network_cards: 1,
        ipv4_per_eni: 10,
        efa: 0,
        branch_enis: 0,
        network_mbps: None,
        ebs_mbps: None,
        encryption_in_transit: false,
        usage_classes: vec![CapacityType::Spot, CapacityType::OnDemand],
        nested_virtualization: None,
        enclaves: None,
    }
}

fn class(spec: Value) -> ClassView {
    let spec: EC2NodeClassSpec = serde_json::from_value(spec).unwrap();
    ClassView::new(&spec, vec![])
}

fn facts_to_hardware(facts: &Facts) -> Hardware {
    Hardware {
        arch: Arch::from_ec2(&facts.arch).unwrap(),
        vcpus: facts.vcpu,
        memory_mib: facts.memory_mib,
        gpus: facts
            .gpus
            .iter()
            .map(|g| Gpu {
                manufacturer: text(g, "manufacturer"),
                name: text(g, "name"),
                count: number(g, "count") as u32,
                memory_mib: number(g, "memory_mib"),
            })
            .collect(),
        neuron: facts
            .neuron_devices
            .iter()
            .map(|d| Accelerator {
                name: text(d, "name"),
                count: number(d, "count") as u32,
                cores: number(d, "cores_per_device") as u32,
            })
            .collect(),
        instance_store_gb: facts.instance_store_gb,
        default_card_enis: facts.default_card_enis,
        network_cards: facts.network_cards.unwrap_or(1),
        ipv4_per_eni: facts.ipv4_per_eni,
        efa: facts.max_efa,
        branch_enis: facts.branch_enis,
        ..plain(&facts.instance_type)
    }
}

fn settings_to_class(settings: &Settings) -> ClassView {
    let mappings: Vec<Value> = settings
        .block_device_mappings
        .iter()
        .map(|m| {
            let ebs = json!({"volumeSize": m["volume_size"], "snapshotID": m["snapshot_id"]});
            let root = m["root_volume"].as_bool().unwrap_or(false);
            json!({"deviceName": m["device_name"], "rootVolume": root, "ebs": ebs})
        })
        .collect();
    let interfaces: Vec<Value> = settings
        .network_interfaces
        .iter()
        .map(|i| {
            json!({
                "networkCardIndex": i["card"],
                "deviceIndex": i["device"],
                "interfaceType": i["type"],
            })
        })
        .collect();
    class(json!({
        "amiFamily": settings.ami_family,
        "kubelet": settings.kubelet,
        "instanceStorePolicy": settings.instance_store_policy,
        "blockDeviceMappings": mappings,
        "networkInterfaces": interfaces,
    }))
}

/// The amounts of a row under our names; `memory_mib` repeats the memory, cut to whole MiB.
fn amounts(row: &BTreeMap<String, i64>) -> Resources {
    row.iter()
        .filter(|(name, _)| *name != "memory_mib")
        .map(|(name, amount)| {
            let name = match name.as_str() {
                "cpu_millis" => CPU,
                "memory_bytes" => MEMORY,
                "ephemeral_storage_bytes" => EPHEMERAL_STORAGE,
                "pods" => PODS,
                other => other,
            };
            (name, *amount)
        })
        .collect()
}

#[test]
fn capacity_and_overhead_of_the_vectors() {
    let (mut run, mut waiting) = (0, Vec::new());
    for row in vectors().capacity {
        if row.settings.discovered_memory_bytes.is_some() {
            waiting.push(row.id); // measured memory comes with the EC2 provider
            continue;
        }
        let hardware = facts_to_hardware(&row.facts);
        let class = settings_to_class(&row.settings);
        let ppm = row.settings.vm_memory_overhead_percent * 1e6;
        let options = CapacityOptions {
            vm_memory_overhead_ppm: ppm.round() as u32,
            reserved_enis: row.settings.reserved_enis,
        };
        let has = capacity(&hardware, &class, &options);
        let kept = overhead(&hardware, &class, &options, &has);
        let mut allocatable = has.clone();
        allocatable.sub(&kept.total());
        for (part, ours) in [
            ("capacity", &has),
            ("kube_reserved", &kept.kube_reserved),
            ("system_reserved", &kept.system_reserved),
            ("eviction_threshold", &kept.eviction_threshold),
        ] {
            if let Some(expected) = row.expect.get(part) {
                assert_eq!(*ours, amounts(expected), "{} {part}", row.id);
            }
        }
        for (name, amount) in amounts(&row.expect["allocatable"]).iter() {
            assert_eq!(allocatable.get(name), amount, "{} {name}", row.id);
        }
        run += 1;
    }
    assert_eq!((run, waiting), (52, vec!["cap-58".to_owned()]));
}

#[test]
fn labels_of_the_vectors() {
    let rows = vectors().labels;
    for row in &rows {
        let raw = &row.raw;
        let storage = &raw["InstanceStorage"];
        let gpus = raw["Gpus"].as_array().unwrap().iter();
        let devices = |key: &str| {
            let list = raw[key].as_array().unwrap().iter();
            list.map(|d| Accelerator {
                name: d[d.as_array().unwrap().len() - 2]
                    .as_str()
                    .unwrap()
                    .to_owned(),
                count: d[d.as_array().unwrap().len() - 1].as_u64().unwrap() as u32,
                cores: 0,
            })
            .collect()
        };
        let ghz = raw["SustainedClockSpeedInGhz"].as_f64().unwrap_or(0.0);
        let hardware = Hardware {
            arch: Arch::from_ec2(raw["SupportedArchitectures"][0].as_str().unwrap()).unwrap(),
            vcpus: number(raw, "DefaultVCpus") as u32,
            memory_mib: number(raw, "SizeInMiB"),
            hypervisor: text(raw, "Hypervisor"),
            cpu_manufacturer: text(raw, "Manufacturer"),
            clock_mhz: (ghz * 1000.0).round() as u32,
            gpus: gpus
                .map(|g| Gpu {
                    manufacturer: g[0].as_str().unwrap().to_owned(),
                    name: g[1].as_str().unwrap().to_owned(),
                    count: g[2].as_u64().unwrap() as u32,
                    memory_mib: g[3].as_u64().unwrap(),
                })
                .collect(),
            neuron: devices("NeuronDevices"),
            inference: devices("InferenceAccelerators"),
            instance_store_gb: number(storage, "TotalSizeInGB"),
            nvme: storage["NvmeSupport"]
                .as_str()
                .is_some_and(|s| s != "unsupported"),
            network_mbps: raw["network_bandwidth_table_mbps"]
                .as_u64()
                .map(|n| n as u32),
            ebs_mbps: raw["EbsMaximumBandwidthInMbps"]
                .as_u64()
                .filter(|_| text(raw, "EbsOptimizedSupport") == "default")
                .map(|n| n as u32),
            encryption_in_transit: raw["EncryptionInTransitSupported"].as_bool().unwrap(),
            ..plain(&row.instance_type)
        };
        let requirements = hardware_requirements(&hardware);
        let single: BTreeMap<String, String> = requirements
            .iter()
            .filter_map(|r| Some((r.key.to_string(), r.single()?.to_string())))
            .collect();
        assert_eq!(single, row.expect, "{}", row.id);
        // Every key that a class does not decide is there, be it as DoesNotExist.
        for key in crate::api::names::AWS_WELL_KNOWN {
            let later = [
                label::ZONE_ID,
                label::PLACEMENT_GROUP_ID,
                label::PLACEMENT_GROUP_PARTITION,
            ];
            assert_eq!(requirements.defines(key), !later.contains(&key), "{key}");
        }
    }
    assert_eq!(rows.len(), 13);
}

#[test]
fn compatibility_of_the_vectors() {
    let rows = vectors().compatibility;
    for row in &rows {
        let mut hardware = plain(&row.r#type);
        hardware.hypervisor = row.hypervisor.clone().unwrap_or("nitro".to_owned());
        hardware.network_cards = row.cards.unwrap_or(1);
        hardware.default_card_enis = row.card_enis.unwrap_or(3);
        hardware.efa = row.max_efa.unwrap_or(0);
        let features = row.processor_features.as_ref();
        hardware.nested_virtualization =
            features.map(|f| f.iter().any(|f| f == "nested-virtualization"));
        hardware.enclaves = row.nitro_enclaves.as_ref().map(|s| s == "supported");
        let interfaces: Vec<Value> = row
            .interfaces
            .iter()
            .map(|written| {
                let (place, kind) = written.split_once(' ').unwrap();
                let (card, device) = place.split_once('/').unwrap();
                let index = |text: &str| text.parse::<i32>().unwrap();
                json!({
                    "networkCardIndex": index(card),
                    "deviceIndex": index(device),
                    "interfaceType": kind,
                })
            })
            .collect();
        let tracking = row.connection_tracking.then(|| json!({"udpTimeout": 30}));
        let view = class(json!({
            "amiFamily": row.family.as_deref().unwrap_or("AL2023"),
            "connectionTracking": tracking,
            "cpuOptions": {"nestedVirtualization": row.nested_virtualization},
            "enclaveOptions": row.enclaves.map(|enabled| json!({"enabled": enabled})),
            "networkInterfaces": interfaces,
        }));
        assert_eq!(is_compatible(&hardware, &view), row.expect, "{}", row.id);
    }
    assert_eq!(rows.len(), 14);
}

fn resolve_built_in(name: &str, spec: Value, zones: &[&str]) -> InstanceType {
    let catalog = Catalog::built_in();
    let row = catalog.get(name).unwrap();
    let spec: EC2NodeClassSpec = serde_json::from_value(spec).unwrap();
    let in_class = catalog.zones.iter().filter(|z| zones.contains(&&*z.name));
    let view = ClassView::new(&spec, in_class.cloned().collect());
    let market = Market {
        region: catalog.region,
        zones: &catalog.zones,
        price: &|_, zone, _| (&*zone.name != "us-east-1d").then_some(1.0),
    };
    let known = Known::new(row.hardware.clone(), row.zones.clone());
    resolve(&known, &view, &market, &CapacityOptions::default())
}

/// c5.18xlarge is sold in a, b, c, d and f.
#[test]
fn offerings_need_a_zone_that_sells_a_subnet_and_a_price() {
    let zones = ["us-east-1a", "us-east-1d", "us-east-1e"];
    let resolved = resolve_built_in("c5.18xlarge", json!({"amiFamily": "AL2023"}), &zones);
    assert_eq!(resolved.offerings.len(), 6 * 2);
    let available: Vec<(&str, CapacityType)> = resolved
        .offerings
        .iter()
        .filter(|o| o.available)
        .map(|o| (&*o.zone, o.capacity_type))
        .collect();
    assert_eq!(
        available,
        [
            ("us-east-1a", CapacityType::Spot),
            ("us-east-1a", CapacityType::OnDemand)
        ]
    );
    let values = |key: &str| -> Vec<String> {
        let values = resolved.requirements.get(key).unwrap().values.iter();
        values.map(|v| v.to_string()).collect()
    };
    assert_eq!(values(label::ZONE), ["us-east-1a", "us-east-1d"]);
    assert_eq!(values(label::ZONE_ID), ["use1-az1", "use1-az4"]);
    assert_eq!(values(label::OS), ["linux"]);
    assert_eq!(values(label::CAPACITY_TYPE), ["on-demand", "spot"]);
    assert!(values(label::WINDOWS_BUILD).is_empty());
}

#[test]
fn windows_runs_on_amd64_only() {
    let windows = json!({"amiFamily": "Windows2022"});
    let amd64 = resolve_built_in("m5.large", windows.clone(), &["us-east-1a"]);
    let arm64 = resolve_built_in("m6g.large", windows, &["us-east-1a"]);
    let value = |t: &InstanceType, key: &str| {
        let requirement = t.requirements.get(key).unwrap();
        requirement.single().map(|v| v.to_string())
    };
    assert_eq!(value(&amd64, label::OS).as_deref(), Some("windows"));
    assert_eq!(
        value(&amd64, label::WINDOWS_BUILD).as_deref(),
        Some("10.0.20348")
    );
    assert_eq!(value(&arm64, label::OS), None);
}

#[test]
fn incompatible_types_stay_listed() {
    let resolved = resolve_built_in("a1.large", json!({"amiFamily": "AL2023"}), &["us-east-1a"]);
    assert!(resolved.offerings.iter().all(|o| !o.available));
    assert_eq!(resolved.offerings.len(), 12);
}

#[test]
fn thresholds() {
    use super::super::class::Threshold;
    let of = |text: &str| Threshold::parse(text).map(|t| t.of(1001));
    assert_eq!(of("10%"), Some(101)); // 100.1 rounded up
    assert_eq!(of("7.5%"), Some(76)); // 75.075 rounded up
    assert_eq!(of("100%"), Some(0));
    assert_eq!(of("1Ki"), Some(1024));
    assert_eq!(of("5Ki%"), None);
    assert_eq!(of("-5%"), None);
    assert_eq!(of("lots"), None);
}
