//! The structure of the repository: which crate may use which, which modules use each other in a circle, which layer names
//! a provider, and how long files are. What is not yet as it should be is listed here. The lists may only become shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each crate may depend on.
const LAYERS: [(&str, &[&str]); 14] = [
    ("xtask", &[]),
    ("roundel-verbs", &[]),
    ("roundel-conformance", &["roundel-verbs"]),
    ("roundel-testbed", &["roundel-verbs"]),
    ("roundel-exchange", &["roundel-verbs"]),
    ("roundel-ring", &["roundel-verbs"]),
    ("roundel-protocols", &["roundel-verbs"]),
    ("roundel-datafusion", &["roundel-exchange", "roundel-verbs"]),
    (
        "roundel-engine",
        &[
            "roundel-datafusion",
            "roundel-exchange",
            "roundel-ring",
            "roundel-verbs",
        ],
    ),
    ("roundel-simtest", &["roundel-exchange", "roundel-verbs"]),
    (
        "roundel-experiments",
        &[
            "roundel-exchange",
            "roundel-protocols",
            "roundel-ring",
            "roundel-simtest",
            "roundel-verbs",
        ],
    ),
    ("roundel-terminal", &["roundel-verbs"]),
    (
        "roundel",
        &["roundel-engine", "roundel-terminal", "roundel-verbs"],
    ),
    (
        "roundel-lab",
        &[
            "roundel-experiments",
            "roundel-protocols",
            "roundel-simtest",
            "roundel-terminal",
            "roundel-verbs",
        ],
    ),
];

/// Files above the verbs that name a provider of devices, and why.
const PROVIDERS_NAMED: &[(&str, &str)] = &[
    (
        "roundel/src/doctor/fabrics.rs",
        "the doctor looks at devices",
    ),
    (
        "roundel/src/doctor/findings/device.rs",
        "the doctor looks at devices",
    ),
    ("roundel/src/doctor/host.rs", "the doctor looks at devices"),
    ("roundel/src/doctor/facts.rs", "the doctor looks at devices"),
];

/// Lines of a file without a reason beside it.
const LINES_MAX: usize = 500;

/// Longer files, and why.
const LONG_FILES: &[(&str, &str)] = &[
    ("xtask/src/checks/mod.rs", "a function for each check"),
    (
        "roundel-engine/src/functions/exact_sum.rs",
        "one function, half of it tests",
    ),
    (
        "roundel-engine/tests/files.rs",
        "a table of files that are read",
    ),
    (
        "roundel-engine/tests/scan.rs",
        "a table of files that are cut",
    ),
    (
        "roundel-exchange/tests/exchange/repair.rs",
        "every way to lose a datagram",
    ),
    (
        "roundel-ring/src/join/merge.rs",
        "one join; its windows could be a file",
    ),
    (
        "roundel-verbs/src/sim/device.rs",
        "one device, as wide as the trait",
    ),
];

#[test]
fn crates_depend_on_those_below_them_alone() {
    let mut wrong = Vec::new();
    for (name, allowed) in LAYERS {
        let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).expect("a crate");
        let normal = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let normal = normal.split("\n[").next().unwrap_or_default();
        for line in normal.lines().filter(|line| line.starts_with("roundel")) {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            if !allowed.contains(&&line[..end]) {
                wrong.push(format!("{name} depends on {}", &line[..end]));
            }
        }
    }
    let listed: BTreeSet<String> = LAYERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let there = fs::read_dir(crates()).expect("crates");
    let there = there.map(|one| {
        one.expect("a crate")
            .file_name()
            .into_string()
            .expect("UTF-8")
    });
    assert_eq!(there.collect::<BTreeSet<_>>(), listed);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn modules_use_each_other_one_way() {
    let mut found = BTreeSet::new();
    for (name, _) in LAYERS {
        for (parent, circle) in circles(&modules(&crates().join(name).join("src"))) {
            let parent = std::iter::once(name.to_owned()).chain(parent);
            let parent: Vec<_> = parent.collect();
            found.insert(format!("{}: {}", parent.join("::"), circle.join(" ")));
        }
    }
    assert!(found.is_empty(), "circles of modules: {found:#?}");
}

#[test]
fn no_layer_above_the_verbs_names_a_provider_of_devices() {
    // Experiments and tests above the verbs may ask for simulated hardware.
    let providers: Vec<String> = fs::read_dir(crates().join("roundel-verbs/src"))
        .expect("providers")
        .map(|one| one.expect("a provider"))
        .filter(|one| one.path().join("device.rs").exists() && one.file_name() != "sim")
        .map(|one| one.file_name().into_string().expect("UTF-8"))
        .collect();
    assert!(providers.len() >= 3, "{providers:?}");
    let mut found = BTreeSet::new();
    for (name, _) in LAYERS.iter().filter(|(name, _)| *name != "roundel-verbs") {
        let src = crates().join(name).join("src");
        for file in rust_files(&src) {
            if is_of_tests(file.strip_prefix(&src).expect("below it")) {
                continue;
            }
            let code = code(&file);
            let start = "roundel_verbs::";
            let used = code.match_indices(start);
            let mut used = used.flat_map(|(at, _)| paths(&code[at + start.len()..]));
            if used.any(|path| path.first().is_some_and(|one| providers.contains(one))) {
                found.insert(relative(&file));
            }
        }
    }
    as_listed(&found, &paths_of(PROVIDERS_NAMED));
}

#[test]
fn long_files_have_a_reason() {
    let mut found = BTreeSet::new();
    for file in rust_files(&crates()) {
        let text = fs::read_to_string(&file).expect("a file");
        if text.lines().count() > LINES_MAX {
            found.insert(relative(&file));
        }
    }
    as_listed(&found, &paths_of(LONG_FILES));
}

/// Whether a file, by its path below `src`, has tests alone.
fn is_of_tests(file: &Path) -> bool {
    let file = file.with_extension("");
    let mut parts = file.iter().filter_map(|part| part.to_str());
    parts.any(|part| part.ends_with("tests"))
}

fn paths_of(listed: &'static [(&str, &str)]) -> Vec<&'static str> {
    listed.iter().map(|(path, _)| *path).collect()
}

/// What is found is what is listed: what has been mended leaves the list.
fn as_listed(found: &BTreeSet<String>, listed: &[&str]) {
    let listed: BTreeSet<String> = listed.iter().map(|one| (*one).to_owned()).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(found).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "new: {new:#?}\nno longer there, so take them from the list: {gone:#?}"
    );
}

type Module = Vec<String>;

/// The modules of a crate that are files, with their code. Tests are left out.
fn modules(src: &Path) -> BTreeMap<Module, String> {
    let mut modules = BTreeMap::<Module, String>::new();
    for file in rust_files(src) {
        let path = file.strip_prefix(src).expect("below it").with_extension("");
        if is_of_tests(&path) {
            continue;
        }
        let mut module: Module = path
            .iter()
            .map(|part| part.to_str().expect("UTF-8").to_owned())
            .collect();
        if matches!(
            module.last().map(String::as_str),
            Some("mod" | "lib" | "main")
        ) {
            module.pop();
        }
        modules.entry(module).or_default().push_str(&code(&file));
    }
    modules
}

/// Modules with one parent that use each other in a circle, by their parents.
fn circles(modules: &BTreeMap<Module, String>) -> Vec<(Module, Vec<String>)> {
    let mut uses = BTreeMap::<Module, BTreeMap<String, BTreeSet<String>>>::new();
    for (module, code) in modules {
        for used in used_by(module, code, modules) {
            let common = module.iter().zip(&used).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(common), used.get(common)) {
                let siblings = uses.entry(module[..common].to_vec()).or_default();
                siblings.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    let mut circles = Vec::new();
    for (parent, uses) in uses {
        let reached: BTreeMap<&String, BTreeSet<&String>> = uses
            .keys()
            .map(|from| (from, reached(from, &uses)))
            .collect();
        let mut seen = BTreeSet::new();
        for from in uses.keys().filter(|from| reached[from].contains(from)) {
            let circle = reached[from].iter().filter(|to| {
                let back = reached.get(*to);
                back.is_some_and(|back| back.contains(from))
            });
            let circle: Vec<String> = circle.map(|one| (*one).clone()).collect();
            if seen.insert(circle.clone()) {
                circles.push((parent.clone(), circle));
            }
        }
    }
    circles
}

/// What a module uses, and what those use, and so on.
fn reached<'a>(from: &str, uses: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(next) = open.pop() {
        for to in uses.get(next).into_iter().flatten() {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

/// The modules that the paths in a module's code lead to.
fn used_by(module: &Module, code: &str, all: &BTreeMap<Module, String>) -> Vec<Module> {
    let mut used = Vec::new();
    let starts = ["crate::", "super::"].map(|start| code.match_indices(start));
    for (at, start) in starts.into_iter().flatten() {
        // Within a path, `super` was followed from its first one.
        if code[..at].ends_with("::")
            || code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            continue;
        }
        let mut base: &[String] = &[];
        let mut rest = &code[at + start.len()..];
        if start == "super::" {
            base = &module[..module.len().saturating_sub(1)];
            while let Some(further) = rest.strip_prefix("super::") {
                base = &base[..base.len().saturating_sub(1)];
                rest = further;
            }
        }
        for path in paths(rest) {
            let mut target = base.to_vec();
            for part in path {
                target.push(part);
                if !all.contains_key(&target) {
                    target.pop();
                    break;
                }
            }
            used.push(target);
        }
    }
    used
}

/// The paths that a text begins with: one, or those of a group in braces.
fn paths(text: &str) -> Vec<Vec<String>> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    found.extend(paths(&group[begin..at]));
                    begin = at + 1;
                    if c == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
        return found;
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    match rest.strip_prefix("::") {
        Some(rest) => paths(rest)
            .into_iter()
            .map(|path| std::iter::once(name.to_owned()).chain(path).collect())
            .collect(),
        None => vec![vec![name.to_owned()]],
    }
}

/// A file without its comments and its tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a file");
    let is_of_tests = |line: &str| line.starts_with("#[cfg(") && line.contains("test");
    let mut lines = text.lines().peekable();
    let mut code = String::new();
    while let Some(line) = lines.next() {
        // Modules of tests come last, unless they are files of their own.
        if is_of_tests(line) && !line.contains("not(test)") {
            match lines.peek() {
                Some(next) if next.contains("mod ") && next.ends_with('{') => break,
                Some(next) if next.contains("mod ") => lines.next(),
                _ => None,
            };
            continue;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files.extend(rust_files(&path)),
            false if path.extension().is_some_and(|one| one == "rs") => files.push(path),
            false => {}
        }
    }
    files.sort();
    files
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the crates")
}

fn relative(file: &Path) -> String {
    let path = file.strip_prefix(crates()).expect("a crate's");
    path.to_str().expect("UTF-8").to_owned()
}
