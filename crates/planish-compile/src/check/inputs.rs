//! Inputs that a check makes up: repeatable, and such that models take them.
//!
//! Integers are drawn over all that whoever reads them takes: indices over their whole axis, from its end (negative)
//! as well, bytes over all bytes. Where a reader wants something else (a shape, a number of trips), or where the run
//! fails on such numbers, they are 0 and 1.

use planish_kernel::Ref;
use planish_op::{Op, Value};
use planish_plan::{Plan, Program, StepKind, Storage};
use planish_tensor::{DType, Tensor, normalize_axis};

/// Integers that are added, compared or converted are drawn from so many around zero.
const WIDE: i64 = 128;

/// A repeatable stream of numbers (xorshift).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }

    /// Around zero with a variance of about 1: the sum of twelve uniform numbers, less six.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| (self.next() >> 40) as f64 / (1u64 << 24) as f64).sum::<f64>() - 6.0
    }

    /// Floats around zero; integers of 0 and 1.
    pub(super) fn tensor(&mut self, dtype: DType, dims: &[usize]) -> Option<Tensor> {
        self.tensor_within(dtype, dims, (0, 1))
    }

    /// Floats around zero; integers from the first to the last of a range.
    pub(crate) fn tensor_within(
        &mut self,
        dtype: DType,
        dims: &[usize],
        (low, high): (i64, i64),
    ) -> Option<Tensor> {
        let n = planish_tensor::element_count(dims)?;
        let n_integers = (high - low).max(0) as u64 + 1;
        let mut integer = || low as f64 + ((self.next() >> 20) % n_integers) as f64;
        let values: Vec<f64> = match dtype.is_float() {
            true => (0..n).map(|_| self.normal()).collect(),
            false => (0..n).map(|_| integer()).collect(),
        };
        Tensor::from_f64s(dtype, dims, &values).ok()
    }
}

/// Which integers are made up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Integers {
    /// All that readers take.
    Wide,
    /// 0 and 1: tokens, positions and indices that every table has.
    Bits,
    Ones,
    Zeros,
}

impl Integers {
    /// The order in which they are tried until a run succeeds.
    pub(super) const TRIED: [Integers; 4] = [Integers::Wide, Integers::Bits, Integers::Ones, Integers::Zeros];
}

/// Values for the plan's inputs at these sizes.
pub(super) fn random(
    plan: &Plan,
    sizes: &[(String, i64)],
    seed: u64,
    integers: Integers,
) -> Option<Vec<Value>> {
    let mut numbers = Numbers::new(seed.wrapping_add(1));
    let lookup = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let mut values = Vec::with_capacity(plan.program.inputs.len());
    for &input in &plan.program.inputs {
        let ty = plan.program.values[input as usize].ty.as_tensor()?;
        let dims = ty.shape.as_ref()?.eval(&lookup)?;
        let range = match integers {
            Integers::Wide => range(&plan.program, input, ty.dtype, &lookup),
            Integers::Bits => (0, 1),
            Integers::Ones => (1, 1),
            Integers::Zeros => (0, 0),
        };
        values.push(Value::Tensor(numbers.tensor_within(ty.dtype, &dims, range)?));
    }
    Some(values)
}

/// Whether any input of the plan has integers.
pub(super) fn has_integers(plan: &Plan) -> bool {
    let ty = |value: &u32| plan.program.values[*value as usize].ty.as_tensor();
    plan.program.inputs.iter().filter_map(ty).any(|ty| !ty.dtype.is_float() && ty.dtype != DType::Bool)
}

/// What readers make of an integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// Any number will do.
    Any,
    /// An index of an axis of this size; from its end on where it is below zero.
    Index(i64),
    /// An index that does not count from the end.
    Position(i64),
    /// How often a loop goes round.
    Trips,
    /// Something else.
    Unknown,
}

impl Use {
    fn and(self, other: Use) -> Use {
        match (self, other) {
            (Use::Unknown, _) | (_, Use::Unknown) => Use::Unknown,
            (Use::Any, known) | (known, Use::Any) => known,
            (Use::Index(a), Use::Index(b)) => Use::Index(a.min(b)),
            (Use::Position(a), Use::Index(b) | Use::Position(b)) | (Use::Index(a), Use::Position(b)) => {
                Use::Position(a.min(b))
            }
            (Use::Trips, Use::Trips) => Use::Trips,
            (Use::Trips, _) | (_, Use::Trips) => Use::Unknown,
        }
    }
}

/// The integers that an input may be.
fn range(program: &Program, input: u32, dtype: DType, lookup: &dyn Fn(&str) -> Option<i64>) -> (i64, i64) {
    if dtype == DType::Bool || dtype.is_float() {
        return (0, 1);
    }
    let types = dtype.int_range().unwrap_or((0, 1));
    let within =
        |low: i64, high: i64| (i128::from(low).max(types.0) as i64, i128::from(high).min(types.1) as i64);
    let mut seen = vec![false; program.values.len()];
    match follow(program, input, lookup, &mut seen) {
        Use::Any if dtype.bytes_for(1) == Some(1) => within(i64::from(i8::MIN), i64::from(u8::MAX)),
        Use::Any => within(-WIDE, WIDE),
        Use::Index(size) if size > 0 => within(-size, size - 1),
        Use::Position(size) if size > 0 => within(0, size - 1),
        Use::Trips => (2, 3),
        Use::Index(_) | Use::Position(_) | Use::Unknown => (0, 1),
    }
}

/// What all readers of a value, and of what is made of it as it is, make of it.
fn follow(program: &Program, value: u32, lookup: &dyn Fn(&str) -> Option<i64>, seen: &mut [bool]) -> Use {
    if std::mem::replace(&mut seen[value as usize], true) {
        return Use::Any;
    }
    let mut all = Use::Any;
    // Views share the memory of a value without a step.
    for (other, record) in program.values.iter().enumerate() {
        if matches!(&record.storage, Storage::Alias { of } | Storage::Inside { of, .. } if *of == value) {
            all = all.and(follow(program, other as u32, lookup, seen));
        }
    }
    for step in &program.steps {
        for (place, read) in step.inputs.iter().enumerate() {
            if *read != Some(value) {
                continue;
            }
            if matches!(step.kind, StepKind::Control(_)) {
                let is_loop = matches!(step.region.nodes.first().map(|node| &node.op), Some(Op::Loop(_)));
                all = all.and(if is_loop && place == 0 { Use::Trips } else { Use::Unknown });
                continue;
            }
            let mut open = vec![Ref::Input(place as u32)];
            // Each node once: there are exponentially many ways through sums of sums.
            let mut reached = vec![false; step.region.nodes.len()];
            while let Some(reference) = open.pop() {
                for (at, output) in step.region.outputs.iter().enumerate() {
                    if let (true, Some(Some(made))) = (*output == reference, step.outputs.get(at)) {
                        all = all.and(follow(program, *made, lookup, seen));
                    }
                }
                for (number, node) in step.region.nodes.iter().enumerate() {
                    for (operand, _) in node.inputs.iter().enumerate().filter(|(_, r)| **r == Some(reference))
                    {
                        let dims = |at: usize| -> Option<Vec<i64>> {
                            match (*node.inputs.get(at)?)? {
                                Ref::Input(idx) => {
                                    let value = (*step.inputs.get(idx as usize)?)?;
                                    let shape =
                                        program.values[value as usize].ty.as_tensor()?.shape.clone()?;
                                    shape.iter().map(|dim| dim.eval(&lookup)).collect()
                                }
                                Ref::Constant(idx) => {
                                    let tensor = step.region.constants.get(idx as usize)?;
                                    Some(tensor.shape().iter().map(|&dim| dim as i64).collect())
                                }
                                Ref::Node { .. } => None,
                            }
                        };
                        match reading(&node.op, operand, &dims) {
                            Reading::Ends(how) => all = all.and(how),
                            Reading::GoesOn if std::mem::replace(&mut reached[number], true) => {}
                            Reading::GoesOn => open.push(Ref::Node { node: number as u32, output: 0 }),
                        }
                    }
                }
            }
        }
    }
    all
}

enum Reading {
    Ends(Use),
    /// The number is passed on as it is.
    GoesOn,
}

/// What an operator makes of the integers that are its operand of this number.
fn reading(op: &Op, operand: usize, dims: &dyn Fn(usize) -> Option<Vec<i64>>) -> Reading {
    let along = |axis: i64| {
        let found = dims(0).and_then(|dims| dims.get(normalize_axis(axis, dims.len()).ok()?).copied());
        Reading::Ends(found.map_or(Use::Unknown, Use::Index))
    };
    match (op, operand) {
        (Op::Gather(gather), 1) => along(gather.axis),
        (Op::GatherElements(gather), 1) => along(gather.axis),
        (Op::ScatterElements(scatter), 1) => along(scatter.axis),
        (Op::RotaryEmbedding(_), 3) => {
            let n_rows = dims(1).and_then(|dims| dims.first().copied());
            Reading::Ends(n_rows.map_or(Use::Unknown, Use::Position))
        }
        (Op::Cast(cast), 0) if cast.to.is_float() || cast.to == DType::Bool => Reading::Ends(Use::Any),
        (Op::Cast(_), 0)
        | (Op::Identity(_) | Op::Transpose(_) | Op::Concat(_) | Op::Split(_), _)
        | (Op::Reshape(_) | Op::Squeeze(_) | Op::Unsqueeze(_) | Op::Slice(_) | Op::Flatten(_), 0)
        | (Op::Expand(_) | Op::Tile(_), 0) => Reading::GoesOn,
        (Op::Equal(_) | Op::Less(_) | Op::Greater(_) | Op::LessOrEqual(_) | Op::GreaterOrEqual(_), _) => {
            Reading::Ends(Use::Any)
        }
        (Op::DequantizeLinear(_) | Op::OneHot(_), 0) => Reading::Ends(Use::Any),
        // A sum may become an index; a divisor must not be zero.
        (Op::Div(_) | Op::Mod(_) | Op::Pow(_), 1) => Reading::Ends(Use::Unknown),
        (op, _) if op.is_pointwise() => Reading::GoesOn,
        _ => Reading::Ends(Use::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use planish_cpu::Cpu;
    use planish_ir::Graph;
    use planish_kernel::Backend;

    use super::*;
    use crate::{BuildOptions, TimingCache, build};

    /// The least and the largest integer that are drawn for the first input of a model.
    fn drawn(model: &str) -> (i64, i64) {
        let graph: Graph = model.parse().unwrap();
        let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
        let options = BuildOptions { tune_level: 0, verify: false, ..BuildOptions::default() };
        let plan = build(&graph, &backends, &options, &mut TimingCache::default()).unwrap().plan;
        let values = random(&plan, &[], 1, Integers::Wide).unwrap();
        let integers = values[0].as_tensor().unwrap().to_i64s();
        (*integers.iter().min().unwrap(), *integers.iter().max().unwrap())
    }

    #[test]
    fn sums_of_sums_are_followed_once() {
        let sums = |n: usize| {
            (0..n).map(|i| format!("%s{}: i64[8] = Add(%s{i}, %s{i}) ", i + 1)).collect::<String>()
        };
        let model = format!("graph \"g\" {{ input %s0: i64[8] {} output %s60 }}", sums(60));
        let (least, largest) = drawn(&model);
        assert!(-WIDE <= least && largest <= WIDE);
    }

    #[test]
    fn indices_count_from_both_ends_and_positions_do_not() {
        let table = "const %t: f32[3, 2] = [1, 2, 3, 4, 5, 6]";
        let looked_up = format!(
            "graph \"g\" {{ input %i: i64[1, 80] {table} %y: f32[1,80,2] = Gather(%t, %i) output %y }}"
        );
        assert_eq!(drawn(&looked_up), (-3, 2));
        let turned = format!(
            "graph \"g\" {{ input %i: i64[1, 80] input %x: f32[1, 2, 80, 4] {table} \
             %y: f32[1,2,80,4] = RotaryEmbedding(%x, %t, %t, %i) output %y }}"
        );
        assert_eq!(drawn(&turned), (0, 2));
        // An integer that is both is what both take.
        let both = format!(
            "graph \"g\" {{ input %i: i64[1, 80] input %x: f32[1, 2, 80, 4] {table} const %u: f32[2] = [1, 2] \
             %y: f32[1,2,80,4] = RotaryEmbedding(%x, %t, %t, %i) %z: f32[1,80] = Gather(%u, %i) output %y, %z }}"
        );
        assert_eq!(drawn(&both), (0, 1));
    }
}
