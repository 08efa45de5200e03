//! A problem with everything numbered: what the pass and the bound compute on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    MinValuesPolicy, Problem,
    classes::{Classes, Taints},
    daemons::{self, Daemon, Group},
    sets::{Bits, Dims, SetId, Sets, add, sub},
    shelves::Shelves,
};
use crate::{
    api::{
        names::{self, label},
        requirement::{Requirement, Requirements, Text},
    },
    cloud::InstanceType,
    cluster::{Nomination, Owner, Pool, StateNode},
    units::NODES,
};

/// Host name of a node that does not exist yet: a pod that wants a certain host must not get a new node.
const HOSTNAME_TO_BE: &str = "hostname-placeholder";

/// A pool that may launch, with the types that its own requirements leave.
pub(super) struct Template<'p> {
    pub(super) pool: &'p Arc<Pool>,
    /// Requirements, labels and identity of a node of the pool.
    pub(super) set: SetId,
    pub(super) taints: usize,
    pub(super) shelf: usize,
    /// Types that the pool's requirements leave.
    pub(super) types: Bits,
    /// Types by DaemonSet share.
    pub(super) groups: Vec<Group>,
    /// Room for pods, one row per type: allocatable less the DaemonSet share.
    pub(super) room: Vec<i64>,
    /// Types that hold their own DaemonSet share.
    pub(super) able: Bits,
    /// What remains of each limit but that on nodes.
    pub(super) limits: Vec<(Arc<str>, i64)>,
    /// Capacity in the limited resources, one row per type.
    pub(super) capacity: Vec<i64>,
    /// What remains of the limit on nodes.
    pub(super) nodes_left: Option<i64>,
    /// Grows whenever a limit shrinks.
    pub(super) version: u32,
}

impl Template<'_> {
    /// The types that the limits leave.
    pub(super) fn within_limits(&self) -> Bits {
        let mut types = self.types.clone();
        if self.nodes_left.is_some_and(|n| n < 0) {
            types.retain(|_| false);
        }
        let width = self.limits.len();
        types.retain(|i| {
            let capacity = &self.capacity[i * width..][..width];
            capacity
                .iter()
                .zip(&self.limits)
                .all(|(c, (_, left))| c <= left)
        });
        types
    }

    /// Keeps the types with room for the requests, and says the most that any of them has left.
    pub(super) fn keep_fitting(&self, types: &mut Bits, requests: &[i64]) -> Vec<i64> {
        let width = requests.len();
        let mut most = vec![-1; width];
        types.retain(|i| {
            let room = &self.room[i * width..][..width];
            let fits = self.able.has(i) && requests.iter().zip(room).all(|(r, there)| r <= there);
            if fits {
                for ((m, there), r) in most.iter_mut().zip(room).zip(requests) {
                    *m = (*m).max(there - r);
                }
            }
            fits
        });
        most
    }
}

/// What the labels of a machine are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Labels {
    /// Those that it has; what is not there stays away.
    Known,
    /// What its claim allows: the launch, still to come, fills them in.
    Promised,
}

/// A machine that stays, with room.
pub(super) struct Machine {
    pub(super) labels: Labels,
    /// What DaemonSets will take of `free`, once pods that were planned for the machine are on it.
    pub(super) reserve: Vec<i64>,
    pub(super) name: Arc<str>,
    pub(super) set: SetId,
    pub(super) taints: usize,
    pub(super) free: Vec<i64>,
}

/// The numbered problem.
pub(super) struct Model<'p> {
    pub(super) problem: &'p Problem,
    pub(super) dims: Dims,
    pub(super) sets: Sets<'p>,
    pub(super) shelves: Shelves<'p>,
    pub(super) classes: Classes<'p>,
    pub(super) taints: Taints,
    /// In upstream's order.
    pub(super) templates: Vec<Template<'p>>,
    /// In upstream's order: initialized first, then by name.
    pub(super) machines: Vec<Machine>,
    /// Machine by what a nomination calls it.
    pub(super) by_nomination: BTreeMap<Nomination, usize>,
    /// Pools whose own requirements leave no type.
    pub(super) empty_pools: Vec<Arc<str>>,
}

impl<'p> Model<'p> {
    pub(super) fn new(problem: &'p Problem) -> Self {
        let pods = problem.pods.iter().map(|p| &p.requests);
        let dims = Dims::of(pods.chain(problem.daemons.iter().map(|p| &p.requests)));
        let mut sets = Sets::new(&problem.options.extra_well_known);
        let classes = Classes::new(problem, &dims, &mut sets);
        let mut model = Self {
            problem,
            dims,
            sets,
            shelves: Shelves::default(),
            classes,
            taints: Taints::default(),
            templates: Vec::new(),
            machines: Vec::new(),
            by_nomination: BTreeMap::new(),
            empty_pools: Vec::new(),
        };
        let mut sorted: Vec<_> = problem.daemons.iter().collect();
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
        // A pod with resource claims is refused by the solver, so a DaemonSet of such pods takes no room either.
        sorted.retain(|pod| !pod.unsupported.contains(&"resourceClaims"));
        let mut daemons: Vec<Daemon> = sorted
            .iter()
            .map(|pod| Daemon::new(pod, &model.dims))
            .collect();
        model.add_templates(&mut daemons);
        model.add_machines(&daemons);
        model.taints.seal(&model.classes.tolerations);
        model
    }

    fn add_templates(&mut self, daemons: &mut [Daemon]) {
        let mut pools: Vec<_> = self.problem.pools.iter().collect();
        pools.sort_by(|(a, _), (b, _)| b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name)));
        for (pool, catalog) in pools {
            let set = self.sets.intern(identity(pool));
            let shelf = self.shelves.add(catalog, &self.dims);
            let admitted = self.shelves.admitted(shelf, set, &self.sets).both.clone();
            let types = admitted.and(&self.shelves.get(shelf).sound);
            let strict = self.problem.options.min_values == MinValuesPolicy::Strict;
            if types.is_empty() || (strict && !self.unmet_min_values(set, shelf, &types).is_empty())
            {
                self.empty_pools.push(pool.name.clone());
                continue;
            }
            let template = self.template(pool, set, shelf, types, daemons);
            self.templates.push(template);
        }
    }

    fn template(
        &mut self,
        pool: &'p Arc<Pool>,
        set: SetId,
        shelf: usize,
        types: Bits,
        daemons: &mut [Daemon],
    ) -> Template<'p> {
        let (sets, dims) = (&self.sets, &self.dims);
        let goods = self.shelves.get(shelf);
        let all = goods.types();
        let well_known = |k: &str| sets.is_well_known(k);
        let groups = daemons::groups(
            daemons,
            sets.get(set),
            &pool.taints,
            all,
            &types,
            dims,
            &well_known,
        );
        let width = dims.len();
        let mut room = goods.allocatable.clone();
        let mut able = goods.sound.clone();
        for group in &groups {
            for i in group.types.iter() {
                sub(&mut room[i * width..][..width], &group.requests);
            }
        }
        able.retain(|i| room[i * width..][..width].iter().all(|r| *r >= 0));
        let used = self.problem.usage.get(&pool.name);
        let left = |name: &str, limit: i64| limit.saturating_sub(used.map_or(0, |u| u.get(name)));
        let limits: Vec<(Arc<str>, i64)> = pool
            .limits
            .iter()
            .filter(|(n, _)| *n != NODES)
            .map(|(n, l)| (n.into(), left(n, l)))
            .collect();
        let capacity = all
            .iter()
            .flat_map(|t| limits.iter().map(|(n, _)| t.capacity.get(n)))
            .collect();
        Template {
            pool,
            set,
            taints: self.taints.intern(&pool.taints),
            shelf,
            types,
            groups,
            room,
            able,
            capacity,
            limits,
            nodes_left: pool
                .limits
                .contains(NODES)
                .then(|| left(NODES, pool.limits.get(NODES))),
            version: 0,
        }
    }

    fn add_machines(&mut self, daemons: &[Daemon]) {
        let mut keys: BTreeSet<Text> = daemons::keys(daemons).cloned().collect();
        for class in &self.classes.all {
            let wishes = class.attempts.iter().map(|a| a.wish);
            keys.extend(wishes.flat_map(|w| self.sets.get(w).iter().map(|r| r.key.clone())));
        }
        let mut nodes: Vec<(bool, &StateNode)> = self
            .problem
            .nodes
            .iter()
            .map(|n| (!n.is_initialized(), n))
            .collect();
        nodes.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
        for (_, node) in nodes {
            // Labels that nobody asks for cannot matter; without them most nodes look the same.
            let own = node.labels();
            let asked = own
                .iter()
                .filter(|(k, _)| keys.contains(names::normalize_key(k)));
            let mut set: Requirements = asked.map(|(k, v)| Requirement::of(k, [v])).collect();
            let unlaunched = node.claim.as_ref().filter(|c| c.provider_id.is_empty());
            let labels = match unlaunched {
                Some(claim) => {
                    let asked = claim.requirements.iter().filter(|r| keys.contains(&r.key));
                    asked.for_each(|r| set.add(r.clone()));
                    Labels::Promised
                }
                None => Labels::Known,
            };
            let taints = node.taints();
            let available = node.available();
            let mut running = vec![0; self.dims.len()];
            for pod in node
                .pods
                .iter()
                .filter(|p| matches!(p.owner, Owner::DaemonSet(_)))
            {
                add(&mut running, &self.dims.row(&pod.requests));
            }
            let mut free = self.dims.row(&available);
            let mut reserve = daemons::reserve(daemons, &set, &taints, &running, &self.dims);
            if labels == Labels::Known {
                sub(&mut free, &reserve);
                reserve.fill(0);
            }
            // A node that is over its means in any resource takes nothing.
            if available.iter().any(|(_, amount)| amount < 0) || free.iter().any(|f| *f < 0) {
                continue;
            }
            let place = self.machines.len();
            if let Some(node) = &node.node {
                self.by_nomination
                    .insert(Nomination::Node(node.name.clone()), place);
            }
            if let Some(claim) = &node.claim {
                self.by_nomination
                    .insert(Nomination::Claim(claim.name.clone()), place);
            }
            let set = self.sets.intern(set);
            let taints = self.taints.intern(&taints);
            self.machines.push(Machine {
                labels,
                reserve,
                name: node.name.clone(),
                set,
                taints,
                free,
            });
        }
    }

    /// Keys whose `minValues` the types do not reach, with how many values there are.
    pub(super) fn unmet_min_values(
        &self,
        set: SetId,
        shelf: usize,
        types: &Bits,
    ) -> Vec<(Text, u32)> {
        let all = self.shelves.get(shelf).types();
        let left: Vec<&InstanceType> = types.iter().map(|i| &*all[i]).collect();
        unmet_min_values(self.sets.get(set), left.into_iter())
    }
}

/// Keys whose `minValues` the types do not reach, with how many values there are: only those count which the set admits.
pub(super) fn unmet_min_values<'t>(
    set: &Requirements,
    types: impl Iterator<Item = &'t InstanceType> + Clone,
) -> Vec<(Text, u32)> {
    let unmet = |r: &Requirement| {
        let least = r.min_values?;
        let values: BTreeSet<&Text> = types
            .clone()
            .filter_map(|t| t.requirements.get(&r.key))
            .flat_map(|of_type| of_type.values.iter().filter(|v| r.has(v)))
            .collect();
        let found = u32::try_from(values.len()).unwrap_or(u32::MAX);
        (found < least).then(|| (r.key.clone(), found))
    };
    set.iter().filter_map(unmet).collect()
}

/// What every node of the pool is: its requirements and labels, and the labels that identify it.
fn identity(pool: &Pool) -> Requirements {
    let mut set = pool.requirements.clone();
    set.add_all(&Requirements::from_labels(&pool.labels));
    for (key, value) in [
        (label::NODEPOOL, &*pool.name),
        (&*pool.class_label, &*pool.class),
        (label::REGISTERED, "true"),
        (label::INITIALIZED, "true"),
        (label::HOSTNAME, HOSTNAME_TO_BE),
    ] {
        set.add(Requirement::of(key, [value]));
    }
    set
}
