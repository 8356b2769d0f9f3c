//! Convolutions with wgmma: TMA gathers the pixels under one tap of many windows at once and fills
//! padding with zeros. One group, whole chunks of channels; windows of 1x1 that miss no pixel are plain products.

use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};
use planish_op::window::PlacedAxis;

use super::conv::region::Convolution;
use super::product::{Math, Offer};
use super::wproduct::{self, Amount, Setting, Tile, Window};
use crate::driver::{TensorMap, Windows};
use crate::family::{Family, Ready, Work};
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::source::Source;

const PREFIX: &str = "wconv_";

/// The most that TMA steps over.
const MAX_STRIDE: usize = 8;

/// Convolutions on Hopper's own units.
pub(crate) struct WConvFamily;

fn found(problem: &Problem, tactic: &Tactic) -> Result<(Convolution, Math, Tile), KernelError> {
    let (math, tile) = wproduct::way_of(tactic, PREFIX)?;
    Ok((Convolution::of(problem)?, math, tile))
}

fn amount(convolution: &Convolution, problem: &Problem, math: Math) -> Amount {
    let bytes = [convolution.x, convolution.weight].map(|idx| problem.inputs[idx].span_bytes());
    Amount {
        m: convolution.m(),
        n: convolution.n,
        taps: convolution.n_taps(),
        c: wproduct::places(math, convolution.c),
        bytes: bytes.iter().sum(),
    }
}

/// Bytes from one row of the product to the next, where every pixel is such a row, as it lies.
fn row_pitch(convolution: &Convolution, problem: &Problem, math: Math) -> Option<u64> {
    let plain =
        |axis: &PlacedAxis| axis.kernel == 1 && axis.stride == 1 && axis.pad_begin + axis.pad_end == 0;
    let pitch = || wproduct::pixel_pitch(&problem.inputs[convolution.x], math);
    convolution.axes.iter().all(plain).then(pitch)?
}

/// Innermost first.
fn each<T>(convolution: &Convolution, of: impl Fn(&PlacedAxis) -> T) -> Vec<T> {
    convolution.axes.iter().rev().take(convolution.spatial).map(of).collect()
}

fn windows(convolution: &Convolution, count: u32) -> Windows {
    let first = each(convolution, |axis| -(axis.pad_begin as i32));
    let last = each(convolution, |axis| axis.pad_end as i32 - ((axis.kernel - 1) * axis.dilation) as i32);
    Windows { first, last, count }
}

pub(super) fn suits(convolution: &Convolution, problem: &Problem, math: Math) -> bool {
    let (x, weight) = (&problem.inputs[convolution.x], &problem.inputs[convolution.weight]);
    let reach = |axis: &PlacedAxis| (axis.kernel - 1) * axis.dilation;
    let farthest = convolution.axes.iter().map(reach).max().unwrap_or(0);
    let Windows { first, last, .. } = windows(convolution, 0);
    convolution.groups == 1
        && weight.constant
        && x.dtype == math.dtype()
        && weight.dtype == math.dtype()
        && convolution.c.is_multiple_of(math.per_chunk())
        && !problem.outputs[0].is_empty()
        && !x.is_empty()
        && convolution.axes.iter().all(|axis| axis.stride <= MAX_STRIDE)
        && Windows::reaches(convolution.spatial, &first, &last, farthest)
}

/// The problem's convolution and what it is multiplied in, where it is one that `suits` takes.
pub(super) fn wanted(
    gpu: &Gpu,
    problem: &Problem,
    suits: fn(&Convolution, &Problem, Math) -> bool,
) -> Option<(Convolution, Math)> {
    let convolution = Convolution::of(problem).ok()?;
    let math = wproduct::math(gpu, problem, problem.inputs[convolution.weight].dtype)?;
    suits(&convolution, problem, math).then_some((convolution, math))
}

/// The map of the image: pixels as rows, or windows over it.
fn image_map(
    convolution: &Convolution,
    problem: &Problem,
    math: Math,
    tile: &Tile,
) -> Result<TensorMap, KernelError> {
    if let Some(pitch) = row_pitch(convolution, problem, math) {
        let c = wproduct::places(math, convolution.c);
        return Ok(wproduct::spaced_rows_map(c, convolution.m(), pitch, tile.bk, tile.bm));
    }
    let (dims, strides) = laid(convolution, problem, math)?;
    let mut box_of = vec![1; dims.len()];
    box_of[0] = tile.bk;
    let mut map = wproduct::map(&dims, &strides, &box_of, tile.bk);
    let steps = each(convolution, |axis| axis.stride as u32);
    map.steps[1..=steps.len()].copy_from_slice(&steps);
    map.windows = Some(windows(convolution, tile.bm));
    Ok(map)
}

/// The map of the weights: a row for each output channel, taps, then channels.
fn weight_map(convolution: &Convolution, setting: &Setting<'_>) -> TensorMap {
    let (c, taps, n) = (setting.c, convolution.n_taps(), convolution.n);
    let Tile { bk, bn, .. } = setting.tile;
    if setting.kind == 0 || setting.run() > 0 {
        return setting.map_b(taps * c);
    }
    let (c, n, taps) = (c as u64, n as u64, taps as u64);
    wproduct::map(&[c, taps, n], &[c * 2, taps * c * 2], &[bk, 1, bn], bk)
}

/// As a product over windows of so many axes.
pub(super) fn setting_of<'a>(
    convolution: &'a Convolution,
    problem: &'a Problem,
    math: Math,
    tile: Tile,
    kind: u32,
) -> Setting<'a> {
    Setting {
        problem,
        epilogue: &convolution.epilogue,
        rows: convolution.rows(),
        math,
        tile,
        kind,
        n: convolution.n,
        c: wproduct::places(math, convolution.c),
        b_weight: true,
        out_taps: &[],
    }
}

fn setting<'a>(convolution: &'a Convolution, problem: &'a Problem, math: Math, tile: Tile) -> Setting<'a> {
    let is_product = row_pitch(convolution, problem, math).is_some();
    let kind = if is_product { 0 } else { convolution.spatial as u32 };
    setting_of(convolution, problem, math, tile, kind)
}

/// What all candidates ask for: TMA wants its image aligned, also where it is a part of another value.
pub(super) fn offer(convolution: &Convolution, problem: &Problem, math: Math) -> Offer {
    let (inputs, outputs) = convolution.wants(problem, Want::inside_aligned(Layout::ChannelsLast));
    Offer { inputs, outputs, packed: Packing::of_inputs(Some(convolution.packing(math)), problem) }
}

/// Sizes and strides of the image for a map; refused where they are none that TMA takes.
pub(super) fn laid(
    convolution: &Convolution,
    problem: &Problem,
    math: Math,
) -> Result<(Vec<u64>, Vec<u64>), KernelError> {
    let sizes = wproduct::image_sizes(&problem.inputs[convolution.x], math);
    sizes.ok_or_else(|| KernelError::unsupported("an image that does not lie as TMA asks"))
}

/// Refused where weight and image are none that `offer` is made for.
pub(super) fn expect_suited(
    convolution: &Convolution,
    problem: &Problem,
    math: Math,
    tactic: &Tactic,
) -> Result<(), KernelError> {
    match suits(convolution, problem, math) {
        true => Ok(()),
        false => Err(KernelError::unsupported(format!("{tactic}: its factors are not as TMA asks"))),
    }
}

impl Family for WConvFamily {
    fn name(&self) -> &'static str {
        "wconv"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Some((convolution, math)) = wanted(gpu, problem, suits) else { return Vec::new() };
        let offer = offer(&convolution, problem, math);
        wproduct::candidates(gpu, PREFIX, math, &amount(&convolution, problem, math), &offer, budget)
    }

    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let (convolution, math, _) = found(problem, tactic)?;
        Ok(Some(convolution.packing(math)))
    }

    fn sources(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (convolution, math, tile) = found(problem, tactic)?;
        Ok(vec![setting(&convolution, problem, math, tile).source(gpu)?])
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { cuda, problem, tactic, .. } = *ready;
        let (convolution, math, tile) = found(problem, tactic)?;
        expect_suited(&convolution, problem, math, tactic)?;
        let module = ready.module()?;
        let each = |of: fn(&PlacedAxis) -> usize| convolution.along(of).map(|size| size as i32);
        let window = Window {
            size: each(|axis| axis.output),
            stride: each(|axis| axis.stride),
            pad: each(|axis| axis.pad_begin),
            taps: each(|axis| axis.kernel),
            dilation: each(|axis| axis.dilation),
        };
        let setting = setting(&convolution, problem, math, tile);
        let factors = [
            (convolution.x, image_map(&convolution, problem, math, &tile)?),
            (convolution.weight, weight_map(&convolution, &setting)),
        ];
        let amount = amount(&convolution, problem, math);
        setting.launch(cuda.gpu(), module, factors, &amount, window)
    }
}
