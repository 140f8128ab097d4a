//! The two config files as text, every key with its reason.

use skyhaul_cc::units::{Duration, Rate};
use skyhaul_pep::auth::PublicKey;

use super::Plan;
use crate::config::{
    Prefix, Role, DEFAULT_CONNECT_TIMEOUT, DEFAULT_DENY, DEFAULT_FLOWS, DEFAULT_MEMORY, DEFAULT_MTU,
    DEFAULT_ROUTE_MARK,
};

/// The terminal's file.
pub fn terminal(plan: &Plan, gateway: PublicKey) -> String {
    let head = format!(
        "# Skyhaul terminal: the end at the satellite terminal, near the clients.\n\
         # Start: skyhaul terminal --config terminal.toml   (add --check to only check this file)\n\
         \n\
         [channel]\n\
         # UDP address of the gateway, as host:port.\n\
         gateway = \"{}\"\n\
         # Local UDP address; by default any address and a free port.\n\
         #bind = \"0.0.0.0:4434\"\n\
         {WIRE}\
         \n\
         [keys]\n\
         # This end's secret key. Relative to this file's folder; keep it at mode 0600.\n\
         secret_file = \"terminal.key\"\n\
         # The gateway's public key. A gateway with another key is refused.\n\
         peer = \"{gateway}\"\n",
        plan.gateway
    );
    let link = link(plan, plan.terminal_rate, "to the gateway");
    let intercept = intercept(plan, Role::Terminal);
    let socks5 =
        door("socks5", "A SOCKS5 proxy for clients that are told about it (no password)", plan.socks5);
    let http = door("http_connect", "An HTTP CONNECT proxy", plan.http_connect);
    let rest = rest(plan, Role::Terminal);
    [head, link, intercept, socks5, http, rest].join("\n")
}

/// The gateway's file.
pub fn gateway(plan: &Plan, terminal: PublicKey) -> String {
    let head = format!(
        "# Skyhaul gateway: the end on the ground, near the servers.\n\
         # Start: skyhaul gateway --config gateway.toml   (add --check to only check this file)\n\
         \n\
         [channel]\n\
         # Local UDP address to listen on.\n\
         listen = \"{}\"\n\
         {WIRE}\
         \n\
         [keys]\n\
         # This end's secret key. Relative to this file's folder; keep it at mode 0600.\n\
         secret_file = \"gateway.key\"\n\
         \n\
         # One [[peer]] for every terminal. Terminals with other keys are refused.\n\
         [[peer]]\n\
         # For messages.\n\
         name = {}\n\
         key = \"{terminal}\"\n\
         # Networks behind this terminal: says which terminal carries a connection that starts on this side,\n\
         # and for whom the terminal may speak when sources are preserved.\n\
         {}\n",
        plan.gateway_listen(),
        quoted(&plan.name),
        if plan.networks.is_empty() {
            "#networks = [\"10.77.1.0/24\", \"fd77:1::/64\"]".to_owned()
        } else {
            format!("networks = {}", list(&plan.networks))
        },
    );
    let link = link(plan, plan.gateway_rate, "to the terminal");
    let intercept = intercept(plan, Role::Gateway);
    let socks5 = door("socks5", "A SOCKS5 proxy for hosts on this side (no password)", None);
    let http = door("http_connect", "An HTTP CONNECT proxy", None);
    let rest = rest(plan, Role::Gateway);
    [head, link, intercept, socks5, http, rest].join("\n")
}

/// Keys of `[channel]` that both ends have.
const WIRE: &str = "\
    # Datagram shim: numbers every datagram and reports when each arrived. Off: plain QUIC on the wire.\n\
    #shim = true\n\
    # Repairs by code what is lost at the ends of bursts.\n\
    #repair = true\n";

fn link(plan: &Plan, rate: Option<Rate>, direction: &str) -> String {
    format!(
        "[link]\n\
         # Congestion controller for what this end sends: skyhaul (finds the rate, remembers it, starts at send_rate\n\
         # if that is given), rate (sends at send_rate whatever happens), or any other that `skyhaul list` shows.\n\
         controller = {}\n\
         # IP rate of the link {direction}, if it is yours alone; the controller \"rate\" needs it.\n\
         {}\n\
         # Round trip of the link, to start from.\n\
         rtt = \"{}\"\n\
         # Largest IP packet that crosses the path whole, in bytes (1280 to 9000).\n\
         #mtu = {}\n\
         # What to do about other traffic on the link: \"exclusive\" (the link is ours), \"share\" (equal shares), or\n\
         # \"scavenge\" (only what others leave). By default exclusive when send_rate is given, otherwise share.\n\
         #policy = \"share\"\n",
        quoted(&plan.controller),
        match rate {
            Some(rate) => format!("send_rate = \"{rate}\""),
            None => "#send_rate = \"150 Mbit/s\"".to_owned(),
        },
        millis(plan.rtt),
        DEFAULT_MTU.0,
    )
}

fn intercept(plan: &Plan, role: Role) -> String {
    let lan = match role {
        Role::Terminal => &plan.terminal_lan,
        Role::Gateway => &plan.gateway_lan,
    };
    let off = if lan.is_some() { "" } else { "#" };
    let only = match role {
        Role::Terminal => "all",
        Role::Gateway => "the peers' networks, or all if they have none",
    };
    format!(
        "# Takes clients' TCP connections from the wire; clients need not know. Needs root and nft.\n\
         {off}[intercept]\n\
         # Network devices on which clients' packets arrive.\n\
         {off}interfaces = [{}]\n\
         # Asks the other end to connect from the client's own address instead of its own.\n\
         {off}preserve_source = {}\n\
         # Only these destination ports; by default all.\n\
         #ports = [21, 80, 443, \"49152-65535\"]\n\
         # Only these destinations; by default {only}.\n\
         #only = [\"198.51.100.0/24\"]\n\
         # Connections from or to these take their usual way.\n\
         #exclude = [\"192.0.2.1\"]\n",
        quoted(lan.as_deref().unwrap_or("lan")),
        plan.preserve_source,
    )
}

fn door(section: &str, what: &str, listen: Option<std::net::SocketAddr>) -> String {
    let off = if listen.is_some() { "" } else { "#" };
    let listen = listen.map_or_else(|| "127.0.0.1:1080".to_owned(), |address| address.to_string());
    format!("# {what}. May be repeated.\n{off}[[{section}]]\n{off}listen = \"{listen}\"\n")
}

fn rest(plan: &Plan, role: Role) -> String {
    let other = match role {
        Role::Terminal => "gateway",
        Role::Gateway => "terminal",
    };
    let deny = DEFAULT_DENY.map(quoted).join(", ");
    format!(
        "# A local port that leads to one destination, reached by the {other}. May be repeated.\n\
         #[[forward]]\n\
         #listen = \"127.0.0.1:2222\"\n\
         #to = \"10.77.2.2:22\"\n\
         \n\
         # Which connections come first inside the channel: \"interactive\", \"normal\", \"bulk\" or \"background\". The first\n\
         # [[priority]] that fits counts; with ports and dscp both must fit. Without one, the mark (DSCP) of the client's\n\
         # first packet says: EF, CS4 to CS7, AF4x and AF2x are interactive, AF1x is bulk, CS1 and LE are background.\n\
         #[[priority]]\n\
         #class = \"interactive\"\n\
         #ports = [22, \"5000-5100\"]\n\
         \n\
         #[[priority]]\n\
         #class = \"background\"\n\
         #dscp = [\"cs1\", \"le\", 2]\n\
         \n\
         # What happens while the channel is no good: new connections that prefer it take plain TCP, running ones go on\n\
         # by TCP to the {other}, and both return when UDP has worked for a while.\n\
         [rollback]\n\
         #enabled = true\n\
         # Silence after which the channel counts as broken; four round trips if those are longer.\n\
         #detect = \"3 s\"\n\
         # How long UDP must work again before it is used again.\n\
         #hold = \"10 s\"\n\
         # Carry the channel by TCP while UDP does not get through.\n\
         #carriage = true\n\
         # A channel through which nothing has got for so long is given up and its connections are reset; the shorter time\n\
         # of both ends counts. They survive outages of the link that are shorter.\n\
         #give_up = \"15 min\"\n\
         # Congestion control of plain TCP connections made here; by default the kernel's.\n\
         #congestion = \"bbr\"\n\
         \n\
         # Who uses the channel: \"prefer\" (while it works), \"require\" (or nothing) or \"never\" (plain TCP). The first\n\
         # [[destination]] that fits counts; without one it is preferred. May be repeated.\n\
         #[[destination]]\n\
         #to = [\"192.0.2.0/24\", \"2001:db8::/32\", \"example.net\"]\n\
         #ports = [25, \"6000-6063\"]\n\
         #channel = \"never\"\n\
         \n\
         # What the {other} may reach through this end. A denied block counts more than an allowed one.\n\
         [egress]\n\
         #allow = [\"0.0.0.0/0\", \"::/0\"]\n\
         #deny = [{deny}]\n\
         # Connects from the client's own address when the {other} asks for it. Needs root, nft, and answers that\n\
         # are routed through this host.\n\
         preserve_source = {}\n\
         # Marks (DSCP) packets to destinations with the class of their connection.\n\
         #mark_dscp = false\n\
         \n\
         [limits]\n\
         # Data of all connections held at once.\n\
         #memory = \"{DEFAULT_MEMORY}\"\n\
         # Connections at once.\n\
         #flows = {DEFAULT_FLOWS}\n\
         # How long a destination may take to answer.\n\
         #connect_timeout = \"{} s\"\n\
         # Number of the firewall mark, routing table and routing rule used for intercepted packets.\n\
         #route_mark = {DEFAULT_ROUTE_MARK}\n\
         \n\
         # What the path to the {other} was like, kept so that the next connection starts at its rate; it is checked\n\
         # within the first round trip. `skyhaul paths` shows it.\n\
         [memory]\n\
         {}\n\
         # Where it is kept. Default: /var/lib/skyhaul/paths.redb for root, else in the user's state folder.\n\
         {}\n",
        plan.preserve_source,
        DEFAULT_CONNECT_TIMEOUT.as_secs(),
        if plan.memory.enabled { "#enabled = false" } else { "enabled = false" },
        match &plan.memory.file {
            Some(file) => format!("file = {}", quoted(&file.display().to_string())),
            None => format!("#file = {}", quoted(crate::memory::SYSTEM_FILE)),
        },
    )
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_secs_f64() * 1e3)
}

/// A TOML basic string (TOML 1.0, "String").
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn list(blocks: &[Prefix]) -> String {
    let quoted: Vec<_> = blocks.iter().map(|block| format!("\"{block}\"")).collect();
    format!("[{}]", quoted.join(", "))
}
