//! Faults that any kernel may have, planted in every family, and faults that show in one circumstance alone.

use planish_testing::models;

use crate::faulty::{Launch, Spoil};
use crate::table::{FAMILIES, FAULTS, Fault, Model, fault, previous_run, stale_workspace};

/// Kind, name, and what is done to a launch.
type Everywhere = (&'static str, &'static str, fn(&mut Launch));

/// Planted in every family of kernels.
const EVERYWHERE: &[Everywhere] = &[
    ("one wrong element", "one element a tenth too large", |l| one(l, 0.382, |x| x * 1.1 + 0.01)),
    ("one wrong element", "one element is its neighbour", |l| {
        let at = place(l, 0.71);
        let next = (0..l.out.len()).map(|k| (at + k) % l.out.len()).find(|&k| l.out[k] != l.out[at]);
        l.out[at] = next.map_or(l.out[at] + 1.0, |next| l.out[next]);
    }),
    ("NaN", "one element is NaN", |l| one(l, 0.618, |_| f32::NAN)),
    ("garbage", "one element is 1e30", |l| one(l, 0.236, |_| 1e30)),
    ("garbage", "one element is infinite", |l| one(l, 0.854, |_| f32::INFINITY)),
    ("not written", "nothing is written", |l| l.out.clone_from(&l.before)),
    ("tail of a tile", "the last element is zero", |l| {
        let last = l.out.len() - 1;
        l.out[last] = if l.out[last] == 0.0 { 1.0 } else { 0.0 };
    }),
];

/// Those that show in one circumstance alone.
const SPECIAL: &[Fault] = &[
    // A fused step of three convolutions.
    fault(
        "fused bottleneck",
        "the last channels narrowed without the depthwise part",
        models::bottleneck,
        "bottleneck",
        |l| {
            l.each(|p, x| if p[1] >= 16 { x * 0.9 } else { x });
        },
    ),
    fault("fused bottleneck", "one pixel at the lower border", models::bottleneck, "bottleneck", |l| {
        l.each(|p, x| if p[2] == 45 && p[3] == 13 { x + 0.01 } else { x });
    }),
    fault("fused bottleneck", "the activation between left out", models::bottleneck, "bottleneck", |l| {
        let other = l.by(|region| {
            for constant in &mut region.constants {
                if constant.to_f64s() == [6.0] {
                    *constant = planish_tensor::Tensor::scalar(100.0f32);
                }
                if constant.to_f64s() == [0.0] {
                    *constant = planish_tensor::Tensor::scalar(-100.0f32);
                }
            }
        });
        l.take(&other, |_| true);
    }),
    fault(
        "fused bottleneck",
        "workspace of the tile before",
        models::bottleneck,
        "bottleneck",
        stale_workspace,
    ),
    // Integers.
    fault("integers above 1", "rows after the second are the second", models::gather, "pick", |l| {
        rows_where(l, |index| index > 1);
    }),
    fault("integers above 1", "numbers above 1 become 1", models::cast, "pointwise", |l| {
        l.each(|_, x| x.min(0.5));
    }),
    fault("integers above 1", "bytes beyond 127 wrap", models::cast, "pointwise", |l| {
        l.each(|_, x| if x > 63.0 { x - 128.0 } else { x });
    }),
    fault("negative indices", "indices from the end are taken for the first", models::gather, "pick", |l| {
        rows_where(l, |index| index < 0);
    }),
    fault("negative indices", "numbers below zero lose their sign", models::cast, "pointwise", |l| {
        l.each(|_, x| x.abs());
    }),
    // Values that are hard.
    fault("infinity", "infinity becomes the largest number", models::relu, "pointwise", |l| {
        l.each(|_, x| if x.is_infinite() { f32::MAX } else { x });
    }),
    fault("infinity", "NaN at infinity", models::rows, "pointwise", |l| {
        let input = l.inputs[0].clone().unwrap().to_f64s();
        let mut values = input.iter();
        l.each(|_, x| if values.next().unwrap().is_infinite() { f32::NAN } else { x });
    }),
    fault("infinity", "infinity lost in a window", models::max_pool, "pool", |l| {
        l.each(|_, x| if x.is_infinite() { 0.0 } else { x });
    }),
    fault("infinity", "infinity lost on the way", models::transpose, "move", |l| {
        l.each(|_, x| if x.is_infinite() { 0.0 } else { x });
    }),
    fault("denormals", "flushed to zero", models::relu, "pointwise", flushed),
    fault("denormals", "flushed to zero", models::max_pool, "pool", flushed),
    fault("denormals", "flushed to zero", models::transpose, "move", flushed),
    fault("denormals", "flushed to zero", models::concat, "move", flushed),
    fault("large values", "the largest number becomes infinite", models::relu, "pointwise", |l| {
        l.each(|_, x| if x == f32::MAX { f32::INFINITY } else { x });
    }),
    fault("large values", "the largest number becomes infinite", models::concat, "move", |l| {
        l.each(|_, x| if x.abs() == f32::MAX { f32::INFINITY } else { x });
    }),
    fault("NaN", "NaN is not the largest of a window", models::max_pool, "pool", |l| {
        l.each(|_, x| if x.is_nan() { 0.0 } else { x });
    }),
    fault("NaN", "NaN lost in a row", models::layer_norm, "norm", |l| {
        l.each(|_, x| if x.is_nan() { 0.0 } else { x });
    }),
    fault("NaN", "NaN lost in a mean", models::reduce, "reduce", |l| {
        l.each(|_, x| if x.is_nan() { 0.0 } else { x });
    }),
    fault("NaN", "NaN lost in a row", models::softmax, "softmax", |l| {
        l.each(|_, x| if x.is_nan() { 0.0 } else { x });
    }),
    fault("masks", "NaN where a key is hidden by minus infinity", models::masked, "attention", |l| {
        let hides = l.inputs[3].as_ref().is_some_and(|mask| mask.to_f64s().contains(&f64::NEG_INFINITY));
        l.each(|p, x| if hides && p[2] == 3 { f32::NAN } else { x });
    }),
    fault("masks", "minus infinity counts as a small number", models::masked, "attention", |l| {
        let other = l.instead(3, |_, x| x.max(-1.0));
        l.take(&other, |_| true);
    }),
    fault("masks", "the mask of the row before", models::masked, "attention", |l| {
        let mask = l.inputs[3].clone().unwrap().to_f64s();
        let other = l.instead(3, |p, _| mask[p[0].saturating_sub(1) * 23 + p[1]] as f32);
        l.take(&other, |_| true);
    }),
    // Sizes.
    fault("second profile", "wrong at its largest size", models::two_profiles, "gemm", |l| at_rows(l, 13)),
    fault("second profile", "wrong at its smallest size", models::two_profiles, "gemm", |l| at_rows(l, 8)),
    fault("second profile", "wrong at its preferred size", models::two_profiles, "gemm", |l| at_rows(l, 11)),
    fault("second profile", "wrong at the largest size of the first", models::two_profiles, "gemm", |l| {
        at_rows(l, 4)
    }),
    fault("one size only", "wrong for more rows than it was tuned at", models::open_rows, "gemm", |l| {
        let more = l.dims[0] > 1;
        l.each(|p, x| if more && p[1] == 5 { 0.0 } else { x });
    }),
    fault("one size only", "wrong for an odd number of rows", models::open_rows, "gemm", |l| {
        let odd = l.dims[0] > 1 && l.dims[0] % 2 == 1;
        l.each(|p, x| if odd && p[0] + 1 == 3 { x + 1.0 } else { x });
    }),
    // Bodies.
    fault("loop body", "a column is zero", models::loop_body, "gemm", |l| column(l, 17)),
    fault("loop body", "one element", models::loop_body, "gemm", |l| one(l, 0.5, |x| x + 0.1)),
    fault("loop body", "NaN", models::loop_body, "gemm", |l| one(l, 0.9, |_| f32::NAN)),
    fault("loop body", "wrong from the second trip on", models::loop_body, "gemm", |l| {
        if l.n_before > 0 {
            column(l, 3);
        }
    }),
    fault("scan body", "a column is zero", models::scan_body, "gemm", |l| column(l, 17)),
    fault("scan body", "one element", models::scan_body, "gemm", |l| one(l, 0.5, |x| x + 0.1)),
    fault("branch of an If", "a column of the first is zero", models::branches, "softmax", |l| column(l, 69)),
    fault("branch of an If", "one element of the first", models::branches, "softmax", |l| {
        one(l, 0.3, |x| x + 0.1)
    }),
    fault("branch of an If", "a column of the second is zero", models::branches, "norm", |l| column(l, 69)),
    fault("branch of an If", "one element of the second", models::branches, "norm", |l| {
        one(l, 0.3, |x| x + 0.1)
    }),
    // State.
    fault("stale workspace", "read before it is written", models::large_conv, "conv_igemm", stale_workspace),
    fault("stale workspace", "read before it is written", models::gemm, "gemm", stale_workspace),
    fault("state kept between runs", "the first element", models::softmax, "softmax", previous_run),
    fault("state kept between runs", "the first element", models::pointwise, "pointwise", previous_run),
];

/// Every planted fault.
pub(crate) fn all() -> Vec<Fault> {
    let mut all = [FAULTS, SPECIAL].concat();
    for &(model, tactic) in FAMILIES {
        all.extend(EVERYWHERE.iter().map(|everywhere| planted(everywhere, model, tactic)));
    }
    all
}

/// Those of one circumstance or one family, and for each family one of those that any may have: what a minute allows.
pub(crate) fn some() -> Vec<Fault> {
    let mut some = [FAULTS, SPECIAL].concat();
    for (number, &(model, tactic)) in FAMILIES.iter().enumerate() {
        some.push(planted(&EVERYWHERE[number % EVERYWHERE.len()], model, tactic));
    }
    some
}

fn planted(&(kind, name, spoil): &Everywhere, model: Model, tactic: &'static str) -> Fault {
    Fault { kind, name, model, tactic, spoil: Spoil::Launch(spoil) }
}

/// The element at a share of the output.
fn place(launch: &Launch, share: f64) -> usize {
    ((launch.out.len() as f64 * share) as usize).min(launch.out.len() - 1)
}

fn one(launch: &mut Launch, share: f64, change: fn(f32) -> f32) {
    let at = place(launch, share);
    launch.out[at] = change(launch.out[at]);
}

/// A column of a matrix becomes zero.
fn column(launch: &mut Launch, column: usize) {
    launch.each(|p, x| if p[p.len() - 1] == column { 0.0 } else { x });
}

/// Wrong for so many rows alone.
fn at_rows(launch: &mut Launch, n_rows: usize) {
    if launch.dims[0] == n_rows {
        column(launch, 40);
    }
}

/// Rows of a table whose number is such become the first.
fn rows_where(launch: &mut Launch, is_wrong: fn(i64) -> bool) {
    let indices = launch.inputs[1].clone().unwrap().to_i64s();
    let table = launch.inputs[0].clone().unwrap().to_f64s();
    launch.each(|p, x| if is_wrong(indices[p[0]]) { table[p[1]] as f32 } else { x });
}

fn flushed(launch: &mut Launch) {
    launch.each(|_, x| if x.abs() < f32::MIN_POSITIVE { 0.0 } else { x });
}
