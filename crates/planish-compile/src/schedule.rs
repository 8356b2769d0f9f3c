//! A chosen draft to a program: reorders put in, views and in-place outputs made aliases, weights packed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use planish_kernel::{Backend, Layout, Numeric, Region, Tactic, Want};
use planish_plan::{Control, Evidence, Home, Program, Step, StepKind, Timing, Value, Variant};

use crate::alternatives::{Alternative, Choices, readable};
use crate::error::BuildError;
use crate::lower::{Draft, DraftKind, DraftStep, Source};
use crate::options::BuildOptions;
use crate::parts;
use crate::select::Chosen;
use crate::sizes::Sizes;
use crate::weights::Weights;

/// A draft with a choice for every step, bodies included.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) draft: Draft,
    pub(crate) choices: Vec<Choices>,
    pub(crate) chosen: Chosen,
    /// For each step of control flow its bodies.
    pub(crate) bodies: Vec<Vec<Decided>>,
}

/// Makes the program and fills the list of weights.
pub(crate) fn schedule(
    decided: &Decided,
    backend: &dyn Backend,
    sizes: &Sizes,
    options: &BuildOptions,
    weights: &mut Weights,
) -> Result<(Program, Vec<Evidence>), BuildError> {
    let mut schedule = Schedule {
        decided,
        backend,
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
    Ok((schedule.program, schedule.evidence))
}

struct Schedule<'a> {
    decided: &'a Decided,
    backend: &'a dyn Backend,
    sizes: &'a Sizes,
    options: &'a BuildOptions,
    weights: &'a mut Weights,
    program: Program,
    /// Values of the draft, and their reordered forms, to values of the program.
    plan_value: HashMap<(usize, Layout), u32>,
    weight_value: BTreeMap<u32, u32>,
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
        let draft = &self.decided.draft;
        for &value in &draft.inputs {
            let at = self.value(value, Layout::Plain, Home::Input);
            self.program.inputs.push(at);
        }
        for (idx, step) in draft.steps.iter().enumerate() {
            match &step.kind {
                DraftKind::Kernel => self.kernel(idx, step)?,
                DraftKind::Evaluate => self.on_host(step, StepKind::Evaluate)?,
                DraftKind::Control { n_captured, .. } => {
                    let mut bodies = Vec::new();
                    for body in &self.decided.bodies[idx] {
                        let (program, _) =
                            schedule(body, self.backend, self.sizes, self.options, self.weights)?;
                        bodies.push(program);
                    }
                    let control = Control { bodies, n_captured: *n_captured as u32 };
                    self.on_host(step, StepKind::Control(control))?;
                }
            }
        }
        for &value in &draft.outputs {
            let at = self.read(value, Layout::Plain)?;
            // The name belongs to the output, whatever was reordered on the way.
            self.program.values[at as usize].name = draft.values[value].name.clone();
            self.program.outputs.push(at);
        }
        Ok(())
    }

    fn value(&mut self, value: usize, layout: Layout, home: Home) -> u32 {
        let from = &self.decided.draft.values[value];
        let at = self.program.values.len() as u32;
        self.program.values.push(Value {
            name: from.name.clone(),
            ty: from.ty.clone(),
            layout,
            home,
            target: 0,
        });
        self.plan_value.insert((value, layout), at);
        at
    }

    /// A value in a layout, reordered if it is not there yet.
    fn read(&mut self, value: usize, layout: Layout) -> Result<u32, BuildError> {
        if let Some(&at) = self.plan_value.get(&(value, layout)) {
            return Ok(at);
        }
        let draft = &self.decided.draft;
        if let Source::Weight(tensor) = &draft.values[value].source {
            let layout = if readable(draft, value, Layout::Plain, layout) { Layout::Plain } else { layout };
            let weight = self.weights.add(&draft.values[value].name, tensor, layout)?;
            let at = match self.weight_value.get(&weight) {
                Some(&at) => at,
                None => self.value(value, layout, Home::Weight(weight)),
            };
            self.weight_value.insert(weight, at);
            self.plan_value.insert((value, layout), at);
            return Ok(at);
        }
        let other = match layout {
            Layout::Plain => Layout::ChannelsLast,
            _ => Layout::Plain,
        };
        let name = &draft.values[value].name;
        let from = self.plan_value.get(&(value, other)).copied();
        let from = from.ok_or_else(|| BuildError::internal(format!("`{name}` is read before it is made")))?;
        if readable(draft, value, other, layout) {
            return Ok(from);
        }
        let mut region = Region::single(planish_op::Identity {}.into(), 1, 1);
        region.nodes[0].name = format!("{name} to {}", layout.name());
        let step = DraftStep {
            nodes: Vec::new(),
            region: region.clone(),
            inputs: vec![Some(value)],
            outputs: vec![value],
            kind: DraftKind::Kernel,
        };
        let problem = draft.problem(&step, self.sizes, self.options.threads);
        let problem = problem.ok_or_else(|| BuildError::internal(format!("`{name}` has no sizes")))?;
        let candidate =
            self.backend.candidates(&problem).into_iter().find(|candidate| {
                candidate.inputs[0].layout == other && candidate.outputs[0].layout == layout
            });
        let candidate = candidate.ok_or_else(|| {
            let way = format!("{} to {}", other.name(), layout.name());
            BuildError::internal(format!("nothing reorders `{name}` from {way}"))
        })?;
        let to = self.value(value, layout, Home::Arena);
        let wants = Some((candidate.inputs, candidate.outputs));
        let kind = kernel(candidate.tactic, vec![None], candidate.slow);
        self.push(region, vec![Some(from)], vec![Some(to)], kind, wants);
        Ok(to)
    }

    fn push(
        &mut self,
        region: Region,
        inputs: Vec<Option<u32>>,
        outputs: Vec<Option<u32>>,
        kind: StepKind,
        wants: Option<(Vec<Want>, Vec<Want>)>,
    ) {
        let name = region.title();
        self.wants.push(wants);
        self.program.steps.push(Step {
            name,
            kind,
            region,
            inputs,
            outputs,
            numeric: Numeric::F32,
            target: 0,
            stream: 0,
        });
    }

    fn on_host(&mut self, step: &DraftStep, kind: StepKind) -> Result<(), BuildError> {
        let mut inputs = Vec::with_capacity(step.inputs.len());
        for value in &step.inputs {
            inputs.push(value.map(|value| self.read(value, Layout::Plain)).transpose()?);
        }
        let outputs =
            step.outputs.iter().map(|&value| Some(self.value(value, Layout::Plain, Home::Own))).collect();
        self.push(step.region.clone(), inputs, outputs, kind, None);
        Ok(())
    }

    fn kernel(&mut self, idx: usize, step: &DraftStep) -> Result<(), BuildError> {
        let choices = &self.decided.choices[idx];
        let alternative = &choices.list[self.decided.chosen[idx]];
        let candidate = &alternative.candidate;
        let mut inputs = Vec::with_capacity(step.inputs.len());
        for (place, value) in step.inputs.iter().enumerate() {
            let wants = candidate.inputs[place].layout;
            inputs.push(value.map(|value| self.read(value, wants)).transpose()?);
        }
        if alternative.view {
            let of = inputs[0].ok_or_else(|| BuildError::internal("a view of nothing"))?;
            self.value(step.outputs[0], candidate.outputs[0].layout, Home::Alias { of });
            return Ok(());
        }
        let mut outputs = Vec::with_capacity(step.outputs.len());
        for (place, &value) in step.outputs.iter().enumerate() {
            outputs.push(Some(self.value(value, candidate.outputs[place].layout, Home::Arena)));
        }
        let at = self.program.steps.len();
        for (place, format) in candidate.packed.iter().enumerate() {
            if let (Some(_), Some(value)) = (format, inputs[place])
                && let Home::Weight(weight) = self.program.values[value as usize].home
            {
                self.packings.push((at, place, weight, idx));
            }
        }
        self.in_place.extend(candidate.in_place.iter().map(|&(output, input)| (at, output, input)));
        self.evidence.push(evidence(at, &choices.list, alternative));
        let kind = kernel(candidate.tactic.clone(), candidate.packed.clone(), candidate.slow);
        let wants = Some((candidate.inputs.clone(), candidate.outputs.clone()));
        self.push(step.region.clone(), inputs, outputs, kind, wants);
        Ok(())
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
                && sink.home == Home::Arena
                && !program.outputs.contains(&to)
                && self.dies_at(from, step);
            if fits {
                self.program.values[to as usize].home = Home::Alias { of: from };
            }
        }
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
        self.program.values[root as usize].home == Home::Arena
            && n_here == 1
            && !self.program.outputs.iter().any(|&output| self.root(output) == root)
            && !self.program.steps[step + 1..].iter().any(touches)
    }

    fn root(&self, value: u32) -> u32 {
        let mut at = value;
        while let Home::Alias { of } | Home::Inside { of, .. } = &self.program.values[at as usize].home {
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
            let alone = self.program.steps.iter().all(|other| {
                other.inputs.iter().enumerate().all(|(at, value)| match value {
                    Some(value) if self.is_weight(*value, weight) => format(other, at) == wanted,
                    _ => true,
                })
            });
            let (StepKind::Kernel { variants, .. }, Some(problem)) =
                (&self.program.steps[step].kind, &self.decided.choices[draft_step].problem)
            else {
                continue;
            };
            if alone {
                let tactic = variants[0].tactic.clone();
                self.weights.pack(self.backend, problem, &tactic, (step, place), weight)?;
            }
        }
        Ok(())
    }

    fn is_weight(&self, value: u32, weight: u32) -> bool {
        self.program.values[self.root(value) as usize].home == Home::Weight(weight)
    }
}

fn kernel(tactic: Tactic, packed: Vec<Option<String>>, slow: bool) -> StepKind {
    StepKind::Kernel { variants: vec![Variant { up_to: Vec::new(), tactic }], packed, slow }
}

fn evidence(step: usize, list: &[Alternative], winner: &Alternative) -> Evidence {
    let timing = |alternative: &Alternative| Timing {
        tactic: alternative.candidate.tactic.clone(),
        ns: alternative.ns.min(1e18) as u64,
        measured: alternative.measured,
    };
    let mut timings: Vec<Timing> = list.iter().filter(|alternative| !alternative.view).map(timing).collect();
    timings.sort_by(|a, b| (a.ns, &a.tactic).cmp(&(b.ns, &b.tactic)));
    let fastest = timings.first().map_or(0, |timing| timing.ns);
    let why = match (timings.len(), winner.measured) {
        (1, _) => "the only tactic".to_string(),
        (_, false) => "the cost model's choice".to_string(),
        (_, true) if timing(winner).ns == fastest => "the fastest measured".to_string(),
        _ => "faster together with the layouts around it".to_string(),
    };
    Evidence { step: step as u32, timings, why }
}
