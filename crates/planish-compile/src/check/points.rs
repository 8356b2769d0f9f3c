//! Points of an output, and what the reference computes there.

use planish_kernel::{Ref, Region, is_pointwise};
use planish_op::{Op, Value};
use planish_reference::{evaluate, evaluate_at};
use planish_tensor::{DType, Tensor};

use super::inputs::Numbers;

/// Points at tile edges, and points anywhere.
const N_EDGE_POINTS: usize = 96;
const N_RANDOM_POINTS: usize = 160;
/// Sizes at which kernels change what they do: vectors, tiles, blocks.
const EDGES: [usize; 12] = [4, 6, 8, 14, 16, 28, 32, 48, 56, 64, 128, 512];

/// Corners, places around tile edges and tails, and random places of an output of these sizes.
pub(super) fn sample(dims: &[usize], seed: u64) -> Vec<Vec<usize>> {
    if dims.contains(&0) {
        return Vec::new();
    }
    let mut numbers = Numbers::new(seed + 17);
    let mut points: Vec<Vec<usize>> = Vec::new();
    for corner in 0..1usize << dims.len().min(4) {
        points.push(
            dims.iter()
                .enumerate()
                .map(|(axis, &dim)| if corner >> axis & 1 == 1 { dim - 1 } else { 0 })
                .collect(),
        );
    }
    for _ in 0..N_EDGE_POINTS {
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
    for _ in 0..N_RANDOM_POINTS {
        points.push(dims.iter().map(|&dim| numbers.below(dim)).collect());
    }
    points.sort_unstable();
    points.dedup();
    points
}

/// What the reference makes of a region at points of its output, and the magnitude of what was summed there.
pub(super) struct Expected {
    pub(super) values: Vec<f64>,
    /// How far each may be off, given how far the main node may be.
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
}

/// The reference at `points` of output number `output`; `None` if the region cannot be evaluated at points. Values
/// of 16 bits are taken as they are and nothing between is rounded, as kernels do that compute in f32.
pub(super) fn expected(
    region: &Region,
    inputs: &[Option<Value>],
    output: usize,
    points: &[Vec<usize>],
    allowance: Allowance,
    largest: f64,
) -> Result<Expected, String> {
    let (region, inputs) = (&widened_region(region), &inputs.iter().map(widened).collect::<Vec<_>>()[..]);
    let Some(Ref::Node { node, output }) = region.outputs.get(output).copied() else {
        return Err("the output is no node's".to_string());
    };
    let main = main_node(region);
    let at = At { region, inputs, points };
    let (centre, slack) = match main {
        Some(main) => {
            let exact = at.main(main, if main == node { output } else { 0 })?;
            let slack = match is_sum_of_products(&region.nodes[main as usize].op) {
                true => at.magnitudes(main)?.iter().map(|terms| terms * allowance.of_terms).collect(),
                false => vec![0.0; points.len()],
            };
            (exact, slack)
        }
        None => (Vec::new(), Vec::new()),
    };
    let behind = |centre: &[f64]| -> Result<Vec<f64>, String> {
        match main {
            Some(main) if main == node => Ok(centre.to_vec()),
            _ => at.follow(node, main, centre),
        }
    };
    let values = behind(&centre)?;
    let moved = |sign: f64| -> Result<Vec<f64>, String> {
        let moved: Vec<f64> = centre.iter().zip(&slack).map(|(value, slack)| value + sign * slack).collect();
        behind(&moved)
    };
    let (up, down) = (moved(1.0)?, moved(-1.0)?);
    let bounds = values
        .iter()
        .zip(up.iter().zip(&down))
        .map(|(value, (up, down))| {
            // What the epilogue makes of the main node's slack, with room for its curvature.
            let passed_on = 1.5 * (up - value).abs().max((down - value).abs());
            passed_on + allowance.of_value * value.abs() + allowance.of_largest * largest
        })
        .collect();
    Ok(Expected { values, bounds })
}

/// A float of 16 bits as f32, which holds it as it is.
fn widened(value: &Option<Value>) -> Option<Value> {
    let tensor = value.as_ref()?.as_tensor().filter(|tensor| is_low(tensor.dtype()));
    let wide =
        tensor.and_then(|tensor| Tensor::from_f64s(DType::F32, tensor.shape(), &tensor.to_f64s()).ok());
    wide.map(Value::Tensor).or_else(|| value.clone())
}

fn is_low(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The region with its values of 16 bits in f32.
fn widened_region(region: &Region) -> Region {
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

/// The only node that is not pointwise.
fn main_node(region: &Region) -> Option<u32> {
    region.nodes.iter().position(|node| !is_pointwise(&node.op)).map(|idx| idx as u32)
}

pub(super) fn is_sum_of_products(op: &Op) -> bool {
    matches!(op, Op::Conv(_) | Op::ConvTranspose(_) | Op::MatMul(_) | Op::Gemm(_))
}

struct At<'a> {
    region: &'a Region,
    inputs: &'a [Option<Value>],
    points: &'a [Vec<usize>],
}

impl At<'_> {
    fn operand(&self, reference: Option<Ref>) -> Option<Value> {
        match reference? {
            Ref::Input(idx) => self.inputs.get(idx as usize).cloned().flatten(),
            Ref::Constant(idx) => self.region.constants.get(idx as usize).cloned().map(Value::Tensor),
            Ref::Node { .. } => None,
        }
    }

    fn operands(&self, node: u32) -> Result<Vec<Option<Value>>, String> {
        let node = &self.region.nodes[node as usize];
        node.inputs
            .iter()
            .map(|reference| match (reference, self.operand(*reference)) {
                (Some(Ref::Node { node, output: 0 }), None) => self.ahead(*node).map(Some),
                (Some(_), None) => Err("the main node reads another of the region".to_string()),
                (_, value) => Ok(value),
            })
            .collect()
    }

    /// The whole output of a pointwise node in front of the main one.
    fn ahead(&self, node: u32) -> Result<Value, String> {
        let at = &self.region.nodes[node as usize];
        if !is_pointwise(&at.op) {
            return Err("the main node reads another of the region".to_string());
        }
        let operands = self.operands(node)?;
        let operands: Vec<Option<&Value>> = operands.iter().map(Option::as_ref).collect();
        let outputs = evaluate(&at.op, &operands, 1).map_err(|error| error.to_string())?;
        outputs.into_iter().next().ok_or_else(|| "a pointwise node made nothing".to_string())
    }

    fn evaluated(&self, node: u32, output: u32, operands: &[Option<Value>]) -> Result<Vec<f64>, String> {
        let at = &self.region.nodes[node as usize];
        let operands: Vec<Option<&Value>> = operands.iter().map(Option::as_ref).collect();
        evaluate_at(&at.op, &operands, at.n_outputs as usize, output as usize, self.points)
            .map_err(|error| error.to_string())
    }

    /// The main node's output at the points.
    fn main(&self, node: u32, output: u32) -> Result<Vec<f64>, String> {
        self.evaluated(node, output, &self.operands(node)?)
    }

    /// The sum of the magnitudes of the terms at the points: the main node over absolute values.
    fn magnitudes(&self, node: u32) -> Result<Vec<f64>, String> {
        let absolute = |value: Option<Value>| {
            value.map(|value| match value.as_tensor() {
                Some(tensor) if tensor.dtype().is_float() => {
                    let values: Vec<f64> = tensor.to_f64s().into_iter().map(f64::abs).collect();
                    Tensor::from_f64s(tensor.dtype(), tensor.shape(), &values).map_or(value, Value::Tensor)
                }
                _ => value,
            })
        };
        let operands: Vec<Option<Value>> = self.operands(node)?.into_iter().map(absolute).collect();
        Ok(self.evaluated(node, 0, &operands)?.into_iter().map(f64::abs).collect())
    }

    /// Pointwise nodes up to `last` at the points, the main node's output being `centre`.
    fn follow(&self, last: u32, main: Option<u32>, centre: &[f64]) -> Result<Vec<f64>, String> {
        let mut made: Vec<Option<Value>> = vec![None; self.region.nodes.len()];
        for (idx, node) in self.region.nodes.iter().enumerate().take(last as usize + 1) {
            if main == Some(idx as u32) {
                let tensor = Tensor::from_f64s(DType::F32, &[centre.len()], centre);
                made[idx] = Some(Value::Tensor(tensor.map_err(|error| error.to_string())?));
                continue;
            }
            let mut operands = Vec::with_capacity(node.inputs.len());
            for reference in &node.inputs {
                operands.push(match reference {
                    None => None,
                    Some(Ref::Node { node, .. }) => made.get(*node as usize).cloned().flatten(),
                    other => Some(self.gathered(*other)?),
                });
            }
            let operands: Vec<Option<&Value>> = operands.iter().map(Option::as_ref).collect();
            let outputs = evaluate(&node.op, &operands, 1).map_err(|error| error.to_string())?;
            made[idx] = outputs.into_iter().next();
        }
        let value = made[last as usize].as_ref().and_then(Value::as_tensor);
        let values = value.ok_or("a pointwise node made nothing")?.to_f64s();
        // Everything scalar stays one number.
        Ok(if values.len() == 1 { vec![values[0]; self.points.len()] } else { values })
    }

    /// An operand's elements at the points, broadcast to the output; single elements stay scalars.
    fn gathered(&self, reference: Option<Ref>) -> Result<Value, String> {
        let value = self.operand(reference).ok_or("an operand is missing")?;
        let tensor = value.as_tensor().ok_or("an operand is no tensor")?;
        if tensor.len() == 1 {
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
            values.get(flat).copied().ok_or("an operand is too small")
        };
        let picked = self.points.iter().map(pick).collect::<Result<Vec<f64>, _>>()?;
        Tensor::from_f64s(tensor.dtype(), &[picked.len()], &picked)
            .map(Value::Tensor)
            .map_err(|error| error.to_string())
    }
}
