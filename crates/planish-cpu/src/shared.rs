//! The pointers of a run, as the tasks of a team share them.

/// Operands and workspace of one run. The contract of `Work::run` settles who may touch them: inputs are
/// only read, tasks write disjoint parts of outputs, and each slot has its own part of the workspace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) inputs: &'a [*const u8],
    pub(crate) outputs: &'a [*mut u8],
    pub(crate) workspace: *mut u8,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(inputs: &'a [*const u8], outputs: &'a [*mut u8], workspace: *mut u8) -> Shared<'a> {
        Shared { inputs, outputs, workspace }
    }

    /// The same for the task of a slot, with so many bytes of the workspace for each slot.
    pub(crate) fn of_slot(self, slot: usize, bytes_each: usize) -> Shared<'a> {
        Shared { workspace: self.workspace.wrapping_add(slot * bytes_each), ..self }
    }
}

// SAFETY: see the type; the pointers themselves are plain numbers.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}
