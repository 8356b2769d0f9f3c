//! `planish compare`: models, plans, backends and precisions held against each other on the same inputs.

mod layers;
mod show;
mod subject;

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use planish::io::{Samples, Sources};
use planish::{Accuracy, LabelCount, Metrics, Sample, Tensor};

use crate::args::{Compare, Runs};
use crate::ending::Answer;
use crate::{calibrate, contract, files, onnxruntime, print, say_note};
use subject::{How, Ready};

/// A sample's outputs.
pub(crate) type NamedOutputs = Vec<(String, Tensor)>;

/// One subject beside another.
struct Compared {
    name: String,
    /// What it was held against.
    against: String,
    /// By output.
    outputs: Vec<(String, Metrics)>,
    /// What the limit measures of the worst output, and whether that is within it.
    limit: Option<(f64, bool)>,
}

pub(crate) fn command(args: &Compare, out: &mut dyn Write) -> Result<Answer> {
    let given: Vec<_> = args.subjects.iter().map(|subject| subject.file.as_path()).collect();
    if let Some(plot) = &args.plot {
        files::check_target(plot, files::Kind::Svg, &given)?;
    }
    if let Some(path) = args.json.file() {
        print::check_json(path, &given)?;
    }
    ensure!(
        args.hops || args.subjects.len() > 1,
        "one file has nothing to be compared with; name a second one, or follow it with --hops"
    );
    let labels = args.labels.as_deref().map(contract::labels).transpose().context("--labels")?;
    let ready = if args.hops { hops(args)? } else { all(args)? };
    let samples = samples(args, &ready, labels.is_some())?;
    let mut results: Vec<Vec<NamedOutputs>> = Vec::new();
    for subject in &ready {
        results.push(subject.run(&samples)?);
    }
    let mut compared = Vec::new();
    for number in 1..ready.len() {
        // Hops are told one by one, and in the end what they come to.
        let against = if args.hops { number - 1 } else { 0 };
        compared.push(compare(args, &ready, &results, number, against)?);
        if args.hops && number > 1 && number + 1 == ready.len() {
            compared.push(compare(args, &ready, &results, number, 0)?);
        }
    }
    let counts = match &labels {
        Some(labels) => Some(count(&ready, &results, &samples, labels)?),
        None => None,
    };
    let layers = if args.layers { layers::of(&ready, &samples)? } else { Vec::new() };
    if let Some(plot) = &args.plot {
        let svg = layers::chart(&layers).svg();
        files::write(plot, |file| file.write_all(svg.as_bytes()))?;
    }
    let found = show::Found {
        first: &ready[0].name,
        n_samples: samples.len(),
        compared: &compared,
        counts: counts.as_deref(),
        layers: &layers,
        limit: args.max_error,
    };
    if !args.json.replaces_tables() {
        found.print(out)?;
    }
    print::json(out, &args.json, &found.json())?;
    let is_within = |one: &Compared| {
        let has_shape = one.outputs.iter().all(|(_, metrics)| !metrics.has_other_shape());
        has_shape && one.limit.is_none_or(|(_, holds)| holds)
    };
    Ok(if compared.iter().all(is_within) { Answer::Yes } else { Answer::No })
}

/// What the arguments name.
fn all(args: &Compare) -> Result<Vec<Ready>> {
    // What is not there is said before anything is built.
    if args.subjects.iter().any(|subject| subject.runs == Some(Runs::OnnxRuntime)) {
        onnxruntime::version(&args.python)?;
    }
    args.subjects.iter().map(|subject| Ready::new(subject, args)).collect()
}

/// A model from hop to hop.
fn hops(args: &Compare) -> Result<Vec<Ready>> {
    let (before, model) = match &args.subjects[..] {
        [model] => (None, model),
        [stored, model] => (Some(stored), model),
        _ => bail!(
            "--hops follows one model, before which stored outputs may come; {} files are given",
            args.subjects.len()
        ),
    };
    let mut hops = Vec::new();
    if let Some(stored) = before {
        let ready = Ready::new(stored, args)?;
        ensure!(
            matches!(ready.how, How::Stored(_)),
            "{} is no folder and no .npz file of stored outputs, which alone may come before the model of --hops",
            stored.file.display()
        );
        hops.push(ready);
    }
    let built = Ready::new(model, args)?;
    let (Some(original), How::Engine { threads, .. }, Some(plan)) = (&built.model, &built.how, built.plan())
    else {
        bail!("--hops begins with an .onnx file that is built for cpu or cuda; {} is not", model.text);
    };
    let reference = |name: &str, graph: planish::graph::Graph| Ready {
        name: name.to_string(),
        how: How::Reference(Box::new(graph)),
        model: None,
    };
    hops.push(reference("original", original.graph().clone()));
    hops.push(reference("optimized", Accuracy::of(plan.clone()).graph()?));
    let file = std::env::temp_dir().join(format!("planish-hops-{}.plan", std::process::id()));
    let reloaded = plan.save(&file).and_then(|_| planish::Plan::open_copied(&file));
    let _ = std::fs::remove_file(&file);
    let device = match model.runs {
        Some(Runs::On(device)) => device,
        _ => planish::Device::Auto,
    };
    let reloaded =
        Ready::of_plan("reloaded".to_string(), &model.file, reloaded?, device, Some(*threads), None)?;
    hops.push(Ready { name: "plan".to_string(), ..built });
    hops.push(reloaded);
    Ok(hops)
}

/// The inputs that all are run on.
fn samples(args: &Compare, ready: &[Ready], all: bool) -> Result<Vec<Sample>> {
    let mut graph = None;
    for subject in ready {
        graph = match graph {
            None => subject.inputs()?,
            found => found,
        };
    }
    let graph =
        graph.context("all are stored outputs, and nothing is to run; name a model or a plan as well")?;
    if let Some(data) = &args.data {
        // Which label belongs to which sample is told by their order alone.
        let limit = if all { u32::MAX as usize } else { args.samples };
        let pixels = calibrate::preprocess(&args.calibrating.pixels);
        let samples = Samples::open(data, &graph, limit, &pixels).context("--data")?;
        samples.notes().iter().for_each(|note| say_note(note));
        return samples.collect::<Result<_, _>>().context("--data");
    }
    let defaults = ready.iter().map(Ready::tuned_at).find(|sizes| !sizes.is_empty()).unwrap_or_default();
    let n = if args.inputs.is_some() { 1 } else { args.samples.max(1) };
    let one = |number: usize| -> Result<Sample> {
        let random = args.inputs.is_none().then(|| args.random.wrapping_add(number as u64));
        let sources = Sources {
            archive: args.inputs.as_ref(),
            random,
            shapes: &args.shapes,
            defaults,
            ..Sources::default()
        };
        let fed = sources.gather(&graph)?;
        if number == 0 {
            fed.notes.iter().for_each(|note| say_note(note));
        }
        Ok(Sample::new(fed.tensors, 1))
    };
    (0..n).map(one).collect()
}

/// The outputs of one subject beside those of another.
fn compare(
    args: &Compare,
    ready: &[Ready],
    results: &[Vec<NamedOutputs>],
    number: usize,
    against: usize,
) -> Result<Compared> {
    let (name, first) = (&ready[number].name, &ready[against].name);
    let mut outputs: Vec<(String, Metrics)> = Vec::new();
    for (got, want) in results[number].iter().zip(&results[against]) {
        for (at, (output, wanted)) in want.iter().enumerate() {
            let by_name = got.iter().find(|(known, _)| known == output);
            // Exporters rename; where no name is the same, the order tells.
            let is_renamed = got.len() == want.len()
                && got.iter().all(|(known, _)| want.iter().all(|(name, _)| name != known));
            let found = by_name.or_else(|| got.get(at).filter(|_| is_renamed));
            let Some((_, tensor)) = found else {
                let has: Vec<&str> = got.iter().map(|(name, _)| name.as_str()).collect();
                bail!("{name} has no output `{output}`, which {first} has; it has {}", has.join(", "));
            };
            match outputs.iter_mut().find(|(known, _)| known == output) {
                Some((_, metrics)) => metrics.add(tensor, wanted),
                None => {
                    let mut metrics = Metrics::default();
                    metrics.add(tensor, wanted);
                    outputs.push((output.clone(), metrics));
                }
            }
        }
    }
    let limit = args.max_error.map(|contract| {
        let values = outputs.iter().map(|(_, metrics)| contract.measure.of(metrics));
        let beyond = values.clone().find(|&value| !contract.holds(value));
        let worst = beyond
            .or_else(|| values.reduce(|a, b| if contract.measure.is_error() { a.max(b) } else { a.min(b) }));
        (worst.unwrap_or(0.0), beyond.is_none())
    });
    Ok(Compared { name: name.clone(), against: first.clone(), outputs, limit })
}

/// How often each has the labels right, by its first output.
fn count(
    ready: &[Ready],
    results: &[Vec<NamedOutputs>],
    samples: &[Sample],
    labels: &[i64],
) -> Result<Vec<(String, LabelCount)>> {
    let n_rows: usize = samples.iter().map(|sample| sample.count).sum();
    ensure!(labels.len() == n_rows, "{} labels are given for {n_rows} samples; each needs one", labels.len());
    let one = |(subject, outputs): (&Ready, &Vec<NamedOutputs>)| {
        let (mut count, mut rest) = (LabelCount::default(), labels);
        for (sample, outputs) in samples.iter().zip(outputs) {
            let (own, after) = rest.split_at(sample.count);
            if let Some((_, scores)) = outputs.first() {
                count.add(scores, own);
            }
            rest = after;
        }
        (subject.name.clone(), count)
    };
    Ok(ready.iter().zip(results).map(one).collect())
}
