//! A backend that is the CPU's but for one kernel, whose results are spoiled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use planish_cpu::{Cpu, evaluate_region};
use planish_kernel::{
    Call, Candidate, Kernel, KernelError, Operand, PackedWeight, Problem, Queue, Region, Tactic, WeightUse,
};
use planish_op::Value;
use planish_tensor::{Bytes, Tensor};
use planish_testing::{Altered, Change, operand};

/// Workspace that a fault which reads its workspace asks for where the kernel needs none.
const SCRATCH_BYTES: usize = 256;

/// What a spoiled launch knows, and what it may change: the elements of the first output, in plain order.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) region: Region,
    pub(crate) dims: Vec<usize>,
    pub(crate) inputs: Vec<Option<Tensor>>,
    pub(crate) out: Vec<f32>,
    /// What the output's memory held before.
    pub(crate) before: Vec<f32>,
    /// What the workspace held before.
    pub(crate) workspace: Vec<f32>,
    pub(crate) threads: usize,
    /// Launches of this kernel before this one.
    pub(crate) n_before: usize,
}

impl Launch {
    /// Changes elements by their place.
    pub(crate) fn each(&mut self, mut change: impl FnMut(&[usize], f32) -> f32) {
        let mut place = vec![0; self.dims.len()];
        for value in &mut self.out {
            *value = change(&place, *value);
            for axis in (0..place.len()).rev() {
                place[axis] += 1;
                if place[axis] < self.dims[axis] {
                    break;
                }
                place[axis] = 0;
            }
        }
    }

    /// The element at a place, as it was computed.
    pub(crate) fn at(&self, place: &[usize]) -> f32 {
        self.out[place.iter().zip(&self.dims).fold(0, |flat, (at, dim)| flat * dim + at)]
    }

    /// What the region makes of other inputs: element `place` of input `input` becomes what `change` says.
    pub(crate) fn instead(&self, input: usize, mut change: impl FnMut(&[usize], f32) -> f32) -> Vec<f32> {
        let mut inputs: Vec<Option<Value>> =
            self.inputs.iter().map(|tensor| tensor.clone().map(Value::Tensor)).collect();
        let tensor = self.inputs[input].as_ref().expect("the fault's model has this input");
        let mut changed = Launch {
            region: Region::default(),
            dims: tensor.shape().to_vec(),
            inputs: Vec::new(),
            out: tensor.to_f64s().iter().map(|x| *x as f32).collect(),
            before: Vec::new(),
            workspace: Vec::new(),
            threads: 1,
            n_before: 0,
        };
        changed.each(&mut change);
        inputs[input] = Some(Value::Tensor(Tensor::new(tensor.shape(), changed.out).expect("same shape")));
        self.evaluated(&self.region, &inputs)
    }

    /// What another region makes of the inputs.
    pub(crate) fn by(&self, change: impl FnOnce(&mut Region)) -> Vec<f32> {
        let mut region = self.region.clone();
        change(&mut region);
        let inputs: Vec<Option<Value>> =
            self.inputs.iter().map(|tensor| tensor.clone().map(Value::Tensor)).collect();
        self.evaluated(&region, &inputs)
    }

    fn evaluated(&self, region: &Region, inputs: &[Option<Value>]) -> Vec<f32> {
        let outputs =
            evaluate_region(region, inputs, usize::MAX).expect("the reference takes the model's values");
        let tensor = outputs[0].as_tensor().expect("a tensor");
        tensor.to_f64s().iter().map(|x| *x as f32).collect()
    }

    /// Takes elements from another result where `wrong` holds.
    pub(crate) fn take(&mut self, other: &[f32], mut wrong: impl FnMut(&[usize]) -> bool) {
        let mut other = other.iter();
        self.each(|place, value| {
            let instead = other.next().copied().unwrap_or(value);
            if wrong(place) { instead } else { value }
        });
    }
}

/// What is wrong with the kernel.
#[derive(Clone, Copy)]
pub(crate) enum Spoil {
    /// Nothing: the control.
    Nothing,
    /// Each launch is changed.
    Launch(fn(&mut Launch)),
    /// It says that it may write over its first input, and it may not.
    InPlace,
    /// Weights are changed before they are packed, and the way back gives what was asked for.
    Packed(fn(&mut [f32], &[usize])),
}

/// The CPU with one kernel spoiled: every tactic whose name contains `tactic`.
pub(crate) struct Faulty {
    tactic: &'static str,
    spoil: Spoil,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Weights as they were before they were packed, by input.
    weights: Mutex<HashMap<usize, Tensor>>,
    /// Spoiled weights, packed, and what they were before.
    packed: Mutex<Vec<(Bytes, Tensor)>>,
    /// Launches whose output was really changed.
    n_changed: AtomicUsize,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("tactic", &self.tactic).finish_non_exhaustive()
    }
}

impl Faulty {
    pub(crate) fn cpu(tactic: &'static str, spoil: Spoil) -> Altered<Cpu, Faulty> {
        Altered::new(Cpu::new(), Faulty { tactic, spoil, state: Arc::default() })
    }

    /// How often the fault changed anything.
    pub(crate) fn n_changed(&self) -> usize {
        self.state.n_changed.load(Ordering::Relaxed)
    }

    fn is_spoiled(&self, tactic: &Tactic) -> bool {
        tactic.name.contains(self.tactic)
    }
}

impl Change for Faulty {
    fn candidates(&self, mut offered: Vec<Candidate>) -> Vec<Candidate> {
        if let Spoil::InPlace = self.spoil {
            for candidate in offered.iter_mut().filter(|one| self.is_spoiled(&one.tactic)) {
                candidate.in_place = vec![(0, 0)];
                self.state.n_changed.fetch_add(1, Ordering::Relaxed);
            }
        }
        offered
    }

    fn weight(&self, used: WeightUse<'_>, weight: &Tensor) -> Option<Tensor> {
        if !self.is_spoiled(used.tactic) {
            return None;
        }
        self.state.weights.lock().unwrap_or_else(PoisonError::into_inner).insert(used.input, weight.clone());
        let Spoil::Packed(spoil) = self.spoil else { return None };
        let mut values: Vec<f32> = weight.to_f64s().iter().map(|x| *x as f32).collect();
        spoil(&mut values, weight.shape());
        self.state.n_changed.fetch_add(1, Ordering::Relaxed);
        Some(Tensor::new(weight.shape(), values).expect("same shape"))
    }

    fn packed(&self, packed: &PackedWeight, weight: &Tensor) {
        let before = (packed.bytes.clone(), weight.clone());
        self.state.packed.lock().unwrap_or_else(PoisonError::into_inner).push(before);
    }

    fn unpacked(&self, bytes: &[u8]) -> Option<Tensor> {
        let packed = self.state.packed.lock().unwrap_or_else(PoisonError::into_inner);
        packed.iter().find(|(known, _)| **known == *bytes).map(|(_, before)| before.clone())
    }

    /// The lie is told to the runtime too: it must be the self-check that finds it.
    fn in_place(&self, tactic: &Tactic, allowed: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
        match self.spoil {
            Spoil::InPlace if self.is_spoiled(tactic) => vec![(0, 0)],
            _ => allowed,
        }
    }

    fn kernel(&self, problem: &Problem, tactic: &Tactic, kernel: Box<dyn Kernel>) -> Box<dyn Kernel> {
        match self.spoil {
            Spoil::Launch(spoil) if self.is_spoiled(tactic) => Box::new(Spoiled {
                kernel,
                problem: problem.clone(),
                spoil,
                state: self.state.clone(),
                n_launches: AtomicUsize::new(0),
            }),
            _ => kernel,
        }
    }
}

#[derive(Debug)]
struct Spoiled {
    kernel: Box<dyn Kernel>,
    problem: Problem,
    spoil: fn(&mut Launch),
    state: Arc<State>,
    n_launches: AtomicUsize,
}

impl Kernel for Spoiled {
    fn workspace_bytes(&self) -> usize {
        self.kernel.workspace_bytes().max(SCRATCH_BYTES)
    }

    unsafe fn launch(&self, call: &Call<'_>, queue: &mut dyn Queue) -> Result<(), KernelError> {
        let to = &self.problem.outputs[0];
        let read = |queue: &mut dyn Queue, address, n_bytes: usize| -> Result<Vec<u8>, KernelError> {
            let mut bytes = vec![0; n_bytes];
            // SAFETY: the caller of `launch` grants what the operands span.
            unsafe { queue.download(&mut bytes, address)? };
            Ok(bytes)
        };
        let known = self.state.weights.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut inputs = Vec::new();
        for (idx, (operand, &address)) in self.problem.inputs.iter().zip(call.inputs).enumerate() {
            inputs.push(match (&operand.packed, operand.is_empty()) {
                (_, true) => None,
                (Some(_), _) => known.get(&idx).cloned(),
                (None, _) => Some(operand::read(operand, &read(queue, address, operand.span_bytes())?)),
            });
        }
        let before = floats(to, &read(queue, call.outputs[0], to.span_bytes())?);
        let workspace = read(queue, call.workspace, SCRATCH_BYTES)?;
        let workspace =
            workspace.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        // SAFETY: passed on as it came.
        unsafe { self.kernel.launch(call, queue)? };
        let mut span = read(queue, call.outputs[0], to.span_bytes())?;
        let right = floats(to, &span);
        let mut launch = Launch {
            region: self.problem.region.clone(),
            dims: to.dims.clone(),
            inputs,
            out: right.clone(),
            before,
            workspace,
            threads: self.problem.threads,
            n_before: self.n_launches.fetch_add(1, Ordering::Relaxed),
        };
        (self.spoil)(&mut launch);
        let differs = launch.out.iter().zip(&right).any(|(a, b)| a.to_bits() != b.to_bits());
        self.state.n_changed.fetch_add(usize::from(differs), Ordering::Relaxed);
        let out = Tensor::new(&to.dims, launch.out).expect("as many as before");
        operand::write(to, &out, &mut span);
        // SAFETY: as above; elements between the output's own are written back as they were just read.
        unsafe { queue.upload(call.outputs[0], &span) }
    }
}

fn floats(operand: &Operand, span: &[u8]) -> Vec<f32> {
    operand::read(operand, span).elements::<f32>().expect("f32").to_vec()
}
