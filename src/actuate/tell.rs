//! Kubernetes events: our own writer, on our clock, so that virtual time and determinism hold. Losing an event is better than waiting.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::mpsc;

use crate::{
    api::names::{self, reason},
    clock::Clock,
    config::{Mode, Settings},
    plan::{Notice, Target},
    watch::Writer,
};

/// Notices that may wait. A burst of some hundred pods fits; what comes on top is dropped and counted in the log.
const QUEUE: usize = 1_000;

/// The same reason for the same object is published again after this time (upstream's default).
const WINDOW: Duration = Duration::from_secs(120);

/// The same for pods that found no place: their text is compared too, so that a changed reason is seen at once.
const SCHEDULING_WINDOW: Duration = Duration::from_secs(300);

/// Nominations are published at this rate for all pods together (upstream's rate and burst).
const NOMINATIONS_PER_SECOND: f64 = 5.0;
const NOMINATION_BURST: f64 = 10.0;

/// Takes notices without ever waiting.
#[derive(Clone, Debug)]
pub struct Teller {
    queue: mpsc::Sender<Notice>,
}

impl Teller {
    /// A teller, and the task that must be run for it.
    pub fn new(
        client: Client,
        clock: Clock,
        writer: Writer,
        settings: &Settings,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (queue, notices) = mpsc::channel(QUEUE);
        let publisher = Publisher {
            client,
            clock,
            writer,
            component: settings.component.clone(),
            mode: settings.mode,
            timeout: settings.api_timeout,
            published: BTreeMap::new(),
            nominations: Bucket {
                tokens: NOMINATION_BURST,
                filled: Timestamp::UNIX_EPOCH,
            },
            count: 0,
        };
        (Self { queue }, publisher.run(notices))
    }

    /// Publishes a notice soon, unless the same was said lately or too many wait.
    pub fn tell(&self, notice: Notice) {
        if let Err(mpsc::error::TrySendError::Full(notice)) = self.queue.try_send(notice) {
            tracing::debug!(about = %notice.about, reason = notice.reason, "event dropped: too many wait");
        }
    }
}

struct Bucket {
    tokens: f64,
    filled: Timestamp,
}

impl Bucket {
    fn take(&mut self, now: Timestamp) -> bool {
        let passed = now.duration_since(self.filled).as_secs_f64().max(0.0);
        self.tokens = (self.tokens + passed * NOMINATIONS_PER_SECOND).min(NOMINATION_BURST);
        self.filled = now;
        let may = self.tokens >= 1.0;
        if may {
            self.tokens -= 1.0;
        }
        may
    }
}

struct Publisher {
    client: Client,
    clock: Clock,
    writer: Writer,
    component: String,
    mode: Mode,
    timeout: Duration,
    published: BTreeMap<(Target, &'static str, String), Timestamp>,
    nominations: Bucket,
    count: u64,
}

impl Publisher {
    async fn run(mut self, mut notices: mpsc::Receiver<Notice>) {
        while let Some(notice) = notices.recv().await {
            if self.is_new(&notice) {
                self.publish(&notice).await;
            }
        }
    }

    fn is_new(&mut self, notice: &Notice) -> bool {
        let now = self.clock.now();
        let (window, text) = match notice.reason {
            reason::FAILED_SCHEDULING => (SCHEDULING_WINDOW, notice.message.clone()),
            _ => (WINDOW, String::new()),
        };
        if self.published.len() > 2 * QUEUE {
            self.published
                .retain(|_, at| now.duration_since(*at).unsigned_abs() < SCHEDULING_WINDOW);
        }
        let key = (notice.about.clone(), notice.reason, text);
        if self
            .published
            .get(&key)
            .is_some_and(|at| now.duration_since(*at).unsigned_abs() < window)
        {
            return false;
        }
        if notice.reason == reason::NOMINATED && !self.nominations.take(now) {
            return false;
        }
        self.published.insert(key, now);
        true
    }

    async fn publish(&mut self, notice: &Notice) {
        let Some(object) = self.reference(&notice.about) else {
            return;
        };
        let namespace = object
            .namespace
            .clone()
            .unwrap_or_else(|| "default".to_owned());
        let now = self.clock.now();
        self.count += 1;
        let name = object.name.clone().unwrap_or_default();
        let event = core::Event {
            metadata: ObjectMeta {
                name: Some(format!(
                    "{name}.{:x}{:04x}",
                    now.as_nanosecond(),
                    self.count & 0xffff
                )),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: object,
            type_: Some(if notice.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(notice.reason.to_owned()),
            message: Some(notice.message.chars().take(1_024).collect()),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            source: Some(core::EventSource {
                component: Some(self.component.clone()),
                host: None,
            }),
            reporting_component: Some(self.component.clone()),
            ..core::Event::default()
        };
        if self.mode == Mode::Advise {
            tracing::info!(about = %notice.about, reason = notice.reason, message = notice.message, "would publish an event");
            return;
        }
        let api: Api<core::Event> = Api::namespaced(self.client.clone(), &namespace);
        let params = PostParams::default();
        let create = api.create(&params, &event);
        match tokio::time::timeout(self.timeout, create).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(about = %notice.about, %error, "event not published"),
            Err(_) => {
                tracing::debug!(about = %notice.about, "event not published: no answer in time")
            }
        }
    }

    /// The object as the snapshot knows it; none when it is gone.
    fn reference(&self, about: &Target) -> Option<core::ObjectReference> {
        let s = self.writer.snapshot();
        let ours = format!("{}/{}", names::GROUP, names::VERSION);
        let aws = format!("{}/{}", names::AWS_GROUP, names::VERSION);
        let (api_version, kind, namespace, name, uid) = match about {
            Target::Pod(k) => {
                let uid = s.pods.get(k)?.uid.clone();
                (
                    "v1".to_owned(),
                    "Pod",
                    Some(k.namespace.to_string()),
                    k.name.to_string(),
                    uid,
                )
            }
            Target::Node(n) => (
                "v1".to_owned(),
                "Node",
                None,
                n.to_string(),
                s.nodes.get(n)?.uid.clone(),
            ),
            Target::Claim(n) => (
                ours,
                "NodeClaim",
                None,
                n.to_string(),
                s.claims.get(n)?.uid.clone(),
            ),
            Target::Pool(n) => (
                ours,
                "NodePool",
                None,
                n.to_string(),
                s.pools.get(n)?.uid.clone(),
            ),
            Target::Class(n) => {
                let uid = s
                    .classes
                    .get(n)?
                    .object
                    .metadata
                    .uid
                    .clone()
                    .unwrap_or_default();
                (aws, "EC2NodeClass", None, n.to_string(), uid)
            }
            Target::Instance(_) => return None,
        };
        Some(core::ObjectReference {
            api_version: Some(api_version),
            kind: Some(kind.to_owned()),
            namespace,
            name: Some(name),
            uid: Some(uid),
            ..core::ObjectReference::default()
        })
    }
}
