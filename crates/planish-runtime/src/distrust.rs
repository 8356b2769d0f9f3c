//! What a plan says of sizes, looked at before a kernel believes it.
//!
//! A file with the right checksums may still have been made to harm: kernels read and write where operands say. So
//! at every new set of sizes each operand must lie inside the memory that it is a part of, none may be larger than
//! any memory, the outputs of a step must be what inference makes of its inputs, and they must lie apart from each
//! other and from its inputs, but where the backend says that the tactic may write over one.

use planish_kernel::{Backend, Operand, Problem, Ref, Tactic, Within};
use planish_op::infer::{Content, InferInput, Inference};
use planish_op::{TensorType, ValueType, infer};
use planish_plan::{Program, Step};
use planish_tensor::{DType, Dim, Shape};

use crate::error::{RunError, RunErrorKind};

/// No operand is larger: far more than any machine has, and sums of many still fit 64 bits.
const MAX_BYTES: usize = 1 << 46;

/// Whether operands fit into memory, and parts into what they are parts of. `roots` and `offsets` are by value.
pub(crate) fn check_operands(
    program: &Program,
    operands: &[Option<Operand>],
    roots: &[u32],
    offsets: &[usize],
) -> Result<(), RunError> {
    for (value, operand) in operands.iter().enumerate() {
        let Some(operand) = operand else { continue };
        let name = &program.values[value].name;
        if operand.span_bytes() > MAX_BYTES {
            let message = format!("`{name}` is {}{:?}, more than any memory", operand.dtype, operand.dims);
            return Err(RunError::new(RunErrorKind::OutOfMemory, message));
        }
        let root = roots[value] as usize;
        // Of an empty part nothing is read or written, wherever it would begin.
        let fits = |whole: &Operand| {
            let end = offsets[value].checked_add(operand.span_bytes());
            operand.is_empty() || end.is_some_and(|end| end <= whole.span_bytes())
        };
        if root != value && !operands[root].as_ref().is_some_and(fits) {
            let whole = &program.values[root].name;
            return Err(RunError::needs_rebuild(format!(
                "`{name}` does not fit into `{whole}`, the plan is damaged"
            )));
        }
    }
    Ok(())
}

/// Whether a step's outputs have the types and sizes that follow from its inputs.
pub(crate) fn check_problem(
    step: &Step,
    problem: &Problem,
    tactic: &Tactic,
    backend: &dyn Backend,
) -> Result<(), RunError> {
    if backend.checks_results(tactic) {
        return Ok(());
    }
    match mismatch(step, problem) {
        None => Ok(()),
        Some(what) => {
            let why = format!("step `{}`: {what}, the plan is damaged", step.name);
            Err(RunError::needs_rebuild(why))
        }
    }
}

fn mismatch(step: &Step, problem: &Problem) -> Option<String> {
    let region = &problem.region;
    let inputs: Vec<ValueType> = problem.inputs.iter().map(|o| type_of(o.dtype, &o.dims)).collect();
    let constant = |tensor: &planish_tensor::Tensor| {
        (type_of(tensor.dtype(), tensor.shape()), Content::Tensor(tensor.clone()))
    };
    let constants: Vec<(ValueType, Content)> = region.constants.iter().map(constant).collect();
    let mut made: Vec<Vec<ValueType>> = Vec::with_capacity(region.nodes.len());
    for node in &region.nodes {
        let operand = |reference: &Option<Ref>| match (*reference)? {
            // An input that the step leaves out is none.
            Ref::Input(idx) => {
                step.inputs.get(idx as usize).copied().flatten()?;
                Some(InferInput { ty: inputs.get(idx as usize)?, content: None })
            }
            Ref::Constant(idx) => {
                let (ty, content) = constants.get(idx as usize)?;
                Some(InferInput { ty, content: Some(content) })
            }
            Ref::Node { node, output } => {
                Some(InferInput { ty: made.get(node as usize)?.get(output as usize)?, content: None })
            }
        };
        let operands: Vec<Option<InferInput<'_>>> = node.inputs.iter().map(operand).collect();
        let mut fresh = |_: &str| Dim::UNKNOWN;
        let mut cx = Inference::new(node.op.name(), &operands, node.n_outputs as usize, &mut fresh);
        match infer(&node.op, &mut cx) {
            Ok(outputs) => made.push(outputs.into_iter().map(|output| output.ty).collect()),
            Err(error) => return Some(format!("its inputs do not fit: {error}")),
        }
    }
    for (reference, operand) in region.outputs.iter().zip(&problem.outputs) {
        let ty = match *reference {
            Ref::Input(idx) => inputs.get(idx as usize),
            Ref::Constant(idx) => constants.get(idx as usize).map(|(ty, _)| ty),
            Ref::Node { node, output } => made.get(node as usize).and_then(|list| list.get(output as usize)),
        };
        let Some(ty) = ty else { return Some(format!("nothing makes its output {reference:?}")) };
        let Some(tensor) = ty.as_tensor() else { return Some(format!("it makes {ty}")) };
        // What only contents decide, kernels take from the operand.
        let dims = tensor.shape.as_ref().and_then(Shape::as_fixed);
        let same = dims.is_none_or(|dims| {
            // One element is one element, whatever its rank.
            let is_one = |dims: &[usize]| dims.iter().all(|&size| size == 1);
            dims == operand.dims || (is_one(&dims) && is_one(&operand.dims))
        });
        if tensor.dtype != operand.dtype || !same {
            return Some(format!("it makes {ty}, {}{:?} is to hold it", operand.dtype, operand.dims));
        }
    }
    None
}

/// An operand of a step, in the memory of the value that owns it.
pub(crate) struct Touched<'a> {
    pub(crate) root: u32,
    pub(crate) within: Within<'a>,
}

/// Pairs of operands that a step may have; a Split into thousands of parts has some millions.
const MOST_PAIRS: usize = 1 << 24;

/// Whether the outputs of a step lie apart from each other and from its inputs. At the same place an output may lie
/// upon an input that `in_place` names; kernels read what they have not written yet, and check before they use.
pub(crate) fn check_apart<'a>(
    step: &Step,
    touched: impl Fn(&Option<u32>) -> Option<Touched<'a>>,
    in_place: impl FnOnce() -> Result<Vec<(usize, usize)>, RunError>,
) -> Result<(), RunError> {
    let damaged = |what: String| {
        let why = format!("step `{}`: {what}, the plan is damaged", step.name);
        Err(RunError::needs_rebuild(why))
    };
    let mut allowed = None;
    let mut in_place = Some(in_place);
    let mut n_pairs = 0;
    for (output, value) in step.outputs.iter().enumerate() {
        let Some(written) = touched(value) else { continue };
        let inputs = step.inputs.iter().enumerate().map(|(input, value)| (Some(input), value));
        let before = step.outputs[..output].iter().map(|value| (None, value));
        for (input, other) in inputs.chain(before) {
            n_pairs += 1;
            if n_pairs > MOST_PAIRS {
                return damaged("more operands than any step has".to_string());
            }
            let Some(other) = touched(other).filter(|other| other.root == written.root) else { continue };
            if !written.within.shares_bytes(&other.within) {
                continue;
            }
            let Some(input) = input else {
                return damaged(format!("output {output} overlaps another output"));
            };
            if let Some(in_place) = in_place.take() {
                allowed = Some(in_place()?);
            }
            let may = allowed.as_ref().is_some_and(|allowed| allowed.contains(&(output, input)));
            if !may || !written.within.is_same_place(&other.within) {
                return damaged(format!(
                    "output {output} overlaps input {input}, which its tactic still reads"
                ));
            }
        }
    }
    Ok(())
}

fn type_of(dtype: DType, dims: &[usize]) -> ValueType {
    let shape: Shape = dims.iter().map(|&dim| Dim::from(dim)).collect();
    ValueType::Tensor(TensorType::new(dtype, shape))
}
