//! `Number`: an element type and the wider type in which its arithmetic is done.
//!
//! Floats are widened to `f64` and rounded once on the way back; integers and booleans to `i128`, where
//! sums, differences and quotients of 64-bit numbers are exact and products exact in their low 64 bits, and
//! wrapped once on the way back.

use planish_tensor::rounding::{bf16_from_f64, f16_from_f64};
use planish_tensor::{Element, bf16, f16};

/// See the module text.
pub(crate) trait Number: Element {
    /// `f64` or `i128`.
    type Wide: Copy + Default + PartialOrd + Send + Sync;

    fn widen(self) -> Self::Wide;

    /// The nearest number of this type, or the one that wrapping gives.
    fn narrow(wide: Self::Wide) -> Self;

    /// The lowest and the highest finite number.
    fn range() -> (Self::Wide, Self::Wide);
}

macro_rules! floats {
    ($($float:ident: $to_f64:expr, $from_f64:expr;)*) => {
        $(impl Number for $float {
            type Wide = f64;

            fn widen(self) -> f64 {
                $to_f64(self)
            }

            fn narrow(wide: f64) -> Self {
                $from_f64(wide)
            }

            fn range() -> (f64, f64) {
                ($to_f64($float::MIN), $to_f64($float::MAX))
            }
        })*
    };
}

floats! {
    f64: f64::from, f64::from;
    f32: f64::from, |wide| wide as f32;
    f16: f16::to_f64, f16_from_f64;
    bf16: bf16::to_f64, bf16_from_f64;
}

macro_rules! ints {
    ($($int:ident)*) => {
        $(impl Number for $int {
            type Wide = i128;

            fn widen(self) -> i128 {
                i128::from(self)
            }

            fn narrow(wide: i128) -> Self {
                wide as $int
            }

            fn range() -> (i128, i128) {
                (i128::from($int::MIN), i128::from($int::MAX))
            }
        })*
    };
}

ints! { i8 i16 i32 i64 u8 u16 u32 u64 }

impl Number for bool {
    type Wide = i128;

    fn widen(self) -> i128 {
        i128::from(self)
    }

    fn narrow(wide: i128) -> Self {
        wide != 0
    }

    fn range() -> (i128, i128) {
        (0, 1)
    }
}
