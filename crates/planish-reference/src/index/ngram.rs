//! Counting n-grams of integers.

use std::collections::HashMap;

use planish_op::{TfIdfMode, TfIdfVectorizer};
use planish_tensor::{DType, Tensor};

use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn tfidf_vectorizer(op: &TfIdfVectorizer, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    if !op.pool_strings.is_empty() {
        let detail = "n-grams of strings are not supported; map the strings to integers first";
        return Err(cx.error(EvalErrorKind::BadType, detail));
    }
    if !data.dtype().is_int() {
        return Err(cx.bad_type(data.dtype()));
    }
    let (rows, row_len) = match *data.shape() {
        [] => (None, 1),
        [row_len] => (None, row_len),
        [rows, row_len] => (Some(rows), row_len),
        _ => return Err(cx.bad_shape(format!("the input must have rank 1 or 2: {:?}", data.shape()))),
    };
    let pool = Pool::new(op, cx)?;
    let shape: Vec<usize> = rows.into_iter().chain([pool.width]).collect();
    let mut counts = vec![0f64; nd::result_len(cx, &shape)?];
    let tokens = data.to_i64s();
    if row_len > 0 {
        for (row, counts) in tokens.chunks(row_len).zip(counts.chunks_mut(pool.width)) {
            pool.count(row, counts);
        }
    }
    // The weights are read by output column, as ONNX Runtime and ONNX's own implementation do.
    let weight = |column: usize| op.weights.get(column).map_or(1.0, |&weight| f64::from(weight));
    for (flat, count) in counts.iter_mut().enumerate() {
        *count = match op.mode {
            TfIdfMode::Tf => *count,
            TfIdfMode::Idf => count.min(1.0) * weight(flat % pool.width),
            TfIdfMode::TfIdf => *count * weight(flat % pool.width),
        };
    }
    Ok(vec![Tensor::from_f64s(DType::F32, &shape, &counts)?.into()])
}

/// The n-grams that are counted, with the output column of each.
struct Pool<'a> {
    columns: HashMap<&'a [i64], Vec<usize>>,
    width: usize,
    lengths: std::ops::RangeInclusive<usize>,
    max_skip: usize,
}

impl<'a> Pool<'a> {
    fn new(op: &'a TfIdfVectorizer, cx: &Evaluation<'_>) -> Result<Pool<'a>, EvalError> {
        let bad = |detail: &str| cx.bad_attribute(detail.to_string());
        let size = |value: i64, what: &str| {
            usize::try_from(value).map_err(|_| bad(&format!("{what} must not be negative")))
        };
        let lengths =
            size(op.min_gram_length, "min_gram_length")?..=size(op.max_gram_length, "max_gram_length")?;
        let max_skip = size(op.max_skip_count, "max_skip_count")?;
        if *lengths.start() == 0 || lengths.is_empty() {
            return Err(bad("gram lengths must be positive, and the smallest not above the largest"));
        }
        let indexes: Result<Vec<usize>, EvalError> =
            op.ngram_indexes.iter().map(|&index| size(index, "an n-gram index")).collect();
        let indexes = indexes?;
        let last = indexes.iter().max().ok_or_else(|| bad("ngram_indexes is empty"))?;
        let width = last.checked_add(1).ok_or_else(|| bad("an n-gram index is too large"))?;
        let mut columns: HashMap<&[i64], Vec<usize>> = HashMap::new();
        let mut n_grams = 0;
        // The grams of length n lie between the n-th count and the next, or the end of the pool.
        for (idx, &start) in op.ngram_counts.iter().enumerate() {
            let end = op.ngram_counts.get(idx + 1).copied().unwrap_or(op.pool_int64s.len() as i64);
            let part = usize::try_from(start).ok().zip(usize::try_from(end).ok());
            let part = part.and_then(|(start, end)| op.pool_int64s.get(start..end));
            let part = part.ok_or_else(|| bad("ngram_counts do not cut the pool into parts"))?;
            let len = idx + 1;
            for gram in part.chunks_exact(len) {
                let column =
                    indexes.get(n_grams).ok_or_else(|| bad("there are more n-grams than indexes"))?;
                n_grams += 1;
                if lengths.contains(&len) {
                    columns.entry(gram).or_default().push(*column);
                }
            }
        }
        Ok(Pool { columns, width, lengths, max_skip })
    }

    /// Adds the n-grams of one row: for each length and each distance between neighbours, each place.
    fn count(&self, row: &[i64], counts: &mut [f64]) {
        let longest = self.columns.keys().map(|gram| gram.len()).max().unwrap_or(0).min(row.len());
        let mut gram = Vec::with_capacity(longest);
        for len in *self.lengths.start()..=longest {
            // The distance does not matter to single items, which are counted once.
            let farthest =
                if len == 1 { 1 } else { ((row.len() - 1) / (len - 1)).min(self.max_skip.saturating_add(1)) };
            for distance in 1..=farthest {
                for start in 0..row.len() - distance * (len - 1) {
                    gram.clear();
                    gram.extend((0..len).map(|idx| row[start + idx * distance]));
                    for &column in self.columns.get(gram.as_slice()).into_iter().flatten() {
                        counts[column] += 1.0;
                    }
                }
            }
        }
    }
}
