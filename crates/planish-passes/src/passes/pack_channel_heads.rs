//! Lets Attention over the pixels of an image read its heads side by side as a channels-last image has them.
//!
//! Detectors make queries, keys and values by one convolution, take its channels apart into heads and each head into the
//! three, and turn them from channels by pixels to pixels by channels. With the convolution's channels in another order
//! (all heads' queries, then keys, then values) each of the three is a part of the pixels' rows: nothing has to move.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Attention, Op, Slice, Split};
use planish_tensor::{Bytes, Dim, Shape, Tensor, normalize_axis};

use crate::passes::pack_attention_heads::operands;
use crate::pattern::{Finder, Found, Miss, blocked, made_by, output, relying_on};
use crate::reshape::reshaped;
use crate::rule::{Operand, Patch};
use crate::transpose::{transpose_op, transposed};
use crate::view::View;

/// Exchanges channels and pixels of heads that are an axis.
const TURNED: [usize; 4] = [0, 1, 3, 2];

/// Attention whose operands are turned parts of the heads of one convolution, and whose result is turned back.
pub(crate) const PACK_CHANNEL_HEADS: Finder = Finder { name: "pack_channel_heads", find };

/// The layer that makes queries, keys and values, and how its channels are taken apart.
struct Source<'g> {
    conv: &'g Node,
    image: ValueId,
    n_heads: usize,
    split: &'g Node,
    /// Channels of each part of a head, and where they begin in it.
    parts: Vec<(usize, usize)>,
    /// Which part queries, keys and values are.
    operands: [usize; 3],
    nodes: Vec<NodeId>,
}

impl Source<'_> {
    /// Channels of one head.
    fn size(&self) -> usize {
        self.parts.iter().map(|(_, len)| len).sum()
    }

    /// A parameter of the layer with its rows in the new order: part by part, in each all heads.
    fn reordered(&self, rows: &Tensor) -> Option<Tensor> {
        let n_rows = self.n_heads * self.size();
        if rows.shape().first() != Some(&n_rows) || !rows.dtype().bits().is_multiple_of(8) {
            return None;
        }
        let (all, row) = (rows.bytes(), rows.bytes().len() / n_rows);
        let mut bytes = Vec::with_capacity(all.len());
        for &(start, len) in &self.parts {
            for head in 0..self.n_heads {
                let first = head * self.size() + start;
                bytes.extend_from_slice(&all[first * row..(first + len) * row]);
            }
        }
        Tensor::from_bytes(rows.dtype(), rows.shape(), Bytes::from_vec(bytes)).ok()
    }
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let Op::Attention(op) = &node.op else { return Err(Miss::No) };
    let y = output(node)?;
    let (qkv, mask) = operands(node).ok_or(Miss::No)?;
    let turned_back = cx.sole_reader(y).filter(|(_, reader)| is_turn(cx, reader).is_some());
    let (Some(source), Some((back, turn))) = (source(cx, qkv)?, turned_back) else {
        return Err(Miss::No);
    };
    let Op::Conv(conv) = &source.conv.op else { return Err(Miss::No) };
    let name = &*node.name;
    let mut patch = Patch::new();
    let mut inputs = vec![cx.input(source.conv, 0).map(Operand::from)];
    for place in 1..source.conv.inputs.len() {
        let rows = cx.constant_input(source.conv, place).ok_or(Miss::No)?;
        let rows = source.reordered(rows).ok_or(Miss::No)?;
        inputs.push(Some(patch.constant(&format!("{}.heads", source.conv.name), rows)));
    }
    let made = patch.node_with(&source.conv.name, conv.clone(), inputs, 1).pop().ok_or(Miss::No)?;

    // Rows of pixels, of which queries, keys and values are parts.
    let shape = cx.shape(source.image).ok_or(Miss::No)?;
    let apart = cx.shape(y).ok_or(Miss::No)?;
    let [batch, _, n_pixels, value_size] = apart.dims() else { return Err(Miss::No) };
    let heads = source.n_heads as i64;
    let flat = [batch.clone(), shape[1].clone(), n_pixels.clone()];
    let pixels = reshaped(&mut patch, name, made, shape, &flat)?;
    let pixels = patch.node(name, transpose_op(&[0, 2, 1]), &[pixels]);
    let lens = source.parts.iter().map(|(_, len)| *len as i64 * heads).collect();
    let lens = patch.constant("parts", Tensor::vector(lens));
    let all = [Some(pixels), Some(lens)].to_vec();
    let parts = patch.node_with(name, Split { axis: 2, num_outputs: None }, all, source.parts.len());
    let mut operands: Vec<_> = source.operands.iter().map(|part| Some(parts[*part])).collect();
    operands.extend(mask.map(|mask| Some(Operand::from(mask))));
    let packed = Attention { q_num_heads: Some(heads), kv_num_heads: Some(heads), ..op.clone() };
    let result = patch.node_with(name, packed, operands, 1).pop().ok_or(Miss::No)?;

    let result = patch.node(name, transpose_op(&[0, 2, 1]), &[result]);
    let channels = value_size * &Dim::from(heads);
    let image: Shape = [batch.clone(), channels, n_pixels.clone()].into_iter().collect();
    let apart = [batch.clone(), Dim::from(heads), value_size.clone(), n_pixels.clone()];
    let result = reshaped(&mut patch, name, result, &image, &apart)?;
    patch.replace(output(turn)?, result);

    // Whoever else reads a part takes it out of the image.
    let mut start = 0;
    for (part, (_, len)) in source.split.outputs.iter().zip(&source.parts) {
        let part = part.ok_or(Miss::No)?;
        let len = *len as i64 * heads;
        if cx.readers(part).len() > 1 || cx.is_output(part) {
            let numbers = [("starts", start), ("ends", start + len), ("axes", 1)];
            let [starts, ends, axes] =
                numbers.map(|(what, at)| patch.constant(what, Tensor::vector(vec![at])));
            let slice = patch.node(name, Slice {}, &[made, starts, ends, axes]);
            let mut from: Vec<Dim> = shape.dims().to_vec();
            from[1] = Dim::from(len);
            let whole = cx.shape(part).ok_or(Miss::No)?;
            let slice = reshaped(&mut patch, name, slice, &from.into_iter().collect(), whole.dims())?;
            patch.replace(part, slice);
        }
        start += len;
    }
    let nodes: Vec<NodeId> = source.nodes.iter().copied().chain([back]).collect();
    Ok(relying_on(patch, &nodes))
}

/// The input of a node that turns heads of channels by pixels to such of pixels by channels, or back.
fn is_turn(cx: &View<'_>, node: &Node) -> Option<ValueId> {
    transposed(cx, node).filter(|(_, perm)| *perm == TURNED).map(|(value, _)| value)
}

/// Where queries, keys and values come from, if all from one convolution.
fn source<'g>(cx: &View<'g>, operands: [ValueId; 3]) -> Found<Option<Source<'g>>> {
    let mut nodes = Vec::new();
    let mut places = [0; 3];
    let mut of: Option<(NodeId, &Node)> = None;
    for (place, operand) in places.iter_mut().zip(operands) {
        let Some((turn, node)) = made_by(cx, operand, |op| matches!(op, Op::Transpose(_))) else {
            return Ok(None);
        };
        let Some(part) = is_turn(cx, node) else { return Ok(None) };
        let Some((id, split)) = made_by(cx, part, |op| matches!(op, Op::Split(_))) else { return Ok(None) };
        if of.is_some_and(|(known, _)| known != id) {
            return Ok(None);
        }
        let Some(at) = split.outputs.iter().position(|output| *output == Some(part)) else { return Ok(None) };
        (*place, of) = (at, Some((id, split)));
        nodes.extend([turn, id]);
    }
    let Some((_, split)) = of else { return Ok(None) };
    let Op::Split(op) = &split.op else { return Ok(None) };
    let apart = cx.input(split, 0).ok_or(Miss::No)?;
    let Some((reshape, node)) = made_by(cx, apart, |op| matches!(op, Op::Reshape(_))) else {
        return Ok(None);
    };
    let image = cx.input(node, 0).ok_or(Miss::No)?;
    let Some((layer, conv)) = made_by(cx, image, |op| matches!(op, Op::Conv(_))) else { return Ok(None) };
    let (Some(shape), Some(heads)) = (cx.shape(image), cx.shape(apart)) else { return Ok(None) };
    let Op::Conv(window) = &conv.op else { return Ok(None) };
    if normalize_axis(op.axis, 4) != Ok(2) || heads.rank() != 4 || shape.rank() < 3 || window.group != 1 {
        return Ok(None);
    }
    if cx.sole_reader(apart).is_none() || cx.sole_reader(image).is_none() {
        return blocked("the channels of all heads are read in other ways too");
    }
    let sizes = |value: ValueId| cx.shape(value)?.get(2)?.as_usize();
    let outputs: Option<Vec<ValueId>> = split.outputs.iter().copied().collect();
    let lens: Option<Vec<usize>> = outputs.into_iter().flatten().map(sizes).collect();
    let (Some(lens), Some(n_heads)) = (lens, heads[1].as_usize()) else { return Ok(None) };
    let mut start = 0;
    let mut parts = Vec::with_capacity(lens.len());
    for len in lens {
        parts.push((start, len));
        start += len;
    }
    // Heads cut the channels, and pixels are what they were.
    let fits = parts.len() == split.outputs.len()
        && heads[2].as_usize() == Some(start)
        && shape[1].as_usize() == Some(n_heads * start)
        && heads[0] == shape[0];
    nodes.extend([reshape, layer]);
    Ok(fits.then_some(Source { conv, image, n_heads, split, parts, operands: places, nodes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, leaves, refuses};
    use crate::driver::Pass;
    use crate::testing::run;

    const FEED: Feed<'static> = Feed { sizes: &[("b", 2)], ..PLAIN };

    /// Two heads of 2 channels for queries and keys and 3 for values, over 3 x 4 pixels.
    fn model(attention: &str) -> String {
        let numbers = |n: usize| -> String {
            let numbers: Vec<String> =
                (0..n).map(|at| format!("{}", (at * 37 % 23) as f32 / 8.0 - 1.3)).collect();
            numbers.join(",")
        };
        format!(
            "input %x: f32[b,5,3,4] const %w: f32[14,5,1,1] = [{}] const %bias: f32[14] = [{}] \
             const %to: i64[4] = [0,2,7,12] const %s: i64[3] = [2,2,3] const %back: i64[4] = [0,6,3,4] \
             %c: f32[b,14,3,4] = Conv(%x, %w, %bias) \"qkv\" %h: f32[b,2,7,12] = Reshape(%c, %to) \
             %q0: f32[b,2,2,12], %k0: f32[b,2,2,12], %v0: f32[b,2,3,12] = Split(%h, %s) {{axis=2}} {attention}",
            numbers(70),
            numbers(14),
        )
    }

    const TURNS: &str = "%q: f32[b,2,12,2] = Transpose(%q0) {perm=[0,1,3,2]} \
        %k: f32[b,2,12,2] = Transpose(%k0) {perm=[0,1,3,2]} %v: f32[b,2,12,3] = Transpose(%v0) {perm=[0,1,3,2]}";

    #[test]
    fn heads_of_an_image_are_parts_of_its_pixels() {
        let text = model(&format!(
            "{TURNS} %a: f32[b,2,12,3] = Attention(%q, %k, %v) {{scale=0.5}} \"attend\" \
             %t: f32[b,2,3,12] = Transpose(%a) {{perm=[0,1,3,2]}} %o: f32[b,6,3,4] = Reshape(%t, %back) \
             %p: f32[b,6,3,4] = Reshape(%v0, %back) %y: f32[b,6,3,4] = Add(%o, %p) output %y"
        ));
        agrees(PACK_CHANNEL_HEADS, &text, FEED);
        let (after, _) = run(Pass::rule(PACK_CHANNEL_HEADS), &text);
        let ops: Vec<&str> = after.nodes().map(|(_, node)| node.op.name()).collect();
        assert_eq!(
            ops.iter().filter(|op| **op == "Transpose").count(),
            2,
            "one in front of Attention and one after it: {ops:?}"
        );
        assert!(after.print_whole().contains("q_num_heads=2"), "{}", after.print_whole());
    }

    #[test]
    fn other_orders_of_the_parts_agree() {
        // Keys first: what the parts are follows from who reads them.
        let text = model(&format!(
            "{TURNS} %a: f32[b,2,12,3] = Attention(%k, %q, %v) {{scale=0.5}} \
             %y: f32[b,2,3,12] = Transpose(%a) {{perm=[0,1,3,2]}} output %y"
        ));
        agrees(PACK_CHANNEL_HEADS, &text, FEED);
    }

    #[test]
    fn results_that_are_not_turned_back_stay() {
        leaves(
            PACK_CHANNEL_HEADS,
            &model(&format!("{TURNS} %y: f32[b,2,12,3] = Attention(%q, %k, %v) output %y")),
        );
    }

    #[test]
    fn channels_that_others_read_are_refused() {
        refuses(
            PACK_CHANNEL_HEADS,
            &model(&format!(
                "{TURNS} %a: f32[b,2,12,3] = Attention(%q, %k, %v) \
                 %y: f32[b,2,3,12] = Transpose(%a) {{perm=[0,1,3,2]}} %z: f32[b,14,3,4] = Neg(%c) output %y, %z"
            )),
            "the channels of all heads are read in other ways too",
        );
    }
}
