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

    /// The same with the workspace behind the first `own` bytes.
    pub(crate) fn behind(self, own: usize) -> Shared<'a> {
        Shared { workspace: self.workspace.wrapping_add(own.next_multiple_of(64)), ..self }
    }

    /// The input of an epilogue, or null where it has none.
    pub(crate) fn optional(&self, input: Option<u32>) -> *const f32 {
        input.map_or(std::ptr::null(), |idx| self.inputs[idx as usize].cast())
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
