//! What a run came to.

use serde::Serialize;

use super::timeline::Row;

/// The report of a run. Its JSON is the same for the same seed as long as `wall` is left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// Name of the scenario.
    pub scenario: String,
    /// Kubernetes minor version.
    pub kubernetes_version: String,
    /// Region of the catalogue.
    pub region: String,
    /// Where spot prices come from; every price that is shown may contain some.
    pub spot_prices: &'static str,
    /// Size of the big step.
    pub pods: u32,
    /// The steps.
    pub steps: Vec<StepReport>,
    /// Instances, as the simulated cloud counts them.
    pub instances: Instances,
    /// Nodes that the API still has.
    pub nodes_left_over: usize,
    /// NodeClaims that the API still has.
    pub claims_left_over: usize,
    /// Evictions that the API granted.
    pub evictions: u64,
    /// What the instances cost in all, USD.
    pub cost: f64,
    /// Warnings of the API and other remarks.
    pub notes: Vec<String>,
    /// What happened when.
    pub timeline: Vec<Row>,
    /// Figures of the machine that ran this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall: Option<Wall>,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepReport {
    /// Its name.
    pub name: String,
    /// When it began, seconds since the start.
    pub at_s: f64,
    /// How long it took.
    pub took_s: f64,
    /// Pods asked for at its end, DaemonSets' left out.
    pub wanted: usize,
    /// Pods that ran at its end.
    pub running: usize,
    /// Pods that waited at its end.
    pub pending: usize,
    /// From its beginning to the first launch call of the cloud.
    pub first_launch_s: Option<f64>,
    /// From its beginning until the last pod began to run.
    pub last_running_s: Option<f64>,
    /// Nodes at its end.
    pub nodes: usize,
    /// What the instances cost at its end, USD.
    pub price_per_hour: f64,
    /// What the pods would cost at least, USD.
    pub lower_bound_per_hour: f64,
    /// Whether what it waited for came in time.
    pub reached: bool,
}

/// Instances, as the simulated cloud counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Instances {
    /// Made.
    pub launched: u64,
    /// Gone.
    pub terminated: u64,
    /// Not gone.
    pub left_over: u64,
}

/// Figures of the machine that ran the lab.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Wall {
    /// Time that the run took.
    pub seconds: f64,
    /// Solver runs.
    pub solves: u64,
    /// Time spent in the solver.
    pub solver_seconds: f64,
    /// The solver's share of the time.
    pub solver_share: f64,
    /// Most memory in use at any time; zero where the system does not tell.
    pub peak_memory_mib: f64,
}

impl Report {
    /// Whether every step had all its pods running and nothing is left behind.
    pub fn is_good(&self) -> bool {
        self.problems().is_empty()
    }

    /// What is not as it should be.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for step in &self.steps {
            if step.running < step.wanted || step.pending > 0 {
                problems.push(format!(
                    "step {:?}: {} of {} pods run, {} pending",
                    step.name, step.running, step.wanted, step.pending
                ));
            } else if !step.reached {
                problems.push(format!(
                    "step {:?} did not come to its end in time",
                    step.name
                ));
            }
        }
        for (count, what) in [
            (self.instances.left_over, "instance"),
            (self.claims_left_over as u64, "NodeClaim"),
            (self.nodes_left_over as u64, "node"),
        ] {
            match count {
                0 => {}
                1 => problems.push(format!("1 {what} is left over")),
                _ => problems.push(format!("{count} {what}s are left over")),
            }
        }
        problems
    }
}
