//! A build that stops at a stage, and the stages as text for people.

use std::fmt;

use planish_kernel::{Candidate, Want};
use planish_plan::{Evidence, StepKind};

use crate::choose::Chosen;
use crate::lower::candidates::Alternative;
use crate::lower::{Draft, DraftKind, DraftStep, Lowered, Offer, Source};
use crate::price::Priced;
use crate::schedule::Scheduled;

/// Stages that a build can stop at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Lowered,
    Priced,
    Chosen,
}

impl Stage {
    pub const ALL: [Stage; 3] = [Stage::Lowered, Stage::Priced, Stage::Chosen];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Lowered => "lowered",
            Stage::Priced => "priced",
            Stage::Chosen => "chosen",
        }
    }

    pub fn named(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

/// What a build had when it stopped; its text is what `planish build --stop-after` writes.
#[derive(Debug)]
pub enum Stopped {
    Lowered(Lowered),
    Priced(Priced),
    Chosen(Chosen),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::Lowered(lowered) => lowered.fmt(f),
            Stopped::Priced(priced) => priced.fmt(f),
            Stopped::Chosen(chosen) => chosen.fmt(f),
        }
    }
}

impl fmt::Display for Lowered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lowered: {} values, {} steps on offer", self.draft.values.len(), self.offers.len())?;
        for cluster in &self.clusters {
            for (place, &at) in cluster.offers.iter().enumerate() {
                let Offer { step, choices, bodies } = &self.offers[at];
                let rank = if place < cluster.n_taken { "" } else { "or " };
                writeln!(f, "{rank}{}", Titled { draft: &self.draft, step })?;
                choices
                    .list
                    .iter()
                    .try_for_each(|one| writeln!(f, "    {}", Way(&one.candidate, one.view)))?;
                bodies.iter().try_for_each(|body| write!(f, "{}", Indented(&body.to_string())))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Priced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lowered { draft, offers, clusters } = &self.lowered;
        let n_open: usize = self.open.iter().map(Vec::len).sum();
        writeln!(f, "priced: {n_open} of {} steps on offer", offers.len())?;
        for (cluster, open) in clusters.iter().zip(&self.open) {
            for (place, &at) in cluster.offers.iter().enumerate() {
                let rank = if place < cluster.n_taken { "" } else { "or " };
                let note = if open.contains(&at) { "" } else { ", clearly behind by the cost model" };
                writeln!(f, "{rank}{}{note}", Titled { draft, step: &offers[at].step })?;
                for one in &offers[at].choices.list {
                    writeln!(f, "    {} {}", Price(one), Way(&one.candidate, one.view))?;
                }
                for body in self.bodies.get(&at).into_iter().flatten() {
                    write!(f, "{}", Indented(&body.to_string()))?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "chosen: {} steps", self.draft.steps.len())?;
        for (idx, step) in self.draft.steps.iter().enumerate() {
            writeln!(f, "{}", Titled { draft: &self.draft, step })?;
            if let Some(one) = self.choices[idx].list.get(self.picks[idx]) {
                let n_others = self.choices[idx].list.len() - 1;
                let others = match n_others {
                    0 => ", the only candidate".to_string(),
                    n => format!(", chosen over {n} others"),
                };
                writeln!(f, "    {} {}{others}", Price(one), Way(&one.candidate, one.view))?;
            }
            for variant in &self.variants[idx] {
                let bounds = |sign: &str, list: &[(String, i64)]| -> String {
                    list.iter().map(|(symbol, size)| format!("{symbol}{sign}{size} ")).collect()
                };
                let (from, up_to) = (bounds(">=", &variant.from), bounds("<=", &variant.up_to));
                writeln!(f, "    at {from}{up_to}{}", variant.tactic)?;
            }
            if let Some(reason) = &self.reasons[idx] {
                writeln!(f, "    {reason}")?;
            }
            self.bodies[idx].iter().try_for_each(|body| write!(f, "{}", Indented(&body.to_string())))?;
        }
        Ok(())
    }
}

impl fmt::Display for Scheduled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = &self.program;
        writeln!(f, "scheduled: {} values, {} steps", program.values.len(), program.steps.len())?;
        for (idx, step) in program.steps.iter().enumerate() {
            let how = match &step.kind {
                StepKind::Kernel { variants, .. } => {
                    variants.iter().map(|variant| variant.tactic.to_string()).collect::<Vec<_>>().join(", ")
                }
                StepKind::Transfer => "transfer".to_string(),
                StepKind::Evaluate => "evaluated".to_string(),
                StepKind::Control(control) => format!("control flow, {} bodies", control.bodies.len()),
            };
            let is_own = |evidence: &&Evidence| evidence.step as usize == idx;
            let why = self.evidence.iter().find(is_own).map_or(String::new(), |one| format!(": {}", one.why));
            writeln!(f, "{} on {} by {how}{why}", step.name, step.target)?;
        }
        Ok(())
    }
}

/// A step's name, operators, place and operands.
struct Titled<'a> {
    draft: &'a Draft,
    step: &'a DraftStep,
}

impl fmt::Display for Titled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Titled { draft, step } = self;
        let operand = |value: usize| {
            let value = &draft.values[value];
            let kind = if matches!(value.source, Source::Weight(_)) { "weight " } else { "" };
            format!("{kind}{}", value.ty)
        };
        let inputs: Vec<String> = step.inputs.iter().flatten().map(|&value| operand(value)).collect();
        let outputs: Vec<String> = step.outputs.iter().map(|&value| operand(value)).collect();
        let how = match step.kind {
            DraftKind::Kernel => format!("backend {}", step.target),
            DraftKind::Evaluate => "evaluated, since only a run can tell its sizes".to_string(),
            DraftKind::Control { .. } => "control flow".to_string(),
        };
        let (title, ops) = (step.region.title(), step.region.ops());
        write!(f, "`{title}` ({ops}): {} -> {}, {how}", inputs.join(", "), outputs.join(", "))
    }
}

/// A candidate with its layouts and price by the cost model.
struct Way<'a>(&'a Candidate, bool);

impl fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Way(candidate, is_view) = self;
        let names =
            |wants: &[Want]| wants.iter().map(|want| want.layout.name()).collect::<Vec<_>>().join(",");
        let (inputs, outputs) = (names(&candidate.inputs), names(&candidate.outputs));
        write!(f, "{} {inputs} > {outputs}", candidate.tactic)?;
        if *is_view { Ok(()) } else { write!(f, ", predicted {:.1} us", candidate.predicted_ns / 1e3) }
    }
}

/// A price, measured or not.
struct Price<'a>(&'a Alternative);

impl fmt::Display for Price<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.0.measured { "" } else { "~" };
        write!(f, "{mark}{:.1} us", self.0.ns / 1e3)
    }
}

/// The text of a body, inside of its step's.
struct Indented<'a>(&'a str);

impl fmt::Display for Indented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| writeln!(f, "    | {line}"))
    }
}
