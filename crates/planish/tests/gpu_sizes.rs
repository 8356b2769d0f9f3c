//! A tactic is chosen at the sizes that a plan is tuned at and must hold at all others: runs at other sizes prepare it
//! again and have nothing to fall back on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use planish_compile::{BuildOptions, Precision, TacticSelector, TimingCache, build};
use planish_cpu::Cpu;
use planish_cuda::{Cuda, Gpu, offline};
use planish_ir::Graph;
use planish_kernel::{Backend, Candidate, Problem};

/// By the names of its nodes, a step's problem and what was offered for it.
type Offers = BTreeMap<String, (Problem, Vec<Candidate>)>;

/// What the tuner would choose from on a GPU at these sizes.
fn offers(graph: &Graph, gpu: &Gpu, precision: Precision, sizes: &[(&str, i64)]) -> Offers {
    let found: Arc<Mutex<Offers>> = Arc::default();
    let families = offline::families();
    let note = Arc::clone(&found);
    let selector: TacticSelector = Arc::new(move |problem: &Problem, candidate: &Candidate| {
        let posed = problem.for_candidate(candidate);
        let is_ours = candidate.tactic.name.split('_').next().is_some_and(|name| families.contains(&name))
            && offline::sources(&Gpu::known("h200").unwrap(), &posed, &candidate.tactic).is_ok();
        if is_ours {
            let key = format!("{} {}", problem.region.title(), problem.region.ops());
            let mut found = note.lock().unwrap();
            found.entry(key).or_insert_with(|| (problem.clone(), Vec::new())).1.push(candidate.clone());
        }
        true
    });
    let options = BuildOptions {
        tune_level: 0,
        threads: 1,
        verify: false,
        precision,
        tune_at: sizes.iter().map(|(name, size)| ((*name).to_string(), *size)).collect(),
        selector: Some(selector),
        ..BuildOptions::default()
    };
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(Cuda::planned(gpu.clone()))];
    build(graph, &backends, &options, &mut TimingCache::default()).unwrap();
    let found = found.lock().unwrap();
    found.clone()
}

/// Tactics of one point that are refused at another, with how often.
fn refused(graph: &Graph, points: &[&[(&str, i64)]]) -> BTreeSet<String> {
    let gpu = Gpu::known("h200").unwrap();
    let mut refused = BTreeSet::new();
    for precision in [Precision::Fp16, Precision::Fp32] {
        let all: Vec<Offers> = points.iter().map(|sizes| offers(graph, &gpu, precision, sizes)).collect();
        let mut n_asked = 0;
        for (from, here) in all.iter().enumerate() {
            for (to, there) in all.iter().enumerate().filter(|(to, _)| *to != from) {
                for (key, (_, candidates)) in here {
                    let Some((problem, _)) = there.get(key) else { continue };
                    for candidate in candidates {
                        n_asked += 1;
                        let posed = problem.for_candidate(candidate);
                        if let Err(error) = offline::sources(&gpu, &posed, &candidate.tactic) {
                            let (from, to) = (points[from], points[to]);
                            refused.insert(format!(
                                "{} of {key}, from {from:?} to {to:?}: {error}",
                                candidate.tactic
                            ));
                        }
                    }
                }
            }
        }
        assert!(n_asked > 100, "only {n_asked} tactics were asked");
    }
    refused
}

#[track_caller]
fn assert_none(refused: &BTreeSet<String>) {
    let listed: Vec<&String> = refused.iter().step_by(refused.len() / 9 + 1).collect();
    assert!(refused.is_empty(), "{} refused, such as {listed:#?}", refused.len());
}

/// A constant of small numbers.
fn weight(name: &str, dims: &[usize]) -> String {
    let n: usize = dims.iter().product();
    let numbers: Vec<String> = (0..n).map(|idx| format!("{}", (idx * 7 % 13) as f32 / 64.0 - 0.1)).collect();
    format!("const %{name}: f32{dims:?} = [{}]\n", numbers.join(", "))
}

#[test]
fn tactics_of_an_image_network_hold_at_other_batches() {
    let graph = planish_zoo::graph("resnet18_224", 0).unwrap();
    assert_none(&refused(&graph, &[&[("batch", 1)], &[("batch", 3)], &[("batch", 32)]]));
}

#[test]
fn tactics_of_images_hold_at_other_sizes() {
    let weights = [
        weight("w1", &[32, 3, 7, 7]),
        weight("b1", &[32]),
        weight("w2", &[32, 32, 3, 3]),
        weight("w3", &[64, 32, 1, 1]),
        weight("w4", &[64, 1, 3, 3]),
        weight("w5", &[64, 64, 2, 2]),
        weight("w6", &[8, 64, 3, 3]),
    ];
    let text = format!(
        r#"graph "g" {{
        input %x: f32[n, 3, h, w]
        {}
        %a: f32[n, 32, h, w] = Conv(%x, %w1, %b1) {{pads=[3, 3, 3, 3]}} "a"
        %ar: f32[n, 32, h, w] = Relu(%a) "ar"
        %b: f32[n, 32, h, w] = Conv(%ar, %w2) {{pads=[1, 1, 1, 1]}} "b"
        %c: f32[n, 32, h, w] = Add(%b, %ar) "c"
        %d: f32[n, 64, h, w] = Conv(%c, %w3) "d"
        %e: f32[n, 64, h, w] = Conv(%d, %w4) {{pads=[1, 1, 1, 1], group=64}} "e"
        %f: f32[n, 64, h, w] = Sigmoid(%e) "f"
        %s: f32[n, 64, 1, 1] = GlobalAveragePool(%f) "s"
        %g: f32[n, 64, h, w] = Mul(%f, %s) "g"
        %t: f32[n, 64, 2*h, 2*w] = ConvTranspose(%g, %w5) {{strides=[2, 2]}} "t"
        %y: f32[n, 8, 2*h, 2*w] = Conv(%t, %w6) {{pads=[1, 1, 1, 1]}} "y"
        output %y
    }}"#,
        weights.concat()
    );
    let graph: Graph = text.parse().unwrap();
    let points: [&[(&str, i64)]; 4] = [
        &[("n", 1), ("h", 64), ("w", 64)],
        &[("n", 2), ("h", 33), ("w", 47)],
        &[("n", 1), ("h", 1), ("w", 1)],
        &[("n", 5), ("h", 200), ("w", 8)],
    ];
    assert_none(&refused(&graph, &points));
}

#[test]
fn tactics_of_a_text_network_hold_at_other_lengths() {
    let graph = planish_zoo::graph("minilm", 0).unwrap();
    let point = |batch, length| [("batch", batch), ("seq", length)];
    assert_none(&refused(&graph, &[&point(1, 128), &point(1, 7), &point(4, 33), &point(1, 512)]));
}
