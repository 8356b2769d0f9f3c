//! The cheapest cut between two sides of a flow network, by augmenting along shortest paths in phases
//! (Dinic 1970). The networks here are sparse and shallow, so a few phases are enough.

use std::collections::VecDeque;

/// More than all prices together.
pub(super) const NEVER: u64 = u64::MAX / 4;

/// A network under construction. Vertex 0 is the source, vertex 1 the sink.
pub(super) struct Network {
    /// Outgoing edges of each vertex; edge `e` and its reverse `e ^ 1` stand together.
    edges_of: Vec<Vec<usize>>,
    to: Vec<usize>,
    room: Vec<u64>,
}

pub(super) const SOURCE: usize = 0;
pub(super) const SINK: usize = 1;

impl Network {
    pub(super) fn new() -> Network {
        Network { edges_of: vec![Vec::new(); 2], to: Vec::new(), room: Vec::new() }
    }

    pub(super) fn vertex(&mut self) -> usize {
        self.edges_of.push(Vec::new());
        self.edges_of.len() - 1
    }

    /// The price of `from` being on the source's side and `to` on the sink's.
    pub(super) fn edge(&mut self, from: usize, to: usize, price: u64) {
        for (from, to, room) in [(from, to, price), (to, from, 0)] {
            self.edges_of[from].push(self.to.len());
            self.to.push(to);
            self.room.push(room);
        }
    }

    /// The price of the cheapest cut, and which vertices are on the source's side in the one that has fewest
    /// there.
    pub(super) fn cut(mut self) -> (u64, Vec<bool>) {
        let mut price: u64 = 0;
        loop {
            let levels = self.levels();
            if levels[SINK].is_none() {
                return (price, levels.iter().map(Option::is_some).collect());
            }
            let mut next = vec![0; self.edges_of.len()];
            while let Some(flow) = self.augment(&levels, &mut next) {
                price = price.saturating_add(flow);
            }
        }
    }

    /// Distances from the source along edges with room.
    fn levels(&self) -> Vec<Option<usize>> {
        let mut levels = vec![None; self.edges_of.len()];
        levels[SOURCE] = Some(0);
        let mut queue = VecDeque::from([(SOURCE, 0)]);
        while let Some((vertex, level)) = queue.pop_front() {
            for &edge in &self.edges_of[vertex] {
                if self.room[edge] > 0 && levels[self.to[edge]].is_none() {
                    levels[self.to[edge]] = Some(level + 1);
                    queue.push_back((self.to[edge], level + 1));
                }
            }
        }
        levels
    }

    /// Pushes flow along one shortest path, if there is one left. `next` remembers edges that lead nowhere.
    fn augment(&mut self, levels: &[Option<usize>], next: &mut [usize]) -> Option<u64> {
        let mut path: Vec<usize> = Vec::new();
        let mut at = SOURCE;
        while at != SINK {
            let Some(&edge) = self.edges_of[at].get(next[at]) else {
                // A dead end: go back and take the next edge there.
                let edge = path.pop()?;
                at = self.to[edge ^ 1];
                next[at] += 1;
                continue;
            };
            let is_forward = levels[self.to[edge]] == levels[at].map(|level| level + 1);
            if self.room[edge] > 0 && is_forward {
                path.push(edge);
                at = self.to[edge];
            } else {
                next[at] += 1;
            }
        }
        let flow = path.iter().map(|&edge| self.room[edge]).min()?;
        for edge in path {
            self.room[edge] -= flow;
            self.room[edge ^ 1] += flow;
        }
        Some(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_edges_are_cut() {
        let mut network = Network::new();
        let (a, b, c) = (network.vertex(), network.vertex(), network.vertex());
        for (from, to, price) in
            [(SOURCE, a, 7), (SOURCE, b, 4), (a, b, 5), (a, c, 3), (b, c, 2), (b, SINK, 3), (c, SINK, 9)]
        {
            network.edge(from, to, price);
        }
        let (price, side) = network.cut();
        // a-c, b-c and b-sink.
        assert_eq!((price, side[a], side[b], side[c]), (8, true, true, false));
    }

    #[test]
    fn between_equal_cuts_the_one_next_to_the_source() {
        let mut network = Network::new();
        let a = network.vertex();
        network.edge(SOURCE, a, 3);
        network.edge(a, SINK, 3);
        let (price, side) = network.cut();
        assert_eq!((price, side[a]), (3, false));
    }
}
