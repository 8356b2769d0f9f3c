//! Borders against the same work done by hand.

use planish_ir::Graph;
use planish_tensor::{DType, Tensor};
use planish_testing::Random;

use crate::{Border, Builder, Device, Engine, Model, NetworkBuilder, Session, labels_of};

/// Sums of f32 in other orders.
const TOLERANCE: f64 = 1e-5;

fn model(text: &str) -> Model {
    Model::from(text.parse::<Graph>().unwrap())
}

fn engine(model: Model) -> Engine {
    let plan = Builder::from_model(model).device(Device::Cpu).threads(1).tune_level(0).build().unwrap();
    Engine::new(plan, Device::Cpu).unwrap()
}

fn run(engine: &Engine, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut context = engine.context().unwrap();
    let values: Vec<_> = inputs.iter().cloned().map(crate::Value::from).collect();
    let outputs = context.run_values(&values).unwrap();
    outputs.iter().map(|value| value.as_tensor().unwrap().clone()).collect()
}

fn scaled() -> Model {
    model(r#"graph "g" { input %x: f32[n,3,4,5] %y: f32[n,3,4,5] = Neg(%x) output %y }"#)
}

#[test]
fn types_and_layouts_of_both_ends() {
    let border = Border::new().io("x:u8:nhwc").io("y:fp16:channels-last");
    let engine = engine(scaled().with_border(&border).unwrap());
    assert_eq!(engine.inputs()[0].ty.to_string(), "u8[n,4,5,3]");
    assert_eq!(engine.outputs()[0].ty.to_string(), "f16[n,4,5,3]");
    let x = Tensor::new(&[2, 4, 5, 3], (0..120u8).collect()).unwrap();
    let y = run(&engine, &[x]).remove(0);
    assert_eq!(y.to_f64s(), (0..120).map(|x| -f64::from(x)).collect::<Vec<_>>());
    // Three axes and five, and a model that has its channels last itself.
    for (dims, io, given) in [
        ("n,3,5", "x:nwc", "f32[n,5,3]"),
        ("n,3,4,5,6", "x:ndhwc", "f32[n,4,5,6,3]"),
        ("n,6,5,3", "x:nchw", "f32[n,3,6,5]"),
        ("n,6,5,3", "x:nhwc", "f32[n,6,5,3]"),
    ] {
        let text = format!(r#"graph "g" {{ input %x: f32[{dims}] %y: f32[{dims}] = Neg(%x) output %y }}"#);
        let model = model(&text).with_border(&Border::new().io(io)).unwrap();
        assert_eq!(model.graph().value(model.graph().inputs()[0]).ty.to_string(), given);
    }
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    for (border, why) in [
        (Border::new().io("z:u8"), "no input or output `z`"),
        (Border::new().io("x:u9"), "neither a type"),
        (Border::new().io("x:i4"), "neither a type"),
        (Border::new().io("x:u8:f32"), "neither a type"),
        (Border::new().io("x"), "says nothing"),
        (Border::new().io("x:u8").io("x:nhwc"), "was given before"),
        (Border::new().io("x:ndhwc"), "a layout of 5"),
        (Border::new().pre("z:bgr"), "begins with no input"),
        (Border::new().pre("x:blur=3"), "is not a step"),
        (Border::new().pre("x:resize=0"), "is not a size"),
        (Border::new().pre("x:mean=1/2"), "has 3 channels, 2 numbers"),
        (Border::new().pre("x:std=0"), "divides by 0"),
        (Border::new().pre("x:resize=7x7"), "its pre-processing gives"),
        (Border::new().pre("x:"), "says nothing to do"),
        (Border::new().post("y:topk"), "is not a step"),
        (Border::new().post("y:softmax=9"), "has no axis 9"),
        (Border::new().post("y:labels=a.txt"), "stand behind argmax"),
        (Border::new().post("y:argmax,labels"), "no names of classes"),
        (Border::new().post("y:argmax,labels=/nowhere/names"), "/nowhere/names"),
        (Border::new().post("y:nms=0.5"), "stands behind boxes"),
        (Border::new().post("y:boxes=yolov8"), "boxes of YOLO are"),
    ] {
        let error = scaled().with_border(&border).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains('\n'), "{border:?}: {error}");
    }
    let states = |texts: &[&str]| {
        let text = r#"graph "g" {
            input %x: f32[n,3] input %h: f32[n,4] input %k: i32[n,4]
            %y: f32[n,4] = Neg(%h) output %y, %x, %k
        }"#;
        model(text).with_states(texts).map(drop).map_err(|error| error.to_string())
    };
    for (texts, why) in [
        (&["z=y"][..], "names no input"),
        (&["h=z"], "no output `z`"),
        (&["h=x"], "one type and shape"),
        (&["h=k"], "one type and shape"),
        (&["h=y:2x3"], "takes no sizes"),
        (&["h=y:2xa"], "are no sizes"),
        (&["h=y", "h=y"], "state already"),
    ] {
        let error = states(texts).unwrap_err();
        assert!(error.contains(why), "{texts:?}: {error}");
    }
    assert!(states(&["h=y:2x4"]).is_ok());
}

#[test]
fn pictures_are_prepared_as_by_hand() {
    let text = r#"graph "g" { input %x: f32[n,3,4,4] %y: f32[n,3,4,4] = Neg(%x) output %y }"#;
    let border = Border::new().io("x:u8:nhwc").pre("x:crop=4,bgr,div=255,mean=0.1/0.2/0.3,std=2");
    let engine = engine(model(text).with_border(&border).unwrap());
    assert_eq!(engine.inputs()[0].ty.to_string(), "u8[n,x.height,x.width,3]");
    let (height, width) = (6, 8);
    let pixel = |row: usize, column: usize, channel: usize| (row * 40 + column * 5 + channel) as u8;
    let mut pixels = Vec::new();
    for row in 0..height {
        for column in 0..width {
            pixels.extend((0..3).map(|channel| pixel(row, column, channel)));
        }
    }
    let y = run(&engine, &[Tensor::new(&[1, height, width, 3], pixels).unwrap()]).remove(0);
    let got = y.to_f64s();
    for channel in 0..3 {
        for row in 0..4 {
            for column in 0..4 {
                let raw = f64::from(pixel(row + 1, column + 2, 2 - channel)) / 255.0;
                let want = -(raw - [0.1, 0.2, 0.3][channel]) / 2.0;
                let got = got[(channel * 4 + row) * 4 + column];
                assert!((got - want).abs() < TOLERANCE, "{channel} {row} {column}: {got}, not {want}");
            }
        }
    }
}

#[test]
fn any_size_is_resized_and_fitted() {
    // What is of one colour stays of it, and the rest around is filled.
    let text = r#"graph "g" { input %x: f32[n,3,8,8] %y: f32[n,3,8,8] = Neg(%x) output %y }"#;
    for (pre, is_filled) in [("resize=8x8", false), ("resize=10,crop=8", false), ("letterbox=8x8/7", true)] {
        let border = Border::new().io("x:u8:nhwc").pre(&format!("x:{pre}"));
        let engine = engine(model(text).with_border(&border).unwrap());
        for (height, width) in [(16, 32), (8, 8), (5, 20)] {
            let pixels = Tensor::new(&[1, height, width, 3], vec![50u8; height * width * 3]).unwrap();
            let y = run(&engine, &[pixels]).remove(0);
            assert_eq!(y.shape(), [1, 3, 8, 8]);
            let is = |want: f64| move |got: &f64| (got + want).abs() < 1e-3;
            let (own, fill) = (
                y.to_f64s().iter().filter(|x| is(50.0)(x)).count(),
                y.to_f64s().iter().filter(|x| is(7.0)(x)).count(),
            );
            assert_eq!(own + fill, 3 * 64, "{pre} {height}x{width}: {:?}", y.to_f64s());
            assert_eq!(fill > 0, is_filled && height != width, "{pre} {height}x{width}");
        }
    }
}

#[test]
fn the_best_classes_have_names() {
    let folder = std::env::temp_dir().join(format!("planish-labels-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("names.txt");
    std::fs::write(&file, "cat\ndog\nbird\nfish\n").unwrap();
    let text = r#"graph "g" { input %x: f32[n,4] %y: f32[n,4] = Neg(%x) output %y }"#;
    let post = format!("y:softmax,topk=2,labels={}", file.display());
    let top = engine(model(text).with_border(&Border::new().post(&post)).unwrap());
    let x = Tensor::new(&[1, 4], vec![0.0f32, -3.0, 1.0, -2.0]).unwrap();
    let outputs = run(&top, std::slice::from_ref(&x));
    assert_eq!(outputs[1].to_i64s(), [1, 3]);
    let sum: f64 = [0.0f64, 3.0, -1.0, 2.0].iter().map(|x| x.exp()).sum();
    assert!((outputs[0].to_f64s()[0] - 3f64.exp() / sum).abs() < TOLERANCE);
    let labels = labels_of(&top);
    assert_eq!(
        (labels[0].output.as_str(), &labels[0].names[..]),
        ("y.indices", &["cat", "dog", "bird", "fish"].map(String::from)[..])
    );
    let best = engine(model(text).with_border(&Border::new().post("y:argmax").io("y:i32")).unwrap());
    assert_eq!(best.outputs()[0].ty.to_string(), "i32[n]");
    assert_eq!(run(&best, &[x])[0].to_i64s(), [1]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn boxes_are_decoded_suppressed_and_brought_back() {
    // The network says of five places what is given to it: boxes by centre and size, two classes.
    let text = r#"graph "g" {
        input %image: f32[1,3,100,100] input %raw: f32[1,6,5]
        %m: f32[1,3,100,100] = Neg(%image) %y: f32[1,6,5] = Identity(%raw) output %y, %m
    }"#;
    let border = Border::new().io("image:u8:nhwc").pre("image:letterbox").post("y:boxes=yolov8,nms=0.5/0.3");
    let engine = engine(model(text).with_border(&border).unwrap());
    let names: Vec<String> = engine.outputs().into_iter().map(|port| port.name).collect();
    assert_eq!(names, ["y", "y.scores", "y.classes", "y.images", "m"]);
    // A picture of 200 x 100 is halved, with 25 rows above.
    let image = Tensor::new(&[1, 100, 200, 3], vec![9u8; 60_000]).unwrap();
    let rows: [[f32; 5]; 6] = [
        [50.0, 51.0, 20.0, 80.0, 50.0],
        [50.0, 50.0, 40.0, 60.0, 50.0],
        [20.0, 20.0, 10.0, 20.0, 20.0],
        [20.0, 20.0, 10.0, 10.0, 20.0],
        [0.9, 0.8, 0.1, 0.2, 0.1],
        [0.1, 0.1, 0.7, 0.1, 0.6],
    ];
    let raw = Tensor::new(&[1, 6, 5], rows.concat()).unwrap();
    let outputs = run(&engine, &[image, raw]);
    let found: Vec<(i64, f64)> = outputs[2]
        .to_i64s()
        .into_iter()
        .zip(outputs[1].to_f64s().into_iter().map(|x| (x * 100.0).round()))
        .collect();
    // The second lies on the first; the last has its place too, of another class; the fourth is too unsure.
    assert_eq!(found, [(0, 90.0), (1, 70.0), (1, 60.0)]);
    let first: Vec<f64> = outputs[0].to_f64s()[..4].to_vec();
    for (got, want) in first.iter().zip([80.0, 30.0, 120.0, 70.0]) {
        assert!((got - want).abs() < 1e-3, "{first:?}");
    }
}

#[test]
fn states_are_what_feeding_them_by_hand_gives() {
    let mut random = Random::new(5);
    let mut net = NetworkBuilder::new("cell");
    let x = net.input("x", DType::F32, "batch,3").unwrap();
    let h = net.input("h", DType::F32, "batch,4").unwrap();
    let cache = net.input("cache", DType::F32, "batch,past,3").unwrap();
    let from_x = net.matmul(x, random.floats(&[3, 4])).unwrap();
    let from_h = net.matmul(h, random.floats(&[4, 4])).unwrap();
    let sum = net.add(from_x, from_h).unwrap();
    let next = net.tanh(sum).unwrap();
    let row = net.unsqueeze(x, &[1]).unwrap();
    let longer = net.concat(&[cache, row], 1).unwrap();
    let mean = net.reduce_mean(longer, &[1], false).unwrap();
    net.output("mean", mean).unwrap();
    net.output("h_next", next).unwrap();
    net.output("cache_next", longer).unwrap();
    let plain = Model::from_network(net).unwrap();
    let by_hand = engine(plain.clone());
    let kept = engine(plain.with_states(&["h=h_next", "cache=cache_next"]).unwrap());
    let mut context = kept.context().unwrap();
    let (mut h, mut cache) =
        (Tensor::new(&[2, 4], vec![0f32; 8]).unwrap(), Tensor::new(&[2, 0, 3], Vec::<f32>::new()).unwrap());
    for step in 0..6 {
        let x = random.floats(&[2, 3]);
        let want = run(&by_hand, &[x.clone(), h, cache]);
        let got = context.run_values(&[crate::Value::from(x)]).unwrap();
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got.as_tensor(), Some(want), "step {step}");
        }
        assert_eq!(context.states().unwrap().get("h").unwrap().as_ref(), Some(&want[1]));
        (h, cache) = (want[1].clone(), want[2].clone());
    }
    // One row begins anew, the other goes on.
    context.states().unwrap().reset_row(0).unwrap();
    let h = context.states().unwrap().get("h").unwrap().unwrap();
    assert!(h.to_f64s()[..4].iter().all(|x| *x == 0.0) && h.to_f64s()[4..].iter().any(|x| *x != 0.0));
    assert!(context.states().unwrap().reset_row(2).is_err());
    // A wrong run leaves them as they were.
    assert!(context.run_values(&[crate::Value::from(random.floats(&[2, 5]))]).is_err());
    assert_eq!(context.states().unwrap().get("h").unwrap(), Some(h));
    assert!(context.states().unwrap().get("z").is_err());
    context.states().unwrap().reset();
    assert_eq!(context.states().unwrap().get("h").unwrap(), None);
    let got = context.run_values(&[crate::Value::from(random.floats(&[1, 3]))]).unwrap();
    assert_eq!(got[2].as_tensor().unwrap().shape(), [1, 1, 3]);
}

#[test]
fn a_plan_with_a_border_is_refitted_with_it() {
    let build = |factor: f32| {
        let mut net = NetworkBuilder::new("layer");
        let x = net.input("x", DType::F32, "batch,2").unwrap();
        let weight = Tensor::new(&[2, 2], vec![factor, 0.0, 0.0, factor]).unwrap();
        let y = net.linear(x, weight, None).unwrap();
        net.output("y", y).unwrap();
        Model::from_network(net).unwrap()
    };
    let border = Border::new().io("x:u8");
    let bordered = build(1.0).with_border(&border).unwrap();
    let plan = Builder::from_model(bordered).device(Device::Cpu).threads(1).tune_level(0).build().unwrap();
    let newer = plan.refit(&build(3.0)).unwrap();
    let mut session = Session::new(&Engine::new(newer, Device::Cpu).unwrap()).unwrap();
    let y = session.infer(&Tensor::new(&[1, 2], vec![1u8, 2]).unwrap()).unwrap();
    assert_eq!(y.tensors()[0].to_f64s(), [3.0, 6.0]);
}
