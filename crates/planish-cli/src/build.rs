//! `planish build`: a model to a plan file.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use planish::machine::share_one_heap;
use planish::{Device, Plan, Stage, TargetNeeds};
use serde_json::{Map, json};

use crate::args::{Build, Opening, StopAfter};
use crate::ending::Answer;
use crate::memory::Needs;
use crate::{contract, files, inspect_plan, load, print};

/// Stages that took less are not worth a word.
const LEAST_SHOWN_S: f64 = 1e-3;

pub(crate) fn command(args: &Build, out: &mut dyn Write) -> Result<Answer> {
    // Without it a build takes some 50 MB more, and works as well. Not for a GPU: NVRTC compiles on all threads, and one
    // heap makes them wait for each other (ResNet-18 in FP16 on 16 cores with an H200: 49 s instead of 21).
    if args.building.device.settled() == Device::Cpu {
        let _ = share_one_heap();
    }
    let contract = contract::asked(args)?;
    if let Some(StopAfter::Stage(stage)) = args.building.stop_after {
        return show(args, stage, out);
    }
    let path = args.output.clone().unwrap_or_else(|| args.model.with_extension("plan"));
    files::check_target(&path, files::Kind::Plan, &[&args.model])?;
    if !args.target.is_empty() {
        anyhow::ensure!(
            contract.is_none(),
            "--target and --precision auto do not go together; name a precision"
        );
        return for_targets(args, &path, out);
    }
    let (made, search) = match contract {
        Some(contract) => match contract::build(args, contract, out)? {
            (Some(made), search) => (made, Some(search)),
            (None, search) => {
                print::json(out, &args.json, &json!({ "plan": null, "search": search }))?;
                return Ok(Answer::No);
            }
        },
        None => (load::build(&args.model, &args.building)?, None),
    };
    let n_bytes = match args.strip_weights {
        true => made.plan.strip()?.save(&path)?,
        false => made.plan.save(&path)?,
    };
    let record = made.plan.record();
    let device = device_memory(&args.model, &made.plan, args.building.device)?;
    let stages: Vec<(&str, f64)> = made
        .stages
        .iter()
        .flat_map(planish::Stages::iter)
        .map(|(name, time)| (name, time.as_secs_f64()))
        .collect();
    let slow = inspect_plan::slow_steps(record);
    if !args.json.replaces_tables() {
        if args.building.explain
            && let Some(report) = &made.report
        {
            write!(out, "{report}")?;
        }
        let n_steps = print::count(record.program.steps.len() as u64);
        writeln!(out, "plan    {} ({}, {n_steps} steps)", path.display(), print::bytes(n_bytes))?;
        let shown = stages.iter().filter(|(_, s)| *s >= LEAST_SHOWN_S);
        let all_s = made.time.as_secs_f64();
        let text = |(name, s): &(&str, f64)| match *name {
            "check" => format!("{name} {}, {:.0} %", print::seconds(*s), 100.0 * s / all_s.max(*s)),
            _ => format!("{name} {}", print::seconds(*s)),
        };
        let stages: Vec<String> = shown.map(text).collect();
        writeln!(out, "built   in {} ({})", print::seconds(made.time.as_secs_f64()), stages.join(", "))?;
        if let Some((name, needs)) = &device {
            writeln!(
                out,
                "device  {} on {name}: weights {}, arena and workspace {} at the tuned sizes",
                print::bytes((needs.weights + needs.arena) as u64),
                print::bytes(needs.weights as u64),
                print::bytes(needs.arena as u64)
            )?;
        }
        if !slow.is_empty() {
            writeln!(out, "slow    {} steps run on the reference: {}", slow.len(), slow.join(", "))?;
        }
        let late = inspect_plan::late_steps(record);
        if !late.is_empty() {
            let names = late.join(", ");
            writeln!(out, "late    {} steps are prepared when a run tells their sizes: {names}", late.len())?;
        }
    }
    let report = json!({
        "plan": path, "plan_bytes": n_bytes, "build_ms": made.time.as_secs_f64() * 1e3,
        "stages_ms": stages.iter().map(|(name, s)| (name.to_string(), json!(s * 1e3))).collect::<Map<_, _>>(),
        "n_steps": record.program.steps.len(), "slow_steps": slow,
        "device": record.runs_on().backend,
        "device_bytes": device.as_ref().map(|(_, needs)| needs.weights + needs.arena),
        "search": search,
        "code_bytes": record.code.iter().map(|code| code.bytes.len()).sum::<usize>(),
    });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// Builds for machines by name, one plan a target, in one file.
fn for_targets(args: &Build, path: &Path, out: &mut dyn Write) -> Result<Answer> {
    let mut plans = Vec::with_capacity(args.target.len());
    for target in &args.target {
        let building = crate::args::Building { target: Some(target.clone()), ..args.building.clone() };
        let made = load::build(&args.model, &building)?;
        if !args.json.replaces_tables() {
            let (steps, time) =
                (made.plan.record().program.steps.len(), print::seconds(made.time.as_secs_f64()));
            writeln!(out, "built   {target}: {steps} steps in {time}, {}", load::state_text(&made.plan))?;
        }
        plans.push(made.plan);
    }
    let n_bytes = match &plans[..] {
        [only] => only.save(path)?,
        _ => crate::bundle::write(&plans, false, path)?,
    };
    if !args.json.replaces_tables() {
        writeln!(out, "plan    {} ({})", path.display(), print::bytes(n_bytes))?;
    }
    let report = json!({ "plan": path, "plan_bytes": n_bytes, "targets": args.target });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// Writes a stage of the build as text.
fn show(args: &Build, stage: Stage, out: &mut dyn Write) -> Result<Answer> {
    if let Some(path) = &args.output {
        files::check_target(path, files::Kind::Stage, &[&args.model])?;
    }
    let text = load::stage(&args.model, &args.building, stage)?;
    match &args.output {
        Some(path) => files::write(path, |file| file.write_all(text.as_bytes()))?,
        None => out.write_all(text.as_bytes())?,
    }
    Ok(Answer::Yes)
}

/// The memory that one context of the plan needs on its GPU at the sizes that it was tuned at, and the GPU's name;
/// nothing for a plan on the CPU.
fn device_memory(path: &Path, plan: &Plan, device: Device) -> Result<Option<(String, TargetNeeds)>> {
    let record = plan.record();
    let Some(at) = record.device() else { return Ok(None) };
    let target = &record.header.targets[at as usize];
    let name = target.device.clone();
    let engine = load::engine(path, plan.clone(), device, &Opening::default())?;
    // Inputs of unknown rank have no memory that could be told.
    let needs = Needs::at(&engine, &record.header.tuned_at).ok().and_then(|needs| needs.on_device());
    Ok(needs.map(|needs| (name, needs)))
}
