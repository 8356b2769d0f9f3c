//! Concatenations written in place and slices read in place: values that are parts of others.
//!
//! Where every producer of a concatenation can write into a larger buffer and every other reader can read from
//! one, the parts are written where they belong and the Concat has nothing left to do. The same holds for Split
//! and Slice the other way round.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use planish_kernel::{Layout, Ref, Want};
use planish_op::{Op, ValueType};
use planish_plan::{Program, Step, StepKind, Storage};
use planish_tensor::{Dim, normalize_axis};

/// How a step takes its inputs and outputs; nothing for steps on the host.
type Wants = Option<(Vec<Want>, Vec<Want>)>;

/// Makes parts of values; gives the steps that have nothing left to do.
pub(crate) fn share_memory(program: &mut Program, wants: &[Wants]) -> BTreeSet<usize> {
    let mut removed = BTreeSet::new();
    let known_at = known_at(program);
    for idx in 0..program.steps.len() {
        let cx = || Cx { program, wants, uses: Uses::new(program, &removed) };
        let parts = match kernel_op(&program.steps[idx]) {
            Some(Op::Concat(concat)) => cx().concatenation(&known_at, idx, concat.axis),
            Some(Op::Split(split)) => cx().division(idx, split.axis),
            Some(Op::Slice(_)) => cx().slice(idx),
            _ => None,
        };
        if let Some(parts) = parts {
            for Part { value, of, axis, offset } in parts {
                program.values[value as usize].storage = Storage::Inside { of, axis: axis as u32, offset };
            }
            removed.insert(idx);
        }
    }
    removed
}

/// For each symbol the first step that can be resolved with it: 0 for those of the inputs, for others the one after
/// the step whose output it is read off.
fn known_at(program: &Program) -> HashMap<Arc<str>, usize> {
    let mut known: HashMap<Arc<str>, usize> = HashMap::new();
    let mut learn = |value: u32, step: usize| {
        for dim in dims(&program.values[value as usize].ty).unwrap_or_default() {
            if let Some(symbol) = dim.as_symbol() {
                known.entry(symbol.into()).or_insert(step);
            }
        }
    };
    program.inputs.iter().for_each(|&input| learn(input, 0));
    for (idx, step) in program.steps.iter().enumerate() {
        if matches!(step.kind, StepKind::Evaluate | StepKind::Control(_)) {
            step.outputs.iter().flatten().for_each(|&output| learn(output, idx + 1));
        }
    }
    known
}

struct Part {
    value: u32,
    of: u32,
    axis: usize,
    offset: Dim,
}

/// Who makes and who reads each value.
#[derive(Default)]
struct Uses {
    maker: HashMap<u32, (usize, usize)>,
    readers: HashMap<u32, Vec<(usize, usize)>>,
    /// Values that others are aliases of.
    aliased: BTreeSet<u32>,
    /// The parts of each value.
    parts: HashMap<u32, Vec<u32>>,
}

impl Uses {
    fn new(program: &Program, removed: &BTreeSet<usize>) -> Uses {
        let mut uses = Uses::default();
        for (idx, step) in program.steps.iter().enumerate() {
            if removed.contains(&idx) {
                continue;
            }
            for (place, value) in step.outputs.iter().enumerate() {
                value.map(|value| uses.maker.insert(value, (idx, place)));
            }
            for (place, value) in step.inputs.iter().enumerate() {
                if let Some(value) = value {
                    uses.readers.entry(*value).or_default().push((idx, place));
                }
            }
        }
        for (idx, value) in program.values.iter().enumerate() {
            match value.storage {
                Storage::Alias { of } => {
                    uses.aliased.insert(of);
                }
                Storage::Inside { of, .. } => uses.parts.entry(of).or_default().push(idx as u32),
                _ => {}
            }
        }
        uses
    }
}

fn kernel_op(step: &Step) -> Option<&Op> {
    match (&step.kind, &step.region.nodes[..]) {
        (StepKind::Kernel { .. }, [node]) => Some(&node.op),
        _ => None,
    }
}

fn dims(ty: &ValueType) -> Option<&[Dim]> {
    Some(ty.as_tensor()?.shape.as_ref()?.dims())
}

/// Whether a part of a value of this type and layout that begins at `offset` keeps to what [`Want::aligned`] says, as far as
/// sizes are numbers.
pub(crate) fn cuts_whole(whole: &ValueType, layout: Layout, axis: usize, offset: &Dim) -> bool {
    let (Some(ty), Some(dims)) = (whole.as_tensor(), dims(whole)) else { return false };
    let is_whole = |elements: &Dim| {
        let bytes = elements.as_usize().and_then(|elements| ty.dtype.bytes_for(elements));
        bytes.is_some_and(|bytes| bytes.is_multiple_of(Want::ALIGNMENT))
    };
    layout.order(dims.len()).last() == Some(&axis) && is_whole(&dims[axis]) && is_whole(offset)
}

/// What is read and written of a program, and how.
struct Cx<'a> {
    program: &'a Program,
    wants: &'a [Wants],
    uses: Uses,
}

impl Cx<'_> {
    fn cuts_whole(&self, of: u32, axis: usize, offset: &Dim) -> bool {
        let whole = &self.program.values[of as usize];
        cuts_whole(&whole.ty, whole.layout, axis, offset)
    }

    /// Whether a value lies in its root as [`Want::aligned`] says.
    fn is_aligned(&self, value: u32) -> bool {
        match &self.program.values[value as usize].storage {
            Storage::Inside { of, axis, offset } => {
                self.cuts_whole(*of, *axis as usize, offset) && self.is_aligned(*of)
            }
            Storage::Alias { .. } => false,
            Storage::Input | Storage::Weight(_) | Storage::Arena | Storage::Own => true,
        }
    }

    /// Whether all who touch a value but the step `except`, and parts of it, can have it inside of another one.
    fn can_lie_inside(&self, value: u32, is_aligned: bool, except: usize) -> bool {
        let Cx { program, wants, uses } = self;
        let takes = |want: &Want| want.inside && (is_aligned || !want.aligned);
        let reads = |&(step, place): &(usize, usize)| {
            step == except || wants[step].as_ref().is_some_and(|(inputs, _)| takes(&inputs[place]))
        };
        let makes = |&(step, place): &(usize, usize)| {
            step == except || wants[step].as_ref().is_some_and(|(_, outputs)| takes(&outputs[place]))
        };
        let can_follow = |&part: &u32| match &program.values[part as usize].storage {
            Storage::Inside { of, axis, offset } => {
                let is_aligned = is_aligned && self.cuts_whole(*of, *axis as usize, offset);
                self.can_lie_inside(part, is_aligned, except)
            }
            _ => false,
        };
        !uses.aliased.contains(&value)
            && !program.outputs.contains(&value)
            && uses.maker.get(&value).is_none_or(makes)
            && uses.readers.get(&value).into_iter().flatten().all(reads)
            && uses.parts.get(&value).into_iter().flatten().all(can_follow)
    }

    /// The first step that writes a value: its maker, or those of the parts that it is made of.
    fn first_write(&self, value: u32) -> Option<usize> {
        match self.uses.maker.get(&value) {
            Some((step, _)) => Some(*step),
            None => self.uses.parts.get(&value)?.iter().map(|part| self.first_write(*part)).min()?,
        }
    }

    fn concatenation(&self, known_at: &HashMap<Arc<str>, usize>, idx: usize, axis: i64) -> Option<Vec<Part>> {
        let Cx { program, .. } = self;
        let step = &program.steps[idx];
        let of = step.outputs.first().copied().flatten()?;
        let whole = &program.values[of as usize];
        if whole.storage != Storage::Arena {
            return None;
        }
        let sizes = dims(&whole.ty)?;
        let axis = normalize_axis(axis, sizes.len()).ok()?;
        // A part cannot be written before it is known how large the whole is: a step between may have to tell.
        let symbols = sizes.iter().flat_map(Dim::symbols).map(|symbol| known_at.get(&symbol).copied());
        let sized_from = symbols.collect::<Option<Vec<usize>>>()?.into_iter().max().unwrap_or(0);
        let mut parts = Vec::new();
        let mut offset = Dim::from(0);
        // A region names each value once; one that stands in the list twice cannot be in two places.
        for reference in &step.region.nodes[0].inputs {
            let Some(Ref::Input(input)) = reference else { return None };
            let value = step.inputs[*input as usize]?;
            let part = &program.values[value as usize];
            let fits = self.first_write(value)? >= sized_from
                && part.storage == Storage::Arena
                && part.layout == whole.layout
                && !parts.iter().any(|known: &Part| known.value == value)
                && self.can_lie_inside(value, self.cuts_whole(of, axis, &offset), idx);
            if !fits {
                return None;
            }
            let size = dims(&part.ty)?.get(axis)?.clone();
            parts.push(Part { value, of, axis, offset: offset.clone() });
            offset = offset + size;
        }
        Some(parts)
    }

    /// Whether `value` can be read where it lies inside `of`.
    fn can_be_part(&self, value: u32, (of, axis, offset): (u32, usize, &Dim), idx: usize) -> bool {
        let values = &self.program.values;
        let (part, whole) = (&values[value as usize], &values[of as usize]);
        let is_aligned = self.cuts_whole(of, axis, offset) && self.is_aligned(of);
        part.storage == Storage::Arena
            && part.layout == whole.layout
            && !matches!(whole.storage, Storage::Weight(_) | Storage::Own)
            && self.can_lie_inside(value, is_aligned, idx)
    }

    fn division(&self, idx: usize, axis: i64) -> Option<Vec<Part>> {
        let Cx { program, .. } = self;
        let step = &program.steps[idx];
        let of = step.inputs.first().copied().flatten()?;
        let axis = normalize_axis(axis, dims(&program.values[of as usize].ty)?.len()).ok()?;
        // Outputs that nobody wants have no value, and the places of the others would not be known.
        if step.region.outputs.len() != step.region.nodes[0].n_outputs as usize {
            return None;
        }
        let mut parts = Vec::new();
        let mut offset = Dim::from(0);
        for value in &step.outputs {
            let value = (*value)?;
            if !self.can_be_part(value, (of, axis, &offset), idx) {
                return None;
            }
            parts.push(Part { value, of, axis, offset: offset.clone() });
            offset = offset + dims(&program.values[value as usize].ty)?.get(axis)?.clone();
        }
        Some(parts)
    }

    /// A slice along one axis with a constant start and step 1.
    fn slice(&self, idx: usize) -> Option<Vec<Part>> {
        let Cx { program, .. } = self;
        let step = &program.steps[idx];
        let node = &step.region.nodes[0];
        let of = step.inputs.first().copied().flatten()?;
        let value = step.outputs.first().copied().flatten()?;
        let numbers =
            |place: usize| step.region.constant(node.inputs.get(place).copied()?).map(|t| t.to_i64s());
        let from = dims(&program.values[of as usize].ty)?;
        let [start] = numbers(1)?[..] else { return None };
        let axis = match node.inputs.get(3) {
            Some(Some(_)) => match numbers(3)?[..] {
                [axis] => normalize_axis(axis, from.len()).ok()?,
                _ => return None,
            },
            _ => 0,
        };
        if matches!(node.inputs.get(4), Some(Some(_))) && numbers(4)?[..] != [1] {
            return None;
        }
        // A start after the end is pulled back to it, which only known sizes tell.
        let size = from.get(axis)?;
        let offset = match size.as_const() {
            Some(size) => Dim::from(if start < 0 { (size + start).max(0) } else { start.min(size) }),
            None if start == 0 => Dim::from(0),
            None => return None,
        };
        self.can_be_part(value, (of, axis, &offset), idx).then(|| vec![Part { value, of, axis, offset }])
    }
}
