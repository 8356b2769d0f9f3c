//! Recognizes transposes between two changes of shape that are a transpose with fewer of them.
//!
//! Exporters merge axes, transpose and split them again: `[b,12,s,64] → [12·b,s,64] → [12·b,64,s] →
//! [b,12,64,s]` is one Transpose. Both shapes are cut into the smallest runs that neither a boundary before
//! nor one after goes through; these atoms are what is permuted.

use planish_ir::{NodeId, ValueId};
use planish_tensor::{Dim, Shape};

use crate::pattern::{Finder, Found, Miss, blocked, output, private, relying_on};
use crate::reshape::{reshaped, reshaped_input};
use crate::rule::{Operand, Patch};
use crate::transpose::{after, transpose_op, transposed};
use crate::view::View;

/// Transposes one after another that are taken as one; more are only in hostile graphs.
const MAX_TURNS: usize = 8;

/// Reshape, Transpose, Reshape (or Squeeze, Unsqueeze, Flatten) with at most one change of shape left.
pub(crate) const RECOGNIZE_TRANSPOSE: Finder = Finder { name: "recognize_transpose", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let y = output(node)?;
    let turned = reshaped_input(cx, node).ok_or(Miss::No)?;
    let Turned { merged, perm, transposes, name } = read_turns(cx, turned).ok_or(Miss::No)?;
    let (_, merge) = cx.producer(merged).ok_or(Miss::No)?;
    let x = reshaped_input(cx, merge).ok_or(Miss::No)?;
    let shapes = (cx.shape(x), cx.shape(merged), cx.shape(y));
    let (Some(before), Some(middle), Some(after)) = shapes else { return Err(Miss::No) };
    let move_ = Move::read(before, middle, &perm, after).ok_or(Miss::No)?;
    if move_.n_reshapes() > 1 {
        return Err(Miss::No);
    }
    private(cx, &transposes, root)?;
    let mut patch = Patch::new();
    let result = move_.build(&mut patch, &name, x, before, after)?;
    if result == Operand::from(x) && cx.is_output(y) && !cx.can_become_output(x) {
        return blocked("an output must differ from inputs, constants and other outputs");
    }
    patch.replace(y, result);
    Ok(relying_on(patch, &transposes))
}

/// Transposes one after another, and the permutation that they are together.
struct Turned {
    merged: ValueId,
    perm: Vec<usize>,
    transposes: Vec<NodeId>,
    name: String,
}

fn read_turns(cx: &View<'_>, turned: ValueId) -> Option<Turned> {
    let rank = cx.rank(turned)?;
    let mut found =
        Turned { merged: turned, perm: (0..rank).collect(), transposes: Vec::new(), name: String::new() };
    while let Some((id, node)) = cx.producer(found.merged).filter(|_| found.transposes.len() < MAX_TURNS)
        && let Some((input, before)) = transposed(cx, node)
    {
        found.perm = after(&before, &found.perm);
        found.merged = input;
        if found.transposes.is_empty() {
            found.name = node.name.to_string();
        }
        found.transposes.push(id);
    }
    (!found.transposes.is_empty()).then_some(found)
}

/// A run of elements that moves as a whole.
#[derive(Clone, Debug)]
struct Atom {
    size: Dim,
    /// The axis that it is part of before, and after.
    from: usize,
    to: usize,
    /// Its place after.
    place: usize,
}

/// Atoms in the order in which they lie before, and whether the axes before and after are cut by them.
struct Move {
    atoms: Vec<Atom>,
    reshapes_first: bool,
    reshapes_last: bool,
}

impl Move {
    fn read(before: &Shape, middle: &Shape, perm: &[usize], after: &Shape) -> Option<Move> {
        // Axes of size 1 hold nothing and move freely.
        let runs = common_runs(&axes_of(before), &axes_of(middle))?;
        let mut turned: Vec<usize> = Vec::with_capacity(runs.len());
        for axis in perm {
            turned.extend((0..runs.len()).filter(|&run| runs[run].second == *axis));
        }
        let sizes: Vec<(usize, Dim)> = turned.iter().map(|&run| (run, runs[run].size.clone())).collect();
        let fine = common_runs(&sizes, &axes_of(after))?;
        let mut order: Vec<usize> = (0..fine.len()).collect();
        // Parts of one run keep their order.
        order.sort_by_key(|&place| (fine[place].first, place));
        let mut atoms: Vec<Atom> = Vec::with_capacity(order.len());
        for place in order {
            let run = &fine[place];
            let (from, to) = (runs[run.first].first, run.second);
            match atoms.last_mut() {
                Some(last) if (last.from, last.to, last.place + 1) == (from, to, place) => {
                    last.size = &last.size * &run.size;
                    last.place = place;
                }
                _ => atoms.push(Atom { size: run.size.clone(), from, to, place }),
            }
        }
        let is_cut = |axes: Vec<(usize, Dim)>, axis_of: fn(&Atom) -> usize| {
            axes.iter().any(|(axis, _)| atoms.iter().filter(|atom| axis_of(atom) == *axis).count() != 1)
        };
        let reshapes_first = is_cut(axes_of(before), |atom| atom.from);
        let mut reshapes_last = is_cut(axes_of(after), |atom| atom.to);
        // Axes of size 1 come and go with a Reshape only; a first one brings those along that are after.
        if !reshapes_first && before.rank() != after.rank() {
            reshapes_last = true;
        }
        Some(Move { atoms, reshapes_first, reshapes_last })
    }

    fn n_reshapes(&self) -> usize {
        usize::from(self.reshapes_first) + usize::from(self.reshapes_last)
    }

    /// The nodes for the move.
    fn build(
        &self,
        patch: &mut Patch,
        name: &str,
        x: ValueId,
        before: &Shape,
        after: &Shape,
    ) -> Found<Operand> {
        let mut result = Operand::from(x);
        let mut shape = before.clone();
        if self.reshapes_first {
            let target = self.apart(before, after);
            result = reshape(patch, name, result, &shape, &target)?;
            shape = target;
        }
        let perm = self.perm(&shape, after);
        shape = perm.iter().filter_map(|&axis| shape.get(axis).cloned()).collect();
        if !perm.iter().copied().eq(0..perm.len()) {
            result = patch.node(name, transpose_op(&perm), &[result]);
        }
        match self.reshapes_last {
            true => reshape(patch, name, result, &shape, after),
            false => Ok(result),
        }
    }

    /// What the Transpose reads after a first Reshape: the atoms, and where no second Reshape follows as many axes of
    /// size 1 as are after, those of before where they were.
    fn apart(&self, before: &Shape, after: &Shape) -> Shape {
        if !self.reshapes_last && self.atoms.is_sorted_by_key(|atom| atom.place) {
            return after.clone();
        }
        let mut n_ones = match self.reshapes_last {
            true => 0,
            false => after.iter().filter(|dim| **dim == Dim::ONE).count(),
        };
        let mut apart = Vec::new();
        for (axis, dim) in before.iter().enumerate() {
            if *dim == Dim::ONE && n_ones > 0 {
                n_ones -= 1;
                apart.push(Dim::ONE);
            }
            apart.extend(self.atoms.iter().filter(|atom| atom.from == axis).map(|atom| atom.size.clone()));
        }
        std::iter::repeat_n(Dim::ONE, n_ones).chain(apart).collect()
    }

    /// For each axis after the Transpose the axis of what it reads.
    fn perm(&self, read: &Shape, after: &Shape) -> Vec<usize> {
        let mut ones = (0..read.rank()).filter(|&axis| read[axis] == Dim::ONE);
        // Atoms lie in their order, and axes that are not cut are atoms.
        let held: Vec<usize> = (0..read.rank()).filter(|&axis| read[axis] != Dim::ONE).collect();
        let mut places: Vec<usize> = (0..self.atoms.len()).collect();
        places.sort_by_key(|&idx| self.atoms[idx].place);
        let mut moved = places.into_iter().map(|idx| held[idx]);
        if self.reshapes_last {
            return ones.chain(moved).collect();
        }
        let of_axis = |dim: &Dim| if *dim == Dim::ONE { ones.next() } else { moved.next() };
        after.iter().filter_map(of_axis).collect()
    }
}

/// The axes that hold anything, with their sizes.
fn axes_of(shape: &Shape) -> Vec<(usize, Dim)> {
    shape.iter().cloned().enumerate().filter(|(_, dim)| *dim != Dim::ONE).collect()
}

/// A run that no boundary of either list goes through.
struct Run {
    size: Dim,
    first: usize,
    second: usize,
}

/// Cuts two lists of sizes with the same product at the boundaries of both; `None` if that cannot be done.
fn common_runs(first: &[(usize, Dim)], second: &[(usize, Dim)]) -> Option<Vec<Run>> {
    let (mut first, mut second) = (first.iter().cloned(), second.iter().cloned());
    let (mut a, mut b) = (first.next(), second.next());
    let mut runs = Vec::new();
    while let (Some((first_label, left)), Some((second_label, right))) = (&a, &b) {
        let (size, rest_left, rest_right) = if left == right {
            (left.clone(), None, None)
        } else if let Some(rest) = quotient(left, right) {
            (right.clone(), Some(rest), None)
        } else {
            (left.clone(), None, Some(quotient(right, left)?))
        };
        if size.is_unknown() {
            return None;
        }
        runs.push(Run { size, first: *first_label, second: *second_label });
        a = rest_left.map(|rest| (*first_label, rest)).or_else(|| first.next());
        b = rest_right.map(|rest| (*second_label, rest)).or_else(|| second.next());
    }
    (a.is_none() && b.is_none()).then_some(runs)
}

/// The quotient if the division leaves nothing, whatever the symbols stand for.
fn quotient(dividend: &Dim, divisor: &Dim) -> Option<Dim> {
    let quotient = dividend.floor_div(divisor);
    let is_exact = !quotient.is_unknown() && &quotient * divisor == *dividend && quotient != Dim::ZERO;
    is_exact.then_some(quotient)
}

/// A Reshape to this shape, if its sizes can be written down as constants.
fn reshape(patch: &mut Patch, name: &str, x: Operand, from: &Shape, to: &Shape) -> Found<Operand> {
    if to.iter().any(|dim| *dim == Dim::ZERO) {
        return blocked("a dimension is 0");
    }
    reshaped(patch, name, x, from, to.dims())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, becomes, leaves, refuses};

    const SIZES: &[(&str, i64)] = &[("b", 2), ("s", 5)];

    #[test]
    fn axes_merged_around_a_transpose_vanish() {
        let form = "input %x: f32[b,3,5,4] const %m: i64[3] = [-1,5,4] const %back: i64[4] = [-1,3,4,5] \
            %a: f32[3*b,5,4] = Reshape(%x, %m) %t: f32[3*b,4,5] = Transpose(%a) {perm=[0,2,1]} \
            %y: f32[b,3,4,5] = Reshape(%t, %back) output %y";
        becomes(
            RECOGNIZE_TRANSPOSE,
            form,
            "input %x: f32[b,3,5,4] %y: f32[b,3,4,5] = Transpose(%x) {perm=[0,1,3,2]} output %y",
            Feed { sizes: SIZES, ..PLAIN },
        );
    }

    #[test]
    fn one_of_two_reshapes_is_enough() {
        // Heads of PyTorch's MultiheadAttention, which has the batch in the second axis.
        let form = "input %x: f32[5,b,12] const %m: i64[3] = [5,-1,4] const %back: i64[4] = [-1,3,5,4] \
            %a: f32[5,3*b,4] = Reshape(%x, %m) %t: f32[3*b,5,4] = Transpose(%a) {perm=[1,0,2]} \
            %y: f32[b,3,5,4] = Reshape(%t, %back) output %y";
        becomes(
            RECOGNIZE_TRANSPOSE,
            form,
            "input %x: f32[5,b,12] const %shape: i64[4] = [5, 0, 3, 4] \
             %Reshape: f32[5,b,3,4] = Reshape(%x, %shape) \
             %y: f32[b,3,5,4] = Transpose(%Reshape) {perm=[1,2,0,3]} output %y",
            Feed { sizes: SIZES, ..PLAIN },
        );
    }

    #[test]
    fn axes_of_size_one_move_freely() {
        let form = "input %x: f32[5,b,3,4] const %zero: i64[1] = [0] const %three: i64[1] = [3] \
            %a: f32[1,5,b,3,4] = Unsqueeze(%x, %zero) %t: f32[3,5,b,1,4] = Transpose(%a) {perm=[3,1,2,0,4]} \
            %y: f32[3,5,b,4] = Squeeze(%t, %three) output %y";
        becomes(
            RECOGNIZE_TRANSPOSE,
            form,
            "input %x: f32[5,b,3,4] %y: f32[3,5,b,4] = Transpose(%x) {perm=[2,0,1,3]} output %y",
            Feed { sizes: SIZES, ..PLAIN },
        );
        let form = "input %x: f32[1,6,4] const %m: i64[3] = [2,3,4] const %back: i64[3] = [12,2,1] \
            %a: f32[2,3,4] = Reshape(%x, %m) %t: f32[3,4,2] = Transpose(%a) {perm=[1,2,0]} \
            %y: f32[12,2,1] = Reshape(%t, %back) output %y";
        leaves(RECOGNIZE_TRANSPOSE, form);
    }

    /// That a form over `x` of 5 steps, a batch of one and 3 heads of 4 is one reshape and this transpose.
    #[track_caller]
    fn becomes_transpose(form: &str, transpose: &str) {
        let wanted = format!(
            "input %x: f32[5,1,12] const %shape: i64[4] = [5, 1, 3, 4] \
             %Reshape: f32[5,1,3,4] = Reshape(%x, %shape) {transpose} output %y"
        );
        becomes(RECOGNIZE_TRANSPOSE, form, &wanted, PLAIN);
    }

    #[test]
    fn axes_of_size_one_come_along_with_the_first_reshape() {
        // PyTorch's MultiheadAttention for a batch of one: queries, keys and values, then the heads of one of them.
        let form = "input %x: f32[5,1,12] const %m: i64[5] = [1,5,1,3,4] const %back: i64[4] = [3,5,1,4] \
            %a: f32[1,5,1,3,4] = Reshape(%x, %m) %t: f32[3,5,1,1,4] = Transpose(%a) {perm=[3,1,2,0,4]} \
            %y: f32[3,5,1,4] = Reshape(%t, %back) output %y";
        becomes_transpose(form, "%y: f32[3,5,1,4] = Transpose(%Reshape) {perm=[2,0,1,3]}");
        let form = "input %x: f32[5,1,12] const %m: i64[3] = [5,3,4] const %back: i64[4] = [1,3,5,4] \
            %a: f32[5,3,4] = Reshape(%x, %m) %t: f32[3,5,4] = Transpose(%a) {perm=[1,0,2]} \
            %y: f32[1,3,5,4] = Reshape(%t, %back) output %y";
        becomes_transpose(form, "%y: f32[1,3,5,4] = Transpose(%Reshape) {perm=[1,2,0,3]}");
        // More of them after than before.
        let form = "input %x: f32[5,12] const %m: i64[3] = [5,3,4] const %back: i64[5] = [1,3,5,1,4] \
            %a: f32[5,3,4] = Reshape(%x, %m) %t: f32[3,5,4] = Transpose(%a) {perm=[1,0,2]} \
            %y: f32[1,3,5,1,4] = Reshape(%t, %back) output %y";
        agrees(RECOGNIZE_TRANSPOSE, form, PLAIN);
        // Fewer, and nothing that moves.
        let form = "input %x: f32[1,5,12] const %m: i64[4] = [5,1,3,4] const %back: i64[3] = [5,3,4] \
            %a: f32[5,1,3,4] = Reshape(%x, %m) %t: f32[1,5,3,4] = Transpose(%a) {perm=[1,0,2,3]} \
            %y: f32[5,3,4] = Reshape(%t, %back) output %y";
        agrees(RECOGNIZE_TRANSPOSE, form, PLAIN);
    }

    #[test]
    fn transposes_after_each_other_are_one() {
        let form = "input %x: f32[5,1,12] const %m: i64[3] = [5,3,4] const %back: i64[4] = [1,3,4,5] \
            %a: f32[5,3,4] = Reshape(%x, %m) %t: f32[3,5,4] = Transpose(%a) {perm=[1,0,2]} \
            %u: f32[3,4,5] = Transpose(%t) {perm=[0,2,1]} %y: f32[1,3,4,5] = Reshape(%u, %back) output %y";
        becomes_transpose(form, "%y: f32[1,3,4,5] = Transpose(%Reshape) {perm=[1,2,3,0]}");
        refuses(
            RECOGNIZE_TRANSPOSE,
            &form.replace("output %y", "output %y, %t"),
            "`t` is an output of the graph",
        );
    }

    #[test]
    fn a_transpose_that_moves_nothing_is_a_reshape() {
        let form = "input %x: f32[2,3,4] const %m: i64[4] = [1,2,3,4] const %back: i64[2] = [2,12] \
            %a: f32[1,2,3,4] = Reshape(%x, %m) %t: f32[2,1,3,4] = Transpose(%a) {perm=[1,0,2,3]} \
            %y: f32[2,12] = Reshape(%t, %back) output %y";
        becomes(
            RECOGNIZE_TRANSPOSE,
            form,
            "input %x: f32[2,3,4] const %shape: i64[2] = [2, 12] %y: f32[2,12] = Reshape(%x, %shape) \
             output %y",
            PLAIN,
        );
    }

    #[test]
    fn a_shuffle_of_channels_stays() {
        leaves(
            RECOGNIZE_TRANSPOSE,
            "input %x: f32[b,6,7,7] const %m: i64[5] = [-1,2,3,7,7] const %back: i64[4] = [-1,6,7,7] \
             %a: f32[b,2,3,7,7] = Reshape(%x, %m) %t: f32[b,3,2,7,7] = Transpose(%a) {perm=[0,2,1,3,4]} \
             %y: f32[b,6,7,7] = Reshape(%t, %back) output %y",
        );
    }

    #[test]
    fn sizes_of_the_run_are_refused() {
        refuses(
            RECOGNIZE_TRANSPOSE,
            "input %x: f32[2*b,s] input %m: i64[2] input %back: i64[3] %a: f32[b,2*s] = Reshape(%x, %m) \
             %t: f32[2*s,b] = Transpose(%a) {perm=[1,0]} %y: f32[2,s,b] = Reshape(%t, %back) output %y",
            "two dimensions are known only at run time",
        );
    }

    #[test]
    fn a_transpose_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_TRANSPOSE,
            "input %x: f32[b,3,5,4] const %m: i64[3] = [-1,5,4] const %back: i64[4] = [-1,3,4,5] \
             %a: f32[3*b,5,4] = Reshape(%x, %m) %t: f32[3*b,4,5] = Transpose(%a) {perm=[0,2,1]} \
             %y: f32[b,3,4,5] = Reshape(%t, %back) output %y, %t",
            "`t` is an output of the graph",
        );
    }
}
