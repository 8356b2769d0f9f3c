//! Depthwise convolution as the backend sees it: candidates, packed weights and prepared work.

use planish_kernel::pointwise::{Epilogue, Program};
use planish_kernel::{
    Budget, Candidate, KernelError, Layout, Operand, PackedWeight, Problem, Ref, Tactic, Want, WeightUse,
};
use planish_op::{Conv, Op};
use planish_tensor::{Bytes, DType, Dim, Tensor};

use super::{Depthwise, DepthwiseArguments, OutputRow, RowHook, pack};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::pointwise::Pointwise;
use crate::pointwise::cost::cost_per_element;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::spatial::Windows;
use crate::team::Team;

/// Taps outermost, channels innermost and rounded up to sixteen.
pub(crate) const FORMAT: &str = "taps_by_channels16";

/// Raised when the kernel changes.
const REVISION: u32 = 4;

/// `Conv` with as many groups as input channels, and what follows it element by element.
#[derive(Debug)]
pub(crate) struct DepthwiseFamily;

/// The parts of a problem that this family computes.
struct Parts<'a> {
    conv: &'a Conv,
    x: usize,
    weight: usize,
    epilogue: Epilogue,
}

impl<'a> Parts<'a> {
    fn of(problem: &'a Problem) -> Option<Parts<'a>> {
        let main = problem.region.nodes.first()?;
        let Op::Conv(conv) = &main.op else { return None };
        let input = |idx: usize| match main.inputs.get(idx).copied().flatten() {
            Some(Ref::Input(input)) => Some(input as usize),
            _ => None,
        };
        let (x, weight) = (input(0)?, input(1)?);
        let (from, w, [y]) = (problem.inputs.get(x)?, problem.inputs.get(weight)?, &problem.outputs[..])
        else {
            return None;
        };
        // One channel to many is not work for vectors along channels.
        let fits = [from, w, y].iter().all(|operand| operand.dtype == DType::F32 && operand.rank() == y.rank())
                && (3..=5).contains(&y.rank())
                && usize::try_from(conv.group).ok() == Some(from.dims[1])
                // One group of one channel is a convolution like any other.
            && (from.dims[1] > 1 || y.dims[1] == 1)
            && from.dims[1] > 0
                && w.dims[1] == 1
                && w.dims[0] == y.dims[1]
                && w.constant
                && !w.is_empty();
        if !fits {
            return None;
        }
        let epilogue = match Epilogue::of(problem, 0).ok()? {
            // What is added is a part of the program, with all that comes before and after it.
            Epilogue { residual: Some(_), .. } => {
                Epilogue { program: Some(Program::epilogue(problem, 0).ok()?), ..Epilogue::NONE }
            }
            epilogue => epilogue,
        };
        let bias_fits = epilogue.bias.is_none_or(|input| {
            problem.inputs.get(input as usize).is_some_and(|bias| {
                bias.dtype == DType::F32 && bias.len() == y.dims[1] && bias.is_dense(Layout::Plain)
            })
        });
        bias_fits.then_some(Parts { conv, x, weight, epilogue })
    }

    fn plan(&self, isa: Isa, x: &Operand, w: &Operand, y: &Operand) -> Option<Depthwise> {
        let kernel: Vec<Dim> = w.dims[2..].iter().copied().map(Dim::from).collect();
        let attributes = self.conv.window();
        let axes = attributes.kernel_of_weight(&kernel).and_then(|kernel| attributes.axes(&kernel)).ok()?;
        let placed = axes.iter().zip(&x.dims[2..]).map(|(axis, size)| axis.place(*size).ok());
        let placed = placed.collect::<Option<Vec<_>>>()?;
        let windows = Windows::new(&placed, x, y)?.with_rows();
        Depthwise::plan(isa, windows, x.dims[1], (self.epilogue.lo, self.epilogue.hi))
    }
}

/// What follows the clamp, over rows of pixels.
fn program(isa: Isa, problem: &Problem, epilogue: &Epilogue) -> Result<Option<Pointwise>, KernelError> {
    let Some(program) = &epilogue.program else { return Ok(None) };
    let pixels: Vec<usize> = (0..problem.outputs[0].rank()).filter(|axis| *axis != 1).collect();
    Pointwise::for_blocks(isa, problem, program, &pixels, &[1]).map(Some)
}

fn unsupported() -> KernelError {
    KernelError::unsupported("not a depthwise convolution of f32 images with a constant weight")
}

impl Family for DepthwiseFamily {
    fn name(&self) -> &'static str {
        "depthwise"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(parts) = Parts::of(problem) else { return Vec::new() };
        let last = |operand: &Operand| Operand::dense(operand.dtype, &operand.dims, Layout::ChannelsLast);
        let (x, w, y) =
            (last(&problem.inputs[parts.x]), &problem.inputs[parts.weight], last(&problem.outputs[0]));
        let Some(plan) = parts.plan(isa, &x, w, &y) else { return Vec::new() };
        let wanted =
            |input: &Operand| Want::following(input, problem.outputs[0].rank(), Layout::ChannelsLast);
        let mut inputs: Vec<Want> = problem.inputs.iter().map(wanted).collect();
        inputs[parts.x] = Want::inside(Layout::ChannelsLast);
        inputs[parts.weight] = Want::dense(Layout::Plain);
        if let Some(bias) = parts.epilogue.bias {
            inputs[bias as usize] = Want::dense(Layout::Plain);
        }
        let mut laid = problem.clone();
        laid.outputs[0] = y.clone();
        for (operand, want) in laid.inputs.iter_mut().zip(&inputs) {
            operand.strides = want.layout.strides(&operand.dims);
        }
        if program(isa, &laid, &parts.epilogue).is_err() {
            return Vec::new();
        }
        // Repeated channels are put together: pairs by one instruction, others element by element.
        let slower = match y.dims[1] / x.dims[1] {
            1 => 1.0,
            2 => 3.0,
            _ => isa.lanes() as f64,
        };
        let after = parts.epilogue.program.as_ref().map_or(0.0, cost_per_element);
        let mut packed = vec![None; problem.inputs.len()];
        packed[parts.weight] = Some(FORMAT.to_string());
        let bytes = x.span_bytes() + y.span_bytes();
        vec![Candidate {
            packed,
            ..Candidate::new(
                Tactic::new(format!("depthwise_f32_{isa}"), REVISION),
                inputs,
                vec![Want::inside(Layout::ChannelsLast)],
                expected_ns(isa, 2.0 * slower * plan.macs() as f64, bytes as f64, problem.threads)
                    + after * y.len() as f64 / problem.threads.max(1) as f64,
            )
        }]
    }

    fn pack(&self, _isa: Isa, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let WeightUse { problem, input, .. } = used;
        let is_weight = Parts::of(problem).is_some_and(|parts| parts.weight == input);
        let [channels, 1, taps @ ..] = weight.shape() else { return Err(unsupported()) };
        if !is_weight {
            return Err(unsupported());
        }
        let elements = weight.elements::<f32>().map_err(|_| unsupported())?;
        let packed = pack(&elements, *channels, taps.iter().product());
        let bytes = Bytes::from_vec(packed);
        Ok(PackedWeight { format: FORMAT.to_string(), bytes })
    }

    fn format(&self, _isa: Isa, used: WeightUse<'_>) -> Result<Option<String>, KernelError> {
        let weight = Parts::of(used.problem).ok_or_else(unsupported)?.weight;
        Ok((used.input == weight).then(|| FORMAT.to_string()))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let parts = Parts::of(problem).ok_or_else(unsupported)?;
        let (x, w, y) = (&problem.inputs[parts.x], &problem.inputs[parts.weight], &problem.outputs[0]);
        let is_packed = w.packed.as_deref() == Some(FORMAT);
        let plan = parts.plan(isa, x, w, y).filter(|_| is_packed).ok_or_else(unsupported)?;
        let program = program(isa, problem, &parts.epilogue)?;
        let bias = parts.epilogue.bias.map(|input| input as usize);
        Ok(Box::new(DepthwiseWork { plan, x: parts.x, weight: parts.weight, bias, program }))
    }
}

#[derive(Debug)]
struct DepthwiseWork {
    plan: Depthwise,
    x: usize,
    weight: usize,
    bias: Option<usize>,
    program: Option<Pointwise>,
}

impl DepthwiseWork {
    fn slot_bytes(&self) -> usize {
        self.program.as_ref().map_or(0, Pointwise::workspace_bytes)
    }
}

impl Work for DepthwiseWork {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.slot_bytes()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, .. } = shared;
        let after = |row: OutputRow| {
            let Shared { inputs, workspace, .. } = { shared };
            if let Some(program) = &self.program {
                let workspace = workspace.wrapping_add(row.slot * self.slot_bytes());
                let pixels = row.first_pixel..row.first_pixel + row.n_pixels;
                // SAFETY: the row is this task's, the workspace this slot's; the caller grants the inputs.
                unsafe {
                    program.run_block(inputs, row.start, row.pixel_stride, pixels, row.channels, workspace)
                };
            }
        };
        let arguments = DepthwiseArguments {
            x: inputs[self.x].cast(),
            weights: inputs[self.weight].cast(),
            bias: self.bias.map_or(std::ptr::null(), |input| inputs[input].cast()),
            y: outputs[0].cast(),
            hook: self.program.as_ref().map(|_| &after as &RowHook<'_>),
        };
        // SAFETY: the caller grants what the operands span; packed weights have the length that `pack` gave
        // them.
        unsafe { self.plan.run(&arguments, team) };
        Ok(())
    }
}
