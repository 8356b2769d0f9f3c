//! A plan replayed without computing: memory is painted with which element of which value each place holds.
//!
//! Every step must find at each place that it reads the element that the graph says, then its workspace is
//! painted over, then what it writes. That shows wires, aliases, parts of concatenations, in-place outputs and the
//! arena's layout right or wrong at sizes of any cost: nothing is multiplied. In large plans every `K`th place is
//! followed, so that some hundred thousand are; a mistake over a tensor's extent meets many of them. K is a prime,
//! and a second replay takes another one: the diagonal of a matrix of K - 1 columns shows no transposition.

use std::collections::HashMap;

use planish_ir::{Graph, ValueId};
use planish_kernel::{Layout, Operand};
use planish_plan::Program;
use planish_runtime::{Place, PlacedStep, Placement, Space};
use planish_tensor::DType;

use super::origins::{Element, Origins};
use super::wires::Wires;

/// Places that are followed in one replay, over all reads and writes: some 20 ms of work each time.
const MAX_PLACES: u64 = 500_000;

/// Through so many values an element is followed for what a place costs anyway; after them it counts as more places.
const DEPTH_FOR_FREE: u64 = 8;

/// What workspace holds.
const SCRATCH: u64 = 1;
/// Bits for which element of a value a place holds; the rest says which value.
const ELEMENT_BITS: u32 = 38;

/// Replays a program at the sizes of its placement; gives how many places were read and compared.
pub(super) fn replay(
    graph: &Graph,
    wires: &Wires<'_>,
    program: &Program,
    placement: &Placement,
    sizes: &[(String, i64)],
) -> Result<u64, String> {
    let origins = Origins::new(graph, wires, sizes);
    let ids: Vec<Option<ValueId>> = program.values.iter().map(|value| wires.find(&value.name)).collect();
    let every = Memory::every(placement, program, &|value| {
        ids[value as usize].map_or(1, |id| origins.depth(id).div_ceil(DEPTH_FOR_FREE))
    });
    let both = [every, next_prime(every + 1)];
    let passes = if every == 1 { &both[..1] } else { &both[..] };
    let mut n_places = 0;
    for &every in passes {
        let memory = Memory::new(placement, every);
        let mut replay = Replay { origins: &origins, program, ids: &ids, memory, n_places: 0 };
        replay.run(placement)?;
        n_places += replay.n_places;
    }
    Ok(n_places)
}

struct Replay<'a> {
    origins: &'a Origins,
    program: &'a Program,
    /// The graph's value for each of the program's.
    ids: &'a [Option<ValueId>],
    memory: Memory,
    n_places: u64,
}

impl Replay<'_> {
    fn run(&mut self, placement: &Placement) -> Result<(), String> {
        let program = self.program;
        for (place, &value) in placement.inputs.iter().zip(&program.inputs) {
            self.write(value, place.as_ref());
        }
        for step in &placement.steps {
            let name = &program.steps[step.step].name;
            self.step(step).map_err(|why| format!("step {} (`{name}`) {why}", step.step))?;
        }
        for (place, &value) in placement.outputs.iter().zip(&program.outputs) {
            self.read(value, place.as_ref()).map_err(|why| format!("whoever takes the outputs {why}"))?;
        }
        Ok(())
    }

    fn step(&mut self, placed: &PlacedStep) -> Result<(), String> {
        let step = &self.program.steps[placed.step];
        if let Some((target, offset, bytes)) = placed.workspace {
            self.memory.workspace(Space::Arena(target), offset, bytes);
        }
        let inputs = || step.inputs.iter().zip(&placed.inputs);
        let outputs = || step.outputs.iter().zip(&placed.outputs);
        for (value, place) in inputs() {
            if let Some(value) = value {
                self.read(*value, place.as_ref())?;
            }
        }
        for (value, place) in outputs() {
            if let Some(value) = value {
                self.write(*value, place.as_ref());
            }
        }
        // Writing over an input is for kernels that write each element where they read it.
        for (value, place) in inputs() {
            let (Some(value), Some(place)) = (value, place) else { continue };
            let in_place =
                outputs().any(|(_, output)| output.as_ref().is_some_and(|output| same_place(output, place)));
            if !in_place && self.read(*value, Some(place)).is_err() {
                let name = &self.program.values[*value as usize].name;
                return Err(format!("writes over `{name}`, which it reads, at other places"));
            }
        }
        for (value, place) in outputs() {
            if let Some(value) = value {
                self.read(*value, place.as_ref())
                    .map_err(|why| format!("writes two outputs to one place and {why}"))?;
            }
        }
        Ok(())
    }

    /// The paint of an element of a value.
    fn paint(origins: &Origins, id: ValueId, unit: u64, per_element: u64) -> u64 {
        let (wire, element): Element = origins.element(id, unit / per_element);
        ((u64::from(wire) + 2) << ELEMENT_BITS) | (element * per_element + unit % per_element)
    }

    fn known(&self, value: u32, place: Option<&Place>) -> Option<(ValueId, Place)> {
        let id = self.ids[value as usize]?;
        let place = place.filter(|place| place.space != Space::Weights)?;
        // The sizes that the graph says are those that the runtime resolved, or the replay says nothing.
        if self.origins.dims(id)? != place.operand.dims {
            return None;
        }
        let mut place = place.clone();
        if place.operand.dtype.is_sub_byte() {
            // Several elements share a byte: its bytes are followed, as if each were an element.
            let n_bytes = place.operand.span_bytes();
            place.operand = Operand::dense(DType::U8, &[n_bytes], Layout::Plain);
        }
        Some((id, place))
    }

    fn write(&mut self, value: u32, place: Option<&Place>) {
        let Some((id, place)) = self.known(value, place) else { return };
        let origins = self.origins;
        self.memory.visit(&place, &mut |held, unit, per_element| {
            *held = Replay::paint(origins, id, unit, per_element);
        });
    }

    fn read(&mut self, value: u32, place: Option<&Place>) -> Result<(), String> {
        let Some((id, place)) = self.known(value, place) else { return Ok(()) };
        let origins = self.origins;
        let (mut n_places, mut wrong) = (0, None);
        self.memory.visit(&place, &mut |held, unit, per_element| {
            n_places += 1;
            let expected = Replay::paint(origins, id, unit, per_element);
            if *held != expected && wrong.is_none() {
                wrong = Some((unit / per_element, *held, expected));
            }
        });
        self.n_places += n_places;
        let Some((at, held, expected)) = wrong else { return Ok(()) };
        let name = &self.program.values[value as usize].name;
        Err(format!("finds {} at element {at} of `{name}`", self.describe(held, expected)))
    }

    fn describe(&self, held: u64, expected: u64) -> String {
        let wire = |paint: u64| (paint >> ELEMENT_BITS).wrapping_sub(2);
        match held {
            0 => "what nothing has written".to_string(),
            SCRATCH => "workspace".to_string(),
            _ if wire(held) == wire(expected) => "another element of the same value".to_string(),
            _ => {
                let is_it = |id: &&Option<ValueId>| {
                    id.is_some_and(|id| {
                        self.origins.dims(id).is_some()
                            && u64::from(self.origins.element(id, 0).0) == wire(held)
                    })
                };
                let value = self.ids.iter().position(|id| is_it(&id));
                let name = value.map_or("another value", |value| self.program.values[value].name.as_str());
                format!("an element of `{name}`")
            }
        }
    }
}

/// Whether two operands have the same elements at the same places.
fn same_place(a: &Place, b: &Place) -> bool {
    let shape = |place: &Place| (place.space, place.offset, place.operand.dtype.bytes_for(1));
    let (one, two) = (&a.operand, &b.operand);
    let strides = |axis: &usize| one.dims[*axis] <= 1 || one.strides[*axis] == two.strides[*axis];
    shape(a) == shape(b) && one.dims == two.dims && (0..one.dims.len()).all(|axis| strides(&axis))
}

fn element_bytes(place: &Place) -> u64 {
    place.operand.dtype.bytes_for(1).unwrap_or(1).max(1) as u64
}

/// Painted memory: one number for every followed place.
struct Memory {
    spaces: HashMap<Space, Vec<u64>>,
    /// Bytes of the smallest element: what a place is.
    unit: u64,
    /// Every how many places one is followed: 1 or a prime.
    every: u64,
}

/// Axes whose elements follow each other at one distance: from the innermost out, (size, what a step is in
/// row-major order).
struct Run {
    axes: Vec<(u64, u64)>,
    size: u64,
    stride: u64,
}

impl Run {
    /// The row-major number of the run's element `at`.
    fn flat(&self, mut at: u64) -> u64 {
        let mut flat = 0;
        for (size, step) in &self.axes {
            flat += at % size * step;
            at /= size;
        }
        flat
    }
}

impl Memory {
    fn new(placement: &Placement, every: u64) -> Memory {
        Memory { spaces: HashMap::new(), unit: Memory::unit(placement), every }
    }

    /// The bytes of the smallest element.
    fn unit(placement: &Placement) -> u64 {
        let steps = placement.steps.iter().flat_map(|step| step.inputs.iter().chain(&step.outputs));
        let all = steps.chain(&placement.inputs).chain(&placement.outputs).flatten();
        all.filter(|place| place.space != Space::Weights).map(element_bytes).min().unwrap_or(1)
    }

    /// Every how many places one is followed, 1 or a prime, so that not too many are. `weight` is what a place of a value
    /// counts.
    fn every(placement: &Placement, program: &Program, weight: &dyn Fn(u32) -> u64) -> u64 {
        let unit = Memory::unit(placement);
        let count = |places: &[Option<Place>], values: &mut dyn Iterator<Item = Option<u32>>| {
            let known =
                places.iter().zip(values).filter_map(|(place, value)| Some((place.as_ref()?, value?)));
            let counted = known.filter(|(place, _)| place.space != Space::Weights).map(|(place, value)| {
                let units = place.operand.len() as u64 * (element_bytes(place) / unit);
                units.saturating_mul(weight(value))
            });
            counted.fold(0, u64::saturating_add)
        };
        let mut n_places = count(&placement.inputs, &mut program.inputs.iter().map(|value| Some(*value)));
        n_places = n_places
            .saturating_add(count(&placement.outputs, &mut program.outputs.iter().map(|value| Some(*value))));
        for placed in &placement.steps {
            let step = &program.steps[placed.step];
            let own = count(&placed.inputs, &mut step.inputs.iter().copied())
                .saturating_add(count(&placed.outputs, &mut step.outputs.iter().copied()));
            n_places = n_places.saturating_add(own);
        }
        // Squares of it must fit 64 bits.
        next_prime(n_places.div_ceil(MAX_PLACES).min(1 << 31))
    }

    fn workspace(&mut self, space: Space, offset: u64, bytes: u64) {
        let list = self.spaces.entry(space).or_default();
        let mut at = (offset / self.unit).next_multiple_of(self.every);
        while at * self.unit < offset + bytes {
            *held(list, at / self.every) = SCRATCH;
            at += self.every;
        }
    }

    /// Shows the followed places of an operand: what is held there, the number of the unit in row-major order of
    /// the elements, and how many units an element has.
    fn visit(&mut self, place: &Place, see: &mut dyn FnMut(&mut u64, u64, u64)) {
        let operand = &place.operand;
        let element = operand.dtype.bytes_for(1).unwrap_or(1).max(1) as u64;
        let per_element = (element / self.unit).max(1);
        if operand.is_empty() {
            return;
        }
        // (size, distance in memory, distance in row-major order), all in units.
        let mut axes: Vec<(u64, u64, u64)> = vec![(per_element, 1, 1)];
        let mut step = per_element;
        for (&size, &stride) in operand.dims.iter().zip(&operand.strides).rev() {
            axes.push((size as u64, stride as u64 * per_element, step));
            step *= size as u64;
        }
        axes.retain(|(size, ..)| *size > 1);
        axes.sort_by_key(|(_, stride, _)| *stride);
        let mut runs: Vec<Run> = Vec::new();
        for (size, stride, step) in axes {
            match runs.last_mut() {
                Some(run) if run.stride * run.size == stride => {
                    run.axes.push((size, step));
                    run.size *= size;
                }
                _ => runs.push(Run { axes: vec![(size, step)], size, stride }),
            }
        }
        // The longest innermost: most of the outer places would be visited to find nothing.
        runs.sort_by_key(|run| std::cmp::Reverse(run.size));
        let list = self.spaces.entry(place.space).or_default();
        let base = place.offset / self.unit;
        let Some((inner, outer)) = runs.split_first() else {
            if base.is_multiple_of(self.every) {
                see(held(list, base / self.every), 0, per_element);
            }
            return;
        };
        let meeting = Meeting::new(inner.stride, self.every);
        let mut count = vec![0u64; outer.len()];
        loop {
            let at: u64 = base + count.iter().zip(outer).map(|(n, run)| n * run.stride).sum::<u64>();
            let flat: u64 = count.iter().zip(outer).map(|(n, run)| run.flat(*n)).sum();
            if let Some((first, every)) = meeting.from(at) {
                let mut n = first;
                while n < inner.size {
                    let held = held(list, (at + n * inner.stride) / self.every);
                    see(held, flat + inner.flat(n), per_element);
                    n += every;
                }
            }
            let mut axis = 0;
            loop {
                if axis == outer.len() {
                    return;
                }
                count[axis] += 1;
                if count[axis] < outer[axis].size {
                    break;
                }
                count[axis] = 0;
                axis += 1;
            }
        }
    }
}

/// What is held at a followed place of a space, which grows to it.
fn held(list: &mut Vec<u64>, at: u64) -> &mut u64 {
    let at = at as usize;
    if list.len() <= at {
        list.resize((at + 1).next_power_of_two(), 0);
    }
    &mut list[at]
}

/// Which places of a run are followed.
struct Meeting {
    /// 1 or a prime.
    every: u64,
    /// The inverse of the stride modulo `every`; `None` where the stride is a multiple of it.
    inverse: Option<u64>,
}

impl Meeting {
    fn new(stride: u64, every: u64) -> Meeting {
        let inverse = (!stride.is_multiple_of(every)).then(|| {
            // By Fermat it is the stride to the power of every - 2.
            let (mut inverse, mut base, mut exponent) = (1u64, stride % every, every - 2);
            while exponent > 0 {
                if exponent % 2 == 1 {
                    inverse = inverse * base % every;
                }
                base = base * base % every;
                exponent /= 2;
            }
            inverse
        });
        Meeting { every, inverse }
    }

    /// Which `n` make `at + n stride` a multiple of `every`: the first, and the distance to the next.
    fn from(&self, at: u64) -> Option<(u64, u64)> {
        match self.inverse {
            None => at.is_multiple_of(self.every).then_some((0, 1)),
            Some(inverse) => {
                Some(((self.every - at % self.every) % self.every * inverse % self.every, self.every))
            }
        }
    }
}

/// The smallest prime from `n` on; 1 for 0 and 1.
fn next_prime(n: u64) -> u64 {
    if n <= 1 {
        return 1;
    }
    let is_prime =
        |n: u64| (2..).take_while(|factor| factor * factor <= n).all(|factor| !n.is_multiple_of(factor));
    (n..).find(|&n| is_prime(n)).unwrap_or(n)
}
