//! What a plan file says of itself, read without the rest of it: the table of sections, the header and the certificate.

use std::path::Path;

use planish_tensor::Bytes;

use crate::codec::from_section;
use crate::container::{PROGRAM_VERSION, Section, Table};
use crate::error::{PlanError, Result};
use crate::recipe::read_header;
use crate::record::{Certificate, CertificateState, Header, Port, Ports};

/// What a plan file says of itself. Table, header and certificate are compared with their checksums; program, weights and
/// code are not read, so this says nothing of whether the plan can be opened.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct PlanMetadata {
    /// The version of the format that the file has.
    pub format_version: u32,
    /// The version of the program's encoding.
    pub program_version: u32,
    /// Whether this version of Planish reads the program; else the plan is built again from its graph and weights.
    pub is_current: bool,
    /// Name, producer, source, options, targets, profiles, sizes tuned at, threads, and pairs of the user's own.
    pub header: Header,
    /// In the model's order; empty for plans of formats that did not say.
    pub inputs: Vec<Port>,
    /// In the model's order; empty for plans of formats that did not say.
    pub outputs: Vec<Port>,
    pub file_bytes: u64,
    /// Bytes of weights in the file.
    pub weight_bytes: u64,
    /// Bytes of compiled code in the file, with what names it.
    pub code_bytes: u64,
    /// Whether the weights were left out.
    pub is_stripped: bool,
    /// Whether the plan says that it was checked; nothing where this version cannot read what it says.
    pub certificate: Option<CertificateState>,
}

impl PlanMetadata {
    /// Reads it from a plan file, whatever its size.
    pub fn read(path: &Path) -> Result<PlanMetadata> {
        let bytes = Bytes::map_file(path).map_err(|error| PlanError::io("read it", &error));
        bytes.and_then(|bytes| PlanMetadata::from_bytes(&bytes)).map_err(|error| error.in_file(path))
    }

    /// The same of a file with these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<PlanMetadata> {
        let table = Table::locate(bytes)?;
        table.check_sum(bytes, Section::Header)?;
        let (header, Ports { inputs, outputs }) = read_header(bytes, &table)?;
        let is_current = table.is_current() && table.program_version == PROGRAM_VERSION;
        let certificate = match is_current {
            true => {
                table.check_sum(bytes, Section::Certificate)?;
                let certificate: Certificate = from_section(table.reader(bytes, Section::Certificate))?;
                Some(certificate.state())
            }
            false => None,
        };
        let len_of = |section| table.range(section).len() as u64;
        Ok(PlanMetadata {
            format_version: table.format_version,
            program_version: table.program_version,
            is_current,
            header,
            inputs,
            outputs,
            file_bytes: bytes.len() as u64,
            weight_bytes: len_of(Section::Data),
            code_bytes: len_of(Section::Code),
            is_stripped: table.is_stripped,
            certificate,
        })
    }

    /// What the plan computes in, as `--precision` names it.
    pub fn precision(&self) -> &str {
        let named = self.header.options.lines().find_map(|line| line.strip_prefix("precision="));
        named.unwrap_or("fp32")
    }
}
