//! Why an action was not carried out.

use std::time::Duration;

use crate::cloud::CloudError;

/// An action that did not get through. All are worth a later try; the engine decides whether the action is still wanted.
#[derive(Debug, thiserror::Error)]
pub enum ActuateError {
    /// The API server refused, or was not reached.
    #[error("{doing}")]
    Kube {
        /// What was being done.
        doing: &'static str,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("{doing}: no answer in time")]
    TimedOut {
        /// What was being done.
        doing: &'static str,
    },
    /// The cloud refused, or was not reached.
    #[error("cloud call failed")]
    Cloud(#[from] CloudError),
    /// The object is not in the cluster state (any more).
    #[error("{0} is not known any more")]
    Unknown(String),
    /// A PodDisruptionBudget does not allow the eviction now.
    #[error("eviction of {pod} is blocked: {message}")]
    Blocked {
        /// Namespace and name of the pod.
        pod: String,
        /// What the API server said, the budget's name in it where it tells.
        message: String,
    },
}

impl ActuateError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Kube { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }

    /// The object does not exist.
    pub fn is_gone(&self) -> bool {
        self.code() == Some(404) || matches!(self, Self::Unknown(_))
    }

    /// The object changed under us, or a precondition did not hold.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The API server's budget check said no; an API server that is busy says the same code with a different reason.
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == Some(429)
    }

    /// More than one budget covers the pod, which Kubernetes cannot evict.
    pub fn is_server_error(&self) -> bool {
        self.code() == Some(500)
    }

    /// The API server's text.
    pub fn api_message(&self) -> Option<String> {
        match self {
            Self::Kube { source, .. } => match &**source {
                kube::Error::Api(status) => {
                    let causes = status
                        .details
                        .as_ref()
                        .map(|d| d.causes.as_slice())
                        .unwrap_or_default();
                    let causes: Vec<&str> = causes
                        .iter()
                        .map(|c| c.message.as_str())
                        .filter(|m| !m.is_empty())
                        .collect();
                    Some(if causes.is_empty() {
                        status.message.clone()
                    } else {
                        causes.join("; ")
                    })
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// How long to wait before the next try after `failures` failures in a row.
    pub fn retry_after(&self, failures: u32) -> Duration {
        let doubled = |first: u64, most: u64| {
            Duration::from_millis(
                first
                    .saturating_mul(1 << failures.saturating_sub(1).min(20))
                    .min(most),
            )
        };
        match self {
            // Upstream's eviction back-off.
            Self::Blocked { .. } => doubled(100, 10_000),
            _ if self.is_conflict() || self.is_gone() => doubled(20, 1_000),
            Self::Cloud(error) => error.retry_after.unwrap_or_else(|| doubled(1_000, 60_000)),
            _ => doubled(200, 30_000),
        }
    }
}
