//! Which nodes one CPU kernel may cover together: a product with the pointwise nodes behind it, and groups of
//! pointwise nodes.
//!
//! Every value between nodes of a region is read inside the region only, so a region can never come between
//! nodes that depend on each other through the outside.

use planish_kernel::{Proposal, Ref, Whole};
use planish_op::Op;
use planish_tensor::{DType, Shape};

/// Longer chains gain nothing: their values no longer pass through memory already.
const MAX_NODES: usize = 24;

/// Every proposal, longer ones before their parts.
pub(crate) fn propose(whole: &Whole) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    let n_nodes = whole.region.nodes.len() as u32;
    let mut taken = vec![false; n_nodes as usize];
    for node in 0..n_nodes {
        proposals.extend(bottlenecks(whole, node));
    }
    for node in 0..n_nodes {
        proposals.extend(scaled(whole, node));
    }
    for node in 0..n_nodes {
        if takes_epilogue(&whole.region.nodes[node as usize].op) {
            let chain = epilogue(whole, node);
            // Shorter forms stay on offer: what a kernel cannot take at once it may take in part.
            for end in (2..=chain.len()).rev() {
                proposals.push(Proposal { nodes: chain[..end].to_vec(), main: node });
            }
            chain.iter().for_each(|&node| taken[node as usize] = true);
        }
    }
    // Groups grow backwards from the last node, which has no pointwise reader of its own.
    for sink in (0..n_nodes).rev() {
        if taken[sink as usize] || !is_pointwise(whole, sink) {
            continue;
        }
        let mut group = vec![sink];
        let mut idx = 0;
        while idx < group.len() {
            for reference in whole.region.nodes[group[idx] as usize].inputs.iter().flatten() {
                let Ref::Node { node, .. } = *reference else { continue };
                let inside = !taken[node as usize]
                    && !group.contains(&node)
                    && group.len() < MAX_NODES
                    && is_pointwise(whole, node)
                    && !whole.is_output(node)
                    && whole.users(node).iter().all(|user| group.contains(user))
                    && shape(whole, node) == shape(whole, sink);
                if inside {
                    group.push(node);
                }
            }
            idx += 1;
        }
        group.iter().for_each(|&node| taken[node as usize] = true);
        if group.len() > 1 {
            group.sort_unstable();
            proposals.push(Proposal { main: sink, nodes: group });
        }
    }
    proposals
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
    nodes.extend(epilogue(whole, conv));
    (2..=nodes.len()).rev().map(|end| Proposal { nodes: nodes[..end].to_vec(), main: conv }).collect()
}

/// A widening 1x1 convolution, a depthwise one behind it, and perhaps a 1x1 convolution behind that, each with
/// all that follows it: the longest first.
fn bottlenecks(whole: &Whole, widen: u32) -> Vec<Proposal> {
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
    if conv(widen).is_none_or(|conv| conv.group != 1) {
        return Vec::new();
    }
    let mut nodes = epilogue(whole, widen);
    let Some(depthwise) = next(&nodes).filter(|node| conv(*node).is_some_and(|conv| conv.group > 1)) else {
        return Vec::new();
    };
    nodes.extend(epilogue(whole, depthwise));
    let short = Proposal { nodes: nodes.clone(), main: widen };
    let Some(narrow) = next(&nodes).filter(|node| conv(*node).is_some_and(|conv| conv.group == 1)) else {
        return vec![short];
    };
    let before = nodes.len();
    nodes.extend(epilogue(whole, narrow));
    // What follows the last convolution may be more than the kernel takes at once.
    let whole_ones =
        (before + 1..=nodes.len()).rev().map(|end| Proposal { nodes: nodes[..end].to_vec(), main: widen });
    whole_ones.chain([short]).collect()
}

/// Operators whose kernels can go on with each element while it is in a register or in cache.
fn takes_epilogue(op: &Op) -> bool {
    matches!(
        op,
        Op::Conv(_)
            | Op::ConvTranspose(_)
            | Op::MatMul(_)
            | Op::Gemm(_)
            | Op::GroupNormalization(_)
            | Op::InstanceNormalization(_)
            | Op::LayerNormalization(_)
            | Op::RMSNormalization(_)
    )
}

/// `main` and the chain of pointwise nodes behind it that keep its shape.
fn epilogue(whole: &Whole, main: u32) -> Vec<u32> {
    let mut chain = vec![main];
    if output_type(whole, main).is_none_or(|(dtype, _)| dtype != DType::F32) {
        return chain;
    }
    let mut last = main;
    while let Some(user) = whole.only_user(last) {
        let fits = chain.len() < MAX_NODES
            && is_pointwise(whole, user)
            && output_type(whole, user).is_some_and(|(dtype, _)| dtype == DType::F32)
            && shape(whole, user) == shape(whole, main);
        if !fits {
            break;
        }
        chain.push(user);
        last = user;
    }
    chain
}

fn output_type(whole: &Whole, node: u32) -> Option<(DType, &Shape)> {
    let ty = whole.outputs[node as usize].first()?.as_tensor()?;
    Some((ty.dtype, ty.shape.as_ref()?))
}

fn shape(whole: &Whole, node: u32) -> Option<&Shape> {
    output_type(whole, node).map(|(_, shape)| shape)
}

/// One output, made element by element from inputs that are broadcast to it.
fn is_pointwise(whole: &Whole, node: u32) -> bool {
    let at = &whole.region.nodes[node as usize];
    at.n_outputs == 1
        && output_type(whole, node).is_some_and(|(dtype, _)| has_registers(dtype))
        && planish_kernel::is_pointwise(&at.op)
}

/// Types that fused pointwise kernels compute in.
fn has_registers(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::I32 | DType::I64 | DType::Bool)
}
