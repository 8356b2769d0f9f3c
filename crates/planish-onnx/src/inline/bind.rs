//! One call of a function: copies of the body's nodes under the call's names and attribute values.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{Callee, Inliner, bad_function, standard, weight};
use crate::error::{Result, shorten};
use crate::{Attribute, AttributeKind, AttributeValue, Graph, Metadata, Node, ValueInfo};

/// New names of the values defined in a body or in a subgraph of it.
#[derive(Debug, Default)]
pub(super) struct Scope<'c, 'a> {
    pub(super) names: HashMap<&'c str, Cow<'a, str>>,
    parent: Option<&'c Scope<'c, 'a>>,
}

impl<'a> Scope<'_, 'a> {
    fn get(&self, name: &str) -> Option<&Cow<'a, str>> {
        self.names.get(name).or_else(|| self.parent?.get(name))
    }
}

/// What a call gives to the body.
#[derive(Debug)]
pub(super) struct Binding<'c, 'a> {
    pub(super) callee: &'c Callee<'c, 'a>,
    attributes: HashMap<&'c str, &'c AttributeValue<'a>>,
    prefix: String,
}

impl<'c, 'a> Binding<'c, 'a> {
    pub(super) fn new(
        callee: &'c Callee<'c, 'a>,
        node: &'c Node<'a>,
        inliner: &mut Inliner<'_, 'a>,
    ) -> Result<Self> {
        let prefix = if node.name.is_empty() {
            inliner.counter += 1;
            format!("{}_{}", node.op_type, inliner.counter)
        } else {
            node.name.as_ref().to_owned()
        };
        inliner.charge(0, prefix.len() + node.attributes.len() * weight::NAME)?;
        let attributes = node.attributes.iter().map(|attribute| (attribute.name.as_ref(), &attribute.value));
        Ok(Self { callee, attributes: attributes.collect(), prefix })
    }

    pub(super) fn prefixed(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    fn attribute(&self, name: &str) -> Option<&'c AttributeValue<'a>> {
        self.attributes.get(name).or_else(|| self.callee.defaults.get(name)).copied()
    }
}

impl<'a> Inliner<'_, 'a> {
    /// A body's node under the call's names. The caller counts the weight of the node itself.
    pub(super) fn bind_node(
        &mut self,
        node: &Node<'a>,
        binding: &Binding<'_, 'a>,
        scope: &Scope<'_, 'a>,
    ) -> Result<Node<'a>> {
        self.charge(1, 0)?;
        let name = if node.name.is_empty() { Cow::Borrowed("") } else { binding.prefixed(&node.name).into() };
        self.charge(0, name.len())?;
        let mut attributes = Vec::with_capacity(node.attributes.len());
        for attribute in &node.attributes {
            let value = match &attribute.value {
                AttributeValue::Reference(kind) => match self.referred(attribute, *kind, binding)? {
                    Some(value) => value,
                    // Neither given nor defaulted: the operator's own default holds.
                    None => continue,
                },
                AttributeValue::Graph(graph) => {
                    AttributeValue::Graph(Box::new(self.bind_graph(graph, binding, scope)?))
                }
                AttributeValue::Graphs(graphs) => {
                    let bound = graphs.iter().map(|graph| self.bind_graph(graph, binding, scope));
                    AttributeValue::Graphs(bound.collect::<Result<_>>()?)
                }
                other => other.clone(),
            };
            let (name, doc_string) = (attribute.name.clone(), attribute.doc_string.clone());
            attributes.push(Attribute { name, ref_attr_name: Cow::Borrowed(""), value, doc_string });
        }
        Ok(Node {
            inputs: self.renamed_all(&node.inputs, binding, scope)?,
            outputs: self.renamed_all(&node.outputs, binding, scope)?,
            name,
            op_type: node.op_type.clone(),
            domain: node.domain.clone(),
            overload: node.overload.clone(),
            attributes,
            doc_string: node.doc_string.clone(),
            metadata: node.metadata.clone(),
            opset: binding.callee.opsets.get(standard(&node.domain)).copied(),
        })
    }

    fn referred(
        &mut self,
        attribute: &Attribute<'a>,
        kind: AttributeKind,
        binding: &Binding<'_, 'a>,
    ) -> Result<Option<AttributeValue<'a>>> {
        let Some(value) = binding.attribute(&attribute.ref_attr_name) else { return Ok(None) };
        if kind != AttributeKind::Undefined && kind != value.kind() {
            let what = format!(
                "wants its attribute {:?} as {kind:?}, but is given {:?}",
                shorten(&attribute.ref_attr_name),
                value.kind(),
            );
            return Err(bad_function(binding.callee.function, &what));
        }
        let (nodes, bytes) = (weight::nodes(value), weight::value(value));
        self.charge(nodes, bytes)?;
        Ok(Some(value.clone()))
    }

    fn renamed(
        &mut self,
        name: &str,
        binding: &Binding<'_, 'a>,
        scope: &Scope<'_, 'a>,
    ) -> Result<Cow<'a, str>> {
        if name.is_empty() {
            return Ok(Cow::Borrowed(""));
        }
        match scope.get(name) {
            Some(new) => {
                self.charge(0, new.len())?;
                Ok(new.clone())
            }
            None => {
                let what = format!("uses the value {:?}, which it does not define", shorten(name));
                Err(bad_function(binding.callee.function, &what))
            }
        }
    }

    fn renamed_all(
        &mut self,
        names: &[Cow<'a, str>],
        binding: &Binding<'_, 'a>,
        scope: &Scope<'_, 'a>,
    ) -> Result<Vec<Cow<'a, str>>> {
        names.iter().map(|name| self.renamed(name, binding, scope)).collect()
    }

    /// A subgraph of a body. Its own values are renamed too, so that no name hides another.
    fn bind_graph(
        &mut self,
        graph: &Graph<'a>,
        binding: &Binding<'_, 'a>,
        outer: &Scope<'_, 'a>,
    ) -> Result<Graph<'a>> {
        let mut scope = Scope { names: HashMap::new(), parent: Some(outer) };
        let inputs = graph.inputs.iter().map(|value| &value.name);
        let constants = graph.initializers.iter().map(|tensor| &tensor.name);
        let sparse = graph.sparse_initializers.iter().map(|sparse| &sparse.values.name);
        let made = graph.nodes.iter().flat_map(|node| &node.outputs);
        for name in inputs.chain(constants).chain(sparse).chain(made).filter(|name| !name.is_empty()) {
            // Older files list initializers as inputs too: one name, one value.
            if !scope.names.contains_key(name.as_ref()) {
                let new = self.fresh(binding.prefixed(name))?;
                scope.names.insert(name, new.into());
            }
        }
        let scope = &scope;
        let mut nodes = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            nodes.push(self.bind_node(node, binding, scope)?);
        }
        let mut initializers = graph.initializers.clone();
        for tensor in &mut initializers {
            tensor.name = self.renamed(&tensor.name, binding, scope)?;
        }
        let mut sparse_initializers = graph.sparse_initializers.clone();
        for sparse in &mut sparse_initializers {
            sparse.values.name = self.renamed(&sparse.values.name, binding, scope)?;
        }
        let mut quantization_annotations = graph.quantization_annotations.clone();
        for annotation in &mut quantization_annotations {
            annotation.tensor_name = self.renamed(&annotation.tensor_name, binding, scope)?;
            self.rename_values(&mut annotation.parameters, binding, scope)?;
        }
        Ok(Graph {
            name: graph.name.clone(),
            doc_string: graph.doc_string.clone(),
            nodes,
            initializers,
            sparse_initializers,
            inputs: self.bind_values(&graph.inputs, binding, scope)?,
            outputs: self.bind_values(&graph.outputs, binding, scope)?,
            // The types of values that are gone describe nothing.
            value_infos: {
                let known = graph.value_infos.iter().filter(|value| scope.get(&value.name).is_some());
                self.bind_values(known, binding, scope)?
            },
            quantization_annotations,
            metadata: graph.metadata.clone(),
        })
    }

    fn bind_values<'v>(
        &mut self,
        values: impl IntoIterator<Item = &'v ValueInfo<'a>>,
        binding: &Binding<'_, 'a>,
        scope: &Scope<'_, 'a>,
    ) -> Result<Vec<ValueInfo<'a>>>
    where
        'a: 'v,
    {
        let rename = |value: &ValueInfo<'a>| {
            let name = self.renamed(&value.name, binding, scope)?;
            Ok(ValueInfo { name, ..value.clone() })
        };
        values.into_iter().map(rename).collect()
    }

    fn rename_values(
        &mut self,
        entries: &mut Metadata<'a>,
        binding: &Binding<'_, 'a>,
        scope: &Scope<'_, 'a>,
    ) -> Result<()> {
        for (_, name) in entries {
            *name = self.renamed(name, binding, scope)?;
        }
        Ok(())
    }
}
