//! `planish build`: a model to a plan file.

use std::io::Write;

use anyhow::Result;
use serde_json::json;

use crate::args::Build;
use crate::{Answer, inspect_plan, load, print};

pub(crate) fn command(args: &Build, out: &mut dyn Write) -> Result<Answer> {
    let path = args.output.clone().unwrap_or_else(|| args.model.with_extension("plan"));
    let made = load::build(&args.model, &args.building)?;
    let n_bytes = made.plan.save(&path)?;
    let record = made.plan.record();
    let slow: Vec<&str> = record
        .program
        .steps
        .iter()
        .filter(|step| inspect_plan::is_slow(step))
        .map(|step| step.name.as_str())
        .collect();
    if !args.json.replaces_tables() {
        if args.building.explain
            && let Some(report) = &made.report
        {
            write!(out, "{report}")?;
        }
        let n_steps = print::count(record.program.steps.len() as u64);
        writeln!(out, "plan    {} ({}, {n_steps} steps)", path.display(), print::bytes(n_bytes))?;
        writeln!(out, "built   in {}", print::seconds(made.time.as_secs_f64()))?;
        if !slow.is_empty() {
            writeln!(out, "slow    {} steps run on the reference: {}", slow.len(), slow.join(", "))?;
        }
    }
    let report = json!({
        "plan": path, "plan_bytes": n_bytes, "build_ms": made.time.as_secs_f64() * 1e3,
        "n_steps": record.program.steps.len(), "slow_steps": slow,
    });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}
