//! Writes to NodeClaims, and the two cloud calls that cost money or end machines.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::{ActuateError, Actuator, Done, pods::only};
use crate::{
    api::{
        Condition, NodeClaim,
        conditions::{self, ConditionStatus},
        names::{annotation, condition, finalizer, reason},
    },
    cloud::{CloudError, ErrorClass, Instance, LaunchRequest},
    cluster::{Claim, Event, Hold, Nomination, PodKey, Snapshot},
    lifecycle::claim::{DEPENDENTS, generation},
    plan::{LaunchOutcome, Notice, Target, brakes},
};

/// How often the cloud is asked whether an instance is gone (upstream's constant).
const TERMINATION_POLL: Duration = Duration::from_secs(5);

/// Longest message kept on a condition (upstream's constant).
const LONGEST_MESSAGE: usize = 1_024;

impl Actuator {
    pub(super) fn claim(&self, name: &str) -> Result<Arc<Claim>, ActuateError> {
        let snapshot = self.writer.snapshot();
        snapshot
            .claims
            .get(name)
            .cloned()
            .ok_or_else(|| ActuateError::Unknown(format!("nodeclaim {name}")))
    }

    pub(super) fn conditions(&self, claim: &Claim) -> Vec<Condition> {
        claim
            .object
            .status
            .as_ref()
            .map(|s| s.conditions.clone())
            .unwrap_or_default()
    }

    /// Patches a claim and waits until the cluster state holds the answer.
    async fn patch_claim(
        &self,
        doing: &'static str,
        name: &str,
        patch: &Value,
    ) -> Result<(), ActuateError> {
        let claim: NodeClaim = self.merge(doing, &self.claims(), name, patch).await?;
        self.writer.put(vec![Event::Claim(Box::new(claim))]).await;
        Ok(())
    }

    pub(super) async fn write_claim_status(
        &self,
        claim: &Claim,
        status: Value,
    ) -> Result<(), ActuateError> {
        let patch = json!({ "metadata": { "uid": claim.uid }, "status": status });
        let written: NodeClaim = self
            .merge_status(
                "writing a claim's status",
                &self.claims(),
                &claim.name,
                &patch,
            )
            .await?;
        self.writer.put(vec![Event::Claim(Box::new(written))]).await;
        Ok(())
    }

    pub(super) async fn create_claim(
        &self,
        claim: &NodeClaim,
        pods: &[PodKey],
    ) -> Result<Done, ActuateError> {
        let name = claim.metadata.name.clone().unwrap_or_default();
        let created = match self
            .kube(
                "creating a claim",
                self.claims().create(&PostParams::default(), claim),
            )
            .await
        {
            // Our name is there: an earlier try got through although its answer did not.
            Err(error) if error.is_conflict() => {
                self.kube("reading a claim", self.claims().get(&name))
                    .await?
            }
            answer => answer?,
        };
        let place = Nomination::Claim(name.as_str().into());
        let nominated = Arc::new(pods.iter().map(|p| (p.clone(), place.clone())).collect());
        self.writer
            .put(vec![
                Event::Claim(Box::new(created)),
                Event::Nominated(nominated),
            ])
            .await;
        Ok(Done::Finished)
    }

    pub(super) async fn launch(&self, name: &str) -> Result<Done, ActuateError> {
        let claim = self.claim(name)?;
        let snapshot = self.writer.snapshot();
        let class = &claim.object.spec.node_class_ref.name;
        let class = snapshot
            .classes
            .get(class.as_str())
            .ok_or_else(|| ActuateError::Unknown(format!("node class {class}")))?;
        let request = LaunchRequest {
            token: claim.uid.clone(),
            claim: claim.name.to_string(),
            pool: claim.pool.to_string(),
            class: class.object.clone(),
            requirements: claim.requirements.clone(),
            requests: claim.requests.clone(),
            labels: claim.labels.clone(),
            taints: claim
                .taints
                .iter()
                .chain(&claim.startup_taints)
                .cloned()
                .collect(),
        };
        match self
            .cloud("launching an instance", self.cloud.launch(&request))
            .await
        {
            Ok(instance) => self.record_launch(&claim, &instance).await,
            Err(error) if error.is_capacity() || error.class == ErrorClass::ClassNotReady => {
                self.give_up_launch(&claim, &snapshot, &error).await
            }
            Err(error) => {
                self.record_launch_failure(&claim, &error).await?;
                Err(error.into())
            }
        }
    }

    /// Labels first, status last: `Launched` is only True when everything else is there, and until then the launch is repeated with
    /// the same token.
    async fn record_launch(
        &self,
        claim: &Claim,
        instance: &Instance,
    ) -> Result<Done, ActuateError> {
        let mut labels = instance.labels.clone();
        labels.extend(claim.labels.clone());
        self.patch_claim(
            "labelling a claim",
            &claim.name,
            &json!({ "metadata": { "labels": labels } }),
        )
        .await?;
        let now = self.clock.now();
        let mut conditions = self.conditions(claim);
        conditions::set_true(&mut conditions, condition::LAUNCHED, now, generation(claim));
        conditions::await_dependents(
            &mut conditions,
            &DEPENDENTS,
            claim.created,
            generation(claim),
        );
        conditions::ready(&mut conditions, &DEPENDENTS, now, generation(claim));
        let status = json!({
            "providerID": instance.provider_id,
            "imageID": instance.image,
            "capacity": instance.capacity.to_quantities(),
            "allocatable": instance.allocatable.to_quantities(),
            "conditions": conditions,
        });
        self.write_claim_status(claim, status).await?;
        tracing::info!(
            NodeClaim = &*claim.name,
            "provider-id" = instance.provider_id,
            "instance-type" = instance.instance_type,
            zone = instance.zone,
            "capacity-type" = instance.capacity_type.as_str(),
            "price-per-hour" = instance.price_per_hour,
            "launched nodeclaim"
        );
        Ok(Done::Finished)
    }

    /// No capacity for anything that the claim allows: it goes, and its pods are planned again without what is sold out.
    async fn give_up_launch(
        &self,
        claim: &Claim,
        snapshot: &Snapshot,
        error: &CloudError,
    ) -> Result<Done, ActuateError> {
        let reason = if error.is_capacity() {
            reason::INSUFFICIENT_CAPACITY
        } else {
            reason::NODE_CLASS_NOT_READY
        };
        let text = format!(
            "NodeClaim {} was not launched: {}: {}",
            claim.name, error.code, error.message
        );
        tracing::error!(
            NodeClaim = &*claim.name,
            code = error.code,
            error = error.message,
            "launch failed, deleting nodeclaim"
        );
        let place = Nomination::Claim(claim.name.clone());
        let pods = snapshot
            .nominations
            .iter()
            .filter(|(_, p)| **p == place)
            .map(|(k, _)| Target::Pod(k.clone()));
        for about in std::iter::once(Target::Claim(claim.name.clone())).chain(pods) {
            self.teller.tell(Notice {
                about,
                reason,
                warning: true,
                message: text.clone(),
            });
        }
        self.delete_claim(&claim.name, &claim.uid, None, None).await
    }

    async fn record_launch_failure(
        &self,
        claim: &Claim,
        error: &CloudError,
    ) -> Result<(), ActuateError> {
        let mut conditions = self.conditions(claim);
        let now = self.clock.now();
        let mut message = error.message.clone();
        while message.len() > LONGEST_MESSAGE {
            message.pop();
        }
        let kind = condition::LAUNCHED;
        let reason = if is_reason(&error.code) {
            error.code.as_str()
        } else {
            "LaunchFailed"
        };
        tracing::warn!(
            NodeClaim = &*claim.name,
            code = error.code,
            error = error.message,
            "launch failed"
        );
        if conditions::set(
            &mut conditions,
            kind,
            ConditionStatus::Unknown,
            reason,
            &message,
            now,
            generation(claim),
        ) {
            conditions::ready(&mut conditions, &DEPENDENTS, now, generation(claim));
            self.write_claim_status(claim, json!({ "conditions": conditions }))
                .await?;
        }
        Ok(())
    }

    pub(super) async fn delete_claim(
        &self,
        name: &str,
        uid: &str,
        disruption: Option<&'static str>,
        outcome: Option<LaunchOutcome>,
    ) -> Result<Done, ActuateError> {
        if let Some(reason) = disruption {
            let claim = self.claim(name)?;
            // From here on the extender keeps pods off the node and the solver counts its capacity as gone.
            self.mark_leaving(&claim, true).await;
            if let Err(error) = self.record_disruption(&claim, reason).await {
                self.mark_leaving(&claim, false).await;
                return Err(error);
            }
        }
        if outcome == Some(LaunchOutcome::Failed) {
            self.pool_failed(&self.claim(name)?.pool).await;
        }
        let deleted = self
            .kube("deleting a claim", self.claims().delete(name, &only(uid)))
            .await;
        let event = match deleted {
            Ok(answer) => answer.left().map_or_else(
                || Event::ClaimGone(name.to_owned()),
                |c| Event::Claim(Box::new(c)),
            ),
            Err(error) if error.is_gone() => Event::ClaimGone(name.to_owned()),
            Err(error) => {
                if disruption.is_some() {
                    self.mark_leaving(&*self.claim(name)?, false).await;
                }
                return Err(error);
            }
        };
        self.writer.put(vec![event]).await;
        Ok(Done::Finished)
    }

    async fn mark_leaving(&self, claim: &Claim, leaving: bool) {
        let provider_id = claim.provider_id.clone();
        self.writer
            .put(vec![Event::Leaving {
                provider_id,
                leaving,
            }])
            .await;
    }

    async fn record_disruption(
        &self,
        claim: &Claim,
        reason: &'static str,
    ) -> Result<(), ActuateError> {
        let mut conditions = self.conditions(claim);
        let (now, kind, status) = (
            self.clock.now(),
            condition::DISRUPTION_REASON,
            ConditionStatus::True,
        );
        if conditions::set(
            &mut conditions,
            kind,
            status,
            reason,
            reason,
            now,
            generation(claim),
        ) {
            self.write_claim_status(claim, json!({ "conditions": conditions }))
                .await?;
        }
        tracing::info!(NodeClaim = &*claim.name, reason, "disrupting node(s)");
        Ok(())
    }

    /// A launch or a registration of the pool timed out: hold the pool back, longer with each failure in a row.
    async fn pool_failed(&self, pool: &str) {
        let snapshot = self.writer.snapshot();
        let failures = snapshot.held_pools.get(pool).map_or(0, |h| h.failures) + 1;
        let until = brakes::hold_until(failures, self.clock.now());
        tracing::warn!(NodePool = pool, failures, %until, "pool is held back: its node did not come up");
        let hold = Some(Hold { failures, until });
        self.writer
            .put(vec![Event::PoolHeld {
                pool: pool.to_owned(),
                hold,
            }])
            .await;
    }

    pub(super) async fn pool_recovered(&self, pool: &str) {
        if self.writer.snapshot().held_pools.contains_key(pool) {
            self.writer
                .put(vec![Event::PoolHeld {
                    pool: pool.to_owned(),
                    hold: None,
                }])
                .await;
        }
    }

    pub(super) async fn hold_claim(&self, name: &str) -> Result<Done, ActuateError> {
        let claim = self.claim(name)?;
        let mut finalizers = claim.object.metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(finalizer::TERMINATION.to_owned());
        let version = &claim.object.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
        self.patch_claim("adding the finalizer to a claim", name, &patch)
            .await?;
        Ok(Done::Finished)
    }

    pub(super) async fn set_deadline(
        &self,
        name: &str,
        at: Timestamp,
    ) -> Result<Done, ActuateError> {
        let claim = self.claim(name)?;
        let version = &claim.object.metadata.resource_version;
        let annotations = json!({ annotation::TERMINATION_TIMESTAMP: at.to_string() });
        let patch =
            json!({ "metadata": { "resourceVersion": version, "annotations": annotations } });
        self.patch_claim("writing a termination deadline", name, &patch)
            .await?;
        tracing::info!(NodeClaim = name, %at, "annotated nodeclaim");
        Ok(Done::Finished)
    }

    pub(super) async fn claim_status(
        &self,
        name: &str,
        conditions: &[Condition],
        last_pod_event: Option<Timestamp>,
    ) -> Result<Done, ActuateError> {
        let claim = self.claim(name)?;
        let mut status = json!({ "conditions": conditions });
        if let (Some(at), Some(map)) = (last_pod_event, status.as_object_mut()) {
            map.insert("lastPodEventTime".to_owned(), json!(whole_seconds(at)));
        }
        self.write_claim_status(&claim, status).await?;
        Ok(Done::Finished)
    }

    /// Asks for termination until the cloud says that the instance is gone, then lets the node and the claim go.
    pub(super) async fn terminate(
        &self,
        name: &str,
        node: Option<&str>,
        provider_id: &str,
        token: &str,
    ) -> Result<Done, ActuateError> {
        let found = if provider_id.is_empty() {
            // The launch was never recorded; it may have got through all the same.
            let instances = self.cloud("listing instances", self.cloud.list()).await?;
            instances
                .into_iter()
                .find(|i| i.token == token)
                .map(|i| i.provider_id)
        } else {
            Some(provider_id.to_owned())
        };
        if let Some(id) = &found {
            match self
                .cloud("terminating an instance", self.cloud.terminate(id))
                .await
            {
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    self.record_terminating(name).await?;
                    return Ok(Done::Again(TERMINATION_POLL));
                }
            }
        }
        if let Some(node) = node {
            self.release_node(node).await?;
        }
        self.release_claim(name).await
    }

    async fn record_terminating(&self, name: &str) -> Result<(), ActuateError> {
        let claim = self.claim(name)?;
        let mut conditions = self.conditions(&claim);
        let now = self.clock.now();
        if conditions::set_true(
            &mut conditions,
            condition::INSTANCE_TERMINATING,
            now,
            generation(&claim),
        ) {
            self.write_claim_status(&claim, json!({ "conditions": conditions }))
                .await?;
        }
        Ok(())
    }

    async fn release_claim(&self, name: &str) -> Result<Done, ActuateError> {
        let Ok(claim) = self.claim(name) else {
            return Ok(Done::Finished);
        };
        let all = claim.object.metadata.finalizers.clone().unwrap_or_default();
        let rest: Vec<&String> = all
            .iter()
            .filter(|f| *f != finalizer::TERMINATION)
            .collect();
        let is_last = rest.is_empty();
        let version = &claim.object.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": rest } });
        match self
            .merge("releasing a claim", &self.claims(), name, &patch)
            .await
        {
            Ok(claim) => {
                let event = if is_last {
                    Event::ClaimGone(name.to_owned())
                } else {
                    Event::Claim(Box::new(claim))
                };
                self.writer.put(vec![event]).await;
            }
            Err(error) if error.is_gone() => {
                self.writer
                    .put(vec![Event::ClaimGone(name.to_owned())])
                    .await
            }
            Err(error) => return Err(error),
        }
        tracing::info!(NodeClaim = name, "deleted nodeclaim");
        Ok(Done::Finished)
    }

    pub(super) async fn terminate_orphan(&self, provider_id: &str) -> Result<Done, ActuateError> {
        tracing::warn!(
            "provider-id" = provider_id,
            "terminating an instance that no nodeclaim owns"
        );
        match self
            .cloud("terminating an instance", self.cloud.terminate(provider_id))
            .await
        {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Done::Finished),
        }
    }
}

/// The API keeps times of this field in whole seconds.
fn whole_seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

/// Whether a provider's code can stand as a condition's reason.
fn is_reason(code: &str) -> bool {
    code.starts_with(|c: char| c.is_ascii_alphabetic())
        && code.chars().all(|c| c.is_ascii_alphanumeric())
}
