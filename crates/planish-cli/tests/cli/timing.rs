//! `planish timing` and the files of `planish build`.

use std::fs;

use crate::{Folder, fails, linear, planish, succeeds};

const A: &str =
    "planish timings 1\ncpu a\tRelu f32[4]\tfast@1\t900\t90\t7\ncpu a\tRelu f32[4]\tslow@2\t1500000\t0\t3\n";
const B: &str =
    "planish timings 1\ncpu a\tRelu f32[4]\tfast@1\t1800\t0\t9\ncpu b\tRelu f32[4]\tfast@1\t7\t0\t1\n";

#[test]
fn times_are_shown_by_problem() {
    let folder = Folder::new("timing-show");
    let file = folder.put("a", A.as_bytes());
    let shown = succeeds(&["timing", "show", &file]).stdout;
    let expected = "device  cpu a\n\nRelu f32[4]\n  fast@1     900 ns  ±5.0 %  7 samples\n  \
                    slow@2  1500.0 µs  ±0.0 %  3 samples\n\n2 times of 1 problems on 1 devices\n";
    assert_eq!(shown, expected);
    let filtered = succeeds(&["timing", "show", &file, "--filter", "slow", "--json"]).stdout;
    assert!(filtered.contains("\"median_ns\": 1500000") && !filtered.contains("fast"), "{filtered}");
    fails(
        &folder,
        &["timing", "show", &folder.put("c", b"planish timings 1\nx\n")],
        2,
        "{}/c: line 2: six fields separated by tabs belong here; correct the line or delete it",
    );
}

#[test]
fn files_are_joined_and_compared() {
    let folder = Folder::new("timing-merge");
    let (a, b) = (folder.put("a", A.as_bytes()), folder.put("b", B.as_bytes()));
    let all = folder.path("all").display().to_string();
    let said = succeeds(&["timing", "merge", &a, &b, "-o", &all]).stdout;
    for line in [
        "device  cpu a: 2 times, 1 measured more than 10 % apart\n",
        "device  cpu b: 1 times\n",
        "apart   900 ns to 1800 ns, 1800 ns kept: fast@1  Relu f32[4]\n",
    ] {
        assert!(said.contains(line), "{line}{said}");
    }
    assert!(
        !succeeds(&["timing", "merge", &a, &b, "-o", &all, "--threshold", "100"]).stdout.contains("apart")
    );
    let text = fs::read_to_string(&all).unwrap();
    assert!(text.contains("cpu a\tRelu f32[4]\tfast@1\t1800\t0\t9\n") && text.lines().count() == 5, "{text}");
    let ended = planish(&["timing", "diff", &a, &b]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.starts_with("+100 %  900 ns -> 1800 ns  fast@1  Relu f32[4]\n"), "{}", ended.stdout);
    assert_eq!(planish(&["timing", "diff", &a, &b, "--threshold", "100"]).code, Some(0));
    assert_eq!(planish(&["timing", "diff", &all, &all]).code, Some(0));
}

/// Machines of three kinds, each with its own times: what comes of them does not depend on who came first.
#[test]
fn a_fleet_is_merged_in_any_order() {
    let folder = Folder::new("timing-fleet");
    let mut files: Vec<String> = Vec::new();
    for machine in 0..24u64 {
        let mut text = "planish timings 1\n".to_string();
        for problem in 0..4 {
            let (ns, spread, samples) =
                (1000 + 37 * ((machine * 7 + problem) % 24), machine % 5, 5 + machine % 3);
            text += &format!("gpu {}\tRelu f32[{problem}]\tfast@1\t{ns}\t{spread}\t{samples}\n", machine % 3);
        }
        files.push(folder.put(&format!("m{machine}"), text.as_bytes()));
    }
    let merged = |files: &[String], name: &str| {
        let output = folder.path(name).display().to_string();
        let mut words = vec!["timing", "merge", "-o", &output, "--json"];
        words.extend(files.iter().map(String::as_str));
        let report: serde_json::Value = serde_json::from_str(&succeeds(&words).stdout).unwrap();
        (fs::read_to_string(&output).unwrap(), report)
    };
    let (text, report) = merged(&files, "forwards");
    assert_eq!(report["entries"], 12);
    assert_eq!(report["devices"]["gpu 1"], 4);
    assert_eq!(report["conflicts"].as_array().unwrap().len(), 12);
    // Of most samples.
    let samples = |line: &str| line.split('\t').nth(5).unwrap().to_string();
    assert!(text.lines().filter(|line| line.starts_with("gpu 2")).all(|line| samples(line) == "7"), "{text}");
    files.reverse();
    let (backwards, other) = merged(&files, "backwards");
    assert_eq!((backwards, &other["conflicts"]), (text, &report["conflicts"]));
}

#[test]
fn builds_from_one_cache_or_one_lock_are_the_same() {
    let folder = Folder::new("timing-build");
    let model = folder.put("linear.onnx", &linear());
    let path = |name: &str| folder.path(name).display().to_string();
    let (cache, lock) = (path("timings"), path("tactics"));
    let build = |plan: &str, more: &[&str]| {
        let plan = path(plan);
        let mut arguments = vec!["build", &model, "-o", &plan];
        arguments.extend(more);
        succeeds(&arguments);
        fs::read(&plan).unwrap()
    };
    let first = build("a.plan", &["--timing-cache", &cache, "--save-tactics", &lock]);
    let again = build("b.plan", &["--timing-cache", &cache, "--timing-cache-only"]);
    assert_eq!(first, again);
    assert!(fs::read_to_string(&lock).unwrap().starts_with("planish tactics 1\n"));
    build("c.plan", &["--load-tactics", &lock, "--tune-level", "0"]);
    // A tactic that is not there any more.
    let text = fs::read_to_string(&lock).unwrap();
    let line = text.lines().nth(2).unwrap();
    let tactic = line.split('\t').nth(2).unwrap();
    fs::write(&lock, text.replace(tactic, "vanished@1")).unwrap();
    let ended = planish(&["build", &model, "-o", &path("d.plan"), "--load-tactics", &lock]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("is locked to vanished@1") && ended.stderr.contains(tactic),
        "{}",
        ended.stderr
    );
    assert!(!folder.path("d.plan").exists());
}
