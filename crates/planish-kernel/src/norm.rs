//! Regions as normalizations: which operands they have, and how these must lie for kernels that go along rows or
//! groups.

use planish_op::Op;
use planish_tensor::normalize_axis;

use crate::{KernelError, Layout, Operand, Problem, Ref, Region, RegionNode};

/// An input of the region, and which.
pub type Given<'a> = (usize, &'a Operand);

/// A region whose main node is a normalization, with one output.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// The normalization among the region's nodes.
    pub main: usize,
    pub kind: NormKind<'a>,
}

/// What is normalized.
#[derive(Clone, Copy, Debug)]
pub enum NormKind<'a> {
    Rows(NormRows<'a>),
    Groups(NormGroups<'a>),
    /// Lines of the input along an axis are divided by their length, the sum of absolute values (p = 1) or the root
    /// of the sum of squares (p = 2).
    Lengths {
        x: Given<'a>,
        axis: usize,
        p: i64,
    },
}

/// Layer and RMS normalization: rows are contiguous in all operands, and have a scale for each element.
#[derive(Clone, Copy, Debug)]
pub struct NormRows<'a> {
    pub x: Given<'a>,
    /// Added to `x` on the way.
    pub added: Option<Given<'a>>,
    pub scale: Given<'a>,
    pub bias: Option<Given<'a>>,
    /// The first axis of a row.
    pub axis: usize,
    /// Elements of a row.
    pub len: usize,
    pub is_rms: bool,
    pub epsilon: f32,
}

/// Group and instance normalization: a scale and a bias for each channel, and pixels one step apart.
#[derive(Clone, Copy, Debug)]
pub struct NormGroups<'a> {
    pub x: Given<'a>,
    pub scale: Given<'a>,
    pub bias: Given<'a>,
    pub n_groups: usize,
    /// Pixels of a channel.
    pub plane: usize,
    pub from: NormSteps,
    pub to: NormSteps,
    pub epsilon: f32,
}

/// Distances in elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NormSteps {
    pub sample: usize,
    pub channel: usize,
    pub pixel: usize,
}

impl NormSteps {
    fn of(operand: &Operand) -> Option<NormSteps> {
        Some(NormSteps { sample: operand.strides[0], channel: operand.strides[1], pixel: operand.run(2..)? })
    }
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, KernelError> {
    Err(KernelError::unsupported(reason))
}

impl<'a> Norm<'a> {
    /// The region's normalization, if it has one.
    pub fn main_of(region: &Region) -> Option<usize> {
        region.nodes.iter().position(|node| {
            matches!(
                node.op,
                Op::LayerNormalization(_)
                    | Op::RMSNormalization(_)
                    | Op::GroupNormalization(_)
                    | Op::InstanceNormalization(_)
                    | Op::LpNormalization(_)
            )
        })
    }

    /// The region's normalization with its operands, all of which `takes` must allow.
    pub fn of(problem: &'a Problem, takes: fn(&Operand) -> bool) -> Result<Norm<'a>, KernelError> {
        let Some(main) = Norm::main_of(&problem.region) else { return refuse("no normalization") };
        let ([output], [Ref::Node { output: 0, .. }]) = (&*problem.outputs, &*problem.region.outputs) else {
            return refuse("a normalization has one output here");
        };
        let node = &problem.region.nodes[main];
        if !takes(output) {
            return refuse("an output of another type");
        }
        let asked = Asked { problem, node, output, takes };
        let rank = output.rank();
        let kind = match &node.op {
            Op::LayerNormalization(op) => {
                NormKind::Rows(asked.rows(axis_of(op.axis, rank)?, false, op.epsilon)?)
            }
            Op::RMSNormalization(op) => {
                NormKind::Rows(asked.rows(axis_of(op.axis, rank)?, true, op.epsilon)?)
            }
            Op::GroupNormalization(op) => {
                let n_groups = usize::try_from(op.num_groups).unwrap_or(0);
                NormKind::Groups(asked.groups(n_groups, op.epsilon)?)
            }
            Op::InstanceNormalization(op) => {
                let n_channels = output.dims.get(1).copied().unwrap_or(0);
                NormKind::Groups(asked.groups(n_channels, op.epsilon)?)
            }
            Op::LpNormalization(op) if matches!(op.p, 1 | 2) => {
                NormKind::Lengths { x: asked.needed(node, 0)?, axis: axis_of(op.axis, rank)?, p: op.p }
            }
            op => return refuse(format!("{} in this form", op.name())),
        };
        Ok(Norm { main, kind })
    }
}

fn axis_of(axis: i64, rank: usize) -> Result<usize, KernelError> {
    normalize_axis(axis, rank).map_err(|error| KernelError::unsupported(error.to_string()))
}

/// A normalization that is being taken apart.
struct Asked<'a> {
    problem: &'a Problem,
    node: &'a RegionNode,
    output: &'a Operand,
    takes: fn(&Operand) -> bool,
}

impl<'a> Asked<'a> {
    /// The operand that a node's input is, if it is there; it must be an input of the region.
    fn operand(&self, node: &RegionNode, idx: usize) -> Result<Option<Given<'a>>, KernelError> {
        match node.inputs.get(idx).copied().flatten() {
            None => Ok(None),
            Some(Ref::Input(input)) => match self.problem.inputs.get(input as usize) {
                Some(operand) if (self.takes)(operand) && operand.packed.is_none() => {
                    Ok(Some((input as usize, operand)))
                }
                _ => refuse("an operand of another type, or packed"),
            },
            Some(_) => refuse("an operand that is not an input of the region"),
        }
    }

    fn needed(&self, node: &RegionNode, idx: usize) -> Result<Given<'a>, KernelError> {
        match self.operand(node, idx)? {
            Some(given) => Ok(given),
            None => refuse("an input or a parameter is missing"),
        }
    }

    fn rows(&self, axis: usize, is_rms: bool, epsilon: f32) -> Result<NormRows<'a>, KernelError> {
        // What is normalized may be a sum that is made on the way.
        let (x, added) = match self.node.inputs.first().copied().flatten() {
            Some(Ref::Node { node: sum, output: 0 }) => {
                let sum = &self.problem.region.nodes[sum as usize];
                match (&sum.op, self.operand(sum, 0)?, self.operand(sum, 1)?) {
                    (Op::Add(_), Some(a), Some(b)) => (a, Some(b)),
                    _ => return refuse("only a sum of two inputs is made before the rows are normalized"),
                }
            }
            _ => (self.needed(self.node, 0)?, None),
        };
        let dims = &self.output.dims;
        let len: usize = dims[axis..].iter().product();
        let follows = |operand: &Operand| operand.dims == *dims && operand.run(axis..) == Some(1);
        if !follows(x.1) || !added.is_none_or(|added| follows(added.1)) || !follows(self.output) {
            return refuse("rows with gaps");
        }
        let parameter = |(input, operand): Given<'a>| {
            let surplus = operand.rank().saturating_sub(dims.len() - axis);
            let whole = operand.len() == len && operand.dims[surplus..] == dims[axis..];
            match whole && operand.is_dense(Layout::Plain) {
                true => Ok((input, operand)),
                false => refuse("parameters that are not one for each element of a row"),
            }
        };
        let scale = parameter(self.needed(self.node, 1)?)?;
        let bias = if is_rms { None } else { self.operand(self.node, 2)? };
        let bias = bias.map(parameter).transpose()?;
        Ok(NormRows { x, added, scale, bias, axis, len, is_rms, epsilon })
    }

    fn groups(&self, n_groups: usize, epsilon: f32) -> Result<NormGroups<'a>, KernelError> {
        let given = |idx: usize| self.needed(self.node, idx);
        let (x, scale, bias) = (given(0)?, given(1)?, given(2)?);
        let dims = &self.output.dims;
        if dims.len() < 2 || x.1.dims != *dims || n_groups == 0 || !dims[1].is_multiple_of(n_groups) {
            return refuse("channels that do not divide into groups");
        }
        if [scale.1, bias.1].iter().any(|p| p.dims != [dims[1]] || !p.is_dense(Layout::Plain)) {
            return refuse("parameters that are not one for each channel");
        }
        let (Some(from), Some(to)) = (NormSteps::of(x.1), NormSteps::of(self.output)) else {
            return refuse("pixels with gaps");
        };
        let plane = dims[2..].iter().product();
        Ok(NormGroups { x, scale, bias, n_groups, plane, from, to, epsilon })
    }
}
