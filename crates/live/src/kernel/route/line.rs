//! A route as `ip -o route show` prints it, which is nearly what `ip route replace` takes.

use std::fmt;

/// Words that describe a state instead of an attribute: `ip` prints them and does not take them.
const STATES: [&str; 9] =
    ["dead", "linkdown", "pervasive", "unresolved", "offload", "trap", "rt_offload", "rt_trap", "\\"];
/// Kinds of route over which no connection goes.
const NOWHERE: [&str; 6] = ["unreachable", "blackhole", "prohibit", "throw", "broadcast", "local"];

/// The words of a route, without states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line(Vec<String>);

impl Line {
    /// Reads what `ip` printed. How long a learnt route still lasts becomes a number of seconds, as `ip` takes it.
    pub fn read(text: &str) -> Line {
        let mut words: Vec<String> = Vec::new();
        for word in text.split_whitespace().filter(|word| !STATES.contains(word)) {
            let before = words.last().map(String::as_str);
            match (before, word) {
                (Some("expires"), seconds) => words.push(seconds.trim_end_matches("sec").to_owned()),
                // A time that `ip` locks by itself, and does not take with that word.
                (Some("rto_min"), "lock") => {}
                _ => words.push(word.to_owned()),
            }
        }
        Line(words)
    }

    /// The words for `ip route replace`.
    pub fn words(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().cloned()
    }

    /// Whether this is the route that was printed as `text`. Times that run down do not count.
    pub fn is(&self, text: &str) -> bool {
        self.without(&["expires"]) == Line::read(text).without(&["expires"])
    }

    /// The controller it names.
    pub fn controller(&self) -> Option<&str> {
        let value = self.value("congctl")?;
        match value {
            "lock" => self.0.iter().skip_while(|word| *word != "congctl").nth(2).map(String::as_str),
            name => Some(name),
        }
    }

    /// Says what makes it impossible to write it down again with a controller, if anything.
    pub fn check(&self) -> Result<(), String> {
        match self.0.first().map(String::as_str) {
            Some(kind) if NOWHERE.contains(&kind) => Err(format!("is {kind}, so no connection goes there")),
            None => Err("is empty".to_owned()),
            Some(_) if self.0.iter().any(|word| word == "nhid") => {
                Err("uses a nexthop object (nhid)".to_owned())
            }
            Some(_) => Ok(()),
        }
    }

    /// Length of the prefix it leads to; a longer one is looked at first.
    fn length(&self) -> u32 {
        match self.0.first().map(String::as_str) {
            Some("default") | None => 0,
            Some(prefix) => {
                prefix.split_once('/').map_or(u32::MAX, |(_, length)| length.parse().unwrap_or(0))
            }
        }
    }

    /// Whether connections take it rather than `other`.
    pub fn is_better(&self, other: &Line) -> bool {
        let metric = |line: &Line| line.value("metric").and_then(|value| value.parse().ok()).unwrap_or(0u32);
        (self.length(), std::cmp::Reverse(metric(self))) > (other.length(), std::cmp::Reverse(metric(other)))
    }

    /// The same way to a smaller prefix. Who made the larger one, how it ranks and when it ends do not pass on.
    pub fn beneath(&self, prefix: &str) -> Line {
        let mut line = self.without(&["proto", "metric", "expires", "pref"]);
        if let Some(first) = line.0.first_mut() {
            *first = prefix.to_owned();
        }
        line
    }

    /// The same route with another controller, and another first window if given.
    pub fn with(&self, algorithm: &str, initcwnd: Option<u32>) -> Line {
        let mut line = self.without(&["congctl"]);
        let mut added = vec!["congctl".to_owned(), algorithm.to_owned()];
        if let Some(segments) = initcwnd {
            line = line.without(&["initcwnd"]);
            added.extend(["initcwnd".to_owned(), segments.to_string()]);
        }
        // Attributes of a route come before its ways, if it has several.
        let at = line.0.iter().position(|word| word == "nexthop").unwrap_or(line.0.len());
        line.0.splice(at..at, added);
        line
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.0.iter().skip_while(|word| *word != key).nth(1).map(String::as_str)
    }

    /// The line without attributes of these names, each with its value and lock.
    fn without(&self, keys: &[&str]) -> Line {
        let mut left = Vec::new();
        let mut words = self.0.iter().peekable();
        while let Some(word) = words.next() {
            if !keys.contains(&word.as_str()) {
                left.push(word.clone());
                continue;
            }
            words.next_if(|next| *next == "lock");
            words.next();
        }
        Line(left)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_added_and_all_else_is_kept() {
        for (printed, wanted) in [
            (
                "default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.2 metric 100 mtu lock 1400",
                "default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.2 metric 100 mtu lock 1400 congctl sky_hybla",
            ),
            (
                "10.0.0.0/8 dev sat scope link linkdown congctl lock bbr initcwnd 20",
                "10.0.0.0/8 dev sat scope link initcwnd 20 congctl sky_hybla",
            ),
            (
                "default proto static \\\tnexthop via 10.0.0.1 dev a weight 1 \\\tnexthop via 10.0.1.1 dev b weight 2 dead",
                "default proto static congctl sky_hybla nexthop via 10.0.0.1 dev a weight 1 \
                 nexthop via 10.0.1.1 dev b weight 2",
            ),
            (
                "default via fe80::1 dev eth0 proto ra metric 1024 expires 1789sec hoplimit 64 pref medium",
                "default via fe80::1 dev eth0 proto ra metric 1024 expires 1789 hoplimit 64 pref medium \
                 congctl sky_hybla",
            ),
            ("10.0.0.0/8 dev sat rto_min lock 80ms", "10.0.0.0/8 dev sat rto_min 80ms congctl sky_hybla"),
        ] {
            assert_eq!(Line::read(printed).with("sky_hybla", None).to_string(), wanted);
        }
        let line = Line::read("10.0.0.0/8 dev sat initcwnd 20 congctl cubic").with("skyhaul", Some(40));
        assert_eq!(line.to_string(), "10.0.0.0/8 dev sat congctl skyhaul initcwnd 40");
        assert_eq!(line.controller(), Some("skyhaul"));
        assert_eq!(Line::read("default congctl lock bbr dev a").controller(), Some("bbr"));
    }

    #[test]
    fn a_smaller_prefix_goes_the_way_of_the_best_larger_one() {
        let routes = [
            "default via 192.0.2.1 dev eth0 proto dhcp metric 100",
            "default via 192.0.2.9 dev eth1 metric 600",
            "10.0.0.0/8 via 192.0.2.3 dev eth0 proto static metric 50",
            "10.0.0.0/8 via 192.0.2.4 dev eth0 onlink mtu 1400",
        ];
        let best =
            routes.map(Line::read).into_iter().reduce(|a, b| if b.is_better(&a) { b } else { a }).unwrap();
        assert_eq!(
            best.beneath("10.77.0.0/16").to_string(),
            "10.77.0.0/16 via 192.0.2.4 dev eth0 onlink mtu 1400"
        );
        let by_metric = Line::read(routes[1]).is_better(&Line::read(routes[0]));
        assert!(!by_metric && Line::read("10.0.0.1 dev a").is_better(&Line::read(routes[2])));
    }

    #[test]
    fn a_route_is_known_again_although_its_time_runs_down() {
        let now = Line::read("default via fe80::1 dev eth0 proto ra metric 1024 expires 1700sec pref medium");
        assert!(now.is("default via fe80::1 dev eth0 proto ra metric 1024 expires 1789 pref medium"));
        assert!(!now.is("default via fe80::2 dev eth0 proto ra metric 1024 expires 1789 pref medium"));
    }

    #[test]
    fn routes_that_cannot_be_written_again_are_refused() {
        assert!(Line::read("unreachable 10.0.0.0/8").check().unwrap_err().contains("unreachable"));
        assert!(Line::read("default nhid 3 via 10.0.0.1 dev a")
            .check()
            .unwrap_err()
            .contains("nexthop object"));
        assert_eq!(Line::read("default via 10.0.0.1 dev a").check(), Ok(()));
    }
}
