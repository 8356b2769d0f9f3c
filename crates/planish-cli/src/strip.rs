//! `planish strip`: a plan without its weights.

use std::io::Write;

use anyhow::{Result, bail};
use planish::Plan;
use serde_json::json;

use crate::args::Strip;
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::print;

pub(crate) fn strip(args: &Strip, out: &mut dyn Write) -> Result<Answer> {
    files::check_target(&args.output, Kind::Plan, &[&args.plan])?;
    let plan = Plan::open(&args.plan)?;
    if plan.is_stripped() {
        bail!("{} has no weights already", args.plan.display());
    }
    let n_before = plan.file_bytes()?;
    let n_bytes = plan.strip()?.save(&args.output)?;
    if !args.json.replaces_tables() {
        let (before, after) = (print::bytes(n_before), print::bytes(n_bytes));
        writeln!(out, "plan    {} ({after}, {before} with its weights)", args.output.display())?;
        writeln!(out, "fill    planish refit {} MODEL.onnx -o FULL.plan", args.output.display())?;
    }
    let report = json!({ "plan": args.output, "plan_bytes": n_bytes, "bytes_before": n_before });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}
