//! Operators that a function of Python's computes, to try an idea before it is written in C, Rust or CUDA: a declaration as
//! every plugin has one, and a function over arrays. Inputs and outputs are copied.

use std::sync::{Arc, Mutex, PoisonError};

use planish::op::Attribute;
use planish::plugin::{Operator, Place, Plugin, Prepared, Run, Task};
use planish::{Bytes, ErrorKind, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::borrowed::{Borrowed, Framework};
use crate::errors::wrong;
use crate::memory::copy_to_python;

/// What computes one declared operator.
struct Functions {
    compute: Py<PyAny>,
    reference: Option<Py<PyAny>>,
}

/// Functions by their declarations: to declare the same again, as a notebook's cell does that is run twice, brings the new
/// function.
type Known = (String, Arc<Mutex<Functions>>);
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

struct Function {
    functions: Arc<Mutex<Functions>>,
    has_reference: bool,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a function of Python's")
    }
}

#[derive(Debug)]
struct Ready {
    functions: Function,
    task: Task,
}

impl Function {
    fn take(&self, py: Python<'_>, reference: bool) -> Option<Py<PyAny>> {
        // Nothing of Python's runs while it is held.
        let functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        match reference {
            true => functions.reference.as_ref().map(|function| function.clone_ref(py)),
            false => Some(functions.compute.clone_ref(py)),
        }
    }

    /// Calls a function on copies of the inputs; results are of the types and sizes that are declared.
    fn call(&self, task: &Task, inputs: &[Option<&Tensor>], reference: bool) -> Result<Vec<Tensor>, String> {
        Python::attach(|py| {
            let function = self.take(py, reference).ok_or("it has no reference")?;
            called(py, &function, task, inputs).map_err(|error| error.to_string())
        })
    }
}

fn called(
    py: Python<'_>,
    function: &Py<PyAny>,
    task: &Task,
    inputs: &[Option<&Tensor>],
) -> PyResult<Vec<Tensor>> {
    let mut arguments = Vec::new();
    for input in inputs {
        arguments.push(match input {
            Some(tensor) => copy_to_python(py, tensor, Framework::Numpy)?,
            None => py.None().into_bound(py),
        });
    }
    let named = PyDict::new(py);
    for (name, value) in &task.attributes {
        match value {
            Attribute::Int(value) => named.set_item(name, value)?,
            Attribute::Float(value) => named.set_item(name, value)?,
            Attribute::Ints(values) => named.set_item(name, values)?,
            Attribute::Floats(values) => named.set_item(name, values)?,
            Attribute::Str(value) => named.set_item(name, value)?,
            _ => {
                return Err(wrong(
                    py,
                    ErrorKind::Unsupported,
                    format!("attribute `{name}` has no form in Python"),
                ));
            }
        }
    }
    let made = function.bind(py).call(PyTuple::new(py, arguments)?, Some(&named))?;
    let made: Vec<Bound<'_, PyAny>> = match made.cast::<PyTuple>() {
        Ok(several) => several.iter().collect(),
        Err(_) => vec![made],
    };
    if made.len() != task.outputs.len() {
        let message =
            format!("the function gives {} arrays, {} are declared", made.len(), task.outputs.len());
        return Err(wrong(py, ErrorKind::WrongShape, message));
    }
    let mut tensors = Vec::new();
    for (idx, (array, wanted)) in made.iter().zip(&task.outputs).enumerate() {
        let tensor = Borrowed::of(array, &format!("output {idx}"), Some(wanted.dtype))?.to_tensor(py)?;
        if tensor.dtype() != wanted.dtype || tensor.shape() != wanted.dims {
            let message = format!(
                "output {idx} of the function is {} of sizes {:?}, {} of sizes {:?} is declared",
                tensor.dtype(),
                tensor.shape(),
                wanted.dtype,
                wanted.dims
            );
            return Err(wrong(py, ErrorKind::WrongShape, message));
        }
        tensors.push(tensor);
    }
    Ok(tensors)
}

impl Operator for Function {
    fn prepare(&self, task: &Task) -> Result<Box<dyn Prepared>, String> {
        if task.place != Place::Cpu {
            return Err("a function of Python's runs on the CPU".to_string());
        }
        let functions = Function { functions: self.functions.clone(), has_reference: self.has_reference };
        Ok(Box::new(Ready { functions, task: task.clone() }))
    }

    fn reference(&self, task: &Task, inputs: &[Option<&Tensor>]) -> Option<Result<Vec<Tensor>, String>> {
        self.has_reference.then(|| self.call(task, inputs, true))
    }

    fn has_reference(&self) -> bool {
        self.has_reference
    }
}

impl Prepared for Ready {
    unsafe fn run(&self, run: &Run<'_>) -> Result<(), String> {
        let mut inputs = Vec::new();
        for (operand, &start) in self.task.inputs.iter().zip(run.inputs) {
            let Some(operand) = operand else {
                inputs.push(None);
                continue;
            };
            let n_bytes = operand.dtype.bytes_of(&operand.dims).ok_or("an operand larger than memory")?;
            let bytes = match n_bytes {
                0 => Bytes::aligned(&[]),
                // SAFETY: the runtime grants what the operand spans, which is dense: the plugin declares no strides.
                _ => Bytes::aligned(unsafe { std::slice::from_raw_parts(start, n_bytes) }),
            };
            let tensor = Tensor::from_bytes(operand.dtype, &operand.dims, bytes);
            inputs.push(Some(tensor.map_err(|error| error.to_string())?));
        }
        let given: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_ref).collect();
        let made = self.functions.call(&self.task, &given, false)?;
        for (tensor, &to) in made.iter().zip(run.outputs) {
            let bytes = tensor.bytes();
            if !bytes.is_empty() {
                // SAFETY: `called` compared sizes and type with the operand, which the runtime grants to be written; the
                // tensor owns memory of its own.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            }
        }
        if let (Some(finish), Some(first)) = (run.finish, self.task.outputs.first()) {
            finish(0, first.len(), 0);
        }
        Ok(())
    }
}

/// Registers a function as the operator that a declaration says, and gives its name. `planish.plugin` is the decorator.
#[pyfunction]
#[pyo3(signature = (declaration, function, reference=None))]
pub(crate) fn register_plugin(
    py: Python<'_>,
    declaration: &str,
    function: Py<PyAny>,
    reference: Option<Py<PyAny>>,
) -> PyResult<String> {
    let bad = |message: String| wrong(py, ErrorKind::BadOption, message);
    let has_reference = reference.is_some();
    let functions = Functions { compute: function, reference };
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let again = known.iter().find(|(text, _)| text == declaration).map(|(_, functions)| functions.clone());
    drop(known);
    let shared = match again {
        Some(shared) => {
            let former =
                std::mem::replace(&mut *shared.lock().unwrap_or_else(PoisonError::into_inner), functions);
            if former.reference.is_some() != has_reference {
                return Err(bad("the operator was declared before, and differs in whether it has a reference of Python's; raise its `version:`".into()));
            }
            shared
        }
        None => Arc::new(Mutex::new(functions)),
    };
    let operator = Function { functions: shared.clone(), has_reference };
    let plugin = Plugin::new(declaration, operator).map_err(|error| bad(error.to_string()))?;
    let declared = plugin.declaration();
    if declared.strided || declared.channels_last || !declared.in_place.is_empty() {
        return Err(bad(format!(
            "plugin {}: a function takes dense operands that lie apart",
            plugin.identity()
        )));
    }
    let plugin = plugin.register().map_err(|error| bad(error.to_string()))?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.iter().any(|(text, _)| text == declaration) {
        known.push((declaration.to_string(), shared));
    }
    Ok(plugin.identity().to_string())
}
