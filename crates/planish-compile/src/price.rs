//! What each way to do a step costs: by the cost model, by the timing cache, or measured.
//!
//! - `contest`: which of the steps that may be taken need a price, since others could take their place;
//! - `measure`: prices of many steps, `trial`: one tactic run and timed;
//! - `cache`: times of earlier builds;
//! - `policy`: how much is searched and measured, with the reason for each number.

pub(crate) mod cache;
pub(crate) mod contest;
pub(crate) mod measure;
pub(crate) mod policy;
mod trial;

use std::collections::BTreeMap;

use crate::error::BuildError;
use crate::lower::candidates::Catalog;
use crate::lower::{Lowered, Offer};
use crate::price::cache::TimingCache;
use crate::price::measure::{Asked, measure};

/// A lowered graph with a price for every way to do the steps that may be taken.
#[derive(Clone, Debug)]
pub struct Priced {
    pub(crate) lowered: Lowered,
    /// For each cluster the offers among which prices decide.
    pub(crate) open: Vec<Vec<usize>>,
    /// The bodies of offers that are control flow.
    pub(crate) bodies: BTreeMap<usize, Vec<Priced>>,
}

/// Which steps want prices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Those that have several ways, or whose place others could take.
    Contested,
    /// All of them, to compare with those of another graph.
    All,
}

/// Prices a lowered graph and its bodies.
pub(crate) fn price(
    mut lowered: Lowered,
    wanted: Wanted,
    catalog: &Catalog<'_>,
    timings: &mut TimingCache,
) -> Result<Priced, BuildError> {
    let contest = |cluster| contest::open(&lowered, cluster, catalog.backends);
    let open: Vec<Vec<usize>> = lowered.clusters.iter().map(contest).collect();
    // A step without a rival needs no price, unless other steps, or other graphs, may take its place.
    let mut is_asked = vec![None; lowered.offers.len()];
    for (open, cluster) in open.iter().zip(&lowered.clusters) {
        let nodes: usize = open.iter().map(|&at| lowered.offers[at].step.nodes.len()).sum();
        open.iter().for_each(|&at| is_asked[at] = Some(wanted == Wanted::All || nodes > cluster.nodes.len()));
    }
    let Lowered { draft, offers, .. } = &mut lowered;
    let asked = offers
        .iter_mut()
        .zip(&is_asked)
        .filter_map(|(Offer { step, choices, .. }, alone)| alone.map(|alone| Asked { step, choices, alone }));
    measure(draft, &mut asked.collect::<Vec<_>>(), catalog.backends, catalog.options, timings)?;
    let mut bodies = BTreeMap::new();
    for (at, offer) in lowered.offers.iter_mut().enumerate() {
        let mut priced = Vec::with_capacity(offer.bodies.len());
        for body in std::mem::take(&mut offer.bodies) {
            priced.push(price(body, wanted, catalog, timings)?);
        }
        if !priced.is_empty() {
            bodies.insert(at, priced);
        }
    }
    Ok(Priced { lowered, open, bodies })
}
