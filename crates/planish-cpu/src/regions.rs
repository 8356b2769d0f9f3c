//! Which nodes one CPU kernel may cover together: chains after products, groups of pointwise nodes, and
//! convolutions that widen, go depthwise and narrow again.

use planish_kernel::{Fusion, Proposal, Ref, Whole};
use planish_op::Op;
use planish_tensor::DType;

const FUSION: Fusion = Fusion {
    epilogue_types: &[DType::F32],
    pointwise_types: &[
        DType::F32,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::I8,
        DType::F8E4M3FN,
        DType::Bool,
    ],
};

/// Every proposal, longer ones before their parts.
pub(crate) fn propose(whole: &Whole) -> Vec<Proposal> {
    let n_nodes = whole.region.nodes.len() as u32;
    let mut proposals: Vec<Proposal> = (0..n_nodes).flat_map(|node| bottlenecks(whole, node)).collect();
    proposals.extend((0..n_nodes).flat_map(|node| scaled(whole, node)));
    proposals.extend((0..n_nodes).flat_map(|node| FUSION.quantized(whole, node)));
    proposals.extend((0..n_nodes).flat_map(|node| FUSION.weight_only(whole, node)));
    proposals.extend((0..n_nodes).filter_map(|node| recurrent(whole, node)));
    proposals.extend((0..n_nodes).flat_map(|node| of_bytes(whole, node)));
    proposals.extend((0..n_nodes).filter_map(|node| to_integers(whole, node)));
    proposals.extend(FUSION.propose(whole));
    proposals
}

/// The DequantizeLinear that a node reads at a place, and no other node does.
fn dequantized(whole: &Whole, reader: u32, place: usize) -> Option<u32> {
    match whole.region.nodes[reader as usize].inputs.get(place).copied().flatten()? {
        Ref::Node { node, .. } => {
            let is_dequantize = matches!(whole.region.nodes[node as usize].op, Op::DequantizeLinear(_));
            (is_dequantize && whole.only_user(node) == Some(reader)).then_some(node)
        }
        _ => None,
    }
}

/// A recurrent layer with the nodes that make its two weights of bytes.
fn recurrent(whole: &Whole, layer: u32) -> Option<Proposal> {
    if !matches!(whole.region.nodes[layer as usize].op, Op::LSTM(_) | Op::GRU(_)) {
        return None;
    }
    let mut nodes = vec![dequantized(whole, layer, 1)?, dequantized(whole, layer, 2)?, layer];
    nodes.sort_unstable();
    Some(Proposal { nodes })
}

/// An average or a resize of bytes, with and without becoming bytes again.
fn of_bytes(whole: &Whole, main: u32) -> Vec<Proposal> {
    let op = |node: u32| &whole.region.nodes[node as usize].op;
    let is_main = matches!(op(main), Op::AveragePool(_) | Op::GlobalAveragePool(_) | Op::Resize(_));
    let Some(from) = dequantized(whole, main, 0).filter(|_| is_main) else { return Vec::new() };
    let user = whole.only_user(main).filter(|user| matches!(op(*user), Op::QuantizeLinear(_)));
    let longer = user.map(|user| Proposal { nodes: vec![from, main, user] });
    longer.into_iter().chain([Proposal { nodes: vec![from, main] }]).collect()
}

/// A convolution of floats whose result is stored as integers.
fn to_integers(whole: &Whole, main: u32) -> Option<Proposal> {
    let op = |node: u32| &whole.region.nodes[node as usize].op;
    let nodes = if matches!(op(main), Op::Conv(_)) { FUSION.to_integers(whole, main) } else { Vec::new() };
    let ends_in_integers = nodes.last().is_some_and(|&last| matches!(op(last), Op::QuantizeLinear(_)));
    ends_in_integers.then_some(Proposal { nodes })
}

/// A product that a convolution alone reads, as its image, with that convolution and all that follows: the
/// longest first.
fn scaled(whole: &Whole, mul: u32) -> Vec<Proposal> {
    let node = |at: u32| &whole.region.nodes[at as usize];
    if !matches!(node(mul).op, Op::Mul(_)) {
        return Vec::new();
    }
    let product = Some(Ref::Node { node: mul, output: 0 });
    let conv = whole
        .only_user(mul)
        .filter(|user| matches!(&node(*user).op, Op::Conv(conv) if conv.group == 1))
        .filter(|user| node(*user).inputs.first() == Some(&product));
    let Some(conv) = conv else { return Vec::new() };
    let mut nodes = vec![mul];
    nodes.extend(FUSION.epilogue(whole, conv));
    (2..=nodes.len()).rev().map(|end| Proposal { nodes: nodes[..end].to_vec() }).collect()
}

/// A widening 1x1 convolution, a depthwise one after it, and perhaps a 1x1 convolution after that, or the last two, each
/// with all that follows it: the longest first.
fn bottlenecks(whole: &Whole, first: u32) -> Vec<Proposal> {
    let conv = |node: u32| match &whole.region.nodes[node as usize].op {
        Op::Conv(conv) => Some(conv),
        _ => None,
    };
    // The convolution that alone reads the end of a chain, as its image.
    let next = |chain: &[u32]| {
        let last = *chain.last()?;
        let user = whole.only_user(last)?;
        let image = whole.region.nodes[user as usize].inputs.first()?;
        (*image == Some(Ref::Node { node: last, output: 0 }) && conv(user).is_some()).then_some(user)
    };
    let Some(widens) = conv(first).map(|conv| conv.group == 1) else { return Vec::new() };
    let mut nodes = FUSION.epilogue(whole, first);
    if widens {
        let depthwise = next(&nodes).filter(|node| conv(*node).is_some_and(|conv| conv.group > 1));
        let Some(depthwise) = depthwise else { return Vec::new() };
        nodes.extend(FUSION.epilogue(whole, depthwise));
    }
    // A depthwise convolution alone is no proposal of this kind.
    let short = widens.then(|| Proposal { nodes: nodes.clone() });
    let Some(narrow) = next(&nodes).filter(|node| conv(*node).is_some_and(|conv| conv.group == 1)) else {
        return short.into_iter().collect();
    };
    let before = nodes.len();
    nodes.extend(FUSION.epilogue(whole, narrow));
    // What follows the last convolution may be more than the kernel takes at once.
    let whole_ones = (before + 1..=nodes.len()).rev().map(|end| Proposal { nodes: nodes[..end].to_vec() });
    whole_ones.chain(short).collect()
}
