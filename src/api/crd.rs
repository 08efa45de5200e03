//! The CustomResourceDefinitions of the three kinds.
//!
//! Names, types, descriptions, columns and subresources come from the Rust types. Everything a type cannot say
//! (bounds, patterns, defaults, CEL rules) is added by path in the submodules. `manifests/crds` holds the result; the
//! test below compares.

mod ec2_node_class;
mod edit;
mod node_claim;
mod node_pool;
mod shared;
mod structural;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

pub use structural::{apply_defaults, prune};

/// The CRDs of NodePool, NodeClaim and EC2NodeClass.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![node_pool::crd(), node_claim::crd(), ec2_node_class::crd()]
}

/// The CRD as a YAML document.
pub fn yaml(crd: &CustomResourceDefinition) -> String {
    let mut value = serde_json::to_value(crd).expect("a CRD is JSON");
    whole_bounds(&mut value);
    serde_saphyr::to_string(&value).expect("JSON has a YAML form")
}

/// Bounds are floats in the Rust type; people write them as integers.
fn whole_bounds(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number
                .as_f64()
                .filter(|float| float.fract() == 0.0 && float.abs() < 1e15)
            {
                *number = (float as i64).into();
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(whole_bounds),
        Value::Object(members) => members.values_mut().for_each(whole_bounds),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The name of the file that holds the CRD, such as `karpenter.sh_nodepools.yaml`.
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// `TENON_UPDATE=1 cargo test --lib crd` writes the files anew.
    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "says whether to write the files anew"
    )]
    fn manifests_are_up_to_date() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/crds");
        for crd in all() {
            let file = folder.join(file_name(&crd));
            if std::env::var_os("TENON_UPDATE").is_some() {
                fs::create_dir_all(&folder).unwrap();
                fs::write(&file, yaml(&crd)).unwrap();
            }
            let held = fs::read_to_string(&file).unwrap_or_default();
            assert!(
                held == yaml(&crd),
                "{} is not up to date: run TENON_UPDATE=1 cargo test --lib crd",
                file.display()
            );
        }
    }
}
