//! `PlanishEngine`: a plan on a device.

use std::ffi::c_char;
use std::sync::Arc;

use planish::{CodeFrom, DEFAULT_MAX_TRIPS, Device, Engine, EngineOptions, Error, ErrorKind, Limits, Plan};

use crate::given::{Crossing, end, give, optional_text, path, read, shared, text, wrong};
use crate::plan::PlanishPlan;
use crate::ports::{PlanishTensorInfo, Ports};
use crate::status::{PlanishStatus, answered, guarded};
use crate::steps::{PlanishStep, Steps};

/// How an engine is opened. All zero but `size` is what NULL stands for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanishEngineOptions {
    /// Set it to `sizeof(PlanishEngineOptions)`.
    pub size: usize,
    /// `auto` (as NULL), `cpu`, `cuda` or `cuda:1`.
    pub device: *const c_char,
    /// Bytes that a run may hold beside weights and inputs; 0 for no limit.
    pub max_bytes: u64,
    /// Trips of all loops of a run together; 0 for a hundred million.
    pub max_trips: u64,
    /// 1: weights on a GPU lie in managed memory, which the driver may move to the host and back.
    pub managed_weights: i32,
    /// 1: the machine code of a plan for a GPU is left alone, and its kernels are compiled here. A plan for a GPU is a
    /// program: open only those that you trust.
    pub compile_here: i32,
    /// Bytes of a GPU's memory for weights; the rest stays in pinned host memory and is brought to the GPU ahead of its
    /// use in every run. 0 for no limit.
    pub weight_budget: u64,
}

// SAFETY: its size first, then numbers and a pointer.
unsafe impl Crossing for PlanishEngineOptions {
    const NAME: &'static str = "PlanishEngineOptions";
    const FIRST_SIZE: usize = std::mem::offset_of!(PlanishEngineOptions, weight_budget);
}

/// What all contexts of an engine share.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    pub(crate) ports: Ports,
    pub(crate) steps: Steps,
    pub(crate) is_on_gpu: bool,
}

/// A plan that is ready to run. It does not change: any number of threads may use it at once.
#[derive(Debug)]
pub struct PlanishEngine {
    pub(crate) opened: Arc<Opened>,
}

/// Reads the name of a device.
pub(crate) fn device_named(name: Option<&str>) -> Result<Device, Error> {
    let name = name.unwrap_or("auto");
    name.parse().map_err(|why: String| Error::new(ErrorKind::BadOption, why))
}

impl PlanishEngine {
    /// # Safety
    /// The texts of the options are valid.
    unsafe fn new(plan: Plan, options: &PlanishEngineOptions) -> Result<PlanishEngine, Error> {
        // SAFETY: the caller's promise.
        let device = device_named(unsafe { optional_text("the device", options.device)? })?;
        let mut how =
            EngineOptions { managed_weights: options.managed_weights != 0, ..EngineOptions::default() };
        if options.weight_budget != 0 {
            how.weight_budget = Some(usize::try_from(options.weight_budget).unwrap_or(usize::MAX));
        }
        if options.compile_here != 0 {
            how.code = CodeFrom::CompileHere;
        }
        let or = |given: u64, default: u64| if given == 0 { default } else { given };
        let limits = Limits {
            trips: or(options.max_trips, DEFAULT_MAX_TRIPS),
            bytes: or(options.max_bytes, u64::MAX),
            cancel: None,
        };
        let engine = Engine::with_options(plan, device, how)?.limited(limits);
        let ports = Ports::of_engine(&engine.inputs(), &engine.outputs());
        let steps = Steps::new(engine.record());
        let is_on_gpu = engine.record().header.targets.iter().any(|target| target.backend != "cpu");
        Ok(PlanishEngine { opened: Arc::new(Opened { engine, ports, steps, is_on_gpu }) })
    }
}

/// Puts a plan on a device. A plan of another machine, or of another version of the library, is
/// `PLANISH_STATUS_NEEDS_REBUILD`: nothing is built unasked.
///
/// # Safety
/// `plan` is one; `options` is NULL or has as many bytes as its `size` says; `*engine` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_new(
    plan: *const PlanishPlan,
    options: *const PlanishEngineOptions,
    engine: *mut *mut PlanishEngine,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let (plan, options) = (shared("the plan", plan), read(options));
        give(engine, || PlanishEngine::new(plan?.plan.clone(), &options?))
    })
}

/// Opens a plan's file and puts it on a device.
///
/// # Safety
/// `path` ends in a NUL; the rest as for `planish_engine_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_open(
    path: *const c_char,
    options: *const PlanishEngineOptions,
    engine: *mut *mut PlanishEngine,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let (path, options) = (self::path(path), read(options));
        give(engine, || PlanishEngine::new(Plan::open(path?)?, &options?))
    })
}

/// # Safety
/// `engine` is one, or NULL.
pub(crate) unsafe fn opened<'a>(engine: *const PlanishEngine) -> Result<&'a Opened, Error> {
    // SAFETY: the caller's promise.
    Ok(&*unsafe { shared("the engine", engine)? }.opened)
}

/// How many inputs there are: those of the tensors 0 and on.
///
/// # Safety
/// `engine` is one, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_input_count(engine: *const PlanishEngine) -> usize {
    // SAFETY: the caller's promise.
    answered(0, || unsafe { Ok(opened(engine)?.ports.n_inputs) })
}

/// How many inputs and outputs there are.
///
/// # Safety
/// `engine` is one, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_tensor_count(engine: *const PlanishEngine) -> usize {
    // SAFETY: the caller's promise.
    answered(0, || unsafe { Ok(opened(engine)?.ports.all.len()) })
}

/// What an input or an output is, by its number: inputs come first.
///
/// # Safety
/// `engine` is one; `info` has as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_tensor(
    engine: *const PlanishEngine,
    index: usize,
    info: *mut PlanishTensorInfo,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { opened(engine)?.ports.tell(index, info) })
}

/// The number of an input or an output, -1 if there is none of this name. An output that has the name of an input is
/// found by its number alone.
///
/// # Safety
/// `engine` is one; `name` ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_find(engine: *const PlanishEngine, name: *const c_char) -> i64 {
    // SAFETY: the caller's promise.
    answered(-1, || unsafe {
        Ok(opened(engine)?.ports.find(text("the name", name)?).map_or(-1, |index| index as i64))
    })
}

/// Whether the engine runs on a GPU, and so takes addresses in its memory: 1 or 0.
///
/// # Safety
/// `engine` is one, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_is_on_gpu(engine: *const PlanishEngine) -> i32 {
    // SAFETY: the caller's promise.
    answered(0, || unsafe { Ok(i32::from(opened(engine)?.is_on_gpu)) })
}

/// Bytes of all weights, in the form that kernels read.
///
/// # Safety
/// `engine` is one, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_weight_bytes(engine: *const PlanishEngine) -> usize {
    // SAFETY: the caller's promise.
    answered(0, || unsafe { Ok(opened(engine)?.engine.weight_bytes()) })
}

/// How many steps a run has.
///
/// # Safety
/// `engine` is one, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_step_count(engine: *const PlanishEngine) -> usize {
    // SAFETY: the caller's promise.
    answered(0, || unsafe { Ok(opened(engine)?.steps.len()) })
}

/// What a step is, by its number.
///
/// # Safety
/// `engine` is one; `step` has as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_step(
    engine: *const PlanishEngine,
    index: usize,
    step: *mut PlanishStep,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { opened(engine)?.steps.tell(index, step) })
}

/// Gives an engine the weights of a plan that `planish_plan_refit` made of its own, for all its contexts: a run has the
/// weights that it began with, runs that begin after this returned have the new ones. Any thread may call it at any time.
/// The engine holds the weights that it was opened with until it ends.
///
/// # Safety
/// `engine` and `plan` are such.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_refit(
    engine: *const PlanishEngine,
    plan: *const PlanishPlan,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let (opened, plan) = (opened(engine)?, shared("the plan", plan)?);
        opened.engine.clone().refit(plan.plan.clone())
    })
}

/// Ends an engine. Contexts of it live on.
///
/// # Safety
/// `engine` is one that nobody uses any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_engine_free(engine: *mut PlanishEngine) {
    // SAFETY: the caller's promise.
    unsafe { end(engine) }
}

/// What a device is, in words; for `auto` (as NULL), the one that it stands for here.
///
/// # Safety
/// `device` is NULL or ends in a NUL; `text` has room for `capacity` bytes, the last of which becomes a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_describe_device(
    device: *const c_char,
    text: *mut c_char,
    capacity: usize,
) -> PlanishStatus {
    guarded(|| {
        // SAFETY: the caller's promise.
        let device = device_named(unsafe { optional_text("the device", device)? })?;
        let words = device.describe()?.replace('\0', "?");
        if text.is_null() || capacity <= words.len() {
            return wrong(format!(
                "the device's text has {} bytes and a NUL, {capacity} have room",
                words.len()
            ));
        }
        // SAFETY: there is room for the words and a NUL.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr(), text.cast(), words.len());
            text.add(words.len()).write(0);
        }
        Ok(())
    })
}
