//! Where the values of a program live: inputs and outputs in place, the rest in as few buffers as can be.

use planish_kernel::pointwise::{Inst, Program, Reg, Scalar};

use super::loops::SPLAT_BYTES;
use super::steps::{self, Step};

/// Where a value is: an index into the table of places.
pub(super) type PlaceIdx = usize;

/// A pointer and its step in elements (0 for a splat).
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: *mut u8,
    pub(super) step: usize,
}

/// What fills a place.
#[derive(Clone, Debug)]
pub(super) enum Filled {
    /// A program input.
    Input(usize),
    Constant(usize),
    /// A buffer between instructions.
    Buffer(usize),
    Output(usize),
    Running,
}

#[derive(Debug)]
pub(super) struct PlacedStep {
    pub(super) step: Step,
    pub(super) from: [PlaceIdx; 3],
    pub(super) to: PlaceIdx,
}

/// The first 3 of a list, 0 beyond: unused operands are never read.
fn three(list: impl Iterator<Item = PlaceIdx>) -> [PlaceIdx; 3] {
    let mut all = [0; 3];
    all.iter_mut().zip(list).for_each(|(to, from)| *to = from);
    all
}

/// Where every value of a program lives.
pub(super) struct Placement {
    pub(super) steps: Vec<PlacedStep>,
    pub(super) places: Vec<Filled>,
    pub(super) constants: Vec<[u64; SPLAT_BYTES / 8]>,
    pub(super) n_buffers: usize,
}

impl Placement {
    /// `with_outputs`: outputs have places of their own; otherwise the only one is the running value's.
    pub(super) fn of(program: &Program, with_outputs: bool) -> Placement {
        let mut steps = steps::compile(program);
        let mut places = Vec::new();
        let mut constants = Vec::new();
        let mut place_of: Vec<Option<PlaceIdx>> = vec![None; program.code.len()];
        let mut add = |filled: Filled| {
            places.push(filled);
            places.len() - 1
        };
        for (idx, inst) in program.code.iter().enumerate() {
            place_of[idx] = match inst {
                Inst::Input(input) => Some(add(Filled::Input(*input as usize))),
                Inst::Running => Some(add(Filled::Running)),
                Inst::Constant(scalar) => {
                    constants.push(splat(*scalar));
                    Some(add(Filled::Constant(constants.len() - 1)))
                }
                _ => None,
            };
        }
        // An output is written where it belongs by the step that makes it, else copied there.
        let mut copies = Vec::new();
        for (idx, reg) in program.outputs.iter().enumerate() {
            let place = add(if with_outputs { Filled::Output(idx) } else { Filled::Running });
            match place_of[reg.0 as usize] {
                None => place_of[reg.0 as usize] = Some(place),
                Some(_) => copies.push((*reg, place)),
            }
        }
        let mut last_use = vec![0; program.code.len()];
        for (at, step) in steps.iter().enumerate() {
            step.operands.iter().for_each(|reg| last_use[reg.0 as usize] = at);
        }
        copies.iter().for_each(|(reg, _)| last_use[reg.0 as usize] = usize::MAX);
        // Buffers by first fit; one is free again after the last step that reads it.
        let mut buffer_of: Vec<Option<usize>> = vec![None; program.code.len()];
        let mut free: Vec<usize> = Vec::new();
        let mut buffer_places: Vec<PlaceIdx> = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let ends: Vec<usize> = step
                .operands
                .iter()
                .filter(|reg| last_use[reg.0 as usize] == at)
                .filter_map(|reg| buffer_of[reg.0 as usize].take())
                .collect();
            if step.in_place {
                free.extend(&ends);
            }
            let value = step.value.0 as usize;
            if place_of[value].is_none() {
                let buffer = free.pop().unwrap_or_else(|| {
                    buffer_places.push(add(Filled::Buffer(buffer_places.len())));
                    buffer_places.len() - 1
                });
                buffer_of[value] = Some(buffer);
                place_of[value] = Some(buffer_places[buffer]);
            }
            if !step.in_place {
                free.extend(&ends);
            }
        }
        let at = |reg: &Reg| place_of[reg.0 as usize].unwrap_or(0);
        let mut placed: Vec<PlacedStep> = steps
            .drain(..)
            .map(|step| {
                let (from, to) = (three(step.operands.iter().map(at)), at(&step.value));
                PlacedStep { step, from, to }
            })
            .collect();
        for (reg, to) in copies {
            let step = Step {
                run: steps::copy(program.kinds[reg.0 as usize]),
                operands: vec![reg],
                value: reg,
                in_place: false,
            };
            placed.push(PlacedStep { from: three([at(&reg)].into_iter()), step, to });
        }
        Placement { steps: placed, places, constants, n_buffers: buffer_places.len() }
    }
}

/// The constant, as often as the widest vector has lanes.
pub(super) fn splat(scalar: Scalar) -> [u64; SPLAT_BYTES / 8] {
    let word = match scalar {
        Scalar::F32(value) => u64::from(value.to_bits()) * 0x1_0000_0001,
        Scalar::I32(value) => u64::from(value as u32) * 0x1_0000_0001,
        Scalar::I64(value) => value as u64,
        Scalar::U8(value) | Scalar::F8(value) => u64::from(value) * 0x0101_0101_0101_0101,
        Scalar::I8(value) => u64::from(value as u8) * 0x0101_0101_0101_0101,
        Scalar::Bool(value) => u64::from(u8::from(value)) * 0x0101_0101_0101_0101,
    };
    [word; SPLAT_BYTES / 8]
}
