//! The driver: runs passes in order, each to a bounded fixed point, inside bodies first, and verifies.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use planish_ir::{Graph, NodeId};

use crate::error::{PassError, PassErrorKind};
use crate::rebuild::{Changes, rebuild};
use crate::report::{PassReport, Refusal, Report};
use crate::rule::{Patch, Proposals, Rule, Sweep};
use crate::view::View;

/// Looks at one graph before a pass must leave it as it is. Patches that do not overlap go in together, so
/// what needs many sweeps is a chain in which each rewrite opens the way for the next; real ones are short.
const MAX_SWEEPS: usize = 32;

/// Rounds of steps that run until they are settled. In real models each round follows sizes through one more layer that
/// pads by as much as it computes from them; the deepest have some 50 such layers.
const MAX_ROUNDS: usize = 64;

/// One step of a pipeline.
pub enum Pass {
    /// Asked about every node, in order.
    Rule(Box<dyn Rule + Send>),
    /// Asked about the whole graph.
    Sweep(Box<dyn Sweep + Send>),
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pass").field(&self.name()).finish()
    }
}

impl Pass {
    pub fn rule(rule: impl Rule + Send + 'static) -> Pass {
        Pass::Rule(Box::new(rule))
    }

    pub fn sweep(sweep: impl Sweep + Send + 'static) -> Pass {
        Pass::Sweep(Box::new(sweep))
    }

    pub fn name(&self) -> &'static str {
        match self {
            Pass::Rule(rule) => rule.name(),
            Pass::Sweep(sweep) => sweep.name(),
        }
    }

    fn propose(&self, cx: &View<'_>) -> Proposals {
        let mut proposals = Proposals::default();
        match self {
            Pass::Rule(rule) => {
                cx.graph().nodes().for_each(|(id, _)| proposals.add(id, rule.try_at(cx, id)));
            }
            Pass::Sweep(sweep) => sweep.propose(cx, &mut proposals),
        }
        proposals
    }
}

/// What a run may leave out, and what it says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of passes that do not run.
    pub disabled: Vec<String>,
    /// Only the first so many steps of the pipeline run; halving it finds a guilty pass.
    pub stop_after: Option<usize>,
    /// Whether the report lists refusals.
    pub explain: bool,
    /// Whether the graph is verified after every pass that changed it, not only at the end.
    pub verify_each: bool,
    /// Set from another thread to stop the run; looked at before every look at a graph.
    pub cancel: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            disabled: Vec::new(),
            stop_after: None,
            explain: false,
            verify_each: cfg!(debug_assertions),
            cancel: Arc::default(),
        }
    }
}

/// Passes in an order.
#[derive(Debug)]
pub struct Pipeline {
    passes: Vec<Pass>,
    /// Steps that run again one after another as long as one of them changes something.
    settled: Range<usize>,
}

impl Pipeline {
    pub fn new(passes: Vec<Pass>) -> Pipeline {
        Pipeline { passes, settled: 0..0 }
    }

    /// Has these steps run again one after another as long as one of them changes something, where each opens the way
    /// for the others.
    pub fn until_settled(self, steps: Range<usize>) -> Pipeline {
        Pipeline { settled: steps, ..self }
    }

    /// The names of the steps, in order; a pass may stand more than once.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &'static str> {
        self.passes.iter().map(Pass::name)
    }

    /// The graph after all passes, and what they did. Inputs and outputs keep their names, types and order.
    pub fn run(&self, graph: Graph, options: &Options) -> Result<(Graph, Report), PassError> {
        if let Some(unknown) = options.disabled.iter().find(|name| self.names().all(|known| known != *name)) {
            let mut known: Vec<&'static str> = self.names().collect();
            known.sort_unstable();
            known.dedup();
            return Err(PassError::new(unknown, PassErrorKind::UnknownPass { known }));
        }
        let mut run =
            Run { n_fresh: graph.n_fresh_symbols(), explain: options.explain, cancel: &options.cancel };
        let mut report = Report::default();
        let mut graph = graph;
        let mut last_change = None;
        let n_steps = self.passes.len().min(options.stop_after.unwrap_or(usize::MAX));
        let is_disabled = |pass: &Pass| options.disabled.iter().any(|name| name == pass.name());
        let mut entry_of: Vec<Option<usize>> = vec![None; n_steps];
        let (mut step, mut n_rounds, mut is_unsettled) = (0, 1, false);
        while step < n_steps {
            let pass = &self.passes[step];
            if !is_disabled(pass) {
                let mut turn = Turn { pass, entry: PassReport::new(pass.name()) };
                if let Some(new) = run.settle(&mut turn, &graph, "")? {
                    graph = new;
                    last_change = Some(pass.name());
                    is_unsettled |= self.settled.contains(&step);
                    if options.verify_each {
                        verify(&graph, pass.name())?;
                    }
                }
                let entry = PassReport { n_nodes: graph.nodes().len(), ..turn.entry };
                match entry_of[step] {
                    Some(at) => report.passes[at].add(entry),
                    None => {
                        entry_of[step] = Some(report.passes.len());
                        report.passes.push(entry);
                    }
                }
            }
            step += 1;
            if step == self.settled.end && std::mem::take(&mut is_unsettled) && n_rounds < MAX_ROUNDS {
                step = self.settled.start;
                n_rounds += 1;
            }
        }
        if let Some(pass) = last_change.filter(|_| !options.verify_each) {
            verify(&graph, pass)?;
        }
        Ok((graph, report))
    }
}

fn verify(graph: &Graph, pass: &str) -> Result<(), PassError> {
    graph.verify().map_err(|error| PassError::new(pass, PassErrorKind::Broken(error)))
}

/// One pass at work, and what it has done.
struct Turn<'a> {
    pass: &'a Pass,
    entry: PassReport,
}

/// What is the same for all graphs of a run.
struct Run<'a> {
    /// Above every fresh symbol made so far: symbols of different graphs must not meet.
    n_fresh: usize,
    explain: bool,
    cancel: &'a AtomicBool,
}

impl Run<'_> {
    /// Runs one pass over a graph and its bodies until nothing is left to do; `None` if nothing was.
    fn settle(
        &mut self,
        turn: &mut Turn<'_>,
        graph: &Graph,
        place: &str,
    ) -> Result<Option<Graph>, PassError> {
        let mut current = self.bodies(turn, graph, place)?;
        let pass = turn.pass;
        for _ in 0..MAX_SWEEPS {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(PassError::new(pass.name(), PassErrorKind::Cancelled));
            }
            let now = current.as_ref().unwrap_or(graph);
            let view = View::new(now);
            let proposals = pass.propose(&view);
            turn.entry.sweeps += 1;
            let patches = apart(now, proposals.patches);
            if patches.is_empty() {
                self.explain(now, proposals.refusals, place, &mut turn.entry);
                break;
            }
            turn.entry.hits += patches.len();
            let changes = Changes { patches, bodies: Vec::new() };
            current = Some(self.rebuilt(now, changes, pass.name())?);
        }
        Ok(current)
    }

    /// The graph with the pass run in the bodies of its nodes; `None` if that changed nothing.
    fn bodies(
        &mut self,
        turn: &mut Turn<'_>,
        graph: &Graph,
        place: &str,
    ) -> Result<Option<Graph>, PassError> {
        let mut changed = Vec::new();
        for (id, node) in graph.nodes().filter(|(_, node)| !node.bodies.is_empty()) {
            let mut bodies = Vec::with_capacity(node.bodies.len());
            let mut is_changed = false;
            for body in &node.bodies {
                let inside = format!("{place}{}/{}/", node.name, body.name);
                let settled = self.settle(turn, body, &inside)?;
                is_changed |= settled.is_some();
                bodies.push(settled.unwrap_or_else(|| body.clone()));
            }
            if is_changed {
                changed.push((id, bodies));
            }
        }
        if changed.is_empty() {
            return Ok(None);
        }
        let changes = Changes { patches: Vec::new(), bodies: changed };
        self.rebuilt(graph, changes, turn.pass.name()).map(Some)
    }

    fn rebuilt(&mut self, graph: &Graph, changes: Changes, pass: &str) -> Result<Graph, PassError> {
        self.n_fresh = self.n_fresh.max(graph.n_fresh_symbols());
        let new = rebuild(graph, changes, self.n_fresh).map_err(|kind| PassError::new(pass, kind))?;
        self.n_fresh = self.n_fresh.max(new.n_fresh_symbols());
        Ok(new)
    }

    fn explain(
        &self,
        graph: &Graph,
        refusals: Vec<(NodeId, Cow<'static, str>)>,
        place: &str,
        entry: &mut PassReport,
    ) {
        if self.explain {
            entry.refusals.extend(refusals.into_iter().map(|(node, reason)| {
                let node = graph.node(node);
                // Nodes without a name go by what they make.
                let made = node.outputs.iter().flatten().next().filter(|_| node.name.is_empty());
                let name = made.map_or(&*node.name, |id| &graph.value(*id).name);
                let node = format!("{place}{name}");
                Refusal { node, reason: reason.into_owned() }
            }));
        }
    }
}

/// The patches that do not overlap with one before them; the others are found again by the next sweep.
fn apart(graph: &Graph, patches: Vec<(NodeId, Patch)>) -> Vec<(NodeId, Patch)> {
    let mut is_claimed = vec![false; graph.nodes().len()];
    let mut kept = Vec::with_capacity(patches.len());
    for (root, patch) in patches {
        let replaced = patch.replace.iter().filter_map(|(old, _)| graph.value(*old).producer);
        let claims: Vec<NodeId> =
            [root].into_iter().chain(replaced).chain(patch.relies_on.iter().copied()).collect();
        if claims.iter().any(|node| is_claimed[node.index()]) {
            continue;
        }
        claims.iter().for_each(|node| is_claimed[node.index()] = true);
        kept.push((root, patch));
    }
    kept
}
