//! Figures 10 to 15: three flows that begin at 0, 10 and 20 s.

use skyhaul_cc::units::{Duration, Time};
use skyhaul_sim::play::{end, world};
use skyhaul_sim::rng::Stream;
use skyhaul_sim::scenario::Scenario;
use skyhaul_sim::stats;

use super::PAPER;
use crate::compare::{find, Answer, Claim, Published, Verdict};
use crate::experiment::{run_seeds, Effort, LabError};
use crate::figure::{Axis, Chart, Figure, Series, Spread, Style, Table, Unit, Value};

/// Rates of every flow over time.
#[derive(Clone, Debug)]
struct Shares {
    /// Delivered in each [`BIN`], bit/s; by flow.
    rates: Vec<Vec<f64>>,
}

/// Flows begin up to this much later than the paper says, by the seed.
const SCATTER: Duration = Duration::from_millis(100);
/// Why a rate may stand above the limit for a second.
const IN_ORDER: &str =
    "Deliveries count in order, so a repaired hole lets a second's worth through at once: a peak above \
                        the limit is not a rate of the link.";
/// Intervals over which deliveries are counted.
const BIN: Duration = Duration::from_millis(200);
/// Over which a rate is looked at: a second.
const SECOND: usize = 5;

/// Figures 10 to 12: three flows of the same controller, 100 ms.
pub fn fairness(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let scenario = Scenario::find("p0.fairness-3-flows")?;
    let names: &[&str] = if effort.quick {
        &["bbr", "cubic", "boost"]
    } else {
        &["bbr", "cubic", "boost", "boost-literal", "bbr3"]
    };
    let effort = &effort.once_if_quick();
    let runs = run_seeds(names, effort, |_| 6.0, |name, seed| shares(&scenario, &[name], seed))?;
    let limit = scenario.payload_rate().as_f64();

    let mut table = Table::new(
        "Three flows of one controller from 0, 10 and 20 s; 1 Gbit/s, 100 ms, queue of one BDP",
        &[
            ("controller", Unit::None),
            ("Jain, 30 to 40 s", Unit::None),
            ("Jain from 40 s", Unit::None),
            ("Jain of the worst seconds", Unit::None),
            ("fair from", Unit::Seconds),
            ("sum from 40 s", Unit::Rate),
            ("of the limit", Unit::Percent),
            ("flow 1", Unit::Rate),
            ("flow 2", Unit::Rate),
            ("flow 3", Unit::Rate),
            ("fluctuation", Unit::Rate),
        ],
    );
    let column =
        |runs: &[Shares], of: &dyn Fn(&Shares) -> f64| Spread::of(&runs.iter().map(of).collect::<Vec<_>>());
    for (name, runs) in names.iter().zip(&runs) {
        let spread = |of: &dyn Fn(&Shares) -> f64| Value::from(column(runs, of));
        let fair: Vec<f64> = runs.iter().filter_map(Shares::fair_from).collect();
        let sum = column(runs, &|run| run.mean_sum(40.0));
        let mut row = vec![
            (*name).into(),
            spread(&|run| run.jain(30.0, 40.0)),
            spread(&|run| run.jain(40.0, f64::INFINITY)),
            spread(&|run| run.least_jain(40.0)),
            if fair.len() == runs.len() { Value::from(Spread::of(&fair)) } else { "not in every run".into() },
            sum.into(),
            (sum.mean / limit).into(),
        ];
        row.extend((0..3).map(|flow| spread(&|run: &Shares| run.mean(flow, 40.0))));
        row.push(spread(&Shares::fluctuation));
        table.row(row);
    }
    let at = |name: &str| names.iter().position(|known| *known == name).map(|index| runs[index].as_slice());
    let mut figures = Vec::new();
    for (id, name) in [("10", "bbr"), ("11", "cubic"), ("12", "boost")] {
        let title = format!("Three flows of {name} that begin at 0, 10 and 20 s");
        let mut figure = Figure::new(id, title.clone());
        if let Some(first) = at(name).and_then(|runs| runs.first()) {
            figure.charts.push(first.chart(
                title,
                &[&format!("{name} 1"), &format!("{name} 2"), &format!("{name} 3")],
                limit,
            ));
        }
        if name != "boost" {
            figure.notes.push("The numbers of all three stand with figure 12.".to_owned());
        }
        figures.push(figure);
    }
    let values = PAPER.published()?;
    let (bbr, cubic, boost) =
        (at("bbr").unwrap_or(&[]), at("cubic").unwrap_or(&[]), at("boost").unwrap_or(&[]));
    let each = column(boost, &|run| run.mean_sum(40.0) / 3.0);
    let range = column(boost, &Shares::fluctuation);
    figures[2].tables.push(table);
    figures[2].answers.push(
        find(&values, PAPER.name, "fairness-rate")?
            .number(each)
            .with_limit(limit / 3.0)
            .because("3 × 320 Mbit/s is above the payload limit of 941.5: the paper counts headers"),
    );
    figures[2].answers.push(find(&values, PAPER.name, "fairness-range")?.number(range).because(
        "the paper does not say how it measures its range; ours is the mean deviation of a flow's rate over one second from its own mean",
    ));
    let jain_of = |runs: &[Shares]| column(runs, &|run| run.jain(30.0, f64::INFINITY)).mean;
    figures[2].answers.push(find(&values, PAPER.name, "fairness-order")?.statement(&[
        ("bbr's flows differ after 30 s (Jain below 0.95)", jain_of(bbr) < 0.95),
        ("cubic's shares are equal (Jain of at least 0.95)", jain_of(cubic) >= 0.95),
        ("boost's shares are equal (Jain of at least 0.95)", jain_of(boost) >= 0.95),
        ("boost fluctuates more than cubic", range.mean > column(cubic, &Shares::fluctuation).mean),
    ]));
    figures[2].notes.push(
        "Fair from: the first second after which Jain's index of every second but one in twenty stays at 0.95 or \
         more. Worst seconds: the index of a second from 40 s on that one in twenty does not reach. Fluctuation: mean \
         absolute deviation of a flow's rate over a second from its own mean, from 40 s on. Each seed lets the flows \
         begin up to 0.1 s later; nothing else is left to chance here."
            .to_owned(),
    );
    figures[2].notes.push(IN_ORDER.to_owned());
    Ok(figures)
}

/// Figures 13 to 15: three controllers against each other.
pub fn preemption(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let ids = ["p0.preemption-a", "p0.preemption-b", "p0.preemption-c"];
    let scenarios = ids.map(Scenario::find).into_iter().collect::<Result<Vec<_>, _>>()?;
    let effort = &effort.once_if_quick();
    let runs = run_seeds(&scenarios, effort, |_| 5.0, |scenario, seed| shares(scenario, &[], seed))?;
    let as_printed: Vec<(&Scenario, Vec<&str>)> = scenarios.iter().map(|it| (it, literal(it))).collect();
    let as_printed = if effort.quick {
        Vec::new()
    } else {
        run_seeds(&as_printed, effort, |_| 5.0, |(it, names), seed| shares(it, names, seed))?
    };
    let values = PAPER.published()?;
    let mut figures = Vec::new();
    for (index, (id, letter)) in [("13", "a"), ("14", "b"), ("15", "c")].into_iter().enumerate() {
        let (scenario, runs) = (&scenarios[index], runs[index].as_slice());
        let names: Vec<&str> = scenario.flows.iter().filter_map(|flow| flow.controller.as_deref()).collect();
        let limit = scenario.payload_rate().as_f64();
        let title =
            format!("{} at 0, 10 and 20 s, {} ms", names.join(", "), scenario.rtt().as_secs_f64() * 1e3);
        let mut figure = Figure::new(id, title.clone());
        let column = |of: &dyn Fn(&Shares) -> f64| Spread::of(&runs.iter().map(of).collect::<Vec<_>>());
        let last = |run: &Shares| run.end() - 20.0;
        figure.tables.push(rates("Mean rates", &names, runs));
        if let Some(runs) = as_printed.get(index) {
            figure.tables.push(rates(
                "The same with boost as its steps are printed",
                &literal(scenario),
                runs,
            ));
        }
        if let Some(first) = runs.first() {
            figure.charts.push(first.chart(title, &names, limit));
        }
        let flow = |name: &str| names.iter().position(|known| *known == name).unwrap_or(0);
        let (bbr, cubic, boost) = (flow("bbr"), flow("cubic"), flow("boost"));
        let rate = |flow: usize, from: f64, to: f64| column(&|run| run.between(flow, from, to)).mean;
        let end = |flow: usize| column(&|run| run.mean(flow, last(run))).mean;
        let find = |what: &str| find(&values, PAPER.name, &format!("preemption-{letter}-{what}"));
        let time = column(&|run| run.steady_from(boost, 20.0) - 20.0);
        figure.answers.push(bound(find("boost")?, time));
        let ahead = ("boost ends ahead of cubic and bbr", end(boost) > end(cubic) && end(boost) > end(bbr));
        if letter == "c" {
            let (between, after) = (rate(cubic, 12.0, 20.0) / rate(bbr, 12.0, 20.0), end(cubic) + end(bbr));
            figure.answers.push(find("order")?.statement(&[
                ("cubic and bbr equal within a quarter at 12 to 20 s", (0.8..1.25).contains(&between)),
                (
                    "both fall after 20 s, not to nothing",
                    after < rate(cubic, 12.0, 20.0) + rate(bbr, 12.0, 20.0)
                        && end(cubic).min(end(bbr)) > 0.05 * limit,
                ),
                ahead,
            ]));
        } else {
            let all = column(&|run| {
                (0..names.len()).map(|flow| run.steady_from(flow, 10.0 * flow as f64)).fold(0.0, f64::max)
            });
            figure.answers.push(bound(find("all")?, all));
            figure.answers.push(find("order")?.statement(&[
                ("bbr has less than a fifth at 12 to 20 s", rate(bbr, 12.0, 20.0) < 0.2 * limit),
                ("bbr rises after 20 s", rate(bbr, 30.0, 40.0) > rate(bbr, 12.0, 20.0)),
                ahead,
            ]));
        }
        figures.push(figure);
    }
    let note = "Steady from: the first second after which a flow's rate, a mean over two seconds, stays within a quarter \
                of its mean of the last 20 s (or within 2 % of the link).";
    figures[2].notes.push(note.to_owned());
    figures[2].notes.push(IN_ORDER.to_owned());
    Ok(figures)
}

/// The controllers of a scenario with boost in its literal reading.
fn literal(scenario: &Scenario) -> Vec<&str> {
    let names = scenario.flows.iter().filter_map(|flow| flow.controller.as_deref());
    names.map(|name| if name == "boost" { "boost-literal" } else { name }).collect()
}

/// Mean rates of flows in the spans the paper speaks of.
fn rates(title: &str, names: &[&str], runs: &[Shares]) -> Table {
    let mut table = Table::new(
        title,
        &[
            ("flow", Unit::None),
            ("5 to 10 s", Unit::Rate),
            ("12 to 20 s", Unit::Rate),
            ("20 to 30 s", Unit::Rate),
            ("30 to 40 s", Unit::Rate),
            ("last 20 s", Unit::Rate),
            ("steady from", Unit::Seconds),
        ],
    );
    let column = |of: &dyn Fn(&Shares) -> f64| Spread::of(&runs.iter().map(of).collect::<Vec<_>>());
    for (flow, name) in names.iter().enumerate() {
        let between = |from, to| Value::from(column(&|run| run.between(flow, from, to)));
        table.row(vec![
            (*name).into(),
            between(5.0, 10.0),
            between(12.0, 20.0),
            between(20.0, 30.0),
            between(30.0, 40.0),
            column(&|run| run.mean(flow, run.end() - 20.0)).into(),
            column(&|run| run.steady_from(flow, 10.0 * flow as f64)).into(),
        ]);
    }
    table
}

/// A time that the paper gives as a bound in words: sooner is as good.
fn bound(published: &Published, ours: Spread) -> Answer {
    let answer = published.number(ours);
    let sooner = matches!(published.claim, Claim::Number { high, .. } if ours.mean <= high);
    if sooner {
        Answer { verdict: Verdict::Holds, ..answer }
    } else {
        answer
    }
}

fn shares(scenario: &Scenario, controllers: &[&str], seed: u64) -> Result<Shares, LabError> {
    // Without losses nothing else would differ from seed to seed, and one course of events would pass for many.
    let mut luck = Stream::new(seed, "start");
    let mut scenario = scenario.clone();
    for flow in &mut scenario.flows {
        flow.start += SCATTER.mul_f64(luck.unit());
    }
    let mut world = world(&scenario, controllers, seed)?;
    world.bins = BIN;
    let end = end(&scenario);
    world.run(end)?;
    let bins = (end.since(Time::ZERO).as_nanos() / BIN.as_nanos()) as usize;
    let rates = world.outcomes().into_iter().map(|outcome| {
        let mut rates: Vec<f64> = outcome.bins.iter().map(|bytes| bytes.per(BIN).as_f64()).collect();
        rates.resize(bins, 0.0);
        rates
    });
    Ok(Shares { rates: rates.collect() })
}

impl Shares {
    fn end(&self) -> f64 {
        self.rates.first().map_or(0, Vec::len) as f64 * BIN.as_secs_f64()
    }

    /// Mean rate of a flow between two moments in seconds.
    fn between(&self, flow: usize, from: f64, to: f64) -> f64 {
        let bin = |seconds: f64| {
            ((seconds / BIN.as_secs_f64()).round().max(0.0) as usize).min(self.rates[flow].len())
        };
        stats::mean(&self.rates[flow][bin(from)..bin(to).max(bin(from))]).unwrap_or(0.0)
    }

    /// Mean rate of a flow from a moment on.
    fn mean(&self, flow: usize, from: f64) -> f64 {
        self.between(flow, from, f64::INFINITY)
    }

    fn mean_sum(&self, from: f64) -> f64 {
        (0..self.rates.len()).map(|flow| self.mean(flow, from)).sum()
    }

    /// Jain's index of the mean rates between two moments.
    fn jain(&self, from: f64, to: f64) -> f64 {
        jain(&(0..self.rates.len()).map(|flow| self.between(flow, from, to)).collect::<Vec<_>>())
    }

    /// Jain's index of each second, with its beginning.
    fn jains(&self) -> Vec<(f64, f64)> {
        let seconds = self.end() as usize;
        (0..seconds)
            .map(|second| second as f64)
            .map(|second| (second, self.jain(second, second + 1.0)))
            .collect()
    }

    /// The fifth percentile of Jain's index of single seconds.
    fn least_jain(&self, from: f64) -> f64 {
        let jains: Vec<f64> =
            self.jains().into_iter().filter(|(at, _)| *at >= from).map(|(_, jain)| jain).collect();
        stats::quantile(&jains, 0.05).unwrap_or(0.0)
    }

    /// From which second on the shares are equal.
    fn fair_from(&self) -> Option<f64> {
        let jains = self.jains();
        (20..jains.len().saturating_sub(10))
            .find(|&from| {
                let rest = &jains[from..];
                let unfair = rest.iter().filter(|(_, jain)| *jain < 0.95).count();
                rest[0].1 >= 0.95 && unfair * 20 <= rest.len()
            })
            .map(|second| second as f64)
    }

    /// Mean deviation of the rates of seconds from a flow's own mean, from 40 s on.
    fn fluctuation(&self) -> f64 {
        let flows = self.rates.iter().map(|rates| {
            let first = (40.0 / BIN.as_secs_f64()) as usize;
            let seconds: Vec<f64> =
                rates.get(first..).unwrap_or(&[]).chunks(SECOND).filter_map(stats::mean).collect();
            let mean = stats::mean(&seconds).unwrap_or(0.0);
            stats::mean(&seconds.iter().map(|rate| (rate - mean).abs()).collect::<Vec<_>>()).unwrap_or(0.0)
        });
        stats::mean(&flows.collect::<Vec<_>>()).unwrap_or(0.0)
    }

    /// From which second after `start` on a flow's rate stays what it is in the end.
    fn steady_from(&self, flow: usize, start: f64) -> f64 {
        let last = self.mean(flow, self.end() - 20.0);
        let total: f64 = self.mean_sum(self.end() - 20.0);
        let allowed = (last * 0.25).max(total * 0.02);
        let seconds = (self.end() as usize).saturating_sub(2);
        let away = |second: &usize| {
            let from = *second as f64;
            (self.between(flow, from, from + 2.0) - last).abs() > allowed
        };
        (start as usize..seconds).rev().find(away).map_or(start, |second| second as f64 + 1.0)
    }

    fn chart(&self, title: String, names: &[&str], limit: f64) -> Chart {
        let mut series: Vec<Series> = names
            .iter()
            .zip(&self.rates)
            .map(|(name, rates)| {
                let means = rates.chunks(SECOND).enumerate().map(|(second, rates)| {
                    (second as f64 + 0.5, Unit::Rate.shown(stats::mean(rates).unwrap_or(0.0)))
                });
                Series::line(*name, means)
            })
            .collect();
        let most = Unit::Rate.shown(limit);
        series.push(Series::line("limit", [(0.0, most), (self.end(), most)]).styled(Style::Limit));
        Chart { title, x: Axis::linear("time, s"), y: Axis::linear("goodput, Mbit/s"), series }
    }
}

/// Jain's index of fairness; zero of nothing.
fn jain(rates: &[f64]) -> f64 {
    stats::jain(rates).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(rates: [fn(f64) -> f64; 3]) -> Shares {
        let times = (0..400).map(|bin| bin as f64 * 0.2);
        Shares { rates: rates.iter().map(|rate| times.clone().map(rate).collect()).collect() }
    }

    #[test]
    fn jains_index_is_one_for_equals_and_a_third_for_one_that_has_all() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), 1.0);
        assert!((jain(&[9.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(jain(&[0.0, 0.0]), 0.0);
    }

    #[test]
    fn shares_are_fair_from_the_second_in_which_they_become_equal() {
        let later = |t| if t < 33.0 { 0.0 } else { 1.0 };
        let shares = flows([|_| 1.0, |_| 1.0, later]);
        assert_eq!(shares.fair_from(), Some(33.0));
        assert_eq!(shares.steady_from(2, 20.0), 33.0);
        assert_eq!(shares.steady_from(0, 0.0), 0.0);
        assert_eq!(shares.jain(40.0, 80.0), 1.0);
        assert_eq!(flows([|_| 1.0, |_| 1.0, |_| 0.1]).fair_from(), None);
    }

    #[test]
    fn fluctuation_is_the_mean_deviation_of_seconds() {
        let swing = |t: f64| if (t as u64).is_multiple_of(2) { 2.0 } else { 4.0 };
        let shares = flows([swing, swing, swing]);
        assert!((shares.fluctuation() - 1.0).abs() < 1e-9, "{}", shares.fluctuation());
    }
}
