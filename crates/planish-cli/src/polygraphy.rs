//! `planish polygraphy`: a model on several backends, compared as Polygraphy's users know it; and their other tools.

mod compare;
mod inputs;
mod tools;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use planish::graph::{Graph, interpret};
use planish::io::npy;
use planish::{ContextOptions, DynamicRange, Model, Precision, Sample, Value, onnx};

use crate::args::{AskedPrecision, Building, LayerPrecision, Opening, Polygraphy, PolygraphyRun};
use crate::compare::NamedOutputs;
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::scratch::Scratch;
use crate::{edit, load, onnxruntime, say_note};
use compare::Tolerances;

/// A runner's outputs, an iteration each.
struct Results {
    name: String,
    iterations: Vec<NamedOutputs>,
}

pub(crate) fn command(args: &Polygraphy, out: &mut dyn Write) -> Result<Answer> {
    let args = match args {
        Polygraphy::Run(args) => args,
        Polygraphy::Convert(args) => return tools::convert(args, out),
        Polygraphy::Inspect(args) => return tools::inspect(args, out),
        Polygraphy::Surgeon(args) => return tools::surgeon(args, out),
        Polygraphy::Check(args) => return tools::check(args, out),
        Polygraphy::Debug(args) => return tools::debug(args, out),
    };
    let begun = Instant::now();
    let answer = compare_runners(args, out)?;
    let (letter, word) = if answer == Answer::Yes { ("I", "PASSED") } else { ("E", "FAILED") };
    let seconds = begun.elapsed().as_secs_f64();
    writeln!(
        out,
        "[{letter}] {word} | Runtime: {seconds:.3}s | Command: planish polygraphy run {}",
        args.model.display()
    )?;
    Ok(answer)
}

fn compare_runners(args: &PolygraphyRun, out: &mut dyn Write) -> Result<Answer> {
    say_without_effect(args);
    load::readable(&args.model)?;
    let is_plan = load::is_plan(&args.model);
    if let Some(ty) = &args.model_type {
        let is_engine = match ty.as_str() {
            "engine" | "plan" => true,
            "onnx" => false,
            _ => bail!("--model-type {ty}: give onnx or engine"),
        };
        ensure!(
            is_engine == is_plan,
            "{} is {}",
            args.model.display(),
            if is_plan { "a plan" } else { "no plan" }
        );
    }
    ensure!(
        !(is_plan && (args.onnxrt || args.reference)),
        "a plan runs on --trt alone; give the .onnx file to compare it with, or --load-outputs"
    );
    ensure!(
        args.trt || args.onnxrt || args.reference || !args.load_outputs.is_empty(),
        "no runner is given; give --trt, --onnxrt or --reference"
    );
    let tolerances = Tolerances::new(args)?;
    check_targets(args)?;
    if args.onnxrt {
        let version = onnxruntime::version(&args.python)?;
        say_note(&format!("ONNX Runtime {version} by {}", args.python.display()));
    }
    let scratch = Scratch::new("polygraphy")?;
    let model = marked(args, is_plan, &scratch)?;
    let mut runners = Vec::new();
    let samples = match is_plan {
        true => Vec::new(),
        false => inputs::of_model(args, Model::open(&model)?.graph())?,
    };
    let samples = if args.trt { trt(args, &model, samples, &mut runners)? } else { samples };
    if args.onnxrt {
        let list: Vec<Sample> = samples.iter().map(|inputs| Sample::new(inputs.clone(), 1)).collect();
        let iterations = onnxruntime::run(&args.python, &model, &list)?;
        runners.push(Results { name: "onnxrt-runner".to_string(), iterations });
    }
    if args.reference {
        let model = Model::open(&model)?;
        let one = |inputs: &NamedOutputs| on_reference(model.graph(), inputs);
        let iterations = samples.iter().map(one).collect::<Result<_>>()?;
        runners.push(Results { name: "reference-runner".to_string(), iterations });
    }
    if let Some(path) = &args.save_inputs {
        save(path, &samples)?;
    }
    if let (Some(path), Some(first)) = (&args.save_outputs, runners.first()) {
        save(path, &first.iterations)?;
    }
    if !args.load_outputs.is_empty() {
        let read = |path: &PathBuf| npy::read_archive(path, &npy::accept_all);
        let iterations = args.load_outputs.iter().map(read).collect::<Result<_, _>>()?;
        runners.push(Results { name: args.load_outputs[0].display().to_string(), iterations });
    }
    compare_all(args, &tolerances, &runners, out)
}

fn compare_all(
    args: &PolygraphyRun,
    tolerances: &Tolerances,
    runners: &[Results],
    out: &mut dyn Write,
) -> Result<Answer> {
    let mut all_pass = true;
    for runner in runners {
        let n = runner.iterations.len();
        writeln!(out, "[I] {:20} | Completed {n} iteration(s)", runner.name)?;
        if args.validate {
            all_pass &= compare::validate(&runner.name, &runner.iterations, out)?;
        }
    }
    let Some((first, others)) = runners.split_first() else { return Ok(Answer::Yes) };
    for other in others {
        writeln!(out, "[I] Accuracy Comparison | {} vs. {}", first.name, other.name)?;
        ensure!(
            first.iterations.len() == other.iterations.len(),
            "{} has {} iterations, {} has {}",
            first.name,
            first.iterations.len(),
            other.name,
            other.iterations.len()
        );
        for (own, expected) in first.iterations.iter().zip(&other.iterations) {
            all_pass &= compare::outputs(args, tolerances, own, expected, out)?;
            if !all_pass && args.fail_fast {
                return Ok(Answer::No);
            }
        }
    }
    Ok(if all_pass { Answer::Yes } else { Answer::No })
}

/// The outputs of the exact reference.
fn on_reference(graph: &Graph, inputs: &NamedOutputs) -> Result<NamedOutputs> {
    let made = interpret(graph, values(inputs)).context("the run on the reference failed")?;
    let named = graph.outputs().iter().zip(made);
    Ok(named
        .filter_map(|(&id, value)| Some((graph.value(id).name.to_string(), value.as_tensor()?.clone())))
        .collect())
}

fn values(inputs: &NamedOutputs) -> Vec<Value> {
    inputs.iter().map(|(_, tensor)| tensor.clone().into()).collect()
}

/// Flags that are accepted and do nothing, each told once.
fn say_without_effect(args: &PolygraphyRun) {
    let given = [
        (
            args.warm_up.is_some(),
            "--warm-up",
            "results do not depend on earlier runs; `planish bench` warms up",
        ),
        (args.use_subprocess, "--use-subprocess", "ONNX Runtime always runs in a process of its own"),
        (
            args.precision_constraints.is_some(),
            "--precision-constraints",
            "layers that are named keep their precision",
        ),
        (!args.providers.is_empty(), "--providers", "ONNX Runtime runs on the CPU, as what is compared with"),
        (
            args.sparse_weights,
            "--sparse-weights",
            "kernels for weights that are 2:4 sparse always compete; `planish build --sparsity disable` leaves them out",
        ),
        (!args.plugins.is_empty(), "--plugins", "TensorRT's plugin libraries cannot be loaded"),
        (args.refittable, "--refittable", "every plan can be refitted"),
        (
            args.version_compatible,
            "--version-compatible",
            "a plan of another version is built again from its graph",
        ),
        (args.profiling_verbosity.is_some(), "--profiling-verbosity", "plans always name their layers"),
    ];
    for (_, flag, why) in given.into_iter().filter(|(is_given, _, _)| *is_given) {
        say_note(&format!("{flag} has no effect here: {why}"));
    }
}

/// Refuses what could not be written before anything is built.
fn check_targets(args: &PolygraphyRun) -> Result<()> {
    let given = [args.model.as_path()];
    for (path, kind) in [
        (&args.save_inputs, Kind::Npz),
        (&args.save_outputs, Kind::Npz),
        (&args.save_engine, Kind::Plan),
        (&args.save_tactics, Kind::Tactics),
    ] {
        let Some(path) = path else { continue };
        if kind == Kind::Npz {
            let is_npz = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("npz"));
            ensure!(
                is_npz,
                "{}: arrays are saved as .npz, which numpy.load opens; give such a name",
                path.display()
            );
        }
        files::check_target(path, kind, &given)?;
    }
    Ok(())
}

/// The model's file, with further values among its outputs where these are asked for.
fn marked(args: &PolygraphyRun, is_plan: bool, scratch: &Scratch) -> Result<PathBuf> {
    if args.onnx_outputs.is_empty() {
        return Ok(args.model.clone());
    }
    ensure!(!is_plan, "--onnx-outputs is for models: a plan keeps no values between its steps");
    let all = args.onnx_outputs == ["mark", "all"];
    let patterns = if all { vec!["*".to_string()] } else { args.onnx_outputs.clone() };
    let path = scratch.path().join("marked.onnx");
    edit::with_outputs(&args.model, "--onnx-outputs", &patterns, |model| Ok(onnx::save(model, &path)?))?;
    Ok(path)
}

/// Builds or opens the plan and runs it; gives the inputs, which for a plan are found here.
fn trt(
    args: &PolygraphyRun,
    model: &Path,
    samples: Vec<NamedOutputs>,
    runners: &mut Vec<Results>,
) -> Result<Vec<NamedOutputs>> {
    let building = building(args)?;
    let is_plan = load::is_plan(model);
    let made = match is_plan {
        true => load::plan(model, &building, &Opening::default(), false)?,
        false => load::build(model, &building)?,
    };
    if let Some(path) = &args.save_engine {
        ensure!(!is_plan, "--save-engine writes a plan that was built; {} is one", args.model.display());
        made.plan.save(path)?;
    }
    let threads = made.plan.record().header.threads.max(1) as usize;
    let engine = load::engine(model, made.plan, args.device, &Opening::default())?;
    let samples = if is_plan { inputs::of_engine(args, &engine)? } else { samples };
    let mut context = engine.context_with(ContextOptions::new(threads))?;
    let mut iterations = Vec::new();
    for inputs in &samples {
        let made = context.run_values(&values(inputs))?;
        let named = engine.outputs().into_iter().zip(made);
        iterations
            .push(named.filter_map(|(port, value)| Some((port.name, value.as_tensor()?.clone()))).collect());
    }
    runners.push(Results { name: "planish-trt-runner".to_string(), iterations });
    Ok(samples)
}

/// The build that the flags ask for.
fn building(args: &PolygraphyRun) -> Result<Building> {
    let precision = match () {
        () if args.int8 => Precision::Int8,
        () if args.fp8 => Precision::Fp8,
        () if args.fp16 => Precision::Fp16,
        () if args.bf16 => Precision::Bf16,
        () if args.tf32 => Precision::Tf32,
        () => Precision::Fp32,
    };
    let mut building = Building {
        device: args.device,
        precision: AskedPrecision::Named(precision),
        strongly_typed: args.strongly_typed,
        tune_level: args.builder_optimization_level,
        timing_cache: args.load_timing_cache.clone(),
        timing_cache_only: args.error_on_timing_cache_miss,
        save_tactics: args.save_tactics.clone(),
        load_tactics: args.load_tactics.clone(),
        workspace: args.workspace,
        ..Building::default()
    };
    if let Some(path) = &args.tactic_replay {
        match path.is_file() {
            true => building.load_tactics = Some(path.clone()),
            false => building.save_tactics = Some(path.clone()),
        }
    }
    if matches!(precision, Precision::Int8 | Precision::Fp8) {
        building.calibrating.calib.clone_from(&args.calibration_cache);
        building.calibrating.calib_samples = 500;
        if building.calibrating.calib.is_none() && precision == Precision::Int8 {
            building.dynamic = Some(DynamicRange::default());
            say_note(
                "--int8 without --calibration-cache: matrix products alone, by ranges that are found in each run",
            );
        }
    }
    for text in &args.layer_precisions {
        let (pattern, name) =
            text.rsplit_once(':').with_context(|| format!("--layer-precisions {text}: give NAME:float32"))?;
        match name {
            "float32" | "fp32" => {
                let pattern = pattern.to_string();
                building.layer_precision.push(LayerPrecision { pattern, precision: Precision::Fp32 });
            }
            _ => say_note(&format!(
                "--layer-precisions {text} has no effect here: single layers are kept in float32"
            )),
        }
    }
    for text in &args.pool_limit {
        if let Some(size) = text.strip_prefix("workspace:") {
            building.workspace = Some(load::bytes(size).map_err(anyhow::Error::msg).context("--pool-limit")?);
        }
    }
    if let Some(sources) = &args.tactic_sources {
        let named = |theirs: &str| sources.iter().any(|name| name.eq_ignore_ascii_case(theirs));
        let mut list = vec!["+own"];
        list.push(if named("cudnn") { "+cudnn" } else { "-cudnn" });
        list.push(if named("cublas_lt") || named("cublas") { "+cublaslt" } else { "-cublaslt" });
        building.tactic_sources = Some(list.join(","));
    }
    let list = |texts: &[String]| texts.iter().map(|text| inputs::shape(text)).collect::<Result<Vec<_>>>();
    let (min, opt, max) =
        (list(&args.trt_min_shapes)?, list(&args.trt_opt_shapes)?, list(&args.trt_max_shapes)?);
    match (min.is_empty(), opt.is_empty(), max.is_empty()) {
        (true, true, true) => building.shapes = list(&args.input_shapes)?,
        (false, _, false) => {
            let opt = if opt.is_empty() { max.clone() } else { opt };
            building.profiles =
                vec![format!("min={} opt={} max={}", min.join(","), opt.join(","), max.join(","))];
        }
        _ => bail!(
            "a profile has --trt-min-shapes and --trt-max-shapes; --trt-opt-shapes are the largest if not given"
        ),
    }
    Ok(building)
}

/// `FILE.npz`, and `FILE_1.npz` … for further iterations.
fn save(path: &Path, iterations: &[NamedOutputs]) -> Result<()> {
    for (number, arrays) in iterations.iter().enumerate() {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let path = if number == 0 {
            path.to_path_buf()
        } else {
            path.with_file_name(format!("{stem}_{number}.npz"))
        };
        npy::save_archive(&path, arrays)?;
    }
    Ok(())
}
