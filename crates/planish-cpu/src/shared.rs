//! The pointers of a run, as the tasks of a team share them.

/// Operands and workspace of one run. The contract of `Work::run` settles who may touch them: inputs are
/// only read, tasks write disjoint parts of outputs, and each slot has its own part of the workspace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) inputs: &'a [*const u8],
    pub(crate) outputs: &'a [*mut u8],
    pub(crate) workspace: *mut u8,
}

// SAFETY: see the type; the pointers themselves are plain numbers.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}
