//! The cheapest choice: one alternative a step, with the layout changes between them priced.
//!
//! First forwards, each step given its producers' layouts; then sweeps in which each step may change its mind
//! given both its producers and its readers, until nothing gets cheaper.

use planish_kernel::{Layout, Prices};

use crate::backends::Backends;
use crate::lower::candidates::{Choices, readable};
use crate::lower::{Draft, DraftKind, Source};
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

/// Chooses an alternative for every step.
pub(crate) fn select(draft: &Draft, choices: &[Choices], backends: Backends<'_>, sizes: &Sizes) -> Picks {
    let prices: Vec<Prices> = backends.all().iter().map(|backend| backend.prices()).collect();
    let made_by = makers(draft);
    let mut readers: Vec<Vec<(usize, usize)>> = vec![Vec::new(); draft.values.len()];
    for (idx, step) in draft.steps.iter().enumerate() {
        for (place, value) in step.inputs.iter().enumerate() {
            if let Some(value) = value {
                readers[*value].push((idx, place));
            }
        }
    }
    let reorder_ns = |value: usize, target: u32| {
        let bytes = sizes.operand(&draft.values[value].ty, Layout::Plain).map_or(0, |o| o.span_bytes());
        prices[target as usize].reorder(bytes)
    };
    // Weights are reordered when the plan is built.
    let reorder = |value: usize, has: Layout, wants: Layout, target: u32| {
        let free =
            readable(draft, value, has, wants) || matches!(draft.values[value].source, Source::Weight(_));
        if free { 0.0 } else { reorder_ns(value, target) }
    };
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
                let mut ns = alternative.ns
                    + if alternative.view { 0.0 } else { prices[step.target as usize].step_ns };
                for (place, value) in step.inputs.iter().enumerate() {
                    let Some(value) = value else { continue };
                    let has = layout_of(draft, choices, &chosen, &made_by, *value);
                    ns += reorder(*value, has, alternative.candidate.inputs[place].layout, step.target);
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
                                ns += reorder(value, has, wants, step.target);
                                paid.push(wants);
                            }
                        }
                        if draft.outputs.contains(&value) && !paid.contains(&Layout::Plain) {
                            ns += reorder(value, has, Layout::Plain, step.target);
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
