//! Matrix products with wgmma: rows of A with k innermost, and B packed, or stored with k innermost. Leading
//! dimensions of A are further rows.

use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Tactic, Want};

use super::gemm::region::Product;
use super::product::epilogue::Rows;
use super::product::{Math, Offer};
use super::wproduct::{self, Amount, Setting, Tile, Window};
use crate::family::{Family, Ready, Work};
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::source::Source;

const PREFIX: &str = "wgemm_";

/// Columns that are given out together.
const COLUMNS: usize = 8;

/// Matrix products on Hopper's own units.
pub(crate) struct WGemmFamily;

/// One product of two matrices.
struct Posed {
    product: Product,
    rows: Rows,
    amount: Amount,
}

impl Posed {
    /// The problem as one product; refused where it is several, or matrices lie otherwise.
    fn of(problem: &Problem) -> Result<Posed, KernelError> {
        let refuse = |what: &str| Err(KernelError::unsupported(format!("wgemm: {what}")));
        let product = Product::of(problem)?;
        let (_, n, k) = product.sizes(problem);
        let (a, b, out) = (&problem.inputs[product.a], &problem.inputs[product.b], &problem.outputs[0]);
        if a.rank() < 2 || b.rank() != 2 || product.trans_a || !(product.packs(problem) || product.trans_b) {
            return refuse("matrices that lie otherwise");
        }
        let per_chunk = 128 / a.dtype.bits();
        if !k.is_multiple_of(per_chunk) || k == 0 || out.is_empty() {
            return refuse("rows that are no whole chunks");
        }
        let leading = out.rank() - 1;
        // Rows have four dimensions; those of size 1 need none.
        let axes: Vec<usize> = (0..leading).filter(|axis| out.dims[*axis] != 1).collect();
        if axes.len() > 4 || out.dims[..leading].iter().product::<usize>() * k != a.len() {
            return refuse("too many dimensions");
        }
        let mut rows =
            Rows { sizes: [1; 4], axes: [None; 4], column: Some(leading), group: COLUMNS, first: 0 };
        for (place, axis) in axes.iter().enumerate() {
            rows.sizes[4 - axes.len() + place] = out.dims[*axis];
            rows.axes[4 - axes.len() + place] = Some(*axis);
        }
        let bytes = a.span_bytes() + b.span_bytes();
        // In places of 2 bytes.
        let c = k * a.dtype.bits() / 16;
        let amount = Amount { m: a.len() / k, n, taps: 1, c, bytes };
        Ok(Posed { product, rows, amount })
    }

    fn setting<'a>(&'a self, problem: &'a Problem, math: Math, tile: Tile) -> Setting<'a> {
        let b_weight = problem.inputs[self.product.b].constant;
        let (epilogue, rows) = (&self.product.epilogue, self.rows);
        let Amount { n, c, .. } = self.amount;
        Setting { problem, epilogue, rows, math, tile, kind: 0, n, c, b_weight, out_taps: &[] }
    }
}

/// Bytes from one row of A to the next, where the same for all of them and TMA steps so.
fn row_pitch(a: &Operand) -> Option<u64> {
    let k = a.rank() - 1;
    let rows: usize = a.dims[..k].iter().product();
    // Where there is one row, its stride says nothing.
    let stride = if rows == 1 { a.dims[k] } else { a.run(..k)? };
    let pitch = stride.checked_mul(a.dtype.bytes_for(1)?)?;
    (a.contiguous_along(k) && pitch.is_multiple_of(Want::ALIGNMENT)).then_some(pitch as u64)
}

impl Family for WGemmFamily {
    fn name(&self) -> &'static str {
        "wgemm"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Ok(posed) = Posed::of(problem) else { return Vec::new() };
        let Some(math) = wproduct::math(gpu, problem, problem.inputs[posed.product.b].dtype) else {
            return Vec::new();
        };
        let mut inputs = vec![Want::dense(Layout::Plain); problem.inputs.len()];
        if !problem.inputs[posed.product.a].constant {
            inputs[posed.product.a] = Want::inside_aligned(Layout::Plain);
        }
        let offer = Offer {
            inputs,
            outputs: vec![Want::inside(Layout::Plain)],
            packed: Packing::of_inputs(posed.product.packing(problem, math), problem),
        };
        wproduct::candidates(gpu, PREFIX, math, &posed.amount, &offer, budget)
    }

    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let (math, _) = wproduct::way_of(tactic, PREFIX)?;
        Ok(Posed::of(problem)?.product.packing(problem, math))
    }

    fn sources(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (math, tile) = wproduct::way_of(tactic, PREFIX)?;
        let posed = Posed::of(problem)?;
        Ok(vec![posed.setting(problem, math, tile).source(gpu)?])
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { cuda, problem, tactic, .. } = *ready;
        let (math, tile) = wproduct::way_of(tactic, PREFIX)?;
        let posed = Posed::of(problem)?;
        let (a, b) = (posed.product.a, posed.product.b);
        let packs = posed.product.packs(problem);
        let pitch = row_pitch(&problem.inputs[a]);
        let lies =
            problem.inputs[a].dtype == math.dtype() && (packs || problem.inputs[b].is_dense(Layout::Plain));
        let (true, Some(pitch)) = (lies, pitch) else {
            let message = format!("{tactic}: its matrices do not lie as TMA asks");
            return Err(KernelError::unsupported(message));
        };
        let amount = posed.amount;
        let setting = posed.setting(problem, math, tile);
        let map_a = wproduct::spaced_rows_map(amount.c, amount.m, pitch, tile.bk, tile.bm);
        let factors = [(a, map_a), (b, setting.map_b(amount.c))];
        setting.launch(cuda.gpu(), ready.module()?, factors, &amount, Window::NONE)
    }
}
