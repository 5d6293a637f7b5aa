#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    weir_fuzz::frame::frame(octets);
});
