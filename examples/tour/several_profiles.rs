//! Several profiles in one plan: kernels for single images and kernels for batches; the first that allows a run serves it.

use std::time::Instant;

use planish::{Builder, Device, Engine, Error, Profile, SymbolRange, View};

use super::network;

pub(crate) fn run() -> Result<(), Error> {
    let profile =
        |min, opt, max| Profile { ranges: vec![SymbolRange { symbol: "batch".into(), min, opt, max }] };
    let plan = Builder::from_model(network::model()?)
        .profile(profile(1, 1, 1))
        .profile(profile(2, 16, 16))
        .tune_level(1)
        .build()?;
    let mut context = Engine::new(plan, Device::Auto)?.context()?;
    for n in [1, 16] {
        let images = network::images(n, 1)?;
        context.run(&[("image", View::from(&images))])?;
        let start = Instant::now();
        context.run(&[("image", View::from(&images))])?;
        println!("batch {n}: {:.3} ms an image", start.elapsed().as_secs_f64() * 1e3 / n as f64);
    }
    Ok(())
}
