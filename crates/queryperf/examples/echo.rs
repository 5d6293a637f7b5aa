//! A server that sends every query back as its own answer: what is left of a name server when it does nothing but move
//! datagrams, and so the most that queryperf can be measured against.
//!
//! `cargo run --release -p weir-queryperf --example echo -- 127.0.0.1:5300`

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use weir_netio::batch::{Batch, BatchConfig};
use weir_netio::event::EventFd;
use weir_netio::ingress::Ingress;
use weir_netio::udp::{UdpEngine, UdpSocketConfig};

/// The octet of a message that says whether it is a response (RFC 1035 section 4.1.1).
const FLAGS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:0".to_owned()).parse()?;
    let socket = UdpEngine::bind(address, &UdpSocketConfig::default())?;
    println!("{}", socket.address());
    let mut ingress = Ingress::new(vec![socket], &EventFd::new()?, Duration::from_secs(1))?;
    let mut batch = Batch::new(BatchConfig::default());
    loop {
        let n_queries = ingress.receive(&mut batch)?;
        for i in 0..n_queries {
            let exchange = batch.exchange(i);
            let n_octets = exchange.query.len();
            exchange.answer[..n_octets].copy_from_slice(exchange.query);
            if let Some(flags) = exchange.answer[..n_octets].get_mut(FLAGS) {
                *flags |= 0x80;
                batch.answer(i, n_octets);
            }
        }
        ingress.send(&mut batch)?;
    }
}
