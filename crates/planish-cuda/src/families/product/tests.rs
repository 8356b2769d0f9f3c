//! Tiles, names and prices of products.

use planish_tensor::DType;

use super::epilogue::Rows;
use super::tile::Tile;
use super::{Amount, Math, Split, Way};
use crate::gpu::Gpu;

#[test]
fn every_tile_divides_into_warps_and_loads() {
    for gpu in Gpu::every_architecture() {
        let tiles = Tile::all(&gpu);
        assert!(tiles.len() >= 10, "{} tiles on {}", tiles.len(), gpu.name);
        for tile in tiles {
            let (rows, columns) = (tile.bm / tile.wm, tile.bn / tile.wn);
            assert!(tile.bm.is_multiple_of(16 * tile.wm) && tile.bn.is_multiple_of(8 * tile.wn), "{tile:?}");
            // Fragments of B come two tiles of eight columns at a time, or one.
            assert!(columns == 8 || columns.is_multiple_of(16), "{tile:?}");
            assert!((tile.chunks / 2).is_multiple_of(tile.wk), "{tile:?}");
            // Element-wise loaders give each thread whole rows.
            let threads = tile.threads();
            let even = |rows: u32| threads.is_multiple_of(rows) || rows.is_multiple_of(threads);
            assert!(even(tile.bm) && even(tile.bn), "{tile:?}");
            assert!(threads <= 1024 && threads.is_multiple_of(tile.chunks), "{tile:?}");
            assert!(tile.shared_bytes() <= gpu.smem_per_block, "{tile:?}");
            assert!(rows * columns / 32 <= 128, "accumulators of a lane fit registers: {tile:?}");
        }
    }
}

#[test]
fn names_can_be_read_back() {
    let gpu = Gpu::known("h200").unwrap();
    let ways = Way::all(&gpu, Math::F16, 3136, 64, 4608);
    assert!(ways.len() > 20);
    for way in ways {
        assert_eq!(Way::named(&way.name()), Some(way));
    }
    for wrong in ["", "f16", "f16_7x7x8_w1x1x1_s3", "f16_64x64x8_w2x2x1_s3_x4", "f16_64x64x8_w2x2x1_s3_c4_c4"]
    {
        assert_eq!(Way::named(wrong), None, "{wrong}");
    }
}

#[test]
fn small_products_are_split_and_large_ones_are_not() {
    let gpu = Gpu::known("h200").unwrap();
    let best = |m, n, k| {
        let amount = Amount { m, n, k, count: 1, bytes: 2 * (m * k + k * n + m * n), strided: false };
        let ways = Way::all(&gpu, Math::F16, m, n, k).into_iter();
        ways.min_by(|a, b| amount.price_ns(&gpu, a).total_cmp(&amount.price_ns(&gpu, b))).unwrap()
    };
    // The last layers of a ResNet at batch 1 have 49 pixels: one tile of rows.
    assert_ne!(best(49, 512, 4608).split, Split::None);
    let large = best(8192, 4096, 4096);
    assert_eq!(large.split, Split::None);
    assert!(large.tile.bm * large.tile.bn >= 128 * 128, "{large:?}");
}

#[test]
fn rows_that_continue_each_other_are_linear() {
    let rows = Rows {
        sizes: [2, 1, 5, 7],
        axes: [Some(0), None, Some(2), Some(3)],
        column: Some(1),
        group: 8,
        first: 0,
    };
    // N, C, H, W with channels innermost inside of 24.
    let view = rows.view(&[24 * 35, 1, 24 * 7, 24], DType::F16);
    assert_eq!((view.linear, view.wide, view.s, view.c), (1, 1, [0, 0, 0, 24], 1));
    // A column of each row is left out.
    let view = rows.view(&[24 * 40, 1, 24 * 8, 24], DType::F16);
    assert_eq!((view.linear, view.s), (0, [24 * 40, 0, 24 * 8, 24]));
    // Twelve channels are no whole chunks.
    assert_eq!(rows.view(&[12 * 35, 1, 12 * 7, 12], DType::F16).wide, 0);
    assert_eq!(rows.view(&[12 * 35, 1, 12 * 7, 12], DType::F32).wide, 1);
    // Channels outermost; a value for each image and channel.
    assert_eq!(rows.view(&[35 * 9, 35, 7, 1], DType::F16).linear, 0);
    assert_eq!(rows.view(&[16, 1, 0, 0], DType::F16).linear, 0);
    assert_eq!(rows.view(&[0, 1, 0, 0], DType::F16).linear, 1);
}
