/* Packet sockets in a fanout, read by plain read(): N threads of at most R frames a second each, as in the thread. Each
 * query's frame is turned round and sent back as its answer, so that the client counts what the threads took.
 *
 *   reader DEVICE PORT THREADS RATE hash|cpu on|off      the last is rollover
 *
 * Prints "ready", and goes on until it is killed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* How far a thread that was kept from running may catch up, and frames between two looks at the clock: as Weir's. */
#define BURST_NS 20000000
#define FRAMES_BETWEEN_LOOKS 8
/* About 400 short frames as the kernel counts them: 50 ms of 8,000 a second, as much as Weir's rings hold then. */
#define BUFFER_OCTETS (150 << 10)
#define UDP_AT (ETH_HLEN + 20)

static long rate;

static void must(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void swap(uint8_t *a, uint8_t *b, size_t n) {
    uint8_t kept[6];
    memcpy(kept, a, n);
    memcpy(a, b, n);
    memcpy(b, kept, n);
}

static void *worker(void *argument) {
    int fd = (int)(intptr_t)argument;
    uint8_t frame[2048];
    int64_t next = now_ns();
    long n = 0;
    for (;;) {
        ssize_t length = read(fd, frame, sizeof frame);
        if (length < UDP_AT + 8 + 12)
            continue;
        swap(frame, frame + 6, 6);
        swap(frame + ETH_HLEN + 12, frame + ETH_HLEN + 16, 4);
        swap(frame + UDP_AT, frame + UDP_AT + 2, 2);
        /* No checksum (RFC 768), and QR. */
        frame[UDP_AT + 6] = frame[UDP_AT + 7] = 0;
        frame[UDP_AT + 8 + 2] |= 0x80;
        if (write(fd, frame, length) != length)
            continue;
        if (++n % FRAMES_BETWEEN_LOOKS)
            continue;
        int64_t now = now_ns();
        if (next < now - BURST_NS)
            next = now - BURST_NS;
        next += FRAMES_BETWEEN_LOOKS * 1000000000LL / rate;
        if (next > now) {
            struct timespec until = { next / 1000000000LL, next % 1000000000LL };
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        }
    }
    return NULL;
}

/* Frames for this host's hardware address that hold UDP for the port, over IPv4 without options. */
static void take(int fd, uint16_t port) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_HOST, 0, 5),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ETH_HLEN + 9),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 3),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, UDP_AT + 2),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xFFFF),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    must(!setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), "SO_ATTACH_FILTER");
}

/* A socket on the port that throws everything away: without it the kernel would say that nobody is there. */
static void hold(uint16_t port) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
    struct sock_fprog program = { 1, code };
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    must(fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof address), "bind");
    must(!setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), "SO_ATTACH_FILTER");
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: reader DEVICE PORT THREADS RATE hash|cpu on|off\n");
        return 2;
    }
    uint16_t port = atoi(argv[2]);
    int n_threads = atoi(argv[3]);
    rate = atol(argv[4]);
    int fanout = strcmp(argv[5], "cpu") ? PACKET_FANOUT_HASH : PACKET_FANOUT_CPU;
    if (!strcmp(argv[6], "on"))
        fanout |= PACKET_FANOUT_FLAG_ROLLOVER;
    hold(port);
    for (int i = 0; i < n_threads; i++) {
        int fd = socket(AF_PACKET, SOCK_RAW, 0), octets = BUFFER_OCTETS;
        must(fd >= 0, "socket");
        take(fd, port);
        must(!setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &octets, sizeof octets), "SO_RCVBUF");
        struct sockaddr_ll device = {
            .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = if_nametoindex(argv[1])
        };
        must(!bind(fd, (struct sockaddr *)&device, sizeof device), "bind");
        int argument = fanout << 16 | (getpid() & 0xFFFF);
        must(!setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &argument, sizeof argument), "PACKET_FANOUT");
        pthread_t thread;
        must(!pthread_create(&thread, NULL, worker, (void *)(intptr_t)fd), "pthread_create");
    }
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}
