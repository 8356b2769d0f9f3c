//! What symbols are tuned at.

use std::collections::BTreeMap;

use planish_ir::Graph;
use planish_kernel::{Layout, Operand};
use planish_op::ValueType;
use planish_tensor::{Dim, Shape};

use crate::options::BuildOptions;

/// A size for what only a run can tell, while tactics are chosen: they work at any.
const GUESS: i64 = 16;

/// Sizes of symbols at which problems are posed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sizes {
    known: BTreeMap<String, i64>,
}

impl Sizes {
    /// The `opt` of the first profile, then the sizes asked for, then 1 for first axes and a guess.
    pub(crate) fn of(graph: &Graph, options: &BuildOptions) -> Sizes {
        let mut known = BTreeMap::new();
        for (symbol, size) in &options.tune_at {
            known.insert(symbol.clone(), *size);
        }
        if let Some(profile) = options.profiles.first() {
            for range in &profile.ranges {
                known.insert(range.symbol.clone(), range.opt);
            }
        }
        for &input in graph.inputs() {
            let Some(shape) = graph.value(input).ty.as_tensor().and_then(|ty| ty.shape.as_ref()) else {
                continue;
            };
            for (axis, dim) in shape.iter().enumerate() {
                if let Some(symbol) = dim.as_symbol() {
                    known.entry(symbol.to_string()).or_insert(if axis == 0 { 1 } else { GUESS });
                }
            }
        }
        Sizes { known }
    }

    /// The same with other sizes for some symbols.
    pub(crate) fn with(&self, sizes: impl Iterator<Item = (String, i64)>) -> Sizes {
        let mut known = self.known.clone();
        known.extend(sizes);
        Sizes { known }
    }

    /// Where these sizes end and larger ones begin: the geometric mean, for symbols that grow.
    pub(crate) fn between(&self, larger: &Sizes) -> Vec<(String, i64)> {
        let border = |(name, size): (&String, &i64)| {
            let next = *larger.known.get(name)?;
            let mean = (*size as f64 * next as f64).sqrt() as i64;
            (next > *size).then(|| (name.clone(), mean.max(*size)))
        };
        self.known.iter().filter_map(border).collect()
    }

    pub(crate) fn pairs(&self) -> Vec<(String, i64)> {
        self.known.iter().map(|(name, size)| (name.clone(), *size)).collect()
    }

    pub(crate) fn size(&self, dim: &Dim) -> usize {
        let lookup = |name: &str| Some(self.known.get(name).copied().unwrap_or(GUESS));
        dim.eval(&lookup).and_then(|size| usize::try_from(size).ok()).unwrap_or(GUESS as usize)
    }

    pub(crate) fn dims(&self, shape: &Shape) -> Vec<usize> {
        shape.iter().map(|dim| self.size(dim)).collect()
    }

    /// The operand of a tensor of this type; `None` for other kinds and unknown ranks.
    pub(crate) fn operand(&self, ty: &ValueType, layout: Layout) -> Option<Operand> {
        let ty = ty.as_tensor()?;
        Some(Operand::dense(ty.dtype, &self.dims(ty.shape.as_ref()?), layout))
    }
}

/// Whether both layouts put every element at the same place, whatever the symbols are.
pub(crate) fn same_memory(shape: &Shape, a: Layout, b: Layout) -> bool {
    let counts = |layout: Layout| -> Vec<usize> {
        layout
            .order(shape.rank())
            .into_iter()
            .filter(|&axis| shape.dims()[axis].as_const() != Some(1))
            .collect()
    };
    a == b || counts(a) == counts(b)
}
