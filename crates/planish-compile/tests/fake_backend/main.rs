//! A second backend with streams and memory of its own: the interfaces between compiler, runtime and backends
//! must not take the CPU's ways for granted.

#![allow(unsafe_code)]

mod code;
mod conformance;
mod device;
mod faults;
mod forged;
mod memory;
mod pipeline;
mod precision;
mod queue;
mod running;
mod streaming;
mod trouble;
mod weights;

use std::sync::Arc;

use planish_compile::{BuildErrorKind, BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::{Backend, Budget, Compiler, Device, Layout, Numeric, Problem, Region, Tactic};
use planish_op as op;
use planish_op::{Op, Value, ValueType};
use planish_plan::{Header, Outcome, Plan, Role, Step, StepKind, Storage, Value as Slot, Variant, Weight};
use planish_runtime::{Engine, RunErrorKind};
use planish_tensor::{Bytes, DType, Shape, Tensor};
use planish_testing::{Random, models};

use device::Fake;

/// Kernels of the CPU sum in f32, the reference in f64.
const TOLERANCE: f64 = 1e-5;

fn random(shape: &[usize], seed: u64) -> Value {
    Value::Tensor(Random::new(seed).floats(shape))
}

#[track_caller]
fn assert_near(got: &[Value], want: &[Value]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        let (got, want) = (got.as_tensor().unwrap(), want.as_tensor().unwrap());
        assert_eq!(got.shape(), want.shape());
        for (x, y) in got.to_f64s().into_iter().zip(want.to_f64s()) {
            assert!((x - y).abs() <= TOLERANCE * y.abs().max(1.0), "{x} against {y}");
        }
    }
}

/// A plan written by hand, value by value and step by step.
struct Writer {
    plan: Plan,
}

const CPU: u32 = 0;
const FAKE: u32 = 1;

impl Writer {
    fn new(backends: &[Arc<dyn Backend>]) -> Writer {
        let header = Header {
            name: "by hand".into(),
            producer: planish_runtime::VERSION.into(),
            targets: backends.iter().map(|backend| backend.target()).collect(),
            threads: 2,
            ..Header::default()
        };
        Writer { plan: Plan { header, roles: vec![Role::Host, Role::Device], ..Plan::default() } }
    }

    fn value(&mut self, name: &str, dims: &[usize], storage: Storage, target: u32) -> u32 {
        let shape: Shape = dims.iter().map(|&dim| planish_tensor::Dim::from(dim as i64)).collect();
        let ty = ValueType::tensor(DType::F32, shape);
        let values = &mut self.plan.program.values;
        values.push(Slot { name: name.into(), ty, layout: Layout::Plain, storage, target });
        values.len() as u32 - 1
    }

    fn step(&mut self, name: &str, kind: StepKind, region: Region, inputs: &[u32], output: u32, target: u32) {
        self.plan.program.steps.push(Step {
            name: name.into(),
            kind,
            region,
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: vec![Some(output)],
            numeric: Numeric::F32,
            target,
        });
    }

    fn transfer(&mut self, from: u32, to: u32) {
        let region = Region::single(op::Identity {}.into(), 1, 1);
        self.step("transfer", StepKind::Transfer, region, &[from], to, FAKE);
    }

    /// A kernel by the first candidate that the backend has for it.
    fn kernel(&mut self, backend: &dyn Backend, op: Op, inputs: &[u32], output: u32, target: u32) {
        let region = Region::single(op, inputs.len() as u32, 1);
        let name = region.title();
        let empty = StepKind::Kernel { variants: Vec::new(), packed: Vec::new(), slow: false };
        self.step(&name, empty, region, inputs, output, target);
        let step = self.plan.program.steps.last().unwrap();
        let problem: Problem = planish_runtime::problem_of(&self.plan.program, step, &[], 2).unwrap();
        let found = backend.candidates(&problem, &Budget::USUAL).into_iter().find(|candidate| {
            candidate.inputs.iter().chain(&candidate.outputs).all(|want| want.layout == Layout::Plain)
        });
        let found = found.unwrap();
        let variants = vec![Variant { from: Vec::new(), up_to: Vec::new(), tactic: found.tactic }];
        self.plan.program.steps.last_mut().unwrap().kind =
            StepKind::Kernel { variants, packed: found.packed, slow: found.slow };
    }
}

/// `relu(x · w) + tanh(x · w) · x'`: the product and both of its readers on the device, Tanh on the CPU between
/// transfers.
fn written(cpu: &Arc<dyn Backend>, fake: &Arc<dyn Backend>, weight: &Tensor) -> Plan {
    let mut w = Writer::new(&[cpu.clone(), fake.clone()]);
    w.plan.weights.push(Weight {
        name: "w".into(),
        dtype: DType::F32,
        dims: weight.shape().to_vec(),
        format: None,
        bytes: Bytes::from_vec(weight.bytes().to_vec()),
        layout: planish_kernel::Layout::Plain,
        packed_by: None,
        narrowed: None,
    });
    let x = w.value("x", &[8, 8], Storage::Input, CPU);
    let on_device = w.value("x there", &[8, 8], Storage::Arena, FAKE);
    let weight = w.value("w", &[8, 8], Storage::Weight(0), FAKE);
    let product = w.value("product", &[8, 8], Storage::Arena, FAKE);
    let relu = w.value("relu", &[8, 8], Storage::Arena, FAKE);
    let squared = w.value("squared", &[8, 8], Storage::Arena, FAKE);
    let back = w.value("product here", &[8, 8], Storage::Arena, CPU);
    let tanh = w.value("tanh", &[8, 8], Storage::Arena, CPU);
    let there = w.value("tanh there", &[8, 8], Storage::Arena, FAKE);
    let scaled = w.value("scaled", &[8, 8], Storage::Arena, FAKE);
    let sum = w.value("sum", &[8, 8], Storage::Arena, FAKE);
    let all = w.value("all", &[8, 8], Storage::Arena, FAKE);
    let y = w.value("y", &[8, 8], Storage::Arena, CPU);
    w.plan.program.inputs = vec![x];
    w.plan.program.outputs = vec![y];
    w.transfer(x, on_device);
    w.kernel(&**fake, op::MatMul {}.into(), &[on_device, weight], product, FAKE);
    w.kernel(&**fake, op::Relu {}.into(), &[product], relu, FAKE);
    w.kernel(&**fake, op::Mul {}.into(), &[relu, relu], squared, FAKE);
    w.transfer(product, back);
    w.kernel(&**cpu, op::Tanh {}.into(), &[back], tanh, CPU);
    w.transfer(tanh, there);
    w.kernel(&**fake, op::Mul {}.into(), &[there, on_device], scaled, FAKE);
    w.kernel(&**fake, op::Add {}.into(), &[relu, scaled], sum, FAKE);
    w.kernel(&**fake, op::Add {}.into(), &[sum, squared], all, FAKE);
    w.transfer(all, y);
    w.plan
}

#[test]
fn a_plan_over_two_memories() {
    let fake = Fake::default();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let weight = random(&[8, 8], 9).as_tensor().unwrap().clone();
    let plan = written(&backends[0], &backends[1], &weight);
    plan.validate().unwrap();
    let numbers = weight.to_f64s().iter().map(|x| format!("{x:e}")).collect::<Vec<_>>().join(", ");
    let graph: Graph = format!(
        r#"graph "g" {{
            input %x: f32[8, 8]
            const %w: f32[8, 8] = [{numbers}]
            %p: f32[8, 8] = MatMul(%x, %w)
            %r: f32[8, 8] = Relu(%p)
            %q: f32[8, 8] = Mul(%r, %r)
            %t: f32[8, 8] = Tanh(%p)
            %s: f32[8, 8] = Mul(%t, %x)
            %a: f32[8, 8] = Add(%r, %s)
            %y: f32[8, 8] = Add(%a, %q)
            output %y
        }}"#
    )
    .parse()
    .unwrap();
    let engine = Engine::new(plan, backends).unwrap();
    for poison in [false, true] {
        let mut context = engine.context().unwrap();
        context.set_poison(poison);
        for seed in [1, 2, 1] {
            let inputs = vec![random(&[8, 8], seed)];
            let outputs = context.run_values(&inputs).unwrap();
            assert_near(&outputs, &interpret(&graph, inputs).unwrap());
        }
    }
    drop(engine);
    assert_eq!(fake.n_blocks(), 0, "device memory was not given back");
}

#[test]
fn an_output_in_device_memory_is_refused() {
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(Fake::default())];
    let weight = random(&[8, 8], 9).as_tensor().unwrap().clone();
    let mut plan = written(&backends[0], &backends[1], &weight);
    plan.program.outputs = vec![plan.program.values.iter().position(|v| v.name == "sum").unwrap() as u32];
    let error = Engine::new(plan, backends).unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::NeedsRebuild { .. }), "{error}");
}

#[test]
fn a_tactic_of_another_backend_is_refused() {
    let fake = Fake::default();
    let region = Region::single(op::Relu {}.into(), 1, 1);
    let operand = planish_kernel::Operand::dense(DType::F32, &[4], Layout::Plain);
    let (inputs, outputs) = (vec![operand.clone()], vec![operand]);
    let problem = Problem { region, inputs, outputs, numeric: Numeric::F32, threads: 1 };
    assert!(fake.prepare(&problem, &Tactic::new("pointwise_plain_avx512", 1)).is_err());
    let kernel =
        Cpu::new().prepare(&problem, &Cpu::new().candidates(&problem, &Budget::USUAL)[0].tactic).unwrap();
    let mut queue = fake.queue(planish_kernel::QueueOptions::new(1)).unwrap();
    let call = planish_kernel::Call {
        inputs: &[planish_kernel::Address(1)],
        outputs: &[planish_kernel::Address(1)],
        workspace: planish_kernel::Address(1),
        fault: planish_kernel::Address::NULL,
    };
    // SAFETY: the CPU's kernel refuses the queue before it looks at an address.
    assert!(unsafe { kernel.launch(&call, &mut *queue) }.is_err());
}

/// Builds for the CPU and the fake device, runs twice in poisoned memory, and gives the plan and its notes.
#[track_caller]
fn built(text: &str, inputs: &[Value]) -> (Plan, Vec<String>) {
    let graph: Graph = text.parse().unwrap();
    let fake = Fake::default();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let options = BuildOptions { tune_level: 0, threads: 2, ..BuildOptions::default() };
    let built = build(&graph, &backends, &options, &mut TimingCache::default()).unwrap();
    built.plan.validate().unwrap();
    assert!(!built.plan.certificate.checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_))));
    let expected = interpret(&graph, inputs.to_vec()).unwrap();
    let engine = Engine::new(built.plan.clone(), backends).unwrap();
    let mut context = engine.context().unwrap();
    context.set_poison(true);
    for _ in 0..2 {
        let before = fake.n_done();
        assert_near(&context.run_values(inputs).unwrap(), &expected);
        assert!(fake.n_done() > before, "nothing ran on the device");
    }
    (built.plan, built.notes)
}

fn steps(plan: &Plan) -> Vec<(u32, String)> {
    let step = |step: &Step| match &step.kind {
        StepKind::Transfer => (step.target, "transfer".to_string()),
        StepKind::Kernel { variants, .. } => (step.target, variants[0].tactic.name.clone()),
        StepKind::Evaluate => (step.target, "evaluate".to_string()),
        StepKind::Control(_) => (step.target, "control".to_string()),
    };
    plan.program.steps.iter().map(step).collect()
}

#[test]
fn a_model_that_the_device_can_do_alone() {
    let weight = "const %w: f32[3, 2] = [1, -2, 3, 4, -5, 6]";
    let (plan, notes) = built(
        &format!(
            r#"graph "g" {{
                input %x: f32[4, 3]
                input %b: f32[4, 2]
                {weight}
                %p: f32[4, 2] = MatMul(%x, %w)
                %r: f32[4, 2] = Relu(%p)
                %y: f32[4, 2] = Add(%r, %b)
                output %y
            }}"#
        ),
        &[random(&[4, 3], 1), random(&[4, 2], 2)],
    );
    let steps = steps(&plan);
    let names: Vec<&str> = steps.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["transfer", "transfer", "fake_MatMul+Relu", "fake_Add", "transfer"]);
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(plan.weights[0].format.as_deref(), Some("fake_transposed"));
}

#[test]
fn what_the_device_cannot_do_runs_on_the_cpu() {
    let (plan, notes) = built(
        r#"graph "g" {
            input %x: f32[4, 6]
            %r: f32[4, 6] = Relu(%x)
            %s: f32[4, 6] = Softmax(%r)
            const %d: i64[2] = [6, 4]
            %v: f32[6, 4] = Reshape(%r, %d)
            %a: f32[6, 4] = Add(%v, %v)
            %m: f32[4, 4] = MatMul(%s, %a)
            output %m, %s
        }"#,
        &[random(&[4, 6], 1)],
    );
    let steps = steps(&plan);
    assert!(steps.iter().any(|(target, name)| *target == CPU && name.starts_with("softmax")), "{steps:?}");
    assert!(steps.iter().filter(|(target, _)| *target == CPU).count() == 1, "{steps:?}");
    assert!(
        matches!(&notes[..], [note] if note.contains("(Softmax)") && note.contains("fake has no kernel")),
        "{notes:?}"
    );
}

#[test]
fn layouts_change_on_the_way_to_the_device() {
    let (plan, _) = built(
        r#"graph "g" {
            input %x: f32[2, 3, 4, 5]
            input %z: f32[2, 3, 4, 5]
            %m: f32[2, 3, 4, 5] = Mul(%x, %z)
            %r: f32[2, 3, 4, 5] = Relu(%m)
            %y: f32[2, 3, 4, 5] = Exp(%r)
            output %y
        }"#,
        &[random(&[2, 3, 4, 5], 1), random(&[2, 3, 4, 5], 2)],
    );
    let last = |value: &&Slot| value.layout == Layout::ChannelsLast && value.target == FAKE;
    assert!(plan.program.values.iter().filter(last).count() >= 3, "{:?}", plan.program.values);
}

#[test]
fn a_layout_that_is_the_same_memory_is_not_changed() {
    let (plan, _) = built(
        r#"graph "g" {
            input %x: f32[2, 1, 4, 5]
            input %z: f32[2, 1, 4, 5]
            %y: f32[2, 1, 4, 5] = Mul(%x, %z)
            output %y
        }"#,
        &[random(&[2, 1, 4, 5], 1), random(&[2, 1, 4, 5], 2)],
    );
    let names: Vec<String> = steps(&plan).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["transfer", "transfer", "fake_Mul", "transfer"]);
    let output = &plan.program.values[plan.program.outputs[0] as usize];
    assert_eq!(output.layout, Layout::Plain);
}

#[test]
fn sizes_that_only_a_run_can_tell() {
    built(&models::positive_elements(), &[random(&[4, 5], 3)]);
}

/// Bodies hold steps of the device: their inputs are brought there and their outputs back at every turn.
#[test]
fn bodies_run_on_the_device() {
    let (plan, _) = built(
        &models::loop_of_products(4, 4, "1, 0.5, 0, 0, 0, 1, 0.5, 0, 0, 0, 1, 0.5, 0.5, 0, 0, 1", "Relu"),
        &[Value::Tensor(Tensor::new(&[], vec![3i64]).unwrap()), random(&[4, 4], 4)],
    );
    let body = plan.program.steps.iter().find_map(|step| match &step.kind {
        StepKind::Control(control) => control.bodies.first(),
        _ => None,
    });
    let body = body.expect("a loop stays one");
    assert!(
        body.steps.iter().any(|step| step.target == FAKE && matches!(step.kind, StepKind::Kernel { .. }))
    );
}

#[test]
fn a_device_alone_is_refused() {
    let graph: Graph = r#"graph "g" { input %x: f32[2] %y: f32[2] = Relu(%x) output %y }"#.parse().unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Fake::default())];
    let error = build(&graph, &backends, &BuildOptions::default(), &mut TimingCache::default()).unwrap_err();
    assert_eq!(*error.kind(), BuildErrorKind::Unsupported);
}
