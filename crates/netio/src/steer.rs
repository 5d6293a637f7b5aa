//! Which worker of a reuseport group the kernel gives a datagram to.
//!
//! Without a program the kernel hashes addresses and ports: a flow stays with one worker, wherever its packets arrive.
//! With [`Steer::Cpu`] a datagram goes to the worker on the CPU that received it: no other CPU is woken, and the data is
//! in that CPU's cache. It pays when the network card spreads flows over all workers' CPUs, and hurts when it does not.

use std::io;
use std::os::fd::BorrowedFd;

use libc::sock_filter;

use crate::sys;

/// How datagrams are spread over the workers of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Steer {
    /// By the kernel's hash of addresses and ports.
    #[default]
    Hash,
    /// To the worker on the CPU that received the packet.
    Cpu,
}

/// `BPF_MAXINSNS`, include/uapi/linux/bpf_common.h.
const MAX_INSTRUCTIONS: usize = 4096;

/// Makes the group of `socket` pick the worker that runs on the receiving CPU; `cpus[i]` is the CPU of worker `i`.
///
/// One member is enough: the program belongs to the group. A packet received on a CPU without a worker goes to one of
/// them by the CPU's number. No privilege is needed.
///
/// # Errors
/// `EINVAL` when the socket is in no group (only one worker), or when there are too many workers for a program.
pub fn attach_cpu(socket: BorrowedFd<'_>, cpus: &[usize]) -> io::Result<()> {
    let program = cpu_program(cpus).ok_or(io::ErrorKind::InvalidInput)?;
    attach(socket, &program)
}

/// Attaches a classic BPF program whose result is the index of a socket in the group (socket(7),
/// `SO_ATTACH_REUSEPORT_CBPF`). An index that does not exist falls back to the kernel's hash.
fn attach(socket: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel only reads the program; the C type has no const.
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &filter)
}

/// The program that maps the receiving CPU to a worker; `None` when it would be too long or there is no worker.
fn cpu_program(cpus: &[usize]) -> Option<Vec<sock_filter>> {
    let n_workers = u32::try_from(cpus.len()).ok().filter(|n| *n > 0)?;
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, RECEIVING_CPU)];
    let in_order = cpus.iter().enumerate().all(|(worker, cpu)| *cpu == worker);
    if !in_order {
        for (worker, cpu) in (0_u32..).zip(cpus) {
            program.push(unless_equal_skip_one(u32::try_from(*cpu).ok()?));
            program.push(statement(libc::BPF_RET | libc::BPF_K, worker));
        }
    }
    program.push(statement(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, n_workers));
    program.push(statement(libc::BPF_RET | libc::BPF_A, 0));
    (program.len() <= MAX_INSTRUCTIONS).then_some(program)
}

/// `SKF_AD_OFF + SKF_AD_CPU`, include/uapi/linux/filter.h: a load from there yields the current CPU.
const RECEIVING_CPU: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_CPU).cast_unsigned();

/// One instruction without a jump. Codes are eight bits wide in truth.
fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf: 0, k }
}

/// Goes on when the accumulator is `k`, else skips the next instruction.
fn unless_equal_skip_one(k: u32) -> sock_filter {
    sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k) }
}
