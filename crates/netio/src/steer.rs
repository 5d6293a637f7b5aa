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

/// The program that picks a worker by the source's address and port, mixed with `secret`: in a reuseport group and in a packet
/// fanout alike, so that a flow has the same worker in both.
///
/// Both run it with the packet's network header at hand (`SKF_NET_OFF`). Ports are read where they are without IP options
/// and extension headers; elsewhere what stands there has to do.
pub(crate) fn flow_program(n_workers: u32, secret: u32) -> Vec<sock_filter> {
    let network = |offset: u32| libc::SKF_NET_OFF.cast_unsigned().wrapping_add(offset);
    let load = |size: u32, offset: u32| statement(libc::BPF_LD | size | libc::BPF_ABS, network(offset));
    // From the last word of the source address and the source port.
    let key = |address: u32, port: u32| {
        [
            load(libc::BPF_W, address),
            statement(libc::BPF_MISC | libc::BPF_TAX, 0),
            load(libc::BPF_H, port),
            statement(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        ]
    };
    let mut program = vec![
        load(libc::BPF_B, 0),
        statement(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 4),
        sock_filter { jf: 5, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 4) },
    ];
    program.extend(key(12, 20));
    program.push(statement(libc::BPF_JMP | libc::BPF_JA, 4));
    program.extend(key(20, 40));
    program.push(statement(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_K, secret));
    // 2^32 divided by the golden ratio. The upper half of the product depends on all bits below: neighbouring ports, or
    // even ones alone, reach all workers.
    program.push(statement(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, 0x9E37_79B1));
    program.push(statement(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16));
    program.push(statement(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, n_workers.max(1)));
    program.push(statement(libc::BPF_RET | libc::BPF_A, 0));
    program
}

/// Attaches a classic BPF program whose result is the index of a socket in the group (socket(7),
/// `SO_ATTACH_REUSEPORT_CBPF`). An index that does not exist falls back to the kernel's hash.
pub(crate) fn attach(socket: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, BatchConfig};
    use crate::reuseport::{self, ListenConfig};
    use crate::udp::Wait;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    /// How many of the datagrams of 400 clients each worker of a group gets; `None` where there is no such address.
    fn spread(address: &str, secret: u32) -> Option<[usize; 4]> {
        let opened = reuseport::open(&[address.parse().unwrap()], &ListenConfig::for_workers(4)).ok()?;
        let mut group = opened.listeners.into_iter().next()?.udp;
        attach(group[0].as_fd(), &flow_program(4, secret)).unwrap();
        let server = group[0].address();
        let any = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let clients: Vec<UdpSocket> = (0..400).map(|_| UdpSocket::bind(any).unwrap()).collect();
        let mut batch = Batch::new(BatchConfig { capacity: 1024, ..BatchConfig::default() });
        let mut counts = || {
            for client in &clients {
                client.send_to(b"?", server).unwrap();
            }
            [0, 1, 2, 3].map(|worker| group[worker].receive(&mut batch, Wait::No).unwrap())
        };
        let first = counts();
        assert_eq!(first.iter().sum::<usize>(), 400);
        assert_eq!(counts(), first, "a flow stays with its worker");
        Some(first)
    }

    #[test]
    fn flows_spread_over_all_workers_and_stay_there() {
        for secret in [0, 0x9E37_79B9, 0xFFFF_FFFF] {
            let counts = spread("127.0.0.1:0", secret).unwrap();
            // An even spread gives each 100.
            assert!(counts.iter().all(|&n| n > 40), "{counts:?}");
        }
    }

    #[test]
    fn flows_over_ipv6_spread_too_where_the_host_has_it() {
        if let Some(counts) = spread("[::1]:0", 0x9E37_79B9) {
            assert!(counts.iter().all(|&n| n > 40), "{counts:?}");
        }
    }
}
