//! Precision by layer: the plan in BF16, the first and the last layer in FP32, by their names.

use planish::{Builder, Device, Engine, Error, Metrics, Precision, Tensor, Value};

use super::network;

pub(crate) fn run() -> Result<(), Error> {
    let images = network::images(4, 1)?;
    let scores = |precision: Precision, pinned: &[&str]| -> Result<Tensor, Error> {
        let mut builder = Builder::from_model(network::model()?).precision(precision).tune_level(0);
        builder.options_mut().fp32_layers = pinned.iter().map(|name| name.to_string()).collect();
        let engine = Engine::new(builder.build()?, Device::Auto)?;
        let outputs = engine.context()?.run_values(&[Value::from(images.clone())])?;
        Ok(outputs[0].as_tensor().expect("scores are a tensor").clone())
    };
    let exact = scores(Precision::Fp32, &[])?;
    for (about, pinned) in [("all in BF16", &[][..]), ("stem and head in FP32", &["stem*", "head*"][..])] {
        let mut metrics = Metrics::default();
        metrics.add(&scores(Precision::Bf16, pinned)?, &exact);
        println!("{about}: relative L2 error {:.1e}", metrics.relative_l2());
    }
    Ok(())
}
