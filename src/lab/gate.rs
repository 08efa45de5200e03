//! The gate between the product and the outside: it numbers what the product asks for that can change something, and can
//! stop the product at any such call.
//!
//! What counts is each write to the API and each call of the cloud. A call that was sent takes effect whether or not the caller lives to
//! hear the answer, so it runs in a task of its own.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::future::{BoxFuture, pending};
use http::{Method, Request, Response};
use tokio::sync::Notify;

use super::api;
use crate::{
    api::EC2NodeClass,
    cloud::{Cloud, CloudError, ErrorClass, Instance, InstanceType, LaunchRequest, ResolvedClass},
};

/// On which side of a call the product dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The call is never sent.
    Before,
    /// The call takes effect, and its answer reaches nobody.
    After,
}

/// Where the product dies: the number of the call, from zero, and the side.
pub type Point = (usize, Moment);

/// Counts calls, and closes at one of them.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    closed: Notify,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<String>,
    close_at: Option<Point>,
    closed: bool,
}

impl Gate {
    /// A gate that closes at a call, or never.
    pub fn new(close_at: Option<Point>) -> Arc<Self> {
        let state = State {
            close_at,
            ..State::default()
        };
        Arc::new(Self {
            state: Mutex::new(state),
            closed: Notify::new(),
        })
    }

    /// The calls that arrived, in order: verb and target.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// Whether the gate has closed.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Waits until the gate has closed. Nothing gets through in either direction from then on.
    pub async fn closed(&self) {
        let waiting = self.closed.notified();
        if !self.is_closed() {
            waiting.await;
        }
    }

    /// The API behind this gate.
    pub fn around_api(self: &Arc<Self>, service: api::Service) -> GatedApi {
        GatedApi {
            inner: service,
            gate: self.clone(),
        }
    }

    /// The cloud behind this gate.
    pub fn around_cloud(self: &Arc<Self>, cloud: Arc<dyn Cloud>) -> Arc<dyn Cloud> {
        Arc::new(GatedCloud {
            inner: cloud,
            gate: self.clone(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call through: numbers it, sends it unless the gate closes before it, and hands the answer on unless it closes after it.
    async fn pass<T: Send + 'static>(
        &self,
        call: String,
        send: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let Some(number) = self.number(call) else {
            return pending().await;
        };
        self.close_if((number, Moment::Before)).await;
        let answer = tokio::spawn(send).await.ok();
        self.close_if((number, Moment::After)).await;
        answer
    }

    /// The number of a call that arrives; none once the gate is closed.
    fn number(&self, call: String) -> Option<usize> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.calls.push(call);
        Some(state.calls.len() - 1)
    }

    async fn close_if(&self, point: Point) {
        let closed = {
            let mut state = self.state();
            state.closed |= state.close_at == Some(point);
            state.closed
        };
        if closed {
            self.closed.notify_one();
            pending().await
        }
    }
}

/// The API behind a [`Gate`].
#[derive(Debug, Clone)]
pub struct GatedApi {
    inner: api::Service,
    gate: Arc<Gate>,
}

impl tower::Service<Request<kube::client::Body>> for GatedApi {
    type Response = Response<api::Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<api::Body>, kube::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let sent = self.inner.call(request);
        if method == Method::GET {
            return sent;
        }
        let gate = self.gate.clone();
        Box::pin(async move {
            match gate.pass(format!("{method} {path}"), sent).await {
                Some(answer) => answer,
                None => Err(kube::Error::Service("the call was lost".into())),
            }
        })
    }
}

struct GatedCloud {
    inner: Arc<dyn Cloud>,
    gate: Arc<Gate>,
}

impl GatedCloud {
    fn pass<'a, T: Send + 'static>(
        &'a self,
        call: String,
        send: impl Future<Output = Result<T, CloudError>> + Send + 'static,
    ) -> BoxFuture<'a, Result<T, CloudError>> {
        Box::pin(async move {
            self.gate.pass(call, send).await.unwrap_or_else(|| {
                Err(CloudError::new(
                    "call the cloud",
                    ErrorClass::Transient,
                    "InternalError",
                    "the call was lost",
                ))
            })
        })
    }
}

impl Cloud for GatedCloud {
    fn instance_types<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Arc<Vec<Arc<InstanceType>>>, CloudError>> {
        let (inner, class) = (self.inner.clone(), class.clone());
        let call = format!(
            "instance-types {}",
            class.metadata.name.as_deref().unwrap_or_default()
        );
        self.pass(call, async move { inner.instance_types(&class).await })
    }

    fn resolve_class<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<ResolvedClass, CloudError>> {
        let (inner, class) = (self.inner.clone(), class.clone());
        let call = format!(
            "resolve-class {}",
            class.metadata.name.as_deref().unwrap_or_default()
        );
        self.pass(call, async move { inner.resolve_class(&class).await })
    }

    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<Instance, CloudError>> {
        let (inner, request) = (self.inner.clone(), request.clone());
        let call = format!("launch {}", request.claim);
        self.pass(call, async move { inner.launch(&request).await })
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> BoxFuture<'a, Result<Instance, CloudError>> {
        let (inner, id) = (self.inner.clone(), provider_id.to_owned());
        self.pass(format!("get {id}"), async move { inner.get(&id).await })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>> {
        let inner = self.inner.clone();
        self.pass("list".to_owned(), async move { inner.list().await })
    }

    fn terminate<'a>(&'a self, provider_id: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        let (inner, id) = (self.inner.clone(), provider_id.to_owned());
        self.pass(format!("terminate {id}"), async move {
            inner.terminate(&id).await
        })
    }
}
