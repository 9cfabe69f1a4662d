//! Our checks accept what Arrow's accept, and nothing else.

use arrow::array::*;
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::{BinaryViewType, DataType, StringViewType, Utf8Type};
use proptest::prelude::*;

use super::arrays::{Random, array};
use crate::frame::validate::{byte_array, view_array};

/// Changes a few bits of the bytes, or none.
fn damage(bytes: &[u8], random: &mut Random) -> Buffer {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.below(3) {
        if !bytes.is_empty() {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
    }
    Buffer::from_slice_ref(&bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn views(rows in 1usize..40, seed in any::<u64>(), binary in any::<bool>()) {
        let mut random = Random(seed);
        let whole = array(&DataType::Utf8View, rows, &mut random);
        let whole = whole.as_string_view();
        let views = damage(whole.views().inner(), &mut random);
        let views = ScalarBuffer::<u128>::new(views, 0, rows);
        let buffers = whole.data_buffers().iter().map(|buffer| damage(buffer, &mut random));
        let buffers: Vec<_> = buffers.collect();
        let (ours, theirs) = if binary {
            let ours = view_array::<BinaryViewType>(0, views.clone(), buffers.clone(), None);
            (ours.is_ok(), BinaryViewArray::try_new(views, buffers, None).is_ok())
        } else {
            let ours = view_array::<StringViewType>(0, views.clone(), buffers.clone(), None);
            (ours.is_ok(), StringViewArray::try_new(views, buffers, None).is_ok())
        };
        prop_assert_eq!(ours, theirs);
    }

    /// Ours also want the offsets to begin at 0 and to end where the values do.
    #[test]
    fn offsets(rows in 1usize..40, seed in any::<u64>()) {
        let mut random = Random(seed);
        let texts: Vec<_> = array(&DataType::Utf8View, rows, &mut random)
            .as_string_view().iter().map(|text| text.unwrap_or_default().to_owned()).collect();
        let whole = StringArray::from(texts);
        let offsets = damage(whole.offsets().inner().inner(), &mut random);
        let values = damage(whole.values(), &mut random);
        let offsets = ScalarBuffer::<i32>::new(offsets, 0, rows + 1);
        let ours = byte_array::<Utf8Type>(0, offsets.clone(), values.clone(), None);
        let tight = offsets[0] == 0 && offsets[rows] as usize == values.len();
        let theirs = ArrayData::builder(DataType::Utf8)
            .len(rows)
            .buffers(vec![offsets.into_inner(), values])
            .build();
        prop_assert_eq!(ours.is_ok(), tight && theirs.is_ok());
    }
}
