//! `PlanishContext`: memory for runs of an engine, one caller at a time.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use planish::{ContextOptions, DEFAULT_STREAMS, Error, ErrorKind, Wait};

use crate::binding::{Bound, Place};
use crate::engine::PlanishEngine;
use crate::given::{Crossing, end, give, read, shared, sizes, text, write, wrong};
use crate::shapes::write_sizes;
use crate::status::{PlanishStatus, guarded, refuse};

/// How a context runs. All zero but `size` is what NULL stands for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanishContextOptions {
    /// Set it to `sizeof(PlanishContextOptions)`.
    pub size: usize,
    /// CPU threads of a run, the caller included; 0 for those that the plan was built for. Results do not depend on them.
    pub threads: u32,
    /// Streams of a GPU over which a run spreads; 0 for the usual ones.
    pub streams: u32,
    /// 1: launches on a GPU are not captured as a CUDA graph.
    pub launch_one_by_one: i32,
    /// 1: waits for a GPU without sleeping, at the price of a core.
    pub spin: i32,
}

// SAFETY: its size first, then numbers.
unsafe impl Crossing for PlanishContextOptions {
    const NAME: &'static str = "PlanishContextOptions";
    const FIRST_SIZE: usize = size_of::<PlanishContextOptions>();
}

/// A tensor that a run left. Set `size` to `sizeof(PlanishTensor)`; the library fills in the rest, which is valid until the
/// next call with this context.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanishTensor {
    /// Of this structure.
    pub size: usize,
    /// Its elements, in the context's memory or in that which it was bound to.
    pub data: *const c_void,
    pub n_bytes: usize,
    /// Its sizes.
    pub dims: *const i64,
    pub rank: usize,
}

// SAFETY: its size first; it is only given out.
unsafe impl Crossing for PlanishTensor {
    const NAME: &'static str = "PlanishTensor";
    const FIRST_SIZE: usize = size_of::<PlanishTensor>();
}

/// Memory for runs of an engine. For one thread at a time, whichever it is; a call while another thread is in one is
/// `PLANISH_STATUS_BUSY`. Any number of contexts of an engine run at once.
#[derive(Debug)]
pub struct PlanishContext {
    is_busy: AtomicBool,
    inner: UnsafeCell<Inner>,
}

/// What a context has, while nobody else has it.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) bound: Bound,
    /// The sizes that were told last.
    told: Vec<i64>,
}

/// Does something with a context that nobody else uses meanwhile.
///
/// # Safety
/// `context` is one, or NULL.
pub(crate) unsafe fn with(
    context: *const PlanishContext,
    work: impl FnOnce(&mut Inner) -> Result<(), Error>,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    let Some(context) = (unsafe { context.as_ref() }) else {
        return refuse(PlanishStatus::BadOption, "the context is NULL");
    };
    if context.is_busy.swap(true, Ordering::Acquire) {
        let message = "the context is in use by another call; give each thread a context of its own";
        return refuse(PlanishStatus::Busy, message);
    }
    // SAFETY: whoever set `is_busy` is alone.
    let status = guarded(|| work(unsafe { &mut *context.inner.get() }));
    context.is_busy.store(false, Ordering::Release);
    status
}

/// A context of an engine, which may be freed before it.
///
/// # Safety
/// `engine` is one; `options` is NULL or has as many bytes as its `size` says; `*context` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_new(
    engine: *const PlanishEngine,
    options: *const PlanishContextOptions,
    context: *mut *mut PlanishContext,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let (engine, options) = (shared("the engine", engine), read(options));
        give(context, || {
            let (opened, options) = (engine?.opened.clone(), options?);
            let or = |given: u32, usual: usize| if given == 0 { usual } else { given as usize };
            let threads = or(options.threads, opened.engine.record().header.threads.max(1) as usize);
            let mut how = ContextOptions::new(threads);
            how.streams = or(options.streams, DEFAULT_STREAMS);
            how.captured = options.launch_one_by_one == 0;
            how.wait = if options.spin != 0 { Wait::Spin } else { Wait::Block };
            let context = opened.engine.context_with(how)?;
            let inner = Inner { bound: Bound::new(opened, context), told: Vec::new() };
            Ok(PlanishContext { is_busy: AtomicBool::new(false), inner: UnsafeCell::new(inner) })
        })
    })
}

/// The sizes of an input, for all runs from now on. Inputs whose sizes the model fixes have them already.
///
/// # Safety
/// `context` is one; `dims` are `rank` sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_set_shape(
    context: *mut PlanishContext,
    index: usize,
    rank: usize,
    dims: *const i64,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    unsafe { with(context, |inner| inner.bound.set_dims(index, sizes("the shape", dims, rank)?)) }
}

/// The sizes of an input or an output: `rank` of them in `dims`, -1 where they are not known yet, or only a run can tell.
/// `rank` is -1 where that is not known either.
///
/// # Safety
/// `context` is one; `dims` has room for `capacity` sizes; `*rank` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_shape(
    context: *const PlanishContext,
    index: usize,
    capacity: usize,
    dims: *mut i64,
    rank: *mut i32,
) -> PlanishStatus {
    let tell = |inner: &mut Inner| {
        let port = inner.bound.opened.ports.at(index)?;
        let known: Option<Vec<usize>> = match port.is_input {
            true => inner.bound.input_dims(index).map(<[usize]>::to_vec),
            false => {
                let all = inner.bound.output_dims()?;
                all.and_then(|mut all| all.swap_remove(index - inner.bound.opened.ports.n_inputs))
            }
        };
        let known = known.map(|dims| dims.into_iter().map(|size| size as i64).collect());
        let list = known.or_else(|| port.dims.clone());
        // SAFETY: the caller's promise.
        unsafe { write_sizes(&port.what(), list, capacity, dims, rank) }
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, tell) }
}

/// Has an input read from host memory, or an output written there, by all runs from now on. The memory is the caller's, and
/// stays until it is bound elsewhere or the context is freed. Outputs at multiples of 64 bytes are written in place where
/// the plan allows it, others are copied. NULL with 0 bytes unbinds: such an output is in the context's memory.
///
/// # Safety
/// `context` is one; `data` has `n_bytes`, which nobody else uses while a run is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_bind(
    context: *mut PlanishContext,
    index: usize,
    data: *mut c_void,
    n_bytes: usize,
) -> PlanishStatus {
    let place = match (data.is_null(), n_bytes) {
        (true, 0) => Place::Nowhere,
        _ => Place::Host { data: data.cast(), bytes: n_bytes },
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, |inner| inner.bound.bind(index, place)) }
}

/// The same, by name: an input's or, if there is none of this name, an output's.
///
/// # Safety
/// As for `planish_context_bind`; `name` ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_bind_name(
    context: *mut PlanishContext,
    name: *const c_char,
    data: *mut c_void,
    n_bytes: usize,
) -> PlanishStatus {
    let bind = |inner: &mut Inner| {
        // SAFETY: the caller's promise.
        unsafe {
            let index = inner.bound.opened.ports.named(text("the name", name)?)?;
            inner.bound.bind(index, Place::Host { data: data.cast(), bytes: n_bytes })
        }
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, bind) }
}

/// Has an input read from, or an output written to, memory of the engine's GPU (a `CUdeviceptr`, aligned to 64 bytes as all
/// of `cudaMalloc` is), by all runs from now on.
///
/// # Safety
/// `context` is one; there are `n_bytes` at `address`, which nobody else uses while a run is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_bind_device(
    context: *mut PlanishContext,
    index: usize,
    address: u64,
    n_bytes: usize,
) -> PlanishStatus {
    let bind = |inner: &mut Inner| {
        if !address.is_multiple_of(64) {
            return wrong(format!("the address {address:#x} is not a multiple of 64 bytes"));
        }
        // SAFETY: the caller's promise.
        unsafe { inner.bound.bind(index, Place::Device { address, bytes: n_bytes }) }
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, bind) }
}

/// Runs on what is bound, and waits. On device memory it runs on a stream of the context's own: what other streams are to
/// bring is the caller's to wait for.
///
/// # Safety
/// `context` is one; what is bound is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_run(context: *mut PlanishContext) -> PlanishStatus {
    // SAFETY: the caller's promise.
    unsafe {
        with(context, |inner| match inner.bound.is_on_device() {
            true => inner.bound.run_device(None),
            false => inner.bound.run_host(),
        })
    }
}

/// Queues a run on a stream of the caller's (a `CUstream` or `cudaStream_t`; NULL is CUDA's default stream), after what is
/// queued there, and returns at once. All inputs are in device memory. On host memory there are no streams: the run is over
/// when this returns.
///
/// # Safety
/// As for `planish_context_run`, until the run is over; `stream` is one of the engine's GPU, and may be destroyed as soon as
/// this returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_run_async(
    context: *mut PlanishContext,
    stream: *mut c_void,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    unsafe {
        with(context, |inner| match inner.bound.is_on_device() {
            true => inner.bound.run_device(Some(stream.expose_provenance() as u64)),
            false => inner.bound.run_host(),
        })
    }
}

/// Waits for what earlier calls of `planish_context_run_async` queued, and tells what kernels found wrong with the inputs'
/// values (an index out of range).
///
/// # Safety
/// `context` is one; what is bound is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_wait(context: *mut PlanishContext) -> PlanishStatus {
    // SAFETY: the caller's promise.
    unsafe { with(context, |inner| inner.bound.context.synchronize()) }
}

/// An output that the last run left in host memory: the context's, or that which it is bound to.
///
/// # Safety
/// `context` is one; `tensor` has as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_output(
    context: *mut PlanishContext,
    index: usize,
    tensor: *mut PlanishTensor,
) -> PlanishStatus {
    let tell = |inner: &mut Inner| {
        let Inner { bound, told } = inner;
        let port = bound.opened.ports.at(index)?;
        if port.is_input {
            return wrong(format!("{} is no output", port.what()));
        }
        let Some(view) = bound.context.output(index - bound.opened.ports.n_inputs) else {
            let message = format!("{} is not in host memory, or no run made it", port.what());
            return Err(Error::new(ErrorKind::WrongInputs, message));
        };
        told.clear();
        told.extend(view.dims().iter().map(|&size| size as i64));
        let made = PlanishTensor {
            size: size_of::<PlanishTensor>(),
            data: view.bytes().as_ptr().cast(),
            n_bytes: view.bytes().len(),
            dims: told.as_ptr(),
            rank: told.len(),
        };
        // SAFETY: the caller's promise.
        unsafe { write(tensor, &made) }
    };
    // SAFETY: the caller's promise.
    unsafe { with(context, tell) }
}

/// Ends a context, after the runs that are under way.
///
/// # Safety
/// `context` is one that nobody uses any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_context_free(context: *mut PlanishContext) {
    // SAFETY: the caller's promise.
    unsafe { end(context) }
}
