//! Many threads, few contexts: a pool leases contexts to callers; and a run that goes on beside its caller.
//!
//! `cargo run --release --example thread_pool`

use std::thread;

use planish::{
    Bindings, Builder, DType, Device, Engine, Error, ErrorKind, NetworkBuilder, Outputs, Tensor, View,
};

/// Callers, and the contexts that they share.
const N_CALLERS: usize = 8;
const N_CONTEXTS: usize = 3;

fn answer(outputs: &Outputs<'_>) -> Option<Vec<f32>> {
    Some(outputs.at(0)?.as_slice::<f32>()?.to_vec())
}

/// An engine of a small network.
fn engine(tune_level: u32) -> Result<Engine, Error> {
    let mut net = NetworkBuilder::new("mixer");
    let x = net.input("x", DType::F32, "rows,64")?;
    let weight = Tensor::new(&[64, 64], (0..64 * 64).map(|i| ((i % 17) as f32 - 8.0) / 64.0).collect())?;
    let y = net.linear(x, weight, None)?;
    let y = net.gelu(y)?;
    let y = net.add(x, y)?;
    net.output("y", y)?;
    Engine::new(Builder::from_network(net)?.tune_level(tune_level).build()?, Device::Auto)
}

/// Runs of one caller that gave another answer than a context of its own.
fn wrong_answers(
    engine: &Engine,
    pool: &planish::ContextPool,
    caller: usize,
    n_runs: usize,
) -> Result<usize, Error> {
    // Every caller has rows of its own and must get its own answers.
    let rows = 1 + caller % 4;
    let x = vec![caller as f32 / 8.0; rows * 64];
    let dims = [rows, 64];
    let view = View::new(&dims, &x)?;
    let expected = answer(&engine.context()?.run(&[("x", view)])?);
    let mut n_wrong = 0;
    for _ in 0..n_runs {
        let mut context = pool.lease();
        n_wrong += usize::from(answer(&context.run(&[("x", view)])?) != expected);
    }
    Ok(n_wrong)
}

/// Serves all callers; gives how many answers were wrong.
pub(crate) fn serve(n_runs: usize, tune_level: u32) -> Result<usize, Error> {
    let engine = engine(tune_level)?;
    let pool = engine.pool(N_CONTEXTS)?;
    let answers: Vec<Result<usize, Error>> = thread::scope(|scope| {
        let spawn = |caller| {
            let (engine, pool) = (&engine, &pool);
            scope.spawn(move || wrong_answers(engine, pool, caller, n_runs))
        };
        let callers: Vec<_> = (0..N_CALLERS).map(spawn).collect();
        let failed = |_| Err(Error::new(ErrorKind::Failed, "a caller panicked"));
        callers.into_iter().map(|caller| caller.join().unwrap_or_else(failed)).collect()
    });
    let n_wrong = answers.into_iter().sum::<Result<usize, Error>>()?;
    println!(
        "{N_CALLERS} callers, {N_CONTEXTS} contexts, {} runs: {n_wrong} wrong answers",
        N_CALLERS * n_runs
    );

    // A run beside the caller: buffers move in and come back.
    let mut context = engine.context()?;
    let mut x = context.input_buffer("x", &[4, 64])?;
    if let Some(values) = x.as_mut_slice::<f32>() {
        values.fill(1.0);
    }
    let y = context.output_buffer("y", &[4, 64])?;
    let pending = context.run_async(Bindings::new().input("x", x).output("y", y))?;
    let busy: u64 = (0..1000u64).sum();
    let done = pending.wait()?;
    let first = done.get_output("y").and_then(|y| y.as_slice::<f32>()).map(|y| y[0]);
    println!("meanwhile the caller counted to {busy}; y begins with {first:?}");
    Ok(n_wrong)
}

fn main() -> Result<(), Error> {
    serve(200, 3).map(drop)
}
