//! How much arithmetic a graph is: operations counted from shapes, a multiplication and an addition as two.
//!
//! The counts are those of the plain definition, whatever a kernel makes of it (Winograd does less, padding
//! more). Products are counted in full; whatever works element by element counts one per element of its
//! output, reductions and normalizations one per element of their input, and moving data nothing. An
//! operator whose work depends on its data, or has no plain count, is *uncounted* and named as such.

use planish_op::einsum::{Equation, Label};
use planish_op::infer::Content;
use planish_op::{Attention, Class, Einsum, Form, Gemm, LinearAttention, LinearAttentionRule, Op};
use planish_tensor::{Dim, Shape, normalize_axis};

use crate::graph::{Graph, Node, ValueInfo};
use crate::id::NodeId;

/// The arithmetic of a graph at given sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Work {
    /// Operations, a multiplication and an addition counted as two; saturating.
    pub flops: u64,
    /// Nodes that could not be counted.
    pub uncounted: Vec<NodeId>,
}

impl Graph {
    /// The operations of one node of this graph; `None` if they cannot be counted.
    pub fn node_flops(&self, node: &Node) -> Option<Dim> {
        Counter { graph: self, node }.count()
    }

    /// The operations of the whole graph under a binding of the symbols.
    pub fn work(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Work {
        let mut work = Work { flops: 0, uncounted: Vec::new() };
        for (id, node) in self.nodes() {
            let flops = self.node_flops(node).and_then(|flops| flops.eval(lookup));
            match flops.and_then(|flops| u64::try_from(flops).ok()) {
                Some(flops) => work.flops = work.flops.saturating_add(flops),
                None => work.uncounted.push(id),
            }
        }
        work
    }
}

struct Counter<'g> {
    graph: &'g Graph,
    node: &'g Node,
}

impl<'g> Counter<'g> {
    fn input(&self, idx: usize) -> Option<&'g ValueInfo> {
        Some(self.graph.value((*self.node.inputs.get(idx)?)?))
    }

    fn has_input(&self, idx: usize) -> bool {
        self.input(idx).is_some()
    }

    fn input_shape(&self, idx: usize) -> Option<&'g Shape> {
        self.input(idx)?.ty.as_tensor()?.shape.as_ref()
    }

    /// The shape of the first output that is wanted; all that are counted by it have the same.
    fn output_shape(&self) -> Option<&'g Shape> {
        let id = self.node.outputs.iter().flatten().next()?;
        self.graph.value(*id).ty.as_tensor()?.shape.as_ref()
    }

    fn per_input(&self) -> Option<Dim> {
        self.input_shape(0).map(Shape::element_count)
    }

    fn per_output(&self) -> Option<Dim> {
        self.output_shape().map(Shape::element_count)
    }

    fn count(&self) -> Option<Dim> {
        match self.node.op.class() {
            // One per element and operand beyond the first; a mean divides once more.
            Class::Pointwise(Form::Variadic) => {
                Some(self.per_output()? * Dim::from(self.node.inputs.len().max(2) - 1))
            }
            Class::Pointwise(_) | Class::Quantization | Class::Resampling | Class::Window => {
                self.per_output()
            }
            Class::Reduction | Class::GlobalPool | Class::Line | Class::Norm | Class::Loss => {
                self.per_input()
            }
            Class::Movement | Class::Indexing | Class::Data | Class::Sequence | Class::Random => {
                Some(Dim::ZERO)
            }
            Class::Recurrent => self.recurrent(),
            Class::Pool | Class::Product | Class::Convolution | Class::Attention | Class::Control => {
                self.by_op()
            }
            Class::Other | Class::Custom => None,
        }
    }

    /// Operators that are counted each in its own way; one that is not here is uncounted, and named as such.
    fn by_op(&self) -> Option<Dim> {
        match &self.node.op {
            Op::AveragePool(op) => self.pooled(&op.kernel_shape),
            Op::MaxPool(op) => self.pooled(&op.kernel_shape),
            Op::LpPool(op) => self.pooled(&op.kernel_shape),

            Op::Conv(_) => self.convolved(1, 2),
            Op::ConvInteger(_) => self.convolved(1, usize::MAX),
            Op::QLinearConv(_) => self.convolved(3, 8),
            Op::DeformConv(_) => self.convolved(1, 3),
            Op::CausalConvWithState(_) => self.convolved(1, 2),
            Op::ConvTranspose(_) => self.transposed(),
            Op::Col2Im(_) => self.per_input(),
            Op::MatMul(_) | Op::MatMulInteger(_) | Op::QLinearMatMul(_) => self.product(),
            Op::Gemm(op) => self.gemm(op),
            Op::Einsum(op) => self.einsum(op),
            Op::Attention(op) => self.attention(op),
            Op::LinearAttention(op) => self.linear_attention(op),
            Op::RotaryEmbedding(_) => self.per_output(),

            // One branch runs; the larger one is counted.
            Op::If(_) => {
                let mut branches = self.node.bodies.iter().map(body_flops);
                let first = branches.next()??;
                branches.try_fold(first, |most, branch| Some(most.max(&branch?)))
            }
            Op::Loop(_) => Some(self.trips()? * body_flops(self.node.bodies.first()?)?),
            Op::Scan(op) => {
                let n_own = self.node.inputs.len().checked_sub(self.node.n_captured)?;
                let first = n_own.checked_sub(usize::try_from(op.num_scan_inputs).ok()?)?;
                let shape = self.input_shape(first)?;
                let axis = op.scan_input_axes.first().copied().unwrap_or(0);
                let length = shape.get(normalize_axis(axis, shape.rank()).ok()?)?;
                Some(length * &body_flops(self.node.bodies.first()?)?)
            }
            _ => None,
        }
    }

    /// One operation per tap of the window.
    fn pooled(&self, kernel: &[i64]) -> Option<Dim> {
        Some(self.per_output()? * kernel.iter().map(|&size| Dim::from(size)).product::<Dim>())
    }

    /// A multiplication and an addition per output element and weight of its filter, and the bias.
    fn convolved(&self, weight: usize, bias: usize) -> Option<Dim> {
        let filter: Dim = self.input_shape(weight)?.dims().get(1..)?.iter().product();
        let outputs = self.per_output()?;
        let products = &outputs * &filter * 2;
        Some(if self.has_input(bias) { products + outputs } else { products })
    }

    /// Each input element meets every weight of its channel.
    fn transposed(&self) -> Option<Dim> {
        let filter: Dim = self.input_shape(1)?.dims().get(1..)?.iter().product();
        let products = self.per_input()? * filter * 2;
        Some(if self.has_input(2) { products + self.per_output()? } else { products })
    }

    /// A multiplication and an addition per output element and step along the inner dimension.
    fn product(&self) -> Option<Dim> {
        Some(self.per_output()? * self.input_shape(0)?.dims().last()?.clone() * 2)
    }

    fn gemm(&self, op: &Gemm) -> Option<Dim> {
        let depth = self.input_shape(0)?.get(if op.trans_a { 0 } else { 1 })?;
        let outputs = self.per_output()?;
        let products = &outputs * depth * 2;
        Some(if self.has_input(2) { products + outputs } else { products })
    }

    /// Every combination of labels: one multiplication per operand beyond the first, and an addition.
    fn einsum(&self, op: &Einsum) -> Option<Dim> {
        let shapes =
            (0..self.node.inputs.len()).map(|idx| self.input_shape(idx)).collect::<Option<Vec<_>>>()?;
        let ranks: Vec<usize> = shapes.iter().map(|shape| shape.rank()).collect();
        let labels = Equation::parse(&op.equation).ok()?.label(&ranks).ok()?;
        let mut sizes: Vec<(Label, Dim)> = Vec::new();
        for (shape, labels) in shapes.iter().zip(&labels.inputs) {
            for (dim, label) in shape.iter().zip(labels) {
                match sizes.iter_mut().find(|(known, _)| known == label) {
                    Some((_, size)) => *size = size.broadcast(dim),
                    None => sizes.push((*label, dim.clone())),
                }
            }
        }
        Some(sizes.into_iter().map(|(_, size)| size).product::<Dim>() * Dim::from(shapes.len()))
    }

    /// The products with both weight matrices, at every step; gates are small beside them.
    fn recurrent(&self) -> Option<Dim> {
        let input = self.input_shape(0)?;
        let steps = input.get(0)? * input.get(1)?;
        let weights = self.input_shape(1)?.element_count() + self.input_shape(2)?.element_count();
        Some(steps * weights * 2)
    }

    /// Queries by keys, the softmax, weights by values.
    fn attention(&self, op: &Attention) -> Option<Dim> {
        let (query, key, value) = (self.input_shape(0)?, self.input_shape(1)?, self.input_shape(2)?);
        let past = match self.input_shape(4) {
            Some(past) => past.get(2)?.clone(),
            None => Dim::ZERO,
        };
        let (heads, rows, size, keys, value_size) = match (query.dims(), key.dims(), value.dims()) {
            ([_, heads, rows, size], [_, _, keys, _], [_, _, _, value_size]) => {
                (heads.clone(), rows, size.clone(), keys, value_size.clone())
            }
            ([_, rows, hidden], [_, keys, _], [_, _, value_hidden]) => {
                let heads = Dim::from(op.q_num_heads?);
                let kv_heads = Dim::from(op.kv_num_heads?);
                (heads.clone(), rows, hidden.floor_div(&heads), keys, value_hidden.floor_div(&kv_heads))
            }
            _ => return None,
        };
        let scores = query.get(0)? * &heads * rows.clone() * (keys + &past);
        Some(&scores * &(size * 2 + value_size * 2) + scores)
    }

    /// The state is updated and read at every step; the delta rules read it once more.
    fn linear_attention(&self, op: &LinearAttention) -> Option<Dim> {
        let (query, value) = (self.input_shape(0)?, self.input_shape(2)?);
        let steps = query.get(0)? * query.get(1)?;
        let (heads, kv_heads) = (Dim::from(op.q_num_heads), Dim::from(op.kv_num_heads));
        let size = query.get(2)?.floor_div(&heads);
        let state = size * value.get(2)?.floor_div(&kv_heads);
        let updates = match op.update_rule {
            LinearAttentionRule::Linear | LinearAttentionRule::Gated => 2,
            LinearAttentionRule::Delta | LinearAttentionRule::GatedDelta => 4,
        };
        Some(steps * state * (kv_heads * updates + heads * 2))
    }

    /// How often a loop runs at most, if that is known.
    fn trips(&self) -> Option<Dim> {
        match self.input(0)?.content.as_ref()? {
            Content::Tensor(tensor) if tensor.len() == 1 => tensor.to_i64s().first().copied().map(Dim::from),
            Content::Ints(ints) => ints.dims.first().cloned(),
            Content::Tensor(_) | Content::Grid(_) => None,
        }
    }
}

fn body_flops(body: &Graph) -> Option<Dim> {
    body.nodes().map(|(_, node)| body.node_flops(node)).try_fold(Dim::ZERO, |sum, flops| Some(sum + flops?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations of the last node.
    #[track_caller]
    fn check(lines: &str, expected: &str) {
        let graph: Graph = format!("graph \"g\" {{\n{lines}\noutput\n}}").parse().unwrap();
        let (_, node) = graph.nodes().last().unwrap();
        let flops = graph.node_flops(node).map_or("none".to_string(), |flops| flops.to_string());
        assert_eq!(flops, expected, "{lines}");
    }

    #[test]
    fn products() {
        check(
            "input %x: f32[n,8,10,10] input %w: f32[16,4,3,3] input %b: f32[16]\n\
             %y: f32[n,16,8,8] = Conv(%x, %w, %b) {group=2}",
            // 16 * 64 outputs, 36 weights each, and a bias.
            "74752*n",
        );
        check(
            "input %x: f32[1,8,5,5] input %w: f32[8,3,2,2]\n%y: f32[1,3,6,6] = ConvTranspose(%x, %w)",
            "4800",
        );
        check("input %a: f32[b,m,k] input %c: f32[k,n]\n%y: f32[b,m,n] = MatMul(%a, %c)", "2*b*k*m*n");
        check(
            "input %a: f32[3,2] input %b: f32[3,5] input %c: f32[5]\n\
             %y: f32[2,5] = Gemm(%a, %b, %c) {trans_a=true}",
            "70",
        );
        check(
            "input %a: f32[2,3,4] input %b: f32[2,4,5]\n\
             %y: f32[2,3,5] = Einsum(%a, %b) {equation=\"bij,bjk->bik\"}",
            "240",
        );
    }

    #[test]
    fn windows_reductions_and_elements() {
        check(
            "input %x: f32[1,2,8,8]\n%y: f32[1,2,4,4] = MaxPool(%x) {strides=[2,2], kernel_shape=[2,2]}",
            "128",
        );
        check("input %x: f32[1,2,8,8]\n%y: f32[1,2,1,1] = GlobalAveragePool(%x)", "128");
        check("input %x: f32[n,4]\n%y: f32[n,4] = Relu(%x)", "4*n");
        check("input %x: f32[n,4]\n%y: f32[n,4] = Sum(%x, %x, %x)", "8*n");
        check("input %x: f32[n,4]\n%y: f32[4,n] = Transpose(%x)", "0");
        check("input %x: f32[*]\n%y: f32[*] = Relu(%x)", "none");
    }

    #[test]
    fn sequences_and_attention() {
        check(
            "input %x: f32[s,b,3] input %w: f32[1,16,3] input %r: f32[1,16,4]\n\
             %y: f32[s,1,b,4] = LSTM(%x, %w, %r) {hidden_size=4}",
            "224*b*s",
        );
        check(
            "input %q: f32[2,4,5,8] input %k: f32[2,4,7,8] input %v: f32[2,4,7,6]\n\
             %y: f32[2,4,5,6] = Attention(%q, %k, %v)",
            // 280 scores, each 16 operations to make, 12 to use, 1 in the softmax.
            "8120",
        );
    }

    #[test]
    fn bodies() {
        let body = |name: &str, op: &str| {
            format!("graph \"{name}\" {{ input %x: f32[n] %z: f32[n] = {op} output %z }}")
        };
        let (then, other) = (body("then", "Relu(%x)"), body("else", "Sum(%x, %x, %x)"));
        check(
            &format!("input %c: bool[] input %x: f32[n]\n%y: f32[n] = If(%c; %x) [{then}, {other}]"),
            "2*n",
        );
        let step = "graph \"step\" { input %i: i64[] input %go: bool[] input %v: f32[8]\n\
                    %z: f32[8] = Relu(%v) output %go, %z }";
        check(&format!("const %t: i64[] = 5 input %x: f32[8]\n%y: f32[8] = Loop(%t, _, %x) [{step}]"), "40");
        check(&format!("input %t: i64[] input %x: f32[8]\n%y: f32[8] = Loop(%t, _, %x) [{step}]"), "none");
        let step = "graph \"step\" { input %v: f32[2] %z: f32[2] = Relu(%v) output %z }";
        check(
            &format!(
                "input %x: f32[2,n]\n%y: f32[n,2] = Scan(%x) {{num_scan_inputs=1, scan_input_axes=[1]}} [{step}]"
            ),
            "2*n",
        );
    }

    #[test]
    fn totals_name_what_they_leave_out() {
        let text = "graph \"g\" { input %x: f32[n,4,4] input %u: f32[*]\n\
                    %a: f32[n,4,4] = Relu(%x) %b: f32[n] = Det(%a) %c: f32[*] = Relu(%u) output %b }";
        let graph: Graph = text.parse().unwrap();
        let work = graph.work(&|name| (name == "n").then_some(3));
        assert_eq!(work.flops, 48);
        assert_eq!(work.uncounted.len(), 2);
        assert_eq!(graph.work(&|_| None).uncounted.len(), 3);
    }
}
