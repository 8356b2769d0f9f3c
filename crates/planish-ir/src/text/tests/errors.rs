//! Texts that are no graphs: the place and the words of each error.

use planish_tensor::Tensor;

use crate::graph::Graph;
use crate::text::{ParseErrorKind, parse};

/// A graph around these lines, which begin on line 2.
fn around(lines: &str) -> String {
    format!("graph \"g\" {{\n{lines}\n  output\n}}\n")
}

#[test]
fn each_error_says_where_and_what() {
    let table = [
        ("", "line 1, column 1: expected `graph`, found the end"),
        ("graf \"g\" {}", "line 1, column 1: expected `graph`, found `graf \"g\" {}`"),
        ("graph g {}", "line 1, column 7: expected the graph's name in double quotes, found `g {}`"),
        ("graph \"g", "line 1, column 9: expected a closing `\"`, found the end"),
        (
            "graph \"\\q\" {}",
            "line 1, column 8: expected `\\\"`, `\\\\`, `\\n` or `\\u{…}`, found `\\q\" {}`",
        ),
        (
            "graph \"\\u{110000}\" {}",
            "line 1, column 8: expected a character number such as `\\u{1f}`, found `\\u{110000}\" {}`",
        ),
        ("graph \"g\" }", "line 1, column 11: expected `{`, found `}`"),
        ("graph \"g\" {}", "line 1, column 12: expected `input`, `const`, a node or `output`, found `}`"),
        ("graph \"g\" {\n output", "line 2, column 8: expected `}`, found the end"),
        ("graph \"g\" {\n output } x", "line 2, column 11: expected the end, found `x`"),
        (
            "graph \"g\" { /* open",
            "line 1, column 13: expected `input`, `const`, a node or `output`, found `/* open`",
        ),
        ("graph \"g\" {\n output %x }", "line 2, column 9: no value before is called `x`"),
    ];
    for (text, message) in table {
        let error = text.parse::<Graph>().unwrap_err();
        assert_eq!(error.to_string(), message, "in {text}");
    }
}

#[test]
fn each_error_inside_a_graph() {
    let table = [
        // Values and types.
        ("  input x: f32[]", "line 2, column 9: expected a value such as `%x`, found `x: f32[]`"),
        ("  input % x: f32[]", "line 2, column 11: expected a name after `%`, found `x: f32[]`"),
        ("  input %x f32[]", "line 2, column 12: expected `:`, found `f32[]`"),
        ("  input %x: f33[]", "line 2, column 13: unknown element type `f33`; known are f64 f32"),
        ("  input %x: f32", "line 3, column 3: expected a shape such as `[2,n]`, found `output`"),
        ("  input %x: f32[2", "line 5, column 1: expected `]` after the dimensions, found the end"),
        ("  input %x: f32[+]", "line 2, column 16: expected a number, a symbol, a function or `(` at byte 1"),
        ("  input %x: seq f32[]", "line 2, column 17: expected `(`, found `f32[]`"),
        ("  input %x: seq(f32[]", "line 3, column 3: expected `)`, found `output`"),
        ("  input %x: i8[]\n  input %x: i8[]", "line 3, column 9: a second value is called `x`"),
        // Constants.
        (
            "  const %c: f32[n] = 1",
            "line 2, column 13: a constant has a type with a known shape, f32[n] is none",
        ),
        (
            "  const %c: f32[*] = 1",
            "line 2, column 13: a constant has a type with a known shape, f32[*] is none",
        ),
        (
            "  const %c: seq(i8[]) = 1",
            "line 2, column 13: a constant has a type with a known shape, seq(i8[])",
        ),
        ("  const %c: i8[1] [1]", "line 2, column 19: expected `=`, found `[1]`"),
        ("  const %c: i8[1] = [128]", "line 2, column 22: `128` is not an element of type i8"),
        ("  const %c: i8[1] = [1", "line 3, column 3: expected `,` or `]`, found `output`"),
        ("  const %c: i8[2] = [1]", "line 2, column 21: a tensor i8[2] needs 2 bytes, the data has 1"),
        ("  const %c: i4[1] = [1, 2]", "line 2, column 21: a tensor i4[1] needs 1"),
        (
            "  const %c: f64[9223372036854775807] = []",
            "line 2, column 40: a tensor f64[9223372036854775807] does not fit into memory",
        ),
        ("  const %c: i8[1] = #0", "line 2, column 21: constant #0 was not given; 0 were"),
        ("  const %c: i8[1] = #x", "line 2, column 22: `x` is not the number of a constant"),
        ("  const %c: i8[1] = hex \"0\"", "line 2, column 25: expected pairs of hexadecimal digits"),
        ("  const %c: i8[1] = hex \"é\"", "line 2, column 25: expected pairs of hexadecimal digits"),
        (
            "  const %c: i8[1] = hex \"0001\"",
            "line 2, column 21: a tensor i8[1] needs 1 bytes, the data has 2",
        ),
        // Nodes.
        ("  %y: f32[] = Conf()", "line 2, column 15: no operator is called `Conf`"),
        ("  %y: f32[] = (%x)", "line 2, column 15: expected an operator, found `(%x)`"),
        ("  %y: f32[] Relu(%x)", "line 2, column 13: expected `=`, found `Relu(%x)`"),
        ("  %y: f32[] = Relu(%x)", "line 2, column 20: no value before is called `x`"),
        ("  %y = Relu()", "line 2, column 6: expected `:`, found `= Relu()`"),
        ("  %y: f32[] = Relu(_", "line 3, column 3: expected `,` or `)`, found `output`"),
        ("  %y: f32[] = Elu() {alfa=1}", "line 2, column 22: Elu has no attribute `alfa`"),
        ("  %y: f32[] = Elu() {alpha 1}", "line 2, column 28: expected `=`, found `1}`"),
        ("  %y: f32[] = Elu() {alpha=one}", "line 2, column 28: `one` is not a number"),
        ("  %y: f32[] = Elu() {alpha=1 beta=2}", "line 2, column 30: expected `,` or `}`, found `beta=2}`"),
        ("  %y: f32[] = Elu() {alpha=1, alpha=2}", "line 2, column 31: the attribute `alpha` is given twice"),
        ("  %y: f32[] = Concat()", "line 2, column 15: Concat needs the attribute `axis`"),
        ("  %y: f32[] = Concat() {axis=1.5}", "line 2, column 30: `1.5` is not a whole number of 64 bits"),
        ("  %y: f32[] = Cast() {to=float}", "line 2, column 26: unknown element type `float`"),
        ("  %y: f32[] = Mod() {fmod=1}", "line 2, column 27: `1` is not `true` or `false`"),
        (
            "  %y: f32[] = Pad() {mode=\"warp\"}",
            "line 2, column 15: attribute `mode` of Pad cannot be Str(\"warp\"); it is one of constant",
        ),
        ("  %y: f32[] = custom Thing 1()", "line 2, column 22: expected the domain in double quotes"),
        ("  %y: f32[] = custom \"a\" \"b\"()", "line 2, column 29: expected a version, found `()`"),
        ("  _ = custom \"a\" \"b\" 1() {k=1}", "line 2, column 28: expected `:`, found `=1}`"),
        (
            "  _ = custom \"a\" \"b\" 1() {k: integer = 1}",
            "line 2, column 30: expected one of bool, int, float, str, ints, floats, strs, dtype, tensor, type",
        ),
        ("  %y: f32[], %y: f32[] = custom \"a\" \"b\" 1()", "line 2, column 26: two values are called `y`"),
        ("  _ = If()", "line 2, column 7: ``: If needs 2 bodies, has 0"),
        ("  _ = custom \"a\" \"b\" 1(;_)", "line 2, column 7: ``: b takes no bodies and captures nothing"),
    ];
    for (lines, message) in table {
        let error = around(lines).parse::<Graph>().unwrap_err().to_string();
        assert!(error.starts_with(message), "{lines}\n gives {error}\n not  {message}");
    }
}

#[test]
fn a_constant_of_another_type_beside_the_text() {
    let given = [Tensor::vector(vec![1f32, 2.0])];
    assert!(parse(&around("const %c: f32[2] = #0"), &given).is_ok());
    let error = parse(&around("const %c: f32[1,2] = #0"), &given).unwrap_err();
    assert_eq!(error.to_string(), "line 2, column 22: constant #0 is f32[2], the text says f32[1, 2]");
    assert!(parse(&around("const %c: i32[2] = #0"), &given).is_err());
}

#[test]
fn a_type_that_inference_contradicts() {
    let text = around(
        "input %c: bool[]\n\
         %y: f32[3] = If(%c) [graph \"a\" {const %k: f32[2] = [1, 2] output %k},\n\
                              graph \"b\" {const %k: f32[2] = [1, 2] output %k}]",
    );
    let error = text.parse::<Graph>().unwrap_err();
    assert_eq!((error.line(), error.column()), (3, 14));
    assert!(error.to_string().contains("output `y` is declared f32[3], inference says f32[2]"), "{error}");
    text.replace("f32[3]", "f32[n]").parse::<Graph>().unwrap();
}

#[test]
fn nesting_is_bounded() {
    let deep = "graph \"g\" { _ = If() [".repeat(100_000);
    assert_eq!(deep.parse::<Graph>().unwrap_err().kind(), &ParseErrorKind::TooDeep { limit: 64 });
    let deep = around(&format!("input %x: {}", "seq(".repeat(100_000)));
    assert_eq!(deep.parse::<Graph>().unwrap_err().kind(), &ParseErrorKind::TooDeep { limit: 64 });
}

#[test]
fn time_is_linear() {
    // Quadratic behaviour anywhere would take minutes: 3 MB of values, operands, attributes and comments.
    let mut lines = String::new();
    for idx in 0..20_000 {
        lines += &format!("input %{idx}: f32[{idx},n] /* {idx} */ // and\n");
        lines += &format!("%y{idx}: f32[] = custom \"d\" \"n\" 1(%{idx}) {{a: ints = [1,2,3]}} \"node\"\n");
    }
    lines += &format!("const %long: u8[100000] = [{}]\n", vec!["1"; 100_000].join(","));
    let keys: Vec<String> = (0..20_000).map(|idx| format!("k{idx}: int = {idx}")).collect();
    lines += &format!("_ = custom \"d\" \"n\" 1({}) {{{}}}", vec!["_"; 100_000].join(","), keys.join(","));
    let graph: Graph = around(&lines).parse().unwrap();
    assert_eq!(graph.nodes().len(), 20_001);
}

#[test]
fn differences_are_named() {
    let base = "input %x: f32[2]\nconst %k: f32[2] = [1, 2]\n\
                %y: f32[2] = custom \"d\" \"n\" 1(%x, %k) {a: float = 1} \"node\"";
    let text = around(base).replace("  output", "  output %y");
    let graph: Graph = text.parse().unwrap();
    graph.same_as(&graph.clone()).unwrap();
    for (from, to, message) in [
        ("\"g\"", "\"h\"", "the graph's name is \"g\" here, \"h\" there"),
        ("output %y", "output", "the number of outputs is 1 here, 0 there"),
        ("output %y", "output %x", "the name of output 0 is \"y\" here, \"x\" there"),
        ("%x: f32[2]", "%x: f32[n]", "the type of `x` is f32[2] here, f32[n] there"),
        ("[1, 2]", "[1, 3]", "the elements of the constant `k` differ"),
        ("(%x, %k)", "(%x, _)", "node 0 `node`: input 1 is given here, absent there"),
        ("(%x, %k)", "(%x)", "node 0 `node`: the number of inputs is 2 here, 1 there"),
        (
            "\"n\" 1",
            "\"n\" 2",
            "node 0 `node`: the operator is \"d.n version 1\" here, \"d.n version 2\" there",
        ),
        (
            "float = 1",
            "int = 1",
            "node 0 `node`: the list of attributes is [(\"a\", Float(1.0))] here, [(\"a\", Int(1))] there",
        ),
        ("\"node\"", "\"edon\"", "node 0 `node`: the name is \"node\" here, \"edon\" there"),
    ] {
        let other: Graph = text.replace(from, to).parse().unwrap();
        assert_eq!(graph.same_as(&other).unwrap_err(), message);
    }
}
