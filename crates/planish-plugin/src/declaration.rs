//! The declaration of an operator: lines of `key: value`, the same for all kinds of plugins. A shared library gives it as a
//! string, a `.cu` file has it in its first comment.

use std::collections::BTreeSet;

use planish_op::Attribute;
use planish_tensor::DType;

use crate::expression::Expression;
use crate::formula::Formula;
use crate::signature::{Axis, Condition, Port, PortType, REST, Relation, Signature};

/// The first words of a declaration, and the version of its language.
const HEAD: &str = "planish-plugin";
const LANGUAGE: i64 = 1;

/// More is no declaration.
const MAX_BYTES: usize = 1 << 16;

/// What an attribute may be, and what it is where a model says nothing.
#[derive(Clone, PartialEq, Debug)]
pub struct AttributeRule {
    pub name: String,
    /// A value of the kind; the default, unless it is required.
    pub example: Attribute,
    pub required: bool,
}

/// One way to compute the operator: a name, and numbers that its text or code is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TacticRule {
    pub name: String,
    pub defines: Vec<(String, i64)>,
}

/// How a kernel of a `.cu` file is launched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaunchRule {
    pub kernel: String,
    pub threads: Expression,
    pub grid: Vec<Expression>,
    pub shared: Expression,
}

/// All that is said of an operator but its kernels.
#[derive(Clone, PartialEq, Debug)]
pub struct Declaration {
    pub domain: String,
    pub name: String,
    pub version: i64,
    pub about: String,
    pub signature: Signature,
    pub attributes: Vec<AttributeRule>,
    /// Whether operands may lie in the order channels-last as well as plain.
    pub channels_last: bool,
    /// Whether operands may lie inside larger ones.
    pub strided: bool,
    /// Output and input that may share memory.
    pub in_place: Vec<(usize, usize)>,
    pub epilogue: bool,
    pub tolerances: Vec<(DType, f64)>,
    pub reference: Option<Formula>,
    /// Sizes that it is checked at besides those that are made up.
    pub sizes: Vec<Vec<(String, i64)>>,
    pub tactics: Vec<TacticRule>,
    pub launch: Option<LaunchRule>,
    /// Bytes of scratch.
    pub workspace: Expression,
    /// Whether the code of a library runs on the CPU, and puts work on streams of CUDA.
    pub cpu: bool,
    pub cuda: bool,
}

/// The element type of this name, as NumPy and ONNX call it or as Planish does.
pub fn dtype(name: &str) -> Option<DType> {
    const LONG: [(&str, DType); 13] = [
        ("float32", DType::F32),
        ("float", DType::F32),
        ("float16", DType::F16),
        ("bfloat16", DType::BF16),
        ("float64", DType::F64),
        ("double", DType::F64),
        ("int8", DType::I8),
        ("int16", DType::I16),
        ("int32", DType::I32),
        ("int64", DType::I64),
        ("uint8", DType::U8),
        ("uint32", DType::U32),
        ("uint64", DType::U64),
    ];
    let all = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];
    let long = LONG.iter().find(|(known, _)| *known == name).map(|(_, dtype)| *dtype);
    long.or_else(|| all.into_iter().find(|dtype| dtype.name() == name))
}

/// The declaration inside the first comment of a source file that has one.
pub(crate) fn in_comment(source: &str) -> Result<String, String> {
    let mut lines = source.lines();
    let bare = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix("//").or(line.strip_prefix("/*")).unwrap_or(line);
        line.strip_prefix('*').filter(|rest| !rest.starts_with('/')).unwrap_or(line).to_string()
    };
    let Some(head) = lines.find(|line| bare(line).trim_start().starts_with(HEAD)) else {
        return Err(format!("it has no comment that begins with `{HEAD} {LANGUAGE}`"));
    };
    let by_line = head.trim_start().starts_with("//");
    let mut text = format!("{}\n", bare(head).trim());
    for line in lines {
        if by_line && !line.trim_start().starts_with("//") || !by_line && line.trim_start().starts_with("*/")
        {
            break;
        }
        let (line, ends) = match line.split_once("*/") {
            Some((line, _)) if !by_line => (line, true),
            _ => (line, false),
        };
        text.push_str(&bare(line));
        text.push('\n');
        if ends {
            break;
        }
    }
    Ok(text)
}

impl Declaration {
    pub fn parse(text: &str) -> Result<Declaration, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("its declaration has more than {MAX_BYTES} bytes"));
        }
        let mut lines = text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty());
        let language = lines.next().map(str::trim).and_then(|head| head.strip_prefix(HEAD)).map(str::trim);
        match language.and_then(|language| language.parse::<i64>().ok()) {
            Some(LANGUAGE) => {}
            Some(newer) => {
                return Err(format!("its declaration is of version {newer}, {LANGUAGE} is known here"));
            }
            None => return Err(format!("its declaration does not begin with `{HEAD} {LANGUAGE}`")),
        }
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in lines {
            let key = line.split_once(':').map(|(key, value)| (key.trim(), value.trim()));
            let known = key.filter(|(key, _)| KEYS.contains(key));
            if let Some((key, _)) = known.filter(|(key, _)| fields.iter().any(|(known, _)| known == key)) {
                return Err(format!("`{key}:` is said twice"));
            }
            match (known, fields.last_mut()) {
                (Some((key, value)), _) => fields.push((key.to_string(), value.to_string())),
                (None, Some((key, value))) if LISTS.contains(&key.as_str()) => {
                    value.push('\n');
                    value.push_str(line.trim());
                }
                _ => {
                    return Err(format!(
                        "`{}` is no line of a declaration: {}",
                        line.trim(),
                        KEYS.join(", ")
                    ));
                }
            }
        }
        Fields(fields).declaration()
    }

    /// The attributes of a node, with what is said where the model says nothing.
    pub fn filled(&self, given: &[(String, Attribute)]) -> Result<Vec<(String, Attribute)>, String> {
        if let Some((name, _)) =
            given.iter().find(|(name, _)| !self.attributes.iter().any(|rule| rule.name == *name))
        {
            return Err(format!("it has no attribute `{name}`"));
        }
        let mut all = Vec::new();
        for AttributeRule { name, example, required } in &self.attributes {
            let value = match given.iter().find(|(known, _)| known == name) {
                Some((_, value)) if value.kind() == example.kind() => value.clone(),
                Some((_, value)) => {
                    let (wanted, found) = (example.kind().name(), value.kind().name());
                    return Err(format!("attribute `{name}` should be of kind {wanted}, it is {found}"));
                }
                None if *required => return Err(format!("attribute `{name}` is missing")),
                None => example.clone(),
            };
            all.push((name.clone(), value));
        }
        Ok(all)
    }

    /// How far results of this type may be off.
    pub fn tolerance(&self, dtype: DType) -> f64 {
        let said = self.tolerances.iter().find(|(known, _)| *known == dtype);
        // Some units in the last place of each type, where nothing is said.
        said.map_or(
            match dtype {
                DType::F64 => 1e-12,
                DType::F32 => 1e-5,
                DType::F16 => 2e-3,
                DType::BF16 => 2e-2,
                _ => 0.0,
            },
            |(_, tolerance)| *tolerance,
        )
    }
}

#[rustfmt::skip]
const KEYS: [&str; 22] = [
    "op", "version", "about", "types", "inputs", "outputs", "where", "attributes", "devices", "layouts", "strided",
    "in-place", "epilogue", "tolerance", "reference", "sizes", "tactics", "kernel", "threads", "grid", "shared", "workspace",
];
/// Keys whose values go on over several lines.
const LISTS: [&str; 5] = ["reference", "inputs", "outputs", "attributes", "sizes"];

/// Keys and values.
struct Fields(Vec<(String, String)>);

impl Fields {
    fn find(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn get(&self, key: &str) -> Result<&str, String> {
        self.find(key).ok_or_else(|| format!("its declaration has no `{key}:`"))
    }

    fn yes(&self, key: &str) -> Result<bool, String> {
        match self.find(key) {
            None | Some("no") => Ok(false),
            Some("yes") => Ok(true),
            Some(other) => Err(format!("`{key}: {other}` should be yes or no")),
        }
    }

    fn expression(&self, key: &str, default: i64) -> Result<Expression, String> {
        match self.find(key) {
            None => Ok(Expression::Number(default)),
            Some(text) => Expression::parse(text).map_err(|why| format!("`{key}: {text}`: {why}")),
        }
    }

    fn declaration(&self) -> Result<Declaration, String> {
        let op = self.get("op")?;
        let (domain, name) =
            op.split_once("::").ok_or_else(|| format!("`op: {op}` should be DOMAIN::NAME"))?;
        let is_word = |word: &str, more: &str| {
            !word.is_empty()
                && word.chars().all(|letter| letter.is_ascii_alphanumeric() || more.contains(letter))
        };
        if !is_word(domain, "._-") || !is_word(name, "_") || matches!(domain, "ai.onnx" | "ai.onnx.ml") {
            return Err(format!("`op: {op}` should be DOMAIN::NAME, in a domain of its own"));
        }
        let version = self.get("version")?;
        let version = version.parse::<i64>().ok().filter(|version| *version >= 1);
        let version = version.ok_or("`version:` should be a whole number from 1 on")?;
        let attributes = split(self.find("attributes").unwrap_or_default(), ',')
            .map(attribute)
            .collect::<Result<Vec<_>, _>>()?;
        let signature = self.signature(&attributes)?;
        let position = |ports: &[Port], name: &str| {
            let found = ports.iter().position(|port| port.name == name.trim());
            found.ok_or_else(|| format!("`in-place:` names `{}`, which is neither", name.trim()))
        };
        let in_place = split(self.find("in-place").unwrap_or_default(), ',').map(|pair| {
            let (output, input) = pair.split_once('=').ok_or("`in-place:` should be OUTPUT = INPUT")?;
            Ok::<_, String>((position(&signature.outputs, output)?, position(&signature.inputs, input)?))
        });
        let in_place = in_place.collect::<Result<Vec<_>, _>>()?;
        let tolerances = split(self.find("tolerance").unwrap_or_default(), ',').map(|pair| {
            let (name, bound) = pair.split_once(' ').ok_or("`tolerance:` should be TYPE NUMBER")?;
            let bound = bound.trim().parse::<f64>().ok().filter(|bound| (0.0..1.0).contains(bound));
            let dtype = dtype(name.trim()).ok_or_else(|| format!("there is no type `{name}`"))?;
            Ok::<_, String>((dtype, bound.ok_or("a tolerance is a number from 0 to 1")?))
        });
        let names = |ports: &'_ [Port]| ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
        let (inputs, outputs) = (names(&signature.inputs), names(&signature.outputs));
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let own: Vec<&str> = attributes.iter().map(|rule| rule.name.as_str()).collect();
        let reference = self.find("reference").map(|text| Formula::parse(text, &inputs, &outputs, &own));
        let launch = match self.find("kernel") {
            None => None,
            Some(kernel) if is_word(kernel, "_") => {
                let grid = parts(self.get("grid")?)
                    .into_iter()
                    .map(|text| Expression::parse(text).map_err(|why| format!("`grid: {text}`: {why}")));
                let grid = grid.collect::<Result<Vec<_>, _>>()?;
                if !(1..=3).contains(&grid.len()) {
                    return Err("`grid:` should be one to three numbers".to_string());
                }
                let threads = self.expression("threads", 256)?;
                let shared = self.expression("shared", 0)?;
                Some(LaunchRule { kernel: kernel.to_string(), threads, grid, shared })
            }
            Some(kernel) => return Err(format!("`kernel: {kernel}` should be the name of a function")),
        };
        let layouts: Vec<&str> = split(self.find("layouts").unwrap_or("plain"), ',').collect();
        if let Some(other) = layouts.iter().find(|word| !["plain", "channels_last"].contains(word)) {
            return Err(format!("`layouts: {other}` should be plain or channels_last"));
        }
        // A text of CUDA C++ is of no use elsewhere; the code of a library runs on the CPU, unless it says more.
        let devices = self.find("devices").unwrap_or(if launch.is_some() { "cuda" } else { "cpu" });
        let devices: Vec<&str> = split(devices, ',').collect();
        if let Some(other) = devices.iter().find(|word| !["cpu", "cuda"].contains(word)) {
            return Err(format!("`devices: {other}` should be cpu or cuda"));
        }
        let mut tactics = split(self.find("tactics").unwrap_or_default(), ';')
            .map(tactic)
            .collect::<Result<Vec<_>, _>>()?;
        if tactics.is_empty() {
            tactics.push(TacticRule { name: "default".to_string(), defines: Vec::new() });
        }
        Ok(Declaration {
            domain: domain.to_string(),
            name: name.to_string(),
            version,
            about: self.find("about").unwrap_or_default().replace('\n', " "),
            signature,
            attributes,
            channels_last: layouts.contains(&"channels_last"),
            strided: self.yes("strided")?,
            in_place,
            epilogue: self.yes("epilogue")?,
            tolerances: tolerances.collect::<Result<_, _>>()?,
            reference: reference.transpose()?,
            sizes: split(self.find("sizes").unwrap_or_default(), ';').map(sizes).collect::<Result<_, _>>()?,
            tactics,
            launch,
            workspace: self.expression("workspace", 0)?,
            cpu: devices.contains(&"cpu"),
            cuda: devices.contains(&"cuda"),
        })
    }

    fn signature(&self, attributes: &[AttributeRule]) -> Result<Signature, String> {
        let mut variables = Vec::new();
        for rule in split(self.find("types").unwrap_or_default(), ';') {
            let (name, types) = rule.split_once('=').ok_or("`types:` should be NAME = TYPE | TYPE")?;
            let types = types.split('|').map(|name| {
                dtype(name.trim()).ok_or_else(|| format!("there is no element type `{}`", name.trim()))
            });
            variables.push((name.trim().to_string(), types.collect::<Result<Vec<_>, _>>()?));
        }
        let port = |text: &str| port(text, &variables);
        let inputs = parts(self.get("inputs")?).into_iter().map(port).collect::<Result<Vec<_>, _>>()?;
        let outputs = parts(self.get("outputs")?).into_iter().map(port).collect::<Result<Vec<_>, _>>()?;
        if inputs.is_empty() || outputs.is_empty() {
            return Err("an operator has an input and an output at least".to_string());
        }
        let conditions = parts(self.find("where").unwrap_or_default()).into_iter().map(condition);
        let conditions = conditions.collect::<Result<Vec<_>, _>>()?;
        // Everything that outputs and conditions name must be bound by inputs that are always there.
        let mut known: BTreeSet<String> = attributes.iter().map(|rule| rule.name.clone()).collect();
        known.insert(REST.to_string());
        let mut used = BTreeSet::new();
        for axis in inputs.iter().flat_map(|port| &port.axes) {
            match axis {
                Axis::Rest => {}
                Axis::Size(Expression::Name(name)) => _ = known.insert(name.clone()),
                Axis::Size(size) => size.names(&mut used),
            }
        }
        for axis in outputs.iter().flat_map(|port| &port.axes) {
            if let Axis::Size(size) = axis {
                size.names(&mut used);
            }
        }
        for Condition { left, right, .. } in &conditions {
            left.names(&mut used);
            right.names(&mut used);
        }
        if let Some(unknown) = used.difference(&known).next() {
            return Err(format!("`{unknown}` is no size of an input and no attribute"));
        }
        Ok(Signature { variables, inputs, outputs, conditions })
    }
}

fn split(text: &str, by: char) -> impl Iterator<Item = &str> {
    text.split([by, '\n']).map(str::trim).filter(|part| !part.is_empty())
}

/// Parts between commas, but for those inside brackets.
fn parts(text: &str) -> Vec<&str> {
    let (mut all, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' | '\n' if depth == 0 => {
                all.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(text[start..].trim());
    all.retain(|part| !part.is_empty());
    all
}

fn port(text: &str, variables: &[(String, Vec<DType>)]) -> Result<Port, String> {
    let wrong = || format!("`{text}` should be NAME: TYPE[SIZE, …]");
    let (name, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (ty, axes) = rest.split_once('[').ok_or_else(wrong)?;
    let axes = axes.trim_end().strip_suffix(']').ok_or_else(wrong)?;
    let (name, ty) = (name.trim(), ty.trim());
    let (name, optional) = name.strip_suffix('?').map_or((name, false), |name| (name.trim(), true));
    let ty = match variables.iter().any(|(known, _)| known == ty) {
        true => PortType::Variable(ty.to_string()),
        false => PortType::Fixed(dtype(ty).ok_or_else(|| format!("`{ty}` is no element type"))?),
    };
    let axes = parts(axes).into_iter().map(|axis| match axis {
        "..." => Ok(Axis::Rest),
        size => Expression::parse(size).map(Axis::Size).map_err(|why| format!("`{text}`: {why}")),
    });
    let axes = axes.collect::<Result<Vec<_>, _>>()?;
    if axes.iter().filter(|axis| **axis == Axis::Rest).count() > 1 {
        return Err(format!("`{text}` has `...` twice"));
    }
    Ok(Port { name: name.to_string(), ty, axes, optional })
}

fn condition(text: &str) -> Result<Condition, String> {
    let forms = [("==", Relation::Equal), ("<=", Relation::AtMost), ("<", Relation::Below)];
    for (sign, relation) in forms {
        if let Some((left, right)) = text.split_once(sign) {
            let (left, right) = (Expression::parse(left)?, Expression::parse(right)?);
            return Ok(Condition { text: text.to_string(), left, relation, right });
        }
    }
    Err(format!("`where: {text}` should compare by ==, <= or <"))
}

fn attribute(text: &str) -> Result<AttributeRule, String> {
    let wrong = || format!("`attributes: {text}` should be NAME: int|float|string|ints|floats = DEFAULT");
    let (name, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (kind, default) = match rest.split_once('=') {
        Some((kind, default)) => (kind.trim(), Some(default.trim())),
        None => (rest.trim(), None),
    };
    let inside = || default.map(|text| text.trim_matches(['[', ']']).split_whitespace().collect::<Vec<_>>());
    let example = match kind {
        "int" => Attribute::Int(default.unwrap_or("0").parse().map_err(|_| wrong())?),
        "float" => Attribute::Float(default.unwrap_or("0").parse().map_err(|_| wrong())?),
        "string" => Attribute::Str(default.unwrap_or_default().trim_matches('"').to_string()),
        "ints" => Attribute::Ints(numbers(inside()).ok_or_else(wrong)?),
        "floats" => Attribute::Floats(numbers(inside()).ok_or_else(wrong)?),
        _ => return Err(wrong()),
    };
    Ok(AttributeRule { name: name.trim().to_string(), example, required: default.is_none() })
}

/// Numbers with spaces between; commas separate attributes.
fn numbers<T: std::str::FromStr>(words: Option<Vec<&str>>) -> Option<Vec<T>> {
    words.unwrap_or_default().into_iter().map(|word| word.parse().ok()).collect()
}

fn tactic(text: &str) -> Result<TacticRule, String> {
    let wrong = || format!("`tactics: {text}` should be NAME or NAME(MACRO=NUMBER, …)");
    let (name, inside) = match text.split_once('(') {
        Some((name, rest)) => (name.trim(), rest.trim_end().strip_suffix(')').ok_or_else(wrong)?),
        None => (text.trim(), ""),
    };
    if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        return Err(wrong());
    }
    Ok(TacticRule { name: name.to_string(), defines: sizes(&inside.replace(',', " "))? })
}

fn sizes(text: &str) -> Result<Vec<(String, i64)>, String> {
    let pair = |word: &str| {
        let (name, number) = word.split_once('=')?;
        Some((name.to_string(), number.parse::<i64>().ok().filter(|number| *number >= 0)?))
    };
    let words = text.split_whitespace();
    words.map(|word| pair(word).ok_or_else(|| format!("`{word}` should be NAME=NUMBER"))).collect()
}

#[cfg(test)]
mod tests;
