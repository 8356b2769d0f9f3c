//! Before a plan is deployed: is it checked, made for this machine, within its memory, and right after it was read again?
//! `planish check MODEL.plan` asks twelve such questions.

use planish::{Builder, Device, Engine, Error, Opened, Outcome, Plan};

use super::network;

pub(crate) fn run() -> Result<(), Error> {
    let path = std::env::temp_dir().join(format!("planish-tour-{}.plan", std::process::id()));
    Builder::from_model(network::model()?).tune_level(1).build()?.save(&path)?;
    let asked = ask(&path);
    std::fs::remove_file(&path).ok();
    asked
}

fn ask(path: &std::path::Path) -> Result<(), Error> {
    let say = |what: &str, holds: bool, number: String| {
        println!("{} {what}: {number}", if holds { "pass" } else { "FAIL" });
    };
    let plan = match Plan::open_for(path, Device::Auto)? {
        Opened::Fits(plan) => plan,
        Opened::NeedsRebuild(rebuild) => {
            say("made for this machine", false, rebuild.why().to_string());
            return Ok(());
        }
    };
    say("made for this machine", true, plan.record().runs_on().device.clone());
    // The self-check again, on this machine.
    let plan = plan.recheck()?;
    let checks = &plan.certificate().checks;
    let n_failed =
        checks.iter().filter(|check| !matches!(check.outcome, Outcome::Passed | Outcome::Skipped(_))).count();
    say("self-check", n_failed == 0, format!("{} checks, {n_failed} failed", checks.len()));
    let n_measured =
        plan.record().evidence.iter().filter(|one| one.timings.iter().any(|timing| timing.measured)).count();
    say("kernels chosen by measured times", n_measured > 0, format!("{n_measured} steps"));
    let engine = Engine::new(plan, Device::Auto)?;
    let needs = engine.memory_at(&[("batch".to_string(), 16)])?;
    say(
        "memory at batch 16 below 64 MB",
        engine.weight_bytes() < 64 << 20,
        format!("{} bytes of weights, {needs:?}", engine.weight_bytes()),
    );
    Ok(())
}
