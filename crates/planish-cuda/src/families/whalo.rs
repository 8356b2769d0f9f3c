//! Convolutions of stride 1 with wgmma that read each piece of the image once: a block brings its piece with the
//! rim that windows reach over, and every tap multiplies from another place in it. What gathers each tap anew
//! (`wconv`) moves as many times more bytes as there are taps.

mod piece;

use planish_gpu::kernel_args;
use planish_kernel::{Budget, Candidate, KernelError, Problem, Tactic};

use self::piece::Piece;
use super::conv::region::Convolution;
use super::product::epilogue::TileEpilogueArgs;
use super::product::{self, Math};
use super::wconv;
use super::wproduct::{self, Setting};
use crate::driver::TensorMap;
use crate::family::{Family, Ready, Work};
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::launch::{self, Launch, Launches};
use crate::source::Source;

const PREFIX: &str = "whalo_";
const KERNEL: &str = include_str!("../../kernels/whalo.cu");

/// Raised when the kernel changes.
const REVISION: u32 = 4;

kernel_args! {
    /// What whalo.cu is given. Sizes are along x, y, z; `tiles` are pieces of all images, `chunks` those of the channels.
    struct WHaloArgs {
        epilogue: TileEpilogueArgs,
        n: i32,
        tiles_n: i32,
        tiles: i32,
        tiles_of: [i32; 3],
        size: [i32; 3],
        pad: [i32; 3],
        chunks: i32,
    }
}

/// Convolutions of stride 1 on Hopper's own units.
pub(crate) struct WHaloFamily;

fn found(problem: &Problem, tactic: &Tactic) -> Result<(Convolution, Math, Piece), KernelError> {
    let (math, piece) = product::half_way_of(tactic, PREFIX, Piece::named)?;
    Ok((Convolution::of(problem)?, math, piece))
}

fn taps(convolution: &Convolution) -> [usize; 3] {
    convolution.along(|axis| axis.kernel)
}

/// Windows overlap, and lie as close as can be.
fn suits(convolution: &Convolution, problem: &Problem, math: Math) -> bool {
    (2..=3).contains(&convolution.spatial)
        && convolution.axes.iter().all(|axis| axis.stride == 1 && axis.dilation == 1)
        && convolution.n_taps() > 1
        && wconv::suits(convolution, problem, math)
}

fn setting<'a>(convolution: &'a Convolution, problem: &'a Problem, math: Math, piece: &Piece) -> Setting<'a> {
    wconv::setting_of(convolution, problem, math, piece.tile(), convolution.spatial as u32)
}

/// The map of the image: a box is a piece with its rim.
fn image_map(
    convolution: &Convolution,
    problem: &Problem,
    math: Math,
    piece: &Piece,
) -> Result<TensorMap, KernelError> {
    let (dims, strides) = wconv::laid(convolution, problem, math)?;
    let mut box_of = vec![piece.bk];
    let halo = piece.halo(taps(convolution));
    box_of.extend(halo[..convolution.spatial].iter().map(|size| *size as u32));
    box_of.push(1);
    Ok(wproduct::map(&dims, &strides, &box_of, piece.bk))
}

/// The map of the weights: a box is some taps of some output channels, tap by tap; or one tap of them, where their order
/// takes the dimension.
fn weight_map(convolution: &Convolution, setting: &Setting<'_>, piece: &Piece) -> TensorMap {
    let (c, n, taps) = (setting.c, convolution.n, convolution.n_taps());
    if setting.run() > 0 {
        return setting.map_b(taps * c);
    }
    let (c, n, taps) = (c as u64, n as u64, taps as u64);
    let box_of = [piece.bk, piece.bn, piece.tb];
    wproduct::map(&[c, n, taps], &[taps * c * 2, c * 2], &box_of, piece.bk)
}

impl Family for WHaloFamily {
    fn name(&self) -> &'static str {
        "whalo"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Some((convolution, math)) = wconv::wanted(gpu, problem, suits) else { return Vec::new() };
        let work = piece::Amount {
            images: convolution.n_images,
            size: convolution.along(|axis| axis.output),
            taps: taps(&convolution),
            c: wproduct::places(math, convolution.c),
            n: convolution.n,
            spatial: convolution.spatial,
        };
        let offer = wconv::offer(&convolution, problem, math);
        let candidate = |piece: Piece| {
            let name = product::half_name(PREFIX, math, &piece.name());
            offer.candidate(name, REVISION, work.price_ns(gpu, &piece))
        };
        wproduct::best_of(Piece::all(gpu, &work).into_iter().map(candidate).collect(), budget)
    }

    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let (convolution, math, _) = found(problem, tactic)?;
        Ok(Some(convolution.packing(math)))
    }

    fn sources(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (convolution, math, piece) = found(problem, tactic)?;
        let [tx, ty, tz] = taps(&convolution);
        if !piece.divides([tx, ty, tz], wproduct::places(math, convolution.c)) {
            return Err(KernelError::unsupported(format!("{tactic}: its stages are for other windows")));
        }
        let setting = setting(&convolution, problem, math, &piece);
        let [gx, gy, gz] = piece.groups;
        let source = Source::new("whalo.cu", setting.text::<WHaloArgs>(KERNEL)?, "whalo")
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
            .define("RESIDENT", u32::from(piece.resident));
        Ok(vec![setting.defines_with_loads(source)])
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { cuda, problem, tactic, .. } = *ready;
        let (convolution, math, piece) = found(problem, tactic)?;
        wconv::expect_suited(&convolution, problem, math, tactic)?;
        if !suits(&convolution, problem, math) {
            return ready.refuse("windows that do not overlap, or lie apart");
        }
        let size = convolution.along(|axis| axis.output);
        let extent = piece.extent();
        let tiles_of = [0, 1, 2].map(|axis| size[axis].div_ceil(extent[axis]));
        let tiles = tiles_of.iter().product::<usize>() * convolution.n_images;
        let tiles_n = convolution.n.div_ceil(piece.bn as usize);
        if tiles * tiles_n >= 1 << 31 {
            return ready.refuse("2^31 tiles or more");
        }
        let arguments = WHaloArgs {
            epilogue: convolution.epilogue.args(problem, &convolution.rows()),
            n: convolution.n as i32,
            tiles_n: tiles_n as i32,
            tiles: tiles as i32,
            tiles_of: tiles_of.map(|tiles| tiles as i32),
            size: size.map(|size| size as i32),
            pad: convolution.along(|axis| axis.pad_begin).map(|pad| pad as i32),
            chunks: wproduct::places(math, convolution.c).div_ceil(piece.bk as usize) as i32,
        };
        let setting = setting(&convolution, problem, math, &piece);
        let factors = [
            (convolution.x, image_map(&convolution, problem, math, &piece)?),
            (convolution.weight, weight_map(&convolution, &setting, &piece)),
        ];
        let params = setting.params(factors, &arguments);
        let function = ready.module()?.function("whalo")?;
        let (threads, shared) = (piece.threads(), piece.shared_bytes(taps(&convolution)));
        let room = launch::room(cuda.gpu(), &function, threads, shared)?;
        // Blocks keep their columns and go from piece to piece; clusters have one.
        let workers = match piece.split {
            1 => tiles.min((room / tiles_n).max(1)),
            split => tiles * split as usize,
        };
        let launch = Launch::line(function, workers * tiles_n, threads, params).with_shared(shared)?;
        Ok(Launches::one(launch.programmatic()))
    }
}
