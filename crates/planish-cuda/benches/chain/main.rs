//! What a step of a chain of dependent steps costs on a GPU, and what a stage of a network would gain if its layers
//! were phases of one kernel.
//!
//! `cargo bench -p planish-cuda --bench chain -- [--empty] [--stage] [--branch] [--compile]`: `--empty` measures steps that do next to nothing, as kernels (plain, and
//! with programmatic launch), as phases of one kernel after barriers over its grid, and in parallel branches.
//! `--stage` measures the convolutions of ResNet-18's stages at batch 1 as kernels and as phases of one kernel, and
//! what each part of such a kernel costs. `--branch` measures its blocks with a convolution in the shortcut in a row and
//! with the shortcut on a stream beside. Everything is captured once and replayed, and results are checked: a step
//! that began too early is found. `--compile` needs no GPU: it compiles the kernels for an H200 and ends. Without an
//! argument everything is measured.

#![allow(unsafe_code)]

mod branch;
mod convolution;
mod empty;
mod stage;
mod timing;

use planish_cuda::{Cuda, Gpu};

use crate::timing::Bench;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut chosen = Vec::new();
    for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        match argument.as_str() {
            "--compile" => {
                let gpu = Gpu::known("h200").ok_or("the H200 is not known")?;
                empty::compile(&gpu)?;
                stage::compile(&gpu)?;
                branch::compile(&gpu)?;
                println!("all kernels compile for {}", gpu.architecture());
                return Ok(());
            }
            "--empty" | "--stage" | "--branch" => chosen.push(argument),
            other => return Err(format!("unknown argument `{other}`").into()),
        }
    }
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|own| own == name);
    let cuda = Cuda::open(0)?;
    println!("{} ({} multiprocessors)", cuda.gpu().name, cuda.gpu().n_sms);
    let bench = Bench::new(cuda.context()?)?;
    if wanted("--empty") {
        empty::run(&bench)?;
    }
    if wanted("--stage") {
        stage::run(&bench, &cuda)?;
    }
    if wanted("--branch") {
        branch::run(&bench, &cuda)?;
    }
    Ok(())
}
