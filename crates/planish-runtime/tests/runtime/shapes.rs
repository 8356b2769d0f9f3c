//! Dynamic shapes: profiles are found, refusals say why, memory stays bounded.

use planish::{Context, View};

use crate::common::{ROW, engine, numbers, small_model};
use crate::profile;

/// Of probabilities: at another batch other kernels may sum in another order.
const TOLERANCE: f32 = 1e-6;

/// Of tanh of sums of 16 products: the reference sums in f64.
const SUM_TOLERANCE: f64 = 1e-5;

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|chunk| f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]))
}

fn run(context: &mut Context, batch: usize) -> Result<Vec<u8>, String> {
    let x = numbers(batch * ROW, 41);
    let outputs = context.run(&[("x", View::new(&[batch, 3, 12, 12], &x).unwrap())]);
    outputs.map(|outputs| outputs.get("y").unwrap().bytes().to_vec()).map_err(|error| error.to_string())
}

#[test]
fn a_size_out_of_range_names_dimension_range_and_profile() {
    let engine = engine(small_model("batch"), &[profile(1, 1, 1), profile(2, 4, 8)]);
    let mut context = engine.context().unwrap();
    let (one, five) = (run(&mut context, 1).unwrap(), run(&mut context, 5).unwrap());
    let error = run(&mut context, 9).unwrap_err();
    assert_eq!(
        error,
        "no profile fits: dimension `batch` is 9, profile 0 allows 1 to 1; dimension `batch` is 9, profile 1 \
         allows 2 to 8; rebuild with a wider profile"
    );
    // Nothing of the refused run is left, and each profile is found again.
    assert!(context.output(0).is_none());
    assert_eq!(run(&mut context, 5).unwrap(), five);
    assert_eq!(run(&mut context, 1).unwrap(), one);
}

#[test]
fn refused_inputs_leave_nothing_behind() {
    let engine = engine(small_model("batch"), &[]);
    let mut context = engine.context().unwrap();
    assert!(context.output(0).is_none() && context.output(9).is_none());
    let right = run(&mut context, 2).unwrap();
    let (floats, bytes) = (vec![0f32; 3 * 10 * 12], vec![0u8; ROW]);
    let narrow = View::new(&[1, 3, 10, 12], &floats).unwrap();
    let wrong_type = View::new(&[1, 3, 12, 12], &bytes).unwrap();
    let flat = View::new(&[3 * 10 * 12], &floats).unwrap();
    let cases: [(&[(&str, View<'_>)], &str); 6] = [
        (&[("x", narrow)], "input `x` has size 10 along axis 2, the model takes 12"),
        (&[("x", wrong_type)], "input `x` is u8, the model takes f32"),
        (&[("x", flat)], "input `x` has shape [360], the model takes [batch,3,12,12]"),
        (&[], "input `x` is missing"),
        (&[("x", narrow), ("x", narrow)], "input `x` was given twice"),
        (&[("z", narrow)], "the model has no input `z`; it has x"),
    ];
    for (inputs, complaint) in cases {
        assert_eq!(context.run(inputs).unwrap_err().to_string(), complaint);
        assert_eq!(run(&mut context, 2).unwrap(), right);
    }
}

#[test]
fn many_sizes_in_a_row_keep_memory_bounded() {
    let engine = engine(small_model("batch"), &[]);
    let mut context = engine.context().unwrap();
    run(&mut context, 100).unwrap();
    let bytes = context.arena_bytes();
    let first = run(&mut context, 1).unwrap();
    for batch in (1..=100).rev() {
        let got = run(&mut context, batch).unwrap();
        assert_eq!(got.len(), batch * 40);
        let near = |(a, b): (f32, f32)| (a - b).abs() <= TOLERANCE;
        assert!(floats(&got[..40]).zip(floats(&first)).all(near), "batch {batch}");
    }
    assert_eq!(context.arena_bytes(), bytes);
    // Sizes seen lately are still there.
    let n_resolved = context.n_resolved();
    run(&mut context, 20).unwrap();
    assert_eq!(context.n_resolved(), n_resolved);
}

/// Layers that are alike share their kernels, not their weights.
#[test]
fn layers_that_are_alike_are_right_at_every_size() {
    let weight = |idx: u64| {
        let bytes = numbers(16 * 16, 50 + idx).into_iter().flat_map(f32::to_le_bytes);
        let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
        format!("const %w{idx}: f32[16,16] = hex \"{hex}\"\n")
    };
    let layer = |idx: u64, from: &str| {
        format!("%m{idx}: f32[batch,16] = MatMul(%{from}, %w{idx})\n%t{idx}: f32[batch,16] = Tanh(%m{idx})\n")
    };
    let layers = layer(0, "x") + &layer(1, "t0") + &layer(2, "t1");
    let weights: String = (0..3).map(weight).collect();
    let graph: planish_ir::Graph =
        format!("graph \"layers\" {{\ninput %x: f32[batch,16]\n{weights}{layers}output %t2\n}}")
            .parse()
            .unwrap();
    let mut context = engine(graph.clone(), &[]).context().unwrap();
    for batch in [1, 2, 3, 7, 16, 33, 2, 1] {
        let x = planish::Tensor::new(&[batch, 16], numbers(batch * 16, batch as u64)).unwrap();
        let expected = planish_ir::interpret(&graph, vec![x.clone().into()]).unwrap();
        let expected = expected[0].as_tensor().unwrap().to_f64s();
        let outputs = context.run(&[("x", View::from(&x))]).unwrap();
        let got = outputs.at(0).unwrap().as_slice::<f32>().unwrap();
        assert_eq!(got.len(), expected.len());
        let near = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs() <= SUM_TOLERANCE;
        assert!(got.iter().zip(&expected).all(near), "batch {batch}");
    }
}
