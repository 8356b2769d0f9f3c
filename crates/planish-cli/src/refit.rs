//! `planish refit` and `planish check`: other weights for a plan, and its self-check run again.

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, ensure};
use planish::{Model, Outcome, Plan};
use serde_json::json;

use crate::args::{Check, Refit};
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::{load, print};

pub(crate) fn refit(args: &Refit, out: &mut dyn Write) -> Result<Answer> {
    files::check_target(&args.output, Kind::Plan, &[&args.plan, &args.model])?;
    let plan = Plan::open(&args.plan)?;
    let model = Model::open(&args.model)?;
    let start = Instant::now();
    let mut refitted = plan.refit(&model)?;
    let refit_time = start.elapsed();
    if args.check {
        refitted = refitted.recheck()?;
    }
    let changed = |(old, new): (&planish::record::Weight, &planish::record::Weight)| old.bytes != new.bytes;
    let n_weights = plan.record().weights.len();
    let n_changed =
        plan.record().weights.iter().zip(&refitted.record().weights).filter(|pair| changed(*pair)).count();
    let n_bytes = refitted.save(&args.output)?;
    let state = load::state_text(&refitted);
    if !args.json.replaces_tables() {
        let time = print::seconds(refit_time.as_secs_f64());
        writeln!(out, "weights     {n_changed} of {n_weights} replaced in {time}")?;
        writeln!(out, "certificate {state}")?;
        writeln!(out, "plan        {} ({})", args.output.display(), print::bytes(n_bytes))?;
    }
    let report = json!({
        "plan": args.plan,
        "model": args.model,
        "output": args.output,
        "weights": n_weights,
        "replaced": n_changed,
        "refit_ms": refit_time.as_secs_f64() * 1e3,
        "certificate": state,
    });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

pub(crate) fn check(args: &Check, out: &mut dyn Write) -> Result<Answer> {
    ensure!(
        load::is_plan(&args.plan),
        "{} is no plan; `planish inspect` looks at models",
        args.plan.display()
    );
    // It is replaced by what comes of it, so it must not be read from its file any more.
    let plan = Plan::open_copied(&args.plan)?;
    let before = load::state_text(&plan);
    let checked = match plan.recheck() {
        Ok(checked) => checked,
        Err(error) if *error.kind() == planish::ErrorKind::CheckFailed => {
            if !args.json.replaces_tables() {
                writeln!(out, "failed  {error}")?;
            }
            let report = json!({"plan": args.plan, "passed": false, "why": error.to_string()});
            print::json(out, &args.json, &report)?;
            return Ok(Answer::No);
        }
        Err(error) => return Err(error.into()),
    };
    checked.save(&args.plan)?;
    let checks = &checked.certificate().checks;
    let n_passed = checks.iter().filter(|check| check.outcome == Outcome::Passed).count();
    let n_skipped = checks.len() - n_passed;
    if !args.json.replaces_tables() {
        writeln!(out, "before      {before}")?;
        writeln!(
            out,
            "certificate {n_passed} checks passed, {n_skipped} skipped, written to {}",
            args.plan.display()
        )?;
    }
    let report = json!({"plan": args.plan, "passed": true, "before": before, "checks": n_passed, "skipped": n_skipped});
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}
