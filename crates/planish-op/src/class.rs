//! What the rows of the table say of operators besides their attributes: how stages that need not know an operator
//! itself tell what to do with it.

use planish_tensor::DType;

/// What kind of operator it is. A stage that has one answer for all operators of a class matches on this, without a
/// `_` arm, and names the exceptions before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Each element of the one output is made from one element of each input, broadcast to it ([`crate::Pointwise`]).
    Pointwise(Form),
    /// Over the axes that input 1 lists ([`crate::Reduce`]).
    Reduction,
    /// The outputs are elements of the inputs, whichever these are.
    Movement,
    /// The outputs are elements of the first input, taken by indices or numbers beside it.
    Indexing,
    /// Elements are made, moved or searched by rules of the operator's own, and nothing is computed.
    Data,
    /// Sequences and optionals.
    Sequence,
    /// From or to integers with a scale.
    Quantization,
    /// Products of matrices.
    Product,
    Convolution,
    /// Windows of the spatial axes.
    Pool,
    /// All of the spatial axes at once.
    GlobalPool,
    /// Lines along one axis: softmax, running sums, the place of the largest element.
    Line,
    Norm,
    Loss,
    Recurrent,
    /// Attention and what prepares its operands.
    Attention,
    /// Elements between those of an image.
    Resampling,
    /// Windows of signals, made from their size.
    Window,
    /// Random numbers, or what may be.
    Random,
    /// Work that the data decides, or that has no plain count: fast transforms, elimination, suppression.
    Other,
    /// The bodies belong to the node.
    Control,
    /// A plugin's.
    Custom,
}

/// How a pointwise operator reads its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One operand; further inputs are scalars. The output is like the operand, but for Cast.
    Unary,
    /// One operand, the output of truth values.
    Predicate,
    /// Two operands.
    Binary,
    /// Two operands, the output of truth values.
    Comparison,
    /// Any number of operands.
    Variadic,
    /// A condition and two operands.
    Select,
}

/// Element types that a pointwise operator takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kinds {
    /// Floating point of 16 bits and more.
    Real,
    /// Floating point of any width.
    AnyFloat,
    /// Real and integers of whole bytes.
    Number,
    /// Numbers without the unsigned integers.
    Signed,
    /// Integers of whole bytes.
    Int,
    /// Unsigned integers of whole bytes.
    Unsigned,
    /// Numbers and truth values.
    NumberOrBool,
    Bool,
    Any,
}

impl Kinds {
    pub fn contain(self, dtype: DType) -> bool {
        let real = dtype.is_wide_float();
        let int = dtype.is_whole_int();
        match self {
            Kinds::Real => real,
            Kinds::AnyFloat => dtype.is_float(),
            Kinds::Number => real || int,
            Kinds::Signed => real || (int && dtype.is_signed_int()),
            Kinds::Int => int,
            Kinds::Unsigned => int && !dtype.is_signed_int(),
            Kinds::NumberOrBool => real || int || dtype == DType::Bool,
            Kinds::Bool => dtype == DType::Bool,
            Kinds::Any => true,
        }
    }
}

/// When an operator is computed in f16 or bf16, if that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lowering {
    /// Wherever it stands: its kernels sum and divide in f32 inside.
    Always,
    /// Where all of its operands are low or come from outside.
    Among,
    /// It leaves the range of f16, adds up many values, or makes numbers from nothing.
    Never,
}

/// How much a pointwise operator rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// Not at all: the result is an operand, but for its sign.
    Exact,
    /// The result is a rounding away from exact.
    Once,
    /// As a function that kernels approximate, or a quotient; also where the self-check claims nothing closer.
    Function,
}

/// What a reduction makes of the elements of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduction {
    L1,
    L2,
    LogSum,
    LogSumExp,
    Max,
    Mean,
    Min,
    Prod,
    Sum,
    SumSquare,
}

/// One of the `Reduce*` operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reduce {
    pub by: Reduction,
    /// No axes mean none; otherwise they mean all.
    pub noop_with_empty_axes: bool,
    /// The axes stay, with size 1.
    pub keepdims: bool,
}

#[cfg(test)]
mod tests {
    use crate::*;

    fn op(name: &str, list: &[(String, Attribute)]) -> Op {
        Op::from_attributes(name, list).unwrap()
    }

    #[test]
    fn a_few_counts_are_the_schemas() {
        let of = |name: &str, list: &[(String, Attribute)]| op(name, list).max_inputs();
        assert_eq!(of("Relu", &[]), Some(1));
        assert_eq!(of("Gemm", &[]), Some(3));
        assert_eq!(of("Slice", &[]), Some(5));
        assert_eq!(of("Attention", &[]), Some(7));
        assert_eq!(of("ReduceSum", &[]), Some(2));
        assert_eq!(of("RandomNormal", &[("shape".to_string(), Attribute::Ints(vec![1]))]), Some(0));
        assert_eq!(of("Concat", &[("axis".to_string(), Attribute::Int(0))]), None);
    }

    #[test]
    fn forms_agree_with_the_number_of_inputs() {
        for spec in Op::SPECS {
            let Class::Pointwise(form) = spec.class else { continue };
            let fits = match (form, spec.max_inputs) {
                // The bounds of Clip are scalars.
                (Form::Unary, Some(most)) => most == 1 || spec.name == "Clip",
                (Form::Predicate, most) => most == Some(1),
                (Form::Binary | Form::Comparison, most) => most == Some(2),
                (Form::Select, most) => most == Some(3),
                (Form::Variadic, most) => most.is_none(),
                (Form::Unary, None) => false,
            };
            assert!(fits, "{} is {form:?} and takes {:?}", spec.name, spec.max_inputs);
        }
    }

    #[test]
    fn views_are_of_their_classes() {
        let reduce =
            op("ReduceMean", &[("keepdims".to_string(), Attribute::Bool(false))]).as_reduce().unwrap();
        assert_eq!(reduce, Reduce { by: Reduction::Mean, noop_with_empty_axes: false, keepdims: false });
        let add = op("Add", &[]);
        assert_eq!(add.as_pointwise(), Some(Pointwise::Add(&Add {})));
        assert_eq!((add.class(), add.lowering()), (Class::Pointwise(Form::Binary), Lowering::Among));
        assert!(add.as_reduce().is_none() && op("MatMul", &[]).as_pointwise().is_none());
    }
}
