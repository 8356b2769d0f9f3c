//! `planish demo`: a small residual network, made here, inspected and run.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use planish_onnx::{
    Attribute, AttributeValue, DataType, Dimension, Graph, Model, Node, OpsetImport, Tensor, ValueInfo,
};

use crate::args::Demo;
use crate::feed::{self, Sources};
use crate::inspect::{self, Report};
use crate::random::Random;
use crate::{Answer, files, run, say_note};

/// The seed of the weights; the inputs take the next one.
const SEED: u64 = 2026;
/// Channels of the three stages; the later two halve the image.
const STAGES: [i64; 3] = [16, 32, 64];
const BLOCKS_PER_STAGE: usize = 2;
const CLASSES: i64 = 10;
const IMAGE: i64 = 32;

pub(crate) fn command(args: &Demo, out: &mut dyn Write) -> Result<Answer> {
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => std::env::temp_dir().join("planish-demo"),
    };
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let model = folder.join("demo.onnx");
    let bytes = planish_onnx::write(&network());
    files::write(&model, |file| file.write_all(&bytes))?;
    writeln!(out, "A residual network for {IMAGE}x{IMAGE} images with random weights:\n")?;
    Report::new(&model, &[])?.print(out)?;

    let imported = inspect::import(&model)?;
    let sources = Sources { random: Some(SEED + 1), ..Sources::default() };
    let fed = feed::gather(&imported.graph, &sources)?;
    fed.notes.iter().for_each(|note| say_note(note));
    writeln!(out, "\nOne run on random input:\n")?;
    let ran = run::run(&imported.graph, &fed)?;
    ran.print(out)?;
    let (inputs, outputs) = (folder.join("input.npz"), folder.join("output.npz"));
    run::save_archive(&inputs, &fed.tensors)?;
    run::save_archive(&outputs, &ran.tensors())?;
    writeln!(out, "\nThe files are in {}. The same by hand:\n", folder.display())?;
    writeln!(out, "  planish inspect {}", shell(&model))?;
    writeln!(out, "  planish run {} --inputs {} -o {}", shell(&model), shell(&inputs), shell(&outputs))?;
    Ok(Answer::Yes)
}

/// A path as a shell takes it.
fn shell(path: &Path) -> Cow<'_, str> {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if text.chars().all(is_plain) { text } else { Cow::Owned(format!("'{}'", text.replace('\'', "'\\''"))) }
}

/// Collects the nodes and weights of the network.
struct Builder {
    random: Random,
    nodes: Vec<Node<'static>>,
    initializers: Vec<Tensor<'static>>,
}

impl Builder {
    fn weight(&mut self, name: &str, dims: &[i64], value: impl Fn(&mut Random) -> f64) -> String {
        let n: i64 = dims.iter().product();
        let bytes: Vec<u8> = (0..n).flat_map(|_| (value(&mut self.random) as f32).to_le_bytes()).collect();
        self.initializers.push(Tensor::raw(name.to_string(), DataType::Float, dims.to_vec(), bytes));
        name.to_string()
    }

    fn node(
        &mut self,
        op_type: &'static str,
        name: &str,
        inputs: Vec<String>,
        attributes: Vec<Attribute<'static>>,
    ) -> String {
        let output = format!("{name}_out");
        self.nodes.push(Node {
            name: name.to_string().into(),
            op_type: op_type.into(),
            inputs: inputs.into_iter().map(Cow::Owned).collect(),
            outputs: vec![output.clone().into()],
            attributes,
            ..Node::default()
        });
        output
    }

    /// A convolution with weights that keep the variance (He and others, 2015), then batch normalization.
    fn convolution(&mut self, name: &str, x: String, channels: [i64; 2], kernel: i64, stride: i64) -> String {
        let [from, to] = channels;
        let deviation = (2.0 / (from * kernel * kernel) as f64).sqrt();
        let filter = self.weight(&format!("{name}.weight"), &[to, from, kernel, kernel], |random| {
            random.normal() * deviation
        });
        let pad = kernel / 2;
        let attributes = vec![
            Attribute::new("strides", AttributeValue::Ints(vec![stride; 2])),
            Attribute::new("pads", AttributeValue::Ints(vec![pad; 4])),
            Attribute::new("kernel_shape", AttributeValue::Ints(vec![kernel; 2])),
        ];
        let y = self.node("Conv", &format!("{name}.conv"), vec![x, filter], attributes);
        let near = |center: f64| move |random: &mut Random| center + 0.1 * random.normal();
        let scale = self.weight(&format!("{name}.scale"), &[to], near(1.0));
        let shift = self.weight(&format!("{name}.shift"), &[to], near(0.0));
        let mean = self.weight(&format!("{name}.mean"), &[to], near(0.0));
        let variance = self.weight(&format!("{name}.variance"), &[to], |random| 0.5 + random.unit());
        let inputs = vec![y, scale, shift, mean, variance];
        self.node("BatchNormalization", &format!("{name}.norm"), inputs, Vec::new())
    }

    /// Two convolutions and a way around them.
    fn block(&mut self, name: &str, x: String, channels: [i64; 2], stride: i64) -> String {
        let y = self.convolution(&format!("{name}.a"), x.clone(), channels, 3, stride);
        let y = self.node("Relu", &format!("{name}.a.relu"), vec![y], Vec::new());
        let y = self.convolution(&format!("{name}.b"), y, [channels[1]; 2], 3, 1);
        let around = if stride == 1 && channels[0] == channels[1] {
            x
        } else {
            self.convolution(&format!("{name}.around"), x, channels, 1, stride)
        };
        let sum = self.node("Add", &format!("{name}.add"), vec![y, around], Vec::new());
        self.node("Relu", &format!("{name}.relu"), vec![sum], Vec::new())
    }
}

/// The network: a convolution, three stages of residual blocks, the mean over the image, a linear layer.
fn network() -> Model<'static> {
    let mut builder = Builder { random: Random::new(SEED), nodes: Vec::new(), initializers: Vec::new() };
    let mut x = builder.convolution("stem", "image".into(), [3, STAGES[0]], 3, 1);
    x = builder.node("Relu", "stem.relu", vec![x], Vec::new());
    let mut from = STAGES[0];
    for (stage, to) in STAGES.into_iter().enumerate() {
        for block in 0..BLOCKS_PER_STAGE {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = builder.block(&format!("stage{}.block{}", stage + 1, block + 1), x, [from, to], stride);
            from = to;
        }
    }
    x = builder.node("GlobalAveragePool", "pool", vec![x], Vec::new());
    x = builder.node("Flatten", "flatten", vec![x], Vec::new());
    let deviation = (1.0 / from as f64).sqrt();
    let weight = builder.weight("classes.weight", &[CLASSES, from], |random| random.normal() * deviation);
    let bias = builder.weight("classes.bias", &[CLASSES], |random| 0.1 * random.normal());
    let transposed = vec![Attribute::new("transB", AttributeValue::Int(1))];
    x = builder.node("Gemm", "classes", vec![x, weight, bias], transposed);
    builder.node("Softmax", "softmax", vec![x], Vec::new());
    if let Some(last) = builder.nodes.last_mut() {
        last.outputs = vec!["probabilities".into()];
    }
    let batch = || Dimension::Param("batch".into());
    let sizes = |list: &[i64]| list.iter().map(|&size| Dimension::Value(size)).collect::<Vec<_>>();
    let with_batch = |list: &[i64]| std::iter::once(batch()).chain(sizes(list)).collect::<Vec<_>>();
    Model {
        ir_version: 10,
        opset_imports: vec![OpsetImport { domain: "".into(), version: 21 }],
        producer_name: "planish".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        graph: Graph {
            name: "demo".into(),
            nodes: builder.nodes,
            initializers: builder.initializers,
            inputs: vec![ValueInfo::tensor("image", DataType::Float, with_batch(&[3, IMAGE, IMAGE]))],
            outputs: vec![ValueInfo::tensor("probabilities", DataType::Float, with_batch(&[CLASSES]))],
            ..Graph::default()
        },
        ..Model::default()
    }
}
