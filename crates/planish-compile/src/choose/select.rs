//! The cheapest choice: one alternative a step, with the layout changes between them priced.
//!
//! First forwards, each step given its producers' layouts; then sweeps in which each step may change its mind
//! given both its producers and its readers, until nothing gets cheaper.

use planish_kernel::{Layout, Prices};

use crate::backends::Backends;
use crate::lower::candidates::{Alternative, Choices, readable};
use crate::lower::{Draft, DraftKind, DraftStep, DraftValue, Source};
use crate::price::policy::MAX_SWEEPS;
use crate::sizes::Sizes;

/// The chosen alternative of each step, by index; meaningless where a step has none.
pub(crate) type Picks = Vec<usize>;

/// The layout that a value has under a choice.
pub(crate) fn layout_of(
    draft: &Draft,
    choices: &[Choices],
    chosen: &[usize],
    made_by: &[Option<(usize, usize)>],
    value: usize,
) -> Layout {
    match (&draft.values[value].source, made_by[value]) {
        (Source::Step, Some((step, output))) => match choices[step].list.get(chosen[step]) {
            Some(alternative) => alternative.candidate.outputs[output].layout,
            None => Layout::Plain,
        },
        _ => Layout::Plain,
    }
}

/// For each value the step that makes it, and which output it is.
pub(crate) fn makers(draft: &Draft) -> Vec<Option<(usize, usize)>> {
    let mut made_by = vec![None; draft.values.len()];
    for (idx, step) in draft.steps.iter().enumerate() {
        for (output, &value) in step.outputs.iter().enumerate() {
            made_by[value] = Some((idx, output));
        }
    }
    made_by
}

/// What steps and the layout changes between them cost.
struct Rates<'a> {
    draft: &'a Draft,
    sizes: &'a Sizes,
    /// Of each backend.
    prices: Vec<Prices>,
}

impl<'a> Rates<'a> {
    fn new(draft: &'a Draft, backends: Backends<'_>, sizes: &'a Sizes) -> Rates<'a> {
        Rates { draft, sizes, prices: backends.all().iter().map(|backend| backend.prices()).collect() }
    }

    /// One more step, done this way.
    fn own(&self, alternative: &Alternative, target: u32) -> f64 {
        alternative.ns + if alternative.view { 0.0 } else { self.prices[target as usize].step_ns }
    }

    /// Reading a value in another layout than it has. Weights are reordered when the plan is built.
    fn reorder(&self, value: usize, has: Layout, wants: Layout, target: u32) -> f64 {
        let DraftValue { ty, source, .. } = &self.draft.values[value];
        if readable(self.draft, value, has, wants) || matches!(source, Source::Weight(_)) {
            return 0.0;
        }
        let bytes = self.sizes.operand(ty, Layout::Plain).map_or(0, |o| o.span_bytes());
        self.prices[target as usize].reorder(bytes)
    }
}

/// What each step costs under a choice, with the layout changes of what it reads.
pub(crate) fn step_prices(
    draft: &Draft,
    choices: &[Choices],
    chosen: &[usize],
    backends: Backends<'_>,
    sizes: &Sizes,
) -> Vec<f64> {
    let rates = Rates::new(draft, backends, sizes);
    let made_by = makers(draft);
    let price = |(idx, step): (usize, &DraftStep)| {
        let Some(alternative) = choices[idx].list.get(chosen[idx]) else { return 0.0 };
        let read = step.inputs.iter().zip(&alternative.candidate.inputs);
        let reorders = read.filter_map(|(value, want)| {
            let value = (*value)?;
            let has = layout_of(draft, choices, chosen, &made_by, value);
            Some(rates.reorder(value, has, want.layout, step.target))
        });
        rates.own(alternative, step.target) + reorders.sum::<f64>()
    };
    draft.steps.iter().enumerate().map(price).collect()
}

/// Chooses an alternative for every step.
pub(crate) fn select(draft: &Draft, choices: &[Choices], backends: Backends<'_>, sizes: &Sizes) -> Picks {
    let rates = Rates::new(draft, backends, sizes);
    let made_by = makers(draft);
    let mut readers: Vec<Vec<(usize, usize)>> = vec![Vec::new(); draft.values.len()];
    for (idx, step) in draft.steps.iter().enumerate() {
        for (place, value) in step.inputs.iter().enumerate() {
            if let Some(value) = value {
                readers[*value].push((idx, place));
            }
        }
    }
    let mut chosen: Picks = vec![0; draft.steps.len()];
    for sweep in 0..MAX_SWEEPS {
        let mut changed = false;
        for idx in 0..draft.steps.len() {
            let list = &choices[idx].list;
            let step = &draft.steps[idx];
            if list.is_empty() {
                continue;
            }
            let mut best = (f64::INFINITY, 0);
            for (at, alternative) in list.iter().enumerate() {
                let mut ns = rates.own(alternative, step.target);
                for (place, value) in step.inputs.iter().enumerate() {
                    let Some(value) = value else { continue };
                    let has = layout_of(draft, choices, &chosen, &made_by, *value);
                    ns += rates.reorder(*value, has, alternative.candidate.inputs[place].layout, step.target);
                }
                // On the first sweep readers have not chosen yet.
                if sweep > 0 {
                    for (output, &value) in step.outputs.iter().enumerate() {
                        let has = alternative.candidate.outputs[output].layout;
                        let mut paid: Vec<Layout> = Vec::new();
                        for &(reader, place) in &readers[value] {
                            let wants = match choices[reader].list.get(chosen[reader]) {
                                Some(reading) => reading.candidate.inputs[place].layout,
                                None => Layout::Plain,
                            };
                            if !paid.contains(&wants) {
                                ns += rates.reorder(value, has, wants, step.target);
                                paid.push(wants);
                            }
                        }
                        if draft.outputs.contains(&value) && !paid.contains(&Layout::Plain) {
                            ns += rates.reorder(value, has, Layout::Plain, step.target);
                        }
                    }
                }
                // A tie goes to the alternative listed first, so the choice is always the same.
                if ns < best.0 {
                    best = (ns, at);
                }
            }
            changed |= chosen[idx] != best.1;
            chosen[idx] = best.1;
        }
        if sweep > 0 && !changed {
            break;
        }
    }
    debug_assert!(
        draft
            .steps
            .iter()
            .zip(choices)
            .all(|(step, choices)| { !matches!(step.kind, DraftKind::Kernel) || !choices.list.is_empty() })
    );
    chosen
}
