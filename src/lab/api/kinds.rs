//! The resource types that the lab's API serves.

/// What the API needs to know of a resource type.
#[derive(Debug)]
pub struct KindInfo {
    /// The API group, empty for the core group.
    pub group: &'static str,
    /// The version served; each type has one.
    pub version: &'static str,
    /// The plural name, as in URLs.
    pub plural: &'static str,
    /// The kind, as in manifests.
    pub kind: &'static str,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether `status` is a subresource of its own.
    pub status: bool,
    /// Whether the API server counts `metadata.generation` for this type.
    pub generation: bool,
    /// Whether a full update must name the `resourceVersion` it replaces.
    pub conditional_update: bool,
    /// Whether the type comes from a CustomResourceDefinition.
    pub custom: bool,
}

macro_rules! kinds {
    ($($name:ident: $group:literal $version:literal $plural:literal [$($flag:ident)*];)*) => {
        /// A resource type served by the lab's API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = concat!("`", $plural, "` of group \"", $group, "\", version ", $version, ".")] $name,)*
        }

        impl Kind {
            /// Every type, in the order of the table.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];

            /// The type's facts.
            pub fn info(self) -> &'static KindInfo {
                match self {
                    $(Kind::$name => {
                        #[allow(unused_mut)]
                        const INFO: KindInfo = {
                            let mut info = KindInfo {
                                group: $group,
                                version: $version,
                                plural: $plural,
                                kind: stringify!($name),
                                namespaced: false,
                                status: false,
                                generation: false,
                                conditional_update: false,
                                custom: false,
                            };
                            $(info.$flag = true;)*
                            info
                        };
                        &INFO
                    })*
                }
            }
        }
    };
}

kinds! {
    Pod: "" "v1" "pods" [namespaced status];
    Node: "" "v1" "nodes" [status];
    Namespace: "" "v1" "namespaces" [status];
    Event: "" "v1" "events" [namespaced];
    ConfigMap: "" "v1" "configmaps" [namespaced];
    Service: "" "v1" "services" [namespaced status];
    PersistentVolumeClaim: "" "v1" "persistentvolumeclaims" [namespaced status];
    PersistentVolume: "" "v1" "persistentvolumes" [status];
    Deployment: "apps" "v1" "deployments" [namespaced status generation];
    ReplicaSet: "apps" "v1" "replicasets" [namespaced status generation];
    DaemonSet: "apps" "v1" "daemonsets" [namespaced status generation];
    StatefulSet: "apps" "v1" "statefulsets" [namespaced status generation];
    Job: "batch" "v1" "jobs" [namespaced status generation];
    PodDisruptionBudget: "policy" "v1" "poddisruptionbudgets" [namespaced status generation conditional_update];
    StorageClass: "storage.k8s.io" "v1" "storageclasses" [];
    CSINode: "storage.k8s.io" "v1" "csinodes" [];
    VolumeAttachment: "storage.k8s.io" "v1" "volumeattachments" [status];
    PriorityClass: "scheduling.k8s.io" "v1" "priorityclasses" [generation];
    Lease: "coordination.k8s.io" "v1" "leases" [namespaced conditional_update];
    NodePool: "karpenter.sh" "v1" "nodepools" [status generation conditional_update custom];
    NodeClaim: "karpenter.sh" "v1" "nodeclaims" [status generation conditional_update custom];
    EC2NodeClass: "karpenter.k8s.aws" "v1" "ec2nodeclasses" [status generation conditional_update custom];
}

impl Kind {
    /// The type served at `/apis/GROUP/VERSION/PLURAL`, or `/api/VERSION/PLURAL` for the core group.
    pub fn by_plural(group: &str, version: &str, plural: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| {
            let info = kind.info();
            info.plural == plural && info.group == group && info.version == version
        })
    }

    /// The type that a manifest's `apiVersion` and `kind` name.
    pub fn by_manifest(api_version: &str, kind: &str) -> Option<Kind> {
        Kind::ALL
            .iter()
            .copied()
            .find(|k| k.info().kind == kind && k.api_version() == api_version)
    }

    /// `GROUP/VERSION`, or the version alone for the core group.
    pub fn api_version(self) -> String {
        let info = self.info();
        if info.group.is_empty() {
            info.version.to_owned()
        } else {
            format!("{}/{}", info.group, info.version)
        }
    }

    /// `PLURAL.GROUP`, as error messages name a type.
    pub fn resource(self) -> String {
        let info = self.info();
        if info.group.is_empty() {
            info.plural.to_owned()
        } else {
            format!("{}.{}", info.plural, info.group)
        }
    }
}
