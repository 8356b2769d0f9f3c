//! How what a plan holds is written as bytes and read back: `Stored`, and its plain cases.
//!
//! - `wire`: the writer, and the reader that trusts no length;
//! - `types`: element types, dimensions, value types and tensors;
//! - `region`: operators and regions;
//! - `program`: values, steps, programs, and the other structures of a plan.
//!
//! The encoding has no field names and no tags but those of enums; what tells versions apart is the format
//! version of the container. Counts and indices are variable-length integers, seven bits a byte, the low ones
//! first and never longer than needed, so that equal plans have equal bytes. Names stand in the place of
//! numbers wherever a list may grow (operators, element types, layouts).

mod program;
mod region;
mod types;
mod wire;

pub(crate) use program::{WeightEntry, WeightList};
pub(crate) use wire::{Reader, Writer};

use crate::container::Digests;
use crate::error::Result;

/// What has a place in the file.
pub(crate) trait Stored: Sized {
    /// The fewest bytes that a value takes, at least 1: how many can stand in what is left of a section.
    const MIN_BYTES: usize;

    fn write(&self, to: &mut Writer);
    fn read(from: &mut Reader<'_>) -> Result<Self>;
}

/// A struct of another crate as its fields one after the other.
macro_rules! stored_struct {
    ($name:ident { $($field:ident : $ty:ty),* $(,)? }) => {
        impl Stored for $name {
            const MIN_BYTES: usize = 0 $(+ <$ty as Stored>::MIN_BYTES)*;

            fn write(&self, to: &mut Writer) {
                $(<$ty as Stored>::write(&self.$field, to);)*
            }

            fn read(from: &mut Reader<'_>) -> Result<$name> {
                Ok($name { $($field: <$ty as Stored>::read(from)?),* })
            }
        }
    };
}
pub(crate) use stored_struct;

/// A struct of the plan, declared and stored at once: its fields, one after the other, are what the file holds.
macro_rules! stored_record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident { $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $ty:ty),* $(,)? }
    ) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$field_meta])* $field_vis $field: $ty),* }

        $crate::codec::stored_struct!($name { $($field: $ty),* });
    };
}
pub(crate) use stored_record;

/// The whole of a section.
pub(crate) fn to_section<T: Stored>(value: &T) -> Vec<u8> {
    let mut to = Writer::default();
    value.write(&mut to);
    to.into_bytes()
}

/// The value that a section holds, and nothing after it.
pub(crate) fn from_section<T: Stored>(mut from: Reader<'_>) -> Result<T> {
    let value = T::read(&mut from)?;
    from.end()?;
    Ok(value)
}

impl Stored for bool {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        to.byte(u8::from(*self));
    }

    fn read(from: &mut Reader<'_>) -> Result<bool> {
        Ok(from.tag("a truth value", 2)? == 1)
    }
}

impl Stored for u32 {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        to.count(u64::from(*self));
    }

    fn read(from: &mut Reader<'_>) -> Result<u32> {
        let at = from.at();
        let value = from.count()?;
        u32::try_from(value).map_err(|_| from.malformed(at, format!("{value} does not fit 32 bits")))
    }
}

impl Stored for u64 {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        to.count(*self);
    }

    fn read(from: &mut Reader<'_>) -> Result<u64> {
        from.count()
    }
}

impl Stored for usize {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        to.count(*self as u64);
    }

    fn read(from: &mut Reader<'_>) -> Result<usize> {
        let at = from.at();
        let value = from.count()?;
        usize::try_from(value).map_err(|_| from.malformed(at, format!("{value} does not fit this machine")))
    }
}

impl Stored for i64 {
    const MIN_BYTES: usize = 8;

    fn write(&self, to: &mut Writer) {
        to.raw(&self.to_le_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<i64> {
        from.array().map(i64::from_le_bytes)
    }
}

impl Stored for f32 {
    const MIN_BYTES: usize = 4;

    fn write(&self, to: &mut Writer) {
        to.raw(&self.to_le_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<f32> {
        from.array().map(f32::from_le_bytes)
    }
}

impl Stored for f64 {
    const MIN_BYTES: usize = 8;

    fn write(&self, to: &mut Writer) {
        to.raw(&self.to_le_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<f64> {
        from.array().map(f64::from_le_bytes)
    }
}

impl Stored for String {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        to.text(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<String> {
        from.text().map(str::to_owned)
    }
}

impl Stored for [u8; 32] {
    const MIN_BYTES: usize = 32;

    fn write(&self, to: &mut Writer) {
        to.raw(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<[u8; 32]> {
        from.array()
    }
}

impl Stored for Digests {
    const MIN_BYTES: usize = 32;

    fn write(&self, to: &mut Writer) {
        self.0.iter().for_each(|sum| to.raw(sum));
    }

    fn read(from: &mut Reader<'_>) -> Result<Digests> {
        let mut digests = Digests(Default::default());
        for sum in digests.0.iter_mut() {
            *sum = from.array()?;
        }
        Ok(digests)
    }
}

impl<T: Stored> Stored for Option<T> {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        match self {
            None => to.byte(0),
            Some(value) => {
                to.byte(1);
                value.write(to);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Option<T>> {
        match from.tag("an optional value", 2)? {
            0 => Ok(None),
            _ => T::read(from).map(Some),
        }
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    const MIN_BYTES: usize = A::MIN_BYTES + B::MIN_BYTES;

    fn write(&self, to: &mut Writer) {
        self.0.write(to);
        self.1.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<(A, B)> {
        Ok((A::read(from)?, B::read(from)?))
    }
}

impl<T: Stored> Stored for Vec<T> {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        to.count(self.len() as u64);
        for element in self {
            element.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Vec<T>> {
        let n = from.length_of::<T>()?;
        let mut list = Vec::with_capacity(n);
        for _ in 0..n {
            list.push(T::read(from)?);
        }
        Ok(list)
    }
}
