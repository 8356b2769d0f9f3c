//! Bytes written one after the other, and a reader of them that trusts no length.
//!
//! Memory is taken only for what the section can still hold, and in all only in proportion to its size: a
//! list of empty structures takes some thirty times its bytes, so a budget stands beside the lengths.

use std::collections::HashMap;

use planish_tensor::Dim;

use super::Stored;
use crate::error::{PlanError, PlanErrorKind, Result};

/// Programs in programs and types in types go no deeper. ONNX files nest to 33 bodies at most here.
const MAX_DEPTH: u32 = 64;

/// What is read from one section may take this much memory whatever its size.
const BUDGET_FLOOR: usize = 64 << 20;

/// Beyond the floor, bytes of memory per byte of the section. A step with its region takes about 700 bytes in
/// memory and, with names of ten letters, 100 in the file.
const BUDGET_PER_BYTE: usize = 16;

/// The bytes of a section as it is written.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A count or an index: seven bits a byte, low ones first, the high bit where more follow.
    pub(crate) fn count(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len() as u64);
        self.raw(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.blob(text.as_bytes());
    }
}

/// A cursor over one section.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
    /// Where the section starts in the file.
    start: usize,
    section: &'static str,
    depth: u32,
    budget: usize,
    /// Expressions that were read before: most values of a plan share a few, and parsing one takes longer than
    /// reading all else of its value.
    dims: HashMap<&'a str, Dim>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], start: usize, section: &'static str) -> Reader<'a> {
        let budget = bytes.len().saturating_mul(BUDGET_PER_BYTE).saturating_add(BUDGET_FLOOR);
        Reader { bytes, pos: 0, start, section, depth: 0, budget, dims: HashMap::new() }
    }

    /// Where in the file the next byte is.
    pub(crate) fn at(&self) -> usize {
        self.start + self.pos
    }

    pub(crate) fn error(&self, kind: PlanErrorKind, at: usize, what: impl Into<String>) -> PlanError {
        PlanError::new(kind, what).at(at).in_section(self.section)
    }

    pub(crate) fn malformed(&self, at: usize, what: impl Into<String>) -> PlanError {
        self.error(PlanErrorKind::Malformed, at, what)
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.pos
    }

    pub(crate) fn end(&self) -> Result<()> {
        match self.left() {
            0 => Ok(()),
            n => Err(self.malformed(self.at(), format!("{n} bytes after the end of what is stored"))),
        }
    }

    pub(crate) fn raw(&mut self, n: usize) -> Result<&'a [u8]> {
        let bytes = self.pos.checked_add(n).and_then(|end| self.bytes.get(self.pos..end));
        let Some(bytes) = bytes else {
            let what = format!("{n} bytes should follow, the section has {} more", self.left());
            return Err(self.malformed(self.at(), what));
        };
        self.pos += n;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.raw(N)?);
        Ok(array)
    }

    /// A byte that tells cases apart, below `n_cases`.
    pub(crate) fn tag(&mut self, of: &str, n_cases: u8) -> Result<u8> {
        let at = self.at();
        let [tag] = self.array()?;
        if tag >= n_cases {
            return Err(self.malformed(at, format!("{tag} is not a case of {of}")));
        }
        Ok(tag)
    }

    pub(crate) fn count(&mut self) -> Result<u64> {
        let at = self.at();
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte holds bit 63 only; an empty last byte would make a second form of one number.
            if (shift == 63 && bits > 1) || (byte == 0 && shift > 0) {
                return Err(self.malformed(at, "a number of more bytes than it needs or 64 bits hold"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.malformed(at, "a number that does not end within ten bytes"))
    }

    /// The length of a list, for which there is memory and room in the section.
    pub(crate) fn length_of<T: Stored>(&mut self) -> Result<usize> {
        let at = self.at();
        let n = self.count()?;
        let room = self.left() / T::MIN_BYTES.max(1);
        let n = usize::try_from(n).ok().filter(|n| *n <= room).ok_or_else(|| {
            self.malformed(at, format!("a list of {n} elements where at most {room} have room"))
        })?;
        self.charge(n.saturating_mul(size_of::<T>()))?;
        Ok(n)
    }

    pub(crate) fn blob(&mut self) -> Result<&'a [u8]> {
        let n = self.length_of::<u8>()?;
        self.raw(n)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        let at = self.at();
        let bytes = self.blob()?;
        std::str::from_utf8(bytes).map_err(|_| self.malformed(at, "the text is not UTF-8"))
    }

    /// A dimension that is stored as text.
    pub(crate) fn expression(&mut self) -> Result<Dim> {
        let at = self.at();
        let text = self.text()?;
        if let Some(dim) = self.dims.get(text) {
            return Ok(dim.clone());
        }
        let dim: Dim = text.parse().map_err(|error| self.malformed(at, format!("{error}")))?;
        self.dims.insert(text, dim.clone());
        Ok(dim)
    }

    /// Reads something that may hold its own kind.
    pub(crate) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            let what = format!("programs or types nest deeper than {MAX_DEPTH} levels");
            return Err(self.error(PlanErrorKind::TooDeep, self.at(), what));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn charge(&mut self, bytes: usize) -> Result<()> {
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => {
                let what = "the section would take more memory than its size can justify";
                Err(self.error(PlanErrorKind::TooDense, self.at(), what))
            }
        }
    }
}

/// Bytes of blobs; never read one by one.
impl Stored for u8 {
    const MIN_BYTES: usize = 1;

    fn write(&self, to: &mut Writer) {
        to.byte(*self);
    }

    fn read(from: &mut Reader<'_>) -> Result<u8> {
        from.array().map(|[byte]| byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{from_section, to_section};

    #[test]
    fn counts_have_one_form() {
        for value in [0, 1, 127, 128, 300, 1 << 32, u64::MAX - 1, u64::MAX] {
            let bytes = to_section(&value);
            assert_eq!(from_section::<u64>(Reader::new(&bytes, 0, "test")).unwrap(), value);
            let mut longer = bytes.clone();
            *longer.last_mut().unwrap() |= 0x80;
            longer.push(0);
            assert!(from_section::<u64>(Reader::new(&longer, 0, "test")).is_err(), "{value}");
        }
        assert!(from_section::<u64>(Reader::new(&[0xff; 11], 0, "test")).is_err());
        let mut over = vec![0xff; 9];
        over.push(2);
        assert!(from_section::<u64>(Reader::new(&over, 0, "test")).is_err());
    }

    #[test]
    fn lists_longer_than_the_section_take_no_memory() {
        let mut to = Writer::default();
        to.count(u64::MAX / 2);
        let bytes = to.into_bytes();
        let error = from_section::<Vec<String>>(Reader::new(&bytes, 100, "program")).unwrap_err();
        assert_eq!(error.kind(), PlanErrorKind::Malformed);
        assert_eq!((error.section(), error.offset()), (Some("program"), Some(100)));
    }

    #[test]
    fn dense_lists_meet_the_budget() {
        // Each empty list takes one byte in the file and 24 in memory.
        let lists: Vec<Vec<u64>> = vec![Vec::new(); 10 << 20];
        let bytes = to_section(&lists);
        let error = from_section::<Vec<Vec<u64>>>(Reader::new(&bytes, 0, "test")).unwrap_err();
        assert_eq!(error.kind(), PlanErrorKind::TooDense);
    }
}
