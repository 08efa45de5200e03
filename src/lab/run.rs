//! Runs a scenario on a world, step by step.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    api::{ApiError, DeleteOptions, Kind, Patch, Selectors, WriteOptions},
    manifests::InputError,
    observe::{Observer, Standing, dollars},
    scenario::{Action, Scenario, Step, Wait},
    summary::{Instances, Report, StepReport},
    timeline::Row,
    world::{World, apply},
};
use crate::{
    cluster::{Owner, Snapshot},
    config::Mode,
    scheduling::{self, Problem},
    units::{CPU, MEMORY, Quantity, Resources, Rounding},
};

/// A wait looks at the cloud this often: its instances end without telling the API.
const LOOK: Duration = Duration::from_secs(1);

/// How often a write that the API server could not carry out is sent again, a second apart: a person would do no less while the product
/// restarts.
const TRIES: u32 = 30;

/// In advise mode nothing comes of waiting; this long is enough to hear what would be done.
const ADVISE_WITHIN: Duration = Duration::from_secs(60);

/// Hears how a run goes.
pub trait Progress {
    /// A step begins.
    fn step(&mut self, number: usize, of: usize, name: &str);
    /// Something to tell, such as a warning of the API.
    fn note(&mut self, text: &str);
    /// A row of the timeline.
    fn row(&mut self, row: &Row);
    /// How things stand; called often.
    fn standing(&mut self, standing: &Standing);
}

/// Hears nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn step(&mut self, _: usize, _: usize, _: &str) {}
    fn note(&mut self, _: &str) {}
    fn row(&mut self, _: &Row) {}
    fn standing(&mut self, _: &Standing) {}
}

/// Why a run ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scenario asks for what the API refuses.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Something stopped that should not.
    #[error("{0} stopped during step {1:?}")]
    Stopped(&'static str, String),
}

/// Runs a scenario to its end, whatever its steps come to.
pub async fn run(
    world: &mut World,
    scenario: &Scenario,
    raise_limits: bool,
    progress: &mut dyn Progress,
) -> Result<Report, RunError> {
    let observer = Observer::new(world.server.clone(), world.cloud.clone());
    let mut runner = Runner {
        world,
        scenario,
        observer,
        progress,
        raise_limits,
        notes: Vec::new(),
    };
    let mut steps = Vec::new();
    for (i, step) in scenario.steps.iter().enumerate() {
        runner
            .progress
            .step(i + 1, scenario.steps.len(), &step.name);
        steps.push(runner.step(step).await?);
    }
    let Runner {
        observer, notes, ..
    } = runner;
    let counters = world.cloud.counters();
    let standing = observer.standing();
    Ok(Report {
        seed: world.options().seed,
        scenario: scenario.name.clone(),
        kubernetes_version: world.options().kubernetes_version.clone(),
        region: world.cloud.region().to_owned(),
        spot_prices: "simulated",
        pods: scenario.pods,
        steps,
        instances: Instances {
            launched: counters.launched,
            terminated: counters.terminated,
            left_over: counters.left_over,
        },
        nodes_left_over: standing.nodes,
        claims_left_over: standing.claims,
        evictions: world.evictions(),
        cost: dollars(counters.accrued_cost),
        notes,
        timeline: observer.rows,
        wall: None,
    })
}

struct Runner<'a> {
    world: &'a mut World,
    scenario: &'a Scenario,
    observer: Observer,
    progress: &'a mut dyn Progress,
    raise_limits: bool,
    notes: Vec<String>,
}

impl Runner<'_> {
    async fn step(&mut self, step: &Step) -> Result<StepReport, RunError> {
        self.flush(true);
        let begin = self.world.clock.now();
        self.observer.last_running = None;
        let at_s = self.observer.seconds(begin);
        self.observer.add_row(at_s, format!("step: {}", step.name));
        self.tell_rows(self.observer.rows.len() - 1);
        if let Some(note) = &step.note {
            self.note(note.clone());
        }
        for action in &step.actions {
            self.act(step, action).await?;
        }
        let waited = self.wait(step).await?;
        self.flush(true);
        let standing = self.observer.standing();
        let first_launch = self.world.cloud.first_launch_since(begin);
        let since = |at: jiff::Timestamp| at.duration_since(begin).as_millis() as f64 / 1000.0;
        let report = StepReport {
            name: step.name.clone(),
            at_s,
            took_s: since(self.world.clock.now()),
            wanted: standing.wanted,
            running: standing.running,
            pending: standing.pending,
            first_launch_s: first_launch.map(since),
            last_running_s: self.observer.last_running.map(since),
            nodes: standing.nodes,
            price_per_hour: standing.price_per_hour,
            lower_bound_per_hour: self.lower_bound(),
            reached: waited,
        };
        let end = match waited {
            true if report.wanted > 0 => format!("all {} pods run", report.wanted),
            true => "done".to_owned(),
            false => format!(
                "gave up after {}: {} of {} pods run, {} pending, {} nodes",
                seconds(self.limit(step).as_secs_f64()),
                standing.running,
                standing.wanted,
                standing.pending,
                standing.nodes
            ),
        };
        self.observer.add_row(self.observer.now_s(), end);
        self.tell_rows(self.observer.rows.len() - 1);
        Ok(report)
    }

    fn limit(&self, step: &Step) -> Duration {
        match self.world.options().settings.mode {
            Mode::Act => step.within,
            Mode::Advise => step.within.min(ADVISE_WITHIN),
        }
    }

    async fn act(&mut self, step: &Step, action: &Action) -> Result<(), RunError> {
        match action {
            Action::Apply { file, objects } => {
                for object in objects {
                    self.apply(step, file, object).await?;
                }
            }
            Action::Scale {
                namespace,
                deployment,
                replicas,
            } => {
                self.scale(step, namespace, deployment, *replicas).await?;
            }
            Action::Delete {
                kind,
                namespace,
                name,
            } => self.delete(step, kind, namespace, name).await?,
            Action::Pause(pause) => self.pass_time(step, *pause).await?,
            Action::Faults(faults) => {
                self.world.cloud.clear_faults();
                for fault in faults {
                    self.world.cloud.inject(fault.clone());
                }
            }
        }
        Ok(())
    }

    /// Sends a write, again while the API server cannot carry it out, and looks after the world meanwhile.
    async fn write<T>(
        &mut self,
        step: &Step,
        write: impl AsyncFn() -> Result<T, ApiError>,
    ) -> Result<Result<T, ApiError>, RunError> {
        let mut tries = 0;
        loop {
            let written = tokio::select! {
                biased;
                what = self.world.tend() => return Err(RunError::Stopped(what, step.name.clone())),
                written = write() => written,
            };
            match written {
                Err(error) if error.code >= 500 && tries < TRIES => {
                    tries += 1;
                    self.pass_time(step, Duration::from_secs(1)).await?;
                }
                written => return Ok(written),
            }
        }
    }

    async fn apply(&mut self, step: &Step, file: &str, object: &Value) -> Result<(), RunError> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let what = format!("{} {}", text("/kind"), text("/metadata/name"));
        let server = self.world.server.clone();
        let written = self
            .write(step, async || apply(&server, object.clone()).await)
            .await?;
        let written = written.map_err(|e| InputError::new(file, format!("{what}: {e}")))?;
        let file = file.rsplit('/').next().unwrap_or(file);
        for warning in written.warnings {
            self.note(format!("{file}: {what}: {warning}"));
        }
        Ok(())
    }

    async fn scale(
        &mut self,
        step: &Step,
        namespace: &str,
        name: &str,
        replicas: u32,
    ) -> Result<(), RunError> {
        let server = self.world.server.clone();
        let complain = |e: ApiError| {
            InputError::new(
                &format!("step {:?}", step.name),
                format!("scale.deployment {name}: {e}"),
            )
        };
        let deployment = server
            .get(Kind::Deployment, namespace, name)
            .map_err(complain)?;
        if self.raise_limits && replicas == self.scenario.pods {
            self.make_room(step, &deployment["spec"]["template"]["spec"], replicas)
                .await?;
        }
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let options = WriteOptions::default();
        let patched = self
            .write(step, async || {
                server
                    .patch(Kind::Deployment, namespace, name, &patch, &options)
                    .await
            })
            .await?;
        patched.map_err(complain)?;
        Ok(())
    }

    /// Raises the CPU and memory limits of the pool that takes such pods first, should they be too low for so many.
    async fn make_room(&mut self, step: &Step, pod: &Value, replicas: u32) -> Result<(), RunError> {
        let server = self.world.server.clone();
        let weight = |pool: &Value| pool["spec"]["weight"].as_i64().unwrap_or(0);
        let mut pools = server.list(Kind::NodePool, None, &Selectors::default()).1;
        pools.retain(|p| {
            p["spec"]["template"]["spec"]["taints"]
                .as_array()
                .is_none_or(Vec::is_empty)
        });
        pools.sort_by(|a, b| {
            weight(b)
                .cmp(&weight(a))
                .then_with(|| b.name().cmp(a.name()))
        });
        let Some(pool) = pools.first() else {
            return Ok(());
        };
        let each = requests(pod);
        let mut limits = serde_json::Map::new();
        for name in [CPU, MEMORY] {
            let limit = quantity(&pool["spec"]["limits"][name], name);
            let asked = each.get(name).saturating_mul(i64::from(replicas));
            // Nodes hold DaemonSets and leave corners free; a claim counts with its largest type until it is launched. A cheap node has
            // at most 8 GiB for each CPU.
            let asked = if name == MEMORY {
                asked.max(each.get(CPU).saturating_mul(8 << 30) / 1000 * i64::from(replicas))
            } else {
                asked
            };
            if limit.is_some_and(|l| l < asked.saturating_mul(6) / 5) {
                let raised = Resources::from_iter([(name, asked.saturating_mul(2))]);
                limits.extend(
                    raised
                        .to_quantities()
                        .into_iter()
                        .map(|(k, q)| (k, json!(q.to_string()))),
                );
            }
        }
        if limits.is_empty() {
            return Ok(());
        }
        let told: Vec<String> = limits
            .iter()
            .map(|(name, to)| {
                format!(
                    "{name} {} -> {}",
                    plain(&pool["spec"]["limits"][name]),
                    plain(to)
                )
            })
            .collect();
        self.note(format!(
            "NodePool {}: limits raised for {replicas} pods: {}",
            pool.name(),
            told.join(", ")
        ));
        let (name, patch) = (
            pool.name().to_owned(),
            Patch::Merge(json!({"spec": {"limits": limits}})),
        );
        let options = WriteOptions::default();
        let patched = self
            .write(step, async || {
                server
                    .patch(Kind::NodePool, "", &name, &patch, &options)
                    .await
            })
            .await?;
        patched.map_err(|e| InputError::new(&format!("NodePool {name}"), e))?;
        Ok(())
    }

    async fn delete(
        &mut self,
        step: &Step,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), RunError> {
        let complain = |e: &dyn std::fmt::Display| {
            InputError::new(
                &format!("step {:?}", step.name),
                format!("delete {kind} {name}: {e}"),
            )
        };
        let found = Kind::ALL
            .iter()
            .copied()
            .find(|k| k.info().kind.eq_ignore_ascii_case(kind));
        let kind = found.ok_or_else(|| complain(&"no such kind"))?;
        let namespace = if kind.info().namespaced {
            namespace
        } else {
            ""
        };
        let server = self.world.server.clone();
        let names: Vec<String> = match name {
            "*" => {
                let all = server
                    .list(
                        kind,
                        Some(namespace).filter(|n| !n.is_empty()),
                        &Selectors::default(),
                    )
                    .1;
                all.iter().map(|o| o.name().to_owned()).collect()
            }
            one => vec![one.to_owned()],
        };
        for name in names {
            let options = DeleteOptions::default();
            let deleted = self
                .write(step, async || {
                    server.delete(kind, namespace, &name, &options).await
                })
                .await?;
            deleted.map_err(|e| complain(&e))?;
        }
        Ok(())
    }

    async fn pass_time(&mut self, step: &Step, time: Duration) -> Result<(), RunError> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn(step, end).await?;
        }
        Ok(())
    }

    /// Waits for what the step waits for; false if it did not come in time.
    async fn wait(&mut self, step: &Step) -> Result<bool, RunError> {
        let end = Instant::now() + self.limit(step);
        loop {
            self.observer.catch_up();
            let standing = self.observer.standing();
            if self.is_met(step.wait, &standing) {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            self.turn(step, end.min(Instant::now() + LOOK)).await?;
        }
    }

    fn is_met(&mut self, wait: Wait, standing: &Standing) -> bool {
        let settled =
            standing.running == standing.wanted && standing.pending == 0 && standing.ending == 0;
        match wait {
            Wait::Nothing => true,
            Wait::Running => settled,
            Wait::Empty => {
                settled && standing.nodes == 0 && standing.claims == 0 && standing.instances == 0
            }
            Wait::Ready => {
                let (undecided, unready) = self.observer.readiness();
                if undecided == 0 {
                    unready
                        .into_iter()
                        .for_each(|why| self.note(format!("not ready: {why}")));
                }
                undecided == 0
            }
        }
    }

    /// Lets the world go on until something happens, a row is due, or `until`.
    async fn turn(&mut self, step: &Step, until: Instant) -> Result<(), RunError> {
        let due = self.observer.rows_due().map(|due| {
            let wait = (due - self.observer.now_s()).max(0.001);
            Instant::now() + Duration::from_secs_f64(wait)
        });
        tokio::select! {
            biased;
            what = self.world.tend() => return Err(RunError::Stopped(what, step.name.clone())),
            going = self.observer.changed() => {
                if !going {
                    return Err(RunError::Stopped("the API", step.name.clone()));
                }
            }
            () = tokio::time::sleep_until(due.map_or(until, |d| d.min(until))) => {}
        }
        self.flush(false);
        let standing = self.observer.standing();
        self.progress.standing(&standing);
        Ok(())
    }

    fn flush(&mut self, all: bool) {
        self.observer.catch_up();
        let first = self.observer.make_rows(all);
        self.tell_rows(first);
    }

    fn tell_rows(&mut self, first: usize) {
        for row in &self.observer.rows[first..] {
            self.progress.row(row);
        }
    }

    fn note(&mut self, text: String) {
        self.progress.note(&text);
        self.notes.push(text);
    }

    /// The least that the pods of now could cost on nodes of their own.
    fn lower_bound(&self) -> f64 {
        let Some(product) = self.world.product() else {
            return 0.0;
        };
        let snapshot = product.snapshot.borrow().clone();
        dollars(lower_bound(
            &snapshot,
            self.world.clock.now(),
            &self.world.options().settings.solver,
        ))
    }
}

/// The bound for an empty cluster that gets every pod of the snapshot which is to stay.
fn lower_bound(snapshot: &Snapshot, now: jiff::Timestamp, options: &scheduling::Options) -> f64 {
    let mut problem = Problem::from_snapshot(snapshot, now, options);
    problem.nodes.clear();
    problem.usage.clear();
    problem.nominations.clear();
    let counts = |owner: &Owner| !matches!(owner, Owner::DaemonSet(_) | Owner::Node);
    let stays = |p: &crate::cluster::Pod| !p.terminal && p.deletion.is_none() && counts(&p.owner);
    problem.pods = snapshot
        .pods
        .values()
        .filter(|p| stays(p))
        .cloned()
        .collect();
    scheduling::lower_bound_per_hour(&problem)
}

/// What the containers of a pod ask for.
fn requests(pod: &Value) -> Resources {
    let mut sum = Resources::default();
    for container in pod["containers"].as_array().into_iter().flatten() {
        let resources = &container["resources"];
        for name in [CPU, MEMORY] {
            let value = [&resources["requests"][name], &resources["limits"][name]];
            if let Some(amount) = value.into_iter().find_map(|v| quantity(v, name)) {
                sum.set(name, sum.get(name).saturating_add(amount));
            }
        }
    }
    sum
}

fn quantity(value: &Value, name: &str) -> Option<i64> {
    let quantity: Quantity = serde_json::from_value(value.clone()).ok()?;
    Some(Resources::from_quantities([(name, &quantity)], Rounding::Up).get(name))
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn seconds(s: f64) -> String {
    format!("{s:.0} s")
}
