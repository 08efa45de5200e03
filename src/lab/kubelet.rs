//! Kubelets: what the machines of the simulated cloud do to the API once they run.
//!
//! A machine that has booted registers its Node, becomes ready some seconds later, and then starts, ends and cleans up the
//! pods bound to it. The task also plays the parts of the cloud and node controllers that concern machines: the taints
//! of nodes not ready or not heard of, and the end of a Node whose machine is gone. Heartbeats are left out.
//!
//! Must never: decide anything about capacity, or know who launched a machine and why.

mod node;
mod pods;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::pods::Run;
use super::{
    api::{Change, DeleteOptions, Event, Key, Kind, Server},
    seed::Seed,
    timers::Timers,
};
use crate::cloud::simulated::{Booted, Machine};

/// A pod with this annotation ends with success after running that long (a Go duration).
pub const RUN_FOR: &str = "lab.tenon.sh/run-for";
/// A pod with this annotation takes that long to end once told to (a Go duration), at most its grace period.
pub const STOP_AFTER: &str = "lab.tenon.sh/stop-after";

/// A registered kubelet's network is up this long after its start.
const READY_AFTER: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(6)];
/// A kubelet whose node's name is still taken tries again after this long.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Device plugins have told of their devices this long after the node is ready.
const DEVICES_AFTER: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(8)];
/// Pulling an image and starting its containers.
const START_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// How long a container takes to end after SIGTERM.
const STOPS_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// The node controller's `--node-monitor-grace-period`: how long a silent node counts as ready.
const SILENCE: Duration = Duration::from_secs(40);
/// The cloud node lifecycle controller's `--node-monitor-period`.
const CLOUD_CHECK: Duration = Duration::from_secs(5);

/// All kubelets of a lab. [`Kubelets::run`] is their one task.
#[derive(Debug)]
pub struct Kubelets {
    server: Server,
    seed: Seed,
    /// By node name.
    machines: BTreeMap<String, Running>,
    /// Provider ids of machines whose node's name is still taken.
    waiting: BTreeSet<String>,
    runs: BTreeMap<Key, Run>,
    timers: Timers<Due>,
}

/// A kubelet that runs.
#[derive(Debug)]
struct Running {
    machine: Booted,
    /// When its network is up.
    ready_at: Instant,
}

/// What comes due.
#[derive(Debug)]
enum Due {
    /// A kubelet registers its node.
    Register(Box<Booted>),
    /// The network of a node is up.
    Ready(String),
    /// The devices of a node are known.
    Devices(String),
    /// The node controller has not heard of the node of that name and provider id for too long.
    Silent(String, String),
    /// The cloud controller looks for the machine of a silent node.
    CloudCheck(String, String),
    /// A pod of that UID starts.
    Start(Key, String),
    /// A pod of that UID is done.
    Finish(Key, String),
    /// A pod of that UID has ended after being told to.
    Stopped(Key, String),
}

impl Kubelets {
    /// Kubelets that speak to a server; the seed decides delays and addresses.
    pub fn new(server: Server, seed: Seed) -> Self {
        Self {
            server,
            seed: seed.of("kubelet"),
            machines: BTreeMap::new(),
            waiting: BTreeSet::new(),
            runs: BTreeMap::new(),
            timers: Timers::default(),
        }
    }

    /// Runs the kubelets of all machines until told to stop.
    pub async fn run(mut self, mut machines: Receiver<Machine>, stop: CancellationToken) {
        let mut pods = self.server.subscribe(Kind::Pod);
        loop {
            while let Some(due) = self.timers.pop_due(Instant::now()) {
                self.due(due).await;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Without a cloud no more machines come; those that are there run on.
                Some(event) = machines.recv() => self.machine_event(event).await,
                event = pods.next() => match event {
                    Some(event) => self.pod_event(&event),
                    None => return,
                },
                () = self.timers.due() => {}
            }
        }
    }

    async fn machine_event(&mut self, event: Machine) {
        match event {
            Machine::Booted(machine) => self.register(machine).await,
            // The operating system takes its time to go down, and pods run until then.
            Machine::Interrupted { .. } | Machine::Terminating { .. } => {}
            Machine::Terminated {
                provider_id,
                node_name,
            } => {
                self.waiting.remove(&provider_id);
                let running = self.machines.get(&node_name);
                if running.is_some_and(|r| r.machine.instance.provider_id == provider_id) {
                    self.machines.remove(&node_name);
                    self.runs.retain(|_, run| run.node != node_name);
                }
                let due = Due::Silent(node_name, provider_id);
                self.timers.add(Instant::now() + SILENCE, due);
            }
        }
    }

    async fn register(&mut self, machine: Box<Booted>) {
        let name = machine.node_name.clone();
        let node = node::new(&machine, self.server.now());
        let options = super::api::WriteOptions::default();
        match self.server.create(Kind::Node, "", node, &options).await {
            Ok(_) => {}
            Err(error) if error.is_already_exists() => {
                self.waiting.insert(machine.instance.provider_id.clone());
                let due = Due::Register(machine);
                self.timers.add(Instant::now() + TRY_AGAIN, due);
                return;
            }
            Err(error) => {
                tracing::warn!(node = %name, %error, "node not registered");
                return;
            }
        }
        let delay = self.between(&machine.instance.provider_id, "ready", READY_AFTER);
        let ready_at = Instant::now() + delay;
        self.timers.add(ready_at, Due::Ready(name.clone()));
        let machine = *machine;
        self.machines
            .insert(name.clone(), Running { machine, ready_at });
        for object in self.server.pods_on_node(&name) {
            self.pod_event(&Event {
                change: Change::Added,
                object,
            });
        }
    }

    fn between(&self, what: &str, stage: &str, [least, most]: [Duration; 2]) -> Duration {
        self.seed.between(&format!("{what}/{stage}"), least, most)
    }

    async fn due(&mut self, due: Due) {
        match due {
            Due::Register(machine) => {
                if self.waiting.remove(&machine.instance.provider_id) {
                    self.register(machine).await;
                }
            }
            Due::Ready(name) => self.ready(&name).await,
            Due::Devices(name) => self.devices(&name),
            Due::Silent(name, id) => self.silent(&name, id).await,
            Due::CloudCheck(name, id) => self.cloud_check(&name, &id).await,
            Due::Start(key, uid) => self.start(&key, &uid),
            Due::Finish(key, uid) => self.finish(&key, &uid),
            Due::Stopped(key, uid) => self.stopped(&key, &uid).await,
        }
    }

    async fn ready(&mut self, name: &str) {
        let Some(running) = self.machines.get(name) else {
            return;
        };
        let now = self.server.now();
        let edited = self.server.edit_status(Kind::Node, "", name, |status| {
            node::set_ready(status, now);
        });
        if let Err(error) = edited {
            tracing::debug!(node = %name, %error, "node not made ready");
            return;
        }
        if node::has_devices(&running.machine.instance.capacity) {
            let delay = self.between(
                &running.machine.instance.provider_id,
                "devices",
                DEVICES_AFTER,
            );
            self.timers
                .add(Instant::now() + delay, Due::Devices(name.to_owned()));
        }
        node::change_taints(&self.server, name, |taints| {
            taints.retain(|t| t["key"] != node::NOT_READY);
        })
        .await;
    }

    fn devices(&mut self, name: &str) {
        let Some(running) = self.machines.get(name) else {
            return;
        };
        let machine = &running.machine.instance;
        let edited = self.server.edit_status(Kind::Node, "", name, |status| {
            node::set_amounts(status, &machine.capacity, &machine.allocatable);
        });
        if let Err(error) = edited {
            tracing::debug!(node = %name, %error, "devices not told");
        }
    }

    /// The node controller gives a silent node up: not ready, tainted, its pods not ready.
    async fn silent(&mut self, name: &str, provider_id: String) {
        if !self.is_node_of(name, &provider_id) {
            return;
        }
        let now = self.server.now();
        let edited = self.server.edit_status(Kind::Node, "", name, |status| {
            node::set_unknown(status, now);
        });
        if edited.is_err() {
            return;
        }
        node::change_taints(&self.server, name, |taints| {
            taints.retain(|t| t["key"] != node::NOT_READY && t["key"] != node::UNREACHABLE);
            taints.extend(node::unreachable(now));
        })
        .await;
        for pod in self.server.pods_on_node(name) {
            pods::set_unready(&self.server, &pod, now);
        }
        self.timers.add(
            Instant::now() + CLOUD_CHECK,
            Due::CloudCheck(name.to_owned(), provider_id),
        );
    }

    /// The cloud controller deletes a Node that is not ready and whose machine is gone.
    async fn cloud_check(&mut self, name: &str, provider_id: &str) {
        if !self.is_node_of(name, provider_id) {
            return;
        }
        let options = DeleteOptions::default();
        match self.server.delete(Kind::Node, "", name, &options).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => tracing::warn!(node = %name, %error, "node not deleted"),
        }
    }

    /// Whether the node is there and still stands for that machine.
    fn is_node_of(&self, name: &str, provider_id: &str) -> bool {
        let node = self.server.get(Kind::Node, "", name);
        node.is_ok_and(|n| n["spec"]["providerID"] == *provider_id)
    }
}
