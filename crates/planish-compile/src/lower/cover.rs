//! Which regions are on offer, and which of them compete for the same nodes.
//!
//! Backends propose regions; the first that has a kernel takes its nodes, which decides where each node runs. What is left of
//! proposals of which others took a part is offered then: between two layers of integers there is often a chain of functions
//! whose ends belong to the layers. Regions that overlap then form a cluster: all that is proposed inside of it, the rests
//! that such regions would leave, and single nodes. Prices choose among its covers (`choose::cover`), so a region is taken
//! because it is cheaper than its parts and not because it is there.

use std::collections::HashSet;

use planish_kernel::{Proposal, Region, Whole};

use crate::backends::HOST;
use crate::lower::candidates::Catalog;
use crate::lower::steps::Lowering;
use crate::lower::{DraftKind, Offer, learn};

/// Nodes in a cluster whose covers are compared: a set of them is a word.
const MAX_NODES: usize = 64;

/// Nodes that are covered together.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// Ascending; none for a copy of an output.
    pub(crate) nodes: Vec<u32>,
    /// What may cover them, by number: those taken first, then what competes with these.
    pub(crate) offers: Vec<usize>,
    /// How many of the offers are the cover that backends prefer.
    pub(crate) n_taken: usize,
}

/// Regions with the backend that runs each.
pub(crate) type Regions = Vec<(Vec<u32>, u32)>;

/// What backends take.
pub(crate) struct Taken {
    /// A cover of the graph in an order that can be run.
    pub(crate) regions: Regions,
    /// All that was proposed.
    pub(crate) proposals: Regions,
}

/// The cover that backends prefer: regions in the order of their proposals, then single nodes.
pub(super) fn take(
    lowering: &Lowering<'_>,
    whole: &Whole,
    catalog: &Catalog<'_>,
    allows: &dyn Fn(&Region) -> bool,
) -> Taken {
    let options = catalog.options;
    let n_nodes = lowering.node_ids.len() as u32;
    let mut taken = vec![false; n_nodes as usize];
    let mut regions: Regions = Vec::new();
    let mut proposals: Regions = Vec::new();
    for target in catalog.backends.by_preference() {
        let proposed = catalog.backends.get(target).regions(whole).into_iter();
        let proposed: Vec<Vec<u32>> = proposed.map(|Proposal { nodes }| nodes).collect();
        if target == HOST && !options.strict && options.price_transfers {
            let home = lowering.cheaper_on_host(whole, &regions, catalog);
            home.iter().for_each(|&node| taken[node as usize] = false);
            regions.retain(|(nodes, _)| !nodes.iter().any(|node| home.contains(node)));
        }
        let mut offer = |nodes: Vec<u32>, taken: &mut [bool]| {
            if nodes.iter().any(|&node| taken[node as usize]) {
                return;
            }
            let step = lowering.step(whole, &nodes, target);
            if allows(&step.region) && catalog.has_kernel(&lowering.draft, &step) {
                nodes.iter().for_each(|&node| taken[node as usize] = true);
                regions.push((nodes, target));
            }
        };
        proposed.iter().for_each(|nodes| offer(nodes.clone(), &mut taken));
        for nodes in &proposed {
            for rest in left_over(whole, nodes, &taken) {
                offer(rest, &mut taken);
            }
        }
        if target != HOST {
            (0..n_nodes).for_each(|node| offer(vec![node], &mut taken));
        }
        proposals.extend(proposed.into_iter().map(|nodes| (nodes, target)));
    }
    regions.extend((0..n_nodes).filter(|&node| !taken[node as usize]).map(|node| (vec![node], HOST)));
    // A region's outputs are there with its last node, and all others that read them come after it: ordering by that keeps
    // producers before readers.
    regions.sort_by_key(|(nodes, _)| nodes.last().copied());
    Taken { regions, proposals }
}

/// What a proposal has left of which others took a part: its elementwise nodes without a gap, as far as they hang together
/// and only the last of them is read by others.
fn left_over(whole: &Whole, nodes: &[u32], taken: &[bool]) -> Vec<Vec<u32>> {
    let is_taken = |node: &u32| taken[*node as usize];
    if !nodes.iter().any(is_taken) {
        return Vec::new();
    }
    let is_plain = |node: &u32| whole.region.nodes[*node as usize].op.is_elementwise();
    let runs = nodes.split(is_taken).filter(|run| run.len() > 1 && run.iter().all(is_plain));
    let is_closed = |part: &Vec<u32>| {
        let inner = part.split_last().map_or(&[][..], |(_, inner)| inner);
        let within = |node: &u32| {
            !whole.is_output(*node) && whole.users(*node).iter().all(|user| part.binary_search(user).is_ok())
        };
        !inner.is_empty() && inner.iter().all(within)
    };
    runs.flat_map(|run| connected(whole, run)).filter(is_closed).collect()
}

/// Nodes, ascending, by those that read each other.
fn connected(whole: &Whole, run: &[u32]) -> Vec<Vec<u32>> {
    let mut joined = Joined::new(run.len());
    for (at, &node) in run.iter().enumerate() {
        let users = whole.users(node).iter().filter_map(|user| run.binary_search(user).ok());
        users.for_each(|user| joined.join(&[at as u32, user as u32]));
    }
    let mut parts: Vec<(usize, Vec<u32>)> = Vec::new();
    for (at, &node) in run.iter().enumerate() {
        let root = joined.root(at);
        match parts.iter_mut().find(|(known, _)| *known == root) {
            Some((_, part)) => part.push(node),
            None => parts.push((root, vec![node])),
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

/// Adds what competes with the steps that were taken, and groups all offers into clusters. A tactic lock says which
/// regions were chosen, so nothing competes there.
pub(super) fn compete(
    lowering: &Lowering<'_>,
    whole: &Whole,
    catalog: &Catalog<'_>,
    proposals: &Regions,
    offers: &mut Vec<Offer>,
) -> Vec<Cluster> {
    let n_taken = offers.len();
    let mut joined = Joined::new(lowering.node_ids.len());
    let mut target_of = vec![None; lowering.node_ids.len()];
    for Offer { step, .. } in &offers[..n_taken] {
        joined.join(&step.nodes);
        let target = matches!(step.kind, DraftKind::Kernel).then_some(step.target);
        step.nodes.iter().for_each(|&node| target_of[node as usize] = target);
    }
    if catalog.options.tactics.is_none() {
        let mut seen: HashSet<(Vec<u32>, u32)> =
            offers.iter().map(|offer| (offer.step.nodes.clone(), offer.step.target)).collect();
        let is_there = |(nodes, target): &(Vec<u32>, u32)| {
            nodes.iter().all(|&node| target_of[node as usize] == Some(*target))
        };
        let mut rivals: Regions = Vec::new();
        for region in proposals.iter().filter(|region| is_there(region)) {
            rivals.push(region.clone());
            let is_plain = |node: u32| whole.region.nodes[node as usize].op.is_elementwise();
            let (nodes, target) = region;
            // What is left where a kernel takes the first nodes alone.
            let rests = (1..nodes.len() - 1).map(|from| &nodes[from..]);
            let rests = rests.filter(|rest| rest.iter().all(|&node| is_plain(node)));
            rivals.extend(rests.map(|rest| (rest.to_vec(), *target)));
            rivals.extend(nodes.iter().map(|&node| (vec![node], *target)));
        }
        // Sizes that only a run can tell are known after some of the steps alone; the cover there stays as it is.
        let mut known = HashSet::new();
        for &input in &lowering.draft.inputs {
            learn(&lowering.draft.values[input].ty, &mut known);
        }
        for (nodes, target) in rivals {
            if !seen.insert((nodes.clone(), target)) {
                continue;
            }
            let step = lowering.step(whole, &nodes, target);
            if !lowering.draft.is_sized(&step, &known) || !catalog.has_kernel(&lowering.draft, &step) {
                continue;
            }
            let Ok(choices) = catalog.choices(&lowering.draft, &step) else { continue };
            joined.join(&nodes);
            offers.push(Offer { step, choices, bodies: Vec::new() });
        }
    }
    clusters(&mut joined, offers, n_taken)
}

fn clusters(joined: &mut Joined, offers: &[Offer], n_taken: usize) -> Vec<Cluster> {
    let mut list: Vec<Cluster> = Vec::new();
    let mut place = vec![None; joined.parent.len()];
    for (at, Offer { step, .. }) in offers.iter().enumerate() {
        let root = step.nodes.first().map(|&node| joined.root(node as usize));
        let known = root.and_then(|root| place[root]);
        let cluster = known.unwrap_or(list.len());
        if known.is_none() {
            list.push(Cluster { nodes: Vec::new(), offers: Vec::new(), n_taken: 0 });
            if let Some(root) = root {
                place[root] = Some(cluster);
            }
        }
        list[cluster].offers.push(at);
        if at < n_taken {
            list[cluster].n_taken += 1;
            list[cluster].nodes.extend(&step.nodes);
        }
    }
    for cluster in &mut list {
        cluster.nodes.sort_unstable();
        if cluster.nodes.len() > MAX_NODES {
            cluster.offers.truncate(cluster.n_taken);
        }
    }
    list
}

/// Numbers that belong together.
pub(crate) struct Joined {
    parent: Vec<usize>,
}

impl Joined {
    pub(crate) fn new(n_nodes: usize) -> Joined {
        Joined { parent: (0..n_nodes).collect() }
    }

    pub(crate) fn root(&mut self, node: usize) -> usize {
        let mut at = node;
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }

    pub(crate) fn join(&mut self, nodes: &[u32]) {
        let Some((&first, rest)) = nodes.split_first() else { return };
        let root = self.root(first as usize);
        for &node in rest {
            let other = self.root(node as usize);
            self.parent[other] = root;
        }
    }
}
