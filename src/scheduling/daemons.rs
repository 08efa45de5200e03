//! What DaemonSets take of each node (`spec/scheduling.md` 1.6).
//!
//! Upstream tests pools and instance types first and existing nodes afterwards with the same pod objects, which the tests change: a
//! required term that some type refused is gone, and once a pool was tested `PreferNoSchedule` taints are put up with. Kept as is.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    classes::{required, tolerates_soft_taints},
    sets::{Bits, Dims, add},
};
use crate::{
    api::{
        requirement::{Requirements, Undefined},
        taint::{Taint, Toleration, untolerated},
    },
    cloud::InstanceType,
    cluster::Pod,
};

/// The pod of a DaemonSet while the pass is set up.
pub(super) struct Daemon {
    requests: Vec<i64>,
    tolerations: Vec<Toleration>,
    /// Selector with each required term that is left; the first counts.
    terms: Vec<Requirements>,
    first: usize,
    tested: bool,
}

/// Instance types on which the same DaemonSets run.
pub(super) struct Group {
    /// Their share of each node.
    pub(super) requests: Vec<i64>,
    /// The types.
    pub(super) types: Bits,
}

impl Daemon {
    pub(super) fn new(pod: &Pod, dims: &Dims) -> Self {
        Self {
            requests: dims.row(&pod.requests),
            tolerations: pod.tolerations.clone(),
            terms: required(pod).into_iter().flatten().collect(),
            first: 0,
            tested: false,
        }
    }

    /// Whether it runs on a node with these labels and taints; of its terms only the first one left counts.
    fn runs_on(&self, labels: &Requirements, taints: &[Taint]) -> bool {
        untolerated(taints, &self.tolerations).is_empty()
            && self
                .terms
                .get(self.first)
                .is_some_and(|term| labels.admits(term, Undefined::Denied))
    }
}

/// Groups the types of a pool by the DaemonSets that run on them.
pub(super) fn groups(
    daemons: &mut [Daemon],
    labels: &Requirements,
    taints: &[Taint],
    types: &[Arc<InstanceType>],
    candidates: &Bits,
    dims: &Dims,
    well_known: &dyn Fn(&str) -> bool,
) -> Vec<Group> {
    let mut groups: BTreeMap<Vec<bool>, Group> = BTreeMap::new();
    let mut tolerated = Vec::new();
    for d in daemons.iter_mut().filter(|_| !candidates.is_empty()) {
        if !d.tested {
            d.tested = true;
            d.tolerations.push(tolerates_soft_taints());
        }
        tolerated.push(untolerated(taints, &d.tolerations).is_empty());
    }
    let in_pool: Vec<Vec<bool>> = daemons
        .iter()
        .map(|d| {
            d.terms
                .iter()
                .map(|t| labels.admits(t, Undefined::AllowedIf(well_known)))
                .collect()
        })
        .collect();
    for i in candidates.iter() {
        let runs: Vec<bool> = daemons
            .iter_mut()
            .enumerate()
            .map(|(n, d)| {
                if !tolerated[n] {
                    return false;
                }
                let runs =
                    |term: usize| in_pool[n][term] && types[i].requirements.meets(&d.terms[term]);
                let found = (d.first..d.terms.len()).find(|term| runs(*term));
                d.first = found.unwrap_or(d.terms.len().saturating_sub(1));
                found.is_some()
            })
            .collect();
        let group = groups.entry(runs).or_insert_with_key(|runs| {
            let mut requests = vec![0; dims.len()];
            for (d, _) in daemons.iter().zip(runs).filter(|(_, runs)| **runs) {
                add(&mut requests, &d.requests);
            }
            Group {
                requests,
                types: Bits::none(types.len()),
            }
        });
        group.types.insert(i);
    }
    groups.into_values().collect()
}

/// The smallest share per resource over the groups that still own a type.
pub(super) fn least(groups: &[Group], types: &Bits, dims: &Dims) -> Vec<i64> {
    let mut least: Option<Vec<i64>> = None;
    for group in groups.iter().filter(|g| !g.types.and(types).is_empty()) {
        match &mut least {
            None => least = Some(group.requests.clone()),
            Some(least) => least
                .iter_mut()
                .zip(&group.requests)
                .for_each(|(l, r)| *l = (*l).min(*r)),
        }
    }
    least.unwrap_or_else(|| vec![0; dims.len()])
}

/// What must stay free on an existing node for DaemonSet pods that do not run there yet.
pub(super) fn reserve(
    daemons: &[Daemon],
    labels: &Requirements,
    taints: &[Taint],
    running: &[i64],
    dims: &Dims,
) -> Vec<i64> {
    let mut wanted = vec![0; dims.len()];
    for d in daemons.iter().filter(|d| d.runs_on(labels, taints)) {
        add(&mut wanted, &d.requests);
    }
    wanted
        .iter()
        .zip(running)
        .map(|(w, r)| w.saturating_sub(*r).max(0))
        .collect()
}

/// Every label key that a DaemonSet selects on.
pub(super) fn keys(daemons: &[Daemon]) -> impl Iterator<Item = &Arc<str>> {
    daemons
        .iter()
        .flat_map(|d| d.terms.iter().flat_map(|t| t.iter().map(|r| &r.key)))
}
