//! Resource amounts as integers, for everything that decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as K8sQuantity;

use super::quantity::{Format, ParseQuantityError, Quantity};

/// Processor time, kept in millicores.
pub const CPU: &str = "cpu";
/// Memory, in bytes.
pub const MEMORY: &str = "memory";
/// Pod slots, a count.
pub const PODS: &str = "pods";
/// Local disk, in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Resource name under which a NodePool's limits count nodes.
pub const NODES: &str = "nodes";

/// Which way fractions go when a quantity becomes an integer: what is asked for goes up, what is on offer goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// For requests and limits.
    Up,
    /// For capacity and allocatable.
    Down,
}

/// Amounts by resource name: cpu in millicores, all else in base units (bytes or a count).
///
/// A resource that is not in the map counts as zero. Arithmetic saturates at the ends of `i64`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources(BTreeMap<Arc<str>, i64>);

impl Resources {
    /// No resources at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Amounts of the given quantities.
    pub fn from_quantities<'a>(
        quantities: impl IntoIterator<Item = (&'a str, &'a Quantity)>,
        rounding: Rounding,
    ) -> Self {
        quantities
            .into_iter()
            .map(|(name, quantity)| (Arc::from(name), amount(name, quantity, rounding)))
            .collect()
    }

    /// Amounts of the quantities of a Kubernetes object. The error names the resource.
    pub fn from_k8s(
        quantities: &BTreeMap<String, K8sQuantity>,
        rounding: Rounding,
    ) -> Result<Self, ParseResourcesError> {
        quantities
            .iter()
            .map(|(name, quantity)| match Quantity::try_from(quantity) {
                Ok(quantity) => Ok((Arc::from(name.as_str()), amount(name, &quantity, rounding))),
                Err(source) => Err(ParseResourcesError {
                    resource: name.clone(),
                    source,
                }),
            })
            .collect()
    }

    /// The amounts as quantities: bytes with binary suffixes, cpu in cores.
    pub fn to_quantities(&self) -> BTreeMap<String, Quantity> {
        self.iter()
            .map(|(name, amount)| {
                let quantity = match name {
                    CPU => Quantity::from_milli(amount),
                    _ if is_bytes(name) => Quantity::from_value(amount, Format::BinarySi),
                    _ => Quantity::from_value(amount, Format::DecimalSi),
                };
                (name.to_owned(), quantity)
            })
            .collect()
    }

    /// The amount of one resource, zero if it is not listed.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Whether the resource is listed, be it with zero.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Sets the amount of one resource.
    pub fn set(&mut self, name: &str, amount: i64) {
        match self.0.get_mut(name) {
            Some(held) => *held = amount,
            None => {
                self.0.insert(Arc::from(name), amount);
            }
        }
    }

    /// Takes one resource out of the map.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Adds the other's amounts to these.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, i64::saturating_add);
    }

    /// Takes the other's amounts from these; results below zero stay below zero.
    pub fn sub(&mut self, other: &Self) {
        self.merge(other, i64::saturating_sub);
    }

    /// Raises each amount to the other's where that is larger.
    pub fn max_with(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let held = self.0.entry(name.clone()).or_insert(*amount);
            *held = (*held).max(*amount);
        }
    }

    /// The smaller amount of each resource that both list.
    pub fn min_common(&self, other: &Self) -> Self {
        self.0
            .iter()
            .filter_map(|(name, amount)| {
                other
                    .0
                    .get(name)
                    .map(|theirs| (name.clone(), (*amount).min(*theirs)))
            })
            .collect()
    }

    /// Whether these requests fit into what is available. A request of zero (or less) always fits.
    pub fn fits_in(&self, available: &Self) -> bool {
        self.0
            .iter()
            .all(|(name, amount)| *amount <= 0 || *amount <= available.get(name))
    }

    /// Names and amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    /// Whether no resource is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn merge(&mut self, other: &Self, with: fn(i64, i64) -> i64) {
        for (name, amount) in &other.0 {
            match self.0.get_mut(name) {
                Some(held) => *held = with(*held, *amount),
                None => {
                    self.0.insert(name.clone(), with(0, *amount));
                }
            }
        }
    }
}

impl FromIterator<(Arc<str>, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, i64)>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}

impl<'a> FromIterator<(&'a str, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (&'a str, i64)>>(amounts: I) -> Self {
        Self(
            amounts
                .into_iter()
                .map(|(name, amount)| (Arc::from(name), amount))
                .collect(),
        )
    }
}

/// A resource whose quantity cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource {resource} has a quantity that cannot be read")]
pub struct ParseResourcesError {
    /// Name of the resource.
    pub resource: String,
    /// What is wrong with its quantity.
    pub source: ParseQuantityError,
}

fn is_bytes(name: &str) -> bool {
    name == MEMORY || name == EPHEMERAL_STORAGE || name.starts_with("hugepages-")
}

fn amount(name: &str, quantity: &Quantity, rounding: Rounding) -> i64 {
    match (name == CPU, rounding) {
        (true, Rounding::Up) => quantity.milli_ceil(),
        (true, Rounding::Down) => quantity.milli_floor(),
        (false, Rounding::Up) => quantity.value_ceil(),
        (false, Rounding::Down) => quantity.value_floor(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resources(pairs: &[(&str, i64)]) -> Resources {
        pairs.iter().copied().collect()
    }

    fn k8s(pairs: &[(&str, &str)]) -> BTreeMap<String, K8sQuantity> {
        pairs
            .iter()
            .map(|(n, q)| ((*n).to_owned(), K8sQuantity((*q).to_owned())))
            .collect()
    }

    #[test]
    fn cpu_is_in_millicores_and_fractions_go_the_asked_way() {
        let amounts = k8s(&[
            ("cpu", "1500500u"),
            ("memory", "1.5"),
            ("nvidia.com/gpu", "2"),
        ]);
        let up = Resources::from_k8s(&amounts, Rounding::Up).unwrap();
        assert_eq!(
            up,
            resources(&[("cpu", 1501), ("memory", 2), ("nvidia.com/gpu", 2)])
        );
        let down = Resources::from_k8s(&amounts, Rounding::Down).unwrap();
        assert_eq!(
            down,
            resources(&[("cpu", 1500), ("memory", 1), ("nvidia.com/gpu", 2)])
        );
    }

    #[test]
    fn an_unreadable_quantity_names_its_resource() {
        let error = Resources::from_k8s(&k8s(&[("memory", "1GB")]), Rounding::Up).unwrap_err();
        assert_eq!(
            error.to_string(),
            "resource memory has a quantity that cannot be read"
        );
    }

    #[test]
    fn prints_as_people_write() {
        let printed: Vec<(String, String)> = resources(&[
            ("cpu", 1500),
            ("ephemeral-storage", 20 << 30),
            ("hugepages-2Mi", 4 << 20),
            ("memory", 512 << 20),
            ("nvidia.com/gpu", 1),
            ("pods", 110),
        ])
        .to_quantities()
        .into_iter()
        .map(|(name, quantity)| (name, quantity.to_string()))
        .collect();
        let printed: Vec<(&str, &str)> = printed
            .iter()
            .map(|(n, q)| (n.as_str(), q.as_str()))
            .collect();
        assert_eq!(
            printed,
            [
                ("cpu", "1500m"),
                ("ephemeral-storage", "20Gi"),
                ("hugepages-2Mi", "4Mi"),
                ("memory", "512Mi"),
                ("nvidia.com/gpu", "1"),
                ("pods", "110")
            ]
        );
        assert_eq!(
            resources(&[("cpu", 2000)]).to_quantities()["cpu"].to_string(),
            "2"
        );
    }

    #[test]
    fn zero_requests_fit_anywhere() {
        assert!(
            resources(&[("nvidia.com/gpu", 0), ("cpu", 10)]).fits_in(&resources(&[("cpu", 10)]))
        );
        assert!(!resources(&[("cpu", 11)]).fits_in(&resources(&[("cpu", 10)])));
        assert!(!resources(&[("nvidia.com/gpu", 1)]).fits_in(&resources(&[("cpu", 10)])));
        assert!(resources(&[("cpu", 0)]).fits_in(&resources(&[("cpu", -5)])));
    }

    #[test]
    fn max_and_min() {
        let mut a = resources(&[("cpu", 1), ("memory", 5)]);
        let b = resources(&[("memory", 3), ("pods", -1)]);
        assert_eq!(a.min_common(&b), resources(&[("memory", 3)]));
        a.max_with(&b);
        assert_eq!(a, resources(&[("cpu", 1), ("memory", 5), ("pods", -1)]));
    }

    #[test]
    fn arithmetic_saturates() {
        let mut a = resources(&[("cpu", i64::MAX), ("memory", i64::MIN)]);
        a.add(&resources(&[("cpu", 1)]));
        a.sub(&resources(&[("memory", 1)]));
        assert_eq!(a, resources(&[("cpu", i64::MAX), ("memory", i64::MIN)]));
    }

    fn any_resources() -> impl Strategy<Value = Resources> {
        prop::collection::btree_map(
            prop::sample::select(vec!["cpu", "memory", "pods", "x/y"]),
            -1000i64..1000,
            0..4,
        )
        .prop_map(|m| m.into_iter().collect())
    }

    proptest! {
        #[test]
        fn sub_undoes_add(a in any_resources(), b in any_resources()) {
            let mut c = a.clone();
            c.add(&b);
            c.sub(&b);
            for name in ["cpu", "memory", "pods", "x/y"] {
                prop_assert_eq!(c.get(name), a.get(name));
            }
        }

        #[test]
        fn what_fits_leaves_nothing_negative(a in any_resources(), b in any_resources()) {
            let mut rest = b.clone();
            rest.sub(&a);
            let fits = a.iter().all(|(name, amount)| amount <= 0 || rest.get(name) >= 0);
            prop_assert_eq!(a.fits_in(&b), fits);
        }

        #[test]
        fn quantities_bring_amounts_back(a in any_resources()) {
            let quantities = a.to_quantities();
            let pairs = || quantities.iter().map(|(n, q)| (n.as_str(), q));
            prop_assert_eq!(&Resources::from_quantities(pairs(), Rounding::Up), &a);
            prop_assert_eq!(&Resources::from_quantities(pairs(), Rounding::Down), &a);
        }
    }
}
