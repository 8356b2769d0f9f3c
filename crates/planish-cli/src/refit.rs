//! `planish refit`: other weights for a plan.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use planish::io::npy;
use planish::{Calibration, Model, Plan};
use serde_json::json;

use crate::args::Refit;
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::{load, print};

pub(crate) fn refit(args: &Refit, out: &mut dyn Write) -> Result<Answer> {
    let read: Vec<&Path> = [&args.plan, &args.model]
        .into_iter()
        .chain(&args.weights)
        .chain(&args.calib)
        .map(AsRef::as_ref)
        .collect();
    files::check_target(&args.output, Kind::Plan, &read)?;
    let plan = Plan::open(&args.plan)?;
    let mut model = Model::open(&args.model)?;
    if let Some(path) = &args.weights {
        model = model.with_weights(&npy::read_archive(path, &npy::accept_all)?).context("--weights")?;
    }
    let calibration = args.calib.as_ref().map(Calibration::open).transpose().context("--calib")?;
    let start = Instant::now();
    let mut refitted = match &calibration {
        Some(calibration) => plan.refit_with(&model, calibration)?,
        None => plan.refit(&model)?,
    };
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
        "weights_file": args.weights,
        "output": args.output,
        "weights": n_weights,
        "replaced": n_changed,
        "refit_ms": refit_time.as_secs_f64() * 1e3,
        "certificate": state,
    });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}
