//! The solver's reasons in words: one place, so that events, logs and explanations say the same.

use std::fmt::{self, Write};

use crate::{
    scheduling::{Ignored, Pending, Refusal, TypeRefusal},
    units::Resources,
};

/// Pools named before the rest is only counted: an event is a line, not a report.
const POOLS_NAMED: usize = 5;

/// Why a pod has no place.
pub fn pending(pending: &Pending) -> String {
    match pending {
        Pending::NoPools => "no NodePool is Ready to launch nodes".to_owned(),
        Pending::NoInstanceTypes => {
            "no NodePool has an instance type that its own requirements admit".to_owned()
        }
        Pending::Refused(pools) => {
            let named: Vec<String> = pools
                .iter()
                .take(POOLS_NAMED)
                .map(|(pool, why)| format!("NodePool {pool}: {}", Words(why)))
                .collect();
            let mut text = named.join("; ");
            if pools.len() > POOLS_NAMED {
                let _ = write!(text, "; and {} more", pools.len() - POOLS_NAMED);
            }
            text
        }
    }
}

/// Why a pod was not tried; `None` for pods that are simply not waiting for a node.
pub fn ignored(why: &Ignored) -> Option<String> {
    Some(match why {
        Ignored::NotProvisionable | Ignored::OptedOut => return None,
        Ignored::RestrictedLabel(key) => {
            format!("label {key} cannot be asked for: only the node itself or Tenon sets it")
        }
        Ignored::Malformed(what) => format!("the node selector or affinity cannot be read: {what}"),
        Ignored::MatchFields => {
            "matchFields names an existing node; no new node can satisfy it".to_owned()
        }
        Ignored::UnknownValue(what) => format!("no known value is asked for: {what}"),
    })
}

struct Words<'a>(&'a Refusal);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Refusal::Taint(taints) => write!(f, "taint {} is not tolerated", list(taints)),
            Refusal::UndefinedLabel(conflict) => write!(f, "{conflict}"),
            Refusal::Requirements(conflicts) => f.write_str(&list(conflicts)),
            Refusal::NodeLimit => f.write_str("its limit of nodes is reached"),
            Refusal::Limits { remaining } => write!(
                f,
                "its limits leave {}, too little for any type",
                amounts(remaining)
            ),
            Refusal::MinValues(keys) => write!(f, "minValues of {} cannot be met", keys.join(", ")),
            Refusal::InstanceTypes(why) => types(f, why),
            Refusal::Held(until) => write!(
                f,
                "held back until {until} after launches that did not come up"
            ),
            Refusal::NoCatalog => f.write_str("its instance types are not known yet"),
            Refusal::Malformed(what) => write!(f, "a selector cannot be read: {what}"),
            Refusal::Unsupported(what) => write!(f, "{} is not supported yet", what.join(", ")),
        }
    }
}

fn types(f: &mut fmt::Formatter<'_>, why: &TypeRefusal) -> fmt::Result {
    let unmet: Vec<&str> = [
        (why.requirements_met, "requirements"),
        (why.resources_met, "resources"),
        (why.offering_met, "available offerings"),
    ]
    .into_iter()
    .filter_map(|(met, name)| (!met).then_some(name))
    .collect();
    if unmet.is_empty() {
        f.write_str("no instance type meets requirements, resources and offerings together")?;
    } else {
        write!(f, "no instance type meets its {}", unmet.join(" or "))?;
    }
    write!(f, " (wanted {})", amounts(&why.requested))?;
    match &why.nearest {
        Some((name, lacking)) if !lacking.is_empty() => {
            write!(f, "; nearest is {name}, short of {}", amounts(lacking))
        }
        _ => Ok(()),
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items
        .iter()
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

fn amounts(resources: &Resources) -> String {
    let all: Vec<String> = resources
        .to_quantities()
        .iter()
        .map(|(name, amount)| format!("{amount} {name}"))
        .collect();
    all.join(", ")
}
