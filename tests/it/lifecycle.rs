//! What claims, nodes and pods need next, decided on states built from manifests (`spec/disruption-and-lifecycle.md` 1 to 3).

use tenon::{cluster::Snapshot, disruption, lifecycle, plan::Plan};

use crate::support::{at, cluster};

const NOW: &str = "2030-01-01T12:00:00Z";

const CLASS: &str = r#"
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: linux, uid: class-1, resourceVersion: "1"}
spec: {subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], amiSelectorTerms: [{alias: al2023@latest}], role: r}
status: {conditions: [{type: Ready, status: "True", reason: Ready, message: "", lastTransitionTime: "2030-01-01T10:00:00Z"}]}
"#;

const POOL: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general, uid: pool-1, resourceVersion: "1"}
spec:
  template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: linux}}}
  disruption: {consolidateAfter: 30s, budgets: [{nodes: "1"}]}
"#;

/// A claim with the conditions that are True since `since`.
fn claim(name: &str, extra: &str, conditions: &[(&str, &str)], created: &str) -> String {
    let conditions: Vec<String> = conditions
        .iter()
        .map(|(kind, since)| format!(r#"{{type: {kind}, status: "True", reason: {kind}, message: "", lastTransitionTime: "{since}"}}"#))
        .collect();
    format!(
        r#"
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: {name}
  uid: uid-{name}
  resourceVersion: "1"
  creationTimestamp: "{created}"
  finalizers: [karpenter.sh/termination]
  labels: {{karpenter.sh/nodepool: general}}
{extra}
spec: {{requirements: [], nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: linux}}, resources: {{requests: {{cpu: "1"}}}}}}
status: {{providerID: "aws:///z/i-{name}", conditions: [{}]}}
"#,
        conditions.join(", ")
    )
}

fn node(name: &str, extra: &str, labels: &str, taints: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Node
metadata:
  name: node-{name}
  uid: node-uid-{name}
  resourceVersion: "1"
  creationTimestamp: "2030-01-01T11:00:00Z"
  labels: {{{labels}}}
{extra}
spec: {{providerID: "aws:///z/i-{name}", taints: [{taints}]}}
status:
  allocatable: {{cpu: "4", memory: 8Gi, pods: "20"}}
  conditions: [{{type: Ready, status: "True"}}]
"#
    )
}

fn pod(name: &str, node: &str, extra: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: default
  uid: pod-uid-{name}
  resourceVersion: "1"
{extra}
spec: {{nodeName: {node}, terminationGracePeriodSeconds: 30, containers: [{{name: c, resources: {{requests: {{cpu: "1"}}}}}}]}}
status: {{phase: Running}}
"#
    )
}

const UP: &str = r#"karpenter.sh/nodepool: general, karpenter.sh/registered: "true", karpenter.sh/initialized: "true""#;

const ALL: [(&str, &str); 3] = [
    ("Launched", "2030-01-01T11:00:00Z"),
    ("Registered", "2030-01-01T11:01:00Z"),
    ("Initialized", "2030-01-01T11:02:00Z"),
];

/// The verbs and targets of a plan, in order, statuses of pools left out.
fn steps(plan: &Plan) -> Vec<String> {
    let steps = plan
        .steps
        .iter()
        .filter(|s| s.action.verb() != "pool_status");
    steps
        .map(|s| format!("{} {}", s.action.verb(), s.action.target()))
        .collect()
}

fn decided(objects: &[String]) -> (Vec<String>, Plan) {
    let plan = lifecycle::decide(&state(objects), at(NOW));
    (steps(&plan), plan)
}

fn state(objects: &[String]) -> Snapshot {
    let all: Vec<&str> = [CLASS, POOL]
        .into_iter()
        .chain(objects.iter().map(String::as_str))
        .collect();
    cluster(&all, at("2030-01-01T11:02:00Z"))
}

#[test]
fn a_claim_is_launched_and_given_up_after_five_minutes() {
    let young = claim("a", "", &[], "2030-01-01T11:55:01Z");
    let old = claim("a", "", &[], "2030-01-01T11:55:00Z");
    let (steps, plan) = decided(&[young]);
    assert_eq!(steps, ["launch nodeclaim/a"]);
    assert_eq!(plan.wake_at, Some(at("2030-01-01T12:00:01Z")));
    assert_eq!(decided(&[old]).0, ["delete_claim nodeclaim/a"]);
}

#[test]
fn a_node_that_never_joins_costs_fifteen_minutes() {
    let launched = [("Launched", "2030-01-01T11:45:30Z")];
    let waiting = claim("a", "", &launched, "2030-01-01T11:45:01Z");
    assert_eq!(decided(&[waiting]).0, ["claim_status nodeclaim/a"]);
    let late = claim("a", "", &launched, "2030-01-01T11:45:00Z");
    assert_eq!(decided(&[late]).0, ["delete_claim nodeclaim/a"]);
}

#[test]
fn a_node_that_joined_is_registered_then_initialized_when_nothing_is_missing() {
    let launched = [("Launched", "2030-01-01T11:55:00Z")];
    let joined = [
        claim("a", "", &launched, "2030-01-01T11:55:00Z"),
        node(
            "a",
            "",
            "",
            "{key: karpenter.sh/unregistered, effect: NoExecute}",
        ),
    ];
    assert_eq!(decided(&joined).0, ["register nodeclaim/a"]);

    let registered = [
        ("Launched", "2030-01-01T11:55:00Z"),
        ("Registered", "2030-01-01T11:56:00Z"),
    ];
    let claim = claim("a", "", &registered, "2030-01-01T11:55:00Z");
    let ready = node("a", "", r#"karpenter.sh/registered: "true""#, "");
    assert_eq!(
        decided(&[claim.clone(), ready]).0,
        ["initialize nodeclaim/a"]
    );
    let tainted = node(
        "a",
        "",
        r#"karpenter.sh/registered: "true""#,
        "{key: node.kubernetes.io/not-ready, effect: NoSchedule}",
    );
    assert_eq!(decided(&[claim, tainted]).0, ["claim_status nodeclaim/a"]);
}

const DELETED: &str = "  deletionTimestamp: \"2030-01-01T11:59:00Z\"\n";
const DELETED_NODE: &str =
    "  deletionTimestamp: \"2030-01-01T11:59:00Z\"\n  finalizers: [karpenter.sh/termination]\n";
const LEAVING: &str = "{key: karpenter.sh/disrupted, effect: NoSchedule}";

#[test]
fn a_deleted_claim_goes_through_its_node_and_an_unregistered_one_does_not() {
    let claim_up = claim("a", DELETED, &ALL, "2030-01-01T11:00:00Z");
    assert_eq!(
        decided(&[claim_up, node("a", "", UP, "")]).0,
        ["delete_node node/node-a"]
    );
    let launched = [("Launched", "2030-01-01T11:55:00Z")];
    let unregistered = claim("a", DELETED, &launched, "2030-01-01T11:55:00Z");
    assert_eq!(decided(&[unregistered]).0, ["terminate nodeclaim/a"]);
}

#[test]
fn a_drain_taints_first_and_evicts_workloads_before_daemons_before_critical_pods() {
    let daemon = "  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: d}]\n";
    let base = [claim("a", DELETED, &ALL, "2030-01-01T11:00:00Z")];
    let with = |node: String, pods: &[String]| -> Vec<String> {
        let objects: Vec<String> = base
            .iter()
            .cloned()
            .chain([node])
            .chain(pods.iter().cloned())
            .collect();
        decided(&objects)
            .0
            .into_iter()
            .filter(|s| !s.starts_with("claim_status"))
            .collect()
    };
    let pods = [pod("web", "node-a", ""), pod("agent", "node-a", daemon)];
    let fresh = node("a", DELETED_NODE, UP, "");
    assert_eq!(
        with(fresh, &pods),
        ["taint_node node/node-a", "evict pod/default/web"]
    );
    let tainted = node("a", DELETED_NODE, UP, LEAVING);
    assert_eq!(
        with(tainted.clone(), &pods[1..]),
        ["evict pod/default/agent"]
    );
    let kept = pod(
        "kept",
        "node-a",
        "  annotations: {karpenter.sh/do-not-disrupt: \"true\"}\n",
    );
    assert_eq!(with(tainted, &[kept]), Vec::<String>::new());
}

#[test]
fn a_deadline_overrides_budgets_and_protection_in_time_for_the_pods_own_grace() {
    // 30 s of grace before 12:00:29 begin at 11:59:59, which is past; before 12:00:31 they begin at 12:00:01, which is not.
    let claim_until = |deadline: &str| {
        let extra = format!(
            "{DELETED}  annotations: {{karpenter.sh/nodeclaim-termination-timestamp: \"{deadline}\"}}\n"
        );
        claim("a", &extra, &ALL, "2030-01-01T11:00:00Z")
    };
    let kept = pod(
        "kept",
        "node-a",
        "  annotations: {karpenter.sh/do-not-disrupt: \"true\"}\n",
    );
    let tainted = node("a", DELETED_NODE, UP, LEAVING);
    let (now_due, _) = decided(&[
        claim_until("2030-01-01T12:00:29Z"),
        tainted.clone(),
        kept.clone(),
    ]);
    assert!(
        now_due.contains(&"delete_pod pod/default/kept".to_owned()),
        "{now_due:?}"
    );
    let (not_yet, plan) = decided(&[claim_until("2030-01-01T12:00:31Z"), tainted, kept]);
    assert!(
        !not_yet.iter().any(|s| s.starts_with("delete_pod")),
        "{not_yet:?}"
    );
    assert!(
        plan.wake_at
            .is_some_and(|w| w <= at("2030-01-01T12:00:01.001Z")),
        "{:?}",
        plan.wake_at
    );
}

#[test]
fn the_instance_goes_only_after_the_shortest_drain() {
    let drained = |since: &str| {
        let mut conditions = ALL.to_vec();
        conditions.push(("Drained", since));
        claim("a", DELETED, &conditions, "2030-01-01T11:00:00Z")
    };
    let tainted = node("a", DELETED_NODE, UP, LEAVING);
    assert_eq!(
        decided(&[drained("2030-01-01T11:59:50Z"), tainted.clone()]).0,
        ["terminate nodeclaim/a"]
    );
    let draining = claim("a", DELETED, &ALL, "2030-01-01T11:00:00Z");
    assert_eq!(
        decided(&[draining, tainted]).0,
        ["claim_status nodeclaim/a"]
    );
}

#[test]
fn empty_nodes_go_after_the_quiet_time_within_the_budget() {
    let objects = [
        claim("a", "", &ALL, "2030-01-01T11:00:00Z"),
        node("a", "", UP, ""),
        claim("b", "", &ALL, "2030-01-01T11:00:00Z"),
        node("b", "", UP, ""),
        claim("c", "", &ALL, "2030-01-01T11:00:00Z"),
        node("c", "", UP, ""),
        pod("web", "node-c", ""),
    ];
    let s = state(&objects);
    // Initialized at 11:02:00, quiet time 30 s, budget of one node.
    let early = disruption::decide(&s, at("2030-01-01T11:02:29Z"));
    assert_eq!(steps(&early), Vec::<String>::new());
    assert_eq!(early.wake_at, Some(at("2030-01-01T11:02:30Z")));
    let due = disruption::decide(&s, at("2030-01-01T11:02:30Z"));
    assert_eq!(steps(&due), ["delete_claim nodeclaim/a"]);
}

#[test]
fn nothing_is_decided_before_every_kind_was_listed() {
    let mut unsynced = state(&[claim("a", "", &[], "2030-01-01T11:00:00Z")]);
    unsynced.synced = false;
    assert!(lifecycle::decide(&unsynced, at(NOW)).steps.is_empty());
    assert!(disruption::decide(&unsynced, at(NOW)).steps.is_empty());
}
