//! `Metadata`: what a model's file says of itself.

use std::collections::BTreeMap;

use pyo3::prelude::*;

/// What a model's file says of itself, beside what it computes: `planish.Model("model.onnx").metadata`.
///
/// >>> planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }').save_onnx("relu.onnx")
/// >>> planish.Model("relu.onnx").metadata.graph_name
/// 'g'
#[pyclass(frozen, get_all, eq, module = "planish")]
#[derive(Clone, PartialEq, Default)]
pub(crate) struct Metadata {
    /// The program that wrote the file.
    producer_name: String,
    /// That program's version.
    producer_version: String,
    /// Reverse domain name of the model's owner.
    domain: String,
    /// The owner's version of the model.
    version: i64,
    /// The model in words.
    description: String,
    /// The graph's name.
    graph_name: String,
    /// The graph in words.
    graph_description: String,
    /// Free pairs of keys and values.
    properties: BTreeMap<String, String>,
}

impl Metadata {
    pub(crate) fn new(of: planish::Metadata) -> Metadata {
        Metadata {
            producer_name: of.producer_name,
            producer_version: of.producer_version,
            domain: of.domain,
            version: of.version,
            description: of.description,
            graph_name: of.graph_name,
            graph_description: of.graph_description,
            properties: of.properties.into_iter().collect(),
        }
    }

    /// Of a graph that no file holds.
    pub(crate) fn named(graph_name: &str) -> Metadata {
        Metadata { graph_name: graph_name.to_string(), ..Metadata::default() }
    }
}

#[pymethods]
impl Metadata {
    /// Of nothing: all of it is empty.
    #[new]
    fn empty() -> Metadata {
        Metadata::default()
    }
}
