//! A simulated EC2: the real catalogue, machines that boot and end in their time, and faults on demand.
//!
//! It keeps everything in memory, sleeps on our clock only, and draws what is random from a seed and from what each draw is for, so that
//! the same calls give the same history. **Spot prices are simulated** ([`Simulated::spot_prices_are_simulated`]): 25 to 45 % of the
//! on-demand price, drawn for each type and zone. On-demand prices are those of the catalogue. Must never: know about the product or the
//! lab; the lab reads [`Machine`] events and the product uses the [`Cloud`] trait.

mod choose;
mod class;
mod end;
pub mod faults;
mod launch;
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
    class::Account,
    faults::Hang,
    random::Random,
    state::{KnownClass, State},
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
use crate::{api::EC2NodeClass, clock::Clock};

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

    fn not_found(action: &'static str, provider_id: &str) -> CloudError {
        let message = format!("instance {provider_id} does not exist");
        let code = "InvalidInstanceID.NotFound";
        CloudError::new(action, ErrorClass::NotFound, code, message)
    }
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
