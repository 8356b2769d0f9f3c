//! Smaller and smaller lists that still fail: bisection, and Zeller's delta debugging.

use anyhow::Result;

/// Told whether a list fails.
pub(super) type Fails<'f> = &'f mut dyn FnMut(&[usize]) -> Result<bool>;

/// The smallest number that fails, where the largest does, if all beyond it do.
pub(super) fn bisect(most: usize, fails: &mut dyn FnMut(usize) -> Result<bool>) -> Result<usize> {
    let (mut passing, mut failing) = (0, most);
    while passing + 1 < failing {
        let middle = passing + (failing - passing) / 2;
        if fails(middle)? {
            failing = middle;
        } else {
            passing = middle;
        }
    }
    Ok(failing)
}

/// Leaves out groups, from halves down to single ones, for as long as what is left fails.
pub(super) fn leave_out(mut all: Vec<usize>, fails: Fails<'_>) -> Result<Vec<usize>> {
    let mut size = all.len().div_ceil(2);
    while size > 0 && all.len() > 1 {
        let mut start = 0;
        let mut left_any = false;
        while start < all.len() {
            let end = (start + size).min(all.len());
            let rest = [&all[..start], &all[end..]].concat();
            if !rest.is_empty() && fails(&rest)? {
                all = rest;
                left_any = true;
            } else {
                start = end;
            }
        }
        // Single ones are tried again until none can go.
        size = if size == 1 && left_any { 1 } else { size / 2 };
    }
    Ok(all)
}
