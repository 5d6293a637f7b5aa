//! Which frames a ring takes, as a program that the kernel runs on every packet.
//!
//! The same question is asked twice of a query while rings answer: by the filter of the packet socket, which keeps what
//! the answer is *yes* to, and by the filter of the shadowed UDP socket, which keeps what it is *no* to. Both are made
//! from one list of steps and look only at what both see alike: the interface, and the packet from its IP header on.
//!
//! What is not taken is left to the sockets: fragments, IP options, IPv6 extension headers, VLAN tags, broadcast frames,
//! queries longer than a slot, interfaces that are not Ethernet, and addresses that are not ours (a router's ring must
//! not answer what the host only forwards).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;

use libc::sock_filter;

use crate::frame::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_UDP};
use crate::sys;

/// `BPF_MAXINSNS`, include/uapi/linux/bpf_common.h.
const MAX_INSTRUCTIONS: usize = 4096;

/// What the rings answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// Interfaces, by their index.
    pub interfaces: Vec<u32>,
    /// IPv4 addresses and ports.
    pub ipv4: Vec<(Ipv4Addr, u16)>,
    /// IPv6 addresses and ports.
    pub ipv6: Vec<(Ipv6Addr, u16)>,
    /// Broadcast addresses of the interfaces' networks: nobody's source.
    pub broadcasts: Vec<Ipv4Addr>,
    /// Octets of the longest IP packet that is taken.
    pub max_packet_octets: u16,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// `PACKET_HOST` is 0: the frame is for this host's hardware address alone.
    PacketType,
    /// The interface.
    Interface,
    /// Priority and number of the VLAN; 0 without a tag.
    VlanTag,
    /// The Ethernet type.
    Protocol,
    /// One, two or four octets at an offset from the start of the IP header.
    Network { offset: u32, n_octets: u32 },
}

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// Is it equal?
    Equals,
    /// Is it greater?
    Exceeds,
    /// Has it one of these bits?
    HasBits,
}

/// What a value is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    /// A number.
    Number(u32),
    /// The number that stands in this word of a table, which may change while the program is in use. Classic programs
    /// know no table: see [`crate::handoff`].
    Word(usize),
}

/// A place in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(pub(crate) usize);

/// One step of the program. There is one value at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Reads a value.
    Load(Field),
    /// Goes to a place if the outcome of the test is `wanted`.
    GoIf { test: Test, operand: Operand, wanted: bool, to: Label },
    /// Goes to a place if a word of the table is zero, as those are that are not in use.
    GoIfUnused { word: usize, to: Label },
    /// Goes to a place.
    Go(Label),
    /// The place itself.
    Here(Label),
    /// The frame is the ring's.
    Take,
    /// The frame is the sockets'.
    Leave,
}

const LEAVE: Label = Label(0);
const TAKE: Label = Label(1);
const ON_INTERFACE: Label = Label(2);
const IPV6: Label = Label(3);
const PORT: Label = Label(4);
const PORT_IPV6: Label = Label(5);
const IPV4_ADDRESS: Label = Label(6);
/// Labels with a name; more are made as they are needed, one a step at most.
pub(crate) const FREE_LABELS: usize = 7;

/// Builds the list of steps.
struct Steps {
    steps: Vec<Step>,
    next_label: usize,
}

impl Steps {
    fn load(&mut self, offset: u32, n_octets: u32) {
        self.steps.push(Step::Load(Field::Network { offset, n_octets }));
    }

    fn go_if(&mut self, test: Test, number: u32, to: Label) {
        self.steps.push(Step::GoIf { test, operand: Operand::Number(number), wanted: true, to });
    }

    fn go_unless(&mut self, test: Test, number: u32, to: Label) {
        self.steps.push(Step::GoIf { test, operand: Operand::Number(number), wanted: false, to });
    }

    fn go_if_equal(&mut self, operand: Operand, to: Label) {
        self.steps.push(Step::GoIf { test: Test::Equals, operand, wanted: true, to });
    }

    /// Goes to `to` when neither this operand nor those behind it are in use.
    fn go_if_unused(&mut self, operand: Operand, to: Label) {
        if let Operand::Word(word) = operand {
            self.steps.push(Step::GoIfUnused { word, to });
        }
    }

    fn label(&mut self) -> Label {
        self.next_label += 1;
        Label(self.next_label - 1)
    }

    /// Goes on at `to` when the port at `offset` is one of `ports`, else leaves the frame: most packets of a host are not
    /// queries, and are done with here.
    fn require_port(&mut self, offset: u32, ports: &[u16], to: Label) {
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        ports.dedup();
        self.load(offset, 2);
        for port in ports {
            self.go_if(Test::Equals, u32::from(port), to);
        }
        self.steps.push(Step::Go(LEAVE));
    }

    /// Takes what is sent to an address whose words start at `offset`, and to its port.
    fn take_address<const N: usize>(&mut self, wanted: &Listened<N>, offset: u32, port_offset: u32) {
        let next = self.label();
        self.go_if_unused(wanted.port, LEAVE);
        for (at, word) in (offset..).step_by(4).zip(wanted.address) {
            self.load(at, 4);
            self.steps.push(Step::GoIf { test: Test::Equals, operand: word, wanted: false, to: next });
        }
        self.load(port_offset, 2);
        self.go_if_equal(wanted.port, TAKE);
        self.steps.push(Step::Here(next));
    }
}

/// An address of `N` words, and a port of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listened<const N: usize> {
    pub(crate) address: [Operand; N],
    /// Never zero where it is in use.
    pub(crate) port: Operand,
}

/// What a program compares with: what is taken, as numbers or as words of a table.
#[derive(Debug)]
pub(crate) struct Operands {
    pub(crate) interfaces: Vec<Operand>,
    pub(crate) broadcasts: Vec<Operand>,
    pub(crate) ipv4: Vec<Listened<1>>,
    pub(crate) ipv6: Vec<Listened<4>>,
    /// The ports of all addresses; they do not change.
    pub(crate) ports: Vec<u16>,
    pub(crate) max_packet_octets: u16,
}

impl Taken {
    /// Whether there is anything that rings could answer.
    pub fn is_empty(&self) -> bool {
        self.interfaces.is_empty() || (self.ipv4.is_empty() && self.ipv6.is_empty())
    }

    /// What the program compares with, as numbers.
    fn numbers(&self) -> Operands {
        let port = |port: u16| Operand::Number(u32::from(port));
        let ports = self.ipv4.iter().map(|(_, port)| *port).chain(self.ipv6.iter().map(|(_, port)| *port));
        Operands {
            interfaces: self.interfaces.iter().copied().map(Operand::Number).collect(),
            broadcasts: self.broadcasts.iter().map(|ip| Operand::Number(u32::from(*ip))).collect(),
            ipv4: self
                .ipv4
                .iter()
                .map(|(ip, of)| Listened { address: [Operand::Number(u32::from(*ip))], port: port(*of) })
                .collect(),
            ipv6: self
                .ipv6
                .iter()
                .map(|(ip, of)| Listened { address: words(*ip).map(Operand::Number), port: port(*of) })
                .collect(),
            ports: ports.collect(),
            max_packet_octets: self.max_packet_octets,
        }
    }

    /// The program as steps.
    fn steps(&self) -> Vec<Step> {
        self.numbers().steps()
    }

    /// The program of the packet socket: takes or leaves.
    pub(crate) fn ring_program(&self) -> io::Result<Vec<sock_filter>> {
        classic(&self.steps(), WHOLE_PACKET, NOTHING)
    }

    /// The program of the shadowed UDP socket: leaves to the ring what that takes.
    pub(crate) fn shadow_program(&self) -> io::Result<Vec<sock_filter>> {
        classic(&self.steps(), NOTHING, WHOLE_PACKET)
    }
}

impl Operands {
    /// The program as steps.
    pub(crate) fn steps(&self) -> Vec<Step> {
        // The verifier of programs refuses steps that nothing leads to.
        if self.interfaces.is_empty() || (self.ipv4.is_empty() && self.ipv6.is_empty()) {
            return vec![Step::Leave];
        }
        let mut program = Steps { steps: Vec::new(), next_label: FREE_LABELS };
        program.steps.push(Step::Load(Field::PacketType));
        program.go_unless(Test::Equals, 0, LEAVE);
        program.steps.push(Step::Load(Field::Interface));
        for interface in &self.interfaces {
            program.go_if_unused(*interface, LEAVE);
            program.go_if_equal(*interface, ON_INTERFACE);
        }
        program.steps.extend([Step::Go(LEAVE), Step::Here(ON_INTERFACE), Step::Load(Field::VlanTag)]);
        // VLAN 0 is a priority without a VLAN (IEEE 802.1Q): the kernel treats it as untagged.
        program.go_if(Test::HasBits, 0x0FFF, LEAVE);
        program.steps.push(Step::Load(Field::Protocol));
        program.go_if(Test::Equals, u32::from(ETHERTYPE_IPV6), IPV6);
        program.go_unless(Test::Equals, u32::from(ETHERTYPE_IPV4), LEAVE);
        self.ipv4_steps(&mut program);
        program.steps.push(Step::Here(IPV6));
        self.ipv6_steps(&mut program);
        program.steps.extend([Step::Here(LEAVE), Step::Leave, Step::Here(TAKE), Step::Take]);
        program.steps
    }

    fn ipv4_steps(&self, program: &mut Steps) {
        if self.ipv4.is_empty() {
            return program.steps.push(Step::Go(LEAVE));
        }
        program.load(9, 1);
        program.go_unless(Test::Equals, u32::from(PROTOCOL_UDP), LEAVE);
        program.load(0, 1);
        program.go_unless(Test::Equals, 0x45, LEAVE);
        program.load(6, 2);
        program.go_if(Test::HasBits, 0x3FFF, LEAVE);
        program.load(2, 2);
        program.go_if(Test::Exceeds, u32::from(self.max_packet_octets), LEAVE);
        program.require_port(22, &self.ports, PORT);
        program.steps.push(Step::Here(PORT));
        program.load(12, 4);
        for broadcast in &self.broadcasts {
            program.go_if_unused(*broadcast, IPV4_ADDRESS);
            program.go_if_equal(*broadcast, LEAVE);
        }
        program.steps.push(Step::Here(IPV4_ADDRESS));
        for listened in &self.ipv4 {
            program.take_address(listened, 16, 22);
        }
        program.steps.push(Step::Go(LEAVE));
    }

    fn ipv6_steps(&self, program: &mut Steps) {
        if self.ipv6.is_empty() {
            return program.steps.push(Step::Go(LEAVE));
        }
        program.load(6, 1);
        program.go_unless(Test::Equals, u32::from(PROTOCOL_UDP), LEAVE);
        program.load(4, 2);
        // The header's own 40 octets are not counted in its length field.
        let longest = u32::from(self.max_packet_octets).saturating_sub(40);
        program.go_if(Test::Exceeds, longest, LEAVE);
        program.require_port(42, &self.ports, PORT_IPV6);
        program.steps.push(Step::Here(PORT_IPV6));
        for listened in &self.ipv6 {
            program.take_address(listened, 24, 42);
        }
        program.steps.push(Step::Go(LEAVE));
    }
}

/// The four words of an address.
pub(crate) fn words(ip: Ipv6Addr) -> [u32; 4] {
    let [a, b, c, d, e, f, g, h] = ip.segments().map(u32::from);
    [a << 16 | b, c << 16 | d, e << 16 | f, g << 16 | h]
}

/// A filter's result: octets of the packet to keep.
const WHOLE_PACKET: u32 = u32::MAX;
const NOTHING: u32 = 0;

/// The program that keeps nothing.
pub(crate) fn nothing() -> [sock_filter; 1] {
    [statement(libc::BPF_RET | libc::BPF_K, NOTHING)]
}

/// Attaches a program to a socket in place of the one that it may have (socket(7), `SO_ATTACH_FILTER`): no right is needed.
pub(crate) fn attach(socket: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel only reads the program; the C type has no const.
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}

/// Takes a socket's filter off; none is fine.
pub(crate) fn detach(socket: BorrowedFd<'_>) -> io::Result<()> {
    match sys::set_int(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

/// Translates steps to classic BPF (Documentation/networking/filter.rst). Conditional jumps there reach 255 instructions
/// far; where that is not enough, each becomes a skip over an unconditional one, which reaches any distance.
fn classic(steps: &[Step], taken: u32, left: u32) -> io::Result<Vec<sock_filter>> {
    let program = translate(steps, taken, left, false).or_else(|| translate(steps, taken, left, true));
    program
        .filter(|program| program.len() <= MAX_INSTRUCTIONS)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too many addresses for a packet filter"))
}

/// `None` when a jump is too far.
fn translate(steps: &[Step], taken: u32, left: u32, far: bool) -> Option<Vec<sock_filter>> {
    let mut program = Vec::with_capacity(steps.len() * 2);
    let mut places = vec![0; steps.len() + FREE_LABELS];
    let mut jumps = Vec::new();
    for step in steps {
        match *step {
            Step::Load(field) => program.push(classic_load(field)),
            Step::GoIfUnused { .. } | Step::GoIf { operand: Operand::Word(_), .. } => return None,
            Step::GoIf { test, operand: Operand::Number(operand), wanted, to } => {
                let code = match test {
                    Test::Equals => libc::BPF_JEQ,
                    Test::Exceeds => libc::BPF_JGT,
                    Test::HasBits => libc::BPF_JSET,
                };
                let jump = statement(libc::BPF_JMP | code | libc::BPF_K, operand);
                if far {
                    program.push(sock_filter { jt: u8::from(!wanted), jf: u8::from(wanted), ..jump });
                    jumps.push((program.len(), Reach::Any, to));
                    program.push(statement(libc::BPF_JMP | libc::BPF_JA, 0));
                } else {
                    jumps.push((program.len(), if wanted { Reach::IfSo } else { Reach::IfNot }, to));
                    program.push(jump);
                }
            }
            Step::Go(to) => {
                jumps.push((program.len(), Reach::Any, to));
                program.push(statement(libc::BPF_JMP | libc::BPF_JA, 0));
            }
            Step::Here(Label(label)) => places[label] = program.len(),
            Step::Take => program.push(statement(libc::BPF_RET | libc::BPF_K, taken)),
            Step::Leave => program.push(statement(libc::BPF_RET | libc::BPF_K, left)),
        }
    }
    for (from, reach, Label(to)) in jumps {
        // All labels lie behind the jumps to them.
        let distance = places[to] - from - 1;
        match reach {
            Reach::Any => program[from].k = u32::try_from(distance).ok()?,
            Reach::IfSo => program[from].jt = u8::try_from(distance).ok()?,
            Reach::IfNot => program[from].jf = u8::try_from(distance).ok()?,
        }
    }
    Some(program)
}

/// Which field of an instruction holds the distance of a jump.
#[derive(Debug, Clone, Copy)]
enum Reach {
    Any,
    IfSo,
    IfNot,
}

fn classic_load(field: Field) -> sock_filter {
    let word = |place: i32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, place.cast_unsigned());
    match field {
        Field::PacketType => word(libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE),
        Field::Interface => word(libc::SKF_AD_OFF + libc::SKF_AD_IFINDEX),
        Field::VlanTag => word(libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG),
        Field::Protocol => word(libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL),
        Field::Network { offset, n_octets } => {
            let size = match n_octets {
                1 => libc::BPF_B,
                2 => libc::BPF_H,
                _ => libc::BPF_W,
            };
            let place = libc::SKF_NET_OFF.cast_unsigned().wrapping_add(offset);
            statement(libc::BPF_LD | size | libc::BPF_ABS, place)
        }
    }
}

/// One instruction without a jump. Codes are eight bits wide in truth.
fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::frame;

    /// What the kernel knows of a frame besides its octets.
    #[derive(Clone, Copy)]
    struct Met {
        packet_type: u32,
        interface: u32,
        vlan_tag: u32,
    }

    const PLAIN: Met = Met { packet_type: 0, interface: 7, vlan_tag: 0 };

    fn field(field: Field, frame: &[u8], met: Met) -> Option<u32> {
        match field {
            Field::PacketType => Some(met.packet_type),
            Field::Interface => Some(met.interface),
            Field::VlanTag => Some(met.vlan_tag),
            Field::Protocol => Some(u32::from_be_bytes([0, 0, frame[12], frame[13]])),
            Field::Network { offset, n_octets } => {
                let start = 14 + offset as usize;
                let octets = frame.get(start..start + n_octets as usize)?;
                Some(octets.iter().fold(0, |value, octet| value << 8 | u32::from(*octet)))
            }
        }
    }

    /// Runs the classic program as the kernel does; loads beyond the end drop the packet.
    fn run(program: &[sock_filter], frame: &[u8], met: Met) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let code = u32::from(code);
            let jump = |holds: bool| usize::from(if holds { jt } else { jf });
            match code & 0x07 {
                libc::BPF_LD => {
                    let fields = [Field::PacketType, Field::Interface, Field::VlanTag, Field::Protocol];
                    let special = fields.into_iter().find(|f| classic_load(*f).k == k);
                    let n_octets = match code & 0x18 {
                        libc::BPF_B => 1,
                        libc::BPF_H => 2,
                        _ => 4,
                    };
                    let offset = k.wrapping_sub(libc::SKF_NET_OFF.cast_unsigned());
                    let which = special.unwrap_or(Field::Network { offset, n_octets });
                    let Some(loaded) = field(which, frame, met) else { return 0 };
                    value = loaded;
                }
                libc::BPF_RET => return k,
                _ => match code & 0xF0 {
                    libc::BPF_JA => at += k as usize,
                    libc::BPF_JEQ => at += jump(value == k),
                    libc::BPF_JGT => at += jump(value > k),
                    _ => at += jump(value & k != 0),
                },
            }
        }
    }

    fn taken() -> Taken {
        Taken {
            interfaces: vec![3, 7],
            ipv4: vec![("192.0.2.53".parse().unwrap(), 53), ("192.0.2.54".parse().unwrap(), 5300)],
            ipv6: vec![("2001:db8::53".parse().unwrap(), 53)],
            broadcasts: vec!["192.0.2.255".parse().unwrap()],
            max_packet_octets: 400,
        }
    }

    /// Whether the ring takes it; the socket has to say the opposite.
    fn takes(taken: &Taken, frame: &[u8], met: Met) -> bool {
        let ring = run(&taken.ring_program().unwrap(), frame, met) != 0;
        let socket = run(&taken.shadow_program().unwrap(), frame, met) != 0;
        assert_ne!(ring, socket, "either the ring or the socket answers");
        ring
    }

    const V4: (&str, &str) = ("192.0.2.1:4242", "192.0.2.53:53");
    const V6: (&str, &str) = ("[2001:db8::1]:4242", "[2001:db8::53]:53");

    #[test]
    fn queries_to_our_addresses_and_ports_are_taken() {
        for (from, to, expected) in [
            (V4.0, V4.1, true),
            (V4.0, "192.0.2.54:5300", true),
            (V4.0, "192.0.2.54:53", false),
            (V4.0, "192.0.2.53:5300", false),
            (V4.0, "192.0.2.55:53", false),
            (V4.0, "192.0.2.53:54", false),
            ("192.0.2.255:1", V4.1, false),
            (V6.0, V6.1, true),
            (V6.0, "[2001:db8::54]:53", false),
            (V6.0, "[2001:db9::53]:53", false),
            (V6.0, "[2001:db8::53]:5300", false),
        ] {
            assert_eq!(takes(&taken(), &frame(from, to, b"question"), PLAIN), expected, "{from} to {to}");
        }
    }

    #[test]
    fn without_an_interface_or_an_address_nothing_is_taken() {
        let query = frame(V4.0, V4.1, b"question");
        for empty in [
            Taken { interfaces: Vec::new(), ..taken() },
            Taken { ipv4: Vec::new(), ipv6: Vec::new(), ..taken() },
        ] {
            assert!(!takes(&empty, &query, PLAIN), "{empty:?}");
        }
    }

    #[test]
    fn other_interfaces_hosts_and_vlans_are_left_alone() {
        let query = frame(V4.0, V4.1, b"question");
        for (met, expected) in [
            (Met { interface: 3, ..PLAIN }, true),
            (Met { interface: 4, ..PLAIN }, false),
            (Met { packet_type: 1, ..PLAIN }, false),
            (Met { packet_type: 3, ..PLAIN }, false),
            (Met { vlan_tag: 0x2005, ..PLAIN }, false),
            (Met { vlan_tag: 0xA000, ..PLAIN }, true),
        ] {
            assert_eq!(takes(&taken(), &query, met), expected);
        }
    }

    #[test]
    fn odd_packets_are_left_to_the_sockets() {
        for (offset, value) in [(14, 0x46), (20, 0x20), (21, 1), (23, 6), (13, 6)] {
            let mut query = frame(V4.0, V4.1, b"question");
            query[offset] = value;
            assert!(!takes(&taken(), &query, PLAIN), "{offset}");
        }
        for (offset, value) in [(20, 0), (20, 44), (20, 60)] {
            let mut query = frame(V6.0, V6.1, b"question");
            query[offset] = value;
            assert!(!takes(&taken(), &query, PLAIN), "{offset}");
        }
        // "Do not fragment" is not odd.
        let mut query = frame(V4.0, V4.1, b"question");
        query[20] = 0x40;
        assert!(takes(&taken(), &query, PLAIN));
    }

    #[test]
    fn packets_longer_than_a_slot_are_left_to_the_sockets() {
        for (n_octets, expected) in [(372, true), (373, false)] {
            assert_eq!(takes(&taken(), &frame(V4.0, V4.1, &vec![0; n_octets]), PLAIN), expected);
        }
        for (n_octets, expected) in [(352, true), (353, false)] {
            assert_eq!(takes(&taken(), &frame(V6.0, V6.1, &vec![0; n_octets]), PLAIN), expected);
        }
    }

    #[test]
    fn more_addresses_than_a_program_can_hold_are_an_error() {
        let ipv4 = (0..1024_u32).map(|n| (Ipv4Addr::from(n), 53)).collect();
        assert!(Taken { ipv4, ..taken() }.ring_program().is_err());
    }

    #[test]
    fn hundreds_of_addresses_are_told_apart() {
        let ipv4 = (0..500_u32).map(|n| (Ipv4Addr::from(0xC633_6400 + n), 53)).collect();
        let many = Taken { ipv4, ..taken() };
        for (to, expected) in
            [("198.51.100.0:53", true), ("198.51.101.243:53", true), ("198.51.101.244:53", false)]
        {
            assert_eq!(takes(&many, &frame(V4.0, to, b"q"), PLAIN), expected, "{to}");
        }
    }
}
