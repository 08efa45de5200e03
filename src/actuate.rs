//! The only room that writes to Kubernetes or the cloud. It carries out [`Action`]s and decides nothing beyond "is this still so".
//!
//! Every call has a time-out. An action is idempotent by name, UID and launch token, may be dropped at any await and be repeated.
//! After a write, the answer is put into the cluster state before the action counts as done, so that no decision is taken on a picture
//! older than our own deeds. Must never: write in advise mode, or retry by itself (the engine repeats what is still needed).

mod claims;
mod error;
mod nodes;
mod pods;
mod pools;
mod tell;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1 as core;
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use error::ActuateError;
pub use tell::Teller;

use crate::{
    api::{EC2NodeClass, NodeClaim, NodePool},
    clock::Clock,
    cloud::{Cloud, CloudError, ErrorClass},
    config::Settings,
    plan::Action,
    watch::Writer,
};

/// How an action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Nothing more to do for this action.
    Finished,
    /// The world has not got there yet: look again after this time.
    Again(Duration),
}

/// Carries out actions.
#[derive(Clone)]
pub struct Actuator {
    client: Client,
    cloud: Arc<dyn Cloud>,
    clock: Clock,
    writer: Writer,
    teller: Teller,
    settings: Arc<Settings>,
}

impl Actuator {
    /// Builds an actuator.
    pub fn new(
        client: Client,
        cloud: Arc<dyn Cloud>,
        clock: Clock,
        writer: Writer,
        teller: Teller,
        settings: Arc<Settings>,
    ) -> Self {
        Self {
            client,
            cloud,
            clock,
            writer,
            teller,
            settings,
        }
    }

    /// Carries out one action.
    ///
    /// # Errors
    /// What the API server or the cloud refused. Nothing is half done that a repetition would not complete.
    pub async fn carry_out(&self, action: &Action) -> Result<Done, ActuateError> {
        match action {
            Action::CreateClaim { claim, pods } => self.create_claim(claim, pods).await,
            Action::Launch { claim } => self.launch(claim).await,
            Action::DeleteClaim {
                claim,
                uid,
                disruption,
                outcome,
            } => self.delete_claim(claim, uid, *disruption, *outcome).await,
            Action::HoldClaim { claim } => self.hold_claim(claim).await,
            Action::SetDeadline { claim, at } => self.set_deadline(claim, *at).await,
            Action::ClaimStatus {
                claim,
                conditions,
                last_pod_event,
            } => self.claim_status(claim, conditions, *last_pod_event).await,
            Action::Terminate {
                claim,
                node,
                provider_id,
                token,
            } => {
                self.terminate(claim, node.as_deref(), provider_id, token)
                    .await
            }
            Action::TerminateOrphan { provider_id } => self.terminate_orphan(provider_id).await,
            Action::Register { claim, node } => self.register(claim, node).await,
            Action::Initialize { claim, node } => self.initialize(claim, node).await,
            Action::DeleteNode { node, uid } => self.delete_node(node, uid).await,
            Action::TaintNode { node } => self.taint_node(node).await,
            Action::ReleaseNode { node } => self.release_node(node).await,
            Action::ReleaseNodeIfInstanceGone { node, provider_id } => {
                self.release_node_if_instance_gone(node, provider_id).await
            }
            Action::Evict { pod, uid, node } => self.evict(pod, uid, node).await,
            Action::DeletePod {
                pod,
                uid,
                grace_seconds,
            } => self.delete_pod(pod, uid, *grace_seconds).await,
            Action::PoolStatus {
                pool,
                conditions,
                resources,
                nodes,
                hash,
            } => {
                self.pool_status(pool, conditions, resources, *nodes, hash)
                    .await
            }
        }
    }

    fn claims(&self) -> Api<NodeClaim> {
        Api::all(self.client.clone())
    }

    fn nodes(&self) -> Api<core::Node> {
        Api::all(self.client.clone())
    }

    fn pools(&self) -> Api<NodePool> {
        Api::all(self.client.clone())
    }

    /// The API of node classes, for the controller that keeps their status.
    pub(crate) fn classes(&self) -> Api<EC2NodeClass> {
        Api::all(self.client.clone())
    }

    fn pods(&self, namespace: &str) -> Api<core::Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// One Kubernetes call with its time-out.
    async fn kube<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ActuateError> {
        match tokio::time::timeout(self.settings.api_timeout, call).await {
            Ok(answer) => answer.map_err(|source| ActuateError::Kube {
                doing,
                source: Box::new(source),
            }),
            Err(_) => Err(ActuateError::TimedOut { doing }),
        }
    }

    /// One cloud call with its time-out.
    async fn cloud<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<T, CloudError> {
        tokio::time::timeout(self.settings.cloud_timeout, call)
            .await
            .unwrap_or_else(|_| {
                let seconds = self.settings.cloud_timeout.as_secs();
                Err(CloudError::new(
                    doing,
                    ErrorClass::Transient,
                    "TimedOut",
                    format!("no answer within {seconds} s"),
                ))
            })
    }

    /// A merge patch of an object's metadata or spec. With a resource version in the patch the API server refuses it when the object
    /// has changed since.
    pub(crate) async fn merge<K>(
        &self,
        doing: &'static str,
        api: &Api<K>,
        name: &str,
        patch: &Value,
    ) -> Result<K, ActuateError>
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.kube(
            doing,
            api.patch(name, &PatchParams::default(), &Patch::Merge(patch)),
        )
        .await
    }

    /// A merge patch of the status subresource.
    pub(crate) async fn merge_status<K>(
        &self,
        doing: &'static str,
        api: &Api<K>,
        name: &str,
        patch: &Value,
    ) -> Result<K, ActuateError>
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.kube(
            doing,
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)),
        )
        .await
    }
}
