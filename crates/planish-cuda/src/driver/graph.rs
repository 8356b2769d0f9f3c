//! Captured graphs: a run's launches captured once and started with one call.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstreamCaptureMode};

use super::context::Context;
use super::stream::Stream;
use crate::error::CudaError;

/// A capture under way: what is put on the stream is captured instead of run. Dropped without an end, it stops
/// and what was captured is gone.
///
/// Other streams take part if they wait for an event of this one and this one waits for them at the end.
#[derive(Debug)]
pub struct Capturing {
    stream: Arc<Stream>,
    open: bool,
}

impl Capturing {
    pub fn begin(stream: &Arc<Stream>) -> Result<Capturing, CudaError> {
        let context = stream.context();
        context.bind()?;
        context.begin_capture();
        let mut capturing = Capturing { stream: Arc::clone(stream), open: false };
        // Relaxed: neither this thread nor others are kept from taking memory and loading modules meanwhile.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream lives and is not the default one.
        let code = unsafe { (context.api.cuStreamBeginCapture_v2)(stream.raw, mode) };
        context.api.check(code, "beginning a capture")?;
        capturing.open = true;
        Ok(capturing)
    }

    /// Ends it, and makes what was captured ready to be started.
    pub fn end(mut self) -> Result<ExecutableGraph, CudaError> {
        let graph = self.stop()?;
        let context = self.stream.context();
        let before = context.memory_info();
        let made = instantiate(context, graph);
        // SAFETY: the graph came out of the capture; what was made of it does not need it.
        unsafe { (context.api.cuGraphDestroy)(graph) };
        let mut made = made?;
        // SAFETY: graph and stream live. Uploading now keeps the first start as quick as the others.
        let code = unsafe { (context.api.cuGraphUpload)(made.raw, self.stream.raw) };
        context.api.check(code, "uploading a graph")?;
        if let (Ok((before, _)), Ok((after, _))) = (before, context.memory_info()) {
            made.bytes = before.saturating_sub(after);
        }
        Ok(made)
    }

    fn stop(&mut self) -> Result<CUgraph, CudaError> {
        self.open = false;
        let api = self.stream.context().api;
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: the stream is capturing.
        let code = unsafe { (api.cuStreamEndCapture)(self.stream.raw, &raw mut graph) };
        api.check(code, "ending a capture")?;
        Ok(graph)
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        if self.open
            && let Ok(graph) = self.stop()
        {
            // SAFETY: it came out of the capture, and nobody has it.
            unsafe { (self.stream.context().api.cuGraphDestroy)(graph) };
        }
        self.stream.context().end_capture();
    }
}

/// A graph that can be started again and again; the driver lets starts of one graph follow each other.
#[derive(Debug)]
pub struct ExecutableGraph {
    context: Arc<Context>,
    raw: CUgraphExec,
    n_nodes: usize,
    bytes: usize,
}

// SAFETY: graphs may be started from any thread, one at a time, which `launch` asks for.
unsafe impl Send for ExecutableGraph {}

impl ExecutableGraph {
    /// Starts it after what is on the stream.
    ///
    /// # Safety
    /// All memory that its launches name must still be there, and no other thread may start it at this moment.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        stream.must_be_of(&self.context)?;
        self.context.bind()?;
        // SAFETY: graph and stream live.
        let code = unsafe { (self.context.api.cuGraphLaunch)(self.raw, stream.raw) };
        self.context.api.check(code, "starting a graph")
    }

    /// Device memory that was no longer free once it was made: what the driver took for it, and what anybody else took
    /// at that moment. The driver takes whole blocks, so that many graphs take nothing visible.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many nodes it has.
    pub fn n_nodes(&self) -> usize {
        self.n_nodes
    }
}

fn instantiate(context: &Arc<Context>, graph: CUgraph) -> Result<ExecutableGraph, CudaError> {
    let api = context.api;
    let mut n_nodes = 0;
    // SAFETY: the graph lives; without a list only the count is written.
    let code = unsafe { (api.cuGraphGetNodes)(graph, std::ptr::null_mut(), &raw mut n_nodes) };
    api.check(code, "counting a graph's nodes")?;
    let mut raw: CUgraphExec = std::ptr::null_mut();
    // SAFETY: the graph lives.
    let code = unsafe { (api.cuGraphInstantiateWithFlags)(&raw mut raw, graph, 0) };
    api.check(code, "instantiating a graph")?;
    Ok(ExecutableGraph { context: Arc::clone(context), raw, n_nodes, bytes: 0 })
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made above; the driver lets a start that is under way end first.
            let _ = unsafe { (self.context.api.cuGraphExecDestroy)(self.raw) };
        }
    }
}
