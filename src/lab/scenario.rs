//! Scenarios: what happens to a cluster, step by step, as a YAML file. `docs/lab.md` describes the format.
//!
//! Reading is complete before anything runs: every file that a scenario names is read and parsed, and each complaint
//! names the file, the step and the field.

use std::time::Duration;

use serde_json::{Map, Value};

use super::manifests::{self, Files, InputError};
use crate::{cloud::simulated::Fault, units::GoDuration};

/// How long a step waits in virtual time when it does not say.
const WITHIN: Duration = Duration::from_secs(3600);

/// The scenario that runs when none is given.
pub const DEFAULT: &str = "scenarios/guides.yaml";

/// A scenario that can run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// The size that `pods` stands for.
    pub pods: u32,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// One step: some actions, then a wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Something to tell the reader.
    pub note: Option<String>,
    /// What is done, in order.
    pub actions: Vec<Action>,
    /// What is waited for.
    pub wait: Wait,
    /// How long at most.
    pub within: Duration,
}

/// Something done to the cluster or its surroundings.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates or replaces objects.
    Apply {
        /// Where they come from.
        file: String,
        /// The objects.
        objects: Vec<Value>,
    },
    /// Sets a Deployment's replicas.
    Scale {
        /// Namespace.
        namespace: String,
        /// Name.
        deployment: String,
        /// Replicas.
        replicas: u32,
    },
    /// Deletes one object, or every object of the kind when the name is `*`.
    Delete {
        /// Kind.
        kind: String,
        /// Namespace; ignored for kinds without one.
        namespace: String,
        /// Name or `*`.
        name: String,
    },
    /// Lets time pass.
    Pause(Duration),
    /// Sets the faults of the simulated cloud, in place of those set before.
    Faults(Vec<Fault>),
}

/// What a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Every wanted pod runs and no other is left.
    Running,
    /// As [`Wait::Running`], and no node, claim or instance is left.
    Empty,
    /// The readiness of every NodePool and node class is decided.
    Ready,
    /// Nothing.
    Nothing,
}

impl Scenario {
    /// The built-in scenario.
    pub fn built_in(pods: Option<u32>) -> Result<Self, InputError> {
        Self::read(&Files::Shipped, DEFAULT, pods)
    }

    /// Reads a scenario and all files that it names. `pods` replaces the file's own size.
    pub fn read(files: &Files, file: &str, pods: Option<u32>) -> Result<Self, InputError> {
        let text = files.read(file)?;
        Self::parse(files, file, &text, pods)
    }

    fn parse(files: &Files, file: &str, text: &str, pods: Option<u32>) -> Result<Self, InputError> {
        let complain = |what: String| InputError::new(file, what);
        let document: Value =
            serde_saphyr::from_str(text).map_err(|e| complain(manifests::yaml_problem(&e)))?;
        let Value::Object(map) = document else {
            return Err(complain(
                "a scenario is a mapping with the fields name, pods and steps".to_owned(),
            ));
        };
        let mut top = Fields {
            map,
            at: String::new(),
        };
        let name = top
            .text("name")
            .map_err(complain)?
            .unwrap_or_else(|| file.to_owned());
        let own = top.count("pods").map_err(complain)?;
        let pods = pods.or(own).unwrap_or(100);
        let list = top.take("steps");
        top.end(&["name", "pods", "steps"]).map_err(complain)?;
        let list = match list {
            Some(Value::Array(list)) if !list.is_empty() => list,
            Some(_) => {
                return Err(complain(
                    "steps: must be a list with at least one step".to_owned(),
                ));
            }
            None => return Err(complain("steps: missing".to_owned())),
        };
        let mut steps = Vec::new();
        for (i, value) in list.into_iter().enumerate() {
            let source = Source { files, file, pods };
            let step = source.step(i + 1, value)?;
            steps.push(step);
        }
        Ok(Self { name, pods, steps })
    }
}

const STEP_FIELDS: [&str; 10] = [
    "name", "note", "faults", "apply", "objects", "scale", "delete", "pause", "wait", "within",
];

struct Source<'a> {
    files: &'a Files,
    file: &'a str,
    pods: u32,
}

impl Source<'_> {
    fn step(&self, number: usize, value: Value) -> Result<Step, InputError> {
        let named = value["name"].as_str().map(str::to_owned);
        let label = named.map_or_else(
            || format!("step {number}"),
            |n| format!("step {number} ({n})"),
        );
        let complain = |what: String| InputError::new(self.file, format!("{label}: {what}"));
        let Value::Object(map) = value else {
            return Err(complain("must be a mapping".to_owned()));
        };
        let mut fields = Fields {
            map,
            at: String::new(),
        };
        let name = fields.text("name").map_err(complain)?;
        let name = name.ok_or_else(|| complain("name: missing".to_owned()))?;
        let note = fields.text("note").map_err(complain)?;
        let mut actions = Vec::new();
        if let Some(faults) = fields.take("faults") {
            actions.push(Action::Faults(read_faults(faults).map_err(complain)?));
        }
        for path in fields.texts("apply").map_err(complain)? {
            let path = self.files.beside(self.file, &path);
            let text = self
                .files
                .read(&path)
                .map_err(|e| complain(format!("apply: {e}")))?;
            let objects =
                manifests::parse(&path, &text).map_err(|e| complain(format!("apply: {e}")))?;
            actions.push(Action::Apply {
                file: path,
                objects,
            });
        }
        match fields.take("objects") {
            None => {}
            Some(Value::Array(objects)) => {
                for (i, object) in objects.iter().enumerate() {
                    manifests::check(object).map_err(|e| complain(format!("objects[{i}].{e}")))?;
                }
                actions.push(Action::Apply {
                    file: self.file.to_owned(),
                    objects,
                });
            }
            Some(_) => return Err(complain("objects: must be a list".to_owned())),
        }
        if let Some(scale) = fields.inner("scale").map_err(complain)? {
            actions.push(self.scale(scale).map_err(complain)?);
        }
        if let Some(delete) = fields.inner("delete").map_err(complain)? {
            actions.push(read_delete(delete).map_err(complain)?);
        }
        if let Some(pause) = fields.duration("pause").map_err(complain)? {
            actions.push(Action::Pause(pause));
        }
        let wait = match fields.text("wait").map_err(complain)?.as_deref() {
            None | Some("running") => Wait::Running,
            Some("empty") => Wait::Empty,
            Some("ready") => Wait::Ready,
            Some("nothing") => Wait::Nothing,
            Some(other) => {
                return Err(complain(format!(
                    "wait: {other:?} is not one of running, empty, ready, nothing"
                )));
            }
        };
        let within = fields
            .duration("within")
            .map_err(complain)?
            .unwrap_or(WITHIN);
        fields.end(&STEP_FIELDS).map_err(complain)?;
        let name = name.replace("{pods}", &self.pods.to_string());
        Ok(Step {
            name,
            note,
            actions,
            wait,
            within,
        })
    }

    fn scale(&self, mut fields: Fields) -> Result<Action, String> {
        let deployment = fields.required("deployment")?;
        let namespace = fields
            .text("namespace")?
            .unwrap_or_else(|| "default".to_owned());
        let replicas = match fields.map.get("replicas") {
            Some(Value::String(word)) if word == "pods" => {
                fields.take("replicas");
                self.pods
            }
            _ => fields
                .count("replicas")?
                .ok_or_else(|| fields.path("replicas") + ": missing")?,
        };
        fields.end(&["deployment", "namespace", "replicas"])?;
        Ok(Action::Scale {
            namespace,
            deployment,
            replicas,
        })
    }
}

fn read_delete(mut fields: Fields) -> Result<Action, String> {
    let kind = fields.required("kind")?;
    let name = fields.required("name")?;
    let namespace = fields
        .text("namespace")?
        .unwrap_or_else(|| "default".to_owned());
    fields.end(&["kind", "name", "namespace"])?;
    Ok(Action::Delete {
        kind,
        namespace,
        name,
    })
}

fn read_faults(value: Value) -> Result<Vec<Fault>, String> {
    let Value::Array(list) = value else {
        return Err("faults: must be a list".to_owned());
    };
    let one = |(i, value): (usize, Value)| {
        serde_json::from_value(value).map_err(|e| format!("faults[{i}]: {e}"))
    };
    list.into_iter().enumerate().map(one).collect()
}

/// A mapping whose fields are taken out one by one; what is left over is unknown.
struct Fields {
    map: Map<String, Value>,
    /// Path of the mapping with a dot behind it, empty at the top.
    at: String,
}

impl Fields {
    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.at)
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|v| !v.is_null())
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(other) => Err(format!("{}: must be a text, not {other}", self.path(name))),
        }
    }

    fn required(&mut self, name: &str) -> Result<String, String> {
        self.text(name)?
            .ok_or_else(|| self.path(name) + ": missing")
    }

    /// One text or a list of texts.
    fn texts(&mut self, name: &str) -> Result<Vec<String>, String> {
        let one = |value: Value| match value {
            Value::String(text) if !text.is_empty() => Ok(text),
            other => Err(format!(
                "{}: must be a list of texts, {other} is none",
                self.path(name)
            )),
        };
        match self.map.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => {
                let read = list.iter().cloned().map(one).collect();
                self.take(name);
                read
            }
            Some(value) => {
                let read = one(value.clone()).map(|text| vec![text]);
                self.take(name);
                read
            }
        }
    }

    fn count(&mut self, name: &str) -> Result<Option<u32>, String> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let number = value
            .as_u64()
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| *n <= MOST);
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(format!(
                "{}: must be a whole number from 0 to {MOST}, not {value}",
                self.path(name)
            )),
        }
    }

    fn duration(&mut self, name: &str) -> Result<Option<Duration>, String> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let bad = |why: String| {
            format!(
                "{}: {text:?} is not a duration such as 90s or 1h30m{why}",
                self.path(name)
            )
        };
        let parsed: GoDuration = text.parse().map_err(|e| bad(format!(" ({e})")))?;
        match Duration::try_from(parsed.to_signed()) {
            Ok(duration) => Ok(Some(duration)),
            Err(_) => Err(bad(String::new())),
        }
    }

    fn inner(&mut self, name: &str) -> Result<Option<Fields>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields {
                map,
                at: format!("{}{name}.", self.at),
            })),
            Some(_) => Err(format!("{}: must be a mapping", self.path(name))),
        }
    }

    /// Fails on what is left.
    fn end(self, known: &[&str]) -> Result<(), String> {
        match self.map.keys().find(|k| !known.contains(&k.as_str())) {
            None => Ok(()),
            Some(key) => Err(format!(
                "{}: unknown field (known: {})",
                self.path(key),
                known.join(", ")
            )),
        }
    }
}

/// The most pods or instances that a scenario may name: ten times what Kubernetes is tested for would only fill the memory.
pub const MOST: u32 = 150_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Scenario, String> {
        let files = Files::Disk("/nowhere".into());
        Scenario::parse(&files, "s.yaml", text, None).map_err(|e| e.to_string())
    }

    #[test]
    fn the_built_in_scenario_scales_to_the_given_size() {
        let scenario = Scenario::built_in(Some(137)).unwrap();
        let names: Vec<&str> = scenario.steps.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names[2], "inflate to 137");
        assert!(matches!(
            scenario.steps[2].actions[..],
            [Action::Scale { replicas: 137, .. }]
        ));
        assert_eq!(scenario.steps[3].wait, Wait::Empty);
        let applied = |step: &Step| {
            step.actions
                .iter()
                .filter(|a| matches!(a, Action::Apply { .. }))
                .count()
        };
        // The eleven manifests of the guides and the Deployment.
        assert_eq!(scenario.steps.iter().map(applied).sum::<usize>(), 12);
    }

    #[test]
    fn every_field_is_read() {
        let scenario = parse(
            r#"
name: all
pods: 3
steps:
  - name: grow to {pods}
    note: hello
    objects: [{apiVersion: v1, kind: Pod, metadata: {name: a}}]
    scale: {deployment: d, namespace: apps, replicas: pods}
    delete: {kind: Node, name: "*"}
    faults: [{fault: stockOut, offering: {zone: us-east-1a}, left: 2}, {fault: launchFails, times: 1}]
    pause: 1m30s
    wait: nothing
    within: 2h
"#,
        )
        .unwrap();
        let step = &scenario.steps[0];
        assert_eq!(
            (step.name.as_str(), step.wait, step.within.as_secs()),
            ("grow to 3", Wait::Nothing, 7200)
        );
        assert_eq!(step.actions.len(), 5);
        let Action::Faults(faults) = &step.actions[0] else {
            panic!("{:?}", step.actions[0])
        };
        assert!(matches!(
            faults[..],
            [
                Fault::StockOut { left: 2, .. },
                Fault::LaunchFails { times: Some(1), .. }
            ]
        ));
        assert_eq!(step.actions[4], Action::Pause(Duration::from_secs(90)));
    }

    #[test]
    fn complaints_name_file_step_and_field() {
        let cases = [
            ("steps: [", "s.yaml: "),
            ("[]", "s.yaml: a scenario is a mapping"),
            ("name: x", "s.yaml: steps: missing"),
            ("steps: 3", "s.yaml: steps: must be a list"),
            ("foo: 1\nsteps: [{name: a}]", "s.yaml: foo: unknown field"),
            (
                "pods: many\nsteps: [{name: a}]",
                "s.yaml: pods: must be a whole number",
            ),
            ("steps: [{wait: empty}]", "s.yaml: step 1: name: missing"),
            ("steps: [7]", "s.yaml: step 1: must be a mapping"),
            (
                "steps: [{name: a, wait: long}]",
                "s.yaml: step 1 (a): wait: \"long\" is not one of",
            ),
            (
                "steps: [{name: a, within: soon}]",
                "s.yaml: step 1 (a): within: \"soon\" is not a duration",
            ),
            (
                "steps: [{name: a, pause: -1s}]",
                "s.yaml: step 1 (a): pause: \"-1s\" is not a duration",
            ),
            (
                "steps: [{name: a, scale: {replicas: 1}}]",
                "s.yaml: step 1 (a): scale.deployment: missing",
            ),
            (
                "steps: [{name: a, scale: {deployment: d}}]",
                "s.yaml: step 1 (a): scale.replicas: missing",
            ),
            (
                "steps: [{name: a, scale: {deployment: d, replicas: -1}}]",
                "s.yaml: step 1 (a): scale.replicas: must be a whole number",
            ),
            (
                "steps: [{name: a, apply: [none.yaml]}]",
                "s.yaml: step 1 (a): apply: /nowhere/none.yaml: No such file",
            ),
            (
                "steps: [{name: a, apply: 3}]",
                "s.yaml: step 1 (a): apply: must be a list of texts",
            ),
            (
                "steps: [{name: a, objects: [{}]}]",
                "s.yaml: step 1 (a): objects[0].apiVersion: missing",
            ),
            (
                "steps: [{name: a, faults: {}}]",
                "s.yaml: step 1 (a): faults: must be a list",
            ),
            (
                "steps: [{name: a, faults: [{fault: x}]}]",
                "s.yaml: step 1 (a): faults[0]: unknown variant `x`",
            ),
            (
                "steps: [{name: a, delete: {kind: Pod}}]",
                "s.yaml: step 1 (a): delete.name: missing",
            ),
            (
                "steps: [{name: a}, {name: b, sclae: {}}]",
                "s.yaml: step 2 (b): sclae: unknown field",
            ),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err();
            assert!(
                error.starts_with(expected) && !error.contains('\n'),
                "{text}\n  {error}"
            );
        }
    }
}
