//! Shapes and profiles as users write them: `x:1x3x224x224`, `min=x:1x3 opt=x:8x3 max=x:32x3`.
//!
//! ```
//! use planish::graph::Graph;
//! use planish::shapes::{self, Asked};
//!
//! let graph: Graph = r#"graph "g" { input %x: f32[batch,3] %y: f32[batch,3] = Relu(%x) output %y }"#.parse()?;
//! let asked = Asked { profiles: vec!["min=x:1x3 opt=x:8x3 max=x:32x3".into()], ..Asked::default() };
//! let profiles = asked.resolve(&graph)?;
//! assert_eq!((profiles[0].ranges[0].min, profiles[0].ranges[0].opt, profiles[0].ranges[0].max), (1, 8, 32));
//!
//! // Sizes that nobody gives: 1 for a first axis, else the smallest usual size that the model accepts.
//! assert_eq!(shapes::default_sizes(&graph, &Default::default())?["batch"], 1);
//!
//! let wrong = Asked { shapes: vec!["x:3".into()], ..Asked::default() };
//! let error = wrong.resolve(&graph).unwrap_err().to_string();
//! assert_eq!(error, "`--shapes x:3` gives 1 dimension; input `x` has 2: f32[batch,3]");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};

pub use planish_compile::{default_sizes, tuned_sizes};
use planish_ir::{Graph, ValueInfo};
use planish_op::TensorType;
use planish_plan::{Profile, SymbolRange};

use crate::{Error, ErrorKind, Model};

/// Sizes by the symbols that they are of.
/// [`bind_all`] gives them, [`shape_at`] takes them.
pub type Sizes = BTreeMap<String, i64>;

/// Shapes by the inputs that they are of.
/// [`parse`] gives them.
pub type Shapes = BTreeMap<String, Vec<usize>>;

fn wrong<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(ErrorKind::WrongShape, message))
}

/// Reads `NAME:1x3x224x224` (`NAME:` for a scalar), one input each. `origin` is who gives them, for errors.
///
/// ```
/// use planish::shapes;
///
/// let shapes = shapes::parse("--shapes", &["x:1x3x224x224".to_string()])?;
/// assert_eq!(shapes["x"], [1, 3, 224, 224]);
/// assert_eq!(shapes::sizes_text(&shapes["x"]), "1x3x224x224");
/// assert_eq!(shapes::argument(&[("an input".to_string(), vec![2, 3])]), "'an input:2x3'");
/// # Ok::<(), planish::Error>(())
/// ```
pub fn parse(origin: &str, texts: &[String]) -> Result<Shapes, Error> {
    let mut shapes = Shapes::new();
    for text in texts {
        // Names may hold colons themselves, sizes never do.
        let Some((name, sizes)) = text.rsplit_once(':') else {
            return wrong(format!("`{origin} {text}` has no sizes; give NAME:SIZES, as in x:1x3x224x224"));
        };
        let sizes = sizes.split('x').filter(|size| !size.is_empty()).map(str::parse::<usize>);
        let Ok(sizes) = sizes.collect::<Result<Vec<usize>, _>>() else {
            return wrong(format!("`{origin} {text}`: after the last colon come sizes such as 1x3x224x224"));
        };
        if shapes.insert(name.to_string(), sizes).is_some() {
            return wrong(format!("{origin} gives input `{name}` twice"));
        }
    }
    Ok(shapes)
}

/// A shape as users write it: `1x3x224x224`.
/// [`parse`] has an example.
pub fn sizes_text(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// The `--shapes` argument that stands for these shapes, as a shell takes it.
/// [`parse`] has an example.
pub fn argument(shapes: &[(String, Vec<usize>)]) -> String {
    let list: Vec<String> =
        shapes.iter().map(|(name, shape)| format!("{name}:{}", sizes_text(shape))).collect();
    let list = list.join(",");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,".contains(c);
    if list.chars().all(is_plain) { list } else { format!("'{}'", list.replace('\'', "'\\''")) }
}

/// The tensor inputs of a graph; sequences and optionals have no sizes that could be given.
/// [`bind_all`] has an example.
pub fn tensor_inputs(graph: &Graph) -> Vec<(&ValueInfo, &TensorType)> {
    let values = graph.inputs().iter().map(|&id| graph.value(id));
    values.filter_map(|value| Some((value, value.ty.as_tensor()?))).collect()
}

/// Binds the symbols of an input's type so that it has this shape. Gives the symbols that had another size before:
/// exporters give one name to sizes that need not be equal, and then each input gets symbols of its own.
///
/// `given` says who gives the shape, for errors: `--shapes x:3`, or the name of a file.
/// [`bind_all`] does it for all inputs of a graph.
///
/// ```
/// use planish::{DType, TensorType};
/// use planish::shapes::{self, Sizes};
///
/// let ty = TensorType { dtype: DType::F32, shape: Some("[batch,3]".parse()?) };
/// let mut sizes = Sizes::new();
/// assert!(shapes::bind("`--shapes x:8x3`", "x", &ty, &[8, 3], &mut sizes)?.is_empty());
/// assert_eq!(sizes["batch"], 8);
/// assert!(shapes::bind("`--shapes x:8x4`", "x", &ty, &[8, 4], &mut sizes).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bind(
    given: &str,
    name: &str,
    ty: &TensorType,
    shape: &[usize],
    sizes: &mut Sizes,
) -> Result<Vec<String>, Error> {
    let Some(own) = &ty.shape else { return Ok(Vec::new()) };
    if own.rank() != shape.len() {
        let n = shape.len();
        let s = if n == 1 { "" } else { "s" };
        return wrong(format!("{given} gives {n} dimension{s}; input `{name}` has {}: {ty}", own.rank()));
    }
    let mut conflicts = Vec::new();
    for (axis, (dim, &size)) in own.iter().zip(shape).enumerate() {
        let Ok(size) = i64::try_from(size) else {
            return wrong(format!("{given} gives {size} for dimension {axis}, more than any memory"));
        };
        if let Some(number) = dim.as_const().filter(|&number| number != size) {
            return wrong(format!(
                "{given} gives {size} for dimension {axis}; input `{name}` needs {number}: {ty}"
            ));
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

/// The sizes of symbols to which a list of shapes amounts, and the symbols that would need several.
///
/// ```
/// use planish::graph::Graph;
/// use planish::shapes;
///
/// let graph = r#"graph "g" { input %a: f32[n] input %b: f32[n] %y: f32[n] = Relu(%a) output %y, %b }"#;
/// let graph: Graph = graph.parse()?;
/// let (sizes, several) = shapes::bind_all(&graph, "--shapes", &["a:3".to_string(), "b:3".to_string()])?;
/// assert_eq!((sizes["n"], several.len()), (3, 0));
/// for (input, ty) in shapes::tensor_inputs(&graph) {
///     assert_eq!(shapes::shape_at(&input.name, ty, &sizes)?, [3]);
/// }
/// // One name for two sizes: `Model::untie` gives each input its own.
/// let (_, several) = shapes::bind_all(&graph, "--shapes", &["a:3".to_string(), "b:4".to_string()])?;
/// assert_eq!(shapes::untied_note(&several), "`n` stands for several sizes: each input gets its own");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bind_all(graph: &Graph, origin: &str, texts: &[String]) -> Result<(Sizes, BTreeSet<String>), Error> {
    let (mut sizes, mut apart) = (Sizes::new(), BTreeSet::new());
    let inputs = tensor_inputs(graph);
    for (name, shape) in parse(origin, texts)? {
        let Some((_, ty)) = inputs.iter().find(|(value, _)| *value.name == *name) else {
            let names: Vec<String> = inputs.iter().map(|(value, _)| format!("`{}`", value.name)).collect();
            let message = format!(
                "{origin} names `{name}`, which is not an input of the model; its inputs are {}",
                names.join(", ")
            );
            return Err(Error::new(ErrorKind::WrongInputs, message));
        };
        let given = format!("`{origin} {name}:{}`", sizes_text(&shape));
        apart.extend(bind(&given, &name, ty, &shape, &mut sizes)?);
    }
    Ok((sizes, apart))
}

/// The shape of an input at these sizes.
/// [`bind_all`] has an example.
pub fn shape_at(name: &str, ty: &TensorType, sizes: &Sizes) -> Result<Vec<usize>, Error> {
    let Some(shape) = &ty.shape else {
        return wrong(format!(
            "the model does not say how many dimensions input `{name}` has; give --shapes {name}:SIZES"
        ));
    };
    match shape.eval(&|symbol| sizes.get(symbol).copied()) {
        Some(shape) => Ok(shape),
        None => wrong(format!("the size of input `{name}` ({ty}) is not known; give --shapes {name}:SIZES")),
    }
}

/// What is said of symbols that got several sizes.
/// [`bind_all`] has an example.
pub fn untied_note(symbols: &BTreeSet<String>) -> String {
    let names: Vec<String> = symbols.iter().map(|symbol| format!("`{symbol}`")).collect();
    let stand = if names.len() == 1 { "stands" } else { "stand" };
    format!("{} {stand} for several sizes: each input gets its own", names.join(", "))
}

/// The shapes that a plan is asked for, in one of three ways; none of them makes a plan that runs at any.
/// The page of this module has an example.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// These alone (`--shapes`).
    pub shapes: Vec<String>,
    /// The smallest (`--min-shapes`), those to tune for (`--opt-shapes`) and the largest (`--max-shapes`).
    pub min_shapes: Vec<String>,
    /// Those to tune for; as `max_shapes` if not given.
    pub opt_shapes: Vec<String>,
    /// The largest.
    pub max_shapes: Vec<String>,
    /// Several optimization profiles, each as `min=x:1x3 opt=x:8x3 max=x:32x3` (`--shape-profile`).
    pub profiles: Vec<String>,
}

/// One list of shapes, and the flag or the argument that it came by, for errors.
/// [`profile`] has an example.
pub type List = (&'static str, Vec<String>);

impl Asked {
    /// The lists that make up each profile: smallest, best and largest.
    fn lists(&self) -> Result<Vec<[List; 3]>, Error> {
        let ways = [!self.shapes.is_empty(), !self.max_shapes.is_empty(), !self.profiles.is_empty()];
        if ways.iter().filter(|&&given| given).count() > 1 {
            let message = "--shapes, --min-shapes/--opt-shapes/--max-shapes and --shape-profile exclude each other; \
                           give one of them";
            return Err(Error::new(ErrorKind::BadOption, message));
        }
        if !self.shapes.is_empty() {
            let list = ("--shapes", self.shapes.clone());
            return Ok(vec![[list.clone(), list.clone(), list]]);
        }
        if !self.max_shapes.is_empty() {
            let or = |flag, list: &Vec<String>, other: &List| match list.is_empty() {
                true => other.clone(),
                false => (flag, list.clone()),
            };
            let max = ("--max-shapes", self.max_shapes.clone());
            let opt = or("--opt-shapes", &self.opt_shapes, &max);
            return Ok(vec![[or("--min-shapes", &self.min_shapes, &opt), opt, max]]);
        }
        self.profiles.iter().map(|text| profile_lists(text)).collect()
    }

    /// The profiles of a graph that are asked for; none for a plan that runs at any shapes.
    pub fn resolve(&self, graph: &Graph) -> Result<Vec<Profile>, Error> {
        self.lists()?.iter().map(|lists| profile(graph, lists)).collect()
    }

    /// The symbols to which one of the lists gives several sizes: see [`crate::Model::untie`].
    ///
    /// ```
    /// use planish::graph::Graph;
    /// use planish::shapes::Asked;
    ///
    /// let graph = r#"graph "g" { input %a: f32[n] input %b: f32[n] %y: f32[n] = Relu(%a) output %y, %b }"#;
    /// let asked = Asked { shapes: vec!["a:3".to_string(), "b:4".to_string()], ..Asked::default() };
    /// assert!(asked.untied(&graph.parse::<Graph>()?)?.contains("n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn untied(&self, graph: &Graph) -> Result<BTreeSet<String>, Error> {
        let mut apart = BTreeSet::new();
        for (origin, list) in self.lists()?.into_iter().flatten() {
            apart.extend(bind_all(graph, origin, &list)?.1);
        }
        Ok(apart)
    }
}

fn profile_lists(text: &str) -> Result<[List; 3], Error> {
    let wants = "give min=…, opt=… and max=…, as in 'min=x:1x3 opt=x:8x3 max=x:32x3'";
    let bad = |what: String| Error::new(ErrorKind::BadOption, format!("--shape-profile: {what}; {wants}"));
    let mut parts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for part in text.split_whitespace() {
        let known = |(name, _): &(&str, &str)| ["min", "opt", "max"].contains(name);
        let Some((name, shapes)) = part.split_once('=').filter(known) else {
            return Err(bad(format!("`{part}` is none of its parts")));
        };
        parts.insert(name, shapes.split(',').map(str::to_string).collect());
    }
    let Some(max) = parts.get("max") else { return Err(bad("max=… is missing".to_string())) };
    let opt = parts.get("opt").unwrap_or(max);
    let min = parts.get("min").unwrap_or(opt);
    Ok([
        ("--shape-profile min", min.clone()),
        ("--shape-profile opt", opt.clone()),
        ("--shape-profile max", max.clone()),
    ])
}

/// The optimization profile of three lists of shapes: the smallest, those to tune for, and the largest.
///
/// ```
/// use planish::graph::Graph;
/// use planish::shapes;
///
/// let graph: Graph = r#"graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }"#.parse()?;
/// let lists = [("min", "x:1"), ("opt", "x:4"), ("max", "x:9")].map(|(origin, text)| (origin, vec![text.to_string()]));
/// let range = &shapes::profile(&graph, &lists)?.ranges[0];
/// assert_eq!((range.min, range.opt, range.max), (1, 4, 9));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn profile(graph: &Graph, [min, opt, max]: &[List; 3]) -> Result<Profile, Error> {
    let bound = |(origin, list): &List| Ok::<Sizes, Error>(bind_all(graph, origin, list)?.0);
    let most = default_sizes(graph, &bound(max)?)?;
    let (best, least) = (bound(opt)?, bound(min)?);
    let mut ranges = Vec::new();
    for (symbol, &max) in &most {
        let opt = best.get(symbol).copied().unwrap_or(max);
        let min = least.get(symbol).copied().unwrap_or(max);
        if min > opt || opt > max {
            return wrong(format!(
                "the profile's sizes of `{symbol}` are min {min}, opt {opt} and max {max}; give min <= opt <= max"
            ));
        }
        ranges.push(SymbolRange { symbol: symbol.clone(), min, opt, max });
    }
    Ok(Profile { ranges })
}

/// The model with symbols of its own for inputs that these profiles give different sizes, and the profiles: each is three
/// lists of shapes, as [`profile`] takes them.
///
/// ```
/// use planish::{Model, shapes};
///
/// let graph = r#"graph "g" { input %a: f32[n] input %b: f32[n] %y: f32[n] = Relu(%a) output %y, %b }"#;
/// let model = Model::from(graph.parse::<planish::graph::Graph>()?);
/// let list = |origin| (origin, vec!["a:3".to_string(), "b:4".to_string()]);
/// let (model, profiles) = shapes::apart(model, &[[list("min"), list("opt"), list("max")]])?;
/// assert_eq!(model.graph().value(model.graph().inputs()[1]).ty.to_string(), "f32[b.0]");
/// assert_eq!(profiles[0].ranges.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn apart(model: Model, profiles: &[[List; 3]]) -> Result<(Model, Vec<Profile>), Error> {
    let mut symbols = BTreeSet::new();
    for (origin, list) in profiles.iter().flatten() {
        symbols.extend(bind_all(model.graph(), origin, list)?.1);
    }
    let model = model.untie(&symbols)?;
    let profiles = profiles.iter().map(|lists| profile(model.graph(), lists)).collect::<Result<_, _>>()?;
    Ok((model, profiles))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(lines: &str) -> Graph {
        format!("graph \"g\" {{ {lines} output }}").parse().unwrap()
    }

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| text.to_string()).collect()
    }

    #[test]
    fn arguments() {
        let parsed = parse("--shapes", &texts(&["x:1x3", "a:b:7", "s:"])).unwrap();
        assert_eq!(parsed["x"], [1, 3]);
        assert_eq!(parsed["a:b"], [7]);
        assert!(parsed["s"].is_empty());
        for bad in [&["x"][..], &["x:1xy"], &["x:-1"], &["x:1", "x:2"]] {
            let error = parse("--shapes", &texts(bad)).unwrap_err().to_string();
            assert!(error.contains("--shapes"), "{error}");
        }
        assert_eq!(argument(&[("x".into(), vec![1, 3]), ("m".into(), vec![])]), "x:1x3,m:");
        assert_eq!(argument(&[("two words".into(), vec![1])]), "'two words:1'");
    }

    #[test]
    fn shapes_bind_symbols_or_are_refused() {
        let model = graph("input %x: f32[b,3,n,n] input %u: f32[*] input %s: seq(f32[])");
        let ty = model.value(model.inputs()[0]).ty.as_tensor().unwrap();
        let mut bound = Sizes::new();
        assert!(bind("it", "x", ty, &[2, 3, 5, 5], &mut bound).unwrap().is_empty());
        assert_eq!(bound, Sizes::from([("b".to_string(), 2), ("n".to_string(), 5)]));
        let refused = |shape: &[usize]| {
            let given = format!("`--shapes x:{}`", sizes_text(shape));
            bind(&given, "x", ty, shape, &mut Sizes::new()).unwrap_err().to_string()
        };
        assert_eq!(
            refused(&[2, 4, 5, 5]),
            "`--shapes x:2x4x5x5` gives 4 for dimension 1; input `x` needs 3: f32[b,3,n,n]"
        );
        assert_eq!(refused(&[2, 3]), "`--shapes x:2x3` gives 2 dimensions; input `x` has 4: f32[b,3,n,n]");
        assert_eq!(bind("it", "x", ty, &[2, 3, 5, 6], &mut bound).unwrap(), ["n"]);
        let unranked = model.value(model.inputs()[1]).ty.as_tensor().unwrap();
        assert!(shape_at("u", unranked, &bound).is_err());
        assert_eq!(tensor_inputs(&model).len(), 2);
    }

    #[test]
    fn profiles_come_in_three_ways() {
        let model = graph("input %x: f32[b,3] %y: f32[b,3] = Relu(%x)");
        let sizes = |asked: &Asked| {
            let profiles = asked.resolve(&model).map_err(|error| error.to_string())?;
            let range = |profile: &Profile| {
                let range = &profile.ranges[0];
                (range.min, range.opt, range.max)
            };
            Ok::<_, String>(profiles.iter().map(range).collect::<Vec<_>>())
        };
        assert_eq!(sizes(&Asked::default()), Ok(vec![]));
        let fixed = Asked { shapes: texts(&["x:4x3"]), ..Asked::default() };
        assert_eq!(sizes(&fixed), Ok(vec![(4, 4, 4)]));
        let ends = Asked { min_shapes: texts(&["x:1x3"]), max_shapes: texts(&["x:9x3"]), ..Asked::default() };
        assert_eq!(sizes(&ends), Ok(vec![(1, 9, 9)]));
        let several = texts(&["min=x:1x3 opt=x:2x3 max=x:3x3", "max=x:8x3"]);
        let several = Asked { profiles: several, ..Asked::default() };
        assert_eq!(sizes(&several), Ok(vec![(1, 2, 3), (8, 8, 8)]));
        let both = Asked { shapes: texts(&["x:4x3"]), ..ends };
        assert!(sizes(&both).unwrap_err().contains("exclude each other"));
        for (text, message) in [
            ("min=x:1x3", "--shape-profile: max=… is missing"),
            ("most=x:1x3", "--shape-profile: `most=x:1x3` is none of its parts"),
            ("min=x:9x3 max=x:3x3", "min 9, opt 3 and max 3; give min <= opt <= max"),
            ("max=x:3", "`--shape-profile max x:3` gives 1 dimension; input `x` has 2: f32[b,3]"),
            (
                "max=z:3",
                "--shape-profile max names `z`, which is not an input of the model; its inputs are `x`",
            ),
        ] {
            let error = sizes(&Asked { profiles: texts(&[text]), ..Asked::default() }).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
