//! Points of an output, and what the reference computes there.

use planish_kernel::{Approximation, Ref, Region};
use planish_op::{DequantizeLinear, Op, QuantizeLinear, Value};
use planish_reference::{evaluate, evaluate_at};
use planish_tensor::{DType, Tensor};

use super::exact::{CURVATURE, Exact, Known, UNKNOWN_SLACK, is_recurrent, passed_on, rounds_to_integers};
use super::inputs::Numbers;

/// Points at tile edges, and points anywhere.
const N_EDGE_POINTS: usize = 96;
const N_RANDOM_POINTS: usize = 160;
/// The same where every element is compared with another kernel besides.
const N_EDGE_POINTS_BESIDES: usize = 24;
const N_RANDOM_POINTS_BESIDES: usize = 24;
/// They lie in so many channels besides the first and the last: a norm over groups of channels is computed whole for
/// every group that a point lies in.
const N_CHANNELS_BESIDES: usize = 1;
/// Sizes at which kernels change what they do: vectors, tiles, blocks.
const EDGES: [usize; 12] = [4, 6, 8, 14, 16, 28, 32, 48, 56, 64, 128, 512];

/// Corners, places around tile edges and tails, and random places of an output of these sizes; fewer with `besides`.
pub(super) fn sample(dims: &[usize], seed: u64, besides: bool) -> Vec<Vec<usize>> {
    let (n_edges, n_random) = match besides {
        true => (N_EDGE_POINTS_BESIDES, N_RANDOM_POINTS_BESIDES),
        false => (N_EDGE_POINTS, N_RANDOM_POINTS),
    };
    if dims.contains(&0) {
        return Vec::new();
    }
    let mut numbers = Numbers::new(seed.wrapping_add(17));
    let mut points: Vec<Vec<usize>> = Vec::new();
    for corner in 0..1usize << dims.len().min(4) {
        points.push(
            dims.iter()
                .enumerate()
                .map(|(axis, &dim)| if corner >> axis & 1 == 1 { dim - 1 } else { 0 })
                .collect(),
        );
    }
    for _ in 0..n_edges {
        let edge = |&dim: &usize| {
            let at = match numbers.below(4) {
                0 => dim - 1 - numbers.below(dim.min(3)),
                1 => numbers.below(dim.min(3)),
                _ => {
                    let edge = EDGES[numbers.below(EDGES.len())];
                    edge * (1 + numbers.below(dim / edge + 1)) + numbers.below(3)
                }
            };
            at.saturating_sub(1).min(dim - 1)
        };
        points.push(dims.iter().map(edge).collect());
    }
    for _ in 0..n_random {
        points.push(dims.iter().map(|&dim| numbers.below(dim)).collect());
    }
    if let (true, [_, n_channels, _, ..]) = (besides, dims) {
        let mut channels = vec![0, n_channels - 1];
        channels.extend((0..N_CHANNELS_BESIDES).map(|_| numbers.below(*n_channels)));
        points.iter_mut().for_each(|point| point[1] = channels[point[1] % channels.len()]);
    }
    points.sort_unstable();
    points.dedup();
    points
}

/// What the reference makes of a region at points of its output.
pub(super) struct Expected {
    pub(super) values: Vec<f64>,
    /// How far each may be off, given how far the nodes inside may be.
    pub(super) bounds: Vec<f64>,
}

/// How far a step's results may be from the reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// Of the sum of the magnitudes of all terms, for sums of products.
    pub(super) of_terms: f64,
    /// Of the value itself.
    pub(super) of_value: f64,
    /// Of the largest output.
    pub(super) of_largest: f64,
    /// Of GELU, as the kernel computes it.
    pub(super) gelu: Approximation,
}

/// Below the smallest normal number products are rounded to multiples of 2^-149, whatever their size: of a sum of 2^17 of
/// them this is the most.
const UNDERFLOW: f64 = 1.0 / (1u128 << 66) as f64 / (1u128 << 67) as f64;

impl Allowance {
    /// What a sum of products may be off whose terms have these magnitudes together.
    pub(super) fn of_sum(self, terms: f64) -> f64 {
        let underflow = if self.of_terms > 0.0 { UNDERFLOW } else { 0.0 };
        terms.abs() * self.of_terms + underflow
    }

    /// What a GELU made, moved by a share of what the kernel's form of it may be off.
    fn moved_gelu(self, made: Value, argument: Option<&Value>, share: f64) -> Value {
        let (Some(tensor), Some(argument)) = (made.as_tensor(), argument.and_then(Value::as_tensor)) else {
            return made;
        };
        let off = argument.to_f64s().into_iter().map(|x| share * self.gelu.at(x));
        let values: Vec<f64> = tensor.to_f64s().into_iter().zip(off).map(|(y, off)| moved(y, off)).collect();
        Tensor::from_f64s(tensor.dtype(), tensor.shape(), &values).map_or(made, Value::Tensor)
    }

    /// Values and what they may be off: `passed_on` is what comes from inside. The largest output is the largest
    /// that was expected: what the kernel made has no say in how far it may be off.
    fn bounds(self, values: Vec<f64>, passed_on: &[f64]) -> Expected {
        let finite = values.iter().filter(|x| x.is_finite());
        let largest = finite.fold(0.0f64, |most, x| most.max(x.abs()));
        let bound = |(value, passed_on): (&f64, &f64)| {
            // A value next to where a function leaves the numbers is moved out of them; nothing follows from that.
            let passed_on = if passed_on.is_finite() { *passed_on } else { 0.0 };
            passed_on + self.of_value * value.abs() + self.of_largest * largest
        };
        let bounds = values.iter().zip(passed_on).map(bound).collect();
        Expected { values, bounds }
    }
}

/// The reference at `points` of output number `output`. Values of 16 bits are taken as they are and nothing between is
/// rounded, as kernels do that compute in f32.
///
/// The last node that is not element by element is evaluated at the points alone; what is in front of it, another
/// convolution for one, is evaluated whole.
pub(super) fn expected(
    region: &Region,
    inputs: &[Option<Value>],
    output: usize,
    points: &[Vec<usize>],
    allowance: Allowance,
) -> Result<Expected, String> {
    let (region, inputs) = (&widened_region(region), &inputs.iter().map(widened).collect::<Vec<_>>()[..]);
    let Some(reference) = region.outputs.get(output).copied() else {
        return Err("the region has no such output".to_string());
    };
    let mut exact = Exact::new(region, inputs, allowance);
    if let Ref::Node { node, output } = reference
        && !rounds_to_integers(region)
    {
        let at = At { points, n_nodes: region.nodes.len() };
        let found = at.expected(&mut exact, node, output);
        // A main node of other sizes than the output, which is broadcast after it: all of it is evaluated.
        if found.is_ok() {
            return found;
        }
    }
    let all = everywhere(&mut exact, reference)?;
    let known = all.tensor().ok_or("the output is not a tensor")?;
    let (values, shape) = (known.to_f64s(), known.shape());
    let pick = |list: &[f64]| -> Result<Vec<f64>, String> {
        let one = |point: &Vec<usize>| {
            list.get(flat(point, shape)).copied().ok_or("there is no such point in the output".to_string())
        };
        points.iter().map(one).collect()
    };
    let slack = match &all.slack {
        Some(slack) => pick(slack)?,
        None => vec![0.0; points.len()],
    };
    Ok(allowance.bounds(pick(&values)?, &slack))
}

/// Every element of output number `output`, in row-major order.
pub(super) fn expected_everywhere(
    region: &Region,
    inputs: &[Option<Value>],
    output: usize,
    allowance: Allowance,
) -> Result<Expected, String> {
    let (region, inputs) = (&widened_region(region), &inputs.iter().map(widened).collect::<Vec<_>>()[..]);
    let reference = region.outputs.get(output).copied().ok_or("the region has no such output")?;
    let all = everywhere(&mut Exact::new(region, inputs, allowance), reference)?;
    let values = all.tensor().ok_or("the output is not a tensor")?.to_f64s();
    let none = vec![0.0; if all.slack.is_some() { 0 } else { values.len() }];
    let slack = all.slack.as_ref().map_or(&none, |slack| slack);
    Ok(allowance.bounds(values, slack))
}

fn everywhere(exact: &mut Exact<'_>, reference: Ref) -> Result<Known, String> {
    exact.value(reference)?.ok_or_else(|| "the output is an input that is absent".to_string())
}

/// The row-major number of a point.
pub(super) fn flat(point: &[usize], shape: &[usize]) -> usize {
    point.iter().zip(shape).fold(0, |flat, (place, dim)| flat * dim + place)
}

/// The point of a row-major number.
pub(super) fn point_of(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut point = vec![0; shape.len()];
    for (place, &dim) in point.iter_mut().zip(shape).rev() {
        *place = flat % dim.max(1);
        flat /= dim.max(1);
    }
    point
}

/// A float of 16 bits as f32, which holds it as it is.
pub(super) fn widened(value: &Option<Value>) -> Option<Value> {
    let tensor = value.as_ref()?.as_tensor().filter(|tensor| is_low(tensor.dtype()));
    let wide =
        tensor.and_then(|tensor| Tensor::from_f64s(DType::F32, tensor.shape(), &tensor.to_f64s()).ok());
    wide.map(Value::Tensor).or_else(|| value.clone())
}

fn is_low(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The region with its values of 16 bits in f32.
pub(super) fn widened_region(region: &Region) -> Region {
    let mut region = region.clone();
    for constant in &mut region.constants {
        if let Some(Value::Tensor(wide)) = widened(&Some(Value::Tensor(constant.clone()))) {
            *constant = wide;
        }
    }
    for node in &mut region.nodes {
        if let Op::Cast(cast) = &mut node.op
            && is_low(cast.to)
        {
            cast.to = DType::F32;
        }
    }
    region
}

pub(super) fn is_sum_of_products(op: &Op) -> bool {
    matches!(op, Op::Conv(_) | Op::ConvTranspose(_) | Op::MatMul(_) | Op::Gemm(_))
}

/// Points of an output.
struct At<'a> {
    points: &'a [Vec<usize>],
    n_nodes: usize,
}

/// The last node that is not element by element, at the points.
struct Main {
    node: u32,
    output: u32,
    values: Vec<f64>,
    slack: Vec<f64>,
}

impl At<'_> {
    fn expected(&self, exact: &mut Exact<'_>, node: u32, output: u32) -> Result<Expected, String> {
        let needed = needed(exact.region, node);
        let main = (0..=node)
            .rev()
            .find(|&idx| needed[idx as usize] && !exact.region.nodes[idx as usize].op.is_elementwise());
        let main = match main {
            Some(at) => Some(self.main(exact, at, if at == node { output } else { 0 })?),
            None => None,
        };
        if let Some(main) = main.as_ref().filter(|main| main.node == node) {
            return Ok(exact.allowance.bounds(main.values.clone(), &main.slack));
        }
        let after = after(exact.region, node);
        let values = self.follow(exact, &after, node, main.as_ref(), (0.0, 0.0))?;
        let mut passed_on = vec![0.0f64; values.len()];
        for signs in [(1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0)] {
            let moved = self.follow(exact, &after, node, main.as_ref(), signs)?;
            for (most, (moved, value)) in passed_on.iter_mut().zip(moved.iter().zip(&values)) {
                let difference = CURVATURE * (moved - value).abs();
                if difference.is_finite() {
                    *most = most.max(difference);
                }
            }
        }
        Ok(exact.allowance.bounds(values, &passed_on))
    }

    fn main(&self, exact: &mut Exact<'_>, node: u32, output: u32) -> Result<Main, String> {
        let operands = exact.operands(node)?;
        let at = &exact.region.nodes[node as usize];
        if is_recurrent(&at.op) {
            return Err("all of a recurrent layer says how far one of its elements may be off".to_string());
        }
        let run = |read: &dyn Fn(&Known) -> Value| -> Result<Vec<f64>, String> {
            let values: Vec<Option<Value>> = operands.iter().map(|known| known.as_ref().map(read)).collect();
            self.at_points(&at.op, &values, at.n_outputs as usize, output)
        };
        let values = run(&|known| known.value.clone())?;
        let mut slack = vec![0.0; values.len()];
        let is_moved = operands.iter().flatten().any(|known| known.slack.is_some());
        if is_sum_of_products(&at.op) {
            let magnitudes = run(&|known| known.magnitudes())?;
            slack = magnitudes.iter().map(|terms| exact.allowance.of_sum(*terms)).collect();
            for operands in passed_on(&at.op, &operands) {
                let passed = self.at_points(&at.op, &operands, 1, output)?;
                slack.iter_mut().zip(passed).for_each(|(sum, more)| *sum += more.abs());
            }
        } else if is_moved {
            let mut most = 0.0f64;
            for direction in [1, -1, 0] {
                let moved = run(&|known| known.moved(direction))?;
                let differences = moved.iter().zip(&values).map(|(a, b)| (a - b).abs());
                most = differences.filter(|d| d.is_finite()).fold(most, f64::max);
            }
            slack = vec![UNKNOWN_SLACK * most; values.len()];
        }
        Ok(Main { node, output, values, slack })
    }

    fn at_points(
        &self,
        op: &Op,
        operands: &[Option<Value>],
        n_outputs: usize,
        output: u32,
    ) -> Result<Vec<f64>, String> {
        let operands: Vec<Option<&Value>> = operands.iter().map(Option::as_ref).collect();
        evaluate_at(op, &operands, n_outputs, output as usize, self.points).map_err(|error| error.to_string())
    }

    /// Element-wise nodes up to `last` at the points, the main node's values moved by the first sign of its slack, and
    /// what else was evaluated whole by the second.
    fn follow(
        &self,
        exact: &mut Exact<'_>,
        after: &[bool],
        last: u32,
        main: Option<&Main>,
        signs: (f64, f64),
    ) -> Result<Vec<f64>, String> {
        let region = exact.region;
        let mut made: Vec<Option<Value>> = vec![None; self.n_nodes];
        for (idx, node) in region.nodes.iter().enumerate().take(last as usize + 1) {
            if let Some(main) = main.filter(|main| main.node as usize == idx) {
                let values: Vec<f64> = main
                    .values
                    .iter()
                    .zip(&main.slack)
                    .map(|(value, slack)| moved(*value, signs.0 * slack))
                    .collect();
                let tensor = Tensor::from_f64s(DType::F32, &[values.len()], &values);
                made[idx] = Some(Value::Tensor(tensor.map_err(|error| error.to_string())?));
                continue;
            }
            if !after[idx] {
                continue;
            }
            let mut operands = Vec::with_capacity(node.inputs.len());
            for (place, reference) in node.inputs.iter().enumerate() {
                operands.push(match reference {
                    None => None,
                    Some(Ref::Node { node, output }) => match &made[*node as usize] {
                        Some(_) if main.is_some_and(|main| main.node == *node && main.output != *output) => {
                            return Err("another output of the main node is read".to_string());
                        }
                        Some(value) => Some(value.clone()),
                        None => {
                            Some(self.gathered(exact, Ref::Node { node: *node, output: *output }, signs.1)?)
                        }
                    },
                    Some(other) => match exact.value(*other)? {
                        Some(known) if place > 0 && is_scale_along_axis(&node.op, &known) => {
                            return Err("quantized along an axis".to_string());
                        }
                        Some(_) => Some(self.gathered(exact, *other, signs.1)?),
                        None => None,
                    },
                });
            }
            let operands: Vec<Option<&Value>> = operands.iter().map(Option::as_ref).collect();
            let outputs =
                evaluate(&along_points(&node.op), &operands, 1).map_err(|error| error.to_string())?;
            made[idx] = outputs.into_iter().next();
            if matches!(node.op, Op::Gelu(_)) {
                made[idx] =
                    made[idx].take().map(|made| exact.allowance.moved_gelu(made, operands[0], signs.1));
            }
        }
        let value = made[last as usize].as_ref().and_then(Value::as_tensor);
        let values = value.ok_or("a pointwise node made nothing")?.to_f64s();
        // Everything scalar stays one number.
        Ok(if values.len() == 1 { vec![values[0]; self.points.len()] } else { values })
    }

    /// An operand's elements at the points, broadcast to the output; single elements stay scalars.
    fn gathered(&self, exact: &mut Exact<'_>, reference: Ref, sign: f64) -> Result<Value, String> {
        let known = exact.value(reference)?.ok_or("an operand is missing")?;
        let tensor = known.tensor().ok_or("an operand is not a tensor")?;
        if tensor.len() == 1 && known.slack.is_none() {
            return tensor.reshaped(&[]).map(Value::Tensor).map_err(|error| error.to_string());
        }
        let values = tensor.to_f64s();
        let shape = tensor.shape();
        let pick = |point: &Vec<usize>| {
            let skip = point.len().checked_sub(shape.len()).ok_or("an operand has too many dimensions")?;
            let mut flat = 0;
            for (axis, &dim) in shape.iter().enumerate() {
                flat = flat * dim + if dim == 1 { 0 } else { point[skip + axis] };
            }
            let slack = known.slack.as_ref().and_then(|slack| slack.get(flat)).copied().unwrap_or(0.0);
            values.get(flat).map(|value| moved(*value, sign * slack)).ok_or("an operand is too small")
        };
        let picked = self.points.iter().map(pick).collect::<Result<Vec<f64>, _>>()?;
        Tensor::from_f64s(tensor.dtype(), &[picked.len()], &picked)
            .map(Value::Tensor)
            .map_err(|error| error.to_string())
    }
}

/// An operator as it is over a list of points: what is quantized has one scale, or none of its axes left.
fn along_points(op: &Op) -> Op {
    match op {
        Op::QuantizeLinear(op) => QuantizeLinear { axis: 0, ..op.clone() }.into(),
        Op::DequantizeLinear(op) => DequantizeLinear { axis: 0, ..op.clone() }.into(),
        op => op.clone(),
    }
}

/// Whether it is a scale or zero point of quantization with more than one element.
fn is_scale_along_axis(op: &Op, known: &Known) -> bool {
    matches!(op, Op::QuantizeLinear(_) | Op::DequantizeLinear(_))
        && known.tensor().is_some_and(|tensor| tensor.len() != 1)
}

/// A number moved; one that is not keeps the sign of its zero.
fn moved(value: f64, by: f64) -> f64 {
    if by == 0.0 || by.is_nan() { value } else { value + by }
}

/// The nodes that one of them depends on, and itself.
fn needed(region: &Region, node: u32) -> Vec<bool> {
    let mut needed = vec![false; region.nodes.len()];
    needed[node as usize] = true;
    for idx in (0..=node as usize).rev() {
        if needed[idx] {
            for reference in region.nodes[idx].inputs.iter().flatten() {
                if let Ref::Node { node, .. } = reference {
                    needed[*node as usize] = true;
                }
            }
        }
    }
    needed
}

/// The element-wise nodes that one of them depends on through such nodes alone, and itself.
fn after(region: &Region, node: u32) -> Vec<bool> {
    let mut after = vec![false; region.nodes.len()];
    after[node as usize] = true;
    for idx in (0..=node as usize).rev() {
        if after[idx] {
            for reference in region.nodes[idx].inputs.iter().flatten() {
                if let Ref::Node { node, .. } = reference {
                    after[*node as usize] |= region.nodes[*node as usize].op.is_elementwise();
                }
            }
        }
    }
    after
}
