//! The plain form of a map: a thread makes a few neighbours of the output and reads each input where it lies.

use std::fmt::Write;

use planish_kernel::KernelError;

use super::{Inner, Shape, THREADS};
use crate::kernel_args;
use crate::space::{self, Divisor, divisors};

kernel_args! {
    /// What the kernel is given.
    pub(super) struct MapArgs {
        n_threads: i32,
        /// The size of the innermost axis.
        inner: i32,
        /// Innermost first, of vectors there; and each operand's strides.
        axes: Vec<Divisor>,
        strides: Vec<Vec<i32>>,
    }
}

impl Shape<'_> {
    /// What the kernel is given, and how many blocks there are.
    pub(super) fn plain_args(&self) -> Result<(MapArgs, u32), KernelError> {
        let last = self.axes.len() - 1;
        let n_vectors = self.axes[last].dim.div_ceil(self.lanes);
        let n_rows: usize = self.axes[..last].iter().map(|axis| axis.dim).product();
        let mut axes = divisors(&self.axes);
        axes[0] = Divisor::of(n_vectors);
        let numbers = MapArgs {
            n_threads: space::int(n_vectors * n_rows)?,
            inner: space::int(self.axes[last].dim)?,
            axes,
            strides: self.strides()?,
        };
        Ok((numbers, space::blocks(n_vectors * n_rows, THREADS)?))
    }

    pub(super) fn plain_text(&self) -> Result<String, KernelError> {
        let mut text = self.head("MapArgs")?;
        let n_axes = self.axes.len();
        let last = n_axes - 1;
        let tails = !self.axes[last].dim.is_multiple_of(self.lanes);
        let _ = writeln!(text, "  u32 rest = blockIdx.x * {THREADS}u + threadIdx.x;");
        text.push_str("  if (rest >= (u32)a.n_threads) return;\n");
        for axis in 0..n_axes {
            // Axis 0 is the innermost here.
            let _ = match axis + 1 == n_axes {
                true => writeln!(text, "  const int y{axis} = (int)rest;"),
                false => writeln!(text, "  const int y{axis} = po_take(rest, a.axes[{axis}]);"),
            };
        }
        let _ = writeln!(text, "  const int col = y0 * {};", self.lanes);
        if tails {
            text.push_str("  const int left = a.inner - col;\n");
        }
        for idx in 0..self.inner.len() {
            let mut terms = Vec::new();
            match self.inner[idx] {
                Inner::Dense => terms.push("col".to_string()),
                Inner::Repeats => {}
                _ => terms.push(format!("col * a.strides[{idx}][0]")),
            }
            for axis in 1..n_axes {
                if self.axes[last - axis].strides[idx] != 0 {
                    terms.push(format!("y{axis} * a.strides[{idx}][{axis}]"));
                }
            }
            let sum = if terms.is_empty() { "0".to_string() } else { terms.join(" + ") };
            let _ = writeln!(text, "  const int x{idx} = {sum};");
        }
        self.element_text(&mut text, tails);
        text.push_str("}\n");
        Ok(text)
    }
}
