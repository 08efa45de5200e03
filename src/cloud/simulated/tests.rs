//! The simulated cloud on a paused clock.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::{
    api::{
        names::{condition, label},
        requirement::{Requirement, Requirements},
    },
    units::{CPU, PODS},
};

const SPOT: CapacityType = CapacityType::Spot;
const ON_DEMAND: CapacityType = CapacityType::OnDemand;

fn cloud_with(config: Config) -> Simulated {
    let base = "2026-01-01T00:00:00Z".parse().unwrap();
    Simulated::new(config, Clock::starting_at(base))
}

fn cloud() -> Simulated {
    cloud_with(Config::default())
}

fn class(spec: Value) -> Arc<EC2NodeClass> {
    let mut full = json!({
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "lab"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "lab"}}],
        "role": "node",
    });
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    let spec = serde_json::from_value(full).unwrap();
    Arc::new(EC2NodeClass::new("default", spec))
}

fn request(token: &str, types: &[&str], capacity_types: &[CapacityType]) -> LaunchRequest {
    LaunchRequest {
        token: token.to_owned(),
        claim: format!("claim-{token}"),
        pool: "default".to_owned(),
        class: class(json!({})),
        requirements: Requirements::from_iter([
            Requirement::of(label::INSTANCE_TYPE, types),
            Requirement::of(
                label::CAPACITY_TYPE,
                capacity_types.iter().map(|c| c.as_str()),
            ),
        ]),
        requests: [(CPU, 1000), (PODS, 3)].into_iter().collect(),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        taints: vec![],
    }
}

fn stock_out(instance_type: &str) -> Fault {
    Fault::StockOut {
        offering: OfferingMatch {
            instance_type: Some(instance_type.to_owned()),
            ..Default::default()
        },
        left: 0,
    }
}

fn is_available(types: &[Arc<InstanceType>], name: &str) -> bool {
    let found = types.iter().find(|t| *t.name == *name).unwrap();
    found.offerings.iter().any(|o| o.is_launchable())
}

async fn next(events: &mut mpsc::Receiver<Machine>) -> Machine {
    events.recv().await.unwrap()
}

/// On-demand prices of the catalogue: m5.large 0.096, m5.4xlarge 0.768.
#[tokio::test(start_paused = true)]
async fn a_launch_takes_the_cheapest_offering_that_holds_the_pods() {
    let cloud = cloud();
    let mut asked = request("a", &["m5.4xlarge", "m5.large"], &[ON_DEMAND]);
    let small = cloud.launch(&asked).await.unwrap();
    assert_eq!(small.instance_type, "m5.large");
    assert_eq!(small.price_per_hour, 0.096);
    assert_eq!(small.zone, "us-east-1a");
    // Two vCPUs less 70m for Kubernetes.
    asked.requests.set(CPU, 1931);
    asked.token = "b".to_owned();
    let large = cloud.launch(&asked).await.unwrap();
    assert_eq!(large.instance_type, "m5.4xlarge");
    assert_eq!(large.capacity.get(CPU), 16_000);
    assert_eq!(large.labels[label::INSTANCE_CPU], "16");
    assert_eq!(large.labels[label::ZONE_ID], "use1-az1");
    assert_eq!(large.labels[label::INSTANCE_TENANCY], "default");
    assert!(!large.labels.contains_key(label::INSTANCE_GPU_NAME));
}

#[tokio::test(start_paused = true)]
async fn spot_comes_before_on_demand() {
    let cloud = cloud();
    let asked = request("a", &["m5.large"], &[SPOT, ON_DEMAND]);
    let instance = cloud.launch(&asked).await.unwrap();
    assert_eq!(instance.capacity_type, SPOT);
    let share = instance.price_per_hour / 0.096;
    assert!((0.25..=0.45).contains(&share), "{share}");
}

#[tokio::test(start_paused = true)]
async fn spot_prices_differ_by_zone_and_stay_between_a_quarter_and_45_percent() {
    let types = cloud().instance_types(&class(json!({}))).await.unwrap();
    let m5 = types.iter().find(|t| &*t.name == "m5.large").unwrap();
    let spot = m5.offerings.iter().filter(|o| o.capacity_type == SPOT);
    let prices: BTreeSet<u64> = spot
        .map(|o| (o.price_per_hour * 1e6).round() as u64)
        .collect();
    assert!(prices.len() > 1);
    assert!(prices.iter().all(|p| (24_000..=43_200).contains(p)));
    // Rows of the catalogue with and without spot among their usage classes.
    let sold_as = |name: &str| -> BTreeSet<CapacityType> {
        let found = types.iter().find(|t| *t.name == *name).unwrap();
        found.offerings.iter().map(|o| o.capacity_type).collect()
    };
    assert_eq!(sold_as("m5.large"), [SPOT, ON_DEMAND].into());
    assert_eq!(sold_as("t1.micro"), [SPOT, ON_DEMAND].into());
    assert_eq!(sold_as("u-6tb1.56xlarge"), [ON_DEMAND].into());
}

/// The rows of the vectors' launch filters on GPUs, bare metal and dear spot.
#[tokio::test(start_paused = true)]
async fn exotic_types_are_taken_only_when_nothing_plain_would_do() {
    let cloud = cloud();
    let all = ["m5.metal", "g4dn.2xlarge", "m5.4xlarge"];
    let mut asked = request("a", &all, &[ON_DEMAND]);
    // g4dn.2xlarge at 0.752 is cheaper than m5.4xlarge at 0.768.
    asked.requests.set(CPU, 7000);
    let launched = cloud.launch(&asked).await.unwrap();
    assert_eq!(launched.instance_type, "m5.4xlarge");
    let mut asked = request("b", &all[..2], &[ON_DEMAND]);
    asked.requests.set(CPU, 7000);
    let launched = cloud.launch(&asked).await.unwrap();
    assert_eq!(launched.instance_type, "g4dn.2xlarge");
    assert_eq!(launched.capacity.get("nvidia.com/gpu"), 1);
}

#[tokio::test(start_paused = true)]
async fn one_token_makes_one_instance() {
    let cloud = cloud();
    let asked = request("a", &["m5.large"], &[ON_DEMAND]);
    let (first, second) = tokio::join!(cloud.launch(&asked), cloud.launch(&asked));
    let first = first.unwrap();
    assert_eq!(first.provider_id, second.unwrap().provider_id);
    assert_eq!(cloud.counters().launched, 1);
    cloud.terminate(&first.provider_id).await.unwrap();
    assert!(cloud.launch(&asked).await.unwrap().terminating);
    cloud.0.clock.sleep(TERMINATION_TIME.1).await;
    let error = cloud.launch(&asked).await.unwrap_err();
    assert_eq!(error.code, "IdempotentInstanceTerminated");
    assert_eq!(cloud.counters().launched, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_launch_counts_from_the_instant_of_its_effect() {
    let cloud = cloud();
    let asked = request("a", &["m5.large"], &[ON_DEMAND]);
    // Three quarters of the shortest launch are 750 ms.
    let early = timeout(Duration::from_millis(740), cloud.launch(&asked)).await;
    assert!(early.is_err());
    cloud.0.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(cloud.instances().len(), 0);

    let (sharer, again) = (cloud.clone(), asked.clone());
    let call = tokio::spawn(async move { sharer.launch(&again).await });
    while cloud.instances().is_empty() {
        cloud.0.clock.sleep(Duration::from_millis(10)).await;
    }
    assert!(!call.is_finished());
    call.abort();
    let made = cloud.instances();
    let instance = cloud.launch(&asked).await.unwrap();
    assert_eq!(made, [instance]);
    let claims: Vec<String> = cloud.calls().into_iter().map(|c| c.claim).collect();
    assert_eq!(claims, ["claim-a", "claim-a", "claim-a"]);
}

#[tokio::test(start_paused = true)]
async fn machines_boot_end_and_cost() {
    let cloud = cloud();
    let clock = cloud.0.clock.clone();
    let mut events = cloud.machine_events().unwrap();
    assert!(cloud.machine_events().is_none());
    let asked = request("a", &["m5.large"], &[ON_DEMAND]);
    let instance = cloud.launch(&asked).await.unwrap();
    let Machine::Booted(booted) = next(&mut events).await else {
        panic!("no boot");
    };
    let waited = clock.now().duration_since(instance.launched).as_secs();
    assert!((25..=45).contains(&waited), "{waited}");
    assert_eq!(booted.instance, instance);
    assert_eq!(booted.kubelet_version, "v1.32.0");
    // us-east-1a has the first /19.
    let octets: Vec<u8> = booted
        .address
        .split('.')
        .map(|o| o.parse().unwrap())
        .collect();
    assert!(octets[..2] == [10, 0] && octets[2] < 32, "{octets:?}");
    let dashed = booted.address.replace('.', "-");
    assert_eq!(booted.node_name, format!("ip-{dashed}.ec2.internal"));
    for (key, value) in [
        ("team", "a"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", &booted.node_name),
        ("node.kubernetes.io/instance-type", "m5.large"),
        ("topology.kubernetes.io/region", "us-east-1"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
        ("karpenter.sh/do-not-sync-taints", "true"),
    ] {
        assert_eq!(
            booted.labels.get(key).map(String::as_str),
            Some(value),
            "{key}"
        );
    }
    let taints: Vec<(&str, &str)> = booted
        .taints
        .iter()
        .map(|t| (t.key.as_str(), t.effect.as_str()))
        .collect();
    assert_eq!(taints, [("karpenter.sh/unregistered", "NoExecute")]);

    assert_eq!(cloud.counters().price_per_hour, 0.096);
    let an_hour_on = instance.launched + jiff::SignedDuration::from_hours(1);
    clock.sleep_until(an_hour_on).await;
    assert!((cloud.counters().accrued_cost - 0.096).abs() < 1e-9);

    let asked_at = clock.now();
    cloud.terminate(&instance.provider_id).await.unwrap();
    assert!(matches!(
        next(&mut events).await,
        Machine::Terminating { .. }
    ));
    cloud.terminate(&instance.provider_id).await.unwrap(); // again is fine
    assert!(cloud.get(&instance.provider_id).await.unwrap().terminating);
    assert_eq!(cloud.counters().price_per_hour, 0.0);
    assert_eq!(cloud.counters().left_over, 1);
    assert!(matches!(
        next(&mut events).await,
        Machine::Terminated { .. }
    ));
    let waited = clock.now().duration_since(asked_at).as_secs();
    assert!((20..=40).contains(&waited), "{waited}");
    let counters = cloud.counters();
    assert_eq!(
        (counters.launched, counters.terminated, counters.left_over),
        (1, 1, 0)
    );
    // Nothing is paid for the shutdown: an hour and the 50 ms until the termination took effect.
    assert!((counters.accrued_cost - 0.096 * (3600.05 / 3600.0)).abs() < 1e-9);
    for call in [
        cloud.get(&instance.provider_id).await.map(|_| ()),
        cloud.terminate(&instance.provider_id).await,
    ] {
        assert!(call.unwrap_err().is_not_found());
    }
    assert_eq!(cloud.list().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_out_of_stock_is_not_offered_for_three_minutes() {
    let cloud = cloud();
    let class = class(json!({}));
    let before = cloud.instance_types(&class).await.unwrap();
    let again = cloud.instance_types(&class).await.unwrap();
    assert!(Arc::ptr_eq(&before, &again));
    cloud.inject(stock_out("m5.large"));
    let asked = request("a", &["m5.large", "m5.4xlarge"], &[ON_DEMAND]);
    let instance = cloud.launch(&asked).await.unwrap();
    assert_eq!(instance.instance_type, "m5.4xlarge");
    let types = cloud.instance_types(&class).await.unwrap();
    let m5 = types.iter().find(|t| &*t.name == "m5.large").unwrap();
    let left: BTreeSet<CapacityType> = m5
        .offerings
        .iter()
        .filter(|o| o.available)
        .map(|o| o.capacity_type)
        .collect();
    assert_eq!(left, [SPOT].into());

    let only = request("b", &["m5.large"], &[ON_DEMAND]);
    let error = cloud.launch(&only).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::InsufficientCapacity);
    cloud.clear_faults();
    cloud.0.clock.sleep(Duration::from_secs(170)).await;
    assert!(cloud.launch(&only).await.is_err());
    cloud.0.clock.sleep(Duration::from_secs(10)).await;
    let after = cloud.instance_types(&class).await.unwrap();
    assert!(Arc::ptr_eq(&before, &after));
    assert!(is_available(&after, "m5.large"));
    assert!(cloud.launch(&only).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn quotas_count_vcpus_by_capacity_type() {
    let cloud = cloud_with(Config {
        vcpu_quota: [(ON_DEMAND, 5)].into(),
        ..Default::default()
    });
    // Two and two of five; a third machine of two is refused, spot is not.
    let asked = |token| request(token, &["m5.large"], &[ON_DEMAND]);
    let first = cloud.launch(&asked("a")).await.unwrap();
    cloud.launch(&asked("b")).await.unwrap();
    let error = cloud.launch(&asked("c")).await.unwrap_err();
    assert_eq!(
        (error.class, error.code.as_str()),
        (ErrorClass::Quota, "VcpuLimitExceeded")
    );
    cloud
        .launch(&request("d", &["m5.large"], &[SPOT]))
        .await
        .unwrap();
    // A machine that shuts down gives its vCPUs back.
    cloud.terminate(&first.provider_id).await.unwrap();
    cloud.0.clock.sleep(Duration::from_secs(180)).await;
    cloud.launch(&asked("c")).await.unwrap();
    cloud.inject(Fault::VcpuQuota {
        capacity_type: SPOT,
        vcpus: 3,
    });
    let error = cloud
        .launch(&request("e", &["m5.large"], &[SPOT]))
        .await
        .unwrap_err();
    assert_eq!(error.code, "MaxSpotInstanceCountExceeded");
}

#[tokio::test(start_paused = true)]
async fn launches_hang_fail_and_are_throttled() {
    let cloud = cloud();
    let pool = |pool: &str| LaunchMatch {
        pool: Some(pool.to_owned()),
        claim: None,
    };
    let asked = request("a", &["m5.large"], &[ON_DEMAND]);
    let other = LaunchRequest {
        pool: "other".to_owned(),
        token: "b".to_owned(),
        ..asked.clone()
    };
    cloud.inject(Fault::LaunchHangs {
        launch: pool("default"),
        instance_is_made: false,
        times: Some(1),
    });
    cloud.inject(Fault::LaunchHangs {
        launch: pool("default"),
        instance_is_made: true,
        times: Some(1),
    });
    let a_day = Duration::from_secs(86_400);
    for instances in [0, 1] {
        assert!(timeout(a_day, cloud.launch(&asked)).await.is_err());
        assert_eq!(cloud.instances().len(), instances);
    }
    cloud.inject(Fault::LaunchFails {
        launch: pool("other"),
        code: "UnauthorizedOperation".to_owned(),
        times: Some(1),
    });
    cloud.inject(Fault::Throttled {
        verb: Some(Verb::Launch),
        times: Some(1),
    });
    let error = cloud.launch(&other).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Throttled);
    assert!(error.retry_after.is_some());
    let error = cloud.launch(&other).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Unauthorized);
    cloud.launch(&other).await.unwrap();
    assert_eq!(cloud.counters().launched, 2);
}

#[tokio::test(start_paused = true)]
async fn an_instance_may_never_register() {
    let cloud = cloud();
    let mut events = cloud.machine_events().unwrap();
    cloud.inject(Fault::NeverRegisters {
        launch: LaunchMatch::default(),
        times: Some(1),
    });
    let silent = cloud
        .launch(&request("a", &["m5.large"], &[ON_DEMAND]))
        .await
        .unwrap();
    let heard = cloud
        .launch(&request("b", &["m5.large"], &[ON_DEMAND]))
        .await
        .unwrap();
    let Machine::Booted(booted) = next(&mut events).await else {
        panic!("no boot");
    };
    assert_eq!(booted.instance.provider_id, heard.provider_id);
    cloud.0.clock.sleep(Duration::from_secs(3600)).await;
    assert!(events.try_recv().is_err());
    cloud.terminate(&silent.provider_id).await.unwrap();
    assert!(matches!(
        next(&mut events).await,
        Machine::Terminating { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn spot_machines_are_taken_back_after_a_notice() {
    let cloud = cloud();
    let mut events = cloud.machine_events().unwrap();
    let spot = cloud
        .launch(&request("a", &["m5.large"], &[SPOT]))
        .await
        .unwrap();
    cloud
        .launch(&request("b", &["m5.large"], &[ON_DEMAND]))
        .await
        .unwrap();
    for _ in 0..2 {
        assert!(matches!(next(&mut events).await, Machine::Booted(_)));
    }
    let set = cloud.0.clock.now();
    cloud.inject(Fault::SpotInterruption {
        offering: OfferingMatch::default(),
        after_seconds: 600,
        count: None,
    });
    let Machine::Interrupted {
        provider_id, at, ..
    } = next(&mut events).await
    else {
        panic!("no notice");
    };
    assert_eq!(provider_id, spot.provider_id);
    // Ten minutes until the notice, two more until the end.
    assert_eq!(at, set + jiff::SignedDuration::from_secs(720));
    assert!(matches!(
        next(&mut events).await,
        Machine::Terminating { .. }
    ));
    assert_eq!(cloud.0.clock.now(), at);
    assert!(matches!(
        next(&mut events).await,
        Machine::Terminated { .. }
    ));
    assert_eq!(cloud.instances().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_seed_decides_the_history() {
    async fn history(seed: u64) -> (Instance, Vec<Machine>) {
        let cloud = cloud_with(Config {
            seed,
            ..Default::default()
        });
        let mut events = cloud.machine_events().unwrap();
        let instance = cloud
            .launch(&request("a", &["m5.large"], &[SPOT]))
            .await
            .unwrap();
        let booted = next(&mut events).await;
        cloud.terminate(&instance.provider_id).await.unwrap();
        let rest = [next(&mut events).await, next(&mut events).await];
        (instance, [booted].into_iter().chain(rest).collect())
    }
    let seven = history(7).await;
    assert_eq!(seven, history(7).await);
    assert_ne!(seven, history(8).await);
}

#[tokio::test(start_paused = true)]
async fn selectors_find_subnets_groups_and_images() {
    let cloud = cloud();
    let resolved = cloud.resolve_class(&class(json!({}))).await.unwrap();
    assert!(resolved.problems.is_empty());
    let status = &resolved.status;
    let zones: BTreeSet<&str> = status.subnets.iter().map(|s| s.zone.as_str()).collect();
    assert_eq!((status.subnets.len(), zones.len()), (6, 6));
    assert_eq!(status.security_groups.len(), 1);
    assert_eq!(status.amis.len(), 5);
    assert!(status.instance_profile.is_some());

    let ids = class(json!({
        "subnetSelectorTerms": [{"id": "subnet-1"}, {"id": "subnet-2"}],
        "securityGroupSelectorTerms": [{"id": "sg-1"}],
        "amiSelectorTerms": [{"id": "ami-1"}],
        "amiFamily": "AL2023",
        "role": null,
        "instanceProfile": "mine",
    }));
    let resolved = cloud.resolve_class(&ids).await.unwrap().status;
    let zones: Vec<&str> = resolved.subnets.iter().map(|s| s.zone.as_str()).collect();
    assert_eq!(zones, ["us-east-1a", "us-east-1b"]);
    assert_eq!(resolved.security_groups[0].id, "sg-1");
    assert_eq!(resolved.amis[0].id, "ami-1");
    assert_eq!(resolved.instance_profile.as_deref(), Some("mine"));
    let launched = cloud
        .launch(&LaunchRequest {
            class: ids,
            ..request("a", &["m6g.large"], &[ON_DEMAND])
        })
        .await
        .unwrap();
    assert_eq!(launched.image, "ami-1");
}

#[tokio::test(start_paused = true)]
async fn an_alias_that_the_version_lacks_makes_the_class_unusable() {
    let al2 = class(json!({"amiSelectorTerms": [{"alias": "al2@latest"}]}));
    let on = |version: &str| {
        cloud_with(Config {
            kubernetes_version: version.to_owned(),
            ..Default::default()
        })
    };
    let old = on("1.32").resolve_class(&al2).await.unwrap();
    assert!(old.problems.is_empty());
    assert_eq!(old.status.amis.len(), 4);
    let cloud = on("1.33");
    let new = cloud.resolve_class(&al2).await.unwrap();
    assert_eq!(new.problems[0].0, condition::AMIS_READY);
    assert_eq!(new.problems[0].1, "UnsupportedAlias");
    let asked = LaunchRequest {
        class: al2,
        ..request("a", &["m5.large"], &[ON_DEMAND])
    };
    let error = cloud.launch(&asked).await.unwrap_err();
    assert_eq!(
        (error.class, error.code.as_str()),
        (ErrorClass::ClassNotReady, "UnsupportedAlias")
    );
    let empty = class(json!({"subnetSelectorTerms": []}));
    let error = cloud.instance_types(&empty).await.unwrap_err();
    assert_eq!(error.code, "SubnetsNotFound");
}

/// The GPU image serves GPU types, the plain one does not.
#[tokio::test(start_paused = true)]
async fn a_type_starts_with_the_image_made_for_it() {
    let cloud = cloud();
    let class = class(json!({}));
    let amis = cloud.resolve_class(&class).await.unwrap().status.amis;
    let mut images = Vec::new();
    for (token, name) in [
        ("a", "m5.large"),
        ("b", "m6g.large"),
        ("c", "g4dn.xlarge"),
        ("d", "inf2.xlarge"),
    ] {
        let instance = cloud
            .launch(&request(token, &[name], &[ON_DEMAND]))
            .await
            .unwrap();
        let image = amis.iter().find(|i| i.id == instance.image).unwrap();
        images.push(image.name.clone().unwrap());
    }
    let made_for = [
        "x86_64-standard",
        "arm64-standard",
        "x86_64-nvidia",
        "x86_64-neuron",
    ];
    for (image, part) in images.iter().zip(made_for) {
        assert!(image.contains(part), "{image} is not {part}");
    }
}
