//! Files that must not be touched, files that are none, and how commands end when something stops them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use planish_onnx::{DataType, Dimension, Graph, Node, ValueInfo};
use zip::write::SimpleFileOptions;

use crate::{Folder, fails, linear, model, npy_f32, planish, succeeds};

/// What a folder holds, hidden files too.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_build_never_replaces_what_it_reads_or_does_not_know() {
    let folder = Folder::new("replace");
    let model = folder.put("m.onnx", &linear());
    let path = |name: &str| folder.path(name).display().to_string();
    fs::hard_link(&model, folder.path("hard.onnx")).unwrap();
    symlink(&model, folder.path("link.onnx")).unwrap();
    let line = |name: &str| format!("cannot write {{}}/{name}: it is a file that this command reads");
    fails(&folder, &["build", &model, "-o", &model], 2, &format!("{}; give another name", line("m.onnx")));
    for name in ["hard.onnx", "link.onnx"] {
        let line = format!("{}, {{}}/m.onnx; give another name", line(name));
        fails(&folder, &["build", &model, "-o", &path(name)], 2, &line);
    }
    let spelled = format!("{}/../{}/m.onnx", folder.0.display(), folder.0.file_name().unwrap().display());
    assert_eq!(planish(&["build", &model, "-o", &spelled]).code, Some(2));
    // An ONNX file that is called as its plan would be.
    let named = folder.put("u.plan", &linear());
    fails(&folder, &["build", &named], 2, &format!("{}; give another name", line("u.plan")));
    // Another kind of file.
    let notes = folder.put("notes.txt", b"do not lose this");
    let line = "cannot write {}/notes.txt: the file that is there is not a plan; give another name, or remove it first";
    fails(&folder, &["build", &model, "-o", &notes], 2, line);
    let json = format!("--json={notes}");
    let line = "cannot write {}/notes.txt: the file that is there is not JSON; give another name, or remove it first";
    fails(&folder, &["build", &model, "-o", &path("m.plan"), &json], 2, line);
    let line = "cannot write {}/notes.txt: the file that is there is not a tactic lock; give another name, or \
                remove it first";
    fails(&folder, &["build", &model, "-o", &path("m.plan"), "--save-tactics", &notes], 2, line);
    let line = "cannot write {}/none/m.plan: there is no folder {}/none";
    fails(&folder, &["build", &model, "-o", &path("none/m.plan")], 2, line);
    assert_eq!(fs::read(&model).unwrap(), linear());
    assert_eq!(fs::read(&named).unwrap(), linear());
    assert_eq!(fs::read(&notes).unwrap(), b"do not lose this");
    assert_eq!(names(&folder.0), ["hard.onnx", "link.onnx", "m.onnx", "notes.txt", "u.plan"]);
    // What may be replaced: nothing, an empty file, a plan.
    for plan in [path("m.plan"), folder.put("empty", b""), path("m.plan")] {
        succeeds(&["build", &model, "-o", &plan, "--tune-level", "0"]);
    }
}

#[test]
fn a_run_never_replaces_its_inputs_and_writes_all_or_nothing() {
    let folder = Folder::new("run-replace");
    let model = folder.put("m.onnx", &linear());
    let path = |name: &str| folder.path(name).display().to_string();
    succeeds(&["run", &model, "--random", "1", "-o", &path("in.npz")]);
    let archive = fs::read(path("in.npz")).unwrap();
    let line = "cannot write {}/in.npz: it is a file that this command reads; give another name";
    fails(&folder, &["run", &model, "--inputs", &path("in.npz"), "-o", &path("in.npz")], 2, line);
    assert_eq!(fs::read(path("in.npz")).unwrap(), archive);
    // One of the two outputs cannot be written: the other is not either.
    fs::create_dir_all(folder.path("out/top.npy")).unwrap();
    let ended = planish(&["run", &model, "--random", "1", "-o", &path("out")]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("top.npy: it is a folder\n"), "{}", ended.stderr);
    assert_eq!(names(&folder.path("out")), ["top.npy"]);
}

#[test]
fn pipes_devices_and_folders_are_no_files() {
    let folder = Folder::new("pipes");
    let model = folder.put("m.onnx", &linear());
    let pipe = folder.path("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let plan = folder.path("m.plan").display().to_string();
    for command in
        [&["inspect", &pipe][..], &["run", &pipe], &["build", &pipe, "-o", &plan], &["bench", &pipe]]
    {
        let ended = planish(command);
        assert_eq!(ended.code, Some(2), "{command:?}: {}", ended.stderr);
        let last = ended.stderr.lines().last().unwrap();
        assert!(last.ends_with("pipe: it is a named pipe, not a regular file"), "{command:?}: {last}");
    }
    for (given, line) in [
        (["--inputs", &pipe], "cannot read {}/pipe: it is a named pipe, not a regular file"),
        (["--input", &format!("x={pipe}")], "cannot read {}/pipe: it is a named pipe, not a regular file"),
        (["--input", "x=/dev/zero"], "cannot read /dev/zero: it is a device, not a regular file"),
        (["--inputs", "/"], "cannot read /: it is a folder, not a regular file"),
    ] {
        fails(&folder, &[&["run", &model][..], &given].concat(), 2, line);
    }
    let line = "cannot read /dev/zero: it is a device, not a regular file";
    fails(&folder, &["timing", "show", "/dev/zero"], 2, line);
    fails(&folder, &["inspect", "/dev/zero"], 2, line);
}

#[test]
fn archives_are_asked_what_they_hold_before_they_are_read() {
    let folder = Folder::new("bomb");
    let model = folder.put("m.onnx", &linear());
    // 64 MiB of zeros in 64 kB: the model takes [batch,3], and the array claims another rank, type or far more.
    let bomb = |shape: &str, descr: &str| {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        archive.start_file("x.npy", SimpleFileOptions::default()).unwrap();
        archive.write_all(&crate::npy(descr, shape, &[])).unwrap();
        for _ in 0..64 {
            archive.write_all(&[0; 1 << 20]).unwrap();
        }
        let bytes = archive.finish().unwrap().into_inner();
        assert!(bytes.len() < 100_000);
        folder.put("bomb.npz", &bytes)
    };
    for (shape, descr, code, text) in [
        ("(16777216,)", "<f4", 2, "gives 1 dimension; input `x` has 2"),
        ("(4194304, 4)", "<f4", 2, "gives 4 for dimension 1; input `x` needs 3"),
        ("(2097152, 3)", "<f8", 2, "the file holds f64"),
        ("(400000000000000, 3)", "<f4", 3, "this machine has"),
    ] {
        let ended = planish(&["run", &model, "--inputs", &bomb(shape, descr)]);
        assert_eq!(ended.code, Some(code), "{shape}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(text), "{shape}: {}", ended.stderr);
    }
    let huge = folder.put("huge.npy", &npy_f32("(400000000000000, 3)", &[0.0; 3]));
    let ended = planish(&["run", &model, "--input", &format!("x={huge}")]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
}

#[test]
fn names_do_not_speak_to_the_terminal() {
    let folder = Folder::new("escapes");
    let name = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m";
    let mut node = Node::new("Relu", &["x\u{1b}[1A"], &["y\r\u{202e}"]);
    node.name = name.into();
    let sized = || vec![Dimension::Value(3)];
    let graph = Graph {
        name: name.into(),
        nodes: vec![node],
        inputs: vec![ValueInfo::tensor("x\u{1b}[1A", DataType::Float, sized())],
        outputs: vec![ValueInfo::tensor("y\r\u{202e}", DataType::Float, sized())],
        ..Graph::default()
    };
    let model = folder.put("m.onnx", &model(graph));
    let plan = folder.path("m.plan").display().to_string();
    let is_plain = |text: &str| text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t');
    succeeds(&["build", &model, "-o", &plan, "--tune-level", "0"]);
    for arguments in [
        &["inspect", &model][..],
        &["inspect", &model, "--graph"],
        &["inspect", &plan],
        &["inspect", &plan, "--layers"],
        &["inspect", &plan, "--certificate"],
        &["inspect", &plan, "--text"],
        &["inspect", &plan, "--json"],
        &["run", &model],
        &["run", &plan, "--device", "cpu"],
        &["profile", &plan, "--device", "cpu"],
    ] {
        let ended = succeeds(arguments);
        assert!(is_plain(&ended.stdout) && is_plain(&ended.stderr), "{arguments:?}");
        assert!(!ended.stdout.contains('\u{202e}'), "{arguments:?}");
    }
    let ended = planish(&["run", &model, "--shapes", "z\u{1b}[1A:3"]);
    assert!(ended.code == Some(2) && is_plain(&ended.stderr), "{}", ended.stderr);
    let json: serde_json::Value = serde_json::from_str(&succeeds(&["run", &model, "--json"]).stdout).unwrap();
    assert_eq!(json["outputs"][0]["name"], "y\r\u{202e}");
}

#[test]
fn a_plan_in_memory_does_not_mind_its_file() {
    let folder = Folder::new("copy");
    let model = folder.put("m.onnx", &linear());
    let plan = folder.path("m.plan").display().to_string();
    succeeds(&["build", &model, "-o", &plan, "--tune-level", "0"]);
    for command in [&["run", &plan, "--device", "cpu", "--copy"][..], &["profile", &plan, "--copy"]] {
        succeeds(command);
    }
}

/// A build that takes long enough to be stopped, however late a loaded machine lets this test see what it has done: 58
/// GFLOP a run, so that it measures for most of a minute.
fn long_build(folder: &Folder) -> Command {
    let model = folder.path("m.onnx").display().to_string();
    succeeds(&["zoo", "gen_decoder_32", "-o", &model]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_planish"));
    command.args(["build", &model, "--device", "cpu", "--tune-level", "5"]);
    command.args(["--timing-cache", &folder.path("times").display().to_string()]);
    command.stderr(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Ctrl-C's signal; where whoever started the tests wants that ignored (a script's job in the background), and so the
/// command ignores it too, the other one that ends a command in good order.
fn stopping() -> &'static str {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    // Signals are counted from 1, and this one is 2.
    if mask & 0b10 != 0 { "-TERM" } else { "-INT" }
}

#[test]
fn a_build_that_is_stopped_keeps_its_times_and_says_so() {
    let folder = Folder::new("stopped");
    let child = long_build(&folder).spawn().unwrap();
    // Times are kept once a second while a build measures. Taken away, only the end of the build can bring them back.
    let begun = Instant::now();
    while !folder.path("times").exists() {
        assert!(begun.elapsed() < Duration::from_secs(300), "nothing is measured");
        std::thread::sleep(Duration::from_millis(10));
    }
    let before = fs::read_to_string(folder.path("times")).unwrap();
    fs::remove_file(folder.path("times")).unwrap();
    let begun = Instant::now();
    let kill = Command::new("kill").args([stopping(), &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    let last = stderr.lines().last().unwrap();
    let kept = "error: the build was stopped; the times measured so far are kept in ";
    assert!(last.starts_with(kept), "{stderr}");
    let times = fs::read_to_string(folder.path("times")).unwrap();
    assert!(before.lines().count() > 1, "{before}");
    assert!(before.lines().all(|line| times.lines().any(|kept| kept == line)), "{before}\n{times}");
    assert!(begun.elapsed() < Duration::from_secs(120), "stopped after {:?}", begun.elapsed());
    let left = names(&folder.0);
    assert!(left.iter().all(|name| name == "m.onnx" || name == "times"), "{left:?}");
}

#[test]
fn limits_end_in_one_line() {
    let folder = Folder::new("limits");
    let model = folder.path("m.onnx").display().to_string();
    succeeds(&["zoo", "cifar_cnn", "-o", &model]);
    let mut times = String::from("planish timings 1\n");
    (0..100).for_each(|idx| times.push_str(&format!("cpu\tproblem {idx}\tt@1\t{idx}\t0\t3\n")));
    folder.put("t", times.as_bytes());
    folder.put("l.onnx", &linear());
    let limited = |limit: &str, line: &str| {
        let script = format!("ulimit {limit}; exec \"$0\" {line}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_planish")]).current_dir(&folder.0).output().unwrap()
    };
    let build = "build m.onnx -o m.plan --device cpu --tune-level 0 --no-verify";
    let run = "run l.onnx --device cpu --no-cache --tune-level 0 --shapes x:320x3 -o y.npz";
    // Blocks of 512 bytes; the plan has megabytes, the outputs 5 kB after headers, the times 2.7 kB. And kilobytes
    // of address space, which some of the work needs more of.
    for (limit, line, text) in [
        ("-f 100", build, "File too large"),
        ("-f 1", run, "File too large"),
        ("-f 5", run, "File too large"),
        ("-f 2", "timing merge t -o joined", "File too large"),
        ("-v 80000", build, "memory"),
    ] {
        let output = limited(limit, line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{limit}: {stderr}");
        // An allocation that no call can report has a line of the standard library in front.
        let is_ours = |line: &&str| {
            if text == "memory" { line.starts_with("error: ") } else { !line.starts_with("note: ") }
        };
        let said: Vec<&str> = stderr.lines().filter(is_ours).collect();
        assert!(
            said.len() == 1 && said[0].starts_with("error: ") && said[0].contains(text),
            "{limit}: {stderr}"
        );
        assert_eq!(names(&folder.0), ["l.onnx", "m.onnx", "t"], "{limit}");
    }
    for line in [build, run] {
        assert_eq!(limited("-f unlimited", line).status.code(), Some(0));
    }
}
