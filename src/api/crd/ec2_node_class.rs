//! The rules of EC2NodeClass.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::json;

use super::edit::Edit;
use super::shared::{self, Reason};
use crate::api::EC2NodeClass;
use crate::api::names::label;

pub(super) fn crd() -> CustomResourceDefinition {
    let mut edit = Edit::new(EC2NodeClass::crd());
    edit.require(
        "spec",
        &[
            "amiSelectorTerms",
            "securityGroupSelectorTerms",
            "subnetSelectorTerms",
        ],
    );
    networks(&mut edit);
    reservations_and_placement(&mut edit);
    images(&mut edit);
    identity_and_tags(&mut edit);
    volumes(&mut edit);
    interfaces(&mut edit);
    options(&mut edit);
    edit.open("spec.kubelet");
    for legacy in [
        "spec.subnetSelector",
        "spec.securityGroupSelector",
        "spec.amiSelector",
    ] {
        edit.open(legacy);
    }
    status(&mut edit);
    edit.finish()
}

/// Rules of the tags of a selector term. An empty map would match everything that the account can see.
fn term_tags(edit: &mut Edit, terms: &str) {
    let path = format!("{terms}[].tags");
    edit.set(&path, json!({ "maxProperties": 20 }));
    edit.rule(
        &path,
        "self.size() != 0",
        "empty tags would match everything in the account, write a tag or remove the key",
    );
    edit.rule(
        &path,
        "self.all(k, k != '' && self[k] != '')",
        "tags need a key and a value, * stands for any value",
    );
}

fn not_empty(edit: &mut Edit, path: &str) {
    edit.rule(
        path,
        "self != ''",
        "must not be empty, remove the key instead",
    );
}

fn networks(edit: &mut Edit) {
    let subnets = "spec.subnetSelectorTerms";
    edit.set(subnets, json!({ "maxItems": 30 }));
    term_tags(edit, subnets);
    edit.rule(
        subnets,
        "self.size() != 0",
        "subnetSelectorTerms needs at least one term",
    );
    edit.rule(
        subnets,
        "self.all(x, has(x.tags) || has(x.id))",
        "each term needs tags or id",
    );
    edit.rule(
        subnets,
        "self.size() == 0 || !self.all(x, has(x.id) && has(x.tags))",
        "id stands alone, remove tags or put them in a term of their own",
    );
    edit.set(
        "spec.subnetSelectorTerms[].id",
        json!({ "pattern": "subnet-[0-9a-z]+" }),
    );

    let groups = "spec.securityGroupSelectorTerms";
    edit.set(groups, json!({ "maxItems": 30 }));
    term_tags(edit, groups);
    edit.rule(
        groups,
        "self.size() != 0",
        "securityGroupSelectorTerms needs at least one term",
    );
    edit.rule(
        groups,
        "self.all(x, has(x.tags) || has(x.id) || has(x.name))",
        "each term needs tags, id or name",
    );
    edit.rule(
        groups,
        "self.size() == 0 || !self.all(x, has(x.id) && (has(x.tags) || has(x.name)))",
        "id stands alone, put tags and name in a term of their own",
    );
    edit.rule(
        groups,
        "self.size() == 0 || !self.all(x, has(x.name) && (has(x.tags) || has(x.id)))",
        "name stands alone, put tags and id in a term of their own",
    );
    edit.set(
        "spec.securityGroupSelectorTerms[].id",
        json!({ "pattern": "sg-[0-9a-z]+" }),
    );
    not_empty(edit, "spec.securityGroupSelectorTerms[].name");
    edit.set("spec.ipPrefixCount", json!({ "minimum": 0 }));
}

fn reservations_and_placement(edit: &mut Edit) {
    let terms = "spec.capacityReservationSelectorTerms";
    edit.set(terms, json!({ "maxItems": 30 }));
    term_tags(edit, terms);
    edit.rule(
        terms,
        "self.all(x, has(x.tags) || has(x.id) || has(x.instanceMatchCriteria))",
        "each term needs tags, id or instanceMatchCriteria",
    );
    edit.rule(
        terms,
        "self.size() == 0 || !self.all(x, has(x.id) && (has(x.tags) || has(x.ownerID) || has(x.instanceMatchCriteria)))",
        "id stands alone, put tags, ownerID and instanceMatchCriteria in a term of their own",
    );
    edit.set(
        "spec.capacityReservationSelectorTerms[].id",
        json!({ "pattern": "^cr-[0-9a-z]+$" }),
    );
    edit.set(
        "spec.capacityReservationSelectorTerms[].ownerID",
        json!({ "pattern": "^[0-9]{12}$" }),
    );
    edit.set(
        "spec.capacityReservationSelectorTerms[].instanceMatchCriteria",
        json!({ "enum": ["open", "targeted"] }),
    );

    let group = "spec.placementGroupSelector";
    edit.rule(
        group,
        "has(self.name) != has(self.id)",
        "exactly one of name and id must be set",
    );
    edit.set(
        "spec.placementGroupSelector.name",
        json!({ "minLength": 1 }),
    );
    edit.set(
        "spec.placementGroupSelector.id",
        json!({ "pattern": "^pg-[0-9a-z]+$" }),
    );
}

fn images(edit: &mut Edit) {
    let terms = "spec.amiSelectorTerms";
    edit.set(terms, json!({ "maxItems": 30 }));
    term_tags(edit, terms);
    edit.rule(
        terms,
        "self.size() != 0",
        "amiSelectorTerms needs at least one term, such as alias: al2023@latest",
    );
    edit.rule(
        terms,
        "self.all(x, has(x.tags) || has(x.id) || has(x.name) || has(x.alias) || has(x.ssmParameter))",
        "each term needs alias, id, name, ssmParameter or tags",
    );
    edit.rule(
        terms,
        "!self.exists(x, has(x.id) && (has(x.alias) || has(x.tags) || has(x.name) || has(x.owner)))",
        "id stands alone, put alias, tags, name and owner in a term of their own",
    );
    edit.rule(
        terms,
        "!self.exists(x, has(x.alias) && (has(x.id) || has(x.tags) || has(x.name) || has(x.owner)))",
        "alias stands alone, remove id, tags, name and owner",
    );
    edit.rule(
        terms,
        "self.size() == 1 || !self.exists(x, has(x.alias))",
        "a term with alias must be the only term",
    );
    let alias = "spec.amiSelectorTerms[].alias";
    edit.set(
        alias,
        json!({ "maxLength": 30, "pattern": "^[a-zA-Z0-9]+@[^@]+$" }),
    );
    edit.rule(
        alias,
        "self.find('^[^@]+') in ['al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025']",
        "the family before the @ must be al2, al2023, bottlerocket, windows2019, windows2022 or windows2025",
    );
    edit.rule(
        alias,
        "!self.startsWith('windows') || self.endsWith('@latest')",
        "Windows images are always @latest",
    );
    edit.set(
        "spec.amiSelectorTerms[].id",
        json!({ "pattern": "ami-[0-9a-z]+" }),
    );
    not_empty(edit, "spec.amiSelectorTerms[].name");
    not_empty(edit, "spec.amiSelectorTerms[].ssmParameter");

    edit.set(
        "spec.amiFamily",
        json!({ "enum": ["AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025"] }),
    );
    edit.rule(
        "spec",
        "has(self.amiFamily) || self.amiSelectorTerms.exists(x, has(x.alias))",
        "amiFamily must be set when no term of amiSelectorTerms has an alias",
    );
    edit.rule(
        "spec",
        "!has(self.amiFamily) || self.amiFamily == 'Custom' || self.amiSelectorTerms.all(x, !has(x.alias) || x.alias.startsWith(self.amiFamily.lowerAscii() + '@'))",
        "amiFamily must be the family of the alias, or Custom",
    );
}

fn identity_and_tags(edit: &mut Edit) {
    edit.rule(
        "spec",
        "has(self.role) != has(self.instanceProfile)",
        "exactly one of role and instanceProfile must be set",
    );
    not_empty(edit, "spec.role");
    not_empty(edit, "spec.instanceProfile");
    let tags = "spec.tags";
    edit.rule(tags, "self.all(k, k != '')", "tags need a key");
    for key in [
        "eks:eks-cluster-name",
        label::NODEPOOL,
        "karpenter.sh/nodeclaim",
        label::EC2_NODE_CLASS,
    ] {
        edit.rule(
            tags,
            &format!("!('{key}' in self)"),
            &format!("{key} is set by the controller, remove it"),
        );
    }
    edit.rule(
        tags,
        "self.all(k, !k.startsWith('kubernetes.io/cluster'))",
        "kubernetes.io/cluster tags are set by the controller, remove them",
    );
}

fn volumes(edit: &mut Edit) {
    let mappings = "spec.blockDeviceMappings";
    edit.set(mappings, json!({ "maxItems": 50 }));
    edit.rule(
        mappings,
        "self.filter(x, has(x.rootVolume) && x.rootVolume).size() <= 1",
        "at most one volume may have rootVolume: true",
    );
    edit.rule(
        mappings,
        "self.all(x, !has(x.rootVolume) || !x.rootVolume || has(x.ebs))",
        "the volume with rootVolume: true needs ebs, its size is what pods can use",
    );
    edit.rule(
        "spec",
        "!has(self.amiFamily) || self.amiFamily != 'Custom' || !has(self.blockDeviceMappings) || self.blockDeviceMappings.size() == 0 \
         || self.blockDeviceMappings.exists(x, has(x.rootVolume) && x.rootVolume) \
         || has(self.blockDeviceMappings[self.blockDeviceMappings.size() - 1].ebs)",
        "with amiFamily Custom the last of blockDeviceMappings needs ebs, its size is what pods can use",
    );
    let ebs = "spec.blockDeviceMappings[].ebs";
    edit.rule(
        ebs,
        "has(self.snapshotID) || has(self.volumeSize)",
        "snapshotID or volumeSize must be set",
    );
    edit.rule(
        ebs,
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
        "volumeInitializationRate needs snapshotID",
    );
    edit.set(
        "spec.blockDeviceMappings[].ebs.volumeInitializationRate",
        json!({ "minimum": 100, "maximum": 300 }),
    );
    let size = "spec.blockDeviceMappings[].ebs.volumeSize";
    edit.set(size, json!({ "maxLength": 32 }));
    edit.rule(
        size,
        "isQuantity(self) && quantity(self).compareTo(quantity('1G')) >= 0 && quantity(self).compareTo(quantity('64Ti')) <= 0",
        "must be a quantity from 1G to 64Ti, such as 100Gi",
    );
    edit.set(
        "spec.blockDeviceMappings[].ebs.volumeType",
        json!({ "enum": ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"] }),
    );
    edit.set("spec.instanceStorePolicy", json!({ "enum": ["RAID0"] }));
}

fn interfaces(edit: &mut Edit) {
    let interfaces = "spec.networkInterfaces";
    edit.set(interfaces, json!({ "maxItems": 150 }));
    edit.rule(
        interfaces,
        "self.size() == 0 || self.exists(x, x.networkCardIndex == 0 && x.deviceIndex == 0 && x.interfaceType == 'interface')",
        "card 0, device 0 must be listed with interfaceType interface",
    );
    edit.rule(
        interfaces,
        "self.all(x, self.exists_one(y, x.networkCardIndex == y.networkCardIndex && x.deviceIndex == y.deviceIndex))",
        "networkCardIndex and deviceIndex together must be unique",
    );
    edit.rule(
        interfaces,
        "self.all(x, x.interfaceType != 'efa-only' || self.exists_one(y, y.interfaceType == 'efa-only' && x.networkCardIndex == y.networkCardIndex))",
        "a network card takes at most one efa-only interface",
    );
    edit.require(
        "spec.networkInterfaces[]",
        &["deviceIndex", "interfaceType", "networkCardIndex"],
    );
    for index in ["networkCardIndex", "deviceIndex"] {
        edit.set(
            &format!("spec.networkInterfaces[].{index}"),
            json!({ "minimum": 0 }),
        );
    }
    edit.set(
        "spec.networkInterfaces[].interfaceType",
        json!({ "enum": ["interface", "efa-only"] }),
    );
}

fn options(edit: &mut Edit) {
    edit.default(
        "spec.metadataOptions",
        json!({
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1,
            "httpTokens": "required",
        }),
    );
    edit.set(
        "spec.metadataOptions.httpEndpoint",
        json!({ "default": "enabled", "enum": ["enabled", "disabled"] }),
    );
    edit.set(
        "spec.metadataOptions.httpProtocolIPv6",
        json!({ "default": "disabled", "enum": ["enabled", "disabled"] }),
    );
    edit.set(
        "spec.metadataOptions.httpPutResponseHopLimit",
        json!({ "default": 1, "minimum": 1, "maximum": 64 }),
    );
    edit.set(
        "spec.metadataOptions.httpTokens",
        json!({ "default": "required", "enum": ["required", "optional"] }),
    );

    edit.rule(
        "spec.connectionTracking",
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
        "at least one time-out must be set",
    );
    for (timeout, minimum, maximum) in [
        ("tcpEstablishedTimeout", 60, 432_000),
        ("udpStreamTimeout", 60, 180),
        ("udpTimeout", 30, 60),
    ] {
        edit.set(
            &format!("spec.connectionTracking.{timeout}"),
            json!({ "minimum": minimum, "maximum": maximum }),
        );
    }
    edit.set(
        "spec.cpuOptions.nestedVirtualization",
        json!({ "enum": ["enabled", "disabled"] }),
    );
    edit.require("spec.enclaveOptions", &["enabled"]);
}

fn status(edit: &mut Edit) {
    edit.require("status.subnets[]", &["id", "zone"]);
    edit.require("status.securityGroups[]", &["id"]);
    edit.require("status.amis[]", &["id", "requirements"]);
    edit.require("status.amis[].requirements[]", &["key", "operator"]);
    let reservation = "status.capacityReservations[]";
    edit.require(
        reservation,
        &[
            "availabilityZone",
            "id",
            "instanceMatchCriteria",
            "instanceType",
            "ownerID",
        ],
    );
    let members = [
        (
            "instanceMatchCriteria",
            json!({ "enum": ["open", "targeted"] }),
        ),
        (
            "reservationType",
            json!({ "default": "default", "enum": ["default", "capacity-block"] }),
        ),
        (
            "state",
            json!({ "default": "active", "enum": ["active", "expiring"] }),
        ),
    ];
    for (member, keywords) in members {
        edit.set(&format!("{reservation}.{member}"), keywords);
    }
    shared::conditions(edit, Reason::Required);
}
