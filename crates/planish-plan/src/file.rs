//! A plan as a file: encoded, decoded, written in one piece, opened with its weights left where they are.

use std::io::{self, Write};
use std::path::Path;
use std::thread;

use planish_tensor::Bytes;

use crate::codec::Reader;
use crate::codec::{WeightEntry, WeightList, from_section, to_section};
use crate::container::{
    self, ALIGNMENT, ChunkSums, Data, Digests, FORMAT_VERSION, PROGRAM_VERSION, Section, Table,
};
use crate::error::{PlanError, PlanErrorKind, Result};
use crate::packed::Packed;
use crate::recipe::Recipe;
use crate::record::{Certificate, Check, Plan, Ports, Weight};
use crate::stripped::Stripped;

/// Threads that verify weights; more only wait for memory.
const MAX_THREADS: usize = 8;

/// Below this many chunks (MiB) for a thread, starting it costs more than it saves.
const CHUNKS_PER_THREAD: usize = 8;

/// Whether weights are read while a plan is opened, to compare them with their checksums.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    Nothing,
    Weights,
}

/// Whether a file that starts with these bytes is meant to be a plan; eight are enough to tell.
pub fn is_plan(first_bytes: &[u8]) -> bool {
    container::is_plan(first_bytes)
}

/// A file with these contents of the coded sections and these weights, its checksums in order: what tests
/// that mistrust the reader start from.
#[doc(hidden)]
pub fn seal(coded: &[Vec<u8>; Section::N_CODED], data: &[u8]) -> Vec<u8> {
    let mut sums = ChunkSums::default();
    sums.update(data);
    let (sums, len) = sums.finish();
    let mut bytes = container::head(coded, Data::Here(sums, len), None);
    bytes.extend_from_slice(data);
    bytes
}

/// The same without the weights, of which the checksums are given, and with packed code in the place of the code, said to
/// be so long when it is unpacked.
#[doc(hidden)]
pub fn seal_packed(coded: &[Vec<u8>; Section::N_CODED], sums: &[u8], unpacked: u64) -> Vec<u8> {
    let bytes = coded[Section::Code as usize - 1].clone();
    let packed = Packed { bytes, len: unpacked, of: Default::default() };
    container::head(coded, Data::LeftOut(sums.to_vec()), Some(&packed))
}

/// The opposite of [`seal`]; packed code stays so.
#[doc(hidden)]
pub fn unseal(bytes: &[u8]) -> Result<([Vec<u8>; Section::N_CODED], Vec<u8>)> {
    Ok(Table::read(bytes)?.unseal(bytes))
}

impl Plan {
    /// Writes the plan to a file, which appears under its name only when it is complete. Returns its length.
    ///
    /// The bytes depend on the plan alone. A plan that could not be opened again is refused, and what was written is
    /// read back and verified before it takes the place of an older one.
    pub fn write_file(&self, path: &Path) -> Result<u64> {
        let head = self.head().map_err(|error| error.in_file(path))?;
        let refused = |error: io::Error| PlanError::io("write it", &error).in_file(path);
        let mut file = planish_files::NewFile::create(path).map_err(refused)?;
        let mut write = |piece: &[u8]| file.writer().write_all(piece).map_err(refused);
        write(&head)?;
        self.data().try_for_each(write)?;
        if let Some(written) = file.written().map_err(refused)? {
            read_back(written, &head).map_err(|error| error.in_file(path))?;
        }
        file.commit().map_err(refused)
    }

    /// The length of the plan's file.
    pub fn file_bytes(&self) -> Result<u64> {
        let data: usize = self.data().map(<[u8]>::len).sum();
        Ok((self.head()?.len() + data) as u64)
    }

    /// The bytes of the plan's file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = self.head()?;
        for piece in self.data() {
            bytes.extend_from_slice(piece);
        }
        Ok(bytes)
    }

    /// Opens a plan file. All of it is verified, weights included (about 4 GB/s a thread); they stay in the
    /// mapped file until they are used.
    ///
    /// The file may be replaced (by renaming, as [`Plan::write_file`] does) but must not be changed in place
    /// while the plan lives: [`Plan::open_copied`] is for files that may be.
    pub fn open(path: &Path) -> Result<Plan> {
        open(path, Trust::Nothing)
    }

    /// Opens a plan file by reading all of it into memory, and verifies that copy: whatever becomes of the file
    /// afterwards, the plan stays what was verified.
    pub fn open_copied(path: &Path) -> Result<Plan> {
        let read = Bytes::read_file(path).map_err(|error| PlanError::io("read it", &error));
        read.and_then(|bytes| decode(&bytes, Trust::Nothing)).map_err(|error| error.in_file(path))
    }

    /// Opens a plan file without reading its weights: for files that nobody can have damaged since they were
    /// verified. The structure is verified all the same.
    pub fn open_trusted(path: &Path) -> Result<Plan> {
        open(path, Trust::Weights)
    }

    /// The plan that a file with these bytes holds, all of it verified. Weights share the memory and start at
    /// multiples of 64 bytes from its start.
    pub fn from_bytes(bytes: Bytes) -> Result<Plan> {
        decode(&bytes, Trust::Nothing)
    }

    /// The checksum of the table of sections.
    pub(crate) fn table_sum(&self) -> Result<[u8; 32]> {
        Ok(container::table_sum_of(&self.encode()?.0))
    }

    /// Makes these the findings of a self-check of this very plan: whatever of it changes after this, the certificate
    /// is no longer its own.
    pub fn certify(&mut self, checks: Vec<Check>) -> Result<()> {
        self.certificate = Certificate::new(checks);
        let (head, packed) = self.encode()?;
        self.certificate.of = Some(Digests::in_table(&head, packed.as_ref()));
        Ok(())
    }

    /// The file up to the weights' data.
    fn head(&self) -> Result<Vec<u8>> {
        let (head, packed) = self.encode()?;
        check_certificate(&self.certificate, &head, packed.as_ref())?;
        Ok(head)
    }

    /// The same without a look at the certificate, and how its code is packed, if it is.
    fn encode(&self) -> Result<(Vec<u8>, Option<Packed>)> {
        self.validate()?;
        let entry = |(idx, weight): (usize, &Weight)| WeightEntry {
            name: weight.name.clone(),
            dtype: weight.dtype,
            dims: weight.dims.clone(),
            layout: weight.layout,
            format: weight.format.clone(),
            packed_by: weight.packed_by,
            narrowed: weight.narrowed,
            n_bytes: self.stored_len(idx),
        };
        let coded = [
            [to_section(&self.header), to_section(&Ports::of(&self.program))].concat(),
            [to_section(&self.roles), to_section(&self.program)].concat(),
            to_section(&WeightList {
                entries: self.weights.iter().enumerate().map(entry).collect(),
                constants: self.constants.clone(),
            }),
            self.graph.clone().into_bytes(),
            to_section(&self.evidence),
            to_section(&self.certificate),
            to_section(&self.code),
        ];
        let data = match &self.stripped {
            Some(stripped) => Data::LeftOut(stripped.sums.clone()),
            None => {
                let (sums, len) = self.sums().finish();
                Data::Here(sums, len)
            }
        };
        let packed =
            self.stripped.as_ref().and_then(|stripped| stripped.packed(&coded[Section::Code as usize - 1]));
        Ok((container::head(&coded, data, packed.as_ref()), packed))
    }

    /// Whether the plan is the very one that its certificate was made for.
    pub fn certificate_holds(&self) -> Result<bool> {
        let (head, packed) = self.encode()?;
        let held = check_certificate(&self.certificate, &head, packed.as_ref());
        Ok(self.certificate.of.is_some() && held.is_ok())
    }

    /// The weights' data, with the zeros that bring each weight to its place.
    pub(crate) fn data(&self) -> impl Iterator<Item = &[u8]> {
        let last = self.weights.len().saturating_sub(1);
        self.weights.iter().enumerate().flat_map(move |(idx, weight)| {
            let len = weight.bytes.len();
            let padding = if idx == last { 0 } else { len.next_multiple_of(ALIGNMENT) - len };
            [&*weight.bytes, &[0; ALIGNMENT][..padding]]
        })
    }
}

fn open(path: &Path, trust: Trust) -> Result<Plan> {
    let bytes = Bytes::map_file(path).map_err(|error| PlanError::io("read it", &error).in_file(path))?;
    decode(&bytes, trust).map_err(|error| error.in_file(path))
}

fn decode(bytes: &Bytes, trust: Trust) -> Result<Plan> {
    let table = Table::read(bytes)?;
    let (Recipe { header, weights, graph, constants, stripped }, ports) = Recipe::read(bytes, &table)?;
    if !table.is_current() {
        let (other, producer) = (table.format_version, &header.producer);
        let what = format!(
            "the plan has format version {other}, built by Planish {producer}; this one runs version {FORMAT_VERSION}"
        );
        return Err(PlanError::new(PlanErrorKind::OtherProgram, what));
    }
    if table.program_version != PROGRAM_VERSION {
        let (other, producer) = (table.program_version, &header.producer);
        let what = format!(
            "the program is of version {other}, built by Planish {producer}; this one reads {PROGRAM_VERSION}"
        );
        return Err(PlanError::new(PlanErrorKind::OtherProgram, what));
    }
    let (roles, program) = from_section(table.reader(bytes, Section::Program))?;
    let unpacked = table.unpacked(bytes)?;
    let code = match &unpacked {
        Some((_, plain)) => Reader::new(plain, table.range(Section::Code).start, Section::Code.name()),
        None => table.reader(bytes, Section::Code),
    };
    let code = from_section(code)?;
    let packed = unpacked.map(|(packed, _)| packed);
    let plan = Plan {
        header,
        roles,
        program,
        weights,
        graph,
        constants,
        evidence: from_section(table.reader(bytes, Section::Evidence))?,
        certificate: from_section(table.reader(bytes, Section::Certificate))?,
        code,
        stripped: stripped.map(|stripped| Stripped { code: packed.clone(), ..stripped }),
    };
    plan.validate()?;
    if ports != Ports::of(&plan.program) {
        let what = "the inputs and outputs are not those of the program";
        return Err(PlanError::new(PlanErrorKind::Inconsistent, what).in_section(Section::Header.name()));
    }
    check_certificate(&plan.certificate, bytes, packed.as_ref())?;
    check_data(bytes, &table, &plan.weights, trust)?;
    Ok(plan)
}

/// Refuses a certificate that was made for another plan; `bytes` have the table of the plan that it came with.
fn check_certificate(certificate: &Certificate, bytes: &[u8], packed: Option<&Packed>) -> Result<()> {
    let of = certificate.of.as_ref();
    match of.and_then(|of| of.differs_from(&Digests::in_table(bytes, packed))) {
        None => Ok(()),
        Some(section) => {
            let what = format!("the certificate was made for a plan with another {}", section.name());
            let error = PlanError::new(PlanErrorKind::OtherCertificate, what);
            Err(error.in_section(Section::Certificate.name()))
        }
    }
}

/// Compares a file that was just written with what was to be written: all of it is verified as if it were opened.
fn read_back(path: &Path, head: &[u8]) -> Result<()> {
    let bytes = Bytes::map_file(path).map_err(|error| PlanError::io("read it back", &error))?;
    if !bytes.starts_with(head) {
        let what = "what was read back is not what was written";
        return Err(PlanError::new(PlanErrorKind::Damaged, what));
    }
    // Everything after the head is under the sums that the head holds.
    decode(&bytes, Trust::Nothing).map(drop)
}

/// The weights over the file's own memory.
pub(crate) fn weights(
    bytes: &Bytes,
    table: &Table,
    entries: Vec<WeightEntry>,
) -> Result<(Vec<Weight>, Option<Stripped>)> {
    if table.is_stripped {
        let lengths = entries.iter().map(|entry| entry.n_bytes).collect();
        let stripped = Stripped::new(lengths, table.bytes(bytes, Section::Sums))
            .map_err(|error| error.in_section(Section::Weights.name()))?;
        let weights = entries.into_iter().map(|entry| weight(entry, Bytes::from_vec(Vec::<u8>::new())));
        return Ok((weights.collect(), Some(stripped)));
    }
    let data = table.range(Section::Data);
    let wrong_length =
        |what: String| PlanError::new(PlanErrorKind::Malformed, what).in_section(Section::Weights.name());
    let mut end = data.start;
    let mut weights = Vec::with_capacity(entries.len());
    for entry in entries {
        let start = end.next_multiple_of(ALIGNMENT);
        let slice = usize::try_from(entry.n_bytes)
            .ok()
            .and_then(|len| start.checked_add(len))
            .filter(|end| *end <= data.end)
            .and_then(|end| bytes.slice(start..end));
        let Some(slice) = slice else {
            let name = crate::error::shorten(&entry.name);
            return Err(wrong_length(format!("weight `{name}` of {} bytes has no room", entry.n_bytes)));
        };
        end = start + slice.len();
        weights.push(weight(entry, slice));
    }
    if end != data.end {
        return Err(wrong_length(format!("{} bytes of weights belong to none", data.end - end)));
    }
    Ok((weights, None))
}

fn weight(entry: WeightEntry, bytes: Bytes) -> Weight {
    let WeightEntry { name, dtype, dims, layout, format, packed_by, narrowed, .. } = entry;
    Weight { name, dtype, dims, layout, format, packed_by, narrowed, bytes }
}

/// Compares the weights' data with its checksums, on several threads where there is much of it.
pub(crate) fn check_data(bytes: &[u8], table: &Table, weights: &[Weight], trust: Trust) -> Result<()> {
    if trust == Trust::Weights {
        return Ok(());
    }
    let n_chunks = table.n_chunks();
    let n_cores = thread::available_parallelism().map_or(1, usize::from);
    let n_threads = n_cores.min(MAX_THREADS).min(n_chunks / CHUNKS_PER_THREAD).max(1);
    let share = |idx: usize| n_chunks * idx / n_threads..n_chunks * (idx + 1) / n_threads;
    let damaged = thread::scope(|scope| {
        let others: Vec<_> = (1..n_threads)
            .map(|idx| {
                let look = move || table.damaged_chunk(bytes, share(idx));
                thread::Builder::new().spawn_scoped(scope, look).map_err(|_| idx)
            })
            .collect();
        let own = table.damaged_chunk(bytes, share(0));
        let join = |thread: std::result::Result<thread::ScopedJoinHandle<'_, _>, usize>| match thread {
            Ok(thread) => thread.join(),
            // The system gave no more threads.
            Err(idx) => Ok(table.damaged_chunk(bytes, share(idx))),
        };
        let others: Vec<_> = others.into_iter().map(join).collect();
        let found = others.into_iter().find_map(|found| match found {
            Ok(found) => found,
            // Hashing does not panic; if it did, nothing would be known of these chunks.
            Err(_) => Some(0..table.range(Section::Data).len()),
        });
        own.or(found)
    });
    let Some(damaged) = damaged else { return Ok(()) };
    let start = table.range(Section::Data).start;
    let touched = |weight: &&Weight| {
        let at = weight.bytes.as_ptr() as usize - bytes.as_ptr() as usize - start;
        at < damaged.end && damaged.start < at + weight.bytes.len()
    };
    let names: Vec<_> = weights.iter().filter(touched).map(|weight| weight.name.as_str()).collect();
    let shown = names.iter().take(3).map(|name| crate::error::shorten(name)).collect::<Vec<_>>().join("`, `");
    let more = if names.len() > 3 { format!(" or {} others", names.len() - 3) } else { String::new() };
    let what = format!("the checksum of weights does not fit: `{shown}`{more} changed");
    let error = PlanError::new(PlanErrorKind::Damaged, what).at(start + damaged.start);
    Err(error.in_section(Section::Data.name()))
}
