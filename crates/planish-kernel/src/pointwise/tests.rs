//! Programs and epilogues of small regions.

use planish_op as op;
use planish_op::{Op, Swish};
use planish_tensor::{DType, Tensor};

use super::*;
use crate::{Layout, Numeric, Operand, Ref, Region, RegionNode};

const X: Option<Ref> = Some(Ref::Input(0));

fn input(idx: u32) -> Option<Ref> {
    Some(Ref::Input(idx))
}

fn constant(idx: u32) -> Option<Ref> {
    Some(Ref::Constant(idx))
}

fn node(idx: u32) -> Option<Ref> {
    Some(Ref::Node { node: idx, output: 0 })
}

/// A problem over f32 inputs of these sizes; its output is that of the last node.
fn problem(dims: &[&[usize]], constants: Vec<Tensor>, nodes: Vec<(Op, Vec<Option<Ref>>)>) -> Problem {
    let last = nodes.len() as u32 - 1;
    let nodes = nodes
        .into_iter()
        .map(|(op, inputs)| RegionNode { name: op.name().to_string(), op, inputs, n_outputs: 1 })
        .collect();
    let region = Region {
        n_inputs: dims.len() as u32,
        constants,
        nodes,
        outputs: vec![Ref::Node { node: last, output: 0 }],
    };
    let inputs = dims.iter().map(|dims| Operand::dense(DType::F32, dims, Layout::Plain)).collect();
    Problem { region, inputs, outputs: Vec::new(), numeric: Numeric::F32, threads: 1 }
}

fn conv() -> Op {
    Op::from_attributes("Conv", &[]).unwrap()
}

#[test]
fn a_gated_sigmoid_becomes_one_function() {
    let found = Program::of_problem(&problem(
        &[&[2, 3]],
        vec![],
        vec![(op::Sigmoid {}.into(), vec![X]), (op::Mul {}.into(), vec![X, node(0)])],
    ))
    .unwrap();
    assert_eq!(found.code, [Inst::Input(0), Inst::Unary(Unary::Swish { alpha: 1.0 }, Reg(0))]);
    let scaled = Program::of_problem(&problem(
        &[&[2, 3]],
        vec![Tensor::scalar(1.702f32)],
        vec![
            (op::Mul {}.into(), vec![constant(0), X]),
            (op::Sigmoid {}.into(), vec![node(0)]),
            (op::Mul {}.into(), vec![node(1), X]),
        ],
    ))
    .unwrap();
    assert_eq!(scaled.code, [Inst::Input(0), Inst::Unary(Unary::Swish { alpha: 1.702 }, Reg(0))]);
    let whole = Program::of_problem(&problem(&[&[4]], vec![], vec![(Swish { alpha: 2.0 }.into(), vec![X])]));
    assert_eq!(whole.unwrap().code[1], Inst::Unary(Unary::Swish { alpha: 2.0 }, Reg(0)));
}

#[test]
fn broadcast_inputs_know_their_axes() {
    let found = Program::of_problem(&problem(
        &[&[2, 3, 4], &[3, 1]],
        vec![],
        vec![(op::Add {}.into(), vec![input(0), input(1)])],
    ))
    .unwrap();
    assert_eq!(found.dims, [2, 3, 4]);
    assert_eq!(found.inputs[0].axes(3), [Some(0), Some(1), Some(2)]);
    assert_eq!(found.inputs[1].axes(3), [None, Some(0), None]);
    let channel = ProgramInput { channel: true, dims: vec![3], ..found.inputs[1].clone() };
    assert_eq!(channel.axes(4), [None, Some(0), None, None]);
}

#[test]
fn what_is_not_pointwise_or_not_exact_is_refused_with_a_reason() {
    let refusal = |problem: &Problem| Program::of_problem(problem).unwrap_err().to_string();
    let softmax = problem(&[&[4]], vec![], vec![(op::Softmax { axis: -1 }.into(), vec![X])]);
    assert_eq!(refusal(&softmax), "Softmax is not pointwise");
    let mut ints = problem(&[&[4], &[4]], vec![], vec![(op::Div {}.into(), vec![X, input(1)])]);
    ints.inputs.iter_mut().for_each(|operand| operand.dtype = DType::I64);
    assert_eq!(refusal(&ints), "Div of I64 and I64");
    let mut doubles = problem(&[&[4]], vec![], vec![(op::Exp {}.into(), vec![X])]);
    doubles.inputs[0].dtype = DType::F64;
    assert_eq!(refusal(&doubles), "elements of type f64");
    let mut halves =
        problem(&[&[4]], vec![Tensor::scalar(0i64)], vec![(op::Div {}.into(), vec![X, constant(0)])]);
    halves.inputs[0].dtype = DType::I64;
    assert_eq!(refusal(&halves), "Div of I64 and I64");
}

#[test]
fn bounds_out_of_order_or_computed_are_chosen_step_by_step() {
    let clip = |bounds: Vec<Tensor>, inputs| {
        Program::of_problem(&problem(&[&[4], &[]], bounds, vec![(op::Clip {}.into(), inputs)])).unwrap()
    };
    let plain =
        clip(vec![Tensor::scalar(0f32), Tensor::scalar(6f32)], vec![X, constant(0), constant(1)]).code;
    assert_eq!(plain[1], Inst::Clamp { x: Reg(0), lo: Scalar::F32(0.0), hi: Scalar::F32(6.0) });
    let open = clip(vec![], vec![X]).code;
    assert_eq!(open[1], Inst::Clamp { x: Reg(0), lo: Scalar::F32(f32::MIN), hi: Scalar::F32(f32::MAX) });
    let nan = clip(vec![Tensor::scalar(f32::NAN)], vec![X, constant(0)]).code;
    let bounds = (Scalar::F32(f32::NEG_INFINITY), Scalar::F32(f32::MAX));
    assert_eq!(nan[1], Inst::Clamp { x: Reg(0), lo: bounds.0, hi: bounds.1 });
    for program in [
        clip(vec![Tensor::scalar(6f32), Tensor::scalar(0f32)], vec![X, constant(0), constant(1)]),
        clip(vec![], vec![X, input(1)]),
    ] {
        let n_selects = program.code.iter().filter(|inst| matches!(inst, Inst::Select { .. })).count();
        assert_eq!(n_selects, 2);
    }
}

#[test]
fn a_convolution_with_everything_has_the_fast_form() {
    let dims: &[&[usize]] = &[&[1, 3, 8, 8], &[16, 3, 1, 1], &[16], &[1, 16, 8, 8]];
    let found = Epilogue::of(
        &problem(
            dims,
            vec![],
            vec![
                (conv(), vec![X, input(1), input(2)]),
                (op::Add {}.into(), vec![input(3), node(0)]),
                (op::Relu {}.into(), vec![node(1)]),
            ],
        ),
        0,
    )
    .unwrap();
    let residual = Residual { input: 3, after_clamp: false };
    let wanted =
        Epilogue { bias: Some(2), residual: Some(residual), lo: 0.0, hi: f32::INFINITY, program: None };
    assert_eq!(found, wanted);
    let after = Epilogue::of(
        &problem(
            dims,
            vec![Tensor::scalar(0f32), Tensor::scalar(6f32)],
            vec![
                (conv(), vec![X, input(1), input(2)]),
                (op::Relu {}.into(), vec![node(0)]),
                (op::Clip {}.into(), vec![node(1), constant(0), constant(1)]),
                (op::Add {}.into(), vec![node(2), input(3)]),
                (op::Relu {}.into(), vec![node(3)]),
            ],
        ),
        0,
    )
    .unwrap();
    assert_eq!((after.bias, after.lo, after.hi), (Some(2), 0.0, 6.0));
    assert_eq!(after.residual, Some(Residual { input: 3, after_clamp: true }));
    // The second Relu comes after the residual and is left to the program.
    let rest = after.program.unwrap();
    let relu = Inst::Clamp { x: Reg(0), lo: Scalar::F32(0.0), hi: Scalar::F32(f32::INFINITY) };
    assert_eq!(rest.code, [Inst::Running, relu]);
    assert!(rest.inputs.is_empty());
}

#[test]
fn an_activation_that_reads_twice_stays_after_the_bias() {
    let found = Epilogue::of(
        &problem(
            &[&[1, 3, 8, 8], &[16, 3, 1, 1], &[1, 16, 1, 1]],
            vec![],
            vec![
                (conv(), vec![X, input(1)]),
                (op::Add {}.into(), vec![node(0), input(2)]),
                (op::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 }.into(), vec![node(1)]),
                (op::Mul {}.into(), vec![node(1), node(2)]),
            ],
        ),
        0,
    )
    .unwrap();
    assert_eq!((found.bias, found.residual, found.has_clamp()), (Some(2), None, false));
    let rest = found.program.unwrap();
    assert_eq!(rest.code.len(), 3);
    assert_eq!(rest.code[0], Inst::Running);
}

#[test]
fn matrix_products_take_vectors_along_the_last_axis() {
    let gemm =
        |alpha: f32, beta: f32| -> Op { op::Gemm { alpha, beta, trans_a: false, trans_b: false }.into() };
    let of = |op: Op, third: &[usize]| {
        let three = problem(&[&[4, 5], &[5, 6], third], vec![], vec![(op, vec![X, input(1), input(2)])]);
        Epilogue::of(&three, 0).unwrap()
    };
    assert_eq!(of(gemm(1.0, 1.0), &[6]).bias, Some(2));
    assert_eq!(of(gemm(1.0, 1.0), &[1, 6]).bias, Some(2));
    assert_eq!(of(gemm(1.0, 1.0), &[4, 6]).residual, Some(Residual { input: 2, after_clamp: false }));
    // A column, and a factor, have no fast form.
    assert!(of(gemm(1.0, 1.0), &[4, 1]).program.is_some());
    assert_eq!(of(gemm(2.0, 0.5), &[6]).program.unwrap().inputs.len(), 1);
    let wide = Epilogue::of(
        &problem(
            &[&[2, 4, 5], &[5, 6], &[6], &[2, 4, 6]],
            vec![],
            vec![
                (op::MatMul {}.into(), vec![X, input(1)]),
                (op::Add {}.into(), vec![node(0), input(3)]),
                (op::Add {}.into(), vec![node(1), input(2)]),
            ],
        ),
        0,
    )
    .unwrap();
    // In this order the vector is not a bias: sums are rounded in the order of the graph.
    assert_eq!((wide.bias, wide.residual.is_some(), wide.program.is_some()), (None, true, true));
}

#[test]
fn an_output_wider_than_the_main_node_is_refused() {
    let wider = problem(
        &[&[1, 3, 1, 1], &[16, 3, 1, 1], &[1, 16, 8, 8]],
        vec![],
        vec![(conv(), vec![X, input(1)]), (op::Add {}.into(), vec![node(0), input(2)])],
    );
    assert!(Epilogue::of(&wider, 0).unwrap_err().to_string().contains("other sizes"));
    let alone = problem(&[&[1, 3, 1, 1], &[16, 3, 1, 1]], vec![], vec![(conv(), vec![X, input(1)])]);
    assert!(Epilogue::of(&alone, 0).unwrap().is_none());
}

#[test]
fn nodes_beside_the_main_one_may_join_after_it() {
    let beside = problem(
        &[&[4, 5], &[5, 6], &[4, 6]],
        vec![],
        vec![
            (op::Sigmoid {}.into(), vec![input(2)]),
            (op::MatMul {}.into(), vec![X, input(1)]),
            (op::Mul {}.into(), vec![node(1), node(0)]),
        ],
    );
    let program = Epilogue::of(&beside, 1).unwrap().program.unwrap();
    assert_eq!((program.inputs.len(), program.code.len()), (1, 4));
    let through = problem(
        &[&[4, 5], &[5, 6]],
        vec![],
        vec![(op::MatMul {}.into(), vec![X, input(1)]), (op::Softmax { axis: -1 }.into(), vec![node(0)])],
    );
    let reason = Epilogue::of(&through, 0).unwrap_err().to_string();
    assert_eq!(reason, "Softmax stands after the main node and is not pointwise");
}

#[test]
fn small_floats_are_storage_and_only_for_those_who_ask() {
    let mut halves = problem(
        &[&[2, 3], &[3]],
        vec![],
        vec![
            (op::Add {}.into(), vec![X, input(1)]),
            (cast(DType::BF16), vec![node(0)]),
            (cast(DType::F16), vec![node(1)]),
        ],
    );
    halves.inputs.iter_mut().for_each(|operand| operand.dtype = DType::F16);
    assert_eq!(Program::of_problem(&halves).unwrap_err().to_string(), "elements of type f16");
    let program = Program::stored(&halves).unwrap();
    assert_eq!(program.inputs[0].dtype, DType::F16);
    assert!(program.kinds.iter().all(|kind| *kind == Kind::F32));
    assert_eq!(program.output_types, [DType::F16]);
    let rounds = [Inst::Unary(Unary::RoundBf16, Reg(2)), Inst::Unary(Unary::RoundF16, Reg(3))];
    assert_eq!(program.code[3..], rounds);
    let mut clip = problem(&[&[4]], vec![], vec![(op::Clip {}.into(), vec![X])]);
    clip.inputs[0].dtype = DType::F16;
    let bounds = Inst::Clamp { x: Reg(0), lo: Scalar::F32(-65504.0), hi: Scalar::F32(65504.0) };
    assert_eq!(Program::stored(&clip).unwrap().code[1], bounds);
}

fn cast(to: DType) -> Op {
    op::Cast { round_mode: op::CastRounding::Up, saturate: true, to }.into()
}

#[test]
fn epilogues_of_half_products_are_built_only_as_stored() {
    let mut product = problem(
        &[&[4, 5], &[5, 6], &[6], &[4, 6]],
        vec![],
        vec![
            (op::MatMul {}.into(), vec![X, input(1)]),
            (op::Add {}.into(), vec![node(0), input(2)]),
            (op::Add {}.into(), vec![node(1), input(3)]),
        ],
    );
    product.inputs.iter_mut().for_each(|operand| operand.dtype = DType::BF16);
    assert!(Epilogue::of(&product, 0).is_err());
    let found = Epilogue::stored(&product, 0).unwrap();
    assert_eq!((found.bias, found.residual.map(|residual| residual.input)), (Some(2), Some(3)));
}
