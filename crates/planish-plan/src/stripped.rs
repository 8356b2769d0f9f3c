//! Plans without the bytes of their weights: the file as it was, its last section left out.
//!
//! All else stays byte by byte, the lengths of weights and their checksums included; code is packed. So whoever fills such a plan again
//! ([`Plan::refill`]) can tell whether the weights are those that it had: then it is the plan that was stripped, its
//! certificate holds, and so does a signature of it.

use planish_tensor::Bytes;

use crate::codec::to_section;
use crate::container::{ALIGNMENT, CHUNK, ChunkSums, SUM};
use crate::error::{PlanError, PlanErrorKind, Result};
use crate::packed::Packed;
use crate::record::{Plan, Weight};

/// What is left of the bytes of a plan's weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stripped {
    /// How many bytes each weight has.
    pub(crate) lengths: Vec<u64>,
    /// BLAKE3 of each MiB of all of them, one after the other as in the file.
    pub(crate) sums: Vec<u8>,
    /// The plan's code as its file has it, if that is packed.
    pub(crate) code: Option<Packed>,
}

impl Stripped {
    /// What a file says, if there are as many checksums as its lengths need.
    pub(crate) fn new(lengths: Vec<u64>, sums: &[u8]) -> Result<Stripped> {
        let wrong = |what: &str| PlanError::new(PlanErrorKind::Malformed, what);
        let mut end = 0u64;
        for len in &lengths {
            let start = end.checked_next_multiple_of(ALIGNMENT as u64);
            end = start
                .and_then(|start| start.checked_add(*len))
                .ok_or_else(|| wrong("the weights that were left out are larger than any file"))?;
        }
        if Some(sums.len() as u64) != end.div_ceil(CHUNK as u64).checked_mul(SUM as u64) {
            return Err(wrong("the checksums of the weights that were left out are not one for each MiB"));
        }
        Ok(Stripped { lengths, sums: sums.to_vec(), code: None })
    }

    /// How this section of code is packed, if it is. What came from a file stays as it was there, whatever would pack it
    /// today: so a plan that was opened has the fingerprint of its file.
    pub(crate) fn packed(&self, code: &[u8]) -> Option<Packed> {
        let packed = self.code.as_ref()?;
        match packed.of == *blake3::hash(code).as_bytes() {
            true => Some(packed.clone()),
            false => Packed::new(code),
        }
    }

    /// Bytes that were left out.
    pub fn n_bytes(&self) -> u64 {
        self.lengths.iter().sum()
    }
}

impl Plan {
    /// The plan without the bytes of its weights. It cannot run until [`Plan::refill`] gave it some.
    pub fn strip(&self) -> Plan {
        if self.stripped.is_some() {
            return self.clone();
        }
        let lengths = self.weights.iter().map(|weight| weight.bytes.len() as u64).collect();
        let sums = self.sums().finish().0;
        let empty = |weight: &Weight| Weight { bytes: Bytes::from_vec(Vec::<u8>::new()), ..weight.clone() };
        let weights = self.weights.iter().map(empty).collect();
        let code = Packed::new(&to_section(&self.code));
        Plan { weights, stripped: Some(Stripped { lengths, sums, code }), ..self.clone() }
    }

    /// A stripped plan with these weights, and whether they are, bit by bit, those that it had.
    pub fn refill(&self, weights: Vec<Weight>) -> (Plan, bool) {
        let filled = Plan { weights, stripped: None, ..self.clone() };
        let is_same = self.stripped.as_ref().is_some_and(|stripped| {
            let lengths = filled.weights.iter().map(|weight| weight.bytes.len() as u64);
            lengths.eq(stripped.lengths.iter().copied()) && filled.sums().finish().0 == stripped.sums
        });
        (filled, is_same)
    }

    /// Whether it runs as another one does, but for the elements of its weights: the same program on the same targets, with
    /// weights of the same sizes, types and forms.
    pub fn runs_as(&self, other: &Plan) -> bool {
        let form = |weight: &Weight| (weight.dtype, weight.dims.clone(), weight.layout);
        let coded = |plan: &Plan| (to_section(&plan.roles), to_section(&plan.program));
        self.header.producer == other.header.producer
            && self.header.targets == other.header.targets
            && self.header.profiles == other.header.profiles
            && self.weights.iter().map(form).eq(other.weights.iter().map(form))
            && coded(self) == coded(other)
    }

    /// The checksums of the weights' data.
    pub(crate) fn sums(&self) -> ChunkSums {
        let mut sums = ChunkSums::default();
        self.data().for_each(|piece| sums.update(piece));
        sums
    }

    /// How many bytes a weight has in the file, or had.
    pub(crate) fn stored_len(&self, weight: usize) -> u64 {
        match &self.stripped {
            Some(stripped) => stripped.lengths[weight],
            None => self.weights[weight].bytes.len() as u64,
        }
    }
}
