//! `Bytes`: shared, immutable memory, owned or mapped from a file, and cheap slices of it.

#![allow(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use crate::Element;
use crate::element::as_bytes;
use crate::pages::Pages;

/// Something that owns memory at a fixed address.
trait Storage: Send + Sync {
    fn bytes(&self) -> &[u8];
}

impl<T: Element> Storage for Vec<T> {
    fn bytes(&self) -> &[u8] {
        as_bytes(self)
    }
}

impl Storage for memmap2::Mmap {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Storage for Pages {
    fn bytes(&self) -> &[u8] {
        Pages::bytes(self)
    }
}

/// Bytes that begin where kernels want their operands to begin.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; Bytes::ALIGNMENT]);

struct Lines {
    lines: Vec<Line>,
    len: usize,
}

impl Storage for Lines {
    fn bytes(&self) -> &[u8] {
        // SAFETY: lines are arrays of bytes, one after another without gaps, and `len` is within them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast::<u8>(), self.len) }
    }
}

/// A range of shared, immutable memory. Cloning and slicing copy no data.
#[derive(Clone)]
pub struct Bytes {
    storage: Arc<dyn Storage>,
    range: Range<usize>,
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        std::ptr::eq(&raw const **self, &raw const **other) || **self == **other
    }
}

impl Bytes {
    /// What [`Bytes::aligned`] begins at a multiple of: kernels read memory that does where it lies.
    pub const ALIGNMENT: usize = 64;

    /// A copy that begins at a multiple of [`Bytes::ALIGNMENT`].
    pub fn aligned(bytes: &[u8]) -> Bytes {
        Bytes::filled(bytes.len(), |memory: &mut [u8]| memory.copy_from_slice(bytes))
    }

    /// The same bytes where they begin at a multiple of [`Bytes::ALIGNMENT`], else such a copy.
    pub fn into_aligned(self) -> Bytes {
        if self.as_ptr().addr().is_multiple_of(Bytes::ALIGNMENT) { self } else { Bytes::aligned(&self) }
    }

    /// So many elements as `fill` leaves them, which are zeros at first; they begin at a multiple of
    /// [`Bytes::ALIGNMENT`].
    pub fn filled<T: Element>(len: usize, fill: impl FnOnce(&mut [T])) -> Bytes {
        let n_bytes = size_of::<T>() * len;
        if n_bytes >= Pages::WORTHWHILE
            && let Ok(mut memory) = Pages::zeroed(n_bytes)
        {
            // SAFETY: `len` elements are `n_bytes` bytes; a map begins at a page, and zeros are a valid element.
            fill(unsafe { std::slice::from_raw_parts_mut(memory.bytes_mut().as_mut_ptr().cast::<T>(), len) });
            return Bytes { storage: Arc::new(memory), range: 0..n_bytes };
        }
        let mut lines = vec![Line([0; Bytes::ALIGNMENT]); n_bytes.div_ceil(Bytes::ALIGNMENT)];
        // SAFETY: lines are arrays of bytes, one after another without gaps, at least `n_bytes` of them, aligned as any
        // element is; zeros are a valid element.
        fill(unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<T>(), len) });
        Bytes { storage: Arc::new(Lines { lines, len: n_bytes }), range: 0..n_bytes }
    }

    /// Takes over a vector's memory without copying it.
    pub fn from_vec<T: Element>(elements: Vec<T>) -> Bytes {
        let len = size_of::<T>() * elements.len();
        Bytes { storage: Arc::new(elements), range: 0..len }
    }

    /// Maps a whole file. The pages are read when they are touched, and shared with the page cache.
    ///
    /// Whoever truncates the file while it is mapped ends this process with SIGBUS, as with every program
    /// that maps files, and whoever writes into it changes what is read; writers of models replace files by
    /// renaming, which is safe. [`Bytes::read_file`] has neither danger.
    pub fn map_file(path: &Path) -> io::Result<Bytes> {
        Bytes::map_opened(&planish_files::open(path)?)
    }

    /// Maps a whole file that was opened, as [`Bytes::map_file`] does.
    pub fn map_opened(file: &File) -> io::Result<Bytes> {
        if file.metadata()?.len() == 0 {
            return Ok(Bytes::from_vec(Vec::<u8>::new()));
        }
        // SAFETY: the map is private and read-only, and Rust code here never writes to it; a file changed
        // by another process can change the values seen, which no reader of this crate trusts.
        let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(file)? };
        let len = map.len();
        Ok(Bytes { storage: Arc::new(map), range: 0..len })
    }

    /// Reads a whole file into memory of its own, which starts at a multiple of a page as a mapped file does.
    /// What happens to the file afterwards changes nothing.
    pub fn read_file(path: &Path) -> io::Result<Bytes> {
        let mut file = planish_files::open(path)?;
        let too_long = |_| io::Error::new(io::ErrorKind::OutOfMemory, "it does not fit into memory");
        let len = usize::try_from(file.metadata()?.len()).map_err(too_long)?;
        if len == 0 {
            return Ok(Bytes::from_vec(Vec::<u8>::new()));
        }
        let mut memory = memmap2::MmapMut::map_anon(len)?;
        file.read_exact(&mut memory)?;
        Ok(Bytes { storage: Arc::new(memory.make_read_only()?), range: 0..len })
    }

    /// A part of this range, sharing the memory; `None` if it does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Bytes { storage: Arc::clone(&self.storage), range: start..start + range.len() })
    }

    /// The `Bytes` of a slice that was borrowed from this very memory; `None` if it was not.
    pub fn slice_of(&self, part: &[u8]) -> Option<Bytes> {
        let base = self.as_ptr() as usize;
        let start = (part.as_ptr() as usize).checked_sub(base)?;
        self.slice(start..start.checked_add(part.len())?)
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage.bytes()[self.range.clone()]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_and_stay_inside() {
        let bytes = Bytes::from_vec(vec![1u8, 2, 3, 4, 5]);
        let middle = bytes.slice(1..4).unwrap();
        assert_eq!(&*middle, &[2, 3, 4]);
        assert!(middle.slice(2..4).is_none());
        assert_eq!(&*bytes.slice_of(&bytes[3..]).unwrap(), &[4, 5]);
        assert!(middle.slice_of(&bytes[..2]).is_none());
    }

    #[test]
    fn aligned_copies_begin_at_a_line_and_hold_the_same() {
        for len in [0, 1, 63, 64, 65, 1000, Pages::WORTHWHILE, Pages::WORTHWHILE + 1] {
            let from: Vec<u8> = (0..len).map(|idx| idx as u8).collect();
            let copy = Bytes::aligned(&from);
            assert_eq!(*copy, *from);
            assert!(len == 0 || copy.as_ptr().addr().is_multiple_of(Bytes::ALIGNMENT));
        }
    }

    #[test]
    fn maps_a_file_and_an_empty_one() {
        let dir = std::env::temp_dir().join(format!("planish-bytes-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("full"), b"abc").unwrap();
        std::fs::write(dir.join("empty"), b"").unwrap();
        assert_eq!(&*Bytes::map_file(&dir.join("full")).unwrap(), b"abc");
        assert!(Bytes::map_file(&dir.join("empty")).unwrap().is_empty());
        assert!(Bytes::map_file(&dir).is_err());
        let read = Bytes::read_file(&dir.join("full")).unwrap();
        std::fs::write(dir.join("full"), b"x").unwrap();
        assert_eq!(&*read, b"abc");
        assert!(Bytes::read_file(&dir.join("empty")).unwrap().is_empty());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
