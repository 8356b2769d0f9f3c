//! `planish run --capture FILE`: a run as one file that `planish debug replay` runs again anywhere. It is an archive of byte
//! arrays, which numpy opens, too: `capture.json` says how the run was asked for and how it ended, beside it lie the model,
//! the inputs that were files, and the outputs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish::io::{Random, npy};
use planish::onnx::{self, DataType, TensorData};
use planish::{Bytes, Tensor};
use serde_json::{Value, json};

use crate::args::{Backend, Bordering, Run};
use crate::compare::NamedOutputs;
use crate::files::{self, Kind};
use crate::{load, say_note};

/// What says how it was asked for.
const ABOUT: &str = "capture.json";
/// Before the names of outputs.
const OUTPUT: &str = "output:";
/// Before files in arguments.
const HERE: char = '@';

/// A captured run.
pub(crate) struct Capture {
    /// `capture.json`.
    pub(crate) about: Value,
    /// Files by name.
    files: Vec<(String, Vec<u8>)>,
    pub(crate) outputs: NamedOutputs,
}

/// Runs `work` and writes what it was asked for and how it ended. The file is there before the run begins, for runs that end
/// the process.
pub(crate) fn around(
    args: &Run,
    path: &Path,
    work: impl FnOnce() -> Result<NamedOutputs>,
) -> Result<NamedOutputs> {
    let mut given = vec![args.model.as_path()];
    given.extend(args.inputs.as_deref());
    files::check_target(path, Kind::Npz, &given)?;
    let mut capture = Capture::of(args)?;
    capture.save(path)?;
    let ended = work();
    capture.about["ended"] = match &ended {
        Ok(_) => json!({ "well": true }),
        Err(error) => json!({ "well": false, "error": format!("{error:#}") }),
    };
    if let Ok(outputs) = &ended {
        capture.outputs.clone_from(outputs);
    }
    capture.save(path)?;
    say_note(&format!("captured in {}; `planish debug replay` runs it again", path.display()));
    ended
}

impl Capture {
    /// What the arguments ask for, before anything ran.
    fn of(args: &Run) -> Result<Capture> {
        let mut files = Vec::new();
        let read = |path: &Path| -> Result<Vec<u8>> {
            let bytes = Bytes::map_file(path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok(bytes.to_vec())
        };
        let mut recipes = Value::Null;
        let model = match load::is_plan(&args.model) {
            true if args.without_weights => {
                bail!("--without-weights is for models; a plan is one with its weights")
            }
            true => ("model.plan", read(&args.model)?),
            false => {
                let file = onnx::File::open(&args.model)?;
                let mut model = file.model()?;
                if args.without_weights {
                    recipes = take_weights(&mut model);
                }
                ("model.onnx", onnx::write(&model))
            }
        };
        let mut arguments = options(args);
        arguments.insert(0, format!("{HERE}{}", model.0));
        files.push((model.0.to_string(), model.1));
        if let Some(path) = &args.inputs {
            files.push(("inputs.npz".to_string(), read(path)?));
            arguments.extend(["--inputs".to_string(), format!("{HERE}inputs.npz")]);
        }
        for (number, text) in args.border.post.iter().enumerate() {
            let text = match text.split_once("labels=") {
                Some((before, rest)) => {
                    let (path, after) = rest.find(',').map_or((rest, ""), |comma| rest.split_at(comma));
                    let file = format!("labels_{number}.txt");
                    files.push((file.clone(), read(Path::new(path))?));
                    format!("{before}labels={HERE}{file}{after}")
                }
                None => text.clone(),
            };
            arguments.extend(["--post".to_string(), text]);
        }
        for (number, text) in args.input.iter().enumerate() {
            let Some((name, path)) = text.split_once('=') else { continue };
            let path = PathBuf::from(path);
            let end = path.extension().unwrap_or_default().to_string_lossy();
            let file = format!("input_{number}.{end}");
            files.push((file.clone(), read(&path)?));
            arguments.extend(["--input".to_string(), format!("{name}={HERE}{file}")]);
        }
        let about = json!({
            "planish": env!("CARGO_PKG_VERSION"),
            "machine": planish::Device::Cpu.describe()?,
            "arguments": arguments,
            "weights": recipes,
            "ended": null,
        });
        Ok(Capture { about, files, outputs: Vec::new() })
    }

    fn save(&self, path: &Path) -> Result<()> {
        let about = serde_json::to_string_pretty(&self.about)?.into_bytes();
        let mut arrays = vec![(ABOUT.to_string(), Tensor::vector(about))];
        arrays.extend(self.files.iter().map(|(name, bytes)| (name.clone(), Tensor::vector(bytes.clone()))));
        arrays.extend(self.outputs.iter().map(|(name, tensor)| (format!("{OUTPUT}{name}"), tensor.clone())));
        Ok(npy::save_archive(path, &arrays)?)
    }

    pub(crate) fn open(path: &Path) -> Result<Capture> {
        let arrays = npy::read_archive(path, &npy::accept_all).with_context(|| {
            format!("{} is no captured run; `planish run --capture` makes them", path.display())
        })?;
        let mut capture = Capture { about: Value::Null, files: Vec::new(), outputs: Vec::new() };
        for (name, tensor) in arrays {
            match name.strip_prefix(OUTPUT) {
                Some(output) => capture.outputs.push((output.to_string(), tensor)),
                None if name == ABOUT => {
                    capture.about = serde_json::from_slice(tensor.bytes())
                        .with_context(|| format!("{} has a {ABOUT} that is no JSON", path.display()))?;
                }
                None => capture.files.push((name, tensor.bytes().to_vec())),
            }
        }
        if !capture.about["arguments"].is_array() {
            bail!("{} is no captured run; `planish run --capture` makes them", path.display());
        }
        Ok(capture)
    }

    /// Writes the files into a folder, weights filled in.
    pub(crate) fn unpack(&self, folder: &Path) -> Result<()> {
        for (name, bytes) in &self.files {
            let is_plain = !name.is_empty() && !name.contains(['/', '\\']) && name != "..";
            if !is_plain {
                bail!("a captured file has a name that leads elsewhere: `{name}`");
            }
            let path = folder.join(name);
            if name == "model.onnx" && self.about["weights"].is_array() {
                let mut model = onnx::read(bytes).context("the captured model")?;
                put_weights(&mut model, &self.about["weights"])?;
                onnx::save(&model, &path)?;
                continue;
            }
            files::write(&path, |file| std::io::Write::write_all(file, bytes))?;
        }
        Ok(())
    }

    /// The arguments of `planish run`, for files that were unpacked to this folder. A capture may come from anybody: its
    /// options are those that captures have, and its files are its own.
    pub(crate) fn arguments(&self, folder: &Path) -> Result<Vec<String>> {
        let here = |text: &str, must: bool| -> Result<String> {
            let (name, file) = match text.split_once(HERE) {
                Some((name, file)) if name.is_empty() || name.ends_with('=') => (name, file),
                _ if must => bail!("the capture names a file that it does not hold: `{text}`"),
                _ => return Ok(text.to_string()),
            };
            let (file, after) = file.find(',').map_or((file, ""), |comma| file.split_at(comma));
            if !self.files.iter().any(|(name, _)| name == file) {
                bail!("the capture names a file that it does not hold: `{file}`");
            }
            Ok(format!("{name}{}{after}", folder.join(file).display()))
        };
        let list = self.about["arguments"].as_array().into_iter().flatten();
        let mut words = list.map(|word| word.as_str().context("an argument of the capture is no text"));
        let model = words.next().context("the capture names no model")??;
        let mut list = vec![here(model, true)?];
        while let Some(option) = words.next().transpose()? {
            if option == "--no-winograd" {
                list.push(option.to_string());
                continue;
            }
            if !VALUED.contains(&option) {
                bail!("a captured run has no argument `{option}`");
            }
            let value = words.next().with_context(|| format!("the captured {option} has no value"))??;
            // `--option=value` in one word, since a value may begin with a dash.
            let names_file =
                matches!(option, "--input" | "--inputs") || option == "--post" && value.contains("labels=");
            list.push(format!("{option}={}", here(value, names_file)?));
        }
        Ok(list)
    }
}

/// The options of a captured run that take a value.
const VALUED: [&str; 16] = [
    "--backend",
    "--device",
    "--precision",
    "--random",
    "--shapes",
    "--threads",
    "--tune-level",
    "--dump-tensors",
    "--max-trips",
    "--max-memory",
    "--io",
    "--pre",
    "--post",
    "--state",
    "--inputs",
    "--input",
];

/// All options of a run but those with files.
fn options(args: &Run) -> Vec<String> {
    let mut list = Vec::new();
    let mut add = |name: &str, value: String| list.extend([format!("--{name}"), value]);
    match args.backend {
        Some(Backend::Reference) => add("backend", "reference".into()),
        Some(Backend::Cpu) => add("backend", "cpu".into()),
        Some(Backend::Cuda) => add("backend", "cuda".into()),
        None => add("device", args.with.device.to_string()),
    }
    add("precision", args.with.precision.name().to_string());
    args.random.into_iter().for_each(|seed| add("random", seed.to_string()));
    if !args.shapes.is_empty() {
        add("shapes", args.shapes.join(","));
    }
    args.with.threads.into_iter().for_each(|n| add("threads", n.to_string()));
    add("tune-level", args.tune_level.to_string());
    args.dump_tensors.iter().for_each(|glob| add("dump-tensors", glob.clone()));
    args.with.opening.max_trips.into_iter().for_each(|n| add("max-trips", n.to_string()));
    args.with.opening.max_memory.into_iter().for_each(|n| add("max-memory", n.to_string()));
    let Bordering { io, pre, state, .. } = &args.border;
    for (name, texts) in [("io", io), ("pre", pre), ("state", state)] {
        texts.iter().for_each(|text| list.extend([format!("--{name}"), text.clone()]));
    }
    list.extend(args.no_winograd.then(|| "--no-winograd".to_string()));
    list
}

/// Tensors of fewer elements say how a model works, and stay.
const LEAST_TAKEN: usize = 64;

/// Takes the elements of large float weights out, and gives what random numbers must be like to take their place.
fn take_weights(model: &mut onnx::Model<'_>) -> Value {
    let mut recipes = Vec::new();
    for tensor in &mut model.graph.initializers {
        let n = tensor.element_count().unwrap_or(0);
        if tensor.data_type != DataType::Float || n < LEAST_TAKEN {
            continue;
        }
        let Ok(bytes) = tensor.to_le_bytes() else { continue };
        let values = bytes.as_chunks().0.iter().map(|chunk| f64::from(f32::from_le_bytes(*chunk)));
        let (mut sum, mut squares) = (0.0, 0.0);
        values.for_each(|value| {
            sum += value;
            squares += value * value;
        });
        let mean = sum / n as f64;
        let deviation = (squares / n as f64 - mean * mean).max(0.0).sqrt();
        recipes.push(json!({ "name": tensor.name, "mean": mean, "deviation": deviation }));
        tensor.data = TensorData::Raw(Vec::new().into());
    }
    Value::Array(recipes)
}

/// Random numbers in place of weights that were taken out.
fn put_weights(model: &mut onnx::Model<'_>, recipes: &Value) -> Result<()> {
    for (number, recipe) in recipes.as_array().into_iter().flatten().enumerate() {
        let name = recipe["name"].as_str().context("a weight without a name")?;
        let (mean, deviation) =
            recipe["mean"].as_f64().zip(recipe["deviation"].as_f64()).context("a weight of no mean")?;
        let tensor = model.graph.initializers.iter_mut().find(|tensor| tensor.name == name);
        let tensor = tensor.with_context(|| format!("the captured model has no weight `{name}`"))?;
        let mut random = Random::new(number as u64);
        // Uniform numbers of this half width have the deviation 1.
        let width = 3f64.sqrt();
        let mut draw = || mean + deviation * width * (2.0 * random.unit() - 1.0);
        let n = tensor.element_count().context("the captured model")?;
        // Nothing promises that the sizes of a file from elsewhere are sane.
        if n > 1 << 32 {
            bail!("the captured model has a weight `{name}` of {n} elements");
        }
        tensor.data =
            TensorData::Raw((0..n).flat_map(|_| (draw() as f32).to_le_bytes()).collect::<Vec<u8>>().into());
    }
    Ok(())
}
