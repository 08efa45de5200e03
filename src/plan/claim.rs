//! From a node that the solver wants to the NodeClaim that asks for it (`spec/scheduling.md` 6.2).

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hasher,
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;

use crate::{
    api::{
        NodeClaim, NodeClaimSpec, NodeClassRef, RequirementSpec, ResourceRequests, hash,
        names::{self, annotation, finalizer, label},
        requirement::{Operator, Requirement},
    },
    cluster::{Pool, Snapshot},
    scheduling::NewNode,
};

/// Characters that Kubernetes uses for generated names: no vowels, nothing that reads as something else.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Length of the random-looking end of a name, as generateName makes it.
const SUFFIX: usize = 5;

/// Chooses claim names: `<pool>-<five characters>`, from the pool, the time and a salt of the process, never one that exists. We choose
/// names ourselves so that repeating a create cannot make a second claim.
#[derive(Debug)]
pub struct Names<'a> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    salt: u64,
    taken: BTreeSet<String>,
}

impl<'a> Names<'a> {
    /// Names for one plan.
    pub fn new(snapshot: &'a Snapshot, now: Timestamp, salt: u64) -> Self {
        Self {
            snapshot,
            now,
            salt,
            taken: BTreeSet::new(),
        }
    }

    /// The next name for a pool.
    pub fn next(&mut self, pool: &str) -> String {
        let mut attempt = self.taken.len() as u64;
        loop {
            let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
            hasher.write(pool.as_bytes());
            hasher.write(&self.now.as_nanosecond().to_le_bytes());
            hasher.write(&self.salt.to_le_bytes());
            hasher.write(&attempt.to_le_bytes());
            let mut n = mix(hasher.finish());
            let mut name = format!("{pool}-");
            for _ in 0..SUFFIX {
                name.push(char::from(ALPHABET[usize::try_from(n % 27).unwrap_or(0)]));
                n /= 27;
            }
            if !self.snapshot.claims.contains_key(name.as_str()) && self.taken.insert(name.clone())
            {
                return name;
            }
            attempt += 1;
        }
    }
}

/// FNV-1a, the same on every machine.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Spreads the bits, so that names of one plan do not look alike.
fn mix(mut n: u64) -> u64 {
    n = (n ^ (n >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    n = (n ^ (n >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    n ^ (n >> 33)
}

/// Builds the claim of a planned node. Its finalizer is there from the start: nothing is launched that could be lost.
pub fn build(node: &NewNode, name: String) -> NodeClaim {
    let pool = &node.pool;
    let template = &pool.object.spec.template;
    let mut claim = NodeClaim::new(
        &name,
        NodeClaimSpec {
            requirements: requirements(node),
            node_class_ref: NodeClassRef {
                api_version: None,
                ..template.spec.node_class_ref.clone()
            },
            resources: ResourceRequests {
                requests: node.requests.to_quantities(),
            },
            taints: template.spec.taints().to_vec(),
            startup_taints: template.spec.startup_taints().to_vec(),
            expire_after: template.spec.expire_after.clone(),
            termination_grace_period: template.spec.termination_grace_period.clone(),
        },
    );
    claim.metadata = ObjectMeta {
        name: Some(name),
        labels: Some(labels(node)),
        annotations: Some(annotations(node)),
        finalizers: Some(vec![finalizer::TERMINATION.to_owned()]),
        owner_references: Some(vec![owner(pool)]),
        ..ObjectMeta::default()
    };
    claim
}

fn owner(pool: &Arc<Pool>) -> OwnerReference {
    OwnerReference {
        api_version: format!("{}/{}", names::GROUP, names::VERSION),
        kind: "NodePool".to_owned(),
        name: pool.name.to_string(),
        uid: pool.uid.clone(),
        block_owner_deletion: Some(true),
        controller: None,
    }
}

fn labels(node: &NewNode) -> BTreeMap<String, String> {
    let mut labels = node.pool.labels.clone();
    for r in node
        .requirements
        .iter()
        .filter(|r| !names::is_well_known(&r.key) && !names::is_restricted_key(&r.key))
    {
        if let Some(value) = concrete(r) {
            labels.insert(r.key.to_string(), value);
        }
    }
    labels.insert(label::NODEPOOL.to_owned(), node.pool.name.to_string());
    labels.insert(node.pool.class_label.clone(), node.pool.class.to_string());
    labels
}

/// A value that satisfies a custom requirement, so that the node can carry the label: the first listed one, or the least integer that is
/// neither excluded nor out of bounds (upstream draws one at random). None when the label must be absent.
fn concrete(r: &Requirement) -> Option<String> {
    if r.is_finite() {
        return r.values.first().map(ToString::to_string);
    }
    // Each excluded value rules out one candidate at most.
    let least = r.gte.unwrap_or(0);
    (0..=r.values.len() as i64)
        .map(|n| least.saturating_add(n).to_string())
        .find(|v| r.has(v))
}

fn annotations(node: &NewNode) -> BTreeMap<String, String> {
    let mut all = node
        .pool
        .object
        .spec
        .template
        .metadata
        .annotations()
        .clone();
    all.insert(
        annotation::NODEPOOL_HASH.to_owned(),
        hash::pool_hash(&node.pool.object.spec.template),
    );
    all.insert(
        annotation::NODEPOOL_HASH_VERSION.to_owned(),
        hash::POOL_HASH_VERSION.to_owned(),
    );
    all.insert(
        annotation::MIN_VALUES_RELAXED.to_owned(),
        node.min_values_relaxed.to_string(),
    );
    all
}

/// The claim's requirements as written: the node's, with the instance types that hold the pods and the capacity types they are sold as.
fn requirements(node: &NewNode) -> Vec<RequirementSpec> {
    let mut all = node.requirements.clone();
    for internal in [label::REGISTERED, label::INITIALIZED, label::HOSTNAME] {
        all.remove(internal);
    }
    let types = Requirement::of(
        label::INSTANCE_TYPE,
        node.instance_types.iter().map(|t| t.name.as_ref()),
    );
    let min_values = all.get(label::INSTANCE_TYPE).and_then(|r| r.min_values);
    all.replace(Requirement {
        min_values,
        ..types
    });
    let sold: BTreeSet<&str> = node
        .instance_types
        .iter()
        .flat_map(|t| &t.offerings)
        .filter(|o| o.is_launchable() && node.requirements.intersects(&o.requirements).is_ok())
        .map(|o| o.capacity_type.as_str())
        .collect();
    if !sold.is_empty() {
        all.add(Requirement::of(label::CAPACITY_TYPE, sold));
    }
    all.iter().flat_map(specs).collect()
}

/// One requirement as the API writes it: bounds become `Gte` and `Lte` entries, values are sorted (`spec/scheduling.md` 2.9).
pub fn specs(r: &Requirement) -> Vec<RequirementSpec> {
    let min_values = r.min_values.and_then(|n| i32::try_from(n).ok());
    let spec = |operator: Operator, values: Vec<String>| RequirementSpec {
        key: r.key.to_string(),
        operator: operator.as_str().to_owned(),
        values,
        min_values,
    };
    let bounds: Vec<RequirementSpec> = [(Operator::Gte, r.gte), (Operator::Lte, r.lte)]
        .into_iter()
        .filter_map(|(operator, bound)| bound.map(|n| spec(operator, vec![n.to_string()])))
        .collect();
    if !bounds.is_empty() {
        return bounds;
    }
    vec![spec(
        r.operator(),
        r.values.iter().map(|v| v.to_string()).collect(),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_custom_requirement_gets_a_label_that_satisfies_it() {
        let check = |operator, values: &[&str], want: Option<&str>| {
            let r = Requirement::new("team", operator, values, None).expect("a requirement");
            assert_eq!(concrete(&r).as_deref(), want, "{r}");
        };
        check(Operator::In, &["b", "a"], Some("a"));
        check(Operator::Gt, &["3"], Some("4"));
        check(Operator::Lt, &["3"], Some("0"));
        check(Operator::Exists, &[], Some("0"));
        check(Operator::NotIn, &["0", "1"], Some("2"));
        check(Operator::DoesNotExist, &[], None);
    }
}
