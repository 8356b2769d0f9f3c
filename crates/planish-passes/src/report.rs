//! What a pipeline did: hits of each pass, and refusals with their reasons.

use std::fmt;

/// A place where a pass would have rewritten something, and why it did not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The node, with the nodes and bodies around it in front: `loop/body/conv1`.
    pub node: String,
    pub reason: String,
}

/// One step of the pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassReport {
    pub pass: &'static str,
    /// Patches that were put in, those in bodies included.
    pub hits: usize,
    /// Times that the graph was looked at; one more than were needed, as a rule.
    pub sweeps: usize,
    /// Nodes after the pass, those in bodies not included.
    pub n_nodes: usize,
    /// What the last look at each graph was refused, if it was asked for.
    pub refusals: Vec<Refusal>,
}

impl PassReport {
    pub(crate) fn new(pass: &'static str) -> PassReport {
        PassReport { pass, hits: 0, sweeps: 0, n_nodes: 0, refusals: Vec::new() }
    }

    /// Takes in what the same step did in a later round.
    pub(crate) fn add(&mut self, later: PassReport) {
        self.hits += later.hits;
        self.sweeps += later.sweeps;
        self.n_nodes = later.n_nodes;
        self.refusals = later.refusals;
    }
}

/// A whole run, in order; a pass that stands at two places has two entries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    pub passes: Vec<PassReport>,
}

impl Report {
    /// The patches of all runs of the pass.
    pub fn hits(&self, pass: &str) -> usize {
        self.passes.iter().filter(|entry| entry.pass == pass).map(|entry| entry.hits).sum()
    }
}

/// A line per pass that did or refused something, with its refusals below.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in self.passes.iter().filter(|entry| entry.hits > 0 || !entry.refusals.is_empty()) {
            writeln!(f, "{:<32} {:>5} hits, {:>5} nodes left", entry.pass, entry.hits, entry.n_nodes)?;
            for refusal in &entry.refusals {
                writeln!(f, "    not at `{}`: {}", refusal.node, refusal.reason)?;
            }
        }
        Ok(())
    }
}
