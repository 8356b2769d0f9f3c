//! Convolutions of few channels and large images on tensor cores from a patch in shared memory: each piece of the
//! image is read once with the rim that windows reach over. What gathers each tap anew (`conv`) moves as many
//! times more bytes as there are taps.
//!
//! The very few channels of a network's input become more by taking a window's whole row for a pixel's channels.

mod shape;

#[cfg(test)]
mod tests;

use planish_gpu::args::{self, ArgBytes};
use planish_gpu::{codegen, kernel_args};
use planish_kernel::{Budget, Candidate, KernelError, Problem, Tactic, Want};
use planish_tensor::DType;

use self::shape::{Amount, Shape};
use super::conv::region::Convolution;
use super::conv::{Pixels, Reading};
use super::product::epilogue::TileEpilogueArgs;
use super::product::{self, Math, Offer};
use crate::family::{Family, Ready, Work};
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::launch::{self, Launch, Launches, Params};
use crate::source::Source;

const EPILOGUE: &str = include_str!("../../kernels/epilogue.cuh");
const KERNEL: &str = include_str!("../../kernels/halo.cu");

/// Raised when the kernel changes.
const REVISION: u32 = 1;

/// Windows of more taps along an axis hold too many fragments.
const MOST_TAPS: usize = 7;
/// Elements of a window's row, where they are gathered: more are better read as chunks.
const MOST_GATHERED: usize = 96;

kernel_args! {
    /// What halo.cu is given. Strides are in elements; spatial ones are of depth, row and column.
    struct HaloArgs {
        epilogue: TileEpilogueArgs,
        sn: i64,
        sc: i64,
        ss: [i64; 3],
        n: i32,
        k_row: i32,
        sizes: [i32; 3],
        out: [i32; 3],
        pad: [i32; 3],
        tiles_of: [i32; 3],
        tiles: i32,
        tiles_n: i32,
    }
}

/// Convolutions of one group in f16 and bf16.
pub(crate) struct HaloFamily;

const READINGS: [(&str, Reading); 3] =
    [("halo_wide_", Reading::Wide), ("halo_strided_", Reading::Strided), ("halo_plain_", Reading::Plain)];

fn found(problem: &Problem, tactic: &Tactic) -> Result<(Convolution, Reading, Math, Shape), KernelError> {
    let known = READINGS.into_iter().find(|(prefix, _)| tactic.name.starts_with(prefix));
    let (prefix, reading) = known.unwrap_or(READINGS[0]);
    let (math, shape) = product::half_way_of(tactic, prefix, Shape::named)?;
    Ok((Convolution::of(problem)?, reading, math, shape))
}

fn amount(convolution: &Convolution, problem: &Problem, reading: Reading) -> Amount {
    Amount {
        images: convolution.n_images,
        size: convolution.along(|axis| axis.output),
        taps: convolution.along(|axis| axis.kernel),
        stride: convolution.along(|axis| axis.stride),
        dilation: convolution.along(|axis| axis.dilation),
        c: convolution.c,
        n: convolution.n,
        gather: reading != Reading::Wide,
        out_bytes: problem.outputs[0].dtype.bytes_for(1).unwrap_or(4),
    }
}

/// Whether the kernel takes such a convolution, as far as operators and types say.
fn suits(convolution: &Convolution, problem: &Problem, math: Math, reading: Reading) -> bool {
    let x = &problem.inputs[convolution.x];
    let whole = x.dtype == math.dtype() && convolution.c.is_multiple_of(8);
    let gathered = convolution.c * convolution.axes[2].kernel <= MOST_GATHERED;
    let floating = matches!(x.dtype, DType::F32 | DType::F16 | DType::BF16);
    convolution.groups == 1
        && matches!(math, Math::F16 | Math::BF16)
        && convolution.axes.iter().all(|axis| axis.kernel <= MOST_TAPS)
        && match reading {
            Reading::Wide => whole,
            Reading::Cached => false,
            Reading::Strided => !whole && gathered && floating,
            Reading::Plain => gathered && floating && convolution.c <= 4,
        }
}

impl Family for HaloFamily {
    fn name(&self) -> &'static str {
        "halo"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Some(convolution) = Convolution::offered(problem) else { return Vec::new() };
        let weight = &problem.inputs[convolution.weight];
        let mut candidates = Vec::new();
        for math in Math::of(gpu, problem, weight.dtype) {
            for (prefix, reading) in READINGS {
                if !suits(&convolution, problem, math, reading) {
                    continue;
                }
                let (inputs, outputs) = convolution.wants(problem, Want::inside(reading.layout()));
                let offer = Offer {
                    inputs,
                    outputs,
                    packed: Packing::of_inputs(Some(convolution.packing(math)), problem),
                };
                let work = amount(&convolution, problem, reading);
                candidates.extend(Shape::all(gpu, &work).into_iter().map(|shape| {
                    let name = product::half_name(prefix, math, &shape.name());
                    offer.candidate(name, REVISION, work.price_ns(gpu, math, &shape))
                }));
            }
        }
        product::best_of(candidates, budget.special, budget)
    }

    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let (convolution, _, math, _) = found(problem, tactic)?;
        Ok(Some(convolution.packing(math)))
    }

    fn sources(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (convolution, reading, math, shape) = found(problem, tactic)?;
        let x = &problem.inputs[convolution.x];
        let work = amount(&convolution, problem, reading);
        let Some(x_type) =
            codegen::storage_type(x.dtype).filter(|_| suits(&convolution, problem, math, reading))
        else {
            return Err(KernelError::unsupported(format!("{tactic}: not for this convolution")));
        };
        if shape.shared_bytes(&work) > gpu.smem_per_block || (work.gather && work.inner() > shape.kc as usize)
        {
            return Err(KernelError::unsupported(format!("{tactic}: not for windows of this size")));
        }
        let text = [&*args::text_of::<HaloArgs>(), EPILOGUE, &convolution.epilogue.text(problem)?, KERNEL]
            .join("\n");
        let mut source = Source::new("halo.cu", text, "halo");
        for (axis, name) in ["X", "Y", "Z"].into_iter().enumerate() {
            source = source
                .define(&format!("K{name}"), work.taps[axis])
                .define(&format!("S{name}"), work.stride[axis])
                .define(&format!("D{name}"), work.dilation[axis])
                .define(&format!("W{name}"), shape.warps[axis]);
        }
        let source = source
            .define("MATH", math.name_in_c())
            .define("ELEM", math.element_in_c())
            .define("X_T", x_type)
            .define("GATHER", u32::from(work.gather))
            .define("C", convolution.c)
            .define("KC", shape.kc)
            .define("ROWS", shape.rows)
            .define("NT", shape.nt)
            .define("WN", shape.warps[3])
            .define("BUFFERS", shape.buffers);
        Ok(vec![convolution.epilogue.define(source, problem, &convolution.rows())])
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { cuda, problem, tactic, .. } = *ready;
        let (convolution, reading, math, shape) = found(problem, tactic)?;
        let pixels = Pixels::of(&problem.inputs[convolution.x]);
        if reading == Reading::Wide && !pixels.in_chunks(&convolution, problem, math) {
            return ready.refuse("its input does not lie in chunks of 16 bytes");
        }
        let work = amount(&convolution, problem, reading);
        let extent = shape.extent();
        let tiles_of = [2, 1, 0].map(|axis| work.size[axis].div_ceil(extent[axis]));
        let tiles = tiles_of.iter().product::<usize>() * work.images;
        let tiles_n = work.n.div_ceil(shape.columns());
        if tiles * tiles_n >= 1 << 31 {
            return ready.refuse("2^31 tiles or more");
        }
        let arguments = HaloArgs {
            epilogue: convolution.epilogue.args(problem, &convolution.rows()),
            sn: pixels.image as i64,
            sc: pixels.channel as i64,
            ss: pixels.axes.map(|stride| stride as i64),
            n: convolution.n as i32,
            k_row: convolution.packed_row(math) as i32,
            sizes: convolution.each(|axis| axis.input),
            out: convolution.each(|axis| axis.output),
            pad: convolution.each(|axis| axis.pad_begin),
            tiles_of: tiles_of.map(|tiles| tiles as i32),
            tiles: tiles as i32,
            tiles_n: tiles_n as i32,
        };
        let params = Params::new().input(convolution.x).input(convolution.weight);
        let params = convolution.epilogue.addresses(params).structure(&ArgBytes::of(&arguments));
        let function = ready.module()?.function("halo")?;
        let (threads, shared) = (shape.threads(), shape.shared_bytes(&work));
        let room = launch::room(cuda.gpu(), &function, threads, shared)?;
        // Blocks keep their columns and go from tile to tile, all as often where that can be.
        let most = (room / tiles_n).max(1);
        let workers = tiles.div_ceil(tiles.div_ceil(most));
        let launch = Launch::line(function, workers * tiles_n, threads, params).with_shared(shared)?;
        Ok(Launches::one(launch.programmatic()))
    }
}
