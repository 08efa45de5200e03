//! Things that go wrong in the simulated cloud, as data. A new lab fault is a new variant of [`Fault`] with its meaning here, and the one
//! place in this folder that asks for it.

use serde::{Deserialize, Serialize};

use crate::cloud::{CapacityType, LaunchRequest};

/// Which launches a fault strikes; what is not said matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LaunchMatch {
    /// NodeClaim name.
    pub claim: Option<String>,
    /// NodePool name.
    pub pool: Option<String>,
}

impl LaunchMatch {
    /// Whether it matches a launch.
    pub fn matches(&self, claim: &str, pool: &str) -> bool {
        self.claim.as_deref().is_none_or(|c| c == claim)
            && self.pool.as_deref().is_none_or(|p| p == pool)
    }
}

/// Which offerings a fault strikes; what is not said matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OfferingMatch {
    /// Instance type name.
    pub instance_type: Option<String>,
    /// Zone name.
    pub zone: Option<String>,
    /// Spot or on-demand.
    pub capacity_type: Option<CapacityType>,
}

impl OfferingMatch {
    /// Whether it matches an offering.
    pub fn matches(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> bool {
        self.instance_type
            .as_deref()
            .is_none_or(|t| t == instance_type)
            && self.zone.as_deref().is_none_or(|z| z == zone)
            && self.capacity_type.is_none_or(|c| c == capacity_type)
    }
}

/// A call that can be throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// Launch an instance.
    Launch,
    /// Read one instance.
    Get,
    /// Read all instances.
    List,
    /// Terminate an instance.
    Terminate,
}

/// One thing that goes wrong. Where `times` can be given, absent means for as long as the fault is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "fault",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Fault {
    /// The offerings that match hold `left` more instances between them, then the cloud answers `InsufficientInstanceCapacity`.
    StockOut {
        /// Which offerings.
        #[serde(default)]
        offering: OfferingMatch,
        /// Instances left.
        #[serde(default)]
        left: u32,
    },
    /// Launch calls never answer.
    LaunchHangs {
        /// Which launches.
        #[serde(default)]
        launch: LaunchMatch,
        /// Whether the instance is made all the same.
        #[serde(default)]
        instance_is_made: bool,
        /// How many calls.
        #[serde(default)]
        times: Option<u32>,
    },
    /// Launch calls fail with a code of EC2, whose class [`crate::cloud::ErrorClass::of_code`] knows.
    LaunchFails {
        /// Which launches.
        #[serde(default)]
        launch: LaunchMatch,
        /// EC2's error code.
        #[serde(default = "internal_error")]
        code: String,
        /// How many calls.
        #[serde(default)]
        times: Option<u32>,
    },
    /// Instances run, and cost, and their kubelet never starts.
    NeverRegisters {
        /// Which launches.
        #[serde(default)]
        launch: LaunchMatch,
        /// How many instances.
        #[serde(default)]
        times: Option<u32>,
    },
    /// Calls are refused with `RequestLimitExceeded`.
    Throttled {
        /// Which call; absent means all.
        #[serde(default)]
        verb: Option<Verb>,
        /// How many calls.
        #[serde(default)]
        times: Option<u32>,
    },
    /// The account may run so many vCPUs of a capacity type.
    VcpuQuota {
        /// Spot or on-demand.
        capacity_type: CapacityType,
        /// vCPUs in all.
        vcpus: u32,
    },
    /// Spot instances are taken back: a notice, and termination two minutes later.
    SpotInterruption {
        /// Which offerings the instances are of.
        #[serde(default)]
        offering: OfferingMatch,
        /// When the notice is given, in seconds after the fault was set.
        #[serde(default)]
        after_seconds: u64,
        /// How many instances at most, by provider id; absent means all that run at that time.
        #[serde(default)]
        count: Option<usize>,
    },
}

fn internal_error() -> String {
    "InternalError".to_owned()
}

/// The faults that are set, each with the number of times it has struck.
#[derive(Debug, Default)]
pub(super) struct Faults {
    set: Vec<Armed>,
    next_id: u64,
}

#[derive(Debug)]
struct Armed {
    id: u64,
    fault: Fault,
    struck: u32,
}

/// What a launch call meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hang {
    /// Nothing.
    No,
    /// It never answers and makes nothing.
    WithoutInstance,
    /// It never answers and makes the instance.
    WithInstance,
}

impl Faults {
    /// Adds a fault and returns its id.
    pub(super) fn add(&mut self, fault: Fault) -> u64 {
        self.next_id += 1;
        self.set.push(Armed {
            id: self.next_id,
            fault,
            struck: 0,
        });
        self.next_id
    }

    /// Forgets every fault.
    pub(super) fn clear(&mut self) {
        self.set.clear();
    }

    /// The faults that are set.
    pub(super) fn all(&self) -> Vec<Fault> {
        self.set.iter().map(|a| a.fault.clone()).collect()
    }

    /// Whether the fault of this id is still set.
    pub(super) fn is_set(&self, id: u64) -> bool {
        self.set.iter().any(|a| a.id == id)
    }

    /// Lets the first fault strike for which `limit` gives a number of times (`None` without end) that is not used up.
    fn strike<'a, T>(
        &'a mut self,
        limit: impl Fn(&'a Fault) -> Option<(Option<u32>, T)>,
    ) -> Option<T> {
        self.set.iter_mut().find_map(|armed| {
            let (times, found) = limit(&armed.fault)?;
            let strikes = times.is_none_or(|t| armed.struck < t);
            armed.struck = armed.struck.saturating_add(u32::from(strikes));
            strikes.then_some(found)
        })
    }

    pub(super) fn hang(&mut self, request: &LaunchRequest) -> Hang {
        self.strike(|fault| match fault {
            Fault::LaunchHangs {
                launch,
                instance_is_made,
                times,
            } if launch.matches(&request.claim, &request.pool) => Some((
                *times,
                if *instance_is_made {
                    Hang::WithInstance
                } else {
                    Hang::WithoutInstance
                },
            )),
            _ => None,
        })
        .unwrap_or(Hang::No)
    }

    pub(super) fn launch_error(&mut self, request: &LaunchRequest) -> Option<String> {
        self.strike(|fault| match fault {
            Fault::LaunchFails {
                launch,
                code,
                times,
            } if launch.matches(&request.claim, &request.pool) => Some((*times, code.clone())),
            _ => None,
        })
    }

    pub(super) fn never_registers(&mut self, request: &LaunchRequest) -> bool {
        self.strike(|fault| match fault {
            Fault::NeverRegisters { launch, times }
                if launch.matches(&request.claim, &request.pool) =>
            {
                Some((*times, ()))
            }
            _ => None,
        })
        .is_some()
    }

    pub(super) fn throttles(&mut self, call: Verb) -> bool {
        self.strike(|fault| match fault {
            Fault::Throttled { verb, times } if verb.is_none_or(|v| v == call) => {
                Some((*times, ()))
            }
            _ => None,
        })
        .is_some()
    }

    /// The lowest quota set for a capacity type.
    pub(super) fn vcpu_quota(&self, of: CapacityType) -> Option<u32> {
        let quotas = self.set.iter().filter_map(|armed| match armed.fault {
            Fault::VcpuQuota {
                capacity_type,
                vcpus,
            } if capacity_type == of => Some(vcpus),
            _ => None,
        });
        quotas.min()
    }

    /// Takes one instance of an offering from every stock that covers it; false, and nothing taken, when one of them is empty.
    pub(super) fn take_from_stock(
        &mut self,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
    ) -> bool {
        let mut covering: Vec<(&mut u32, u32)> = self
            .set
            .iter_mut()
            .filter_map(|armed| match &armed.fault {
                Fault::StockOut { offering, left }
                    if offering.matches(instance_type, zone, capacity_type) =>
                {
                    Some((&mut armed.struck, *left))
                }
                _ => None,
            })
            .collect();
        let enough = covering.iter().all(|(taken, left)| **taken < *left);
        if enough {
            for (taken, _) in &mut covering {
                **taken += 1;
            }
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_its_times() {
        let mut faults = Faults::default();
        faults.add(Fault::Throttled {
            verb: Some(Verb::Get),
            times: Some(2),
        });
        let struck: Vec<bool> = (0..3).map(|_| faults.throttles(Verb::Get)).collect();
        assert_eq!(struck, [true, true, false]);
        assert!(!faults.throttles(Verb::List));
        faults.add(Fault::Throttled {
            verb: None,
            times: None,
        });
        assert!(faults.throttles(Verb::List) && faults.throttles(Verb::Get));
        faults.clear();
        assert!(!faults.throttles(Verb::List));
    }

    #[test]
    fn stocks_overlap() {
        let stock = |zone: Option<&str>, left| Fault::StockOut {
            offering: OfferingMatch {
                zone: zone.map(str::to_owned),
                ..Default::default()
            },
            left,
        };
        let mut faults = Faults::default();
        faults.add(stock(None, 2));
        faults.add(stock(Some("a"), 1));
        let mut take = |zone| faults.take_from_stock("m5.large", zone, CapacityType::Spot);
        // One in a; none more in a; one elsewhere uses the last of both.
        assert_eq!(
            [take("a"), take("a"), take("b"), take("b")],
            [true, false, true, false]
        );
    }

    #[test]
    fn faults_are_written_in_scenarios() {
        let read = |text: &str| serde_json::from_str::<Fault>(text);
        assert_eq!(
            read(r#"{"fault":"stockOut","offering":{"capacityType":"on-demand"}}"#).unwrap(),
            Fault::StockOut {
                offering: OfferingMatch {
                    capacity_type: Some(CapacityType::OnDemand),
                    ..Default::default()
                },
                left: 0
            }
        );
        assert_eq!(
            read(r#"{"fault":"launchHangs","launch":{"pool":"a"},"times":1}"#).unwrap(),
            Fault::LaunchHangs {
                launch: LaunchMatch {
                    pool: Some("a".to_owned()),
                    claim: None
                },
                instance_is_made: false,
                times: Some(1)
            }
        );
        assert!(read(r#"{"fault":"stockOut","zone":"a"}"#).is_err());
        assert!(read(r#"{"fault":"launchHangs","launch":{"pol":"a"}}"#).is_err());
    }
}
