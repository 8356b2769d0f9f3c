//! From the sizes of inputs to the values of symbols, and the profiles that allow them.

use std::sync::Arc;

use planish_op::ValueType;
use planish_plan::{Profile, Program};
use planish_tensor::{DType, Dim, Shape};

use crate::error::{RunError, RunErrorKind};

/// Values of symbols, few enough that a list is the fastest map.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Symbols {
    list: Vec<(Arc<str>, i64)>,
}

impl Symbols {
    pub(crate) fn from_pairs(pairs: &[(String, i64)]) -> Symbols {
        Symbols { list: pairs.iter().map(|(name, value)| (Arc::from(name.as_str()), *value)).collect() }
    }

    /// The same, with a size for every symbol that these programs name and nobody knows yet: for questions
    /// whose answer does not depend on it, such as how a weight is packed.
    pub(crate) fn with_guesses(mut self, program: &Program) -> Symbols {
        const GUESS: i64 = 16;
        for value in &program.values {
            let shape = value.ty.as_tensor().and_then(|ty| ty.shape.as_ref());
            for symbol in shape.into_iter().flatten().flat_map(Dim::symbols) {
                if self.get(&symbol).is_none() {
                    self.set(&symbol, GUESS);
                }
            }
        }
        self
    }

    pub(crate) fn pairs(&self) -> Vec<(String, i64)> {
        self.list.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<i64> {
        self.list.iter().find(|(known, _)| &**known == name).map(|(_, value)| *value)
    }

    pub(crate) fn set(&mut self, name: &str, value: i64) {
        self.list.push((Arc::from(name), value));
    }

    pub(crate) fn eval(&self, dim: &Dim) -> Option<i64> {
        dim.eval(&|name| self.get(name))
    }

    /// The sizes of a shape. A size below zero is none: a window that is larger than what it moves over has no
    /// place, as the reference says too.
    pub(crate) fn eval_shape(&self, shape: &Shape) -> Option<Vec<usize>> {
        shape.iter().map(|dim| self.eval(dim).map(|size| usize::try_from(size).unwrap_or(0))).collect()
    }

    /// Takes over the symbols that stand alone in `shape` from a value of sizes `dims`; `what` names it in the
    /// error when a size disagrees.
    pub(crate) fn bind(&mut self, what: &str, shape: &Shape, dims: &[usize]) -> Result<(), RunError> {
        let refuse = |message: String| Err(RunError::new(RunErrorKind::WrongShape, message));
        if shape.rank() != dims.len() {
            return refuse(format!("{what} has shape {dims:?}, the model takes {shape}"));
        }
        for (axis, (dim, &size)) in shape.dims().iter().zip(dims).enumerate() {
            let size = size as i64;
            let known = match dim.as_symbol() {
                Some(name) => match self.get(name) {
                    Some(known) => Some(known),
                    None => {
                        self.set(name, size);
                        continue;
                    }
                },
                None => self.eval(dim),
            };
            if known.is_some_and(|known| known != size) {
                let known = known.unwrap_or_default();
                let wanted =
                    if dim.as_const().is_some() { dim.to_string() } else { format!("{dim} = {known}") };
                return refuse(format!("{what} has size {size} along axis {axis}, the model takes {wanted}"));
            }
        }
        Ok(())
    }
}

/// The shape and type of a program's input, if it is a tensor of known rank.
pub(crate) fn tensor_type(ty: &ValueType) -> Option<(DType, Option<&Shape>)> {
    ty.as_tensor().map(|tensor| (tensor.dtype, tensor.shape.as_ref()))
}

/// Binds a program's inputs, then checks sizes that are expressions of several symbols.
pub(crate) fn bind_inputs(program: &Program, dims: &[Option<&[usize]>]) -> Result<Symbols, RunError> {
    let mut symbols = Symbols::default();
    // Twice: an expression may come before the input that gives its symbol.
    for _ in 0..2 {
        for (&value, dims) in program.inputs.iter().zip(dims) {
            let value = &program.values[value as usize];
            if let (Some(shape), Some(dims)) = (value.ty.as_tensor().and_then(|ty| ty.shape.as_ref()), dims) {
                symbols.bind(&format!("input `{}`", value.name), shape, dims)?;
            }
        }
    }
    Ok(symbols)
}

/// The number of the first profile that allows these sizes; `None` when the plan has no profiles.
pub(crate) fn choose_profile(profiles: &[Profile], symbols: &Symbols) -> Result<Option<usize>, RunError> {
    if profiles.is_empty() {
        return Ok(None);
    }
    let fits = |profile: &Profile| {
        profile.ranges.iter().all(|range| {
            symbols.get(&range.symbol).is_none_or(|value| (range.min..=range.max).contains(&value))
        })
    };
    if let Some(idx) = profiles.iter().position(fits) {
        return Ok(Some(idx));
    }
    let mut complaints = Vec::new();
    for (idx, profile) in profiles.iter().enumerate() {
        for range in &profile.ranges {
            let Some(value) = symbols.get(&range.symbol) else { continue };
            if !(range.min..=range.max).contains(&value) {
                complaints.push(format!(
                    "dimension `{}` is {value}, profile {idx} allows {} to {}",
                    range.symbol, range.min, range.max
                ));
                break;
            }
        }
    }
    let message = format!("no profile fits: {}; rebuild with a wider profile", complaints.join("; "));
    Err(RunError::new(RunErrorKind::WrongShape, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_plan::SymbolRange;

    #[test]
    fn a_symbol_takes_one_size_only() {
        let mut symbols = Symbols::default();
        let shape = Shape::new(vec![Dim::symbol("batch"), Dim::from(3)]);
        symbols.bind("input `x`", &shape, &[4, 3]).unwrap();
        assert_eq!(symbols.get("batch"), Some(4));
        let error = symbols.bind("input `y`", &shape, &[5, 3]).unwrap_err();
        assert_eq!(error.to_string(), "input `y` has size 5 along axis 0, the model takes batch = 4");
        let error = symbols.bind("input `y`", &shape, &[4, 2]).unwrap_err();
        assert_eq!(error.to_string(), "input `y` has size 2 along axis 1, the model takes 3");
    }

    #[test]
    fn profiles_are_chosen_and_refused_by_name() {
        let range =
            |min, max| Profile { ranges: vec![SymbolRange { symbol: "batch".into(), min, opt: min, max }] };
        let profiles = [range(1, 1), range(2, 8)];
        let at = |batch| choose_profile(&profiles, &Symbols::from_pairs(&[("batch".into(), batch)]));
        assert_eq!(at(1).unwrap(), Some(0));
        assert_eq!(at(8).unwrap(), Some(1));
        let error = at(9).unwrap_err().to_string();
        assert!(error.contains("dimension `batch` is 9, profile 1 allows 2 to 8"), "{error}");
    }
}
