//! Matrix products (MatMul, Gemm) on tensor cores, or in f32 on the plain units: batches with broadcasting,
//! transposed factors, and what follows each sum.
//!
//! A constant second factor is packed with k innermost. Other factors are copied in chunks of 16 bytes where k
//! is innermost and aligned, and element by element elsewhere.

pub(super) mod region;

#[cfg(test)]
mod tests;

use planish_gpu::args::ArgBytes;
use planish_gpu::space::int;
use planish_gpu::{codegen, kernel_args};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};

use self::region::{Factor, Posed, Product};
use super::product::epilogue::TileEpilogueArgs;
use super::product::{self, Amount, Cut, Math, Offer, Way};
use crate::family::{Family, Ready, Work};
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::launch::Params;
use crate::source::Source;

const KERNEL: &str = include_str!("../../kernels/gemm.cu");

/// What the names of tactics begin with.
const PREFIX: &str = "gemm_";

kernel_args! {
    /// What gemm.cu is given. `k_b` is where the rows of B end, at least `k`.
    struct GemmArgs {
        epilogue: TileEpilogueArgs,
        a_row: i64,
        a_k: i64,
        a_batch: [i64; 3],
        b_column: i64,
        b_k: i64,
        b_batch: [i64; 3],
        m: i32,
        n: i32,
        k: i32,
        k_b: i32,
        batch: [i32; 3],
        cut: Cut,
    }
}

/// Matrix products.
pub(crate) struct GemmFamily;

impl GemmFamily {
    fn found(&self, problem: &Problem, tactic: &Tactic) -> Result<(Product, Way), KernelError> {
        Ok((Product::of(problem)?, product::way_of(tactic, PREFIX)?))
    }

    /// Whether factors are copied in chunks: fixed by strides, so that the code of a problem is known before it
    /// runs. Addresses are multiples of 16 where operands are dense.
    fn wide(posed: &Posed, math: Math) -> (bool, bool) {
        let per_chunk = math.per_chunk();
        let wide = |factor: &Factor| factor.dtype == math.dtype() && factor.in_chunks(per_chunk, posed.k);
        (wide(&posed.a), wide(&posed.b))
    }
}

impl Family for GemmFamily {
    fn name(&self) -> &'static str {
        "gemm"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Ok(product) = Product::of(problem) else { return Vec::new() };
        if problem.outputs[0].is_empty() {
            return Vec::new();
        }
        let mut candidates = Vec::new();
        for math in Math::of(gpu, problem, problem.inputs[product.b].dtype) {
            let packed = Packing::of_inputs(product.packing(problem, math), problem);
            let mut arranged = problem.clone();
            arranged.inputs[product.b].packed.clone_from(&packed[product.b]);
            let Ok(posed) = product.pose(&arranged, math) else { continue };
            let (a_wide, b_wide) = GemmFamily::wide(&posed, math);
            let amount = Amount {
                m: posed.m,
                n: posed.n,
                k: posed.k,
                count: posed.batch.iter().product(),
                bytes: problem.traffic_bytes(),
                strided: !(a_wide && b_wide),
            };
            let inputs = vec![Want::dense(Layout::Plain); problem.inputs.len()];
            let offer = Offer { inputs, outputs: vec![Want::inside(Layout::Plain)], packed };
            candidates.extend(Way::all(gpu, math, amount.m, amount.n, amount.k).into_iter().map(|way| {
                let name = format!("{PREFIX}{}", way.name());
                offer.candidate(name, product::REVISION, amount.price_ns(gpu, &way))
            }));
        }
        product::best_of(candidates, budget.tiles, budget)
    }

    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let (product, way) = self.found(problem, tactic)?;
        Ok(product.packing(problem, way.math))
    }

    fn sources(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (product, way) = self.found(problem, tactic)?;
        let posed = product.pose(problem, way.math)?;
        let (Some(a_type), Some(b_type)) =
            (codegen::storage_type(posed.a.dtype), codegen::storage_type(posed.b.dtype))
        else {
            return Err(KernelError::unsupported(format!("{tactic} does not read these types")));
        };
        let (a_wide, b_wide) = GemmFamily::wide(&posed, way.math);
        let epilogue = product.epilogue.text(problem)?;
        let source = product::source::<GemmArgs>("gemm.cu", KERNEL, "gemm", &epilogue, &way)
            .define("A_T", a_type)
            .define("B_T", b_type)
            .define("A_WIDE", u32::from(a_wide))
            .define("B_WIDE", u32::from(b_wide))
            .define("B_WEIGHT", u32::from(problem.inputs[product.b].constant));
        Ok(vec![product.epilogue.define(source, problem, &posed.rows)])
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { problem, tactic, .. } = *ready;
        let (product, way) = self.found(problem, tactic)?;
        let posed = product.pose(problem, way.math)?;
        let [b0, b1, b2] = posed.batch;
        let products = posed.products(&way);
        let arguments = GemmArgs {
            epilogue: product.epilogue.args(problem, &posed.rows),
            a_row: posed.a.row as i64,
            a_k: posed.a.k as i64,
            a_batch: posed.a.batch.map(|stride| stride as i64),
            b_column: posed.b.row as i64,
            b_k: posed.b.k as i64,
            b_batch: posed.b.batch.map(|stride| stride as i64),
            m: int(posed.m)?,
            n: int(posed.n)?,
            k: int(posed.k)?,
            k_b: int(posed.k_b)?,
            batch: [int(b0)?, int(b1)?, int(b2)?],
            cut: products.cut()?,
        };
        let params = Params::new().input(product.a).input(product.b);
        let params = product.epilogue.addresses(params).structure(&ArgBytes::of(&arguments));
        products.launch(ready.module()?, "gemm", params)
    }
}
