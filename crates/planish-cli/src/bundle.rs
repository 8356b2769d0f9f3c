//! `planish bundle`: plans of one model for several targets in one file.

use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use planish::{Bundle, Device, Plan};
use serde_json::json;

use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::{args, load, print};

pub(crate) fn command(args: &args::Bundle, out: &mut dyn Write) -> Result<Answer> {
    let inputs: Vec<&Path> = args.plans.iter().map(AsRef::as_ref).collect();
    files::check_target(&args.output, Kind::Plan, &inputs)?;
    let plans = args.plans.iter().map(Plan::open).collect::<Result<Vec<_>, _>>()?;
    if let Some((_, path)) = plans.iter().zip(&args.plans).find(|(plan, _)| plan.is_stripped()) {
        bail!(
            "{} was stripped of its weights; fill it again with `planish refit STRIPPED.plan MODEL.onnx -o FULL.plan`",
            path.display()
        );
    }
    let n_alone: u64 = plans.iter().map(Plan::file_bytes).sum::<Result<u64, _>>()?;
    let n_bytes = write(&plans, args.packed, &args.output)?;
    if !args.json.replaces_tables() {
        let (all, alone) = (print::bytes(n_bytes), print::bytes(n_alone));
        writeln!(out, "plan    {} ({all}; its plans alone {alone})", args.output.display())?;
        members(&args.output, out)?;
    }
    let report =
        json!({ "plan": args.output, "plan_bytes": n_bytes, "bytes_alone": n_alone, "plans": plans.len() });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// Writes a file of several plans, whose weights stand in it once unless they are to stay packed.
pub(crate) fn write(plans: &[Plan], packed: bool, path: &Path) -> Result<u64> {
    if packed || plans.len() == 1 {
        return Ok(Bundle::save(plans, path)?);
    }
    let plain = plans.iter().map(Plan::with_plain_weights).collect::<Result<Vec<_>, _>>()?;
    Ok(Bundle::save(&plain, path)?)
}

/// Puts a plan that was opened from this file back into it; the others that are in it stay.
pub(crate) fn save_over(plan: &Plan, path: &Path) -> Result<()> {
    if !Bundle::is_one(path) {
        plan.save(path)?;
        return Ok(());
    }
    let bundle = Bundle::open_copied(path)?;
    let best = bundle.best_for(Device::Auto).unwrap_or(0);
    let others = (0..bundle.members().len()).map(|idx| match idx == best {
        true => Ok(plan.clone()),
        false => bundle.plan(idx),
    });
    Bundle::save(&others.collect::<Result<Vec<_>, _>>()?, path)?;
    Ok(())
}

/// What the plans of a file are for, and which of them runs here.
pub(crate) fn members(path: &Path, out: &mut dyn Write) -> Result<()> {
    let bundle = Bundle::open(path)?;
    let best = bundle.best_for(Device::Auto);
    for (idx, member) in bundle.members().iter().enumerate() {
        let targets: Vec<String> = member
            .header
            .targets
            .iter()
            .map(|target| format!("{} with {}", target.backend, target.needs.join(" ")))
            .collect();
        let here = if best == Some(idx) { ", opened here" } else { "" };
        let state = member.certificate.map_or("of another version", load::state_name);
        writeln!(out, "plan {idx}  {}, {}: {state}{here}", targets.join(" and "), member.precision())?;
    }
    Ok(())
}
