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

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::pods::Run;
use super::{
    api::{Change, DeleteOptions, Event, Key, Kind, Server},
    seed::Seed,
    timers::Timers,
};
use crate::{api::taint::Taint, units::Resources};

/// A pod with this annotation ends with success after running that long (a Go duration).
pub const RUN_FOR: &str = "lab.tenon.sh/run-for";
/// A pod with this annotation takes that long to end once told to (a Go duration), at most its grace period.
pub const STOP_AFTER: &str = "lab.tenon.sh/stop-after";

/// A registered kubelet's network is up this long after its start.
const READY_AFTER: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(6)];
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

/// What a kubelet knows of its machine when it starts.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// `aws:///<zone>/<instance-id>`.
    pub provider_id: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Labels from the user data, and what the cloud controller adds.
    pub labels: BTreeMap<String, String>,
    /// Taints from the user data.
    pub taints: Vec<Taint>,
    /// What the machine has, devices included.
    pub capacity: Resources,
    /// What it offers to pods, devices included.
    pub allocatable: Resources,
    /// Version that the kubelet reports, such as `v1.32.0`.
    pub version: String,
}

/// What happens to machines.
#[derive(Clone, Debug)]
pub enum MachineEvent {
    /// The operating system is up and starts the kubelet.
    Booted(Box<Machine>),
    /// The machine was told to stop; it still runs.
    Terminating {
        /// The machine's provider id.
        provider_id: String,
    },
    /// The machine is off for good.
    Terminated {
        /// The machine's provider id.
        provider_id: String,
    },
}

/// All kubelets of a lab. [`Kubelets::run`] is their one task.
#[derive(Debug)]
pub struct Kubelets {
    server: Server,
    seed: Seed,
    /// By node name.
    machines: BTreeMap<String, Running>,
    /// Node names by provider id, kept until the Node is gone.
    names: BTreeMap<String, String>,
    runs: BTreeMap<Key, Run>,
    timers: Timers<Due>,
}

/// A kubelet that runs.
#[derive(Debug)]
struct Running {
    machine: Machine,
    /// When its network is up.
    ready_at: Instant,
}

/// What comes due.
#[derive(Debug)]
enum Due {
    Ready(String),
    Devices(String),
    /// The node controller has not heard of the node for too long.
    Silent(String),
    /// The cloud controller looks for the machine of a silent node.
    CloudCheck(String),
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
            names: BTreeMap::new(),
            runs: BTreeMap::new(),
            timers: Timers::default(),
        }
    }

    /// Runs the kubelets of all machines until told to stop.
    pub async fn run(
        mut self,
        mut machines: UnboundedReceiver<MachineEvent>,
        stop: CancellationToken,
    ) {
        let mut pods = self.server.subscribe(Kind::Pod);
        loop {
            while let Some(due) = self.timers.pop_due(Instant::now()) {
                self.due(due).await;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                event = machines.recv() => match event {
                    Some(event) => self.machine_event(event).await,
                    None => return,
                },
                event = pods.next() => match event {
                    Some(event) => self.pod_event(&event),
                    None => return,
                },
                () = self.timers.due() => {}
            }
        }
    }

    async fn machine_event(&mut self, event: MachineEvent) {
        match event {
            MachineEvent::Booted(machine) => self.boot(*machine).await,
            // The operating system takes its time to go down, and pods run until then.
            MachineEvent::Terminating { .. } => {}
            MachineEvent::Terminated { provider_id } => {
                let Some(name) = self.names.remove(&provider_id) else {
                    return;
                };
                self.machines.remove(&name);
                self.runs.retain(|_, run| run.node != name);
                self.timers.add(Instant::now() + SILENCE, Due::Silent(name));
            }
        }
    }

    async fn boot(&mut self, machine: Machine) {
        let name = self.name_for(&machine);
        let delay = self.between(&machine.provider_id, "ready", READY_AFTER);
        let ready_at = Instant::now() + delay;
        let node = node::new(&name, &machine, self.server.now());
        let options = super::api::WriteOptions::default();
        if let Err(error) = self.server.create(Kind::Node, "", node, &options).await {
            tracing::warn!(node = %name, %error, "node not registered");
            return;
        }
        self.names.insert(machine.provider_id.clone(), name.clone());
        self.timers.add(ready_at, Due::Ready(name.clone()));
        let running = Running { machine, ready_at };
        self.machines.insert(name.clone(), running);
        for pod in self.server.pods_on_node(&name) {
            self.pod_event(&Event {
                change: Change::Added,
                object: pod,
            });
        }
    }

    /// The private DNS name, as EC2 gives it and kubelets take it.
    fn name_for(&self, machine: &Machine) -> String {
        let region = machine
            .zone
            .trim_end_matches(|c: char| c.is_ascii_lowercase());
        let mut turn = 0;
        loop {
            let label = format!("{}/address/{turn}", machine.provider_id);
            let [.., b, c, d] = self.seed.draw(&label).to_be_bytes();
            let name = format!("ip-10-{b}-{c}-{d}.{region}.compute.internal");
            let taken =
                self.machines.contains_key(&name) || self.server.get(Kind::Node, "", &name).is_ok();
            if !taken {
                return name;
            }
            turn += 1;
        }
    }

    fn between(&self, what: &str, stage: &str, [least, most]: [Duration; 2]) -> Duration {
        self.seed.between(&format!("{what}/{stage}"), least, most)
    }

    async fn due(&mut self, due: Due) {
        match due {
            Due::Ready(name) => self.ready(&name).await,
            Due::Devices(name) => self.devices(&name),
            Due::Silent(name) => self.silent(&name).await,
            Due::CloudCheck(name) => self.cloud_check(&name).await,
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
        if node::has_devices(&running.machine.capacity) {
            let delay = self.between(&running.machine.provider_id, "devices", DEVICES_AFTER);
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
        let machine = &running.machine;
        let edited = self.server.edit_status(Kind::Node, "", name, |status| {
            node::set_amounts(status, &machine.capacity, &machine.allocatable);
        });
        if let Err(error) = edited {
            tracing::debug!(node = %name, %error, "devices not told");
        }
    }

    /// The node controller gives a silent node up: not ready, tainted, its pods not ready.
    async fn silent(&mut self, name: &str) {
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
            Due::CloudCheck(name.to_owned()),
        );
    }

    /// The cloud controller deletes a Node that is not ready and whose machine is gone.
    async fn cloud_check(&mut self, name: &str) {
        let options = DeleteOptions::default();
        match self.server.delete(Kind::Node, "", name, &options).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => tracing::warn!(node = %name, %error, "node not deleted"),
        }
    }
}
