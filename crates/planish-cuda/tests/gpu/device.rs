//! What queues, events and memory of a GPU must do.

use planish_cuda::Cuda;
use planish_kernel::{Address, Budget, Call, Compiler, Device, KernelErrorKind, Problem, QueueOptions};

/// Bytes of every size go up and come back, through staging and pinned memory, and from place to place.
pub(crate) fn copies_come_back(cuda: &Cuda) {
    let mut queue = cuda.queue(QueueOptions::new(1)).unwrap();
    for len in [0usize, 1, 63, 64 << 10, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (5 << 20) + 3] {
        let bytes: Vec<u8> = (0..len).map(|idx| (idx * 7 + idx / 251) as u8).collect();
        let (one, two) = (cuda.allocate(len).unwrap(), cuda.allocate(len).unwrap());
        let mut back = vec![0u8; len];
        // SAFETY: both memories were taken for `len` bytes.
        unsafe {
            queue.upload(one.address(), &bytes).unwrap();
            if len > 0 {
                queue.copy(two.address(), one.address(), len).unwrap();
            }
            queue.download(&mut back, two.address()).unwrap();
        }
        assert!(back == bytes, "{len} bytes");
        if len > 0 {
            let pinned = cuda.allocate_pinned(len).unwrap().unwrap();
            let host = std::ptr::with_exposed_provenance_mut::<u8>(pinned.address().0 as usize);
            // SAFETY: as above; the pinned memory is only looked at when the queue is done.
            unsafe {
                let to = std::ptr::slice_from_raw_parts_mut(host, len);
                queue.download_pinned(to, one.address()).unwrap();
                queue.synchronize().unwrap();
                assert!(std::slice::from_raw_parts(host, len) == bytes, "{len} pinned bytes");
                host.write_bytes(3, len);
                queue.upload_pinned(two.address(), std::slice::from_raw_parts(host, len)).unwrap();
                queue.download(&mut back, two.address()).unwrap();
            }
            assert!(back.iter().all(|byte| *byte == 3), "{len} pinned bytes up");
        }
    }
}

/// A captured copy happens when it is replayed, not when it is captured.
pub(crate) fn captured_graphs_replay(cuda: &Cuda) {
    let mut queue = cuda.queue(QueueOptions::new(1)).unwrap();
    let (one, two) = (cuda.allocate(256).unwrap(), cuda.allocate(256).unwrap());
    let mut back = [0u8; 256];
    // SAFETY: both memories were taken for 256 bytes and live to the end.
    unsafe {
        queue.upload(one.address(), &[1; 256]).unwrap();
        queue.upload(two.address(), &[2; 256]).unwrap();
        queue.synchronize().unwrap();
        queue.begin_capture().unwrap();
        queue.copy(two.address(), one.address(), 256).unwrap();
        // Memory that goes while launches are captured is freed after the graph.
        drop(cuda.allocate(1 << 20).unwrap());
        let graph = queue.end_capture().unwrap();
        assert_eq!(graph.len(), 1);
        queue.download(&mut back, two.address()).unwrap();
        assert_eq!(back, [2; 256]);
        queue.replay(&*graph).unwrap();
        queue.download(&mut back, two.address()).unwrap();
        assert_eq!(back, [1; 256]);
        // A capture that is left open ends with its queue.
        let mut left = cuda.queue(QueueOptions::new(1)).unwrap();
        left.begin_capture().unwrap();
    }
}

/// Events are reached in order, hold other queues back, and tell the time between.
/// What another queue does after an event of a captured graph is a part of it, once the first waits for that queue.
pub(crate) fn captured_graphs_have_branches(cuda: &Cuda) {
    const BYTES: usize = 1 << 20;
    let memory: Vec<_> = (0..4).map(|_| cuda.allocate(BYTES).unwrap()).collect();
    let at = |idx: usize| memory[idx].address();
    let mut queues: Vec<_> = (0..2).map(|_| cuda.queue(QueueOptions::new(1)).unwrap()).collect();
    let (first, beside) = queues.split_at_mut(1);
    let (first, beside) = (&mut first[0], &mut beside[0]);
    first.begin_capture().unwrap();
    // SAFETY: the memory is this long and lives until the end.
    unsafe { first.copy(at(1), at(0), BYTES).unwrap() };
    let made = first.record().unwrap();
    beside.wait_for(&*made).unwrap();
    // SAFETY: as above.
    unsafe { beside.copy(at(2), at(1), BYTES).unwrap() };
    let joined = beside.record().unwrap();
    first.wait_for(&*joined).unwrap();
    // SAFETY: as above.
    unsafe { first.copy(at(3), at(2), BYTES).unwrap() };
    let graph = first.end_capture().unwrap();
    assert_eq!(graph.len(), 3);
    for seed in 0..3u8 {
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at as u8).wrapping_mul(5).wrapping_add(seed)).collect();
        let mut back = vec![0; BYTES];
        // SAFETY: as above; the captured graph lives until the queue is done.
        unsafe {
            first.upload(at(0), &bytes).unwrap();
            first.replay(&*graph).unwrap();
            first.download(&mut back, at(3)).unwrap();
        }
        assert!(back == bytes, "run {seed}");
    }
}

pub(crate) fn events_tell_order_and_time(cuda: &Cuda) {
    let (mut first, mut second) =
        (cuda.queue(QueueOptions::new(1)).unwrap(), cuda.queue(QueueOptions::new(1)).unwrap());
    let len = 64 << 20;
    let (one, two) = (cuda.allocate(len).unwrap(), cuda.allocate(len).unwrap());
    let (start, end) = (cuda.event(true).unwrap(), cuda.event(true).unwrap());
    first.record_at(&*start).unwrap();
    // SAFETY: both memories were taken for `len` bytes and live until both queues are done.
    unsafe {
        for _ in 0..20 {
            first.copy(two.address(), one.address(), len).unwrap();
        }
    }
    first.record_at(&*end).unwrap();
    second.wait_for(&*end).unwrap();
    second.synchronize().unwrap();
    assert!(end.is_reached().unwrap());
    end.wait().unwrap();
    let ns = end.ns_since(&*start).unwrap();
    // 20 copies of 64 MiB read and write 2.7 GB: no device does that in 50 µs.
    assert!(ns > 50_000.0, "{ns} ns");
    first.synchronize().unwrap();
}

/// What cannot be had is refused with what was asked and what is free.
/// Managed memory is on the device once it is there, holds what is copied into it, and is never more than is free.
pub(crate) fn managed_memory_stays_within_what_is_free(cuda: &Cuda) {
    const BYTES: usize = 48 << 20;
    let before = cuda.memory_info().unwrap().free;
    let memory = match cuda.allocate_managed(BYTES) {
        Ok(memory) => memory,
        Err(error) => {
            assert_eq!(*error.kind(), KernelErrorKind::Unsupported);
            assert!(error.to_string().contains("concurrent managed access"), "{error}");
            println!("managed memory: {error}");
            return;
        }
    };
    let taken = before.saturating_sub(cuda.memory_info().unwrap().free);
    println!("managed memory: {} MiB asked for, {} MiB less free", BYTES >> 20, taken >> 20);
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at * 7 + (at >> 12)) as u8).collect();
    let mut queue = cuda.queue(QueueOptions::new(1)).unwrap();
    let mut back = vec![0; BYTES];
    // SAFETY: the memory is this long and nobody else uses it.
    unsafe {
        queue.upload(memory.address(), &bytes).unwrap();
        queue.download(&mut back, memory.address()).unwrap();
    }
    assert!(back == bytes);
    let free = cuda.memory_info().unwrap().free;
    let error = cuda.allocate_managed(free + (1 << 30)).unwrap_err();
    assert_eq!(*error.kind(), KernelErrorKind::OutOfMemory);
    let message = error.to_string();
    assert!(
        message.contains("of managed memory could not be had") && message.contains("are free"),
        "{message}"
    );
}

/// A kernel that reads where nothing is takes the device with it, and every error from then on says so.
pub(crate) fn a_lost_device_says_so(cuda: &Cuda, problem: &Problem) {
    // Never the address of anything.
    const NOWHERE: Address = Address(1 << 12);
    let candidate = cuda.candidates(problem, &Budget::USUAL).into_iter().next().unwrap();
    let problem = problem.for_candidate(&candidate);
    let kernel = cuda.prepare(&problem, &candidate.tactic).unwrap();
    let inputs = vec![NOWHERE; problem.inputs.len()];
    let outputs = vec![NOWHERE; problem.outputs.len()];
    let call = Call { inputs: &inputs, outputs: &outputs, workspace: NOWHERE, fault: Address::NULL };
    let mut queue = cuda.queue(QueueOptions::new(1)).unwrap();
    // SAFETY: it is not: the process has its device for this alone, and ends after it.
    let launched = unsafe { kernel.launch(&call, &mut *queue) };
    let error = launched.and_then(|()| queue.synchronize()).unwrap_err();
    println!("| {error}");
    assert_eq!(*error.kind(), KernelErrorKind::DeviceLost);
    assert!(error.to_string().contains("the GPU is lost to this process"), "{error}");
    let error = cuda.allocate(1 << 20).unwrap_err();
    assert!(error.to_string().contains("the GPU is lost to this process"), "{error}");
}

pub(crate) fn memory_runs_out_with_a_clear_message(cuda: &Cuda) {
    let info = cuda.memory_info().unwrap();
    assert!(info.free <= info.total && info.total > 0);
    let error = cuda.allocate(2 * info.total).unwrap_err();
    assert_eq!(*error.kind(), KernelErrorKind::OutOfMemory);
    let message = error.to_string();
    assert!(message.contains("free") && message.contains("lower"), "{message}");
    // And the device goes on.
    assert_eq!(cuda.allocate(1 << 20).unwrap().len(), 1 << 20);
}
