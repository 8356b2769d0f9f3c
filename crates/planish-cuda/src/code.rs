//! `CodeSet`: the compiled kernels of one engine or one build.
//!
//! Code that a plan brings serves that plan's engine alone, and what one build compiles serves that build: whoever
//! opens a file cannot change what another runs. Modules of the very same bytes are loaded once on a device and shared
//! (the hash of the bytes tells, nothing that a file says), and unloaded with the last set and kernel that use them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use planish_kernel::{Code, KernelError};
use planish_tensor::Bytes;

use crate::driver::{Context, Module};
use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::nvrtc;
use crate::source::Source;

/// Stands between the key of a source and the compiler's version in the key of compiled code.
const COMPILED_BY: &str = " nvrtc ";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The maps are never left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The modules that are loaded on a device, by the hash of their bytes.
#[derive(Debug, Default)]
pub(crate) struct Loaded(Mutex<HashMap<blake3::Hash, Weak<Module>>>);

impl Loaded {
    fn module(&self, context: &Arc<Context>, bytes: &[u8]) -> Result<Arc<Module>, CudaError> {
        let hash = blake3::hash(bytes);
        if let Some(module) = lock(&self.0).get(&hash).and_then(Weak::upgrade) {
            return Ok(module);
        }
        let module = Arc::new(Module::new(context, bytes)?);
        let mut loaded = lock(&self.0);
        loaded.retain(|_, module| module.strong_count() > 0);
        // Two threads may have loaded it; the first stays.
        if let Some(first) = loaded.get(&hash).and_then(Weak::upgrade) {
            return Ok(first);
        }
        loaded.insert(hash, Arc::downgrade(&module));
        Ok(module)
    }

    /// How many somebody uses.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).values().filter(|module| module.strong_count() > 0).count()
    }
}

/// Compiled kernels of one engine or one build, by the key of their source.
#[derive(Debug, Default)]
pub(crate) struct CodeSet {
    /// What a plan brought; the same from the first moment on.
    brought: HashMap<String, Code>,
    compiled: Mutex<HashMap<String, Code>>,
    /// What is being compiled: whoever wants it too waits for it.
    compiling: Mutex<HashMap<String, Arc<Mutex<()>>>>,
    modules: Mutex<HashMap<String, Arc<Module>>>,
}

impl CodeSet {
    /// With the code of a plan; what is missing is compiled here.
    pub(crate) fn new(brought: &[Code]) -> CodeSet {
        let by_source = |code: &Code| (source_key(&code.key).to_string(), code.clone());
        CodeSet { brought: brought.iter().map(by_source).collect(), ..CodeSet::default() }
    }

    /// The compiled form of a source: brought, compiled before, or compiled now.
    pub(crate) fn compiled(&self, source: &Source, gpu: &Gpu) -> Result<Code, KernelError> {
        let key = source.key(gpu);
        if let Some(code) = self.brought.get(&key) {
            return Ok(code.clone());
        }
        if let Some(code) = lock(&self.compiled).get(&key) {
            return Ok(code.clone());
        }
        let turn = Arc::clone(lock(&self.compiling).entry(key.clone()).or_default());
        let _turn = lock(&turn);
        // Whoever had the turn before may have compiled it.
        if let Some(code) = lock(&self.compiled).get(&key) {
            return Ok(code.clone());
        }
        let bytes = Bytes::from_vec(nvrtc::compile_cached(source, gpu)?);
        let code = Code { key: format!("{key}{COMPILED_BY}{}", nvrtc::version()?), bytes };
        lock(&self.compiled).insert(key.clone(), code.clone());
        lock(&self.compiling).remove(&key);
        Ok(code)
    }

    /// The module of a source.
    pub(crate) fn module(
        &self,
        source: &Source,
        context: &Arc<Context>,
        loaded: &Loaded,
    ) -> Result<Arc<Module>, KernelError> {
        let key = source.key(context.gpu());
        if let Some(module) = lock(&self.modules).get(&key) {
            return Ok(Arc::clone(module));
        }
        let module = loaded.module(context, &self.compiled(source, context.gpu())?.bytes)?;
        Ok(Arc::clone(lock(&self.modules).entry(key).or_insert(module)))
    }
}

/// The part of a key that names the source, whichever compiler made the code of it.
fn source_key(key: &str) -> &str {
    key.split_once(COMPILED_BY).map_or(key, |(source, _)| source)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        Source::new("empty.cu", "extern \"C\" __global__ void empty() {}", "empty")
    }

    #[test]
    fn what_a_plan_brought_serves_its_own_set_alone() {
        let gpu = Gpu::known("h200").unwrap();
        let code = Code {
            // Another compiler's version does not matter: the plan was built with it.
            key: format!("{}{COMPILED_BY}12.9", source().key(&gpu)),
            bytes: Bytes::from_vec(b"somebody else's".to_vec()),
        };
        let with = CodeSet::new(std::slice::from_ref(&code));
        assert_eq!(with.compiled(&source(), &gpu).unwrap(), code);
    }
}
