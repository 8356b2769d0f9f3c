//! The cheapest labelling of groups as low or wide: a minimum cut between the two.
//!
//! A group's cost under one label is the capacity of its edge to the end of the other one; what a change of label between
//! two groups costs is an edge between them. Augmenting along shortest paths is quick enough for some hundred groups.

/// What a group is computed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Label {
    Low,
    Wide,
}

/// Costs, in any unit.
pub(super) struct Cut {
    n_groups: usize,
    /// Capacities from each node to each other; the last two nodes are the ends of low and of wide.
    capacity: Vec<f64>,
}

/// More than any sum of costs.
const FIXED: f64 = 1e18;
/// Less than this is what sums of floats leave.
const NOTHING: f64 = 1e-3;

impl Cut {
    pub(super) fn new(n_groups: usize) -> Cut {
        Cut { n_groups, capacity: vec![0.0; (n_groups + 2) * (n_groups + 2)] }
    }

    fn at(&self, from: usize, to: usize) -> usize {
        from * (self.n_groups + 2) + to
    }

    fn add(&mut self, from: usize, to: usize, cost: f64) {
        let at = self.at(from, to);
        // A step that cannot be measured costs infinitely much.
        self.capacity[at] = (self.capacity[at] + cost.max(0.0)).min(FIXED);
    }

    /// A group costs more under a label.
    pub(super) fn add_cost(&mut self, group: usize, label: Label, cost: f64) {
        match label {
            Label::Low => self.add(group, self.n_groups + 1, cost),
            Label::Wide => self.add(self.n_groups, group, cost),
        }
    }

    /// A group has this label.
    pub(super) fn fix(&mut self, group: usize, label: Label) {
        let other = if label == Label::Low { Label::Wide } else { Label::Low };
        self.add_cost(group, other, FIXED);
    }

    /// What it costs where the first group is low and the second one wide, and the other way round.
    pub(super) fn add_border(&mut self, first: usize, second: usize, [down, up]: [f64; 2]) {
        self.add(first, second, down);
        self.add(second, first, up);
    }

    /// The labels with the least sum of costs; of equal ones those with the fewest groups of low label.
    pub(super) fn cheapest(mut self) -> Vec<Label> {
        let (low, wide) = (self.n_groups, self.n_groups + 1);
        loop {
            let before = self.reached();
            if before[wide].is_none() {
                let label =
                    |reached: &Option<usize>| if reached.is_some() { Label::Low } else { Label::Wide };
                return before[..self.n_groups].iter().map(label).collect();
            }
            let mut path = vec![wide];
            while let Some(from) =
                path.last().and_then(|&to| before[to]).filter(|_| path.last() != Some(&low))
            {
                path.push(from);
            }
            let edges: Vec<(usize, usize)> = path.windows(2).map(|edge| (edge[1], edge[0])).collect();
            let least =
                edges.iter().map(|&(from, to)| self.capacity[self.at(from, to)]).fold(FIXED, f64::min);
            for (from, to) in edges {
                let (there, back) = (self.at(from, to), self.at(to, from));
                self.capacity[there] -= least;
                self.capacity[back] += least;
            }
        }
    }

    /// Of each node that can be reached from the end of low the node before it; the end itself is its own.
    fn reached(&self) -> Vec<Option<usize>> {
        let n = self.n_groups + 2;
        let mut before = vec![None; n];
        before[self.n_groups] = Some(self.n_groups);
        let mut open = std::collections::VecDeque::from([self.n_groups]);
        while let Some(from) = open.pop_front() {
            for (to, before) in before.iter_mut().enumerate() {
                if before.is_none() && self.capacity[self.at(from, to)] > NOTHING {
                    *before = Some(from);
                    open.push_back(to);
                }
            }
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use planish_testing::Random;

    use super::*;

    #[derive(Clone, Default)]
    struct Costs {
        own: Vec<[f64; 2]>,
        borders: Vec<(usize, usize, [f64; 2])>,
    }

    impl Costs {
        fn sum(&self, is_wide: impl Fn(usize) -> bool) -> f64 {
            let own = self.own.iter().enumerate().map(|(group, costs)| costs[usize::from(is_wide(group))]);
            let borders = self.borders.iter().map(|&(first, second, [down, up])| {
                match (is_wide(first), is_wide(second)) {
                    (false, true) => down,
                    (true, false) => up,
                    _ => 0.0,
                }
            });
            own.sum::<f64>() + borders.sum::<f64>()
        }

        fn cut(&self) -> Cut {
            let mut cut = Cut::new(self.own.len());
            for (group, costs) in self.own.iter().enumerate() {
                cut.add_cost(group, Label::Low, costs[0]);
                cut.add_cost(group, Label::Wide, costs[1]);
            }
            self.borders.iter().for_each(|&(first, second, costs)| cut.add_border(first, second, costs));
            cut
        }
    }

    #[test]
    fn no_labelling_of_random_chains_is_cheaper() {
        let mut random = Random::new(5);
        for _ in 0..60 {
            let n = 1 + random.below(9);
            let mut cost = || (1000.0 * random.unit()).round();
            let mut costs = Costs { own: (0..n).map(|_| [cost(), cost()]).collect(), borders: Vec::new() };
            for second in 1..n {
                costs.borders.push((second - 1, second, [cost() / 4.0, cost() / 4.0]));
                costs.borders.push((second / 2, second, [cost() / 8.0, 0.0]));
            }
            let labels = costs.cut().cheapest();
            let found = costs.sum(|group| labels[group] == Label::Wide);
            let best =
                (0..1usize << n).map(|set| costs.sum(|group| set >> group & 1 == 1)).fold(f64::MAX, f64::min);
            assert!((found - best).abs() < 1e-6, "{found} for {labels:?}, {best} is possible");
        }
    }

    #[test]
    fn a_slow_layer_between_fast_ones_stays_where_leaving_costs_more() {
        let with_border = |border: f64| {
            let own = vec![[10.0, 50.0], [30.0, 20.0], [10.0, 50.0]];
            let borders = vec![(0, 1, [border, border]), (1, 2, [border, border])];
            Costs { own, borders }.cut().cheapest()
        };
        assert_eq!(with_border(3.0), [Label::Low, Label::Wide, Label::Low]);
        assert_eq!(with_border(6.0), [Label::Low; 3]);
    }

    #[test]
    fn fixed_groups_keep_their_labels() {
        let mut cut = Costs { own: vec![[10.0, 50.0], [50.0, 10.0]], borders: Vec::new() }.cut();
        cut.fix(0, Label::Wide);
        cut.fix(1, Label::Low);
        assert_eq!(cut.cheapest(), [Label::Wide, Label::Low]);
    }
}
