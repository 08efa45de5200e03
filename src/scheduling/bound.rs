//! The least that any plan can cost.

use std::collections::BTreeMap;

use super::{
    Problem,
    model::Model,
    sets::{SetId, fits},
};
use crate::{
    api::{
        names::taint_effect,
        requirement::{Requirement, Requirements},
        taint::untolerated,
    },
    cluster::Pod,
};

/// A lower bound, in USD per hour, on what new nodes cost in any plan that places every pod that some instance type can hold.
///
/// The arithmetic. Take one resource `r`. A node of price `p` whose type leaves `room` of `r` to pods (allocatable less the DaemonSet
/// share) holds pods whose requests sum to at most `room`, so it costs at least `p / room` for each unit that they ask for. That rate is
/// at least the smallest such rate over the offerings that admit the pod at all. Summed over all nodes, a plan costs at least the sum over
/// pods of request times smallest rate. Machines that stay cost nothing more; at most their free amount of `r` can be served there, and
/// the bound lets them serve the dearest demand first. Every resource gives such a sum; the largest is the bound.
///
/// It ignores whole nodes, limits, taints that are only preferences, and pods that nothing admits; so it is low, never high.
pub fn lower_bound_per_hour(problem: &Problem) -> f64 {
    let mut model = Model::new(problem);
    let mut counts = vec![0_i64; model.classes.all.len()];
    for class in &model.classes.of_pod {
        counts[*class] += 1;
    }
    let width = model.dims.len();
    let mut prices = Prices::default();
    // By resource: rate and amount asked for at that rate.
    let mut demand: Vec<Vec<(f64, f64)>> = vec![Vec::new(); width];
    for (class, count) in counts.iter().enumerate() {
        let rates = prices.rates(&mut model, class);
        for ((demand, rate), request) in demand
            .iter_mut()
            .zip(&rates)
            .zip(&model.classes.all[class].requests)
        {
            if rate.is_finite() && *request > 0 {
                demand.push((*rate, *request as f64 * *count as f64));
            }
        }
    }
    demand
        .iter_mut()
        .enumerate()
        .map(|(dim, demand)| {
            let mut free = free_amount(problem, model.dims.name(dim));
            demand.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            demand
                .iter()
                .map(|(rate, amount)| {
                    let served = free.min(*amount);
                    free -= served;
                    rate * (amount - served)
                })
                .sum::<f64>()
        })
        .fold(0.0, |most, sum| if sum > most { sum } else { most })
}

/// What the machines that stay have left of a resource.
fn free_amount(problem: &Problem, name: &str) -> f64 {
    problem
        .nodes
        .iter()
        .map(|n| n.available().get(name).max(0) as f64)
        .sum()
}

/// By wish and template, the price of the cheapest admissible offering of each type; infinite where there is none.
#[derive(Default)]
struct Prices(BTreeMap<(SetId, usize), Vec<f64>>);

impl Prices {
    /// By resource, the least that a unit of it costs a pod of the class; infinite when nothing holds the pod.
    fn rates(&mut self, model: &mut Model<'_>, class: usize) -> Vec<f64> {
        let width = model.dims.len();
        let mut rates = vec![f64::INFINITY; width];
        for template in 0..model.templates.len() {
            let class = &model.classes.all[class];
            if !may_tolerate(class.pod, model, template) {
                continue;
            }
            for wish in &class.alternatives {
                let prices = self
                    .0
                    .entry((*wish, template))
                    .or_insert_with(|| admissible_prices(model, *wish, template));
                let of = &model.templates[template];
                for (i, price) in prices
                    .iter()
                    .enumerate()
                    .filter(|(i, price)| price.is_finite() && of.able.has(*i))
                {
                    let room = &of.room[i * width..][..width];
                    if !fits(&class.requests, room) {
                        continue;
                    }
                    for (rate, there) in rates.iter_mut().zip(room).filter(|(_, there)| **there > 0)
                    {
                        *rate = rate.min(price / *there as f64);
                    }
                }
            }
        }
        rates
    }
}

fn may_tolerate(pod: &Pod, model: &Model<'_>, template: usize) -> bool {
    let hard = untolerated(&model.templates[template].pool.taints, &pod.tolerations);
    hard.iter()
        .all(|t| t.effect == taint_effect::PREFER_NO_SCHEDULE)
}

fn admissible_prices(model: &Model<'_>, wish: SetId, template: usize) -> Vec<f64> {
    let of = &model.templates[template];
    let wish = model.sets.get(wish);
    let types = model.shelves.get(of.shelf).types();
    if !may_share(model.sets.get(of.set), wish) {
        return vec![f64::INFINITY; types.len()];
    }
    let cheapest = |i: usize| {
        if !of.types.has(i) || !may_share(&types[i].requirements, wish) {
            return f64::INFINITY;
        }
        let admitted = types[i]
            .offerings
            .iter()
            .filter(|o| o.is_launchable() && may_share(&o.requirements, wish));
        admitted
            .map(|o| o.price_per_hour)
            .fold(f64::INFINITY, f64::min)
    };
    (0..types.len()).map(cheapest).collect()
}

/// Whether a pod with this wish may share a node with these labels. Other pods on the node narrow its open requirements and may so
/// let a pod in that the bare labels keep out; therefore open requirements on both sides count as meeting.
fn may_share(labels: &Requirements, wish: &Requirements) -> bool {
    let open = |r: &Requirement| !r.is_finite() || r.admits_absence();
    wish.iter().all(|w| {
        labels
            .get(&w.key)
            .is_none_or(|l| l.overlaps(w) || (open(l) && open(w)))
    })
}
