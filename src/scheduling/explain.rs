//! Why a pod has no place: each pool's reason, as data (`spec/scheduling.md` 6.4).
//!
//! Worked out once per class at the end. The pass stops after a round that placed nobody, so the state at the end is the one in which
//! each pod that is left was last refused.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Pending, Refusal, TypeRefusal,
    classes::Attempt,
    daemons,
    model::{Model, Template},
    sets::{Bits, add},
};
use crate::{
    api::{
        requirement::{Conflict, Undefined},
        taint::untolerated,
    },
    cluster::Pool,
    units::Resources,
};

pub(super) struct Explainer<'m, 'p> {
    model: &'m mut Model<'p>,
    known: BTreeMap<usize, Pending>,
}

impl<'m, 'p> Explainer<'m, 'p> {
    pub(super) fn new(model: &'m mut Model<'p>) -> Self {
        Self {
            model,
            known: BTreeMap::new(),
        }
    }

    /// Why the pod with this index has no place.
    pub(super) fn pending(&mut self, pod: usize) -> Pending {
        let class = self.model.classes.of_pod[pod];
        if let Some(known) = self.known.get(&class) {
            return known.clone();
        }
        let pending = self.explain(class);
        self.known.insert(class, pending.clone());
        pending
    }

    fn explain(&mut self, class: usize) -> Pending {
        let problem = self.model.problem;
        let mut reasons: Vec<(&Pool, Refusal)> = Vec::new();
        let class = &self.model.classes.all[class];
        let blanket = if !class.pod.unsupported.is_empty() {
            Some(Refusal::Unsupported(class.pod.unsupported.clone()))
        } else if class.attempts.is_empty() {
            let problem = class
                .pod
                .required_terms
                .iter()
                .find_map(|t| t.requirements.as_ref().err());
            Some(Refusal::Malformed(
                problem.map(ToString::to_string).unwrap_or_default(),
            ))
        } else {
            None
        };
        if let Some(refusal) = blanket {
            let pools = problem
                .pools
                .iter()
                .map(|(p, _)| p)
                .chain(problem.refusing.iter().map(|(p, _)| p));
            reasons.extend(pools.map(|p| (&**p, refusal.clone())));
        } else if let Some(attempt) = class.attempts.last().copied() {
            let requests = class.requests.clone();
            reasons.extend(problem.refusing.iter().map(|(p, r)| (&**p, r.clone())));
            for template in 0..self.model.templates.len() {
                if let Some(refusal) = self.refusal(template, attempt, &requests) {
                    reasons.push((self.model.templates[template].pool, refusal));
                }
            }
        }
        if reasons.is_empty() && self.model.templates.is_empty() {
            return Pending::NoInstanceTypes;
        }
        reasons.sort_by(|(a, _), (b, _)| b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name)));
        Pending::Refused(
            reasons
                .into_iter()
                .map(|(pool, refusal)| (pool.name.clone(), refusal))
                .collect(),
        )
    }

    fn refusal(&mut self, template: usize, attempt: Attempt, requests: &[i64]) -> Option<Refusal> {
        let model = &mut *self.model;
        let of = &model.templates[template];
        if of.nodes_left == Some(0) {
            return Some(Refusal::NodeLimit);
        }
        let candidates = of.within_limits();
        if candidates.is_empty() {
            return Some(Refusal::Limits {
                remaining: exceeded(of),
            });
        }
        let taints = untolerated(
            &of.pool.taints,
            &model.classes.tolerations[attempt.tolerations],
        );
        if !taints.is_empty() {
            return Some(Refusal::Taint(taints.into_iter().cloned().collect()));
        }
        let (there, wish) = (
            model.sets.get(of.set).clone(),
            model.sets.get(attempt.wish).clone(),
        );
        if let Err(mut conflicts) = there.compatible(
            &wish,
            Undefined::AllowedIf(&|k| model.sets.is_well_known(k)),
        ) {
            return Some(match conflicts.first() {
                Some(Conflict::Undefined { .. }) => Refusal::UndefinedLabel(conflicts.remove(0)),
                _ => Refusal::Requirements(conflicts),
            });
        }
        let set = model.sets.join_claim(of.set, attempt.wish)?;
        let admitted = model.shelves.admitted(of.shelf, set, &model.sets);
        let (met, offered, both) = (
            admitted.met.clone(),
            admitted.offered.clone(),
            admitted.both.clone(),
        );
        let fitting = {
            let mut types = candidates.clone();
            of.keep_fitting(&mut types, requests);
            // As upstream counts: a type without a usable offering never has enough.
            types.and(&offered)
        };
        let passing = fitting.and(&met);
        if !passing.is_empty() {
            let unmet = model.unmet_min_values(set, of.shelf, &passing);
            let keys: Vec<String> = unmet.into_iter().map(|(key, _)| key.to_string()).collect();
            return (!keys.is_empty()).then_some(Refusal::MinValues(keys));
        }
        let some = |bits: &Bits| !bits.and(&candidates).is_empty();
        let mut requested = requests.to_vec();
        add(
            &mut requested,
            &daemons::least(&of.groups, &candidates, &model.dims),
        );
        let near = [
            both.and(&candidates),
            met.and(&candidates),
            candidates.clone(),
        ];
        let near = near
            .into_iter()
            .find(|bits| !bits.is_empty())
            .unwrap_or(candidates.clone());
        Some(Refusal::InstanceTypes(TypeRefusal {
            requirements_met: some(&met),
            resources_met: !fitting.is_empty(),
            offering_met: some(&offered),
            pairs_met: [false, some(&both), !fitting.is_empty()],
            requested: model.dims.amounts(&requested),
            nearest: nearest(model, of, &near, requests),
        }))
    }
}

/// What remains of the limits that every type of the pool exceeds; of all of them if each spares some type.
fn exceeded(of: &Template<'_>) -> Resources {
    let width = of.limits.len();
    let by_all = |l: usize| {
        of.types
            .iter()
            .all(|i| of.capacity[i * width + l] > of.limits[l].1)
    };
    let blocking: Vec<usize> = (0..width).filter(|l| by_all(*l)).collect();
    let mut remaining = Resources::default();
    for (l, (name, left)) in of.limits.iter().enumerate() {
        if blocking.is_empty() || blocking.contains(&l) {
            remaining.set(name, *left);
        }
    }
    if let Some(nodes) = of.nodes_left.filter(|n| *n < 0) {
        remaining.set(crate::units::NODES, nodes);
    }
    remaining
}

/// The type that lacks the smallest part of what is asked for, and what it lacks.
fn nearest(
    model: &Model<'_>,
    of: &Template<'_>,
    types: &Bits,
    requests: &[i64],
) -> Option<(Arc<str>, Resources)> {
    let all = model.shelves.get(of.shelf).types();
    let width = requests.len();
    let lacking = |i: usize| -> Vec<i64> {
        let room = &of.room[i * width..][..width];
        requests
            .iter()
            .zip(room)
            .map(|(r, there)| r.saturating_sub(*there).max(0))
            .collect()
    };
    let part = |lacking: &[i64]| -> f64 {
        lacking
            .iter()
            .zip(requests)
            .map(|(l, r)| *l as f64 / (*r).max(1) as f64)
            .sum()
    };
    let found = types
        .iter()
        .map(|i| (i, lacking(i)))
        .min_by(|(a, x), (b, y)| {
            part(x)
                .total_cmp(&part(y))
                .then_with(|| all[*a].name.cmp(&all[*b].name))
        });
    found.map(|(i, lacking)| (all[i].name.clone(), model.dims.amounts(&lacking)))
}
