//! Everything that can be wrong with what the user gives: the exit code and one clear line.

use std::fs;

use planish_onnx::{DataType, Dimension, Graph, Node, ValueInfo};

use crate::{Folder, fails, linear, model, npy, npy_f32, planish, succeeds, without_gpus};

#[test]
fn files_that_are_no_models() {
    let folder = Folder::new("no-model");
    let text = folder.put("text.onnx", b"hello, this is a text file\n");
    let empty = folder.put("empty.onnx", b"");
    let missing = folder.path("missing.onnx").display().to_string();
    let itself = folder.0.display().to_string();
    for command in ["inspect", "run"] {
        fails(
            &folder,
            &[command, &missing],
            2,
            "cannot read {}/missing.onnx: No such file or directory (os error 2)",
        );
        fails(&folder, &[command, &itself], 2, "cannot read {}: it is a folder, not a regular file");
        fails(
            &folder,
            &[command, &text],
            2,
            "{}/text.onnx is not a usable ONNX model: this is a text file; give the path of a .onnx file; a \
             download may have failed",
        );
        let ended = planish(&[command, &empty]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1);
    }
}

#[test]
fn cut_off_models() {
    let folder = Folder::new("cut");
    let whole = linear();
    for end in (1..whole.len()).step_by(17) {
        let path = folder.put("cut.onnx", &whole[..end]);
        for command in ["inspect", "run"] {
            let ended = planish(&[command, &path]);
            // A cut between two fields can leave a model that is one, without its opset, say.
            assert!(matches!(ended.code, Some(0..=2)), "cut at {end}: {:?} {}", ended.code, ended.stderr);
            if ended.code == Some(2) {
                assert!(ended.stderr.starts_with("error: "), "cut at {end}: {}", ended.stderr);
                assert_eq!(ended.stderr.lines().count(), 1, "cut at {end}: {}", ended.stderr);
            }
        }
    }
}

#[test]
fn inputs_that_do_not_fit() {
    let folder = Folder::new("misfit");
    let model = folder.put("linear.onnx", &linear());
    folder.put("good.npy", &npy_f32("(1, 3)", &[1.0; 3]));
    folder.put("wide.npy", &npy_f32("(1, 4)", &[1.0; 4]));
    folder.put("flat.npy", &npy_f32("(3,)", &[1.0; 3]));
    folder.put("double.npy", &npy("<f8", "(1, 3)", &[0; 24]));
    folder.put("cut.npy", &npy_f32("(1, 3)", &[1.0; 2]));
    folder.put("not.npy", b"no numpy file at all");
    let not_npz = folder.put("not.npz", b"no archive");
    let table = [
        ("--input x={}/wide.npy", "{}/wide.npy gives 4 for dimension 1; input `x` needs 3: f32[batch,3]"),
        ("--input x={}/flat.npy", "{}/flat.npy gives 1 dimension; input `x` has 2: f32[batch,3]"),
        (
            "--input x={}/double.npy",
            "{}/double.npy: input `x` is f32[batch,3], the file holds f64; convert it with numpy's \
             astype('float32')",
        ),
        (
            "--input z={}/good.npy",
            "{}/good.npy gives `z`, which is not an input of the model; its inputs are `x`",
        ),
        ("--input {}/good.npy", "`--input {}/good.npy` names no input; give NAME=FILE"),
        ("--input x={}/good.npy --input x={}/good.npy", "input `x` is given twice"),
        ("--input x=nowhere.npy", "cannot read nowhere.npy: No such file or directory (os error 2)"),
        (
            "--input x={}/cut.npy",
            "{}/cut.npy is not a usable .npy file: its header promises 12 bytes of elements, it has 8",
        ),
        ("--input x={}/not.npy", "{}/not.npy is not a usable .npy file: it does not begin as one"),
        ("--shapes x:2x4", "`--shapes x:2x4` gives 4 for dimension 1; input `x` needs 3: f32[batch,3]"),
        ("--shapes y:2", "--shapes gives `y`, which is not an input of the model; its inputs are `x`"),
        ("--shapes x", "`--shapes x` has no sizes; give NAME:SIZES, as in x:1x3x224x224"),
        ("--shapes x:1xbig", "`--shapes x:1xbig`: after the last colon come sizes such as 1x3x224x224"),
        (
            "--shapes x:99999999999x3",
            "input `x` of 99999999999x3: a tensor f32[99999999999, 3] does not fit into memory",
        ),
    ];
    for (arguments, line) in table {
        let arguments = arguments.replace("{}", &folder.0.display().to_string());
        let arguments: Vec<&str> = ["run", &model].into_iter().chain(arguments.split(' ')).collect();
        fails(&folder, &arguments, 2, line);
    }
    let ended = planish(&["run", &model, "--inputs", &not_npz]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("not.npz is not a usable .npz file: "), "{}", ended.stderr);
}

#[test]
fn values_that_are_missing() {
    let folder = Folder::new("missing");
    let vector = || vec![Dimension::Value(2)];
    let graph = Graph {
        name: "two".into(),
        nodes: vec![Node::new("Add", &["a", "b"], &["y"])],
        inputs: ["a", "b"].map(|name| ValueInfo::tensor(name, DataType::Float, vector())).to_vec(),
        outputs: vec![ValueInfo::tensor("y", DataType::Float, vector())],
        ..Graph::default()
    };
    let model = folder.put("two.onnx", &model(graph));
    let a = folder.put("a.npy", &npy_f32("(2,)", &[1.0, 2.0]));
    let input = format!("a={a}");
    fails(
        &folder,
        &["run", &model, "--input", &input],
        2,
        "no value is given for `b`; add them to --inputs, give --input NAME=FILE, or add --random SEED",
    );
    assert_eq!(planish(&["run", &model, "--input", &input, "--random", "3"]).code, Some(0));
}

#[test]
fn a_run_that_fails_says_where() {
    let folder = Folder::new("fails");
    let mut gather = Node::new("Gather", &["data", "index"], &["y"]);
    gather.name = "pick".into();
    let sized = |size| vec![Dimension::Value(size)];
    let graph = Graph {
        name: "pick".into(),
        nodes: vec![gather],
        inputs: vec![
            ValueInfo::tensor("data", DataType::Float, sized(3)),
            ValueInfo::tensor("index", DataType::Int64, sized(1)),
        ],
        outputs: vec![ValueInfo::tensor("y", DataType::Float, sized(1))],
        ..Graph::default()
    };
    let model = folder.put("pick.onnx", &model(graph));
    let index = folder.put("index.npy", &npy("<i8", "(1,)", &7i64.to_le_bytes()));
    let ended = planish(&["run", &model, "--random", "0", "--input", &format!("index={index}")]);
    assert_eq!(ended.code, Some(2));
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("error: the run failed: node `pick`: Gather: "), "{last}");
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = Folder::new("unwritable");
    let model = folder.put("linear.onnx", &linear());
    let file = folder.put("file", b"");
    let target = |name: &str| folder.path(name).display().to_string();
    fails(
        &folder,
        &["run", &model, "-o", &target("none/out.npz")],
        2,
        "cannot write {}/none/out.npz: there is no folder {}/none",
    );
    fails(&folder, &["run", &model, "-o", &file], 2, "cannot write into {}/file: it is a file, not a folder");
    fails(
        &folder,
        &["run", &model, "-o", &target("y.npy")],
        2,
        "cannot write the outputs to {}/y.npy: give an .npz file, or a folder, which gets one .npy file per output",
    );
    fs::create_dir(folder.path("taken.npz")).unwrap();
    fails(
        &folder,
        &["run", &model, "-o", &target("taken.npz")],
        2,
        "cannot write {}/taken.npz: it is a folder",
    );
    let json = format!("--json={}", target("none/report.json"));
    let ended = planish(&["inspect", &model, &json]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(
        ended.stderr,
        format!(
            "error: cannot write {}: there is no folder {}\n",
            target("none/report.json"),
            target("none")
        )
    );
}

#[test]
fn backends_that_are_not_here() {
    let folder = Folder::new("backend");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    // No machine has this many GPUs; those without one say so by the same code.
    for arguments in
        [&["build", &model, "-o", &plan][..], &["run", &model], &["bench", &model], &["profile", &model]]
    {
        let arguments = [arguments, &["--device", "cuda:9999"]].concat();
        let ended = planish(&arguments);
        assert_eq!(ended.code, Some(3), "{arguments:?}: {}", ended.stderr);
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: cuda:9999 cannot be used: "), "{}", ended.stderr);
        assert!(ended.stderr.lines().filter(|line| line.starts_with("error")).count() == 1);
    }
    assert!(!folder.path("linear.plan").exists());
    let ended = planish(&["build", &model, "--device", "gpu"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("`gpu` is not a device; give cpu, cuda, cuda:1 or auto"),
        "{}",
        ended.stderr
    );
}

/// Every command that takes a device, on models and on plans: one line, and the code for what a machine cannot do.
#[test]
fn a_gpu_on_a_machine_without_one() {
    let folder = Folder::new("no-gpu");
    let model = folder.put("linear.onnx", &linear());
    let cpu_plan = folder.path("cpu.plan").display().to_string();
    succeeds(&["build", &model, "-o", &cpu_plan, "--device", "cpu", "--tune-level", "0"]);
    // A plan that says that it was built for a GPU.
    let mut record = planish_plan::Plan::open(&folder.path("cpu.plan")).unwrap();
    let mut gpu = record.header.targets[0].clone();
    gpu.backend = "cuda".to_string();
    gpu.needs = vec!["sm_90".to_string()];
    gpu.device = "NVIDIA H200, 132 multiprocessors, driver 13.0".to_string();
    record.header.targets.push(gpu);
    record.roles.push(planish_plan::Role::Device);
    // What was checked was another plan.
    record.certificate = planish_plan::Certificate::default();
    record.write_file(&folder.path("gpu.plan")).unwrap();
    let gpu_plan = folder.path("gpu.plan").display().to_string();
    let out = folder.path("out.plan").display().to_string();
    let mut commands: Vec<Vec<&str>> = vec![vec!["build", &model, "-o", &out]];
    for subject in [&model, &cpu_plan, &gpu_plan] {
        commands.extend(["run", "bench", "profile"].map(|command| vec![command, subject.as_str()]));
    }
    for command in &commands {
        for (device, name) in [("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cuda:7", "cuda:7")] {
            let arguments = [&command[..], &["--device", device]].concat();
            let ended = without_gpus(&arguments);
            assert_eq!(ended.code, Some(3), "{arguments:?}: {}", ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1, "{arguments:?}: {}", ended.stderr);
            let line = format!("error: {name} cannot be used: ");
            assert!(ended.stderr.starts_with(&line), "{arguments:?}: {}", ended.stderr);
            assert_eq!(ended.stdout, "", "{arguments:?}");
        }
    }
    assert_eq!(without_gpus(&["run", &model, "--backend", "cuda"]).code, Some(3));
    assert!(!folder.path("out.plan").exists());
    // What asks for no GPU works, and says for which one the plan was built.
    for arguments in
        [&["run", &model, "--device", "auto"][..], &["run", &gpu_plan, "--device", "cpu"], &["doctor"]]
    {
        let ended = without_gpus(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
    }
    let ended = without_gpus(&["inspect", &gpu_plan]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("NVIDIA H200"), "{}", ended.stdout);
}

#[test]
fn options_of_weights_on_gpus_are_for_gpus() {
    let folder = Folder::new("managed");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    succeeds(&["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0"]);
    for option in ["--managed-weights", "--weight-budget=4M"] {
        let name = option.split('=').next().unwrap();
        let line = format!("error: {name} is for a plan on a GPU; this one runs on the CPU\n");
        for command in ["run", "bench", "profile"] {
            for file in [&model, &plan] {
                let ended = planish(&[command, file, "--device", "cpu", option]);
                assert_eq!((ended.code, &ended.stderr), (Some(2), &line), "{command} {file}");
            }
        }
        let ended = planish(&["run", &model, "--backend", "reference", option]);
        let line = format!("error: {name} is for a plan on a GPU; the reference runs on the CPU\n");
        assert_eq!((ended.code, ended.stderr), (Some(2), line));
    }
    let ended = planish(&["run", &plan, "--managed-weights", "--weight-budget", "4M"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("cannot be used with"), "{}", ended.stderr);
    let ended = planish(&["run", &plan, "--weight-budget", "much"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("much"), "{}", ended.stderr);
}

#[test]
fn precisions_that_are_not_here() {
    let folder = Folder::new("precision");
    let model = folder.put("linear.onnx", &linear());
    let ended = planish(&["build", &model, "--device", "cpu", "--precision", "tf32"]);
    let line = "error: --precision tf32: cpu has no kernels for it; build with --precision fp32, or for a GPU with \
                --device cuda";
    assert_eq!((ended.code, ended.stderr.lines().last()), (Some(2), Some(line)));
    let ended = planish(&["build", &model, "--precision", "auto"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("--precision auto needs a contract"), "{}", ended.stderr);
}

/// A GPU that is asked for gets the plan built again for it; where there is none, that is what is said.
#[test]
fn a_plan_for_the_cpu_wants_a_gpu_that_is_there() {
    let folder = Folder::new("elsewhere");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    succeeds(&["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0"]);
    // No machine has this many.
    let ended = planish(&["run", &plan, "--device", "cuda:9999"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("cuda:9999 cannot be used"), "{}", ended.stderr);
    succeeds(&["run", &plan, "--device", "auto"]);
}

/// Words of the user's that name nothing are the user's mistakes, not ours.
#[test]
fn options_that_name_nothing() {
    let folder = Folder::new("options");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    let build = ["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0"];
    let ended = planish(&[&build[..], &["--disable-pass", "fold_everything"]].concat());
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("fold_everything") && !ended.stderr.contains("report"), "{}", ended.stderr);
    for (arguments, line) in [
        (&["--shapes", "x:3"][..], "`--shapes x:3` gives 1 dimension; input `x` has 2: f32[batch,3]"),
        (&["--shapes", "z:3"], "--shapes names `z`, which is not an input of the model; its inputs are `x`"),
        (
            &["--max-shapes", "x:2x4"],
            "`--max-shapes x:2x4` gives 4 for dimension 1; input `x` needs 3: f32[batch,3]",
        ),
        (
            &["--min-shapes", "x:9x3", "--max-shapes", "x:2x3"],
            "the profile's sizes of `batch` are min 9, opt 2 and max 2; give min <= opt <= max",
        ),
        (
            &["--shape-profile", "opt=x:1x3"],
            "--shape-profile: max=… is missing; give min=…, opt=… and max=…, as in 'min=x:1x3 opt=x:8x3 max=x:32x3'",
        ),
        (
            &["--shapes", "x:1x3", "--shape-profile", "max=x:1x3"],
            "--shapes, --min-shapes/--opt-shapes/--max-shapes and --shape-profile exclude each other; give one of them",
        ),
    ] {
        fails(&folder, &[&build[..], arguments].concat(), 2, line);
    }
}

/// An optimization profile has one name; the older one stays where it cannot be mistaken.
#[test]
fn optimization_profiles_and_profiles_of_layers() {
    let folder = Folder::new("profiles");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    let build = ["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0"];
    for flag in ["--shape-profile", "--profile"] {
        succeeds(&[&build[..], &[flag, "min=x:1x3 opt=x:2x3 max=x:4x3"]].concat());
        let shown = succeeds(&["inspect", &plan]).stdout;
        assert!(shown.contains("batch 1..4 (tuned at 2)"), "{shown}");
    }
    let ended = planish(&["profile", &model, "--profile", "max=x:4x3"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("unexpected argument '--profile'"), "{}", ended.stderr);
}
