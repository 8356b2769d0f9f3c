//! Pipelines against their engines run one by one.

use planish_ir::Graph;
use planish_tensor::Tensor;
use planish_testing::Random;

use crate::{Builder, Device, Engine, Error, ErrorKind, Pipeline, View};

fn engine(text: &str) -> Engine {
    let builder = Builder::from_graph(text.parse::<Graph>().unwrap()).device(Device::Cpu);
    Engine::new(builder.tune_level(0).threads(1).build().unwrap(), Device::Cpu).unwrap()
}

fn run(engine: &Engine, inputs: &[(&str, &Tensor)]) -> Tensor {
    let mut context = engine.context().unwrap();
    let views: Vec<(&str, View<'_>)> =
        inputs.iter().map(|(name, tensor)| (*name, View::from(*tensor))).collect();
    context.run(&views).unwrap().at(0).unwrap().to_tensor()
}

/// A chain of several steps, so that each stage has an arena of its own.
fn chain(name: &str, ops: &[&str]) -> Engine {
    let mut text = format!("graph \"{name}\" {{ input %x: f32[n,c] ");
    let mut last = "x".to_string();
    for (at, op) in ops.iter().enumerate() {
        text += &format!("%v{at}: f32[n,c] = {op}(%{last}) ");
        last = format!("v{at}");
    }
    engine(&(text + &format!("output %{last} }}")))
}

#[test]
fn branches_loops_and_threads_give_what_engines_alone_give() {
    let one = chain("one", &["Softmax", "Neg", "Softmax"]);
    let two = chain("two", &["Exp", "Softmax", "Neg"]);
    let both = engine(
        r#"graph "both" { input %a: f32[n,c] input %b: f32[n,c] %y: f32[n,c] = Sub(%a, %b) output %y }"#,
    );
    let pipeline = Pipeline::builder()
        .input("x")
        .stage("one", &one, &[("x", "x")])
        .stage("two", &two, &[("x", "x")])
        .repeat(3, |trip| {
            trip.stage("both", &both, &[("a", "one.v2"), ("b", "two.v2")])
                .stage("again", &two, &[("x", "both.y")])
                .carry("one.v2", "again.v2")
        })
        .stage("last", &both, &[("a", "one.v2"), ("b", "x")])
        .output("y", "last.y")
        .output("side", "two.v2")
        .contexts(2)
        .build()
        .unwrap();
    let expected = |x: &Tensor| {
        let (mut left, right) = (run(&one, &[("x", x)]), run(&two, &[("x", x)]));
        for _ in 0..3 {
            let y = run(&both, &[("a", &left), ("b", &right)]);
            left = run(&two, &[("x", &y)]);
        }
        (run(&both, &[("a", &left), ("b", x)]), right)
    };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (pipeline, expected) = (&pipeline, &expected);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for turn in 0..6 {
                    let x = random.floats(&[1 + turn % 3, 5]);
                    let got = pipeline.run(&[("x", View::from(&x))]).unwrap();
                    let (y, side) = expected(&x);
                    assert_eq!((&got[0].1, &got[1].1), (&y, &side), "thread {thread}, turn {turn}");
                }
            });
        }
    });
    for proof in pipeline.proofs(&[("x", &[2, 5])]).unwrap() {
        let sum: usize = proof.pieces.iter().map(|piece| piece.4).sum();
        assert!(proof.n_pairs > 0 && proof.bytes > 0, "{proof}");
        assert!(proof.to_string().contains("none of them overlaps"), "{proof}");
        assert!(sum > 0);
    }
}

#[test]
fn memory_is_shared_by_what_does_not_meet() {
    let stage = chain("stage", &["Softmax", "Neg"]);
    let mut said = Pipeline::builder().input("x").stage("s0", &stage, &[("x", "x")]);
    for at in 1..8 {
        said = said.stage(&format!("s{at}"), &stage, &[("x", &format!("s{}.v1", at - 1))]);
    }
    let pipeline = said.output("y", "s7.v1").build().unwrap();
    let proofs = pipeline.proofs(&[("x", &[64, 256])]).unwrap();
    let [proof] = &proofs[..] else { panic!("one memory, not {proofs:?}") };
    let one = 64 * 256 * 4;
    let sum: usize = proof.pieces.iter().map(|piece| piece.4).sum();
    let steps = proof
        .pieces
        .iter()
        .filter(|piece| piece.0.starts_with("between"))
        .map(|piece| piece.4)
        .max()
        .unwrap();
    // The input, two values between stages, and what lies between the steps of one stage; not those of all eight.
    assert!(sum >= 9 * one && proof.bytes <= 3 * one + steps, "{proof}");
}

#[test]
fn what_is_wrong_names_the_stage() {
    let stage = chain("stage", &["Softmax"]);
    let said = || Pipeline::builder().input("x").stage("first", &stage, &[("x", "x")]);
    for (said, why) in [
        (said().output("y", "first.z"), "which nothing gives"),
        (said(), "has an output"),
        (
            said().stage("second", &stage, &[("x", "nowhere")]).output("y", "first.v0"),
            "stage `second` reads `nowhere`",
        ),
        (
            said().stage("second", &stage, &[]).output("y", "first.v0"),
            "stage `second`: input `x` is fed by no value",
        ),
        (
            said().stage("second", &stage, &[("x", "x"), ("z", "x")]).output("y", "first.v0"),
            "has no input `z`",
        ),
        (said().stage("first", &stage, &[("x", "x")]).output("y", "first.v0"), "two values are called"),
        (said().carry("x", "first.v0").output("y", "first.v0"), "in loops alone"),
        (said().repeat(2, |trip| trip.carry("x", "first.v0")).output("y", "first.v0"), "is not that"),
    ] {
        let error = said.build().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let both = engine(
        r#"graph "both" { input %a: f32[n,4] input %b: f32[n,4] %y: f32[n,4] = Add(%a, %b) output %y }"#,
    );
    let fails =
        |_: usize, _: &[Tensor]| -> Result<Vec<Tensor>, Error> { Err(Error::new(ErrorKind::Failed, "no")) };
    let pipeline = said()
        .host("work", &["first.v0"], &[("z", "first.v0")], fails)
        .stage("sum", &both, &[("a", "work.z"), ("b", "x")])
        .output("y", "sum.y")
        .build()
        .unwrap();
    let x = Tensor::new(&[1, 4], vec![0f32; 4]).unwrap();
    let error = pipeline.run(&[("x", View::from(&x))]).unwrap_err().to_string();
    assert!(error.contains("stage `work`"), "{error}");
    let x = Tensor::new(&[1, 5], vec![0f32; 5]).unwrap();
    let error = pipeline.run(&[("x", View::from(&x))]).unwrap_err().to_string();
    assert!(error.contains("stage `sum`"), "{error}");
    assert!(pipeline.run(&[]).unwrap_err().to_string().contains("input `x` is missing"));
}
