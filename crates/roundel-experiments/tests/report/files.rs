//! The files of a report, written and read.

use std::fs;
use std::path::Path;

use roundel_experiments::outcome::Report;
use roundel_experiments::report::{
    CheckError, JsonError, WriteError, from_json, to_csv, to_json, to_text, write,
};

use super::sample;

#[test]
fn a_report_is_written_and_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let nested = directory.path().join("results/today");
    let report = sample::report();
    write(&report, &nested).unwrap();
    write(&report, &nested).unwrap();
    let mut names: Vec<_> = fs::read_dir(&nested)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut expected: Vec<_> = report
        .figures()
        .map(|figure| format!("{}.svg", figure.id))
        .collect();
    let others = ["report.csv", "report.html", "report.json"];
    expected.extend(others.map(str::to_owned));
    expected.sort();
    assert_eq!(names, expected, "all files, and nothing that was left over");
    keep_for_a_look(&nested);

    let json = fs::read(nested.join("report.json")).unwrap();
    let read = from_json(&json).unwrap();
    assert_eq!(read.machine, report.machine);
    // Not the figures: values that are not numbers equal nothing, and reading may change the last
    // of 17 digits.
    let tables = |report: &Report| -> Vec<String> {
        let figures = report.figures();
        figures.map(|figure| to_text(figure, 200)).collect()
    };
    assert_eq!(tables(&read), tables(&report));
}

#[test]
fn every_point_is_a_row_that_is_no_formula() {
    let mut report = sample::report();
    let figures = || report.figures().flat_map(|figure| &figure.series);
    let points: usize = figures().map(|series| series.points.len()).sum();
    report.outcomes[0].figures[0].series[0].name = "=1+1, \"all\"\nof it".to_owned();
    let csv = to_csv(&report);
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + points);
    assert_eq!(
        lines[0],
        "experiment,figure,series,x,x_unit,median,low,high,unit,runs"
    );
    let first = "designs,lines,\"'=1+1, \"\"all\"\" of it\",256,bytes,";
    assert!(lines[1].starts_with(first), "{}", lines[1]);
    assert!(lines[1].ends_with(",bytes_per_second,3"), "{}", lines[1]);
    // What is not a number has no field to be taken for one.
    assert!(!csv.contains("NaN") && !csv.contains("inf"));
}

/// `ROUNDEL_TEST_REPORT=DIR` keeps the sample.
fn keep_for_a_look(written: &Path) {
    if let Some(kept) = std::env::var_os("ROUNDEL_TEST_REPORT") {
        fs::create_dir_all(&kept).unwrap();
        for entry in fs::read_dir(written).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), Path::new(&kept).join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn ids_that_cannot_name_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for id in [
        "",
        "../x",
        "a/b",
        ".hidden",
        "a b",
        "ä",
        "<script>",
        &"x".repeat(65),
    ] {
        let mut report = sample::report();
        report.outcomes[1].figures[0].id = id.to_owned();
        let error = write(&report, directory.path()).unwrap_err();
        assert!(
            matches!(error, WriteError::Check(CheckError::Id { .. })),
            "{id}: {error}"
        );
        let error = from_json(to_json(&report).as_bytes()).unwrap_err();
        assert!(
            matches!(error, JsonError::Check(CheckError::Id { .. })),
            "{id}: {error}"
        );
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn two_figures_cannot_have_one_id() {
    let mut report = sample::report();
    report.outcomes[1].figures[0].id = "LINES".to_owned();
    let error = from_json(to_json(&report).as_bytes()).unwrap_err();
    assert!(
        matches!(error, JsonError::Check(CheckError::Twice { .. })),
        "{error}"
    );
}

#[test]
fn too_much_is_refused() {
    let mut report = sample::report();
    let figure = report.outcomes[0].figures[0].clone();
    report.outcomes[0].figures[0].series = vec![figure.series[0].clone(); 65];
    let error = from_json(to_json(&report).as_bytes()).unwrap_err();
    assert!(
        matches!(
            error,
            JsonError::Check(CheckError::TooMany { count: 65, .. })
        ),
        "{error}"
    );

    report.outcomes[0].figures[0].series = vec![figure.series[0].clone()];
    report.outcomes[0].figures[0].series[0].points =
        vec![figure.series[0].points[0].clone(); 20_001];
    let error = from_json(to_json(&report).as_bytes()).unwrap_err();
    assert!(
        matches!(
            error,
            JsonError::Check(CheckError::TooMany { count: 20_001, .. })
        ),
        "{error}"
    );
}

#[test]
fn what_is_not_a_report_is_refused() {
    let deep = "[".repeat(1_000_000);
    let report = to_json(&sample::report());
    let cut = &report[..report.len() / 2];
    for text in [
        "",
        "null",
        "{}",
        "[1]",
        "{\"machine\": \"\u{1b}[2J\"}",
        &deep,
        cut,
    ] {
        let error = from_json(text.as_bytes()).unwrap_err();
        assert!(matches!(error, JsonError::Format { .. }), "{error}");
        assert!(!error.to_string().contains('\u{1b}'));
    }
    assert!(matches!(
        from_json(&[0xff, 0xfe]),
        Err(JsonError::Format { .. })
    ));
    let large = vec![b' '; (64 << 20) + 1];
    assert!(matches!(from_json(&large), Err(JsonError::TooLarge { .. })));
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = write(&sample::report(), &file).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn the_example_of_the_documentation_is_a_report() {
    let page = include_str!("../../../../docs/user/experiments.md");
    let json = page
        .split("```json")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let report = from_json(json.as_bytes()).unwrap();
    // It has every field, and no other.
    let documented: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_value(&report).unwrap(), documented);
}
