//! Speed of pointwise programs, softmax, normalizations, rotary embeddings and reductions, in elements per nanosecond of this
//! thread's CPU time, with data in the first cache, the second, and memory:
//! `cargo bench -p planish-cpu --bench elements -- [FILTER] [ISA]`.
//!
//! Each line also has cycles per element, by a clock measured in turn from a chain of dependent additions.

#![allow(unsafe_code)]

use planish_cpu::Cpu;
use planish_cpu::isa::Isa;
use planish_kernel::{
    Address, Budget, Call, Compiler, Device, Layout, Memory, Numeric, Operand, Problem, QueueOptions, Ref,
    Region, RegionNode,
};
use planish_op::{self as op, Op};
use planish_tensor::{DType, Tensor};

/// Seconds of CPU that this thread has used.
fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Nanoseconds of a cycle: dependent integer additions take one each.
fn cycle_ns() -> f64 {
    const ROUNDS: u64 = 2_000_000;
    let start = thread_time();
    let mut sum = std::hint::black_box(1u64);
    for _ in 0..ROUNDS {
        sum = std::hint::black_box(sum.wrapping_add(3));
    }
    // `black_box` goes through memory: a store and a load that are forwarded, 1 cycle or more; so this is only
    // a guide, and the figure that counts is elements per nanosecond.
    let spent = thread_time() - start;
    std::hint::black_box(sum);
    spent * 1e9 / ROUNDS as f64
}

struct Case {
    name: &'static str,
    region: Region,
    inputs: fn(usize) -> Vec<Vec<usize>>,
    layout: Layout,
}

fn region(n_inputs: u32, constants: Vec<Tensor>, nodes: Vec<(Op, Vec<Option<Ref>>)>) -> Region {
    let last = nodes.len() as u32 - 1;
    let nodes = nodes
        .into_iter()
        .map(|(op, inputs)| RegionNode { name: op.name().to_string(), op, inputs, n_outputs: 1 })
        .collect();
    Region { n_inputs, constants, nodes, outputs: vec![Ref::Node { node: last, output: 0 }] }
}

fn input(idx: u32) -> Option<Ref> {
    Some(Ref::Input(idx))
}

fn node(idx: u32) -> Option<Ref> {
    Some(Ref::Node { node: idx, output: 0 })
}

fn constant(idx: u32) -> Option<Ref> {
    Some(Ref::Constant(idx))
}

fn named(name: &str) -> Op {
    Op::from_attributes(name, &[]).expect("an operator without required attributes")
}

fn unary(name: &'static str) -> Case {
    let region = region(1, vec![], vec![(named(name), vec![input(0)])]);
    Case { name, region, inputs: |n| vec![vec![n]], layout: Layout::Plain }
}

fn cases() -> Vec<Case> {
    let plain = Layout::Plain;
    let channels = |layout, name, inputs| Case {
        name,
        region: region(
            3,
            vec![],
            vec![
                (named("Mul"), vec![input(0), input(1)]),
                (named("Add"), vec![node(0), input(2)]),
                (named("Relu"), vec![node(1)]),
            ],
        ),
        inputs,
        layout,
    };
    let group = |layout, name| Case {
        name,
        region: region(
            3,
            vec![],
            vec![
                (
                    op::GroupNormalization { stash_type: 1, num_groups: 32, epsilon: 1e-5 }.into(),
                    (0..3).map(input).collect(),
                ),
                (named("Sigmoid"), vec![node(0)]),
                (named("Mul"), vec![node(0), node(1)]),
            ],
        ),
        inputs: |n| vec![vec![1, 128, n.div_ceil(128 * 32), 32], vec![128], vec![128]],
        layout,
    };
    let reduce = |name, axes: Vec<i64>, inputs| Case {
        name,
        region: region(
            1,
            vec![Tensor::vector(axes)],
            vec![(
                op::ReduceMean { noop_with_empty_axes: false, keepdims: true }.into(),
                vec![input(0), constant(0)],
            )],
        ),
        inputs,
        layout: plain,
    };
    let mut list = vec![
        Case {
            name: "Add",
            region: region(2, vec![], vec![(named("Add"), vec![input(0), input(1)])]),
            inputs: |n| vec![vec![n], vec![n]],
            layout: plain,
        },
        Case {
            name: "Add+Relu",
            region: region(
                2,
                vec![],
                vec![(named("Add"), vec![input(0), input(1)]), (named("Relu"), vec![node(0)])],
            ),
            inputs: |n| vec![vec![n], vec![n]],
            layout: plain,
        },
        channels(Layout::ChannelsLast, "scale+shift+Relu, 64 channels last", |n| {
            vec![vec![1, 64, n.div_ceil(64 * 8), 8], vec![64, 1, 1], vec![64, 1, 1]]
        }),
        channels(plain, "scale+shift+Relu, 64 channels plain", |n| {
            vec![vec![1, 64, n.div_ceil(64 * 8), 8], vec![64, 1, 1], vec![64, 1, 1]]
        }),
        channels(plain, "scale+shift+Relu, 7x7 plain", |n| {
            vec![vec![1, n.div_ceil(49), 7, 7], vec![n.div_ceil(49), 1, 1], vec![n.div_ceil(49), 1, 1]]
        }),
        Case {
            name: "Sigmoid+Mul of two",
            region: region(
                2,
                vec![],
                vec![(named("Sigmoid"), vec![input(0)]), (named("Mul"), vec![node(0), input(1)])],
            ),
            inputs: |n| vec![vec![n], vec![n]],
            layout: plain,
        },
    ];
    for name in [
        "Relu",
        "HardSwish",
        "Exp",
        "Sigmoid",
        "Swish",
        "Tanh",
        "Erf",
        "Gelu",
        "Mish",
        "Softplus",
        "Log",
        "Sin",
    ] {
        list.push(unary(name));
    }
    for (name, inputs) in [
        ("Softmax of 64", (|n| vec![vec![n / 64, 64]]) as fn(usize) -> Vec<Vec<usize>>),
        ("Softmax of 197", |n| vec![vec![n / 197, 197]]),
        ("Softmax of 1024", |n| vec![vec![n / 1024, 1024]]),
    ] {
        let region = region(1, vec![], vec![(op::Softmax { axis: -1 }.into(), vec![input(0)])]);
        list.push(Case { name, region, inputs, layout: plain });
    }
    list.push(Case {
        name: "Softmax across",
        region: region(1, vec![], vec![(op::Softmax { axis: 1 }.into(), vec![input(0)])]),
        inputs: |n| vec![vec![n.div_ceil(21 * 64), 21, 64]],
        layout: plain,
    });
    for (name, inputs) in [
        (
            "LayerNormalization of 768",
            (|n| vec![vec![n.div_ceil(768), 768], vec![768], vec![768]]) as fn(usize) -> Vec<Vec<usize>>,
        ),
        ("LayerNormalization of 96", |n| vec![vec![n.div_ceil(96), 96], vec![96], vec![96]]),
    ] {
        let op: Op = op::LayerNormalization { stash_type: 1, epsilon: 1e-5, axis: -1 }.into();
        let region = region(3, vec![], vec![(op, (0..3).map(input).collect())]);
        list.push(Case { name, region, inputs, layout: plain });
    }
    for (name, interleaved) in
        [("RotaryEmbedding of halves of 64", false), ("RotaryEmbedding of neighbours of 64", true)]
    {
        let op = op::RotaryEmbedding { num_heads: None, rotary_embedding_dim: 0, interleaved };
        list.push(Case {
            name,
            region: region(3, vec![], vec![(op.into(), (0..3).map(input).collect())]),
            inputs: |n| {
                let seq = n.div_ceil(8 * 64);
                vec![vec![1, 8, seq, 64], vec![1, seq, 32], vec![1, seq, 32]]
            },
            layout: plain,
        });
    }
    list.push(group(plain, "GroupNormalization+Swish plain"));
    list.push(group(Layout::ChannelsLast, "GroupNormalization+Swish channels last"));
    list.push(reduce("ReduceMean of rows of 768", vec![1], |n| vec![vec![n.div_ceil(768), 768]]));
    list.push(reduce("ReduceMean of 49 across", vec![1], |n| vec![vec![n.div_ceil(49 * 256), 49, 256]]));
    list
}

/// Elements per nanosecond of a case with about `n` elements.
fn measure(cpu: &Cpu, case: &Case, n: usize) -> Option<f64> {
    let dims = (case.inputs)(n);
    let rank = dims[0].len();
    let lay = |dims: &Vec<usize>| {
        let layout = if dims.len() == rank { case.layout } else { Layout::Plain };
        Operand::dense(DType::F32, dims, layout)
    };
    let inputs: Vec<Operand> = dims.iter().map(lay).collect();
    let mut problem =
        Problem { region: case.region.clone(), inputs, outputs: vec![], numeric: Numeric::F32, threads: 1 };
    let last = problem.inner_types().ok()?.pop()?.pop()?;
    problem.outputs = vec![lay(&last.dims)];
    let candidates = cpu.candidates(&problem, &Budget::USUAL);
    let candidate =
        candidates.iter().find(|candidate| !candidate.slow && candidate.outputs[0].layout == case.layout);
    let kernel = cpu.prepare(&problem, &candidate.or(candidates.first())?.tactic).ok()?;
    let allocate = |operand: &Operand| {
        let memory = cpu.allocate(operand.span_bytes()).expect("memory");
        let at = std::ptr::with_exposed_provenance_mut::<f32>(memory.address().0 as usize);
        for idx in 0..operand.span_bytes() / 4 {
            // SAFETY: the memory was just allocated with this size.
            unsafe { *at.add(idx) = (idx * 37 % 201) as f32 * 0.05 - 5.0 };
        }
        memory
    };
    let memories: Vec<Box<dyn Memory>> =
        problem.inputs.iter().chain(&problem.outputs).map(allocate).collect();
    let addresses: Vec<Address> = memories.iter().map(|memory| memory.address()).collect();
    let (from, to) = addresses.split_at(problem.inputs.len());
    let workspace = cpu.allocate(kernel.workspace_bytes()).expect("memory");
    let mut queue = cpu.queue(QueueOptions::new(1)).ok()?;
    let call = Call { inputs: from, outputs: to, workspace: workspace.address(), fault: Address::NULL };
    let n_elements = problem.inputs[0].len();
    let rounds = (4_000_000 / n_elements).max(1);
    let mut best = f64::INFINITY;
    for _ in 0..9 {
        let start = thread_time();
        for _ in 0..rounds {
            // SAFETY: the memories span what the operands do.
            unsafe { kernel.launch(&call, &mut *queue) }.expect("a launch");
        }
        best = best.min((thread_time() - start) / rounds as f64);
    }
    Some(n_elements as f64 / best * 1e-9)
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let filter = args.next().unwrap_or_default();
    let isa = args.next().and_then(|name| Isa::named(&name)).unwrap_or_else(Isa::best);
    let cpu = Cpu::with_isa(isa);
    println!("{isa}; a dependent step takes {:.2} ns", cycle_ns());
    println!("{:40} {:>8} {:>8} {:>8}  elements/ns", "", "4 Ki", "64 Ki", "8 Mi");
    for case in cases().iter().filter(|case| case.name.contains(&filter)) {
        let rates = [1 << 12, 1 << 16, 1 << 23].map(|n| measure(&cpu, case, n).unwrap_or(f64::NAN));
        println!("{:40} {:8.2} {:8.2} {:8.2}", case.name, rates[0], rates[1], rates[2]);
    }
}
