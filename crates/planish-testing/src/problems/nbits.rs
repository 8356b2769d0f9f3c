//! Products with weights of 4 or 8 bits in blocks: integers with and without signs, zero points, blocks of all kinds,
//! matrices either way round, few rows and many, epilogues.

use planish_kernel::Problem;
use planish_op::{self as op, Op};
use planish_tensor::DType;

use super::{numeric, with, with_image};
use crate::{Sample, input, node};

/// A product and how its weight is stored.
#[derive(Clone, Debug)]
pub struct FewBits {
    /// The rows' type, which is the result's, and their sizes before the last, which is `k`.
    pub dtype: DType,
    pub rows: Vec<usize>,
    pub n: usize,
    pub k: usize,
    pub weight: DType,
    /// 0 for one scale a column.
    pub block: usize,
    /// Whether the weight is `n x k`, the second factor of a Gemm.
    pub transposed: bool,
    pub zeros: bool,
    /// What scales are stored in, where it is another type than the result's.
    pub scales: Option<DType>,
}

impl FewBits {
    /// Weights without zero points, `k x n`.
    pub fn new(dtype: DType, rows: &[usize], [n, k]: [usize; 2], weight: DType, block: usize) -> FewBits {
        let rows = rows.to_vec();
        FewBits { dtype, rows, n, k, weight, block, transposed: false, zeros: false, scales: None }
    }

    #[must_use]
    pub fn with_zeros(mut self) -> FewBits {
        self.zeros = true;
        self
    }

    #[must_use]
    pub fn transposed(mut self) -> FewBits {
        self.transposed = true;
        self
    }

    #[must_use]
    pub fn scaled_by(mut self, scales: DType) -> FewBits {
        self.scales = Some(scales);
        self
    }

    /// DequantizeLinear, the product, and nothing after it.
    pub fn problem(&self) -> Problem {
        let FewBits { dtype, rows, n, k, weight, block, transposed, zeros, scales } = self;
        let turn = |k: usize| if *transposed { [*n, k] } else { [k, *n] };
        let scale_dims = match block {
            0 => vec![*n],
            block => turn(k.div_ceil(*block)).to_vec(),
        };
        let along = i64::from(*transposed);
        let dequantize = op::DequantizeLinear {
            output_dtype: scales.map(|_| *dtype),
            block_size: *block as i64,
            axis: if *block == 0 { 1 - along } else { along },
        };
        let product: Op = match transposed {
            true => op::Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: true }.into(),
            false => op::MatMul {}.into(),
        };
        let read = (1..if *zeros { 4 } else { 3 }).map(input).collect();
        let sample = Sample::of(vec![(dequantize.into(), read), (product, vec![input(0), node(0)])])
            .typed(*dtype, &[rows, &[*k][..]].concat())
            .weight(*weight, &turn(*k))
            .weight(scales.unwrap_or(*dtype), &scale_dims);
        let sample = if *zeros { sample.weight(*weight, &scale_dims) } else { sample };
        Problem { numeric: numeric(*dtype), ..sample.problem() }
    }
}

/// Problems that between them ask for each kernel.
pub fn samples() -> Vec<Problem> {
    let [half, brain, single] = [DType::F16, DType::BF16, DType::F32];
    let of = FewBits::new;
    let problems = [
        of(half, &[1], [48, 192], DType::I4, 32),
        of(half, &[1], [100, 300], DType::U4, 16).with_zeros(),
        of(half, &[3], [64, 256], DType::I8, 128),
        of(half, &[9], [33, 200], DType::I4, 32).transposed(),
        of(half, &[2, 10], [40, 160], DType::I4, 64).with_zeros(),
        of(half, &[70], [50, 192], DType::U8, 32).with_zeros(),
        of(half, &[5], [20, 96], DType::I8, 0),
        of(half, &[4], [24, 130], DType::I4, 32).scaled_by(single),
        of(brain, &[2], [31, 128], DType::I4, 32),
        of(brain, &[1], [17, 96], DType::I8, 48).with_zeros().transposed(),
        of(single, &[1], [64, 512], DType::I4, 32),
        of(single, &[2, 1, 3], [19, 77], DType::U8, 16).with_zeros(),
        of(single, &[12], [80, 144], DType::I4, 16).transposed(),
        of(single, &[40], [16, 64], DType::I8, 0),
    ];
    let mut all: Vec<Problem> = problems.iter().map(FewBits::problem).collect();
    let plain = of(half, &[2, 3], [72, 128], DType::I4, 32).problem();
    let biased = with(plain, op::Add {}, Some(&[72]));
    all.push(with(with_image(biased.clone(), op::Add {}), op::Relu {}, None));
    all.push(with(biased, op::Gelu { approximate: op::GeluApproximation::None }, None));
    all
}

/// Sizes around the edges of tiles, chunks and blocks.
pub fn of_all_sizes() -> Vec<Problem> {
    let sizes: [([usize; 3], usize); 12] = [
        ([0, 5, 32], 16),
        ([1, 1, 1], 16),
        ([1, 15, 31], 16),
        ([1, 16, 64], 32),
        ([2, 17, 65], 32),
        ([7, 16, 63], 64),
        ([8, 33, 128], 128),
        ([9, 31, 127], 32),
        ([16, 64, 96], 48),
        ([17, 13, 129], 256),
        ([33, 47, 257], 16),
        ([65, 7, 24], 8),
    ];
    let types = [DType::I4, DType::U4, DType::I8, DType::U8];
    let each = sizes.into_iter().enumerate().flat_map(|(idx, ([m, n, k], block))| {
        [DType::F16, DType::F32].map(|dtype| {
            // Integers without a sign need zero points.
            let weight = types[(idx + usize::from(dtype == DType::F32)) % 4];
            let one = FewBits::new(dtype, &[m], [n, k], weight, block);
            let one =
                if matches!(weight, DType::U4 | DType::U8) || idx % 3 == 0 { one.with_zeros() } else { one };
            if idx % 2 == 1 { one.transposed() } else { one }
        })
    });
    each.map(|one| one.problem()).collect()
}
