//! The instructions of each operator.

use planish_op::{DequantizeLinear, Op, QuantizeLinear};
use planish_tensor::DType;

use super::build::{Builder, Built, refuse};
use super::ops::{Binary, Inst, Kind, Made, Reg, Scalar, Unary};
use crate::RegionNode;
use crate::types::Inner;

impl Builder<'_> {
    /// The first output of a node.
    pub(super) fn node(&mut self, node: &RegionNode) -> Built<Reg> {
        if let Some(op) = node.op.as_pointwise() {
            return self.pointwise(node, Made::of(op));
        }
        match &node.op {
            Op::Identity(_) | Op::Expand(_) => self.operand(node, 0),
            Op::QuantizeLinear(op) if op.block_size == 0 => self.quantize(node, op),
            Op::DequantizeLinear(op) if op.block_size == 0 => self.dequantize(node, op),
            Op::BatchNormalization(op) if !op.training_mode && node.n_outputs == 1 => {
                self.batch_normalization(node, op.epsilon)
            }
            op => match self.main {
                Some(_) => refuse(format!("{} stands after the main node and is not pointwise", op.name())),
                None => refuse(format!("{} is not pointwise", op.name())),
            },
        }
    }

    fn pointwise(&mut self, node: &RegionNode, made: Made) -> Built<Reg> {
        match made {
            Made::Unary(op) => {
                let x = self.operand(node, 0)?;
                self.unary(op, x)
            }
            Made::Binary(op) => {
                let (a, b) = (self.operand(node, 0)?, self.operand(node, 1)?);
                self.binary(op, a, b)
            }
            Made::Swapped(op) => {
                let (a, b) = (self.operand(node, 0)?, self.operand(node, 1)?);
                self.binary(op, b, a)
            }
            Made::Variadic(op) => self.variadic(node, op),
            Made::Mean => {
                let sum = self.variadic(node, Binary::Add)?;
                let count = self.constant(Scalar::F32(node.inputs.len() as f32))?;
                self.binary(Binary::Div, sum, count)
            }
            Made::Relu => self.relu(node),
            Made::Clip => self.clip(node),
            Made::Pow => self.pow(node),
            Made::Select => {
                let condition = self.operand(node, 0)?;
                let (yes, no) = (self.operand(node, 1)?, self.operand(node, 2)?);
                self.select(condition, yes, no)
            }
            Made::Cast(to) => self.cast(node, to),
            Made::Refused => refuse(format!("no instruction for {}", node.op.name())),
        }
    }

    fn variadic(&mut self, node: &RegionNode, op: Binary) -> Built<Reg> {
        let operands: Vec<Reg> =
            (0..node.inputs.len()).map(|idx| self.operand(node, idx)).collect::<Built<_>>()?;
        self.fold(op, &operands)
    }

    fn relu(&mut self, node: &RegionNode) -> Built<Reg> {
        let x = self.operand(node, 0)?;
        match self.kind(x) {
            Kind::F32 => self.clamp(x, Scalar::F32(0.0), Scalar::F32(f32::INFINITY)),
            Kind::I32 => self.clamp(x, Scalar::I32(0), Scalar::I32(i32::MAX)),
            Kind::I64 => self.clamp(x, Scalar::I64(0), Scalar::I64(i64::MAX)),
            kind @ (Kind::U8 | Kind::I8 | Kind::F8 | Kind::Bool) => refuse(format!("Relu of {kind:?}")),
        }
    }

    /// A bound that is absent is the lowest or highest finite number; one that is NaN bounds nothing.
    fn clip(&mut self, node: &RegionNode) -> Built<Reg> {
        let x = self.operand(node, 0)?;
        let (low, high) = match self.kind(x) {
            Kind::F32 => {
                let most = self.largest(node)?;
                (Scalar::F32(-most), Scalar::F32(most))
            }
            Kind::I32 => (Scalar::I32(i32::MIN), Scalar::I32(i32::MAX)),
            Kind::I64 => (Scalar::I64(i64::MIN), Scalar::I64(i64::MAX)),
            kind @ (Kind::U8 | Kind::I8 | Kind::F8 | Kind::Bool) => {
                return refuse(format!("Clip of {kind:?}"));
            }
        };
        let mut bounds = [low, high];
        let mut computed = [None; 2];
        for idx in 0..2 {
            let Some(reference) = node.inputs.get(idx + 1).copied().flatten() else {
                continue;
            };
            let Inner { dims, .. } = self.inner(reference)?;
            if dims.iter().product::<usize>() != 1 {
                return refuse(format!("a bound of Clip has sizes {dims:?}"));
            }
            let reg = self.value(reference)?;
            match self.scalar(reg) {
                Some(Scalar::F32(bound)) if bound.is_nan() => {
                    bounds[idx] = Scalar::F32(if idx == 0 { f32::NEG_INFINITY } else { f32::INFINITY });
                }
                Some(bound) if bound.kind() == self.kind(x) => bounds[idx] = bound,
                _ => computed[idx] = Some(reg),
            }
        }
        let in_order = match (bounds[0], bounds[1]) {
            (Scalar::F32(lo), Scalar::F32(hi)) => lo <= hi,
            (Scalar::I32(lo), Scalar::I32(hi)) => lo <= hi,
            (Scalar::I64(lo), Scalar::I64(hi)) => lo <= hi,
            _ => false,
        };
        if computed == [None; 2] && in_order {
            return self.clamp(x, bounds[0], bounds[1]);
        }
        let low = computed[0].map_or_else(|| self.constant(bounds[0]), Ok)?;
        let high = computed[1].map_or_else(|| self.constant(bounds[1]), Ok)?;
        let below = self.binary(Binary::Less, x, low)?;
        let raised = self.select(below, low, x)?;
        let above = self.binary(Binary::Less, high, raised)?;
        self.select(above, high, raised)
    }

    /// The largest finite number of the type that a node reads first.
    fn largest(&self, node: &RegionNode) -> Built<f32> {
        let Some(x) = node.inputs.first().copied().flatten() else {
            return refuse(format!("{} without an input", node.op.name()));
        };
        Ok(match self.inner(x)?.dtype {
            DType::F16 => 65504.0,
            // The upper half of the bits of f32::MAX.
            DType::BF16 => f32::from_bits(0x7f7f_0000),
            _ => f32::MAX,
        })
    }

    fn cast(&mut self, node: &RegionNode, to: DType) -> Built<Reg> {
        let mut x = self.operand(node, 0)?;
        let Some(kind) = self.kind_of(to) else {
            return refuse(format!("Cast to {to}"));
        };
        let own = self.kind(x);
        let is_known = match (own, kind) {
            (Kind::F32, Kind::U8 | Kind::I8) => false,
            (Kind::F8, kind) => matches!(kind, Kind::F8 | Kind::F32),
            (_, kind) => kind != Kind::F8,
        };
        if !is_known {
            return refuse(format!("Cast of {own:?} to {to}"));
        }
        if kind != own {
            x = self.emit(Inst::Cast(x), kind)?;
        }
        match to {
            DType::F16 => self.unary(Unary::RoundF16, x),
            DType::BF16 => self.unary(Unary::RoundBf16, x),
            _ => Ok(x),
        }
    }

    /// `saturate(round(x / scale) + zero_point)`, divided in f32. Floats of 8 bits have no zero point but 0, and are rounded
    /// as they are stored.
    fn quantize(&mut self, node: &RegionNode, op: &QuantizeLinear) -> Built<Reg> {
        let x = self.operand(node, 0)?;
        let (scale, zero_point) = self.scale_and_zero_point(node, op.axis)?;
        let to = match (zero_point, op.output_dtype) {
            (Some(zero_point), _) => self.kind(zero_point),
            (None, Some(dtype)) => match Kind::of(dtype) {
                Some(kind) => kind,
                None => return refuse(format!("QuantizeLinear to {dtype}")),
            },
            (None, None) => Kind::U8,
        };
        let precise = op.precision.is_none_or(|dtype| dtype == DType::F32);
        if to == Kind::F8 && (!op.saturate || !self.is_around_zero(zero_point)) {
            return refuse("floats of 8 bits that do not saturate, or around another number than 0");
        }
        if self.kind(x) != Kind::F32 || !matches!(to, Kind::U8 | Kind::I8 | Kind::F8) || !precise {
            return refuse(format!("QuantizeLinear of {:?} to {to:?}", self.kind(x)));
        }
        let ratio = self.binary(Binary::Div, x, scale)?;
        if to == Kind::F8 {
            return self.emit(Inst::Saturate(ratio), to);
        }
        let mut whole = self.unary(Unary::Round, ratio)?;
        if let Some(zero_point) = zero_point {
            let zero_point = self.widened(zero_point)?;
            whole = self.binary(Binary::Add, whole, zero_point)?;
        }
        self.emit(Inst::Saturate(whole), to)
    }

    /// `(x - zero_point) * scale`: the difference is exact, the product rounded once.
    fn dequantize(&mut self, node: &RegionNode, op: &DequantizeLinear) -> Built<Reg> {
        let x = self.operand(node, 0)?;
        let (scale, zero_point) = self.scale_and_zero_point(node, op.axis)?;
        if !matches!(self.kind(x), Kind::U8 | Kind::I8 | Kind::F8)
            || op.output_dtype.is_some_and(|to| to != DType::F32)
        {
            return refuse(format!("DequantizeLinear of {:?}", self.kind(x)));
        }
        let mut whole = self.widened(x)?;
        if self.kind(x) == Kind::F8 && !self.is_around_zero(zero_point) {
            return refuse("floats of 8 bits around another number than 0");
        }
        let is_own = |reg: &Reg| self.kind(*reg) == self.kind(x) && self.kind(x) != Kind::F8;
        if let Some(zero_point) = zero_point.filter(is_own) {
            let zero_point = self.widened(zero_point)?;
            whole = self.binary(Binary::Sub, whole, zero_point)?;
        }
        self.binary(Binary::Mul, whole, scale)
    }

    /// Of quantization: for the whole tensor, along its last axis, or along axis 1.
    fn scale_and_zero_point(&mut self, node: &RegionNode, axis: i64) -> Built<(Reg, Option<Reg>)> {
        let rank = match node.inputs.first().copied().flatten() {
            Some(x) => self.inner(x)?.dims.len() as i64,
            None => return refuse(format!("{} without an input", node.op.name())),
        };
        let axis = if axis < 0 { axis + rank } else { axis };
        let mut read = |idx: usize| {
            let Some(reference) = node.inputs.get(idx).copied().flatten() else { return Ok(None) };
            let Inner { dims, .. } = self.inner(reference)?;
            let is_single = dims.iter().product::<usize>() == 1;
            match (is_single, axis) {
                (true, _) => self.value(reference).map(Some),
                (false, axis) if axis == rank - 1 => self.value(reference).map(Some),
                (false, 1) => self.read(reference, true).map(Some),
                (false, axis) => refuse(format!("scales along axis {axis} of {rank}")),
            }
        };
        let (scale, zero_point) = (read(1)?, read(2)?);
        match scale {
            Some(scale) if self.kind(scale) == Kind::F32 => Ok((scale, zero_point)),
            _ => refuse(format!("{} with a scale that is not f32", node.op.name())),
        }
    }

    /// Whether the zero point of floats of 8 bits says nothing.
    fn is_around_zero(&self, zero_point: Option<Reg>) -> bool {
        zero_point.is_none_or(|reg| matches!(self.scalar(reg), Some(Scalar::F8(0x00 | 0x80))))
    }

    /// 8 bits as f32, which holds them exactly.
    fn widened(&mut self, x: Reg) -> Built<Reg> {
        match self.scalar(x) {
            Some(Scalar::U8(value)) => self.constant(Scalar::F32(value.into())),
            Some(Scalar::I8(value)) => self.constant(Scalar::F32(value.into())),
            _ => self.emit(Inst::Cast(x), Kind::F32),
        }
    }

    /// Exponents that are constants become multiplications where that is the same function.
    fn pow(&mut self, node: &RegionNode) -> Built<Reg> {
        let (x, exponent) = (self.operand(node, 0)?, self.operand(node, 1)?);
        if self.kind(x) != Kind::F32 {
            return refuse("Pow of integers");
        }
        let power = match self.scalar(exponent) {
            Some(Scalar::F32(power)) => Some(f64::from(power)),
            Some(Scalar::I32(power)) => Some(f64::from(power)),
            Some(Scalar::I64(power)) => Some(power as f64),
            Some(other @ (Scalar::U8(_) | Scalar::I8(_) | Scalar::F8(_) | Scalar::Bool(_))) => {
                return refuse(format!("Pow with an exponent of kind {:?}", other.kind()));
            }
            None => None,
        };
        match power {
            Some(0.0) => self.constant(Scalar::F32(1.0)),
            Some(1.0) => Ok(x),
            Some(2.0) => self.binary(Binary::Mul, x, x),
            Some(3.0) => {
                let square = self.binary(Binary::Mul, x, x)?;
                self.binary(Binary::Mul, square, x)
            }
            Some(-1.0) => self.unary(Unary::Reciprocal, x),
            Some(0.5) => self.half_power(x),
            Some(-0.5) => {
                let root = self.half_power(x)?;
                self.unary(Unary::Reciprocal, root)
            }
            Some(power) if f64::from(power as f32) == power || power.is_nan() => {
                let exponent = self.constant(Scalar::F32(power as f32))?;
                self.binary(Binary::Pow, x, exponent)
            }
            Some(power) => refuse(format!("Pow with the exponent {power}")),
            None if self.kind(exponent) == Kind::F32 => self.binary(Binary::Pow, x, exponent),
            None => refuse("Pow with integer exponents"),
        }
    }

    /// The square root, but for what powers say of minus zero (zero) and minus infinity (infinity).
    fn half_power(&mut self, x: Reg) -> Built<Reg> {
        let zero = self.constant(Scalar::F32(0.0))?;
        let positive = self.binary(Binary::Add, x, zero)?;
        let root = self.unary(Unary::Sqrt, positive)?;
        let lowest = self.constant(Scalar::F32(f32::NEG_INFINITY))?;
        let highest = self.constant(Scalar::F32(f32::INFINITY))?;
        let is_lowest = self.binary(Binary::Equal, x, lowest)?;
        self.select(is_lowest, highest, root)
    }

    fn batch_normalization(&mut self, node: &RegionNode, epsilon: f32) -> Built<Reg> {
        let x = self.operand(node, 0)?;
        let mut parameters = [Reg(0); 4];
        for (idx, parameter) in parameters.iter_mut().enumerate() {
            let Some(reference) = node.inputs.get(idx + 1).copied().flatten() else {
                return refuse("BatchNormalization without all its parameters");
            };
            *parameter = self.read(reference, true)?;
        }
        let [scale, bias, mean, variance] = parameters;
        let epsilon = self.constant(Scalar::F32(epsilon))?;
        let variance = self.binary(Binary::Add, variance, epsilon)?;
        let deviation = self.unary(Unary::Sqrt, variance)?;
        let centered = self.binary(Binary::Sub, x, mean)?;
        let normalized = self.binary(Binary::Div, centered, deviation)?;
        let scaled = self.binary(Binary::Mul, normalized, scale)?;
        self.binary(Binary::Add, scaled, bias)
    }
}
