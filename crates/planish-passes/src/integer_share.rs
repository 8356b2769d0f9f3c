//! How much of a graph's multiplications are of integers.

use planish_ir::Graph;

use crate::quantization::{is_product, multiplies_integers};
use crate::view::View;

/// Layers of a graph, and their work: convolutions and matrix products.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IntegerShare {
    /// Layers whose factors are both integers of 8 bits.
    pub n_integer: usize,
    pub n_layers: usize,
    /// Operations of the layers of integers, at the given sizes.
    pub integer_flops: u64,
    pub flops: u64,
}

impl IntegerShare {
    /// The share of a graph at the sizes that `lookup` gives its symbols; layers in bodies of control flow are not counted.
    pub fn of(graph: &Graph, lookup: &dyn Fn(&str) -> Option<i64>) -> IntegerShare {
        let cx = View::new(graph);
        let mut share = IntegerShare::default();
        for (_, node) in graph.nodes().filter(|(_, node)| is_product(&node.op)) {
            let flops = graph.node_flops(node).and_then(|flops| flops.eval(lookup)).unwrap_or(0);
            let flops = u64::try_from(flops).unwrap_or(0);
            let is_integer = multiplies_integers(&cx, node);
            share.n_layers += 1;
            share.flops = share.flops.saturating_add(flops);
            share.n_integer += usize::from(is_integer);
            share.integer_flops = share.integer_flops.saturating_add(if is_integer { flops } else { 0 });
        }
        share
    }

    /// The part of the operations that is of integers, in percent.
    pub fn percent(&self) -> f64 {
        100.0 * self.integer_flops as f64 / self.flops.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::graph;

    #[test]
    fn products_of_integers_are_counted() {
        let graph = graph(
            "input %q: u8[n,2] input %f: f32[n,2] const %w: i8[2,2] = [1, 2, 3, 4] const %s: f32[] = 0.5 \
             %a: f32[n,2] = DequantizeLinear(%q, %s) %b: f32[2,2] = DequantizeLinear(%w, %s) \
             %x: f32[n,2] = MatMul(%a, %b) %y: f32[n,2] = MatMul(%f, %b) %z: f32[n,2] = MatMul(%y, %b) output %x, %z",
        );
        let share = IntegerShare::of(&graph, &|_| Some(5));
        assert_eq!(share, IntegerShare { n_integer: 1, n_layers: 3, integer_flops: 40, flops: 120 });
        assert!((share.percent() - 100.0 / 3.0).abs() < 1e-9);
    }
}
