/* Shows the flow hash that the kernel gives to frames, for both directions of UDP flows.
 *
 *   rxhash DEVICE SECONDS      prints "PORT out|in HASH" for each frame from or to port 53 that passes the device
 *
 * A packet ring of version 3 hands the hash over with the frame (tp_rxhash). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#define BLOCK (1 << 16)
#define BLOCKS 16

static void die(const char *call) {
    perror(call);
    exit(1);
}

static void show(const struct tpacket3_hdr *frame) {
    const uint8_t *octets = (const uint8_t *)frame + frame->tp_mac;
    const struct sockaddr_ll *link = (const void *)((const uint8_t *)frame + TPACKET_ALIGN(sizeof *frame));
    if (frame->tp_snaplen < 42 || octets[23] != IPPROTO_UDP) return;
    int source = octets[34] << 8 | octets[35], destination = octets[36] << 8 | octets[37];
    if (source != 53 && destination != 53) return;
    printf("%d %s %08x\n", source == 53 ? destination : source, link->sll_pkttype == PACKET_OUTGOING ? "out" : "in", frame->hv1.tp_rxhash);
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: rxhash DEVICE SECONDS\n"), 2;
    int fd = socket(AF_PACKET, SOCK_RAW, 0), version = TPACKET_V3;
    if (fd < 0) die("socket");
    if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version)) die("PACKET_VERSION");
    struct tpacket_req3 request = {.tp_block_size = BLOCK, .tp_block_nr = BLOCKS, .tp_frame_size = 2048, .tp_frame_nr = BLOCKS * BLOCK / 2048,
                                   .tp_retire_blk_tov = 10, .tp_feature_req_word = TP_FT_REQ_FILL_RXHASH};
    if (setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request)) die("PACKET_RX_RING");
    uint8_t *ring = mmap(NULL, BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) die("mmap");
    struct sockaddr_ll link = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex(argv[1])};
    if (bind(fd, (struct sockaddr *)&link, sizeof link)) die("bind");
    puts("ready");
    fflush(stdout);
    time_t end = time(NULL) + atoi(argv[2]);
    for (int next = 0; time(NULL) <= end;) {
        struct tpacket_block_desc *block = (void *)(ring + next * BLOCK);
        if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
            struct pollfd wait = {fd, POLLIN, 0};
            poll(&wait, 1, 100);
            continue;
        }
        uint8_t *frame = (uint8_t *)block + block->hdr.bh1.offset_to_first_pkt;
        for (uint32_t i = 0; i < block->hdr.bh1.num_pkts; i++) {
            show((void *)frame);
            frame += ((struct tpacket3_hdr *)frame)->tp_next_offset;
        }
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        next = (next + 1) % BLOCKS;
    }
    return 0;
}
