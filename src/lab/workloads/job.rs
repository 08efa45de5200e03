//! Jobs: pods until enough of them have succeeded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::{Again, Workloads, count, is_active, is_over, is_ready, phase, template};
use crate::lab::{
    api::{DeleteOptions, Kind, Object},
    status::{rfc3339, set_condition},
};

/// Pods that ended, by the UID of their owner, so that they count after they are deleted.
#[derive(Debug, Default)]
pub(super) struct Ended(BTreeMap<String, Counted>);

#[derive(Debug, Default)]
struct Counted {
    succeeded: BTreeSet<String>,
    failed: BTreeSet<String>,
}

impl Ended {
    pub(super) fn note(&mut self, pod: &Object) {
        let Some(owner) = pod.controller_uid().filter(|_| is_over(pod)) else {
            return;
        };
        let of_job = pod["metadata"]["ownerReferences"].as_array();
        if !of_job.into_iter().flatten().any(|o| o["kind"] == "Job") {
            return;
        }
        let counted = self.0.entry(owner.to_owned()).or_default();
        let set = match phase(pod) {
            "Succeeded" => &mut counted.succeeded,
            _ => &mut counted.failed,
        };
        set.insert(pod.uid().to_owned());
    }

    pub(super) fn forget(&mut self, owner: &str) {
        self.0.remove(owner);
    }

    /// How many succeeded and failed.
    fn counts(&self, owner: &str) -> (usize, usize) {
        let counted = self.0.get(owner);
        counted.map_or((0, 0), |c| (c.succeeded.len(), c.failed.len()))
    }
}

impl Workloads {
    pub(super) async fn job(&mut self, job: &Object) -> Again {
        let now = self.server.now();
        if ["Complete", "Failed"]
            .iter()
            .any(|end| job.condition(end) == Some("True"))
        {
            return self.expire(job, now).await;
        }
        let pods = self.server.owned_by(Kind::Pod, job.uid());
        let active: Vec<&Object> = pods.iter().filter(|p| is_active(p)).collect();
        let (succeeded, failed) = self.ended.counts(job.uid());
        let completions = count(&job["spec"]["completions"]);
        let end = if succeeded >= completions {
            Some((
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            ))
        } else if failed > count(&job["spec"]["backoffLimit"]) {
            let message = "Job has reached the specified backoff limit";
            Some(("Failed", "BackoffLimitExceeded", message))
        } else {
            None
        };
        let suspended = job["spec"]["suspend"] == true;
        let wanted = match end {
            Some(_) => 0,
            None if suspended => 0,
            None => count(&job["spec"]["parallelism"]).min(completions - succeeded),
        };
        let ready = active.iter().filter(|p| is_ready(p)).count();
        self.set_status(job, |status| {
            if let Some(map) = status.as_object_mut() {
                map.remove("observedGeneration");
            }
            if status["startTime"].is_null() && !suspended {
                status["startTime"] = json!(rfc3339(now));
            }
            status["active"] = json!(active.len());
            status["ready"] = json!(ready);
            status["succeeded"] = json!(succeeded);
            status["failed"] = json!(failed);
            if let Some((kind, reason, message)) = end {
                if kind == "Complete" {
                    status["completionTime"] = json!(rfc3339(now));
                }
                let condition =
                    json!({"type": kind, "status": "True", "reason": reason, "message": message});
                set_condition(status, condition, now);
            }
        });
        if active.len() > wanted {
            let going: Vec<&Object> = active[wanted..].to_vec();
            return self.delete_pods(&going).await;
        }
        let missing = wanted - active.len();
        let mut pod = template::pod(job, &job["spec"]["template"]);
        for (key, value) in [
            ("batch.kubernetes.io/controller-uid", job.uid()),
            ("batch.kubernetes.io/job-name", job.name()),
            ("controller-uid", job.uid()),
            ("job-name", job.name()),
        ] {
            pod["metadata"]["labels"][key] = json!(value);
        }
        self.create_pods(job, missing, &pod).await
    }

    /// Deletes a finished job when its time to live is over.
    async fn expire(&self, job: &Object, now: Timestamp) -> Again {
        let seconds = job["spec"]["ttlSecondsAfterFinished"].as_i64()?;
        let ends = job["status"]["conditions"].as_array()?.iter();
        let ended: Timestamp = ends
            .filter(|c| c["status"] == "True" && (c["type"] == "Complete" || c["type"] == "Failed"))
            .find_map(|c| c["lastTransitionTime"].as_str()?.parse().ok())?;
        let left = seconds.saturating_sub(now.duration_since(ended).as_secs());
        if left > 0 {
            return u64::try_from(left).ok().map(Duration::from_secs);
        }
        let options = DeleteOptions::default();
        let deleted = self
            .server
            .delete(Kind::Job, job.namespace(), job.name(), &options)
            .await;
        if let Err(error) = deleted {
            tracing::debug!(job = job.name(), %error, "finished job not deleted");
        }
        None
    }
}
