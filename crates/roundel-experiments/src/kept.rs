//! Points that were measured, kept in a directory: what was stopped goes on from there. One file for each point, written as a
//! whole, under the hash of what was run, by which program; the file says both in full, and what it says counts. It must
//! only be used where the same setting measures the same.

use crate::error::{Error, Result};
use crate::report::replace;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Bytes of a point's file that are read.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Read at once of the program.
const PIECE_BYTES: usize = 1 << 20;

/// Where points are kept.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    place: Option<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    directory: PathBuf,
    fresh: bool,
    program: String,
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
struct Point<S, T> {
    /// The program that measured it.
    program: String,
    /// What was run.
    setting: S,
    measured: T,
}

impl Kept {
    /// In a directory, which is made where it does not exist. What is there already is not looked at if all is to be `fresh`.
    ///
    /// # Errors
    /// When the directory cannot be made, or this program cannot be read, whose changes make what it measured old.
    pub fn in_directory(directory: &Path, fresh: bool) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::io("make the directory of points"))?;
        let place = Place {
            directory: directory.to_owned(),
            fresh,
            program: sum_of(Path::new(THIS_PROGRAM)).map_err(Error::io("read this program"))?,
        };
        Ok(Self { place: Some(place) })
    }

    /// What a setting measured before, or measures now.
    ///
    /// # Errors
    /// That of measuring, and when the point cannot be written.
    pub fn or_measure<S, T>(&self, setting: &S, measure: impl FnOnce() -> Result<T>) -> Result<T>
    where
        S: Serialize,
        T: Serialize + DeserializeOwned,
    {
        let Some(place) = &self.place else {
            return measure();
        };
        let setting = serde_json::to_value(setting).expect("plain data is JSON");
        let name = place.name(&setting);
        if !place.fresh
            && let Some(measured) = place.read(&name, &setting)
        {
            return Ok(measured);
        }
        let point = Point {
            program: place.program.clone(),
            setting,
            measured: measure()?,
        };
        let text = serde_json::to_string(&point).expect("plain data is JSON");
        let written = replace(&place.directory, &name, &text);
        written.map_err(|error| Error::Setting(error.to_string()))?;
        // Numbers can change in their last digit when they are read: who resumes must see the same.
        Ok(place.read(&name, &point.setting).unwrap_or(point.measured))
    }
}

impl Place {
    fn name(&self, setting: &serde_json::Value) -> String {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.program.as_bytes());
        hasher.write(setting.to_string().as_bytes());
        format!("{:016x}.json", hasher.finish())
    }

    /// A point that is there, whole, and of this program and setting.
    fn read<T: DeserializeOwned>(&self, name: &str, setting: &serde_json::Value) -> Option<T> {
        let file = File::open(self.directory.join(name)).ok()?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
        let point: Point<serde_json::Value, T> = serde_json::from_str(&text).ok()?;
        (point.program == self.program && point.setting == *setting).then_some(point.measured)
    }
}

/// Where a process finds the program that it is.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// The version of this program, and a sum over all of a program.
pub(crate) fn sum_of(program: &Path) -> io::Result<String> {
    let mut file = File::open(program)?;
    let mut hasher = DefaultHasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            read => hasher.write(&piece[..read]),
        }
    }
    let (version, sum) = (env!("CARGO_PKG_VERSION"), hasher.finish());
    Ok(format!("{version}-{sum:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Measures, and counts it.
    fn ask(kept: &Kept, setting: &str, times: &Cell<u32>) -> f64 {
        let measure = || {
            times.set(times.get() + 1);
            Ok(1.0 / 3.0 + f64::from(times.get()))
        };
        kept.or_measure(&setting, measure).unwrap()
    }

    #[test]
    fn a_point_is_measured_once_unless_all_is_to_be_fresh() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::in_directory(directory.path(), false).unwrap();
        let times = Cell::new(0);
        let first = ask(&kept, "one", &times);
        assert_eq!(ask(&kept, "one", &times), first);
        ask(&kept, "other", &times);
        assert_eq!(times.get(), 2);
        let again = Kept::in_directory(directory.path(), false).unwrap();
        assert_eq!(ask(&again, "one", &times), first);
        assert_eq!(times.get(), 2);
        let fresh = Kept::in_directory(directory.path(), true).unwrap();
        assert_ne!(ask(&fresh, "one", &times), first);
        assert_eq!(times.get(), 3);
    }

    #[test]
    fn what_is_torn_or_of_another_program_is_measured_again() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::in_directory(directory.path(), false).unwrap();
        let times = Cell::new(0);
        ask(&kept, "one", &times);
        let file = fs::read_dir(directory.path()).unwrap().next().unwrap();
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        ask(&kept, "one", &times);
        assert_eq!(times.get(), 2);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(
            &path,
            text.replacen("\"program\":\"", "\"program\":\"not-", 1),
        )
        .unwrap();
        ask(&kept, "one", &times);
        assert_eq!(times.get(), 3);
    }

    #[test]
    fn without_a_directory_everything_is_measured() {
        let times = Cell::new(0);
        ask(&Kept::default(), "one", &times);
        ask(&Kept::default(), "one", &times);
        assert_eq!(times.get(), 2);
    }
}
