//! Layers of 8 bits: made where `--precision int8` or `fp8` asks for them, kept where a model brings them. Floats of 8 bits
//! are made and kept as integers are.

use planish_ir::{Graph, Node, ValueId};
use planish_kernel::{Arithmetic, Backend};
use planish_op::Op;
use planish_passes::{
    IntegerKernels, IntegerShare, Options, Pipeline, Quantize, Report, Transposed, WeightRange, WeightStorage,
};
use planish_tensor::{DType, DefaultFloatMode};

use crate::backends::Backends;
use crate::diagnose::is_layer;
use crate::diagnose::pins::label;
use crate::error::{BuildError, BuildErrorKind, of_passes};
use crate::lower::candidates::Catalog;
use crate::lower::loose_weights;
use crate::options::{BuildOptions, Precision};
use crate::precision::{listed, run_and_explain, stays};
use crate::sizes::Sizes;

/// The pass that turns integer weights into floats.
pub(crate) const FOLD_WEIGHTS: &str = "fold_dequantized_weights";

/// Whether the backend that the plan is for multiplies numbers of 8 bits, integers unless floats are asked for: the device
/// where there is one. That the host could is no help to it, since layers would go back and forth between them.
fn multiplies_integers(backends: Backends<'_>, precision: Precision) -> bool {
    let wanted = if precision == Precision::Fp8 { Arithmetic::F8 } else { Arithmetic::I8 };
    preferred(backends).is_some_and(|backend| backend.arithmetics().contains(&wanted))
}

/// What layers that are not of 8 bits are computed in under `--precision int8` and `fp8`: a GPU with its tensor cores in 16 bits,
/// where f32 would take several times as long as all integers together; a CPU in f32.
pub(crate) fn wide_layers(backends: Backends<'_>) -> Precision {
    let has = |precision: Precision| {
        preferred(backends).is_some_and(|backend| backend.arithmetics().contains(&precision.arithmetic()))
    };
    match backends.all().len() > 1 && has(Precision::Int8) && has(Precision::Fp16) {
        true => Precision::Fp16,
        false => Precision::Fp32,
    }
}

/// Moves integers in place of floats ahead of the passes that lower floats, where a backend multiplies integers.
pub(crate) fn move_integers(
    graph: Graph,
    backends: Backends<'_>,
    precision: Precision,
    pass_options: &Options,
    passes: &mut Report,
) -> Result<Graph, BuildError> {
    match multiplies_integers(backends, precision) {
        true => run(planish_passes::move_integers(), graph, pass_options, passes),
        false => Ok(graph),
    }
}

/// Runs passes for integers; those of other pipelines have been switched off there.
fn run(
    pipeline: Pipeline,
    graph: Graph,
    pass_options: &Options,
    passes: &mut Report,
) -> Result<Graph, BuildError> {
    let mut own = pass_options.clone();
    own.disabled.retain(|name| pipeline.names().any(|known| known == name));
    own.stop_after = None;
    let (graph, mut report) = pipeline.run(graph, &own).map_err(|error| of_passes(&error))?;
    passes.passes.append(&mut report.passes);
    Ok(graph)
}

fn preferred(backends: Backends<'_>) -> Option<&dyn Backend> {
    backends.by_preference().next().map(|target| backends.get(target))
}

/// Whether integer weights stay until the layers that read them are settled: they are asked for, or the model has them and
/// a backend multiplies integers.
pub(crate) fn keeps_integers(graph: &Graph, backends: Backends<'_>, options: &BuildOptions) -> bool {
    options.precision.quantizes()
        || options.weights.is_some()
        || (multiplies_integers(backends, options.precision) && has_quantization(graph))
}

pub(crate) fn has_quantization(graph: &Graph) -> bool {
    graph.nodes().any(|(_, node)| {
        let is_quantized = matches!(
            node.op,
            Op::QuantizeLinear(_)
                | Op::DequantizeLinear(_)
                | Op::DynamicQuantizeLinear(_)
                | Op::QLinearConv(_)
                | Op::QLinearMatMul(_)
                | Op::ConvInteger(_)
                | Op::MatMulInteger(_)
        );
        is_quantized || node.bodies.iter().any(has_quantization)
    })
}

/// Which layers have kernels for integers.
pub(crate) fn kernels(backends: Backends<'_>) -> IntegerKernels {
    if backends.all().len() < 2 {
        return IntegerKernels::ANY;
    }
    // Transposed convolutions are on Hopper's own units.
    let is_hopper = preferred(backends).is_some_and(|backend| backend.provides("sm_90"));
    let transposed = if is_hopper { Transposed::SideBySide } else { Transposed::None };
    IntegerKernels { transposed, ..IntegerKernels::TENSOR_CORES }
}

/// What activations are stored in: a CPU multiplies `u8` by `i8`, a GPU `i8` by `i8`; floats of 8 bits are the same anywhere.
pub(crate) fn activations(backends: Backends<'_>, precision: Precision) -> DType {
    match backends.all().len() > 1 {
        _ if precision == Precision::Fp8 => DType::F8E4M3FN,
        true => DType::I8,
        false => DType::U8,
    }
}

/// How far integer weights reach: so far as is asked for, else as far as the machine multiplies them at full speed. x86
/// without VNNI multiplies bytes two at a time, and adds both products in 16 bits.
pub(crate) fn weight_range(backends: Backends<'_>, options: &BuildOptions) -> WeightRange {
    let adds_pairs = || {
        let host = preferred(backends).filter(|_| backends.all().len() == 1);
        let has = |needs: &[&str]| needs.iter().any(|need| host.is_some_and(|host| host.provides(need)));
        has(&["avx2", "avx512"]) && !has(&["avxvnni", "avx512vnni"])
    };
    let own = || if adds_pairs() { WeightRange::Pairs } else { WeightRange::Full };
    options.weight_range.unwrap_or_else(own)
}

/// Quantizes an optimized float model by the ranges of a calibration, and notes what is quantized and what is not. A
/// model that brings its own quantization stays as it is.
pub(crate) fn quantize(
    graph: Graph,
    (activations, kernels, weight_range): (DType, IntegerKernels, WeightRange),
    wide: Precision,
    options: &BuildOptions,
    passes: &mut Report,
    notes: &mut Vec<String>,
) -> Result<Graph, BuildError> {
    let refused = |message: String| Err(BuildError::new(BuildErrorKind::Refused, message));
    let brings_its_own = has_quantization(&graph);
    let asked = options.precision.name();
    if options.ranges.is_empty() && options.dynamic.is_none() && !brings_its_own {
        let or_dynamic = match options.precision {
            Precision::Int8 => ", a model that is quantized already, or --dynamic to find them in each run",
            _ => ", or a model that is quantized already",
        };
        return refused(format!(
            "--precision {asked} needs the ranges of the model's values: give a calibration or data to calibrate with by \
             --calib{or_dynamic}"
        ));
    }
    if options.dynamic.is_some() && activations == DType::I8 {
        return refused(
            "--dynamic: a GPU has no kernels that find ranges; give a calibration by --calib".to_string(),
        );
    }
    let dynamic = options.dynamic.filter(|_| !brings_its_own);
    let mut graph = graph;
    let (pipeline, name) = match dynamic {
        Some(range) => {
            let (pins, wide) = (options.fp32_layers.clone(), options.wide_layers.clone());
            let pipeline = planish_passes::quantize_dynamically(range, weight_range, pins, wide);
            (pipeline, "quantize_dynamically")
        }
        None => {
            let mut by = Quantize {
                ranges: options.ranges.clone(),
                channels: options.channels.clone(),
                correct_biases: options.correct_biases,
                activations,
                kernels,
                weight_range,
                fp32_layers: options.fp32_layers.clone(),
                int8_layers: options.int8_layers.clone(),
                wide_layers: options.wide_layers.clone(),
                imprecise_nodes: options.imprecise_nodes.clone(),
            };
            if options.equalize && !brings_its_own && options.precision == Precision::Int8 {
                graph = equalize(graph, &mut by, options, passes, notes)?;
            }
            (planish_passes::quantize(by), "quantize_layers")
        }
    };
    let (mut graph, _, reasons) = run_and_explain(pipeline, name, graph, options, passes)?;
    let mut n_recurrent = 0;
    // Their weights alone become integers, which kernels of the CPU read.
    if activations == DType::U8 && !brings_its_own {
        (graph, n_recurrent) = quantize_recurrent(graph, "--precision int8", options, passes, notes)?;
    }
    let sizes = Sizes::of(&graph, options).pairs();
    let size = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let share = IntegerShare::of(&graph, &size);
    if share.n_integer == 0 && n_recurrent == 0 {
        let why = if reasons.is_empty() { "it has none".to_string() } else { listed(&reasons) };
        return refused(format!(
            "--precision {asked}: no layer of the model can be quantized: {why}; --layer-precision 'NAMES:{asked}' takes \
             first and last layers in"
        ));
    }
    let what = if options.precision == Precision::Fp8 { "floats of 8 bits" } else { "integers" };
    notes.push(format!(
        "--precision {asked}: {} of {} layers are of {what}, {:.1} % of the multiplications",
        share.n_integer,
        share.n_layers,
        share.percent()
    ));
    if weight_range == WeightRange::Pairs && options.weight_range.is_none() && !brings_its_own {
        notes.push(format!(
            "--precision {asked}: weights that are neighbours come to at most 128 together, so that a machine without VNNI \
             multiplies two at a time; --full-range has all within ±127"
        ));
    }
    notes.extend(stays(&format!("of {} layers", share.n_layers), options.precision, wide, &reasons));
    if brings_its_own && !options.ranges.is_empty() {
        notes
            .push("the model brings its own quantization, which is kept; the calibration is not used".into());
    }
    Ok(graph)
}

/// Evens out the channels of what layers read, where that is less noise, and notes of how many values.
fn equalize(
    graph: Graph,
    by: &mut Quantize,
    options: &BuildOptions,
    passes: &mut Report,
    notes: &mut Vec<String>,
) -> Result<Graph, BuildError> {
    let Some(pipeline) = planish_passes::equalize(&graph, by) else { return Ok(graph) };
    let (graph, n_evened, _) = run_and_explain(pipeline, "equalize_channels", graph, options, passes)?;
    notes.push(format!("--precision int8: channels are evened out in front of layers in {n_evened} places"));
    Ok(graph)
}

/// Stores the weights of recurrent layers as bytes, and notes of how many; the graph as it is where it has none.
fn quantize_recurrent(
    graph: Graph,
    asked: &str,
    options: &BuildOptions,
    passes: &mut Report,
    notes: &mut Vec<String>,
) -> Result<(Graph, usize), BuildError> {
    let pipeline = planish_passes::quantize_recurrent(options.fp32_layers.clone());
    let (graph, n_stored, reasons) = run_and_explain(pipeline, "quantize_recurrent", graph, options, passes)?;
    let n_layers = n_stored + reasons.values().map(Vec::len).sum::<usize>();
    if n_layers > 0 {
        let why = if reasons.is_empty() { String::new() } else { format!("; {}", listed(&reasons)) };
        notes.push(format!(
            "{asked}: {n_stored} of {n_layers} recurrent layers have weights of bytes, a scale for each row{why}"
        ));
    }
    Ok((graph, n_stored))
}

/// Stores the weights of an optimized float model's large matrix products as integers, and notes what that saves and costs.
pub(crate) fn quantize_weights(
    graph: Graph,
    storage: WeightStorage,
    options: &BuildOptions,
    passes: &mut Report,
    notes: &mut Vec<String>,
) -> Result<Graph, BuildError> {
    let pipeline =
        planish_passes::quantize_weights(storage, options.fp32_layers.clone(), options.moments.clone());
    let before = graph.clone();
    let (mut graph, n_stored, reasons) =
        run_and_explain(pipeline, "quantize_weights", graph, options, passes)?;
    let mut n_recurrent = 0;
    if storage.dtype == DType::I8 {
        let asked = format!("--weights {storage}");
        (graph, n_recurrent) = quantize_recurrent(graph, &asked, options, passes, notes)?;
    }
    if n_stored + n_recurrent == 0 && !has_quantization(&graph) {
        let why = if reasons.is_empty() { "it has none".to_string() } else { listed(&reasons) };
        let message = format!("--weights {storage}: the model has no matrix product to store so: {why}");
        return Err(BuildError::new(BuildErrorKind::Refused, message));
    }
    let megabytes = |graph: &Graph| {
        let constants = graph.values().filter_map(|(_, value)| value.constant());
        constants.map(|tensor| tensor.bytes().len()).sum::<usize>() as f64 / 1e6
    };
    let n_kept: usize = reasons.values().map(Vec::len).sum();
    notes.push(format!(
        "--weights {storage}: {n_stored} of {} matrix products; constants take {:.1} MB instead of {:.1} MB",
        n_stored + n_kept,
        megabytes(&graph),
        megabytes(&before)
    ));
    if let Some(error) = planish_passes::weight_error(&before, &graph) {
        notes.push(format!(
            "--weights {storage} changes weights by {:.2} % (root mean square)",
            100.0 * error
        ));
    }
    Ok(graph)
}

/// Computes the weights of layers that no kernel multiplies in integers at these sizes, and notes how many these are:
/// kernels for floats want them known.
pub(crate) fn fold_loose_weights(
    graph: Graph,
    catalog: &Catalog<'_>,
    passes: &mut Report,
    notes: &mut Vec<String>,
) -> Result<Graph, BuildError> {
    let loose = loose_weights(&graph, catalog);
    if loose.is_empty() {
        return Ok(graph);
    }
    let options = Options { cancel: catalog.options.cancel.clone(), ..Options::default() };
    let pairs = catalog.sizes.pairs();
    let size = |name: &str| pairs.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let before = IntegerShare::of(&graph, &size);
    let pipeline = planish_passes::fold_loose_weights(loose);
    let (graph, mut report) = pipeline.run(graph, &options).map_err(|error| of_passes(&error))?;
    passes.passes.append(&mut report.passes);
    let after = IntegerShare::of(&graph, &size);
    if after.n_integer < before.n_integer {
        notes.push(format!(
            "{} of {} layers of 8 bits run in wider floats, for no kernel multiplies them so: {:.1} % of the \
             multiplications are of 8 bits",
            before.n_integer - after.n_integer,
            before.n_integer,
            after.percent()
        ));
    }
    Ok(graph)
}

/// The layers of a graph whose factors are both dequantized and whose weights are constant: as names see them, with the node
/// that dequantizes the weights.
pub(crate) fn integer_layers(graph: &Graph) -> Vec<(String, Box<str>)> {
    let dequantized = |id: Option<ValueId>| {
        let maker = graph.node(graph.value(id?).producer?);
        matches!(maker.op, Op::DequantizeLinear(_)).then_some(maker)
    };
    let is_constant =
        |node: &Node| node.inputs.iter().flatten().all(|id| graph.value(*id).constant().is_some());
    let layer = |node: &Node| {
        let factor = |place: usize| dequantized(node.inputs.get(place).copied().flatten());
        let weights = factor(1).filter(|weights| is_constant(weights) && factor(0).is_some())?;
        Some((label(graph, node), weights.name.clone()))
    };
    graph.nodes().filter(|(_, node)| is_layer(&node.op)).filter_map(|(_, node)| layer(node)).collect()
}

/// Computes the weights of these layers of a model that brings its integers, which then multiply floats: what they read stays
/// rounded as the model says, so results are the same up to the rounding of sums.
pub(crate) fn widen_layers(
    graph: Graph,
    wide_layers: &[String],
    pass_options: &Options,
    passes: &mut Report,
) -> Result<Graph, BuildError> {
    let named = integer_layers(&graph).into_iter().filter(|(layer, _)| wide_layers.contains(layer));
    let weights: Vec<Box<str>> = named.map(|(_, weights)| weights).collect();
    run(planish_passes::fold_loose_weights(weights), graph, pass_options, passes)
}

/// Says where quantized layers are computed in floats all the same. Refused where a GPU would: its FP16 is faster than values
/// that were rounded to 8 bits and are multiplied in more.
pub(crate) fn without_kernels(
    backends: Backends<'_>,
    precision: Precision,
) -> Result<Option<String>, BuildError> {
    if multiplies_integers(backends, precision) {
        return Ok(None);
    }
    let name = preferred(backends).map_or("the backend", |backend| backend.name());
    let what = if precision == Precision::Fp8 { "floats of 8 bits" } else { "integers" };
    if precision == Precision::Fp8 && backends.all().len() > 1 {
        let device = preferred(backends).map_or(String::new(), |backend| backend.target().device);
        let message = format!(
            "--precision fp8: {device} multiplies no floats of 8 bits (GPUs from Ada and Hopper on do); build with \
             --precision int8 or fp16"
        );
        return Err(BuildError::new(BuildErrorKind::Refused, message));
    }
    Ok(Some(format!(
        "{name} has no kernels that multiply {what}: values are rounded to 8 bits and multiplied in fp32"
    )))
}

/// A model of integers for other runtimes.
#[derive(Debug)]
pub struct Quantized {
    /// With QuantizeLinear and DequantizeLinear around its layers, biases as integers.
    pub graph: Graph,
    /// Which layers are quantized, which are not, and why.
    pub notes: Vec<String>,
    /// What the passes did and refused.
    pub passes: Report,
}

/// Quantizes a model as `--precision int8` or `--weights` does for the CPU, and keeps it a model.
pub fn quantized(graph: &Graph, options: &BuildOptions) -> Result<Quantized, BuildError> {
    let _mode = DefaultFloatMode::enter();
    options.check()?;
    let pass_options =
        Options { explain: options.explain, cancel: options.cancel.clone(), ..Options::default() };
    let standard_options = Options { disabled: vec![FOLD_WEIGHTS.to_string()], ..pass_options.clone() };
    let (graph, mut passes) = planish_passes::standard()
        .run(graph.clone(), &standard_options)
        .map_err(|error| of_passes(&error))?;
    let mut notes = Vec::new();
    if let Some(storage) = options.weights {
        let graph = quantize_weights(graph, storage, options, &mut passes, &mut notes)?;
        return Ok(Quantized { graph, notes, passes });
    }
    let integers = (DType::U8, IntegerKernels::ANY, options.weight_range.unwrap_or_default());
    let graph = quantize(graph, integers, Precision::Fp32, options, &mut passes, &mut notes)?;
    let (graph, mut report) =
        planish_passes::portable_integers().run(graph, &pass_options).map_err(|error| of_passes(&error))?;
    passes.passes.append(&mut report.passes);
    Ok(Quantized { graph, notes, passes })
}

/// Brings the integers of an optimized graph into the form that kernels cover; where no backend multiplies them, weights
/// become floats.
pub(crate) fn arrange_integers(
    graph: Graph,
    backends: Backends<'_>,
    precision: Precision,
    pass_options: &Options,
    passes: &mut Report,
) -> Result<Graph, BuildError> {
    let pipeline = match multiplies_integers(backends, precision) {
        true => planish_passes::integers(activations(backends, Precision::Int8)),
        false => planish_passes::dequantize_weights(),
    };
    run(pipeline, graph, pass_options, passes)
}
