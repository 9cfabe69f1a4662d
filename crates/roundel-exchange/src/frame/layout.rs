//! The fixed parts of the frame format: constants, encodings, preamble, schema fingerprint.

use std::fmt::Write;

use arrow::datatypes::DataType;

use super::FrameError;

/// Every section begins at a multiple of this many bytes, counted from the start of the frame.
/// That is what the widest values need; more would be padding, of which a short frame has a lot.
pub const SECTION_ALIGNMENT: usize = 16;

/// Most rows for which a column whose values are all null is sent without any bytes. The receiver
/// allocates the values of such a column, so the limit bounds what a short frame can make it do.
pub const ALL_NULL_ROWS_MAX: u32 = 65_536;

/// The first four bytes of a frame, "RDFM".
pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"RDFM");
/// Version of the frame format.
pub(super) const VERSION: u16 = 2;
/// Bytes of the preamble before the column descriptors.
pub(super) const PREAMBLE_FIXED_LENGTH: usize = 32;
/// Bytes of a column descriptor.
pub(super) const DESCRIPTOR_LENGTH: usize = 8;
/// Bytes of an entry of the table of section lengths.
pub(super) const SECTION_ENTRY_LENGTH: usize = 4;

/// Descriptor flag: the first section of the column is a validity bitmap.
pub(super) const FLAG_VALIDITY: u8 = 1;

/// How a column is laid out in sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Encoding {
    /// No sections: all values are null.
    AllNull = 0,
    /// Values of one width.
    Fixed = 1,
    /// One bit a value.
    Boolean = 2,
    /// Offsets and values.
    Bytes = 3,
    /// Views and their data buffers.
    Views = 4,
    /// Arrow IPC messages: dictionaries, then one record batch of this column.
    Ipc = 5,
}

impl Encoding {
    /// How columns of this type are encoded, unless all of their values are null.
    pub(super) fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Null => Self::AllNull,
            DataType::Boolean => Self::Boolean,
            DataType::FixedSizeBinary(_) => Self::Fixed,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                Self::Bytes
            }
            DataType::Utf8View | DataType::BinaryView => Self::Views,
            other if other.is_primitive() => Self::Fixed,
            _ => Self::Ipc,
        }
    }

    /// True when the column may have a validity bitmap of its own.
    pub(super) fn has_validity(self) -> bool {
        matches!(
            self,
            Self::Fixed | Self::Boolean | Self::Bytes | Self::Views
        )
    }
}

/// Bytes from the start of a frame to its first section.
pub(super) fn preamble_length(columns: usize, sections: usize) -> usize {
    let length =
        PREAMBLE_FIXED_LENGTH + DESCRIPTOR_LENGTH * columns + SECTION_ENTRY_LENGTH * sections;
    length.next_multiple_of(SECTION_ALIGNMENT)
}

/// The fixed part of a preamble.
#[derive(Debug, Clone, Copy)]
pub(super) struct Preamble {
    pub(super) rows: u32,
    pub(super) columns: u32,
    pub(super) fingerprint: u64,
    pub(super) sections: u32,
}

impl Preamble {
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC.to_le_bytes());
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.rows.to_le_bytes());
        out.extend(self.columns.to_le_bytes());
        out.extend(self.fingerprint.to_le_bytes());
        out.extend(self.sections.to_le_bytes());
        out.extend([0; 4]);
    }

    pub(super) fn parse(frame: &[u8]) -> Result<Self, FrameError> {
        let Some(bytes) = frame.first_chunk::<PREAMBLE_FIXED_LENGTH>() else {
            return Err(FrameError::Truncated {
                needed: PREAMBLE_FIXED_LENGTH as u64,
                length: frame.len(),
            });
        };
        let magic = u32_at(bytes, 0);
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if bytes[6..8] != [0; 2] || bytes[28..32] != [0; 4] {
            return Err(FrameError::Reserved);
        }
        Ok(Self {
            rows: u32_at(bytes, 8),
            columns: u32_at(bytes, 12),
            fingerprint: u64::from(u32_at(bytes, 16)) | u64::from(u32_at(bytes, 20)) << 32,
            sections: u32_at(bytes, 24),
        })
    }
}

/// A frame describes each column so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptor {
    pub(super) encoding: u8,
    pub(super) validity: bool,
    pub(super) sections: u32,
}

impl Descriptor {
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let flags = if self.validity { FLAG_VALIDITY } else { 0 };
        out.extend([self.encoding, flags, 0, 0]);
        out.extend(self.sections.to_le_bytes());
    }

    /// `bytes` has exactly [`DESCRIPTOR_LENGTH`] bytes.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        if bytes[1] & !FLAG_VALIDITY != 0 || bytes[2..4] != [0; 2] {
            return Err(FrameError::Reserved);
        }
        Ok(Self {
            encoding: bytes[0],
            validity: bytes[1] != 0,
            sections: u32_at(bytes, 4),
        })
    }
}

/// Reads a little-endian integer; `bytes` has at least `offset + 4` bytes.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([
        bytes[offset],
        bytes[offset + 1],
        bytes[offset + 2],
        bytes[offset + 3],
    ])
}

/// Fingerprint of the types of the columns, to tell a frame of another schema.
///
/// It covers what decides the layout of the bytes: kinds, widths, units and time zones, down
/// through nested types. Names, nullability and metadata do not take part, since the schema that
/// a plan declares and the schema of its batches differ in these at times; the receiver's apply.
pub(super) fn fingerprint<'a>(types: impl Iterator<Item = &'a DataType>) -> u64 {
    let mut hash = Fnv1a(0xcbf2_9ce4_8422_2325);
    types.for_each(|data_type| hash.data_type(data_type));
    hash.0
}

/// FNV-1a: the same on every node, unlike the standard library's hasher.
struct Fnv1a(u64);

impl Write for Fnv1a {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

impl Fnv1a {
    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn tagged(&mut self, tag: std::fmt::Arguments<'_>, parameters: &[i64]) {
        self.write_fmt(tag).expect("hashing cannot fail");
        self.bytes(&[0xff]);
        parameters
            .iter()
            .for_each(|parameter| self.bytes(&parameter.to_le_bytes()));
    }

    fn data_type(&mut self, data_type: &DataType) {
        match data_type {
            DataType::List(item) => self.nested("List", &[], [item.data_type()]),
            DataType::LargeList(item) => self.nested("LargeList", &[], [item.data_type()]),
            DataType::ListView(item) => self.nested("ListView", &[], [item.data_type()]),
            DataType::LargeListView(item) => self.nested("LargeListView", &[], [item.data_type()]),
            DataType::FixedSizeList(item, size) => {
                self.nested("FixedSizeList", &[i64::from(*size)], [item.data_type()]);
            }
            DataType::Struct(fields) => {
                self.nested("Struct", &[], fields.iter().map(|field| field.data_type()));
            }
            DataType::Map(entries, sorted) => {
                self.nested("Map", &[i64::from(*sorted)], [entries.data_type()]);
            }
            DataType::Dictionary(keys, values) => {
                self.nested("Dictionary", &[], [keys.as_ref(), values.as_ref()]);
            }
            DataType::RunEndEncoded(ends, values) => {
                self.nested("RunEndEncoded", &[], [ends.data_type(), values.data_type()]);
            }
            DataType::Union(fields, mode) => {
                let ids: Vec<i64> = fields.iter().map(|(id, _)| i64::from(id)).collect();
                self.tagged(format_args!("{mode:?}Union"), &ids);
                self.nested(
                    "Union",
                    &[],
                    fields.iter().map(|(_, field)| field.data_type()),
                );
            }
            // The debug form of a type without children names the type and all its parameters.
            leaf => self.tagged(format_args!("{leaf:?}"), &[]),
        }
    }

    fn nested<'a>(
        &mut self,
        tag: &str,
        parameters: &[i64],
        children: impl IntoIterator<Item = &'a DataType>,
    ) {
        self.tagged(format_args!("{tag}"), parameters);
        self.bytes(b"<");
        children.into_iter().for_each(|child| self.data_type(child));
        self.bytes(b">");
    }
}
