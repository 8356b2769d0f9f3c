//! `planish explore` and `planish profile --trace`: pages and traces of plans.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Folder, linear, planish, succeeds};

fn built(folder: &Folder) -> (String, String) {
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    succeeds(&["build", &model, "-o", &plan, "--threads", "1", "--device", "cpu", "--tune-level", "1"]);
    (model, plan)
}

#[test]
fn a_plan_becomes_one_page_without_a_network() {
    let folder = Folder::new("explore");
    let (model, plan) = built(&folder);
    let page = folder.path("page.html").display().to_string();
    let shown = succeeds(&["explore", &plan, &plan, "--onnx", &model, "-o", &page, "--iterations", "3"]);
    assert!(shown.stdout.starts_with("page     "), "{}", shown.stdout);
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("id=\"other\""), "{html}");
    for outside in ["http://", "https://", "src=\"", "href=\"", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    // Again over the same page, never over another file.
    succeeds(&["explore", &plan, "-o", &page, "--no-time"]);
    let refused = planish(&["explore", &plan, "-o", &model]);
    assert!(refused.code == Some(2) && refused.stderr.contains("not an HTML page"), "{}", refused.stderr);
    let refused = planish(&["explore", &plan, "-o", &plan]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("a file that this command reads"),
        "{}",
        refused.stderr
    );
}

#[test]
fn scripts_get_all_of_it() {
    let folder = Folder::new("explore-json");
    let (model, plan) = built(&folder);
    let json = |arguments: &[&str]| -> Value { serde_json::from_str(&succeeds(arguments).stdout).unwrap() };
    let report = json(&["explore", &plan, "--onnx", &model, "--json", "--iterations", "5"]);
    assert!(!folder.path("linear.html").exists(), "JSON alone was asked for");
    let layers = report["layers"].as_array().unwrap();
    // Every node of the model has a place: a layer, or a reason.
    let nodes = report["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    for node in nodes {
        let layer = node["layer"].as_u64().unwrap_or_else(|| panic!("{node}"));
        assert!((layer as usize) < layers.len(), "{node}");
    }
    let sum: f64 = layers.iter().map(|layer| layer["us"].as_f64().unwrap()).sum();
    // Steps of a microsecond: a good part of the run is outside of them, and said to be.
    let (outside, total) = (report["outside_us"].as_f64().unwrap(), report["total_us"].as_f64().unwrap());
    assert!(sum > 0.0 && (sum + outside - total).abs() <= 0.02 * total, "{sum} and {outside} of {total}");
    let profiled = json(&["profile", &plan, "--json", "--iterations", "5"]);
    let time = |name: &str| profiled[name].as_f64().unwrap();
    assert!((time("sum_us") + time("outside_us") - time("total_us")).abs() <= 0.02 * time("total_us"));
    let product = layers.iter().find(|layer| layer["ops"].as_str().unwrap().starts_with("Gemm")).unwrap();
    assert!(
        product["flops"].as_u64().unwrap() >= 12 && !product["tried"].as_array().unwrap().is_empty(),
        "{product}"
    );
    assert_eq!(report["memory"]["alive_bytes"].as_array().unwrap().len(), layers.len());
    let inspected = json(&["inspect", &plan, "--json"]);
    assert_eq!(inspected["steps"][0]["kernel"], layers[0]["kernel"]);
    assert!(inspected["hazards"].is_array() && inspected["timeline"]["peak_bytes"].is_u64(), "{inspected}");

    // A model of other contents is not the one that the plan was built from.
    let other = folder.put("other.onnx", &{
        let mut bytes = linear();
        let at = bytes.windows(4).position(|four| four == 6f32.to_le_bytes()).unwrap();
        bytes[at..at + 4].copy_from_slice(&7f32.to_le_bytes());
        bytes
    });
    let refused = planish(&["explore", &plan, "--onnx", &other, "--json"]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("built from another model"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_page_is_served_on_this_machine() {
    let folder = Folder::new("explore-serve");
    let (_, plan) = built(&folder);
    let mut child = Command::new(env!("CARGO_BIN_EXE_planish"))
        .args(["explore", &plan, "--serve", "--no-time", "--no-cache"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let host = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap().to_string();
    let mut stream = TcpStream::connect(&host).unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("</html>\n"), "{answer}");
}

#[test]
fn a_profile_is_a_trace_too() {
    let folder = Folder::new("trace");
    let (model, plan) = built(&folder);
    let trace = folder.path("trace.json").display().to_string();
    let shown = succeeds(&["profile", &plan, "--iterations", "3", "--trace", &trace]).stdout;
    assert!(shown.contains("trace   ") && shown.contains(" f32 "), "{shown}");
    let trace: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let slices: Vec<&Value> =
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").collect();
    assert!(!slices.is_empty() && slices.iter().all(|slice| slice["dur"].as_f64().is_some()), "{trace}");
    let refused = planish(&["profile", &plan, "--trace", &model]);
    assert!(refused.code == Some(2) && refused.stderr.contains("is not JSON"), "{}", refused.stderr);
}
