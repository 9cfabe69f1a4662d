//! Damaged frames are refused, or are frames of something else: never a panic, never an array that
//! Arrow would not accept.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::Buffer;
use arrow::datatypes::*;
use proptest::prelude::*;

use super::arrays::{Random, array, flat_types, nested_types};
use super::frame;
use crate::frame::FrameDecoder;

/// Decodes what is left of a frame of one column after `damage`, and looks at all of the result.
fn decode_damaged(
    data_type: &DataType,
    rows: usize,
    seed: u64,
    damage: impl FnOnce(&mut Vec<u8>, &mut Random),
) {
    let mut random = Random(seed);
    let column = array(data_type, rows, &mut random);
    let batch = RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap();
    let mut bytes = frame(&batch, 4096).to_vec();
    damage(&mut bytes, &mut random);
    let decoder = FrameDecoder::try_new(batch.schema()).unwrap();
    // A copy into Arrow's own memory is aligned.
    if let Ok(decoded) = decoder.decode(Buffer::from_slice_ref(&bytes)) {
        decoded.column(0).to_data().validate_full().unwrap();
        let again = frame(&decoded, 4096);
        assert_eq!(
            decoder.decode(again).unwrap().num_rows(),
            decoded.num_rows()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn flipped_bytes(
        data_type in any::<proptest::sample::Index>(),
        rows in 0usize..60,
        seed in any::<u64>(),
        flips in 1usize..4,
        in_preamble in any::<bool>(),
    ) {
        let types = [flat_types(), nested_types()].concat();
        decode_damaged(data_type.get(&types), rows, seed, |bytes, random| {
            for _ in 0..flips {
                let end = if in_preamble { bytes.len().min(64) } else { bytes.len() };
                bytes[random.below(end)] = random.next() as u8;
            }
        });
    }

    #[test]
    fn truncated_and_extended(
        data_type in any::<proptest::sample::Index>(),
        rows in 0usize..60,
        seed in any::<u64>(),
        length in any::<proptest::sample::Index>(),
    ) {
        let types = [flat_types(), nested_types()].concat();
        decode_damaged(data_type.get(&types), rows, seed, |bytes, _| {
            bytes.resize(length.index(bytes.len() + 200), 0);
        });
    }

    #[test]
    fn garbage(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Utf8View, true)]));
        let decoder = FrameDecoder::try_new(schema).unwrap();
        prop_assert!(decoder.decode(Buffer::from_slice_ref(&bytes)).is_err());
    }
}
