//! The rules of the house that the compiler does not check. The rooms, their order and which of them are pure are read from the table in
//! `src/lib.rs`: what people read there is what is tested here.

mod source;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use source::{Source, Token};

/// Longest source file. Over 600 lines there is a second subject in it; this is where it has to be split.
const MOST_LINES: usize = 800;

/// Identifiers that mean I/O, a clock, randomness, a global or an order that differs between runs.
const IMPURE: [&str; 28] = [
    "async",
    "await",
    "tokio",
    "spawn",
    "block_on",
    "Client",
    "Instant",
    "SystemTime",
    "Clock",
    "Stopwatch",
    "rand",
    "getrandom",
    "thread_rng",
    "RandomState",
    "HashMap",
    "HashSet",
    "thread_local",
    "LazyLock",
    "OnceLock",
    "OnceCell",
    "Mutex",
    "RwLock",
    "AtomicBool",
    "AtomicU32",
    "AtomicU64",
    "AtomicUsize",
    "println",
    "eprintln",
];

/// Parts of `std` that reach outside.
const OUTSIDE: [&str; 6] = ["env", "fs", "io", "net", "process", "thread"];

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Room {
    name: String,
    pure: bool,
}

#[test]
fn the_table_has_every_room_once() {
    let lib = read("src/lib.rs");
    let rooms = rooms(&lib);
    let modules: BTreeSet<&str> = lib
        .lines()
        .filter_map(|l| l.strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    let listed: Vec<&str> = rooms
        .iter()
        .map(|r| r.name.as_str())
        .filter(|n| !n.contains("::"))
        .collect();
    assert_eq!(
        listed.iter().copied().collect::<BTreeSet<_>>(),
        modules,
        "rooms of the table, modules"
    );
    assert_eq!(listed.len(), modules.len(), "a room is listed twice");
    let pure: Vec<&str> = rooms.iter().filter(|r| r.pure).map(|r| &*r.name).collect();
    for room in [
        "units",
        "api",
        "cluster",
        "scheduling",
        "plan",
        "lifecycle",
        "disruption",
    ] {
        assert!(pure.contains(&room), "{room} must stay pure");
    }
}

#[test]
fn rooms_import_only_from_rooms_above() {
    let rooms = rooms(&read("src/lib.rs"));
    let mut found = Vec::new();
    for source in sources() {
        found.extend(wrong_imports(&source, &rooms));
    }
    report(&found);
}

#[test]
fn pure_rooms_are_pure() {
    let rooms = rooms(&read("src/lib.rs"));
    let mut found = Vec::new();
    for source in sources() {
        if room_of(&rooms, &source.module).is_some_and(|i| rooms[i].pure) {
            found.extend(impurities(&source));
        }
    }
    report(&found);
}

#[test]
fn files_stay_short() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|s| s.lines > MOST_LINES)
        .map(|s| {
            format!(
                "{}:{}: longer than {MOST_LINES} lines, split it by subject",
                s.path, s.lines
            )
        })
        .collect();
    report(&long);
}

#[test]
fn nothing_is_left_open() {
    let mut found = Vec::new();
    let mut all = sources();
    all.extend(tests());
    for source in &all {
        found.extend(open_ends(source));
    }
    report(&found);
}

#[test]
fn every_room_says_what_it_must_never_do() {
    let mut found = Vec::new();
    for room in rooms(&read("src/lib.rs")) {
        let path = format!("src/{}.rs", room.name.replace("::", "/"));
        let doc: Vec<&str> = fs::read_to_string(root().join(&path))
            .expect("every room of the table has a file")
            .leak()
            .lines()
            .filter_map(|l| l.strip_prefix("//!"))
            .map(str::trim)
            .collect();
        if !doc.join(" ").to_lowercase().contains("must never") {
            found.push(format!("{path}:1: the module doc has no \"Must never\""));
        }
    }
    report(&found);
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    // Put together here so that this file does not find itself.
    let needles = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/tmp/", "wt"),
        concat!("/ho", "me/"),
        concat!("../sha", "red"),
    ];
    let mut found = Vec::new();
    for path in files(&root(), &|_| true) {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            for needle in needles {
                if line.contains(needle) {
                    found.push(format!(
                        "{}:{}: names {needle}",
                        relative(&path),
                        number + 1
                    ));
                }
            }
        }
    }
    report(&found);
}

#[test]
fn every_locked_package_comes_from_the_public_registry() {
    let lock = read("Cargo.lock");
    let mut sources = lock
        .lines()
        .filter(|l| l.starts_with("source = "))
        .peekable();
    assert!(sources.peek().is_some(), "the lock file names no source");
    for line in sources {
        assert_eq!(
            line,
            r#"source = "registry+https://github.com/rust-lang/crates.io-index""#
        );
    }
}

/// The rooms in the table's order.
fn rooms(lib: &str) -> Vec<Room> {
    lib.lines()
        .filter_map(|line| line.strip_prefix("//! | [`"))
        .map(|row| {
            let (name, rest) = row.split_once("`]").expect("a link in the first column");
            let pure = rest.split('|').nth(1).expect("a second column").trim();
            Room {
                name: name.to_owned(),
                pure: pure != "no",
            }
        })
        .collect()
}

/// The room that a module path is in: the longest row that it begins with.
fn room_of(rooms: &[Room], path: &[String]) -> Option<usize> {
    let find = |n: usize| {
        let name = path.get(..n)?.join("::");
        rooms.iter().position(|r| r.name == name)
    };
    find(2).or_else(|| find(1))
}

/// Imports from a room that is not above this one. Test code may import from anywhere.
fn wrong_imports(source: &Source, rooms: &[Room]) -> Vec<String> {
    let Some(here) = room_of(rooms, &source.module) else {
        return Vec::new();
    };
    source
        .crate_paths()
        .into_iter()
        .chain(inner_rooms(source, rooms))
        .filter_map(|(line, path)| {
            let there = room_of(rooms, &path)?;
            (there > here).then(|| {
                format!(
                    "{}:{line}: {} may not import {}",
                    source.path, rooms[here].name, rooms[there].name
                )
            })
        })
        .collect()
}

/// Rooms within a room are also reached through it, as `cloud::simulated` after `use crate::cloud`.
fn inner_rooms(source: &Source, rooms: &[Room]) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    for room in rooms {
        let Some((outer, inner)) = room.name.split_once("::") else {
            continue;
        };
        for (i, token) in source.tokens.iter().enumerate() {
            let through = i >= 2
                && source.is(i - 1, "::")
                && (source.is(i - 2, outer) || source.is(i - 2, "self"));
            let from_inside = source.module == [outer] && source.is(i + 1, "::");
            if token.text == inner && !token.test && (through || from_inside) {
                found.push((token.line, vec![outer.to_owned(), inner.to_owned()]));
            }
        }
    }
    found
}

/// What a pure room must not mention.
fn impurities(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let mut tell = |token: &Token, what: &str| {
        found.push(format!(
            "{}:{}: {what} in a pure room",
            source.path, token.line
        ));
    };
    for (i, token) in source.tokens.iter().enumerate() {
        if IMPURE.contains(&&*token.text) {
            tell(token, &token.text);
        }
        if token.text == "now" && source.is(i + 1, "(") && source.is(i + 2, ")") {
            tell(token, "now()");
        }
        if token.text == "static" && source.is(i + 1, "mut") {
            tell(token, "static mut");
        }
    }
    for (line, path) in source.paths_from("std") {
        // A test may read a variable that says whether to rewrite a recorded file.
        if path.first().is_some_and(|p| OUTSIDE.contains(&&**p)) {
            found.push(format!(
                "{}:{line}: std::{} in a pure room",
                source.path, path[0]
            ));
        }
    }
    found
}

/// Work announced and not done, and tests that do not run.
fn open_ends(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (i, token) in source.tokens.iter().enumerate() {
        let open = (["todo", "unimplemented"].contains(&&*token.text) && source.is(i + 1, "!"))
            || (token.text == "ignore" && i > 0 && source.is(i - 1, "["));
        if open {
            found.push(format!("{}:{}: {}", source.path, token.line, token.text));
        }
    }
    for (line, comment) in &source.comments {
        for word in [
            concat!("TO", "DO"),
            concat!("FIX", "ME"),
            concat!("XX", "X"),
            concat!("HA", "CK"),
        ] {
            if comment.contains(word) {
                found.push(format!("{}:{line}: {word}", source.path));
            }
        }
    }
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// Every source file of the library and the program.
fn sources() -> Vec<Source> {
    let found = parse("src");
    assert!(found.len() > 20, "the sources were not found");
    found
}

fn tests() -> Vec<Source> {
    parse("tests")
}

fn parse(folder: &str) -> Vec<Source> {
    files(&root().join(folder), &|p| {
        p.extension().is_some_and(|e| e == "rs")
    })
    .iter()
    .map(|path| {
        let text = fs::read_to_string(path).expect("a source file is text");
        Source::parse(&relative(path), &text)
    })
    .collect()
}

/// Files below a folder in a fixed order, without what tools keep there.
fn files(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|e| e.expect("a folder entry").path())
        .collect();
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        if path.is_dir() {
            if ![".git", "target"].contains(&name) {
                found.extend(files(&path, wanted));
            }
        } else if name != ".git" && wanted(&path) {
            found.push(path);
        }
    }
    found
}

fn report(found: &[String]) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

fn three_rooms() -> Vec<Room> {
    rooms(concat!(
        "//! | [`cloud`] | types | x |\n",
        "//! | [`plan`] | yes | x |\n",
        "//! | [`cloud::simulated`] | no | x |\n",
    ))
}

#[test]
fn the_scan_sees_imports_in_every_form() {
    let found = |path: &str, text: &str| wrong_imports(&Source::parse(path, text), &three_rooms());
    let wrong = [
        "use crate::plan::Plan;",
        "use crate::{api, plan::{self, Plan}};",
        "use super::plan;",
        "fn f() -> crate::plan::Plan {}",
        "use crate::cloud::simulated::Simulated;",
        "use crate::{cloud::{Cloud, simulated}};",
        "use crate::cloud; fn f(x: cloud::simulated::X) {}",
    ];
    for text in wrong {
        let found = found("src/cloud.rs", text);
        assert!(!found.is_empty(), "not seen: {text}");
        assert!(found[0].starts_with("src/cloud.rs:1: cloud may not import "));
    }
    assert_eq!(
        found("src/cloud/error.rs", "\nuse super::super::plan;"),
        ["src/cloud/error.rs:2: cloud may not import plan"]
    );
    let right = [
        ("src/plan.rs", "use crate::{cloud::Cloud, plan::Plan};"),
        ("src/cloud/simulated.rs", "use crate::plan::Plan;"),
        (
            "src/cloud.rs",
            "// use crate::plan;\nconst A: &str = \"crate::plan\";",
        ),
        (
            "src/cloud.rs",
            "#[cfg(test)]\nmod tests { use crate::plan::Plan; }",
        ),
        ("src/cloud.rs", "pub mod simulated;"),
    ];
    for (path, text) in right {
        assert_eq!(found(path, text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn the_scan_sees_impure_code() {
    let found = |text: &str| impurities(&Source::parse("src/plan.rs", text));
    for text in [
        "async fn f() {}",
        "let t = clock.now();",
        "use std::{collections::BTreeMap, env};",
        "use std::collections::HashMap;",
        "let t = std::time::Instant::from(x);",
        "static mut N: u8 = 0;",
        "fn f(c: &Client) {}",
    ] {
        assert_eq!(found(text).len(), 1, "{text}");
    }
    for text in [
        "/// No `async`, no HashMap.\nfn f(now: Timestamp) -> &'static str { \"tokio\" }",
        "let c = '\"'; let d = 'a'; fn f<'a>(x: &'a str) {}",
        "let raw = r#\"async \"tokio\" \"#;",
        "use std::{collections::BTreeMap, sync::Arc};",
    ] {
        assert_eq!(found(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn the_scan_sees_open_ends() {
    let found = |text: &str| open_ends(&Source::parse("src/plan.rs", text)).len();
    assert_eq!(found("fn f() { todo!() }"), 1);
    assert_eq!(found("#[test]\n#[ignore]\nfn f() {}"), 1);
    assert_eq!(found(concat!("// FIX", "ME later\nfn f() {}")), 1);
    assert_eq!(
        found("/// What to do next.\nfn todo() -> &str { \"todo!\" }"),
        0
    );
}
