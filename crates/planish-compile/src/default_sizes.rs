//! The sizes at which a model is run and counted where nobody gives any, one rule for the library and the command line; and
//! those at which it is tuned then, which are more like what a plan meets.

use std::collections::{BTreeMap, BTreeSet};

use planish_ir::Graph;
use planish_tensor::{Dim, Shape};

use crate::error::{BuildError, BuildErrorKind};

/// What open dimensions after the first are tried with, in this order.
const CANDIDATES: [i64; 11] = [16, 32, 48, 64, 96, 128, 224, 256, 320, 512, 640];
/// What a first dimension is tried with; mostly a batch.
const FIRST_CANDIDATES: [i64; 6] = [1, 2, 4, 8, 16, 32];
/// What is tried when nothing of that fits: samples of sound, steps of long series.
const LONG_CANDIDATES: [i64; 6] = [1024, 4096, 16_000, 48_000, 80_000, 160_000];
/// The longest that is tried for all open dimensions at once.
const MOST_OF_ALL: i64 = 4096;
/// Every try infers the whole graph.
const MAX_TRIES: usize = 500;
/// Tries with one dimension apart from the rest, so that long ones have a turn.
const MAX_APART: usize = 400;

/// Heights and widths at which models of images are tuned, in this order: what is fastest at 16 pixels, where most taps see
/// padding, is up to 1.5 times as slow at 224 (ResNet-18).
const SIDES: [i64; 5] = [224, 256, 320, 128, 64];
/// Channels of pages and scans, of photos, and with one for depth or infrared.
const IMAGE_CHANNELS: [i64; 4] = [1, 2, 3, 4];
/// Models that do more than this with such an image are tuned at a smaller one: four channels may be an image that was
/// encoded, and 224 pixels as many as 1,792 of a photo.
const MOST_FLOPS: u64 = 20_000_000_000;

/// The sizes that a plan is tuned at where nobody gives any: as [`default_sizes`], but heights and widths of images as
/// photos have them (224, 256, 320, 128, 64) where the model takes these and does not do too much with them.
pub fn tuned_sizes(
    graph: &Graph,
    given: &BTreeMap<String, i64>,
) -> Result<BTreeMap<String, i64>, BuildError> {
    let shapes: Vec<&Shape> =
        graph.inputs().iter().filter_map(|&id| graph.value(id).ty.as_tensor()?.shape.as_ref()).collect();
    let mut sides = BTreeSet::new();
    for shape in &shapes {
        let dims = shape.dims();
        let spatial = match dims {
            [_, channels, spatial @ ..] | [_, spatial @ .., channels]
                if spatial.len() == 2 && channels.as_const().is_some_and(|n| IMAGE_CHANNELS.contains(&n)) =>
            {
                spatial
            }
            _ => continue,
        };
        let symbols: Vec<&str> = spatial.iter().filter_map(Dim::as_symbol).collect();
        if symbols.len() == spatial.len() {
            sides.extend(
                symbols.into_iter().filter(|symbol| !given.contains_key(*symbol)).map(str::to_string),
            );
        }
    }
    if !sides.is_empty() {
        let first: BTreeSet<&str> = shapes.iter().filter_map(|shape| shape.get(0)?.as_symbol()).collect();
        let all: BTreeSet<String> = shapes
            .iter()
            .flat_map(|shape| shape.iter())
            .flat_map(Dim::symbols)
            .map(|s| s.to_string())
            .collect();
        for side in SIDES {
            let size = |symbol: &String| match given.get(symbol) {
                Some(size) => *size,
                None if sides.contains(symbol) => side,
                None if first.contains(&**symbol) => FIRST_CANDIDATES[0],
                None => CANDIDATES[0],
            };
            let mut tried: BTreeMap<String, i64> =
                all.iter().map(|symbol| (symbol.clone(), size(symbol))).collect();
            tried.extend(given.iter().map(|(symbol, size)| (symbol.clone(), *size)));
            let lookup = |symbol: &str| tried.get(symbol).copied();
            if graph.work(&lookup).flops <= MOST_FLOPS && graph.takes_sizes(&lookup).is_ok() {
                return Ok(tried);
            }
        }
    }
    default_sizes(graph, given)
}

/// Sizes for all symbols of the inputs, those given included, such that inference accepts them: 1 where a symbol is a
/// first dimension, the smallest usual size elsewhere (16, 32, 48, 64, 96, 128, 224, 256, 320, 512, 640; sounds and
/// series up to 160,000).
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
/// them apart from the rest (1 among the candidates, at last), then long ones, then larger first dimensions.
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
    let long = LONG_CANDIDATES.into_iter().flat_map(move |size| {
        // One of them beside single channels, or beside what is short, or all where that is no matter of gigabytes.
        let beside = move |place: usize| {
            [1, CANDIDATES[0]].map(|rest| {
                let mut choice = vec![rest; n_others];
                choice[place] = size;
                (1, choice)
            })
        };
        (0..n_others).flat_map(beside).chain((size <= MOST_OF_ALL).then(|| (1, vec![size; n_others])))
    });
    let n_long = if n_others == 0 { 0 } else { usize::MAX };
    let larger = FIRST_CANDIDATES.into_iter().skip(1).flat_map(same);
    // Without others, one size is as good as any.
    let n_same = if n_others == 0 { 1 } else { CANDIDATES.len() };
    same(FIRST_CANDIDATES[0]).take(n_same).chain(apart.take(MAX_APART)).chain(long.take(n_long)).chain(larger)
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
    fn images_are_tuned_as_photos_are() {
        let tuned = |model: &Graph, given: &[(&str, i64)]| tuned_sizes(model, &sizes(given)).unwrap();
        let model = graph("input %x: f32[batch,3,h,w] %y: f32[batch,3,h,w] = Relu(%x)");
        assert_eq!(tuned(&model, &[]), sizes(&[("batch", 1), ("h", 224), ("w", 224)]));
        assert_eq!(tuned(&model, &[("h", 7)]), sizes(&[("batch", 1), ("h", 7), ("w", 224)]));
        let model = graph("input %x: u8[n,h,w,1] input %s: i64[k]");
        assert_eq!(tuned(&model, &[]), sizes(&[("h", 224), ("k", 1), ("n", 1), ("w", 224)]));
        // Pixels that have to be 256, and what is no photo.
        let model = graph("input %x: f32[1,3,h,w] input %c: f32[256] %y: f32[1,3,h,256] = Add(%x, %c)");
        assert_eq!(tuned(&model, &[]), sizes(&[("h", 256), ("w", 256)]));
        for other in ["f32[1,5,h,w]", "f32[1,c,h,w]", "f32[1,3,h,8]", "f32[h,w]"] {
            let model = graph(&format!("input %x: {other} %y: {other} = Relu(%x)"));
            let given = sizes(&[]);
            assert_eq!(tuned(&model, &[]), default_sizes(&model, &given).unwrap(), "{other}");
        }
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
        let expected = "no usual size fits the open dimensions b, n; give --shapes (MatMul: ";
        assert!(error.starts_with(expected), "{error}");
        // Samples of sound, over a channel.
        let model = graph("input %x: f32[b,c,n] input %w: f32[4096,2] %y: f32[b,c,2] = MatMul(%x, %w)");
        assert_eq!(complete(&model, &[]).unwrap(), sizes(&[("b", 1), ("c", 1), ("n", 4096)]));
        // A batch that must be even, and a size that must be 1.
        let model = graph("input %x: f32[b,3] const %s: i64[2] = [-1, 6] %y: f32[m,6] = Reshape(%x, %s)");
        assert_eq!(complete(&model, &[]).unwrap(), sizes(&[("b", 2)]));
        let model = graph("input %x: f32[2,s,4] input %c: f32[3,4] %y: f32[2,3,4] = Add(%x, %c)");
        assert_eq!(complete(&model, &[]).unwrap(), sizes(&[("s", 1)]));
    }
}
