//! AMI families: how an image is bootstrapped, and what follows from it for capacity.

use crate::{api::EC2NodeClassSpec, units::Quantity};

/// How the image of a class is bootstrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AmiFamily {
    /// Amazon Linux 2.
    Al2,
    /// Amazon Linux 2023.
    Al2023,
    /// Bottlerocket.
    Bottlerocket,
    /// Windows Server 2019.
    Windows2019,
    /// Windows Server 2022.
    Windows2022,
    /// Windows Server 2025.
    Windows2025,
    /// The user's own image and bootstrap data.
    Custom,
}

impl AmiFamily {
    /// Every family.
    pub const ALL: [Self; 7] = [
        Self::Al2,
        Self::Al2023,
        Self::Bottlerocket,
        Self::Windows2019,
        Self::Windows2022,
        Self::Windows2025,
        Self::Custom,
    ];

    /// The value of `spec.amiFamily`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Al2 => "AL2",
            Self::Al2023 => "AL2023",
            Self::Bottlerocket => "Bottlerocket",
            Self::Windows2019 => "Windows2019",
            Self::Windows2022 => "Windows2022",
            Self::Windows2025 => "Windows2025",
            Self::Custom => "Custom",
        }
    }

    /// Reads `spec.amiFamily`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.as_str() == text)
    }

    /// The family that an alias such as `al2023@latest` names.
    pub fn from_alias(alias: &str) -> Option<Self> {
        let (family, _) = alias.split_once('@')?;
        Self::ALL
            .into_iter()
            .find(|f| *f != Self::Custom && f.as_str().to_ascii_lowercase() == family)
    }

    /// The family of a class: `amiFamily`, else that of the alias. Without either, which admission refuses, nothing is known of the
    /// image: `Custom`.
    pub fn of(spec: &EC2NodeClassSpec) -> Self {
        let written = spec.ami_family.as_deref().and_then(Self::parse);
        let alias = || {
            spec.ami_selector_terms
                .iter()
                .find_map(|t| Self::from_alias(t.alias.as_deref()?))
        };
        written.or_else(alias).unwrap_or(Self::Custom)
    }

    /// The Windows build number, for Windows.
    pub fn windows_build(self) -> Option<&'static str> {
        match self {
            Self::Windows2019 => Some("10.0.17763"),
            Self::Windows2022 => Some("10.0.20348"),
            Self::Windows2025 => Some("10.0.26100"),
            _ => None,
        }
    }

    /// Whether nodes run Windows.
    pub fn is_windows(self) -> bool {
        self.windows_build().is_some()
    }

    /// Whether the kubelet reserves memory by the pods that the network interfaces allow, whatever `maxPods` says.
    pub(crate) fn reserves_memory_by_interfaces(self) -> bool {
        matches!(self, Self::Al2 | Self::Al2023 | Self::Custom)
    }

    /// Whether `podsPerCore` counts.
    pub(crate) fn honours_pods_per_core(self) -> bool {
        self != Self::Bottlerocket
    }

    /// Whether the network interfaces bound the pods; else there are 110.
    pub(crate) fn limits_pods_by_interfaces(self) -> bool {
        !self.is_windows()
    }

    /// Device that pods' disk space comes from, and its default size in bytes.
    pub(crate) fn ephemeral_device(self) -> Option<(&'static str, i64)> {
        match self {
            Self::Al2 | Self::Al2023 => Some(("/dev/xvda", 20 << 30)),
            Self::Bottlerocket => Some(("/dev/xvdb", 20 << 30)),
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => {
                Some(("/dev/sda1", 50 << 30))
            }
            Self::Custom => None,
        }
    }
}

/// Whole units of a quantity that a user wrote, rounded up; `None` when it cannot be read.
pub(crate) fn whole(text: &str) -> Option<i64> {
    text.parse::<Quantity>().ok().map(|q| q.value_ceil())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::AmiSelectorTerm;

    #[test]
    fn family_comes_from_the_field_then_from_the_alias() {
        let spec = |family: Option<&str>, alias: Option<&str>| EC2NodeClassSpec {
            ami_family: family.map(str::to_owned),
            ami_selector_terms: vec![AmiSelectorTerm {
                alias: alias.map(str::to_owned),
                ..Default::default()
            }],
            ..Default::default()
        };
        assert_eq!(
            AmiFamily::of(&spec(None, Some("bottlerocket@v1.20.0"))),
            AmiFamily::Bottlerocket
        );
        assert_eq!(
            AmiFamily::of(&spec(Some("Custom"), Some("al2023@latest"))),
            AmiFamily::Custom
        );
        assert_eq!(AmiFamily::of(&spec(Some("AL2"), None)), AmiFamily::Al2);
        assert_eq!(AmiFamily::of(&spec(None, None)), AmiFamily::Custom);
        assert_eq!(AmiFamily::from_alias("custom@latest"), None);
        assert_eq!(AmiFamily::from_alias("al2023"), None);
    }
}
