//! `/version` and the discovery documents.

use serde_json::{Value, json};

use crate::lab::api::Server;
use crate::lab::api::kinds::Kind;

/// The document at a path, if it is one of these.
pub(super) fn answer(server: &Server, path: &str) -> Option<Value> {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    match segments.as_slice() {
        ["version"] => Some(version(&server.hooks().version)),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        ["apis"] => Some(groups()),
        ["api", version] => resources("", version),
        ["apis", group, version] => resources(group, version),
        _ => None,
    }
}

fn version(git_version: &str) -> Value {
    let mut numbers = git_version.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    })
}

fn groups() -> Value {
    let mut names: Vec<&str> = Vec::new();
    for kind in Kind::ALL {
        let group = kind.info().group;
        if !group.is_empty() && !names.contains(&group) {
            names.push(group);
        }
    }
    let groups: Vec<Value> = names
        .iter()
        .map(|name| {
            let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
            json!({"name": name, "versions": [version], "preferredVersion": version})
        })
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn resources(group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    let mut group_version = None;
    for kind in Kind::ALL {
        let info = kind.info();
        if info.group != group || info.version != version {
            continue;
        }
        group_version = Some(kind.api_version());
        resources.push(json!({
            "name": info.plural,
            "singularName": info.kind.to_lowercase(),
            "namespaced": info.namespaced,
            "kind": info.kind,
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        }));
        if info.status {
            resources.push(json!({
                "name": format!("{}/status", info.plural),
                "singularName": "",
                "namespaced": info.namespaced,
                "kind": info.kind,
                "verbs": ["get", "patch", "update"],
            }));
        }
    }
    let group_version = group_version?;
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }))
}
