//! What programs are expected to cost: how work is cut into tasks, and what candidates are ranked by.

use planish_kernel::pointwise::{Binary, Inst, Program};

use super::unary::unary_cost;

/// Work of a task: long beside the fork and join, short beside a whole layer.
pub(crate) const TASK_NS: f64 = 20_000.0;

/// Operations of f32 that a thread with AVX-512 is priced at for a nanosecond: what turns the nanoseconds below
/// into what narrower vectors take.
pub(crate) const OPERATIONS_PER_NS: f64 = 96.0;

/// Nanoseconds that an element is expected to take, on a machine with AVX-512.
pub(crate) fn cost_per_element(program: &Program) -> f64 {
    let of = |inst: &Inst| match inst {
        Inst::Input(_) | Inst::Running | Inst::Constant(_) => 0.02,
        Inst::Unary(op, _) => unary_cost(*op),
        Inst::Binary(Binary::Pow, ..) => 20.0,
        Inst::Binary(Binary::Fmod, ..) => 10.0,
        Inst::Binary(..) | Inst::Clamp { .. } | Inst::Select { .. } | Inst::Cast(_) | Inst::Saturate(_) => {
            0.04
        }
    };
    program.code.iter().map(of).sum::<f64>().max(0.05)
}
