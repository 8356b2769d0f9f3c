//! Values where an operand says that they are: strided, with gaps that nobody may write, between fences.

use planish_kernel::{Candidate, Layout, Numeric, Operand, Problem, Region, Want};
use planish_tensor::{Bytes, Tensor};

use crate::{Reals, evaluate};

/// What is between elements before a run and must be there after it. As a float of any width it is NaN, so that reading
/// it shows too.
pub const GAP: u8 = 0xff;

/// What is before and after memory that was asked for.
const FENCE: u8 = 0xa5;

/// Bytes of each fence: more than any vector that a kernel stores.
const FENCE_BYTES: usize = 128;

/// Memory of kernels begins at a multiple of this.
const ALIGNMENT: usize = 64;

/// Bytes at an address that is a multiple of 64, with a fence before and after them.
#[derive(Clone, Debug)]
pub struct Fenced {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Fenced {
    /// So many bytes of one value.
    pub fn filled(len: usize, value: u8) -> Fenced {
        let bytes = vec![FENCE; len + 2 * FENCE_BYTES + ALIGNMENT];
        let start = FENCE_BYTES + bytes[FENCE_BYTES..].as_ptr().align_offset(ALIGNMENT);
        let mut memory = Fenced { bytes, start, len };
        memory.bytes_mut().fill(value);
        memory
    }

    /// A copy of these bytes.
    pub fn of(bytes: &[u8]) -> Fenced {
        let mut memory = Fenced::filled(bytes.len(), 0);
        memory.bytes_mut().copy_from_slice(bytes);
        memory
    }

    /// A kernel's workspace: it may hold anything, NaN would show.
    pub fn workspace(len: usize) -> Fenced {
        Fenced::filled(len, 0xff)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }

    pub fn ptr(&self) -> *const u8 {
        self.bytes[self.start..].as_ptr()
    }

    pub fn mut_ptr(&mut self) -> *mut u8 {
        self.bytes[self.start..].as_mut_ptr()
    }

    /// An error where something was written around the memory.
    pub fn check(&self) -> Result<(), String> {
        let around = [&self.bytes[..self.start], &self.bytes[self.start + self.len..]];
        match around.iter().all(|fence| fence.iter().all(|byte| *byte == FENCE)) {
            true => Ok(()),
            false => Err("something was written before or after the memory".to_string()),
        }
    }
}

/// The operand inside a larger one: `gap` elements after each run of the innermost dimension.
pub fn widened(operand: &Operand, layout: Layout, gap: usize) -> Operand {
    match layout.order(operand.rank()).last() {
        Some(&innermost) => part(operand, layout, innermost, gap),
        None => operand.clone(),
    }
}

/// The operand as a part of a larger one that has `gap` more along an axis, as parts of a concatenation are.
pub fn part(operand: &Operand, layout: Layout, axis: usize, gap: usize) -> Operand {
    let mut larger = operand.dims.clone();
    larger[axis] += gap;
    Operand { strides: layout.strides(&larger), ..operand.clone() }
}

/// The operand as a candidate wants it, inside a larger one where that is allowed.
fn wanted(operand: &Operand, want: Want, gap: usize) -> Operand {
    let gap = match want.aligned {
        // Rows of whole multiples stay such.
        true => gap.next_multiple_of((8 * Want::ALIGNMENT / operand.dtype.bits()).max(1)),
        false => gap,
    };
    widened(operand, want.layout, if want.inside { gap } else { 0 })
}

/// The problem with its operands as a candidate wants them, weights not packed yet.
pub fn arranged(problem: &Problem, candidate: &Candidate, gap: usize) -> Problem {
    let mut arranged = problem.clone();
    let lay_out = |(operand, want): (&mut Operand, &Want)| *operand = wanted(operand, *want, gap);
    arranged.inputs.iter_mut().zip(&candidate.inputs).for_each(lay_out);
    arranged.outputs.iter_mut().zip(&candidate.outputs).for_each(lay_out);
    arranged
}

/// Which of the bytes that an operand spans belong to an element.
fn covered(operand: &Operand) -> Vec<u8> {
    let n_bytes = operand.dtype.bytes_for(operand.len()).expect("a size of a test fits memory");
    operand.scatter(&vec![0xff; n_bytes]).expect("an element type of whole bytes")
}

/// Brings a tensor's elements to where an operand has them; what is between them stays.
pub fn write(operand: &Operand, tensor: &Tensor, bytes: &mut [u8]) {
    assert_eq!((tensor.dtype(), tensor.shape()), (operand.dtype, &*operand.dims));
    let elements = operand.scatter(tensor.bytes()).expect("an element type of whole bytes");
    for ((byte, element), covered) in bytes.iter_mut().zip(elements).zip(covered(operand)) {
        *byte = element & covered | *byte & !covered;
    }
}

/// The elements of an operand in memory, whatever is between them.
pub fn read(operand: &Operand, bytes: &[u8]) -> Tensor {
    let plain = operand.gather(bytes.to_vec()).expect("an element type of whole bytes");
    Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(plain))
        .expect("as many as the sizes say")
}

/// A tensor's elements in the memory of an operand, [`GAP`] between them.
pub fn lay_out(operand: &Operand, tensor: &Tensor) -> Vec<u8> {
    let mut bytes = vec![GAP; operand.span_bytes()];
    write(operand, tensor, &mut bytes);
    bytes
}

/// The way back; an error where a gap was written to.
pub fn collect(operand: &Operand, bytes: &[u8]) -> Result<Tensor, String> {
    let covered = covered(operand);
    if let Some(at) = (0..bytes.len()).find(|at| covered[*at] == 0 && bytes[*at] != GAP) {
        return Err(format!("byte {at}, which is not a part of the output, was written to"));
    }
    Ok(read(operand, bytes))
}

/// A value in memory of the host, as an operand describes it.
#[derive(Clone, Debug)]
pub struct Placed {
    pub operand: Operand,
    memory: Fenced,
}

impl Placed {
    /// Memory for an operand, not written yet.
    pub fn blank(operand: &Operand) -> Placed {
        Placed { operand: operand.clone(), memory: Fenced::filled(operand.span_bytes(), GAP) }
    }

    /// A tensor brought to where an operand has its elements.
    pub fn new(tensor: &Tensor, operand: &Operand) -> Placed {
        Placed { operand: operand.clone(), memory: Fenced::of(&lay_out(operand, tensor)) }
    }

    pub fn ptr(&self) -> *const u8 {
        self.memory.ptr()
    }

    pub fn mut_ptr(&mut self) -> *mut u8 {
        self.memory.mut_ptr()
    }

    /// The value as a tensor; nothing but its elements may have been written.
    #[track_caller]
    pub fn tensor(&self) -> Tensor {
        self.memory.check().and_then(|()| collect(&self.operand, self.memory.bytes())).expect("clean memory")
    }
}

/// How all operands of a problem are placed.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    pub layout: Layout,
    /// Elements that each operand's innermost dimension of the larger value has more than its own.
    pub gap: usize,
}

impl Placement {
    /// Both layouts, dense and inside larger values.
    pub const ALL: [Placement; 4] = [
        Placement { layout: Layout::Plain, gap: 0 },
        Placement { layout: Layout::Plain, gap: 3 },
        Placement { layout: Layout::ChannelsLast, gap: 0 },
        Placement { layout: Layout::ChannelsLast, gap: 5 },
    ];

    /// The problem of a region on these inputs for two threads, and what the reference makes of it. Operands of a lower
    /// rank than the outputs are plain and dense.
    #[track_caller]
    pub fn problem(self, region: &Region, inputs: &[Tensor]) -> (Problem, Vec<Tensor>) {
        let want = evaluate(region, inputs, Reals::Stored).expect("the reference takes it");
        let most = want.iter().map(Tensor::rank).max().unwrap_or(0);
        let place = |tensor: &Tensor| {
            let dense = Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
            if tensor.rank() == most { widened(&dense, self.layout, self.gap) } else { dense }
        };
        let problem = Problem {
            region: region.clone(),
            inputs: inputs.iter().map(place).collect(),
            outputs: want.iter().map(place).collect(),
            numeric: Numeric::F32,
            threads: 2,
        };
        (problem, want)
    }
}

#[cfg(test)]
mod tests {
    use planish_tensor::DType;

    use super::*;
    use crate::Random;

    #[test]
    fn values_come_back_and_gaps_are_watched() {
        let mut random = Random::new(2);
        for dims in [&[2usize, 3, 4, 5][..], &[7], &[], &[0, 3], &[1, 1, 9]] {
            for dtype in [DType::F32, DType::F16, DType::U8, DType::I64] {
                for Placement { layout, gap } in Placement::ALL {
                    let operand = widened(&Operand::dense(dtype, dims, Layout::Plain), layout, gap);
                    let tensor = random.tensor(dtype, dims, 2.0);
                    let bytes = lay_out(&operand, &tensor);
                    assert_eq!(collect(&operand, &bytes).unwrap(), tensor);
                    assert_eq!(Placed::new(&tensor, &operand).tensor(), tensor);
                    if let Some(at) = (0..bytes.len()).find(|at| covered(&operand)[*at] == 0) {
                        let mut spoiled = bytes.clone();
                        spoiled[at] = 0;
                        assert!(collect(&operand, &spoiled).unwrap_err().contains(&format!("byte {at},")));
                    }
                }
            }
        }
    }

    #[test]
    fn fences_are_watched_on_both_sides() {
        let memory = Fenced::of(&[1, 2, 3]);
        assert_eq!((memory.bytes(), memory.ptr().addr() % ALIGNMENT), (&[1u8, 2, 3][..], 0));
        assert_eq!(memory.check(), Ok(()));
        for at in [memory.start - 1, memory.start + 3] {
            let mut spoiled = memory.clone();
            spoiled.bytes[at] = 0;
            assert!(spoiled.check().is_err(), "{at}");
        }
    }
}
