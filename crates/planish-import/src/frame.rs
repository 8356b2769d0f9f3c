//! `Frame`: one graph under construction and the names that its nodes may use.

use std::collections::HashMap;

use planish_ir::{Graph, ValueId};
use planish_op::ValueType;

use crate::order::Producers;
use crate::types::value_type;

/// Types that the file gives for values in between and outputs.
type DeclaredTypes<'m> = HashMap<&'m str, &'m planish_onnx::Type<'m>>;

/// One graph under construction.
pub(crate) struct Frame<'m> {
    pub(crate) graph: Graph,
    names: HashMap<&'m str, ValueId>,
    declared: DeclaredTypes<'m>,
    /// Values of the graph outside that this one reads, in the order of its trailing inputs.
    pub(crate) captured: Vec<ValueId>,
    /// The file's own values, made or yet to be made: a name for something in between must not meet one.
    pub(crate) producers: Producers<'m>,
    /// The last suffix given to a name that was taken, so that the search does not start over.
    suffixes: HashMap<String, usize>,
    /// Branches that are being imported in place, the innermost last.
    branches: Vec<Branch<'m>>,
}

/// What to put back when a branch that was imported in place ends.
struct Branch<'m> {
    /// What the names that it defined meant before, in order of definition.
    names: Vec<(&'m str, Option<ValueId>)>,
    declared: DeclaredTypes<'m>,
}

fn declared_types<'m>(graph: &'m planish_onnx::Graph<'m>) -> DeclaredTypes<'m> {
    let infos = graph.value_infos.iter().chain(&graph.outputs);
    infos.filter_map(|info| Some((info.name.as_ref(), info.ty.as_ref()?))).collect()
}

impl<'m> Frame<'m> {
    pub(crate) fn new(graph: Graph, onnx: &'m planish_onnx::Graph<'m>) -> Frame<'m> {
        Frame {
            graph,
            names: HashMap::new(),
            declared: declared_types(onnx),
            captured: Vec::new(),
            producers: HashMap::new(),
            suffixes: HashMap::new(),
            branches: Vec::new(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// From here on, `name` is this value; inside a branch that is imported in place, to its end.
    pub(crate) fn define(&mut self, name: &'m str, id: ValueId) {
        let before = self.names.insert(name, id);
        if let Some(branch) = self.branches.last_mut() {
            branch.names.push((name, before));
        }
    }

    /// Like `define`, for a value from outside: what is captured stays so after a branch.
    pub(crate) fn define_captured(&mut self, name: &'m str, id: ValueId) {
        self.names.insert(name, id);
    }

    /// The type that the file declares for a value.
    pub(crate) fn declared_type(&mut self, name: &str) -> Option<ValueType> {
        let ty = *self.declared.get(name)?;
        value_type(ty, &mut |_| self.graph.fresh_dim("any")).ok()
    }

    /// A name that no value of the graph has or will have.
    pub(crate) fn unique_name(&mut self, base: &str) -> String {
        let Frame { graph, producers, suffixes, .. } = self;
        let is_free = |name: &str| graph.find(name).is_none() && !producers.contains_key(name);
        if is_free(base) {
            return base.to_string();
        }
        let last = suffixes.entry(base.to_string()).or_insert(1);
        // Values are finite in number, so some suffix is free.
        loop {
            *last += 1;
            let name = format!("{base}.{last}");
            if is_free(&name) {
                return name;
            }
        }
    }

    /// The name that a node's output or an initializer gets in the graph: its own, but for branches that are
    /// imported in place, whose names may meet others.
    pub(crate) fn own_name(&mut self, name: &str) -> String {
        if self.is_in_branch() { self.unique_name(name) } else { name.to_string() }
    }

    pub(crate) fn is_in_branch(&self) -> bool {
        !self.branches.is_empty()
    }

    /// Begins to import a branch in place.
    pub(crate) fn enter_branch(&mut self, branch: &'m planish_onnx::Graph<'m>) {
        let declared = std::mem::replace(&mut self.declared, declared_types(branch));
        self.branches.push(Branch { names: Vec::new(), declared });
    }

    /// Ends the branch: its names are gone.
    pub(crate) fn leave_branch(&mut self) {
        let Some(branch) = self.branches.pop() else { return };
        self.declared = branch.declared;
        for (name, before) in branch.names.into_iter().rev() {
            match before {
                Some(id) => self.names.insert(name, id),
                None => self.names.remove(name),
            };
        }
    }
}
