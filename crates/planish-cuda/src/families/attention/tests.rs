//! Attention against the reference: masks, causes, groups, sizes around the tiles.

use ::planish_op as op;
use planish_gpu::operands::candidate;
use planish_gpu::plan::Plan;
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};
use planish_tensor::{DType, Tensor};
use planish_testing::problems::attention::attention;
use planish_testing::{Random, Sample, Tolerance, constant, input, node, problems};

use super::{AttentionFamily, Form};
use crate::family::Family;
use crate::gpu::Gpu;
use crate::trial;

/// Weights are rounded to the operands' type before they meet the values: half a unit in the last place of bf16
/// or f16 relative to the largest, averaged over the keys.
const WEIGHTS_F16: Tolerance = Tolerance { relative: 2e-3, absolute: 1e-3 };
const WEIGHTS_BF16: Tolerance = Tolerance { relative: 1e-2, absolute: 8e-3 };
const WEIGHTS_F32: Tolerance = Tolerance { relative: 1e-5, absolute: 1e-5 };

fn tolerance(dtype: DType) -> Tolerance {
    match dtype {
        DType::F16 => WEIGHTS_F16,
        DType::BF16 => WEIGHTS_BF16,
        _ => WEIGHTS_F32,
    }
}

#[test]
fn samples_are_attended() {
    for problem in problems::attention::samples() {
        trial::check(&AttentionFamily, &problem, 5, tolerance(problem.outputs[0].dtype));
    }
}

#[test]
fn heads_in_rows_and_groups_of_them() {
    for dtype in [DType::F16, DType::F32] {
        let attention = op::Attention {
            softcap: 3.0,
            kv_num_heads: Some(2),
            q_num_heads: Some(4),
            scale: Some(0.25),
            ..attention(true)
        };
        let sample = Sample::op(attention, 4).typed(dtype, &[2, 21, 4 * 16]).typed(dtype, &[2, 33, 2 * 16]);
        let sample = sample.typed(dtype, &[2, 33, 2 * 24]).typed(dtype, &[21, 33]);
        trial::check(&AttentionFamily, &sample.problem(), 5, tolerance(dtype));
    }
}

/// One form, whatever its price.
struct Only(Form);

impl Family for Only {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn candidates(&self, _gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let wants = |n: usize| vec![Want::inside(Layout::Plain); n];
        let (inputs, outputs) = (wants(problem.inputs.len()), wants(problem.outputs.len()));
        vec![candidate(self.0.name(), super::REVISION, inputs, outputs, 1.0)]
    }

    fn plan(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        Family::plan(&AttentionFamily, gpu, problem, tactic)
    }
}

#[test]
fn groups_of_warps_share_keys() {
    let grouped = |tiles, groups, keys, parts| Form::Grouped { tiles, groups, keys, parts, together: false };
    let clustered = |tiles, groups, keys, parts| Form::Grouped { tiles, groups, keys, parts, together: true };
    // With fewer keys than steps of all groups, with parts that get none, with rows that end inside of a vector.
    let cases = [
        (grouped(1, 4, 16, 2), [1, 2, 37, 40], [1, 2, 75, 40], 24, false),
        (grouped(2, 2, 32, 1), [2, 1, 70, 64], [2, 1, 41, 64], 64, true),
        (grouped(4, 2, 16, 8), [1, 1, 17, 16], [1, 1, 50, 16], 21, false),
        (grouped(1, 4, 16, 4), [1, 1, 9, 256], [1, 1, 21, 256], 256, false),
        (clustered(1, 4, 16, 8), [1, 2, 37, 40], [1, 2, 75, 40], 24, false),
        (clustered(2, 4, 16, 4), [1, 1, 70, 256], [1, 1, 300, 256], 256, false),
        (clustered(2, 2, 32, 2), [2, 1, 70, 64], [2, 1, 41, 64], 64, true),
    ];
    for (form, queries, keys, value_size, is_causal) in cases {
        let [batch, heads, n_keys, _] = keys;
        let sample = Sample::op(attention(is_causal), 3).typed(DType::F16, &queries).typed(DType::F16, &keys);
        let problem = sample.typed(DType::F16, &[batch, heads, n_keys, value_size]).problem();
        trial::check(&Only(form), &problem, 7, WEIGHTS_F16);
    }
}

#[test]
fn rows_of_queries_share_keys() {
    let rows = |warps, keys| Form::Rows { warps, keys };
    // Tiles that end inside of a step, in one feature and in several chunks; masks of rows, of queries, of booleans; causes.
    let cases = [
        (rows(2, 32), [1, 2, 37, 32], [1, 2, 75, 32], 24, false, None),
        (rows(4, 64), [2, 1, 65, 64], [2, 1, 64, 64], 64, false, Some((DType::F32, vec![2, 1, 1, 64]))),
        (rows(1, 128), [1, 1, 17, 16], [1, 1, 131, 16], 40, false, Some((DType::Bool, vec![17, 131]))),
        (rows(8, 32), [1, 1, 1, 128], [1, 1, 33, 128], 128, true, None),
        (rows(2, 64), [1, 1, 33, 21], [1, 1, 129, 21], 21, false, Some((DType::F16, vec![1, 100]))),
    ];
    for (form, queries, keys, value_size, is_causal, mask) in cases {
        let [batch, heads, n_keys, _] = keys;
        let n_inputs = if mask.is_some() { 4 } else { 3 };
        let sample =
            Sample::op(attention(is_causal), n_inputs).typed(DType::F16, &queries).typed(DType::F16, &keys);
        let sample = sample.typed(DType::F16, &[batch, heads, n_keys, value_size]);
        let sample = match &mask {
            Some((dtype, dims)) => sample.typed(*dtype, dims),
            None => sample,
        };
        trial::check(&Only(form), &sample.problem(), 7, WEIGHTS_F16);
    }
}

/// Results that lie at a boundary of floats of 8 bits may fall to either side: a step, an eighth of the number.
const ROUNDED: Tolerance = Tolerance { relative: 0.126, absolute: 0.01 };

#[test]
fn results_are_rounded_to_8_bits() {
    let [cast, quantize] = problems::pointwise::cast_and_quantize();
    let zero = Tensor::zeros(DType::F8E4M3FN, &[]).unwrap();
    let grouped = Form::Grouped { tiles: 2, groups: 2, keys: 32, parts: 1, together: false };
    for form in [Form::Narrow { warps: 2 }, grouped] {
        for size in [32, 21] {
            let nodes = vec![
                (attention(false).into(), vec![input(0), input(1), input(2)]),
                (cast.clone(), vec![node(0)]),
                (quantize.clone(), vec![node(1), constant(0), constant(1)]),
            ];
            let sample = Sample::of(nodes).constant(Tensor::scalar(0.02f32)).constant(zero.clone());
            let sample = sample.typed(DType::F16, &[1, 2, 37, 32]).typed(DType::F16, &[1, 2, 75, 32]);
            let problem = sample.typed(DType::F16, &[1, 2, 75, size]).problem();
            trial::check(&Only(form), &problem, 7, ROUNDED);
        }
    }
}

#[test]
fn operands_of_8_bits_are_attended() {
    for problem in problems::attention::of_floats_of_8_bits() {
        let tolerance = match problem.outputs[0].dtype {
            DType::F8E4M3FN => ROUNDED,
            dtype => tolerance(dtype),
        };
        for form in [Form::Rows { warps: 2, keys: 32 }, Form::Rows { warps: 4, keys: 64 }] {
            trial::check(&Only(form), &problem, 11, tolerance);
        }
        let candidates = AttentionFamily.candidates(&Gpu::known("h200").unwrap(), &problem, &Budget::USUAL);
        assert!(candidates.iter().all(|candidate| candidate.tactic.name.starts_with("attention_rows")));
        assert!(!candidates.is_empty());
        assert!(
            AttentionFamily.candidates(&Gpu::known("a100").unwrap(), &problem, &Budget::USUAL).is_empty()
        );
    }
}

#[test]
fn every_stage_of_the_scores_and_lengths() {
    for stage in 1..=3 {
        let attention = op::Attention { qk_matmul_output_mode: stage, softcap: 3.0, ..attention(false) };
        let places = vec![input(0), input(1), input(2), input(3), None, None, input(4)];
        let sample = Sample::of(vec![(attention.into(), places)]).n_outputs(4);
        let sample = sample.f32(&[2, 2, 3, 8]).f32(&[2, 2, 140, 8]).f32(&[2, 2, 140, 4]);
        let problem = sample.f32(&[2, 1, 3, 133]).typed(DType::I64, &[2]).problem();
        let mut numbers = Random::new(3);
        let mut inputs: Vec<Tensor> =
            problem.inputs[..4].iter().map(|at| numbers.tensor(at.dtype, &at.dims, 2.0)).collect();
        inputs.push(Tensor::vector(vec![140i64, 9]));
        trial::check_on(&AttentionFamily, &problem, &inputs, WEIGHTS_F32);
    }
}

#[test]
fn names_lead_back_to_forms() {
    for form in super::Form::all() {
        assert_eq!(super::Form::named(&form.name()), Some(form));
    }
}
