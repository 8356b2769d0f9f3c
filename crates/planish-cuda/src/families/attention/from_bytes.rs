//! Attention whose queries, keys and values are floats of 8 bits: the same over 16-bit floats, and what the bytes are times.

use std::borrow::Cow;

use planish_gpu::operands::refuse;
use planish_kernel::{KernelError, Problem, Ref, RegionNode};
use planish_op::Op;
use planish_tensor::{DType, Tensor};

/// What E4M3 operands of an attention stand for: their numbers times one scale each.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scales {
    /// Of queries times that of keys.
    pub(super) product: f32,
    pub(super) values: f32,
}

/// A problem without the nodes that lead from 8 bits to queries, keys and values.
#[derive(Debug)]
pub(super) struct Fed<'a> {
    /// Queries, keys and values are of the type that attention has; where they lie is as it was.
    pub(super) problem: Cow<'a, Problem>,
    /// `None` where nothing leads there, and operands are stored as they are.
    pub(super) scales: Option<Scales>,
}

impl<'a> Fed<'a> {
    /// Takes DequantizeLinear off all three, with the casts after them. Where the attention stands alone the problem is as it
    /// was.
    pub(super) fn of(problem: &'a Problem) -> Result<Fed<'a>, KernelError> {
        let nodes = &problem.region.nodes;
        let Some((last, before)) = nodes.split_last().filter(|(_, before)| !before.is_empty()) else {
            return Ok(Fed { problem: Cow::Borrowed(problem), scales: None });
        };
        let last_place = before.len() as u32;
        let is_result = |output: &Ref| matches!(*output, Ref::Node { node, .. } if node == last_place);
        if !matches!(last.op, Op::Attention(_)) || !problem.region.outputs.iter().all(is_result) {
            return refuse("an attention among other nodes");
        }
        let types = problem.inner_types()?;
        let mut floats = problem.clone();
        let (mut scales, mut n_taken) = ([0.0f32; 3], 0);
        let mut inputs = last.inputs.clone();
        for place in 0..3 {
            let Some(Some(Ref::Node { node: maker, output: 0 })) = inputs.get(place).copied() else {
                return refuse("an operand that is not of 8 bits beside others that are");
            };
            let dtype = types[maker as usize][0].dtype;
            let (input, scale, n_nodes) = bytes_of(problem, maker)?;
            if floats.inputs[input].dtype != DType::F8E4M3FN {
                return refuse("an operand of 8 bits that two places read, or of integers");
            }
            floats.inputs[input].dtype = dtype;
            inputs[place] = Some(Ref::Input(input as u32));
            scales[place] = scale;
            n_taken += n_nodes;
        }
        if n_taken != before.len()
            || inputs[3..].iter().flatten().any(|other| matches!(other, Ref::Node { .. }))
        {
            return refuse("other nodes before the attention");
        }
        floats.region.nodes = vec![RegionNode { inputs, ..last.clone() }];
        for output in &mut floats.region.outputs {
            if let Ref::Node { node, .. } = output {
                *node = 0;
            }
        }
        let scales = Scales { product: scales[0] * scales[1], values: scales[2] };
        Ok(Fed { problem: Cow::Owned(floats), scales: Some(scales) })
    }
}

/// The input that a node makes floats of, their scale, and how many nodes that takes.
fn bytes_of(problem: &Problem, maker: u32) -> Result<(usize, f32, usize), KernelError> {
    let nodes = &problem.region.nodes;
    let (node, n_nodes) = match &nodes[maker as usize] {
        RegionNode { op: Op::Cast(_), inputs, .. } => match inputs.first() {
            Some(&Some(Ref::Node { node, output: 0 })) => (&nodes[node as usize], 2),
            _ => return refuse("a cast of an input"),
        },
        node => (node, 1),
    };
    let RegionNode { op: Op::DequantizeLinear(op), inputs, .. } = node else {
        return refuse("an operand that is made in another way");
    };
    let single = |place: usize| {
        let tensor: &Tensor = problem.region.constant(inputs.get(place).copied().flatten())?;
        (tensor.len() == 1).then(|| tensor.to_f64s()[0])
    };
    let is_around_zero = inputs.get(2).copied().flatten().is_none() || single(2) == Some(0.0);
    match (inputs.first(), single(1)) {
        (Some(&Some(Ref::Input(input))), Some(scale))
            if op.block_size == 0 && is_around_zero && scale > 0.0 =>
        {
            Ok((input as usize, scale as f32, n_nodes))
        }
        _ => refuse("scales that are not one known number, or zero points"),
    }
}
