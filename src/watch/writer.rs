//! The owner of the cluster state: events in through a bounded queue, snapshots out through a watch channel.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    clock::Clock,
    cluster::{Event, Snapshot, State},
};

/// Events that may wait for the writer. A list of 5,000 pods arrives as one batch; beyond this the streams wait, which is harmless.
const QUEUE: usize = 1_024;

/// Batches applied before a snapshot is published, so that a flood of events still lets readers see progress.
const BATCH: usize = 512;

#[derive(Debug)]
struct Input {
    events: Vec<Event>,
    applied: Option<oneshot::Sender<()>>,
}

/// A handle to the writer. Cheap to clone; the writer ends when every handle is gone.
#[derive(Clone, Debug)]
pub struct Writer {
    queue: mpsc::Sender<Input>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
}

impl Writer {
    /// A handle, and the task that must be run for it.
    pub fn new(clock: Clock) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (queue, inputs) = mpsc::channel(QUEUE);
        let (publish, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        (Self { queue, snapshots }, run(inputs, publish, clock))
    }

    /// Snapshots as they are published.
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// Queues events that were heard.
    pub async fn hear(&self, events: Vec<Event>) {
        // The writer is gone only when the process is ending.
        let _ = self
            .queue
            .send(Input {
                events,
                applied: None,
            })
            .await;
    }

    /// Queues events about our own writes and waits until a snapshot holds them, so that the next decision sees what was done.
    pub async fn put(&self, events: Vec<Event>) {
        let (applied, done) = oneshot::channel();
        if self
            .queue
            .send(Input {
                events,
                applied: Some(applied),
            })
            .await
            .is_ok()
        {
            let _ = done.await;
        }
    }
}

async fn run(
    mut inputs: mpsc::Receiver<Input>,
    publish: watch::Sender<Arc<Snapshot>>,
    clock: Clock,
) {
    let mut state = State::default();
    while let Some(first) = inputs.recv().await {
        let mut waiting = Vec::new();
        let mut changed = false;
        let now = clock.now();
        let mut take = |input: Input| {
            for event in input.events {
                changed |= state.apply(event, now);
            }
            waiting.extend(input.applied);
        };
        take(first);
        for _ in 1..BATCH {
            match inputs.try_recv() {
                Ok(input) => take(input),
                Err(_) => break,
            }
        }
        if changed {
            publish.send_replace(Arc::new(state.snapshot()));
        }
        for applied in waiting {
            // Whoever waited may have given up.
            let _ = applied.send(());
        }
    }
}
