//! `planish refit`: other weights for a plan.

use std::io::Write;
use std::time::Instant;

use anyhow::Result;
use planish::{Model, Plan};
use serde_json::json;

use crate::args::Refit;
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
