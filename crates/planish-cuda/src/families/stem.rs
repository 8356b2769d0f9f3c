//! Convolutions of few channels, the first layers of networks, on tensor cores: a tile's pixels come into shared
//! memory once, and fragments are taken from there as they lie. The image may be of another real type than what
//! is multiplied: a cast in front of the convolution is part of the region then.

mod tile;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use planish_gpu::args::{self, ArgBytes};
use planish_gpu::{codegen, kernel_args};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Ref, Tactic, Want};
use planish_op::Op;
use planish_tensor::DType;

use self::tile::Tile;
use super::conv::region::Convolution;
use super::product::epilogue::TileEpilogueArgs;
use super::product::{self, Math, Offer};
use crate::family::{Family, Ready, Work};
use crate::formats::{Format, Packing};
use crate::gpu::Gpu;
use crate::launch::{self, Launch, Launches, Params};
use crate::source::Source;

const EPILOGUE: &str = include_str!("../../kernels/epilogue.cuh");
const BLOCK: &str = include_str!("../../kernels/epilogue_row.cuh");
const KERNEL: &str = include_str!("../../kernels/stem.cu");

const PREFIX: &str = "stem_";
/// Raised when the kernel changes.
const REVISION: u32 = 3;
/// More channels come in chunks that other families copy at once.
const MAX_CHANNELS: usize = 7;
/// The longest row of weights: fragments' places are registers.
const MAX_ROW: usize = 512;

kernel_args! {
    /// What stem.cu is given. Spatial sizes are of depth, row and column.
    struct StemArgs {
        epilogue: TileEpilogueArgs,
        sn: i64,
        sc: i32,
        ss: [i32; 3],
        size: [i32; 3],
        out: [i32; 3],
        pad: [i32; 3],
        tiles: [i32; 3],
        n_tiles: i32,
        n: i32,
    }
}

/// First layers.
pub(crate) struct StemFamily;

/// The problem without a cast of the image in front, and the image's own type.
fn without_cast(problem: &Problem) -> Option<(Cow<'_, Problem>, DType)> {
    let first = problem.region.nodes.first()?;
    let Op::Cast(cast) = &first.op else {
        let Some(Some(Ref::Input(x))) = first.inputs.first() else { return None };
        return Some((Cow::Borrowed(problem), problem.inputs.get(*x as usize)?.dtype));
    };
    let Some(Some(Ref::Input(x))) = first.inputs.first().copied() else { return None };
    let mut inner = problem.clone();
    inner.region.nodes.remove(0);
    let mut n_uses = 0;
    let mut replace = |reference: &mut Ref| {
        if let Ref::Node { node, .. } = reference {
            match node.checked_sub(1) {
                Some(before) => *node = before,
                None => {
                    *reference = Ref::Input(x);
                    n_uses += 1;
                }
            }
        }
    };
    for node in &mut inner.region.nodes {
        node.inputs.iter_mut().flatten().for_each(&mut replace);
    }
    inner.region.outputs.iter_mut().for_each(&mut replace);
    let operand = inner.inputs.get_mut(x as usize)?;
    let dtype = std::mem::replace(&mut operand.dtype, cast.to);
    (n_uses == 1 && matches!(dtype, DType::F32 | DType::F16 | DType::BF16))
        .then_some((Cow::Owned(inner), dtype))
}

/// A region as a first layer.
struct First<'a> {
    problem: Cow<'a, Problem>,
    convolution: Convolution,
    /// The image's type in memory.
    dtype: DType,
    /// Elements of a packed row of weights.
    row: usize,
}

impl First<'_> {
    fn of(problem: &Problem) -> Result<First<'_>, KernelError> {
        let refuse = |what: &str| KernelError::unsupported(format!("stem: {what}"));
        let (problem, dtype) = without_cast(problem).ok_or_else(|| refuse("no convolution of an input"))?;
        let convolution = Convolution::of(&problem)?;
        let weight = &problem.inputs[convolution.weight];
        let Some(rows) = Format::Stem.rows(&weight.dims) else { return Err(refuse("its weight's sizes")) };
        let suits = convolution.groups == 1
            && convolution.c <= MAX_CHANNELS
            && convolution.axes.iter().all(|axis| axis.dilation == 1)
            && weight.constant
            && weight.dtype == problem.inputs[convolution.x].dtype
            && !problem.outputs[0].is_empty()
            && rows.row <= MAX_ROW;
        if !suits {
            return Err(refuse("other than a few channels in one group"));
        }
        let row = rows.row;
        Ok(First { problem, convolution, dtype, row })
    }

    fn math(&self, gpu: &Gpu) -> Option<Math> {
        let stored = self.problem.inputs[self.convolution.weight].dtype;
        let all = Math::of(gpu, &self.problem, stored);
        all.into_iter().find(|math| matches!(math, Math::F16 | Math::BF16))
    }

    /// Asynchronous copies have 4 bytes at least.
    fn may_look_ahead(&self, gpu: &Gpu) -> bool {
        gpu.sm >= 80 && self.dtype == DType::F32
    }

    fn wants(&self, layout: Layout) -> (Vec<Want>, Vec<Want>) {
        self.convolution.wants(&self.problem, Want::inside(layout))
    }
}

fn found<'a>(problem: &'a Problem, tactic: &Tactic) -> Result<(First<'a>, Math, Tile), KernelError> {
    let (math, tile) = product::half_way_of(tactic, PREFIX, Tile::named)?;
    let first = First::of(problem)?;
    if first.problem.inputs[first.convolution.weight].dtype != math.dtype() {
        return Err(KernelError::unsupported(format!("{tactic}: a weight of another type")));
    }
    Ok((first, math, tile))
}

impl Family for StemFamily {
    fn name(&self) -> &'static str {
        "stem"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Ok(first) = First::of(problem) else { return Vec::new() };
        let Some(math) = first.math(gpu) else { return Vec::new() };
        let mut packed = vec![None; problem.inputs.len()];
        packed[first.convolution.weight] = Some(Format::Stem.name());
        let candidate = |tile: Tile| {
            let (inputs, outputs) = first.wants(tile.layout());
            let offer = Offer { inputs, outputs, packed: packed.clone() };
            let ns = tile.price_ns(gpu, &first.convolution, first.row, problem.traffic_bytes());
            offer.candidate(product::half_name(PREFIX, math, &tile.name()), REVISION, ns)
        };
        // The best in each layout: which of them costs nothing is for the planner to say.
        let mut all = Vec::new();
        for ahead in [false, true].into_iter().filter(|ahead| !ahead || first.may_look_ahead(gpu)) {
            let tiles = Tile::all(gpu, &first.convolution, first.row, ahead);
            let (last, plain): (Vec<Tile>, Vec<Tile>) = tiles.into_iter().partition(|tile| tile.last);
            for tiles in [plain, last] {
                let tiles = tiles.into_iter().map(&candidate).collect();
                all.extend(product::best_of(tiles, budget.per_group, budget));
            }
        }
        all
    }

    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let (first, math, _) = found(problem, tactic)?;
        let input = first.convolution.weight;
        Ok(Some(Packing { input, format: Format::Stem, dtype: math.dtype() }))
    }

    fn sources(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (first, math, tile) = found(problem, tactic)?;
        let Some(x_type) = codegen::storage_type(first.dtype) else {
            return Err(KernelError::unsupported(format!("{tactic} does not read {}", first.dtype)));
        };
        if tile.ahead && !first.may_look_ahead(gpu) {
            return Err(KernelError::unsupported(format!("{tactic} does not look ahead at {}", first.dtype)));
        }
        let First { problem, convolution, row, .. } = &first;
        let epilogue = &convolution.epilogue;
        let text =
            [&*args::text_of::<StemArgs>(), EPILOGUE, &epilogue.text(problem)?, BLOCK, KERNEL].join("\n");
        let mut source = Source::new("stem.cu", text, "stem")
            .define("X_T", x_type)
            .define("TIN", math.name_in_c())
            .define("X_LAST", u32::from(tile.last))
            .define("CHANNELS", convolution.c)
            .define("MT", tile.fragments())
            .define("BN", tile.bn)
            .define("MIN_BLOCKS", tile.room(gpu, convolution, *row))
            .define("AHEAD", u32::from(tile.ahead))
            .define("EARLY", 0);
        for (idx, name) in ["D", "H", "W"].into_iter().enumerate() {
            source = source
                .define(&format!("K{name}"), convolution.axes[idx].kernel)
                .define(&format!("S{name}"), convolution.axes[idx].stride)
                .define(&format!("T{name}"), tile.size[idx]);
        }
        Ok(vec![epilogue.define(source, problem, &convolution.rows())])
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { cuda, problem, tactic, .. } = *ready;
        let (first, _, tile) = found(problem, tactic)?;
        let First { problem, convolution, row, .. } = &first;
        let x = &problem.inputs[convolution.x];
        if x.span_bytes() >= 1 << 31 {
            return ready.refuse("an image of 2 GiB or more");
        }
        let mut ss = [0; 3];
        for (to, from) in ss[3 - convolution.spatial..].iter_mut().zip(&x.strides[2..]) {
            *to = *from as i32;
        }
        let tiles = tile.counts(convolution);
        let n_tiles = tile.n_tiles(convolution);
        let axes = &convolution.axes;
        let arguments = StemArgs {
            epilogue: convolution.epilogue.args(problem, &convolution.rows()),
            sn: x.strides[0] as i64,
            sc: x.strides[1] as i32,
            ss,
            size: [0, 1, 2].map(|axis| axes[axis].input as i32),
            out: [0, 1, 2].map(|axis| axes[axis].output as i32),
            pad: [0, 1, 2].map(|axis| axes[axis].pad_begin as i32),
            tiles: tiles.map(|count| count as i32),
            n_tiles: i32::try_from(n_tiles).map_err(|_| KernelError::unsupported("2^31 tiles or more"))?,
            n: convolution.n as i32,
        };
        let params = Params::new().input(convolution.x).input(convolution.weight);
        let params = convolution.epilogue.addresses(params).structure(&ArgBytes::of(&arguments));
        let function = ready.module()?.function("stem")?;
        let shared = tile.shared_bytes(convolution, *row);
        let columns = convolution.n.div_ceil(tile.bn);
        // As many as there is room for go from tile to tile.
        let room = launch::room(cuda.gpu(), &function, tile::THREADS, shared)?;
        let blocks = n_tiles.min(room.div_ceil(columns)) as u32;
        let grid = [blocks, columns as u32, 1];
        let launch =
            Launch::new(function, grid, [tile::THREADS, 1, 1], params).with_shared(shared)?.programmatic();
        Ok(Launches::one(launch))
    }
}
