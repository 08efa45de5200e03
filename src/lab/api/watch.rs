//! Streams of changes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::kinds::Kind;
use super::object::{Key, Object};
use super::select::Selectors;

/// What happened to an object, as far as a watch's selection sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It came into the selection.
    Added,
    /// It changed within the selection.
    Modified,
    /// It left the selection or is gone.
    Deleted,
    /// Nothing happened; all changes up to the object's resource version have been sent.
    Bookmark,
}

impl Change {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
            Change::Bookmark => "BOOKMARK",
        }
    }
}

/// One line of a watch body, in pieces, so that an object's text is made once for all watches.
pub(super) type Line = [Bytes; 3];

/// One event of a watch. For [`Change::Deleted`] the object is its last state, with the resource version of the
/// change.
#[derive(Debug, Clone)]
pub struct Event {
    /// What happened.
    pub change: Change,
    /// The object it happened to.
    pub object: Object,
}

impl Event {
    pub(super) fn initial_end(kind: Kind, version: u64) -> Self {
        let info = kind.info();
        let object = json!({
            "kind": info.kind,
            "apiVersion": kind.api_version(),
            "metadata": {
                "resourceVersion": version.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        });
        Self {
            change: Change::Bookmark,
            object: Object::new(kind, object, version),
        }
    }

    pub(super) fn line(&self) -> Line {
        let head: &'static [u8] = match self.change {
            Change::Added => b"{\"type\":\"ADDED\",\"object\":",
            Change::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            Change::Deleted => b"{\"type\":\"DELETED\",\"object\":",
            Change::Bookmark => b"{\"type\":\"BOOKMARK\",\"object\":",
        };
        [
            Bytes::from_static(head),
            self.object.bytes(),
            Bytes::from_static(b"}\n"),
        ]
    }
}

/// A running watch. It ends when dropped.
#[derive(Debug)]
pub struct Watch<T = Event> {
    backlog: VecDeque<T>,
    live: UnboundedReceiver<T>,
    start: u64,
}

impl<T: Unpin> Watch<T> {
    pub(super) fn new(backlog: VecDeque<T>, live: UnboundedReceiver<T>, start: u64) -> Self {
        Self {
            backlog,
            live,
            start,
        }
    }

    /// The next event, once there is one.
    pub async fn next(&mut self) -> Option<T> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// An event that is already there.
    pub fn try_next(&mut self) -> Option<T> {
        let first = self.backlog.pop_front();
        first.or_else(|| self.live.try_recv().ok())
    }

    /// The resource version at which the watch began.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Puts an event after those that were there when the watch began.
    pub(super) fn follow_with(&mut self, event: T) {
        self.backlog.push_back(event);
    }
}

impl<T: Unpin> Stream for Watch<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(event) = self.backlog.pop_front() {
            return Poll::Ready(Some(event));
        }
        self.live.poll_recv(cx)
    }
}

/// What a watch carries: events, or their texts, which keep no version's JSON alive while they wait.
pub(super) trait Carried: Unpin + Sized {
    fn carry(event: Event) -> Self;
    fn sink(sender: UnboundedSender<Self>) -> Sink;
}

impl Carried for Event {
    fn carry(event: Event) -> Self {
        event
    }

    fn sink(sender: UnboundedSender<Self>) -> Sink {
        Sink::Events(sender)
    }
}

impl Carried for Line {
    fn carry(event: Event) -> Self {
        event.line()
    }

    fn sink(sender: UnboundedSender<Self>) -> Sink {
        Sink::Lines(sender)
    }
}

/// Where a watch's events go.
#[derive(Debug)]
pub(super) enum Sink {
    Events(UnboundedSender<Event>),
    Lines(UnboundedSender<Line>),
}

impl Sink {
    fn is_closed(&self) -> bool {
        match self {
            Sink::Events(sender) => sender.is_closed(),
            Sink::Lines(sender) => sender.is_closed(),
        }
    }

    fn send(&self, event: Event) -> bool {
        match self {
            Sink::Events(sender) => sender.send(event).is_ok(),
            Sink::Lines(sender) => sender.send(event.line()).is_ok(),
        }
    }
}

/// The sending side of a watch.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) namespace: Option<String>,
    pub(super) selectors: Selectors,
    pub(super) sink: Sink,
}

impl Watcher {
    /// Sends what this watch sees of a change; false once nobody listens.
    pub(super) fn tell(&self, before: Option<&Object>, after: &Object, gone: bool) -> bool {
        if self.sink.is_closed() {
            return false;
        }
        match self.sees(before, after, gone) {
            Some(event) => self.sink.send(event),
            None => true,
        }
    }

    /// What this watch sees of a change from `before` to `after`; `None` for an object that is not there.
    pub(super) fn sees(
        &self,
        before: Option<&Object>,
        after: &Object,
        gone: bool,
    ) -> Option<Event> {
        if let Some(namespace) = &self.namespace
            && namespace != after.namespace()
        {
            return None;
        }
        let was = before.is_some_and(|o| self.selectors.matches(o));
        let is = !gone && self.selectors.matches(after);
        let (change, object) = match (was, is) {
            (false, false) => return None,
            (false, true) => (Change::Added, after.clone()),
            (true, true) => (Change::Modified, after.clone()),
            (true, false) if gone => (Change::Deleted, after.clone()),
            // Left the selection: its last selected state, at the version of the change.
            (true, false) => {
                let mut last = before?.value().clone();
                last["metadata"]["resourceVersion"] = json!(after.version().to_string());
                (
                    Change::Deleted,
                    Object::new(after.kind(), last, after.version()),
                )
            }
        };
        Some(Event { change, object })
    }
}

/// One remembered change: the texts before and after it.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) version: u64,
    pub(super) before: Option<(u64, Bytes)>,
    pub(super) after: Bytes,
    pub(super) gone: bool,
}

impl Past {
    pub(super) fn seen_by(&self, kind: Kind, watcher: &Watcher) -> Option<Event> {
        let before = self
            .before
            .as_ref()
            .map(|(version, bytes)| Object::from_bytes(kind, bytes, *version));
        let after = Object::from_bytes(kind, &self.after, self.version);
        watcher.sees(before.as_ref(), &after, self.gone)
    }
}

/// The key of an object.
pub(super) fn key(object: &Object) -> Key {
    Key::new(object.namespace(), object.name())
}
