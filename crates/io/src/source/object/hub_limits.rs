//! How long a server asks its clients to wait.
//!
//! `Retry-After` is of RFC 9110, in seconds or as a date; `RateLimit` of the draft `httpapi-ratelimit-headers`, which
//! the hub follows (`"api";r=0;t=55`), and `RateLimit-Reset` of its earlier versions.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// Nobody waits longer, and a time from now on that is far away is none.
const MOST_SECONDS: u64 = 365 * 86_400;

/// The longest time that is asked for, if any is said.
pub(super) fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let after = text(RETRY_AFTER.as_str()).and_then(|after| match after.parse() {
        Ok(seconds) => Some(seconds),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
            // The clock of the server counts, where it tells.
            let now = text(DATE.as_str()).and_then(date).unwrap_or(now);
            Some(date(after)?.saturating_sub(now))
        }
    });
    let reset = text("ratelimit").and_then(|policies| {
        let spent = policies.split(',').filter_map(|policy| {
            let parameter =
                |name: &str| policy.split(';').find_map(|part| part.trim().strip_prefix(name)?.parse::<u64>().ok());
            (parameter("r=") == Some(0)).then(|| parameter("t="))?
        });
        spent.max()
    });
    let reset = reset.or_else(|| text("ratelimit-reset")?.parse().ok());
    after.into_iter().chain(reset).max().map(|seconds| Duration::from_secs(seconds.min(MOST_SECONDS)))
}

/// Seconds since 1970 of a date as HTTP writes it today: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut parts = text.split_once(", ")?.1.split(' ');
    let mut next = || parts.next();
    let day: u64 = next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    let named = next()?;
    let month = MONTHS.iter().position(|month| *month == named)? as u64;
    let year: u64 = next()?.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let mut clock = next()?.split(':').map(|part| part.parse::<u64>().ok().filter(|part| *part <= 60));
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    // Years are counted from March on, so that the leap day is the last one. The days of months follow the line of
    // Hinnant's "chrono-Compatible Low-Level Date Algorithms".
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hours * 3600 + minutes * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn wait(headers: &[(&'static str, &'static str)]) -> Option<u64> {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        wait_of(&headers.iter().map(pair).collect()).map(|wait| wait.as_secs())
    }

    #[test]
    fn the_longest_time_that_a_server_asks_for_is_waited() {
        for (headers, seconds) in [
            (&[][..], None),
            (&[("retry-after", "7")], Some(7)),
            (&[("retry-after", "soon")], None),
            (&[("ratelimit", "\"api\";r=0;t=55")], Some(55)),
            (&[("ratelimit", "\"api\";r=12;t=55")], None),
            (&[("ratelimit", "\"api\";r=3;t=5, \"resolvers\";r=0;t=41")], Some(41)),
            (&[("ratelimit-reset", "9")], Some(9)),
            (&[("retry-after", "2"), ("ratelimit", "\"api\";r=0;t=55")], Some(55)),
            (&[("retry-after", "60"), ("ratelimit-reset", "9")], Some(60)),
            (&[("retry-after", "18446744073709551615")], Some(MOST_SECONDS)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(0)),
            (&[("date", "Thu, 29 Feb 2024 23:59:30 GMT"), ("retry-after", "Fri, 01 Mar 2024 00:00:10 GMT")], Some(40)),
        ] {
            assert_eq!(wait(headers), seconds, "{headers:?}");
        }
    }

    #[test]
    fn dates_are_seconds_since_1970() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Tue, 29 Feb 2000 12:00:00 GMT", Some(951_825_600)),
            ("Sun, 06 Foo 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1969 08:49:37 GMT", None),
            ("yesterday", None),
        ] {
            assert_eq!(date(text), seconds, "{text}");
        }
    }
}
