//! Asking the kernel for lists of its objects, by netlink(7). All of it is reading octets; nothing here needs a right.

use std::io::{self, Read, Write};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// Octets of `struct nlmsghdr`, include/uapi/linux/netlink.h.
const HEADER_OCTETS: usize = 16;

/// Asks for all objects of a kind, and hands the body of each message on.
///
/// # Errors
/// A socket that cannot be opened, the kernel's refusal with its own number, or an answer that breaks off.
pub(crate) fn dump(protocol: i32, kind: u16, body: &[u8], each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let domain = Domain::from(libc::AF_NETLINK);
    let mut socket = Socket::new(domain, Type::RAW.cloexec(), Some(Protocol::from(protocol)))?;
    // The kernel answers at once; this is against a kernel that does not.
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.write_all(&request(kind, body))?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let n_octets = socket.read(&mut buffer)?;
        if n_octets == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = &buffer[..n_octets];
        while let Some((kind, body, next)) = message(rest) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => {
                    let number = u32_at(body, 0).unwrap_or(0).cast_signed().wrapping_neg();
                    return Err(io::Error::from_raw_os_error(number));
                }
                _ => each(body),
            }
            rest = next;
        }
    }
}

/// The message that asks for all objects of a kind.
fn request(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER_OCTETS + body.len()).unwrap_or(0);
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).unwrap_or(0);
    let mut message = Vec::with_capacity(HEADER_OCTETS + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence and port: there is one question, and the kernel knows who asks.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The first message in `octets`: its kind, its body, and what follows.
fn message(octets: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32_at(octets, 0)? as usize;
    let body = octets.get(HEADER_OCTETS..length)?;
    Some((u16_at(octets, 4)?, body, octets.get(length.next_multiple_of(4)..).unwrap_or(&[])))
}

/// The attributes behind a fixed part of `n_fixed` octets, with their types.
pub(crate) fn attributes(body: &[u8], n_fixed: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(n_fixed..).unwrap_or(&[]);
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)?;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// The 16-bit number at an offset, in the machine's order.
pub(crate) fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|chunk| u16::from_ne_bytes(*chunk))
}

/// The 32-bit number at an offset, in the machine's order.
pub(crate) fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_cut_anywhere_are_no_message() {
        let request = request(libc::RTM_GETLINK, &[0; 16]);
        assert!(message(&request).is_some());
        for n_octets in 0..request.len() {
            assert!(message(&request[..n_octets]).is_none());
        }
    }

    #[test]
    fn attributes_that_lie_about_their_length_end_the_list() {
        let octets = [5, 0, 1, 0, 7, 0, 0, 0, 200, 0, 2, 0, 1, 1, 1, 1];
        let found: Vec<(u16, Vec<u8>)> =
            attributes(&octets, 0).map(|(kind, value)| (kind, value.to_vec())).collect();
        assert_eq!(found, [(1, vec![7])]);
        // A length of zero does not go round for ever.
        assert_eq!(attributes(&[0; 64], 0).count(), 0);
    }
}
