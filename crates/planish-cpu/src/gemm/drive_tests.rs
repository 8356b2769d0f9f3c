//! Whole products against a plain f64 loop: every tile, route, edge, stride and batch, and the same bits on any
//! team.

use std::sync::Mutex;

use planish_testing::Random;

use super::tile_tests::bound;
use super::*;
use crate::isa::Isa;
use crate::team::Team;

/// A problem with its operands laid out with gaps.
struct Trial {
    problem: GemmProblem,
    a: Vec<f32>,
    b: Vec<f32>,
    bias: Option<Vec<f32>>,
    residual: Option<Vec<f32>>,
    clamp: (f32, f32),
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
    a_columns: bool,
    /// 0 packed, 1 rows, 2 columns.
    b_form: usize,
    /// Lengths of two batch dimensions; B is broadcast along the first, A along the second.
    batch: (usize, usize),
    gap: usize,
}

const PLAIN: Shape = Shape { m: 1, n: 1, k: 1, a_columns: false, b_form: 0, batch: (1, 1), gap: 0 };

fn trial(shape: Shape, tile: Tile, epilogue: usize) -> Trial {
    let Shape { m, n, k, gap, .. } = shape;
    let (outer, inner) = shape.batch;
    let (a, a_len) = if shape.a_columns {
        (MatrixA::Columns { stride: m + gap }, k * (m + gap))
    } else {
        (MatrixA::Rows { stride: k + gap }, m * (k + gap))
    };
    let layout = PackedB::new(tile, k, n);
    let (b, b_len) = match shape.b_form {
        0 => (MatrixB::Packed, layout.len()),
        1 => (MatrixB::Rows { stride: n + gap }, k * (n + gap)),
        _ => (MatrixB::Columns { stride: k + gap }, n * (k + gap)),
    };
    let c_stride = n + gap;
    let mut batch = [BatchDim::ONE; MAX_BATCH_DIMS];
    let c_len = m * c_stride;
    batch[1] = BatchDim { len: outer, a: a_len, b: 0, c: c_len * inner, residual: c_len * inner };
    batch[2] = BatchDim { len: inner, a: 0, b: b_len, c: c_len, residual: c_len };
    let plain_b = Random::new(7).list(b_len * inner);
    let mut packed = vec![0.0; b_len * inner];
    if shape.b_form == 0 {
        for i in 0..inner {
            let strides = Strides { k: n, n: 1 };
            layout.pack(&plain_b[i * b_len..], strides, &mut packed[i * b_len..(i + 1) * b_len]);
        }
    }
    Trial {
        problem: GemmProblem { m, n, k, a, b, c_stride, batch },
        a: Random::new(6).list(a_len * outer),
        b: if shape.b_form == 0 { packed } else { plain_b },
        bias: (epilogue & 1 != 0).then(|| Random::new(8).list(n)),
        residual: (epilogue & 2 != 0).then(|| Random::new(9).list(c_len * outer * inner)),
        clamp: if epilogue & 4 != 0 { (-0.25, 1.5) } else { (f32::NEG_INFINITY, f32::INFINITY) },
    }
}

const UNTOUCHED: f32 = -777.0;

impl Trial {
    fn run(&self, isa: Isa, tile: Tile, team: &Team, hook: Option<&BlockHook<'_>>) -> Vec<f32> {
        let plan = GemmPlan::with_tile(self.problem, isa, tile);
        let n_floats = plan.workspace_bytes(team.n_slots()) / 4;
        // What workspace holds before must not matter.
        let mut workspace = vec![f32::NAN; n_floats + 16];
        let offset = workspace.as_ptr().align_offset(64);
        let mut c = vec![UNTOUCHED; self.problem.m * self.problem.c_stride * self.problem.n_batches()];
        let null = std::ptr::null();
        let epilogue = EpilogueCall {
            bias: self.bias.as_ref().map_or(null, |x| x.as_ptr()),
            residual: self.residual.as_ref().map_or(null, |x| x.as_ptr()),
            residual_stride: self.problem.c_stride,
            lo: self.clamp.0,
            hi: self.clamp.1,
        };
        let call = GemmCall {
            a: self.a.as_ptr(),
            b: self.b.as_ptr(),
            blocks: None,
            c: c.as_mut_ptr(),
            epilogue,
            hook,
            workspace: workspace[offset..].as_mut_ptr(),
        };
        // SAFETY: the operands have the sizes of the problem.
        unsafe { plan.run(&call, team) };
        c
    }

    /// The operands of one product: offsets of A, B and C.
    fn product(&self, idx: usize) -> (usize, usize, usize) {
        let [_, outer, inner, _] = self.problem.batch;
        let (i, j) = (idx / inner.len, idx % inner.len);
        (i * outer.a, j * inner.b, i * outer.c + j * inner.c)
    }

    fn check(&self, isa: Isa, tile: Tile, shape: Shape) {
        let got = self.run(isa, tile, &Team::alone(), None);
        let GemmProblem { m, n, k, c_stride, .. } = self.problem;
        let layout = PackedB::new(tile, k, n);
        for idx in 0..self.problem.n_batches() {
            let (a, b, c) = self.product(idx);
            let (a, b) = (&self.a[a..], &self.b[b..]);
            let mut plain = vec![0.0; k * n];
            let plain: &[f32] = if let MatrixB::Packed = self.problem.b {
                layout.unpack(&b[..layout.len()], &mut plain, Strides { k: n, n: 1 });
                &plain
            } else {
                b
            };
            for i in 0..m {
                for j in 0..n {
                    let (mut sum, mut magnitude) = (0.0f64, 0.0f64);
                    for k in 0..k {
                        let x = match self.problem.a {
                            MatrixA::Rows { stride } => a[i * stride + k],
                            MatrixA::Columns { stride } => a[k * stride + i],
                        };
                        let y = match self.problem.b {
                            MatrixB::Packed => plain[k * n + j],
                            MatrixB::Rows { stride } => plain[k * stride + j],
                            MatrixB::Columns { stride } => plain[j * stride + k],
                            MatrixB::Blocks(_) => unreachable!("integers are tested with their family"),
                        };
                        sum += f64::from(x) * f64::from(y);
                        magnitude += (f64::from(x) * f64::from(y)).abs();
                    }
                    let at = c + i * c_stride + j;
                    let extra = [self.bias.as_ref().map(|x| x[j]), self.residual.as_ref().map(|x| x[at])];
                    for term in extra.into_iter().flatten() {
                        sum += f64::from(term);
                        magnitude += f64::from(term).abs();
                    }
                    let want = sum.clamp(self.clamp.0.into(), self.clamp.1.into());
                    assert!(
                        (f64::from(got[at]) - want).abs() <= bound(magnitude, k),
                        "{} {shape:?}, product {idx} at ({i}, {j}): {} against {want}",
                        tile.name(),
                        got[at]
                    );
                }
                let gap = &got[c + i * c_stride + n..c + (i + 1) * c_stride];
                assert!(gap.iter().all(|&x| x == UNTOUCHED), "{shape:?} wrote past row {i}");
            }
        }
    }
}

fn tiles() -> Vec<(Isa, Tile)> {
    Isa::available().into_iter().flat_map(|isa| Tile::of(isa).map(move |tile| (isa, tile))).collect()
}

#[test]
fn every_tile_and_route_matches_at_the_edges() {
    for (isa, tile) in tiles() {
        let (mr, nr) = (tile.mr(), tile.nr());
        let mut epilogue = 0;
        for m in [0, 1, 2, 4, 5, mr - 1, mr, mr + 1, 2 * mr + 3] {
            for n in [0, 1, nr - 1, nr, nr + 1, 2 * nr + 5] {
                for k in [0, 1, 7, 31] {
                    for b_form in 0..3 {
                        let a_columns = epilogue % 3 == 1;
                        let shape = Shape { m, n, k, b_form, a_columns, gap: epilogue % 4, ..PLAIN };
                        trial(shape, tile, epilogue).check(isa, tile, shape);
                        epilogue += 1;
                    }
                }
            }
        }
    }
}

/// Sums of several parts, rows that collide in the cache and are copied, and more rows than a task holds.
#[test]
fn long_sums_colliding_rows_and_many_rows_match() {
    for (isa, tile) in tiles() {
        for (m, n, k) in [(29, 37, 1024), (17, 70, 1031), (3, 33, 2048), (613, 20, 5), (300, 33, 64)] {
            for b_form in 0..3 {
                let shape = Shape { m, n, k, b_form, a_columns: m == 17, ..PLAIN };
                trial(shape, tile, b_form + 1).check(isa, tile, shape);
            }
        }
        // Around the longest part of a sum, and the most rows that have it.
        for (m, n, k) in [(5, 50, 767), (5, 50, 768), (5, 50, 769), (213, 17, 768), (214, 17, 768)] {
            let shape = Shape { m, n, k, ..PLAIN };
            trial(shape, tile, 1).check(isa, tile, shape);
        }
    }
}

#[test]
fn batches_and_broadcasts_match() {
    for (isa, tile) in tiles() {
        for batch in [(3, 1), (1, 4), (2, 3), (0, 2)] {
            for b_form in 0..3 {
                for gap in [0, 2] {
                    let shape = Shape { m: 9, n: 21, k: 13, b_form, batch, gap, a_columns: gap == 2 };
                    trial(shape, tile, 7).check(isa, tile, shape);
                }
            }
        }
    }
}

#[test]
fn random_problems_match() {
    let mut random = Random::new(77);
    let mut next = |below: usize| random.below(below);
    let tiles = tiles();
    for round in 0..200 {
        let (isa, tile) = tiles[next(tiles.len())];
        let shape = Shape {
            m: next(70),
            n: next(150),
            k: next(90),
            a_columns: next(3) == 0,
            b_form: next(3),
            batch: (1 + next(2), 1 + next(3)),
            gap: next(3),
        };
        trial(shape, tile, round).check(isa, tile, shape);
    }
}

#[test]
fn a_batch_that_shares_b_becomes_rows() {
    let tile = Tile::usual(Isa::best());
    let shape = Shape { m: 5, n: 8, k: 4, batch: (6, 1), ..PLAIN };
    let plan = GemmPlan::new(trial(shape, tile, 0).problem, Isa::best());
    assert_eq!((plan.problem().m, plan.problem().n_batches()), (30, 1));
}

#[test]
fn blocks_cover_c_once_and_are_final() {
    for (isa, tile) in tiles() {
        for b_form in 0..3 {
            let shape = Shape { m: 100, n: 90, k: 700, b_form, batch: (1, 2), gap: 3, ..PLAIN };
            let trial = trial(shape, tile, 3);
            let seen = Mutex::new(vec![0u8; shape.m * (shape.n + shape.gap) * 2]);
            let hook = |block: &Block| {
                for (i, row) in block.rows.clone().enumerate() {
                    for (j, column) in block.columns.clone().enumerate() {
                        // SAFETY: the block's elements are this task's alone.
                        unsafe { *block.c.add(i * block.c_stride + j) *= 2.0 };
                        let at = (block.batch * shape.m + row) * block.c_stride + column;
                        seen.lock().unwrap()[at] += 1;
                    }
                }
            };
            let hooked = trial.run(isa, tile, &Team::alone(), Some(&hook));
            let plain = trial.run(isa, tile, &Team::alone(), None);
            let seen = seen.into_inner().unwrap();
            for (at, (x, y)) in hooked.iter().zip(&plain).enumerate() {
                let inside = at % (shape.n + shape.gap) < shape.n;
                assert_eq!(seen[at], u8::from(inside));
                assert_eq!(*x, if inside { 2.0 * y } else { UNTOUCHED });
            }
        }
    }
}
