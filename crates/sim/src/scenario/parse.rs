//! From TOML to a scenario that has been checked.

use skyhaul_cc::units::{parse_duration, Ber, Bytes, Duration, Rate, Share};
use toml::de::DeTable;

use super::error::ScenarioError;
use super::parse_plan::{check, plan, Plan, FULL_PACKET, LARGEST_QUEUE};
use super::published::{Figure, Published, Relation};
use super::reader::{File, Found, Table};
use super::{
    BerUnit, Change, Direction, GilbertElliott, Jitter, JitterShape, QueueRule, RateBase, Scenario, Workload,
    WorkloadKind,
};

pub(super) type Result<T> = std::result::Result<T, ScenarioError>;

pub(super) fn scenario(text: &str, origin: &str) -> Result<Scenario> {
    let file = File { origin, text };
    if text.len() > LARGEST_FILE {
        return Err(file.error(
            None,
            "",
            format!("longer than {LARGEST_FILE} bytes; expected a scenario file"),
        ));
    }
    let parsed = DeTable::parse(text).map_err(|error| {
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        file.error(error.span().map(|span| span.start), "", format!("not TOML: {message}"))
    })?;
    let root = Table::root(file, &parsed);

    let format = root.need("format", "1")?;
    if format.number("1")? != 1.0 {
        return Err(format.expected("1, the only format there is"));
    }
    let Plan { tcp, flows, sweep, controllers, duration, repeats } = plan(&root)?;
    let forward = direction(&root.need_table("forward")?)?;
    let workload = match (root.get("workload"), flows.is_empty()) {
        // Flows of the simulator; a program to do the like would stream the given time.
        (None, false) => {
            let bytes = forward.rate.bytes_in(duration.unwrap_or(Duration::ZERO)).max(Bytes(1));
            Workload { kind: WorkloadKind::Iperf3, bytes }
        }
        _ => workload(&root.need_table("workload")?)?,
    };
    let mut scenario = Scenario {
        id: id(&root.need("id", "\"my.link\"")?)?,
        title: root.need("title", "\"A link I know\"")?.text()?.to_owned(),
        source: root.need("source", "\"measured at home\"")?.text()?.to_owned(),
        forward,
        back: direction(&root.need_table("back")?)?,
        workload,
        tcp,
        flows,
        sweep,
        controllers,
        duration,
        repeats,
        published: match root.get("published") {
            Some(found) => found.tables()?.iter().map(published).collect::<Result<_>>()?,
            None => Vec::new(),
        },
        assumed: root.get("assumed").map_or(Ok(Vec::new()), |found| found.texts())?,
    };
    root.no_others()?;
    scenario.set_queues();
    check(&scenario, &root)?;
    Ok(scenario)
}

fn id(found: &Found<'_>) -> Result<String> {
    let text = found.text()?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    if text.is_empty() || text.len() > 64 || !text.chars().all(plain) {
        return Err(found.expected("up to 64 lower-case letters, digits, dots and dashes"));
    }
    Ok(text.to_owned())
}

fn direction(table: &Table<'_>) -> Result<Direction> {
    let one_way = length(&table.need("one_way", "\"270 ms\"")?)?;
    let rate = rate(&table.need("rate", "\"150 Mbit/s\"")?)?;
    let direction = Direction {
        rate_base: table.get("rate_base").map_or(Ok(RateBase::Ip), |found| found.choice(&RATE_BASES))?,
        loss: table.get("loss").map_or(Ok(Share::ZERO), |found| share(&found))?,
        ber: table.get("ber").map_or(Ok(Ber::ZERO), |found| ber(&found))?,
        ber_unit: table.get("ber_unit").map_or(Ok(BerUnit::Bit), |found| found.choice(&BER_UNITS))?,
        queue: Bytes::ZERO,
        burst: table.get("burst").map(|found| burst(&found.table()?)).transpose()?,
        reorder: table.get("reorder").map_or(Ok(false), |found| found.yes_or_no())?,
        changes: table.get("changes").map_or(Ok(Vec::new()), |found| changes(&found))?,
        ..Direction::clean(rate, one_way)
    };
    let shortest = direction.changes.iter().filter_map(|change| change.one_way).fold(one_way, Ord::min);
    let jitter = table.get("jitter").map(|found| jitter(&found.table()?, shortest)).transpose()?;
    let (queue, queue_rule) = queue(table)?;
    table.no_others()?;
    Ok(Direction { jitter, queue, queue_rule, ..direction })
}

fn burst(table: &Table<'_>) -> Result<GilbertElliott> {
    let mean = table.get("mean_burst").map(|found| found.number("packets, such as 8")).transpose()?;
    let average = table.get("average").map(|found| Ok((share(&found)?, found))).transpose()?;
    let states = ["to_bad", "to_good", "good_loss", "bad_loss"]
        .map(|key| table.get(key).map(|found| share(&found)).transpose());
    let [to_bad, to_good, good_loss, bad_loss] = states;
    let (to_bad, to_good, good_loss, bad_loss) = (to_bad?, to_good?, good_loss?, bad_loss?);
    table.no_others()?;
    match (mean, average, to_bad, to_good) {
        (Some(mean), Some((average, found)), None, None) if good_loss.is_none() && bad_loss.is_none() => {
            GilbertElliott::from_burst(mean, average).ok_or_else(|| {
                found.expected(
                    "mean_burst of at least 1 packet and an average above 0 % and at most \
                     mean_burst / (mean_burst + 1)",
                )
            })
        }
        (None, None, Some(to_bad), Some(to_good)) => Ok(GilbertElliott {
            to_bad,
            to_good,
            good_loss: good_loss.unwrap_or(Share::ZERO),
            bad_loss: bad_loss.unwrap_or(Share::ONE),
        }),
        _ => Err(table.error(
            "",
            "expected either mean_burst and average, or to_bad and to_good (with good_loss and bad_loss as you like)",
        )),
    }
}

fn jitter(table: &Table<'_>, shortest: Duration) -> Result<Jitter> {
    let found = table.need("half_range", "\"2 ms\"")?;
    let half_range = length(&found)?;
    if half_range > shortest {
        return Err(found.expected(format_args!(
            "at most the shortest one_way of this direction, {} ms",
            shortest.as_secs_f64() * 1e3
        )));
    }
    let shapes = [("uniform", JitterShape::Uniform), ("normal", JitterShape::Normal)];
    let shape = table.get("shape").map_or(Ok(JitterShape::Uniform), |found| found.choice(&shapes))?;
    table.no_others()?;
    Ok(Jitter { half_range, shape })
}

fn changes(found: &Found<'_>) -> Result<Vec<Change>> {
    let tables = found.tables()?;
    if tables.len() > MOST_CHANGES {
        return Err(found.error(format!("{} changes, expected at most {MOST_CHANGES}", tables.len())));
    }
    tables.iter().map(change).collect()
}

fn change(table: &Table<'_>) -> Result<Change> {
    let change = Change {
        at: length(&table.need("at", "\"30 s\"")?)?,
        rate: table.get("rate").map(|found| rate(&found)).transpose()?,
        one_way: table.get("one_way").map(|found| length(&found)).transpose()?,
        loss: table.get("loss").map(|found| share(&found)).transpose()?,
        outage: table.get("outage").map(|found| outage(&found)).transpose()?,
        every: table.get("every").map(|found| every(&found)).transpose()?,
    };
    if change.rate.is_none() && change.one_way.is_none() && change.loss.is_none() && change.outage.is_none() {
        return Err(table.error("", "changes nothing; expected rate, one_way, loss or outage"));
    }
    if let (Some(outage), Some(every)) = (change.outage, change.every) {
        if outage >= every {
            return Err(table.error("outage", "as long as every or longer; expected a pause between outages"));
        }
    }
    table.no_others()?;
    Ok(change)
}

fn workload(table: &Table<'_>) -> Result<Workload> {
    let kinds = WorkloadKind::ALL.map(|kind| (kind.name(), kind));
    let kind = table.need("kind", "\"ftp-upload\"")?.choice(&kinds)?;
    let bytes = transfer(&table.need("bytes", "\"512 MiB\"")?)?;
    table.no_others()?;
    Ok(Workload { kind, bytes })
}

fn published(table: &Table<'_>) -> Result<Published> {
    type Read = fn(&Found<'_>) -> Result<Figure>;
    let metrics: [(&str, Read); 7] = [
        ("goodput", |found| rate(found).map(Figure::Goodput)),
        ("link-rate", |found| rate(found).map(Figure::LinkRate)),
        ("speed-up", |found| found.number("a factor such as 100").map(Figure::SpeedUp)),
        ("ratio", |found| found.number("a factor such as 1.96").map(Figure::Ratio)),
        ("cpu", |found| share(found).map(Figure::Cpu)),
        ("completion", |found| length(found).map(Figure::Completion)),
        ("statement", |found| found.text().map(|words| Figure::Statement(words.to_owned()))),
    ];
    let relations = [
        ("exactly", Relation::Exactly),
        ("about", Relation::About),
        ("more-than", Relation::MoreThan),
        ("less-than", Relation::LessThan),
    ];
    let read = table.need("metric", "\"goodput\"")?.choice(&metrics)?;
    let published = Published {
        system: table.need("system", "\"TCP-QUIC proxy\"")?.text()?.to_owned(),
        figure: read(&table.need("value", "\"115 Mbit/s\"")?)?,
        relation: table.get("relation").map_or(Ok(Relation::Exactly), |found| found.choice(&relations))?,
        found: table.need("where", "\"section 3\"")?.text()?.to_owned(),
        note: table.get("note").map_or(Ok(""), |found| found.text())?.to_owned(),
    };
    table.no_others()?;
    Ok(published)
}

fn rate(found: &Found<'_>) -> Result<Rate> {
    let rate = found.quantity("a bit rate with its unit, such as \"150 Mbit/s\"")?;
    if !(SLOWEST..=FASTEST).contains(&rate) {
        return Err(found.expected(format_args!("between {SLOWEST} and {FASTEST}")));
    }
    Ok(rate)
}

pub(super) fn share(found: &Found<'_>) -> Result<Share> {
    found.quantity("a share such as \"1.2 %\" or 0.012, between 0 and 1")
}

pub(super) fn ber(found: &Found<'_>) -> Result<Ber> {
    found.quantity("a bit error rate such as \"1e-6\"")
}

/// Size of a transfer.
pub(super) fn transfer(found: &Found<'_>) -> Result<Bytes> {
    let bytes: Bytes = found.quantity("an amount of data such as \"512 MiB\"")?;
    if !(Bytes(1)..=LARGEST_TRANSFER).contains(&bytes) {
        return Err(found.expected("between 1 B and 1000 TB"));
    }
    Ok(bytes)
}

pub(super) fn length(found: &Found<'_>) -> Result<Duration> {
    let example = "a time with its unit, such as \"270 ms\"";
    let length = found.parsed(example, |text| parse_duration(text).map_err(|error| error.to_string()))?;
    if length > LONGEST {
        return Err(found.expected("at most 10000 h"));
    }
    Ok(length)
}

fn outage(found: &Found<'_>) -> Result<Duration> {
    let outage = length(found)?;
    if outage.is_zero() {
        return Err(found.expected("more than nothing"));
    }
    Ok(outage)
}

fn every(found: &Found<'_>) -> Result<Duration> {
    let every = length(found)?;
    if every < SHORTEST_PERIOD {
        return Err(found.expected("at least 10 ms"));
    }
    Ok(every)
}

/// The queue in bytes, or the rule it follows, whose bytes are computed when both directions are known.
fn queue(table: &Table<'_>) -> Result<(Bytes, Option<QueueRule>)> {
    let found = table.need("queue", "\"5 MB\"")?;
    let least = table.get("queue_least").map(|found| Ok((queue_size(&found)?, found))).transpose()?;
    match (found.products()?, least) {
        (Some(bdp), least) => {
            let least = least.map_or(Bytes::ZERO, |(least, _)| least);
            Ok((least, Some(QueueRule { bdp, least })))
        }
        (None, None) => Ok((queue_size(&found)?, None)),
        (None, Some((_, least))) => Err(least.error("only for a queue such as \"1 bdp\"")),
    }
}

fn queue_size(found: &Found<'_>) -> Result<Bytes> {
    let queue: Bytes = found.quantity("an amount of data such as \"5 MB\", or \"1 bdp\"")?;
    if !(FULL_PACKET..=LARGEST_QUEUE).contains(&queue) {
        return Err(found.expected("at least one full packet, 1500 B, and at most 100 GB"));
    }
    Ok(queue)
}

const RATE_BASES: [(&str, RateBase); 3] =
    [("ip", RateBase::Ip), ("l2", RateBase::L2), ("wire", RateBase::Wire)];

const BER_UNITS: [(&str, BerUnit); 2] = [("bit", BerUnit::Bit), ("byte", BerUnit::Byte)];

/// A scenario is a page of text; this keeps a wrong file from being read for minutes.
pub(super) const LARGEST_FILE: usize = 1 << 20;
/// Slower links exist, but not for TCP; faster ones than this are beyond whole nanoseconds per packet.
const SLOWEST: Rate = Rate::kbit(1);
const FASTEST: Rate = Rate::mbit(100_000);
/// More than a year, less than what nanoseconds in 64 bits hold.
const LONGEST: Duration = Duration::from_secs(10_000 * 3600);
/// Keeps the number of changes while one packet is sent in bounds.
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);
/// A week of handovers every minute; each costs a little whenever any of them happens.
const MOST_CHANGES: usize = 10_000;
const LARGEST_TRANSFER: Bytes = Bytes(1_000_000_000_000_000);
