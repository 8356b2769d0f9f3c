//! Quantization as a whole: a float model becomes one of integers, and these stay integers from layer to layer.

use std::collections::HashMap;

use planish_ir::{Graph, Node, ValueId, interpret, interpret_with};
use planish_op::{Limits, Op, Value};
use planish_passes::{
    ActivationRange, IntegerKernels, IntegerShare, Options, Quantize, dequantize_weights, integers, quantize,
};
use planish_tensor::{DType, Tensor};
use planish_testing::Random;

/// What the outputs of the quantized model may be from those of the floats, relative to their norm: a handful of layers
/// round to 8 bits, each by a hundredth or so.
const QUANTIZED: f64 = 5e-2;
/// Integers of one number or the other, where sums of floats are taken in another order.
const SAME: f64 = 1e-6;

fn weights(random: &mut Random, count: usize) -> String {
    let numbers: Vec<String> = (0..count).map(|_| format!("{:.3}", random.unit() - 0.5)).collect();
    numbers.join(", ")
}

/// A residual block with a pool before it, a branch that is concatenated and a head.
fn model() -> Graph {
    let mut random = Random::new(5);
    let mut layer = |name: &str, out: usize, channels: usize, kernel: usize| {
        let count = out * channels * kernel * kernel;
        format!(
            "const %{name}: f32[{out},{channels},{kernel},{kernel}] = [{}]\n",
            weights(&mut random, count)
        )
    };
    let constants = [
        layer("w0", 8, 3, 3),
        layer("w1", 8, 8, 3),
        layer("w2", 8, 8, 1),
        layer("w3", 4, 16, 1),
        layer("w4", 4, 4, 1),
    ];
    let text = format!(
        r#"graph "g" {{
        input %x: f32[1,3,16,16]
        {}
        %c0: f32[1,8,16,16] = Conv(%x, %w0) {{pads=[1,1,1,1]}} "first"
        %r0: f32[1,8,16,16] = Relu(%c0) "r0"
        %p: f32[1,8,8,8] = MaxPool(%r0) {{kernel_shape=[2,2], strides=[2,2]}} "pool"
        %c1: f32[1,8,8,8] = Conv(%p, %w1) {{pads=[1,1,1,1]}} "c1"
        %s: f32[1,8,8,8] = Add(%c1, %p) "sum"
        %r1: f32[1,8,8,8] = Relu(%s) "r1"
        %c2: f32[1,8,8,8] = Conv(%r1, %w2) "c2"
        %r2: f32[1,8,8,8] = Relu(%c2) "r2"
        %k: f32[1,16,8,8] = Concat(%r1, %r2) {{axis=1}} "k"
        %c3: f32[1,4,8,8] = Conv(%k, %w3) "c3"
        %t: f32[1,4,8,8] = Transpose(%c3) {{perm=[0,1,3,2]}} "t"
        %c4: f32[1,4,8,8] = Conv(%t, %w4) "c4"
        %y: f32[1,4,8,8] = Softmax(%c4) {{axis=1}} "y"
        output %y
        }}"#,
        constants.concat()
    );
    text.parse().unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn input(seed: u64) -> Vec<Value> {
    let mut random = Random::new(seed);
    let numbers: Vec<f32> = (0..3 * 256).map(|_| 2.0 * random.unit() as f32 - 1.0).collect();
    vec![Tensor::new(&[1, 3, 16, 16], numbers).unwrap().into()]
}

/// The ranges that the values of a graph take on a few inputs.
fn ranges(graph: &Graph) -> HashMap<String, ActivationRange> {
    let mut ranges: HashMap<String, ActivationRange> = HashMap::new();
    for seed in 1..=4 {
        let mut see = |node: &Node, values: &[Option<&Value>]| {
            let (Some(id), Some(Value::Tensor(tensor))) = (node.outputs[0], values[0]) else { return };
            let values = tensor.to_f64s();
            let (min, max) = values
                .iter()
                .fold((f64::MAX, f64::MIN), |(low, high), &value| (low.min(value), high.max(value)));
            let range = ranges.entry(graph.value(id).name.to_string()).or_insert(ActivationRange {
                min: f32::MAX,
                max: f32::MIN,
                threshold: 0.0,
            });
            range.min = range.min.min(min as f32);
            range.max = range.max.max(max as f32);
            range.threshold = range.threshold.max(max.abs().max(min.abs()) as f32);
        };
        interpret_with(graph, input(seed), &Limits::default(), &mut see).unwrap();
    }
    ranges
}

fn quantized(graph: &Graph, activations: DType) -> Graph {
    let pipeline = quantize(Quantize {
        kernels: IntegerKernels::ANY,
        channels: Default::default(),
        correct_biases: false,
        ranges: ranges(graph),
        activations,
        weight_range: planish_passes::WeightRange::Full,
        fp32_layers: Vec::new(),
        int8_layers: vec!["c4".to_string()],
        wide_layers: Vec::new(),
        imprecise_nodes: Vec::new(),
    });
    pipeline.run(graph.clone(), &Options { verify_each: true, ..Options::default() }).unwrap().0
}

fn distance(one: &Graph, other: &Graph) -> f64 {
    let numbers = |graph: &Graph| interpret(graph, input(9)).unwrap()[0].as_tensor().unwrap().to_f64s();
    let (one, other) = (numbers(one), numbers(other));
    let norm: f64 = other.iter().map(|value| value * value).sum();
    let error: f64 = one.iter().zip(&other).map(|(a, b)| (a - b).powi(2)).sum();
    (error / norm).sqrt()
}

fn dtype(graph: &Graph, node: &Node, place: usize) -> DType {
    graph.value(node.inputs[place].unwrap()).ty.as_tensor().unwrap().dtype
}

#[test]
fn chains_of_layers_stay_in_integers() {
    let model = model();
    for activations in [DType::U8, DType::I8] {
        let quantized = quantized(&model, activations);
        let share = IntegerShare::of(&quantized, &|_| None);
        // The first layer reads 3 channels, the last is asked for by name.
        assert_eq!((share.n_integer, share.n_layers), (4, 5));
        assert!(distance(&quantized, &model) < QUANTIZED, "{}", distance(&quantized, &model));
        let arranged = integers(activations)
            .run(quantized.clone(), &Options { verify_each: true, ..Options::default() });
        let arranged = arranged.unwrap().0;
        assert!(distance(&arranged, &quantized) <= SAME);
        assert_eq!(IntegerShare::of(&arranged, &|_| None), share);
        let mut n_readers: HashMap<ValueId, usize> = HashMap::new();
        for (_, node) in arranged.nodes() {
            let mut inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
            inputs.dedup();
            inputs.into_iter().for_each(|id| *n_readers.entry(id).or_default() += 1);
            match &node.op {
                Op::MaxPool(_) | Op::Concat(_) | Op::Transpose(_) => {
                    assert_eq!(dtype(&arranged, node, 0), activations, "{}", node.name);
                }
                // Only in u8 does the smallest integer stand for 0.
                Op::Relu(_) => assert_eq!(activations, DType::I8, "{}", node.name),
                _ => {}
            }
        }
        for (_, node) in arranged.nodes().filter(|(_, node)| matches!(node.op, Op::DequantizeLinear(_))) {
            assert_eq!(n_readers[&node.outputs[0].unwrap()], 1, "{}", node.name);
        }
    }
}

#[test]
fn integers_of_one_device_are_those_of_the_other() {
    let quantized = quantized(&model(), DType::I8);
    let (arranged, _) = integers(DType::U8).run(quantized.clone(), &Options::default()).unwrap();
    assert!(distance(&arranged, &quantized) <= SAME);
    for (_, node) in arranged.nodes() {
        if let Op::QuantizeLinear(_) = node.op {
            assert_eq!(arranged.value(node.outputs[0].unwrap()).ty.as_tensor().unwrap().dtype, DType::U8);
        }
    }
}

#[test]
fn without_integer_kernels_weights_are_floats_and_activations_are_rounded() {
    let quantized = quantized(&model(), DType::U8);
    let (floats, _) = dequantize_weights().run(quantized.clone(), &Options::default()).unwrap();
    assert_eq!(distance(&floats, &quantized), 0.0);
    assert_eq!(IntegerShare::of(&floats, &|_| None).n_integer, 0);
    assert!(floats.nodes().any(|(_, node)| matches!(node.op, Op::QuantizeLinear(_))));
}
