//! Nested arrays without the values that nothing refers to, so that a slice or a selection sends
//! what is its own: Arrow IPC sends dictionaries, data buffers of views, and children of list views
//! and dense unions whole.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{
    BinaryViewType, ByteViewType, DataType, FieldRef, StringViewType, UnionMode,
};
use arrow::error::ArrowError;
use arrow_select::dictionary::garbage_collect_any_dictionary;

use super::views::is_dense;

/// The same values, with at most about twice the bytes that they need.
pub(super) fn compacted(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if array.is_empty() {
        return Ok(new_empty_array(array.data_type()));
    }
    match array.data_type() {
        DataType::Utf8View => Ok(views::<StringViewType>(array)),
        DataType::BinaryView => Ok(views::<BinaryViewType>(array)),
        DataType::Dictionary(_, _) => dictionary(array),
        DataType::List(field) => list::<i32>(field, array),
        DataType::LargeList(field) => list::<i64>(field, array),
        DataType::ListView(field) => list_view::<i32>(field, array),
        DataType::LargeListView(field) => list_view::<i64>(field, array),
        DataType::FixedSizeList(field, size) => {
            let list = array.as_fixed_size_list();
            let (values, nulls) = (compacted(list.values())?, list.nulls().cloned());
            let field = field.clone();
            let list =
                FixedSizeListArray::try_new_with_length(field, *size, values, nulls, list.len())?;
            Ok(Arc::new(list))
        }
        DataType::Struct(_) => Ok(Arc::new(structure(array.as_struct())?)),
        DataType::Map(field, ordered) => {
            let map = array.as_map();
            let (offsets, start, length) = rebased(map.offsets());
            let entries = structure(&map.entries().slice(start, length))?;
            let (field, nulls) = (field.clone(), map.nulls().cloned());
            Ok(Arc::new(MapArray::try_new(
                field, offsets, entries, nulls, *ordered,
            )?))
        }
        DataType::Union(_, mode) => union(*mode, array),
        _ => Ok(array.clone()),
    }
}

/// True when fewer than half of the values of a child are used.
fn is_sparse(used: usize, values: usize) -> bool {
    used < values / 2
}

fn views<T: ByteViewType>(array: &ArrayRef) -> ArrayRef {
    let views = array.as_byte_view::<T>();
    if is_dense(views) {
        array.clone()
    } else {
        Arc::new(views.gc())
    }
}

fn dictionary(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let dictionary = array.as_any_dictionary();
    if dictionary.values().len() <= dictionary.len() {
        return Ok(dictionary.with_values(compacted(dictionary.values())?));
    }
    let collected = garbage_collect_any_dictionary(dictionary)?;
    let dictionary = collected.as_any_dictionary();
    Ok(dictionary.with_values(compacted(dictionary.values())?))
}

/// Offsets from 0, and the range of the values that they refer to.
fn rebased<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (OffsetBuffer<O>, usize, usize) {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    let length = last.as_usize() - first.as_usize();
    (offsets.clone().subtract(first), first.as_usize(), length)
}

fn list<O: OffsetSizeTrait>(field: &FieldRef, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let list = array.as_list::<O>();
    let (offsets, start, length) = rebased(list.offsets());
    let values = compacted(&list.values().slice(start, length))?;
    let nulls = list.nulls().cloned();
    Ok(Arc::new(GenericListArray::<O>::try_new(
        field.clone(),
        offsets,
        values,
        nulls,
    )?))
}

fn list_view<O: OffsetSizeTrait>(
    field: &FieldRef,
    array: &ArrayRef,
) -> Result<ArrayRef, ArrowError> {
    let list = array.as_list_view::<O>();
    let used: usize = list.sizes().iter().map(|size| size.as_usize()).sum();
    let (mut offsets, mut values) = (list.offsets().clone(), list.values().clone());
    if is_sparse(used, values.len()) {
        let mut rows = Vec::with_capacity(used);
        let mut moved = Vec::with_capacity(list.len());
        for (offset, size) in list.offsets().iter().zip(list.sizes()) {
            moved.push(O::usize_as(rows.len()));
            let start = offset.as_usize() as u64;
            rows.extend(start..start + size.as_usize() as u64);
        }
        offsets = ScalarBuffer::from(moved);
        values = take(&values, &UInt64Array::from(rows), None)?;
    }
    let (values, sizes) = (compacted(&values)?, list.sizes().clone());
    let nulls = list.nulls().cloned();
    let list = GenericListViewArray::<O>::try_new(field.clone(), offsets, sizes, values, nulls)?;
    Ok(Arc::new(list))
}

fn structure(array: &StructArray) -> Result<StructArray, ArrowError> {
    let columns = array
        .columns()
        .iter()
        .map(compacted)
        .collect::<Result<_, _>>()?;
    let (fields, nulls) = (array.fields().clone(), array.nulls().cloned());
    StructArray::try_new_with_length(fields, columns, nulls, array.len())
}

fn union(mode: UnionMode, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let union = array.as_union();
    let mut offsets = union.offsets().cloned();
    let mut children = Vec::with_capacity(union.fields().len());
    for (id, _) in union.fields().iter() {
        let mut child = union.child(id).clone();
        let used = union.type_ids().iter().filter(|&&used| used == id).count();
        if mode == UnionMode::Dense && is_sparse(used, child.len()) {
            let mut rows = Vec::with_capacity(used);
            let moved = union.type_ids().iter().zip(offsets.iter().flatten());
            let moved = moved.map(|(&used, &offset)| {
                if used != id {
                    return offset;
                }
                rows.push(offset as u64);
                rows.len() as i32 - 1
            });
            let moved: Vec<i32> = moved.collect();
            offsets = Some(moved.into());
            child = take(&child, &UInt64Array::from(rows), None)?;
        }
        children.push(compacted(&child)?);
    }
    let (fields, ids) = (union.fields().clone(), union.type_ids().clone());
    Ok(Arc::new(UnionArray::try_new(
        fields, ids, offsets, children,
    )?))
}
