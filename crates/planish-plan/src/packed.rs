//! The code of a plan without weights, packed: there it is nearly all of the file.
//!
//! Deflate (RFC 1951), one stream and nothing behind it. The table of sections says how long the code is, and that is
//! compared with a bound before memory is taken for it: nothing unpacks to more than [`MOST`] times its bytes. Checksums
//! of the file are over the packed bytes; the certificate's is over the code as it is, so it holds for the plan with its
//! weights and without.
//!
//! Plans with their weights keep their code as it is, and open the faster for it.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::container::{SUM, Section};
use crate::error::{PlanError, PlanErrorKind, Result};

/// The most that a byte unpacks to. Code of our kernels packs to less than a third.
pub(crate) const MOST: u64 = 64;

/// The effort of packing, of 10: the most of zlib's own scale.
const EFFORT: u8 = 9;

/// A packed section of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    /// How many bytes it unpacks to, and their BLAKE3.
    pub(crate) len: u64,
    pub(crate) of: [u8; SUM],
}

impl Packed {
    /// The section packed; none where that would not make it smaller, or so small that no reader would believe it.
    pub(crate) fn new(plain: &[u8]) -> Option<Packed> {
        let (bytes, len) = (compress_to_vec(plain, EFFORT), plain.len() as u64);
        let pays = bytes.len() < plain.len() && len <= MOST * bytes.len() as u64;
        pays.then(|| Packed { len, of: *blake3::hash(plain).as_bytes(), bytes })
    }

    /// What a file has, unpacked: the two together. `len` is what the file says of it.
    pub(crate) fn unpack(bytes: &[u8], len: u64) -> Result<(Packed, Vec<u8>)> {
        let malformed = |what: String| {
            Err(PlanError::new(PlanErrorKind::Malformed, what).in_section(Section::Code.name()))
        };
        if len <= bytes.len() as u64 || len > MOST * bytes.len() as u64 {
            return malformed(format!("{} packed bytes are said to be {len}", bytes.len()));
        }
        let mut plain = vec![0; len as usize];
        let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, n_read, n_made) =
            decompress(&mut DecompressorOxide::default(), bytes, &mut plain, 0, flags);
        if (status, n_read, n_made) != (TINFLStatus::Done, bytes.len(), plain.len()) {
            return malformed(format!("it does not unpack to the {len} bytes that it is said to have"));
        }
        let of = *blake3::hash(&plain).as_bytes();
        Ok((Packed { bytes: bytes.to_vec(), len, of }, plain))
    }
}
