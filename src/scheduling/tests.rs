//! Properties of whole passes, and what the vectors do not show: nominations, holds, limits counted at once, nearest fits.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::names::label,
    api::requirement::Requirement,
    cloud::{CapacityType, Offering},
    cluster::{Hold, Node, Nomination, State},
};

const GI: i64 = 1 << 30;

fn pod(name: &str, cpu_milli: i64, spec: Value) -> Arc<Pod> {
    let mut all = json!({
        "containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{cpu_milli}m"), "memory": "1Gi"}}}],
    });
    for (k, v) in spec.as_object().into_iter().flatten() {
        all[k] = v.clone();
    }
    let pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": all,
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    });
    Arc::new(Pod::from_k8s(&serde_json::from_value(pod).unwrap()))
}

fn pool(name: &str, spec: Value) -> Arc<Pool> {
    let mut all = json!({"template": {"spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [],
    }}});
    for (k, v) in spec.as_object().into_iter().flatten() {
        if ["requirements", "taints"].contains(&k.as_str()) {
            all["template"]["spec"][k] = v.clone();
        } else {
            all[k] = v.clone();
        }
    }
    let ready = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-12-01T00:00:00Z"});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": all, "status": {"conditions": [ready]},
    });
    Arc::new(Pool::from_api(Arc::new(
        serde_json::from_value(pool).unwrap(),
    )))
}

fn instance_type(name: &str, cpu: i64, offerings: Vec<Offering>) -> Arc<InstanceType> {
    let capacity: Resources = [("cpu", cpu * 1000), ("memory", cpu * 4 * GI), ("pods", 20)]
        .into_iter()
        .collect();
    Arc::new(InstanceType {
        name: name.into(),
        requirements: Requirements::from_iter([
            Requirement::of(label::INSTANCE_TYPE, [name]),
            Requirement::of(label::ZONE, offerings.iter().map(|o| o.zone.clone())),
            Requirement::of(
                label::CAPACITY_TYPE,
                offerings.iter().map(|o| o.capacity_type.as_str()),
            ),
        ]),
        allocatable: capacity.clone(),
        capacity,
        overhead: Resources::default(),
        offerings,
    })
}

/// Three sizes in two zones, 0.1 USD per core on demand, 0.04 on spot.
fn catalog() -> Catalog {
    let size = |name: &str, cpu: i64| {
        let price = |per_core: f64| per_core * cpu as f64;
        let offerings = ["z1", "z2"].into_iter().flat_map(|zone| {
            [
                Offering::new(zone, CapacityType::OnDemand, price(0.1), true),
                Offering::new(zone, CapacityType::Spot, price(0.04), true),
            ]
        });
        instance_type(name, cpu, offerings.collect())
    };
    Arc::new(vec![size("large", 8), size("medium", 4), size("small", 2)])
}

fn node(name: &str, cpu: i64) -> StateNode {
    let node = json!({
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "z1"}},
        "status": {"allocatable": {"cpu": cpu.to_string(), "memory": "64Gi", "pods": "20"}},
    });
    StateNode {
        name: name.into(),
        node: Some(Arc::new(Node::from_k8s(
            &serde_json::from_value(node).unwrap(),
        ))),
        claim: None,
        marked_for_deletion: false,
        pods: Vec::new(),
    }
}

fn problem(pods: Vec<Arc<Pod>>, pools: Vec<Arc<Pool>>) -> Problem {
    let catalog = catalog();
    Problem {
        pods,
        nodes: Vec::new(),
        pools: pools.into_iter().map(|p| (p, catalog.clone())).collect(),
        refusing: Vec::new(),
        usage: BTreeMap::new(),
        daemons: Vec::new(),
        nominations: BTreeMap::new(),
        ignored: BTreeMap::new(),
        options: Options::default(),
    }
}

fn key(name: &str) -> PodKey {
    PodKey::new("default", name)
}

fn reasons<'p>(placement: &'p Placement, pod: &str) -> &'p [(Arc<str>, Refusal)] {
    match &placement.pending[&key(pod)] {
        Pending::Refused(all) => all,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_nominated_pod_keeps_its_place_when_a_larger_one_comes() {
    let pods = vec![pod("old", 1500, json!({})), pod("new", 1800, json!({}))];
    let mut problem = problem(pods, vec![pool("a", json!({}))]);
    problem.nodes = vec![node("n1", 2)];
    let upstream = solve(&problem);
    assert_eq!(
        upstream.existing["n1"],
        [key("new")],
        "the larger pod is first without a nomination"
    );
    problem
        .nominations
        .insert(key("old"), Nomination::Node("n1".into()));
    let kept = solve(&problem);
    assert_eq!(kept.existing["n1"], [key("old")]);
    assert_eq!(kept.new_nodes[0].pods, [key("new")]);
}

#[test]
fn a_nomination_to_a_machine_that_is_gone_or_full_counts_for_nothing() {
    for place in [
        Nomination::Node("gone".into()),
        Nomination::Claim("n1".into()),
    ] {
        let mut problem = problem(vec![pod("p", 1000, json!({}))], vec![pool("a", json!({}))]);
        problem.nodes = vec![node("n1", 2)];
        problem.nominations.insert(key("p"), place);
        assert_eq!(solve(&problem).existing["n1"], [key("p")]);
    }
    let mut problem = problem(vec![pod("p", 3000, json!({}))], vec![pool("a", json!({}))]);
    problem.nodes = vec![node("n1", 2)];
    problem
        .nominations
        .insert(key("p"), Nomination::Node("n1".into()));
    assert_eq!(solve(&problem).new_nodes.len(), 1);
}

#[test]
fn a_limit_on_nodes_counts_the_nodes_of_the_pass() {
    let pods = || {
        (0..3)
            .map(|i| pod(&format!("p{i}"), 7000, json!({})))
            .collect()
    };
    let limited = pool("a", json!({"limits": {"nodes": "2"}}));
    let mut problem = problem(pods(), vec![limited]);
    let placement = solve(&problem);
    assert_eq!(placement.new_nodes.len(), 2);
    assert_eq!(
        reasons(&placement, "p2"),
        [("a".into(), Refusal::NodeLimit)]
    );
    problem.options.node_limit = NodeLimit::AtStart;
    assert_eq!(solve(&problem).new_nodes.len(), 3);
}

#[test]
fn a_limit_charges_the_most_that_a_node_may_have_and_says_what_is_left() {
    let limited = pool("a", json!({"limits": {"cpu": "9", "memory": "1000Gi"}}));
    let pods = (0..2)
        .map(|i| pod(&format!("p{i}"), 5000, json!({})))
        .collect();
    let placement = solve(&problem(pods, vec![limited]));
    // The first node may be a large one of 8 cores, so one core is left.
    assert_eq!(placement.new_nodes.len(), 1);
    let remaining = [("cpu", 1000)].into_iter().collect();
    assert_eq!(
        reasons(&placement, "p1"),
        [("a".into(), Refusal::Limits { remaining })]
    );
}

#[test]
fn the_nearest_type_and_what_it_lacks() {
    let placement = solve(&problem(
        vec![pod("p", 9000, json!({}))],
        vec![pool("a", json!({}))],
    ));
    let Refusal::InstanceTypes(types) = &reasons(&placement, "p")[0].1 else {
        panic!("{placement:?}")
    };
    let lacks = [("cpu", 1000)].into_iter().collect();
    assert_eq!(types.nearest, Some(("large".into(), lacks)));
    assert!(types.requirements_met && types.offering_met && !types.resources_met);
}

#[test]
fn constraints_that_are_not_known_are_refused_even_if_a_node_has_room() {
    let spread = json!({"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": label::ZONE, "whenUnsatisfiable": "DoNotSchedule"},
    ]});
    let mut problem = problem(vec![pod("p", 100, spread)], vec![pool("a", json!({}))]);
    problem.nodes = vec![node("n1", 2)];
    let placement = solve(&problem);
    let refusal = Refusal::Unsupported(vec!["topologySpreadConstraints"]);
    assert_eq!(reasons(&placement, "p"), [("a".into(), refusal)]);
    assert!(placement.existing.is_empty() && placement.new_nodes.is_empty());
}

#[test]
fn a_claim_is_priced_by_its_cheapest_offering() {
    let od = json!({"nodeSelector": {label::CAPACITY_TYPE: "on-demand"}});
    let placement = solve(&problem(
        vec![pod("p", 3000, od)],
        vec![pool("a", json!({}))],
    ));
    let node = &placement.new_nodes[0];
    let names: Vec<&str> = node.instance_types.iter().map(|t| &*t.name).collect();
    assert_eq!(names, ["medium", "large"]);
    // 4 cores at 0.1.
    assert!((node.price_per_hour - 0.4).abs() < 1e-12);
    assert_eq!(node.offering, ("z1".into(), CapacityType::OnDemand));
}

#[test]
fn the_bound_takes_the_dearest_resource_and_what_is_free_already() {
    // Two pods of 3 cores and 1 GiB: 6 cores at 0.04 each; memory would be 2 GiB at 0.01.
    let pods = vec![pod("p", 3000, json!({})), pod("q", 3000, json!({}))];
    let mut problem = problem(pods, vec![pool("a", json!({}))]);
    assert!((lower_bound_per_hour(&problem) - 0.24).abs() < 1e-9);
    problem.nodes = vec![node("n1", 2)];
    // Two cores are free already. Memory and pod slots need less still.
    assert!((lower_bound_per_hour(&problem) - 0.16).abs() < 1e-9);
}

#[test]
fn held_pools_and_pools_without_a_catalog_refuse_with_that_reason() {
    let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
    let until: Timestamp = "2026-12-01T00:05:00Z".parse().unwrap();
    let mut state = State::default();
    let mut waiting = (*pod("p", 100, json!({}))).clone();
    waiting.unschedulable = true;
    let object = |p: Arc<Pool>| crate::cluster::Event::Pool(Box::new((*p.object).clone()));
    state.apply(object(pool("held", json!({}))), now);
    let hold = Some(Hold { failures: 1, until });
    state.apply(
        crate::cluster::Event::PoolHeld {
            pool: "held".to_owned(),
            hold,
        },
        now,
    );
    let mut problem = Problem::from_snapshot(&state.snapshot(), now, &Options::default());
    assert_eq!(problem.refusing.len(), 1);
    problem.pods.push(Arc::new(waiting));
    assert_eq!(
        reasons(&solve(&problem), "p"),
        [("held".into(), Refusal::Held(until))]
    );

    // Once the hold is over it is only the catalog that is missing.
    let problem = Problem::from_snapshot(&state.snapshot(), until, &Options::default());
    assert_eq!(problem.refusing[0].1, Refusal::NoCatalog);
}

fn any_pod(name: String) -> impl Strategy<Value = Arc<Pod>> {
    let selector = prop_oneof![
        3 => Just(json!({})),
        1 => Just(json!({label::ZONE: "z1"})),
        1 => Just(json!({label::ZONE: "z2"})),
        1 => Just(json!({label::CAPACITY_TYPE: "on-demand"})),
        1 => Just(json!({"team": "red"})),
    ];
    let required = prop_oneof![
        3 => Just(json!(null)),
        1 => Just(json!([{"key": "team", "operator": "NotIn", "values": ["blue"]}])),
        1 => Just(json!([{"key": "team", "operator": "Exists"}])),
        1 => Just(json!([{"key": "team", "operator": "DoesNotExist"}])),
        1 => Just(json!([{"key": label::INSTANCE_TYPE, "operator": "In", "values": ["small", "large"]}])),
    ];
    let preferred = prop_oneof![
        Just(json!([])),
        Just(json!([{"weight": 1, "preference": {"matchExpressions": [
            {"key": label::ZONE, "operator": "In", "values": ["z2", "z9"]},
        ]}}]))
    ];
    let tolerations = prop_oneof![Just(json!([])), Just(json!([{"operator": "Exists"}]))];
    (1_i64..45, selector, required, preferred, tolerations).prop_map(
        move |(cpu, selector, required, preferred, tolerations)| {
            let mut affinity = json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred});
            if !required.is_null() {
                affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!({"nodeSelectorTerms": [{"matchExpressions": required}]});
            }
            let spec = json!({
                "nodeSelector": selector, "affinity": {"nodeAffinity": affinity}, "tolerations": tolerations,
            });
            pod(&name, cpu * 200, spec)
        },
    )
}

fn any_problem() -> impl Strategy<Value = Problem> {
    let pods: Vec<_> = (0..14).map(|i| any_pod(format!("p{i:02}"))).collect();
    let team = prop_oneof![
        Just(json!([])),
        Just(json!([{"key": "team", "operator": "Exists"}])),
        Just(json!([{"key": "team", "operator": "In", "values": ["red", "blue"]}])),
    ];
    let taints = prop_oneof![
        2 => Just(json!([])),
        1 => Just(json!([{"key": "k", "effect": "NoSchedule"}])),
        1 => Just(json!([{"key": "k", "effect": "PreferNoSchedule"}])),
    ];
    (pods, 0..14_usize, team, taints, 0..3_usize, 0..3_i64).prop_map(
        |(pods, n, team, taints, nodes, daemon)| {
            let first = pool(
                "a",
                json!({"weight": 10, "requirements": team, "taints": taints}),
            );
            let mut problem = problem(
                pods.into_iter().take(n).collect(),
                vec![first, pool("b", json!({}))],
            );
            problem.nodes = (0..nodes).map(|i| node(&format!("n{i}"), 3)).collect();
            problem.daemons = (0..daemon)
                .map(|i| pod(&format!("d{i}"), 150 * (i + 1), json!({})))
                .collect();
            problem
        },
    )
}

proptest! {
    #[test]
    fn every_pod_has_one_place_or_a_reason_and_everything_fits(problem in any_problem()) {
        let placement = solve(&problem);
        let new = placement.new_nodes.iter().flat_map(|n| &n.pods);
        let placed: Vec<&PodKey> = new.chain(placement.existing.values().flatten()).collect();
        let mut all: Vec<&PodKey> = placed.iter().copied().chain(placement.pending.keys()).collect();
        all.sort();
        let mut wanted: Vec<&PodKey> = problem.pods.iter().map(|p| &p.key).collect();
        wanted.sort();
        prop_assert_eq!(all, wanted);
        let requests = |pods: &[PodKey]| {
            let mut sum = Resources::default();
            problem.pods.iter().filter(|p| pods.contains(&p.key)).for_each(|p| sum.add(&p.requests));
            sum
        };
        for node in &placement.new_nodes {
            prop_assert!(!node.instance_types.is_empty());
            let mut least = requests(&node.pods);
            problem.daemons.iter().filter(|_| node.pool.taints.is_empty()).for_each(|d| least.add(&d.requests));
            for t in &node.instance_types {
                prop_assert!(least.fits_in(&t.allocatable), "{} on {}", node.pool.name, t.name);
                prop_assert!(t.cheapest(&node.requirements).is_some());
            }
        }
        for (name, pods) in &placement.existing {
            let node = problem.nodes.iter().find(|n| n.name == *name).unwrap();
            prop_assert!(requests(pods).fits_in(&node.available()));
        }
        for reasons in placement.pending.values() {
            prop_assert!(matches!(reasons, Pending::Refused(all) if !all.is_empty()));
        }
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(problem in any_problem(), turn in 0..14_usize) {
        let mut other = problem.clone();
        let turn = turn % other.pods.len().max(1);
        other.pods.rotate_left(turn);
        other.nodes.reverse();
        other.pools.reverse();
        other.daemons.reverse();
        prop_assert_eq!(format!("{:?}", solve(&problem)), format!("{:?}", solve(&other)));
    }

    #[test]
    fn no_plan_that_places_all_is_cheaper_than_the_bound(problem in any_problem()) {
        let mut problem = problem;
        let first = solve(&problem);
        problem.pods.retain(|p| !first.pending.contains_key(&p.key));
        let placement = solve(&problem);
        prop_assume!(placement.pending.is_empty());
        let price: f64 = placement.new_nodes.iter().map(|n| n.price_per_hour).sum();
        let bound = lower_bound_per_hour(&problem);
        prop_assert!(bound <= price + 1e-9, "bound {bound}, price {price}");
    }

    #[test]
    fn a_plan_holds_when_it_is_made_again(problem in any_problem()) {
        let first = solve(&problem);
        let mut again = problem.clone();
        for (node, pods) in &first.existing {
            again.nominations.extend(pods.iter().map(|p| (p.clone(), Nomination::Node(node.clone()))));
        }
        let second = solve(&again);
        for (node, pods) in &first.existing {
            let stayed = |p: &PodKey| second.existing.get(node).is_some_and(|now| now.contains(p));
            prop_assert!(pods.iter().all(stayed), "{node}: {pods:?}");
        }
    }
}
