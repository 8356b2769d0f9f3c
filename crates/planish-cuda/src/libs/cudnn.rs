//! Convolutions by cuDNN 9: each engine configuration that its heuristic proposes is a tactic of its own.
//!
//! The graph is the convolution with bias, residual and ReLU, around numbers of 8 bits with their scales; the tactic's name holds the engine's index and its
//! knobs, from which the plan is made again. Engines that cuDNN notes as nondeterministic are never offered.

mod descriptor;
mod engine;
mod graph;
mod shape;

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Kind,
    cudnnBackendDescriptorType_t as What, cudnnHandle_t,
};
use planish_kernel::{
    Address, Budget, Call, Candidate, KernelError, KernelErrorKind, Layout, Memory, Operand, Problem, Tactic,
    Want,
};

use self::descriptor::{Descriptor, Functions, Making};
use self::engine::Engine;
use self::graph::uid;
use self::shape::{Bias, Shape};
use super::{offered, uploaded};
use crate::backend::Cuda;
use crate::driver::Stream;
use crate::error::CudaError;
use crate::families::product::Offer;
use crate::families::product::epilogue::{Bytes, Numbers};
use crate::family::{Family, Ready, Work};
use crate::find::Which;
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::source::Source;

/// What the names of tactics begin with.
const PREFIX: &str = "cudnn_";
/// Operands of one number, which lie so far apart.
const SINGLE: [i64; 3] = [uid::FACTOR, uid::RESIDUAL_SCALE, uid::INVERSE];
const SINGLE_BYTES: usize = 16;
/// The most workspace that an engine may ask for.
const MAX_WORKSPACE: usize = 256 << 20;

/// The library's handle of one device. A run sets its stream, so runs take turns.
#[derive(Debug)]
pub(crate) struct Handle {
    functions: Arc<Functions>,
    raw: Mutex<Raw>,
}

#[derive(Debug)]
struct Raw(cudnnHandle_t);

// SAFETY: a handle may be used from any thread, one at a time.
unsafe impl Send for Raw {}

/// The library's functions.
pub(crate) use graph::describe;

pub(crate) fn functions() -> Result<Functions, CudaError> {
    Functions::of(Which::Cudnn)
}

impl Handle {
    /// Of the device whose context is current.
    pub(crate) fn new() -> Result<Handle, CudaError> {
        let functions = functions()?;
        let mut raw: cudnnHandle_t = std::ptr::null_mut();
        // SAFETY: a context is current.
        let code = unsafe { (functions.cudnnCreate)(&raw mut raw) };
        functions.check(code, "starting")?;
        Ok(Handle { functions: Arc::new(functions), raw: Mutex::new(Raw(raw)) })
    }

    fn with<R>(&self, run: impl FnOnce(cudnnHandle_t) -> R) -> R {
        run(self.raw.lock().unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        let _ = self.with(|raw| unsafe { (self.functions.cudnnDestroy)(raw) });
    }
}

/// Convolutions by the library.
pub(crate) struct CudnnFamily;

/// How the library takes a problem's inputs: images channels-last.
fn wants(problem: &Problem, shape: &Shape) -> Vec<Want> {
    let image = problem.inputs[shape.x].rank();
    let want = |(idx, operand): (usize, &Operand)| {
        let is_image = operand.rank() == image && (idx == shape.x || Some(idx) == shape.residual);
        // Some engines take no strides but dense ones, and only a launch would tell.
        Want::dense(if is_image { Layout::ChannelsLast } else { Layout::Plain })
    };
    problem.inputs.iter().enumerate().map(want).collect()
}

/// The problem as the library takes it.
fn laid(problem: &Problem, shape: &Shape) -> Problem {
    let outputs = vec![Want::dense(Layout::ChannelsLast); problem.outputs.len()];
    problem.with_layouts(&wants(problem, shape), &outputs)
}

impl Family for CudnnFamily {
    fn name(&self) -> &'static str {
        "cudnn"
    }

    fn source(&self) -> &'static str {
        "cudnn"
    }

    fn candidates(&self, _gpu: &Gpu, _problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        // Only the library on a device knows its engines.
        Vec::new()
    }

    fn candidates_on(&self, cuda: &Cuda, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Ok(shape) = Shape::of(problem) else { return Vec::new() };
        let Ok(handle) = cuda.cudnn() else { return Vec::new() };
        let (inputs, laid) = (wants(problem, &shape), laid(problem, &shape));
        let found = handle.with(|raw| {
            let graph = graph::graph(&handle.functions, raw, &laid, &shape)?;
            Ok::<_, KernelError>(Engine::proposed(&handle.functions, &graph, shape.element, budget.library)?)
        });
        let Ok(found) = found else { return Vec::new() };
        let gpu = cuda.gpu();
        let bytes = problem.traffic_bytes() as f64;
        let price = gpu.roofline_ns(shape.flops(), gpu.flops(shape.element), bytes);
        let packed = Packing::of_inputs(Some(shape.packing()), problem);
        let offer = Offer { inputs, outputs: vec![Want::dense(Layout::ChannelsLast)], packed };
        offered(&offer, PREFIX, found.iter().map(Engine::name), price)
    }

    fn needs(&self) -> Option<Which> {
        Some(Which::Cudnn)
    }

    fn packing(&self, problem: &Problem, _tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        Ok(Some(Shape::of(problem)?.packing()))
    }

    fn sources(&self, _: &Gpu, _: &Problem, _: &Tactic) -> Result<Vec<Source>, KernelError> {
        Ok(Vec::new())
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { cuda, problem, tactic, .. } = *ready;
        let engine = tactic.name.strip_prefix(PREFIX).and_then(Engine::named).ok_or_else(|| {
            let message = format!("`{}` names no engine; rebuild the plan", tactic.name);
            KernelError::new(KernelErrorKind::NoSuchTactic, message)
        })?;
        let shape = Shape::of(problem)?;
        let handle = cuda.cudnn()?;
        let (plan, workspace) = handle.with(|raw| {
            let graph = graph::graph(&handle.functions, raw, problem, &shape)?;
            let made = |engine: &Engine| {
                let (plan, workspace) = engine.plan(&handle.functions, raw, &graph, shape.element)?;
                if workspace > MAX_WORKSPACE {
                    let message = format!("{tactic} asks for {workspace} bytes of workspace");
                    return Err(KernelError::unsupported(message));
                }
                Ok((plan, workspace))
            };
            made(&engine).or_else(|refused| {
                // An engine is chosen at the sizes that a plan was tuned at; at others the library may want another.
                let proposed =
                    Engine::proposed(&handle.functions, &graph, shape.element, Budget::USUAL.library)?;
                proposed.iter().find_map(|other| made(other).ok()).ok_or(refused)
            })
        })?;
        let constant_bias = match &shape.bias {
            Some(Bias::Constant(tensor)) => Some(uploaded(cuda, tensor.bytes())?),
            Some(Bias::Input(_)) | None => None,
        };
        let scales = match shape.bytes == Bytes::default() {
            true => None,
            false => Some(uploaded(cuda, &scale_bytes(&shape))?),
        };
        Ok(Box::new(Convolution { cuda: cuda.clone(), shape, plan, workspace, constant_bias, scales }))
    }
}

/// The single numbers that a graph of 8 bits multiplies by, in the order of [`SINGLE`].
fn scale_bytes(shape: &Shape) -> Vec<u8> {
    let Numbers { factor, residual_scale, inverse, .. } =
        shape.bytes.numbers((f32::NEG_INFINITY, f32::INFINITY));
    let mut bytes = vec![0; SINGLE.len() * SINGLE_BYTES];
    for (place, number) in bytes.chunks_exact_mut(SINGLE_BYTES).zip([factor, residual_scale, inverse]) {
        place[..4].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// A convolution with its execution plan.
#[derive(Debug)]
struct Convolution {
    plan: Arc<Descriptor>,
    shape: Shape,
    workspace: usize,
    constant_bias: Option<Box<dyn Memory>>,
    /// As [`scale_bytes`].
    scales: Option<Box<dyn Memory>>,
    /// Last, so that the library's handle outlives the plan.
    cuda: Cuda,
}

impl Work for Convolution {
    fn workspace_bytes(&self) -> usize {
        self.workspace
    }

    unsafe fn launch(&self, call: &Call<'_>, stream: &Stream) -> Result<(), KernelError> {
        let missing = || KernelError::new(KernelErrorKind::Failed, "a convolution without an operand");
        let input = |idx: usize| call.inputs.get(idx).copied().ok_or_else(missing);
        let shape = &self.shape;
        let mut operands = vec![
            (uid::X, input(shape.x)?),
            (uid::WEIGHT, input(shape.weight)?),
            (uid::OUTPUT, call.outputs.first().copied().ok_or_else(missing)?),
        ];
        match (&shape.bias, &self.constant_bias) {
            (Some(Bias::Input(idx)), _) => operands.push((uid::BIAS, input(*idx)?)),
            (Some(Bias::Constant(_)), Some(memory)) => operands.push((uid::BIAS, memory.address())),
            (Some(Bias::Constant(_)), None) | (None, _) => {}
        }
        if let Some(idx) = shape.residual {
            operands.push((uid::RESIDUAL, input(idx)?));
        }
        if let Some(idx) = shape.channel_scales() {
            operands.push((uid::CHANNELS, input(idx)?));
        }
        if let Some(scales) = &self.scales {
            let is_there =
                [shape.bytes.factors.is_some(), shape.bytes.residual.is_some(), shape.bytes.output.is_some()];
            let place = |place: usize| Address(scales.address().0 + (place * SINGLE_BYTES) as u64);
            operands.extend((0..SINGLE.len()).filter(|at| is_there[*at]).map(|at| (SINGLE[at], place(at))));
        }
        let pointer = |at: Address| std::ptr::without_provenance_mut::<c_void>(at.0 as usize);
        let ids: Vec<i64> = operands.iter().map(|(id, _)| *id).collect();
        let pointers: Vec<*mut c_void> = operands.iter().map(|(_, at)| pointer(*at)).collect();
        let handle = self.cuda.cudnn()?;
        let functions = &handle.functions;
        let pack = Making::new(functions, What::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .integers(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Kind::CUDNN_TYPE_VOID_PTR, &pointers)?
            .set(
                Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                Kind::CUDNN_TYPE_VOID_PTR,
                &[pointer(call.workspace)],
            )?
            .finish("naming the operands")?;
        handle.with(|raw| {
            // SAFETY: the stream lives, and its context is current.
            let code = unsafe { (functions.cudnnSetStream)(raw, stream.raw.cast()) };
            functions.check(code, "setting the stream")?;
            // SAFETY: plan and pack are finished; the addresses are the caller's to grant, and the workspace has
            // as many bytes as the plan asked for.
            let code = unsafe { (functions.cudnnBackendExecute)(raw, self.plan.raw, pack.raw) };
            functions.check(code, "a convolution")
        })?;
        Ok(())
    }
}
