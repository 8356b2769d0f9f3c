//! `planish bench`: its files, and results held against each other.

use serde_json::Value;

use crate::{Folder, fails, linear, planish, succeeds};

#[test]
fn a_result_is_stored_and_compared() {
    let folder = Folder::new("bench");
    let model = folder.put("linear.onnx", &linear());
    let file = |name: &str| folder.path(name).display().to_string();
    let (plan, base, csv) = (file("linear.plan"), file("base.json"), file("bench.csv"));
    succeeds(&["build", &model, "-o", &plan, "--threads", "1", "--device", "cpu", "--tune-level", "0"]);
    let bench = ["bench", &plan, "--duration", "200ms", "--warmup", "1ms"];
    let shown = succeeds(&[&bench[..], &[&format!("--json={base}"), "--csv", &csv]].concat()).stdout;
    assert!(shown.contains(" at 95 %)") && shown.contains("peak of the process"), "{shown}");

    let report: Value = serde_json::from_slice(&std::fs::read(&base).unwrap()).unwrap();
    let interval = report["median_interval_ms"].as_array().unwrap();
    let [low, high] = [&interval[0], &interval[1]].map(|end| end.as_f64().unwrap());
    assert!(0.0 < low && low <= high, "{report}");
    assert!(
        report["blocks"].as_array().unwrap().len() > 5 && report["ms_per_sample"].as_f64().unwrap() > 0.0
    );
    let csv = std::fs::read_to_string(csv).unwrap();
    let (names, fields) = csv.trim().split_once('\n').unwrap();
    assert!(names.starts_with("model,") && names.contains(",median_ms,"), "{csv}");
    assert_eq!(names.split(',').count(), fields.split(',').count());

    // A base of a hundred times the time, one of a hundredth, and one of another setting.
    // Another program took them, so that the plan is not run again beside itself.
    let changed = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut report = report.clone();
        report["program"] = Value::Null;
        change(&mut report);
        folder.put(name, report.to_string().as_bytes())
    };
    let scaled = |factor: f64| {
        move |report: &mut Value| {
            for round in report["rounds"].as_array_mut().unwrap() {
                round["undisturbed_ms"] = (round["undisturbed_ms"].as_f64().unwrap() * factor).into();
            }
        }
    };
    let (slow, fast) = (changed("slow.json", &scaled(100.0)), changed("fast.json", &scaled(0.01)));
    let faster = planish(&[&bench[..], &["--against", &slow]].concat());
    assert!(faster.code == Some(0) && faster.stdout.contains("against  faster"), "{}", faster.stdout);
    let slower = planish(&[&bench[..], &["--against", &fast]].concat());
    assert!(slower.code == Some(1) && slower.stdout.contains("against  SLOWER"), "{}", slower.stdout);

    // Where the plan of a result is at hand, and where a plan is given, both are run in turn.
    for base in [&base, &plan] {
        let same = planish(&[&bench[..], &["--against", base, "--tolerance", "1000"]].concat());
        assert!(same.stderr.contains("were run in turn"), "{}", same.stderr);
        assert!(same.stdout.contains("time of runs in turn") || same.code == Some(3), "{}", same.stdout);
        assert_ne!(same.code, Some(1), "{}", same.stdout);
    }
    let two = two_inputs(&folder);
    let ended = planish(&[&bench[..], &["--against", &two]].concat());
    assert!(
        ended.code == Some(2) && ended.stderr.contains("only plans of the same inputs"),
        "{}",
        ended.stderr
    );

    let other = changed("other.json", &|report: &mut Value| report["batch"] = 8.into());
    let ended = planish(&[&bench[..], &["--against", &other]].concat());
    assert!(
        ended.code == Some(2) && ended.stderr.contains("was taken with batch 8, and this is 1"),
        "{}",
        ended.stderr
    );
    let roundless = changed("none.json", &|report: &mut Value| report["rounds"] = Value::Null);
    fails(
        &folder,
        &[&bench[..], &["--against", &roundless]].concat(),
        2,
        "{}/none.json is no result of `planish bench --json={}/none.json`: it has no rounds of runs",
    );
}

/// A plan of other inputs.
fn two_inputs(folder: &Folder) -> String {
    use planish_onnx::{DataType, Dimension, Graph, Node, ValueInfo};
    let port = |name: &'static str| ValueInfo::tensor(name, DataType::Float, vec![Dimension::Value(2)]);
    let graph = Graph {
        name: "two".into(),
        nodes: vec![Node::new("Add", &["a", "b"], &["c"])],
        inputs: vec![port("a"), port("b")],
        outputs: vec![port("c")],
        ..Graph::default()
    };
    let model = folder.put("two.onnx", &crate::model(graph));
    let plan = folder.path("two.plan").display().to_string();
    succeeds(&["build", &model, "-o", &plan, "--threads", "1", "--device", "cpu", "--tune-level", "0"]);
    plan
}
