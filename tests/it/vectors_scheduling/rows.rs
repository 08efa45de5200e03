//! The schema of the vector file; its head is the documentation.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) schema: u32,
    pub(super) catalogues: BTreeMap<String, Vec<TypeRow>>,
    pub(super) vectors: Vec<Row>,
    pub(super) requirement_vectors: Vec<RequirementRow>,
    pub(super) compatibility_vectors: Vec<CompatibilityRow>,
    pub(super) serialise_vectors: Vec<SerialiseRow>,
    pub(super) batching_vectors: Vec<IgnoredAny>,
    pub(super) overlay_vectors: Vec<IgnoredAny>,
    pub(super) price_vectors: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequirementRow {
    pub(super) a: String,
    pub(super) b: String,
    pub(super) out: String,
    pub(super) overlap: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CompatibilityRow {
    pub(super) node: Vec<String>,
    pub(super) incoming: Vec<String>,
    pub(super) allow: bool,
    pub(super) strict: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SerialiseRow {
    pub(super) all: Vec<String>,
    pub(super) out: Vec<String>,
    #[serde(default, rename = "quirk")]
    pub(super) _quirk: bool,
}

/// One pass.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    #[serde(rename = "ref")]
    pub(super) section: String,
    #[serde(default, rename = "quirk")]
    pub(super) _quirk: bool,
    #[serde(default)]
    pub(super) options: OptionsRow,
    #[serde(default)]
    pub(super) nodepools: Vec<PoolRow>,
    pub(super) instance_types: WordOr<TypeRow>,
    #[serde(default)]
    pub(super) daemonsets: Vec<PodRow>,
    #[serde(default)]
    pub(super) pvcs: Vec<IgnoredAny>,
    #[serde(default)]
    pub(super) services: Vec<IgnoredAny>,
    #[serde(default)]
    pub(super) namespaces: BTreeMap<String, IgnoredAny>,
    #[serde(default)]
    pub(super) pdbs: Vec<BudgetRow>,
    #[serde(default)]
    pub(super) existing_nodes: Vec<NodeRow>,
    #[serde(default)]
    pub(super) pods: Vec<PodRow>,
    pub(super) expect: Expect,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OptionsRow {
    pub(super) preference_policy: Option<String>,
    pub(super) min_values_policy: Option<String>,
    pub(super) reserved_mode: Option<String>,
    pub(super) reserved_capacity: Option<bool>,
    pub(super) ignore_dra: Option<bool>,
    pub(super) max_instance_types: Option<usize>,
    pub(super) timeout_after_pods: Option<usize>,
    pub(super) default_spread: Vec<IgnoredAny>,
    pub(super) credit: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolRow {
    pub(super) name: String,
    #[serde(default)]
    pub(super) weight: i32,
    #[serde(default)]
    pub(super) requirements: Vec<String>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) taints: Vec<String>,
    #[serde(default)]
    pub(super) startup_taints: Vec<String>,
    #[serde(default)]
    pub(super) limits: BTreeMap<String, Scalar>,
    pub(super) ready: Option<bool>,
    #[serde(default)]
    pub(super) deleting: bool,
    pub(super) replicas: Option<i64>,
    pub(super) instance_types: Option<Vec<String>>,
}

/// A word, or a list. Read by hand: an untagged enum would first read `y` as a boolean.
pub(super) enum WordOr<T> {
    Word(String),
    List(Vec<T>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = WordOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a list")
            }

            fn visit_str<E>(self, word: &str) -> Result<WordOr<T>, E> {
                Ok(WordOr::Word(word.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<WordOr<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = seq.next_element()? {
                    list.push(item);
                }
                Ok(WordOr::List(list))
            }
        }

        from.deserialize_any(Either(PhantomData))
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TypeRow {
    pub(super) name: String,
    pub(super) cpu: Scalar,
    pub(super) mem: Scalar,
    pub(super) pods: Option<i64>,
    #[serde(default)]
    pub(super) resources: BTreeMap<String, Scalar>,
    #[serde(default)]
    pub(super) overhead: BTreeMap<String, Scalar>,
    pub(super) arch: Option<String>,
    pub(super) os: Option<Vec<String>>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, Option<String>>,
    pub(super) offers: Vec<String>,
    #[serde(default)]
    pub(super) volume_limits: BTreeMap<String, Option<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeRow {
    pub(super) name: String,
    pub(super) nodepool: Option<String>,
    pub(super) state: Option<String>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) taints: Vec<String>,
    #[serde(default)]
    pub(super) startup_taints: Vec<String>,
    pub(super) alloc: BTreeMap<String, Scalar>,
    pub(super) capacity: Option<BTreeMap<String, Scalar>>,
    pub(super) claim_alloc: Option<BTreeMap<String, Scalar>>,
    #[serde(default)]
    pub(super) deleting: bool,
    #[serde(default)]
    pub(super) rebooting: bool,
    #[serde(default)]
    pub(super) volume_limits: BTreeMap<String, Option<i64>>,
    #[serde(default)]
    pub(super) pods: Vec<PodRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetRow {
    pub(super) name: String,
    pub(super) sel: BTreeMap<String, String>,
    pub(super) max_unavailable: Option<serde_json::Value>,
    pub(super) min_available: Option<serde_json::Value>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PodRow {
    pub(super) name: String,
    pub(super) count: Option<usize>,
    pub(super) ns: Option<String>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) cpu: Option<Scalar>,
    pub(super) mem: Option<Scalar>,
    #[serde(default)]
    pub(super) resources: BTreeMap<String, Scalar>,
    #[serde(default)]
    pub(super) node_selector: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) node_required: Vec<Vec<String>>,
    #[serde(default)]
    pub(super) node_preferred: Vec<PreferenceRow>,
    #[serde(default)]
    pub(super) spread: Vec<SpreadRow>,
    #[serde(default)]
    pub(super) pod_affinity: Vec<AffinityRow>,
    #[serde(default)]
    pub(super) pod_anti: Vec<AffinityRow>,
    #[serde(default)]
    pub(super) tolerations: Vec<String>,
    #[serde(default)]
    pub(super) host_ports: Vec<Scalar>,
    #[serde(default)]
    pub(super) volumes: Vec<String>,
    #[serde(default)]
    pub(super) created: i64,
    pub(super) uid: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) phase: Option<String>,
    #[serde(default)]
    pub(super) terminating: bool,
    pub(super) do_not_disrupt: Option<Scalar>,
    #[serde(default)]
    pub(super) dra: bool,
    #[serde(default, rename = "virtual")]
    pub(super) of_buffer: bool,
    #[serde(default)]
    pub(super) match_fields: bool,
    pub(super) unschedulable: Option<bool>,
    pub(super) nominated_node: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PreferenceRow {
    pub(super) w: i32,
    pub(super) m: Vec<String>,
}

#[derive(Clone, Deserialize)]
pub(super) struct SpreadRow {
    pub(super) key: String,
    pub(super) when: Option<String>,
    pub(super) skew: Option<i32>,
}

#[derive(Clone, Deserialize)]
pub(super) struct AffinityRow {
    pub(super) key: String,
    pub(super) w: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Expect {
    pub(super) new_nodes: Option<Count>,
    pub(super) sizes: Option<Vec<usize>>,
    pub(super) claims: Vec<ClaimRow>,
    pub(super) existing: BTreeMap<String, Vec<String>>,
    pub(super) existing_n: BTreeMap<String, usize>,
    pub(super) zone_counts: Option<Vec<usize>>,
    pub(super) pending: BTreeMap<String, WordOr<String>>,
    pub(super) pending_n: BTreeMap<String, usize>,
    pub(super) pending_min: Option<usize>,
    pub(super) ignored: BTreeMap<String, String>,
    pub(super) unattempted: usize,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Count {
    Exact(usize),
    Within { min: usize, max: usize },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimRow {
    pub(super) pods: Option<Vec<String>>,
    pub(super) n: Option<usize>,
    pub(super) nodepool: Option<String>,
    pub(super) it: Option<Vec<String>>,
    pub(super) it_set: Option<Vec<String>>,
    pub(super) cheapest: Option<String>,
    pub(super) zone: Option<WordOr<String>>,
    pub(super) ct: Option<WordOr<String>>,
    pub(super) rid: Option<WordOr<String>>,
    #[serde(default)]
    pub(super) req: Vec<String>,
    pub(super) requests: Option<BTreeMap<String, Scalar>>,
    pub(super) relaxed: Option<bool>,
}

/// A number or a word, as written.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Scalar {
    Switch(bool),
    Whole(i64),
    Part(f64),
    Word(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(b) => write!(f, "{b}"),
            Self::Whole(n) => write!(f, "{n}"),
            Self::Part(x) => write!(f, "{x}"),
            Self::Word(w) => f.write_str(w),
        }
    }
}

impl Row {
    /// The types of the row.
    pub(super) fn types(&self, file: &File) -> Vec<TypeRow> {
        match &self.instance_types {
            WordOr::List(list) => list.clone(),
            WordOr::Word(name) => file.catalogues[name].clone(),
        }
    }

    /// Fields of the row that need what the solver does not do yet.
    pub(super) fn needs(&self, file: &File) -> Vec<&'static str> {
        let ignore_preferences = self.options.preference_policy.as_deref() == Some("Ignore");
        let mut needs = Vec::new();
        let mut need = |what: &'static str, when: bool| {
            if when && !needs.contains(&what) {
                needs.push(what);
            }
        };
        let on_nodes = self.existing_nodes.iter().flat_map(|n| &n.pods);
        for pod in self.pods.iter().chain(on_nodes) {
            let soft_spread = |s: &SpreadRow| s.when.as_deref() == Some("ScheduleAnyway");
            need(
                "spread",
                pod.spread
                    .iter()
                    .any(|s| !(soft_spread(s) && ignore_preferences)),
            );
            let counts = |a: &AffinityRow| !(a.w.is_some() && ignore_preferences);
            need("pod_affinity", pod.pod_affinity.iter().any(counts));
            need("pod_anti", pod.pod_anti.iter().any(counts));
            need("volumes", !pod.volumes.is_empty());
            need("host_ports", !pod.host_ports.is_empty());
            need("virtual", pod.of_buffer);
            need("dra", pod.dra && self.options.ignore_dra == Some(false));
        }
        let types = self.types(file);
        need("volumes", !self.pvcs.is_empty());
        need(
            "volume_limits",
            types.iter().any(|t| !t.volume_limits.is_empty()),
        );
        need(
            "volume_limits",
            self.existing_nodes
                .iter()
                .any(|n| !n.volume_limits.is_empty()),
        );
        need(
            "reserved",
            types
                .iter()
                .any(|t| t.offers.iter().any(|o| o.starts_with("res/"))),
        );
        need("reserved_mode", self.options.reserved_mode.is_some());
        need(
            "reserved_capacity",
            self.options.reserved_capacity.is_some(),
        );
        need("credit", !self.options.credit.is_empty());
        need(
            "timeout_after_pods",
            self.options.timeout_after_pods.is_some(),
        );
        need("default_spread", !self.options.default_spread.is_empty());
        need("services", !self.services.is_empty());
        need("namespaces", !self.namespaces.is_empty());
        needs
    }
}
