//! DaemonSets: the pod that each node will carry.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1 as apps, core::v1 as core};

use crate::cluster::{Pod, PodKey};

/// A DaemonSet.
#[derive(Clone, Debug)]
pub struct DaemonSet {
    /// Namespace and name.
    pub key: PodKey,
    /// UID, as in the owner references of its pods.
    pub uid: String,
    /// The pod made from the template: requests, tolerations, selector and affinity of the template.
    pub pod: Arc<Pod>,
}

impl DaemonSet {
    /// Reads a DaemonSet of the API.
    pub fn from_k8s(set: &apps::DaemonSet) -> Self {
        let meta = &set.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or("default");
        let name = meta.name.as_deref().unwrap_or_default();
        let template = set
            .spec
            .as_ref()
            .map(|s| s.template.clone())
            .unwrap_or_default();
        let mut metadata = template.metadata.unwrap_or_default();
        metadata.namespace = Some(namespace.to_owned());
        metadata.name = Some(name.to_owned());
        let pod = core::Pod {
            metadata,
            spec: template.spec,
            status: None,
        };
        Self {
            key: PodKey::new(namespace, name),
            uid: meta.uid.clone().unwrap_or_default(),
            pod: Arc::new(Pod::from_k8s(&pod)),
        }
    }
}
