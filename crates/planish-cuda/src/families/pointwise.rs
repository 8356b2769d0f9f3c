//! The family of pointwise programs: regions whose nodes are all element-wise, in one generated kernel.

#[cfg(test)]
mod tests;

use planish_gpu::map::{Body, Laid, Map, Place};
use planish_gpu::operands::{candidate, refuse, size_of_element, storage, strides};
use planish_gpu::plan::{Plan, Slot};
use planish_kernel::pointwise::{Program, ProgramInput, Source};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Tactic, Want, layouts_for};
use planish_tensor::DType;

use crate::family::Family;
use crate::gpu::Gpu;

/// Raised when the generated code changes.
const REVISION: u32 = 3;

/// Fused pointwise regions.
pub(crate) struct PointwiseFamily;

impl Family for PointwiseFamily {
    fn name(&self) -> &'static str {
        "pointwise"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Ok(program) = Program::stored(problem) else {
            return Vec::new();
        };
        let rank = program.dims.len();
        let ns = gpu.roofline_ns(0.0, 1.0, problem.traffic_bytes() as f64);
        let mut list = Vec::new();
        let mut offer = |from: Layout, to: Layout, ns: f64| {
            let inputs: Vec<Want> =
                problem.inputs.iter().map(|input| Want::following(input, rank, from)).collect();
            let outputs = vec![Want::inside(to); problem.outputs.len()];
            if map(&problem.with_layouts(&inputs, &outputs), &program).and_then(|map| map.plan()).is_ok() {
                let name = match from == to {
                    true => format!("pointwise_{}", to.name()),
                    false => format!("pointwise_{}_to_{}", from.name(), to.name()),
                };
                let in_place = if from == to { in_place(problem, &program) } else { Vec::new() };
                list.push(Candidate { in_place, ..candidate(name, REVISION, inputs, outputs, ns) });
            }
        };
        let layouts: Vec<Layout> = layouts_for(&problem.outputs).collect();
        layouts.iter().for_each(|layout| offer(*layout, *layout, ns));
        // One value on its way from one layout to the other can be computed with as it goes.
        let n_values = problem.inputs.iter().filter(|input| input.dims == program.dims && !input.constant);
        if layouts.len() == 2 && n_values.count() == 1 {
            offer(Layout::Plain, Layout::ChannelsLast, ns * 1.2);
            offer(Layout::ChannelsLast, Layout::Plain, ns * 1.2);
        }
        list
    }

    fn in_place(&self, problem: &Problem, _tactic: &Tactic) -> Vec<(usize, usize)> {
        Program::stored(problem).map_or(Vec::new(), |program| in_place(problem, &program))
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        map(problem, &Program::stored(problem)?)?.plan()
    }
}

/// Where a program's inputs and outputs are, in the problem as it lies.
fn map(problem: &Problem, program: &Program) -> Result<Map, KernelError> {
    let fits = |(output, dtype): (&Operand, &DType)| output.dims == program.dims && output.dtype == *dtype;
    let n_outputs = program.outputs.len();
    if problem.outputs.len() != n_outputs || !problem.outputs.iter().zip(&program.output_types).all(fits) {
        return refuse("outputs of other types or sizes than the program makes");
    }
    let inputs = program.inputs.iter().map(|input| Laid::of_input(problem, program.dims.len(), input));
    let outputs = problem.outputs.iter().enumerate().map(|(idx, output)| {
        Ok(Laid {
            place: Place::Operand(Slot::Output(idx), 0),
            storage: storage(output)?,
            size: size_of_element(output.dtype),
            strides: strides(output),
        })
    });
    Ok(Map {
        dims: program.dims.clone(),
        inputs: inputs.collect::<Result<_, _>>()?,
        outputs: outputs.collect::<Result<_, KernelError>>()?,
        body: Body::Program(Box::new(program.clone())),
    })
}

/// A single output may lie upon an input of its own type and sizes: every thread reads before it writes.
fn in_place(problem: &Problem, program: &Program) -> Vec<(usize, usize)> {
    let [output] = &*problem.outputs else {
        return Vec::new();
    };
    // Read with other strides too, an element could be gone before another thread comes to it.
    let reads = |idx: usize| {
        let own = |input: &&ProgramInput| input.source == Source::Input(idx as u32);
        program.inputs.iter().filter(own).count() == 1
    };
    let fits = |idx: usize, input: &Operand| {
        !input.constant && input.dtype == output.dtype && input.dims == program.dims && reads(idx)
    };
    let all = problem.inputs.iter().enumerate();
    all.filter(|(idx, input)| fits(*idx, input)).map(|(idx, _)| (0, idx)).collect()
}
