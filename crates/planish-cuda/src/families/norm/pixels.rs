//! Group and instance normalization with channels innermost by parts of the pixels: sums, then the rest.

use planish_gpu::epilogue::{EpilogueArgs, EpilogueCode};
use planish_gpu::kernel_args;
use planish_gpu::operands::{refuse, size_of_element};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot, Step};
use planish_gpu::space::{int, ints};
use planish_kernel::KernelError;
use planish_kernel::norm::NormGroups;

use super::{Around, group_args};

/// Threads of a block at most.
const THREADS: usize = 256;
/// Pixels that a thread has under way.
const AT_ONCE: usize = 4;
/// The most parts that every block of the second launch adds up.
const MAX_PARTS: usize = 128;
/// Groups whose means and factors find room in the shared memory that a kernel has without asking.
const MAX_GROUPS: usize = 1024;

kernel_args! {
    /// What norm_pixels.cu is given.
    struct NormPixelsArgs {
        n_pixels: i32,
        epsilon: f32,
        /// Parts of the sums, and pixels of a part in this launch.
        n_parts: i32,
        per_part: i32,
        /// Strides.
        x_sample: i32,
        x_pixel: i32,
        y_sample: i32,
        y_pixel: i32,
        epilogue: EpilogueArgs,
    }
}

pub(super) fn plan(around: &Around<'_>, wanted: NormGroups<'_>) -> Result<Plan, KernelError> {
    let Around { gpu, problem, main } = *around;
    let NormGroups { x, n_groups, plane, from, to, epsilon, .. } = wanted;
    let output = around.output();
    let dims = &output.dims;
    if dims.len() < 3 {
        return refuse("no pixels");
    }
    let channels = dims[1];
    let lanes_of = |size: usize| (16 / size).min(8);
    let mut lanes = lanes_of(size_of_element(x.1.dtype)).min(lanes_of(size_of_element(output.dtype)));
    while lanes > 1 && !channels.is_multiple_of(lanes) {
        lanes /= 2;
    }
    let vectors = channels / lanes;
    if from.channel != 1 || to.channel != 1 || vectors > THREADS {
        return refuse("channels that are not innermost, or too many");
    }
    let at_once = THREADS / vectors;
    if n_groups > MAX_GROUPS || dims[0] > 65_535 {
        return refuse("more groups than shared memory has room for, or too many samples");
    }
    // Sums by about a block for each multiprocessor, the rest by twice as many.
    let parts_of = |per_sm: usize, most: usize| {
        let wanted = (per_sm * gpu.n_sms as usize).div_ceil(dims[0]);
        let n = wanted.min(plane.div_ceil(at_once * AT_ONCE)).clamp(1, most);
        let each = plane.div_ceil(n);
        (plane.div_ceil(each), each)
    };
    let ((n_sums, sums_each), (n_rest, rest_each)) = (parts_of(1, MAX_PARTS), parts_of(2, usize::MAX));
    let slices = (vectors * at_once / n_groups).clamp(1, 8);
    let spatial: Vec<usize> = (2..dims.len()).collect();
    let epilogue = EpilogueCode::after(problem, main, [&[0], &[], &[], &spatial], &[1], lanes)?;
    let [x_sample, x_pixel, y_sample, y_pixel] = ints([from.sample, from.pixel, to.sample, to.pixel])?;
    let numbers = NormPixelsArgs {
        n_pixels: int(plane)?,
        epsilon,
        n_parts: int(n_sums)?,
        per_part: int(rest_each)?,
        x_sample,
        x_pixel,
        y_sample,
        y_pixel,
        epilogue: epilogue.args.clone(),
    };
    let code = |stage: usize| -> Result<KernelCode, KernelError> {
        let text = include_str!("../../../kernels/norm_pixels.cu");
        let code = epilogue.code("norm_pixels.cu", text, "norm_pixels", &numbers);
        Ok(around
            .typed(code, &wanted)?
            .define("STAGE", stage)
            .define("V", lanes)
            .define("VECTORS", vectors)
            .define("LANES", at_once)
            .define("GROUPS", n_groups)
            .define("SLICES", slices))
    };
    let step = |source: usize, parts: usize, each: usize| -> Result<Step, KernelError> {
        let numbers = NormPixelsArgs { per_part: int(each)?, ..numbers.clone() };
        let args = group_args(&wanted, Arg::Address(Slot::Workspace, 0), Arg::of(&numbers), &epilogue);
        let grid = [parts as u32, dims[0] as u32, 1];
        Ok(Step { source, grid, threads: (vectors * at_once) as u32, shared: 0, cluster: 1, args })
    };
    Ok(Plan {
        sources: vec![code(1)?, code(2)?],
        steps: vec![step(0, n_sums, sums_each)?, step(1, n_rest, rest_each)?],
        // A sum and a sum of squares, in f32.
        workspace: dims[0] * n_sums * n_groups * 8,
    })
}
