//! The sizes at which a model is tuned, run and counted where nobody gives any: one rule for the library, the command
//! line and the tuner.

use std::collections::{BTreeMap, BTreeSet};

use planish_ir::Graph;
use planish_tensor::{Dim, Shape};

use crate::error::{BuildError, BuildErrorKind};

/// What open dimensions after the first are tried with, in this order.
const CANDIDATES: [i64; 11] = [16, 32, 48, 64, 96, 128, 224, 256, 320, 512, 640];
/// What a first dimension is tried with; mostly a batch.
const FIRST_CANDIDATES: [i64; 6] = [1, 2, 4, 8, 16, 32];
/// Every try infers the whole graph.
const MAX_TRIES: usize = 500;

/// Sizes for all symbols of the inputs, those given included, such that inference accepts them: 1 where a symbol is a
/// first dimension, the smallest usual size elsewhere (16, 32, 48, 64, 96, 128, 224, 256, 320, 512, 640).
pub fn default_sizes(
    graph: &Graph,
    given: &BTreeMap<String, i64>,
) -> Result<BTreeMap<String, i64>, BuildError> {
    let types = graph.inputs().iter().filter_map(|&id| graph.value(id).ty.as_tensor());
    let shapes: Vec<&Shape> = types.filter_map(|ty| ty.shape.as_ref()).collect();
    let is_open = |symbol: &String| !given.contains_key(symbol);
    let first: BTreeSet<String> = shapes
        .iter()
        .filter_map(|shape| Some(shape.get(0)?.as_symbol()?.to_string()))
        .filter(is_open)
        .collect();
    let others: BTreeSet<String> = shapes
        .iter()
        .flat_map(|shape| shape.iter())
        .flat_map(Dim::symbols)
        .map(|symbol| symbol.to_string())
        .filter(|symbol| is_open(symbol) && !first.contains(symbol))
        .collect();
    let mut refusal = None;
    // Sizes that all branches of the model take are better than such that only some do.
    for all_branches in [true, false] {
        for (size, choice) in choices(others.len()).take(MAX_TRIES) {
            let mut tried = given.clone();
            tried.extend(first.iter().map(|symbol| (symbol.clone(), size)));
            tried.extend(others.iter().cloned().zip(choice));
            let lookup = |symbol: &str| tried.get(symbol).copied();
            let taken = match all_branches {
                true => graph.takes_sizes(&lookup),
                false => graph.specialize(&lookup).map(|_| ()),
            };
            match taken {
                Ok(()) => return Ok(tried),
                Err(error) => refusal.get_or_insert(error),
            };
            if first.is_empty() && others.is_empty() {
                break;
            }
        }
    }
    let open: Vec<String> = first.into_iter().chain(others).collect();
    let refusal = refusal.map_or(String::new(), |error| error.to_string());
    let message = match open.is_empty() {
        true => format!("the model does not accept inputs of these sizes: {refusal}"),
        false => {
            format!("no usual size fits the open dimensions {}; give --shapes ({refusal})", open.join(", "))
        }
    };
    Err(BuildError::new(BuildErrorKind::WrongShape, message))
}

/// Sizes to try: of first dimensions, and of each of the others. First one size for all others, then one of
/// them apart from the rest (1 among the candidates, at last), then larger first dimensions.
fn choices(n_others: usize) -> impl Iterator<Item = (i64, Vec<i64>)> {
    let same = move |first: i64| CANDIDATES.into_iter().map(move |size| (first, vec![size; n_others]));
    let with_one = || CANDIDATES.into_iter().chain([1]);
    let apart = (0..n_others).flat_map(move |place| {
        with_one().flat_map(move |size| {
            with_one().filter(move |rest| *rest != size).map(move |rest| {
                let mut choice = vec![rest; n_others];
                choice[place] = size;
                (1, choice)
            })
        })
    });
    let larger = FIRST_CANDIDATES.into_iter().skip(1).flat_map(same);
    // Without others, one size is as good as any.
    let n_same = if n_others == 0 { 1 } else { CANDIDATES.len() };
    same(FIRST_CANDIDATES[0]).take(n_same).chain(apart).chain(larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(lines: &str) -> Graph {
        format!("graph \"g\" {{ {lines} output }}").parse().unwrap()
    }

    fn sizes(list: &[(&str, i64)]) -> BTreeMap<String, i64> {
        list.iter().map(|(name, size)| (name.to_string(), *size)).collect()
    }

    #[test]
    fn first_dimensions_are_one_and_others_the_smallest_that_fit() {
        let complete = |model: &Graph, given: &[(&str, i64)]| default_sizes(model, &sizes(given));
        let model = graph("input %x: f32[batch,3,h,w] %y: f32[batch,3,h,w] = Relu(%x)");
        assert_eq!(complete(&model, &[]).unwrap(), sizes(&[("batch", 1), ("h", 16), ("w", 16)]));
        assert_eq!(complete(&model, &[("h", 7)]).unwrap(), sizes(&[("batch", 1), ("h", 7), ("w", 16)]));
        // The sum with 48 columns leaves only that size (or 1, which is not a candidate).
        let model = graph("input %x: f32[b,n] input %c: f32[48] %y: f32[b,48] = Add(%x, %c)");
        assert_eq!(complete(&model, &[]).unwrap(), sizes(&[("b", 1), ("n", 48)]));
        // Two symbols that must differ.
        let model = graph(
            "input %x: f32[b,n,m] input %c: f32[48,1] input %d: f32[64]\n\
             %y: f32[b,48,m] = Add(%x, %c) %z: f32[b,48,64] = Add(%y, %d)",
        );
        assert_eq!(complete(&model, &[]).unwrap(), sizes(&[("b", 1), ("m", 64), ("n", 48)]));
        let model = graph("input %x: f32[b,n] input %c: f32[7,2] %y: f32[b,2] = MatMul(%x, %c)");
        let error = complete(&model, &[]).unwrap_err().to_string();
        let expected = "no usual size fits the open dimensions b, n; give --shapes (node ``: MatMul: ";
        assert!(error.starts_with(expected), "{error}");
        // A batch that must be even, and a size that must be 1.
        let model = graph("input %x: f32[b,3] const %s: i64[2] = [-1, 6] %y: f32[m,6] = Reshape(%x, %s)");
        assert_eq!(complete(&model, &[]).unwrap(), sizes(&[("b", 2)]));
        let model = graph("input %x: f32[2,s,4] input %c: f32[3,4] %y: f32[2,3,4] = Add(%x, %c)");
        assert_eq!(complete(&model, &[]).unwrap(), sizes(&[("s", 1)]));
    }
}
