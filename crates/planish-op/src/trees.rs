//! The trees of a TreeEnsemble as whoever walks them wants them: checked once, so that every walk ends at a leaf.

use crate::TreeEnsemble;

/// What an inner node asks of its feature.
#[derive(Clone, PartialEq, Debug)]
pub enum Question {
    /// At most the split.
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
    Above(f64),
    Equals(f64),
    Differs(f64),
    /// One of these numbers.
    IsOneOf(Vec<f64>),
}

impl Question {
    /// The answer for a number; one that is missing (NaN) is no member, and neither above nor below.
    pub fn holds(&self, x: f64) -> bool {
        match self {
            Question::AtMost(split) => x <= *split,
            Question::Below(split) => x < *split,
            Question::AtLeast(split) => x >= *split,
            Question::Above(split) => x > *split,
            Question::Equals(split) => x == *split,
            Question::Differs(split) => x != *split,
            Question::IsOneOf(members) => members.contains(&x),
        }
    }
}

/// Where a branch leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Child {
    Node(usize),
    Leaf(usize),
}

/// An inner node.
#[derive(Clone, PartialEq, Debug)]
pub struct TreeNode {
    pub feature: usize,
    pub question: Question,
    /// A missing feature (NaN) counts as a yes.
    pub missing_is_yes: bool,
    pub yes: Child,
    pub no: Child,
}

impl TreeNode {
    /// Where a row with this feature goes.
    pub fn next(&self, x: f64) -> Child {
        if self.question.holds(x) || (self.missing_is_yes && x.is_nan()) { self.yes } else { self.no }
    }
}

/// What becomes of the weights that the trees give to a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

impl Aggregate {
    /// One weight more. NaN stands for none yet.
    pub fn with(self, so_far: f64, weight: f64) -> f64 {
        match self {
            _ if so_far.is_nan() => weight,
            Aggregate::Average | Aggregate::Sum => so_far + weight,
            Aggregate::Min => so_far.min(weight),
            Aggregate::Max => so_far.max(weight),
        }
    }

    /// The result after all trees; a target that no tree spoke of is 0.
    pub fn result(self, gathered: f64, n_trees: usize) -> f64 {
        match self {
            _ if gathered.is_nan() => 0.0,
            Aggregate::Average => gathered / n_trees as f64,
            _ => gathered,
        }
    }
}

/// All trees of an ensemble.
#[derive(Clone, PartialEq, Debug)]
pub struct Forest {
    pub nodes: Vec<TreeNode>,
    /// The first node of each tree. No node is in two trees, and none twice in one.
    pub roots: Vec<usize>,
    pub n_leaves: usize,
    /// Where the weights of each leaf begin, and the end of the last: one more than there are leaves.
    starts: Vec<usize>,
    weights: Vec<(usize, f64)>,
    pub n_targets: usize,
    /// Features that a row must have.
    pub n_features: usize,
    pub aggregate: Aggregate,
}

impl Forest {
    /// The trees that the attributes tell, or what is wrong with them.
    pub fn of(op: &TreeEnsemble) -> Result<Forest, String> {
        let n_nodes = op.nodes_featureids.len();
        let n_leaves = op.leaf_targetids.len();
        let splits = op.nodes_splits.to_f64s();
        let modes = op.nodes_modes.to_i64s();
        let lengths = [
            ("nodes_splits", splits.len()),
            ("nodes_modes", modes.len()),
            ("nodes_truenodeids", op.nodes_truenodeids.len()),
            ("nodes_falsenodeids", op.nodes_falsenodeids.len()),
            ("nodes_trueleafs", op.nodes_trueleafs.len()),
            ("nodes_falseleafs", op.nodes_falseleafs.len()),
        ];
        if let Some((name, len)) = lengths.into_iter().find(|(_, len)| *len != n_nodes) {
            return Err(format!("`{name}` has {len} elements for {n_nodes} nodes"));
        }
        let missing = &op.nodes_missing_value_tracks_true;
        if !missing.is_empty() && missing.len() != n_nodes {
            return Err(format!(
                "`nodes_missing_value_tracks_true` has {} elements for {n_nodes} nodes",
                missing.len()
            ));
        }
        let n_targets = usize::try_from(op.n_targets).ok().filter(|n| *n > 0);
        let n_targets = n_targets.ok_or_else(|| format!("n_targets is {}, not at least 1", op.n_targets))?;
        let (starts, weights) = leaves(op, n_targets)?;
        let n_leaves = if op.leaf_starts.is_empty() { n_leaves } else { starts.len() - 1 };
        let child = |id: i64, is_leaf: i64| {
            let (most, what) = if is_leaf != 0 { (n_leaves, "leaves") } else { (n_nodes, "nodes") };
            let id = usize::try_from(id).ok().filter(|id| *id < most);
            let id = id.ok_or_else(|| format!("a branch leads to none of the {most} {what}"))?;
            Ok::<Child, String>(if is_leaf != 0 { Child::Leaf(id) } else { Child::Node(id) })
        };
        let mut sets = members(op);
        let mut nodes = Vec::with_capacity(n_nodes);
        for at in 0..n_nodes {
            let split = splits[at];
            let question = match modes[at] {
                0 => Question::AtMost(split),
                1 => Question::Below(split),
                2 => Question::AtLeast(split),
                3 => Question::Above(split),
                4 => Question::Equals(split),
                5 => Question::Differs(split),
                6 => Question::IsOneOf(
                    sets.next().ok_or("`membership_values` has fewer sets than nodes ask for")?,
                ),
                mode => return Err(format!("node {at} has the mode {mode}; there are 0 to 6")),
            };
            let feature = op.nodes_featureids[at];
            // As many as 32 bits count, and less than a row of anything has.
            let feature = u32::try_from(feature).ok().filter(|id| *id < 1 << 30);
            nodes.push(TreeNode {
                feature: feature.ok_or_else(|| format!("node {at} asks for no feature that may be"))?
                    as usize,
                question,
                missing_is_yes: missing.get(at).is_some_and(|flag| *flag != 0),
                yes: child(op.nodes_truenodeids[at], op.nodes_trueleafs[at])?,
                no: child(op.nodes_falsenodeids[at], op.nodes_falseleafs[at])?,
            });
        }
        let root = |id: &i64| usize::try_from(*id).ok().filter(|id| *id < n_nodes);
        let roots: Option<Vec<usize>> = op.tree_roots.iter().map(root).collect();
        let roots = roots.ok_or_else(|| format!("a tree begins at none of the {n_nodes} nodes"))?;
        let aggregate = match op.aggregate_function {
            0 => Aggregate::Average,
            1 => Aggregate::Sum,
            2 => Aggregate::Min,
            3 => Aggregate::Max,
            other => return Err(format!("aggregate_function is {other}; there are 0 to 3")),
        };
        let n_features = nodes.iter().map(|node| node.feature + 1).max().unwrap_or(0);
        let forest = Forest { nodes, roots, n_leaves, starts, weights, n_targets, n_features, aggregate };
        forest.check_ends()?;
        Ok(forest)
    }

    /// Refuses nodes that two branches lead to: with them a walk need not end.
    fn check_ends(&self) -> Result<(), String> {
        let mut seen = vec![false; self.nodes.len()];
        let mut open: Vec<usize> = self.roots.clone();
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut seen[at], true) {
                return Err(format!("two branches lead to node {at}, which is no tree"));
            }
            for child in [self.nodes[at].yes, self.nodes[at].no] {
                if let Child::Node(next) = child {
                    open.push(next);
                }
            }
        }
        Ok(())
    }

    /// The targets that a leaf speaks of, each with its weight.
    pub fn leaf(&self, leaf: usize) -> &[(usize, f64)] {
        &self.weights[self.starts[leaf]..self.starts[leaf + 1]]
    }

    /// The leaf at which a row ends in the tree that begins at `root`; `feature` gives the row's numbers.
    pub fn walk(&self, root: usize, feature: impl Fn(usize) -> f64) -> usize {
        let mut at = root;
        loop {
            let node = &self.nodes[at];
            match node.next(feature(node.feature)) {
                Child::Node(next) => at = next,
                Child::Leaf(leaf) => return leaf,
            }
        }
    }
}

/// Where the weights of the leaves begin, and the weights.
#[allow(clippy::type_complexity)]
fn leaves(op: &TreeEnsemble, n_targets: usize) -> Result<(Vec<usize>, Vec<(usize, f64)>), String> {
    let values = op.leaf_weights.to_f64s();
    let n_weights = op.leaf_targetids.len();
    if values.len() != n_weights {
        return Err(format!("`leaf_weights` has {} elements for {n_weights} targets", values.len()));
    }
    let target = |id: &i64| usize::try_from(*id).ok().filter(|id| *id < n_targets);
    let targets: Option<Vec<usize>> = op.leaf_targetids.iter().map(target).collect();
    let targets = targets.ok_or_else(|| format!("a leaf speaks of none of the {n_targets} targets"))?;
    let weights = targets.into_iter().zip(values).collect();
    if op.leaf_starts.is_empty() {
        return Ok(((0..=n_weights).collect(), weights));
    }
    let start = |at: &i64| usize::try_from(*at).ok().filter(|at| *at <= n_weights);
    let mut starts: Vec<usize> =
        op.leaf_starts.iter().map(start).collect::<Option<_>>().ok_or("`leaf_starts` leads nowhere")?;
    starts.push(n_weights);
    if starts.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err("`leaf_starts` goes back".to_string());
    }
    Ok((starts, weights))
}

/// The sets of members, in the order of the nodes that ask for them; NaN ends each.
fn members(op: &TreeEnsemble) -> impl Iterator<Item = Vec<f64>> {
    let values = op.membership_values.as_ref().map(|values| values.to_f64s()).unwrap_or_default();
    let mut values = values.into_iter().peekable();
    std::iter::from_fn(move || {
        values.peek()?;
        Some(values.by_ref().take_while(|value| !value.is_nan()).collect())
    })
}

#[cfg(test)]
mod tests {
    use planish_tensor::Tensor;

    use super::*;

    /// Feature 0 at most 1, else feature 1 above 2: leaves 0, 1 and 2.
    fn two_nodes() -> TreeEnsemble {
        TreeEnsemble {
            aggregate_function: 1,
            leaf_starts: Vec::new(),
            leaf_targetids: vec![0, 0, 1],
            leaf_weights: Tensor::vector(vec![10f32, 20., 30.]),
            membership_values: None,
            n_targets: 2,
            nodes_falseleafs: vec![0, 1],
            nodes_falsenodeids: vec![1, 2],
            nodes_featureids: vec![0, 1],
            nodes_missing_value_tracks_true: Vec::new(),
            nodes_modes: Tensor::vector(vec![0u8, 3]),
            nodes_splits: Tensor::vector(vec![1f32, 2.]),
            nodes_trueleafs: vec![1, 1],
            nodes_truenodeids: vec![0, 1],
            tree_roots: vec![0],
        }
    }

    fn ends(op: &TreeEnsemble, row: [f64; 2]) -> usize {
        Forest::of(op).unwrap().walk(0, |feature| row[feature])
    }

    #[test]
    fn walks_end_at_leaves() {
        let mut op = two_nodes();
        assert_eq!(ends(&op, [1.0, 0.0]), 0);
        assert_eq!(ends(&op, [1.5, 2.5]), 1);
        assert_eq!(ends(&op, [1.5, 2.0]), 2);
        // What is missing is neither at most nor above.
        assert_eq!(ends(&op, [f64::NAN, f64::NAN]), 2);
        op.nodes_missing_value_tracks_true = vec![0, 1];
        assert_eq!(ends(&op, [f64::NAN, f64::NAN]), 1);
        op.nodes_modes = Tensor::vector(vec![6u8, 6]);
        op.membership_values = Some(Tensor::vector(vec![3f32, 4., f32::NAN, 5., f32::NAN]));
        assert_eq!(ends(&op, [4.0, 0.0]), 0);
        assert_eq!(ends(&op, [5.0, 5.0]), 1);
        assert_eq!(ends(&op, [5.0, 4.0]), 2);
    }

    #[test]
    fn leaves_may_speak_of_several_targets() {
        let op = TreeEnsemble { leaf_starts: vec![0, 2, 2], ..two_nodes() };
        let forest = Forest::of(&op).unwrap();
        assert_eq!(forest.n_leaves, 3);
        assert_eq!(forest.leaf(0), [(0, 10.0), (0, 20.0)]);
        assert!(forest.leaf(1).is_empty());
        assert_eq!(forest.leaf(2), [(1, 30.0)]);
    }

    #[test]
    fn what_is_no_forest_is_refused() {
        let refused = |change: &dyn Fn(&mut TreeEnsemble)| {
            let mut op = two_nodes();
            change(&mut op);
            Forest::of(&op).unwrap_err()
        };
        assert!(refused(&|op| op.nodes_falsenodeids[0] = 0).contains("two branches lead to node 0"));
        assert!(refused(&|op| op.nodes_falsenodeids[0] = 2).contains("none of the 2 nodes"));
        assert!(refused(&|op| op.nodes_truenodeids[1] = -1).contains("none of the 3 leaves"));
        assert!(refused(&|op| op.tree_roots.push(0)).contains("two branches"));
        assert!(refused(&|op| op.tree_roots[0] = 2).contains("a tree begins at none"));
        assert!(refused(&|op| op.leaf_targetids[2] = 2).contains("none of the 2 targets"));
        assert!(refused(&|op| op.nodes_trueleafs.clear()).contains("`nodes_trueleafs` has 0 elements"));
        assert!(refused(&|op| op.nodes_modes = Tensor::vector(vec![0u8, 7])).contains("the mode 7"));
        assert!(refused(&|op| op.nodes_modes = Tensor::vector(vec![0u8, 6])).contains("fewer sets"));
        assert!(refused(&|op| op.nodes_featureids[0] = -1).contains("no feature"));
        assert!(refused(&|op| op.leaf_starts = vec![0, 2, 1]).contains("goes back"));
        assert!(refused(&|op| op.leaf_starts = vec![0, 4]).contains("leads nowhere"));
        assert!(refused(&|op| op.n_targets = 0).contains("n_targets is 0"));
        assert!(refused(&|op| op.aggregate_function = 4).contains("there are 0 to 3"));
    }

    #[test]
    fn aggregates() {
        let of = |by: Aggregate, weights: &[f64]| {
            let all = weights.iter().fold(f64::NAN, |so_far, weight| by.with(so_far, *weight));
            by.result(all, 4)
        };
        let weights = [3.0, -1.0, 6.0];
        assert_eq!(of(Aggregate::Sum, &weights), 8.0);
        assert_eq!(of(Aggregate::Average, &weights), 2.0);
        assert_eq!(of(Aggregate::Min, &weights), -1.0);
        assert_eq!(of(Aggregate::Max, &weights), 6.0);
        assert_eq!(of(Aggregate::Max, &[]), 0.0);
    }
}
