//! Forks that share workers: every task runs once, a panic reaches its own caller, nobody waits for ever.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::workers::Pool;
use crate::{in_drawn_orders, in_every_order};

/// Forks onto up to `n_helpers` workers; every task must have run once when that returns.
fn fork(pool: &'static Pool, n_helpers: usize, n_tasks: usize) {
    let runs: Vec<AtomicUsize> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
    pool.fork(n_helpers, 0, n_tasks, &|task| {
        runs[task.idx].fetch_add(1, SeqCst);
        if task.slot > 0 {
            // A worker's task takes long: the callers may get anywhere meanwhile.
            shuttle::thread::yield_now();
        }
    });
    assert!(runs.into_iter().all(|n| n.into_inner() == 1));
}

/// Two callers on one worker: what lost a wakeup while one flag per worker stood for all that wait.
fn two_callers_share_a_worker() {
    let pool = Pool::start(1);
    let other = shuttle::thread::spawn(|| fork(pool, 1, 2));
    fork(pool, 1, 2);
    other.join().unwrap();
}

#[test]
fn two_callers_on_one_worker_both_return() {
    in_every_order(2, two_callers_share_a_worker);
}

#[test]
fn a_caller_forks_again_onto_the_workers_it_just_had() {
    in_every_order(1, || {
        let pool = Pool::start(2);
        fork(pool, 2, 3);
        fork(pool, 2, 2);
    });
}

#[test]
fn three_callers_on_two_workers_return_in_drawn_orders() {
    in_drawn_orders(1_000, || {
        let pool = Pool::start(2);
        let others = [(); 2].map(|()| {
            shuttle::thread::spawn(|| {
                fork(pool, 2, 3);
                fork(pool, 1, 2);
            })
        });
        fork(pool, 2, 3);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn a_panic_reaches_its_own_caller() {
    // With two there are 68,511 orders, which all end well and take seconds.
    in_every_order(1, || {
        let pool = Pool::start(1);
        let other = shuttle::thread::spawn(|| fork(pool, 1, 2));
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.fork(1, 0, 2, &|task| {
                if task.idx == 1 {
                    resume_unwind(Box::new("task 1"));
                }
            });
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"task 1"));
        other.join().unwrap();
        fork(pool, 1, 2);
    });
}
