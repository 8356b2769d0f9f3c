//! Speed of convolutions on layers of well-known models, every way that computes them, against the machine's
//! multiply-and-add peak, in this thread's CPU time: `cargo bench -p planish-cpu --bench conv -- [LAYER [ISA [WAY]]]`.
//!
//! Rates count the operations of the plain algorithm, so Winograd's may pass the peak. Peak and kernels are
//! measured in turn, so that a busy machine spoils none alone; medians are printed.

#![allow(unsafe_code)]

use planish_cpu::conv::ConvCall;
use planish_cpu::conv::band::Band;
use planish_cpu::conv::geometry::{AXES, Geometry, Pixels, TRIVIAL_AXIS};
use planish_cpu::conv::igemm::Igemm;
use planish_cpu::conv::narrow::{self, Narrow};
use planish_cpu::conv::pack;
use planish_cpu::conv::winograd::{self, Cut, Kind, Winograd};
use planish_cpu::gemm::Tile;
use planish_cpu::isa::Isa;
use planish_cpu::peak;
use planish_cpu::team::Team;
use planish_op::window::PlacedAxis;

/// Seconds of CPU that this thread has used.
fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Gigaflops of multiply-and-adds on registers alone.
fn peak_rate(isa: Isa) -> f64 {
    let start = thread_time();
    peak::fma(isa, 500_000) / (thread_time() - start) * 1e-9
}

/// A layer: batch, groups, channels in and out, axes.
struct Layer {
    name: &'static str,
    n: usize,
    groups: usize,
    c: usize,
    k: usize,
    axes: [PlacedAxis; AXES],
    transposed: bool,
    plain: bool,
}

fn axis(input: usize, kernel: usize, stride: usize, pad: usize) -> PlacedAxis {
    let output = (input + 2 * pad - kernel) / stride + 1;
    PlacedAxis { input, output, kernel, stride, dilation: 1, pad_begin: pad, pad_end: pad }
}

fn conv(name: &'static str, c: usize, k: usize, size: usize, kernel: usize, stride: usize) -> Layer {
    let a = axis(size, kernel, stride, kernel / 2);
    Layer { name, n: 1, groups: 1, c, k, axes: [TRIVIAL_AXIS, a, a], transposed: false, plain: false }
}

fn volume(name: &'static str, c: usize, k: usize, size: usize) -> Layer {
    let a = axis(size, 3, 1, 1);
    Layer { axes: [a; AXES], ..conv(name, c, k, size, 3, 1) }
}

/// 2x2, stride 2.
fn doubling(name: &'static str, c: usize, k: usize, size: usize, n_axes: usize) -> Layer {
    let a = PlacedAxis { input: 2 * size, output: size, kernel: 2, stride: 2, ..TRIVIAL_AXIS };
    let mut axes = [a; AXES];
    axes[..AXES - n_axes].fill(TRIVIAL_AXIS);
    Layer { axes, transposed: true, ..conv(name, c, k, 2, 1, 1) }
}

fn layers() -> Vec<Layer> {
    let plain = |layer: Layer| Layer { plain: true, ..layer };
    vec![
        plain(conv("resnet 3->64 7x7/2 224", 3, 64, 224, 7, 2)),
        conv("resnet 64 3x3 56", 64, 64, 56, 3, 1),
        conv("resnet 64->128 3x3/2 56", 64, 128, 56, 3, 2),
        conv("resnet 128 3x3 28", 128, 128, 28, 3, 1),
        conv("resnet 256 3x3 14", 256, 256, 14, 3, 1),
        conv("resnet 512 3x3 7", 512, 512, 7, 3, 1),
        Layer { n: 8, ..conv("resnet 512 3x3 7 b8", 512, 512, 7, 3, 1) },
        conv("resnet 64->256 1x1 56", 64, 256, 56, 1, 1),
        conv("resnet 256->64 1x1 56", 256, 64, 56, 1, 1),
        conv("resnet 1024->256 1x1 14", 1024, 256, 14, 1, 1),
        conv("resnet 512->2048 1x1 7", 512, 2048, 7, 1, 1),
        conv("resnet 256->512 1x1/2 56", 256, 512, 56, 1, 2),
        plain(conv("unet2d 1->32 3x3 256", 1, 32, 256, 3, 1)),
        conv("unet2d 32 3x3 256", 32, 32, 256, 3, 1),
        conv("unet2d 64->32 3x3 256", 64, 32, 256, 3, 1),
        conv("unet2d 64 3x3 128", 64, 64, 128, 3, 1),
        conv("unet2d 128 3x3 64", 128, 128, 64, 3, 1),
        conv("unet2d 256 3x3 32", 256, 256, 32, 3, 1),
        doubling("unet2d 256->128 2x2/2 T 32", 256, 128, 32, 2),
        doubling("unet2d 64->32 2x2/2 T 128", 64, 32, 128, 2),
        conv("unet2d 32->1 1x1 256", 32, 1, 256, 1, 1),
        plain(volume("unet3d 1->16 3x3x3 64", 1, 16, 64)),
        volume("unet3d 16 3x3x3 64", 16, 16, 64),
        volume("unet3d 32->16 3x3x3 64", 32, 16, 64),
        volume("unet3d 32 3x3x3 32", 32, 32, 32),
        volume("unet3d 64 3x3x3 16", 64, 64, 16),
        volume("unet3d 128 3x3x3 8", 128, 128, 8),
        doubling("unet3d 32->16 2x2x2/2 T 32", 32, 16, 32, 3),
        conv("unet3d 16->1 1x1x1 64", 16, 1, 512, 1, 1),
        plain(conv("gen 3->64 3x3 256", 3, 64, 256, 3, 1)),
        conv("gen 64 3x3 256", 64, 64, 256, 3, 1),
        conv("gen 64->128 3x3/2 256", 64, 128, 256, 3, 2),
        conv("gen 128 3x3 128", 128, 128, 128, 3, 1),
        conv("gen 256 3x3 64", 256, 256, 64, 3, 1),
        conv("gen 512 3x3 8", 512, 512, 8, 3, 1),
        conv("gen 64->3 3x3 256", 64, 3, 256, 3, 1),
        conv("gen 256->4 3x3 32", 256, 4, 32, 3, 1),
        Layer { n: 32, ..conv("cifar 128 3x3 16 b32", 128, 128, 16, 3, 1) },
        Layer { groups: 32, ..conv("resnext 32x4 3x3 56", 4, 4, 56, 3, 1) },
    ]
}

/// Memory that begins at a multiple of 64 bytes, filled with small numbers that differ.
struct Numbers(Vec<f32>);

impl Numbers {
    fn new(len: usize) -> Numbers {
        Numbers((0..len + 32).map(|i| ((i * 7919) % 1013) as f32 / 1013.0 - 0.5).collect())
    }

    fn at(&mut self) -> *mut f32 {
        let skip = self.0.as_ptr().align_offset(64);
        self.0[skip..].as_mut_ptr()
    }
}

type Run = dyn Fn(&ConvCall<'_>, &Team);

struct Way {
    name: String,
    weights: Numbers,
    workspace: Numbers,
    run: Box<Run>,
}

fn ways(g: &Geometry, isa: Isa) -> Vec<Way> {
    let mut ways = Vec::new();
    let few_outputs = g.k <= 16;
    let filter = pack::Filter::new(g.groups, g.c, g.k, &g.axes, g.transposed);
    for tile in Tile::of(isa).filter(|tile| tile.nr() == 16 || !few_outputs).take(2) {
        if g.input.channel == 1 {
            let plan = Igemm::new(g.clone(), tile);
            ways.push(Way {
                name: format!("igemm {}x{}", tile.mr(), tile.nr()),
                weights: Numbers::new(plan.weights_len()),
                workspace: Numbers::new(plan.workspace_bytes(1) / 4),
                // SAFETY: the buffers have the sizes that the plan asks for.
                run: Box::new(move |call, team| unsafe { plan.run(call, team) }),
            });
        }
        if g.c <= 4
            && let Some(plan) = Band::new(g.clone(), tile)
        {
            ways.push(Way {
                name: format!("band {}x{}", tile.mr(), tile.nr()),
                weights: Numbers::new(pack::packed_len(&filter, tile)),
                workspace: Numbers::new(plan.workspace_bytes(1) / 4),
                // SAFETY: the buffers have the sizes that the plan asks for.
                run: Box::new(move |call, team| unsafe { plan.run(call, team) }),
            });
        }
        for kind in [Kind::Two, Kind::Four] {
            for cut in [Cut::Fused(14), Cut::Fused(28), Cut::Fused(56), Cut::Live(112), Cut::Phased(256)] {
                let Some(plan) = Winograd::new(kind, cut, g.clone(), isa, tile) else { continue };
                ways.push(Way {
                    name: format!("wino{kind:?} {cut:?} {}x{}", tile.mr(), tile.nr()),
                    weights: Numbers::new(winograd::pack::packed_len(kind, &filter, tile)),
                    workspace: Numbers::new(plan.workspace_bytes(1) / 4),
                    // SAFETY: the buffers have the sizes that the plan asks for.
                    run: Box::new(move |call, team| unsafe { plan.run(call, team) }),
                });
            }
        }
    }
    if let Some(plan) = Narrow::new(g.clone(), isa) {
        ways.push(Way {
            name: "narrow".to_string(),
            weights: Numbers::new(narrow::packed_len(&filter)),
            workspace: Numbers::new(plan.workspace_bytes(1) / 4),
            // SAFETY: the buffers have the sizes that the plan asks for.
            run: Box::new(move |call, team| unsafe { plan.run(call, team) }),
        });
    }
    ways
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let filter = arguments.first().map_or("", String::as_str);
    let isa = arguments.get(1).and_then(|name| Isa::named(name)).unwrap_or(Isa::best());
    for layer in layers().into_iter().filter(|layer| layer.name.contains(filter)) {
        let mut g = Geometry {
            n_images: layer.n,
            groups: layer.groups,
            c: layer.c,
            k: layer.k,
            axes: layer.axes,
            transposed: layer.transposed,
            input: Pixels::channels_last([1; AXES], 1),
            output: Pixels::channels_last([1; AXES], 1),
            residual: None,
        };
        let ins: [usize; AXES] = std::array::from_fn(|axis| g.in_size(axis));
        let outs: [usize; AXES] = std::array::from_fn(|axis| g.out_size(axis));
        let (c, k) = (layer.groups * layer.c, layer.groups * layer.k);
        g.input = if layer.plain { Pixels::plain(ins, c) } else { Pixels::channels_last(ins, c) };
        g.output = Pixels::channels_last(outs, k);
        let mut input = Numbers::new(g.n_images * g.input.image);
        let mut output = Numbers::new(g.n_images * g.output.image);
        let bias = Numbers::new(k);
        let mut ways = ways(&g, isa);
        if let Some(only) = arguments.get(2) {
            ways.retain(|way| way.name.contains(only));
        }
        let rounds = 5;
        let mut peaks = Vec::new();
        let mut times = vec![Vec::new(); ways.len()];
        for round in 0..=rounds {
            let peak = peak_rate(isa);
            for (way, times) in ways.iter_mut().zip(&mut times) {
                let call = ConvCall {
                    input: input.at(),
                    weights: way.weights.at(),
                    bias: bias.0.as_ptr(),
                    residual: std::ptr::null(),
                    output: output.at(),
                    workspace: way.workspace.at().cast(),
                    lo: 0.0,
                    hi: f32::INFINITY,
                    after: None,
                    staging: 0,
                };
                let repeats = (2e8 / g.flops()) as usize + 1;
                let start = thread_time();
                for _ in 0..repeats {
                    (way.run)(&call, &Team::alone());
                }
                let time = (thread_time() - start) / repeats as f64;
                if round > 0 {
                    times.push(time);
                }
            }
            if round > 0 {
                peaks.push(peak);
            }
        }
        let median = |list: &mut Vec<f64>| {
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        };
        let peak = median(&mut peaks);
        println!("{} ({:.0} MFLOP, peak {peak:.0} GFLOP/s)", layer.name, g.flops() * 1e-6);
        for (way, times) in ways.iter().zip(&mut times) {
            let time = median(times);
            let rate = g.flops() / time * 1e-9;
            println!(
                "    {:32} {:8.3} ms {rate:7.1} GFLOP/s {:5.2} of peak",
                way.name,
                time * 1e3,
                rate / peak
            );
        }
    }
}
