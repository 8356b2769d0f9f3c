//! Forks under load: every task once, slots apart, panics carried over, many callers, nothing stuck.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use planish_testing::Random;

use crate::gemm::{EpilogueCall, GemmCall, GemmPlan, GemmProblem, MatrixB};
use crate::isa::Isa;
use crate::team::Team;

fn counts_every_task_once(team: &Team, n_tasks: usize) {
    let seen: Vec<AtomicUsize> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
    let taken: Vec<AtomicBool> = (0..team.n_slots()).map(|_| AtomicBool::new(false)).collect();
    team.for_each(n_tasks, &|task| {
        assert!(!taken[task.slot].swap(true, SeqCst), "two threads in slot {}", task.slot);
        seen[task.idx].fetch_add(1, SeqCst);
        taken[task.slot].store(false, SeqCst);
    });
    assert!(seen.iter().all(|n| n.load(SeqCst) == 1), "{seen:?}");
}

#[test]
fn every_task_runs_once_and_slots_are_apart() {
    for n_threads in [1, 2, 3, 8] {
        let team = Team::of_its_own(n_threads);
        assert_eq!(team.n_slots(), n_threads);
        for n_tasks in [0, 1, 2, 7, 100] {
            for _ in 0..200 {
                counts_every_task_once(&team, n_tasks);
            }
        }
    }
}

#[test]
fn workers_wake_after_they_have_parked() {
    let team = Team::of_its_own(4);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(1));
        let slots = AtomicUsize::new(0);
        team.for_each(4, &|task| {
            slots.fetch_or(1 << task.slot, SeqCst);
            // Long enough for the others to wake and take the rest.
            std::thread::sleep(Duration::from_millis(5));
        });
        assert!(slots.load(SeqCst).count_ones() > 1, "the caller was left alone");
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_team_stays_usable() {
    let team = Team::of_its_own(4);
    for round in 0..50 {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            team.for_each(64, &|task| {
                if task.idx == round {
                    std::panic::resume_unwind(Box::new(round));
                }
                std::thread::sleep(Duration::from_micros(20));
            });
        }));
        let payload = caught.expect_err("the panic is lost");
        assert_eq!(payload.downcast_ref::<usize>(), Some(&round));
        counts_every_task_once(&team, 64);
    }
}

#[test]
fn tasks_fork_in_turn() {
    let team = Team::of_its_own(4);
    let sum = AtomicUsize::new(0);
    team.for_each(16, &|outer| {
        Team::new(4).for_each(16, &|inner| {
            sum.fetch_add(outer.idx * 16 + inner.idx, SeqCst);
        });
    });
    assert_eq!(sum.into_inner(), (0..256).sum::<usize>());
}

#[test]
fn sixty_four_callers_share_the_pool() {
    std::thread::scope(|scope| {
        for caller in 0..64 {
            scope.spawn(move || {
                let team = Team::new(2 + caller % 7);
                for round in 0..100 {
                    counts_every_task_once(&team, 1 + (caller + round) % 9);
                }
            });
        }
    });
}

#[test]
fn sixty_four_callers_share_four_workers() {
    let pool = crate::workers::Pool::start(4);
    std::thread::scope(|scope| {
        for caller in 0..64 {
            scope.spawn(move || {
                for round in 0..200 {
                    let sum = AtomicUsize::new(0);
                    pool.fork(4, caller, 2 + round % 9, &|task| {
                        sum.fetch_add(task.idx, SeqCst);
                    });
                    assert_eq!(sum.into_inner(), (0..2 + round % 9).sum::<usize>());
                }
            });
        }
    });
}

#[test]
fn products_have_the_same_bits_on_any_team() {
    let teams = [1, 2, 8].map(Team::of_its_own);
    for isa in Isa::available() {
        for (m, n, k, b) in [
            (128, 200, 600, MatrixB::Rows { stride: 200 }),
            (61, 77, 33, MatrixB::Columns { stride: 33 }),
            (3, 300, 100, MatrixB::Columns { stride: 100 }),
            (7, 300, 100, MatrixB::Rows { stride: 300 }),
        ] {
            let plan = GemmPlan::new(GemmProblem { b, ..GemmProblem::dense(m, n, k) }, isa);
            assert!(plan.n_tasks() > 1 || m * n * k < 1 << 18, "nothing to share out");
            let a = Random::new(1).list(m * k);
            let b = Random::new(2).list(k * n);
            let run = |team: &Team| {
                let mut c = vec![0.0f32; m * n];
                let mut workspace = vec![f32::NAN; plan.workspace_bytes(team.n_slots()) / 4 + 16];
                let offset = workspace.as_ptr().align_offset(64);
                let call = GemmCall {
                    a: a.as_ptr(),
                    b: b.as_ptr(),
                    blocks: None,
                    c: c.as_mut_ptr(),
                    epilogue: EpilogueCall { lo: 0.0, ..EpilogueCall::NONE },
                    hook: None,
                    workspace: workspace[offset..].as_mut_ptr(),
                };
                // SAFETY: the operands have the sizes of the problem.
                unsafe { plan.run(&call, team) };
                c.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let want = run(&Team::alone());
            for team in &teams {
                for _ in 0..5 {
                    assert_eq!(run(team), want, "{isa} {m} {n} {k} on {} threads", team.n_slots());
                }
            }
        }
    }
}
