//! `cargo xtask pipeline`: an image generator's three engines, one after the other in device memory.
//!
//! Encoder, denoiser and decoder have some contexts each, in lanes of a `planish::Pipeline`: what one engine wrote is what
//! the next reads, without a copy, and stages are ordered by events; nobody waits for the device as a whole.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use planish::{Builder, Device, Engine, Pipeline, Plan, Precision, View};
use planish_testing::Random;

use crate::figure::Figures;

const MODELS: [&str; 3] = ["gen_encoder_256", "gen_unet_32", "gen_decoder_32"];
const IMAGE: [usize; 4] = [1, 3, 256, 256];
/// Against a peer in FP32, images per second.
const MIN_RATIO: f64 = 14.0;
/// Against FP32, over the range that the FP32 image has.
const MIN_PSNR: f64 = 54.0;
const MAX_MAE: f64 = 0.001;
/// In a long run, how often it says how far it is.
const TOLD_EVERY: usize = 20_000;
/// Images before a clock counts: every context has met every address and captured its launches by then.
const WARM_UP: usize = 40;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Plans of the encoder, the denoiser and the decoder, made of `planish zoo` at batch 1; built if not given.
    #[arg(num_args = 0..=3)]
    plans: Vec<PathBuf>,
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// What plans that are built here compute in.
    #[arg(long, default_value = "fp32")]
    precision: String,
    /// How hard builds search.
    #[arg(long, default_value_t = 0)]
    tune_level: u32,
    /// Contexts of each engine.
    #[arg(long, default_value_t = 3)]
    contexts: usize,
    /// Images that are compared with the first, bit by bit.
    #[arg(long, default_value_t = 100_000)]
    iterations: usize,
    /// Threads that use the contexts at the same time, each with its own image.
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// Images of those threads, all together.
    #[arg(long, default_value_t = 4_000)]
    interleaved: usize,
    /// How long the rate is measured.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Images per second of a peer in FP32 on this machine.
    #[arg(long)]
    peer_rate: Option<f64>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!([0, 3].contains(&options.plans.len()), "give three plans or none");
    let mut figures = Figures::new();
    let engines = engines(options)?;
    let n_images = options.threads.max(1);
    let images: Vec<Vec<f32>> = (0..n_images).map(|seed| normals(IMAGE.iter().product(), seed)).collect();

    let resident = Line::new(&engines, options, Ends::Device)?;
    resident.prove()?;
    resident.drive(options.contexts, &Work::until_n(WARM_UP), &images[..1], &[])?;
    let done = resident.drive(
        options.contexts,
        &Work { most: usize::MAX, time: Duration::from_secs_f64(options.seconds) },
        &images[..1],
        &[],
    )?;
    drop(resident);
    let rate = done.n as f64 / done.seconds;
    println!("{} images in {:.2} s: {rate:.1} per second, {:.3} ms each", done.n, done.seconds, 1e3 / rate);
    if let Some(peer) = options.peer_rate {
        let seen = format!("{:.2} x ({rate:.0} against {peer:.0} images/s)", rate / peer);
        let asked = format!(">= {MIN_RATIO} x PyTorch FP32");
        figures.say("pipeline, images per second", asked, seen, rate / peer >= MIN_RATIO);
    }

    let line = Line::new(&engines, options, Ends::Host)?;
    let expected = images.iter().map(|image| line.one(Some(image), Some(&[]))).collect::<Result<Vec<_>>>()?;
    let expected: Vec<Vec<u8>> = expected.into_iter().map(|(bytes, _)| bytes).collect();
    quality(&images, &expected, &mut figures)?;

    let done = line.drive(options.threads, &Work::until_n(options.interleaved), &images, &expected)?;
    let seen = format!("{} of {} in {:.1} s", done.n_wrong, done.n, done.seconds);
    let name = format!("pipeline, mismatches of {} threads", options.threads);
    figures.say(&name, "0", seen, done.n_wrong == 0 && done.n >= options.interleaved);

    let done =
        line.drive(options.contexts, &Work::until_n(options.iterations), &images[..1], &expected[..1])?;
    let seen = format!("{} of {} in {:.1} s", done.n_wrong, done.n, done.seconds);
    figures.say(
        "pipeline, images unlike the first",
        "0",
        seen,
        done.n_wrong == 0 && done.n >= options.iterations,
    );
    Ok(figures.all_good())
}

fn engines(options: &Options) -> Result<Vec<Engine>> {
    let precision = Precision::named(&options.precision).context("give fp32, tf32, fp16 or bf16")?;
    let mut engines = Vec::new();
    for (idx, model) in MODELS.into_iter().enumerate() {
        let plan = match options.plans.get(idx) {
            Some(path) => Plan::open(path)?,
            None => build(model, options.device, precision, options.tune_level, 1)?,
        };
        engines.push(Engine::new(plan, options.device)?);
    }
    Ok(engines)
}

fn build(model: &str, device: Device, precision: Precision, level: u32, threads: usize) -> Result<Plan> {
    let builder = Builder::from_graph(planish_zoo::graph(model, 0)?).device(device).precision(precision);
    Ok(builder.tune_level(level).threads(threads).build()?)
}

/// PSNR and mean error of images against the same engines in FP32 on the CPU; the worst of all.
fn quality(images: &[Vec<f32>], got: &[Vec<u8>], figures: &mut Figures) -> Result<()> {
    let threads = std::thread::available_parallelism()?.get();
    let mut exact = Vec::new();
    for model in MODELS {
        let plan = build(model, Device::Cpu, Precision::Fp32, 0, threads)?;
        exact.push(Engine::new(plan, Device::Cpu)?.context()?);
    }
    let (mut psnr, mut mae) = (f64::INFINITY, 0f64);
    for (image, got) in images.iter().zip(got) {
        let (mut dims, mut values) = (IMAGE.to_vec(), image.clone());
        for context in &mut exact {
            context.run_in_order(&[View::new(&dims, &values)?])?;
            let output = context.output(0).context("there is no output")?;
            dims = output.dims().to_vec();
            values = output.as_slice::<f32>().context("outputs are f32")?.to_vec();
        }
        let got =
            got.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let (one_psnr, one_mae) = distance(&values, got)?;
        psnr = psnr.min(one_psnr);
        mae = mae.max(one_mae);
    }
    println!(
        "against FP32 on the CPU, the worst of {} images: PSNR {psnr:.1} dB, MAE {mae:.2e}",
        images.len()
    );
    figures.say("pipeline, PSNR", format!(">= {MIN_PSNR} dB"), format!("{psnr:.1} dB"), psnr >= MIN_PSNR);
    figures.say("pipeline, MAE", format!("<= {MAX_MAE}"), format!("{mae:.2e}"), mae <= MAX_MAE);
    Ok(())
}

/// PSNR over the range of what was expected, and the mean absolute error.
fn distance(expected: &[f32], got: impl ExactSizeIterator<Item = f32>) -> Result<(f64, f64)> {
    let n = expected.len();
    ensure!(n > 0 && got.len() == n, "an image has {} numbers instead of {n}", got.len());
    let (mut least, mut most, mut squares, mut distances) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0);
    for (&expected, got) in expected.iter().zip(got) {
        let (expected, got) = (f64::from(expected), f64::from(got));
        ensure!(expected.is_finite() && got.is_finite(), "an image has numbers that are not finite");
        least = least.min(expected);
        most = most.max(expected);
        squares += (expected - got).powi(2);
        distances += (expected - got).abs();
    }
    ensure!(most > least, "the expected image is all one number");
    Ok((10.0 * ((most - least).powi(2) / (squares / n as f64)).log10(), distances / n as f64))
}

/// How many images, or how long.
struct Work {
    most: usize,
    time: Duration,
}

impl Work {
    fn until_n(most: usize) -> Work {
        Work { most, time: Duration::MAX }
    }
}

struct Done {
    n: usize,
    n_wrong: usize,
    seconds: f64,
}

/// Where images come from and go to. What lies between engines is on the device in any case.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    Device,
    Host,
}

/// The three engines one after the other.
struct Line {
    pipeline: Pipeline,
    n_lanes: usize,
}

impl Line {
    fn new(engines: &[Engine], options: &Options, ends: Ends) -> Result<Line> {
        let [encoder, denoiser, decoder] = engines else { anyhow::bail!("there are three engines") };
        let name = |ports: Vec<planish::PortInfo>| {
            ports.into_iter().next().map(|port| port.name).context("a model has no input or no output")
        };
        let mut said = Pipeline::builder().input("image");
        let mut value = "image".to_string();
        for (stage, engine) in [("encoder", encoder), ("denoiser", denoiser), ("decoder", decoder)] {
            said = said.stage(stage, engine, &[(&name(engine.inputs())?, &value)]);
            value = format!("{stage}.{}", name(engine.outputs())?);
        }
        let n_lanes = options.contexts.max(1);
        said = said.output("picture", &value).contexts(n_lanes);
        if ends == Ends::Device {
            said = said.resident();
        }
        Ok(Line { pipeline: said.build()?, n_lanes })
    }

    /// What lies where in the memory of each lane.
    fn prove(&self) -> Result<()> {
        for proof in self.pipeline.proofs(&[("image", &IMAGE)])? {
            println!("{proof}");
        }
        Ok(())
    }

    /// One image from noise to picture; `image` where the lane does not hold it already. Gives the picture if nothing was
    /// expected, else whether it is that.
    fn one(&self, image: Option<&[f32]>, expected: Option<&[u8]>) -> Result<(Vec<u8>, bool)> {
        let mut lane = self.pipeline.lane(&[("image", &IMAGE)])?;
        if let Some(image) = image {
            lane.write("image", View::new(&IMAGE, image)?)?;
        }
        lane.run()?;
        let Some(expected) = expected else {
            lane.wait()?;
            return Ok((Vec::new(), true));
        };
        let picture = lane.read("picture")?;
        match expected.is_empty() {
            true => Ok((picture.bytes().to_vec(), true)),
            false => Ok((Vec::new(), **picture.bytes() == *expected)),
        }
    }

    /// Threads that make images until there are enough, each from its own; compared if something is expected.
    fn drive(
        &self,
        n_threads: usize,
        work: &Work,
        images: &[Vec<f32>],
        expected: &[Vec<u8>],
    ) -> Result<Done> {
        // With one image for all, each lane holds it from here on.
        let alone = images.len() == 1;
        if alone {
            let mut held = Vec::new();
            for _ in 0..self.n_lanes {
                held.push(self.pipeline.lane(&[("image", &IMAGE)])?);
            }
            for lane in &mut held {
                lane.write("image", View::new(&IMAGE, &images[0])?)?;
            }
        }
        let (next, n_done, n_wrong) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let started = Instant::now();
        let thread = |idx: usize| -> Result<()> {
            let own = idx % images.len();
            let image = (!alone).then(|| images[own].as_slice());
            let expected = expected.get(own).map(Vec::as_slice);
            while started.elapsed() < work.time && next.fetch_add(1, Relaxed) < work.most {
                let (_, is_right) = self.one(image, expected)?;
                let n_wrong = n_wrong.fetch_add(usize::from(!is_right), Relaxed) + usize::from(!is_right);
                let n_done = n_done.fetch_add(1, Relaxed) + 1;
                if n_done.is_multiple_of(TOLD_EVERY) && expected.is_some() {
                    let seconds = started.elapsed().as_secs_f64();
                    println!("{n_done} images in {seconds:.1} s, {n_wrong} of them wrong");
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let thread = &thread;
            let threads: Vec<_> = (0..n_threads.max(1)).map(|idx| scope.spawn(move || thread(idx))).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
        })?;
        let seconds = started.elapsed().as_secs_f64();
        Ok(Done { n: n_done.into_inner(), n_wrong: n_wrong.into_inner(), seconds })
    }
}

/// Seeded numbers as the suite's models were made for: a standard normal distribution.
fn normals(n: usize, seed: usize) -> Vec<f32> {
    let mut random = Random::new(seed as u64 + 1);
    (0..n).map(|_| random.normal() as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_of_images_are_known() {
        let (psnr, mae) = distance(&[0.0, 1.0, 2.0, 1.0], [0.1, 1.0, 2.0, 0.9].into_iter()).unwrap();
        // Range 2, mean square 0.005.
        assert!((psnr - 10.0 * (4.0f64 / 0.005).log10()).abs() < 1e-3, "{psnr}");
        assert!((mae - 0.05).abs() < 1e-6, "{mae}");
        assert!(distance(&[0.0, 1.0], [0.0, f32::NAN].into_iter()).is_err());
        assert!(distance(&[1.0, 1.0], [1.0, 1.0].into_iter()).is_err());
        assert!(distance(&[0.0, 1.0], [1.0].into_iter()).is_err());
    }

    #[test]
    fn normals_are_normal() {
        let list = normals(20_000, 3);
        let mean = list.iter().sum::<f32>() / list.len() as f32;
        let square = list.iter().map(|x| x * x).sum::<f32>() / list.len() as f32;
        // Three standard deviations of either.
        assert!(mean.abs() < 0.022 && (square - 1.0).abs() < 0.03, "{mean} {square}");
    }
}
