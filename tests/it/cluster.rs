//! The cluster state: what events do to it, in whatever order they come.

use proptest::prelude::*;
use serde_json::{Value, json};
use tenon::cluster::{Event, Nomination, PodKey, Snapshot, State};

use crate::support::{at, event};

fn pod(version: u64, node: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "namespace": "shop", "uid": "pod-1", "resourceVersion": version.to_string() },
        "spec": { "containers": [], "nodeName": node },
    })
}

fn claim(version: u64, uid: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": { "name": "general-x", "uid": uid, "resourceVersion": version.to_string() },
        "spec": { "requirements": [], "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "linux" } },
    })
}

fn node(version: u64, provider_id: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "n1", "uid": "node-1", "resourceVersion": version.to_string() },
        "spec": { "providerID": provider_id },
    })
}

fn apply(state: &mut State, what: Event) -> bool {
    state.apply(what, at("2030-01-01T00:00:00Z"))
}

fn key() -> PodKey {
    PodKey::new("shop", "web")
}

fn bound_to(s: &Snapshot) -> Vec<String> {
    s.pods_by_node
        .iter()
        .flat_map(|(n, pods)| pods.iter().map(move |p| format!("{p} on {n}")))
        .collect()
}

#[test]
fn an_older_version_after_a_newer_one_changes_nothing() {
    let mut state = State::default();
    assert!(apply(&mut state, event(pod(7, Some("n1")))));
    let revision = state.snapshot().revision;
    assert!(!apply(&mut state, event(pod(6, None))));
    assert!(!apply(&mut state, event(pod(7, Some("n1")))));
    assert_eq!(state.snapshot().revision, revision);
    assert_eq!(bound_to(&state.snapshot()), ["shop/web on n1"]);
}

#[test]
fn the_late_answer_to_a_write_does_not_bring_a_deleted_object_back() {
    let mut state = State::default();
    apply(&mut state, event(claim(1, "uid-1")));
    assert!(apply(&mut state, Event::ClaimGone("general-x".to_owned())));
    assert!(!apply(&mut state, event(claim(2, "uid-1"))));
    assert!(state.snapshot().claims.is_empty());
    // Another object by the same name is another object.
    assert!(apply(&mut state, event(claim(3, "uid-2"))));
    assert_eq!(state.snapshot().claims.len(), 1);
}

#[test]
fn a_place_is_kept_until_the_pod_is_bound_or_the_claim_is_gone() {
    let nominate = || {
        let mut state = State::default();
        apply(&mut state, event(pod(1, None)));
        apply(&mut state, event(claim(1, "uid-1")));
        let place = Nomination::Claim("general-x".into());
        apply(
            &mut state,
            Event::Nominated(std::sync::Arc::new(vec![(key(), place)])),
        );
        assert_eq!(state.snapshot().nominations.len(), 1);
        state
    };
    let mut bound = nominate();
    apply(&mut bound, event(pod(2, Some("n1"))));
    assert!(bound.snapshot().nominations.is_empty());
    let mut orphaned = nominate();
    apply(&mut orphaned, Event::ClaimGone("general-x".to_owned()));
    assert!(orphaned.snapshot().nominations.is_empty());
    let mut changed = nominate();
    apply(&mut changed, event(pod(2, None)));
    assert_eq!(changed.snapshot().nominations.len(), 1);
}

#[test]
fn a_list_forgets_what_is_not_in_it_and_completes_the_picture() {
    let mut state = State::default();
    apply(&mut state, event(pod(1, None)));
    for resource in tenon::cluster::WATCHED {
        assert!(!state.snapshot().synced);
        apply(
            &mut state,
            Event::Listed {
                resource,
                present: Vec::new(),
            },
        );
    }
    assert!(state.snapshot().synced);
    assert!(state.snapshot().pods.is_empty() && state.snapshot().unbound.is_empty());
}

#[test]
fn a_node_is_found_by_the_provider_id_it_has_now() {
    let mut state = State::default();
    apply(&mut state, event(node(1, "")));
    assert!(state.snapshot().nodes_by_provider_id.is_empty());
    apply(&mut state, event(node(2, "aws:///z/i-1")));
    apply(&mut state, event(node(3, "aws:///z/i-2")));
    let ids: Vec<String> = state
        .snapshot()
        .nodes_by_provider_id
        .keys()
        .cloned()
        .collect();
    assert_eq!(ids, ["aws:///z/i-2"]);
    apply(&mut state, Event::NodeGone("n1".to_owned()));
    assert!(state.snapshot().nodes_by_provider_id.is_empty());
}

#[test]
fn a_workload_pod_that_comes_or_goes_is_a_pod_event_and_a_daemon_is_not() {
    let mut state = State::default();
    let owned = |version: u64| {
        let mut object = pod(version, Some("n1"));
        object["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d" }]);
        object
    };
    state.apply(event(owned(1)), at("2030-01-01T00:00:01Z"));
    assert!(state.snapshot().pod_events.is_empty());
    let mut plain = pod(2, Some("n1"));
    plain["metadata"]["uid"] = json!("pod-2");
    state.apply(event(plain), at("2030-01-01T00:00:02Z"));
    let heard = |state: &State| {
        state
            .snapshot()
            .pod_events
            .values()
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!(heard(&state), [at("2030-01-01T00:00:02Z")]);
    state.apply(Event::PodGone(key()), at("2030-01-01T00:00:03Z"));
    assert_eq!(heard(&state), [at("2030-01-01T00:00:03Z")]);
}

proptest! {
    #[test]
    fn the_newest_version_wins_in_any_order(versions in proptest::collection::vec(1_u64..40, 1..30)) {
        let node_of = |version: u64| (version % 3 != 0).then(|| format!("n{}", version % 5));
        let mut state = State::default();
        for version in &versions {
            apply(&mut state, event(pod(*version, node_of(*version).as_deref())));
        }
        let newest = versions.iter().copied().max().expect("at least one");
        let s = state.snapshot();
        let want: Vec<String> = node_of(newest).map(|n| format!("shop/web on {n}")).into_iter().collect();
        prop_assert_eq!(bound_to(&s), want.clone());
        prop_assert_eq!(s.unbound.len(), usize::from(want.is_empty()));
    }
}
