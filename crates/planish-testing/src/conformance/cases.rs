//! The cases: problems of every kind, at sizes around the edges of tiles and vectors, with primes, ones and zeros among
//! them, in every type.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use planish_kernel::{Numeric, Operand, Problem, Ref, RegionNode};
use planish_op::{self as op, Op, ScatterReduction};
use planish_tensor::{DType, Tensor, normalize_axis};

use crate::problems::pointwise::plain;
use crate::problems::{
    attention, conv, convtranspose, depthwise, dynquant, gather, matmul, movement, nbits, norm, pointwise,
    pool, quantized, recurrent, reduce, resize, rotary, scan, scatter, softmax, sparse, topk,
};
use crate::{Random, Reals, Sample, evaluate, input, node};

/// A problem with values and what the reference makes of them.
#[derive(Debug)]
pub struct Case {
    /// The kind, the operators, and types and sizes of the inputs, as in `pool/MaxPool f16[2x64x15x14]`.
    pub name: String,
    pub problem: Problem,
    /// Whether results must be the reference's to the last bit: elements are moved and compared, never computed.
    pub is_exact: bool,
    /// How much farther than its number types explain the result may be off; 1 for most.
    pub slack: f64,
    values: OnceLock<Values>,
}

#[derive(Debug)]
struct Values {
    inputs: Vec<Tensor>,
    want: Vec<Tensor>,
}

impl Case {
    fn new(kind: &str, problem: Problem) -> Case {
        let is_exact = problem.region.nodes.iter().all(|node| moves(&node.op));
        let name = format!("{kind}/{}", title(&problem));
        Case { name, problem, is_exact, slack: 1.0, values: OnceLock::new() }
    }

    fn values(&self) -> &Values {
        self.values.get_or_init(|| {
            let mut random = Random::new(7);
            let mut inputs: Vec<Tensor> =
                (0..self.problem.inputs.len()).map(|idx| drawn(&self.problem, idx, &mut random)).collect();
            if self.problem.numeric == Numeric::BF16 {
                inputs.iter_mut().for_each(as_bf16);
            }
            // Defined for f32 alone, and by its roundings.
            let is_of_f32 = |node: &RegionNode| matches!(node.op, Op::DynamicQuantizeLinear(_));
            let reals = match self.problem.region.nodes.iter().any(is_of_f32) {
                true => Reals::Stored,
                false => Reals::F64,
            };
            let want = evaluate(&self.problem.region, &inputs, reals)
                .unwrap_or_else(|error| panic!("{}: {error}", self.name));
            Values { inputs, want }
        })
    }

    /// The inputs' values.
    pub fn inputs(&self) -> &[Tensor] {
        &self.values().inputs
    }

    /// The outputs by the reference, reals in f64 throughout.
    pub fn want(&self) -> &[Tensor] {
        &self.values().want
    }
}

/// Brings numbers of f32 to those that bf16 has.
fn as_bf16(tensor: &mut Tensor) {
    if tensor.dtype() == DType::F32 {
        let through = |to, from: &Tensor| Tensor::from_f64s(to, from.shape(), &from.to_f64s());
        *tensor =
            through(DType::BF16, tensor).and_then(|low| through(DType::F32, &low)).expect("as many numbers");
    }
}

/// Operators whose results are elements of their inputs, or whole numbers.
fn moves(op: &Op) -> bool {
    match op {
        Op::ScatterElements(op) => op.reduction == ScatterReduction::None,
        Op::ScatterND(op) => op.reduction == ScatterReduction::None,
        _ => matches!(
            op,
            Op::Identity(_)
                | Op::Transpose(_)
                | Op::Concat(_)
                | Op::Slice(_)
                | Op::Split(_)
                | Op::Expand(_)
                | Op::Pad(_)
                | Op::Gather(_)
                | Op::GatherElements(_)
                | Op::GatherND(_)
                | Op::MaxPool(_)
                | Op::GlobalMaxPool(_)
                | Op::TopK(_)
                | Op::ArgMax(_)
                | Op::ArgMin(_)
                | Op::Relu(_)
        ),
    }
}

/// Operators, types and sizes.
fn title(problem: &Problem) -> String {
    let operand = |operand: &Operand| {
        let dims = operand.dims.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        format!("{}{}[{dims}]", if operand.constant { "w" } else { "" }, operand.dtype.name())
    };
    let inputs: Vec<String> = problem.inputs.iter().map(operand).collect();
    let numeric = if problem.numeric == Numeric::TF32 { " tf32" } else { "" };
    format!("{} {}{numeric}", problem.region.ops(), inputs.join(" "))
}

/// How large an input's values are: weights such that sums of products are about one whatever their depth, so that a
/// function after them is neither flat nor steep.
fn scale(problem: &Problem, idx: usize) -> f32 {
    let Operand { dims, constant, .. } = &problem.inputs[idx];
    if !constant || dims.len() < 2 {
        return 2.0;
    }
    let depth: usize = match &problem.region.nodes[0].op {
        Op::MatMul(_) => dims[dims.len() - 2],
        _ => dims[1..].iter().product(),
    };
    (3.0 / depth.max(1) as f32).sqrt()
}

/// Values of an input: indices within what they index, from either end, and otherwise anything.
fn drawn(problem: &Problem, idx: usize, random: &mut Random) -> Tensor {
    let operand = &problem.inputs[idx];
    let node = &problem.region.nodes[0];
    let reads_index = node.inputs.get(1) == Some(&Some(Ref::Input(idx as u32)));
    if matches!(node.op, Op::RotaryEmbedding(_)) && idx == 3 {
        // Positions do not count from the end.
        let n_rows = problem.inputs[1].dims[0];
        let values: Vec<f64> = (0..operand.len()).map(|_| random.below(n_rows) as f64).collect();
        return Tensor::from_f64s(operand.dtype, &operand.dims, &values).expect("as many as places");
    }
    let is_quantization =
        |node: &RegionNode| matches!(node.op, Op::DequantizeLinear(_) | Op::QuantizeLinear(_));
    if operand.dtype.is_float() && problem.region.nodes.iter().any(is_quantization) {
        return exact(problem, idx, random);
    }
    let data = &problem.inputs[0].dims;
    let axis = |axis: i64| data[normalize_axis(axis, data.len()).expect("an axis of the data")];
    let sizes: Vec<usize> = match &node.op {
        Op::Gather(op) if reads_index => vec![axis(op.axis)],
        Op::GatherElements(op) if reads_index => vec![axis(op.axis)],
        Op::ScatterElements(op) if reads_index => vec![axis(op.axis)],
        Op::GatherND(op) if reads_index => data[op.batch_dims as usize..].to_vec(),
        Op::ScatterND(_) if reads_index => data.clone(),
        _ => return random.input(problem, idx, scale(problem, idx)),
    };
    // Each tuple has as many places as its last dimension says.
    let depth = match sizes.len() {
        1 => 1,
        _ => operand.dims.last().copied().unwrap_or(1).max(1),
    };
    let values: Vec<f64> = (0..operand.len())
        .map(|flat| {
            let size = sizes[flat % depth];
            random.below(2 * size) as f64 - size as f64
        })
        .collect();
    Tensor::from_f64s(operand.dtype, &operand.dims, &values).expect("as many indices as places")
}

/// Floats beside numbers of 8 bits, such that sums are exact and no quotient comes near the middle of two of these by
/// rounding: powers of two for scales, else small multiples of an eighth; of a half where they have 8 bits themselves, since
/// tensor cores add products of these with some 13 bits.
fn exact(problem: &Problem, idx: usize, random: &mut Random) -> Tensor {
    let operand = &problem.inputs[idx];
    let is_scale = |node: &RegionNode| {
        matches!(node.op, Op::DequantizeLinear(_))
            && node.inputs.get(1) == Some(&Some(Ref::Input(idx as u32)))
    };
    let is_scale = problem.region.nodes.iter().any(is_scale);
    random.made(operand.dtype, &operand.dims, |random| match is_scale {
        true => 2f64.powi(-(random.below(3) as i32) - 6),
        false if operand.dtype == DType::F8E4M3FN => random.below(8) as f64 * 0.5 - 2.0,
        false => random.below(32) as f64 * 0.125 - 2.0,
    })
}

/// The same problem in f32; none where a type is part of what it computes.
fn in_f32(problem: &Problem) -> Option<Problem> {
    let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    let casts = problem.region.nodes.iter().any(|node| match &node.op {
        Op::DequantizeLinear(op) => op.output_dtype.is_some(),
        op => matches!(op, Op::Cast(_)),
    });
    let mut wide = problem.clone();
    let mut n_changed = 0;
    for operand in wide.inputs.iter_mut().chain(&mut wide.outputs).filter(|operand| is_half(operand.dtype)) {
        operand.dtype = DType::F32;
        n_changed += 1;
    }
    for constant in wide.region.constants.iter_mut().filter(|constant| is_half(constant.dtype())) {
        let values = constant.to_f64s();
        *constant = Tensor::from_f64s(DType::F32, constant.shape(), &values).expect("as many as before");
    }
    wide.numeric = Numeric::F32;
    (n_changed > 0 && !casts).then_some(wide)
}

/// Sizes of one dimension: none, one, and around whole vectors and tiles of every width, with primes between them.
const SIZES: [usize; 14] = [0, 1, 2, 3, 7, 8, 9, 13, 16, 17, 31, 33, 64, 127];

/// Reals of the types that most kernels have.
const REALS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn pointwise_of_all_sizes() -> Vec<Problem> {
    let mut all = Vec::new();
    let fused = || {
        vec![
            (Op::from(op::Mul {}), vec![input(0), input(1)]),
            (op::Add {}.into(), vec![node(0), input(2)]),
            (op::Relu {}.into(), vec![node(1)]),
        ]
    };
    for dtype in REALS {
        for size in SIZES {
            all.push(Sample::op(op::Relu {}, 1).typed(dtype, &[size]).problem());
            let sum =
                Sample::of(fused()).typed(dtype, &[3, size]).typed(dtype, &[size]).typed(dtype, &[3, 1]);
            all.push(sum.problem());
        }
        let image = [2usize, 5, 7, 9];
        let gated = Sample::of(fused()).typed(dtype, &image).typed(dtype, &[5, 1, 1]).typed(dtype, &image);
        all.push(gated.problem());
        for name in ["Abs", "Exp", "Sqrt", "Tanh", "Erf", "Sigmoid", "Floor", "Neg", "Reciprocal", "Softplus"]
        {
            all.push(Sample::op(plain(name), 1).typed(dtype, &[3, 41]).problem());
        }
        for name in ["Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "Equal"] {
            all.push(Sample::op(plain(name), 2).typed(dtype, &[5, 19]).typed(dtype, &[19]).problem());
        }
    }
    for dtype in [DType::I32, DType::I64] {
        for name in ["Add", "Sub", "Mul", "Max", "Min", "Less", "Equal"] {
            all.push(Sample::op(plain(name), 2).typed(dtype, &[4, 11]).typed(dtype, &[4, 1]).problem());
        }
    }
    for name in ["And", "Or", "Xor"] {
        all.push(Sample::op(plain(name), 2).typed(DType::Bool, &[37]).typed(DType::Bool, &[37]).problem());
    }
    all
}

fn products_of_all_sizes() -> Vec<Problem> {
    let sizes = [
        (0, 5, 4),
        (5, 0, 4),
        (1, 1, 1),
        (1, 64, 64),
        (7, 13, 3),
        (15, 17, 16),
        (16, 16, 16),
        (17, 15, 31),
        (31, 33, 64),
        (64, 63, 65),
        (65, 127, 33),
        (129, 31, 127),
    ];
    let mut all = Vec::new();
    for dtype in REALS {
        for (m, n, k) in sizes {
            all.push(matmul::matmul(dtype, &[m, k], &[k, n], false, None));
            all.push(matmul::matmul(dtype, &[m, k], &[k, n], true, Some(op::Relu {}.into())));
        }
        all.push(matmul::matmul(dtype, &[2, 3, 7, 8], &[2, 3, 8, 9], false, None));
        all.push(matmul::matmul(dtype, &[5, 7, 8], &[8, 9], false, None));
    }
    all
}

fn rows_of_all_sizes(of: impl Fn(DType, usize) -> Sample) -> Vec<Problem> {
    let sizes = SIZES.into_iter().filter(|size| *size > 0).chain([1023, 1025]);
    let each = sizes.flat_map(|size| REALS.map(|dtype| (dtype, size)));
    each.map(|(dtype, size)| of(dtype, size).problem()).collect()
}

fn moved_of_all_sizes() -> Vec<Problem> {
    let mut all = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::I64, DType::U8, DType::Bool] {
        for size in SIZES {
            let swapped = op::Transpose { perm: Some(vec![1, 0]) };
            all.push(Sample::op(swapped, 1).typed(dtype, &[size, 5]).problem());
            all.push(Sample::op(op::Identity {}, 1).typed(dtype, &[2, size, 3, 2]).problem());
        }
        let joined = Sample::op(op::Concat { axis: 1 }, 2).typed(dtype, &[2, 3, 7]).typed(dtype, &[2, 1, 7]);
        all.push(joined.problem());
    }
    all
}

/// Every kind with its problems.
fn kinds() -> Vec<(&'static str, Vec<Problem>)> {
    let softmax_rows =
        rows_of_all_sizes(|dtype, size| Sample::op(op::Softmax { axis: -1 }, 1).typed(dtype, &[3, size]));
    let norm_rows = rows_of_all_sizes(|dtype, size| {
        let layer = op::LayerNormalization { stash_type: 1, epsilon: 1e-5, axis: -1 };
        Sample::op(layer, 3).typed(dtype, &[2, size]).typed(dtype, &[size]).typed(dtype, &[size])
    });
    let (to_integers, to_floats) =
        quantized::to_bytes().into_iter().partition(|problem| problem.outputs[0].dtype == DType::I8);
    vec![
        ("attention", attention::samples()),
        ("attention/e4m3", attention::of_floats_of_8_bits()),
        ("conv", [conv::samples(), conv::convolutions(), conv::gathered()].concat()),
        ("conv_first", conv::few_channels()),
        ("conv_overlapping", conv::overlapping()),
        ("conv_patches", conv::patches()),
        ("convtranspose", [convtranspose::samples(), convtranspose::patches()].concat()),
        ("depthwise", depthwise::samples()),
        ("dynquant", dynquant::samples()),
        ("gather", gather::samples()),
        (
            "matmul",
            [matmul::samples(), matmul::products(), matmul::strided_products(), products_of_all_sizes()]
                .concat(),
        ),
        ("movement", [movement::samples(), moved_of_all_sizes()].concat()),
        ("nbits", [nbits::samples(), nbits::of_all_sizes()].concat()),
        ("norm", [norm::samples(), norm_rows].concat()),
        ("pointwise", [pointwise::samples(), pointwise_of_all_sizes()].concat()),
        ("pool", pool::samples()),
        (
            "quantized",
            [
                quantized::convolutions(),
                quantized::overlapping(),
                quantized::patches(),
                quantized::products(),
            ]
            .concat(),
        ),
        ("quantized/i8", to_integers),
        ("quantized/e4m3", to_floats),
        ("recurrent", recurrent::samples()),
        ("reduce", reduce::samples()),
        ("resize", resize::samples()),
        ("rotary", [rotary::samples(), rotary::of_all_sizes(&SIZES, &REALS)].concat()),
        ("scan", scan::samples()),
        ("scatter", scatter::samples()),
        ("softmax", [softmax::samples(), softmax_rows].concat()),
        ("sparse", [sparse::samples(), sparse::of_all_sizes()].concat()),
        ("topk", topk::samples()),
    ]
}

/// All cases, each with a name of its own. Problems of 16-bit floats are there in f32 too.
pub fn cases() -> Vec<Case> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut keys = std::collections::BTreeSet::new();
    let mut all = Vec::new();
    for (kind, problems) in kinds() {
        let wide: Vec<Problem> = problems.iter().filter_map(in_f32).collect();
        for problem in problems.into_iter().chain(wide) {
            if !keys.insert(problem.key()) {
                continue;
            }
            let mut case = Case::new(kind, problem);
            let n = seen.entry(case.name.clone()).or_default();
            *n += 1;
            // Attributes alone tell such apart.
            if *n > 1 {
                case.name = format!("{} #{n}", case.name);
            }
            all.push(case);
        }
    }
    all
}

/// What is granted of what the number types explain where factors are numbers of bf16 already: results are those of sums
/// in f32 then (2e-5 of 2.4e-2).
const EXACT_FACTORS: f64 = 1.0 / 1200.0;

/// The products of f32 among the cases, as problems whose factors may be rounded to bf16, on factors that are such.
pub fn rounded_cases() -> Vec<Case> {
    let mut all = cases();
    all.retain(|case| {
        let Problem { region, inputs, outputs, numeric, .. } = &case.problem;
        let multiplies =
            matches!(region.nodes[0].op, Op::Conv(_) | Op::ConvTranspose(_) | Op::MatMul(_) | Op::Gemm(_));
        let is_f32 = inputs.iter().chain(outputs).all(|operand| operand.dtype == DType::F32);
        multiplies && is_f32 && *numeric == Numeric::F32
    });
    for case in &mut all {
        case.problem.numeric = Numeric::BF16;
        case.slack *= EXACT_FACTORS;
        case.name.push_str(" by bf16");
    }
    all
}
