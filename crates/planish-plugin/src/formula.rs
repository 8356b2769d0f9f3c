//! References in words: operators of the table wired together, as in `y = Mul(x, Sigmoid(x, ))` or
//! `y = RotaryEmbedding(x, cos, sin, interleaved=turn)`.
//!
//! Arguments are names of inputs, results of lines before, calls, numbers, and `_` for what is left out; `name=value` is an
//! attribute, whose value may be the name of an attribute of the plugin's own. It is what a plugin's kernels are compared
//! with, and what `planish plugin match` looks for in models.

use planish_op::{Attribute, AttributeKind, Op, OpSpec, Value};
use planish_tensor::{DType, Tensor};

/// Calls within calls, and calls in all.
const MAX_DEPTH: usize = 16;
const MAX_CALLS: usize = 256;

/// What a call reads.
#[derive(Clone, PartialEq, Debug)]
pub enum Argument {
    /// An input of the operator.
    Input(usize),
    /// An output of an earlier call.
    Call { call: usize, output: usize },
    /// A float, of the type that the operator's first input has.
    Float(f64),
    /// Whole numbers: a scalar, or a list.
    Ints(Vec<i64>, bool),
}

/// The value of an attribute of a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Setting {
    Int(i64),
    Float(f64),
    Text(String),
    Ints(Vec<i64>),
    /// What an attribute of the plugin's operator says.
    Own(String),
}

/// One operator of a formula.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    pub op: String,
    pub arguments: Vec<Option<Argument>>,
    pub settings: Vec<(String, Setting)>,
    pub n_outputs: usize,
}

/// Operators wired together.
#[derive(Clone, PartialEq, Debug)]
pub struct Formula {
    pub calls: Vec<Call>,
    pub outputs: Vec<Argument>,
}

impl Formula {
    /// Reads lines over these inputs that define these outputs.
    pub fn parse(
        text: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[&str],
    ) -> Result<Formula, String> {
        let mut reader = Reader {
            formula: Formula { calls: Vec::new(), outputs: Vec::new() },
            names: inputs
                .iter()
                .enumerate()
                .map(|(idx, name)| (name.to_string(), Argument::Input(idx)))
                .collect(),
            attributes,
        };
        for line in text.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty()) {
            reader.line(line).map_err(|why| format!("reference `{line}`: {why}"))?;
        }
        let of = |name: &&str| match reader.names.iter().rev().find(|(known, _)| known == name) {
            Some((_, argument)) => Ok(argument.clone()),
            None => Err(format!("the reference does not define `{name}`")),
        };
        let made = outputs.iter().map(of).collect::<Result<_, _>>()?;
        Ok(Formula { outputs: made, ..reader.formula })
    }

    /// The operators with the attributes that these of the plugin's operator give them.
    pub fn ops(&self, attributes: &[(String, Attribute)]) -> Result<Vec<Op>, String> {
        self.calls.iter().map(|call| call.op(attributes)).collect()
    }

    /// The outputs on these inputs, of the given types. Floats are computed in f64 and rounded at the end.
    pub fn evaluate(
        &self,
        attributes: &[(String, Attribute)],
        inputs: &[Option<&Tensor>],
        types: &[DType],
    ) -> Result<Vec<Tensor>, String> {
        let wide: Vec<Option<Tensor>> = inputs
            .iter()
            .map(|input| input.map(|tensor| cast(tensor, widened(tensor.dtype()))).transpose())
            .collect::<Result<_, _>>()?;
        let first = wide.iter().flatten().next().map_or(DType::F32, Tensor::dtype);
        let ops = self.ops(attributes)?;
        let mut made: Vec<Vec<Value>> = Vec::new();
        let value = |argument: &Argument, made: &[Vec<Value>]| -> Result<Option<Value>, String> {
            Ok(match argument {
                Argument::Input(idx) => wide.get(*idx).cloned().flatten().map(Value::from),
                Argument::Call { call, output } => {
                    made.get(*call).and_then(|outputs| outputs.get(*output)).cloned()
                }
                Argument::Float(number) => {
                    let dtype = if first.is_float() { first } else { DType::F64 };
                    Some(Tensor::from_f64s(dtype, &[], &[*number]).map_err(|error| error.to_string())?.into())
                }
                Argument::Ints(numbers, true) => Some(Tensor::scalar(numbers[0]).into()),
                Argument::Ints(numbers, false) => Some(Tensor::vector(numbers.clone()).into()),
            })
        };
        for (call, op) in self.calls.iter().zip(&ops) {
            let arguments: Vec<Option<Value>> = call
                .arguments
                .iter()
                .map(|argument| argument.as_ref().map_or(Ok(None), |argument| value(argument, &made)))
                .collect::<Result<_, _>>()?;
            let borrowed: Vec<Option<&Value>> = arguments.iter().map(Option::as_ref).collect();
            let outputs = planish_reference::evaluate(op, &borrowed, call.n_outputs);
            made.push(outputs.map_err(|error| error.to_string())?);
        }
        let mut results = Vec::new();
        for (argument, dtype) in self.outputs.iter().zip(types) {
            let value = value(argument, &made)?.ok_or("an output is an input that is left out")?;
            let tensor = value.as_tensor().ok_or("an output is no tensor")?;
            results.push(cast(tensor, *dtype)?);
        }
        Ok(results)
    }
}

impl Call {
    fn op(&self, attributes: &[(String, Attribute)]) -> Result<Op, String> {
        let spec = OpSpec::find(&self.op).ok_or_else(|| format!("there is no operator `{}`", self.op))?;
        let mut list = Vec::new();
        for (name, setting) in &self.settings {
            let field = spec.field(name).ok_or_else(|| format!("{} has no attribute `{name}`", self.op))?;
            let given = match setting {
                Setting::Int(number) => Attribute::Int(*number),
                Setting::Float(number) => Attribute::Float(*number as f32),
                Setting::Text(text) => Attribute::Str(text.clone()),
                Setting::Ints(numbers) => Attribute::Ints(numbers.clone()),
                Setting::Own(own) => {
                    let found = attributes.iter().find(|(known, _)| known == own);
                    found.map(|(_, value)| value.clone()).ok_or_else(|| format!("`{own}` has no value"))?
                }
            };
            let wrong = || format!("{} takes no such `{name}`", self.op);
            list.push((name.clone(), as_kind(given, field.kind).ok_or_else(wrong)?));
        }
        Op::from_attributes(&self.op, &list).map_err(|error| error.to_string())
    }
}

/// An attribute as a field of this kind takes it.
fn as_kind(value: Attribute, kind: AttributeKind) -> Option<Attribute> {
    match (value, kind) {
        (Attribute::Int(number), AttributeKind::Bool) => Some(Attribute::Bool(number != 0)),
        (Attribute::Int(number), AttributeKind::Float) => Some(Attribute::Float(number as f32)),
        (Attribute::Str(name), AttributeKind::DType) => {
            crate::declaration::dtype(&name).map(Attribute::DType)
        }
        (value, kind) => (value.kind() == kind).then_some(value),
    }
}

fn widened(dtype: DType) -> DType {
    if dtype.is_wide_float() { DType::F64 } else { dtype }
}

fn cast(tensor: &Tensor, to: DType) -> Result<Tensor, String> {
    if tensor.dtype() == to {
        return Ok(tensor.clone());
    }
    let op = Op::from_attributes("Cast", &[("to".to_string(), Attribute::DType(to))]);
    let op = op.map_err(|error| error.to_string())?;
    let made = planish_reference::evaluate(&op, &[Some(&Value::from(tensor.clone()))], 1);
    match made.map_err(|error| error.to_string())?.pop() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        _ => Err("a cast made no tensor".to_string()),
    }
}

/// A formula while it is read.
struct Reader<'a> {
    formula: Formula,
    names: Vec<(String, Argument)>,
    attributes: &'a [&'a str],
}

impl Reader<'_> {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let (names, call) = line.split_once('=').ok_or("it has no `=`")?;
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        let (argument, rest) = self.argument(call.trim(), 0, names.len())?;
        if !rest.trim().is_empty() {
            return Err(format!("it does not go on with `{rest}`"));
        }
        for (output, name) in names.iter().enumerate() {
            let made = match &argument {
                Some(Argument::Call { call, .. }) => Argument::Call { call: *call, output },
                Some(other) if names.len() == 1 => other.clone(),
                _ => return Err("only a call makes several results".to_string()),
            };
            self.names.push((name.to_string(), made));
        }
        Ok(())
    }

    /// One argument, and what is behind it.
    fn argument<'t>(
        &mut self,
        text: &'t str,
        depth: usize,
        n_outputs: usize,
    ) -> Result<(Option<Argument>, &'t str), String> {
        if depth > MAX_DEPTH || self.formula.calls.len() > MAX_CALLS {
            return Err("too many calls".to_string());
        }
        let text = text.trim_start();
        match text.chars().next() {
            Some('[') => {
                let (inside, rest) = text[1..].split_once(']').ok_or("a `]` is missing")?;
                Ok((Some(Argument::Ints(ints(inside)?, false)), rest))
            }
            Some(letter) if letter.is_ascii_digit() || matches!(letter, '-' | '.') => {
                let (word, rest) = number_word(text);
                match word.parse::<i64>() {
                    Ok(number) => Ok((Some(Argument::Ints(vec![number], true)), rest)),
                    Err(_) => {
                        let number = word.parse().map_err(|_| format!("`{word}` is no number"))?;
                        Ok((Some(Argument::Float(number)), rest))
                    }
                }
            }
            _ => {
                let (word, rest) = name_word(text);
                if let Some(rest) = rest.trim_start().strip_prefix('(') {
                    return self.call(word, rest, depth, n_outputs);
                }
                if word == "_" {
                    return Ok((None, rest));
                }
                let known = self.names.iter().rev().find(|(name, _)| name == word);
                let known = known.ok_or_else(|| format!("nothing is called `{word}`"))?;
                Ok((Some(known.1.clone()), rest))
            }
        }
    }

    fn call<'t>(
        &mut self,
        op: &str,
        mut rest: &'t str,
        depth: usize,
        n_outputs: usize,
    ) -> Result<(Option<Argument>, &'t str), String> {
        if OpSpec::find(op).is_none() {
            return Err(format!("there is no operator `{op}` in the table"));
        }
        let (mut arguments, mut settings) = (Vec::new(), Vec::new());
        loop {
            rest = rest.trim_start();
            if let Some(behind) = rest.strip_prefix(')') {
                rest = behind;
                break;
            }
            let (word, behind) = name_word(rest);
            match behind.trim_start().strip_prefix('=') {
                Some(value) if !word.is_empty() => {
                    let (setting, behind) = self.setting(value.trim_start())?;
                    settings.push((word.to_string(), setting));
                    rest = behind;
                }
                _ => {
                    let (argument, behind) = self.argument(rest, depth + 1, 1)?;
                    arguments.push(argument);
                    rest = behind;
                }
            }
            rest = rest.trim_start();
            match (rest.strip_prefix(','), rest.starts_with(')')) {
                (Some(behind), _) => rest = behind,
                (None, true) => {}
                (None, false) => return Err(format!("`{op}` wants `,` or `)` before `{rest}`")),
            }
        }
        let call = self.formula.calls.len();
        self.formula.calls.push(Call { op: op.to_string(), arguments, settings, n_outputs });
        Ok((Some(Argument::Call { call, output: 0 }), rest))
    }

    fn setting<'t>(&self, text: &'t str) -> Result<(Setting, &'t str), String> {
        match text.chars().next() {
            Some('"') => {
                let (inside, rest) = text[1..].split_once('"').ok_or("a `\"` is missing")?;
                Ok((Setting::Text(inside.to_string()), rest))
            }
            Some('[') => {
                let (inside, rest) = text[1..].split_once(']').ok_or("a `]` is missing")?;
                Ok((Setting::Ints(ints(inside)?), rest))
            }
            Some(letter) if letter.is_ascii_digit() || matches!(letter, '-' | '.') => {
                let (word, rest) = number_word(text);
                let float = || word.parse().map(Setting::Float);
                let setting = word.parse().map(Setting::Int).or_else(|_| float());
                Ok((setting.map_err(|_| format!("`{word}` is no number"))?, rest))
            }
            _ => {
                let (word, rest) = name_word(text);
                match self.attributes.contains(&word) {
                    true => Ok((Setting::Own(word.to_string()), rest)),
                    false => Err(format!("`{word}` is no attribute of the plugin's operator")),
                }
            }
        }
    }
}

fn ints(text: &str) -> Result<Vec<i64>, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|_| format!("`{word}` is no whole number"))).collect()
}

fn name_word(text: &str) -> (&str, &str) {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split_at(text.find(|letter| !is_part(letter)).unwrap_or(text.len()))
}

fn number_word(text: &str) -> (&str, &str) {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '+');
    text.split_at(text.find(|letter| !is_part(letter)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_is_computed_in_f64_and_rounded_once() {
        let formula = Formula::parse("s = Sigmoid(Mul(x, 2.0)); y = Mul(x, s)", &["x"], &["y"], &[]).unwrap();
        assert_eq!(formula.calls.len(), 3);
        let x = Tensor::from_f64s(DType::F16, &[2], &[1.0, -0.5]).unwrap();
        let y = formula.evaluate(&[], &[Some(&x)], &[DType::F16]).unwrap();
        let want = |x: f64| x / (1.0 + (-2.0 * x).exp());
        let rounded = Tensor::from_f64s(DType::F16, &[2], &[want(1.0), want(-0.5)]).unwrap();
        assert_eq!(y, [rounded]);
    }

    #[test]
    fn attributes_are_constants_or_the_plugins_own() {
        let text = "y = LeakyRelu(x, alpha=slope)\nz = Transpose(y, perm=[1, 0])";
        let formula = Formula::parse(text, &["x"], &["z"], &["slope"]).unwrap();
        let attributes = [("slope".to_string(), Attribute::Float(0.5))];
        let x = Tensor::new(&[1, 2], vec![-4.0f32, 3.0]).unwrap();
        let z = formula.evaluate(&attributes, &[Some(&x)], &[DType::F32]).unwrap();
        assert_eq!((z[0].shape(), z[0].to_f64s()), (&[2, 1][..], vec![-2.0, 3.0]));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for bad in [
            "y = NoSuchOperator(x)",
            "y = Relu(unknown)",
            "y = Relu(x",
            "y Relu(x)",
            "z = Relu(x)",
            "y = LeakyRelu(x, alpha=unknown)",
            "y = Relu(x) Relu(x)",
            "y = Relu(x,, x)",
            "y = Transpose(x, perm=[a])",
        ] {
            assert!(Formula::parse(bad, &["x"], &["y"], &[]).is_err(), "{bad}");
        }
        let deep = format!("y = {}x{}", "Relu(".repeat(99), ")".repeat(99));
        assert!(Formula::parse(&deep, &["x"], &["y"], &[]).is_err());
    }
}
