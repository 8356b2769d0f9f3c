//! Which nodes one kernel may cover together, as most backends have it: a product or norm with the pointwise nodes
//! after it, and groups of pointwise nodes.
//!
//! Every value between nodes of a region is read inside the region only, so a region can never come between
//! nodes that depend on each other through the outside.

use planish_op::Op;
use planish_tensor::{DType, Shape};

use crate::{Proposal, Ref, Whole};

/// Longer chains gain nothing: their values no longer pass through memory already.
const MAX_NODES: usize = 24;

/// What a backend's fused kernels take.
#[derive(Clone, Copy, Debug)]
pub struct Fusion {
    /// Types that such a kernel's result and what follows may have.
    pub epilogue_types: &'static [DType],
    /// Types that fused pointwise kernels compute.
    pub pointwise_types: &'static [DType],
}

impl Fusion {
    /// Chains after products and groups of pointwise nodes, longer ones before their parts.
    pub fn propose(&self, whole: &Whole) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        let n_nodes = whole.region.nodes.len() as u32;
        let mut taken = vec![false; n_nodes as usize];
        for node in 0..n_nodes {
            if takes_epilogue(&whole.region.nodes[node as usize].op) {
                let chain = self.epilogue(whole, node);
                // Shorter forms stay on offer: what a kernel cannot take at once it may take in part.
                for end in (2..=chain.len()).rev() {
                    proposals.push(Proposal { nodes: chain[..end].to_vec() });
                }
                chain.iter().for_each(|&node| taken[node as usize] = true);
            }
        }
        // Groups grow backwards from the last node, which has no pointwise reader of its own.
        for sink in (0..n_nodes).rev() {
            if taken[sink as usize] || !self.computes(whole, sink) {
                continue;
            }
            let group = self.group(whole, sink, &taken);
            group.iter().for_each(|&node| taken[node as usize] = true);
            if group.len() > 1 {
                proposals.push(Proposal { nodes: group });
            }
        }
        proposals
    }

    /// `main` and the chain of pointwise nodes after it that keep its shape.
    pub fn epilogue(&self, whole: &Whole, main: u32) -> Vec<u32> {
        let mut chain = vec![main];
        let goes_on = |dtype: DType| self.epilogue_types.contains(&dtype);
        if output_type(whole, main).is_none_or(|(dtype, _)| !goes_on(dtype)) {
            return chain;
        }
        let mut last = main;
        while let Some(user) = whole.only_user(last) {
            let fits = chain.len() < MAX_NODES
                && self.computes(whole, user)
                && output_type(whole, user).is_some_and(|(dtype, _)| goes_on(dtype))
                && shape(whole, user) == shape(whole, main);
            if !fits {
                break;
            }
            chain.push(user);
            last = user;
        }
        chain
    }

    /// A product of dequantized factors with all that follows it, dequantized terms included, up to where it is quantized
    /// again: the longest first.
    pub fn quantized(&self, whole: &Whole, main: u32) -> Vec<Proposal> {
        let node = |at: u32| &whole.region.nodes[at as usize];
        if !is_product(&node(main).op) {
            return Vec::new();
        }
        // Dequantized for this one reader.
        let dequantized = |reader: u32| {
            let of = move |reference: &Ref| match *reference {
                Ref::Node { node: at, .. } => {
                    let fits =
                        matches!(node(at).op, Op::DequantizeLinear(_)) && whole.only_user(at) == Some(reader);
                    fits.then_some(at)
                }
                _ => None,
            };
            node(reader).inputs.iter().flatten().filter_map(of).collect::<Vec<u32>>()
        };
        let factors = dequantized(main);
        if factors.len() != 2 {
            return Vec::new();
        }
        let chain = self.to_integers(whole, main);
        let region = |end: usize| {
            let mut nodes = factors.clone();
            for (idx, &at) in chain[..end].iter().enumerate() {
                nodes.push(at);
                // Those of the product itself are its factors.
                nodes.extend(if idx > 0 { dequantized(at) } else { Vec::new() });
            }
            nodes.sort_unstable();
            Proposal { nodes }
        };
        (1..=chain.len()).rev().map(region).collect()
    }

    /// A matrix product whose second factor alone is dequantized, with all that follows it: the longest first.
    pub fn weight_only(&self, whole: &Whole, main: u32) -> Vec<Proposal> {
        let node = |at: u32| &whole.region.nodes[at as usize];
        let dequantized = |place: usize| match node(main).inputs.get(place).copied().flatten() {
            Some(Ref::Node { node: at, .. }) => {
                let is_own = whole.only_user(at) == Some(main);
                (matches!(node(at).op, Op::DequantizeLinear(_)) && is_own).then_some(at)
            }
            _ => None,
        };
        let is_matrix = matches!(node(main).op, Op::MatMul(_) | Op::Gemm(_));
        let (true, None, Some(weight)) = (is_matrix, dequantized(0), dequantized(1)) else {
            return Vec::new();
        };
        let chain = self.epilogue(whole, main);
        let region = |end: usize| {
            let mut nodes = vec![weight];
            nodes.extend(&chain[..end]);
            nodes.sort_unstable();
            Proposal { nodes }
        };
        (1..=chain.len()).rev().map(region).collect()
    }

    /// As [`Fusion::epilogue`], with the QuantizeLinear that alone reads the end of the chain.
    pub fn to_integers(&self, whole: &Whole, main: u32) -> Vec<u32> {
        let mut chain = self.epilogue(whole, main);
        let last = chain.last().and_then(|last| whole.only_user(*last));
        let quantizes = |user: &u32| matches!(whole.region.nodes[*user as usize].op, Op::QuantizeLinear(_));
        chain.extend(last.filter(quantizes));
        chain
    }

    /// The pointwise nodes of one shape that only `sink` and each other read, ascending.
    fn group(&self, whole: &Whole, sink: u32, taken: &[bool]) -> Vec<u32> {
        let mut group = vec![sink];
        let mut idx = 0;
        while idx < group.len() {
            for reference in whole.region.nodes[group[idx] as usize].inputs.iter().flatten() {
                let Ref::Node { node, .. } = *reference else { continue };
                let inside = !taken[node as usize]
                    && !group.contains(&node)
                    && group.len() < MAX_NODES
                    && self.computes(whole, node)
                    && !whole.is_output(node)
                    && whole.users(node).iter().all(|user| group.contains(user))
                    && shape(whole, node) == shape(whole, sink);
                if inside {
                    group.push(node);
                }
            }
            idx += 1;
        }
        group.sort_unstable();
        group
    }

    /// One output, made element by element from inputs that are broadcast to it.
    fn computes(&self, whole: &Whole, node: u32) -> bool {
        let at = &whole.region.nodes[node as usize];
        at.n_outputs == 1
            && output_type(whole, node).is_some_and(|(dtype, _)| self.pointwise_types.contains(&dtype))
            // To and from 8 bits only where the backend's programs know them.
            && (at.op.is_pointwise() || at.op.is_elementwise() && self.pointwise_types.contains(&DType::U8))
    }
}

/// Operators that multiply two factors and have kernels for 8-bit integers.
fn is_product(op: &Op) -> bool {
    matches!(op, Op::Conv(_) | Op::ConvTranspose(_) | Op::MatMul(_) | Op::Gemm(_))
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
    ) || matches!(op, Op::Custom(op) if planish_op::plugin::find(op).is_some_and(|plugin| plugin.takes_epilogue()))
}

fn output_type(whole: &Whole, node: u32) -> Option<(DType, &Shape)> {
    let ty = whole.outputs[node as usize].first()?.as_tensor()?;
    Some((ty.dtype, ty.shape.as_ref()?))
}

fn shape(whole: &Whole, node: u32) -> Option<&Shape> {
    output_type(whole, node).map(|(_, shape)| shape)
}
