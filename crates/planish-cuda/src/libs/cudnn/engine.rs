//! Engines: which the library proposes for a graph, as names, and back from a name to an execution plan.

use std::ops::RangeInclusive;
use std::sync::Arc;

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Kind,
    cudnnBackendDescriptorType_t as What, cudnnBackendHeurMode_t, cudnnHandle_t,
};
use planish_kernel::Arithmetic;

use super::descriptor::{Descriptor, Functions, Making};
use crate::error::{CudaError, CudaErrorKind};

/// How many proposals are asked for.
const N_PROPOSALS: usize = 24;
const MAX_KNOBS: usize = 32;
const MAX_NOTES: usize = 32;

/// What cuDNN notes of an engine's numbers, as numbers: an engine of a newer version may have others.
mod note {
    pub(super) const TENSOR_CORE: u32 = 0;
    pub(super) const DOWN_CONVERT_INPUTS: u32 = 1;
    pub(super) const REDUCED_PRECISION_REDUCTION: u32 = 2;
    pub(super) const FFT: u32 = 3;
    pub(super) const NONDETERMINISTIC: u32 = 4;
    pub(super) const WINOGRAD_TILE_13X13: u32 = 8;
}

/// An engine with its settings: all that a plan keeps of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Engine {
    index: i64,
    /// Knob types and values, ascending.
    knobs: Vec<(u32, i64)>,
}

impl Engine {
    /// As in `e38_k2.5_k13.0`.
    pub(super) fn name(&self) -> String {
        let knobs: String = self.knobs.iter().map(|(kind, value)| format!("_k{kind}.{value}")).collect();
        format!("e{}{knobs}", self.index)
    }

    pub(super) fn named(name: &str) -> Option<Engine> {
        let mut parts = name.split('_');
        let index = parts.next()?.strip_prefix('e')?.parse().ok()?;
        let knob = |part: &str| {
            let (kind, value) = part.strip_prefix('k')?.split_once('.')?;
            Some((kind.parse().ok()?, value.parse().ok()?))
        };
        let knobs = parts.map(knob).collect::<Option<Vec<(u32, i64)>>>()?;
        // As `name` writes them, each once.
        let ascends = knobs.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (knobs.len() <= MAX_KNOBS && ascends).then_some(Engine { index, knobs })
    }

    /// What the library proposes for a graph, at most so many, best first. Engines whose sums change from run to run or whose
    /// numbers are rougher than was asked for are left out.
    pub(super) fn proposed(
        functions: &Arc<Functions>,
        graph: &Arc<Descriptor>,
        element: Arithmetic,
        most: usize,
    ) -> Result<Vec<Engine>, CudaError> {
        let heuristic = Making::new(functions, What::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
            .parts(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph])?
            .set(
                Name::CUDNN_ATTR_ENGINEHEUR_MODE,
                Kind::CUDNN_TYPE_HEUR_MODE,
                &[cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A],
            )?
            .finish("asking for engines")?;
        let kind = What::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
        let proposals = heuristic.fill(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, kind, N_PROPOSALS)?;
        let mut engines = Vec::new();
        for proposal in proposals {
            // A proposal that cannot be read is none.
            let Ok((engine, notes)) = Engine::read(&proposal) else { continue };
            if is_wanted(&notes, element) && !engines.contains(&engine) {
                engines.push(engine);
            }
            if engines.len() == most {
                break;
            }
        }
        Ok(engines)
    }

    fn read(config: &Descriptor) -> Result<(Engine, Vec<u32>), CudaError> {
        let engines =
            config.fill(Name::CUDNN_ATTR_ENGINECFG_ENGINE, What::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)?;
        let mut found = Engine { index: -1, knobs: Vec::new() };
        let mut notes = Vec::new();
        for engine in &engines {
            found.index = engine.integer(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?;
            let kind = Kind::CUDNN_TYPE_NUMERICAL_NOTE;
            notes = engine.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, kind, MAX_NOTES, 0u32)?;
        }
        let kind = What::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
        for choice in config.fill(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, kind, MAX_KNOBS)? {
            let name = Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE;
            let kinds = choice.get(name, Kind::CUDNN_TYPE_KNOB_TYPE, 1, 0u32)?;
            let value = choice.integer(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?;
            found.knobs.extend(kinds.first().map(|kind| (*kind, value)));
        }
        found.knobs.sort_unstable();
        Ok((found, notes))
    }

    /// Whether this asks for what the library offers: numbers that are wanted, and values of knobs within the ranges
    /// that the engine gives. A plan can name anything. A knob of which the engine says nothing is left to cuDNN, which
    /// looks at each when the configuration is finished.
    fn check(&self, engine: &Descriptor, element: Arithmetic) -> Result<(), CudaError> {
        let refuse = |what: String| Err(CudaError::new(CudaErrorKind::Unsupported, what));
        let kind = Kind::CUDNN_TYPE_NUMERICAL_NOTE;
        let notes = engine.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, kind, MAX_NOTES, 0u32)?;
        if !is_wanted(&notes, element) {
            return refuse(format!(
                "cuDNN's engine {} computes in another way than is asked for",
                self.index
            ));
        }
        let kind = What::CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR;
        let infos = engine.fill(Name::CUDNN_ATTR_ENGINE_KNOB_INFO, kind, MAX_KNOBS).unwrap_or_default();
        for (of, range) in infos.iter().filter_map(|info| knob_range(info).ok().flatten()) {
            let chosen = self.knobs.iter().find(|(known, _)| *known == of);
            if let Some((_, value)) = chosen.filter(|(_, value)| !range.contains(value)) {
                let what = format!("{} to {}", range.start(), range.end());
                return refuse(format!("knob {of} of cuDNN's engine {} is {what}, not {value}", self.index));
            }
        }
        Ok(())
    }

    /// The execution plan of this engine for a graph, and the workspace that it needs.
    pub(super) fn plan(
        &self,
        functions: &Arc<Functions>,
        handle: cudnnHandle_t,
        graph: &Arc<Descriptor>,
        element: Arithmetic,
    ) -> Result<(Arc<Descriptor>, usize), CudaError> {
        let n_engines = graph.integer(Name::CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT)?;
        if !(0..n_engines).contains(&self.index) {
            let what = format!("cuDNN has {n_engines} engines for this, not number {}", self.index);
            return Err(CudaError::new(CudaErrorKind::Unsupported, what));
        }
        let engine = Making::new(functions, What::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?
            .parts(Name::CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &[graph])?
            .integers(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[self.index])?
            .finish("choosing an engine")?;
        self.check(&engine, element)?;
        let mut choices = Vec::new();
        for (kind, value) in &self.knobs {
            let choice = Making::new(functions, What::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)?
                .set(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Kind::CUDNN_TYPE_KNOB_TYPE, &[*kind])?
                .integers(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &[*value])?
                .finish("setting a knob")?;
            choices.push(choice);
        }
        let choices: Vec<&Arc<Descriptor>> = choices.iter().collect();
        let mut config = Making::new(functions, What::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?
            .parts(Name::CUDNN_ATTR_ENGINECFG_ENGINE, &[&engine])?;
        if !choices.is_empty() {
            config = config.parts(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, &choices)?;
        }
        let config = config.finish("setting an engine")?;
        let plan = Making::new(functions, What::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Kind::CUDNN_TYPE_HANDLE, &[handle])?
            .parts(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&config])?
            .finish("making an execution plan")?;
        let workspace = plan.integer(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
        Ok((plan, workspace.max(0) as usize))
    }
}

/// A knob's type and the values that it takes.
fn knob_range(info: &Descriptor) -> Result<Option<(u32, RangeInclusive<i64>)>, CudaError> {
    let types = info.get(Name::CUDNN_ATTR_KNOB_INFO_TYPE, Kind::CUDNN_TYPE_KNOB_TYPE, 1, 0u32)?;
    let least = info.integer(Name::CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE)?;
    let most = info.integer(Name::CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE)?;
    Ok(types.first().map(|&of| (of, least..=most)))
}

fn is_wanted(notes: &[u32], element: Arithmetic) -> bool {
    let has = |note: u32| notes.contains(&note);
    // Tensor cores on f32 operands mean tf32, or worse.
    let rough = match element {
        Arithmetic::F32 => has(note::TENSOR_CORE) || has(note::DOWN_CONVERT_INPUTS),
        Arithmetic::Tf32 => has(note::DOWN_CONVERT_INPUTS),
        _ => false,
    };
    !rough
        && !has(note::NONDETERMINISTIC)
        && !has(note::REDUCED_PRECISION_REDUCTION)
        && !has(note::FFT)
        && !has(note::WINOGRAD_TILE_13X13)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_come_back_from_their_names() {
        let engine = Engine { index: 38, knobs: vec![(2, 5), (13, -1)] };
        assert_eq!(engine.name(), "e38_k2.5_k13.-1");
        assert_eq!(Engine::named(&engine.name()), Some(engine));
        let bare = Engine { index: 0, knobs: Vec::new() };
        assert_eq!(Engine::named(&bare.name()), Some(bare));
        for wrong in ["", "38", "e", "e1_", "e1_k2", "e1_k2.x", "e1_k2.1_k2.3", "e1_k3.1_k2.3"] {
            assert_eq!(Engine::named(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nondeterministic_and_rough_engines_are_left_out() {
        use note::*;
        assert!(is_wanted(&[TENSOR_CORE], Arithmetic::F16));
        assert!(is_wanted(&[TENSOR_CORE], Arithmetic::Tf32));
        assert!(!is_wanted(&[TENSOR_CORE], Arithmetic::F32));
        assert!(is_wanted(&[], Arithmetic::F32));
        assert!(!is_wanted(&[TENSOR_CORE, NONDETERMINISTIC], Arithmetic::F16));
        assert!(!is_wanted(&[REDUCED_PRECISION_REDUCTION], Arithmetic::F16));
    }
}
