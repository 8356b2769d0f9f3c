//! Text to graphs, through the same doors as every other maker of graphs: each node is inferred again and the
//! printed types are checked against what inference says.

use planish_op::infer::Content;
use planish_op::{Attribute, AttributeError, AttributeKind, Custom, Op, OpSpec, ValueType};
use planish_tensor::{Bytes, DType, Tensor};

use super::cursor::{Cursor, Result};
use super::error::ParseErrorKind;
use super::{data, element};
use crate::control;
use crate::graph::{Declared, Graph, NewNode, NewOutput};
use crate::id::ValueId;

/// Bodies within bodies. An ONNX file reaches some 30 levels before its reader stops.
const MAX_DEPTH: u32 = 64;

/// The graph that `text` describes. `constants` are the large ones beside it, see [`super::Printed`].
///
/// Any text may be given: what is not a graph is an error, time is linear in the length of the text (but for
/// inference), and memory a small multiple of it.
pub fn parse(text: &str, constants: &[Tensor]) -> Result<Graph> {
    let mut parser = Parser { cursor: Cursor::new(text), constants, depth: 0 };
    // Inference makes symbols on the way, and they must not be taken for those of the text.
    let mut graph = Graph { n_fresh_symbols: first_free_number(text), ..Graph::default() };
    parser.graph(&mut graph, &[])?;
    parser.cursor.end()?;
    Ok(graph)
}

impl std::str::FromStr for Graph {
    type Err = super::ParseError;

    /// Like [`parse`], of a text that holds all of its constants.
    fn from_str(text: &str) -> Result<Graph> {
        parse(text, &[])
    }
}

/// A number above all of those after a `'`, where fresh symbols carry theirs. Numbers that no graph reaches
/// are passed over.
fn first_free_number(text: &str) -> usize {
    let number = |tail: &str| {
        let end = tail.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(tail.len());
        tail.get(..end)?.parse::<u32>().ok()
    };
    text.split('\'').skip(1).filter_map(number).max().map_or(0, |number| number as usize + 1)
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    constants: &'a [Tensor],
    depth: u32,
}

/// An input of a body: what is known outside of the value that it is, if it is a captured one.
struct Outer {
    ty: ValueType,
    content: Option<Content>,
}

impl Parser<'_> {
    /// Fills `graph`. `outer` has an entry for each input that the node hands to the body.
    fn graph(&mut self, graph: &mut Graph, outer: &[Option<Outer>]) -> Result<()> {
        let at = self.cursor.here();
        if self.depth == MAX_DEPTH {
            return Err(self.cursor.error(at, ParseErrorKind::TooDeep { limit: MAX_DEPTH }));
        }
        self.depth += 1;
        if !self.cursor.take_word("graph") {
            return Err(self.cursor.expected("`graph`"));
        }
        graph.name = self.cursor.string("the graph's name")?;
        self.cursor.expect('{')?;
        while self.statement(graph, outer)? {}
        self.cursor.expect('}')?;
        self.depth -= 1;
        Ok(())
    }

    /// One statement; `false` when it was the outputs, which come last.
    fn statement(&mut self, graph: &mut Graph, outer: &[Option<Outer>]) -> Result<bool> {
        match (self.cursor.peek(), self.cursor.peek_word()) {
            (_, "input") => self.input(graph, outer)?,
            (_, "const") => self.constant(graph)?,
            (_, "output") => {
                self.outputs(graph)?;
                return Ok(false);
            }
            (Some('%' | '_' | '('), _) => self.node(graph)?,
            _ => return Err(self.cursor.expected("`input`, `const`, a node or `output`")),
        }
        Ok(true)
    }

    /// `%name` that is new, and its place.
    fn new_name(&mut self, graph: &Graph) -> Result<String> {
        let at = self.cursor.here();
        let name = self.cursor.value_name()?.into_owned();
        if graph.find(&name).is_some() {
            return Err(self.cursor.error(at, ParseErrorKind::DuplicateValue { name }));
        }
        Ok(name)
    }

    fn input(&mut self, graph: &mut Graph, outer: &[Option<Outer>]) -> Result<()> {
        let at = self.cursor.here();
        self.cursor.word("`input`")?;
        let name = self.new_name(graph)?;
        self.cursor.expect(':')?;
        let ty = self.cursor.value_type()?;
        let outer = outer.get(graph.inputs().len()).and_then(Option::as_ref);
        // What is known outside holds inside only while the types agree.
        let content = outer.filter(|outer| outer.ty == ty).and_then(|outer| outer.content.clone());
        match graph.add_known_input(&name, ty, content) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.cursor.error(at, ParseErrorKind::Graph(error))),
        }
    }

    fn constant(&mut self, graph: &mut Graph) -> Result<()> {
        let at = self.cursor.here();
        self.cursor.word("`const`")?;
        let name = self.new_name(graph)?;
        self.cursor.expect(':')?;
        let tensor = self.tensor(true)?;
        match graph.add_constant(&name, tensor) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.cursor.error(at, ParseErrorKind::Graph(error))),
        }
    }

    /// A type, an equals sign if `assigned`, and elements.
    fn tensor(&mut self, assigned: bool) -> Result<Tensor> {
        let at = self.cursor.here();
        let ty = self.cursor.value_type()?;
        let sizes = ty.as_tensor().and_then(|ty| Some((ty.dtype, ty.shape.as_ref()?.as_fixed()?)));
        let Some((dtype, shape)) = sizes else {
            let detail = format!("a constant has a type with a known shape, {ty} is none");
            return Err(self.cursor.error(at, ParseErrorKind::BadType { detail }));
        };
        if assigned {
            self.cursor.expect('=')?;
        }
        let at = self.cursor.here();
        let tensor = if self.cursor.take('#') {
            return self.numbered(at, dtype, &shape);
        } else if self.cursor.take_word("hex") {
            let at = self.cursor.here();
            let text = self.cursor.string("bytes in hexadecimal")?;
            let bytes = data::from_hex(&text).ok_or_else(|| {
                let expected = "pairs of hexadecimal digits".into();
                self.cursor.error(at, ParseErrorKind::Syntax { expected, found: "something else".into() })
            })?;
            Tensor::from_bytes(dtype, &shape, Bytes::from_vec(bytes))
        } else {
            let wanted = format!("an element of type {dtype}");
            let parse = |word: &str| element::from_text(dtype, word);
            let bits = match self.cursor.peek() {
                Some('[') => self.list(|parser| parser.cursor.number(&wanted, parse))?,
                _ => vec![self.cursor.number(&wanted, parse)?],
            };
            data::from_bits(dtype, &shape, &bits)
        };
        tensor.map_err(|error| self.cursor.error(at, ParseErrorKind::Tensor(error)))
    }

    fn numbered(&mut self, at: usize, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        let index: usize = self.cursor.number("the number of a constant", |word| word.parse().ok())?;
        let n_given = self.constants.len();
        let Some(tensor) = self.constants.get(index) else {
            return Err(self.cursor.error(at, ParseErrorKind::NoConstant { index, n_given }));
        };
        if (tensor.dtype(), tensor.shape()) != (dtype, shape) {
            let detail = format!(
                "constant #{index} is {}{:?}, the text says {dtype}{shape:?}",
                tensor.dtype(),
                tensor.shape()
            );
            return Err(self.cursor.error(at, ParseErrorKind::BadType { detail }));
        }
        Ok(tensor.clone())
    }

    fn outputs(&mut self, graph: &mut Graph) -> Result<()> {
        self.cursor.word("`output`")?;
        let mut ids = Vec::new();
        if self.cursor.peek() == Some('%') {
            ids = self.separated(|parser| parser.value(graph))?;
        }
        graph.set_outputs(ids);
        Ok(())
    }

    /// `%name` that is known.
    fn value(&mut self, graph: &Graph) -> Result<ValueId> {
        let at = self.cursor.here();
        let name = self.cursor.value_name()?;
        graph.find(&name).ok_or_else(|| {
            self.cursor.error(at, ParseErrorKind::UnknownValue { name: name.clone().into_owned() })
        })
    }

    fn separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.cursor.take(',') {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Items between brackets.
    fn list<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.cursor.expect('[')?;
        let items = if self.cursor.peek() == Some(']') { Vec::new() } else { self.separated(item)? };
        if !self.cursor.take(']') {
            return Err(self.cursor.expected("`,` or `]`"));
        }
        Ok(items)
    }

    fn node(&mut self, graph: &mut Graph) -> Result<()> {
        let outputs = if self.cursor.take('(') {
            self.cursor.expect(')')?;
            Vec::new()
        } else {
            self.separated(|parser| parser.result(graph))?
        };
        self.cursor.expect('=')?;
        let at = self.cursor.here();
        let named = self.op_name()?;
        self.cursor.expect('(')?;
        let mut inputs = self.operands(graph)?;
        let n_own = inputs.len();
        if self.cursor.take(';') {
            inputs.extend(self.operands(graph)?);
        }
        if !self.cursor.take(')') {
            return Err(self.cursor.expected("`,` or `)`"));
        }
        let attributes = self.attributes(&named)?;
        let op = match named {
            OpName::Known(spec) => Op::from_attributes(spec.name, &attributes)
                .map_err(|error| self.cursor.error(at, ParseErrorKind::Attribute(error)))?,
            OpName::Custom { domain, name, version } => {
                Op::Custom(Custom { domain, name, version, attributes })
            }
        };
        let name = match self.cursor.peek() {
            Some('"') => self.cursor.string("the node's name")?,
            _ => String::new(),
        };
        let bodies = match self.cursor.peek() {
            Some('[') => self.bodies(graph, &op, &inputs, n_own)?,
            _ => Vec::new(),
        };
        let n_captured = inputs.len() - n_own;
        let new = NewNode { name: name.into(), op, inputs, outputs, bodies, n_captured };
        match graph.add_node(new) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.cursor.error(at, ParseErrorKind::Graph(error))),
        }
    }

    fn result(&mut self, graph: &Graph) -> Result<NewOutput> {
        if self.cursor.take_word("_") {
            return Ok(NewOutput::Skip);
        }
        let name = self.new_name(graph)?;
        self.cursor.expect(':')?;
        let declared = Declared::Exact(self.cursor.value_type()?);
        Ok(NewOutput::Value { name: name.into(), declared })
    }

    fn operands(&mut self, graph: &Graph) -> Result<Vec<Option<ValueId>>> {
        match self.cursor.peek() {
            Some(')' | ';') => Ok(Vec::new()),
            _ => self.separated(|parser| match parser.cursor.take_word("_") {
                true => Ok(None),
                false => parser.value(graph).map(Some),
            }),
        }
    }

    fn bodies(
        &mut self,
        graph: &Graph,
        op: &Op,
        inputs: &[Option<ValueId>],
        n_own: usize,
    ) -> Result<Vec<Graph>> {
        let formals = (0..control::n_formal(op, n_own)).map(|_| None);
        let captured = inputs[n_own..].iter().map(|id| {
            let value = graph.value((*id)?);
            Some(Outer { ty: value.ty.clone(), content: value.content.clone() })
        });
        let outer: Vec<Option<Outer>> = formals.chain(captured).collect();
        self.list(|parser| {
            let mut body = Graph::body("", graph);
            parser.graph(&mut body, &outer)?;
            Ok(body)
        })
    }

    fn op_name(&mut self) -> Result<OpName> {
        let at = self.cursor.here();
        let word = self.cursor.word("an operator")?;
        if word == "custom" {
            let (domain, name) = (self.cursor.string("the domain")?, self.cursor.string("the operator")?);
            let version = self.cursor.number("a version", |word| word.parse().ok())?;
            return Ok(OpName::Custom { domain, name, version });
        }
        OpSpec::find(word).map(OpName::Known).ok_or_else(|| {
            let name = word.to_string();
            self.cursor.error(at, ParseErrorKind::Attribute(AttributeError::UnknownOp { name }))
        })
    }

    fn attributes(&mut self, op: &OpName) -> Result<Vec<(String, Attribute)>> {
        if !self.cursor.take('{') {
            return Ok(Vec::new());
        }
        if self.cursor.take('}') {
            return Ok(Vec::new());
        }
        let mut seen = std::collections::HashSet::new();
        let list = self.separated(|parser| {
            let at = parser.cursor.here();
            let key = match parser.cursor.peek() {
                Some('"') => parser.cursor.string("an attribute")?,
                _ => parser.cursor.word("an attribute")?.to_string(),
            };
            if !seen.insert(key.clone()) {
                let detail = format!("the attribute `{key}` is given twice");
                return Err(parser.cursor.error(at, ParseErrorKind::BadType { detail }));
            }
            let kind = match op {
                OpName::Known(spec) => match spec.field(&key) {
                    Some(field) => field.kind,
                    None => {
                        let error = AttributeError::Unknown { op: spec.name, attribute: key };
                        return Err(parser.cursor.error(at, ParseErrorKind::Attribute(error)));
                    }
                },
                OpName::Custom { .. } => {
                    parser.cursor.expect(':')?;
                    parser.kind()?
                }
            };
            parser.cursor.expect('=')?;
            Ok((key, parser.attribute(kind)?))
        })?;
        if !self.cursor.take('}') {
            return Err(self.cursor.expected("`,` or `}`"));
        }
        Ok(list)
    }

    fn kind(&mut self) -> Result<AttributeKind> {
        let at = self.cursor.here();
        let word = self.cursor.peek_word();
        match AttributeKind::ALL.into_iter().find(|kind| kind.name() == word) {
            Some(kind) => self.cursor.word("a kind").map(|_| kind),
            None => {
                let names: Vec<_> = AttributeKind::ALL.iter().map(|kind| kind.name()).collect();
                let error = self.cursor.expected(format!("one of {}", names.join(", ")));
                Err(self.cursor.error(at, error.kind().clone()))
            }
        }
    }

    fn attribute(&mut self, kind: AttributeKind) -> Result<Attribute> {
        Ok(match kind {
            AttributeKind::Bool => {
                Attribute::Bool(self.cursor.number("`true` or `false`", |word| word.parse().ok())?)
            }
            AttributeKind::Int => Attribute::Int(self.int()?),
            AttributeKind::Float => Attribute::Float(self.float()?),
            AttributeKind::Str => Attribute::Str(self.cursor.string("a text")?),
            AttributeKind::Ints => Attribute::Ints(self.list(Self::int)?),
            AttributeKind::Floats => Attribute::Floats(self.list(Self::float)?),
            AttributeKind::Strs => Attribute::Strs(self.list(|parser| parser.cursor.string("a text"))?),
            AttributeKind::DType => Attribute::DType(self.cursor.dtype()?),
            AttributeKind::Tensor => Attribute::Tensor(self.tensor(false)?),
            AttributeKind::Type => Attribute::Type(self.cursor.value_type()?),
        })
    }

    fn int(&mut self) -> Result<i64> {
        self.cursor.number("a whole number of 64 bits", |word| word.parse().ok())
    }

    fn float(&mut self) -> Result<f32> {
        let bits = |word: &str| element::from_text(DType::F32, word);
        self.cursor.number("a number", bits).map(|bits| f32::from_bits(bits as u32))
    }
}

enum OpName {
    Known(&'static OpSpec),
    Custom { domain: String, name: String, version: i64 },
}
