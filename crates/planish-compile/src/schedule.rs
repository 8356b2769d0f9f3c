//! A chosen draft to a program: reorders and transfers put in, views and in-place outputs made aliases, weights packed.

pub(crate) mod parts;
pub(crate) mod weights;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use planish_kernel::{Budget, Candidate, Layout, Numeric, Region, Tactic, Want};
use planish_plan::{Control, Evidence, Program, Step, StepKind, Storage, Timing, Value, Variant};

use crate::backends::{Backends, HOST};
use crate::choose::Chosen;
use crate::error::BuildError;
use crate::lower::candidates::{Alternative, readable};
use crate::lower::{DraftKind, DraftStep, Source};
use crate::options::BuildOptions;
use crate::precision::numeric;
use crate::schedule::weights::Weights;
use crate::sizes::Sizes;

/// The name under which a transfer's price stands in the evidence.
const TRANSFER: &str = "transfer";

/// The program of a plan, with what was known when its tactics were chosen.
#[derive(Clone, Debug)]
pub struct Scheduled {
    pub(crate) program: Program,
    pub(crate) evidence: Vec<Evidence>,
}

/// Makes the program and fills the list of weights.
pub(crate) fn schedule(
    chosen: &Chosen,
    backends: Backends<'_>,
    sizes: &Sizes,
    options: &BuildOptions,
    weights: &mut Weights,
) -> Result<Scheduled, BuildError> {
    let mut schedule = Schedule {
        chosen,
        backends,
        sizes,
        options,
        weights,
        program: Program::default(),
        plan_value: HashMap::new(),
        weight_value: BTreeMap::new(),
        evidence: Vec::new(),
        packings: Vec::new(),
        in_place: Vec::new(),
        wants: Vec::new(),
    };
    schedule.run()?;
    let removed = parts::share_memory(&mut schedule.program, &schedule.wants);
    schedule.remove(&removed);
    schedule.alias_in_place();
    schedule.pack_weights()?;
    Ok(Scheduled { program: schedule.program, evidence: schedule.evidence })
}

struct Schedule<'a> {
    chosen: &'a Chosen,
    backends: Backends<'a>,
    sizes: &'a Sizes,
    options: &'a BuildOptions,
    weights: &'a mut Weights,
    program: Program,
    /// Values of the draft, in each layout and memory that they are in, to values of the program.
    plan_value: HashMap<(usize, Layout, u32), u32>,
    /// Weights by the memory they are in.
    weight_value: BTreeMap<(u32, u32), u32>,
    evidence: Vec<Evidence>,
    /// (step, place, weight, step of the draft) for each packed weight.
    packings: Vec<(usize, usize, u32, usize)>,
    /// (step, output place, input place) that may share memory.
    in_place: Vec<(usize, usize, usize)>,
    /// How each step takes its inputs and outputs; nothing for steps on the host.
    wants: Vec<Option<(Vec<Want>, Vec<Want>)>>,
}

impl Schedule<'_> {
    fn run(&mut self) -> Result<(), BuildError> {
        let draft = &self.chosen.draft;
        for &value in &draft.inputs {
            let at = self.value(value, Layout::Plain, Storage::Input, HOST);
            self.program.inputs.push(at);
        }
        self.bring_inputs()?;
        for (idx, step) in draft.steps.iter().enumerate() {
            match &step.kind {
                DraftKind::Kernel => self.kernel(idx, step)?,
                DraftKind::Evaluate => self.on_host(step, StepKind::Evaluate)?,
                DraftKind::Control { n_captured, .. } => {
                    let mut bodies = Vec::new();
                    for body in &self.chosen.bodies[idx] {
                        let body = schedule(body, self.backends, self.sizes, self.options, self.weights)?;
                        bodies.push(body.program);
                    }
                    let control = Control { bodies, n_captured: *n_captured as u32 };
                    self.on_host(step, StepKind::Control(control))?;
                }
            }
        }
        for &value in &draft.outputs {
            let at = self.read(value, Layout::Plain, HOST)?;
            // The name belongs to the output, whatever was reordered on the way.
            self.program.values[at as usize].name = draft.values[value].name.clone();
            self.program.outputs.push(at);
        }
        Ok(())
    }

    /// Brings inputs to the devices that read them before anything runs there, so that launches follow each other
    /// without a transfer between them.
    fn bring_inputs(&mut self) -> Result<(), BuildError> {
        let draft = &self.chosen.draft;
        for (idx, step) in draft.steps.iter().enumerate() {
            let Some(alternative) = self.chosen.choices[idx].list.get(self.chosen.picks[idx]) else {
                continue;
            };
            if step.target == HOST || alternative.view {
                continue;
            }
            for (place, value) in step.inputs.iter().enumerate() {
                if let Some(value) = value
                    && matches!(draft.values[*value].source, Source::Input)
                {
                    self.read(*value, alternative.candidate.inputs[place].layout, step.target)?;
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, value: usize, layout: Layout, storage: Storage, target: u32) -> u32 {
        let from = &self.chosen.draft.values[value];
        let at = self.program.values.len() as u32;
        self.program.values.push(Value {
            name: from.name.clone(),
            ty: from.ty.clone(),
            layout,
            storage,
            target,
        });
        self.plan_value.insert((value, layout, target), at);
        at
    }

    /// A value in a layout and a memory, reordered and transferred if it is not there yet.
    fn read(&mut self, value: usize, layout: Layout, target: u32) -> Result<u32, BuildError> {
        if let Some(&at) = self.plan_value.get(&(value, layout, target)) {
            return Ok(at);
        }
        let draft = &self.chosen.draft;
        if let Source::Weight(tensor) = &draft.values[value].source {
            let layout = if readable(draft, value, Layout::Plain, layout) { Layout::Plain } else { layout };
            let weight = self.weights.add(&draft.values[value].name, tensor, layout)?;
            let at = match self.weight_value.get(&(weight, target)) {
                Some(&at) => at,
                None => self.value(value, layout, Storage::Weight(weight), target),
            };
            self.weight_value.insert((weight, target), at);
            self.plan_value.insert((value, layout, target), at);
            return Ok(at);
        }
        let other = match layout {
            Layout::Plain => Layout::ChannelsLast,
            _ => Layout::Plain,
        };
        if let Some(&from) = self.plan_value.get(&(value, other, target)) {
            if readable(draft, value, other, layout) {
                return Ok(from);
            }
            if let Some(candidate) = self.reordering(value, other, layout, target)? {
                return Ok(self.reorder(value, from, candidate, target));
            }
        }
        if target != HOST {
            // A device that reorders does it faster than the host; else the host does it on the way.
            let is_here = |layout| self.plan_value.contains_key(&(value, layout, HOST));
            if !is_here(layout)
                && is_here(other)
                && !readable(draft, value, other, layout)
                && let Some(candidate) = self.reordering(value, other, layout, target)?
            {
                let from = self.read(value, other, HOST)?;
                let there = self.transfer(value, from, target);
                return Ok(self.reorder(value, there, candidate, target));
            }
            let from = self.read(value, layout, HOST)?;
            return Ok(self.transfer(value, from, target));
        }
        let elsewhere = self.backends.by_preference().find_map(|device| {
            let there = |layout| self.plan_value.get(&(value, layout, device)).map(|&from| (from, layout));
            there(layout).or_else(|| there(other)).filter(|_| device != HOST)
        });
        let name = &draft.values[value].name;
        let Some((from, layout_there)) = elsewhere else {
            let is_here = self.plan_value.contains_key(&(value, other, HOST));
            let way = format!("{} to {}", other.name(), layout.name());
            return Err(BuildError::internal(match is_here {
                true => format!("nothing reorders `{name}` from {way}"),
                false => format!("`{name}` is read before it is made"),
            }));
        };
        let device = self.program.values[from as usize].target;
        if readable(draft, value, layout_there, layout) {
            return Ok(self.transfer_as(value, from, layout, HOST));
        }
        if let Some(candidate) = self.reordering(value, layout_there, layout, device)? {
            let ordered = self.reorder(value, from, candidate, device);
            return Ok(self.transfer(value, ordered, HOST));
        }
        self.transfer(value, from, HOST);
        self.read(value, layout, HOST)
    }

    /// How a backend brings a value from one layout to another, if it does.
    fn reordering(
        &self,
        value: usize,
        from: Layout,
        to: Layout,
        target: u32,
    ) -> Result<Option<(Region, Candidate)>, BuildError> {
        let draft = &self.chosen.draft;
        let name = &draft.values[value].name;
        let mut region = Region::single(planish_op::Identity {}.into(), 1, 1);
        region.nodes[0].name = format!("{name} to {}", to.name());
        let step = DraftStep {
            nodes: Vec::new(),
            region: region.clone(),
            inputs: vec![Some(value)],
            outputs: vec![value],
            kind: DraftKind::Kernel,
            target,
        };
        let problem = draft.problem(&step, self.sizes, self.options.threads);
        let problem = problem.ok_or_else(|| BuildError::internal(format!("`{name}` has no sizes")))?;
        // Layouts must be brought into each other in any case; libraries that are left out are not asked.
        let takes = |source: &str| source == "own" || self.options.takes_source(source);
        let mut candidates =
            self.backends.get(target).candidates_from(&problem, &Budget::USUAL, &takes).into_iter();
        let fits = |one: &Candidate| one.inputs[0].layout == from && one.outputs[0].layout == to;
        Ok(candidates.find(fits).map(|candidate| (region, candidate)))
    }

    fn reorder(
        &mut self,
        value: usize,
        from: u32,
        (region, candidate): (Region, Candidate),
        target: u32,
    ) -> u32 {
        let to = self.value(value, candidate.outputs[0].layout, Storage::Arena, target);
        let wants = Some((candidate.inputs, candidate.outputs));
        let kind = kernel(candidate.tactic, vec![None], candidate.slow);
        self.push(region, vec![Some(from)], vec![Some(to)], kind, wants, target);
        to
    }

    /// Brings a value into another memory as it is.
    fn transfer(&mut self, value: usize, from: u32, target: u32) -> u32 {
        self.transfer_as(value, from, self.program.values[from as usize].layout, target)
    }

    /// Brings a value into another memory, where it has a layout that is the same memory. One of the two is the host's;
    /// the device queues it.
    fn transfer_as(&mut self, value: usize, from: u32, layout: Layout, target: u32) -> u32 {
        let source = self.program.values[from as usize].target;
        let to = self.value(value, layout, Storage::Arena, target);
        let mut region = Region::single(planish_op::Identity {}.into(), 1, 1);
        let name = &self.chosen.draft.values[value].name;
        region.nodes[0].name = format!("{name} to {}", self.backends.get(target).name());
        let ty = &self.program.values[from as usize].ty;
        let bytes = self.sizes.operand(ty, layout).map_or(0, |operand| operand.span_bytes());
        let price = self.backends.get(target.max(source)).prices().transfer(bytes);
        let timing = Timing { tactic: Tactic::new(TRANSFER, 1), ns: price as u64, measured: false };
        let step = self.program.steps.len() as u32;
        self.evidence.push(Evidence { step, timings: vec![timing], why: "priced, not measured".to_string() });
        self.push(region, vec![Some(from)], vec![Some(to)], StepKind::Transfer, None, target.max(source));
        to
    }

    fn push(
        &mut self,
        region: Region,
        inputs: Vec<Option<u32>>,
        outputs: Vec<Option<u32>>,
        kind: StepKind,
        wants: Option<(Vec<Want>, Vec<Want>)>,
        target: u32,
    ) {
        let mut name = region.title();
        // Of several `Relu` only what they make tells which one an error is about.
        if region.is_nameless()
            && let Some(&output) = outputs.iter().flatten().next()
        {
            name = format!("{name} making {}", self.program.values[output as usize].name);
        }
        let types = inputs
            .iter()
            .flatten()
            .filter_map(|&value| self.program.values[value as usize].ty.as_tensor().map(|ty| ty.dtype));
        let mut numeric = numeric(&self.chosen.draft.products, &region, types);
        let backend = self.backends.get(target);
        let rounds = |variant: &Variant| backend.rounds_factors_to(&variant.tactic).is_some();
        // Where factors might have been rounded, but are not.
        if let StepKind::Kernel { variants, .. } = &kind
            && backend.rounded_arithmetics().contains(&numeric.element)
            && !variants.iter().any(rounds)
        {
            numeric = Numeric::F32;
        }
        self.wants.push(wants);
        self.program.steps.push(Step { name, kind, region, inputs, outputs, numeric, target });
    }

    fn on_host(&mut self, step: &DraftStep, kind: StepKind) -> Result<(), BuildError> {
        let mut inputs = Vec::with_capacity(step.inputs.len());
        for value in &step.inputs {
            inputs.push(value.map(|value| self.read(value, Layout::Plain, HOST)).transpose()?);
        }
        let own = |value: &usize| Some(self.value(*value, Layout::Plain, Storage::Own, HOST));
        let outputs = step.outputs.iter().map(own).collect();
        self.push(step.region.clone(), inputs, outputs, kind, None, HOST);
        Ok(())
    }

    fn kernel(&mut self, idx: usize, step: &DraftStep) -> Result<(), BuildError> {
        let choices = &self.chosen.choices[idx];
        let alternative = &choices.list[self.chosen.picks[idx]];
        let candidate = &alternative.candidate;
        let target = if alternative.view { self.whereabouts(step) } else { step.target };
        let mut inputs = Vec::with_capacity(step.inputs.len());
        for (place, value) in step.inputs.iter().enumerate() {
            let wants = candidate.inputs[place].layout;
            inputs.push(value.map(|value| self.read(value, wants, target)).transpose()?);
        }
        if alternative.view {
            let of = inputs[0].ok_or_else(|| BuildError::internal("a view of nothing"))?;
            self.value(step.outputs[0], candidate.outputs[0].layout, Storage::Alias { of }, target);
            return Ok(());
        }
        let mut outputs = Vec::with_capacity(step.outputs.len());
        for (place, &value) in step.outputs.iter().enumerate() {
            outputs.push(Some(self.value(value, candidate.outputs[place].layout, Storage::Arena, target)));
        }
        let at = self.program.steps.len();
        for (place, format) in candidate.packed.iter().enumerate() {
            if let (Some(_), Some(value)) = (format, inputs[place])
                && let Storage::Weight(weight) = self.program.values[value as usize].storage
            {
                self.packings.push((at, place, weight, idx));
            }
        }
        self.in_place.extend(candidate.in_place.iter().map(|&(output, input)| (at, output, input)));
        self.evidence.push(evidence(at, &choices.list, alternative, self.chosen.reasons[idx].as_deref()));
        let mut kind = kernel(candidate.tactic.clone(), candidate.packed.clone(), candidate.slow);
        if let (StepKind::Kernel { variants, .. }, false) = (&mut kind, self.chosen.variants[idx].is_empty())
        {
            variants.clone_from(&self.chosen.variants[idx]);
        }
        let wants = Some((candidate.inputs.clone(), candidate.outputs.clone()));
        self.push(step.region.clone(), inputs, outputs, kind, wants, target);
        Ok(())
    }

    /// The memory in which the first input of a step was made: what only sees it differently stays there.
    fn whereabouts(&self, step: &DraftStep) -> u32 {
        let is_there = |target: &u32| {
            let in_layout = |layout| {
                let value = step.inputs.first().copied().flatten()?;
                self.plan_value.get(&(value, layout, *target)).map(|_| ())
            };
            in_layout(Layout::Plain).or_else(|| in_layout(Layout::ChannelsLast)).is_some()
        };
        self.backends.by_preference().find(is_there).unwrap_or(HOST)
    }

    /// Takes steps out that have nothing left to do.
    fn remove(&mut self, removed: &BTreeSet<usize>) {
        let mut kept = 0;
        let mut place: Vec<Option<usize>> = Vec::with_capacity(self.program.steps.len());
        for idx in 0..self.program.steps.len() {
            place.push((!removed.contains(&idx)).then_some(kept));
            kept += usize::from(!removed.contains(&idx));
        }
        let mut idx = 0;
        self.program.steps.retain(|_| {
            idx += 1;
            place[idx - 1].is_some()
        });
        self.evidence.retain_mut(|evidence| {
            let at = place[evidence.step as usize];
            evidence.step = at.unwrap_or(0) as u32;
            at.is_some()
        });
        self.packings.retain_mut(|packing| {
            let at = place[packing.0];
            packing.0 = at.unwrap_or(0);
            at.is_some()
        });
        self.in_place.retain_mut(|sharing| {
            let at = place[sharing.0];
            sharing.0 = at.unwrap_or(0);
            at.is_some()
        });
    }

    /// Lets a step write over an input that nobody reads afterwards.
    fn alias_in_place(&mut self) {
        for (step, output, input) in std::mem::take(&mut self.in_place) {
            let program = &self.program;
            let (Some(Some(from)), Some(Some(to))) =
                (program.steps[step].inputs.get(input), program.steps[step].outputs.get(output))
            else {
                continue;
            };
            let (from, to) = (*from, *to);
            let (source, sink) = (&program.values[from as usize], &program.values[to as usize]);
            let fits = source.ty == sink.ty
                && source.layout == sink.layout
                && sink.storage == Storage::Arena
                && !program.outputs.contains(&to)
                && self.dies_at(from, step)
                // A view takes its value to lie without gaps, which a part of another does at some sizes only.
                && !(self.has_gaps(from) && self.is_viewed(to));
            if fits {
                self.program.values[to as usize].storage = Storage::Alias { of: from };
            }
        }
    }

    /// Whether a value lies inside of another one, with elements of that between its own.
    fn has_gaps(&self, value: u32) -> bool {
        let mut at = value;
        loop {
            match &self.program.values[at as usize].storage {
                Storage::Inside { .. } => return true,
                Storage::Alias { of } => at = *of,
                _ => return false,
            }
        }
    }

    /// Whether another value is the memory of this one, or a part of it.
    fn is_viewed(&self, value: u32) -> bool {
        self.program.values.iter().any(|other| match &other.storage {
            Storage::Alias { of } | Storage::Inside { of, .. } => *of == value,
            _ => false,
        })
    }

    /// Whether the memory of `value` is in the arena, and `step` is the last to touch it.
    fn dies_at(&self, value: u32, step: usize) -> bool {
        let root = self.root(value);
        let touches = |other: &Step| {
            other.inputs.iter().chain(&other.outputs).flatten().any(|&value| self.root(value) == root)
        };
        // A second operand of the same step that shares the memory would be written over while it is read.
        let here = &self.program.steps[step];
        let n_here = here.inputs.iter().flatten().filter(|&&value| self.root(value) == root).count();
        self.program.values[root as usize].storage == Storage::Arena
            && n_here == 1
            && !self.program.outputs.iter().any(|&output| self.root(output) == root)
            && !self.program.steps[step + 1..].iter().any(touches)
    }

    fn root(&self, value: u32) -> u32 {
        let mut at = value;
        while let Storage::Alias { of } | Storage::Inside { of, .. } =
            &self.program.values[at as usize].storage
        {
            at = *of;
        }
        at
    }

    /// Stores weights packed that every step reads in one format.
    fn pack_weights(&mut self) -> Result<(), BuildError> {
        for &(step, place, weight, draft_step) in &self.packings {
            let format = |step: &Step, place: usize| match &step.kind {
                StepKind::Kernel { packed, .. } => packed.get(place).cloned().flatten(),
                StepKind::Transfer | StepKind::Evaluate | StepKind::Control(_) => None,
            };
            let wanted = format(&self.program.steps[step], place);
            let target = self.program.steps[step].target;
            let alone = self.program.steps.iter().all(|other| {
                other.inputs.iter().enumerate().all(|(at, value)| match value {
                    Some(value) if self.is_weight(*value, weight) => {
                        format(other, at) == wanted && other.target == target
                    }
                    _ => true,
                })
            });
            let choices = &self.chosen.choices[draft_step];
            let own = choices.list.get(self.chosen.picks[draft_step]);
            let (Some(own), Some(problem)) = (own, &choices.problem) else { continue };
            if alone {
                // All variants read this packing.
                let tactic = own.candidate.tactic.clone();
                self.weights.pack(self.backends.get(target), problem, &tactic, (target, place), weight)?;
            }
        }
        Ok(())
    }

    fn is_weight(&self, value: u32, weight: u32) -> bool {
        self.program.values[self.root(value) as usize].storage == Storage::Weight(weight)
    }
}

fn kernel(tactic: Tactic, packed: Vec<Option<String>>, slow: bool) -> StepKind {
    StepKind::Kernel { variants: vec![Variant { from: Vec::new(), up_to: Vec::new(), tactic }], packed, slow }
}

fn evidence(step: usize, list: &[Alternative], winner: &Alternative, cover: Option<&str>) -> Evidence {
    let timing = |alternative: &Alternative| Timing {
        tactic: alternative.candidate.tactic.clone(),
        ns: alternative.ns.min(1e18) as u64,
        measured: alternative.measured,
    };
    let mut timings: Vec<Timing> = list.iter().filter(|alternative| !alternative.view).map(timing).collect();
    timings.sort_by(|a, b| (a.ns, &a.tactic).cmp(&(b.ns, &b.tactic)));
    let fastest = timings.first().map_or(0, |timing| timing.ns);
    let mut why = match (timings.len(), winner.measured) {
        (1, _) => "the only tactic".to_string(),
        (_, false) => "the cost model's choice".to_string(),
        (_, true) if timing(winner).ns == fastest => "the fastest measured".to_string(),
        _ => "faster together with the layouts around it".to_string(),
    };
    if let Some(cover) = cover {
        why = format!("{why}; {cover}");
    }
    Evidence { step: step as u32, timings, why }
}
