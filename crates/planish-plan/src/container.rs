//! The container: where the sections of a plan file lie, and the checksums that guard them.
//!
//! ```text
//! 0    8   magic, "PLANISH\n"
//! 8    4   format version
//! 12   4   number of sections
//! 16   8   length of the file
//! 24   4   version of the program's encoding
//! 28   4   1 if the weights' data was left out, else 0
//! 32  32   BLAKE3 of bytes 0 to 32 and of the table
//! 64  64   for each section: kind (4), zero (4), offset (8), length (8), unpacked length (8), checksum (32)
//! ```
//!
//! The unpacked length is zero but for packed code ([`crate::packed`]), which files of version 6 have and no others.
//!
//! Numbers are little endian. Each section starts at a multiple of 64 after the one before, the bytes between
//! are zero, and the file ends with the last one. All kinds are there, each once, in the order of [`Section`];
//! so there is one way to lay a plan out, and every byte is under a checksum or known to be zero. Weights are
//! by far the most, so their checksums are kept by the MiB in a section of their own: threads can share the
//! work, and a failure tells where it is.

use std::ops::Range;

use crate::codec::Reader;
use crate::error::{PlanError, PlanErrorKind, Result};
use crate::packed::Packed;

/// The first bytes of every plan file.
pub(crate) const MAGIC: [u8; 8] = *b"PLANISH\n";

/// The version of the container, the header, the list of weights and the graph: what a plan is built anew from.
/// A reader refuses newer ones in one line, and builds older ones anew as far back as [`OLDEST_FORMAT`]. Versions before 3
/// did not say which weight is which constant of the graph, version 3 not which weights are stored in 16 bits, version 4
/// had no pairs of the user's own, no types of inputs and outputs in the header, and always its weights' data.
pub(crate) const FORMAT_VERSION: u32 = 5;

/// The version of files whose code is packed: those without weights that have any. All else is as in [`FORMAT_VERSION`].
pub(crate) const PACKED_VERSION: u32 = 6;

/// The oldest version whose header, list of weights and graph are read. Older ones must be built from the model.
pub(crate) const OLDEST_FORMAT: u32 = 4;

/// The version of the program, the evidence, the certificate and the code. A reader that knows another one cannot
/// run the plan, but can build it anew.
pub(crate) const PROGRAM_VERSION: u32 = 3;

/// Sections and weights start at multiples of this: one cache line, one AVX-512 register.
pub(crate) const ALIGNMENT: usize = 64;

/// Weights are checksummed in chunks of this many bytes. BLAKE3 is at its full speed from 16 KiB on.
pub(crate) const CHUNK: usize = 1 << 20;

const PREFIX: usize = 64;
const ENTRY: usize = 64;
/// Bytes of a checksum.
pub(crate) const SUM: usize = 32;

/// What byte 28 says of a file whose weights' data was left out.
const LEFT_OUT: u32 = 1;

/// The parts of the file, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Section {
    Header = 1,
    Program = 2,
    Weights = 3,
    Graph = 4,
    Evidence = 5,
    Certificate = 6,
    Code = 7,
    Sums = 8,
    Data = 9,
}

impl Section {
    pub(crate) const ALL: [Section; 9] = [
        Section::Header,
        Section::Program,
        Section::Weights,
        Section::Graph,
        Section::Evidence,
        Section::Certificate,
        Section::Code,
        Section::Sums,
        Section::Data,
    ];

    /// How many are written by the codec; the last two are the container's own.
    pub(crate) const N_CODED: usize = 7;

    pub(crate) fn name(self) -> &'static str {
        match self {
            Section::Header => "header",
            Section::Program => "program",
            Section::Weights => "list of weights",
            Section::Graph => "graph",
            Section::Evidence => "evidence",
            Section::Certificate => "certificate",
            Section::Code => "code",
            Section::Sums => "checksums of weights",
            Section::Data => "weights",
        }
    }
}

/// The checksums of the sections that a certificate is about: all but itself, weights by the sums of their chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Digests(pub(crate) Box<[[u8; SUM]; Digests::OF.len()]>);

impl Digests {
    const OF: [Section; 7] = [
        Section::Header,
        Section::Program,
        Section::Weights,
        Section::Graph,
        Section::Evidence,
        Section::Code,
        Section::Sums,
    ];

    /// Those that the table of a file names, or of all of it up to the weights' data. Code that is packed there counts by
    /// what it is when it is not.
    pub(crate) fn in_table(bytes: &[u8], packed: Option<&Packed>) -> Digests {
        Digests(Box::new(Digests::OF.map(|section| {
            if let (Section::Code, Some(packed)) = (section, packed) {
                return packed.of;
            }
            let at = sum_at(section);
            let mut sum = [0; SUM];
            sum.copy_from_slice(&bytes[at..at + SUM]);
            sum
        })))
    }

    /// The first section that is another one in the other.
    pub(crate) fn differs_from(&self, other: &Digests) -> Option<Section> {
        let pairs = self.0.iter().zip(other.0.iter());
        Digests::OF.into_iter().zip(pairs).find(|(_, (own, other))| own != other).map(|(section, _)| section)
    }
}

/// Checksums of a stream of bytes, chunk by chunk.
#[derive(Debug, Default)]
pub(crate) struct ChunkSums {
    hasher: blake3::Hasher,
    filled: usize,
    sums: Vec<u8>,
    total: usize,
}

impl ChunkSums {
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len();
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK - self.filled));
            self.hasher.update(now);
            self.filled += now.len();
            bytes = rest;
            if self.filled == CHUNK {
                self.close_chunk();
            }
        }
    }

    fn close_chunk(&mut self) {
        self.sums.extend_from_slice(self.hasher.finalize().as_bytes());
        self.hasher.reset();
        self.filled = 0;
    }

    /// The sums, one after the other, and how many bytes they are of.
    pub(crate) fn finish(mut self) -> (Vec<u8>, usize) {
        if self.filled > 0 {
            self.close_chunk();
        }
        (self.sums, self.total)
    }
}

/// The weights' data of a file.
pub(crate) enum Data {
    /// It follows the head: its checksums, and how many bytes they are of.
    Here(Vec<u8>, usize),
    /// It was left out; these are its checksums.
    LeftOut(Vec<u8>),
}

/// Everything of the file up to the weights' data, which follow at once. Packed code takes the place of the code in
/// `coded`.
pub(crate) fn head(coded: &[Vec<u8>; Section::N_CODED], data: Data, packed: Option<&Packed>) -> Vec<u8> {
    let (sums, data_len, flags) = match data {
        Data::Here(sums, len) => (sums, len, 0),
        Data::LeftOut(sums) => (sums, 0, LEFT_OUT),
    };
    // The prefix and the table take a multiple of the alignment.
    let start = PREFIX + ENTRY * Section::ALL.len();
    let mut table = Vec::new();
    let mut body: Vec<u8> = Vec::new();
    for (section, bytes) in Section::ALL.into_iter().zip(coded.iter().chain([&sums])) {
        let packed = packed.filter(|_| section == Section::Code);
        let (bytes, unpacked) = packed.map_or((bytes, 0), |packed| (&packed.bytes, packed.len));
        let range = start + body.len()..start + body.len() + bytes.len();
        write_entry(&mut table, section, range, unpacked, blake3::hash(bytes));
        body.extend_from_slice(bytes);
        body.resize(body.len().next_multiple_of(ALIGNMENT), 0);
    }
    let data_start = start + body.len();
    write_entry(&mut table, Section::Data, data_start..data_start + data_len, 0, blake3::hash(&sums));

    let mut bytes = Vec::with_capacity(start + body.len());
    bytes.extend_from_slice(&MAGIC);
    let version = if packed.is_some() { PACKED_VERSION } else { FORMAT_VERSION };
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(Section::ALL.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(data_start as u64 + data_len as u64).to_le_bytes());
    bytes.extend_from_slice(&PROGRAM_VERSION.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    let sum = table_sum(&bytes, &table);
    bytes.extend_from_slice(&sum);
    bytes.extend_from_slice(&table);
    bytes.extend_from_slice(&body);
    bytes
}

fn write_entry(table: &mut Vec<u8>, section: Section, at: Range<usize>, unpacked: u64, sum: blake3::Hash) {
    table.extend_from_slice(&(section as u32).to_le_bytes());
    table.extend_from_slice(&[0; 4]);
    table.extend_from_slice(&(at.start as u64).to_le_bytes());
    table.extend_from_slice(&(at.len() as u64).to_le_bytes());
    table.extend_from_slice(&unpacked.to_le_bytes());
    table.extend_from_slice(sum.as_bytes());
}

fn table_sum(prefix: &[u8], table: &[u8]) -> [u8; SUM] {
    *blake3::Hasher::new().update(prefix).update(table).finalize().as_bytes()
}

/// The checksum of the table in what [`head`] gave.
pub(crate) fn table_sum_of(head: &[u8]) -> [u8; SUM] {
    let mut sum = [0; SUM];
    sum.copy_from_slice(&head[PREFIX - SUM..PREFIX]);
    sum
}

/// Whether these are the first bytes of a plan file, whole or not.
pub(crate) fn is_plan(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Where the sections of a file lie.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) format_version: u32,
    pub(crate) program_version: u32,
    /// Whether the weights' data was left out.
    pub(crate) is_stripped: bool,
    /// How long the code is, where it is packed.
    unpacked: Option<u64>,
    ranges: [Range<usize>; Section::ALL.len()],
}

impl Table {
    /// Reads the table and verifies everything but the weights' data.
    pub(crate) fn read(bytes: &[u8]) -> Result<Table> {
        let table = Table::locate(bytes)?;
        for section in Section::ALL.into_iter().filter(|section| *section != Section::Data) {
            table.check_sum(bytes, section)?;
        }
        let n_chunks = table.range(Section::Data).len().div_ceil(CHUNK);
        // Where the data was left out, the list of weights says how much it was.
        if !table.is_stripped && table.range(Section::Sums).len() != n_chunks * SUM {
            let what = format!("{n_chunks} chunks of weights do not have one checksum each");
            return Err(PlanError::new(PlanErrorKind::Malformed, what).in_section(Section::Sums.name()));
        }
        // The data's own checksum is that of the chunks' sums; what it guards is compared in `check_data`.
        table.check_sum(bytes, Section::Data)?;
        Ok(table)
    }

    /// Reads the table alone, and verifies it; of the sections nothing is read.
    pub(crate) fn locate(bytes: &[u8]) -> Result<Table> {
        if !is_plan(bytes) {
            let what = if bytes.is_empty() { "the file is empty" } else { "this is not a plan file" };
            return Err(PlanError::new(PlanErrorKind::NotAPlan, what));
        }
        let cut = || truncated(bytes.len(), "ends within its first bytes");
        let version = u32_at(bytes, 8).ok_or_else(cut)?;
        if !(OLDEST_FORMAT..=PACKED_VERSION).contains(&version) {
            let what =
                format!("the plan has format version {version}, this Planish reads version {PACKED_VERSION}");
            let kind = match version < OLDEST_FORMAT {
                true => PlanErrorKind::OlderFormat,
                false => PlanErrorKind::NewerFormat,
            };
            return Err(PlanError::new(kind, what).at(8));
        }
        let prefix = bytes.get(..PREFIX).ok_or_else(cut)?;
        let table = bytes.get(PREFIX..PREFIX + ENTRY * Section::ALL.len()).ok_or_else(cut)?;
        if table_sum(&prefix[..PREFIX - SUM], table) != prefix[PREFIX - SUM..] {
            return Err(damaged("the checksum of the table of sections does not fit").at(0));
        }
        let file_len = u64_at(bytes, 16).ok_or_else(cut)?;
        if file_len != bytes.len() as u64 {
            let what = format!("the file has {} bytes, when written it had {file_len}", bytes.len());
            return Err(PlanError::new(PlanErrorKind::Truncated, what));
        }
        let program_version = u32_at(bytes, 24).ok_or_else(cut)?;
        let flags = u32_at(bytes, 28).ok_or_else(cut)?;
        let known = if version == OLDEST_FORMAT { 0 } else { LEFT_OUT };
        if u32_at(bytes, 12) != Some(Section::ALL.len() as u32) || flags & !known != 0 {
            return Err(PlanError::new(PlanErrorKind::Malformed, "the first bytes are not as they must be"));
        }
        let mut ranges = [const { 0..0 }; Section::ALL.len()];
        let mut end = PREFIX + table.len();
        for (idx, section) in Section::ALL.into_iter().enumerate() {
            let at = PREFIX + ENTRY * idx;
            let may_be_packed = version == PACKED_VERSION && section == Section::Code;
            ranges[idx] = read_entry(bytes, at, section, end, may_be_packed)?;
            end = ranges[idx].end;
        }
        if end != bytes.len() {
            return Err(truncated(bytes.len(), "goes on after its last section"));
        }
        let is_stripped = flags & LEFT_OUT != 0;
        if is_stripped && !ranges[Section::Data as usize - 1].is_empty() {
            let what = "the weights are there, and said to be left out";
            return Err(PlanError::new(PlanErrorKind::Malformed, what).in_section(Section::Data.name()));
        }
        if version == PACKED_VERSION && !is_stripped {
            let what = "the code is packed in a file that has its weights";
            return Err(PlanError::new(PlanErrorKind::Malformed, what).in_section(Section::Code.name()));
        }
        let entry = PREFIX + ENTRY * (Section::Code as usize - 1);
        let unpacked = u64_at(bytes, entry + 24).filter(|_| version == PACKED_VERSION);
        Ok(Table { format_version: version, program_version, is_stripped, unpacked, ranges })
    }

    /// The coded sections and the weights' data of a file: what [`crate::seal`] takes.
    pub(crate) fn unseal(&self, bytes: &[u8]) -> ([Vec<u8>; Section::N_CODED], Vec<u8>) {
        let coded = std::array::from_fn(|idx| self.bytes(bytes, Section::ALL[idx]).to_vec());
        (coded, self.bytes(bytes, Section::Data).to_vec())
    }

    pub(crate) fn range(&self, section: Section) -> Range<usize> {
        self.ranges[section as usize - 1].clone()
    }

    pub(crate) fn bytes<'a>(&self, bytes: &'a [u8], section: Section) -> &'a [u8] {
        // `read` saw that the ranges lie inside.
        &bytes[self.range(section)]
    }

    /// Whether this version of Planish knows all of the file, its program's version apart.
    pub(crate) fn is_current(&self) -> bool {
        [FORMAT_VERSION, PACKED_VERSION].contains(&self.format_version)
    }

    /// What the section of code holds where it is packed, and how.
    pub(crate) fn unpacked(&self, bytes: &[u8]) -> Result<Option<(Packed, Vec<u8>)>> {
        self.unpacked.map(|len| Packed::unpack(self.bytes(bytes, Section::Code), len)).transpose()
    }

    /// A section, to be decoded.
    pub(crate) fn reader<'a>(&self, bytes: &'a [u8], section: Section) -> Reader<'a> {
        Reader::new(self.bytes(bytes, section), self.range(section).start, section.name())
    }

    /// Compares a section with its checksum; of the weights' data, which has a checksum for each chunk, those.
    pub(crate) fn check_sum(&self, bytes: &[u8], section: Section) -> Result<()> {
        let at = sum_at(section);
        let content = self.bytes(bytes, if section == Section::Data { Section::Sums } else { section });
        if blake3::hash(content).as_bytes() != &bytes[at..at + SUM] {
            let error = damaged("the checksum does not fit").at(self.range(section).start);
            return Err(error.in_section(section.name()));
        }
        Ok(())
    }

    /// The first chunk of the weights' data in `chunks` whose checksum does not fit, as a range of the section.
    pub(crate) fn damaged_chunk(&self, bytes: &[u8], chunks: Range<usize>) -> Option<Range<usize>> {
        let data = self.bytes(bytes, Section::Data);
        let sums = self.bytes(bytes, Section::Sums);
        chunks.map(|idx| idx * CHUNK..(idx * CHUNK + CHUNK).min(data.len())).find(|range| {
            let sum = range.start / CHUNK * SUM;
            blake3::hash(&data[range.clone()]).as_bytes() != &sums[sum..sum + SUM]
        })
    }

    pub(crate) fn n_chunks(&self) -> usize {
        self.range(Section::Data).len().div_ceil(CHUNK)
    }
}

/// Where the table has the checksum of a section.
fn sum_at(section: Section) -> usize {
    PREFIX + ENTRY * section as usize - SUM
}

/// The range of a section, which starts after `end` with nothing but zeros between.
fn read_entry(
    bytes: &[u8],
    at: usize,
    section: Section,
    end: usize,
    may_be_packed: bool,
) -> Result<Range<usize>> {
    let malformed = || {
        let what = format!("the entry of the {} is not as it must be", section.name());
        PlanError::new(PlanErrorKind::Malformed, what).at(at)
    };
    let is_plain = may_be_packed || u64_at(bytes, at + 24) == Some(0);
    if u32_at(bytes, at) != Some(section as u32) || u32_at(bytes, at + 4) != Some(0) || !is_plain {
        return Err(malformed());
    }
    let number = |at| u64_at(bytes, at).and_then(|value| usize::try_from(value).ok()).ok_or_else(malformed);
    let (start, len) = (number(at + 8)?, number(at + 16)?);
    let range = start..start.checked_add(len).ok_or_else(malformed)?;
    if end.checked_next_multiple_of(ALIGNMENT) != Some(start) || range.end > bytes.len() {
        return Err(malformed());
    }
    match bytes[end..start].iter().position(|byte| *byte != 0) {
        Some(idx) => Err(damaged("the bytes between sections are not zero").at(end + idx)),
        None => Ok(range),
    }
}

fn damaged(what: &str) -> PlanError {
    PlanError::new(PlanErrorKind::Damaged, what)
}

fn truncated(len: usize, how: &str) -> PlanError {
    PlanError::new(PlanErrorKind::Truncated, format!("the file {how}")).at(len)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
}
