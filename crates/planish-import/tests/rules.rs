//! What the importer makes of nodes whose form changed over the opsets, of `com.microsoft`, and of bodies:
//! a model in, the printed graph out.

use std::borrow::Cow;

use expect_test::{Expect, expect};
use planish_onnx::{
    Attribute, AttributeValue, DataType, Dimension, Graph, Model, Node, OpsetImport, Tensor, ValueInfo,
};
use planish_tensor::Bytes;

/// A model under construction.
struct Case {
    opset: i64,
    graph: Graph<'static>,
}

impl Case {
    fn opset(opset: i64) -> Case {
        Case { opset, graph: Graph { name: "case".into(), ..Graph::default() } }
    }

    /// An input such as `x: float n 3 8`, sizes or names after the element type.
    fn input(mut self, text: &'static str) -> Case {
        self.graph.inputs.push(value(text));
        self
    }

    fn ints(mut self, name: &'static str, values: &[i64]) -> Case {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let dims = vec![values.len() as i64];
        self.graph.initializers.push(Tensor::raw(name, DataType::Int64, dims, bytes));
        self
    }

    fn bytes(mut self, name: &'static str, dims: &[i64], bytes: Vec<u8>) -> Case {
        self.graph.initializers.push(Tensor::raw(name, DataType::Uint8, dims.to_vec(), bytes));
        self
    }

    fn node(mut self, node: Node<'static>) -> Case {
        self.graph.nodes.push(node);
        self
    }

    /// The printed graph whose outputs are those of the last node.
    #[track_caller]
    fn check(mut self, expected: Expect) {
        let last = self.graph.nodes.last().expect("a case has a node");
        self.graph.outputs = last
            .outputs
            .iter()
            .map(|name| ValueInfo { name: name.clone(), ..ValueInfo::default() })
            .collect();
        let import = |domain: &'static str, version| OpsetImport { domain: Cow::Borrowed(domain), version };
        let model = Model {
            ir_version: 8,
            opset_imports: vec![import("", self.opset), import("com.microsoft", 1)],
            graph: self.graph,
            ..Model::default()
        };
        let bytes = Bytes::from_vec(planish_onnx::write(&model));
        let imported = planish_import::import_bytes(&bytes, None).expect("the case can be imported");
        imported.graph.verify().expect("an imported graph verifies");
        expected.assert_eq(&imported.graph.to_string());
    }
}

fn value(text: &'static str) -> ValueInfo<'static> {
    let (name, ty) = text.split_once(": ").expect("a name and a type");
    let mut words = ty.split(' ');
    let elem = match words.next() {
        Some("float") => DataType::Float,
        Some("int64") => DataType::Int64,
        Some("bool") => DataType::Bool,
        Some("uint8") => DataType::Uint8,
        other => panic!("no type {other:?}"),
    };
    let dims = words.map(|word| match word.parse() {
        Ok(number) => Dimension::Value(number),
        Err(_) => Dimension::Param(word.into()),
    });
    ValueInfo::tensor(name, elem, dims.collect())
}

fn node(op: &'static str, inputs: &[&'static str], outputs: &[&'static str]) -> Node<'static> {
    Node { name: "node".into(), ..Node::new(op, inputs, outputs) }
}

fn ms(op: &'static str, inputs: &[&'static str], outputs: &[&'static str]) -> Node<'static> {
    Node { domain: "com.microsoft".into(), ..node(op, inputs, outputs) }
}

trait With {
    fn with(self, name: &'static str, value: AttributeValue<'static>) -> Self;
    fn int(self, name: &'static str, value: i64) -> Self;
}

impl With for Node<'static> {
    fn with(mut self, name: &'static str, value: AttributeValue<'static>) -> Self {
        self.attributes.push(Attribute::new(name, value));
        self
    }

    fn int(self, name: &'static str, value: i64) -> Self {
        self.with(name, AttributeValue::Int(value))
    }
}

#[test]
fn broadcasting_by_attribute_aligns_the_second_operand() {
    Case::opset(6)
        .input("x: float n 3 8 8")
        .input("b: float 3")
        .node(node("Add", &["x", "b"], &["y"]).int("broadcast", 1).int("axis", 1))
        .check(expect![[r#"
            graph "case" {
              input %x: f32[n,3,8,8]
              input %b: f32[3]
              const %y/axes: i64[2] = [1, 2]
              %y/Unsqueeze: f32[3,1,1] = Unsqueeze(%b, %y/axes) "node"
              %y: f32[n,3,8,8] = Add(%x, %y/Unsqueeze) "node"
              output %y
            }
        "#]]);
}

#[test]
fn softmax_before_13_runs_over_the_flattened_tail() {
    Case::opset(11).input("x: float n 3 8").node(node("Softmax", &["x"], &["y"]).int("axis", 1)).check(
        expect![[r#"
            graph "case" {
              input %x: f32[n,3,8]
              %y/Flatten: f32[n,24] = Flatten(%x) "node"
              %y/Softmax: f32[n,24] = Softmax(%y/Flatten) "node"
              %y/Shape: i64[3] = Shape(%x) "node"
              %y: f32[n,3,8] = Reshape(%y/Softmax, %y/Shape) {allowzero=true} "node"
              output %y
            }
        "#]],
    );
}

#[test]
fn softmax_before_13_along_the_last_axis_is_todays() {
    Case::opset(11).input("x: float n 3 8").node(node("Softmax", &["x"], &["y"]).int("axis", 2)).check(
        expect![[r#"
            graph "case" {
              input %x: f32[n,3,8]
              %y: f32[n,3,8] = Softmax(%x) "node"
              output %y
            }
        "#]],
    );
}

#[test]
fn clip_bounds_become_inputs() {
    Case::opset(6)
        .input("x: float n")
        .node(node("Clip", &["x"], &["y"]).with("max", AttributeValue::Float(6.0)))
        .check(expect![[r#"
            graph "case" {
              input %x: f32[n]
              const %y/max: f32[] = 6
              %y: f32[n] = Clip(%x, _, %y/max) "node"
              output %y
            }
        "#]]);
}

#[test]
fn axes_become_an_input() {
    Case::opset(12)
        .input("x: float n 3 8")
        .node(
            node("ReduceMean", &["x"], &["y"])
                .with("axes", AttributeValue::Ints(vec![-1]))
                .int("keepdims", 0),
        )
        .check(expect![[r#"
            graph "case" {
              input %x: f32[n,3,8]
              const %y/axes: i64[1] = [-1]
              %y: f32[n,3] = ReduceMean(%x, %y/axes) {keepdims=false} "node"
              output %y
            }
        "#]]);
}

#[test]
fn upsample_is_a_resize_with_its_old_rounding() {
    Case::opset(7)
        .input("x: float n 3 h w")
        .node(
            node("Upsample", &["x"], &["y"]).with("scales", AttributeValue::Floats(vec![1.0, 1.0, 2.0, 2.0])),
        )
        .check(expect![[r#"
            graph "case" {
              input %x: f32[n,3,h,w]
              const %y/scales: f32[4] = [1, 1, 2, 2]
              %y: f32[n,3,2*h,2*w] = Resize(%x, _, %y/scales) {nearest_mode="simple", coordinate_transformation_mode="asymmetric"} "node"
              output %y
            }
        "#]]);
}

#[test]
fn group_scales_are_spread_over_channels() {
    Case::opset(18)
        .input("x: float n 6 h")
        .input("s: float 2")
        .input("b: float 2")
        .node(node("GroupNormalization", &["x", "s", "b"], &["y"]).int("num_groups", 2))
        .check(expect![[r#"
            graph "case" {
              input %x: f32[n,6,h]
              input %s: f32[2]
              input %b: f32[2]
              const %y/groups: i64[1] = [2]
              const %y/axes: i64[1] = [1]
              const %y/flat: i64[1] = [-1]
              const %y/axes.2: i64[1] = [1]
              const %y/flat.2: i64[1] = [-1]
              %y/Shape: i64[1] = Shape(%x) {end=2, start=1} "node"
              %y/Div: i64[1] = Div(%y/Shape, %y/groups) "node"
              %y/Concat: i64[2] = Concat(%y/groups, %y/Div) {axis=0} "node"
              %y/Unsqueeze: f32[2,1] = Unsqueeze(%s, %y/axes) "node"
              %y/Expand: f32[2,3] = Expand(%y/Unsqueeze, %y/Concat) "node"
              %y/Reshape: f32[6] = Reshape(%y/Expand, %y/flat) "node"
              %y/Unsqueeze.2: f32[2,1] = Unsqueeze(%b, %y/axes.2) "node"
              %y/Expand.2: f32[2,3] = Expand(%y/Unsqueeze.2, %y/Concat) "node"
              %y/Reshape.2: f32[6] = Reshape(%y/Expand.2, %y/flat.2) "node"
              %y: f32[n,6,h] = GroupNormalization(%x, %y/Reshape, %y/Reshape.2) {num_groups=2} "node"
              output %y
            }
        "#]]);
}

#[test]
fn exporters_shape_arithmetic_resolves() {
    Case::opset(17)
        .input("x: float batch seq 768")
        .ints("zero", &[0])
        .ints("one", &[1])
        .ints("heads", &[12, 64])
        .node(node("Shape", &["x"], &["s"]))
        .node(node("Gather", &["s", "zero"], &["batch"]))
        .node(node("Gather", &["s", "one"], &["seq"]))
        .node(node("Concat", &["batch", "seq", "heads"], &["shape"]).int("axis", 0))
        .node(node("Reshape", &["x", "shape"], &["y"]))
        .check(expect![[r#"
            graph "case" {
              input %x: f32[batch,seq,768]
              const %zero: i64[1] = [0]
              const %one: i64[1] = [1]
              const %heads: i64[2] = [12, 64]
              %s: i64[3] = Shape(%x) "node"
              %batch: i64[1] = Gather(%s, %zero) "node"
              %seq: i64[1] = Gather(%s, %one) "node"
              %shape: i64[4] = Concat(%batch, %seq, %heads) {axis=0} "node"
              %y: f32[batch,seq,12,64] = Reshape(%x, %shape) "node"
              output %y
            }
        "#]]);
}

fn branch(name: &'static str, op: &'static str, inputs: &[&'static str]) -> Graph<'static> {
    let made: &'static str = if name == "then" { "t" } else { "e" };
    Graph {
        name: name.into(),
        nodes: vec![node(op, inputs, &[made])],
        outputs: vec![ValueInfo { name: made.into(), ..ValueInfo::default() }],
        ..Graph::default()
    }
}

fn if_node(condition: &'static str, then: Graph<'static>, other: Graph<'static>) -> Node<'static> {
    node("If", &[condition], &["y"])
        .with("then_branch", AttributeValue::Graph(Box::new(then)))
        .with("else_branch", AttributeValue::Graph(Box::new(other)))
}

#[test]
fn branches_share_one_list_of_captured_values() {
    Case::opset(17)
        .input("c: bool")
        .input("a: float n")
        .input("b: float n")
        .node(if_node("c", branch("then", "Relu", &["a"]), branch("else", "Add", &["b", "a"])))
        .check(expect![[r#"
            graph "case" {
              input %c: bool[]
              input %a: f32[n]
              input %b: f32[n]
              %y: f32[n] = If(%c; %a, %b) "node" [
                graph "then" {
                  input %a: f32[n]
                  input %b: f32[n]
                  %t: f32[n] = Relu(%a) "node"
                  output %t
                },
                graph "else" {
                  input %a: f32[n]
                  input %b: f32[n]
                  %e: f32[n] = Add(%b, %a) "node"
                  output %e
                }
              ]
              output %y
            }
        "#]]);
}

#[test]
fn a_branch_that_shapes_decide_is_imported_in_place() {
    // The other branch would not even fit the types.
    Case::opset(17)
        .input("x: float n 3")
        .ints("three", &[3])
        .ints("one", &[1])
        .node(node("Shape", &["x"], &["s"]))
        .node(node("Gather", &["s", "one"], &["d"]))
        .node(node("Equal", &["d", "three"], &["c"]))
        .node(if_node("c", branch("then", "Relu", &["x"]), branch("else", "MatMul", &["x", "x"])))
        .check(expect![[r#"
            graph "case" {
              input %x: f32[n,3]
              const %three: i64[1] = [3]
              const %one: i64[1] = [1]
              %s: i64[2] = Shape(%x) "node"
              %d: i64[1] = Gather(%s, %one) "node"
              %c: bool[1] = Equal(%d, %three) "node"
              %t: f32[n,3] = Relu(%x) "node"
              %y: f32[n,3] = Identity(%t) "node"
              output %y
            }
        "#]]);
}

#[test]
fn fused_products_are_taken_apart() {
    Case::opset(17)
        .input("a: float b k m")
        .input("w: float b k n")
        .node(
            ms("FusedMatMul", &["a", "w"], &["y"]).int("transA", 1).with("alpha", AttributeValue::Float(0.5)),
        )
        .check(expect![[r#"
            graph "case" {
              input %a: f32[b,k,m]
              input %w: f32[b,k,n]
              const %y/alpha: f32[] = 0.5
              %y/Transpose: f32[b,m,k] = Transpose(%a) {perm=[0,2,1]} "node"
              %y/MatMul: f32[b,m,n] = MatMul(%y/Transpose, %w) "node"
              %y: f32[b,m,n] = Mul(%y/MatMul, %y/alpha) "node"
              output %y
            }
        "#]]);
}

#[test]
fn skip_layer_normalization_adds_first() {
    Case::opset(17)
        .input("x: float b s 8")
        .input("r: float b s 8")
        .input("g: float 8")
        .input("o: float 8")
        .node(ms("SkipLayerNormalization", &["x", "r", "g", "o"], &["y", "", "", "sum"]))
        .node(node("Identity", &["sum"], &["z"]))
        .check(expect![[r#"
            graph "case" {
              input %x: f32[b,s,8]
              input %r: f32[b,s,8]
              input %g: f32[8]
              input %o: f32[8]
              %y/Add: f32[b,s,8] = Add(%x, %r) "node"
              %y: f32[b,s,8] = LayerNormalization(%y/Add, %g, %o) {epsilon=1e-12} "node"
              %sum: f32[b,s,8] = Identity(%y/Add) "node"
              %z: f32[b,s,8] = Identity(%sum) "node"
              output %z
            }
        "#]]);
}

#[test]
fn weights_of_four_bits_are_blocks_to_dequantize() {
    Case::opset(21)
        .input("x: float n 32")
        .input("scales: float 2")
        .bytes("w", &[2, 1, 16], vec![0x21; 32])
        .node(
            ms("MatMulNBits", &["x", "w", "scales"], &["y"])
                .int("K", 32)
                .int("N", 2)
                .int("bits", 4)
                .int("block_size", 32),
        )
        .check(expect![[r#"
            graph "case" {
              input %x: f32[n,32]
              input %scales: f32[2]
              const %w: u8[2,1,16] = #0 /* 32 bytes */
              const %y/weights: i4[32,2] = #1 /* 32 bytes */
              const %y/shape: i64[2] = [2, 1]
              %y/Reshape: f32[2,1] = Reshape(%scales, %y/shape) "node"
              %y/Transpose: f32[1,2] = Transpose(%y/Reshape) {perm=[1,0]} "node"
              %y/DequantizeLinear: f32[32,2] = DequantizeLinear(%y/weights, %y/Transpose) {block_size=32, axis=0} "node"
              %y: f32[n,2] = MatMul(%x, %y/DequantizeLinear) "node"
              output %y
            }
        "#]]);
}

#[test]
fn weights_of_a_quantized_lstm_are_blocks_to_dequantize() {
    Case::opset(21)
        .input("x: float t b 2")
        .input("w_scale: float 1")
        .input("r_scale: float 1 4")
        .bytes("w", &[1, 2, 4], (0..8).collect())
        .bytes("r", &[1, 1, 4], vec![7; 4])
        .bytes("w_zero", &[1], vec![128])
        .bytes("r_zero", &[1, 4], vec![127, 128, 129, 130])
        .node(
            ms(
                "DynamicQuantizeLSTM",
                &["x", "w", "r", "", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"],
                &["y"],
            )
            .int("hidden_size", 1),
        )
        .check(expect![[r#"
            graph "case" {
              input %x: f32[t,b,2]
              input %w_scale: f32[1]
              input %r_scale: f32[1,4]
              const %w: u8[1,2,4] = [0, 1, 2, 3, 4, 5, 6, 7]
              const %r: u8[1,1,4] = [7, 7, 7, 7]
              const %w_zero: u8[1] = [128]
              const %r_zero: u8[1,4] = [127, 128, 129, 130]
              const %y/shape: i64[3] = [1, 1, 1]
              const %y/shape.2: i64[3] = [1, 4, 1]
              const %y/shape.3: i64[3] = [1, 1, 1]
              const %y/shape.4: i64[3] = [1, 4, 1]
              const %y/shape.5: i64[3] = [1, 4, 1]
              const %y/shape.6: i64[3] = [1, 4, 1]
              %y/Reshape: f32[1,1,1] = Reshape(%w_scale, %y/shape) "node"
              %y/Expand: f32[1,4,1] = Expand(%y/Reshape, %y/shape.2) "node"
              %y/Reshape.2: u8[1,1,1] = Reshape(%w_zero, %y/shape.3) "node"
              %y/Expand.2: u8[1,4,1] = Expand(%y/Reshape.2, %y/shape.4) "node"
              %y/Transpose: u8[1,4,2] = Transpose(%w) {perm=[0,2,1]} "node"
              %y/DequantizeLinear: f32[1,4,2] = DequantizeLinear(%y/Transpose, %y/Expand, %y/Expand.2) {block_size=2, axis=2} "node"
              %y/Reshape.3: f32[1,4,1] = Reshape(%r_scale, %y/shape.5) "node"
              %y/Reshape.4: u8[1,4,1] = Reshape(%r_zero, %y/shape.6) "node"
              %y/Transpose.2: u8[1,4,1] = Transpose(%r) {perm=[0,2,1]} "node"
              %y/DequantizeLinear.2: f32[1,4,1] = DequantizeLinear(%y/Transpose.2, %y/Reshape.3, %y/Reshape.4) {block_size=1, axis=2} "node"
              %y: f32[t,1,b,1] = LSTM(%x, %y/DequantizeLinear, %y/DequantizeLinear.2) {hidden_size=1} "node"
              output %y
            }
        "#]]);
}

#[test]
fn zero_points_of_blocks_are_integers_or_a_term_of_their_own() {
    let case = || {
        Case::opset(21).input("x: float n 32").input("scales: float 4").bytes("w", &[2, 2, 8], vec![0xc1; 32])
    };
    let node = || {
        ms("MatMulNBits", &["x", "w", "scales", "zeros", "", "bias"], &["y"])
            .int("K", 32)
            .int("N", 2)
            .int("bits", 4)
            .int("block_size", 16)
    };
    case().input("bias: float 2").bytes("zeros", &[2], vec![0x78, 0x08]).node(node()).check(expect![[r#"
        graph "case" {
          input %x: f32[n,32]
          input %scales: f32[4]
          input %bias: f32[2]
          const %w: u8[2,2,8] = #0 /* 32 bytes */
          const %zeros: u8[2] = [120, 8]
          const %y/weights: i4[32,2] = #1 /* 32 bytes */
          const %y/shape: i64[2] = [2, 2]
          const %y/zero_points: i4[2,2] = [0, 0, -1, -8]
          %y/Reshape: f32[2,2] = Reshape(%scales, %y/shape) "node"
          %y/Transpose: f32[2,2] = Transpose(%y/Reshape) {perm=[1,0]} "node"
          %y/DequantizeLinear: f32[32,2] = DequantizeLinear(%y/weights, %y/Transpose, %y/zero_points) {block_size=16, axis=0} "node"
          %y/MatMul: f32[n,2] = MatMul(%x, %y/DequantizeLinear) "node"
          %y: f32[n,2] = Add(%y/MatMul, %bias) "node"
          output %y
        }
    "#]]);
    case().input("bias: float 2").input("zeros: float 4").node(node()).check(expect![[r#"
        graph "case" {
          input %x: f32[n,32]
          input %scales: f32[4]
          input %bias: f32[2]
          input %zeros: f32[4]
          const %w: u8[2,2,8] = #0 /* 32 bytes */
          const %y/weights: i4[32,2] = #1 /* 32 bytes */
          const %y/shape: i64[2] = [2, 2]
          const %y/shape.2: i64[2] = [2, 2]
          const %y/middle: f32[] = 8
          const %y/shape.3: i64[3] = [0, -1, 16]
          const %y/axes: i64[1] = [-1]
          %y/Reshape: f32[2,2] = Reshape(%scales, %y/shape) "node"
          %y/Transpose: f32[2,2] = Transpose(%y/Reshape) {perm=[1,0]} "node"
          %y/Reshape.2: f32[2,2] = Reshape(%zeros, %y/shape.2) "node"
          %y/Transpose.2: f32[2,2] = Transpose(%y/Reshape.2) {perm=[1,0]} "node"
          %y/DequantizeLinear: f32[32,2] = DequantizeLinear(%y/weights, %y/Transpose) {block_size=16, axis=0} "node"
          %y/Sub: f32[2,2] = Sub(%y/middle, %y/Transpose.2) "node"
          %y/Mul: f32[2,2] = Mul(%y/Sub, %y/Transpose) "node"
          %y/Reshape.3: f32[n,2,16] = Reshape(%x, %y/shape.3) "node"
          %y/ReduceSum: f32[n,2] = ReduceSum(%y/Reshape.3, %y/axes) {keepdims=false} "node"
          %y/MatMul: f32[n,2] = MatMul(%y/ReduceSum, %y/Mul) "node"
          %y/MatMul.2: f32[n,2] = MatMul(%x, %y/DequantizeLinear) "node"
          %y/Add: f32[n,2] = Add(%y/MatMul.2, %bias) "node"
          %y: f32[n,2] = Add(%y/Add, %y/MatMul) "node"
          output %y
        }
    "#]]);
}

#[test]
fn packed_projections_of_attention_are_split() {
    Case::opset(17)
        .input("x: float b s 8")
        .input("w: float 8 24")
        .input("bias: float 24")
        .node(ms("Attention", &["x", "w", "bias"], &["y"]).int("num_heads", 2))
        .check(expect![[r#"
            graph "case" {
              input %x: f32[b,s,8]
              input %w: f32[8,24]
              input %bias: f32[24]
              %y/MatMul: f32[b,s,24] = MatMul(%x, %w) "node"
              %y/Add: f32[b,s,24] = Add(%y/MatMul, %bias) "node"
              %y/Split: f32[b,s,8], %y/Split.1: f32[b,s,8], %y/Split.2: f32[b,s,8] = Split(%y/Add) {num_outputs=3, axis=2} "node"
              %y: f32[b,s,8] = Attention(%y/Split, %y/Split.1, %y/Split.2) {kv_num_heads=2, q_num_heads=2} "node"
              output %y
            }
        "#]]);
}

#[test]
fn quantized_addition_goes_through_real_numbers() {
    Case::opset(17)
        .input("a: uint8 n")
        .input("s: float")
        .input("z: uint8")
        .node(ms("QLinearAdd", &["a", "s", "z", "a", "s", "z", "s", "z"], &["y"]))
        .check(expect![[r#"
            graph "case" {
              input %a: u8[n]
              input %s: f32[]
              input %z: u8[]
              %y/DequantizeLinear: f32[n] = DequantizeLinear(%a, %s, %z) "node"
              %y/DequantizeLinear.2: f32[n] = DequantizeLinear(%a, %s, %z) "node"
              %y/Add: f32[n] = Add(%y/DequantizeLinear, %y/DequantizeLinear.2) "node"
              %y: u8[n] = QuantizeLinear(%y/Add, %s, %z) "node"
              output %y
            }
        "#]]);
}

/// `Loop(n, , state, weight, growing)` over a body that multiplies the state with a weight that it hands on. The file
/// declares that what grows has the size that it begins with.
fn looped(outputs: &[&'static str]) -> Case {
    let step = Graph {
        name: "step".into(),
        inputs: ["i: int64", "go: bool", "s: float a 3", "w: float b c", "g: float k 3"].map(value).to_vec(),
        outputs: ["go", "next", "w_out", "grown", "next"]
            .map(|name| ValueInfo { name: name.into(), ..ValueInfo::default() })
            .to_vec(),
        nodes: vec![
            node("Identity", &["w"], &["w_out"]),
            node("MatMul", &["s", "w"], &["next"]),
            node("Concat", &["g", "s"], &["grown"]).int("axis", 0),
        ],
        ..Graph::default()
    };
    let mut case = Case::opset(17).input("n: int64").input("x: float k 3").node(
        node("Loop", &["n", "", "x", "weight", "x"], outputs)
            .with("body", AttributeValue::Graph(step.into())),
    );
    let zeros = vec![0; 36];
    case.graph.initializers.push(Tensor::raw("weight", DataType::Float, vec![3, 3], zeros));
    case
}

#[test]
fn what_a_loop_hands_on_unchanged_is_captured_and_shapes_that_stay_are_known() {
    looped(&["last", "w_last", "long", "all"]).check(expect![[r#"
        graph "case" {
          input %n: i64[]
          input %x: f32[k,3]
          const %weight: f32[3,3] = [0, 0, 0, 0, 0, 0, 0, 0, 0]
          %w_last: f32[3,3] = Identity(%weight) "node"
          %last: f32[k,3], %long: f32["either'1",3], %all: f32["iterations'2",k,3] = Loop(%n, _, %x, %x) "node" [
            graph "step" {
              input %i: i64[]
              input %go: bool[]
              input %s: f32[k,3]
              input %g: f32["carried'0",3]
              const %w: f32[3,3] = [0, 0, 0, 0, 0, 0, 0, 0, 0]
              %w_out: f32[3,3] = Identity(%w) "node"
              %next: f32[k,3] = MatMul(%s, %w) "node"
              %grown: f32["carried'0"+k,3] = Concat(%g, %s) {axis=0} "node"
              output %go, %next, %grown, %next
            }
          ]
          output %last, %w_last, %long, %all
        }
    "#]]);
}
