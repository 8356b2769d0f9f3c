//! Where a model first leaves ONNX Runtime: every value between the nodes compared.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::Result;
use planish_import::import_file;
use planish_ir::Node;
use planish_op::Value;
use planish_tensor::Tensor;

use super::{Entry, ask_onnx_runtime, case, class, distance, ort_case};
use crate::python::unpacked_wheel;

/// Differing nodes that are printed.
const SHOWN: usize = 12;

pub(super) fn run(entries: &[Entry], python: &Path, cases: &Path) -> Result<bool> {
    let mut all_same = true;
    for entry in entries {
        println!("{}", entry.name);
        all_same &= trace(entry, python, cases)?;
    }
    Ok(all_same)
}

fn trace(entry: &Entry, python: &Path, cases: &Path) -> Result<bool> {
    let model = unpacked_wheel(&entry.package)?.join(&entry.member);
    let case = ort_case(entry, &model, python, cases)?;
    ask_onnx_runtime(entry, &model, python, cases, &["--trace"])?;
    let expected = expected(&cases.join(&entry.name).join("trace"))?;
    let imported = import_file(&model)?;
    let graph = &imported.graph;
    let (_, tolerance) = class(&imported);
    // Nodes of bodies are observed too, but their ids belong to other graphs.
    let own: HashMap<*const Node, ()> =
        graph.nodes().map(|(_, node)| (std::ptr::from_ref(node), ())).collect();
    let mut n_different = 0;
    let mut observe = |node: &Node, outputs: &[Option<&Value>]| {
        if !own.contains_key(&std::ptr::from_ref(node)) {
            return;
        }
        for (id, value) in node.outputs.iter().zip(outputs) {
            let (Some(id), Some(Value::Tensor(actual))) = (id, value) else { continue };
            let name = &*graph.value(*id).name;
            let Some(expected) = expected.get(name) else { continue };
            if let Err(why) = distance(actual, expected, tolerance) {
                n_different += 1;
                if n_different <= SHOWN {
                    println!("  {} `{}` making `{name}`: {why}", node.op.name(), node.name);
                }
            }
        }
    };
    let inputs = case::values(&case, "input", |_| Some(case::Kind::Tensor))?;
    planish_ir::interpret_with(graph, inputs, &planish_op::Limits::default(), &mut observe)?;
    println!("  {n_different} of {} values differ", expected.len());
    Ok(n_different == 0)
}

fn expected(folder: &Path) -> Result<HashMap<String, Tensor>> {
    let mut values = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let bytes = fs::read(entry?.path())?;
        let tensor = planish_onnx::read_tensor(&bytes)?;
        values.insert(tensor.name.to_string(), planish_import::tensor(&tensor)?);
    }
    Ok(values)
}
