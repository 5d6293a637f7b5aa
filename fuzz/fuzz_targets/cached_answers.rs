#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| weir_fuzz::cached_answers(octets));
