//! A plan held against its model layer by layer: what each adds to the error, and what has come together up to there.

use planish::{Accuracy, Builder, Error, Precision};

use super::network;

pub(crate) fn run() -> Result<(), Error> {
    let model = network::model()?;
    let plan = Builder::from_model(model.clone()).precision(Precision::Bf16).tune_level(0).build()?;
    let found = Accuracy::of(plan).against(model).run(network::samples(4))?;
    for step in &found.steps {
        println!(
            "{:.1e} own, {:.1e} up to here: {} in {}",
            step.own, step.accumulated, step.layer, step.precision
        );
    }
    for (name, error) in &found.outputs {
        println!("{name}: relative L2 error {error:.1e}");
    }
    Ok(())
}
