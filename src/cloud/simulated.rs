//! A simulated EC2: the real catalogue, machines that boot and end in their time, and faults on demand.
//!
//! It keeps everything in memory, sleeps on our clock only, and draws what is random from a seed and from what each draw is for, so that
//! the same calls give the same history. **Spot prices are simulated** ([`Simulated::spot_prices_are_simulated`]): 25 to 45 % of the
//! on-demand price, drawn for each type and zone. On-demand prices are those of the catalogue. Must never: know about the product or the
//! lab; the lab reads [`Machine`] events and the product uses the [`Cloud`] trait.

mod choose;
mod class;
pub mod faults;
mod ledger;
mod machine;
mod random;
mod state;

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::mpsc;

pub use faults::{Fault, LaunchMatch, OfferingMatch, Verb};
pub use ledger::{Call, Counters};
pub use machine::{Booted, Machine};

use self::{
    choose::Candidate,
    class::Account,
    faults::Hang,
    random::Random,
    state::{KnownClass, Record, State},
};
use super::{
    CapacityType, Cloud, CloudError, ErrorClass, Instance, InstanceType, LaunchRequest,
    ResolvedClass,
    catalog::{Catalog, Zone},
    hardware::Hardware,
    instance_type::{
        class::{CapacityOptions, ClassView},
        resolve::{Known, Market, resolve},
    },
};
use crate::{api::EC2NodeClass, clock::Clock, units::Resources};

/// How long a launch call takes. The instance exists from three quarters of it on.
const LAUNCH_TIME: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// From the launch until the kubelet starts.
const BOOT_TIME: (Duration, Duration) = (Duration::from_secs(25), Duration::from_secs(45));
/// From the termination call until the machine is gone.
const TERMINATION_TIME: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(40));
/// From the notice of a spot interruption until termination, as on EC2.
const INTERRUPTION_NOTICE: Duration = Duration::from_secs(120);
/// How long any other call takes; a termination takes effect halfway.
const CALL_TIME: Duration = Duration::from_millis(100);
/// How long a throttled caller is told to wait.
const THROTTLE_WAIT: Duration = Duration::from_secs(1);
/// Machine events that may wait for the lab. A full channel delays the event and nothing else: the cloud's state has moved on already.
const EVENTS_WAITING: usize = 1024;
/// Addresses of one zone's subnet: a /19 of 10.0.0.0/16 without the five that AWS keeps.
const ADDRESSES: u64 = 8192 - 5;

/// The account and the region as the simulation sets them up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of prices, delays, ids and addresses.
    pub seed: u64,
    /// Kubernetes version of the images, such as `1.32`.
    pub kubernetes_version: String,
    /// Cluster name, for names of things in the account.
    pub cluster_name: String,
    /// vCPUs that the account may run, by capacity type; absent means no quota.
    pub vcpu_quota: BTreeMap<CapacityType, u32>,
    /// Settings that capacity depends on.
    pub capacity: CapacityOptions,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            kubernetes_version: "1.32".to_owned(),
            cluster_name: "lab".to_owned(),
            vcpu_quota: BTreeMap::new(),
            capacity: CapacityOptions::default(),
        }
    }
}

/// The simulated cloud; clones share it. Its machines' timers end when the last clone is dropped.
#[derive(Clone)]
pub struct Simulated(Arc<Inner>);

struct Inner {
    config: Config,
    clock: Clock,
    region: &'static str,
    zones: Vec<Zone>,
    types: BTreeMap<Arc<str>, Known>,
    prices: BTreeMap<Arc<str>, f64>,
    events: mpsc::Sender<Machine>,
    receiver: Mutex<Option<mpsc::Receiver<Machine>>>,
    state: Mutex<State>,
}

impl Simulated {
    /// A cloud with the built-in catalogue and nothing running.
    pub fn new(config: Config, clock: Clock) -> Self {
        Self::with_catalog(config, clock, Catalog::built_in())
    }

    /// A cloud with a catalogue of one's own.
    pub fn with_catalog(config: Config, clock: Clock, catalog: Catalog) -> Self {
        let (events, receiver) = mpsc::channel(EVENTS_WAITING);
        let mut types = BTreeMap::new();
        let mut prices = BTreeMap::new();
        for row in catalog.rows {
            prices.insert(row.hardware.name.clone(), row.on_demand_price);
            let known = Known::new(row.hardware, row.zones);
            types.insert(known.hardware.name.clone(), known);
        }
        Self(Arc::new(Inner {
            config,
            clock,
            region: catalog.region,
            zones: catalog.zones,
            types,
            prices,
            events,
            receiver: Mutex::new(Some(receiver)),
            state: Mutex::new(State::default()),
        }))
    }

    /// The machines' events, for the lab's kubelets. There is one reader: the first caller gets it, later ones get nothing.
    pub fn machine_events(&self) -> Option<mpsc::Receiver<Machine>> {
        let mut receiver = self
            .0
            .receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        receiver.take()
    }

    /// Adds a fault. Must be called within the runtime that the cloud lives in.
    pub fn inject(&self, fault: Fault) {
        let delayed = match &fault {
            Fault::SpotInterruption { after_seconds, .. } => {
                Some((Duration::from_secs(*after_seconds), fault.clone()))
            }
            _ => None,
        };
        let id = self.0.state().faults.add(fault);
        if let Some((after, fault)) = delayed {
            self.0
                .later(after, move |inner| inner.interrupt(id, &fault));
        }
    }

    /// Takes back every fault; an interruption whose notice was given goes on.
    pub fn clear_faults(&self) {
        self.0.state().faults.clear();
    }

    /// The faults that are set.
    pub fn faults(&self) -> Vec<Fault> {
        self.0.state().faults.all()
    }

    /// What the cloud has counted up to now.
    pub fn counters(&self) -> Counters {
        self.0.state().counters(self.0.clock.now())
    }

    /// Launch and terminate calls, oldest first (the last 100,000).
    pub fn calls(&self) -> Vec<Call> {
        self.0.state().ledger.calls.iter().cloned().collect()
    }

    /// When the first launch call at or after `mark` arrived.
    pub fn first_launch_since(&self, mark: Timestamp) -> Option<Timestamp> {
        let state = self.0.state();
        let calls = state.ledger.calls.iter();
        calls
            .filter(|c| c.verb == Verb::Launch)
            .map(|c| c.at)
            .find(|at| *at >= mark)
    }

    /// Every instance that is not gone, by provider id.
    pub fn instances(&self) -> Vec<Instance> {
        let state = self.0.state();
        state
            .instances
            .values()
            .map(|r| r.instance.clone())
            .collect()
    }

    /// Name of the region.
    pub fn region(&self) -> &'static str {
        self.0.region
    }

    /// Always true: whoever shows a spot price or a total that contains one says so.
    pub fn spot_prices_are_simulated(&self) -> bool {
        true
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random(&self, words: &[&str]) -> Random {
        Random::new(self.config.seed, words)
    }

    /// Runs something after a while and sends the events that come of it, unless the cloud is dropped before.
    fn later(
        self: &Arc<Self>,
        after: Duration,
        then: impl FnOnce(&Arc<Self>) -> Vec<Machine> + Send + 'static,
    ) {
        let (weak, clock) = (Arc::downgrade(self), self.clock.clone());
        tokio::spawn(async move {
            clock.sleep(after).await;
            let Some((events, sender)) = Weak::upgrade(&weak).map(|inner| {
                let events = then(&inner);
                (events, inner.events.clone())
            }) else {
                return;
            };
            for event in events {
                if sender.send(event).await.is_err() {
                    return; // nobody listens
                }
            }
        });
    }

    fn account(&self) -> Account<'_> {
        Account {
            seed: self.config.seed,
            cluster_name: &self.config.cluster_name,
            kubernetes_version: &self.config.kubernetes_version,
            zones: &self.zones,
        }
    }

    fn price(&self, hardware: &Hardware, zone: &Zone, capacity_type: CapacityType) -> Option<f64> {
        let on_demand = *self.prices.get(&hardware.name)?;
        match capacity_type {
            CapacityType::OnDemand => Some(on_demand),
            CapacityType::Spot => {
                let mut random = self.random(&["spot price", &hardware.name, &zone.name]);
                let share = random.between(2500, 4500) as f64 / 10_000.0;
                Some((on_demand * share * 1e6).round() / 1e6)
            }
            CapacityType::Reserved => None,
        }
    }

    /// The class with its instance types as they are now.
    fn class(&self, state: &mut State, class: &EC2NodeClass) -> Result<KnownClass, CloudError> {
        let text = serde_json::to_string(&class.spec).map_err(|error| {
            let message = format!("the class cannot be written as JSON: {error}");
            CloudError::new(
                "read node class",
                ErrorClass::Invalid,
                "InvalidClass",
                message,
            )
        })?;
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let key = format!("{name}\n{text}");
        Ok(state.class(&key, self.clock.now(), || {
            let resolved = self.account().resolve(class);
            let types = self.resolve_types(class, &resolved);
            (resolved, types)
        }))
    }

    fn resolve_types(
        &self,
        class: &EC2NodeClass,
        resolved: &ResolvedClass,
    ) -> Vec<Arc<InstanceType>> {
        let in_class = |zone: &Zone| {
            let subnets = &resolved.status.subnets;
            subnets.iter().any(|s| *s.zone == *zone.name)
        };
        let zones = self.zones.iter().filter(|z| in_class(z)).cloned().collect();
        let view = ClassView::new(&class.spec, zones);
        let market = Market {
            region: self.region,
            zones: &self.zones,
            price: &|hardware, zone, capacity_type| self.price(hardware, zone, capacity_type),
        };
        let types = self.types.values();
        types
            .map(|known| Arc::new(resolve(known, &view, &market, &self.config.capacity)))
            .collect()
    }

    fn throttled(&self, verb: Verb, action: &'static str) -> Result<(), CloudError> {
        if !self.state().faults.throttles(verb) {
            return Ok(());
        }
        let code = "RequestLimitExceeded";
        let mut error = CloudError::new(
            action,
            ErrorClass::Throttled,
            code,
            "request limit exceeded",
        );
        error.retry_after = Some(THROTTLE_WAIT);
        Err(error)
    }

    /// The instant at which a launch takes effect.
    fn make_instance(self: &Arc<Self>, request: &LaunchRequest) -> Result<Instance, CloudError> {
        let now = self.clock.now();
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(id) = state.tokens.get(&request.token) {
            return match state.instances.get(id) {
                Some(record) => Ok(record.instance.clone()),
                None => Err(launch_error(
                    "IdempotentInstanceTerminated",
                    format!("{id}, launched with this token, is gone"),
                )),
            };
        }
        if let Some(code) = state.faults.launch_error(request) {
            return Err(launch_error(&code, "injected"));
        }
        if request.class.metadata.deletion_timestamp.is_some() {
            let class = ErrorClass::InsufficientCapacity;
            let message = "the node class is being deleted";
            return Err(CloudError::new(
                "launch instance",
                class,
                "NodeClassTerminating",
                message,
            ));
        }
        let class = self.class(state, &request.class)?;
        if let Some((_, reason, message)) = class.resolved.problems.first() {
            let class = ErrorClass::ClassNotReady;
            return Err(CloudError::new("launch instance", class, reason, message));
        }
        let images = &class.resolved.status.amis;
        let candidates = choose::candidates(&class.current, request, images, |instance_type| {
            let known = self.types.get(&instance_type.name);
            known.is_some_and(|k| k.hardware.is_exotic())
        });
        let mut refused = None;
        for candidate in &candidates {
            match self.take(state, candidate, &request.token) {
                Ok(address) => {
                    return Ok(self.start(state, candidate, request, address, now));
                }
                Err(error) => {
                    let key = (
                        candidate.instance_type.name.clone(),
                        candidate.zone.clone(),
                        candidate.capacity_type,
                    );
                    state.mark_unavailable(key, now);
                    // Capacity that is missing anywhere outweighs a quota: another plan may do.
                    if refused
                        .as_ref()
                        .is_none_or(|e: &CloudError| e.class == ErrorClass::Quota)
                    {
                        refused = Some(error);
                    }
                }
            }
        }
        Err(refused.unwrap_or_else(|| {
            let message = "no offering that the request admits is available";
            launch_error("InsufficientInstanceCapacity", message)
        }))
    }

    /// Takes quota, stock and an address for a launch, or nothing.
    fn take(
        &self,
        state: &mut State,
        candidate: &Candidate<'_>,
        token: &str,
    ) -> Result<String, CloudError> {
        let capacity_type = candidate.capacity_type;
        let (name, zone) = (&candidate.instance_type.name, candidate.zone);
        let settings = self.config.vcpu_quota.get(&capacity_type).copied();
        let quota = match (settings, state.faults.vcpu_quota(capacity_type)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let vcpus = self.types.get(name).map_or(0, |k| k.hardware.vcpus);
        if quota.is_some_and(|most| state.vcpus(capacity_type).saturating_add(vcpus) > most) {
            let code = match capacity_type {
                CapacityType::Spot => "MaxSpotInstanceCountExceeded",
                _ => "VcpuLimitExceeded",
            };
            return Err(launch_error(
                code,
                format!("{name} would exceed the {capacity_type} vCPU quota"),
            ));
        }
        let Some(address) = self.free_address(state, zone, token) else {
            let message = format!("no free address in {zone}");
            return Err(launch_error("InsufficientFreeAddressesInSubnet", message));
        };
        if !state.faults.take_from_stock(name, zone, capacity_type) {
            let message = format!("no {capacity_type} capacity for {name} in {zone}");
            return Err(launch_error("InsufficientInstanceCapacity", message));
        }
        Ok(address)
    }

    /// An address of the zone's subnet that no machine has, drawn from the token.
    fn free_address(&self, state: &State, zone: &str, token: &str) -> Option<String> {
        let index = self.zones.iter().position(|z| *z.name == *zone)? as u64;
        let first = self.random(&["address", token]).between(0, ADDRESSES - 1);
        (0..ADDRESSES)
            .map(|step| {
                let host = index * 8192 + 4 + (first + step) % ADDRESSES;
                format!("10.0.{}.{}", host / 256 % 256, host % 256)
            })
            .find(|address| !state.addresses.contains(address))
    }

    /// Starts the machine for which everything has been taken.
    fn start(
        self: &Arc<Self>,
        state: &mut State,
        candidate: &Candidate<'_>,
        request: &LaunchRequest,
        address: String,
        now: Timestamp,
    ) -> Instance {
        let instance_type = candidate.instance_type;
        let zone = candidate.zone;
        let mut random = self.random(&["instance", &request.token]);
        let provider_id = loop {
            let id = format!("aws:///{zone}/i-{}", random.hex(17));
            if !state.instances.contains_key(&id) {
                break id;
            }
        };
        let zone_id = self.zones.iter().find(|z| z.name == *zone);
        let zone_id = zone_id.map_or("", |z| &z.id);
        let with_efa = has_efa(request);
        let amounts = |of: &Resources| {
            let mut of = of.clone();
            if !with_efa {
                of.remove(crate::api::names::resource::AWS_EFA);
            }
            of
        };
        let instance = Instance {
            provider_id: provider_id.clone(),
            token: request.token.clone(),
            claim: request.claim.clone(),
            instance_type: instance_type.name.to_string(),
            zone: zone.to_string(),
            capacity_type: candidate.capacity_type,
            image: candidate.image.to_owned(),
            price_per_hour: candidate.price,
            launched: now,
            terminating: false,
            labels: choose::labels(candidate, zone_id, &request.requirements),
            capacity: amounts(&instance_type.capacity),
            allocatable: amounts(&instance_type.allocatable),
        };
        let booted = Booted::new(
            &instance,
            request,
            address.clone(),
            &self.config.kubernetes_version,
        );
        let known = self.types.get(&instance_type.name);
        let record = Record {
            vcpus: known.map_or(0, |k| k.hardware.vcpus),
            node_name: booted.node_name.clone(),
            kubelet: (!state.faults.never_registers(request)).then_some(booted),
            instance: instance.clone(),
        };
        state.addresses.insert(address);
        state
            .tokens
            .insert(request.token.clone(), provider_id.clone());
        state.instances.insert(provider_id.clone(), record);
        state.ledger.launched += 1;
        let boot = self.random(&["boot", &request.token]).time(BOOT_TIME);
        self.later(boot, move |inner| {
            let state = inner.state();
            let record = state.instances.get(&provider_id);
            let running = record.filter(|r| !r.instance.terminating);
            let kubelet = running.and_then(|r| r.kubelet.clone());
            kubelet
                .map(|k| Machine::Booted(Box::new(k)))
                .into_iter()
                .collect()
        });
        instance
    }

    /// The instant at which a termination takes effect; `None` when the instance is gone already.
    fn begin_termination(self: &Arc<Self>, provider_id: &str) -> Option<Vec<Machine>> {
        let now = self.clock.now();
        let mut guard = self.state();
        let state = &mut *guard;
        let record = state.instances.get_mut(provider_id)?;
        if record.instance.terminating {
            return Some(Vec::new());
        }
        record.instance.terminating = true;
        let instance = &record.instance;
        state.ledger.closed_cost += ledger::cost(instance.price_per_hour, instance.launched, now);
        let node_name = record.node_name.clone();
        let after = self
            .random(&["end", &instance.token])
            .time(TERMINATION_TIME);
        let id = provider_id.to_owned();
        self.later(after, move |inner| inner.end(&id));
        Some(vec![Machine::Terminating {
            provider_id: provider_id.to_owned(),
            node_name,
        }])
    }

    /// The machine is gone.
    fn end(&self, provider_id: &str) -> Vec<Machine> {
        let mut state = self.state();
        let Some(record) = state.instances.remove(provider_id) else {
            return Vec::new();
        };
        state.ledger.terminated += 1;
        let address = record.node_name.trim_start_matches("ip-");
        let address = address.trim_end_matches(".ec2.internal").replace('-', ".");
        state.addresses.remove(&address);
        vec![Machine::Terminated {
            provider_id: provider_id.to_owned(),
            node_name: record.node_name,
        }]
    }

    /// Gives notice to the spot instances that an interruption strikes, and takes them back when it is over.
    fn interrupt(self: &Arc<Self>, fault_id: u64, fault: &Fault) -> Vec<Machine> {
        let Fault::SpotInterruption {
            offering, count, ..
        } = fault
        else {
            return Vec::new();
        };
        let state = self.state();
        if !state.faults.is_set(fault_id) {
            return Vec::new();
        }
        let at = self.clock.now().checked_add(INTERRUPTION_NOTICE);
        let at = at.unwrap_or(Timestamp::MAX);
        let struck = state.instances.values().filter(|r| {
            let i = &r.instance;
            let spot = i.capacity_type == CapacityType::Spot && !i.terminating;
            spot && offering.matches(&i.instance_type, &i.zone, i.capacity_type)
        });
        let struck = struck.take(count.unwrap_or(usize::MAX));
        struck
            .map(|record| {
                let id = record.instance.provider_id.clone();
                self.later(INTERRUPTION_NOTICE, move |inner| {
                    inner.begin_termination(&id).unwrap_or_default()
                });
                Machine::Interrupted {
                    provider_id: record.instance.provider_id.clone(),
                    node_name: record.node_name.clone(),
                    at,
                }
            })
            .collect()
    }

    fn not_found(action: &'static str, provider_id: &str) -> CloudError {
        let message = format!("instance {provider_id} does not exist");
        let code = "InvalidInstanceID.NotFound";
        CloudError::new(action, ErrorClass::NotFound, code, message)
    }
}

fn launch_error(code: &str, message: impl Into<String>) -> CloudError {
    CloudError::new("launch instance", ErrorClass::of_code(code), code, message)
}

/// Whether the instance gets fabric adapters: the class lists some, or something asks for them.
fn has_efa(request: &LaunchRequest) -> bool {
    let interfaces = request.class.spec.network_interfaces.iter().flatten();
    request.requests.get(crate::api::names::resource::AWS_EFA) > 0
        || interfaces
            .into_iter()
            .any(|i| i.interface_type == "efa-only")
}

impl Cloud for Simulated {
    fn instance_types<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Arc<Vec<Arc<InstanceType>>>, CloudError>> {
        Box::pin(async move {
            let known = self.0.class(&mut self.0.state(), class)?;
            if known.resolved.status.subnets.is_empty() {
                let class = ErrorClass::ClassNotReady;
                let code = "SubnetsNotFound";
                return Err(CloudError::new(
                    "list instance types",
                    class,
                    code,
                    "no subnets found",
                ));
            }
            Ok(known.current)
        })
    }

    fn resolve_class<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<ResolvedClass, CloudError>> {
        Box::pin(async move {
            let known = self.0.class(&mut self.0.state(), class)?;
            Ok(ResolvedClass::clone(&known.resolved))
        })
    }

    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<Instance, CloudError>> {
        Box::pin(async move {
            let inner = &self.0;
            let attempt = {
                let mut state = inner.state();
                let now = inner.clock.now();
                state.ledger.log(now, Verb::Launch, &request.claim);
                let attempts = state.attempts.entry(request.token.clone()).or_default();
                *attempts += 1;
                attempts.to_string()
            };
            if let Err(error) = inner.throttled(Verb::Launch, "launch instance") {
                inner.clock.sleep(CALL_TIME).await;
                return Err(error);
            }
            let hang = inner.state().faults.hang(request);
            let mut random = inner.random(&["launch", &request.token, &attempt]);
            let takes = random.time(LAUNCH_TIME);
            let before = takes * 3 / 4;
            if hang == Hang::WithoutInstance {
                pending::<()>().await;
            }
            inner.clock.sleep(before).await;
            let outcome = inner.make_instance(request);
            if hang == Hang::WithInstance {
                pending::<()>().await;
            }
            inner.clock.sleep(takes - before).await;
            outcome
        })
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> BoxFuture<'a, Result<Instance, CloudError>> {
        Box::pin(async move {
            let inner = &self.0;
            inner.clock.sleep(CALL_TIME).await;
            inner.throttled(Verb::Get, "get instance")?;
            let state = inner.state();
            let record = state.instances.get(provider_id);
            let instance = record.map(|r| r.instance.clone());
            instance.ok_or_else(|| Inner::not_found("get instance", provider_id))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>> {
        Box::pin(async move {
            self.0.clock.sleep(CALL_TIME).await;
            self.0.throttled(Verb::List, "list instances")?;
            Ok(self.instances())
        })
    }

    fn terminate<'a>(&'a self, provider_id: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(async move {
            let inner = &self.0;
            {
                let mut guard = inner.state();
                let state = &mut *guard;
                let record = state.instances.get(provider_id);
                let claim = record.map_or("", |r| &r.instance.claim).to_owned();
                let now = inner.clock.now();
                state.ledger.log(now, Verb::Terminate, &claim);
            }
            inner.clock.sleep(CALL_TIME / 2).await;
            inner.throttled(Verb::Terminate, "terminate instance")?;
            let Some(events) = inner.begin_termination(provider_id) else {
                return Err(Inner::not_found("terminate instance", provider_id));
            };
            inner.later(Duration::ZERO, move |_| events);
            inner.clock.sleep(CALL_TIME / 2).await;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
