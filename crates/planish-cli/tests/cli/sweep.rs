//! `planish sweep`: what it writes, that it goes on where it was stopped, and what it refuses.

use serde_json::Value;

use crate::{Folder, fails, linear, planish, succeeds};

#[test]
fn a_sweep_is_a_table_plots_and_a_page_and_goes_on() {
    let folder = Folder::new("sweep");
    let model = folder.put("linear.onnx", &linear());
    let results = folder.path("results");
    let target = results.display().to_string();
    let quick =
        ["--duration", "20ms", "--warmup", "1ms", "--tune-level", "0", "--devices", "cpu", "--threads", "1"];
    let sweep = |batches: &str| {
        let command = ["sweep", &model, "--batches", batches, "--precisions", "fp32,bf16", "-o", &target];
        succeeds(&[&command[..], &quick].concat())
    };
    let first = sweep("1,4");
    for text in ["median ms", "found    linear: at most", "report.html", "for 4 measurements"] {
        assert!(first.stdout.contains(text), "{text} is not in\n{}", first.stdout);
    }
    let rows = |name: &str| std::fs::read_to_string(results.join(name)).unwrap();
    assert_eq!(rows("sweep.csv").lines().count(), 5);
    assert!(rows("throughput_over_batch.svg").starts_with("<svg "));
    let png = image::open(results.join("throughput_over_batch.png")).unwrap().to_rgb8();
    assert!(
        png.width() == 840 && png.pixels().any(|pixel| pixel.0 == [0, 0x72, 0xb2]),
        "the first line is drawn"
    );
    let html = rows("report.html");
    assert!(
        html.contains("What was found") && !html.contains("http://") || html.contains("www.w3.org/2000/svg")
    );
    assert!(html.len() < 2_000_000);

    // What is there is taken, a line that was cut short is measured again.
    let kept = rows("sweep.jsonl");
    let cut: Vec<&str> = kept.lines().collect();
    std::fs::write(results.join("sweep.jsonl"), format!("{}\n{}", cut[..3].join("\n"), &cut[3][..20]))
        .unwrap();
    let second = sweep("1,4");
    assert!(second.stderr.contains("3 of 4 are there already"), "{}", second.stderr);
    assert!(second.stdout.contains("for 1 measurements"), "{}", second.stdout);
    let again = rows("sweep.jsonl");
    assert_eq!(again.lines().take(3).collect::<Vec<_>>(), &cut[..3]);
    let row: Value = serde_json::from_str(again.lines().nth(3).unwrap()).unwrap();
    assert!(row["numbers"]["relative_l2"].as_f64().unwrap() < 0.02 && row["batch"] == 4, "{row}");
}

#[test]
fn what_cannot_be_swept_is_one_line() {
    let folder = Folder::new("sweep-refused");
    let model = folder.put("linear.onnx", &linear());
    let target = folder.path("results").display().to_string();
    fails(
        &folder,
        &["sweep", &model, "--precisions", "int8", "-o", &target],
        2,
        "int8 needs --calib, samples or a calibration; or leave it out of --precisions",
    );
    fails(
        &folder,
        &["sweep", &model, "-o", &model],
        2,
        "cannot write into {}/linear.onnx: it is a file, not a folder",
    );
    for arguments in
        [&["sweep"][..], &["sweep", &model, "--batches", "0"], &["sweep", &model, "--precisions", "fp12"]]
    {
        assert_eq!(planish(arguments).code, Some(2), "{arguments:?}");
    }
    let broken = folder.put("broken.onnx", b"nothing");
    assert_eq!(planish(&["sweep", &broken, "-o", &target]).code, Some(2));
}
