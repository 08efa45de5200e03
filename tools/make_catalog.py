#!/usr/bin/env python3
"""Remake data/ec2-catalog.csv, the instance types that `tenon lab` sells.

One row for each instance type of us-east-1 that has both a zone and an on-demand Linux price.
Hardware and zones are answers of EC2 as packed into the PyPI package moto, prices come from the
PyPI package apache-libcloud; no AWS account is asked. With other versions some rows will differ.

    python3 -m venv /tmp/catalog
    /tmp/catalog/bin/pip install 'moto[ec2]==5.2.0' 'apache-libcloud==3.9.1'
    /tmp/catalog/bin/python tools/make_catalog.py > data/ec2-catalog.csv

Columns that need a word: `enis` counts the interfaces of all network cards, `network_mbps` is the
baseline of all cards together, `ebs_mbps` is the baseline, `zones` are the last letters of the
zones' names. Of several GPU or accelerator kinds the first is kept.
"""

import csv
import gzip
import json
import sys
from importlib.resources import files

REGION = "us-east-1"


def packed(*path):
    """A gzipped JSON answer out of moto's resources."""
    return json.loads(gzip.decompress(files("moto.ec2").joinpath("resources", *path).read_bytes()))


def first(entry, *keys):
    """The first element of the list found under keys, or an empty dict."""
    for key in keys:
        entry = entry.get(key, {})
    return entry[0] if entry else {}


def yes(value):
    return "true" if value else "false"


def zones_by_type():
    found = {}
    for offer in packed("instance_type_offerings", "availability-zone", f"{REGION}.json.gz"):
        found.setdefault(offer["InstanceType"], set()).add(offer["Location"].removeprefix(REGION))
    return found


def prices():
    table = json.loads(files("libcloud").joinpath("data", "pricing.json").read_text())
    return table["compute"]["ec2_linux"]


def row(name, facts, zones, price):
    cpu, network = facts["ProcessorInfo"], facts["NetworkInfo"]
    gpu = first(facts, "GpuInfo", "Gpus")
    accelerator = first(facts, "NeuronInfo", "NeuronDevices") or first(
        facts, "InferenceAcceleratorInfo", "Accelerators"
    )
    store = facts.get("InstanceStorageInfo", {})
    ebs = facts.get("EbsInfo", {}).get("EbsOptimizedInfo", {})
    baseline = [card.get("BaselineBandwidthInGbps", 0) for card in network.get("NetworkCards", [])]
    return {
        "instance_type": name,
        "arch": "/".join(a for a in cpu["SupportedArchitectures"] if a in ("x86_64", "arm64")),
        "vcpus": facts["VCpuInfo"]["DefaultVCpus"],
        "memory_mib": facts["MemoryInfo"]["SizeInMiB"],
        "hypervisor": facts.get("Hypervisor", ""),
        "bare_metal": yes(facts["BareMetal"]),
        "burstable": yes(facts["BurstablePerformanceSupported"]),
        "current_generation": yes(facts["CurrentGeneration"]),
        "cpu_manufacturer": cpu.get("Manufacturer", ""),
        "clock_ghz": cpu.get("SustainedClockSpeedInGhz", ""),
        "gpu_manufacturer": gpu.get("Manufacturer", ""),
        "gpu_name": gpu.get("Name", ""),
        "gpu_count": gpu.get("Count", 0),
        "gpu_memory_mib": gpu.get("MemoryInfo", {}).get("SizeInMiB", 0),
        "accelerator_manufacturer": "AWS" if accelerator else "",
        "accelerator_name": accelerator.get("Name", ""),
        "accelerator_count": accelerator.get("Count", 0),
        "local_storage_gb": store.get("TotalSizeInGB", 0),
        "local_nvme": yes(store.get("NvmeSupport") == "required"),
        "enis": network["MaximumNetworkInterfaces"],
        "ipv4_per_eni": network["Ipv4AddressesPerInterface"],
        "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "network_mbps": sum(int(1000 * gbps) for gbps in baseline),
        "ebs_mbps": ebs.get("BaselineBandwidthInMbps", ""),
        "encryption_in_transit": yes(network.get("EncryptionInTransitSupported")),
        "usage_classes": "/".join(facts["SupportedUsageClasses"]),
        "zones": "".join(sorted(zones)),
        "price_usd_hour": price,
    }


def main():
    types, zones, table = packed("instance_types.json.gz"), zones_by_type(), prices()
    writer = None
    for name, facts in sorted(types.items()):
        price = table.get(name, {}).get(REGION)
        if not price or name not in zones:
            continue
        fields = row(name, facts, zones[name], price)
        if writer is None:
            writer = csv.DictWriter(sys.stdout, fields, lineterminator="\n")
            writer.writeheader()
        writer.writerow(fields)


if __name__ == "__main__":
    main()
