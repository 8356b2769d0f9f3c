//! Steps with bodies: If, Loop, Scan and SequenceMap over programs of their own.

use planish_kernel::{Ref, Region};
use planish_op::{Op, Stop, Value};
use planish_plan::{Step, StepKind};
use planish_tensor::{Bytes, Tensor};

use crate::engine::Unit;
use crate::error::{RunError, RunErrorKind};
use crate::feed::Feed;
use crate::frame::Frame;
use crate::run::{Observed, Run, Watch};

/// Runs a step of control flow on host values, number `idx` of the program that `run` is of. Whoever looks on there is
/// shown what steps of the bodies read and wrote.
pub(crate) fn run_control(
    run: &mut Run<'_, '_>,
    step: &Step,
    units: &[Unit],
    frames: &mut Vec<Frame>,
    inputs: &[Option<Value>],
    idx: usize,
) -> Result<Vec<Value>, RunError> {
    frames.resize_with(units.len(), Frame::default);
    let n_captured = match &step.kind {
        StepKind::Control(control) => control.n_captured as usize,
        StepKind::Kernel { .. } | StepKind::Transfer | StepKind::Evaluate => 0,
    };
    let (own, captured) = inputs.split_at(inputs.len().saturating_sub(n_captured));
    // The step names only the outputs that somebody wants.
    let is_wanted = |output: usize| {
        let one =
            |reference: &Ref| matches!(reference, Ref::Node { output: at, .. } if *at as usize == output);
        step.region.outputs.iter().any(one)
    };
    let mut control = Bodies { run, idx, step, units, frames, own, captured, is_wanted: &is_wanted };
    let all = match step.region.nodes.first().map(|node| &node.op) {
        Some(Op::If(_)) => control.if_(),
        Some(Op::Loop(_)) => control.loop_(),
        Some(Op::Scan(scan)) => control.scan(scan),
        Some(Op::SequenceMap(_)) => control.sequence_map(),
        _ => Err(control.bad("it is not control flow; the plan is damaged, rebuild it")),
    }?;
    let wanted = step.region.outputs.iter().map(|reference| match reference {
        Ref::Node { output, .. } => all.get(*output as usize).cloned().flatten(),
        Ref::Input(_) | Ref::Constant(_) => None,
    });
    wanted.collect::<Option<Vec<_>>>().ok_or_else(|| control.bad("an output was not made"))
}

struct Bodies<'a, 'r, 'w> {
    /// The run of the program that has the step.
    run: &'a mut Run<'r, 'w>,
    /// The step's place there.
    idx: usize,
    step: &'a Step,
    units: &'a [Unit],
    frames: &'a mut [Frame],
    own: &'a [Option<Value>],
    captured: &'a [Option<Value>],
    /// Whether somebody reads an output of the step. What would be collected for nobody is left out.
    is_wanted: &'a dyn Fn(usize) -> bool,
}

impl Bodies<'_, '_, '_> {
    fn bad(&self, detail: &str) -> RunError {
        RunError::new(RunErrorKind::BadValues, format!("step `{}`: {detail}", self.step.name))
    }

    fn stopped(&self, stop: Stop) -> RunError {
        let name = if self.step.name.is_empty() { self.step.region.ops() } else { self.step.name.clone() };
        RunError::stopped(&name, stop)
    }

    /// Counts a value that a loop keeps for one of its outputs.
    fn collect(&mut self, value: Value, list: &mut Vec<Value>) -> Result<(), RunError> {
        self.run.queues.meter.hold(value.bytes()).map_err(|stop| self.stopped(stop))?;
        list.push(value);
        Ok(())
    }

    /// Counts one more trip, and what is carried into it instead of what was carried into the one before.
    fn trip(&mut self, carried: &[Value], held: &mut u64) -> Result<(), RunError> {
        let meter = &mut self.run.queues.meter;
        let now = carried.iter().map(Value::bytes).sum();
        meter.let_go(std::mem::replace(held, now));
        meter.hold(now).and_then(|()| meter.trip()).map_err(|stop| self.stopped(stop))
    }

    /// Runs a body on its own inputs followed by the captured ones.
    fn body(&mut self, idx: usize, inputs: &[Value]) -> Result<Vec<Value>, RunError> {
        let captured = self.captured.iter().map(Option::as_ref);
        let all: Option<Vec<&Value>> = inputs.iter().map(Some).chain(captured).collect();
        let all = all.ok_or_else(|| self.bad("a captured value is missing"))?;
        let feeds: Vec<Feed<'_>> = all.into_iter().map(Feed::Value).collect();
        let (unit, frame) = (&self.units[idx], &mut self.frames[idx]);
        let Run { core, mode, ref mut queues, ref mut watch, .. } = *self.run;
        // Whoever looks on learns inside of which step of control flow a step ran.
        let path = (self.idx, idx);
        let outer = &mut watch.observer;
        let is_observed = outer.is_some();
        let mut observer = |mut observed: Observed| {
            observed.path.insert(0, path);
            if let Some(outer) = outer {
                outer(observed);
            }
        };
        let watch = match is_observed {
            true => Watch { observer: Some(&mut observer), ..Watch::default() },
            false => Watch::default(),
        };
        frame.run(Run { core, unit, feeds: &feeds, queues, mode, watch })?;
        frame.output_values(unit)
    }

    fn truth(&self, value: &Value) -> Result<bool, RunError> {
        match value.as_tensor() {
            Some(tensor) if tensor.len() == 1 => Ok(tensor.to_f64s()[0] != 0.0),
            _ => Err(self.bad("the condition must be one boolean")),
        }
    }

    fn own_input(&self, idx: usize) -> Result<&Value, RunError> {
        let value = self.own.get(idx).and_then(Option::as_ref);
        value.ok_or_else(|| self.bad(&format!("input {idx} is missing")))
    }

    fn if_(&mut self) -> Result<Vec<Option<Value>>, RunError> {
        let branch = if self.truth(self.own_input(0)?)? { 0 } else { 1 };
        Ok(self.body(branch, &[])?.into_iter().map(Some).collect())
    }

    fn loop_(&mut self) -> Result<Vec<Option<Value>>, RunError> {
        let max_trips = match self.own.first().and_then(Option::as_ref) {
            Some(value) => match value.as_tensor().map(Tensor::to_i64s).as_deref() {
                Some([trips]) => *trips,
                _ => return Err(self.bad("the trip count must be one integer")),
            },
            None => i64::MAX,
        };
        let mut go_on = match self.own.get(1).and_then(Option::as_ref) {
            Some(value) => self.truth(value)?,
            None => true,
        };
        let n_carried = self.own.len().saturating_sub(2);
        let mut carried: Vec<Value> =
            (2..self.own.len()).map(|idx| self.own_input(idx).cloned()).collect::<Result<_, _>>()?;
        let n_outputs = self.units[0].program.outputs.len();
        let mut scans: Vec<Vec<Value>> = vec![Vec::new(); n_outputs.saturating_sub(1 + n_carried)];
        let (mut trip, mut held) = (0i64, 0);
        while go_on && trip < max_trips {
            self.trip(&carried, &mut held)?;
            let mut inputs = vec![Value::Tensor(Tensor::scalar(trip)), Value::Tensor(Tensor::scalar(go_on))];
            inputs.append(&mut carried);
            let mut outputs = self.body(0, &inputs)?.into_iter();
            let condition = outputs.next().ok_or_else(|| self.bad("the body has no outputs"))?;
            go_on = self.truth(&condition)?;
            carried = outputs.by_ref().take(n_carried).collect();
            for (idx, (scan, value)) in scans.iter_mut().zip(outputs).enumerate() {
                if (self.is_wanted)(n_carried + idx) {
                    self.collect(value, scan)?;
                }
            }
            trip += 1;
        }
        self.run.queues.meter.let_go(held);
        let mut made: Vec<Option<Value>> = carried.into_iter().map(Some).collect();
        for parts in scans {
            let is_wanted = (self.is_wanted)(made.len());
            made.push(if is_wanted { Some(self.stack(parts, 0, 1 + made.len())?) } else { None });
        }
        Ok(made)
    }

    fn scan(&mut self, scan: &planish_op::Scan) -> Result<Vec<Option<Value>>, RunError> {
        let n_scanned = usize::try_from(scan.num_scan_inputs).unwrap_or(usize::MAX);
        let n_states = self.own.len().checked_sub(n_scanned);
        let n_states = n_states.ok_or_else(|| self.bad("num_scan_inputs exceeds the inputs"))?;
        let mut states: Vec<Value> =
            (0..n_states).map(|idx| self.own_input(idx).cloned()).collect::<Result<_, _>>()?;
        let mut scanned = Vec::new();
        for idx in 0..n_scanned {
            let tensor = self.own_input(n_states + idx)?.as_tensor();
            let tensor = tensor.ok_or_else(|| self.bad("a scan input must be a tensor"))?.clone();
            let axis = scan.scan_input_axes.get(idx).copied().unwrap_or(0);
            let axis = planish_tensor::normalize_axis(axis, tensor.rank())
                .map_err(|error| self.bad(&error.to_string()))?;
            scanned.push((tensor, axis, scan.scan_input_directions.get(idx).copied().unwrap_or(0) == 1));
        }
        let lengths: Vec<usize> = scanned.iter().map(|(tensor, axis, _)| tensor.shape()[*axis]).collect();
        let length = lengths.first().copied().unwrap_or(0);
        if lengths.iter().any(|&other| other != length) {
            return Err(self.bad(&format!("scan inputs have lengths {lengths:?}")));
        }
        let n_outputs = self.units[0].program.outputs.len().saturating_sub(n_states);
        let mut collected: Vec<Vec<Value>> = vec![Vec::new(); n_outputs];
        let mut held = 0;
        for trip in 0..length {
            self.trip(&states, &mut held)?;
            let mut inputs = std::mem::take(&mut states);
            for (tensor, axis, backwards) in &scanned {
                let place = if *backwards { length - 1 - trip } else { trip };
                inputs.push(self.slice(tensor, *axis, place)?);
            }
            let mut outputs = self.body(0, &inputs)?.into_iter();
            states = outputs.by_ref().take(n_states).collect();
            for (idx, (parts, value)) in collected.iter_mut().zip(outputs).enumerate() {
                if (self.is_wanted)(n_states + idx) {
                    self.collect(value, parts)?;
                }
            }
        }
        self.run.queues.meter.let_go(held);
        let mut made: Vec<Option<Value>> = states.into_iter().map(Some).collect();
        for (idx, mut parts) in collected.into_iter().enumerate() {
            if !(self.is_wanted)(n_states + idx) {
                made.push(None);
                continue;
            }
            if scan.scan_output_directions.get(idx).copied().unwrap_or(0) == 1 {
                parts.reverse();
            }
            let axis = scan.scan_output_axes.get(idx).copied().unwrap_or(0);
            made.push(Some(self.stack(parts, axis, n_states + idx)?));
        }
        Ok(made)
    }

    fn sequence_map(&mut self) -> Result<Vec<Option<Value>>, RunError> {
        let Value::Sequence(first) = self.own_input(0)? else {
            return Err(self.bad("input 0 must be a sequence"));
        };
        let length = first.len();
        let mut outputs: Vec<Vec<Value>> = vec![Vec::new(); self.units[0].program.outputs.len()];
        for trip in 0..length {
            self.trip(&[], &mut 0)?;
            let mut inputs = Vec::new();
            for idx in 0..self.own.len() {
                inputs.push(match self.own_input(idx)? {
                    Value::Sequence(elements) => elements
                        .get(trip)
                        .cloned()
                        .ok_or_else(|| self.bad("the sequences differ in length"))?,
                    other => other.clone(),
                });
            }
            let made = self.body(0, &inputs)?;
            for (idx, (list, value)) in outputs.iter_mut().zip(made).enumerate() {
                if (self.is_wanted)(idx) {
                    self.collect(value, list)?;
                }
            }
        }
        // Whoever takes them counts them.
        let made: Vec<Value> = outputs.into_iter().map(Value::Sequence).collect();
        self.run.queues.meter.let_go(made.iter().map(Value::bytes).sum());
        Ok(made.into_iter().map(Some).collect())
    }

    /// The parts along a new axis; without parts, an empty tensor of the inferred type (unknown sizes 0).
    fn stack(&mut self, parts: Vec<Value>, axis: i64, output: usize) -> Result<Value, RunError> {
        if parts.is_empty() {
            let program = &self.units[0].program;
            let value = &program.values[program.outputs[output] as usize];
            let ty = value.ty.as_tensor().ok_or_else(|| self.bad("a scan output must be a tensor"))?;
            let dims = ty.shape.as_ref().map(|shape| shape.dims().to_vec()).unwrap_or_default();
            let mut dims: Vec<usize> = dims.iter().map(|dim| dim.as_usize().unwrap_or(0)).collect();
            let axis = planish_tensor::normalize_axis(axis, dims.len() + 1).unwrap_or(0);
            dims.insert(axis, 0);
            let tensor = Tensor::zeros(ty.dtype, &dims).map_err(|error| self.bad(&error.to_string()))?;
            return Ok(Value::Tensor(tensor));
        }
        let held: u64 = parts.iter().map(Value::bytes).sum();
        let op = planish_op::ConcatFromSequence { new_axis: true, axis };
        let stacked = self.evaluate(op.into(), vec![Some(Value::Sequence(parts))])?;
        self.run.queues.meter.let_go(held);
        Ok(stacked)
    }

    /// The element at `place` along `axis`, that axis removed. Copied here: a trip takes one of each scanned tensor, and a
    /// step of its own would cost more than what most bodies do.
    fn slice(&self, tensor: &Tensor, axis: usize, place: usize) -> Result<Value, RunError> {
        if tensor.dtype().is_sub_byte() {
            let index = Value::Tensor(Tensor::scalar(place as i64));
            let op = planish_op::Gather { axis: axis as i64 };
            return self.evaluate(op.into(), vec![Some(Value::Tensor(tensor.clone())), Some(index)]);
        }
        let shape = tensor.shape();
        let run = shape[axis + 1..].iter().product::<usize>() * (tensor.dtype().bits() / 8);
        let bytes = tensor.bytes();
        let mut made = Vec::with_capacity(run * shape[..axis].iter().product::<usize>());
        if run > 0 {
            bytes
                .chunks_exact(run)
                .skip(place)
                .step_by(shape[axis])
                .for_each(|run| made.extend_from_slice(run));
        }
        let dims = [&shape[..axis], &shape[axis + 1..]].concat();
        let slice = Tensor::from_bytes(tensor.dtype(), &dims, Bytes::from_vec(made));
        slice.map(Value::Tensor).map_err(|error| self.bad(&error.to_string()))
    }

    fn evaluate(&self, op: Op, inputs: Vec<Option<Value>>) -> Result<Value, RunError> {
        let region = Region::single(op, inputs.len() as u32, 1);
        let room = usize::try_from(self.run.queues.meter.room()).unwrap_or(usize::MAX);
        let mut outputs = self.run.core.evaluate(self.step, &region, &inputs, room)?;
        outputs.pop().ok_or_else(|| self.bad("nothing was made"))
    }
}
