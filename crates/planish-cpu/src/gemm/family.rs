//! MatMul and Gemm as tactics: which matrices a region multiplies, and how weights are packed for it.
//!
//! A rank-1 operand is a matrix of one row or column. Leading dimensions are batches, broadcast as ONNX says;
//! where B is one matrix for all of them, the batches of A are further rows of one large product.

use planish_kernel::pointwise::{Epilogue, Program};
use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, Layout, Numeric, Operand, PackedWeight, Problem, Ref,
    Tactic, Want, WeightUse, product_sizes,
};
use planish_op::Op;
use planish_tensor::{Bytes, DType, Tensor};

use super::bf16::{self, MultiplyBf16};
use super::{
    BatchDim, Block, BlockHook, Blocks, BlocksCall, EpilogueCall, GemmCall, GemmPlan, GemmProblem,
    MAX_BATCH_DIMS, MatrixA, MatrixB, PackedB, Strides, Tile,
};
use crate::conv::bf16::{Bf16Tile, pack as pack_pairs};
use crate::conv::cost;
use crate::conv::geometry::Geometry;
use crate::conv::igemm::{Igemm, TileKernel};
use crate::conv::quantized::Arrangement;
use crate::family::{Family, Work};
use crate::formats::Format;
use crate::isa::Isa;
use crate::pointwise::Pointwise;
use crate::pointwise::cost::cost_per_element;
use crate::shared::Shared;
use crate::team::Team;

/// The family of matrix products.
pub(crate) struct GemmFamily;

/// Raised when a change makes old timings or packed weights meaningless.
const REVISION: u32 = 3;

/// Cycles a nanosecond of the machines that the tiles were measured on.
const CYCLES_PER_NS: f64 = 3.6;
/// Nanoseconds that a product takes whatever its sizes.
const START_NS: f64 = 300.0;
/// How much longer the plain fallback takes than one multiply and add of a vector a cycle.
const PORTABLE_FACTOR: f64 = 4.0;

/// The matrices of a region whose first node is a product.
pub(crate) struct Product {
    a: usize,
    pub(crate) b: usize,
    trans_a: bool,
    pub(crate) trans_b: bool,
    epilogue: Epilogue,
}

impl Product {
    pub(crate) fn of(problem: &Problem) -> Option<Product> {
        let node = problem.region.nodes.first()?;
        let (trans_a, trans_b) = match &node.op {
            Op::MatMul(_) => (false, false),
            Op::Gemm(gemm) => (gemm.trans_a, gemm.trans_b),
            _ => return None,
        };
        let input = |place: usize| match node.inputs.get(place).copied().flatten() {
            Some(Ref::Input(idx)) => Some(idx as usize),
            _ => None,
        };
        let (a, b) = (input(0)?, input(1)?);
        let [output] = &problem.outputs[..] else { return None };
        let floats = [&problem.inputs[a], &problem.inputs[b], output].iter().all(|o| o.dtype == DType::F32);
        let ranked = problem.inputs[a].rank() > 0 && problem.inputs[b].rank() > 0;
        if !floats || !ranked {
            return None;
        }
        let mut epilogue = Epilogue::of(problem, 0).ok()?;
        if epilogue.residual.is_some_and(|residual| residual.after_clamp) {
            // The tile adds before it clamps; a program can do both in any order.
            let program = Program::epilogue(problem, 0).ok()?;
            epilogue = Epilogue { program: Some(program), ..Epilogue::NONE };
        }
        Some(Product { a, b, trans_a, trans_b, epilogue })
    }

    /// The work of a product whose B is of small integers.
    pub(crate) fn of_blocks(
        self,
        isa: Isa,
        tile: Tile,
        problem: &Problem,
        blocks: Blocks,
        operands: BlockOperands,
    ) -> Result<Multiply, KernelError> {
        let posed = GemmProblem { b: MatrixB::Blocks(blocks), ..self.pose(problem)? };
        Ok(Multiply { blocks: Some(operands), ..self.work(isa, tile, problem, posed)? })
    }

    fn work(
        self,
        isa: Isa,
        tile: Tile,
        problem: &Problem,
        posed: GemmProblem,
    ) -> Result<Multiply, KernelError> {
        Ok(Multiply {
            plan: GemmPlan::with_tile(posed, isa, tile),
            rest: self.rest(isa, problem)?,
            residual_stride: self.residual_stride(problem, posed.n),
            a: self.a,
            b: self.b,
            blocks: None,
            epilogue: self.epilogue,
        })
    }

    /// Nanoseconds of the pointwise nodes that the tile does not know.
    fn rest_ns(&self, isa: Isa, problem: &Problem) -> f64 {
        self.epilogue.program.as_ref().map_or(0.0, |program| {
            let n_elements = problem.outputs[0].len() as f64 / problem.threads.max(1) as f64;
            n_elements * cost_per_element(program) * 16.0 / isa.lanes() as f64
        })
    }

    /// Nanoseconds of a posed product with this tile, by the cost model.
    pub(crate) fn predicted_ns(&self, isa: Isa, tile: Tile, problem: &Problem, posed: GemmProblem) -> f64 {
        let cycles_per_ns =
            if isa.name() == "portable" { CYCLES_PER_NS / PORTABLE_FACTOR } else { CYCLES_PER_NS };
        let cycles = GemmPlan::with_tile(posed, isa, tile).expected_cycles(problem.threads);
        START_NS + cycles / cycles_per_ns + self.rest_ns(isa, problem)
    }

    /// Rows, columns and depth of one product.
    pub(crate) fn sizes(&self, problem: &Problem) -> (usize, usize, usize) {
        let (a, b) = (&problem.inputs[self.a].dims, &problem.inputs[self.b].dims);
        product_sizes(a, b, self.trans_a, self.trans_b)
    }

    /// Whether B is one constant matrix, which can be packed.
    fn packs(&self, problem: &Problem) -> bool {
        let b = &problem.inputs[self.b];
        b.constant && b.rank() == 2 && !b.is_empty()
    }

    /// Names the arrangement of a packed B.
    fn format(&self, tile: Tile) -> String {
        Format::Matrix { panels: tile.into(), transposed: self.trans_b }.name()
    }

    /// The same of pairs of bf16.
    fn format_of_pairs(&self, tile: Bf16Tile) -> String {
        let arrangement = Arrangement::Matrix { transposed: self.trans_b };
        Format::Pairs { panels: tile.panels(), arrangement }.name()
    }

    /// The product as a convolution, where factors may be rounded and tiles of bf16 take it.
    fn rounded(&self, problem: &Problem, posed: &GemmProblem) -> Option<Geometry> {
        let residual = self.epilogue.residual.map(|_| self.residual_stride(problem, posed.n));
        bf16::geometry(posed, residual).filter(|_| problem.numeric == Numeric::BF16)
    }

    /// Where the elements of the constant matrix B lie in its tensor.
    pub(crate) fn strides(&self, problem: &Problem) -> Strides {
        let columns_stored = problem.inputs[self.b].dims[1];
        if self.trans_b { Strides { k: 1, n: columns_stored } } else { Strides { k: columns_stored, n: 1 } }
    }

    /// The product with the operands' strides.
    pub(crate) fn pose(&self, problem: &Problem) -> Result<GemmProblem, KernelError> {
        let refuse = |what: &str| Err(KernelError::unsupported(format!("gemm: {what}")));
        let (m, n, k) = self.sizes(problem);
        let (a, b, c) = (&problem.inputs[self.a], &problem.inputs[self.b], &problem.outputs[0]);
        // Matrices of one row or column take the stride that suits.
        let (a_row, a_col) = match (a.rank(), self.trans_a) {
            (1, _) => (k.max(1) * a.strides[0].max(1), a.strides[0]),
            (rank, false) => (a.strides[rank - 2], a.strides[rank - 1]),
            (rank, true) => (a.strides[rank - 1], a.strides[rank - 2]),
        };
        let matrix_a = if a_col == 1 || k <= 1 {
            MatrixA::Rows { stride: a_row }
        } else if a_row == 1 || m <= 1 {
            MatrixA::Columns { stride: a_col }
        } else {
            return refuse("neither rows nor columns of A are contiguous");
        };
        let matrix_b = if b.packed.is_some() {
            MatrixB::Packed
        } else {
            let (b_row, b_col) = match (b.rank(), self.trans_b) {
                (1, _) => (b.strides[0], 1),
                (rank, false) => (b.strides[rank - 2], b.strides[rank - 1]),
                (rank, true) => (b.strides[rank - 1], b.strides[rank - 2]),
            };
            if b_col == 1 || n <= 1 {
                MatrixB::Rows { stride: b_row }
            } else if b_row == 1 || k <= 1 {
                MatrixB::Columns { stride: b_col }
            } else {
                return refuse("neither rows nor columns of B are contiguous");
            }
        };
        let (a_tail, b_tail) = (a.rank().min(2), if b.packed.is_some() { 2 } else { b.rank().min(2) });
        let (has_rows, has_columns) = (a.rank() > 1, b.rank() > 1);
        let c_tail = usize::from(has_rows) + usize::from(has_columns);
        if c.rank() < c_tail {
            return refuse("the output's rank");
        }
        let n_batch = c.rank() - c_tail;
        let (c_row, c_col) = match (has_rows, has_columns) {
            (true, true) => (c.strides[c.rank() - 2], c.strides[c.rank() - 1]),
            (true, false) => (c.strides[c.rank() - 1], 1),
            (false, true) => (n, c.strides[c.rank() - 1]),
            (false, false) => (1, 1),
        };
        if c_col != 1 && n > 1 {
            return refuse("rows of the output are not contiguous");
        }
        let residual = self.epilogue.residual.map(|residual| &problem.inputs[residual.input as usize]);
        if residual
            .is_some_and(|r| r.dims != c.dims || (c.rank() > 0 && r.strides[c.rank() - 1] != 1 && n > 1))
        {
            return refuse("rows of the residual are not contiguous");
        }
        // The stride of an operand along a batch dimension of the output, 0 where it is broadcast.
        let along = |operand: &Operand, tail: usize, axis: usize| {
            let own = (operand.rank() - tail + axis).checked_sub(n_batch);
            own.filter(|&own| operand.dims[own] != 1).map_or(0, |own| operand.strides[own])
        };
        let mut dims: Vec<BatchDim> = (0..n_batch)
            .map(|axis| BatchDim {
                len: c.dims[axis],
                a: along(a, a_tail, axis),
                b: if b.packed.is_some() { 0 } else { along(b, b_tail, axis) },
                c: c.strides[axis],
                residual: residual.map_or(0, |residual| residual.strides[axis]),
            })
            .collect();
        let residual_row = match (residual, has_rows, has_columns) {
            (Some(r), true, true) => r.strides[r.rank() - 2],
            (Some(r), true, false) => r.strides[r.rank() - 1],
            (Some(_), false, _) | (None, ..) => n,
        };
        // Batches that B does not follow are further rows, where all rows lie evenly.
        let mut m = m;
        if let MatrixA::Rows { stride } = matrix_a
            && has_rows
        {
            while let Some(last) = dims.last() {
                let even = last.b == 0
                    && last.a == m * stride
                    && last.c == m * c_row
                    && (residual.is_none() || last.residual == m * residual_row);
                if !even {
                    break;
                }
                m *= last.len;
                dims.pop();
            }
        }
        dims.retain(|dim| dim.len != 1);
        if dims.len() > MAX_BATCH_DIMS {
            return refuse("too many batch dimensions");
        }
        let mut batch = [BatchDim::ONE; MAX_BATCH_DIMS];
        let unused = MAX_BATCH_DIMS - dims.len();
        batch[unused..].copy_from_slice(&dims);
        Ok(GemmProblem { m, n, k, a: matrix_a, b: matrix_b, c_stride: c_row, batch })
    }

    /// The pointwise nodes that the tile does not know, over blocks of C as a matrix of all its rows.
    pub(crate) fn rest(&self, isa: Isa, problem: &Problem) -> Result<Option<Pointwise>, KernelError> {
        let Some(program) = &self.epilogue.program else { return Ok(None) };
        let axes: Vec<usize> = (0..problem.outputs[0].rank()).collect();
        let b_is_matrix = problem.inputs[self.b].rank() > 1;
        let (rows, columns) = axes.split_at(axes.len() - usize::from(b_is_matrix));
        Pointwise::for_blocks(isa, problem, program, rows, columns).map(Some)
    }

    /// Elements from one row of the residual to the next.
    fn residual_stride(&self, problem: &Problem, n: usize) -> usize {
        let b_is_matrix = problem.inputs[self.b].rank() > 1;
        match self.epilogue.residual.map(|residual| &problem.inputs[residual.input as usize]) {
            Some(r) if r.rank() >= 2 && b_is_matrix => r.strides[r.rank() - 2],
            Some(r) if r.rank() >= 1 && !b_is_matrix => r.strides[r.rank() - 1],
            _ => n,
        }
    }
}

/// Matrices may lie inside larger ones, constants are dense.
pub(crate) fn wants(problem: &Problem) -> Vec<Want> {
    let want = |operand: &Operand| {
        if operand.constant { Want::dense(Layout::Plain) } else { Want::inside(Layout::Plain) }
    };
    problem.inputs.iter().map(want).collect()
}

fn tile_of(isa: Isa, tactic: &Tactic) -> Result<Tile, KernelError> {
    Tile::of(isa).find(|tile| tile.name() == tactic.name).ok_or_else(|| {
        KernelError::new(
            KernelErrorKind::NoSuchTactic,
            format!("no tile `{}`; rebuild the plan", tactic.name),
        )
    })
}

fn product_of(problem: &Problem) -> Result<Product, KernelError> {
    Product::of(problem)
        .ok_or_else(|| KernelError::unsupported("gemm: the region is not a product of matrices"))
}

impl Family for GemmFamily {
    fn name(&self) -> &'static str {
        "gemm"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(product) = Product::of(problem) else { return Vec::new() };
        let Ok(mut posed) = product.pose(problem) else { return Vec::new() };
        if product.rest(isa, problem).is_err() {
            return Vec::new();
        }
        let packs = product.packs(problem);
        if packs {
            posed.b = MatrixB::Packed;
        }
        let rest = product.rest_ns(isa, problem);
        let candidate = |tactic: String, format: String, predicted_ns: f64| {
            let mut packed = vec![None; problem.inputs.len()];
            if packs {
                packed[product.b] = Some(format);
            }
            Candidate {
                packed,
                ..Candidate::new(
                    Tactic::new(tactic, REVISION),
                    wants(problem),
                    vec![Want::inside(Layout::Plain)],
                    predicted_ns,
                )
            }
        };
        let rounded = product.rounded(problem, &posed).filter(|_| packs);
        let rounded = rounded.iter().flat_map(|geometry| {
            Bf16Tile::all(isa).map(|tile| {
                let n_tasks = Igemm::new(geometry.clone(), tile).n_tasks();
                let shape = (tile.mr(), tile.panels(), tile.speed());
                let ns = cost::bf16(geometry, isa, shape, n_tasks, problem.threads);
                candidate(bf16::tactic(tile), product.format_of_pairs(tile), START_NS + ns + rest)
            })
        });
        let exact = Tile::suited(isa, posed.n).map(|tile| {
            let ns = product.predicted_ns(isa, tile, problem, posed);
            candidate(tile.name().to_string(), product.format(tile), ns)
        });
        exact.chain(rounded).collect()
    }

    fn pack(&self, isa: Isa, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let WeightUse { problem, tactic, input } = used;
        let product = product_of(problem)?;
        if input != product.b || weight.shape() != problem.inputs[product.b].dims {
            return Err(KernelError::unsupported("gemm: only the second matrix is packed"));
        }
        let (_, n, k) = product.sizes(problem);
        let elements =
            weight.elements::<f32>().map_err(|error| KernelError::unsupported(error.to_string()))?;
        let (format, packed) = if let Some(tile) = bf16::tile_of(isa, &tactic.name) {
            let tile = tile?;
            let filter = bf16::filter(k, n, product.trans_b);
            let packed = pack_pairs(&filter, tile.panels(), &elements)
                .ok_or_else(|| KernelError::unsupported(format!("{tactic} does not pack such a matrix")))?;
            (product.format_of_pairs(tile), packed)
        } else {
            let tile = tile_of(isa, tactic)?;
            let layout = PackedB::new(tile, k, n);
            let mut packed = vec![0.0f32; layout.len()];
            layout.pack(&elements, product.strides(problem), &mut packed);
            (product.format(tile), packed)
        };
        let bytes = Bytes::from_vec(packed);
        Ok(PackedWeight { format, bytes })
    }

    fn format(&self, isa: Isa, used: WeightUse<'_>) -> Result<Option<String>, KernelError> {
        let product = product_of(used.problem)?;
        let format = match bf16::tile_of(isa, &used.tactic.name) {
            Some(tile) => product.format_of_pairs(tile?),
            None => product.format(tile_of(isa, used.tactic)?),
        };
        Ok((used.input == product.b && product.packs(used.problem)).then_some(format))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let product = product_of(problem)?;
        let posed = product.pose(problem)?;
        if let Some(tile) = bf16::tile_of(isa, &tactic.name) {
            let tile = tile?;
            let is_packed =
                problem.inputs[product.b].packed.as_deref() == Some(&*product.format_of_pairs(tile));
            let geometry = product.rounded(problem, &posed).filter(|_| is_packed);
            let geometry = geometry
                .ok_or_else(|| KernelError::unsupported(format!("{tactic} does not take these operands")))?;
            return Ok(Box::new(MultiplyBf16 {
                plan: Igemm::new(geometry, tile),
                rest: product.rest(isa, problem)?,
                a: product.a,
                b: product.b,
                epilogue: product.epilogue,
            }));
        }
        Ok(Box::new(product.work(isa, tile_of(isa, tactic)?, problem, posed)?))
    }
}

/// Where the scales and zero points of B are.
#[derive(Debug)]
pub(crate) struct BlockOperands {
    /// An input.
    pub(crate) scales: usize,
    pub(crate) zeros: BlockZeros,
}

/// Zero points of B.
#[derive(Debug)]
pub(crate) enum BlockZeros {
    /// All are 0.
    None,
    Input(usize),
    /// As they are packed.
    Known(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct Multiply {
    plan: GemmPlan,
    rest: Option<Pointwise>,
    a: usize,
    b: usize,
    /// Of a B of small integers.
    blocks: Option<BlockOperands>,
    residual_stride: usize,
    epilogue: Epilogue,
}

/// What the threads of a run share beside the matrices.
struct Operands<'a> {
    inputs: &'a [*const u8],
    /// Of the pointwise nodes, per slot.
    workspace: *mut u8,
}

// SAFETY: inputs are read only, and each thread uses the workspace of its slot.
unsafe impl Sync for Operands<'_> {}

impl Work for Multiply {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        Pointwise::bytes_behind(self.rest.as_ref(), self.plan.workspace_bytes(n_slots), n_slots)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        let input = |idx: Option<u32>| idx.map_or(std::ptr::null(), |idx| inputs[idx as usize].cast::<f32>());
        let after = self.plan.workspace_bytes(team.n_slots()).next_multiple_of(64);
        let operands = Operands { inputs, workspace: workspace.wrapping_add(after) };
        let operands = &operands;
        let m = self.plan.problem().m;
        let run_rest = |rest: &Pointwise, block: &Block| {
            let workspace = operands.workspace.wrapping_add(block.slot * rest.workspace_bytes());
            // Batches are whole blocks of rows, outermost first.
            let rows = block.batch * m + block.rows.start..block.batch * m + block.rows.end;
            let columns = block.columns.clone();
            // SAFETY: the block is the task's own, the slot's workspace this thread's.
            unsafe { rest.run_block(operands.inputs, block.c, block.c_stride, rows, columns, workspace) };
        };
        let hook = self.rest.as_ref().map(|rest| move |block: &Block| run_rest(rest, block));
        let blocks = self.blocks.as_ref().map(|blocks| BlocksCall {
            codes: inputs[self.b],
            scales: inputs[blocks.scales].cast(),
            zeros: match &blocks.zeros {
                BlockZeros::None => std::ptr::null(),
                BlockZeros::Input(idx) => inputs[*idx].cast(),
                BlockZeros::Known(zeros) => zeros.as_ptr().cast(),
            },
        });
        let call = GemmCall {
            a: inputs[self.a].cast(),
            b: inputs[self.b].cast(),
            blocks,
            c: outputs[0].cast(),
            epilogue: EpilogueCall {
                bias: input(self.epilogue.bias),
                residual: input(self.epilogue.residual.map(|residual| residual.input)),
                residual_stride: self.residual_stride,
                lo: self.epilogue.lo,
                hi: self.epilogue.hi,
            },
            hook: hook.as_ref().map(|hook| hook as &BlockHook<'_>),
            workspace: workspace.cast(),
        };
        // SAFETY: the caller grants what the operands span, and the plan was made for their strides.
        unsafe { self.plan.run(&call, team) };
        Ok(())
    }
}
