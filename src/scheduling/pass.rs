//! One greedy pass in upstream's order (`spec/scheduling.md` 3.1 to 3.6).
//!
//! Pods come largest first; each is tried on existing machines, then on open claims with the fewest pods first, then on a new claim of
//! the first pool that takes it, and again with less asked for. What a class was refused by is remembered with the requirement set that
//! refused it: amounts only grow and types only shrink, so the same set refuses it again.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

use super::{
    MinValuesPolicy, NodeLimit, Pending, Placement, Problem,
    classes::Attempt,
    finish, go_sort,
    model::{Labels, Model},
    sets::{Bits, SetId, add, fits, sub},
};
use crate::units::{CPU, MEMORY};

/// Places the problem's pods: on machines that are there, else on nodes to be made.
pub fn solve(problem: &Problem) -> Placement {
    if problem.pools.is_empty() && problem.refusing.is_empty() {
        return Placement {
            pending: problem
                .pods
                .iter()
                .map(|p| (p.key.clone(), Pending::NoPools))
                .collect(),
            ignored: problem.ignored.clone(),
            ..Placement::default()
        };
    }
    let mut pass = Pass::new(Model::new(problem));
    let order = order(problem);
    let rest = pass.place_nominated(order);
    let left = pass.place_all(rest);
    finish::placement(pass, left)
}

/// A node in the making.
pub(super) struct Claim {
    /// Index of its template.
    pub(super) template: usize,
    pub(super) set: SetId,
    /// Requests of its pods.
    pub(super) requests: Vec<i64>,
    /// Types that hold them.
    pub(super) types: Bits,
    /// The most that any of the types has left.
    room: Vec<i64>,
    /// Index of each pod in the problem.
    pub(super) pods: Vec<usize>,
    pub(super) min_values_relaxed: bool,
}

/// How a new claim of a template would begin with a certain pod.
#[derive(Clone)]
struct Opening {
    set: SetId,
    types: Bits,
    room: Vec<i64>,
    min_values_relaxed: bool,
}

/// The state of a pass.
pub(super) struct Pass<'p> {
    pub(super) model: Model<'p>,
    pub(super) claims: Vec<Claim>,
    /// Pods by machine.
    pub(super) on_machine: Vec<Vec<usize>>,
    /// Claims in the order in which they are tried.
    order: Vec<usize>,
    ordered: bool,
    /// By attempt: machines before the second number refused it while machines' sets were those of the first.
    cursors: Vec<(u64, usize)>,
    /// Grows whenever a machine's set changes.
    machine_sets: u64,
    /// By attempt and claim, the claim's set when it refused.
    refused: Vec<Vec<SetId>>,
    /// By attempt and template, with the template's version.
    openings: BTreeMap<(usize, usize), (u32, Option<Opening>)>,
    /// Pods placed so far.
    progress: u64,
    /// By class, the progress at which it was last refused by all.
    stuck: Vec<Option<u64>>,
}

/// Whether a pod comes to the machine that an earlier plan chose for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joining {
    AsPlanned,
    Newly,
}

/// No set.
const NEVER: SetId = SetId::MAX;

/// Largest CPU request first, then memory, then the oldest, then by UID.
fn order(problem: &Problem) -> Vec<usize> {
    let mut order: Vec<usize> = (0..problem.pods.len()).collect();
    order.sort_by_cached_key(|i| {
        let pod = &problem.pods[*i];
        let size = Reverse((pod.requests.get(CPU), pod.requests.get(MEMORY)));
        (size, pod.created, pod.uid.clone(), pod.key.clone())
    });
    order
}

impl<'p> Pass<'p> {
    fn new(model: Model<'p>) -> Self {
        let (attempts, classes) = (model.classes.attempts, model.classes.all.len());
        Self {
            claims: Vec::new(),
            on_machine: vec![Vec::new(); model.machines.len()],
            order: Vec::new(),
            ordered: true,
            cursors: vec![(0, 0); attempts],
            machine_sets: 0,
            refused: vec![Vec::new(); attempts],
            openings: BTreeMap::new(),
            progress: 0,
            stuck: vec![None; classes],
            model,
        }
    }

    /// Puts pods where an earlier plan wants them, as far as they still fit there; says which are left.
    fn place_nominated(&mut self, order: Vec<usize>) -> Vec<usize> {
        let problem = self.model.problem;
        let mut rest = Vec::with_capacity(order.len());
        for pod in order {
            let class = self.model.classes.of_pod[pod];
            let place = problem.nominations.get(&problem.pods[pod].key);
            let machine = place.and_then(|p| self.model.by_nomination.get(p)).copied();
            let placed = machine.is_some_and(|m| {
                let attempts = self.model.classes.all[class].attempts.len();
                self.is_known(class)
                    && (0..attempts).any(|a| {
                        let attempt = self.model.classes.all[class].attempts[a];
                        self.join_machine(m, class, attempt, Joining::AsPlanned)
                    })
            });
            match (placed, machine) {
                (true, Some(m)) => self.on_machine[m].push(pod),
                _ => rest.push(pod),
            }
        }
        for machine in &mut self.model.machines {
            sub(&mut machine.free, &machine.reserve);
            machine.free.iter_mut().for_each(|f| *f = (*f).max(0));
        }
        rest
    }

    /// Whether every hard constraint of the class is one that the solver knows.
    fn is_known(&self, class: usize) -> bool {
        self.model.classes.all[class].pod.unsupported.is_empty()
    }

    /// Tries pods in order, those that fail again at the end, until a whole round places none. Says which are left.
    fn place_all(&mut self, order: Vec<usize>) -> Vec<usize> {
        let (known, mut left): (Vec<usize>, Vec<usize>) = order
            .into_iter()
            .partition(|pod| self.is_known(self.model.classes.of_pod[*pod]));
        let mut queue: VecDeque<(usize, usize)> = known.into_iter().map(|pod| (pod, 0)).collect();
        while let Some((pod, length_when_refused)) = queue.pop_front() {
            let length = queue.len() + 1;
            if length_when_refused == length {
                left.push(pod);
                break;
            }
            if !self.place(pod) {
                queue.push_back((pod, length));
            }
        }
        left.extend(queue.into_iter().map(|(pod, _)| pod));
        left
    }

    fn place(&mut self, pod: usize) -> bool {
        let class = self.model.classes.of_pod[pod];
        if self.stuck[class] == Some(self.progress) {
            return false;
        }
        for a in 0..self.model.classes.all[class].attempts.len() {
            let attempt = self.model.classes.all[class].attempts[a];
            if self.place_on_machine(pod, class, attempt)
                || self.place_on_claim(pod, class, attempt)
                || self.open_claim(pod, class, attempt)
            {
                self.progress += 1;
                return true;
            }
        }
        self.stuck[class] = Some(self.progress);
        false
    }

    fn place_on_machine(&mut self, pod: usize, class: usize, attempt: Attempt) -> bool {
        let (sets, cursor) = self.cursors[attempt.id];
        let mut machine = if sets == self.machine_sets { cursor } else { 0 };
        let before = self.machine_sets;
        while machine < self.model.machines.len() {
            if self.join_machine(machine, class, attempt, Joining::Newly) {
                self.on_machine[machine].push(pod);
                break;
            }
            machine += 1;
        }
        self.cursors[attempt.id] = (before, machine);
        machine < self.model.machines.len()
    }

    /// Takes room on a machine, if it accepts the class. What a claim asked the cloud for cannot be narrowed any more, so on a machine
    /// that is still to be launched only those pods have a place that accept whatever comes, or for which it was planned.
    fn join_machine(
        &mut self,
        machine: usize,
        class: usize,
        attempt: Attempt,
        joining: Joining,
    ) -> bool {
        let requests = &self.model.classes.all[class].requests;
        let there = &mut self.model.machines[machine];
        if !fits(requests, &there.free)
            || !self
                .model
                .taints
                .tolerated(there.taints, attempt.tolerations)
        {
            return false;
        }
        let sets = &mut self.model.sets;
        let joined = match there.labels {
            Labels::Known => sets.join_node(there.set, attempt.wish),
            Labels::Promised => sets
                .join_claim(there.set, attempt.wish)
                .filter(|set| *set == there.set || joining == Joining::AsPlanned),
        };
        let Some(set) = joined else { return false };
        if set != there.set {
            there.set = set;
            self.machine_sets += 1;
        }
        sub(&mut there.free, requests);
        true
    }

    fn place_on_claim(&mut self, pod: usize, class: usize, attempt: Attempt) -> bool {
        if !self.ordered {
            let claims = &self.claims;
            go_sort::sort(&mut self.order, |a, b| {
                claims[*a].pods.len() < claims[*b].pods.len()
            });
            self.ordered = true;
        }
        self.refused[attempt.id].resize(self.claims.len(), NEVER);
        for place in 0..self.order.len() {
            let claim = self.order[place];
            if self.refused[attempt.id][claim] == self.claims[claim].set {
                continue;
            }
            if self.join_claim(claim, class, attempt) {
                self.claims[claim].pods.push(pod);
                self.ordered = false;
                return true;
            }
            self.refused[attempt.id][claim] = self.claims[claim].set;
        }
        false
    }

    /// Takes room on a claim, if it accepts the class.
    fn join_claim(&mut self, claim: usize, class: usize, attempt: Attempt) -> bool {
        let model = &mut self.model;
        let requests = &model.classes.all[class].requests;
        let there = &self.claims[claim];
        let template = &model.templates[there.template];
        if !fits(requests, &there.room)
            || !model.taints.tolerated(template.taints, attempt.tolerations)
        {
            return false;
        }
        let Some(set) = model.sets.join_claim(there.set, attempt.wish) else {
            return false;
        };
        let mut types = if set == there.set {
            there.types.clone()
        } else {
            there.types.and(
                &model
                    .shelves
                    .admitted(template.shelf, set, &model.sets)
                    .both,
            )
        };
        let mut total = there.requests.clone();
        add(&mut total, requests);
        let room = template.keep_fitting(&mut types, &total);
        if types.is_empty() {
            return false;
        }
        if model.sets.get(set).has_min_values()
            && !model
                .unmet_min_values(set, template.shelf, &types)
                .is_empty()
        {
            return false;
        }
        let there = &mut self.claims[claim];
        (there.set, there.types, there.room, there.requests) = (set, types, room, total);
        true
    }

    fn open_claim(&mut self, pod: usize, class: usize, attempt: Attempt) -> bool {
        for template in 0..self.model.templates.len() {
            let version = self.model.templates[template].version;
            let known = self
                .openings
                .get(&(attempt.id, template))
                .filter(|(v, _)| *v == version);
            let opening = match known {
                Some((_, opening)) => opening.clone(),
                None => {
                    let opening = self.opening(template, class, attempt);
                    self.openings
                        .insert((attempt.id, template), (version, opening.clone()));
                    opening
                }
            };
            let Some(Opening {
                set,
                types,
                room,
                min_values_relaxed,
            }) = opening
            else {
                continue;
            };
            self.charge(template, &types);
            let requests = self.model.classes.all[class].requests.clone();
            self.order.push(self.claims.len());
            self.ordered = false;
            self.claims.push(Claim {
                template,
                set,
                requests,
                types,
                room,
                pods: vec![pod],
                min_values_relaxed,
            });
            return true;
        }
        false
    }

    fn opening(&mut self, template: usize, class: usize, attempt: Attempt) -> Option<Opening> {
        let model = &mut self.model;
        let of = &model.templates[template];
        let mut types = of.within_limits();
        let tolerated = model.taints.tolerated(of.taints, attempt.tolerations);
        if of.nodes_left == Some(0) || types.is_empty() || !tolerated {
            return None;
        }
        let mut set = model.sets.join_claim(of.set, attempt.wish)?;
        types = types.and(&model.shelves.admitted(of.shelf, set, &model.sets).both);
        let room = of.keep_fitting(&mut types, &model.classes.all[class].requests);
        if types.is_empty() {
            return None;
        }
        let mut min_values_relaxed = false;
        if model.sets.get(set).has_min_values() {
            let unmet = model.unmet_min_values(set, of.shelf, &types);
            if !unmet.is_empty() {
                if model.problem.options.min_values == MinValuesPolicy::Strict {
                    return None;
                }
                let mut lowered = (**model.sets.get(set)).clone();
                for (key, there_are) in unmet {
                    if let Some(mut r) = lowered.remove(&key) {
                        r.min_values = Some(there_are);
                        lowered.replace(r);
                    }
                }
                set = model.sets.intern(lowered);
                min_values_relaxed = true;
            }
        }
        Some(Opening {
            set,
            types,
            room,
            min_values_relaxed,
        })
    }

    /// Takes a new claim off the pool's limits: in each limited resource the most that the node may turn out to have.
    fn charge(&mut self, template: usize, types: &Bits) {
        let of = &mut self.model.templates[template];
        let width = of.limits.len();
        for (l, (_, left)) in of.limits.iter_mut().enumerate() {
            let most = types
                .iter()
                .map(|i| of.capacity[i * width + l])
                .max()
                .unwrap_or(0);
            *left = left.saturating_sub(most);
            of.version += 1;
        }
        if self.model.problem.options.node_limit == NodeLimit::Counted
            && let Some(left) = &mut of.nodes_left
        {
            *left = (*left - 1).max(0);
            of.version += 1;
        }
    }
}
