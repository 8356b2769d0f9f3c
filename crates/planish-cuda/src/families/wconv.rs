//! Convolutions with wgmma: the copy engine gathers the pixels under one tap of many windows at once and fills
//! padding with zeros. One group, whole chunks of channels; windows of 1x1 that miss no pixel are plain products.

use std::sync::Arc;

use planish_kernel::{Candidate, KernelError, Layout, PackedWeight, Problem, Tactic, Want};
use planish_op::window::PlacedAxis;
use planish_tensor::Tensor;

use super::conv::region::Convolution;
use super::conv::{format_of, pack_rows};
use super::product::Math;
use super::wproduct::{self, Amount, Setting, Tile, Window};
use crate::backend::Cuda;
use crate::driver::{Module, TensorMap, Windows};
use crate::family::{Family, Work};
use crate::gpu::Gpu;
use crate::source::Source;

const PREFIX: &str = "wconv_";

/// Elements of a chunk of 16 bytes.
const CHUNK: usize = 8;
/// The most that the copy engine steps over.
const MAX_STRIDE: usize = 8;

/// Convolutions on Hopper's own units.
pub(crate) struct WConv;

fn found(problem: &Problem, tactic: &Tactic) -> Result<(Convolution, Math, Tile), KernelError> {
    let (math, tile) = wproduct::way_of(tactic, PREFIX)?;
    Ok((Convolution::of(problem)?, math, tile))
}

fn amount(convolution: &Convolution, problem: &Problem) -> Amount {
    let bytes = [convolution.x, convolution.weight].map(|idx| problem.inputs[idx].span_bytes());
    Amount {
        m: convolution.m(),
        n: convolution.n,
        taps: convolution.n_taps(),
        c: convolution.c,
        bytes: bytes.iter().sum(),
    }
}

/// Whether every pixel is a row of the product, as it lies.
fn is_product(convolution: &Convolution) -> bool {
    let plain =
        |axis: &PlacedAxis| axis.kernel == 1 && axis.stride == 1 && axis.pad_begin + axis.pad_end == 0;
    convolution.axes.iter().all(plain)
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
        && convolution.c.is_multiple_of(CHUNK)
        && !problem.outputs[0].is_empty()
        && !x.is_empty()
        && convolution.axes.iter().all(|axis| axis.stride <= MAX_STRIDE)
        && Windows::reaches(convolution.spatial, &first, &last, farthest)
}

/// The map of the image: pixels as rows, or windows over it.
fn image_map(convolution: &Convolution, problem: &Problem, math: Math, tile: &Tile) -> TensorMap {
    let x = &problem.inputs[convolution.x];
    let c = convolution.c as u64;
    let swizzle = wproduct::swizzle(tile.bk);
    if is_product(convolution) {
        let dims = [c, (x.len() / convolution.c) as u64];
        return TensorMap::new(math.dtype(), &dims, &[c * 2], &[tile.bk, tile.bm], swizzle);
    }
    let mut dims = vec![c];
    dims.extend(each(convolution, |axis| axis.input as u64));
    dims.push(x.dims[0] as u64);
    let mut strides = Vec::new();
    let mut step = 2;
    for size in &dims[..dims.len() - 1] {
        step *= size;
        strides.push(step);
    }
    let mut box_of = vec![1; dims.len()];
    box_of[0] = tile.bk;
    let mut map = TensorMap::new(math.dtype(), &dims, &strides, &box_of, swizzle);
    let steps = each(convolution, |axis| axis.stride as u32);
    map.steps[1..=steps.len()].copy_from_slice(&steps);
    map.windows = Some(windows(convolution, tile.bm));
    map
}

/// The map of the weights: a row for each output channel, taps, then channels.
fn weight_map(convolution: &Convolution, math: Math, tile: &Tile) -> TensorMap {
    let (c, n, taps) = (convolution.c as u64, convolution.n as u64, convolution.n_taps() as u64);
    let swizzle = wproduct::swizzle(tile.bk);
    match is_product(convolution) {
        true => TensorMap::new(math.dtype(), &[c, n], &[c * 2], &[tile.bk, tile.bn], swizzle),
        false => {
            let strides = [c * 2, taps * c * 2];
            TensorMap::new(math.dtype(), &[c, taps, n], &strides, &[tile.bk, 1, tile.bn], swizzle)
        }
    }
}

fn setting<'a>(convolution: &'a Convolution, problem: &'a Problem, math: Math, tile: Tile) -> Setting<'a> {
    let kind = if is_product(convolution) { 0 } else { convolution.spatial as u32 };
    let rows = convolution.rows();
    Setting { problem, ending: &convolution.ending, rows, math, tile, kind, b_weight: true }
}

/// Images channels-last, the rest dense. The copy engine wants its image aligned, so that one is not taken from
/// inside another value.
pub(super) fn wants(convolution: &Convolution, problem: &Problem) -> (Vec<Want>, Vec<Want>) {
    let image = &problem.outputs[0].dims;
    let mut inputs: Vec<Want> = problem
        .inputs
        .iter()
        .map(|operand| match operand.dims == *image && !operand.constant {
            true => Want::inside(Layout::ChannelsLast),
            false => Want::dense(Layout::Plain),
        })
        .collect();
    inputs[convolution.x] = Want::dense(Layout::ChannelsLast);
    inputs[convolution.weight] = Want::dense(Layout::Plain);
    (inputs, vec![Want::inside(Layout::ChannelsLast)])
}

impl Family for WConv {
    fn name(&self) -> &'static str {
        "wconv"
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
        let (inputs, outputs) = wants(&convolution, problem);
        let amount = amount(&convolution, problem);
        let tiles = Tile::all(gpu, amount.m, amount.n, amount.taps, amount.c);
        let candidate = |tile: Tile| Candidate {
            tactic: Tactic::new(format!("{PREFIX}{}_{}", math.name(), tile.name()), wproduct::REVISION),
            inputs: inputs.clone(),
            outputs: outputs.clone(),
            packed: packed.clone(),
            predicted_ns: amount.price_ns(gpu, &tile),
            in_place: Vec::new(),
            slow: false,
        };
        wproduct::best_of(tiles.into_iter().map(candidate).collect())
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
        let (convolution, math, tile) = found(problem, tactic)?;
        Ok(vec![setting(&convolution, problem, math, tile).source()?])
    }

    fn prepare(
        &self,
        cuda: &Cuda,
        problem: &Problem,
        tactic: &Tactic,
        code: &[Arc<Module>],
    ) -> Result<Box<dyn Work>, KernelError> {
        let (convolution, math, tile) = found(problem, tactic)?;
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
        let each = |of: fn(&PlacedAxis) -> usize| [2, 1, 0].map(|axis| of(&convolution.axes[axis]) as i32);
        let window = Window {
            size: each(|axis| axis.output),
            stride: each(|axis| axis.stride),
            pad: each(|axis| axis.pad_begin),
            taps: each(|axis| axis.kernel),
            dilation: each(|axis| axis.dilation),
        };
        let factors = [
            (convolution.x, image_map(&convolution, problem, math, &tile)),
            (convolution.weight, weight_map(&convolution, math, &tile)),
        ];
        let amount = amount(&convolution, problem);
        setting(&convolution, problem, math, tile).launch(cuda.gpu().n_sms, module, factors, &amount, window)
    }

    fn samples(&self) -> Vec<Problem> {
        wproduct::trials::convolutions()
    }
}
