//! A model made from any bytes: operators of the table with attributes of the right kinds and all sorts of
//! values, over a handful of tensors. Random bytes rarely pass the reader; these always do.

use std::borrow::Cow;

use planish_onnx::{
    Attribute, AttributeValue, DataType, Dimension, Graph, Model, Node, OpsetImport, Tensor, TensorData,
    Type, ValueInfo, write,
};
use planish_op::{AttributeKind, FieldSpec, Op, OpSpec};

/// Operators that only the importer knows, with an attribute each that it reads.
const IMPORTED: &[(&str, &str, &str)] = &[
    ("", "Constant", "value_ints"),
    ("", "CastLike", "saturate"),
    ("", "Upsample", "scales"),
    ("", "Scatter", "axis"),
    ("", "SimplifiedLayerNormalization", "axis"),
    ("com.microsoft", "Gelu", ""),
    ("com.microsoft", "FastGelu", ""),
    ("com.microsoft", "BiasGelu", ""),
    ("com.microsoft", "QuickGelu", "alpha"),
    ("com.microsoft", "FusedConv", "activation"),
    ("com.microsoft", "FusedGemm", "activation"),
    ("com.microsoft", "FusedMatMul", "transBatchA"),
    ("com.microsoft", "SkipLayerNormalization", "epsilon"),
    ("com.microsoft", "SkipSimplifiedLayerNormalization", "epsilon"),
    ("com.microsoft", "EmbedLayerNormalization", "epsilon"),
    ("com.microsoft", "Attention", "num_heads"),
    ("com.microsoft", "QAttention", "num_heads"),
    ("com.microsoft", "MultiHeadAttention", "num_heads"),
    ("com.microsoft", "QuantizeLinear", "axis"),
    ("com.microsoft", "DequantizeLinear", "axis"),
    ("com.microsoft", "QLinearAdd", ""),
    ("com.microsoft", "QLinearMul", ""),
    ("com.microsoft", "QLinearSigmoid", ""),
    ("com.microsoft", "QLinearLeakyRelu", "alpha"),
    ("com.microsoft", "QLinearSoftmax", "axis"),
    ("com.microsoft", "QLinearGlobalAveragePool", "channels_last"),
    ("com.microsoft", "QLinearAveragePool", "kernel_shape"),
    ("com.microsoft", "QLinearConcat", "axis"),
    ("com.microsoft", "QGemm", "transB"),
    ("com.microsoft", "DynamicQuantizeMatMul", ""),
    ("com.microsoft", "MatMulIntegerToFloat", ""),
    ("com.microsoft", "MatMulNBits", "K"),
    ("com.microsoft", "NhwcMaxPool", "kernel_shape"),
    ("com.microsoft", "Inverse", ""),
    ("com.microsoft", "CropAndResize", "mode"),
    ("com.microsoft", "Pad", "mode"),
    ("com.microsoft", "Range", ""),
    ("com.microsoft", "Unique", ""),
    ("com.microsoft", "GatherND", ""),
    ("com.microsoft", "ExpandDims", ""),
];

/// Attributes of older opsets and of operators that the table does not have.
const OTHER_ATTRIBUTES: &[(&str, AttributeKind)] = &[
    ("axes", AttributeKind::Ints),
    ("axis", AttributeKind::Int),
    ("broadcast", AttributeKind::Int),
    ("min", AttributeKind::Float),
    ("max", AttributeKind::Float),
    ("pads", AttributeKind::Ints),
    ("starts", AttributeKind::Ints),
    ("ends", AttributeKind::Ints),
    ("split", AttributeKind::Ints),
    ("k", AttributeKind::Int),
    ("shape", AttributeKind::Ints),
    ("scales", AttributeKind::Floats),
    ("num_heads", AttributeKind::Int),
    ("qkv_hidden_sizes", AttributeKind::Ints),
    ("K", AttributeKind::Int),
    ("N", AttributeKind::Int),
    ("bits", AttributeKind::Int),
    ("block_size", AttributeKind::Int),
    ("transA", AttributeKind::Int),
    ("transBatchB", AttributeKind::Int),
    ("activation", AttributeKind::Str),
    ("epsilon", AttributeKind::Float),
    ("value", AttributeKind::Tensor),
    ("value_int", AttributeKind::Int),
    ("value_floats", AttributeKind::Floats),
];

/// Inputs that operators with particular wishes take: a letter for the element type (`f`loat, `i`nt64, i`n`t32,
/// `u`int8, `b`ool) and the dimensions; `?` is absent.
const RECIPES: &[(&str, &str)] = &[
    ("Conv", "f1x2x5x5 f4x2x3x3 f4"),
    ("Conv", "f1x4x7 f4x1x3"),
    ("FusedConv", "f1x2x5x5 f4x2x3x3 f4"),
    ("ConvTranspose", "f1x4x5x5 f4x2x3x3 f2"),
    ("ConvTranspose", "f1x2x4 f2x2x3"),
    ("DeformConv", "f1x2x5x5 f2x2x3x3 f1x18x3x3"),
    ("QLinearConv", "u1x2x5x5 f u u4x2x3x3 f u f u"),
    ("ConvInteger", "u1x2x5x5 u4x2x3x3"),
    ("CausalConvWithState", "f1x2x6 f2x1x3 f2 f1x2x2"),
    ("Col2Im", "f1x8x9 i2 i2"),
    ("AveragePool", "f1x2x6x6"),
    ("MaxPool", "f1x2x6x6"),
    ("LpPool", "f1x2x6"),
    ("NhwcMaxPool", "u1x4x4x2"),
    ("QLinearAveragePool", "u1x2x4x4 f u f u"),
    ("QLinearGlobalAveragePool", "u1x2x4x4 f u f u"),
    ("MaxUnpool", "f1x1x2x2 i1x1x2x2"),
    ("MaxRoiPool", "f1x2x6x6 f2x5"),
    ("RoiAlign", "f1x2x6x6 f2x4 i2"),
    ("BatchNormalization", "f2x3x4 f3 f3 f3 f3"),
    ("InstanceNormalization", "f2x3x4 f3 f3"),
    ("GroupNormalization", "f2x4x3 f4 f4"),
    ("LayerNormalization", "f2x3x4 f4 f4"),
    ("RMSNormalization", "f2x3x4 f4"),
    ("SkipLayerNormalization", "f1x3x4 f1x3x4 f4 f4 f4"),
    ("EmbedLayerNormalization", "n1x3 n1x3 f9x4 f9x4 f2x4 f4 f4"),
    ("LRN", "f2x5x3x3"),
    ("MeanVarianceNormalization", "f2x5x3x3"),
    ("RNN", "f3x2x4 f1x5x4 f1x5x5 f1x10 ? f1x2x5"),
    ("GRU", "f3x2x4 f1x15x4 f1x15x5 f1x30"),
    ("LSTM", "f3x2x4 f1x20x4 f1x20x5 f1x40"),
    ("Attention", "f2x2x3x4 f2x2x5x4 f2x2x5x4"),
    ("Attention", "f1x3x4 f4x12 f12"),
    ("MultiHeadAttention", "f1x3x8 f1x3x8 f1x3x8"),
    ("LinearAttention", "f1x3x8 f1x3x8 f1x3x8 ? f1x3x2 f1x3x2"),
    ("RotaryEmbedding", "f1x2x3x4 f1x3x2 f1x3x2"),
    ("MatMul", "f2x3x4 f2x4x5"),
    ("FusedMatMul", "f2x4x3 f2x4x5"),
    ("Gemm", "f3x4 f4x5 f5"),
    ("QLinearMatMul", "u3x4 f u u4x5 f u f u"),
    ("MatMulInteger", "u3x4 u4x5 u u"),
    ("QGemm", "u3x4 f u u4x5 f u n5 f u"),
    ("DynamicQuantizeMatMul", "f3x4 u4x5 f u"),
    ("MatMulIntegerToFloat", "u3x4 u4x5 f f u u"),
    ("MatMulNBits", "f2x16 u4x1x8 f4"),
    ("QLinearAdd", "u2x3 f u u2x3 f u f u"),
    ("QLinearSoftmax", "u2x3 f u f u"),
    ("QLinearConcat", "f u u2x3 f u u2x3 f u"),
    ("QuantizeLinear", "f3x4 f u"),
    ("QuantizeLinear", "f3x4 f4 u4"),
    ("DequantizeLinear", "u3x4 f4 u4"),
    ("Det", "f2x3x3"),
    ("Inverse", "f2x3x3"),
    ("Einsum", "f3x3 f3x3"),
    ("Resize", "f1x2x4x4 ? f4"),
    ("Resize", "f1x2x4x4 ? ? i4"),
    ("Resize", "f1x2x4x4 f8 f4"),
    ("Upsample", "f1x2x4x4 f4"),
    ("GridSample", "f1x2x4x4 f1x3x3x2"),
    ("AffineGrid", "f1x2x3 i4"),
    ("CropAndResize", "f1x2x4x4 f2x4 n2 n2"),
    ("NonMaxSuppression", "f1x6x4 f1x2x6 i1 f1 f1"),
    ("Slice", "f4x5 i2 i2 i2 i2"),
    ("Pad", "f3x4 i4"),
    ("Pad", "f3x4 i2 f i1"),
    ("Tile", "f2x3 i2"),
    ("Expand", "f3x1 i2"),
    ("Reshape", "f2x3x4 i3"),
    ("Gather", "f4x5 i3"),
    ("GatherElements", "f3x3 i2x3"),
    ("GatherND", "f3x4 i2x2"),
    ("ScatterElements", "f3x3 i2x3 f2x3"),
    ("ScatterND", "f4x5 i2x1 f2x5"),
    ("TensorScatter", "f2x3x4 f2x1x4 i2"),
    ("OneHot", "i3 i f2"),
    ("Compress", "f4 b4"),
    ("TopK", "f3x5 i1"),
    ("CumSum", "f3x4 i"),
    ("Where", "b3 f3 f3"),
    ("Range", "i i i"),
    ("Range", "f f f"),
    ("ReverseSequence", "f3x2x2 i2"),
    ("DepthToSpace", "f1x8x2x2"),
    ("SpaceToDepth", "f1x2x4x4"),
    ("CenterCropPad", "f4x5 i2"),
    ("Unsqueeze", "f3 i2"),
    ("Split", "f6x2 i2"),
    ("DFT", "f1x8x1 i"),
    ("STFT", "f1x16x1 i f4"),
    ("MelWeightMatrix", "i i i f f"),
    ("SoftmaxCrossEntropyLoss", "f3x4 i3"),
    ("NegativeLogLikelihoodLoss", "f3x4 i3"),
    ("Multinomial", "f2x4"),
    ("TfIdfVectorizer", "i6"),
    ("Trilu", "f3x4 i"),
    ("Clip", "f3 f f"),
    ("If", "b"),
    ("Loop", "i b f2x3"),
    ("Scan", "f3 f2x3"),
];

const ELEMENTS: &[DataType] = &[
    DataType::Float,
    DataType::Float,
    DataType::Float,
    DataType::Int64,
    DataType::Int64,
    DataType::Bool,
    DataType::Uint8,
    DataType::Int8,
    DataType::Int32,
    DataType::Float16,
    DataType::Double,
    DataType::Bfloat16,
    DataType::Int4,
    DataType::Float8E4M3FN,
    DataType::Uint64,
];

/// Nodes that are tried; those that `accepts` refuses are left out again, so that the next has something to
/// build on.
const N_TRIED: usize = 12;

/// A model that these bytes describe, shown to `accepts` after each node.
pub fn model(bytes: &[u8], accepts: &mut dyn FnMut(Vec<u8>) -> bool) {
    let mut choices = Choices { bytes: bytes.iter(), n_names: 0 };
    let version = [21, 22, 27, 13, 18, 11, 9, 7, 6, 5][choices.below(10)];
    let import = |domain: &'static str, version| OpsetImport { domain: domain.into(), version };
    let opset_imports = vec![import("", version), import("com.microsoft", 1)];
    let mut names = Names::new();
    let graph = choices.graph(&mut names);
    let mut model = Model { ir_version: 10, opset_imports, graph, ..Model::default() };
    for _ in 0..N_TRIED {
        if choices.bytes.len() == 0 {
            break;
        }
        let (n_names, n_inputs, n_constants) =
            (names.len(), model.graph.inputs.len(), model.graph.initializers.len());
        let mut node = choices.node(&mut names, 0);
        if choices.below(4) != 0 {
            choices.suit(&mut node, &mut model.graph);
        }
        let before = std::mem::take(&mut model.graph.outputs);
        model.graph.outputs = names[n_names..].iter().map(|name| untyped(name.clone())).collect();
        model.graph.nodes.push(node);
        if !accepts(write(&model)) {
            model.graph.nodes.pop();
            model.graph.outputs = before;
            model.graph.inputs.truncate(n_inputs);
            model.graph.initializers.truncate(n_constants);
            names.truncate(n_names);
        }
    }
}

struct Choices<'b> {
    bytes: std::slice::Iter<'b, u8>,
    n_names: usize,
}

type Names = Vec<Cow<'static, str>>;

impl Choices<'_> {
    /// The next byte; zeros where they have run out.
    fn next(&mut self) -> usize {
        self.bytes.next().copied().unwrap_or(0).into()
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() % limit.max(1)
    }

    fn name(&mut self) -> Cow<'static, str> {
        self.n_names += 1;
        format!("v{}", self.n_names).into()
    }

    /// Inputs and initializers, and no nodes yet.
    fn graph(&mut self, names: &mut Names) -> Graph<'static> {
        let mut graph = Graph { name: "g".into(), ..Graph::default() };
        for _ in 0..1 + self.below(4) {
            let input = self.input();
            names.push(input.name.clone());
            graph.inputs.push(input);
        }
        for _ in 0..self.below(6) {
            let name = self.name();
            graph.initializers.push(self.tensor(name.clone()));
            names.push(name);
        }
        graph
    }

    /// The nodes of a body.
    fn nodes(&mut self, names: &mut Names, depth: usize) -> Vec<Node<'static>> {
        (0..self.below(3)).map(|_| self.node(names, depth)).collect()
    }

    fn input(&mut self) -> ValueInfo<'static> {
        let name = self.name();
        let elem = ELEMENTS[self.below(ELEMENTS.len())];
        let shape = match self.below(16) {
            15 => None,
            rank => Some((0..rank % 6).map(|_| self.dimension()).collect()),
        };
        ValueInfo { name, ty: Some(Type::Tensor { elem, shape }), ..ValueInfo::default() }
    }

    fn dimension(&mut self) -> Dimension<'static> {
        match self.below(16) {
            0 => Dimension::Param("n".into()),
            1 => Dimension::Param("m".into()),
            2 => Dimension::Unknown,
            3 => Dimension::Value(0),
            other => Dimension::Value([1, 2, 3, 4, 5, 8][other % 6]),
        }
    }

    /// Numbers that axes, sizes and counts are, and numbers that they had better not be.
    fn int(&mut self) -> i64 {
        match self.below(32) {
            0 => i64::MAX,
            1 => i64::MIN,
            2 => i64::from(i32::MAX),
            3 => 1 << 40,
            4 => -1000,
            5 => 255,
            other => other as i64 % 11 - 3,
        }
    }

    fn float(&mut self) -> f32 {
        [0.0, 1.0, -1.0, 0.5, 2.0, 1e-5, 1e30, -1e30, f32::NAN, f32::INFINITY, 3.0, 0.1][self.below(12)]
    }

    fn tensor(&mut self, name: Cow<'static, str>) -> Tensor<'static> {
        let data_type = ELEMENTS[self.below(ELEMENTS.len())];
        let rank = [1, 1, 1, 0, 0, 2, 2, 3, 4, 5][self.below(10)];
        let dims: Vec<i64> = (0..rank).map(|_| [1, 2, 3, 4, 0, 6][self.below(6)]).collect();
        self.filled(name, data_type, dims)
    }

    fn filled(&mut self, name: Cow<'static, str>, data_type: DataType, dims: Vec<i64>) -> Tensor<'static> {
        let count: i64 = dims.iter().product();
        if data_type == DataType::Int64 {
            let data = TensorData::Int64s((0..count).map(|_| self.int()).collect());
            return Tensor { name, data_type, dims, data, ..Tensor::default() };
        }
        let n_bytes = (count as usize * data_type.bits().unwrap_or(8)).div_ceil(8);
        let fill = self.next();
        let bytes: Vec<u8> = match data_type {
            DataType::Float => {
                let value = |idx: i64| [1.0f32, -2.0, 0.5, 0.0][(idx as usize + fill) % 4];
                (0..count).flat_map(|idx| value(idx).to_le_bytes()).collect()
            }
            DataType::Bool => vec![fill as u8 % 2; n_bytes],
            _ => (0..n_bytes).map(|idx| (idx + fill) as u8).collect(),
        };
        Tensor::raw(name, data_type, dims, bytes)
    }

    /// Gives an operator that has a recipe the inputs that it wants, or nearly.
    fn suit(&mut self, node: &mut Node<'static>, graph: &mut Graph<'static>) {
        let recipes: Vec<&str> =
            RECIPES.iter().filter(|(op, _)| *op == node.op_type).map(|(_, recipe)| *recipe).collect();
        let Some(recipe) = recipes.get(self.below(recipes.len())) else { return };
        node.inputs.clear();
        for part in recipe.split(' ') {
            let (letter, dims) = part.split_at(1);
            let data_type = match letter {
                "f" => DataType::Float,
                "i" => DataType::Int64,
                "n" => DataType::Int32,
                "u" => DataType::Uint8,
                "b" => DataType::Bool,
                _ => {
                    node.inputs.push("".into());
                    continue;
                }
            };
            let dims = dims.split('x').filter_map(|dim| dim.parse::<i64>().ok());
            let dims: Vec<i64> = dims
                .map(|dim| if self.below(32) == 31 { [0, 1, 2, 7][self.below(4)] } else { dim })
                .collect();
            let name = self.name();
            node.inputs.push(name.clone());
            // Short integers are mostly constants in models, everything else mostly is not.
            if (data_type == DataType::Int64) == (self.below(4) != 0) {
                graph.initializers.push(self.filled(name, data_type, dims));
            } else {
                let dims = dims.into_iter().map(Dimension::Value).collect();
                graph.inputs.push(ValueInfo::tensor(name, data_type, dims));
            }
        }
    }

    fn node(&mut self, names: &mut Names, depth: usize) -> Node<'static> {
        let choice = self.next() << 8 | self.next();
        let (domain, op_type, spec, own): (&str, &str, Option<&OpSpec>, &str) =
            match choice % (Op::SPECS.len() + IMPORTED.len()) {
                idx if idx < Op::SPECS.len() => ("", Op::SPECS[idx].name, Some(&Op::SPECS[idx]), ""),
                idx => {
                    let (domain, op_type, own) = IMPORTED[idx - Op::SPECS.len()];
                    (domain, op_type, OpSpec::find(op_type.trim_start_matches("QLinear")), own)
                }
            };
        let mut attributes = self.attributes(spec.map_or(&[], |spec| spec.fields), own);
        attributes.extend(self.bodies(op_type, names, depth));
        let n_inputs = [1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 0][self.below(11)];
        let inputs = (0..n_inputs)
            .map(|_| match self.next() {
                // Absent, a recent value, or any.
                0..16 => "".into(),
                recent @ 16..128 => names[names.len() - 1 - recent % names.len().min(4)].clone(),
                any => names[any % names.len()].clone(),
            })
            .collect();
        let outputs: Names = (0..1 + self.below(8) / 5)
            .map(|_| if self.below(20) == 19 { "".into() } else { self.name() })
            .collect();
        names.extend(outputs.iter().filter(|name| !name.is_empty()).cloned());
        Node {
            domain: domain.into(),
            op_type: op_type.into(),
            inputs,
            outputs,
            attributes,
            ..Node::default()
        }
    }

    fn attributes(&mut self, fields: &'static [FieldSpec], own: &'static str) -> Vec<Attribute<'static>> {
        let mut list = Vec::new();
        for field in fields {
            if !field.required && self.below(4) != 0 {
                continue;
            }
            let name = match field.name {
                "trans_a" => "transA",
                "trans_b" => "transB",
                "element_type" => "type",
                name => name,
            };
            list.push(Attribute::new(name, self.attribute(field.kind, field.words)));
        }
        if !own.is_empty() || self.below(8) == 7 {
            let find = |name: &str| OTHER_ATTRIBUTES.iter().find(|(other, _)| *other == name).copied();
            let (name, kind) = find(own).unwrap_or(OTHER_ATTRIBUTES[self.below(OTHER_ATTRIBUTES.len())]);
            list.push(Attribute::new(name, self.attribute(kind, &["Relu", "Clip"])));
        }
        list
    }

    fn attribute(&mut self, kind: AttributeKind, words: &'static [&'static str]) -> AttributeValue<'static> {
        // Now and then another kind.
        let kind = if self.below(64) == 63 { AttributeKind::ALL[self.below(10)] } else { kind };
        match kind {
            AttributeKind::Bool => AttributeValue::Int(self.below(2) as i64),
            AttributeKind::Int => AttributeValue::Int(self.int()),
            AttributeKind::Float => AttributeValue::Float(self.float()),
            AttributeKind::Ints => AttributeValue::Ints((0..self.below(6)).map(|_| self.int()).collect()),
            AttributeKind::Floats => {
                AttributeValue::Floats((0..self.below(6)).map(|_| self.float()).collect())
            }
            AttributeKind::DType => AttributeValue::Int(self.below(30) as i64),
            AttributeKind::Tensor => AttributeValue::Tensor(Box::new(self.tensor("".into()))),
            AttributeKind::Type => {
                let inner = self.input().ty.unwrap_or(Type::Tensor { elem: DataType::Float, shape: None });
                AttributeValue::Type(Box::new(match self.below(3) {
                    0 => inner,
                    1 => Type::Sequence(Box::new(inner)),
                    _ => Type::Optional(Box::new(inner)),
                }))
            }
            AttributeKind::Str => AttributeValue::String(self.word(words).into_bytes().into()),
            AttributeKind::Strs => {
                let list = (0..self.below(4)).map(|_| self.word(&["Tanh", "Sigmoid", "Relu", "Affine"]));
                AttributeValue::Strings(list.map(|word| word.into_bytes().into()).collect())
            }
        }
    }

    fn word(&mut self, words: &'static [&'static str]) -> String {
        if words.is_empty() {
            return ["ij,jk->ik", "...i->i", "ii->i", "ij->ji", "a...,...b", "i"][self.below(6)].into();
        }
        words[self.below(words.len())].into()
    }

    /// Bodies of control flow, over the names outside.
    fn bodies(&mut self, op_type: &str, names: &Names, depth: usize) -> Vec<Attribute<'static>> {
        let (attributes, n_formals): (&[&'static str], usize) = match op_type {
            "If" => (&["then_branch", "else_branch"], 0),
            "Loop" => (&["body"], 2),
            "Scan" | "SequenceMap" => (&["body"], 0),
            _ => return Vec::new(),
        };
        if depth == 2 {
            return Vec::new();
        }
        let mut list = Vec::new();
        for &name in attributes {
            let mut body = Graph { name: name.into(), ..Graph::default() };
            let mut inside = names.clone();
            for idx in 0..n_formals + self.below(4) * usize::from(op_type != "If") {
                let mut input = self.input();
                if op_type == "Loop" && idx < 2 {
                    let elem = [DataType::Int64, DataType::Bool][idx];
                    input.ty = Some(Type::Tensor { elem, shape: Some(vec![]) });
                }
                inside.push(input.name.clone());
                body.inputs.push(input);
            }
            body.nodes = self.nodes(&mut inside, depth + 1);
            if op_type == "Loop" {
                body.outputs.push(untyped(body.inputs[1].name.clone()));
            }
            for _ in 0..self.below(3) {
                let name = inside[inside.len() - 1 - self.below(inside.len().min(4))].clone();
                body.outputs.push(untyped(name));
            }
            list.push(Attribute::new(name, AttributeValue::Graph(Box::new(body))));
        }
        list
    }
}

fn untyped(name: Cow<'static, str>) -> ValueInfo<'static> {
    ValueInfo { name, ..ValueInfo::default() }
}
