//! Ensembles of trees: rows in parallel, eight walks at a time.
//!
//! A walk is a chain of loads that wait for each other, so several go on at once: eight rows in one tree, or one row
//! in eight trees where rows are few. Nodes that ask for an order become `feature <= split`, and leaves lead to
//! themselves, so that a step has no branch: walks have ended after as many steps as the tree is deep, or when a few
//! steps moved none of them. Weights are gathered in `f64` and in the order of the trees, as the reference does,
//! whoever computes a row.

mod family;
#[cfg(test)]
mod tests;

pub(crate) use family::TreesFamily;

use planish_op::trees::{Child, Forest, Question};

use crate::spatial::units_per_task;
use crate::team::Team;

/// Walks that go on at once.
const LANES: usize = 8;
/// Steps between looks whether all walks have ended.
const STEPS: u32 = 4;
/// Rows of a task at most: their sums and a tree stay in the first cache.
const MAX_ROWS: usize = 64;
/// Steps of walks that a task takes, at least.
const TASK_STEPS: usize = 1 << 12;
/// The bit of [`Flat::feature`] that says that what is missing counts as a yes.
const MISSING_IS_YES: u32 = 1 << 31;

/// Types of features.
pub trait Feature: Copy + PartialOrd + Send + Sync + std::fmt::Debug {
    fn of(value: f64) -> Self;
    fn widened(self) -> f64;
    /// The next smaller number.
    fn before(self) -> Self;
}

impl Feature for f32 {
    fn of(value: f64) -> f32 {
        value as f32
    }

    fn widened(self) -> f64 {
        f64::from(self)
    }

    fn before(self) -> f32 {
        self.next_down()
    }
}

impl Feature for f64 {
    fn of(value: f64) -> f64 {
        value
    }

    fn widened(self) -> f64 {
        self
    }

    fn before(self) -> f64 {
        self.next_down()
    }
}

/// A node or a leaf.
#[derive(Clone, Copy, Debug)]
struct Flat<T> {
    split: T,
    /// Elements from the row's first one to the feature, and [`MISSING_IS_YES`].
    feature: u32,
    /// Where a no and a yes lead; a leaf leads to itself.
    next: [u32; 2],
}

/// Trees of which every node asks for an order, as one table.
#[derive(Debug)]
struct Table<T> {
    places: Vec<Flat<T>>,
    /// The leaf at each place; nodes have none.
    leaves: Vec<u32>,
    roots: Vec<u32>,
    /// Steps from each root to its furthest leaf.
    depths: Vec<u32>,
    /// The target and the weight at each place that is a leaf, where every leaf has one of them.
    singles: Option<Vec<(u32, f64)>>,
}

impl<T: Feature> Table<T> {
    /// `None` where a node asks for something else than an order, or a number does not fit.
    fn of(forest: &Forest, feature_stride: usize) -> Option<Table<T>> {
        let mut table = Table {
            places: Vec::new(),
            leaves: Vec::new(),
            roots: Vec::new(),
            depths: Vec::new(),
            singles: None,
        };
        for &root in &forest.roots {
            table.roots.push(u32::try_from(table.places.len()).ok()?);
            let mut deepest = 0;
            // What is still to be placed, how deep, and the branch that leads there; the yes side of a node follows it.
            let mut open = vec![(Child::Node(root), 0, None)];
            while let Some((child, depth, from)) = open.pop() {
                deepest = deepest.max(depth);
                let place = u32::try_from(table.places.len()).ok()?;
                if let Some((from, side)) = from {
                    let from: &mut Flat<T> = table.places.get_mut::<usize>(from)?;
                    from.next[side] = place;
                }
                let at = table.places.len();
                match child {
                    Child::Leaf(leaf) => {
                        table.places.push(Flat { split: T::of(0.0), feature: 0, next: [place; 2] });
                        table.leaves.push(u32::try_from(leaf).ok()?);
                    }
                    Child::Node(node) => {
                        let node = &forest.nodes[node];
                        // `x > s` is not `x <= s`; then a missing feature is on the other side too.
                        let (split, is_turned) = match node.question {
                            Question::AtMost(split) => (T::of(split), false),
                            Question::Below(split) => (T::of(split).before(), false),
                            Question::Above(split) => (T::of(split), true),
                            Question::AtLeast(split) => (T::of(split).before(), true),
                            _ => return None,
                        };
                        // No order holds with a split that is no number, and nothing lies below the least one.
                        if split.widened().is_nan() || split.widened().is_infinite() {
                            return None;
                        }
                        let feature = u32::try_from(node.feature.checked_mul(feature_stride)?).ok()?;
                        if feature >= MISSING_IS_YES {
                            return None;
                        }
                        let flag = if node.missing_is_yes != is_turned { MISSING_IS_YES } else { 0 };
                        let (yes, no) = if is_turned { (node.no, node.yes) } else { (node.yes, node.no) };
                        table.places.push(Flat { split, feature: feature | flag, next: [place; 2] });
                        table.leaves.push(u32::MAX);
                        open.push((no, depth + 1, Some((at, 0))));
                        open.push((yes, depth + 1, Some((at, 1))));
                    }
                }
            }
            table.depths.push(deepest);
        }
        let single = |&leaf: &u32| match leaf {
            u32::MAX => Some((0, 0.0)),
            _ => match *forest.leaf(leaf as usize) {
                [(target, weight)] => Some((u32::try_from(target).ok()?, weight)),
                _ => None,
            },
        };
        table.singles = table.leaves.iter().map(single).collect();
        Some(table)
    }

    /// The places where walks from these places end, which are at most `depth` steps away.
    ///
    /// # Safety
    /// Each row must have the features that the trees ask for.
    #[inline(always)]
    unsafe fn walk(&self, mut at: [u32; LANES], rows: [*const T; LANES], depth: u32) -> [u32; LANES] {
        let mut left = depth;
        loop {
            let before = at;
            let n_steps = left.min(STEPS);
            for _ in 0..n_steps {
                for (at, row) in at.iter_mut().zip(&rows) {
                    // SAFETY: places lead to places of the table only, and the caller grants the features.
                    let (place, x) = unsafe {
                        let place = self.places.get_unchecked(*at as usize);
                        let feature = place.feature & !MISSING_IS_YES;
                        (place, row.add(feature as usize).read_unaligned())
                    };
                    #[allow(clippy::eq_op)]
                    let is_missing = x != x;
                    let yes = (x <= place.split) | (is_missing & (place.feature & MISSING_IS_YES != 0));
                    *at = place.next[usize::from(yes)];
                }
            }
            left -= n_steps;
            if left == 0 || at == before {
                return at;
            }
        }
    }
}

impl<T: Feature> Table<T> {
    /// Tells `found` of every row and the place where it ends in every tree, for each row in the order of the trees.
    ///
    /// # Safety
    /// `row_at` must lead to rows that have the features that the trees ask for.
    #[inline(always)]
    unsafe fn walks(
        &self,
        n_rows: usize,
        row_at: impl Fn(usize) -> *const T,
        mut found: impl FnMut(usize, usize),
    ) {
        let lanes =
            |first: usize, n: usize| std::array::from_fn::<usize, LANES, _>(|lane| (first + lane).min(n - 1));
        if n_rows >= LANES {
            for (&root, &depth) in self.roots.iter().zip(&self.depths) {
                for first in (0..n_rows).step_by(LANES) {
                    // SAFETY: the caller grants the rows; those that are too many are the last one again.
                    let ends = unsafe { self.walk([root; LANES], lanes(first, n_rows).map(&row_at), depth) };
                    (first..n_rows).zip(ends).for_each(|(row, end)| found(row, end as usize));
                }
            }
            return;
        }
        let n_trees = self.roots.len();
        for row in 0..n_rows {
            for first in (0..n_trees).step_by(LANES) {
                let trees = lanes(first, n_trees);
                let starts = trees.map(|tree| self.roots[tree]);
                let depth = trees.iter().map(|&tree| self.depths[tree]).max().unwrap_or(0);
                // SAFETY: the caller grants the rows.
                let ends = unsafe { self.walk(starts, [row_at(row); LANES], depth) };
                (first..n_trees).zip(ends).for_each(|(_, end)| found(row, end as usize));
            }
        }
    }
}

/// An ensemble with everything settled that its sizes settle.
#[derive(Debug)]
pub struct Trees<T> {
    forest: Forest,
    /// `None` where nodes ask for more than an order: such forests are walked as they are.
    table: Option<Table<T>>,
    pub n_rows: usize,
    /// Elements from one row to the next, from one feature to the next, and the same of the results.
    pub row: usize,
    pub feature: usize,
    pub result_row: usize,
    pub target: usize,
}

/// What a run reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct TreesArguments<T> {
    pub rows: *const T,
    pub results: *mut T,
    /// [`Trees::workspace_len`] numbers for each slot of the team.
    pub workspace: *mut f64,
}

// SAFETY: the rows are only read, the results are written by one task each, the workspace by one slot each.
unsafe impl<T> Sync for TreesArguments<T> {}

impl<T: Feature> Trees<T> {
    /// Steps that the walks of one row take, about: trees are about as deep as balanced ones.
    fn steps_per_row(&self) -> usize {
        let n_trees = self.forest.roots.len();
        n_trees * (1 + (self.forest.nodes.len() / n_trees.max(1)).ilog2_or_zero())
    }

    /// Rows of a task. Every task reads the whole forest, which may be larger than the caches: 500 trees over 32 rows in
    /// tasks of one row read it 32 times. So a task takes its thread's share of the rows, in groups that walk together.
    /// No sum depends on it.
    fn rows_per_task(&self, n_threads: usize) -> usize {
        let worth = units_per_task(self.n_rows, self.steps_per_row(), TASK_STEPS);
        let rows = match self.n_rows < 2 * LANES {
            true => worth,
            false => worth.max(self.n_rows.div_ceil(n_threads)).next_multiple_of(LANES),
        };
        rows.min(MAX_ROWS)
    }

    /// Numbers of workspace for one slot.
    pub fn workspace_len(&self) -> usize {
        MAX_ROWS * self.forest.n_targets
    }

    /// Computes all rows.
    ///
    /// # Safety
    /// The pointers must be valid for what the planned operands span, the workspace for [`Trees::workspace_len`]
    /// numbers for each slot of the team, and nothing else may write them meanwhile.
    pub unsafe fn run(&self, arguments: &TreesArguments<T>, team: &Team) {
        let rows_per_task = self.rows_per_task(team.n_slots());
        team.for_each(self.n_rows.div_ceil(rows_per_task), &|task| {
            let first = task.idx * rows_per_task;
            let n_rows = rows_per_task.min(self.n_rows - first);
            // SAFETY: the slot's part of the workspace is this thread's, and as large.
            let gathered = unsafe {
                let start = arguments.workspace.add(task.slot * self.workspace_len());
                (0..n_rows * self.forest.n_targets).for_each(|at| start.add(at).write(f64::NAN));
                std::slice::from_raw_parts_mut(start, n_rows * self.forest.n_targets)
            };
            // SAFETY: the caller grants the rows.
            unsafe { self.gather(arguments.rows.add(first * self.row), n_rows, gathered) };
            let n_trees = self.forest.roots.len();
            for (row, gathered) in gathered.chunks_exact(self.forest.n_targets).enumerate() {
                for (target, all) in gathered.iter().enumerate() {
                    let result = self.forest.aggregate.result(*all, n_trees);
                    let at = (first + row) * self.result_row + target * self.target;
                    // SAFETY: the result lies in the output.
                    unsafe { arguments.results.add(at).write_unaligned(T::of(result)) };
                }
            }
        });
    }

    /// Adds the weights of the leaves that `n_rows` rows from `rows` on reach.
    ///
    /// # Safety
    /// The rows must be readable.
    unsafe fn gather(&self, rows: *const T, n_rows: usize, gathered: &mut [f64]) {
        let n_targets = self.forest.n_targets;
        let row_at = |row: usize| rows.wrapping_add(row * self.row);
        let mut add_to = |row: usize, target: usize, weight: f64| {
            let so_far = &mut gathered[row * n_targets + target];
            *so_far = self.forest.aggregate.with(*so_far, weight);
        };
        let mut add = |row: usize, leaf: usize| {
            self.forest.leaf(leaf).iter().for_each(|&(target, weight)| add_to(row, target, weight));
        };
        let Some(table) = &self.table else {
            for row in 0..n_rows {
                let start = row_at(row);
                // SAFETY: the forest asks for features that a row has.
                let feature = |at: usize| unsafe { start.add(at * self.feature).read_unaligned().widened() };
                for &root in &self.forest.roots {
                    add(row, self.forest.walk(root, feature));
                }
            }
            return;
        };
        // SAFETY: the caller grants the rows.
        unsafe {
            match &table.singles {
                Some(singles) => table.walks(n_rows, row_at, |row, end| {
                    let (target, weight) = singles[end];
                    add_to(row, target as usize, weight);
                }),
                None => table.walks(n_rows, row_at, |row, end| add(row, table.leaves[end] as usize)),
            }
        }
    }
}

/// The logarithm of a count that may be 0.
trait Log {
    fn ilog2_or_zero(self) -> usize;
}

impl Log for usize {
    fn ilog2_or_zero(self) -> usize {
        self.checked_ilog2().unwrap_or(0) as usize
    }
}
