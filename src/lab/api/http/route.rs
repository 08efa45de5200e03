//! From a request's address to what it asks for.

use http::Method;

use crate::lab::api::error::ApiError;
use crate::lab::api::kinds::Kind;
use crate::lab::api::select::Selectors;
use crate::lab::api::write::{FieldValidation, WriteOptions};

/// One request, as hooks see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// The resource type.
    pub kind: Kind,
    /// The namespace; empty for cluster-wide types and for lists across namespaces.
    pub namespace: String,
    /// The object's name; empty for collections.
    pub name: String,
    /// `status`, `binding`, `eviction` or empty.
    pub subresource: &'static str,
}

impl Call {
    /// Whether the request may change something.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subresource {
    Status,
    Binding,
    Eviction,
}

/// A request's target and parameters.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<Subresource>,
    method: Method,
    parameters: Vec<(String, String)>,
}

impl Route {
    pub(super) fn parse(parts: &http::request::Parts) -> Result<Self, ApiError> {
        let unknown = || {
            ApiError::new(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )
        };
        let segments: Vec<String> = parts
            .uri
            .path()
            .split('/')
            .filter(|s| !s.is_empty())
            .map(decode)
            .collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(unknown()),
        };
        let find = |plural: &str| Kind::by_plural(group, version, plural);
        let (kind, namespace, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..]
                if find(plural).is_some_and(|k| k.info().namespaced) =>
            {
                (find(plural), Some((*namespace).to_owned()), rest)
            }
            [plural, rest @ ..] => (find(plural), None, rest),
            [] => return Err(unknown()),
        };
        let kind = kind.ok_or_else(unknown)?;
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] => (Some(*name), None),
            [name, "status"] if kind.info().status => (Some(*name), Some(Subresource::Status)),
            [name, "binding"] if kind == Kind::Pod => (Some(*name), Some(Subresource::Binding)),
            [name, "eviction"] if kind == Kind::Pod => (Some(*name), Some(Subresource::Eviction)),
            _ => return Err(unknown()),
        };
        if name.is_some() && kind.info().namespaced && namespace.is_none() {
            return Err(unknown());
        }
        let query = parts.uri.query().unwrap_or_default();
        let parameters = query.split('&').filter(|p| !p.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_form(key), decode_form(value))
        });
        Ok(Self {
            kind,
            namespace,
            name: name.map(str::to_owned),
            subresource,
            method: parts.method.clone(),
            parameters: parameters.collect(),
        })
    }

    pub(super) fn call(&self) -> Call {
        let verb = match (&self.method, &self.name) {
            (&Method::GET, _) if self.is_watch() => "watch",
            (&Method::GET, Some(_)) => "get",
            (&Method::GET, None) => "list",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            (&Method::DELETE, None) => "deletecollection",
            _ => "create",
        };
        Call {
            verb,
            kind: self.kind,
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone().unwrap_or_default(),
            subresource: match self.subresource {
                None => "",
                Some(Subresource::Status) => "status",
                Some(Subresource::Binding) => "binding",
                Some(Subresource::Eviction) => "eviction",
            },
        }
    }

    pub(super) fn parameter(&self, key: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        matches!(self.parameter(key), Some("true" | "1"))
    }

    pub(super) fn is_watch(&self) -> bool {
        self.method == Method::GET && self.flag("watch")
    }

    pub(super) fn selectors(&self) -> Result<Selectors, ApiError> {
        Selectors::parse(
            self.parameter("labelSelector").unwrap_or_default(),
            self.parameter("fieldSelector").unwrap_or_default(),
        )
    }

    pub(super) fn write_options(&self) -> Result<WriteOptions, ApiError> {
        let dry_run = match self.parameter("dryRun") {
            None | Some("") => false,
            Some("All") => true,
            Some(other) => {
                return Err(ApiError::bad_request(format!(
                    "dryRun: Unsupported value: {other:?}: supported values: \"All\""
                )));
            }
        };
        let field_validation = match self.parameter("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                return Err(ApiError::bad_request(format!(
                    "fieldValidation: Unsupported value: {other:?}"
                )));
            }
        };
        Ok(WriteOptions {
            dry_run,
            field_manager: self
                .parameter("fieldManager")
                .unwrap_or_default()
                .to_owned(),
            field_validation,
        })
    }
}

fn decode_form(text: &str) -> String {
    decode(&text.replace('+', " "))
}

/// Undoes percent encoding; what is not valid stays as it is.
fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match hex {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, uri: &str) -> Result<Call, ApiError> {
        let request = http::Request::builder().method(method).uri(uri);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Route::parse(&parts).map(|r| r.call())
    }

    #[test]
    fn addresses_name_verb_type_and_object() {
        let expected = |verb, kind, namespace: &str, name: &str, subresource| Call {
            verb,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource,
        };
        for (method, uri, want) in [
            (
                "GET",
                "/api/v1/pods",
                expected("list", Kind::Pod, "", "", ""),
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods?watch=true",
                expected("watch", Kind::Pod, "a", "", ""),
            ),
            (
                "GET",
                "/api/v1/namespaces/a",
                expected("get", Kind::Namespace, "", "a", ""),
            ),
            (
                "PUT",
                "/api/v1/namespaces/a/status",
                expected("update", Kind::Namespace, "", "a", "status"),
            ),
            (
                "POST",
                "/api/v1/namespaces/a/pods/p/eviction",
                expected("create", Kind::Pod, "a", "p", "eviction"),
            ),
            (
                "PATCH",
                "/apis/karpenter.sh/v1/nodepools/p/status",
                expected("patch", Kind::NodePool, "", "p", "status"),
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/a/deployments",
                expected("deletecollection", Kind::Deployment, "a", "", ""),
            ),
        ] {
            assert_eq!(call(method, uri).unwrap(), want, "{method} {uri}");
        }
        for uri in [
            "/api/v1/nothings",
            "/apis/apps/v2/deployments",
            "/api/v1/pods/p",
            "/",
        ] {
            assert_eq!(call("GET", uri).unwrap_err().code, 404, "{uri}");
        }
    }

    #[test]
    fn percent_encoding_is_undone() {
        assert_eq!(decode("a%3Db%2Cc"), "a=b,c");
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode_form("a+in+%28b%29"), "a in (b)");
    }
}
