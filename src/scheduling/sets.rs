//! Numbers for what the inner loop compares: resource names, requirement sets, bit sets. The loop itself touches no strings.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    api::{
        names,
        requirement::{Requirements, Text, Undefined},
    },
    units::Resources,
};

/// The resources that somebody asks for; amounts become rows in this order.
pub(super) struct Dims(Vec<Arc<str>>);

impl Dims {
    /// Every resource of which at least one of the lists has more than nothing.
    pub(super) fn of<'a>(requests: impl IntoIterator<Item = &'a Resources>) -> Self {
        let mut names: Vec<Arc<str>> = Vec::new();
        for (name, amount) in requests.into_iter().flat_map(Resources::iter) {
            if amount > 0
                && let Err(place) = names.binary_search_by(|n| (**n).cmp(name))
            {
                names.insert(place, name.into());
            }
        }
        Self(names)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn name(&self, dim: usize) -> &str {
        &self.0[dim]
    }

    /// Amounts as a row.
    pub(super) fn row(&self, amounts: &Resources) -> Vec<i64> {
        self.0.iter().map(|n| amounts.get(n)).collect()
    }

    /// A row as amounts, without zeros.
    pub(super) fn amounts(&self, row: &[i64]) -> Resources {
        self.0
            .iter()
            .zip(row)
            .filter(|(_, a)| **a != 0)
            .map(|(n, a)| (n.clone(), *a))
            .collect()
    }
}

/// Whether each request is at most what there is.
pub(super) fn fits(requests: &[i64], room: &[i64]) -> bool {
    requests
        .iter()
        .zip(room)
        .all(|(r, there)| *r <= 0 || r <= there)
}

/// Adds row to row.
pub(super) fn add(to: &mut [i64], row: &[i64]) {
    for (t, r) in to.iter_mut().zip(row) {
        *t = t.saturating_add(*r);
    }
}

/// Takes a row from a row.
pub(super) fn sub(from: &mut [i64], row: &[i64]) {
    for (f, r) in from.iter_mut().zip(row) {
        *f = f.saturating_sub(*r);
    }
}

/// A set of small numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn none(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    pub(super) fn of(size: usize, has: impl Fn(usize) -> bool) -> Self {
        let mut bits = Self::none(size);
        (0..size).filter(|i| has(*i)).for_each(|i| bits.insert(i));
        bits
    }

    pub(super) fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    pub(super) fn has(&self, i: usize) -> bool {
        self.0[i / 64] & (1 << (i % 64)) != 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// What is in both.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(w, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    w * 64 + bit
                })
            })
        })
    }

    /// Keeps those for which `keep` is true.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        for w in 0..self.0.len() {
            let mut rest = self.0[w];
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if !keep(w * 64 + bit) {
                    self.0[w] &= !(1 << bit);
                }
            }
        }
    }
}

/// Number of a requirement set.
pub(super) type SetId = u32;

/// Requirement sets by number, with what became of each pair that met before.
pub(super) struct Sets<'p> {
    all: Vec<Arc<Requirements>>,
    ids: BTreeMap<Arc<Requirements>, SetId>,
    on_claims: BTreeMap<(SetId, SetId), Option<SetId>>,
    on_nodes: BTreeMap<(SetId, SetId), Option<SetId>>,
    extra_well_known: &'p [Text],
}

impl<'p> Sets<'p> {
    pub(super) fn new(extra_well_known: &'p [Text]) -> Self {
        Self {
            all: Vec::new(),
            ids: BTreeMap::new(),
            on_claims: BTreeMap::new(),
            on_nodes: BTreeMap::new(),
            extra_well_known,
        }
    }

    pub(super) fn intern(&mut self, set: Requirements) -> SetId {
        if let Some(id) = self.ids.get(&set) {
            return *id;
        }
        let id = SetId::try_from(self.all.len()).expect("fewer sets than pods and claims together");
        let set = Arc::new(set);
        self.all.push(set.clone());
        self.ids.insert(set, id);
        id
    }

    pub(super) fn get(&self, id: SetId) -> &Arc<Requirements> {
        &self.all[id as usize]
    }

    /// Whether a new node may have a label that nothing defines.
    pub(super) fn is_well_known(&self, key: &str) -> bool {
        names::is_well_known(key) || self.extra_well_known.iter().any(|k| **k == *key)
    }

    /// The claim's set after a pod with this wish joined, if it may.
    pub(super) fn join_claim(&mut self, claim: SetId, wish: SetId) -> Option<SetId> {
        if let Some(known) = self.on_claims.get(&(claim, wish)) {
            return *known;
        }
        let (there, incoming) = (self.get(claim).clone(), self.get(wish).clone());
        let admits = there.admits(&incoming, Undefined::AllowedIf(&|k| self.is_well_known(k)));
        let joined = admits.then(|| self.narrowed(&there, &incoming));
        self.on_claims.insert((claim, wish), joined);
        joined
    }

    /// The node's set after a pod with this wish joined, if it may: labels that the node lacks are not there.
    pub(super) fn join_node(&mut self, node: SetId, wish: SetId) -> Option<SetId> {
        if let Some(known) = self.on_nodes.get(&(node, wish)) {
            return *known;
        }
        let (there, incoming) = (self.get(node).clone(), self.get(wish).clone());
        let admits = there.admits(&incoming, Undefined::Denied);
        let joined = admits.then(|| self.narrowed(&there, &incoming));
        self.on_nodes.insert((node, wish), joined);
        joined
    }

    fn narrowed(&mut self, there: &Requirements, incoming: &Requirements) -> SetId {
        let mut set = there.clone();
        set.add_all(incoming);
        self.intern(set)
    }
}
