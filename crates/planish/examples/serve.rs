//! Many threads, few contexts: a pool leases contexts to callers, and runs beside the caller own their buffers.
//!
//! `cargo run --release -p planish --example serve`

use std::error::Error;
use std::thread;

use planish::{Bindings, Builder, DType, Device, Engine, NetworkBuilder, Outputs, Tensor, View};

/// Callers, and the contexts that they share.
const N_CALLERS: usize = 8;
const N_CONTEXTS: usize = 3;
const N_RUNS: usize = 200;

fn answer(outputs: &Outputs<'_>) -> Option<Vec<f32>> {
    Some(outputs.at(0)?.as_slice::<f32>()?.to_vec())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut net = NetworkBuilder::new("mixer");
    let x = net.input("x", DType::F32, "rows,64")?;
    let weight = Tensor::new(&[64, 64], (0..64 * 64).map(|i| ((i % 17) as f32 - 8.0) / 64.0).collect())?;
    let y = net.linear(x, weight, None)?;
    let y = net.gelu(y)?;
    let y = net.add(x, y)?;
    net.output("y", y)?;
    let engine = Engine::new(Builder::from_network(net)?.build()?, Device::Cpu)?;

    // Every caller has rows of its own and must get its own answers.
    let pool = engine.pool(N_CONTEXTS)?;
    let n_wrong: usize = thread::scope(|scope| {
        let caller = |caller: usize| {
            let (pool, engine) = (&pool, &engine);
            move || -> Result<usize, Box<dyn Error + Send + Sync>> {
                let rows = 1 + caller % 4;
                let x = vec![caller as f32 / 8.0; rows * 64];
                let dims = [rows, 64];
                let view = View::new(&dims, &x)?;
                let mut alone = engine.context()?;
                let expected = answer(&alone.run(&[("x", view)])?);
                let mut n_wrong = 0;
                for _ in 0..N_RUNS {
                    let mut context = pool.lease();
                    n_wrong += usize::from(answer(&context.run(&[("x", view)])?) != expected);
                }
                Ok(n_wrong)
            }
        };
        let handles: Vec<_> = (0..N_CALLERS).map(|idx| scope.spawn(caller(idx))).collect();
        handles.into_iter().map(|handle| handle.join().map_or(N_RUNS, |n| n.unwrap_or(N_RUNS))).sum()
    });
    println!(
        "{N_CALLERS} callers, {N_CONTEXTS} contexts, {} runs: {n_wrong} wrong answers",
        N_CALLERS * N_RUNS
    );

    // A run beside the caller: buffers move in and come back.
    let mut context = engine.context()?;
    let mut x = context.input_buffer("x", &[4, 64])?;
    x.as_mut_slice::<f32>().ok_or("x is of f32")?.fill(1.0);
    let y = context.output_buffer("y", &[4, 64])?;
    let pending = context.run_async(Bindings::new().input("x", x).output("y", y))?;
    let busy: u64 = (0..1000u64).sum();
    let done = pending.wait()?;
    let first = done.get_output("y").and_then(|y| y.as_slice::<f32>()).map(|y| y[0]);
    println!("meanwhile the caller counted to {busy}; y begins with {first:?}");
    Ok(())
}
