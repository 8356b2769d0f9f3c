//! An optimization profile: which sizes a plan takes, and for which it is tuned.

use planish::{Builder, Device, Engine, Error, Profile, SymbolRange, View};

use super::network;

pub(crate) fn run() -> Result<(), Error> {
    let batch = SymbolRange { symbol: "batch".into(), min: 1, opt: 8, max: 16 };
    let plan = Builder::from_model(network::model()?)
        .profile(Profile { ranges: vec![batch] })
        .tune_level(1)
        .build()?;
    let mut context = Engine::new(plan, Device::Auto)?.context()?;
    for n in [1, 8, 16, 17] {
        let images = network::images(n, 1)?;
        match context.run(&[("image", View::from(&images))]) {
            Ok(outputs) => {
                println!("batch {n}: scores {:?}", outputs.at(0).map(|scores| scores.dims().to_vec()))
            }
            Err(error) => println!("batch {n}: {error}"),
        }
    }
    Ok(())
}
