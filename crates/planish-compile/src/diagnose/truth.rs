//! What the float model makes of a sample: by the reference where that is cheap enough, else by kernels of the host in
//! f32, without Winograd, whose errors are a thousandth of what is looked for.

use std::collections::HashMap;

use planish_ir::{Graph, interpret_within};
use planish_op::{Limits, Value};
use planish_runtime::{Context, Engine};
use planish_tensor::Tensor;

use super::Diagnose;
use crate::backends::Backends;
use crate::build::assemble;
use crate::error::{BuildError, BuildErrorKind};
use crate::options::BuildOptions;
use crate::price::cache::TimingCache;
use crate::stages::Stages;

/// What the reference may compute over all samples: it does some three GFLOP a second on two cores.
const MAX_REFERENCE_FLOPS: u64 = 20_000_000_000;

pub(super) struct Truths {
    graph: Graph,
    /// Names of the graph's outputs: all values that are wanted.
    names: Vec<String>,
    /// Runs it where the reference would take too long.
    kernels: Option<Context>,
}

impl Truths {
    pub(super) fn new(
        what: &Diagnose<'_>,
        wanted: &[&str],
        n_samples: usize,
        options: &BuildOptions,
    ) -> Result<Truths, BuildError> {
        let mut graph = what.reference.clone();
        let mut outputs = Vec::new();
        for name in wanted {
            let found = graph.find(name).filter(|id| graph.value(*id).producer.is_some());
            outputs.extend(found.filter(|id| !outputs.contains(id)));
        }
        let names = outputs.iter().map(|id| graph.value(*id).name.to_string()).collect();
        graph.set_outputs(outputs);
        let sizes = &what.plan.header.tuned_at;
        let size = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
        let flops = graph.work(&size).flops.saturating_mul(n_samples as u64);
        let mut kernels = None;
        if flops > MAX_REFERENCE_FLOPS {
            let options = BuildOptions {
                threads: options.threads,
                tune_at: sizes.clone(),
                tune_level: 0,
                winograd: false,
                cancel: options.cancel.clone(),
                ..BuildOptions::default()
            };
            let host = &what.backends[..1];
            let list = Backends::new(host)?;
            let (mut times, mut stages) = (TimingCache::default(), Stages::start());
            let plan = assemble(&graph, false, list, &options, &mut times, &mut stages)?.plan;
            kernels = Some(Engine::new(plan, host.to_vec())?.context()?);
        }
        Ok(Truths { graph, names, kernels })
    }

    /// All wanted values of a sample, and its inputs, by name.
    pub(super) fn of(&mut self, sample: &[(String, Tensor)]) -> Result<HashMap<String, Tensor>, BuildError> {
        let mut inputs = Vec::new();
        for id in self.graph.inputs() {
            let name = &*self.graph.value(*id).name;
            let found = sample.iter().find(|(known, _)| known == name);
            let (_, tensor) = found.ok_or_else(|| {
                BuildError::new(BuildErrorKind::WrongInputs, format!("a sample has no value for `{name}`"))
            })?;
            inputs.push(Value::Tensor(tensor.clone()));
        }
        let made = match &mut self.kernels {
            Some(context) => context.run_values(&inputs)?,
            None => interpret_within(&self.graph, inputs, &Limits::default()).map_err(|error| {
                BuildError::new(
                    BuildErrorKind::BadValues,
                    format!("the model does not take a sample: {error}"),
                )
            })?,
        };
        let tensors = made.into_iter().map(|value| value.as_tensor().cloned());
        let made = self.names.iter().cloned().zip(tensors).filter_map(|(name, tensor)| Some((name, tensor?)));
        Ok(made.chain(sample.iter().cloned()).collect())
    }
}
