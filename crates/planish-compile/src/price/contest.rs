//! Which steps compete for the same nodes, and the cheapest way to cover them.
//!
//! A region and its parts are not all measured. Where a part has no kernel that the region lacks, the region does the
//! same work with less traffic: the part drops out by the cost model. Of the covers that are left, those count that the
//! cost model does not put clearly behind the best, and those of several kernels in one, which no model prices well.

use std::collections::{BTreeSet, HashMap};

use planish_kernel::Region;

use crate::backends::Backends;
use crate::lower::candidates::Alternative;
use crate::lower::cover::Cluster;
use crate::lower::{Lowered, Offer};
use crate::price::policy::CLEAR_RATIO;

/// A step that may cover some nodes of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The offer, by number.
    pub(crate) at: usize,
    /// Which nodes of the cluster it covers, by place.
    nodes: u64,
    pub(crate) ns: f64,
}

/// Steps that cover all nodes of a cluster, each once.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cover {
    /// By number, in the order of their first nodes.
    pub(crate) offers: Vec<usize>,
    pub(crate) ns: f64,
}

/// The offers of a cluster as parts with their prices.
pub(crate) fn parts(
    lowered: &Lowered,
    cluster: &Cluster,
    backends: Backends<'_>,
    offers: &[usize],
) -> Vec<Part> {
    let part = |&at: &usize| {
        let offer = &lowered.offers[at];
        let place = |node: &u32| cluster.nodes.binary_search(node).unwrap_or_default();
        let nodes = offer.step.nodes.iter().fold(0, |set, node| set | 1 << place(node));
        Part { at, nodes, ns: price_of(offer, backends) }
    };
    offers.iter().map(part).collect()
}

/// What an offer costs by its cheapest alternative, whatever the layouts around it.
fn price_of(offer: &Offer, backends: Backends<'_>) -> f64 {
    let step_ns = backends.get(offer.step.target).prices().step_ns;
    let ns = |one: &Alternative| if one.view { 0.0 } else { one.ns + step_ns };
    offer.choices.list.iter().map(ns).fold(f64::INFINITY, f64::min)
}

/// The cheapest cover of these nodes, if there is one. Of equal ones the one whose parts are listed first.
pub(crate) fn cheapest(nodes: u64, parts: &[Part]) -> Option<Cover> {
    let mut known = HashMap::new();
    let ns = best(nodes, parts, &mut known)?;
    let mut cover = Cover { offers: Vec::new(), ns };
    let mut left = nodes;
    while left != 0 {
        let &(_, first) = known.get(&left)?.as_ref()?;
        cover.offers.push(parts[first].at);
        left &= !parts[first].nodes;
    }
    Some(cover)
}

/// For each set of nodes that was met the price of its cheapest cover and the part that covers its first node.
type Known = HashMap<u64, Option<(f64, usize)>>;

fn best(left: u64, parts: &[Part], known: &mut Known) -> Option<f64> {
    if left == 0 {
        return Some(0.0);
    }
    if let Some(found) = known.get(&left) {
        return found.map(|(ns, _)| ns);
    }
    let first = left & left.wrapping_neg();
    let mut found: Option<(f64, usize)> = None;
    for (idx, part) in parts.iter().enumerate() {
        if part.nodes & first == 0 || part.nodes & !left != 0 {
            continue;
        }
        let Some(rest) = best(left & !part.nodes, parts, known) else { continue };
        let ns = part.ns + rest;
        if found.is_none_or(|(least, _)| ns < least) {
            found = Some((ns, idx));
        }
    }
    known.insert(left, found);
    found.map(|(ns, _)| ns)
}

/// All nodes of a cluster.
pub(crate) fn all_of(cluster: &Cluster) -> u64 {
    u64::MAX.checked_shr(64 - cluster.nodes.len().min(64) as u32).unwrap_or(0)
}

/// The offers of a cluster whose prices decide; those of one cover where nothing else comes near.
pub(crate) fn open(lowered: &Lowered, cluster: &Cluster, backends: Backends<'_>) -> Vec<usize> {
    let taken = &cluster.offers[..cluster.n_taken];
    if cluster.offers.len() == cluster.n_taken {
        return taken.to_vec();
    }
    let offers = &lowered.offers;
    let all = all_of(cluster);
    let mut parts = parts(lowered, cluster, backends, &cluster.offers);
    let dropped: BTreeSet<usize> =
        (cluster.n_taken..parts.len()).filter(|&idx| is_dominated(offers, &parts, idx)).collect();
    let mut idx = 0;
    parts.retain(|_| {
        idx += 1;
        !dropped.contains(&(idx - 1))
    });
    let Some(best) = cheapest(all, &parts) else { return taken.to_vec() };
    let is_wide = |at: &usize| is_wide(&offers[*at].step.region);
    let is_close = |cover: &Cover| cover.ns * CLEAR_RATIO < best.ns;
    let mut open: BTreeSet<usize> = best.offers.iter().copied().collect();
    for at in best.offers.iter().filter(|&&at| offers[at].step.nodes.len() > 1) {
        let others: Vec<Part> = parts.iter().copied().filter(|part| part.at != *at).collect();
        if let Some(without) = cheapest(all, &others)
            && (is_close(&without) || is_wide(at))
        {
            open.extend(without.offers);
        }
    }
    let of_taken: Vec<Part> = parts.iter().copied().filter(|part| taken.contains(&part.at)).collect();
    if let Some(preferred) = cheapest(all, &of_taken)
        && (is_close(&preferred) || taken.iter().any(is_wide))
    {
        open.extend(preferred.offers);
    }
    // In the order of the offers, so that those taken win a tie.
    cluster.offers.iter().copied().filter(|at| open.contains(at)).collect()
}

/// Whether the kernels of a part that may be fastest are all offered for a region around it too, and the region is
/// expected to take no longer than the part and the rest of it.
fn is_dominated(offers: &[Offer], parts: &[Part], idx: usize) -> bool {
    let part = parts[idx];
    let own = &offers[part.at];
    let list = &own.choices.list;
    let fastest = list.iter().map(|one| one.ns).fold(f64::INFINITY, f64::min);
    let near = || list.iter().filter(|one| one.view || one.ns * CLEAR_RATIO <= fastest);
    let has = |around: &Offer, one: &Alternative| {
        let same = |other: &Alternative| {
            other.candidate.tactic == one.candidate.tactic && other.candidate.outputs == one.candidate.outputs
        };
        !one.view && around.choices.list.iter().any(same)
    };
    parts.iter().any(|around| {
        let offer = &offers[around.at];
        let is_around = around.nodes & part.nodes == part.nodes && around.nodes != part.nodes;
        is_around
            && offer.step.target == own.step.target
            && near().all(|one| has(offer, one))
            && cheapest(around.nodes & !part.nodes, parts).is_none_or(|rest| around.ns <= part.ns + rest.ns)
    })
}

/// Whether a region holds what several kernels would do.
fn is_wide(region: &Region) -> bool {
    region.nodes.iter().filter(|node| !node.op.is_elementwise()).count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(at: usize, nodes: u64, ns: f64) -> Part {
        Part { at, nodes, ns }
    }

    #[test]
    fn a_region_is_taken_where_it_is_cheaper_than_its_parts() {
        // A convolution, an addition and an activation: at once, or the last two apart.
        let parts = |together: f64| {
            vec![part(0, 0b111, together), part(1, 0b001, 5.0), part(2, 0b110, 3.0), part(3, 0b010, 2.0)]
        };
        assert_eq!(cheapest(0b111, &parts(7.0)), Some(Cover { offers: vec![0], ns: 7.0 }));
        assert_eq!(cheapest(0b111, &parts(9.0)), Some(Cover { offers: vec![1, 2], ns: 8.0 }));
        assert_eq!(cheapest(0b111, &parts(8.0)).unwrap().offers, [0], "a tie goes to the first");
        assert_eq!(cheapest(0b100, &parts(8.0)), None, "nothing covers the last node alone");
    }

    #[test]
    fn regions_that_overlap_are_never_taken_together() {
        let parts = [part(0, 0b0111, 1.0), part(1, 0b1110, 1.0), part(2, 0b0001, 4.0), part(3, 0b1000, 6.0)];
        assert_eq!(cheapest(0b1111, &parts), Some(Cover { offers: vec![2, 1], ns: 5.0 }));
    }
}
