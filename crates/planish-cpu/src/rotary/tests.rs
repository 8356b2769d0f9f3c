//! Rotary embeddings against the reference: both kinds of pairs, heads as an axis and inside the last one, positions of
//! both types, operands inside larger ones, over their own input.

use planish_kernel::{Budget, KernelErrorKind, Layout, Operand};
use planish_op::RotaryEmbedding;
use planish_tensor::{DType, Tensor};
use planish_testing::{Placed, Random, Tolerance, assert_close};

use super::RotaryFamily;
use crate::family::Family;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::team::Team;
use crate::trial::{Input, OpTrial};

/// Two products of at most 4, each rounded once, and their sum: half a unit in the last place of 4 twice, of 8 once.
const CLOSE: Tolerance = Tolerance { relative: 1e-7, absolute: 1e-6 };

/// One embedding: sizes are batch, heads, steps, elements of a vector and those of them that are rotated.
struct Form {
    sizes: [usize; 4],
    rotated: usize,
    interleaved: bool,
    /// Whether the heads are inside the last axis.
    inside: bool,
    /// Rows of the tables and the type of positions.
    positions: Option<(usize, DType)>,
}

impl Form {
    fn trial(&self, random: &mut Random) -> OpTrial {
        let [batch, heads, seq, size] = self.sizes;
        let dims = match self.inside {
            true => vec![batch, seq, heads * size],
            false => vec![batch, heads, seq, size],
        };
        let mut inputs = vec![random.tensor(DType::F32, &dims, 2.0)];
        let table = match self.positions {
            Some((n_rows, _)) => vec![n_rows, self.rotated / 2],
            None => vec![batch, seq, self.rotated / 2],
        };
        inputs.extend((0..2).map(|_| random.tensor(DType::F32, &table, 2.0)));
        if let Some((n_rows, dtype)) = self.positions {
            let positions: Vec<f64> = (0..batch * seq).map(|_| random.below(n_rows) as f64).collect();
            inputs.push(Tensor::from_f64s(dtype, &[batch, seq], &positions).unwrap());
        }
        let op = RotaryEmbedding {
            num_heads: self.inside.then_some(heads as i64),
            rotary_embedding_dim: if self.rotated == size { 0 } else { self.rotated as i64 },
            interleaved: self.interleaved,
        };
        OpTrial::new(op, &inputs.into_iter().map(Input::Data).collect::<Vec<_>>(), 1)
    }

    /// On every instruction set, dense and inside larger values.
    fn check(&self, random: &mut Random) {
        let trial = self.trial(random);
        for isa in Isa::available() {
            for gaps in [false, true] {
                let mut operand = |tensor: &Tensor| match gaps && tensor.dtype() == DType::F32 {
                    true => random.operand(tensor.dtype(), tensor.shape(), Layout::Plain),
                    false => Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain),
                };
                let inputs: Vec<Operand> = trial.data.iter().map(&mut operand).collect();
                let outputs: Vec<Operand> = trial.want.iter().map(&mut operand).collect();
                let got = trial.run(&RotaryFamily, isa, &inputs, &outputs).unwrap();
                let what = format!("{isa} {:?} from {inputs:?} to {outputs:?}", trial.region.nodes[0].op);
                assert_close(&got[0], &trial.want[0], CLOSE, &what);
            }
        }
    }
}

#[test]
fn vectors_of_all_lengths_are_turned() {
    let mut random = Random::new(31);
    // Around whole vectors of eight and sixteen, and the usual ones.
    for pairs in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64] {
        for interleaved in [false, true] {
            for kept in [0, 1, 5, 16, 19] {
                let sizes = [2, 3, 2, 2 * pairs + kept];
                let rotated = 2 * pairs;
                Form { sizes, rotated, interleaved, inside: false, positions: None }.check(&mut random);
            }
        }
    }
}

#[test]
fn random_forms_agree() {
    let mut random = Random::new(32);
    for round in 0..200 {
        let pairs = random.between(1, 20);
        let size = 2 * pairs + if random.chance(3) { random.between(1, 9) } else { 0 };
        let sizes = [random.between(1, 4), random.between(1, 4), random.between(1, 7), size];
        let dtype = if random.chance(2) { DType::I64 } else { DType::I32 };
        let positions = (round % 3 > 0).then(|| (random.between(1, 9), dtype));
        let (interleaved, inside) = (random.chance(2), random.chance(2));
        Form { sizes, rotated: 2 * pairs, interleaved, inside, positions }.check(&mut random);
    }
}

#[test]
fn work_of_several_tasks_agrees() {
    let mut random = Random::new(33);
    for (inside, positions) in [(false, None), (true, Some((50, DType::I64)))] {
        let sizes = [2, 5, 61, 64];
        Form { sizes, rotated: 64, interleaved: inside, inside, positions }.check(&mut random);
    }
}

#[test]
fn nothing_is_nothing() {
    let mut random = Random::new(34);
    for sizes in [[0, 3, 5, 4], [2, 0, 5, 4], [2, 3, 0, 4], [2, 3, 5, 0]] {
        Form { sizes, rotated: sizes[3], interleaved: false, inside: false, positions: None }
            .check(&mut random);
    }
}

#[test]
fn positions_outside_the_tables_are_refused() {
    let mut random = Random::new(35);
    for dtype in [DType::I64, DType::I32] {
        // A position does not count from the end.
        for wrong in [-1, 7, i64::from(i32::MAX), i64::from(i32::MIN)] {
            let form = Form {
                sizes: [1, 2, 3, 4],
                rotated: 4,
                interleaved: false,
                inside: false,
                positions: Some((7, dtype)),
            };
            let mut trial = form.trial(&mut random);
            trial.data[3] = Tensor::from_f64s(dtype, &[1, 3], &[6.0, wrong as f64, 0.0]).unwrap();
            let dense = |tensor: &Tensor| Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
            let inputs: Vec<Operand> = trial.data.iter().map(dense).collect();
            let outputs: Vec<Operand> = trial.want.iter().map(dense).collect();
            for isa in Isa::available() {
                let refused = trial.run(&RotaryFamily, isa, &inputs, &outputs).unwrap_err();
                assert_eq!(*refused.kind(), KernelErrorKind::BadValues);
                assert!(refused.to_string().contains(&format!("position {wrong} is not one of 7")));
            }
        }
    }
}

#[test]
fn positions_may_be_constants() {
    let mut random = Random::new(36);
    let op = RotaryEmbedding { num_heads: None, rotary_embedding_dim: 0, interleaved: true };
    let data = |random: &mut Random, dims: &[usize]| Input::Data(random.tensor(DType::F32, dims, 2.0));
    let inputs = [
        data(&mut random, &[1, 2, 3, 6]),
        data(&mut random, &[4, 3]),
        data(&mut random, &[4, 3]),
        Input::Parameter(Tensor::new(&[1, 3], vec![3i64, 0, 2]).unwrap()),
    ];
    let trial = OpTrial::new(op, &inputs, 1);
    let dense = |tensor: &Tensor| Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
    let operands: Vec<Operand> = trial.data.iter().map(dense).collect();
    for isa in Isa::available() {
        let got = trial.run(&RotaryFamily, isa, &operands, &[dense(&trial.want[0])]).unwrap();
        assert_close(&got[0], &trial.want[0], CLOSE, "constant positions");
    }
}

#[test]
fn a_value_may_be_turned_where_it_lies() {
    let mut random = Random::new(37);
    for interleaved in [false, true] {
        let form = Form { sizes: [2, 3, 5, 39], rotated: 34, interleaved, inside: false, positions: None };
        let trial = form.trial(&mut random);
        let dense = |tensor: &Tensor| Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
        let inputs: Vec<Operand> = trial.data.iter().map(dense).collect();
        let problem = trial.problem(&inputs, &[dense(&trial.want[0])]);
        for isa in Isa::available() {
            let candidates = RotaryFamily.candidates(isa, &problem, &Budget::USUAL);
            assert_eq!(candidates[0].in_place, [(0, 0)]);
            let work = RotaryFamily.prepare(isa, &problem, &candidates[0].tactic).unwrap();
            let mut placed: Vec<Placed> =
                trial.data.iter().zip(&inputs).map(|(t, at)| Placed::new(t, at)).collect();
            let over = placed[0].mut_ptr();
            let from: Vec<*const u8> = placed.iter().map(Placed::ptr).collect();
            // SAFETY: the memories span what the operands do, and the family says that these two may be one.
            unsafe { work.run(Shared::new(&from, &[over], std::ptr::null_mut()), &Team::alone()) }.unwrap();
            assert_close(&placed[0].tensor(), &trial.want[0], CLOSE, "in place");
        }
    }
}
