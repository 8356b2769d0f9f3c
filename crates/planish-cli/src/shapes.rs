//! Sizes for open dimensions: those that the user gives, and a choice for the rest.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use planish_ir::{Graph, ValueInfo};
use planish_op::TensorType;
use planish_tensor::{Dim, Shape};

use crate::print;

/// Values of symbols.
pub(crate) type Sizes = BTreeMap<String, i64>;

/// What open dimensions after the first are tried with, in this order.
const CANDIDATES: [i64; 11] = [16, 32, 48, 64, 96, 128, 224, 256, 320, 512, 640];
/// What a first dimension is tried with; mostly a batch.
const FIRST_CANDIDATES: [i64; 6] = [1, 2, 4, 8, 16, 32];
/// Every try infers the whole graph.
const MAX_TRIES: usize = 500;

/// The tensor inputs of a graph; sequences and optionals have no sizes that could be given.
pub(crate) fn tensor_inputs(graph: &Graph) -> Vec<(&ValueInfo, &TensorType)> {
    let values = graph.inputs().iter().map(|&id| graph.value(id));
    values.filter_map(|value| Some((value, value.ty.as_tensor()?))).collect()
}

/// All inputs of a graph, for which values are to be found; other kinds than tensors are refused.
pub(crate) fn inputs(graph: &Graph) -> Result<Vec<(&ValueInfo, &TensorType)>> {
    let tensor = |&id| {
        let value = graph.value(id);
        let ty = value.ty.as_tensor().with_context(|| {
            format!("input `{}` is {}; only tensors can be given here", value.name, value.ty)
        })?;
        Ok((value, ty))
    };
    graph.inputs().iter().map(tensor).collect()
}

/// Reads `NAME:1x3x224x224` (`NAME:` for a scalar).
pub(crate) fn parse(texts: &[String]) -> Result<BTreeMap<String, Vec<usize>>> {
    let mut shapes = BTreeMap::new();
    for text in texts {
        // Names may hold colons themselves, sizes never do.
        let (name, sizes) = text
            .rsplit_once(':')
            .with_context(|| format!("--shapes wants NAME:SIZES as in x:1x3x224x224, not `{text}`"))?;
        let sizes = sizes.split('x').filter(|size| !size.is_empty()).map(str::parse::<usize>);
        let sizes: Vec<usize> = sizes.collect::<Result<_, _>>().ok().with_context(|| {
            format!("--shapes wants sizes such as 1x3x224x224 after the last colon, not `{text}`")
        })?;
        ensure!(shapes.insert(name.to_string(), sizes).is_none(), "--shapes gives `{name}` twice");
    }
    Ok(shapes)
}

/// Binds the symbols of the input's type so that it has this shape. Gives the symbols that had another size before:
/// exporters give one name to sizes that need not be equal, and then each input gets symbols of its own.
pub(crate) fn bind(name: &str, ty: &TensorType, shape: &[usize], sizes: &mut Sizes) -> Result<Vec<String>> {
    let Some(own) = &ty.shape else { return Ok(Vec::new()) };
    let found = print::sizes(shape);
    ensure!(
        own.rank() == shape.len(),
        "input `{name}` is {ty}, which has {} dimensions; {found} has {}",
        own.rank(),
        shape.len()
    );
    let mut conflicts = Vec::new();
    for (axis, (dim, &size)) in own.iter().zip(shape).enumerate() {
        let size = i64::try_from(size)?;
        if let Some(number) = dim.as_const().filter(|&number| number != size) {
            bail!("input `{name}` is {ty}; its dimension {axis} must be {number}, in {found} it is {size}");
        }
        if let Some(symbol) = dim.as_symbol() {
            let bound = *sizes.entry(symbol.to_string()).or_insert(size);
            if bound != size {
                conflicts.push(symbol.to_string());
            }
        }
    }
    Ok(conflicts)
}

/// The graph with these symbols taken apart: each input has its own.
pub(crate) fn untied(graph: &Graph, symbols: &BTreeSet<String>) -> Result<Graph> {
    Ok(graph.untie(&|dim| dim.as_symbol().is_some_and(|name| symbols.contains(name)))?)
}

/// What is said of symbols that got several sizes.
pub(crate) fn untied_note(symbols: &BTreeSet<String>) -> String {
    let names: Vec<String> = symbols.iter().map(|symbol| format!("`{symbol}`")).collect();
    let stand = if names.len() == 1 { "stands" } else { "stand" };
    format!("{} {stand} for several sizes: each input gets its own", names.join(", "))
}

/// Sizes for all symbols of the inputs that are not bound yet, such that inference accepts them: 1 where a
/// symbol is a first dimension, the smallest candidate elsewhere.
pub(crate) fn complete(graph: &Graph, given: &Sizes) -> Result<Sizes> {
    let inputs = tensor_inputs(graph);
    let shapes = || inputs.iter().filter_map(|(_, ty)| ty.shape.as_ref());
    let is_open = |symbol: &String| !given.contains_key(symbol);
    let first: BTreeSet<String> =
        shapes().filter_map(|shape| Some(shape.get(0)?.as_symbol()?.to_string())).filter(is_open).collect();
    let others: BTreeSet<String> = shapes()
        .flat_map(Shape::iter)
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
    if open.is_empty() {
        bail!("the model does not accept inputs of these sizes: {refusal}");
    }
    bail!("no usual size fits the open dimensions {}; give --shapes ({refusal})", open.join(", "))
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

/// The shape of an input at these sizes.
pub(crate) fn shape_at(name: &str, ty: &TensorType, sizes: &Sizes) -> Result<Vec<usize>> {
    let shape = ty.shape.as_ref().with_context(|| {
        format!("the number of dimensions of input `{name}` is not known; give --shapes {name}:SIZES")
    })?;
    shape
        .eval(&|symbol| sizes.get(symbol).copied())
        .with_context(|| format!("the size of input `{name}` of type {ty} is not known; give --shapes"))
}

/// The `--shapes` argument that stands for these shapes.
pub(crate) fn argument(shapes: &[(String, Vec<usize>)]) -> String {
    let list: Vec<String> =
        shapes.iter().map(|(name, shape)| format!("{name}:{}", print::sizes(shape))).collect();
    let list = list.join(",");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,".contains(c);
    if list.chars().all(is_plain) { list } else { format!("'{}'", list.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(lines: &str) -> Graph {
        format!("graph \"g\" {{ {lines} output }}").parse().unwrap()
    }

    fn sizes(list: &[(&str, i64)]) -> Sizes {
        list.iter().map(|(name, size)| (name.to_string(), *size)).collect()
    }

    #[test]
    fn arguments() {
        let parsed = parse(&["x:1x3".into(), "a:b:7".into(), "s:".into()]).unwrap();
        assert_eq!(parsed["x"], [1, 3]);
        assert_eq!(parsed["a:b"], [7]);
        assert!(parsed["s"].is_empty());
        for bad in [&["x"][..], &["x:1xy"], &["x:-1"], &["x:1", "x:2"]] {
            assert!(parse(&bad.iter().map(|text| text.to_string()).collect::<Vec<_>>()).is_err(), "{bad:?}");
        }
        assert_eq!(argument(&[("x".into(), vec![1, 3]), ("m".into(), vec![])]), "x:1x3,m:");
        assert_eq!(argument(&[("two words".into(), vec![1])]), "'two words:1'");
    }

    #[test]
    fn first_dimensions_are_one_and_others_the_smallest_that_fit() {
        let model = graph("input %x: f32[batch,3,h,w] %y: f32[batch,3,h,w] = Relu(%x)");
        assert_eq!(complete(&model, &Sizes::new()).unwrap(), sizes(&[("batch", 1), ("h", 16), ("w", 16)]));
        assert_eq!(
            complete(&model, &sizes(&[("h", 7)])).unwrap(),
            sizes(&[("batch", 1), ("h", 7), ("w", 16)])
        );
        // The sum with 48 columns leaves only that size (or 1, which is no candidate).
        let model = graph("input %x: f32[b,n] input %c: f32[48] %y: f32[b,48] = Add(%x, %c)");
        assert_eq!(complete(&model, &Sizes::new()).unwrap(), sizes(&[("b", 1), ("n", 48)]));
        // Two symbols that must differ.
        let model = graph(
            "input %x: f32[b,n,m] input %c: f32[48,1] input %d: f32[64]\n\
             %y: f32[b,48,m] = Add(%x, %c) %z: f32[b,48,64] = Add(%y, %d)",
        );
        assert_eq!(complete(&model, &Sizes::new()).unwrap(), sizes(&[("b", 1), ("m", 64), ("n", 48)]));
        let model = graph("input %x: f32[b,n] input %c: f32[7,2] %y: f32[b,2] = MatMul(%x, %c)");
        let error = complete(&model, &Sizes::new()).unwrap_err().to_string();
        let expected = "no usual size fits the open dimensions b, n; give --shapes (node ``: MatMul: ";
        assert!(error.starts_with(expected), "{error}");
        // A batch that must be even, and a size that must be 1.
        let model = graph("input %x: f32[b,3] const %s: i64[2] = [-1, 6] %y: f32[m,6] = Reshape(%x, %s)");
        assert_eq!(complete(&model, &Sizes::new()).unwrap(), sizes(&[("b", 2)]));
        let model = graph("input %x: f32[2,s,4] input %c: f32[3,4] %y: f32[2,3,4] = Add(%x, %c)");
        assert_eq!(complete(&model, &Sizes::new()).unwrap(), sizes(&[("s", 1)]));
    }

    #[test]
    fn shapes_bind_symbols_or_are_refused() {
        let model = graph("input %x: f32[b,3,n,n] input %u: f32[*] input %s: seq(f32[])");
        let ty = model.value(model.inputs()[0]).ty.as_tensor().unwrap();
        let mut bound = Sizes::new();
        assert!(bind("x", ty, &[2, 3, 5, 5], &mut bound).unwrap().is_empty());
        assert_eq!(bound, sizes(&[("b", 2), ("n", 5)]));
        let refused = |shape: &[usize]| bind("x", ty, shape, &mut Sizes::new()).unwrap_err().to_string();
        assert_eq!(
            refused(&[2, 4, 5, 5]),
            "input `x` is f32[b,3,n,n]; its dimension 1 must be 3, in 2x4x5x5 it is 4"
        );
        let conflicts = bind("x", ty, &[2, 3, 5, 6], &mut bound).unwrap();
        assert_eq!(conflicts, ["n"]);
        assert_eq!(refused(&[2, 3]), "input `x` is f32[b,3,n,n], which has 4 dimensions; 2x3 has 2");
        let unranked = model.value(model.inputs()[1]).ty.as_tensor().unwrap();
        assert!(shape_at("u", unranked, &bound).is_err());
        assert!(inputs(&model).is_err());
        assert_eq!(tensor_inputs(&model).len(), 2);
    }
}
