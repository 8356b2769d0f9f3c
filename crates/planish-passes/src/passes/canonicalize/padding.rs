//! Pad in front of a convolution or pool goes into the padding of that.

use planish_ir::{Node, ValueId};
use planish_op::{AutoPad, Op, PadMode};

use crate::rule::{Match, Operand, Patch};
use crate::view::View;

pub(super) fn merge(cx: &View<'_>, node: &Node, output: ValueId) -> Match {
    let Some((_, pad)) = cx.input(node, 0).and_then(|id| cx.producer(id)) else { return Match::No };
    let Op::Pad(pad_op) = &pad.op else { return Match::No };
    let Some(source) = cx.input(pad, 0) else { return Match::No };
    if pad_op.mode != PadMode::Constant {
        return Match::blocked("the Pad in front of it does not fill with a constant");
    }
    let value = match cx.input(pad, 2) {
        None => Some(0.0),
        Some(id) => cx.splat(id),
    };
    let Some(pads) = spatial_pads(cx, pad, source) else {
        return Match::blocked("the Pad in front of it is not a known number of spatial elements");
    };
    let (needed, reason) = match node.op {
        Op::MaxPool(_) => (f64::NEG_INFINITY, "the Pad in front of it does not fill with -Inf"),
        _ => (0.0, "the Pad in front of it does not fill with zeros"),
    };
    if value != Some(needed) {
        return Match::blocked(reason);
    }
    let is_explicit = |auto_pad: AutoPad| matches!(auto_pad, AutoPad::NotSet | AutoPad::Valid);
    let own = |auto_pad: AutoPad, own: &[i64]| match auto_pad {
        AutoPad::NotSet if !own.is_empty() => own.to_vec(),
        _ => vec![0; pads.len()],
    };
    let sum = |own: Vec<i64>| {
        own.iter().zip(&pads).map(|(own, pad)| own.saturating_add(*pad)).collect::<Vec<i64>>()
    };
    let automatic = "its own padding follows from sizes";
    let op: Op = match &node.op {
        Op::Conv(op) if is_explicit(op.auto_pad) => {
            let pads = sum(own(op.auto_pad, &op.pads));
            planish_op::Conv { pads, auto_pad: AutoPad::NotSet, ..op.clone() }.into()
        }
        Op::MaxPool(op) if is_explicit(op.auto_pad) && !op.ceil_mode => {
            let pads = sum(own(op.auto_pad, &op.pads));
            planish_op::MaxPool { pads, auto_pad: AutoPad::NotSet, ..op.clone() }.into()
        }
        Op::AveragePool(op) if is_explicit(op.auto_pad) && !op.ceil_mode => {
            let own = own(op.auto_pad, &op.pads);
            if !op.count_include_pad && own.iter().any(|&pad| pad != 0) {
                return Match::blocked("its own padding does not count and that of the Pad does");
            }
            let (pads, auto_pad, count_include_pad) = (sum(own), AutoPad::NotSet, true);
            planish_op::AveragePool { pads, auto_pad, count_include_pad, ..op.clone() }.into()
        }
        _ => return Match::blocked(automatic),
    };
    if node.outputs[1..].iter().any(Option::is_some) {
        return Match::blocked("its indices are read, which count the padding");
    }
    let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::from)).collect();
    inputs[0] = Some(source.into());
    let mut patch = Patch::new();
    let new = patch.node_with(&node.name, op, inputs, node.outputs.len());
    patch.replace(output, new[0]);
    Match::Rewrite(patch)
}

/// Begins, then ends, of the spatial axes; `None` unless they are known, not negative, and all there is.
fn spatial_pads(cx: &View<'_>, pad: &Node, source: ValueId) -> Option<Vec<i64>> {
    let rank = cx.rank(source)?;
    let given = cx.ints(cx.input(pad, 1)?)?;
    let axes = match cx.input(pad, 3) {
        None => (0..rank).collect(),
        Some(id) => planish_tensor::distinct_axes(&cx.ints(id)?, rank).ok()?,
    };
    // Beyond it sums of pads could overflow.
    let is_sound = |pad: &i64| (0..i64::from(i32::MAX)).contains(pad);
    if given.len() != 2 * axes.len() || !given.iter().all(is_sound) {
        return None;
    }
    let mut pads = vec![0; 2 * rank.checked_sub(2)?];
    for (place, axis) in axes.iter().enumerate() {
        let (begin, end) = (given[place], given[axes.len() + place]);
        match axis.checked_sub(2) {
            Some(spatial) => (pads[spatial], pads[rank - 2 + spatial]) = (begin, end),
            None if begin == 0 && end == 0 => {}
            None => return None,
        }
    }
    Some(pads)
}

#[cfg(test)]
mod tests {
    use crate::passes::canonicalize::Canonicalize;
    use crate::testing::{check_same, kept, same_outputs};
    use expect_test::expect;

    const PAD: &str = "input %x: f32[2,1,4] const %k: f32[1,1,2] = [1, 2] const %p: i64[6] = [0,0,1,0,0,2] \
                       %a: f32[2,1,7] = Pad(%x, %p)";

    #[test]
    fn into_convolutions_and_pools() {
        let before = format!(
            "{PAD} %c: f32[2,1,8] = Conv(%a, %k) {{pads=[1,1]}} \"c\" \
             %d: f32[2,1,6] = AveragePool(%a) {{kernel_shape=[2]}} \"d\" output %c, %d"
        );
        check_same(
            Canonicalize,
            &before,
            expect![[r#"
            input %x: f32[2,1,4]
            const %k: f32[1,1,2] = [1, 2]
            %c: f32[2,1,8] = Conv(%x, %k) {pads=[2,3]} "c"
            %d: f32[2,1,6] = AveragePool(%x) {count_include_pad=true, pads=[1,2], kernel_shape=[2]} "d"
            output %c, %d
        "#]],
        );
        let max = "input %x: f32[2,1,4] const %p: i64[2] = [1, 1] const %v: f32[] = -inf const %axes: i64[1] = [-1] \
                   %a: f32[2,1,6] = Pad(%x, %p, %v, %axes) %y: f32[2,1,5] = MaxPool(%a) {kernel_shape=[2]} output %y";
        assert_eq!(same_outputs(Canonicalize, max).1.nodes().len(), 1);
    }

    #[test]
    fn refusals() {
        let conv = "%y: f32[2,1,6] = Conv(%a, %k)";
        let with = |from: &str, to: &str| format!("{PAD} {conv}").replace(from, to);
        let reason = "the Pad in front of it does not fill with a constant";
        kept(Canonicalize, &with("Pad(%x, %p)", "Pad(%x, %p) {mode=\"edge\"}"), "y", reason);
        let reason = "the Pad in front of it does not fill with zeros";
        let one =
            with("const %p", "const %one: f32[] = 1 const %p").replace("Pad(%x, %p)", "Pad(%x, %p, %one)");
        kept(Canonicalize, &one, "y", reason);
        let reason = "the Pad in front of it is not a known number of spatial elements";
        kept(
            Canonicalize,
            &with("[0,0,1,0,0,2]", "[1,0,1,0,0,2]")
                .replace("f32[2,1,7]", "f32[3,1,7]")
                .replace("f32[2,1,6]", "f32[3,1,6]"),
            "y",
            reason,
        );
        let automatic = with("Conv(%a, %k)", "Conv(%a, %k) {auto_pad=\"SAME_UPPER\"}")
            .replace("f32[2,1,6]", "f32[2,1,7]");
        kept(Canonicalize, &automatic, "y", "its own padding follows from sizes");
        let pool = format!("{PAD} %y: f32[2,1,8] = AveragePool(%a) {{kernel_shape=[2], pads=[1,1]}}");
        kept(Canonicalize, &pool, "y", "its own padding does not count and that of the Pad does");
        let indices = "input %x: f32[2,1,4] const %p: i64[6] = [0,0,1,0,0,2] const %v: f32[] = -inf \
                       %a: f32[2,1,7] = Pad(%x, %p, %v) %m: f32[2,1,6], %y: i64[2,1,6] = MaxPool(%a) {kernel_shape=[2]}";
        kept(Canonicalize, indices, "y", "its indices are read, which count the padding");
        let max = format!("{PAD} %y: f32[2,1,6] = MaxPool(%a) {{kernel_shape=[2]}}");
        kept(Canonicalize, &max, "y", "the Pad in front of it does not fill with -Inf");
    }
}
