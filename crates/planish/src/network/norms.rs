//! The layers that normalize.

use planish_op as op;
use planish_op::Op;

use super::{NetworkBuilder, Operand, Wire};
use crate::Error;

impl NetworkBuilder {
    /// Batch normalization with trained statistics, all of one number per channel.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder, Tensor};
    ///
    /// let ones = |n: usize| Tensor::vector(vec![1f32; n]);
    /// let mut net = NetworkBuilder::new("norms");
    /// let x = net.input("x", DType::F32, "batch,32,8,8")?;
    /// let y = net.batch_norm(x, ones(32), ones(32), ones(32), ones(32), 1e-5)?;   // scale, shift, mean, variance
    /// let y = net.group_norm(y, 4, ones(32), ones(32), 1e-5)?;
    /// let y = net.instance_norm(y, ones(32), ones(32), 1e-5)?;
    /// let y = net.layer_norm(y, ones(8), Some(ones(8).into()), -1, 1e-5)?;
    /// let y = net.rms_norm(y, ones(8), -1, 1e-6)?;
    /// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,32,8,8]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn batch_norm(
        &mut self,
        x: Wire,
        scale: impl Into<Operand>,
        shift: impl Into<Operand>,
        mean: impl Into<Operand>,
        variance: impl Into<Operand>,
        epsilon: f32,
    ) -> Result<Wire, Error> {
        let like = self.float_type(x);
        let name = self.layer_name("BatchNormalization")?;
        let mut inputs = vec![Some(x)];
        let parameters = [
            ("scale", scale.into()),
            ("shift", shift.into()),
            ("mean", mean.into()),
            ("variance", variance.into()),
        ];
        for (role, operand) in parameters {
            inputs.push(Some(self.operand(operand, &name, role, like)?));
        }
        let op = op::BatchNormalization { training_mode: false, momentum: 0.9, epsilon };
        self.one_named(&name, op.into(), &inputs)
    }

    /// Normalizes over all axes from `axis` on.
    /// [`NetworkBuilder::batch_norm`] has an example.
    pub fn layer_norm(
        &mut self,
        x: Wire,
        scale: impl Into<Operand>,
        shift: Option<Operand>,
        axis: i64,
        epsilon: f32,
    ) -> Result<Wire, Error> {
        let op = op::LayerNormalization { stash_type: 1, epsilon, axis };
        self.norm(op.into(), x, scale.into(), shift)
    }

    /// Normalizes groups of channels of `[batch, channels, space...]`.
    /// [`NetworkBuilder::batch_norm`] has an example.
    pub fn group_norm(
        &mut self,
        x: Wire,
        n_groups: i64,
        scale: impl Into<Operand>,
        shift: impl Into<Operand>,
        epsilon: f32,
    ) -> Result<Wire, Error> {
        let op = op::GroupNormalization { stash_type: 1, num_groups: n_groups, epsilon };
        self.norm(op.into(), x, scale.into(), Some(shift.into()))
    }

    /// Normalizes every channel of `[batch, channels, space...]` on its own.
    /// [`NetworkBuilder::batch_norm`] has an example.
    pub fn instance_norm(
        &mut self,
        x: Wire,
        scale: impl Into<Operand>,
        shift: impl Into<Operand>,
        epsilon: f32,
    ) -> Result<Wire, Error> {
        self.norm(op::InstanceNormalization { epsilon }.into(), x, scale.into(), Some(shift.into()))
    }

    /// Divides by the root of the mean square over all axes from `axis` on.
    /// [`NetworkBuilder::batch_norm`] has an example.
    pub fn rms_norm(
        &mut self,
        x: Wire,
        scale: impl Into<Operand>,
        axis: i64,
        epsilon: f32,
    ) -> Result<Wire, Error> {
        self.norm(op::RMSNormalization { stash_type: 1, epsilon, axis }.into(), x, scale.into(), None)
    }

    fn norm(&mut self, op: Op, x: Wire, scale: Operand, shift: Option<Operand>) -> Result<Wire, Error> {
        let like = self.float_type(x);
        let name = self.layer_name(op.name())?;
        let scale = self.operand(scale, &name, "scale", like)?;
        let mut inputs = vec![Some(x), Some(scale)];
        if let Some(shift) = self.optional(shift, &name, "shift", like)? {
            inputs.push(Some(shift));
        }
        self.one_named(&name, op, &inputs)
    }
}
