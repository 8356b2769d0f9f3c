//! The parts of a plan in the file that are more than fields one after the other, and those of other crates.

use planish_kernel::{Code, Layout, Tactic, Target};
use planish_tensor::{Bytes, DType, Dim};

use super::{Reader, Stored, Writer, stored_record, stored_struct};
use crate::error::Result;
use crate::record::{Control, Outcome, Role, StepKind, Storage};

stored_record! {
    /// A weight without its bytes. They follow each other in the data section, in the order of the entries, each
    /// from the next multiple of 64 on.
    #[derive(Debug)]
    pub(crate) struct WeightEntry {
        pub(crate) name: String,
        pub(crate) dtype: DType,
        pub(crate) dims: Vec<usize>,
        pub(crate) layout: Layout,
        pub(crate) format: Option<String>,
        pub(crate) packed_by: Option<u32>,
        pub(crate) narrowed: Option<DType>,
        pub(crate) n_bytes: u64,
    }
}

stored_record! {
    /// The weights, and which of them hold the constants of the graph's text.
    #[derive(Debug)]
    pub(crate) struct WeightList {
        pub(crate) entries: Vec<WeightEntry>,
        pub(crate) constants: Vec<u32>,
    }
}

/// Copied out of the file: devices take code from aligned memory, and there is little of it.
impl Stored for Code {
    const MIN_BYTES: usize = 2;

    fn write(&self, to: &mut Writer) {
        to.text(&self.key);
        to.blob(&self.bytes);
    }

    fn read(from: &mut Reader<'_>) -> Result<Code> {
        Ok(Code { key: from.text()?.to_owned(), bytes: Bytes::from_vec(from.blob()?.to_vec()) })
    }
}

stored_struct!(Target { backend: String, needs: Vec<String>, device: String });
stored_struct!(Tactic { name: String, revision: u32 });

impl Stored for Role {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        to.byte(match self {
            Role::Host => 0,
            Role::Device => 1,
        });
    }

    fn read(from: &mut Reader<'_>) -> Result<Role> {
        Ok(match from.tag("a target's role", 2)? {
            0 => Role::Host,
            _ => Role::Device,
        })
    }
}

impl Stored for Storage {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        match self {
            Storage::Input => to.byte(0),
            Storage::Weight(idx) => {
                to.byte(1);
                idx.write(to);
            }
            Storage::Arena => to.byte(2),
            Storage::Alias { of } => {
                to.byte(3);
                of.write(to);
            }
            Storage::Inside { of, axis, offset } => {
                to.byte(4);
                of.write(to);
                axis.write(to);
                offset.write(to);
            }
            Storage::Own => to.byte(5),
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Storage> {
        Ok(match from.tag("a value's storage", 6)? {
            0 => Storage::Input,
            1 => Storage::Weight(u32::read(from)?),
            2 => Storage::Arena,
            3 => Storage::Alias { of: u32::read(from)? },
            4 => Storage::Inside { of: u32::read(from)?, axis: u32::read(from)?, offset: Dim::read(from)? },
            _ => Storage::Own,
        })
    }
}

impl Stored for StepKind {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        match self {
            StepKind::Kernel { variants, packed, slow } => {
                to.byte(0);
                variants.write(to);
                packed.write(to);
                slow.write(to);
            }
            StepKind::Evaluate => to.byte(1),
            StepKind::Control(control) => {
                to.byte(2);
                control.write(to);
            }
            StepKind::Transfer => to.byte(3),
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<StepKind> {
        Ok(match from.tag("a step", 4)? {
            0 => StepKind::Kernel {
                variants: Vec::read(from)?,
                packed: Vec::read(from)?,
                slow: bool::read(from)?,
            },
            1 => StepKind::Evaluate,
            2 => StepKind::Control(from.nested(Control::read)?),
            _ => StepKind::Transfer,
        })
    }
}

impl Stored for Outcome {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        match self {
            Outcome::Passed => to.byte(0),
            Outcome::Skipped(why) => {
                to.byte(1);
                why.write(to);
            }
            Outcome::Failed(why) => {
                to.byte(2);
                why.write(to);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Outcome> {
        Ok(match from.tag("a check's outcome", 3)? {
            0 => Outcome::Passed,
            1 => Outcome::Skipped(String::read(from)?),
            _ => Outcome::Failed(String::read(from)?),
        })
    }
}
