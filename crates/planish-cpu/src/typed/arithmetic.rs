//! Functions of two words: what operators of every type do with a column.

use super::column::{Form, ints, ints_mut, reals, reals_mut};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Two {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Mod,
    Fmod,
    Min,
    Max,
    PRelu,
    And,
    Or,
    Xor,
    Left,
    Right,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

pub(super) fn map<T: Copy>(to: &mut [T], from: &[T], f: impl Fn(T) -> T) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = f(*from));
}

pub(super) fn truths(to: &mut [u64], from: &[f64], f: impl Fn(f64) -> bool) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = u64::from(f(*from)));
}

pub(super) fn compare<T: PartialOrd>(order: Order, a: &[T], b: &[T], out: &mut [u64]) {
    let pairs = out.iter_mut().zip(a.iter().zip(b));
    match order {
        Order::Equal => pairs.for_each(|(to, (a, b))| *to = u64::from(a == b)),
        Order::Less => pairs.for_each(|(to, (a, b))| *to = u64::from(a < b)),
        Order::LessOrEqual => pairs.for_each(|(to, (a, b))| *to = u64::from(a <= b)),
        Order::Greater => pairs.for_each(|(to, (a, b))| *to = u64::from(a > b)),
        Order::GreaterOrEqual => pairs.for_each(|(to, (a, b))| *to = u64::from(a >= b)),
    }
}

/// `to = two(to, by)`; gives whether an integer was divided by zero, or was zero with a negative exponent.
pub(super) fn fold(two: Two, form: Form, to: &mut [u64], by: &[u64]) -> bool {
    match form {
        Form::Real => fold_reals(two, reals_mut(to), reals(by)),
        Form::Int => return fold_ints(two, ints_mut(to), ints(by)),
        Form::Unsigned => return fold_unsigned(two, to, by),
    }
    false
}

pub(super) fn each<T: Copy>(to: &mut [T], by: &[T], f: impl Fn(T, T) -> T) {
    to.iter_mut().zip(by).for_each(|(to, by)| *to = f(*to, *by));
}

pub(super) fn fold_reals(two: Two, to: &mut [f64], by: &[f64]) {
    match two {
        Two::Add => each(to, by, |a, b| a + b),
        Two::Sub => each(to, by, |a, b| a - b),
        Two::Mul => each(to, by, |a, b| a * b),
        Two::Div => each(to, by, |a, b| a / b),
        Two::Pow => each(to, by, f64::powf),
        Two::Mod | Two::Fmod => each(to, by, |a, b| a % b),
        Two::Min => each(to, by, |a, b| if a.is_nan() || a <= b { a } else { b }),
        Two::Max => each(to, by, |a, b| if a.is_nan() || a >= b { a } else { b }),
        Two::PRelu => each(to, by, |a, b| if a < 0.0 { a * b } else { a }),
        // Of integers and truth values alone: inference says so.
        Two::And | Two::Or | Two::Xor | Two::Left | Two::Right => {}
    }
}

/// The functions that are written alike for both kinds of integers.
macro_rules! integers {
    ($name:ident, $int:ty, $floor:expr, $prelu:expr, $pow:expr) => {
        fn $name(two: Two, to: &mut [$int], by: &[$int]) -> bool {
            let divides = matches!(two, Two::Div | Two::Mod | Two::Fmod);
            #[allow(unused_comparisons)]
            let is_inverse = |(a, b): (&$int, &$int)| *a == 0 && *b < 0;
            if divides && by.contains(&0) || two == Two::Pow && to.iter().zip(by).any(is_inverse) {
                return true;
            }
            match two {
                Two::Add => each(to, by, <$int>::wrapping_add),
                Two::Sub => each(to, by, <$int>::wrapping_sub),
                Two::Mul => each(to, by, <$int>::wrapping_mul),
                Two::Div => each(to, by, |a, b| a.checked_div(b).unwrap_or(a)),
                Two::Fmod => each(to, by, |a, b| a.checked_rem(b).unwrap_or(0)),
                Two::Mod => each(to, by, $floor),
                Two::Min => each(to, by, |a, b| a.min(b)),
                Two::Max => each(to, by, |a, b| a.max(b)),
                Two::PRelu => each(to, by, $prelu),
                Two::And => each(to, by, |a, b| a & b),
                Two::Or => each(to, by, |a, b| a | b),
                Two::Xor => each(to, by, |a, b| a ^ b),
                Two::Left => each(to, by, |a, b| if b as u64 >= 64 { 0 } else { a << b }),
                Two::Right => each(to, by, |a, b| if b as u64 >= 64 { 0 } else { a >> b }),
                Two::Pow => each(to, by, $pow),
            }
            false
        }
    };
}

integers!(
    fold_ints,
    i64,
    |a, b| {
        let rest = a.checked_rem(b).unwrap_or(0);
        if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
    },
    |a, b| if a < 0 { a.wrapping_mul(b) } else { a },
    power
);
integers!(fold_unsigned, u64, |a, b| a.checked_rem(b).unwrap_or(0), |a, _| a, wrapping_power);

/// `x^e` modulo 2^64; cut towards zero if `e` is negative.
fn power(x: i64, e: i64) -> i64 {
    match (x, e) {
        (_, 0..) => wrapping_power(x as u64, e as u64) as i64,
        (-1, _) if e % 2 != 0 => -1,
        (-1 | 1, _) => 1,
        _ => 0,
    }
}

fn wrapping_power(x: u64, e: u64) -> u64 {
    let (mut power, mut square, mut rest) = (1u64, x, e);
    while rest > 0 {
        if rest % 2 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest /= 2;
    }
    power
}
