//! Faults: what a kernel on a device found wrong with its inputs' values, told without stopping the run.
//!
//! A kernel that meets an index out of range goes on with one that is inside, so that it touches no memory but its own,
//! and writes a word of host memory that the device can reach ([`crate::Call::fault`]). Whoever waits for the run looks
//! at the word: nothing is copied, and a run without faults pays nothing.

use std::fmt;

/// An index out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What the index tensor says, the nearest number of 32 bits where it is further away.
    pub index: i32,
    /// The size of the axis; never zero.
    pub size: u32,
}

impl Fault {
    /// What a word takes.
    pub const BYTES: usize = size_of::<u64>();

    /// Of a word that a kernel wrote: the size in the low half, the index in the high one. Zero is not a fault.
    pub fn of_word(word: u64) -> Option<Fault> {
        (word != 0).then_some(Fault { index: (word >> 32) as u32 as i32, size: word as u32 })
    }

    /// As kernels write it.
    pub fn word(self) -> u64 {
        u64::from(self.index as u32) << 32 | u64::from(self.size)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { index, size } = *self;
        let beyond = match index {
            i32::MAX => " or more",
            i32::MIN => " or less",
            _ => "",
        };
        write!(f, "index {index}{beyond} is outside an axis of size {size}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        assert_eq!(Fault::of_word(0), None);
        for fault in [
            Fault { index: -6, size: 5 },
            Fault { index: i32::MAX, size: 30_522 },
            Fault { index: i32::MIN, size: 1 },
            Fault { index: 0, size: u32::MAX },
        ] {
            assert_eq!(Fault::of_word(fault.word()), Some(fault));
        }
        assert_eq!(Fault { index: 7, size: 5 }.to_string(), "index 7 is outside an axis of size 5");
    }
}
