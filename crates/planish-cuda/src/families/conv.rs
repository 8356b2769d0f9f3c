//! Convolution as an implicit matrix product on tensor cores, or in f32 on the plain units.
//!
//! Activations have their channels innermost and may lie inside larger values. Where channels come in whole
//! chunks of 16 bytes they are copied asynchronously; otherwise (few channels, channels outermost) element by
//! element. Weights are packed with k innermost: taps, then channels.

pub(super) mod region;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use planish_kernel::{Candidate, KernelError, Layout, Operand, PackedWeight, Problem, Tactic, Want};
use planish_tensor::Tensor;

use self::region::Convolution;
use super::product::finish::Finish;
use super::product::{self, Amount, Math, Split, Way};
use super::wproduct::trials;
use crate::backend::Cuda;
use crate::codegen;
use crate::driver::Module;
use crate::family::{Family, Work};
use crate::formats::Format;
use crate::gpu::Gpu;
use crate::launch::{Launch, Launches, Params};
use crate::offline::Trial;
use crate::source::Source;

const KERNEL: &str = include_str!("../../kernels/conv.cu");

/// Threads of the kernel that adds parts up.
const REDUCE_THREADS: u32 = 128;

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

    fn layout(self) -> Layout {
        match self {
            Reading::Wide | Reading::Cached | Reading::Strided => Layout::ChannelsLast,
            Reading::Plain => Layout::Plain,
        }
    }
}

/// As `Conv` in conv.cu.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Arguments {
    finish: Finish,
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
    tiles_m: i32,
    tiles_n: i32,
    split: i32,
}

/// All convolutions; depthwise ones have kernels of their own that are faster.
pub(crate) struct Conv;

impl Conv {
    fn found(&self, problem: &Problem, tactic: &Tactic) -> Result<(Convolution, Reading, Way), KernelError> {
        let reading = Reading::ALL.into_iter().find(|reading| tactic.name.starts_with(reading.name()));
        let way = product::way_of(tactic, reading.map_or("conv_", Reading::name))?;
        let convolution = Convolution::of(problem)?;
        Ok((convolution, reading.unwrap_or(Reading::Wide), way))
    }
}

/// Packed weights of one format are the same for every tile.
pub(super) fn format_of(math: Math) -> String {
    Format::Conv { per_chunk: math.per_chunk() }.name()
}

/// The weight as all convolutions read it.
pub(super) fn pack_rows(
    convolution: &Convolution,
    math: Math,
    problem: &Problem,
    tactic: &Tactic,
    input: usize,
    weight: &Tensor,
) -> Result<PackedWeight, KernelError> {
    if input != convolution.weight || weight.shape() != problem.inputs[input].dims {
        return Err(KernelError::unsupported(format!("{tactic} packs its weight alone")));
    }
    let rows = convolution.packing(math);
    let bytes = product::arrange(weight, math.dtype(), rows.len(), |idx| rows.place(idx))?;
    Ok(PackedWeight { format: format_of(math), bytes })
}

impl Family for Conv {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem) -> Vec<Candidate> {
        let Ok(convolution) = Convolution::of(problem) else { return Vec::new() };
        let x = &problem.inputs[convolution.x];
        let weight = &problem.inputs[convolution.weight];
        if !weight.constant || problem.outputs[0].is_empty() {
            return Vec::new();
        }
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
                let mut packed = vec![None; problem.inputs.len()];
                packed[convolution.weight] = Some(format_of(math));
                let (inputs, outputs) = wants(&convolution, problem, reading);
                let amount = Amount {
                    m: convolution.m(),
                    n: convolution.n,
                    k: convolution.k(),
                    count: convolution.groups,
                    bytes: problem.traffic_bytes(),
                    strided: !reading.in_chunks(),
                };
                for way in Way::all(gpu, math, amount.m, amount.n, amount.k) {
                    candidates.push(Candidate {
                        tactic: Tactic::new(format!("{}{}", reading.name(), way.name()), product::REVISION),
                        inputs: inputs.clone(),
                        outputs: outputs.clone(),
                        packed: packed.clone(),
                        predicted_ns: amount.price_ns(gpu, &way),
                        in_place: Vec::new(),
                        slow: false,
                    });
                }
            }
        }
        product::best_of(candidates, product::MOST_CANDIDATES)
    }

    fn pack(
        &self,
        _gpu: &Gpu,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        let (convolution, _, way) = self.found(problem, tactic)?;
        pack_rows(&convolution, way.math, problem, tactic, input, weight)
    }

    fn sources(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (convolution, reading, way) = self.found(problem, tactic)?;
        let x = &problem.inputs[convolution.x];
        let Some(x_type) = codegen::storage_type(x.dtype) else {
            return Err(KernelError::unsupported(format!("{tactic} does not read {}", x.dtype)));
        };
        let text = format!("{}\n{}\n{KERNEL}", product::BLOCK, convolution.ending.text(problem)?);
        let mut source = Source::new("conv.cu", text, "conv");
        if let Split::Memory(_) = way.split {
            source = source.entry("conv_reduce");
        }
        let few = if convolution.c <= 4 { convolution.c } else { 0 };
        let source = product::with_way(source, &way)
            .define("X_T", x_type)
            .define("X_WIDE", u32::from(reading.in_chunks()))
            .define("X_CACHED", u32::from(reading == Reading::Cached))
            .define("MANY_TAPS", u32::from(convolution.n_taps() > 32))
            .define("FEW_C", few);
        Ok(vec![convolution.ending.define(source, problem, &convolution.rows())])
    }

    fn prepare(
        &self,
        _cuda: &Cuda,
        problem: &Problem,
        tactic: &Tactic,
        code: &[Arc<Module>],
    ) -> Result<Box<dyn Work>, KernelError> {
        let (convolution, reading, way) = self.found(problem, tactic)?;
        let refuse = |what: &str| Err(KernelError::unsupported(format!("{tactic}: {what}")));
        if problem.inputs[convolution.weight].packed.as_deref() != Some(&*format_of(way.math)) {
            return refuse("its weight is not packed");
        }
        let pixels = Pixels::of(&problem.inputs[convolution.x]);
        if reading.in_chunks() && !pixels.in_chunks(&convolution, problem, way.math) {
            return refuse("its input does not lie in chunks of 16 bytes");
        }
        let [module] = code else { return refuse("one module is needed") };
        let arguments = convolution.arguments(problem, &way, &pixels)?;
        let tiles = arguments.tiles_m as usize * arguments.tiles_n as usize * convolution.groups;
        let params = || {
            let params = Params::new().input(convolution.x).input(convolution.weight);
            convolution.ending.arguments(params).value(arguments)
        };
        let parts = way.split.parts();
        let blocks = tiles * parts as usize;
        let launch = Launch::line(module.function("conv")?, blocks, way.tile.threads(), params())
            .with_shared(way.tile.shared_bytes())?
            .programmatic();
        Ok(match way.split {
            Split::None => Launches::one(launch),
            Split::Cluster(_) => Launches::one(launch.with_cluster([parts, 1, 1])),
            Split::Memory(_) => {
                let rows = convolution.groups * convolution.m();
                let columns = arguments.tiles_n as usize * way.tile.bn as usize;
                let groups = rows * convolution.n.div_ceil(8);
                let blocks = groups.div_ceil(REDUCE_THREADS as usize);
                let reduce = Launch::line(module.function("conv_reduce")?, blocks, REDUCE_THREADS, params())
                    .programmatic();
                let workspace = parts as usize * rows * columns * 4;
                Box::new(Launches { launches: vec![launch, reduce], workspace })
            }
        })
    }

    fn samples(&self) -> Vec<Problem> {
        region::samples()
    }

    fn trials(&self) -> Vec<Trial> {
        let all = trials::convolutions().into_iter().chain(trials::gathered());
        region::samples().into_iter().chain(all).map(Trial::new).collect()
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

/// Images channels-last but for the input of a plain reading, the rest dense.
pub(super) fn wants(
    convolution: &Convolution,
    problem: &Problem,
    reading: Reading,
) -> (Vec<Want>, Vec<Want>) {
    let image = &problem.outputs[0].dims;
    let mut inputs: Vec<Want> = problem
        .inputs
        .iter()
        .map(|operand| match operand.dims == *image && !operand.constant {
            true => Want::inside(Layout::ChannelsLast),
            false => Want::dense(Layout::Plain),
        })
        .collect();
    inputs[convolution.x] = Want::inside(reading.layout());
    inputs[convolution.weight] = Want::dense(Layout::Plain);
    (inputs, vec![Want::inside(Layout::ChannelsLast)])
}
