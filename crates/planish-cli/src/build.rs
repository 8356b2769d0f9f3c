//! `planish build`: a model to a plan file.

use std::io::Write;

use anyhow::Result;
use planish::{Device, Plan};
use serde_json::json;

use crate::args::{Build, Opening};
use crate::{Answer, inspect_plan, load, print};

pub(crate) fn command(args: &Build, out: &mut dyn Write) -> Result<Answer> {
    let path = args.output.clone().unwrap_or_else(|| args.model.with_extension("plan"));
    let made = load::build(&args.model, &args.building)?;
    let n_bytes = made.plan.save(&path)?;
    let record = made.plan.record();
    let device = device_memory(&made.plan, args.building.device)?;
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
        if let Some(device) = &device {
            writeln!(
                out,
                "device  {} on {}: weights {}, arena and workspace {} at the tuned sizes",
                print::bytes((device.weight_bytes + device.arena_bytes) as u64),
                device.name,
                print::bytes(device.weight_bytes as u64),
                print::bytes(device.arena_bytes as u64)
            )?;
        }
        if !slow.is_empty() {
            writeln!(out, "slow    {} steps run on the reference: {}", slow.len(), slow.join(", "))?;
        }
    }
    let report = json!({
        "plan": path, "plan_bytes": n_bytes, "build_ms": made.time.as_secs_f64() * 1e3,
        "n_steps": record.program.steps.len(), "slow_steps": slow,
        "device": record.targets.last().map(|target| &target.backend),
        "device_bytes": device.as_ref().map(|device| device.weight_bytes + device.arena_bytes),
        "code_bytes": record.code.iter().map(|code| code.bytes.len()).sum::<usize>(),
    });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// What a plan takes of a GPU's memory.
struct OnDevice {
    name: String,
    weight_bytes: usize,
    arena_bytes: usize,
}

/// The memory that one context of the plan needs on its GPU at the sizes that it was tuned at; nothing for a plan on
/// the CPU.
fn device_memory(plan: &Plan, device: Device) -> Result<Option<OnDevice>> {
    let record = plan.record();
    let Some(target) = record.targets.get(1) else { return Ok(None) };
    let name = target.device.clone();
    let engine = load::engine(plan.clone(), device, &Opening::default())?;
    let mut context = engine.context()?;
    let sizes = |name: &str| record.tuned_at.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let ports = engine.inputs();
    let dims: Option<Vec<Vec<usize>>> =
        ports.iter().map(|port| port.ty.as_tensor()?.shape.as_ref()?.eval(&sizes)).collect();
    // Inputs of unknown rank have no memory that could be told.
    let Some(dims) = dims else { return Ok(None) };
    let inputs: Vec<(&str, &[usize])> =
        ports.iter().zip(&dims).map(|(port, dims)| (port.name.as_str(), &dims[..])).collect();
    context.resolve(&inputs)?;
    let (weight_bytes, arena_bytes) = (engine.weight_bytes(), context.device_arena_bytes());
    Ok(Some(OnDevice { name, weight_bytes, arena_bytes }))
}
