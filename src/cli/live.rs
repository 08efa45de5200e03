//! How a lab run looks while it goes on: a table that is drawn anew on a terminal, plain lines elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use super::{
    print::Printer,
    table::{self, Side},
};
use crate::{
    clock::Stopwatch,
    lab::{observe::Standing, run::Progress, timeline::Row},
};

/// The table is drawn at most this often.
const FRAME: Duration = Duration::from_millis(80);

/// Rows of the timeline that the table shows.
const ROWS: usize = 12;

/// Columns of the timeline.
pub(super) const COLUMNS: [(&str, Side); 5] = [
    ("time", Side::Right),
    ("what happened", Side::Left),
    ("nodes", Side::Right),
    ("pending", Side::Right),
    ("$/hour", Side::Right),
];

/// A row of the timeline as cells.
pub(super) fn cells(row: &Row) -> Vec<String> {
    vec![
        clock(row.at_s),
        row.what.clone(),
        row.nodes.to_string(),
        row.pending.to_string(),
        format!("{:.3}", row.price_per_hour),
    ]
}

/// Minutes, seconds and tenths, hours when there are any.
pub(super) fn clock(seconds: f64) -> String {
    let tenths = (seconds.max(0.0) * 10.0).floor() as u64;
    let (minutes, tenths) = (tenths / 600, tenths % 600);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let rest = format!("{minutes:02}:{:02}.{}", tenths / 10, tenths % 10);
    if hours == 0 {
        rest
    } else {
        format!("{hours}:{rest}")
    }
}

/// Plain lines.
pub(super) struct Lines(pub(super) Printer);

impl Progress for Lines {
    fn step(&mut self, _: usize, _: usize, _: &str) {}

    fn note(&mut self, text: &str) {
        self.0.line(format_args!("         note: {text}"));
    }

    fn row(&mut self, row: &Row) {
        self.0.line(format_args!(
            "{:>8}  {:<60}  nodes {:>4}  pending {:>5}  $/hour {:>8.3}",
            clock(row.at_s),
            row.what,
            row.nodes,
            row.pending,
            row.price_per_hour
        ));
    }

    fn standing(&mut self, _: &Standing) {}
}

/// The table on a terminal.
pub(super) struct Live {
    printer: Printer,
    title: String,
    step: String,
    rows: VecDeque<Row>,
    standing: Standing,
    drawn: usize,
    since: Option<Stopwatch>,
}

impl Live {
    pub(super) fn new(printer: Printer, title: String) -> Self {
        Self {
            printer,
            title,
            step: String::new(),
            rows: VecDeque::new(),
            standing: Standing::default(),
            drawn: 0,
            since: None,
        }
    }

    /// Takes the table off the screen.
    pub(super) fn clear(&mut self) {
        if self.drawn > 0 {
            self.printer.text(&format!("\x1b[{}A\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }

    fn draw(&mut self, now: bool) {
        if !now && self.since.as_ref().is_some_and(|s| s.elapsed() < FRAME) {
            return;
        }
        self.since = Some(Stopwatch::start());
        let s = &self.standing;
        let mut lines = vec![
            self.title.clone(),
            format!("{}  {}", clock(s.at_s), self.step),
            format!(
                "pods {} wanted, {} running, {} pending   nodes {}   {:.3} $/hour",
                s.wanted, s.running, s.pending, s.nodes, s.price_per_hour
            ),
            String::new(),
        ];
        let rows: Vec<Vec<String>> = self.rows.iter().map(cells).collect();
        lines.extend(table::lines(&COLUMNS, &rows));
        self.clear();
        // Long lines are cut by the terminal, so that the height stays known.
        let text = format!("\x1b[?7l{}\n\x1b[?7h", lines.join("\n"));
        self.printer.text(&text);
        self.drawn = lines.len();
    }
}

impl Progress for Live {
    fn step(&mut self, number: usize, of: usize, name: &str) {
        self.step = format!("step {number} of {of}: {name}");
        self.draw(true);
    }

    fn note(&mut self, text: &str) {
        self.clear();
        self.printer.line(format_args!("note: {text}"));
        self.draw(true);
    }

    fn row(&mut self, row: &Row) {
        self.rows.push_back(row.clone());
        while self.rows.len() > ROWS {
            self.rows.pop_front();
        }
        self.draw(false);
    }

    fn standing(&mut self, standing: &Standing) {
        self.standing = *standing;
        self.draw(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_like_a_stopwatch() {
        let times = [0.0, 9.96, 61.25, 3600.0 * 2.0 + 5.0].map(clock);
        assert_eq!(times, ["00:00.0", "00:09.9", "01:01.2", "2:00:05.0"]);
    }
}
