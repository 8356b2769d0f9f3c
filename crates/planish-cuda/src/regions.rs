//! Which nodes one CUDA kernel may cover together: chains after products and norms, products of 8 bits or with weights of few
//! bits, norms and attention whose results are rounded to 8 bits, attention of 8 bits, and groups of pointwise nodes.

use planish_kernel::{Fusion, Proposal, Ref, Whole};
use planish_op::Op;
use planish_tensor::DType;

const FUSION: Fusion = Fusion {
    epilogue_types: &[DType::F32, DType::F16, DType::BF16],
    pointwise_types: &[
        DType::F32,
        DType::F16,
        DType::BF16,
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
    let mut all: Vec<Proposal> = (0..n_nodes).flat_map(|node| quantized(whole, node)).collect();
    all.extend((0..n_nodes).flat_map(|node| FUSION.weight_only(whole, node)));
    all.extend(casts(whole));
    all.extend((0..n_nodes).filter_map(|node| to_integers(whole, node)));
    all.extend((0..n_nodes).flat_map(|node| of_bytes(whole, node)));
    all.extend((0..n_nodes).flat_map(|node| rounded_to_integers(whole, node)));
    all.extend(FUSION.propose(whole));
    all
}

/// A product of dequantized factors with what follows it, and the same with the casts of 16-bit floats that are added to it.
fn quantized(whole: &Whole, main: u32) -> Vec<Proposal> {
    let nodes = &whole.region.nodes;
    let proposals = FUSION.quantized(whole, main);
    let widening = |reader: u32| {
        let inputs = nodes[reader as usize].inputs.iter().flatten();
        inputs.filter_map(move |reference| match *reference {
            Ref::Node { node, .. } => {
                let is_wide = matches!(&nodes[node as usize].op, Op::Cast(cast) if cast.to == DType::F32);
                (is_wide && whole.only_user(node) == Some(reader)).then_some(node)
            }
            _ => None,
        })
    };
    let with_casts = |Proposal { nodes }: &Proposal| {
        let casts = nodes.iter().filter(|node| **node != main).flat_map(|node| widening(*node));
        let casts: Vec<u32> = casts.filter(|cast| !nodes.contains(cast)).collect();
        let mut all = [&nodes[..], &casts].concat();
        all.sort_unstable();
        (!casts.is_empty()).then_some(Proposal { nodes: all })
    };
    let each = proposals.into_iter().flat_map(|proposal| [with_casts(&proposal), Some(proposal)]);
    each.flatten().collect()
}

/// A product of floats with what follows it up to where it becomes integers; shorter forms are chains as others have them.
fn to_integers(whole: &Whole, main: u32) -> Option<Proposal> {
    let op = |node: u32| &whole.region.nodes[node as usize].op;
    if !matches!(op(main), Op::Conv(_) | Op::ConvTranspose(_) | Op::MatMul(_) | Op::Gemm(_)) {
        return None;
    }
    let nodes = FUSION.to_integers(whole, main);
    matches!(op(*nodes.last()?), Op::QuantizeLinear(_)).then_some(Proposal { nodes })
}

/// An attention, or a normalization of rows, with the rounding of its results to 8 bits. Others may read those of a
/// normalization as they are: both are stored. Those others come later, so that a step in the place of the last node comes
/// before them.
fn rounded_to_integers(whole: &Whole, main: u32) -> Vec<Proposal> {
    let op = |node: u32| &whole.region.nodes[node as usize].op;
    let is_shared = match op(main) {
        Op::LayerNormalization(_) | Op::RMSNormalization(_) => true,
        Op::Attention(_) => false,
        _ => return Vec::new(),
    };
    if whole.is_output(main) || !(is_shared || whole.only_user(main).is_some()) {
        return Vec::new();
    }
    let rounding = |user: u32| match op(user) {
        Op::QuantizeLinear(_) => Some(vec![main, user]),
        Op::Cast(_) => {
            let next = whole.only_user(user).filter(|next| matches!(op(*next), Op::QuantizeLinear(_)))?;
            Some(vec![main, user, next])
        }
        _ => None,
    };
    let users = whole.users(main);
    let all = users.iter().filter_map(|&user| rounding(user));
    let is_first = |nodes: &Vec<u32>| {
        let last = nodes.last().copied().unwrap_or(main);
        users.iter().all(|user| nodes.contains(user) || *user > last)
    };
    all.filter(is_first).map(|nodes| Proposal { nodes }).collect()
}

/// An attention with what leads from floats of 8 bits to its queries, keys and values, and the same with the rounding of its
/// results to 8 bits.
fn of_bytes(whole: &Whole, main: u32) -> Vec<Proposal> {
    let node = |at: u32| &whole.region.nodes[at as usize];
    if !matches!(node(main).op, Op::Attention(_)) {
        return Vec::new();
    }
    let made_by = |reader: u32, place: usize| match node(reader).inputs.get(place) {
        Some(&Some(Ref::Node { node, .. })) if whole.only_user(node) == Some(reader) => Some(node),
        _ => None,
    };
    let led = |place: usize| {
        let last = made_by(main, place)?;
        match node(last).op {
            Op::DequantizeLinear(_) => Some(vec![last]),
            Op::Cast(_) => {
                let first =
                    made_by(last, 0).filter(|first| matches!(node(*first).op, Op::DequantizeLinear(_)))?;
                Some(vec![first, last])
            }
            _ => None,
        }
    };
    let (Some(queries), Some(keys), Some(values)) = (led(0), led(1), led(2)) else { return Vec::new() };
    let before = [queries, keys, values].concat();
    let mut after: Vec<Vec<u32>> =
        rounded_to_integers(whole, main).into_iter().map(|proposal| proposal.nodes).collect();
    after.push(vec![main]);
    let together = |nodes: Vec<u32>| {
        let mut nodes = [&before[..], &nodes].concat();
        nodes.sort_unstable();
        Proposal { nodes }
    };
    after.into_iter().map(together).collect()
}

/// Convolutions with the cast of their image in front and what follows them: first layers of networks whose input
/// has another type than their weights.
fn casts(whole: &Whole) -> Vec<Proposal> {
    let mut all = Vec::new();
    for (idx, node) in whole.region.nodes.iter().enumerate() {
        let Some(Some(Ref::Node { node: cast, .. })) = node.inputs.first().copied() else { continue };
        let main = idx as u32;
        let before = &whole.region.nodes[cast as usize].op;
        if matches!((before, &node.op), (Op::Cast(_), Op::Conv(_))) && whole.only_user(cast) == Some(main) {
            let chain = FUSION.to_integers(whole, main);
            for end in (1..=chain.len()).rev() {
                let nodes = std::iter::once(cast).chain(chain[..end].iter().copied()).collect();
                all.push(Proposal { nodes });
            }
        }
    }
    all
}
