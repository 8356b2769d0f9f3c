//! Recurrent layers against the reference: directions, optional inputs, sizes around vectors and blocks.

use planish_kernel::{Ref, Region};
use planish_op::{self as op, Op, RecurrentDirection};
use planish_tensor::{DType, Tensor};
use planish_testing::{Placement, Random, Tolerance};

use super::family::{RecurrentFamily, is_offered};
use crate::trial::check_placed;

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
