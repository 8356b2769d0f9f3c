//! `cargo xtask gpu-plan`: what a plan for a GPU would be, on a machine without one: steps, kernels, what stays on the
//! CPU, by the cost model.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use clap::Args;
use planish_compile::{BuildOptions, Precision, TacticSelector, TimingCache, build};
use planish_cpu::Cpu;
use planish_cuda::{Cuda, Gpu, offline};
use planish_ir::Graph;
use planish_kernel::{Backend, Candidate, Problem};
use planish_passes::ActivationRange;
use planish_plan::{Plan, Profile, Step, StepKind, SymbolRange, Variant};

use crate::{nvrtc, passes};

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Models of `planish zoo`, or ONNX files.
    #[arg(required = true)]
    models: Vec<String>,
    /// The GPU, by its short name.
    #[arg(long, default_value = "h200")]
    gpu: String,
    #[arg(long, default_value = "fp16")]
    precision: String,
    /// The size of every symbol on a first axis.
    #[arg(long, default_value_t = 1)]
    batch: i64,
    /// Print every step.
    #[arg(long)]
    steps: bool,
    /// Sizes of that symbol that the plan is to have: least, tuned and most.
    #[arg(long, value_delimiter = ',', value_name = "MIN,OPT,MAX")]
    profile: Vec<i64>,
    /// Sizes of other symbols, as in height=512,width=512.
    #[arg(long, value_delimiter = ',', value_parser = named_size, value_name = "NAME=SIZE")]
    sizes: Vec<(String, i64)>,
    /// Layers that stay in f32, by patterns of their names.
    #[arg(long, value_delimiter = ',', value_name = "GLOB")]
    fp32_layers: Vec<String>,
    /// Run what the plan is made of over the reference, every operator rounded by itself, and print its distance to the
    /// model in f32: what the precision alone costs.
    #[arg(long)]
    distance: bool,
    /// Times that a device of this kind measured; tactics that are not among them are left out.
    #[arg(long)]
    timings: Option<PathBuf>,
    /// Compile every kernel that the tuner would measure.
    #[arg(long)]
    compile: bool,
}

/// A range for every value of a model as it is quantized: which layers become integers does not hang on the numbers.
fn made_up_ranges(graph: &Graph) -> Result<HashMap<String, ActivationRange>> {
    let (graph, _) = planish_passes::standard().run(graph.clone(), &planish_passes::Options::default())?;
    let range = ActivationRange { min: -1.0, max: 1.0, threshold: 1.0 };
    Ok(graph.values().map(|(_, value)| (value.name.to_string(), range)).collect())
}

/// Builds a plan of each model by the cost model; says where nothing on the GPU computes a step.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.compile
        && let Some(again) = nvrtc::with_compiler()?
    {
        return Ok(again);
    }
    let gpu = Gpu::known(&options.gpu).with_context(|| format!("no GPU is known as `{}`", options.gpu))?;
    let precision = Precision::named(&options.precision).context("give fp32, tf32, fp16, bf16 or int8")?;
    ensure!(matches!(options.profile.len(), 0 | 3), "--profile wants three sizes: least, tuned and most");
    let mut timings = match &options.timings {
        Some(path) => TimingCache::load(path)?,
        None => TimingCache::default(),
    };
    let measured = timings.devices().into_keys().find(|device| device.starts_with(&gpu.name));
    let planner = match measured {
        Some(device) => Cuda::planned_as(gpu.clone(), device),
        None => Cuda::planned(gpu.clone()),
    };
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(planner)];
    let asked: Asked = Arc::default();
    let mut complete = true;
    for model in &options.models {
        let graph = if model.ends_with(".onnx") {
            planish_import::import_file(&PathBuf::from(model))?.graph
        } else {
            planish_zoo::graph(model, 0)?
        };
        let symbols = graph.inputs().iter().filter_map(|id| {
            let shape = graph.value(*id).ty.as_tensor()?.shape.as_ref()?;
            shape.dims().first()?.as_symbol().map(|symbol| symbol.to_string())
        });
        let symbols: BTreeSet<String> = symbols.collect();
        let range = |symbol: &String| match options.profile[..] {
            [min, opt, max] => Some(SymbolRange { symbol: symbol.clone(), min, opt, max }),
            _ => None,
        };
        let mut ranges: Vec<SymbolRange> = symbols.iter().filter_map(range).collect();
        let fixed = |(symbol, size): &(String, i64)| SymbolRange {
            symbol: symbol.clone(),
            min: *size,
            opt: *size,
            max: *size,
        };
        ranges.extend(options.sizes.iter().map(fixed));
        let build_options = BuildOptions {
            tune_level: if options.timings.is_some() { 3 } else { 0 },
            threads: 1,
            verify: false,
            precision,
            ranges: if precision == Precision::Int8 { made_up_ranges(&graph)? } else { HashMap::new() },
            fp32_layers: options.fp32_layers.clone(),
            tune_at: symbols.iter().map(|symbol| (symbol.clone(), options.batch)).collect(),
            profiles: if ranges.is_empty() { Vec::new() } else { vec![Profile { ranges }] },
            selector: options.compile.then(|| note_sources(&gpu, &asked)),
            ..BuildOptions::default()
        };
        let built = build(&graph, &backends, &build_options, &mut timings)
            .with_context(|| format!("{model} cannot be built"))?;
        complete &= show(model, &built.plan, &built.notes, options);
        if options.distance {
            let size = |name: &str| {
                let given = options.sizes.iter().find(|(symbol, _)| symbol == name).map(|(_, size)| *size);
                given.or_else(|| symbols.contains(name).then_some(options.batch))
            };
            println!(
                "    {:.2e} from the model in f32 (relative L2)",
                distance(model, &graph, &built.graph, &size)?
            );
        }
    }
    if options.compile {
        let jobs: Vec<nvrtc::Job> =
            asked.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        return nvrtc::compile(&jobs);
    }
    Ok(complete)
}

/// Reads `height=512`.
fn named_size(text: &str) -> Result<(String, i64), String> {
    let wrong = || format!("`{text}` is not a size; give NAME=SIZE");
    let (name, size) = text.split_once('=').ok_or_else(wrong)?;
    Ok((name.to_string(), size.parse().map_err(|_| wrong())?))
}

/// How far a lowered graph is from its model in f32, both over the reference, on random inputs: the largest of the
/// outputs' distances.
fn distance(model: &str, graph: &Graph, lowered: &Graph, size: &dyn Fn(&str) -> Option<i64>) -> Result<f64> {
    let fixed = graph.specialize(size)?;
    let inputs = passes::inputs(&PathBuf::from(model), &fixed)?;
    let (exact, _) = planish_passes::raise_precision().run(fixed, &planish_passes::Options::default())?;
    let numbers = |graph: &Graph| -> Result<Vec<Vec<f64>>> {
        let outputs = planish_ir::interpret(graph, inputs.clone())?;
        Ok(outputs.iter().filter_map(|value| Some(value.as_tensor()?.to_f64s())).collect())
    };
    let norm = |list: &mut dyn Iterator<Item = f64>| list.map(|x| x * x).sum::<f64>().sqrt();
    let one = |(want, got): (&Vec<f64>, &Vec<f64>)| {
        norm(&mut want.iter().zip(got).map(|(a, b)| a - b)) / norm(&mut want.iter().copied())
    };
    Ok(numbers(&exact)?.iter().zip(&numbers(lowered)?).map(one).fold(0.0, f64::max))
}

/// Sources that candidates asked for, by their keys.
type Asked = Arc<Mutex<BTreeMap<String, nvrtc::Job>>>;

/// A selector that takes every candidate and notes what those of the GPU would compile.
fn note_sources(gpu: &Gpu, asked: &Asked) -> TacticSelector {
    let (gpu, asked) = (gpu.clone(), Arc::clone(asked));
    let families = offline::families();
    Arc::new(move |problem: &Problem, candidate: &Candidate| {
        let of_gpu = candidate.tactic.name.split('_').next().is_some_and(|name| families.contains(&name));
        let posed = problem.for_candidate(candidate);
        // The CPU's families have some of the same names; what it asks for is not a source.
        if let (true, Ok(sources)) = (of_gpu, offline::sources(&gpu, &posed, &candidate.tactic)) {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            for source in sources {
                let job = (candidate.tactic.to_string(), gpu.clone(), source.clone());
                asked.entry(source.key(&gpu)).or_insert(job);
            }
        }
        true
    })
}

/// Prints a plan in short; gives whether all of it runs on the GPU.
fn show(model: &str, plan: &Plan, notes: &[String], options: &Options) -> bool {
    let all = options.steps;
    let prices = if options.timings.is_some() { "a device's times" } else { "the cost model" };
    let tactic = |step: &Step| match &step.kind {
        StepKind::Kernel { variants, .. } => variants[0].tactic.name.clone(),
        StepKind::Transfer => "transfer".to_string(),
        StepKind::Evaluate => "reference on host values".to_string(),
        StepKind::Control(_) => "control flow".to_string(),
    };
    let steps = &plan.program.steps;
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.target != 0) {
        let name = tactic(step);
        *kinds.entry(name.split('_').next().unwrap_or_default().to_string()).or_default() += 1;
    }
    let predicted: f64 = plan
        .evidence
        .iter()
        .filter(|evidence| steps.get(evidence.step as usize).is_some_and(|step| step.target != 0))
        .filter_map(|evidence| {
            let chosen = tactic(&steps[evidence.step as usize]);
            evidence.timings.iter().find(|timing| timing.tactic.name == chosen).map(|timing| timing.ns as f64)
        })
        .sum();
    let on_host = steps.iter().filter(|step| step.target == 0).count();
    let listed: Vec<String> = kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    println!(
        "{model}: {} steps, {on_host} on the CPU, some {:.0} us by {prices}; {}",
        steps.len(),
        predicted / 1e3,
        listed.join(", ")
    );
    notes.iter().for_each(|note| println!("    {note}"));
    for (idx, step) in steps.iter().enumerate().filter(|(_, step)| all || step.target == 0) {
        let dims = |values: &[Option<u32>]| {
            let one = |value: &Option<u32>| {
                value.map_or("-".to_string(), |value| {
                    let value = &plan.program.values[value as usize];
                    format!("{} {}", value.ty, if value.layout.name() == "plain" { "p" } else { "c" })
                })
            };
            values.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        println!(
            "    {idx:>4} {} {} [{}] {} -> {}",
            if step.target == 0 { "CPU" } else { "gpu" },
            match &step.kind {
                StepKind::Kernel { variants, .. } => by_size(variants),
                _ => tactic(step),
            },
            step.region.ops(),
            dims(&step.inputs),
            dims(&step.outputs)
        );
    }
    on_host == 0
}

/// The tactics of a step with the sizes up to which each holds.
fn by_size(variants: &[Variant]) -> String {
    let one = |variant: &Variant| {
        let from = variant.from.iter().map(|(symbol, size)| format!("{symbol} >= {size}: "));
        let up_to = variant.up_to.iter().map(|(symbol, size)| format!("{symbol} <= {size}: "));
        format!("{}{}", from.chain(up_to).collect::<String>(), variant.tactic.name)
    };
    variants.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use planish_kernel::Arithmetic;

    use super::*;

    /// A plan in INT8 for a GPU: layers of integers write integers, the others are of 16 bits, and nothing leads from one to
    /// the other in a step of its own.
    #[test]
    fn integers_go_from_layer_to_layer() {
        let graph = planish_zoo::graph("resnet18_224", 0).unwrap();
        let backends: Vec<Arc<dyn Backend>> =
            vec![Arc::new(Cpu::new()), Arc::new(Cuda::planned(Gpu::known("h200").unwrap()))];
        let options = BuildOptions {
            tune_level: 0,
            threads: 1,
            verify: false,
            precision: Precision::Int8,
            ranges: made_up_ranges(&graph).unwrap(),
            tune_at: [("batch".to_string(), 1)].into(),
            ..BuildOptions::default()
        };
        let built = build(&graph, &backends, &options, &mut TimingCache::default()).unwrap();
        let steps: Vec<&Step> = built
            .plan
            .program
            .steps
            .iter()
            .filter(|step| matches!(step.kind, StepKind::Kernel { .. }) && step.target != 0)
            .collect();
        let of = |element: Arithmetic| steps.iter().filter(move |step| step.numeric.element == element);
        assert_eq!(of(Arithmetic::I8).count(), 19, "{}", built.plan.describe());
        let first = &steps[0].region;
        assert_eq!(first.ops(), "Cast+Conv+Relu+Cast+QuantizeLinear");
        let is_bridge = |step: &&&Step| {
            step.region.nodes.iter().all(|node| {
                matches!(
                    node.op,
                    planish_op::Op::QuantizeLinear(_)
                        | planish_op::Op::DequantizeLinear(_)
                        | planish_op::Op::Cast(_)
                )
            })
        };
        assert_eq!(steps.iter().filter(is_bridge).count(), 0, "{}", built.plan.describe());
        let note = "2 of 21 layers stay in fp16";
        assert!(built.notes.iter().any(|line| line.contains(note)), "{:?}", built.notes);
    }
}
