//! Machines as the lab's kubelets see them.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    api::{
        names::{label, taint_effect, taint_key},
        taint::Taint,
    },
    cloud::{Instance, LaunchRequest, ami_family::AmiFamily},
};

/// What happens to machines, in order for each machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Machine {
    /// The operating system is up and the kubelet starts.
    Booted(Box<Booted>),
    /// A spot machine was told that it will be taken back.
    Interrupted {
        /// Its provider id.
        provider_id: String,
        /// Its node's name.
        node_name: String,
        /// When it will be terminated.
        at: Timestamp,
    },
    /// The machine begins to shut down.
    Terminating {
        /// Its provider id.
        provider_id: String,
        /// Its node's name.
        node_name: String,
    },
    /// The machine is gone; its kubelet with it.
    Terminated {
        /// Its provider id.
        provider_id: String,
        /// Its node's name.
        node_name: String,
    },
}

/// A machine whose kubelet starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Booted {
    /// The instance, with the capacity and allocatable that the node shall report.
    pub instance: Instance,
    /// Name of the Node.
    pub node_name: String,
    /// Internal address.
    pub address: String,
    /// Labels that the kubelet registers the Node with, those of the cloud controller included.
    pub labels: BTreeMap<String, String>,
    /// Taints that the kubelet registers the Node with.
    pub taints: Vec<Taint>,
    /// Version that the kubelet reports, such as `v1.32.0`.
    pub kubelet_version: String,
}

impl Booted {
    pub(super) fn new(
        instance: &Instance,
        request: &LaunchRequest,
        address: String,
        kubernetes_version: &str,
    ) -> Self {
        let node_name = format!("ip-{}.ec2.internal", address.replace('.', "-"));
        let mut labels = request.labels.clone();
        for key in [
            label::INSTANCE_TYPE,
            label::ARCH,
            label::OS,
            label::WINDOWS_BUILD,
            label::REGION,
            label::ZONE,
            label::ZONE_ID,
            label::CAPACITY_TYPE,
        ] {
            if let Some(value) = instance.labels.get(key) {
                labels.insert(key.to_owned(), value.clone());
            }
        }
        labels.insert(label::HOSTNAME.to_owned(), node_name.clone());
        // The families' bootstrap leaves the taints to the kubelet; with an own image registration adds them.
        if AmiFamily::of(&request.class.spec) != AmiFamily::Custom {
            labels.insert(label::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
        }
        let mut taints = request.taints.clone();
        if taints.iter().all(|t| t.key != taint_key::UNREGISTERED) {
            taints.push(Taint {
                key: taint_key::UNREGISTERED.to_owned(),
                value: String::new(),
                effect: taint_effect::NO_EXECUTE.to_owned(),
            });
        }
        Self {
            instance: instance.clone(),
            node_name,
            address,
            labels,
            taints,
            kubelet_version: format!("v{}.0", kubernetes_version.trim_start_matches('v')),
        }
    }
}
