//! Concatenations and parts that cost nothing: tactics that take a value inside of a larger one, where the copy that this
//! saves is dearer than the tactics are slower.
//!
//! The choice before prices each step by itself, so that the fastest tactic of a layer wins even where it takes dense
//! values only and so makes a copy of them necessary. What then lies inside what is decided by the schedule.

use std::collections::HashMap;

use planish_kernel::{Layout, Want};
use planish_op::Op;
use planish_tensor::{Dim, normalize_axis};

use crate::choose::select::{Picks, layout_of, makers};
use crate::lower::candidates::{Alternative, Choices};
use crate::lower::{Draft, Source};
use crate::schedule::parts::cuts_whole;

/// Where a step touches a value.
#[derive(Clone, Copy)]
enum Touch {
    Reads(usize, usize),
    Makes(usize, usize),
}

impl Touch {
    fn step(self) -> usize {
        let (Touch::Reads(step, _) | Touch::Makes(step, _)) = self;
        step
    }

    fn want(self, alternative: &Alternative) -> Want {
        match self {
            Touch::Reads(_, place) => alternative.candidate.inputs[place],
            Touch::Makes(_, place) => alternative.candidate.outputs[place],
        }
    }
}

/// A draft, with who makes and who reads each value.
struct Cx<'a> {
    draft: &'a Draft,
    choices: &'a [Choices],
    made_by: Vec<Option<(usize, usize)>>,
    readers: Vec<Vec<(usize, usize)>>,
}

/// Changes the choice of steps around concatenations and parts where that makes copies unnecessary and is worth it. A step
/// on a backend costs `step_ns` by being there.
pub(crate) fn spare_copies(
    draft: &Draft,
    choices: &[Choices],
    picks: &mut Picks,
    step_ns: impl Fn(u32) -> f64,
) {
    let mut readers = vec![Vec::new(); draft.values.len()];
    for (idx, step) in draft.steps.iter().enumerate() {
        for (place, value) in step.inputs.iter().enumerate() {
            if let Some(value) = value {
                readers[*value].push((idx, place));
            }
        }
    }
    let cx = Cx { draft, choices, made_by: makers(draft), readers };
    for idx in 0..draft.steps.len() {
        if let Some((changes, ns)) = cx.changes(picks, idx)
            && choices[idx].list[picks[idx]].ns + step_ns(draft.steps[idx].target) > ns
        {
            for (step, alternative) in changes {
                picks[step] = alternative;
            }
        }
    }
}

impl Cx<'_> {
    /// Other choices that leave step `idx` nothing to copy, and what they cost more; `None` where there are none.
    fn changes(&self, picks: &Picks, idx: usize) -> Option<(HashMap<usize, usize>, f64)> {
        let Cx { draft, choices, .. } = self;
        let own = choices[idx].list.get(picks[idx]).filter(|own| !own.view)?;
        let layout = own.candidate.outputs.first()?.layout;
        let mut changes = HashMap::new();
        let mut ns = 0.0;
        for (value, is_aligned) in self.parts(idx, layout)? {
            let makes = match draft.values[value].source {
                Source::Step => self.made_by[value].map(|(step, place)| Touch::Makes(step, place)),
                _ => None,
            };
            let reads = self.readers[value].iter().map(|&(step, place)| Touch::Reads(step, place));
            let others = makes.into_iter().chain(reads).filter(|touch| touch.step() != idx);
            if layout_of(draft, choices, picks, &self.made_by, value) != layout
                || draft.outputs.contains(&value)
            {
                return None;
            }
            for touch in others {
                let at = changes.get(&touch.step()).copied().unwrap_or(picks[touch.step()]);
                let list = &choices[touch.step()].list;
                let now = list.get(at).filter(|now| !now.view)?;
                let takes = |one: &Alternative| {
                    let want = touch.want(one);
                    want.layout == layout && want.inside && (is_aligned || !want.aligned)
                };
                if takes(now) {
                    continue;
                }
                let stands_in = |other: &&(usize, &Alternative)| {
                    let (_, other) = other;
                    takes(other) && !other.view && other.measured >= now.measured && takes_as(other, now)
                };
                let (other, with) = list
                    .iter()
                    .enumerate()
                    .filter(|other| stands_in(&other))
                    .min_by(|a, b| a.1.ns.total_cmp(&b.1.ns))?;
                ns += with.ns - now.ns;
                changes.insert(touch.step(), other);
            }
        }
        (!changes.is_empty()).then_some((changes, ns))
    }

    /// The values that would lie inside of another one if step `idx` had nothing to copy, and whether at whole multiples
    /// of what bulk copies ask for.
    fn parts(&self, idx: usize, layout: Layout) -> Option<Vec<(usize, bool)>> {
        let step = &self.draft.steps[idx];
        let [node] = &step.region.nodes[..] else { return None };
        let (axis, whole, values): (i64, usize, Vec<usize>) = match &node.op {
            Op::Concat(op) => {
                (op.axis, *step.outputs.first()?, step.inputs.iter().copied().collect::<Option<_>>()?)
            }
            Op::Split(op) => (op.axis, step.inputs.first().copied().flatten()?, step.outputs.clone()),
            _ => return None,
        };
        let dims = |value: usize| self.draft.values[value].ty.as_tensor()?.shape.as_ref();
        let axis = normalize_axis(axis, dims(whole)?.rank()).ok()?;
        let mut offset = Dim::from(0);
        let mut parts: Vec<(usize, bool)> = Vec::new();
        for value in values {
            let is_made = matches!(self.draft.values[value].source, Source::Step);
            if !is_made || parts.iter().any(|(known, _)| *known == value) {
                return None;
            }
            parts.push((value, cuts_whole(&self.draft.values[whole].ty, layout, axis, &offset)));
            offset = offset + dims(value)?.dims().get(axis)?.clone();
        }
        Some(parts)
    }
}

/// Whether one alternative can stand in for another without anything else changing.
fn takes_as(one: &Alternative, other: &Alternative) -> bool {
    let all = |one: &[Want], other: &[Want]| {
        one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.takes_all_of(*other))
    };
    all(&one.candidate.inputs, &other.candidate.inputs)
        && all(&one.candidate.outputs, &other.candidate.outputs)
}

#[cfg(test)]
mod tests {
    use planish_kernel::{Candidate, Region, Tactic};
    use planish_op::{Concat, Relu, TensorType, ValueType};
    use planish_tensor::{DType, Shape};

    use super::*;
    use crate::lower::{DraftKind, DraftStep, DraftValue};

    const PLAIN: Layout = Layout::Plain;

    fn alternative(ns: f64, inputs: &[Want], outputs: &[Want]) -> Alternative {
        let candidate = Candidate::new(Tactic::new("made_up", 1), inputs.to_vec(), outputs.to_vec(), ns);
        Alternative { candidate, ns, measured: true, view: false }
    }

    /// Two layers whose results of `n` elements a row are concatenated at 100 ns; the first has a dense tactic of 50 ns and
    /// one with `want` of `ns`.
    fn layers(n: usize, want: Want, ns: f64) -> (Draft, Vec<Choices>) {
        let value = |source: Source, n: usize| DraftValue {
            name: "v".to_string(),
            ty: ValueType::Tensor(TensorType::new(
                DType::F32,
                [3, n].map(Dim::from).into_iter().collect::<Shape>(),
            )),
            source,
        };
        let values = [(Source::Input, n), (Source::Step, n), (Source::Step, n), (Source::Step, 2 * n)];
        let values = values.into_iter().map(|(source, n)| value(source, n)).collect();
        let step = |op: Op, inputs: &[usize], output: usize| DraftStep {
            nodes: Vec::new(),
            region: Region::single(op, inputs.len() as u32, 1),
            inputs: inputs.iter().map(|value| Some(*value)).collect(),
            outputs: vec![output],
            kind: DraftKind::Kernel,
            target: 0,
        };
        let steps = vec![
            step(Relu {}.into(), &[0], 1),
            step(Relu {}.into(), &[0], 2),
            step(Concat { axis: 1 }.into(), &[1, 2], 3),
        ];
        let anywhere = Want::inside(PLAIN);
        let lists = [
            vec![
                alternative(50.0, &[anywhere], &[Want::dense(PLAIN)]),
                alternative(ns, &[anywhere], &[want]),
            ],
            vec![alternative(50.0, &[anywhere], &[anywhere])],
            vec![alternative(100.0, &[anywhere; 2], &[anywhere])],
        ];
        let choices = lists.map(|list| Choices { problem: None, list, refused: Vec::new() });
        let draft = Draft { values, inputs: vec![0], outputs: vec![3], steps, ..Draft::default() };
        (draft, choices.into())
    }

    fn picked(n: usize, want: Want, ns: f64) -> Picks {
        let (draft, choices) = layers(n, want, ns);
        let mut picks = vec![0; 3];
        spare_copies(&draft, &choices, &mut picks, |_| 10.0);
        picks
    }

    #[test]
    fn a_slower_tactic_wins_where_it_spares_a_dearer_copy() {
        assert_eq!(picked(8, Want::inside(PLAIN), 159.0), [1, 0, 0], "109 ns more spare 110");
        assert_eq!(picked(8, Want::inside(PLAIN), 161.0), [0, 0, 0], "111 ns more do not");
        assert_eq!(picked(8, Want::inside(Layout::ChannelsLast), 60.0), [0, 0, 0], "another layout");
        assert_eq!(picked(8, Want::dense(PLAIN), 60.0), [0, 0, 0], "no part either");
    }

    #[test]
    fn aligned_tactics_win_where_parts_are_whole_multiples() {
        assert_eq!(picked(8, Want::inside_aligned(PLAIN), 60.0), [1, 0, 0], "rows of 64 bytes");
        assert_eq!(
            picked(6, Want::inside_aligned(PLAIN), 60.0),
            [1, 0, 0],
            "the first 24 bytes of rows of 48"
        );
        assert_eq!(picked(7, Want::inside_aligned(PLAIN), 60.0), [0, 0, 0], "rows of 56 bytes");
    }

    #[test]
    fn outputs_and_doubled_values_are_copied_anyway() {
        let (mut draft, choices) = layers(8, Want::inside(PLAIN), 60.0);
        draft.outputs.push(1);
        let mut picks = vec![0; 3];
        spare_copies(&draft, &choices, &mut picks, |_| 10.0);
        assert_eq!(picks, [0, 0, 0], "an output has memory of its own");
        let (mut draft, choices) = layers(8, Want::inside(PLAIN), 60.0);
        draft.steps[2].inputs = vec![Some(1), Some(1)];
        spare_copies(&draft, &choices, &mut picks, |_| 10.0);
        assert_eq!(picks, [0, 0, 0], "a value cannot be in two places");
    }
}
