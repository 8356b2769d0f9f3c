//! A small plan with one of everything that a plan can hold.

use planish_kernel::{Code, Layout, Numeric, Ref, Region, RegionNode, Tactic, Target};
use planish_op::{self as op, Attribute, Op, ValueType};
use planish_tensor::{Bytes, DType, Dim, Shape, Tensor};

use crate::{
    Certificate, Check, Control, Evidence, Header, Outcome, Plan, Profile, Program, Role, Step, StepKind,
    Storage, SymbolRange, Timing, Value, Variant, Weight,
};

pub(crate) fn f32s(shape: &str) -> ValueType {
    ValueType::tensor(DType::F32, shape.parse().unwrap())
}

pub(crate) fn value(name: &str, shape: &str, storage: Storage) -> Value {
    Value { name: name.to_string(), ty: f32s(shape), layout: Layout::Plain, storage, target: 0 }
}

pub(crate) fn kernel(name: &str, region: Region, inputs: &[u32], outputs: &[u32]) -> Step {
    let tactic = Tactic::new(format!("{name}_f32_scalar"), 3);
    Step {
        name: name.to_string(),
        kind: StepKind::Kernel {
            variants: vec![
                Variant {
                    from: vec![("batch".to_string(), 2)],
                    up_to: vec![("batch".to_string(), 8)],
                    tactic: tactic.clone(),
                },
                Variant { from: Vec::new(), up_to: Vec::new(), tactic },
            ],
            packed: vec![None; inputs.len()],
            slow: false,
        },
        region,
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: outputs.iter().copied().map(Some).collect(),
        numeric: Numeric::F32,
        target: 0,
    }
}

/// A convolution with its activation, a clip bound inside the region.
fn conv_clip() -> Region {
    let conv = Op::from_attributes("Conv", &[("strides".into(), Attribute::Ints(vec![2, 2]))]).unwrap();
    Region {
        n_inputs: 3,
        constants: vec![Tensor::scalar(6.0f32), Tensor::vector(vec![1i64, -1])],
        nodes: vec![
            RegionNode {
                name: "conv1".to_string(),
                op: conv,
                inputs: vec![Some(Ref::Input(0)), Some(Ref::Input(1)), Some(Ref::Input(2))],
                n_outputs: 1,
            },
            RegionNode {
                name: "clip1".to_string(),
                op: op::Clip {}.into(),
                inputs: vec![Some(Ref::Node { node: 0, output: 0 }), None, Some(Ref::Constant(0))],
                n_outputs: 1,
            },
        ],
        outputs: vec![Ref::Node { node: 1, output: 0 }],
    }
}

fn branch(name: &str) -> Program {
    Program {
        values: vec![value("captured", "[batch,8]", Storage::Input), value(name, "[batch,8]", Storage::Own)],
        inputs: vec![0],
        outputs: vec![1],
        steps: vec![kernel(name, Region::single(op::Relu {}.into(), 1, 1), &[0], &[1])],
    }
}

pub(crate) fn plan() -> Plan {
    let mut packed = kernel("conv1 + clip1", conv_clip(), &[0, 1, 2], &[3]);
    let StepKind::Kernel { packed: formats, .. } = &mut packed.kind else { unreachable!() };
    formats[1] = Some("panels32".to_string());
    let custom = Op::Custom(op::Custom {
        domain: "com.example".to_string(),
        name: "Twice".to_string(),
        version: 2,
        attributes: vec![("by".to_string(), Attribute::Float(-0.0))],
    });
    let mut evaluate = kernel("nonzero", Region::single(custom, 1, 1), &[4], &[7]);
    evaluate.kind = StepKind::Evaluate;
    let mut choose = kernel("if", Region::single(op::If {}.into(), 2, 1), &[8, 5], &[9]);
    choose.kind = StepKind::Control(Control { bodies: vec![branch("then"), branch("else")], n_captured: 1 });
    let mut transfer = kernel("to device", Region::default(), &[9], &[10]);
    transfer.kind = StepKind::Transfer;
    let values = vec![
        value("x", "[batch,3,8,8]", Storage::Input),
        value("w", "[4,3,3,3]", Storage::Weight(0)),
        value("b", "[4]", Storage::Weight(1)),
        value("a", "[batch,4,3,3]", Storage::Inside { of: 6, axis: 1, offset: Dim::ZERO }),
        value("flat", "[batch,36]", Storage::Alias { of: 3 }),
        value("other", "[batch,8]", Storage::Arena),
        Value { layout: Layout::ChannelsLast, ..value("whole", "[batch,2*n+8,3,3]", Storage::Arena) },
        Value {
            ty: ValueType::Sequence(Box::new(ValueType::Optional(Box::new(ValueType::unranked(DType::I64))))),
            ..value("found", "[]", Storage::Own)
        },
        Value { ty: ValueType::tensor(DType::Bool, Shape::scalar()), ..value("cond", "[]", Storage::Input) },
        value("y", "[batch,8]", Storage::Own),
        Value { target: 1, ..value("y on device", "[batch,8]", Storage::Arena) },
    ];
    let header = Header {
        name: "small".to_string(),
        producer: "planish 0.1.0".to_string(),
        source: std::array::from_fn(|idx| idx as u8),
        options: "precision=fp32\nthreads=2\n".to_string(),
        targets: vec![
            Target {
                backend: "cpu".to_string(),
                needs: vec!["avx2".to_string(), "fma".to_string()],
                device: "a processor".to_string(),
            },
            Target { backend: "fake".to_string(), needs: Vec::new(), device: String::new() },
        ],
        profiles: vec![Profile {
            ranges: vec![SymbolRange { symbol: "batch".to_string(), min: 1, opt: 8, max: 32 }],
        }],
        tuned_at: vec![("batch".to_string(), 8), ("n".to_string(), 0)],
        threads: 2,
        metadata: vec![
            ("author".to_string(), "somebody".to_string()),
            ("labels".to_string(), "cat\ndog".to_string()),
        ],
    };
    Plan {
        header,
        roles: vec![Role::Host, Role::Device],
        program: Program {
            values,
            inputs: vec![0, 8],
            outputs: vec![10, 7],
            steps: vec![
                packed,
                kernel("other", Region::single(op::Relu {}.into(), 1, 1), &[0], &[5]),
                evaluate,
                choose,
                transfer,
            ],
        },
        weights: vec![
            Weight {
                name: "conv1.weight".to_string(),
                dtype: DType::F32,
                dims: vec![4, 3, 3, 3],
                format: Some("panels32".to_string()),
                bytes: Bytes::from_vec((0..500u32).map(|idx| idx as u8).collect()),
                layout: Layout::Plain,
                packed_by: Some(0),
                narrowed: None,
            },
            Weight {
                name: "conv1.bias".to_string(),
                dtype: DType::F32,
                dims: vec![4],
                format: None,
                bytes: Bytes::from_vec(vec![1.0f32, -2.0, f32::NAN, 0.5]),
                layout: planish_kernel::Layout::Plain,
                packed_by: None,
                narrowed: None,
            },
        ],
        graph: "graph small(x: f32[batch,3,8,8]) {}\n".to_string(),
        constants: vec![1],
        evidence: vec![Evidence {
            step: 0,
            timings: vec![Timing { tactic: Tactic::new("conv_f32_scalar", 3), ns: 1234, measured: true }],
            why: "the only one".to_string(),
        }],
        certificate: Certificate::new(vec![
            Check {
                subject: "step 0: conv1 + clip1".to_string(),
                n_points: 256,
                worst: 0.25,
                outcome: Outcome::Passed,
            },
            Check {
                subject: "whole model at batch=1".to_string(),
                n_points: 0,
                worst: 0.0,
                outcome: Outcome::Skipped("no time".to_string()),
            },
        ]),
        code: vec![
            Code { key: "gemm fake9 6a".to_string(), bytes: Bytes::from_vec(vec![0x7fu8, 0x45, 0x4c]) },
            Code { key: "gemm fake9 6b".to_string(), bytes: Bytes::from_vec(vec![1u8; 200]) },
        ],
        stripped: None,
    }
}
