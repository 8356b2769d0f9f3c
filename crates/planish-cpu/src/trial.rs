//! Trials, for tests: a problem run by a family on strided operands, and compared with the reference.

use planish_kernel::Budget;
use std::sync::atomic::{AtomicUsize, Ordering};

use planish_kernel::{
    Candidate, KernelError, Layout, Numeric, Operand, PackedWeight, Problem, Ref, Region, RegionNode, Tactic,
    WeightUse,
};
use planish_op::{DequantizeLinear, Op, QuantizeLinear};
use planish_tensor::{DType, Tensor};
use planish_testing::operand::arranged;
use planish_testing::{
    Fenced, Placed, Placement, Random, Tolerance, assert_close, evaluate_op, input, node, region,
};

use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::shared::Shared;
use crate::team::Team;

/// Runs prepared work on these inputs and gives its outputs; nothing else may have been written.
pub(crate) fn run_work(
    work: &dyn Work,
    problem: &Problem,
    inputs: &[Tensor],
    team: &Team,
) -> Result<Vec<Tensor>, KernelError> {
    let placed: Vec<Placed> = inputs.iter().zip(&problem.inputs).map(|(t, at)| Placed::new(t, at)).collect();
    let from: Vec<*const u8> = placed.iter().map(Placed::ptr).collect();
    run_on(work, problem, &from, team)
}

/// The same on inputs in memory, packed or not.
pub(crate) fn run_on(
    work: &dyn Work,
    problem: &Problem,
    from: &[*const u8],
    team: &Team,
) -> Result<Vec<Tensor>, KernelError> {
    let mut to: Vec<Placed> = problem.outputs.iter().map(Placed::blank).collect();
    let mut workspace = Fenced::workspace(work.workspace_bytes(team.n_slots()));
    let outputs: Vec<*mut u8> = to.iter_mut().map(Placed::mut_ptr).collect();
    // SAFETY: the memories span what the operands do; the workspace is as large as asked for.
    unsafe { work.run(Shared::new(from, &outputs, workspace.mut_ptr()), team)? };
    workspace.check().expect("nothing is written around the workspace");
    Ok(to.iter().map(Placed::tensor).collect())
}

/// Runs the first candidate's tactic of a family on a problem.
pub(crate) fn run(family: &dyn Family, isa: Isa, problem: &Problem, inputs: &[Tensor]) -> Vec<Tensor> {
    let candidates = family.candidates(isa, problem, &Budget::USUAL);
    let candidate = candidates.first().unwrap_or_else(|| panic!("no candidate: {}", problem.key()));
    let work = family.prepare(isa, problem, &candidate.tactic).unwrap();
    run_work(&*work, problem, inputs, &Team::new(problem.threads)).unwrap()
}

/// A problem with its operands as a candidate wants them.
pub(crate) struct Arranged<'a> {
    candidate: &'a Candidate,
    problem: Problem,
}

impl<'a> Arranged<'a> {
    /// `gap` elements between rows, where the candidate allows it.
    pub(crate) fn new(problem: &Problem, candidate: &'a Candidate, gap: usize) -> Arranged<'a> {
        Arranged { candidate, problem: arranged(problem, candidate, gap) }
    }

    /// The first output of a run with weights packed by the family, which `check_packed` may look at.
    pub(crate) fn run(
        mut self,
        family: &dyn Family,
        isa: Isa,
        inputs: &[Tensor],
        threads: usize,
        check_packed: impl Fn(&PackedWeight, &Tensor),
    ) -> Tensor {
        let tactic = &self.candidate.tactic;
        let placed: Vec<Placed> =
            inputs.iter().zip(&self.problem.inputs).map(|(tensor, at)| Placed::new(tensor, at)).collect();
        let mut from: Vec<*const u8> = placed.iter().map(Placed::ptr).collect();
        let mut weights = Vec::new();
        for (idx, format) in self.candidate.packed.iter().enumerate() {
            let Some(format) = format else { continue };
            let used = WeightUse::new(&self.problem, tactic, idx);
            let packed = family.pack(isa, used, &inputs[idx]).unwrap();
            assert_eq!(&packed.format, format);
            check_packed(&packed, &inputs[idx]);
            self.problem.inputs[idx].packed = Some(format.clone());
            let weight = Fenced::of(&packed.bytes);
            from[idx] = weight.ptr();
            weights.push(weight);
        }
        let work = family.prepare(isa, &self.problem, tactic).unwrap();
        run_on(&*work, &self.problem, &from, &Team::new(threads)).unwrap().remove(0)
    }
}

/// Runs the problem on every instruction set, placed in every way, and compares.
#[track_caller]
pub(crate) fn check(family: &dyn Family, region: &Region, inputs: &[Tensor], tolerance: Tolerance) {
    check_placed(family, region, inputs, tolerance, &Placement::ALL);
}

/// The same placed in some ways, for families that do not take all.
#[track_caller]
pub(crate) fn check_placed(
    family: &dyn Family,
    region: &Region,
    inputs: &[Tensor],
    tolerance: Tolerance,
    placements: &[Placement],
) {
    for placement in placements {
        let (problem, want) = placement.problem(region, inputs);
        for isa in Isa::available() {
            let got = run(family, isa, &problem, inputs);
            for (got, want) in got.iter().zip(&want) {
                assert_close(got, want, tolerance, &format!("{} on {isa}, {placement:?}", problem.key()));
            }
        }
    }
}

/// An operator on an image of bytes, whose result becomes bytes again, or stays numbers; `parameters` follow the image. Scales
/// are such that no average of few bytes lies in the middle between two integers.
pub(crate) fn of_bytes(op: Op, parameters: &[Option<Tensor>], from: DType, to: Option<DType>) -> Region {
    let zero = |dtype: DType| match dtype {
        DType::U8 => Tensor::scalar(131u8),
        _ => Tensor::scalar(-3i8),
    };
    let mut constants = vec![Tensor::scalar(0.0371f32), zero(from)];
    let mut constant = |tensor: Tensor| {
        constants.push(tensor);
        Some(Ref::Constant(constants.len() as u32 - 1))
    };
    let mut image = vec![node(0)];
    image.extend(parameters.iter().map(|tensor| tensor.clone().and_then(&mut constant)));
    let ends = to.map(|to| [constant(Tensor::scalar(0.0293f32)), constant(zero(to))]);
    let dequantize = DequantizeLinear { output_dtype: None, block_size: 0, axis: 1 };
    let first = vec![input(0), Some(Ref::Constant(0)), Some(Ref::Constant(1))];
    let mut nodes = vec![(dequantize.into(), first), (op, image)];
    if let Some([scale, zero]) = ends {
        let quantize =
            QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 };
        nodes.push((quantize.into(), vec![node(1), scale, zero]));
    }
    region(1, constants, nodes)
}

/// One input of an operator under test.
#[derive(Clone)]
pub(crate) enum Input {
    /// A value that a run brings.
    Data(Tensor),
    /// A constant of the region.
    Parameter(Tensor),
    Absent,
}

impl Input {
    fn tensor(&self) -> Option<&Tensor> {
        match self {
            Input::Data(tensor) | Input::Parameter(tensor) => Some(tensor),
            Input::Absent => None,
        }
    }
}

/// How many operators ran.
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// An operator under test with what it reads, and what the reference makes of it.
pub(crate) struct OpTrial {
    pub(crate) region: Region,
    pub(crate) data: Vec<Tensor>,
    pub(crate) want: Vec<Tensor>,
}

impl OpTrial {
    pub(crate) fn new(op: impl Into<Op>, inputs: &[Input], n_outputs: usize) -> OpTrial {
        let op = op.into();
        let tensors: Vec<Option<&Tensor>> = inputs.iter().map(Input::tensor).collect();
        let want = evaluate_op(&op, &tensors, n_outputs);
        let (mut data, mut constants) = (Vec::new(), Vec::new());
        let mut place = |input: &Input| match input {
            Input::Data(tensor) => {
                data.push(tensor.clone());
                Some(Ref::Input(data.len() as u32 - 1))
            }
            Input::Parameter(tensor) => {
                constants.push(tensor.clone());
                Some(Ref::Constant(constants.len() as u32 - 1))
            }
            Input::Absent => None,
        };
        let node = RegionNode {
            name: op.name().to_string(),
            op,
            inputs: inputs.iter().map(&mut place).collect(),
            n_outputs: n_outputs as u32,
        };
        let region = Region {
            n_inputs: data.len() as u32,
            constants,
            nodes: vec![node],
            outputs: (0..n_outputs as u32).map(|output| Ref::Node { node: 0, output }).collect(),
        };
        OpTrial { region, data, want }
    }

    /// The problem with these operands.
    pub(crate) fn problem(&self, inputs: &[Operand], outputs: &[Operand]) -> Problem {
        Problem {
            region: self.region.clone(),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            numeric: Numeric::F32,
            threads: 1,
        }
    }

    /// What `family` makes of it where operands are placed as given.
    pub(crate) fn run(
        &self,
        family: &dyn Family,
        isa: Isa,
        inputs: &[Operand],
        outputs: &[Operand],
    ) -> Result<Vec<Tensor>, KernelError> {
        let problem = self.problem(inputs, outputs);
        let work = family.prepare(isa, &problem, &Tactic::new(family.name(), 1))?;
        let alone = run_work(&*work, &problem, &self.data, &Team::alone())?;
        // Threads that wait for each other on a busy machine take their time, so not every run has them.
        if RUNS.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
            let shared = run_work(&*work, &problem, &self.data, &Team::new(3))?;
            assert!(alone == shared, "results depend on the number of threads");
        }
        Ok(alone)
    }

    /// Checks exact results of all instruction sets, with operands of random layouts inside larger ones.
    #[track_caller]
    pub(crate) fn check_exact(&self, family: &dyn Family, random: &mut Random, fixed: Option<Layout>) {
        for isa in Isa::available() {
            let mut operand = |tensor: &Tensor| {
                let both = [Layout::Plain, Layout::ChannelsLast];
                let layout = fixed.unwrap_or_else(|| *random.pick(&both));
                random.operand(tensor.dtype(), tensor.shape(), layout)
            };
            let inputs: Vec<Operand> = self.data.iter().map(&mut operand).collect();
            let outputs: Vec<Operand> = self.want.iter().map(&mut operand).collect();
            let got = self.run(family, isa, &inputs, &outputs).unwrap();
            assert!(got == self.want, "{isa} {:?} from {inputs:?} to {outputs:?}", self.region.nodes[0].op);
        }
    }
}
