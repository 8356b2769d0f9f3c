//! `cargo xtask accuracy`: plans against the reference, which sums in f64, with Winograd and without.

use std::path::Path;

use anyhow::{Context as _, Result};
use planish::{Builder, Context, Device, Engine, Plan, View};
use planish_import::import_file;
use planish_op::Value;
use planish_tensor::Tensor;

use crate::passes::{Models, inputs, stem};

/// Relative L2 distance that a plan may have to the reference. A Winograd transform F(4x4, 3x3) loses up to four
/// bits of f32's 24 in a layer, and networks of tens of layers average most of it away.
const WITH_WINOGRAD: f64 = 2e-5;
/// The same for plans that sum products as they are: the order of f32 sums is all that differs.
const WITHOUT_WINOGRAD: f64 = 2e-6;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    models: Models,
    /// How much is measured when the plans are built.
    #[arg(long, default_value_t = 2)]
    tune_level: u32,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    println!("{:<28} {:>10} {:>10}", "relative L2 to f64 sums", "plan", "no Winograd");
    let mut good = true;
    for file in options.models.files()? {
        let [with, without] = distances(&file, options.tune_level).with_context(|| stem(&file))?;
        let is_good = with <= WITH_WINOGRAD && without <= WITHOUT_WINOGRAD;
        println!(
            "{:<28} {with:>10.1e} {without:>10.1e}{}",
            stem(&file),
            if is_good { "" } else { "  FAILED" }
        );
        good &= is_good;
    }
    Ok(good)
}

fn distances(file: &Path, tune_level: u32) -> Result<[f64; 2]> {
    let graph = import_file(file)?.graph;
    let inputs = inputs(file, &graph)?;
    let expected = planish_ir::interpret(&graph, inputs.clone())?;
    let mut found = [0.0; 2];
    for (winograd, found) in [true, false].into_iter().zip(&mut found) {
        let plan = Builder::new(file)?
            .device(Device::Cpu)
            .winograd(winograd)
            .tune_level(tune_level)
            .threads(2)
            .build()?;
        *found = distance(plan, &inputs, &expected)?;
    }
    Ok(found)
}

/// The largest distance of an output.
fn distance(plan: Plan, inputs: &[Value], expected: &[Value]) -> Result<f64> {
    let mut context: Context = Engine::new(plan, Device::Cpu)?.context()?;
    let views = inputs
        .iter()
        .map(|value| value.as_tensor().map(View::from).context("an input is not a tensor"))
        .collect::<Result<Vec<_>>>()?;
    context.run_in_order(&views)?;
    let mut worst: f64 = 0.0;
    for (idx, expected) in expected.iter().enumerate() {
        let expected = expected.as_tensor().context("an output is not a tensor")?;
        let actual: Tensor = context.output(idx).context("there is no output")?.to_tensor();
        let (actual, expected) = (actual.to_f64s(), expected.to_f64s());
        let error: f64 = actual.iter().zip(&expected).map(|(a, e)| (a - e) * (a - e)).sum();
        let norm: f64 = expected.iter().map(|e| e * e).sum();
        // An output that is all zero (a head that was not trained) must be matched exactly.
        let distance = if error == 0.0 { 0.0 } else { (error / norm).sqrt() };
        // `max` would pass over NaN.
        worst = if distance > worst || distance.is_nan() { distance } else { worst };
    }
    Ok(worst)
}
