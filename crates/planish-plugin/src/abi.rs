//! The C interface of plugins: the structures of `planish_plugin.h`, and an [`Operator`] over the functions of one.
//!
//! Each structure begins with its size. A field is only ever added at an end, and read only where the size that was given
//! reaches: so a library of the first header runs with every later Planish, and a later one with the first.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use planish_kernel::Operand;
use planish_op::Attribute;
use planish_tensor::{Bytes, DType, Tensor};

use crate::plugin::{Operator, Place, Prepared, Run, Task, Threads};

/// The version of the interface that this Planish speaks; libraries of another first number are refused.
pub const ABI: u32 = 1;

/// `planish_plugin_operand`.
#[repr(C)]
struct COperand {
    dtype: i32,
    /// -1 where an optional input is left out.
    rank: i32,
    dims: *const i64,
    strides: *const i64,
}

/// `planish_plugin_problem`.
#[repr(C)]
pub(crate) struct CProblem {
    size: usize,
    place: i32,
    threads: i32,
    n_inputs: u32,
    n_outputs: u32,
    inputs: *const COperand,
    outputs: *const COperand,
    tactic: *const c_char,
    number: extern "C" fn(*const CProblem, *const c_char, i64) -> i64,
    float_attribute: extern "C" fn(*const CProblem, *const c_char, f64) -> f64,
    string_attribute: extern "C" fn(*const CProblem, *const c_char) -> *const c_char,
    fail: extern "C" fn(*const CProblem, *const c_char) -> c_int,
    host: *const Described,
}

/// `planish_plugin_call`.
#[repr(C)]
pub(crate) struct CCall {
    size: usize,
    problem: *const CProblem,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
    workspace: *mut c_void,
    workspace_bytes: usize,
    stream: *mut c_void,
    parallel_for: extern "C" fn(*const CCall, usize, extern "C" fn(*mut c_void, usize, usize), *mut c_void),
    finish: Option<extern "C" fn(*const CCall, usize, usize, usize)>,
    host: *const c_void,
}

/// `planish_plugin`, as far as the first header has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CPlugin {
    size: usize,
    abi: u32,
    _reserved: u32,
    pub(crate) declaration: *const c_char,
    pub(crate) prepare: Option<unsafe extern "C" fn(*const CProblem, *mut *mut c_void, *mut usize) -> c_int>,
    pub(crate) run: Option<unsafe extern "C" fn(*mut c_void, *const CCall) -> c_int>,
    pub(crate) release: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(crate) reference: Option<unsafe extern "C" fn(*const CCall) -> c_int>,
    pub(crate) cuda: *const c_char,
}

// SAFETY: pointers into a library that stays loaded; its functions may be called from any thread, as the header asks.
unsafe impl Send for CPlugin {}
// SAFETY: as above.
unsafe impl Sync for CPlugin {}

impl CPlugin {
    /// Copies what a library gives, as far as its size reaches.
    ///
    /// # Safety
    /// `given` must point to a structure of the size that its first field says, whose strings and functions live as long as
    /// the process.
    pub(crate) unsafe fn read(given: *const CPlugin) -> Result<CPlugin, String> {
        // SAFETY: the first two fields are in every version.
        let (size, abi) = unsafe { ((*given).size, (*given).abi) };
        if abi != ABI {
            return Err(format!(
                "it speaks version {abi} of the plugin interface, this Planish version {ABI}"
            ));
        }
        if size < size_of::<CPlugin>() {
            return Err(format!(
                "its structure has {size} bytes, the first version has {}",
                size_of::<CPlugin>()
            ));
        }
        // SAFETY: it is at least as long.
        Ok(unsafe { *given })
    }

    /// A string of the library.
    ///
    /// # Safety
    /// As [`CPlugin::read`].
    pub(crate) unsafe fn text(at: *const c_char, what: &str) -> Result<String, String> {
        if at.is_null() {
            return Err(format!("it has no {what}"));
        }
        // SAFETY: the library promises a string that ends.
        let text = unsafe { CStr::from_ptr(at) }.to_str();
        text.map(str::to_string).map_err(|_| format!("its {what} is not UTF-8"))
    }
}

/// The number of an element type in the interface: ONNX's.
fn number_of(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
        _ => 0,
    }
}

/// A task in the memory that C is shown.
#[derive(Debug)]
struct Described {
    task: Task,
    tactic: CString,
    strings: Vec<(String, CString)>,
    /// Sizes and strides, one list for each operand.
    numbers: Vec<Vec<i64>>,
}

thread_local! {
    /// What a plugin said of its failure, on this thread.
    static FAILURE: RefCell<String> = const { RefCell::new(String::new()) };
}

fn failure(code: c_int) -> String {
    let said = FAILURE.with(|failure| std::mem::take(&mut *failure.borrow_mut()));
    if said.is_empty() { format!("it failed with code {code}") } else { said }
}

impl Described {
    fn new(task: &Task) -> Described {
        let empty = || CString::from(c"");
        let text = |text: &str| CString::new(text).unwrap_or_else(|_| empty());
        let string = |(name, value): &(String, Attribute)| match value {
            Attribute::Str(value) => Some((name.clone(), text(value))),
            _ => None,
        };
        let operands = task.inputs.iter().map(Option::as_ref).chain(task.outputs.iter().map(Some));
        let list = |operand: Option<&Operand>| {
            let operand = operand.map_or(&[][..], |operand| std::slice::from_ref(operand));
            let all = operand.iter().flat_map(|operand| operand.dims.iter().chain(&operand.strides));
            all.map(|number| *number as i64).collect()
        };
        Described {
            tactic: text(&task.tactic),
            strings: task.attributes.iter().filter_map(string).collect(),
            numbers: operands.map(list).collect(),
            task: task.clone(),
        }
    }

    /// Calls with the problem as C sees it.
    fn with<R>(&self, call: impl FnOnce(*const CProblem) -> R) -> R {
        let Task { inputs, outputs, place, threads, .. } = &self.task;
        let operands = inputs.iter().map(Option::as_ref).chain(outputs.iter().map(Some));
        let all: Vec<COperand> = operands
            .zip(&self.numbers)
            .map(|(operand, numbers)| match operand {
                None => COperand { dtype: 0, rank: -1, dims: ptr::null(), strides: ptr::null() },
                Some(operand) => COperand {
                    dtype: number_of(operand.dtype),
                    rank: operand.rank() as i32,
                    dims: numbers.as_ptr(),
                    strides: numbers[operand.rank()..].as_ptr(),
                },
            })
            .collect();
        let problem = CProblem {
            size: size_of::<CProblem>(),
            place: match place {
                Place::Cpu => 0,
                Place::Cuda => 1,
            },
            threads: *threads as i32,
            n_inputs: inputs.len() as u32,
            n_outputs: outputs.len() as u32,
            inputs: all.as_ptr(),
            outputs: all[inputs.len()..].as_ptr(),
            tactic: self.tactic.as_ptr(),
            number,
            float_attribute,
            string_attribute,
            fail,
            host: self,
        };
        call(&problem)
    }
}

/// A name that C gave.
///
/// # Safety
/// It must be null or a string that ends.
unsafe fn name_of<'a>(name: *const c_char) -> &'a str {
    // SAFETY: the caller grants it.
    if name.is_null() { "" } else { unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("") }
}

extern "C" fn number(problem: *const CProblem, name: *const c_char, otherwise: i64) -> i64 {
    // SAFETY: C hands back the problem that it was given, with a string.
    let (described, name) = unsafe { (&*(*problem).host, name_of(name)) };
    described.task.number(name).unwrap_or(otherwise)
}

extern "C" fn float_attribute(problem: *const CProblem, name: *const c_char, otherwise: f64) -> f64 {
    // SAFETY: as above.
    let (described, name) = unsafe { (&*(*problem).host, name_of(name)) };
    match described.task.attribute(name) {
        Some(Attribute::Float(value)) => f64::from(*value),
        Some(Attribute::Int(value)) => *value as f64,
        _ => otherwise,
    }
}

extern "C" fn string_attribute(problem: *const CProblem, name: *const c_char) -> *const c_char {
    // SAFETY: as above.
    let (described, name) = unsafe { (&*(*problem).host, name_of(name)) };
    let found = described.strings.iter().find(|(known, _)| known == name);
    found.map_or(ptr::null(), |(_, value)| value.as_ptr())
}

extern "C" fn fail(_problem: *const CProblem, why: *const c_char) -> c_int {
    // SAFETY: C gives a string or null.
    let why = unsafe { name_of(why) }.to_string();
    FAILURE.with(|failure| *failure.borrow_mut() = why);
    1
}

/// The functions of a library as an operator.
#[derive(Debug)]
pub(crate) struct COperator(pub(crate) CPlugin);

impl Operator for COperator {
    fn prepare(&self, task: &Task) -> Result<Box<dyn Prepared>, String> {
        let plugin = self.0;
        if plugin.run.is_none() {
            return Err("it has no `run`".to_string());
        }
        let described = Box::new(Described::new(task));
        let (mut state, mut workspace) = (ptr::null_mut(), 0);
        if let Some(prepare) = plugin.prepare {
            // SAFETY: the library's function, with what the header says that it gets.
            let code = described.with(|problem| unsafe { prepare(problem, &mut state, &mut workspace) });
            if code != 0 {
                return Err(failure(code));
            }
        }
        Ok(Box::new(CPrepared { plugin, described, state, workspace }))
    }

    fn has_reference(&self) -> bool {
        self.0.reference.is_some()
    }

    fn reference(&self, task: &Task, inputs: &[Option<&Tensor>]) -> Option<Result<Vec<Tensor>, String>> {
        let reference = self.0.reference?;
        let described = Described::new(task);
        let from: Vec<*const u8> =
            inputs.iter().map(|input| input.map_or(ptr::null(), |tensor| tensor.bytes().as_ptr())).collect();
        let mut memory: Vec<Vec<u8>> =
            task.outputs.iter().map(|output| vec![0; output.span_bytes()]).collect();
        let to: Vec<*mut u8> = memory.iter_mut().map(|memory| memory.as_mut_ptr()).collect();
        let run = Run {
            inputs: &from,
            outputs: &to,
            workspace: ptr::null_mut(),
            workspace_bytes: 0,
            stream: ptr::null_mut(),
            threads: &Alone,
            finish: None,
        };
        // SAFETY: dense tensors, and memory of the outputs' sizes.
        let code = with_call(&described, &run, |call| unsafe { reference(call) });
        if code != 0 {
            return Some(Err(failure(code)));
        }
        let tensor = |(output, memory): (&Operand, Vec<u8>)| {
            Tensor::from_bytes(output.dtype, &output.dims, Bytes::from_vec(memory))
                .map_err(|error| error.to_string())
        };
        Some(task.outputs.iter().zip(memory).map(tensor).collect())
    }
}

/// The calling thread alone.
#[derive(Debug)]
struct Alone;

impl Threads for Alone {
    fn for_each(&self, n_tasks: usize, work: &(dyn Fn(usize, usize) + Sync)) {
        (0..n_tasks).for_each(|idx| work(idx, 0));
    }
}

#[derive(Debug)]
struct CPrepared {
    plugin: CPlugin,
    described: Box<Described>,
    state: *mut c_void,
    workspace: usize,
}

// SAFETY: the header asks libraries for states that several threads may run at once.
unsafe impl Send for CPrepared {}
// SAFETY: as above.
unsafe impl Sync for CPrepared {}

impl Drop for CPrepared {
    fn drop(&mut self) {
        if let Some(release) = self.plugin.release.filter(|_| !self.state.is_null()) {
            // SAFETY: the state that `prepare` made, which nobody runs any more.
            unsafe { release(self.state) };
        }
    }
}

impl Prepared for CPrepared {
    fn workspace_bytes(&self) -> usize {
        self.workspace
    }

    unsafe fn run(&self, run: &Run<'_>) -> Result<(), String> {
        let Some(code) = self.plugin.run else { return Err("it has no `run`".to_string()) };
        // SAFETY: the caller grants the operands; the state is what `prepare` made for this task.
        match with_call(&self.described, run, |call| unsafe { code(self.state, call) }) {
            0 => Ok(()),
            code => Err(failure(code)),
        }
    }
}

/// Calls with a run as C sees it.
fn with_call<R>(described: &Described, run: &Run<'_>, call: impl FnOnce(*const CCall) -> R) -> R {
    described.with(|problem| {
        let given = CCall {
            size: size_of::<CCall>(),
            problem,
            inputs: run.inputs.as_ptr().cast(),
            outputs: run.outputs.as_ptr().cast(),
            workspace: run.workspace.cast(),
            workspace_bytes: run.workspace_bytes,
            stream: run.stream,
            parallel_for,
            finish: run.finish.map(|_| finish as extern "C" fn(*const CCall, usize, usize, usize)),
            host: ptr::from_ref(run).cast(),
        };
        call(&given)
    })
}

/// A pointer that C vouches for on every thread.
struct User(*mut c_void);
// SAFETY: see the type.
unsafe impl Sync for User {}

impl User {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

extern "C" fn parallel_for(
    call: *const CCall,
    n_tasks: usize,
    task: extern "C" fn(*mut c_void, usize, usize),
    user: *mut c_void,
) {
    // SAFETY: C hands back the call that it was given, while it runs.
    let run = unsafe { &*(*call).host.cast::<Run<'_>>() };
    let user = User(user);
    // Nothing unwinds into C: what panics here is a mistake of ours, in a thread of the pool.
    if catch_unwind(AssertUnwindSafe(|| {
        run.threads.for_each(n_tasks, &|idx, slot| task(user.get(), idx, slot))
    }))
    .is_err()
    {
        std::process::abort();
    }
}

extern "C" fn finish(call: *const CCall, first: usize, n: usize, slot: usize) {
    // SAFETY: as above.
    let run = unsafe { &*(*call).host.cast::<Run<'_>>() };
    if let Some(finish) = run.finish
        && catch_unwind(AssertUnwindSafe(|| finish(first, n, slot))).is_err()
    {
        std::process::abort();
    }
}
