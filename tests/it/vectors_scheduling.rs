//! Runs the scheduler's behaviour vectors: one pass per row, compared in full.
//!
//! Rows that need what later work brings wait; which they are follows from the fields that a row uses. `TENON_VECTORS_SCHEDULING` names
//! another file with the same schema.

use std::{collections::BTreeMap, sync::Arc};

use tenon::{
    api::{
        names,
        requirement::{Requirements, Undefined},
    },
    cluster::{Event, Nomination, PodKey, State},
    plan::claim::{build, specs},
    scheduling::{Placement, Problem, lower_bound_per_hour, solve},
};

mod outcome;
mod rows;
mod world;

use rows::File;

fn file() -> File {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/scheduling.yaml");
    let path = std::env::var("TENON_VECTORS_SCHEDULING").unwrap_or_else(|_| own.to_owned());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let file: File = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert_eq!(file.schema, 1, "{path}: unknown schema");
    file
}

fn reversed(problem: &Problem) -> Problem {
    let mut other = problem.clone();
    other.pods.reverse();
    other.nodes.reverse();
    other.pools.reverse();
    other.daemons.reverse();
    other
}

/// Writes the claims of a placement, notes where its pods are wanted, and plans again before anything was launched: every pod that waits
/// keeps its place.
fn changes_of_mind(problem: &Problem, mut state: State, placement: &Placement) -> Vec<String> {
    let mut nominations: BTreeMap<PodKey, Nomination> = BTreeMap::new();
    for (name, pods) in &placement.existing {
        let node = problem.nodes.iter().find(|n| n.name == *name);
        let place = match node.and_then(|n| n.node.as_ref()) {
            Some(_) => Nomination::Node(name.clone()),
            None => Nomination::Claim(name.clone()),
        };
        nominations.extend(pods.iter().map(|p| (p.clone(), place.clone())));
    }
    for (i, node) in placement.new_nodes.iter().enumerate() {
        let name = format!("planned-{i}");
        let mut claim = build(node, name.clone());
        claim.metadata.uid = Some(name.clone());
        state.apply(Event::Claim(Box::new(claim)), world::now());
        let place = Nomination::Claim(name.into());
        nominations.extend(node.pods.iter().map(|p| (p.clone(), place.clone())));
    }
    let all: Vec<_> = nominations.clone().into_iter().collect();
    state.apply(Event::Nominated(Arc::new(all)), world::now());
    let again = Problem::from_snapshot(&state.snapshot(), world::now(), &problem.options);
    let second = solve(&again);
    let mut wrong = Vec::new();
    for node in second.new_nodes {
        if node.pods.iter().any(|p| nominations.contains_key(p)) {
            wrong.push(format!("planned again, before any launch: {:?}", node.pods));
        }
    }
    for (pod, place) in again.nominations {
        let (Nomination::Node(name) | Nomination::Claim(name)) = place;
        if !second
            .existing
            .get(&name)
            .is_some_and(|pods| pods.contains(&pod))
        {
            wrong.push(format!("planned again, {pod} is no longer on {name}"));
        }
    }
    wrong
}

/// How many rows wait, by the sections that they are about.
fn waiting_text(waiting: &BTreeMap<String, usize>) -> String {
    let total: usize = waiting.values().sum();
    let sections: Vec<String> = waiting
        .iter()
        .map(|(section, n)| format!("{section}: {n}"))
        .collect();
    format!("waiting: {total} ({})", sections.join(", "))
}

#[test]
fn vectors_scheduling() {
    let file = file();
    let mut failed = Vec::new();
    let mut run = 0;
    let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
    for row in &file.vectors {
        if !row.needs(&file).is_empty() {
            *waiting.entry(row.section.replace(", ", "+")).or_default() += 1;
            continue;
        }
        run += 1;
        let (problem, state) = world::problem(row, &file);
        let placement = solve(&problem);
        let mut wrong = outcome::differences(row, &placement);
        let again = solve(&reversed(&problem));
        if format!("{placement:?}") != format!("{again:?}") {
            wrong.push("another order of the same input gives another answer".to_owned());
        }
        let price: f64 = placement.new_nodes.iter().map(|n| n.price_per_hour).sum();
        let bound = lower_bound_per_hour(&problem);
        if placement.pending.is_empty() && bound > price + 1e-9 {
            wrong.push(format!(
                "the lower bound {bound} is above the price {price}"
            ));
        }
        if wrong.is_empty() {
            wrong = changes_of_mind(&problem, state, &placement);
        }
        if !wrong.is_empty() {
            failed.push(format!(
                "{} ({}):\n    {}",
                row.name,
                row.section,
                wrong.join("\n    ")
            ));
        }
    }
    let (rows, wrong) = function_rows(&file);
    run += rows;
    failed.extend(wrong);
    for (table, n) in [
        ("batching", file.batching_vectors.len()),
        ("overlay", file.overlay_vectors.len()),
        ("price", file.price_vectors.len()),
    ] {
        if n > 0 {
            waiting.insert(table.to_owned(), n);
        }
    }
    let report = format!(
        "scheduling vectors: {}/{run}\n{}",
        run - failed.len(),
        waiting_text(&waiting)
    );
    report_line(&report);
    assert!(failed.is_empty(), "{report}\n{}", failed.join("\n"));
    assert!(run + waiting.len() > 0, "the file has no row");
}

#[expect(
    clippy::print_stdout,
    reason = "the counts are what a reader of the test run wants to see"
)]
fn report_line(text: &str) {
    println!("{text}");
}

/// The rows about single functions: how many there are, and what is wrong with those that fail (one entry a row).
fn function_rows(file: &File) -> (usize, Vec<String>) {
    let mut failed = Vec::new();
    for row in &file.requirement_vectors {
        let (a, b) = (world::requirement(&row.a), world::requirement(&row.b));
        let mut wrong = Vec::new();
        for (x, y) in [(&a, &b), (&b, &a)] {
            let (out, overlap) = (x.intersection(y).to_string(), x.overlaps(y));
            if out != row.out || overlap != row.overlap {
                wrong.push(format!(
                    "{x} and {y}: got {out} {overlap}, wanted {} {}",
                    row.out, row.overlap
                ));
            }
        }
        failed.extend(wrong.into_iter().next());
    }
    let set = |all: &[String]| {
        all.iter()
            .map(|r| world::requirement(r))
            .collect::<Requirements>()
    };
    for row in &file.compatibility_vectors {
        let (node, incoming) = (set(&row.node), set(&row.incoming));
        let allow = Undefined::AllowedIf(&names::is_well_known);
        let mut wrong = Vec::new();
        for (undefined, wanted) in [(allow, row.allow), (Undefined::Denied, row.strict)] {
            let got = node.compatible(&incoming, undefined).is_ok();
            if got != wanted || node.admits(&incoming, undefined) != wanted {
                wrong.push(format!(
                    "{:?} against {:?}: got {got}, wanted {wanted}",
                    row.node, row.incoming
                ));
            }
        }
        failed.extend(wrong.into_iter().next());
    }
    for row in &file.serialise_vectors {
        let got: Vec<String> = set(&row.all)
            .iter()
            .flat_map(specs)
            .map(|s| {
                let values = if s.values.is_empty() {
                    String::new()
                } else {
                    format!(" {}", s.values.join(","))
                };
                let min = s.min_values.map_or(String::new(), |n| format!(" min={n}"));
                format!("{} {}{values}{min}", s.key, s.operator)
            })
            .collect();
        if got != row.out {
            failed.push(format!("{:?}: got {got:?}, wanted {:?}", row.all, row.out));
        }
    }
    let rows = file.requirement_vectors.len()
        + file.compatibility_vectors.len()
        + file.serialise_vectors.len();
    (rows, failed)
}
