//! Numbers as people read them.

/// Mbit/s with enough digits to tell small rates apart: `131.2`, `9.41`, `0.483`.
pub fn mbit(bit_per_s: f64) -> String {
    three_digits(bit_per_s / 1e6)
}

/// Seconds: `33.1`, `5.42`, `0.541`.
pub fn seconds(seconds: f64) -> String {
    three_digits(seconds)
}

/// Percent of a share with one decimal: `97.3`.
pub fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// MB (10⁶ bytes) with one decimal.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// A span of time in the unit people would choose: `41 s`, `18 min`, `2.5 h`.
pub fn span(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{} s", three_digits(s)),
        s if s < 6_000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

/// How many times as much: `290`, `1.6`.
pub fn ratio(ratio: f64) -> String {
    if ratio < 10.0 {
        format!("{ratio:.1}")
    } else {
        format!("{ratio:.0}")
    }
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_about_three_digits() {
        assert_eq!(mbit(131_249_000.0), "131.2");
        assert_eq!(mbit(9_414_000.0), "9.41");
        assert_eq!(mbit(483_200.0), "0.483");
        assert_eq!(percent(0.9731), "97.3");
        assert_eq!(megabytes(67_108_864), "67.1");
    }

    #[test]
    fn spans_have_the_unit_people_would_choose() {
        assert_eq!(span(4.1), "4.10 s");
        assert_eq!(span(1118.0), "19 min");
        assert_eq!(span(8950.0), "2.5 h");
        assert_eq!(ratio(289.6), "290");
        assert_eq!(ratio(1.58), "1.6");
    }
}
