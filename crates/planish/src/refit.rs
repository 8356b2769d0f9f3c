//! Other weights for a plan, and its self-check run again.

use std::sync::Arc;

use planish_kernel::Backend;

use planish_compile::BuildOptions;

use crate::device::{Device, unpack};
use crate::{Border, Calibration, Error, Model, Opened, Plan};

impl Plan {
    /// The plan with the weights of another model of the same graph: a model that was trained on, say. Nothing is built, so
    /// that takes milliseconds; the certificate then says that the plan was not checked since
    /// ([`crate::CertificateState::UncheckedSinceRefit`]), until [`Plan::recheck`] has run the self-check again.
    ///
    /// A model whose optimized graph differs from the plan's in more than the elements of its weights is an error of kind
    /// [`crate::ErrorKind::Refused`], which says what differs. Plans with layers of 8 bits by a calibration need that as well:
    /// [`Plan::refit_with`].
    ///
    /// ```
    /// use planish::{Builder, CertificateState, DType, Device, Model, NetworkBuilder, Session, Engine, Tensor};
    ///
    /// let model = |scale: f32| -> Result<Model, planish::Error> {
    ///     let mut net = NetworkBuilder::new("linear");
    ///     let x = net.input("x", DType::F32, "batch,2")?;
    ///     let y = net.linear(x, Tensor::new(&[2, 2], vec![scale, 0., 0., scale])?, None)?;
    ///     net.output("y", y)?;
    ///     Model::from_network(net)
    /// };
    /// let plan = Builder::from_model(model(1.0)?).tune_level(0).build()?;
    /// let newer = plan.refit(&model(3.0)?)?;
    /// assert_eq!(newer.certificate().state(), CertificateState::UncheckedSinceRefit);
    /// assert_eq!(newer.recheck()?.certificate().state(), CertificateState::Checked);
    /// let y = Session::new(&Engine::new(newer, Device::Auto)?)?.infer(&Tensor::new(&[1, 2], vec![1f32, 2.])?)?;
    /// assert_eq!(y.tensors()[0], Tensor::new(&[1, 2], vec![3f32, 6.])?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refit(&self, model: &Model) -> Result<Plan, Error> {
        self.refitted(model, None)
    }

    /// The same of a plan of `--precision int8` or `fp8`, with the calibration that it was built with; another one is an error
    /// of kind [`crate::ErrorKind::Refused`]. What is between the layers keeps the ranges of the old weights, so a model whose
    /// values reach elsewhere loses accuracy: calibrate and build such a one anew.
    ///
    /// ```no_run
    /// use planish::{Calibration, Model, Plan};
    ///
    /// let (plan, model) = (Plan::open("int8.plan")?, Model::open("epoch_12.onnx")?);
    /// let newer = plan.refit_with(&model, &Calibration::open("epoch_1.calib")?)?;
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn refit_with(&self, model: &Model, calibration: &Calibration) -> Result<Plan, Error> {
        let mut options = BuildOptions::default();
        calibration.give(&mut options);
        self.refitted(model, Some(&options))
    }

    fn refitted(&self, model: &Model, calibrated: Option<&BuildOptions>) -> Result<Plan, Error> {
        let backends = self.own_backends()?;
        let border = Border::of_options(&self.inner.header.options);
        let model = &match model.border.is_empty() {
            true => model.clone().with_border(&border)?,
            false => model.clone(),
        };
        let refitted =
            planish_compile::refit(&self.inner, model.graph(), model.source, &backends, &unpack, calibrated)?;
        Ok(refitted.plan.into())
    }

    /// The plan without its weights, about as large as its program: for whoever has the model. [`Plan::refit`] with that
    /// model gives the plan that was stripped, bit by bit, with its certificate; where its layers are of 8 bits by a
    /// calibration, [`Plan::refit_with`] that calibration.
    ///
    /// ```
    /// use planish::{Builder, Device, Engine, Model, NetworkBuilder, DType, Tensor};
    ///
    /// let mut net = NetworkBuilder::new("linear");
    /// let x = net.input("x", DType::F32, "batch,64")?;
    /// let y = net.linear(x, Tensor::new(&[64, 64], vec![0.5f32; 4096])?, None)?;
    /// net.output("y", y)?;
    /// let model = Model::from_network(net)?;
    /// let plan = Builder::from_model(model.clone()).tune_level(0).build()?;
    /// let stripped = plan.strip()?;
    /// assert!(stripped.is_stripped() && stripped.file_bytes()? + 4096 < plan.file_bytes()?);
    /// let error = Engine::new(stripped.clone(), Device::Auto).unwrap_err();
    /// assert!(error.to_string().contains("planish refit"));
    /// assert_eq!(stripped.refit(&model)?.fingerprint()?, plan.fingerprint()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn strip(&self) -> Result<Plan, Error> {
        Ok(self.inner.strip().into())
    }

    /// The plan with its weights as the model has them, packed for no kernel: engines pack them when they are opened, which
    /// takes time and memory. Plans of one model for several targets then share their weights in a [`crate::Bundle`].
    pub fn with_plain_weights(&self) -> Result<Plan, Error> {
        Ok(planish_compile::canonical(&self.inner, &unpack)?.into())
    }

    /// The plan with a new certificate: its self-check is run again, against the graph that it carries. A plan that does
    /// not compute that is an error of kind [`crate::ErrorKind::CheckFailed`]. [`Plan::refit`] has an example.
    pub fn recheck(&self) -> Result<Plan, Error> {
        Ok(planish_compile::recheck(&self.inner, &self.own_backends()?, &unpack)?.into())
    }

    /// What the plan runs on, where that is here.
    fn own_backends(&self) -> Result<Vec<Arc<dyn Backend>>, Error> {
        match self.clone().fit(Device::Auto)? {
            Opened::Fits(_) => {
                let targets = &self.inner.header.targets;
                let device = Device::Auto.settled_for(targets);
                targets.iter().map(|target| device.backend_for(target)).collect()
            }
            Opened::NeedsRebuild(rebuild) => Err(Error::needs_rebuild(rebuild.why())),
        }
    }
}

#[cfg(test)]
mod tests {
    use planish_tensor::{DType, Tensor};
    use planish_testing::Random;

    use super::*;
    use crate::{
        Builder, CalibrationBuilder, CertificateState, Engine, ErrorKind, NetworkBuilder, Precision, Profile,
        Sample, Session, SymbolRange, Window,
    };

    /// Convolutions (plain and depthwise) with normalization, a scalar, and a linear layer, with weights of a seed.
    fn model(seed: u64, slope: f32, n_classes: usize) -> Model {
        let mut random = Random::new(seed);
        let mut net = NetworkBuilder::new("net");
        let x = net.input("x", DType::F32, "batch,3,12,12").unwrap();
        let window = || Window::of(&[3, 3]).pad(1);
        let y =
            net.conv(x, random.floats(&[16, 3, 3, 3]), Some(random.floats(&[16]).into()), window()).unwrap();
        let y = net.leaky_relu(y, slope).unwrap();
        let y = net.conv(y, random.floats(&[16, 1, 3, 3]), None, window().groups(16)).unwrap();
        let scale = net.constant("scale", random.floats(&[1, 16, 1, 1])).unwrap();
        let y = net.mul(y, scale).unwrap();
        let y = net.reduce_mean(y, &[2, 3], false).unwrap();
        let y =
            net.linear(y, random.floats(&[n_classes, 16]), Some(random.floats(&[n_classes]).into())).unwrap();
        net.output("y", y).unwrap();
        Model::from_network(net).unwrap()
    }

    fn builder(model: Model, fixed: bool) -> Builder {
        let builder = Builder::from_model(model).device(Device::Cpu).tune_level(0).threads(1);
        let batch = SymbolRange { symbol: "batch".into(), min: 2, opt: 2, max: 2 };
        if fixed { builder.profile(Profile { ranges: vec![batch] }) } else { builder }
    }

    fn answer(plan: Plan) -> Tensor {
        let mut session = Session::new(&Engine::new(plan, Device::Cpu).unwrap()).unwrap();
        let x = Random::new(99).floats(&[2, 3, 12, 12]);
        session.infer(&x).unwrap().into_tensors().remove(0)
    }

    #[test]
    fn a_refitted_plan_is_the_plan_of_the_new_model() {
        for fixed in [false, true] {
            let plan = builder(model(1, 0.1, 10), fixed).build().unwrap();
            let newer = plan.refit(&model(2, 0.1, 10)).unwrap();
            assert_ne!(answer(plan.clone()), answer(newer.clone()));
            let built = builder(model(2, 0.1, 10), fixed).build().unwrap();
            assert_eq!(answer(newer.clone()), answer(built.clone()), "fixed: {fixed}");
            assert_eq!(newer.record().weights, built.record().weights);
            assert_eq!(
                (&newer.record().graph, newer.record().header.source),
                (&built.record().graph, built.record().header.source)
            );
            assert_eq!(newer.certificate().state(), CertificateState::UncheckedSinceRefit);
            // Through a file, and checked again.
            let path =
                std::env::temp_dir().join(format!("planish-refit-{}-{fixed}.plan", std::process::id()));
            newer.save(&path).unwrap();
            let opened = Plan::open(&path).unwrap();
            assert_eq!(opened.certificate().state(), CertificateState::UncheckedSinceRefit);
            assert_eq!(opened.recheck().unwrap().certificate().state(), CertificateState::Checked);
            std::fs::remove_file(path).unwrap();
            // And back again.
            assert_eq!(answer(newer.refit(&model(1, 0.1, 10)).unwrap()), answer(plan));
        }
    }

    /// Two layers between a first and a last one, which stay wide.
    fn deep(seed: u64) -> Model {
        let mut random = Random::new(seed);
        let mut net = NetworkBuilder::new("deep");
        let mut y = net.input("x", DType::F32, "batch,16,12,12").unwrap();
        for _ in 0..4 {
            let window = Window::of(&[3, 3]).pad(1);
            let bias = random.floats(&[16]);
            y = net.conv(y, random.floats(&[16, 16, 3, 3]), Some(bias.into()), window).unwrap();
            y = net.relu(y).unwrap();
        }
        net.output("y", y).unwrap();
        Model::from_network(net).unwrap()
    }

    /// By its own calibration a plan of integers takes other weights as any plan does.
    #[test]
    fn plans_of_integers_are_refitted_with_their_calibration() {
        let sample = |seed: u64| -> Result<Sample, Error> {
            Ok(Sample::new(vec![("x".to_string(), Random::new(seed).floats(&[1, 16, 12, 12]))], 1))
        };
        let calibrated = |seeds: std::ops::Range<u64>| {
            CalibrationBuilder::from_model(deep(1)).run(seeds.map(sample)).unwrap()
        };
        let (calibration, other) = (calibrated(0..6), calibrated(6..12));
        let built = |seed: u64| {
            builder(deep(seed), false).precision(Precision::Int8).ranges(&calibration).build().unwrap()
        };
        let plan = built(1);
        let stripped = plan.strip().unwrap();
        for plan in [&plan, &stripped] {
            let without = plan.refit(&deep(1)).unwrap_err();
            assert!(
                without.to_string().contains("give the one that it was built with (--calib FILE)"),
                "{without}"
            );
            let wrong = plan.refit_with(&deep(1), &other).unwrap_err();
            assert!(wrong.to_string().contains("not the one that the plan was built with"), "{wrong}");
        }
        let filled = stripped.refit_with(&deep(1), &calibration).unwrap();
        assert_eq!(filled.fingerprint().unwrap(), plan.fingerprint().unwrap());
        assert_eq!(filled.certificate().state(), CertificateState::Checked);
        let (newer, of_new) = (plan.refit_with(&deep(2), &calibration).unwrap(), built(2));
        assert_eq!(newer.certificate().state(), CertificateState::UncheckedSinceRefit);
        assert_eq!(newer.record().weights, of_new.record().weights);
        assert_eq!(newer.record().graph, of_new.record().graph);
        assert_eq!(newer.recheck().unwrap().certificate().state(), CertificateState::Checked);
    }

    /// Eight threads run while the weights change; every result is of the old or of the new ones.
    #[test]
    fn an_engine_is_refitted_under_running_contexts() {
        use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
        use std::time::{Duration, Instant};

        use crate::View;

        let old = builder(model(1, 0.1, 10), false).build().unwrap();
        let new = old.refit(&model(2, 0.1, 10)).unwrap();
        let mut engine = Engine::new(old.clone(), Device::Cpu).unwrap();
        let (of_old, of_new) = (answer(old.clone()), answer(new.clone()));
        let x = Random::new(99).floats(&[2, 3, 12, 12]);
        let (stop, n_seen) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
        let (clone, seen_of) =
            (engine.clone(), |of_new: bool| n_seen[usize::from(of_new)].load(Ordering::SeqCst));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut context = clone.context().unwrap();
                    while !stop.load(Ordering::SeqCst) {
                        let outputs = context.run(&[("x", View::from(&x))]).unwrap();
                        let y = outputs.get("y").unwrap();
                        let is = |known: &Tensor| y.bytes() == &known.bytes()[..];
                        assert!(is(&of_old) || is(&of_new), "of neither weights");
                        n_seen[usize::from(is(&of_new))].fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            let begun = Instant::now();
            for turn in 0.. {
                let (plan, is_new) = if turn % 2 == 0 { (&new, true) } else { (&old, false) };
                let before = seen_of(is_new);
                engine.refit(plan.clone()).unwrap();
                // Until somebody had them.
                while seen_of(is_new) == before && begun.elapsed() < Duration::from_secs(60) {
                    std::thread::yield_now();
                }
                if turn >= 20 && is_new {
                    break;
                }
            }
            stop.store(true, Ordering::SeqCst);
        });
        assert!(seen_of(true) >= 10 && seen_of(false) >= 10, "{n_seen:?}");
        // A context that was made before, and a clone, have the new ones.
        let mut session = Session::new(&clone).unwrap();
        assert_eq!(session.infer(&x).unwrap().into_tensors().remove(0), of_new);
        // Another plan is refused, and nothing changes.
        let other = builder(model(1, 0.1, 11), false).build().unwrap();
        assert_eq!(*engine.refit(other).unwrap_err().kind(), ErrorKind::Refused);
        assert!(
            engine.refit(old.strip().unwrap()).unwrap_err().to_string().contains("stripped of its weights")
        );
        assert_eq!(session.infer(&x).unwrap().into_tensors().remove(0), of_new);
    }

    /// Places that a kernel is made with, and constants of a body, stay what they were; the weight beside them changes.
    #[test]
    fn constants_that_are_no_weights_must_stay() {
        let list = |numbers: Vec<i64>| Tensor::new(&[numbers.len()], numbers).unwrap();
        let graph =
            |text: &str, constants: &[Tensor]| Model::from(planish_ir::parse(text, constants).unwrap());
        let gather = |places: Vec<i64>, seed: u64| {
            let text = "graph \"g\" { input %x: f32[1,40] const %p: i64[40] = #0 const %w: f32[40,40] = #1 \
                        %g: f32[1,40] = Gather(%x, %p) {axis=1} \"g\" %y: f32[1,40] = MatMul(%g, %w) \"m\" output %y }";
            graph(text, &[list(places), Random::new(seed).floats(&[40, 40])])
        };
        let plan = builder(gather((0..40).rev().collect(), 1), true).build().unwrap();
        let newer = plan.refit(&gather((0..40).rev().collect(), 2)).unwrap();
        assert_ne!(newer.record().weights, plan.record().weights);
        let error = plan.refit(&gather((0..40).map(|place| place * 7 % 40).collect(), 2)).unwrap_err();
        assert!(error.to_string().contains("is part of its program and differs"), "{error}");

        let scan = |of_body: u64, seed: u64| {
            let text = "graph \"g\" { input %s: f32[20,20] const %trips: i64[] = 3 const %yes: bool[] = true const %w: f32[20,20] = #0 \
                        %v: f32[20,20] = MatMul(%s, %w) \"m\" \
                        %y: f32[20,20] = Loop(%trips, %yes, %v) \"loop\" [ graph \"body\" { \
                        input %i: i64[] input %c: bool[] input %a: f32[20,20] const %b: f32[20,20] = #1 \
                        %n: f32[20,20] = MatMul(%a, %b) \"n\" output %c, %n } ] output %y }";
            graph(text, &[Random::new(seed).floats(&[20, 20]), Random::new(of_body).floats(&[20, 20])])
        };
        let plan = builder(scan(1, 1), true).build().unwrap();
        assert!(plan.refit(&scan(1, 2)).is_ok());
        let error = plan.refit(&scan(2, 1)).unwrap_err();
        assert!(error.to_string().contains("of the plan's graph is not that of the new model"), "{error}");
    }

    #[test]
    fn other_graphs_are_refused_with_what_differs() {
        let plan = builder(model(1, 0.1, 10), false).build().unwrap();
        for (other, why) in [
            (model(1, 0.2, 10), "is not that of the new model"),
            (model(1, 0.1, 11), "the new model has other outputs"),
        ] {
            let error = plan.refit(&other).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Refused);
            assert!(error.to_string().contains(why), "{error}");
            assert!(error.to_string().ends_with("build it again from the new model"), "{error}");
        }
    }
}
