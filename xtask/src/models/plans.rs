//! A model as users build it: with open and with fixed sizes, the self-check on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use planish::{Builder, Device, Engine, Model, Plan, Profile, SymbolRange};
use planish_ir::Graph;
use planish_op::Value;

/// Whether a plan runs at any sizes or at those of its inputs alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sizes {
    Open,
    Fixed,
}

/// The outputs of the plan that is built of a model, on the CPU and by the cost model alone.
pub(super) fn run(model: &Path, sizes: Sizes, inputs: &[Value]) -> Result<Vec<Value>> {
    let model = Model::open(model)?;
    let untied = bind(model.graph(), inputs).1;
    let model = model.untie(&untied)?;
    let bound = bind(model.graph(), inputs).0;
    let mut builder = Builder::from_model(model).device(Device::Cpu).tune_level(0);
    match sizes {
        Sizes::Open => builder.options_mut().tune_at = bound.into_iter().collect(),
        Sizes::Fixed => {
            let range = |(symbol, size)| SymbolRange { symbol, min: size, opt: size, max: size };
            builder = builder.profile(Profile { ranges: bound.into_iter().map(range).collect() });
        }
    }
    let plan: Plan = builder.build().context("building")?;
    let engine = Engine::new(plan, Device::Cpu)?;
    Ok(engine.context()?.run_values(inputs)?)
}

/// The sizes that these inputs give to symbols, and the symbols that have several.
fn bind(graph: &Graph, inputs: &[Value]) -> (BTreeMap<String, i64>, BTreeSet<String>) {
    let (mut bound, mut several) = (BTreeMap::new(), BTreeSet::new());
    for (id, value) in graph.inputs().iter().zip(inputs) {
        let shape = graph.value(*id).ty.as_tensor().and_then(|ty| ty.shape.as_ref());
        let (Some(shape), Some(tensor)) = (shape, value.as_tensor()) else { continue };
        for (dim, &size) in shape.iter().zip(tensor.shape()) {
            let Some(symbol) = dim.as_symbol() else { continue };
            if *bound.entry(symbol.to_string()).or_insert(size as i64) != size as i64 {
                several.insert(symbol.to_string());
            }
        }
    }
    (bound, several)
}
