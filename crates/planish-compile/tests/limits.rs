//! Models that ask for more than anybody has: their builds end soon and say what was left out, and their runs end where
//! the engine's limits are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use planish_compile::{BuildErrorKind, BuildOptions, Built, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret_within};
use planish_kernel::Backend;
use planish_op::{Limits, Value};
use planish_plan::Outcome;
use planish_reference::EvalErrorKind;
use planish_runtime::{Engine, RunErrorKind};
use planish_tensor::{DType, Tensor};

/// Trips without end; the collected values are read.
const ENDLESS: &str = "graph \"g\" {
    input %x: f32[256]
    const %m: i64[] = 4611686018427387904
    const %t: bool[] = true
    %last: f32[256], %all: f32[trips,256] = Loop(%m, %t, %x) \"endless\" [
      graph \"body\" {
        input %i: i64[] input %c: bool[] input %v: f32[256]
        %c2: bool[] = Identity(%c)
        %v2: f32[256] = Sin(%v)
        %each: f32[256] = Identity(%v2)
        output %c2, %v2, %each
      }
    ]
    output %last, %all
}";

/// A condition that never falls, inside of a loop that would end.
const NESTED: &str = "graph \"g\" {
    input %x: f32[4]
    const %m: i64[] = 3
    const %t: bool[] = true
    %y: f32[4] = Loop(%m, %t, %x) \"outer\" [
      graph \"outer_body\" {
        input %i: i64[] input %c: bool[] input %v: f32[4]
        const %t: bool[] = true
        %w: f32[4] = Loop(_, %t, %v) \"inner\" [
          graph \"inner_body\" {
            input %i: i64[] input %c: bool[] input %v: f32[4]
            %c2: bool[] = Identity(%c)
            %v2: f32[4] = Sin(%v)
            output %c2, %v2
          }
        ]
        %c2: bool[] = Identity(%c)
        output %c2, %w
      }
    ]
    output %y
}";

/// A value that doubles in every trip: 2^60 elements.
const DOUBLING: &str = "graph \"g\" {
    input %x: f32[1]
    const %m: i64[] = 60
    const %t: bool[] = true
    %y: f32[*] = Loop(%m, %t, %x) \"doubling\" [
      graph \"body\" {
        input %i: i64[] input %c: bool[] input %v: f32[*]
        %c2: bool[] = Identity(%c)
        %v2: f32[*] = Concat(%v, %v) {axis=0}
        output %c2, %v2
      }
    ]
    output %y
}";

fn backend() -> Arc<dyn Backend> {
    Arc::new(Cpu::new())
}

fn built(text: &str, options: &BuildOptions) -> Result<Built, planish_compile::BuildError> {
    let graph: Graph = text.parse().unwrap();
    build(&graph, &[backend()], options, &mut TimingCache::default())
}

fn options() -> BuildOptions {
    BuildOptions { threads: 1, tune_level: 1, ..BuildOptions::default() }
}

fn ones(n: usize) -> Vec<Value> {
    vec![Value::Tensor(Tensor::from_f64s(DType::F32, &[n], &vec![1.0; n]).unwrap())]
}

#[test]
fn loops_without_end_are_built_and_the_reason_is_told() {
    for (text, inputs, why) in [
        (ENDLESS, ones(256), "more than 10000 trips"),
        (NESTED, ones(4), "more than 10000 trips"),
        (DOUBLING, ones(1), "more than"),
    ] {
        let built = built(text, &options()).unwrap();
        let told = built.notes.iter().find(|note| note.contains("were not checked"));
        assert!(told.is_some_and(|note| note.contains(why)), "{:?}", built.notes);
        let skips = |outcome: &Outcome| matches!(outcome, Outcome::Skipped(reason) if reason.contains(why));
        assert!(built.plan.certificate.checks.iter().any(|check| skips(&check.outcome)));
        // A run has limits of its own.
        let engine = Engine::new(built.plan, vec![backend()]).unwrap();
        let limits = Limits { trips: 100, bytes: 1 << 20, cancel: None };
        let mut context = engine.limited(limits).context().unwrap();
        for _ in 0..2 {
            let error = context.run_values(&inputs).unwrap_err();
            assert_eq!(*error.kind(), RunErrorKind::Limit, "{error}");
        }
    }
}

#[test]
fn a_value_that_no_machine_holds_ends_the_build_or_its_check() {
    let graph: Graph = "graph \"g\" {
        input %x: f32[1,1]
        const %s: i64[2] = [524288, 524288]
        %y: f32[524288,524288] = Expand(%x, %s) \"wide\"
        %z: f32[524288,524288] = Relu(%y) \"r\"
        output %z
    }"
    .parse()
    .unwrap();
    let made = build(&graph, &[backend()], &options(), &mut TimingCache::default()).unwrap();
    let told = made.notes.iter().find(|note| note.contains("were not checked"));
    assert!(told.is_some_and(|note| note.contains("too many")), "{:?}", made.notes);
    let engine = Engine::new(made.plan, vec![backend()]).unwrap();
    let input = Value::Tensor(Tensor::zeros(DType::F32, &[1, 1]).unwrap());
    let error = engine.context().unwrap().run_values(&[input]).unwrap_err();
    assert_eq!(*error.kind(), RunErrorKind::OutOfMemory, "{error}");
}

#[test]
fn the_reference_has_the_same_limits() {
    let limits = Limits { trips: 50, bytes: 1 << 20, cancel: None };
    for (text, inputs) in [(ENDLESS, ones(256)), (NESTED, ones(4)), (DOUBLING, ones(1))] {
        let graph: Graph = text.parse().unwrap();
        let error = interpret_within(&graph, inputs, &limits).unwrap_err();
        assert_eq!(error.kind(), EvalErrorKind::Limit, "{error}");
    }
}

/// 4 kB in each of a thousand trips, for nobody: 1 MiB is enough.
#[test]
fn what_nobody_reads_is_not_collected() {
    let text = "graph \"g\" {
        input %x: f32[1024]
        const %m: i64[] = 1000
        const %t: bool[] = true
        %last: f32[1024], %all: f32[trips,1024] = Loop(%m, %t, %x) \"l\" [
          graph \"body\" {
            input %i: i64[] input %c: bool[] input %v: f32[1024]
            %c2: bool[] = Identity(%c)
            %v2: f32[1024] = Sin(%v)
            %each: f32[1024] = Identity(%v2)
            output %c2, %v2, %each
          }
        ]
        output %last
    }";
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let graph: Graph = text.parse().unwrap();
    let want = interpret_within(&graph, ones(1024), &limits).unwrap();
    let engine = Engine::new(built(text, &options()).unwrap().plan, vec![backend()]).unwrap();
    let got = engine.limited(limits).context().unwrap().run_values(&ones(1024)).unwrap();
    let (got, want) = (got[0].as_tensor().unwrap().to_f64s(), want[0].as_tensor().unwrap().to_f64s());
    assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-4));
    // Where somebody reads it, it counts.
    let read: Graph = text.replace("output %last\n", "output %last, %all\n").parse().unwrap();
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let error = interpret_within(&read, ones(1024), &limits).unwrap_err();
    assert_eq!(error.kind(), EvalErrorKind::Limit, "{error}");
}

#[test]
fn a_build_can_be_stopped_at_any_stage() {
    let stopped = BuildOptions { cancel: Arc::new(AtomicBool::new(true)), ..options() };
    let error = built(ENDLESS, &stopped).unwrap_err();
    assert_eq!(*error.kind(), BuildErrorKind::Cancelled);
    // While it is under way: the check's own runs look, too.
    let cancel = Arc::new(AtomicBool::new(false));
    let later = BuildOptions { cancel: cancel.clone(), ..options() };
    let thread = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        cancel.store(true, Ordering::Relaxed);
    });
    let ended = (0..1000).find_map(|_| built(ENDLESS, &later).err());
    thread.join().unwrap();
    assert_eq!(*ended.unwrap().kind(), BuildErrorKind::Cancelled);
}

#[test]
fn a_run_can_be_stopped() {
    let made = built(NESTED, &BuildOptions { verify: false, ..options() }).unwrap();
    let cancel = Arc::new(AtomicBool::new(false));
    let limits = Limits { trips: u64::MAX, cancel: Some(cancel.clone()), ..Limits::default() };
    let engine = Engine::new(made.plan, vec![backend()]).unwrap().limited(limits);
    let thread = std::thread::spawn(move || engine.context().unwrap().run_values(&ones(4)));
    std::thread::sleep(std::time::Duration::from_millis(20));
    cancel.store(true, Ordering::Relaxed);
    let error = thread.join().unwrap().unwrap_err();
    assert_eq!(*error.kind(), RunErrorKind::Cancelled, "{error}");
}
