//! The layers that move elements, change shapes and types, and reduce axes.

use planish_op as op;
use planish_op::{Op, PadMode, ResizeAspectPolicy, ResizeCoordinates, ResizeMode, ResizeNearest};
use planish_tensor::{DType, Tensor};

use super::{NetworkBuilder, Operand, Wire};
use crate::Error;

impl NetworkBuilder {
    /// A layer whose parameters are a vector of integers.
    fn with_ints(&mut self, op: Op, x: Wire, role: &str, ints: &[i64]) -> Result<Wire, Error> {
        let name = self.layer_name(op.name())?;
        let ints = self.operand(Tensor::vector(ints.to_vec()).into(), &name, role, DType::I64)?;
        self.one_named(&name, op, &[Some(x), Some(ints)])
    }

    /// The same elements under other sizes: 0 keeps the size at its place, one -1 is what is left.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder};
    ///
    /// let mut net = NetworkBuilder::new("shapes");
    /// let x = net.input("x", DType::F32, "batch,8,4,4")?;
    /// let y = net.reshape(x, &[0, 2, -1])?;
    /// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,2,64]");
    /// let y = net.unsqueeze(y, &[0])?;
    /// let y = net.squeeze(y, &[0])?;
    /// let y = net.transpose(y, &[0, 2, 1])?;
    /// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,64,2]");
    /// let parts = net.split(y, &[16, 48], 1)?;
    /// let y = net.concat(&[parts[1], parts[0]], 1)?;
    /// let every_second = net.slice_by(y, 1, 0, 64, 2)?;
    /// let one = net.slice(every_second, 2, 0, 1)?;
    /// let y = net.expand(one, &[1, 1, 5])?;
    /// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,32,5]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn reshape(&mut self, x: Wire, shape: &[i64]) -> Result<Wire, Error> {
        self.with_ints(op::Reshape { allowzero: false }.into(), x, "shape", shape)
    }

    /// A matrix: the axes before `axis` together, and those from it on.
    pub fn flatten(&mut self, x: Wire, axis: i64) -> Result<Wire, Error> {
        self.op(op::Flatten { axis }, &[x])
    }

    /// Takes axes of size 1 away.
    /// [`NetworkBuilder::reshape`] has an example.
    pub fn squeeze(&mut self, x: Wire, axes: &[i64]) -> Result<Wire, Error> {
        self.with_ints(op::Squeeze {}.into(), x, "axes", axes)
    }

    /// Puts axes of size 1 in.
    /// [`NetworkBuilder::reshape`] has an example.
    pub fn unsqueeze(&mut self, x: Wire, axes: &[i64]) -> Result<Wire, Error> {
        self.with_ints(op::Unsqueeze {}.into(), x, "axes", axes)
    }

    /// Axes in another order: axis `i` of the output is `order[i]` of the input.
    /// [`NetworkBuilder::reshape`] has an example.
    pub fn transpose(&mut self, x: Wire, order: &[i64]) -> Result<Wire, Error> {
        self.op(op::Transpose { perm: Some(order.to_vec()) }, &[x])
    }

    /// Repeats axes of size 1 up to this shape.
    /// [`NetworkBuilder::reshape`] has an example.
    pub fn expand(&mut self, x: Wire, shape: &[i64]) -> Result<Wire, Error> {
        self.with_ints(op::Expand {}.into(), x, "shape", shape)
    }

    /// Values one after the other along an axis.
    /// [`NetworkBuilder::reshape`] has an example.
    pub fn concat(&mut self, parts: &[Wire], axis: i64) -> Result<Wire, Error> {
        self.op(op::Concat { axis }, parts)
    }

    /// Parts of these sizes along an axis.
    /// [`NetworkBuilder::reshape`] has an example.
    pub fn split(&mut self, x: Wire, sizes: &[i64], axis: i64) -> Result<Vec<Wire>, Error> {
        let op = op::Split { num_outputs: None, axis };
        let name = self.layer_name("Split")?;
        let list = self.operand(Tensor::vector(sizes.to_vec()).into(), &name, "sizes", DType::I64)?;
        self.layer(&name, op.into(), &[Some(x), Some(list)], sizes.len())
    }

    /// Elements `start..end` of an axis; negative numbers count from its end.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder};
    ///
    /// let mut net = NetworkBuilder::new("first token");
    /// let x = net.input("x", DType::F32, "batch,128,384")?;
    /// let first = net.slice(x, 1, 0, 1)?;
    /// assert_eq!(net.type_of(first)?.to_string(), "f32[batch,1,384]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn slice(&mut self, x: Wire, axis: i64, start: i64, end: i64) -> Result<Wire, Error> {
        self.slice_by(x, axis, start, end, 1)
    }

    /// Every `step`th element of `start..end` of an axis; a negative step goes backwards.
    /// [`NetworkBuilder::reshape`] has an example.
    pub fn slice_by(&mut self, x: Wire, axis: i64, start: i64, end: i64, step: i64) -> Result<Wire, Error> {
        let name = self.layer_name("Slice")?;
        let mut inputs = vec![Some(x)];
        for (role, number) in [("start", start), ("end", end), ("axis", axis), ("step", step)] {
            let number = Tensor::vector(vec![number]);
            inputs.push(Some(self.operand(number.into(), &name, role, DType::I64)?));
        }
        self.one_named(&name, op::Slice {}.into(), &inputs)
    }

    /// A number before each axis, then after each.
    pub fn pad(&mut self, x: Wire, pads: &[i64], value: f32) -> Result<Wire, Error> {
        let like = self.type_beside(&x.into()).unwrap_or(DType::F32);
        let name = self.layer_name("Pad")?;
        let pads = self.operand(Tensor::vector(pads.to_vec()).into(), &name, "pads", DType::I64)?;
        let value = self.operand(value.into(), &name, "value", like)?;
        let op = op::Pad { mode: PadMode::Constant };
        self.one_named(&name, op.into(), &[Some(x), Some(pads), Some(value)])
    }

    /// Slices along an axis by indices: with axis 0 the rows of an embedding.
    pub fn gather(
        &mut self,
        table: impl Into<Operand>,
        indices: impl Into<Operand>,
        axis: i64,
    ) -> Result<Wire, Error> {
        let name = self.layer_name("Gather")?;
        let table = self.operand(table.into(), &name, "table", DType::F32)?;
        let indices = self.operand(indices.into(), &name, "indices", DType::I64)?;
        self.one_named(&name, op::Gather { axis }.into(), &[Some(table), Some(indices)])
    }

    /// Elements in another type.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder};
    ///
    /// let mut net = NetworkBuilder::new("narrow");
    /// let x = net.input("x", DType::I64, "n")?;
    /// let y = net.cast(x, DType::F16)?;
    /// assert_eq!(net.type_of(y)?.to_string(), "f16[n]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn cast(&mut self, x: Wire, to: DType) -> Result<Wire, Error> {
        self.op(op::Cast { round_mode: planish_op::CastRounding::Up, saturate: true, to }, &[x])
    }

    /// Resizes by a factor for each axis, as PyTorch's `interpolate` without aligned corners.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder, op::ResizeMode};
    ///
    /// let mut net = NetworkBuilder::new("larger");
    /// let x = net.input("x", DType::F32, "batch,3,8,8")?;
    /// let twice = net.resize(x, &[1.0, 1.0, 2.0, 2.0], ResizeMode::Nearest)?;
    /// assert_eq!(net.type_of(twice)?.to_string(), "f32[batch,3,16,16]");
    /// let one = net.slice(twice, 0, 0, 1)?;
    /// let fixed = net.resize_to(one, &[1, 3, 20, 20], ResizeMode::Linear)?;
    /// assert_eq!(net.type_of(fixed)?.to_string(), "f32[1,3,20,20]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn resize(&mut self, x: Wire, factors: &[f32], mode: ResizeMode) -> Result<Wire, Error> {
        let name = self.layer_name("Resize")?;
        let factors = self.operand(Tensor::vector(factors.to_vec()).into(), &name, "factors", DType::F32)?;
        self.one_named(&name, resize(mode).into(), &[Some(x), None, Some(factors)])
    }

    /// Resizes to a size for each axis.
    /// [`NetworkBuilder::resize`] has an example.
    pub fn resize_to(&mut self, x: Wire, sizes: &[i64], mode: ResizeMode) -> Result<Wire, Error> {
        let name = self.layer_name("Resize")?;
        let sizes = self.operand(Tensor::vector(sizes.to_vec()).into(), &name, "sizes", DType::I64)?;
        self.one_named(&name, resize(mode).into(), &[Some(x), None, None, Some(sizes)])
    }

    /// Resizes some axes to sizes, as the operator says.
    pub(crate) fn resize_by(&mut self, op: op::Resize, x: Wire, sizes: &[i64]) -> Result<Wire, Error> {
        let name = self.layer_name("Resize")?;
        let sizes = self.operand(Tensor::vector(sizes.to_vec()).into(), &name, "sizes", DType::I64)?;
        self.one_named(&name, op.into(), &[Some(x), None, None, Some(sizes)])
    }

    /// The middle of some axes, or what there is in the middle of zeros.
    pub(crate) fn center_crop_pad(&mut self, x: Wire, axes: Vec<i64>, sizes: &[i64]) -> Result<Wire, Error> {
        self.with_ints(op::CenterCropPad { axes: Some(axes) }.into(), x, "sizes", sizes)
    }

    /// The mean over axes, which stay with size 1 if `keep`.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder};
    ///
    /// let mut net = NetworkBuilder::new("reductions");
    /// let x = net.input("x", DType::F32, "batch,8,4,4")?;
    /// let mean = net.reduce_mean(x, &[2, 3], false)?;
    /// assert_eq!(net.type_of(mean)?.to_string(), "f32[batch,8]");
    /// let sum = net.reduce_sum(x, &[1], true)?;
    /// let most = net.reduce_max(sum, &[1], true)?;
    /// assert_eq!(net.type_of(most)?.to_string(), "f32[batch,1,4,4]");
    /// let class = net.arg_max(mean, 1, false)?;
    /// assert_eq!(net.type_of(class)?.to_string(), "i64[batch]");
    /// let (scores, places) = net.top_k(mean, 3, 1)?;
    /// assert_eq!(net.type_of(scores)?.to_string(), "f32[batch,3]");
    /// assert_eq!(net.type_of(places)?.to_string(), "i64[batch,3]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn reduce_mean(&mut self, x: Wire, axes: &[i64], keep: bool) -> Result<Wire, Error> {
        let op = op::ReduceMean { noop_with_empty_axes: false, keepdims: keep };
        self.with_ints(op.into(), x, "axes", axes)
    }

    /// The sum over axes, which stay with size 1 if `keep`.
    /// [`NetworkBuilder::reduce_mean`] has an example.
    pub fn reduce_sum(&mut self, x: Wire, axes: &[i64], keep: bool) -> Result<Wire, Error> {
        let op = op::ReduceSum { noop_with_empty_axes: false, keepdims: keep };
        self.with_ints(op.into(), x, "axes", axes)
    }

    /// The largest over axes, which stay with size 1 if `keep`.
    /// [`NetworkBuilder::reduce_mean`] has an example.
    pub fn reduce_max(&mut self, x: Wire, axes: &[i64], keep: bool) -> Result<Wire, Error> {
        let op = op::ReduceMax { noop_with_empty_axes: false, keepdims: keep };
        self.with_ints(op.into(), x, "axes", axes)
    }

    /// Where along an axis the largest is, which stays with size 1 if `keep`.
    /// [`NetworkBuilder::reduce_mean`] has an example.
    pub fn arg_max(&mut self, x: Wire, axis: i64, keep: bool) -> Result<Wire, Error> {
        self.op(op::ArgMax { select_last_index: false, keepdims: keep, axis }, &[x])
    }

    /// The `k` largest along an axis, largest first, and where they are.
    /// [`NetworkBuilder::reduce_mean`] has an example.
    pub fn top_k(&mut self, x: Wire, k: i64, axis: i64) -> Result<(Wire, Wire), Error> {
        let name = self.layer_name("TopK")?;
        let k = self.operand(Tensor::vector(vec![k]).into(), &name, "k", DType::I64)?;
        let op = op::TopK { sorted: true, largest: true, axis };
        let both = self.layer(&name, op.into(), &[Some(x), Some(k)], 2)?;
        Ok((both[0], both[1]))
    }

    /// The sizes of a value, as a vector of integers.
    pub fn shape(&mut self, x: Wire) -> Result<Wire, Error> {
        self.op(op::Shape { end: None, start: 0 }, &[x])
    }
}

fn resize(mode: ResizeMode) -> op::Resize {
    op::Resize {
        keep_aspect_ratio_policy: ResizeAspectPolicy::Stretch,
        axes: None,
        antialias: false,
        extrapolation_value: 0.0,
        exclude_outside: false,
        nearest_mode: match mode {
            ResizeMode::Nearest => ResizeNearest::Floor,
            ResizeMode::Linear | ResizeMode::Cubic => ResizeNearest::RoundPreferFloor,
        },
        coordinate_transformation_mode: match mode {
            ResizeMode::Nearest => ResizeCoordinates::Asymmetric,
            ResizeMode::Linear | ResizeMode::Cubic => ResizeCoordinates::HalfPixel,
        },
        cubic_coeff_a: -0.75,
        mode,
    }
}
