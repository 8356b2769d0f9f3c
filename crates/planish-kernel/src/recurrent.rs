//! Recurrent layers taken apart for every backend: LSTM, GRU and RNN with their usual functions.

use planish_op::{Op, RecurrentDirection};

use crate::{Problem, Ref};

/// Which cell, in the order of ONNX's gates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecurrentCell {
    /// One gate: the new state by tanh.
    Tanh,
    /// The same by max with 0.
    Relu,
    /// Input, output, forget, candidate.
    Lstm,
    /// Update, reset, candidate; the reset gate is applied after the product instead of before it where `late`.
    Gru { late: bool },
}

impl RecurrentCell {
    /// Gates, each of the hidden size.
    pub fn n_gates(self) -> usize {
        match self {
            RecurrentCell::Tanh | RecurrentCell::Relu => 1,
            RecurrentCell::Lstm => 4,
            RecurrentCell::Gru { .. } => 3,
        }
    }
}

/// A layer at given sizes, without peepholes, clipping, lengths, batches first, or other functions than sigmoid and
/// tanh (max with 0 in RNN).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecurrentLayer {
    pub cell: RecurrentCell,
    pub seq: usize,
    pub batch: usize,
    /// Elements that a step reads.
    pub size: usize,
    pub hidden: usize,
    /// Whether each direction runs backwards.
    pub backwards: Vec<bool>,
    /// Places among the inputs.
    pub x: usize,
    pub w: usize,
    pub r: usize,
    pub b: Option<usize>,
    pub initial_h: Option<usize>,
    pub initial_c: Option<usize>,
    /// Places of all states, the last h and the last c among the outputs, where they are wanted.
    pub y: Option<usize>,
    pub y_h: Option<usize>,
    pub y_c: Option<usize>,
}

/// Whether the functions named are the usual ones.
fn are_usual(names: &[String], usual: &[&str]) -> bool {
    names.iter().zip(usual.iter().cycle()).all(|(name, usual)| name.eq_ignore_ascii_case(usual))
}

/// The cell and its direction, where the layer is one of the plain ones.
fn cell_of(op: &Op) -> Option<(RecurrentCell, RecurrentDirection)> {
    match op {
        Op::LSTM(op) => {
            let plain = op.clip.is_none() && !op.input_forget && op.layout == 0;
            (plain && are_usual(&op.activations, &["Sigmoid", "Tanh", "Tanh"]))
                .then_some((RecurrentCell::Lstm, op.direction))
        }
        Op::GRU(op) => {
            let plain = op.clip.is_none() && op.layout == 0;
            (plain && are_usual(&op.activations, &["Sigmoid", "Tanh"]))
                .then_some((RecurrentCell::Gru { late: op.linear_before_reset }, op.direction))
        }
        Op::RNN(op) if op.clip.is_none() && op.layout == 0 => {
            let cell = [("Tanh", RecurrentCell::Tanh), ("Relu", RecurrentCell::Relu)]
                .into_iter()
                .find(|(name, _)| are_usual(&op.activations, &[name]))?;
            Some((cell.1, op.direction))
        }
        _ => None,
    }
}

impl RecurrentLayer {
    /// The layer that the problem's only node is, every operand an input of the sizes that ONNX says.
    pub fn of(problem: &Problem) -> Option<RecurrentLayer> {
        let [node] = &problem.region.nodes[..] else { return None };
        let (cell, direction) = cell_of(&node.op)?;
        let input = |place: usize| match node.inputs.get(place).copied().flatten() {
            None => Some(None),
            Some(Ref::Input(idx)) => Some(Some(idx as usize)),
            Some(_) => None,
        };
        // Lengths and peepholes.
        if input(4) != Some(None) || input(7) != Some(None) {
            return None;
        }
        let (x, w, r) = (input(0)??, input(1)??, input(2)??);
        let (b, initial_h, initial_c) = (input(3)?, input(5)?, input(6)?);
        let backwards = match direction {
            RecurrentDirection::Forward => vec![false],
            RecurrentDirection::Reverse => vec![true],
            RecurrentDirection::Bidirectional => vec![false, true],
        };
        let &[seq, batch, size] = &problem.inputs[x].dims[..] else { return None };
        let &[dirs, width, hidden] = &problem.inputs[r].dims[..] else { return None };
        let dims =
            |idx: Option<usize>, wanted: &[usize]| idx.is_none_or(|idx| problem.inputs[idx].dims == wanted);
        let place = |output: u32| {
            let made = Ref::Node { node: 0, output };
            problem.region.outputs.iter().position(|known| *known == made)
        };
        let (y, y_h, y_c) = (place(0), place(1), place(2));
        let made =
            |idx: Option<usize>, wanted: &[usize]| idx.is_none_or(|idx| problem.outputs[idx].dims == wanted);
        let fits = dirs == backwards.len()
            && width == cell.n_gates() * hidden
            && dims(Some(w), &[dirs, width, size])
            && dims(b, &[dirs, 2 * width])
            && dims(initial_h, &[dirs, batch, hidden])
            && dims(initial_c, &[dirs, batch, hidden])
            && made(y, &[seq, dirs, batch, hidden])
            && made(y_h, &[dirs, batch, hidden])
            && made(y_c, &[dirs, batch, hidden])
            && [y, y_h, y_c].iter().flatten().count() == problem.outputs.len();
        fits.then_some(RecurrentLayer {
            cell,
            seq,
            batch,
            size,
            hidden,
            backwards,
            x,
            w,
            r,
            b,
            initial_h,
            initial_c,
            y,
            y_h,
            y_c,
        })
    }
}
