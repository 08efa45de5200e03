//! Compares a placement with what a row expects.

use std::collections::{BTreeMap, BTreeSet};

use tenon::{
    api::{names::label, requirement::Requirement},
    scheduling::{Ignored, NewNode, Pending, Placement, Refusal, TypeRefusal},
};

use super::{
    rows::{ClaimRow, Count, Row, WordOr},
    world::{key, requirement, resources},
};

/// Everything in which the placement differs from the row; empty when it is as expected.
pub(super) fn differences(row: &Row, placement: &Placement) -> Vec<String> {
    let expect = &row.expect;
    let mut wrong = Vec::new();
    let new = placement.new_nodes.len();
    let (min, max) = match expect.new_nodes {
        None => (0, 0),
        Some(Count::Exact(n)) => (n, n),
        Some(Count::Within { min, max }) => (min, max),
    };
    if !(min..=max).contains(&new) {
        wrong.push(format!("{new} new nodes, wanted {min} to {max}"));
    }
    let mut same = |what: &str, got: String, wanted: String| {
        if got != wanted {
            wrong.push(format!("{what}: got {got}, wanted {wanted}"));
        }
    };
    if let Some(sizes) = &expect.sizes {
        same(
            "sizes",
            sorted(placement.new_nodes.iter().map(|n| n.pods.len())),
            sorted(sizes.iter().copied()),
        );
    }
    if let Some(counts) = &expect.zone_counts {
        same(
            "zone_counts",
            sorted(zone_counts(row, placement)),
            sorted(counts.iter().copied()),
        );
    }
    if expect.existing_n.is_empty() {
        let got: BTreeMap<&str, BTreeSet<&str>> = existing(placement).collect();
        let wanted = expect
            .existing
            .iter()
            .map(|(n, pods)| (n.as_str(), pods.iter().map(String::as_str).collect()));
        same(
            "existing",
            format!("{got:?}"),
            format!("{:?}", wanted.collect::<BTreeMap<_, BTreeSet<_>>>()),
        );
    } else {
        let got: BTreeMap<&str, usize> = existing(placement)
            .map(|(n, pods)| (n, pods.len()))
            .collect();
        same(
            "existing_n",
            format!("{got:?}"),
            format!("{:?}", expect.existing_n),
        );
    }
    let ignored: BTreeMap<&str, &str> = placement
        .ignored
        .iter()
        .map(|(pod, why)| (&*pod.name, ignored_class(why)))
        .collect();
    same(
        "ignored",
        format!("{ignored:?}"),
        format!("{:?}", expect.ignored),
    );

    let pending: BTreeMap<&str, Vec<String>> = placement
        .pending
        .iter()
        .map(|(pod, why)| (&*pod.name, pending_classes(why)))
        .collect();
    if let Some(least) = expect.pending_min {
        if pending.len() < least {
            wrong.push(format!(
                "{} pending, wanted at least {least}",
                pending.len()
            ));
        }
    } else if !expect.pending_n.is_empty() {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        pending
            .values()
            .for_each(|classes| *counts.entry(classes.join(",")).or_default() += 1);
        same(
            "pending_n",
            format!("{counts:?}"),
            format!("{:?}", expect.pending_n),
        );
    } else {
        let wanted: BTreeMap<&str, Vec<String>> = expect
            .pending
            .iter()
            .map(|(pod, classes)| {
                let mut classes = match classes {
                    WordOr::Word(one) => vec![one.clone()],
                    WordOr::List(many) => many.clone(),
                };
                classes.sort();
                (pod.as_str(), classes)
            })
            .collect();
        same("pending", format!("{pending:?}"), format!("{wanted:?}"));
    }
    if expect.unattempted > 0 {
        wrong.push("rows with unattempted pods need a deadline".to_owned());
    }
    wrong.extend(unmatched_claims(&expect.claims, &placement.new_nodes));
    wrong
}

fn sorted(numbers: impl IntoIterator<Item = usize>) -> String {
    let mut all: Vec<usize> = numbers.into_iter().collect();
    all.sort_unstable();
    format!("{all:?}")
}

fn existing(placement: &Placement) -> impl Iterator<Item = (&str, BTreeSet<&str>)> {
    placement
        .existing
        .iter()
        .map(|(node, pods)| (&**node, pods.iter().map(|p| &*p.name).collect()))
}

fn zone_counts(row: &Row, placement: &Placement) -> Vec<usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in &placement.new_nodes {
        if let Some(zone) = node
            .requirements
            .get(label::ZONE)
            .and_then(Requirement::single)
        {
            *counts.entry(zone.to_string()).or_default() += node.pods.len();
        }
    }
    for (name, pods) in existing(placement) {
        let node = row.existing_nodes.iter().find(|n| n.name == name);
        if let Some(zone) = node.and_then(|n| n.labels.get("zone")) {
            *counts.entry(zone.clone()).or_default() += pods.len();
        }
    }
    counts.into_values().collect()
}

/// Pairs each expected claim with a node of its own.
fn unmatched_claims(claims: &[ClaimRow], nodes: &[NewNode]) -> Vec<String> {
    fn pair(
        fits: &[Vec<bool>],
        claim: usize,
        seen: &mut [bool],
        of_node: &mut [Option<usize>],
    ) -> bool {
        for node in 0..of_node.len() {
            if fits[claim][node] && !seen[node] {
                seen[node] = true;
                if of_node[node].is_none_or(|other| pair(fits, other, seen, of_node)) {
                    of_node[node] = Some(claim);
                    return true;
                }
            }
        }
        false
    }
    let misfits: Vec<Vec<Vec<String>>> = claims
        .iter()
        .map(|c| nodes.iter().map(|n| claim_differences(c, n)).collect())
        .collect();
    let fits: Vec<Vec<bool>> = misfits
        .iter()
        .map(|row| row.iter().map(Vec::is_empty).collect())
        .collect();
    let mut of_node = vec![None; nodes.len()];
    (0..claims.len())
        .filter(|c| !pair(&fits, *c, &mut vec![false; nodes.len()], &mut of_node))
        .map(|c| format!("claim {c} matches no node of its own: {:?}", misfits[c]))
        .collect()
}

fn claim_differences(claim: &ClaimRow, node: &NewNode) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut same = |what: &str, got: String, wanted: String| {
        if got != wanted {
            wrong.push(format!("{what}: got {got}, wanted {wanted}"));
        }
    };
    if let Some(pods) = &claim.pods {
        let got: BTreeSet<&str> = node.pods.iter().map(|p| &*p.name).collect();
        same(
            "pods",
            format!("{got:?}"),
            format!("{:?}", pods.iter().collect::<BTreeSet<_>>()),
        );
    }
    if let Some(n) = claim.n {
        same("n", node.pods.len().to_string(), n.to_string());
    }
    if let Some(pool) = &claim.nodepool {
        same("nodepool", node.pool.name.to_string(), pool.clone());
    }
    let mut types: Vec<&str> = node.instance_types.iter().map(|t| &*t.name).collect();
    if let Some(it) = &claim.it {
        same("it", format!("{types:?}"), format!("{it:?}"));
    }
    if let Some(cheapest) = &claim.cheapest {
        same(
            "cheapest",
            types.first().copied().unwrap_or_default().to_owned(),
            cheapest.clone(),
        );
    }
    if let Some(set) = &claim.it_set {
        types.sort_unstable();
        same(
            "it_set",
            format!("{types:?}"),
            format!(
                "{:?}",
                set.iter()
                    .collect::<BTreeSet<_>>()
                    .iter()
                    .collect::<Vec<_>>()
            ),
        );
    }
    for (short, values) in [
        ("zone", &claim.zone),
        ("ct", &claim.ct),
        ("rid", &claim.rid),
    ] {
        let Some(values) = values else { continue };
        let finite = node.requirements.get(key(short)).filter(|r| r.is_finite());
        let got = finite.map_or("any".to_owned(), |r| format!("{:?}", r.values));
        let wanted = match values {
            WordOr::Word(any) => any.clone(),
            WordOr::List(values) => format!("{:?}", values.iter().collect::<BTreeSet<_>>()),
        };
        same(short, got, wanted);
    }
    for text in &claim.req {
        let wanted = requirement(text);
        let got = node.requirements.get(&wanted.key);
        same("req", format!("{got:?}"), format!("{:?}", Some(&wanted)));
    }
    if let Some(requests) = &claim.requests {
        same(
            "requests",
            format!("{:?}", node.requests),
            format!("{:?}", resources(requests)),
        );
    }
    if let Some(relaxed) = claim.relaxed {
        same(
            "relaxed",
            node.min_values_relaxed.to_string(),
            relaxed.to_string(),
        );
    }
    wrong
}

fn ignored_class(why: &Ignored) -> &'static str {
    match why {
        Ignored::NotProvisionable => "not_provisionable",
        Ignored::OptedOut => "opted_out",
        Ignored::RestrictedLabel(_) => "restricted_label",
        Ignored::Malformed(_) => "malformed",
        Ignored::MatchFields => "match_fields",
        Ignored::UnknownValue(_) => "unknown_value",
    }
}

fn pending_classes(why: &Pending) -> Vec<String> {
    match why {
        Pending::NoPools => vec!["no_nodepools".to_owned()],
        Pending::NoInstanceTypes => vec!["no_instance_types".to_owned()],
        Pending::Refused(all) => {
            let classes: BTreeSet<String> = all
                .iter()
                .map(|(_, refusal)| refusal_class(refusal))
                .collect();
            classes.into_iter().collect()
        }
    }
}

fn refusal_class(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Taint(_) => "taint".to_owned(),
        Refusal::UndefinedLabel(_) => "undefined_label".to_owned(),
        Refusal::Requirements(_) => "requirements".to_owned(),
        Refusal::NodeLimit => "node_limit".to_owned(),
        Refusal::Limits { .. } => "limits".to_owned(),
        Refusal::MinValues(_) => "min_values".to_owned(),
        Refusal::InstanceTypes(types) => type_class(types),
        Refusal::Unsupported(what) if what == &["resourceClaims"] => "dra".to_owned(),
        other => format!("{other:?}"),
    }
}

/// `it_` and what no type met, or else what the types lack that met the rest.
fn type_class(types: &TypeRefusal) -> String {
    let met = [
        ("requirements", types.requirements_met),
        ("resources", types.resources_met),
        ("offering", types.offering_met),
    ];
    let unmet: Vec<&str> = met
        .into_iter()
        .filter(|(_, met)| !met)
        .map(|(part, _)| part)
        .collect();
    if !unmet.is_empty() {
        return format!("it_{}", unmet.join("+"));
    }
    let [
        requirements_resources,
        requirements_offering,
        resources_offering,
    ] = types.pairs_met;
    match (
        requirements_resources,
        resources_offering,
        requirements_offering,
    ) {
        (true, _, _) => "it_pair_offering",
        (_, true, _) => "it_pair_requirements",
        (_, _, true) => "it_pair_resources",
        _ => "it_tuple",
    }
    .to_owned()
}
