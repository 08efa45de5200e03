//! `tenon lab`.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::{
    Failure,
    live::{self, Lines, Live},
    print::Printer,
    table::{self, Side},
};
use crate::{
    clock::{Clock, Stopwatch},
    config::{Mode, Settings},
    lab::{
        manifests::{Files, InputError},
        run::{self, Progress, RunError},
        scenario::{MOST, Scenario},
        seed::Seed,
        summary::{Report, Wall},
        world::{Options, Time, World},
    },
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Decides names, prices and delays: the same seed gives the same history. Chosen and told when absent.
    #[arg(long)]
    seed: Option<u64>,
    /// A scenario to run instead of the built-in one (docs/lab.md describes the format).
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Size of the scenario's big step; limits of NodePools that are too low for it are raised, and it says so.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST)))]
    pods: Option<u32>,
    /// How to show the result; with json, progress goes to standard error.
    #[arg(short = 'o', long, value_enum, default_value = "text")]
    output: Output,
    /// Let time pass with the wall clock instead of as fast as it can.
    #[arg(long)]
    real_time: bool,
    /// Kubernetes minor version of the cluster.
    #[arg(long, value_name = "VERSION", default_value = "1.32", value_parser = minor_version)]
    kubernetes_version: String,
    /// Whether the product acts, or only says what it would do.
    #[arg(long, value_enum, default_value = "act")]
    mode: Mode,
    /// Show the product's log on standard error, filtered as by RUST_LOG, such as `info` or `tenon=debug`.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables for people.
    Text,
    /// One JSON document.
    Json,
}

fn minor_version(text: &str) -> Result<String, String> {
    let fits = |minor: &str| {
        !minor.is_empty() && minor.len() <= 3 && minor.bytes().all(|b| b.is_ascii_digit())
    };
    match text.strip_prefix("1.") {
        Some(minor) if fits(minor) => Ok(text.to_owned()),
        _ => Err("a minor version such as 1.32".to_owned()),
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let scenario = read_scenario(args).map_err(|e| Failure::Input(e.to_string()))?;
    let time = if args.real_time {
        Time::Real
    } else {
        Time::Virtual
    };
    let seed = args.seed.unwrap_or_else(chosen_seed);
    let options = Options {
        seed,
        kubernetes_version: args.kubernetes_version.clone(),
        settings: Settings {
            mode: args.mode,
            ..Settings::default()
        },
    };
    let title = title(args, &scenario, seed);
    let mut printer = match args.output {
        Output::Text => Printer::stdout(),
        Output::Json => Printer::stderr(),
    };
    let mut ran = if printer.is_terminal() && args.log.is_none() {
        let mut live = Live::new(printer, title.clone());
        let ran = in_time(args, time, options, &scenario, &mut live);
        live.clear();
        ran
    } else {
        printer.line(&title);
        in_time(args, time, options, &scenario, &mut Lines(printer))
    }?;
    match args.output {
        Output::Json => {
            if args.seed.is_some() {
                ran.wall = None;
            }
            let text =
                serde_json::to_string_pretty(&ran).map_err(|e| Failure::Result(e.to_string()))?;
            Printer::stdout().line(text);
        }
        Output::Text => show(&title, &ran),
    }
    match ran.problems() {
        problems if problems.is_empty() => Ok(()),
        problems => Err(Failure::Result(problems.join("; "))),
    }
}

fn read_scenario(args: &Args) -> Result<Scenario, InputError> {
    let Some(path) = &args.scenario else {
        return Scenario::built_in(args.pods);
    };
    // What the file names is relative to the file.
    Scenario::read(
        &Files::Disk(PathBuf::new()),
        &path.display().to_string(),
        args.pods,
    )
}

/// Six digits: enough to differ, few enough to type.
fn chosen_seed() -> u64 {
    let now = Clock::system().now().as_nanosecond();
    Seed::new(now as u64).draw("seed") % 1_000_000
}

fn title(args: &Args, scenario: &Scenario, seed: u64) -> String {
    let time = if args.real_time { "real" } else { "virtual" };
    let mode = if args.mode == Mode::Advise {
        ", advise only"
    } else {
        ""
    };
    format!(
        "tenon lab: scenario {}, {} pods, seed {seed}, Kubernetes {}, {time} time{mode}; spot prices are simulated",
        scenario.name, scenario.pods, args.kubernetes_version
    )
}

fn in_time(
    args: &Args,
    time: Time,
    options: Options,
    scenario: &Scenario,
    progress: &mut dyn Progress,
) -> Result<Report, Failure> {
    let stopwatch = Stopwatch::start();
    let ran = time.block_on(async {
        let clock = time.clock();
        if let Some(filter) = &args.log {
            log(filter, clock.clone())?;
        }
        let mut world = World::start(options, clock)
            .await
            .map_err(|e| Failure::Input(e.to_string()))?;
        world.start_product(None);
        let ran = run::run(&mut world, scenario, args.pods.is_some(), progress).await;
        let stats = world.product().map(|p| p.stats.clone());
        ran.map(|report| (report, stats)).map_err(|e| match e {
            RunError::Input(e) => Failure::Input(e.to_string()),
            RunError::Stopped(..) => Failure::Result(e.to_string()),
        })
    });
    let (mut report, stats) = ran.map_err(|e| Failure::Result(format!("no runtime: {e}")))??;
    let seconds = stopwatch.elapsed().as_secs_f64();
    let load = |n: &std::sync::atomic::AtomicU64| n.load(std::sync::atomic::Ordering::Relaxed);
    let (solves, micros) = stats.map_or((0, 0), |s| (load(&s.solves), load(&s.solve_micros)));
    let solver_seconds = micros as f64 / 1e6;
    report.wall = Some(Wall {
        seconds,
        solves,
        solver_seconds,
        solver_share: if seconds > 0.0 {
            solver_seconds / seconds
        } else {
            0.0
        },
        peak_memory_mib: peak_memory_mib(),
    });
    Ok(report)
}

/// Log lines on standard error with the lab's time.
fn log(filter: &str, clock: Clock) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|e| Failure::Input(format!("--log {filter}: {e}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_timer(LabTime(clock))
        .try_init()
        .map_err(|e| Failure::Result(format!("no log: {e}")))
}

struct LabTime(Clock);

impl tracing_subscriber::fmt::time::FormatTime for LabTime {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        write!(w, "{:.3}", self.0.now())
    }
}

/// Most memory that the process has had, as Linux tells it.
fn peak_memory_mib() -> f64 {
    let status = std::fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn show(title: &str, report: &Report) {
    let mut printer = Printer::stdout();
    let mut section = |name: &str, lines: Vec<String>| {
        printer.line("");
        printer.line(name);
        lines.into_iter().for_each(|l| printer.line(l));
    };
    let rows: Vec<Vec<String>> = report.timeline.iter().map(live::cells).collect();
    section("Timeline", table::lines(&live::COLUMNS, &rows));
    section("Steps", steps(report));
    if !report.notes.is_empty() {
        section(
            "Notes",
            report.notes.iter().map(|n| format!("- {n}")).collect(),
        );
    }
    let i = &report.instances;
    let mut lines = vec![
        format!(
            "instances  {} launched, {} terminated, {} left over; {} evictions; {:.2} $ in all",
            i.launched, i.terminated, i.left_over, report.evictions, report.cost
        ),
        "prices     on-demand from the catalogue; spot prices are simulated. The lower bound ignores that nodes come whole.".to_owned(),
    ];
    if let Some(wall) = &report.wall {
        lines.push(format!(
            "machine    {:.2} s, solver {:.2} s ({:.0} %) in {} runs, peak memory {:.0} MiB",
            wall.seconds,
            wall.solver_seconds,
            wall.solver_share * 100.0,
            wall.solves,
            wall.peak_memory_mib
        ));
    }
    let result = match report.is_good() {
        true => "every step had all its pods running, and nothing is left behind",
        false => "not as it should be; see the last line",
    };
    lines.push(format!("result     {result}"));
    section(title, lines);
}

fn steps(report: &Report) -> Vec<String> {
    let columns = [
        ("step", Side::Left),
        ("begins", Side::Right),
        ("takes", Side::Right),
        ("wanted", Side::Right),
        ("running", Side::Right),
        ("pending", Side::Right),
        ("first launch", Side::Right),
        ("last running", Side::Right),
        ("nodes", Side::Right),
        ("$/hour", Side::Right),
        ("lower bound", Side::Right),
        ("above it", Side::Right),
    ];
    let after = |s: Option<f64>| s.map_or_else(|| "-".to_owned(), |s| format!("{s:.2} s"));
    let rows: Vec<Vec<String>> = report
        .steps
        .iter()
        .map(|s| {
            let above = match s.lower_bound_per_hour {
                bound if bound > 0.0 => {
                    format!("{:.1} %", (s.price_per_hour / bound - 1.0) * 100.0)
                }
                _ => "-".to_owned(),
            };
            vec![
                s.name.clone(),
                live::clock(s.at_s),
                live::clock(s.took_s),
                s.wanted.to_string(),
                s.running.to_string(),
                s.pending.to_string(),
                after(s.first_launch_s),
                after(s.last_running_s),
                s.nodes.to_string(),
                format!("{:.3}", s.price_per_hour),
                format!("{:.3}", s.lower_bound_per_hour),
                above,
            ]
        })
        .collect();
    table::lines(&columns, &rows)
}
