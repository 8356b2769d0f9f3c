//! Casts: the loops of pairs of types that are met often, and words of one type as words of another.

use planish_tensor::DType;
use planish_tensor::rounding::f64_to_odd;

use super::arithmetic::truths;
use super::column::{Form, ints, reals, reals_mut, rounded_bf16, rounded_f16, truncated, widened_f16};
use crate::pointwise::loops::{Loop, map1};

/// A loop from elements to elements, for casts that are made often.
pub(super) struct Direct(pub(super) Loop);

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a loop")
    }
}

/// The loop of a cast, for some pairs of types.
pub(super) fn direct(from: DType, to: DType) -> Option<Direct> {
    /// Cut towards zero; what is out of range, or no number, is the lowest number, whose low bytes are zero. Without `as`, whose
    /// bounds keep loops from becoming vectors.
    #[expect(clippy::manual_clamp, reason = "clamp hands on what is no number")]
    #[inline(always)]
    fn whole(x: f32) -> i32 {
        const TWO_TO_31: f32 = 2_147_483_648.0;
        const BELOW: f32 = 2_147_483_520.0;
        // SAFETY: both bounds are numbers of i32, and what is no number becomes the lower one.
        let cut = unsafe { x.max(-TWO_TO_31).min(BELOW).to_int_unchecked::<i32>() };
        if x < TWO_TO_31 { cut } else { i32::MIN }
    }
    Some(Direct(match (from, to) {
        (DType::F32, DType::F16) => map1(rounded_f16),
        (DType::F16, DType::F32) => map1(widened_f16),
        (DType::F32, DType::BF16) => map1(rounded_bf16),
        (DType::BF16, DType::F32) => map1(|x: u16| f32::from_bits(u32::from(x) << 16)),
        (DType::F32, DType::F64) => map1(|x: f32| f64::from(x)),
        (DType::F64, DType::F32) => map1(|x: f64| x as f32),
        (DType::F32, DType::U8 | DType::I8) => map1(|x: f32| whole(x) as u8),
        (DType::F32, DType::U16 | DType::I16) => map1(|x: f32| whole(x) as u16),
        (DType::I16, DType::F32) => map1(|x: i16| f32::from(x)),
        (DType::U16, DType::F32) => map1(|x: u16| f32::from(x)),
        (DType::I64, DType::F64) => map1(|x: i64| x as f64),
        (DType::I32, DType::F64) => map1(|x: i32| f64::from(x)),
        (DType::U8, DType::F64) => map1(|x: u8| f64::from(x)),
        (DType::F64, DType::I64) => map1(|x: f64| truncated(x, DType::I64)),
        (DType::F64, DType::I32) => map1(|x: f64| truncated(x, DType::I32) as i32),
        _ => return None,
    }))
}

/// Numbers of one type as words of another: floats are cut towards zero, integers keep their low bits.
pub(super) fn cast(from: DType, to: DType, a: &[u64], out: &mut [u64]) {
    match (Form::of(from), Form::of(to)) {
        (Form::Real, _) if to == DType::Bool => truths(out, reals(a), |x| x != 0.0),
        (Form::Real, Form::Real) => out.copy_from_slice(a),
        (Form::Real, _) => {
            out.iter_mut().zip(reals(a)).for_each(|(to_word, x)| *to_word = truncated(*x, to) as u64);
        }
        // An integer of up to 53 bits is an f64; a wider one is rounded so that the next rounding is its own.
        (Form::Int, Form::Real) if to == DType::F64 || from != DType::I64 => {
            reals_mut(out).iter_mut().zip(ints(a)).for_each(|(to, x)| *to = *x as f64);
        }
        (Form::Int, Form::Real) => {
            reals_mut(out).iter_mut().zip(ints(a)).for_each(|(to, x)| *to = f64_to_odd((*x).into()));
        }
        (Form::Unsigned, Form::Real) if to == DType::F64 => {
            reals_mut(out).iter_mut().zip(a).for_each(|(to, x)| *to = *x as f64);
        }
        (Form::Unsigned, Form::Real) => {
            reals_mut(out).iter_mut().zip(a).for_each(|(to, x)| *to = f64_to_odd((*x).into()));
        }
        _ if to == DType::Bool => out.iter_mut().zip(a).for_each(|(to, x)| *to = u64::from(*x != 0)),
        _ => out.copy_from_slice(a),
    }
}
