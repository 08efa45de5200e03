//! The running product against the lab's API and a cloud that answers at once: from a pending pod to a claim, a node and back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tenon::{
    api::EC2NodeClass,
    clock::Clock,
    cloud::{
        CapacityType, Cloud, CloudError, ErrorClass, Instance, InstanceType, LaunchRequest,
        Offering, ResolvedClass,
    },
    config::Settings,
    controllers::{self, Parts, Product},
    lab::api::{DeleteOptions, Kind, Selectors, Server, WriteOptions, service},
    units::Resources,
};

use crate::support::{at, manifest};

/// One type, one offering; instances exist as soon as they are asked for.
#[derive(Default)]
struct Instant {
    instances: Mutex<BTreeMap<String, Instance>>,
}

fn amounts(cpu: i64, memory: i64) -> Resources {
    let mut r = Resources::default();
    for (name, amount) in [("cpu", cpu), ("memory", memory), ("pods", 20)] {
        r.set(name, amount);
    }
    r
}

fn instance_type() -> Arc<InstanceType> {
    let labels = [
        ("node.kubernetes.io/instance-type", "m.large"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("topology.kubernetes.io/zone", "z1"),
        ("karpenter.sh/capacity-type", "on-demand"),
    ];
    let labels: BTreeMap<String, String> = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let capacity = amounts(4_000, 8 << 30);
    Arc::new(InstanceType {
        name: "m.large".into(),
        requirements: tenon::api::requirement::Requirements::from_labels(&labels),
        allocatable: capacity.clone(),
        overhead: Resources::default(),
        capacity,
        offerings: vec![Offering::new("z1", CapacityType::OnDemand, 0.1, true)],
    })
}

impl Cloud for Instant {
    fn instance_types<'a>(
        &'a self,
        _: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Arc<Vec<Arc<InstanceType>>>, CloudError>> {
        Box::pin(async { Ok(Arc::new(vec![instance_type()])) })
    }

    fn resolve_class<'a>(
        &'a self,
        _: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<ResolvedClass, CloudError>> {
        Box::pin(async { Ok(ResolvedClass::default()) })
    }

    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<Instance, CloudError>> {
        let instance = Instance {
            provider_id: format!("aws:///z1/i-{}", request.claim),
            token: request.token.clone(),
            claim: request.claim.clone(),
            instance_type: "m.large".to_owned(),
            zone: "z1".to_owned(),
            capacity_type: CapacityType::OnDemand,
            image: "ami-1".to_owned(),
            price_per_hour: 0.1,
            launched: Timestamp::UNIX_EPOCH,
            terminating: false,
            labels: BTreeMap::from([(
                "node.kubernetes.io/instance-type".to_owned(),
                "m.large".to_owned(),
            )]),
            capacity: instance_type().capacity.clone(),
            allocatable: instance_type().allocatable.clone(),
        };
        self.instances
            .lock()
            .expect("no panic while held")
            .insert(instance.provider_id.clone(), instance.clone());
        Box::pin(async { Ok(instance) })
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Instance, CloudError>> {
        let found = self
            .instances
            .lock()
            .expect("no panic while held")
            .get(id)
            .cloned();
        Box::pin(async {
            found.ok_or_else(|| CloudError::new("get", ErrorClass::NotFound, "NotFound", ""))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>> {
        let all = self
            .instances
            .lock()
            .expect("no panic while held")
            .values()
            .cloned()
            .collect();
        Box::pin(async { Ok(all) })
    }

    fn terminate<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        let gone = self
            .instances
            .lock()
            .expect("no panic while held")
            .remove(id);
        Box::pin(async move {
            gone.map(drop)
                .ok_or_else(|| CloudError::new("terminate", ErrorClass::NotFound, "NotFound", ""))
        })
    }
}

struct World {
    server: Server,
    cloud: Arc<Instant>,
    product: Product,
}

const CLASS: &str = r#"
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: linux}
spec: {subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], amiSelectorTerms: [{alias: al2023@latest}], role: r}
"#;

const POOL: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: linux}}}
  disruption: {consolidateAfter: 30s}
"#;

fn pending(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }] },
    })
}

async fn world(settings: Settings) -> World {
    let clock = Clock::starting_at(at("2030-01-01T00:00:00Z"));
    let now = clock.clone();
    let server = Server::new(move || now.now(), 1);
    for yaml in [CLASS, POOL] {
        server
            .apply(manifest(yaml), &WriteOptions::default())
            .await
            .expect("applied");
    }
    let cloud = Arc::new(Instant::default());
    let client = Client::new(service(server.clone()), "default");
    let product = controllers::start(Parts {
        client,
        cloud: cloud.clone(),
        clock,
        settings,
        salt: 1,
    });
    World {
        server,
        cloud,
        product,
    }
}

impl World {
    async fn pod(&self, name: &str) {
        self.server
            .create(
                Kind::Pod,
                "default",
                pending(name),
                &WriteOptions::default(),
            )
            .await
            .expect("created");
        self.server
            .edit_status(Kind::Pod, "default", name, |status| {
                *status = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] });
            })
            .expect("status");
    }

    fn names(&self, kind: Kind) -> Vec<String> {
        let (_, all) = self.server.list(kind, None, &Selectors::default());
        all.iter()
            .map(|o| {
                o["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }

    fn events(&self) -> Vec<String> {
        let (_, all) = self.server.list(Kind::Event, None, &Selectors::default());
        all.iter()
            .map(|o| o["reason"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Joins a node for a claim, as a kubelet would.
    async fn join(&self, claim: &str) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("node-{claim}") },
            "spec": {
                "providerID": format!("aws:///z1/i-{claim}"),
                "taints": [{ "key": "karpenter.sh/unregistered", "effect": "NoExecute" }],
            },
        });
        self.server
            .create(Kind::Node, "", node, &WriteOptions::default())
            .await
            .expect("created");
        self.server
            .edit_status(Kind::Node, "", &format!("node-{claim}"), |status| {
                *status = json!({
                    "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "20" },
                    "capacity": { "cpu": "4", "memory": "8Gi", "pods": "20" },
                    "conditions": [{ "type": "Ready", "status": "True" }],
                });
            })
            .expect("status");
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn pods_get_a_node_and_an_empty_node_goes_away() {
    let w = world(Settings::default()).await;
    pass(2).await;
    for name in ["a", "b", "c"] {
        w.pod(name).await;
    }
    pass(2).await;
    let claims = w.names(Kind::NodeClaim);
    // Three pods of one CPU each fit the one type of four.
    assert_eq!(claims.len(), 1, "{claims:?}");
    w.join(&claims[0]).await;
    pass(2).await;
    let claim = w
        .server
        .get(Kind::NodeClaim, "", &claims[0])
        .expect("there");
    let status = |kind: &str| {
        let all = claim["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.iter()
            .find(|c| c["type"] == kind)
            .map(|c| c["status"].clone())
    };
    for kind in ["Launched", "Registered", "Initialized", "Ready"] {
        assert_eq!(status(kind), Some(json!("True")), "{kind}: {:#}", *claim);
    }
    let node = w
        .server
        .get(Kind::Node, "", &format!("node-{}", claims[0]))
        .expect("there");
    assert_eq!(
        node["metadata"]["labels"]["karpenter.sh/initialized"],
        "true"
    );
    assert_eq!(node["spec"]["taints"], json!([]));

    for name in ["a", "b", "c"] {
        w.server
            .delete(Kind::Pod, "default", name, &DeleteOptions::default())
            .await
            .expect("deleted");
    }
    pass(90).await;
    assert_eq!(w.names(Kind::NodeClaim), Vec::<String>::new());
    assert_eq!(w.names(Kind::Node), Vec::<String>::new());
    assert!(
        w.cloud
            .instances
            .lock()
            .expect("no panic while held")
            .is_empty()
    );
    let events = w.events();
    assert!(
        events.iter().any(|r| r == "Nominated")
            && events.iter().any(|r| r == "DisruptionTerminating"),
        "{events:?}"
    );
    w.product.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_joins_is_given_up_and_its_pool_waits_longer_each_time() {
    let w = world(Settings::default()).await;
    w.pod("a").await;
    pass(14 * 60).await;
    let first = w.names(Kind::NodeClaim);
    assert_eq!(first.len(), 1, "{first:?}");
    // Given up at 15 minutes; the pool is held for one minute.
    pass(80).await;
    assert_eq!(w.names(Kind::NodeClaim), Vec::<String>::new());
    assert_eq!(
        w.cloud.instances.lock().expect("no panic while held").len(),
        0
    );
    pass(60).await;
    let second = w.names(Kind::NodeClaim);
    assert_eq!(second.len(), 1);
    assert_ne!(first, second);
}

#[tokio::test(start_paused = true)]
async fn the_most_nodes_limit_holds() {
    let mut settings = Settings::default();
    settings.brakes.max_nodes = 2;
    let w = world(settings).await;
    for n in 0..20 {
        w.pod(&format!("p{n:02}")).await;
    }
    pass(30).await;
    // Twenty CPUs want five nodes of four.
    assert_eq!(w.names(Kind::NodeClaim).len(), 2);
    assert!(w.events().iter().any(|r| r == "FailedScheduling"));
}

#[tokio::test(start_paused = true)]
async fn advise_mode_writes_nothing() {
    let settings = Settings {
        mode: tenon::config::Mode::Advise,
        ..Settings::default()
    };
    let w = world(settings).await;
    w.pod("a").await;
    let before = w.server.dump();
    pass(600).await;
    assert_eq!(w.server.dump(), before);
    // It did decide: the pool and its class are judged in memory, and the pod was planned.
    assert!(
        w.product
            .stats
            .solves
            .load(std::sync::atomic::Ordering::Relaxed)
            > 0
    );
    assert!(
        w.product
            .snapshot
            .borrow()
            .pools
            .values()
            .all(|p| p.is_usable())
    );
    assert_eq!(
        w.cloud.instances.lock().expect("no panic while held").len(),
        0
    );
}
