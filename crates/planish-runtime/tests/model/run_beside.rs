//! The runner: every job comes back, also from a panic, and whoever drops the runner waits for what is under way.

use std::panic::resume_unwind;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::in_every_order;
use crate::runner::Runner;

/// A job that says when it is dropped.
struct Job {
    number: usize,
    n_dropped: Arc<AtomicUsize>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.n_dropped.fetch_add(1, SeqCst);
    }
}

const PANICS: usize = 13;

fn start() -> Runner<Job, usize> {
    let work = |job: &mut Job| match job.number {
        PANICS => resume_unwind(Box::new("job")),
        number => {
            shuttle::thread::yield_now();
            number * 2
        }
    };
    Runner::start("runner", work).unwrap()
}

#[test]
fn jobs_come_back_one_after_the_other_and_from_a_panic() {
    in_every_order(3, || {
        let n_dropped = Arc::new(AtomicUsize::new(0));
        let runner = start();
        assert!(runner.is_done() && runner.take_back().is_none());
        for number in [1, PANICS, 3] {
            runner.begin(Job { number, n_dropped: n_dropped.clone() });
            let done = runner.take_back().expect("the job was lost");
            assert_eq!(done.job.number, number);
            assert_eq!(done.result.ok(), (number != PANICS).then_some(number * 2));
            assert!(runner.is_done());
        }
        drop(runner);
        assert_eq!(n_dropped.load(SeqCst), 3);
    });
}

#[test]
fn dropping_the_runner_waits_for_the_job() {
    in_every_order(3, || {
        for number in [1, PANICS] {
            let n_dropped = Arc::new(AtomicUsize::new(0));
            let runner = start();
            runner.begin(Job { number, n_dropped: n_dropped.clone() });
            drop(runner);
            assert_eq!(n_dropped.load(SeqCst), 1);
        }
    });
}

#[test]
fn a_job_may_be_looked_for_while_it_runs() {
    in_every_order(3, || {
        let n_dropped = Arc::new(AtomicUsize::new(0));
        let runner = start();
        runner.begin(Job { number: 4, n_dropped: n_dropped.clone() });
        while !runner.is_done() {
            shuttle::thread::yield_now();
        }
        assert_eq!(runner.take_back().and_then(|done| done.result.ok()), Some(8));
    });
}
