//! Weights that stay in pinned host memory beyond a budget of device memory, and come to the device ahead of their use.
//!
//! The weights of one step that nobody else reads are a group: one copy. Groups that are not resident share a ring of
//! device memory, in the order of the program; each context has a ring, a copy queue and events of its own, so contexts
//! of one engine know nothing of each other. A copy waits for the steps that read what it overwrites, a step for its own
//! copy, both by events and on the device alone. Copies run ahead inside of one stretch (the steps of a captured graph,
//! or a step by itself): a stretch brings all that it reads, so its captured graph is whole.

use std::collections::HashMap;

use planish_kernel::{Address, Backend, Event, Memory, Queue, QueueOptions, Wait};
use planish_plan::{Plan, Program, StepKind};

use crate::error::{RunError, RunErrorKind};
use crate::memory::pointer;
use crate::weights::{SPACING, weights_read};

/// The least ring that is asked for where a quarter of the budget allows it: 0.6 ms of a link of 50 GB/s, many times
/// what a copy costs by itself, so that copies run ahead of many small steps.
const USUAL_RING: usize = 32 << 20;
/// A group this many times smaller than the largest that is streamed stays on the device where it fits: its copy would
/// cost more than its bytes.
const SMALL: usize = 64;

/// A weight in one of its forms.
pub(crate) type WeightKey = (u32, Option<String>);

/// The weights of one step that are brought for it alone.
#[derive(Debug)]
struct Group {
    /// Its place in the program.
    step: usize,
    /// In the ring.
    offset: usize,
    /// In the host's memory.
    from: usize,
    bytes: usize,
    /// Earlier groups whose bytes of the ring it takes, and that no group between took before.
    after: Vec<usize>,
}

/// Where a streamed weight begins in its group's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub(crate) in_ring: usize,
    in_host: usize,
    bytes: usize,
}

/// The weights of a device that are streamed.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub(crate) target: u32,
    groups: Vec<Group>,
    homes: HashMap<WeightKey, Home>,
    host: Box<dyn Memory>,
    pub(crate) ring_bytes: usize,
    pub(crate) host_bytes: usize,
}

/// What a step needs brought, as the resolved step knows it: its group, and those of the stretch that it is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    pub(crate) group: usize,
    pub(crate) first: usize,
    /// After the last.
    pub(crate) end: usize,
}

/// The weights of one step that nobody else reads.
#[derive(Debug)]
struct StepWeights {
    step: usize,
    keys: Vec<(WeightKey, usize)>,
    bytes: usize,
}

impl Streaming {
    /// Chooses what is streamed so that the rest and a ring keep to `budget` bytes of the device; nothing where all
    /// weights do.
    pub(crate) fn plan(
        plan: &Plan,
        backend: &dyn Backend,
        target: u32,
        budget: usize,
    ) -> Result<Option<Streaming>, RunError> {
        let (steps, fixed) = survey(plan, backend, target);
        let sizes: Vec<usize> = steps.iter().map(|step| step.bytes).collect();
        let Choice { streamed, ring } = choose(&sizes, fixed, budget).map_err(|least| {
            let largest = steps.iter().max_by_key(|step| step.bytes);
            let name = largest.map_or("", |step| plan.program.steps[step.step].name.as_str());
            RunError::new(
                RunErrorKind::Lacking,
                format!(
                    "a weight budget of {budget} bytes is too small: step `{name}` and the weights that several steps \
                     read need {least}; give at least that, or none"
                ),
            )
        })?;
        if ring == 0 {
            return Ok(None);
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut homes = HashMap::new();
        let (mut at, mut host_bytes) = (0, 0);
        for step in steps.into_iter().zip(&streamed).filter(|(_, streamed)| **streamed).map(|(step, _)| step)
        {
            if at + step.bytes > ring {
                at = 0;
            }
            let mut within = 0;
            for (key, bytes) in step.keys {
                homes.insert(key, Home { in_ring: at + within, in_host: host_bytes + within, bytes });
                within += bytes.next_multiple_of(SPACING);
            }
            let bytes = step.bytes;
            let after = taken_from(&groups, at, bytes);
            groups.push(Group { step: step.step, offset: at, from: host_bytes, bytes, after });
            at += bytes;
            host_bytes += bytes;
        }
        let host = backend.allocate_pinned(host_bytes)?.ok_or_else(|| {
            let message = format!("{} has no pinned memory to stream weights from", backend.name());
            RunError::new(RunErrorKind::Lacking, message)
        })?;
        Ok(Some(Streaming { target, groups, homes, host, ring_bytes: ring, host_bytes }))
    }

    /// Where a weight is brought, if it is.
    pub(crate) fn home(&self, target: u32, key: &WeightKey) -> Option<Home> {
        if target == self.target { self.homes.get(key).copied() } else { None }
    }

    /// Keeps the bytes of a weight, before anything runs.
    pub(crate) fn store(&mut self, home: Home, bytes: &[u8]) -> Result<(), RunError> {
        if bytes.len() != home.bytes {
            let (has, foreseen) = (bytes.len(), home.bytes);
            let why = format!("a weight has {has} bytes where {foreseen} were foreseen, the plan is damaged");
            return Err(RunError::needs_rebuild(why));
        }
        // SAFETY: `plan` laid homes out inside of this memory, which is ours alone until the engine is opened.
        unsafe {
            let to = pointer(self.host.address().offset(home.in_host));
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Ok(())
    }

    /// The group of a step, by its place in the program.
    pub(crate) fn group_of(&self, step: usize) -> Option<usize> {
        self.groups.binary_search_by_key(&step, |group| group.step).ok()
    }

    /// How many groups belong to steps before this one.
    pub(crate) fn n_before(&self, step: usize) -> usize {
        self.groups.partition_point(|group| group.step < step)
    }

    pub(crate) fn n_groups(&self) -> usize {
        self.groups.len()
    }
}

/// The groups that lie in these bytes of the ring when a further one comes, but for those that another one was behind.
fn taken_from(groups: &[Group], offset: usize, bytes: usize) -> Vec<usize> {
    let overlaps = |group: &Group, from: usize, len: usize| {
        group.offset < from + len && from < group.offset + group.bytes
    };
    let is_last = |at: &usize| {
        let earlier = &groups[*at];
        overlaps(earlier, offset, bytes)
            && !groups[at + 1..].iter().any(|between| overlaps(between, earlier.offset, earlier.bytes))
    };
    (0..groups.len()).filter(is_last).collect()
}

/// For each kernel step on the target what it alone reads; and the bytes of all other weights there.
fn survey(plan: &Plan, backend: &dyn Backend, target: u32) -> (Vec<StepWeights>, usize) {
    let mut readers: HashMap<WeightKey, usize> = HashMap::new();
    count_readers(&plan.program, target, &mut readers);
    let mut steps: Vec<StepWeights> = Vec::new();
    let mut all = 0;
    let mut streamable = 0;
    let size = |(weight, format): &WeightKey| -> (usize, bool) {
        let Some(record) = plan.weights.get(*weight as usize) else { return (0, false) };
        match format {
            None => (record.widened_len(), true),
            // A format that is packed on opening and never stored tells its length only then.
            Some(format) => match backend.packed_bytes(record.packed_form(format)) {
                Some(bytes) => (bytes, true),
                None => (record.widened_len(), false),
            },
        }
    };
    for key in readers.keys() {
        all += size(key).0.next_multiple_of(SPACING);
    }
    for (idx, step) in plan.program.steps.iter().enumerate() {
        if step.target != target || !matches!(step.kind, StepKind::Kernel { .. }) {
            continue;
        }
        let mut own = StepWeights { step: idx, keys: Vec::new(), bytes: 0 };
        for (_, weight, format) in weights_read(&plan.program, step) {
            let key = (weight, format);
            let (bytes, is_known) = size(&key);
            let is_own = readers.get(&key) == Some(&1);
            if bytes > 0 && is_known && is_own && own.keys.iter().all(|(known, _)| *known != key) {
                own.keys.push((key, bytes));
                own.bytes += bytes.next_multiple_of(SPACING);
            }
        }
        if own.bytes > 0 {
            streamable += own.bytes;
            steps.push(own);
        }
    }
    (steps, all - streamable)
}

/// How many steps read each weight in each form, those in bodies counted as many.
fn count_readers(program: &Program, target: u32, readers: &mut HashMap<WeightKey, usize>) {
    for step in &program.steps {
        if let StepKind::Control(control) = &step.kind {
            for body in &control.bodies {
                count_readers(body, target, readers);
                // A body runs again and again, and its frame is another one.
                let in_body = body.steps.iter().filter(|step| step.target == target);
                for (_, weight, format) in in_body.flat_map(|step| weights_read(body, step)) {
                    *readers.entry((weight, format)).or_default() += 1;
                }
            }
        }
        if step.target == target {
            let mut keys: Vec<WeightKey> =
                weights_read(program, step).into_iter().map(|(_, weight, format)| (weight, format)).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                *readers.entry(key).or_default() += 1;
            }
        }
    }
}

/// Which groups are streamed, through a ring of so many bytes; a ring of none where all stay.
#[derive(PartialEq, Eq, Debug)]
struct Choice {
    streamed: Vec<bool>,
    ring: usize,
}

/// Chooses for groups of these sizes in the order of the program, beside `fixed` bytes that stay anyway. The error is the
/// least budget that would do.
///
/// What is larger than the ring's half stays on the device, so that the ring can be small and the rest large; of the
/// others as many as fit stay, spread over the program, so that copies have the time of the steps between them.
fn choose(sizes: &[usize], fixed: usize, budget: usize) -> Result<Choice, usize> {
    let total: usize = sizes.iter().sum();
    let mut streamed = vec![false; sizes.len()];
    if fixed.saturating_add(total) <= budget {
        return Ok(Choice { streamed, ring: 0 });
    }
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let least = fixed.saturating_add(largest);
    if budget < least {
        return Err(least);
    }
    let room = budget - fixed;
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let above = |limit: usize| sizes.iter().filter(|&&bytes| bytes > limit).sum::<usize>();
    let fits = |n_rings: usize| sorted.iter().copied().find(|&limit| above(limit) + n_rings * limit <= room);
    let limit = fits(2).or_else(|| fits(1)).unwrap_or(largest);
    let ring = (2 * limit).max(USUAL_RING.min(room / 4)).min(room - above(limit));
    let mut left = room - above(limit) - ring;
    for (streamed, &bytes) in streamed.iter_mut().zip(sizes) {
        let is_small = bytes.saturating_mul(SMALL) < limit && bytes <= left;
        *streamed = bytes <= limit && !is_small;
        left -= if is_small { bytes } else { 0 };
    }
    let (share, of) = (left as u128, streamed_bytes(sizes, &streamed) as u128);
    let mut owed = 0;
    for (streamed, &bytes) in streamed.iter_mut().zip(sizes).filter(|(streamed, _)| **streamed) {
        owed += bytes as u128 * share;
        if owed >= bytes as u128 * of && bytes <= left {
            owed -= bytes as u128 * of;
            left -= bytes;
            *streamed = false;
        }
    }
    // What is left over is for the largest that fit.
    let mut order: Vec<usize> = (0..sizes.len()).filter(|&at| streamed[at]).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(sizes[at]));
    for at in order {
        if sizes[at] <= left {
            left -= sizes[at];
            streamed[at] = false;
        }
    }
    Ok(Choice { streamed, ring })
}

/// Bytes of the groups that are streamed.
fn streamed_bytes(sizes: &[usize], streamed: &[bool]) -> usize {
    sizes.iter().zip(streamed).filter(|(_, streamed)| **streamed).map(|(bytes, _)| bytes).sum()
}

/// A context's copies of weights: their queue, and how far a run has got.
#[derive(Debug)]
pub(crate) struct Feeder {
    queue: Box<dyn Queue>,
    /// Reached when a stretch may begin to overwrite the ring.
    begin: Box<dyn Event>,
    /// By group: its copy is done; its step is done.
    arrived: Vec<Box<dyn Event>>,
    read: Vec<Box<dyn Event>>,
    /// Groups that were queued, and whose steps were queued, counted over the program.
    n_queued: usize,
    n_read: usize,
}

impl Feeder {
    pub(crate) fn new(backend: &dyn Backend, streaming: &Streaming, wait: Wait) -> Result<Feeder, RunError> {
        let events = || -> Result<Vec<Box<dyn Event>>, RunError> {
            (0..streaming.n_groups()).map(|_| Ok(backend.event(false)?)).collect()
        };
        Ok(Feeder {
            queue: backend.queue(QueueOptions { threads: 1, wait })?,
            begin: backend.event(false)?,
            arrived: events()?,
            read: events()?,
            n_queued: 0,
            n_read: 0,
        })
    }

    /// Has what is queued from here on wait for the weights of a step. `ring` is the context's.
    pub(crate) fn before(
        &mut self,
        streaming: &Streaming,
        load: Load,
        ring: Address,
        queue: &mut dyn Queue,
    ) -> Result<(), RunError> {
        if load.group == load.first {
            // All that read the ring before is before this place.
            queue.record_at(&*self.begin)?;
            self.queue.wait_for(&*self.begin)?;
            (self.n_queued, self.n_read) = (load.first, load.first);
        }
        self.bring(streaming, load, ring)?;
        Ok(queue.wait_for(&*self.arrived[load.group])?)
    }

    /// The step that reads them was queued: their place is free behind it.
    pub(crate) fn after(
        &mut self,
        streaming: &Streaming,
        load: Load,
        ring: Address,
        queue: &mut dyn Queue,
    ) -> Result<(), RunError> {
        queue.record_at(&*self.read[load.group])?;
        self.n_read = load.group + 1;
        self.bring(streaming, load, ring)
    }

    /// Queues the copies of the stretch whose places are free behind steps that were queued.
    fn bring(&mut self, streaming: &Streaming, load: Load, ring: Address) -> Result<(), RunError> {
        while self.n_queued < load.end {
            let group = &streaming.groups[self.n_queued];
            let in_stretch = group.after.iter().filter(|&&earlier| earlier >= load.first);
            if in_stretch.clone().any(|&earlier| earlier >= self.n_read) {
                break;
            }
            for &earlier in in_stretch {
                self.queue.wait_for(&*self.read[earlier])?;
            }
            // SAFETY: the engine's host memory has these bytes, pinned and written by nobody any more; a context holds
            // its engine, and whoever drops one has waited for its queues. The ring has room for every group, and what
            // lay there was read.
            unsafe {
                let from = pointer(streaming.host.address().offset(group.from)).cast_const();
                let from = std::slice::from_raw_parts(from, group.bytes);
                self.queue.upload_pinned(ring.offset(group.offset), from)?;
            }
            self.queue.record_at(&*self.arrived[self.n_queued])?;
            self.n_queued += 1;
        }
        Ok(())
    }

    /// Waits until nothing is copied.
    pub(crate) fn synchronize(&mut self) -> Result<(), RunError> {
        Ok(self.queue.synchronize()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn weights_within_the_budget_stay() {
        let choice = choose(&[256, 512], 256, 1024).unwrap();
        assert_eq!(choice, Choice { streamed: vec![false, false], ring: 0 });
    }

    #[test]
    fn a_budget_below_the_largest_step_is_refused_with_the_least_that_would_do() {
        assert_eq!(choose(&[256, 512], 256, 767), Err(768));
        assert_eq!(choose(&[256, 512], 256, 768).unwrap().streamed, [true, true]);
        // Nothing could be streamed at all.
        assert_eq!(choose(&[], 1024, 512), Err(1024));
    }

    /// Twelve equal groups in a third of their bytes: the ring has two of them, and the two that stay lie apart.
    #[test]
    fn what_stays_is_spread_over_the_program() {
        let sizes = [64 * KIB; 12];
        let Choice { streamed, ring } = choose(&sizes, 0, 4 * 64 * KIB).unwrap();
        assert_eq!(ring, 128 * KIB);
        let kept: Vec<usize> = (0..12).filter(|&at| !streamed[at]).collect();
        assert_eq!(kept, [5, 11]);
    }

    #[test]
    fn one_that_is_far_larger_stays_and_small_ones_too() {
        let mut sizes = vec![64 * KIB; 10];
        sizes.insert(4, 400 * KIB);
        sizes.push(512);
        let Choice { streamed, ring } = choose(&sizes, 0, 600 * KIB).unwrap();
        // A quarter of the budget, more than two of those that are streamed.
        assert_eq!(ring, 150 * KIB, "{streamed:?}");
        assert!(!streamed[4] && !streamed[11]);
        assert_eq!(streamed.iter().filter(|streamed| **streamed).count(), 10);
    }

    /// Random sizes and budgets: within the budget always, and each group fits the ring.
    #[test]
    fn no_choice_exceeds_its_budget() {
        let mut random = planish_testing::Random::new(5);
        for _ in 0..500 {
            let sizes: Vec<usize> = (0..1 + random.below(20)).map(|_| 256 * (1 + random.below(40))).collect();
            let fixed = 256 * random.below(10);
            let total: usize = sizes.iter().sum();
            let budget = fixed + random.below(total + 1);
            let largest = sizes.iter().copied().max().unwrap();
            match choose(&sizes, fixed, budget) {
                Err(least) => assert!(budget < least && least == fixed + largest),
                Ok(Choice { streamed, ring }) => {
                    let away = streamed_bytes(&sizes, &streamed);
                    assert!(fixed + (total - away) + ring <= budget, "{sizes:?} {fixed} {budget}");
                    assert!(sizes.iter().zip(&streamed).all(|(bytes, streamed)| !streamed || *bytes <= ring));
                    assert_eq!(ring == 0, fixed + total <= budget);
                }
            }
        }
    }

    #[test]
    fn a_group_comes_after_the_last_that_had_its_place() {
        let mut groups: Vec<Group> = Vec::new();
        for (step, (offset, bytes)) in
            [(0, 512), (512, 512), (0, 768), (768, 256), (0, 1024)].into_iter().enumerate()
        {
            let after = taken_from(&groups, offset, bytes);
            groups.push(Group { step, offset, from: 0, bytes, after });
        }
        let after: Vec<&[usize]> = groups.iter().map(|group| &group.after[..]).collect();
        // The fourth is behind the second by the third, whose copy is before its own.
        assert_eq!(after, [&[][..], &[], &[0, 1], &[], &[2, 3]]);
    }
}
