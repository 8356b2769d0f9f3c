//! Regions around numbers of 8 bits, integers or floats (E4M3), taken apart for every backend: the same region over wide
//! floats, and how its operands are stored. Both are called integers below: floats of 8 bits are quantized in the same way,
//! around zero.
//!
//! A quantized product is `DequantizeLinear` of both factors, the product, what follows it, and `QuantizeLinear`. Its
//! kernels sum integers, so they want scales and zero points beside a region in which these nodes are not.

use planish_op::Op;
use planish_tensor::{DType, Tensor};

use crate::types::Inner;
use crate::{KernelError, Problem, Ref, RegionNode};

/// An operand of 8-bit integers: `(integer - zero) · scale`. Floats of 8 bits have no zero point but 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Quantization {
    pub dtype: DType,
    pub scale: f32,
    pub zero: i32,
}

/// An input of a region that is dequantized there.
#[derive(Clone, PartialEq, Debug)]
pub struct DequantizedInput {
    /// Which input.
    pub input: usize,
    pub dtype: DType,
    pub scales: Scales,
    /// One for all elements.
    pub zero: i32,
}

/// What integers are multiplied by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scales {
    One(f32),
    /// An input of the region, f32, with a number for each place along this axis.
    Input {
        input: usize,
        axis: usize,
    },
}

/// A region without the nodes that lead from integers to floats and back.
#[derive(Clone, PartialEq, Debug)]
pub struct Dequantized {
    /// The region over floats: dequantized inputs and the output have the types that they are computed with in.
    pub problem: Problem,
    pub inputs: Vec<DequantizedInput>,
    /// How the output is stored, if as integers.
    pub output: Option<Quantization>,
}

impl Dequantized {
    /// Takes a region apart; `None` where there is nothing to take off. Refused where integers are not the region's own
    /// operands, or have other scales than one for the tensor or one for each place along an axis of a constant.
    pub fn of(problem: &Problem) -> Result<Option<Dequantized>, KernelError> {
        let leads = |node: &RegionNode| matches!(node.op, Op::DequantizeLinear(_) | Op::QuantizeLinear(_));
        if !problem.region.nodes.iter().any(leads) {
            return Ok(None);
        }
        let types = problem.inner_types()?;
        let mut plain = problem.clone();
        let (mut inputs, mut output) = (Vec::new(), None);
        // What a reference to each node becomes.
        let mut places: Vec<Option<Ref>> = Vec::with_capacity(problem.region.nodes.len());
        let mut nodes: Vec<RegionNode> = Vec::new();
        for (idx, node) in problem.region.nodes.iter().enumerate() {
            let own = Ref::Node { node: idx as u32, output: 0 };
            match &node.op {
                Op::DequantizeLinear(op) => {
                    let Inner { dtype, .. } = &types[idx][0];
                    if op.block_size != 0 {
                        return refuse("blocks of scales");
                    }
                    let input = dequantized(problem, node, op.axis)?;
                    plain.inputs[input.input].dtype = *dtype;
                    places.push(Some(Ref::Input(input.input as u32)));
                    inputs.push(input);
                }
                Op::QuantizeLinear(op) if problem.region.outputs == [own] => {
                    let from = node.inputs.first().copied().flatten();
                    let (Some(from), Some(scale)) = (from, single(problem, node, 1)) else {
                        return refuse("integers with other scales than one for all");
                    };
                    let zero = if node.inputs.len() > 2 { single(problem, node, 2) } else { Some(0.0) };
                    let dtype = problem.outputs.first().map(|output| output.dtype);
                    let (Some(zero), Some(dtype)) = (zero, dtype.filter(|dtype| is_byte(*dtype))) else {
                        return refuse("integers of other than 8 bits");
                    };
                    if dtype.is_float() && (zero != 0.0 || !op.saturate) {
                        return refuse(
                            "floats of 8 bits around another number than 0, or that do not saturate",
                        );
                    }
                    if op.block_size != 0 || op.precision.is_some_and(|precision| precision != DType::F32) {
                        return refuse("blocks of scales, or quotients in other than f32");
                    }
                    output = Some(Quantization { dtype, scale: scale as f32, zero: zero as i32 });
                    let made = match from {
                        Ref::Node { node, output } => &types[node as usize][output as usize].dtype,
                        _ => return refuse("integers of what is no result of the region"),
                    };
                    plain.outputs[0].dtype = *made;
                    plain.region.outputs = moved(&places, Some(from)).into_iter().collect();
                    places.push(None);
                }
                _ => {
                    places.push(Some(Ref::Node { node: nodes.len() as u32, output: 0 }));
                    let inputs = node.inputs.iter().map(|input| moved(&places, *input)).collect();
                    nodes.push(RegionNode { inputs, ..node.clone() });
                }
            }
        }
        if output.is_none() {
            let moved = |reference: &Ref| moved(&places, Some(*reference));
            plain.region.outputs = problem.region.outputs.iter().filter_map(moved).collect();
        }
        plain.region.nodes = nodes;
        match plain.region.outputs.len() == problem.outputs.len() {
            true => Ok(Some(Dequantized { problem: plain, inputs, output })),
            false => refuse("an output that is not computed"),
        }
    }

    /// How an input is stored as integers, if it is.
    pub fn input(&self, input: usize) -> Option<&DequantizedInput> {
        self.inputs.iter().find(|known| known.input == input)
    }
}

/// A reference to what a node was replaced by; outputs keep their numbers.
fn moved(places: &[Option<Ref>], reference: Option<Ref>) -> Option<Ref> {
    match reference? {
        Ref::Node { node, output } => match places.get(node as usize).copied().flatten()? {
            Ref::Node { node, .. } => Some(Ref::Node { node, output }),
            input => Some(input),
        },
        other => Some(other),
    }
}

/// What is multiplied in 8 bits.
fn is_byte(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::I8 | DType::F8E4M3FN)
}

fn refuse<T>(what: &str) -> Result<T, KernelError> {
    Err(KernelError::unsupported(format!("quantized: {what}")))
}

/// The one number of a constant of the region.
fn single(problem: &Problem, node: &RegionNode, place: usize) -> Option<f64> {
    let constant = problem.region.constant(node.inputs.get(place).copied().flatten())?;
    (constant.len() == 1).then(|| Tensor::to_f64s(constant)[0])
}

fn dequantized(problem: &Problem, node: &RegionNode, axis: i64) -> Result<DequantizedInput, KernelError> {
    let Some(Ref::Input(input)) = node.inputs.first().copied().flatten() else {
        return refuse("integers that are no input of the region");
    };
    let input = input as usize;
    let operand = &problem.inputs[input];
    let zero = match node.inputs.get(2).copied().flatten() {
        None => Some(0.0),
        Some(_) => single(problem, node, 2),
    };
    let is_known = |zero: &f64| is_byte(operand.dtype) && (*zero == 0.0 || !operand.dtype.is_float());
    let Some(zero) = zero.filter(is_known) else {
        return refuse("integers of other than 8 bits, or zero points that are not known");
    };
    let axis = if axis < 0 { axis + operand.rank() as i64 } else { axis };
    let scales = match (single(problem, node, 1), node.inputs.get(1).copied().flatten()) {
        (Some(scale), _) => Scales::One(scale as f32),
        (None, Some(Ref::Input(scales))) => {
            let axis = usize::try_from(axis).ok().filter(|axis| *axis < operand.rank());
            let numbers = &problem.inputs[scales as usize];
            let fits = |axis: &usize| numbers.dtype == DType::F32 && numbers.dims == [operand.dims[*axis]];
            match axis.filter(fits) {
                Some(axis) => Scales::Input { input: scales as usize, axis },
                None => return refuse("scales of other sizes"),
            }
        }
        _ => return refuse("scales that are not known"),
    };
    Ok(DequantizedInput { input, dtype: operand.dtype, scales, zero: zero as i32 })
}
