//! Lent things: each is one thread's at a time, all come back, and whoever waits for one gets one.

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::in_every_order;
use crate::lending::Shelf;

/// Takes a thing, uses it, puts it back; nobody else may have it meanwhile.
fn use_one(shelf: &Shelf<Arc<AtomicUsize>>) {
    let thing = shelf.take();
    assert_eq!(thing.fetch_add(1, SeqCst), 0, "two threads have one thing");
    thing.fetch_sub(1, SeqCst);
    shelf.put_back(thing);
}

#[test]
fn four_threads_take_two_things_in_turn() {
    in_every_order(2, || {
        let shelf = Arc::new(Shelf::new((0..2).map(|_| Arc::new(AtomicUsize::new(0))).collect()));
        let others = [(); 3].map(|()| {
            let shelf = shelf.clone();
            shuttle::thread::spawn(move || use_one(&shelf))
        });
        use_one(&shelf);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(shelf.try_take().is_some() && shelf.try_take().is_some() && shelf.try_take().is_none());
    });
}

#[test]
fn one_thing_is_enough_for_all() {
    in_every_order(3, || {
        let shelf = Arc::new(Shelf::new(vec![Arc::new(AtomicUsize::new(0))]));
        let others = [(); 2].map(|()| {
            let shelf = shelf.clone();
            shuttle::thread::spawn(move || use_one(&shelf))
        });
        if let Some(thing) = shelf.try_take() {
            assert_eq!(thing.fetch_add(1, SeqCst), 0, "two threads have one thing");
            thing.fetch_sub(1, SeqCst);
            shelf.put_back(thing);
        }
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
