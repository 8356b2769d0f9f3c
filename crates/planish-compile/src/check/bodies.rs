//! Bodies of If, Loop, Scan and SequenceMap as programs of their own: their memory is replayed, and where no run led
//! into one (a branch that made-up conditions do not take, a loop without trips) it is run on made-up inputs alone.

use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::Backend;
use planish_op::ValueType;
use planish_plan::{Certificate, Check, Header, Plan, Program, StepKind};
use planish_runtime::Engine;
use planish_tensor::{Dim, Tensor};

use super::steps::Steps;
use super::{Guilty, replay, run_at, skipped, take, wires};
use crate::budget;
use crate::options::BuildOptions;

/// A size for symbols that only a run of the whole could tell.
const GUESS: i64 = 5;

/// Checks every body of a plan's program.
pub(super) fn check(
    steps: &mut Steps<'_>,
    engine: &Engine,
    graph: &Graph,
    weights: &[Tensor],
    backends: &[Arc<dyn Backend>],
    options: &BuildOptions,
    checks: &mut Vec<Check>,
) -> Option<Guilty> {
    let cx = Bodies { plan: engine.plan(), weights, backends, options };
    cx.program(steps, &engine.plan().program, graph, &mut Vec::new(), checks)
}

struct Bodies<'a> {
    plan: &'a Plan,
    weights: &'a [Tensor],
    backends: &'a [Arc<dyn Backend>],
    options: &'a BuildOptions,
}

impl Bodies<'_> {
    fn program(
        &self,
        steps: &mut Steps<'_>,
        program: &Program,
        graph: &Graph,
        path: &mut Vec<(usize, usize)>,
        checks: &mut Vec<Check>,
    ) -> Option<Guilty> {
        for (idx, step) in program.steps.iter().enumerate() {
            let StepKind::Control(control) = &step.kind else { continue };
            let output = step.outputs.iter().flatten().next();
            let node = output
                .and_then(|&value| graph.find(&program.values[value as usize].name))
                .and_then(|id| graph.value(id).producer)
                .map(|node| graph.node(node));
            for (number, body) in control.bodies.iter().enumerate() {
                path.push((idx, number));
                let name = format!("body {number} of {}", step.name);
                let of = node.and_then(|node| node.bodies.get(number));
                let guilty = self
                    .body(steps, body, of, path, &name, checks)
                    .or_else(|| of.and_then(|of| self.program(steps, body, of, path, checks)));
                path.pop();
                if guilty.is_some() {
                    return guilty;
                }
            }
        }
        None
    }

    fn body(
        &self,
        steps: &mut Steps<'_>,
        body: &Program,
        graph: Option<&Graph>,
        path: &[(usize, usize)],
        name: &str,
        checks: &mut Vec<Check>,
    ) -> Option<Guilty> {
        if body.steps.is_empty() {
            return None;
        }
        let plan = Plan {
            program: body.clone(),
            header: Header { profiles: Vec::new(), ..self.plan.header.clone() },
            evidence: Vec::new(),
            certificate: Certificate::default(),
            ..self.plan.clone()
        };
        let engine = match Engine::new(plan, self.backends.to_vec()) {
            Ok(engine) => engine,
            Err(error) => {
                checks.push(skipped(name, format!("it does not open alone: {error}")));
                return None;
            }
        };
        let sizes = sizes(body, &self.plan.header.tuned_at);
        let engine = match graph {
            Some(graph) => {
                let limits = budget::of_plan(&engine, graph, std::slice::from_ref(&sizes), self.options);
                engine.limited(limits)
            }
            None => engine,
        };
        if let Some(graph) = graph {
            let subject = format!("memory replayed in {name}");
            match engine.placement(&sizes, self.options.threads) {
                Ok(placement) => {
                    let mut wires = wires::Wires::new(graph);
                    let shown = wires::compare(&mut wires, body, self.weights)
                        .and_then(|_| replay::replay(graph, &wires, body, &placement, &sizes));
                    checks.push(super::proven(&subject, shown));
                }
                Err(error) => checks.push(skipped(&subject, error.to_string())),
            }
        }
        let is_open = steps.not_compared().iter().any(|((place, _), ..)| place == path);
        if !is_open {
            return None;
        }
        let ran = run_at(steps, &engine, path, &sizes, "", steps.seed());
        take(ran.map(|(ran, _)| ran), &format!(" of {name}"), checks)
    }
}

/// The tuned sizes, and a guess for symbols that the body's inputs have besides.
fn sizes(body: &Program, tuned: &[(String, i64)]) -> Vec<(String, i64)> {
    let mut sizes = tuned.to_vec();
    for &input in &body.inputs {
        let ty: &ValueType = &body.values[input as usize].ty;
        let Some(shape) = ty.as_tensor().and_then(|ty| ty.shape.as_ref()) else { continue };
        for symbol in shape.iter().filter_map(Dim::as_symbol) {
            if !sizes.iter().any(|(known, _)| known == symbol) {
                sizes.push((symbol.to_string(), GUESS));
            }
        }
    }
    sizes
}
