//! What of a program does not depend on sizes: which value's memory a value shares, how long it is needed, and
//! where segments end.

use std::collections::HashSet;

use planish_plan::{Home, Program, StepKind};

/// A run of steps whose sizes are all known before the first of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) first: usize,
    /// Behind the last step.
    pub(crate) end: usize,
}

/// The outline of one program.
#[derive(Debug)]
pub(crate) struct Outline {
    /// For each value the value that owns the memory it lies in.
    pub(crate) root: Vec<u32>,
    /// For each value that owns memory: the first step that writes and the last that touches it or a part.
    pub(crate) life: Vec<(usize, usize)>,
    pub(crate) segments: Vec<Segment>,
    /// For each value whether it is needed beyond the segment that makes it, and so has memory of its own.
    pub(crate) own: Vec<bool>,
    /// For each value the number of the output that it is, counted over the program's outputs.
    pub(crate) output: Vec<Option<usize>>,
}

impl Outline {
    pub(crate) fn new(program: &Program) -> Outline {
        let n_values = program.values.len();
        let root: Vec<u32> = (0..n_values as u32).map(|value| root_of(program, value)).collect();
        let segments = segments(program);
        let mut life = vec![(usize::MAX, 0); n_values];
        let mut touch = |value: u32, step: usize| {
            let (first, last) = &mut life[root[value as usize] as usize];
            *first = (*first).min(step);
            *last = (*last).max(step);
        };
        for (idx, step) in program.steps.iter().enumerate() {
            for &value in step.inputs.iter().chain(&step.outputs).flatten() {
                touch(value, idx);
            }
        }
        let mut output = vec![None; n_values];
        for (idx, &value) in program.outputs.iter().enumerate() {
            // An output may stand twice in the list; its memory is that of the first.
            output[value as usize].get_or_insert(idx);
        }
        let segment_of = |step: usize| segments.iter().position(|segment| step < segment.end);
        let own = (0..n_values)
            .map(|value| {
                let (first, last) = life[root[value] as usize];
                let crosses = first != usize::MAX && segment_of(first) != segment_of(last);
                matches!(program.values[root[value] as usize].home, Home::Own) || crosses
            })
            .collect();
        Outline { root, life, segments, own, output }
    }
}

fn root_of(program: &Program, value: u32) -> u32 {
    let mut at = value;
    // Plans are validated: chains end. The bound keeps a broken one from hanging.
    for _ in 0..program.values.len() {
        match &program.values[at as usize].home {
            Home::Alias { of } | Home::Inside { of, .. } => at = *of,
            Home::Input | Home::Weight(_) | Home::Arena | Home::Own => break,
        }
    }
    at
}

/// A segment ends behind each step whose outputs have sizes that are not known before it ran.
fn segments(program: &Program) -> Vec<Segment> {
    let mut known: HashSet<String> = HashSet::new();
    let learn = |value: u32, known: &mut HashSet<String>| {
        let mut new = false;
        match program.values[value as usize].ty.as_tensor().map(|ty| &ty.shape) {
            Some(Some(shape)) => {
                for dim in shape {
                    for symbol in dim.symbols() {
                        new |= known.insert(symbol.to_string());
                    }
                }
            }
            Some(None) | None => new = true,
        }
        new
    };
    for &input in &program.inputs {
        learn(input, &mut known);
    }
    let mut segments = Vec::new();
    let mut first = 0;
    for (idx, step) in program.steps.iter().enumerate() {
        let unknown_before = match step.kind {
            StepKind::Evaluate | StepKind::Control(_) => {
                let mut new = false;
                for &output in step.outputs.iter().flatten() {
                    new |= learn(output, &mut known);
                }
                new
            }
            StepKind::Kernel { .. } | StepKind::Transfer => false,
        };
        if unknown_before {
            segments.push(Segment { first, end: idx + 1 });
            first = idx + 1;
        }
    }
    if first < program.steps.len() || segments.is_empty() {
        segments.push(Segment { first, end: program.steps.len() });
    }
    segments
}
