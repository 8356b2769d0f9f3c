//! Owned buffers: outputs in place, runs beside the caller, errors that surface in `wait`.

use planish::{Bindings, Context, DType, HostBuffer, View};

use crate::common::{ROW, engine, numbers, small_model};
use crate::profile;

fn expected(context: &mut Context, batch: usize, x: &[f32]) -> Vec<f32> {
    let outputs = context.run(&[("x", View::new(&[batch, 3, 12, 12], x).unwrap())]).unwrap();
    outputs.get("y").unwrap().as_slice::<f32>().unwrap().to_vec()
}

fn filled(context: &Context, batch: usize, x: &[f32]) -> HostBuffer {
    let mut buffer = context.input_buffer("x", &[batch, 3, 12, 12]).unwrap();
    buffer.as_mut_slice::<f32>().unwrap().copy_from_slice(x);
    buffer
}

#[test]
fn outputs_land_in_the_callers_buffers() {
    let engine = engine(small_model("batch"), &[profile(1, 2, 4)]);
    let mut context = engine.context().unwrap();
    let x = numbers(2 * ROW, 3);
    let y = expected(&mut context, 2, &x);
    let input = filled(&context, 2, &x);
    // Larger than needed: the sizes become the output's.
    let output = context.output_buffer("y", &[4, 10]).unwrap();
    let place = output.bytes().as_ptr();
    let mut bindings = Bindings::new().input("x", input).output("y", output);
    context.run_bound(&mut bindings).unwrap();
    let output = bindings.get_output("y").unwrap();
    assert_eq!((output.dims(), output.bytes().as_ptr()), (&[2, 10][..], place));
    assert_eq!(output.as_slice::<f32>().unwrap(), y);
    // Another output was not bound and lies in the context.
    assert_eq!(context.output(1).unwrap().dims(), [2, 10]);
    // And a later run does not touch the buffer.
    let other = expected(&mut context, 2, &numbers(2 * ROW, 4));
    assert_ne!(other, y);
    assert_eq!(bindings.get_output("y").unwrap().as_slice::<f32>().unwrap(), y);
}

#[test]
fn a_run_beside_the_caller_gives_its_buffers_back() {
    let engine = engine(small_model("batch"), &[]);
    let mut context = engine.context().unwrap();
    let mut other = engine.context().unwrap();
    let mut bindings = Bindings::new()
        .input("x", context.input_buffer("x", &[1, 3, 12, 12]).unwrap())
        .output("y", context.output_buffer("y", &[1, 10]).unwrap());
    for seed in 0..50 {
        let x = numbers(ROW, seed);
        bindings.input_mut("x").unwrap().as_mut_slice::<f32>().unwrap().copy_from_slice(&x);
        let pending = context.run_async(bindings).unwrap();
        let y = expected(&mut other, 1, &x);
        bindings = pending.wait().unwrap();
        assert_eq!(bindings.get_output("y").unwrap().as_slice::<f32>().unwrap(), y);
    }
}

#[test]
fn errors_surface_in_wait_and_leave_nothing_behind() {
    let engine = engine(small_model("batch"), &[profile(1, 2, 4)]);
    let mut context = engine.context().unwrap();
    let x = numbers(ROW, 5);
    let y = expected(&mut context, 1, &x);
    let too_small = HostBuffer::zeros(DType::F32, &[1]).unwrap();
    let x_of_4 = filled(&context, 4, &numbers(4 * ROW, 1));
    let wrong_type = HostBuffer::zeros(DType::I64, &[4, 10]).unwrap();
    let cases = [
        (Bindings::new().output("y", too_small), "input `x` is missing"),
        (
            Bindings::new().input("x", filled(&context, 1, &x)).output("y", wrong_type),
            "output `y` is f32, its buffer is for i64",
        ),
        (
            Bindings::new().input("x", x_of_4).output("y", context.output_buffer("y", &[1, 10]).unwrap()),
            "output `y` needs 160 bytes here, its buffer has 64",
        ),
        (
            Bindings::new().input("x", context.input_buffer("x", &[9, 3, 12, 12]).unwrap()),
            "dimension `batch` is 9, profile 0 allows 1 to 4",
        ),
    ];
    for (bindings, complaint) in cases {
        let n_buffers = format!("{bindings:?}").matches("HostBuffer").count();
        let (back, result) = context.run_async(bindings).unwrap().wait_with_buffers();
        let error = result.unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
        assert_eq!(format!("{back:?}").matches("HostBuffer").count(), n_buffers);
        assert_eq!(expected(&mut context, 1, &x), y);
    }
    let error = context.input_buffer("z", &[1]).unwrap_err().to_string();
    assert_eq!(error, "the model has no input `z`; it has x");
    let error = context.output_buffer("y", &[1]).unwrap_err().to_string();
    assert_eq!(error, "output `y` has shape [batch,10], not [1]");
}

#[test]
fn handles_that_are_dropped_or_forgotten_do_no_harm() {
    let engine = engine(small_model("batch"), &[]);
    let mut context = engine.context().unwrap();
    let x = numbers(ROW, 6);
    let y = expected(&mut context, 1, &x);
    for idx in 0..20 {
        let bindings = Bindings::new()
            .input("x", filled(&context, 1, &x))
            .output("y", context.output_buffer("y", &[1, 10]).unwrap());
        let pending = context.run_async(bindings).unwrap();
        if idx % 2 == 0 {
            drop(pending);
            assert!(context.output(1).is_some());
        } else {
            std::mem::forget(pending);
        }
        assert_eq!(expected(&mut context, 1, &x), y);
    }
    // A context that goes while its run is under way waits for it.
    let bindings = Bindings::new().input("x", filled(&context, 1, &x));
    std::mem::forget(context.run_async(bindings).unwrap());
    drop(context);
}
