//! Products of a few rows with a weight that is packed in tiles of 16 columns, read once and as it is stored: what families
//! with such weights share. `kernels/few_rows.cu` has the loop; what a chunk of a tile holds, the family says.

mod way;

pub(super) use way::{Amount, Clocks, Way};

use planish_gpu::epilogue::{EpilogueArgs, EpilogueCode};
use planish_gpu::kernel_args;
use planish_gpu::operands::{refuse, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot, Step};
use planish_gpu::space::{self, Divisor, int};
use planish_kernel::{KernelError, Layout, Problem, Ref};
use planish_op::Op;

use crate::formats::codes::COLUMNS;

const KERNEL: &str =
    concat!(include_str!("../../kernels/few_rows_end.cuh"), include_str!("../../kernels/few_rows.cu"));
const SUM: &str =
    concat!(include_str!("../../kernels/few_rows_end.cuh"), include_str!("../../kernels/few_rows_sum.cu"));

/// Threads of the kernel that adds parts up.
const SUM_THREADS: usize = 128;
/// Neighbouring columns that a thread gives out.
const GIVEN: usize = 4;

kernel_args! {
    /// What few_rows.cu and few_rows_sum.cu are given. A row's number is taken apart by `rows` into the output's leading
    /// axes, whose strides `y_row` are. `n_blocks` is how many blocks a column has, where scales come in blocks.
    struct FewRowsArgs {
        epilogue: EpilogueArgs,
        rows: [Divisor; 3],
        y_row: [i32; 4],
        m: i32,
        n: i32,
        k: i32,
        n_tiles: i32,
        n_chunks: i32,
        n_blocks: i32,
    }
}

/// The rows that a region's first node multiplies with a weight of `k x n`, its input `weight`; refused where matrices lie
/// otherwise than rows beside each other.
pub(super) fn rows_of(problem: &Problem, weight: usize, [n, k]: [usize; 2]) -> Result<usize, KernelError> {
    let (Some(node), [y]) = (problem.region.nodes.first(), &problem.outputs[..]) else {
        return refuse("several outputs");
    };
    let trans_a = matches!(&node.op, Op::Gemm(gemm) if gemm.trans_a);
    let x = match node.inputs[..] {
        [Some(Ref::Input(x)), Some(Ref::Input(b)), ..] if b as usize == weight => x as usize,
        _ => return refuse("a region that begins with something else"),
    };
    let rows = &problem.inputs[x];
    let leading = rows.rank().saturating_sub(1);
    let is_plain = rows.rank() >= 2
        && rows.dims[leading] == k
        && y.rank() == rows.rank()
        && y.dims[..leading] == rows.dims[..leading]
        && y.dims[leading] == n;
    if trans_a || !is_plain {
        return refuse("matrices that lie otherwise");
    }
    Ok(x)
}

/// A product of rows and a weight in tiles.
pub(super) struct FewRows<'a> {
    /// With the strides of its operands.
    pub(super) problem: &'a Problem,
    /// The same region over floats, whose first node is the product.
    pub(super) plain: &'a Problem,
    /// The rows.
    pub(super) x: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// Tiles of columns, chunks of each, and blocks of a column.
    pub(super) n_tiles: usize,
    pub(super) n_chunks: usize,
    pub(super) n_blocks: usize,
    /// Weight, scales and zero points.
    pub(super) addresses: [Arg; 3],
    /// Shared memory of a chunk of a tile.
    pub(super) slot_bytes: usize,
    /// Elements along the sum of a chunk.
    pub(super) depth: usize,
    /// Elements of a lane that are read at once.
    pub(super) share: usize,
    /// Whether lanes read rows that others copied into shared memory: then all rows come there.
    pub(super) shares_rows: bool,
    /// What a chunk holds: the text in front of the loop.
    pub(super) content: &'a str,
}

impl FewRows<'_> {
    pub(super) fn m(&self) -> usize {
        let rows = &self.problem.inputs[self.x].dims;
        rows[..rows.len() - 1].iter().product()
    }

    /// The launches of a way; `told` sets what the content asks for.
    pub(super) fn plan(
        &self,
        way: Way,
        told: impl Fn(KernelCode) -> Result<KernelCode, KernelError>,
    ) -> Result<Plan, KernelError> {
        let (x, y) = (&self.problem.inputs[self.x], &self.problem.outputs[0]);
        if !x.is_dense(Layout::Plain) {
            return refuse("rows that are not dense");
        }
        let is_wide = self.k.is_multiple_of(self.share);
        let may_stage = x.dtype.bits() == 16 && self.k.is_multiple_of(8);
        let own_rows = if may_stage { way.own_rows(self.m(), self.shares_rows) } else { 0 };
        if way.staged && !may_stage {
            return refuse("rows that are not of 16 bits, or begin anywhere");
        }
        if self.shares_rows && !way.staged && own_rows == 0 {
            return refuse("rows that are not in shared memory");
        }
        let leading = y.rank() - 1;
        if leading > 4 || y.strides[leading] != 1 && self.n > 1 {
            return refuse("an output of more than five axes, or whose columns are not neighbours");
        }
        // The last of four coordinates are the output's leading axes.
        let axes: Vec<[usize; 1]> = (0..leading).map(|axis| [axis]).collect();
        let mut rows: [&[usize]; 4] = [&[]; 4];
        let (mut sizes, mut y_row) = ([1; 4], [0; 4]);
        for (axis, own) in axes.iter().enumerate() {
            let place = 4 - leading + axis;
            rows[place] = own;
            sizes[place] = y.dims[axis];
            y_row[place] = int(y.strides[axis])?;
        }
        let after = EpilogueCode::after(self.plain, 0, rows, &[leading], GIVEN)?;
        let m = self.m();
        let numbers = FewRowsArgs {
            epilogue: after.args.clone(),
            rows: [1, 2, 3].map(|place| Divisor::of(sizes[place])),
            y_row,
            m: int(m)?,
            n: int(self.n)?,
            k: int(self.k)?,
            n_tiles: int(self.n_tiles)?,
            n_chunks: int(self.n_chunks)?,
            n_blocks: int(self.n_blocks)?,
        };
        let with_args = |own: Vec<Arg>| -> Vec<Arg> {
            own.into_iter().chain([Arg::of(&numbers)]).chain(after.addresses.iter().cloned()).collect()
        };
        let output = Arg::Address(Slot::Output(0), 0);
        let parts = Arg::Address(Slot::Workspace, 0);
        let text = [self.content, KERNEL].concat();
        let code = told(after.code("few_rows.cu", &text, "few_rows", &numbers))?
            .define("X_T", storage(x)?)
            .define("Y_T", storage(y)?)
            .define("WIDE", u8::from(is_wide))
            .define("ROWS", way.rows)
            .define("TILES", way.tiles)
            .define("WARPS", way.warps)
            .define("STAGED", u8::from(way.staged))
            .define("SCALED", u8::from(way.scaled))
            .define("OWN_ROWS", own_rows)
            .define("TURN", way.sharers())
            .define("AHEAD", way.ahead)
            .define("SPLIT", way.split);
        let mut own = vec![Arg::Address(Slot::Input(self.x), 0)];
        own.extend(self.addresses.iter().cloned());
        own.extend([output.clone(), if way.split > 1 { parts.clone() } else { Arg::Nothing }]);
        let grid =
            [space::blocks(self.n_tiles, way.block_tiles())?, way.split as u32, space::blocks(m, way.rows)?];
        let mut plan = Plan::one(code, grid, 32 * way.warps as u32, with_args(own));
        plan.steps[0].shared = way.shared_bytes(self.slot_bytes, self.depth * x.dtype.bits() / 8, own_rows);
        if way.split > 1 {
            let code = after
                .code("few_rows_sum.cu", SUM, "few_rows_sum", &numbers)
                .define("Y_T", storage(y)?)
                .define("SPLIT", way.split);
            let columns = self.n_tiles * COLUMNS;
            let grid = [space::blocks(m * columns / GIVEN, SUM_THREADS)?, 1, 1];
            plan.steps.push(Step {
                source: 1,
                grid,
                threads: SUM_THREADS as u32,
                shared: 0,
                cluster: 1,
                args: with_args(vec![parts, output]),
            });
            plan.sources.push(code);
            plan.workspace = way.split * m * columns * 4;
        }
        Ok(plan)
    }
}
