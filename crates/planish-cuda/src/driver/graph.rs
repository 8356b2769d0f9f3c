//! Captured graphs: a run's launches recorded once and started with one call.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstreamCaptureMode};

use super::context::Context;
use super::stream::Stream;
use crate::error::CudaError;

/// A graph that can be started again and again. Starts of one graph do not overlap.
#[derive(Debug)]
pub struct CapturedGraph {
    context: Arc<Context>,
    raw: CUgraphExec,
    n_nodes: usize,
}

// SAFETY: starting takes `&mut`; the driver orders starts of one graph by itself.
unsafe impl Send for CapturedGraph {}
// SAFETY: nothing is done through a shared reference.
unsafe impl Sync for CapturedGraph {}

/// Ends a capture that was not ended properly, so that the stream can be used again.
struct Ending<'a> {
    stream: &'a Stream,
    open: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.stop();
        self.stream.context.end_capture();
    }
}

impl Ending<'_> {
    fn stop(&mut self) {
        if self.open {
            let mut graph: CUgraph = std::ptr::null_mut();
            let api = self.stream.context.api;
            // SAFETY: the stream is capturing; a graph that comes out is destroyed.
            unsafe {
                (api.cuStreamEndCapture)(self.stream.raw, &raw mut graph);
                if !graph.is_null() {
                    (api.cuGraphDestroy)(graph);
                }
            }
        }
    }
}

impl CapturedGraph {
    /// Records what `queue` puts on the stream instead of running it. Other streams take part if they wait for
    /// an event of this one and this one waits for them at the end.
    pub fn capture<E: From<CudaError>>(
        stream: &Stream,
        queue: impl FnOnce(&Stream) -> Result<(), E>,
    ) -> Result<CapturedGraph, E> {
        let context = &stream.context;
        let api = context.api;
        context.bind()?;
        // Thread-local: other threads of the process may allocate meanwhile.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        context.begin_capture();
        let mut ending = Ending { stream, open: false };
        // SAFETY: the stream lives and is not the default one.
        let code = unsafe { (api.cuStreamBeginCapture_v2)(stream.raw, mode) };
        api.check(code, "beginning a capture")?;
        ending.open = true;
        queue(stream)?;
        ending.open = false;
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: the stream is capturing.
        let code = unsafe { (api.cuStreamEndCapture)(stream.raw, &raw mut graph) };
        api.check(code, "ending a capture")?;
        let made = instantiate(context, graph);
        // SAFETY: the graph came out of the capture; what was made of it does not need it.
        unsafe { (api.cuGraphDestroy)(graph) };
        let made = made?;
        // SAFETY: graph and stream live. Uploading now keeps the first start as quick as the others.
        let code = unsafe { (api.cuGraphUpload)(made.raw, stream.raw) };
        api.check(code, "uploading a graph")?;
        Ok(made)
    }

    /// Starts it behind what is on the stream.
    pub fn launch(&mut self, stream: &Stream) -> Result<(), CudaError> {
        stream.must_be_of(&self.context)?;
        self.context.bind()?;
        // SAFETY: graph and stream live.
        let code = unsafe { (self.context.api.cuGraphLaunch)(self.raw, stream.raw) };
        self.context.api.check(code, "starting a graph")
    }

    /// How many nodes it has.
    pub fn n_nodes(&self) -> usize {
        self.n_nodes
    }
}

fn instantiate(context: &Arc<Context>, graph: CUgraph) -> Result<CapturedGraph, CudaError> {
    let api = context.api;
    let mut n_nodes = 0;
    // SAFETY: the graph lives; without a list only the count is written.
    let code = unsafe { (api.cuGraphGetNodes)(graph, std::ptr::null_mut(), &raw mut n_nodes) };
    api.check(code, "counting a graph's nodes")?;
    let mut raw: CUgraphExec = std::ptr::null_mut();
    // SAFETY: the graph lives.
    let code = unsafe { (api.cuGraphInstantiateWithFlags)(&raw mut raw, graph, 0) };
    api.check(code, "instantiating a graph")?;
    Ok(CapturedGraph { context: Arc::clone(context), raw, n_nodes })
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made above; the driver lets a start that is under way end first.
            let _ = unsafe { (self.context.api.cuGraphExecDestroy)(self.raw) };
        }
    }
}
