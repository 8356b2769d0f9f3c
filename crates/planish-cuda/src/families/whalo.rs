//! Convolutions of stride 1 with wgmma that read each piece of the image once: a block brings its piece with the
//! rim that windows reach over, and every tap multiplies from another place in it. What gathers each tap anew
//! (`wconv`) moves as many times more bytes as there are taps.

mod piece;

use std::sync::Arc;

use planish_kernel::{Candidate, KernelError, KernelErrorKind, Layout, PackedWeight, Problem, Tactic};
use planish_op::window::PlacedAxis;
use planish_tensor::Tensor;

use self::piece::Piece;
use super::conv::region::Convolution;
use super::conv::{format_of, pack_rows};
use super::product::Math;
use super::product::finish::Finish;
use super::wconv;
use super::wproduct::{self, Setting};
use crate::backend::Cuda;
use crate::driver::{Module, TensorMap};
use crate::family::{Family, Work};
use crate::gpu::Gpu;
use crate::launch::{Launch, Launches, Params, Slot};
use crate::source::Source;

const PREFIX: &str = "whalo_";
const KERNEL: &str = include_str!("../../kernels/whalo.cu");

/// Raised when the kernel changes.
const REVISION: u32 = 2;

/// As `Halo` in whalo.cu.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Arguments {
    finish: Finish,
    n: i32,
    tiles_n: i32,
    tiles: i32,
    tiles_of: [i32; 3],
    size: [i32; 3],
    pad: [i32; 3],
    chunks: i32,
}

/// Convolutions of stride 1 on Hopper's own units.
pub(crate) struct WHalo;

fn found(problem: &Problem, tactic: &Tactic) -> Result<(Convolution, Math, Piece), KernelError> {
    let named = || {
        let (math, piece) = tactic.name.strip_prefix(PREFIX)?.split_once('_')?;
        let math = [Math::F16, Math::BF16].into_iter().find(|known| known.name() == math)?;
        Some((math, Piece::named(piece)?))
    };
    let Some((math, piece)) = named() else {
        let message = format!("no tactic is called `{}`; rebuild the plan", tactic.name);
        return Err(KernelError::new(KernelErrorKind::NoSuchTactic, message));
    };
    Ok((Convolution::of(problem)?, math, piece))
}

/// Along x, y, z.
fn along(convolution: &Convolution, of: impl Fn(&PlacedAxis) -> usize) -> [usize; 3] {
    [2, 1, 0].map(|axis| of(&convolution.axes[axis]))
}

fn taps(convolution: &Convolution) -> [usize; 3] {
    along(convolution, |axis| axis.kernel)
}

/// Windows overlap, and lie as close as can be.
fn suits(convolution: &Convolution, problem: &Problem, math: Math) -> bool {
    (2..=3).contains(&convolution.spatial)
        && convolution.axes.iter().all(|axis| axis.stride == 1 && axis.dilation == 1)
        && convolution.n_taps() > 1
        && wconv::suits(convolution, problem, math)
}

fn setting<'a>(convolution: &'a Convolution, problem: &'a Problem, math: Math, piece: &Piece) -> Setting<'a> {
    Setting {
        problem,
        ending: &convolution.ending,
        rows: convolution.rows(),
        math,
        tile: piece.tile(),
        kind: convolution.spatial as u32,
        b_weight: true,
    }
}

/// The map of the image: a box is a piece with its rim.
fn image_map(convolution: &Convolution, problem: &Problem, math: Math, piece: &Piece) -> TensorMap {
    let spatial = convolution.spatial;
    let sizes = along(convolution, |axis| axis.input);
    let halo = piece.halo(taps(convolution));
    let mut dims = vec![convolution.c as u64];
    dims.extend(sizes[..spatial].iter().map(|size| *size as u64));
    dims.push(problem.inputs[convolution.x].dims[0] as u64);
    let mut strides = Vec::new();
    let mut step = 2;
    for size in &dims[..dims.len() - 1] {
        step *= size;
        strides.push(step);
    }
    let mut box_of = vec![piece.bk];
    box_of.extend(halo[..spatial].iter().map(|size| *size as u32));
    box_of.push(1);
    TensorMap::new(math.dtype(), &dims, &strides, &box_of, wproduct::swizzle(piece.bk))
}

/// The map of the weights: a box is some taps of some output channels, tap by tap.
fn weight_map(convolution: &Convolution, math: Math, piece: &Piece) -> TensorMap {
    let (c, n, taps) = (convolution.c as u64, convolution.n as u64, convolution.n_taps() as u64);
    let box_of = [piece.bk, piece.bn, piece.tb];
    TensorMap::new(math.dtype(), &[c, n, taps], &[taps * c * 2, c * 2], &box_of, wproduct::swizzle(piece.bk))
}

impl Family for WHalo {
    fn name(&self) -> &'static str {
        "whalo"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem) -> Vec<Candidate> {
        let Ok(convolution) = Convolution::of(problem) else { return Vec::new() };
        let Some(math) = wproduct::math(gpu, problem, problem.inputs[convolution.weight].dtype) else {
            return Vec::new();
        };
        if !suits(&convolution, problem, math) {
            return Vec::new();
        }
        let mut packed = vec![None; problem.inputs.len()];
        packed[convolution.weight] = Some(format_of(math));
        let (inputs, outputs) = wconv::wants(&convolution, problem);
        let work = piece::Amount {
            images: convolution.n_images,
            size: along(&convolution, |axis| axis.output),
            taps: taps(&convolution),
            c: convolution.c,
            n: convolution.n,
            spatial: convolution.spatial,
        };
        let candidate = |piece: Piece| Candidate {
            tactic: Tactic::new(format!("{PREFIX}{}_{}", math.name(), piece.name()), REVISION),
            inputs: inputs.clone(),
            outputs: outputs.clone(),
            packed: packed.clone(),
            predicted_ns: work.price_ns(gpu, &piece),
            in_place: Vec::new(),
            slow: false,
        };
        wproduct::best_of(Piece::all(gpu, &work).into_iter().map(candidate).collect())
    }

    fn pack(
        &self,
        _gpu: &Gpu,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        let (convolution, math, _) = found(problem, tactic)?;
        pack_rows(&convolution, math, problem, tactic, input, weight)
    }

    fn sources(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (convolution, math, piece) = found(problem, tactic)?;
        let [tx, ty, tz] = taps(&convolution);
        if !piece.divides([tx, ty, tz], convolution.c) {
            return Err(KernelError::unsupported(format!("{tactic}: its stages are for other windows")));
        }
        let setting = setting(&convolution, problem, math, &piece);
        // Wide tiles have no registers left for residuals that wait.
        let early = piece.split > 1 || piece.bn <= 64;
        let [gx, gy, gz] = piece.groups;
        let source = Source::new("whalo.cu", setting.text(KERNEL)?, "whalo")
            .define("KIND", convolution.spatial)
            .define("GX", gx)
            .define("GY", gy)
            .define("GZ", gz)
            .define("TX", tx)
            .define("TY", ty)
            .define("TZ", tz)
            .define("SA", piece.sa)
            .define("TB", piece.tb)
            .define("SB", piece.sb)
            .define("RESIDENT", u32::from(piece.resident))
            .define("SPLIT", piece.split);
        Ok(vec![setting.defines(source, early)])
    }

    fn prepare(
        &self,
        cuda: &Cuda,
        problem: &Problem,
        tactic: &Tactic,
        code: &[Arc<Module>],
    ) -> Result<Box<dyn Work>, KernelError> {
        let (convolution, math, piece) = found(problem, tactic)?;
        let refuse = |what: &str| Err(KernelError::unsupported(format!("{tactic}: {what}")));
        if problem.inputs[convolution.weight].packed.as_deref() != Some(&*format_of(math)) {
            return refuse("its weight is not packed");
        }
        if !suits(&convolution, problem, math)
            || !problem.inputs[convolution.x].is_dense(Layout::ChannelsLast)
        {
            return refuse("its input does not lie as the copy engine asks");
        }
        let [module] = code else { return refuse("one module is needed") };
        let size = along(&convolution, |axis| axis.output);
        let extent = piece.extent();
        let tiles_of = [0, 1, 2].map(|axis| size[axis].div_ceil(extent[axis]));
        let tiles = tiles_of.iter().product::<usize>() * convolution.n_images;
        let tiles_n = convolution.n.div_ceil(piece.bn as usize);
        if tiles * tiles_n >= 1 << 31 {
            return refuse("2^31 tiles or more");
        }
        let arguments = Arguments {
            finish: convolution.ending.finish(problem, &convolution.rows()),
            n: convolution.n as i32,
            tiles_n: tiles_n as i32,
            tiles: tiles as i32,
            tiles_of: tiles_of.map(|tiles| tiles as i32),
            size: size.map(|size| size as i32),
            pad: along(&convolution, |axis| axis.pad_begin).map(|pad| pad as i32),
            chunks: convolution.c.div_ceil(piece.bk as usize) as i32,
        };
        let image = image_map(&convolution, problem, math, &piece);
        let weight = weight_map(&convolution, math, &piece);
        let params = Params::new().tensor_map(Slot::Input(convolution.x), 0, image).tensor_map(
            Slot::Input(convolution.weight),
            0,
            weight,
        );
        let params = convolution.ending.arguments(params).value(arguments);
        let function = module.function("whalo")?;
        let shared = piece.shared_bytes(taps(&convolution));
        function.allow_shared(shared)?;
        let threads = piece.threads();
        let room = cuda.gpu().n_sms as usize * function.blocks_per_sm(threads, shared)?.max(1) as usize;
        // Blocks keep their columns and go from piece to piece; clusters have one.
        let workers = match piece.split {
            1 => tiles.min((room / tiles_n).max(1)),
            split => tiles * split as usize,
        };
        let launch = Launch::line(function, workers * tiles_n, threads, params).with_shared(shared)?;
        Ok(Launches::one(launch.programmatic()))
    }

    fn samples(&self) -> Vec<Problem> {
        wproduct::trials::overlapping()
    }
}
