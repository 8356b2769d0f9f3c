//! A region on the reference, node by node and whole, with how far each value may be off: what a kernel that computes
//! several layers at once is compared with, and every element of small steps.

use std::rc::Rc;

use planish_kernel::{Ref, Region};
use planish_op::{Op, Rounding, Value};
use planish_reference::evaluate;
use planish_tensor::Tensor;

use super::points::{Allowance, is_sum_of_products};
use super::tolerance::{EPSILON, SUM_SLACK, is_movement, keeps_values};

/// Room for the curvature of functions that an error passes through.
pub(super) const CURVATURE: f64 = 1.5;
/// Errors through operators that no rule here knows are found by moving the inputs; this many times what was seen is
/// allowed, since the worst signs are not tried.
pub(super) const UNKNOWN_SLACK: f64 = 4.0;

/// A value, and how far each of its elements may be off; `None` where it is exact.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) value: Value,
    pub(super) slack: Option<Rc<Vec<f64>>>,
}

impl Known {
    pub(super) fn exact(value: Value) -> Known {
        Known { value, slack: None }
    }

    pub(super) fn tensor(&self) -> Option<&Tensor> {
        self.value.as_tensor()
    }

    /// The value with every element moved by its slack: up, down, or (0) up and down in turns.
    pub(super) fn moved(&self, direction: i8) -> Value {
        let (Some(tensor), Some(slack)) = (self.tensor(), &self.slack) else { return self.value.clone() };
        let sign = |at: usize| match direction {
            0 if at.is_multiple_of(2) => 1.0,
            0 => -1.0,
            up => f64::from(up),
        };
        let values: Vec<f64> = tensor
            .to_f64s()
            .iter()
            .zip(slack.iter())
            .enumerate()
            .map(|(at, (x, s))| x + sign(at) * s)
            .collect();
        with_values(tensor, &values).unwrap_or_else(|| self.value.clone())
    }

    /// The value with every float moved by a share of itself, up or down by a mixing of its place's bits.
    fn jittered(&self, share: f64) -> Value {
        let Some(tensor) = self.tensor().filter(|tensor| tensor.dtype().is_float()) else {
            return self.value.clone();
        };
        let up = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).count_ones().is_multiple_of(2);
        let values = tensor.to_f64s();
        let moved =
            values.iter().enumerate().map(|(at, x)| x * (if up(at) { 1.0 + share } else { 1.0 - share }));
        with_values(tensor, &moved.collect::<Vec<f64>>()).unwrap_or_else(|| self.value.clone())
    }

    /// The slack as a value of its own; zeros where there is none.
    pub(super) fn slack_value(&self) -> Value {
        let Some(tensor) = self.tensor().filter(|tensor| tensor.dtype().is_float()) else {
            return self.value.clone();
        };
        let none = vec![0.0; if self.slack.is_some() { 0 } else { tensor.len() }];
        let values = self.slack.as_ref().map_or(&none, |slack| slack);
        with_values(tensor, values).unwrap_or_else(|| self.value.clone())
    }

    /// The magnitudes of its elements; integers (indices, shapes) as they are.
    pub(super) fn magnitudes(&self) -> Value {
        match self.tensor().filter(|tensor| tensor.dtype().is_float()) {
            Some(tensor) => match tensor.elements::<f32>() {
                // Weights of millions of elements, for a few points of them.
                Ok(values) => {
                    let values: Vec<f32> = values.iter().map(|value| value.abs()).collect();
                    let magnitudes = Tensor::vector(values).reshaped(tensor.shape());
                    magnitudes.map_or_else(|_| self.value.clone(), Value::Tensor)
                }
                Err(_) => {
                    let values: Vec<f64> = tensor.to_f64s().into_iter().map(f64::abs).collect();
                    with_values(tensor, &values).unwrap_or_else(|| self.value.clone())
                }
            },
            None => self.value.clone(),
        }
    }
}

fn with_values(like: &Tensor, values: &[f64]) -> Option<Value> {
    Tensor::from_f64s(like.dtype(), like.shape(), values).ok().map(Value::Tensor)
}

/// The nodes of a region that were evaluated whole.
pub(super) struct Exact<'a> {
    pub(super) region: &'a Region,
    pub(super) inputs: &'a [Option<Value>],
    pub(super) allowance: Allowance,
    made: Vec<Option<Vec<Known>>>,
}

impl<'a> Exact<'a> {
    pub(super) fn new(region: &'a Region, inputs: &'a [Option<Value>], allowance: Allowance) -> Exact<'a> {
        Exact { region, inputs, allowance, made: vec![None; region.nodes.len()] }
    }

    /// What a node reads; nodes in front of it are evaluated whole.
    pub(super) fn operands(&mut self, node: u32) -> Result<Vec<Option<Known>>, String> {
        let region = self.region;
        region.nodes[node as usize]
            .inputs
            .iter()
            .map(|reference| reference.map(|reference| self.value(reference)).transpose())
            .collect::<Result<Vec<Option<Option<Known>>>, String>>()
            .map(|list| list.into_iter().map(Option::flatten).collect())
    }

    /// The value behind a reference; `None` for an input that is absent.
    pub(super) fn value(&mut self, reference: Ref) -> Result<Option<Known>, String> {
        Ok(match reference {
            Ref::Input(idx) => self.inputs.get(idx as usize).cloned().flatten().map(Known::exact),
            Ref::Constant(idx) => self
                .region
                .constants
                .get(idx as usize)
                .cloned()
                .map(|tensor| Known::exact(Value::Tensor(tensor))),
            Ref::Node { node, output } => {
                self.evaluate(node)?;
                let made = self.made[node as usize].as_ref().and_then(|made| made.get(output as usize));
                Some(made.cloned().ok_or("a node made less than the region says")?)
            }
        })
    }

    fn evaluate(&mut self, node: u32) -> Result<(), String> {
        if self.made[node as usize].is_some() {
            return Ok(());
        }
        let operands = self.operands(node)?;
        let at = &self.region.nodes[node as usize];
        let n_outputs = at.n_outputs as usize;
        let run = |read: &dyn Fn(&Known) -> Value| -> Result<Vec<Value>, String> {
            let values: Vec<Option<Value>> = operands.iter().map(|known| known.as_ref().map(read)).collect();
            let values: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
            evaluate(&at.op, &values, n_outputs).map_err(|error| error.to_string())
        };
        let values = run(&|known| known.value.clone())?;
        let slacks = self.slacks(&at.op, &operands, &values, &run)?;
        let made =
            values.into_iter().zip(slacks).map(|(value, slack)| Known { value, slack: slack.map(Rc::new) });
        self.made[node as usize] = Some(made.collect());
        Ok(())
    }

    /// How far the outputs of a node may be off.
    #[expect(clippy::type_complexity, reason = "a closure that is written once")]
    fn slacks(
        &self,
        op: &Op,
        operands: &[Option<Known>],
        values: &[Value],
        run: &dyn Fn(&dyn Fn(&Known) -> Value) -> Result<Vec<Value>, String>,
    ) -> Result<Vec<Option<Vec<f64>>>, String> {
        let is_moved = operands.iter().flatten().any(|known| known.slack.is_some());
        // In front of a rounding to 8 bits a node may be off by what it may be as the last one.
        let rounds = rounds_to_integers(self.region);
        let rounding = |value: &Value| -> Option<Vec<f64>> {
            let tensor = value.as_tensor().filter(|tensor| tensor.dtype().is_float())?;
            let values = tensor.to_f64s();
            let finite = values.iter().filter(|x| x.is_finite());
            let largest = finite.fold(0.0f64, |most, x| most.max(x.abs()));
            let of_largest = if rounds { self.allowance.of_largest * largest } else { 0.0 };
            let mut off: Vec<f64> =
                values.iter().map(|x| self.allowance.of_value * x.abs() + of_largest).collect();
            if let (Op::Gelu(_), Some(argument)) = (op, operands.first().and_then(Option::as_ref)) {
                let more = floats(&argument.value).into_iter().map(|x| self.allowance.gelu.at(x));
                off.iter_mut().zip(more).for_each(|(off, more)| *off += more);
            }
            Some(off)
        };
        if is_sum_of_products(op) {
            let magnitudes = run(&|known| known.magnitudes())?;
            let mut slack: Vec<f64> =
                floats(&magnitudes[0]).iter().map(|terms| self.allowance.of_sum(*terms)).collect();
            for moved in passed_on(op, operands) {
                let moved: Vec<Option<&Value>> = moved.iter().map(Option::as_ref).collect();
                let passed = evaluate(op, &moved, 1).map_err(|error| error.to_string())?;
                slack.iter_mut().zip(floats(&passed[0])).for_each(|(sum, more)| *sum += more.abs());
            }
            return Ok(vec![Some(slack)]);
        }
        if is_recurrent(op) {
            return self.recurrence(operands, values, is_moved, run);
        }
        if !is_moved {
            let exact = is_movement(op) || rounds_little(op) && !rounds;
            return Ok(values.iter().map(|value| if exact { None } else { rounding(value) }).collect());
        }
        if passes_slack_as_values(op) {
            let slacks = run(&|known| known.slack_value())?;
            return Ok(slacks
                .iter()
                .map(|slack| Some(floats(slack).iter().map(|s| s.abs()).collect()))
                .collect());
        }
        // Integers fall to the other side of a boundary, or stay.
        let steps = |value: &Value| {
            let n = value.as_tensor().filter(|_| matches!(op, Op::QuantizeLinear(_))).map(Tensor::len);
            n.map(|n| vec![0.0; n])
        };
        let mut slacks: Vec<Option<Vec<f64>>> =
            values.iter().map(|value| rounding(value).or_else(|| steps(value))).collect();
        let factor = if op.is_elementwise() { CURVATURE } else { UNKNOWN_SLACK };
        for direction in [1, -1, 0] {
            let moved = run(&|known| known.moved(direction))?;
            for ((slack, moved), value) in slacks.iter_mut().zip(&moved).zip(values) {
                let Some(slack) = slack else { continue };
                let differences: Vec<f64> =
                    floats(moved).iter().zip(floats(value)).map(|(a, b)| factor * (a - b).abs()).collect();
                // What mixes elements may move any of them by as much as the one that moved most.
                let most = match op.is_elementwise() {
                    true => 0.0,
                    false => differences.iter().copied().filter(|d| d.is_finite()).fold(0.0, f64::max),
                };
                for (slack, difference) in slack.iter_mut().zip(differences) {
                    let own = if difference.is_finite() { difference } else { 0.0 };
                    *slack = slack.max(own).max(most);
                }
            }
        }
        Ok(slacks)
    }

    /// How far a recurrent layer may be off: every step rounds its sums, and what a step is off the later ones carry on, by
    /// how much only the layer itself tells. So it is computed again with all operands moved by what a sum may be off,
    /// relative to its terms, in signs that alternate by no period of the layer. How much a sequence then moves at a
    /// time, at its widest unit, all units of it may at this time. A layer that forgets is bound as tightly as any
    /// function; one that carries its errors on is off by them with any kernel that computes in f32.
    #[expect(clippy::type_complexity, reason = "a closure that is written once")]
    fn recurrence(
        &self,
        operands: &[Option<Known>],
        values: &[Value],
        is_moved: bool,
        run: &dyn Fn(&dyn Fn(&Known) -> Value) -> Result<Vec<Value>, String>,
    ) -> Result<Vec<Option<Vec<f64>>>, String> {
        let share = SUM_SLACK * EPSILON * (1.0 + (n_terms_of_recurrence(operands) as f64).sqrt());
        let directions: &[i8] = if is_moved { &[1, -1, 0] } else { &[] };
        let mut runs = vec![run(&|known| known.jittered(share))?];
        for &direction in directions {
            runs.push(run(&|known| known.moved(direction))?);
        }
        let slack = |(at, value): (usize, &Value)| -> Option<Vec<f64>> {
            let tensor = value.as_tensor().filter(|tensor| tensor.dtype().is_float())?;
            let values = tensor.to_f64s();
            let mut slack: Vec<f64> = values.iter().map(|x| self.allowance.of_value * x.abs()).collect();
            let hidden = tensor.shape().last().copied().unwrap_or(1).max(1);
            for moved in &runs {
                let moved = moved.get(at).map(floats).unwrap_or_default();
                let off: Vec<f64> = moved.iter().zip(&values).map(|(a, b)| (a - b).abs()).collect();
                for (slack, off) in slack.chunks_mut(hidden).zip(off.chunks(hidden)) {
                    let widest = off.iter().copied().filter(|x| x.is_finite()).fold(0.0, f64::max);
                    slack.iter_mut().for_each(|slack| *slack = slack.max(UNKNOWN_SLACK * widest));
                }
            }
            Some(slack)
        };
        Ok(values.iter().enumerate().map(slack).collect())
    }
}

/// A recurrent layer, whose errors of one step go through all later ones.
pub(super) fn is_recurrent(op: &Op) -> bool {
    matches!(op, Op::LSTM(_) | Op::GRU(_) | Op::RNN(_))
}

/// The weights that one gate of a recurrent layer adds up, its input's and its state's: `[directions, gates, size]`.
fn n_terms_of_recurrence(operands: &[Option<Known>]) -> usize {
    let size = |at: usize| {
        operands.get(at).and_then(Option::as_ref).and_then(Known::tensor).and_then(|it| it.shape().last())
    };
    [1, 2].into_iter().filter_map(size).sum::<usize>().max(1)
}

/// For a sum of products, the operands by which the errors of each operand are passed on: its slack among the
/// magnitudes of the others, without a bias.
pub(super) fn passed_on(op: &Op, operands: &[Option<Known>]) -> Vec<Vec<Option<Value>>> {
    let n_factors = if is_sum_of_products(op) { 2 } else { operands.len() };
    let moved = (0..operands.len().min(3))
        .filter(|&at| operands[at].as_ref().is_some_and(|known| known.slack.is_some()) && at < n_factors);
    moved
        .map(|at| {
            let one = |(place, known): (usize, &Option<Known>)| match known {
                Some(known) if place == at => Some(known.slack_value()),
                Some(known) if place < n_factors => Some(known.magnitudes()),
                _ => None,
            };
            operands.iter().enumerate().map(one).collect()
        })
        .collect()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_tensor().map(Tensor::to_f64s).unwrap_or_default()
}

/// Whether integers are made of floats that no sum of products has gone into: a rounding on the way to them, which
/// kernels make elsewhere than the reference, may decide between two.
pub(super) fn rounds_to_integers(region: &Region) -> bool {
    let nodes = || region.nodes.iter().map(|node| &node.op);
    nodes().any(|op| matches!(op, Op::QuantizeLinear(_))) && !nodes().any(is_sum_of_products)
}

/// Element-wise operators whose result is a rounding away from exact: what they add to the error of a sum after them
/// is within what the sum is allowed.
fn rounds_little(op: &Op) -> bool {
    matches!(op, Op::DequantizeLinear(_))
        || op.as_pointwise().is_some_and(|op| matches!(op.rounding(), Rounding::Exact | Rounding::Once))
}

/// Operators that make of errors what they make of values: they move, average or take the largest.
fn passes_slack_as_values(op: &Op) -> bool {
    keeps_values(op) || matches!(op, Op::AveragePool(_) | Op::GlobalAveragePool(_))
}

#[cfg(test)]
mod tests {
    use planish_kernel::{Approximation, RegionNode};
    use planish_op::{Gelu, GeluApproximation, MatMul, Mul, QuantizeLinear};
    use planish_tensor::DType;

    use super::*;

    #[test]
    fn integers_may_fall_to_the_other_side_of_a_boundary_and_nowhere_else() {
        let quantize =
            QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 };
        let node = |op: Op, inputs: Vec<Ref>| RegionNode {
            name: String::new(),
            op,
            inputs: inputs.into_iter().map(Some).collect(),
            n_outputs: 1,
        };
        let constants = vec![Tensor::scalar(1f32), Tensor::zeros(DType::U8, &[]).unwrap()];
        let of = |first: Op| Region {
            n_inputs: 2,
            constants: constants.clone(),
            nodes: vec![
                node(first, vec![Ref::Input(0), Ref::Input(1)]),
                node(
                    quantize.clone().into(),
                    vec![Ref::Node { node: 0, output: 0 }, Ref::Constant(0), Ref::Constant(1)],
                ),
            ],
            outputs: vec![Ref::Node { node: 1, output: 0 }],
        };
        // The first sum lies in the middle between two integers, the second does not.
        let x = Tensor::new(&[2, 1], vec![4.5f32, 4.4]).unwrap();
        let inputs = [x, Tensor::new(&[1, 1], vec![1f32]).unwrap()].map(|tensor| Some(Value::Tensor(tensor)));
        let sums =
            Allowance { of_terms: 1e-6, of_value: 0.0, of_largest: 0.0, gelu: Approximation::default() };
        let functions =
            Allowance { of_terms: 0.0, of_value: 1e-6, of_largest: 0.0, gelu: Approximation::default() };
        // A product that is rounded once is as good a reason as a sum.
        for (first, allowance) in [(MatMul {}.into(), sums), (Mul {}.into(), functions)] {
            let region = of(first);
            let mut exact = Exact::new(&region, &inputs, allowance);
            let known = exact.value(region.outputs[0]).unwrap().unwrap();
            assert_eq!(floats(&known.value), [4.0, 4.0]);
            assert_eq!(known.slack.as_deref(), Some(&vec![CURVATURE, 0.0]));
        }
    }

    /// A recurrent layer of one unit that is fed 1e-3 in its first step, and passes on `kept` of its state.
    fn slacks_of_recurrence(kept: f32, n_steps: usize) -> Vec<f64> {
        let layer = Op::from_attributes("RNN", &[]).unwrap();
        let inputs = (0..3).map(|idx| Some(Ref::Input(idx))).collect();
        let node = RegionNode { name: String::new(), op: layer, inputs, n_outputs: 1 };
        let region = Region {
            n_inputs: 3,
            constants: Vec::new(),
            nodes: vec![node],
            outputs: vec![Ref::Node { node: 0, output: 0 }],
        };
        let mut x = vec![0f32; n_steps];
        x[0] = 1e-3;
        let weight = |value: f32| Tensor::new(&[1, 1, 1], vec![value]).unwrap();
        let inputs = [Tensor::new(&[n_steps, 1, 1], x).unwrap(), weight(1.0), weight(kept)];
        let inputs = inputs.map(|tensor| Some(Value::Tensor(tensor)));
        let allowance =
            Allowance { of_terms: 0.0, of_value: 1e-6, of_largest: 0.0, gelu: Approximation::default() };
        let known = Exact::new(&region, &inputs, allowance).value(region.outputs[0]).unwrap().unwrap();
        known.slack.as_deref().cloned().unwrap()
    }

    #[test]
    fn a_recurrent_layer_may_be_off_by_what_it_carries_on() {
        // One that forgets is as exact at its end as at its beginning.
        let forgets = slacks_of_recurrence(0.5, 40);
        assert!(forgets[39] < 1e-3 * forgets[0], "{forgets:?}");
        // One that doubles its state until its function bends doubles what it is off, and a little more.
        let doubles = slacks_of_recurrence(2.0, 9);
        let growth: Vec<f64> = doubles.windows(2).map(|pair| pair[1] / pair[0]).collect();
        assert!(growth.iter().skip(1).all(|growth| (1.5..4.0).contains(growth)), "{doubles:?}");
        assert!(doubles[0] < 1e-8 && doubles[8] < 1e-4, "{doubles:?}");
    }

    #[test]
    fn a_gelu_in_front_of_eight_bits_may_be_off_by_what_its_kernel_says() {
        let quantize =
            QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 };
        let node = |op: Op, inputs: Vec<Ref>| RegionNode {
            name: String::new(),
            op,
            inputs: inputs.into_iter().map(Some).collect(),
            n_outputs: 1,
        };
        let behind = |node: u32| Ref::Node { node, output: 0 };
        let region = Region {
            n_inputs: 1,
            constants: vec![Tensor::scalar(1f32 / 64.0), Tensor::zeros(DType::F8E4M3FN, &[]).unwrap()],
            nodes: vec![
                node(Gelu { approximate: GeluApproximation::None }.into(), vec![Ref::Input(0)]),
                node(quantize.into(), vec![behind(0), Ref::Constant(0), Ref::Constant(1)]),
            ],
            outputs: vec![behind(1)],
        };
        // In steps of the scale GELU is -9.60 and -11.08 32nds there, which is how far E4M3 numbers are apart: 4.9e-5 and
        // 2.0e-4 before the scale from the middle between two.
        let x = [Some(Value::Tensor(Tensor::new(&[1, 2], vec![-2.95f32, -2.9]).unwrap()))];
        let slack = |gelu: Approximation| {
            let allowance = Allowance { of_terms: 0.0, of_value: 1e-6, of_largest: 0.0, gelu };
            let known = Exact::new(&region, &x, allowance).value(region.outputs[0]).unwrap().unwrap();
            known.slack.as_deref().cloned().unwrap()
        };
        let is_a_step = |slack: &f64| *slack >= 1.0 / 32.0;
        assert!(!slack(Approximation::default()).iter().any(is_a_step));
        let fast = slack(Approximation { absolute: 1e-4, of_argument: 0.0 });
        assert_eq!(fast.iter().map(is_a_step).collect::<Vec<_>>(), [true, false], "{fast:?}");
    }
}
