//! RNN, GRU and LSTM of f32 in every form: lengths, batches first, other functions, clipping, peepholes, coupled gates.
//!
//! A task takes one sequence of one direction through all steps, with the weights as they are stored. The family `recurrent` is
//! faster where it takes a layer: it packs weights and has rows of a batch in one product.

use planish_kernel::{KernelError, KernelErrorKind, Layout, Operand, Problem, Ref};
use planish_op::{Op, RecurrentActivation as Act, RecurrentDirection};
use planish_tensor::DType;

use super::args::Args;
use crate::family::Work;
use crate::isa::Isa;
use crate::lines::each_vector;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::team::Team;
use crate::vecmath;

#[derive(Clone, Copy, Debug)]
enum Cell {
    Rnn,
    Gru { linear_before_reset: bool },
    Lstm { input_forget: bool },
}

/// A layer at given sizes, over dense operands.
#[derive(Debug)]
pub(super) struct Recurrent {
    isa: Isa,
    args: Args,
    cell: Cell,
    n_gates: usize,
    clip: Option<f32>,
    /// Those of each direction, one after the other.
    acts: Vec<Act>,
    /// Whether each direction runs backwards.
    backwards: Vec<bool>,
    seq: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    batch_first: bool,
    /// Where Y, the last h and the last c are among the outputs.
    outputs: [Option<usize>; 3],
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<Recurrent> {
    let [node] = &problem.region.nodes[..] else { return None };
    macro_rules! read {
        ($op:expr, $cell:expr, $n_gates:expr, $defaults:expr) => {{
            let dirs = if $op.direction == RecurrentDirection::Bidirectional { 2 } else { 1 };
            let (alphas, betas) = (&$op.activation_alpha, &$op.activation_beta);
            let acts = Act::list(&$op.activations, alphas, betas, $defaults, dirs).ok()?;
            ($cell, $n_gates, $op.clip, $op.layout, $op.direction, acts)
        }};
    }
    let (cell, n_gates, clip, layout, direction, acts) = match &node.op {
        Op::RNN(op) => read!(op, Cell::Rnn, 1, Act::RNN),
        Op::GRU(op) => {
            read!(op, Cell::Gru { linear_before_reset: op.linear_before_reset }, 3, Act::GRU)
        }
        Op::LSTM(op) => read!(op, Cell::Lstm { input_forget: op.input_forget }, 4, Act::LSTM),
        _ => return None,
    };
    let batch_first = match layout {
        0 => false,
        1 => true,
        _ => return None,
    };
    let backwards = match direction {
        RecurrentDirection::Forward => vec![false],
        RecurrentDirection::Reverse => vec![true],
        RecurrentDirection::Bidirectional => vec![false, true],
    };
    let &[first, second, input] = &args.operand(0)?.dims[..] else { return None };
    let (seq, batch) = if batch_first { (second, first) } else { (first, second) };
    let &[dirs, width, hidden] = &args.operand(2)?.dims[..] else { return None };
    let state = if batch_first { [batch, dirs, hidden] } else { [dirs, batch, hidden] };
    let steps = if batch_first { [batch, seq, dirs, hidden] } else { [seq, dirs, batch, hidden] };
    let is = |place: usize, dims: &[usize]| args.operand(place).is_none_or(|own| own.dims == dims);
    let place =
        |output: u32| problem.region.outputs.iter().position(|known| *known == Ref::Node { node: 0, output });
    let outputs = [place(0), place(1), place(2)];
    let made = |idx: usize, dims: &[usize]| outputs[idx].is_none_or(|at| problem.outputs[at].dims == dims);
    let floats = [0, 1, 2, 3, 5, 6, 7].into_iter().filter_map(|place| args.operand(place));
    let is_float = |operand: &Operand| operand.dtype == DType::F32 && operand.is_dense(Layout::Plain);
    let fits = dirs == backwards.len()
        && width == n_gates * hidden
        && is(1, &[dirs, width, input])
        && is(3, &[dirs, 2 * width])
        && is(4, &[batch])
        && is(5, &state)
        && is(6, &state)
        && is(7, &[dirs, 3 * hidden])
        && args.operand(4).is_none_or(|lengths| lengths.dtype == DType::I32)
        && args.operand(1).is_some()
        && made(0, &steps)
        && made(1, &state)
        && made(2, &state)
        && outputs.iter().flatten().count() == problem.outputs.len()
        && (outputs[2].is_none() || matches!(cell, Cell::Lstm { .. }))
        && clip.is_none_or(|clip| clip >= 0.0)
        && args.are_dense()
        && floats.chain(&problem.outputs).all(is_float);
    fits.then(|| Recurrent {
        isa,
        args: args.clone(),
        cell,
        n_gates,
        clip,
        acts,
        backwards,
        seq,
        batch,
        input,
        hidden,
        batch_first,
        outputs,
    })
}

/// `out[row] = weights[row] · x`
struct Product<'a> {
    weights: &'a [f32],
    x: &'a [f32],
    out: &'a mut [f32],
}

impl SimdKernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.x.len();
        for (row, out) in self.out.iter_mut().enumerate() {
            let line = &self.weights[row * k..(row + 1) * k];
            let mut sums = [s.zero(); 4];
            let mut at = 0;
            // SAFETY: both slices have `k` elements; a part of a vector reads those that are left.
            unsafe {
                while at + 4 * S::LANES <= k {
                    for (part, sum) in sums.iter_mut().enumerate() {
                        let place = at + part * S::LANES;
                        let (a, b) = (s.load(line.as_ptr().add(place)), s.load(self.x.as_ptr().add(place)));
                        *sum = s.mul_add(a, b, *sum);
                    }
                    at += 4 * S::LANES;
                }
                while at < k {
                    let a = s.load_part(line.as_ptr().add(at), k - at);
                    let b = s.load_part(self.x.as_ptr().add(at), k - at);
                    sums[0] = s.mul_add(a, b, sums[0]);
                    at += S::LANES;
                }
            }
            *out = s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])));
        }
    }
}

/// A function over all elements, of clipped arguments.
struct Activate<'a> {
    act: Act,
    clip: Option<f32>,
    x: &'a mut [f32],
}

impl SimdKernel for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if let Some(clip) = self.clip {
            self.x.iter_mut().for_each(|x| *x = x.clamp(-clip, clip));
        }
        let (at_first, n) = (self.x.as_mut_ptr(), self.x.len());
        match self.act {
            Act::Sigmoid => each_vector!(S, n, |at, rest| {
                // SAFETY: there are `rest` elements from here on.
                unsafe {
                    let x = s.load_part(at_first.add(at), rest);
                    s.store_part(at_first.add(at), rest, vecmath::sigmoid(s, x));
                }
            }),
            Act::Tanh => each_vector!(S, n, |at, rest| {
                // SAFETY: as above.
                unsafe {
                    let x = s.load_part(at_first.add(at), rest);
                    s.store_part(at_first.add(at), rest, vecmath::tanh(s, x));
                }
            }),
            act => self.x.iter_mut().for_each(|x| *x = activated(act, *x)),
        }
    }
}

fn activated(act: Act, x: f32) -> f32 {
    match act {
        Act::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Act::Tanh => x.tanh(),
        Act::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Act::Affine { alpha, beta } => alpha * x + beta,
        Act::LeakyRelu { alpha } => {
            if x >= 0.0 {
                x
            } else {
                alpha * x
            }
        }
        Act::ThresholdedRelu { alpha } => {
            if x >= alpha {
                x
            } else {
                0.0
            }
        }
        Act::ScaledTanh { alpha, beta } => alpha * (beta * x).tanh(),
        Act::HardSigmoid { alpha, beta } => (alpha * x + beta).clamp(0.0, 1.0),
        Act::Elu { alpha } => {
            if x >= 0.0 {
                x
            } else {
                alpha * x.exp_m1()
            }
        }
        Act::Softsign => x / (1.0 + x.abs()),
        Act::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
    }
}

/// `a += b`, element by element.
fn add(a: &mut [f32], b: &[f32]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
}

impl Recurrent {
    fn width(&self) -> usize {
        self.n_gates * self.hidden
    }

    /// Elements of workspace for one slot: sums of a step, the recurrent product, and three states.
    fn slot_len(&self) -> usize {
        (2 * self.width() + 3 * self.hidden).next_multiple_of(16)
    }

    pub(super) fn operations(&self) -> f64 {
        let rows = (self.seq * self.batch * self.backwards.len() * self.width()) as f64;
        rows * (self.input + self.hidden) as f64
    }

    /// The operand at a place, or nothing.
    ///
    /// # Safety
    /// The operands must be readable; those of f32 are aligned, as all memory of a run is.
    unsafe fn floats<'a>(&self, shared: &Shared<'a>, place: usize) -> Option<&'a [f32]> {
        let operand = self.args.operand(place)?;
        let from = self.args.at(shared, place).cast::<f32>();
        // SAFETY: granted by the caller.
        (!operand.is_empty()).then(|| unsafe { std::slice::from_raw_parts(from, operand.len()) })
    }

    fn activate(&self, act: Act, x: &mut [f32]) {
        self.isa.run(Activate { act, clip: self.clip, x });
    }

    /// # Safety
    /// As for `Work::run`.
    unsafe fn sequence(&self, shared: &Shared<'_>, dir: usize, row: usize, space: &mut [f32]) {
        let (hidden, width) = (self.hidden, self.width());
        let n_dirs = self.backwards.len();
        let lengths = self.args.at(shared, 4).cast::<i32>();
        let len = match self.args.operand(4) {
            None => self.seq,
            // SAFETY: there is one length for each row. It was compared before; whatever it is now, it is cut.
            Some(_) => (unsafe { lengths.add(row).read_unaligned() }).clamp(0, self.seq as i32) as usize,
        };
        // SAFETY: granted by the caller.
        let at = |place: usize| unsafe { self.floats(shared, place) }.unwrap_or(&[]);
        let (x, w, r) = (at(0), at(1), at(2));
        let (w, r) = (
            &w[dir * width * self.input..][..width * self.input],
            &r[dir * width * hidden..][..width * hidden],
        );
        let bias = at(3).get(dir * 2 * width..(dir + 1) * 2 * width);
        let peepholes = at(7).get(dir * 3 * hidden..(dir + 1) * 3 * hidden);
        let place = if self.batch_first { row * n_dirs + dir } else { dir * self.batch + row } * hidden;
        let (sums, rest) = space.split_at_mut(width);
        let (recurrent, rest) = rest.split_at_mut(width);
        let (h, rest) = rest.split_at_mut(hidden);
        let (c, rest) = rest.split_at_mut(hidden);
        let spare = &mut rest[..hidden];
        h.fill(0.0);
        c.fill(0.0);
        if let Some(start) = at(5).get(place..place + hidden) {
            h.copy_from_slice(start);
        }
        if let Some(start) = at(6).get(place..place + hidden) {
            c.copy_from_slice(start);
        }
        let n_acts = self.acts.len() / n_dirs;
        let acts = &self.acts[dir * n_acts..(dir + 1) * n_acts];
        for turn in 0..self.seq {
            let step = if self.backwards[dir] && turn < len { len - 1 - turn } else { turn };
            if turn < len {
                let line = if self.batch_first { row * self.seq + step } else { step * self.batch + row };
                let x = &x[line * self.input..(line + 1) * self.input];
                self.isa.run(Product { weights: w, x, out: &mut *sums });
                if let Some(bias) = bias {
                    add(sums, &bias[..width]);
                }
                self.step(
                    (r, bias, peepholes, acts),
                    (&mut *sums, &mut *recurrent),
                    (&mut *h, &mut *c, &mut *spare),
                );
            }
            if let Some(idx) = self.outputs[0] {
                let line = match self.batch_first {
                    false => (step * n_dirs + dir) * self.batch + row,
                    true => (row * self.seq + step) * n_dirs + dir,
                };
                let to = shared.outputs[idx].cast::<f32>().wrapping_add(line * hidden);
                // SAFETY: the output has this line, and this task alone writes it.
                let to = unsafe { std::slice::from_raw_parts_mut(to, hidden) };
                if turn < len { to.copy_from_slice(h) } else { to.fill(0.0) }
            }
        }
        for (output, state) in [(self.outputs[1], &*h), (self.outputs[2], &*c)] {
            let Some(idx) = output else { continue };
            let to = shared.outputs[idx].cast::<f32>().wrapping_add(place);
            // SAFETY: as above.
            let to = unsafe { std::slice::from_raw_parts_mut(to, hidden) };
            // As the reference has it: no step, no state, not even the initial one.
            if len > 0 { to.copy_from_slice(state) } else { to.fill(0.0) }
        }
    }

    /// One step: `sums` holds what the input and its bias make of the gates.
    #[allow(clippy::type_complexity)]
    fn step(
        &self,
        (r, bias, peepholes, acts): (&[f32], Option<&[f32]>, Option<&[f32]>, &[Act]),
        (sums, recurrent): (&mut [f32], &mut [f32]),
        (h, c, spare): (&mut [f32], &mut [f32], &mut [f32]),
    ) {
        let (hidden, width) = (self.hidden, self.width());
        let behind =
            |from: usize, to: usize| bias.map(|bias| &bias[width + from * hidden..width + to * hidden]);
        let recur = |gates: std::ops::Range<usize>, h: &[f32], out: &mut [f32]| {
            let weights = &r[gates.start * hidden * hidden..gates.end * hidden * hidden];
            self.isa.run(Product { weights, x: h, out: &mut *out });
            if let Some(bias) = behind(gates.start, gates.end) {
                add(out, bias);
            }
        };
        match self.cell {
            Cell::Rnn => {
                recur(0..1, h, recurrent);
                add(sums, recurrent);
                self.activate(acts[0], sums);
                h.copy_from_slice(sums);
            }
            Cell::Gru { linear_before_reset } => {
                let (gates, candidate) = sums.split_at_mut(2 * hidden);
                let n_gates = if linear_before_reset { 3 } else { 2 };
                recur(0..n_gates, h, &mut recurrent[..n_gates * hidden]);
                add(gates, recurrent);
                self.activate(acts[0], gates);
                let (update, reset) = gates.split_at(hidden);
                if linear_before_reset {
                    let linear = &recurrent[2 * hidden..];
                    for ((to, reset), linear) in candidate.iter_mut().zip(reset).zip(linear) {
                        *to += reset * linear;
                    }
                } else {
                    spare.iter_mut().zip(reset).zip(&*h).for_each(|((to, reset), h)| *to = reset * h);
                    recur(2..3, spare, &mut recurrent[..hidden]);
                    add(candidate, recurrent);
                }
                self.activate(acts[1], candidate);
                for ((h, update), candidate) in h.iter_mut().zip(update).zip(&*candidate) {
                    *h = (1.0 - update) * candidate + update * *h;
                }
            }
            Cell::Lstm { input_forget } => {
                recur(0..4, h, recurrent);
                add(sums, recurrent);
                let (input, rest) = sums.split_at_mut(hidden);
                let (output, rest) = rest.split_at_mut(hidden);
                let (forget, candidate) = rest.split_at_mut(hidden);
                let peep = |gate: &mut [f32], of: usize, c: &[f32]| {
                    let Some(weights) = peepholes else { return };
                    let weights = &weights[of * hidden..(of + 1) * hidden];
                    gate.iter_mut().zip(weights).zip(c).for_each(|((gate, weight), c)| *gate += weight * c);
                };
                peep(input, 0, c);
                self.activate(acts[0], input);
                if input_forget {
                    forget.iter_mut().zip(&*input).for_each(|(forget, input)| *forget = 1.0 - input);
                } else {
                    peep(forget, 2, c);
                    self.activate(acts[0], forget);
                }
                self.activate(acts[1], candidate);
                for ((c, forget), (input, candidate)) in
                    c.iter_mut().zip(&*forget).zip(input.iter().zip(&*candidate))
                {
                    *c = forget * *c + input * candidate;
                }
                peep(output, 1, c);
                self.activate(acts[0], output);
                h.copy_from_slice(c);
                self.activate(acts[2], h);
                h.iter_mut().zip(&*output).for_each(|(h, output)| *h *= output);
            }
        }
    }
}

impl Work for Recurrent {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.slot_len() * size_of::<f32>()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        if self.args.operand(4).is_some() {
            let lengths = self.args.at(&shared, 4).cast::<i32>();
            for row in 0..self.batch {
                // SAFETY: there is one length for each row.
                let len = unsafe { lengths.add(row).read_unaligned() };
                if len < 0 || len as usize > self.seq {
                    let why = format!("a sequence of {len} steps, where there are {}", self.seq);
                    return Err(KernelError::new(KernelErrorKind::BadValues, why));
                }
            }
        }
        if self.hidden == 0 {
            return Ok(());
        }
        team.for_each(self.backwards.len() * self.batch, &|task| {
            let shared = &shared;
            let start = shared.workspace.cast::<f32>().wrapping_add(task.slot * self.slot_len());
            // SAFETY: the workspace has so many numbers for each slot, aligned.
            let space = unsafe { std::slice::from_raw_parts_mut(start, self.slot_len()) };
            // SAFETY: the caller grants the operands; a sequence is written by one task.
            unsafe { self.sequence(shared, task.idx / self.batch, task.idx % self.batch, space) };
        });
        Ok(())
    }
}
