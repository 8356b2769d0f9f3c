//! Against the reference, bit by bit: every question, missing features, any number of rows and targets.

use planish_op::TreeEnsemble;
use planish_tensor::{DType, Tensor};
use planish_testing::Random;

use super::TreesFamily;
use crate::trial::{Input, OpTrial};

/// A tree of random shape with so many inner nodes, put behind what the ensemble has; a leaf has so many weights at most.
fn grow(op: &mut TreeEnsemble, random: &mut Random, n_nodes: usize, most_weights: usize) {
    let n_targets = op.n_targets as usize;
    let first = op.nodes_featureids.len();
    op.tree_roots.push(first as i64);
    // Branches that lead nowhere yet: the node, and whether it is its yes.
    let mut open: Vec<(usize, bool)> = Vec::new();
    let hang = |op: &mut TreeEnsemble, (node, is_yes): (usize, bool), id: usize, is_leaf: bool| {
        let (ids, leaves) = match is_yes {
            true => (&mut op.nodes_truenodeids, &mut op.nodes_trueleafs),
            false => (&mut op.nodes_falsenodeids, &mut op.nodes_falseleafs),
        };
        (ids[node], leaves[node]) = (id as i64, i64::from(is_leaf));
    };
    for node in first..first + n_nodes {
        if node > first {
            let place = random.below(open.len());
            let branch = open.swap_remove(place);
            hang(op, branch, node, false);
        }
        for list in [
            &mut op.nodes_truenodeids,
            &mut op.nodes_falsenodeids,
            &mut op.nodes_trueleafs,
            &mut op.nodes_falseleafs,
        ] {
            list.push(0);
        }
        op.nodes_featureids.push(random.below(5) as i64);
        op.nodes_missing_value_tracks_true.push(random.below(2) as i64);
        open.extend([(node, true), (node, false)]);
    }
    for branch in open {
        let leaf = op.leaf_starts.len();
        op.leaf_starts.push(op.leaf_targetids.len() as i64);
        for _ in 0..random.between(1, most_weights) {
            op.leaf_targetids.push(random.below(n_targets) as i64);
        }
        hang(op, branch, leaf, true);
    }
}

fn ensemble(
    random: &mut Random,
    dtype: DType,
    n_trees: usize,
    n_modes: usize,
    most_weights: usize,
) -> TreeEnsemble {
    let n_targets = random.between(1, 3);
    let mut op = TreeEnsemble {
        aggregate_function: random.below(4) as i64,
        leaf_starts: Vec::new(),
        leaf_targetids: Vec::new(),
        leaf_weights: Tensor::vector(Vec::<f32>::new()),
        membership_values: None,
        n_targets: n_targets as i64,
        nodes_falseleafs: Vec::new(),
        nodes_falsenodeids: Vec::new(),
        nodes_featureids: Vec::new(),
        nodes_missing_value_tracks_true: Vec::new(),
        nodes_modes: Tensor::vector(Vec::<u8>::new()),
        nodes_splits: Tensor::vector(Vec::<f32>::new()),
        nodes_trueleafs: Vec::new(),
        nodes_truenodeids: Vec::new(),
        tree_roots: Vec::new(),
    };
    for _ in 0..n_trees {
        let n_nodes = random.between(1, 40);
        grow(&mut op, random, n_nodes, most_weights);
    }
    let n_nodes = op.nodes_featureids.len();
    let modes: Vec<u8> = (0..n_nodes).map(|_| random.below(n_modes) as u8).collect();
    let n_sets = modes.iter().filter(|mode| **mode == 6).count();
    let sets: Vec<f64> = (0..n_sets).flat_map(|set| [-1.0, set as f64 % 3.0, f64::NAN]).collect();
    op.membership_values = (n_sets > 0).then(|| Tensor::from_f64s(dtype, &[sets.len()], &sets).unwrap());
    op.nodes_modes = Tensor::vector(modes);
    // Few different numbers, so that features meet splits.
    let splits: Vec<f64> = (0..n_nodes).map(|_| random.below(5) as f64 - 2.0).collect();
    op.nodes_splits = Tensor::from_f64s(dtype, &[n_nodes], &splits).unwrap();
    op.leaf_weights = random.tensor(dtype, &[op.leaf_targetids.len()], 2.0);
    op
}

#[test]
fn forests_agree() {
    let mut random = Random::new(7);
    for round in 0..120 {
        let dtype = [DType::F32, DType::F64][round % 2];
        // Orders alone, or every mode.
        let n_modes = [4, 7][round / 2 % 2];
        let n_trees = random.between(1, 20);
        let op = ensemble(&mut random, dtype, n_trees, n_modes, 1 + round / 4 % 2);
        let n_rows = [1, 3, 8, 16, 37, 150, 17][round % 7];
        let choices = [f64::NAN, -2.0, -1.0, 0.0, 1.0, 2.0, 0.5, f64::INFINITY];
        let values: Vec<f64> = (0..n_rows * 6).map(|_| choices[random.below(8)]).collect();
        let rows = Tensor::from_f64s(dtype, &[n_rows, 6], &values).unwrap();
        OpTrial::new(op, &[Input::Data(rows)], 1).check_exact(&TreesFamily, &mut random, None);
    }
}

/// So large that a row is work for a task, and tasks take more rows all the same.
#[test]
fn large_forests_agree() {
    let mut random = Random::new(9);
    for n_rows in [7, 15, 16, 33, 150] {
        let op = ensemble(&mut random, DType::F32, 900, 4, 2);
        let values: Vec<f64> = (0..n_rows * 6).map(|_| random.below(5) as f64 - 2.0).collect();
        let rows = Tensor::from_f64s(DType::F32, &[n_rows, 6], &values).unwrap();
        OpTrial::new(op, &[Input::Data(rows)], 1).check_exact(&TreesFamily, &mut random, None);
    }
}

#[test]
fn splits_without_a_number_below_them_are_walked_as_they_are() {
    let mut random = Random::new(8);
    let mut op = ensemble(&mut random, DType::F32, 3, 4, 2);
    let n_nodes = op.nodes_featureids.len();
    let splits: Vec<f32> =
        (0..n_nodes).map(|at| [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, f32::MIN][at % 4]).collect();
    op.nodes_splits = Tensor::vector(splits);
    let values = [f32::MIN, f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0, 1.0];
    let rows = Tensor::new(&[9, 6], (0..54).map(|at| values[at * 7 % 6]).collect::<Vec<f32>>()).unwrap();
    OpTrial::new(op, &[Input::Data(rows)], 1).check_exact(&TreesFamily, &mut random, None);
}
