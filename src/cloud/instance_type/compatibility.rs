//! Whether a type can be launched with a class at all (`spec/ec2-provider.md` 1.6). A type that cannot stays listed, with no offering
//! available.

use super::class::ClassView;
use crate::cloud::{ami_family::AmiFamily, hardware::Hardware};

/// Whether EC2 would take the type with this class. What is not known of the type does not rule it out.
pub fn is_compatible(hardware: &Hardware, class: &ClassView) -> bool {
    let boots = class.family != AmiFamily::Al2023 || hardware.family() != "a1";
    let nests = !class.nested_virtualization || hardware.nested_virtualization != Some(false);
    let encloses = !class.enclaves || hardware.enclaves != Some(false);
    let tracks = !class.connection_tracking || hardware.hypervisor == "nitro";
    boots && nests && encloses && tracks && has_interfaces(hardware, class)
}

fn has_interfaces(hardware: &Hardware, class: &ClassView) -> bool {
    let fits = |card: i32, device: i32| {
        let (Ok(card), Ok(device)) = (u32::try_from(card), u32::try_from(device)) else {
            return false;
        };
        card < hardware.network_cards && device < hardware.default_card_enis
    };
    class.efa_only(None) <= i64::from(hardware.efa)
        && class
            .interfaces
            .iter()
            .flatten()
            .all(|i| fits(i.network_card_index, i.device_index))
}
