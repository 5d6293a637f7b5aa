/* The least that a name server over UDP can cost: answers every query with its own head and zeros up to a size.
 *
 *   echo plain  IP PORT SIZE        recvmmsg, sendmmsg, a datagram an answer
 *   echo pair   IP PORT SIZE        the same by two processes, each with a socket (SO_REUSEPORT) and a CPU of its own
 *   echo single IP PORT SIZE        recvfrom, sendto: a call a datagram
 *   echo joined IP PORT SIZE        the same, with answers to one peer joined by UDP_SEGMENT
 *   echo ring   IP PORT SIZE DEV    packet ring (TPACKET_V2) in, sendmmsg on a packet socket past the qdisc out
 *   echo nap    IP PORT SIZE DEV    the same with small slots and a nap of 50 us once the ring is empty: the cheapest of all
 *   echo qdisc  IP PORT SIZE DEV    as ring, through the qdisc
 *   echo slow   IP PORT SIZE MICROS plain, and busy for so long before each answer: something to tell apart
 *
 * Nothing is looked up: what is above this is the name server's own work. Built by benchmarks/run with gcc -O2. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define MAX_SIZE 1500
#define HEADER 12
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static void die(const char *call) {
    perror(call);
    exit(1);
}

static int must(int result, const char *call) {
    if (result < 0) die(call);
    return result;
}

static void set(int fd, int level, int option, const void *value, socklen_t n, const char *name) {
    must(setsockopt(fd, level, option, value, n), name);
}

/* A response with the query's id and question: the QR bit is set, the rest stays. */
static void answer(uint8_t *message, int n_query, int size) {
    if (n_query < size) memset(message + n_query, 0, size - n_query);
    message[2] |= 0x80;
}

static int udp_socket(struct sockaddr_in *address) {
    int fd = must(socket(AF_INET, SOCK_DGRAM, 0), "socket");
    int octets = 4 << 20, on = 1;
    set(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on, "SO_REUSEPORT");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &octets, sizeof octets);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &octets, sizeof octets);
    must(bind(fd, (struct sockaddr *)address, sizeof *address), "bind");
    return fd;
}

static void spin(long micros) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000L + (now.tv_nsec - start.tv_nsec) / 1000 < micros);
}

static void send_all(int fd, struct mmsghdr *out, int n) {
    for (int sent = 0; sent < n;) {
        int now = sendmmsg(fd, out + sent, n - sent, 0);
        if (now > 0) sent += now;
        else if (errno != EINTR) sent++; /* this one cannot be sent: the next */
    }
}

/* --- One datagram an answer --------------------------------------------------------------------------------- */

static uint8_t in_octets[BATCH][MAX_SIZE];
static struct sockaddr_in peers[BATCH];
static struct iovec in_vectors[BATCH];
static struct mmsghdr in[BATCH];

static int receive(int fd) {
    for (int i = 0; i < BATCH; i++) {
        in_vectors[i] = (struct iovec){in_octets[i], MAX_SIZE};
        in[i].msg_hdr = (struct msghdr){.msg_name = &peers[i], .msg_namelen = sizeof peers[i],
                                        .msg_iov = &in_vectors[i], .msg_iovlen = 1};
    }
    return recvmmsg(fd, in, BATCH, MSG_WAITFORONE, NULL);
}

static void echo_plain(int fd, int size, long micros) {
    for (;;) {
        int n = receive(fd), n_answers = 0;
        for (int i = 0; i < n; i++) {
            if (in[i].msg_len < HEADER) continue;
            if (micros) spin(micros);
            answer(in_octets[i], in[i].msg_len, size);
            in_vectors[i].iov_len = size;
            in[n_answers++].msg_hdr = in[i].msg_hdr;
        }
        send_all(fd, in, n_answers);
    }
}

/* --- A call a datagram -------------------------------------------------------------------------------------- */

static void echo_single(int fd, int size) {
    for (;;) {
        struct sockaddr_in peer;
        socklen_t n_peer = sizeof peer;
        int n = recvfrom(fd, in_octets[0], MAX_SIZE, 0, (struct sockaddr *)&peer, &n_peer);
        if (n < HEADER) continue;
        answer(in_octets[0], n, size);
        sendto(fd, in_octets[0], size, 0, (struct sockaddr *)&peer, n_peer);
    }
}

/* --- Answers to one peer joined ----------------------------------------------------------------------------- */

static void echo_joined(int fd, int size) {
    static uint8_t joined[BATCH][65536];
    static struct { struct cmsghdr head; uint16_t segment; char pad[6]; } control[BATCH];
    static struct iovec vectors[BATCH];
    static struct mmsghdr out[BATCH];
    int most = 65000 / size < BATCH ? 65000 / size : BATCH;
    for (;;) {
        int n = receive(fd), n_out = 0;
        int n_joined[BATCH];
        for (int i = 0; i < n; i++) {
            if (in[i].msg_len < HEADER) continue;
            int to = n_out - 1;
            while (to >= 0 && (((struct sockaddr_in *)out[to].msg_hdr.msg_name)->sin_port != peers[i].sin_port ||
                               ((struct sockaddr_in *)out[to].msg_hdr.msg_name)->sin_addr.s_addr != peers[i].sin_addr.s_addr ||
                               n_joined[to] == most))
                to--;
            if (to < 0) {
                to = n_out++;
                n_joined[to] = 0;
                control[to].head = (struct cmsghdr){CMSG_LEN(2), IPPROTO_UDP, UDP_SEGMENT};
                control[to].segment = size;
                out[to].msg_hdr = (struct msghdr){.msg_name = &peers[i], .msg_namelen = sizeof peers[i],
                                                  .msg_iov = &vectors[to], .msg_iovlen = 1};
            }
            uint8_t *place = joined[to] + n_joined[to]++ * size;
            int n_query = (int)in[i].msg_len < size ? (int)in[i].msg_len : size;
            memcpy(place, in_octets[i], n_query);
            answer(place, n_query, size);
        }
        for (int to = 0; to < n_out; to++) {
            vectors[to] = (struct iovec){joined[to], (size_t)n_joined[to] * size};
            /* A single answer needs no cutting. */
            out[to].msg_hdr.msg_control = n_joined[to] > 1 ? &control[to] : NULL;
            out[to].msg_hdr.msg_controllen = n_joined[to] > 1 ? CMSG_SPACE(2) : 0;
        }
        send_all(fd, out, n_out);
    }
}

/* --- Packet ring --------------------------------------------------------------------------------------------- */

/* The UDP socket holds the port, or the kernel would answer that nobody is there; its filter takes nothing. */
static void hold_port(int fd) {
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {1, &nothing};
    set(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program, "SO_ATTACH_FILTER");
}

/* Only what goes to our port over UDP without IP options or fragments. */
static void take_only(int fd, uint16_t port) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 9),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 14), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x45, 0, 7),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 20), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 5, 0),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 3),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 36), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xffff), BPF_STMT(BPF_RET | BPF_K, 0)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    set(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program, "SO_ATTACH_FILTER");
}

static uint16_t ip_checksum(const uint8_t *header) {
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2) sum += header[i] << 8 | header[i + 1];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return htons(~sum & 0xffff);
}

static void swap(uint8_t *a, uint8_t *b, int n) {
    for (int i = 0; i < n; i++) {
        uint8_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

/* Turns a frame with a query into the frame of its answer; yields its length. */
static int turn_frame(uint8_t *frame, int n_query, int size) {
    struct iphdr *ip = (struct iphdr *)(frame + 14);
    struct udphdr *udp = (struct udphdr *)(frame + 34);
    swap(frame, frame + 6, 6);
    swap((uint8_t *)&ip->saddr, (uint8_t *)&ip->daddr, 4);
    swap((uint8_t *)&udp->source, (uint8_t *)&udp->dest, 2);
    ip->tot_len = htons(28 + size);
    ip->ttl = 64;
    ip->check = 0;
    ip->check = ip_checksum(frame + 14);
    udp->len = htons(8 + size);
    udp->check = 0; /* allowed over IPv4 */
    answer(frame + 42, n_query, size);
    return 42 + size;
}

#define RING (1 << 23)

/* Frames gather while the reader naps, so that waking up and sending are paid for more of them at a time; small slots stay in
 * the cache. A query longer than a slot would be cut: these have some 80 octets. */
static void echo_ring(struct sockaddr_in *address, int size, const char *device, int bypass, int naps) {
    unsigned slot_octets = naps ? 512 : 2048, n_slots = RING / slot_octets;
    if (naps) prctl(PR_SET_TIMERSLACK, 1000);
    hold_port(udp_socket(address));
    int fd = must(socket(AF_PACKET, SOCK_RAW, 0), "socket AF_PACKET");
    int version = TPACKET_V2, one = 1;
    set(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version, "PACKET_VERSION");
    set(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &bypass, sizeof bypass, "PACKET_QDISC_BYPASS");
    set(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one, "PACKET_IGNORE_OUTGOING");
    take_only(fd, ntohs(address->sin_port));
    struct tpacket_req request = {.tp_block_size = 1 << 18, .tp_block_nr = RING >> 18, .tp_frame_size = slot_octets, .tp_frame_nr = n_slots};
    set(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request, "PACKET_RX_RING");
    uint8_t *ring = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) die("mmap");
    struct sockaddr_ll link = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = if_nametoindex(device)};
    must(bind(fd, (struct sockaddr *)&link, sizeof link), "bind AF_PACKET");
    int octets = 4 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &octets, sizeof octets);

    static uint8_t frames[BATCH][MAX_SIZE + 42];
    static struct iovec vectors[BATCH];
    static struct mmsghdr out[BATCH];
    int napped = !naps;
    for (unsigned next = 0;;) {
        int n = 0;
        for (; n < BATCH; n++) {
            struct tpacket2_hdr *slot = (void *)(ring + (size_t)next * slot_octets);
            if (!(__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) break;
            int n_octets = slot->tp_snaplen < MAX_SIZE ? slot->tp_snaplen : MAX_SIZE;
            memcpy(frames[n], (uint8_t *)slot + slot->tp_mac, n_octets);
            __atomic_store_n(&slot->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
            next = (next + 1) % n_slots;
            vectors[n] = (struct iovec){frames[n], turn_frame(frames[n], n_octets - 42, size)};
            out[n].msg_hdr = (struct msghdr){.msg_iov = &vectors[n], .msg_iovlen = 1};
        }
        if (n) {
            send_all(fd, out, n);
            napped = !naps;
        } else if (!napped) {
            struct timespec nap = {0, 50000};
            nanosleep(&nap, NULL);
            napped = 1;
        } else {
            struct pollfd wait = {fd, POLLIN, 0};
            poll(&wait, 1, -1);
        }
    }
}

/* Goes on as two processes, the first on CPU 0 and the second on CPU 1; the second ends with the first. */
static void become_two(void) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    pid_t child = must(fork(), "fork");
    CPU_SET(child ? 0 : 1, &cpus);
    must(sched_setaffinity(0, sizeof cpus, &cpus), "sched_setaffinity");
    if (!child) must(prctl(PR_SET_PDEATHSIG, SIGTERM), "prctl");
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: echo plain|pair|single|joined|ring|nap|qdisc|slow IP PORT SIZE [DEVICE|MICROS]\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
    int size = atoi(argv[4]);
    if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1 || size < HEADER || size > MAX_SIZE) {
        fprintf(stderr, "echo: an IPv4 address, and a size from %d to %d\n", HEADER, MAX_SIZE);
        return 2;
    }
    const char *more = argc > 5 ? argv[5] : "";
    if (!strcmp(argv[1], "plain")) echo_plain(udp_socket(&address), size, 0);
    else if (!strcmp(argv[1], "pair")) become_two(), echo_plain(udp_socket(&address), size, 0);
    else if (!strcmp(argv[1], "slow")) echo_plain(udp_socket(&address), size, atol(more));
    else if (!strcmp(argv[1], "joined")) echo_joined(udp_socket(&address), size);
    else if (!strcmp(argv[1], "ring")) echo_ring(&address, size, more, 1, 0);
    else if (!strcmp(argv[1], "nap")) echo_ring(&address, size, more, 1, 1);
    else if (!strcmp(argv[1], "qdisc")) echo_ring(&address, size, more, 0, 0);
    else if (!strcmp(argv[1], "single")) echo_single(udp_socket(&address), size);
    else fprintf(stderr, "echo: no mode %s\n", argv[1]);
    return 2;
}
