//! Kubernetes' `resource.Quantity`: an exact decimal with the suffix family it was written in.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The pattern that admission puts on quantity strings. It is wider than the parser: `1e1.5` passes it.
pub const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

const NANOS: i128 = 1_000_000_000;
/// Larger magnitudes are capped here: 10^29 units, which is more than any sum of real resources.
const MAX_NANOS: u128 = 100_000_000_000_000_000_000_000_000_000_000_000_000;
/// Kubernetes caps quantities with a binary suffix at the largest 64-bit integer.
const MAX_BINARY_NANOS: u128 = i64::MAX as u128 * NANOS as u128;

/// The suffix family that a quantity is printed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `n u m k M G T P E`, powers of ten.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`, powers of 1024.
    BinarySi,
    /// `e3`, `e-9`: powers of ten written as exponents.
    DecimalExponent,
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// Nothing was written.
    #[error("quantity is empty, write a number such as 500m, 2 or 1Gi")]
    Empty,
    /// The part before the suffix is not a decimal number.
    #[error("quantity {0:?} does not start with a number")]
    NoNumber(String),
    /// The suffix is none of Kubernetes' suffixes.
    #[error(
        "quantity {text:?} has unknown suffix {suffix:?}, use one of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent such as e3"
    )]
    Suffix {
        /// The whole text.
        text: String,
        /// The part after the number.
        suffix: String,
    },
}

/// An amount of a resource: exact to a billionth, finer fractions are rounded away from zero as Kubernetes does.
///
/// Equality and order look at the value only, so `1024Mi` equals `1Gi` and `1000m` equals `1`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// A quantity of so many thousandths, printed with decimal suffixes.
    pub const fn from_milli(milli: i64) -> Self {
        Self {
            nanos: milli as i128 * 1_000_000,
            format: Format::DecimalSi,
        }
    }

    /// A quantity of so many whole units.
    pub const fn from_value(value: i64, format: Format) -> Self {
        Self {
            nanos: value as i128 * NANOS,
            format,
        }
    }

    /// The suffix family it is printed in.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The exact value in billionths.
    pub const fn nanos(&self) -> i128 {
        self.nanos
    }

    /// Thousandths, rounded up; saturates at the ends of `i64`.
    pub fn milli_ceil(&self) -> i64 {
        saturate(div_ceil(self.nanos, 1_000_000))
    }

    /// Thousandths, rounded down; saturates at the ends of `i64`.
    pub fn milli_floor(&self) -> i64 {
        saturate(self.nanos.div_euclid(1_000_000))
    }

    /// Whole units, rounded up; saturates at the ends of `i64`.
    pub fn value_ceil(&self) -> i64 {
        saturate(div_ceil(self.nanos, NANOS))
    }

    /// Whole units, rounded down; saturates at the ends of `i64`.
    pub fn value_floor(&self) -> i64 {
        saturate(self.nanos.div_euclid(NANOS))
    }

    /// Whether the value is zero.
    pub const fn is_zero(&self) -> bool {
        self.nanos == 0
    }
}

fn div_ceil(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(ParseQuantityError::Empty);
        }
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end_of_digits = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
        let (whole, rest) = unsigned.split_at(end_of_digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(after) => after.split_at(end_of_digits(after)),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(ParseQuantityError::NoNumber(text.to_owned()));
        }
        let scale = Scale::from_suffix(suffix).ok_or_else(|| ParseQuantityError::Suffix {
            text: text.to_owned(),
            suffix: suffix.to_owned(),
        })?;
        let (magnitude, mut format) = match scale {
            Scale::Ten(exponent, format) => (decimal_nanos(whole, fraction, exponent), format),
            Scale::Two(bits) => (binary_nanos(whole, fraction, bits), Format::BinarySi),
        };
        // A binary amount between zero and one has no binary suffix to be printed with.
        if format == Format::BinarySi && magnitude > 0 && magnitude < NANOS as u128 {
            format = Format::DecimalSi;
        }
        let nanos = magnitude as i128; // at most MAX_NANOS
        Ok(Self {
            nanos: if negative { -nanos } else { nanos },
            format,
        })
    }
}

enum Scale {
    Ten(i64, Format),
    Two(u32),
}

const DECIMAL_SUFFIXES: [(&str, i64); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY_SUFFIXES: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];

impl Scale {
    fn from_suffix(suffix: &str) -> Option<Self> {
        if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(s, _)| *s == suffix) {
            return Some(Self::Ten(*exponent, Format::DecimalSi));
        }
        if let Some((_, bits)) = BINARY_SUFFIXES.iter().find(|(s, _)| *s == suffix) {
            return Some(Self::Two(*bits));
        }
        // `1E` is a suffix and was found above; `1E3` is an exponent.
        let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        Some(Self::Ten(i64::from(exponent), Format::DecimalExponent))
    }
}

/// `whole.fraction * 10^exponent` in billionths, rounded up.
fn decimal_nanos(whole: &str, fraction: &str, exponent: i64) -> u128 {
    let digits: String = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let shift = 9 + exponent - fraction.len() as i64;
    if shift >= 0 {
        // 39 digits are past the cap, whatever they are.
        if digits.len() as i64 + shift >= 40 {
            return MAX_NANOS;
        }
        return parse_capped(digits)
            .saturating_mul(10u128.pow(shift as u32))
            .min(MAX_NANOS);
    }
    let dropped = shift.unsigned_abs() as usize;
    if dropped >= digits.len() {
        return 1;
    }
    let (kept, lost) = digits.split_at(digits.len() - dropped);
    let round_up = lost.bytes().any(|b| b != b'0');
    parse_capped(kept)
        .saturating_add(u128::from(round_up))
        .min(MAX_NANOS)
}

/// `whole.fraction * 2^bits` in billionths, rounded up, at most the largest 64-bit integer of units.
fn binary_nanos(whole: &str, fraction: &str, bits: u32) -> u128 {
    let unit = NANOS as u128 * (1u128 << bits); // at most 2^60 * 10^9, about 2^90
    let whole = parse_capped(whole.trim_start_matches('0')).saturating_mul(unit);
    // Schoolbook multiplication of the fraction's digits by the unit: what carries out is the integer part.
    let (mut carry, mut rest) = (0u128, false);
    for digit in fraction.bytes().rev() {
        let product = u128::from(digit - b'0') * unit + carry;
        carry = product / 10;
        rest |= !product.is_multiple_of(10);
    }
    whole
        .saturating_add(carry + u128::from(rest))
        .min(MAX_BINARY_NANOS)
}

fn parse_capped(digits: &str) -> u128 {
    if digits.is_empty() {
        0
    } else {
        digits.parse().unwrap_or(u128::MAX)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos / NANOS;
        if self.format == Format::BinarySi && whole * NANOS == self.nanos && whole.abs() >= 1024 {
            let (mut amount, mut step) = (whole, 0);
            while amount % 1024 == 0 && step < BINARY_SUFFIXES.len() {
                amount /= 1024;
                step += 1;
            }
            let suffix = if step == 0 {
                ""
            } else {
                BINARY_SUFFIXES[step - 1].0
            };
            return write!(f, "{amount}{suffix}");
        }
        let decimal_exponent = self.format == Format::DecimalExponent;
        let (mut amount, mut exponent) = (self.nanos, -9);
        while amount % 1000 == 0 && (decimal_exponent || exponent < 18) {
            amount /= 1000;
            exponent += 3;
        }
        if !decimal_exponent {
            let suffix = DECIMAL_SUFFIXES
                .iter()
                .find(|(_, e)| *e == exponent)
                .map_or("", |(s, _)| s);
            return write!(f, "{amount}{suffix}");
        }
        if exponent == 0 {
            write!(f, "{amount}")
        } else {
            write!(f, "{amount}e{exponent}")
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity: a number, or a string such as 500m or 1Gi")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.trim().parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_value(value, Format::DecimalSi))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity {
                    nanos: i128::from(value) * NANOS,
                    format: Format::DecimalSi,
                })
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
                value.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl TryFrom<&k8s_openapi::apimachinery::pkg::api::resource::Quantity> for Quantity {
    type Error = ParseQuantityError;

    fn try_from(
        quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity,
    ) -> Result<Self, Self::Error> {
        quantity.0.trim().parse()
    }
}

impl From<Quantity> for k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    /// Billionths and canonical print, worked out by hand from Kubernetes' rules.
    #[test]
    fn reads_and_prints() {
        for (text, nanos, printed) in [
            ("0", 0, "0"),
            ("-0", 0, "0"),
            ("0.0Gi", 0, "0"),
            ("1", NANOS, "1"),
            ("+1", NANOS, "1"),
            ("1.", NANOS, "1"),
            (".5", NANOS / 2, "500m"),
            ("-1.5", -NANOS * 3 / 2, "-1500m"),
            ("1000m", NANOS, "1"),
            ("1500m", NANOS * 3 / 2, "1500m"),
            ("100n", 100, "100n"),
            ("0.1n", 1, "1n"),
            ("-0.1n", -1, "-1n"),
            ("1u", 1000, "1u"),
            ("1000k", NANOS * 1_000_000, "1M"),
            ("1E", NANOS * 1_000_000_000_000_000_000, "1E"),
            ("1000E", NANOS * 1_000_000_000_000_000_000_000, "1000E"),
            ("1Ei", NANOS << 60, "1Ei"),
            ("1E3", NANOS * 1000, "1e3"),
            ("1e3", NANOS * 1000, "1e3"),
            ("1e+1", NANOS * 10, "10"),
            ("12e-4", 1_200_000, "1200e-6"),
            ("1024Mi", NANOS << 30, "1Gi"),
            ("1.5Gi", (NANOS * 1536) << 20, "1536Mi"),
            ("0.1Ki", NANOS * 1024 / 10, "102400m"),
            ("0.0001Ki", NANOS * 1024 / 10_000, "102400u"),
            ("1023", NANOS * 1023, "1023"),
            ("1.0Ki", NANOS * 1024, "1Ki"),
            ("1025Ki", NANOS * 1025 * 1024, "1025Ki"),
            ("16Ei", i64::MAX as i128 * NANOS, "9223372036854775807"),
        ] {
            let quantity = q(text);
            assert_eq!(quantity.nanos, nanos, "{text}");
            assert_eq!(quantity.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn refuses_what_kubernetes_refuses() {
        for text in [
            "",
            ".",
            "-",
            "+",
            "m",
            "Gi",
            "1 Gi",
            " 1",
            "1gi",
            "1GB",
            "1K",
            "1mi",
            "1e",
            "1e1.5",
            "1e+",
            "--1",
            "1.2.3",
            "0x1",
            "1_0",
            "1e99999999999",
            "é",
            "1é",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
        assert_eq!(
            "100GB".parse::<Quantity>().unwrap_err().to_string(),
            "quantity \"100GB\" has unknown suffix \"GB\", use one of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent such as e3"
        );
    }

    #[test]
    fn huge_and_tiny_saturate() {
        assert_eq!(q("1e400").value_ceil(), i64::MAX);
        assert_eq!(q("-1e400").value_floor(), i64::MIN);
        assert_eq!(q(&"9".repeat(500)).milli_ceil(), i64::MAX);
        assert_eq!(q("1e-400").nanos, 1);
        assert_eq!(q(&format!("1{}e-60", "0".repeat(60))).value_floor(), 1);
        assert_eq!(q(&format!("0.{}1Gi", "0".repeat(60))).nanos, 1);
    }

    #[test]
    fn rounds_both_ways() {
        let quantity = q("1500u");
        assert_eq!((quantity.milli_floor(), quantity.milli_ceil()), (1, 2));
        assert_eq!((quantity.value_floor(), quantity.value_ceil()), (0, 1));
        let quantity = q("-1500u");
        assert_eq!((quantity.milli_floor(), quantity.milli_ceil()), (-2, -1));
        assert_eq!((quantity.value_floor(), quantity.value_ceil()), (-1, 0));
    }

    #[test]
    fn json_takes_numbers_and_strings() {
        let read = |json: &str| serde_json::from_str::<Quantity>(json);
        assert_eq!(read("4").unwrap(), q("4"));
        assert_eq!(read("-4").unwrap(), q("-4"));
        assert_eq!(read("1.5").unwrap(), q("1500m"));
        assert_eq!(read("\"1Gi\"").unwrap(), q("1024Mi"));
        assert!(read("true").is_err());
        assert_eq!(serde_json::to_string(&q("1.5")).unwrap(), "\"1500m\"");
    }

    fn texts() -> impl Strategy<Value = String> {
        let suffix = prop::sample::select(vec![
            "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
            "e3", "E-2", "e+4",
        ]);
        ("[+-]?", "[0-9]{1,6}(\\.[0-9]{0,6})?", suffix)
            .prop_map(|(sign, number, suffix)| sign + &number + suffix)
    }

    /// The value as a fraction of integers, by another road than the parser's: numerator over 10^places times the unit.
    fn exact(text: &str) -> (i128, i128) {
        let negative = text.starts_with('-');
        let text = text.trim_start_matches(['+', '-']);
        let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number = number.split(['e', 'E']).next().unwrap_or_default();
        let suffix = &text[number.len()..];
        let places = number.split('.').nth(1).map_or(0, str::len) as u32;
        let digits: i128 = number.replace('.', "").parse().unwrap();
        let (up, down): (i128, i128) = match suffix {
            "n" => (1, NANOS),
            "u" => (1, 1_000_000),
            "m" => (1, 1000),
            "" => (1, 1),
            "k" => (1000, 1),
            "M" => (1_000_000, 1),
            "G" => (NANOS, 1),
            "T" => (1000 * NANOS, 1),
            "P" => (1_000_000 * NANOS, 1),
            "E" => (NANOS * NANOS, 1),
            "e3" => (1000, 1),
            "E-2" => (1, 100),
            "e+4" => (10_000, 1),
            binary => (1 << (10 * (1 + "KMGTPE".find(&binary[..1]).unwrap())), 1),
        };
        (
            digits * up * if negative { -1 } else { 1 },
            down * 10i128.pow(places),
        )
    }

    proptest! {
        #[test]
        fn print_and_read_back(text in texts()) {
            let quantity = q(&text);
            let again = q(&quantity.to_string());
            prop_assert_eq!(quantity, again);
            prop_assert_eq!(quantity.to_string(), again.to_string());
        }

        #[test]
        fn value_agrees_with_fractions(text in texts()) {
            let (up, down) = exact(&text);
            // Billionths, rounded away from zero; a binary suffix is capped at the largest 64-bit integer.
            let magnitude = up.abs() / down * NANOS + div_ceil(up.abs() % down * NANOS, down);
            let binary = text.ends_with('i');
            let magnitude = if binary { magnitude.min(MAX_BINARY_NANOS as i128) } else { magnitude };
            prop_assert_eq!(q(&text).nanos(), magnitude * up.signum());
        }

        #[test]
        fn order_agrees_with_fractions(a in texts(), b in texts()) {
            let ((au, ad), (bu, bd)) = (exact(&a), exact(&b));
            // Whole parts first: cross products of the largest would not fit 128 bits.
            let expected = (au.div_euclid(ad), au.rem_euclid(ad) * bd).cmp(&(bu.div_euclid(bd), bu.rem_euclid(bd) * ad));
            let capped = |t: &str| t.ends_with("Ei") || t.ends_with("Pi");
            let finer = |t: &str| q(t).nanos() % 1000 != 0 || t.ends_with('n') || t.ends_with('u');
            prop_assume!(!capped(&a) && !capped(&b) && !finer(&a) && !finer(&b));
            prop_assert_eq!(q(&a).cmp(&q(&b)), expected);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,12}") {
            let _ = text.parse::<Quantity>();
        }
    }
}
