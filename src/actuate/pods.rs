//! Pods leave: by eviction, or by deletion when a deadline leaves no choice.

use kube::api::{DeleteParams, EvictParams, PostParams, Preconditions};

use super::{ActuateError, Actuator, Done};
use crate::{
    api::names::reason,
    cluster::PodKey,
    plan::{Notice, Target},
};

impl Actuator {
    pub(super) async fn evict(
        &self,
        pod: &PodKey,
        uid: &str,
        node: &str,
    ) -> Result<Done, ActuateError> {
        let options = EvictParams {
            delete_options: Some(only(uid)),
            post_options: PostParams::default(),
        };
        let answer = self
            .kube(
                "evicting a pod",
                self.pods(&pod.namespace).evict(&pod.name, &options),
            )
            .await;
        match answer {
            Ok(_) => {
                self.tell_pod(
                    pod,
                    reason::EVICTED,
                    false,
                    format!("Evicted from node {node}, which is being removed"),
                );
                Ok(Done::Finished)
            }
            // Gone, or another pod by the same name: nothing is left to evict.
            Err(error) if error.is_gone() || error.is_conflict() => Ok(Done::Finished),
            Err(error) if error.is_too_many_requests() || error.is_server_error() => {
                let message = error.api_message().unwrap_or_default();
                let text = format!("Pod {pod} cannot be evicted yet: {message}");
                self.teller.tell(Notice {
                    about: Target::Node(node.into()),
                    reason: reason::FAILED_DRAINING,
                    warning: true,
                    message: text,
                });
                Err(ActuateError::Blocked {
                    pod: pod.to_string(),
                    message,
                })
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn delete_pod(
        &self,
        pod: &PodKey,
        uid: &str,
        grace_seconds: i64,
    ) -> Result<Done, ActuateError> {
        let grace = u32::try_from(grace_seconds.max(1)).unwrap_or(u32::MAX);
        let options = DeleteParams {
            grace_period_seconds: Some(grace),
            ..only(uid)
        };
        match self
            .kube(
                "deleting a pod",
                self.pods(&pod.namespace).delete(&pod.name, &options),
            )
            .await
        {
            Ok(_) => {
                let text = format!(
                    "Deleted with {grace} s of grace: its node's termination deadline comes first"
                );
                self.tell_pod(pod, reason::DISRUPTED, false, text);
                Ok(Done::Finished)
            }
            Err(error) if error.is_gone() || error.is_conflict() => Ok(Done::Finished),
            Err(error) => Err(error),
        }
    }

    pub(super) fn tell_pod(
        &self,
        pod: &PodKey,
        reason: &'static str,
        warning: bool,
        message: String,
    ) {
        self.teller.tell(Notice {
            about: Target::Pod(pod.clone()),
            reason,
            warning,
            message,
        });
    }
}

/// Preconditions: this very object and no other of the same name.
pub(super) fn only(uid: &str) -> DeleteParams {
    let preconditions = Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    };
    DeleteParams {
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    }
}
