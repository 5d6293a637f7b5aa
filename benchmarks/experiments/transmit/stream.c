/* Streams of octets over TCP.
 *
 *   stream drain IP PORT              accepts connections and throws away what comes
 *   stream send  IP PORT STREAMS SECONDS   prints the octets sent and the nanoseconds that took */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 64
static char octets[1 << 17];

static void die(const char *call) {
    perror(call);
    exit(1);
}

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void drain(struct sockaddr_in *address) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), n = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)address, sizeof *address) || listen(listener, MOST)) die("listen");
    struct pollfd fds[MOST] = {{listener, POLLIN, 0}};
    puts("ready");
    fflush(stdout);
    for (;;) {
        if (poll(fds, n, -1) < 0) die("poll");
        if (fds[0].revents && n < MOST) fds[n++] = (struct pollfd){accept(listener, NULL, NULL), POLLIN, 0};
        for (int i = 1; i < n; i++) {
            if (!fds[i].revents || read(fds[i].fd, octets, sizeof octets) > 0) continue;
            close(fds[i].fd);
            fds[i--] = fds[--n];
        }
    }
}

static int send_streams(struct sockaddr_in *address, int n, double seconds) {
    struct pollfd fds[MOST];
    for (int i = 0; i < n; i++) {
        fds[i] = (struct pollfd){socket(AF_INET, SOCK_STREAM, 0), POLLOUT, 0};
        if (connect(fds[i].fd, (struct sockaddr *)address, sizeof *address)) die("connect");
    }
    long start = now_ns(), end = start + (long)(seconds * 1e9), sent = 0;
    while (now_ns() < end) {
        poll(fds, n, 100);
        for (int i = 0; i < n; i++) {
            if (!fds[i].revents) continue;
            long wrote = send(fds[i].fd, octets, sizeof octets, MSG_DONTWAIT);
            if (wrote > 0) sent += wrote;
            else if (errno != EAGAIN) die("send");
        }
    }
    printf("%ld %ld\n", sent, now_ns() - start);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "stream: see the head of stream.c\n"), 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
    if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) die("inet_pton");
    if (!strcmp(argv[1], "drain")) drain(&address);
    if (argc != 6 || atoi(argv[4]) > MOST) return 2;
    return send_streams(&address, atoi(argv[4]), atof(argv[5]));
}
