//! A plugin of this program against its reference: alone, with an epilogue, over edge shapes, and what is refused.

use planish_kernel::{Layout, Numeric, Problem};
use planish_op as op;
use planish_op::{Custom, Op};
use planish_plugin::{Operator, Task};
use planish_tensor::DType;
use planish_testing::{Random, Tolerance, assert_close, input, node, region};

use super::*;
use crate::trial;

/// One product and one sum in f32 of numbers below 4, and a sigmoid after them.
const CLOSE: Tolerance = Tolerance { relative: 1e-6, absolute: 1e-6 };

const DECLARATION: &str = "planish-plugin 1
op: test.cpu::Scaled
version: 1
types: T = float32
inputs: x: T[..., n], by: T[n]
outputs: y: T[..., n]
attributes: shift: float = 1.0
epilogue: yes
tactics: whole; rows
reference: y = Mul(x, by)
";

#[derive(Debug)]
struct Scaled;

#[derive(Debug)]
struct Ready {
    n_rows: usize,
    len: usize,
    by_rows: bool,
}

impl Operator for Scaled {
    fn prepare(&self, task: &Task) -> Result<Box<dyn Prepared>, String> {
        let number = |name: &str| task.number(name).map(|number| number as usize).ok_or("no such size");
        Ok(Box::new(Ready { n_rows: number("rest")?, len: number("n")?, by_rows: task.tactic == "rows" }))
    }
}

struct Pointers(*const f32, *const f32, *mut f32);
// SAFETY: rows are written by one task each.
unsafe impl Sync for Pointers {}

impl Pointers {
    /// # Safety
    /// Both places must be inside the operands.
    unsafe fn multiply(&self, place: usize, col: usize) {
        // SAFETY: the caller grants it.
        unsafe { *self.2.add(place) = *self.0.add(place) * *self.1.add(col) }
    }
}

impl Prepared for Ready {
    unsafe fn run(&self, run: &Run<'_>) -> Result<(), String> {
        let at = &Pointers(run.inputs[0].cast(), run.inputs[1].cast(), run.outputs[0].cast());
        let finish = run.finish;
        let row = |row: usize, slot: usize| {
            for col in 0..self.len {
                // SAFETY: the caller grants the operands, whose sizes the declaration says.
                unsafe {
                    at.multiply(row * self.len + col, col);
                }
            }
            if let Some(finish) = finish {
                finish(row * self.len, self.len, slot);
            }
        };
        if self.by_rows {
            run.threads.for_each(self.n_rows, &row);
            return Ok(());
        }
        for place in 0..self.n_rows * self.len {
            // SAFETY: as above.
            unsafe { at.multiply(place, place % self.len) };
        }
        // In pieces that begin and end within rows.
        let (n, piece) = (self.n_rows * self.len, self.len * 2 + self.len / 2 + 1);
        if let Some(finish) = finish {
            (0..n).step_by(piece).for_each(|first| finish(first, piece.min(n - first), 0));
        }
        Ok(())
    }
}

fn custom() -> Op {
    if planish_plugin::plugins().iter().all(|plugin| plugin.identity().name != "Scaled") {
        Plugin::new(DECLARATION, Scaled).unwrap().register().unwrap();
    }
    Op::Custom(Custom {
        domain: "test.cpu".into(),
        name: "Scaled".into(),
        version: 1,
        attributes: Vec::new(),
    })
}

fn dense(dims: &[usize]) -> planish_kernel::Operand {
    planish_kernel::Operand::dense(DType::F32, dims, Layout::Plain)
}

fn posed(dims: &[usize], with_epilogue: bool) -> Problem {
    let len = *dims.last().unwrap();
    let scaled = (custom(), vec![input(0), input(1)]);
    let region = match with_epilogue {
        false => region(2, Vec::new(), vec![scaled]),
        true => {
            let added = (op::Add {}.into(), vec![node(0), input(2)]);
            region(3, Vec::new(), vec![scaled, added, (op::Sigmoid {}.into(), vec![node(1)])])
        }
    };
    let mut inputs = vec![dense(dims), dense(&[len])];
    inputs.extend(with_epilogue.then(|| dense(dims)));
    Problem { region, inputs, outputs: vec![dense(dims)], numeric: Numeric::F32, threads: 3 }
}

#[test]
fn every_tactic_computes_what_the_reference_does_with_and_without_an_epilogue() {
    let mut random = Random::new(5);
    // What follows reads nothing, as much as there is, or one row again and again.
    for dims in
        [&[1][..], &[7], &[3, 5], &[2, 3, 17], &[1, 1], &[5, 1], &[2, 4, 64], &[40, 129], &[3, 2, 300]]
    {
        for (with_epilogue, by_rows) in [(false, false), (true, false), (true, true)] {
            let mut problem = posed(dims, with_epilogue);
            if by_rows {
                problem.inputs[2] = dense(&dims[dims.len() - 1..]);
            }
            let inputs: Vec<_> = problem.inputs.iter().map(|at| random.floats(&at.dims)).collect();
            let values: Vec<_> = inputs.iter().cloned().map(|tensor| Some(tensor.into())).collect();
            let want = crate::evaluate::evaluate_region(&problem.region, &values, usize::MAX).unwrap();
            let candidates = PluginFamily.candidates(Isa::best(), &problem, &Budget::USUAL);
            assert_eq!(candidates.len(), 2, "{dims:?}");
            for candidate in candidates {
                let work = PluginFamily.prepare(Isa::best(), &problem, &candidate.tactic).unwrap();
                for team in [Team::alone(), Team::of_its_own(3)] {
                    let got = trial::run_work(&*work, &problem, &inputs, &team).unwrap();
                    assert_close(&got[0], want[0].as_tensor().unwrap(), CLOSE, &format!("{dims:?}"));
                }
            }
        }
    }
}

#[test]
fn what_a_plugin_does_not_declare_is_refused() {
    let good = posed(&[3, 5], false);
    let tactic = PluginFamily.candidates(Isa::best(), &good, &Budget::USUAL).remove(0).tactic;
    let refused = |change: &dyn Fn(&mut Problem)| {
        let mut bad = good.clone();
        change(&mut bad);
        PluginFamily.prepare(Isa::best(), &bad, &tactic).unwrap_err()
    };
    refused(&|bad| bad.outputs[0] = dense(&[3, 6]));
    refused(&|bad| bad.inputs[1] = dense(&[4]));
    refused(&|bad| bad.inputs[0].strides = vec![9, 1]);
    refused(&|bad| bad.inputs[0].dtype = DType::F16);
    refused(&|bad| bad.region.nodes[0].op = op::Relu {}.into());
    refused(&|bad| bad.region.nodes[0].inputs.truncate(1));
    let unknown = PluginFamily.prepare(Isa::best(), &good, &Tactic::new("plugin_0123456789abcdef_whole", 1));
    assert!(unknown.unwrap_err().to_string().contains("--plugin"));
    assert!(
        PluginFamily
            .prepare(Isa::best(), &good, &Tactic::new(tactic.name.replace("whole", "none"), 1))
            .is_err()
    );
}
