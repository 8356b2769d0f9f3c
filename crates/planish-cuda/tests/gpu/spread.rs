//! A few out of many, from everywhere in the list and the small ones first.

/// At most `most` of the list: it is cut into as many stretches, and each gives one of its smallest. Where several are
/// as small, stretches take turns in which of them they give, so that not the first candidate of every trial is run.
pub(crate) fn pick<T>(list: Vec<T>, most: usize, size: impl Fn(&T) -> usize) -> Vec<T> {
    let n = list.len();
    if n <= most {
        return list;
    }
    let mut kept = vec![false; n];
    for part in 0..most {
        let stretch = part * n / most..(part + 1) * n / most;
        let smallest = stretch.clone().map(|idx| size(&list[idx])).min();
        let smallest: Vec<usize> = stretch.filter(|&idx| Some(size(&list[idx])) == smallest).collect();
        kept[smallest[part % smallest.len()]] = true;
    }
    list.into_iter().zip(kept).filter_map(|(one, kept)| kept.then_some(one)).collect()
}

pub(crate) fn picks_come_from_everywhere_and_are_small() {
    let sizes: Vec<usize> = (0..100).map(|idx| 1 + idx % 10).collect();
    let numbered: Vec<(usize, usize)> = sizes.into_iter().enumerate().collect();
    let picked = pick(numbered.clone(), 5, |(_, size)| *size);
    assert_eq!(picked.len(), 5);
    assert!(picked.iter().all(|(_, size)| *size == 1));
    assert!(picked.iter().enumerate().all(|(part, (idx, _))| idx / 20 == part), "{picked:?}");
    // All alike: not always the first of a stretch.
    let alike: Vec<usize> = pick((0..40).collect(), 4, |_| 7);
    assert_eq!(alike, [0, 11, 22, 33]);
    assert_eq!(pick(numbered.clone(), 100, |(_, size)| *size), numbered);
    assert_eq!(pick(numbered, 1, |(_, size)| *size).len(), 1);
}
