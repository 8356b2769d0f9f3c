//! The whole plan against itself: repeats, other contexts, poisoned memory, other numbers of threads. The bits must be the
//! same. Runs are shared between these questions, since each costs what the model costs.

use planish_op::{Class, Op, Value};
use planish_plan::Check;
use planish_runtime::{Context, ContextOptions, Engine, RunError};
use planish_tensor::Tensor;

use super::skipped;
use super::whole::{MadeUp, failed, passed};

/// Runs of one context before the one that is compared, where launches are captured: plain, captured, replayed.
const N_REPLAYS: usize = 3;
/// Numbers of threads that are tried.
const THREADS: [usize; 3] = [1, 2, 3];

/// A context with another number of threads than the plan's, its memory filled with NaN before every run. More threads
/// cost less time than fewer.
pub(super) fn other_context(engine: &Engine, threads: usize) -> Result<Context, RunError> {
    let other = THREADS.into_iter().rev().find(|&other| other != threads).unwrap_or(1);
    let mut context = engine.context_with(ContextOptions::new(other))?;
    context.set_poison(true);
    Ok(context)
}

/// Beyond this a run takes some tenths of a second, and all questions are asked at once.
pub(super) const COSTLY_FLOPS: u64 = 12_000_000_000;

/// Runs `inputs` again, of which `first` are the outputs; `flops` is what a run costs. `used` is an `other_context` that ran
/// before on other values.
pub(super) fn check(
    engine: &Engine,
    (inputs, first): (&[Value], &[Value]),
    threads: usize,
    made_up: MadeUp,
    (flops, used): (u64, Option<Context>),
    checks: &mut Vec<Check>,
) {
    let steps = &engine.plan().program.steps;
    if steps.iter().any(|step| step.region.nodes.iter().any(|node| is_random(&node.op))) {
        checks.push(skipped("repeats", "the model draws random numbers".to_string()));
        return;
    }
    let itself = Itself { engine, inputs, first, threads };
    // Captured graphs are of devices, and of one size.
    let is_costly = flops > COSTLY_FLOPS && engine.plan().device().is_none();
    let compared = match is_costly {
        true => itself.at_once(used, made_up, checks),
        false => itself.one_by_one(made_up, checks),
    };
    if let Err(error) = compared {
        checks.push(failed("a run on inputs that ran before", f64::INFINITY, error.to_string()));
    }
}

struct Itself<'a> {
    engine: &'a Engine,
    inputs: &'a [Value],
    first: &'a [Value],
    threads: usize,
}

impl Itself<'_> {
    /// One run in a context with other threads and poisoned memory that has seen other values.
    fn at_once(
        &self,
        used: Option<Context>,
        made_up: MadeUp,
        checks: &mut Vec<Check>,
    ) -> Result<(), RunError> {
        let subject = "a second run after other values, with other threads, in memory filled with NaN";
        let mut used = match used {
            Some(used) => used,
            None => {
                let mut context = other_context(self.engine, self.threads)?;
                if let Some(values) = made_up.inputs(self.engine, &self.engine.plan().header.tuned_at, 1) {
                    // They may be outside what the model defines.
                    let _ = context.run_values(&values);
                }
                context
            }
        };
        if same(&used.run_values(self.inputs)?, self.first) {
            checks.push(passed(subject, 0.0));
            return Ok(());
        }
        let again = self.context(self.threads, false)?.run_values(self.inputs)?;
        let why = if same(&again, self.first) { "the bits differ" } else { "the bits differ every time" };
        checks.push(failed(subject, f64::INFINITY, why.to_string()));
        Ok(())
    }

    fn one_by_one(&self, made_up: MadeUp, checks: &mut Vec<Check>) -> Result<(), RunError> {
        let is_device = self.engine.plan().device().is_some();
        let mut others = THREADS.into_iter().filter(|&other| other != self.threads);
        let mut context = self.context(self.threads, false)?;
        // On other values, so that whoever reads too early does not find what the right run would have left. They may be
        // outside what the model defines; contexts must stay usable all the same.
        if let Some(values) = made_up.inputs(self.engine, &self.engine.plan().header.tuned_at, 1) {
            let n_runs = if is_device { N_REPLAYS } else { 1 };
            let mut got = Ok(Vec::new());
            for _ in 0..n_runs {
                got = context.run_values(&values);
            }
            if let (Ok(got), Some(other)) = (got, others.next()) {
                checks.push(self.other_context(other, &values, &got));
            }
        }
        let again = context.run_values(self.inputs)?;
        let subject = match is_device {
            false => "a second run, other values and another context in between",
            true => "launches captured and replayed, other values and another context in between",
        };
        checks.push(match same(&again, self.first) {
            true => passed(subject, 0.0),
            false => failed(subject, f64::INFINITY, "the bits differ".to_string()),
        });
        for other in others {
            checks.push(self.other_context(other, self.inputs, self.first));
        }
        Ok(())
    }

    /// A context with another number of threads, its memory filled with NaN.
    fn other_context(&self, threads: usize, inputs: &[Value], wanted: &[Value]) -> Check {
        let subject = format!("{threads} threads against {}, in memory filled with NaN", self.threads);
        let run = |poison: bool| self.context(threads, poison).and_then(|mut it| it.run_values(inputs));
        match run(true) {
            Ok(outputs) if same(&outputs, wanted) => passed(&subject, 0.0),
            Ok(_) => {
                let is_stale = run(false).is_ok_and(|outputs| same(&outputs, wanted));
                let why = match is_stale {
                    true => "the bits follow what memory held before the run",
                    false => "the bits differ with the number of threads",
                };
                failed(&subject, f64::INFINITY, why.to_string())
            }
            Err(error) => failed(&subject, f64::INFINITY, error.to_string()),
        }
    }

    fn context(&self, threads: usize, poison: bool) -> Result<Context, RunError> {
        let mut context = self.engine.context_with(ContextOptions::new(threads))?;
        context.set_poison(poison);
        Ok(context)
    }
}

/// The same bits; NaN equals NaN.
fn same(a: &[Value], b: &[Value]) -> bool {
    let tensor =
        |a: &Tensor, b: &Tensor| a.shape() == b.shape() && a.dtype() == b.dtype() && a.bytes() == b.bytes();
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (Value::Tensor(a), Value::Tensor(b)) => tensor(a, b),
            (Value::Sequence(a), Value::Sequence(b)) => same(a, b),
            (Value::Optional(None), Value::Optional(None)) => true,
            (Value::Optional(Some(a)), Value::Optional(Some(b))) => {
                same(std::slice::from_ref(a), std::slice::from_ref(b))
            }
            _ => false,
        })
}

/// Dropout leaves elements out only where it is told to train.
fn is_random(op: &Op) -> bool {
    op.class() == Class::Random && !matches!(op, Op::Dropout(_))
}
