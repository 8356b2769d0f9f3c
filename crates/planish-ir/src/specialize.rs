//! The same graph at given sizes: symbols replaced, every type inferred again, and small values that follow
//! from the sizes computed (exporters do shape arithmetic in floating point, which inference does not follow).

use planish_op::infer::Content;
use planish_op::{Attribute, Class, Op, TensorType, Value, ValueType};
use planish_tensor::{Dim, Shape, Tensor};

use crate::control;
use crate::graph::{Declared, Graph, GraphError, NewNode, NewOutput, Node};
use crate::id::{NodeId, ValueId};

impl Graph {
    /// This graph with the symbols that `lookup` knows replaced by numbers. Sizes that the operators refuse
    /// are an error; of the branches of an If one that takes them is enough, the other stays as it is: a run that
    /// takes it all the same is told why it cannot.
    pub fn specialize(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Result<Graph, GraphError> {
        let replace = |name: &str| lookup(name).map(Dim::from);
        specialize(self, Symbols { lookup: &replace, all_branches: false }, &[])
    }

    /// That everything in this graph takes the sizes that `lookup` knows, all branches of an If too.
    pub fn takes_sizes(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Result<(), GraphError> {
        let replace = |name: &str| lookup(name).map(Dim::from);
        specialize(self, Symbols { lookup: &replace, all_branches: true }, &[]).map(|_| ())
    }

    /// This graph over inputs of these types, everything inferred again. Types that the operators refuse are an error.
    pub fn with_inputs(&self, types: Vec<ValueType>) -> Result<Graph, GraphError> {
        let inputs: Vec<Known> = types.into_iter().map(|ty| Some((ty, None))).collect();
        specialize(self, Symbols { lookup: &|_| None, all_branches: false }, &inputs)
    }

    /// This graph with a symbol of its own, `INPUT.AXIS`, for each size of an input's type that `apart` asks for: files
    /// give one name to sizes that need not be equal.
    pub fn untie(&self, apart: &dyn Fn(&Dim) -> bool) -> Result<Graph, GraphError> {
        let untied = |id: &ValueId| {
            let value = self.value(*id);
            let mut ty = value.ty.clone();
            if let ValueType::Tensor(TensorType { shape: Some(shape), .. }) = &mut ty {
                let own = |axis: usize| Dim::symbol(&format!("{}.{axis}", value.name));
                let dims = shape.iter().enumerate();
                *shape = dims.map(|(axis, dim)| if apart(dim) { own(axis) } else { dim.clone() }).collect();
            }
            ty
        };
        self.with_inputs(self.inputs().iter().map(untied).collect())
    }
}

/// What is known of symbols, and whether branches that it does not fit are an error.
#[derive(Clone, Copy)]
struct Symbols<'a> {
    lookup: &'a dyn Fn(&str) -> Option<Dim>,
    all_branches: bool,
}

/// What a body's input is known to be outside; `None` for a formal one.
type Known = Option<(ValueType, Option<Content>)>;

fn specialize(graph: &Graph, symbols: Symbols<'_>, known: &[Known]) -> Result<Graph, GraphError> {
    let lookup = symbols.lookup;
    // Old symbols stay in hints, so new ones are numbered after them.
    let mut new =
        Graph { name: graph.name.clone(), n_fresh_symbols: graph.n_fresh_symbols, ..Graph::default() };
    let mut ids: Vec<Option<ValueId>> = vec![None; graph.values().len()];
    for (idx, &id) in graph.inputs().iter().enumerate() {
        let value = graph.value(id);
        let (ty, content) = match known.get(idx) {
            Some(Some((ty, content))) => (ty.clone(), content.clone()),
            _ => (substitute(&value.ty, lookup), None),
        };
        ids[id.index()] = Some(new.add_known_input(&value.name, ty, content)?);
    }
    for (id, value) in graph.values() {
        if let Some(tensor) = value.constant() {
            ids[id.index()] = Some(new.add_constant(&value.name, tensor.clone())?);
        }
    }
    for (_, node) in graph.nodes() {
        let inputs: Vec<Option<ValueId>> =
            node.inputs.iter().map(|id| id.and_then(|id| ids[id.index()])).collect();
        let bodies = bodies(&new, node, &inputs, symbols)?;
        let output = |id: &Option<ValueId>| match id.map(|id| graph.value(id)) {
            None => NewOutput::Skip,
            Some(value) => {
                let declared = substitute(&value.ty, lookup);
                // Without its plugin a node has only the types that it came with.
                let declared = match planish_op::plugin::is_missing(&node.op) {
                    true => Declared::Exact(declared),
                    false => Declared::Hint(declared),
                };
                NewOutput::Value { name: value.name.clone(), declared }
            }
        };
        let outputs = node.outputs.iter().map(output).collect();
        let (name, op, n_captured) = (node.name.clone(), node.op.clone(), node.n_captured);
        let made = new.add_node(NewNode { name, op, inputs, outputs, bodies, n_captured })?;
        compute(&mut new, made);
        for (old, id) in node.outputs.iter().zip(&new.node(made).outputs) {
            if let Some(old) = old {
                ids[old.index()] = *id;
            }
        }
    }
    let outputs = graph.outputs().iter().filter_map(|id| ids[id.index()]).collect();
    new.set_outputs(outputs);
    Ok(new)
}

fn bodies(
    outer: &Graph,
    node: &Node,
    inputs: &[Option<ValueId>],
    symbols: Symbols<'_>,
) -> Result<Vec<Graph>, GraphError> {
    let n_own = inputs.len().saturating_sub(node.n_captured);
    let formals = (0..control::n_formal(&node.op, n_own)).map(|_| None);
    let captured = inputs[n_own..].iter().map(|id| {
        let value = outer.value((*id)?);
        Some((value.ty.clone(), value.content.clone()))
    });
    let known: Vec<Known> = formals.chain(captured).collect();
    let inside = |body: &Graph| {
        specialize(body, symbols, &known)
            .map_err(|error| error.inside(&format!("{}/{}", node.name, body.name)))
    };
    let bodies: Vec<Result<Graph, GraphError>> = node.bodies.iter().map(inside).collect();
    let is_choice = matches!(node.op, Op::If(_)) && !symbols.all_branches && bodies.iter().any(Result::is_ok);
    let or_kept = |(made, old): (Result<Graph, GraphError>, &Graph)| match made {
        Err(_) if is_choice => Ok(old.clone()),
        made => made,
    };
    bodies.into_iter().zip(&node.bodies).map(or_kept).collect()
}

/// More elements than this are data, not sizes.
const MAX_COMPUTED: usize = 1024;

/// Gives the node's outputs their elements if those of its inputs are known and there are few. A node that
/// cannot be evaluated stays as it is: whoever runs it is told why.
fn compute(graph: &mut Graph, id: NodeId) {
    let node = graph.node(id);
    let is_small = |id: &Option<ValueId>| match id {
        None => true,
        Some(id) => {
            let ty = graph.value(*id).ty.as_tensor();
            let count = ty.and_then(|ty| ty.shape.as_ref()?.element_count().as_usize());
            count.is_some_and(|count| count <= MAX_COMPUTED)
        }
    };
    let has_content = |id: &Option<ValueId>| id.is_some_and(|id| graph.value(id).content.is_some());
    // Weights of few elements are data too: computed here, they would be integers no more, and their layers would multiply
    // floats.
    if matches!(node.op, Op::DequantizeLinear(_)) {
        return;
    }
    // What is left to find out: nothing for a node whose outputs inference knows already.
    if node.outputs.iter().all(has_content) || !is_function(&node.op) || !node.outputs.iter().all(is_small) {
        return;
    }
    let known = |id: &Option<ValueId>| match id {
        None => Some(None),
        Some(id) => known_value(graph, *id).map(Some),
    };
    let Some(inputs) = node.inputs.iter().map(known).collect::<Option<Vec<Option<Value>>>>() else { return };
    let operands: Vec<Option<&Value>> = inputs.iter().map(Option::as_ref).collect();
    let Ok(values) = planish_reference::evaluate(&node.op, &operands, node.outputs.len()) else { return };
    for (id, value) in node.outputs.clone().into_iter().zip(values) {
        let (Some(id), Value::Tensor(tensor)) = (id, value) else { continue };
        let ty = ValueType::tensor(tensor.dtype(), Shape::from(tensor.shape()));
        let info = &mut graph.values[id.index()];
        if control::compatible(&info.ty, &ty) {
            info.ty = ty;
            info.content = Some(Content::Tensor(tensor));
        }
    }
}

/// The elements of a value, if they are known and few.
fn known_value(graph: &Graph, id: ValueId) -> Option<Value> {
    let value = graph.value(id);
    let dims = match value.content.as_ref()? {
        Content::Tensor(tensor) => {
            return (tensor.len() <= MAX_COMPUTED).then(|| Value::from(tensor.clone()));
        }
        Content::Ints(ints) => &ints.dims,
        Content::Grid(dims) => dims,
    };
    let ty = value.ty.as_tensor()?;
    let numbers = dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>()?;
    let own = Tensor::new(&ty.shape.as_ref()?.as_fixed()?, numbers).ok()?;
    let cast = Op::from_attributes("Cast", &[("to".into(), Attribute::DType(ty.dtype))]).ok()?;
    planish_reference::evaluate(&cast, &[Some(&Value::from(own))], 1).ok()?.pop()
}

/// Whether the same inputs always give the same outputs, and the reference can be asked for them.
pub fn is_function(op: &Op) -> bool {
    match op {
        Op::Custom(op) => planish_op::plugin::find(op).is_some_and(|plugin| plugin.has_reference()),
        op => !matches!(op.class(), Class::Control | Class::Random),
    }
}

fn substitute(ty: &ValueType, lookup: &dyn Fn(&str) -> Option<Dim>) -> ValueType {
    match ty {
        ValueType::Tensor(tensor) => {
            let mut tensor = tensor.clone();
            tensor.shape = tensor.shape.as_ref().map(|shape: &Shape| shape.substitute(lookup));
            ValueType::Tensor(tensor)
        }
        ValueType::Sequence(element) => ValueType::Sequence(Box::new(substitute(element, lookup))),
        ValueType::Optional(element) => ValueType::Optional(Box::new(substitute(element, lookup))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, sizes: &[(&str, i64)]) -> Result<Graph, GraphError> {
        let graph: Graph = text.parse().unwrap();
        let lookup = |name: &str| sizes.iter().find(|(known, _)| *known == name).map(|(_, size)| *size);
        let new = graph.specialize(&lookup)?;
        new.verify().unwrap();
        Ok(new)
    }

    fn type_of(graph: &Graph, name: &str) -> String {
        graph.value(graph.find(name).unwrap()).ty.to_string()
    }

    #[test]
    fn sizes_flow_through() {
        let text = "graph \"g\" { input %x: f32[n,8] const %w: f32[8,2] = hex \"00000000000000000000000000000000\
                    000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\"\n\
                    %y: f32[n,2] = MatMul(%x, %w) \"product\" %z: f32[n] = custom \"d\" \"n\" 1(%y) output %y }";
        let graph = at(text, &[("n", 5)]).unwrap();
        assert_eq!((type_of(&graph, "y").as_str(), type_of(&graph, "z").as_str()), ("f32[5,2]", "f32[5]"));
        assert_eq!(graph.outputs().len(), 1);
        assert_eq!(type_of(&at(text, &[]).unwrap(), "y"), "f32[n,2]");
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let text =
            "graph \"g\" { input %x: f32[n,8] input %y: f32[m,8] %z: f32[n,8] = Add(%x, %y) output %z }";
        assert_eq!(type_of(&at(text, &[("n", 4), ("m", 1)]).unwrap(), "z"), "f32[4,8]");
        assert!(at(text, &[("n", 4), ("m", 3)]).is_err());
    }

    #[test]
    fn one_name_for_sizes_that_differ() {
        let text = "graph \"g\" { input %x: f32[n,h] input %y: f32[n,h] %z: f32[n,2*h] = Concat(%x, %y) {axis=1}\n\
                    output %z }";
        let graph: Graph = text.parse().unwrap();
        assert!(graph.specialize(&|name| (name == "h").then_some(3)).is_ok());
        let apart = graph.untie(&|dim| dim.as_symbol() == Some("h")).unwrap();
        apart.verify().unwrap();
        assert_eq!(type_of(&apart, "z"), "f32[n,x.1+y.1]");
        let sizes = [("n", 2), ("x.1", 3), ("y.1", 4)];
        let lookup = |name: &str| sizes.iter().find(|(known, _)| *known == name).map(|(_, size)| *size);
        assert_eq!(type_of(&apart.specialize(&lookup).unwrap(), "z"), "f32[2,7]");
    }

    #[test]
    fn sizes_computed_in_floating_point_are_followed() {
        let text = "graph \"g\" { input %x: f32[n] const %zero: i64[] = 0 const %two: f32[] = 2 const %axes: i64[1] = [0]\n\
                    %s: i64[1] = Shape(%x) %f: f32[1] = Cast(%s) {to=f32} %h: f32[1] = Div(%f, %two)\n\
                    %c: f32[1] = Ceil(%h) %i: i64[1] = Cast(%c) {to=i64} %y: f32[m] = ConstantOfShape(%i) output %y }";
        assert_eq!(type_of(&at(text, &[("n", 7)]).unwrap(), "y"), "f32[4]");
        assert_eq!(type_of(&at(text, &[]).unwrap(), "y"), "f32[\"constant'1\"]");
        // Random numbers are not computed ahead, however few.
        let text = "graph \"g\" { const %p: f32[2] = [0.5, 0.5] %y: f32[2] = Bernoulli(%p) output %y }";
        let graph = at(text, &[]).unwrap();
        assert!(graph.value(graph.find("y").unwrap()).content.is_none());
    }

    #[test]
    fn small_weights_stay_integers() {
        let text = "graph \"g\" { input %x: f32[n,2] const %w: i8[2,2] = [1, -2, 3, 4] const %s: f32[] = 0.5\n\
                    %d: f32[2,2] = DequantizeLinear(%w, %s) %y: f32[n,2] = MatMul(%x, %d) output %y }";
        let graph = at(text, &[("n", 3)]).unwrap();
        assert!(graph.value(graph.find("d").unwrap()).content.is_none());
    }

    #[test]
    fn a_branch_for_other_sizes_stays() {
        let text = "graph \"g\" { input %c: bool[] input %x: f32[n,m] const %axis: i64[1] = [1]\n\
                    %y: f32[*] = If(%c; %x) [graph \"then\" { input %x: f32[n,m] const %axis: i64[1] = [1]\n\
                    %z: f32[n] = Squeeze(%x, %axis) output %z }, graph \"else\" { input %x: f32[n,m]\n\
                    %z: f32[n,m] = Neg(%x) output %z }] output %y }";
        let graph = at(text, &[("n", 3), ("m", 2)]).unwrap();
        let (_, node) = graph.nodes().next().unwrap();
        assert_eq!(type_of(&node.bodies[0], "z"), "f32[n]");
        assert_eq!(type_of(&node.bodies[1], "z"), "f32[3,2]");
        let of: Graph = text.parse().unwrap();
        assert!(of.takes_sizes(&|name| (name == "m").then_some(2)).is_err());
        assert!(of.takes_sizes(&|name| (name == "m").then_some(1)).is_ok());
        // What runs in any case must fit.
        let text = "graph \"g\" { input %x: f32[n,m] const %axis: i64[1] = [1]\n\
                    %z: f32[n] = Squeeze(%x, %axis) output %z }";
        assert!(at(text, &[("n", 3), ("m", 2)]).is_err());
    }

    #[test]
    fn bodies_see_the_sizes_outside() {
        let body = |name: &str| {
            format!(
                "graph \"{name}\" {{ input %x: f32[n] %z: f32[2*n] = Concat(%x, %x) {{axis=0}} output %z }}"
            )
        };
        let text = format!(
            "graph \"g\" {{ input %c: bool[] input %x: f32[n]\n%y: f32[2*n] = If(%c; %x) [{}, {}] output %y }}",
            body("then"),
            body("else")
        );
        let graph = at(&text, &[("n", 3)]).unwrap();
        assert_eq!(type_of(&graph, "y"), "f32[6]");
        let (_, node) = graph.nodes().next().unwrap();
        assert_eq!(type_of(&node.bodies[0], "z"), "f32[6]");
    }
}
