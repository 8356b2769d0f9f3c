//! Convolution as an implicit matrix product on tensor cores, or in f32 on the plain units.
//!
//! Activations have their channels innermost and may lie inside larger values. Where channels come in whole
//! chunks of 16 bytes they are copied asynchronously; otherwise (few channels, channels outermost) element by
//! element. Weights are packed with k innermost: taps, then channels.

pub(super) mod region;

#[cfg(test)]
mod tests;

use planish_gpu::args::ArgBytes;
use planish_gpu::{codegen, kernel_args};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Tactic, Want};

use self::region::Convolution;
use super::product::epilogue::TileEpilogueArgs;
use super::product::{self, Amount, Cut, Math, Offer, Way};
use crate::family::{Family, Ready, Work};
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::launch::Params;
use crate::source::Source;

const KERNEL: &str = include_str!("../../kernels/conv.cu");

/// How the input is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// Channels innermost, in whole chunks.
    Wide,
    /// The same through the first-level cache.
    Cached,
    /// Channels innermost, one by one.
    Strided,
    /// Channels outermost, one by one: the input of a network.
    Plain,
}

impl Reading {
    const ALL: [Reading; 4] = [Reading::Wide, Reading::Cached, Reading::Strided, Reading::Plain];

    fn name(self) -> &'static str {
        match self {
            Reading::Wide => "conv_wide_",
            Reading::Cached => "conv_cached_",
            Reading::Strided => "conv_strided_",
            Reading::Plain => "conv_plain_",
        }
    }

    fn in_chunks(self) -> bool {
        matches!(self, Reading::Wide | Reading::Cached)
    }

    pub(super) fn layout(self) -> Layout {
        match self {
            Reading::Wide | Reading::Cached | Reading::Strided => Layout::ChannelsLast,
            Reading::Plain => Layout::Plain,
        }
    }
}

kernel_args! {
    /// What conv.cu is given. Strides are in elements; spatial ones are of depth, row and column.
    pub(super) struct ConvArgs {
        epilogue: TileEpilogueArgs,
        sn: i64,
        sc: i64,
        ss: [i64; 3],
        n_images: i32,
        groups: i32,
        c: i32,
        n: i32,
        k: i32,
        k_row: i32,
        sizes: [i32; 3],
        out: [i32; 3],
        kernel: [i32; 3],
        stride: [i32; 3],
        dilation: [i32; 3],
        pad: [i32; 3],
        cut: Cut,
    }
}

/// All convolutions; depthwise ones have kernels of their own that are faster.
pub(crate) struct ConvFamily;

impl ConvFamily {
    fn found(&self, problem: &Problem, tactic: &Tactic) -> Result<(Convolution, Reading, Way), KernelError> {
        let reading = Reading::ALL.into_iter().find(|reading| tactic.name.starts_with(reading.name()));
        let way = product::way_of(tactic, reading.map_or("conv_", Reading::name))?;
        let convolution = Convolution::of(problem)?;
        Ok((convolution, reading.unwrap_or(Reading::Wide), way))
    }
}

impl Family for ConvFamily {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Some(convolution) = Convolution::offered(problem) else { return Vec::new() };
        let x = &problem.inputs[convolution.x];
        let weight = &problem.inputs[convolution.weight];
        let mut candidates = Vec::new();
        for math in Math::of(gpu, problem, weight.dtype) {
            for reading in Reading::ALL {
                let whole = x.dtype == math.dtype() && convolution.c.is_multiple_of(math.per_chunk());
                let suits = match reading {
                    Reading::Wide => whole,
                    Reading::Cached => whole && convolution.n_taps() > 1,
                    Reading::Strided => !whole,
                    Reading::Plain => convolution.groups == 1 && convolution.c <= 4,
                };
                if !suits {
                    continue;
                }
                let (inputs, outputs) = convolution.wants(problem, Want::inside(reading.layout()));
                let offer = Offer {
                    inputs,
                    outputs,
                    packed: Packing::of_inputs(Some(convolution.packing(math)), problem),
                };
                let amount = Amount {
                    m: convolution.m(),
                    n: convolution.n,
                    k: convolution.k(),
                    count: convolution.groups,
                    bytes: problem.traffic_bytes(),
                    strided: !reading.in_chunks(),
                };
                candidates.extend(Way::all(gpu, math, amount.m, amount.n, amount.k).into_iter().map(|way| {
                    let name = format!("{}{}", reading.name(), way.name());
                    offer.candidate(name, product::REVISION, amount.price_ns(gpu, &way))
                }));
            }
        }
        product::best_of(candidates, budget.tiles, budget)
    }

    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let (convolution, _, way) = self.found(problem, tactic)?;
        Ok(Some(convolution.packing(way.math)))
    }

    fn sources(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (convolution, reading, way) = self.found(problem, tactic)?;
        let x = &problem.inputs[convolution.x];
        let Some(x_type) = codegen::storage_type(x.dtype) else {
            return Err(KernelError::unsupported(format!("{tactic} does not read {}", x.dtype)));
        };
        let few = if convolution.c <= 4 { convolution.c } else { 0 };
        let epilogue = convolution.epilogue.text(problem)?;
        let source = product::source::<ConvArgs>("conv.cu", KERNEL, "conv", &epilogue, &way)
            .define("X_T", x_type)
            .define("X_WIDE", u32::from(reading.in_chunks()))
            .define("X_CACHED", u32::from(reading == Reading::Cached))
            .define("MANY_TAPS", u32::from(convolution.n_taps() > 32))
            .define("FEW_C", few);
        Ok(vec![convolution.epilogue.define(source, problem, &convolution.rows())])
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { problem, tactic, .. } = *ready;
        let (convolution, reading, way) = self.found(problem, tactic)?;
        let pixels = Pixels::of(&problem.inputs[convolution.x]);
        if reading.in_chunks() && !pixels.in_chunks(&convolution, problem, way.math) {
            return ready.refuse("its input does not lie in chunks of 16 bytes");
        }
        let arguments = convolution.arguments(problem, &way, &pixels)?;
        let params = Params::new().input(convolution.x).input(convolution.weight);
        let params = convolution.epilogue.addresses(params).structure(&ArgBytes::of(&arguments));
        convolution.products(&way).launch(ready.module()?, "conv", params)
    }
}

/// Strides of an activation; those of dimensions of size 1 mean nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pixels {
    pub(super) image: usize,
    pub(super) axes: [usize; 3],
    pub(super) channel: usize,
}

impl Pixels {
    pub(super) fn of(operand: &Operand) -> Pixels {
        let spatial = operand.rank() - 2;
        let mut axes = [0; 3];
        axes[3 - spatial..].copy_from_slice(&operand.strides[2..]);
        let channel = if operand.dims[1] <= 1 { 1 } else { operand.strides[1] };
        Pixels { image: operand.strides[0], axes, channel }
    }

    /// Whether the input's channels come in whole chunks of 16 bytes.
    pub(super) fn in_chunks(&self, convolution: &Convolution, problem: &Problem, math: Math) -> bool {
        let x = &problem.inputs[convolution.x];
        let per_chunk = math.per_chunk();
        self.channel == 1
            && x.dtype == math.dtype()
            && convolution.c.is_multiple_of(per_chunk)
            && (x.dims[0] <= 1 || self.image.is_multiple_of(per_chunk))
            && (0..3)
                .all(|axis| convolution.axes[axis].input <= 1 || self.axes[axis].is_multiple_of(per_chunk))
    }
}
