//! The structures of a plan, as the compiler writes and the runtime reads them. Their fields, in this order, are what
//! the file holds.

use planish_kernel::{Code, Layout, MemoryKind, Numeric, PackedForm, Region, Tactic, Target};
use planish_op::ValueType;
use planish_tensor::{Bytes, DType, Dim};

use crate::codec::{Reader, Stored, Writer, stored_record};
use crate::container::Digests;
use crate::error::Result;
use crate::stripped::Stripped;

stored_record! {
    /// What a plan says of itself, ahead of what it runs. Every later version can read it.
    #[derive(Clone, PartialEq, Debug, Default)]
    pub struct Header {
        /// The model's name.
        pub name: String,
        /// The version of Planish that built it.
        pub producer: String,
        /// Hash of the source model with its external data.
        pub source: [u8; 32],
        /// The build's options, one `name=value` a line, sorted.
        pub options: String,
        /// What each backend in use must have; steps name them by index.
        pub targets: Vec<Target>,
        /// What shapes it may run at; empty for a plan that runs at any shape the model accepts.
        pub profiles: Vec<Profile>,
        /// Sizes that it was tuned at, for each symbol.
        pub tuned_at: Vec<(String, i64)>,
        /// The most threads that it was tuned for.
        pub threads: u32,
        /// Pairs of the user's own, by ascending key, each once.
        pub metadata: Vec<(String, String)>,
    }
}

stored_record! {
    /// The header as format 4 had it.
    #[derive(Debug)]
    pub(crate) struct Header4 {
        name: String,
        producer: String,
        source: [u8; 32],
        options: String,
        targets: Vec<Target>,
        profiles: Vec<Profile>,
        tuned_at: Vec<(String, i64)>,
        threads: u32,
    }
}

impl From<Header4> for Header {
    fn from(old: Header4) -> Header {
        let Header4 { name, producer, source, options, targets, profiles, tuned_at, threads } = old;
        let metadata = Vec::new();
        Header { name, producer, source, options, targets, profiles, tuned_at, threads, metadata }
    }
}

stored_record! {
    /// An input or an output, as the header's section has it: a copy of what the program says, for those who do not
    /// read the program.
    #[derive(Clone, PartialEq, Debug)]
    pub struct Port {
        pub name: String,
        pub ty: ValueType,
    }
}

stored_record! {
    /// All inputs and outputs, in the model's order.
    #[derive(Clone, PartialEq, Debug, Default)]
    pub(crate) struct Ports {
        pub(crate) inputs: Vec<Port>,
        pub(crate) outputs: Vec<Port>,
    }
}

impl Ports {
    /// Those of a program whose indices were validated.
    pub(crate) fn of(program: &Program) -> Ports {
        let port = |&idx: &u32| {
            let Value { name, ty, .. } = &program.values[idx as usize];
            Port { name: name.clone(), ty: ty.clone() }
        };
        Ports {
            inputs: program.inputs.iter().map(port).collect(),
            outputs: program.outputs.iter().map(port).collect(),
        }
    }
}

/// What a target is to its plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Where the caller's inputs and outputs are, and where operators run that no device can. Every plan has one.
    Host,
    /// Has memory of its own, and queues that run beside the host. A plan has at most one.
    Device,
}

impl From<MemoryKind> for Role {
    fn from(kind: MemoryKind) -> Role {
        match kind {
            MemoryKind::Host => Role::Host,
            MemoryKind::Device => Role::Device,
        }
    }
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Host => "host",
            Role::Device => "device",
        }
    }
}

/// Everything that a plan file holds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    pub header: Header,
    /// Of each target of the header.
    pub roles: Vec<Role>,
    pub program: Program,
    pub weights: Vec<Weight>,
    /// The optimized graph as text, so that another machine can lower it anew.
    pub graph: String,
    /// For each constant `#n` of the graph's text the weight that holds it. Constants that no step reads, or that
    /// steps hold as parameters, have weights too.
    pub constants: Vec<u32>,
    /// Why each tactic was chosen.
    pub evidence: Vec<Evidence>,
    pub certificate: Certificate,
    /// Compiled code that backends need for the plan's kernels, by ascending key, each once.
    pub code: Vec<Code>,
    /// What is known of the weights' bytes where they were left out; all weights are empty then.
    pub stripped: Option<Stripped>,
}

impl Plan {
    /// The target where the caller's inputs and outputs are.
    pub fn host(&self) -> u32 {
        self.target_of(Role::Host).unwrap_or(0)
    }

    /// The target with memory of its own, where the plan has one.
    pub fn device(&self) -> Option<u32> {
        self.target_of(Role::Device)
    }

    /// What the plan is for: its device where it has one, else the host.
    pub fn runs_on(&self) -> &Target {
        &self.header.targets[self.device().unwrap_or(self.host()) as usize]
    }

    fn target_of(&self, role: Role) -> Option<u32> {
        self.roles.iter().position(|known| *known == role).map(|target| target as u32)
    }
}

stored_record! {
    /// A range for each symbol, and the sizes that were tuned for.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Profile {
        pub ranges: Vec<SymbolRange>,
    }
}

stored_record! {
    /// The sizes that one symbol may take.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct SymbolRange {
        pub symbol: String,
        pub min: i64,
        pub opt: i64,
        pub max: i64,
    }
}

stored_record! {
    /// Steps over values. Bodies of control flow are programs too.
    #[derive(Clone, PartialEq, Debug, Default)]
    pub struct Program {
        pub values: Vec<Value>,
        /// Indices of values.
        pub inputs: Vec<u32>,
        pub outputs: Vec<u32>,
        pub steps: Vec<Step>,
    }
}

stored_record! {
    /// One value of a program.
    #[derive(Clone, PartialEq, Debug)]
    pub struct Value {
        /// The name in the graph; outputs and inputs are found by it.
        pub name: String,
        pub ty: ValueType,
        pub layout: Layout,
        pub storage: Storage,
        /// The backend in whose memory it lies: an index into the plan's targets.
        pub target: u32,
    }
}

/// Where a value's memory is.
#[derive(Clone, PartialEq, Debug)]
pub enum Storage {
    /// The caller's, an input of the program.
    Input,
    /// A weight of the plan.
    Weight(u32),
    /// The context's arena; where exactly is settled per shape from when it is first written and last read.
    Arena,
    /// The memory of another value of the same element count, seen with other dimensions.
    Alias { of: u32 },
    /// A part of another value, from `offset` along `axis`: what is written there is a part of it.
    Inside { of: u32, axis: u32, offset: Dim },
    /// Memory or a value of its own, kept while the program runs: sizes that only a run can tell, sequences,
    /// optionals, and what lives longer than a segment.
    Own,
}

stored_record! {
    /// One step.
    #[derive(Clone, PartialEq, Debug)]
    pub struct Step {
        /// The nodes of the graph that it covers.
        pub name: String,
        pub kind: StepKind,
        /// Its meaning. For control flow one node without its bodies.
        pub region: Region,
        /// Values, in the order of the region's inputs; `None` where an optional input is absent.
        pub inputs: Vec<Option<u32>>,
        /// Values, in the order of the region's outputs; `None` where an output is not wanted.
        pub outputs: Vec<Option<u32>>,
        pub numeric: Numeric,
        /// Index into the plan's targets.
        pub target: u32,
    }
}

/// How a step is run.
#[derive(Clone, PartialEq, Debug)]
pub enum StepKind {
    /// By a kernel: the first variant whose guard holds.
    Kernel { variants: Vec<Variant>, packed: Vec<Option<String>>, slow: bool },
    /// One value, unchanged, from the memory of its input's target to that of its output's.
    Transfer,
    /// On host values by the reference: output sizes that only a run can tell, sequences and optionals.
    Evaluate,
    /// If, Loop, Scan or SequenceMap over bodies.
    Control(Control),
}

stored_record! {
    /// Bodies of a step of control flow. Their trailing inputs are the step's trailing `n_captured` inputs.
    #[derive(Clone, PartialEq, Debug)]
    pub struct Control {
        pub bodies: Vec<Program>,
        pub n_captured: u32,
    }
}

stored_record! {
    /// A tactic, and from which to which sizes it is meant.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Variant {
        /// Holds where every symbol is at least its bound: where one of several profiles begins.
        pub from: Vec<(String, i64)>,
        /// Holds where every symbol is at most its bound. Where both are empty it holds everywhere.
        pub up_to: Vec<(String, i64)>,
        pub tactic: Tactic,
    }
}

/// One weight, in the form that kernels read, or plain.
#[derive(Clone, PartialEq, Debug)]
pub struct Weight {
    pub name: String,
    pub dtype: DType,
    pub dims: Vec<usize>,
    /// The order in which elements lie that are not packed.
    pub layout: Layout,
    /// The format that `bytes` are packed in; `None` for elements as they are.
    pub format: Option<String>,
    /// The target whose format that is, where packed: only its backend knows how to read and unpack it.
    pub packed_by: Option<u32>,
    /// The float type of 16 bits that `bytes` hold in place of each f32; `None` where they hold what kernels read.
    pub narrowed: Option<DType>,
    pub bytes: Bytes,
}

impl Weight {
    /// What its bytes are once they are packed in a format.
    pub fn packed_form<'a>(&'a self, format: &'a str) -> PackedForm<'a> {
        PackedForm { format, dtype: self.dtype, dims: &self.dims }
    }
}

stored_record! {
    /// What was tried for one problem, and what won.
    #[derive(Clone, PartialEq, Debug)]
    pub struct Evidence {
        /// Index of the step.
        pub step: u32,
        /// All candidates, fastest first. Only times from the timing cache stand here, so that equal caches give
        /// equal plans.
        pub timings: Vec<Timing>,
        /// Why the winner won, in words.
        pub why: String,
    }
}

stored_record! {
    /// One candidate's time.
    #[derive(Clone, PartialEq, Debug)]
    pub struct Timing {
        pub tactic: Tactic,
        pub ns: u64,
        /// Measured, or the cost model's.
        pub measured: bool,
    }
}

stored_record! {
    /// What the self-check found, and of which plan: it names the checksums of all that it was made for, so that one of
    /// another plan, or of the same plan before it was changed, is refused when it is written and when it is read.
    #[derive(Clone, PartialEq, Debug, Default)]
    pub struct Certificate {
        pub checks: Vec<Check>,
        /// What it was made for; [`Plan::certify`] fills it in.
        pub(crate) of: Option<Digests>,
    }
}

/// The subject of the one check of a plan whose weights were replaced.
pub const REFITTED: &str = "refit";

/// The subject of the one check of a plan that was built without the device that it is for.
pub const NOT_RUN: &str = "kernels not run";

/// Whether a plan was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CertificateState {
    /// It was built without a self-check, or changed since.
    NotChecked,
    /// Its weights were replaced since it was checked.
    UncheckedSinceRefit,
    /// It was built without the device that it is for: nobody ran its kernels.
    KernelsNotRun,
    /// This very plan passed its self-check. What that skipped stands in its checks.
    Checked,
}

impl Certificate {
    /// Of no plan yet.
    pub fn new(checks: Vec<Check>) -> Certificate {
        Certificate { checks, of: None }
    }

    /// Whether the plan that has this certificate was checked.
    pub fn state(&self) -> CertificateState {
        let has_failed = self.checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_)));
        match &self.checks[..] {
            [] => CertificateState::NotChecked,
            _ if self.of.is_none() || has_failed => CertificateState::NotChecked,
            [only] if only.subject == REFITTED => CertificateState::UncheckedSinceRefit,
            [only] if only.subject == NOT_RUN => CertificateState::KernelsNotRun,
            _ => CertificateState::Checked,
        }
    }
}

stored_record! {
    /// One check: of a step, of the whole model, of repeats.
    #[derive(Clone, PartialEq, Debug)]
    pub struct Check {
        /// What was compared, as in `step 12: conv1 + relu1` or `whole model at batch=1`.
        pub subject: String,
        pub n_points: u64,
        /// The largest error, in units of its bound (1 is at the bound).
        pub worst: f64,
        pub outcome: Outcome,
    }
}

/// How a check ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Passed,
    /// Not done, and why.
    Skipped(String),
    Failed(String),
}
