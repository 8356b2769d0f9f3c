//! Speed of every row of the tile table (`micro`) and of products (`micro gemm [ISA [M N K]]`) against the machine's
//! multiply-and-add peak, in this thread's CPU time, of products with weights of 4 bits (`micro nbits`), and the latency of
//! a fork (`micro fork`).
//!
//! Peak and kernel are measured in turn, so that a busy machine spoils neither alone.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use planish_cpu::gemm::codes::Width;
use planish_cpu::gemm::table::TILES;
use planish_cpu::gemm::{
    Ahead, Blocks, BlocksCall, EpilogueCall, GemmCall, GemmPlan, GemmProblem, MatrixB, PackedB, Tile,
    TileCall,
};
use planish_cpu::isa::Isa;
use planish_cpu::peak;
use planish_cpu::team::Team;

/// Seconds of CPU that this thread has used.
fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Gigaflops of work that returns its operations.
fn rate(work: impl FnOnce() -> f64) -> f64 {
    let start = thread_time();
    let operations = work();
    operations / (thread_time() - start) * 1e-9
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// One tile over and over on operands that stay in the first cache.
fn tile_rate(tile: Tile, m: usize, n: usize, n_segments: usize, depth: usize) -> impl Fn() -> f64 {
    let width = tile.panel_width(n);
    let stride = depth + 16;
    let a = vec![0.5f32; m * n_segments * stride];
    let panel = vec![0.25f32; n_segments * depth * width + 16];
    let offset = panel.as_ptr().align_offset(64);
    let mut c = vec![0.0f32; m * n];
    let rows: Vec<*const f32> = (0..m * n_segments).map(|i| a[i * stride..].as_ptr()).collect();
    let c_ptr = c.as_mut_ptr();
    move || {
        let _keep = (&a, &c);
        let call = TileCall {
            rows: rows.as_ptr(),
            rows_stride: m,
            n_segments,
            depth,
            panel: panel[offset..].as_ptr(),
            panel_stride: width,
            ahead: Ahead::NONE,
            c: c_ptr,
            c_stride: n,
            m,
            n,
            accumulate: false,
            epilogue: EpilogueCall::NONE,
        };
        let operations = (2 * m * n * n_segments * depth) as f64;
        let times = (5e8 / operations) as usize + 1;
        for _ in 0..times {
            // SAFETY: the buffers above have the sizes that the call names.
            unsafe { tile.run(std::hint::black_box(&call)) };
        }
        operations * times as f64
    }
}

/// Peak and rate, each the best of rounds measured in turn: other load only ever slows a round down.
fn against_peak(isa: Isa, work: impl Fn() -> f64) -> (f64, f64) {
    work();
    (0..15).fold((0.0, 0.0), |(peak, best): (f64, f64), _| {
        (peak.max(rate(|| peak::fma(isa, 200_000))), best.max(rate(&work)))
    })
}

/// A product on one thread, its operands as large as they are in memory.
fn gemm_rate(isa: Isa, tile: Tile, problem: GemmProblem) -> impl Fn() -> f64 {
    let GemmProblem { m, n, k, .. } = problem;
    let plan = GemmPlan::with_tile(problem, isa, tile);
    let a = vec![0.5f32; m * k + 16];
    let b = vec![0.25f32; PackedB::new(tile, k, n).len().max(k * n) + 16];
    let c = vec![0.0f32; m * n + 16];
    let workspace = vec![0.0f32; plan.workspace_bytes(1) / 4 + 16];
    move || {
        let at = |v: &Vec<f32>| v[v.as_ptr().align_offset(64)..].as_ptr();
        let call = GemmCall {
            a: at(&a),
            b: at(&b),
            blocks: None,
            c: at(&c).cast_mut(),
            epilogue: EpilogueCall::NONE,
            hook: None,
            workspace: at(&workspace).cast_mut(),
        };
        let operations = 2.0 * (m * n * k) as f64;
        let times = (5e8 / operations) as usize + 1;
        for _ in 0..times {
            // SAFETY: the operands above have the sizes of the problem.
            unsafe { plan.run(std::hint::black_box(&call), &Team::alone()) };
        }
        operations * times as f64
    }
}

/// A product with a weight of 4 bits in blocks of 32, on one thread.
fn blocks_rate(isa: Isa, tile: Tile, [m, n, k]: [usize; 3]) -> impl Fn() -> f64 {
    let blocks = Blocks { width: Width::Four, rows: 32 };
    let problem = GemmProblem { b: MatrixB::Blocks(blocks), ..GemmProblem::dense(m, n, k) };
    let plan = GemmPlan::with_tile(problem, isa, tile);
    let (a, c) = (vec![0.5f32; m * k + 16], vec![0.0f32; m * n + 16]);
    let scales = vec![0.25f32; PackedB::new(tile, blocks.count(k), n).len() + 16];
    let codes = vec![0x35u8; PackedB::new(tile, k, n).len() / 2 + 64];
    let workspace = vec![0.0f32; plan.workspace_bytes(1) / 4 + 16];
    move || {
        let at = |v: &Vec<f32>| v[v.as_ptr().align_offset(64)..].as_ptr();
        let codes = codes[codes.as_ptr().align_offset(64)..].as_ptr();
        let call = GemmCall {
            a: at(&a),
            b: std::ptr::null(),
            blocks: Some(BlocksCall { codes, scales: at(&scales), zeros: std::ptr::null() }),
            c: at(&c).cast_mut(),
            epilogue: EpilogueCall::NONE,
            hook: None,
            workspace: at(&workspace).cast_mut(),
        };
        // SAFETY: the operands above have the sizes of the problem.
        unsafe { plan.run(std::hint::black_box(&call), &Team::alone()) };
        2.0 * (m * n * k) as f64
    }
}

/// Weights of 4 bits beside those of f32, of few rows and many.
fn nbits(isa: Isa) {
    println!("{:24} {:>5} {:>12} {:>12} {:>7}", "4096 x 4096", "rows", "4 bits", "f32", "peak");
    for m in [1, 4, 8, 12, 16, 24, 32, 64, 128, 256] {
        let tile = Tile::usual(isa);
        let (peak, few) = against_peak(isa, blocks_rate(isa, tile, [m, 4096, 4096]));
        let (_, dense) = against_peak(isa, gemm_rate(isa, tile, GemmProblem::dense(m, 4096, 4096)));
        println!("{:24} {m:5} {few:12.1} {dense:12.1} {:6.1}%", tile.name(), few / peak * 100.0);
    }
}

fn gemms(isa: Isa, tiles: &[Tile], only: Option<(usize, usize, usize)>) {
    println!("{:24} {:>18} {:>8} {:>9} {:>7}", "gemm", "m n k", "B", "GFLOP/s", "peak");
    let mut shapes = Vec::new();
    for (n, k) in [(384, 384), (1536, 384), (384, 1536), (768, 768), (3072, 768), (768, 3072)] {
        shapes.push((128, n, k));
    }
    shapes.extend([(512, 384, 384), (1024, 1024, 1024), (2048, 2048, 2048), (128, 1024, 4096)]);
    shapes.extend([(196, 256, 1024), (3136, 64, 64), (49, 2048, 512), (784, 128, 256), (100, 10, 300)]);
    shapes.extend([
        (1, 1000, 2048),
        (4, 3072, 768),
        (8, 768, 768),
        (16, 768, 768),
        (128, 128, 32),
        (128, 32, 128),
    ]);
    for (m, n, k) in only.map_or(shapes, |shape| vec![shape]) {
        for &tile in tiles {
            for (name, b) in [
                ("packed", MatrixB::Packed),
                ("rows", MatrixB::Rows { stride: n }),
                ("columns", MatrixB::Columns { stride: k }),
            ] {
                let problem = GemmProblem { b, ..GemmProblem::dense(m, n, k) };
                let (peak, rate) = against_peak(isa, gemm_rate(isa, tile, problem));
                let size = format!("{m} {n} {k}");
                println!("{:24} {size:>18} {name:>8} {rate:9.1} {:6.1}%", tile.name(), rate / peak * 100.0);
            }
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match args.first().map(String::as_str) {
        Some("gemm") => {
            let isa = args.get(1).and_then(|name| Isa::named(name)).unwrap_or(Isa::best());
            let numbers: Vec<usize> = args.iter().skip(2).filter_map(|arg| arg.parse().ok()).collect();
            let only = (numbers.len() == 3).then(|| (numbers[0], numbers[1], numbers[2]));
            // A single shape is measured with every tile.
            let tiles: Vec<Tile> = Tile::of(isa).take(if only.is_some() { usize::MAX } else { 1 }).collect();
            gemms(isa, &tiles, only);
        }
        Some("nbits") => nbits(Isa::best()),
        Some("fork") => forks(),
        _ => tiles(),
    }
}

/// Wall time of a fork of one empty task a thread; of one whose tasks wait until every thread has one; and of one
/// whose workers have parked meanwhile.
fn forks() {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    println!(
        "{:>7} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "threads", "median", "10th", "90th", "all met", "parked"
    );
    for n in (1..=threads).filter(|n| n.is_power_of_two() || *n == threads) {
        let team = Team::new(n);
        let fork = || {
            let start = std::time::Instant::now();
            team.for_each(n, &|task| {
                std::hint::black_box(task);
            });
            start.elapsed().as_secs_f64() * 1e6
        };
        let meet = || {
            let start = std::time::Instant::now();
            let here = AtomicUsize::new(0);
            team.for_each(n, &|_| {
                here.fetch_add(1, Ordering::SeqCst);
                while here.load(Ordering::SeqCst) < n {
                    std::hint::spin_loop();
                }
            });
            start.elapsed().as_secs_f64() * 1e6
        };
        let mut warm: Vec<f64> = (0..20_000).map(|_| fork()).collect();
        warm.sort_by(f64::total_cmp);
        let parked = (0..200).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            fork()
        });
        let parked = median(parked.collect());
        let met = median((0..2000).map(|_| meet()).collect());
        let at = |part: usize| warm[warm.len() * part / 10];
        println!("{n:7} {:9.2} µs {:9.2} µs {:9.2} µs {met:9.2} µs {parked:9.2} µs", at(5), at(1), at(9));
    }
}

fn tiles() {
    println!("{:24} {:>9} {:>9} {:>9} {:>7}", "tile", "m x n", "k", "GFLOP/s", "peak");
    for row in TILES {
        let Some(tile) = Tile::named(row.name) else { continue };
        let Some(isa) = Isa::named(row.isa) else { continue };
        let (mr, nr) = (tile.mr(), tile.nr());
        for (m, n, n_segments, depth) in [
            (mr, nr, 1, 256),
            (mr, nr, 9, 64),
            (mr, nr, 9, 16),
            (mr - 1, nr, 1, 256),
            (mr.div_ceil(2), nr, 1, 256),
            (2, nr, 1, 256),
            (1, nr, 1, 256),
            (mr, nr - 1, 1, 256),
        ] {
            let (peak, rate) = against_peak(isa, tile_rate(tile, m, n, n_segments, depth));
            println!(
                "{:24} {:>9} {:>9} {rate:9.1} {:6.1}%",
                tile.name(),
                format!("{m}x{n}"),
                format!("{n_segments}*{depth}"),
                rate / peak * 100.0
            );
        }
    }
}
