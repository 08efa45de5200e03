//! Refusals, in the shape of the API server's `Status`.

use serde_json::{Value, json};

use super::kinds::Kind;

/// A refused request: what a client of the real API server reads from the `Status` body.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`; empty when the API server gives none.
    pub reason: String,
    /// The message for people.
    pub message: String,
    /// `details` of the Status, or null.
    pub details: Value,
}

impl ApiError {
    /// An error without details.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: Value::Null,
        }
    }

    fn about(mut self, kind: Kind, name: &str) -> Self {
        let info = kind.info();
        self.details = json!({"name": name, "group": info.group, "kind": info.plural});
        self
    }

    /// 404: no such object.
    pub fn not_found(kind: Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.resource());
        Self::new(404, "NotFound", message).about(kind, name)
    }

    /// 409: the name is taken.
    pub fn already_exists(kind: Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.resource());
        Self::new(409, "AlreadyExists", message).about(kind, name)
    }

    /// 409: the write cannot be made on the object as it is now.
    pub fn conflict(kind: Kind, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.resource()
        );
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// 409: the object changed since the caller read it.
    pub fn modified(kind: Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422: the object breaks rules; each item is one `path: message`.
    pub fn invalid(kind: Kind, name: &str, problems: &[String]) -> Self {
        let info = kind.info();
        let what = match problems {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let qualified = if info.group.is_empty() {
            info.kind.to_owned()
        } else {
            format!("{}.{}", info.kind, info.group)
        };
        let message = format!("{qualified} \"{name}\" is invalid: {what}");
        let causes: Vec<Value> = problems
            .iter()
            .map(|p| {
                let (field, message) = p.split_once(": ").unwrap_or(("", p));
                json!({"reason": "FieldValueInvalid", "field": field, "message": message})
            })
            .collect();
        let mut error = Self::new(422, "Invalid", message);
        error.details =
            json!({"name": name, "group": info.group, "kind": info.kind, "causes": causes});
        error
    }

    /// 400: the request cannot be read.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403: the request is understood and not allowed.
    pub fn forbidden(kind: Kind, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.resource());
        Self::new(403, "Forbidden", message).about(kind, name)
    }

    /// 410: the history asked for is gone.
    pub fn expired(since: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {since} ({oldest})"),
        )
    }

    /// 500: something that should not fail did.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {why}"),
        )
    }

    /// Whether the object was not there.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Whether the object had changed (and not: the name was taken).
    pub fn is_conflict(&self) -> bool {
        self.code == 409 && self.reason == "Conflict"
    }

    /// Whether the name was taken.
    pub fn is_already_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// The `Status` body.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
