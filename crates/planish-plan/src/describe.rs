//! A plan as text for people: every value with its storage, every step with its tactics.

use std::fmt::{self, Write};

use planish_kernel::Layout;

use crate::record::{Outcome, Plan, Program, Step, StepKind, Storage, Value, Variant};

impl Plan {
    /// The whole plan as text, weights without their elements. Equal plans have equal texts, so two of them can
    /// be compared line by line.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, to: &mut String) -> fmt::Result {
        writeln!(
            to,
            "plan {:?} by {}, for {} threads",
            self.header.name, self.header.producer, self.header.threads
        )?;
        let hash: String = self.header.source.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(to, "source {hash}")?;
        for option in self.header.options.lines() {
            writeln!(to, "option {option}")?;
        }
        for (idx, (target, role)) in self.header.targets.iter().zip(&self.roles).enumerate() {
            let (needs, role) = (target.needs.join(" "), role.name());
            writeln!(to, "target {idx} {role} {} [{needs}] {:?}", target.backend, target.device)?;
        }
        for (idx, profile) in self.header.profiles.iter().enumerate() {
            let range = |range: &crate::SymbolRange| {
                format!(" {}={}..{}..{}", range.symbol, range.min, range.opt, range.max)
            };
            writeln!(to, "profile {idx}{}", profile.ranges.iter().map(range).collect::<String>())?;
        }
        if !self.header.tuned_at.is_empty() {
            writeln!(to, "tuned at {}", pairs(&self.header.tuned_at, "="))?;
        }
        for (key, value) in &self.header.metadata {
            writeln!(to, "metadata {key:?} {value:?}")?;
        }
        if let Some(stripped) = &self.stripped {
            writeln!(to, "stripped of {} bytes of weights", stripped.n_bytes())?;
        }
        for (idx, weight) in self.weights.iter().enumerate() {
            let format = weight.format.as_deref().map(|format| format!(" as {format}")).unwrap_or_default();
            let (dtype, dims, len) = (weight.dtype, &weight.dims, self.stored_len(idx));
            let layout = match weight.layout {
                Layout::Plain => String::new(),
                other => format!(" {}", other.name()),
            };
            let narrowed = weight.narrowed.map(|dtype| format!(" of {dtype}")).unwrap_or_default();
            writeln!(
                to,
                "weight {idx} {:?} {dtype}{dims:?}{layout}{format}, {len} bytes{narrowed}",
                weight.name
            )?;
        }
        for (number, weight) in self.constants.iter().enumerate() {
            writeln!(to, "constant #{number} is weight {weight}")?;
        }
        for code in &self.code {
            writeln!(to, "code {:?}, {} bytes", code.key, code.bytes.len())?;
        }
        write_program(to, &self.program, "")?;
        for evidence in &self.evidence {
            writeln!(to, "evidence for step {}: {}", evidence.step, evidence.why)?;
            for timing in &evidence.timings {
                let how = if timing.measured { "measured" } else { "predicted" };
                writeln!(to, "  {} {} ns {how}", timing.tactic, timing.ns)?;
            }
        }
        for check in &self.certificate.checks {
            let outcome = match &check.outcome {
                Outcome::Passed => "passed".to_string(),
                Outcome::Skipped(why) => format!("skipped: {why}"),
                Outcome::Failed(why) => format!("FAILED: {why}"),
            };
            let (points, worst) = (check.n_points, check.worst);
            writeln!(
                to,
                "check {}: {outcome}, {points} points, worst {worst:.3} of its bound",
                check.subject
            )?;
        }
        Ok(())
    }
}

impl StepKind {
    /// How the step is run, in a few words: the tactic of a kernel, its variants where there are several.
    pub fn describe(&self) -> String {
        match self {
            StepKind::Kernel { variants, slow, .. } => {
                let variant = |variant: &Variant| {
                    let mut text = variant.tactic.to_string();
                    for (word, bounds) in [("from", &variant.from), ("up to", &variant.up_to)] {
                        if !bounds.is_empty() {
                            text += &format!(" {word} {}", pairs(bounds, "="));
                        }
                    }
                    text
                };
                let list: Vec<String> = variants.iter().map(variant).collect();
                format!("{}{}", list.join(", else "), if *slow { " (slow)" } else { "" })
            }
            StepKind::Transfer => "transfer".to_string(),
            StepKind::Evaluate => "prepared as it runs".to_string(),
            StepKind::Control(control) => format!("{} bodies", control.bodies.len()),
        }
    }
}

fn write_program(to: &mut String, program: &Program, indent: &str) -> fmt::Result {
    let list = |values: &[u32]| values.iter().map(|idx| format!(" %{idx}")).collect::<String>();
    writeln!(to, "{indent}inputs{}", list(&program.inputs))?;
    writeln!(to, "{indent}outputs{}", list(&program.outputs))?;
    for (idx, value) in program.values.iter().enumerate() {
        let Value { name, ty, layout, storage, target } = value;
        let place = match storage {
            Storage::Input => "input".to_string(),
            Storage::Weight(weight) => format!("weight {weight}"),
            Storage::Arena => "arena".to_string(),
            Storage::Alias { of } => format!("in %{of}"),
            Storage::Inside { of, axis, offset } => format!("in %{of} from {offset} of axis {axis}"),
            Storage::Own => "own".to_string(),
        };
        writeln!(to, "{indent}%{idx} {name:?} {ty} {} on {target}, {place}", layout.name())?;
    }
    for (idx, step) in program.steps.iter().enumerate() {
        write_step(to, idx, step, indent)?;
    }
    Ok(())
}

fn write_step(to: &mut String, idx: usize, step: &Step, indent: &str) -> fmt::Result {
    let list = |values: &[Option<u32>]| {
        let one = |value: &Option<u32>| value.map_or(" -".to_string(), |idx| format!(" %{idx}"));
        values.iter().map(one).collect::<String>()
    };
    let Step { name, region, kind, inputs, outputs, numeric, target } = step;
    let kinds = [numeric.element.name(), numeric.accumulator.name(), numeric.scale.name()].join("/");
    writeln!(to, "{indent}step {idx} {name:?} {} on {target}", region.ops())?;
    writeln!(to, "{indent}  {} in {kinds}:{} ->{}", kind.describe(), list(inputs), list(outputs))?;
    match kind {
        StepKind::Kernel { packed, .. } => {
            for (place, format) in packed.iter().enumerate() {
                if let Some(format) = format {
                    writeln!(to, "{indent}  input {place} packed as {format}")?;
                }
            }
        }
        StepKind::Control(control) => {
            for (body_idx, body) in control.bodies.iter().enumerate() {
                writeln!(to, "{indent}  body {body_idx}, {} captured", control.n_captured)?;
                write_program(to, body, &format!("{indent}    "))?;
            }
        }
        StepKind::Transfer | StepKind::Evaluate => {}
    }
    Ok(())
}

fn pairs(list: &[(String, i64)], sign: &str) -> String {
    list.iter().map(|(symbol, size)| format!("{symbol}{sign}{size}")).collect::<Vec<_>>().join(" ")
}
