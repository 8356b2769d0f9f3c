//! Many threads on few contexts, each with shapes of its own: no run sees another's.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use planish::View;

use crate::common::{ROW, engine, numbers, small_model};
use crate::profile;

/// The short form of `cargo xtask contexts`, which makes a million.
const N_RUNS: usize = 20_000;
const N_THREADS: usize = 64;
const MAX_BATCH: usize = 5;

#[test]
fn threads_that_lease_contexts_get_their_own_results() {
    let engine = engine(small_model("batch"), &[profile(1, 2, MAX_BATCH as i64)]);
    let x = numbers(MAX_BATCH * ROW, 11);
    let mut alone = engine.context().unwrap();
    let run = |context: &mut planish::Context, first: usize, batch: usize| -> Vec<u8> {
        let data = &x[first * ROW..(first + batch) * ROW];
        let dims = [batch, 3, 12, 12];
        let outputs = context.run(&[("x", View::new(&dims, data).unwrap())]).unwrap();
        outputs.get("y").unwrap().bytes().to_vec()
    };
    let mut expected = Vec::new();
    for first in 0..MAX_BATCH {
        for batch in 1..=MAX_BATCH - first {
            expected.push((first, batch, run(&mut alone, first, batch)));
        }
    }
    let pool = engine.pool(3).unwrap();
    let (next, n_wrong) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..N_THREADS {
            scope.spawn(|| {
                loop {
                    let idx = next.fetch_add(1, SeqCst);
                    if idx >= N_RUNS {
                        break;
                    }
                    let (first, batch, expected) = &expected[idx * 7 % expected.len()];
                    let got = run(&mut pool.lease(), *first, *batch);
                    n_wrong.fetch_add(usize::from(got != *expected), SeqCst);
                }
            });
        }
    });
    assert_eq!(n_wrong.into_inner(), 0);
}
