//! Runs of sizes that were seen before allocate nothing, on any thread of the process.

#![allow(unsafe_code)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use planish::{ContextOptions, View};

/// The system's allocator, counting.
struct Counting;

static N_ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        N_ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test only: others would allocate beside it.
#[test]
fn runs_of_known_sizes_allocate_nothing() {
    let engine = common::engine(common::small_model("2"), &[]);
    let x = common::numbers(2 * common::ROW, 7);
    let dims = [2, 3, 12, 12];
    for threads in [1, 2] {
        let mut context = engine.context_with(ContextOptions::new(threads)).unwrap();
        let view = View::new(&dims, &x).unwrap();
        for _ in 0..3 {
            context.run_in_order(&[view]).unwrap();
        }
        let expected: Vec<u8> = context.output(0).unwrap().bytes().to_vec();
        let before = N_ALLOCATIONS.load(SeqCst);
        let mut n_right = 0;
        for _ in 0..100 {
            context.run_in_order(&[view]).unwrap();
            n_right += usize::from(context.output(0).unwrap().bytes() == expected);
            let outputs = context.run(&[("x", view)]).unwrap();
            n_right += usize::from(outputs.get("y").unwrap().bytes() == expected);
        }
        let n_allocations = N_ALLOCATIONS.load(SeqCst) - before;
        assert_eq!((n_allocations, n_right), (0, 200), "{threads} threads");
    }
}
