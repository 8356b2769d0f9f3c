//! How far a run may go: trips of its loops, and bytes that it holds. A model may ask for any number of both (a Loop
//! of 2^62 trips is a few bytes of ONNX), so whoever runs one counts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use planish_tensor::memory;

/// Trips of all loops of a run together, unless whoever runs says otherwise. A trip takes a microsecond at the very
/// least, and the longest that real models have (a Scan over the samples of minutes of sound) are some millions.
pub const DEFAULT_MAX_TRIPS: u64 = 100_000_000;

/// While what is held grows, the system is asked this often whether it runs short.
const LOOK_EVERY: u64 = 128 << 20;
/// A run that grows step by step ends when less than this is available: others need some, and so does the error.
const LEAST_AVAILABLE: u64 = 256 << 20;

/// How far a run may go.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Trips of all loops (Loop, Scan, SequenceMap) of a run together, those of loops inside of loops included.
    pub trips: u64,
    /// Bytes that a run may hold at any moment beside weights and inputs. Whatever it is, a run that grows ends when
    /// the system runs short.
    pub bytes: u64,
    /// Set from another thread to stop the run.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { trips: DEFAULT_MAX_TRIPS, bytes: u64::MAX, cancel: None }
    }
}

/// Why a run was ended before it was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stop {
    /// Its loops would make more trips than this.
    Trips(u64),
    /// It would hold more bytes than this.
    Bytes(u64),
    /// The system runs short of memory; this much is left.
    Memory(u64),
    /// Somebody asked for it.
    Cancelled,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Trips(most) => write!(f, "its loops make more than {most} trips, which is the limit"),
            Stop::Bytes(most) => write!(f, "it needs more than {most} bytes of memory, which is the limit"),
            Stop::Memory(left) => write!(f, "memory runs short, {left} bytes are left"),
            Stop::Cancelled => f.write_str("it was stopped"),
        }
    }
}

/// What a run has used of its limits.
#[derive(Debug, Default)]
pub struct Meter {
    limits: Limits,
    trips: u64,
    /// Held for as long as whoever runs lives: arenas, results that stay.
    standing: u64,
    /// Held by the run under way.
    passing: u64,
    next_look: u64,
}

impl Meter {
    pub fn new(limits: Limits) -> Meter {
        Meter { limits, next_look: LOOK_EVERY, ..Meter::default() }
    }

    /// Begins a run: nothing was done yet, and only what stands is held.
    pub fn restart(&mut self) {
        self.trips = 0;
        self.passing = 0;
        self.next_look = self.standing.saturating_add(LOOK_EVERY);
    }

    /// Whether the run may go on at all; asked for every step and node.
    #[inline]
    pub fn look(&self) -> Result<(), Stop> {
        match &self.limits.cancel {
            Some(cancel) if cancel.load(Ordering::Relaxed) => Err(Stop::Cancelled),
            _ => Ok(()),
        }
    }

    /// One more trip of a loop.
    pub fn trip(&mut self) -> Result<(), Stop> {
        self.trips += 1;
        if self.trips > self.limits.trips { Err(Stop::Trips(self.limits.trips)) } else { self.look() }
    }

    /// Bytes that may still be taken.
    pub fn room(&self) -> u64 {
        self.limits.bytes.saturating_sub(self.standing.saturating_add(self.passing))
    }

    /// The run holds so many bytes more, until it lets go of them or ends.
    pub fn hold(&mut self, bytes: u64) -> Result<(), Stop> {
        self.passing = self.passing.saturating_add(bytes);
        self.check()
    }

    pub fn let_go(&mut self, bytes: u64) {
        self.passing = self.passing.saturating_sub(bytes);
    }

    /// Memory that outlives the run changes its size.
    pub fn stand(&mut self, before: u64, now: u64) -> Result<(), Stop> {
        self.standing = self.standing.saturating_sub(before).saturating_add(now);
        let result = if now > before { self.check() } else { Ok(()) };
        if result.is_err() {
            self.standing = self.standing.saturating_sub(now).saturating_add(before);
        }
        result
    }

    /// Memory that outlives runs is given back.
    pub fn stand_less(&mut self, bytes: u64) {
        self.standing = self.standing.saturating_sub(bytes);
    }

    fn check(&mut self) -> Result<(), Stop> {
        let held = self.standing.saturating_add(self.passing);
        if held > self.limits.bytes {
            return Err(Stop::Bytes(self.limits.bytes));
        }
        if held > self.next_look {
            self.next_look = held.saturating_add(LOOK_EVERY);
            if let Some(left) = memory::available().filter(|left| *left < LEAST_AVAILABLE) {
                return Err(Stop::Memory(left));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trips_are_counted_until_the_run_ends() {
        let mut meter = Meter::new(Limits { trips: 2, ..Limits::default() });
        assert_eq!((meter.trip(), meter.trip(), meter.trip()), (Ok(()), Ok(()), Err(Stop::Trips(2))));
        meter.restart();
        assert_eq!(meter.trip(), Ok(()));
    }

    #[test]
    fn what_stands_and_what_passes_share_the_limit() {
        let mut meter = Meter::new(Limits { bytes: 100, ..Limits::default() });
        meter.stand(0, 60).unwrap();
        meter.hold(40).unwrap();
        assert_eq!((meter.hold(1), meter.room()), (Err(Stop::Bytes(100)), 0));
        meter.restart();
        assert_eq!(meter.room(), 40);
        // What is refused is not taken.
        assert_eq!(meter.stand(60, 101), Err(Stop::Bytes(100)));
        assert_eq!(meter.room(), 40);
        meter.stand(60, 10).unwrap();
        meter.hold(90).unwrap();
        meter.let_go(50);
        assert_eq!(meter.room(), 50);
    }

    #[test]
    fn a_run_can_be_stopped_from_outside() {
        let cancel = Arc::new(AtomicBool::new(false));
        let mut meter = Meter::new(Limits { cancel: Some(cancel.clone()), ..Limits::default() });
        assert_eq!((meter.look(), meter.trip()), (Ok(()), Ok(())));
        cancel.store(true, Ordering::Relaxed);
        assert_eq!((meter.look(), meter.trip()), (Err(Stop::Cancelled), Err(Stop::Cancelled)));
    }
}
