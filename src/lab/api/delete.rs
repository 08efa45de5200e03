//! Deletion: preconditions, finalizers, graceful deletion of pods, garbage collection.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::admission::{Phase, Review};
use super::error::ApiError;
use super::kinds::Kind;
use super::object::{Key, Object, owner_uids, set_metadata, text};
use super::rules::is_finished;
use super::store::State;
use super::write::WriteOptions;
use super::{Server, rfc3339, watch};

/// Options of a delete.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// `gracePeriodSeconds`: only pods have one; without it the pod's own counts.
    pub grace_period_seconds: Option<i64>,
    /// Delete only the object with this UID.
    pub uid: Option<String>,
    /// Delete only this version.
    pub resource_version: Option<String>,
    /// Leave dependants be and take their reference to the object away.
    pub orphan: bool,
    /// Do everything but delete.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Deletion at once, as a kubelet does for a pod that has ended.
    pub fn now() -> Self {
        Self {
            grace_period_seconds: Some(0),
            ..Self::default()
        }
    }

    /// Options from a `DeleteOptions` body (meta.k8s.io/v1); null gives the defaults.
    pub fn from_value(body: &Value) -> Self {
        let precondition = |key: &str| {
            let given = body["preconditions"][key].as_str();
            given.map(str::to_owned)
        };
        Self {
            grace_period_seconds: body["gracePeriodSeconds"].as_i64(),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            orphan: body["propagationPolicy"] == "Orphan" || body["orphanDependents"] == true,
            dry_run: body["dryRun"].as_array().is_some_and(|d| !d.is_empty()),
        }
    }
}

/// What a delete led to.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Object),
    /// The object waits for its finalizers or for its grace period.
    Pending(Object),
}

impl Deleted {
    /// The object, gone or not.
    pub fn object(&self) -> &Object {
        match self {
            Deleted::Gone(object) | Deleted::Pending(object) => object,
        }
    }
}

impl Server {
    /// Deletes an object, or begins to.
    pub async fn delete(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let key = Key::new(namespace, name);
        let old = self
            .state()
            .get(kind, &key)
            .ok_or_else(|| ApiError::not_found(kind, name))?;
        let review = Review {
            kind,
            operation: "DELETE",
            object: None,
            old: Some(&old),
            options: &WriteOptions {
                dry_run: options.dry_run,
                ..WriteOptions::default()
            },
        };
        self.review(Phase::Validate, review, &mut Vec::new())
            .await?;
        let now = self.now();
        let mut state = self.state();
        let deleted = state.delete(kind, &key, options, now);
        self.settle(state, now);
        deleted
    }
}

impl State {
    pub(super) fn delete(
        &mut self,
        kind: Kind,
        key: &Key,
        options: &DeleteOptions,
        now: Timestamp,
    ) -> Result<Deleted, ApiError> {
        let old = self
            .get(kind, key)
            .ok_or_else(|| ApiError::not_found(kind, &key.name))?;
        check_preconditions(&old, options)?;
        if options.dry_run {
            return Ok(Deleted::Pending(old));
        }
        if options.orphan {
            self.orphan_dependants(&old);
        }
        let mut value = old.value().clone();
        mark(&old, &mut value, grace(&old, options), now);
        if kind == Kind::Namespace {
            return Ok(self.delete_namespace(&old, value, now));
        }
        if is_finished(&value) {
            let gone = self.remove(kind, key);
            return gone
                .map(Deleted::Gone)
                .ok_or_else(|| ApiError::not_found(kind, &key.name));
        }
        if value == *old.value() {
            return Ok(Deleted::Pending(old));
        }
        Ok(Deleted::Pending(self.put(kind, value)))
    }

    /// A namespace goes when all that is in it has gone.
    fn delete_namespace(&mut self, old: &Object, mut value: Value, now: Timestamp) -> Deleted {
        let name = old.name().to_owned();
        let mut pending = old.clone();
        if !old.is_deleting() {
            value["status"]["phase"] = json!("Terminating");
            pending = self.put(Kind::Namespace, value);
        }
        for &kind in Kind::ALL.iter().filter(|k| k.info().namespaced) {
            let keys: Vec<Key> = self.objects(kind, Some(&name)).map(watch::key).collect();
            for key in keys {
                let _ = self.delete(kind, &key, &DeleteOptions::default(), now);
            }
        }
        match self.finish_namespace(&name) {
            Some(gone) => Deleted::Gone(gone),
            None => Deleted::Pending(pending),
        }
    }

    fn finish_namespace(&mut self, name: &str) -> Option<Object> {
        let key = Key::new("", name);
        let namespace = self.get(Kind::Namespace, &key)?;
        let namespaced = Kind::ALL.iter().filter(|k| k.info().namespaced);
        let empty = |state: &Self, kind: Kind| state.objects(kind, Some(name)).next().is_none();
        let done = namespace.is_deleting() && namespaced.copied().all(|kind| empty(self, kind));
        if done {
            self.remove(Kind::Namespace, &key)
        } else {
            None
        }
    }

    /// Deletes what only owners that are gone owned, and finishes namespaces that have become empty.
    pub(super) fn collect_garbage(&mut self, now: Timestamp) {
        while let Some((kind, key)) = self.garbage.pop_front() {
            let Some(object) = self.get(kind, &key) else {
                continue;
            };
            let (live, gone): (Vec<String>, Vec<String>) = owner_uids(&object)
                .map(str::to_owned)
                .partition(|uid| self.is_live(uid));
            if gone.is_empty() {
                continue;
            }
            if live.is_empty() {
                let options = DeleteOptions {
                    uid: Some(object.uid().to_owned()),
                    ..DeleteOptions::default()
                };
                // Nothing to do when it is not there any more.
                let _ = self.delete(kind, &key, &options, now);
            } else {
                self.put_without_owners(&object, &gone);
            }
        }
        let terminating: Vec<String> = self
            .objects(Kind::Namespace, None)
            .filter(|ns| ns.is_deleting())
            .map(|ns| ns.name().to_owned())
            .collect();
        for name in terminating {
            self.finish_namespace(&name);
        }
    }

    fn orphan_dependants(&mut self, owner: &Object) {
        for &kind in Kind::ALL {
            for dependant in self.owned_by(kind, owner.uid()) {
                self.put_without_owners(&dependant, &[owner.uid().to_owned()]);
            }
        }
    }

    fn put_without_owners(&mut self, object: &Object, uids: &[String]) {
        let mut value = object.value().clone();
        if let Some(owners) = value["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|o| !uids.iter().any(|uid| o["uid"] == **uid));
            if owners.is_empty() {
                set_metadata(&mut value, "ownerReferences", None);
            }
        }
        self.put(object.kind(), value);
    }
}

pub(super) fn check_preconditions(old: &Object, options: &DeleteOptions) -> Result<(), ApiError> {
    let version = text(old, &["metadata", "resourceVersion"]);
    for (what, wanted, is) in [
        ("UID", &options.uid, old.uid()),
        ("ResourceVersion", &options.resource_version, version),
    ] {
        if let Some(wanted) = wanted
            && wanted != is
        {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {is}"
            );
            return Err(ApiError::conflict(old.kind(), old.name(), why));
        }
    }
    Ok(())
}

/// The grace period in seconds: zero for all but pods that run on a node.
fn grace(old: &Object, options: &DeleteOptions) -> i64 {
    let phase = text(old, &["status", "phase"]);
    if old.kind() != Kind::Pod
        || text(old, &["spec", "nodeName"]).is_empty()
        || matches!(phase, "Succeeded" | "Failed")
    {
        return 0;
    }
    let own = || old["spec"]["terminationGracePeriodSeconds"].as_i64();
    let seconds = options.grace_period_seconds.or_else(own).unwrap_or(30);
    if seconds < 0 { 1 } else { seconds }
}

/// Marks an object as deleting. A second delete can only shorten the grace period.
fn mark(old: &Object, value: &mut Value, grace: i64, now: Timestamp) {
    if old.is_deleting() {
        let before = old["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(0);
        if grace >= before {
            return;
        }
    } else if let Some(generation) = old["metadata"]["generation"].as_i64() {
        set_metadata(value, "generation", Some(json!(generation + 1)));
    }
    let at = now
        .checked_add(SignedDuration::from_secs(grace))
        .unwrap_or(now);
    set_metadata(value, "deletionTimestamp", Some(json!(rfc3339(at))));
    set_metadata(value, "deletionGracePeriodSeconds", Some(json!(grace)));
}
