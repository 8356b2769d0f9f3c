//! What an operator takes and makes: element types and sizes by name, as in
//! `x: T[b, h, s, d], cos: T[b, s, d / 2] -> y: T[b, h, s, d]`.
//!
//! A name alone binds a size, an expression is compared with it. `...` stands for any number of leading or middle axes,
//! the same wherever it is written; as a number it is called `rest`.

use std::collections::{BTreeMap, BTreeSet};

use planish_op::Attribute;
use planish_op::infer::{InferResult, Inference, Inferred};
use planish_tensor::{DType, Dim, Shape};

use crate::expression::Expression;

/// The name of the number of elements along `...`.
pub const REST: &str = "rest";

/// The element type of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortType {
    /// One of several, the same wherever the name is written.
    Variable(String),
    Fixed(DType),
}

/// One axis of a port, or `...`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Axis {
    Size(Expression),
    Rest,
}

/// An input or output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    pub name: String,
    pub ty: PortType,
    pub axes: Vec<Axis>,
    pub optional: bool,
}

/// How two expressions must be to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    Equal,
    AtMost,
    Below,
}

/// A condition on sizes and attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    pub text: String,
    pub left: Expression,
    pub relation: Relation,
    pub right: Expression,
}

impl Condition {
    fn holds(&self, left: i64, right: i64) -> bool {
        match self.relation {
            Relation::Equal => left == right,
            Relation::AtMost => left <= right,
            Relation::Below => left < right,
        }
    }
}

/// What an operator takes and makes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Signature {
    /// Names of types with what they may be.
    pub variables: Vec<(String, Vec<DType>)>,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub conditions: Vec<Condition>,
}

/// Types and sizes that go with each other.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Bound {
    pub types: BTreeMap<String, DType>,
    pub sizes: BTreeMap<String, i64>,
    /// The sizes along `...`.
    pub rest: Vec<usize>,
}

/// A value as signatures see it.
pub type Form<'a> = (DType, &'a [usize]);

impl Signature {
    /// What the names are for these inputs, attributes counted; an error where they do not fit.
    pub fn bind(
        &self,
        inputs: &[Option<Form<'_>>],
        attributes: &[(String, Attribute)],
    ) -> Result<Bound, String> {
        let mut bound = Bound { sizes: numbers(attributes), ..Bound::default() };
        let mut rest: Option<Vec<usize>> = None;
        self.check_count(inputs.len(), |idx| inputs.get(idx).is_some_and(Option::is_some))?;
        for (port, form) in self.inputs.iter().zip(inputs) {
            let Some((dtype, dims)) = form else { continue };
            self.bind_type(port, *dtype, &mut bound.types)?;
            let sizes: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
            let (sizes, along) = port.split(&sizes)?;
            if let Some(along) = along {
                let along: Vec<usize> = along.iter().map(|size| *size as usize).collect();
                if *rest.get_or_insert_with(|| along.clone()) != along {
                    return Err(format!("`...` of `{}` is {along:?}, elsewhere {rest:?}", port.name));
                }
            }
            for (expression, size) in sizes {
                let Some(name) = expression.as_name() else { continue };
                let known = *bound.sizes.entry(name.to_string()).or_insert(size);
                if known != size {
                    return Err(format!("`{name}` is {known}, in `{}` it is {size}", port.name));
                }
            }
        }
        let rest = rest.unwrap_or_default();
        bound.sizes.insert(REST.to_string(), rest.iter().product::<usize>() as i64);
        bound.rest = rest;
        for (port, form) in self.inputs.iter().zip(inputs) {
            if let Some((_, dims)) = form {
                bound.compare(port, dims)?;
            }
        }
        for condition in &self.conditions {
            let eval = |expression: &Expression| expression.eval(&|name| bound.sizes.get(name).copied());
            let holds = eval(&condition.left).zip(eval(&condition.right));
            if !holds.is_some_and(|(left, right)| condition.holds(left, right)) {
                return Err(format!("it takes sizes with {}", condition.text));
            }
        }
        Ok(bound)
    }

    /// The types and sizes of the outputs.
    pub fn outputs(&self, bound: &Bound) -> Result<Vec<(DType, Vec<usize>)>, String> {
        self.outputs.iter().map(|port| Ok((bound.dtype(port)?, bound.dims(port)?))).collect()
    }

    /// The same over symbolic sizes.
    pub fn infer(&self, attributes: &[(String, Attribute)], cx: &mut Inference<'_>) -> InferResult {
        let has = |idx: usize| cx.has_input(idx);
        self.check_count(cx.n_inputs(), has).map_err(|why| cx.bad_shape(why))?;
        let mut types = BTreeMap::new();
        let mut sizes: BTreeMap<String, Dim> =
            numbers(attributes).into_iter().map(|(name, number)| (name, Dim::from(number))).collect();
        let mut rest: Option<Vec<Dim>> = None;
        let mut unranked = BTreeSet::new();
        for (idx, port) in self.inputs.iter().enumerate() {
            let Some(ty) = cx.optional_tensor(idx)? else { continue };
            self.bind_type(port, ty.dtype, &mut types).map_err(|why| cx.bad_type(why))?;
            let Some(shape) = &ty.shape else {
                unranked.insert(idx);
                continue;
            };
            let (own, along) = port.split(shape.dims()).map_err(|why| cx.bad_shape(why))?;
            if let Some(along) = along {
                rest.get_or_insert_with(|| along.to_vec());
            }
            for (expression, size) in own {
                let Some(name) = expression.as_name() else { continue };
                let known = sizes.entry(name.to_string()).or_insert_with(|| size.clone());
                match (known.as_const(), size.as_const()) {
                    (Some(a), Some(b)) if a != b => {
                        let why = format!("`{name}` is {a}, in `{}` it is {b}", port.name);
                        return Err(cx.bad_shape(why));
                    }
                    // A number says more than a symbol.
                    (None, Some(_)) => *known = size,
                    _ => {}
                }
            }
        }
        if let Some(rest) = &rest {
            sizes.insert(REST.to_string(), rest.iter().product());
        }
        let number = |expression: &Expression| {
            expression.dim(&|name| sizes.get(name).cloned()).and_then(|dim| dim.as_const())
        };
        for condition in &self.conditions {
            if let (Some(left), Some(right)) = (number(&condition.left), number(&condition.right))
                && !condition.holds(left, right)
            {
                return Err(cx.bad_shape(format!("it takes sizes with {}", condition.text)));
            }
        }
        for (idx, port) in self.inputs.iter().enumerate() {
            let Some(shape) = cx.optional_tensor(idx)?.and_then(|ty| ty.shape.as_ref()) else { continue };
            let (own, _) = port.split(shape.dims()).map_err(|why| cx.bad_shape(why))?;
            for (expression, size) in own {
                if let (Some(wanted), Some(found)) = (number(expression), size.as_const())
                    && wanted != found
                {
                    return Err(
                        cx.bad_shape(format!("`{}` has a size of {found} instead of {wanted}", port.name))
                    );
                }
            }
        }
        let mut outputs = Vec::new();
        for port in self.outputs.iter().take(cx.n_outputs()) {
            let dtype = dtype_of(port, &types).map_err(|why| cx.bad_type(why))?;
            let mut dims: Option<Vec<Dim>> = Some(Vec::new());
            for axis in &port.axes {
                let own = match axis {
                    Axis::Rest => rest.clone(),
                    Axis::Size(size) => size.dim(&|name| sizes.get(name).cloned()).map(|dim| vec![dim]),
                };
                dims = dims.zip(own).map(|(dims, own)| [dims, own].concat());
            }
            // What hangs on an input of unknown rank is known when it runs.
            let shape = dims.map(Shape::from_iter);
            if shape.is_none() && unranked.is_empty() {
                return Err(
                    cx.bad_shape(format!("the sizes of `{}` do not follow from its inputs", port.name))
                );
            }
            outputs.push(Inferred::maybe_ranked(dtype, shape));
        }
        match outputs.len() == cx.n_outputs() {
            true => Ok(outputs),
            false => Err(cx.bad_shape(format!(
                "it makes {} outputs, {} are asked for",
                outputs.len(),
                cx.n_outputs()
            ))),
        }
    }

    fn check_count(&self, n_inputs: usize, has: impl Fn(usize) -> bool) -> Result<(), String> {
        if n_inputs > self.inputs.len() {
            return Err(format!("it takes {} inputs, there are {n_inputs}", self.inputs.len()));
        }
        let missing = self.inputs.iter().enumerate().find(|(idx, port)| !port.optional && !has(*idx));
        missing.map_or(Ok(()), |(_, port)| Err(format!("its input `{}` is missing", port.name)))
    }

    fn bind_type(
        &self,
        port: &Port,
        dtype: DType,
        types: &mut BTreeMap<String, DType>,
    ) -> Result<(), String> {
        match &port.ty {
            PortType::Fixed(fixed) if *fixed == dtype => Ok(()),
            PortType::Fixed(fixed) => Err(format!("`{}` must be of type {fixed}, it is {dtype}", port.name)),
            PortType::Variable(variable) => {
                let allowed = self.variables.iter().find(|(name, _)| name == variable);
                if !allowed.is_some_and(|(_, allowed)| allowed.contains(&dtype)) {
                    return Err(format!("`{}` is of type {dtype}, which it does not take", port.name));
                }
                match *types.entry(variable.clone()).or_insert(dtype) {
                    known if known == dtype => Ok(()),
                    known => {
                        Err(format!("`{}` is of type {dtype}, another input of type {known}", port.name))
                    }
                }
            }
        }
    }
}

impl Port {
    /// Sizes beside the expressions of their axes, and those along `...`.
    #[allow(clippy::type_complexity)]
    fn split<'a, T: Clone>(
        &'a self,
        sizes: &'a [T],
    ) -> Result<(Vec<(&'a Expression, T)>, Option<&'a [T]>), String> {
        let wrong = || format!("`{}` has {} axes, it takes {}", self.name, sizes.len(), self.axes.len());
        let expression = |axis: &'a Axis| match axis {
            Axis::Size(expression) => Some(expression),
            Axis::Rest => None,
        };
        let Some(at) = self.axes.iter().position(|axis| *axis == Axis::Rest) else {
            if sizes.len() != self.axes.len() {
                return Err(wrong());
            }
            let all = self.axes.iter().filter_map(expression).zip(sizes.iter().cloned());
            return Ok((all.collect(), None));
        };
        let n_behind = self.axes.len() - at - 1;
        let Some(end) = sizes.len().checked_sub(n_behind).filter(|end| *end >= at) else {
            return Err(wrong());
        };
        let own = sizes[..at].iter().chain(&sizes[end..]).cloned();
        Ok((self.axes.iter().filter_map(expression).zip(own).collect(), Some(&sizes[at..end])))
    }
}

impl Bound {
    pub fn dtype(&self, port: &Port) -> Result<DType, String> {
        dtype_of(port, &self.types)
    }

    pub fn dims(&self, port: &Port) -> Result<Vec<usize>, String> {
        let mut dims = Vec::new();
        for axis in &port.axes {
            match axis {
                Axis::Rest => dims.extend(&self.rest),
                Axis::Size(size) => {
                    let size = size.eval(&|name| self.sizes.get(name).copied());
                    let size = size.and_then(|size| usize::try_from(size).ok());
                    dims.push(
                        size.ok_or_else(|| format!("a size of `{}` is no number from 0 on", port.name))?,
                    );
                }
            }
        }
        Ok(dims)
    }

    fn compare(&self, port: &Port, dims: &[usize]) -> Result<(), String> {
        match self.dims(port)? {
            wanted if wanted == dims => Ok(()),
            wanted => Err(format!("`{}` has the sizes {dims:?} instead of {wanted:?}", port.name)),
        }
    }
}

fn dtype_of(port: &Port, types: &BTreeMap<String, DType>) -> Result<DType, String> {
    match &port.ty {
        PortType::Fixed(dtype) => Ok(*dtype),
        PortType::Variable(name) => types
            .get(name)
            .copied()
            .ok_or_else(|| format!("the type of `{}` does not follow from its inputs", port.name)),
    }
}

/// Attributes that are whole numbers.
fn numbers(attributes: &[(String, Attribute)]) -> BTreeMap<String, i64> {
    let number = |(name, value): &(String, Attribute)| match value {
        Attribute::Int(number) => Some((name.clone(), *number)),
        Attribute::Bool(truth) => Some((name.clone(), i64::from(*truth))),
        _ => None,
    };
    attributes.iter().filter_map(number).collect()
}
