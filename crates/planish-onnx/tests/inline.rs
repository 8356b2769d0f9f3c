//! Model-local functions: calls replaced by bodies, and functions that must be refused.

use std::borrow::Cow;

use planish_onnx::OnnxErrorKind::{self, *};
use planish_onnx::{
    Attribute, AttributeKind, AttributeValue, DataType, Function, Graph, Model, Node, OpsetImport, Tensor,
    ValueInfo, inline_functions,
};

fn opsets(version: i64) -> Vec<OpsetImport<'static>> {
    vec![OpsetImport { domain: "".into(), version }, OpsetImport { domain: "local".into(), version: 1 }]
}

fn names(names: &[&'static str]) -> Vec<Cow<'static, str>> {
    names.iter().map(|&name| name.into()).collect()
}

fn function(
    name: impl Into<Cow<'static, str>>,
    inputs: &[&'static str],
    outputs: &[&'static str],
    nodes: Vec<Node<'static>>,
) -> Function<'static> {
    Function {
        name: name.into(),
        domain: "local".into(),
        inputs: names(inputs),
        outputs: names(outputs),
        nodes,
        opset_imports: opsets(21),
        ..Function::default()
    }
}

fn call(
    name: impl Into<Cow<'static, str>>,
    inputs: &[&'static str],
    outputs: &[&'static str],
) -> Node<'static> {
    Node { domain: "local".into(), ..Node::new(name, inputs, outputs) }
}

fn named(name: &'static str, node: Node<'static>) -> Node<'static> {
    Node { name: name.into(), ..node }
}

fn with(node: Node<'static>, attribute: Attribute<'static>) -> Node<'static> {
    let mut node = node;
    node.attributes.push(attribute);
    node
}

fn value(name: &'static str) -> ValueInfo<'static> {
    ValueInfo { name: name.into(), ..ValueInfo::default() }
}

fn model(nodes: Vec<Node<'static>>, functions: Vec<Function<'static>>) -> Model<'static> {
    let graph = Graph { nodes, inputs: vec![value("x")], outputs: vec![value("y")], ..Graph::default() };
    Model { ir_version: 10, opset_imports: opsets(21), graph, functions, ..Model::default() }
}

/// The nodes after inlining, one per line, subgraphs indented.
fn inlined(mut model: Model<'_>) -> String {
    inline_functions(&mut model).unwrap();
    assert!(model.functions.is_empty());
    let mut text = String::new();
    print(&model.graph, 0, &mut text);
    text
}

fn print(graph: &Graph<'_>, depth: usize, text: &mut String) {
    for node in &graph.nodes {
        let indent = "  ".repeat(depth);
        *text += &format!("{indent}{} = {}({})", node.outputs.join(","), node.op_type, node.inputs.join(","));
        if let Some(opset) = node.opset {
            *text += &format!("@{opset}");
        }
        for attribute in &node.attributes {
            match &attribute.value {
                AttributeValue::Int(value) => *text += &format!(" {}={value}", attribute.name),
                AttributeValue::Graph(_) => *text += &format!(" {}", attribute.name),
                other => *text += &format!(" {}={other:?}", attribute.name),
            }
        }
        *text += "\n";
        for attribute in &node.attributes {
            if let AttributeValue::Graph(graph) = &attribute.value {
                let list = |values: &[ValueInfo<'_>]| {
                    values.iter().map(|value| value.name.as_ref()).collect::<Vec<_>>().join(",")
                };
                *text += &format!("{indent}  ({}) -> {}\n", list(&graph.inputs), list(&graph.outputs));
                print(graph, depth + 1, text);
            }
        }
    }
}

#[test]
fn a_body_takes_the_place_of_its_call() {
    let double = function(
        "Double",
        &["a"],
        &["b"],
        vec![Node::new("Neg", &["a"], &["t"]), Node::new("Sub", &["a", "t"], &["b"])],
    );
    let nodes = vec![named("one", call("Double", &["x"], &["m"])), call("Double", &["m"], &["y"])];
    assert_eq!(
        inlined(model(nodes, vec![double])),
        "one/t = Neg(x)\nm = Sub(x,one/t)\nDouble_1/t = Neg(m)\ny = Sub(m,Double_1/t)\n"
    );
}

#[test]
fn new_names_never_meet_old_ones() {
    let f = function(
        "F",
        &["x"],
        &["y"],
        vec![Node::new("Neg", &["x"], &["t"]), Node::new("Abs", &["t"], &["y"])],
    );
    let nodes = vec![
        Node::new("Relu", &["x"], &["n/t"]),
        named("n", call("F", &["n/t"], &["m"])),
        named("n", call("F", &["m"], &["y"])),
    ];
    assert_eq!(
        inlined(model(nodes, vec![f])),
        "n/t = Relu(x)\nn/t_1 = Neg(n/t)\nm = Abs(n/t_1)\nn/t_2 = Neg(m)\ny = Abs(n/t_2)\n"
    );
}

#[test]
fn calls_in_bodies_are_replaced_too() {
    let inner = function("Inner", &["p"], &["q"], vec![Node::new("Neg", &["p"], &["q"])]);
    let outer = function(
        "Outer",
        &["p"],
        &["q"],
        vec![named("i", call("Inner", &["p"], &["r"])), named("j", call("Inner", &["r"], &["q"]))],
    );
    let nodes = vec![named("o", call("Outer", &["x"], &["y"]))];
    assert_eq!(inlined(model(nodes, vec![outer, inner])), "o/r = Neg(x)\ny = Neg(o/r)\n");
}

#[test]
fn omitted_inputs_and_outputs_stay_omitted() {
    let f = function(
        "F",
        &["a", "b", "c"],
        &["p", "q", "r"],
        vec![Node::new("Clip", &["a", "b", "c"], &["p"]), Node::new("TopK", &["a"], &["q", "r"])],
    );
    let nodes = vec![named("f", call("F", &["x", "", "m"], &["y", ""]))];
    assert_eq!(inlined(model(nodes, vec![f])), "y = Clip(x,,m)\nf/q,f/r = TopK(x)\n");
}

#[test]
fn an_input_may_be_handed_through() {
    let f = function("F", &["a"], &["a", "b"], vec![Node::new("Neg", &["a"], &["b"])]);
    let nodes = vec![call("F", &["x"], &["y", "z"])];
    assert_eq!(inlined(model(nodes, vec![f])), "y = Identity(x)\nz = Neg(x)\n");
}

#[test]
fn attributes_come_from_the_call_or_the_default() {
    let softmax =
        with(Node::new("Softmax", &["a"], &["b"]), Attribute::reference("axis", "over", AttributeKind::Int));
    let mut f = function("F", &["a"], &["b"], vec![softmax]);
    f.attribute_protos.push(Attribute::new("over", AttributeValue::Int(-1)));
    let mut g = f.clone();
    g.name = "G".into();
    g.attribute_protos.clear();
    g.attributes.push("over".into());
    let given = |name| with(call(name, &["x"], &["y"]), Attribute::new("over", AttributeValue::Int(2)));
    let nodes = vec![given("F"), call("F", &["x"], &["z"]), given("G"), call("G", &["x"], &["w"])];
    // Without a value or a default the operator's own default holds.
    assert_eq!(
        inlined(model(nodes, vec![f, g])),
        "y = Softmax(x) axis=2\nz = Softmax(x) axis=-1\ny = Softmax(x) axis=2\nw = Softmax(x)\n"
    );
}

#[test]
fn references_pass_through_nested_calls() {
    let leaf =
        with(Node::new("Concat", &["a"], &["b"]), Attribute::reference("axis", "k", AttributeKind::Int));
    let inner = function("Inner", &["a"], &["b"], vec![leaf]);
    let middle = with(call("Inner", &["a"], &["b"]), Attribute::reference("k", "axis", AttributeKind::Int));
    let outer = function("Outer", &["a"], &["b"], vec![middle]);
    let nodes = vec![with(call("Outer", &["x"], &["y"]), Attribute::new("axis", AttributeValue::Int(3)))];
    assert_eq!(inlined(model(nodes, vec![inner, outer])), "y = Concat(x) axis=3\n");
}

/// `If(cond)` with one branch of these nodes.
fn branch(cond: &'static str, out: &'static str, body: Graph<'static>) -> Node<'static> {
    let attribute = Attribute::new("then_branch", AttributeValue::Graph(Box::new(body)));
    with(Node::new("If", &[cond], &[out]), attribute)
}

#[test]
fn subgraphs_of_bodies_see_the_body() {
    let body = Graph {
        inputs: vec![value("i")],
        // Older files list an initializer among the inputs; it is one value.
        initializers: vec![Tensor::raw("i", DataType::Float, vec![], vec![0; 4])],
        nodes: vec![
            Node::new("Add", &["a", "i"], &["t"]),
            with(Node::new("Mul", &["t", "u"], &["s"]), Attribute::reference("n", "n", AttributeKind::Int)),
        ],
        outputs: vec![value("s")],
        value_infos: vec![value("t"), value("elsewhere")],
        ..Graph::default()
    };
    let nodes = vec![Node::new("Neg", &["a"], &["u"]), branch("c", "b", body)];
    let f = function("F", &["a", "c"], &["b"], nodes);
    let call = with(named("f", call("F", &["x", "y"], &["z"])), Attribute::new("n", AttributeValue::Int(4)));
    let mut model = model(vec![call], vec![f]);
    assert_eq!(
        inlined(model.clone()),
        "f/u = Neg(x)\nz = If(y) then_branch\n  (f/i) -> f/s\n  f/t = Add(x,f/i)\n  f/s = Mul(f/t,f/u) n=4\n"
    );
    inline_functions(&mut model).unwrap();
    let Some(AttributeValue::Graph(body)) = model.graph.nodes[1].attribute("then_branch").map(|a| &a.value)
    else {
        panic!("the branch is gone")
    };
    assert_eq!(body.initializers[0].name, "f/i");
    assert_eq!(body.value_infos.len(), 1);
}

#[test]
fn calls_in_subgraphs_are_replaced() {
    let f = function(
        "F",
        &["a"],
        &["b"],
        vec![Node::new("Neg", &["a"], &["t"]), Node::new("Abs", &["t"], &["b"])],
    );
    let body = Graph {
        nodes: vec![named("in", call("F", &["x"], &["s"]))],
        outputs: vec![value("s")],
        ..Graph::default()
    };
    let nodes = vec![branch("c", "y", body), named("in", call("F", &["y"], &["z"]))];
    assert_eq!(
        inlined(model(nodes, vec![f])),
        "y = If(c) then_branch\n  () -> s\n  in/t = Neg(x)\n  s = Abs(in/t)\nin/t_1 = Neg(y)\nz = Abs(in/t_1)\n"
    );
}

#[test]
fn a_graph_given_to_a_function_keeps_the_callers_names() {
    let inside = with(
        Node::new("If", &["a"], &["b"]),
        Attribute::reference("then_branch", "body", AttributeKind::Graph),
    );
    let f = function("F", &["a"], &["b"], vec![inside]);
    let body = Graph {
        nodes: vec![Node::new("Neg", &["a"], &["s"])],
        outputs: vec![value("s")],
        ..Graph::default()
    };
    let nodes =
        vec![with(call("F", &["x"], &["y"]), Attribute::new("body", AttributeValue::Graph(Box::new(body))))];
    // `a` inside the graph is the caller's, not the function's input.
    assert_eq!(inlined(model(nodes, vec![f])), "y = If(x) then_branch\n  () -> s\n  s = Neg(a)\n");
}

#[test]
fn nodes_know_a_differing_operator_set() {
    let mut f = function("F", &["a"], &["b"], vec![Node::new("Softmax", &["a"], &["b"])]);
    f.opset_imports = vec![OpsetImport { domain: "ai.onnx".into(), version: 12 }];
    let g =
        function("G", &["a"], &["b"], vec![Node::new("Softmax", &["a"], &["m"]), call("F", &["m"], &["b"])]);
    let nodes = vec![named("g", call("G", &["x"], &["y"])), Node::new("Softmax", &["y"], &["z"])];
    assert_eq!(inlined(model(nodes, vec![f, g])), "g/m = Softmax(x)\ny = Softmax(g/m)@12\nz = Softmax(y)\n");
}

#[test]
fn overloads_and_domains_are_told_apart() {
    let mut second = function("F", &["a"], &["b"], vec![Node::new("Abs", &["a"], &["b"])]);
    second.overload = "second".into();
    let mut standard = function("Gelu", &["a"], &["b"], vec![Node::new("Erf", &["a"], &["b"])]);
    standard.domain = "ai.onnx".into();
    let first = function("F", &["a"], &["b"], vec![Node::new("Neg", &["a"], &["b"])]);
    let nodes = vec![
        call("F", &["x"], &["m"]),
        Node { overload: "second".into(), ..call("F", &["m"], &["n"]) },
        Node::new("F", &["n"], &["o"]),
        Node::new("Gelu", &["o"], &["y"]),
    ];
    assert_eq!(
        inlined(model(nodes, vec![second, standard, first])),
        "m = Neg(x)\nn = Abs(m)\no = F(n)\ny = Erf(o)\n"
    );
}

#[test]
fn models_without_functions_are_left_alone() {
    let mut plain = model(vec![call("F", &["x"], &["y"])], vec![]);
    let before = plain.clone();
    inline_functions(&mut plain).unwrap();
    assert_eq!(plain, before);
}

fn refused(name: &str, mut model: Model<'_>, kind: OnnxErrorKind, fragment: &str) {
    let error = inline_functions(&mut model).expect_err(name);
    assert_eq!(error.kind(), kind, "{name}: {error}");
    assert!(error.to_string().contains(fragment), "{name}: {error}");
}

#[test]
fn broken_functions_are_refused() {
    let neg = || vec![Node::new("Neg", &["a"], &["b"])];
    let once = |function| model(vec![named("here", call("F", &["x"], &["y"]))], vec![function]);
    let cases = [
        (
            "inputs",
            model(vec![call("F", &["x", "x"], &["y"])], vec![function("F", &["a"], &["b"], neg())]),
            "takes 1 inputs and gives 1 outputs, but is called with 2 and 1",
        ),
        (
            "outputs",
            model(vec![call("F", &["x"], &["y", "z"])], vec![function("F", &["a"], &["b"], neg())]),
            "called with 1 and 2",
        ),
        ("unknown value", once(function("F", &["z"], &["b"], neg())), "(node \"here\"): the function \"F\""),
        ("no output", once(function("F", &["a"], &["c"], neg())), "never computes its output \"c\""),
        ("double input", once(function("F", &["a", "a"], &["b"], neg())), "names its input \"a\" twice"),
        ("double output", once(function("F", &["a"], &["b", "b"], neg())), "names its output \"b\" twice"),
        ("double value", once(function("F", &["a"], &["b"], [neg(), neg()].concat())), "defines \"b\" twice"),
        ("input assigned", once(function("F", &["a", "b"], &["b"], neg())), "defines \"b\" twice"),
        (
            "two of a name",
            model(vec![], vec![function("F", &["a"], &["b"], neg()), function("F", &["a"], &["b"], neg())]),
            "is defined twice",
        ),
        (
            "kind",
            {
                let axis = Attribute::reference("axis", "k", AttributeKind::Int);
                let body = vec![with(Node::new("Concat", &["a"], &["b"]), axis)];
                let given = Attribute::new("k", AttributeValue::Float(1.0));
                model(vec![with(call("F", &["x"], &["y"]), given)], vec![function("F", &["a"], &["b"], body)])
            },
            "wants its attribute \"k\" as Int, but is given Float",
        ),
        (
            "default",
            {
                let mut f = function("F", &["a"], &["b"], neg());
                let graph = AttributeValue::Graph(Box::default());
                f.attribute_protos.push(Attribute::new("body", graph));
                once(f)
            },
            "has a default for \"body\" that is not a constant",
        ),
    ];
    for (name, model, fragment) in cases {
        refused(name, model, BadFunction, fragment);
    }
}

#[test]
fn recursion_is_refused() {
    let f = |name, callee| function(name, &["a"], &["b"], vec![call(callee, &["a"], &["b"])]);
    let start = || vec![named("here", call("F", &["x"], &["y"]))];
    refused("direct", model(start(), vec![f("F", "F")]), FunctionRecursion, "\"F\" calls itself");
    refused("mutual", model(start(), vec![f("F", "G"), f("G", "F")]), FunctionRecursion, "(node ");
    let body =
        Graph { nodes: vec![call("F", &["a"], &["s"])], outputs: vec![value("s")], ..Graph::default() };
    let in_branch = function("F", &["a"], &["b"], vec![branch("a", "b", body)]);
    refused("in a branch", model(start(), vec![in_branch]), FunctionRecursion, "calls itself");
}

#[test]
fn expansion_is_bounded() {
    // Sixty functions, each calling the next twice: 2^60 nodes.
    let chain = |last: Vec<Node<'static>>, twice: bool| {
        let mut functions: Vec<_> = (0..60)
            .map(|nth| {
                let next = format!("F{}", nth + 1);
                let mut nodes = vec![call(next.clone(), &["a"], &["b"])];
                if twice {
                    nodes.push(call(next, &["a"], &["c"]));
                }
                function(format!("F{nth}"), &["a"], &["b"], nodes)
            })
            .collect();
        functions.push(function("F60", &["a"], &["b"], last));
        model(vec![call("F0", &["x"], &["y"])], functions)
    };
    refused("nodes", chain(vec![Node::new("Neg", &["a"], &["b"])], true), FunctionExpansion, "500000 nodes");
    // The same with a body that hands its input through: the calls themselves count.
    let mut empty = chain(vec![], true);
    empty.functions[60].outputs = names(&["a"]);
    refused("calls", empty, FunctionExpansion, "functions");
    let single = chain(vec![Node::new("Neg", &["a"], &["b"])], false);
    assert_eq!(inlined(single), "y = Neg(x)\n");

    // One constant of 8 MiB that is not in the file as such, copied by each of a thousand calls.
    let constant = Attribute::new("value_ints", AttributeValue::Ints(vec![1; 1 << 20]));
    let f = function("F", &[], &["b"], vec![with(Node::new("Constant", &[], &["b"]), constant)]);
    let nodes = (0..1000).map(|_| call("F", &[], &[])).collect();
    refused("bytes", model(nodes, vec![f]), FunctionExpansion, "256 MiB");
}

#[test]
fn depth_is_bounded() {
    let deep = |body: fn(String) -> Vec<Node<'static>>| {
        let next = |nth| format!("F{nth}");
        let functions =
            (0..5000).map(|nth| function(next(nth), &["a"], &["b"], body(next(nth + 1)))).collect();
        model(vec![call("F0", &["x"], &["y"])], functions)
    };
    refused(
        "calls",
        deep(|next| vec![call(next, &["a"], &["b"])]),
        TooDeep,
        "call each other deeper than 100",
    );
    let nested = deep(|next| {
        let nodes = vec![call(next, &["a"], &["s"])];
        vec![branch("a", "b", Graph { nodes, outputs: vec![value("s")], ..Graph::default() })]
    });
    refused("subgraphs", nested, TooDeep, "subgraphs nest deeper than 32");
}
