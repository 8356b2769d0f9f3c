//! Sessions against single runs: lists, remainders, streams, and what is refused.

use std::ops::ControlFlow;
use std::time::Duration;

use planish_tensor::{DType, Tensor};
use planish_testing::Random;

use super::*;
use crate::{Builder, NetworkBuilder, Profile, SymbolRange};

/// `y = x * x + w`, `z` = the sum of every row of `y`, over `x` and `w` of these sizes.
fn session(sizes: &str, profile: Option<(i64, i64)>) -> Session {
    let mut net = NetworkBuilder::new("net");
    let x = net.input("x", DType::F32, sizes).unwrap();
    let w = net.input("w", DType::F32, sizes).unwrap();
    let y = net.mul(x, x).unwrap();
    let y = net.add(y, w).unwrap();
    let z = net.softmax(y, -1).unwrap();
    net.output("y", y).unwrap();
    net.output("z", z).unwrap();
    let mut builder = Builder::from_network(net).unwrap().tune_level(0).threads(1).device(Device::Cpu);
    if let Some((min, max)) = profile {
        let symbol = "batch".to_string();
        builder = builder.profile(Profile { ranges: vec![SymbolRange { symbol, min, opt: max, max }] });
    }
    Session::new(&Engine::new(builder.build().unwrap(), Device::Cpu).unwrap()).unwrap()
}

fn items(n: usize, dims: &[usize]) -> Vec<Vec<(&'static str, Tensor)>> {
    let mut random = Random::new(n as u64 + 1);
    (0..n).map(|_| vec![("w", random.floats(dims)), ("x", random.floats(dims))]).collect()
}

#[test]
fn lists_give_what_single_runs_give_whatever_the_batches() {
    let mut single = session("1,3,5", None);
    for (sizes, profile) in [("batch,3,5", None), ("batch,3,5", Some((4, 8))), ("8,3,5", None)] {
        let mut session = session(sizes, profile);
        for n in [0, 1, 3, 7, 8, 9, 16, 29] {
            for dims in [&[3, 5][..], &[1, 3, 5]] {
                let items = items(n, dims);
                let batched = session.batch_inference(&items, 8).unwrap();
                assert_eq!(batched.transfers, n.div_ceil(8), "{sizes} of {n}");
                let left = n % 8;
                let filled = match (sizes, profile) {
                    _ if left == 0 => 0,
                    ("8,3,5", _) => 8 - left,
                    (_, Some((least, _))) => (least as usize).saturating_sub(left),
                    _ => 0,
                };
                assert_eq!(batched.n_filled, filled, "{sizes} of {n}");
                assert_eq!(batched.results.len(), n);
                for (item, result) in items.iter().zip(&batched.results) {
                    let with_batch = |(name, tensor): &(&'static str, Tensor)| {
                        (*name, tensor.reshaped(&[1, 3, 5]).unwrap())
                    };
                    let alone: Vec<_> = item.iter().map(with_batch).collect();
                    let alone = single.infer(&alone).unwrap();
                    assert_eq!(result.names(), ["y", "z"]);
                    for (a, b) in result.tensors().iter().zip(alone.tensors()) {
                        assert_eq!(a.shape(), dims);
                        assert_eq!(a.bytes(), b.bytes(), "{sizes} of {n}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_batch_is_what_the_plan_was_tuned_for() {
    assert_eq!(session("8,3,5", None).batch_size(), 8);
    assert_eq!(session("batch,3,5", Some((1, 16))).batch_size(), 16);
    assert_eq!(session("batch,3,5", None).batch_size(), 1);
    let mut session = session("batch,3,5", Some((1, 16)));
    session.warm_up(2).unwrap();
    let n_resolved = session.context().n_resolved();
    session.infer_all(&items(32, &[3, 5])).unwrap();
    assert_eq!(session.context().n_resolved(), n_resolved);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let mut session = session("batch,3,5", Some((1, 8)));
    let mut refused = |items: &[Vec<(&'static str, Tensor)>], batch| {
        session.batch_inference(items, batch).unwrap_err().to_string()
    };
    let good = items(9, &[3, 5]);
    assert_eq!(refused(&good, 0), "a batch of 0 items runs nothing; give 1 or more");
    let error = refused(&good, 9);
    assert!(error.contains("dimension `batch` is 9, profile 0 allows 1 to 8"), "{error}");
    let mut mixed = good.clone();
    mixed[4] = items(1, &[1, 3, 5]).remove(0);
    let error = refused(&mixed, 8);
    assert!(error.starts_with("item 4 has sizes"), "{error}");
    mixed[4] = vec![("x", Tensor::vector(vec![1f32]))];
    assert_eq!(refused(&mixed, 8), "item 4: 1 inputs are given, the model takes 2: x, w");
    mixed[4] = vec![("x", good[0][0].1.clone()), ("v", good[0][0].1.clone())];
    assert_eq!(refused(&mixed, 8), "item 4: no value is given for input `w`; the inputs are x, w");
    mixed[4] = vec![("x", Tensor::vector(vec![1f32])), ("w", Tensor::vector(vec![1f32]))];
    let error = refused(&mixed, 8);
    assert!(error.starts_with("item 4: input `x` is f32[batch,3,5]; an item has these sizes"), "{error}");
    mixed[4] = vec![("x", Tensor::zeros(DType::F64, &[3, 5]).unwrap()), ("w", good[0][0].1.clone())];
    assert_eq!(refused(&mixed, 8), "item 4: input `x` is f32, f64 is given");
    // Nothing of this harmed the session.
    assert_eq!(session.batch_inference(&good, 8).unwrap().results.len(), 9);
}

#[test]
fn outputs_that_have_no_batch_cannot_be_split() {
    let graph = r#"graph "g" { input %x: f32[n,4] %y: f32[4,n] = Transpose(%x) {perm=[1,0]} output %y }"#;
    let plan = Builder::from_graph(graph.parse().unwrap())
        .tune_level(0)
        .threads(1)
        .device(Device::Cpu)
        .build()
        .unwrap();
    let mut session = Session::new(&Engine::new(plan, Device::Cpu).unwrap()).unwrap();
    let error = session.batch_inference(&vec![Tensor::vector(vec![1f32; 4]); 3], 3).unwrap_err().to_string();
    assert!(error.starts_with("`y` cannot be gathered or split by items"), "{error}");
}

/// Frames whose values are their numbers.
fn frames(n: usize, pause: Duration) -> impl Iterator<Item = Vec<(&'static str, Tensor)>> + Send {
    (0..n).map(move |idx| {
        std::thread::sleep(pause);
        let frame = |value: f32| Tensor::new(&[1, 1, 2], vec![value; 2]).unwrap();
        vec![("x", frame(idx as f32)), ("w", frame(0.0))]
    })
}

#[test]
fn streams_keep_their_order_and_count_what_they_lose() {
    let mut session = session("1,1,2", None);
    for when_full in [WhenFull::Wait, WhenFull::DropOldest, WhenFull::DropNewest] {
        let options = StreamOptions { queue: 2, when_full, deadline: None };
        let mut numbers = Vec::new();
        let report = session.stream(frames(40, Duration::ZERO), options, |frame| {
            std::thread::sleep(Duration::from_millis(1));
            let square = (frame.number * frame.number) as f32;
            assert_eq!(frame.outputs.get("y").unwrap().elements::<f32>().unwrap()[0], square);
            numbers.push(frame.number);
            ControlFlow::Continue(())
        });
        let report = report.unwrap();
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert_eq!((report.frames, report.delivered), (40, numbers.len() as u64));
        assert_eq!(report.delivered + report.dropped, 40);
        match when_full {
            WhenFull::Wait => assert_eq!(report.dropped, 0),
            // The source is much faster than the sink.
            WhenFull::DropOldest => assert!(report.dropped > 0 && numbers.last() == Some(&39)),
            WhenFull::DropNewest => assert!(report.dropped > 0 && numbers.first() == Some(&0)),
        }
        assert!(report.max_latency <= report.total_latency);
    }
}

#[test]
fn frames_past_their_deadline_are_not_run() {
    let mut session = session("1,1,2", None);
    let options = StreamOptions { deadline: Some(Duration::ZERO), ..StreamOptions::default() };
    let report =
        session.stream(frames(5, Duration::ZERO), options, |_| panic!("all of them are late")).unwrap();
    assert_eq!((report.frames, report.expired, report.delivered), (5, 5, 0));
    let options = StreamOptions { deadline: Some(Duration::from_secs(600)), ..StreamOptions::default() };
    let report = session.stream(frames(5, Duration::ZERO), options, |frame| {
        assert!(!frame.is_late);
        ControlFlow::Continue(())
    });
    assert_eq!(report.unwrap().delivered, 5);
}

#[test]
fn a_stream_ends_with_its_sink_and_with_the_first_error() {
    let mut session = session("1,1,2", None);
    let mut n_seen = 0;
    let endless = frames(usize::MAX, Duration::ZERO);
    let report = session.stream(endless, StreamOptions::default(), |_| {
        n_seen += 1;
        if n_seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(report.unwrap().delivered, 3);
    let broken = frames(2, Duration::ZERO).chain([vec![("x", Tensor::scalar(1f32))]]);
    let error = session.stream(broken, StreamOptions::default(), |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error.to_string(), "frame 2: 1 inputs are given, the model takes 2: x, w");
    let none = StreamOptions { queue: 0, ..StreamOptions::default() };
    assert!(session.stream(frames(1, Duration::ZERO), none, |_| ControlFlow::Continue(())).is_err());
}
