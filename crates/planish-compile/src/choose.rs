//! Which steps cover the graph, and one way for each of them.
//!
//! - `cover`: regions against their parts, by price;
//! - `select`: the cheapest choice with layout changes priced;
//! - `in_place`: tactics that spare the copies of concatenations and parts;
//! - `vet`: libraries asked whether they take what was chosen;
//! - `variants`: other tactics at other sizes;
//! - `tactic_lock`: choices in a file, for a later build to be held to.

pub(crate) mod cover;
mod in_place;
pub(crate) mod select;
pub(crate) mod tactic_lock;
pub(crate) mod variants;
mod vet;

use crate::choose::select::{Picks, select};
use crate::choose::tactic_lock::TacticLock;
use crate::choose::variants::{Variants, variants};
use crate::error::BuildError;
use crate::lower::Draft;
use crate::lower::candidates::{Catalog, Choices};
use crate::price::Priced;
use crate::price::cache::TimingCache;

/// Steps that cover a graph, with one way chosen for each.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub(crate) draft: Draft,
    /// The alternatives of each step, with their prices.
    pub(crate) choices: Vec<Choices>,
    /// The alternative that each step takes.
    pub(crate) picks: Picks,
    /// Other tactics at other sizes.
    pub(crate) variants: Variants,
    /// For each step of control flow its bodies.
    pub(crate) bodies: Vec<Vec<Chosen>>,
    /// Why each step covers the nodes that it covers, where prices decided.
    pub(crate) reasons: Vec<Option<String>>,
}

/// Chooses steps and tactics of a priced graph; new times are measured at other sizes only.
pub(crate) fn choose(
    priced: Priced,
    catalog: &Catalog<'_>,
    timings: &mut TimingCache,
) -> Result<Chosen, BuildError> {
    let mut chosen = at_tuned_sizes(priced, catalog);
    vet::vet(&mut chosen, catalog.backends, catalog.sizes, catalog.options)?;
    chosen.variants = variants(&chosen, catalog, timings)?;
    Ok(chosen)
}

/// Chooses without a look at other sizes, and without asking libraries.
pub(crate) fn at_tuned_sizes(priced: Priced, catalog: &Catalog<'_>) -> Chosen {
    let taken = cover::cover(&priced, catalog.backends);
    let Priced { lowered, mut bodies, .. } = priced;
    let mut offers: Vec<_> = lowered.offers.into_iter().map(Some).collect();
    let mut draft = lowered.draft;
    let mut chosen_bodies = Vec::with_capacity(taken.len());
    let (mut choices, mut reasons) = (Vec::with_capacity(taken.len()), Vec::with_capacity(taken.len()));
    for (at, reason) in taken {
        let Some(offer) = offers[at].take() else { continue };
        draft.steps.push(offer.step);
        choices.push(offer.choices);
        let own = bodies.remove(&at).unwrap_or_default();
        chosen_bodies.push(own.into_iter().map(|body| at_tuned_sizes(body, catalog)).collect());
        reasons.push(reason);
    }
    let mut picks = select(&draft, &choices, catalog.backends, catalog.sizes);
    let step_ns = |target: u32| catalog.backends.get(target).prices().step_ns;
    in_place::spare_copies(&draft, &choices, &mut picks, step_ns);
    let variants = vec![Vec::new(); draft.steps.len()];
    Chosen { draft, choices, picks, variants, bodies: chosen_bodies, reasons }
}

impl Chosen {
    /// Notes what was chosen, in bodies too.
    pub(crate) fn lock(&self, tactics: &mut TacticLock) {
        for (idx, step) in self.draft.steps.iter().enumerate() {
            if let Some(alternative) = self.choices[idx].list.get(self.picks[idx]) {
                tactics.add(&step.region, &alternative.candidate, &self.variants[idx]);
            }
        }
        self.bodies.iter().flatten().for_each(|body| body.lock(tactics));
    }

    /// Why steps cover the nodes that they cover, where prices decided; in bodies too.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let told = self.draft.steps.iter().zip(&self.reasons);
        let own = told.filter_map(|(step, reason)| {
            reason.as_ref().map(|reason| format!("`{}`: {reason}", step.region.title()))
        });
        own.chain(self.bodies.iter().flatten().flat_map(Chosen::reasons)).collect()
    }

    /// What could not be measured, in bodies too.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let own = self.choices.iter().flat_map(|choices| choices.refused.iter().cloned());
        own.chain(self.bodies.iter().flatten().flat_map(Chosen::refusals)).collect()
    }
}
