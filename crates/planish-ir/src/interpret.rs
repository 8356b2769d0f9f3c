//! Interpretation: a graph's outputs, node by node over the reference.

use std::fmt;

use planish_op::{Limits, Meter, Op, Stop, Value};
use planish_reference::{EvalError, EvalErrorKind};
use planish_tensor::{DefaultFloatMode, Tensor};

use crate::graph::{Graph, Node};
use crate::id::ValueId;

/// A node that could not be evaluated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterpretError {
    node: Box<str>,
    error: EvalError,
}

impl InterpretError {
    pub fn kind(&self) -> EvalErrorKind {
        self.error.kind()
    }

    /// The name of the node; empty if the fault is with the graph's inputs.
    pub fn node(&self) -> &str {
        &self.node
    }
}

impl fmt::Display for InterpretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.node.is_empty() {
            write!(f, "{}", self.error)
        } else {
            write!(f, "node `{}`: {}", self.node, self.error)
        }
    }
}

impl std::error::Error for InterpretError {}

/// Called after each node with its outputs, `None` where an output is not wanted.
pub type Observer<'a> = &'a mut dyn FnMut(&Node, &[Option<&Value>]);

/// The outputs of `graph` on these inputs, in the order of `graph.inputs()`.
pub fn interpret(graph: &Graph, inputs: Vec<Value>) -> Result<Vec<Value>, InterpretError> {
    interpret_within(graph, inputs, &Limits::default())
}

/// Like [`interpret`], within limits of the caller: trips of loops, and bytes of the values that are alive.
pub fn interpret_within(
    graph: &Graph,
    inputs: Vec<Value>,
    limits: &Limits,
) -> Result<Vec<Value>, InterpretError> {
    interpret_with(graph, inputs, limits, &mut |_, _| {})
}

/// Like [`interpret_within`], and shows every node's outputs on the way (bodies included).
pub fn interpret_with(
    graph: &Graph,
    inputs: Vec<Value>,
    limits: &Limits,
    observe: Observer<'_>,
) -> Result<Vec<Value>, InterpretError> {
    run(graph, inputs, &mut Walk { meter: Meter::new(limits.clone()), observe })
}

/// What all graphs of an interpretation share.
struct Walk<'a> {
    meter: Meter,
    observe: Observer<'a>,
}

fn stopped(node: &Node, stop: Stop) -> InterpretError {
    let kind = match stop {
        Stop::Cancelled => EvalErrorKind::Cancelled,
        Stop::Memory(_) => EvalErrorKind::TooLarge,
        _ => EvalErrorKind::Limit,
    };
    InterpretError { node: node.name.clone(), error: EvalError::new(node.op.name(), kind, stop.to_string()) }
}

fn run(graph: &Graph, inputs: Vec<Value>, walk: &mut Walk<'_>) -> Result<Vec<Value>, InterpretError> {
    let _mode = DefaultFloatMode::enter();
    if inputs.len() != graph.inputs().len() {
        let detail = format!("the graph takes {} inputs, {} were given", graph.inputs().len(), inputs.len());
        return Err(InterpretError {
            node: "".into(),
            error: EvalError::new("graph", EvalErrorKind::MissingInput, detail),
        });
    }
    let mut values: Vec<Option<Value>> = vec![None; graph.values().len()];
    for (id, value) in graph.values() {
        values[id.index()] = value.constant().cloned().map(Value::Tensor);
    }
    for (&id, value) in graph.inputs().iter().zip(inputs) {
        values[id.index()] = Some(value);
    }
    let last_use = last_uses(graph);
    // Bytes of the values that nodes of this graph made and somebody still reads.
    let mut held: Vec<u64> = vec![0; graph.values().len()];
    for (idx, (_, node)) in graph.nodes().enumerate() {
        walk.meter.look().map_err(|stop| stopped(node, stop))?;
        let mut outputs = {
            let operands: Vec<Option<&Value>> =
                node.inputs.iter().map(|id| id.and_then(|id| values[id.index()].as_ref())).collect();
            let is_read = |id: &Option<ValueId>| id.is_some_and(|id| last_use[id.index()] > idx);
            let wanted: Vec<bool> = node.outputs.iter().map(is_read).collect();
            evaluate(node, &operands, &wanted, walk)?
        };
        outputs.resize(node.outputs.len(), None);
        let seen: Vec<Option<&Value>> = outputs.iter().map(Option::as_ref).collect();
        (walk.observe)(node, &seen);
        for (id, value) in node.outputs.iter().zip(outputs) {
            if let Some(id) = id {
                held[id.index()] = value.as_ref().map_or(0, Value::bytes);
                walk.meter.hold(held[id.index()]).map_err(|stop| stopped(node, stop))?;
                values[id.index()] = value;
            }
        }
        // Values nobody reads any more are dropped at once: the peak stays that of the live ones.
        let touched = node.inputs.iter().chain(&node.outputs).flatten();
        for id in touched.filter(|id| last_use[id.index()] <= idx) {
            values[id.index()] = None;
            walk.meter.let_go(std::mem::take(&mut held[id.index()]));
        }
    }
    // Whoever takes the outputs counts them.
    walk.meter.let_go(held.iter().sum());
    let take = |id: &ValueId| {
        values[id.index()].clone().ok_or_else(|| InterpretError {
            node: "".into(),
            error: EvalError::new(
                "graph",
                EvalErrorKind::MissingInput,
                format!("output `{}` was not made", graph.value(*id).name),
            ),
        })
    };
    graph.outputs().iter().map(take).collect()
}

/// For each value the index of the last node that reads it; graph outputs are never done with.
fn last_uses(graph: &Graph) -> Vec<usize> {
    let mut last = vec![0; graph.values().len()];
    for (idx, (_, node)) in graph.nodes().enumerate() {
        for id in node.inputs.iter().flatten() {
            last[id.index()] = idx;
        }
        for id in node.outputs.iter().flatten() {
            last[id.index()] = last[id.index()].max(idx);
        }
    }
    for id in graph.outputs() {
        last[id.index()] = usize::MAX;
    }
    last
}

/// The outputs of a node; control flow leaves out what it would have to collect for nobody.
fn evaluate(
    node: &Node,
    operands: &[Option<&Value>],
    wanted: &[bool],
    walk: &mut Walk<'_>,
) -> Result<Vec<Option<Value>>, InterpretError> {
    let n_own = operands.len() - node.n_captured;
    let (own, captured) = operands.split_at(n_own);
    let control = Control { node, own, captured, wanted };
    match &node.op {
        Op::If(_) => control.if_(walk),
        Op::Loop(_) => control.loop_(walk),
        Op::Scan(scan) => control.scan(scan, walk),
        Op::SequenceMap(_) => control.sequence_map(walk),
        op => {
            let room = usize::try_from(walk.meter.room()).unwrap_or(usize::MAX);
            let outputs = planish_reference::evaluate_within(op, operands, node.outputs.len(), room)
                .map_err(|error| control.at(error))?;
            Ok(outputs.into_iter().map(Some).collect())
        }
    }
}

/// A node with bodies and its inputs, the captured ones apart.
struct Control<'a> {
    node: &'a Node,
    own: &'a [Option<&'a Value>],
    captured: &'a [Option<&'a Value>],
    /// For each output of the node whether somebody reads it.
    wanted: &'a [bool],
}

impl Control<'_> {
    fn at(&self, error: EvalError) -> InterpretError {
        InterpretError { node: self.node.name.clone(), error }
    }

    fn bad(&self, kind: EvalErrorKind, detail: impl Into<String>) -> InterpretError {
        self.at(EvalError::new(self.node.op.name(), kind, detail))
    }

    /// Runs a body on its own inputs followed by the captured ones.
    fn body(
        &self,
        idx: usize,
        mut inputs: Vec<Value>,
        walk: &mut Walk<'_>,
    ) -> Result<Vec<Value>, InterpretError> {
        for value in self.captured {
            let value =
                value.ok_or_else(|| self.bad(EvalErrorKind::MissingInput, "a captured value is missing"))?;
            inputs.push(value.clone());
        }
        run(&self.node.bodies[idx], inputs, walk)
    }

    fn is_wanted(&self, output: usize) -> bool {
        self.wanted.get(output).copied().unwrap_or(false)
    }

    /// Counts a value that a loop keeps for one of its outputs.
    fn collect(
        &self,
        value: Value,
        list: &mut Vec<Value>,
        walk: &mut Walk<'_>,
    ) -> Result<(), InterpretError> {
        walk.meter.hold(value.bytes()).map_err(|stop| stopped(self.node, stop))?;
        list.push(value);
        Ok(())
    }

    /// Counts one more trip, and what is carried into it instead of what was carried into the one before.
    fn trip(&self, carried: &[Value], held: &mut u64, walk: &mut Walk<'_>) -> Result<(), InterpretError> {
        let now = carried.iter().map(Value::bytes).sum();
        walk.meter.let_go(std::mem::replace(held, now));
        walk.meter.hold(now).and_then(|()| walk.meter.trip()).map_err(|stop| stopped(self.node, stop))
    }

    fn scalar_bool(&self, value: &Value) -> Result<bool, InterpretError> {
        match value.as_tensor() {
            Some(tensor) if tensor.len() == 1 => Ok(tensor.to_f64s()[0] != 0.0),
            _ => Err(self.bad(EvalErrorKind::BadShape, "the condition must be one boolean")),
        }
    }

    fn own_input(&self, idx: usize) -> Result<&Value, InterpretError> {
        let value = self.own.get(idx).copied().flatten();
        value.ok_or_else(|| self.bad(EvalErrorKind::MissingInput, format!("input {idx} is missing")))
    }

    fn if_(&self, walk: &mut Walk<'_>) -> Result<Vec<Option<Value>>, InterpretError> {
        let branch = if self.scalar_bool(self.own_input(0)?)? { 0 } else { 1 };
        Ok(self.body(branch, Vec::new(), walk)?.into_iter().map(Some).collect())
    }

    fn loop_(&self, walk: &mut Walk<'_>) -> Result<Vec<Option<Value>>, InterpretError> {
        let max_trips = match self.own.first().copied().flatten() {
            Some(value) => match value.as_tensor().map(Tensor::to_i64s).as_deref() {
                Some([trips]) => *trips,
                _ => return Err(self.bad(EvalErrorKind::BadShape, "the trip count must be one integer")),
            },
            None => i64::MAX,
        };
        let mut go_on = match self.own.get(1).copied().flatten() {
            Some(value) => self.scalar_bool(value)?,
            None => true,
        };
        let n_carried = self.own.len().saturating_sub(2);
        let mut carried: Vec<Value> =
            (2..self.own.len()).map(|idx| self.own_input(idx).cloned()).collect::<Result<_, _>>()?;
        let n_scans = self.node.bodies[0].outputs().len().saturating_sub(1 + n_carried);
        let mut scans: Vec<Vec<Value>> = vec![Vec::new(); n_scans];
        let (mut trip, mut held) = (0, 0);
        while go_on && trip < max_trips {
            self.trip(&carried, &mut held, walk)?;
            let mut inputs = vec![Value::from(Tensor::scalar(trip)), Value::from(Tensor::scalar(go_on))];
            inputs.append(&mut carried);
            let mut outputs = self.body(0, inputs, walk)?.into_iter();
            let condition =
                outputs.next().ok_or_else(|| self.bad(EvalErrorKind::BadShape, "the body has no outputs"))?;
            go_on = self.scalar_bool(&condition)?;
            carried = outputs.by_ref().take(n_carried).collect();
            for (idx, (scan, value)) in scans.iter_mut().zip(outputs).enumerate() {
                if self.is_wanted(n_carried + idx) {
                    self.collect(value, scan, walk)?;
                }
            }
            trip += 1;
        }
        walk.meter.let_go(held);
        let mut made: Vec<Option<Value>> = carried.into_iter().map(Some).collect();
        let scan_outputs = &self.node.bodies[0].outputs()[1 + n_carried..];
        for (parts, &id) in scans.into_iter().zip(scan_outputs) {
            let is_wanted = self.is_wanted(made.len());
            made.push(if is_wanted { Some(self.stack(parts, 0, id, walk)?) } else { None });
        }
        Ok(made)
    }

    /// The parts along a new axis; without parts, an empty tensor of the inferred type (unknown sizes 0).
    fn stack(
        &self,
        parts: Vec<Value>,
        axis: i64,
        id: ValueId,
        walk: &mut Walk<'_>,
    ) -> Result<Value, InterpretError> {
        if parts.is_empty() {
            let Some(ty) = self.node.bodies[0].value(id).ty.as_tensor() else {
                return Err(self.bad(EvalErrorKind::BadType, "a scan output must be a tensor"));
            };
            let dims = ty.shape.as_ref().map(|shape| shape.dims().to_vec()).unwrap_or_default();
            let mut dims: Vec<usize> = dims.iter().map(|dim| dim.as_usize().unwrap_or(0)).collect();
            let axis = planish_tensor::normalize_axis(axis, dims.len() + 1).unwrap_or(0);
            dims.insert(axis, 0);
            let tensor = Tensor::zeros(ty.dtype, &dims).map_err(|error| self.at(error.into()))?;
            return Ok(Value::from(tensor));
        }
        let op = Op::from(planish_op::ConcatFromSequence { new_axis: true, axis });
        let held: u64 = parts.iter().map(Value::bytes).sum();
        let room = usize::try_from(walk.meter.room()).unwrap_or(usize::MAX);
        let sequence = Value::Sequence(parts);
        let mut outputs = planish_reference::evaluate_within(&op, &[Some(&sequence)], 1, room)
            .map_err(|error| self.at(error))?;
        walk.meter.let_go(held);
        outputs.pop().ok_or_else(|| self.bad(EvalErrorKind::BadShape, "nothing was stacked"))
    }

    fn scan(
        &self,
        scan: &planish_op::Scan,
        walk: &mut Walk<'_>,
    ) -> Result<Vec<Option<Value>>, InterpretError> {
        let n_scanned = usize::try_from(scan.num_scan_inputs).unwrap_or(usize::MAX);
        let n_states = self
            .own
            .len()
            .checked_sub(n_scanned)
            .ok_or_else(|| self.bad(EvalErrorKind::BadAttribute, "num_scan_inputs exceeds the inputs"))?;
        let mut states: Vec<Value> =
            (0..n_states).map(|idx| self.own_input(idx).cloned()).collect::<Result<_, _>>()?;
        let mut scanned = Vec::new();
        for idx in 0..n_scanned {
            let tensor = self.own_input(n_states + idx)?.as_tensor();
            let tensor =
                tensor.ok_or_else(|| self.bad(EvalErrorKind::BadType, "a scan input must be a tensor"))?;
            let axis = scan.scan_input_axes.get(idx).copied().unwrap_or(0);
            let axis = planish_tensor::normalize_axis(axis, tensor.rank())
                .map_err(|error| self.bad(EvalErrorKind::BadAttribute, error.to_string()))?;
            scanned.push((tensor, axis, scan.scan_input_directions.get(idx).copied().unwrap_or(0) == 1));
        }
        let lengths: Vec<usize> = scanned.iter().map(|(tensor, axis, _)| tensor.shape()[*axis]).collect();
        let length = lengths.first().copied().unwrap_or(0);
        if lengths.iter().any(|&other| other != length) {
            return Err(self.bad(EvalErrorKind::BadShape, format!("scan inputs have lengths {lengths:?}")));
        }
        let body = &self.node.bodies[0];
        let n_outputs = body.outputs().len().saturating_sub(n_states);
        let mut collected: Vec<Vec<Value>> = vec![Vec::new(); n_outputs];
        let mut held = 0;
        for step in 0..length {
            self.trip(&states, &mut held, walk)?;
            let mut inputs = std::mem::take(&mut states);
            for &(tensor, axis, backwards) in &scanned {
                let place = if backwards { length - 1 - step } else { step };
                inputs.push(self.slice(tensor, axis, place)?);
            }
            let mut outputs = self.body(0, inputs, walk)?.into_iter();
            states = outputs.by_ref().take(n_states).collect();
            for (idx, (parts, value)) in collected.iter_mut().zip(outputs).enumerate() {
                if self.is_wanted(n_states + idx) {
                    self.collect(value, parts, walk)?;
                }
            }
        }
        walk.meter.let_go(held);
        let mut made: Vec<Option<Value>> = states.into_iter().map(Some).collect();
        for (idx, mut parts) in collected.into_iter().enumerate() {
            if !self.is_wanted(n_states + idx) {
                made.push(None);
                continue;
            }
            if scan.scan_output_directions.get(idx).copied().unwrap_or(0) == 1 {
                parts.reverse();
            }
            let axis = scan.scan_output_axes.get(idx).copied().unwrap_or(0);
            made.push(Some(self.stack(parts, axis, body.outputs()[n_states + idx], walk)?));
        }
        Ok(made)
    }

    /// One step of a scan input: the element at `place` along `axis`, that axis removed.
    fn slice(&self, tensor: &Tensor, axis: usize, place: usize) -> Result<Value, InterpretError> {
        let op = Op::from(planish_op::Gather { axis: axis as i64 });
        let (data, index) = (Value::from(tensor.clone()), Value::from(Tensor::scalar(place as i64)));
        let mut outputs = planish_reference::evaluate(&op, &[Some(&data), Some(&index)], 1)
            .map_err(|error| self.at(error))?;
        outputs.pop().ok_or_else(|| self.bad(EvalErrorKind::BadShape, "nothing was sliced"))
    }

    fn sequence_map(&self, walk: &mut Walk<'_>) -> Result<Vec<Option<Value>>, InterpretError> {
        let Value::Sequence(first) = self.own_input(0)? else {
            return Err(self.bad(EvalErrorKind::BadType, "input 0 must be a sequence"));
        };
        let mut outputs: Vec<Vec<Value>> = vec![Vec::new(); self.node.bodies[0].outputs().len()];
        for step in 0..first.len() {
            self.trip(&[], &mut 0, walk)?;
            let mut inputs = Vec::new();
            for idx in 0..self.own.len() {
                inputs.push(match self.own_input(idx)? {
                    Value::Sequence(elements) => elements
                        .get(step)
                        .cloned()
                        .ok_or_else(|| self.bad(EvalErrorKind::BadShape, "the sequences differ in length"))?,
                    other => other.clone(),
                });
            }
            let made = self.body(0, inputs, walk)?;
            for (idx, (list, value)) in outputs.iter_mut().zip(made).enumerate() {
                if self.is_wanted(idx) {
                    self.collect(value, list, walk)?;
                }
            }
        }
        let made: Vec<Value> = outputs.into_iter().map(Value::Sequence).collect();
        walk.meter.let_go(made.iter().map(Value::bytes).sum());
        Ok(made.into_iter().map(Some).collect())
    }
}
