//! Branches of a span on several streams: which steps may run beside each other, by the memory that they touch.
//!
//! Two steps keep their order where one writes bytes that the other reads or writes. Addresses are compared and not
//! values: where the arena gives the place of a dead value to a new one, that is an order too.

use planish_kernel::Address;
use planish_plan::Step;

use crate::resolve::{Action, Base, Resolved};

/// Streams over which branches are spread if nothing else is asked for. On an H200 two take ResNet-18 at batch 1, three
/// of whose shortcuts are convolutions, from 76 to 70 µs, and cost models without such branches 0.3 %; three win nothing
/// more.
pub const DEFAULT_STREAMS: usize = 2;

/// Steps after a step that memory may be kept for.
const SLACK: usize = 3;

/// Until which step the memory that step `at` is the last to touch is kept: as long as steps follow that do not wait for
/// it by their values, so that a branch beside it does not have to wait for its memory either. In a row of steps that
/// is no longer at all, and memory that was just used, which is in the cache, is used again.
pub(crate) fn kept_until(steps: &[Step], root: &[u32], at: usize, streams: usize) -> usize {
    if streams < 2 {
        return at;
    }
    let touches = |list: &[Option<u32>], made: &[u32]| {
        list.iter().flatten().any(|&value| made.contains(&root[value as usize]))
    };
    let outputs = |step: &Step| -> Vec<u32> {
        step.outputs.iter().flatten().map(|&value| root[value as usize]).collect()
    };
    let Some(first) = steps.get(at) else { return at };
    let (mut after, mut until) = (outputs(first), at);
    for (next, step) in steps.iter().enumerate().skip(at + 1).take(SLACK) {
        if step.target == first.target && !touches(&step.inputs, &after) {
            until = next;
        } else {
            after.extend(outputs(step));
        }
    }
    until
}

/// Bytes that a step touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Touch {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) writes: bool,
}

/// Where a step of a span goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lane {
    pub(crate) stream: usize,
    /// Steps on other streams, by their places in the span, that must be done before.
    pub(crate) waits: Vec<usize>,
    /// Whether a step on another stream, or the end, waits for it.
    pub(crate) awaited: bool,
}

/// Steps with their streams, and the steps that the first stream waits for at the end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Branches {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) joins: Vec<usize>,
}

/// What a kernel step touches at these addresses: its operands, weights left out, and its workspace.
pub(crate) fn touches(resolved: &Resolved, at: usize, record: &Step, own: &[Address]) -> Vec<Touch> {
    let step = &resolved.steps[at];
    let n_inputs = step.inputs.len();
    let mut list = Vec::new();
    let mut touch = |address: Address, bytes: usize, writes: bool| {
        if bytes > 0 {
            list.push(Touch { start: address.0, end: address.0 + bytes as u64, writes });
        }
    };
    let values = record.inputs.iter().chain(&record.outputs);
    let locations = step.inputs.iter().chain(&step.outputs);
    for (idx, ((value, location), address)) in values.zip(locations).zip(own).enumerate() {
        let Some(value) = value else { continue };
        // Weights are only read; copies into the ring have an order of their own.
        if matches!(location.base, Base::Absolute | Base::Ring) {
            continue;
        }
        // A size that is not known touches everything.
        let operand = resolved.operands[*value as usize].as_ref();
        let bytes = operand.map_or(usize::MAX >> 1, |operand| operand.span_bytes());
        touch(*address, bytes, idx >= n_inputs);
    }
    if let (Action::Kernel { kernel, .. }, Some(workspace)) = (&step.action, own.last()) {
        touch(*workspace, kernel.workspace_bytes(), true);
    }
    list
}

fn conflict(a: &[Touch], b: &[Touch]) -> bool {
    a.iter().any(|a| b.iter().any(|b| (a.writes || b.writes) && a.start < b.end && b.start < a.end))
}

/// Gives every step a stream. A step goes on after the last of what it needs; a branch begins on a stream whose last
/// step it needs anyway, or on an unused one.
pub(crate) fn assign(touches: &[Vec<Touch>], n_streams: usize) -> Branches {
    let mut branches = Branches::default();
    let lanes = &mut branches.lanes;
    // For each step and stream how many of the span's steps there are done before it, itself counted.
    let mut after: Vec<Vec<usize>> = Vec::with_capacity(touches.len());
    let mut tails: Vec<Option<usize>> = vec![None; n_streams.max(1)];
    for at in 0..touches.len() {
        let needs: Vec<usize> = (0..at).filter(|&i| conflict(&touches[i], &touches[at])).collect();
        let is_before = |i: usize, k: usize| i != k && after[k][lanes[i].stream] > i;
        let direct: Vec<usize> =
            needs.iter().copied().filter(|&i| !needs.iter().any(|&k| is_before(i, k))).collect();
        let goes_on = direct
            .iter()
            .map(|&i| lanes[i].stream)
            .filter(|&s| tails[s].is_some_and(|tail| direct.contains(&tail)));
        let idle =
            |&s: &usize| tails[s].is_none_or(|tail| direct.iter().any(|&i| i == tail || is_before(tail, i)));
        let stream = goes_on
            .min()
            .or_else(|| (0..tails.len()).find(idle))
            .unwrap_or_else(|| (0..tails.len()).min_by_key(|&s| tails[s]).unwrap_or(0));
        let mut clock = tails[stream].map_or_else(|| vec![0; tails.len()], |tail| after[tail].clone());
        let mut waits = Vec::new();
        for &i in &direct {
            if clock[lanes[i].stream] <= i {
                waits.push(i);
            }
        }
        for &i in &waits {
            clock.iter_mut().zip(&after[i]).for_each(|(own, theirs)| *own = (*own).max(*theirs));
            lanes[i].awaited = true;
        }
        clock[stream] = at + 1;
        after.push(clock);
        tails[stream] = Some(at);
        lanes.push(Lane { stream, waits, awaited: false });
    }
    let end = tails[0].map_or_else(|| vec![0; tails.len()], |tail| after[tail].clone());
    for tail in tails.iter().skip(1).flatten().copied() {
        if end[lanes[tail].stream] <= tail {
            lanes[tail].awaited = true;
            branches.joins.push(tail);
        }
    }
    branches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(start: u64, end: u64) -> Touch {
        Touch { start, end, writes: false }
    }

    fn writes(start: u64, end: u64) -> Touch {
        Touch { start, end, writes: true }
    }

    fn streams(branches: &Branches) -> Vec<usize> {
        branches.lanes.iter().map(|lane| lane.stream).collect()
    }

    /// A block with a shortcut: two branches from one value, joined by the last step.
    #[test]
    fn branches_that_share_no_bytes_run_beside_each_other() {
        let block = [
            vec![writes(0, 64)],
            vec![reads(0, 64), writes(64, 128)],
            vec![reads(0, 64), writes(128, 192)],
            vec![reads(64, 128), reads(128, 192), writes(192, 256)],
        ];
        let branches = assign(&block, 2);
        assert_eq!(streams(&branches), [0, 0, 1, 0]);
        assert_eq!(branches.lanes[2].waits, [0]);
        assert_eq!(branches.lanes[3].waits, [2]);
        assert!(branches.joins.is_empty());
        // On one stream nothing waits.
        let plain = assign(&block, 1);
        assert!(plain.lanes.iter().all(|lane| *lane == Lane::default()), "{plain:?}");
        // The same workspace makes them wait.
        let mut workspace = block;
        workspace[1].push(writes(512, 600));
        workspace[2].push(writes(599, 700));
        assert_eq!(streams(&assign(&workspace, 2)), [0, 0, 0, 0]);
    }

    #[test]
    fn what_ends_beside_the_first_stream_is_joined() {
        let apart = [vec![writes(0, 8)], vec![writes(8, 16)], vec![writes(16, 24)]];
        let branches = assign(&apart, 2);
        assert_eq!(streams(&branches), [0, 1, 0]);
        assert_eq!(branches.joins, [1]);
    }

    #[test]
    fn memory_is_kept_where_branches_are_and_nowhere_else() {
        let step = |input: u32, output: u32| Step {
            name: String::new(),
            kind: planish_plan::StepKind::Transfer,
            region: planish_kernel::Region::default(),
            inputs: vec![Some(input)],
            outputs: vec![Some(output)],
            numeric: planish_kernel::Numeric::F32,
            target: 1,
        };
        let root: Vec<u32> = (0..8).collect();
        let row = [step(0, 1), step(1, 2), step(2, 3), step(3, 4)];
        assert_eq!((0..4).map(|at| kept_until(&row, &root, at, 2)).collect::<Vec<_>>(), [0, 1, 2, 3]);
        // 1 and 2 read what 0 makes, 3 what 2 makes: beside 1 there are two steps, beside 2 none that follows.
        let fork = [step(0, 1), step(1, 2), step(1, 3), step(3, 4)];
        assert_eq!((0..4).map(|at| kept_until(&fork, &root, at, 2)).collect::<Vec<_>>(), [0, 3, 2, 3]);
        assert_eq!(kept_until(&fork, &root, 1, 1), 1);
    }

    /// Random steps: whatever conflicts is in order, through the streams and the waits alone.
    #[test]
    fn every_conflict_is_in_order() {
        let mut random = planish_testing::Random::new(11);
        let mut next = |n: usize| random.below(n) as u64;
        let mut n_beside = 0;
        for case in 0..300 {
            let steps: Vec<Vec<Touch>> = (0..25)
                .map(|_| {
                    (0..1 + next(3))
                        .map(|_| {
                            let start = next(200) * 8;
                            Touch { start, end: start + 8 + next(12) * 8, writes: next(2) == 0 }
                        })
                        .collect()
                })
                .collect();
            let branches = assign(&steps, 1 + case % 4);
            let n = steps.len();
            let mut before = vec![vec![false; n]; n];
            for at in 0..n {
                let lane = &branches.lanes[at];
                let same = (0..at).rev().find(|&i| branches.lanes[i].stream == lane.stream);
                for earlier in lane.waits.iter().copied().chain(same) {
                    assert!(branches.lanes[earlier].awaited || branches.lanes[earlier].stream == lane.stream);
                    before[earlier][at] = true;
                    for row in &mut before {
                        row[at] |= row[earlier];
                    }
                }
            }
            for at in 0..n {
                for i in 0..at {
                    assert!(before[i][at] || !conflict(&steps[i], &steps[at]), "{i} and {at} of {steps:?}");
                    n_beside += usize::from(!before[i][at]);
                }
            }
        }
        assert!(n_beside > 1000, "{n_beside}");
    }
}
