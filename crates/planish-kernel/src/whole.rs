//! The whole graph as backends see it when they propose regions.

use planish_op::ValueType;

use crate::{Ref, Region};

/// A graph as one region, with the type of every value. Weights are inputs of it.
#[derive(Debug)]
pub struct Whole {
    pub region: Region,
    /// Type of each input of the region.
    pub inputs: Vec<ValueType>,
    /// Whether each input is a weight.
    pub weights: Vec<bool>,
    /// Types of each node's outputs.
    pub outputs: Vec<Vec<ValueType>>,
    users: Vec<Vec<u32>>,
    n_graph_uses: Vec<Vec<u32>>,
}

/// Nodes that one tactic may cover together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// Ascending; all that is computed between them is read among them alone.
    pub nodes: Vec<u32>,
}

impl Whole {
    pub fn new(
        region: Region,
        inputs: Vec<ValueType>,
        weights: Vec<bool>,
        outputs: Vec<Vec<ValueType>>,
    ) -> Whole {
        let mut users = vec![Vec::new(); region.nodes.len()];
        for (idx, node) in region.nodes.iter().enumerate() {
            for reference in node.inputs.iter().flatten() {
                if let Ref::Node { node, .. } = reference
                    && users[*node as usize].last() != Some(&(idx as u32))
                {
                    users[*node as usize].push(idx as u32);
                }
            }
        }
        let mut n_graph_uses: Vec<Vec<u32>> =
            region.nodes.iter().map(|node| vec![0; node.n_outputs as usize]).collect();
        for output in &region.outputs {
            if let Ref::Node { node, output } = output {
                n_graph_uses[*node as usize][*output as usize] += 1;
            }
        }
        Whole { region, inputs, weights, outputs, users, n_graph_uses }
    }

    /// The type behind a reference.
    pub fn type_of(&self, reference: Ref) -> Option<&ValueType> {
        match reference {
            Ref::Input(idx) => self.inputs.get(idx as usize),
            Ref::Node { node, output } => self.outputs.get(node as usize)?.get(output as usize),
            Ref::Constant(_) => None,
        }
    }

    /// Whether a reference is a weight or a small constant.
    pub fn is_constant(&self, reference: Ref) -> bool {
        match reference {
            Ref::Input(idx) => self.weights.get(idx as usize).copied().unwrap_or(false),
            Ref::Constant(_) => true,
            Ref::Node { .. } => false,
        }
    }

    /// The nodes that read `node`, ascending.
    pub fn users(&self, node: u32) -> &[u32] {
        &self.users[node as usize]
    }

    /// The only node that reads `node`, if its one output is read by one node and is not an output of the
    /// graph.
    pub fn only_user(&self, node: u32) -> Option<u32> {
        match (&*self.users[node as usize], &*self.n_graph_uses[node as usize]) {
            ([user], [0]) => Some(*user),
            _ => None,
        }
    }

    /// Whether an output of the graph is an output of `node`.
    pub fn is_output(&self, node: u32) -> bool {
        self.n_graph_uses[node as usize].iter().any(|n| *n > 0)
    }

    /// Whether `later` reads, directly or not, an output of `earlier`.
    pub fn depends_on(&self, later: u32, earlier: u32) -> bool {
        // Nodes are in topological order, so nothing below `earlier` can depend on it.
        let mut open = vec![later];
        let mut seen = std::collections::HashSet::new();
        while let Some(node) = open.pop() {
            if node == earlier {
                return true;
            }
            if node < earlier || !seen.insert(node) {
                continue;
            }
            for reference in self.region.nodes[node as usize].inputs.iter().flatten() {
                if let Ref::Node { node, .. } = reference {
                    open.push(*node);
                }
            }
        }
        false
    }
}
