//! Recurrent layers against the reference: directions, optional inputs, sizes around vectors and blocks.

use planish_kernel::{Budget, Candidate, Ref, Region, RegionNode};
use planish_op::{self as op, Op, RecurrentDirection};
use planish_tensor::{DType, Tensor};
use planish_testing::{Placement, Random, Tolerance, assert_close};

use super::family::{RecurrentFamily, is_offered};
use crate::family::Family;
use crate::isa::Isa;
use crate::trial::{Arranged, check_placed};

/// States stay within one; errors of products and functions pass from step to step.
const TOLERANCE: Tolerance = Tolerance { relative: 2e-5, absolute: 4e-6 };

fn lstm(direction: RecurrentDirection) -> Op {
    op::LSTM {
        clip: None,
        activation_beta: Vec::new(),
        activation_alpha: Vec::new(),
        hidden_size: None,
        direction,
        input_forget: false,
        layout: 0,
        activations: Vec::new(),
    }
    .into()
}

fn gru(direction: RecurrentDirection, linear_before_reset: bool) -> Op {
    op::GRU {
        clip: None,
        activation_beta: Vec::new(),
        activation_alpha: Vec::new(),
        hidden_size: None,
        layout: 0,
        direction,
        linear_before_reset,
        activations: Vec::new(),
    }
    .into()
}

/// X, W, R and, with `all`, B and the initial states.
fn inputs(
    gates: usize,
    dirs: usize,
    [seq, batch, size, hidden]: [usize; 4],
    all: bool,
) -> Vec<Option<Tensor>> {
    let mut numbers = Random::new(5);
    let mut tensor = |dims: &[usize]| Some(numbers.tensor(DType::F32, dims, 0.5));
    let mut list = vec![
        tensor(&[seq, batch, size]),
        tensor(&[dirs, gates * hidden, size]),
        tensor(&[dirs, gates * hidden, hidden]),
    ];
    if all {
        list.push(tensor(&[dirs, 2 * gates * hidden]));
        list.push(None);
        list.push(tensor(&[dirs, batch, hidden]));
        if gates == 4 {
            list.push(tensor(&[dirs, batch, hidden]));
        }
    }
    list
}

fn check(op: Op, n_outputs: u32, inputs: Vec<Option<Tensor>>) {
    let mut region = Region::single(op, 0, n_outputs);
    let mut tensors = Vec::new();
    region.nodes[0].inputs = inputs
        .into_iter()
        .map(|tensor| {
            tensors.push(tensor?);
            Some(Ref::Input(tensors.len() as u32 - 1))
        })
        .collect();
    region.n_inputs = tensors.len() as u32;
    assert!(is_offered(&Placement::ALL[0].problem(&region, &tensors).0));
    check_placed(&RecurrentFamily, &region, &tensors, TOLERANCE, &Placement::ALL[..1]);
}

const DIRECTIONS: [(RecurrentDirection, usize); 3] = [
    (RecurrentDirection::Forward, 1),
    (RecurrentDirection::Reverse, 1),
    (RecurrentDirection::Bidirectional, 2),
];
/// Steps, rows, inputs, hidden.
const SIZES: [[usize; 4]; 5] = [[1, 1, 1, 1], [3, 2, 5, 7], [4, 17, 3, 16], [2, 33, 20, 33], [7, 1, 40, 64]];

#[test]
fn lstm_in_all_directions() {
    for (direction, dirs) in DIRECTIONS {
        for sizes in SIZES {
            for all in [false, true] {
                check(lstm(direction), 3, inputs(4, dirs, sizes, all));
            }
        }
    }
}

#[test]
fn gru_with_both_places_of_the_reset() {
    for (direction, dirs) in DIRECTIONS {
        for sizes in SIZES {
            for (all, late) in [(false, false), (true, false), (false, true), (true, true)] {
                check(gru(direction, late), 2, inputs(3, dirs, sizes, all));
            }
        }
    }
}

#[test]
fn nothing_to_do_is_done() {
    check(lstm(RecurrentDirection::Forward), 3, inputs(4, 1, [0, 2, 3, 4], true));
    check(lstm(RecurrentDirection::Forward), 3, inputs(4, 1, [2, 0, 3, 4], true));
}

/// Weights that are known are packed; a long step is shared out among threads, with the same bits.
#[test]
fn packed_weights() {
    for sizes in SIZES.into_iter().chain([[3, 2, 5, 330], [2, 1, 3, 401]]) {
        // One direction of one block of rows, where there is something to share out.
        let n_directions = if sizes[3] > 100 { 1 } else { 3 };
        for (direction, dirs) in DIRECTIONS.into_iter().take(n_directions) {
            let layers =
                [(lstm(direction), 4, 3), (gru(direction, true), 3, 2), (gru(direction, false), 3, 2)];
            for (op, gates, n_outputs) in layers {
                let tensors: Vec<Option<Tensor>> = inputs(gates, dirs, sizes, true);
                let mut region = Region::single(op, 0, n_outputs);
                let mut given = Vec::new();
                region.nodes[0].inputs = tensors
                    .into_iter()
                    .map(|tensor| {
                        given.push(tensor?);
                        Some(Ref::Input(given.len() as u32 - 1))
                    })
                    .collect();
                region.n_inputs = given.len() as u32;
                // Each output comes first once: only that one is compared.
                for _ in 0..n_outputs {
                    region.outputs.rotate_left(1);
                    let (mut problem, want) = Placement::ALL[0].problem(&region, &given);
                    problem.inputs[1].constant = true;
                    problem.inputs[2].constant = true;
                    for isa in Isa::available() {
                        let candidates = RecurrentFamily.candidates(isa, &problem, &Budget::USUAL);
                        let [candidate] = &candidates[..] else { panic!("one candidate: {}", problem.key()) };
                        assert!(candidate.packed[1].is_some() && candidate.packed[2].is_some());
                        let run = |threads| {
                            let arranged = Arranged::new(&problem, candidate, 0);
                            arranged.run(&RecurrentFamily, isa, &given, threads, |_, _| {})
                        };
                        let got = run(1);
                        assert_close(&got, &want[0], TOLERANCE, &format!("{isa} {sizes:?} {gates}"));
                        assert!(got == run(2), "results depend on the number of threads");
                    }
                }
            }
        }
    }
}

/// The layer with W and R as bytes: a scale for each direction and row, and zero points where they are asked for.
fn with_bytes(op: Op, inputs: Vec<Option<Tensor>>, dtype: DType, zeros: bool) -> (Region, Vec<Tensor>) {
    let mut numbers = Random::new(11);
    let mut region = Region::single(op, 0, 1);
    let mut tensors = Vec::new();
    let mut add = |tensor: Tensor| {
        tensors.push(tensor);
        Some(Ref::Input(tensors.len() as u32 - 1))
    };
    let mut made = Vec::new();
    let mut layer = Vec::new();
    for (place, tensor) in inputs.into_iter().enumerate() {
        let Some(tensor) = tensor else {
            layer.push(None);
            continue;
        };
        if !matches!(place, 1 | 2) {
            layer.push(add(tensor));
            continue;
        }
        let &[dirs, rows, k] = tensor.shape() else { panic!("weights have three axes") };
        let scales: Vec<f32> = (0..dirs * rows).map(|row| 0.002 + 0.0005 * (row % 7) as f32).collect();
        let mut from = vec![
            add(numbers.raw(dtype, &[dirs, rows, k])),
            add(Tensor::new(&[dirs, rows, 1], scales).unwrap()),
        ];
        from.extend(zeros.then(|| add(numbers.raw(dtype, &[dirs, rows, 1]))));
        made.push(RegionNode {
            name: format!("weight {place}"),
            op: op::DequantizeLinear { output_dtype: None, block_size: k as i64, axis: 2 }.into(),
            inputs: from,
            n_outputs: 1,
        });
        layer.push(Some(Ref::Node { node: made.len() as u32 - 1, output: 0 }));
    }
    let node = made.len() as u32;
    region.nodes[0].inputs = layer;
    region.nodes.splice(0..0, made);
    region.outputs = vec![Ref::Node { node, output: 0 }];
    region.n_inputs = tensors.len() as u32;
    (region, tensors)
}

/// Bytes against the reference, on every instruction set: of either sign, with zero points and without, with few rows and
/// with more than the kernel reads bytes for; where sums come in quads by digits, too.
#[test]
fn weights_of_bytes() {
    for (dtype, zeros) in [(DType::I8, false), (DType::I8, true), (DType::U8, true)] {
        for sizes in SIZES.into_iter().chain([[3, 2, 8, 36], [4, 19, 12, 100], [2, 1, 4, 4]]) {
            for (direction, dirs) in [DIRECTIONS[0], DIRECTIONS[2]] {
                for (layer, gates) in [(lstm(direction), 4), (gru(direction, true), 3)] {
                    let (region, tensors) = with_bytes(layer, inputs(gates, dirs, sizes, true), dtype, zeros);
                    let (mut problem, want) = Placement::ALL[0].problem(&region, &tensors);
                    for (operand, tensor) in problem.inputs.iter_mut().zip(&tensors) {
                        operand.constant = tensor.rank() == 3 && tensor.shape()[1] == gates * sizes[3];
                    }
                    for isa in Isa::available() {
                        let candidates = RecurrentFamily.candidates(isa, &problem, &Budget::USUAL);
                        let names: Vec<&str> =
                            candidates.iter().map(|one| one.tactic.name.as_str()).collect();
                        let (first, digits) = names.split_first().unwrap();
                        assert!(first.starts_with("recurrent_i8_"), "{names:?}");
                        let in_quads = !zeros && sizes[2].is_multiple_of(4) && sizes[3].is_multiple_of(4);
                        assert_eq!(digits.len(), if in_quads { n_digit_tiles(isa) } else { 0 }, "{names:?}");
                        for candidate in &candidates {
                            let run = |threads| {
                                let arranged = Arranged::new(&problem, candidate, 0);
                                arranged.run(&RecurrentFamily, isa, &tensors, threads, |_, _| {})
                            };
                            let got = run(1);
                            let what = format!("{} {dtype} {zeros} {sizes:?}", candidate.tactic);
                            assert_close(&got, &want[0], TOLERANCE, &what);
                            assert!(got == run(2), "{what}: results depend on the number of threads");
                        }
                    }
                }
            }
        }
    }
}

fn n_digit_tiles(isa: Isa) -> usize {
    super::digits::tiles(isa).count()
}

/// Rows with numbers that have no digits: as the kernel for floats has them, rows beside them as ever.
#[test]
fn numbers_without_digits() {
    let sizes = [2, 3, 8, 16];
    let (region, mut tensors) =
        with_bytes(lstm(DIRECTIONS[0].0), inputs(4, 1, sizes, true), DType::I8, false);
    let mut x = tensors[0].elements::<f32>().unwrap().to_vec();
    (x[3], x[8 + 2], x[16]) = (f32::INFINITY, f32::NAN, 1e-40);
    x[17..24].fill(0.0);
    tensors[0] = Tensor::new(&sizes[..3], x).unwrap();
    let (mut problem, _) = Placement::ALL[0].problem(&region, &tensors);
    for (operand, tensor) in problem.inputs.iter_mut().zip(&tensors) {
        operand.constant = tensor.rank() == 3 && tensor.shape()[1] == 4 * sizes[3];
    }
    for isa in Isa::available() {
        let run = |candidate: &Candidate| {
            let arranged = Arranged::new(&problem, candidate, 0);
            let got = arranged.run(&RecurrentFamily, isa, &tensors, 1, |_, _| {});
            got.elements::<f32>().unwrap().to_vec()
        };
        let candidates = RecurrentFamily.candidates(isa, &problem, &Budget::USUAL);
        let want = run(&candidates[0]);
        assert!(want.iter().any(|y| y.is_nan()) && want.iter().any(|y| !y.is_nan()));
        for candidate in &candidates[1..] {
            for (got, want) in run(candidate).iter().zip(&want) {
                let same = got.is_nan() == want.is_nan();
                assert!(
                    same && (got.is_nan() || (got - want).abs() < 1e-5),
                    "{}: {got}, {want}",
                    candidate.tactic
                );
            }
        }
    }
}

/// A GRU whose candidate is reset early has its product apart, which packed bytes are not.
#[test]
fn an_early_reset_has_no_kernel_for_bytes() {
    let layer = gru(RecurrentDirection::Forward, false);
    let (region, tensors) = with_bytes(layer, inputs(3, 1, [3, 2, 5, 7], false), DType::I8, false);
    let (mut problem, _) = Placement::ALL[0].problem(&region, &tensors);
    problem.inputs.iter_mut().for_each(|operand| operand.constant = true);
    assert!(RecurrentFamily.candidates(Isa::best(), &problem, &Budget::USUAL).is_empty());
}
