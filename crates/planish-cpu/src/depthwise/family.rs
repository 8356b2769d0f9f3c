//! Depthwise convolution as the backend sees it: candidates, packed weights and prepared work.

use planish_kernel::{
    Candidate, KernelError, Layout, Operand, PackedWeight, Problem, Ref, Region, Tactic, Want,
};
use planish_op::{Conv, Op};
use planish_tensor::{DType, Dim, Tensor};

use super::{Depthwise, DepthwiseArguments, pack};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::spatial::Windows;
use crate::team::Team;

/// Taps outermost, channels innermost and rounded up to sixteen.
const FORMAT: &str = "taps_by_channels16";

/// `Conv` with as many groups as input channels, and a clamp behind it.
#[derive(Debug)]
pub(crate) struct DepthwiseFamily;

/// The parts of a problem that this family computes.
struct Parts<'a> {
    conv: &'a Conv,
    x: usize,
    weight: usize,
    bias: Bias,
    clamp: (f32, f32),
}

#[derive(Clone, PartialEq, Debug)]
enum Bias {
    None,
    Input(usize),
    Constant(Vec<f32>),
}

impl<'a> Parts<'a> {
    fn of(problem: &'a Problem) -> Option<Parts<'a>> {
        let region = &problem.region;
        let (main, chain) = region.nodes.split_first()?;
        let Op::Conv(conv) = &main.op else { return None };
        let input = |idx: usize| match main.inputs.get(idx).copied().flatten() {
            Some(Ref::Input(input)) => Some(input as usize),
            _ => None,
        };
        let (x, weight) = (input(0)?, input(1)?);
        let bias = match main.inputs.get(2).copied().flatten() {
            None => Bias::None,
            Some(Ref::Input(input)) => Bias::Input(input as usize),
            reference => Bias::Constant(region.constant(reference)?.elements::<f32>().ok()?.into_owned()),
        };
        let mut clamp = (f32::NEG_INFINITY, f32::INFINITY);
        for (idx, node) in chain.iter().enumerate() {
            let follows = node.inputs.first() == Some(&Some(Ref::Node { node: idx as u32, output: 0 }));
            let (lo, hi) = bounds(region, &node.op, &node.inputs).filter(|_| follows)?;
            // Bounds are in order, so clamping twice is clamping once to what the second makes of the first's.
            let again = |value: f32| if value < lo { lo } else { value.min(hi) };
            clamp = (again(clamp.0), again(clamp.1));
        }
        let last = Ref::Node { node: chain.len() as u32, output: 0 };
        let (from, w, [y]) = (problem.inputs.get(x)?, problem.inputs.get(weight)?, &problem.outputs[..])
        else {
            return None;
        };
        let operands = [from, w, y];
        let fits = region.outputs == [last]
            && operands.iter().all(|operand| operand.dtype == DType::F32 && operand.rank() == y.rank())
            && (3..=5).contains(&y.rank())
            && usize::try_from(conv.group).ok() == Some(from.dims[1])
            && from.dims[1] > 0
            && w.dims[1] == 1
            && w.dims[0] == y.dims[1]
            && w.constant
            && !w.is_empty();
        let bias_fits = match &bias {
            Bias::None => true,
            Bias::Input(input) => problem.inputs.get(*input).is_some_and(|bias| {
                bias.dtype == DType::F32 && bias.dims == [y.dims[1]] && bias.contiguous_along(0)
            }),
            Bias::Constant(values) => values.len() == y.dims[1],
        };
        (fits && bias_fits).then_some(Parts { conv, x, weight, bias, clamp })
    }

    fn plan(&self, isa: Isa, x: &Operand, w: &Operand, y: &Operand) -> Option<Depthwise> {
        let kernel: Vec<Dim> = w.dims[2..].iter().copied().map(Dim::from).collect();
        let attributes = self.conv.window();
        let axes = attributes.kernel_of_weight(&kernel).and_then(|kernel| attributes.axes(&kernel)).ok()?;
        let placed = axes.iter().zip(&x.dims[2..]).map(|(axis, size)| axis.place(*size).ok());
        let placed = placed.collect::<Option<Vec<_>>>()?;
        Depthwise::plan(isa, Windows::new(&placed, x, y)?, x.dims[1], self.clamp)
    }
}

/// The bounds that a node behind the convolution clamps to.
fn bounds(region: &Region, op: &Op, inputs: &[Option<Ref>]) -> Option<(f32, f32)> {
    match op {
        Op::Relu(_) => Some((0.0, f32::INFINITY)),
        Op::Clip(_) => {
            let bound = |idx: usize, none: f32| match inputs.get(idx).copied().flatten() {
                None => Some(none),
                reference => region.constant(reference)?.elements::<f32>().ok()?.first().copied(),
            };
            let (lo, hi) = (bound(1, f32::NEG_INFINITY)?, bound(2, f32::INFINITY)?);
            (lo <= hi).then_some((lo, hi))
        }
        _ => None,
    }
}

fn unsupported() -> KernelError {
    KernelError::unsupported("not a depthwise convolution of f32 images with a constant weight")
}

impl Family for DepthwiseFamily {
    fn name(&self) -> &'static str {
        "depthwise"
    }

    fn candidates(&self, isa: Isa, problem: &Problem) -> Vec<Candidate> {
        let Some(parts) = Parts::of(problem) else { return Vec::new() };
        let last = |operand: &Operand| Operand::dense(operand.dtype, &operand.dims, Layout::ChannelsLast);
        let (x, w, y) =
            (last(&problem.inputs[parts.x]), &problem.inputs[parts.weight], last(&problem.outputs[0]));
        let Some(plan) = parts.plan(isa, &x, w, &y) else { return Vec::new() };
        let mut inputs = vec![Want::dense(Layout::Plain); problem.inputs.len()];
        inputs[parts.x] = Want::inside(Layout::ChannelsLast);
        let mut packed = vec![None; problem.inputs.len()];
        packed[parts.weight] = Some(FORMAT.to_string());
        let bytes = x.span_bytes() + y.span_bytes();
        vec![Candidate {
            tactic: Tactic::new(format!("depthwise_f32_{isa}"), 1),
            inputs,
            outputs: vec![Want::inside(Layout::ChannelsLast)],
            packed,
            predicted_ns: expected_ns(isa, 2.0 * plan.macs() as f64, bytes as f64, problem.threads),
            in_place: Vec::new(),
            slow: false,
        }]
    }

    fn pack(
        &self,
        _isa: Isa,
        _problem: &Problem,
        _tactic: &Tactic,
        _input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        let [channels, _, taps @ ..] = weight.shape() else { return Err(unsupported()) };
        let elements = weight.elements::<f32>().map_err(|_| unsupported())?;
        let packed = pack(&elements, *channels, taps.iter().product());
        let bytes = packed.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Ok(PackedWeight { format: FORMAT.to_string(), bytes })
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let parts = Parts::of(problem).ok_or_else(unsupported)?;
        let (x, w, y) = (&problem.inputs[parts.x], &problem.inputs[parts.weight], &problem.outputs[0]);
        let is_packed = w.packed.as_deref() == Some(FORMAT);
        let plan = parts.plan(isa, x, w, y).filter(|_| is_packed).ok_or_else(unsupported)?;
        Ok(Box::new(DepthwiseWork { plan, x: parts.x, weight: parts.weight, bias: parts.bias }))
    }
}

#[derive(Debug)]
struct DepthwiseWork {
    plan: Depthwise,
    x: usize,
    weight: usize,
    bias: Bias,
}

impl Work for DepthwiseWork {
    fn scratch_bytes(&self, _n_slots: usize) -> usize {
        0
    }

    unsafe fn run(
        &self,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        _scratch: *mut u8,
        team: &Team,
    ) -> Result<(), KernelError> {
        let arguments = DepthwiseArguments {
            x: inputs[self.x].cast(),
            weights: inputs[self.weight].cast(),
            bias: match &self.bias {
                Bias::None => std::ptr::null(),
                Bias::Input(input) => inputs[*input].cast(),
                Bias::Constant(values) => values.as_ptr(),
            },
            y: outputs[0].cast(),
            hook: None,
        };
        // SAFETY: the caller grants what the operands span; packed weights have the length that `pack` gave
        // them.
        unsafe { self.plan.run(&arguments, team) };
        Ok(())
    }
}
