//! Products of 8 bits taken apart: without what leads to and from 8 bits, and without the casts of 16-bit floats that are
//! added to them, which kernels widen as they read them.

use std::borrow::Cow;

use planish_kernel::quantized::Dequantized;
use planish_kernel::{KernelError, Problem, Ref, RegionNode};
use planish_op::Op;
use planish_tensor::DType;

/// A problem over floats, where it has numbers of 8 bits.
#[derive(Clone, Debug)]
pub(crate) struct Apart {
    pub(crate) dequantized: Dequantized,
    /// Inputs of the region that are stored in 16 bits and are f32 here.
    pub(crate) widened: Vec<usize>,
}

impl Apart {
    /// `None` where a problem has no numbers of 8 bits; refused where these are beyond the kernels.
    pub(crate) fn of(problem: &Problem) -> Result<Option<Apart>, KernelError> {
        let (wide, widened) = without_casts(problem);
        let dequantized = Dequantized::of(&wide)?;
        Ok(dequantized.map(|dequantized| Apart { dequantized, widened }))
    }

    pub(crate) fn problem(&self) -> &Problem {
        &self.dequantized.problem
    }
}

/// Whether a node widens 16-bit floats to f32 that nothing else of the region reads, and which input they are.
fn widens(problem: &Problem, node: &RegionNode) -> Option<usize> {
    let (Op::Cast(cast), [Some(Ref::Input(input))]) = (&node.op, &node.inputs[..]) else { return None };
    let own = Ref::Input(*input);
    let nodes = problem.region.nodes.iter().flat_map(|node| node.inputs.iter().flatten());
    let n_readers = nodes.chain(&problem.region.outputs).filter(|reference| **reference == own).count();
    let dtype = problem.inputs.get(*input as usize)?.dtype;
    let is_half = matches!(dtype, DType::F16 | DType::BF16);
    (cast.to == DType::F32 && is_half && n_readers == 1).then_some(*input as usize)
}

/// The problem without such casts, whose inputs are f32 then, where it has numbers of 8 bits.
fn without_casts(problem: &Problem) -> (Cow<'_, Problem>, Vec<usize>) {
    let leads = |node: &RegionNode| matches!(node.op, Op::DequantizeLinear(_));
    let found: Vec<Option<usize>> = problem.region.nodes.iter().map(|node| widens(problem, node)).collect();
    if !problem.region.nodes.iter().any(leads) || found.iter().all(Option::is_none) {
        return (Cow::Borrowed(problem), Vec::new());
    }
    let mut wide = problem.clone();
    let mut kept = 0;
    let places: Vec<Ref> = found
        .iter()
        .map(|input| match input {
            Some(input) => Ref::Input(*input as u32),
            None => {
                kept += 1;
                Ref::Node { node: kept - 1, output: 0 }
            }
        })
        .collect();
    let moved = |reference: Ref| match reference {
        Ref::Node { node, output } => match places[node as usize] {
            Ref::Node { node, .. } => Ref::Node { node, output },
            input => input,
        },
        other => other,
    };
    let mut is_kept = found.iter().map(Option::is_none);
    wide.region.nodes.retain(|_| is_kept.next() == Some(true));
    for node in &mut wide.region.nodes {
        node.inputs.iter_mut().flatten().for_each(|reference| *reference = moved(*reference));
    }
    wide.region.outputs.iter_mut().for_each(|reference| *reference = moved(*reference));
    let widened: Vec<usize> = found.into_iter().flatten().collect();
    widened.iter().for_each(|&input| wide.inputs[input].dtype = DType::F32);
    (Cow::Owned(wide), widened)
}
