//! How long opening a plan takes: `cargo bench -p planish-plan --bench opening -- [STEPS [MEGABYTES]]`.
//!
//! Makes a plan of that many steps and that much weight in the temporary folder, then opens it with and without
//! its weights verified, a few times each, and prints the fastest.

use std::time::Instant;

use planish_kernel::{Layout, Numeric, Region, Tactic, Target};
use planish_op::{Attribute, Op, ValueType};
use planish_plan::{
    Certificate, Check, Evidence, Header, Outcome, Plan, Program, Role, Step, StepKind, Storage, Timing,
    Value, Variant, Weight,
};
use planish_tensor::{Bytes, DType};

/// Opening is timed this often.
const REPEATS: usize = 10;

/// A chain of convolutions, one weight each.
fn chain(n_steps: usize, weight_bytes: usize) -> Plan {
    let ty: ValueType =
        ValueType::tensor(DType::F32, "[batch,64,floordiv(height+1,2),56]".parse().expect("a shape"));
    let attributes = [
        ("kernel_shape".to_string(), Attribute::Ints(vec![3, 3])),
        ("pads".to_string(), Attribute::Ints(vec![1, 1, 1, 1])),
    ];
    let conv = Op::from_attributes("Conv", &attributes).expect("a Conv");
    let tactic = Tactic::new("conv_implicit_gemm_f32_14x32_avx512", 1);
    let value = |name: String, ty: &ValueType, storage: Storage| Value {
        name,
        ty: ty.clone(),
        layout: Layout::ChannelsLast,
        storage,
        target: 0,
    };
    let n_elements = weight_bytes / 4 / n_steps;
    let weight_ty = ValueType::tensor(DType::F32, [n_elements].into());
    let mut values = vec![value("x".to_string(), &ty, Storage::Input)];
    let header = Header {
        name: "chain".to_string(),
        producer: "example".to_string(),
        targets: vec![Target { backend: "cpu".to_string(), needs: Vec::new(), device: String::new() }],
        tuned_at: vec![("batch".to_string(), 1)],
        threads: 2,
        ..Header::default()
    };
    let mut plan = Plan {
        header,
        roles: vec![Role::Host],
        program: Program::default(),
        weights: Vec::new(),
        graph: "%0 = Conv(%1)\n".repeat(n_steps),
        constants: Vec::new(),
        evidence: Vec::new(),
        certificate: Certificate::default(),
        code: Vec::new(),
        stripped: None,
    };
    let mut last = 0;
    for idx in 0..n_steps {
        let name = format!("/backbone/layer{idx}/conv/Conv");
        plan.weights.push(Weight {
            name: format!("backbone.layer{idx}.conv.weight"),
            dtype: DType::F32,
            dims: vec![n_elements],
            format: None,
            bytes: Bytes::from_vec((0..n_elements).map(|element| (element * idx) as f32).collect::<Vec<_>>()),
            layout: planish_kernel::Layout::Plain,
            packed_by: None,
            narrowed: None,
        });
        let weight = values.len() as u32;
        values.push(value(format!("{name}_weight"), &weight_ty, Storage::Weight(idx as u32)));
        values.push(value(format!("{name}_output_0"), &ty, Storage::Arena));
        plan.program.steps.push(Step {
            name: name.clone(),
            kind: StepKind::Kernel {
                variants: vec![Variant { from: Vec::new(), up_to: Vec::new(), tactic: tactic.clone() }],
                packed: vec![None; 2],
                slow: false,
            },
            region: Region::single(conv.clone(), 2, 1),
            inputs: vec![Some(last), Some(weight)],
            outputs: vec![Some(weight + 1)],
            numeric: Numeric::F32,
            target: 0,
        });
        last = weight + 1;
        plan.evidence.push(Evidence {
            step: idx as u32,
            timings: (0..8).map(|ns| Timing { tactic: tactic.clone(), ns, measured: true }).collect(),
            why: "measured, 12 % before the next".to_string(),
        });
        plan.certificate.checks.push(Check {
            subject: format!("step {idx}: {name}"),
            n_points: 256,
            worst: 0.1,
            outcome: Outcome::Passed,
        });
    }
    plan.program.values = values;
    plan.program.inputs = vec![0];
    plan.program.outputs = vec![last];
    plan
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let n_steps: usize = arguments.next().map_or(Ok(500), |text| text.parse())?;
    let megabytes: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let plan = chain(n_steps.max(1), megabytes * 1_000_000);
    let path = std::env::temp_dir().join(format!("planish-opening-{}.plan", std::process::id()));
    let started = Instant::now();
    let len = plan.write_file(&path)?;
    let weights: usize = plan.weights.iter().map(|weight| weight.bytes.len()).sum();
    println!(
        "{n_steps} steps, {weights} bytes of weights, file of {len} bytes: written in {:.1?}",
        started.elapsed()
    );
    let fastest = |open: fn(&std::path::Path) -> Result<Plan, planish_plan::PlanError>| {
        let once = |_| {
            let started = Instant::now();
            open(&path).map(|_| started.elapsed())
        };
        let times: Result<Vec<_>, _> = (0..REPEATS).map(once).collect();
        times.map(|times| times.into_iter().min().unwrap_or_default())
    };
    let structure = fastest(Plan::open_trusted)?;
    let all = fastest(Plan::open)?;
    let rate = weights as f64 / all.saturating_sub(structure).as_secs_f64() / 1e9;
    println!("structure {structure:.2?}, all {all:.2?}: weights at {rate:.2} GB/s on all threads");
    std::fs::remove_file(path)?;
    Ok(())
}
