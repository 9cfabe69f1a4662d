//! Random arrays of every type, from a seed.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::*;

/// Most rows before a slice, of each of two parts: under Miri each takes long.
const BEFORE_MAX: usize = if cfg!(miri) { 9 } else { 70 };

/// A small generator whose numbers depend on the seed alone.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    fn text(&mut self) -> String {
        let length = if self.below(3) == 0 {
            self.below(80)
        } else {
            self.below(14)
        };
        let letters = if self.below(4) == 0 {
            "äöüß漢字🦀x"
        } else {
            "abcdefgh"
        };
        let letters: Vec<char> = letters.chars().collect();
        (0..length)
            .map(|_| letters[self.below(letters.len())])
            .collect()
    }

    fn nulls(&mut self, length: usize) -> Option<NullBuffer> {
        let valid: Vec<bool> = match self.below(5) {
            0 | 1 => return None,
            2 => vec![false; length],
            _ => (0..length).map(|_| self.below(4) > 0).collect(),
        };
        Some(NullBuffer::new(BooleanBuffer::from(valid)))
    }
}

fn item(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("item", data_type, true))
}

fn dictionary(keys: DataType, values: DataType) -> DataType {
    DataType::Dictionary(Box::new(keys), Box::new(values))
}

fn union_of(mode: UnionMode) -> DataType {
    let fields = [
        Field::new("n", DataType::Int32, true),
        Field::new("s", DataType::Utf8View, true),
    ];
    DataType::Union(UnionFields::try_new([3, 7], fields).unwrap(), mode)
}

fn runs_of(ends: DataType, values: DataType) -> DataType {
    let ends = Field::new("run_ends", ends, false);
    DataType::RunEndEncoded(Arc::new(ends), Arc::new(Field::new("values", values, true)))
}

/// Types of the encodings that do without Arrow IPC.
pub(super) fn flat_types() -> Vec<DataType> {
    use DataType::*;
    use TimeUnit::*;
    let mut types = vec![
        Null,
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Date32,
        Date64,
        Utf8,
        LargeUtf8,
        Binary,
        LargeBinary,
        Utf8View,
        BinaryView,
    ];
    types.extend([
        Decimal32(9, 2),
        Decimal64(18, -3),
        Decimal128(38, 10),
        Decimal256(76, 0),
    ]);
    types.extend([
        Time32(Second),
        Time32(Millisecond),
        Time64(Microsecond),
        Time64(Nanosecond),
    ]);
    types.extend([Second, Millisecond, Microsecond, Nanosecond].map(Duration));
    types.extend([
        Timestamp(Second, None),
        Timestamp(Nanosecond, Some("Europe/Bern".into())),
    ]);
    types.extend([
        Timestamp(Millisecond, Some("+02:00".into())),
        Timestamp(Microsecond, None),
    ]);
    types.extend([
        Interval(IntervalUnit::YearMonth),
        Interval(IntervalUnit::DayTime),
        Interval(IntervalUnit::MonthDayNano),
    ]);
    types.extend([0, 1, 5, 16].map(FixedSizeBinary));
    types
}

/// Types that travel as Arrow IPC.
pub(super) fn nested_types() -> Vec<DataType> {
    use DataType::*;
    let entries = Fields::from(vec![
        Field::new("keys", Utf8, false),
        Field::new("values", dictionary(Int16, Utf8), true),
    ]);
    let pair = Fields::from(vec![
        Field::new("a", Int64, true).with_metadata([("k".into(), "v".into())].into()),
        Field::new("b", List(item(Utf8View)), true),
        Field::new("c", dictionary(UInt8, Utf8), true),
    ]);
    vec![
        dictionary(Int8, Utf8),
        dictionary(UInt16, Int64),
        dictionary(Int64, Utf8View),
        dictionary(Int32, List(item(Int16))),
        List(item(Int32)),
        List(item(Boolean)),
        LargeList(item(Utf8)),
        List(item(List(item(LargeBinary)))),
        List(item(dictionary(Int32, Utf8))),
        List(item(Null)),
        ListView(item(Int32)),
        LargeListView(item(Utf8View)),
        FixedSizeList(item(Float32), 3),
        FixedSizeList(item(Utf8), 0),
        Struct(pair),
        Struct(Fields::empty()),
        Map(
            Arc::new(Field::new("entries", Struct(entries), false)),
            false,
        ),
        union_of(UnionMode::Sparse),
        union_of(UnionMode::Dense),
        runs_of(Int32, Utf8),
        runs_of(Int16, Int64),
    ]
}

/// An array of `length` values: often a slice, of views often a sparse selection.
pub(super) fn array(data_type: &DataType, length: usize, random: &mut Random) -> ArrayRef {
    let before = random.below(3) * random.below(BEFORE_MAX);
    let after = random.below(BEFORE_MAX / 3);
    let whole = unsliced(data_type, before + length + after, random);
    let is_view = matches!(data_type, DataType::Utf8View | DataType::BinaryView);
    if is_view && random.below(2) == 0 {
        let rows = (0..length).map(|_| random.below(whole.len()) as u32);
        return take(&whole, &UInt32Array::from_iter_values(rows), None).unwrap();
    }
    whole.slice(before, length)
}

fn unsliced(data_type: &DataType, length: usize, random: &mut Random) -> ArrayRef {
    macro_rules! primitive {
        ($type:ty) => {
            Arc::new(primitive::<$type>(data_type, length, random))
        };
    }
    downcast_primitive! {
        data_type => (primitive),
        DataType::Null => Arc::new(NullArray::new(length)),
        DataType::Boolean => {
            let values = BooleanBuffer::from_iter((0..length).map(|_| random.below(2) == 0));
            Arc::new(BooleanArray::new(values, random.nulls(length)))
        },
        DataType::FixedSizeBinary(width) => {
            let values = Buffer::from_vec(random.bytes(length * *width as usize));
            let nulls = random.nulls(length);
            let array = FixedSizeBinaryArray::try_new_with_len(*width, values, nulls, length);
            Arc::new(array.unwrap())
        },
        DataType::Utf8 => Arc::new(StringArray::from(texts(length, random))),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from(texts(length, random))),
        DataType::Utf8View => Arc::new(StringViewArray::from_iter(texts(length, random))),
        DataType::Binary => Arc::new(BinaryArray::from_iter(blobs(length, random))),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(blobs(length, random))),
        DataType::BinaryView => Arc::new(BinaryViewArray::from_iter(blobs(length, random))),
        _ => nested(data_type, length, random),
    }
}

fn primitive<T: ArrowPrimitiveType>(
    data_type: &DataType,
    length: usize,
    random: &mut Random,
) -> PrimitiveArray<T> {
    let bytes = Buffer::from_slice_ref(random.bytes(length * size_of::<T::Native>()));
    let values = ScalarBuffer::new(bytes, 0, length);
    PrimitiveArray::new(values, random.nulls(length)).with_data_type(data_type.clone())
}

fn texts(length: usize, random: &mut Random) -> Vec<Option<String>> {
    let nulls = random.nulls(length);
    let valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    (0..length)
        .map(|row| valid(row).then(|| random.text()))
        .collect()
}

fn blobs(length: usize, random: &mut Random) -> Vec<Option<Vec<u8>>> {
    let nulls = random.nulls(length);
    let valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let mut blob = || {
        let length = random.below(30);
        random.bytes(length)
    };
    (0..length).map(|row| valid(row).then(&mut blob)).collect()
}

fn nested(data_type: &DataType, length: usize, random: &mut Random) -> ArrayRef {
    match data_type {
        DataType::Dictionary(keys, values) => {
            let values = array(values, 1 + random.below(40), random);
            macro_rules! keyed {
                ($type:ty) => {
                    Arc::new(keyed::<$type>(length, values, random))
                };
            }
            downcast_integer! { keys.as_ref() => (keyed), other => unreachable!("{other}") }
        }
        DataType::List(field) => Arc::new(list::<i32>(field, length, random)),
        DataType::LargeList(field) => Arc::new(list::<i64>(field, length, random)),
        DataType::ListView(field) => Arc::new(list_view::<i32>(field, length, random)),
        DataType::LargeListView(field) => Arc::new(list_view::<i64>(field, length, random)),
        DataType::FixedSizeList(field, size) => {
            let values = array(field.data_type(), length * *size as usize, random);
            let nulls = random.nulls(length);
            let list = FixedSizeListArray::try_new_with_length(
                field.clone(),
                *size,
                values,
                nulls,
                length,
            );
            Arc::new(list.unwrap())
        }
        DataType::Struct(fields) => {
            let columns = fields
                .iter()
                .map(|field| array(field.data_type(), length, random));
            let columns = columns.collect();
            let nulls = random.nulls(length);
            let array = StructArray::try_new_with_length(fields.clone(), columns, nulls, length);
            Arc::new(array.unwrap())
        }
        DataType::Map(field, sorted) => {
            let DataType::Struct(fields) = field.data_type() else {
                unreachable!()
            };
            let (offsets, count) = offsets::<i32>(length, random);
            let texts = (0..count).map(|_| random.text());
            let keys: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
            let columns = vec![keys, array(fields[1].data_type(), count, random)];
            let entries = StructArray::new(fields.clone(), columns, None);
            let nulls = random.nulls(length);
            Arc::new(MapArray::new(
                field.clone(),
                offsets,
                entries,
                nulls,
                *sorted,
            ))
        }
        DataType::Union(fields, mode) => {
            let ids: Vec<i8> = fields.iter().map(|(id, _)| id).collect();
            let chosen: ScalarBuffer<i8> =
                (0..length).map(|_| ids[random.below(ids.len())]).collect();
            let children = fields
                .iter()
                .map(|(_, field)| array(field.data_type(), length, random));
            let children = children.collect();
            let offsets = (*mode == UnionMode::Dense).then(|| {
                // Within each child, the values are used in order, some of them not at all.
                (0..length as i32).collect::<ScalarBuffer<i32>>()
            });
            Arc::new(UnionArray::try_new(fields.clone(), chosen, offsets, children).unwrap())
        }
        DataType::RunEndEncoded(ends, values) => match ends.data_type() {
            DataType::Int16 => Arc::new(runs::<Int16Type>(values, length, random)),
            _ => Arc::new(runs::<Int32Type>(values, length, random)),
        },
        other => unreachable!("{other}"),
    }
}

fn keyed<K: ArrowDictionaryKeyType>(
    length: usize,
    values: ArrayRef,
    random: &mut Random,
) -> DictionaryArray<K> {
    let nulls = random.nulls(length);
    let keys = (0..length).map(|_| K::Native::usize_as(random.below(values.len())));
    let keys = PrimitiveArray::<K>::new(keys.collect(), nulls);
    DictionaryArray::new(keys, values)
}

fn offsets<O: OffsetSizeTrait>(length: usize, random: &mut Random) -> (OffsetBuffer<O>, usize) {
    let offsets = OffsetBuffer::<O>::from_lengths((0..length).map(|_| random.below(5)));
    let count = offsets[length].as_usize();
    (offsets, count)
}

fn list<O: OffsetSizeTrait>(
    field: &FieldRef,
    length: usize,
    random: &mut Random,
) -> GenericListArray<O> {
    let (offsets, count) = offsets(length, random);
    let values = array(field.data_type(), count, random);
    GenericListArray::new(field.clone(), offsets, values, random.nulls(length))
}

fn list_view<O: OffsetSizeTrait>(
    field: &FieldRef,
    length: usize,
    random: &mut Random,
) -> GenericListViewArray<O> {
    let values = array(field.data_type(), 200, random);
    let (mut starts, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..length {
        let size = random.below(5);
        starts.push(O::usize_as(random.below(200 - size)));
        sizes.push(O::usize_as(size));
    }
    let nulls = random.nulls(length);
    GenericListViewArray::new(field.clone(), starts.into(), sizes.into(), values, nulls)
}

fn runs<R: RunEndIndexType>(values: &FieldRef, length: usize, random: &mut Random) -> RunArray<R> {
    let mut ends = Vec::new();
    let mut end = 0;
    while end < length {
        end = (end + 1 + random.below(9)).min(length);
        ends.push(R::Native::usize_as(end));
    }
    let ends = PrimitiveArray::<R>::new(ends.into(), None);
    let values = array(values.data_type(), ends.len(), random);
    RunArray::try_new(&ends, &values).unwrap()
}
