//! Programs against the reference: every operator, shapes that broadcast, strided operands, blocks.

use planish_kernel::pointwise::{Epilogue, Program};
use planish_kernel::{Budget, Layout, Ref, Region};
use planish_op as op;
use planish_op::Op;
use planish_tensor::{DType, Tensor};
use planish_testing::problems::pointwise::plain;
use planish_testing::{
    Fenced, Placed, Placement, Random, Tolerance, assert_close, constant, input, node, region,
};

use super::Pointwise;
use super::family::PointwiseFamily;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::trial;

/// Programs of a few operators, each within the budgets of `vecmath`: some 30 ULPs.
const FUSED: Tolerance = Tolerance { relative: 4e-6, absolute: 1e-6 };

/// One operator of arithmetic is rounded once.
const ONE_ROUNDING: Tolerance = Tolerance { relative: 6e-8, absolute: 1e-45 };

#[test]
fn every_operator_of_one_float() {
    let mut numbers = Random::new(1);
    let ops: Vec<Op> = Op::unary_of(DType::F32).chain([op::Identity {}.into()]).collect();
    for op in &ops {
        let x = match op.name() {
            "Acosh" => Tensor::vector((0..70).map(|_| 2.0 + numbers.real(1.0)).collect()),
            "Log" | "Sqrt" => Tensor::vector((0..70).map(|_| 1.01 + numbers.real(1.0)).collect()),
            "Acos" | "Asin" | "Atanh" => numbers.tensor(DType::F32, &[70], 0.95),
            _ => numbers.tensor(DType::F32, &[70], 4.0),
        };
        let one = region(1, vec![], vec![(op.clone(), vec![input(0)])]);
        trial::check(&PointwiseFamily, &one, &[x], FUSED);
    }
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, 1e-45, -1e-45];
    for op in ops {
        let one = region(1, vec![], vec![(op, vec![input(0)])]);
        trial::check(&PointwiseFamily, &one, &[Tensor::vector(odd.to_vec())], FUSED);
    }
}

#[test]
fn every_operator_of_two_with_special_values() {
    let values = [1.5f32, -2.25, 0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3.0];
    let a: Vec<f32> = values.iter().flat_map(|&a| values.map(|_| a)).collect();
    let b: Vec<f32> = values.iter().flat_map(|_| values).collect();
    let pair = [Tensor::vector(a), Tensor::vector(b)];
    for name in [
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Min",
        "Max",
        "Sum",
        "Mean",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "PRelu",
    ] {
        let two = region(2, vec![], vec![(plain(name), vec![input(0), input(1)])]);
        trial::check(&PointwiseFamily, &two, &pair, ONE_ROUNDING);
    }
    let fmod = Op::from(op::Mod { fmod: true });
    trial::check(
        &PointwiseFamily,
        &region(2, vec![], vec![(fmod, vec![input(0), input(1)])]),
        &pair,
        ONE_ROUNDING,
    );
}

#[test]
fn powers_by_constants_are_those_of_the_reference() {
    let values = vec![1.5f32, -2.25, 0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3.0, 1e-40, 1e30];
    for power in [0.0f32, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 2.5, -3.0] {
        for exponent in [Tensor::scalar(power), Tensor::new(&[1], vec![power]).unwrap()] {
            let one = region(1, vec![exponent], vec![(op::Pow {}.into(), vec![input(0), constant(0)])]);
            let x = Tensor::vector(values.clone());
            trial::check(&PointwiseFamily, &one, &[x], Tolerance { relative: 2e-7, ..ONE_ROUNDING });
        }
    }
}

/// Quantizing divides, rounds and saturates as the reference does, so the bytes are the same; what is dequantized
/// again is rounded once.
#[test]
fn quantized_values_are_the_references() {
    let mut numbers = Random::new(11);
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.25, 0.75, -0.25, 1e30, -1e30];
    for zero in [Tensor::scalar(128u8), Tensor::scalar(-3i8)] {
        let quantize = op::QuantizeLinear {
            precision: None,
            output_dtype: None,
            block_size: 0,
            saturate: true,
            axis: 1,
        };
        let dequantize = op::DequantizeLinear { output_dtype: None, block_size: 0, axis: 1 };
        let scale = Tensor::scalar(0.5f32);
        let to = (Op::from(quantize.clone()), vec![input(0), constant(0), constant(1)]);
        let back = (Op::from(dequantize.clone()), vec![node(0), constant(0), constant(1)]);
        let one = region(1, vec![scale.clone(), zero.clone()], vec![to.clone()]);
        let both = region(1, vec![scale.clone(), zero.clone()], vec![to, back]);
        for x in [numbers.tensor(DType::F32, &[3, 37], 90.0), Tensor::vector(odd.to_vec())] {
            trial::check(&PointwiseFamily, &one, std::slice::from_ref(&x), ONE_ROUNDING);
            trial::check(&PointwiseFamily, &both, &[x], ONE_ROUNDING);
        }
        // One scale for each channel, along axis 1 and along the last axis.
        for (axis, dims) in [(1, vec![2, 5, 3, 4]), (-1, vec![2, 3, 5])] {
            let per_channel = op::DequantizeLinear { output_dtype: None, block_size: 0, axis };
            let zeros = Tensor::from_i64s(zero.dtype(), &[5], &[1, 2, 3, 4, 5]).unwrap();
            let scales = Tensor::vector(vec![0.5f32, 0.1, 2.0, 1e-3, 7.0]);
            let region =
                region(2, vec![zeros], vec![(per_channel.into(), vec![input(0), input(1), constant(0)])]);
            let x = numbers.tensor(zero.dtype(), &dims, 100.0);
            trial::check(&PointwiseFamily, &region, &[x, scales], ONE_ROUNDING);
        }
    }
}

#[test]
fn integers_and_booleans_wrap_and_compare() {
    let mut numbers = Random::new(2);
    for dtype in [DType::I32, DType::I64] {
        let big = Tensor::from_i64s(dtype, &[4], &[i64::MAX, i64::MIN, -7, 7]).unwrap();
        let pair = [numbers.tensor(dtype, &[3, 5], 40.0), numbers.tensor(dtype, &[3, 5], 40.0)];
        for name in
            ["Add", "Sub", "Mul", "Min", "Max", "Equal", "Less", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]
        {
            let two = region(2, vec![], vec![(plain(name), vec![input(0), input(1)])]);
            trial::check(&PointwiseFamily, &two, &pair, ONE_ROUNDING);
            trial::check(&PointwiseFamily, &two, &[big.clone(), big.clone()], ONE_ROUNDING);
        }
        for name in ["Abs", "Neg", "Sign", "BitwiseNot", "Relu"] {
            let one = region(1, vec![], vec![(plain(name), vec![input(0)])]);
            trial::check(&PointwiseFamily, &one, &pair[..1], ONE_ROUNDING);
            trial::check(&PointwiseFamily, &one, std::slice::from_ref(&big), ONE_ROUNDING);
        }
        for divisor in [3, -4, -1] {
            let divisor = Tensor::from_i64s(dtype, &[], &[divisor]).unwrap();
            for fmod in [false, true] {
                let of = |op| region(1, vec![divisor.clone()], vec![(op, vec![input(0), constant(0)])]);
                let modulo = of(op::Mod { fmod }.into());
                trial::check(&PointwiseFamily, &modulo, &pair[..1], ONE_ROUNDING);
                trial::check(&PointwiseFamily, &of(op::Div {}.into()), &pair[..1], ONE_ROUNDING);
            }
        }
    }
    let pair = [numbers.tensor(DType::Bool, &[40], 1.0), numbers.tensor(DType::Bool, &[40], 1.0)];
    for name in ["And", "Or", "Xor", "Equal"] {
        let two = region(2, vec![], vec![(plain(name), vec![input(0), input(1)])]);
        trial::check(&PointwiseFamily, &two, &pair, ONE_ROUNDING);
    }
    trial::check(
        &PointwiseFamily,
        &region(1, vec![], vec![(op::Not {}.into(), vec![input(0)])]),
        &pair[..1],
        FUSED,
    );
}

#[test]
fn casts_among_all_kinds() {
    let kinds = [DType::F32, DType::I32, DType::I64, DType::Bool];
    let floats =
        vec![0.0, -0.0, 0.9, -0.9, 3e9, -3e9, 1e20, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -5.5];
    let ints = [0, 1, -1, 200, 1 << 40, i64::MAX, i64::MIN, (1 << 24) + 1];
    for from in kinds {
        let x = match from {
            DType::F32 => Tensor::vector(floats.clone()),
            _ => Tensor::from_i64s(from, &[ints.len()], &ints).unwrap(),
        };
        for to in kinds {
            let op = op::Cast { round_mode: planish_op::CastRounding::Up, saturate: true, to };
            trial::check(
                &PointwiseFamily,
                &region(1, vec![], vec![(op.into(), vec![input(0)])]),
                std::slice::from_ref(&x),
                FUSED,
            );
        }
    }
}

/// Shapes that broadcast: scalars, channels in both layouts, outer and inner vectors, rows at the edges of
/// chunks and vectors, empty ones.
#[test]
fn broadcasting_in_every_lie() {
    let mut numbers = Random::new(3);
    let shapes: &[(&[usize], &[usize])] = &[
        (&[], &[]),
        (&[7], &[]),
        (&[1, 1, 1, 1], &[5]),
        (&[2, 3, 4, 5], &[3, 1, 1]),
        (&[2, 3, 4, 5], &[1, 3, 1, 1]),
        (&[1, 17, 3, 3], &[17, 1, 1]),
        (&[2, 64, 7, 7], &[64, 1, 1]),
        (&[1, 300, 2, 3], &[300, 1, 1]),
        (&[2, 5, 300], &[300]),
        (&[2, 5, 300], &[5, 1]),
        (&[2, 3, 255], &[3, 255]),
        (&[2, 3, 257], &[2, 1, 257]),
        (&[3, 2, 20, 30], &[2, 1, 30]),
        (&[3, 2, 20, 30], &[20, 1]),
        (&[5, 1, 7], &[6, 1]),
        (&[2, 0, 4], &[4]),
        (&[1, 3, 0, 0], &[3, 1, 1]),
        (&[4099], &[4099]),
        (&[3, 1025, 3], &[3, 1025, 3]),
    ];
    let program = region(
        2,
        vec![Tensor::scalar(0.5f32)],
        vec![
            (op::Mul {}.into(), vec![input(0), constant(0)]),
            (op::Add {}.into(), vec![node(0), input(1)]),
            (op::Relu {}.into(), vec![node(1)]),
            (op::Sub {}.into(), vec![input(1), node(2)]),
        ],
    );
    for (left, right) in shapes {
        let inputs = [numbers.tensor(DType::F32, left, 2.0), numbers.tensor(DType::F32, right, 2.0)];
        trial::check(&PointwiseFamily, &program, &inputs, FUSED);
        trial::check(&PointwiseFamily, &program, &[inputs[1].clone(), inputs[0].clone()], FUSED);
    }
}

#[test]
fn values_read_twice_and_chosen() {
    let mut numbers = Random::new(4);
    let program = region(
        3,
        vec![Tensor::scalar(f32::NEG_INFINITY), Tensor::vector(vec![1f32, 2.0, 3.0])],
        vec![
            (op::Where {}.into(), vec![input(2), input(0), constant(0)]),
            (op::Exp {}.into(), vec![node(0)]),
            (op::Sigmoid {}.into(), vec![input(1)]),
            (op::Mul {}.into(), vec![input(1), node(2)]),
            (op::Add {}.into(), vec![node(1), node(3)]),
            (op::Mul {}.into(), vec![node(4), node(3)]),
            (op::Mul {}.into(), vec![node(5), constant(1)]),
        ],
    );
    for n in [1, 5, 100, 700] {
        let inputs = [
            numbers.tensor(DType::F32, &[n, 3], 2.0),
            numbers.tensor(DType::F32, &[n, 3], 2.0),
            numbers.tensor(DType::Bool, &[n, 1], 1.0),
        ];
        trial::check(&PointwiseFamily, &program, &inputs, FUSED);
    }
}

#[test]
fn batch_normalization_is_a_program() {
    let mut numbers = Random::new(5);
    let op = plain("BatchNormalization");
    let program = region(5, vec![], vec![(op, (0..5).map(input).collect())]);
    let positive = |t: Tensor| {
        let values: Vec<f32> = t.to_f64s().into_iter().map(|x| x.abs() as f32 + 0.1).collect();
        Tensor::new(t.shape(), values).unwrap()
    };
    for dims in [&[2, 19, 5, 7][..], &[3, 8], &[1, 300, 3]] {
        let mut vector = || numbers.tensor(DType::F32, &dims[1..2], 1.0);
        let (scale, bias, mean, variance) = (vector(), vector(), vector(), positive(vector()));
        let x = numbers.tensor(DType::F32, dims, 3.0);
        trial::check(&PointwiseFamily, &program, &[x, scale, bias, mean, variance], FUSED);
    }
}

#[test]
fn results_may_replace_an_input() {
    let mut numbers = Random::new(6);
    let program = region(
        2,
        vec![],
        vec![(op::Add {}.into(), vec![input(0), input(1)]), (op::Tanh {}.into(), vec![node(0)])],
    );
    let inputs = [numbers.tensor(DType::F32, &[3, 1000], 2.0), numbers.tensor(DType::F32, &[1000], 2.0)];
    for placement in Placement::ALL {
        let (problem, want) = placement.problem(&program, &inputs);
        for isa in Isa::available() {
            let candidate =
                &crate::family::Family::candidates(&PointwiseFamily, isa, &problem, &Budget::USUAL)[0];
            assert_eq!(candidate.in_place, [(0, 0)]);
            let work =
                crate::family::Family::prepare(&PointwiseFamily, isa, &problem, &candidate.tactic).unwrap();
            let mut x = Placed::new(&inputs[0], &problem.inputs[0]);
            let y = Placed::new(&inputs[1], &problem.inputs[1]);
            let mut workspace = Fenced::workspace(work.workspace_bytes(1));
            let to = [x.mut_ptr()];
            let from = [to[0].cast_const(), y.ptr()];
            // SAFETY: the memories span what the operands do, and the candidate allows the overlap.
            unsafe {
                work.run(Shared::new(&from, &to, workspace.mut_ptr()), &crate::team::Team::alone()).unwrap()
            };
            assert_close(&x.tensor(), &want[0], FUSED, "in place");
        }
    }
}

/// The tail of a product: `silu(x) * scale + residual` over blocks of a matrix, in both layouts.
#[test]
fn epilogues_run_over_blocks() {
    let mut numbers = Random::new(7);
    for (rows, cols, step_rows, step_cols) in
        [(37, 300, 10, 300), (70, 53, 32, 16), (5, 1, 2, 1), (3, 2000, 1, 999)]
    {
        // A matrix product whose first operand is a column of ones: the running value is the second.
        let program = region(
            4,
            vec![],
            vec![
                (op::MatMul {}.into(), vec![input(0), input(1)]),
                (op::Sigmoid {}.into(), vec![node(0)]),
                (op::Mul {}.into(), vec![node(0), node(1)]),
                (op::Mul {}.into(), vec![node(2), input(2)]),
                (op::Add {}.into(), vec![node(3), input(3)]),
            ],
        );
        let inputs = [
            numbers.tensor(DType::F32, &[rows, 1], 3.0),
            numbers.tensor(DType::F32, &[1, cols], 3.0),
            numbers.tensor(DType::F32, &[cols], 2.0),
            numbers.tensor(DType::F32, &[rows, cols], 2.0),
        ];
        for placement in [Placement::ALL[0], Placement::ALL[1]] {
            let (problem, want) = placement.problem(&program, &inputs);
            let rest = Epilogue::of(&problem, 0).unwrap().program.unwrap();
            let product = region(2, vec![], vec![(op::MatMul {}.into(), vec![input(0), input(1)])]);
            let (_, sums) = placement.problem(&product, &inputs[..2]);
            for isa in Isa::available() {
                let plan = Pointwise::for_blocks(isa, &problem, &rest, &[0], &[1]).unwrap();
                let mut out = Placed::new(&sums[0], &problem.outputs[0]);
                let from: Vec<Placed> =
                    inputs.iter().zip(&problem.inputs).map(|(t, at)| Placed::new(t, at)).collect();
                let pointers: Vec<*const u8> = from.iter().map(Placed::ptr).collect();
                let mut workspace = Fenced::workspace(plan.workspace_bytes());
                assert!(workspace.bytes().len() < 64 * 1024);
                let stride = problem.outputs[0].strides[0];
                for row in (0..rows).step_by(step_rows) {
                    for col in (0..cols).step_by(step_cols) {
                        let (to_row, to_col) = ((row + step_rows).min(rows), (col + step_cols).min(cols));
                        // SAFETY: the block lies in the output, the memories span what the operands do.
                        unsafe {
                            let block = out.mut_ptr().cast::<f32>().add(row * stride + col);
                            let workspace = workspace.mut_ptr();
                            plan.run_block(&pointers, block, stride, row..to_row, col..to_col, workspace);
                        }
                    }
                }
                assert_close(&out.tensor(), &want[0], FUSED, &format!("blocks on {isa}"));
            }
        }
    }
}

#[test]
fn random_programs_over_random_shapes() {
    let mut numbers = Random::new(8);
    let unary = ["Relu", "Tanh", "Neg", "Abs", "HardSwish", "Sigmoid", "Floor", "Sin"];
    let binary = ["Add", "Sub", "Mul", "Max", "Min"];
    for _ in 0..60 {
        let rank = 1 + numbers.below(4);
        let dims: Vec<usize> = (0..rank).map(|_| [1, 2, 3, 5, 8, 17, 33][numbers.below(7)]).collect();
        let n_inputs = 1 + numbers.below(3);
        let inputs: Vec<Tensor> = (0..n_inputs)
            .map(|idx| {
                let keep = numbers.below(rank + 1);
                let mut own = dims[if idx == 0 { 0 } else { keep }..].to_vec();
                own.iter_mut().for_each(|dim| *dim = if idx > 0 && numbers.below(3) == 0 { 1 } else { *dim });
                numbers.tensor(DType::F32, &own, 1.5)
            })
            .collect();
        let mut values: Vec<Option<Ref>> = (0..n_inputs as u32).map(input).collect();
        let mut nodes: Vec<(Op, Vec<Option<Ref>>)> = Vec::new();
        for idx in 0..1 + numbers.below(8) as u32 {
            let last = *values.last().unwrap();
            let other = values[numbers.below(values.len())];
            nodes.push(match numbers.below(2) {
                0 => (plain(unary[numbers.below(unary.len())]), vec![last]),
                _ => (plain(binary[numbers.below(binary.len())]), vec![last, other]),
            });
            values.push(node(idx));
        }
        // The output must have the full shape: the first input is added last.
        let last = *values.last().unwrap();
        nodes.push((op::Add {}.into(), vec![last, input(0)]));
        let program: Region = region(n_inputs as u32, vec![], nodes);
        trial::check(&PointwiseFamily, &program, &inputs, Tolerance { relative: 1e-5, absolute: 1e-5 });
    }
}

#[test]
fn tasks_cover_everything_and_hang_on_sizes_alone() {
    let mut numbers = Random::new(9);
    let program = region(1, vec![], vec![(op::Exp {}.into(), vec![input(0)])]);
    let inputs = [numbers.tensor(DType::F32, &[7, 40_000], 2.0)];
    let (mut problem, _) = Placement::ALL[0].problem(&program, &inputs);
    let code = Program::of_problem(&problem).unwrap();
    let n_tasks =
        |problem: &planish_kernel::Problem| Pointwise::new(Isa::best(), problem, &code).unwrap().n_tasks();
    let with_two = n_tasks(&problem);
    problem.threads = 7;
    assert_eq!(n_tasks(&problem), with_two);
    assert!(with_two > 2, "280,000 exponentials are more than two tasks");
    assert_eq!(Placement::ALL[0].layout, Layout::Plain);
    trial::check(&PointwiseFamily, &program, &inputs, FUSED);
}

/// Kernels of f32 must never be handed f16 or bf16 elements: none may offer itself but the reference and `typed`, which
/// knows all types.
#[test]
fn half_operands_are_for_kernels_that_know_them() {
    use planish_kernel::Compiler;
    let half = |region: &Region, inputs: &[Tensor]| {
        let (mut problem, _) = Placement::ALL[0].problem(region, inputs);
        for dtype in [DType::F16, DType::BF16] {
            problem.inputs.iter_mut().chain(&mut problem.outputs).for_each(|operand| operand.dtype = dtype);
            for candidate in crate::Cpu::new().candidates(&problem, &Budget::USUAL) {
                let knows_it = candidate.slow || candidate.tactic.name.starts_with("typed_");
                assert!(knows_it, "{} of {dtype}", candidate.tactic);
            }
        }
    };
    let mut numbers = Random::new(11);
    let square = numbers.tensor(DType::F32, &[8, 8], 1.0);
    let vector = numbers.tensor(DType::F32, &[8], 1.0);
    let two = [square.clone(), square.clone()];
    half(&region(2, vec![], vec![(op::Add {}.into(), vec![input(0), input(1)])]), &two);
    let fused = vec![
        (op::MatMul {}.into(), vec![input(0), input(1)]),
        (op::Add {}.into(), vec![node(0), input(2)]),
        (op::Relu {}.into(), vec![node(1)]),
    ];
    half(&region(3, vec![], fused), &[square.clone(), square.clone(), vector.clone()]);
    let norm = op::LayerNormalization { axis: -1, epsilon: 1e-5, stash_type: 1 };
    half(&region(2, vec![], vec![(norm.into(), vec![input(0), input(1)])]), &[square, vector]);
}
