//! What the selectors of a node class find in the simulated account.
//!
//! Any selector finds something: tags and names one subnet in each zone, one security group and one image that fits every architecture;
//! ids find what they name. Placement groups and capacity reservations do not exist here: the first have no effect, the second are none.

use k8s_openapi::api::core::v1::NodeSelectorRequirement;

use super::random::Random;
use crate::{
    api::{
        AmiStatus, EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus, SecurityGroupStatus,
        SubnetStatus,
        names::{condition, label},
    },
    cloud::{ResolvedClass, ami_family::AmiFamily, catalog::Zone, hardware::Arch},
};

/// What the account looks like to a class.
pub(super) struct Account<'a> {
    pub(super) seed: u64,
    pub(super) cluster_name: &'a str,
    pub(super) kubernetes_version: &'a str,
    pub(super) zones: &'a [Zone],
}

/// The images that the kubelet hardware variants need.
#[derive(Clone, Copy)]
enum Variant {
    Standard,
    Nvidia,
    Neuron,
}

impl Account<'_> {
    /// Subnets, security groups, images and profile of a class, and what could not be found.
    pub(super) fn resolve(&self, class: &EC2NodeClass) -> ResolvedClass {
        let mut problems = Vec::new();
        let mut problem = |condition: &str, reason: &str, message: String| {
            problems.push((condition.to_owned(), reason.to_owned(), message));
        };
        let spec = &class.spec;
        let subnets = self.subnets(spec);
        if subnets.is_empty() {
            let message = "no subnet matches subnetSelectorTerms".to_owned();
            problem(condition::SUBNETS_READY, "SubnetsNotFound", message);
        }
        let security_groups = self.security_groups(spec);
        if security_groups.is_empty() {
            let message = "no security group matches securityGroupSelectorTerms".to_owned();
            problem(
                condition::SECURITY_GROUPS_READY,
                "SecurityGroupsNotFound",
                message,
            );
        }
        let amis = self.images(spec).unwrap_or_else(|unsupported| {
            problem(condition::AMIS_READY, "UnsupportedAlias", unsupported);
            Vec::new()
        });
        if amis.is_empty() && problems.iter().all(|p| p.0 != condition::AMIS_READY) {
            problems.push((
                condition::AMIS_READY.to_owned(),
                "AMINotFound".to_owned(),
                "no image matches amiSelectorTerms".to_owned(),
            ));
        }
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let made_for = |role: &str| {
            let id = self.random(&["profile", name, role]).next();
            format!("{}_{id}", self.cluster_name)
        };
        let instance_profile = match (&spec.instance_profile, &spec.role) {
            (Some(profile), _) => Some(profile.clone()),
            (None, Some(role)) => Some(made_for(role)),
            (None, None) => None,
        };
        ResolvedClass {
            status: EC2NodeClassStatus {
                subnets,
                security_groups,
                amis,
                instance_profile,
                ..Default::default()
            },
            problems,
        }
    }

    fn random(&self, words: &[&str]) -> Random {
        Random::new(self.seed, words)
    }

    fn subnets(&self, spec: &EC2NodeClassSpec) -> Vec<SubnetStatus> {
        let mut found: Vec<SubnetStatus> = Vec::new();
        let mut add = |id: String, zone: &Zone| {
            if found.iter().all(|s| s.id != id) {
                found.push(SubnetStatus {
                    id,
                    zone: zone.name.to_string(),
                    zone_id: Some(zone.id.to_string()),
                });
            }
        };
        let terms = &spec.subnet_selector_terms;
        for (term, zone) in terms.iter().zip(self.zones.iter().cycle()) {
            match &term.id {
                Some(id) => add(id.clone(), zone),
                None if term.tags.as_ref().is_some_and(|t| !t.is_empty()) => {
                    for zone in self.zones {
                        let mut random = self.random(&["subnet", &zone.name]);
                        add(format!("subnet-{}", random.hex(17)), zone);
                    }
                }
                None => {}
            }
        }
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found
    }

    fn security_groups(&self, spec: &EC2NodeClassSpec) -> Vec<SecurityGroupStatus> {
        let terms = &spec.security_group_selector_terms;
        let mut found: Vec<SecurityGroupStatus> = terms
            .iter()
            .filter_map(|term| {
                let tagged = term.tags.as_ref().is_some_and(|t| !t.is_empty());
                let name = match (&term.id, &term.name) {
                    (Some(id), _) => {
                        return Some(SecurityGroupStatus {
                            id: id.clone(),
                            name: None,
                        });
                    }
                    (None, Some(name)) => name.clone(),
                    (None, None) if tagged => format!("{}-nodes", self.cluster_name),
                    (None, None) => return None,
                };
                Some(SecurityGroupStatus {
                    id: format!("sg-{}", self.random(&["group", &name]).hex(17)),
                    name: Some(name),
                })
            })
            .collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found.dedup_by(|a, b| a.id == b.id);
        found
    }

    /// The images of a class, newest first; an alias that this version of Kubernetes does not have is an error.
    fn images(&self, spec: &EC2NodeClassSpec) -> Result<Vec<AmiStatus>, String> {
        let mut found = Vec::new();
        for term in &spec.ami_selector_terms {
            if let Some(alias) = &term.alias {
                found.extend(self.alias_images(alias)?);
                continue;
            }
            let asked = [&term.id, &term.name, &term.ssm_parameter, &term.owner];
            let text = match asked.into_iter().flatten().next() {
                Some(text) => text.clone(),
                None if term.tags.as_ref().is_some_and(|t| !t.is_empty()) => "tagged".to_owned(),
                None => continue,
            };
            let id = match &term.id {
                Some(id) => id.clone(),
                None => format!("ami-{}", self.random(&["image", &text]).hex(17)),
            };
            let arch = [Arch::Amd64.as_str(), Arch::Arm64.as_str()];
            found.push(AmiStatus {
                name: Some(term.name.clone().unwrap_or_else(|| id.clone())),
                id,
                deprecated: None,
                requirements: vec![requirement(label::ARCH, "In", &arch)],
            });
        }
        Ok(found)
    }

    fn alias_images(&self, alias: &str) -> Result<Vec<AmiStatus>, String> {
        use Arch::{Amd64, Arm64};
        use Variant::{Neuron, Nvidia, Standard};
        let (Some(family), Some((_, version))) =
            (AmiFamily::from_alias(alias), alias.split_once('@'))
        else {
            return Ok(Vec::new());
        };
        let minor = minor(self.kubernetes_version);
        let refuse = |bound: &str| {
            let version = self.kubernetes_version;
            Err(format!(
                "alias {alias} needs Kubernetes {bound}, this is {version}"
            ))
        };
        // Image names with the hardware that each serves.
        let images: &[(&str, Arch, &[Variant])] = match family {
            AmiFamily::Al2 if minor >= 33 => return refuse("1.32 or older"),
            AmiFamily::Windows2025 if minor < 35 => return refuse("1.35 or newer"),
            AmiFamily::Al2 => &[
                ("amazon-eks-node", Amd64, &[Standard]),
                ("amazon-eks-arm64-node", Arm64, &[Standard]),
                ("amazon-eks-gpu-node", Amd64, &[Nvidia, Neuron]),
            ],
            AmiFamily::Al2023 => &[
                ("amazon-eks-node-al2023-x86_64-standard", Amd64, &[Standard]),
                ("amazon-eks-node-al2023-arm64-standard", Arm64, &[Standard]),
                ("amazon-eks-node-al2023-x86_64-nvidia", Amd64, &[Nvidia]),
                ("amazon-eks-node-al2023-arm64-nvidia", Arm64, &[Nvidia]),
                ("amazon-eks-node-al2023-x86_64-neuron", Amd64, &[Neuron]),
            ],
            AmiFamily::Bottlerocket => &[
                ("bottlerocket-aws-k8s-x86_64", Amd64, &[Standard, Neuron]),
                ("bottlerocket-aws-k8s-aarch64", Arm64, &[Standard]),
                ("bottlerocket-aws-k8s-nvidia-x86_64", Amd64, &[Nvidia]),
                ("bottlerocket-aws-k8s-nvidia-aarch64", Arm64, &[Nvidia]),
            ],
            AmiFamily::Windows2019 => &[("windows-server-2019-core-eks", Amd64, &[])],
            AmiFamily::Windows2022 => &[("windows-server-2022-core-eks", Amd64, &[])],
            AmiFamily::Windows2025 => &[("windows-server-2025-core-eks", Amd64, &[])],
            AmiFamily::Custom => &[],
        };
        let mut found = Vec::new();
        for (base, arch, variants) in images {
            let name = format!("{base}-{}-{version}", self.kubernetes_version);
            let id = format!("ami-{}", self.random(&["image", &name]).hex(17));
            let image = |mut requirements: Vec<NodeSelectorRequirement>| {
                requirements.push(requirement(label::ARCH, "In", &[arch.as_str()]));
                requirements.sort_by_key(|r| (r.key.len(), r.key.clone()));
                AmiStatus {
                    id: id.clone(),
                    name: Some(name.clone()),
                    deprecated: None,
                    requirements,
                }
            };
            if let Some(build) = family.windows_build() {
                found.push(image(vec![
                    requirement(label::OS, "In", &["windows"]),
                    requirement(label::WINDOWS_BUILD, "In", &[build]),
                ]));
            }
            found.extend(variants.iter().map(|v| image(v.requirements())));
        }
        Ok(found)
    }
}

impl Variant {
    fn requirements(self) -> Vec<NodeSelectorRequirement> {
        match self {
            Self::Standard => vec![
                requirement(label::INSTANCE_GPU_COUNT, "DoesNotExist", &[]),
                requirement(label::INSTANCE_ACCELERATOR_COUNT, "DoesNotExist", &[]),
            ],
            Self::Nvidia => vec![requirement(label::INSTANCE_GPU_COUNT, "Exists", &[])],
            Self::Neuron => vec![requirement(
                label::INSTANCE_ACCELERATOR_COUNT,
                "Exists",
                &[],
            )],
        }
    }
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: (!values.is_empty()).then(|| values.iter().map(|v| (*v).to_owned()).collect()),
    }
}

/// The minor of `1.32`; 0 when it cannot be read.
fn minor(version: &str) -> u32 {
    let digits = |s: &str| {
        s.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
    };
    let minor = version.trim_start_matches('v').split('.').nth(1);
    minor.and_then(|m| digits(m).parse().ok()).unwrap_or(0)
}
