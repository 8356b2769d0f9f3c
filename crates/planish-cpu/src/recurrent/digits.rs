//! Layers with weights of bytes where the machine has dot products of bytes: what meets the weights is taken apart into three
//! digits.
//!
//! A row of inputs, or of the state, is `s · (254² · a + 254 · b + c)` with digits of -127 to 127 and `s` the 127 · 254²-th
//! part of its largest magnitude, so no number is off by more than the last bit of an f32 of that magnitude. Digits plus 128
//! are unsigned bytes; a weight is read once for its three products and stays a byte, and sums are exact in i32. That is as
//! exact as sums in f32 and reads the weights at the speed of the second-level cache, where making floats of them takes
//! three times as long.

mod table;
mod take_apart;

use planish_kernel::{KernelError, Problem};
use planish_tensor::Tensor;

use super::{Cell, ROWS, Recurrent, gru_late, lstm, start};
use crate::conv::quantized::{Arrangement, Places, pack_quads, quad_places};
use crate::family::Work;
use crate::formats::Format;
use crate::gemm::table::Panels;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::team::Team;
pub(crate) use table::needed_feature;
use table::{DIGITS, DigitsTile, MAX_ROWS, SumsCall};
use take_apart::{PLAIN, TakeApart};

/// Multiply-adds of three digits a cycle, against those of f32.
pub(super) const SPEED: f64 = 1.3;

/// Weights of a quad.
const QUAD: usize = 4;
/// What is added to a digit to make it a byte without a sign.
const ZERO: i32 = 128;

/// One of the two weights: matrices of packed bytes, so many for each direction.
#[derive(Clone, Copy, Debug)]
struct Matrices {
    input: usize,
    /// The input with a scale for each direction and row.
    scales: usize,
    parts: usize,
    /// Rows of a part, and columns of the sum.
    n: usize,
    k: usize,
    /// Of a part.
    places: Places,
}

impl Matrices {
    fn new(
        tile: DigitsTile,
        input: usize,
        scales: usize,
        parts: usize,
        n: usize,
        k: usize,
    ) -> Option<Matrices> {
        // Rows of digits lie one after the other.
        if !k.is_multiple_of(QUAD) {
            return None;
        }
        let places = quad_places(Arrangement::Matrix { transposed: true }, tile.panels(), &[n, k])?;
        Some(Matrices { input, scales, parts, n, k, places })
    }

    fn format(self, tile: DigitsTile) -> String {
        Format::QuadGates { panels: tile.panels(), parts: self.parts }.name()
    }
}

/// A layer by digits.
#[derive(Debug)]
pub(super) struct Digits {
    layer: Recurrent,
    tile: DigitsTile,
    w: Matrices,
    r: Matrices,
    /// Features of the input.
    size: usize,
}

/// Where the parts of the workspace begin, in bytes.
struct Parts {
    /// Sums of all steps with the biases, `[direction][step][row][gate]`.
    pre: usize,
    /// Those of the step at hand, `[direction][row][gate]`.
    now: usize,
    h: usize,
    c: usize,
    bias: usize,
    /// The digits of inputs and states, and the scale of each row.
    x_digits: usize,
    x_scales: usize,
    h_digits: usize,
    h_scales: usize,
    len: usize,
}

impl Digits {
    /// The layer on a tile; `None` where its weights are of another kind.
    pub(super) fn new(layer: Recurrent, problem: &Problem, tile: DigitsTile) -> Option<Digits> {
        let size = *problem.inputs[layer.x].dims.last()?;
        let (gates, hidden) = (layer.cell.n_gates(), layer.hidden);
        let (w, r) = (layer.w.signed_scales()?, layer.r.signed_scales()?);
        let w = Matrices::new(tile, layer.w.input, w, 1, gates * hidden, size)?;
        let r = Matrices::new(tile, layer.r.input, r, gates, hidden, hidden)?;
        Some(Digits { layer, tile, w, r, size })
    }

    pub(super) fn name(&self) -> String {
        format!("recurrent_digits_{}", self.tile.name())
    }

    /// The format that an input is packed in.
    pub(super) fn format(&self, input: usize) -> Option<String> {
        [self.w, self.r].into_iter().find(|one| one.input == input).map(|one| one.format(self.tile))
    }

    fn parts(&self) -> Parts {
        let layer = &self.layer;
        let line = |bytes: usize| bytes.next_multiple_of(64);
        let floats = |n: usize| line(n * size_of::<f32>());
        let (dirs, width) = (layer.backwards.len(), layer.cell.n_gates() * layer.hidden);
        let (n_x, n_h) = (layer.seq * layer.batch, dirs * layer.batch);
        let now = floats(dirs * n_x * width);
        let h = now + floats(n_h * width);
        let c = h + floats(n_h * layer.hidden);
        let bias = c + floats(n_h * layer.hidden);
        let x_digits = bias + floats(dirs * width);
        let x_scales = x_digits + line(DIGITS * n_x * self.size);
        let h_digits = x_scales + floats(n_x);
        let h_scales = h_digits + line(DIGITS * n_h * layer.hidden);
        let len = h_scales + floats(n_h);
        Parts { pre: 0, now, h, c, bias, x_digits, x_scales, h_digits, h_scales, len }
    }

    /// `to = residual + bias + s · digits · matrix` for some rows and one panel of a matrix.
    ///
    /// # Safety
    /// Everything must be there for these rows, and for the columns of the panel.
    unsafe fn sums(&self, shared: Shared<'_>, of: Matrices, place: Place, panel: usize, rows: &SumsRows) {
        let nr = self.tile.panels().nr;
        let column = panel * nr;
        let n = nr.min(of.n - column);
        let depth = of.k / QUAD;
        // SAFETY: granted by the caller; matrices lie one after the other.
        unsafe {
            let matrix =
                shared.inputs[of.input].add((place.direction * of.parts + place.part) * of.places.len);
            let scales = shared.inputs[of.scales].cast::<f32>();
            let scales = scales.add((place.direction * of.parts + place.part) * of.n + column);
            let mut first = 0;
            while first < rows.n {
                let m = self.tile.rows().min(rows.n - first);
                let digits = rows.digits.add(first * DIGITS * of.k);
                let mut pointers = [std::ptr::null::<f32>(); DIGITS * MAX_ROWS];
                for (at, pointer) in pointers.iter_mut().enumerate().take(DIGITS * m) {
                    *pointer = digits.add(at * of.k).cast();
                }
                let plus = |from: *const f32, at: usize| if from.is_null() { from } else { from.add(at) };
                let call = SumsCall {
                    rows: pointers,
                    depth,
                    panel: matrix.cast::<i32>().add(column * depth),
                    panel_stride: n.next_multiple_of(self.tile.panels().lanes),
                    sums: matrix.add(of.places.sums).cast::<i32>().add(column),
                    row_scales: rows.scales.add(first),
                    scales,
                    bias: plus(rows.bias, column),
                    residual: plus(rows.residual, first * rows.stride + column),
                    to: rows.to.add(first * rows.stride + column),
                    stride: rows.stride,
                    n,
                };
                self.tile.run(&call, m);
                for row in (0..m).filter(|row| (*call.row_scales.add(*row)).to_bits() == PLAIN) {
                    call.plainly(row, rows.from.add((first + row) * of.k));
                }
                first += m;
            }
        }
    }
}

/// Which matrix.
#[derive(Clone, Copy)]
struct Place {
    direction: usize,
    part: usize,
}

/// Rows that meet a matrix, and where their sums go.
struct SumsRows {
    n: usize,
    /// As they were before they were taken apart.
    from: *const f32,
    digits: *const u8,
    scales: *const f32,
    bias: *const f32,
    residual: *const f32,
    to: *mut f32,
    /// From row to row of the residual and the sums.
    stride: usize,
}

impl Work for Digits {
    fn workspace_bytes(&self, _: usize) -> usize {
        self.parts().len
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let layer = &self.layer;
        // SAFETY: the caller grants what the operands span.
        if unsafe { layer.is_empty(shared) } {
            return Ok(());
        }
        let parts = &self.parts();
        let (width, dirs) = (layer.cell.n_gates() * layer.hidden, layer.backwards.len());
        let n_x = layer.seq * layer.batch;
        // SAFETY: the parts of the workspace do not overlap; tasks have different rows, columns or directions.
        unsafe {
            for direction in 0..dirs {
                let bias = shared.workspace.add(parts.bias).cast::<f32>().add(direction * width);
                layer.sum_biases(shared, direction, bias);
            }
            let n_blocks = n_x.div_ceil(ROWS);
            team.for_each(n_blocks, &move |task| {
                let shared = shared;
                let first = task.idx * ROWS;
                layer.isa.run(TakeApart {
                    from: shared.inputs[layer.x].cast::<f32>().wrapping_add(first * self.size),
                    n: ROWS.min(n_x - first),
                    k: self.size,
                    digits: shared.workspace.wrapping_add(parts.x_digits + first * DIGITS * self.size),
                    scales: shared.workspace.wrapping_add(parts.x_scales).cast::<f32>().wrapping_add(first),
                });
            });
            let n_panels = width.div_ceil(self.tile.panels().nr);
            team.for_each(dirs * n_panels, &move |task| {
                let shared = shared;
                let (direction, panel) = (task.idx / n_panels, task.idx % n_panels);
                let floats = |part: usize| shared.workspace.add(part).cast::<f32>();
                let rows = SumsRows {
                    n: n_x,
                    from: shared.inputs[layer.x].cast(),
                    digits: shared.workspace.add(parts.x_digits),
                    scales: floats(parts.x_scales),
                    bias: floats(parts.bias).add(direction * width),
                    residual: std::ptr::null(),
                    to: floats(parts.pre).add(direction * n_x * width),
                    stride: width,
                };
                self.sums(shared, self.w, Place { direction, part: 0 }, panel, &rows);
            });
            let n_blocks = layer.batch.div_ceil(ROWS);
            team.for_each(dirs * n_blocks, &move |task| {
                let shared = shared;
                let (direction, first) = (task.idx / n_blocks, task.idx % n_blocks * ROWS);
                let rows = ROWS.min(layer.batch - first);
                layer.isa.run(Steps { plan: self, shared, parts, direction, first, rows });
            });
        }
        Ok(())
    }
}

/// All steps of some rows of one direction.
struct Steps<'a> {
    plan: &'a Digits,
    shared: Shared<'a>,
    parts: &'a Parts,
    direction: usize,
    first: usize,
    rows: usize,
}

impl SimdKernel for Steps<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `Digits::run` was granted the operands; nobody else has these rows of this direction.
        unsafe { self.compute(s) }
    }
}

impl Steps<'_> {
    #[inline(always)]
    unsafe fn compute<S: Simd>(&self, s: S) {
        let &Steps { plan, shared, parts, direction, first, rows } = self;
        let layer = &plan.layer;
        let (hidden, batch) = (layer.hidden, layer.batch);
        let (n_gates, n_panels) = (layer.cell.n_gates(), hidden.div_ceil(plan.tile.panels().nr));
        let width = n_gates * hidden;
        let is_lstm = layer.cell == Cell::Lstm;
        // SAFETY: see `run`; the parts of the workspace hold all rows.
        unsafe {
            let floats = |part: usize| shared.workspace.add(part).cast::<f32>();
            let at = direction * batch + first;
            let (now, h, c) = (
                floats(parts.now).add(at * width),
                floats(parts.h).add(at * hidden),
                floats(parts.c).add(at * hidden),
            );
            let digits = shared.workspace.add(parts.h_digits + at * DIGITS * hidden);
            let scales = floats(parts.h_scales).add(at);
            let input = |idx: usize| shared.inputs[idx].cast::<f32>();
            let bias = layer.b.map(|b| input(b).add((2 * direction + 1) * width));
            start(layer.initial_h.map(|idx| input(idx).add(at * hidden)), h, rows * hidden);
            start(layer.initial_c.map(|idx| input(idx).add(at * hidden)), c, rows * hidden);
            for step in 0..layer.seq {
                let time = if layer.backwards[direction] { layer.seq - 1 - step } else { step };
                let pre = floats(parts.pre).add(((direction * layer.seq + time) * batch + first) * width);
                TakeApart { from: h, n: rows, k: hidden, digits, scales }.compute(s);
                for part in 0..n_gates {
                    let sums = SumsRows {
                        n: rows,
                        from: h,
                        digits,
                        scales,
                        bias: std::ptr::null(),
                        residual: if is_lstm { pre.add(part * hidden) } else { std::ptr::null() },
                        to: now.add(part * hidden),
                        stride: width,
                    };
                    for panel in 0..n_panels {
                        plan.sums(shared, plan.r, Place { direction, part }, panel, &sums);
                    }
                }
                for row in 0..rows {
                    let (pre, now) = (pre.add(row * width), now.add(row * width));
                    let (h, c) = (h.add(row * hidden), c.add(row * hidden));
                    match is_lstm {
                        true => lstm(s, now, h, c, hidden, 0..hidden),
                        false => gru_late(s, pre, now, bias, (h, h), hidden, 0..hidden),
                    }
                }
                if let Some(y) = layer.y {
                    let to = (time * layer.backwards.len() + direction) * batch + first;
                    let to = shared.outputs[y].cast::<f32>().add(to * hidden);
                    std::ptr::copy_nonoverlapping(h, to, rows * hidden);
                }
            }
            for (place, from) in [(layer.y_h, h), (layer.y_c, c)] {
                if let Some(place) = place {
                    let to = shared.outputs[place].cast::<f32>().add(at * hidden);
                    std::ptr::copy_nonoverlapping(from, to, rows * hidden);
                }
            }
        }
    }
}

/// The tiles that this machine has.
pub(super) fn tiles(isa: Isa) -> impl Iterator<Item = DigitsTile> {
    DigitsTile::all(isa)
}

/// A weight packed: the matrices of each direction one after the other.
pub(super) fn pack(panels: Panels, parts: usize, weight: &Tensor) -> Result<Vec<u8>, KernelError> {
    let refuse = || KernelError::unsupported(format!("a weight of shape {:?} in quads", weight.shape()));
    let &[dirs, rows, k] = weight.shape() else { return Err(refuse()) };
    if parts == 0 || !rows.is_multiple_of(parts) || dirs * rows * k == 0 {
        return Err(refuse());
    }
    let bytes = weight.elements::<i8>().map_err(|_| refuse())?;
    let n = rows / parts;
    let mut packed = Vec::new();
    for matrix in bytes.chunks_exact(n * k) {
        let arrangement = Arrangement::Matrix { transposed: true };
        packed.extend(pack_quads(arrangement, panels, &[n, k], matrix).ok_or_else(refuse)?);
    }
    Ok(packed)
}
