//! Every order in which threads can meet, up to a number of preemptions: one after the other, none twice.
//!
//! A preemption takes a thread off that could go on. Where a thread sleeps, ends or yields, any other may be next and
//! nothing is counted. (Musuvathi and Qadeer, PLDI 2007: nearly all mistakes show with two or three preemptions, and
//! the number of orders grows with their power instead of exponentially with the steps.) A thread that spins is not
//! taken again before those that it kept waiting (PLDI 2008), so that loops that wait for others end.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// Sets of threads are bits.
const MAX_THREADS: usize = 16;

/// What may be next at one step, and which of that is tried now.
struct Level {
    choices: Vec<TaskId>,
    at: usize,
}

#[derive(Clone, Copy, Default)]
struct Fairness {
    /// Threads that this one has to let go first.
    after: u16,
    /// Since this thread yielded last: who could go on all the time, whom it kept from going on, and who went on.
    enabled: u16,
    disabled: u16,
    scheduled: u16,
}

/// Depth first through all choices.
pub(crate) struct Bounded {
    max_preemptions: usize,
    levels: Vec<Level>,
    step: usize,
    n_preemptions: usize,
    has_begun: bool,
    /// Who could go on before the last step.
    were_enabled: u16,
    fairness: [Fairness; MAX_THREADS],
}

impl Bounded {
    pub(crate) fn new(max_preemptions: usize) -> Bounded {
        Bounded {
            max_preemptions,
            levels: Vec::new(),
            step: 0,
            n_preemptions: 0,
            has_begun: false,
            were_enabled: 0,
            fairness: [Fairness::default(); MAX_THREADS],
        }
    }
}

fn bit(task: TaskId) -> u16 {
    1 << usize::from(task)
}

impl Scheduler for Bounded {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.has_begun {
            // The last step that has a choice left takes the next one; what was after it is new.
            while self.levels.last().is_some_and(|level| level.at + 1 == level.choices.len()) {
                self.levels.pop();
            }
            self.levels.last_mut()?.at += 1;
        }
        self.has_begun = true;
        self.step = 0;
        self.n_preemptions = 0;
        // Nobody is behind anybody before it has yielded twice.
        self.fairness = [Fairness::default(); MAX_THREADS];
        self.were_enabled = 0;
        Some(Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        // Without those that could only wake for no reason.
        let enabled: Vec<TaskId> =
            runnable.iter().filter(|task| task.runnable()).map(|task| task.id()).collect();
        assert!(enabled.iter().all(|&task| usize::from(task) < MAX_THREADS), "too many threads");
        let mask = enabled.iter().fold(0, |mask, &task| mask | bit(task));
        for fairness in &mut self.fairness {
            fairness.enabled &= mask;
        }
        if let Some(current) = current {
            let own = &mut self.fairness[usize::from(current)];
            own.disabled |= self.were_enabled & !mask & !bit(current);
            if is_yielding {
                own.after |= (own.enabled | own.disabled) & !own.scheduled & !bit(current);
                (own.enabled, own.disabled, own.scheduled) = (mask, 0, 0);
            }
        }
        self.were_enabled = mask;
        let may_go = |task: TaskId| self.fairness[usize::from(task)].after & mask == 0;
        let goes_on =
            current.filter(|&current| !is_yielding && enabled.contains(&current) && may_go(current));
        if self.step == self.levels.len() {
            let mut choices: Vec<TaskId> = goes_on.into_iter().collect();
            if goes_on.is_none() || self.n_preemptions < self.max_preemptions {
                choices.extend(enabled.iter().copied().filter(|&task| Some(task) != goes_on && may_go(task)));
            }
            self.levels.push(Level { choices, at: 0 });
        }
        let level = &self.levels[self.step];
        let &next = level.choices.get(level.at)?;
        self.step += 1;
        self.n_preemptions += usize::from(goes_on.is_some_and(|current| current != next));
        for fairness in &mut self.fairness {
            fairness.after &= !bit(next);
            fairness.scheduled |= bit(next);
        }
        Some(next)
    }

    fn next_u64(&mut self) -> u64 {
        panic!("the tests draw no numbers")
    }
}
