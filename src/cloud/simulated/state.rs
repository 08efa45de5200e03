//! Everything that the simulated cloud remembers, behind one lock that is never held across a wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    faults::Faults,
    ledger::{Counters, Ledger, cost},
    machine::Booted,
};
use crate::cloud::{CapacityType, Instance, InstanceType, ResolvedClass};

/// How long an offering that was out of stock is not offered again (upstream's constant).
pub(super) const UNAVAILABLE_FOR: Duration = Duration::from_secs(180);

/// Classes whose instance types are kept.
const CLASSES_KEPT: usize = 64;

/// Type, zone and capacity type.
pub(super) type OfferingKey = (Arc<str>, Arc<str>, CapacityType);

/// One instance that is not gone.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) instance: Instance,
    pub(super) vcpus: u32,
    /// What its kubelet will start with; `None` when it never starts.
    pub(super) kubelet: Option<Booted>,
    pub(super) node_name: String,
}

/// What a class resolved to.
#[derive(Clone, Debug)]
pub(super) struct KnownClass {
    pub(super) resolved: Arc<ResolvedClass>,
    /// Instance types without stock-outs.
    pub(super) plain: Arc<Vec<Arc<InstanceType>>>,
    /// Instance types with the stock-outs of a generation.
    pub(super) current: Arc<Vec<Arc<InstanceType>>>,
    pub(super) generation: u64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// By provider id.
    pub(super) instances: BTreeMap<String, Record>,
    /// Provider ids by launch token, those of instances that are gone included.
    pub(super) tokens: BTreeMap<String, String>,
    /// Launch calls by token, for the draws of each.
    pub(super) attempts: BTreeMap<String, u64>,
    pub(super) addresses: BTreeSet<String>,
    pub(super) faults: Faults,
    pub(super) ledger: Ledger,
    unavailable: BTreeMap<OfferingKey, Timestamp>,
    generation: u64,
    classes: BTreeMap<String, KnownClass>,
}

impl State {
    /// Takes an offering out of the listings for a while.
    pub(super) fn mark_unavailable(&mut self, offering: OfferingKey, now: Timestamp) {
        let until = now.checked_add(UNAVAILABLE_FOR).unwrap_or(Timestamp::MAX);
        self.unavailable.insert(offering, until);
        self.generation += 1;
    }

    /// The class under this key, brought up to date with the stock-outs; `make` resolves it when it is new.
    pub(super) fn class(
        &mut self,
        key: &str,
        now: Timestamp,
        make: impl FnOnce() -> (ResolvedClass, Vec<Arc<InstanceType>>),
    ) -> KnownClass {
        let marks = self.unavailable.len();
        self.unavailable.retain(|_, until| *until > now);
        if self.unavailable.len() != marks {
            self.generation += 1;
        }
        let known = match self.classes.get_mut(key) {
            Some(known) => known,
            None => {
                if self.classes.len() >= CLASSES_KEPT {
                    self.classes.clear();
                }
                let (resolved, types) = make();
                let plain = Arc::new(types);
                self.classes.entry(key.to_owned()).or_insert(KnownClass {
                    resolved: Arc::new(resolved),
                    current: plain.clone(),
                    plain,
                    generation: 0,
                })
            }
        };
        if known.generation != self.generation {
            known.generation = self.generation;
            known.current = with_stock_outs(&known.plain, &self.unavailable);
        }
        known.clone()
    }

    /// vCPUs of a capacity type that run now.
    pub(super) fn vcpus(&self, capacity_type: CapacityType) -> u32 {
        let running = self.instances.values();
        running
            .filter(|r| r.instance.capacity_type == capacity_type && !r.instance.terminating)
            .map(|r| r.vcpus)
            .sum()
    }

    pub(super) fn counters(&self, now: Timestamp) -> Counters {
        let running = || {
            let all = self.instances.values().map(|r| &r.instance);
            all.filter(|i| !i.terminating)
        };
        let open_cost: f64 = running()
            .map(|i| cost(i.price_per_hour, i.launched, now))
            .sum();
        Counters {
            launched: self.ledger.launched,
            terminated: self.ledger.terminated,
            left_over: self.instances.len() as u64,
            price_per_hour: running().map(|i| i.price_per_hour).sum(),
            accrued_cost: self.ledger.closed_cost + open_cost,
        }
    }
}

/// The types with the offerings that are marked made unavailable; types without a mark are shared.
fn with_stock_outs(
    plain: &Arc<Vec<Arc<InstanceType>>>,
    unavailable: &BTreeMap<OfferingKey, Timestamp>,
) -> Arc<Vec<Arc<InstanceType>>> {
    if unavailable.is_empty() {
        return plain.clone();
    }
    let marked: BTreeSet<&str> = unavailable.keys().map(|k| &*k.0).collect();
    let types = plain.iter().map(|plain| {
        if !marked.contains(&*plain.name) {
            return plain.clone();
        }
        let mut changed = InstanceType::clone(plain);
        for offering in &mut changed.offerings {
            let key = (
                plain.name.clone(),
                offering.zone.clone(),
                offering.capacity_type,
            );
            offering.available &= !unavailable.contains_key(&key);
        }
        Arc::new(changed)
    });
    Arc::new(types.collect())
}
