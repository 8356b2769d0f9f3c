//! Code belongs to the engine that was given it: no other engine and no build gets any of it, and it goes with the
//! engine.

use std::sync::Arc;

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::Backend;
use planish_op::Value;
use planish_plan::{Certificate, Plan, PrivateKey};
use planish_runtime::{CodeFrom, Engine, EngineOptions, RunErrorKind};
use planish_tensor::Bytes;

use crate::device::Fake;
use crate::{assert_near, random};

const MODEL: &str = r#"graph "g" {
    input %x: f32[2, 3]
    const %w: f32[3, 2] = [1, -2, 3, 4, -5, 6]
    %y: f32[2, 2] = MatMul(%x, %w)
    output %y
}"#;

fn backends(fake: &Fake) -> Vec<Arc<dyn Backend>> {
    vec![Arc::new(Cpu::new()), Arc::new(fake.clone())]
}

fn built(fake: &Fake) -> Plan {
    let graph: Graph = MODEL.parse().unwrap();
    let options = BuildOptions { tune_level: 0, threads: 1, ..BuildOptions::default() };
    build(&graph, &backends(fake), &options, &mut TimingCache::default()).unwrap().plan
}

/// The plan with other code under the same keys, as whoever writes a file can make it.
fn forged(fake: &Fake) -> Plan {
    let mut plan = built(fake);
    assert!(!plan.code.is_empty());
    for code in &mut plan.code {
        code.bytes = Bytes::from_vec(b"writes zeros".to_vec());
    }
    // It names the checksum of the code that was checked.
    plan.certificate = Certificate::default();
    plan
}

fn output(engine: &Engine) -> Vec<Value> {
    engine.context().unwrap().run_values(&[random(&[2, 3], 1)]).unwrap()
}

fn expected() -> Vec<Value> {
    interpret(&MODEL.parse().unwrap(), vec![random(&[2, 3], 1)]).unwrap()
}

fn is_zero(output: &[Value]) -> bool {
    output[0].as_tensor().unwrap().to_f64s().iter().all(|value| *value == 0.0)
}

#[test]
fn code_of_one_plan_serves_no_other_engine_and_no_build() {
    let fake = Fake::default();
    let honest = built(&fake);
    // Whichever is opened first, and whether the other is still open.
    let before = Engine::new(honest.clone(), backends(&fake)).unwrap();
    let poisoned = Engine::new(forged(&fake), backends(&fake)).unwrap();
    assert!(is_zero(&output(&poisoned)), "the test's own code was not used");
    assert_near(&output(&before), &expected());
    let after = Engine::new(honest.clone(), backends(&fake)).unwrap();
    assert_near(&output(&after), &expected());
    drop(poisoned);
    assert_near(&output(&Engine::new(honest.clone(), backends(&fake)).unwrap()), &expected());
    // A build beside an open engine of a forged plan stores what it compiles itself.
    let poisoned = Engine::new(forged(&fake), backends(&fake)).unwrap();
    assert_eq!(built(&fake), honest);
    assert!(is_zero(&output(&poisoned)));
}

#[test]
fn code_goes_with_its_engine() {
    let fake = Fake::default();
    let plan = built(&fake);
    let n_before = fake.n_code_sets();
    for _ in 0..20 {
        let engine = Engine::new(plan.clone(), backends(&fake)).unwrap();
        output(&engine);
        assert!(fake.n_code_sets() > n_before);
    }
    assert_eq!(fake.n_code_sets(), n_before);
}

#[test]
fn code_is_compiled_here_where_that_is_asked_for() {
    let fake = Fake::default();
    let options = EngineOptions { code: CodeFrom::CompileHere, ..EngineOptions::default() };
    let engine = Engine::with_options(forged(&fake), backends(&fake), options.clone()).unwrap();
    assert_near(&output(&engine), &expected());
    // Where there is no compiler, the plan's code is not taken all the same.
    let bare = Fake::bare();
    let engine = Engine::with_options(built(&fake), backends(&bare), options).unwrap();
    let error = engine.context().unwrap().run_values(&[random(&[2, 3], 1)]).unwrap_err();
    assert!(error.to_string().contains("there is no code"), "{error}");
}

#[test]
fn code_is_taken_from_signed_plans_alone() {
    let fake = Fake::default();
    let (author, stranger) = (PrivateKey::from_random(&[1; 32]), PrivateKey::from_random(&[2; 32]));
    let plan = built(&fake);
    let open = |plan: &Plan, signer: &PrivateKey, signed: &Plan| {
        let signature = Box::new(signer.sign(&signed.fingerprint().unwrap()));
        let code = CodeFrom::Signed { keys: vec![author.public()], signature };
        Engine::with_options(
            plan.clone(),
            backends(&fake),
            EngineOptions { code, ..EngineOptions::default() },
        )
    };
    assert_near(&output(&open(&plan, &author, &plan).unwrap()), &expected());
    let forged = forged(&fake);
    for (signer, signed, why) in [
        (&author, &plan, "another plan"),
        (&stranger, &forged, "not trusted"),
        (&stranger, &plan, "not trusted"),
    ] {
        let error = open(&forged, signer, signed).unwrap_err();
        assert_eq!(*error.kind(), RunErrorKind::Untrusted);
        assert!(error.to_string().contains(why), "{error}");
    }
}
