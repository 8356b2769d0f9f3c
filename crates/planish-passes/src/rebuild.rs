//! Putting patches in: a new graph with the values replaced, in an order that can be run, without what nothing
//! reads any more.
//!
//! Nodes keep their order as far as they can; those of a patch come where the node was that the patch belongs
//! to. Graph inputs and outputs keep their names, types and order: a value that takes the place of an output
//! takes its name too, and where it cannot (an input, a constant, another output) an Identity stands between.

use std::collections::{HashMap, HashSet};

use planish_ir::{Declared, Graph, GraphError, NewNode, NewOutput, Node, NodeId, ValueId};
use planish_op::{Identity, Op, ValueType};

use crate::error::PassErrorKind;
use crate::rule::{Bodies, Item, Operand, Patch};

/// What is to be different.
pub(crate) struct Changes {
    /// Each with the node that it belongs to.
    pub(crate) patches: Vec<(NodeId, Patch)>,
    /// Nodes with other bodies.
    pub(crate) bodies: Vec<(NodeId, Vec<Graph>)>,
}

/// `graph` with the changes. New fresh symbols are numbered from `n_fresh`.
pub(crate) fn rebuild(graph: &Graph, changes: Changes, n_fresh: usize) -> Result<Graph, PassErrorKind> {
    let mut build = Build::new(graph, changes, n_fresh)?;
    build.mark_live();
    build.give_names();
    build.add_inputs_and_constants().map_err(PassErrorKind::BadPatch)?;
    for idx in 0..graph.nodes().len() {
        for item in build.anchored[idx].clone() {
            build.emit(Unit::Item(item))?;
        }
        build.emit(Unit::Node(idx))?;
    }
    build.add_outputs()
}

/// Where a value comes from in the new graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Old(ValueId),
    New { item: usize, output: usize },
}

/// Something that can be emitted.
#[derive(Clone, Copy)]
enum Unit {
    Node(usize),
    Item(usize),
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Dead,
    Waiting,
    Visited,
    Done,
}

/// An item with its operands resolved.
struct Added {
    item: Item,
    inputs: Vec<Option<Source>>,
    n_outputs: usize,
}

struct Build<'g> {
    graph: &'g Graph,
    node_ids: Vec<NodeId>,
    new: Graph,
    items: Vec<Added>,
    /// The items of the patches that belong to each node.
    anchored: Vec<Vec<usize>>,
    bodies: HashMap<NodeId, Vec<Graph>>,
    /// Where each old value comes from.
    resolved: Vec<Source>,
    /// Replaced values, in the order of the patches.
    replaced: Vec<ValueId>,
    is_output: Vec<bool>,
    node_states: Vec<State>,
    item_states: Vec<State>,
    is_read: HashSet<Source>,
    /// What patches say of the types of new values.
    known: HashMap<Source, ValueType>,
    /// What patches call new values.
    called: HashMap<Source, Box<str>>,
    /// The old value whose name and type a source takes over.
    takes_over: HashMap<Source, ValueId>,
    taken_names: HashSet<Box<str>>,
    numbers: HashMap<Box<str>, usize>,
    ids: HashMap<Source, ValueId>,
}

impl<'g> Build<'g> {
    fn new(graph: &'g Graph, changes: Changes, n_fresh: usize) -> Result<Build<'g>, PassErrorKind> {
        let mut items: Vec<(Item, usize)> = Vec::new();
        let mut anchored = vec![Vec::new(); graph.nodes().len()];
        let mut direct: Vec<Option<Source>> = vec![None; graph.values().len()];
        let mut replaced = Vec::new();
        let (mut known, mut called) = (HashMap::new(), HashMap::new());
        for (root, patch) in changes.patches {
            let offset = items.len();
            known.extend(patch.known.into_iter().map(|(value, ty)| (source(value, offset), ty)));
            called.extend(patch.called.into_iter().map(|(value, name)| (source(value, offset), name)));
            anchored[root.index()].extend(offset..offset + patch.items.len());
            for (old, with) in patch.replace {
                let with = source(with, offset);
                if with != Source::Old(old) {
                    direct[old.index()] = Some(with);
                    replaced.push(old);
                }
            }
            items.extend(patch.items.into_iter().map(|item| (item, offset)));
        }
        let resolved = resolve(graph, &direct)?;
        let resolve = |operand: Operand, offset: usize| match source(operand, offset) {
            Source::Old(id) => resolved[id.index()],
            new => new,
        };
        let add = |(item, offset): (Item, usize)| {
            let (inputs, n_outputs) = match &item {
                Item::Constant { .. } => (Vec::new(), 1),
                Item::Node { inputs, n_outputs, .. } => (
                    inputs.iter().map(|input| input.map(|input| resolve(input, offset))).collect(),
                    *n_outputs,
                ),
            };
            Added { item, inputs, n_outputs }
        };
        let items: Vec<Added> = items.into_iter().map(add).collect();
        let mut is_output = vec![false; graph.values().len()];
        graph.outputs().iter().for_each(|id| is_output[id.index()] = true);
        Ok(Build {
            graph,
            node_ids: graph.nodes().map(|(id, _)| id).collect(),
            new: Graph::numbered_from(&graph.name, n_fresh),
            node_states: vec![State::Dead; graph.nodes().len()],
            item_states: vec![State::Dead; items.len()],
            items,
            anchored,
            bodies: changes.bodies.into_iter().collect(),
            resolved,
            replaced,
            is_output,
            is_read: HashSet::new(),
            known,
            called,
            takes_over: HashMap::new(),
            taken_names: HashSet::new(),
            numbers: HashMap::new(),
            ids: HashMap::new(),
        })
    }

    /// What makes a value; `None` for inputs and constants of the old graph.
    fn maker(&self, source: Source) -> Option<Unit> {
        match source {
            Source::Old(id) => self.graph.value(id).producer.map(|node| Unit::Node(node.index())),
            Source::New { item, .. } => Some(Unit::Item(item)),
        }
    }

    fn state(&mut self, unit: Unit) -> &mut State {
        match unit {
            Unit::Node(idx) => &mut self.node_states[idx],
            Unit::Item(idx) => &mut self.item_states[idx],
        }
    }

    fn node(&self, idx: usize) -> (NodeId, &'g Node) {
        let id = self.node_ids[idx];
        (id, self.graph.node(id))
    }

    fn inputs_of(&self, unit: Unit) -> Vec<Option<Source>> {
        match unit {
            Unit::Node(idx) => {
                let inputs = self.node(idx).1.inputs.iter();
                inputs.map(|id| id.map(|id| self.resolved[id.index()])).collect()
            }
            Unit::Item(idx) => self.items[idx].inputs.clone(),
        }
    }

    /// Finds what the outputs need.
    fn mark_live(&mut self) {
        let mut stack: Vec<Source> =
            self.graph.outputs().iter().map(|id| self.resolved[id.index()]).collect();
        while let Some(source) = stack.pop() {
            self.is_read.insert(source);
            let Some(unit) = self.maker(source) else { continue };
            if *self.state(unit) == State::Dead {
                *self.state(unit) = State::Waiting;
                stack.extend(self.inputs_of(unit).into_iter().flatten());
            }
        }
    }

    /// Decides which values take over the names of replaced ones; outputs first.
    fn give_names(&mut self) {
        for &output in self.graph.outputs() {
            let target = self.resolved[output.index()];
            let can_take = match target {
                Source::Old(id) if id == output => continue,
                Source::Old(id) => self.graph.value(id).producer.is_some() && !self.is_output[id.index()],
                Source::New { item, .. } => matches!(self.items[item].item, Item::Node { .. }),
            };
            if can_take {
                self.takes_over.entry(target).or_insert(output);
            }
        }
        for &old in &self.replaced {
            let target = self.resolved[old.index()];
            // An output whose name went to nobody keeps it for its Identity.
            if matches!(target, Source::New { .. }) && !self.is_output[old.index()] {
                self.takes_over.entry(target).or_insert(old);
            }
        }
        // Names of values that are gone are free again, so that a weight folded thrice is not `w.1.1.1`.
        let read = self.is_read.iter().filter_map(|source| match source {
            Source::Old(id) => Some(id),
            Source::New { .. } => None,
        });
        let fixed = self.graph.inputs().iter().chain(self.graph.outputs());
        let kept = read.chain(fixed).chain(self.takes_over.values());
        self.taken_names = kept.map(|id| self.graph.value(*id).name.clone()).collect();
    }

    fn add_inputs_and_constants(&mut self) -> Result<(), GraphError> {
        for &id in self.graph.inputs() {
            let value = self.graph.value(id);
            let new = self.new.add_known_input(&value.name, value.ty.clone(), value.content.clone())?;
            self.ids.insert(Source::Old(id), new);
        }
        for (id, value) in self.graph.values() {
            if let Some(tensor) = value.constant().filter(|_| self.is_read.contains(&Source::Old(id))) {
                let new = self.new.add_constant(&value.name, tensor.clone())?;
                self.ids.insert(Source::Old(id), new);
            }
        }
        Ok(())
    }

    /// Adds a unit and, before it, what it needs.
    fn emit(&mut self, unit: Unit) -> Result<(), PassErrorKind> {
        let mut stack = vec![unit];
        while let Some(&unit) = stack.last() {
            let is_first = match *self.state(unit) {
                State::Dead | State::Done => {
                    stack.pop();
                    continue;
                }
                State::Waiting => true,
                State::Visited => false,
            };
            if is_first {
                *self.state(unit) = State::Visited;
                for needed in self.inputs_of(unit).into_iter().flatten() {
                    let Some(maker) = self.maker(needed) else { continue };
                    match *self.state(maker) {
                        State::Waiting => stack.push(maker),
                        State::Visited => return Err(PassErrorKind::Cycle { value: self.name_of(needed) }),
                        State::Dead | State::Done => {}
                    }
                }
            } else {
                self.add(unit).map_err(PassErrorKind::BadPatch)?;
                *self.state(unit) = State::Done;
                stack.pop();
            }
        }
        Ok(())
    }

    fn name_of(&self, source: Source) -> String {
        match source {
            Source::Old(id) => self.graph.value(id).name.to_string(),
            Source::New { item, .. } => match &self.items[item].item {
                Item::Constant { name, .. } | Item::Node { name, .. } => name.to_string(),
            },
        }
    }

    fn add(&mut self, unit: Unit) -> Result<(), GraphError> {
        let inputs: Vec<Option<ValueId>> = self
            .inputs_of(unit)
            .into_iter()
            .map(|source| source.and_then(|source| self.ids.get(&source).copied()))
            .collect();
        match unit {
            Unit::Node(idx) => self.add_old(idx, inputs),
            Unit::Item(idx) => self.add_item(idx, inputs),
        }
    }

    fn add_old(&mut self, idx: usize, inputs: Vec<Option<ValueId>>) -> Result<(), GraphError> {
        let (id, node) = self.node(idx);
        let sources: Vec<Option<Source>> = node.outputs.iter().map(|id| id.map(Source::Old)).collect();
        let outputs = sources.iter().map(|source| self.output(*source, &node.op, &node.name)).collect();
        let bodies = self.bodies.remove(&id).unwrap_or_else(|| node.bodies.clone());
        let (name, op, n_captured) = (node.name.clone(), node.op.clone(), node.n_captured);
        self.add_node(NewNode { name, op, inputs, outputs, bodies, n_captured }, &sources)
    }

    fn add_item(&mut self, idx: usize, inputs: Vec<Option<ValueId>>) -> Result<(), GraphError> {
        let (name, op, bodies) = match &mut self.items[idx].item {
            Item::Constant { name, tensor } => {
                let (wish, tensor) = (name.clone(), tensor.clone());
                let source = Source::New { item: idx, output: 0 };
                let name = match self.takes_over.get(&source) {
                    Some(id) => self.graph.value(*id).name.clone(),
                    None => self.unique(&wish),
                };
                let id = self.new.add_constant(&name, tensor)?;
                self.ids.insert(source, id);
                return Ok(());
            }
            Item::Node { name, op, bodies, .. } => (name.clone(), Op::clone(op), std::mem::take(bodies)),
        };
        let Bodies { graphs: bodies, n_captured } = bodies;
        let sources: Vec<Option<Source>> =
            (0..self.items[idx].n_outputs).map(|output| Some(Source::New { item: idx, output })).collect();
        let outputs = sources.iter().map(|source| self.output(*source, &op, &name)).collect();
        self.add_node(NewNode { name, op, inputs, outputs, bodies, n_captured }, &sources)
    }

    fn add_node(&mut self, node: NewNode, sources: &[Option<Source>]) -> Result<(), GraphError> {
        let id = self.new.add_node(node)?;
        for (source, id) in sources.iter().zip(&self.new.node(id).outputs) {
            if let (Some(source), Some(id)) = (source, id) {
                self.ids.insert(*source, *id);
            }
        }
        Ok(())
    }

    /// Name and type of an output of a new node, skipped if nothing reads it.
    fn output(&mut self, source: Option<Source>, op: &Op, node_name: &str) -> NewOutput {
        let Some(source) = source.filter(|source| self.is_read.contains(source)) else {
            return NewOutput::Skip;
        };
        let old = match (self.takes_over.get(&source), source) {
            (Some(id), _) => Some(*id),
            (None, Source::Old(id)) => Some(id),
            (None, Source::New { .. }) => None,
        };
        let Some(old) = old else {
            let called = self.called.get(&source).cloned();
            let wish = called.as_deref().unwrap_or(if node_name.is_empty() { op.name() } else { node_name });
            let declared = self.known.get(&source).cloned().map_or(Declared::Nothing, Declared::Before);
            return NewOutput::Value { name: self.unique(wish), declared };
        };
        let value = self.graph.value(old);
        // Without its plugin a node has only the types that it came with.
        let declared = match planish_op::plugin::is_missing(op) {
            true => Declared::Exact(value.ty.clone()),
            false => Declared::Before(value.ty.clone()),
        };
        NewOutput::Value { name: value.name.clone(), declared }
    }

    /// `wish`, or `wish` with the next number that makes it unique.
    fn unique(&mut self, wish: &str) -> Box<str> {
        if self.taken_names.insert(wish.into()) {
            return wish.into();
        }
        let number = self.numbers.entry(wish.into()).or_insert(0);
        loop {
            *number += 1;
            let name: Box<str> = format!("{wish}.{number}").into();
            if self.taken_names.insert(name.clone()) {
                return name;
            }
        }
    }

    fn add_outputs(mut self) -> Result<Graph, PassErrorKind> {
        let mut outputs = Vec::with_capacity(self.graph.outputs().len());
        for &old in self.graph.outputs() {
            let source = self.resolved[old.index()];
            let (Some(&id), value) = (self.ids.get(&source), self.graph.value(old)) else {
                return Err(PassErrorKind::Cycle { value: self.name_of(source) });
            };
            if self.new.value(id).name == value.name {
                outputs.push(id);
                continue;
            }
            if let Some(known) = self.new.find(&value.name) {
                // The Identity of an output that is listed twice.
                outputs.push(known);
                continue;
            }
            let node_name = value.producer.map_or("", |node| &*self.graph.node(node).name);
            let output =
                NewOutput::Value { name: value.name.clone(), declared: Declared::Before(value.ty.clone()) };
            let node = NewNode {
                name: node_name.into(),
                op: Identity {}.into(),
                inputs: vec![Some(id)],
                outputs: vec![output],
                bodies: Vec::new(),
                n_captured: 0,
            };
            let made = self.new.add_node(node).map_err(PassErrorKind::BadPatch)?;
            outputs.extend(self.new.node(made).outputs.iter().flatten());
        }
        self.new.set_outputs(outputs);
        Ok(self.new)
    }
}

fn source(operand: Operand, offset: usize) -> Source {
    match operand {
        Operand::Old(id) => Source::Old(id),
        Operand::New(new) => Source::New { item: offset + new.item, output: new.output },
    }
}

/// Follows replaced values to where they come from in the end.
fn resolve(graph: &Graph, direct: &[Option<Source>]) -> Result<Vec<Source>, PassErrorKind> {
    let mut resolved: Vec<Option<Source>> = vec![None; direct.len()];
    for (id, value) in graph.values() {
        let mut path = Vec::new();
        let mut at = id;
        let end = loop {
            if let Some(known) = resolved[at.index()] {
                break known;
            }
            match direct[at.index()] {
                None => break Source::Old(at),
                Some(new @ Source::New { .. }) => {
                    path.push(at);
                    break new;
                }
                Some(Source::Old(next)) => {
                    path.push(at);
                    if path.len() > direct.len() {
                        return Err(PassErrorKind::Cycle { value: value.name.to_string() });
                    }
                    at = next;
                }
            }
        };
        path.into_iter().for_each(|step| resolved[step.index()] = Some(end));
        resolved[id.index()] = Some(end);
    }
    Ok(resolved.into_iter().flatten().collect())
}
