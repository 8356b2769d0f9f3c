//! Moving data: operators whose output elements are input elements, brought elsewhere.
//!
//! Most of them (Transpose, Concat, Split, Slice, Pad, Expand, Tile, DepthToSpace, reorders between layouts)
//! are a few strided copies each: `planish_kernel::movement` finds them, [`copy`] plans one, `blocks` has its innermost loops.
//! Operators that take places from an index tensor are in [`pick`].
//!
//! Only the width of elements matters here, never their type, and results are exact.

mod blocks;
pub mod copy;
mod family;
pub mod pick;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use blocks::copy_run;
pub(crate) use family::{MoveFamily, PickFamily};

use crate::isa::Isa;
use crate::price::expected_ns;
use crate::team::Team;
use copy::{Copy, Core};
use planish_kernel::movement::{Move, Source};

/// By how much transposing is slower than copying runs, and moving element by element; measured by the example
/// `movement`.
const TRANSPOSED: f64 = 1.5;
const ONE_BY_ONE: f64 = 6.0;

/// Copies that together make the outputs of an operator.
#[derive(Clone, Debug)]
pub struct Moves {
    parts: Vec<Part>,
    n_tasks: usize,
}

#[derive(Clone, Debug)]
struct Part {
    copy: Copy,
    source: Source,
    output: usize,
    /// Bytes from the operand's address to the first element.
    from: usize,
    to: usize,
    first_task: usize,
}

/// Where a copy's source begins in a run with these inputs.
pub(crate) fn start(source: &Source, inputs: &[*const u8]) -> *const u8 {
    match source {
        Source::Input(input) => inputs[*input],
        Source::Constant(bytes) => bytes.as_ptr(),
    }
}

struct Pointers<'a> {
    inputs: &'a [*const u8],
    outputs: &'a [*mut u8],
}

// SAFETY: inputs are only read, and no two tasks write the same bytes of an output.
unsafe impl Sync for Pointers<'_> {}

impl Pointers<'_> {
    /// Does one task of a part.
    ///
    /// # Safety
    /// The part's walks must lie within the operands.
    unsafe fn copy(&self, part: &Part, task: usize) {
        let from = start(&part.source, self.inputs);
        let to = self.outputs[part.output];
        // SAFETY: the caller says so.
        unsafe { part.copy.run(task, from.wrapping_add(part.from), to.wrapping_add(part.to)) };
    }
}

impl Moves {
    /// Plans all copies; `None` where one of them is more than kernels hold.
    pub fn plan(isa: Isa, moves: Vec<Move>) -> Option<Moves> {
        let mut parts = Vec::with_capacity(moves.len());
        let mut n_tasks = 0;
        for part in moves {
            let copy = Copy::plan(isa, part.width, &part.walks)?;
            let first_task = n_tasks;
            n_tasks += copy.n_tasks();
            let Move { source, output, from, to, .. } = part;
            parts.push(Part { copy, source, output, from, to, first_task });
        }
        parts.retain(|part| part.copy.n_tasks() > 0);
        Some(Moves { parts, n_tasks })
    }

    /// Expected nanoseconds.
    pub fn predicted_ns(&self, threads: usize) -> f64 {
        let part = |part: &Part| {
            let slower = match part.copy.core() {
                Core::Runs | Core::Repeat => 1.0,
                Core::Transpose => TRANSPOSED,
                Core::Strided => ONE_BY_ONE,
            };
            2.0 * part.copy.bytes() as f64 * slower
        };
        expected_ns(Isa::best(), 0.0, self.parts.iter().map(part).sum(), threads)
    }

    /// Makes all outputs.
    ///
    /// # Safety
    /// The pointers must be valid for what the lowered problem's operands span, and nothing else may write
    /// them meanwhile.
    pub unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8], team: &Team) {
        let pointers = &Pointers { inputs, outputs };
        team.for_each(self.n_tasks, &|task| {
            // The last part that begins at or before the task.
            let at = self.parts.partition_point(|part| part.first_task <= task.idx) - 1;
            let part = &self.parts[at];
            // SAFETY: lowering keeps walks within operands, whose memory the caller grants.
            unsafe { pointers.copy(part, task.idx - part.first_task) };
        });
    }
}
