//! One step of each recurrent cell, and the activation functions.

use planish_op::RecurrentActivation as Act;

use crate::nd::dot;

/// The weights of one direction.
pub(super) struct Weights<'a> {
    pub(super) hidden: usize,
    /// One row of `hidden` elements per gate and hidden element.
    pub(super) recurrence: &'a [f64],
    pub(super) input_bias: &'a [f64],
    pub(super) recurrence_bias: &'a [f64],
    /// Of the input, output and forget gates.
    pub(super) peepholes: &'a [f64],
}

impl Weights<'_> {
    /// The product of a state with one row of one gate.
    fn recur(&self, gate: usize, place: usize, h: &[f64]) -> f64 {
        dot(&self.recurrence[(gate * self.hidden + place) * self.hidden..][..self.hidden], h)
    }

    /// Everything that is added before the activation of one element of a gate.
    fn sum(&self, gate: usize, place: usize, projected: &[f64], h: &[f64]) -> f64 {
        let row = gate * self.hidden + place;
        projected[row] + self.recur(gate, place, h) + self.input_bias[row] + self.recurrence_bias[row]
    }
}

/// A recurrent cell.
pub(super) trait Cell {
    /// Whether there is a cell state beside the hidden state.
    const HAS_CELL_STATE: bool;

    /// Advances the states by one step; `projected` is the input times the input weights.
    fn step(&self, weights: &Weights<'_>, projected: &[f64], h: &mut [f64], c: &mut [f64]);
}

pub(super) struct RnnCell {
    pub(super) clip: Option<f32>,
    pub(super) f: Act,
}

impl Cell for RnnCell {
    const HAS_CELL_STATE: bool = false;

    fn step(&self, weights: &Weights<'_>, projected: &[f64], h: &mut [f64], _c: &mut [f64]) {
        let before = h.to_vec();
        for (place, h) in h.iter_mut().enumerate() {
            *h = activate(self.f, self.clip, weights.sum(0, place, projected, &before));
        }
    }
}

/// Gates in the order update (z), reset (r), hidden (h).
pub(super) struct GruCell {
    pub(super) clip: Option<f32>,
    pub(super) f: Act,
    pub(super) g: Act,
    pub(super) linear_before_reset: bool,
}

impl Cell for GruCell {
    const HAS_CELL_STATE: bool = false;

    fn step(&self, weights: &Weights<'_>, projected: &[f64], h: &mut [f64], _c: &mut [f64]) {
        let hidden = weights.hidden;
        let gate = |gate: usize, place: usize, h: &[f64]| {
            activate(self.f, self.clip, weights.sum(gate, place, projected, h))
        };
        let update: Vec<f64> = (0..hidden).map(|place| gate(0, place, h)).collect();
        let reset: Vec<f64> = (0..hidden).map(|place| gate(1, place, h)).collect();
        let after_reset: Vec<f64> = reset.iter().zip(&*h).map(|(reset, h)| reset * h).collect();
        let candidates: Vec<f64> = (0..hidden)
            .map(|place| {
                let row = 2 * hidden + place;
                let sum = if self.linear_before_reset {
                    let linear = weights.recur(2, place, h) + weights.recurrence_bias[row];
                    projected[row] + reset[place] * linear + weights.input_bias[row]
                } else {
                    weights.sum(2, place, projected, &after_reset)
                };
                activate(self.g, self.clip, sum)
            })
            .collect();
        for (place, h) in h.iter_mut().enumerate() {
            *h = (1.0 - update[place]) * candidates[place] + update[place] * *h;
        }
    }
}

/// Gates in the order input, output, forget, cell.
pub(super) struct LstmCell {
    pub(super) clip: Option<f32>,
    pub(super) f: Act,
    pub(super) g: Act,
    pub(super) h: Act,
    /// The forget gate is what the input gate leaves.
    pub(super) input_forget: bool,
}

impl Cell for LstmCell {
    const HAS_CELL_STATE: bool = true;

    fn step(&self, weights: &Weights<'_>, projected: &[f64], h: &mut [f64], c: &mut [f64]) {
        let hidden = weights.hidden;
        let before = h.to_vec();
        for place in 0..hidden {
            let sum = |gate: usize| weights.sum(gate, place, projected, &before);
            let peephole = |gate: usize| weights.peepholes[gate * hidden + place];
            let input = activate(self.f, self.clip, sum(0) + peephole(0) * c[place]);
            let forget = match self.input_forget {
                true => 1.0 - input,
                false => activate(self.f, self.clip, sum(2) + peephole(2) * c[place]),
            };
            let candidate = activate(self.g, self.clip, sum(3));
            c[place] = forget * c[place] + input * candidate;
            let output = activate(self.f, self.clip, sum(1) + peephole(1) * c[place]);
            h[place] = output * activate(self.h, self.clip, c[place]);
        }
    }
}

/// An activation of the clipped argument.
fn activate(act: Act, clip: Option<f32>, x: f64) -> f64 {
    let x = match clip {
        Some(clip) => x.clamp(-f64::from(clip), f64::from(clip)),
        None => x,
    };
    match act {
        Act::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Act::Tanh => x.tanh(),
        Act::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Act::Affine { alpha, beta } => f64::from(alpha) * x + f64::from(beta),
        Act::LeakyRelu { alpha } => {
            if x >= 0.0 {
                x
            } else {
                f64::from(alpha) * x
            }
        }
        Act::ThresholdedRelu { alpha } => {
            if x >= f64::from(alpha) {
                x
            } else {
                0.0
            }
        }
        Act::ScaledTanh { alpha, beta } => f64::from(alpha) * (f64::from(beta) * x).tanh(),
        Act::HardSigmoid { alpha, beta } => (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
        Act::Elu { alpha } => {
            if x >= 0.0 {
                x
            } else {
                f64::from(alpha) * x.exp_m1()
            }
        }
        Act::Softsign => x / (1.0 + x.abs()),
        // The larger exponent is taken out, which avoids overflow.
        Act::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
    }
}
