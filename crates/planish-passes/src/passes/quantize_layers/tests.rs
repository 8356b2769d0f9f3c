//! Small models, quantized.

use super::*;
use crate::driver::{Options, Pass, Pipeline};
use crate::passes::share_common_subexpressions::ShareCommonSubexpressions;
use crate::testing::{check_pass, graph};
use expect_test::{Expect, expect};
use planish_ir::Graph;
use planish_op::Op;

pub(super) fn options(ranges: &[(&str, f32, f32)]) -> Quantize {
    let range = |&(name, min, max): &(&str, f32, f32)| {
        (name.to_string(), ActivationRange { min, max, threshold: max.max(-min) })
    };
    Quantize {
        ranges: ranges.iter().map(range).collect(),
        channels: HashMap::new(),
        correct_biases: true,
        activations: DType::U8,
        kernels: IntegerKernels::ANY,
        weight_range: WeightRange::Full,
        fp32_layers: vec!["keep*".to_string()],
        int8_layers: vec!["tail*".to_string()],
        wide_layers: Vec::new(),
        imprecise_nodes: Vec::new(),
    }
}

/// The nodes after the pass, joined where they are equal: `output = operator(inputs)`, weights left out.
fn check_nodes(options: Quantize, text: &str, wanted: Expect) -> Graph {
    let (text, after) = shown(options, text);
    wanted.assert_eq(&text);
    after
}

fn shown(options: Quantize, text: &str) -> (String, Graph) {
    let pipeline =
        Pipeline::new(vec![Pass::sweep(QuantizeLayers(options)), Pass::sweep(ShareCommonSubexpressions)]);
    let run = Options { explain: true, verify_each: true, ..Options::default() };
    let (after, report) = pipeline.run(graph(text), &run).unwrap();
    let name = |id: &ValueId| after.value(*id).name.to_string();
    let mut shown = String::new();
    for (_, node) in after.nodes() {
        let constants = |id: &&ValueId| after.value(**id).constant().is_none();
        let inputs: Vec<String> = node.inputs.iter().flatten().filter(constants).map(name).collect();
        if inputs.is_empty() {
            continue;
        }
        let outputs: Vec<String> = node.outputs.iter().flatten().map(name).collect();
        let mut line = format!("{} = {}({})", outputs.join(", "), node.op.name(), inputs.join(", "));
        if let Op::QuantizeLinear(_) = node.op {
            let number =
                |place: usize| after.value(node.inputs[place].unwrap()).constant().unwrap().to_f64s()[0];
            line.push_str(&format!(" by {:.4} from {}", number(1), number(2)));
        }
        shown.push_str(&format!("{line}\n"));
    }
    for refusal in &report.passes[0].refusals {
        shown.push_str(&format!("refused at {}: {}\n", refusal.node, refusal.reason));
    }
    (shown, after)
}

/// A 1x1 convolution of 4 channels.
fn conv(y: &str, x: &str, name: &str) -> String {
    format!("%{y}: f32[1,4,8,8] = Conv(%{x}, %w) \"{name}\" ")
}

const WEIGHTS: &str = "const %w: f32[4,4,1,1] = [1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4] ";
const OTHERS: &str = "const %u: f32[4,4,1,1] = [0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 3, 0, 0, 4, 0] ";

#[test]
fn a_layer_gets_integers_and_weights_a_scale_for_each_channel() {
    check_pass(
        Pass::sweep(QuantizeLayers(options(&[("x", -1.0, 0.5)]))),
        "input %x: f32[2,3] const %w: f32[3,2] = [1.27, 0, -0.3, 0, 0.015, 0] const %b: f32[2] = [1, 2] \
         %y: f32[2,2] = Gemm(%x, %w, %b) \"tail\" output %y",
        expect![[r#"
            input %x: f32[2,3]
            const %b: f32[2] = [1, 2]
            const %x.quantize.scale: f32[] = 0.005882353
            const %x.quantize.zero_point: u8[] = 170
            const %x.dequantize.scale: f32[] = 0.005882353
            const %x.dequantize.zero_point: u8[] = 170
            const %w: i8[3,2] = [127, 0, -30, 0, 2, 0]
            const %w.scale: f32[2] = [0.01, 0.01]
            const %w.zero_point: i8[2] = [0, 0]
            %x.quantize: u8[2,3] = QuantizeLinear(%x, %x.quantize.scale, %x.quantize.zero_point) "x.quantize"
            %x.dequantize: f32[2,3] = DequantizeLinear(%x.quantize, %x.dequantize.scale, %x.dequantize.zero_point) "x.dequantize"
            %w.dequantize: f32[3,2] = DequantizeLinear(%w, %w.scale, %w.zero_point) "w.dequantize"
            %y: f32[2,2] = Gemm(%x.dequantize, %w.dequantize, %b) "tail"
            output %y
        "#]],
    );
    let reduced = Quantize {
        weight_range: WeightRange::Reduced,
        activations: DType::I8,
        ..options(&[("x", 0.0, 0.5)])
    };
    check_pass(
        Pass::sweep(QuantizeLayers(reduced)),
        "input %x: f32[2,3] const %w: f32[2,3] = [1.26, 0.3, -0.3, 0, 0.015, 0] %y: f32[2,2] = Gemm(%x, %w) {trans_b=true} \
         \"tail\" output %y",
        expect![[r#"
            input %x: f32[2,3]
            const %x.quantize.scale: f32[] = 0.003937008
            const %x.quantize.zero_point: i8[] = 0
            const %x.dequantize.scale: f32[] = 0.003937008
            const %x.dequantize.zero_point: i8[] = 0
            const %w: i8[2,3] = [63, 15, -15, 0, 63, 0]
            const %w.scale: f32[2] = [0.02, 0.00023809524]
            const %w.zero_point: i8[2] = [0, 0]
            %x.quantize: i8[2,3] = QuantizeLinear(%x, %x.quantize.scale, %x.quantize.zero_point) "x.quantize"
            %x.dequantize: f32[2,3] = DequantizeLinear(%x.quantize, %x.dequantize.scale, %x.dequantize.zero_point) "x.dequantize"
            %w.dequantize: f32[2,3] = DequantizeLinear(%w, %w.scale, %w.zero_point) {axis=0} "w.dequantize"
            %y: f32[2,2] = Gemm(%x.dequantize, %w.dequantize) {trans_b=true} "tail"
            output %y
        "#]],
    );
}

#[test]
fn floats_of_8_bits_reach_the_largest_magnitude() {
    let floats = Quantize { activations: DType::F8E4M3FN, ..options(&[("x", -8.96, 0.5)]) };
    check_pass(
        Pass::sweep(QuantizeLayers(floats)),
        "input %x: f32[2,3] const %w: f32[3,2] = [4.48, 0, -0.3, 0, 0.015, 0] %y: f32[2,2] = Gemm(%x, %w) \"tail\" output %y",
        expect![[r#"
            input %x: f32[2,3]
            const %x.quantize.scale: f32[] = 0.02
            const %x.quantize.zero_point: f8e4m3fn[] = 0
            const %x.dequantize.scale: f32[] = 0.02
            const %x.dequantize.zero_point: f8e4m3fn[] = 0
            const %w: f8e4m3fn[3,2] = [448, 0, -30, 0, 1.5, 0]
            const %w.scale: f32[2] = [0.01, 0.01]
            const %w.zero_point: f8e4m3fn[2] = [0, 0]
            %x.quantize: f8e4m3fn[2,3] = QuantizeLinear(%x, %x.quantize.scale, %x.quantize.zero_point) "x.quantize"
            %x.dequantize: f32[2,3] = DequantizeLinear(%x.quantize, %x.dequantize.scale, %x.dequantize.zero_point) "x.dequantize"
            %w.dequantize: f32[3,2] = DequantizeLinear(%w, %w.scale, %w.zero_point) "w.dequantize"
            %y: f32[2,2] = Gemm(%x.dequantize, %w.dequantize) "tail"
            output %y
        "#]],
    );
}

#[test]
fn a_residual_that_no_layer_makes_keeps_its_bits_beside_floats_of_8_bits() {
    let text = format!(
        "input %x: f32[1,4,8,8] {WEIGHTS}%e: f32[1,4,8,8] = Sin(%x) \"e\" {}%s: f32[1,4,8,8] = Add(%a, %e) \"s\" output %s",
        conv("a", "e", "tail a"),
    );
    let ranges = [("e", -1.0, 1.0), ("a", -4.48, 4.48)];
    check_nodes(
        Quantize { activations: DType::F8E4M3FN, ..options(&ranges) },
        &text,
        expect![[r#"
            e = Sin(x)
            e.quantize = QuantizeLinear(e) by 0.0022 from 0
            e.dequantize = DequantizeLinear(e.quantize)
            a = Conv(e.dequantize, w.dequantize)
            s = Add(a, e)
        "#]],
    );
}

#[test]
fn floats_of_8_bits_are_not_pooled() {
    let floats = Quantize {
        activations: DType::F8E4M3FN,
        ..options(&[("x", -1.0, 1.0), ("a", 0.0, 4.48), ("p", 0.0, 4.48), ("b", 0.0, 1.0)])
    };
    let text = format!(
        "input %x: f32[1,4,8,8] {WEIGHTS}{OTHERS}{}%p: f32[1,4,8,8] = MaxPool(%a) {{kernel_shape=[3,3], pads=[1,1,1,1]}} \
         \"p\" {}output %b",
        conv("a", "x", "a"),
        conv("b", "p", "tail b").replace("%w", "%u"),
    );
    check_nodes(
        floats,
        &text,
        expect![[r#"
            x.quantize = QuantizeLinear(x) by 0.0022 from 0
            x.dequantize = DequantizeLinear(x.quantize)
            a = Conv(x.dequantize, w.dequantize)
            p = MaxPool(a)
            p.quantize = QuantizeLinear(p) by 0.0100 from 0
            p.dequantize = DequantizeLinear(p.quantize)
            b = Conv(p.dequantize, u.dequantize)
        "#]],
    );
}

#[test]
fn uneven_ranges_get_the_zero_point_that_they_ask_for() {
    let text = format!("input %x: f32[1,4,8,8] {WEIGHTS} {} output %y", conv("y", "x", "tail"));
    let first_node =
        |(low, high)| shown(options(&[("x", low, high)]), &text).0.lines().next().map(str::to_string);
    let nodes: Vec<String> =
        [(-0.375, 5.0), (-3.0, 5.0), (-5.0, 0.0), (0.5, 5.0)].into_iter().filter_map(first_node).collect();
    expect![[r#"
        x.quantize = QuantizeLinear(x) by 0.0211 from 18
        x.quantize = QuantizeLinear(x) by 0.0394 from 128
        x.quantize = QuantizeLinear(x) by 0.0196 from 255
        x.quantize = QuantizeLinear(x) by 0.0196 from 0"#]]
    .assert_eq(&nodes.join("\n"));
}

#[test]
fn residuals_pools_and_parts_are_integers_between_layers() {
    // As a residual block: the sum reads the integers that the first layer reads, and the pooled ones are the same.
    let text = format!(
        "input %x: f32[1,4,8,8] {WEIGHTS} {} %a: f32[1,4,8,8] = Relu(%p) \"a\" {} %s: f32[1,4,8,8] = Add(%q, %a) \"s\" \
         %r: f32[1,4,8,8] = Relu(%s) \"r\" %m: f32[1,4,8,8] = MaxPool(%r) {{kernel_shape=[3,3], pads=[1,1,1,1]}} \"m\" {} \
         %c: f32[1,4,8,8] = Sigmoid(%t) \"c\" output %c",
        conv("p", "x", "first"),
        conv("q", "a", "second"),
        conv("t", "m", "tail"),
    );
    let ranges = [("x", -1.0, 1.0), ("a", 0.0, 2.0), ("r", 0.0, 4.0), ("m", 0.0, 3.0), ("q", -9.0, 9.0)];
    check_nodes(
        options(&ranges),
        &text,
        expect![[r#"
        x.quantize = QuantizeLinear(x) by 0.0079 from 128
        x.dequantize = DequantizeLinear(x.quantize)
        p = Conv(x.dequantize, w.dequantize)
        a = Relu(p)
        a.quantize = QuantizeLinear(a) by 0.0078 from 0
        a.dequantize = DequantizeLinear(a.quantize)
        q = Conv(a.dequantize, w.dequantize)
        s = Add(q, a.dequantize)
        r = Relu(s)
        r.quantize = QuantizeLinear(r) by 0.0157 from 0
        r.dequantize = DequantizeLinear(r.quantize)
        m = MaxPool(r.dequantize)
        m.quantize = QuantizeLinear(m) by 0.0157 from 0
        m.dequantize = DequantizeLinear(m.quantize)
        t = Conv(m.dequantize, w.dequantize)
        c = Sigmoid(t)
    "#]],
    );
}

#[test]
fn of_two_layers_that_meet_in_a_sum_one_writes_integers() {
    // As where a residual is made by a layer of its own: the one that comes last is computed with the sum.
    let text = format!(
        "input %x: f32[1,4,8,8] {WEIGHTS}{OTHERS} {} {} %s: f32[1,4,8,8] = Add(%q, %p) \"s\" \
         %r: f32[1,4,8,8] = Relu(%s) \"r\" {} output %t",
        conv("p", "x", "residual"),
        conv("q", "x", "main").replace("%w", "%u"),
        conv("t", "r", "tail"),
    );
    let ranges = [("x", -1.0, 1.0), ("p", -3.0, 2.0), ("q", -3.0, 2.0), ("r", 0.0, 4.0)];
    check_nodes(
        options(&ranges),
        &text,
        expect![[r#"
        x.quantize = QuantizeLinear(x) by 0.0079 from 128
        x.dequantize = DequantizeLinear(x.quantize)
        p = Conv(x.dequantize, w.dequantize)
        q = Conv(x.dequantize, u.dequantize)
        p.quantize = QuantizeLinear(p) by 0.0236 from 128
        p.dequantize = DequantizeLinear(p.quantize)
        s = Add(q, p.dequantize)
        r = Relu(s)
        r.quantize = QuantizeLinear(r) by 0.0157 from 0
        r.dequantize = DequantizeLinear(r.quantize)
        t = Conv(r.dequantize, w.dequantize)
    "#]],
    );
}

#[test]
fn parts_of_a_concatenation_share_a_scale_where_little_is_lost() {
    let concat = |others: &str| {
        format!(
            "input %x: f32[1,4,8,8] {WEIGHTS}{OTHERS} const %v: f32[4,8,1,1] = [1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4, \
             1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4] {}{}{others} \
             %c: f32[1,8,8,8] = Concat(%a, %b) {{axis=1}} \"c\" %y: f32[1,4,8,8] = Conv(%c, %v) \"tail\" output %y",
            conv("a", "x", "a"),
            conv("b", "x", "b").replace("%w", "%u"),
        )
    };
    let ranges = [("x", -1.0, 1.0), ("a", -1.0, 1.0), ("b", -4.0, 4.0), ("c", -4.0, 4.0), ("d", -1.0, 1.0)];
    check_nodes(
        options(&ranges),
        &concat(""),
        expect![[r#"
            x.quantize = QuantizeLinear(x) by 0.0079 from 128
            x.dequantize = DequantizeLinear(x.quantize)
            a = Conv(x.dequantize, w.dequantize)
            b = Conv(x.dequantize, u.dequantize)
            a.quantize = QuantizeLinear(a) by 0.0315 from 128
            a.dequantize = DequantizeLinear(a.quantize)
            b.quantize = QuantizeLinear(b) by 0.0315 from 128
            b.dequantize = DequantizeLinear(b.quantize)
            c = Concat(a.dequantize, b.dequantize)
            c.quantize = QuantizeLinear(c) by 0.0315 from 128
            c.dequantize = DequantizeLinear(c.quantize)
            y = Conv(c.dequantize, v.dequantize)
        "#]],
    );
    // Read by a layer too, `a` keeps its finer scale.
    let other = format!("{}%z: f32[1,4,8,8] = Neg(%d) output %z ", conv("d", "a", "tail.2"));
    let text = concat(&other).replace("output %z ", "").replace("output %y", "output %y, %z");
    check_nodes(
        options(&ranges),
        &text,
        expect![[r#"
            x.quantize = QuantizeLinear(x) by 0.0079 from 128
            x.dequantize = DequantizeLinear(x.quantize)
            a = Conv(x.dequantize, w.dequantize)
            b = Conv(x.dequantize, u.dequantize)
            a.quantize = QuantizeLinear(a) by 0.0079 from 128
            a.dequantize = DequantizeLinear(a.quantize)
            d = Conv(a.dequantize, w.dequantize)
            z = Neg(d)
            b.quantize = QuantizeLinear(b) by 0.0315 from 128
            b.dequantize = DequantizeLinear(b.quantize)
            c = Concat(a.dequantize, b.dequantize)
            c.quantize = QuantizeLinear(c) by 0.0315 from 128
            c.dequantize = DequantizeLinear(c.quantize)
            y = Conv(c.dequantize, v.dequantize)
        "#]],
    );
}

#[test]
fn what_stays_in_floats_says_why() {
    let text = format!(
        "input %x: f32[1,3,8,8] {WEIGHTS} const %f: f32[4,3,1,1] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] \
         %a: f32[1,4,8,8] = Conv(%x, %f) \"first\" {}{}{}{}{} %m: f32[1,4,8,8] = MatMul(%b, %c) \"m\" output %e, %g, %m",
        conv("b", "a", "unknown"),
        conv("c", "b", "keep.1"),
        conv("d", "c", "zero"),
        conv("e", "d", "last"),
        conv("g", "d", "tail"),
    );
    let ranges = [("x", -1.0, 1.0), ("b", -1.0, 1.0), ("c", 0.0, 0.0), ("d", 0.0, 1.0)];
    check_nodes(
        options(&ranges),
        &text,
        expect![[r#"
            a = Conv(x)
            b = Conv(a)
            c = Conv(b)
            d = Conv(c)
            e = Conv(d)
            d.quantize = QuantizeLinear(d) by 0.0039 from 0
            d.dequantize = DequantizeLinear(d.quantize)
            g = Conv(d.dequantize, w.dequantize)
            m = MatMul(b, c)
            refused at first: it reads 3 channels: first layers stay wide
            refused at unknown: the calibration has no range of its input `a`
            refused at keep.1: --layer-precision keeps it in fp32
            refused at zero: its input `c` has no usable range
            refused at last: no layer comes after it: last layers stay wide
            refused at m: its second factor is not constant
        "#]],
    );
}

#[test]
fn transposed_convolutions_go_by_what_kernels_there_are() {
    let op = planish_op::ConvTranspose {
        group: 1,
        auto_pad: planish_op::AutoPad::NotSet,
        strides: vec![2, 2],
        pads: vec![0; 4],
        output_padding: Vec::new(),
        dilations: vec![1, 1],
        output_shape: None,
        kernel_shape: None,
    };
    let (beside, overlapping) = ([16, 8, 2, 2], [16, 8, 3, 3]);
    let known = |op: &planish_op::ConvTranspose, weights: &[usize]| {
        [Transposed::None, Transposed::SideBySide, Transposed::Any]
            .map(|known| choice::transposes(op, weights, known))
    };
    assert_eq!(known(&op, &beside), [false, true, true]);
    assert_eq!(known(&op, &overlapping), [false, false, true]);
    assert_eq!(known(&op, &[16, 4, 2, 2]), [false, false, true]);
    let padded = planish_op::ConvTranspose { pads: vec![1, 0, 0, 0], ..op.clone() };
    assert_eq!(known(&padded, &beside), [false, false, true]);
    let grouped = planish_op::ConvTranspose { group: 2, ..op };
    assert_eq!(known(&grouped, &beside), [false, false, true]);
}

#[test]
fn models_that_bring_quantization_are_left_alone() {
    let text = format!(
        "input %q: u8[1,4,8,8] {WEIGHTS} const %s: f32[] = 0.5 %x: f32[1,4,8,8] = DequantizeLinear(%q, %s) \"d\" {} output %y",
        conv("y", "x", "tail")
    );
    check_nodes(
        options(&[("x", 0.0, 1.0)]),
        &text,
        expect![[r#"
            x = DequantizeLinear(q)
            y = Conv(x)
            refused at tail: the model says itself what is quantized, and this layer is not
        "#]],
    );
}

#[test]
fn a_sum_that_is_named_reads_floats() {
    let text = format!(
        "input %x: f32[1,4,8,8] {WEIGHTS} {} {} %s: f32[1,4,8,8] = Add(%a, %b) \"keep the sum\" {} output %y",
        conv("a", "x", "first"),
        conv("b", "a", "second"),
        conv("y", "s", "tail"),
    );
    let ranges = [("x", -1.0, 1.0), ("a", -2.0, 2.0), ("b", -3.0, 3.0), ("s", -4.0, 4.0)];
    check_nodes(
        options(&ranges),
        &text,
        expect![[r#"
        x.quantize = QuantizeLinear(x) by 0.0079 from 128
        x.dequantize = DequantizeLinear(x.quantize)
        a = Conv(x.dequantize, w.dequantize)
        a.quantize = QuantizeLinear(a) by 0.0157 from 128
        a.dequantize = DequantizeLinear(a.quantize)
        b = Conv(a.dequantize, w.dequantize)
        s = Add(a, b)
        s.quantize = QuantizeLinear(s) by 0.0315 from 128
        s.dequantize = DequantizeLinear(s.quantize)
        y = Conv(s.dequantize, w.dequantize)
    "#]],
    );
}

/// Channels with these means, roots and magnitudes.
pub(super) fn channels(of: &[(f32, f32, f32)]) -> Channels {
    let list = |pick: fn(&(f32, f32, f32)) -> f32| of.iter().map(pick).collect();
    Channels { means: list(|one| one.0), roots: list(|one| one.1), largest: list(|one| one.2) }
}

#[test]
fn biases_make_up_for_what_rounding_weights_does_to_means() {
    // The second weight is rounded from 0.306 to 0.31: 0.004 times the mean of 10 is too much.
    let mut by = options(&[("x", 0.0, 20.0)]);
    by.channels.insert("x".to_string(), channels(&[(5.0, 6.0, 20.0), (10.0, 11.0, 20.0)]));
    let text = "input %x: f32[2,2] const %w: f32[2,1] = [1.27, 0.306] const %b: f32[1] = [1] \
                %y: f32[2,1] = Gemm(%x, %w, %b) \"tail\" output %y";
    let nodes = "input %x: f32[1,2,2] const %w: f32[2,1] = [1.27, 0.306] const %b: f32[1] = [1] \
                 %p: f32[1,2,1] = MatMul(%x, %w) \"tail\" %y: f32[1,2,1] = Add(%p, %b) \"bias\" output %y";
    for text in [text, nodes] {
        let bias = |by: Quantize| {
            let (after, _) = Pipeline::new(vec![Pass::sweep(QuantizeLayers(by))])
                .run(graph(text), &Options::default())
                .unwrap();
            let floats = after.values().filter_map(|(_, value)| {
                value.constant().filter(|t| t.shape() == [1] && t.dtype() == DType::F32)
            });
            floats.map(|tensor| tensor.to_f64s()[0]).filter(|number| *number > 0.5).last().unwrap()
        };
        assert!((bias(by.clone()) - 0.96).abs() < 1e-6, "{}", bias(by.clone()));
        assert_eq!(bias(Quantize { correct_biases: false, ..by.clone() }), 1.0);
        assert_eq!(bias(Quantize { channels: HashMap::new(), ..by.clone() }), 1.0);
    }
}

#[test]
fn attention_reads_what_one_product_makes_by_floats_of_8_bits() {
    let weights: Vec<String> = (0..16 * 48).map(|i| format!("{}", i % 5)).collect();
    let text = format!(
        "input %x: f32[1,3,16] const %w: f32[16,48] = [{}] const %v: f32[16,16] = [{}] \
         %qkv: f32[1,3,48] = MatMul(%x, %w) \"in\" %q: f32[1,3,16], %k: f32[1,3,16], %u: f32[1,3,16] = Split(%qkv) {{axis=2, num_outputs=3}} \
         %a: f32[1,3,16] = Attention(%q, %k, %u) {{q_num_heads=1, kv_num_heads=1}} \"attend\" \
         %y: f32[1,3,16] = MatMul(%a, %v) \"tail\" output %y",
        weights.join(","),
        weights[..256].join(",")
    );
    let ranges = [("x", -1.0, 1.0), ("qkv", -4.0, 2.0), ("a", -1.0, 1.0)];
    let low = || Quantize { activations: DType::F8E4M3FN, correct_biases: false, ..options(&ranges) };
    check_nodes(
        low(),
        &text,
        expect![[r#"
        x.quantize = QuantizeLinear(x) by 0.0022 from 0
        x.dequantize = DequantizeLinear(x.quantize)
        qkv = MatMul(x.dequantize, w.dequantize)
        q, k, u = Split(qkv)
        q.quantize = QuantizeLinear(q) by 0.0089 from 0
        q.dequantize = DequantizeLinear(q.quantize)
        k.quantize = QuantizeLinear(k) by 0.0089 from 0
        k.dequantize = DequantizeLinear(k.quantize)
        u.quantize = QuantizeLinear(u) by 0.0089 from 0
        u.dequantize = DequantizeLinear(u.quantize)
        a = Attention(q.dequantize, k.dequantize, u.dequantize)
        a.quantize = QuantizeLinear(a) by 0.0022 from 0
        a.dequantize = DequantizeLinear(a.quantize)
        y = MatMul(a.dequantize, v.dequantize)
    "#]],
    );
    // Where it was measured to be no faster, or nothing is known of what it reads, it reads floats.
    let wide = Quantize { wide_layers: vec!["attend".to_string()], ..low() };
    let unknown = Quantize { ranges: options(&[("x", -1.0, 1.0), ("a", -1.0, 1.0)]).ranges, ..low() };
    let imprecise = Quantize { imprecise_nodes: vec!["attend".to_string()], ..low() };
    for by in [wide, unknown, imprecise] {
        assert!(shown(by, &text).0.contains("a = Attention(q, k, u)"));
    }
}

#[test]
fn nodes_that_a_calibration_names_read_floats() {
    let text = format!(
        "{WEIGHTS}{OTHERS}input %x: f32[1,4,8,8] {}{}%s: f32[1,4,8,8] = Add(%b, %x) \"sum\" \
         %y: f32[1,4,8,8] = Conv(%s, %u) \"tail\" output %y",
        conv("a", "x", "first"),
        conv("b", "a", "second")
    );
    let ranges = [("x", -1.0, 1.0), ("a", -1.0, 1.0), ("b", -1.0, 1.0), ("s", -1.0, 1.0)];
    let by = || Quantize { imprecise_nodes: vec!["second".to_string()], ..options(&ranges) };
    check_nodes(
        by(),
        &text,
        expect![[r#"
        x.quantize = QuantizeLinear(x) by 0.0079 from 128
        x.dequantize = DequantizeLinear(x.quantize)
        a = Conv(x.dequantize, w.dequantize)
        b = Conv(a)
        s = Add(b, x.dequantize)
        s.quantize = QuantizeLinear(s) by 0.0079 from 128
        s.dequantize = DequantizeLinear(s.quantize)
        y = Conv(s.dequantize, u.dequantize)
        refused at second: the calibration measured that 8 bits cost too much there
    "#]],
    );
    // Who asks for integers by name gets them.
    let asked = Quantize { int8_layers: vec!["sec*".to_string()], ..by() };
    assert!(shown(asked, &text).0.contains("b = Conv(a.dequantize"));
}
