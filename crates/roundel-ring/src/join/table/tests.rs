use super::*;
use crate::join::cluster::cluster;
use crate::threads::TokioThreads;
use arrow::array::{
    Array as _, ArrayRef, AsArray as _, DictionaryArray, Float32Array, Float64Array, Int16Array,
    Int64Array, RecordBatch, UInt8Array, make_array,
};
use arrow::datatypes::{DataType, Int64Type};
use std::collections::HashMap;

fn rows(keys: &[Option<i64>]) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter(keys.iter().copied()));
    RecordBatch::try_from_iter_with_nullable([("key", keys, true)]).unwrap()
}

/// All pairs of keys that a table of the one finds for the others, and how many of each.
async fn pairs(
    stationary: &RecordBatch,
    fragment: &RecordBatch,
    by: ByHash,
) -> HashMap<i64, usize> {
    let (own, schema) = (by.clone(), stationary.schema());
    let clustered = cluster(
        &schema,
        vec![stationary.clone()],
        by.parts(),
        move |rows, parts| own.part_of(rows, parts),
        &TokioThreads(2),
    );
    let clustered = clustered.await.unwrap();
    let table = Table::new(&clustered, &by, &[0], &TokioThreads(2));
    let table = table.await.unwrap();
    let mut found = HashMap::new();
    let key = |rows: &RecordBatch, row: u32| {
        let keys = rows.column(0).as_primitive::<Int64Type>();
        keys.is_valid(row as usize)
            .then(|| keys.value(row as usize))
    };
    let mut add = |pairs: &mut Pairs| {
        assert!(pairs.len() <= PAIRS);
        for (a, b) in pairs.spinning.iter().zip(&pairs.stationary) {
            let key_of_both = key(fragment, *a);
            assert_eq!(key_of_both, key(&clustered.rows, *b));
            *found.entry(key_of_both.unwrap_or(i64::MAX)).or_default() += 1;
        }
        pairs.clear();
        Ok(())
    };
    // In two parts, as two threads have them.
    let half = fragment.num_rows() / 2;
    table.pairs(fragment, 0..half, &mut add).unwrap();
    table
        .pairs(fragment, half..fragment.num_rows(), &mut add)
        .unwrap();
    found
}

#[tokio::test]
async fn all_pairs_of_equal_keys_are_found() {
    let distinct: Vec<_> = (0..20_000).map(Some).collect();
    let equal = vec![Some(7); 300];
    let skewed: Vec<_> = (0..3000).map(|at| Some((at % 50) * (at % 3))).collect();
    let nulls: Vec<_> = (0..1000).map(|at| (at % 4 > 0).then_some(at / 3)).collect();
    let relations = [
        vec![],
        vec![Some(7)],
        vec![None],
        distinct,
        equal,
        skewed,
        nulls,
    ];
    for (stationary, fragment) in relations
        .iter()
        .flat_map(|s| relations.iter().map(move |r| (s, r)))
    {
        for (bits, nulls_equal) in [(0, false), (1, false), (6, false), (0, true), (5, true)] {
            let by = ByHash {
                columns: vec![0],
                nulls_equal,
                bits,
            };
            let counts = |keys: &[Option<i64>]| {
                let mut counts = HashMap::<i64, usize>::new();
                for key in keys.iter().filter(|key| nulls_equal || key.is_some()) {
                    *counts.entry(key.unwrap_or(i64::MAX)).or_default() += 1;
                }
                counts
            };
            let (of_r, of_s) = (counts(fragment), counts(stationary));
            let both = of_r
                .iter()
                .filter_map(|(key, r)| Some((*key, r * of_s.get(key)?)));
            let expected: HashMap<_, _> = both.collect();
            let found = pairs(&rows(stationary), &rows(fragment), by).await;
            assert_eq!(found, expected, "{bits} bits");
        }
    }
}

#[test]
fn upper_bits_may_be_none() {
    assert_eq!(upper(u64::MAX, 0), 0);
    assert_eq!(upper(u64::MAX, 12), (1 << 12) - 1);
    assert_eq!((bits_for(0), bits_for(1), bits_for(PART_ROWS)), (0, 0, 0));
    assert_eq!(bits_for(PART_ROWS + 1), 1);
    assert_eq!(bits_for(u32::MAX as usize), PARTS_MAX_BITS);
}

/// Equal are the keys of floating point that engines take for equal: those of the same bits, and 0 and -0, but in
/// dictionaries.
#[test]
fn words_of_real_keys_are_those_of_their_bits() {
    let bits: Vec<u64> = vec![
        0x7ff8_0000_0000_0000,
        0xfff8_0000_0000_0000,
        0x7ff8_0000_0000_0001,
        0x7ff0_0000_0000_0123,
        0.0_f64.to_bits(),
        (-0.0_f64).to_bits(),
        1.0_f64.to_bits(),
    ];
    let doubles = Float64Array::from_iter_values(bits.iter().map(|bits| f64::from_bits(*bits)));
    let bits = [0x7fc0_0000_u32, 0xffc0_0000, 0x7fc0_0001, 0x7f80_0123];
    let singles = bits.map(f32::from_bits).into_iter();
    let singles = Float32Array::from_iter_values(singles.chain([0.0, -0.0, 1.0]));
    let halves = Int16Array::from(vec![0x7e00, -0x200, 0x7e01, 0x7c12, 0, i16::MIN, 0x3c00]);
    let halves = halves.into_data().into_builder();
    let halves = halves.data_type(DataType::Float16).build().unwrap();
    let numbers = UInt8Array::from_iter_values(0..7);
    let dictionary = DictionaryArray::new(numbers, Arc::new(doubles.clone()));
    let columns: [(ArrayRef, bool); 4] = [
        (Arc::new(doubles), true),
        (Arc::new(singles), true),
        (make_array(halves), true),
        (Arc::new(dictionary), false),
    ];
    for (column, zeros_equal) in columns {
        let rows = RecordBatch::try_from_iter([("a", column.clone()), ("b", column)]).unwrap();
        for columns in [&[0][..], &[0, 1]] {
            let keys = Keys::of(&rows, columns, false).unwrap();
            let same = |a: usize, b: usize| match &keys.bytes {
                Some(bytes) => bytes.row(a) == bytes.row(b),
                None => keys.words[a] == keys.words[b],
            };
            for (a, b) in (0..7).flat_map(|a| (0..7).map(move |b| (a, b))) {
                let expected = a == b || zeros_equal && [4, 5].contains(&a) && [4, 5].contains(&b);
                assert_eq!(same(a, b), expected, "{a} and {b} of {:?}", rows.schema());
                assert!(!expected || keys.words[a] == keys.words[b]);
            }
        }
    }
}
