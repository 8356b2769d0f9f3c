//! Problems and regions written down briefly.

use planish_kernel::{Layout, Numeric, Operand, Problem, Ref, Region, RegionNode};
use planish_op::Op;
use planish_tensor::{DType, Tensor};

/// A reference to input `idx`.
pub fn input(idx: u32) -> Option<Ref> {
    Some(Ref::Input(idx))
}

/// A reference to constant `idx`.
pub fn constant(idx: u32) -> Option<Ref> {
    Some(Ref::Constant(idx))
}

/// A reference to the first output of node `idx`.
pub fn node(idx: u32) -> Option<Ref> {
    Some(Ref::Node { node: idx, output: 0 })
}

/// A region of nodes over inputs; its output is that of the last node.
pub fn region(n_inputs: u32, constants: Vec<Tensor>, nodes: Vec<(Op, Vec<Option<Ref>>)>) -> Region {
    let last = (nodes.len() as u32).saturating_sub(1);
    let nodes = nodes
        .into_iter()
        .map(|(op, inputs)| RegionNode { name: op.name().to_string(), op, inputs, n_outputs: 1 })
        .collect();
    Region { n_inputs, constants, nodes, outputs: vec![Ref::Node { node: last, output: 0 }] }
}

/// A problem under construction: nodes, then inputs in order.
#[derive(Clone, Debug)]
pub struct Sample {
    region: Region,
    inputs: Vec<Operand>,
    outputs: Option<Vec<Operand>>,
}

impl Sample {
    /// The nodes; the output is that of the last.
    pub fn of(nodes: Vec<(Op, Vec<Option<Ref>>)>) -> Sample {
        Sample { region: region(0, Vec::new(), nodes), inputs: Vec::new(), outputs: None }
    }

    /// One operator over `n_inputs`.
    pub fn op(op: impl Into<Op>, n_inputs: u32) -> Sample {
        Sample::of(vec![(op.into(), (0..n_inputs).map(input).collect())])
    }

    /// As many outputs of the one node.
    pub fn n_outputs(mut self, n: u32) -> Sample {
        self.region.nodes[0].n_outputs = n;
        self.region.outputs = (0..n).map(|output| Ref::Node { node: 0, output }).collect();
        self
    }

    /// Every node's first output is one of the region's.
    pub fn all_outputs(mut self) -> Sample {
        let n_nodes = self.region.nodes.len() as u32;
        self.region.outputs = (0..n_nodes).map(|node| Ref::Node { node, output: 0 }).collect();
        self
    }

    /// These nodes' first outputs are the region's.
    pub fn outputs_of(mut self, nodes: &[u32]) -> Sample {
        self.region.outputs = nodes.iter().map(|&node| Ref::Node { node, output: 0 }).collect();
        self
    }

    pub fn constant(mut self, tensor: Tensor) -> Sample {
        self.region.constants.push(tensor);
        self
    }

    pub fn typed(self, dtype: DType, dims: &[usize]) -> Sample {
        self.operand(Operand::dense(dtype, dims, Layout::Plain))
    }

    pub fn weight(self, dtype: DType, dims: &[usize]) -> Sample {
        self.operand(Operand::weight(dtype, dims))
    }

    fn operand(mut self, operand: Operand) -> Sample {
        self.inputs.push(operand);
        self.region.n_inputs += 1;
        self
    }

    pub fn f32(self, dims: &[usize]) -> Sample {
        self.typed(DType::F32, dims)
    }

    /// Outputs that inference alone cannot tell.
    pub fn output(mut self, dtype: DType, dims: &[usize]) -> Sample {
        self.outputs.get_or_insert_default().push(Operand::dense(dtype, dims, Layout::Plain));
        self
    }

    /// The problem; its outputs are what inference finds, empty where it finds none.
    pub fn problem(self) -> Problem {
        let Sample { region, inputs, outputs } = self;
        let mut problem = Problem { region, inputs, outputs: Vec::new(), numeric: Numeric::F32, threads: 1 };
        if let Some(outputs) = outputs {
            problem.outputs = outputs;
            return problem;
        }
        let types = problem.inner_types().unwrap_or_default();
        for output in &problem.region.outputs {
            if let Ref::Node { node, output } = *output
                && let Some(inner) = types.get(node as usize).and_then(|list| list.get(output as usize))
            {
                problem.outputs.push(Operand::dense(inner.dtype, &inner.dims, Layout::Plain));
            }
        }
        problem
    }
}
