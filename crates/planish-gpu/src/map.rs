//! Generated kernels that compute outputs element by element: fused pointwise programs, copies and reorders.
//!
//! Two forms. In the plain one a thread makes a few neighbours of the output and reads each input where it lies:
//! 16 bytes at once where they are neighbours there too, one element where it repeats. Where an input's
//! neighbours lie along another axis than the output's, blocks bring tiles of it through shared memory.

mod element;
mod plain;
mod tiled;

use planish_kernel::pointwise::{Program, ProgramInput, Source};
use planish_kernel::{KernelError, Layout, Problem};

use crate::args::{ArgBytes, Field};
use crate::codegen::storage_type;
use crate::operands::{refuse, size_of_element, storage};
use crate::plan::{Arg, KernelCode, MAX_STRUCTURE, Plan, Slot};
use crate::space::{self, Axis};

/// Threads of a block.
const THREADS: usize = 256;
/// The most elements that a thread makes at once.
const MAX_LANES: usize = 8;

/// Where the elements of an operand are.
#[derive(Clone, Debug)]
pub enum Place {
    /// In an operand, so many elements on.
    Operand(Slot, usize),
    /// In the kernel's text: the bytes of a constant, dense.
    Constant(Vec<u8>),
}

/// An input or output of a map.
#[derive(Clone, Debug)]
pub struct Laid {
    pub place: Place,
    /// The type in the kernel, as in `f16`.
    pub storage: &'static str,
    /// Bytes of an element.
    pub size: usize,
    /// One per axis of the space, in elements.
    pub strides: Vec<isize>,
}

impl Laid {
    /// An input of a program over a space of this rank.
    pub fn of_input(problem: &Problem, rank: usize, input: &ProgramInput) -> Result<Laid, KernelError> {
        let (place, own) = match input.source {
            Source::Input(idx) => {
                let Some(operand) = problem.inputs.get(idx as usize) else {
                    return refuse("a program reads an input that is not there");
                };
                storage(operand)?;
                (Place::Operand(Slot::Input(idx as usize), 0), operand.strides.clone())
            }
            Source::Constant(_) => {
                let Some(tensor) = input.source.constant(&problem.region) else {
                    return refuse("a program reads a constant that is not there");
                };
                (Place::Constant(tensor.bytes().to_vec()), Layout::Plain.strides(tensor.shape()))
            }
        };
        let Some(storage) = storage_type(input.dtype) else {
            return refuse(format!("elements of type {}", input.dtype));
        };
        let strides =
            input.axes(rank).into_iter().map(|axis| axis.map_or(0, |axis| own[axis] as isize)).collect();
        Ok(Laid { place, storage, size: size_of_element(input.dtype), strides })
    }
}

/// What is computed for every point of a space.
#[derive(Clone, Debug)]
pub struct Map {
    pub dims: Vec<usize>,
    pub inputs: Vec<Laid>,
    pub outputs: Vec<Laid>,
    pub body: Body,
}

#[derive(Clone, Debug)]
pub enum Body {
    /// Input 0 becomes output 0, bit by bit.
    Copy,
    Program(Box<Program>),
}

/// How an operand lies along the innermost axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inner {
    Dense,
    Repeats,
    Strided,
    /// Brought through shared memory.
    Tiled,
}

struct Shape<'a> {
    map: &'a Map,
    /// Outermost first; the last is what threads take their neighbours along.
    axes: Vec<Axis>,
    lanes: usize,
    inner: Vec<Inner>,
    /// With tiles: which axis the tiled inputs lie along.
    across: Option<usize>,
}

impl Map {
    fn operands(&self) -> impl Iterator<Item = &Laid> {
        self.inputs.iter().chain(&self.outputs)
    }

    /// The launch that computes it; none where there is nothing to compute.
    pub fn plan(&self) -> Result<Plan, KernelError> {
        if self.dims.contains(&0) {
            return Ok(Plan::default());
        }
        let shape = Shape::of(self)?;
        match shape.across {
            Some(across) => {
                let (numbers, n_blocks) = shape.tiled_args(across)?;
                self.launch(&shape.tiled_text(across)?, &numbers, n_blocks)
            }
            None => {
                let (numbers, n_blocks) = shape.plain_args()?;
                self.launch(&shape.plain_text()?, &numbers, n_blocks)
            }
        }
    }

    fn launch(&self, text: &str, numbers: &impl Field, n_blocks: u32) -> Result<Plan, KernelError> {
        let structure = ArgBytes::of(numbers);
        if structure.bytes.len() > MAX_STRUCTURE {
            return Err(KernelError::unsupported("a map of too many operands"));
        }
        let mut args: Vec<Arg> = Vec::new();
        for operand in self.operands() {
            if let Place::Operand(slot, offset) = &operand.place {
                args.push(Arg::Address(*slot, offset * operand.size));
            }
        }
        args.push(Arg::Structure(structure));
        let source = KernelCode::new("map.cu", text, "map", numbers);
        Ok(Plan::one(source, [n_blocks, 1, 1], THREADS as u32, args))
    }
}

impl<'a> Shape<'a> {
    fn of(map: &'a Map) -> Result<Shape<'a>, KernelError> {
        let strides: Vec<&[isize]> = map.operands().map(|operand| operand.strides.as_slice()).collect();
        let mut axes = space::joined(&map.dims, &strides, map.inputs.len());
        if axes.is_empty() {
            axes.push(Axis { dim: 1, strides: vec![1; strides.len()] });
        }
        let last = axes.len() - 1;
        let mut inner: Vec<Inner> = axes[last]
            .strides
            .iter()
            .map(|stride| match stride {
                1 => Inner::Dense,
                0 => Inner::Repeats,
                _ => Inner::Strided,
            })
            .collect();
        let across = tiled::choose(map, &axes, &mut inner);
        let mut shape = Shape { map, axes, lanes: 1, inner, across };
        shape.lanes = shape.widest();
        Ok(shape)
    }

    /// As many elements at once as every operand with neighbours allows.
    fn widest(&self) -> usize {
        let last = self.axes.len() - 1;
        let dense = || self.map.operands().enumerate().filter(|(idx, _)| self.inner[*idx] == Inner::Dense);
        let mut lanes = dense().map(|(_, operand)| 16 / operand.size).max().unwrap_or(1).clamp(1, MAX_LANES);
        let fits = |lanes: usize| {
            self.axes[last].dim >= lanes
                && dense().all(|(idx, _)| {
                    self.axes[..last].iter().all(|axis| axis.strides[idx] % lanes as isize == 0)
                })
        };
        while lanes > 1 && !fits(lanes) {
            lanes /= 2;
        }
        lanes
    }

    /// Each operand's strides, innermost first.
    fn strides(&self) -> Result<Vec<Vec<i32>>, KernelError> {
        let strides = |idx: usize| {
            let reach = self.axes.iter().map(|axis| (axis.dim - 1) * axis.strides[idx].unsigned_abs()).sum();
            // Places are counted in 32 bits too.
            space::int(reach)?;
            space::strides_along(&self.axes, idx)
        };
        (0..self.inner.len()).map(strides).collect()
    }
}
