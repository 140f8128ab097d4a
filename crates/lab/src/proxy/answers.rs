//! What the paper prints, answered.

use skyhaul_cc::units::Bytes;
use skyhaul_sim::scenario::{Scenario, PAYLOAD_PER_PACKET};

use super::{answering, goodputs, is_up, proxies, sizes, Runs, PAPER, PAPERS_PROXY};
use crate::compare::{find, Answer, Published};
use crate::experiment::{Effort, LabError};
use crate::figure::{Figure, Spread, Table, Unit};

/// The runs with what asks about them.
struct Asked<'a> {
    runs: &'a Runs,
    quick: bool,
    values: &'a [Published],
}

impl Asked<'_> {
    fn row(&self, id: &str) -> Result<&Published, LabError> {
        find(self.values, PAPER.name, id)
    }

    fn bytes(&self, link: &str) -> Bytes {
        sizes(is_up(link), self.quick)[0]
    }

    fn all(&self, link: &'static str, name: &'static str) -> Vec<f64> {
        goodputs(self.runs, link, self.bytes(link), name)
    }

    fn of(&self, link: &'static str, name: &'static str) -> Spread {
        Spread::of(&self.all(link, name))
    }

    /// The proxy's goodputs with a file of the size that answers.
    fn proxy(&self, link: &'static str, controller: &'static str) -> Vec<f64> {
        goodputs(self.runs, link, answering(is_up(link), self.quick), controller)
    }

    fn limit(&self, link: &'static str, bytes: Bytes) -> Result<f64, LabError> {
        let scenario = Scenario::find(link)?;
        Ok(scenario.limit_of(scenario.data(), bytes, PAYLOAD_PER_PACKET).as_f64())
    }

    /// The proxy's goodput on a link beside a published rate; the reason names all controllers.
    fn rate(&self, id: &str, link: &'static str) -> Result<Answer, LabError> {
        let bytes = answering(is_up(link), self.quick);
        let others = proxies().filter(|proxy| proxy.name != PAPERS_PROXY).filter_map(|proxy| {
            let runs = self.proxy(link, proxy.name);
            let goodput = Unit::Rate.text(Spread::of(&runs).mean);
            (!runs.is_empty()).then(|| format!("; {} {goodput} Mbit/s", proxy.name))
        });
        let others: String = others.collect();
        let why = format!("{bytes}, start included, with {PAPERS_PROXY}{others}");
        let answer = self.row(id)?.number(Spread::of(&self.proxy(link, PAPERS_PROXY)));
        Ok(answer.with_limit(self.limit(link, bytes)?).because(why))
    }

    /// The proxy's goodput over that of direct TCP.
    fn gain(&self, id: &str, link: &'static str) -> Result<Answer, LabError> {
        let proxy = self.proxy(link, PAPERS_PROXY);
        let over = |name| Spread::of_ratios(&proxy, &self.all(link, name));
        let newreno = Unit::Ratio.text(over("direct, NewReno").mean);
        let why = format!("{PAPERS_PROXY} over direct CUBIC; over direct NewReno {newreno} times");
        Ok(self.row(id)?.number(over("direct, CUBIC")).because(why))
    }
}

/// Answers rates by the simulated ones.
pub(super) fn rates(
    runs: &Runs,
    effort: &Effort<'_>,
    schemes: &mut Figure,
    proxy: &mut Figure,
) -> Result<(), LabError> {
    let values = PAPER.published()?;
    let asked = Asked { runs, quick: effort.quick, values: &values };
    let (down, up) = ("p1.down-270", "p1.up-270");

    proxy.answers = vec![
        asked.rate("down-270-rate", down)?,
        asked.gain("down-270-gain", down)?,
        asked.rate("up-270-rate", up)?,
        asked.gain("up-270-gain", up)?,
        asked.rate("down-400-rate", "p1.down-400")?,
    ];
    let far = "p1.up-400";
    let [near_rate, far_rate] = [up, far].map(|link| Spread::of(&asked.proxy(link, PAPERS_PROXY)).mean);
    let direct = asked.of(far, "direct, CUBIC").mean;
    proxy.answers.push(asked.row("up-400-rate")?.statement(&[
        (&format!("lower than at 270 ms ({} and {})", mbit(far_rate), mbit(near_rate)), far_rate < near_rate),
        (&format!("far above direct CUBIC ({})", mbit(direct)), far_rate > 7.0 * direct),
    ]));

    let mean = |link, name| asked.of(link, name).mean;
    let plain = mean(down, "direct, CUBIC");
    let tuned = mean(down, "tuned, CUBIC");
    let newreno = mean(down, "direct, NewReno");
    schemes.answers.push(asked.row("in-operation")?.not_reproducible(format!(
        "the paper does not describe the link in operation; on p1.down-270 direct TCP gets {} with NewReno and {} \
         with CUBIC, so that link lost less",
        mbit(newreno),
        mbit(plain)
    )));
    schemes.answers.push(asked.row("tuned-both")?.statement(&[(
        &format!("poor: {} beside {} direct", mbit(tuned), mbit(plain)),
        tuned < 0.1 * asked.limit(down, asked.bytes(down))?,
    )]));
    let bbr = "both kernels, BBR";
    let bounded = mean(down, "both kernels, BBR, 4 MiB");
    let shaped = mean(down, "both kernels, CUBIC C 4, β 0.9");
    let between = |link| mean(link, bbr) > 2.0 * mean(link, "direct, CUBIC");
    schemes.answers.push(
        asked
            .row("kernel-both-fast")?
            .number(asked.of(down, bbr))
            .with_limit(asked.limit(down, asked.bytes(down))?)
            .if_order_holds(between(down))
            .because(format!(
                "BBR with all the buffer it wants, on 150 Mbit/s; with 4 MiB, Linux's default for sending, {}; CUBIC \
                 with C 4 and β 0.9 {}",
                mbit(bounded),
                mbit(shaped)
            )),
    );
    schemes.answers.push(
        asked
            .row("kernel-both-slow")?
            .number(asked.of(up, bbr))
            .with_limit(asked.limit(up, asked.bytes(up))?)
            .if_order_holds(between(up))
            .because("BBR"),
    );
    let repaired = "FEC tunnel, adaptive";
    let ground = [(down, "ground kernel, every ACK"), (up, "ground kernel, BBR")];
    let words: Vec<(String, bool)> = ground
        .iter()
        .flat_map(|&(link, name)| {
            let ours = mean(link, name);
            ["FEC tunnel, no repairs", repaired].map(|tunnel| {
                let theirs = mean(link, tunnel);
                let way = if is_up(link) { "to orbit" } else { "from orbit" };
                (format!("{way}, {} above {tunnel}, {}", mbit(ours), mbit(theirs)), ours > theirs)
            })
        })
        .collect();
    let words: Vec<(&str, bool)> = words.iter().map(|(text, holds)| (text.as_str(), *holds)).collect();
    schemes.answers.push(asked.row("kernel-ground")?.statement(&words).because(
        "from orbit the ground can only change its ACKs, which the losses leave without effect; to orbit it can send with \
         BBR",
    ));
    for (id, link) in [("fec-fast", down), ("fec-slow", up)] {
        let slow = asked.of(link, "FEC tunnel, no repairs, NewReno");
        schemes.answers.push(
            asked
                .row(id)?
                .number(slow)
                .with_limit(asked.limit(link, asked.bytes(link))?)
                .if_order_holds(slow.mean < 2.0 * mean(link, "direct, NewReno"))
                .because(format!(
                    "NewReno in a tunnel that repairs nothing; CUBIC {}, and {} where the losses are repaired. So the \
                     paper's tunnel did not hide them, and the window is not what holds this scheme back",
                    mbit(mean(link, "FEC tunnel, no repairs")),
                    mbit(mean(link, repaired))
                )),
        );
    }
    schemes.answers.push(asked.gain("proxy-gain-fast", down)?);
    schemes.answers.push(asked.gain("proxy-gain-slow", up)?);
    Ok(())
}

fn mbit(rate: f64) -> String {
    format!("{} Mbit/s", Unit::Rate.text(rate))
}

/// What takes machines, and what they have given so far.
pub(super) fn machines(_: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let values = PAPER.published()?;
    let mut figure = Figure::new("machines", "What takes real programs on real machines");
    let mut table = Table::new(
        "Recorded with real programs over the emulated links, file of 512 MiB by FTP, seeds 1 and 2",
        &[("link", Unit::None), ("way", Unit::None), ("goodput, Mbit/s", Unit::None)],
    );
    for (link, way, goodput) in RECORDED {
        table.row(vec![link.into(), way.into(), goodput.into()]);
    }
    figure.tables.push(table);
    for id in ["down-270-cpu-8550u", "down-270-cpu-9900k", "up-270-cpu-8550u", "up-270-cpu-9900k"] {
        let link = if id.starts_with("up") { "p1.up-270" } else { "p1.down-270" };
        figure.answers.push(find(&values, PAPER.name, id)?.on_a_real_stack(
            "no figure recorded",
            format!(
                "that processor is not at hand; `sudo skyhaul run {link} --on hosts --scheme skyhaul:bbr` prints the \
                 processor time of both ends per GB on yours"
            ),
        ));
    }
    figure.answers.push(find(&values, PAPER.name, "rollback")?.on_a_real_stack(
        "no falling back to plain TCP: flows of a channel that fails are reset, new ones are refused until it is up",
        "a matter of sockets; docs/operator.md says what happens when something fails",
    ));
    figure.notes.push(
        "`sudo skyhaul run p1.down-270 --on hosts --scheme direct:cubic,direct:bbr,skyhaul:bbr,skyhaul:rate --bytes \
         512MiB` makes the first four rows. The machine had two cores of a 2.5 GHz Xeon and did other work besides."
            .to_owned(),
    );
    Ok(vec![figure])
}

/// Figures of the README.
const RECORDED: [(&str, &str, &str); 6] = [
    ("p1.down-270", "direct TCP, CUBIC, 128 MiB buffers, stopped after 120 s", "0.68"),
    ("p1.down-270", "direct TCP, BBR, 128 MiB buffers", "90 to 97"),
    ("p1.down-270", "proxy, bbr", "105 to 111"),
    ("p1.down-270", "proxy, told the rate", "132 to 134"),
    ("p1.down-400", "proxy, told the rate", "127 to 130"),
    ("p1.up-270", "proxy, told the rate", "9.4"),
];
