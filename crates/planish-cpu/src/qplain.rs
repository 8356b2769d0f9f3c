//! Products of bytes whose second factor, scales and zero points a run may bring: MatMulInteger, ConvInteger, and matrix
//! products and convolutions of two dequantized values, with what quantizes their result.
//!
//! Factors keep the sign that they have and sums may be of any length, so this is what `qconv` and `qgemm` do not take. The
//! columns of the right factor, less their zero points, are laid out in panels of 32, a convolution's windows likewise, and
//! rows of the left factor run over a panel eight at a time, in words of 32 bits that wrap as ONNX allows.

mod family;
mod region;
#[cfg(test)]
mod tests;

pub(crate) use family::PlainQuantizedFamily;

use planish_kernel::KernelError;
use planish_tensor::{DType, Tensor};

use crate::family::Work;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::spatial::Windows;
use crate::team::Team;

/// Columns of a panel: a multiple of every instruction set's vectors.
const PANEL: usize = 32;
/// Rows that run over a panel together, one accumulator each.
const ROWS: usize = 8;

/// Where something that is read lies.
#[derive(Clone, Debug)]
enum Source {
    Input(usize),
    Constant(Tensor),
}

impl Source {
    fn at(&self, shared: &Shared<'_>) -> *const u8 {
        match self {
            Source::Input(idx) => shared.inputs[*idx],
            Source::Constant(tensor) => tensor.bytes().as_ptr(),
        }
    }
}

/// Numbers of lines (rows of the left factor, columns of the right one), or one for all of them.
#[derive(Clone, Debug)]
struct OfLines {
    from: Source,
    /// From line to line; `None` where there is one number.
    step: Option<usize>,
}

impl OfLines {
    fn place(&self, first: usize, line: usize) -> usize {
        self.step.map_or(0, |step| first + line * step)
    }
}

/// A factor of bytes.
#[derive(Clone, Debug)]
struct Factor {
    from: Source,
    signed: bool,
    zero: Option<OfLines>,
    /// Factors of operators that give sums have none.
    scale: Option<OfLines>,
}

impl Factor {
    fn byte(&self, byte: u8) -> i32 {
        if self.signed { i32::from(byte as i8) } else { i32::from(byte) }
    }

    /// # Safety
    /// The operands must be readable, as below.
    unsafe fn zero(&self, shared: &Shared<'_>, first: usize, line: usize) -> i32 {
        match &self.zero {
            None => 0,
            // SAFETY: granted by the caller.
            Some(zero) => self.byte(unsafe { zero.from.at(shared).add(zero.place(first, line)).read() }),
        }
    }

    /// # Safety
    /// As above.
    unsafe fn scale(&self, shared: &Shared<'_>, first: usize, line: usize) -> f64 {
        match &self.scale {
            None => 1.0,
            Some(scale) => {
                let from = scale.from.at(shared).cast::<f32>();
                // SAFETY: granted by the caller.
                unsafe { from.add(scale.place(first, line)).read_unaligned() }.into()
            }
        }
    }
}

/// What becomes of sums.
#[derive(Clone, Debug)]
enum Finish {
    Sums,
    /// Both scales and a bias for each row.
    Numbers {
        bias: Option<Source>,
    },
    /// The same, quantized again.
    Integers {
        bias: Option<Source>,
        scale: Source,
        zero: Option<Source>,
        dtype: DType,
    },
}

/// One product of the plan: where its factors begin, and the numbers of their lines.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Unit {
    left: usize,
    right: usize,
    left_line: usize,
    right_line: usize,
}

/// Products of `m x k` and `k x n`, one after the other in the output.
#[derive(Debug)]
struct Products {
    isa: Isa,
    m: usize,
    n: usize,
    k: usize,
    left: Factor,
    right: Factor,
    units: Vec<Unit>,
    /// Where columns are windows over an image, and not those of a matrix.
    windows: Option<Windows>,
    finish: Finish,
}

/// Up to [`ROWS`] rows over a panel.
struct Rows<'a> {
    panel: *const i32,
    k: usize,
    /// The first row; the others follow, `k` bytes apart.
    left: *const u8,
    /// What makes signed bytes unsigned ones, and what is taken off them.
    flip: u8,
    offsets: &'a [i32],
    sums: &'a mut [[i32; PANEL]; ROWS],
}

impl Rows<'_> {
    #[inline(always)]
    fn some<S: Simd, const N: usize>(&mut self, s: S, first: usize) {
        for at in (0..PANEL).step_by(S::LANES) {
            let mut sums = [s.splat_int(0); N];
            for p in 0..self.k {
                // SAFETY: whoever made the struct grants the panel and the rows.
                unsafe {
                    let column = s.load_int(self.panel.add(p * PANEL + at));
                    for (row, sum) in sums.iter_mut().enumerate() {
                        let byte = *self.left.add((first + row) * self.k + p) ^ self.flip;
                        let factor = s.splat_int(i32::from(byte) - self.offsets[first + row]);
                        *sum = s.add_int(*sum, s.mul_int(factor, column));
                    }
                }
            }
            for (row, sum) in sums.into_iter().enumerate() {
                let to = self.sums[first + row][at..].as_mut_ptr().cast::<f32>();
                // SAFETY: a vector ends with the panel at the latest.
                unsafe { s.store(to, s.from_bits(sum)) };
            }
        }
    }
}

impl SimdKernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        if self.offsets.len() == ROWS {
            return self.some::<S, ROWS>(s, 0);
        }
        for row in 0..self.offsets.len() {
            self.some::<S, 1>(s, row);
        }
    }
}

impl Products {
    fn n_panels(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    /// Bytes of a panel.
    fn panel_bytes(&self) -> usize {
        (self.k * PANEL * size_of::<i32>()).next_multiple_of(64)
    }

    /// Some columns of the right factor less their zero points; zeros beyond its edge and in the padding.
    ///
    /// # Safety
    /// The operands must be readable, the panel writable.
    unsafe fn fill(&self, shared: &Shared<'_>, unit: Unit, columns: std::ops::Range<usize>, panel: *mut i32) {
        let from = self.right.from.at(shared).wrapping_add(unit.right);
        let mut zeros = [0; PANEL];
        for (zero, column) in zeros.iter_mut().zip(columns.clone()) {
            // SAFETY: granted by the caller.
            *zero = unsafe { self.right.zero(shared, unit.right_line, column) };
        }
        // SAFETY: a panel has as many rows.
        let rows = unsafe { std::slice::from_raw_parts_mut(panel.cast::<[i32; PANEL]>(), self.k) };
        let Some(windows) = &self.windows else {
            for (p, row) in rows.iter_mut().enumerate() {
                row[columns.len()..].fill(0);
                for (at, column) in columns.clone().enumerate() {
                    // SAFETY: granted by the caller.
                    let byte = unsafe { *from.add(p * self.n + column) };
                    row[at] = self.right.byte(byte) - zeros[at];
                }
            }
            return;
        };
        let axes = &windows.axes;
        let n_taps = windows.n_taps();
        let n_pixels = axes.iter().map(|axis| axis.input).product::<usize>();
        for tap in 0..n_taps {
            let taps = [
                tap / (axes[1].kernel * axes[2].kernel),
                tap / axes[2].kernel % axes[1].kernel,
                tap % axes[2].kernel,
            ];
            let mut places = [None; PANEL];
            for (place, column) in places.iter_mut().zip(columns.clone()) {
                let window = [
                    column / (axes[1].output * axes[2].output),
                    column / axes[2].output % axes[1].output,
                    column % axes[2].output,
                ];
                let along = |axis: usize| axes[axis].position(window[axis], taps[axis]);
                *place = along(0)
                    .zip(along(1))
                    .zip(along(2))
                    .map(|((depth, height), width)| (depth * axes[1].input + height) * axes[2].input + width);
            }
            for channel in 0..self.k / n_taps {
                for (at, to) in rows[channel * n_taps + tap].iter_mut().enumerate() {
                    *to = places[at].map_or(0, |place| {
                        // SAFETY: a place of the image, which the caller grants.
                        self.right.byte(unsafe { *from.add(channel * n_pixels + place) }) - zeros[at]
                    });
                }
            }
        }
    }

    /// Stores the sums of a row and some columns, `to` elements into the output.
    ///
    /// # Safety
    /// The operands must be readable and writable.
    unsafe fn finish(
        &self,
        shared: &Shared<'_>,
        unit: Unit,
        row: usize,
        columns: std::ops::Range<usize>,
        (sums, to): (&[i32; PANEL], usize),
    ) {
        let output = shared.outputs[0];
        // SAFETY: granted by the caller, here and below.
        let left = unsafe { self.left.scale(shared, unit.left_line, row) };
        let bias = |bias: &Option<Source>| match bias {
            // SAFETY: one for each row of the output.
            Some(bias) => unsafe { bias.at(shared).cast::<f32>().add(unit.left_line + row).read_unaligned() },
            None => 0.0,
        };
        let number = |at: usize, column: usize, bias: f32| {
            // SAFETY: as above.
            let right = unsafe { self.right.scale(shared, unit.right_line, column) };
            (f64::from(sums[at]) * (left * right) + f64::from(bias)) as f32
        };
        match &self.finish {
            Finish::Sums => {
                for (at, sum) in sums[..columns.len()].iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { output.cast::<i32>().add(to + at).write_unaligned(*sum) };
                }
            }
            Finish::Numbers { bias: of_rows } => {
                let bias = bias(of_rows);
                for (at, column) in columns.enumerate() {
                    // SAFETY: as above.
                    unsafe { output.cast::<f32>().add(to + at).write_unaligned(number(at, column, bias)) };
                }
            }
            Finish::Integers { bias: of_rows, scale, zero, dtype } => {
                let bias = bias(of_rows);
                let signed = *dtype == DType::I8;
                // SAFETY: one number each.
                let (scale, zero) = unsafe {
                    let zero = zero.as_ref().map_or(0, |zero| zero.at(shared).read());
                    (scale.at(shared).cast::<f32>().read_unaligned(), zero)
                };
                let zero = if signed { f32::from(zero as i8) } else { f32::from(zero) };
                let (low, high) = if signed { (-128.0, 127.0) } else { (0.0, 255.0) };
                for (at, column) in columns.enumerate() {
                    let rounded = (number(at, column, bias) / scale).round_ties_even() + zero;
                    // NaN becomes the lowest byte: the larger of it and a number is the number.
                    let byte = rounded.max(low).min(high) as i32 as u8;
                    // SAFETY: as above.
                    unsafe { output.add(to + at).write(byte) };
                }
            }
        }
    }
}

impl Work for Products {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.panel_bytes()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let n_panels = self.n_panels();
        team.for_each(if self.m == 0 { 0 } else { self.units.len() * n_panels }, &|task| {
            let shared = &shared;
            let (idx, first) = (task.idx / n_panels, task.idx % n_panels * PANEL);
            let unit = self.units[idx];
            let columns = first..self.n.min(first + PANEL);
            let panel = shared.workspace.wrapping_add(task.slot * self.panel_bytes()).cast::<i32>();
            // SAFETY: the caller grants the operands and a panel for each slot.
            unsafe { self.fill(shared, unit, columns.clone(), panel) };
            let (flip, below) = if self.left.signed { (0x80, 0x80) } else { (0, 0) };
            for row in (0..self.m).step_by(ROWS) {
                let n_rows = ROWS.min(self.m - row);
                let mut sums = [[0; PANEL]; ROWS];
                let mut offsets = [0; ROWS];
                for (at, offset) in offsets[..n_rows].iter_mut().enumerate() {
                    // SAFETY: as above.
                    *offset = below + unsafe { self.left.zero(shared, unit.left_line, row + at) };
                }
                let left = self.left.from.at(shared).wrapping_add(unit.left + row * self.k);
                let offsets = &offsets[..n_rows];
                self.isa.run(Rows { panel, k: self.k, left, flip, offsets, sums: &mut sums });
                for (at, sums) in sums[..n_rows].iter().enumerate() {
                    let to = (idx * self.m + row + at) * self.n + first;
                    // SAFETY: as above; tasks write apart.
                    unsafe { self.finish(shared, unit, row + at, columns.clone(), (sums, to)) };
                }
            }
        });
        Ok(())
    }
}
