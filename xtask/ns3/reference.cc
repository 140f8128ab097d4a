// One TCP flow over one bottleneck in ns-3, as an outside reference for our simulator.
//
// `cargo xtask ns3` compiles and runs it; see docs/ns3.md. The options are those of
// crates/sim/examples/one_flow.rs, so that both print the same line for the same cell:
//
//   goodput_bit_per_s,seconds,cuts,timeouts,window_segments
//
// The text is ours; a program linked from it and ns-3's libraries falls under ns-3's licence, GPL 2.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>

using namespace ns3;

// What `--with` switches on: each takes one peculiarity of ns-3's controllers away.
struct Changes
{
    bool segments = false;  // growth counts acknowledged segments, not ACKs
    bool windowCut = false; // a cut starts from the window, not from what is in flight then
    bool freeze = false;    // what was sent before a cut does not let the window grow
    bool friendly = false;  // CUBIC is at least as fast as Reno (RFC 9438, section 4.3)
    bool halve = false;     // Vegas halves its window on a loss
    bool slowHalf = false;  // Veno's slower growth at a queue is reached
    bool rho = false;       // Hybla's rho follows the least round trip, however the handshake's compares
};

static Changes g_changes;

// A controller of ns-3 with the chosen changes.
template <class Base>
class Changed : public Base
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("skyhaul::Changed" + Base::GetTypeId().GetName().substr(5))
                               .template SetParent<Base>()
                               .template AddConstructor<Changed<Base>>();
        return id;
    }

    TypeId GetInstanceTypeId() const override
    {
        return GetTypeId();
    }

    Ptr<TcpCongestionOps> Fork() override
    {
        return CopyObject<Changed<Base>>(this);
    }

    void CongestionStateSet(Ptr<TcpSocketState> tcb, const TcpSocketState::TcpCongState_t state) override
    {
        m_leaving = m_state == TcpSocketState::CA_RECOVERY && state == TcpSocketState::CA_OPEN;
        m_state = state;
        Base::CongestionStateSet(tcb, state);
    }

    void PktsAcked(Ptr<TcpSocketState> tcb, uint32_t segments, const Time& rtt) override
    {
        // Veno forgets its count of samples with every ACK and wants more than two before it looks at them.
        const int times = g_changes.slowHalf ? 3 : 1;
        for (int i = 0; i < times; ++i)
        {
            Base::PktsAcked(tcb, segments, g_changes.rho ? tcb->m_minRtt : rtt);
        }
    }

    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t segments) override
    {
        // ns-3 hands over, with the ACK that ends a recovery, all that was acknowledged meanwhile.
        const bool old = m_leaving;
        m_leaving = false;
        if (g_changes.freeze && old)
        {
            return;
        }
        const uint32_t steps = g_changes.segments ? segments : 1;
        for (uint32_t i = 0; i < steps; ++i)
        {
            if (i > 0)
            {
                // Veno forgets its sample with every call.
                PktsAcked(tcb, 1, tcb->m_lastRtt.Get());
            }
            Base::IncreaseWindow(tcb, g_changes.segments ? 1 : segments);
        }
        if (g_changes.friendly)
        {
            KeepUpWithReno(tcb, segments);
        }
    }

    uint32_t GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t inFlight) override
    {
        const uint32_t window = tcb->m_cWnd.Get();
        // Vegas also asks without a loss, and then says that nothing is in flight.
        if (g_changes.halve && inFlight > 0)
        {
            return std::max(window / 2, 2 * tcb->m_segmentSize);
        }
        m_prior = double(window) / tcb->m_segmentSize;
        m_reno = 0;
        return Base::GetSsThresh(tcb, g_changes.windowCut && inFlight > 0 ? window : inFlight);
    }

  private:
    void KeepUpWithReno(Ptr<TcpSocketState> tcb, uint32_t segments)
    {
        if (tcb->m_cWnd < tcb->m_ssThresh)
        {
            return;
        }
        const double window = double(tcb->m_cWnd) / tcb->m_segmentSize;
        if (m_reno == 0)
        {
            m_reno = window;
        }
        m_reno += (m_reno < m_prior ? 3 * 0.3 / 1.7 : 1.0) * segments / window;
        if (m_reno >= window + 1)
        {
            tcb->m_cWnd = uint32_t(m_reno) * tcb->m_segmentSize;
        }
    }

    TcpSocketState::TcpCongState_t m_state = TcpSocketState::CA_OPEN;
    bool m_leaving = false;
    double m_prior = 0;
    double m_reno = 0;
};

// What the sender did since Begin().
struct Watch
{
    uint64_t cuts = 0;
    uint64_t timeouts = 0;
    double area = 0;
    double since = 0;
    double window = 0;

    void Window(uint32_t, uint32_t bytes)
    {
        Settle();
        window = bytes;
    }

    void State(TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t state)
    {
        cuts += state == TcpSocketState::CA_RECOVERY || state == TcpSocketState::CA_LOSS;
        timeouts += state == TcpSocketState::CA_LOSS;
    }

    void Settle()
    {
        const double now = Simulator::Now().GetSeconds();
        area += window * (now - since);
        since = now;
    }

    void Begin()
    {
        Settle();
        cuts = timeouts = 0;
        area = 0;
    }
};

static int Fail(const std::string& what)
{
    std::cerr << "reference: " << what << std::endl;
    return 2;
}

int main(int argc, char* argv[])
{
    std::string controller = "newreno";
    std::string with;
    std::string recovery = "prr";
    double rateMbit = 50, rttMs = 100, loss = 0, leastRtoMs = 400, seconds = 100, rtt0Ms = 25;
    uint64_t queue = 625000, segments = 100000, skip = 10000, seed = 1;
    uint32_t mss = 1460, every = 2, ssthresh = 0, alpha = 2, beta = 3, gamma = 1;
    bool timestamps = false, hystart = false, limitedTransmit = false, latestRtt = false;

    CommandLine line;
    line.AddValue("controller", "newreno, linuxreno, cubic, hybla, veno or vegas", controller);
    line.AddValue("with", "changes, with commas: segments, window-cut, freeze, friendly, halve, slow-half, rho", with);
    line.AddValue("recovery", "prr or classic", recovery);
    line.AddValue("rate-mbit", "rate of the link in Mbit/s, IP headers counted", rateMbit);
    line.AddValue("rtt-ms", "round trip of the empty link", rttMs);
    line.AddValue("loss", "share of data packets lost at random", loss);
    line.AddValue("queue", "drop-tail queue in bytes of IP", queue);
    line.AddValue("least-rto-ms", "least retransmission timeout", leastRtoMs);
    line.AddValue("segments", "stop after so many segments were delivered", segments);
    line.AddValue("skip", "measure after so many segments", skip);
    line.AddValue("seconds", "stop after so much time", seconds);
    line.AddValue("seed", "random run", seed);
    line.AddValue("mss", "payload of a segment", mss);
    line.AddValue("ack-every", "segments per delayed ACK", every);
    line.AddValue("ssthresh", "first slow start threshold in bytes, 0 for none", ssthresh);
    line.AddValue("rtt0-ms", "Hybla's reference round trip", rtt0Ms);
    line.AddValue("alpha", "Vegas's alpha", alpha);
    line.AddValue("beta", "Vegas's beta", beta);
    line.AddValue("gamma", "Vegas's gamma", gamma);
    line.AddValue("timestamps", "TCP timestamps, in ns-3 of 1 ms", timestamps);
    line.AddValue("hystart", "CUBIC's HyStart", hystart);
    line.AddValue("limited-transmit", "RFC 3042", limitedTransmit);
    line.AddValue("latest-rtt", "controllers see the latest round trip, not the smoothed one", latestRtt);
    line.Parse(argc, argv);

    const std::map<std::string, bool*> changes = {{"segments", &g_changes.segments},
                                                  {"window-cut", &g_changes.windowCut},
                                                  {"freeze", &g_changes.freeze},
                                                  {"friendly", &g_changes.friendly},
                                                  {"halve", &g_changes.halve},
                                                  {"slow-half", &g_changes.slowHalf},
                                                  {"rho", &g_changes.rho}};
    std::istringstream words(with);
    for (std::string word; std::getline(words, word, ',');)
    {
        const auto change = changes.find(word);
        if (change == changes.end())
        {
            return Fail("--with knows no \"" + word + "\"");
        }
        *change->second = true;
    }
    const std::map<std::string, TypeId> types =
        with.empty() ? std::map<std::string, TypeId>{{"newreno", TcpNewReno::GetTypeId()},
                                                     {"linuxreno", TcpLinuxReno::GetTypeId()},
                                                     {"cubic", TcpCubic::GetTypeId()},
                                                     {"hybla", TcpHybla::GetTypeId()},
                                                     {"veno", TcpVeno::GetTypeId()},
                                                     {"vegas", TcpVegas::GetTypeId()}}
                     : std::map<std::string, TypeId>{{"newreno", Changed<TcpNewReno>::GetTypeId()},
                                                     {"linuxreno", Changed<TcpLinuxReno>::GetTypeId()},
                                                     {"cubic", Changed<TcpCubic>::GetTypeId()},
                                                     {"hybla", Changed<TcpHybla>::GetTypeId()},
                                                     {"veno", Changed<TcpVeno>::GetTypeId()},
                                                     {"vegas", Changed<TcpVegas>::GetTypeId()}};
    const auto type = types.find(controller);
    if (type == types.end())
    {
        return Fail("no controller is called \"" + controller + "\"");
    }
    if (recovery != "prr" && recovery != "classic")
    {
        return Fail("--recovery wants prr or classic, has \"" + recovery + "\"");
    }

    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(seed);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(type->second));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                       TypeIdValue(recovery == "prr" ? TcpPrrRecovery::GetTypeId()
                                                     : TcpClassicRecovery::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(mss));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    if (ssthresh > 0)
    {
        Config::SetDefault("ns3::TcpSocket::InitialSlowStartThreshold", UintegerValue(ssthresh));
    }
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(every));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    // Larger than any window here, and more patience than any series of timeouts here.
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 28));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 28));
    Config::SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(1000));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(leastRtoMs / 1000)));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(timestamps));
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(limitedTransmit));
    if (latestRtt)
    {
        Config::SetDefault("ns3::RttMeanDeviation::Alpha", DoubleValue(1));
    }
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(hystart));
    Config::SetDefault("ns3::TcpHybla::RRTT", TimeValue(Seconds(rtt0Ms / 1000)));
    Config::SetDefault("ns3::TcpVegas::Alpha", UintegerValue(alpha));
    Config::SetDefault("ns3::TcpVegas::Beta", UintegerValue(beta));
    Config::SetDefault("ns3::TcpVegas::Gamma", UintegerValue(gamma));

    // The link counts its own two bytes per packet; rate and queue grow by as much for full packets.
    const double packet = mss + 40 + (timestamps ? 12 : 0);
    const double share = (packet + 2) / packet;
    NodeContainer nodes;
    nodes.Create(2);
    PointToPointHelper link;
    link.SetChannelAttribute("Delay", TimeValue(Seconds(rttMs / 2000)));
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(rateMbit * 1e6 * share))));
    link.SetQueue("ns3::DropTailQueue",
                  "MaxSize",
                  QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, uint32_t(queue * share))));
    NetDeviceContainer devices = link.Install(nodes);
    Ptr<RateErrorModel> errors = CreateObject<RateErrorModel>();
    errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
    errors->SetRate(loss);
    devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));

    InternetStackHelper internet;
    internet.Install(nodes);
    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    // The device's queue alone decides, as on our link.
    TrafficControlHelper().Uninstall(devices);

    const uint16_t port = 5000;
    PacketSinkHelper sinkHelper("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    ApplicationContainer sinks = sinkHelper.Install(nodes.Get(1));
    BulkSendHelper sourceHelper("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(1), port));
    sourceHelper.SetAttribute("SendSize", UintegerValue(mss));
    ApplicationContainer sources = sourceHelper.Install(nodes.Get(0));
    Ptr<PacketSink> sink = DynamicCast<PacketSink>(sinks.Get(0));
    Ptr<BulkSendApplication> source = DynamicCast<BulkSendApplication>(sources.Get(0));

    Watch watch;
    Simulator::Schedule(NanoSeconds(1), [&] {
        source->GetSocket()->TraceConnectWithoutContext("CongestionWindow", MakeCallback(&Watch::Window, &watch));
        source->GetSocket()->TraceConnectWithoutContext("CongState", MakeCallback(&Watch::State, &watch));
    });

    // Looked at ten times a second, as the other program does.
    const Time step = MilliSeconds(100);
    bool begun = false;
    double from = 0;
    uint64_t before = 0;
    std::function<void()> look = [&] {
        const uint64_t got = sink->GetTotalRx();
        if (!begun && got >= skip * mss)
        {
            begun = true;
            from = Simulator::Now().GetSeconds();
            before = got;
            watch.Begin();
        }
        if (got >= segments * mss || Simulator::Now().GetSeconds() >= seconds)
        {
            Simulator::Stop();
            return;
        }
        Simulator::Schedule(step, look);
    };
    Simulator::Schedule(step, look);
    Simulator::Run();

    watch.Settle();
    const double time = Simulator::Now().GetSeconds() - from;
    const uint64_t got = sink->GetTotalRx() - before;
    Simulator::Destroy();
    if (!begun || time <= 0)
    {
        return Fail("the flow did not deliver " + std::to_string(skip) + " segments in time");
    }
    std::cout << 8 * got / time << ',' << time << ',' << watch.cuts << ',' << watch.timeouts << ','
              << watch.area / time / mss << std::endl;
    return 0;
}
