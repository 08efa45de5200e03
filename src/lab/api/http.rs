//! The API as an HTTP service, for `kube::Client`.

mod discovery;
mod route;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::Server;
use super::delete::{DeleteOptions, Deleted};
use super::error::ApiError;
use super::kinds::Kind;
use super::object::{Object, object_at, text};
use super::patch::Patch;
use super::select::Selectors;
use super::watch::{Event, Line};
use super::write::{Part, WriteOptions, Written};
use route::{Route, Subresource};

pub use route::Call;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The API of a server as a service over HTTP requests, for `kube::Client::new(service(server), "default")`.
pub fn service(server: Server) -> Service {
    Service { server }
}

/// A server behind HTTP. See [`service`].
#[derive(Debug, Clone)]
pub struct Service {
    server: Server,
}

impl tower::Service<Request<kube::client::Body>> for Service {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let server = self.server.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            Ok(answer(&server, &parts, &body).await)
        })
    }
}

async fn answer(server: &Server, parts: &http::request::Parts, body: &Bytes) -> Response<Body> {
    if let Some(found) = discovery::answer(server, parts.uri.path()) {
        return json_response(StatusCode::OK, Bytes::from(found.to_string()));
    }
    let route = match Route::parse(parts) {
        Ok(route) => route,
        Err(e) => return error_response(&e),
    };
    let call = route.call();
    let (fault, recorder) = {
        let hooks = server.hooks();
        (hooks.fault.clone(), hooks.recorder.clone())
    };
    let refused = fault.filter(|_| call.is_write()).and_then(|f| f(&call));
    let answered = match refused {
        Some(error) => Err(error),
        None => serve(server, &route, parts, body).await,
    };
    let response = answered.unwrap_or_else(|e| error_response(&e));
    if let Some(record) = recorder {
        record(&call, response.status().as_u16());
    }
    response
}

async fn serve(
    server: &Server,
    route: &Route,
    parts: &http::request::Parts,
    body: &Bytes,
) -> Result<Response<Body>, ApiError> {
    let (kind, namespace) = (route.kind, route.namespace.as_deref());
    let space = namespace.unwrap_or_default();
    let options = route.write_options()?;
    let method = &parts.method;
    let Some(name) = route.name.as_deref() else {
        return match *method {
            Method::GET if route.is_watch() => watch_response(server, route),
            Method::GET => Ok(list_response(server, route, &route.selectors()?)),
            Method::POST => {
                let object = read(body)?;
                let written = server.create(kind, space, object, &options).await?;
                Ok(written_response(&written))
            }
            Method::DELETE => delete_collection(server, route, body).await,
            _ => Err(not_allowed()),
        };
    };
    let part = match route.subresource {
        None => Part::Main,
        Some(Subresource::Status) => Part::Status,
        Some(subresource) => {
            if *method != Method::POST {
                return Err(not_allowed());
            }
            return act_on_pod(server, subresource, space, name, &read(body)?, &options);
        }
    };
    match *method {
        Method::GET if route.is_watch() => watch_response(server, route),
        Method::GET => {
            let object = server.get(kind, space, name)?;
            Ok(json_response(StatusCode::OK, object.bytes()))
        }
        Method::PUT => {
            let mut object = read(body)?;
            let metadata = object_at(&mut object, "metadata");
            metadata.entry("name").or_insert_with(|| json!(name));
            let given = text(&object, &["metadata", "name"]);
            if given != name {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({given}) does not match the name on the URL ({name})"
                )));
            }
            let written = server.replace(kind, space, object, part, &options).await?;
            Ok(written_response(&written))
        }
        Method::PATCH => {
            let patch = read_patch(parts, body)?;
            let written = match part {
                Part::Main => server.patch(kind, space, name, &patch, &options).await?,
                Part::Status => {
                    server
                        .patch_status(kind, space, name, &patch, &options)
                        .await?
                }
            };
            Ok(written_response(&written))
        }
        Method::DELETE if part == Part::Main => {
            let options = delete_options(route, body)?;
            let deleted = server.delete(kind, space, name, &options).await?;
            Ok(deleted_response(&deleted))
        }
        _ => Err(not_allowed()),
    }
}

fn act_on_pod(
    server: &Server,
    subresource: Subresource,
    namespace: &str,
    name: &str,
    body: &Value,
    options: &WriteOptions,
) -> Result<Response<Body>, ApiError> {
    match subresource {
        Subresource::Binding => {
            let uid = body["metadata"]["uid"].as_str();
            if options.dry_run {
                server.get(Kind::Pod, namespace, name)?;
            } else {
                server.bind(namespace, name, text(body, &["target", "name"]), uid)?;
            }
        }
        _ => {
            let mut delete = DeleteOptions::from_value(&body["deleteOptions"]);
            delete.dry_run |= options.dry_run;
            server.evict(namespace, name, &delete)?;
        }
    }
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(json_response(
        StatusCode::CREATED,
        Bytes::from(status.to_string()),
    ))
}

async fn delete_collection(
    server: &Server,
    route: &Route,
    body: &Bytes,
) -> Result<Response<Body>, ApiError> {
    let options = delete_options(route, body)?;
    let selectors = route.selectors()?;
    let (version, objects) = server.list(route.kind, route.namespace.as_deref(), &selectors);
    for object in &objects {
        let deleted = server
            .delete(route.kind, object.namespace(), object.name(), &options)
            .await;
        if let Err(e) = deleted
            && !e.is_not_found()
        {
            return Err(e);
        }
    }
    let body = list_body(route.kind, version, &objects);
    Ok(json_response(StatusCode::OK, body))
}

fn list_response(server: &Server, route: &Route, selectors: &Selectors) -> Response<Body> {
    let (version, objects) = server.list(route.kind, route.namespace.as_deref(), selectors);
    json_response(StatusCode::OK, list_body(route.kind, version, &objects))
}

fn list_body(kind: Kind, version: u64, objects: &[Object]) -> Bytes {
    let texts: Vec<Bytes> = objects.iter().map(Object::bytes).collect();
    let size = texts.iter().map(|t| t.len() + 1).sum::<usize>();
    let mut body = BytesMut::with_capacity(size + 128);
    let head = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":[",
        kind.info().kind,
        kind.api_version()
    );
    body.put_slice(head.as_bytes());
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            body.put_u8(b',');
        }
        body.put_slice(text);
    }
    body.put_slice(b"]}");
    body.freeze()
}

fn watch_response(server: &Server, route: &Route) -> Result<Response<Body>, ApiError> {
    let mut selectors = route.selectors()?;
    if let Some(name) = &route.name {
        let named = Selectors::parse("", &format!("metadata.name={name}"))?;
        selectors.fields.extend(named.fields);
    }
    let namespace = route.namespace.as_deref();
    let since =
        match route.parameter("resourceVersion") {
            None | Some("" | "0") => None,
            Some(version) => Some(version.parse::<u64>().map_err(|_| {
                ApiError::bad_request(format!("invalid resource version {version:?}"))
            })?),
        };
    let initial = route.flag("sendInitialEvents");
    let since = since.filter(|_| !initial);
    let watch = server
        .state()
        .watch::<Line>(route.kind, namespace, since, &selectors);
    let mut watch = match watch {
        Ok(watch) => watch,
        // The API server begins the stream and then says so in it.
        Err(e) if e.code == 410 => {
            let line = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", e.status());
            return Ok(json_response(StatusCode::OK, Bytes::from(line)));
        }
        Err(e) => return Err(e),
    };
    if initial {
        // For clients that list by watching.
        let end = Event::initial_end(route.kind, watch.start());
        watch.follow_with(end.line());
    }
    let frames = watch.flat_map(|line| futures::stream::iter(line.map(frame)));
    let seconds = route.parameter("timeoutSeconds").unwrap_or_default();
    Ok(match seconds.parse::<u64>() {
        Ok(seconds) if seconds > 0 => {
            let end = tokio::time::sleep(std::time::Duration::from_secs(seconds));
            stream_response(frames.take_until(end))
        }
        _ => stream_response(frames),
    })
}

fn frame(bytes: Bytes) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(bytes))
}

fn stream_response(
    frames: impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static,
) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    json_headers(&mut response);
    response
}

fn json_response(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() = status;
    json_headers(&mut response);
    response
}

fn json_headers(response: &mut Response<Body>) {
    let json = HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
}

fn error_response(error: &ApiError) -> Response<Body> {
    let status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_response(status, Bytes::from(error.status().to_string()))
}

fn written_response(written: &Written) -> Response<Body> {
    let status = if written.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let mut response = json_response(status, written.object.bytes());
    let mut told: Vec<&String> = Vec::new();
    for warning in &written.warnings {
        if told.contains(&warning) {
            continue;
        }
        told.push(warning);
        if let Some(value) = warning_header(warning) {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
    response
}

/// A warning as RFC 7234 writes it, with code 299 and no agent.
fn warning_header(text: &str) -> Option<HeaderValue> {
    let mut quoted = String::with_capacity(text.len() + 8);
    for c in text.chars().filter(|c| !c.is_control()) {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()).ok()
}

fn deleted_response(deleted: &Deleted) -> Response<Body> {
    let body = match deleted {
        Deleted::Pending(object) => object.bytes(),
        Deleted::Gone(object) => {
            let info = object.kind().info();
            let status = json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {"name": object.name(), "group": info.group, "kind": info.plural, "uid": object.uid()},
            });
            Bytes::from(status.to_string())
        }
    };
    json_response(StatusCode::OK, body)
}

fn delete_options(route: &Route, body: &Bytes) -> Result<DeleteOptions, ApiError> {
    let body = if body.is_empty() {
        Value::Null
    } else {
        read(body)?
    };
    let mut options = DeleteOptions::from_value(&body);
    options.dry_run |= route.write_options()?.dry_run;
    if let Some(seconds) = route.parameter("gracePeriodSeconds") {
        options.grace_period_seconds = seconds.parse().ok();
    }
    if route.parameter("propagationPolicy") == Some("Orphan") {
        options.orphan = true;
    }
    Ok(options)
}

fn read(body: &Bytes) -> Result<Value, ApiError> {
    serde_json::from_slice(body)
        .map_err(|e| ApiError::bad_request(format!("the body of the request cannot be read: {e}")))
}

fn read_patch(parts: &http::request::Parts, body: &Bytes) -> Result<Patch, ApiError> {
    let content_type = parts.headers.get(http::header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default().trim();
    match media {
        "application/json-patch+json" => serde_json::from_slice(body)
            .map(Patch::Json)
            .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}"))),
        "application/merge-patch+json" => read(body).map(Patch::Merge),
        "application/strategic-merge-patch+json" => read(body).map(Patch::Strategic),
        "application/apply-patch+yaml" => read(body).map(Patch::Apply),
        other => Err(ApiError::new(
            415,
            "UnsupportedMediaType",
            format!("the body of the request was in an unknown format: {other:?}"),
        )),
    }
}

fn not_allowed() -> ApiError {
    ApiError::new(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )
}
