//! `planish demo`: a model made here, built into a plan, checked, timed and compared with the reference; and a trained one in
//! several precisions.

pub(crate) mod trained;

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use planish::io::{Sources, npy};
use planish::{ContextOptions, Device, Metrics, Model, Outcome, Value, View};

use crate::args::{Building, Demo, Explore, Opening};
use crate::ending::{Answer, Ending};
use crate::inspect::Report;
use crate::stats::Stats;
use crate::{files, load, onnxruntime, print, run, say_note};

/// The network, and the seed of its weights; the inputs take the next one.
const NETWORK: &str = "resnet18_224";
const SEED: u64 = 2026;
/// How long the plan is timed.
const TIMED: Duration = Duration::from_secs(2);
/// How far the plan may be from the reference: f32 through a deep network, Winograd included.
const TOLERANCE: f64 = 2e-5;

pub(crate) fn command(args: &Demo, out: &mut dyn Write) -> Result<Answer> {
    if let Some(scenario) = args.scenario {
        crate::scenario::command(args, scenario, out)?;
        return Ok(Answer::Yes);
    }
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => {
            let cache = planish::files::user_cache().context("there is no cache folder; give a folder")?;
            cache.join("demo")
        }
    };
    planish::files::private_folder(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    if let Some(why) = planish::files::distrust(&folder) {
        bail!("the demo's plan could be exchanged: {why}; give another folder");
    }
    let model = folder.join("demo.onnx");
    let bytes = planish_zoo::onnx(NETWORK, SEED)?;
    files::write(&model, |file| file.write_all(&bytes))?;
    writeln!(out, "A model: {NETWORK} with random weights.\n")?;
    Report::new(&model, &[])?.print(out)?;
    out.flush()?;

    writeln!(out, "\nA plan of it, optimized, tuned and checked for this machine:\n")?;
    let made = load::build(&model, &Building { tune_level: 3, device: Device::Cpu, ..Building::default() })?;
    let path = folder.join("demo.plan");
    let n_bytes = made.plan.save(&path)?;
    let record = made.plan.record();
    let n_passed = record.certificate.checks.iter().filter(|check| check.outcome == Outcome::Passed).count();
    let n_checks = record.certificate.checks.len();
    writeln!(out, "plan        {} in {} steps", print::bytes(n_bytes), record.program.steps.len())?;
    writeln!(out, "built       in {}", print::seconds(made.time.as_secs_f64()))?;
    writeln!(out, "certificate {n_passed} checks passed of {n_checks}, the rest skipped with a reason")?;
    out.flush()?;

    let read = Model::open(&model)?;
    let sources = Sources { random: Some(SEED + 1), ..Sources::default() };
    let fed = sources.gather(read.graph())?;
    fed.notes.iter().for_each(|note| say_note(note));
    let reference = run::run(read.graph(), &fed, &planish::Limits::default())?;

    let threads = record.header.threads as usize;
    let engine = load::engine(&model, made.plan, Device::Cpu, &Opening::default())?;
    let mut context = engine.context_with(ContextOptions::new(threads))?;
    let values = context.run_values(&fed.values())?;
    let views: Vec<View<'_>> = fed.tensors.iter().map(|(_, tensor)| View::from(tensor)).collect();
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < TIMED {
        let run = Instant::now();
        context.run_in_order(&views)?;
        times.push(run.elapsed());
    }
    times.sort_unstable();
    let median = times[times.len() / 2];
    let error = distance(&values, &reference)?;
    let slow = reference.time();
    let mut rows = vec![["", "median", "relative L2 error"].map(String::from).to_vec()];
    rows.push(vec!["reference, unoptimized".into(), print::seconds(slow.as_secs_f64()), "0".into()]);
    let plan = format!("plan on {threads} threads");
    rows.push(vec![plan, print::seconds(median.as_secs_f64()), format!("{error:.1e}")]);
    let inputs = folder.join("input.npz");
    npy::save_archive(&inputs, &fed.tensors)?;
    let (note, peer) = peer(args, &model, &inputs);
    rows.extend(peer);
    writeln!(out, "\nOne against the other, on the same random input:\n")?;
    print::table(out, &rows, &[1, 2])?;
    writeln!(
        out,
        "\nThe plan is {:.0} times as fast as the reference. {note}",
        slow.as_secs_f64() / median.as_secs_f64()
    )?;
    ensure!(
        error <= TOLERANCE,
        Ending::Ours(format!("the plan's answer is {error:.1e} off the reference's"))
    );

    let outputs = folder.join("output.npz");
    npy::save_archive(&outputs, &reference.tensors())?;
    writeln!(out, "The files are in {}. The same by hand:\n", folder.display())?;
    writeln!(out, "  planish inspect {}", shell(&model))?;
    writeln!(out, "  planish build {} -o {}", shell(&model), shell(&path))?;
    writeln!(out, "  planish bench {}", shell(&path))?;
    writeln!(out, "  planish profile {}", shell(&path))?;
    writeln!(out, "  planish run {} --inputs {} -o {}", shell(&path), shell(&inputs), shell(&outputs))?;
    out.flush()?;
    trained::show(&folder, out)?;
    let page = folder.join("demo.html");
    crate::explore::command(&Explore::usual(&path, &model, &page)?, &mut std::io::sink())?;
    writeln!(out, "\nThe plan of {NETWORK} as a page, every kernel and why: {}", page.display())?;
    writeln!(out, "More, start to end: planish demo --scenario microscopy|resnet18|classifier|generation")?;
    Ok(Answer::Yes)
}

/// Runs of ONNX Runtime, and how long they may take.
const PEER_RUNS: usize = 100;

/// What ONNX Runtime needs for the same where it is there, and what there is to say.
fn peer(args: &Demo, model: &Path, inputs: &Path) -> (String, Option<Vec<String>>) {
    let absent = "ONNX Runtime is not there to compare with (--python names a Python that has it).";
    let Ok(version) = onnxruntime::version(&args.python) else { return (absent.to_string(), None) };
    match onnxruntime::times(&args.python, model, inputs, PEER_RUNS, TIMED) {
        Ok(times) => {
            let median = Stats::new(&times, 0).median / 1e3;
            (String::new(), Some(vec![format!("ONNX Runtime {version}"), print::seconds(median), "–".into()]))
        }
        Err(error) => (format!("{error:#}"), None),
    }
}

/// Relative L2 distance of the plan's outputs from the reference's, the worst output's.
fn distance(values: &[Value], reference: &run::Ran) -> Result<f64> {
    let mut worst: f64 = 0.0;
    for (value, (name, want)) in values.iter().zip(reference.tensors()) {
        let got = value.as_tensor().with_context(|| format!("output `{name}` is not a tensor"))?;
        let mut metrics = Metrics::default();
        metrics.add(got, &want);
        worst = worst.max(metrics.relative_l2());
    }
    Ok(worst)
}

/// A path as a shell takes it.
fn shell(path: &Path) -> Cow<'_, str> {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if text.chars().all(is_plain) { text } else { Cow::Owned(format!("'{}'", text.replace('\'', "'\\''"))) }
}
