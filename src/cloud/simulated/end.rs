//! How instances end: terminated by a call, or taken back by the cloud.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    INTERRUPTION_NOTICE, Inner, TERMINATION_TIME, faults::Fault, ledger, machine::Machine,
};
use crate::cloud::CapacityType;

impl Inner {
    /// The instant at which a termination takes effect; `None` when the instance is gone already.
    pub(super) fn begin_termination(self: &Arc<Self>, provider_id: &str) -> Option<Vec<Machine>> {
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
    pub(super) fn interrupt(self: &Arc<Self>, fault_id: u64, fault: &Fault) -> Vec<Machine> {
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
}
