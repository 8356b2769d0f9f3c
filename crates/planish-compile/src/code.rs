//! What the plan's tactics need of a machine, and the compiled code that the plan carries for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use planish_kernel::{Backend, Code, MemoryKind, Problem, Tactic};
use planish_plan::{Program, StepKind};
use planish_tensor::Bytes;

use crate::backends::{Backends, HOST};
use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::sizes::Sizes;

/// What a program needs beside itself.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    /// (target, need), each once.
    pub(crate) needs: BTreeSet<(u32, String)>,
    /// By ascending key, each once.
    pub(crate) code: Vec<Code>,
}

/// Collects needs and code of every kernel step, bodies included: at the tuned sizes and at the ends of the
/// profiles, since a kernel may be made for sizes.
pub(crate) fn needs_and_code(
    program: &Program,
    backends: Backends<'_>,
    sizes: &Sizes,
    options: &BuildOptions,
) -> Result<Needed, BuildError> {
    let mut all = vec![sizes.pairs()];
    for profile in &options.profiles {
        for largest in [false, true] {
            let mut pairs = sizes.pairs();
            for (symbol, size) in &mut pairs {
                if let Some(range) = profile.ranges.iter().find(|range| range.symbol == *symbol) {
                    *size = if largest { range.max } else { range.min };
                }
            }
            if !all.contains(&pairs) {
                all.push(pairs);
            }
        }
    }
    for target in backends.by_preference().filter(|&target| target != HOST) {
        let mut work = Vec::new();
        for step in program.steps.iter().filter(|step| step.target == target) {
            let StepKind::Kernel { variants, .. } = &step.kind else { continue };
            let problems = all
                .iter()
                .filter_map(|sizes| planish_runtime::problem_of(program, step, sizes, options.threads).ok());
            work.extend(problems.flat_map(|problem| {
                variants.iter().map(move |variant| (problem.clone(), variant.tactic.clone()))
            }));
        }
        compile_ahead(backends.get(target), &work);
    }
    let mut collected = Collected { needs: BTreeSet::new(), code: BTreeMap::new() };
    collected.program(program, backends, &all, options.threads)?;
    let code = collected.code.into_iter().map(|(key, bytes)| Code { key, bytes }).collect();
    Ok(Needed { needs: collected.needs, code })
}

/// Has the backend compile the code of all of this, on every core at once: it keeps what it compiled. Whatever
/// cannot be compiled says so when it is prepared.
pub(crate) fn compile_ahead(backend: &dyn Backend, work: &[(Problem, Tactic)]) {
    let next = AtomicUsize::new(0);
    let compile = || {
        while let Some((problem, tactic)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            let _ = backend.code(problem, tactic);
        }
    };
    let n_threads = thread::available_parallelism().map_or(1, usize::from).min(work.len());
    thread::scope(|scope| {
        for _ in 1..n_threads {
            scope.spawn(compile);
        }
        compile();
    });
}

struct Collected {
    needs: BTreeSet<(u32, String)>,
    code: BTreeMap<String, Bytes>,
}

impl Collected {
    fn program(
        &mut self,
        program: &Program,
        backends: Backends<'_>,
        sizes: &[Vec<(String, i64)>],
        threads: usize,
    ) -> Result<(), BuildError> {
        for step in &program.steps {
            let variants = match &step.kind {
                StepKind::Kernel { variants, .. } => variants,
                StepKind::Control(control) => {
                    for body in &control.bodies {
                        self.program(body, backends, sizes, threads)?;
                    }
                    continue;
                }
                StepKind::Transfer | StepKind::Evaluate => continue,
            };
            let backend = backends.get(step.target);
            // Host kernels are part of the program, and asking them costs an opening its time.
            if backend.memory_kind() == MemoryKind::Host {
                continue;
            }
            for variant in variants {
                let needs = backend.tactic_needs(&variant.tactic);
                self.needs.extend(needs.into_iter().map(|need| (step.target, need)));
                for sizes in sizes {
                    // Sizes inside bodies may be known to a run alone; the runtime then compiles, or says so.
                    let Ok(problem) = planish_runtime::problem_of(program, step, sizes, threads) else {
                        continue;
                    };
                    let code = backend.code(&problem, &variant.tactic).map_err(|error| {
                        let message = format!("no code for `{}` by {}: {error}", step.name, variant.tactic);
                        BuildError::internal(message)
                    })?;
                    self.code.extend(code.into_iter().map(|Code { key, bytes }| (key, bytes)));
                }
            }
        }
        Ok(())
    }
}
