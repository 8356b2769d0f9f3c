//! TopK: the largest or smallest elements along an axis, in order, with their places.
//!
//! Every element becomes a key that sorts as the element does (NaN above everything), the place breaks ties as
//! ONNX says, so the order is total: what a selection followed by a sort of the selected gives is the only
//! answer there is. A few of many are kept in order while the line is read once: most blocks of it have nothing that
//! is better than the least of these.

mod family;
#[cfg(test)]
mod tests;

pub(crate) use family::TopKFamily;

use crate::spatial::units_per_task;
use crate::team::Team;

/// Elements that a task looks at, at least.
const TASK_ELEMENTS: usize = 1 << 13;

/// So few are kept in order while a line is read.
const FEW: usize = 16;
/// Lines with so many times more elements than are taken are read so.
const MANY: usize = 8;
/// Elements that are compared with the least of those at once.
const BLOCK: usize = 64;

/// Workspace for one element: its key and its place. In the order that is asked for, smaller comes first.
pub type Entry = (u64, u64);

/// Types whose elements can be ordered here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyType {
    F32,
    F64,
    F16,
    Bf16,
    /// Integers of so many bytes.
    Signed(usize),
    Unsigned(usize),
}

impl KeyType {
    /// Bytes of an element.
    fn width(self) -> usize {
        match self {
            KeyType::F32 => 4,
            KeyType::F64 => 8,
            KeyType::F16 | KeyType::Bf16 => 2,
            KeyType::Signed(width) | KeyType::Unsigned(width) => width,
        }
    }
}

/// A dimension beside the axis: its length, and elements from one place to the next in the data and in both
/// outputs.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    pub len: usize,
    pub from: usize,
    pub values: usize,
    pub places: usize,
}

/// A selection with everything settled that its sizes settle.
#[derive(Clone, Debug)]
pub struct TopK {
    pub key_type: KeyType,
    pub largest: bool,
    /// Elements along the axis, and how many are taken.
    pub len: usize,
    pub k: usize,
    /// Which of the step's outputs are the values and the places, as far as they are read.
    pub outputs: [Option<usize>; 2],
    /// Elements from one place of the axis to the next.
    pub from: usize,
    pub values: usize,
    pub places: usize,
    pub beside: Vec<Beside>,
}

/// What a run reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct TopKArguments {
    pub x: *const u8,
    /// Null where the output is not there.
    pub values: *mut u8,
    pub places: *mut i64,
    /// [`TopK::workspace_len`] entries for each slot of the team.
    pub workspace: *mut Entry,
}

// SAFETY: the input is only read, the outputs are written by one task each, the workspace by one slot each.
unsafe impl Sync for TopKArguments {}

impl TopK {
    /// Lines along the axis.
    pub fn n_lines(&self) -> usize {
        if self.k == 0 { 0 } else { self.beside.iter().map(|beside| beside.len).product() }
    }

    /// Entries of workspace for one slot.
    pub fn workspace_len(&self) -> usize {
        self.len
    }

    /// Makes the outputs that are there.
    ///
    /// # Safety
    /// The pointers must be valid for what the planned operands span, the workspace for
    /// [`TopK::workspace_len`] entries for each slot of the team, and nothing else may write them meanwhile.
    pub unsafe fn run(&self, arguments: &TopKArguments, team: &Team) {
        let n_lines = self.n_lines();
        let lines_per_task = units_per_task(n_lines, self.len, TASK_ELEMENTS);
        team.for_each(n_lines.div_ceil(lines_per_task), &|task| {
            let first = task.idx * lines_per_task;
            for line in first..(first + lines_per_task).min(n_lines) {
                // SAFETY: the caller grants the memory; the slot's workspace is this thread's.
                unsafe { self.line(arguments, line, task.slot) };
            }
        });
    }

    /// # Safety
    /// As for `run`.
    unsafe fn line(&self, arguments: &TopKArguments, line: usize, slot: usize) {
        let (mut from, mut values, mut places, mut rest) = (0, 0, 0, line);
        for beside in self.beside.iter().rev() {
            let at = rest % beside.len;
            rest /= beside.len;
            from += at * beside.from;
            values += at * beside.values;
            places += at * beside.places;
        }
        // SAFETY: the workspace has `len` entries for each slot.
        let entries = unsafe {
            let start = arguments.workspace.add(slot * self.workspace_len());
            (0..self.len).for_each(|at| start.add(at).write((0, at as u64)));
            std::slice::from_raw_parts_mut(start, self.len)
        };
        let ordered = |key: u64| if self.largest { !key } else { key };
        if self.k <= FEW && self.len / MANY >= self.k {
            let kept = &mut entries[..self.k];
            // SAFETY: the line lies in the data.
            unsafe {
                match (self.key_type, self.from) {
                    (KeyType::F32, 1) => {
                        let x = arguments.x.cast::<f32>().add(from);
                        keep_few(self.len, kept, |at| {
                            let key = key_of_f32(x.add(at).read_unaligned());
                            if self.largest { !key } else { key }
                        });
                    }
                    _ => keep_few(self.len, kept, |at| ordered(self.key(arguments.x, from + at * self.from))),
                }
            }
        } else {
            for (at, entry) in entries.iter_mut().enumerate() {
                // SAFETY: the line lies in the data.
                entry.0 = ordered(unsafe { self.key(arguments.x, from + at * self.from) });
            }
            if self.k < self.len {
                entries.select_nth_unstable(self.k - 1);
            }
            entries[..self.k].sort_unstable();
        }
        for (rank, entry) in entries[..self.k].iter().enumerate() {
            let at = entry.1 as usize;
            // SAFETY: the lines lie in the data and in the outputs that are there.
            unsafe {
                if self.outputs[0].is_some() {
                    self.copy(arguments, from + at * self.from, values + rank * self.values);
                }
                if self.outputs[1].is_some() {
                    arguments.places.add(places + rank * self.places).write_unaligned(at as i64);
                }
            }
        }
    }

    /// A number that sorts as the element does.
    ///
    /// # Safety
    /// The element must be readable.
    #[inline(always)]
    unsafe fn key(&self, x: *const u8, at: usize) -> u64 {
        // SAFETY: the caller says so.
        unsafe {
            match self.key_type {
                KeyType::F32 => u64::from(key_of_f32(x.cast::<f32>().add(at).read_unaligned())),
                KeyType::F64 => {
                    let value = x.cast::<f64>().add(at).read_unaligned();
                    let bits = if value.is_nan() { u64::MAX >> 1 } else { (value + 0.0).to_bits() };
                    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
                }
                KeyType::F16 | KeyType::Bf16 => {
                    let bits = x.cast::<u16>().add(at).read_unaligned();
                    let infinity = if self.key_type == KeyType::F16 { 0x7c00 } else { 0x7f80 };
                    let bits = match bits & 0x7fff {
                        0 => 0,
                        magnitude if magnitude > infinity => 0x7fff,
                        _ => bits,
                    };
                    u64::from(if bits >> 15 == 0 { bits | 1 << 15 } else { !bits })
                }
                KeyType::Signed(width) => {
                    let value: i64 = match width {
                        1 => x.cast::<i8>().add(at).read_unaligned().into(),
                        2 => x.cast::<i16>().add(at).read_unaligned().into(),
                        4 => x.cast::<i32>().add(at).read_unaligned().into(),
                        _ => x.cast::<i64>().add(at).read_unaligned(),
                    };
                    value as u64 ^ 1 << 63
                }
                KeyType::Unsigned(width) => match width {
                    1 => x.cast::<u8>().add(at).read_unaligned().into(),
                    2 => x.cast::<u16>().add(at).read_unaligned().into(),
                    4 => x.cast::<u32>().add(at).read_unaligned().into(),
                    _ => x.cast::<u64>().add(at).read_unaligned(),
                },
            }
        }
    }

    /// # Safety
    /// The element must be readable, its place among the values writable.
    #[inline(always)]
    unsafe fn copy(&self, arguments: &TopKArguments, from: usize, to: usize) {
        // SAFETY: the caller says so.
        unsafe {
            let width = self.key_type.width();
            let (from, to) = (arguments.x.add(from * width), arguments.values.add(to * width));
            match width {
                1 => to.write(from.read()),
                2 => to.cast::<u16>().write_unaligned(from.cast::<u16>().read_unaligned()),
                4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
                _ => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            }
        }
    }
}

/// A number that sorts as the element does: both zeros are equal, and all NaNs, above everything else.
#[inline(always)]
fn key_of_f32(value: f32) -> u32 {
    let bits = if value.is_nan() { 0x7FFF_FFFF } else { (value + 0.0).to_bits() };
    bits ^ ((bits as i32 >> 31) as u32 | 1 << 31)
}

/// Those with the least keys of a line, in order; of equal ones, the first. At most [`FEW`].
#[inline(always)]
fn keep_few<K: Copy + Ord + Default + Into<u64>>(len: usize, kept: &mut [Entry], key: impl Fn(usize) -> K) {
    let k = kept.len().min(FEW);
    let mut best = [(K::default(), 0); FEW];
    let mut n = 0;
    let mut keys = [K::default(); BLOCK];
    for first in (0..len).step_by(BLOCK) {
        let keys = &mut keys[..BLOCK.min(len - first)];
        keys.iter_mut().enumerate().for_each(|(at, to)| *to = key(first + at));
        let limit = best[k - 1].0;
        if n == k && !keys.iter().fold(false, |is_better, key| is_better | (*key < limit)) {
            continue;
        }
        for (at, &key) in keys.iter().enumerate() {
            if n == k && key >= best[k - 1].0 {
                continue;
            }
            n = (n + 1).min(k);
            let place = best[..n - 1].partition_point(|(other, _)| *other <= key);
            best.copy_within(place..n - 1, place + 1);
            best[place] = (key, first + at);
        }
    }
    for (entry, (key, at)) in kept.iter_mut().zip(best) {
        *entry = (key.into(), at as u64);
    }
}
