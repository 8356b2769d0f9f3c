//! Sizes for open dimensions: those that the user gives, and a choice for the rest.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use planish_ir::{Graph, ValueInfo};
use planish_op::TensorType;
use planish_tensor::{Dim, Shape};

use crate::print;

/// Values of symbols.
pub(crate) type Sizes = BTreeMap<String, i64>;

/// What open dimensions behind the first are tried with, in this order.
const CANDIDATES: [i64; 11] = [16, 32, 48, 64, 96, 128, 224, 256, 320, 512, 640];
/// Combinations of different sizes that are tried when no common one will do.
const MAX_COMBINATIONS: usize = 1000;

/// The tensor inputs of a graph; other kinds cannot be given on a command line.
pub(crate) fn tensor_inputs(graph: &Graph) -> Result<Vec<(&ValueInfo, &TensorType)>> {
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
            format!("--shapes wants sizes such as 1x3x224x224 behind the last colon, not `{text}`")
        })?;
        ensure!(shapes.insert(name.to_string(), sizes).is_none(), "--shapes gives `{name}` twice");
    }
    Ok(shapes)
}

/// Binds the symbols of the input's type so that it has this shape.
pub(crate) fn bind(name: &str, ty: &TensorType, shape: &[usize], sizes: &mut Sizes) -> Result<()> {
    let Some(own) = &ty.shape else { return Ok(()) };
    let found = print::sizes(shape);
    ensure!(
        own.rank() == shape.len(),
        "input `{name}` is {ty}, which has {} dimensions; {found} has {}",
        own.rank(),
        shape.len()
    );
    for (axis, (dim, &size)) in own.iter().zip(shape).enumerate() {
        let size = i64::try_from(size)?;
        let bound = match (dim.as_const(), dim.as_symbol()) {
            (Some(number), _) => Some(number),
            (_, Some(symbol)) => Some(*sizes.entry(symbol.to_string()).or_insert(size)),
            _ => dim.eval(&|symbol| sizes.get(symbol).copied()),
        };
        if let Some(bound) = bound.filter(|&bound| bound != size) {
            bail!("input `{name}` is {ty}; its dimension {axis} must be {bound}, in {found} it is {size}");
        }
    }
    Ok(())
}

/// Sizes for all symbols of the inputs that are not bound yet: 1 where a symbol is a first dimension, the
/// smallest candidate that inference accepts elsewhere.
pub(crate) fn complete(graph: &Graph, given: &Sizes) -> Result<Sizes> {
    let mut sizes = given.clone();
    let inputs = tensor_inputs(graph)?;
    for (_, ty) in &inputs {
        if let Some(symbol) = ty.shape.as_ref().and_then(|shape| shape.get(0)?.as_symbol()) {
            sizes.entry(symbol.to_string()).or_insert(1);
        }
    }
    let open: Vec<String> = inputs
        .iter()
        .flat_map(|(_, ty)| ty.shape.iter().flat_map(Shape::iter).flat_map(Dim::symbols))
        .map(|symbol| symbol.to_string())
        .filter(|symbol| !sizes.contains_key(symbol))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    if open.is_empty() {
        return Ok(sizes);
    }
    for choice in choices(open.len()) {
        let mut tried = sizes.clone();
        tried.extend(open.iter().cloned().zip(choice));
        if graph.specialize(&|symbol| tried.get(symbol).copied()).is_ok() {
            return Ok(tried);
        }
    }
    bail!("no usual size fits the open dimensions {}; give --shapes", open.join(", "))
}

/// One size for all, then different ones for a few.
fn choices(n_symbols: usize) -> impl Iterator<Item = Vec<i64>> {
    let same = CANDIDATES.into_iter().map(move |size| vec![size; n_symbols]);
    let n_combinations = CANDIDATES.len().checked_pow(n_symbols as u32).unwrap_or(usize::MAX);
    let n_tried = if n_symbols > 1 && n_combinations <= MAX_COMBINATIONS * 2 { n_combinations } else { 0 };
    let different = (0..n_tried).map(move |idx| {
        let digit = |place: usize| CANDIDATES[idx / CANDIDATES.len().pow(place as u32) % CANDIDATES.len()];
        (0..n_symbols).map(digit).collect()
    });
    same.chain(different)
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
        let model = graph("input %x: f32[b,n] input %c: f32[7] %y: f32[b,7] = Add(%x, %c)");
        let error = complete(&model, &Sizes::new()).unwrap_err().to_string();
        assert_eq!(error, "no usual size fits the open dimensions n; give --shapes");
    }

    #[test]
    fn shapes_bind_symbols_or_are_refused() {
        let model = graph("input %x: f32[b,3,n,n] input %u: f32[*] input %s: seq(f32[])");
        let ty = model.value(model.inputs()[0]).ty.as_tensor().unwrap();
        let mut bound = Sizes::new();
        bind("x", ty, &[2, 3, 5, 5], &mut bound).unwrap();
        assert_eq!(bound, sizes(&[("b", 2), ("n", 5)]));
        let refused = |shape: &[usize]| bind("x", ty, shape, &mut Sizes::new()).unwrap_err().to_string();
        assert_eq!(
            refused(&[2, 4, 5, 5]),
            "input `x` is f32[b,3,n,n]; its dimension 1 must be 3, in 2x4x5x5 it is 4"
        );
        assert_eq!(
            refused(&[2, 3, 5, 6]),
            "input `x` is f32[b,3,n,n]; its dimension 3 must be 5, in 2x3x5x6 it is 6"
        );
        assert_eq!(refused(&[2, 3]), "input `x` is f32[b,3,n,n], which has 4 dimensions; 2x3 has 2");
        let unranked = model.value(model.inputs()[1]).ty.as_tensor().unwrap();
        assert!(shape_at("u", unranked, &bound).is_err());
        assert!(tensor_inputs(&model).is_err());
    }
}
