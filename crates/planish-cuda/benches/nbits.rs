//! Products with weights of 4 and 8 bits, and with weights that are 2:4 sparse, on a GPU, beside the same with weights of f16:
//! microseconds in a replayed graph, weights rotating among copies that no cache holds, and the share of the memory's measured
//! bandwidth.
//!
//! `cargo bench -p planish-cuda --bench nbits -- [--rows 1,8,64] [--only 4096x11008] [--types i4,i8,sparse] [--dtype f16] [--ways N] [--all 1]`:
//! for each matrix and number of rows the best N tactics of each kind, of those that a plan is offered, or of all. Results are not looked at: the conformance suite
//! compares them.

#![allow(unsafe_code)]

mod replayed;

use std::error::Error;

use planish_cuda::Cuda;
use planish_kernel::{Budget, Candidate, Device, KernelError, Problem, Queue, QueueOptions};
use planish_tensor::DType;
use planish_testing::problems::matmul::matmul;
use planish_testing::problems::nbits::FewBits;
use planish_testing::problems::sparse;

use self::replayed::{compile_all, n_bytes, time};

/// Columns and depth: projections of language models.
const MATRICES: [[usize; 2]; 6] =
    [[4096, 4096], [11008, 4096], [4096, 11008], [28672, 8192], [8192, 28672], [1024, 4096]];
/// Elements with one scale.
const BLOCK: usize = 32;

/// What weights are.
#[derive(Clone, Copy)]
enum Kind {
    Bits(DType),
    Sparse,
}

impl Kind {
    fn named(name: &str) -> Result<Kind, Box<dyn Error>> {
        match name {
            "i4" => Ok(Kind::Bits(DType::I4)),
            "i8" => Ok(Kind::Bits(DType::I8)),
            "sparse" => Ok(Kind::Sparse),
            _ => Err(format!("unknown type `{name}`").into()),
        }
    }

    /// Its name, a product of these sizes, and the families that compute it.
    fn problem(
        self,
        dtype: DType,
        m: usize,
        [n, k]: [usize; 2],
    ) -> (String, Problem, &'static [&'static str]) {
        match self {
            Kind::Bits(weight) => {
                let problem = FewBits::new(dtype, &[m], [n, k], weight, BLOCK).problem();
                (weight.name().to_string(), problem, &["nbits"])
            }
            Kind::Sparse => ("2:4".to_string(), sparse::product(dtype, &[m], [n, k], None), &["sparse"]),
        }
    }
}

struct Asked {
    rows: Vec<usize>,
    only: Option<String>,
    types: Vec<Kind>,
    dtype: DType,
    ways: usize,
    budget: Budget,
}

fn asked() -> Result<Asked, Box<dyn Error>> {
    let mut asked = Asked {
        rows: vec![1, 2, 4, 8, 16, 32, 64, 128, 256],
        only: None,
        types: vec![Kind::Bits(DType::I4), Kind::Bits(DType::I8), Kind::Sparse],
        dtype: DType::F16,
        ways: 3,
        budget: Budget::USUAL,
    };
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or("an argument without a value")?;
        match argument.as_str() {
            "--rows" => asked.rows = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--only" => asked.only = Some(value),
            "--types" => {
                asked.types = value.split(',').map(Kind::named).collect::<Result<_, _>>()?;
            }
            "--dtype" => asked.dtype = if value == "f32" { DType::F32 } else { DType::F16 },
            "--ways" => asked.ways = value.parse()?,
            "--all" => asked.budget = Budget::EVERYTHING,
            other => return Err(format!("unknown argument `{other}`").into()),
        }
    }
    Ok(asked)
}

fn main() -> Result<(), Box<dyn Error>> {
    let asked = asked()?;
    let cuda = Cuda::open(0)?;
    let mut queue = cuda.queue(QueueOptions::new(1))?;
    let copied = copy_bandwidth(&cuda, &mut *queue)?;
    println!("{}: a copy reads and writes {copied:.0} GB/s", cuda.gpu().name);
    let is_asked = |[n, k]: &[usize; 2]| {
        asked.only.as_ref().is_none_or(|only| only.split(',').any(|name| name == format!("{k}x{n}")))
    };
    for [n, k] in MATRICES.into_iter().filter(is_asked) {
        for &m in &asked.rows {
            let mut kinds: Vec<(String, Problem, &[&str])> =
                asked.types.iter().map(|kind| kind.problem(asked.dtype, m, [n, k])).collect();
            let dense = matmul(asked.dtype, &[m, k], &[k, n], true, None);
            // Of all dense tactics there are hundreds.
            let dense = (asked.budget == Budget::USUAL).then_some(dense);
            kinds
                .extend(dense.map(|dense| {
                    (asked.dtype.name().to_string(), dense, &["gemm", "wgemm", "cublaslt"][..])
                }));
            for (kind, problem, families) in kinds {
                let offered = |family: &&str| cuda.candidates_of(family, &problem, &asked.budget);
                let candidates: Vec<Candidate> = families.iter().flat_map(offered).collect();
                compile_all(&cuda, &problem, &candidates);
                let mut times: Vec<(f64, &Candidate)> = Vec::new();
                for candidate in &candidates {
                    match time(&cuda, &mut *queue, &problem, candidate) {
                        Ok(us) => times.push((us, candidate)),
                        Err(error) => println!("{}: {error}", candidate.tactic),
                    }
                }
                times.sort_by(|a, b| a.0.total_cmp(&b.0));
                for (idx, (us, candidate)) in times.iter().take(asked.ways).enumerate() {
                    let speed = traffic(&cuda, &problem, candidate) as f64 / us * 1e-3;
                    println!(
                        "{:>13} {m:4} rows {kind:>4} {us:8.2} us {speed:6.0} GB/s {:3.0} % (expected {:6.2}) {}{}",
                        format!("{k}x{n}"),
                        100.0 * speed / copied,
                        candidate.predicted_ns * 1e-3,
                        candidate.tactic.name,
                        if idx == 0 { " *" } else { "" }
                    );
                }
            }
        }
    }
    Ok(())
}

/// Gigabytes a second that a large copy reads and writes.
fn copy_bandwidth(cuda: &Cuda, queue: &mut dyn Queue) -> Result<f64, KernelError> {
    const BYTES: usize = 2 << 30;
    let (from, to) = (cuda.allocate(BYTES)?, cuda.allocate(BYTES)?);
    let mut best = f64::MAX;
    for _ in 0..6 {
        let (start, end) = (cuda.event(true)?, cuda.event(true)?);
        queue.record_at(start.as_ref())?;
        // SAFETY: both are as long as what is copied, and live until the queue was waited for.
        unsafe { queue.copy(to.address(), from.address(), BYTES)? };
        queue.record_at(end.as_ref())?;
        queue.synchronize()?;
        best = best.min(end.ns_since(start.as_ref())?);
    }
    Ok(2.0 * BYTES as f64 / best)
}

/// Bytes that a candidate reads and writes.
fn traffic(cuda: &Cuda, problem: &Problem, candidate: &Candidate) -> usize {
    let problem = problem.for_candidate(candidate);
    problem.inputs.iter().chain(&problem.outputs).map(|operand| n_bytes(cuda, operand)).sum()
}
