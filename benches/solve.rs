//! How long a pass takes: `cargo bench --bench solve` (add `--profile dev` for the profile that tests use).
//!
//! The world is upstream's benchmark world (400 types, one pool) as far as the solver's constraints go: CPU and memory drawn from the same
//! sizes; topology constraints are not part of it yet. Fixed seed.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(clippy::unwrap_used, reason = "the inputs are written below")]
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use serde_json::json;
use tenon::{
    api::{
        names::label,
        requirement::{Requirement, Requirements},
    },
    cloud::{CapacityType, InstanceType, Offering},
    cluster::{Claim, Nomination, Pod, Pool, StateNode},
    plan::claim::build,
    scheduling::{Options, Placement, Problem, lower_bound_per_hour, solve},
    units::Resources,
};

const GI: i64 = 1 << 30;

struct Draw(u64);

impl Draw {
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        choices[(self.0 >> 33) as usize % choices.len()]
    }
}

fn instance_type(i: i64) -> Arc<InstanceType> {
    let cpu = i + 1;
    let capacity: Resources = [
        ("cpu", cpu * 1000),
        ("memory", cpu * 2 * GI),
        ("pods", cpu * 10),
    ]
    .into_iter()
    .collect();
    let overhead: Resources = [("cpu", 100), ("memory", 10 << 20)].into_iter().collect();
    let price = 0.314_748_364_8 * cpu as f64;
    let sold = [
        ("test-zone-1", CapacityType::Spot),
        ("test-zone-2", CapacityType::Spot),
        ("test-zone-1", CapacityType::OnDemand),
        ("test-zone-2", CapacityType::OnDemand),
        ("test-zone-3", CapacityType::OnDemand),
    ];
    let name = format!("fake-it-{i}");
    Arc::new(InstanceType {
        name: name.as_str().into(),
        requirements: Requirements::from_iter([
            Requirement::of(label::INSTANCE_TYPE, [name]),
            Requirement::of(label::ARCH, ["amd64"]),
            Requirement::of(label::OS, ["darwin", "linux", "windows"]),
            Requirement::of(label::ZONE, ["test-zone-1", "test-zone-2", "test-zone-3"]),
            Requirement::of(label::CAPACITY_TYPE, ["on-demand", "spot"]),
        ]),
        allocatable: InstanceType::allocatable_of(&capacity, &overhead),
        capacity,
        overhead,
        offerings: sold.map(|(z, c)| Offering::new(z, c, price, true)).to_vec(),
    })
}

fn pod(i: usize, cpu: &str, memory: &str, selector: Option<(&str, String)>) -> Arc<Pod> {
    let selector: BTreeMap<&str, String> = selector.into_iter().collect();
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
    let pod = json!({
        "metadata": {"name": format!("p{i:05}"), "namespace": "default", "uid": format!("p{i:05}")},
        "spec": {"containers": [container], "nodeSelector": selector},
    });
    Arc::new(Pod::from_k8s(&serde_json::from_value(pod).unwrap()))
}

fn problem(pods: Vec<Arc<Pod>>, pool: &Arc<Pool>, types: &Arc<Vec<Arc<InstanceType>>>) -> Problem {
    Problem {
        pods,
        nodes: Vec::new(),
        pools: vec![(pool.clone(), types.clone())],
        refusing: Vec::new(),
        usage: BTreeMap::new(),
        daemons: Vec::new(),
        nominations: BTreeMap::new(),
        ignored: BTreeMap::new(),
        options: Options::default(),
    }
}

fn report(what: &str, problem: &Problem) -> Placement {
    let begin = Instant::now();
    let placement = solve(problem);
    let took = begin.elapsed();
    let price: f64 = placement.new_nodes.iter().map(|n| n.price_per_hour).sum();
    let begin = Instant::now();
    let bound = lower_bound_per_hour(problem);
    println!(
        "{what}: {} pods in {:.1} ms, {} new nodes at {price:.2}/h (bound {bound:.2} in {:.1} ms), {} pending",
        problem.pods.len(),
        took.as_secs_f64() * 1e3,
        placement.new_nodes.len(),
        begin.elapsed().as_secs_f64() * 1e3,
        placement.pending.len(),
    );
    placement
}

/// The same pods once the claims of the placement are there and the pods are nominated to them.
fn replanned(problem: &Problem, placement: &Placement) -> Problem {
    let mut next = problem.clone();
    for (i, node) in placement.new_nodes.iter().enumerate() {
        let name = format!("claim-{i}");
        let claim = Claim::from_api(Arc::new(build(node, name.clone())));
        next.nodes.push(StateNode {
            name: name.as_str().into(),
            node: None,
            claim: Some(Arc::new(claim)),
            marked_for_deletion: false,
            pods: Vec::new(),
        });
        let place = Nomination::Claim(name.into());
        next.nominations
            .extend(node.pods.iter().map(|p| (p.clone(), place.clone())));
    }
    next
}

fn main() {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        }}},
    });
    let pool = Arc::new(Pool::from_api(Arc::new(
        serde_json::from_value(pool).unwrap(),
    )));
    let types = Arc::new((0..400).map(instance_type).collect::<Vec<_>>());
    let mut draw = Draw(42);
    let cpus = ["100m", "250m", "500m", "1000m", "1500m"];
    let memories = ["100Mi", "256Mi", "512Mi", "1024Mi", "2048Mi", "4096Mi"];
    for n in [1000, 5000, 20_000] {
        let same = (0..n).map(|i| pod(i, "1000m", "1Gi", None)).collect();
        let same = problem(same, &pool, &types);
        let placement = report("identical", &same);
        report("identical, planned before", &replanned(&same, &placement));

        let mixed = (0..n)
            .map(|i| pod(i, draw.of(&cpus), draw.of(&memories), None))
            .collect();
        let mixed = problem(mixed, &pool, &types);
        let placement = report("mixed sizes", &mixed);
        report(
            "mixed sizes, planned before",
            &replanned(&mixed, &placement),
        );

        let mut any = || draw.of(&[1_usize, 2, 3]);
        let mut distinct: Vec<Arc<Pod>> = Vec::new();
        for i in 0..n {
            let zone = (i % 3 == 0).then(|| (label::ZONE, format!("test-zone-{}", any())));
            distinct.push(pod(
                i,
                &format!("{}m", 100 + (i * 7919) % 1900),
                &format!("{}Mi", 64 + i),
                zone,
            ));
        }
        report("all different", &problem(distinct, &pool, &types));

        let few: Arc<Vec<_>> = Arc::new(types[..8].to_vec());
        let many: Vec<Arc<Pod>> = (0..n)
            .map(|i| pod(i, draw.of(&cpus), draw.of(&memories), None))
            .collect();
        report("mixed sizes, small types", &problem(many, &pool, &few));

        let too_big = (0..n)
            .map(|i| pod(i, &format!("{}", 500 + i), "1Gi", None))
            .collect();
        report("all too big", &problem(too_big, &pool, &types));
    }
}
