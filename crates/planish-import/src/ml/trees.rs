//! Ensembles of trees: lists of nodes by tree and number become one table of nodes and one of leaves.

use std::collections::{HashMap, HashSet};

use planish_ir::ValueId;
use planish_onnx::AttributeValue;
use planish_op as op;
use planish_tensor::{DType, Tensor};

use super::labels::Labels;
use super::linear::{Second, finish_classes, finish_scores, one_score_of_two};
use super::{Made, PostTransform};
use crate::error::ImportError;
use crate::node::NodeImport;

/// Version 5 has the form of the operator table.
pub(super) fn tree_ensemble(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let transform = match n.int_or("post_transform", 0)? {
        0 => PostTransform::None,
        1 => PostTransform::Softmax,
        2 => PostTransform::Logistic,
        3 => PostTransform::SoftmaxZero,
        _ => return Err(n.unsupported(Some("a post_transform other than 0 to 3"))),
    };
    let list = n.op_attributes("TreeEnsemble", &["post_transform", "nodes_hitrates"])?;
    let trees = op::Op::from_attributes("TreeEnsemble", &list)?;
    let rows = n.required(0)?;
    let scores = n.temporary(trees, &[Some(rows)])?;
    let scores = transform.apply(n, scores)?;
    n.alias(0, scores)
}

pub(super) fn tree_ensemble_regressor(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let transform = PostTransform::of(n)?;
    let aggregate = match n.text("aggregate_function")?.as_deref() {
        None | Some("SUM") => 1,
        Some("AVERAGE") => 0,
        Some("MIN") => 2,
        Some("MAX") => 3,
        Some(_) => {
            return Err(ImportError::invalid(
                "attribute `aggregate_function` must be SUM, AVERAGE, MIN or MAX",
            ));
        }
    };
    let n_targets = n.int_or("n_targets", 1)?;
    let leaves = Leaves::of(n, "target")?;
    let scores = ensemble(n, &leaves, aggregate, n_targets)?;
    let base = n.wide_list("base_values")?.unwrap_or_default();
    let scores = with_base(n, scores, &base)?;
    let scores = transform.apply(n, scores)?;
    finish_scores(n, scores)
}

/// Where all weights are of one of two classes, their sum tells both, as ONNX Runtime reads it: weights that are shares
/// (none is negative) make a share, others a score around 0.
pub(super) fn tree_ensemble_classifier(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let transform = PostTransform::of(n)?;
    let labels = Labels::of(n, "classlabels_int64s")?;
    let mut leaves = Leaves::of(n, "class")?;
    let base = n.wide_list("base_values")?.unwrap_or_default();
    let is_one_score = labels.len() == 2 && leaves.ids.iter().collect::<HashSet<_>>().len() == 1;
    if is_one_score {
        let is_share = leaves.weights.iter().all(|weight| *weight >= 0.0);
        leaves.ids.fill(0);
        let score = ensemble(n, &leaves, 1, 1)?;
        let base: Vec<f64> = base.last().copied().into_iter().collect();
        let score = with_base(n, score, &base)?;
        let threshold = if is_share { 0.5 } else { 0.0 };
        // A share is what it is, whatever is asked to follow.
        let transform = if is_share { PostTransform::None } else { transform };
        return one_score_of_two(n, score, labels, Second { threshold, is_share, transform });
    }
    let scores = ensemble(n, &leaves, 1, labels.len() as i64)?;
    let scores = with_base(n, scores, &base)?;
    finish_classes(n, scores, labels, transform)
}

fn with_base(n: &mut NodeImport<'_, '_>, scores: ValueId, base: &[f64]) -> Made {
    if base.iter().all(|value| *value == 0.0) {
        return Ok(scores);
    }
    let dtype = n.type_of(scores)?.dtype;
    let base = n.number_list("base", dtype, &[base.len()], base)?;
    n.add_values(scores, base)
}

/// What the leaves say: by tree and number of the node, a target and its weight.
struct Leaves {
    trees: Vec<i64>,
    nodes: Vec<i64>,
    ids: Vec<i64>,
    weights: Vec<f64>,
}

impl Leaves {
    /// `what` is `target` or `class`.
    fn of(n: &mut NodeImport<'_, '_>, what: &str) -> Result<Leaves, ImportError> {
        let list =
            |n: &NodeImport<'_, '_>, name: &str| Ok::<_, ImportError>(n.ints(name)?.unwrap_or_default());
        let leaves = Leaves {
            trees: list(n, &format!("{what}_treeids"))?,
            nodes: list(n, &format!("{what}_nodeids"))?,
            ids: list(n, &format!("{what}_ids"))?,
            weights: n.wide_list(&format!("{what}_weights"))?.unwrap_or_default(),
        };
        let len = leaves.ids.len();
        if [leaves.trees.len(), leaves.nodes.len(), leaves.weights.len()] != [len; 3] {
            return Err(ImportError::invalid(format!("the lists of `{what}_…` differ in length")));
        }
        Ok(leaves)
    }
}

/// The lists of the nodes, one element for each.
struct Nodes {
    trees: Vec<i64>,
    numbers: Vec<i64>,
    yes: Vec<i64>,
    no: Vec<i64>,
    features: Vec<i64>,
    splits: Vec<f64>,
    modes: Vec<Mode>,
    missing: Vec<i64>,
}

/// What a node is: a leaf, or a question by its number in version 5.
type Mode = Option<u8>;

impl Nodes {
    fn of(n: &mut NodeImport<'_, '_>) -> Result<Nodes, ImportError> {
        let list =
            |n: &NodeImport<'_, '_>, name: &str| Ok::<_, ImportError>(n.ints(name)?.unwrap_or_default());
        let nodes = Nodes {
            trees: list(n, "nodes_treeids")?,
            numbers: list(n, "nodes_nodeids")?,
            yes: list(n, "nodes_truenodeids")?,
            no: list(n, "nodes_falsenodeids")?,
            features: list(n, "nodes_featureids")?,
            splits: n.wide_list("nodes_values")?.unwrap_or_default(),
            modes: modes(n)?,
            missing: list(n, "nodes_missing_value_tracks_true")?,
        };
        let len = nodes.numbers.len();
        let lengths = [nodes.trees.len(), nodes.yes.len(), nodes.no.len(), nodes.features.len()];
        let missing = nodes.missing.len();
        if lengths != [len; 4]
            || [nodes.splits.len(), nodes.modes.len()] != [len; 2]
            || (missing != 0 && missing != len)
        {
            return Err(ImportError::invalid("the lists of `nodes_…` differ in length"));
        }
        Ok(nodes)
    }
}

fn modes(n: &NodeImport<'_, '_>) -> Result<Vec<Mode>, ImportError> {
    let Some(AttributeValue::Strings(words)) = n.attribute("nodes_modes") else {
        return Err(ImportError::invalid("attribute `nodes_modes` must be a list of strings"));
    };
    let mode = |word: &[u8]| {
        Ok(match word {
            b"LEAF" => None,
            b"BRANCH_LEQ" => Some(0),
            b"BRANCH_LT" => Some(1),
            b"BRANCH_GTE" => Some(2),
            b"BRANCH_GT" => Some(3),
            b"BRANCH_EQ" => Some(4),
            b"BRANCH_NEQ" => Some(5),
            _ => return Err(ImportError::invalid("attribute `nodes_modes` has a word that is no mode")),
        })
    };
    words.iter().map(|word| mode(word)).collect()
}

/// The sums of the trees, one for each target, in the type of the rows.
fn ensemble(n: &mut NodeImport<'_, '_>, leaves: &Leaves, aggregate: i64, n_targets: i64) -> Made {
    let nodes = Nodes::of(n)?;
    let trees = table(&nodes, leaves)?;
    let rows = n.rows()?;
    let dtype = n.type_of(rows)?.dtype;
    let numbers = |values: &[f64]| {
        Tensor::from_f64s(dtype, &[values.len()], values)
            .map_err(|error| ImportError::invalid(error.to_string()))
    };
    let trees = op::TreeEnsemble {
        aggregate_function: aggregate,
        n_targets,
        nodes_splits: numbers(&trees.splits)?,
        leaf_weights: numbers(&trees.weights)?,
        ..trees.op
    };
    debug_assert!(matches!(dtype, DType::F32 | DType::F64));
    n.temporary(trees, &[Some(rows)])
}

/// The attributes under construction, with numbers that are yet to be rounded.
struct Trees {
    op: op::TreeEnsemble,
    splits: Vec<f64>,
    weights: Vec<f64>,
}

fn table(nodes: &Nodes, leaves: &Leaves) -> Result<Trees, ImportError> {
    let mut place_of = HashMap::new();
    let (mut n_inner, mut n_leaves) = (0, 0);
    for (at, mode) in nodes.modes.iter().enumerate() {
        let count = if mode.is_some() { &mut n_inner } else { &mut n_leaves };
        if place_of.insert((nodes.trees[at], nodes.numbers[at]), (mode.is_none(), *count)).is_some() {
            let detail = format!("tree {} has two nodes {}", nodes.trees[at], nodes.numbers[at]);
            return Err(ImportError::invalid(detail));
        }
        *count += 1;
    }
    let find = |tree: i64, number: i64| {
        let found = place_of.get(&(tree, number)).copied();
        found.ok_or_else(|| ImportError::invalid(format!("tree {tree} has no node {number}")))
    };
    // Weights by leaf, in the order of the list.
    let mut of_leaf: Vec<Vec<usize>> = vec![Vec::new(); n_leaves as usize];
    for at in 0..leaves.ids.len() {
        match find(leaves.trees[at], leaves.nodes[at])? {
            (true, leaf) => of_leaf[leaf as usize].push(at),
            (false, _) => {
                let detail = format!(
                    "node {} of tree {} has a weight and is no leaf",
                    leaves.nodes[at], leaves.trees[at]
                );
                return Err(ImportError::invalid(detail));
            }
        }
    }
    let mut op = op::TreeEnsemble {
        aggregate_function: 1,
        leaf_starts: Vec::new(),
        leaf_targetids: Vec::new(),
        leaf_weights: Tensor::vector(Vec::<f32>::new()),
        membership_values: None,
        n_targets: 1,
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
    let (mut splits, mut weights, mut questions) = (Vec::new(), Vec::new(), Vec::new());
    for list in &of_leaf {
        op.leaf_starts.push(op.leaf_targetids.len() as i64);
        op.leaf_targetids.extend(list.iter().map(|at| leaves.ids[*at]));
        weights.extend(list.iter().map(|at| leaves.weights[*at]));
    }
    if of_leaf.iter().all(|list| list.len() == 1) {
        op.leaf_starts.clear();
    }
    let mut hang =
        |op: &mut op::TreeEnsemble, question: u8, feature: i64, yes: (bool, i64), no: (bool, i64)| {
            questions.push(question);
            op.nodes_featureids.push(feature);
            op.nodes_trueleafs.push(yes.0.into());
            op.nodes_truenodeids.push(yes.1);
            op.nodes_falseleafs.push(no.0.into());
            op.nodes_falsenodeids.push(no.1);
        };
    for (at, mode) in nodes.modes.iter().enumerate() {
        let Some(question) = *mode else { continue };
        let tree = nodes.trees[at];
        let (yes, no) = (find(tree, nodes.yes[at])?, find(tree, nodes.no[at])?);
        hang(&mut op, question, nodes.features[at], yes, no);
        splits.push(nodes.splits[at]);
        op.nodes_missing_value_tracks_true.push(nodes.missing.get(at).copied().unwrap_or(0));
    }
    // A tree begins at its first node in the list; one that is a leaf alone gets a node whose answers are the same.
    let mut begun = HashSet::new();
    for (at, mode) in nodes.modes.iter().enumerate() {
        if !begun.insert(nodes.trees[at]) {
            continue;
        }
        let place = find(nodes.trees[at], nodes.numbers[at])?;
        if mode.is_some() {
            op.tree_roots.push(place.1);
            continue;
        }
        op.tree_roots.push(splits.len() as i64);
        hang(&mut op, 0, 0, place, place);
        splits.push(0.0);
        op.nodes_missing_value_tracks_true.push(0);
    }
    if op.nodes_missing_value_tracks_true.iter().all(|flag| *flag == 0) {
        op.nodes_missing_value_tracks_true.clear();
    }
    op.nodes_modes = Tensor::vector(questions);
    Ok(Trees { op, splits, weights })
}
