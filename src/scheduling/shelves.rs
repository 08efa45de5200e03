//! Instance types by number: what a requirement set leaves of a catalog is worked out once per set.

use std::{collections::BTreeMap, sync::Arc};

use super::sets::{Bits, Dims, SetId, Sets};
use crate::{
    api::requirement::{Requirements, Undefined},
    cloud::{InstanceType, Offering},
    cluster::Catalog,
};

/// One catalog, ready for the inner loop.
pub(super) struct Shelf<'p> {
    catalog: &'p Catalog,
    /// Allocatable amounts, one row per type.
    pub(super) allocatable: Vec<i64>,
    /// Types of which no amount is below zero; the others never fit.
    pub(super) sound: Bits,
    /// Distinct labels of launchable offerings.
    labels: Vec<&'p Requirements>,
    /// By type, which of the labels its launchable offerings have.
    offers: Vec<Vec<usize>>,
}

impl<'p> Shelf<'p> {
    fn new(catalog: &'p Catalog, dims: &Dims) -> Self {
        let mut ids: BTreeMap<&'p Requirements, usize> = BTreeMap::new();
        let mut labels = Vec::new();
        let mut number = |offering: &'p Offering| {
            *ids.entry(&offering.requirements).or_insert_with(|| {
                labels.push(&offering.requirements);
                labels.len() - 1
            })
        };
        let offers = catalog
            .iter()
            .map(|t| {
                t.offerings
                    .iter()
                    .filter(|o| o.is_launchable())
                    .map(&mut number)
                    .collect()
            })
            .collect();
        let sound = Bits::of(catalog.len(), |i| {
            catalog[i].allocatable.iter().all(|(_, amount)| amount >= 0)
        });
        let allocatable = catalog
            .iter()
            .flat_map(|t| dims.row(&t.allocatable))
            .collect();
        Self {
            catalog,
            allocatable,
            sound,
            labels,
            offers,
        }
    }

    pub(super) fn types(&self) -> &'p [Arc<InstanceType>] {
        self.catalog
    }
}

/// What a requirement set leaves of a catalog.
pub(super) struct Admitted {
    /// Types whose own labels it admits.
    pub(super) met: Bits,
    /// Types with a launchable offering that it admits.
    pub(super) offered: Bits,
    /// Both.
    pub(super) both: Bits,
}

/// All catalogs of a pass.
#[derive(Default)]
pub(super) struct Shelves<'p> {
    all: Vec<Shelf<'p>>,
    known: BTreeMap<(usize, SetId), usize>,
    admitted: Vec<Admitted>,
}

impl<'p> Shelves<'p> {
    /// The number of a catalog; pools of one class share it.
    pub(super) fn add(&mut self, catalog: &'p Catalog, dims: &Dims) -> usize {
        if let Some(known) = self
            .all
            .iter()
            .position(|s| Arc::ptr_eq(s.catalog, catalog))
        {
            return known;
        }
        self.all.push(Shelf::new(catalog, dims));
        self.all.len() - 1
    }

    pub(super) fn get(&self, shelf: usize) -> &Shelf<'p> {
        &self.all[shelf]
    }

    /// What the set leaves of the catalog.
    pub(super) fn admitted(&mut self, shelf: usize, set: SetId, sets: &Sets<'_>) -> &Admitted {
        let next = self.admitted.len();
        let place = *self.known.entry((shelf, set)).or_insert(next);
        if place == next {
            let admitted = admit(&self.all[shelf], sets.get(set), &|k| sets.is_well_known(k));
            self.admitted.push(admitted);
        }
        &self.admitted[place]
    }
}

fn admit(shelf: &Shelf<'_>, set: &Requirements, well_known: &dyn Fn(&str) -> bool) -> Admitted {
    let usable: Vec<bool> = shelf
        .labels
        .iter()
        .map(|labels| set.admits(labels, Undefined::AllowedIf(well_known)))
        .collect();
    let size = shelf.types().len();
    let met = Bits::of(size, |i| shelf.types()[i].requirements.meets(set));
    let offered = Bits::of(size, |i| shelf.offers[i].iter().any(|o| usable[*o]));
    let both = met.and(&offered);
    Admitted { met, offered, both }
}
