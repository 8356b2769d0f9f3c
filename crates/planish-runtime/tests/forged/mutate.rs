//! One change of a plan's structure at a time, chosen by bytes: for the fuzz target `run_plan`, and for a few thousand
//! random plans in the ordinary tests.

use std::sync::Arc;

use planish_cpu::Cpu;
use planish_kernel::{Backend, Budget, Compiler, Layout, Numeric, Ref, Region, RegionNode, Tactic};
use planish_op::{Attribute, Limits, Op, ValueType};
use planish_plan::{Plan, Program, Step, StepKind, Storage, Variant};
use planish_runtime::{Engine, problem_of};
use planish_tensor::{Bytes, DType, Dim, Shape, Tensor};

use super::bases::inputs;

/// Trips of loops, and bytes that a run may hold: a forged loop would go on for as long as a run may.
const MOST_TRIPS: u64 = 1000;
const MOST_RUN_BYTES: u64 = 1 << 28;

/// Memory that the values of a plan may take.
const MOST_BYTES: usize = 32 << 20;

/// What changes take new parts from.
#[derive(Default)]
pub(crate) struct Pool {
    regions: Vec<Region>,
    tactics: Vec<Tactic>,
    formats: Vec<String>,
    types: Vec<ValueType>,
}

impl Pool {
    /// Regions, all tactics that could compute them, and the formats that those read.
    pub(crate) fn of(plans: &[Plan]) -> Pool {
        let mut pool = Pool::default();
        plans.iter().for_each(|plan| pool.collect(&plan.program));
        pool.tactics.push(Tactic::new("reference", 1));
        pool.tactics.sort();
        pool.tactics.dedup();
        pool.formats.sort();
        pool.formats.dedup();
        pool
    }

    fn collect(&mut self, program: &Program) {
        for step in &program.steps {
            self.regions.push(step.region.clone());
            let types = step.outputs.iter().flatten().map(|&value| program.values[value as usize].ty.clone());
            self.types.extend(types);
            if let StepKind::Control(control) = &step.kind {
                control.bodies.iter().for_each(|body| self.collect(body));
            }
            let Ok(problem) = problem_of(program, step, &[("n".to_string(), 2)], 1) else { continue };
            for candidate in Cpu::new().candidates(&problem, &Budget::USUAL) {
                self.tactics.push(candidate.tactic);
                self.formats.extend(candidate.packed.into_iter().flatten());
            }
        }
    }
}

/// A plan that the bytes choose, and the size of its symbols.
pub(crate) fn plan_of(bytes: &[u8], plans: &[Plan], pool: &Pool) -> (Plan, i64) {
    let mut source = Source::new(bytes);
    let mut plan = source.pick(plans).clone();
    let size = [2, 1, 0, 3, 17][source.below(5)];
    for _ in 0..MOST_CHANGES {
        if source.is_empty() {
            break;
        }
        change(&mut plan, pool, &mut source);
    }
    (plan, size)
}

/// Changes that one list of bytes makes at most.
const MOST_CHANGES: usize = 12;

/// Writes, opens and runs a plan twice: once at new sizes, once at sizes that are known. What asks for more memory
/// than a test has is not run.
pub(crate) fn run(plan: &Plan, size: i64) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let bytes = plan.to_bytes().map_err(|error| text(&error))?;
    let plan = Plan::from_bytes(Bytes::from_vec(bytes)).expect("a plan that was written");
    let inputs = inputs(&plan, size).ok_or("inputs that are not made here")?;
    if is_large(&plan, size) {
        return Err("more memory than a test has".to_string());
    }
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let limits = Limits { trips: MOST_TRIPS, bytes: MOST_RUN_BYTES, ..Limits::default() };
    let engine = Engine::new(plan, backends).map_err(|error| text(&error))?.limited(limits);
    let mut context = engine.context().map_err(|error| text(&error))?;
    for _ in 0..2 {
        context.run_values(&inputs).map_err(|error| text(&error))?;
    }
    Ok(())
}

/// The bytes that choose.
struct Source<'a> {
    bytes: &'a [u8],
}

/// Sizes, offsets and attributes that are put in.
const NUMBERS: [i64; 24] = [
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    15,
    16,
    17,
    32,
    33,
    64,
    100,
    -1,
    -2,
    -100,
    1 << 12,
    1 << 20,
    1 << 40,
    i64::MAX,
    i64::MIN,
];

const TYPES: [DType; 8] =
    [DType::F32, DType::I64, DType::F64, DType::U8, DType::Bool, DType::F16, DType::I32, DType::I4];

impl<'a> Source<'a> {
    fn new(bytes: &'a [u8]) -> Source<'a> {
        Source { bytes }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first)
    }

    /// A number below `n`, 0 where there is none.
    fn below(&mut self, n: usize) -> usize {
        if n <= 1 {
            return 0;
        }
        let wide = if n > 256 { self.byte() << 8 } else { 0 };
        (wide + self.byte()) % n
    }

    fn pick<'b, T>(&mut self, list: &'b [T]) -> &'b T {
        &list[self.below(list.len())]
    }

    fn one<'b, T>(&mut self, list: &'b mut [T]) -> Option<&'b mut T> {
        let at = self.below(list.len());
        list.get_mut(at)
    }

    fn number(&mut self) -> i64 {
        *self.pick(&NUMBERS)
    }

    fn dim(&mut self) -> Dim {
        match self.below(12) {
            0 => Dim::symbol("n"),
            1 => Dim::symbol("m"),
            2 => Dim::symbol("n") * Dim::from(2),
            3 => Dim::symbol("n") - Dim::from(3),
            4 => Dim::UNKNOWN,
            _ => Dim::from(self.number()),
        }
    }
}

/// Makes one change.
fn change(plan: &mut Plan, pool: &Pool, source: &mut Source<'_>) {
    let n_weights = plan.weights.len();
    match source.below(16) {
        0 => weight(plan, pool, source),
        1 => header(plan, source),
        2..=4 => {
            let program = program(&mut plan.program, source);
            lists(program, source);
        }
        5..=8 => {
            let program = program(&mut plan.program, source);
            value(program, n_weights, pool, source);
        }
        _ => {
            let program = program(&mut plan.program, source);
            let n_values = program.values.len();
            if let Some(chosen) = source.one(&mut program.steps) {
                step(chosen, n_values, pool, source);
            }
        }
    }
}

/// The plan's program, or a body.
fn program<'a>(program: &'a mut Program, source: &mut Source<'_>) -> &'a mut Program {
    let has_bodies =
        |step: &Step| matches!(&step.kind, StepKind::Control(control) if !control.bodies.is_empty());
    let with_bodies: Vec<usize> =
        (0..program.steps.len()).filter(|idx| has_bodies(&program.steps[*idx])).collect();
    if with_bodies.is_empty() || source.below(2) == 0 {
        return program;
    }
    let at = *source.pick(&with_bodies);
    match &mut program.steps[at].kind {
        StepKind::Control(control) => {
            let body = source.below(control.bodies.len());
            self::program(&mut control.bodies[body], source)
        }
        _ => unreachable!("a step without bodies"),
    }
}

fn weight(plan: &mut Plan, pool: &Pool, source: &mut Source<'_>) {
    let Some(weight) = source.one(&mut plan.weights) else { return };
    match source.below(8) {
        0 => weight.dtype = *source.pick(&TYPES),
        1 => {
            let size = source.number();
            if let (Some(dim), Ok(size)) = (source.one(&mut weight.dims), usize::try_from(size)) {
                *dim = size;
            }
        }
        2 => weight.layout = *source.pick(&[Layout::Plain, Layout::ChannelsLast]),
        3 => {
            weight.format = Some(source.pick(&pool.formats).clone());
            weight.packed_by = Some(0);
        }
        4 => (weight.format, weight.packed_by) = (None, None),
        5 => weight.dims.reverse(),
        6 => weight.narrowed = *source.pick(&[None, Some(DType::F16), Some(DType::BF16), Some(DType::U8)]),
        _ => {}
    }
    // As long as its type says, so that something else must refuse it; or of another length.
    let n_bytes = match &weight.format {
        Some(format) => Cpu::new().packed_bytes(weight.packed_form(format)),
        None => weight.dtype.bytes_of(&weight.dims),
    };
    let n_bytes = match source.below(8) {
        0 => source.number().clamp(0, 1 << 12) as usize,
        _ => n_bytes.unwrap_or(0) / weight.narrowed.map_or(1, |_| 2),
    };
    if n_bytes <= 1 << 20 {
        let mut bytes = weight.bytes.to_vec();
        bytes.resize(n_bytes, 1);
        weight.bytes = Bytes::from_vec(bytes);
    }
}

fn header(plan: &mut Plan, source: &mut Source<'_>) {
    match source.below(4) {
        0 => plan.header.threads = source.below(5) as u32,
        1 => plan.header.tuned_at = vec![("n".to_string(), source.number())],
        2 => plan.header.profiles.clear(),
        _ => plan.constants.clear(),
    }
}

fn lists(program: &mut Program, source: &mut Source<'_>) {
    let n_values = program.values.len().max(1);
    match source.below(9) {
        0 => {
            let value = source.below(n_values) as u32;
            program.outputs.push(value);
        }
        1 => {
            let value = source.below(n_values) as u32;
            if let Some(output) = source.one(&mut program.outputs) {
                *output = value;
            }
        }
        2 => {
            program.outputs.pop();
        }
        3 => {
            let value = source.below(n_values) as u32;
            program.inputs.push(value);
            program.values[value as usize].storage = Storage::Input;
        }
        4 => {
            program.inputs.pop();
        }
        5 if !program.steps.is_empty() => {
            let (a, b) = (source.below(program.steps.len()), source.below(program.steps.len()));
            program.steps.swap(a, b);
        }
        6 if !program.steps.is_empty() => {
            let at = source.below(program.steps.len());
            program.steps.remove(at);
        }
        7 if !program.steps.is_empty() => {
            // The same step again, on values of its own.
            let at = source.below(program.steps.len());
            let mut again = program.steps[at].clone();
            for output in again.outputs.iter_mut().flatten() {
                let copy = program.values[*output as usize].clone();
                *output = program.values.len() as u32;
                program.values.push(copy);
            }
            program.steps.push(again);
        }
        _ => {
            let mut copy = source.pick(&program.values).clone();
            copy.storage = Storage::Arena;
            program.values.push(copy);
        }
    }
}

fn value(program: &mut Program, n_weights: usize, pool: &Pool, source: &mut Source<'_>) {
    let n_values = program.values.len();
    if n_values == 0 {
        return;
    }
    let at = source.below(n_values);
    let other = source.below(n_values) as u32;
    let other_ty = program.values[other as usize].ty.clone();
    let value = &mut program.values[at];
    match source.below(12) {
        0 => value.storage = Storage::Alias { of: other },
        1 => {
            // One that fits, so that something else must refuse it.
            value.storage = Storage::Alias { of: other };
            value.ty = other_ty;
        }
        2 => {
            let offset = source.dim();
            value.storage = Storage::Inside { of: other, axis: source.below(5) as u32, offset };
        }
        3 => value.storage = Storage::Own,
        4 => value.storage = Storage::Arena,
        5 => value.storage = Storage::Weight(source.below(n_weights + 1) as u32),
        6 => value.layout = *source.pick(&[Layout::Plain, Layout::ChannelsLast]),
        7 => value.ty = source.pick(&pool.types).clone(),
        8 => {
            if let Some(tensor) = value.ty.as_tensor().cloned() {
                let shape = tensor.shape.unwrap_or_default();
                value.ty = ValueType::tensor(*source.pick(&TYPES), shape);
            }
        }
        _ => {
            let Some(tensor) = value.ty.as_tensor().cloned() else { return };
            let mut dims: Vec<Dim> = tensor.shape.map_or(Vec::new(), |shape| shape.dims().to_vec());
            match source.below(6) {
                0 => dims.push(source.dim()),
                1 => {
                    dims.pop();
                }
                2 => dims.reverse(),
                _ => {
                    let new = source.dim();
                    if let Some(dim) = source.one(&mut dims) {
                        *dim = new;
                    }
                }
            }
            value.ty = ValueType::tensor(tensor.dtype, Shape::new(dims));
        }
    }
}

fn step(step: &mut Step, n_values: usize, pool: &Pool, source: &mut Source<'_>) {
    match source.below(16) {
        0 | 1 => {
            let new = (source.below(8) > 0).then(|| source.below(n_values) as u32);
            if let Some(input) = source.one(&mut step.inputs) {
                *input = new;
            }
        }
        2 => {
            let new = (source.below(8) > 0).then(|| source.below(n_values) as u32);
            if let Some(output) = source.one(&mut step.outputs) {
                *output = new;
            }
        }
        3 | 4 => {
            let tactic = source.pick(&pool.tactics).clone();
            match &mut step.kind {
                StepKind::Kernel { variants, .. } => {
                    if let Some(variant) = source.one(variants) {
                        variant.tactic = tactic;
                    }
                }
                kind => {
                    let variants = vec![Variant { from: Vec::new(), up_to: Vec::new(), tactic }];
                    *kind = StepKind::Kernel { variants, packed: Vec::new(), slow: false };
                }
            }
        }
        5 => {
            let format = source.pick(&pool.formats).clone();
            if let StepKind::Kernel { packed, .. } = &mut step.kind {
                packed.resize(step.inputs.len(), None);
                if let Some(known) = source.one(packed) {
                    *known = match known {
                        Some(_) if format.len().is_multiple_of(2) => None,
                        _ => Some(format),
                    };
                }
            }
        }
        6 => {
            step.region = source.pick(&pool.regions).clone();
            // As many operands as it has, so that something else must refuse it.
            step.inputs.resize(step.region.n_inputs as usize, Some(0));
            let last = step.outputs.last().copied().flatten();
            step.outputs.resize(step.region.outputs.len(), last);
        }
        7 => {
            step.kind = match source.below(3) {
                0 => StepKind::Evaluate,
                1 => StepKind::Transfer,
                _ => step.kind.clone(),
            }
        }
        8 => step.numeric = *source.pick(&[Numeric::F32, Numeric::F16, Numeric::TF32]),
        9 => {
            if let StepKind::Control(control) = &mut step.kind {
                control.n_captured = source.below(4) as u32;
            }
        }
        10 => constant(&mut step.region, source),
        11 | 12 => {
            if let Some(node) = source.one(&mut step.region.nodes) {
                attribute(&mut node.op, source);
            }
        }
        _ => region(&mut step.region, pool, source),
    }
}

fn reference(region: &Region, source: &mut Source<'_>) -> Ref {
    match source.below(3) {
        0 => Ref::Input(source.below(region.n_inputs.max(1) as usize) as u32),
        1 => Ref::Constant(source.below(region.constants.len().max(1)) as u32),
        _ => {
            Ref::Node { node: source.below(region.nodes.len().max(1)) as u32, output: source.below(2) as u32 }
        }
    }
}

fn region(region: &mut Region, pool: &Pool, source: &mut Source<'_>) {
    let new = reference(region, source);
    match source.below(8) {
        0 | 1 => {
            if let Some(output) = source.one(&mut region.outputs) {
                *output = new;
            }
        }
        2 | 3 => {
            let new = (source.below(8) > 0).then_some(new);
            if let Some(input) = source.one(&mut region.nodes).and_then(|node| source.one(&mut node.inputs)) {
                *input = new;
            }
        }
        4 => {
            let n_outputs = source.below(4) as u32;
            if let Some(node) = source.one(&mut region.nodes) {
                node.n_outputs = n_outputs;
            }
        }
        5 => {
            region.nodes.pop();
        }
        6 => {
            let from = source.pick(&pool.regions);
            let nodes: Vec<RegionNode> = from.nodes.clone();
            if let (Some(node), Some(own)) = (nodes.first(), source.one(&mut region.nodes)) {
                own.op = node.op.clone();
            }
        }
        _ => {
            // One more node after, whose output is the region's.
            let from = source.pick(&pool.regions);
            let Some(mut node) = from.nodes.first().cloned() else { return };
            let after = region.nodes.len() as u32;
            let last = after.checked_sub(1).map(|node| Ref::Node { node, output: 0 });
            node.inputs.iter_mut().for_each(|input| *input = last.or(Some(new)));
            node.n_outputs = 1;
            region.nodes.push(node);
            if let Some(output) = region.outputs.first_mut() {
                *output = Ref::Node { node: after, output: 0 };
            }
        }
    }
}

fn constant(region: &mut Region, source: &mut Source<'_>) {
    let number = source.number();
    let shape = source.below(3);
    let Some(tensor) = source.one(&mut region.constants) else { return };
    let mut numbers = match tensor.len() {
        0..=64 => tensor.to_f64s(),
        _ => return,
    };
    if let Some(one) = source.one(&mut numbers) {
        *one = number as f64;
    }
    let dims = match shape {
        0 => tensor.shape().to_vec(),
        1 => vec![numbers.len()],
        _ => vec![1, numbers.len()],
    };
    if let Ok(changed) = Tensor::from_f64s(tensor.dtype(), &dims, &numbers) {
        *tensor = changed;
    }
}

fn attribute(op: &mut Op, source: &mut Source<'_>) {
    let mut list: Vec<(String, Attribute)> =
        op.attributes().into_iter().map(|(name, attribute)| (name.to_string(), attribute)).collect();
    let number = source.number();
    let longer = source.below(6) == 0;
    let Some((_, attribute)) = source.one(&mut list) else { return };
    match attribute {
        Attribute::Bool(value) => *value = !*value,
        Attribute::Int(value) => *value = number,
        Attribute::Float(value) => *value = [0.0, -1.0, f32::NAN, f32::INFINITY, 1e30][source.below(5)],
        Attribute::Ints(values) if longer => values.push(number),
        Attribute::Ints(values) => {
            if let Some(value) = source.one(values) {
                *value = number;
            }
        }
        Attribute::Floats(values) => values.push(number as f32),
        Attribute::Str(value) => {
            let words = ["nearest", "linear", "cubic", "reflect", "edge", "wrap", "reverse", "add", "VALID"];
            *value = source.pick(&words).to_string();
        }
        Attribute::Strs(values) => values.reverse(),
        Attribute::DType(value) => *value = *source.pick(&TYPES),
        Attribute::Tensor(_) | Attribute::Type(_) => {}
    }
    if let Ok(changed) = Op::from_attributes(op.name(), &list) {
        *op = changed;
    }
}

/// Whether values, those of bodies included, are too large at this size of all symbols.
fn is_large(plan: &Plan, size: i64) -> bool {
    fn bytes(program: &Program, size: i64) -> usize {
        let one = |value: &planish_plan::Value| {
            let ty = value.ty.as_tensor()?;
            let dims = ty.shape.as_ref()?.iter().map(|dim| Some(dim.eval(&|_| Some(size))?.max(0) as usize));
            let dims = dims.collect::<Option<Vec<usize>>>()?;
            let n = ty.dtype.bytes_of(&dims);
            Some(n.unwrap_or(usize::MAX))
        };
        let own = program.values.iter().filter_map(one).fold(0usize, usize::saturating_add);
        let bodies = program.steps.iter().map(|step| match &step.kind {
            StepKind::Control(control) => {
                control.bodies.iter().map(|body| bytes(body, size)).fold(0, usize::saturating_add)
            }
            _ => 0,
        });
        bodies.fold(own, usize::saturating_add)
    }
    bytes(&plan.program, size) > MOST_BYTES
}
