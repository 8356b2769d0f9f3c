//! Regions against their parts: the cheapest cover of each cluster, with the reason.

use crate::backends::Backends;
use crate::lower::Lowered;
use crate::lower::cover::Cluster;
use crate::price::Priced;
use crate::price::contest::{Cover, Part, all_of, cheapest, parts};

/// The offers that cover the graph, in an order that can be run, each with the reason where prices decided.
pub(crate) fn cover(priced: &Priced, backends: Backends<'_>) -> Vec<(usize, Option<String>)> {
    let lowered = &priced.lowered;
    let mut taken = Vec::new();
    for (cluster, open) in lowered.clusters.iter().zip(&priced.open) {
        taken.extend(covered(lowered, cluster, backends, open));
    }
    // A region's output is made by its last node, so ordering by that keeps producers before readers. Copies of outputs
    // have no nodes and come last.
    taken.sort_by_key(|(at, _)| {
        lowered.offers[*at].step.nodes.last().map_or((1, *at as u32), |&last| (0, last))
    });
    taken
}

fn covered(
    lowered: &Lowered,
    cluster: &Cluster,
    backends: Backends<'_>,
    open: &[usize],
) -> Vec<(usize, Option<String>)> {
    let n_nodes: usize = open.iter().map(|&at| lowered.offers[at].step.nodes.len()).sum();
    let as_they_are = || open.iter().map(|&at| (at, None)).collect();
    if n_nodes == cluster.nodes.len() {
        return as_they_are();
    }
    let all = parts(lowered, cluster, backends, open);
    let Some(best) = cheapest(all_of(cluster), &all) else {
        let taken = &cluster.offers[..cluster.n_taken];
        return taken.iter().map(|&at| (at, None)).collect();
    };
    let others: Vec<Part> = all.iter().copied().filter(|part| !is_of(&best, part, lowered)).collect();
    let rival = cheapest(all_of(cluster), &others);
    let reason = rival.map(|rival| {
        format!(
            "{} for {}, {} for {}",
            us(best.ns),
            named(lowered, &best),
            us(rival.ns),
            named(lowered, &rival)
        )
    });
    best.offers.iter().map(|&at| (at, reason.clone())).collect()
}

/// Whether a part over several nodes is one of a cover; single nodes may be in any other too.
fn is_of(cover: &Cover, part: &Part, lowered: &Lowered) -> bool {
    let is_region = lowered.offers[part.at].step.nodes.len() > 1;
    let has_regions = cover.offers.iter().any(|&at| lowered.offers[at].step.nodes.len() > 1);
    cover.offers.contains(&part.at) && (is_region || !has_regions)
}

/// The operators of a cover's steps.
fn named(lowered: &Lowered, cover: &Cover) -> String {
    let ops: Vec<String> = cover.offers.iter().map(|&at| lowered.offers[at].step.region.ops()).collect();
    ops.join(" and ")
}

fn us(ns: f64) -> String {
    format!("{:.1} us", ns / 1e3)
}
