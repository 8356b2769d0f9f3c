//! Attributes as data: what an operator's fields look like to the importer, the text form and the plan file.

use std::fmt;

use planish_tensor::{DType, Tensor};

use crate::ValueType;

/// The value of one attribute. Floats are equal if their bits are.
#[derive(Clone, Debug)]
pub enum Attribute {
    Bool(bool),
    Int(i64),
    Float(f32),
    Str(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strs(Vec<String>),
    DType(DType),
    Tensor(Tensor),
    Type(ValueType),
}

impl PartialEq for Attribute {
    fn eq(&self, other: &Attribute) -> bool {
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        match (self, other) {
            (Attribute::Bool(a), Attribute::Bool(b)) => a == b,
            (Attribute::Int(a), Attribute::Int(b)) => a == b,
            (Attribute::Float(a), Attribute::Float(b)) => a.to_bits() == b.to_bits(),
            (Attribute::Str(a), Attribute::Str(b)) => a == b,
            (Attribute::Ints(a), Attribute::Ints(b)) => a == b,
            (Attribute::Floats(a), Attribute::Floats(b)) => bits(a) == bits(b),
            (Attribute::Strs(a), Attribute::Strs(b)) => a == b,
            (Attribute::DType(a), Attribute::DType(b)) => a == b,
            (Attribute::Tensor(a), Attribute::Tensor(b)) => a == b,
            (Attribute::Type(a), Attribute::Type(b)) => a == b,
            _ => false,
        }
    }
}

/// The kind of value that a field takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttributeKind {
    Bool,
    Int,
    Float,
    Str,
    Ints,
    Floats,
    Strs,
    DType,
    Tensor,
    Type,
}

impl AttributeKind {
    /// Every kind, in declaration order.
    pub const ALL: [AttributeKind; 10] = [
        AttributeKind::Bool,
        AttributeKind::Int,
        AttributeKind::Float,
        AttributeKind::Str,
        AttributeKind::Ints,
        AttributeKind::Floats,
        AttributeKind::Strs,
        AttributeKind::DType,
        AttributeKind::Tensor,
        AttributeKind::Type,
    ];

    /// The word for this kind in the text form.
    pub fn name(self) -> &'static str {
        match self {
            AttributeKind::Bool => "bool",
            AttributeKind::Int => "int",
            AttributeKind::Float => "float",
            AttributeKind::Str => "str",
            AttributeKind::Ints => "ints",
            AttributeKind::Floats => "floats",
            AttributeKind::Strs => "strs",
            AttributeKind::DType => "dtype",
            AttributeKind::Tensor => "tensor",
            AttributeKind::Type => "type",
        }
    }
}

impl Attribute {
    pub fn kind(&self) -> AttributeKind {
        match self {
            Attribute::Bool(_) => AttributeKind::Bool,
            Attribute::Int(_) => AttributeKind::Int,
            Attribute::Float(_) => AttributeKind::Float,
            Attribute::Str(_) => AttributeKind::Str,
            Attribute::Ints(_) => AttributeKind::Ints,
            Attribute::Floats(_) => AttributeKind::Floats,
            Attribute::Strs(_) => AttributeKind::Strs,
            Attribute::DType(_) => AttributeKind::DType,
            Attribute::Tensor(_) => AttributeKind::Tensor,
            Attribute::Type(_) => AttributeKind::Type,
        }
    }
}

/// One field of an operator's attribute struct.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FieldSpec {
    pub name: &'static str,
    pub kind: AttributeKind,
    /// The words that a `Str` field accepts; empty if any text will do.
    pub words: &'static [&'static str],
    pub required: bool,
}

/// A Rust type that an attribute field may have.
pub trait AttributeType: Sized {
    const KIND: AttributeKind;
    const WORDS: &'static [&'static str] = &[];

    /// `None` if the field is absent (an `Option` that is `None`).
    fn to_attribute(&self) -> Option<Attribute>;

    /// `None` if the attribute is of another kind or not one of the accepted words.
    fn from_attribute(attribute: &Attribute) -> Option<Self>;
}

macro_rules! plain_attribute_types {
    ($($rust:ty => $kind:ident),* $(,)?) => {
        $(impl AttributeType for $rust {
            const KIND: AttributeKind = AttributeKind::$kind;

            fn to_attribute(&self) -> Option<Attribute> {
                Some(Attribute::$kind(self.clone()))
            }

            fn from_attribute(attribute: &Attribute) -> Option<Self> {
                match attribute {
                    Attribute::$kind(value) => Some(value.clone()),
                    _ => None,
                }
            }
        })*
    };
}

plain_attribute_types! {
    bool => Bool, i64 => Int, f32 => Float, String => Str, Vec<i64> => Ints, Vec<f32> => Floats,
    Vec<String> => Strs, DType => DType, Tensor => Tensor, ValueType => Type,
}

impl<T: AttributeType> AttributeType for Option<T> {
    const KIND: AttributeKind = T::KIND;
    const WORDS: &'static [&'static str] = T::WORDS;

    fn to_attribute(&self) -> Option<Attribute> {
        self.as_ref().and_then(T::to_attribute)
    }

    fn from_attribute(attribute: &Attribute) -> Option<Self> {
        T::from_attribute(attribute).map(Some)
    }
}

/// An enum whose variants are words of an ONNX string attribute.
macro_rules! word_attribute {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$vmeta])* $variant),*
        }

        impl $name {
            /// The word that ONNX uses.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word),*
                }
            }
        }

        impl AttributeType for $name {
            const KIND: AttributeKind = AttributeKind::Str;
            const WORDS: &'static [&'static str] = &[$($word),*];

            fn to_attribute(&self) -> Option<Attribute> {
                Some(Attribute::Str(self.word().to_string()))
            }

            fn from_attribute(attribute: &Attribute) -> Option<Self> {
                match attribute {
                    Attribute::Str(word) => match word.as_str() {
                        $($word => Some($name::$variant),)*
                        _ => None,
                    },
                    _ => None,
                }
            }
        }
    };
}

word_attribute! {
    /// How convolutions and pools pad when `pads` is not given.
    AutoPad { NotSet = "NOTSET", SameUpper = "SAME_UPPER", SameLower = "SAME_LOWER", Valid = "VALID" }
}
word_attribute! {
    BitShiftDirection { Left = "LEFT", Right = "RIGHT" }
}
word_attribute! {
    /// The order in which depth is taken apart.
    DepthToSpaceMode { Dcr = "DCR", Crd = "CRD" }
}
word_attribute! {
    GeluApproximation { None = "none", Tanh = "tanh" }
}
word_attribute! {
    GridSampleMode { Linear = "linear", Nearest = "nearest", Cubic = "cubic" }
}
word_attribute! {
    GridSamplePadding { Zeros = "zeros", Border = "border", Reflection = "reflection" }
}
word_attribute! {
    PadMode { Constant = "constant", Reflect = "reflect", Edge = "edge", Wrap = "wrap" }
}
word_attribute! {
    RecurrentDirection { Forward = "forward", Reverse = "reverse", Bidirectional = "bidirectional" }
}
word_attribute! {
    ResizeMode { Nearest = "nearest", Linear = "linear", Cubic = "cubic" }
}
word_attribute! {
    ResizeCoordinates {
        HalfPixel = "half_pixel",
        HalfPixelSymmetric = "half_pixel_symmetric",
        PytorchHalfPixel = "pytorch_half_pixel",
        AlignCorners = "align_corners",
        Asymmetric = "asymmetric",
        TfHalfPixelForNn = "tf_half_pixel_for_nn",
        TfCropAndResize = "tf_crop_and_resize",
    }
}
word_attribute! {
    ResizeNearest {
        RoundPreferFloor = "round_prefer_floor",
        RoundPreferCeil = "round_prefer_ceil",
        Floor = "floor",
        Ceil = "ceil",
        /// What the first Resize (opset 10) and Upsample did: floor when enlarging, ceil when shrinking.
        Simple = "simple",
    }
}
word_attribute! {
    ResizeAspectPolicy { Stretch = "stretch", NotLarger = "not_larger", NotSmaller = "not_smaller" }
}
word_attribute! {
    RoiAlignMode { Avg = "avg", Max = "max" }
}
word_attribute! {
    RoiAlignCoordinates { HalfPixel = "half_pixel", OutputHalfPixel = "output_half_pixel" }
}
word_attribute! {
    CropAndResizeMode { Bilinear = "bilinear", Nearest = "nearest" }
}
word_attribute! {
    ScatterReduction { None = "none", Add = "add", Mul = "mul", Max = "max", Min = "min" }
}
word_attribute! {
    LossReduction { None = "none", Mean = "mean", Sum = "sum" }
}
word_attribute! {
    CastRounding { Up = "up", Down = "down", Nearest = "nearest" }
}
word_attribute! {
    TensorScatterMode { Linear = "linear", Circular = "circular" }
}
word_attribute! {
    CausalConvActivation { None = "none", Silu = "silu", Swish = "swish" }
}
word_attribute! {
    LinearAttentionRule { Linear = "linear", Gated = "gated", Delta = "delta", GatedDelta = "gated_delta" }
}

impl LinearAttentionRule {
    /// Whether the state decays before it is written to, which takes a gate.
    pub fn decays(self) -> bool {
        matches!(self, LinearAttentionRule::Gated | LinearAttentionRule::GatedDelta)
    }

    /// Whether only the difference to what the state has already is written, which takes a rate.
    pub fn corrects(self) -> bool {
        matches!(self, LinearAttentionRule::Delta | LinearAttentionRule::GatedDelta)
    }
}

word_attribute! {
    TfIdfMode { Tf = "TF", Idf = "IDF", TfIdf = "TFIDF" }
}

/// Why attributes do not make an operator.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum AttributeError {
    /// No operator has this name.
    UnknownOp { name: String },
    /// The operator has no such attribute.
    Unknown { op: &'static str, attribute: String },
    /// A required attribute is absent.
    Missing { op: &'static str, attribute: &'static str },
    /// The attribute is of another kind, or not one of the accepted words.
    Wrong { op: &'static str, spec: &'static FieldSpec, found: Attribute },
}

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttributeError::UnknownOp { name } => write!(f, "no operator is called `{name}`"),
            AttributeError::Unknown { op, attribute } => write!(f, "{op} has no attribute `{attribute}`"),
            AttributeError::Missing { op, attribute } => write!(f, "{op} needs the attribute `{attribute}`"),
            AttributeError::Wrong { op, spec, found } => {
                write!(f, "attribute `{}` of {op} cannot be {found:?}; ", spec.name)?;
                if spec.words.is_empty() {
                    write!(f, "it takes a value of kind {:?}", spec.kind)
                } else {
                    write!(f, "it is one of {}", spec.words.join(", "))
                }
            }
        }
    }
}

impl std::error::Error for AttributeError {}
