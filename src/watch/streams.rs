//! One stream per kind. A malformed object is reported once and skipped; the rest goes on.

use std::{fmt::Debug, pin::pin};

use futures::{StreamExt, future::join_all};
use k8s_openapi::api::{apps::v1 as apps, core::v1 as core, policy::v1 as policy};
use kube::{
    Api, Client, Resource,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event as Seen, watcher},
    },
};
use serde::de::DeserializeOwned;

use crate::{
    api::{EC2NodeClass, NodeClaim, NodePool},
    cluster::{Event, Malformed, PodKey},
    watch::Writer,
};

/// How a kind becomes cluster events.
struct Kind<K> {
    name: &'static str,
    resource: &'static str,
    changed: fn(Box<K>) -> Event,
    gone: fn(&str, &str) -> Event,
}

/// Watches every kind until dropped.
pub async fn run(client: Client, writer: Writer) {
    join_all([
        stream::<core::Pod>(
            &client,
            &writer,
            Kind {
                name: "Pod",
                resource: "pods",
                changed: Event::Pod,
                gone: |ns, n| Event::PodGone(PodKey::new(ns, n)),
            },
        ),
        stream::<core::Node>(
            &client,
            &writer,
            Kind {
                name: "Node",
                resource: "nodes",
                changed: Event::Node,
                gone: |_, n| Event::NodeGone(n.to_owned()),
            },
        ),
        stream::<NodeClaim>(
            &client,
            &writer,
            Kind {
                name: "NodeClaim",
                resource: "nodeclaims",
                changed: Event::Claim,
                gone: |_, n| Event::ClaimGone(n.to_owned()),
            },
        ),
        stream::<NodePool>(
            &client,
            &writer,
            Kind {
                name: "NodePool",
                resource: "nodepools",
                changed: Event::Pool,
                gone: |_, n| Event::PoolGone(n.to_owned()),
            },
        ),
        stream::<EC2NodeClass>(
            &client,
            &writer,
            Kind {
                name: "EC2NodeClass",
                resource: "ec2nodeclasses",
                changed: Event::Class,
                gone: |_, n| Event::ClassGone(n.to_owned()),
            },
        ),
        stream::<apps::DaemonSet>(
            &client,
            &writer,
            Kind {
                name: "DaemonSet",
                resource: "daemonsets",
                changed: Event::DaemonSet,
                gone: |ns, n| Event::DaemonSetGone(PodKey::new(ns, n)),
            },
        ),
        stream::<policy::PodDisruptionBudget>(
            &client,
            &writer,
            Kind {
                name: "PodDisruptionBudget",
                resource: "poddisruptionbudgets",
                changed: Event::Budget,
                gone: |ns, n| Event::BudgetGone(PodKey::new(ns, n)),
            },
        ),
    ])
    .await;
}

/// One kind's stream, as a boxed future so that the seven of them join without seven copies of their state on one stack frame.
fn stream<'a, K>(
    client: &Client,
    writer: &'a Writer,
    kind: Kind<K>,
) -> futures::future::BoxFuture<'a, ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    Box::pin(async move {
        let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
        let mut listing: Vec<Event> = Vec::new();
        let mut present: Vec<String> = Vec::new();
        while let Some(seen) = events.next().await {
            match seen {
                Ok(Seen::Apply(object)) => writer.hear(vec![changed(&kind, object)]).await,
                Ok(Seen::Delete(object)) => {
                    let (namespace, name) = names(&object);
                    writer.hear(vec![(kind.gone)(&namespace, &name)]).await;
                }
                Ok(Seen::Init) => {
                    listing.clear();
                    present.clear();
                }
                Ok(Seen::InitApply(object)) => {
                    let (namespace, name) = names(&object);
                    present.push(if namespace.is_empty() {
                        name
                    } else {
                        format!("{namespace}/{name}")
                    });
                    listing.push(changed(&kind, object));
                }
                Ok(Seen::InitDone) => {
                    let mut all = std::mem::take(&mut listing);
                    all.push(Event::Listed {
                        resource: kind.resource,
                        present: std::mem::take(&mut present),
                    });
                    writer.hear(all).await;
                }
                Err(error) => {
                    tracing::warn!(kind = kind.name, %error, "watch failed, trying again")
                }
            }
        }
    })
}

fn names<K: Resource<DynamicType = ()>>(object: &DeserializeGuard<K>) -> (String, String) {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn changed<K: Resource<DynamicType = ()>>(kind: &Kind<K>, object: DeserializeGuard<K>) -> Event {
    match object.0 {
        Ok(object) => (kind.changed)(Box::new(object)),
        Err(invalid) => {
            let meta = &invalid.metadata;
            let name = meta.name.clone().unwrap_or_default();
            let name = meta
                .namespace
                .as_ref()
                .map_or(name.clone(), |ns| format!("{ns}/{name}"));
            tracing::warn!(
                kind = kind.name,
                name,
                error = invalid.error,
                "object cannot be read and is skipped"
            );
            Event::Malformed(Malformed {
                kind: kind.name,
                name,
                reason: invalid.error,
            })
        }
    }
}
