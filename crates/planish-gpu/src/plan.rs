//! Plans of launches as plain data: what most families make of a problem, without a GPU.
//!
//! A [`Plan`] names the kernels and, launch by launch, grid, block and arguments. Tests run plans without a device.

use crate::args::{ArgBytes, Field, Structures};
use crate::space::Divisor;

/// Where an address comes from at launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    Input(usize),
    Output(usize),
    Workspace,
    /// Where the kernel tells of an index out of range; null where nobody looks.
    Fault,
}

/// One argument of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arg {
    /// The address of an operand or of the workspace, so many bytes on.
    Address(Slot, usize),
    /// Null, for an operand that is left out.
    Nothing,
    /// Sizes, strides and whatever else is a number: the kernel's structure.
    Structure(ArgBytes),
}

/// One launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Which of the plan's sources; its first entry is launched.
    pub source: usize,
    pub grid: [u32; 3],
    pub threads: u32,
    /// Dynamic shared memory.
    pub shared: usize,
    /// Blocks along the grid's first axis that see each other's shared memory (sm_90 on).
    pub cluster: u32,
    pub args: Vec<Arg>,
}

/// What a problem becomes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    pub sources: Vec<KernelCode>,
    pub steps: Vec<Step>,
    pub workspace: usize,
}

/// The most bytes of a kernel's structure: half of what the driver allows.
pub const MAX_STRUCTURE: usize = 2048;

impl Arg {
    /// The structure that a kernel is given.
    pub fn of(args: &impl Field) -> Arg {
        Arg::Structure(ArgBytes::of(args))
    }
}

impl Plan {
    /// A plan of one launch.
    pub fn one(source: KernelCode, grid: [u32; 3], threads: u32, args: Vec<Arg>) -> Plan {
        let step = Step { source: 0, grid, threads, shared: 0, cluster: 1, args };
        Plan { sources: vec![source], steps: vec![step], workspace: 0 }
    }

    /// Another plan after this one. Sources that are the same are kept once; workspaces are shared, since
    /// neither outlives its plan.
    pub fn then(mut self, next: Plan) -> Plan {
        for mut step in next.steps {
            let source = &next.sources[step.source];
            step.source = self.sources.iter().position(|known| known == source).unwrap_or_else(|| {
                self.sources.push(source.clone());
                self.sources.len() - 1
            });
            self.steps.push(step);
        }
        self.workspace = self.workspace.max(next.workspace);
        self
    }
}

/// The text of a kernel after the helpers that kernels here share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelCode {
    /// The file's name, for messages and profilers.
    pub file: &'static str,
    defines: String,
    before: String,
    text: String,
    /// The kernel in it.
    pub entry: &'static str,
    structures: Structures,
}

impl KernelCode {
    /// A kernel that takes this structure.
    pub fn new(file: &'static str, text: &str, entry: &'static str, args: &impl Field) -> KernelCode {
        // The helpers divide.
        let structures = Structures::default().with(&Divisor::default()).with(args);
        KernelCode {
            file,
            defines: String::new(),
            before: String::new(),
            text: text.to_string(),
            entry,
            structures,
        }
    }

    /// With a macro. It stands after the helpers, whose own names may be the same.
    pub fn define(mut self, name: &str, value: impl std::fmt::Display) -> KernelCode {
        use std::fmt::Write;
        let _ = writeln!(self.defines, "#define {name} {value}");
        self
    }

    /// With further text before the kernel's own, in front of the macros.
    pub fn before(mut self, text: &str) -> KernelCode {
        self.before.push_str(text);
        self
    }

    /// What the compiler reads after the prelude, with the helpers that the backend's kernels share.
    pub fn text(&self, helpers_file: &str, helpers: &str) -> String {
        let KernelCode { file, defines, before, text, structures, .. } = self;
        let structures = structures.text();
        format!(
            "{structures}#line 1 \"{helpers_file}\"\n{helpers}\n{before}{defines}#line 1 \"{file}\"\n{text}"
        )
    }
}
