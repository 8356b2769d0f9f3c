//! Several runs at once: a pool of contexts over one engine, and on a GPU a stream for each. Weights are shared.

use std::time::Instant;

use planish::{Builder, Device, Engine, Error, View};

use super::network;

const CALLS: usize = 24;

pub(crate) fn run() -> Result<(), Error> {
    let plan = Builder::from_model(network::model()?).threads(1).tune_level(0).build()?;
    let engine = Engine::new(plan, Device::Auto)?;
    let images = network::images(1, 1)?;
    let mut first: Option<Vec<f32>> = None;
    for n_contexts in [1, 2, 4] {
        let pool = engine.pool(n_contexts)?;
        let start = Instant::now();
        let results: Vec<Result<Vec<f32>, Error>> = std::thread::scope(|scope| {
            let one = || {
                let mut all = Vec::new();
                for _ in 0..CALLS / n_contexts {
                    let mut context = pool.lease();
                    let outputs = context.run(&[("image", View::from(&images))])?;
                    all = outputs.at(0).and_then(|view| view.as_slice::<f32>()).unwrap_or_default().to_vec();
                }
                Ok(all)
            };
            let callers: Vec<_> = (0..n_contexts).map(|_| scope.spawn(one)).collect();
            callers.into_iter().map(|caller| caller.join().expect("a caller panicked")).collect()
        });
        let seconds = start.elapsed().as_secs_f64();
        for scores in results {
            let scores = scores?;
            assert_eq!(
                *first.get_or_insert_with(|| scores.clone()),
                scores,
                "contexts do not disturb each other"
            );
        }
        println!("{n_contexts} contexts: {:.0} runs a second", CALLS as f64 / seconds);
    }
    Ok(())
}
