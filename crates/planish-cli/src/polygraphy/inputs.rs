//! Inputs as Polygraphy makes them: random numbers within ranges, or arrays of files.

use anyhow::{Context, Result, bail, ensure};
use planish::graph::Graph;
use planish::io::{Inputs, Random, Sources};
use planish::{DType, Engine, Tensor};

use crate::args::PolygraphyRun;
use crate::compare::NamedOutputs;
use crate::say_note;

/// `x:[1,3,224,224]`, `x:1x3x224x224` or `x,1x3x224x224` as `--shapes` takes it.
pub(super) fn shape(text: &str) -> Result<String> {
    let colon = text.rsplit_once(':').or_else(|| text.split_once(','));
    let (name, sizes) = colon.with_context(|| format!("`{text}` gives no shape; give NAME:[1,3,224,224]"))?;
    let plain = sizes.trim_start_matches(['[', '(']).trim_end_matches([']', ')']);
    let parts: Vec<&str> = plain.split([',', 'x']).map(str::trim).filter(|part| !part.is_empty()).collect();
    let is_size = |part: &&str| part.parse::<usize>().is_ok();
    ensure!(parts.iter().all(is_size), "`{text}`: after the name come sizes, as in {name}:[1,3,224,224]");
    Ok(format!("{name}:{}", parts.join("x")))
}

/// The range of random values of inputs: of all, or of one by name.
struct Ranges {
    list: Vec<(Option<String>, f64, f64)>,
    floats: (f64, f64),
    /// Integers are left as they are drawn where nothing is said: indices must lie in what they point into.
    ints: Option<(f64, f64)>,
}

impl Ranges {
    fn new(args: &PolygraphyRun) -> Result<Ranges> {
        let mut list = Vec::new();
        for text in &args.val_range {
            let bad = || format!("--val-range {text}: give [LOW,HIGH] or NAME:[LOW,HIGH]");
            let (name, range) = match text.rsplit_once(':') {
                Some((name, range)) => (Some(name.to_string()).filter(|name| !name.is_empty()), range),
                None => (None, text.as_str()),
            };
            let plain = range.trim().trim_start_matches(['[', '(']).trim_end_matches([']', ')']);
            let (low, high) = plain.split_once(',').with_context(bad)?;
            let number = |text: &str| text.trim().parse::<f64>().ok().filter(|x| x.is_finite());
            let (low, high) =
                number(low).zip(number(high)).filter(|(low, high)| low <= high).with_context(bad)?;
            list.push((name, low, high));
        }
        let ints = match (args.int_min, args.int_max) {
            (None, None) => None,
            (low, high) => Some((low.unwrap_or(1) as f64, high.unwrap_or(25) as f64)),
        };
        let floats = (args.float_min.unwrap_or(0.0), args.float_max.unwrap_or(1.0));
        ensure!(floats.0 <= floats.1, "--float-min is above --float-max");
        Ok(Ranges { list, floats, ints })
    }

    fn of(&self, name: &str, dtype: DType) -> Option<(f64, f64)> {
        let own = self.list.iter().rev().find(|(known, _, _)| known.as_deref() == Some(name));
        let found = own.or_else(|| self.list.iter().rev().find(|(known, _, _)| known.is_none()));
        match found {
            Some((_, low, high)) => Some((*low, *high)),
            None if dtype.is_float() => Some(self.floats),
            None => self.ints,
        }
    }

    /// The tensor with values in its range.
    fn drawn(&self, name: &str, tensor: &Tensor, random: &mut Random) -> Result<Tensor> {
        let Some((low, high)) = self.of(name, tensor.dtype()).filter(|_| tensor.dtype() != DType::Bool)
        else {
            return Ok(tensor.clone());
        };
        let is_float = tensor.dtype().is_float();
        let mut draw = || match is_float {
            true => low + (high - low) * random.unit(),
            // Both ends are drawn.
            false => (low + (high - low + 1.0) * random.unit()).floor().min(high),
        };
        let values: Vec<f64> = (0..tensor.len()).map(|_| draw()).collect();
        Ok(planish::io::npy::converted(&Tensor::new(tensor.shape(), values)?, tensor.dtype())?)
    }
}

/// Inputs of a model, an iteration each.
pub(super) fn of_model(args: &PolygraphyRun, graph: &Graph) -> Result<Vec<NamedOutputs>> {
    all(args, &|sources| Ok(sources.gather(graph)?), &[])
}

/// Inputs of a plan.
pub(super) fn of_engine(args: &PolygraphyRun, engine: &Engine) -> Result<Vec<NamedOutputs>> {
    all(args, &|sources| Ok(sources.gather_for(engine)?), &engine.record().header.tuned_at)
}

fn all(
    args: &PolygraphyRun,
    gather: &dyn Fn(&Sources<'_>) -> Result<Inputs>,
    defaults: &[(String, i64)],
) -> Result<Vec<NamedOutputs>> {
    let mut shapes = args.input_shapes.iter().map(|text| shape(text)).collect::<Result<Vec<_>>>()?;
    if shapes.is_empty() {
        // Sizes that a profile is tuned for are allowed ones.
        let usual = if args.trt_opt_shapes.is_empty() { &args.trt_max_shapes } else { &args.trt_opt_shapes };
        shapes = usual.iter().map(|text| shape(text)).collect::<Result<_>>()?;
    }
    if !args.load_inputs.is_empty() {
        let read = |path| {
            let sources = Sources { archive: Some(path), defaults, ..Sources::default() };
            Ok(gather(&sources)?.tensors)
        };
        return args.load_inputs.iter().map(read).collect();
    }
    if args.iterations == 0 {
        bail!("--iterations is at least 1");
    }
    let ranges = Ranges::new(args)?;
    let one = |number: usize| {
        let seed = args.seed.wrapping_add(number as u64);
        let sources = Sources { random: Some(seed), shapes: &shapes, defaults, ..Sources::default() };
        let inputs = gather(&sources)?;
        if number == 0 {
            inputs.notes.iter().filter(|note| note.starts_with("sizes")).for_each(|note| say_note(note));
        }
        let mut random = Random::new(seed);
        let drawn =
            |(name, tensor): &(String, Tensor)| Ok((name.clone(), ranges.drawn(name, tensor, &mut random)?));
        inputs.tensors.iter().map(drawn).collect()
    };
    (0..args.iterations).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_three_spellings() {
        for text in ["x:[1,3,4]", "x:1x3x4", "x,1x3x4"] {
            assert_eq!(shape(text).unwrap(), "x:1x3x4");
        }
        assert_eq!(shape("in:0:[2]").unwrap(), "in:0:2");
        assert!(shape("x").is_err() && shape("x:[a]").is_err());
    }
}
