//! Tactics of libraries are asked before they are taken: a library proposes what it may refuse, at these sizes or at
//! others of the profile, and only preparing tells.

use planish_kernel::{Candidate, KernelError};

use crate::backends::Backends;
use crate::choose::Chosen;
use crate::choose::select::select;
use crate::choose::variants::points;
use crate::error::BuildError;
use crate::lower::candidates::Choices;
use crate::lower::{Draft, DraftStep};
use crate::options::BuildOptions;
use crate::sizes::Sizes;

/// Where tactics come from that are part of the program: preparing these does not depend on what is installed.
const OWN: [&str; 2] = ["own", "reference"];

/// Chooses anew without the tactics that a library refuses, until it refuses none of those chosen; in bodies too.
pub(crate) fn vet(
    chosen: &mut Chosen,
    backends: Backends<'_>,
    sizes: &Sizes,
    options: &BuildOptions,
) -> Result<(), BuildError> {
    let mut all: Vec<Sizes> = options.profiles.iter().flat_map(|profile| points(profile, sizes)).collect();
    all.retain(|point| point != sizes);
    all.insert(0, sizes.clone());
    let Chosen { draft, choices, picks, bodies, .. } = chosen;
    let mut known: Vec<Option<usize>> = vec![None; draft.steps.len()];
    loop {
        let mut is_settled = true;
        for (idx, step) in draft.steps.iter().enumerate() {
            let at = picks[idx];
            let Some(alternative) = choices[idx].list.get(at).filter(|alternative| !alternative.view) else {
                continue;
            };
            let source = backends.get(step.target).source(&alternative.candidate.tactic);
            if OWN.contains(&source) || known[idx] == Some(at) {
                continue;
            }
            known[idx] = Some(at);
            if let Some(why) = refusal(draft, step, &alternative.candidate, backends, &all, options) {
                refuse(&mut choices[idx], at, &why)?;
                is_settled = false;
            }
        }
        if is_settled {
            break;
        }
        *picks = select(draft, choices, backends, sizes);
    }
    bodies.iter_mut().flatten().try_for_each(|body| vet(body, backends, sizes, options))
}

/// Why a candidate cannot be prepared at one of these sizes.
fn refusal(
    draft: &Draft,
    step: &DraftStep,
    candidate: &Candidate,
    backends: Backends<'_>,
    all: &[Sizes],
    options: &BuildOptions,
) -> Option<KernelError> {
    all.iter().find_map(|sizes| {
        let problem = draft.problem(step, sizes, options.threads)?;
        backends.get(step.target).prepare(&problem.for_candidate(candidate), &candidate.tactic).err()
    })
}

fn refuse(choices: &mut Choices, at: usize, why: &KernelError) -> Result<(), BuildError> {
    let tactic = choices.list[at].candidate.tactic.clone();
    choices.refused.push(format!("{tactic} is left out, it cannot run: {why}"));
    if choices.list.len() == 1 {
        return Err(BuildError::of_kernel(why, format!("the only tactic, {tactic}, cannot run: {why}")));
    }
    choices.list[at].ns = f64::INFINITY;
    // What was measured while it lasted counts no longer.
    choices.list[at].measured = false;
    if choices.list.iter().all(|alternative| alternative.ns == f64::INFINITY) {
        return Err(BuildError::of_kernel(why, format!("no tactic is left; {tactic} cannot run: {why}")));
    }
    Ok(())
}
