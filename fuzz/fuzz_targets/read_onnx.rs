//! Any bytes as an ONNX file: everything that can be done with them ends in a value or a typed error, and what
//! is written reads back as the same bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use planish_onnx::{
    Attribute, AttributeValue, Graph, Model, OnnxErrorKind, SparseTensor, Tensor, inline_functions, read,
    read_optional, read_sequence, read_tensor, write, write_tensor,
};

/// Dense forms beyond this only cost the fuzzer time.
const MAX_DENSE: usize = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(tensor) = read_tensor(bytes) {
        visit_tensor(&tensor);
        let written = write_tensor(&tensor);
        assert_eq!(write_tensor(&read_tensor(&written).expect("a written tensor")), written);
    }
    let _ = read_sequence(bytes);
    let _ = read_optional(bytes);
    let Ok(mut model) = read(bytes) else { return };
    visit_graph(&model.graph);
    check_written(&model, false);
    if inline_functions(&mut model).is_ok() {
        assert!(model.functions.is_empty());
        visit_graph(&model.graph);
        check_written(&model, true);
    }
});

/// Inlining may nest types and constants deeper than a file may; nothing else may go wrong.
fn check_written(model: &Model<'_>, may_be_too_deep: bool) {
    let written = write(model);
    match read(&written) {
        Ok(again) => assert_eq!(write(&again), written),
        Err(error) if may_be_too_deep && error.kind() == OnnxErrorKind::TooDeep => {}
        Err(error) => panic!("a written model is refused: {error}"),
    }
}

fn visit_graph(graph: &Graph<'_>) {
    graph.initializers.iter().for_each(visit_tensor);
    graph.sparse_initializers.iter().for_each(visit_sparse);
    graph.nodes.iter().flat_map(|node| &node.attributes).for_each(visit_attribute);
}

fn visit_attribute(attribute: &Attribute<'_>) {
    match &attribute.value {
        AttributeValue::Tensor(tensor) => visit_tensor(tensor),
        AttributeValue::Tensors(tensors) => tensors.iter().for_each(visit_tensor),
        AttributeValue::SparseTensor(sparse) => visit_sparse(sparse),
        AttributeValue::SparseTensors(sparses) => sparses.iter().for_each(visit_sparse),
        AttributeValue::Graph(graph) => visit_graph(graph),
        AttributeValue::Graphs(graphs) => graphs.iter().for_each(visit_graph),
        _ => {}
    }
}

fn visit_tensor(tensor: &Tensor<'_>) {
    if let Ok(bytes) = tensor.to_le_bytes() {
        assert_eq!(tensor.byte_len(), Ok(bytes.len()));
    }
}

fn visit_sparse(sparse: &SparseTensor<'_>) {
    if sparse.dense_byte_len().is_ok_and(|length| length <= MAX_DENSE)
        && let Ok(dense) = sparse.to_dense_le_bytes()
    {
        assert_eq!(sparse.dense_byte_len(), Ok(dense.len()));
    }
}
