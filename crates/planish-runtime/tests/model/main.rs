//! The thread pool, the runner and the lent contexts in every order in which their threads can meet, up to a bound.
//!
//! These are the real files, compiled against `sync.rs` here instead of their own. Shuttle runs the threads as
//! coroutines and asks before every operation on an atomic, a lock or a thread who is next; all of that is
//! sequentially consistent, as the operations of these files are. A schedule in which somebody waits for ever ends as
//! "deadlock!", with the schedule that leads there.

#![allow(unsafe_code)]
// The files are written for their own crates.
#![allow(dead_code, unreachable_pub)]

#[path = "../../src/lending.rs"]
mod lending;
#[path = "../../src/runner.rs"]
mod runner;
#[path = "../../../planish-cpu/src/team.rs"]
mod team;
#[path = "../../../planish-cpu/src/workers.rs"]
mod workers;

mod scheduler;
mod sync;

mod lent_contexts;
mod run_beside;
mod thread_pool;

use shuttle::scheduler::PctScheduler;
use shuttle::{Config, MaxSteps, Runner};

/// Steps of the longest execution are some 200; one that has so many goes round in circles.
const MAX_STEPS: usize = 20_000;

fn config() -> Config {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
    // It warns that weaker orderings than sequential consistency are not modelled; none are used.
    config.silence_warnings = true;
    config
}

/// Runs `test` in every order with up to so many preemptions; there must be more than a handful.
fn in_every_order(max_preemptions: usize, test: fn()) {
    let runner = Runner::new(scheduler::Bounded::new(max_preemptions), config());
    let n_orders = runner.run(move || sync::execute(test));
    println!("{n_orders} orders with up to {max_preemptions} preemptions");
    assert!(n_orders > 10, "nothing was tried");
}

/// Runs `test` in orders drawn by probabilistic concurrency testing: deeper, without being complete.
fn in_drawn_orders(n_orders: usize, test: fn()) {
    let scheduler = PctScheduler::new_from_seed(7, 6, n_orders);
    assert_eq!(Runner::new(scheduler, config()).run(move || sync::execute(test)), n_orders);
}
