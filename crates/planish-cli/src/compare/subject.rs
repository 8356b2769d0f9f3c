//! What is compared, ready to run: a graph on the reference, a plan on a device, a model in ONNX Runtime, or outputs that
//! were stored.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use planish::graph::{Graph, interpret_with};
use planish::io::npy;
use planish::{Accuracy, ContextOptions, Device, Engine, Limits, Model, Plan, Sample, Value};

use super::NamedOutputs;
use crate::args::{AskedPrecision, Building, Calibrating, Compare, Opening, Runs, Subject};
use crate::onnxruntime;
use crate::{load, progress};

/// One of those that are compared.
pub(super) struct Ready {
    /// As tables name it.
    pub(super) name: String,
    pub(super) how: How,
    /// The model that it comes from, where its file is one.
    pub(super) model: Option<Model>,
}

pub(super) enum How {
    Reference(Box<Graph>),
    Engine {
        engine: Engine,
        threads: usize,
    },
    OnnxRuntime {
        python: PathBuf,
        model: PathBuf,
    },
    /// Outputs of every sample.
    Stored(Vec<NamedOutputs>),
}

impl Ready {
    /// Opens and builds what a subject needs, and says what cannot be.
    pub(super) fn new(subject: &Subject, args: &Compare) -> Result<Ready> {
        let file = &subject.file;
        if is_stored(file) {
            ensure!(
                subject.runs.is_none() && subject.precision.is_none(),
                "{} holds stored outputs, which nothing runs; leave out what stands after @",
                file.display()
            );
            return Ok(Ready { name: subject.text.clone(), how: How::Stored(stored(file)?), model: None });
        }
        std::fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
        let is_plan = load::is_plan(file);
        if is_plan && let Some(precision) = subject.precision {
            bail!(
                "{} is a plan, whose precision was chosen when it was built; leave out @{}",
                file.display(),
                precision.name()
            );
        }
        let model = if is_plan { None } else { Some(Model::open(file)?) };
        match (subject.runs, &model) {
            (Some(Runs::OnnxRuntime), None) => {
                bail!("{} is a plan, which ONNX Runtime cannot run; give the .onnx file", file.display())
            }
            (Some(Runs::OnnxRuntime | Runs::Reference), _) if subject.precision.is_some() => {
                bail!("`{}`: a precision is for cpu and cuda", subject.text)
            }
            (Some(Runs::OnnxRuntime), Some(_)) => {
                let version = onnxruntime::version(&args.python)?;
                let how = How::OnnxRuntime { python: args.python.clone(), model: file.clone() };
                Ok(Ready { name: format!("{} {version}", subject.text), how, model })
            }
            (Some(Runs::Reference), Some(read)) => {
                let how = How::Reference(Box::new(read.graph().clone()));
                Ok(Ready { name: subject.text.clone(), how, model })
            }
            (Some(Runs::Reference), None) => {
                let how = How::Reference(Box::new(Accuracy::of(Plan::open(file)?).graph()?));
                Ok(Ready { name: subject.text.clone(), how, model })
            }
            (Some(Runs::On(_)) | None, _) => {
                let device = match subject.runs {
                    Some(Runs::On(device)) => device,
                    _ => Device::Auto,
                };
                let plan = plan(subject, args, device, model.as_ref())?;
                Ready::of_plan(subject.text.clone(), file, plan, device, args.threads, model)
            }
        }
    }

    /// A plan that is there already.
    pub(super) fn of_plan(
        name: String,
        file: &Path,
        plan: Plan,
        device: Device,
        threads: Option<usize>,
        model: Option<Model>,
    ) -> Result<Ready> {
        let threads = threads.unwrap_or(plan.record().header.threads as usize).max(1);
        let engine = load::engine(file, plan, device, &Opening::default())?;
        Ok(Ready { name, how: How::Engine { engine, threads }, model })
    }

    /// A graph with the inputs that it takes; `None` for stored outputs.
    pub(super) fn inputs(&self) -> Result<Option<Graph>> {
        if let Some(model) = &self.model {
            return Ok(Some(model.graph().clone()));
        }
        match &self.how {
            How::Reference(graph) => Ok(Some((**graph).clone())),
            How::Engine { engine, .. } => {
                let mut graph = Graph::new("inputs");
                for port in engine.inputs() {
                    graph.add_input(&port.name, port.ty)?;
                }
                Ok(Some(graph))
            }
            How::OnnxRuntime { .. } | How::Stored(_) => Ok(None),
        }
    }

    /// The sizes that its plan was tuned at.
    pub(super) fn tuned_at(&self) -> &[(String, i64)] {
        match &self.how {
            How::Engine { engine, .. } => &engine.record().header.tuned_at,
            _ => &[],
        }
    }

    /// Its plan, where it is one.
    pub(super) fn plan(&self) -> Option<Plan> {
        match &self.how {
            How::Engine { engine, .. } => Some(Plan::from(engine.record().clone())),
            _ => None,
        }
    }

    /// The outputs for every sample.
    pub(super) fn run(&self, samples: &[Sample]) -> Result<Vec<NamedOutputs>> {
        let bar = progress::bar();
        let tell = |done: usize| {
            if let Some(bar) = &bar {
                bar(&self.name, done, samples.len());
            }
        };
        let mut all = Vec::new();
        match &self.how {
            How::Stored(stored) => {
                ensure!(
                    stored.len() == samples.len(),
                    "{} holds outputs of {} samples, and there are {}; --samples and the data must be what they were \
                     made of",
                    self.name,
                    stored.len(),
                    samples.len()
                );
                all.clone_from(stored);
            }
            How::OnnxRuntime { python, model } => all = onnxruntime::run(python, model, samples)?,
            How::Reference(graph) => {
                let names: Vec<String> =
                    graph.outputs().iter().map(|&id| graph.value(id).name.to_string()).collect();
                let inputs: Vec<String> =
                    graph.inputs().iter().map(|&id| graph.value(id).name.to_string()).collect();
                for (number, sample) in samples.iter().enumerate() {
                    tell(number);
                    let values = in_order(&inputs, sample)?;
                    let outputs = interpret_with(graph, values, &Limits::default(), &mut |_, _| {})
                        .with_context(|| format!("{} does not run", self.name))?;
                    all.push(named(&names, outputs)?);
                }
            }
            How::Engine { engine, threads } => {
                let names: Vec<String> = engine.outputs().into_iter().map(|port| port.name).collect();
                let inputs: Vec<String> = engine.inputs().into_iter().map(|port| port.name).collect();
                let mut context = engine.context_with(ContextOptions::new(*threads))?;
                for (number, sample) in samples.iter().enumerate() {
                    tell(number);
                    let values = context
                        .run_values(&in_order(&inputs, sample)?)
                        .map_err(load::say_how_to_go_on)
                        .with_context(|| format!("{} does not run", self.name))?;
                    all.push(named(&names, values)?);
                }
            }
        }
        progress::clear();
        Ok(all)
    }
}

/// The plan of a file, or the one that its model is built into.
fn plan(subject: &Subject, args: &Compare, device: Device, model: Option<&Model>) -> Result<Plan> {
    let building = Building {
        device,
        threads: args.threads,
        tune_level: args.tune_level,
        precision: AskedPrecision::Named(subject.precision.unwrap_or_default()),
        calibrating: match subject.precision {
            Some(precision) if precision.quantizes() => args.calibrating.clone(),
            _ => Calibrating::default(),
        },
        ..Building::default()
    };
    load::check_device(device)?;
    let made = match model {
        Some(model) => load::build_in_memory(&subject.file, model.clone(), &building, args.no_cache)?,
        None => load::plan(&subject.file, &building, &Opening::default(), args.no_cache)?,
    };
    Ok(made.plan)
}

/// A sample's tensors in the order of these names.
fn in_order(names: &[String], sample: &Sample) -> Result<Vec<Value>> {
    let one = |name: &String| {
        let found = sample.inputs.iter().find(|(known, _)| known == name);
        let (_, tensor) = found.with_context(|| format!("nothing is given for the input `{name}`"))?;
        Ok(Value::from(tensor.clone()))
    };
    names.iter().map(one).collect()
}

/// Outputs by name; what is no tensor cannot be compared.
fn named(names: &[String], values: Vec<Value>) -> Result<NamedOutputs> {
    let one = |(name, value): (&String, Value)| {
        let tensor = value.as_tensor().cloned();
        Ok((
            name.clone(),
            tensor.with_context(|| format!("output `{name}` is no tensor, which is all that is compared"))?,
        ))
    };
    names.iter().zip(values).map(one).collect()
}

/// Whether a path holds outputs instead of a model.
fn is_stored(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npz"))
}

/// The outputs in a file, or in the files of a folder: an .npz for each sample in the order of their names, or an .npy for
/// each output of the only one.
fn stored(path: &Path) -> Result<Vec<NamedOutputs>> {
    if !path.is_dir() {
        return Ok(vec![npy::read_archive(path, &npy::accept_all)?]);
    }
    let cannot = || format!("cannot read {}", path.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).with_context(cannot)? {
        files.push(entry.with_context(cannot)?.path());
    }
    files.sort();
    let of = |extension: &str| -> Vec<&PathBuf> {
        files
            .iter()
            .filter(|file| file.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension)))
            .collect()
    };
    let (archives, arrays) = (of("npz"), of("npy"));
    match (archives.is_empty(), arrays.is_empty()) {
        (false, _) => {
            archives.into_iter().map(|file| Ok(npy::read_archive(file, &npy::accept_all)?)).collect()
        }
        (true, false) => {
            let one = |file: &PathBuf| {
                let name = file.file_stem().unwrap_or_default().to_string_lossy().to_string();
                Ok((name, npy::read(file, &npy::accept_all)?))
            };
            Ok(vec![arrays.into_iter().map(one).collect::<Result<_>>()?])
        }
        (true, true) => {
            bail!("{} holds no outputs; an .npz for each sample, or an .npy for each output", path.display())
        }
    }
}
