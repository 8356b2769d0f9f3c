//! What can be asked without a GPU: which tactics there would be on one, and the code that they need.

use std::path::Path;

use planish_kernel::{Budget, Candidate, Code, KernelError, Problem, Tactic};

use crate::backend::{FAMILIES, family_of};
use crate::cache::Cache;
use crate::code::CodeSet;
use crate::error::CudaError;
use crate::find::Which;
use crate::gpu::Gpu;
use crate::libs::{cublaslt, cudnn};
use crate::nvrtc;
use crate::source::Source;

/// The families' names, in the order in which their candidates are listed.
pub fn families() -> Vec<&'static str> {
    FAMILIES.iter().map(|family| family.name()).collect()
}

/// The candidates of one family.
pub fn candidates(family: &str, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
    let known = FAMILIES.iter().filter(|known| known.name() == family);
    known.flat_map(|family| family.candidates(gpu, problem, budget)).collect()
}

/// Whether a library that was found has every function that the backend calls.
pub fn functions_of(which: Which) -> Result<(), CudaError> {
    match which {
        Which::Nvrtc => nvrtc::functions().map(drop),
        Which::CublasLt => cublaslt::functions().map(drop),
        Which::Cudnn => cudnn::functions().map(drop),
        Which::Driver => crate::driver::count().map(drop),
        Which::Nvml => crate::find::find(which).map(drop),
    }
}

/// Has cuBLASLt or cuDNN describe every one of these products or convolutions that it can be asked for, without a GPU: for
/// each, how much was taken and how much there is.
pub fn described_by(which: Which, problems: &[Problem]) -> Result<Vec<(usize, usize)>, KernelError> {
    match which {
        Which::CublasLt => Ok(vec![(1, 1); cublaslt::describe(problems)?]),
        Which::Cudnn => cudnn::describe(problems),
        Which::Nvrtc | Which::Driver | Which::Nvml => Ok(Vec::new()),
    }
}

/// The code that a tactic needs.
pub fn sources(gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
    family_of(tactic)?.sources(gpu, problem, tactic)
}

/// Compiles through a cache in this folder.
pub fn compile_in(folder: &Path, source: &Source, gpu: &Gpu) -> Result<Vec<u8>, CudaError> {
    nvrtc::compile_through(Some(&Cache::at(folder)), source, gpu)
}

/// Has a cache in this folder hold some code.
pub fn put_in(folder: &Path, key: &str, code: &[u8]) {
    Cache::at(folder).put(key, code);
}

/// The code of a source for whoever brought this code, as the plans of an engine do.
pub fn compiled(brought: &[Code], source: &Source, gpu: &Gpu) -> Result<Code, KernelError> {
    CodeSet::new(brought).compiled(source, gpu)
}

/// What is wrong with an image, before the driver is given it.
pub fn image_flaw(image: &[u8]) -> Option<&'static str> {
    crate::driver::image::flaw(image)
}
