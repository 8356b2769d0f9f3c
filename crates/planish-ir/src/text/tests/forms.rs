//! Printed forms of small graphs.

use expect_test::expect;
use planish_op::infer::Content;
use planish_op::{Attribute, Custom, If, Loop, Op, Scan, ValueType};
use planish_tensor::{Bytes, DType, Dim, Shape, Tensor};

use super::{comes_back, node, ty};
use crate::graph::{Graph, NewNode};

fn custom(attributes: Vec<(&str, Attribute)>) -> Op {
    let attributes = attributes.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    Op::Custom(Custom { domain: "my.ops".into(), name: "Thing".into(), version: 3, attributes })
}

#[test]
fn names_that_need_quotes() {
    let mut graph = Graph::new("quotes \" and \\");
    let names =
        ["x", "/layer.1/Conv:0", "onnx::Conv_12", "ends:", "two words", "", "1", "-", "ä\n\u{1}\"\\", "%x"];
    let ids: Vec<_> = names.iter().map(|name| graph.add_input(name, ty("f32[]")).unwrap()).collect();
    graph.set_outputs(ids);
    comes_back(&graph);
    expect![[r#"
        graph "quotes \" and \\" {
          input %x: f32[]
          input %/layer.1/Conv:0: f32[]
          input %onnx::Conv_12: f32[]
          input %"ends:": f32[]
          input %"two words": f32[]
          input %"": f32[]
          input %1: f32[]
          input %-: f32[]
          input %"ä\n\u{1}\"\\": f32[]
          input %"%x": f32[]
          output %x, %/layer.1/Conv:0, %onnx::Conv_12, %"ends:", %"two words", %"", %1, %-, %"ä\n\u{1}\"\\", %"%x"
        }
    "#]]
    .assert_eq(&graph.to_string());
}

#[test]
fn types_of_every_kind() {
    let mut graph = Graph::new("types");
    let types = [
        "f32[*]",
        "i64[]",
        "f16[batch,2*seq+1,floordiv(n,4)]",
        "f32[\"a ] b\\\"\",unknown()]",
        "seq(f32[2])",
        "optional(seq(bool[*]))",
    ];
    for (idx, text) in types.into_iter().enumerate() {
        graph.add_input(&format!("x{idx}"), ty(text)).unwrap();
    }
    graph
        .add_input("fresh", ValueType::tensor(DType::F32, Shape::from_iter([Dim::symbol("nonzero'7")])))
        .unwrap();
    comes_back(&graph);
    expect![[r#"
        graph "types" {
          input %x0: f32[*]
          input %x1: i64[]
          input %x2: f16[batch,2*seq+1,floordiv(n,4)]
          input %x3: f32["a ] b\"",unknown()]
          input %x4: seq(f32[2])
          input %x5: optional(seq(bool[*]))
          input %fresh: f32["nonzero'7"]
          output
        }
    "#]]
    .assert_eq(&graph.to_string());
    // Symbols made after parsing do not meet those of the text.
    let mut back: Graph = graph.print_whole().parse().unwrap();
    assert_eq!(back.fresh_dim("nonzero"), Dim::symbol("nonzero'8"));
}

#[test]
fn constants_of_every_element_type() {
    let mut graph = Graph::new("constants");
    for dtype in DType::ALL {
        let tensor = match dtype {
            // Powers of two without a zero or a sign.
            DType::F8E8M0 => Tensor::from_codes(dtype, &[3], vec![0, 127, 255]).unwrap(),
            dtype => Tensor::from_f64s(dtype, &[3], &[0.0, 1.0, -2.5]).unwrap(),
        };
        graph.add_constant(dtype.name(), tensor).unwrap();
    }
    let special = vec![f32::NAN, f32::from_bits(0x7fc0_0001), f32::NEG_INFINITY, -0.0, 0.1, 1e-40, f32::MAX];
    graph.add_constant("special", Tensor::vector(special)).unwrap();
    graph.add_constant("scalar", Tensor::scalar(i64::MIN)).unwrap();
    graph.add_constant("empty", Tensor::zeros(DType::F32, &[0, 3]).unwrap()).unwrap();
    comes_back(&graph);
    expect![[r#"
        graph "constants" {
          const %f64: f64[3] = [0, 1, -2.5]
          const %f32: f32[3] = [0, 1, -2.5]
          const %f16: f16[3] = [0, 1, -2.5]
          const %bf16: bf16[3] = [0, 1, -2.5]
          const %i8: i8[3] = [0, 1, -2]
          const %i16: i16[3] = [0, 1, -2]
          const %i32: i32[3] = [0, 1, -2]
          const %i64: i64[3] = [0, 1, -2]
          const %u8: u8[3] = [0, 1, 0]
          const %u16: u16[3] = [0, 1, 0]
          const %u32: u32[3] = [0, 1, 0]
          const %u64: u64[3] = [0, 1, 0]
          const %bool: bool[3] = [false, true, true]
          const %f8e4m3fn: f8e4m3fn[3] = [0, 1, -2.5]
          const %f8e4m3fnuz: f8e4m3fnuz[3] = [0, 1, -2.5]
          const %f8e5m2: f8e5m2[3] = [0, 1, -2.5]
          const %f8e5m2fnuz: f8e5m2fnuz[3] = [0, 1, -2.5]
          const %f8e8m0: f8e8m0[3] = [5.877472e-39, 1, nan]
          const %f4e2m1: f4e2m1[3] = [0, 1, -2]
          const %i4: i4[3] = [0, 1, -2]
          const %u4: u4[3] = [0, 1, 0]
          const %i2: i2[3] = [0, 1, -2]
          const %u2: u2[3] = [0, 1, 0]
          const %special: f32[7] = [nan, 0x7fc00001, -inf, -0, 0.1, 1e-40, 3.4028235e38]
          const %scalar: i64[] = -9223372036854775808
          const %empty: f32[0,3] = []
          output
        }
    "#]]
    .assert_eq(&graph.to_string());
}

#[test]
fn large_constants_stand_beside_the_text() {
    let mut graph = Graph::new("large");
    graph.add_constant("a", Tensor::vector((0..17u8).collect::<Vec<_>>())).unwrap();
    graph.add_constant("b", Tensor::vector(vec![1f32; 20])).unwrap();
    // Bits after the last packed element do not count.
    let padded = Tensor::from_bytes(DType::U4, &[1], Bytes::from_vec(vec![0xf3u8])).unwrap();
    graph.add_constant("padded", padded).unwrap();
    comes_back(&graph);
    expect![[r#"
        graph "large" {
          const %a: u8[17] = #0 /* 17 bytes */
          const %b: f32[20] = #1 /* 80 bytes */
          const %padded: u4[1] = [3]
          output
        }
    "#]]
    .assert_eq(&graph.to_string());
    let whole = graph.print_whole();
    assert!(whole.contains(r#"const %a: u8[17] = hex "000102030405060708090a0b0c0d0e0f10""#), "{whole}");
}

#[test]
fn attributes_of_every_kind() {
    let mut graph = Graph::new("attributes");
    let x = Some(graph.add_input("x", ty("f32[2]")).unwrap());
    let attributes = vec![
        ("flag", Attribute::Bool(true)),
        ("n", Attribute::Int(i64::MIN)),
        ("ratio", Attribute::Float(1.0)),
        ("odd", Attribute::Float(f32::from_bits(0xffc0_0003))),
        ("words", Attribute::Str("two \"words\"\n".into())),
        ("ints", Attribute::Ints(vec![1, -2])),
        ("none", Attribute::Ints(Vec::new())),
        ("floats", Attribute::Floats(vec![0.5, f32::INFINITY, -0.0])),
        ("texts", Attribute::Strs(vec!["a,b".into(), String::new()])),
        ("to", Attribute::DType(DType::BF16)),
        ("value", Attribute::Tensor(Tensor::vector(vec![3i64]))),
        ("single", Attribute::Tensor(Tensor::scalar(true))),
        ("big", Attribute::Tensor(Tensor::vector(vec![7u8; 20]))),
        ("element", Attribute::Type(ty("optional(f32[*])"))),
        ("a key", Attribute::Int(1)),
        ("2", Attribute::Int(2)),
    ];
    graph.add_node(node("all", custom(attributes), &[x], &[("y", "f32[2]")])).unwrap();
    comes_back(&graph);
    expect![[r##"
        graph "attributes" {
          input %x: f32[2]
          %y: f32[2] = custom "my.ops" "Thing" 3(%x) {flag: bool = true, n: int = -9223372036854775808, ratio: float = 1, odd: float = 0xffc00003, words: str = "two \"words\"\n", ints: ints = [1,-2], none: ints = [], floats: floats = [0.5,inf,-0], texts: strs = ["a,b",""], to: dtype = bf16, value: tensor = i64[1] [3], single: tensor = bool[] true, big: tensor = u8[20] #0 /* 20 bytes */, element: type = optional(f32[*]), "a key": int = 1, "2": int = 2} "all"
          output
        }
    "##]]
    .assert_eq(&graph.to_string());
}

#[test]
fn absent_operands_and_results() {
    let mut graph = Graph::new("absent");
    let x = Some(graph.add_input("x", ty("f32[2]")).unwrap());
    let results = [("_", ""), ("y", "f32[2]"), ("_", "")];
    graph.add_node(node("", custom(Vec::new()), &[None, x, None], &results)).unwrap();
    graph.add_node(node("nothing", custom(Vec::new()), &[], &[])).unwrap();
    graph.set_outputs(vec![graph.find("y").unwrap()]);
    comes_back(&graph);
    expect![[r#"
        graph "absent" {
          input %x: f32[2]
          _, %y: f32[2], _ = custom "my.ops" "Thing" 3(_, %x, _)
          () = custom "my.ops" "Thing" 3() "nothing"
          output %y
        }
    "#]]
    .assert_eq(&graph.to_string());
}

#[test]
fn bodies_and_captured_values() {
    let mut graph = Graph::new("control");
    let c = graph.add_input("c", ty("bool[]")).unwrap();
    let x = graph.add_input("x", ty("f32[n]")).unwrap();
    let mut then = Graph::body("then", &graph);
    let captured = then.add_input("x", ty("f32[n]")).unwrap();
    then.set_outputs(vec![captured]);
    let mut other = Graph::body("else", &graph);
    let captured = other.add_input("outside", ty("f32[n]")).unwrap();
    other.add_node(node("inner", custom(Vec::new()), &[Some(captured)], &[("z", "f32[1]")])).unwrap();
    other.set_outputs(vec![other.find("z").unwrap()]);
    let choice = node("choose", If {}, &[Some(c), Some(x)], &[("y", "f32[m]")]);
    graph.add_node(NewNode { bodies: vec![then, other], n_captured: 1, ..choice }).unwrap();

    let mut body = Graph::body("step", &graph);
    body.add_input("i", ty("i64[]")).unwrap();
    let go = body.add_input("go", ty("bool[]")).unwrap();
    let carried = body.add_input("v", ty("f32[*]")).unwrap();
    body.set_outputs(vec![go, carried, carried]);
    let y = graph.find("y").unwrap();
    let looped = node("", Loop {}, &[None, Some(c), Some(y)], &[("last", "f32[*]"), ("all", "f32[*]")]);
    graph.add_node(NewNode { bodies: vec![body], ..looped }).unwrap();
    graph.set_outputs(vec![graph.find("last").unwrap(), graph.find("all").unwrap()]);
    comes_back(&graph);
    expect![[r#"
        graph "control" {
          input %c: bool[]
          input %x: f32[n]
          %y: f32[m] = If(%c; %x) "choose" [
            graph "then" {
              input %x: f32[n]
              output %x
            },
            graph "else" {
              input %outside: f32[n]
              %z: f32[1] = custom "my.ops" "Thing" 3(%outside) "inner"
              output %z
            }
          ]
          %last: f32[*], %all: f32[*] = Loop(_, %c, %y) [
            graph "step" {
              input %i: i64[]
              input %go: bool[]
              input %v: f32[*]
              output %go, %v, %v
            }
          ]
          output %last, %all
        }
    "#]]
    .assert_eq(&graph.to_string());
}

#[test]
fn operators_of_the_table() {
    let mut graph = Graph::new("table");
    let x = graph.add_input("x", ty("f32[5,2]")).unwrap();
    let mut body = Graph::body("step", &graph);
    let v = body.add_input("v", ty("f32[2]")).unwrap();
    body.set_outputs(vec![v]);
    let scan = Scan {
        num_scan_inputs: 1,
        scan_input_axes: vec![0],
        scan_output_axes: vec![-1],
        scan_input_directions: Vec::new(),
        scan_output_directions: Vec::new(),
    };
    let scanned = node("scan", scan, &[Some(x)], &[("y", "f32[2,5]")]);
    graph.add_node(NewNode { bodies: vec![body], ..scanned }).unwrap();
    comes_back(&graph);
    expect![[r#"
        graph "table" {
          input %x: f32[5,2]
          %y: f32[2,5] = Scan(%x) {scan_input_axes=[0], scan_output_axes=[-1], num_scan_inputs=1} "scan" [
            graph "step" {
              input %v: f32[2]
              output %v
            }
          ]
          output
        }
    "#]]
    .assert_eq(&graph.to_string());
}

#[test]
fn free_layout_and_comments() {
    let text = "// a comment\ngraph\"g\"{input%x :f32[ 2 , n ]/* here */const %k:f32[1]=[ 1. ,]output}";
    // A bare name takes a colon that something follows, so the type needs a space before it.
    let error = text.parse::<Graph>().unwrap_err();
    assert_eq!(error.to_string(), "line 2, column 53: expected `:`, found `[1]=[ 1. ,]output}`");
    let text = text.replace("%k:", "%k: ");
    let error = text.parse::<Graph>().unwrap_err();
    assert_eq!(error.to_string(), "line 2, column 64: expected an element of type f32, found `]output}`");
    let graph: Graph = text.replace(",]", "]").parse().unwrap();
    expect![[r#"
        graph "g" {
          input %x: f32[2,n]
          const %k: f32[1] = [1]
          output
        }
    "#]]
    .assert_eq(&graph.to_string());
}

#[test]
fn captured_contents_are_known_inside_again() {
    let body = |name: &str| {
        format!(
            "graph \"{name}\" {{ input %s: i64[2] input %x: f32[n,6]\n\
             %r: f32[n,6] = Reshape(%x, %s) output %r }}"
        )
    };
    let text = format!(
        "graph \"g\" {{ input %c: bool[] input %x: f32[n,6] %s: i64[2] = Shape(%x)\n\
         %y: f32[n,6] = If(%c; %s, %x) [{}, {}] output %y }}",
        body("then"),
        body("else")
    );
    let graph: Graph = text.parse().unwrap();
    comes_back(&graph);
    let (_, node) = graph.nodes().last().unwrap();
    let inner = &node.bodies[0];
    let content = &inner.value(inner.find("s").unwrap()).content;
    assert!(matches!(content, Some(Content::Ints(ints)) if ints.dims[0] == Dim::symbol("n")), "{content:?}");
}
