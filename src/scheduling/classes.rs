//! Pods that ask for the same thing, and the order in which what they ask for is relaxed (`spec/scheduling.md` 2.8, 3.3).

use std::{collections::BTreeMap, sync::Arc};

use super::{
    PreferencePolicy, Problem,
    sets::{Dims, SetId, Sets},
};
use crate::{
    api::{
        names::taint_effect,
        requirement::{Requirement, Requirements},
        taint::{Taint, Tolerates, Toleration, untolerated},
    },
    cluster::{Pod, Term},
};

/// One way to try a class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Attempt {
    /// What is required of the node, the preference in force included.
    pub(super) wish: SetId,
    /// Index of the tolerations.
    pub(super) tolerations: usize,
    /// Number among all attempts of all classes, for what is remembered about it.
    pub(super) id: usize,
}

/// Pods that the solver cannot tell apart.
pub(super) struct Class<'p> {
    /// The first of them.
    pub(super) pod: &'p Pod,
    /// Requests.
    pub(super) requests: Vec<i64>,
    /// Ways to try, strictest first; empty when the selectors cannot be read.
    pub(super) attempts: Vec<Attempt>,
    /// Each required term without preferences: together all that any plan may do.
    pub(super) alternatives: Vec<SetId>,
}

/// All classes, and which pod is of which.
pub(super) struct Classes<'p> {
    pub(super) all: Vec<Class<'p>>,
    /// By index of the pod in the problem.
    pub(super) of_pod: Vec<usize>,
    /// Distinct toleration lists.
    pub(super) tolerations: Vec<Vec<Toleration>>,
    /// Number of attempts in all.
    pub(super) attempts: usize,
}

impl<'p> Classes<'p> {
    pub(super) fn new(problem: &'p Problem, dims: &Dims, sets: &mut Sets<'_>) -> Self {
        let launching = problem.pools.iter().map(|(pool, _)| pool);
        let refusing = problem.refusing.iter().map(|(pool, _)| pool);
        let soft_taints = launching.chain(refusing).any(|pool| {
            pool.taints
                .iter()
                .any(|t| t.effect == taint_effect::PREFER_NO_SCHEDULE)
        });
        let mut known = BTreeMap::new();
        let mut classes = Self {
            all: Vec::new(),
            of_pod: Vec::new(),
            tolerations: Vec::new(),
            attempts: 0,
        };
        let mut lists: BTreeMap<Vec<Toleration>, usize> = BTreeMap::new();
        for pod in &problem.pods {
            let terms = |all: &'p [Term]| {
                all.iter()
                    .map(|t| t.expressions.as_slice())
                    .collect::<Vec<_>>()
            };
            let preferences: Vec<_> = pod
                .preferences
                .iter()
                .map(|p| (p.weight, p.term.expressions.as_slice()))
                .collect();
            let key = (
                &pod.requests,
                &pod.node_selector,
                terms(&pod.required_terms),
                preferences,
                &pod.tolerations,
                &pod.unsupported,
            );
            let class = *known.entry(key).or_insert_with(|| {
                classes.add(
                    pod,
                    problem.options.preferences,
                    soft_taints,
                    dims,
                    sets,
                    &mut lists,
                );
                classes.all.len() - 1
            });
            classes.of_pod.push(class);
        }
        classes
    }

    fn add(
        &mut self,
        pod: &'p Arc<Pod>,
        policy: PreferencePolicy,
        soft_taints: bool,
        dims: &Dims,
        sets: &mut Sets<'_>,
        lists: &mut BTreeMap<Vec<Toleration>, usize>,
    ) {
        let mut attempts = Vec::new();
        for (wish, tolerate_soft) in relaxations(pod, policy, soft_taints) {
            let Some(wish) = wish else { continue };
            let mut tolerations = pod.tolerations.clone();
            if tolerate_soft {
                tolerations.push(tolerates_soft_taints());
            }
            let next = lists.len();
            let tolerations = *lists.entry(tolerations).or_insert_with_key(|list| {
                self.tolerations.push(list.clone());
                next
            });
            attempts.push(Attempt {
                wish: sets.intern(wish),
                tolerations,
                id: self.attempts,
            });
            self.attempts += 1;
        }
        let alternatives = required(pod)
            .into_iter()
            .flatten()
            .map(|set| sets.intern(set))
            .collect();
        self.all.push(Class {
            pod,
            requests: dims.row(&pod.requests),
            attempts,
            alternatives,
        });
    }
}

/// A toleration for every taint that is only a preference.
pub(super) fn tolerates_soft_taints() -> Toleration {
    Toleration {
        key: String::new(),
        operator: Tolerates::Exists,
        value: String::new(),
        effect: taint_effect::PREFER_NO_SCHEDULE.to_owned(),
    }
}

/// The selector with each required term; `None` for a term that cannot be read.
pub(super) fn required(pod: &Pod) -> Vec<Option<Requirements>> {
    let selector = selector(pod);
    if pod.required_terms.is_empty() {
        return vec![Some(selector)];
    }
    pod.required_terms
        .iter()
        .map(|t| with_term(&selector, t))
        .collect()
}

/// `spec.nodeSelector` as requirements.
pub(super) fn selector(pod: &Pod) -> Requirements {
    pod.node_selector
        .iter()
        .map(|(k, v)| Requirement::of(k, [v]))
        .collect()
}

fn with_term(selector: &Requirements, term: &Term) -> Option<Requirements> {
    let mut set = selector.clone();
    set.add_all(term.requirements.as_ref().ok()?);
    Some(set)
}

/// What the pod asks for, step by step: all terms but the last are dropped one by one, then preferences heaviest first, then
/// `PreferNoSchedule` taints are put up with. Steps that change nothing are left out.
fn relaxations(
    pod: &Pod,
    policy: PreferencePolicy,
    soft_taints: bool,
) -> Vec<(Option<Requirements>, bool)> {
    let mut preferences: Vec<_> = pod.preferences.iter().collect();
    preferences.sort_by_key(|p| std::cmp::Reverse(p.weight));
    if policy == PreferencePolicy::Ignore {
        preferences.clear();
    }
    let terms = required(pod);
    let preferring = |term: &Option<Requirements>, preference: usize| match (
        term,
        preferences.get(preference),
    ) {
        (Some(set), Some(p)) => with_term(set, &p.term),
        (set, _) => set.clone(),
    };
    let mut steps: Vec<_> = terms.iter().map(|t| (preferring(t, 0), false)).collect();
    if let Some(last) = terms.last() {
        steps.extend((1..=preferences.len()).map(|p| (preferring(last, p), false)));
        if soft_taints {
            steps.push((last.clone(), true));
        }
    }
    steps
}

/// Distinct taint lists, and which toleration list puts up with which.
#[derive(Default)]
pub(super) struct Taints {
    lists: Vec<Vec<Taint>>,
    ids: BTreeMap<Vec<Taint>, usize>,
    tolerated: Vec<Vec<bool>>,
}

impl Taints {
    pub(super) fn intern(&mut self, taints: &[Taint]) -> usize {
        if let Some(id) = self.ids.get(taints) {
            return *id;
        }
        self.lists.push(taints.to_vec());
        self.ids.insert(taints.to_vec(), self.lists.len() - 1);
        self.lists.len() - 1
    }

    /// Works out who tolerates what, once all lists are known.
    pub(super) fn seal(&mut self, tolerations: &[Vec<Toleration>]) {
        let row = |list: &Vec<Toleration>| {
            self.lists
                .iter()
                .map(|t| untolerated(t, list).is_empty())
                .collect()
        };
        self.tolerated = tolerations.iter().map(row).collect();
    }

    pub(super) fn tolerated(&self, taints: usize, tolerations: usize) -> bool {
        self.tolerated[tolerations][taints]
    }
}
