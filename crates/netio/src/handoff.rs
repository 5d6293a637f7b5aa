//! The exact way to hand over between sockets and rings: two small eBPF programs and one cell a CPU.
//!
//! The tap of a packet socket bound to `ETH_P_ALL` runs before the UDP socket sees the same packet, on the same CPU and
//! without a pause between. So its filter leaves its verdict in the cell, and the UDP socket's filter obeys it: no
//! packet is answered twice or not at all, whenever the switch is thrown.
//!
//! Loading programs takes `CAP_BPF`; attaching and the switch take nothing. Without that right, [`crate::filter`]'s
//! classic programs do the same with a gap of some microseconds a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::filter::{FREE_LABELS, Field, Label, Step, Taken, Test};
use crate::sys::{self, set_int};

/// Commands of bpf(2), kinds of maps and programs: include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
const MAP_LOOKUP_ELEM: i32 = 1;
const PSEUDO_MAP_FD: u8 = 1;

/// Offsets in `struct __sk_buff`, which is how programs see a packet.
const SKB_PACKET_TYPE: i16 = 4;
const SKB_PROTOCOL: i16 = 16;
const SKB_VLAN_TAG: i16 = 24;
const SKB_INTERFACE: i16 = 40;

/// The programs, loaded, and the switch.
#[derive(Debug)]
pub(crate) struct Handoff {
    /// One word: whether rings take anything.
    switch: OwnedFd,
    /// One word a CPU: whether the ring took the packet under way. The programs hold it; kept for its lifetime's clarity.
    _verdict: OwnedFd,
    tap: OwnedFd,
    obey: OwnedFd,
}

impl Handoff {
    /// Loads the programs for `taken`, with the switch off.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`.
    pub(crate) fn load(taken: &Taken) -> io::Result<Self> {
        let switch = create_map(MAP_TYPE_ARRAY)?;
        let verdict = create_map(MAP_TYPE_PERCPU_ARRAY)?;
        let tap = load_program(&tap_program(&taken.steps(), &verdict, &switch)?)?;
        let obey = load_program(&obey_program(&verdict))?;
        Ok(Self { switch, _verdict: verdict, tap, obey })
    }

    /// Throws the switch: from the next packet on, rings take what is theirs, or nothing.
    pub(crate) fn set(&self, rings: bool) -> io::Result<()> {
        let (key, value) = (0_u32, u32::from(rings));
        let attributes = [
            u64::from(self.switch.as_raw_fd().unsigned_abs()),
            (&raw const key).addr() as u64,
            (&raw const value).addr() as u64,
            0,
        ];
        // The kernel reads the key and the value at the addresses given; both are locals that outlive the call.
        bpf(MAP_UPDATE_ELEM, &attributes).map(drop)
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

/// A map with one word under key 0.
fn create_map(kind: u32) -> io::Result<OwnedFd> {
    // map_type, key_size, value_size, max_entries, map_flags
    bpf_open(MAP_CREATE, &[pair(kind, 4), pair(4, 1), 0])
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

/// Registers: results, arguments, the packet, the verdict's cell, the frame pointer.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const PACKET: u8 = 6;
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
fn tap_program(steps: &[Step], verdict: &OwnedFd, switch: &OwnedFd) -> io::Result<Vec<Instruction>> {
    let mut program = vec![copy(PACKET, R1)];
    program.extend(look_up(verdict, NOTHING));
    program.extend([copy(CELL, R0), store_word(CELL, 0, 0)]);
    program.extend(look_up(switch, NOTHING));
    program.extend([load_word(R0, R0, 0), skip_unless_zero(R0, 2), set(R0, NOTHING), EXIT]);
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

/// Translates steps; the value is in R0.
fn translate(steps: &[Step], program: &mut Vec<Instruction>) -> io::Result<()> {
    let mut places = vec![0; steps.len() + FREE_LABELS];
    let mut jumps = Vec::new();
    for step in steps {
        match *step {
            Step::Load(field) => load(field, program),
            Step::GoIf { test, operand, wanted, to } => {
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
