//! Faults of a GPU: every allocation in turn fails, and a device is lost. The card is never filled up: others use it too.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use planish::{Builder, Device, Engine, ErrorKind, Plan, View};
use planish_cuda::{Cuda, drill};

use super::Row;

/// Runs of each context: launched one by one, captured, replayed.
const N_RUNS: usize = 3;
/// What may be gone of the device's memory in the end: the pool of the driver keeps some.
const MAX_GONE: usize = 64 << 20;

fn plan(device: Device) -> Result<Plan> {
    let mut builder = Builder::from_graph(planish_zoo::graph("cifar_cnn", 0)?).device(device).tune_level(0);
    builder.options_mut().tune_at = vec![("batch".into(), 1)];
    Ok(builder.build()?)
}

/// Opens an engine, runs it, closes it; gives the bytes of its first output.
fn attempt(plan: &Plan, device: Device) -> Result<Vec<u8>, planish::Error> {
    let engine = Engine::new(plan.clone(), device)?;
    let mut context = engine.context()?;
    let pixels = vec![0.25f32; 3 * 32 * 32];
    let view = View::new(&[1, 32, 32, 3], &pixels)?;
    for _ in 0..N_RUNS {
        context.run_in_order(&[view])?;
    }
    Ok(context.output(0).map(|output| output.to_tensor().bytes().to_vec()).unwrap_or_default())
}

fn index(device: Device) -> Result<usize> {
    match device.settled() {
        Device::Cuda(index) => Ok(index),
        _ => bail!("{device} is not a GPU"),
    }
}

pub(crate) fn faults(device: Device) -> Result<Vec<Row>> {
    let cuda = Cuda::open(index(device)?)?;
    let plan = plan(device)?;
    // Twice, so that what is made once is there.
    attempt(&plan, device)?;
    let wanted = attempt(&plan, device)?;
    let begun = drill::n_allocations();
    attempt(&plan, device)?;
    let n = (drill::n_allocations() - begun) as usize;
    let (free, _) = cuda.context()?.memory_info()?;
    let (mut n_refused, mut n_went_on, mut losses) = (0, 0, Vec::new());
    for nth in 1..=n {
        drill::fail_allocation(nth as u64);
        let got = attempt(&plan, device);
        drill::fail_allocation(0);
        match got {
            Ok(bytes) if bytes == wanted => n_went_on += 1,
            Ok(_) => losses.push(format!("allocation {nth}: other outputs")),
            Err(error) if *error.kind() == ErrorKind::OutOfMemory => n_refused += 1,
            Err(error) => losses.push(format!("allocation {nth}: {error}")),
        }
        match attempt(&plan, device) {
            Ok(bytes) if bytes == wanted => {}
            Ok(_) => losses.push(format!("other outputs after allocation {nth}")),
            Err(error) => losses.push(format!("after allocation {nth}: {error}")),
        }
    }
    let (left, _) = cuda.context()?.memory_info()?;
    let gone = free.saturating_sub(left);
    if gone > MAX_GONE {
        losses.push(format!("{} MB of the device are gone", gone >> 20));
    }
    let seen = format!(
        "{n_refused} refused as a lack of memory, {n_went_on} did without; the next engine gives the same bits"
    );
    let mut rows = vec![Row { fault: "n-th allocation on the GPU fails, each n".into(), n, seen, losses }];
    let mut losses = Vec::new();
    let name = device.to_string();
    let output = Command::new(std::env::current_exe()?)
        .args(["faults", "--lose-device", "--device", &name])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() != Some(0) {
        losses.push(format!("{:?}: {text} {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    if attempt(&plan, device).ok().as_ref() != Some(&wanted) {
        losses.push("the device is not usable for others".into());
    }
    let seen = text.lines().last().unwrap_or_default().to_string();
    rows.push(Row { fault: "device lost (a kernel traps)".into(), n: 1, seen, losses });
    Ok(rows)
}

/// Loses the device in this process: every call from then on says so, and nothing hangs.
pub(crate) fn lose(device: Device) -> Result<bool> {
    let plan = plan(device)?;
    let engine = Engine::new(plan.clone(), device)?;
    let mut context = engine.context()?;
    let pixels = vec![0.25f32; 3 * 32 * 32];
    let view = View::new(&[1, 32, 32, 3], &pixels)?;
    context.run_in_order(&[view])?;
    let said = drill::lose_device(&Cuda::open(index(device)?)?).err().context("the device was not lost")?;
    ensure!(said.to_string().contains("the GPU is lost to this process"), "{said}");
    let run = context.run_in_order(&[view]).err().context("a run on a lost device gave an answer")?;
    ensure!(run.to_string().contains("the GPU is lost to this process"), "{run}");
    let opened = attempt(&plan, device).err().context("an engine was opened on a lost device")?;
    ensure!(opened.to_string().contains("the GPU is lost to this process"), "{opened}");
    drop((context, engine));
    println!("runs and new engines say that it is lost; the process ends, and others go on");
    Ok(true)
}
