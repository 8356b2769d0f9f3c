//! What of a program does not depend on sizes: which value's memory a value shares, how long it is needed, and
//! where segments end.

use std::collections::{HashMap, HashSet};

use planish_kernel::RegionNode;
use planish_plan::{Program, Step, StepKind, Storage};

/// A run of steps whose sizes are all known before the first of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) first: usize,
    /// After the last step.
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
    /// For each step the first that does the same, itself if none: at equal operands they share a kernel. The
    /// layers of a network are mostly alike, so few kernels are prepared when it meets a new size.
    pub(crate) twin: Vec<usize>,
    /// For each value that owns memory, how many steps write it or a part.
    pub(crate) n_writers: Vec<u32>,
    /// For each value that is an input, which.
    pub(crate) input: Vec<Option<u32>>,
    /// For each value whether a transfer writes it.
    pub(crate) transferred: Vec<bool>,
    /// For each input whether anything but a transfer reads it.
    pub(crate) host_read: Vec<bool>,
}

impl Outline {
    pub(crate) fn new(program: &Program) -> Outline {
        let n_values = program.values.len();
        let root = roots(program);
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
        // Segments follow each other: the first that ends after a step has it.
        let segment_of = |step: usize| segments.partition_point(|segment| segment.end <= step);
        let own = (0..n_values)
            .map(|value| {
                let (first, last) = life[root[value] as usize];
                let crosses = first != usize::MAX && segment_of(first) != segment_of(last);
                matches!(program.values[root[value] as usize].storage, Storage::Own) || crosses
            })
            .collect();
        let mut n_writers = vec![0u32; n_values];
        let mut input = vec![None; n_values];
        for (idx, &value) in program.inputs.iter().enumerate() {
            input[value as usize] = Some(idx as u32);
        }
        let mut transferred = vec![false; n_values];
        let mut is_read = vec![false; n_values];
        for step in &program.steps {
            let is_transfer = matches!(step.kind, StepKind::Transfer);
            for &value in step.outputs.iter().flatten() {
                transferred[value as usize] |= is_transfer;
                n_writers[root[value as usize] as usize] += 1;
            }
            for &value in step.inputs.iter().flatten().filter(|_| !is_transfer) {
                is_read[root[value as usize] as usize] = true;
            }
        }
        let host_read = program.inputs.iter().map(|&input| is_read[input as usize]).collect();
        let twin = twins(&program.steps);
        Outline { root, life, segments, own, output, twin, n_writers, input, transferred, host_read }
    }
}

/// Different steps of one tactic that a step is compared with. Of networks that we know none has more: their layers
/// differ in sizes, not in regions.
const MOST_FIRSTS: usize = 64;

fn twins(steps: &[Step]) -> Vec<usize> {
    let mut twin: Vec<usize> = (0..steps.len()).collect();
    // First steps of their kind, by the tactic that they begin with: few have that in common and differ. A forged
    // plan could have any number of them, so only the latest are compared with.
    let mut firsts: HashMap<&str, Vec<usize>> = HashMap::new();
    for (idx, step) in steps.iter().enumerate() {
        let StepKind::Kernel { variants, .. } = &step.kind else { continue };
        let name = variants.first().map_or("", |variant| variant.tactic.name.as_str());
        let known = firsts.entry(name).or_default();
        match known.iter().rev().take(MOST_FIRSTS).find(|&&first| same_work(&steps[first], step)) {
            Some(&first) => twin[idx] = first,
            None => known.push(idx),
        }
    }
    twin
}

/// Whether two steps are the same but for their names and operands.
fn same_work(a: &Step, b: &Step) -> bool {
    let node = |(a, b): (&RegionNode, &RegionNode)| {
        a.op == b.op && a.inputs == b.inputs && a.n_outputs == b.n_outputs
    };
    a.kind == b.kind
        && (a.target, a.numeric) == (b.target, b.numeric)
        && a.region.n_inputs == b.region.n_inputs
        && a.region.outputs == b.region.outputs
        && a.region.constants == b.region.constants
        && a.region.nodes.len() == b.region.nodes.len()
        && a.region.nodes.iter().zip(&b.region.nodes).all(node)
}

/// For each value the one that owns its memory. Plans are validated: chains end.
fn roots(program: &Program) -> Vec<u32> {
    let mut root: Vec<Option<u32>> = vec![None; program.values.len()];
    let mut way = Vec::new();
    for start in 0..program.values.len() as u32 {
        let mut at = start;
        let found = loop {
            if let Some(known) = root[at as usize] {
                break known;
            }
            way.push(at);
            match &program.values[at as usize].storage {
                Storage::Alias { of } | Storage::Inside { of, .. } => at = *of,
                Storage::Input | Storage::Weight(_) | Storage::Arena | Storage::Own => break at,
            }
        };
        way.drain(..).for_each(|value| root[value as usize] = Some(found));
    }
    root.into_iter().enumerate().map(|(value, root)| root.unwrap_or(value as u32)).collect()
}

/// A segment ends after each step whose outputs have sizes that are not known before it ran.
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
