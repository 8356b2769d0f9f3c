//! What a sweep measures: every model at every size, batch, precision, device and number of threads that it can have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use planish::graph::Graph;
use planish::{Device, Model, Precision, shapes};

use crate::args::Sweep;
use crate::say_note;

/// One model file.
pub(super) struct Subject {
    pub(super) path: PathBuf,
    pub(super) model: Model,
    /// The name without its size: models of one family are one model at several sizes.
    pub(super) family: String,
    sizes: Vec<usize>,
    batches: Vec<usize>,
}

/// One measurement to be.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The number of the subject.
    pub(super) subject: usize,
    pub(super) size: usize,
    pub(super) batch: usize,
    pub(super) precision: Precision,
    pub(super) device: Device,
    /// All that the process may use if not given.
    pub(super) threads: Option<usize>,
    /// As `--shapes` takes them; empty where nothing is open.
    pub(super) shapes: Vec<String>,
}

impl Case {
    /// What tells it from others, for resuming: the model's contents, not its name.
    pub(super) fn key(&self, subject: &Subject, args: &Sweep) -> String {
        let hash: String = subject.model.hash().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!(
            "{hash} size={} batch={} precision={} device={} threads={} level={} duration={}",
            self.size,
            self.batch,
            self.precision.name(),
            self.device.settled(),
            self.threads.unwrap_or(0),
            args.tune_level,
            args.duration.as_millis()
        )
    }

    /// In a few words.
    pub(super) fn title(&self, subject: &Subject) -> String {
        let threads = self.threads.map_or_else(String::new, |threads| format!(", {threads} threads"));
        format!(
            "{} at {}, batch {}, {} on {}{threads}",
            subject.family,
            self.size,
            self.batch,
            self.precision.name(),
            self.device.settled()
        )
    }
}

impl Subject {
    pub(super) fn open(path: &Path, args: &Sweep) -> Result<Subject> {
        ensure!(
            !crate::load::is_plan(path),
            "{} is a plan, whose sizes are settled; give the .onnx file",
            path.display()
        );
        let model = Model::open(path)?;
        let axes = Axes::of(model.graph());
        let name = path.file_stem().unwrap_or_default().to_string_lossy().to_string();
        let sizes = match (axes.has_open_size, args.sizes.is_empty()) {
            (true, false) => args.sizes.clone(),
            (true, true) => vec![default_size(model.graph())?],
            (false, _) => vec![axes.fixed_size],
        };
        if !axes.has_open_size && !args.sizes.is_empty() && !args.sizes.contains(&axes.fixed_size) {
            say_note(&format!(
                "{} has fixed sizes, and runs at its own {} alone",
                path.display(),
                axes.fixed_size
            ));
        }
        let batches = match axes.fixed_batch {
            None => args.batches.clone(),
            Some(batch) => vec![batch],
        };
        if let Some(batch) = axes.fixed_batch
            && args.batches != [batch]
        {
            say_note(&format!("{} has a fixed batch, and runs at its own {batch} alone", path.display()));
        }
        let family = match (axes.has_open_size, name.strip_suffix(&format!("_{}", axes.fixed_size))) {
            (false, Some(family)) if !family.is_empty() => family.to_string(),
            _ => name,
        };
        Ok(Subject { path: path.to_path_buf(), model, family, sizes, batches })
    }

    /// Shapes of all inputs with open axes at a size and a batch, as arguments.
    fn shapes(&self, size: usize, batch: usize) -> Vec<String> {
        let mut list = Vec::new();
        for (value, ty) in shapes::tensor_inputs(self.model.graph()) {
            let Some(shape) = ty.shape.as_ref().filter(|shape| shape.as_fixed().is_none()) else { continue };
            let dims = shape.dims().iter().enumerate().map(|(axis, dim)| match dim.as_usize() {
                Some(fixed) => fixed,
                None if axis == 0 => batch,
                None => size,
            });
            list.push(format!("{}:{}", value.name, shapes::sizes_text(&dims.collect::<Vec<_>>())));
        }
        list
    }
}

/// What the inputs of a model leave open.
struct Axes {
    has_open_size: bool,
    /// The last axis of the largest input, where no axis but the first is open.
    fixed_size: usize,
    /// Where the first axis of no input is open.
    fixed_batch: Option<usize>,
}

impl Axes {
    fn of(graph: &Graph) -> Axes {
        let mut axes = Axes { has_open_size: false, fixed_size: 1, fixed_batch: Some(1) };
        let mut most = 0;
        for (_, ty) in shapes::tensor_inputs(graph) {
            let Some(shape) = &ty.shape else { continue };
            let dims = shape.dims();
            match dims.first().map(|dim| dim.as_usize()) {
                Some(None) => axes.fixed_batch = None,
                Some(Some(batch)) if axes.fixed_batch == Some(1) => axes.fixed_batch = Some(batch),
                _ => {}
            }
            axes.has_open_size |= dims.iter().skip(1).any(|dim| dim.as_usize().is_none());
            // Of an image the largest axis is one of its own, wherever its channels are.
            let elements: usize = dims.iter().skip(1).map(|dim| dim.as_usize().unwrap_or(1)).product();
            if elements > most {
                most = elements;
                axes.fixed_size = dims.iter().skip(1).filter_map(|dim| dim.as_usize()).max().unwrap_or(1);
            }
        }
        axes
    }
}

/// The size at which a model is tuned if none is given.
fn default_size(graph: &Graph) -> Result<usize> {
    let sizes: BTreeMap<String, i64> = shapes::default_sizes(graph, &shapes::Sizes::new())?;
    let inputs = shapes::tensor_inputs(graph);
    let later =
        inputs.iter().filter_map(|(_, ty)| ty.shape.as_ref()).flat_map(|shape| shape.dims().iter().skip(1));
    let largest = later.filter_map(|dim| sizes.get(dim.as_symbol()?)).max();
    Ok(largest.map_or(1, |&size| size as usize))
}

/// All that is to be measured, in the order of the models, sizes and batches.
pub(super) fn all(subjects: &[Subject], args: &Sweep) -> Vec<Case> {
    let threads: Vec<Option<usize>> = match args.threads.is_empty() {
        true => vec![None],
        false => args.threads.iter().map(|&threads| Some(threads)).collect(),
    };
    let mut cases = Vec::new();
    for (number, subject) in subjects.iter().enumerate() {
        for &size in &subject.sizes {
            for &batch in &subject.batches {
                let shapes = subject.shapes(size, batch);
                for &precision in &args.precisions {
                    for &device in &args.devices {
                        for &threads in &threads {
                            let shapes = shapes.clone();
                            cases.push(Case {
                                subject: number,
                                size,
                                batch,
                                precision,
                                device,
                                threads,
                                shapes,
                            });
                        }
                    }
                }
            }
        }
    }
    cases
}
