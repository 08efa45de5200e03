//! Cron schedules of disruption budgets: Go's standard five-field syntax, always in UTC.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;

/// Why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseScheduleError {
    /// Not five fields.
    #[error(
        "schedule {0:?} does not have five fields (minute, hour, day of month, month, day of week)"
    )]
    Fields(String),
    /// A name beginning with `@` that is none of the known ones.
    #[error(
        "schedule {0:?} is unknown, use @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually"
    )]
    Name(String),
    /// One field cannot be read.
    #[error("{field} {text:?} of the schedule {problem}")]
    Field {
        /// Which field, in words.
        field: &'static str,
        /// The field's text.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A parsed schedule: the minutes of UTC time at which it fires.
///
/// When both day fields are restricted, a day that matches either one counts; a field that is `*`, `?` or `*/1`
/// does not restrict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    either_day: bool,
}

struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MINUTE: Field = Field {
    name: "minute",
    min: 0,
    max: 59,
    names: &[],
};
const HOUR: Field = Field {
    name: "hour",
    min: 0,
    max: 23,
    names: &[],
};
const DAY: Field = Field {
    name: "day of month",
    min: 1,
    max: 31,
    names: &[],
};
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
const WEEKDAY: Field = Field {
    name: "day of week",
    min: 0,
    max: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

/// A schedule that does not fire within this many calendar years never does, as far as budgets care.
const YEARS_AHEAD: i16 = 5;

impl Schedule {
    /// Reads five cron fields or one of the `@` names.
    pub fn parse(text: &str) -> Result<Self, ParseScheduleError> {
        let trimmed = text.trim();
        let spelt_out = match trimmed {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ if trimmed.starts_with('@') => return Err(ParseScheduleError::Name(text.to_owned())),
            _ => trimmed,
        };
        let fields: Vec<&str> = spelt_out.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(ParseScheduleError::Fields(text.to_owned()));
        };
        let (days, any_day) = DAY.parse(day)?;
        let (weekdays, any_weekday) = WEEKDAY.parse(weekday)?;
        Ok(Self {
            minutes: MINUTE.parse(minute)?.0,
            hours: HOUR.parse(hour)?.0,
            days,
            months: MONTH.parse(month)?.0,
            weekdays,
            either_day: !any_day && !any_weekday,
        })
    }

    /// The first firing strictly after `time`; none if there is none in the next five years.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let second = time.as_second() - i64::from(time.subsec_nanosecond() < 0);
        let start =
            Timestamp::from_second(second.div_euclid(60).checked_add(1)?.checked_mul(60)?).ok()?;
        let start = Offset::UTC.to_datetime(start);
        let mut date = start.date();
        let (mut hour, mut minute) = (start.hour() as u32, start.minute() as u32);
        while date.year() <= start.year().saturating_add(YEARS_AHEAD) {
            if !has(self.months, date.month() as u32) {
                date = date.last_of_month().tomorrow().ok()?;
                (hour, minute) = (0, 0);
                continue;
            }
            if self.fires_on(date)
                && let Some((hour, minute)) = self.first_at_or_after(hour, minute)
            {
                let at: DateTime = date.at(hour as i8, minute as i8, 0, 0);
                return Offset::UTC.to_timestamp(at).ok();
            }
            date = date.tomorrow().ok()?;
            (hour, minute) = (0, 0);
        }
        None
    }

    fn fires_on(&self, date: Date) -> bool {
        let day = has(self.days, date.day() as u32);
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset() as u32);
        if self.either_day {
            day || weekday
        } else {
            day && weekday
        }
    }

    fn first_at_or_after(&self, hour: u32, minute: u32) -> Option<(u32, u32)> {
        if has(self.hours, hour)
            && let Some(minute) = first_set(self.minutes, minute)
        {
            return Some((hour, minute));
        }
        Some((
            first_set(self.hours, hour + 1)?,
            first_set(self.minutes, 0)?,
        ))
    }
}

impl FromStr for Schedule {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

fn has(bits: u64, at: u32) -> bool {
    bits >> at & 1 == 1
}

fn first_set(bits: u64, from: u32) -> Option<u32> {
    let left = bits >> from << from;
    (left != 0).then(|| left.trailing_zeros())
}

impl Field {
    /// The values as bits, and whether the field is unrestricted.
    fn parse(&self, text: &str) -> Result<(u64, bool), ParseScheduleError> {
        let (mut bits, mut any) = (0, false);
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (more, unrestricted) = self
                .parse_range(part)
                .map_err(|problem| self.error(text, problem))?;
            bits |= more;
            any |= unrestricted;
        }
        if bits == 0 {
            return Err(self.error(text, "lists no value".to_owned()));
        }
        Ok((bits, any))
    }

    fn error(&self, text: &str, problem: String) -> ParseScheduleError {
        ParseScheduleError::Field {
            field: self.name,
            text: text.to_owned(),
            problem,
        }
    }

    fn parse_range(&self, text: &str) -> Result<(u64, bool), String> {
        let (range, step_text) = match text.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (text, None),
        };
        let mut bounds = range.split('-');
        let low_text = bounds.next().unwrap_or_default();
        let (low, mut high, mut any) = if low_text == "*" || low_text == "?" {
            (self.min, self.max, true)
        } else {
            let low = self.number_or_name(low_text)?;
            let high = match bounds.next() {
                Some(high) => self.number_or_name(high)?,
                None => low,
            };
            if bounds.next().is_some() {
                return Err("has more than one hyphen in a range".to_owned());
            }
            (low, high, false)
        };
        let step = match step_text {
            Some(step) => number(step)?,
            None => 1,
        };
        // `5/15` starts at 5 and goes to the end.
        if step_text.is_some() && !range.contains('-') {
            high = self.max;
        }
        if step > 1 {
            any = false;
        }
        let (min, max) = (self.min, self.max);
        if low < min || high > max {
            return Err(format!("is outside {min} to {max}"));
        }
        if low > high {
            return Err("has a range that ends before it begins".to_owned());
        }
        if step == 0 {
            return Err("has a step of zero".to_owned());
        }
        let bits = (low..=high)
            .step_by(step as usize)
            .fold(0, |bits, at| bits | 1 << at);
        Ok((bits, any))
    }

    fn number_or_name(&self, text: &str) -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        match self.names.iter().position(|name| *name == lower) {
            Some(at) => Ok(self.min + at as u32),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("has {text:?} where a number must stand"))
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use proptest::prelude::*;

    use super::*;

    fn ts(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn next(schedule: &str, after: &str) -> Option<String> {
        Schedule::parse(schedule)
            .unwrap()
            .next_after(ts(after))
            .map(|t| t.to_string())
    }

    /// 2025-01-01 was a Wednesday; firings are counted off a calendar.
    #[test]
    fn fires_next() {
        for (schedule, after, expected) in [
            ("* * * * *", "2025-01-01T00:00:00Z", "2025-01-01T00:01:00Z"),
            (
                "* * * * *",
                "2025-01-01T00:00:59.999Z",
                "2025-01-01T00:01:00Z",
            ),
            (
                "0 9 * * mon-fri",
                "2025-01-03T09:00:00Z",
                "2025-01-06T09:00:00Z",
            ),
            (
                "0 9 * * MON-FRI",
                "2025-01-03T08:59:59Z",
                "2025-01-03T09:00:00Z",
            ),
            (
                "5/15 * * * *",
                "2025-01-01T00:05:00Z",
                "2025-01-01T00:20:00Z",
            ),
            (
                "5/15 * * * *",
                "2025-01-01T00:50:00Z",
                "2025-01-01T01:05:00Z",
            ),
            (
                "10-20/5 * ? * ?",
                "2025-01-01T00:20:00Z",
                "2025-01-01T01:10:00Z",
            ),
            (
                "0 0 13 * fri",
                "2025-01-01T00:00:00Z",
                "2025-01-03T00:00:00Z",
            ),
            (
                "0 0 13 * fri",
                "2025-01-10T00:00:00Z",
                "2025-01-13T00:00:00Z",
            ),
            (
                "0 0 */2 * fri",
                "2025-01-01T00:00:00Z",
                "2025-01-03T00:00:00Z",
            ),
            (
                "0 0 13 * */1",
                "2025-01-01T00:00:00Z",
                "2025-01-13T00:00:00Z",
            ),
            (
                "0 0 13 * */2",
                "2025-01-01T00:00:00Z",
                "2025-01-02T00:00:00Z",
            ),
            ("0 0 29 2 *", "2025-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            (
                "0 0 1 jan,JUL *",
                "2025-01-01T00:00:00Z",
                "2025-07-01T00:00:00Z",
            ),
            (
                "59 23 31 12 *",
                "2025-12-31T23:59:00Z",
                "2026-12-31T23:59:00Z",
            ),
            ("@yearly", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("@annually", "2025-06-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("@monthly", "2025-01-01T00:00:00Z", "2025-02-01T00:00:00Z"),
            ("@weekly", "2025-01-01T00:00:00Z", "2025-01-05T00:00:00Z"),
            ("@daily", "2025-01-01T00:00:00Z", "2025-01-02T00:00:00Z"),
            ("@midnight", "2025-01-01T12:00:00Z", "2025-01-02T00:00:00Z"),
            (" @hourly ", "2025-01-01T00:30:00Z", "2025-01-01T01:00:00Z"),
            (
                "0 0 * * *",
                "1969-12-30T23:59:59.5Z",
                "1969-12-31T00:00:00Z",
            ),
            ("0 0 * * *", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(
                next(schedule, after).as_deref(),
                Some(expected),
                "{schedule} after {after}"
            );
        }
    }

    #[test]
    fn some_never_fire() {
        assert_eq!(next("0 0 30 2 *", "2025-01-01T00:00:00Z"), None);
        // 2100 is no leap year: 2096 to 2104 is more than five years.
        assert_eq!(next("0 0 29 2 *", "2096-03-01T00:00:00Z"), None);
        assert_eq!(
            Schedule::parse("* * * * *")
                .unwrap()
                .next_after(Timestamp::MAX),
            None
        );
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "@every 5m",
            "@reboot",
            "@Daily",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 *",
            "* * * * 7",
            "* * * * tue-mon",
            "1-2-3 * * * *",
            "*/0 * * * *",
            "1/2/3 * * * *",
            "a * * * *",
            "-1 * * * *",
            ", * * * *",
            "TZ=UTC * * * * *",
            "* * * mon *",
            "5- * * * *",
            "/5 * * * *",
        ] {
            assert!(Schedule::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(
            Schedule::parse("* 24 * * *").unwrap_err().to_string(),
            "hour \"24\" of the schedule is outside 0 to 23"
        );
    }

    fn field(min: u32, max: u32) -> impl Strategy<Value = String> {
        let one = prop_oneof![
            Just("*".to_owned()),
            (2u32..8).prop_map(|s| format!("*/{s}")),
            (min..=max).prop_map(|n| n.to_string()),
            (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
            (min..=max, 1u32..8).prop_map(|(a, s)| format!("{a}/{s}")),
        ];
        prop::collection::vec(one, 1..3).prop_map(|parts| parts.join(","))
    }

    /// The values of a field listed one by one, by another road than the parser's; none for an unrestricted field.
    fn listed(text: &str, min: u32, max: u32) -> Option<Vec<u32>> {
        let mut values = Vec::new();
        for part in text.split(',') {
            let (range, step) = part.split_once('/').unwrap_or((part, ""));
            if range == "*" && step.is_empty() {
                return None;
            }
            let ends: Vec<u32> = range.split('-').filter_map(|n| n.parse().ok()).collect();
            let low = ends.first().copied().unwrap_or(min);
            let high = if step.is_empty() || ends.len() == 2 {
                *ends.last().unwrap()
            } else {
                max
            };
            values
                .extend((low..=high).filter(|n| (n - low) % step.parse::<u32>().unwrap_or(1) == 0));
        }
        Some(values)
    }

    fn stepped(fields: &[String; 5], mut time: Timestamp, limit: usize) -> Option<Timestamp> {
        let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
        let lists: Vec<_> = fields
            .iter()
            .zip(bounds)
            .map(|(f, (min, max))| listed(f, min, max))
            .collect();
        for _ in 0..limit {
            time = time.checked_add(1.minute()).unwrap();
            let at = Offset::UTC.to_datetime(time);
            let weekday = at.weekday().to_sunday_zero_offset();
            let values = [at.minute(), at.hour(), at.day(), at.month(), weekday];
            let hit = |i: usize| {
                lists[i]
                    .as_ref()
                    .is_none_or(|l: &Vec<u32>| l.contains(&(values[i] as u32)))
            };
            let either = lists[2].is_some() && lists[4].is_some();
            let day = if either {
                hit(2) || hit(4)
            } else {
                hit(2) && hit(4)
            };
            if hit(0) && hit(1) && day && hit(3) {
                return Some(time);
            }
        }
        None
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn next_agrees_with_minute_steps(
            minute in field(0, 59), hour in field(0, 23), day in field(1, 31), month in field(1, 12), weekday in field(0, 6),
            start in 28_000_000i64..30_000_000,
        ) {
            let fields = [minute, hour, day, month, weekday];
            let schedule = Schedule::parse(&fields.join(" ")).unwrap();
            let start = Timestamp::from_second(start * 60).unwrap();
            let limit = 20_000;
            let next = schedule.next_after(start);
            prop_assert!(next.is_none_or(|next| next > start));
            let within = next.filter(|next| next.duration_since(start).as_mins() <= limit as i64);
            prop_assert_eq!(within, stepped(&fields, start, limit));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-*?/,0-9a-z@ ]{0,20}") {
            if let Ok(schedule) = Schedule::parse(&text) {
                let start = ts("2025-01-01T00:00:00Z");
                prop_assert!(schedule.next_after(start).is_none_or(|next| next > start));
            }
        }
    }
}
