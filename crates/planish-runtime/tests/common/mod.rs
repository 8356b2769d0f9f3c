//! Small models with seeded weights, and engines of them.

use planish::{Builder, Device, Engine, Profile};
use planish_ir::Graph;
use planish_testing::Random;

/// Seeded numbers in -1..1 on a grid of 1/64: sums of a few are exact in f32.
pub(crate) fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..n).map(|_| random.coarse()).collect()
}

fn hex(n: usize, seed: u64) -> String {
    let bytes = numbers(n, seed).into_iter().flat_map(f32::to_le_bytes);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Two convolutions, a pooling, a matrix product and a softmax over `x: f32[batch,3,12,12]`.
pub(crate) fn small_model(batch: &str) -> Graph {
    let (w1, w2, w3) = (hex(16 * 3 * 9, 1), hex(16 * 16 * 9, 2), hex(16 * 10, 3));
    let text = format!(
        r#"graph "small" {{
          input %x: f32[{batch},3,12,12]
          const %w1: f32[16,3,3,3] = hex "{w1}"
          const %w2: f32[16,16,3,3] = hex "{w2}"
          const %w3: f32[16,10] = hex "{w3}"
          const %flat: i64[2] = [0, -1]
          %c1: f32[{batch},16,12,12] = Conv(%x, %w1) {{kernel_shape=[3,3], pads=[1,1,1,1]}}
          %r1: f32[{batch},16,12,12] = Relu(%c1)
          %c2: f32[{batch},16,6,6] = Conv(%r1, %w2) {{kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]}}
          %s2: f32[{batch},16,6,6] = Sigmoid(%c2)
          %p: f32[{batch},16,1,1] = GlobalAveragePool(%s2)
          %f: f32[{batch},16] = Reshape(%p, %flat)
          %m: f32[{batch},10] = MatMul(%f, %w3)
          %y: f32[{batch},10] = Softmax(%m)
          output %y, %m
        }}"#
    );
    text.parse().unwrap()
}

/// Elements of one row of the small model's input.
pub(crate) const ROW: usize = 3 * 12 * 12;

/// Built by the cost model alone, for two threads.
pub(crate) fn engine(graph: Graph, profiles: &[Profile]) -> Engine {
    let mut builder = Builder::from_graph(graph).device(Device::Cpu).tune_level(0).threads(2);
    for profile in profiles {
        builder = builder.profile(profile.clone());
    }
    Engine::new(builder.build().unwrap(), Device::Cpu).unwrap()
}
