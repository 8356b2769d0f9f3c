//! The protobuf wire format, read in place: fields of a message one by one, every length checked.
//!
//! A [`Message`] is a window of the file. Submessages are windows into it, so nothing is copied, and no
//! allocation follows from a length that the file merely claims. Two limits hold whatever the bytes say:
//! how deep messages nest, and how much memory the parsed structures take ([`Budget`]).

use std::borrow::Cow;
use std::cell::Cell;

use crate::error::{OnnxError, OnnxErrorKind, Result};

/// Messages nested deeper than this are refused. It is protobuf's own default limit, so what other readers
/// take is taken here; a subgraph costs three levels (attribute, graph, node).
pub(crate) const MAX_DEPTH: u32 = 100;

/// Parsed structures may take this much memory whatever the size of the file.
const BUDGET_FLOOR: usize = 64 << 20;

/// Beyond the floor, structures may take this many bytes per byte of file. A list of small integers takes
/// eight for one, so it always passes. A node takes at least 280 bytes in memory and, with the shortest names
/// that exporters give, 18 in the file; any graph of up to 250,000 nodes passes, and more with longer names.
const BUDGET_PER_BYTE: usize = 8;

/// Memory that parsed structures may still take.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Cell<usize>,
    total: usize,
}

impl Budget {
    pub(crate) fn for_file(bytes: &[u8]) -> Self {
        let total = bytes.len().saturating_mul(BUDGET_PER_BYTE).saturating_add(BUDGET_FLOOR);
        Self { left: Cell::new(total), total }
    }

    fn charge(&self, bytes: usize) -> Result<()> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(OnnxError::new(
                OnnxErrorKind::TooDense,
                format!("the file's small messages would take more than {} MiB of memory", self.total >> 20),
            )),
        }
    }
}

/// One message of the file, being read.
#[derive(Debug)]
pub(crate) struct Message<'a, 'b> {
    bytes: &'a [u8],
    pos: usize,
    /// Where the message starts in the file.
    start: usize,
    depth: u32,
    budget: &'b Budget,
}

/// One field of a message: its number and what it carries.
#[derive(Debug)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    payload: Payload<'a>,
    at: usize,
}

#[derive(Debug, Clone, Copy)]
enum Payload<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

impl Payload<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Varint(_) => "a varint",
            Self::Fixed64(_) => "8 fixed bytes",
            Self::Bytes(_) => "a length-delimited field",
            Self::Fixed32(_) => "4 fixed bytes",
        }
    }
}

impl<'a, 'b> Message<'a, 'b> {
    /// The whole file as one message.
    pub(crate) fn root(bytes: &'a [u8], budget: &'b Budget) -> Self {
        Self { bytes, pos: 0, start: 0, depth: 1, budget }
    }

    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The next field, or `None` at the end of the message.
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>> {
        if self.pos == self.bytes.len() {
            return Ok(None);
        }
        let tag_at = self.start + self.pos;
        let bad_tag = |what: String| OnnxError::new(OnnxErrorKind::WrongWireType, what).at(tag_at);
        let tag = self.varint()?;
        let number = match u32::try_from(tag >> 3) {
            Ok(number) if number > 0 => number,
            _ => return Err(bad_tag(format!("{} is not a field number", tag >> 3))),
        };
        let at = self.start + self.pos;
        let (payload, at) = match tag & 7 {
            0 => (Payload::Varint(self.varint()?), at),
            1 => (Payload::Fixed64(self.array()?), at),
            2 => {
                let length = self.varint()?;
                let at = self.start + self.pos;
                (Payload::Bytes(self.take(length)?), at)
            }
            5 => (Payload::Fixed32(self.array()?), at),
            3 | 4 => return Err(bad_tag(format!("field {number} is a group, which ONNX never uses"))),
            wire_type => {
                return Err(bad_tag(format!("field {number} has the unknown wire type {wire_type}")));
            }
        };
        Ok(Some(Field { number, payload, at }))
    }

    fn varint(&mut self) -> Result<u64> {
        let rest = &self.bytes[self.pos..];
        let Some((value, length)) = decode_varint(rest) else {
            let at = self.start + self.pos;
            return Err(if rest.len() < 10 && rest.iter().all(|byte| byte & 0x80 != 0) {
                OnnxError::new(OnnxErrorKind::Truncated, "a number is cut off by the end of its message")
                    .at(at)
            } else {
                OnnxError::new(OnnxErrorKind::BadVarint, "a number runs beyond ten bytes or 64 bits").at(at)
            });
        };
        self.pos += length;
        Ok(value)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.pos..];
        match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
            Some(taken) => {
                self.pos += taken.len();
                Ok(taken)
            }
            None => Err(OnnxError::new(
                OnnxErrorKind::Truncated,
                format!("a field claims {length} bytes where {} are left", rest.len()),
            )
            .at(self.start + self.pos)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.take(N as u64)?;
        Ok(taken.try_into().expect("take returns as many bytes as asked"))
    }

    /// Counts memory that a parsed structure takes.
    pub(crate) fn charge<T>(&self) -> Result<()> {
        self.charge_bytes(size_of::<T>())
    }

    pub(crate) fn charge_bytes(&self, bytes: usize) -> Result<()> {
        self.budget.charge(bytes).map_err(|error| error.at(self.start + self.pos))
    }

    /// Adds an element to a list, counting its memory.
    pub(crate) fn push<T>(&self, list: &mut Vec<T>, item: T) -> Result<()> {
        self.make_room(list)?;
        list.push(item);
        Ok(())
    }

    /// Room for one more element. Lists grow by half, from one: most hold one or two elements, and the usual
    /// start at four would take up to four times the memory that is counted.
    fn make_room<T>(&self, list: &mut Vec<T>) -> Result<()> {
        if list.len() < list.capacity() {
            return Ok(());
        }
        let more = (list.len() / 2).max(1);
        self.charge_bytes(more.saturating_mul(size_of::<T>()))?;
        list.reserve_exact(more);
        Ok(())
    }

    fn extend(&self, list: &mut Cow<'a, [u8]>, bytes: &[u8]) -> Result<()> {
        let copied = if matches!(list, Cow::Borrowed(_)) { list.len() } else { 0 };
        self.charge_bytes(bytes.len() + copied)?;
        list.to_mut().extend_from_slice(bytes);
        Ok(())
    }

    /// Reads a field that holds one message.
    pub(crate) fn one<T>(
        &self,
        field: &Field<'a>,
        name: &'static str,
        read: impl FnOnce(Message<'a, 'b>) -> Result<T>,
    ) -> Result<T> {
        self.enter(field, name).and_then(read).map_err(|error| error.inside(name))
    }

    /// As [`Self::one`], for a value that its owner keeps in a box.
    pub(crate) fn boxed<T>(
        &self,
        field: &Field<'a>,
        name: &'static str,
        read: impl FnOnce(Message<'a, 'b>) -> Result<T>,
    ) -> Result<Box<T>> {
        self.charge::<T>()?;
        Ok(Box::new(self.one(field, name, read)?))
    }

    /// Reads one message of a repeated field onto the end of a list.
    pub(crate) fn each<T>(
        &self,
        field: &Field<'a>,
        name: &'static str,
        list: &mut Vec<T>,
        read: impl FnOnce(Message<'a, 'b>) -> Result<T>,
    ) -> Result<()> {
        self.make_room(list).map_err(|error| error.inside_nth(name, list.len()))?;
        list.push(self.nth(field, name, list.len(), read)?);
        Ok(())
    }

    /// Reads one message of a repeated field, for a caller that may not keep it.
    pub(crate) fn nth<T>(
        &self,
        field: &Field<'a>,
        name: &'static str,
        index: usize,
        read: impl FnOnce(Message<'a, 'b>) -> Result<T>,
    ) -> Result<T> {
        self.enter(field, name).and_then(read).map_err(|error| error.inside_nth(name, index))
    }

    fn enter(&self, field: &Field<'a>, name: &'static str) -> Result<Message<'a, 'b>> {
        let Payload::Bytes(bytes) = field.payload else {
            // The caller adds the name to the path.
            return Err(field.wrong_type(name, "a message").at(field.at));
        };
        if self.depth == MAX_DEPTH {
            return Err(OnnxError::new(
                OnnxErrorKind::TooDeep,
                format!("messages nest deeper than {MAX_DEPTH} levels"),
            )
            .at(field.at));
        }
        Ok(Message { bytes, pos: 0, start: field.at, depth: self.depth + 1, budget: self.budget })
    }
}

impl<'a> Field<'a> {
    /// Where the payload starts in the file.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn text(&self, name: &'static str) -> Result<Cow<'a, str>> {
        let bytes = self.bytes_as(name, "text")?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(error) => Err(OnnxError::new(OnnxErrorKind::InvalidUtf8, "the text is not UTF-8")
                .at(self.at + error.valid_up_to())
                .inside(name)),
        }
    }

    pub(crate) fn bytes(&self, name: &'static str) -> Result<&'a [u8]> {
        self.bytes_as(name, "bytes")
    }

    fn bytes_as(&self, name: &'static str, expected: &str) -> Result<&'a [u8]> {
        match self.payload {
            Payload::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wrong_type(name, expected).inside(name)),
        }
    }

    pub(crate) fn int64(&self, name: &'static str) -> Result<i64> {
        match self.payload {
            Payload::Varint(value) => Ok(value as i64),
            _ => Err(self.wrong_type(name, "an integer").inside(name)),
        }
    }

    /// An `int32` or enum field; protobuf keeps the low 32 bits.
    pub(crate) fn int32(&self, name: &'static str) -> Result<i32> {
        self.int64(name).map(|value| value as i32)
    }

    pub(crate) fn float(&self, name: &'static str) -> Result<f32> {
        match self.payload {
            Payload::Fixed32(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(self.wrong_type(name, "a float").inside(name)),
        }
    }

    /// Appends a repeated integer field, packed or not.
    pub(crate) fn varints<T>(
        &self,
        name: &'static str,
        message: &Message<'a, '_>,
        list: &mut Vec<T>,
        convert: impl Fn(u64) -> T,
    ) -> Result<()> {
        match self.payload {
            Payload::Varint(value) => message.push(list, convert(value)),
            Payload::Bytes(bytes) => {
                if list.is_empty() {
                    // Every number ends in a byte without the high bit: the run says how many it holds.
                    let count = bytes.iter().filter(|&byte| byte & 0x80 == 0).count();
                    message.charge_bytes(count.saturating_mul(size_of::<T>()))?;
                    list.reserve_exact(count);
                }
                let mut run = Message { bytes, pos: 0, start: self.at, depth: 0, budget: message.budget };
                while run.pos < bytes.len() {
                    let value = run.varint().map_err(|error| error.inside_nth(name, list.len()))?;
                    message.push(list, convert(value))?;
                }
                Ok(())
            }
            _ => Err(self.wrong_type(name, "integers").inside(name)),
        }
    }

    /// Appends a repeated `float` field (4 bytes each) or `double` field (8), packed or not, as little-endian bytes. A
    /// single packed run, which is how every known exporter writes it, stays borrowed from the file.
    pub(crate) fn reals(
        &self,
        name: &'static str,
        message: &Message<'a, '_>,
        list: &mut Cow<'a, [u8]>,
        width: usize,
    ) -> Result<()> {
        match (&self.payload, width) {
            (Payload::Fixed32(bytes), 4) => message.extend(list, bytes),
            (Payload::Fixed64(bytes), 8) => message.extend(list, bytes),
            (&Payload::Bytes(bytes), _) => self.packed_run(name, message, list, bytes, width),
            (_, 4) => Err(self.wrong_type(name, "floats").inside(name)),
            _ => Err(self.wrong_type(name, "doubles").inside(name)),
        }
    }

    fn packed_run(
        &self,
        name: &'static str,
        message: &Message<'a, '_>,
        list: &mut Cow<'a, [u8]>,
        bytes: &'a [u8],
        width: usize,
    ) -> Result<()> {
        if !bytes.len().is_multiple_of(width) {
            return Err(OnnxError::new(
                OnnxErrorKind::Truncated,
                format!("{} bytes are no whole number of {width}-byte values", bytes.len()),
            )
            .at(self.at)
            .inside(name));
        }
        if list.is_empty() {
            *list = Cow::Borrowed(bytes);
            return Ok(());
        }
        message.extend(list, bytes)
    }

    fn wrong_type(&self, name: &str, expected: &str) -> OnnxError {
        OnnxError::new(
            OnnxErrorKind::WrongWireType,
            format!("field {} ({name}) is {} where {expected} belongs", self.number, self.payload.name()),
        )
        .at(self.at)
    }
}

/// Decodes a varint at the front of `bytes`: its value and length, or `None` where it does not end in time.
fn decode_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(10).enumerate() {
        // The tenth byte holds bit 63 only.
        if index == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}
