//! Operators that plugins bring. A plugin says what it computes in a declaration (inputs, outputs and attributes by name,
//! sizes as expressions, tolerance, a reference) and brings code: a Rust type, the functions of a shared library through
//! `planish_plugin.h`, or the text of a CUDA kernel. docs/plugins.md tells how to write one.
//!
//! - `declaration`, `signature`, `expression`, `formula`: the language of declarations;
//! - `plugin`: [`Plugin`], and the traits that code implements; backends ask [`plugins_for`] and [`of_tactic`];
//! - `abi`: the C interface; `library`: files.

mod abi;
mod declaration;
mod expression;
mod formula;
mod function;
mod library;
mod plugin;
mod signature;

pub use abi::ABI;
pub use declaration::{AttributeRule, Declaration, LaunchRule, TacticRule, dtype};
pub use expression::Expression;
pub use formula::{Argument, Call, Formula, Setting};
pub use function::Slices;
pub use library::{discover, load, read};
pub use plugin::{
    Operator, Place, Plugin, PluginError, Prepared, Run, Task, Threads, of_tactic, plugins, plugins_for,
};
pub use signature::{Axis, Bound, Form, Port, PortType, REST, Signature};
