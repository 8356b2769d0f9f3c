//! The layers that compute: products, pointwise functions, pooling, norms, attention.

use planish_op as op;
use planish_op::{GeluApproximation, Op};
use planish_tensor::DType;

use super::{NetworkBuilder, Operand, Window, Wire};
use crate::Error;

/// An operator of the table that looks through a window: what all of them have, and what they have of their own.
macro_rules! windowed {
    ($op:ident { $($own:tt)* }, $window:expr, $n_axes:expr) => {
        op::$op {
            dilations: $window.dilations_over($n_axes),
            pads: $window.pads_over($n_axes),
            auto_pad: $window.auto_pad(),
            strides: $window.strides_over($n_axes),
            $($own)*
        }
    };
}

/// How attention is divided into heads and what it may look at.
///
/// ```
/// use planish::{DType, Heads, NetworkBuilder};
///
/// let mut net = NetworkBuilder::new("decoder");
/// let q = net.input("q", DType::F32, "batch,n,64")?;
/// let k = net.input("k", DType::F32, "batch,n,16")?;
/// let v = net.input("v", DType::F32, "batch,n,16")?;
/// let heads = Heads::of(8).keys(2).causal().scale(0.25);               // grouped queries: 8 heads of 8, 2 of keys
/// let y = net.attention(q, k, v, None, heads)?;
/// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,n,64]");
///
/// let split = net.input("split", DType::F32, "batch,8,n,8")?;
/// let y = net.attention(split, split, split, None, Heads::given())?;
/// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,8,n,8]");
/// # Ok::<(), planish::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Heads {
    queries: Option<i64>,
    keys: Option<i64>,
    causal: bool,
    scale: Option<f32>,
}

impl Heads {
    /// As the operands have them: all of rank 4, `[batch, heads, length, size]`.
    pub fn given() -> Heads {
        Heads::default()
    }

    /// So many heads in operands of rank 3, `[batch, length, heads * size]`.
    pub fn of(n_heads: i64) -> Heads {
        Heads { queries: Some(n_heads), keys: Some(n_heads), ..Heads::default() }
    }

    /// Fewer heads of keys and values than of queries.
    pub fn keys(self, n_heads: i64) -> Heads {
        Heads { keys: Some(n_heads), ..self }
    }

    /// Every position looks at itself and those before it only.
    pub fn causal(self) -> Heads {
        Heads { causal: true, ..self }
    }

    /// What products of queries and keys are scaled by, if not by one over the root of the head's size.
    pub fn scale(self, scale: f32) -> Heads {
        Heads { scale: Some(scale), ..self }
    }
}

/// Methods for operators of one input without attributes.
macro_rules! unary {
    ($($(#[$doc:meta])* $method:ident: $op:ident),* $(,)?) => {
        impl NetworkBuilder {
            $($(#[$doc])*
            pub fn $method(&mut self, x: Wire) -> Result<Wire, Error> {
                self.one(op::$op {}.into(), &[Some(x)])
            })*
        }
    };
}

unary! {
    /// max(x, 0).
    relu: Relu,
    /// 1 / (1 + exp(-x)).
    sigmoid: Sigmoid,
    /// The hyperbolic tangent of each element.
    tanh: Tanh,
    /// e to the power of each element.
    exp: Exp,
    /// The natural logarithm of each element.
    log: Log,
    /// The square root of each element.
    sqrt: Sqrt,
    /// The absolute value of each element.
    abs: Abs,
    /// -x.
    neg: Neg,
    /// The error function of each element.
    erf: Erf,
    /// The largest integer that is not above each element.
    floor: Floor,
    /// The smallest integer that is not below each element.
    ceil: Ceil,
    /// The nearest integer, the even one of two.
    round: Round,
    /// The sine of each element.
    sin: Sin,
    /// The cosine of each element.
    cos: Cos,
    /// 1 / x.
    reciprocal: Reciprocal,
    /// log(1 + exp(x)).
    softplus: Softplus,
    /// x tanh(softplus(x)).
    mish: Mish,
    /// x max(0, min(1, x / 6 + 1/2)).
    hard_swish: HardSwish,
    /// Logical not.
    not: Not,
    /// The mean over all spatial axes, which stay with size 1.
    global_average_pool: GlobalAveragePool,
    /// The largest over all spatial axes, which stay with size 1.
    global_max_pool: GlobalMaxPool,
}

/// Methods for operators of two operands, one of which may be a number.
macro_rules! binary {
    ($($(#[$doc:meta])* $method:ident: $op:ident),* $(,)?) => {
        impl NetworkBuilder {
            $($(#[$doc])*
            pub fn $method(&mut self, a: impl Into<Operand>, b: impl Into<Operand>) -> Result<Wire, Error> {
                self.pair(op::$op {}.into(), a.into(), b.into())
            })*
        }
    };
}

binary! {
    /// a + b, sizes of 1 repeated.
    add: Add,
    /// a - b, sizes of 1 repeated.
    sub: Sub,
    /// a b, element by element, sizes of 1 repeated.
    mul: Mul,
    /// a / b, sizes of 1 repeated.
    div: Div,
    /// a to the power of b, sizes of 1 repeated.
    pow: Pow,
    /// The smaller of both.
    min: Min,
    /// The larger of both.
    max: Max,
    /// Whether a is b.
    equal: Equal,
    /// Whether a > b.
    greater: Greater,
    /// Whether a < b.
    less: Less,
    /// Whether a and b hold.
    and: And,
    /// Whether a or b holds.
    or: Or,
    /// Products of matrices in the last two axes, the axes before repeated where they are 1.
    matmul: MatMul,
}

impl NetworkBuilder {
    fn pair(&mut self, op: Op, a: Operand, b: Operand) -> Result<Wire, Error> {
        let like = self.type_beside(&a).or(self.type_beside(&b)).unwrap_or(DType::F32);
        let name = self.layer_name(op.name())?;
        let a = self.operand(a, &name, "a", like)?;
        let b = self.operand(b, &name, "b", like)?;
        self.one_named(&name, op, &[Some(a), Some(b)])
    }

    /// An operand that may be left out.
    pub(super) fn optional(
        &mut self,
        operand: Option<Operand>,
        layer: &str,
        role: &str,
        like: DType,
    ) -> Result<Option<Wire>, Error> {
        operand.map(|operand| self.operand(operand, layer, role, like)).transpose()
    }

    pub(super) fn float_type(&self, x: Wire) -> DType {
        self.type_beside(&Operand::Wire(x)).unwrap_or(DType::F32)
    }

    /// The number of spatial axes of `[batch, channels, space...]`.
    fn n_spatial(&self, x: Wire) -> Result<usize, Error> {
        Ok(self.shape_of(x)?.map_or(0, |shape| shape.rank().saturating_sub(2)))
    }

    /// A convolution in 1, 2 or 3 dimensions. Weights are `[filters, channels / groups, kernel...]`.
    pub fn conv(
        &mut self,
        x: Wire,
        weight: impl Into<Operand>,
        bias: Option<Operand>,
        window: Window,
    ) -> Result<Wire, Error> {
        let n_axes = self.n_spatial(x)?;
        let (group, kernel_shape) = (window.n_groups(), window.known_kernel());
        let op = windowed!(Conv { group, kernel_shape }, window, n_axes);
        self.weighted(op, x, weight.into(), bias)
    }

    /// A layer with a weight and maybe a bias, called after its operator.
    fn weighted(
        &mut self,
        op: impl Into<Op>,
        x: Wire,
        weight: Operand,
        bias: Option<Operand>,
    ) -> Result<Wire, Error> {
        let (op, like) = (op.into(), self.float_type(x));
        let name = self.layer_name(op.name())?;
        let weight = self.operand(weight, &name, "weight", like)?;
        let bias = self.optional(bias, &name, "bias", like)?;
        self.one_named(&name, op, &[Some(x), Some(weight), bias])
    }

    /// A transposed convolution. Weights are `[channels, filters / groups, kernel...]`.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder, Tensor, Window};
    ///
    /// let mut net = NetworkBuilder::new("upsample");
    /// let x = net.input("x", DType::F32, "batch,8,16,16")?;
    /// let weight = Tensor::new(&[8, 4, 2, 2], vec![0.1f32; 128])?;         // from 8 channels to 4
    /// let y = net.conv_transpose(x, weight, None, Window::new().stride(2))?;
    /// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,4,32,32]");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn conv_transpose(
        &mut self,
        x: Wire,
        weight: impl Into<Operand>,
        bias: Option<Operand>,
        window: Window,
    ) -> Result<Wire, Error> {
        let n_axes = self.n_spatial(x)?;
        let (group, kernel_shape) = (window.n_groups(), window.known_kernel());
        let op = windowed!(
            ConvTranspose { group, kernel_shape, output_padding: Vec::new(), output_shape: None },
            window,
            n_axes
        );
        self.weighted(op, x, weight.into(), bias)
    }

    /// A linear layer over the last axis. Weights are `[outputs, inputs]`, as PyTorch has them.
    pub fn linear(
        &mut self,
        x: Wire,
        weight: impl Into<Operand>,
        bias: Option<Operand>,
    ) -> Result<Wire, Error> {
        let like = self.float_type(x);
        let is_matrix = self.shape_of(x)?.is_some_and(|shape| shape.rank() == 2);
        if is_matrix {
            let op = op::Gemm { beta: 1.0, trans_b: true, alpha: 1.0, trans_a: false };
            return self.gemm(x, weight, bias, op);
        }
        let name = self.layer_name("MatMul")?;
        let weight = self.operand(weight.into(), &name, "weight", like)?;
        let bias = self.optional(bias, &name, "bias", like)?;
        let turned = op::Transpose { perm: Some(vec![1, 0]) };
        let turned = self.one_named(&format!("{name}.turned"), turned.into(), &[Some(weight)])?;
        let Some(bias) = bias else {
            return self.one_named(&name, op::MatMul {}.into(), &[Some(x), Some(turned)]);
        };
        let product = op::MatMul {}.into();
        let product = self.one_named(&format!("{name}.product"), product, &[Some(x), Some(turned)])?;
        self.one_named(&name, op::Add {}.into(), &[Some(product), Some(bias)])
    }

    /// alpha a b + beta c over matrices, each of a and b transposed if the options say so.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder, Tensor, op};
    ///
    /// let mut net = NetworkBuilder::new("product");
    /// let a = net.input("a", DType::F32, "k,m")?;
    /// let b = net.input("b", DType::F32, "k,n")?;
    /// let options = op::Gemm { alpha: 0.5, beta: 1.0, trans_a: true, trans_b: false };
    /// let y = net.gemm(a, b, Some(1.0.into()), options)?;
    /// assert_eq!(net.type_of(y)?.to_string(), "f32[m,n]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn gemm(
        &mut self,
        a: Wire,
        b: impl Into<Operand>,
        c: Option<Operand>,
        options: op::Gemm,
    ) -> Result<Wire, Error> {
        let like = self.float_type(a);
        let name = self.layer_name("Gemm")?;
        let b = self.operand(b.into(), &name, "weight", like)?;
        let c = self.optional(c, &name, "bias", like)?;
        self.one_named(&name, options.into(), &[Some(a), Some(b), c])
    }

    /// Sums of products by the equation, `bhid,bhjd->bhij` for one.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder};
    ///
    /// let mut net = NetworkBuilder::new("scores");
    /// let q = net.input("q", DType::F32, "batch,heads,n,64")?;
    /// let k = net.input("k", DType::F32, "batch,heads,m,64")?;
    /// let scores = net.einsum("bhnd,bhmd->bhnm", &[q, k])?;
    /// assert_eq!(net.type_of(scores)?.to_string(), "f32[batch,heads,n,m]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn einsum(&mut self, equation: &str, inputs: &[Wire]) -> Result<Wire, Error> {
        self.op(op::Einsum { equation: equation.to_string() }, inputs)
    }

    /// max(x, alpha x), with alpha below 1.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder};
    ///
    /// let mut net = NetworkBuilder::new("activations");
    /// let x = net.input("x", DType::F32, "batch,16")?;
    /// let y = net.leaky_relu(x, 0.01)?;
    /// let y = net.elu(y, 1.0)?;
    /// let y = net.gelu(y)?;
    /// let y = net.silu(y)?;
    /// let y = net.clip(y, 0.0, 6.0)?;
    /// let positive = net.greater(x, 0.0)?;
    /// let y = net.select(positive, y, 0.0)?;
    /// let y = net.log_softmax(y, -1)?;
    /// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,16]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn leaky_relu(&mut self, x: Wire, alpha: f32) -> Result<Wire, Error> {
        self.op(op::LeakyRelu { alpha }, &[x])
    }

    /// x where it is positive, alpha (exp(x) - 1) elsewhere.
    /// [`NetworkBuilder::leaky_relu`] has an example.
    pub fn elu(&mut self, x: Wire, alpha: f32) -> Result<Wire, Error> {
        self.op(op::Elu { alpha }, &[x])
    }

    /// x times the normal distribution's function at x.
    /// [`NetworkBuilder::leaky_relu`] has an example.
    pub fn gelu(&mut self, x: Wire) -> Result<Wire, Error> {
        self.op(op::Gelu { approximate: GeluApproximation::None }, &[x])
    }

    /// x sigmoid(x).
    /// [`NetworkBuilder::leaky_relu`] has an example.
    pub fn silu(&mut self, x: Wire) -> Result<Wire, Error> {
        self.op(op::Swish { alpha: 1.0 }, &[x])
    }

    /// x held between two numbers.
    /// [`NetworkBuilder::leaky_relu`] has an example.
    pub fn clip(&mut self, x: Wire, low: f32, high: f32) -> Result<Wire, Error> {
        let like = self.float_type(x);
        let name = self.layer_name("Clip")?;
        let low = self.operand(low.into(), &name, "low", like)?;
        let high = self.operand(high.into(), &name, "high", like)?;
        self.one_named(&name, op::Clip {}.into(), &[Some(x), Some(low), Some(high)])
    }

    /// `a` where the condition holds, `b` elsewhere.
    /// [`NetworkBuilder::leaky_relu`] has an example.
    pub fn select(
        &mut self,
        condition: Wire,
        a: impl Into<Operand>,
        b: impl Into<Operand>,
    ) -> Result<Wire, Error> {
        let (a, b) = (a.into(), b.into());
        let like = self.type_beside(&a).or(self.type_beside(&b)).unwrap_or(DType::F32);
        let name = self.layer_name("Where")?;
        let a = self.operand(a, &name, "a", like)?;
        let b = self.operand(b, &name, "b", like)?;
        self.one_named(&name, op::Where {}.into(), &[Some(condition), Some(a), Some(b)])
    }

    /// The largest in every window; the window needs a size (`Window::of`).
    pub fn max_pool(&mut self, x: Wire, window: Window) -> Result<Wire, Error> {
        let n_axes = self.n_spatial(x)?;
        let kernel_shape = window.kernel().to_vec();
        let op = windowed!(MaxPool { storage_order: 0, ceil_mode: false, kernel_shape }, window, n_axes);
        self.op(op, &[x])
    }

    /// The mean of every window, padding left out; the window needs a size (`Window::of`).
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder, Window};
    ///
    /// let mut net = NetworkBuilder::new("halve");
    /// let x = net.input("x", DType::F32, "batch,8,16,16")?;
    /// let y = net.average_pool(x, Window::of(&[2, 2]).stride(2))?;
    /// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,8,8,8]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn average_pool(&mut self, x: Wire, window: Window) -> Result<Wire, Error> {
        let n_axes = self.n_spatial(x)?;
        let kernel_shape = window.kernel().to_vec();
        let op = windowed!(
            AveragePool { count_include_pad: false, ceil_mode: false, kernel_shape },
            window,
            n_axes
        );
        self.op(op, &[x])
    }

    /// exp(x) over its sum along an axis.
    pub fn softmax(&mut self, x: Wire, axis: i64) -> Result<Wire, Error> {
        self.op(op::Softmax { axis }, &[x])
    }

    /// The logarithm of `softmax`.
    /// [`NetworkBuilder::leaky_relu`] has an example.
    pub fn log_softmax(&mut self, x: Wire, axis: i64) -> Result<Wire, Error> {
        self.op(op::LogSoftmax { axis }, &[x])
    }

    /// Scaled dot-product attention; the mask is added to the scores, or says where to look if it is of booleans.
    ///
    /// ```
    /// use planish::{DType, Heads, NetworkBuilder};
    ///
    /// let mut net = NetworkBuilder::new("attention");
    /// let x = net.input("x", DType::F32, "batch,seq,64")?;
    /// let y = net.attention(x, x, x, None, Heads::of(4).causal())?;
    /// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,seq,64]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn attention(
        &mut self,
        queries: Wire,
        keys: Wire,
        values: Wire,
        mask: Option<Wire>,
        heads: Heads,
    ) -> Result<Wire, Error> {
        let op = op::Attention {
            qk_matmul_output_mode: 0,
            softcap: 0.0,
            softmax_precision: None,
            kv_num_heads: heads.keys,
            q_num_heads: heads.queries,
            scale: heads.scale,
            is_causal: heads.causal,
        };
        let mut inputs = vec![Some(queries), Some(keys), Some(values)];
        inputs.extend(mask.map(Some));
        self.one(op.into(), &inputs)
    }
}
