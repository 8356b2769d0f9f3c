//! A timing cache: what one build measured, the next one need not; and both take the same kernels.

use std::time::Instant;

use planish::{Builder, Error, TimingCache};

use super::network;

pub(crate) fn run() -> Result<(), Error> {
    let mut timings = TimingCache::default();
    let mut kernels: Vec<Vec<String>> = Vec::new();
    for round in ["first", "second"] {
        let start = Instant::now();
        let builder = Builder::from_model(network::model()?).tune_level(2).timings(timings);
        let (built, grown) = builder.build_with_report()?;
        println!("{round} build: {:.2} s, {} times in the cache", start.elapsed().as_secs_f64(), grown.len());
        timings = grown;
        kernels.push(built.plan.program.steps.iter().map(planish::record::kernel_of).collect());
    }
    println!("the same kernels: {}", kernels[0] == kernels[1]);
    Ok(())
}
