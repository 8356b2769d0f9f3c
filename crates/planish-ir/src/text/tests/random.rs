//! Random graphs come back, and random texts never panic.

use planish_op::{Attribute, Custom, If, Loop, Op, OpSpec};
use planish_tensor::{Bytes, DType, Tensor};
use proptest::prelude::*;

use super::{comes_back, ty};
use crate::graph::{Declared, Graph, NewNode, NewOutput};
use crate::id::ValueId;

/// Choices that make a graph: a pool of bytes read one after the other, 0 when it is empty.
struct Choices<'a> {
    bytes: std::slice::Iter<'a, u8>,
}

impl Choices<'_> {
    fn next(&mut self) -> usize {
        usize::from(self.bytes.next().copied().unwrap_or(0))
    }

    fn pick<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.next() % items.len()]
    }

    fn dtype(&mut self) -> DType {
        *self.pick(&DType::ALL)
    }

    fn name(&mut self, prefix: &str, graph: &Graph) -> String {
        let n = graph.values().len();
        match self.next() % 6 {
            0 => format!("a b\"\\{prefix}{n}"),
            1 => format!("{prefix}{n}:"),
            2 => format!("/é\n{prefix}/{n}"),
            3 => format!("m::{prefix}.{n}:0"),
            _ => format!("{prefix}{n}"),
        }
    }

    fn type_text(&mut self) -> String {
        let shapes = ["[]", "[2]", "[n,3]", "[2*n+1,0]", "[*]", "[\"q ] \\\"\",ceildiv(n,2)]", "[\"x'3\"]"];
        let tensor = format!("{}{}", self.dtype(), self.pick(&shapes));
        match self.next() % 8 {
            0 => format!("seq({tensor})"),
            1 => format!("optional(seq({tensor}))"),
            _ => tensor,
        }
    }

    fn tensor(&mut self) -> Tensor {
        let dtype = self.dtype();
        let shapes = [vec![], vec![3], vec![1, 2], vec![0], vec![17], vec![3, 7]];
        let shape: &Vec<usize> = self.pick(&shapes);
        let n = shape.iter().product();
        let len = dtype.bytes_for(n).unwrap();
        let data: Vec<u8> = (0..len).map(|_| self.next() as u8).collect();
        Tensor::from_bytes(dtype, shape, Bytes::from_vec(data)).unwrap()
    }

    fn float(&mut self) -> f32 {
        let bits = (0..4).fold(0u32, |bits, _| bits << 8 | self.next() as u32);
        *self.pick(&[0.0, -0.0, 1.5, f32::NAN, f32::from_bits(bits)])
    }

    fn text(&mut self) -> String {
        self.pick(&["", "word", "two words", "\"\\\n\t\u{7f}é", "}{", "// */"]).to_string()
    }

    fn attribute(&mut self) -> Attribute {
        let n = self.next() % 3;
        match self.next() % 10 {
            0 => Attribute::Bool(n == 1),
            1 => Attribute::Int(*self.pick(&[0, -1, i64::MIN, i64::MAX])),
            2 => Attribute::Float(self.float()),
            3 => Attribute::Str(self.text()),
            4 => Attribute::Ints((0..n).map(|_| self.next() as i64 - 128).collect()),
            5 => Attribute::Floats((0..n).map(|_| self.float()).collect()),
            6 => Attribute::Strs((0..n).map(|_| self.text()).collect()),
            7 => Attribute::DType(self.dtype()),
            8 => Attribute::Tensor(self.tensor()),
            _ => Attribute::Type(ty(&self.type_text())),
        }
    }

    fn operands(&mut self, graph: &Graph) -> Vec<Option<ValueId>> {
        let ids: Vec<ValueId> = graph.values().map(|(id, _)| id).collect();
        let n = self.next() % 4;
        (0..n)
            .map(
                |_| {
                    if ids.is_empty() || self.next().is_multiple_of(5) {
                        None
                    } else {
                        Some(*self.pick(&ids))
                    }
                },
            )
            .collect()
    }

    fn custom(&mut self, graph: &mut Graph) {
        let n = self.next() % 3;
        let attributes = (0..n).map(|idx| (format!("{}{idx}", self.text()), self.attribute())).collect();
        let op = Custom { domain: self.text(), name: self.text(), version: self.next() as i64, attributes };
        let n_outputs = self.next() % 3;
        let inputs = self.operands(graph);
        let outputs = (0..n_outputs)
            .map(|idx| match self.next() % 4 {
                0 => NewOutput::Skip,
                _ => {
                    let name = self.name(&format!("y{idx}_"), graph).into();
                    NewOutput::Value { name, declared: Declared::Exact(ty(&self.type_text())) }
                }
            })
            .collect();
        let name = self.text().into();
        let new = NewNode { name, op: Op::Custom(op), inputs, outputs, bodies: Vec::new(), n_captured: 0 };
        graph.add_node(new).unwrap();
    }

    /// A node of the table, if inference takes it.
    fn known(&mut self, graph: &mut Graph) {
        let spec = Op::SPECS[(self.next() << 8 | self.next()) % Op::SPECS.len()];
        if let Ok(op) = Op::from_attributes(spec.name, &[]) {
            let inputs = self.operands(graph);
            let name = self.name("t", graph);
            // An error leaves the graph as it was.
            let _ = graph.add_node(NewNode::new("", op, inputs, &[&name]));
        }
    }

    fn control(&mut self, graph: &mut Graph, depth: u32) {
        let captured: Vec<ValueId> = self.operands(graph).into_iter().flatten().collect();
        let is_loop = self.next() % 2 == 1;
        let body = |choices: &mut Self, name: &str| {
            let mut body = Graph::body(name, graph);
            if is_loop {
                body.add_input("i", ty("i64[]")).unwrap();
                body.add_input("go", ty("bool[]")).unwrap();
            }
            for (idx, &id) in captured.iter().enumerate() {
                let outer = graph.value(id);
                body.add_known_input(&format!("c{idx}"), outer.ty.clone(), outer.content.clone()).unwrap();
            }
            if depth < 3 {
                choices.statements(&mut body, depth + 1);
            }
            body
        };
        let (op, n_own, bodies) = if is_loop {
            let mut step = body(self, "step");
            step.set_outputs(vec![step.find("go").unwrap()]);
            (Op::from(Loop {}), 2, vec![step])
        } else {
            (Op::from(If {}), 1, vec![body(self, "then"), body(self, "else")])
        };
        let mut inputs: Vec<Option<ValueId>> = vec![None; n_own];
        if !is_loop {
            let name = self.name("when", graph);
            inputs[0] = Some(graph.add_constant(&name, Tensor::scalar(true)).unwrap());
        }
        inputs.extend(captured.iter().copied().map(Some));
        let new = NewNode { bodies, n_captured: captured.len(), ..NewNode::new("", op, inputs, &[]) };
        graph.add_node(new).unwrap();
    }

    fn statements(&mut self, graph: &mut Graph, depth: u32) {
        for _ in 0..self.next() % 6 {
            match self.next() % 6 {
                0 if depth == 0 => {
                    let name = self.name("x", graph);
                    graph.add_input(&name, ty(&self.type_text())).unwrap();
                }
                0 | 1 => {
                    let name = self.name("k", graph);
                    graph.add_constant(&name, self.tensor()).unwrap();
                }
                2 => self.custom(graph),
                3 => self.control(graph, depth),
                _ => self.known(graph),
            }
        }
    }
}

fn random_graph(bytes: &[u8]) -> Graph {
    let mut choices = Choices { bytes: bytes.iter() };
    let mut graph = Graph::new(&choices.text());
    // A few values to begin with, so that operators of the table have something to take.
    graph.add_input("float", ty("f32[n,4]")).unwrap();
    graph.add_input("whole", ty("i64[2]")).unwrap();
    while choices.bytes.len() != 0 {
        choices.statements(&mut graph, 0);
    }
    let outputs = choices.operands(&graph).into_iter().flatten().collect();
    graph.set_outputs(outputs);
    graph
}

/// Words that texts are made of.
const VOCABULARY: &[&str] = &[
    "graph", "\"g\"", "{", "}", "input", "const", "output", "%x", "%y", "%\"z\"", ":", ": ", "f32[2]",
    "i64[n]", "seq(", ")", "(", "[", "]", ",", ";", "=", "_", "#0", "#1", "hex", "\"00\"", "Relu", "Add",
    "If", "Loop", "Conv", "Reshape", "custom", "int", "true", "1", "-2.5", "0x7f", "nan", "axis", "alpha",
    "//", "/*", "*/", "\n", " ", "\\", "\"", "é", "%", "'9",
];

/// The words that operators take, beside the vocabulary.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => proptest::sample::select(VOCABULARY).prop_map(str::to_string),
        1 => (0..Op::SPECS.len()).prop_map(|idx| Op::SPECS[idx].name.to_string()),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => ".{0,3}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        comes_back(&random_graph(&bytes));
    }

    #[test]
    fn random_texts_are_refused_or_come_back(words in proptest::collection::vec(word(), 0..40)) {
        let text = words.join(" ");
        let bare = super::super::parse(&text, &[Tensor::scalar(1f32)]);
        let inside = super::super::parse(&format!("graph \"g\" {{ input %x: f32[2] {text} output }}"), &[]);
        for graph in [bare, inside].iter().flatten() {
            comes_back(graph);
        }
    }

    #[test]
    fn damaged_texts_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<proptest::sample::Index>(),
        gone in 0usize..8,
        new in word(),
    ) {
        let text = random_graph(&bytes).print_whole();
        let chars: Vec<char> = text.chars().collect();
        let start = at.index(chars.len());
        let end = (start + gone).min(chars.len());
        let damaged: String = chars[..start].iter().copied().chain(new.chars()).chain(chars[end..].iter().copied()).collect();
        if let Ok(graph) = damaged.parse::<Graph>() {
            graph.verify().unwrap();
            comes_back(&graph);
        }
    }
}

#[test]
fn every_operator_name_is_known_to_the_parser() {
    for spec in Op::SPECS {
        assert!(OpSpec::find(spec.name).is_some_and(|found| found.name == spec.name));
        let text = format!("graph \"g\" {{ _ = {}() output }}", spec.name);
        let Err(error) = text.parse::<Graph>() else { continue };
        assert!(!error.to_string().contains("no operator"), "{error}");
    }
}
