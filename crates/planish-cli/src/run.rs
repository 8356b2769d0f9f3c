//! `planish run`: a model's outputs on given inputs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use planish::files::NewFile;
use planish::graph::{Graph, Node, interpret_with};
use planish::io::{Inputs, Sources, npy};
use planish::{Device, Labelled, Model, Tensor, Value, ValueRange, onnx};
use serde_json::json;

use crate::args::{AskedPrecision, Backend, Bordering, Building, Run};
use crate::compare::NamedOutputs;
use crate::ending::Answer;
use crate::{border, capture, edit, files, load, print, progress, say_note};

pub(crate) fn command(args: &Run, out: &mut dyn Write) -> Result<Answer> {
    match &args.capture {
        Some(path) => capture::around(args, path, || perform(args, out))?,
        None => perform(args, out)?,
    };
    Ok(Answer::Yes)
}

/// Runs the model, shows and saves its outputs, and gives them.
pub(crate) fn perform(args: &Run, out: &mut dyn Write) -> Result<NamedOutputs> {
    let device = match args.backend {
        Some(Backend::Cpu) => Device::Cpu,
        Some(Backend::Cuda) => Device::Cuda(0),
        Some(Backend::Reference) | None => args.with.device,
    };
    if args.backend == Some(Backend::Reference) && args.with.opening.managed_weights {
        bail!("--managed-weights is for a plan on a GPU; the reference runs on the CPU");
    }
    if args.backend == Some(Backend::Reference) && args.with.opening.weight_budget.is_some() {
        bail!("--weight-budget is for a plan on a GPU; the reference runs on the CPU");
    }
    load::check_opening(&args.model, device, &args.with.opening)?;
    if let Some(path) = &args.output {
        check_target(path, args)?;
    }
    let sources = Sources {
        archive: args.inputs.as_ref(),
        files: &args.input,
        random: args.random,
        shapes: &args.shapes,
        defaults: &[],
    };
    let (ran, inputs) = match args.backend {
        Some(Backend::Reference) => {
            let model = model(args)?;
            let inputs = sources.gather(model.graph())?;
            inputs.notes.iter().for_each(|note| say_note(note));
            (run(model.graph(), &inputs, &load::limits(&args.with.opening))?, inputs)
        }
        _ => run_plan(args, device, &sources)?,
    };
    if !args.with.json.replaces_tables() {
        ran.print(out)?;
    }
    if let Some(path) = &args.output {
        let saved = ran.save(path)?;
        if !args.with.json.replaces_tables() {
            writeln!(out, "saved   {saved}")?;
        }
    }
    print::json(out, &args.with.json, &ran.json(&args.model, &inputs))?;
    Ok(ran.tensors())
}

/// The model, with the values that are to be dumped among its outputs.
fn model(args: &Run) -> Result<Model> {
    let model = match args.dump_tensors.is_empty() {
        true => Model::open(&args.model)?,
        false => edit::with_outputs(&args.model, "--dump-tensors", &args.dump_tensors, |model| {
            Ok(onnx::to_model(model)?)
        })?,
    };
    border::around(model, &args.border)
}

/// Outputs and how long they took.
pub(crate) struct Ran {
    /// Named tensors; elements of sequences are numbered, absent optionals `None`.
    outputs: Vec<NamedTensor>,
    time: Duration,
    backend: String,
    /// Names of classes that outputs hold the numbers of.
    labels: Vec<Labelled>,
}

/// An output; `None` for an optional that is absent.
pub(crate) type NamedTensor = (String, Option<Tensor>);

/// Runs a plan, or the plan that the model is built into first.
fn run_plan(args: &Run, device: Device, sources: &Sources<'_>) -> Result<(Ran, Inputs)> {
    let mut building = Building {
        threads: args.with.threads,
        tune_level: args.tune_level,
        no_winograd: args.no_winograd,
        device,
        precision: AskedPrecision::Named(args.with.precision),
        ..Building::default()
    };
    let threads_of =
        |plan: &planish::Plan| args.with.threads.unwrap_or(plan.record().header.threads as usize).max(1);
    let (engine, threads, inputs) = if load::is_plan(&args.model) {
        let Bordering { io, pre, post, state, .. } = &args.border;
        ensure!(
            io.is_empty() && pre.is_empty() && post.is_empty() && state.is_empty(),
            "--io, --pre, --post and --state are for models: a plan has its own; give the .onnx file"
        );
        ensure!(
            args.dump_tensors.is_empty(),
            "--dump-tensors is for models: a plan keeps no values between its steps; give the .onnx file"
        );
        let made = load::plan(&args.model, &building, &args.with.opening, args.with.no_cache)?;
        let threads = threads_of(&made.plan);
        let engine = load::engine(&args.model, made.plan, device, &args.with.opening)?;
        let sources = Sources { defaults: &engine.record().header.tuned_at, ..*sources };
        let inputs = sources.gather_for(&engine)?;
        (engine, threads, inputs)
    } else {
        load::check_device(device)?;
        // A model's inputs are checked before anything is built for them.
        let model = model(args)?;
        let inputs = sources.gather(model.graph())?;
        building.untied.clone_from(&inputs.untied);
        let made = load::build_in_memory(&args.model, model, &building, args.with.no_cache)?;
        let threads = threads_of(&made.plan);
        (load::engine(&args.model, made.plan, device, &args.with.opening)?, threads, inputs)
    };
    // States are what they were, not inputs; only the engine knows them.
    let inputs = if engine.states().is_empty() { inputs } else { sources.gather_for(&engine)? };
    inputs.notes.iter().for_each(|note| say_note(note));
    let mut context = engine.context_with(planish::ContextOptions::new(threads))?;
    let start = Instant::now();
    let values = context.run_values(&inputs.values()).map_err(load::say_how_to_go_on)?;
    let time = start.elapsed();
    let mut outputs = Vec::new();
    for (port, value) in engine.outputs().into_iter().zip(values) {
        flatten(port.name, value, &mut outputs);
    }
    let (backend, _) = load::device_and_precision(&engine);
    let labels = planish::labels_of(&engine);
    Ok((Ran { outputs, time, backend, labels }, inputs))
}

/// Runs the graph on the reference, with a bar where that takes long and somebody watches.
pub(crate) fn run(graph: &Graph, inputs: &Inputs, limits: &planish::Limits) -> Result<Ran> {
    let start = Instant::now();
    let (bar, n_nodes, mut n_done) = (progress::bar(), graph.nodes().len(), 0);
    let mut observe = |_: &Node, _: &[Option<&Value>]| {
        n_done += 1;
        if let Some(bar) = &bar {
            bar("run", n_done, n_nodes);
        }
    };
    let values = interpret_with(graph, inputs.values(), limits, &mut observe).context("the run failed")?;
    let time = start.elapsed();
    progress::clear();
    let mut outputs = Vec::new();
    for (&id, value) in graph.outputs().iter().zip(values) {
        flatten(graph.value(id).name.to_string(), value, &mut outputs);
    }
    Ok(Ran { outputs, time, backend: "reference".to_string(), labels: Vec::new() })
}

fn flatten(name: String, value: Value, outputs: &mut Vec<NamedTensor>) {
    match value {
        Value::Tensor(tensor) => outputs.push((name, Some(tensor))),
        Value::Optional(None) => outputs.push((name, None)),
        Value::Optional(Some(inner)) => flatten(name, *inner, outputs),
        Value::Sequence(elements) => {
            for (idx, element) in elements.into_iter().enumerate() {
                flatten(format!("{name}.{idx}"), element, outputs);
            }
        }
    }
}

fn type_text(tensor: &Tensor) -> String {
    let sizes: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
    format!("{}[{}]", tensor.dtype(), sizes.join(","))
}

impl Ran {
    /// How long the run took.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn print(&self, out: &mut dyn Write) -> Result<()> {
        let heading = ["output", "type", "min", "max", "mean", ""].map(String::from).to_vec();
        let mut rows = vec![heading];
        for (name, tensor) in &self.outputs {
            let Some(tensor) = tensor else {
                rows.push(vec![name.clone(), "absent".into()]);
                continue;
            };
            let mut row = vec![name.clone(), type_text(tensor)];
            match ValueRange::of(tensor) {
                Some(summary) => {
                    row.extend([summary.min, summary.max, summary.mean].map(print::number));
                    if summary.n_nan > 0 {
                        row.push(format!("{} NaN", print::count(summary.n_nan as u64)));
                    }
                }
                None if tensor.is_empty() => row.push("empty".into()),
                None => row.push("all NaN".into()),
            }
            rows.push(row);
        }
        print::table(out, &rows, &[2, 3, 4])?;
        border::show(&self.labels, &self.outputs, out)?;
        writeln!(out, "time    {} on the {}", print::seconds(self.time.as_secs_f64()), self.backend)?;
        Ok(())
    }

    /// The tensors to save; what is absent has nothing to save.
    pub(crate) fn tensors(&self) -> Vec<(String, Tensor)> {
        self.outputs.iter().filter_map(|(name, tensor)| Some((name.clone(), tensor.clone()?))).collect()
    }

    fn save(&self, path: &Path) -> Result<String> {
        let tensors = self.tensors();
        for (name, tensor) in &tensors {
            let (own, stored) = (tensor.dtype(), npy::stored_type(tensor.dtype()));
            if own != stored {
                say_note(&format!("numpy has no {own}; `{name}` is saved as {stored}, without loss"));
            }
        }
        if has_extension(path, "npz") {
            npy::save_archive(path, &tensors)?;
            return Ok(path.display().to_string());
        }
        fs::create_dir_all(path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        let mut taken = BTreeSet::new();
        let mut files = Vec::new();
        for (name, tensor) in &tensors {
            let file = path.join(file_name(name, &mut taken));
            let write = || {
                let mut file = NewFile::create(&file)?;
                npy::write(file.writer(), tensor)?;
                Ok::<_, io::Error>(file)
            };
            files.push(write().with_context(|| format!("cannot write {}", file.display()))?);
        }
        // All or none.
        planish::files::commit_all(files).with_context(|| format!("cannot write into {}", path.display()))?;
        Ok(format!("{} file(s) in {}", tensors.len(), path.display()))
    }

    fn json(&self, model: &Path, inputs: &Inputs) -> serde_json::Value {
        let inputs: Vec<_> = inputs
            .tensors
            .iter()
            .map(|(name, tensor)| json!({"name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape()}))
            .collect();
        let outputs: Vec<_> = self
            .outputs
            .iter()
            .map(|(name, tensor)| match tensor {
                None => json!({"name": name, "absent": true}),
                Some(tensor) => {
                    let mut entry =
                        json!({"name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape()});
                    if let Some(summary) = ValueRange::of(tensor) {
                        entry["min"] = json!(summary.min);
                        entry["max"] = json!(summary.max);
                        entry["mean"] = json!(summary.mean);
                        entry["nan"] = json!(summary.n_nan);
                    }
                    entry
                }
            })
            .collect();
        json!({
            "model": model.display().to_string(),
            "backend": self.backend,
            "time_ms": self.time.as_secs_f64() * 1e3,
            "inputs": inputs,
            "outputs": outputs,
        })
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension))
}

/// Refuses what could not be written before anything is computed.
fn check_target(path: &Path, args: &Run) -> Result<()> {
    ensure!(
        !has_extension(path, "npy"),
        "cannot write the outputs to {}: give an .npz file, or a folder, which gets one .npy file per output",
        path.display()
    );
    if !has_extension(path, "npz") {
        let is_free = path.is_dir() || !path.exists();
        ensure!(is_free, "cannot write into {}: it is a file, not a folder", path.display());
        return Ok(());
    }
    let mut given = vec![args.model.as_path()];
    given.extend(args.inputs.as_deref());
    files::check_target(path, files::Kind::Npz, &given)
}

/// A file name for an output: what file systems dislike replaced, and no name twice.
fn file_name(name: &str, taken: &mut BTreeSet<String>) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(100).collect();
    let plain = plain.trim_start_matches('.');
    let mut candidate = plain.to_string();
    let mut n = 1;
    while candidate.is_empty() || !taken.insert(candidate.to_lowercase()) {
        n += 1;
        candidate = format!("{plain}.{n}");
    }
    candidate + ".npy"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_plain_and_distinct() {
        let mut taken = BTreeSet::new();
        let names = ["y", "/a/b:0", "_a_b_0", "Y", "", "..", "ä"].map(|name| file_name(name, &mut taken));
        assert_eq!(names, ["y.npy", "_a_b_0.npy", "_a_b_0.2.npy", "Y.2.npy", ".2.npy", ".3.npy", "ä.npy"]);
    }
}
