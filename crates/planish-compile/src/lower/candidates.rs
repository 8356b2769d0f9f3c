//! The ways to do a step: a backend's candidates, or nothing at all where a value is only seen differently.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use planish_kernel::{Backend, Candidate, Layout, Problem, Region, Tactic, Want};
use planish_op::Op;

use crate::backends::Backends;
use crate::error::{BuildError, BuildErrorKind};
use crate::lower::{Draft, DraftKind, DraftStep};
use crate::options::BuildOptions;
use crate::precision::Products;
use crate::price::policy;
use crate::sizes::Sizes;

/// One way to do a step.
#[derive(Clone, Debug)]
pub(crate) struct Alternative {
    pub(crate) candidate: Candidate,
    pub(crate) ns: f64,
    /// From the cost model only, or measured.
    pub(crate) measured: bool,
    /// The output is the input's memory under other dimensions; nothing runs.
    pub(crate) view: bool,
}

/// A step's alternatives, and its problem at the tuned sizes.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
    pub(crate) problem: Option<Problem>,
    pub(crate) list: Vec<Alternative>,
    /// What could not be measured, and why.
    pub(crate) refused: Vec<String>,
}

/// The name under which seeing a value differently stands among tactics.
pub(crate) const VIEW: &str = "view";

/// Candidates by the backend and the key of the problem.
type Known = HashMap<(u32, String), Rc<[Candidate]>>;

/// What candidates are asked for, and those that are known. Candidates depend on nothing but the problem and where it
/// runs, so each problem is asked for once.
pub(crate) struct Catalog<'a> {
    pub(crate) backends: Backends<'a>,
    pub(crate) sizes: &'a Sizes,
    pub(crate) options: &'a BuildOptions,
    known: RefCell<Known>,
}

impl<'a> Catalog<'a> {
    pub(crate) fn new(backends: Backends<'a>, sizes: &'a Sizes, options: &'a BuildOptions) -> Catalog<'a> {
        Catalog { backends, sizes, options, known: RefCell::default() }
    }

    /// What products may be taken in.
    pub(crate) fn products(&self) -> Products {
        Products::new(self.backends, self.options)
    }

    /// The candidates of a backend for a problem, of the sources and names that a build may use.
    pub(crate) fn candidates(&self, target: u32, problem: &Problem) -> Rc<[Candidate]> {
        let key = (target, problem.key());
        if let Some(known) = self.known.borrow().get(&key) {
            return Rc::clone(known);
        }
        let (backend, options) = (self.backends.get(target), self.options);
        let budget = policy::budget(options.tune_level);
        let offered = backend.candidates_from(problem, &budget, &|source| options.takes_source(source));
        let taken = offered.into_iter().filter(|candidate| options.takes(backend, candidate));
        let list: Rc<[Candidate]> = taken.collect();
        self.known.borrow_mut().insert(key, Rc::clone(&list));
        list
    }

    /// The fastest of the candidates that a step may use by the cost model, the slow reference left out.
    pub(crate) fn predicted_ns(&self, draft: &Draft, step: &DraftStep) -> Option<f64> {
        if !views(draft, step).is_empty() {
            return Some(0.0);
        }
        let backend = self.backends.get(step.target);
        let problem = draft.problem(step, self.sizes, self.options.threads)?;
        let usable = self.usable(step.target, &problem);
        let fastest = usable.iter().map(|candidate| candidate.predicted_ns).min_by(f64::total_cmp);
        fastest.map(|ns| ns + backend.prices().step_ns)
    }

    /// Whether a backend has a kernel for a step, the slow reference left out.
    pub(crate) fn has_kernel(&self, draft: &Draft, step: &DraftStep) -> bool {
        let problem = draft.problem(step, self.sizes, self.options.threads);
        problem.is_some_and(|problem| !self.usable(step.target, &problem).is_empty())
    }

    fn usable(&self, target: u32, problem: &Problem) -> Vec<Candidate> {
        let (backend, limit) = (self.backends.get(target), self.options.workspace);
        let is_usable =
            |candidate: &&Candidate| !candidate.slow && is_within(backend, problem, candidate, limit);
        self.candidates(target, problem).iter().filter(is_usable).cloned().collect()
    }

    /// The ways to do a step, unpriced but for the cost model.
    pub(crate) fn choices(&self, draft: &Draft, step: &DraftStep) -> Result<Choices, BuildError> {
        let options = self.options;
        if !matches!(step.kind, DraftKind::Kernel) {
            return Ok(Choices { problem: None, list: Vec::new(), refused: Vec::new() });
        }
        let problem = draft.problem(step, self.sizes, options.threads);
        let problem =
            problem.ok_or_else(|| BuildError::internal(format!("{} has no sizes", step.region.title())))?;
        let mut list = Vec::new();
        for (from, to) in views(draft, step) {
            let n_inputs = step.inputs.len();
            let mut inputs = vec![Want::inside(Layout::Plain); n_inputs];
            inputs[0] = Want::dense(from);
            list.push(Alternative {
                candidate: Candidate::new(Tactic::new(VIEW, 1), inputs, vec![Want::dense(to)], 0.0),
                ns: 0.0,
                measured: false,
                view: true,
            });
        }
        let selected =
            |candidate: &Candidate| options.selector.as_ref().is_none_or(|asked| asked(&problem, candidate));
        let backend = self.backends.get(step.target);
        for candidate in self.candidates(step.target, &problem).iter().filter(|one| selected(one)) {
            let (candidate, ns) = (candidate.clone(), candidate.predicted_ns);
            list.push(Alternative { candidate, ns, measured: false, view: false });
        }
        // The slow ways stay only where there is no other.
        if list.iter().any(|alternative| !alternative.candidate.slow) {
            list.retain(|alternative| !alternative.candidate.slow);
        }
        if let Some(limit) = options.workspace {
            keep_within(&step.region, backend, &problem, limit, &mut list)?;
        }
        if let Some(lock) = &options.tactics {
            lock.hold(&step.region, &mut list)?;
        }
        if list.is_empty() {
            let message = format!("nothing on this device can compute {}", step.region.title());
            return Err(BuildError::new(BuildErrorKind::Unsupported, message));
        }
        if options.strict && list.iter().all(|alternative| alternative.candidate.slow) {
            let message = format!(
                "--strict: only the slow reference can compute `{}` ({}); leave --strict out to accept it",
                step.region.title(),
                step.region.ops()
            );
            return Err(BuildError::new(BuildErrorKind::Refused, message));
        }
        Ok(Choices { problem: Some(problem), list, refused: Vec::new() })
    }
}

/// Workspace bytes that a candidate asks for; `None` where it cannot be prepared.
fn workspace(backend: &dyn Backend, problem: &Problem, candidate: &Candidate) -> Option<usize> {
    let kernel = backend.prepare(&problem.for_candidate(candidate), &candidate.tactic).ok()?;
    Some(kernel.workspace_bytes())
}

/// Whether a candidate's workspace is within a limit. Candidates are prepared to know, so only where one is
/// given.
pub(crate) fn is_within(
    backend: &dyn Backend,
    problem: &Problem,
    candidate: &Candidate,
    limit: Option<usize>,
) -> bool {
    limit.is_none_or(|limit| workspace(backend, problem, candidate).is_some_and(|bytes| bytes <= limit))
}

/// Leaves out what asks for more workspace than allowed.
fn keep_within(
    region: &Region,
    backend: &dyn Backend,
    problem: &Problem,
    limit: usize,
    list: &mut Vec<Alternative>,
) -> Result<(), BuildError> {
    let mut least: Option<(usize, String)> = None;
    list.retain(|alternative| {
        if alternative.view {
            return true;
        }
        let bytes = workspace(backend, problem, &alternative.candidate);
        let fits = bytes.is_some_and(|bytes| bytes <= limit);
        if let (false, Some(bytes)) = (fits, bytes)
            && least.as_ref().is_none_or(|(known, _)| bytes < *known)
        {
            least = Some((bytes, alternative.candidate.tactic.name.clone()));
        }
        fits
    });
    match least {
        Some((bytes, tactic)) if list.is_empty() => {
            let message = format!(
                "--workspace: `{}` ({}) needs at least {bytes} bytes (by {tactic}), {limit} are allowed",
                region.title(),
                region.ops()
            );
            Err(BuildError::new(BuildErrorKind::Refused, message))
        }
        _ => Ok(()),
    }
}

/// Layouts (in, out) under which the step only sees its input's memory differently.
pub(crate) fn views(draft: &Draft, step: &DraftStep) -> Vec<(Layout, Layout)> {
    let [node] = &step.region.nodes[..] else { return Vec::new() };
    let (Some(Some(input)), [output]) = (step.inputs.first(), &step.outputs[..]) else { return Vec::new() };
    if draft.outputs.contains(output) || !reads_first(&step.region) {
        return Vec::new();
    }
    let shape = |value: usize| draft.values[value].ty.as_tensor().and_then(|ty| ty.shape.clone());
    let (Some(from), Some(to)) = (shape(*input), shape(*output)) else { return Vec::new() };
    match &node.op {
        Op::Reshape(_) | Op::Squeeze(_) | Op::Unsqueeze(_) | Op::Flatten(_) => {
            let mut list = vec![(Layout::Plain, Layout::Plain)];
            // After batch and channels the places in space are counted on, however many axes they have.
            let keeps_channels = from.rank() > 2 && to.rank() > 2 && from.dims()[..2] == to.dims()[..2];
            if keeps_channels && !from.dims()[..2].iter().any(|dim| dim.is_unknown()) {
                list.push((Layout::ChannelsLast, Layout::ChannelsLast));
            }
            list
        }
        Op::Identity(_) | Op::Dropout(_) => {
            vec![(Layout::Plain, Layout::Plain), (Layout::ChannelsLast, Layout::ChannelsLast)]
        }
        Op::Transpose(transpose) => {
            let rank = from.rank();
            let perm: Vec<usize> = match &transpose.perm {
                Some(perm) => perm.iter().filter_map(|&axis| usize::try_from(axis).ok()).collect(),
                None => (0..rank).rev().collect(),
            };
            if perm.len() != rank {
                return Vec::new();
            }
            let mut list = Vec::new();
            for a in [Layout::Plain, Layout::ChannelsLast] {
                for b in [Layout::Plain, Layout::ChannelsLast] {
                    // Memory order of the input's axes, and of the output's axes named as the input's.
                    let counts = |axis: &usize| from.dims()[*axis].as_const() != Some(1);
                    let there: Vec<usize> = a.order(rank).into_iter().filter(counts).collect();
                    let here: Vec<usize> =
                        b.order(rank).into_iter().map(|axis| perm[axis]).filter(counts).collect();
                    if there == here {
                        list.push((a, b));
                    }
                }
            }
            list
        }
        _ => Vec::new(),
    }
}

/// Whether the region's first input is what its node reads first, and all else are parameters.
fn reads_first(region: &Region) -> bool {
    let first = matches!(region.nodes[0].inputs.first(), Some(Some(planish_kernel::Ref::Input(0))));
    first && region.n_inputs == 1
}

/// Whether a value in layout `has` can be read as `wants` without a reorder.
pub(crate) fn readable(draft: &Draft, value: usize, has: Layout, wants: Layout) -> bool {
    let shape = draft.values[value].ty.as_tensor().and_then(|ty| ty.shape.as_ref());
    has == wants || shape.is_some_and(|shape| has.same_for_all(wants, shape))
}
