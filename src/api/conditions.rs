//! Status conditions: one type for all kinds, and the rules by which they change.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::condition::READY;

/// Reason of a dependent condition that nothing has looked at yet.
pub const AWAITING_RECONCILIATION: &str = "AwaitingReconciliation";
const AWAITING_MESSAGE: &str = "object is awaiting reconciliation";
/// Reason of `Ready` when a dependent is False.
pub const UNHEALTHY_DEPENDENTS: &str = "UnhealthyDependents";
/// Reason of `Ready` when no dependent is False but not all are True.
pub const RECONCILING_DEPENDENTS: &str = "ReconcilingDependents";

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can say yet.
    #[default]
    #[serde(other)]
    Unknown,
}

impl ConditionStatus {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// One aspect of an object's state, as last observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Name of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    #[serde(default)]
    pub status: ConditionStatus,
    /// One word for why the status is what it is.
    #[serde(default)]
    pub reason: String,
    /// The same in words for people.
    #[serde(default)]
    pub message: String,
    /// When the status last changed.
    pub last_transition_time: Time,
    /// Generation of the object that this was observed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The condition of this type.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// The status of the condition; none if it is absent.
pub fn status(conditions: &[Condition], type_: &str) -> Option<ConditionStatus> {
    get(conditions, type_).map(|condition| condition.status)
}

/// Whether the condition is present and True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    status(conditions, type_) == Some(ConditionStatus::True)
}

/// Whether the condition is present and False.
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    status(conditions, type_) == Some(ConditionStatus::False)
}

/// When the condition's status last changed.
pub fn since(conditions: &[Condition], type_: &str) -> Option<Timestamp> {
    get(conditions, type_).map(|condition| condition.last_transition_time.0)
}

/// Sets a condition and says whether anything changed. The transition time moves only with the status; a condition
/// that is True without a reason gets its own name as reason. `Ready` stays last.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
    generation: i64,
) -> bool {
    let reason = if reason.is_empty() && status == ConditionStatus::True {
        type_
    } else {
        reason
    };
    let mut condition = Condition {
        type_: type_.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: whole_seconds(now),
        observed_generation: Some(generation),
    };
    match conditions.iter_mut().find(|held| held.type_ == type_) {
        Some(held) => {
            if held.status == status {
                condition.last_transition_time = held.last_transition_time.clone();
            }
            if *held == condition {
                return false;
            }
            *held = condition;
        }
        None => {
            let end = conditions.len()
                - usize::from(conditions.last().is_some_and(|last| last.type_ == READY));
            conditions.insert(
                if type_ == READY {
                    conditions.len()
                } else {
                    end
                },
                condition,
            );
        }
    }
    true
}

/// Sets a condition True with its own name as reason and no message.
pub fn set_true(
    conditions: &mut Vec<Condition>,
    type_: &str,
    now: Timestamp,
    generation: i64,
) -> bool {
    set(
        conditions,
        type_,
        ConditionStatus::True,
        "",
        "",
        now,
        generation,
    )
}

/// Removes a condition and says whether it was there.
pub fn clear(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

/// Adds each dependent that is absent as Unknown, awaiting reconciliation since the object was created.
pub fn await_dependents(
    conditions: &mut Vec<Condition>,
    dependents: &[&str],
    created: Timestamp,
    generation: i64,
) -> bool {
    let mut changed = false;
    for dependent in dependents {
        if get(conditions, dependent).is_none() {
            let unknown = ConditionStatus::Unknown;
            changed |= set(
                conditions,
                dependent,
                unknown,
                AWAITING_RECONCILIATION,
                AWAITING_MESSAGE,
                created,
                generation,
            );
        }
    }
    changed
}

/// Derives `Ready` from its dependents and says whether it changed: True when all are True at this generation, False
/// when one is False at it, else Unknown. The message lists the offenders, newest transition first.
pub fn ready(
    conditions: &mut Vec<Condition>,
    dependents: &[&str],
    now: Timestamp,
    generation: i64,
) -> bool {
    let mut offenders: Vec<(Timestamp, String)> = Vec::new();
    let mut any_false = false;
    for dependent in dependents {
        let (at, status, current) = match get(conditions, dependent) {
            Some(c) => (
                c.last_transition_time.0,
                c.status,
                c.observed_generation == Some(generation),
            ),
            None => (Timestamp::MIN, ConditionStatus::Unknown, true),
        };
        if status != ConditionStatus::True || !current {
            any_false |= current && status == ConditionStatus::False;
            // A verdict on an older generation says nothing about this one.
            let told = if current {
                status
            } else {
                ConditionStatus::Unknown
            };
            offenders.push((at, format!("{dependent}={}", told.as_str())));
        }
    }
    offenders.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let message = offenders
        .into_iter()
        .map(|(_, told)| told)
        .collect::<Vec<_>>()
        .join(", ");
    let (status, reason) = match (message.is_empty(), any_false) {
        (true, _) => (ConditionStatus::True, ""),
        (false, true) => (ConditionStatus::False, UNHEALTHY_DEPENDENTS),
        (false, false) => (ConditionStatus::Unknown, RECONCILING_DEPENDENTS),
    };
    set(conditions, READY, status, reason, &message, now, generation)
}

/// Transition times are stored in whole seconds, so they are kept so.
fn whole_seconds(time: Timestamp) -> Time {
    let nanos = time.as_nanosecond().div_euclid(1_000_000_000) * 1_000_000_000;
    Time(Timestamp::from_nanosecond(nanos).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn time_moves_only_with_the_status() {
        let mut all = Vec::new();
        assert!(set_true(&mut all, "Launched", at(10), 1));
        assert!(!set_true(&mut all, "Launched", at(20), 1));
        assert_eq!(get(&all, "Launched").unwrap().reason, "Launched");
        assert!(
            set_true(&mut all, "Launched", at(30), 2),
            "the generation is news"
        );
        assert_eq!(since(&all, "Launched"), Some(at(10)));
        assert!(set(
            &mut all,
            "Launched",
            ConditionStatus::False,
            "Gone",
            "no instance",
            at(40),
            2
        ));
        assert_eq!(since(&all, "Launched"), Some(at(40)));
        assert!(is_false(&all, "Launched") && !is_true(&all, "Launched"));
        assert!(clear(&mut all, "Launched") && !clear(&mut all, "Launched"));
    }

    #[test]
    fn times_are_whole_seconds() {
        let mut all = Vec::new();
        set_true(
            &mut all,
            "Launched",
            Timestamp::from_millisecond(10_900).unwrap(),
            1,
        );
        assert_eq!(since(&all, "Launched"), Some(at(10)));
    }

    #[test]
    fn ready_follows_its_dependents_and_stays_last() {
        let dependents = ["Launched", "Registered"];
        let mut all = Vec::new();
        assert!(await_dependents(&mut all, &dependents, at(1), 1));
        assert!(!await_dependents(&mut all, &dependents, at(2), 1));
        assert_eq!(
            get(&all, "Launched").unwrap().reason,
            "AwaitingReconciliation"
        );

        ready(&mut all, &dependents, at(2), 1);
        let told = |all: &[Condition]| {
            let ready = get(all, "Ready").unwrap();
            (ready.status, ready.reason.clone(), ready.message.clone())
        };
        let unknown = (ConditionStatus::Unknown, "ReconcilingDependents".to_owned());
        assert_eq!(
            told(&all),
            (
                unknown.0,
                unknown.1.clone(),
                "Launched=Unknown, Registered=Unknown".to_owned()
            )
        );

        set(
            &mut all,
            "Registered",
            ConditionStatus::False,
            "NoNode",
            "",
            at(3),
            1,
        );
        ready(&mut all, &dependents, at(3), 1);
        let message = "Registered=False, Launched=Unknown".to_owned();
        assert_eq!(
            told(&all),
            (
                ConditionStatus::False,
                "UnhealthyDependents".to_owned(),
                message
            )
        );

        set_true(&mut all, "Launched", at(4), 1);
        set_true(&mut all, "Registered", at(4), 1);
        set_true(&mut all, "Initialized", at(4), 1);
        assert!(ready(&mut all, &dependents, at(5), 1));
        assert_eq!(
            told(&all),
            (ConditionStatus::True, "Ready".to_owned(), String::new())
        );
        assert_eq!(all.last().unwrap().type_, "Ready");

        ready(&mut all, &dependents, at(6), 2);
        assert_eq!(
            told(&all).0,
            ConditionStatus::Unknown,
            "what held for generation 1 says nothing about 2"
        );
    }

    #[test]
    fn an_odd_status_reads_as_unknown() {
        let json = r#"{"type":"X","status":"Maybe","lastTransitionTime":"2025-01-01T00:00:00Z"}"#;
        let condition: Condition = serde_json::from_str(json).unwrap();
        assert_eq!(condition.status, ConditionStatus::Unknown);
    }
}
