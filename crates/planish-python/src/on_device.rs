//! Arrays in the memory of a GPU: torch's, CuPy's, and whatever has DLPack or `__cuda_array_interface__`. A run reads them
//! where they are, on the stream that their library works on, and its outputs are that library's too.

use planish::{Context, DType, DeviceBuffer, DeviceTarget, DeviceView, Error, ErrorKind, HostBuffer};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::borrowed::{Described, Framework, by_dlpack, is_plain, plain_strides};
use crate::element_type;
use crate::errors::{OrRaise, wrong};
use crate::memory::{Memory, to_python};
use crate::port::dtype_of;
use crate::protocols::DL_CUDA;
use crate::runs::Runs;

/// What kernels expect of the beginning of a tensor.
const ALIGNMENT: u64 = 64;
/// CUDA's default stream by its own number, for those who say nothing else.
const LEGACY_STREAM: u64 = 1;

/// Whose arrays they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    Torch,
    Cupy,
    Jax,
    Others,
}

/// An array that a library lent us.
struct Lent<'py> {
    dtype: DType,
    dims: Vec<usize>,
    address: u64,
    index: i32,
    whose: Whose,
    /// The stream that its elements are written on, where it says so.
    stream: Option<u64>,
    /// Was it copied to lie without gaps?
    is_copied: bool,
    owner: Bound<'py, PyAny>,
}

/// The inputs of a run, all in the memory of one GPU.
pub(crate) struct OnDevice<'py> {
    inputs: Vec<Lent<'py>>,
    pub(crate) stream: u64,
}

static CURRENT_STREAM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static TORCH_EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// torch's element types by their number here, as they are asked for: a look-up by name takes ten times as long.
static TORCH_TYPES: PyOnceLock<Vec<Option<Py<PyAny>>>> = PyOnceLock::new();

/// torch's element type; `None` where it has none.
fn torch_type<'py>(py: Python<'py>, dtype: DType) -> PyResult<Option<&'py Bound<'py, PyAny>>> {
    let all = TORCH_TYPES.get_or_try_init(py, || {
        let torch = py.import(intern!(py, "torch"))?;
        let find = |name: &str| Ok(torch.getattr_opt(name)?.map(Bound::unbind));
        element_type::names().map(find).collect::<PyResult<Vec<_>>>()
    })?;
    let found = all.get(element_type::number(dtype)).and_then(Option::as_ref);
    Ok(found.map(|found| found.bind(py)))
}

impl<'py> OnDevice<'py> {
    /// The inputs, if they are in the memory of a GPU; `None` if they are the host's.
    pub(crate) fn of(
        py: Python<'py>,
        runs: &Runs,
        given: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<OnDevice<'py>>> {
        let mut inputs: Vec<Lent<'py>> = Vec::with_capacity(given.len());
        for (idx, (array, port)) in given.iter().zip(&runs.inputs).enumerate() {
            let name = &port.name;
            let lent = match torchs(py, array, name, dtype_of(port))? {
                Found::Nothing => others(py, array, name)?,
                Found::OnHost => None,
                Found::Lent(lent) => Some(lent),
            };
            match lent {
                Some(lent) if inputs.len() == idx => inputs.push(lent),
                None if inputs.is_empty() => {}
                _ => {
                    let message = format!(
                        "input `{name}` and those before it are not in one memory; give all inputs on the GPU, \
                         or all on the host"
                    );
                    return Err(wrong(py, ErrorKind::WrongInputs, message));
                }
            }
        }
        let Some(first) = inputs.first() else { return Ok(None) };
        let on = runs.gpu.unwrap_or(0) as i32;
        if let Some((lent, port)) = inputs.iter().zip(&runs.inputs).find(|(lent, _)| lent.index != on) {
            let (name, index) = (&port.name, lent.index);
            let message =
                format!("input `{name}` is in the memory of GPU {index}, the engine runs on GPU {on}");
            return Err(wrong(py, ErrorKind::WrongInputs, message));
        }
        for _ in inputs.iter().filter(|lent| lent.is_copied) {
            runs.count_copy();
        }
        let stream = match first.whose {
            Whose::Torch => torch_stream(py, first.index)?,
            Whose::Cupy => {
                let now = py.import(intern!(py, "cupy"))?.getattr(intern!(py, "cuda"))?;
                now.call_method0(intern!(py, "get_current_stream"))?.getattr(intern!(py, "ptr"))?.extract()?
            }
            Whose::Jax | Whose::Others => first.stream.unwrap_or(LEGACY_STREAM),
        };
        Ok(Some(OnDevice { inputs, stream }))
    }

    /// Runs once and gives the outputs in the model's order. Outputs of torch and CuPy are written on their stream when its
    /// turn comes; those of others are waited for.
    pub(crate) fn run(
        &self,
        py: Python<'py>,
        runs: &Runs,
        context: &mut Context,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let dims: Vec<&[usize]> = self.inputs.iter().map(|lent| &lent.dims[..]).collect();
        let sizes = runs.output_sizes(context, &dims).or_raise(py)?;
        if !runs.is_taken_to_host()
            && let Some(sizes) = sizes.iter().cloned().collect::<Option<Vec<_>>>()
        {
            match self.run_in_place(py, runs, context, &sizes) {
                Err(Refusal::NotOnDevice) => runs.take_to_host(),
                Err(Refusal::Raised(error)) => return Err(error),
                Ok(outputs) => return Ok(outputs),
            }
        }
        self.run_to_host(py, runs, context)
    }

    /// The inputs as a run takes them.
    fn views<'a>(&'a self, runs: &'a Runs) -> Vec<(&'a str, DeviceView<'a>)> {
        let inputs = self.inputs.iter().zip(&runs.inputs);
        let view = |(lent, port): (&'a Lent<'py>, &'a planish::PortInfo)| {
            // SAFETY: the library that lent the array says that it is there and of this GPU, its alignment was looked at,
            // and memory that is given back is used again on the same stream, after this run, by libraries whose stream it
            // runs on; for all others the run is waited for.
            let view = unsafe { DeviceView::from_raw(lent.dtype, &lent.dims, lent.address) };
            (port.name.as_str(), view)
        };
        inputs.map(view).collect()
    }

    fn run_in_place(
        &self,
        py: Python<'py>,
        runs: &Runs,
        context: &mut Context,
        sizes: &[Vec<usize>],
    ) -> Result<Vec<Bound<'py, PyAny>>, Refusal> {
        let mut outputs = Vec::with_capacity(sizes.len());
        let mut targets = Vec::with_capacity(sizes.len());
        for (port, dims) in runs.outputs.iter().zip(sizes) {
            let dtype = dtype_of(port).unwrap_or(DType::F32);
            let room = self.room(py, context, &port.name, dtype, dims)?;
            let bytes = dtype.bytes_of(dims).unwrap_or(0);
            // Nothing is written to an output without elements.
            if bytes > 0 {
                // SAFETY: the room was just made, is as large, and lives as long as the array that is given to the caller.
                targets.push((port.name.as_str(), unsafe { DeviceTarget::from_raw(room.address, bytes) }));
            }
            outputs.push(room.array);
        }
        let views = self.views(runs);
        let stream = self.stream;
        // SAFETY: of the memory, as said in `views` and above. The streams of torch are never destroyed; those of CuPy are
        // kept by the engine (`Runs::keep_stream`); CUDA's default stream is always there.
        let queued = py.detach(|| unsafe { context.run_device(&views, &targets, Some(stream)) });
        match queued {
            Ok(()) => {}
            Err(error) if is_not_on_device(&error) => return Err(Refusal::NotOnDevice),
            Err(error) => return Err(Refusal::Raised(crate::errors::exception(py, &error))),
        }
        match self.inputs[0].whose {
            Whose::Torch => {}
            Whose::Cupy => runs.keep_stream(py, stream)?,
            Whose::Jax | Whose::Others => py.detach(|| context.synchronize()).or_raise(py)?,
        }
        if self.inputs[0].whose == Whose::Jax {
            let from = py.import(intern!(py, "jax.dlpack"))?.getattr(intern!(py, "from_dlpack"))?;
            return outputs.iter().map(|memory| Ok(from.call1((memory,))?)).collect();
        }
        Ok(outputs)
    }

    /// Outputs that are made on the host, or whose size only the run can tell: they are copied to the GPU.
    fn run_to_host(
        &self,
        py: Python<'py>,
        runs: &Runs,
        context: &mut Context,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.wait(py)?;
        let host = py.import(intern!(py, "planish._device"))?;
        let mut copies = Vec::with_capacity(self.inputs.len());
        for lent in &self.inputs {
            let mut copy = HostBuffer::zeros(lent.dtype, &lent.dims).or_raise(py)?;
            let bytes = copy.bytes_mut();
            let place = (lent.address, bytes.as_mut_ptr().expose_provenance(), bytes.len());
            host.call_method1(intern!(py, "copy_bytes_to_host"), place)?;
            runs.count_copy();
            copies.push(copy);
        }
        let views: Vec<_> = copies.iter().map(HostBuffer::view).collect();
        py.detach(|| context.run_in_order(&views)).or_raise(py)?;
        let mut outputs = Vec::with_capacity(runs.outputs.len());
        for idx in 0..runs.outputs.len() {
            let view = context.output(idx);
            let view = view.ok_or_else(|| wrong(py, ErrorKind::Failed, "an output was not made"))?;
            let mut copy = HostBuffer::zeros(view.dtype(), view.dims()).or_raise(py)?;
            copy.bytes_mut().copy_from_slice(view.bytes());
            runs.count_copy();
            outputs.push(match self.inputs[0].whose {
                Whose::Torch => {
                    let device = format!("cuda:{}", self.inputs[0].index);
                    to_python(py, copy, Framework::Torch)?.call_method1(intern!(py, "to"), (device,))?
                }
                Whose::Cupy => {
                    let array = to_python(py, copy, Framework::Numpy)?;
                    py.import(intern!(py, "cupy"))?.call_method1(intern!(py, "asarray"), (array,))?
                }
                Whose::Jax => to_python(py, copy, Framework::Jax)?,
                Whose::Others => to_python(py, copy, Framework::Numpy)?,
            });
        }
        Ok(outputs)
    }

    /// Waits until the inputs are written.
    fn wait(&self, py: Python<'py>) -> PyResult<()> {
        match self.inputs[0].whose {
            Whose::Torch => {
                let cuda = py.import(intern!(py, "torch"))?.getattr(intern!(py, "cuda"))?;
                let now = cuda.call_method1(intern!(py, "current_stream"), (self.inputs[0].index,))?;
                now.call_method0(intern!(py, "synchronize")).map(drop)
            }
            Whose::Cupy => {
                let cuda = py.import(intern!(py, "cupy"))?.getattr(intern!(py, "cuda"))?;
                let now = cuda.call_method0(intern!(py, "get_current_stream"))?;
                now.call_method0(intern!(py, "synchronize")).map(drop)
            }
            // Whoever lends through DLPack to the default stream has waited, or its reader has to.
            Whose::Jax | Whose::Others => {
                let host = py.import(intern!(py, "planish._device"))?;
                host.call_method1(intern!(py, "synchronize"), (self.stream,)).map(drop)
            }
        }
    }

    /// An array of the caller's library for an output, to be written.
    fn room(
        &self,
        py: Python<'py>,
        context: &Context,
        name: &str,
        dtype: DType,
        dims: &[usize],
    ) -> PyResult<Room<'py>> {
        let shape = PyTuple::new(py, dims)?;
        match self.inputs[0].whose {
            Whose::Torch => {
                let empty = TORCH_EMPTY.import(py, "torch", "empty")?;
                let options = PyDict::new(py);
                let wanted = torch_type(py, dtype)?.ok_or_else(|| {
                    let message = format!("output `{name}` is {}, which torch does not have", dtype.name());
                    wrong(py, ErrorKind::Unsupported, message)
                })?;
                options.set_item(intern!(py, "dtype"), wanted)?;
                options
                    .set_item(intern!(py, "device"), self.inputs[0].owner.getattr(intern!(py, "device"))?)?;
                let array = empty.call((shape,), Some(&options))?;
                let address = array.call_method0(intern!(py, "data_ptr"))?.extract()?;
                Ok(Room { array, address })
            }
            Whose::Cupy => {
                let cupy = py.import(intern!(py, "cupy"))?;
                let array = cupy.call_method1(intern!(py, "empty"), (shape, element_type::name(dtype)))?;
                let data = array.getattr(intern!(py, "data"))?;
                Ok(Room { address: data.getattr(intern!(py, "ptr"))?.extract()?, array })
            }
            Whose::Jax | Whose::Others => {
                let buffer: DeviceBuffer = context.device_output_room(name, dims).or_raise(py)?;
                let address = buffer.address();
                let memory = Memory::on_device(buffer, self.inputs[0].index);
                Ok(Room { array: Bound::new(py, memory)?.into_any(), address })
            }
        }
    }
}

/// Why a run was not queued.
enum Refusal {
    NotOnDevice,
    Raised(PyErr),
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Refusal {
        Refusal::Raised(error)
    }
}

/// The memory of an output.
struct Room<'py> {
    array: Bound<'py, PyAny>,
    address: u64,
}

/// Whether a run was refused because an output, or a size, is known on the host alone.
fn is_not_on_device(error: &Error) -> bool {
    *error.kind() == ErrorKind::WrongInputs
        && ["is not made on the device", "only a run can tell"]
            .iter()
            .any(|why| error.to_string().contains(why))
}

/// What an array turned out to be.
enum Found<'py> {
    /// None of this library's.
    Nothing,
    OnHost,
    Lent(Lent<'py>),
}

/// The current stream of torch.
fn torch_stream(py: Python<'_>, index: i32) -> PyResult<u64> {
    // Asked of C where torch has that, which takes a tenth of the time.
    if let Ok(function) = CURRENT_STREAM.import(py, "torch._C", "_cuda_getCurrentRawStream") {
        return function.call1((index,))?.extract();
    }
    let cuda = py.import(intern!(py, "torch"))?.getattr(intern!(py, "cuda"))?;
    cuda.call_method1(intern!(py, "current_stream"), (index,))?.getattr(intern!(py, "cuda_stream"))?.extract()
}

fn torchs<'py>(
    py: Python<'py>,
    array: &Bound<'py, PyAny>,
    name: &str,
    wanted: Option<DType>,
) -> PyResult<Found<'py>> {
    // Nobody has a tensor of torch's who did not import it.
    let Some(device) = array.getattr_opt(intern!(py, "get_device"))? else { return Ok(Found::Nothing) };
    if array.getattr_opt(intern!(py, "requires_grad"))?.is_none() {
        return Ok(Found::Nothing);
    }
    let index: i32 = device.call0()?.extract()?;
    if index < 0 {
        return Ok(Found::OnHost);
    }
    if array.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
        let message = format!("input `{name}` requires a gradient, which no engine gives; give x.detach()");
        return Err(wrong(py, ErrorKind::WrongType, message));
    }
    let is = array.getattr(intern!(py, "dtype"))?;
    let is_wanted =
        |dtype: &DType| Ok::<_, PyErr>(torch_type(py, *dtype)?.is_some_and(|wanted| wanted.is(&is)));
    let dtype = match wanted {
        Some(dtype) if is_wanted(&dtype)? => dtype,
        _ => {
            let called = is.str()?.to_string();
            element_type::named(called.trim_start_matches("torch.")).ok_or_else(|| {
                let message = format!("input `{name}` is of {called}, which no model takes");
                wrong(py, ErrorKind::WrongType, message)
            })?
        }
    };
    let is_plain: bool = array.call_method0(intern!(py, "is_contiguous"))?.extract()?;
    let address = |array: &Bound<'py, PyAny>| array.call_method0(intern!(py, "data_ptr"))?.extract::<u64>();
    let mut owner = array.clone();
    let mut at = address(&owner)?;
    let is_copied = !is_plain || !at.is_multiple_of(ALIGNMENT);
    if is_copied {
        let options = PyDict::new(py);
        let torch = py.import(intern!(py, "torch"))?;
        options.set_item(intern!(py, "memory_format"), torch.getattr(intern!(py, "contiguous_format"))?)?;
        owner = array.call_method(intern!(py, "clone"), (), Some(&options))?;
        at = address(&owner)?;
    }
    let dims = owner.getattr(intern!(py, "shape"))?.extract()?;
    let whose = Whose::Torch;
    Ok(Found::Lent(Lent { dtype, dims, address: at, index, whose, stream: None, is_copied, owner }))
}

/// Arrays of CuPy, and of all others.
fn others<'py>(py: Python<'py>, array: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Lent<'py>>> {
    let module = array.get_type().module()?.to_string();
    let whose = match module.split('.').next() {
        Some("cupy") => Whose::Cupy,
        Some("jax" | "jaxlib") => Whose::Jax,
        _ => Whose::Others,
    };
    if whose != Whose::Jax
        && let Some(interface) = array.getattr_opt(intern!(py, "__cuda_array_interface__"))?
    {
        return by_interface(py, array, &interface, name, whose).map(Some);
    }
    if array.getattr_opt(intern!(py, "__dlpack_device__"))?.is_none() {
        return Ok(None);
    }
    let (kind, index): (i32, i32) = array.call_method0(intern!(py, "__dlpack_device__"))?.extract()?;
    if kind != DL_CUDA {
        return Ok(None);
    }
    let options = PyDict::new(py);
    options.set_item(intern!(py, "stream"), LEGACY_STREAM)?;
    let capsule = array.call_method(intern!(py, "__dlpack__"), (), Some(&options)).map_err(|error| {
        let message = format!("input `{name}` cannot be lent through DLPack: {}", error.value(py));
        wrong(py, ErrorKind::WrongType, message)
    })?;
    let described = by_dlpack(&capsule, name)?;
    plain(py, described, name, Lending { index, whose, stream: Some(LEGACY_STREAM), owner: capsule })
        .map(Some)
}

/// Who lends an array, and how.
struct Lending<'py> {
    index: i32,
    whose: Whose,
    stream: Option<u64>,
    owner: Bound<'py, PyAny>,
}

/// An array by `__cuda_array_interface__`.
fn by_interface<'py>(
    py: Python<'py>,
    array: &Bound<'py, PyAny>,
    interface: &Bound<'py, PyAny>,
    name: &str,
    whose: Whose,
) -> PyResult<Lent<'py>> {
    let get = |key: &str| interface.call_method1(intern!(py, "get"), (key,));
    let (address, _): (u64, bool) = get("data")?.extract()?;
    let dims: Vec<usize> = get("shape")?.extract()?;
    let typestr: String = get("typestr")?.extract()?;
    let kind = typestr.as_bytes().get(1).copied().unwrap_or(b'V');
    let item = typestr.get(2..).and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    let dtype = match element_type::of_kind(kind, item) {
        Some(dtype) if !typestr.starts_with('>') => dtype,
        // Types of `ml_dtypes` are raw bytes here.
        _ => {
            let called = array.getattr_opt(intern!(py, "dtype"))?;
            let called = called.map(|dtype| dtype.getattr(intern!(py, "name"))?.extract::<String>());
            let found = called.transpose()?.and_then(|called| element_type::named(&called));
            found.ok_or_else(|| {
                let message = format!("input `{name}` is of type {typestr}, which no model takes");
                wrong(py, ErrorKind::WrongType, message)
            })?
        }
    };
    let strides: Option<Vec<isize>> = get("strides")?.extract()?;
    let strides = strides.unwrap_or_else(|| plain_strides(&dims, element_type::item_bytes(dtype)));
    // Version 3: None says that nothing has to be waited for.
    let stream: Option<u64> = get("stream")?.extract()?;
    let index = match whose {
        Whose::Cupy => array.getattr(intern!(py, "device"))?.getattr(intern!(py, "id"))?.extract()?,
        _ => {
            let host = py.import(intern!(py, "planish._device"))?;
            host.call_method1(intern!(py, "device_of"), (address,))?.extract()?
        }
    };
    let described =
        Described { dtype, dims, strides, data: std::ptr::with_exposed_provenance(address as usize) };
    plain(py, described, name, Lending { index, whose, stream, owner: array.clone() })
}

/// An array that lies without gaps; CuPy's are copied where they do not, others are refused.
fn plain<'py>(
    py: Python<'py>,
    described: Described,
    name: &str,
    lending: Lending<'py>,
) -> PyResult<Lent<'py>> {
    let Lending { index, whose, stream, owner } = lending;
    let item = element_type::item_bytes(described.dtype);
    let address = described.data.expose_provenance() as u64;
    if is_plain(&described.dims, &described.strides, item) && address.is_multiple_of(ALIGNMENT) {
        let (dtype, dims) = (described.dtype, described.dims);
        return Ok(Lent { dtype, dims, address, index, whose, stream, is_copied: false, owner });
    }
    if whose == Whose::Cupy {
        let copy = owner.call_method1(intern!(py, "copy"), ("C",))?;
        let interface = copy.getattr(intern!(py, "__cuda_array_interface__"))?;
        let lent = by_interface(py, &copy, &interface, name, whose)?;
        return Ok(Lent { is_copied: true, ..lent });
    }
    let message = format!(
        "input `{name}` lies in GPU memory with gaps, or does not begin at a multiple of {ALIGNMENT} bytes; give a copy"
    );
    Err(wrong(py, ErrorKind::WrongInputs, message))
}
