//! `planish inspect` of a plan: what it holds, its layers and its certificate.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use planish::record::{Header, Plan, PlanErrorKind, Step, StepKind};
use planish::{CertificateState, Device, Opened, Outcome};
use serde_json::json;

use crate::anatomy::{Anatomy, Measured};
use crate::args::{Building, Inspect, Opening};
use crate::ending::Answer;
use crate::memory::Needs;
use crate::{bundle, files, load, print, say_note};

pub(crate) fn command(args: &Inspect, out: &mut dyn Write) -> Result<Answer> {
    if args.metadata {
        return metadata(args, out);
    }
    let is_bundle = planish::Bundle::is_one(&args.model);
    if is_bundle && !args.json.replaces_tables() && !(args.graph || args.text) {
        bundle::members(&args.model, out)?;
    }
    // The file's own plan is shown wherever it can be read, for whatever machine it is.
    let opened = match is_bundle {
        true => planish::Plan::open(&args.model).map(|plan| Ok(plan.record().clone()))?,
        false => Plan::open(&args.model),
    };
    let plan = match opened {
        Err(error) if matches!(error.kind(), PlanErrorKind::OtherProgram | PlanErrorKind::Unknown) => {
            load::plan(&args.model, &Building::default(), &Opening::default(), false)?.plan.record().clone()
        }
        opened => opened.map_err(planish::Error::from)?,
    };
    if args.graph {
        write!(out, "{}", plan.graph)?;
        return Ok(Answer::Yes);
    }
    if args.text {
        write!(out, "{}", plan.describe())?;
        return Ok(Answer::Yes);
    }
    if let Some(folder) = &args.code {
        return code(&plan, folder, out);
    }
    load::say_if_unchecked(&plan);
    let memory = match on_device(&plan) && !args.memory {
        // Looking at a plan must not load its code.
        true => Err(anyhow!("--memory opens the plan on its GPU, which loads its code")),
        false => memory(&args.model),
    };
    if !args.json.replaces_tables() {
        if args.layers {
            layers(&plan, out)?;
        } else if args.certificate {
            certificate(&plan, out)?;
        } else {
            summary(&plan, &memory, out)?;
        }
    }
    let mut report = report(&plan);
    if let Ok(memory) = &memory {
        report["memory"] = memory.iter().map(Needs::json).collect();
    }
    print::json(out, &args.json, &report)?;
    let failed = plan.certificate.checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_)));
    Ok(if failed { Answer::No } else { Answer::Yes })
}

/// What the file says of itself, without the rest of it.
fn metadata(args: &Inspect, out: &mut dyn Write) -> Result<Answer> {
    if planish::Bundle::is_one(&args.model) {
        bundle::members(&args.model, out)?;
        return Ok(Answer::Yes);
    }
    let found = planish::Plan::metadata(&args.model)?;
    let header = &found.header;
    let source: String = header.source.iter().map(|byte| format!("{byte:02x}")).collect();
    let state = found.certificate.map(load::state_name);
    if !args.json.replaces_tables() {
        writeln!(out, "plan        `{}`, built by Planish {}", header.name, header.producer)?;
        let runs = if found.is_current { "" } else { ": is built again before it runs" };
        writeln!(
            out,
            "versions    format {}, program {}{runs}",
            found.format_version, found.program_version
        )?;
        writeln!(out, "source      {source}")?;
        for line in [targets_text(header), sizes_text(header)].concat() {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "precision   {}", found.precision())?;
        for (title, list) in [("inputs", &found.inputs), ("outputs", &found.outputs)] {
            for port in list {
                writeln!(out, "{title:11} {} {}", port.name, port.ty)?;
            }
        }
        match found.is_stripped {
            true => writeln!(out, "weights     left out")?,
            false => writeln!(out, "weights     {}", print::bytes(found.weight_bytes))?,
        }
        writeln!(out, "file        {}", print::bytes(found.file_bytes))?;
        writeln!(out, "certificate {}", state.unwrap_or("of another version"))?;
        for (key, value) in &header.metadata {
            writeln!(out, "metadata    {key}={}", value.escape_debug())?;
        }
    }
    let ports = |list: &[planish::Port]| -> Vec<serde_json::Value> {
        list.iter().map(|port| json!({ "name": port.name, "type": port.ty.to_string() })).collect()
    };
    let targets: Vec<_> = header
        .targets
        .iter()
        .map(|target| json!({ "backend": target.backend, "needs": target.needs, "device": target.device }))
        .collect();
    let profiles: Vec<Vec<_>> = header
        .profiles
        .iter()
        .map(|profile| {
            let range = |range: &planish::SymbolRange| {
                json!({ "symbol": range.symbol, "min": range.min, "opt": range.opt, "max": range.max })
            };
            profile.ranges.iter().map(range).collect()
        })
        .collect();
    let report = json!({
        "plan": header.name, "producer": header.producer, "source": source,
        "format_version": found.format_version, "program_version": found.program_version,
        "is_current": found.is_current, "targets": targets, "profiles": profiles,
        "tuned_at": header.tuned_at.iter().cloned().collect::<BTreeMap<_, _>>(),
        "threads": header.threads, "precision": found.precision(),
        "options": header.options.lines().collect::<Vec<_>>(),
        "inputs": ports(&found.inputs), "outputs": ports(&found.outputs),
        "file_bytes": found.file_bytes, "weight_bytes": found.weight_bytes,
        "code_bytes": found.code_bytes, "stripped": found.is_stripped, "certificate": state,
        "metadata": header.metadata.iter().cloned().collect::<BTreeMap<_, _>>(),
    });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// What the plan is for, a line a target.
fn targets_text(header: &Header) -> Vec<String> {
    let line = |target: &planish::record::Target| {
        format!("target      {} with {}, tuned on {}", target.backend, target.needs.join(" "), target.device)
    };
    header.targets.iter().map(line).collect()
}

/// What sizes the plan was tuned at, and which it takes.
fn sizes_text(header: &Header) -> Vec<String> {
    let sizes: Vec<String> =
        header.tuned_at.iter().map(|(symbol, size)| format!("{symbol}={size}")).collect();
    let mut lines = vec![format!("tuned       for {} threads {}", header.threads, sizes.join(" "))];
    // By the cost model alone, tactics are those for the first one.
    let is_measured = header.options.lines().all(|line| line != "tune_level=0");
    for (idx, profile) in header.profiles.iter().enumerate() {
        let tuned = if idx == 0 || is_measured { "tuned at" } else { "by the cost model as profile 0, for" };
        let ranges: Vec<String> = profile
            .ranges
            .iter()
            .map(|range| format!("{} {}..{} ({tuned} {})", range.symbol, range.min, range.max, range.opt))
            .collect();
        lines.push(format!("profile {idx}   {}", ranges.join(", ")));
    }
    lines
}

/// Writes the plan's compiled code, one file a piece, named by the beginning of its key; no if there is none.
fn code(plan: &Plan, folder: &Path, out: &mut dyn Write) -> Result<Answer> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (idx, code) in plan.code.iter().enumerate() {
        let name: String = code.key.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        let path = folder.join(format!("{idx:03}_{name}.cubin"));
        files::write(&path, |file| file.write_all(&code.bytes))?;
        writeln!(out, "{} {}", path.display(), print::bytes(code.bytes.len() as u64))?;
    }
    if plan.code.is_empty() {
        say_note("the plan has no compiled code: its kernels are part of the program or of libraries");
    }
    Ok(if plan.code.is_empty() { Answer::No } else { Answer::Yes })
}

/// Whether the plan has code or steps for something else than the CPU.
fn on_device(plan: &Plan) -> bool {
    !plan.code.is_empty() || plan.header.targets.iter().any(|target| target.backend != "cpu")
}

/// What the plan needs of memory at the sizes that it was tuned at and at the largest of its profiles, or why that
/// cannot be told here: kernels say what workspace they need, so their device must be there.
fn memory(path: &Path) -> Result<Vec<Needs>> {
    let plan = match planish::Plan::open_for(path, Device::Auto)? {
        Opened::Fits(plan) => plan,
        Opened::NeedsRebuild(rebuild) => bail!("{}", rebuild.why()),
    };
    let engine = load::engine(path, plan, Device::Auto, &Opening::default())?;
    let record = engine.record();
    let mut sizes = vec![record.header.tuned_at.clone()];
    for profile in &record.header.profiles {
        sizes.push(profile.ranges.iter().map(|range| (range.symbol.clone(), range.max)).collect());
    }
    sizes.dedup();
    sizes.iter().map(|sizes| Needs::at(&engine, sizes)).collect()
}

/// The kernel of a step in words.
pub(crate) fn tactic(step: &Step) -> String {
    match &step.kind {
        StepKind::Kernel { variants, .. } => {
            let names: Vec<&str> = variants.iter().map(|variant| variant.tactic.name.as_str()).collect();
            names.join(" | ")
        }
        StepKind::Transfer => "transfer".to_string(),
        StepKind::Evaluate => "prepared as it runs, on host values".to_string(),
        StepKind::Control(_) => "control flow".to_string(),
    }
}

/// Whether the step is computed by the slow reference. Of steps whose sizes only a run can tell nobody knows before it; they have
/// kernels for what most of them turn out to be ([`late_steps`]).
pub(crate) fn is_slow(step: &Step) -> bool {
    matches!(step.kind, StepKind::Kernel { slow: true, .. })
}

/// The steps whose kernels are prepared when a run tells their sizes, by name.
pub(crate) fn late_steps(plan: &Plan) -> Vec<String> {
    let is_late = |step: &&Step| matches!(step.kind, StepKind::Evaluate);
    plan.program.steps.iter().filter(is_late).map(|step| step.name.clone()).collect()
}

/// The steps that the slow reference computes, by name.
pub(crate) fn slow_steps(plan: &Plan) -> Vec<String> {
    plan.program.steps.iter().filter(|step| is_slow(step)).map(|step| step.name.clone()).collect()
}

fn summary(plan: &Plan, memory: &Result<Vec<Needs>>, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "plan        `{}`, built by Planish {}", plan.header.name, plan.header.producer)?;
    for line in [targets_text(&plan.header), sizes_text(&plan.header)].concat() {
        writeln!(out, "{line}")?;
    }
    let n_bytes: u64 = plan.weights.iter().map(|weight| weight.bytes.len() as u64).sum();
    match &plan.stripped {
        Some(stripped) => {
            let n_bytes = print::bytes(stripped.n_bytes());
            writeln!(out, "weights     left out, {n_bytes} in {} tensors", plan.weights.len())?;
        }
        None => writeln!(out, "weights     {} in {} tensors", print::bytes(n_bytes), plan.weights.len())?,
    }
    if !plan.code.is_empty() {
        let n_bytes: u64 = plan.code.iter().map(|code| code.bytes.len() as u64).sum();
        writeln!(out, "code        {} in {} pieces", print::bytes(n_bytes), plan.code.len())?;
    }
    match memory {
        Ok(memory) => {
            for line in memory.iter().flat_map(Needs::lines) {
                writeln!(out, "memory      {line}")?;
            }
        }
        Err(why) => writeln!(out, "memory      not known: {why:#}")?,
    }
    let slow = slow_steps(plan);
    writeln!(
        out,
        "steps       {}, {} of them on the reference, {} prepared as they run",
        plan.program.steps.len(),
        slow.len(),
        late_steps(plan).len()
    )?;
    for (title, list) in [("inputs", &plan.program.inputs), ("outputs", &plan.program.outputs)] {
        for &value in list {
            let value = &plan.program.values[value as usize];
            writeln!(out, "{title:11} {} {}", value.name, value.ty)?;
        }
    }
    let checks = &plan.certificate.checks;
    let count = |wanted: fn(&Outcome) -> bool| checks.iter().filter(|check| wanted(&check.outcome)).count();
    let (passed, failed) = (
        count(|outcome| *outcome == Outcome::Passed),
        count(|outcome| matches!(outcome, Outcome::Failed(_))),
    );
    let skipped = checks.len() - passed - failed;
    match plan.certificate.state() {
        CertificateState::NotChecked if checks.is_empty() => {
            writeln!(out, "certificate none: built with --no-verify")?;
        }
        CertificateState::KernelsNotRun => {
            writeln!(out, "certificate kernels not run; `planish check` runs them where their GPU is")?;
        }
        CertificateState::UncheckedSinceRefit => {
            writeln!(out, "certificate unchecked since refit; `planish check` runs the self-check again")?;
        }
        _ => writeln!(out, "certificate {passed} checks passed, {failed} failed, {skipped} skipped")?,
    }
    Ok(())
}

fn layers(plan: &Plan, out: &mut dyn Write) -> Result<()> {
    let mut rows = vec![["", "layer", "operators", "kernel", "us", "why"].map(String::from).to_vec()];
    for (idx, step) in plan.program.steps.iter().enumerate() {
        let evidence = plan.evidence.iter().find(|evidence| evidence.step as usize == idx);
        let chosen = evidence.and_then(|evidence| {
            evidence.timings.iter().find(|timing| tactic(step).starts_with(&timing.tactic.name))
        });
        rows.push(vec![
            idx.to_string(),
            step.name.clone(),
            step.region.ops(),
            tactic(step),
            chosen.map_or_else(String::new, |timing| format!("{:.1}", timing.ns as f64 / 1e3)),
            evidence.map_or_else(String::new, |evidence| {
                format!("{}, of {}", evidence.why, evidence.timings.len())
            }),
        ]);
    }
    print::table(out, &rows, &[0, 4])?;
    Ok(())
}

fn certificate(plan: &Plan, out: &mut dyn Write) -> Result<()> {
    let mut rows = vec![["check", "points", "worst", "outcome"].map(String::from).to_vec()];
    for check in &plan.certificate.checks {
        rows.push(vec![
            check.subject.clone(),
            print::count(check.n_points),
            format!("{:.3}", check.worst),
            outcome(&check.outcome),
        ]);
    }
    print::table(out, &rows, &[1, 2])?;
    Ok(())
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".to_string(),
        Outcome::Skipped(why) => format!("skipped: {why}"),
        Outcome::Failed(why) => format!("FAILED: {why}"),
    }
}

fn report(plan: &Plan) -> serde_json::Value {
    let checks: Vec<_> = plan
        .certificate
        .checks
        .iter()
        .map(|check| {
            json!({
                "subject": check.subject, "points": check.n_points, "worst": check.worst,
                "outcome": outcome(&check.outcome),
            })
        })
        .collect();
    let mut report = Anatomy::new(plan, &Measured::default()).json(None);
    // Times and the nodes of the model are what `planish explore --json` adds.
    report["certificate"] = checks.into();
    report["steps"] = report["layers"].take();
    report["timeline"] = report["memory"].take();
    report
}
