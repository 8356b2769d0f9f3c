//! Loops between bytes and f32: QuantizeLinear and DequantizeLinear as one pass each, and functions from byte to byte as
//! a table.

#[cfg(test)]
mod tests;

use planish_kernel::pointwise::{Binary, Inst, Kind, Program, Reg, Scalar, Unary};
use planish_kernel::quantized::Quantization;
use planish_tensor::DType;

use super::loops::{Args, Loop, SPLAT_BYTES};
use super::place::splat;
use super::steps::Step;
use crate::isa::{Isa, Portable};
use crate::simd::{Simd, SimdKernel};

/// Several instructions as one loop.
pub(super) struct Joined {
    pub(super) run: Loop,
    pub(super) operands: Vec<Reg>,
    /// Values that are computed inside.
    pub(super) inside: Vec<Reg>,
}

/// The instructions that end in `value` as one loop, where they are those of quantization.
pub(super) fn joined(program: &Program, n_uses: &[u32], value: Reg) -> Option<Joined> {
    quantized(program, n_uses, value).or_else(|| dequantized(program, n_uses, value))
}

/// `saturate(round(x / scale) + zero)`.
fn quantized(program: &Program, n_uses: &[u32], value: Reg) -> Option<Joined> {
    let inst = |reg: Reg| program.code[reg.0 as usize];
    let Inst::Saturate(sum) = inst(value) else { return None };
    let (whole, zero) = match inst(sum) {
        Inst::Binary(Binary::Add, whole, zero) => (whole, Some(zero)),
        _ => (sum, None),
    };
    let Inst::Unary(Unary::Round, ratio) = inst(whole) else { return None };
    let Inst::Binary(Binary::Div, x, scale) = inst(ratio) else { return None };
    let mut inside = vec![sum, whole, ratio];
    inside.dedup();
    if inside.iter().any(|reg| n_uses[reg.0 as usize] != 1) {
        return None;
    }
    let bounds = match program.kinds[value.0 as usize] {
        Kind::U8 => UNSIGNED,
        Kind::I8 => SIGNED,
        _ => return None,
    };
    let mut operands = vec![x, scale];
    operands.extend(zero);
    let has_zero = zero.is_some();
    let run: Loop = Box::new(move |isa, args| isa.run(QuantizeLoop { bounds, has_zero, args }));
    Some(Joined { run, operands, inside })
}

/// `(x - zero) * scale`, or the difference alone.
fn dequantized(program: &Program, n_uses: &[u32], value: Reg) -> Option<Joined> {
    let inst = |reg: Reg| program.code[reg.0 as usize];
    let once = |reg: Reg| n_uses[reg.0 as usize] == 1;
    let kind = |reg: Reg| program.kinds[reg.0 as usize];
    let bytes = |reg: Reg| match inst(reg) {
        Inst::Cast(x) if kind(reg) == Kind::F32 && matches!(kind(x), Kind::U8 | Kind::I8) => Some(x),
        _ => None,
    };
    let difference = |reg: Reg| match inst(reg) {
        Inst::Binary(Binary::Sub, widened, zero) if once(widened) => {
            bytes(widened).map(|x| (x, Some(zero), vec![widened]))
        }
        _ => None,
    };
    let (x, zero, scale, inside) = match inst(value) {
        Inst::Binary(Binary::Mul, whole, scale) if once(whole) => {
            let (x, zero, mut inside) =
                difference(whole).or_else(|| bytes(whole).map(|x| (x, None, Vec::new())))?;
            inside.push(whole);
            (x, zero, Some(scale), inside)
        }
        _ => {
            let (x, zero, inside) = difference(value)?;
            (x, zero, None, inside)
        }
    };
    let (is_signed, has_zero, has_scale) = (kind(x) == Kind::I8, zero.is_some(), scale.is_some());
    let mut operands = vec![x];
    operands.extend(zero);
    operands.extend(scale);
    let run: Loop =
        Box::new(move |isa, args| isa.run(DequantizeLoop { is_signed, has_zero, has_scale, args }));
    Some(Joined { run, operands, inside })
}

/// QuantizeLinear with one scale and one zero point, over rows that lie side by side.
#[derive(Debug)]
pub(crate) struct ToBytes {
    scale: [u64; SPLAT_BYTES / 8],
    zero: [u64; SPLAT_BYTES / 8],
    bounds: (f32, f32),
}

impl ToBytes {
    pub(crate) fn new(by: Quantization) -> ToBytes {
        ToBytes {
            scale: splat(Scalar::F32(by.scale)),
            zero: splat(Scalar::F32(by.zero as f32)),
            bounds: if by.dtype == DType::U8 { UNSIGNED } else { SIGNED },
        }
    }

    /// # Safety
    /// `from` must be readable and `to` writable for `n` elements.
    pub(crate) unsafe fn run(&self, isa: Isa, from: *const f32, to: *mut u8, n: usize) {
        let splats = [self.scale.as_ptr().cast(), self.zero.as_ptr().cast()];
        let args = Args { from: [from.cast(), splats[0], splats[1]], steps: [1, 0, 0], to, n };
        isa.run(QuantizeLoop { bounds: self.bounds, has_zero: true, args: &args });
    }
}

/// The ends of bytes.
const UNSIGNED: (f32, f32) = (0.0, 255.0);
const SIGNED: (f32, f32) = (-128.0, 127.0);

/// Quotients are taken as products with the inverse, but for those this near to the middle between two whole numbers:
/// product and quotient of at most 512, beyond which both saturate, differ by at most three roundings, 9.2e-5.
const NEAR_TIE: f32 = 1e-4;

struct QuantizeLoop<'a> {
    bounds: (f32, f32),
    has_zero: bool,
    args: &'a Args,
}

impl QuantizeLoop<'_> {
    /// Adds zero points and stores bytes. NaN becomes the lowest: the maximum gives its second operand when one is NaN.
    ///
    /// # Safety
    /// `to` must be writable for `n` bytes, or as many as a vector has lanes.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, to: *mut u8, n: usize, whole: S::F, zero: S::F) {
        let (lo, hi) = (s.splat(self.bounds.0), s.splat(self.bounds.1));
        let whole = s.min(hi, s.max(s.add(whole, zero), lo));
        // SAFETY: the caller says so.
        unsafe { s.store_bytes(to, n, s.to_int(whole)) };
    }
}

impl SimdKernel for QuantizeLoop<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Args { from: [x, scale, zero], steps: [step, scale_step, zero_step], to, n } = *self.args;
        let (x, scale, zero) = (x.cast::<f32>(), scale.cast::<f32>(), zero.cast::<f32>());
        let mut at = 0;
        // SAFETY: the maker of the arguments grants `n` elements; a splat is read from its start only, and the zero point
        // only where there is one.
        unsafe {
            let single = if n > 0 && scale_step == 0 { *scale } else { 0.0 };
            if step == 1 && single.is_normal() && (1.0 / single).is_normal() {
                let (divisor, inverse) = (s.splat(single), s.splat(1.0 / single));
                let tie = s.splat(0.5 - NEAR_TIE);
                while at + 4 * S::LANES <= n {
                    let mut four = [s.zero(); 4];
                    let mut whole = [s.zero(); 4];
                    let mut near = s.lt(tie, s.zero());
                    for part in 0..4 {
                        four[part] = s.load(x.add(at + part * S::LANES));
                        let product = s.mul(four[part], inverse);
                        whole[part] = s.round(product);
                        near = s.mask_or(near, s.lt(tie, s.abs(s.sub(product, whole[part]))));
                    }
                    if s.any(near) {
                        for part in 0..4 {
                            whole[part] = s.round(s.div(four[part], divisor));
                        }
                    }
                    for (part, whole) in whole.into_iter().enumerate() {
                        let at = at + part * S::LANES;
                        let zero = if self.has_zero { s.load(zero.add(at * zero_step)) } else { s.zero() };
                        self.store(s, to.add(at), S::LANES, whole, zero);
                    }
                    at += 4 * S::LANES;
                }
            }
            while at < n {
                let rest = n - at;
                let x = s.load_part(x.add(at * step), rest);
                let scale = s.load_part(scale.add(at * scale_step), rest);
                let zero = match self.has_zero {
                    true => s.load_part(zero.add(at * zero_step), rest),
                    false => s.zero(),
                };
                self.store(s, to.add(at), rest, s.round(s.div(x, scale)), zero);
                at += S::LANES;
            }
        }
    }
}

struct DequantizeLoop<'a> {
    is_signed: bool,
    has_zero: bool,
    has_scale: bool,
    args: &'a Args,
}

impl SimdKernel for DequantizeLoop<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Args { from, steps, to, n } = *self.args;
        let to = to.cast::<f32>();
        let scale_idx = 1 + usize::from(self.has_zero);
        // SAFETY: the maker of the arguments grants `n` elements; of a splat of bytes one is read, of f32 a vector.
        // Operands that are not there are not read.
        unsafe {
            let mut at = 0;
            while at < n {
                let rest = n - at;
                let byte = from[0].add(at * steps[0]);
                let whole = match (steps[0], self.is_signed) {
                    (0, false) => s.splat_int((*byte).into()),
                    (0, true) => s.splat_int((*byte.cast::<i8>()).into()),
                    (_, false) => s.load_bytes(byte, rest),
                    (_, true) => s.load_signed_bytes(byte.cast(), rest),
                };
                let mut value = s.to_float(whole);
                if self.has_zero {
                    value = s.sub(value, s.load_part(from[1].cast::<f32>().add(at * steps[1]), rest));
                }
                if self.has_scale {
                    let scale = from[scale_idx].cast::<f32>().add(at * steps[scale_idx]);
                    value = s.mul(value, s.load_part(scale, rest));
                }
                s.store_part(to.add(at), rest, value);
                at += S::LANES;
            }
        }
    }
}

/// Every value of a byte.
const N_BYTES: usize = 256;

/// A program that makes one byte of another as a single step that looks the answer up, if it has steps to save.
pub(super) fn lookup(program: &Program, steps: &[Step]) -> Option<Step> {
    let kind = |reg: Reg| program.kinds[reg.0 as usize];
    let is_byte = |reg: Reg| matches!(kind(reg), Kind::U8 | Kind::I8);
    let ([output], [_]) = (&program.outputs[..], &program.inputs[..]) else { return None };
    let is_source = |inst: &Inst| matches!(inst, Inst::Input(_) | Inst::Running);
    let mut sources = (0..program.code.len()).filter(|idx| is_source(&program.code[*idx]));
    let (input, None) = (Reg(sources.next()? as u16), sources.next()) else { return None };
    if steps.len() < 2 || !is_byte(input) || !is_byte(*output) {
        return None;
    }
    // One column for each value of the program, wide enough for the largest kind.
    let mut columns = vec![[0u64; N_BYTES]; program.code.len()];
    for (column, inst) in columns.iter_mut().zip(&program.code) {
        if let Inst::Constant(scalar) = inst {
            let splat = splat(*scalar);
            column[..splat.len()].copy_from_slice(&splat);
        }
    }
    let bytes: [u8; N_BYTES] = std::array::from_fn(|value| value as u8);
    let at = |columns: &mut Vec<[u64; N_BYTES]>, reg: Reg| columns[reg.0 as usize].as_mut_ptr().cast::<u8>();
    // SAFETY: a column has more bytes than there are values of a byte.
    unsafe { at(&mut columns, input).copy_from_nonoverlapping(bytes.as_ptr(), N_BYTES) };
    for step in steps {
        let mut args =
            Args { from: [std::ptr::null(); 3], steps: [0; 3], to: at(&mut columns, step.value), n: N_BYTES };
        for (idx, reg) in step.operands.iter().enumerate() {
            let is_constant = matches!(program.code[reg.0 as usize], Inst::Constant(_));
            args.from[idx] = at(&mut columns, *reg);
            args.steps[idx] = usize::from(!is_constant);
        }
        // The same on every machine.
        (step.run)(Isa::Portable(Portable), &args);
    }
    let mut table = Box::new([0u8; N_BYTES]);
    // SAFETY: as above.
    unsafe { at(&mut columns, *output).copy_to_nonoverlapping(table.as_mut_ptr(), N_BYTES) };
    let run: Loop = Box::new(move |_, args| look_up(&table, args));
    Some(Step { run, operands: vec![input], value: *output, in_place: true })
}

fn look_up(table: &[u8; N_BYTES], args: &Args) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512vbmi") && matches!(Isa::best(), Isa::Avx512(_)) && args.steps[0] == 1 {
        // SAFETY: the instructions are here.
        return unsafe { look_up_wide(table, args) };
    }
    look_up_bytes(table, args, 0);
}

/// From element `start` on, byte by byte.
fn look_up_bytes(table: &[u8; N_BYTES], args: &Args, start: usize) {
    for at in start..args.n {
        // SAFETY: the maker of the arguments grants `n` elements, or one where the step is 0.
        unsafe { *args.to.add(at) = table[usize::from(*args.from[0].add(at * args.steps[0]))] };
    }
}

/// 64 bytes at a time: the table is four registers, of which a permutation reads two.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn look_up_wide(table: &[u8; N_BYTES], args: &Args) {
    use std::arch::x86_64::*;
    const WIDTH: usize = 64;
    // SAFETY: the table has four vectors; the maker of the arguments grants `n` elements side by side.
    unsafe {
        let part = |idx: usize| _mm512_loadu_si512(table.as_ptr().add(idx * WIDTH).cast());
        let parts = [part(0), part(1), part(2), part(3)];
        let mut at = 0;
        while at + WIDTH <= args.n {
            let idx = _mm512_loadu_si512(args.from[0].add(at).cast());
            let low = _mm512_permutex2var_epi8(parts[0], idx, parts[1]);
            let high = _mm512_permutex2var_epi8(parts[2], idx, parts[3]);
            let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(idx), low, high);
            _mm512_storeu_si512(args.to.add(at).cast(), found);
            at += WIDTH;
        }
        look_up_bytes(table, args, at);
    }
}
