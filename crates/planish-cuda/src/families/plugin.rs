//! Plugins' operators: the text of a `.cu` plugin, compiled like our own kernels, with pointwise operators after it where it
//! allows them.
//!
//! A text is given macros for its element types and for the numbers of its tactic, and a structure `PluginArgs` with every
//! size and number of its declaration by name. `pl_finish(v, at, left, a EPILOGUE_ARGS)` goes on with the first `left` of
//! an array of results, from element `at` of the output on.

use planish_gpu::args::{Field, Structure, Structures};
use planish_gpu::epilogue::{EpilogueArgs, EpilogueCode};
use planish_gpu::operands::{candidate, refuse, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Ref, Tactic, Want};
use planish_op::{Attribute, Op};
use planish_plugin::{Place, Plugin, Task, of_tactic, plugins_for};

use crate::family::Family;
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

/// Results that are finished at once.
const LANES: usize = 1;

/// Numbers that a text is given by name.
#[derive(Clone, Debug)]
enum Number {
    Whole(i64),
    Float(f32),
}

/// What a text is given: sizes, integer and float attributes by name, and the strides of what follows.
#[derive(Clone, Debug)]
struct PluginArgs {
    numbers: Vec<(String, Number)>,
    epilogue: EpilogueArgs,
    /// The length of the output's last axis, by which what follows counts.
    last: i64,
}

impl PluginArgs {
    fn structure(&self) -> Structure {
        let mut structure = Structure::new("PluginArgs");
        for (name, number) in &self.numbers {
            match number {
                Number::Whole(number) => structure.field(name, number),
                Number::Float(number) => structure.field(name, number),
            }
        }
        structure.field("pl_last", &self.last);
        structure.field("pl_epilogue", &self.epilogue);
        structure.end(self.align())
    }
}

impl Field for PluginArgs {
    fn c_type(&self) -> &'static str {
        "PluginArgs"
    }

    fn align(&self) -> usize {
        align_of::<i64>()
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.structure().bytes());
    }

    fn declare(&self, structures: &mut Structures) {
        if !structures.has("PluginArgs") {
            self.epilogue.declare(structures);
            structures.add(self.structure());
        }
    }
}

/// Operators of plugins that bring a text of CUDA C++.
pub(crate) struct PluginFamily;

fn plan(plugin: &Plugin, problem: &Problem, tactic: &str) -> Result<Plan, KernelError> {
    let task = plugin.task(problem, Place::Cuda, tactic).map_err(KernelError::unsupported)?;
    let (Some((file, text, kernel)), Some(rule)) = (plugin.source(), &plugin.declaration().launch) else {
        return refuse("a plugin without a text of CUDA C++");
    };
    let is_alone = problem.region.nodes.len() == 1;
    if !is_alone && !plugin.declaration().epilogue {
        return refuse("the plugin takes no epilogue");
    }
    let output = &task.outputs[0];
    // Nothing is done, and nothing divided, where nothing follows.
    let epilogue = match !is_alone && output.rank() > 0 {
        false => None,
        true => {
            let axes: Vec<usize> = (0..output.rank()).collect();
            let (rows, cols) = axes.split_at(output.rank() - 1);
            Some(EpilogueCode::after(problem, 0, [rows, &[], &[], &[]], cols, LANES)?)
        }
    };
    let numbers = PluginArgs {
        numbers: numbers(&task),
        epilogue: epilogue.as_ref().map_or_else(EpilogueArgs::default, |epilogue| epilogue.args.clone()),
        last: output.dims.last().map_or(1, |last| *last as i64),
    };
    let mut code = match &epilogue {
        Some(epilogue) => epilogue.code(file, text, kernel, &numbers).before(FINISH),
        None => KernelCode::new(file, text, kernel, &numbers)
            .before("template <class... P> PL_INLINE void pl_finish(P&&...) {}\n")
            .define("EPILOGUE_PARAMS", "")
            .define("EPILOGUE_ARGS", ""),
    };
    for (name, dtype) in &task.bound.types {
        let operand = planish_kernel::Operand::dense(*dtype, &[], Layout::Plain);
        code = code.define(name, storage(&operand)?);
    }
    for (name, number) in &task.defines {
        code = code.define(name, number);
    }
    let number = |name: &str| task.number(name);
    let eval = |expression: &planish_plugin::Expression, what: &str, most: i64| match expression.eval(&number)
    {
        Some(value) if (0..=most).contains(&value) => Ok(value),
        value => refuse(format!("the {what} of {} is {value:?}", plugin.identity())),
    };
    let mut grid = [1u32; 3];
    for (to, (expression, most)) in
        grid.iter_mut().zip(rule.grid.iter().zip([i64::from(i32::MAX), 65535, 65535]))
    {
        *to = eval(expression, "grid", most)? as u32;
    }
    if grid.contains(&0) {
        return Ok(Plan::default());
    }
    let threads = eval(&rule.threads, "number of threads", 1024)?.max(1) as u32;
    let mut args = Vec::new();
    for input in &problem.region.nodes[0].inputs {
        args.push(match input {
            None => Arg::Nothing,
            Some(Ref::Input(idx)) => Arg::Address(Slot::Input(*idx as usize), 0),
            Some(_) => return refuse("an input that is a constant of the region"),
        });
    }
    args.resize(plugin.declaration().signature.inputs.len(), Arg::Nothing);
    args.extend((0..task.outputs.len()).map(|idx| Arg::Address(Slot::Output(idx), 0)));
    args.push(Arg::Address(Slot::Workspace, 0));
    args.push(Arg::of(&numbers));
    args.extend(epilogue.iter().flat_map(|epilogue| epilogue.addresses.iter().cloned()));
    let mut plan = Plan::one(code, grid, threads, args);
    plan.steps[0].shared = eval(&rule.shared, "shared memory", 1 << 18)? as usize;
    plan.workspace = plugin.declared_workspace(&task).map_err(KernelError::unsupported)?;
    Ok(plan)
}

/// Goes on with results in the order of the output, the first `left` of them.
const FINISH: &str = "template <int W, class A, class... P>\n\
  PL_INLINE void pl_finish(float (&v)[W], i64 at, int left, const A& a, P... p) {\n\
  #pragma unroll\n\
    for (int i = 0; i < W; i++) {\n\
      if (i >= left) break;\n\
      float one[1] = {v[i]};\n\
      const i64 row = (at + i) / a.pl_last;\n\
      epilogue(one, a.pl_epilogue, (int)row, 0, 0, 0, (int)(at + i - row * a.pl_last), 1, p...);\n\
      v[i] = one[0];\n\
    }\n\
  }\n";

fn numbers(task: &Task) -> Vec<(String, Number)> {
    let mut all: Vec<(String, Number)> =
        task.bound.sizes.iter().map(|(name, size)| (name.clone(), Number::Whole(*size))).collect();
    for (name, value) in &task.attributes {
        if let Attribute::Float(value) = value {
            all.push((name.clone(), Number::Float(*value)));
        }
    }
    all
}

impl Family for PluginFamily {
    fn name(&self) -> &'static str {
        "plugin"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(Op::Custom(op)) = problem.region.nodes.first().map(|node| &node.op) else {
            return Vec::new();
        };
        let wants = |n: usize| vec![Want::dense(Layout::Plain); n];
        let (inputs, outputs) = (wants(problem.inputs.len()), wants(problem.outputs.len()));
        let laid = problem.with_layouts(&inputs, &outputs);
        let ns = gpu.roofline_ns(0.0, 1.0, problem.traffic_bytes() as f64);
        let mut all = Vec::new();
        for plugin in plugins_for(op, Place::Cuda) {
            for rule in &plugin.declaration().tactics {
                if plan(&plugin, &laid, &rule.name).is_ok() {
                    let name = plugin.tactic_name(&rule.name);
                    all.push(candidate(name, 1, inputs.clone(), outputs.clone(), ns));
                }
            }
        }
        all
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        match of_tactic(&tactic.name) {
            Some((plugin, name)) => plan(&plugin, problem, &name),
            None => refuse(format!(
                "the plugin of `{}` is not loaded: give its file by `--plugin FILE`",
                tactic.name
            )),
        }
    }
}
