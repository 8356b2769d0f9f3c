//! Tactics: named ways to solve a problem, and what each one asks for.

use std::fmt;

use planish_tensor::{Bytes, DType, Tensor};

use crate::{Layout, Operand, Problem};

/// One named way to solve a problem. The name holds all that the backend needs to prepare it again from a
/// plan, as in `conv_winograd4_f32_14x32_avx512`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tactic {
    pub name: String,
    /// Raised when a kernel changes, so that old timings are not taken for it.
    pub revision: u32,
}

impl Tactic {
    pub fn new(name: impl Into<String>, revision: u32) -> Tactic {
        Tactic { name: name.into(), revision }
    }
}

impl fmt::Display for Tactic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.revision)
    }
}

/// How a candidate takes one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    pub layout: Layout,
    /// Whether the operand may lie inside a larger one: strides larger than dense, the innermost still 1.
    pub inside: bool,
    /// Inside a larger one only as a part of its innermost axis, which begins at a whole multiple of
    /// [`Want::ALIGNMENT`] and goes on after such: rows then lie one pitch apart, as they do in a dense operand.
    pub aligned: bool,
}

impl Want {
    /// Bytes: what a GPU's bulk copies ask of addresses and strides.
    pub const ALIGNMENT: usize = 16;

    pub fn dense(layout: Layout) -> Want {
        Want { layout, inside: false, aligned: false }
    }

    pub fn inside(layout: Layout) -> Want {
        Want { layout, inside: true, aligned: false }
    }

    pub fn inside_aligned(layout: Layout) -> Want {
        Want { layout, inside: true, aligned: true }
    }

    /// Whether an operand may lie wherever it may for `other`, in the same layout.
    pub fn takes_all_of(self, other: Want) -> bool {
        self.layout == other.layout && (!other.inside || self.inside && (!self.aligned || other.aligned))
    }

    /// Operands of the output's rank follow its layout; weights and those of other ranks stay plain.
    pub fn following(input: &Operand, rank: usize, layout: Layout) -> Want {
        match input.constant || input.rank() != rank {
            true => Want::dense(Layout::Plain),
            false => Want::inside(layout),
        }
    }

    /// Beside a convolution's image and weight: inputs of the output's sizes are channels-last, as it, and the rest
    /// dense.
    pub fn beside_image(problem: &Problem) -> Vec<Want> {
        let image = problem.outputs.first().map(|output| &output.dims);
        let beside = |operand: &Operand| match Some(&operand.dims) == image && !operand.constant {
            true => Want::inside(Layout::ChannelsLast),
            false => Want::dense(Layout::Plain),
        };
        problem.inputs.iter().map(beside).collect()
    }
}

/// A tactic for one problem, with what it wants and what it is expected to cost.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub tactic: Tactic,
    pub inputs: Vec<Want>,
    pub outputs: Vec<Want>,
    /// For each input the format that it must be packed in; only constant inputs can be.
    pub packed: Vec<Option<String>>,
    /// Expected nanoseconds, from the cost model: what tune level 0 goes by, and what prunes the search.
    pub predicted_ns: f64,
    /// Output `o` may share the memory of input `i`: element by element it reads before it writes.
    pub in_place: Vec<(usize, usize)>,
    /// The reference or another slow way, listed as such in the plan.
    pub slow: bool,
}

impl Candidate {
    /// Of its own kernels, with nothing packed, and outputs apart from inputs.
    pub fn new(tactic: Tactic, inputs: Vec<Want>, outputs: Vec<Want>, predicted_ns: f64) -> Candidate {
        let packed = vec![None; inputs.len()];
        Candidate { tactic, inputs, outputs, packed, predicted_ns, in_place: Vec::new(), slow: false }
    }
}

/// Where a weight is read: as input `input` of the problem, by the tactic.
#[derive(Clone, Copy, Debug)]
pub struct WeightUse<'a> {
    pub problem: &'a Problem,
    pub tactic: &'a Tactic,
    pub input: usize,
}

impl<'a> WeightUse<'a> {
    pub fn new(problem: &'a Problem, tactic: &'a Tactic, input: usize) -> WeightUse<'a> {
        WeightUse { problem, tactic, input }
    }
}

/// What packed bytes hold: a weight of this type and these sizes, arranged as the format says.
#[derive(Clone, Copy, Debug)]
pub struct PackedForm<'a> {
    /// As [`PackedWeight::format`].
    pub format: &'a str,
    pub dtype: DType,
    pub dims: &'a [usize],
}

impl fmt::Display for PackedForm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} packed as `{}`", self.dtype, self.dims, self.format)
    }
}

/// A weight in the form that a tactic reads.
#[derive(Clone, PartialEq, Debug)]
pub struct PackedWeight {
    /// Names the arrangement, as in `panels32`; weights of one format and source are stored once.
    pub format: String,
    pub bytes: Bytes,
}

impl PackedWeight {
    /// What its bytes are, with the weight that was packed.
    pub fn form_of<'a>(&'a self, weight: &'a Tensor) -> PackedForm<'a> {
        PackedForm { format: &self.format, dtype: weight.dtype(), dims: weight.shape() }
    }
}
