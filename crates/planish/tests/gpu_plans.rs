//! Whole plans on a GPU where steps of the host lie between: sizes that only a run can tell, and control flow whose
//! bodies run on the device. Held against the interpreter, at different contents of the same sizes and at other sizes.
//! And runs that overlap with each other's copies, and a network of 8-bit integers.
//!
//! Every test runs on the CPU and on the first GPU; without one the latter are ignored, and say why. The binary runs
//! alone: carry it to a machine with a GPU and start it there.

mod harness;

use std::process::ExitCode;

use libtest_mimic::Arguments;
use planish::{
    Bindings, Builder, CalibrationBuilder, Device, Engine, EngineOptions, ErrorKind, Model, Precision, Sample,
};
use planish_ir::{Graph, interpret};
use planish_op::Value;
use planish_plan::{Program, StepKind};
use planish_tensor::Tensor;
use planish_testing::{Random, models};

use harness::{on_cpu, on_gpu};

/// Sums of some hundred products in f32 on the device, in f64 in the interpreter.
const TOLERANCE: f64 = 2e-5;
/// At the first run steps are launched, at the second captured, from then on replayed.
const N_RUNS: usize = 3;

/// A name, and a test that is handed the device.
type Test = (&'static str, fn(Device));

const TESTS: [Test; 7] = [
    (
        "a_convolution_whose_positive_elements_are_gathered",
        a_convolution_whose_positive_elements_are_gathered,
    ),
    ("rows_that_a_mask_keeps_go_through_a_product", rows_that_a_mask_keeps_go_through_a_product),
    ("boxes_that_suppression_keeps_are_gathered", boxes_that_suppression_keeps_are_gathered),
    ("a_branch_runs_on_the_device", a_branch_runs_on_the_device),
    ("a_loop_carries_what_its_body_makes_on_the_device", a_loop_carries_what_its_body_makes_on_the_device),
    ("a_scan_runs_its_body_on_the_device", a_scan_runs_its_body_on_the_device),
    ("runs_of_a_pipeline_have_their_own_results", runs_of_a_pipeline_have_their_own_results),
];

fn main() -> ExitCode {
    let mut trials = vec![
        on_cpu("a_gpu_that_is_not_there_is_said_so", |_| a_gpu_that_is_not_there_is_said_so()),
        on_gpu("plans_name_the_gpu_and_errors_those_that_are_there", |_| plans_and_errors_name_the_gpu()),
        on_gpu("weights_beyond_a_budget_are_streamed_with_the_same_bits", |device| {
            weights_beyond_a_budget_are_streamed_with_the_same_bits(device)
        }),
        on_gpu("integers_of_a_gpu_are_as_near_as_those_of_a_cpu", |device| {
            as_near_as_on_a_cpu(device, Precision::Int8, INT8_DISTANCE)
        }),
        on_gpu("floats_of_8_bits_of_a_gpu_are_as_near_as_those_of_a_cpu", |device| {
            as_near_as_on_a_cpu(device, Precision::Fp8, FP8_DISTANCE)
        }),
    ];
    for (name, test) in TESTS {
        trials.extend([on_cpu(name, test), on_gpu(name, test)]);
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Relative L2 between outputs of ResNet-18 in INT8 by two backends, whose integers have 7 and 8 bits beside the sign, and
/// of either against FP32. Weights are random, which is harsher than trained ones.
const INT8_DISTANCE: f64 = 0.1;
/// The same of floats of 8 bits, which have three bits of mantissa: each value is off by up to 6 %.
const FP8_DISTANCE: f64 = 0.2;

/// ResNet-18 with random weights in 8 bits: its layers are of them on the device, and its outputs are about as far from FP32
/// as those of the CPU's numbers of 8 bits.
fn as_near_as_on_a_cpu(device: Device, precision: Precision, most: f64) {
    let model = || Model::from(planish_zoo::graph("resnet18_224", 0).unwrap());
    let samples: Vec<Result<Sample, planish::Error>> = (0..4)
        .map(|seed| Ok(Sample::new(vec![("x".to_string(), random(&[1, 3, 224, 224], seed))], 1)))
        .collect();
    let calibration = CalibrationBuilder::from_model(model()).device(Device::Cpu).run(samples).unwrap();
    let input = [Value::Tensor(random(&[2, 3, 224, 224], 9))];
    let wanted = precision.arithmetic();
    let run = |device: Device, precision: Precision| {
        let mut builder = Builder::from_model(model()).device(device).precision(precision).tune_level(0);
        if precision.quantizes() {
            builder = builder.calibration(&calibration).unwrap();
        }
        let plan = builder.build().unwrap();
        let is_low = |step: &&planish_plan::Step| step.numeric.element == wanted;
        let n_low = plan.record().program.steps.iter().filter(is_low).count();
        // A CPU multiplies no floats of 8 bits.
        let is_here = precision == Precision::Int8 || (precision == Precision::Fp8 && device != Device::Cpu);
        assert_eq!(n_low, if is_here { 19 } else { 0 }, "{device}");
        let mut context = Engine::new(plan, device).unwrap().context().unwrap();
        context.run_values(&input).unwrap()[0].as_tensor().unwrap().to_f64s()
    };
    let floats = run(Device::Cpu, Precision::Fp32);
    let distance = |got: &[f64]| {
        let square = |of: &mut dyn Iterator<Item = f64>| of.map(|x| x * x).sum::<f64>();
        let apart = square(&mut got.iter().zip(&floats).map(|(a, b)| a - b));
        (apart / square(&mut floats.iter().copied())).sqrt()
    };
    let [host, gpu] = [Device::Cpu, device].map(|device| distance(&run(device, precision)));
    println!("from FP32: {host:.4} on the CPU, {gpu:.4} on {device}");
    assert!(host <= most && gpu <= most, "{host} and {gpu}");
}

/// Numbers between -1 and 1.
fn random(shape: &[usize], seed: u64) -> Tensor {
    Random::new(seed).floats(shape)
}

/// As many numbers as text, for a constant.
fn numbers(n: usize, seed: u64) -> String {
    let values = random(&[n], seed).to_f64s();
    values.iter().map(|value| format!("{value:e}")).collect::<Vec<_>>().join(", ")
}

/// Steps on the device, transfers left out, in bodies alone where `inside`.
fn n_on_device(program: &Program, inside: bool) -> usize {
    let own = |step: &planish_plan::Step| step.target != 0 && !matches!(step.kind, StepKind::Transfer);
    let here = if inside { 0 } else { program.steps.iter().filter(|step| own(step)).count() };
    let below: usize = program
        .steps
        .iter()
        .map(|step| match &step.kind {
            StepKind::Control(control) => control.bodies.iter().map(|body| n_on_device(body, false)).sum(),
            _ => 0,
        })
        .sum();
    here + below
}

#[track_caller]
fn assert_near(got: &[Value], want: &[Value]) {
    assert_eq!(got.len(), want.len());
    for (idx, (got, want)) in got.iter().zip(want).enumerate() {
        let (got, want) = (got.as_tensor().unwrap(), want.as_tensor().unwrap());
        assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "output {idx}");
        for (at, (x, y)) in got.to_f64s().into_iter().zip(want.to_f64s()).enumerate() {
            assert!((x - y).abs() <= TOLERANCE * y.abs().max(1.0), "output {idx} at {at}: {x} against {y}");
        }
    }
}

/// Builds the model and runs it on every set of inputs in turns, in one context; `inside` if steps of bodies must be on
/// the device.
#[track_caller]
fn check(device: Device, text: &str, sets: &[Vec<Value>], inside: bool) {
    let graph: Graph = text.parse().unwrap();
    let mut builder = Builder::from_graph(graph.clone()).device(device).tune_level(0).threads(2);
    // The sizes are those of tests: it would be cheaper on the host.
    builder.options_mut().price_transfers = false;
    let plan = builder.build().unwrap();
    let program = &plan.record().program;
    let n_steps = n_on_device(program, inside);
    assert!(device == Device::Cpu || n_steps > 0, "nothing runs on {device}");
    let is_on_host =
        |step: &planish_plan::Step| !matches!(step.kind, StepKind::Kernel { .. } | StepKind::Transfer);
    assert!(program.steps.iter().any(is_on_host), "nothing of this is for the host to settle");
    let engine = Engine::new(plan, device).unwrap();
    let mut context = engine.context().unwrap();
    let expected: Vec<Vec<Value>> = sets.iter().map(|set| interpret(&graph, set.clone()).unwrap()).collect();
    for _ in 0..N_RUNS {
        for (set, expected) in sets.iter().zip(&expected) {
            assert_near(&context.run_values(set).unwrap(), expected);
        }
    }
    // Once more, each of them until it is replayed, and in a second context beside the first.
    let mut other = engine.context().unwrap();
    for (set, expected) in sets.iter().zip(&expected) {
        for _ in 0..N_RUNS {
            assert_near(&context.run_values(set).unwrap(), expected);
            assert_near(&other.run_values(set).unwrap(), expected);
        }
    }
}

fn tensor(tensor: Tensor) -> Value {
    Value::Tensor(tensor)
}

fn images(seeds: &[u64]) -> Vec<Vec<Value>> {
    seeds.iter().map(|&seed| vec![tensor(random(&[1, 3, 10, 12], seed))]).collect()
}

fn a_convolution_whose_positive_elements_are_gathered(device: Device) {
    let text = format!(
        r#"graph "g" {{
            input %x: f32[1, 3, 10, 12]
            const %w: f32[8, 3, 3, 3] = [{}]
            %c: f32[1, 8, 8, 10] = Conv(%x, %w) {{ kernel_shape = [3, 3] }}
            %r: f32[1, 8, 8, 10] = Relu(%c)
            %n: i64[4, "n'0"] = NonZero(%r)
            %t: i64["n'0", 4] = Transpose(%n) {{ perm = [1, 0] }}
            %g: f32["n'0"] = GatherND(%r, %t)
            %e: f32["n'0"] = Exp(%g)
            %s: f32["n'0"] = Mul(%e, %g)
            output %s, %t, %r
        }}"#,
        numbers(8 * 27, 5)
    );
    check(device, &text, &images(&[1, 2, 3]), false);
}

fn rows_that_a_mask_keeps_go_through_a_product(device: Device) {
    let text = format!(
        r#"graph "g" {{
            input %x: f32[40, 16]
            const %w: f32[16, 24] = [{}]
            const %axis: i64[1] = [1]
            const %least: f32[] = 0
            %m: f32[40] = ReduceSum(%x, %axis) {{ keepdims = false }}
            %k: bool[40] = Greater(%m, %least)
            %c: f32["n'0", 16] = Compress(%x, %k) {{ axis = 0 }}
            %p: f32["n'0", 24] = MatMul(%c, %w)
            %r: f32["n'0", 24] = Relu(%p)
            %y: f32["n'0", 24] = Softmax(%r) {{ axis = -1 }}
            output %y
        }}"#,
        numbers(16 * 24, 6)
    );
    let set = |seed| vec![tensor(random(&[40, 16], seed))];
    // Nothing kept at all, too.
    let none = vec![tensor(Tensor::new(&[40, 16], vec![-1.0f32; 640]).unwrap())];
    check(device, &text, &[set(1), set(2), none, set(3)], false);
}

fn boxes_that_suppression_keeps_are_gathered(device: Device) {
    let text = r#"graph "g" {
        input %boxes: f32[1, 24, 4]
        input %scores: f32[1, 2, 24]
        const %most: i64[] = 5
        const %overlap: f32[] = 0.4
        const %least: f32[] = 0.1
        const %third: i64[] = 2
        %s: f32[1, 2, 24] = Sigmoid(%scores)
        %i: i64["n'0", 3] = NonMaxSuppression(%boxes, %s, %most, %overlap, %least)
        %b: i64["n'0"] = Gather(%i, %third) { axis = 1 }
        %g: f32[1, "n'0", 4] = Gather(%boxes, %b) { axis = 1 }
        %y: f32[1, "n'0", 4] = Mul(%g, %g)
        output %y, %i
    }"#;
    let set = |seed: u64| {
        let corners = random(&[1, 24, 4], seed).to_f64s();
        let boxes = corners.chunks(4).flat_map(|c| {
            let (y, x) = (c[0] as f32, c[1] as f32);
            [y, x, y + 0.3 + c[2].abs() as f32, x + 0.3 + c[3].abs() as f32]
        });
        let boxes = Tensor::new(&[1, 24, 4], boxes.collect()).unwrap();
        vec![tensor(boxes), tensor(random(&[1, 2, 24], seed + 50))]
    };
    check(device, text, &[set(1), set(2), set(3)], false);
}

fn a_branch_runs_on_the_device(device: Device) {
    let text = format!(
        r#"graph "g" {{
            input %x: f32[1, 3, 10, 12]
            input %c: bool[]
            const %w: f32[8, 3, 3, 3] = [{}]
            %a: f32[1, 8, 8, 10] = Conv(%x, %w) {{ kernel_shape = [3, 3] }}
            %y: f32[1, 8, 8, 10] = If(%c; %a) [
                graph "then" {{
                    input %a: f32[1, 8, 8, 10]
                    const %v: f32[8, 8, 1, 1] = [{}]
                    %b: f32[1, 8, 8, 10] = Conv(%a, %v) {{ kernel_shape = [1, 1] }}
                    %r: f32[1, 8, 8, 10] = Relu(%b)
                    output %r
                }},
                graph "else" {{
                    input %a: f32[1, 8, 8, 10]
                    %t: f32[1, 8, 8, 10] = Tanh(%a)
                    output %t
                }}
            ]
            %z: f32[1, 8, 8, 10] = Add(%y, %a)
            output %z
        }}"#,
        numbers(8 * 27, 7),
        numbers(64, 8)
    );
    let sets: Vec<Vec<Value>> = images(&[1, 2, 3, 4])
        .into_iter()
        .enumerate()
        .map(|(idx, mut set)| {
            set.push(tensor(Tensor::new(&[], vec![idx % 3 != 1]).unwrap()));
            set
        })
        .collect();
    check(device, &text, &sets, true);
}

fn a_loop_carries_what_its_body_makes_on_the_device(device: Device) {
    let text = models::loop_of_products(6, 16, &numbers(256, 9), "Tanh");
    let set = |n: i64, seed| vec![tensor(Tensor::new(&[], vec![n]).unwrap()), tensor(random(&[6, 16], seed))];
    check(device, &text, &[set(3, 1), set(1, 2), set(0, 3), set(7, 4)], true);
}

fn a_scan_runs_its_body_on_the_device(device: Device) {
    let text = format!(
        r#"graph "g" {{
            input %h: f32[4, 8]
            input %x: f32[t, 4, 8]
            const %w: f32[8, 8] = [{}]
            %last: f32[4, 8], %all: f32[t, 4, 8] = Scan(%h, %x; %w) {{ num_scan_inputs = 1 }} [
                graph "step" {{
                    input %h: f32[4, 8]
                    input %x: f32[4, 8]
                    input %w: f32[8, 8]
                    %p: f32[4, 8] = MatMul(%h, %w)
                    %s: f32[4, 8] = Add(%p, %x)
                    %t: f32[4, 8] = Sigmoid(%s)
                    output %t, %t
                }}
            ]
            output %last, %all
        }}"#,
        numbers(64, 10)
    );
    let set = |t: usize, seed| vec![tensor(random(&[4, 8], seed)), tensor(random(&[t, 4, 8], seed + 9))];
    check(device, &text, &[set(5, 1), set(2, 2), set(5, 3)], true);
}

fn a_gpu_that_is_not_there_is_said_so() {
    let error = Device::Cuda(99).describe().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Lacking, "{error}");
    assert!(error.to_string().starts_with("cuda:99 cannot be used: "), "{error}");
}

fn plans_and_errors_name_the_gpu() {
    let text = Device::Cuda(99).describe().unwrap_err().to_string();
    assert!(text.contains("cuda:0"), "{text}");
    let first = Device::Cuda(0).describe().unwrap();
    // What a plan says that it was built for.
    let graph: Graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Exp(%x) output %y }"#.parse().unwrap();
    let plan = Builder::from_graph(graph).device("cuda".parse().unwrap()).tune_level(0).build().unwrap();
    let targets = &plan.record().header.targets;
    assert!(targets.iter().any(|target| target.backend == "cuda" && target.device == first), "{targets:?}");
}

fn runs_of_a_pipeline_have_their_own_results(device: Device) {
    let text = format!(
        r#"graph "g" {{
            input %x: f32[n, 16, 64, 64]
            const %v: f32[16, 16, 3, 3] = [{}]
            const %w: f32[16, 16, 3, 3] = [{}]
            %a: f32[n, 16, 64, 64] = Conv(%x, %v) {{ kernel_shape = [3, 3], pads = [1, 1, 1, 1] }}
            %b: f32[n, 16, 64, 64] = Relu(%a)
            %y: f32[n, 16, 64, 64] = Conv(%b, %w) {{ kernel_shape = [3, 3], pads = [1, 1, 1, 1] }}
            output %y
        }}"#,
        numbers(16 * 16 * 9, 1),
        numbers(16 * 16 * 9, 2)
    );
    let graph: Graph = text.parse().unwrap();
    let builder = Builder::from_graph(graph.clone()).device(device).tune_level(0).threads(2);
    let engine = Engine::new(builder.build().unwrap(), device).unwrap();
    let (mut context, mut other) = (engine.context().unwrap(), engine.context().unwrap());
    // Megabytes, so that copies last as long as kernels; sizes change now and then.
    let given: Vec<Tensor> =
        (0..40).map(|at| random(&[if at % 13 == 12 { 3 } else { 8 }, 16, 64, 64], at)).collect();
    let mut ready = Vec::new();
    for tensor in &given {
        let mut x = context.input_buffer("x", tensor.shape()).unwrap();
        x.bytes_mut().copy_from_slice(tensor.bytes());
        let y = context.output_buffer("y", tensor.shape()).unwrap();
        ready.push(Bindings::new().input("x", x).output("y", y));
    }
    let mut pipeline = context.pipeline().unwrap();
    let mut done = Vec::new();
    for bindings in ready {
        done.extend(pipeline.push(bindings).unwrap());
    }
    while let Some(last) = pipeline.pop().unwrap() {
        done.push(last);
    }
    drop(pipeline);
    assert_eq!(done.len(), given.len());
    for (at, (done, given)) in done.iter().zip(&given).enumerate() {
        let alone = other.run_values(&[tensor(given.clone())]).unwrap();
        let y = done.get_output("y").unwrap();
        let alone = alone[0].as_tensor().unwrap().bytes();
        assert!(y.bytes() == &alone[..], "run {at} has another result than alone");
    }
    let small = random(&[1, 16, 64, 64], 77);
    let want = interpret(&graph, vec![tensor(small.clone())]).unwrap()[0].as_tensor().unwrap().to_f64s();
    let got = context.run_values(&[tensor(small)]).unwrap()[0].as_tensor().unwrap().to_f64s();
    let squares = |list: &mut dyn Iterator<Item = f64>| list.map(|x| x * x).sum::<f64>();
    let apart = squares(&mut got.iter().zip(&want).map(|(got, want)| got - want));
    let distance = (apart / squares(&mut want.iter().copied())).sqrt();
    assert!(distance <= TOLERANCE, "{distance:.1e} from the interpreter's");
}

/// ResNet-18 in a third of its weights' bytes, at a budget that is just too small, and at one that holds all: two contexts
/// in turns, launched, captured and replayed, have the bits of the engine without a budget.
fn weights_beyond_a_budget_are_streamed_with_the_same_bits(device: Device) {
    let model = Model::from(planish_zoo::graph("resnet18_224", 0).unwrap());
    let plan = Builder::from_model(model).device(device).tune_level(0).build().unwrap();
    let open = |weight_budget: Option<usize>| {
        Engine::with_options(
            plan.clone(),
            device,
            EngineOptions { weight_budget, ..EngineOptions::default() },
        )
    };
    let resident = open(None).unwrap();
    let bytes = resident.weight_bytes();
    assert_eq!(resident.streamed_bytes(), 0);
    let inputs: Vec<[Value; 1]> = (0..2).map(|seed| [tensor(random(&[1, 3, 224, 224], seed))]).collect();
    let mut alone = resident.context().unwrap();
    let wanted: Vec<Vec<Value>> = inputs.iter().map(|input| alone.run_values(input).unwrap()).collect();
    for (budget, streams) in [(bytes / 3, true), (2 * bytes / 3, true), (2 * bytes, false)] {
        let engine = open(Some(budget)).unwrap();
        let streamed = engine.streamed_bytes();
        assert_eq!(streamed > 0, streams, "{streamed} of {bytes} within {budget}");
        assert!(bytes.saturating_sub(streamed) <= budget, "{streamed} of {bytes} within {budget}");
        let mut contexts = [engine.context().unwrap(), engine.context().unwrap()];
        for run in 0..N_RUNS {
            for (context, (input, wanted)) in contexts.iter_mut().zip(inputs.iter().zip(&wanted)) {
                let got = context.run_values(input).unwrap();
                let [got, wanted] = [&got, wanted].map(|values| values[0].as_tensor().unwrap().bytes());
                assert!(got == wanted, "other bits in run {run} within {budget} bytes");
            }
        }
    }
    let error = open(Some(1024)).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Lacking, "{error}");
    assert!(error.to_string().contains("a weight budget of 1024 bytes is too small"), "{error}");
}
