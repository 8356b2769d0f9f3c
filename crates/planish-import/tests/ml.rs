//! What the importer makes of `ai.onnx.ml`: a model of one node in, its answers by the reference out.

use std::borrow::Cow;

use planish_import::Imported;
use planish_onnx::{
    Attribute, AttributeValue, DataType, Dimension, Graph, Model, Node, OpsetImport, Type, ValueInfo,
};
use planish_tensor::{Bytes, Tensor};

fn ints(name: &'static str, values: &[i64]) -> Attribute<'static> {
    Attribute::new(name, AttributeValue::Ints(values.to_vec()))
}

fn floats(name: &'static str, values: &[f32]) -> Attribute<'static> {
    Attribute::new(name, AttributeValue::Floats(values.to_vec()))
}

fn word(name: &'static str, value: &'static str) -> Attribute<'static> {
    Attribute::new(name, AttributeValue::String(value.as_bytes().into()))
}

fn words(name: &'static str, values: &[&'static str]) -> Attribute<'static> {
    Attribute::new(name, AttributeValue::Strings(values.iter().map(|word| word.as_bytes().into()).collect()))
}

fn import(
    op: &'static str,
    input: (DataType, &[i64]),
    outputs: &[&'static str],
    attributes: Vec<Attribute<'static>>,
) -> Result<Imported, String> {
    let dims = input.1.iter().map(|dim| Dimension::Value(*dim)).collect();
    let node = Node { domain: "ai.onnx.ml".into(), attributes, ..Node::new(op, &["x"], outputs) };
    let of_map = Type::Map {
        key: DataType::Int64,
        value: Box::new(Type::Tensor { elem: DataType::Float, shape: None }),
    };
    // What ZipMap declares; the others are told by inference.
    let ty = (op == "ZipMap").then(|| Type::Sequence(Box::new(of_map)));
    let output =
        |name: &&'static str| ValueInfo { name: Cow::Borrowed(*name), ty: ty.clone(), ..Default::default() };
    let graph = Graph {
        name: "case".into(),
        inputs: vec![ValueInfo::tensor("x", input.0, dims)],
        outputs: outputs.iter().map(output).collect(),
        nodes: vec![node],
        ..Graph::default()
    };
    let opset = |domain: &'static str, version| OpsetImport { domain: domain.into(), version };
    let opset_imports = vec![opset("", 21), opset("ai.onnx.ml", 3)];
    let model = Model { ir_version: 10, opset_imports, graph, ..Model::default() };
    let bytes = Bytes::from_vec(planish_onnx::write(&model));
    let imported = planish_import::import_bytes(&bytes, None).map_err(|error| error.to_string())?;
    imported.graph.verify().expect("an imported graph verifies");
    Ok(imported)
}

/// The outputs on rows of floats, and the notes.
#[track_caller]
fn answers(
    op: &'static str,
    (shape, values): (&[usize], &[f32]),
    outputs: &[&'static str],
    attributes: Vec<Attribute<'static>>,
) -> (Vec<Vec<f64>>, Vec<String>) {
    let dims: Vec<i64> = shape.iter().map(|dim| *dim as i64).collect();
    let imported = import(op, (DataType::Float, &dims), outputs, attributes).unwrap();
    let x = Tensor::new(shape, values.to_vec()).unwrap();
    let made = planish_ir::interpret(&imported.graph, vec![x.into()]).unwrap();
    (made.iter().map(|value| value.as_tensor().unwrap().to_f64s()).collect(), imported.notes)
}

fn one(op: &'static str, shape: &[usize], values: &[f32], attributes: Vec<Attribute<'static>>) -> Vec<f64> {
    answers(op, (shape, values), &["y"], attributes).0.remove(0)
}

/// One tree over two features with three leaves, and a tree that is a leaf alone.
fn nodes() -> Vec<Attribute<'static>> {
    vec![
        ints("nodes_treeids", &[0, 0, 0, 0, 0, 1]),
        ints("nodes_nodeids", &[0, 1, 2, 3, 4, 0]),
        ints("nodes_featureids", &[0, 0, 1, 0, 0, 0]),
        floats("nodes_values", &[0.5, 0.0, 1.5, 0.0, 0.0, 0.0]),
        words("nodes_modes", &["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF", "LEAF"]),
        ints("nodes_truenodeids", &[1, 0, 3, 0, 0, 0]),
        ints("nodes_falsenodeids", &[2, 0, 4, 0, 0, 0]),
    ]
}

/// What the four leaves say: trees and nodes, then targets, then weights.
fn leaves(what: &str, ids: &[i64], weights: &[f32]) -> Vec<Attribute<'static>> {
    let (trees, numbers, targets, values) = match what {
        "class" => ("class_treeids", "class_nodeids", "class_ids", "class_weights"),
        _ => ("target_treeids", "target_nodeids", "target_ids", "target_weights"),
    };
    let mut list = nodes();
    list.extend([ints(trees, &[0, 0, 0, 1]), ints(numbers, &[1, 3, 4, 0])]);
    list.extend([ints(targets, ids), floats(values, weights)]);
    list
}

const ROWS: (&[usize], &[f32]) = (&[3, 2], &[0.0, 0.0, 1.0, 2.0, 1.0, 1.0]);

#[test]
fn trees_of_a_regressor() {
    let of = |more: Vec<Attribute<'static>>| {
        let mut list = leaves("target", &[0, 0, 0, 0], &[1.0, 2.0, 3.0, 10.0]);
        list.extend(more);
        one("TreeEnsembleRegressor", ROWS.0, ROWS.1, list)
    };
    assert_eq!(of(vec![]), [11.0, 12.0, 13.0]);
    let average = of(vec![word("aggregate_function", "AVERAGE"), floats("base_values", &[0.5])]);
    assert_eq!(average, [6.0, 6.5, 7.0]);
    assert_eq!(of(vec![word("aggregate_function", "MIN")]), [1.0, 2.0, 3.0]);
}

#[test]
fn trees_of_a_classifier() {
    let of = |ids: &[i64], weights: &[f32], more: Vec<Attribute<'static>>| {
        let mut list = leaves("class", ids, weights);
        list.extend(more);
        answers("TreeEnsembleClassifier", ROWS, &["label", "scores"], list)
    };
    let labels = |labels: &[i64]| vec![ints("classlabels_int64s", labels)];
    let (three, _) = of(&[0, 1, 2, 1], &[1.0, 0.5, 3.0, 0.25], labels(&[7, 8, 9]));
    assert_eq!(three, [vec![7.0, 8.0, 9.0], vec![1.0, 0.25, 0.0, 0.0, 0.75, 0.0, 0.0, 0.25, 3.0]]);
    // Shares of the second class.
    let (shares, _) = of(&[1; 4], &[0.0, 0.5, 0.25, 0.25], labels(&[-1, 1]));
    assert_eq!(shares, [vec![-1.0, 1.0, -1.0], vec![0.75, 0.25, 0.25, 0.75, 0.5, 0.5]]);
    // Scores around 0.
    let (scores, _) = of(&[1; 4], &[-2.0, 0.5, 1.0, 0.5], labels(&[0, 1]));
    assert_eq!(scores, [vec![0.0, 1.0, 1.0], vec![1.5, -1.5, -1.0, 1.0, -1.5, 1.5]]);
    let texts = vec![words("classlabels_strings", &["no", "yes"])];
    let (places, notes) = of(&[1; 4], &[-2.0, 0.5, 1.0, 0.5], texts);
    assert_eq!(places[0], [0.0, 1.0, 1.0]);
    assert!(notes[0].contains("0 is no, 1 is yes"), "{notes:?}");
}

#[test]
fn lists_that_are_no_trees_are_refused() {
    let refused =
        |list| import("TreeEnsembleRegressor", (DataType::Float, &[1, 2]), &["y"], list).unwrap_err();
    let short = leaves("target", &[0, 0, 0], &[1.0, 2.0, 3.0]);
    assert!(refused(short).contains("differ in length"));
    let mut lost = leaves("target", &[0; 4], &[1.0; 4]);
    lost[5] = ints("nodes_truenodeids", &[9, 0, 3, 0, 0, 0]);
    assert!(refused(lost).contains("tree 0 has no node 9"));
    let mut round = leaves("target", &[0; 4], &[1.0; 4]);
    round[6] = ints("nodes_falsenodeids", &[2, 0, 0, 0, 0, 0]);
    assert!(refused(round).contains("two branches lead to node 0"));
}

#[test]
fn linear_models() {
    let list = vec![
        floats("coefficients", &[1.0, 2.0, -1.0, 0.0]),
        floats("intercepts", &[0.5, 0.0]),
        ints_of("targets", 2),
    ];
    assert_eq!(one("LinearRegressor", &[1, 2], &[3.0, 4.0], list), [11.5, -3.0]);
    let list = vec![
        floats("coefficients", &[1.0, 0.0, 0.0, 1.0, -1.0, -1.0]),
        floats("intercepts", &[0.0, 0.0, 1.0]),
        ints("classlabels_ints", &[4, 5, 6]),
    ];
    let (made, _) = answers("LinearClassifier", ROWS, &["label", "scores"], list);
    assert_eq!(made, [vec![6.0, 5.0, 4.0], vec![0.0, 0.0, 1.0, 1.0, 2.0, -2.0, 1.0, 1.0, -1.0]]);
}

#[test]
fn support_vectors_vote() {
    // One support vector a class, at 1, 2 and 4; the kernel is the product, so that scores are (w1 s1 + w2 s2) x + rho.
    let vectors = |more: Vec<Attribute<'static>>| {
        let mut list = vec![
            word("kernel_type", "LINEAR"),
            floats("support_vectors", &[1.0, 2.0, 4.0]),
            ints("vectors_per_class", &[1, 1, 1]),
            floats("coefficients", &[-1.0, 0.0, 0.0, -1.0, -1.0, 0.0]),
            floats("rho", &[1.5, 2.5, 6.5]),
            ints("classlabels_ints", &[5, 6, 7]),
        ];
        list.extend(more);
        list
    };
    let rows: (&[usize], &[f32]) = (&[3, 1], &[1.0, 2.0, 4.0]);
    let (made, _) = answers("SVMClassifier", rows, &["label", "scores"], vectors(vec![]));
    // Pairs are 5 or 6 (1.5 - x), 5 or 7 (2.5 - x), 6 or 7 (6.5 - 2 x).
    assert_eq!(made, [vec![5.0, 6.0, 7.0], vec![0.5, 1.5, 4.5, -0.5, 0.5, 2.5, -2.5, -1.5, -1.5]]);
    let two = vec![
        word("kernel_type", "RBF"),
        floats("kernel_params", &[1.0, 0.0, 3.0]),
        floats("support_vectors", &[0.0, 10.0]),
        ints("vectors_per_class", &[1, 1]),
        floats("coefficients", &[1.0, -1.0]),
        floats("rho", &[0.25]),
        words("classlabels_strings", &["near", "far"]),
    ];
    let (made, notes) = answers("SVMClassifier", (&[2, 1], &[0.0, 10.0]), &["label", "scores"], two);
    let (first, second) = (f64::from(1.25f32), f64::from(-0.75f32));
    assert_eq!(made, [vec![0.0, 1.0], vec![-first, first, -second, second]]);
    assert!(notes[0].contains("0 is near, 1 is far"), "{notes:?}");
    let refused =
        |list| import("SVMClassifier", (DataType::Float, &[1, 1]), &["label", "scores"], list).unwrap_err();
    let likely = vec![floats("prob_a", &[1.0; 3]), floats("prob_b", &[1.0; 3])];
    assert!(refused(vectors(likely)).contains("probability=False"));
    let mut short = vectors(vec![]);
    short[4] = floats("rho", &[1.5]);
    assert!(refused(short).contains("6 coefficients and 1 rho are not of 3 support vectors and 3 classes"));
}

fn ints_of(name: &'static str, value: i64) -> Attribute<'static> {
    Attribute::new(name, AttributeValue::Int(value))
}

#[test]
fn features_are_prepared() {
    let scaled =
        one("Scaler", &[1, 2], &[3.0, 4.0], vec![floats("offset", &[1.0, 2.0]), floats("scale", &[0.5])]);
    assert_eq!(scaled, [1.0, 1.0]);
    let rows: &[f32] = &[-1.0, 3.0, 0.0, 0.0];
    assert_eq!(one("Normalizer", &[2, 2], rows, vec![word("norm", "L1")]), [-0.25, 0.75, 0.0, 0.0]);
    assert_eq!(
        one("Normalizer", &[1, 2], &[3.0, -4.0], vec![word("norm", "L2")]),
        [0.6f32.into(), (-0.8f32).into()]
    );
    assert_eq!(one("Binarizer", &[3], &[0.5, 1.0, -1.0], vec![]), [1.0, 1.0, 0.0]);
    let missing = Attribute::new("replaced_value_float", AttributeValue::Float(f32::NAN));
    let filled = one(
        "Imputer",
        &[2, 2],
        &[f32::NAN, 1.0, 2.0, f32::NAN],
        vec![floats("imputed_value_floats", &[8.0, 9.0]), missing],
    );
    assert_eq!(filled, [8.0, 1.0, 2.0, 9.0]);
    assert_eq!(
        one("OneHotEncoder", &[2], &[3.0, 4.0], vec![ints("cats_int64s", &[3, 5])]),
        [1.0, 0.0, 0.0, 0.0]
    );
}

#[test]
fn labels_are_looked_up() {
    let list = vec![
        floats("keys_floats", &[1.0, f32::NAN, 3.0]),
        ints("values_int64s", &[10, 20, 30]),
        ints_of("default_int64", -7),
    ];
    assert_eq!(one("LabelEncoder", &[4], &[3.0, f32::NAN, 1.0, 2.0], list), [30.0, 20.0, 10.0, -7.0]);
    let list = vec![ints("keys_int64s", &[0, 1]), floats("values_floats", &[0.5, 1.5])];
    assert_eq!(one("LabelEncoder", &[4], &[1.0, 0.0, 2.0, -1.0], list), [1.5, 0.5, 0.0, 0.0]);
    let strings = vec![words("keys_strings", &["a"]), ints("values_int64s", &[1])];
    let error = import("LabelEncoder", (DataType::Float, &[1]), &["y"], strings).unwrap_err();
    assert!(error.contains("keys that are strings"), "{error}");
}

#[test]
fn maps_are_left_out_and_said() {
    let (made, notes) =
        answers("ZipMap", (&[1, 2], &[0.25, 0.75]), &["y"], vec![ints("classlabels_int64s", &[0, 1])]);
    assert_eq!(made, [[0.25, 0.75]]);
    assert_eq!(notes, ["`y` is the tensor of probabilities that ZipMap would make maps of"]);
    let error = import("DictVectorizer", (DataType::Float, &[1]), &["y"], vec![]).unwrap_err();
    assert!(error.contains("maps are not supported"), "{error}");
}
