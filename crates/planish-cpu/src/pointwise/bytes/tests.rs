//! Quantization against the reference, byte by byte: ties and what lies beside them, odd scales, tables.

use planish_kernel::Problem;
use planish_kernel::pointwise::Program;
use planish_op as op;
use planish_op::Op;
use planish_tensor::{DType, Tensor};
use planish_testing::{Placement, Random, Tolerance, constant, input, node, region};

use super::super::family::PointwiseFamily;
use super::super::steps::compile;
use crate::trial;

/// Bytes are the reference's own.
const SAME: Tolerance = Tolerance::absolute(0.0);

fn quantize(output_dtype: Option<DType>) -> Op {
    op::QuantizeLinear { precision: None, output_dtype, block_size: 0, saturate: true, axis: 1 }.into()
}

fn dequantize() -> Op {
    op::DequantizeLinear { output_dtype: None, block_size: 0, axis: 1 }.into()
}

fn problem(region: &planish_kernel::Region, inputs: &[Tensor]) -> Problem {
    Placement::ALL[0].problem(region, inputs).0
}

/// Ties between two bytes, and the numbers right beside them.
fn ties(scale: f32) -> Vec<f32> {
    let beside = |x: f32| [x.next_down(), x, x.next_up()];
    (-400..400).flat_map(|k| beside((k as f32 + 0.5) * scale)).collect()
}

#[test]
fn ties_are_rounded_as_quotients_are() {
    for scale in [0.037f32, 1.0, 0.5, 3.3e-5, 1234.5, 1e-40, 3e38, f32::MIN_POSITIVE] {
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-45, 3e38];
        let x: Vec<f32> = ties(scale).into_iter().chain(odd).collect();
        let constants = |zero: Tensor| vec![Tensor::scalar(scale), zero];
        for (zero, n) in
            [(Tensor::scalar(3u8), x.len()), (Tensor::scalar(-5i8), 1999), (Tensor::scalar(255u8), 65)]
        {
            let region =
                region(1, constants(zero), vec![(quantize(None), vec![input(0), constant(0), constant(1)])]);
            let x = Tensor::vector(x[x.len() - n..].to_vec());
            trial::check(&PointwiseFamily, &region, &[x], SAME);
        }
        for n in [1, 15, 16, 17, 63, 64, 65, 127, 700] {
            let without = vec![(quantize(Some(DType::I8)), vec![input(0), constant(0)])];
            let region = region(1, vec![Tensor::scalar(scale)], without);
            trial::check(&PointwiseFamily, &region, &[Tensor::vector(x[1000..1000 + n].to_vec())], SAME);
        }
    }
}

#[test]
fn quantization_is_one_step_each_way() {
    let mut random = Random::new(5);
    let constants = vec![Tensor::scalar(0.0371f32), Tensor::scalar(7u8), Tensor::scalar(0.0113f32)];
    let to = region(1, constants.clone(), vec![(quantize(None), vec![input(0), constant(0), constant(1)])]);
    let back = region(1, constants.clone(), vec![(dequantize(), vec![input(0), constant(0), constant(1)])]);
    let sum = region(
        2,
        constants,
        vec![
            (dequantize(), vec![input(0), constant(0), constant(1)]),
            (dequantize(), vec![input(1), constant(2)]),
            (op::Add {}.into(), vec![node(0), node(1)]),
            (quantize(None), vec![node(2), constant(0), constant(1)]),
        ],
    );
    let floats = random.tensor(DType::F32, &[3, 37], 9.0);
    let bytes = [random.whole(DType::U8, &[3, 37], 0, 255), random.whole(DType::I8, &[3, 37], -128, 127)];
    let cases = [(to, vec![floats], 1), (back, bytes[..1].to_vec(), 1), (sum, bytes.to_vec(), 4)];
    for (region, inputs, n_steps) in cases {
        let program = Program::of_problem(&problem(&region, &inputs)).unwrap();
        assert!(compile(&program).len() <= n_steps, "{:?}", compile(&program));
        trial::check(&PointwiseFamily, &region, &inputs, SAME);
    }
}

#[test]
fn functions_from_byte_to_byte_are_tables() {
    let functions: [Op; 4] = [
        op::Sigmoid {}.into(),
        op::HardSwish {}.into(),
        op::Relu {}.into(),
        op::LeakyRelu { alpha: 0.1 }.into(),
    ];
    for function in functions {
        for (dtype, zero, lo) in
            [(DType::U8, Tensor::scalar(131u8), 0), (DType::I8, Tensor::scalar(-9i8), -128)]
        {
            let constants = vec![Tensor::scalar(0.0613f32), zero, Tensor::scalar(0.0171f32)];
            let nodes = vec![
                (dequantize(), vec![input(0), constant(0), constant(1)]),
                (function.clone(), vec![node(0)]),
                (quantize(None), vec![node(1), constant(2), constant(1)]),
            ];
            let region = region(1, constants, nodes);
            let all: Vec<i64> = (0..256).map(|byte| lo + byte).collect();
            // Every byte, lengths about the widest vector, and a single one.
            for n in [256, 1, 63, 64, 65, 130] {
                let x = Tensor::from_i64s(dtype, &[n], &all[256 - n..]).unwrap();
                let program = Program::of_problem(&problem(&region, std::slice::from_ref(&x))).unwrap();
                assert_eq!(compile(&program).len(), 1, "{}", function.name());
                trial::check(&PointwiseFamily, &region, &[x], SAME);
            }
        }
    }
}
