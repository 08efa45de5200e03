//! From the state of a pass to its answer (`spec/scheduling.md` 3.8).

use std::{collections::BTreeSet, sync::Arc};

use super::{
    MinValuesPolicy, NewNode, Pending, Placement, Refusal, daemons,
    explain::Explainer,
    model::unmet_min_values,
    pass::{Claim, Pass},
    sets::add,
};
use crate::{
    api::{
        names::label,
        requirement::{Requirement, Requirements},
    },
    cloud::{InstanceType, Offering},
    cluster::PodKey,
};

/// The answer, with a reason for each pod in `left`.
pub(super) fn placement(mut pass: Pass<'_>, left: Vec<usize>) -> Placement {
    let problem = pass.model.problem;
    let key = |pod: &usize| problem.pods[*pod].key.clone();
    let mut placement = Placement {
        empty_pools: pass.model.empty_pools.clone(),
        ignored: problem.ignored.clone(),
        ..Placement::default()
    };
    for (machine, pods) in pass
        .model
        .machines
        .iter()
        .zip(&pass.on_machine)
        .filter(|(_, pods)| !pods.is_empty())
    {
        placement
            .existing
            .insert(machine.name.clone(), pods.iter().map(key).collect());
    }
    let claims = std::mem::take(&mut pass.claims);
    for claim in claims {
        let pods: Vec<PodKey> = claim.pods.iter().map(key).collect();
        let pool = pass.model.templates[claim.template].pool.name.clone();
        match new_node(&pass, &claim, pods) {
            Ok(node) => placement.new_nodes.push(node),
            Err(keys) => {
                for pod in &claim.pods {
                    let reason = (pool.clone(), Refusal::MinValues(keys.clone()));
                    placement
                        .pending
                        .insert(key(pod), Pending::Refused(vec![reason]));
                }
            }
        }
    }
    let mut explainer = Explainer::new(&mut pass.model);
    for pod in left {
        placement.pending.insert(key(&pod), explainer.pending(pod));
    }
    placement
}

/// The node of a claim; or, if too few types are left after the cut, the keys whose `minValues` are not met.
fn new_node(pass: &Pass<'_>, claim: &Claim, pods: Vec<PodKey>) -> Result<NewNode, Vec<String>> {
    let model = &pass.model;
    let options = &model.problem.options;
    let template = &model.templates[claim.template];
    let mut requirements = (**model.sets.get(claim.set)).clone();
    for internal in [label::REGISTERED, label::INITIALIZED, label::HOSTNAME] {
        requirements.remove(internal);
    }
    let mut requests = claim.requests.clone();
    add(
        &mut requests,
        &daemons::least(&template.groups, &claim.types, &model.dims),
    );

    let all = model.shelves.get(template.shelf).types();
    let mut priced: Vec<(&Arc<InstanceType>, &Offering)> = claim
        .types
        .iter()
        .filter_map(|i| {
            all[i]
                .cheapest(&requirements)
                .map(|offering| (&all[i], offering))
        })
        .collect();
    priced.sort_by(|(a, x), (b, y)| {
        x.price_per_hour
            .total_cmp(&y.price_per_hour)
            .then_with(|| a.name.cmp(&b.name))
    });
    priced.truncate(options.max_instance_types);
    if options.min_values == MinValuesPolicy::Strict && requirements.has_min_values() {
        let unmet = unmet_min_values(&requirements, priced.iter().map(|(t, _)| &***t));
        if !unmet.is_empty() {
            return Err(unmet.into_iter().map(|(key, _)| key.to_string()).collect());
        }
    }
    let Some((_, cheapest)) = priced.first() else {
        return Err(Vec::new());
    };
    let (price_per_hour, offering) = (
        cheapest.price_per_hour,
        (cheapest.zone.clone(), cheapest.capacity_type),
    );
    let instance_types: Vec<Arc<InstanceType>> =
        priced.iter().map(|(t, _)| Arc::clone(t)).collect();
    narrow_to(&mut requirements, &instance_types);
    Ok(NewNode {
        pool: template.pool.clone(),
        pods,
        requirements,
        requests: model.dims.amounts(&requests),
        instance_types,
        price_per_hour,
        offering,
        min_values_relaxed: claim.min_values_relaxed,
    })
}

/// Names the types, and the capacity types in which they are on sale.
fn narrow_to(requirements: &mut Requirements, types: &[Arc<InstanceType>]) {
    let sold: BTreeSet<&str> = types
        .iter()
        .flat_map(|t| &t.offerings)
        .filter(|o| o.is_launchable() && requirements.meets(&o.requirements))
        .map(|o| o.capacity_type.as_str())
        .collect();
    requirements.add(Requirement::of(label::CAPACITY_TYPE, sold));
    let min_values = requirements
        .get(label::INSTANCE_TYPE)
        .and_then(|r| r.min_values);
    let named = Requirement::of(label::INSTANCE_TYPE, types.iter().map(|t| &*t.name));
    requirements.replace(Requirement {
        min_values,
        ..named
    });
}
