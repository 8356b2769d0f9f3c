//! `Op`: the closed set of operators, each an attribute struct, made from the rows of `op_table`.

use planish_tensor::DType;

use crate::attribute::{Attribute, AttributeError, AttributeType, FieldSpec};
use crate::class::{Class, Form, Lowering};
use crate::op_table::Op;

/// What the table knows of one operator.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec {
    /// The ONNX name.
    pub name: &'static str,
    pub class: Class,
    /// The most inputs that it takes, absent optional ones counted; `None` where there is no limit.
    pub max_inputs: Option<usize>,
    pub lowering: Lowering,
    pub fields: &'static [FieldSpec],
}

/// An operator that is not in the table: a plugin's, named by domain, name and version.
#[derive(Clone, PartialEq, Debug)]
pub struct Custom {
    pub domain: String,
    pub name: String,
    pub version: i64,
    pub attributes: Vec<(String, Attribute)>,
}

/// Writes what the table says: the attribute structs, the `Op` enum, its views and columns.
macro_rules! ops {
    (()
        pointwise { $(
            $pointwise:ident $form:ident $kinds:ident $p_inputs:tt $p_lowering:ident $rounding:ident
            { $($p_fields:tt)* }
        )* }
        reductions { $($reduction:ident $by:ident $r_lowering:ident)* }
        families { $($family:ident { $(
            $name:ident $class:ident $inputs:tt $lowering:ident $function:ident { $($fields:tt)* }
        )* })* }
        control { $($control:ident $c_inputs:tt { $($c_fields:tt)* })* }
    ) => {
        $($crate::op::attributes! {
            $pointwise { $($p_fields)* }
            Class::Pointwise(Form::$form), $crate::op::ops!(@inputs $p_inputs), Lowering::$p_lowering
        })*
        $($crate::op::attributes! {
            $reduction { noop_with_empty_axes: bool = false, keepdims: bool = true }
            Class::Reduction, Some(2), Lowering::$r_lowering
        })*
        $($($crate::op::attributes! {
            $name { $($fields)* }
            Class::$class, $crate::op::ops!(@inputs $inputs), Lowering::$lowering
        })*)*
        $($crate::op::attributes! {
            $control { $($c_fields)* } Class::Control, $crate::op::ops!(@inputs $c_inputs), Lowering::Never
        })*

        $crate::op::op_enum! { $($pointwise)* $($reduction)* $($($name)*)* $($control)* }

        /// A pointwise operator with its attributes: what a stage matches on that must know each of them.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub enum Pointwise<'a> {
            $($pointwise(&'a $pointwise),)*
        }

        impl Pointwise<'_> {
            pub fn form(self) -> Form {
                match self {
                    $(Pointwise::$pointwise(_) => Form::$form,)*
                }
            }

            /// The element types of its operands.
            pub fn kinds(self) -> Kinds {
                match self {
                    $(Pointwise::$pointwise(_) => Kinds::$kinds,)*
                }
            }

            /// How far its result may be from exact.
            pub fn rounding(self) -> Rounding {
                match self {
                    $(Pointwise::$pointwise(_) => Rounding::$rounding,)*
                }
            }
        }

        impl Op {
            /// The operator as a pointwise one, if it is.
            pub fn as_pointwise(&self) -> Option<Pointwise<'_>> {
                match self {
                    $(Op::$pointwise(op) => Some(Pointwise::$pointwise(op)),)*
                    _ => None,
                }
            }

            /// The operator as a reduction, if it is one of the `Reduce*`.
            pub fn as_reduce(&self) -> Option<Reduce> {
                match self {
                    $(Op::$reduction(op) => Some(op.into()),)*
                    _ => None,
                }
            }
        }

        $(impl From<&$reduction> for Reduce {
            fn from(op: &$reduction) -> Reduce {
                let $reduction { noop_with_empty_axes, keepdims } = *op;
                Reduce { by: Reduction::$by, noop_with_empty_axes, keepdims }
            }
        })*
    };

    (@inputs any) => { None };
    (@inputs $most:literal) => { Some($most) };
}
pub(crate) use ops;

/// The attribute struct of one operator, and the conversions from and to attribute lists.
macro_rules! attributes {
    (
        $name:ident { $($field:ident : $ty:ty $(= $default:expr)?),* $(,)? }
        $class:expr, $inputs:expr, $lowering:expr
    ) => {
        #[derive(Clone, PartialEq, Debug)]
        pub struct $name {
            $(pub $field: $ty),*
        }

        impl $crate::op::Attributes for $name {
            const SPEC: $crate::op::OpSpec = $crate::op::OpSpec {
                name: stringify!($name),
                class: $class,
                max_inputs: $inputs,
                lowering: $lowering,
                fields: &[$($crate::attribute::FieldSpec {
                    name: stringify!($field),
                    kind: <$ty as AttributeType>::KIND,
                    words: <$ty as AttributeType>::WORDS,
                    required: $crate::op::attributes!(@required $($default)?),
                }),*],
            };

            fn attributes(&self) -> Vec<(&'static str, Attribute)> {
                #[allow(unused_mut)]
                let mut list = Vec::new();
                $($crate::op::attributes!(@list self list $field : $ty $(= $default)?);)*
                list
            }

            #[allow(unused_variables)]
            fn from_attributes(list: &[(String, Attribute)]) -> Result<Self, AttributeError> {
                $crate::op::refuse_unknown(&Self::SPEC, list)?;
                Ok($name {
                    $($field: match $crate::op::read_field::<$ty>(&Self::SPEC, list, stringify!($field))? {
                        Some(value) => value,
                        None => $crate::op::attributes!(@default $name $field $(= $default)?),
                    }),*
                })
            }
        }

        impl From<$name> for Op {
            fn from(op: $name) -> Op {
                Op::$name(op)
            }
        }
    };

    (@required) => { true };
    (@required $default:expr) => { false };
    (@list $self:ident $list:ident $field:ident : $ty:ty) => {
        if let Some(value) = $self.$field.to_attribute() {
            $list.push((stringify!($field), value));
        }
    };
    (@list $self:ident $list:ident $field:ident : $ty:ty = $default:expr) => {{
        // Compared as attributes, so that -0 is not taken for 0 and NaN is what it is.
        let default: $ty = $default;
        let value = $self.$field.to_attribute();
        if value != default.to_attribute() {
            $list.extend(value.map(|value| (stringify!($field), value)));
        }
    }};
    (@default $name:ident $field:ident) => {
        return Err(AttributeError::Missing { op: stringify!($name), attribute: stringify!($field) })
    };
    (@default $name:ident $field:ident = $default:expr) => { $default };
}
pub(crate) use attributes;

/// The `Op` enum over the attribute structs.
macro_rules! op_enum {
    ($($name:ident)*) => {
        /// An operator with its attributes.
        // TreeEnsemble has 15 lists and tensors; graphs have thousands of operators, not millions, so that a few hundred
        // bytes for each do no harm.
        #[allow(clippy::large_enum_variant)]
        #[derive(Clone, PartialEq, Debug)]
        pub enum Op {
            $($name($name),)*
            /// An operator that a plugin brings.
            Custom($crate::op::Custom),
        }

        impl Op {
            /// The specification of every operator in the table.
            pub const SPECS: &'static [$crate::op::OpSpec] =
                &[$(<$name as $crate::op::Attributes>::SPEC),*];

            /// The ONNX name.
            pub fn name(&self) -> &str {
                match self {
                    $(Op::$name(_) => stringify!($name),)*
                    Op::Custom(custom) => &custom.name,
                }
            }

            /// What the table says of the operator; `None` for a plugin's.
            pub fn spec(&self) -> Option<&'static $crate::op::OpSpec> {
                match self {
                    $(Op::$name(_) => Some(const { &<$name as $crate::op::Attributes>::SPEC }),)*
                    Op::Custom(_) => None,
                }
            }

            /// The attributes that differ from their defaults, in table order.
            pub fn attributes(&self) -> Vec<(&str, Attribute)> {
                match self {
                    $(Op::$name(op) => $crate::op::Attributes::attributes(op),)*
                    Op::Custom(custom) => {
                        custom.attributes.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
                    }
                }
            }

            /// The operator called `name` with these attributes, the others at their defaults.
            pub fn from_attributes(name: &str, list: &[(String, Attribute)]) -> Result<Op, AttributeError> {
                match name {
                    $(stringify!($name) => {
                        <$name as $crate::op::Attributes>::from_attributes(list).map(Op::$name)
                    })*
                    _ => Err(AttributeError::UnknownOp { name: name.to_string() }),
                }
            }
        }
    };
}
pub(crate) use op_enum;

impl Op {
    /// The unary operators that take elements of this type and need no attributes: what kernels are tried with that
    /// must compute each of them.
    pub fn unary_of(dtype: DType) -> impl Iterator<Item = Op> {
        let plain = Op::SPECS.iter().filter_map(|spec| Op::from_attributes(spec.name, &[]).ok());
        let takes = move |op: &Op| op.as_pointwise().is_some_and(|op| op.kinds().contain(dtype));
        plain.filter(move |op| op.is_unary() && takes(op))
    }

    /// What kind of operator it is.
    pub fn class(&self) -> Class {
        self.spec().map_or(Class::Custom, |spec| spec.class)
    }

    /// Whether each element of the one output is made from one element of each input, broadcast to it.
    pub fn is_pointwise(&self) -> bool {
        matches!(self.class(), Class::Pointwise(_))
    }

    /// Whether each element of the one output is made from one element of each input: pointwise, or quantization with
    /// scales for the whole tensor or along one axis.
    pub fn is_elementwise(&self) -> bool {
        match self {
            Op::QuantizeLinear(op) => op.block_size == 0,
            Op::DequantizeLinear(op) => op.block_size == 0,
            op => op.is_pointwise(),
        }
    }

    /// Whether it is pointwise with one operand; further inputs are scalars.
    pub fn is_unary(&self) -> bool {
        matches!(self.class(), Class::Pointwise(Form::Unary | Form::Predicate))
    }

    /// Whether it is pointwise with operands that are broadcast against one another (the slope of PRelu to its first).
    pub fn is_broadcast(&self) -> bool {
        self.is_pointwise() && !self.is_unary()
    }

    /// The most inputs that the operator takes, absent optional ones counted; `None` where there is no limit.
    /// Control flow counts without what its bodies capture.
    pub fn max_inputs(&self) -> Option<usize> {
        self.spec()?.max_inputs
    }

    /// When the operator is computed in f16 or bf16, if that is asked for.
    pub fn lowering(&self) -> Lowering {
        match self {
            Op::Custom(custom) => {
                crate::plugin::find(custom).map_or(Lowering::Never, |plugin| plugin.lowering())
            }
            op => op.spec().map_or(Lowering::Never, |spec| spec.lowering),
        }
    }
}

/// Calls what stands for an operator in the modules that are in scope: `pointwise::of` with a `Pointwise`,
/// `reduce::reduce` with a `Reduce`, or the function that its row names in the module of its family.
///
/// `dispatch_op!(op, cx, control: …, custom: …)` with expressions for control flow and plugins.
#[macro_export]
macro_rules! dispatch_op {
    ($op:expr, $cx:expr, control: $control:expr, custom: $custom:expr $(,)?) => {
        $crate::with_op_table!([$crate::dispatch_rows] $op, $cx, $control, $custom)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! dispatch_rows {
    (($op:expr, $cx:expr, $flow:expr, $custom:expr)
        pointwise { $(
            $pointwise:ident $form:ident $kinds:ident $p_inputs:tt $p_lowering:ident $rounding:ident
            { $($p_fields:tt)* }
        )* }
        reductions { $($reduction:ident $by:ident $r_lowering:ident)* }
        families { $($family:ident { $(
            $name:ident $class:ident $inputs:tt $lowering:ident $function:ident { $($fields:tt)* }
        )* })* }
        control { $($control:ident $c_inputs:tt { $($c_fields:tt)* })* }
    ) => {
        match $op {
            $($crate::Op::$pointwise(op) => pointwise::of($crate::Pointwise::$pointwise(op), $cx),)*
            $($crate::Op::$reduction(op) => reduce::reduce(op.into(), $cx),)*
            $($($crate::Op::$name(op) => $family::$function(op, $cx),)*)*
            $($crate::Op::$control(_))|* => $flow,
            $crate::Op::Custom(_) => $custom,
        }
    };
}

/// An attribute struct of the table.
pub trait Attributes: Sized {
    const SPEC: OpSpec;

    /// The attributes that differ from their defaults, in table order.
    fn attributes(&self) -> Vec<(&'static str, Attribute)>;

    /// The struct with these attributes, the others at their defaults.
    fn from_attributes(list: &[(String, Attribute)]) -> Result<Self, AttributeError>;
}

impl OpSpec {
    /// The specification of the operator called `name`.
    pub fn find(name: &str) -> Option<&'static OpSpec> {
        // Linear over some 200 rows: imports look a name up once per node, and this is 100 ns.
        crate::Op::SPECS.iter().find(|spec| spec.name == name)
    }

    pub fn field(&self, name: &str) -> Option<&'static FieldSpec> {
        self.fields.iter().find(|field| field.name == name)
    }
}

pub(crate) fn refuse_unknown(spec: &OpSpec, list: &[(String, Attribute)]) -> Result<(), AttributeError> {
    match list.iter().find(|(name, _)| spec.field(name).is_none()) {
        Some((name, _)) => Err(AttributeError::Unknown { op: spec.name, attribute: name.clone() }),
        None => Ok(()),
    }
}

pub(crate) fn read_field<T: AttributeType>(
    spec: &OpSpec,
    list: &[(String, Attribute)],
    name: &str,
) -> Result<Option<T>, AttributeError> {
    let Some((_, attribute)) = list.iter().find(|(candidate, _)| candidate == name) else {
        return Ok(None);
    };
    match (T::from_attribute(attribute), spec.field(name)) {
        (Some(value), _) => Ok(Some(value)),
        (None, Some(field)) => {
            Err(AttributeError::Wrong { op: spec.name, spec: field, found: attribute.clone() })
        }
        (None, None) => Err(AttributeError::Unknown { op: spec.name, attribute: name.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn attributes_survive_the_round_trip() {
        let list = vec![
            ("strides".to_string(), Attribute::Ints(vec![2, 2])),
            ("auto_pad".to_string(), Attribute::Str("SAME_UPPER".into())),
        ];
        let op = Op::from_attributes("Conv", &list).unwrap();
        let Op::Conv(conv) = &op else { panic!("not a Conv: {op:?}") };
        assert_eq!((conv.group, conv.auto_pad), (1, AutoPad::SameUpper));
        let printed: Vec<_> = op.attributes().into_iter().map(|(n, a)| (n.to_string(), a)).collect();
        assert_eq!(Op::from_attributes("Conv", &printed).unwrap(), op);
        assert_eq!(printed.len(), 2);
    }

    #[test]
    fn zeros_with_a_sign_and_nan_are_listed() {
        let listed = |mean| Op::from(RandomNormalLike { dtype: None, seed: None, scale: 1.0, mean });
        assert_eq!(listed(0.0).attributes(), []);
        assert_eq!(listed(-0.0).attributes(), [("mean", Attribute::Float(-0.0))]);
        assert_eq!(listed(f32::NAN).attributes(), [("mean", Attribute::Float(f32::NAN))]);
        assert_ne!(Attribute::Floats(vec![0.0]), Attribute::Floats(vec![-0.0]));
    }

    #[test]
    fn refusals_name_the_attribute() {
        let error = Op::from_attributes("Concat", &[]).unwrap_err();
        assert_eq!(error.to_string(), "Concat needs the attribute `axis`");
        let error = Op::from_attributes("Relu", &[("alpha".into(), Attribute::Float(1.0))]).unwrap_err();
        assert_eq!(error.to_string(), "Relu has no attribute `alpha`");
        let error =
            Op::from_attributes("Pad", &[("mode".into(), Attribute::Str("warp".into()))]).unwrap_err();
        assert!(error.to_string().contains("one of constant, reflect, edge, wrap"), "{error}");
        assert!(Op::from_attributes("Nonsense", &[]).is_err());
    }
}
