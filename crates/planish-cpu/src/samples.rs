//! What kernel tests share: reproducible numbers, values that lie inside larger buffers, and the reference.

use std::sync::atomic::{AtomicUsize, Ordering};

use planish_kernel::{KernelError, Layout, Numeric, Operand, Problem, Ref, Region, RegionNode, Tactic};
use planish_op::{Op, Value};
use planish_tensor::{Bytes, DType, Tensor};

use crate::family::Family;
use crate::isa::Isa;
use crate::team::Team;

/// How many samples ran.
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// Reproducible numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below `n`, which must not be 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((self.bits() >> 33) % n as u64) as usize
    }

    /// Between both, included.
    pub(crate) fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from + 1)
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// Between -1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// A tensor of floats between -1 and 1.
    pub(crate) fn floats(&mut self, dims: &[usize]) -> Tensor {
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| self.float()).collect();
        Tensor::new(dims, values).unwrap()
    }

    /// A tensor of any bits.
    pub(crate) fn raw(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        let n = dtype.bytes_for(dims.iter().product()).unwrap();
        let bytes: Vec<u8> = (0..n).map(|_| self.bits() as u8).collect();
        Tensor::from_bytes(dtype, dims, Bytes::from_vec(bytes)).unwrap()
    }

    /// An operand of this layout, dense or inside something larger.
    pub(crate) fn operand(&mut self, dtype: DType, dims: &[usize], layout: Layout) -> Operand {
        let larger: Vec<usize> =
            dims.iter().map(|dim| dim + if self.chance(3) { self.below(4) } else { 0 }).collect();
        Operand { strides: layout.strides(&larger), ..Operand::dense(dtype, dims, layout) }
    }
}

/// What memory holds that nobody wrote.
const BLANK: u8 = 0xA5;

/// A cache line of workspace.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line {
    _bytes: [u8; 64],
}

/// Workspace that holds anything, on cache lines.
pub(crate) fn workspace(bytes: usize) -> Vec<Line> {
    vec![Line { _bytes: [0xFF; 64] }; bytes.div_ceil(64)]
}

/// A value in memory as an operand describes it.
#[derive(Clone)]
pub(crate) struct Placed {
    pub(crate) operand: Operand,
    /// Words, so that every element type is aligned.
    words: Vec<u64>,
}

impl Placed {
    /// Memory for an operand, not written yet.
    pub(crate) fn blank(operand: &Operand) -> Placed {
        let n = operand.span_bytes().div_ceil(8);
        Placed { operand: operand.clone(), words: vec![u64::from_ne_bytes([BLANK; 8]); n] }
    }

    /// A tensor brought to where an operand has its elements.
    pub(crate) fn new(tensor: &Tensor, operand: &Operand) -> Placed {
        assert_eq!((tensor.dtype(), tensor.shape()), (operand.dtype, &*operand.dims));
        let mut placed = Placed::blank(operand);
        let width = operand.dtype.bits() / 8;
        let to = placed.mut_ptr();
        for (idx, at) in placed.places().into_iter().enumerate() {
            // SAFETY: places lie within the span of the operand.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    tensor.bytes()[idx * width..].as_ptr(),
                    to.add(at * width),
                    width,
                )
            };
        }
        placed
    }

    pub(crate) fn ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    pub(crate) fn mut_ptr(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }

    /// Offsets of all elements in row-major order.
    fn places(&self) -> Vec<usize> {
        let mut places = vec![0usize];
        for (&dim, &stride) in self.operand.dims.iter().zip(&self.operand.strides) {
            places = places.iter().flat_map(|at| (0..dim).map(move |idx| at + idx * stride)).collect();
        }
        places
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// The value as a tensor; nothing but its elements may have been written.
    pub(crate) fn tensor(&self) -> Tensor {
        let width = self.operand.dtype.bits() / 8;
        let mut memory = self.bytes();
        let mut bytes = Vec::new();
        let places = self.places();
        for at in &places {
            bytes.extend_from_slice(&memory[at * width..][..width]);
        }
        for at in &places {
            memory[at * width..][..width].fill(BLANK);
        }
        assert!(memory.iter().all(|byte| *byte == BLANK), "memory beside the elements was written");
        Tensor::from_bytes(self.operand.dtype, &self.operand.dims, Bytes::from_vec(bytes)).unwrap()
    }
}

/// One input of an operator under test.
#[derive(Clone)]
pub(crate) enum Input {
    /// A value that a run brings.
    Data(Tensor),
    /// A constant of the region.
    Parameter(Tensor),
    Absent,
}

impl Input {
    fn tensor(&self) -> Option<&Tensor> {
        match self {
            Input::Data(tensor) | Input::Parameter(tensor) => Some(tensor),
            Input::Absent => None,
        }
    }
}

/// An operator under test with what it reads, and what the reference makes of it.
pub(crate) struct Sample {
    pub(crate) region: Region,
    pub(crate) data: Vec<Tensor>,
    pub(crate) want: Vec<Tensor>,
}

impl Sample {
    pub(crate) fn new(op: impl Into<Op>, inputs: &[Input], n_outputs: usize) -> Sample {
        let op = op.into();
        let tensors: Vec<Option<&Tensor>> = inputs.iter().map(Input::tensor).collect();
        let want = reference(&op, &tensors, n_outputs);
        let (mut data, mut constants) = (Vec::new(), Vec::new());
        let mut place = |input: &Input| match input {
            Input::Data(tensor) => {
                data.push(tensor.clone());
                Some(Ref::Input(data.len() as u32 - 1))
            }
            Input::Parameter(tensor) => {
                constants.push(tensor.clone());
                Some(Ref::Constant(constants.len() as u32 - 1))
            }
            Input::Absent => None,
        };
        let node = RegionNode {
            name: op.name().to_string(),
            op,
            inputs: inputs.iter().map(&mut place).collect(),
            n_outputs: n_outputs as u32,
        };
        let region = Region {
            n_inputs: data.len() as u32,
            constants,
            nodes: vec![node],
            outputs: (0..n_outputs as u32).map(|output| Ref::Node { node: 0, output }).collect(),
        };
        Sample { region, data, want }
    }

    /// The problem with these operands.
    pub(crate) fn problem(&self, inputs: &[Operand], outputs: &[Operand]) -> Problem {
        Problem {
            region: self.region.clone(),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            numeric: Numeric::F32,
            threads: 1,
        }
    }

    /// What `family` makes of it where operands lie as given.
    pub(crate) fn run(
        &self,
        family: &dyn Family,
        isa: Isa,
        inputs: &[Operand],
        outputs: &[Operand],
    ) -> Result<Vec<Tensor>, KernelError> {
        let work = family.prepare(isa, &self.problem(inputs, outputs), &Tactic::new(family.name(), 1))?;
        let placed: Vec<Placed> = self.data.iter().zip(inputs).map(|(t, at)| Placed::new(t, at)).collect();
        let from: Vec<*const u8> = placed.iter().map(Placed::ptr).collect();
        let with = |team: &Team| {
            let mut made: Vec<Placed> = outputs.iter().map(Placed::blank).collect();
            let to: Vec<*mut u8> = made.iter_mut().map(Placed::mut_ptr).collect();
            let mut workspace = workspace(work.workspace_bytes(team.n_slots()));
            // SAFETY: the operands describe the memory; the workspace is as large as asked for.
            unsafe { work.run(&from, &to, workspace.as_mut_ptr().cast(), team)? };
            Ok(made.iter().map(Placed::tensor).collect::<Vec<_>>())
        };
        let alone = with(&Team::alone())?;
        // Threads that wait for each other on a busy machine take their time, so not every run has them.
        if RUNS.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
            assert!(alone == with(&Team::new(3))?, "results depend on the number of threads");
        }
        Ok(alone)
    }

    /// Checks exact results of all instruction sets, with operands of random layouts inside larger ones.
    #[track_caller]
    pub(crate) fn check_exact(&self, family: &dyn Family, random: &mut Random, fixed: Option<Layout>) {
        for isa in Isa::available() {
            let mut operand = |tensor: &Tensor| {
                let both = [Layout::Plain, Layout::ChannelsLast];
                let layout = fixed.unwrap_or(both[random.below(2)]);
                random.operand(tensor.dtype(), tensor.shape(), layout)
            };
            let inputs: Vec<Operand> = self.data.iter().map(&mut operand).collect();
            let outputs: Vec<Operand> = self.want.iter().map(&mut operand).collect();
            let got = self.run(family, isa, &inputs, &outputs).unwrap();
            assert!(got == self.want, "{isa} {:?} from {inputs:?} to {outputs:?}", self.region.nodes[0].op);
        }
    }
}

/// What the reference computes.
pub(crate) fn reference(op: &Op, inputs: &[Option<&Tensor>], n_outputs: usize) -> Vec<Tensor> {
    let values: Vec<Option<Value>> = inputs.iter().map(|t| t.map(|t| Value::Tensor(t.clone()))).collect();
    let values: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
    let outputs = planish_reference::evaluate(op, &values, n_outputs).unwrap();
    let tensor = |value| match value {
        Value::Tensor(tensor) => tensor,
        other => panic!("not a tensor: {other:?}"),
    };
    outputs.into_iter().map(tensor).collect()
}

/// The largest difference between two f32 tensors of one shape, in parts of `scale` per element.
#[track_caller]
pub(crate) fn assert_close(got: &Tensor, want: &Tensor, tolerance: f32, what: &str) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let (got, want) = (got.elements::<f32>().unwrap(), want.elements::<f32>().unwrap());
    for (idx, (got, want)) in got.iter().zip(want.iter()).enumerate() {
        let is_close = got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= tolerance;
        assert!(is_close, "{what}: element {idx} is {got}, not {want}");
    }
}
