//! What memory a plan and its contexts take: known before a run, and listed while they live.

use planish_kernel::{Memory, MemoryInfo, MemoryKind};

use crate::bind::Symbols;
use crate::branches::DEFAULT_STREAMS;
use crate::context::Context;
use crate::engine::Engine;
use crate::error::RunError;
use crate::frame::Frame;
use crate::memory::Own;
use crate::resolve::{Action, Resolved, resolve};

/// The memory of a plan at given sizes, known before anything runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryNeeds {
    /// By target of the plan.
    pub targets: Vec<TargetNeeds>,
    /// Whether that is all. What stands after sizes that only a run can tell, and bodies of control flow, are left
    /// out.
    pub is_whole: bool,
}

/// What a plan takes in the memory of one of its targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TargetNeeds {
    pub on_device: bool,
    /// Shared by all contexts, in the form that kernels read.
    pub weights: usize,
    /// Weights that stay in pinned host memory and are brought here in every run.
    pub streamed: usize,
    /// Of each context: what these come to.
    pub ring: usize,
    /// What of the weights was made when the plan was opened, widened or packed from what its file has: this much is
    /// not shared with other processes that open it.
    pub expanded: usize,
    /// Of each context: what lies between steps, workspace of kernels included.
    pub arena: usize,
    /// The most workspace that a step has in the arena.
    pub workspace: usize,
    /// Of each context: its outputs, and values that have memory of their own.
    pub values: usize,
}

/// What a context holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContextMemory {
    /// On the device: what lies between steps, workspace of kernels included.
    pub device_arena: usize,
    /// The most workspace that a step has in that arena.
    pub device_workspace: usize,
    /// On the device: values that have memory of their own.
    pub device_values: usize,
    /// On the device: what streamed weights come to.
    pub device_ring: usize,
    pub n_graphs: usize,
    /// Device memory of the captured graphs, as far as the device tells.
    pub graphs: usize,
    /// On the host, pinned where there is a device: what lies between steps, and outputs.
    pub host: usize,
    /// On the host: what inputs pass through on their way to the device.
    pub staging: usize,
}

impl Engine {
    /// The memory that the plan needs at these sizes of its symbols.
    pub fn memory_at(&self, sizes: &[(String, i64)]) -> Result<MemoryNeeds, RunError> {
        let core = &self.core;
        let threads = core.plan.header.threads.max(1) as usize;
        let symbols = Symbols::from_pairs(sizes);
        let mut targets: Vec<TargetNeeds> = core
            .backends
            .iter()
            .zip(core.weights.bytes.iter().zip(&core.weights.expanded))
            .map(|(backend, (&weights, &expanded))| TargetNeeds {
                on_device: backend.memory_kind() == MemoryKind::Device,
                weights,
                expanded,
                ..TargetNeeds::default()
            })
            .collect();
        if let Some(streaming) = &core.weights.streaming {
            let needs = &mut targets[streaming.target as usize];
            (needs.streamed, needs.ring) = (streaming.host_bytes, streaming.ring_bytes);
        }
        let program = &core.unit.program;
        let mut is_whole = core.unit.bodies.iter().all(Vec::is_empty);
        for (idx, segment) in core.unit.outline.segments.iter().enumerate() {
            let resolved = match resolve(core, &core.unit, idx, &symbols, threads, DEFAULT_STREAMS) {
                Ok(resolved) => resolved,
                Err(error) if idx == 0 => return Err(error),
                Err(_) => {
                    is_whole = false;
                    break;
                }
            };
            for (needs, bytes) in targets.iter_mut().zip(&resolved.arena_bytes) {
                // Segments use the same arena, one after the other.
                needs.arena = needs.arena.max(*bytes);
            }
            let output = |&(output, bytes): &(u32, usize)| (program.outputs[output as usize], bytes);
            let values = resolved.output_bytes.iter().map(output).chain(resolved.own_bytes.iter().copied());
            for (value, bytes) in values {
                targets[program.values[value as usize].target as usize].values += bytes;
            }
            for (step, record) in resolved.steps.iter().zip(&program.steps[segment.first..]) {
                if let Action::Kernel { kernel, .. } = &step.action {
                    let needs = &mut targets[record.target as usize];
                    needs.workspace = needs.workspace.max(kernel.workspace_bytes());
                }
            }
        }
        Ok(MemoryNeeds { targets, is_whole })
    }

    /// The memory of the plan's device at this moment; `None` for a plan on the host alone.
    pub fn device_memory(&self) -> Option<MemoryInfo> {
        self.core.backends[self.core.plan.device()? as usize].memory_info()
    }
}

impl Context {
    /// What the context holds at this moment; nothing is known of one whose run is under way.
    pub fn memory(&self) -> ContextMemory {
        let core = &self.engine().core;
        let Some(state) = &self.state else { return ContextMemory::default() };
        let mut memory = ContextMemory::default();
        let on_device = |target: usize| core.is_device(target as u32);
        let frame = &state.frame;
        for target in 0..core.backends.len() {
            let arena = frame.arena_bytes_of(target);
            match on_device(target) {
                true => memory.device_arena += arena,
                false => memory.host += arena,
            }
        }
        let length = |memory: &Option<Box<dyn Memory>>| memory.as_ref().map_or(0, |memory| memory.len());
        memory.host += frame.memory.outputs.iter().map(length).sum::<usize>();
        memory.staging += frame.memory.pinned.iter().map(length).sum::<usize>();
        memory.staging +=
            frame.memory.aligned.iter().map(|words| words.len() * size_of::<u64>()).sum::<usize>();
        memory.staging += state.queues.staging_bytes();
        for (own, value) in frame.memory.own.iter().zip(&core.unit.program.values) {
            if let Own::Memory(own) = own {
                match on_device(value.target as usize) {
                    true => memory.device_values += own.len(),
                    false => memory.host += own.len(),
                }
            }
        }
        memory.device_ring = length(&frame.memory.ring);
        (memory.n_graphs, memory.graphs) = frame.graphs();
        memory.device_workspace =
            core.plan.device().map_or(0, |device| frame.workspace_bytes(device as usize));
        memory
    }
}

impl Frame {
    /// The most workspace that a step on this target has at the sizes that are kept.
    fn workspace_bytes(&self, target: usize) -> usize {
        let of = |resolved: &Resolved| {
            let each = resolved.steps.iter().filter_map(|step| match &step.action {
                Action::Kernel { kernel, workspace } if workspace.is_in_arena_of(target) => {
                    Some(kernel.workspace_bytes())
                }
                _ => None,
            });
            each.max().unwrap_or(0)
        };
        let own = self.prepared.all().map(of);
        own.chain(self.bodies.iter().flatten().map(|body| body.workspace_bytes(target))).max().unwrap_or(0)
    }
}
