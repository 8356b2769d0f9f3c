//! The conformance suite on a GPU: all candidates of every family on all cases, and what queues and memory must do.
//!
//! Without a GPU its tests are ignored, and say why. The binary runs alone: build it with
//! `cargo test -p planish-cuda --release --test gpu --no-run`, carry it to a machine with a GPU and start it there.
//! `PLANISH_GPU_FAMILY=gemm,conv` runs these families only, `PLANISH_GPU_CASES=quantized/` cases with this in their names,
//! `PLANISH_GPU_VERBOSE=1` prints a line per candidate.
//! `PLANISH_GPU_MOST=12` runs twelve candidates of each family, spread over the cases, on the smallest operands and
//! with few replays: for compute-sanitizer (bench/acceptance/sanitize.py). With `PLANISH_GPU_BARE=1` outputs and workspace
//! hold what the device left there, so that initcheck sees who reads them; operands inside of larger ones, whose gaps
//! must hold something known, are left out then.

// Copies and launches are for the caller to get right.
#![allow(unsafe_code)]

mod device;
mod spread;

use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Completion};
use planish_cuda::{Cuda, CudaErrorKind, offline};
use planish_kernel::{Backend, Budget, Candidate, Compiler, Device};
use planish_testing::conformance::{self, Case, How};
use planish_testing::problems;

/// Names a child process's family and the first of the cases to run.
const CHILD: &str = "PLANISH_GPU_CHILD";
/// How often a family's process is started again after a case that took the device with it.
const MAX_RESTARTS: usize = 12;

fn main() -> ExitCode {
    if let Ok(child) = std::env::var(CHILD) {
        one_family(&child);
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(LOSING).is_some() {
        lose_the_device();
        return ExitCode::SUCCESS;
    }
    let on_host = |name: &str, test: fn()| {
        libtest_mimic::Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let on_gpu = |name: &str, test: fn(&Cuda)| {
        libtest_mimic::Trial::ignorable_test(name, move || match Cuda::open(0) {
            Ok(cuda) => {
                test(&cuda);
                Ok(Completion::Completed)
            }
            Err(why) => Ok(Completion::ignored_with(why)),
        })
    };
    let trials = vec![
        on_host("families_are_listed", families_are_listed),
        on_host("picks_come_from_everywhere_and_are_small", spread::picks_come_from_everywhere_and_are_small),
        on_gpu(
            "every_family_computes_what_the_reference_does",
            every_family_computes_what_the_reference_does,
        ),
        on_gpu("the_device_layer_keeps_its_promises", the_device_layer_keeps_its_promises),
        on_gpu("a_lost_device_is_said_so", a_lost_device_is_said_so),
    ];
    // One at a time: a test of the device layer takes all of its memory, and kernels beside it would find none.
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn chosen(family: &str) -> bool {
    match std::env::var("PLANISH_GPU_FAMILY") {
        Ok(list) => list.split(',').any(|name| name == family),
        Err(_) => true,
    }
}

/// Each family runs in a process of its own: a kernel that reads where it must not takes the whole process's
/// device with it.
fn every_family_computes_what_the_reference_does(_: &Cuda) {
    let mut failed = Vec::new();
    for family in offline::families().into_iter().filter(|family| chosen(family)) {
        let mut first = 0;
        for _ in 0..MAX_RESTARTS {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "one_family", "--nocapture", "--test-threads", "1"])
                .env(CHILD, format!("{family}:{first}"))
                .output()
                .unwrap();
            let output = String::from_utf8_lossy(&child.stdout);
            for line in output.lines().filter_map(|line| line.strip_prefix("| ")) {
                println!("{line}");
            }
            if !child.status.success() {
                failed.push(family);
            }
            // Where it died: `@ index` stands in front of every case.
            let at = output.lines().rev().find_map(|line| line.strip_prefix("@ ")?.parse::<usize>().ok());
            let lost = !output.lines().any(|line| line == "@ done");
            if !lost {
                break;
            }
            println!("{family}: case {at:?} took the device with it");
            first = at.map_or(usize::MAX, |at| at + 1);
        }
    }
    failed.dedup();
    assert!(failed.is_empty(), "families that failed: {failed:?}");
}

/// For scripts that run families one by one.
fn families_are_listed() {
    println!();
    // What plugins compute is theirs to say (`planish plugin check`).
    for family in offline::families().into_iter().filter(|family| *family != "plugin") {
        assert!(!problems::of_family(family).is_empty(), "{family} has no problems of its own");
        println!("family {family}");
    }
}

/// What a child process does.
fn one_family(child: &str) {
    let (family, first) = child.split_once(':').unwrap();
    let first: usize = first.parse().unwrap();
    let cuda = Cuda::open(0).unwrap();
    let verbose = std::env::var_os("PLANISH_GPU_VERBOSE").is_some();
    let way = Way::asked();
    let mut n_run = 0;
    let mut worst = 0.0f64;
    let mut failures = 0;
    let cases = conformance::cases();
    let mut runs = Vec::new();
    let asked = std::env::var("PLANISH_GPU_CASES").unwrap_or_default();
    for (idx, case) in cases.iter().enumerate().skip(first).filter(|(_, case)| case.name.contains(&asked)) {
        let candidates = cuda.candidates_of(family, &case.problem, &Budget::USUAL);
        runs.extend(candidates.into_iter().map(|candidate| Run { idx, case, candidate }));
    }
    if let Some(most) = way.most {
        runs = spread::pick(runs, most, |run| run.case.problem.traffic_bytes());
    }
    compile_all(&cuda, &runs);
    // Launches in a graph; few where launches are slow because somebody watches them.
    let n_captured = if way.most.is_some() { 2 } else { 20 };
    let how = How { bare: way.bare, n_captured, ..How::default() };
    for Run { idx, case, candidate } in runs {
        println!("@ {idx}");
        let tactic = candidate.tactic.to_string();
        match conformance::launch(&cuda, case, &candidate, how) {
            Ok(outcome) => {
                n_run += 1;
                worst = worst.max(outcome.worst);
                if verbose {
                    println!("| ok {tactic} error {:.3} of its bound: {}", outcome.worst, case.name);
                }
            }
            Err(wrong) => {
                failures += 1;
                println!("| FAILED {tactic} on {}: {wrong}", case.name);
                // A device that gives no memory any more is lost to this process.
                if cuda.allocate(1 << 20).is_err() {
                    std::process::exit(1);
                }
            }
        }
    }
    println!("@ done");
    println!("| {family}: {n_run} right, {failures} wrong, worst error {worst:.3} of its bound");
    assert_eq!(failures, 0);
}

/// A candidate on a case.
struct Run<'a> {
    idx: usize,
    case: &'a Case,
    candidate: Candidate,
}

/// How candidates are run.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// At most so many of a family, and few replays.
    pub(crate) most: Option<usize>,
    /// Nothing is written to outputs and workspace before a launch.
    pub(crate) bare: bool,
}

impl Way {
    fn asked() -> Way {
        let most = std::env::var("PLANISH_GPU_MOST").ok().map(|most| most.parse().unwrap());
        Way { most, bare: std::env::var_os("PLANISH_GPU_BARE").is_some() }
    }
}

/// Compiles what the runs need on all cores; what fails is told when its turn comes.
fn compile_all(cuda: &Cuda, runs: &[Run<'_>]) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let problem = run.case.problem.for_candidate(&run.candidate);
                    // It keeps what it compiled.
                    let _ = cuda.code(&problem, &run.candidate.tactic);
                }
            });
        }
    });
}

/// Queues, copies, events, captured graphs and memory behave as the runtime takes them to.
fn the_device_layer_keeps_its_promises(cuda: &Cuda) {
    println!("{:?}", cuda.target());
    device::copies_come_back(cuda);
    device::captured_graphs_replay(cuda);
    device::captured_graphs_have_branches(cuda);
    device::events_tell_order_and_time(cuda);
    device::managed_memory_stays_within_what_is_free(cuda);
    device::memory_runs_out_with_a_clear_message(cuda);
    assert_eq!(Cuda::open(99).unwrap_err().kind(), CudaErrorKind::NoDevice);
}

/// Set for the process whose device is to be lost.
const LOSING: &str = "PLANISH_GPU_LOSING";

fn a_lost_device_is_said_so(_: &Cuda) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lose_the_device", "--nocapture", "--test-threads", "1"])
        .env(LOSING, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    output.lines().filter_map(|line| line.strip_prefix("| ")).for_each(|line| println!("{line}"));
    assert!(child.status.success(), "{output}{}", String::from_utf8_lossy(&child.stderr));
}

/// What a child process does.
fn lose_the_device() {
    let problem = problems::pointwise::samples().remove(0);
    device::a_lost_device_says_so(&Cuda::open(0).unwrap(), &problem);
}
