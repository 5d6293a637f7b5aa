//! Every system call of Weir and every `unsafe` block: sockets, batches, steering, CPUs, rights.
//!
//! This crate knows no DNS. It hands datagrams over in batches and sends answers in batches; what lies in the
//! octets is the caller's affair. The crate that answers cannot name a socket, and this one cannot name a record.
//!
//! # Reading order
//!
//! 1. [`error`]: what can go wrong while sockets are opened, by whose fault it is.
//! 2. [`batch`]: the memory of a worker. Queries in, answers out, all of it made at thread start.
//! 3. [`udp`]: one UDP socket of one worker; fills a batch with `recvmmsg`, empties it with `sendmmsg`.
//! 4. [`ingress`]: all sockets of one worker and how it waits for them.
//! 5. [`reuseport`]: opens the sockets of all workers for a list of addresses; refuses to share a port with another server.
//! 6. [`steer`]: which worker of a group the kernel gives a datagram to.
//! 7. [`drops`]: what the kernel threw away because a queue was full.
//! 8. [`event`]: wakes a worker that sleeps.
//! 9. [`affinity`]: how many CPUs the process may use, pinning a thread to one, and how punctual its naps are.
//! 10. [`privilege`]: giving up root and every capability once the sockets are open.
//! 11. [`memory`]: giving freed memory back to the system.
//! 12. [`datagrams`] and [`client`]: the other side, for programs that ask in batches.
//! 13. [`frame`]: a query's Ethernet frame, and the headers of its answer; pure code.
//! 14. [`filter`]: which frames rings take, as a program for the kernel; [`links`] tells it interfaces and addresses.
//! 15. [`ring`]: the packet ring of one worker.
//! 16. [`fanout`]: the rings of all workers, and when they answer in place of sockets; `handoff` (private) is the exact switch.
//! 17. [`firewall`]: whether the host has rules that rings go past.
//!
//! `sys`, `netlink` and `slots` below are private: thin wrappers of calls, lists that the kernel gives, and the arrays that
//! it writes into.
//!
//! # A worker's loop
//!
//! ```
//! use weir_netio::{batch::{Batch, BatchConfig}, event::EventFd, ingress::Ingress, reuseport::{self, ListenConfig}};
//! # use std::time::Duration;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let opened = reuseport::open(&["127.0.0.1:0".parse()?], &ListenConfig::for_workers(1))?;
//! let address = opened.listeners[0].address;
//! let worker = reuseport::by_worker(opened.listeners).remove(0);
//! let mut ingress = Ingress::new(worker.udp, &EventFd::new()?, Duration::from_millis(100))?;
//! let mut batch = Batch::new(BatchConfig::default());
//! # let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! # client.send_to(b"ping", address)?;
//! let n_queries = ingress.receive(&mut batch)?; // 0: the time is over, or somebody woke the worker
//! for i in 0..n_queries {
//!     let exchange = batch.exchange(i);
//!     if exchange.peer.port() == 0 {
//!         continue; // no answer
//!     }
//!     let n_octets = exchange.query.len();
//!     exchange.answer[..n_octets].copy_from_slice(exchange.query);
//!     batch.answer(i, n_octets);
//! }
//! let report = ingress.send(&mut batch)?;
//! assert_eq!(report.sent, 1);
//! # Ok(()) }
//! ```
//!
//! # Invariants
//!
//! **invariant:** between `receive` and `send` there is no allocation and no system call. A batch's memory is made by
//! [`batch::Batch::new`] and never grows; the message headers are built once, and only the fields that the kernel
//! overwrites are set again.
//!
//! **invariant:** a query gets at most one answer, from the address that it was sent to. [`batch::Batch::answer`] keeps
//! one length a query, and on a wildcard address the control message of the query is the control message of the answer.
//!
//! **invariant:** no call waits without an end. Receiving is bounded by the interval given to
//! [`ingress::Ingress::new`]; sending never waits longer than [`udp::SEND_WAIT`] a batch.
//!
//! **invariant:** a group of sockets on one port belongs to one server. The first socket of a group is bound without
//! `SO_REUSEPORT`, so that a second server on the port is refused by the kernel, with no moment in between.
//!
//! **invariant:** the index of a socket in its reuseport group is the index of its worker, which is what the steering
//! program returns.
//!
//! **invariant:** rights are dropped while the process has one thread: capabilities belong to threads, and a thread
//! that was started earlier would keep its own.
//!
//! **invariant:** at any moment one engine answers for an (address, port): see [`fanout`].
//!
//! Deliberately absent: signals (the server's runtime has them), DNS, threads of its own, logging (what was degraded
//! is returned, and the caller says it once).
//!
//! # The seam for other engines
//!
//! A packet ring is a sibling of [`udp::UdpEngine`] with the same two verbs: *receive a batch*, *send a batch*; an XDP
//! socket would be another. The index of [`batch::Batch::exchange`] counts queries, not messages of one system call; a
//! query is copied from the ring's slot (under a hundred octets, and the slot is free at once, which rollover needs) with
//! peer and local address in the form that the socket path uses; and answers lie in buffers with room in front, where their
//! link, IP and UDP headers are written, so that a packet socket sends each in one piece. [`ingress::Ingress`] chooses
//! between the engines of a worker.

#![cfg(target_os = "linux")]

// Blank lines keep the reading order: rustfmt sorts within a block.
pub mod error;

pub mod batch;

pub mod udp;

pub mod ingress;

pub mod reuseport;

pub mod steer;

pub mod drops;

pub mod event;

pub mod affinity;

pub mod privilege;

pub mod memory;

pub mod datagrams;

pub mod client;

pub mod frame;

pub mod filter;

pub mod links;

pub mod ring;

pub mod fanout;

pub mod firewall;

mod handoff;
mod netlink;
mod slots;
mod sys;

pub use error::NetError;
