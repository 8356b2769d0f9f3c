//! What lies in the arena while a plan runs, step by step, at the sizes that it was tuned at.

use std::collections::BTreeMap;

use planish::record::{Plan, Program, Storage};
use planish::shapes;
use serde_json::{Value, json};

/// Values that are listed by name at most: the largest.
const MOST_LISTED: usize = 200;

/// A value's place in time.
struct Life {
    name: String,
    bytes: u64,
    from: usize,
    to: usize,
}

/// The bytes that are alive during each step.
pub(super) struct Timeline {
    alive: Vec<u64>,
    lives: Vec<Life>,
    /// Values whose sizes only a run can tell.
    n_open: usize,
}

/// Where a value's memory is, in a word.
pub(super) fn storage_name(storage: &Storage) -> &'static str {
    match storage {
        Storage::Input => "input",
        Storage::Weight(_) => "weight",
        Storage::Arena => "arena",
        Storage::Alias { .. } => "view of another",
        Storage::Inside { .. } => "part of another",
        Storage::Own => "its own",
    }
}

impl Timeline {
    pub(super) fn of(plan: &Plan) -> Timeline {
        let program = &plan.program;
        let sizes: BTreeMap<String, i64> = plan.header.tuned_at.iter().cloned().collect();
        // From when to when the memory of each value that has one is in use, under whatever name.
        let mut uses: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for (at, step) in program.steps.iter().enumerate() {
            for &value in step.inputs.iter().chain(&step.outputs).flatten() {
                let root = root_of(program, value as usize);
                let (from, to) = uses.entry(root).or_insert((at, at));
                (*from, *to) = ((*from).min(at), (*to).max(at));
            }
        }
        for &output in &program.outputs {
            // Outputs are there until the end.
            if let Some((_, to)) = uses.get_mut(&root_of(program, output as usize)) {
                *to = program.steps.len().saturating_sub(1);
            }
        }
        let mut timeline = Timeline { alive: vec![0; program.steps.len()], lives: Vec::new(), n_open: 0 };
        for (root, (from, to)) in uses {
            let value = &program.values[root];
            if !matches!(value.storage, Storage::Arena | Storage::Own) {
                continue;
            }
            let Some(ty) = value.ty.as_tensor() else {
                timeline.n_open += 1;
                continue;
            };
            let dims = shapes::shape_at(&value.name, ty, &sizes).ok();
            let Some(bytes) = dims.and_then(|dims| ty.dtype.bytes_for(dims.iter().product())) else {
                timeline.n_open += 1;
                continue;
            };
            timeline.alive[from..=to].iter_mut().for_each(|alive| *alive += bytes as u64);
            timeline.lives.push(Life { name: value.name.clone(), bytes: bytes as u64, from, to });
        }
        timeline.lives.sort_by_key(|life| (std::cmp::Reverse(life.bytes), life.from));
        timeline
    }

    pub(super) fn json(&self) -> Value {
        let lives = self.lives.iter().take(MOST_LISTED);
        json!({
            "alive_bytes": self.alive,
            "peak_bytes": self.alive.iter().max(),
            "values": lives.map(|life| json!([life.name, life.bytes, life.from, life.to])).collect::<Vec<_>>(),
            "values_not_listed": self.lives.len().saturating_sub(MOST_LISTED),
            "values_of_open_size": self.n_open,
        })
    }
}

/// The value whose memory another one uses.
fn root_of(program: &Program, mut value: usize) -> usize {
    // A chain is no longer than there are values, whatever a file says.
    for _ in 0..program.values.len() {
        match program.values[value].storage {
            Storage::Alias { of } | Storage::Inside { of, .. } if (of as usize) < program.values.len() => {
                value = of as usize;
            }
            _ => break,
        }
    }
    value
}
