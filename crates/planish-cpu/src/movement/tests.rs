//! Every movement operator against the reference, bit by bit, over element widths, edge sizes and operands of
//! either layout that lie inside larger ones.

use planish_kernel::movement::Walk;
use planish_kernel::{Budget, Layout, Operand, Ref};
use planish_op::*;
use planish_tensor::{DType, Tensor};
use planish_testing::Random;

use super::copy::{Copy, Core};
use super::{MoveFamily, PickFamily};
use crate::family::Family;
use crate::isa::Isa;
use crate::trial::{Input, OpTrial};

const WIDTHS: [DType; 5] = [DType::U8, DType::F16, DType::F32, DType::I64, DType::Bool];

fn ints(values: &[i64]) -> Input {
    Input::Parameter(Tensor::vector(values.to_vec()))
}

/// Sizes around the edges of blocks and tiles, small ones more often.
fn size(random: &mut Random) -> usize {
    [0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33, 63, 64, 65][random.below(17)]
}

fn sizes(random: &mut Random, rank: usize) -> Vec<usize> {
    let mut dims: Vec<usize> = (0..rank).map(|_| size(random)).collect();
    while dims.iter().product::<usize>() > 40_000 {
        let at = random.below(rank);
        dims[at] = dims[at].min(random.between(1, 5));
    }
    if rank > 0 && !random.chance(20) {
        dims.iter_mut().for_each(|dim| *dim = (*dim).max(1));
    }
    dims
}

fn data(random: &mut Random, dims: &[usize]) -> Input {
    let dtype = WIDTHS[random.below(WIDTHS.len())];
    Input::Data(random.raw(dtype, dims))
}

#[test]
fn transposes() {
    let mut random = Random::new(1);
    for _ in 0..300 {
        let rank = random.between(0, 5);
        let dims = sizes(&mut random, rank);
        let mut perm: Vec<i64> = (0..rank as i64).collect();
        for at in (1..rank).rev() {
            perm.swap(at, random.below(at + 1));
        }
        let op = Transpose { perm: (!random.chance(8)).then_some(perm) };
        OpTrial::new(op, &[data(&mut random, &dims)], 1).check_exact(&MoveFamily, &mut random, None);
    }
}

#[test]
fn reorders_between_layouts() {
    let mut random = Random::new(2);
    for _ in 0..200 {
        let rank = random.between(2, 5);
        let dims = sizes(&mut random, rank);
        OpTrial::new(Identity {}, &[data(&mut random, &dims)], 1).check_exact(&MoveFamily, &mut random, None);
    }
}

#[test]
fn expansions_and_tiles() {
    let mut random = Random::new(3);
    for _ in 0..150 {
        let rank = random.between(0, 4);
        let target = sizes(&mut random, rank);
        let kept = random.below(rank + 1);
        let mut dims = target[kept..].to_vec();
        dims.iter_mut().for_each(|dim| *dim = if random.chance(2) { 1 } else { *dim });
        let target: Vec<i64> = target.iter().map(|dim| *dim as i64).collect();
        OpTrial::new(Expand {}, &[data(&mut random, &dims), ints(&target)], 1).check_exact(
            &MoveFamily,
            &mut random,
            None,
        );
        let rank = random.between(1, 4);
        let dims: Vec<usize> = (0..rank).map(|_| random.between(1, 9)).collect();
        let repeats: Vec<i64> = (0..rank).map(|_| random.below(4) as i64).collect();
        OpTrial::new(Tile {}, &[data(&mut random, &dims), ints(&repeats)], 1).check_exact(
            &MoveFamily,
            &mut random,
            None,
        );
    }
}

#[test]
fn blocks_of_depth_and_space() {
    let mut random = Random::new(4);
    for _ in 0..60 {
        let block = random.between(1, 3);
        let (n, c, h, w) =
            (random.between(0, 2), random.between(1, 20), random.between(1, 9), random.between(1, 9));
        let mode = if random.chance(2) { DepthToSpaceMode::Dcr } else { DepthToSpaceMode::Crd };
        let deep = data(&mut random, &[n, c * block * block, h, w]);
        let op = DepthToSpace { mode, blocksize: block as i64 };
        OpTrial::new(op, &[deep], 1).check_exact(&MoveFamily, &mut random, None);
        let wide = data(&mut random, &[n, c, h * block, w * block]);
        let op = SpaceToDepth { blocksize: block as i64 };
        OpTrial::new(op, &[wide], 1).check_exact(&MoveFamily, &mut random, None);
    }
}

#[test]
fn concatenations_and_splits() {
    let mut random = Random::new(5);
    for _ in 0..150 {
        let rank = random.between(1, 4);
        let dims = sizes(&mut random, rank);
        let axis = random.below(rank);
        let dtype = WIDTHS[random.below(5)];
        let parts: Vec<usize> = (0..random.between(1, 4)).map(|_| random.below(9)).collect();
        let inputs: Vec<Input> = parts
            .iter()
            .map(|part| {
                let mut dims = dims.clone();
                dims[axis] = *part;
                let tensor = random.raw(dtype, &dims);
                if random.chance(4) { Input::Parameter(tensor) } else { Input::Data(tensor) }
            })
            .collect();
        let axis = if random.chance(2) { axis as i64 } else { axis as i64 - rank as i64 };
        let concat = OpTrial::new(Concat { axis }, &inputs, 1);
        concat.check_exact(&MoveFamily, &mut random, None);
        let sizes: Vec<i64> = parts.iter().map(|part| *part as i64).collect();
        let whole = Input::Data(concat.want[0].clone());
        let op = Split { num_outputs: None, axis };
        OpTrial::new(op, &[whole, ints(&sizes)], parts.len()).check_exact(&MoveFamily, &mut random, None);
    }
}

#[test]
fn slices() {
    let mut random = Random::new(6);
    for _ in 0..300 {
        let rank = random.between(1, 4);
        let dims = sizes(&mut random, rank);
        let n = random.between(1, rank);
        let bound = |random: &mut Random| match random.below(8) {
            0 => i64::MAX,
            1 => i64::MIN,
            _ => random.below(80) as i64 - 40,
        };
        let starts: Vec<i64> = (0..n).map(|_| bound(&mut random)).collect();
        let ends: Vec<i64> = (0..n).map(|_| bound(&mut random)).collect();
        let axes: Vec<i64> = (0..n as i64).map(|axis| axis - rank as i64).collect();
        let steps: Vec<i64> =
            (0..n).map(|_| [1, 1, 1, 2, 3, -1, -2, i64::MAX, i64::MIN][random.below(9)]).collect();
        let inputs = [data(&mut random, &dims), ints(&starts), ints(&ends), ints(&axes), ints(&steps)];
        OpTrial::new(Slice {}, &inputs, 1).check_exact(&MoveFamily, &mut random, None);
    }
}

#[test]
fn slices_whose_ends_a_run_brings() {
    let mut random = Random::new(61);
    for _ in 0..100 {
        let rank = random.between(1, 4);
        let dims = sizes(&mut random, rank);
        let n = random.between(1, rank);
        let starts: Vec<i64> = (0..n).map(|_| random.below(20) as i64 - 10).collect();
        let ends = Tensor::vector((0..n).map(|_| random.below(80) as i64 - 40).collect::<Vec<i64>>());
        let axes: Vec<i64> = (0..n as i64).map(|axis| axis - rank as i64).collect();
        let inputs = [data(&mut random, &dims), ints(&starts), Input::Data(ends), ints(&axes)];
        OpTrial::new(Slice {}, &inputs, 1).check_exact(&MoveFamily, &mut random, None);
    }
}

#[test]
fn pads() {
    let mut random = Random::new(7);
    for _ in 0..300 {
        let rank = random.between(1, 4);
        let dims: Vec<usize> = (0..rank).map(|_| random.between(1, 9)).collect();
        let mode = [PadMode::Constant, PadMode::Constant, PadMode::Edge, PadMode::Reflect, PadMode::Wrap]
            [random.below(5)];
        let amount = |random: &mut Random, dim: usize| {
            if random.chance(5) { -(random.below(dim.div_ceil(2)) as i64) } else { random.below(7) as i64 }
        };
        let mut pads: Vec<i64> = dims.iter().map(|dim| amount(&mut random, *dim)).collect();
        pads.extend(dims.iter().map(|dim| amount(&mut random, *dim)).collect::<Vec<_>>());
        let dtype = WIDTHS[random.below(5)];
        let value = random.raw(dtype, &[]);
        let value = if random.chance(2) { Input::Parameter(value) } else { Input::Absent };
        let inputs = [Input::Data(random.raw(dtype, &dims)), ints(&pads), value];
        OpTrial::new(Pad { mode }, &inputs, 1).check_exact(&MoveFamily, &mut random, None);
    }
    // Cut beyond its end, nothing is left but the constant.
    for pads in [[-5, 4], [4, -5]] {
        let inputs = [Input::Data(random.raw(DType::F32, &[3])), ints(&pads)];
        OpTrial::new(Pad { mode: PadMode::Constant }, &inputs, 1).check_exact(&MoveFamily, &mut random, None);
    }
}

#[test]
fn regrouping_is_a_run_where_both_sides_are_dense() {
    let mut random = Random::new(8);
    let x = random.raw(DType::F32, &[4, 6, 5]);
    let sample = OpTrial::new(Reshape { allowzero: false }, &[Input::Data(x), ints(&[2, -1])], 1);
    let from = Operand::dense(DType::F32, &[4, 6, 5], Layout::Plain);
    let to = Operand::dense(DType::F32, &[2, 60], Layout::Plain);
    let got = sample.run(&MoveFamily, Isa::best(), std::slice::from_ref(&from), std::slice::from_ref(&to));
    assert_eq!(got.unwrap(), sample.want);
    let last = Operand::dense(DType::F32, &[4, 6, 5], Layout::ChannelsLast);
    assert!(sample.run(&MoveFamily, Isa::best(), &[last], &[to]).is_err());
}

#[test]
fn what_sizes_settle_is_made_once() {
    let mut random = Random::new(13);
    for dims in [vec![], vec![3], vec![2, 0, 5], vec![4, 5, 6, 7]] {
        let x = data(&mut random, &dims);
        for (start, end) in [(0, None), (-2, None), (1, Some(-1)), (9, Some(-9))] {
            OpTrial::new(Shape { start, end }, std::slice::from_ref(&x), 1).check_exact(
                &MoveFamily,
                &mut random,
                None,
            );
        }
        OpTrial::new(Size {}, &[x], 1).check_exact(&MoveFamily, &mut random, None);
        // Sizes that only a run brings are the output's all the same.
        let sizes: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
        let sizes = Input::Data(Tensor::vector(sizes));
        for value in [None, Some(Tensor::scalar(7u8)), Some(Tensor::vector(vec![-1i64]))] {
            OpTrial::new(ConstantOfShape { value }, std::slice::from_ref(&sizes), 1).check_exact(
                &MoveFamily,
                &mut random,
                None,
            );
        }
        let one = Input::Data(random.raw(DType::F32, &vec![1; dims.len()]));
        OpTrial::new(Expand {}, &[one.clone(), sizes.clone()], 1).check_exact(&MoveFamily, &mut random, None);
        OpTrial::new(Tile {}, &[one, sizes], 1).check_exact(&MoveFamily, &mut random, None);
    }
    for [start, limit, delta] in [[0i64, 9, 1], [5, -7, -3], [2, 2, 1]] {
        let inputs = [
            Input::Parameter(Tensor::scalar(start)),
            Input::Data(Tensor::scalar(limit)),
            Input::Parameter(Tensor::scalar(delta)),
        ];
        OpTrial::new(Range { stash_type: 1 }, &inputs, 1).check_exact(&MoveFamily, &mut random, None);
    }
}

/// Indices between minus and plus the size.
fn indices(random: &mut Random, dims: &[usize], below: &dyn Fn(usize) -> usize) -> Tensor {
    let values: Vec<i64> = (0..dims.iter().product())
        .map(|idx| {
            let size = below(idx);
            let place = random.below(size) as i64;
            if random.chance(3) { place - size as i64 } else { place }
        })
        .collect();
    match random.chance(2) {
        true => Tensor::new(dims, values).unwrap(),
        false => Tensor::new(dims, values.iter().map(|value| *value as i32).collect::<Vec<i32>>()).unwrap(),
    }
}

/// The same, or now and then as a constant of the region.
fn fixed(random: &mut Random, input: &Input) -> Input {
    match input {
        Input::Data(tensor) if random.chance(3) => Input::Parameter(tensor.clone()),
        other => other.clone(),
    }
}

/// Operands but the indices of random layouts inside larger ones; the indices dense.
fn check_picks(sample: &OpTrial, random: &mut Random) {
    for isa in Isa::available() {
        let mut operand = |tensor: &Tensor| {
            let layout = [Layout::Plain, Layout::ChannelsLast][random.below(2)];
            random.operand(tensor.dtype(), tensor.shape(), layout)
        };
        let mut inputs: Vec<Operand> = sample.data.iter().map(&mut operand).collect();
        let outputs: Vec<Operand> = sample.want.iter().map(&mut operand).collect();
        if let Some(Some(Ref::Input(index))) = sample.region.nodes[0].inputs.get(1) {
            let index = &mut inputs[*index as usize];
            *index = Operand::dense(index.dtype, &index.dims, Layout::Plain);
        }
        let got = sample.run(&PickFamily, isa, &inputs, &outputs).unwrap();
        assert!(got == sample.want, "{isa} {:?}", sample.region.nodes[0].op);
    }
}

#[test]
fn gathers() {
    let mut random = Random::new(9);
    for round in 0..200 {
        let rank = random.between(1, 4);
        let dims: Vec<usize> = sizes(&mut random, rank).iter().map(|dim| (*dim).max(1)).collect();
        let axis = random.below(rank);
        let n_index = random.below(3);
        let index_dims: Vec<usize> = (0..n_index).map(|_| random.below(6)).collect();
        let index = indices(&mut random, &index_dims, &|_| dims[axis]);
        let op = Gather { axis: axis as i64 };
        let x = data(&mut random, &dims);
        if round % 3 == 0 {
            let sample = OpTrial::new(op, &[x, Input::Parameter(index)], 1);
            sample.check_exact(&MoveFamily, &mut random, None);
        } else {
            check_picks(&OpTrial::new(op, &[x, Input::Data(index)], 1), &mut random);
        }
    }
}

#[test]
fn gathers_of_elements_and_tuples() {
    let mut random = Random::new(10);
    for _ in 0..200 {
        let rank = random.between(1, 4);
        let dims: Vec<usize> = sizes(&mut random, rank).iter().map(|dim| (*dim).max(1)).collect();
        let axis = random.below(rank);
        let index_dims: Vec<usize> = dims.iter().map(|dim| random.below(*dim + 1)).collect();
        let index = indices(&mut random, &index_dims, &|_| dims[axis]);
        let x = data(&mut random, &dims);
        let op = GatherElements { axis: axis as i64 };
        check_picks(&OpTrial::new(op, &[x.clone(), Input::Data(index)], 1), &mut random);

        let n_batch = random.below(rank);
        let depth = random.between(1, rank - n_batch);
        let mut index_dims = dims[..n_batch].to_vec();
        if random.chance(2) {
            index_dims.push(random.between(1, 7));
        }
        index_dims.push(depth);
        let index = indices(&mut random, &index_dims, &|idx| dims[n_batch + idx % depth]);
        let op = GatherND { batch_dims: n_batch as i64 };
        let inputs = [fixed(&mut random, &x), fixed(&mut random, &Input::Data(index))];
        check_picks(&OpTrial::new(op, &inputs, 1), &mut random);
    }
}

#[test]
fn scatters_write_in_order() {
    let mut random = Random::new(11);
    let reduction = ScatterReduction::None;
    for _ in 0..200 {
        let rank = random.between(1, 4);
        let dims: Vec<usize> = sizes(&mut random, rank).iter().map(|dim| (*dim).max(1)).collect();
        let axis = random.below(rank);
        let dtype = WIDTHS[random.below(5)];
        let x = Input::Data(random.raw(dtype, &dims));
        let index_dims: Vec<usize> = dims.iter().map(|dim| random.below(*dim + 1)).collect();
        let index = Input::Data(indices(&mut random, &index_dims, &|_| dims[axis]));
        let updates = Input::Data(random.raw(dtype, &index_dims));
        let op = ScatterElements { reduction, axis: axis as i64 };
        check_picks(&OpTrial::new(op, &[fixed(&mut random, &x), index, updates], 1), &mut random);

        let depth = random.between(1, rank);
        let n = random.between(0, 9);
        let index = Input::Data(indices(&mut random, &[n, depth], &|idx| dims[idx % depth]));
        let updates = Input::Data(random.raw(dtype, &[&[n], &dims[depth..]].concat()));
        let inputs = [x, fixed(&mut random, &index), fixed(&mut random, &updates)];
        check_picks(&OpTrial::new(ScatterND { reduction }, &inputs, 1), &mut random);
    }
}

#[test]
fn indices_outside_are_an_error_and_nothing_is_written() {
    for index in [3i64, -4, i64::MAX, i64::MIN] {
        let mut sample = OpTrial::new(
            Gather { axis: 0 },
            &[
                Input::Data(Tensor::new(&[3, 2], vec![1f32; 6]).unwrap()),
                Input::Data(Tensor::vector(vec![0i64, 0])),
            ],
            1,
        );
        sample.data[1] = Tensor::vector(vec![0i64, index]);
        let dense = |dtype, dims: &[usize]| Operand::dense(dtype, dims, Layout::Plain);
        let inputs = [dense(DType::F32, &[3, 2]), dense(DType::I64, &[2])];
        let error = sample.run(&PickFamily, Isa::best(), &inputs, &[dense(DType::F32, &[2, 2])]).unwrap_err();
        assert!(error.to_string().contains("outside an axis of size 3"), "{error}");
    }
}

#[test]
fn copies_are_planned_as_what_they_are() {
    let walk = |len, from, to| Walk { len, from, to };
    let core = |width, walks: &[Walk]| Copy::plan(Isa::best(), width, walks).unwrap().core();
    // Everything dense is one run, whatever its sizes.
    assert_eq!(core(4, &[walk(3, 80, 80), walk(5, 16, 16), walk(4, 4, 4)]), Core::Runs);
    assert_eq!(core(4, &[walk(16, 4, 400), walk(100, 64, 4)]), Core::Transpose);
    // Pairs of elements travel as one.
    assert_eq!(core(4, &[walk(16, 8, 800), walk(100, 128, 8), walk(2, 4, 4)]), Core::Transpose);
    assert_eq!(core(4, &[walk(16, 4, 64), walk(16, 0, 4)]), Core::Transpose);
    assert_eq!(core(4, &[walk(16, 8, 64), walk(16, 0, 4)]), Core::Repeat);
    assert_eq!(core(4, &[walk(16, -4, 4)]), Core::Strided);
}

#[test]
fn candidates_name_the_layouts_that_make_copies_cheap() {
    let sample = OpTrial::new(
        Transpose { perm: Some(vec![0, 2, 3, 1]) },
        &[Input::Data(Random::new(12).raw(DType::F32, &[1, 64, 16, 16]))],
        1,
    );
    let operand = |tensor: &Tensor| Operand::dense(DType::F32, tensor.shape(), Layout::Plain);
    let problem = sample.problem(&[operand(&sample.data[0])], &[operand(&sample.want[0])]);
    let candidates = MoveFamily.candidates(Isa::best(), &problem, &Budget::USUAL);
    assert_eq!(candidates.len(), 4);
    // From channels-last to plain nothing changes its place.
    assert_eq!((candidates[0].inputs[0].layout, candidates[0].outputs[0].layout), {
        (Layout::ChannelsLast, Layout::Plain)
    });
    assert!(candidates[0].predicted_ns < candidates[3].predicted_ns);
}
