//! The time of every layer of a run.

use planish::{Builder, Device, Engine, Error, View};

use super::network;

pub(crate) fn run() -> Result<(), Error> {
    let engine = Engine::new(Builder::from_model(network::model()?).tune_level(0).build()?, Device::Auto)?;
    let images = network::images(8, 1)?;
    let mut context = engine.context()?;
    context.run(&[("image", View::from(&images))])?;
    let profiled = context.profile(&[("image", View::from(&images))])?;
    for time in &profiled.steps {
        let step = &engine.record().program.steps[time.step];
        println!("{:9.1} us  {}  ({})", time.ns as f64 / 1e3, step.name, step.region.ops());
    }
    println!("{:9.1} us  in all", profiled.total_ns as f64 / 1e3);
    Ok(())
}
