//! Frames of some rows of a batch, written straight into messages: the fused half of SHUFFLE. Columns
//! are gathered row by row from the batch's own buffers, without an array in between.
//!
//! It knows flat columns: those that are laid out without Arrow IPC.
#![allow(unsafe_code)] // Memory that is written before it is read.

use super::gather::{gather, needs_numbers};
use super::layout::{
    Descriptor, Encoding, Preamble, SECTION_ALIGNMENT, fingerprint, preamble_length,
};
use super::views::long_length;
use crate::selection::Selection;
use arrow::array::{
    Array, ArrayRef, AsArray, ByteView, GenericByteArray, GenericByteViewArray, OffsetSizeTrait,
    RecordBatch, downcast_primitive,
};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};
use arrow::datatypes::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, DataType, LargeBinaryType,
    LargeUtf8Type, StringViewType, Utf8Type,
};
use std::mem::MaybeUninit;

/// Whether columns of a type can be gathered.
pub(crate) fn is_flat(data_type: &DataType) -> bool {
    Encoding::of(data_type) != Encoding::Ipc
}

/// Bytes that whoever wrote them last may not have been us, and that are only written.
type Target = [MaybeUninit<u8>];

const VIEW_BYTES: usize = size_of::<u128>();

/// A batch whose rows are to be gathered.
pub struct RowSource<'a> {
    rows: usize,
    columns: Vec<Column<'a>>,
    fingerprint: u64,
    sections: usize,
    /// Bits of a row, but for values of any length.
    row_bits: usize,
    /// Bytes of a frame that do not depend on its rows, at most.
    fixed_bytes: usize,
}

struct Column<'a> {
    values: Values<'a>,
    validity: Option<&'a NullBuffer>,
}

enum Values<'a> {
    /// All null, without sections.
    Null,
    Fixed {
        bytes: &'a [u8],
        width: usize,
    },
    Boolean(&'a BooleanBuffer),
    /// Offsets of 4 bytes.
    Bytes {
        offsets: &'a [i32],
        bytes: &'a [u8],
    },
    /// Offsets of 8 bytes.
    LargeBytes {
        offsets: &'a [i64],
        bytes: &'a [u8],
    },
    Views {
        views: &'a [u128],
        buffers: &'a [Buffer],
    },
}

impl<'a> RowSource<'a> {
    /// `None` when a column is nested: such batches become frames as a whole.
    pub fn new(batch: &'a RecordBatch) -> Option<Self> {
        let columns = batch
            .columns()
            .iter()
            .map(Column::new)
            .collect::<Option<Vec<_>>>()?;
        let sections = columns.iter().map(Column::sections).sum();
        let padding = sections * (SECTION_ALIGNMENT - 1);
        // Offsets are one more than rows, and bits come in whole bytes.
        let rounding = sections * size_of::<u64>();
        Some(Self {
            rows: batch.num_rows(),
            fingerprint: fingerprint(batch.columns().iter().map(|array| array.data_type())),
            sections,
            row_bits: columns.iter().map(Column::row_bits).sum(),
            fixed_bytes: preamble_length(columns.len(), sections) + padding + rounding,
            columns,
        })
    }

    /// Rows of the batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether rows are needed by their numbers: where bits are enough, it is faster not to list them.
    pub fn needs_numbers(&self) -> bool {
        self.columns.iter().any(Column::needs_numbers)
    }

    /// How many of the first of these rows fit in a frame of at most `length` bytes; 0 when not even
    /// the first one does.
    ///
    /// # Panics
    /// When the batch does not have one of the rows.
    pub fn fitting(&self, rows: &Selection<'_>, length: usize) -> usize {
        let Some(room) = length.checked_sub(self.fixed_bytes) else {
            return 0;
        };
        let most = match self.row_bits {
            0 => rows.len(),
            bits => rows.len().min(8 * room / bits),
        };
        if !self.columns.iter().any(Column::has_any_length) {
            return most;
        }
        let mut bytes = 0;
        for (count, row) in rows.numbers()[..most].iter().enumerate() {
            let columns = self.columns.iter();
            bytes += columns
                .map(|column| column.length_of(*row as usize))
                .sum::<usize>();
            if bytes + (self.row_bits * (count + 1)).div_ceil(8) > room {
                return count;
            }
        }
        most
    }

    /// The frame of these rows, in memory of its own.
    ///
    /// # Panics
    /// When the batch does not have one of them.
    pub fn frame(&self, rows: &Selection<'_>) -> Buffer {
        let any_length: usize = match self.columns.iter().any(Column::has_any_length) {
            false => 0,
            true => rows
                .numbers()
                .iter()
                .flat_map(|row| self.columns.iter().map(|one| one.length_of(*row as usize)))
                .sum(),
        };
        let most = self.fixed_bytes + (self.row_bits * rows.len()).div_ceil(8) + any_length;
        let mut frame = MutableBuffer::with_capacity(most);
        let spare = frame.as_mut_ptr().cast::<MaybeUninit<u8>>();
        // SAFETY: the buffer is ours alone and has room for so many bytes, of which nothing is known.
        let spare = unsafe { std::slice::from_raw_parts_mut(spare, most) };
        let length = self.encode(rows, spare);
        // SAFETY: that many bytes have just been written.
        unsafe { frame.set_len(length) };
        frame.into()
    }

    /// The same as [`encode`](Self::encode), into memory that something was written to before.
    ///
    /// # Panics
    /// As [`encode`](Self::encode).
    pub fn encode_over(&self, rows: &Selection<'_>, target: &mut [u8]) -> usize {
        // SAFETY: of the same layout, and `encode` writes nothing that is not initialised.
        let target = unsafe { &mut *(std::ptr::from_mut(target) as *mut Target) };
        self.encode(rows, target)
    }

    /// Writes the frame of these rows, in this order, and returns its length. They [fit](Self::fitting).
    ///
    /// # Panics
    /// When they do not fit, or the batch does not have one of them.
    pub fn encode(&self, rows: &Selection<'_>, target: &mut Target) -> usize {
        assert!(
            rows.below() <= self.rows,
            "rows below {} of {}",
            rows.below(),
            self.rows
        );
        let start = preamble_length(self.columns.len(), self.sections);
        let (preamble, sections) = target.split_at_mut(start);
        let mut writer = Writer {
            target: sections,
            at: 0,
            lengths: Vec::with_capacity(self.sections),
        };
        for column in &self.columns {
            column.encode(rows, self.rows, &mut writer);
        }
        let (length, lengths) = (start + writer.at, writer.lengths);
        let mut head = Vec::with_capacity(start);
        Preamble {
            rows: rows.len() as u32,
            columns: self.columns.len() as u32,
            fingerprint: self.fingerprint,
            sections: self.sections as u32,
        }
        .emit(&mut head);
        for column in &self.columns {
            column.descriptor().emit(&mut head);
        }
        for length in lengths {
            head.extend((length as u32).to_le_bytes());
        }
        head.resize(start, 0);
        preamble.write_copy_of_slice(&head);
        length
    }
}

/// Writes sections one after the other.
struct Writer<'a> {
    target: &'a mut Target,
    at: usize,
    lengths: Vec<usize>,
}

impl Writer<'_> {
    /// A section of so many bytes, all of which the caller writes.
    fn section(&mut self, length: usize) -> &mut Target {
        let from = self.at;
        let end = from + length;
        self.at = end.next_multiple_of(SECTION_ALIGNMENT);
        self.lengths.push(length);
        self.target[end..self.at].fill(MaybeUninit::new(0));
        &mut self.target[from..end]
    }

    fn bits(&mut self, bits: &BooleanBuffer, rows: &[u32]) {
        let target = self.section(rows.len().div_ceil(8));
        for (byte, rows) in target.iter_mut().zip(rows.chunks(8)) {
            let packed = rows.iter().enumerate().fold(0u8, |packed, (bit, row)| {
                packed | u8::from(bits.value(*row as usize)) << bit
            });
            byte.write(packed);
        }
    }
}

impl<'a> Column<'a> {
    fn new(array: &'a ArrayRef) -> Option<Self> {
        let values = match (Encoding::of(array.data_type()), array.data_type()) {
            (Encoding::Ipc, _) => return None,
            (Encoding::AllNull, _) => Values::Null,
            (_, DataType::Boolean) => Values::Boolean(array.as_boolean().values()),
            (_, DataType::Utf8) => Values::bytes(array.as_bytes::<Utf8Type>()),
            (_, DataType::Binary) => Values::bytes(array.as_bytes::<BinaryType>()),
            (_, DataType::LargeUtf8) => Values::large_bytes(array.as_bytes::<LargeUtf8Type>()),
            (_, DataType::LargeBinary) => Values::large_bytes(array.as_bytes::<LargeBinaryType>()),
            (_, DataType::Utf8View) => Values::views(array.as_byte_view::<StringViewType>()),
            (_, DataType::BinaryView) => Values::views(array.as_byte_view::<BinaryViewType>()),
            _ => {
                let (bytes, width) = fixed_width(array)?;
                Values::Fixed { bytes, width }
            }
        };
        let validity = match values {
            Values::Null => None,
            _ => array.nulls().filter(|nulls| nulls.null_count() > 0),
        };
        Some(Self { values, validity })
    }

    fn descriptor(&self) -> Descriptor {
        let encoding = match self.values {
            Values::Null => Encoding::AllNull,
            Values::Fixed { .. } => Encoding::Fixed,
            Values::Boolean(_) => Encoding::Boolean,
            Values::Bytes { .. } | Values::LargeBytes { .. } => Encoding::Bytes,
            Values::Views { .. } => Encoding::Views,
        };
        Descriptor {
            encoding: encoding as u8,
            validity: self.validity.is_some(),
            sections: self.sections() as u32,
        }
    }

    fn sections(&self) -> usize {
        let values = match self.values {
            Values::Null => 0,
            Values::Fixed { .. } | Values::Boolean(_) => 1,
            Values::Bytes { .. } | Values::LargeBytes { .. } | Values::Views { .. } => 2,
        };
        values + usize::from(self.validity.is_some())
    }

    fn row_bits(&self) -> usize {
        let values = match self.values {
            Values::Null => 0,
            Values::Fixed { width, .. } => 8 * width,
            Values::Boolean(_) => 1,
            Values::Bytes { .. } => i32::BITS as usize,
            Values::LargeBytes { .. } => i64::BITS as usize,
            Values::Views { .. } => 8 * VIEW_BYTES,
        };
        values + usize::from(self.validity.is_some())
    }

    fn has_any_length(&self) -> bool {
        matches!(
            self.values,
            Values::Bytes { .. } | Values::LargeBytes { .. } | Values::Views { .. }
        )
    }

    /// Bytes of a row's value, where values have any length.
    fn length_of(&self, row: usize) -> usize {
        match self.values {
            Values::Bytes { offsets, .. } => (offsets[row + 1] - offsets[row]) as usize,
            Values::LargeBytes { offsets, .. } => (offsets[row + 1] - offsets[row]) as usize,
            Values::Views { views, .. } => long_length(views[row]),
            _ => 0,
        }
    }

    /// Whether rows are looked up by their numbers, where there are bits for them.
    fn needs_numbers(&self) -> bool {
        let of_values = match self.values {
            Values::Null => false,
            Values::Fixed { width, .. } => needs_numbers(width),
            _ => true,
        };
        of_values || self.validity.is_some()
    }

    /// Writes the values of `rows`, each of which is below `count`.
    fn encode(&self, rows: &Selection<'_>, count: usize, writer: &mut Writer<'_>) {
        if let Some(nulls) = self.validity {
            writer.bits(nulls.inner(), &rows.numbers());
        }
        match self.values {
            Values::Null => {}
            Values::Fixed { bytes, width } => {
                assert!(bytes.len() >= width * count, "a value for each row");
                let target = writer.section(width * rows.len());
                // SAFETY: `RowSource::encode` has checked that the batch has these rows, all of whose
                // values are there.
                unsafe { gather(bytes, width, rows, target) };
            }
            Values::Boolean(bits) => writer.bits(bits, &rows.numbers()),
            Values::Bytes { offsets, bytes } => {
                encode_bytes(offsets, bytes, &rows.numbers(), writer);
            }
            Values::LargeBytes { offsets, bytes } => {
                encode_bytes(offsets, bytes, &rows.numbers(), writer);
            }
            Values::Views { views, buffers } => {
                encode_views(views, buffers, self.validity, &rows.numbers(), writer);
            }
        }
    }
}

impl<'a> Values<'a> {
    fn bytes<T: ByteArrayType<Offset = i32>>(array: &'a GenericByteArray<T>) -> Self {
        Self::Bytes {
            offsets: array.value_offsets(),
            bytes: array.value_data(),
        }
    }

    fn large_bytes<T: ByteArrayType<Offset = i64>>(array: &'a GenericByteArray<T>) -> Self {
        Self::LargeBytes {
            offsets: array.value_offsets(),
            bytes: array.value_data(),
        }
    }

    fn views<T: ByteViewType>(array: &'a GenericByteViewArray<T>) -> Self {
        Self::Views {
            views: array.views(),
            buffers: array.data_buffers(),
        }
    }
}

/// The values of an array of one width, and that width.
fn fixed_width(array: &ArrayRef) -> Option<(&[u8], usize)> {
    if let DataType::FixedSizeBinary(width) = array.data_type() {
        let values = array.as_fixed_size_binary().value_data();
        return Some((values, usize::try_from(*width).ok()?));
    }
    let width = array.data_type().primitive_width()?;
    macro_rules! values {
        ($type:ty) => {
            Some((
                array.as_primitive::<$type>().values().inner().as_slice(),
                width,
            ))
        };
    }
    downcast_primitive! {
        array.data_type() => (values),
        _ => None
    }
}

fn encode_bytes<O: OffsetSizeTrait>(
    offsets: &[O],
    bytes: &[u8],
    rows: &[u32],
    writer: &mut Writer<'_>,
) {
    let range = |row: u32| offsets[row as usize].as_usize()..offsets[row as usize + 1].as_usize();
    let out = writer.section(size_of::<O>() * (rows.len() + 1));
    let mut end = 0;
    let ends = std::iter::once(0).chain(rows.iter().map(|row| {
        end += range(*row).len();
        end
    }));
    for (out, end) in out.chunks_exact_mut(size_of::<O>()).zip(ends) {
        // Of either width, the low bytes come first.
        out.write_copy_of_slice(&(end as u64).to_le_bytes()[..size_of::<O>()]);
    }
    let mut out = writer.section(end);
    for row in rows {
        out = append(out, &bytes[range(*row)]);
    }
}

fn encode_views(
    views: &[u128],
    buffers: &[Buffer],
    validity: Option<&NullBuffer>,
    rows: &[u32],
    writer: &mut Writer<'_>,
) {
    let out = writer.section(VIEW_BYTES * rows.len());
    let mut end = 0;
    for (out, row) in out.chunks_exact_mut(VIEW_BYTES).zip(rows) {
        let row = *row as usize;
        let mut raw = match validity {
            Some(validity) if validity.is_null(row) => 0,
            _ => views[row],
        };
        let length = long_length(raw);
        if length > 0 {
            let view = ByteView {
                buffer_index: 0,
                offset: end as u32,
                ..ByteView::from(raw)
            };
            raw = view.as_u128();
            end += length;
        }
        out.write_copy_of_slice(&raw.to_le_bytes());
    }
    let mut out = writer.section(end);
    for row in rows {
        let row = *row as usize;
        if long_length(views[row]) > 0 && validity.is_none_or(|validity| validity.is_valid(row)) {
            let view = ByteView::from(views[row]);
            let from = view.offset as usize;
            let bytes = &buffers[view.buffer_index as usize];
            out = append(out, &bytes[from..from + view.length as usize]);
        }
    }
}

/// Copies bytes to the start of a target and returns what is behind them.
fn append<'a>(target: &'a mut Target, bytes: &[u8]) -> &'a mut Target {
    let (head, rest) = target.split_at_mut(bytes.len());
    head.write_copy_of_slice(bytes);
    rest
}
