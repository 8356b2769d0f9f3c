//! Honest plans that forgers start from: small networks whose steps between them have tactics of every family of the
//! CPU, data-dependent sizes, control flow and values that are no tensors. The fuzz target `run_plan` mutates the
//! same ones.

use planish::op::Attribute;
use planish::{Body, Builder, DType, Device, Error, Model, NetworkBuilder, Tensor, Value, Wire};
use planish_plan::{Certificate, Plan};
use planish_tensor::Shape;
use planish_testing::Random;

/// A base: its name, and how its network is made.
pub(crate) struct Base {
    pub(crate) name: &'static str,
    network: fn(&mut Net) -> Result<(), Error>,
}

/// All bases.
pub(crate) const BASES: [Base; 16] = [
    Base { name: "convolutions", network: convolutions },
    Base { name: "transposed", network: transposed },
    Base { name: "bottleneck", network: bottleneck },
    Base { name: "products", network: products },
    Base { name: "few_bits", network: few_bits },
    Base { name: "norms", network: norms },
    Base { name: "moves", network: moves },
    Base { name: "picks", network: picks },
    Base { name: "reductions", network: reductions },
    Base { name: "images", network: images },
    Base { name: "attention", network: attention },
    Base { name: "recurrent", network: recurrent },
    Base { name: "pointwise", network: pointwise },
    Base { name: "typed", network: typed },
    Base { name: "control", network: control },
    Base { name: "host", network: host },
];

impl Base {
    /// The model that it is built from.
    pub(crate) fn model(&self) -> Result<Model, Error> {
        let mut net = Net { inner: NetworkBuilder::new(self.name), n_constants: 0 };
        (self.network)(&mut net)?;
        Model::from_network(net.inner)
    }

    /// The plan, by the cost model and for one thread, so that it is the same on every machine of one instruction set;
    /// without Winograd, whose weights no plan stores packed.
    pub(crate) fn plan(&self) -> Result<Plan, Error> {
        let mut builder = Builder::from_model(self.model()?).device(Device::Cpu).tune_level(0).threads(1);
        builder.options_mut().verify = false;
        builder.options_mut().winograd = false;
        // Whoever forges a plan leaves out the certificate, which would tell.
        Ok(Plan { certificate: Certificate::default(), ..builder.build()?.record().clone() })
    }
}

/// Inputs that a plan takes, at these sizes of its symbols: seeded numbers, whole ones from 0 to 2.
pub(crate) fn inputs(plan: &Plan, size: i64) -> Option<Vec<Value>> {
    let mut random = Random::new(1);
    let mut value = |idx: &u32| {
        let ty = plan.program.values[*idx as usize].ty.as_tensor()?;
        let shape: &Shape = ty.shape.as_ref()?;
        let dims = shape.iter().map(|dim| usize::try_from(dim.eval(&|_| Some(size))?).ok());
        let dims = dims.collect::<Option<Vec<usize>>>()?;
        let n = planish_tensor::element_count(&dims).filter(|n| *n <= 1 << 20)?;
        let numbers: Vec<f64> = match ty.dtype {
            DType::Bool => (0..n).map(|_| random.below(2) as f64).collect(),
            DType::I64 | DType::I32 => (0..n).map(|_| random.below(3) as f64).collect(),
            _ => (0..n).map(|_| random.below(257) as f64 / 64.0 - 2.0).collect(),
        };
        Tensor::from_f64s(ty.dtype, &dims, &numbers).ok().map(Value::Tensor)
    };
    plan.program.inputs.iter().map(&mut value).collect()
}

struct Net {
    inner: NetworkBuilder,
    n_constants: usize,
}

fn ints(list: &[i64]) -> Attribute {
    Attribute::Ints(list.to_vec())
}

impl Net {
    fn input(&mut self, name: &str, dtype: DType, shape: &str) -> Result<Wire, Error> {
        self.inner.input(name, dtype, shape)
    }

    fn constant(&mut self, tensor: Tensor) -> Result<Wire, Error> {
        self.n_constants += 1;
        self.inner.constant(&format!("c{}", self.n_constants), tensor)
    }

    /// Seeded numbers.
    fn weight(&mut self, dims: &[usize]) -> Result<Wire, Error> {
        let n: usize = dims.iter().product();
        let numbers: Vec<f32> = (0..n).map(|idx| (idx * 37 % 101) as f32 / 64.0 - 0.75).collect();
        let tensor = Tensor::new(dims, numbers).expect("as many numbers");
        self.constant(tensor)
    }

    fn whole(&mut self, numbers: &[i64]) -> Result<Wire, Error> {
        self.constant(Tensor::vector(numbers.to_vec()))
    }

    fn op(&mut self, name: &str, attributes: &[(&str, Attribute)], inputs: &[Wire]) -> Result<Wire, Error> {
        Ok(self.ops(name, attributes, inputs, 1)?[0])
    }

    fn ops(
        &mut self,
        name: &str,
        attributes: &[(&str, Attribute)],
        inputs: &[Wire],
        n_outputs: usize,
    ) -> Result<Vec<Wire>, Error> {
        let inputs: Vec<Option<Wire>> = inputs.iter().copied().map(Some).collect();
        self.inner.op_by_name(name, attributes, &inputs, n_outputs)
    }

    fn output(&mut self, name: &str, wire: Wire) -> Result<(), Error> {
        self.inner.output(name, wire)
    }
}

fn convolutions(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,3,12,12")?;
    let (w1, b1) = (net.weight(&[16, 3, 3, 3])?, net.weight(&[16])?);
    let pads = || ("pads", ints(&[1, 1, 1, 1]));
    let c1 = net.op("Conv", &[pads()], &[x, w1, b1])?;
    let r1 = net.op("Relu", &[], &[c1])?;
    let w2 = net.weight(&[16, 16, 3, 3])?;
    let c2 = net.op("Conv", &[pads()], &[r1, w2])?;
    let sum = net.op("Add", &[], &[c2, r1])?;
    let w3 = net.weight(&[24, 16, 1, 1])?;
    let c3 = net.op("Conv", &[], &[sum, w3])?;
    let s3 = net.op("Sigmoid", &[], &[c3])?;
    let w4 = net.weight(&[24, 1, 3, 3])?;
    let strides = ("strides", ints(&[2, 2]));
    let c4 = net.op("Conv", &[pads(), strides, ("group", Attribute::Int(24))], &[s3, w4])?;
    let w5 = net.weight(&[2, 24, 3, 3])?;
    let c5 = net.op("Conv", &[pads()], &[c4, w5])?;
    let w6 = net.weight(&[12, 8, 1, 1])?;
    let c6 = net.op("Conv", &[("group", Attribute::Int(3))], &[c4, w6])?;
    net.output("few", c5)?;
    net.output("grouped", c6)
}

fn transposed(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,8,5,6")?;
    let w = net.weight(&[8, 12, 3, 3])?;
    let strides = ("strides", ints(&[2, 2]));
    let y = net.op("ConvTranspose", &[strides, ("pads", ints(&[1, 1, 1, 1]))], &[x, w])?;
    net.output("y", y)
}

fn bottleneck(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "1,16,48,48")?;
    let (w1, w2, w3) =
        (net.weight(&[96, 16, 1, 1])?, net.weight(&[96, 1, 3, 3])?, net.weight(&[16, 96, 1, 1])?);
    let wide = net.op("Conv", &[], &[x, w1])?;
    let wide = net.op("Relu", &[], &[wide])?;
    let deep =
        net.op("Conv", &[("pads", ints(&[1, 1, 1, 1])), ("group", Attribute::Int(96))], &[wide, w2])?;
    let deep = net.op("Relu", &[], &[deep])?;
    let narrow = net.op("Conv", &[], &[deep, w3])?;
    let y = net.op("Add", &[], &[narrow, x])?;
    net.output("y", y)
}

fn products(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,6,20")?;
    let (w, b) = (net.weight(&[20, 33])?, net.weight(&[33])?);
    let y = net.op("MatMul", &[], &[x, w])?;
    let y = net.op("Add", &[], &[y, b])?;
    let y = net.op("Gelu", &[], &[y])?;
    let turned = net.op("Transpose", &[("perm", ints(&[0, 2, 1]))], &[y])?;
    let scores = net.op("MatMul", &[], &[y, turned])?;
    let soft = net.op("Softmax", &[], &[scores])?;
    let log = net.op("LogSoftmax", &[("axis", Attribute::Int(1))], &[scores])?;
    net.output("soft", soft)?;
    net.output("log", log)
}

/// Weights of 4 and 8 bits in blocks, with zero points and without, either way round.
fn few_bits(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,48")?;
    let codes = |dtype: DType, dims: [usize; 2]| {
        let codes = (0..dims[0] * dims[1]).map(|idx| (idx * 37 % 16) as u8).collect();
        Tensor::from_codes(dtype, &dims, codes).expect("as many integers")
    };
    let block = |axis: i64, size: i64| [("axis", Attribute::Int(axis)), ("block_size", Attribute::Int(size))];
    let (w1, s1, z1) = (
        net.constant(codes(DType::U4, [48, 40]))?,
        net.weight(&[3, 40])?,
        net.constant(codes(DType::U4, [3, 40]))?,
    );
    let v1 = net.op("DequantizeLinear", &block(0, 16), &[w1, s1, z1])?;
    let p1 = net.op("MatMul", &[], &[x, v1])?;
    let r1 = net.op("Relu", &[], &[p1])?;
    let (w2, s2, b2) = (net.constant(codes(DType::I8, [36, 40]))?, net.weight(&[36, 2])?, net.weight(&[36])?);
    let v2 = net.op("DequantizeLinear", &block(1, 32), &[w2, s2])?;
    let p2 = net.op("Gemm", &[("trans_b", Attribute::Bool(true))], &[r1, v2, b2])?;
    net.output("y", p2)
}

fn norms(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,8,5,6")?;
    let (s, b) = (net.weight(&[6])?, net.weight(&[6])?);
    let layer = net.op("LayerNormalization", &[], &[x, s, b])?;
    let (s, b) = (net.weight(&[8])?, net.weight(&[8])?);
    let group = net.op("GroupNormalization", &[("num_groups", Attribute::Int(2))], &[layer, s, b])?;
    let instance = net.op("InstanceNormalization", &[], &[group, s, b])?;
    let length = net.op("LpNormalization", &[("axis", Attribute::Int(2))], &[instance])?;
    let (s, y) = (net.weight(&[5, 6])?, net.op("Add", &[], &[length, x])?);
    let rms = net.op("RMSNormalization", &[("axis", Attribute::Int(2))], &[y, s])?;
    net.output("rms", rms)
}

fn moves(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,4,6,8")?;
    let turned = net.op("Transpose", &[("perm", ints(&[0, 2, 3, 1]))], &[x])?;
    let relu = net.op("Relu", &[], &[turned])?;
    let sizes = net.whole(&[1, 3])?;
    let parts = net.inner.op_by_name("Split", &[("axis", Attribute::Int(1))], &[Some(x), Some(sizes)], 2)?;
    let (first, second) = (net.op("Neg", &[], &[parts[0]])?, net.op("Exp", &[], &[parts[1]])?);
    let joined = net.op("Concat", &[("axis", Attribute::Int(1))], &[second, first])?;
    let (starts, ends, axes, steps) =
        (net.whole(&[1, 6])?, net.whole(&[6, 0])?, net.whole(&[2, 3])?, net.whole(&[2, -2])?);
    let sliced = net.op("Slice", &[], &[joined, starts, ends, axes, steps])?;
    let pads = net.whole(&[0, 0, 1, 2, 0, 0, 0, 1])?;
    let padded = net.op("Pad", &[], &[sliced, pads])?;
    let repeats = net.whole(&[1, 2, 1, 1])?;
    let tiled = net.op("Tile", &[], &[padded, repeats])?;
    let deep = net.op("DepthToSpace", &[("blocksize", Attribute::Int(2))], &[joined])?;
    net.output("tiled", tiled)?;
    net.output("deep", deep)?;
    net.output("relu", relu)
}

fn picks(net: &mut Net) -> Result<(), Error> {
    let ids = net.input("ids", DType::I64, "n,3")?;
    let table = net.weight(&[3, 10])?;
    let rows = net.op("Gather", &[], &[table, ids])?;
    let data = net.op("Neg", &[], &[rows])?;
    let flat = net.whole(&[-1, 10])?;
    let data = net.op("Reshape", &[], &[data, flat])?;
    let axes = net.whole(&[1])?;
    let place = net.op("Unsqueeze", &[], &[ids, axes])?;
    let three = net.op("Relu", &[], &[data])?;
    let index = net.whole(&[2, 1, 0, 1, 2, 0])?;
    let shape = net.whole(&[2, 3])?;
    let index = net.op("Reshape", &[], &[index, shape])?;
    let updates = net.weight(&[2, 3])?;
    let scattered = net.op("ScatterElements", &[("axis", Attribute::Int(1))], &[three, index, updates])?;
    let gathered = net.op("GatherElements", &[("axis", Attribute::Int(1))], &[three, index])?;
    let tuples = net.whole(&[0, 1, 2, 3])?;
    let pairs = net.whole(&[2, 2])?;
    let tuples = net.op("Reshape", &[], &[tuples, pairs])?;
    let picked = net.op("GatherND", &[], &[three, tuples])?;
    net.output("scattered", scattered)?;
    net.output("gathered", gathered)?;
    net.output("picked", picked)?;
    net.output("place", place)
}

fn reductions(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,6,5,7")?;
    let (axes, k, axis) = (net.whole(&[1, 3])?, net.whole(&[3])?, net.constant(Tensor::scalar(2i64))?);
    let relu = net.op("Relu", &[], &[x])?;
    let mean = net.op("ReduceMean", &[("keepdims", Attribute::Bool(false))], &[relu, axes])?;
    let largest = net.op("ReduceMax", &[], &[relu, axes])?;
    let place = net.op("ArgMax", &[("axis", Attribute::Int(1))], &[relu])?;
    let sum = net.op("CumSum", &[], &[relu, axis])?;
    let best = net.inner.op_by_name("TopK", &[("axis", Attribute::Int(3))], &[Some(sum), Some(k)], 2)?;
    for (name, wire) in
        [("mean", mean), ("largest", largest), ("place", place), ("best", best[0]), ("where", best[1])]
    {
        net.output(name, wire)?;
    }
    Ok(())
}

fn images(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,4,9,10")?;
    let kernel = ("kernel_shape", ints(&[3, 3]));
    let most = net.op("MaxPool", &[kernel.clone(), ("strides", ints(&[2, 2]))], &[x])?;
    let mean = net.op("AveragePool", &[kernel, ("pads", ints(&[1, 1, 1, 1]))], &[x])?;
    let whole = net.op("GlobalAveragePool", &[], &[mean])?;
    let factors = net.constant(Tensor::vector(vec![1.0f32, 1.0, 2.0, 1.5]))?;
    let resized = |net: &mut Net, mode: &str, x: Wire| {
        let inputs = [Some(x), None, Some(factors)];
        net.inner.op_by_name("Resize", &[("mode", Attribute::Str(mode.into()))], &inputs, 1)
    };
    let near = resized(net, "nearest", most)?[0];
    let smooth = resized(net, "linear", mean)?[0];
    for (name, wire) in [("near", near), ("smooth", smooth), ("whole", whole)] {
        net.output(name, wire)?;
    }
    Ok(())
}

fn attention(net: &mut Net) -> Result<(), Error> {
    let q = net.input("q", DType::F32, "n,2,5,8")?;
    let k = net.input("k", DType::F32, "n,2,7,8")?;
    let v = net.input("v", DType::F32, "n,2,7,6")?;
    let mask = net.input("mask", DType::F32, "5,7")?;
    let y = net.op("Attention", &[], &[q, k, v, mask])?;
    let z = net.op("Attention", &[("is_causal", Attribute::Bool(true))], &[q, k, v])?;
    let sum = net.op("Add", &[], &[y, z])?;
    net.output("y", sum)?;
    let (cos, sin) = (net.weight(&[4, 4])?, net.weight(&[4, 4])?);
    let positions = net.input("positions", DType::I64, "n,5")?;
    let turned = net.op("RotaryEmbedding", &[], &[q, cos, sin, positions])?;
    net.output("turned", turned)
}

/// A weight of bytes for 24 rows of `k`, with a scale for each.
fn by_rows(net: &mut Net, k: usize) -> Result<Wire, Error> {
    let codes = (0..24 * k).map(|idx| (idx * 37 % 256) as u8).collect();
    let codes = Tensor::from_codes(DType::I8, &[1, 24, k], codes).expect("as many integers");
    let (codes, scales) = (net.constant(codes)?, net.weight(&[1, 24, 1])?);
    let row = [("axis", Attribute::Int(2)), ("block_size", Attribute::Int(k as i64))];
    net.op("DequantizeLinear", &row, &[codes, scales])
}

fn recurrent(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "4,n,5")?;
    let (w, r, b) = (net.weight(&[1, 24, 5])?, net.weight(&[1, 24, 6])?, net.weight(&[1, 48])?);
    let hidden = || ("hidden_size", Attribute::Int(6));
    let lstm = net.ops("LSTM", &[hidden()], &[x, w, r, b], 3)?;
    let (w, r) = (net.weight(&[2, 18, 5])?, net.weight(&[2, 18, 6])?);
    let both = ("direction", Attribute::Str("bidirectional".into()));
    let gru = net.ops("GRU", &[hidden(), both], &[x, w, r], 2)?;
    let [w, r] = [5, 6].map(|k| by_rows(net, k));
    let bytes = net.op("LSTM", &[hidden()], &[x, w?, r?])?;
    net.output("bytes", bytes)?;
    net.output("all", lstm[0])?;
    net.output("last", lstm[1])?;
    net.output("cell", lstm[2])?;
    net.output("both", gru[0])
}

fn pointwise(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,5,7")?;
    let ids = net.input("ids", DType::I64, "5,1")?;
    let scale = net.weight(&[7])?;
    let y = net.op("Mul", &[], &[x, scale])?;
    let y = net.op("Tanh", &[], &[y])?;
    let sums = net.op("Add", &[], &[ids, ids])?;
    let floats = net.op("Cast", &[("to", Attribute::DType(DType::F32))], &[sums])?;
    let low = net.op("Less", &[], &[y, floats])?;
    let chosen = net.op("Where", &[], &[low, y, floats])?;
    let small = net.op("Cast", &[("to", Attribute::DType(DType::U8))], &[chosen])?;
    let negative = net.op("Neg", &[], &[x])?;
    let soft = net.op("Softmax", &[("axis", Attribute::Int(2))], &[negative])?;
    net.output("chosen", chosen)?;
    net.output("small", small)?;
    net.output("soft", soft)?;
    net.output("sums", sums)
}

/// Operators of other types than f32, and a convolution whose weights a run brings.
fn typed(net: &mut Net) -> Result<(), Error> {
    let ids = net.input("ids", DType::I64, "n,6")?;
    let x = net.input("x", DType::F32, "n,6")?;
    let image = net.input("image", DType::F32, "1,3,9,8")?;
    let weight = net.input("weight", DType::F32, "4,3,3,3")?;
    let axis = net.whole(&[1])?;
    let wide = net.op("Cast", &[("to", Attribute::DType(DType::F64))], &[x])?;
    let sums = net.op("CumSum", &[], &[ids, axis])?;
    let total = net.op("ReduceSum", &[], &[wide, axis])?;
    let zeros = net.op("Sub", &[], &[ids, ids])?;
    let reduction = ("reduction", Attribute::Str("add".into()));
    let folded = net.op("ScatterElements", &[reduction, ("axis", Attribute::Int(1))], &[x, zeros, x])?;
    let filtered = net.op("Conv", &[], &[image, weight])?;
    net.output("sums", sums)?;
    net.output("total", total)?;
    net.output("folded", folded)?;
    net.output("filtered", filtered)
}

fn control(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,4")?;
    let go = net.input("go", DType::Bool, "")?;
    let w = net.weight(&[4, 4])?;
    let branch = |net: &Net, name: &str, op: &str| -> Result<Body, Error> {
        let mut body = Body::new(&net.inner, name);
        let inside = body.capture(&net.inner, x)?;
        let y = body.op_by_name(op, &[], &[Some(inside)], 1)?[0];
        body.output(name, y)?;
        Ok(body)
    };
    let bodies = vec![branch(net, "then", "Neg")?, branch(net, "else", "Exp")?];
    let chosen = net.inner.control(planish::op::If {}, &[Some(go)], bodies)?[0];
    let mut body = Body::new(&net.inner, "body");
    body.input("trip", DType::I64, "")?;
    let on = body.input("on", DType::Bool, "")?;
    let carried = body.input("carried", DType::F32, "n,4")?;
    let weight = body.capture(&net.inner, w)?;
    let next = body.op_by_name("MatMul", &[], &[Some(carried), Some(weight)], 1)?[0];
    let row = body.op_by_name("ReduceMean", &[], &[Some(next)], 1)?[0];
    let still = body.op_by_name("Identity", &[], &[Some(on)], 1)?[0];
    body.output("still", still)?;
    body.output("next", next)?;
    body.output("row", row)?;
    let trips = net.constant(Tensor::scalar(3i64))?;
    let looped = net.inner.control(planish::op::Loop {}, &[Some(trips), None, Some(chosen)], vec![body])?;
    net.output("last", looped[0])?;
    net.output("rows", looped[1])
}

fn host(net: &mut Net) -> Result<(), Error> {
    let x = net.input("x", DType::F32, "n,6")?;
    let places = net.op("NonZero", &[], &[x])?;
    let turned = net.op("Transpose", &[], &[places])?;
    let found = net.op("GatherND", &[], &[x, turned])?;
    let doubled = net.op("Add", &[], &[found, found])?;
    let square = net.op("Cast", &[("to", Attribute::DType(DType::F64))], &[x])?;
    let sine = net.op("Sinh", &[], &[square])?;
    let sequence = net.op("SequenceConstruct", &[], &[x, x])?;
    let joined = net.op("ConcatFromSequence", &[("axis", Attribute::Int(0))], &[sequence])?;
    let relu = net.op("Relu", &[], &[joined])?;
    net.output("doubled", doubled)?;
    net.output("sine", sine)?;
    net.output("relu", relu)
}
