//! Calibrators: four ways to a range of integers from the same images, and what each costs.

use planish::{
    Builder, CalibrationBuilder, Calibrator, Device, Engine, Error, Metrics, Precision, Tensor, Value,
};

use super::network;

pub(crate) fn run() -> Result<(), Error> {
    let model = network::model()?;
    let images = network::images(8, 99)?;
    let scores = |builder: Builder| -> Result<Tensor, Error> {
        let engine = Engine::new(builder.tune_level(0).build()?, Device::Auto)?;
        let outputs = engine.context()?.run_values(&[Value::from(images.clone())])?;
        Ok(outputs[0].as_tensor().expect("scores are a tensor").clone())
    };
    let exact = scores(Builder::from_model(model.clone()))?;
    for (name, calibrator) in [
        ("entropy", Calibrator::Entropy),
        ("min-max", Calibrator::MinMax),
        ("99.9 percent", Calibrator::Percentile(99.9)),
        ("best", Calibrator::Best),
    ] {
        let calibration =
            CalibrationBuilder::from_model(model.clone()).calibrator(calibrator).run(network::samples(16))?;
        let builder =
            Builder::from_model(model.clone()).precision(Precision::Int8).calibration(&calibration)?;
        let mut metrics = Metrics::default();
        metrics.add(&scores(builder)?, &exact);
        println!(
            "{name}: {} ranges, relative L2 error {:.1e}",
            calibration.ranges().len(),
            metrics.relative_l2()
        );
    }
    Ok(())
}
