//! Durations as Go reads and prints them.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// Nothing was written.
    #[error("duration is empty, write a number with a unit such as 30s, 10m or 720h")]
    Empty,
    /// A number is missing where one must stand.
    #[error("duration {0:?} has no number before a unit")]
    NoNumber(String),
    /// A number without a unit.
    #[error("duration {0:?} has a number without a unit, use h, m or s")]
    NoUnit(String),
    /// A unit that Go does not know.
    #[error("duration {text:?} has unknown unit {unit:?}, use h, m or s")]
    Unit {
        /// The whole text.
        text: String,
        /// The letters that stand where a unit must be.
        unit: String,
    },
    /// More than about 292 years.
    #[error("duration {0:?} is too long, the most is about 292 years")]
    TooLong(String),
}

/// A Go `time.Duration`: nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub i64);

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

impl GoDuration {
    /// A duration of so many seconds, saturating.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND as i64))
    }

    /// As jiff's duration.
    pub const fn to_signed(self) -> SignedDuration {
        SignedDuration::from_nanos(self.0)
    }
}

impl From<GoDuration> for SignedDuration {
    fn from(duration: GoDuration) -> Self {
        duration.to_signed()
    }
}

impl From<SignedDuration> for GoDuration {
    /// Saturates where nanoseconds do not fit 64 bits.
    fn from(duration: SignedDuration) -> Self {
        Self(
            i64::try_from(duration.as_nanos()).unwrap_or(if duration.is_negative() {
                i64::MIN
            } else {
                i64::MAX
            }),
        )
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let negative = text.starts_with('-');
        let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(if text.is_empty() {
                ParseDurationError::Empty
            } else {
                ParseDurationError::NoNumber(text.into())
            });
        }
        let too_long = || ParseDurationError::TooLong(text.to_owned());
        // Magnitudes up to 2^63 are legal, for the most negative duration.
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let digits = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
            let (whole, after) = rest.split_at(digits(rest));
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => after.split_at(digits(after)),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return Err(ParseDurationError::NoNumber(text.to_owned()));
            }
            let (unit, after) = after.split_at(
                after
                    .find(|c: char| c == '.' || c.is_ascii_digit())
                    .unwrap_or(after.len()),
            );
            let nanos = match unit {
                "ns" => 1,
                "us" | "µs" | "μs" => 1000,
                "ms" => MILLISECOND,
                "s" => SECOND,
                "m" => MINUTE,
                "h" => HOUR,
                "" => return Err(ParseDurationError::NoUnit(text.to_owned())),
                _ => {
                    return Err(ParseDurationError::Unit {
                        text: text.to_owned(),
                        unit: unit.to_owned(),
                    });
                }
            };
            let whole: u64 = if whole.is_empty() {
                0
            } else {
                whole.parse().map_err(|_| too_long())?
            };
            // Digits past the 18th cannot change a nanosecond: the largest unit is below 10^13.
            let fraction = &fraction[..fraction.len().min(18)];
            let part: u128 = if fraction.is_empty() {
                0
            } else {
                fraction.parse().map_err(|_| too_long())?
            };
            let part = part * u128::from(nanos) / 10u128.pow(fraction.len() as u32);
            let sum = u128::from(whole) * u128::from(nanos) + part + u128::from(total);
            total = u64::try_from(sum)
                .ok()
                .filter(|sum| *sum <= 1 << 63)
                .ok_or_else(too_long)?;
            rest = after;
        }
        if negative {
            return Ok(Self(0i64.wrapping_sub_unsigned(total)));
        }
        i64::try_from(total).map(Self).map_err(|_| too_long())
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let fractional = |f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64, name: &str| {
            let places = unit.ilog10() as usize;
            let fraction = format!("{:0places$}", nanos % unit);
            let fraction = fraction.trim_end_matches('0');
            let dot = if fraction.is_empty() { "" } else { "." };
            write!(f, "{}{dot}{fraction}{name}", nanos / unit)
        };
        match total {
            0 => f.write_str("0s"),
            1..1000 => write!(f, "{total}ns"),
            1000..MILLISECOND => fractional(f, total, 1000, "µs"),
            MILLISECOND..SECOND => fractional(f, total, MILLISECOND, "ms"),
            _ => {
                if total >= HOUR {
                    write!(f, "{}h", total / HOUR)?;
                }
                if total >= MINUTE {
                    write!(f, "{}m", total % HOUR / MINUTE)?;
                }
                fractional(f, total % MINUTE, SECOND, "s")
            }
        }
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GoDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

/// A duration or `Never`, which keeps the text it was written in.
///
/// Any text deserialises, so that an object with a bad duration can still be read and told off by path. Until it
/// is mended, a text that is no duration counts as `Never`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NillableDuration {
    raw: String,
    value: Option<GoDuration>,
}

/// How "no duration" is written.
pub const NEVER: &str = "Never";

impl NillableDuration {
    /// No duration at all.
    pub fn never() -> Self {
        Self::from_raw(NEVER)
    }

    /// A duration as the user wrote it.
    pub fn from_raw(raw: impl Into<String>) -> Self {
        let raw = raw.into();
        let value = raw.parse().ok();
        Self { raw, value }
    }

    /// The duration; none for `Never` and for a text that is no duration.
    pub fn get(&self) -> Option<GoDuration> {
        self.value
    }

    /// The text as written.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// What is wrong with the text, if anything is.
    pub fn check(&self) -> Result<(), ParseDurationError> {
        if self.raw == NEVER {
            Ok(())
        } else {
            self.raw.parse::<GoDuration>().map(|_| ())
        }
    }
}

impl From<GoDuration> for NillableDuration {
    fn from(duration: GoDuration) -> Self {
        Self {
            raw: duration.to_string(),
            value: Some(duration),
        }
    }
}

impl fmt::Display for NillableDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.raw)
    }
}

impl Serialize for NillableDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.raw)
    }
}

impl<'de> Deserialize<'de> for NillableDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from_raw)
    }
}

impl JsonSchema for NillableDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NillableDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn d(text: &str) -> GoDuration {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    /// Nanoseconds and Go's print, by Go's documented rules.
    #[test]
    fn reads_and_prints_as_go() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("-0", 0, "0s"),
            ("720h", 720 * 3600 * 1_000_000_000, "720h0m0s"),
            ("1h30m", 5400 * 1_000_000_000, "1h30m0s"),
            ("1.5h", 5400 * 1_000_000_000, "1h30m0s"),
            ("1h0m0s", 3600 * 1_000_000_000, "1h0m0s"),
            ("10s1h", 3610 * 1_000_000_000, "1h0m10s"),
            ("90s", 90 * 1_000_000_000, "1m30s"),
            ("500ms", 500_000_000, "500ms"),
            ("1.5s", 1_500_000_000, "1.5s"),
            (".5s", 500_000_000, "500ms"),
            ("1.s", 1_000_000_000, "1s"),
            ("1us", 1000, "1µs"),
            ("1500ns", 1500, "1.5µs"),
            ("2µs", 2000, "2µs"),
            ("7ns", 7, "7ns"),
            ("-1m", -60 * 1_000_000_000, "-1m0s"),
            (
                "9223372036854775807ns",
                i64::MAX,
                "2562047h47m16.854775807s",
            ),
            (
                "-9223372036854775808ns",
                i64::MIN,
                "-2562047h47m16.854775808s",
            ),
        ] {
            assert_eq!(d(text).0, nanos, "{text}");
            assert_eq!(d(text).to_string(), printed, "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "", "-", "+", "1", "s", ".s", ".", "1d", "1w", "30", "1h ", " 1h", "1h-1m", "3000000h",
            "1é", "Never", "--1s", "1e3s",
        ] {
            assert!(text.parse::<GoDuration>().is_err(), "{text:?}");
        }
        assert!("9223372036854775808ns".parse::<GoDuration>().is_err());
        assert_eq!(
            "30d".parse::<GoDuration>().unwrap_err().to_string(),
            "duration \"30d\" has unknown unit \"d\", use h, m or s"
        );
    }

    #[test]
    fn nillable_keeps_what_was_written() {
        for (raw, value) in [
            ("Never", None),
            ("1h", Some(3600)),
            ("1h0m0s", Some(3600)),
            ("0s", Some(0)),
            ("30d", None),
        ] {
            let duration: NillableDuration = serde_json::from_value(raw.into()).unwrap();
            assert_eq!(duration.get(), value.map(GoDuration::from_secs), "{raw}");
            assert_eq!(serde_json::to_value(&duration).unwrap(), raw);
        }
        assert!(NillableDuration::never().check().is_ok());
        assert!(NillableDuration::from_raw("30d").check().is_err());
    }

    #[test]
    fn jiff_and_back() {
        assert_eq!(d("1.5s").to_signed(), SignedDuration::from_millis(1500));
        assert_eq!(GoDuration::from(SignedDuration::MAX).0, i64::MAX);
        assert_eq!(GoDuration::from(SignedDuration::MIN).0, i64::MIN);
    }

    proptest! {
        #[test]
        fn print_and_read_back(nanos: i64) {
            prop_assert_eq!(d(&GoDuration(nanos).to_string()), GoDuration(nanos));
        }

        #[test]
        fn parts_add_up(h in 0i64..1000, m in 0i64..1000, s in 0i64..1000, ms in 0i64..1000) {
            let text = format!("{m}m{s}.{ms:03}s{h}h");
            prop_assert_eq!(d(&text).0, ((h * 3600 + m * 60 + s) * 1000 + ms) * 1_000_000);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,12}") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
