//! `cargo xtask everyday`: what lists in batches and sliding windows cost beside the runs that they are made of.
//!
//! One thread, whose processor time counts, so that other work on the machine does not; runs of both kinds take turns.
//! Each part runs in a process of its own, whose peak of memory is that of the part. Build with `--release` to measure.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use planish::{Blend, Builder, Device, Engine, Profile, Session, SlidingWindow, SymbolRange, Tensor};
use planish_testing::Random;

use crate::figure::Figures;
use crate::import_figures::peak_memory;
use crate::runtime::cpu_ns;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Parts to measure: batches, slide2d, slide3d.
    #[arg(default_values_t = ["batches", "slide2d", "slide3d"].map(String::from))]
    parts: Vec<String>,
    /// How often batches are timed.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How hard plans are tuned.
    #[arg(long, default_value_t = 1)]
    tune_level: u32,
    /// The side of images and volumes, for a shorter look.
    #[arg(long)]
    side: Option<usize>,
    /// Measure in this process.
    #[arg(long, hide = true)]
    here: bool,
}

/// Items of a list, and how many of them run at a time.
const N_ITEMS: usize = 100;
const BATCH: usize = 32;
/// The part of the throughput of batches alone that a list has.
const MIN_SHARE: f64 = 0.95;
/// How much longer a sliding window takes than its windows.
const MAX_LOSS: f64 = 0.05;
/// What it takes of memory beside image, result, weights and arena.
const MAX_EXTRA: usize = 64 << 20;
/// Windows that are timed alone, before and after.
const N_ALONE: usize = 8;

pub(crate) fn run(options: &Options) -> Result<bool> {
    if !options.here {
        let mut all_good = true;
        for part in &options.parts {
            let mut child = Command::new(std::env::current_exe()?);
            child.args(["everyday", part, "--here", "--rounds", &options.rounds.to_string()]);
            child.args(["--tune-level", &options.tune_level.to_string()]);
            if let Some(side) = options.side {
                child.args(["--side", &side.to_string()]);
            }
            all_good &= child.status()?.success();
        }
        return Ok(all_good);
    }
    let mut figures = Figures::new();
    for part in &options.parts {
        match part.as_str() {
            "batches" => batches(options, &mut figures)?,
            "slide2d" => {
                slide("labelfree_unet2d_256", 256, &[options.side.unwrap_or(4096); 2], options, &mut figures)?
            }
            "slide3d" => {
                slide("seg_unet3d_64", 64, &[options.side.unwrap_or(256); 3], options, &mut figures)?
            }
            other => bail!("there is no part `{other}`; give batches, slide2d or slide3d"),
        }
    }
    Ok(figures.all_good())
}

/// A model of the zoo for one thread, with batches up to `max`.
fn session(zoo: &str, max: usize, options: &Options) -> Result<Session> {
    let batch = SymbolRange { symbol: "batch".into(), min: 1, opt: max as i64, max: max as i64 };
    let plan = Builder::from_graph(planish_zoo::graph(zoo, 0)?)
        .device(Device::Cpu)
        .threads(1)
        .tune_level(options.tune_level)
        .profile(Profile { ranges: vec![batch] })
        .build()?;
    Ok(Session::new(&Engine::new(plan, Device::Cpu)?)?)
}

/// Processor time of `work` in seconds.
fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let before = cpu_ns()?;
    work()?;
    Ok((cpu_ns()? - before) / 1e9)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn batches(options: &Options, figures: &mut Figures) -> Result<()> {
    let zoo = "mobilenet_v2_224";
    let mut session = session(zoo, BATCH, options)?;
    let mut random = Random::new(1);
    let items: Vec<Tensor> = (0..N_ITEMS).map(|_| random.floats(&[3, 224, 224])).collect();
    let name = session.engine().inputs()[0].name.clone();
    let full = random.floats(&[BATCH, 3, 224, 224]);
    session.warm_up(1)?;
    let (mut lists, mut raw, mut transfers) = (Vec::new(), Vec::new(), 0);
    for _ in 0..options.rounds {
        lists.push(seconds(|| {
            transfers = session.batch_inference(&items[..3 * BATCH], BATCH)?.transfers;
            Ok(())
        })?);
        raw.push(seconds(|| {
            for _ in 0..3 {
                session.context().run(&[(name.as_str(), (&full).into())])?;
            }
            Ok(())
        })?);
    }
    ensure!(transfers == 3, "three full batches took {transfers} transfers");
    let transfers = session.batch_inference(&items, BATCH)?.transfers;
    figures.say("transfers of 100 items in batches of 32", 4, transfers, transfers == 4);
    let share = median(raw) / median(lists);
    figures.say(
        &format!("{zoo}: throughput of a list against batches of 32 alone"),
        format!(">= {MIN_SHARE}"),
        format!("{share:.3}"),
        share >= MIN_SHARE,
    );
    Ok(())
}

fn slide(zoo: &str, roi: usize, image: &[usize], options: &Options, figures: &mut Figures) -> Result<()> {
    let mut session = session(zoo, 1, options)?;
    let sizes = [&[1, 1], &vec![roi; image.len()][..]].concat();
    let name = session.engine().inputs()[0].name.clone();
    let (weights, needs) = {
        let engine = session.engine();
        let needs = engine.memory_at(&engine.sizes_of(&[(&name, &sizes)])?)?;
        (
            engine.weight_bytes(),
            needs.targets.iter().map(|target| target.arena + target.values).sum::<usize>(),
        )
    };
    let n_pixels: usize = image.iter().product();
    let pixels = (0..n_pixels).map(|idx| (idx * 31 % 251) as f32 / 251.0).collect();
    let image = Tensor::new(&[&[1], image].concat(), pixels)?;
    let window = Random::new(1).floats(&sizes);
    let mut alone = Vec::new();
    let mut time_alone = |session: &mut Session| -> Result<()> {
        for _ in 0..N_ALONE {
            alone.push(seconds(|| {
                Ok(session.context().run(&[(name.as_str(), (&window).into())]).map(drop)?)
            })?);
        }
        Ok(())
    };
    session.warm_up(2)?;
    time_alone(&mut session)?;
    // From here on the peak is that of the sliding window.
    reset_peak()?;
    let before = peak_memory()?;
    let windows = SlidingWindow {
        roi: vec![roi],
        batch: 1,
        overlap: vec![0.25],
        mode: Blend::Gaussian,
        ..SlidingWindow::default()
    };
    let (mut n_windows, mut result) = (0, None);
    let time = seconds(|| {
        result = Some(session.sliding_window_with(&image, &windows, &mut |_, of| n_windows = of)?);
        Ok(())
    })?;
    let peak = peak_memory()?;
    time_alone(&mut session)?;
    let output: usize =
        result.context("no result")?.tensors().iter().map(|tensor| tensor.bytes().len()).sum();
    let mean = alone.iter().sum::<f64>() / alone.len() as f64;
    let ratio = time / (mean * n_windows as f64);
    println!(
        "{zoo} over {:?}: {n_windows} windows in {time:.2} s, alone {:.4} s each ({:.4} to {:.4})",
        image.shape(),
        mean,
        alone.iter().copied().fold(f64::INFINITY, f64::min),
        alone.iter().copied().fold(0.0, f64::max),
    );
    figures.say(
        &format!("{zoo}: sliding window against its windows alone"),
        format!("<= {}", 1.0 + MAX_LOSS),
        format!("{ratio:.3}"),
        ratio <= 1.0 + MAX_LOSS,
    );
    // Everything but the result was in memory before.
    let extra = peak.saturating_sub(before).saturating_sub(output);
    let megabytes = |bytes: usize| format!("{:.1} MB", bytes as f64 / 1e6);
    println!(
        "image {}, result {}, weights {}, arena {}; before {}, peak {}",
        megabytes(image.bytes().len()),
        megabytes(output),
        megabytes(weights),
        megabytes(needs),
        megabytes(before),
        megabytes(peak)
    );
    figures.say(
        &format!("{zoo}: memory beside image, result, weights and arena"),
        format!("<= {}", megabytes(MAX_EXTRA)),
        megabytes(extra),
        extra <= MAX_EXTRA,
    );
    Ok(())
}

/// Has the kernel forget the peak of memory so far.
fn reset_peak() -> Result<()> {
    std::fs::write("/proc/self/clear_refs", "5").context("the peak of memory is reset through /proc")
}
