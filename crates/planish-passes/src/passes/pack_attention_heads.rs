//! Lets Attention read and write its heads side by side, `[batch, sequence, heads·size]`, where it now stands
//! between transposes that take heads apart and put them together: the operator can do that itself. What newer exporters
//! put around weights that are NaN (see `recognize_attention`) goes with it: `Where(IsNaN(y), ΣV·0, y)` is the same for
//! heads side by side.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Attention, IsNaN, Mul, Op, ReduceSum, Transpose, Where};
use planish_tensor::{Dim, Shape, Tensor};

use crate::pattern::{Finder, Found, Miss, blocked, made_by, one_input, output, reduced_axes, relying_on};
use crate::reshape::reshaped;
use crate::rule::{Operand, Patch};
use crate::view::View;

/// Exchanges heads and sequence.
const HEADS: [usize; 4] = [0, 2, 1, 3];

/// Attention of rank 4 whose operands and result are transposed.
pub(crate) const PACK_ATTENTION_HEADS: Finder = Finder { name: "pack_attention_heads", find };

/// An operand before its Transpose: that, and what is left to do to have `[batch, sequence, heads, size]`.
struct Source {
    value: ValueId,
    perm: [usize; 4],
    n_heads: i64,
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let Op::Attention(op) = &node.op else { return Err(Miss::No) };
    let y = output(node)?;
    let ([q, k, v], mask) = operands(node).ok_or(Miss::No)?;
    if cx.rank(y) != Some(4) {
        return Err(Miss::No);
    }
    let guard = guard(cx, y, v);
    let result = guard.as_ref().map_or(y, |guard| guard.selected);
    let turn = cx.sole_reader(result).filter(|(_, node)| matches!(node.op, Op::Transpose(_)));
    let Some((back, turn)) = turn else {
        return blocked("the result is not transposed, or read in other ways too");
    };
    let sources = [q, k, v].map(|operand| source(cx, operand));
    let [Some(q), Some(k), Some(v)] = sources else {
        return blocked("an operand is not transposed, or the number of its heads is not known");
    };
    let turned = output(turn)?;
    let perm = permutation(&turn.op).ok_or(Miss::No)?.map(|axis| HEADS[axis]);
    let shape = cx.shape(y).ok_or(Miss::No)?;
    let [batch, heads, queries, size] = shape.dims() else { return Err(Miss::No) };

    let mut patch = Patch::new();
    let name = &*node.name;
    let op = Attention { q_num_heads: Some(q.n_heads), kv_num_heads: Some(k.n_heads), ..op.clone() };
    let mut inputs = Vec::with_capacity(4);
    for source in [&q, &k, &v] {
        inputs.push(Some(packed(cx, &mut patch, name, source)?));
    }
    inputs.extend(mask.map(|mask| Some(Operand::from(mask))));
    let value = inputs[2];
    let mut result = patch.node_with(name, op, inputs, 1).pop().ok_or(Miss::No)?;
    let mut relied_on = vec![back];
    if let (Some(Guard { zero, nodes, .. }), Some(value)) = (guard, value) {
        let nothing = patch.node(name, Mul {}, &[value, zero.into()]);
        let rows = patch.constant("axes", Tensor::vector(vec![1i64]));
        let sums = ReduceSum { noop_with_empty_axes: false, keepdims: true };
        let nothing = patch.node(name, sums, &[nothing, rows]);
        let is_nan = patch.node(name, IsNaN {}, &[result]);
        result = patch.node(name, Where {}, &[is_nan, nothing, result]);
        relied_on.extend(nodes);
    }
    let wide: Shape = [batch.clone(), queries.clone(), heads * size].into_iter().collect();
    let apart = [batch, queries, heads, size].map(Dim::clone);
    let mut result = reshaped(&mut patch, name, result, &wide, &apart)?;
    if perm != [0, 1, 2, 3] {
        let perm = perm.iter().map(|&axis| axis as i64).collect();
        result = patch.node(&turn.name, Transpose { perm: Some(perm) }, &[result]);
    }
    patch.replace(turned, result);
    Ok(relying_on(patch, &relied_on))
}

/// Queries, keys and values of an Attention without a past, which is of rank 4 anyway, and its mask.
pub(crate) fn operands(attention: &Node) -> Option<([ValueId; 3], Option<ValueId>)> {
    let (&[Some(q), Some(k), Some(v)], mask) = (match &attention.inputs[..] {
        [q, k, v] => (&[*q, *k, *v], None),
        [q, k, v, mask] => (&[*q, *k, *v], *mask),
        _ => return None,
    }) else {
        return None;
    };
    Some(([q, k, v], mask))
}

/// What gives rows whose weights are all NaN the result `0·V`.
struct Guard {
    selected: ValueId,
    zero: ValueId,
    nodes: Vec<NodeId>,
}

/// `Where(IsNaN(y), ReduceSum(V·0), y)` around the result of an Attention of rank 4 over `v`, where nothing else reads it.
fn guard(cx: &View<'_>, y: ValueId, v: ValueId) -> Option<Guard> {
    let is_select = |id: &NodeId| matches!(cx.node(*id).op, Op::Where(_));
    let &[first, second] = cx.readers(y) else { return None };
    let select = [first, second].into_iter().find(is_select).filter(|_| !cx.is_output(y))?;
    let &[Some(condition), Some(nothing), Some(value)] = &cx.node(select).inputs[..] else { return None };
    let (is_nan, node) = made_by(cx, condition, |op| matches!(op, Op::IsNaN(_)))?;
    let (sum, reduce) = made_by(cx, nothing, |op| matches!(op, Op::ReduceSum(_)))?;
    let Op::ReduceSum(op) = &reduce.op else { return None };
    let (product, mul) = made_by(cx, cx.input(reduce, 0)?, |op| matches!(op, Op::Mul(_)))?;
    let &[Some(factor), Some(zero)] = &mul.inputs[..] else { return None };
    let is_guard = value == y
        && one_input(node) == Some(y)
        && reduced_axes(cx, reduce, op.noop_with_empty_axes)? == [2]
        && op.keepdims
        && factor == v
        && cx.splat(zero) == Some(0.0)
        && cx.shape(zero)?.rank() == 0;
    let selected = cx.node(select).outputs.first().copied().flatten()?;
    is_guard.then(|| Guard { selected, zero, nodes: vec![select, is_nan, sum, product] })
}

fn source(cx: &View<'_>, operand: ValueId) -> Option<Source> {
    let (_, node) = made_by(cx, operand, |op| matches!(op, Op::Transpose(_)))?;
    let value = one_input(node)?;
    let perm = permutation(&node.op)?;
    // The elements of a head stay together.
    if perm[3] != 3 {
        return None;
    }
    let n_heads = cx.shape(operand)?.get(1)?.as_const()?;
    Some(Source { value, perm: HEADS.map(|axis| perm[axis]), n_heads })
}

fn permutation(op: &Op) -> Option<[usize; 4]> {
    let Op::Transpose(op) = op else { return None };
    let perm: Vec<usize> =
        op.perm.as_ref()?.iter().map(|&axis| usize::try_from(axis).ok()).collect::<Option<_>>()?;
    <[usize; 4]>::try_from(perm).ok()
}

/// The operand with its heads side by side.
fn packed(cx: &View<'_>, patch: &mut Patch, name: &str, source: &Source) -> Found<Operand> {
    let shape = cx.shape(source.value).ok_or(Miss::No)?;
    let mut value = Operand::from(source.value);
    if source.perm != [0, 1, 2, 3] {
        let perm = source.perm.iter().map(|&axis| axis as i64).collect();
        value = patch.node(name, Transpose { perm: Some(perm) }, &[value]);
    }
    let shape: Shape = source.perm.iter().map(|&axis| shape[axis].clone()).collect();
    let wide = [shape[0].clone(), shape[1].clone(), &shape[2] * &shape[3]];
    reshaped(patch, name, value, &shape, &wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, leaves, refuses};
    use crate::driver::Pass;
    use crate::testing::{check, run};
    use expect_test::expect;

    const FEED: Feed<'static> = Feed { sizes: &[("b", 2), ("s", 3), ("t", 5)], ..PLAIN };

    const HEADS_APART: &str = "input %q0: f32[b,s,12] input %k0: f32[b,t,12] input %v0: f32[b,t,6] \
        const %by4: i64[4] = [0,0,3,4] const %by2: i64[4] = [0,0,3,2] const %back: i64[3] = [0,0,6] \
        %q1: f32[b,s,3,4] = Reshape(%q0, %by4) %k1: f32[b,t,3,4] = Reshape(%k0, %by4) \
        %v1: f32[b,t,3,2] = Reshape(%v0, %by2) %q: f32[b,3,s,4] = Transpose(%q1) {perm=[0,2,1,3]} \
        %k: f32[b,3,t,4] = Transpose(%k1) {perm=[0,2,1,3]} %v: f32[b,3,t,2] = Transpose(%v1) {perm=[0,2,1,3]}";

    #[test]
    fn transposes_go_into_the_operator() {
        let form = format!(
            "{HEADS_APART} input %m: f32[b,1,1,t] %a: f32[b,3,s,2] = Attention(%q, %k, %v, %m) {{scale=0.5}} \"attend\" \
             %t: f32[b,s,3,2] = Transpose(%a) {{perm=[0,2,1,3]}} %y: f32[b,s,6] = Reshape(%t, %back) output %y"
        );
        check(
            PACK_ATTENTION_HEADS,
            &form,
            expect![[r#"
            input %q0: f32[b,s,12]
            input %k0: f32[b,t,12]
            input %v0: f32[b,t,6]
            input %m: f32[b,1,1,t]
            const %by4: i64[4] = [0, 0, 3, 4]
            const %by2: i64[4] = [0, 0, 3, 2]
            const %back: i64[3] = [0, 0, 6]
            const %shape: i64[3] = [0, 0, 12]
            const %shape.1: i64[3] = [0, 0, 12]
            const %shape.2: i64[3] = [0, 0, 6]
            const %shape.3: i64[4] = [0, 0, 3, 2]
            %q1: f32[b,s,3,4] = Reshape(%q0, %by4)
            %k1: f32[b,t,3,4] = Reshape(%k0, %by4)
            %v1: f32[b,t,3,2] = Reshape(%v0, %by2)
            %attend: f32[b,s,12] = Reshape(%q1, %shape) "attend"
            %attend.1: f32[b,t,12] = Reshape(%k1, %shape.1) "attend"
            %attend.2: f32[b,t,6] = Reshape(%v1, %shape.2) "attend"
            %attend.3: f32[b,s,6] = Attention(%attend, %attend.1, %attend.2, %m) {kv_num_heads=3, q_num_heads=3, scale=0.5} "attend"
            %t: f32[b,s,3,2] = Reshape(%attend.3, %shape.3) "attend"
            %y: f32[b,s,6] = Reshape(%t, %back)
            output %y
        "#]],
        );
        agrees(PACK_ATTENTION_HEADS, &form, FEED);
    }

    #[test]
    fn other_transposes_keep_what_is_not_about_heads() {
        let form = "input %q1: f32[s,b,3,4] input %k1: f32[t,b,3,4] input %v1: f32[t,b,3,2] \
            %q: f32[b,3,s,4] = Transpose(%q1) {perm=[1,2,0,3]} %k: f32[b,3,t,4] = Transpose(%k1) {perm=[1,2,0,3]} \
            %v: f32[b,3,t,2] = Transpose(%v1) {perm=[1,2,0,3]} %a: f32[b,3,s,2] = Attention(%q, %k, %v) \
            %y: f32[s,b,3,2] = Transpose(%a) {perm=[2,0,1,3]} output %y";
        check(
            PACK_ATTENTION_HEADS,
            form,
            expect![[r#"
            input %q1: f32[s,b,3,4]
            input %k1: f32[t,b,3,4]
            input %v1: f32[t,b,3,2]
            const %shape: i64[3] = [0, 0, 12]
            const %shape.1: i64[3] = [0, 0, 12]
            const %shape.2: i64[3] = [0, 0, 6]
            const %shape.3: i64[4] = [0, 0, 3, 2]
            %Transpose: f32[b,s,3,4] = Transpose(%q1) {perm=[1,0,2,3]}
            %Reshape: f32[b,s,12] = Reshape(%Transpose, %shape)
            %Transpose.1: f32[b,t,3,4] = Transpose(%k1) {perm=[1,0,2,3]}
            %Reshape.1: f32[b,t,12] = Reshape(%Transpose.1, %shape.1)
            %Transpose.2: f32[b,t,3,2] = Transpose(%v1) {perm=[1,0,2,3]}
            %Reshape.2: f32[b,t,6] = Reshape(%Transpose.2, %shape.2)
            %Attention: f32[b,s,6] = Attention(%Reshape, %Reshape.1, %Reshape.2) {kv_num_heads=3, q_num_heads=3}
            %Reshape.3: f32[b,s,3,2] = Reshape(%Attention, %shape.3)
            %y: f32[s,b,3,2] = Transpose(%Reshape.3) {perm=[1,0,2,3]}
            output %y
        "#]],
        );
        agrees(PACK_ATTENTION_HEADS, form, FEED);
    }

    #[test]
    fn a_guard_against_rows_without_weights_goes_with_it() {
        let form = format!(
            "{HEADS_APART} input %m: f32[b,1,s,t] const %zero: f32[] = 0 const %axes: i64[1] = -2 \
             %a: f32[b,3,s,2] = Attention(%q, %k, %v, %m) {{scale=0.5}} \
             %n: f32[b,3,t,2] = Mul(%v, %zero) %z: f32[b,3,1,2] = ReduceSum(%n, %axes) {{keepdims=true}} \
             %i: bool[b,3,s,2] = IsNaN(%a) %g: f32[b,3,s,2] = Where(%i, %z, %a) \
             %t: f32[b,s,3,2] = Transpose(%g) {{perm=[0,2,1,3]}} %y: f32[b,s,6] = Reshape(%t, %back) output %y"
        );
        let (after, report) = run(Pass::rule(PACK_ATTENTION_HEADS), &form);
        assert_eq!(report.hits, 1, "{:?}", report.refusals);
        let text = after.print_whole();
        assert!(!text.contains("Transpose(") && text.contains("IsNaN("), "{text}");
        agrees(PACK_ATTENTION_HEADS, &form, FEED);
        // Rows of scores that are minus infinity throughout, and values that are not finite.
        agrees(PACK_ATTENTION_HEADS, &form, Feed { special: &[f64::NEG_INFINITY, f64::NAN], ..FEED });
    }

    #[test]
    fn a_result_that_stays_apart_is_refused() {
        refuses(
            PACK_ATTENTION_HEADS,
            &format!("{HEADS_APART} %y: f32[b,3,s,2] = Attention(%q, %k, %v) output %y"),
            "the result is not transposed, or read in other ways too",
        );
    }

    #[test]
    fn an_operand_that_is_not_transposed_is_refused() {
        refuses(
            PACK_ATTENTION_HEADS,
            "input %q: f32[b,3,s,4] %a: f32[b,3,s,4] = Attention(%q, %q, %q) \
             %y: f32[b,s,3,4] = Transpose(%a) {perm=[0,2,1,3]} output %y",
            "an operand is not transposed, or the number of its heads is not known",
        );
    }

    #[test]
    fn a_head_size_of_the_run_is_refused() {
        let form = "input %q1: f32[b,s,3,d] %q: f32[b,3,s,d] = Transpose(%q1) {perm=[0,2,1,3]} \
            %a: f32[b,3,s,d] = Attention(%q, %q, %q) %y: f32[b,s,3,d] = Transpose(%a) {perm=[0,2,1,3]} output %y";
        refuses(
            PACK_ATTENTION_HEADS,
            form,
            "a dimension is known only at run time, and another one may be 0",
        );
    }

    #[test]
    fn packed_heads_stay() {
        leaves(
            PACK_ATTENTION_HEADS,
            "input %q: f32[b,s,12] %y: f32[b,s,12] = Attention(%q, %q, %q) {kv_num_heads=3, q_num_heads=3} output %y",
        );
    }
}
