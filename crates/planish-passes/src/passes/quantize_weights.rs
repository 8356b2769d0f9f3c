//! Stores the weights of large matrix products as integers of 4 or 8 bits in groups; activations stay as they are.
//!
//! A group is some elements of a column along the sum, with one scale: DequantizeLinear in blocks. It needs no data; where
//! the second moments of what a product reads are known, weights are rounded with regard to them (`planish_quantize::FewBits`). What
//! others read too, and what is small, stays in f32: the first would be there twice, the second saves nothing.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use planish_ir::{Graph, Node};
use planish_op::{DequantizeLinear, Op, Value};
use planish_quantize::{FewBits, Grouping, SecondMoments};
use planish_tensor::{DType, Tensor};

use crate::names::matches;
use crate::quantization::{multiplies_integers, weighs_integers};
use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::view::View;

/// How weights are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WeightStorage {
    /// `I4` or `I8`.
    pub dtype: DType,
    /// Elements along the sum with one scale.
    pub group: usize,
}

/// The names of the types, and the groups that they have where none is given: of fewer bits smaller ones, since a large
/// value costs the others of its group more.
const TYPES: [(&str, DType, usize); 2] = [("int4", DType::I4, 32), ("int8", DType::I8, 128)];
/// Kernels take groups in eights, and scales of smaller ones take more memory than they save.
const SMALLEST_GROUP: usize = 16;

impl WeightStorage {
    fn grouping(self) -> Grouping {
        let is_int4 = self.dtype == DType::I4;
        Grouping { group: self.group, largest: if is_int4 { 7 } else { 127 }, searched: is_int4 }
    }
}

impl fmt::Display for WeightStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = TYPES.iter().find(|(_, dtype, _)| *dtype == self.dtype).map_or("", |(name, ..)| name);
        write!(f, "{name}:{}", self.group)
    }
}

impl FromStr for WeightStorage {
    type Err = String;

    /// As in `int4` or `int8:64`.
    fn from_str(text: &str) -> Result<WeightStorage, String> {
        let (name, group) = text.split_once(':').map_or((text, None), |(name, group)| (name, Some(group)));
        let wrong = || {
            format!("`{text}` is no way to store weights; give int8, int4, or one with a group as in int4:32")
        };
        let (_, dtype, usual) = TYPES.into_iter().find(|(known, ..)| *known == name).ok_or_else(wrong)?;
        let group = match group {
            None => usual,
            Some(group) => group.parse().map_err(|_| wrong())?,
        };
        if group < SMALLEST_GROUP || !group.is_multiple_of(8) {
            return Err(format!(
                "groups have {SMALLEST_GROUP} elements or more, a multiple of 8; not {group}"
            ));
        }
        Ok(WeightStorage { dtype, group })
    }
}

/// Weights of at least so many elements: below it products are not bound by memory.
const LARGE: usize = 1 << 16;

/// Matrix products with large constant weights.
pub(crate) struct QuantizeWeights {
    pub(crate) storage: WeightStorage,
    /// Patterns of names of layers that stay as they are.
    pub(crate) fp32_layers: Vec<String>,
    /// Of what products read, by the names of values.
    pub(crate) moments: Arc<HashMap<String, SecondMoments>>,
}

impl Sweep for QuantizeWeights {
    fn name(&self) -> &'static str {
        "quantize_weights"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        for (id, node) in cx.graph().nodes() {
            let is_stored = weighs_integers(cx, node) || multiplies_integers(cx, node);
            if matches!(node.op, Op::MatMul(_) | Op::Gemm(_)) && !is_stored {
                proposals.add(id, self.stored(cx, node).map_or_else(Match::blocked, Match::Rewrite));
            }
        }
    }
}

impl QuantizeWeights {
    /// The node with its weights by integers, or why they stay.
    fn stored(&self, cx: &View<'_>, node: &Node) -> Result<Patch, &'static str> {
        if self.fp32_layers.iter().any(|pattern| matches(pattern, cx.label(node))) {
            return Err("--layer-precision keeps it in fp32");
        }
        let weights = cx.input(node, 1).and_then(|id| Some((id, cx.constant(id)?)));
        let Some((id, weights)) = weights.filter(|(_, weights)| weights.rank() == 2) else {
            return Err("its second factor is no constant matrix");
        };
        let is_factor = |reader: &Node| {
            let reads = reader.inputs.iter().filter(|input| **input == Some(id)).count();
            matches!(reader.op, Op::MatMul(_) | Op::Gemm(_)) && cx.input(reader, 1) == Some(id) && reads == 1
        };
        if weights.dtype() != DType::F32 {
            return Err("its weights are not in f32");
        }
        if weights.len() < LARGE {
            return Err("its weights are small");
        }
        if !cx.readers(id).iter().all(|reader| is_factor(cx.node(*reader))) {
            return Err("others read its weights too");
        }
        let elements = weights.elements::<f32>().map_err(|_| "its weights are not in f32")?;
        if elements.iter().any(|element| !element.is_finite()) {
            return Err("its weights are not all finite");
        }
        let along = usize::from(matches!(&node.op, Op::Gemm(gemm) if gemm.trans_b));
        let shape = weights.shape();
        let n_columns = shape[1 - along];
        // Weights that several products read are stored once, so with regard to none of them.
        let data = cx.input(node, 0).filter(|_| cx.readers(id).len() == 1);
        let moments = data.and_then(|data| self.moments.get(cx.name(data)));
        let mut scale_shape = shape.to_vec();
        scale_shape[along] = shape[along].div_ceil(self.storage.group);
        let grouping = self.storage.grouping();
        // With the sum along the rows, whichever way it is stored.
        let FewBits { integers, scales } = match along {
            0 => FewBits::of(&elements, n_columns, grouping, moments),
            _ => {
                let of = FewBits::of(&turned(&elements, n_columns), n_columns, grouping, moments);
                let n_groups = scale_shape[along];
                FewBits { integers: turned(&of.integers, shape[along]), scales: turned(&of.scales, n_groups) }
            }
        };
        let codes = integers.into_iter().map(|integer| integer as u8).collect();
        let bad = |_| "its weights do not fit their shape";
        let codes = Tensor::from_codes(self.storage.dtype, shape, codes).map_err(bad)?;
        let scales = Tensor::new(&scale_shape, scales).map_err(bad)?;
        let mut patch = Patch::new();
        let name = cx.name(id);
        let operands = [patch.constant(name, codes), patch.constant(&format!("{name}.scale"), scales)];
        let block_size = self.storage.group as i64;
        let op = DequantizeLinear { output_dtype: None, block_size, axis: along as i64 };
        let stored = patch.node(&format!("{name}.dequantize"), op, &operands);
        patch.has_shape_of(cx, stored, DType::F32, id);
        let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
        inputs[1] = Some(stored);
        let output = patch.node_with(&node.name, node.op.clone(), inputs, 1)[0];
        if let [Some(old)] = node.outputs[..] {
            patch.has_shape_of(cx, output, DType::F32, old);
            patch.replace(old, output);
        }
        Ok(patch)
    }
}

/// A matrix of so many rows, transposed.
fn turned<T: Copy>(matrix: &[T], n_rows: usize) -> Vec<T> {
    let n_columns = matrix.len() / n_rows.max(1);
    (0..matrix.len()).map(|at| matrix[at % n_rows.max(1) * n_columns + at / n_rows.max(1)]).collect()
}

/// How much weights change by being stored as integers: the root of the mean square of what they are off, as a part of
/// that of the weights themselves. `before` is the graph whose weights `after` has by the same names.
pub fn weight_error(before: &Graph, after: &Graph) -> Option<f64> {
    let cx = View::new(after);
    let (mut wrong, mut all) = (0f64, 0f64);
    for (_, node) in after.nodes().filter(|(_, node)| matches!(node.op, Op::DequantizeLinear(_))) {
        let name = cx.input(node, 0).map(|id| cx.name(id))?;
        let exact = before.values().find_map(|(_, value)| value.constant().filter(|_| &*value.name == name));
        let constants: Option<Vec<Value>> =
            node.inputs.iter().flatten().map(|id| Some(cx.constant(*id)?.clone().into())).collect();
        let (Some(exact), Some(constants)) = (exact, constants) else { continue };
        let operands: Vec<Option<&Value>> = constants.iter().map(Some).collect();
        let rounded = planish_reference::evaluate(&node.op, &operands, 1).ok()?;
        let rounded = rounded.first().and_then(Value::as_tensor)?.to_f64s();
        for (exact, rounded) in exact.to_f64s().into_iter().zip(rounded) {
            wrong += (exact - rounded).powi(2);
            all += exact.powi(2);
        }
    }
    (all > 0.0).then(|| (wrong / all).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Options, Pass, Pipeline};
    use crate::testing::graph;
    use planish_testing::Random;

    fn storage(text: &str) -> WeightStorage {
        text.parse().unwrap()
    }

    #[test]
    fn storage_has_names() {
        assert_eq!(storage("int4"), WeightStorage { dtype: DType::I4, group: 32 });
        assert_eq!(storage("int8:64").to_string(), "int8:64");
        assert_eq!(storage(&storage("int8").to_string()), storage("int8"));
        for wrong in ["", "int2", "int4:", "int4:x", "int4:12", "int4:8", "int8:0", "fp8"] {
            assert!(wrong.parse::<WeightStorage>().is_err(), "{wrong}");
        }
    }

    /// A product of this spelling with weights of 300 x 256 elements, and a small one after it.
    fn model(product: &str, dims: &str) -> Graph {
        let shape: Vec<usize> = dims.split(',').map(|dim| dim.parse().unwrap()).collect();
        let mut text = String::from("input %x: f32[n,300] const %small: f32[256,4] = [");
        let numbers = |random: &mut Random, n: usize| {
            (0..n).map(|_| format!("{}", random.normal() as f32)).collect::<Vec<_>>().join(", ")
        };
        let mut random = Random::new(7);
        text += &format!("{}] const %w: f32[{dims}] = [", numbers(&mut random, 1024));
        text +=
            &format!("{}] %a: f32[n,256] = {product} \"a\" ", numbers(&mut random, shape.iter().product()));
        text += "%y: f32[n,4] = MatMul(%a, %small) \"y\" output %y";
        graph(&text)
    }

    #[test]
    fn large_weights_are_stored_in_groups_and_come_near_the_exact_ones() {
        for (product, dims) in [("MatMul(%x, %w)", "300,256"), ("Gemm(%x, %w) {trans_b=true}", "256,300")] {
            let before = model(product, dims);
            // Of a group of 32 normal numbers the largest is about 2.1, and steps of an eighth of it err by a root of
            // a twelfth of them: 8 %; of 8 bits and 128 of them, 0.6 %.
            for (text, expected) in [("int4", 0.08), ("int8", 0.006)] {
                let pass = QuantizeWeights {
                    storage: storage(text),
                    fp32_layers: Vec::new(),
                    moments: Arc::default(),
                };
                let (after, report) = Pipeline::new(vec![Pass::sweep(pass)])
                    .run(before.clone(), &Options { explain: true, verify_each: true, ..Options::default() })
                    .unwrap();
                assert_eq!(report.hits("quantize_weights"), 1);
                let error = weight_error(&before, &after).unwrap();
                assert!((0.7 * expected..1.3 * expected).contains(&error), "{text}: {error}");
                let stored: Vec<DType> =
                    after.values().filter_map(|(_, value)| Some(value.constant()?.dtype())).collect();
                assert!(stored.contains(&storage(text).dtype), "{stored:?}");
                let reasons: Vec<&str> =
                    report.passes[0].refusals.iter().map(|refusal| refusal.reason.as_str()).collect();
                assert!(reasons.contains(&"its weights are small"), "{reasons:?}");
            }
        }
    }

    #[test]
    fn named_layers_stay() {
        let pass = QuantizeWeights {
            storage: storage("int4"),
            fp32_layers: vec!["a*".into()],
            moments: Arc::default(),
        };
        let (_, report) = Pipeline::new(vec![Pass::sweep(pass)])
            .run(model("MatMul(%x, %w)", "300,256"), &Options { explain: true, ..Options::default() })
            .unwrap();
        assert_eq!(report.hits("quantize_weights"), 0);
    }

    /// Where it is known what a product reads, its result changes less, though its weights change more.
    #[test]
    fn moments_of_what_a_product_reads_are_taken_into_regard() {
        let mut random = Random::new(4);
        // Every channel is one of 20 and some noise.
        let rows: Vec<f32> = (0..600)
            .flat_map(|_| {
                let hidden: Vec<f32> = (0..20).map(|_| random.normal() as f32).collect();
                (0..300).map(|at| hidden[at % 20] + 0.2 * random.normal() as f32).collect::<Vec<f32>>()
            })
            .collect();
        let mut moments = SecondMoments::new(300);
        moments.observe(&rows);
        let x = Tensor::new(&[600, 300], rows).unwrap();
        for (product, dims) in [("MatMul(%x, %w)", "300,256"), ("Gemm(%x, %w) {trans_b=true}", "256,300")] {
            let before = model(product, dims);
            let of = |graph: &Graph| {
                let outputs = planish_ir::interpret(graph, vec![x.clone().into()]).unwrap();
                outputs[0].as_tensor().unwrap().to_f64s()
            };
            let exact = of(&before);
            let error = |moments: HashMap<String, SecondMoments>| {
                let pass = QuantizeWeights {
                    storage: storage("int4"),
                    fp32_layers: Vec::new(),
                    moments: Arc::new(moments),
                };
                let pipeline = Pipeline::new(vec![Pass::sweep(pass)]);
                let (after, _) = pipeline.run(before.clone(), &Options::default()).unwrap();
                let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
                let wrong = square(&mut of(&after).iter().zip(&exact).map(|(a, b)| a - b));
                (wrong / square(&mut exact.iter().copied())).sqrt()
            };
            let (with, without) = (error([("x".to_string(), moments.clone())].into()), error(HashMap::new()));
            assert!(with < 0.6 * without, "{product}: {with} against {without}");
        }
    }
}
