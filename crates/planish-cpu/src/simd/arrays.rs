//! Arrays made element by element inside kernels.
//!
//! `std::array::from_fn` and `[T; N]::map` are made of several generic functions that are not always inlined. What stays
//! out of line is compiled without the kernel's instruction set: vectors pass through memory, one call an element. With
//! these two a kernel is as fast without link-time optimization as with it, and quicker to compile.

use std::mem::MaybeUninit;

/// `[f(0), f(1), …]`.
#[inline(always)]
pub(crate) fn from_fn<T: Copy, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut made = [const { MaybeUninit::uninit() }; N];
    let mut idx = 0;
    while idx < N {
        made[idx] = MaybeUninit::new(f(idx));
        idx += 1;
    }
    // SAFETY: all `N` elements are written, and an array of `MaybeUninit<T>` lies in memory as one of `T`.
    unsafe { std::mem::transmute_copy::<[MaybeUninit<T>; N], [T; N]>(&made) }
}

/// `[f(from[0]), f(from[1]), …]`.
#[inline(always)]
pub(crate) fn map<T: Copy, U: Copy, const N: usize>(from: [T; N], mut f: impl FnMut(T) -> U) -> [U; N] {
    from_fn(|idx| f(from[idx]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_made_in_order() {
        let mut seen = Vec::new();
        let made: [usize; 3] = from_fn(|idx| {
            seen.push(idx);
            10 * idx
        });
        assert_eq!((made, seen), ([0, 10, 20], vec![0, 1, 2]));
        assert_eq!(map([1u8, 2], |x| i32::from(x) - 3), [-2, -1]);
        assert_eq!(from_fn::<u8, 0>(|_| unreachable!("no element")), []);
    }
}
