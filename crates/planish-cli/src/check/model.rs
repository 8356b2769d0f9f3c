//! `planish check MODEL.onnx`: what is wrong with it, and the same repaired.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use planish::onnx::{self, Finding, Severity};
use serde_json::{Value, json};

use crate::args::Check;
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::print;

/// Findings of one rule that are shown one by one.
const MOST_SHOWN: usize = 5;

pub(super) fn command(args: &Check, out: &mut dyn Write) -> Result<Answer> {
    if let Some(path) = &args.output {
        files::check_target(path, Kind::Onnx, &[&args.model])?;
    }
    let file = onnx::File::open(&args.model)?;
    let (mut model, types) = (file.model()?, file.types());
    let found = onnx::lint(&model, &types);
    let mut left = found.clone();
    if let Some(path) = &args.output {
        onnx::fix(&mut model, &types);
        left = onnx::lint(&model, &types);
        onnx::save(&model, path)?;
    }
    let is_bad = |finding: &&Finding| finding.severity > Severity::Note || args.strict;
    let n_bad = left.iter().filter(is_bad).count();
    if !args.json.replaces_tables() {
        show(&found, out)?;
        let n_fixable = found.iter().filter(|finding| finding.fix.is_some()).count();
        match &args.output {
            Some(path) => {
                writeln!(
                    out,
                    "fixed   {} of {} in {}",
                    found.len() - left.len(),
                    found.len(),
                    path.display()
                )?;
            }
            None if n_fixable > 0 => {
                writeln!(out, "found   {}, {n_fixable} of which --fix -o OUT.onnx repairs", found.len())?;
            }
            None => writeln!(out, "found   {}", found.len())?,
        }
    }
    let report = json!({
        "model": args.model,
        "passed": n_bad == 0,
        "findings": found.iter().map(entry).collect::<Vec<_>>(),
        "left": args.output.as_ref().map(|_| left.iter().map(entry).collect::<Vec<_>>()),
        "output": args.output,
    });
    print::json(out, &args.json, &report)?;
    Ok(if n_bad == 0 { Answer::Yes } else { Answer::No })
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// The worst first, and of each rule some.
fn show(found: &[Finding], out: &mut dyn Write) -> Result<()> {
    let mut by_rule: BTreeMap<(std::cmp::Reverse<Severity>, &str), Vec<&Finding>> = BTreeMap::new();
    for finding in found {
        by_rule.entry((std::cmp::Reverse(finding.severity), finding.rule)).or_default().push(finding);
    }
    for ((severity, rule), findings) in by_rule {
        for finding in findings.iter().take(MOST_SHOWN) {
            let fix = finding.fix.map_or_else(String::new, |fix| format!(" (--fix: {fix})"));
            writeln!(out, "{:7} {rule}: {}: {}{fix}", word(severity.0), finding.place, finding.message)?;
        }
        if findings.len() > MOST_SHOWN {
            writeln!(out, "        {rule}: {} more", findings.len() - MOST_SHOWN)?;
        }
    }
    Ok(())
}

fn entry(finding: &Finding) -> Value {
    json!({
        "rule": finding.rule, "severity": word(finding.severity), "place": finding.place,
        "message": finding.message, "fix": finding.fix,
    })
}
