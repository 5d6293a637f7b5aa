/* Receives datagrams and throws them away, as udp_sink of the kernel's netperf-like tools does; and sends them.
 *
 *   sink flood IP PORT COUNT OCTETS LOCAL_PORT       sends COUNT datagrams
 *   sink CALL  IP PORT connected|open PEER_IP PEER_PORT   CALL: recvmsg, recvmmsg, recvfrom, read
 *   sink ring  DEVICE PORT                          a packet ring (TPACKET_V2)
 *   sink tsc                                        ticks a second of the time-stamp counter
 *
 * A sink prints "ready"; for each line it is given it empties what has gathered in its queue and prints how many
 * datagrams that were and how many nanoseconds they took. It ends with its input. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

#define BATCH 64
#define OCTETS 2048

static void die(const char *call) {
    perror(call);
    exit(1);
}

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static struct sockaddr_in address_of(const char *ip, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    if (inet_pton(AF_INET, ip, &address.sin_addr) != 1) die("inet_pton");
    return address;
}

static int udp_socket(struct sockaddr_in local) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), octets = 16 << 20;
    if (fd < 0) die("socket");
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &octets, sizeof octets)) die("SO_RCVBUFFORCE");
    if (bind(fd, (struct sockaddr *)&local, sizeof local)) die("bind");
    return fd;
}

static int flood(char **argv) {
    struct sockaddr_in peer = address_of(argv[2], argv[3]), local = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[6]))};
    long count = atol(argv[4]);
    int octets = atoi(argv[5]), fd = udp_socket(local);
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer)) die("connect");
    static char payload[OCTETS];
    struct iovec vector = {payload, octets};
    struct mmsghdr out[BATCH];
    for (int i = 0; i < BATCH; i++) out[i].msg_hdr = (struct msghdr){.msg_iov = &vector, .msg_iovlen = 1};
    for (long sent = 0; sent < count;) {
        int n = sendmmsg(fd, out, count - sent < BATCH ? count - sent : BATCH, 0);
        if (n > 0) sent += n;
        else if (errno != EINTR && errno != ECONNREFUSED) die("sendmmsg");
    }
    return 0;
}

static int next_line(void) {
    char line[16];
    return fgets(line, sizeof line, stdin) != NULL;
}

static void ready(void) {
    puts("ready");
    fflush(stdout);
}

static void tell(long count, long start) {
    long took = now_ns() - start;
    printf("%ld %ld\n", count, took);
    fflush(stdout);
}

static int sink(const char *call, int fd) {
    static char octets[BATCH][OCTETS];
    static struct sockaddr_in peers[BATCH];
    static struct iovec vectors[BATCH];
    static struct mmsghdr in[BATCH];
    struct iovec vector = {octets[0], OCTETS};
    long count = 0;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < BATCH; i++) {
        vectors[i] = (struct iovec){octets[i], OCTETS};
        in[i].msg_hdr = (struct msghdr){.msg_name = &peers[i], .msg_namelen = sizeof peers[i], .msg_iov = &vectors[i], .msg_iovlen = 1};
    }
    ready();
    for (; next_line(); count = 0) {
        long start = now_ns();
        if (!strcmp(call, "recvmsg")) {
            struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
            while (recvmsg(fd, &message, 0) >= 0) count++;
        } else if (!strcmp(call, "recvmmsg")) {
            for (int n; (n = recvmmsg(fd, in, BATCH, MSG_DONTWAIT, NULL)) > 0; count += n)
                for (int i = 0; i < n; i++) in[i].msg_hdr.msg_namelen = sizeof peers[i];
        } else if (!strcmp(call, "recvfrom")) {
            for (;;) {
                struct sockaddr_storage peer;
                socklen_t n_peer = sizeof peer;
                if (recvfrom(fd, octets[0], OCTETS, 0, (struct sockaddr *)&peer, &n_peer) < 0) break;
                count++;
            }
        } else if (!strcmp(call, "read")) {
            while (read(fd, octets[0], OCTETS) >= 0) count++;
        } else return 2;
        tell(count, start);
    }
    return 0;
}

/* Slots for all datagrams of a filling: the ring is filled before it is emptied. */
#define SLOTS (1 << 12)
#define SLOT 256

static int ring(const char *device, int port) {
    int fd = socket(AF_PACKET, SOCK_RAW, 0), version = TPACKET_V2, one = 1;
    if (fd < 0) die("socket AF_PACKET");
    if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version)) die("PACKET_VERSION");
    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 3),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 36), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xffff), BPF_STMT(BPF_RET | BPF_K, 0)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program)) die("SO_ATTACH_FILTER");
    struct tpacket_req request = {.tp_block_size = 1 << 18, .tp_block_nr = (unsigned)SLOTS * SLOT >> 18, .tp_frame_size = SLOT, .tp_frame_nr = SLOTS};
    if (setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request)) die("PACKET_RX_RING");
    uint8_t *slots = mmap(NULL, (size_t)SLOTS * SLOT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (slots == MAP_FAILED) die("mmap");
    struct sockaddr_ll link = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = if_nametoindex(device)};
    if (bind(fd, (struct sockaddr *)&link, sizeof link)) die("bind");
    ready();
    static uint8_t octets[OCTETS];
    unsigned next = 0;
    while (next_line()) {
        long count = 0, start = now_ns();
        for (;; count++) {
            struct tpacket2_hdr *slot = (void *)(slots + (size_t)next * SLOT);
            if (!(__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) break;
            /* The datagram is copied out, as recvmsg does. */
            memcpy(octets, (uint8_t *)slot + slot->tp_mac, slot->tp_snaplen);
            __asm__ volatile("" : : "r"(octets) : "memory");
            __atomic_store_n(&slot->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
            next = (next + 1) % SLOTS;
        }
        tell(count, start);
    }
    return 0;
}

static int tsc(void) {
#ifdef __x86_64__
    long start = now_ns();
    unsigned long long first = __rdtsc();
    struct timespec nap = {.tv_nsec = 200000000};
    nanosleep(&nap, NULL);
    unsigned long long ticks = __rdtsc() - first;
    printf("%.0f\n", ticks * 1e9 / (now_ns() - start));
#else
    puts("0");
#endif
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "tsc")) return tsc();
    if (argc == 7 && !strcmp(argv[1], "flood")) return flood(argv);
    if (argc == 4 && !strcmp(argv[1], "ring")) return ring(argv[2], atoi(argv[3]));
    if (argc != 7) return fprintf(stderr, "sink: see the head of sink.c\n"), 2;
    int fd = udp_socket(address_of(argv[2], argv[3]));
    struct sockaddr_in peer = address_of(argv[5], argv[6]);
    if (!strcmp(argv[4], "connected") && connect(fd, (struct sockaddr *)&peer, sizeof peer)) die("connect");
    return sink(argv[1], fd);
}
