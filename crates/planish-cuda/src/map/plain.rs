//! The plain form of a map: a thread makes a few neighbours of the output and reads each input where it lies.

use std::fmt::Write;

use planish_kernel::KernelError;

use super::{Inner, Shape, THREADS};
use crate::space::{self, divisor};

impl Shape<'_> {
    pub(super) fn plain_ints(&self) -> Result<(usize, Vec<i32>, u32), KernelError> {
        let last = self.axes.len() - 1;
        let n_vectors = self.axes[last].dim.div_ceil(self.lanes);
        let n_rows: usize = self.axes[..last].iter().map(|axis| axis.dim).product();
        let mut ints = vec![space::int(n_vectors * n_rows)?, space::int(self.axes[last].dim)?];
        ints.extend(divisor(n_vectors));
        for axis in self.axes[..last].iter().rev() {
            ints.extend(divisor(axis.dim));
        }
        self.push_strides(&mut ints)?;
        Ok((ints.len(), ints, space::blocks(n_vectors * n_rows, THREADS)?))
    }

    pub(super) fn plain_text(&self) -> Result<String, KernelError> {
        let mut text = self.head()?;
        let n_axes = self.axes.len();
        let last = n_axes - 1;
        let tails = !self.axes[last].dim.is_multiple_of(self.lanes);
        let strides_at = 2 + 3 * n_axes;
        let _ = writeln!(text, "  u32 rest = blockIdx.x * {THREADS}u + threadIdx.x;");
        text.push_str("  if (rest >= (u32)a.v[0]) return;\n");
        for axis in 0..n_axes {
            // Axis 0 is the innermost here.
            let at = 2 + 3 * axis;
            if axis + 1 == n_axes {
                let _ = writeln!(text, "  const int y{axis} = (int)rest;");
            } else {
                let _ = writeln!(
                    text,
                    "  const int y{axis} = po_take(rest, a.v[{at}], a.v[{}], a.v[{}]);",
                    at + 1,
                    at + 2
                );
            }
        }
        let _ = writeln!(text, "  const int col = y0 * {};", self.lanes);
        if tails {
            text.push_str("  const int left = a.v[1] - col;\n");
        }
        for idx in 0..self.inner.len() {
            let mut terms = Vec::new();
            let at = strides_at + idx * n_axes;
            match self.inner[idx] {
                Inner::Dense => terms.push("col".to_string()),
                Inner::Repeats => {}
                _ => terms.push(format!("col * a.v[{at}]")),
            }
            for axis in 1..n_axes {
                if self.axes[last - axis].strides[idx] != 0 {
                    terms.push(format!("y{axis} * a.v[{}]", at + axis));
                }
            }
            let sum = if terms.is_empty() { "0".to_string() } else { terms.join(" + ") };
            let _ = writeln!(text, "  const int x{idx} = {sum};");
        }
        self.element_text(&mut text, strides_at, tails);
        text.push_str("}\n");
        Ok(text)
    }
}
