//! `Op`: the closed set of operators, each an attribute struct, made from the rows of `op_table`.

use crate::attribute::{Attribute, AttributeError, AttributeType, FieldSpec};

/// What the table knows of one operator.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec {
    /// The ONNX name.
    pub name: &'static str,
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

/// Writes the attribute structs, the `Op` enum and the conversions from and to attribute lists.
macro_rules! ops {
    ($(
        $(#[$meta:meta])*
        $name:ident { $($field:ident : $ty:ty $(= $default:expr)?),* $(,)? }
    )*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, PartialEq, Debug)]
            pub struct $name {
                $(pub $field: $ty),*
            }

            impl $crate::op::Attributes for $name {
                const SPEC: $crate::op::OpSpec = $crate::op::OpSpec {
                    name: stringify!($name),
                    fields: &[$($crate::attribute::FieldSpec {
                        name: stringify!($field),
                        kind: <$ty as AttributeType>::KIND,
                        words: <$ty as AttributeType>::WORDS,
                        required: $crate::op::ops!(@required $($default)?),
                    }),*],
                };

                fn attributes(&self) -> Vec<(&'static str, Attribute)> {
                    #[allow(unused_mut)]
                    let mut list = Vec::new();
                    $($crate::op::ops!(@list self list $field : $ty $(= $default)?);)*
                    list
                }

                #[allow(unused_variables)]
                fn from_attributes(list: &[(String, Attribute)]) -> Result<Self, AttributeError> {
                    $crate::op::refuse_unknown(&Self::SPEC, list)?;
                    Ok($name {
                        $($field: match $crate::op::read_field::<$ty>(&Self::SPEC, list, stringify!($field))? {
                            Some(value) => value,
                            None => $crate::op::ops!(@default $name $field $(= $default)?),
                        }),*
                    })
                }
            }

            impl From<$name> for Op {
                fn from(op: $name) -> Op {
                    Op::$name(op)
                }
            }
        )*

        /// An operator with its attributes.
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
pub(crate) use ops;

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
