//! What the kernel may hold for a connection.
//!
//! Left to itself it holds up to 4 MiB of answers for a client that does not read, and 6 MiB of its queries
//! (`net.ipv4.tcp_wmem` and `tcp_rmem`), and goes on holding the answers for minutes after the connection was closed
//! (`net.ipv4.tcp_orphan_retries`): a thousand such clients are gigabytes.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

/// Asked of the kernel, which takes twice as much to account for its own overhead (socket(7)): the usual answers of
/// hundreds of pipelined queries. What a client does not take beyond that is the server's to hold, and to limit.
const SEND_BUFFER_OCTETS: usize = 32 << 10;
/// As above: a few hundred queries.
const RECEIVE_BUFFER_OCTETS: usize = 32 << 10;

/// Bounds what connections hold that `listener` will accept, in size and, once a client has stopped to take answers,
/// in time: they inherit it.
pub(crate) fn bound(listener: &TcpListener, write_timeout: Duration) -> io::Result<()> {
    let socket = SockRef::from(listener);
    socket.set_send_buffer_size(SEND_BUFFER_OCTETS)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_OCTETS)?;
    // Holds for closed connections as well, whose answers are still on their way (tcp(7)).
    socket.set_tcp_user_timeout(Some(write_timeout))
}

/// Has the kernel forget what the client has not taken when `stream` is closed, instead of going on to offer it.
pub(super) fn abandon(stream: &TcpStream) {
    // Refused only for what is no socket; then there is nothing to forget.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
