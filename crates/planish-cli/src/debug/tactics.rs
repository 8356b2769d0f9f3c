//! `planish debug tactics`: which tactics make a command fail, always or sometimes.
//!
//! The model is built as asked, then without all of the tactics that this took, then without fewer and fewer of them for as
//! long as the command does not fail: those left are the guilty ones. Times are measured once and shared by all builds, so
//! that steps without a ban keep their tactics.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use planish::record::StepKind;
use planish::tactic::{Candidate, Problem};
use planish::{Built, Model, Plan, TimingCache};
use serde_json::json;

use super::asking;
use super::shrink::leave_out;
use crate::args::DebugTactics;
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::interrupt::Stoppable;
use crate::scratch::Scratch;
use crate::{inspect_plan, load, print, progress, say_note};

/// A tactic at a step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Choice {
    step: String,
    tactic: String,
}

/// Runs of the command on the first plan before it is believed that it does not fail.
const PATIENCE: usize = 20;

pub(super) fn command(args: &DebugTactics, out: &mut dyn Write) -> Result<Answer> {
    if load::is_plan(&args.model) {
        bail!("{} is a plan; tactics are chosen when a model is built", args.model.display());
    }
    let path = args.output.clone().unwrap_or_else(|| args.model.with_extension("good.tactics"));
    files::check_target(&path, Kind::Tactics, &[&args.model])?;
    let scratch = Scratch::new("tactics")?;
    let mut trial = Trial {
        args,
        model: Model::open(&args.model)?,
        plan: scratch.path().join("trial.plan"),
        timings: TimingCache::default(),
        n_builds: 0,
        n_checks: 0,
    };
    let Some(first) = trial.build(&[])? else { bail!("the model cannot be built") };
    let all = choices(&first);
    let n_first = if args.tries > 1 { args.tries.max(PATIENCE) } else { 1 };
    if !trial.fails(n_first)? {
        bail!(
            "the command does not fail on the plan ({n_first} tries); if it does now and then, give more --tries"
        );
    }
    let banned = |places: &[usize]| places.iter().map(|&at| all[at].clone()).collect::<Vec<_>>();
    let everything: Vec<usize> = (0..all.len()).collect();
    let is_built = trial.build(&all)?.is_some();
    if !is_built || trial.fails(args.tries)? {
        progress::clear();
        let why = if is_built {
            "it fails without all of them, too"
        } else {
            "the model cannot be built without them"
        };
        say_note(&format!("no tactic can be named: {why}"));
        print::json(
            out,
            &args.json,
            &json!({ "guilty": null, "builds": trial.n_builds, "checks": trial.n_checks }),
        )?;
        return Ok(Answer::No);
    }
    let guilty = leave_out(everything, &mut |places| {
        Ok(trial.build(&banned(places))?.is_some() && !trial.fails(args.tries)?)
    })?;
    let guilty = banned(&guilty);
    let good = trial.build(&guilty)?;
    progress::clear();
    let Some(good) = good else { bail!("a build that worked does not work any more") };
    // The reference is taken where nothing else is left, and no lock can ask for it.
    let is_lockable = guilty.iter().all(|choice| !runs_slowly(&good, &choice.step));
    if is_lockable {
        good.tactics.save(&path)?;
    }
    let instead: Vec<Vec<String>> = guilty.iter().map(|choice| at_step(&good, &choice.step)).collect();
    if !args.json.replaces_tables() {
        for (choice, instead) in guilty.iter().zip(&instead) {
            let instead = if instead.is_empty() { "other steps".to_string() } else { instead.join(", ") };
            writeln!(
                out,
                "guilty  {} at `{}`; without it the command does not fail, with {instead}",
                choice.tactic, choice.step
            )?;
        }
        writeln!(out, "built   {} plans, {} checks", trial.n_builds, trial.n_checks)?;
        match is_lockable {
            true => writeln!(out, "good    {}, for planish build --load-tactics", path.display())?,
            false => {
                writeln!(out, "good    none to be locked: a step has no other tactic but the slow reference")?
            }
        }
    }
    let entry = |(choice, instead): (&Choice, &Vec<String>)| json!({ "step": choice.step, "tactic": choice.tactic, "instead": instead });
    let report = json!({
        "guilty": guilty.iter().zip(&instead).map(entry).collect::<Vec<_>>(),
        "builds": trial.n_builds, "checks": trial.n_checks, "tactics": is_lockable.then_some(&path),
    });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// The tactics of a plan, with the step of each.
fn choices(built: &Built) -> Vec<Choice> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for step in &built.plan.program.steps {
        if let StepKind::Kernel { variants, slow: false, .. } = &step.kind {
            for variant in variants {
                let choice = Choice { step: step.region.title(), tactic: variant.tactic.name.clone() };
                if seen.insert(choice.clone()) {
                    all.push(choice);
                }
            }
        }
    }
    all
}

fn at_step(built: &Built, step: &str) -> Vec<String> {
    let names = choices(built).into_iter().filter(|choice| choice.step == step).map(|choice| choice.tactic);
    let slow = runs_slowly(built, step).then(|| "the slow reference".to_string());
    names.chain(slow).collect()
}

fn runs_slowly(built: &Built, step: &str) -> bool {
    built.plan.program.steps.iter().any(|own| own.region.title() == step && inspect_plan::is_slow(own))
}

/// Builds and checks.
struct Trial<'a> {
    args: &'a DebugTactics,
    model: Model,
    plan: PathBuf,
    timings: TimingCache,
    n_builds: usize,
    n_checks: usize,
}

impl Trial<'_> {
    /// Builds without these tactics; nothing where that cannot be.
    fn build(&mut self, banned: &[Choice]) -> Result<Option<Built>> {
        self.n_builds += 1;
        let mut builder = load::prepare(&self.args.model, self.model.clone(), &self.args.building)?;
        let work = Stoppable::begin();
        let options = builder.options_mut();
        options.cancel = work.flag();
        // What is wrong is to be seen by the command, not to be repaired.
        options.verify = false;
        if !banned.is_empty() {
            let banned: HashSet<Choice> = banned.iter().cloned().collect();
            options.selector = Some(Arc::new(move |problem: &Problem, candidate: &Candidate| {
                let choice = Choice { step: problem.region.title(), tactic: candidate.tactic.name.clone() };
                candidate.slow || !banned.contains(&choice)
            }));
        }
        let built = builder.timings(self.timings.clone()).build_with_report();
        work.end()?;
        match built {
            Ok((built, timings)) => {
                self.timings = timings;
                Plan::from(built.plan.clone()).save(&self.plan)?;
                Ok(Some(built))
            }
            Err(error) if banned.is_empty() => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Whether one of so many runs of the command on the last plan fails.
    fn fails(&mut self, tries: usize) -> Result<bool> {
        for _ in 0..tries {
            self.n_checks += 1;
            if asking::ask(&self.args.asking, &self.plan)? != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
