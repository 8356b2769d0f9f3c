//! Matrix products (MatMul, Gemm) on tensor cores, or in f32 on the plain units: batches with broadcasting,
//! transposed factors, and what follows each sum.
//!
//! A constant second factor is packed with k innermost. Other factors are copied in chunks of 16 bytes where k
//! is innermost and aligned, and element by element elsewhere.

pub(super) mod region;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use planish_kernel::{Candidate, KernelError, Layout, PackedWeight, Problem, Tactic, Want};
use planish_tensor::Tensor;

use self::region::{Factor, Posed, Product};
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

const KERNEL: &str = include_str!("../../kernels/gemm.cu");

/// Threads of the kernel that adds parts up.
const REDUCE_THREADS: u32 = 128;

/// What the names of tactics begin with.
const PREFIX: &str = "gemm_";

/// As `Gemm` in gemm.cu.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Arguments {
    finish: Finish,
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
    tiles_m: i32,
    tiles_n: i32,
    split: i32,
}

/// Matrix products.
pub(crate) struct Gemm;

pub(super) fn format_of(product: &Product, math: Math) -> String {
    Format::Matrix { per_chunk: math.per_chunk(), transposed: product.trans_b }.name()
}

impl Gemm {
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

impl Family for Gemm {
    fn name(&self) -> &'static str {
        "gemm"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem) -> Vec<Candidate> {
        let Ok(product) = Product::of(problem) else { return Vec::new() };
        if problem.outputs[0].is_empty() {
            return Vec::new();
        }
        let mut candidates = Vec::new();
        for math in Math::of(gpu, problem, problem.inputs[product.b].dtype) {
            let mut packed = vec![None; problem.inputs.len()];
            let mut arranged = problem.clone();
            if product.packs(problem) {
                packed[product.b] = Some(format_of(&product, math));
                arranged.inputs[product.b].packed.clone_from(&packed[product.b]);
            }
            let Ok(posed) = product.pose(&arranged, math) else { continue };
            let (a_wide, b_wide) = Gemm::wide(&posed, math);
            let amount = Amount {
                m: posed.m,
                n: posed.n,
                k: posed.k,
                count: posed.batch.iter().product(),
                bytes: problem.traffic_bytes(),
                strided: !(a_wide && b_wide),
            };
            for way in Way::all(gpu, math, amount.m, amount.n, amount.k) {
                candidates.push(Candidate {
                    tactic: Tactic::new(format!("{PREFIX}{}", way.name()), product::REVISION),
                    inputs: vec![Want::dense(Layout::Plain); problem.inputs.len()],
                    outputs: vec![Want::inside(Layout::Plain)],
                    packed: packed.clone(),
                    predicted_ns: amount.price_ns(gpu, &way),
                    in_place: Vec::new(),
                    slow: false,
                });
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
        let (product, way) = self.found(problem, tactic)?;
        if input != product.b || weight.shape() != problem.inputs[input].dims || weight.shape().len() != 2 {
            return Err(KernelError::unsupported(format!("{tactic} packs its second matrix alone")));
        }
        let rows = product.packing(problem, way.math);
        let bytes = product::arrange(weight, way.math.dtype(), rows.len(), |idx| rows.place(idx))?;
        Ok(PackedWeight { format: format_of(&product, way.math), bytes })
    }

    fn sources(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        let (product, way) = self.found(problem, tactic)?;
        let posed = product.pose(problem, way.math)?;
        let (Some(a_type), Some(b_type)) =
            (codegen::storage_type(posed.a.dtype), codegen::storage_type(posed.b.dtype))
        else {
            return Err(KernelError::unsupported(format!("{tactic} does not read these types")));
        };
        let (a_wide, b_wide) = Gemm::wide(&posed, way.math);
        let text = format!("{}\n{}\n{KERNEL}", product::BLOCK, product.ending.text(problem)?);
        let mut source = Source::new("gemm.cu", text, "gemm");
        if let Split::Memory(_) = way.split {
            source = source.entry("gemm_reduce");
        }
        let source = product::with_way(source, &way)
            .define("A_T", a_type)
            .define("B_T", b_type)
            .define("A_WIDE", u32::from(a_wide))
            .define("B_WIDE", u32::from(b_wide))
            .define("B_WEIGHT", u32::from(problem.inputs[product.b].constant));
        Ok(vec![product.ending.define(source, problem, &posed.rows)])
    }

    fn prepare(
        &self,
        _cuda: &Cuda,
        problem: &Problem,
        tactic: &Tactic,
        code: &[Arc<Module>],
    ) -> Result<Box<dyn Work>, KernelError> {
        let (product, way) = self.found(problem, tactic)?;
        let refuse = |what: &str| Err(KernelError::unsupported(format!("{tactic}: {what}")));
        if product.packs(problem)
            && problem.inputs[product.b].packed.as_deref() != Some(&*format_of(&product, way.math))
        {
            return refuse("its weight is not packed");
        }
        let [module] = code else { return refuse("one module is needed") };
        let posed = product.pose(problem, way.math)?;
        let int = |size: usize| i32::try_from(size).unwrap_or(i32::MAX);
        let (tiles_m, tiles_n) = (way.tile.rows(posed.m), way.tile.columns(posed.n));
        let arguments = Arguments {
            finish: product.ending.finish(problem, &posed.rows),
            a_row: posed.a.row as i64,
            a_k: posed.a.k as i64,
            a_batch: posed.a.batch.map(|stride| stride as i64),
            b_column: posed.b.row as i64,
            b_k: posed.b.k as i64,
            b_batch: posed.b.batch.map(|stride| stride as i64),
            m: int(posed.m),
            n: int(posed.n),
            k: int(posed.k),
            k_b: int(posed.k_b),
            batch: posed.batch.map(int),
            tiles_m: int(tiles_m),
            tiles_n: int(tiles_n),
            split: way.split.parts() as i32,
        };
        let n_batch: usize = posed.batch.iter().product();
        let params = || {
            let params = Params::new().input(product.a).input(product.b);
            product.ending.arguments(params).value(arguments)
        };
        let parts = way.split.parts();
        let blocks = tiles_m * tiles_n * n_batch * parts as usize;
        if blocks >= 1 << 31 {
            return refuse("2^31 blocks or more");
        }
        let launch = Launch::line(module.function("gemm")?, blocks, way.tile.threads(), params())
            .with_shared(way.tile.shared_bytes())?
            .programmatic();
        Ok(match way.split {
            Split::None => Launches::one(launch),
            Split::Cluster(_) => Launches::one(launch.with_cluster([parts, 1, 1])),
            Split::Memory(_) => {
                let rows = n_batch * posed.m;
                let blocks = (rows * posed.n.div_ceil(8)).div_ceil(REDUCE_THREADS as usize);
                let reduce = Launch::line(module.function("gemm_reduce")?, blocks, REDUCE_THREADS, params())
                    .programmatic();
                let workspace = parts as usize * rows * tiles_n * way.tile.bn as usize * 4;
                Box::new(Launches { launches: vec![launch, reduce], workspace })
            }
        })
    }

    fn samples(&self) -> Vec<Problem> {
        region::samples()
    }

    fn trials(&self) -> Vec<Trial> {
        let all = trials::products().into_iter().chain(trials::strided_products());
        region::samples().into_iter().chain(all).map(Trial::new).collect()
    }
}
