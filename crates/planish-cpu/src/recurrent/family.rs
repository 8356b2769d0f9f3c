//! The family of recurrent layers: LSTM and GRU with their usual functions, and weights of floats or bytes.

use planish_kernel::{
    Budget, Candidate, KernelError, Layout, Operand, PackedWeight, Problem, Ref, RegionNode, Tactic, Want,
    WeightUse,
};
use planish_op::{Op, RecurrentDirection};
use planish_tensor::{Bytes, DType, Tensor};

use super::digits::{self, Digits};
use super::weight::{Weight, pack, pack_floats};
use super::{Cell, ROWS, Recurrent, Thin, transposed};
use crate::family::{Family, Work};
use crate::formats::Format;
use crate::gemm::{GemmPlan, Tile};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when the kernel changes.
const REVISION: u32 = 2;

/// LSTM and GRU without peepholes, clipping, lengths or other functions than sigmoid and tanh.
pub(crate) struct RecurrentFamily;

/// Whether the functions named are the usual ones: sigmoid for gates, tanh for the rest.
fn are_usual(names: &[String], usual: &[&str]) -> bool {
    names.iter().zip(usual.iter().cycle()).all(|(name, usual)| name.eq_ignore_ascii_case(usual))
}

/// The layer of a region: alone, or after two nodes that make its weights.
fn layer(problem: &Problem) -> Option<(usize, &RegionNode)> {
    let is_layer = |node: &RegionNode| matches!(node.op, Op::LSTM(_) | Op::GRU(_));
    match &problem.region.nodes[..] {
        [node] | [_, _, node] if is_layer(node) => Some((problem.region.nodes.len() - 1, node)),
        _ => None,
    }
}

fn plan(isa: Isa, problem: &Problem) -> Option<Recurrent> {
    let (at, node) = layer(problem)?;
    let (cell, direction, is_plain) = match &node.op {
        Op::LSTM(op) => {
            let plain = op.clip.is_none()
                && !op.input_forget
                && op.layout == 0
                && are_usual(&op.activations, &["Sigmoid", "Tanh", "Tanh"]);
            (Cell::Lstm, op.direction, plain)
        }
        Op::GRU(op) => {
            let plain =
                op.clip.is_none() && op.layout == 0 && are_usual(&op.activations, &["Sigmoid", "Tanh"]);
            (Cell::Gru { linear_before_reset: op.linear_before_reset }, op.direction, plain)
        }
        _ => return None,
    };
    // Lengths and peepholes.
    let absent = |place: usize| node.inputs.get(place).copied().flatten().is_none();
    if !is_plain || !absent(4) || !absent(7) {
        return None;
    }
    let input = |place: usize| match node.inputs.get(place).copied().flatten() {
        Some(Ref::Input(idx)) => Some(idx as usize),
        _ => None,
    };
    let given = |place: usize| (!absent(place)).then(|| input(place));
    let optional = |place: usize| match given(place) {
        None => Some(None),
        Some(found) => found.map(Some),
    };
    let x = input(0)?;
    let weight =
        |place: usize, parts| Weight::of(isa, problem, node.inputs.get(place).copied().flatten(), parts);
    let (mut w, mut r) = (weight(1, 1)?, weight(2, cell.n_gates())?);
    // Both nodes before the layer are its own, or there are none; and a candidate that is reset early has its part of R apart.
    let is_early = matches!(cell, Cell::Gru { linear_before_reset: false });
    if w.is_bytes() != r.is_bytes() || w.is_bytes() != (at == 2) || (w.is_bytes() && is_early) {
        return None;
    }
    let (b, initial_h, initial_c) = (optional(3)?, optional(5)?, optional(6)?);
    let is_dense = |operand: &Operand| operand.packed.is_some() || operand.is_dense(Layout::Plain);
    let is_plain = |operand: &Operand| operand.dtype == DType::F32 && operand.packed.is_none();
    let floats = [Some(x), b, initial_h, initial_c].into_iter().flatten().map(|idx| &problem.inputs[idx]);
    if !floats.chain(&problem.outputs).all(is_plain)
        || !problem.inputs.iter().chain(&problem.outputs).all(is_dense)
    {
        return None;
    }
    let backwards = match direction {
        RecurrentDirection::Forward => vec![false],
        RecurrentDirection::Reverse => vec![true],
        RecurrentDirection::Bidirectional => vec![false, true],
    };
    let &[seq, batch, size] = &problem.inputs[x].dims[..] else { return None };
    let &[dirs, width, hidden] = &problem.inputs[r.input].dims[..] else { return None };
    let dims =
        |idx: Option<usize>, wanted: &[usize]| idx.is_none_or(|idx| problem.inputs[idx].dims == wanted);
    let fits = dirs == backwards.len()
        && width == cell.n_gates() * hidden
        && problem.inputs[w.input].dims == [dirs, width, size]
        && dims(b, &[dirs, 2 * width])
        && dims(initial_h, &[dirs, batch, hidden])
        && dims(initial_c, &[dirs, batch, hidden]);
    if !fits {
        return None;
    }
    let place = |output: u32| {
        let made = Ref::Node { node: at as u32, output };
        problem.region.outputs.iter().position(|known| *known == made)
    };
    if !w.is_packed() || !r.is_packed() {
        (w, r) = (w.unpacked(width), r.unpacked(width));
    }
    // The steps of packed weights have products of their own.
    let (thin, rest) = if r.is_packed() { (0, 0) } else { (ROWS, batch % ROWS) };
    Some(Recurrent {
        isa,
        cell,
        seq,
        batch,
        hidden,
        backwards,
        x,
        b,
        initial_h,
        initial_c,
        y: place(0),
        y_h: place(1),
        y_c: place(2),
        gates: GemmPlan::new(transposed(seq * batch, width, size, w.matrix(), width), isa),
        full: Thin::new(isa, cell, thin, hidden, r.matrix()),
        rest: Thin::new(isa, cell, rest, hidden, r.matrix()),
        tile: Tile::usual(isa),
        w,
        r,
    })
}

impl Recurrent {
    /// The format that an input is packed in.
    fn format(&self, input: usize) -> Option<String> {
        self.w.format(self.isa, input).or_else(|| self.r.format(self.isa, input))
    }
}

/// A layer, in one of the ways to compute it.
enum Way {
    Floats(Recurrent),
    Digits(Digits),
}

impl Way {
    /// Every way, the general one first.
    fn all(isa: Isa, problem: &Problem) -> Vec<Way> {
        let by_digits = digits::tiles(isa)
            .filter_map(|tile| Digits::new(plan(isa, problem)?, problem, tile).map(Way::Digits));
        plan(isa, problem).map(Way::Floats).into_iter().chain(by_digits).collect()
    }

    fn expect(isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Way, KernelError> {
        let found = Way::all(isa, problem).into_iter().find(|way| way.name(isa) == tactic.name);
        found.ok_or_else(|| KernelError::unsupported(format!("{tactic}: not this layer")))
    }

    fn name(&self, isa: Isa) -> String {
        match self {
            Way::Floats(plan) => {
                format!("recurrent_{}_{isa}", if plan.w.is_bytes() { "i8" } else { "f32" })
            }
            Way::Digits(plan) => plan.name(),
        }
    }

    fn format(&self, input: usize) -> Option<String> {
        match self {
            Way::Floats(plan) => plan.format(input),
            Way::Digits(plan) => plan.format(input),
        }
    }

    /// How many times as fast as f32 products are.
    fn speed(&self) -> f64 {
        match self {
            Way::Floats(_) => 1.0,
            Way::Digits(_) => digits::SPEED,
        }
    }
}

impl Family for RecurrentFamily {
    fn name(&self) -> &'static str {
        "recurrent"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(plan) = plan(isa, problem) else { return Vec::new() };
        let width = plan.cell.n_gates() * plan.hidden;
        let n_rows = (plan.seq * plan.batch * plan.backwards.len()) as f64;
        let input = problem.inputs[plan.x].dims[2];
        let threads = problem.threads.min(plan.backwards.len() * plan.batch.div_ceil(ROWS));
        let candidate = |way: &Way| {
            let products = 2.0 * (input + plan.hidden) as f64 / way.speed();
            let operations = n_rows * width as f64 * (products + 20.0);
            Candidate {
                packed: (0..problem.inputs.len()).map(|input| way.format(input)).collect(),
                ..Candidate::new(
                    Tactic::new(way.name(isa), REVISION),
                    vec![Want::dense(Layout::Plain); problem.inputs.len()],
                    vec![Want::dense(Layout::Plain); problem.outputs.len()],
                    expected_ns(isa, operations, problem.traffic_bytes() as f64, threads),
                )
            }
        };
        Way::all(isa, problem).iter().map(candidate).collect()
    }

    fn pack(&self, isa: Isa, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let refuse =
            || KernelError::unsupported(format!("{} does not pack input {}", used.tactic, used.input));
        let format = self.format(isa, used)?.ok_or_else(refuse)?;
        if weight.shape() != used.problem.inputs[used.input].dims {
            return Err(refuse());
        }
        let bytes = match (weight.dtype(), Format::named(&format)) {
            (DType::F32, _) => pack_floats(&format, weight)?,
            (_, Some(Format::QuadGates { panels, parts })) => {
                Bytes::from_vec(digits::pack(panels, parts, weight)?)
            }
            _ => Bytes::from_vec(pack(isa, weight)?),
        };
        Ok(PackedWeight { format, bytes })
    }

    fn format(&self, isa: Isa, used: WeightUse<'_>) -> Result<Option<String>, KernelError> {
        Ok(Way::expect(isa, used.problem, used.tactic)?.format(used.input))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let way = Way::expect(isa, problem, tactic)?;
        let unpacked =
            problem.inputs.iter().enumerate().find(|(idx, operand)| operand.packed != way.format(*idx));
        match unpacked {
            Some((idx, _)) => Err(KernelError::unsupported(format!("{tactic} needs input {idx} packed"))),
            None => Ok(match way {
                Way::Floats(plan) => Box::new(plan),
                Way::Digits(plan) => Box::new(plan),
            }),
        }
    }
}

impl Work for Recurrent {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        Recurrent::workspace_bytes(self, n_slots)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        // SAFETY: the caller grants what the operands span.
        unsafe {
            if !self.is_empty(shared) {
                Recurrent::run(self, shared, team);
            }
        }
        Ok(())
    }
}

/// Only dense operands have a meaning here; a helper for tests that lay them out.
#[cfg(test)]
pub(super) fn is_offered(problem: &Problem) -> bool {
    let dense = |operand: &Operand| operand.is_dense(Layout::Plain);
    problem.inputs.iter().all(dense) && plan(Isa::best(), problem).is_some()
}
