//! Plans met by other machines, the cache of plans, and what bounds the search: what is said, and that answers stay the
//! same.

use crate::planish;
use std::fs;
use std::process::Command;

use super::{Folder, elements_f32, linear, succeeds};

/// Runs the command as a machine with this instruction set, with a cache of its own; gives standard error.
#[track_caller]
fn on(isa: &str, folder: &Folder, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_planish"));
    command.args(arguments).env("PLANISH_ISA", isa).env("XDG_CACHE_HOME", folder.path("cache"));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    said
}

/// The instruction sets of this machine, as its plans name them.
fn instruction_sets(folder: &Folder, model: &str) -> Vec<&'static str> {
    let plan = folder.path("probe.plan").display().to_string();
    let runs = |isa: &&str| {
        on(
            isa,
            folder,
            &["build", model, "-o", &plan, "--device", "cpu", "--tune-level", "0", "--no-verify"],
        );
        succeeds(&["inspect", &plan, "--text"]).stdout.contains(&format!("target 0 cpu [{isa}]"))
    };
    ["portable", "avx2", "avx512"].into_iter().filter(runs).collect()
}

#[test]
fn plans_of_other_machines_are_built_again() {
    let folder = Folder::new("rebuild");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    let sets = instruction_sets(&folder, &model);
    let mut answers = Vec::new();
    for from in &sets {
        let build = ["build", &model, "-o", &plan, "--device", "cpu", "--threads", "1", "--tune-level", "0"];
        on(from, &folder, &build);
        for to in &sets {
            let out = folder.path(&format!("{from} {to}"));
            let target = out.display().to_string();
            let random = ["--random", "3", "--shapes", "x:5x3", "-o", &target];
            let arguments = [&["run", &plan, "--device", "cpu", "--no-cache"][..], &random].concat();
            let said = on(to, &folder, &arguments);
            let note = format!(
                "note: the plan was built for cpu with {from}, this is cpu with {to}; it is built again"
            );
            assert_eq!(said.contains(&note), from != to, "{said}");
            answers.push(elements_f32(&out.join("y.npy")));
            let short = ["--iterations", "2", "--no-cache", "--device", "cpu"];
            on(to, &folder, &[&["profile", &plan][..], &short].concat());
            on(
                to,
                &folder,
                &[&["bench", &plan, "--duration", "1ms", "--warmup", "1ms"][..], &short].concat(),
            );
            // What the file holds is shown as it is.
            assert_eq!(on(to, &folder, &["inspect", &plan]), "");
        }
    }
    // Three products a sum, of numbers below ten.
    for answer in &answers {
        assert!(answer.iter().zip(&answers[0]).all(|(a, b)| (a - b).abs() <= 1e-5), "{answer:?}");
    }
}

#[test]
fn what_is_built_in_memory_is_kept() {
    let folder = Folder::new("kept");
    let model = folder.put("linear.onnx", &linear());
    let run = |more: &[&str]| {
        let fixed =
            ["run", &model, "--device", "cpu", "--threads", "1", "--shapes", "x:2x3", "--random", "1"];
        on("portable", &folder, &[&fixed[..], more].concat())
    };
    let (kept, hit) = ("the plan is kept for the next time", "the plan is taken from the cache");
    assert!(!run(&["--no-cache"]).contains("the plan is"));
    assert!(!folder.path("cache").exists());
    assert!(run(&[]).contains(kept));
    assert!(run(&[]).contains(hit));
    // Other options are another plan, and so is a changed model.
    assert!(run(&["--no-winograd"]).contains(kept));
    let mut changed = linear();
    let at = changed.windows(4).position(|bytes| bytes == 6.0f32.to_le_bytes()).unwrap();
    changed[at..at + 4].copy_from_slice(&7.0f32.to_le_bytes());
    folder.put("linear.onnx", &changed);
    assert!(run(&[]).contains(kept));
    folder.put("linear.onnx", &linear());
    assert!(run(&[]).contains(hit));
    // Damage is seen, said and mended.
    for entry in fs::read_dir(folder.path("cache/planish/plans")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        fs::write(path, bytes).unwrap();
    }
    let said = run(&[]);
    assert!(said.contains("a cached plan cannot be used and is removed") && said.contains(kept), "{said}");
    assert!(run(&[]).contains(hit));
}

#[test]
fn tactics_are_chosen_by_source_time_and_workspace() {
    let folder = Folder::new("sources");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    let build = ["build", &model, "-o", &plan, "--device", "cpu", "--threads", "1"];
    let fails = |more: &[&str], words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_planish"));
        let output = command.args(build).args(more).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    };
    let known = "no tactics come from `cudn`; they come from own, reference, cublaslt, cudnn";
    fails(&["--tactic-sources", "+own,-cudn"], known);
    fails(&["--tactic-sources", "-own,-reference"], "nothing on this device can compute");
    fails(&["--workspace", "lots"], "is not a number of bytes");
    succeeds(&[&build[..], &["--tactic-sources", "+own,-cudnn", "--workspace", "4G"]].concat());
    let own = succeeds(&["inspect", &plan, "--layers"]).stdout;
    // Convolutions have rivals on every machine; the product above may have one tactic alone.
    let cnn = folder.path("cnn.onnx").display().to_string();
    succeeds(&["zoo", "cifar_cnn", "-o", &cnn]);
    let hurried = ["build", &cnn, "-o", &plan, "--device", "cpu", "--threads", "1", "--build-time", "0s"];
    let said = succeeds(&hurried).stderr;
    assert!(said.contains("--build-time is over: nothing was measured for"), "{said}");
    succeeds(&[&build[..], &["--tactic-sources", "-own"]].concat());
    let reference = succeeds(&["inspect", &plan, "--layers"]).stdout;
    assert!(!own.contains("reference") && reference.contains("reference"), "{own}\n{reference}");
    let code = planish(&["inspect", &plan, "--code", &folder.path("code").display().to_string()]);
    assert_eq!(code.code, Some(1), "{}", code.stderr);
    assert!(code.stderr.contains("the plan has no compiled code"), "{}", code.stderr);
}
