//! What layers read, channel by channel: for evening channels out, and for what rounding weights does to the mean.

use planish_ir::{Graph, ValueId};
use planish_op::Op;
use planish_tensor::DType;

/// The values of a layer's input over all samples, by channel.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Channels {
    pub means: Vec<f32>,
    /// Roots of the means of the squares.
    pub roots: Vec<f32>,
    /// The largest magnitudes.
    pub largest: Vec<f32>,
}

/// Where the channels of a layer's input are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelAxis {
    /// Convolutions.
    Second,
    /// Matrix products.
    Last,
}

impl ChannelAxis {
    /// The number of channels of a shape, and how many elements of one lie side by side.
    pub fn of(self, shape: &[usize]) -> Option<(usize, usize)> {
        match self {
            ChannelAxis::Second => Some((*shape.get(1)?, shape[2..].iter().product())),
            ChannelAxis::Last => Some((*shape.last()?, 1)),
        }
    }
}

/// The f32 values that layers with constant weights read, in the graph's order.
pub fn layer_inputs(graph: &Graph) -> Vec<(ValueId, ChannelAxis)> {
    let mut found: Vec<(ValueId, ChannelAxis)> = Vec::new();
    for (_, node) in graph.nodes() {
        let axis = match &node.op {
            Op::Conv(_) | Op::ConvTranspose(_) => ChannelAxis::Second,
            Op::MatMul(_) => ChannelAxis::Last,
            Op::Gemm(gemm) if !gemm.trans_a => ChannelAxis::Last,
            _ => continue,
        };
        let [Some(data), Some(weights), ..] = node.inputs[..] else { continue };
        let is_float = graph.value(data).ty.as_tensor().is_some_and(|ty| ty.dtype == DType::F32);
        let has_weights = graph.value(weights).constant().is_some() && graph.value(data).constant().is_none();
        if is_float && has_weights && !found.iter().any(|(known, _)| *known == data) {
            found.push((data, axis));
        }
    }
    found
}

/// Sums by channel.
#[derive(Clone, Debug, Default)]
pub struct ChannelObserver {
    n_values: u64,
    sums: Vec<f64>,
    squares: Vec<f64>,
    largest: Vec<f32>,
}

impl ChannelObserver {
    /// Takes in values of `n_channels` channels, of each of which `inner` lie side by side. Another number of channels
    /// than before says nothing.
    pub fn observe(&mut self, values: &[f32], n_channels: usize, inner: usize) {
        if self.sums.is_empty() {
            self.sums = vec![0.0; n_channels];
            self.squares = vec![0.0; n_channels];
            self.largest = vec![0.0; n_channels];
        }
        let whole = n_channels * inner;
        if self.sums.len() != n_channels || whole == 0 || !values.len().is_multiple_of(whole) {
            return;
        }
        for item in values.chunks_exact(whole) {
            for (channel, run) in item.chunks_exact(inner).enumerate() {
                for &value in run {
                    self.sums[channel] += f64::from(value);
                    self.squares[channel] += f64::from(value) * f64::from(value);
                    self.largest[channel] = self.largest[channel].max(value.abs());
                }
            }
        }
        self.n_values += (values.len() / n_channels) as u64;
    }

    /// What was seen; `None` where that is nothing, or not all of it is finite.
    pub fn channels(&self) -> Option<Channels> {
        let n = self.n_values as f64;
        let channels = Channels {
            means: self.sums.iter().map(|sum| (sum / n) as f32).collect(),
            roots: self.squares.iter().map(|square| (square / n).sqrt() as f32).collect(),
            largest: self.largest.clone(),
        };
        let all = [&channels.means, &channels.roots, &channels.largest];
        let is_finite = all.iter().all(|list| list.iter().all(|number| number.is_finite()));
        (self.n_values > 0 && is_finite).then_some(channels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_told_apart() {
        let mut observer = ChannelObserver::default();
        assert_eq!(observer.channels(), None);
        // Two images of two channels with two pixels.
        observer.observe(&[1.0, 3.0, -4.0, -4.0, 1.0, 3.0, 0.0, 0.0], 2, 2);
        let expected = Channels {
            means: vec![2.0, -2.0],
            roots: vec![5f32.sqrt(), 8f32.sqrt()],
            largest: vec![3.0, 4.0],
        };
        assert_eq!(observer.channels(), Some(expected.clone()));
        observer.observe(&[1.0; 9], 3, 1);
        assert_eq!(observer.channels(), Some(expected));
        observer.observe(&[f32::INFINITY, 0.0], 2, 1);
        assert_eq!(observer.channels(), None);
        assert_eq!(ChannelAxis::Second.of(&[2, 3, 4, 5]), Some((3, 20)));
        assert_eq!(ChannelAxis::Last.of(&[2, 3, 4]), Some((4, 1)));
        assert_eq!(ChannelAxis::Second.of(&[2]), None);
    }

    #[test]
    fn inputs_of_layers_are_found() {
        let graph: Graph = r#"graph "g" {
            input %x: f32[1,2,4,4]
            const %w: f32[2,2,1,1] = [1,2,3,4]
            const %m: f32[4,4] = [1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1]
            %y: f32[1,2,4,4] = Conv(%x, %w) {kernel_shape=[1,1]}
            %z: f32[1,2,4,4] = MatMul(%y, %m)
            %s: f32[1,2,4,4] = MatMul(%z, %y)
            output %s
        }"#
        .parse()
        .unwrap();
        let found = layer_inputs(&graph);
        let names: Vec<(&str, ChannelAxis)> =
            found.iter().map(|(id, axis)| (&*graph.value(*id).name, *axis)).collect();
        assert_eq!(names, [("x", ChannelAxis::Second), ("y", ChannelAxis::Last)]);
    }
}
