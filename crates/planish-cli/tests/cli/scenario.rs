//! `planish demo --scenario`: a small form of each, and what is refused.

use std::fs;

use crate::{Folder, fails, succeeds};

#[test]
fn scenarios_leave_tables_plots_and_a_page() {
    let folder = Folder::new("scenarios");
    let run = |name: &str, texts: &[&str], plot: &str| {
        let target = folder.path(name);
        let path = target.display().to_string();
        let shown = succeeds(&[
            "demo",
            "--scenario",
            name,
            &path,
            "--short",
            "--device",
            "cpu",
            "--python",
            "no-python",
        ])
        .stdout;
        for text in texts {
            assert!(shown.contains(text), "{text} is not in\n{shown}");
        }
        let markdown = fs::read_to_string(target.join("tables.md")).unwrap();
        assert!(markdown.contains("|--") && markdown.contains(&format!("({plot}.png)")), "{markdown}");
        let page = fs::read_to_string(target.join("report.html")).unwrap();
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg ") && page.len() < 2_000_000);
        assert!(image::open(target.join(format!("{plot}.png"))).is_ok());
    };
    run("resnet18", &["TMAC/s", "INT8", "ONNX Runtime is not there"], "fps_over_batch");
    run("generation", &["unlike clean run", "PSNR to FP32"], "latency_of_the_loop");
    run("microscopy", &["Sliding windows", "time lapse", "ensemble of 2"], "error_over_speed");
    run("classifier", &["from the first to the last", "of 100", "INT8", "accuracy %"], "accuracy_over_speed");
    let plan = folder.path("classifier").join("classifier.int8.plan").display().to_string();
    succeeds(&["inspect", &plan]);
}

#[test]
fn what_no_scenario_takes_is_one_line() {
    let folder = Folder::new("scenarios-refused");
    let file = folder.put("file", b"x");
    let model = folder.put("linear.onnx", &crate::linear());
    fails(
        &folder,
        &["demo", "--scenario", "resnet18", &file],
        2,
        "cannot write into {}/file: it is a file, not a folder",
    );
    fails(
        &folder,
        &[
            "demo",
            "--scenario",
            "resnet18",
            &folder.path("out").display().to_string(),
            "--model",
            &model,
            "--data",
            &file,
        ],
        2,
        "--model is for the scenario `classifier`; the others bring their own",
    );
    for arguments in [
        &["demo", "--short"][..],
        &["demo", "--scenario", "none"],
        &["demo", "--scenario", "classifier", "--model", &model],
    ] {
        assert_eq!(crate::planish(arguments).code, Some(2), "{arguments:?}");
    }
    let target = folder.path("out").display().to_string();
    let lacking = folder.put("lacking.npz", &[]);
    let ended = crate::planish(&[
        "demo",
        "--scenario",
        "classifier",
        &target,
        "--device",
        "cpu",
        "--model",
        &model,
        "--data",
        &lacking,
    ]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}
