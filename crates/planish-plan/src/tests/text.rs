//! The text of the sample plan.

use expect_test::expect;

use super::sample;

#[test]
fn the_sample_reads_well() {
    expect![[r#"
        plan "small" by planish 0.1.0, for 2 threads
        source 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
        option precision=fp32
        option threads=2
        target 0 host cpu [avx2 fma] "a processor"
        target 1 device fake [] ""
        profile 0 batch=1..8..32
        tuned at batch=8 n=0
        metadata "author" "somebody"
        metadata "labels" "cat\ndog"
        weight 0 "conv1.weight" f32[4, 3, 3, 3] as panels32, 500 bytes
        weight 1 "conv1.bias" f32[4], 16 bytes
        constant #0 is weight 1
        code "gemm fake9 6a", 3 bytes
        code "gemm fake9 6b", 200 bytes
        inputs %0 %8
        outputs %10 %7
        %0 "x" f32[batch,3,8,8] plain on 0, input
        %1 "w" f32[4,3,3,3] plain on 0, weight 0
        %2 "b" f32[4] plain on 0, weight 1
        %3 "a" f32[batch,4,3,3] plain on 0, in %6 from 0 of axis 1
        %4 "flat" f32[batch,36] plain on 0, in %3
        %5 "other" f32[batch,8] plain on 0, arena
        %6 "whole" f32[batch,2*n+8,3,3] channels_last on 0, arena
        %7 "found" seq(optional(i64[*])) plain on 0, own
        %8 "cond" bool[] plain on 0, input
        %9 "y" f32[batch,8] plain on 0, own
        %10 "y on device" f32[batch,8] plain on 1, arena
        step 0 "conv1 + clip1" Conv+Clip on 0
          conv1 + clip1_f32_scalar@3 from batch=2 up to batch=8, else conv1 + clip1_f32_scalar@3 in f32/f32/f32: %0 %1 %2 -> %3
          input 1 packed as panels32
        step 1 "other" Relu on 0
          other_f32_scalar@3 from batch=2 up to batch=8, else other_f32_scalar@3 in f32/f32/f32: %0 -> %5
        step 2 "nonzero" Twice on 0
          prepared as it runs in f32/f32/f32: %4 -> %7
        step 3 "if" If on 0
          2 bodies in f32/f32/f32: %8 %5 -> %9
          body 0, 1 captured
            inputs %0
            outputs %1
            %0 "captured" f32[batch,8] plain on 0, input
            %1 "then" f32[batch,8] plain on 0, own
            step 0 "then" Relu on 0
              then_f32_scalar@3 from batch=2 up to batch=8, else then_f32_scalar@3 in f32/f32/f32: %0 -> %1
          body 1, 1 captured
            inputs %0
            outputs %1
            %0 "captured" f32[batch,8] plain on 0, input
            %1 "else" f32[batch,8] plain on 0, own
            step 0 "else" Relu on 0
              else_f32_scalar@3 from batch=2 up to batch=8, else else_f32_scalar@3 in f32/f32/f32: %0 -> %1
        step 4 "to device"  on 0
          transfer in f32/f32/f32: %9 -> %10
        evidence for step 0: the only one
          conv_f32_scalar@3 1234 ns measured
        check step 0: conv1 + clip1: passed, 256 points, worst 0.250 of its bound
        check whole model at batch=1: skipped: no time, 0 points, worst 0.000 of its bound
    "#]].assert_eq(&sample::plan().describe());
}
