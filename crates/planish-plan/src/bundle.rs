//! Several plans of one model in one file, each for another target; weights that they share stand in it once.
//!
//! ```text
//! 0    8   magic, "PLANISH+"
//! 8    4   version of this container
//! 12   4   number of plans
//! 16   8   length of the file
//! 24   8   zero
//! 32  32   BLAKE3 of bytes 0 to 32 and of the table
//! 64  64   for each plan, and for the list of places: offset (8), length (8), zero (16), checksum (32)
//! ```
//!
//! Each plan stands there as a file without weights ([`Plan::strip`]). The list of places says for each plan where in
//! this file each of its weights begins; how long they are the plan says, and its own checksums tell whether they are
//! whole. So the plan that is taken out of a bundle is, bit by bit, the one that was put in, with its certificate. All
//! parts begin at multiples of 64; numbers are little endian.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use planish_tensor::Bytes;

use crate::codec::{Reader, from_section, to_section};
use crate::container::{ALIGNMENT, SUM, u32_at, u64_at};
use crate::error::{PlanError, PlanErrorKind, Result};
use crate::metadata::PlanMetadata;
use crate::record::{Plan, Weight};

const MAGIC: [u8; 8] = *b"PLANISH+";
const VERSION: u32 = 1;
const PREFIX: usize = 64;
const ENTRY: usize = 64;
/// More than there are kinds of machines.
const MAX_PLANS: usize = 256;
const PLACES: &str = "list of places";

/// Whether a file that starts with these bytes is meant to be a bundle of plans; eight are enough to tell.
pub fn is_bundle(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(&MAGIC)
}

/// A file of several plans, open; none of them is read yet but what it says of itself.
#[derive(Clone, Debug)]
pub struct Bundle {
    bytes: Bytes,
    plans: Vec<Range<usize>>,
    members: Vec<PlanMetadata>,
    /// For each plan where its weights begin.
    places: Vec<Vec<u64>>,
}

impl Bundle {
    /// The bytes of a file with these plans, in this order: the one that is to be preferred first.
    pub fn to_bytes(plans: &[Plan]) -> Result<Vec<u8>> {
        let refused = |what: &str| Err(PlanError::new(PlanErrorKind::Inconsistent, what));
        if plans.is_empty() || plans.len() > MAX_PLANS {
            return refused("a bundle has 1 to 256 plans");
        }
        if plans.iter().any(|plan| plan.stripped.is_some()) {
            return refused("a plan without weights cannot be put into a bundle");
        }
        let heads: Vec<Vec<u8>> = plans.iter().map(|plan| plan.strip().to_bytes()).collect::<Result<_>>()?;
        // Places do not change the length of their list: they are eight bytes each.
        let mut places: Vec<Vec<i64>> = plans.iter().map(|plan| vec![0; plan.weights.len()]).collect();
        let mut at = PREFIX + ENTRY * (plans.len() + 1);
        let mut parts: Vec<Range<usize>> = Vec::new();
        for len in heads.iter().map(Vec::len).chain([to_section(&places).len()]) {
            let start = at.next_multiple_of(ALIGNMENT);
            parts.push(start..start + len);
            at = start + len;
        }
        let mut known: HashMap<&[u8], usize> = HashMap::new();
        let mut pool: Vec<(usize, &Weight)> = Vec::new();
        for (plan, places) in plans.iter().zip(&mut places) {
            for (weight, place) in plan.weights.iter().zip(places) {
                let start = *known.entry(&weight.bytes).or_insert_with(|| {
                    let start = at.next_multiple_of(ALIGNMENT);
                    pool.push((start, weight));
                    at = start + weight.bytes.len();
                    start
                });
                *place = start as i64;
            }
        }
        let places = to_section(&places);
        let contents: Vec<&[u8]> = heads.iter().map(Vec::as_slice).chain([places.as_slice()]).collect();
        let mut table = Vec::new();
        for (part, content) in parts.iter().zip(&contents) {
            table.extend_from_slice(&(part.start as u64).to_le_bytes());
            table.extend_from_slice(&(part.len() as u64).to_le_bytes());
            table.extend_from_slice(&[0; 16]);
            table.extend_from_slice(blake3::hash(content).as_bytes());
        }
        let mut bytes = Vec::with_capacity(at);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(plans.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(at as u64).to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        let sum = *blake3::Hasher::new().update(&bytes).update(&table).finalize().as_bytes();
        bytes.extend_from_slice(&sum);
        bytes.extend_from_slice(&table);
        for (part, content) in parts.iter().zip(&contents) {
            bytes.resize(part.start, 0);
            bytes.extend_from_slice(content);
        }
        for (start, weight) in pool {
            bytes.resize(start, 0);
            bytes.extend_from_slice(&weight.bytes);
        }
        Ok(bytes)
    }

    /// Writes a file of these plans, at once or not at all, and reads it back; gives its length.
    pub fn write_file(plans: &[Plan], path: &Path) -> Result<u64> {
        let refused = |error: io::Error| PlanError::io("write it", &error).in_file(path);
        let bytes = Bundle::to_bytes(plans).map_err(|error| error.in_file(path))?;
        let mut file = planish_files::NewFile::create(path).map_err(refused)?;
        file.writer().write_all(&bytes).map_err(refused)?;
        if let Some(written) = file.written().map_err(refused)? {
            let opened = Bundle::open(written)?;
            for idx in 0..plans.len() {
                opened.plan(idx).map_err(|error| error.in_file(path))?;
            }
        }
        file.commit().map_err(refused)
    }

    /// Opens a file of several plans: its table, its list of places and what each plan says of itself are verified.
    pub fn open(path: &Path) -> Result<Bundle> {
        let bytes = Bytes::map_file(path).map_err(|error| PlanError::io("read it", &error));
        bytes.and_then(Bundle::from_bytes).map_err(|error| error.in_file(path))
    }

    /// The same from a copy of the file in memory.
    pub fn open_copied(path: &Path) -> Result<Bundle> {
        let bytes = Bytes::read_file(path).map_err(|error| PlanError::io("read it", &error));
        bytes.and_then(Bundle::from_bytes).map_err(|error| error.in_file(path))
    }

    /// The same of a file with these bytes.
    pub fn from_bytes(bytes: Bytes) -> Result<Bundle> {
        let malformed = |what: &str| PlanError::new(PlanErrorKind::Malformed, what);
        if !is_bundle(&bytes) {
            return Err(PlanError::new(PlanErrorKind::NotAPlan, "this is not a bundle of plans"));
        }
        let cut =
            || PlanError::new(PlanErrorKind::Truncated, "the file ends within its table").at(bytes.len());
        let version = u32_at(&bytes, 8).ok_or_else(cut)?;
        if version != VERSION {
            let what = format!("the bundle has version {version}, this Planish reads version {VERSION}");
            return Err(PlanError::new(PlanErrorKind::NewerFormat, what).at(8));
        }
        let n_plans = u32_at(&bytes, 12).ok_or_else(cut)? as usize;
        if !(1..=MAX_PLANS).contains(&n_plans) {
            return Err(malformed("a bundle has 1 to 256 plans").at(12));
        }
        let prefix = bytes.get(..PREFIX).ok_or_else(cut)?;
        let table = bytes.get(PREFIX..PREFIX + ENTRY * (n_plans + 1)).ok_or_else(cut)?;
        let sum = *blake3::Hasher::new().update(&prefix[..PREFIX - SUM]).update(table).finalize().as_bytes();
        if sum != prefix[PREFIX - SUM..] {
            let what = "the checksum of the table of plans does not fit";
            return Err(PlanError::new(PlanErrorKind::Damaged, what).at(0));
        }
        if u64_at(&bytes, 16) != Some(bytes.len() as u64) {
            return Err(PlanError::new(
                PlanErrorKind::Truncated,
                "the file has another length than when written",
            ));
        }
        let part = |idx: usize| -> Result<Range<usize>> {
            let at = PREFIX + ENTRY * idx;
            let number = |at| u64_at(&bytes, at).and_then(|value| usize::try_from(value).ok());
            let range =
                number(at).zip(number(at + 8)).and_then(|(start, len)| Some(start..start.checked_add(len)?));
            let range =
                range.filter(|range| range.start.is_multiple_of(ALIGNMENT) && range.end <= bytes.len());
            let range = range.ok_or_else(|| malformed("a plan lies outside of the file").at(at))?;
            if blake3::hash(&bytes[range.clone()]).as_bytes() != &bytes[at + 32..at + 64] {
                let what = if idx == n_plans { PLACES.to_string() } else { format!("plan {idx}") };
                let error = PlanError::new(
                    PlanErrorKind::Damaged,
                    format!("the checksum of the {what} does not fit"),
                );
                return Err(error.at(range.start));
            }
            Ok(range)
        };
        let plans: Vec<Range<usize>> = (0..n_plans).map(part).collect::<Result<_>>()?;
        let listed = part(n_plans)?;
        let places: Vec<Vec<i64>> = from_section(Reader::new(&bytes[listed.clone()], listed.start, PLACES))?;
        if places.len() != n_plans {
            return Err(malformed("the list of places is not one for each plan").in_section(PLACES));
        }
        let mut members = Vec::with_capacity(n_plans);
        for (idx, range) in plans.iter().enumerate() {
            let member = PlanMetadata::from_bytes(&bytes[range.clone()]);
            let member = member.map_err(|error| error.in_plan(idx))?;
            if !member.is_stripped {
                return Err(malformed("a plan has weights of its own").in_plan(idx));
            }
            members.push(PlanMetadata { is_stripped: false, ..member });
        }
        let places = places.into_iter().map(|list| list.into_iter().map(|at| at as u64).collect()).collect();
        Ok(Bundle { bytes, plans, members, places })
    }

    /// What each plan says of itself, the one that is to be preferred first.
    pub fn members(&self) -> &[PlanMetadata] {
        &self.members
    }

    /// One of the plans; all of it is verified, its weights included. They stay in the file's memory.
    pub fn plan(&self, idx: usize) -> Result<Plan> {
        let range = self.plans.get(idx).cloned();
        let range =
            range.ok_or_else(|| PlanError::new(PlanErrorKind::Inconsistent, "there is no such plan"))?;
        let head =
            self.bytes.slice(range).ok_or_else(|| PlanError::new(PlanErrorKind::Truncated, "it ends"))?;
        let stripped = Plan::from_bytes(head).map_err(|error| error.in_plan(idx))?;
        let places = &self.places[idx];
        let wrong = |what: &str| PlanError::new(PlanErrorKind::Malformed, what).in_plan(idx);
        if places.len() != stripped.weights.len() {
            return Err(wrong("not every weight has a place"));
        }
        let mut weights = stripped.weights.clone();
        for (at, (weight, &start)) in weights.iter_mut().zip(places).enumerate() {
            let start = usize::try_from(start).ok().filter(|start| start.is_multiple_of(ALIGNMENT));
            let len = usize::try_from(stripped.stored_len(at)).ok();
            let range = start.zip(len).and_then(|(start, len)| Some(start..start.checked_add(len)?));
            weight.bytes = range
                .and_then(|range| self.bytes.slice(range))
                .ok_or_else(|| wrong("a weight lies outside of the file"))?;
        }
        let (plan, is_whole) = stripped.refill(weights);
        if !is_whole {
            let what = "the checksum of its weights does not fit";
            return Err(PlanError::new(PlanErrorKind::Damaged, what).in_plan(idx));
        }
        Ok(plan)
    }

    /// The checksum of the table, which stands for every byte of all plans: this is what is signed.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut sum = [0; SUM];
        sum.copy_from_slice(&self.bytes[PREFIX - SUM..PREFIX]);
        sum
    }

    pub fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}
