//! What a call through `planish.h` costs beside the same run in Rust: one Add on 4 floats, blocks of calls in turn, the best
//! block of each. Fails where the difference is more than 0.2 us.
//! `cargo bench -p planish-capi --bench overhead --profile quick`.

#![allow(unsafe_code)]

use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use planish::{Builder, Context, ContextOptions, Device, Engine, View};
use planish_capi as c;

const N_BLOCKS: usize = 400;
const N_CALLS: usize = 1_000;
const MAX_OVERHEAD_NS: f64 = 200.0;

fn ok(status: c::PlanishStatus) {
    assert_eq!(status, c::PlanishStatus::Ok);
}

fn block_ns(mut call: impl FnMut()) -> f64 {
    let started = Instant::now();
    (0..N_CALLS).for_each(|_| call());
    started.elapsed().as_nanos() as f64 / N_CALLS as f64
}

fn main() {
    let graph =
        "graph \"add\" {\n input %a: f32[4]\n input %b: f32[4]\n %y: f32[4] = Add(%a, %b)\n output %y\n}";
    let graph = graph.parse().expect("the graph is right");
    let plan =
        Builder::from_graph(graph).device(Device::Cpu).tune_level(0).threads(1).build().expect("it builds");
    let (mut a, mut b, dims) = ([1f32, 2., 3., 4.], [5f32, 6., 7., 8.], [4]);
    let bytes = plan.record().to_bytes().expect("the plan has bytes");
    let engine = Engine::new(plan, Device::Cpu).expect("the plan opens");
    let mut in_rust = engine.context_with(ContextOptions::new(1)).expect("there is a context");

    let (mut c_plan, mut c_engine, mut in_c) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: pointers of this function's own, to memory that outlives the context.
    unsafe {
        ok(c::planish_plan_from_bytes(bytes.as_ptr(), bytes.len(), &raw mut c_plan));
        ok(c::planish_engine_new(c_plan, ptr::null(), &raw mut c_engine));
        ok(c::planish_context_new(c_engine, ptr::null(), &raw mut in_c));
        ok(c::planish_context_bind(in_c, 0, a.as_mut_ptr().cast(), 16));
        ok(c::planish_context_bind(in_c, 1, b.as_mut_ptr().cast(), 16));
    }
    // As C calls it: by its address.
    let run =
        black_box(c::planish_context_run as unsafe extern "C" fn(*mut c::PlanishContext) -> c::PlanishStatus);
    let views = [View::new(&dims, &a).expect("4 floats"), View::new(&dims, &b).expect("4 floats")];
    let call_rust = |context: &mut Context| context.run_in_order(black_box(&views)).expect("it runs");

    let mut best = [f64::INFINITY; 2];
    for _ in 0..N_BLOCKS {
        best[0] = best[0].min(block_ns(|| call_rust(&mut in_rust)));
        // SAFETY: the context and its memory are there.
        best[1] = best[1].min(block_ns(|| ok(unsafe { run(in_c) })));
    }
    // SAFETY: nobody uses them any more.
    unsafe {
        c::planish_context_free(in_c);
        c::planish_engine_free(c_engine);
        c::planish_plan_free(c_plan);
    }
    let overhead = best[1] - best[0];
    println!(
        "a call in Rust {:.0} ns, in C {:.0} ns: {overhead:.0} ns more (at most {MAX_OVERHEAD_NS})",
        best[0], best[1]
    );
    assert!(overhead <= MAX_OVERHEAD_NS, "a call in C costs more than it may");
}
