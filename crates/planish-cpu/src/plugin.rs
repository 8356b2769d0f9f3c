//! Plugins' operators: what a plugin brings for the CPU, with pointwise operators after it where it allows them.

use planish_kernel::pointwise::Program;
use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, Layout, Problem, Ref, Tactic, Want, layouts_for,
};
use planish_op::Op;
use planish_plugin::{Place, Plugin, Prepared, Run, Threads, of_tactic, plugins_for};
use planish_tensor::Tensor;

use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::pointwise::Pointwise;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

#[cfg(test)]
mod tests;

/// Operations of an element, as the price counts them: nothing is known of a plugin's but what it moves.
const OPERATIONS: f64 = 4.0;

/// Operators of plugins.
#[derive(Debug)]
pub(crate) struct PluginFamily;

impl Family for PluginFamily {
    fn name(&self) -> &'static str {
        "plugin"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(Op::Custom(op)) = problem.region.nodes.first().map(|node| &node.op) else {
            return Vec::new();
        };
        let operations = OPERATIONS * problem.outputs.iter().map(|output| output.len()).sum::<usize>() as f64;
        let ns = expected_ns(isa, operations, problem.traffic_bytes() as f64, problem.threads);
        let mut candidates = Vec::new();
        for plugin in plugins_for(op, Place::Cpu) {
            let declaration = plugin.declaration();
            for layout in layouts_for(&problem.outputs) {
                if layout != Layout::Plain && !declaration.channels_last {
                    continue;
                }
                let want = Want { inside: declaration.strided, ..Want::dense(layout) };
                let inputs = problem.inputs.iter().map(|input| match input.constant {
                    true => Want::dense(Layout::Plain),
                    false => want,
                });
                let inputs: Vec<Want> = inputs.collect();
                let outputs = vec![want; problem.outputs.len()];
                let laid = problem.with_layouts(&inputs, &outputs);
                for rule in &declaration.tactics {
                    if Settled::new(isa, &plugin, &laid, &rule.name).is_err() {
                        continue;
                    }
                    let tactic = Tactic::new(plugin.tactic_name(&rule.name), 1);
                    let in_place = in_place(&plugin, &laid);
                    candidates.push(Candidate {
                        in_place,
                        ..Candidate::new(tactic, inputs.clone(), outputs.clone(), ns)
                    });
                }
            }
        }
        candidates
    }

    fn in_place(&self, _isa: Isa, problem: &Problem) -> Vec<(usize, usize)> {
        let Some(Op::Custom(op)) = problem.region.nodes.first().map(|node| &node.op) else {
            return Vec::new();
        };
        // The same for all of them: what each allows.
        let mut all = plugins_for(op, Place::Cpu).into_iter().map(|plugin| in_place(&plugin, problem));
        let first = all.next().unwrap_or_default();
        all.fold(first, |common, own| common.into_iter().filter(|pair| own.contains(pair)).collect())
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let Some((plugin, name)) = of_tactic(&tactic.name) else {
            let message =
                format!("the plugin of `{}` is not loaded: give its file by `--plugin FILE`", tactic.name);
            return Err(KernelError::new(KernelErrorKind::NoSuchTactic, message));
        };
        Ok(Box::new(Settled::new(isa, &plugin, problem, &name)?))
    }
}

/// What an output may share memory with: nothing, where more follows that may read the input again.
fn in_place(plugin: &Plugin, problem: &Problem) -> Vec<(usize, usize)> {
    let [node] = &problem.region.nodes[..] else { return Vec::new() };
    let of_region = |(output, input): &(usize, usize)| match node.inputs.get(*input) {
        Some(Some(Ref::Input(idx))) if !problem.inputs[*idx as usize].constant => {
            Some((*output, *idx as usize))
        }
        _ => None,
    };
    let is_single = |(_, input): &(usize, usize)| {
        let reads = |r: &&Option<Ref>| **r == Some(Ref::Input(*input as u32));
        node.inputs.iter().filter(reads).count() == 1
    };
    plugin.declaration().in_place.iter().filter_map(of_region).filter(is_single).collect()
}

/// Where the plugin reads an operand.
#[derive(Debug)]
enum Source {
    Input(usize),
    Constant(Tensor),
    Nothing,
}

/// A plugin's operator for exact operands.
#[derive(Debug)]
struct Settled {
    name: String,
    prepared: Box<dyn Prepared>,
    sources: Vec<Source>,
    /// What follows.
    epilogue: Option<Pointwise>,
}

impl Settled {
    fn new(isa: Isa, plugin: &Plugin, problem: &Problem, tactic: &str) -> Result<Settled, KernelError> {
        let task = plugin.task(problem, Place::Cpu, tactic).map_err(KernelError::unsupported)?;
        let epilogue = match problem.region.nodes.len() {
            1 => None,
            _ if !plugin.declaration().epilogue => {
                return Err(KernelError::unsupported("the plugin takes no epilogue"));
            }
            _ => {
                let program = Program::epilogue(problem, 0)?;
                let output = &task.outputs[0];
                if program.dims != output.dims || !output.is_dense(Layout::Plain) || output.rank() == 0 {
                    return Err(KernelError::unsupported("an epilogue of other sizes"));
                }
                Some(Pointwise::for_order(isa, problem, &program)?)
            }
        };
        let sources = problem.region.nodes[0].inputs.iter().map(|input| match input {
            Some(Ref::Input(idx)) => Source::Input(*idx as usize),
            constant => problem
                .region
                .constant(*constant)
                .map_or(Source::Nothing, |tensor| Source::Constant(tensor.clone())),
        });
        let prepared = plugin.prepare(&task).map_err(KernelError::unsupported)?;
        let name = format!("the plugin {} ({})", plugin.identity(), plugin.identity().origin);
        Ok(Settled { name, prepared, sources: sources.collect(), epilogue })
    }

    fn own_bytes(&self) -> usize {
        self.prepared.workspace_bytes().next_multiple_of(64)
    }
}

struct OfTeam<'a>(&'a Team);

impl Threads for OfTeam<'_> {
    fn for_each(&self, n_tasks: usize, work: &(dyn Fn(usize, usize) + Sync)) {
        self.0.for_each(n_tasks, &|task| work(task.idx, task.slot));
    }
}

impl Work for Settled {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        self.own_bytes() + n_slots * self.epilogue.as_ref().map_or(0, Pointwise::workspace_bytes)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let pointer = |source: &Source| match source {
            Source::Input(idx) => shared.inputs[*idx],
            Source::Constant(tensor) => tensor.bytes().as_ptr(),
            Source::Nothing => std::ptr::null(),
        };
        let inputs: Vec<*const u8> = self.sources.iter().map(pointer).collect();
        let own = self.own_bytes();
        let finish = |first: usize, n: usize, slot: usize| {
            let Some(program) = &self.epilogue else { return };
            let (mut at, end, len) = (first, first + n, program.n_cols());
            let shared = &shared;
            // SAFETY: the plugin vouches for elements that it has written and a slot of its own; the caller grants the rest.
            unsafe {
                let workspace = shared.workspace.add(own + slot * program.workspace_bytes());
                let y = shared.outputs[0].cast::<f32>();
                // Whole rows together, and what is left of the first and the last one.
                while at < end {
                    let (row, col) = (at / len, at % len);
                    let (n_rows, n_cols) = match (end - at) / len {
                        whole if col == 0 && whole > 0 => (whole, len),
                        _ => (1, (end - at).min(len - col)),
                    };
                    let (rows, cols) = (row..row + n_rows, col..col + n_cols);
                    program.run_block(shared.inputs, y.add(at), len, rows, cols, workspace);
                    at += n_rows * n_cols;
                }
            }
        };
        let run = Run {
            inputs: &inputs,
            outputs: shared.outputs,
            workspace: shared.workspace,
            workspace_bytes: own,
            stream: std::ptr::null_mut(),
            threads: &OfTeam(team),
            finish: self.epilogue.as_ref().map(|_| &finish as &(dyn Fn(usize, usize, usize) + Sync)),
        };
        // SAFETY: the caller grants what the operands span and the workspace.
        unsafe { self.prepared.run(&run) }
            .map_err(|why| KernelError::new(KernelErrorKind::Failed, format!("{}: {why}", self.name)))
    }
}
