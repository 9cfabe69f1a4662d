//! Cuts the files of a scan into parts and deals them: to as many groups as there are partitions of all tasks.
//!
//! The format decides which files may be cut. This must not know of tasks or of plans.

use std::cmp::Reverse;
use std::sync::Arc;

use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::error::Result;
use datafusion::object_store::memory::InMemory;

use super::footers::Footers;

/// How the files of a scan may be cut.
pub(super) enum Cut<'a> {
    /// At the row groups of Parquet.
    RowGroups(&'a Footers),
    /// Where their source does.
    Source,
}

/// Files that DataFusion cut already are put together again where all of their parts are there.
fn whole_files(groups: &[FileGroup]) -> Vec<FileGroup> {
    let mut files: Vec<PartitionedFile> = groups.iter().flat_map(|g| g.iter()).cloned().collect();
    let mut wholes: Vec<PartitionedFile> = Vec::new();
    for file in files.drain(..) {
        let (start, end) = file.range();
        match wholes.last_mut() {
            Some(last)
                if start > 0
                    && last.object_meta.location == file.object_meta.location
                    && last.range().1 == start =>
            {
                last.range = Some(FileRange {
                    start: last.range().0 as i64,
                    end: end as i64,
                });
            }
            _ => wholes.push(file),
        }
    }
    for file in &mut wholes {
        if file.range.is_some() && file.range() == (0, file.object_meta.size) {
            file.range = None;
        }
    }
    vec![FileGroup::new(wholes)]
}

/// Into how many parts a scan may be cut at most, if that is limited.
pub(super) fn most_parts(scan: &FileScanConfig, cut: &Cut<'_>) -> Result<Option<usize>> {
    let files = whole_files(&scan.file_groups);
    let files = files.iter().flat_map(|group| group.iter());
    Ok(match cut {
        Cut::RowGroups(footers) => Some(files.map(|file| row_groups(footers, file).len()).sum()),
        Cut::Source if is_cut_by_source(scan)? => None,
        Cut::Source => Some(files.count()),
    })
}

/// Whether the files of a scan are JSON arrays, of which only their reader knows: it refuses parts of them.
pub(super) fn is_json_array(scan: &FileScanConfig) -> Result<bool> {
    let source = scan.file_source();
    let mut files = scan.file_groups.iter().flat_map(|group| group.iter());
    let Some(file) = files.next().filter(|_| source.file_type() == "json") else {
        return Ok(false);
    };
    let nowhere = Arc::new(InMemory::new());
    let source = source.with_batch_size(1);
    let opener = source.create_file_opener(nowhere, scan, 0)?;
    Ok(opener.open(file.clone().with_range(0, 1)).is_err())
}

/// As many groups as the scan has, of whole files. Where the order of rows counts, each is where it begins.
pub(super) fn uncut(scan: &FileScanConfig) -> Vec<FileGroup> {
    let groups = &scan.file_groups;
    if scan.output_ordering.is_empty() {
        return by_size(&whole_files(groups), groups.len());
    }
    let whole = |part: &PartitionedFile| {
        let mut file = part.clone();
        file.range = None;
        (part.range().0 == 0).then_some(file)
    };
    let groups = groups.iter();
    groups
        .map(|group| FileGroup::new(group.iter().filter_map(whole).collect()))
        .collect()
}

/// Whether the source of a scan cuts files. Asked with a file that it would want to cut, if any.
fn is_cut_by_source(scan: &FileScanConfig) -> Result<bool> {
    if is_json_array(scan)? {
        return Ok(false);
    }
    let files = whole_files(&scan.file_groups);
    let of_some_size = |file: &&PartitionedFile| file.object_meta.size > 0;
    let Some(file) = files.iter().flat_map(|g| g.iter()).find(of_some_size) else {
        return Ok(false);
    };
    let mut one = scan.clone();
    one.file_groups = vec![FileGroup::new(vec![file.clone()])];
    let asked = scan.file_source().repartitioned(2, 0, None, &one)?;
    Ok(asked.is_some_and(|cut| cut.file_groups.len() > 1))
}

/// Deals all files, or parts of them, to `count` groups, some of which may be empty.
pub(super) fn deal(scan: &FileScanConfig, cut: &Cut<'_>, count: usize) -> Result<Vec<FileGroup>> {
    if !scan.output_ordering.is_empty() {
        return deal_in_order(scan, cut, count);
    }
    let mut whole = scan.clone();
    whole.file_groups = whole_files(&scan.file_groups);
    let mut groups = match cut {
        Cut::RowGroups(footers) => {
            let files = whole.file_groups.iter().flat_map(|group| group.iter());
            let parts = files.flat_map(|file| row_groups(footers, file));
            spread(parts.collect(), count)
        }
        Cut::Source if is_cut_by_source(scan)? => {
            let source = scan.file_source();
            match source.repartitioned(count, 0, None, &whole)? {
                Some(cut) => cut.file_groups,
                None => by_size(&whole.file_groups, count),
            }
        }
        Cut::Source => by_size(&whole.file_groups, count),
    };
    groups.resize_with(count.max(groups.len()), || FileGroup::new(Vec::new()));
    Ok(groups)
}

/// Rows keep their order within each group: groups are cut, but nothing is put together or moved.
fn deal_in_order(scan: &FileScanConfig, cut: &Cut<'_>, count: usize) -> Result<Vec<FileGroup>> {
    let given = scan.file_groups.iter().filter(|group| !group.is_empty());
    let given: Vec<&FileGroup> = given.collect();
    let sizes: Vec<u64> = given.iter().map(|group| bytes(group)).collect();
    let mut shares = vec![1; given.len()];
    // Each time to the group whose parts are largest.
    for _ in given.len()..count {
        let largest = (0..given.len()).max_by_key(|i| (sizes[*i] / shares[*i] as u64, Reverse(*i)));
        if let Some(largest) = largest {
            shares[largest] += 1;
        }
    }
    let mut groups = Vec::new();
    for (group, share) in given.into_iter().zip(shares) {
        let parts = match cut {
            _ if share == 1 => vec![group.clone()],
            Cut::RowGroups(footers) => {
                let parts = group.iter().flat_map(|file| row_groups(footers, file));
                spread(parts.collect(), share)
            }
            Cut::Source => {
                let mut one = scan.clone();
                one.file_groups = vec![group.clone()];
                let ordering = scan.output_ordering.first().cloned();
                let source = scan.file_source();
                let cut = match group.len() {
                    1 if is_cut_by_source(&one)? => {
                        source.repartitioned(share, 0, ordering, &one)?
                    }
                    _ => None,
                };
                match cut {
                    Some(cut) => cut.file_groups,
                    None => spread(group.iter().cloned().collect(), share),
                }
            }
        };
        groups.extend(parts.into_iter().filter(|part| !part.is_empty()));
    }
    groups.resize_with(count.max(groups.len()), || FileGroup::new(Vec::new()));
    Ok(groups)
}

fn bytes(group: &FileGroup) -> u64 {
    group.iter().map(PartitionedFile::effective_size).sum()
}

/// Whole files, the largest first, each to the group that has least.
fn by_size(files: &[FileGroup], count: usize) -> Vec<FileGroup> {
    let files = files.iter().flat_map(|group| group.iter());
    let mut files: Vec<(usize, &PartitionedFile)> = files.enumerate().collect();
    files.sort_by_key(|(place, file)| (Reverse(file.effective_size()), *place));
    let mut groups = vec![(0, Vec::new()); count.max(1)];
    for (place, file) in files {
        let least = groups
            .iter_mut()
            .min_by_key(|(bytes, files)| (*bytes, files.len()));
        if let Some((bytes, files)) = least {
            *bytes += file.effective_size();
            files.push((place, file));
        }
    }
    let in_order = |(_, mut files): (u64, Vec<(usize, &PartitionedFile)>)| {
        files.sort_by_key(|(place, _)| *place);
        FileGroup::new(files.into_iter().map(|(_, file)| file.clone()).collect())
    };
    groups.into_iter().map(in_order).collect()
}

/// Parts, in their order, to groups of about the same size; those of one file that meet become one.
fn spread(parts: Vec<PartitionedFile>, count: usize) -> Vec<FileGroup> {
    let total: u64 = parts.iter().map(PartitionedFile::effective_size).sum();
    let mut groups = vec![Vec::<PartitionedFile>::new(); count.max(1)];
    let (mut before, last) = (0, groups.len() - 1);
    for part in parts {
        let size = part.effective_size();
        let middle = u128::from(before + size / 2) * groups.len() as u128;
        let group = usize::try_from(middle / u128::from(total.max(1))).unwrap_or(last);
        groups[group.min(last)].push(part);
        before += size;
    }
    let joined = |parts: Vec<PartitionedFile>| whole_files(&[FileGroup::new(parts)]).remove(0);
    groups.into_iter().map(joined).collect()
}

/// The row groups of a file, as ranges that hold one each and all of the file together. The whole file where its
/// footer was not read, or has them in another order.
fn row_groups(footers: &Footers, file: &PartitionedFile) -> Vec<PartitionedFile> {
    let whole = || vec![file.clone()];
    let Some(footer) = footers.get(&file.object_meta) else {
        return whole();
    };
    // Where DataFusion takes a row group to be.
    let starts = footer.row_groups().iter().map(|group| {
        let first = group.columns().first()?;
        let page = first.dictionary_page_offset();
        u64::try_from(page.unwrap_or_else(|| first.data_page_offset())).ok()
    });
    let Some(starts) = starts.collect::<Option<Vec<u64>>>() else {
        return whole();
    };
    if !starts.is_sorted_by(|one, next| one < next) {
        return whole();
    }
    let (begin, end) = file.range();
    let starts = starts
        .into_iter()
        .filter(|start| (begin..end).contains(start));
    let starts: Vec<u64> = starts.collect();
    if starts.is_empty() {
        return whole();
    }
    let ends = starts.iter().skip(1).copied().chain([end]);
    let begins = [begin].into_iter().chain(starts.iter().skip(1).copied());
    let part = |(start, end): (u64, u64)| file.clone().with_range(start as i64, end as i64);
    begins.zip(ends).take(starts.len()).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, size: u64) -> PartitionedFile {
        PartitionedFile::new(name, size)
    }

    fn shown(groups: &[FileGroup]) -> Vec<String> {
        let shown = |file: &PartitionedFile| {
            let (start, end) = file.range();
            format!("{}:{start}-{end}", file.path())
        };
        let of = |group: &FileGroup| group.iter().map(shown).collect::<Vec<_>>().join(" ");
        groups.iter().map(of).collect()
    }

    #[test]
    fn what_was_cut_is_put_together_again() {
        let groups = [
            FileGroup::new(vec![file("a", 9).with_range(0, 5)]),
            FileGroup::new(vec![file("a", 9).with_range(5, 9), file("b", 7)]),
            FileGroup::new(vec![file("c", 9).with_range(3, 9)]),
        ];
        let wholes = whole_files(&groups);
        assert_eq!(shown(&wholes), ["a:0-9 b:0-7 c:3-9"]);
        let ranges: Vec<bool> = wholes[0].iter().map(|file| file.range.is_some()).collect();
        assert_eq!(ranges, [false, false, true]);
    }

    #[test]
    fn whole_files_are_dealt_by_size() {
        let files = [5, 90, 30, 20, 40].map(|size| file(&size.to_string(), size));
        let groups = by_size(&[FileGroup::new(files.to_vec())], 3);
        assert_eq!(
            shown(&groups),
            ["90:0-90", "5:0-5 40:0-40", "30:0-30 20:0-20"]
        );
        let files = FileGroup::new(vec![file("a", 1), file("b", 0), file("c", 0)]);
        assert_eq!(shown(&by_size(&[files], 3)), ["a:0-1", "b:0-0", "c:0-0"]);
    }

    #[test]
    fn parts_are_spread_in_order_and_joined() {
        let parts = [(0, 10), (10, 30), (30, 40), (40, 80)];
        let parts = parts.map(|(start, end)| file("a", 80).with_range(start, end));
        let groups = spread(parts.to_vec(), 2);
        assert_eq!(shown(&groups), ["a:0-40", "a:40-80"]);
        let groups = spread(parts.to_vec(), 1);
        assert!(groups[0].iter().all(|file| file.range.is_none()));
    }
}
