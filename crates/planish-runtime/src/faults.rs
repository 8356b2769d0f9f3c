//! What kernels on a device found wrong with values (`planish_kernel::Fault`), kept where device and host both reach it
//! and looked at where a run is waited for.
//!
//! Each step that may tell of a fault has a word in pinned memory. Runs that overlap in a pipeline have words of their
//! own, so that a fault is told of the run that it happened in. The words' address is part of what a captured graph is
//! found by.

use planish_kernel::{Address, Fault, KernelError, KernelErrorKind, Memory};
use planish_plan::Program;

use crate::engine::Core;
use crate::error::RunError;
use crate::memory::{address_of, pointer};

/// The words of one program.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// A word for each step of the program, for each of the runs that may be under way together.
    sets: Vec<Option<Box<dyn Memory>>>,
    /// Whose turn it is.
    current: usize,
    /// Steps that may tell of a fault, ascending.
    steps: Vec<usize>,
}

impl Faults {
    /// Notes that a step may tell of a fault.
    pub(crate) fn note(&mut self, step: usize) {
        if let Err(at) = self.steps.binary_search(&step) {
            self.steps.insert(at, step);
        }
    }

    /// The following launches belong to this one of the runs that are under way together.
    pub(crate) fn select(&mut self, run: usize) {
        self.current = run;
    }

    /// Takes memory for the words where some step needs it and there is none yet.
    pub(crate) fn prepare(&mut self, core: &Core, program: &Program) -> Result<(), RunError> {
        if self.steps.is_empty() {
            return Ok(());
        }
        if self.sets.len() <= self.current {
            self.sets.resize_with(self.current + 1, || None);
        }
        if self.sets[self.current].is_none() {
            self.sets[self.current] = core.pinned(program.steps.len() * Fault::BYTES)?;
        }
        Ok(())
    }

    /// Where the words of the current run begin; null where there are none.
    pub(crate) fn start(&self) -> Address {
        self.sets.get(self.current).map_or(Address::NULL, address_of)
    }

    /// What the kernels of a run found wrong first in the program's order, forgotten by this. Whoever asks has waited
    /// for the run; of one that is still under way on a stream of the caller, what it found until now.
    pub(crate) fn take(&self, run: usize, program: &Program) -> Result<(), RunError> {
        let Some(Some(words)) = self.sets.get(run) else { return Ok(()) };
        let mut found = Ok(());
        for &step in &self.steps {
            let word = pointer(word(words.address(), step)).cast::<u64>();
            // SAFETY: the memory has a word for each step, at multiples of its size. Volatile, since a device writes it,
            // whole words each time.
            let fault = unsafe {
                let fault = Fault::of_word(word.read_volatile());
                if fault.is_some() {
                    word.write_volatile(0);
                }
                fault
            };
            if let (Some(fault), true) = (fault, found.is_ok()) {
                let error = KernelError::new(KernelErrorKind::BadValues, fault.to_string());
                found = Err(RunError::at(&program.steps[step].name, error));
            }
        }
        found
    }

    /// Forgets what nobody asked for.
    pub(crate) fn forget(&self, program: &Program) {
        for run in 0..self.sets.len() {
            let _ = self.take(run, program);
        }
    }
}

/// The word of a step; null where there are none.
pub(crate) fn word(start: Address, step: usize) -> Address {
    if start == Address::NULL { start } else { start.offset(step * Fault::BYTES) }
}
