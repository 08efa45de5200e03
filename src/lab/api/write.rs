//! Create, update and patch.

use serde_json::{Map, Value, json};

use super::Server;
use super::admission::{Phase, Review};
use super::defaults;
use super::error::ApiError;
use super::kinds::Kind;
use super::object::{Key, Object, object_at, set_metadata, text};
use super::patch::Patch;
use super::rules::{
    address, check_finalizers, check_name, check_preconditions, differs, is_finished,
    keep_system_fields, set_status,
};

/// How often a patch is made again when the object changes under it.
const TRIES: usize = 5;

/// What to do with fields that a custom resource's schema does not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them in silence.
    Ignore,
    /// Drop them with a warning.
    #[default]
    Warn,
    /// Refuse the write.
    Strict,
}

/// Options of a write.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Do everything but store the result.
    pub dry_run: bool,
    /// Who writes; only told to webhooks.
    pub field_manager: String,
    /// What to do with unknown fields.
    pub field_validation: FieldValidation,
}

/// The result of a write.
#[derive(Debug, Clone)]
pub struct Written {
    /// The object as stored (or as it would be, for a dry run).
    pub object: Object,
    /// What the webhooks and the field check had to say.
    pub warnings: Vec<String>,
    /// Whether the object is new.
    pub created: bool,
}

/// Which part of an object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Main,
    Status,
}

impl Server {
    /// Creates an object. `namespace` is empty for cluster-wide types; `apiVersion`, `kind` and
    /// `metadata.namespace` are filled in when absent.
    pub async fn create(
        &self,
        kind: Kind,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let mut value = object;
        address(kind, namespace, &mut value)?;
        let generated = !text(&value, &["metadata", "generateName"]).is_empty()
            && text(&value, &["metadata", "name"]).is_empty();
        if generated {
            self.generate_name(kind, namespace, &mut value);
        }
        let name = text(&value, &["metadata", "name"]).to_owned();
        check_name(kind, &name)?;
        if !text(&value, &["metadata", "resourceVersion"]).is_empty() {
            return Err(ApiError::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let mut warnings = Vec::new();
        self.shape(kind, &mut value, options, &mut warnings)?;
        {
            let state = self.state();
            defaults::on_create(kind, &mut value, &state)?;
        }
        let review = Review {
            kind,
            operation: "CREATE",
            object: Some(&value),
            old: None,
            options,
        };
        if let Some(patched) = self.review(Phase::Mutate, review, &mut warnings).await? {
            value = patched;
            self.reshape(kind, &mut value);
        }
        let now = self.now();
        self.state().stamp_new(kind, &mut value, now);
        self.check_rules(kind, &name, &value, None)?;
        let review = Review {
            kind,
            operation: "CREATE",
            object: Some(&value),
            old: None,
            options,
        };
        self.review(Phase::Validate, review, &mut warnings).await?;

        let mut state = self.state();
        if kind.info().namespaced {
            match state.get(Kind::Namespace, &Key::new("", namespace)) {
                None => return Err(ApiError::not_found(Kind::Namespace, namespace)),
                Some(ns) if ns.is_deleting() => {
                    let why = format!(
                        "unable to create new content in namespace {namespace} because it is being terminated"
                    );
                    return Err(ApiError::forbidden(kind, &name, why));
                }
                Some(_) => {}
            }
        }
        if state.get(kind, &Key::of(&value)).is_some() {
            return Err(ApiError::already_exists(kind, &name));
        }
        let object = if options.dry_run {
            Object::new(kind, value, state.version())
        } else {
            let object = state.put(kind, value);
            if kind == Kind::Event {
                state.age_events(&object, now);
            }
            object
        };
        self.settle(state, now);
        Ok(Written {
            object,
            warnings,
            created: true,
        })
    }

    /// Replaces an object, except its status where that is a subresource.
    pub async fn update(
        &self,
        kind: Kind,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        self.replace(kind, namespace, object, Part::Main, options)
            .await
    }

    /// Replaces an object's status.
    pub async fn update_status(
        &self,
        kind: Kind,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        self.replace(kind, namespace, object, Part::Status, options)
            .await
    }

    pub(super) async fn replace(
        &self,
        kind: Kind,
        namespace: &str,
        mut object: Value,
        part: Part,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        address(kind, namespace, &mut object)?;
        let name = text(&object, &["metadata", "name"]).to_owned();
        let unversioned = text(&object, &["metadata", "resourceVersion"]).is_empty();
        if kind.info().conditional_update && unversioned {
            let problem =
                "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update";
            return Err(ApiError::invalid(kind, &name, &[problem.to_owned()]));
        }
        let key = Key::new(namespace, &name);
        self.change(kind, &key, part, options, |_| Ok(object.clone()))
            .await
    }

    /// Patches an object, except its status where that is a subresource. An apply creates what is not there.
    pub async fn patch(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        if let Patch::Apply(applied) = patch
            && self.state().get(kind, &Key::new(namespace, name)).is_none()
        {
            let mut object = applied.clone();
            object_at(&mut object, "metadata").insert("name".to_owned(), json!(name));
            match self.create(kind, namespace, object, options).await {
                Err(e) if e.is_already_exists() => {}
                done => return done,
            }
        }
        let key = Key::new(namespace, name);
        self.change(kind, &key, Part::Main, options, |old| {
            patch.apply(kind, old)
        })
        .await
    }

    /// Creates what a manifest describes, or merges it into what is there. Objects without a namespace go to
    /// `default`.
    pub async fn apply(
        &self,
        manifest: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let (version, kind) = (text(&manifest, &["apiVersion"]), text(&manifest, &["kind"]));
        let kind = Kind::by_manifest(version, kind).ok_or_else(|| {
            let message = format!("no matches for kind {kind:?} in version {version:?}");
            ApiError::new(404, "NotFound", message)
        })?;
        let namespace = match text(&manifest, &["metadata", "namespace"]) {
            _ if !kind.info().namespaced => "",
            "" => "default",
            given => given,
        };
        let (namespace, name) = (
            namespace.to_owned(),
            text(&manifest, &["metadata", "name"]).to_owned(),
        );
        let patch = Patch::Apply(manifest);
        self.patch(kind, &namespace, &name, &patch, options).await
    }

    /// Patches an object's status.
    pub async fn patch_status(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let key = Key::new(namespace, name);
        self.change(kind, &key, Part::Status, options, |old| {
            patch.apply(kind, old)
        })
        .await
    }

    /// Changes an object's `status` in place, in one step with reading it. For the lab's own controllers.
    pub fn edit_status(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Object, ApiError> {
        let now = self.now();
        let key = Key::new(namespace, name);
        let mut state = self.state();
        let old = state
            .get(kind, &key)
            .ok_or_else(|| ApiError::not_found(kind, name))?;
        let mut status = old["status"].clone();
        if status.is_null() {
            status = Value::Object(Map::new());
        }
        edit(&mut status);
        if status == old["status"] {
            return Ok(old);
        }
        let mut value = old.value().clone();
        value["status"] = status;
        let object = state.put(kind, value);
        self.settle(state, now);
        Ok(object)
    }

    async fn change(
        &self,
        kind: Kind,
        key: &Key,
        part: Part,
        options: &WriteOptions,
        make: impl Fn(&Object) -> Result<Value, ApiError>,
    ) -> Result<Written, ApiError> {
        for _ in 0..TRIES {
            let old = self
                .state()
                .get(kind, key)
                .ok_or_else(|| ApiError::not_found(kind, &key.name))?;
            let mut warnings = Vec::new();
            let value = make(&old)?;
            let value = self
                .next_version(part, &old, value, options, &mut warnings)
                .await?;

            let now = self.now();
            let mut state = self.state();
            match state.get(kind, key) {
                Some(current) if current.version() == old.version() => {}
                Some(_) => continue,
                None => return Err(ApiError::not_found(kind, &key.name)),
            }
            let object = if value == *old.value() {
                old
            } else if options.dry_run {
                Object::new(kind, value, old.version())
            } else if is_finished(&value) {
                let gone = state.remove(kind, key);
                let version = gone.map_or(old.version(), |o| o.version());
                Object::new(kind, value, version)
            } else {
                let object = state.put(kind, value);
                if kind == Kind::Event {
                    state.age_events(&object, now);
                }
                object
            };
            self.settle(state, now);
            return Ok(Written {
                object,
                warnings,
                created: false,
            });
        }
        Err(ApiError::modified(kind, &key.name))
    }

    /// Takes a written object through everything the API server does before it stores it.
    async fn next_version(
        &self,
        part: Part,
        old: &Object,
        mut value: Value,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Value, ApiError> {
        let kind = old.kind();
        let name = old.name();
        check_preconditions(old, &value)?;
        if part == Part::Status {
            let mut next = old.value().clone();
            set_status(&mut next, value["status"].take());
            return Ok(next);
        }
        self.shape(kind, &mut value, options, warnings)?;
        keep_system_fields(old, &mut value);
        let review = Review {
            kind,
            operation: "UPDATE",
            object: Some(&value),
            old: Some(old),
            options,
        };
        if let Some(patched) = self.review(Phase::Mutate, review, warnings).await? {
            value = patched;
            self.reshape(kind, &mut value);
            keep_system_fields(old, &mut value);
        }
        if kind.info().generation && differs(old, &value) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            set_metadata(&mut value, "generation", Some(json!(generation)));
        }
        check_finalizers(old, &value)?;
        defaults::check_update(old, &value)?;
        self.check_rules(kind, name, &value, Some(old))?;
        let review = Review {
            kind,
            operation: "UPDATE",
            object: Some(&value),
            old: Some(old),
            options,
        };
        self.review(Phase::Validate, review, warnings).await?;
        Ok(value)
    }

    /// Pruning and schema defaults of custom resources.
    fn shape(
        &self,
        kind: Kind,
        value: &mut Value,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let rules = self.hooks().rules.clone();
        let Some(rules) = rules.filter(|_| kind.info().custom) else {
            return Ok(());
        };
        let unknown = rules.prune(kind, value);
        let named: Vec<String> = unknown
            .iter()
            .map(|path| format!("unknown field {path:?}"))
            .collect();
        match options.field_validation {
            FieldValidation::Strict if !named.is_empty() => {
                let info = kind.info();
                return Err(ApiError::bad_request(format!(
                    "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
                    info.kind,
                    info.version,
                    info.kind,
                    named.join(", ")
                )));
            }
            FieldValidation::Warn => warnings.extend(named),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        rules.apply_defaults(kind, value);
        Ok(())
    }

    fn reshape(&self, kind: Kind, value: &mut Value) {
        let rules = self.hooks().rules.clone();
        if let Some(rules) = rules.filter(|_| kind.info().custom) {
            rules.prune(kind, value);
            rules.apply_defaults(kind, value);
        }
    }

    fn check_rules(
        &self,
        kind: Kind,
        name: &str,
        value: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let rules = self.hooks().rules.clone();
        let problems = match rules.filter(|_| kind.info().custom) {
            Some(rules) => rules.validate(kind, value, old),
            None => Vec::new(),
        };
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid(kind, name, &problems))
        }
    }

    fn generate_name(&self, kind: Kind, namespace: &str, value: &mut Value) {
        let prefix = text(value, &["metadata", "generateName"]).to_owned();
        let mut state = self.state();
        loop {
            let name = format!("{prefix}{}", state.seeded.suffix());
            if state.get(kind, &Key::new(namespace, &name)).is_none() {
                set_metadata(value, "name", Some(json!(name)));
                return;
            }
        }
    }
}
