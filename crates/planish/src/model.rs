//! `Model`: an ONNX file that was read, once for all that is done with it.

use std::collections::BTreeSet;
use std::path::Path;

use planish_import::{DeclaredShapes, ImportError, ImportErrorKind, UnsupportedNode};
use planish_ir::Graph;
use planish_tensor::{Bytes, Tensor};

use crate::border::{self, Border};
use crate::error::of_import;
use crate::network::NetworkBuilder;
use crate::{Error, ErrorKind, PortInfo, StatePair};

/// A model that was read: its graph, and the hash that tells it from others. Weights stay in the mapped file.
///
/// ```
/// use planish::{Builder, Model};
///
/// # let graph = r#"graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }"#;
/// # let graph: planish::graph::Graph = graph.parse()?;
/// let model = Model::from(graph);                                     // or Model::open("model.onnx")
/// assert_eq!(model.graph().inputs().len(), 1);
/// assert_eq!(model.hash(), model.clone().hash());                     // tells it from other models
/// let plan = Builder::from_model(model).tune_level(0).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    graph: Graph,
    pub(crate) source: [u8; 32],
    pub(crate) declared: DeclaredShapes,
    /// What of the model is told in another way than its file says.
    pub(crate) notes: Vec<String>,
    /// Free pairs of keys and values that its file has.
    pub(crate) properties: Vec<(String, String)>,
    /// What was put around the model, as plans keep it.
    pub(crate) border: Vec<String>,
}

impl Model {
    /// Reads an ONNX file. External data is looked for beside it.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = path.as_ref();
        let bytes = Bytes::map_file(path).map_err(|error| Error::io("read", path, &error))?;
        import(folder_of(path), &bytes).map_err(|error| named(path, &error))
    }

    /// Reads a model from the bytes of an ONNX file; without external data, which has no folder to be looked for in.
    ///
    /// ```
    /// use planish::{Bytes, ErrorKind, Model};
    ///
    /// # let graph = r#"graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }"#;
    /// # let path = std::env::temp_dir().join(format!("planish-doc-{}.onnx", std::process::id()));
    /// # Model::from(graph.parse::<planish::graph::Graph>()?).save_onnx(&path)?;
    /// # let bytes = std::fs::read(&path)?;
    /// # std::fs::remove_file(&path)?;
    /// let model = Model::from_bytes(&Bytes::from_vec(bytes))?;        // of a download, an archive, a database
    /// assert_eq!(model.graph().nodes().len(), 1);
    /// let error = Model::from_bytes(&Bytes::from_vec(vec![1u8; 8])).unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::BadModel);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_bytes(bytes: &Bytes) -> Result<Model, Error> {
        import(None, bytes).map_err(|error| named(Path::new("the model"), &error))
    }

    /// The model of a file that is mapped already, or the nodes of it that are not supported.
    pub(crate) fn of_bytes(path: &Path, bytes: &Bytes) -> Result<Result<Model, Vec<UnsupportedNode>>, Error> {
        match import(folder_of(path), bytes) {
            Ok(model) => Ok(Ok(model)),
            Err(error) => match error.kind() {
                ImportErrorKind::Unsupported(nodes) => Ok(Err(nodes.clone())),
                _ => Err(named(path, &error)),
            },
        }
    }

    /// The model of a network that was defined by hand.
    pub fn from_network(network: NetworkBuilder) -> Result<Model, Error> {
        Ok(Model::from(network.finish()?))
    }

    /// Tells the model from others: a hash of its file and of the weights beside it, or of its graph.
    pub fn hash(&self) -> [u8; 32] {
        self.source
    }

    /// What the model computes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The model with other elements in some of its weights, by name: each of the type and sizes that it has.
    ///
    /// ```
    /// use planish::{Builder, DType, Model, NetworkBuilder, Tensor};
    ///
    /// let mut net = NetworkBuilder::new("scale");
    /// let x = net.input("x", DType::F32, "batch,3")?;
    /// let scale = net.constant("scale", Tensor::vector(vec![1f32, 2., 3.]))?;
    /// let y = net.mul(x, scale)?;
    /// net.output("y", y)?;
    /// let model = Model::from_network(net)?;
    /// let newer = model.with_weights(&[("scale".to_string(), Tensor::vector(vec![4f32, 5., 6.]))])?;
    /// assert_ne!(newer.hash(), model.hash());
    /// let plan = Builder::from_model(model).tune_level(0).build()?.refit(&newer)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_weights(&self, weights: &[(String, Tensor)]) -> Result<Model, Error> {
        let mut newer = self.clone();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.source);
        for (name, tensor) in weights {
            let known = self.graph.find(name).and_then(|id| Some((id, self.graph.value(id).constant()?)));
            let refused = |why: String| Error::new(ErrorKind::BadOption, why);
            let (id, old) = known.ok_or_else(|| refused(format!("the model has no weight `{name}`")))?;
            let of = |tensor: &Tensor| format!("{}{:?}", tensor.dtype(), tensor.shape());
            // Integers may be shapes and axes, which types were inferred from.
            if !old.dtype().is_float() {
                return Err(refused(format!("`{name}` is {}; weights of floats can be replaced", of(old))));
            }
            if !newer.graph.set_elements(id, tensor.clone()) {
                return Err(refused(format!("the weight `{name}` is {}, {} is given", of(old), of(tensor))));
            }
            hasher.update(name.as_bytes()).update(&[0]).update(tensor.bytes());
        }
        newer.source = *hasher.finalize().as_bytes();
        Ok(newer)
    }

    /// How many layers (MatMul, Gemm, Conv) have weights that are 2:4 sparse along the sum, and how many have constant weights.
    /// [`crate::Builder::sparsity`] has an example.
    pub fn sparse_layers(&self) -> (usize, usize) {
        planish_compile::sparse_layers(&self.graph)
    }

    /// Writes an ONNX file of the model as it is now.
    pub fn save_onnx(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let bytes =
            planish_import::export(&self.graph).map_err(|error| of_import(&error, error.to_string()))?;
        let written = planish_files::write(path, |file| std::io::Write::write_all(file, &bytes));
        written.map(drop).map_err(|error| Error::io("write", path, &error))
    }

    /// Lets these symbols of the inputs' shapes differ from place to place, each as `INPUT.AXIS`: files give one name
    /// to sizes that need not be equal.
    ///
    /// ```
    /// use planish::Model;
    ///
    /// let graph = r#"graph "g" { input %a: f32[n] input %b: f32[n] %y: f32[n] = Relu(%a) output %y, %b }"#;
    /// let model = Model::from(graph.parse::<planish::graph::Graph>()?).untie(&["n".to_string()].into())?;
    /// let types: Vec<String> =
    ///     model.graph().inputs().iter().map(|&id| model.graph().value(id).ty.to_string()).collect();
    /// assert_eq!(types, ["f32[a.0]", "f32[b.0]"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn untie(mut self, symbols: &BTreeSet<String>) -> Result<Model, Error> {
        if symbols.is_empty() {
            return Ok(self);
        }
        self.graph = untied(&self.graph, symbols)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.source);
        symbols.iter().for_each(|symbol| _ = hasher.update(format!("{symbol}\n").as_bytes()));
        self.source = *hasher.finalize().as_bytes();
        Ok(self)
    }

    /// The model with more of its values as outputs, behind its own.
    pub(crate) fn with_more_outputs(mut self, more: &[planish_ir::ValueId]) -> Model {
        let outputs = [self.graph.outputs(), more].concat();
        self.graph.set_outputs(outputs);
        self
    }

    /// The names of classes that the model's file has, as exporters of YOLO write them.
    fn own_labels(&self) -> Vec<String> {
        let names = self.properties.iter().find(|(key, _)| key == "names");
        names.map_or(Vec::new(), |(_, text)| border::of_metadata(text))
    }

    /// The model with another border: types and layouts of its inputs and outputs, and work before and after it, all as nodes
    /// of its graph. [`Border`] has an example.
    pub fn with_border(mut self, border: &Border) -> Result<Model, Error> {
        if border.is_empty() {
            return Ok(self);
        }
        if !self.border.is_empty() {
            let message = "the model has a border already; give all of it at once";
            return Err(Error::new(ErrorKind::BadOption, message));
        }
        let (graph, labels) = border.around(&self.graph, &self.own_labels())?;
        self.graph = graph;
        self.declared = DeclaredShapes::default();
        let lines = border.lines().into_iter().chain(labels.iter().map(border::label_line)).collect();
        self.mark(lines);
        Ok(self)
    }

    /// The model with states: inputs that are what an output was in the run before, as in `h0=hn` or `h0=hn:2x1x128` with the
    /// sizes to begin at. Plans of it keep them, where they run, from one run to the next.
    ///
    /// ```
    /// use planish::{Builder, DType, Device, Engine, Model, NetworkBuilder, Sequence, View};
    ///
    /// let mut net = NetworkBuilder::new("sum so far");
    /// let x = net.input("x", DType::F32, "batch,2")?;
    /// let so_far = net.input("so_far", DType::F32, "batch,2")?;
    /// let sum = net.add(x, so_far)?;
    /// net.output("sum", sum)?;
    /// let model = Model::from_network(net)?.with_states(&["so_far=sum"])?;
    /// let plan = Builder::from_model(model).device(Device::Cpu).tune_level(0).build()?;
    ///
    /// let mut context = Engine::new(plan, Device::Cpu)?.context()?;
    /// let mut add = |context: &mut planish::Context, x: f32| -> Result<f32, planish::Error> {
    ///     let outputs = context.run(&[("x", View::new(&[1, 2], &[x; 2])?)])?;  // the state is fed by itself
    ///     Ok(outputs.get("sum").and_then(|sum| Some(sum.as_slice::<f32>()?[0])).unwrap())
    /// };
    /// assert_eq!((add(&mut context, 1.0)?, add(&mut context, 2.0)?), (1.0, 3.0));
    ///
    /// let mut other = Sequence::default();                             // several sequences, one context
    /// context.swap_sequence(&mut other)?;
    /// assert_eq!(add(&mut context, 5.0)?, 5.0);
    /// context.swap_sequence(&mut other)?;
    /// assert_eq!(add(&mut context, 1.0)?, 4.0);
    /// context.states()?.set("so_far", View::new(&[1, 2], &[10f32, 10.0])?)?;
    /// assert_eq!(add(&mut context, 1.0)?, 11.0);
    /// context.states()?.reset();
    /// assert_eq!(add(&mut context, 1.0)?, 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_states(mut self, states: &[&str]) -> Result<Model, Error> {
        let ports = |ids: &[planish_ir::ValueId]| -> Vec<PortInfo> {
            let port = |&id: &planish_ir::ValueId| {
                let value = self.graph.value(id);
                PortInfo { name: value.name.to_string(), ty: value.ty.clone() }
            };
            ids.iter().map(port).collect()
        };
        let (inputs, outputs) = (ports(self.graph.inputs()), ports(self.graph.outputs()));
        let pairs = StatePair::parse_all(states, &inputs, &outputs)
            .map_err(|why| Error::new(ErrorKind::BadOption, format!("--state {why}")))?;
        let loose = pairs.iter().flat_map(|pair| pair.loose_symbols(&inputs, &outputs)).collect();
        self = self.untie(&loose)?;
        let lines: Vec<String> = states.iter().map(|state| format!("state={state}")).collect();
        self.mark(lines);
        Ok(self)
    }

    /// Takes note of what a plan is to keep of it, which tells it from the model without.
    fn mark(&mut self, lines: Vec<String>) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.source);
        lines.iter().for_each(|line| _ = hasher.update(format!("{line}\n").as_bytes()));
        if !lines.is_empty() {
            self.source = *hasher.finalize().as_bytes();
        }
        self.border.extend(lines);
    }
}

impl From<Graph> for Model {
    fn from(graph: Graph) -> Model {
        let printed = graph.print();
        let mut hasher = blake3::Hasher::new();
        hasher.update(printed.text.as_bytes());
        // The text has the number and the length of each.
        printed.constants.iter().for_each(|constant| _ = hasher.update(constant.bytes()));
        let source = *hasher.finalize().as_bytes();
        let (declared, properties, border) = (DeclaredShapes::default(), Vec::new(), Vec::new());
        Model { graph, source, declared, notes: Vec::new(), properties, border }
    }
}

/// Where a model's external data is; the folder of a bare file name is the current one.
fn folder_of(path: &Path) -> Option<&Path> {
    Some(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

fn import(folder: Option<&Path>, bytes: &Bytes) -> Result<Model, ImportError> {
    // Libraries that are no plugins of ours, or damaged ones, say so where they are asked for.
    let _ = crate::plugin::discover();
    let imported = planish_import::import_bytes(bytes, folder)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    // Weights may lie in other files.
    let own = bytes.as_ptr_range();
    let constants = imported.graph.values().filter_map(|(_, value)| value.constant());
    for constant in constants.filter(|constant| !own.contains(&constant.bytes().as_ptr())) {
        hasher.update(constant.bytes());
    }
    let source = *hasher.finalize().as_bytes();
    let (graph, declared, properties) = (imported.graph, imported.declared, imported.metadata);
    Ok(Model { graph, source, declared, notes: imported.notes, properties, border: Vec::new() })
}

/// Why a file is not a usable model.
fn named(path: &Path, error: &ImportError) -> Error {
    let file = path.display();
    let message = match error.kind() {
        // It names its file.
        ImportErrorKind::Io { .. } => error.to_string(),
        ImportErrorKind::Onnx(_) => format!("{file} is not a usable ONNX model: {error}"),
        _ => format!("{file}: {error}"),
    };
    of_import(error, message)
}

/// The graph with these symbols taken apart: each input has its own.
pub(crate) fn untied(graph: &Graph, symbols: &BTreeSet<String>) -> Result<Graph, Error> {
    graph.untie(&|dim| dim.as_symbol().is_some_and(|name| symbols.contains(name))).map_err(|error| {
        let names: Vec<&str> = symbols.iter().map(String::as_str).collect();
        let message = format!("the model needs one size for {}: {error}", names.join(", "));
        Error::new(ErrorKind::WrongShape, message)
    })
}
