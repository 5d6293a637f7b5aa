//! The exact way to hand over between sockets and rings: two small eBPF programs, one cell a CPU, and a table.
//!
//! The tap of a packet socket bound to `ETH_P_ALL` runs before the UDP socket sees the same packet, on the same CPU and
//! without a pause between. So its filter leaves its verdict in the cell, and the UDP socket's filter obeys it: no
//! packet is answered twice or not at all, whenever the switch is thrown.
//!
//! What rings take, and whether they take anything, stands in the table, which is mapped into memory: interfaces and
//! addresses that come later are written there, and no right is needed for it, nor a system call, which kernels before 5.19
//! deny to the unprivileged (`kernel.unprivileged_bpf_disabled`).
//!
//! Loading programs takes `CAP_BPF`; attaching them and writing the table take nothing. Without that right, [`crate::filter`]'s
//! classic programs do the same with a gap of some microseconds a socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::filter::{FREE_LABELS, Field, Label, Listened, Operand, Operands, Step, Taken, Test, words};
use crate::sys::{self, Mapping, set_int};

/// Commands of bpf(2), kinds of maps and programs: include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_MMAPABLE: u32 = 1 << 10;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

/// Offsets in `struct __sk_buff`, which is how programs see a packet.
const SKB_PACKET_TYPE: i16 = 4;
const SKB_PROTOCOL: i16 = 16;
const SKB_VLAN_TAG: i16 = 24;
const SKB_INTERFACE: i16 = 40;

/// The programs, loaded, and the table.
#[derive(Debug)]
pub(crate) struct Handoff {
    table: Table,
    layout: Layout,
    /// One word a CPU: whether the ring took the packet under way. The programs hold it; kept for its lifetime's clarity.
    _verdict: OwnedFd,
    tap: OwnedFd,
    obey: OwnedFd,
}

impl Handoff {
    /// Loads the programs with `taken` in the table, room for what may come, and the switch off. `ports` are all that are
    /// listened to.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`; `EINVAL` before Linux 5.5, which maps no tables into memory.
    pub(crate) fn load(taken: &Taken, ports: &[u16]) -> io::Result<Self> {
        let layout = Layout::with_room_for(taken);
        let table = Table::new(layout.n_words())?;
        let verdict = create_map(MAP_TYPE_PERCPU_ARRAY, 4, 0)?;
        let steps = layout.operands(ports, taken.max_packet_octets).steps();
        let tap = load_program(&tap_program(&steps, &verdict, &table.map)?)?;
        let obey = load_program(&obey_program(&verdict))?;
        let handoff = Self { table, layout, _verdict: verdict, tap, obey };
        handoff.update(taken);
        Ok(handoff)
    }

    /// Throws the switch: from the next packet on, rings take what is theirs, or nothing.
    pub(crate) fn set(&self, rings: bool) {
        self.table.word(SWITCH).store(u32::from(rings), Ordering::Release);
    }

    /// Whether the table can hold `taken`, whose longest packet is the same as before.
    pub(crate) fn has_room_for(&self, taken: &Taken) -> bool {
        self.layout.has_room_for(taken)
    }

    /// Has rings take `taken` from now on, for which there has to be room. The switch has to be off, and packets under way
    /// past it.
    pub(crate) fn update(&self, taken: &Taken) {
        for (place, word) in self.layout.contents(taken).into_iter().enumerate() {
            self.table.word(SWITCH + 1 + place).store(word, Ordering::Relaxed);
        }
    }

    /// Makes a packet socket take what the tap's program says.
    pub(crate) fn attach_tap(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        set_int(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, self.tap.as_raw_fd())
    }

    /// Makes a UDP socket leave what the tap took.
    pub(crate) fn attach_obey(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        set_int(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, self.obey.as_raw_fd())
    }
}

/// The word that is the switch; the others are what is taken.
const SWITCH: usize = 0;
/// Places of each kind at least: a host that runs containers gets an interface or an address now and then.
const LEAST_PLACES: usize = 16;
/// Words of an IPv4 and of an IPv6 address, each with its port.
const IPV4_WORDS: usize = 2;
const IPV6_WORDS: usize = 5;

/// How many places the table has of each kind, in the order in which they lie there. Those that are not in use are behind the
/// others, and zero.
#[derive(Debug, Clone, Copy)]
struct Layout {
    interfaces: usize,
    broadcasts: usize,
    ipv4: usize,
    ipv6: usize,
}

impl Layout {
    /// Twice what is there, [`LEAST_PLACES`] at least.
    fn with_room_for(taken: &Taken) -> Layout {
        let places = |n: usize| (2 * n).max(LEAST_PLACES);
        Layout {
            interfaces: places(taken.interfaces.len()),
            broadcasts: places(taken.broadcasts.len()),
            ipv4: places(taken.ipv4.len()),
            ipv6: places(taken.ipv6.len()),
        }
    }

    fn has_room_for(&self, taken: &Taken) -> bool {
        taken.interfaces.len() <= self.interfaces
            && taken.broadcasts.len() <= self.broadcasts
            && taken.ipv4.len() <= self.ipv4
            && taken.ipv6.len() <= self.ipv6
    }

    fn n_words(&self) -> usize {
        SWITCH + 1 + self.interfaces + self.broadcasts + self.ipv4 * IPV4_WORDS + self.ipv6 * IPV6_WORDS
    }

    /// The words of the table behind the switch, as the program compares with them.
    fn operands(&self, ports: &[u16], max_packet_octets: u16) -> Operands {
        let mut next = SWITCH + 1;
        let mut word = || {
            next += 1;
            Operand::Word(next - 1)
        };
        Operands {
            interfaces: (0..self.interfaces).map(|_| word()).collect(),
            broadcasts: (0..self.broadcasts).map(|_| word()).collect(),
            ipv4: (0..self.ipv4).map(|_| Listened { address: [word()], port: word() }).collect(),
            ipv6: (0..self.ipv6)
                .map(|_| Listened { address: [word(), word(), word(), word()], port: word() })
                .collect(),
            ports: ports.to_vec(),
            max_packet_octets,
        }
    }

    /// What stands in these words for `taken`, for which there is room.
    fn contents(&self, taken: &Taken) -> Vec<u32> {
        let mut contents = taken.interfaces.clone();
        let mut end = self.interfaces;
        contents.resize(end, 0);
        contents.extend(taken.broadcasts.iter().map(|ip| u32::from(*ip)));
        end += self.broadcasts;
        contents.resize(end, 0);
        contents.extend(taken.ipv4.iter().flat_map(|(ip, port)| [u32::from(*ip), u32::from(*port)]));
        end += self.ipv4 * IPV4_WORDS;
        contents.resize(end, 0);
        for (ip, port) in &taken.ipv6 {
            contents.extend(words(*ip));
            contents.push(u32::from(*port));
        }
        contents.resize(end + self.ipv6 * IPV6_WORDS, 0);
        contents
    }
}

/// Words that the programs read, mapped into memory.
#[derive(Debug)]
struct Table {
    map: OwnedFd,
    /// invariant: `n_words` words, which kernel and process access as whole words.
    mapping: Mapping,
    n_words: usize,
}

impl Table {
    /// All words are zero.
    fn new(n_words: usize) -> io::Result<Self> {
        let n_octets = n_words * size_of::<u32>();
        let length = u32::try_from(n_octets).map_err(|_| io::ErrorKind::InvalidInput)?;
        let map = create_map(MAP_TYPE_ARRAY, length, MAP_MMAPABLE)?;
        let mapping = Mapping::new(map.as_fd(), n_octets)?;
        Ok(Self { map, mapping, n_words })
    }

    fn word(&self, place: usize) -> &AtomicU32 {
        assert!(place < self.n_words, "a layout and its table have the same length");
        let word = self.mapping.start().as_ptr().cast::<u32>().wrapping_add(place);
        // SAFETY: the word lies in the mapping (invariant; asserted), which is aligned to a page and lives as long as self;
        // it is accessed as a whole by everybody.
        unsafe { AtomicU32::from_ptr(word) }
    }
}

/// bpf(2). Addresses in `attributes` have to be valid for what the command does with them.
fn bpf(command: libc::c_int, attributes: &[u64]) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads `attributes` up to the given size; its callers in this file put there addresses of locals
    // and slices that outlive the call and that the kernel only reads.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(attributes)) };
    let result = libc::c_int::try_from(result).unwrap_or(-1);
    sys::check(result)
}

/// A command whose result is a new descriptor.
fn bpf_open(command: libc::c_int, attributes: &[u64]) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the descriptor was opened just now (close-on-exec, as bpf(2) always does) and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Two 32-bit fields of `union bpf_attr`, one after the other.
fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// A map with one value of `n_octets` under key 0.
fn create_map(kind: u32, n_octets: u32, flags: u32) -> io::Result<OwnedFd> {
    // map_type, key_size, value_size, max_entries, map_flags
    bpf_open(MAP_CREATE, &[pair(kind, 4), pair(n_octets, 1), pair(flags, 0)])
}

fn load_program(program: &[Instruction]) -> io::Result<OwnedFd> {
    let length = u32::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let license = c"Dual MIT/GPL";
    // prog_type, insn_cnt, insns, license, log_level, log_size, log_buf, kern_version, prog_flags
    bpf_open(
        PROG_LOAD,
        &[
            pair(PROG_TYPE_SOCKET_FILTER, length),
            program.as_ptr().addr() as u64,
            license.as_ptr().addr() as u64,
            0,
            0,
            0,
        ],
    )
}

/// `struct bpf_insn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Registers: results, arguments, the packet, the table, the verdict's cell, the frame pointer.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const PACKET: u8 = 6;
const TABLE: u8 = 8;
const CELL: u8 = 9;
const FRAME: u8 = 10;

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, immediate }
}

/// Instruction codes, Documentation/bpf/standardization/instruction-set.rst.
const fn set(to: u8, value: i32) -> Instruction {
    instruction(0xB7, to, 0, 0, value)
}
const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xBF, to, from, 0, 0)
}
const fn add(to: u8, value: i32) -> Instruction {
    instruction(0x07, to, 0, 0, value)
}
const fn load_word(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61, to, from, offset, 0)
}
const fn store_word(to: u8, offset: i16, value: i32) -> Instruction {
    instruction(0x62, to, 0, offset, value)
}
const fn call(helper: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, helper)
}
/// Compares as 64 bits, which suits addresses.
const fn skip_unless_zero(register: u8, n: i16) -> Instruction {
    instruction(0x55, register, 0, n, 0)
}
const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);

/// Makes R0 the address of the word in `map`, and ends the program with `without` when there is none, which the verifier
/// wants to see. Uses the stack's first word as the key.
fn look_up(map: &OwnedFd, without: i32) -> [Instruction; 9] {
    [
        instruction(0x18, R1, PSEUDO_MAP_FD, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        store_word(FRAME, -4, 0),
        copy(R2, FRAME),
        add(R2, -4),
        call(MAP_LOOKUP_ELEM),
        skip_unless_zero(R0, 2),
        set(R0, without),
        EXIT,
    ]
}

/// Keeps the whole packet, or nothing of it.
const WHOLE_PACKET: i32 = -1;
const NOTHING: i32 = 0;

/// The packet socket's program: sets the cell to what it decides. It is written first, so that a packet too short to be
/// looked at, which ends the program, leaves no stale verdict.
fn tap_program(steps: &[Step], verdict: &OwnedFd, table: &OwnedFd) -> io::Result<Vec<Instruction>> {
    let mut program = vec![copy(PACKET, R1)];
    program.extend(look_up(verdict, NOTHING));
    program.extend([copy(CELL, R0), store_word(CELL, 0, 0)]);
    // The address of the table's first word.
    program.extend([
        instruction(0x18, TABLE, PSEUDO_MAP_VALUE, 0, table.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        load_word(R0, TABLE, offset_of_word(SWITCH)?),
        skip_unless_zero(R0, 2),
        set(R0, NOTHING),
        EXIT,
    ]);
    translate(steps, &mut program)?;
    Ok(program)
}

/// The UDP socket's program: keeps what the ring did not take.
fn obey_program(verdict: &OwnedFd) -> Vec<Instruction> {
    let mut program = look_up(verdict, WHOLE_PACKET).to_vec();
    program.extend([
        load_word(R0, R0, 0),
        skip_unless_zero(R0, 2),
        set(R0, WHOLE_PACKET),
        EXIT,
        set(R0, NOTHING),
        EXIT,
    ]);
    program
}

/// Where a word of the table lies, as instructions have it.
fn offset_of_word(word: usize) -> io::Result<i16> {
    i16::try_from(word * size_of::<u32>()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Translates steps; the value is in R0.
fn translate(steps: &[Step], program: &mut Vec<Instruction>) -> io::Result<()> {
    let mut places = vec![0; steps.len() + FREE_LABELS];
    let mut jumps = Vec::new();
    for step in steps {
        match *step {
            Step::Load(field) => load(field, program),
            Step::GoIfUnused { word, to } => {
                program.push(load_word(R1, TABLE, offset_of_word(word)?));
                jumps.push((program.len(), to));
                program.push(instruction(0x16, R1, 0, 0, 0));
            }
            Step::GoIf { test, operand: Operand::Word(word), wanted, to } => {
                // Tables hold what has to be equal.
                if test != Test::Equals {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                program.push(load_word(R1, TABLE, offset_of_word(word)?));
                jumps.push((program.len(), to));
                // Compares two registers as 32 bits.
                program.push(instruction(if wanted { 0x1E } else { 0x5E }, R0, R1, 0, 0));
            }
            Step::GoIf { test, operand: Operand::Number(operand), wanted, to } => {
                let operand = operand.cast_signed();
                // Compared as 32 bits.
                let code = match (test, wanted) {
                    (Test::Equals, true) => 0x16,
                    (Test::Equals, false) => 0x56,
                    (Test::Exceeds, true) => 0x26,
                    (Test::Exceeds, false) => 0xB6,
                    (Test::HasBits, true) => 0x46,
                    (Test::HasBits, false) => {
                        // There is no opposite of it: skip over the jump.
                        program.push(instruction(0x46, R0, 0, 1, operand));
                        jumps.push((program.len(), to));
                        program.push(instruction(0x05, 0, 0, 0, 0));
                        continue;
                    }
                };
                jumps.push((program.len(), to));
                program.push(instruction(code, R0, 0, 0, operand));
            }
            Step::Go(to) => {
                jumps.push((program.len(), to));
                program.push(instruction(0x05, 0, 0, 0, 0));
            }
            Step::Here(Label(label)) => places[label] = program.len(),
            Step::Take => program.extend([store_word(CELL, 0, 1), set(R0, WHOLE_PACKET), EXIT]),
            Step::Leave => program.extend([set(R0, NOTHING), EXIT]),
        }
    }
    for (from, Label(to)) in jumps {
        program[from].offset =
            i16::try_from(places[to] - from - 1).map_err(|_| io::ErrorKind::InvalidInput)?;
    }
    Ok(())
}

fn load(field: Field, program: &mut Vec<Instruction>) {
    match field {
        Field::PacketType => program.push(load_word(R0, PACKET, SKB_PACKET_TYPE)),
        Field::Interface => program.push(load_word(R0, PACKET, SKB_INTERFACE)),
        Field::VlanTag => program.push(load_word(R0, PACKET, SKB_VLAN_TAG)),
        // In network order there; a conversion from big endian to the machine's order, of 16 bits.
        Field::Protocol => {
            program.extend([load_word(R0, PACKET, SKB_PROTOCOL), instruction(0xDC, R0, 0, 0, 16)]);
        }
        Field::Network { offset, n_octets } => {
            let code = match n_octets {
                1 => 0x30,
                2 => 0x28,
                _ => 0x20,
            };
            let place = libc::SKF_NET_OFF.wrapping_add(offset.cast_signed());
            program.push(instruction(code, 0, 0, 0, place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(n: u8) -> Taken {
        Taken {
            interfaces: (1..=u32::from(n)).collect(),
            ipv4: (1..=n).map(|i| ([192, 0, 2, i].into(), 53)).collect(),
            ipv6: (1..=n).map(|i| ([0x2001, 0xDB8, 0, 0, 0, 0, 0, u16::from(i)].into(), 5300)).collect(),
            broadcasts: vec![[192, 0, 2, 255].into()],
            max_packet_octets: 400,
        }
    }

    #[test]
    fn the_words_of_the_table_are_where_the_program_looks_for_them() {
        let layout = Layout::with_room_for(&taken(2));
        let contents = layout.contents(&taken(2));
        assert_eq!(contents.len(), layout.n_words() - 1);
        let value = |operand| match operand {
            Operand::Word(word) => contents[word - 1],
            Operand::Number(_) => panic!("a number in the table's operands"),
        };
        let operands = layout.operands(&[53], 400);
        assert_eq!([0, 1, 2, 15].map(|i| value(operands.interfaces[i])), [1, 2, 0, 0]);
        assert_eq!([0, 1].map(|i| value(operands.broadcasts[i])), [0xC000_02FF, 0]);
        let ipv4 = |i: usize| (operands.ipv4[i].address.map(value), value(operands.ipv4[i].port));
        assert_eq!([ipv4(0), ipv4(1), ipv4(2)], [([0xC000_0201], 53), ([0xC000_0202], 53), ([0], 0)]);
        let ipv6 = |i: usize| (operands.ipv6[i].address.map(value), value(operands.ipv6[i].port));
        assert_eq!([ipv6(1), ipv6(15)], [([0x2001_0DB8, 0, 0, 2], 5300), ([0; 4], 0)]);
    }

    #[test]
    fn there_is_room_for_twice_as_much_and_no_more() {
        let layout = Layout::with_room_for(&taken(20));
        assert!(layout.has_room_for(&taken(40)) && layout.has_room_for(&Taken::default()));
        assert!(!layout.has_room_for(&taken(41)));
    }
}
