//! From a plan back to what it was built from: the optimized graph with its weights, and the options.
//!
//! A plan that another machine or another version built is lowered anew from that, so nothing is lost but what
//! cannot be stored: callbacks, and a tactic lock, which names kernels of the machine it was made on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use planish_ir::Graph;
use planish_kernel::{KernelError, Layout, Target};
use planish_op::Value;
use planish_passes::WeightRange;
use planish_plan::{Recipe, Weight};
use planish_tensor::Tensor;

use crate::error::{BuildError, BuildErrorKind};
use crate::options::BuildOptions;

/// What a plan was built from.
#[derive(Debug)]
pub struct Recovered {
    pub graph: Graph,
    pub options: BuildOptions,
    /// What could not be taken over.
    pub notes: Vec<String>,
    /// The graph's large constants, by the numbers of the weights that hold them.
    pub(crate) of_weight: HashMap<u32, Tensor>,
}

/// Unpacks a weight that a target packed: [`planish_kernel::Compiler::unpack`] of a backend of that name, on
/// whatever device.
pub type Unpack<'a> = &'a dyn Fn(&Target, &Weight) -> Result<Tensor, KernelError>;

/// Takes a plan apart, to be built again.
pub fn recover(recipe: &Recipe, unpack: Unpack<'_>) -> Result<Recovered, BuildError> {
    if recipe.stripped.is_some() {
        return Err(BuildError::stripped());
    }
    let mut of_weight: HashMap<u32, Tensor> = HashMap::new();
    for &number in &recipe.constants {
        if let Entry::Vacant(place) = of_weight.entry(number) {
            // The recipe was validated: the number is one of a weight.
            place.insert(tensor(recipe, &recipe.weights[number as usize], unpack)?);
        }
    }
    let constants: Vec<Tensor> = recipe.constants.iter().map(|number| of_weight[number].clone()).collect();
    let graph = parse(recipe, &constants)?;
    let (options, notes) = options(recipe);
    Ok(Recovered { graph, options, notes, of_weight })
}

/// The plan's graph over these constants.
pub(crate) fn parse(recipe: &Recipe, constants: &[Tensor]) -> Result<Graph, BuildError> {
    planish_ir::parse(&recipe.graph, constants).map_err(|error| {
        let message = format!("the plan's graph cannot be read: {error}; build again from the model");
        BuildError::new(BuildErrorKind::BadFile, message)
    })
}

/// The options that a plan was built with, and what could not be taken over of them.
pub(crate) fn options(recipe: &Recipe) -> (BuildOptions, Vec<String>) {
    let (mut options, unknown) = BuildOptions::from_text(&recipe.header.options);
    options.source = recipe.header.source;
    // Plans of before this option have weights of the full range.
    options.weight_range.get_or_insert(WeightRange::Full);
    options.threads = (recipe.header.threads as usize).max(1);
    options.profiles = recipe.header.profiles.clone();
    options.tune_at = recipe.header.tuned_at.clone();
    options.metadata = recipe.header.metadata.iter().cloned().collect();
    let notes = unknown.iter().map(|line| format!("the plan's option `{line}` is not known and is left out"));
    (options, notes.collect())
}

/// A weight as the graph has it.
pub(crate) fn tensor(recipe: &Recipe, weight: &Weight, unpack: Unpack<'_>) -> Result<Tensor, BuildError> {
    unpacked(recipe, weight, unpack).map_err(|why| {
        let message =
            format!("weight `{}` does not come back: {why}; build again from the model", weight.name);
        BuildError::new(BuildErrorKind::BadFile, message)
    })
}

fn unpacked(recipe: &Recipe, weight: &Weight, unpack: Unpack<'_>) -> Result<Tensor, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    if let Some(target) = weight.packed_by {
        let tensor = unpack(&recipe.header.targets[target as usize], weight).map_err(|error| text(&error))?;
        let fits = tensor.dtype() == weight.dtype && tensor.shape() == weight.dims;
        return if fits { Ok(tensor) } else { Err("it came back with another shape".into()) };
    }
    let order = weight.layout.order(weight.dims.len());
    let stored: Vec<usize> = order.iter().map(|&axis| weight.dims[axis]).collect();
    let tensor = Tensor::from_bytes(weight.dtype, &stored, weight.widened()).map_err(|error| text(&error))?;
    if weight.layout == Layout::Plain {
        return Ok(tensor);
    }
    let place = |axis: usize| order.iter().position(|&stored| stored == axis).unwrap_or(axis) as i64;
    let op = planish_op::Transpose { perm: Some((0..order.len()).map(place).collect()) };
    let outputs = planish_reference::evaluate(&op.into(), &[Some(&Value::Tensor(tensor))], 1);
    let outputs = outputs.map_err(|error| text(&error))?;
    outputs.into_iter().next().and_then(|value| value.as_tensor().cloned()).ok_or_else(|| "it is lost".into())
}
