//! Manifests: reading them, and those that the lab ships.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;

/// Bad input from a person: one line that names the file and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InputError(String);

impl InputError {
    /// A complaint about a file; line breaks become spaces.
    pub fn new(file: &str, what: impl std::fmt::Display) -> Self {
        let text = format!("{file}: {what}");
        Self(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// Where files are read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// The files that come with the program.
    Shipped,
    /// The disk; relative paths start at this folder.
    Disk(PathBuf),
}

macro_rules! shipped {
    ($($path:literal,)*) => {
        &[$(($path, include_str!(concat!("../../lab/", $path))),)*]
    };
}

/// Files by their path below `lab/`.
const SHIPPED: &[(&str, &str)] = shipped![
    "manifests/base/daemonsets.yaml",
    "manifests/inflate.yaml",
    "manifests/seeds/01.yaml",
    "manifests/seeds/02.yaml",
    "manifests/seeds/03.yaml",
    "manifests/seeds/04.yaml",
    "manifests/seeds/05.yaml",
    "manifests/seeds/06.yaml",
    "manifests/seeds/07.yaml",
    "manifests/seeds/08.yaml",
    "manifests/seeds/09.yaml",
    "manifests/seeds/10.yaml",
    "manifests/seeds/11.yaml",
    "scenarios/crash.yaml",
    "scenarios/guides.yaml",
];

/// The objects that every cluster of the lab starts with.
pub const BASE: &str = "manifests/base/daemonsets.yaml";

impl Files {
    /// The text of a file.
    pub fn read(&self, path: &str) -> Result<String, InputError> {
        match self {
            Files::Shipped => {
                let found = SHIPPED.iter().find(|(name, _)| *name == path);
                let text =
                    found.ok_or_else(|| InputError::new(path, "not among the lab's files"))?;
                Ok(text.1.to_owned())
            }
            Files::Disk(folder) => {
                let at = folder.join(path);
                std::fs::read_to_string(&at)
                    .map_err(|e| InputError::new(&at.display().to_string(), e))
            }
        }
    }

    /// The path of a file that another file names relative to itself.
    pub fn beside(&self, file: &str, named: &str) -> String {
        let joined = Path::new(file)
            .parent()
            .unwrap_or(Path::new(""))
            .join(named);
        match self {
            Files::Disk(_) => joined.display().to_string(),
            Files::Shipped => {
                let mut parts: Vec<&str> = Vec::new();
                for part in joined.components() {
                    match part {
                        Component::ParentDir => drop(parts.pop()),
                        Component::Normal(name) => parts.extend(name.to_str()),
                        _ => {}
                    }
                }
                parts.join("/")
            }
        }
    }
}

/// The objects of a manifest with one or more documents.
pub fn parse(file: &str, text: &str) -> Result<Vec<Value>, InputError> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|e| InputError::new(file, yaml_problem(&e)))?;
    let objects: Vec<Value> = documents.into_iter().filter(|d| !d.is_null()).collect();
    for object in &objects {
        check(object).map_err(|what| InputError::new(file, what))?;
    }
    Ok(objects)
}

/// Whether a value can be an object of the API.
pub fn check(object: &Value) -> Result<(), String> {
    if !object.is_object() {
        return Err("not a Kubernetes object".to_owned());
    }
    for (pointer, field) in [
        ("/apiVersion", "apiVersion"),
        ("/kind", "kind"),
        ("/metadata/name", "metadata.name"),
    ] {
        match object.pointer(pointer) {
            Some(Value::String(text)) if !text.is_empty() => {}
            None | Some(Value::Null) => return Err(format!("{field}: missing")),
            Some(_) => return Err(format!("{field}: must be a text")),
        }
    }
    Ok(())
}

/// What is wrong with a YAML text and where, without the excerpt.
pub(super) fn yaml_problem(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default().to_owned();
    match error.location() {
        Some(at) if !line.contains("line") => format!("line {}: {line}", at.line()),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_manifest_can_be_read() {
        for (path, text) in SHIPPED.iter().filter(|(p, _)| p.starts_with("manifests")) {
            assert!(!parse(path, text).unwrap().is_empty(), "{path}");
        }
    }

    #[test]
    fn paths_are_relative_to_the_file_that_names_them() {
        let beside = |files: &Files, a, b| files.beside(a, b);
        assert_eq!(
            beside(
                &Files::Shipped,
                "scenarios/guides.yaml",
                "../manifests/a.yaml"
            ),
            "manifests/a.yaml"
        );
        let disk = Files::Disk(PathBuf::from("/x"));
        assert_eq!(beside(&disk, "s/a.yaml", "b.yaml"), "s/b.yaml");
        assert_eq!(beside(&disk, "s/a.yaml", "/b.yaml"), "/b.yaml");
    }

    #[test]
    fn complaints_are_one_line_with_the_file() {
        for (text, expected) in [
            ("a: [1\nb: 2", "f.yaml: "),
            ("- 1", "f.yaml: not a Kubernetes object"),
            ("kind: Pod", "f.yaml: apiVersion: missing"),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: 3}",
                "f.yaml: metadata.name: must be a text",
            ),
        ] {
            let error = parse("f.yaml", text).unwrap_err().to_string();
            assert!(
                error.starts_with(expected) && !error.contains('\n'),
                "{error}"
            );
        }
    }
}
