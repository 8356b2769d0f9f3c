//! Recurrent layers: cells, directions, optional inputs, sizes around vectors, blocks and clusters.

use planish_kernel::Problem;
use planish_op::{self as op, Op, RecurrentDirection};
use planish_tensor::DType;

use crate::{Sample, input};

/// LSTM.
pub fn lstm(direction: RecurrentDirection) -> Op {
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

/// GRU; `late` resets after the product.
pub fn gru(direction: RecurrentDirection, late: bool) -> Op {
    op::GRU {
        clip: None,
        activation_beta: Vec::new(),
        activation_alpha: Vec::new(),
        hidden_size: None,
        layout: 0,
        direction,
        linear_before_reset: late,
        activations: Vec::new(),
    }
    .into()
}

/// RNN by a function, two of the same where it goes both ways.
pub fn rnn(direction: RecurrentDirection, function: &str) -> Op {
    let n = if direction == RecurrentDirection::Bidirectional { 2 } else { 1 };
    op::RNN {
        clip: None,
        activation_beta: Vec::new(),
        activation_alpha: Vec::new(),
        hidden_size: None,
        layout: 0,
        direction,
        activations: vec![function.to_string(); n],
    }
    .into()
}

/// A layer of steps, rows, elements and hidden units; with `all`, biases and initial states too.
pub fn layer(op: Op, dtype: DType, [seq, batch, size, hidden]: [usize; 4], all: bool) -> Problem {
    let (gates, direction, n_outputs) = match &op {
        Op::LSTM(op) => (4, op.direction, 3),
        Op::GRU(op) => (3, op.direction, 2),
        Op::RNN(op) => (1, op.direction, 2),
        other => panic!("{} is no recurrent layer", other.name()),
    };
    let dirs = if direction == RecurrentDirection::Bidirectional { 2 } else { 1 };
    let mut places = vec![input(0), input(1), input(2)];
    if all {
        places.extend([input(3), None, input(4)]);
        places.extend((gates == 4).then(|| input(5)));
    }
    let mut sample = Sample::of(vec![(op, places)])
        .n_outputs(n_outputs)
        .typed(dtype, &[seq, batch, size])
        .weight(dtype, &[dirs, gates * hidden, size])
        .weight(dtype, &[dirs, gates * hidden, hidden]);
    if all {
        sample = sample.weight(dtype, &[dirs, 2 * gates * hidden]).typed(dtype, &[dirs, batch, hidden]);
        if gates == 4 {
            sample = sample.typed(dtype, &[dirs, batch, hidden]);
        }
    }
    sample.problem()
}

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    use RecurrentDirection::{Bidirectional, Forward, Reverse};
    vec![
        layer(lstm(Forward), DType::F32, [5, 1, 3, 8], false),
        layer(lstm(Bidirectional), DType::F32, [4, 3, 20, 33], true),
        layer(lstm(Reverse), DType::F16, [3, 2, 6, 17], true),
        layer(gru(Forward, false), DType::F32, [4, 9, 5, 16], true),
        layer(gru(Bidirectional, true), DType::F32, [3, 5, 7, 11], true),
        layer(gru(Reverse, false), DType::BF16, [2, 1, 4, 31], false),
        layer(rnn(Bidirectional, "Tanh"), DType::F32, [3, 2, 65, 130], true),
        layer(rnn(Forward, "Relu"), DType::F32, [2, 1, 1, 1], false),
        // More gates than a block has threads, and weights that one block's shared memory does not hold.
        layer(lstm(Forward), DType::F32, [2, 2, 16, 150], false),
        layer(lstm(Forward), DType::F32, [0, 2, 3, 4], true),
    ]
}

/// A batch without rows: nothing is computed.
pub fn without_rows() -> Problem {
    layer(lstm(RecurrentDirection::Forward), DType::F32, [2, 0, 3, 4], true)
}
