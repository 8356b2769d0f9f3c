//! `cargo xtask library-plan`: a plan whose convolutions are cuDNN's wherever it has one for them, to see what a plan
//! that needs the library costs to open. Builds that may choose take the fastest, which is rarely cuDNN's.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use planish::{Builder, Device, Plan, Precision, Profile, SymbolRange};
use planish_plan::StepKind;

/// Families of our own that compute convolutions.
const OWN_CONVOLUTIONS: [&str; 3] = ["conv_", "halo_", "stem_"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the plan goes.
    plan: PathBuf,
    /// A model of `planish zoo` with an open batch.
    #[arg(long, default_value = "resnet18_224")]
    model: String,
    #[arg(long, default_value = "cuda")]
    device: Device,
    #[arg(long, default_value = "fp16")]
    precision: String,
    #[arg(long, default_value_t = 1)]
    tune_level: u32,
}

/// Gives whether the plan has tactics of cuDNN.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let precision = Precision::named(&options.precision).context("give fp32, tf32, fp16 or bf16")?;
    let batch = SymbolRange { symbol: "batch".into(), min: 1, opt: 1, max: 1 };
    let mut builder = Builder::from_graph(planish_zoo::graph(&options.model, 0)?)
        .device(options.device)
        .precision(precision)
        .tune_level(options.tune_level)
        .profile(Profile { ranges: vec![batch] });
    builder.options_mut().banned_tactics = OWN_CONVOLUTIONS.map(String::from).to_vec();
    let plan: Plan = builder.build()?;
    let steps = &plan.record().program.steps;
    let is_cudnn = |kind: &StepKind| match kind {
        StepKind::Kernel { variants, .. } => variants.iter().any(|one| one.tactic.name.starts_with("cudnn_")),
        _ => false,
    };
    let n_cudnn = steps.iter().filter(|step| is_cudnn(&step.kind)).count();
    plan.save(&options.plan)?;
    println!("{}: {n_cudnn} of {} steps are cuDNN's", options.plan.display(), steps.len());
    Ok(n_cudnn > 0)
}
