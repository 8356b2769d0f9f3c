//! Transposed convolutions whose windows lie side by side, with wgmma: each pixel of the image makes all pixels of its
//! window, so all of them are one product whose columns are the output channels of every tap, and the tap says where in
//! the output they go.

#[cfg(test)]
mod tests;

use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};

use super::convtranspose::{Wanted, lies_beside, wanted};
use super::product::epilogue::{Rows, TileEpilogue};
use super::product::{Apart, Math, Offer, half_name};
use super::wproduct::{self, Amount, MAX_TAPS, Setting, Tile, Window};
use crate::family::{Family, Ready, Work};
use crate::formats::{Format, Packing};
use crate::gpu::Gpu;
use crate::source::Source;

const PREFIX: &str = "wtranspose_";

/// Columns that are given out together.
const COLUMNS: usize = 8;

/// Transposed convolutions on Hopper's own units.
pub(crate) struct WTransposeFamily;

/// One product for all taps.
struct Posed {
    /// The problem with one tap's pixels as its output: they lie as far apart as windows.
    tap: Problem,
    /// Where the output of each tap begins, in elements.
    places: Vec<i64>,
    epilogue: TileEpilogue,
    rows: Rows,
    amount: Amount,
}

impl Posed {
    fn of(problem: &Problem, math: Math) -> Result<Posed, KernelError> {
        let refuse = |what: &str| Err(KernelError::unsupported(format!("wtranspose: {what}")));
        let apart = Apart::of(problem)?;
        let Wanted { x, axes, groups, inputs, outputs, .. } =
            wanted(apart.as_ref().map_or(problem, Apart::problem))?;
        let taps: usize = axes.iter().map(|axis| axis.kernel).product();
        if groups != 1 || !axes.iter().all(lies_beside) || taps > MAX_TAPS || problem.outputs[0].is_empty() {
            return refuse("windows that overlap, many taps, or groups");
        }
        let is_typed = problem.inputs[..2].iter().all(|factor| factor.dtype == math.dtype());
        if !outputs.is_multiple_of(COLUMNS) {
            return refuse("output channels that are no multiple of 8");
        }
        let elements = [problem.inputs[0].len(), problem.outputs[0].len()];
        if !is_typed || !inputs.is_multiple_of(math.per_chunk()) || elements.iter().any(|len| *len >= 1 << 31)
        {
            return refuse("channels that are no whole chunks, or 2^31 elements or more");
        }
        let epilogue = TileEpilogue::of(problem, apart.as_ref())?;
        if epilogue.residual().is_some() || epilogue.reads_more() {
            return refuse("further operands after the sum");
        }
        let spatial = x.rank() - 2;
        let sizes = axes.map(|axis| axis.output);
        let axis = |idx: usize| (idx + spatial).checked_sub(3).map(|idx| idx + 2);
        let rows = Rows {
            sizes: [x.dims[0], sizes[0], sizes[1], sizes[2]],
            axes: [Some(0), axis(0), axis(1), axis(2)],
            column: Some(1),
            group: COLUMNS,
            first: 0,
        };
        let mut tap = problem.clone();
        let out = &mut tap.outputs[0];
        let mut places = vec![0];
        for (idx, placed) in axes[3 - spatial..].iter().enumerate() {
            let step = out.strides[2 + idx];
            let along = |place: i64| (0..placed.kernel).map(move |at| place + (at * step) as i64);
            places = places.into_iter().flat_map(along).collect();
            out.dims[2 + idx] = placed.output;
            out.strides[2 + idx] *= placed.stride;
        }
        let bytes = problem.inputs[..2].iter().map(|factor| factor.span_bytes()).sum();
        let m = x.len() / inputs;
        let amount = Amount { m, n: taps * outputs, taps: 1, c: wproduct::places(math, inputs), bytes };
        Ok(Posed { tap, places, epilogue, rows, amount })
    }

    fn setting(&self, math: Math, tile: Tile) -> Setting<'_> {
        Setting {
            problem: &self.tap,
            epilogue: &self.epilogue,
            rows: self.rows,
            math,
            tile,
            kind: 0,
            n: self.amount.n,
            c: self.amount.c,
            b_weight: true,
            out_taps: &self.places,
        }
    }
}

fn packing(math: Math) -> Packing {
    Packing { input: 1, format: Format::TapsOutIn, dtype: math.dtype() }
}

/// Accumulators that come from a cluster have another way out.
fn fits(tile: &Tile) -> bool {
    tile.split == 1
}

fn found(problem: &Problem, tactic: &Tactic) -> Result<(Posed, Math, Tile), KernelError> {
    let (math, tile) = wproduct::way_of(tactic, PREFIX)?;
    match fits(&tile) {
        true => Ok((Posed::of(problem, math)?, math, tile)),
        false => Err(KernelError::unsupported(format!("{tactic}: sums shared by a cluster"))),
    }
}

impl Family for WTransposeFamily {
    fn name(&self) -> &'static str {
        "wtranspose"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Some(weight) = problem.inputs.get(1).filter(|weight| weight.constant) else { return Vec::new() };
        let Some(math) = wproduct::math(gpu, problem, weight.dtype) else { return Vec::new() };
        let Ok(Posed { amount, .. }) = Posed::of(problem, math) else { return Vec::new() };
        let rank = problem.outputs[0].rank();
        let mut inputs: Vec<Want> =
            problem.inputs.iter().map(|input| Want::following(input, rank, Layout::ChannelsLast)).collect();
        inputs[0] = Want::inside_aligned(Layout::ChannelsLast);
        inputs[1] = Want::dense(Layout::Plain);
        let offer = Offer {
            inputs,
            outputs: vec![Want::inside(Layout::ChannelsLast)],
            packed: Packing::of_inputs(Some(packing(math)), problem),
        };
        let candidate = |tile: Tile| {
            let name = half_name(PREFIX, math, &tile.name());
            offer.candidate(name, wproduct::REVISION, amount.price_ns(gpu, &tile))
        };
        let tiles = Tile::all(gpu, amount.m, amount.n, 1, amount.c).into_iter().filter(fits);
        wproduct::best_of(tiles.map(candidate).collect(), budget)
    }

    fn packing(&self, _problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        Ok(Some(packing(wproduct::way_of(tactic, PREFIX)?.0)))
    }

    fn sources(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (posed, math, tile) = found(problem, tactic)?;
        Ok(vec![posed.setting(math, tile).source(gpu)?])
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { cuda, problem, tactic, .. } = *ready;
        let (posed, math, tile) = found(problem, tactic)?;
        let Some(pitch) = wproduct::pixel_pitch(&problem.inputs[0], math) else {
            return ready.refuse("an image that does not lie as TMA asks");
        };
        let setting = posed.setting(math, tile);
        let Amount { m, c, .. } = posed.amount;
        let factors = [(0, wproduct::spaced_rows_map(c, m, pitch, tile.bk, tile.bm)), (1, setting.map_b(c))];
        setting.launch(cuda.gpu(), ready.module()?, factors, &posed.amount, Window::NONE)
    }
}
