//! The requirement algebra: what `key operator values` means, how two of them meet, and when a node side satisfies a pod side.
//!
//! Behaviour is upstream's (`spec/scheduling.md` section 2): a requirement is a set of values, possibly complemented, with optional
//! inclusive integer bounds; a missing key reads as `Exists`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use crate::api::names;

/// A label key or value, shared so that copies cost a counter.
pub type Text = Arc<str>;

/// The operators of a requirement, as users write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The value is one of the listed ones.
    In,
    /// The value is none of the listed ones; an absent label satisfies it.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// Integer greater than the one value.
    Gt,
    /// Integer less than the one value.
    Lt,
    /// Integer greater than or equal to the one value.
    Gte,
    /// Integer less than or equal to the one value.
    Lte,
}

impl Operator {
    /// Every operator, in the order of the API documentation.
    pub const ALL: [Self; 8] = [
        Self::In,
        Self::NotIn,
        Self::Exists,
        Self::DoesNotExist,
        Self::Gt,
        Self::Lt,
        Self::Gte,
        Self::Lte,
    ];

    /// The name as written in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }

    /// Reads the exact, case-sensitive name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.as_str() == text)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a requirement could not be built from what a user wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// The operator is none of the eight.
    #[error("operator {0:?} is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte")]
    Operator(String),
    /// A comparison needs exactly one integer that is not negative.
    #[error(
        "operator {operator} on {key} needs exactly one integer value of at least 0, got {values:?}"
    )]
    Bound {
        /// The label key.
        key: String,
        /// The comparison.
        operator: Operator,
        /// What was given.
        values: Vec<String>,
    },
    /// `In` with an empty list admits nothing.
    #[error("operator In on {0} needs at least one value")]
    NoValues(String),
}

/// One label's admitted values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// Label key, aliases already replaced.
    pub key: Text,
    /// True when `values` are the excluded ones.
    pub complement: bool,
    /// Admitted values, or the excluded ones of a complement.
    pub values: BTreeSet<Text>,
    /// Inclusive lower bound on the value read as an integer.
    pub gte: Option<i64>,
    /// Inclusive upper bound on the value read as an integer.
    pub lte: Option<i64>,
    /// How many distinct values must stay available at launch.
    pub min_values: Option<u32>,
}

impl Requirement {
    /// Builds a requirement as upstream does: aliases replaced, `Gt`/`Lt` turned into inclusive bounds.
    ///
    /// # Errors
    /// When a comparison does not have exactly one non-negative integer, or `In` has no value.
    pub fn new<S: AsRef<str>>(
        key: &str,
        operator: Operator,
        values: &[S],
        min_values: Option<u32>,
    ) -> Result<Self, RequirementError> {
        if operator == Operator::In && values.is_empty() {
            return Err(RequirementError::NoValues(key.to_owned()));
        }
        let bound = || match values {
            [one] => one.as_ref().parse::<i64>().ok().filter(|n| *n >= 0),
            _ => None,
        };
        let bad = || RequirementError::Bound {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|v| v.as_ref().to_owned()).collect(),
        };
        let mut requirement = Self {
            key: names::normalize_key(key).into(),
            complement: !matches!(operator, Operator::In | Operator::DoesNotExist),
            values: BTreeSet::new(),
            gte: None,
            lte: None,
            min_values,
        };
        match operator {
            Operator::In | Operator::NotIn => {
                requirement.values = values.iter().map(|v| v.as_ref().into()).collect();
            }
            Operator::Exists | Operator::DoesNotExist => {}
            Operator::Gt => match bound().ok_or_else(bad)?.checked_add(1) {
                Some(least) => requirement.gte = Some(least),
                None => return Ok(Self::does_not_exist(key)),
            },
            Operator::Lt => requirement.lte = Some(bound().ok_or_else(bad)? - 1),
            Operator::Gte => requirement.gte = Some(bound().ok_or_else(bad)?),
            Operator::Lte => requirement.lte = Some(bound().ok_or_else(bad)?),
        }
        Ok(requirement)
    }

    /// `key In values`; an empty list is `DoesNotExist`.
    pub fn of<S: AsRef<str>>(key: &str, values: impl IntoIterator<Item = S>) -> Self {
        Self {
            values: values.into_iter().map(|v| v.as_ref().into()).collect(),
            ..Self::does_not_exist(key)
        }
    }

    /// `key Exists`: any value.
    pub fn exists(key: &str) -> Self {
        Self {
            complement: true,
            ..Self::does_not_exist(key)
        }
    }

    /// `key DoesNotExist`: no value.
    pub fn does_not_exist(key: &str) -> Self {
        Self {
            key: names::normalize_key(key).into(),
            complement: false,
            values: BTreeSet::new(),
            gte: None,
            lte: None,
            min_values: None,
        }
    }

    /// The operator that describes the set; bounds do not change the name.
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, false) => Operator::NotIn,
            (true, true) => Operator::Exists,
            (false, true) => Operator::DoesNotExist,
            (false, false) => Operator::In,
        }
    }

    /// Whether a label with this value satisfies the requirement.
    pub fn has(&self, value: &str) -> bool {
        self.values.contains(value) != self.complement && self.in_bounds(value)
    }

    /// Whether the set is an explicit list (possibly empty).
    pub fn is_finite(&self) -> bool {
        !self.complement
    }

    /// The only admitted value, when there is exactly one.
    pub fn single(&self) -> Option<&Text> {
        match (self.complement, self.values.len()) {
            (false, 1) => self.values.first(),
            _ => None,
        }
    }

    fn in_bounds(&self, value: &str) -> bool {
        if self.gte.is_none() && self.lte.is_none() {
            return true;
        }
        value
            .parse::<i64>()
            .is_ok_and(|n| self.gte.is_none_or(|g| n >= g) && self.lte.is_none_or(|l| n <= l))
    }

    /// The values that both admit.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let min_values = self.min_values.max(other.min_values);
        if gte.zip(lte).is_some_and(|(g, l)| g > l) {
            return Self {
                min_values,
                key: self.key.clone(),
                ..Self::does_not_exist(&self.key)
            };
        }
        let (complement, values): (bool, BTreeSet<Text>) = match (self.complement, other.complement)
        {
            (true, true) => (true, self.values.union(&other.values).cloned().collect()),
            (true, false) => (
                false,
                other.values.difference(&self.values).cloned().collect(),
            ),
            (false, true) => (
                false,
                self.values.difference(&other.values).cloned().collect(),
            ),
            (false, false) => (
                false,
                self.values.intersection(&other.values).cloned().collect(),
            ),
        };
        let mut out = Self {
            key: self.key.clone(),
            complement,
            values,
            gte,
            lte,
            min_values,
        };
        let bounded = out.gte.is_some() || out.lte.is_some();
        if bounded {
            let kept = out
                .values
                .iter()
                .filter(|v| out.in_bounds(v))
                .cloned()
                .collect();
            out.values = kept;
        }
        if !complement {
            out.gte = None;
            out.lte = None;
        }
        out
    }

    /// Whether some value may satisfy both. Two complements always overlap unless their bounds cross (upstream's rule).
    pub fn overlaps(&self, other: &Self) -> bool {
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if gte.zip(lte).is_some_and(|(g, l)| g > l) {
            return false;
        }
        match (self.complement, other.complement) {
            (true, true) => true,
            (false, _) => self
                .values
                .iter()
                .any(|v| self.in_bounds(v) && other.has(v)),
            (true, false) => other
                .values
                .iter()
                .any(|v| other.in_bounds(v) && self.has(v)),
        }
    }

    /// Whether the two can hold of one node: some value may satisfy both, or the label's absence does.
    pub fn meets(&self, other: &Self) -> bool {
        self.overlaps(other) || (self.admits_absence() && other.admits_absence())
    }

    /// Whether an absent label satisfies it (`NotIn` and `DoesNotExist` do).
    pub fn admits_absence(&self) -> bool {
        matches!(self.operator(), Operator::NotIn | Operator::DoesNotExist)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.operator())?;
        if !self.values.is_empty() {
            let values: Vec<&str> = self.values.iter().map(|v| &**v).collect();
            write!(f, " {}", values.join(","))?;
        }
        if let Some(g) = self.gte {
            write!(f, " Gte {g}")?;
        }
        if let Some(l) = self.lte {
            write!(f, " Lte {l}")?;
        }
        if let Some(n) = self.min_values {
            write!(f, " min={n}")?;
        }
        Ok(())
    }
}

/// Which keys an incoming side may name although the node side does not define them.
#[derive(Clone, Copy)]
pub enum Undefined<'a> {
    /// None: existing nodes, where what is not on the node is not there.
    Denied,
    /// Those for which the function says true: new nodes, whose well-known labels the provider fills in.
    AllowedIf(&'a dyn Fn(&str) -> bool),
}

/// One key on which two sides cannot meet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conflict {
    /// The incoming side names a key that the node side does not define.
    Undefined {
        /// What was asked for.
        incoming: Requirement,
    },
    /// Both sides define the key and no value satisfies both.
    Disjoint {
        /// What was asked for.
        incoming: Requirement,
        /// What the node side offers.
        existing: Requirement,
    },
}

impl Conflict {
    /// The label key in question.
    pub fn key(&self) -> &Text {
        match self {
            Self::Undefined { incoming } | Self::Disjoint { incoming, .. } => &incoming.key,
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined { incoming } => write!(
                f,
                "label {} is not defined (wanted: {incoming})",
                incoming.key
            ),
            Self::Disjoint { incoming, existing } => {
                write!(f, "wanted {incoming}, there is {existing}")
            }
        }
    }
}

/// Requirements by key; adding a key that is there narrows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirements(BTreeMap<Text, Requirement>);

impl Requirements {
    /// No requirement: everything is admitted.
    pub fn new() -> Self {
        Self::default()
    }

    /// One `In` requirement per label.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        labels
            .into_iter()
            .map(|(k, v)| Requirement::of(k, [v]))
            .collect()
    }

    /// Adds a requirement, narrowing what is there for its key.
    pub fn add(&mut self, requirement: Requirement) {
        match self.0.get_mut(&requirement.key) {
            Some(there) => *there = there.intersection(&requirement),
            None => {
                self.0.insert(requirement.key.clone(), requirement);
            }
        }
    }

    /// Replaces whatever is there for the key.
    pub fn replace(&mut self, requirement: Requirement) {
        self.0.insert(requirement.key.clone(), requirement);
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        self.0.remove(key)
    }

    /// Adds all of another set.
    pub fn add_all(&mut self, other: &Self) {
        for r in other.iter() {
            self.add(r.clone());
        }
    }

    /// The requirement of a key, if it has one.
    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.0.get(key)
    }

    /// Whether the key has a requirement.
    pub fn defines(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// By key, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.0.values()
    }

    /// How many keys are constrained.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is constrained.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any requirement has `minValues`.
    pub fn has_min_values(&self) -> bool {
        self.iter().any(|r| r.min_values.is_some())
    }

    /// [`Self::intersects`] without the reasons.
    pub fn meets(&self, incoming: &Self) -> bool {
        incoming
            .iter()
            .all(|r| self.get(&r.key).is_none_or(|existing| existing.meets(r)))
    }

    /// [`Self::compatible`] without the reasons.
    pub fn admits(&self, incoming: &Self, undefined: Undefined<'_>) -> bool {
        let may_be_undefined = |key: &str| match undefined {
            Undefined::Denied => false,
            Undefined::AllowedIf(allowed) => allowed(key),
        };
        incoming.iter().all(|r| match self.get(&r.key) {
            Some(existing) => existing.meets(r),
            None => r.admits_absence() || may_be_undefined(&r.key),
        })
    }

    /// Whether `incoming` can be satisfied here: every key it names is defined (or may be undefined), and no key conflicts.
    ///
    /// # Errors
    /// The first undefined key, else every key on which the two sides are disjoint.
    pub fn compatible(
        &self,
        incoming: &Self,
        undefined: Undefined<'_>,
    ) -> Result<(), Vec<Conflict>> {
        for r in incoming.iter() {
            let may_be_undefined = match undefined {
                Undefined::Denied => false,
                Undefined::AllowedIf(allowed) => allowed(&r.key),
            };
            if !may_be_undefined && !self.defines(&r.key) && !r.admits_absence() {
                return Err(vec![Conflict::Undefined {
                    incoming: r.clone(),
                }]);
            }
        }
        self.intersects(incoming)
    }

    /// Whether no key that both sides define is disjoint; absence satisfies `NotIn` and `DoesNotExist` on both sides.
    ///
    /// # Errors
    /// Every key on which the two sides are disjoint.
    pub fn intersects(&self, incoming: &Self) -> Result<(), Vec<Conflict>> {
        let conflicts: Vec<Conflict> = incoming
            .iter()
            .filter_map(|r| {
                let existing = self.get(&r.key)?;
                (!existing.meets(r)).then(|| Conflict::Disjoint {
                    incoming: r.clone(),
                    existing: existing.clone(),
                })
            })
            .collect();
        if conflicts.is_empty() {
            Ok(())
        } else {
            Err(conflicts)
        }
    }
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(iter: I) -> Self {
        let mut all = Self::new();
        for r in iter {
            all.add(r);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUES: [&str; 8] = ["a", "b", "0", "3", "4", "07", "9", "-2"];

    fn any_requirement() -> impl Strategy<Value = Requirement> {
        let values = prop::sample::subsequence(VALUES.to_vec(), 1..4);
        let operator = prop::sample::select(Operator::ALL.to_vec());
        let least = prop::option::of(1_u32..4);
        (operator, values, 0_i64..10, least).prop_map(|(operator, values, bound, least)| {
            let bound = bound.to_string();
            let values = match operator {
                Operator::In | Operator::NotIn => values,
                Operator::Exists | Operator::DoesNotExist => Vec::new(),
                _ => vec![bound.as_str()],
            };
            Requirement::new("k", operator, &values, least).unwrap()
        })
    }

    proptest! {
        #[test]
        fn a_value_is_in_the_intersection_if_it_is_in_both(
            a in any_requirement(), b in any_requirement(), c in any_requirement(),
        ) {
            let both = a.intersection(&b).intersection(&c);
            for value in VALUES {
                prop_assert_eq!(both.has(value), a.has(value) && b.has(value) && c.has(value), "{} {}", both, value);
            }
            prop_assert_eq!(both.min_values, a.min_values.max(b.min_values).max(c.min_values));
        }

        #[test]
        fn the_intersection_does_not_depend_on_the_order(a in any_requirement(), b in any_requirement()) {
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
            prop_assert_eq!(a.intersection(&a), a);
        }

        #[test]
        fn what_has_a_common_value_overlaps(a in any_requirement(), b in any_requirement()) {
            let common = VALUES.iter().any(|v| a.has(v) && b.has(v));
            prop_assert!(!common || a.overlaps(&b));
            if a.is_finite() || b.is_finite() {
                prop_assert_eq!(a.overlaps(&b), common);
            }
        }
    }

    #[test]
    fn what_cannot_be_read() {
        let new = |operator, values: &[&str]| Requirement::new("k", operator, values, None);
        for bad in [
            &["x"][..],
            &["-3"],
            &["1", "2"],
            &[],
            &["1.5"],
            &["99999999999999999999"],
        ] {
            assert!(
                matches!(new(Operator::Gt, bad), Err(RequirementError::Bound { .. })),
                "{bad:?}"
            );
        }
        assert_eq!(
            new(Operator::In, &[]),
            Err(RequirementError::NoValues("k".to_owned()))
        );
        assert_eq!(Operator::parse("in"), None);
    }

    #[test]
    fn the_first_undefined_key_is_the_reason_else_every_disjoint_one() {
        let set = |all: &[Requirement]| all.iter().cloned().collect::<Requirements>();
        let node = set(&[Requirement::of("a", ["1"]), Requirement::of("b", ["1"])]);
        let wanted = set(&[Requirement::of("a", ["2"]), Requirement::of("b", ["2"])]);
        let conflicts = node.compatible(&wanted, Undefined::Denied).unwrap_err();
        let keys: Vec<&str> = conflicts.iter().map(|c| &**c.key()).collect();
        assert_eq!(keys, ["a", "b"]);
        let undefined = set(&[Requirement::of("a", ["2"]), Requirement::exists("c")]);
        let conflicts = node.compatible(&undefined, Undefined::Denied).unwrap_err();
        assert_eq!(
            conflicts,
            [Conflict::Undefined {
                incoming: Requirement::exists("c")
            }]
        );
    }
}
