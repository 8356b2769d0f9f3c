//! Lies about plugins: plans that name some that are not here, or have honest ones compute what they do not declare.

use std::sync::Arc;

use planish::plugin::Plugin;
use planish::{Builder, Device};
use planish_cpu::Cpu;
use planish_kernel::Backend;
use planish_op::{Attribute, Custom, Op};
use planish_plan::{Certificate, Plan};
use planish_runtime::Engine;
use planish_tensor::DType;

use crate::{Forgery, all_refused, bases, lie, set_tactic, step, ty, value};

pub(crate) const FORGERIES: [Forgery; 4] = [
    lie("a plugin that is not loaded", "pointwise", "which is not loaded: give its file", |plan| {
        plan.header.targets[0].needs.push("plugin no.such::Operator@1 0123456789abcdef".to_string());
    }),
    lie("a need that names no plugin", "pointwise", "which names no plugin", |plan| {
        plan.header.targets[0].needs.push("plugin ../../evil.so".to_string());
    }),
    lie("the tactic of a plugin that is not loaded", "pointwise", "is not loaded: give its file", |plan| {
        set_tactic(step(plan, "Softmax"), "plugin_0123456789abcdef_default");
    }),
    lie("an operator that no plugin brings", "pointwise", "no plugin", |plan| {
        let op =
            Custom { domain: "no.such".into(), name: "Operator".into(), version: 1, attributes: Vec::new() };
        step(plan, "Softmax").region.nodes[0].op = Op::Custom(op);
    }),
];

#[test]
fn plans_with_plugins_that_are_not_here_are_refused() {
    all_refused(&FORGERIES);
}

const DECLARATION: &str = "planish-plugin 1
op: test.forged::Halves
version: 1
types: T = float32
inputs: x: T[n, k]
outputs: y: T[n, k / 2]
where: k % 2 == 0
attributes: from: int = 0
reference: y = Slice(x, [0], [4], [1])
";

/// A plan of a plugin that takes the first half of each row of eight.
fn honest() -> Plan {
    let plugin = Plugin::function(DECLARATION, |task, slices| {
        let k = task.number("k").unwrap_or(0) as usize;
        let (x, y) = slices.pair::<f32, f32>(0, 0)?;
        for (to, from) in y.chunks_mut(k / 2).zip(x.chunks(k)) {
            to.copy_from_slice(&from[..k / 2]);
        }
        Ok(())
    });
    plugin.unwrap().register().unwrap();
    let graph = r#"graph "g" {
        input %x: f32[n,8]
        %y: f32[n,4] = custom "test.forged" "Halves" 1(%x)
        output %y
    }"#;
    let mut builder =
        Builder::from_graph(graph.parse().unwrap()).device(Device::Cpu).tune_level(0).threads(1);
    builder.options_mut().verify = false;
    Plan { certificate: Certificate::default(), ..builder.build().unwrap().record().clone() }
}

fn run(plan: &Plan) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let inputs = bases::inputs(plan, 2).expect("inputs of known types");
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let engine = Engine::new(plan.clone(), backends).map_err(|error| text(&error))?;
    let mut context = engine.context().map_err(|error| text(&error))?;
    context.run_values(&inputs).map(drop).map_err(|error| text(&error))
}

#[test]
fn a_plugin_is_never_given_what_it_does_not_declare() {
    let plan = honest();
    run(&plan).unwrap();
    assert!(
        plan.header.targets[0].needs.iter().any(|need| need.starts_with("plugin test.forged::Halves@1 "))
    );
    let output = step(&mut plan.clone(), "Halves").outputs[0].unwrap();
    type Lie = fn(&mut Plan, u32);
    let lies: [(&str, Lie); 5] = [
        ("a longer output", |plan, output| value(plan, output).ty = ty(DType::F32, &[2, 400])),
        ("another type", |plan, output| value(plan, output).ty = ty(DType::F64, &[2, 4])),
        ("an attribute that it does not have", |plan, _| {
            let Op::Custom(op) = &mut step(plan, "Halves").region.nodes[0].op else { panic!("no plugin's") };
            op.attributes.push(("speed".into(), Attribute::Int(1)));
        }),
        ("another version", |plan, _| {
            let Op::Custom(op) = &mut step(plan, "Halves").region.nodes[0].op else { panic!("no plugin's") };
            op.version = 2;
        }),
        ("another hash", |plan, _| {
            let need = plan.header.targets[0].needs.last_mut().unwrap();
            need.replace_range(need.len() - 4.., "0000");
        }),
    ];
    for (name, change) in lies {
        let mut forged = plan.clone();
        change(&mut forged, output);
        assert!(run(&forged).is_err(), "{name} ran");
    }
}
