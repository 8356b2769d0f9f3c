//! One node on host values by the kernels of the other families, prepared for the sizes that the values turn out to have.

mod boxes;
mod search;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use planish_kernel::{
    KernelError, KernelErrorKind, Layout, Numeric, Operand, Problem, Ref, Region, RegionNode,
};
use planish_op::infer::{Content, InferInput, Inference, Inferred};
use planish_op::{Class, Op, TensorType, Value, ValueType, infer};
use planish_tensor::{Bytes, Dim, Shape, Tensor, memory};

use crate::evaluate::blamed;
use crate::isa::Isa;
use crate::plainly::Plainly;
use crate::team::Team;

/// Integers of so many elements may be sizes, axes or pads, which operators want to know before they run.
const MOST_PARAMETERS: usize = 64;
/// Below so many elements what only moves or counts is quicker done than prepared.
const FEW_ELEMENTS: usize = 512;
/// Kernels that a thread keeps ready.
const MOST_KEPT: usize = 256;

thread_local! {
    static KEPT: RefCell<HashMap<String, Rc<Plainly>>> = RefCell::new(HashMap::new());
}

/// The outputs of a node; `None` where the reference is to compute them.
pub(crate) fn by_kernel(
    isa: Isa,
    node: &RegionNode,
    operands: &[Option<&Value>],
    max_bytes: usize,
    threads: usize,
) -> Result<Option<Vec<Value>>, KernelError> {
    let tensors: Option<Vec<Option<&Tensor>>> = operands
        .iter()
        .map(|value| match value {
            None => Some(None),
            Some(value) => value.as_tensor().map(Some),
        })
        .collect();
    let Some(tensors) = tensors else { return Ok(None) };
    if let Some(outputs) = search::outputs(isa, &node.op, &tensors, node.n_outputs as usize, max_bytes)? {
        return Ok(Some(outputs));
    }
    let n_elements: usize = tensors.iter().flatten().map(|tensor| tensor.len()).sum();
    if shares_memory(&node.op) || (n_elements <= FEW_ELEMENTS && is_light(&node.op)) {
        return Ok(None);
    }
    let Some(problem) = problem(node, &tensors, threads) else { return Ok(None) };
    // Parameters of what only moves are part of the kernel: where a loop has others in every trip, one is prepared for each.
    let n_made: usize = problem.outputs.iter().map(Operand::len).sum();
    if n_made <= FEW_ELEMENTS && reads_what_it_makes(&node.op) {
        return Ok(None);
    }
    let bytes = problem.outputs.iter().map(Operand::span_bytes).fold(0, usize::saturating_add);
    if bytes > max_bytes || problem.outputs.iter().any(Operand::is_empty) {
        return Ok(None);
    }
    let key = format!("{isa} {}", problem.key());
    let kept = KEPT.with_borrow(|kept| kept.get(&key).cloned());
    let Some(kernel) = kept.or_else(|| Plainly::new(isa, &problem).map(Rc::new)) else { return Ok(None) };
    KEPT.with_borrow_mut(|kept| {
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(key, kernel.clone());
    });
    run(&kernel, node, &problem, &tensors, threads).map(Some)
}

/// What the reference makes without touching an element.
fn shares_memory(op: &Op) -> bool {
    matches!(
        op,
        Op::Identity(_)
            | Op::Reshape(_)
            | Op::Squeeze(_)
            | Op::Unsqueeze(_)
            | Op::Flatten(_)
            | Op::Shape(_)
            | Op::Size(_)
            | Op::BitCast(_)
    )
}

/// Operators that do little with an element.
fn is_light(op: &Op) -> bool {
    op.is_pointwise() || matches!(op.class(), Class::Movement | Class::Indexing | Class::Data | Class::Window)
}

/// Operators that read as many elements as they make, however large what they read from is.
fn reads_what_it_makes(op: &Op) -> bool {
    op.class() == Class::Movement || matches!(op, Op::Gather(_) | Op::GatherElements(_) | Op::GatherND(_))
}

/// Whether small operands say what is to be done. Those of other operators are data like the rest, and a kernel that holds one
/// of them as a constant serves no other: in a loop every trip has a new one.
fn has_parameters(op: &Op) -> bool {
    let is_data = match op {
        Op::Clip(_) => false,
        Op::Gather(_)
        | Op::GatherElements(_)
        | Op::GatherND(_)
        | Op::ScatterElements(_)
        | Op::ScatterND(_)
        | Op::Concat(_)
        | Op::MatMul(_)
        | Op::Gemm(_) => true,
        op => op.is_pointwise(),
    };
    !is_data
}

/// The node as a problem of plain operands; `None` where its sizes hang on more than small integers.
fn problem(node: &RegionNode, tensors: &[Option<&Tensor>], threads: usize) -> Option<Problem> {
    let has_parameters = has_parameters(&node.op);
    let is_parameter = |place: usize, tensor: &Tensor| {
        if !has_parameters {
            return false;
        }
        let small = tensor.len() <= 1 || (!tensor.dtype().is_float() && tensor.len() <= MOST_PARAMETERS);
        small || (matches!(node.op, Op::Resize(_)) && place > 0)
    };
    let types: Vec<Option<ValueType>> = tensors
        .iter()
        .map(|tensor| {
            tensor.map(|tensor| {
                let shape: Shape = tensor.shape().iter().map(|dim| Dim::from(*dim)).collect();
                ValueType::Tensor(TensorType::new(tensor.dtype(), shape))
            })
        })
        .collect();
    let contents: Vec<Option<Content>> = tensors
        .iter()
        .enumerate()
        .map(|(place, tensor)| {
            tensor.filter(|tensor| is_parameter(place, tensor)).map(|tensor| Content::Tensor(tensor.clone()))
        })
        .collect();
    let inputs: Vec<Option<InferInput<'_>>> = types
        .iter()
        .zip(&contents)
        .map(|(ty, content)| ty.as_ref().map(|ty| InferInput { ty, content: content.as_ref() }))
        .collect();
    let mut fresh = |_: &str| Dim::UNKNOWN;
    let mut cx = Inference::new(node.op.name(), &inputs, node.n_outputs as usize, &mut fresh);
    let made = infer(&node.op, &mut cx).ok()?;
    let output = |made: &Inferred| {
        let ty = made.ty.as_tensor()?;
        Some(Operand::dense(ty.dtype, &ty.shape.as_ref()?.as_fixed()?, Layout::Plain))
    };
    let outputs: Vec<Operand> = made.iter().map(output).collect::<Option<_>>()?;
    let mut region = Region { outputs: Vec::new(), ..Region::default() };
    let mut read = Vec::with_capacity(tensors.len());
    let mut operands = Vec::new();
    for (place, tensor) in tensors.iter().enumerate() {
        read.push(tensor.map(|tensor| match is_parameter(place, tensor) && place > 0 {
            true => {
                region.constants.push(tensor.clone());
                Ref::Constant(region.constants.len() as u32 - 1)
            }
            false => {
                let weight = matches!(node.op.class(), Class::Convolution | Class::Recurrent) && place > 0;
                let operand = Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
                operands.push(Operand { constant: weight, ..operand });
                Ref::Input(operands.len() as u32 - 1)
            }
        }));
    }
    region.n_inputs = operands.len() as u32;
    let made = |output: usize| Ref::Node { node: 0, output: output as u32 };
    region.outputs = (0..outputs.len()).map(made).collect();
    region.nodes = vec![RegionNode { inputs: read, ..node.clone() }];
    Some(Problem { region, inputs: operands, outputs, numeric: Numeric::F32, threads })
}

fn run(
    kernel: &Plainly,
    node: &RegionNode,
    problem: &Problem,
    tensors: &[Option<&Tensor>],
    threads: usize,
) -> Result<Vec<Value>, KernelError> {
    let out_of_memory =
        |error: memory::OutOfMemory| KernelError::new(KernelErrorKind::OutOfMemory, error.to_string());
    let mut inputs = vec![std::ptr::null(); problem.inputs.len()];
    // What lies in a mapped file may begin anywhere.
    let mut held = Vec::new();
    for (reference, tensor) in problem.region.nodes[0].inputs.iter().zip(tensors) {
        if let (Some(Ref::Input(idx)), Some(tensor)) = (reference, tensor) {
            let mut at = tensor.bytes().as_ptr();
            if !at.cast::<u64>().is_aligned() {
                let copy = Bytes::aligned(tensor.bytes());
                at = copy.as_ptr();
                held.push(copy);
            }
            inputs[*idx as usize] = at;
        }
    }
    let mut made: Vec<Vec<u8>> = Vec::with_capacity(problem.outputs.len());
    for output in &problem.outputs {
        made.push(memory::zeroed(output.span_bytes()).map_err(out_of_memory)?);
    }
    let outputs: Vec<*mut u8> = made.iter_mut().map(|bytes| bytes.as_mut_ptr()).collect();
    // SAFETY: the tensors and the vectors have as many bytes as the plain operands span.
    unsafe { kernel.run(&inputs, &outputs, &Team::new(threads)) }
        .map_err(|error| KernelError::new(error.kind().clone(), blamed(node, &error)))?;
    let value = |(bytes, operand): (Vec<u8>, &Operand)| {
        Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(bytes))
            .map(Value::Tensor)
            .map_err(|error| KernelError::new(KernelErrorKind::Failed, error.to_string()))
    };
    made.into_iter().zip(&problem.outputs).map(value).collect()
}
