//! Index spaces of kernels: axes joined as far as all operands allow, and division by numbers known beforehand.

use planish_kernel::KernelError;
use planish_kernel::axes::join;

use crate::kernel_args;

/// One axis: its size, and each operand's stride along it in elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axis {
    pub dim: usize,
    pub strides: Vec<isize>,
}

/// The axes of `dims` without those of size 1, ordered as operand `order_by` lies in memory, neighbours joined
/// where every operand goes on with the same stride.
pub fn joined(dims: &[usize], strides: &[&[isize]], order_by: usize) -> Vec<Axis> {
    let axis = |idx: usize| Axis { dim: dims[idx], strides: strides.iter().map(|all| all[idx]).collect() };
    let mut axes: Vec<Axis> = (0..dims.len()).filter(|idx| dims[*idx] != 1).map(axis).collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.strides[order_by].unsigned_abs()));
    merged(axes)
}

/// Joins neighbours, outermost first.
pub fn merged(axes: Vec<Axis>) -> Vec<Axis> {
    join(axes, |axis| &mut axis.dim, |axis, operand| axis.strides.get(operand).copied())
}

kernel_args! {
    /// What divides numbers below 2^31 by `d` on the device: `q = (umulhi(n, mul) + n) >> shift`.
    pub struct Divisor {
        d: u32,
        mul: u32,
        shift: u32,
    }

    /// As `po_thread` in ops.cuh reads it: how many threads, and what takes their axes off a thread's number,
    /// innermost first.
    pub struct Threads {
        n: u32,
        axes: Vec<Divisor>,
    }
}

impl Divisor {
    pub fn of(d: usize) -> Divisor {
        let d = d.max(1) as u64;
        let shift = 64 - (d - 1).leading_zeros();
        let mul = ((1u64 << 32) * ((1u64 << shift) - d) / d + 1) as u32;
        Divisor { d: d as u32, mul, shift }
    }
}

impl Threads {
    /// `outer` is what the axes leave.
    pub fn of(outer: usize, axes: &[usize]) -> Result<Threads, KernelError> {
        let n = int(outer * axes.iter().product::<usize>())? as u32;
        Ok(Threads { n, axes: axes.iter().map(|dim| Divisor::of(*dim)).collect() })
    }

    pub fn len(&self) -> usize {
        self.n as usize
    }

    pub fn is_empty(&self) -> bool {
        self.n == 0
    }
}

/// The divisors of axes, innermost first.
pub fn divisors(axes: &[Axis]) -> Vec<Divisor> {
    axes.iter().rev().map(|axis| Divisor::of(axis.dim)).collect()
}

/// An operand's strides along axes, innermost first.
pub fn strides_along(axes: &[Axis], operand: usize) -> Result<Vec<i32>, KernelError> {
    axes.iter().rev().map(|axis| stride(axis.strides[operand])).collect()
}

/// Each as a kernel counts it.
pub fn ints<const N: usize>(values: [usize; N]) -> Result<[i32; N], KernelError> {
    let mut made = [0; N];
    for (to, from) in made.iter_mut().zip(values) {
        *to = int(from)?;
    }
    Ok(made)
}

/// A number that kernels count in 32 bits.
pub fn int(value: usize) -> Result<i32, KernelError> {
    i32::try_from(value).map_err(|_| KernelError::unsupported("a value of 2^31 elements or more"))
}

/// A stride or offset that kernels count in 32 bits.
pub fn stride(value: isize) -> Result<i32, KernelError> {
    i32::try_from(value).map_err(|_| KernelError::unsupported("a stride of 2^31 elements or more"))
}

/// Threads of a block where there are `n_threads` in all: fewer where there are few, so that all multiprocessors
/// have some.
pub fn block_of(n_sms: u32, n_threads: usize) -> usize {
    match n_threads / n_sms.max(1) as usize {
        512.. => 256,
        128.. => 128,
        _ => 64,
    }
}

/// Blocks of `per` that cover `n`.
pub fn blocks(n: usize, per: usize) -> Result<u32, KernelError> {
    int(n)?;
    Ok(n.div_ceil(per) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_by_multiplication_is_exact() {
        for d in [1usize, 2, 3, 5, 7, 10, 31, 32, 33, 49, 127, 1000, 65_537, 1 << 20, (1 << 31) - 1] {
            let Divisor { mul, shift, .. } = Divisor::of(d);
            let mut n: u64 = 0;
            while n < 1 << 31 {
                let high = ((n * u64::from(mul)) >> 32) as u32;
                let q = (high + n as u32) >> shift;
                assert_eq!(u64::from(q), n / d as u64, "{n} / {d}");
                n = n * 5 / 4 + 1;
            }
            for n in [d - 1, d, 2 * d - 1, (1 << 31) - 1].into_iter().filter(|n| *n < 1 << 31) {
                let high = ((n as u64 * u64::from(mul)) >> 32) as u32;
                assert_eq!(((high + n as u32) >> shift) as usize, n / d, "{n} / {d}");
            }
        }
    }

    #[test]
    fn axes_join_where_all_operands_go_on() {
        let axes = joined(&[2, 3, 4], &[&[12, 4, 1], &[12, 4, 1]], 0);
        assert_eq!(axes, [Axis { dim: 24, strides: vec![1, 1] }]);
        // Channels last with a vector along the channels.
        let axes = joined(&[2, 3, 4, 5], &[&[60, 1, 15, 3], &[0, 1, 0, 0]], 0);
        assert_eq!(axes, [Axis { dim: 40, strides: vec![3, 0] }, Axis { dim: 3, strides: vec![1, 1] }]);
    }
}
