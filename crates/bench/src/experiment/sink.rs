//! The sink in Rust: the loop of `sink.c`, through the standard library, socket2 and Weir's own netio.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, bail};
use socket2::{Domain, Socket, Type};
use weir_netio::batch::{Batch, BatchConfig};
use weir_netio::udp::{UdpEngine, UdpSocketConfig, Wait};

/// Room for all datagrams of a filling, as in `sink.c`.
const BUFFER: usize = 16 << 20;
const OCTETS: usize = 2048;

/// Prints `ready`; for each line of its input it empties the queue and prints datagrams and nanoseconds.
pub(crate) fn run(call: &str, local: SocketAddr, peer: Option<SocketAddr>) -> anyhow::Result<()> {
    if call == "recvmmsg" {
        return batches(local, peer);
    }
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, None)?;
    force_buffer(&socket)?;
    socket.bind(&local.into())?;
    if let Some(peer) = peer {
        socket.connect(&peer.into())?;
    }
    socket.set_nonblocking(true)?;
    let mut octets = [0_u8; OCTETS];
    match call {
        // socket2 reads a vector by recvmsg.
        "recvmsg" => {
            let mut socket = socket;
            drain(move || socket.read_vectored(&mut [IoSliceMut::new(&mut octets)]).map(|_| 1))
        }
        "recvfrom" => {
            let socket = UdpSocket::from(socket);
            drain(move || socket.recv_from(&mut octets).map(|_| 1))
        }
        "read" => {
            let mut file = File::from(OwnedFd::from(socket));
            drain(move || file.read(&mut octets).map(|_| 1))
        }
        _ => bail!("no call {call}"),
    }
}

/// recvmmsg as Weir's workers call it.
fn batches(local: SocketAddr, peer: Option<SocketAddr>) -> anyhow::Result<()> {
    if peer.is_some() {
        bail!("a server's sockets are not connected");
    }
    let config = UdpSocketConfig { receive_buffer_octets: BUFFER, ..UdpSocketConfig::default() };
    let mut engine = UdpEngine::bind(local, &config)?;
    let mut batch = Batch::new(BatchConfig { query_octets: OCTETS, ..BatchConfig::default() });
    drain(move || match engine.receive(&mut batch, Wait::No)? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        n => Ok(n),
    })
}

fn force_buffer(socket: &Socket) -> anyhow::Result<()> {
    // Beyond the system's limit only root may go: the driver has raised the limit.
    socket.set_recv_buffer_size(BUFFER).context("SO_RCVBUF")
}

fn drain(mut receive: impl FnMut() -> io::Result<usize>) -> anyhow::Result<()> {
    println!("ready");
    for line in io::stdin().lines() {
        line?;
        let (mut count, start) = (0_usize, Instant::now());
        while let Ok(n) = receive() {
            count += n;
        }
        println!("{count} {}", start.elapsed().as_nanos());
    }
    Ok(())
}
