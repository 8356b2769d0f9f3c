//! What symbols are tuned at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::{Layout, Operand};
use planish_op::ValueType;
use planish_plan::{Profile, Variant};
use planish_tensor::{Dim, Shape};

use crate::default_sizes::tuned_sizes;
use crate::error::{BuildError, BuildErrorKind};
use crate::options::BuildOptions;

/// A size for what only a run can tell, while tactics are chosen: they work at any.
const GUESS: i64 = 16;
/// What the sizes of a plan that runs at any may grow by, as far as anything is prepared for that.
pub(crate) const OPEN_GROWTH: i64 = 4;

/// More than this no machine has: 64 TiB.
const MAX_VALUE_BYTES: u64 = 1 << 46;

/// Sizes of symbols at which problems are posed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes {
    known: BTreeMap<String, i64>,
    /// What symbols inside of the graph then are, as far as it follows from the sizes alone.
    inner: BTreeMap<String, i64>,
    /// The graph, if it has such symbols.
    graph: Option<Arc<Graph>>,
}

impl PartialEq for Sizes {
    /// The rest follows.
    fn eq(&self, other: &Sizes) -> bool {
        self.known == other.known
    }
}

impl Sizes {
    /// The `opt` of the first profile, then the sizes asked for, then the default ones; a guess where none of these
    /// fits.
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
        let inputs = graph.inputs().iter().filter_map(|&id| graph.value(id).ty.as_tensor()?.shape.as_ref());
        let sizes = inputs.flat_map(|shape| shape.iter().enumerate());
        let symbols: Vec<(usize, String)> =
            sizes.filter_map(|(axis, dim)| Some((axis, dim.as_symbol()?.to_string()))).collect();
        if symbols.iter().any(|(_, symbol)| !known.contains_key(symbol)) {
            known = tuned_sizes(graph, &known).unwrap_or(known);
        }
        for (axis, symbol) in symbols {
            known.entry(symbol).or_insert(if axis == 0 { 1 } else { GUESS });
        }
        let has_inner = !inner_symbols(graph, &known).is_empty();
        Sizes { known, inner: BTreeMap::new(), graph: has_inner.then(|| Arc::new(graph.clone())) }.followed()
    }

    /// Refuses a graph with a value that no machine has memory for at these sizes.
    pub(crate) fn check(&self, graph: &Graph) -> Result<(), BuildError> {
        for (_, value) in graph.values() {
            let Some(ty) = value.ty.as_tensor() else { continue };
            let Some(dims) = ty.shape.as_ref().map(|shape| self.dims(shape)) else { continue };
            let bytes = planish_tensor::element_count(&dims).and_then(|len| ty.dtype.bytes_for(len));
            if bytes.is_none_or(|bytes| bytes as u64 > MAX_VALUE_BYTES) {
                let sizes: Vec<String> = self.pairs().iter().map(|(name, n)| format!("{name}={n}")).collect();
                let name = &value.name;
                let message = match sizes.is_empty() {
                    true => format!("`{name}` would be {dims:?}, more than any memory"),
                    false => format!(
                        "`{name}` would be {dims:?} at {}, more than any memory; give smaller --shapes",
                        sizes.join(" ")
                    ),
                };
                return Err(BuildError::new(BuildErrorKind::WrongShape, message));
            }
        }
        Ok(())
    }

    /// The same with other sizes for some symbols.
    pub(crate) fn with(&self, sizes: impl Iterator<Item = (String, i64)>) -> Sizes {
        let mut known = self.known.clone();
        known.extend(sizes);
        Sizes { known, inner: BTreeMap::new(), graph: self.graph.clone() }.followed()
    }

    /// The largest sizes that a plan may run at, as far as anyone can say: the ends of its profiles, or some times the
    /// tuned sizes where any are allowed.
    pub(crate) fn largest(&self, profiles: &[Profile]) -> Sizes {
        let ranges = || profiles.iter().flat_map(|profile| &profile.ranges);
        let largest = |(symbol, size): (String, i64)| {
            let ends = ranges().filter(|range| range.symbol == symbol).map(|range| range.max);
            let size = if profiles.is_empty() {
                size.saturating_mul(OPEN_GROWTH)
            } else {
                ends.fold(size, i64::max)
            };
            (symbol, size)
        };
        self.with(self.pairs().into_iter().map(largest))
    }

    /// With what follows for symbols inside of the graph: at given sizes much becomes constant that is computed
    /// from sizes, and with it the sizes that are made from that.
    fn followed(mut self) -> Sizes {
        let Some(graph) = &self.graph else { return self };
        let lookup = |name: &str| self.known.get(name).copied();
        let Ok(fixed) = graph.specialize(&lookup) else { return self };
        let wanted = inner_symbols(graph, &self.known);
        let found = seen(graph, &fixed, &wanted);
        let folded = || planish_passes::fold_sizes().run(fixed, &planish_passes::Options::default());
        self.inner = match found.len() < wanted.len() {
            true => folded().map_or(found, |(folded, _)| seen(graph, &folded, &wanted)),
            false => found,
        };
        self
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

    /// Whether a variant is meant for these sizes.
    pub(crate) fn is_within(&self, variant: &Variant) -> bool {
        let size = |symbol: &String| self.known.get(symbol);
        variant.from.iter().all(|(symbol, bound)| size(symbol).is_none_or(|size| size >= bound))
            && variant.up_to.iter().all(|(symbol, bound)| size(symbol).is_none_or(|size| size <= bound))
    }

    pub(crate) fn pairs(&self) -> Vec<(String, i64)> {
        self.known.iter().map(|(name, size)| (name.clone(), *size)).collect()
    }

    /// The same with what follows inside of the graph.
    pub(crate) fn all_pairs(&self) -> Vec<(String, i64)> {
        self.known.iter().chain(&self.inner).map(|(name, size)| (name.clone(), *size)).collect()
    }

    pub(crate) fn size(&self, dim: &Dim) -> usize {
        let lookup = |name: &str| Some(*self.known.get(name).or(self.inner.get(name)).unwrap_or(&GUESS));
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

/// Symbols that stand alone as a size of some value and are none of the inputs'.
fn inner_symbols(graph: &Graph, known: &BTreeMap<String, i64>) -> BTreeSet<String> {
    let shapes = graph.values().filter_map(|(_, value)| value.ty.as_tensor()?.shape.as_ref());
    let symbols = shapes.flat_map(|shape| shape.iter().filter_map(Dim::as_symbol));
    symbols.filter(|symbol| !known.contains_key(*symbol)).map(str::to_string).collect()
}

/// The symbols that are numbers in `fixed`, the same graph at given sizes: values are found by their names.
fn seen(graph: &Graph, fixed: &Graph, wanted: &BTreeSet<String>) -> BTreeMap<String, i64> {
    let shape = |ty: &ValueType| ty.as_tensor().and_then(|ty| ty.shape.clone());
    let by_name: HashMap<&str, &ValueType> =
        fixed.values().map(|(_, value)| (&*value.name, &value.ty)).collect();
    let mut found = BTreeMap::new();
    for (_, value) in graph.values() {
        let there = by_name.get(&*value.name).and_then(|ty| shape(ty));
        let (Some(here), Some(there)) = (shape(&value.ty), there) else { continue };
        for (symbolic, size) in here.iter().zip(there.iter()) {
            if let (Some(symbol), Some(size)) = (symbolic.as_symbol(), size.as_const())
                && wanted.contains(symbol)
            {
                found.entry(symbol.to_string()).or_insert(size);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_are_computed_from_sizes_are_followed() {
        // Two paddings in a row, the second by as much as the first one's output is wide.
        let text = r#"graph "g" {
            input %x: f32[1, 3, h]
            const %zeros: i64[5] = [0, 0, 0, 0, 0]
            const %two: i64[1] = [2]
            const %three: i64[1] = [3]
            %s: i64[3] = Shape(%x)
            %i: i64[1] = Slice(%s, %two, %three)
            %pads: i64[6] = Concat(%zeros, %i) {axis=0}
            %p: f32[a, b, c] = Pad(%x, %pads)
            %s2: i64[3] = Shape(%p)
            %i2: i64[1] = Slice(%s2, %two, %three)
            %pads2: i64[6] = Concat(%zeros, %i2) {axis=0}
            %y: f32[d, e, f] = Pad(%p, %pads2)
            output %y
        }"#;
        let graph: Graph = text.parse().unwrap();
        let options = BuildOptions { tune_at: vec![("h".into(), 10)], ..BuildOptions::default() };
        let sizes = Sizes::of(&graph, &options);
        let y = graph.value(graph.outputs()[0]);
        assert_eq!(sizes.dims(y.ty.as_tensor().unwrap().shape.as_ref().unwrap()), [1, 3, 40]);
        let larger = sizes.with([("h".to_string(), 12)].into_iter());
        assert_eq!(larger.dims(y.ty.as_tensor().unwrap().shape.as_ref().unwrap()), [1, 3, 48]);
        assert_eq!(sizes.pairs(), [("h".to_string(), 10)]);
        assert_eq!(sizes.largest(&[]).pairs(), [("h".to_string(), 40)]);
        let range = planish_plan::SymbolRange { symbol: "h".into(), min: 1, opt: 10, max: 64 };
        assert_eq!(sizes.largest(&[Profile { ranges: vec![range] }]).pairs(), [("h".to_string(), 64)]);
    }
}
