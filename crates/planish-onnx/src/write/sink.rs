//! The protobuf wire format, written in two passes: one that measures, one that writes.
//!
//! A message is preceded by its length, so it must be known before its bytes. Measuring first keeps weights
//! from being copied once per level of nesting: the result is allocated once, at its size.

/// Takes fields, either to measure or to write them. Both passes must be given the same ones.
#[derive(Debug, Default)]
pub(super) struct Sink {
    /// Lengths of all messages in the order in which they start.
    lengths: Vec<usize>,
    /// While writing: the next message's place in `lengths`.
    next: usize,
    /// While measuring: bytes so far.
    size: usize,
    /// While writing: the result.
    out: Option<Vec<u8>>,
}

impl Sink {
    /// The bytes of the fields that `fields` gives; it is called twice.
    pub(super) fn build(fields: impl Fn(&mut Self)) -> Vec<u8> {
        let mut sink = Self::default();
        fields(&mut sink);
        sink.out = Some(Vec::with_capacity(sink.size));
        fields(&mut sink);
        sink.out.unwrap_or_default()
    }

    pub(super) fn message(&mut self, field: u32, fields: impl FnOnce(&mut Self)) {
        if self.out.is_none() {
            let place = self.lengths.len();
            self.lengths.push(0);
            let before = self.size;
            fields(self);
            let length = self.size - before;
            self.lengths[place] = length;
            self.start(field, 2);
            self.varint(length as u64);
        } else {
            let length = self.lengths[self.next];
            self.next += 1;
            self.start(field, 2);
            self.varint(length as u64);
            fields(self);
        }
    }

    pub(super) fn int(&mut self, field: u32, value: i64) {
        self.start(field, 0);
        self.varint(value as u64);
    }

    pub(super) fn float(&mut self, field: u32, value: f32) {
        self.start(field, 5);
        self.put(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.start(field, 2);
        self.varint(bytes.len() as u64);
        self.put(bytes);
    }

    /// Text, left out when empty.
    pub(super) fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    /// A packed list of values of fixed size.
    pub(super) fn fixed<T, const N: usize>(
        &mut self,
        field: u32,
        values: &[T],
        bytes: impl Fn(&T) -> [u8; N],
    ) {
        self.start(field, 2);
        self.varint((values.len() * N) as u64);
        values.iter().for_each(|value| self.put(&bytes(value)));
    }

    /// A packed list of integers.
    pub(super) fn varints<T>(&mut self, field: u32, values: &[T], number: impl Fn(&T) -> u64) {
        self.start(field, 2);
        let length: usize = values.iter().map(|value| varint_len(number(value))).sum();
        self.varint(length as u64);
        values.iter().for_each(|value| self.varint(number(value)));
    }

    fn start(&mut self, field: u32, wire_type: u64) {
        self.varint(u64::from(field) << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        let Some(out) = &mut self.out else {
            self.size += varint_len(value);
            return;
        };
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    fn put(&mut self, bytes: &[u8]) {
        match &mut self.out {
            Some(out) => out.extend_from_slice(bytes),
            None => self.size += bytes.len(),
        }
    }
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}
