//! Work that a GPU does at its peak, built and timed as any model is, each within a time of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use planish_tensor::{DType, Tensor};

use super::{Peak, PeakUnit, Peaks};
use crate::{Bindings, Builder, Device, Engine, Error, Model, NetworkBuilder, Precision, View};

/// Rows, columns and depth of the product: 512 tiles of 128 by 256, four for each multiprocessor of the largest GPUs,
/// so that launches and edges count for little; its build and its runs take seconds.
const SIDE: usize = 4096;
/// Elements of the copy, 1 GiB: far beyond any cache.
const COPIED: usize = 1 << 28;
/// Runs of which the fastest counts, and the time after which no further one is begun.
const RUNS: usize = 30;
const RUN_TIME: Duration = Duration::from_secs(2);
/// What one figure may take, its build included, until it is told to stop; four of them stay below a minute.
const LIMIT: Duration = Duration::from_secs(12);
/// How long one that was told to stop may take to do so. Beyond, the GPU or its driver hangs: nothing that was begun
/// on it can be ended, so nothing further is begun.
const GRACE: Duration = Duration::from_secs(2);

/// One figure.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    precision: Precision,
    model: fn() -> Result<Model, Error>,
    /// What one run is.
    amount: f64,
    unit: PeakUnit,
}

const PRODUCT: f64 = 2.0 * (SIDE * SIDE * SIDE) as f64;

const FIGURES: [Figure; 4] = [
    Figure {
        name: "fp32 gemm",
        precision: Precision::Fp32,
        model: product,
        amount: PRODUCT,
        unit: PeakUnit::Flop,
    },
    Figure {
        name: "tf32 gemm",
        precision: Precision::Tf32,
        model: product,
        amount: PRODUCT,
        unit: PeakUnit::Flop,
    },
    Figure {
        name: "fp16 gemm",
        precision: Precision::Fp16,
        model: product,
        amount: PRODUCT,
        unit: PeakUnit::Flop,
    },
    // Each element is read and written.
    Figure {
        name: "memory copy",
        precision: Precision::Fp32,
        model: copy,
        amount: 2.0 * 4.0 * COPIED as f64,
        unit: PeakUnit::Byte,
    },
];

/// All figures of a GPU, and those that it does not give.
pub(super) fn measure(device: Device, progress: &dyn Fn(&str, usize, usize)) -> (Peaks, Vec<String>) {
    let (mut list, mut missing) = (Vec::new(), Vec::new());
    let name = match within(LIMIT, GRACE, move |_| device.describe()) {
        Ended::Made(name) => name,
        Ended::Failed(why) | Ended::Hangs(why) => return (Peaks::default(), vec![why]),
    };
    for (idx, figure) in FIGURES.into_iter().enumerate() {
        progress("measure the GPU", idx, FIGURES.len());
        match within(LIMIT, GRACE, move |stop| seconds(device, figure, stop)) {
            Ended::Made(seconds) => list.push(Peak {
                device: name.clone(),
                name: figure.name.to_string(),
                per_second: figure.amount / seconds,
                unit: figure.unit,
            }),
            Ended::Failed(why) => missing.push(format!("{}: {why}", figure.name)),
            Ended::Hangs(why) => {
                let left = FIGURES[idx..].iter().map(|figure| format!("{}: {why}", figure.name));
                missing.extend(left);
                break;
            }
        }
    }
    (Peaks { list }, missing)
}

/// How work with a limit of time ended.
#[derive(PartialEq, Debug)]
enum Ended<T> {
    Made(T),
    Failed(String),
    /// It was told to stop and goes on, on a thread that is left behind.
    Hangs(String),
}

/// Does this on a thread of its own; after `limit` its flag tells it to stop, and `grace` later nobody waits for it.
fn within<T: Send + 'static>(
    limit: Duration,
    grace: Duration,
    work: impl FnOnce(Arc<AtomicBool>) -> Result<T, Error> + Send + 'static,
) -> Ended<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let its_stop = Arc::clone(&stop);
    let begun = thread::Builder::new().spawn(move || sender.send(work(its_stop)));
    if let Err(error) = begun {
        return Ended::Failed(format!("no thread to measure on: {error}"));
    }
    let mut ended = receiver.recv_timeout(limit);
    if matches!(ended, Err(RecvTimeoutError::Timeout)) {
        stop.store(true, Ordering::Relaxed);
        ended = receiver.recv_timeout(grace);
    }
    let late = stop.load(Ordering::Relaxed);
    match ended {
        Ok(Ok(made)) => Ended::Made(made),
        Ok(Err(_)) if late => Ended::Failed(format!("it was not done within {} s", limit.as_secs_f64())),
        Ok(Err(error)) => Ended::Failed(error.to_string()),
        Err(RecvTimeoutError::Timeout) => Ended::Hangs("the GPU does not answer".to_string()),
        Err(RecvTimeoutError::Disconnected) => Ended::Failed("its thread panicked".to_string()),
    }
}

/// The product of two large matrices.
fn product() -> Result<Model, Error> {
    let mut net = NetworkBuilder::new("product");
    let x = net.input("x", DType::F32, &format!("{SIDE},{SIDE}")[..])?;
    let values = (0..SIDE * SIDE).map(|idx| ((idx % 251) as f32 - 125.0) / 1024.0).collect::<Vec<f32>>();
    let y = net.matmul(x, Tensor::new(&[SIDE, SIDE], values)?)?;
    net.output("y", y)?;
    Model::from_network(net)
}

/// One operation an element on a large vector.
fn copy() -> Result<Model, Error> {
    let mut net = NetworkBuilder::new("copy");
    let x = net.input("x", DType::F32, &format!("{COPIED}")[..])?;
    let y = net.relu(x)?;
    net.output("y", y)?;
    Model::from_network(net)
}

/// The time of the fastest run, on the device alone.
fn seconds(device: Device, figure: Figure, stop: Arc<AtomicBool>) -> Result<f64, Error> {
    let model = (figure.model)()?;
    let build = |sources: &str| {
        let builder = Builder::from_model(model.clone()).device(device).precision(figure.precision);
        let level = u32::from(sources != "own");
        let mut builder = builder.tune_level(level).tactic_sources(sources)?.strict(true);
        let options = builder.options_mut();
        // The reference would take minutes.
        options.verify = false;
        options.build_time = Some(LIMIT / 2);
        options.cancel = Arc::clone(&stop);
        builder.build()
    };
    // A library's few proposals are measured in seconds; our own are many, so the cost model's choice is enough.
    let plan = build("cublaslt").or_else(|_| build("own"))?;
    let engine = Engine::new(plan, device)?;
    let mut context = engine.context()?;
    let port = &engine.inputs()[0];
    let dims = port.ty.as_tensor().and_then(|ty| ty.shape.as_ref()?.as_fixed()).unwrap_or_default();
    let x = Tensor::new(
        &dims,
        (0..dims.iter().product()).map(|idx: usize| (idx % 127) as f32 / 127.0).collect(),
    )?;
    let mut buffer = context.device_input_buffer(&port.name, &dims)?;
    buffer.upload(View::from(&x))?;
    let mut bindings = Bindings::new().input(&port.name, buffer);
    for (port, dims) in engine.outputs().iter().zip(context.output_dims(&[(&port.name, &dims[..])])?) {
        let dims = dims.unwrap_or_default();
        bindings = bindings.output(&port.name, context.device_output_buffer(&port.name, &dims)?);
    }
    let mut best = f64::INFINITY;
    let begun = Instant::now();
    for idx in 0..RUNS {
        if idx > 0 && (begun.elapsed() > RUN_TIME || stop.load(Ordering::Relaxed)) {
            break;
        }
        best = best.min(context.run_bound_phased(&mut bindings)?.compute_ns);
    }
    Ok(best / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_takes_too_long_is_stopped_and_what_hangs_is_left() {
        assert_eq!(within(LONG, LONG, |_| Ok(7)), Ended::Made(7));
        let refused = within(LONG, LONG, |_| Err::<(), _>(Error::internal("no such thing")));
        assert!(matches!(&refused, Ended::Failed(why) if why.contains("no such thing")), "{refused:?}");
        let obeys = within(SHORT, LONG, |stop| {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            Err::<(), _>(Error::cancelled())
        });
        assert_eq!(obeys, Ended::Failed("it was not done within 0.02 s".to_string()));
        let begun = Instant::now();
        let hangs = within(SHORT, SHORT, |_| {
            thread::sleep(LONG);
            Ok(())
        });
        assert_eq!(hangs, Ended::Hangs("the GPU does not answer".to_string()));
        assert!(begun.elapsed() < LONG / 2, "nobody waits for what hangs");
        assert_eq!(
            within(LONG, LONG, |_| -> Result<(), Error> { panic!("on purpose") }),
            Ended::Failed("its thread panicked".to_string())
        );
    }

    #[test]
    fn all_limits_together_stay_below_a_minute() {
        let figures = (LIMIT + GRACE) * FIGURES.len() as u32;
        assert!(figures <= Duration::from_secs(60), "{figures:?}");
        assert!(RUN_TIME < LIMIT / 2);
    }

    #[test]
    fn what_is_measured_is_as_much_as_is_said() {
        let flops = |model: fn() -> Result<Model, Error>| model().unwrap().graph().work(&|_| None).flops;
        assert_eq!(flops(product) as f64, PRODUCT);
        assert_eq!(flops(copy), COPIED as u64);
    }
}
