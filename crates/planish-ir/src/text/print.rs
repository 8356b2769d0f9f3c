//! Graphs to text.

use std::fmt::{self, Display, Formatter, Write};

use planish_op::{Attribute, Op};
use planish_tensor::{Quoted, Tensor};

use super::cursor::{is_bare_name, is_key};
use super::{data, element};
use crate::graph::{Graph, Node};
use crate::id::ValueId;

/// A graph as text, with the elements of its large constants beside it.
#[derive(Clone, PartialEq, Debug)]
pub struct Printed {
    pub text: String,
    /// `#0`, `#1`, … of the text, sharing the graph's memory.
    pub constants: Vec<Tensor>,
}

impl Graph {
    /// The graph as text; large constants are numbered and given beside it. `parse` takes both back.
    pub fn print(&self) -> Printed {
        let mut printer = Printer { out: String::new(), constants: Vec::new(), hex: false };
        // Writing to a string does not fail.
        let _ = printer.graph(self, 0);
        printer.out.push('\n');
        Printed { text: printer.out, constants: printer.constants }
    }

    /// The graph as text with everything in it, large constants in hexadecimal.
    pub fn print_whole(&self) -> String {
        let mut printer = Printer { out: String::new(), constants: Vec::new(), hex: true };
        let _ = printer.graph(self, 0);
        printer.out.push('\n');
        printer.out
    }
}

/// The text of [`Graph::print`]; large constants show their number and size.
impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.print().text)
    }
}

struct Printer {
    out: String,
    constants: Vec<Tensor>,
    /// Large constants in hexadecimal instead of by number.
    hex: bool,
}

impl Printer {
    fn line(&mut self, depth: usize) {
        self.out.push('\n');
        (0..depth).for_each(|_| self.out.push_str("  "));
    }

    fn graph(&mut self, graph: &Graph, depth: usize) -> fmt::Result {
        write!(self.out, "graph {} {{", Quoted(&graph.name))?;
        for &id in graph.inputs() {
            self.line(depth + 1);
            let value = graph.value(id);
            write!(self.out, "input {}: {}", Name(&value.name), value.ty)?;
        }
        for (_, value) in graph.values() {
            let Some(tensor) = value.constant() else { continue };
            self.line(depth + 1);
            write!(self.out, "const {}: {} = ", Name(&value.name), value.ty)?;
            self.data(tensor)?;
        }
        for (_, node) in graph.nodes() {
            self.line(depth + 1);
            self.node(graph, node, depth + 1)?;
        }
        self.line(depth + 1);
        self.out.push_str("output");
        for (idx, &id) in graph.outputs().iter().enumerate() {
            write!(self.out, "{}{}", if idx == 0 { " " } else { ", " }, Name(&graph.value(id).name))?;
        }
        self.line(depth);
        self.out.push('}');
        Ok(())
    }

    fn node(&mut self, graph: &Graph, node: &Node, depth: usize) -> fmt::Result {
        if node.outputs.is_empty() {
            self.out.push_str("()");
        }
        for (idx, id) in node.outputs.iter().enumerate() {
            self.out.push_str(if idx == 0 { "" } else { ", " });
            match id.map(|id| graph.value(id)) {
                Some(value) => write!(self.out, "{}: {}", Name(&value.name), value.ty)?,
                None => self.out.push('_'),
            }
        }
        match &node.op {
            Op::Custom(op) => {
                write!(self.out, " = custom {} {} {}", Quoted(&op.domain), Quoted(&op.name), op.version)?;
            }
            op => write!(self.out, " = {}", op.name())?,
        }
        let n_own = node.inputs.len().saturating_sub(node.n_captured);
        let (own, captured) = node.inputs.split_at(n_own);
        self.out.push('(');
        self.operands(graph, own)?;
        if node.n_captured != 0 {
            self.out.push_str("; ");
            self.operands(graph, captured)?;
        }
        self.out.push(')');
        self.attributes(&node.op)?;
        if !node.name.is_empty() {
            write!(self.out, " {}", Quoted(&node.name))?;
        }
        if !node.bodies.is_empty() {
            self.out.push_str(" [");
            for (idx, body) in node.bodies.iter().enumerate() {
                self.out.push_str(if idx == 0 { "" } else { "," });
                self.line(depth + 1);
                self.graph(body, depth + 1)?;
            }
            self.line(depth);
            self.out.push(']');
        }
        Ok(())
    }

    fn operands(&mut self, graph: &Graph, ids: &[Option<ValueId>]) -> fmt::Result {
        for (idx, id) in ids.iter().enumerate() {
            self.out.push_str(if idx == 0 { "" } else { ", " });
            match id {
                Some(id) => write!(self.out, "{}", Name(&graph.value(*id).name))?,
                None => self.out.push('_'),
            }
        }
        Ok(())
    }

    fn attributes(&mut self, op: &Op) -> fmt::Result {
        let list = op.attributes();
        for (idx, (key, value)) in list.iter().enumerate() {
            self.out.push_str(if idx == 0 { " {" } else { ", " });
            if is_key(key) {
                self.out.push_str(key);
            } else {
                write!(self.out, "{}", Quoted(key))?;
            }
            match op {
                Op::Custom(_) => write!(self.out, ": {} = ", value.kind().name())?,
                _ => self.out.push('='),
            }
            self.attribute(value)?;
        }
        self.out.push_str(if list.is_empty() { "" } else { "}" });
        Ok(())
    }

    fn attribute(&mut self, value: &Attribute) -> fmt::Result {
        match value {
            Attribute::Bool(value) => write!(self.out, "{value}"),
            Attribute::Int(value) => write!(self.out, "{value}"),
            Attribute::Float(value) => self.out.write_str(&element::f32_to_text(*value)),
            Attribute::Str(text) => write!(self.out, "{}", Quoted(text)),
            Attribute::Ints(values) => self.list(values, |value| value.to_string()),
            Attribute::Floats(values) => self.list(values, |&value| element::f32_to_text(value)),
            Attribute::Strs(texts) => self.list(texts, |text| Quoted(text).to_string()),
            Attribute::DType(dtype) => write!(self.out, "{dtype}"),
            Attribute::Type(ty) => write!(self.out, "{ty}"),
            Attribute::Tensor(tensor) => {
                let dims: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
                write!(self.out, "{}[{}] ", tensor.dtype(), dims.join(","))?;
                self.data(tensor)
            }
        }
    }

    fn list<T>(&mut self, items: &[T], text: impl Fn(&T) -> String) -> fmt::Result {
        let texts: Vec<String> = items.iter().map(text).collect();
        write!(self.out, "[{}]", texts.join(","))
    }

    fn data(&mut self, tensor: &Tensor) -> fmt::Result {
        if let Some(list) = data::inline(tensor) {
            return self.out.write_str(&list);
        }
        let bytes = tensor.bytes();
        if self.hex {
            return write!(self.out, "hex \"{}\"", data::to_hex(bytes));
        }
        write!(self.out, "#{} /* {} bytes */", self.constants.len(), bytes.len())?;
        self.constants.push(tensor.clone());
        Ok(())
    }
}

/// A value's name after its `%`.
struct Name<'a>(&'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_bare_name(self.0) { write!(f, "%{}", self.0) } else { write!(f, "%{}", Quoted(self.0)) }
    }
}
