//! What a step is at given sizes: its operands, the problem that they make, and the tactic that it takes there.

use planish_kernel::{Operand, Problem};
use planish_plan::{Program, Step, StepKind, Storage, Variant};

use crate::bind::Symbols;
use crate::error::{RunError, RunErrorKind};

/// An operand, and how far into its root it begins, in bytes.
pub(crate) type Posed = (Operand, usize);

/// The operands of a program's values at these sizes, each found once however many values lie in it.
#[derive(Debug)]
pub(crate) struct Poses {
    /// By value; `None` where nobody asked, or where sizes are not known.
    pub(crate) list: Vec<Option<Posed>>,
    asked: Vec<bool>,
}

impl Poses {
    pub(crate) fn new(program: &Program) -> Poses {
        Poses { list: vec![None; program.values.len()], asked: vec![false; program.values.len()] }
    }

    /// The operand of a value, `None` while its size is not known; values that it lies in are found on the way, so
    /// that chains of views, thousands long in a forged plan, are walked once and without recursion.
    pub(crate) fn find(&mut self, program: &Program, value: u32, symbols: &Symbols) -> Option<&Posed> {
        let mut way = Vec::new();
        let mut at = value;
        while !std::mem::replace(&mut self.asked[at as usize], true) {
            way.push(at);
            match &program.values[at as usize].storage {
                Storage::Alias { of } | Storage::Inside { of, .. } => at = *of,
                Storage::Input | Storage::Weight(_) | Storage::Arena | Storage::Own => break,
            }
        }
        for value in way.into_iter().rev() {
            self.list[value as usize] = operand_in(program, value, symbols, &self.list);
        }
        self.list[value as usize].as_ref()
    }
}

/// The operand of a value whose parent's is known.
fn operand_in(program: &Program, value: u32, symbols: &Symbols, known: &[Option<Posed>]) -> Option<Posed> {
    let record = &program.values[value as usize];
    let ty = record.ty.as_tensor()?;
    let dims = symbols.eval_shape(ty.shape.as_ref()?)?;
    let dense = Operand::dense(ty.dtype, &dims, record.layout);
    Some(match &record.storage {
        Storage::Input | Storage::Arena | Storage::Own => (dense, 0),
        Storage::Weight(_) => (Operand { constant: true, ..dense }, 0),
        Storage::Alias { of } => {
            let (parent, offset) = known[*of as usize].clone()?;
            // A transposed view of a square has its parent's sizes, but not its strides.
            if parent.dims == dims && program.values[*of as usize].layout == record.layout {
                (Operand { dtype: ty.dtype, ..parent }, offset)
            } else {
                (dense, offset)
            }
        }
        Storage::Inside { of, axis, offset } => {
            let (parent, parent_offset) = known[*of as usize].clone()?;
            let along = usize::try_from(symbols.eval(offset)?).ok()?;
            let axis = *axis as usize;
            let step = parent.strides.get(axis)?;
            let bytes = ty.dtype.bytes_for(along.checked_mul(*step)?)?;
            // Within its axis, and whole along the others: then strides are never less than dense ones.
            let inside = along.checked_add(*dims.get(axis)?)? <= parent.dims[axis]
                && dims.len() == parent.dims.len()
                && (0..dims.len()).all(|other| other == axis || dims[other] == parent.dims[other]);
            if !inside {
                return None;
            }
            (Operand { strides: parent.strides, ..dense }, parent_offset.checked_add(bytes)?)
        }
    })
}

/// The tactic of the first variant whose guard holds.
fn variant<'a>(variants: &'a [Variant], symbols: &Symbols) -> Option<&'a Variant> {
    let is = |(symbol, bound): &(String, i64), holds: fn(&i64, &i64) -> bool| {
        symbols.get(symbol).is_none_or(|value| holds(&value, bound))
    };
    let holds = |variant: &&Variant| {
        variant.from.iter().all(|bound| is(bound, i64::ge))
            && variant.up_to.iter().all(|bound| is(bound, i64::le))
    };
    variants.iter().find(holds).or(variants.last())
}

pub(crate) fn unknown_size(step: &Step) -> RunError {
    let message = format!("step `{}`: a size is not known; the plan is damaged, rebuild it", step.name);
    RunError::new(RunErrorKind::BadFile, message)
}

/// The problem that a step is at these sizes. Inputs and outputs that are absent are left out of operands as
/// the region numbers them: an absent input keeps its place with an empty operand.
pub fn problem_of(
    program: &Program,
    step: &Step,
    sizes: &[(String, i64)],
    threads: usize,
) -> Result<Problem, RunError> {
    problem(program, step, &Symbols::from_pairs(sizes), threads, &mut Poses::new(program))
}

/// As [`problem_of`]; `poses` are those of the program at these sizes, as far as they were asked for.
pub(crate) fn problem(
    program: &Program,
    step: &Step,
    symbols: &Symbols,
    threads: usize,
    poses: &mut Poses,
) -> Result<Problem, RunError> {
    let packed: &[Option<String>] = match &step.kind {
        StepKind::Kernel { packed, .. } => packed,
        StepKind::Transfer | StepKind::Evaluate | StepKind::Control(_) => &[],
    };
    pose(step, packed, threads, |value| match value {
        Some(value) => {
            let found = poses.find(program, value, symbols);
            found.map(|(operand, _)| operand.clone()).ok_or_else(|| unknown_size(step))
        }
        None => Ok(absent()),
    })
}

/// The operand of an input that is left out.
pub(crate) fn absent() -> Operand {
    Operand::dense(planish_tensor::DType::F32, &[0], planish_kernel::Layout::Plain)
}

/// Whether two steps have operands of the same types, sizes and strides.
pub(crate) fn same_operands(a: &Step, b: &Step, operands: &[Option<Operand>]) -> bool {
    let same = |a: &[Option<u32>], b: &[Option<u32>]| {
        let operand = |value: &Option<u32>| value.map(|value| operands[value as usize].as_ref());
        a.len() == b.len() && a.iter().map(operand).eq(b.iter().map(operand))
    };
    same(&a.inputs, &b.inputs) && same(&a.outputs, &b.outputs)
}

/// The problem of a step from the operands of its values.
pub(crate) fn pose(
    step: &Step,
    packed: &[Option<String>],
    threads: usize,
    mut operand: impl FnMut(Option<u32>) -> Result<Operand, RunError>,
) -> Result<Problem, RunError> {
    let mut inputs = Vec::with_capacity(step.inputs.len());
    for (idx, &value) in step.inputs.iter().enumerate() {
        let format = packed.get(idx).cloned().flatten();
        inputs.push(Operand { packed: format, ..operand(value)? });
    }
    let outputs = step.outputs.iter().map(|&value| operand(value)).collect::<Result<_, _>>()?;
    Ok(Problem { region: step.region.clone(), inputs, outputs, numeric: step.numeric, threads })
}

/// The tactic that a step uses at these sizes.
pub(crate) fn tactic<'a>(step: &'a Step, symbols: &Symbols) -> Result<&'a planish_kernel::Tactic, RunError> {
    let StepKind::Kernel { variants, .. } = &step.kind else { return Err(unknown_size(step)) };
    variant(variants, symbols).map(|variant| &variant.tactic).ok_or_else(|| unknown_size(step))
}

/// The tactic that a kernel step uses at these sizes.
pub fn tactic_at<'a>(step: &'a Step, sizes: &[(String, i64)]) -> Option<&'a planish_kernel::Tactic> {
    tactic(step, &Symbols::from_pairs(sizes)).ok()
}
