//! Bottlenecks as the backend sees them: the stages of a region, candidates, packed weights and prepared work.

use planish_kernel::pointwise::Epilogue;
use planish_kernel::{
    Budget, Candidate, KernelError, Layout, Operand, PackedWeight, Problem, Ref, Region, Tactic, Want,
    WeightUse,
};
use planish_op::window::PlacedAxis;
use planish_op::{Conv, Op};
use planish_tensor::{Bytes, DType, Dim, Tensor};

use super::product::Product;
use super::{BAND_ROWS, BANDS, Bottleneck, Form, WIDENED_BYTES};
use crate::depthwise::{self, Depthwise};
use crate::family::{Family, Work};
use crate::formats::Format;
use crate::gemm::pack::{PackedB, Strides};
use crate::gemm::table::Tile;
use crate::isa::Isa;
use crate::pointwise::Pointwise;
use crate::pointwise::cost::cost_per_element;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::spatial::{ImageStrides, Windows};
use crate::team::Team;

/// Widened images smaller than this stay in cache anyway, and separate steps cut their work finer.
const LEAST_WIDENED_BYTES: usize = 768 << 10;

/// Weights larger than this would leave the cache between rows.
const MOST_WEIGHT_BYTES: usize = 192 << 10;

/// 1x1 convolution, depthwise convolution and another 1x1 convolution, or the depthwise one with either of the others, and
/// what follows each.
#[derive(Debug)]
pub(crate) struct BottleneckFamily;

/// One convolution of the region with what follows it, as a problem of its own whose inputs are the region's
/// and, after them, the stage before.
struct Stage {
    problem: Problem,
    conv: Conv,
    x: usize,
    weight: usize,
    axes: Vec<PlacedAxis>,
    epilogue: Epilogue,
}

impl Stage {
    fn weight_dims(&self) -> &[usize] {
        &self.problem.inputs[self.weight].dims
    }

    fn is_depthwise(&self) -> bool {
        self.conv.group > 1
    }

    fn is_one_by_one(&self) -> bool {
        self.conv.group == 1
            && self
                .axes
                .iter()
                .all(|axis| (axis.kernel, axis.stride, axis.pad_begin, axis.pad_end) == (1, 1, 0, 0))
    }

    fn program(&self, isa: Isa) -> Result<Option<Pointwise>, KernelError> {
        let Some(program) = &self.epilogue.program else { return Ok(None) };
        Pointwise::for_blocks(isa, &self.problem, program, &[0, 2, 3], &[1]).map(Some)
    }

    fn bias(&self) -> Option<usize> {
        self.epilogue.bias.map(|input| input as usize)
    }

    fn clamp(&self) -> (f32, f32) {
        (self.epilogue.lo, self.epilogue.hi)
    }

    fn program_ns(&self) -> f64 {
        let per_element = self.epilogue.program.as_ref().map_or(0.0, cost_per_element);
        per_element * self.problem.outputs[0].len() as f64
    }
}

/// The stages of a region, one for each convolution; images between them are dense with channels innermost.
fn stages(problem: &Problem) -> Option<Vec<Stage>> {
    let region = &problem.region;
    let nodes = &region.nodes;
    let starts: Vec<usize> = (0..nodes.len()).filter(|at| matches!(nodes[*at].op, Op::Conv(_))).collect();
    if starts.first() != Some(&0) || !(2..=3).contains(&starts.len()) || problem.outputs.len() != 1 {
        return None;
    }
    let before = problem.inputs.len();
    let mut stages: Vec<Stage> = Vec::new();
    for (idx, &start) in starts.iter().enumerate() {
        let end = starts.get(idx + 1).copied().unwrap_or(nodes.len());
        let mut inputs = problem.inputs.clone();
        inputs.extend(stages.last().map(|stage| stage.problem.outputs[0].clone()));
        let mut part = nodes[start..end].to_vec();
        for reference in part.iter_mut().flat_map(|node| &mut node.inputs).flatten() {
            if let Ref::Node { node, output: 0 } = *reference {
                *reference = match node as usize {
                    node if node >= start => Ref::Node { node: (node - start) as u32, output: 0 },
                    node if node + 1 == start => Ref::Input(before as u32),
                    _ => return None,
                };
            }
        }
        let Op::Conv(conv) = part[0].op.clone() else { return None };
        let input = |at: usize| match part[0].inputs.get(at).copied().flatten() {
            Some(Ref::Input(input)) if (input as usize) < inputs.len() => Some(input as usize),
            _ => None,
        };
        let (x, weight) = (input(0)?, input(1)?);
        let fits = inputs[x].rank() == 4
            && inputs[weight].rank() == 4
            && inputs[weight].constant
            && [x, weight].iter().all(|at| inputs[*at].dtype == DType::F32)
            && !inputs[weight].is_empty();
        if !fits || (idx > 0 && x != before) {
            return None;
        }
        let kernel: Vec<Dim> = inputs[weight].dims[2..].iter().copied().map(Dim::from).collect();
        let window = conv.window();
        let axes = window.axes(&window.kernel_of_weight(&kernel).ok()?).ok()?;
        let axes: Vec<PlacedAxis> = axes
            .iter()
            .zip(&inputs[x].dims[2..])
            .map(|(axis, size)| axis.place(*size).ok())
            .collect::<Option<_>>()?;
        let output = if end == nodes.len() {
            problem.outputs[0].clone()
        } else {
            let mut dims = vec![inputs[x].dims[0], inputs[weight].dims[0]];
            dims.extend(axes.iter().map(|axis| axis.output));
            Operand::dense(DType::F32, &dims, Layout::ChannelsLast)
        };
        let last = Ref::Node { node: (end - start - 1) as u32, output: 0 };
        if end == nodes.len() && region.outputs != [Ref::Node { node: end as u32 - 1, output: 0 }] {
            return None;
        }
        let region = Region {
            n_inputs: inputs.len() as u32,
            constants: region.constants.clone(),
            nodes: part,
            outputs: vec![last],
        };
        let stage = Problem {
            region,
            inputs,
            outputs: vec![output],
            numeric: problem.numeric,
            threads: problem.threads,
        };
        let epilogue = Epilogue::of(&stage, 0).ok()?;
        stages.push(Stage { problem: stage, conv, x, weight, axes, epilogue });
    }
    suits(&stages).then_some(stages)
}

/// What widens, the depthwise convolution, and what narrows.
fn roles(stages: &[Stage]) -> Option<(Option<&Stage>, &Stage, Option<&Stage>)> {
    match stages {
        [depthwise, narrow] if depthwise.is_depthwise() => Some((None, depthwise, Some(narrow))),
        [widen, depthwise] => Some((Some(widen), depthwise, None)),
        [widen, depthwise, narrow] => Some((Some(widen), depthwise, Some(narrow))),
        _ => None,
    }
}

/// Whether the stages are what this family computes.
fn suits(stages: &[Stage]) -> bool {
    let Some((widen, depthwise, narrow)) = roles(stages) else { return false };
    let channels = |stage: &Stage| (stage.problem.inputs[stage.x].dims[1], stage.weight_dims()[0]);
    let narrows = narrow.is_none_or(|narrow| {
        narrow.is_one_by_one()
            && narrow.weight_dims()[1] == channels(narrow).0
            && narrow.epilogue.residual.is_none_or(|residual| !residual.after_clamp)
    });
    let (width, wide) = channels(depthwise);
    let outputs_fit = stages.iter().all(|stage| {
        let (x, y) = (&stage.problem.inputs[stage.x].dims, &stage.problem.outputs[0].dims);
        y.len() == 4
            && y[0] == x[0]
            && y[1] == stage.weight_dims()[0]
            && y[2..] == [stage.axes[0].output, stage.axes[1].output]
    });
    let biases_fit = stages.iter().all(|stage| {
        stage.epilogue.bias.is_none_or(|bias| {
            stage.problem.inputs.get(bias as usize).is_some_and(|bias| {
                bias.dtype == DType::F32
                    && bias.len() == stage.weight_dims()[0]
                    && bias.is_dense(Layout::Plain)
            })
        })
    });
    let widens = widen.is_none_or(|widen| {
        widen.is_one_by_one()
            && widen.weight_dims()[1] == channels(widen).0
            && widen.epilogue.residual.is_none()
    });
    widens
        && usize::try_from(depthwise.conv.group).ok() == Some(width)
        && depthwise.weight_dims()[1] == 1
        && wide == width
        && depthwise.epilogue.residual.is_none()
        && narrows
        && outputs_fit
        && biases_fit
}

/// What multiplies in a stage of 1x1. Plans of earlier versions have their weights in the panels of the usual tile.
fn product_tile(isa: Isa, stage: &Stage) -> Tile {
    let usual = Tile::usual(isa);
    match &stage.problem.inputs[stage.weight].packed {
        Some(packed) if *packed == product_format(usual) => usual,
        _ => Tile::of_short_sums(isa, stage.weight_dims()[0]),
    }
}

/// Names the arrangement of a 1x1 weight.
fn product_format(tile: Tile) -> String {
    Format::Product { panels: tile.into() }.name()
}

/// For each input the format in which a stage reads it.
fn formats(isa: Isa, problem: &Problem, stages: &[Stage]) -> Vec<Option<String>> {
    let mut formats = vec![None; problem.inputs.len()];
    for stage in stages {
        formats[stage.weight] = Some(match stage.is_depthwise() {
            true => depthwise::FORMAT.to_string(),
            false => product_format(product_tile(isa, stage)),
        });
    }
    formats
}

fn product(isa: Isa, stage: &Stage) -> Result<Product, KernelError> {
    let tile = product_tile(isa, stage);
    let [k, c] = [stage.weight_dims()[0], stage.weight_dims()[1]];
    Ok(Product {
        tile,
        packed: PackedB::new(tile, c, k),
        c,
        k,
        weight: stage.weight,
        bias: stage.bias(),
        clamp: stage.clamp(),
        program: stage.program(isa)?,
    })
}

fn unsupported() -> KernelError {
    KernelError::unsupported("not a depthwise convolution of f32 images with one that widens or narrows")
}

fn plan(isa: Isa, stages: &[Stage]) -> Result<Bottleneck, KernelError> {
    let (widen, depth, narrow) = roles(stages).ok_or_else(unsupported)?;
    let (first, last) = (widen.unwrap_or(depth), narrow.unwrap_or(depth));
    let (x, y) = (&first.problem.inputs[first.x], &last.problem.outputs[0]);
    let wide = widen.map_or(x, |widen| &widen.problem.outputs[0]);
    let between = &depth.problem.outputs[0];
    let mut windows = Windows::new(&depth.axes, wide, between).ok_or_else(unsupported)?;
    // Images follow each other in neither workspace: pointers to the image come with each call.
    windows.batch = 1;
    let (from, to) = (ImageStrides::of(x), ImageStrides::of(y));
    let (from, to) = (from.ok_or_else(unsupported)?, to.ok_or_else(unsupported)?);
    let residual = match last.epilogue.residual {
        Some(residual) => {
            let operand = &last.problem.inputs[residual.input as usize];
            let strides = ImageStrides::of(operand).ok_or_else(unsupported)?;
            Some((residual.input as usize, strides))
        }
        None => None,
    };
    let innermost = |strides: &ImageStrides, channels: usize| channels <= 1 || strides.channel == 1;
    let is_innermost = innermost(&from, x.dims[1])
        && innermost(&to, y.dims[1])
        && residual.as_ref().is_none_or(|(_, strides)| innermost(strides, y.dims[1]));
    if !is_innermost {
        return Err(unsupported());
    }
    let rows = &depth.axes[0];
    let form = Form {
        x: first.x,
        batch: x.dims[0],
        width: wide.dims[1],
        in_rows: wide.dims[2],
        in_cols: wide.dims[3],
        out_rows: between.dims[2],
        out_cols: between.dims[3],
        extent: (rows.kernel - 1) * rows.dilation + 1,
        stride: rows.stride,
        pad: rows.pad_begin,
        from,
        to,
        residual,
    };
    let fitting = WIDENED_BYTES / (form.row_len() * size_of::<f32>()).max(1);
    let band_rows = form.out_rows.div_ceil(BANDS).max(BAND_ROWS).min(form.out_rows.max(1));
    let chunk_rows = (fitting.saturating_sub(form.extent) / form.stride + 1).clamp(1, band_rows);
    let depthwise = Depthwise::plan(isa, windows, form.width, depth.clamp()).ok_or_else(unsupported)?;
    let depthwise = if widen.is_some() { depthwise.of_near_image() } else { depthwise };
    let product = |stage: Option<&Stage>| stage.map(|stage| product(isa, stage)).transpose();
    Ok(Bottleneck {
        widen: product(widen)?,
        depthwise,
        depthwise_weight: depth.weight,
        depthwise_bias: depth.bias(),
        depthwise_program: depth.program(isa)?,
        narrow: product(narrow)?,
        form,
        chunk_rows,
        band_rows,
    })
}

/// The problem in the layouts that this family wants.
fn laid_out(problem: &Problem, wants: &[Want]) -> Problem {
    let mut laid = problem.clone();
    for (operand, want) in laid.inputs.iter_mut().zip(wants) {
        operand.strides = want.layout.strides(&operand.dims);
    }
    for output in &mut laid.outputs {
        output.strides = Layout::ChannelsLast.strides(&output.dims);
    }
    laid
}

impl Family for BottleneckFamily {
    fn name(&self) -> &'static str {
        "bottleneck"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(found) = stages(problem) else { return Vec::new() };
        // What is not written between two of the stages: the widened image, or what the depthwise convolution makes.
        let between = &found[0].problem.outputs[0];
        let wide = between.span_bytes() / between.dims[0].max(1);
        let weights: usize = found.iter().map(|stage| stage.problem.inputs[stage.weight].span_bytes()).sum();
        if wide < LEAST_WIDENED_BYTES || weights > MOST_WEIGHT_BYTES {
            return Vec::new();
        }
        let dims = &problem.outputs[0].dims;
        let mut inputs: Vec<Want> = problem
            .inputs
            .iter()
            .map(|input| Want::following(input, dims.len(), Layout::ChannelsLast))
            .collect();
        let packed = formats(isa, problem, &found);
        for stage in &found {
            inputs[stage.weight] = Want::dense(Layout::Plain);
            if let Some(bias) = stage.bias() {
                inputs[bias] = Want::dense(Layout::Plain);
            }
        }
        inputs[found[0].x] = Want::inside(Layout::ChannelsLast);
        let laid = laid_out(problem, &inputs);
        let planned = stages(&laid).and_then(|stages| plan(isa, &stages).ok());
        let Some(plan) = planned else { return Vec::new() };
        let form = &plan.form;
        let threads = problem.threads.clamp(1, plan.n_tasks().max(1));
        let twice =
            (form.extent.saturating_sub(form.stride) * plan.n_bands()) as f64 / form.in_rows.max(1) as f64;
        let in_pixels = (form.batch * form.in_rows * form.in_cols) as f64;
        let out_pixels = (form.batch * form.out_rows * form.out_cols) as f64;
        let macs = plan.widen.as_ref().map_or(0.0, |widen| widen.macs() as f64) * in_pixels * (1.0 + twice)
            + (plan.depthwise.macs() * form.batch) as f64
            + plan.narrow.as_ref().map_or(0.0, |narrow| narrow.macs() as f64 * out_pixels);
        let bytes = (laid.inputs[found[0].x].span_bytes() + laid.outputs[0].span_bytes()) as f64;
        let programs: f64 = found.iter().map(Stage::program_ns).sum();
        vec![Candidate {
            packed,
            ..Candidate::new(
                Tactic::new(format!("bottleneck_f32_{isa}"), 4),
                inputs,
                vec![Want::inside(Layout::ChannelsLast)],
                expected_ns(isa, 2.0 * macs, bytes, threads) + programs / threads as f64,
            )
        }]
    }

    fn pack(&self, isa: Isa, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let WeightUse { problem, input, .. } = used;
        let stages = stages(problem).ok_or_else(unsupported)?;
        let stage = stages.iter().position(|stage| stage.weight == input).ok_or_else(unsupported)?;
        let elements = weight.elements::<f32>().map_err(|_| unsupported())?;
        let [k, c, taps @ ..] = weight.shape() else { return Err(unsupported()) };
        let (format, packed) = if stages[stage].is_depthwise() {
            (depthwise::FORMAT.to_string(), depthwise::pack(&elements, *k, taps.iter().product()))
        } else {
            let tile = product_tile(isa, &stages[stage]);
            let layout = PackedB::new(tile, *c, *k);
            let mut packed = vec![0.0; layout.len()];
            layout.pack(&elements, Strides { k: 1, n: *c }, &mut packed);
            (product_format(tile), packed)
        };
        let bytes = Bytes::from_vec(packed);
        Ok(PackedWeight { format, bytes })
    }

    fn format(&self, isa: Isa, used: WeightUse<'_>) -> Result<Option<String>, KernelError> {
        let stages = stages(used.problem).ok_or_else(unsupported)?;
        Ok(formats(isa, used.problem, &stages).swap_remove(used.input))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let stages = stages(problem).ok_or_else(unsupported)?;
        let wanted = formats(isa, problem, &stages);
        if problem.inputs.iter().zip(&wanted).any(|(input, wanted)| input.packed != *wanted) {
            return Err(unsupported());
        }
        Ok(Box::new(plan(isa, &stages)?))
    }
}

impl Work for Bottleneck {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.workspace().total
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        // SAFETY: the caller grants what the operands span and the workspace that was asked for.
        unsafe { Bottleneck::run(self, Shared { inputs, outputs, workspace }, team) };
        Ok(())
    }
}
