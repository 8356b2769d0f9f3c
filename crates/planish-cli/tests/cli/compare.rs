//! `planish compare`: what it prints, writes and refuses, and how it ends.

use serde_json::Value;

use crate::{Folder, fails, linear, npy_f32, planish, succeeds};

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(&[arguments, &["--json"]].concat()).stdout).unwrap()
}

fn path(folder: &Folder, name: &str) -> String {
    folder.path(name).display().to_string()
}

#[test]
fn backends_are_held_against_the_first() {
    let folder = Folder::new("compare");
    let model = folder.put("linear.onnx", &linear());
    let (reference, cpu) = (format!("{model}@reference"), format!("{model}@cpu"));
    let svg = path(&folder, "layers.svg");
    let common = ["--shapes", "x:5x3", "--samples", "3"];
    let shown = succeeds(
        &[
            &["compare", &reference, &cpu, "--layers", "--plot", &svg, "--max-error", "rel<=1e-6"][..],
            &common,
        ]
        .concat(),
    );
    for text in ["PSNR dB", "top-1", "on 3 samples", "keeps to rel<=0.000001", "own error"] {
        assert!(shown.stdout.contains(text), "{text} is not in\n{}", shown.stdout);
    }
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.contains("accumulated error"), "{drawn}");

    let report = json(&[&["compare", &reference, &cpu][..], &common].concat());
    let output = &report["compared"][0]["outputs"][0];
    assert_eq!(
        (&output["name"], &output["elements"], &report["samples"]),
        (&"y".into(), &30.into(), &3.into())
    );
    assert!(output["relative_l2"].as_f64().unwrap() < 1e-6 && output["top1_agreement"] == 1.0, "{output}");
}

#[test]
fn a_limit_that_is_not_kept_is_a_no() {
    let folder = Folder::new("compare-limit");
    let model = folder.put("linear.onnx", &linear());
    // Stored outputs of a sample of which the second element is off by 1.
    let inputs = path(&folder, "x.npz");
    let (stored, inputs_npy) =
        (folder.path("stored"), folder.put("x.npy", &npy_f32("(1, 3)", &[1.0, 1.0, 1.0])));
    succeeds(&["run", &model, "--input", &format!("x={inputs_npy}"), "-o", &stored.display().to_string()]);
    std::fs::write(stored.join("y.npy"), npy_f32("(1, 2)", &[9.5, 12.5])).unwrap();
    let archive = std::fs::File::create(&inputs).unwrap();
    let mut archive = zip::ZipWriter::new(archive);
    archive.start_file("x.npy", zip::write::SimpleFileOptions::default()).unwrap();
    std::io::Write::write_all(&mut archive, &npy_f32("(1, 3)", &[1.0, 1.0, 1.0])).unwrap();
    archive.finish().unwrap();

    let stored = stored.display().to_string();
    let command = ["compare", &stored, &model, "--inputs", &inputs];
    let ended = planish(&[&command[..], &["--max-error", "max<=0.5"]].concat());
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    for text in ["is BEYOND max<=0.5", "worst ", "at [0, 1]: 11.5 where", "has 12.5"] {
        assert!(ended.stdout.contains(text), "{text} is not in\n{}", ended.stdout);
    }
    // Without a limit nothing is asked.
    assert_eq!(planish(&command).code, Some(0));
    // Hop by hop: the stored outputs differ, everything after them is the same.
    let hops = json(&["compare", &stored, &model, "--hops", "--inputs", &inputs]);
    let names: Vec<(&str, &str)> = hops["compared"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["against"].as_str().unwrap()))
        .collect();
    let wanted = [
        ("original", stored.as_str()),
        ("optimized", "original"),
        ("plan", "optimized"),
        ("reloaded", "plan"),
        ("reloaded", &stored),
    ];
    assert_eq!(names, wanted);
    let max = |at: usize| hops["compared"][at]["outputs"][1]["max_abs"].as_f64().unwrap();
    assert_eq!((max(0), max(3), max(4)), (1.0, 0.0, 1.0));
}

#[test]
fn labels_are_counted() {
    let folder = Folder::new("compare-labels");
    let model = folder.put("linear.onnx", &linear());
    // y is [x0 + 3 x1 + 5 x2 + 0.5, 2 x0 + 4 x1 + 6 x2 - 0.5]: the second is larger for ones, the first for minus ones.
    let data = folder.put("x.npy", &npy_f32("(2, 3)", &[1.0, 1.0, 1.0, -1.0, -1.0, -1.0]));
    let labels = folder.put("labels.txt", b"1\n1\n");
    let (reference, cpu) = (format!("{model}@reference"), format!("{model}@cpu"));
    let command = ["compare", &reference, &cpu, "--data", &data, "--labels", &labels];
    let shown = succeeds(&command).stdout;
    assert_eq!(shown.matches("top-1 50.00 %, top-5 100.00 % of 2 labels").count(), 2, "{shown}");
    let few = folder.put("few.txt", b"1\n");
    let ended = planish(&["compare", &reference, &cpu, "--data", &data, "--labels", &few]);
    assert!(
        ended.code == Some(2) && ended.stderr.contains("1 labels are given for 2 samples"),
        "{}",
        ended.stderr
    );
}

#[test]
fn what_cannot_be_compared_is_one_line() {
    let folder = Folder::new("compare-refused");
    let model = folder.put("linear.onnx", &linear());
    let refused = |arguments: &[&str], code: i32, line: &str| fails(&folder, arguments, code, line);
    refused(
        &["compare", &model],
        2,
        "one file has nothing to be compared with; name a second one, or follow it with --hops",
    );
    refused(
        &["compare", &model, &format!("{model}@onnxruntime"), "--python", "no-such-python"],
        3,
        "ONNX Runtime is run by Python, and no-such-python does not start: No such file or directory (os error 2); give \
         --python",
    );
    refused(
        &["compare", &format!("{model}@reference@fp16"), &model],
        2,
        "`{}/linear.onnx@reference@fp16`: a precision is for cpu and cuda",
    );
    let ended = planish(&["compare", &model, &format!("{model}@tpu")]);
    assert!(ended.code == Some(2) && ended.stderr.contains("`tpu` is no backend"), "{}", ended.stderr);
    let ended = planish(&["compare", &model, &path(&folder, "none.onnx")]);
    assert!(ended.code == Some(2) && ended.stderr.contains("cannot read"), "{}", ended.stderr);
    let ended = planish(&["compare", &model, &format!("{model}@reference"), "--max-error", "tiny"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("is not a contract"), "{}", ended.stderr);
}
