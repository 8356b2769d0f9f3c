//! ONNX files as they are, to look at and to change: nothing is imported, optimized or renamed.
//!
//! [`File`] opens one, with the weights beside it in place; [`planish_onnx::Model`] and what it holds are the structures of
//! the format. [`extract`] and [`keep_nodes`] cut a part out, [`lint`] finds what is wrong, [`fix`] repairs what a machine
//! can, [`save`] writes the result.
//!
//! ```
//! use planish::onnx::{self, DataType, Dimension, Edit, Graph, Model, Node, OpsetImport, Severity, ValueInfo};
//!
//! # let folder = std::env::temp_dir().join(format!("planish-doc-onnx-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("model.onnx");
//! # let x = ValueInfo::tensor("x", DataType::Float, vec![Dimension::Unknown, Dimension::Value(4)]);
//! # let y = ValueInfo { name: "y".into(), ..ValueInfo::default() };
//! # let nodes = vec![
//! #     Node::new("Relu", &["x"], &["h"]), Node::new("Exp", &["h"], &["y"]), Node::new("Neg", &["h"], &["unread"]),
//! # ];
//! # let graph = Graph { name: "g".into(), nodes, inputs: vec![x], outputs: vec![y], ..Graph::default() };
//! # let opset_imports = vec![OpsetImport { domain: "".into(), version: 21 }];
//! # onnx::save(&Model { ir_version: 10, opset_imports, graph, ..Model::default() }, &path)?;
//! let file = onnx::File::open(&path)?;
//! let model = file.model()?;                                          // borrows from the file
//! let types = file.types();                                           // declared, or found by inference
//! assert!(types.of("h").is_some() && types.unsupported().is_empty());
//!
//! let found = onnx::lint(&model, &types);
//! let rules: Vec<&str> = found.iter().map(|finding| finding.rule).collect();
//! assert_eq!(rules, ["dead-node", "unnamed-dimension"]);
//! assert!(found.iter().all(|finding| finding.severity < Severity::Error && finding.fix.is_some()));
//! let mut fixed = model.clone();
//! onnx::fix(&mut fixed, &types);
//! assert!(onnx::lint(&fixed, &types).is_empty());
//!
//! let tail = onnx::extract(&model, &types, &["h".to_string()], &["y".to_string()])?;
//! assert_eq!(tail.graph.nodes.len(), 1);
//! let head = onnx::keep_nodes(&model, &types, &[0].into(), &Default::default())?;
//! assert_eq!(head.graph.outputs[0].name, "h");
//!
//! let mut changed = model.clone();
//! let done = onnx::edit(&mut changed, &types, &Edit::RenameValue { from: "h".into(), to: "hidden".into() })?;
//! assert_eq!(done, 3);                                                // places that name it
//! onnx::mark_outputs(&mut changed, &types, &["hidden".to_string()])?;
//! assert_eq!(changed.graph.outputs.len(), 2);
//! let renamed = onnx::to_model(&changed)?;                            // what `Builder::from_model` takes
//! assert_eq!(renamed.graph().outputs().len(), 2);
//! assert_eq!(onnx::reads(&model.graph.nodes[1]), ["h"]);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cut;
mod file;
mod fix;
mod lint;
mod names;
mod surgery;

#[doc(inline)]
pub use planish_onnx::{
    Attribute, AttributeValue, DataType, Dimension, Function, Graph, Model, Node, OpsetImport, Tensor,
    TensorData, Type, ValueInfo, read, write,
};

pub use cut::{extract, keep_nodes, mark_outputs};
pub use file::{File, Types, save, to_model};
pub use fix::fix;
pub use lint::{Finding, Severity, lint};
pub use names::reads;
pub use surgery::{Edit, edit};
