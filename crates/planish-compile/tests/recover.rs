//! Plans built for one instruction set, taken apart and built again for another: the same function.

use std::sync::Arc;

use planish_compile::{BuildErrorKind, BuildOptions, Precision, TimingCache, build, optimized, recover};
use planish_cpu::Cpu;
use planish_cpu::isa::Isa;
use planish_ir::{Graph, interpret};
use planish_kernel::{Backend, Compiler, KernelError, Target};
use planish_op::Value;
use planish_plan::{Plan, Profile, SymbolRange, Weight};
use planish_runtime::Engine;
use planish_tensor::{Bytes, DType, Tensor};
use planish_testing::Random;

/// Relative to the largest output: kernels sum in f32, in another order on each instruction set.
const TOLERANCE: f64 = 2e-5;
/// The same where factors of products may be rounded to bf16: each by 2^-9 at most, through the few layers of the model.
const ROUNDED_TOLERANCE: f64 = 2e-2;

fn random(shape: &[usize], seed: u64) -> Tensor {
    Random::new(seed).floats(shape)
}

/// Every way a constant gets into a plan: packed for a convolution (plain, grouped, transposed, depthwise, to few
/// channels), a product from both sides, read as it is in both layouts, a parameter of a region, an output, and
/// inside a body of control flow that shares a weight with the graph around it.
fn model() -> Graph {
    let weights = [
        ("w1", vec![24, 8, 3, 3]),
        ("w2", vec![24, 6, 3, 3]),
        ("w3", vec![24, 1, 3, 3]),
        ("w4", vec![24, 20, 2, 2]),
        ("w5", vec![3, 20, 3, 3]),
        ("m1", vec![40, 33]),
        ("m2", vec![40, 33]),
        ("scale", vec![1, 24, 10, 10]),
    ];
    let constants: Vec<Tensor> =
        weights.iter().enumerate().map(|(idx, (_, dims))| random(dims, idx as u64 + 1)).collect();
    let mut list = String::new();
    for (idx, (name, dims)) in weights.iter().enumerate() {
        let dims = dims.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        list += &format!("const %{name}: f32[{dims}] = #{idx}\n");
    }
    let order: Vec<String> = (0..20).rev().map(|idx| idx.to_string()).collect();
    let table: Vec<String> = (0..18).map(|idx| format!("{idx}.5")).collect();
    let text = format!(
        r#"graph "all" {{
            input %x: f32[batch,8,10,10]
            input %a: f32[batch,40]
            input %c: bool[]
            {list}
            const %order: i64[20] = [{}]
            const %k: f32[18] = [{}]
            %c1: f32[batch,24,10,10] = Conv(%x, %w1) {{pads=[1,1,1,1]}} "c1"
            %s1: f32[batch,24,10,10] = Mul(%c1, %scale)
            %r1: f32[batch,24,10,10] = Relu(%s1)
            %c2: f32[batch,24,10,10] = Conv(%r1, %w2) {{pads=[1,1,1,1], group=4}} "c2"
            %c3: f32[batch,24,10,10] = Conv(%c2, %w3) {{pads=[1,1,1,1], group=24}} "c3"
            %c4: f32[batch,20,20,20] = ConvTranspose(%c3, %w4) {{strides=[2,2]}} "c4"
            %g: f32[batch,20,20,20] = Gather(%c4, %order) {{axis=1}}
            %c5: f32[batch,3,20,20] = Conv(%g, %w5) {{pads=[1,1,1,1]}} "c5"
            %p: f32[batch,33] = MatMul(%a, %m1)
            %t: f32[33,40] = Transpose(%m2) {{perm=[1,0]}}
            %q: f32[batch,40] = MatMul(%p, %t)
            %b: f32[batch,33] = If(%c; %a) [
                graph "then" {{
                    input %a1: f32[batch,40]
                    const %m1_again: f32[40,33] = #5
                    %p1: f32[batch,33] = MatMul(%a1, %m1_again)
                    output %p1
                }},
                graph "else" {{
                    input %a2: f32[batch,40]
                    const %m3: f32[40,33] = #6
                    %p2: f32[batch,33] = MatMul(%a2, %m3)
                    %p3: f32[batch,33] = Neg(%p2)
                    output %p3
                }}
            ]
            output %c5, %q, %b, %k
        }}"#,
        order.join(","),
        table.join(",")
    );
    planish_ir::parse(&text, &constants).unwrap()
}

fn inputs(batch: usize, condition: bool) -> Vec<Value> {
    let condition = Tensor::from_bytes(DType::Bool, &[], Bytes::from_vec(vec![u8::from(condition)]));
    vec![
        Value::Tensor(random(&[batch, 8, 10, 10], 90)),
        Value::Tensor(random(&[batch, 40], 91)),
        Value::Tensor(condition.unwrap()),
    ]
}

/// By a backend that is never the one that packed: names of formats say everything.
fn unpack(_: &Target, weight: &Weight) -> Result<Tensor, KernelError> {
    let format = weight.format.as_deref().unwrap();
    Cpu::with_isa(Isa::available()[0]).unpack(weight.packed_form(format), &weight.widened())
}

#[track_caller]
fn check(plan: Plan, backend: &Arc<dyn Backend>, graph: &Graph, what: &str) {
    check_within(TOLERANCE, plan, backend, graph, what);
}

#[track_caller]
fn check_within(tolerance: f64, plan: Plan, backend: &Arc<dyn Backend>, graph: &Graph, what: &str) {
    let mut context = Engine::new(plan, vec![backend.clone()]).unwrap().context().unwrap();
    for (batch, condition) in [(1, true), (3, false)] {
        let want = interpret(graph, inputs(batch, condition)).unwrap();
        let got = context.run_values(&inputs(batch, condition)).unwrap();
        for (got, want) in got.iter().zip(&want) {
            let (got, want) = (got.as_tensor().unwrap().to_f64s(), want.as_tensor().unwrap().to_f64s());
            let largest = want.iter().fold(1.0f64, |most, x| most.max(x.abs()));
            assert_eq!(got.len(), want.len());
            for (x, y) in got.iter().zip(&want) {
                assert!((x - y).abs() <= tolerance * largest, "{what}: {x} against {y}");
            }
        }
    }
}

fn built(graph: &Graph, backend: &Arc<dyn Backend>, options: &BuildOptions) -> Plan {
    build(graph, std::slice::from_ref(backend), options, &mut TimingCache::default()).unwrap().plan
}

#[test]
fn every_instruction_set_builds_the_plans_of_every_other() {
    let graph = model();
    let range = SymbolRange { symbol: "batch".into(), min: 1, opt: 2, max: 4 };
    let options = BuildOptions {
        source: [7; 32],
        threads: 2,
        tune_level: 0,
        winograd: false,
        profiles: vec![Profile { ranges: vec![range] }],
        ..BuildOptions::default()
    };
    for from in Isa::available() {
        let there: Arc<dyn Backend> = Arc::new(Cpu::with_isa(from));
        let plan = built(&graph, &there, &options);
        let n_packed = plan.weights.iter().filter(|weight| weight.format.is_some()).count();
        assert!(n_packed >= 6, "{n_packed} of {} weights are stored packed", plan.weights.len());
        // As another machine gets it: from the file.
        let plan = Plan::from_bytes(Bytes::from_vec(plan.to_bytes().unwrap())).unwrap();
        for to in Isa::available() {
            let here: Arc<dyn Backend> = Arc::new(Cpu::with_isa(to));
            if from != to {
                let error = Engine::new(plan.clone(), vec![here.clone()]).unwrap_err();
                assert!(error.to_string().contains(&format!("built for cpu with {from}")), "{error}");
            }
            let recovered = recover(&plan.recipe(), &unpack).unwrap();
            assert_eq!(recovered.notes, Vec::<String>::new());
            assert_eq!(format!("{:?}", recovered.options), format!("{options:?}"));
            let again = built(&recovered.graph, &here, &recovered.options);
            assert_eq!(
                (again.header.source, &again.header.profiles),
                (plan.header.source, &plan.header.profiles)
            );
            assert_eq!(again.header.targets[0].needs, [to.name()]);
            check(again, &here, &graph, &format!("{from} to {to}"));
        }
        check(plan, &there, &graph, &format!("{from}"));
    }
}

/// Weights that 16 bits hold take half the bytes of the file, and are the same numbers for every reader of it.
#[test]
fn weights_of_16_bits_come_back() {
    let graph = model();
    let plain = BuildOptions { threads: 1, tune_level: 0, ..BuildOptions::default() };
    let [first, .., best] = Isa::available()[..] else { panic!("one instruction set alone") };
    let [there, here]: [Arc<dyn Backend>; 2] = [best, first].map(|isa| Arc::new(Cpu::with_isa(isa)) as _);
    let weight_bytes = |plan: &Plan| plan.weights.iter().map(|weight| weight.bytes.len()).sum::<usize>();
    let in_f32 = weight_bytes(&built(&graph, &there, &plain));
    for (precision, dtype) in [(Precision::Fp16, DType::F16), (Precision::Bf16, DType::BF16)] {
        let options = BuildOptions { precision, ..plain.clone() };
        let rounded = optimized(&graph, std::slice::from_ref(&there), &options).unwrap();
        let plan = built(&graph, &there, &options);
        let plan = Plan::from_bytes(Bytes::from_vec(plan.to_bytes().unwrap())).unwrap();
        let rounds = there.rounded_arithmetics().contains(&precision.arithmetic());
        let is_rounded = |step: &planish_plan::Step| step.numeric.element == precision.arithmetic();
        assert_eq!(plan.program.steps.iter().any(is_rounded), rounds, "{}", plan.describe());
        let is_low = |weight: &&Weight| {
            let is_paired = weight.format.as_ref().is_some_and(|format| format.starts_with("pairs_"));
            weight.narrowed == Some(dtype) || (rounds && is_paired)
        };
        assert!(plan.weights.iter().filter(is_low).count() >= 6, "{}", plan.describe());
        // What is above a half: weights of less than 4 KiB, and few channels that are filled up to vectors.
        let ratio = weight_bytes(&plan) as f64 / in_f32 as f64;
        assert!(ratio < 0.65, "{ratio} of the bytes in f32");
        let tolerance = if rounds { ROUNDED_TOLERANCE } else { TOLERANCE };
        check_within(tolerance, plan.clone(), &there, &rounded, precision.name());
        let recovered = recover(&plan.recipe(), &unpack).unwrap();
        assert_eq!(recovered.graph.print(), rounded.print());
        let again = built(&recovered.graph, &here, &recovered.options);
        check(again, &here, &rounded, precision.name());
    }
}

/// Weights read in a layout of their own come back, too.
#[test]
fn weights_in_another_layout_come_back() {
    let graph = model();
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    let options = BuildOptions { threads: 1, tune_level: 0, verify: false, ..BuildOptions::default() };
    let mut plan = built(&graph, &backend, &options);
    let plain = recover(&plan.recipe(), &unpack).unwrap().graph.print();
    let number =
        plan.constants.iter().position(|&weight| plan.weights[weight as usize].dims == [1, 24, 10, 10]);
    let number = number.unwrap();
    let weight = plan.constants[number] as usize;
    if plan.weights[weight].layout == planish_kernel::Layout::Plain {
        let moved = planish_op::Transpose { perm: Some(vec![0, 2, 3, 1]) };
        let value = Value::Tensor(plain.constants[number].clone());
        let moved = planish_reference::evaluate(&moved.into(), &[Some(&value)], 1).unwrap().remove(0);
        plan.weights[weight].bytes = moved.as_tensor().unwrap().bytes().clone();
        plan.weights[weight].layout = planish_kernel::Layout::ChannelsLast;
    }
    let again = recover(&plan.recipe(), &unpack).unwrap().graph.print();
    assert_eq!(again, plain);
}

#[test]
fn recipes_that_do_not_hold_together_are_refused() {
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    let options = BuildOptions { threads: 1, tune_level: 0, verify: false, ..BuildOptions::default() };
    let recipe = built(&model(), &backend, &options).recipe();
    let mut cut = recipe.clone();
    cut.constants.pop();
    let error = recover(&cut, &unpack).unwrap_err();
    assert_eq!(*error.kind(), BuildErrorKind::BadFile);
    assert!(error.to_string().contains("the plan's graph cannot be read"), "{error}");
    let mut other = recipe.clone();
    other.constants.swap(0, 5);
    assert!(recover(&other, &unpack).is_err());
    let mut short = recipe.clone();
    let packed = short.weights.iter().position(|weight| weight.format.is_some()).unwrap();
    let weight = &mut short.weights[packed];
    weight.bytes = weight.bytes.slice(0..weight.bytes.len() - 4).unwrap();
    let error = recover(&short, &unpack).unwrap_err();
    assert!(error.to_string().contains("are not its length"), "{error}");
    let mut newer = recipe;
    newer.header.options += "\nsparsity=2:4";
    let notes = recover(&newer, &unpack).unwrap().notes;
    assert_eq!(notes, ["the plan's option `sparsity=2:4` is not known and is left out"]);
}
