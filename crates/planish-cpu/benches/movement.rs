//! Micro-benchmarks of kernels that are bound by memory: depthwise convolution against the multiply-add peak,
//! everything else against a plain copy. One thread; times are the thread's own CPU time, so that other load
//! on the machine counts little.
//!
//! `cargo bench -p planish-cpu --bench movement -- [depthwise|…]`

#![allow(unsafe_code)]

use std::time::Duration;

use planish_cpu::Cpu;
use planish_cpu::depthwise::{Depthwise, DepthwiseArguments, packed_len};
use planish_cpu::isa::Isa;
use planish_cpu::peak;
use planish_cpu::spatial::Windows;
use planish_cpu::team::Team;
use planish_kernel::{
    Address, Budget, Call, Compiler, Device, Layout, Memory, Numeric, Operand, Problem, QueueOptions, Ref,
    Region, RegionNode, WeightUse,
};
use planish_op::window::PlacedAxis;
use planish_op::*;
use planish_tensor::{DType, Tensor};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    println!(
        "copy of 64 MiB: {:.1} GB/s; of 256 KiB: {:.1} GB/s (read and written)",
        copy_rate(64 << 20),
        copy_rate(256 << 10)
    );
    if wants("depthwise") {
        depthwise();
    }
    if wants("copies") {
        copies();
    }
    if wants("pools") {
        pools();
    }
    if wants("resizes") {
        resizes();
    }
    if wants("bottlenecks") {
        bottlenecks();
    }
}

/// CPU nanoseconds of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Seconds of CPU that one call takes: the best of several rounds, each long enough for the clock.
fn seconds(mut call: impl FnMut()) -> f64 {
    call();
    let mut n = 1;
    loop {
        let from = cpu_ns();
        (0..n).for_each(|_| call());
        if Duration::from_nanos(cpu_ns() - from) > Duration::from_millis(20) {
            break;
        }
        n *= 2;
    }
    let round = || {
        let from = cpu_ns();
        (0..n).for_each(|_| call());
        (cpu_ns() - from) as f64 / n as f64 / 1e9
    };
    std::iter::repeat_with(round).take(7).fold(f64::MAX, f64::min)
}

fn copy_rate(bytes: usize) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![2u8; bytes]);
    let time = seconds(|| {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
    });
    2.0 * bytes as f64 / time / 1e9
}

fn peak_rate(isa: Isa) -> f64 {
    let n = 20_000;
    let mut flop = 0.0;
    let time = seconds(|| flop = peak::fma(isa, n));
    flop / time / 1e9
}

fn axis(input: usize, kernel: usize, stride: usize) -> PlacedAxis {
    let pad = kernel / 2;
    let output = (input + 2 * pad - kernel) / stride + 1;
    PlacedAxis { input, output, kernel, stride, dilation: 1, pad_begin: pad, pad_end: pad }
}

fn depthwise() {
    let cpu = Cpu::new();
    for (size, channels, kernel, stride) in [
        // All in the first-level cache.
        (16, 16, 3, 1),
        (40, 16, 3, 1),
        (112, 32, 3, 1),
        (112, 96, 3, 2),
        (56, 144, 3, 1),
        (28, 192, 3, 1),
        (14, 384, 3, 1),
        (14, 576, 3, 2),
        (7, 960, 3, 1),
        (28, 240, 5, 1),
        (14, 480, 5, 1),
        (7, 1152, 5, 1),
        (56, 96, 7, 1),
        (14, 384, 7, 1),
    ] {
        let axes = [axis(size, kernel, stride), axis(size, kernel, stride)];
        let x = Operand::dense(DType::F32, &[1, channels, size, size], Layout::ChannelsLast);
        let out = axes[0].output;
        let y = Operand::dense(DType::F32, &[1, channels, out, out], Layout::ChannelsLast);
        // Memory of the backend begins on cache lines; vectors that cross them would cost twice.
        let allocate = |n: usize| cpu.allocate(4 * n).expect("memory");
        let pointer =
            |memory: &dyn Memory| std::ptr::with_exposed_provenance_mut::<f32>(memory.address().0 as usize);
        let (data, weights) = (allocate(x.len()), allocate(packed_len(channels, kernel * kernel)));
        let (bias, result) = (allocate(channels), allocate(y.len()));
        print!("depthwise {kernel}x{kernel}/{stride} {channels:5} x {size:3}²:");
        for isa in Isa::available() {
            let windows = Windows::new(&axes, &x, &y).expect("sizes fit");
            let plan = Depthwise::plan(isa, windows, channels, (0.0, 6.0)).expect("channels innermost");
            let team = Team::alone();
            let time = seconds(|| {
                let arguments = DepthwiseArguments {
                    x: pointer(&*data),
                    weights: pointer(&*weights),
                    bias: pointer(&*bias),
                    y: pointer(&*result),
                    hook: None,
                };
                // SAFETY: the buffers have the sizes of the operands.
                unsafe { plan.run(&arguments, &team) };
            });
            let rate = 2.0 * plan.macs() as f64 / time / 1e9;
            let moved = (x.len() + y.len()) as f64 * 4.0 / time / 1e9;
            print!(
                "  {isa} {:.0} µs {rate:.1} GFLOP/s ({:.0} %) {moved:.0} GB/s",
                time * 1e6,
                100.0 * rate / peak_rate(isa)
            );
        }
        println!();
    }
}

/// A problem of one operator through the backend, in the layouts of one of its candidates.
fn operator(
    name: &str,
    op: impl Into<Op>,
    constants: Vec<Tensor>,
    inputs: &[&[usize]],
    outputs: &[&[usize]],
) {
    let dense = |dims: &&[usize]| Operand::dense(DType::F32, dims, Layout::Plain);
    let mut region = Region::single(op.into(), inputs.len() as u32, outputs.len() as u32);
    region.nodes[0].inputs.extend((0..constants.len() as u32).map(|idx| Some(Ref::Constant(idx))));
    region.constants = constants;
    let problem = Problem {
        region,
        inputs: inputs.iter().map(dense).collect(),
        outputs: outputs.iter().map(dense).collect(),
        numeric: Numeric::F32,
        threads: 1,
    };
    let cpu = Cpu::new();
    for candidate in cpu.candidates(&problem, &Budget::USUAL).into_iter().filter(|candidate| !candidate.slow)
    {
        let mut problem = problem.clone();
        let sides = [(&mut problem.inputs, &candidate.inputs), (&mut problem.outputs, &candidate.outputs)];
        for (operands, wants) in sides {
            for (operand, want) in operands.iter_mut().zip(wants) {
                operand.strides = want.layout.strides(&operand.dims);
            }
        }
        let Ok(kernel) = cpu.prepare(&problem, &candidate.tactic) else { continue };
        let allocate = |operand: &Operand| cpu.allocate(operand.span_bytes()).expect("memory");
        let from: Vec<_> = problem.inputs.iter().map(allocate).collect();
        let to: Vec<_> = problem.outputs.iter().map(allocate).collect();
        let workspace = cpu.allocate(kernel.workspace_bytes()).expect("memory");
        let mut queue = cpu.queue(QueueOptions::new(1)).expect("a queue");
        let inputs: Vec<_> = from.iter().map(|memory| memory.address()).collect();
        let outputs: Vec<_> = to.iter().map(|memory| memory.address()).collect();
        let time = seconds(|| {
            let call = Call {
                inputs: &inputs,
                outputs: &outputs,
                workspace: workspace.address(),
                fault: Address::NULL,
            };
            // SAFETY: the memory was allocated for these operands.
            unsafe { kernel.launch(&call, &mut *queue) }.expect("it runs");
        });
        let bytes = problem.traffic_bytes();
        println!(
            "{name:34} {:13} -> {:13} {:8.1} µs {:5.1} GB/s ({:.0} % of a copy), predicted {:.1} µs",
            candidate.inputs[0].layout.name(),
            candidate.outputs[0].layout.name(),
            time * 1e6,
            bytes as f64 / time / 1e9,
            100.0 * bytes as f64 / time / 1e9 / copy_rate(bytes / 2),
            candidate.predicted_ns / 1e3,
        );
    }
}

fn copies() {
    operator("identity 64 x 112²", Identity {}, vec![], &[&[1, 64, 112, 112]], &[&[1, 64, 112, 112]]);
    operator("identity 256 x 14²", Identity {}, vec![], &[&[1, 256, 14, 14]], &[&[1, 256, 14, 14]]);
    operator("identity 3 x 224²", Identity {}, vec![], &[&[1, 3, 224, 224]], &[&[1, 3, 224, 224]]);
    operator("identity 8 x 64 x 256²", Identity {}, vec![], &[&[8, 64, 256, 256]], &[&[8, 64, 256, 256]]);
    let heads = Transpose { perm: Some(vec![0, 2, 1, 3]) };
    operator("transpose heads 128 x 12 x 64", heads, vec![], &[&[1, 128, 12, 64]], &[&[1, 12, 128, 64]]);
    let keys = Transpose { perm: Some(vec![0, 2, 3, 1]) };
    operator("transpose keys 128 x 12 x 64", keys, vec![], &[&[1, 128, 12, 64]], &[&[1, 12, 64, 128]]);
    operator("transpose 768 x 768", Transpose { perm: None }, vec![], &[&[768, 768]], &[&[768, 768]]);
    let pair: [&[usize]; 2] = [&[1, 64, 56, 56], &[1, 96, 56, 56]];
    operator("concat channels 64 + 96 x 56²", Concat { axis: 1 }, vec![], &pair, &[&[1, 160, 56, 56]]);
    let pads = Tensor::vector(vec![0i64, 0, 1, 1, 0, 0, 1, 1]);
    let pad = Pad { mode: PadMode::Constant };
    operator("pad 1 around 64 x 56²", pad, vec![pads], &[&[1, 64, 56, 56]], &[&[1, 64, 58, 58]]);
    let shuffle = DepthToSpace { mode: DepthToSpaceMode::Crd, blocksize: 2 };
    operator("pixel shuffle 64 x 64²", shuffle, vec![], &[&[1, 64, 64, 64]], &[&[1, 16, 128, 128]]);
    let bounds = vec![vec![0i64], vec![64], vec![1], vec![1]].into_iter().map(Tensor::vector).collect();
    operator("slice channels 64 of 160 x 56²", Slice {}, bounds, &[&[1, 160, 56, 56]], &[&[1, 64, 56, 56]]);
}

fn pools() {
    let max = |kernel: i64, stride: i64, pad: i64| MaxPool {
        storage_order: 0,
        dilations: vec![],
        ceil_mode: false,
        pads: vec![pad; 4],
        auto_pad: AutoPad::NotSet,
        strides: vec![stride; 2],
        kernel_shape: vec![kernel; 2],
    };
    operator("max 3x3/2 64 x 112²", max(3, 2, 1), vec![], &[&[1, 64, 112, 112]], &[&[1, 64, 56, 56]]);
    operator("max 2x2/2 64 x 256²", max(2, 2, 0), vec![], &[&[1, 64, 256, 256]], &[&[1, 64, 128, 128]]);
    operator(
        "global average 1280 x 7²",
        GlobalAveragePool {},
        vec![],
        &[&[1, 1280, 7, 7]],
        &[&[1, 1280, 1, 1]],
    );
}

fn resizes() {
    for (name, mode) in
        [("nearest", ResizeMode::Nearest), ("linear", ResizeMode::Linear), ("cubic", ResizeMode::Cubic)]
    {
        let Ok(Op::Resize(op)) = Op::from_attributes("Resize", &[]) else { return };
        let op = Resize { mode, ..op };
        let scales = vec![Tensor::vector(Vec::<f32>::new()), Tensor::vector(vec![1f32, 1.0, 2.0, 2.0])];
        let name = format!("{name} x2 64 x 64²");
        operator(&name, op, scales, &[&[1, 64, 64, 64]], &[&[1, 64, 128, 128]]);
    }
}

/// Seconds of every candidate of a problem that is not slow, with zeros for weights.
fn measured(problem: &Problem) -> Vec<(String, f64)> {
    let cpu = Cpu::new();
    let mut times = Vec::new();
    for candidate in cpu.candidates(problem, &Budget::USUAL).into_iter().filter(|candidate| !candidate.slow) {
        let mut laid = problem.clone();
        for (operand, want) in laid.inputs.iter_mut().zip(&candidate.inputs) {
            operand.strides = want.layout.strides(&operand.dims);
        }
        for (operand, want) in laid.outputs.iter_mut().zip(&candidate.outputs) {
            operand.strides = want.layout.strides(&operand.dims);
        }
        let mut memories = Vec::new();
        for (idx, format) in candidate.packed.iter().enumerate() {
            let bytes = match format {
                None => laid.inputs[idx].span_bytes(),
                Some(format) => {
                    laid.inputs[idx].packed = Some(format.clone());
                    let weight = Tensor::zeros(DType::F32, &laid.inputs[idx].dims).expect("a small weight");
                    let used = WeightUse::new(problem, &candidate.tactic, idx);
                    cpu.pack(used, &weight).expect("it packs").bytes.len()
                }
            };
            memories.push(cpu.allocate(bytes).expect("memory"));
        }
        let kernel = cpu.prepare(&laid, &candidate.tactic).expect("it prepares");
        let output = cpu.allocate(laid.outputs[0].span_bytes()).expect("memory");
        let workspace = cpu.allocate(kernel.workspace_bytes()).expect("memory");
        let mut queue = cpu.queue(QueueOptions::new(1)).expect("a queue");
        let inputs: Vec<_> = memories.iter().map(|memory| memory.address()).collect();
        let time = seconds(|| {
            let call = Call {
                inputs: &inputs,
                outputs: &[output.address()],
                workspace: workspace.address(),
                fault: Address::NULL,
            };
            // SAFETY: the memory was allocated for these operands.
            unsafe { kernel.launch(&call, &mut *queue) }.expect("it runs");
        });
        times.push((
            format!("{} (predicted {:.0} µs)", candidate.tactic.name, candidate.predicted_ns / 1e3),
            time,
        ));
    }
    times
}

fn bottlenecks() {
    let Ok(Op::Conv(plain)) = Op::from_attributes("Conv", &[]) else { return };
    for (c, width, k, size, stride) in
        [(16, 96, 24, 112, 2), (24, 144, 24, 56, 1), (24, 144, 32, 56, 2), (32, 192, 32, 28, 1)]
    {
        let out = (size - 1) / stride + 1;
        let image = |channels: usize, size: usize| {
            Operand::dense(DType::F32, &[1, channels, size, size], Layout::Plain)
        };
        // Nodes of each stage: a convolution of what came before, and a clamp after the first two.
        let stage = |group: usize, stride: usize, n: u32, at: u32, image: Ref| {
            let pad = if group > 1 { 1 } else { 0 };
            let strides = vec![stride as i64; 2];
            let op: Op = Conv { group: group as i64, pads: vec![pad; 4], strides, ..plain.clone() }.into();
            let node = |op: Op, inputs| RegionNode { name: op.name().to_string(), op, inputs, n_outputs: 1 };
            let mut nodes = vec![node(op, vec![Some(image), Some(Ref::Input(n)), Some(Ref::Input(n + 1))])];
            if at < 4 {
                let x = Some(Ref::Node { node: at, output: 0 });
                nodes.push(node(Clip {}.into(), vec![x, Some(Ref::Constant(0)), Some(Ref::Constant(1))]));
            }
            nodes
        };
        let problem = |nodes: Vec<RegionNode>, inputs: Vec<Operand>, output: Operand| Problem {
            region: Region {
                n_inputs: inputs.len() as u32,
                constants: vec![Tensor::scalar(0f32), Tensor::scalar(6f32)],
                outputs: vec![Ref::Node { node: nodes.len() as u32 - 1, output: 0 }],
                nodes,
            },
            inputs,
            outputs: vec![output],
            numeric: Numeric::F32,
            threads: 1,
        };
        let weights = |k: usize, c: usize, kernel: usize| {
            [Operand::weight(DType::F32, &[k, c, kernel, kernel]), Operand::weight(DType::F32, &[k])]
        };
        let (w0, w1, w2) = (weights(width, c, 1), weights(width, 1, 3), weights(k, width, 1));
        let first = Ref::Input(0);
        let alone = [
            problem(stage(1, 1, 1, 0, first), [&[image(c, size)], &w0[..]].concat(), image(width, size)),
            problem(
                stage(width, stride, 1, 0, first),
                [&[image(width, size)], &w1[..]].concat(),
                image(width, out),
            ),
            problem(stage(1, 1, 1, 4, first), [&[image(width, out)], &w2[..]].concat(), image(k, out)),
        ];
        let after = |node| Ref::Node { node, output: 0 };
        let mut nodes = stage(1, 1, 1, 0, first);
        nodes.extend(stage(width, stride, 3, 2, after(1)));
        let inputs = [&[image(c, size)], &w0[..], &w1[..]].concat();
        let two = problem(nodes.clone(), inputs.clone(), image(width, out));
        nodes.extend(stage(1, 1, 5, 4, after(3)));
        let three = problem(nodes, [inputs, w2.to_vec()].concat(), image(k, out));
        println!("bottleneck {c} -> {width} -> {k}, {size}²/{stride}:");
        for problem in alone.iter().chain([&two, &three]) {
            let mut times = measured(problem);
            times.sort_by(|a, b| a.1.total_cmp(&b.1));
            for (name, time) in times.iter().take(2) {
                println!("  {:24} {:8.1} µs  {name}", problem.region.ops(), time * 1e6);
            }
        }
    }
}
