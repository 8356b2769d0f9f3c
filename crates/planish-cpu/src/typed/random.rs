//! Seeded random numbers, drawn by all threads: each is a function of its place alone, the one that the reference has.

use planish_kernel::{KernelError, Layout, Problem, Ref};
use planish_op::Op;
use planish_reference::random::{Generator, Stream};
use planish_tensor::rounding::{bf16_from_f64, f16_from_f64};
use planish_tensor::{DType, bf16, f16};

use crate::family::Work;
use crate::shared::Shared;
use crate::team::Team;

/// Numbers of a task: some 20 µs.
const TASK_NUMBERS: usize = 1 << 9;

#[derive(Clone, Copy, Debug)]
enum Distribution {
    Normal { mean: f64, scale: f64 },
    Uniform { low: f64, width: f64 },
}

/// What is drawn, and how many.
#[derive(Debug)]
pub(super) struct Drawn {
    generator: Generator,
    from: Distribution,
    dtype: DType,
    n: usize,
}

pub(super) fn plan(problem: &Problem) -> Option<Drawn> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let normal = |mean: f32, scale: f32| Distribution::Normal { mean: mean.into(), scale: scale.into() };
    let uniform = |low: f32, high: f32| Distribution::Uniform {
        low: low.into(),
        width: f64::from(high) - f64::from(low),
    };
    let (seed, from) = match &node.op {
        Op::RandomNormal(op) => (op.seed, normal(op.mean, op.scale)),
        Op::RandomNormalLike(op) => (op.seed, normal(op.mean, op.scale)),
        Op::RandomUniform(op) => (op.seed, uniform(op.low, op.high)),
        Op::RandomUniformLike(op) => (op.seed, uniform(op.low, op.high)),
        _ => return None,
    };
    let stream = match from {
        Distribution::Normal { .. } => Stream::Normal,
        Distribution::Uniform { .. } => Stream::Uniform,
    };
    let fits = problem.region.outputs == [Ref::Node { node: 0, output: 0 }]
        && matches!(y.dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
        && y.packed.is_none()
        && y.is_dense(Layout::Plain);
    fits.then(|| Drawn {
        generator: Generator::from_float_seed(seed, stream),
        from,
        dtype: y.dtype,
        n: y.len(),
    })
}

impl Drawn {
    fn number(&self, place: usize) -> f64 {
        match self.from {
            Distribution::Normal { mean, scale } => mean + scale * self.generator.normal(place),
            Distribution::Uniform { low, width } => {
                low + width * self.generator.uniform_of(self.dtype, place)
            }
        }
    }

    /// Writes those of some places.
    ///
    /// # Safety
    /// There must be memory for all numbers, that of these places nobody else's.
    unsafe fn fill<T>(&self, to: *mut T, places: std::ops::Range<usize>, of: impl Fn(f64) -> T) {
        for place in places {
            // SAFETY: granted by the caller.
            unsafe { to.add(place).write_unaligned(of(self.number(place))) };
        }
    }
}

/// Where the numbers go.
#[derive(Clone, Copy)]
struct To(*mut u8);

// SAFETY: tasks write apart.
unsafe impl Sync for To {}

impl To {
    fn start(&self) -> *mut u8 {
        self.0
    }
}

impl Work for Drawn {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let to = To(shared.outputs[0]);
        team.for_each(self.n.div_ceil(TASK_NUMBERS), &|task| {
            let to = to.start();
            let first = task.idx * TASK_NUMBERS;
            let places = first..(first + TASK_NUMBERS).min(self.n);
            // SAFETY: the caller grants the output; tasks write apart.
            unsafe {
                match self.dtype {
                    DType::F64 => self.fill(to.cast::<f64>(), places, |x| x),
                    DType::F32 => self.fill(to.cast::<f32>(), places, |x| x as f32),
                    DType::F16 => self.fill(to.cast::<f16>(), places, f16_from_f64),
                    _ => self.fill(to.cast::<bf16>(), places, bf16_from_f64),
                }
            }
        });
        Ok(())
    }
}
