/* What the forwarding of psirp_sim is measured against, and what it is measured with.
 *
 *   forward_reference recv LINKS    receive, match, send: one system call a packet
 *   forward_reference mmsg LINKS    the same with recvmmsg and sendmmsg
 *   forward_reference echo LINKS    recvmmsg and sendmmsg of every packet to the first sink, no match
 *   forward_reference load SINKS CPUS    sends packets to a forwarder, takes in and checks copies
 *
 * The forwarders do the least that forwarding is: every link whose tag lies in the packet's filter
 * gets a copy with a lower hop limit. No guard, no loop cache, no look at where a packet came from.
 * They print the port they listen on and run until they are killed.
 *
 * LINKS is a file in the byte order of the machine: the number of links and the index of the first
 * sink (u32 each), a sockaddr_in for each link, then tags[table][link] of 256 bits.
 *
 * `load` opens the sender's socket and that many sinks, prints their ports on one line, and obeys
 * lines on its standard input; with one CPU only it leaves that to the forwarder when it can:
 *
 *     PORT TEMPLATES SECONDS WINDOW
 *
 * sends packets to the forwarder at PORT for that long, never more than WINDOW on their way (0: as
 * fast as it can), and answers with one line: packets sent, copies that were due, copies that came,
 * copies that were wrong or came twice, nanoseconds until the last came. TEMPLATES is a file of
 * TEMPLATES_IN_ALL records: a bit mask of the sinks that get a copy (u32), then the packet. Packet
 * ids count up from a random number and never come again; packet id modulo TEMPLATES_IN_ALL is the
 * number of the template.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

enum {
    MOST_LINKS = 1024,
    TABLES = 8,
    WORDS = 4, /* of a filter */
    BURST = 64,
    ROOM = 2048, /* for a packet */
    PACKET = 300,
    TEMPLATES_IN_ALL = 64,
    MOST_SINKS = 32,
    MOST_PACKETS = 1 << 22, /* in one run */
    HOP_LIMIT = 2,
    DESCRIPTOR = 3,
    PACKET_ID = 4,
    FILTER = 16,
    BUFFER = 4 << 20,
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int open_socket(uint16_t *port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), size = BUFFER;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        fail("socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    *port = ntohs(address.sin_port);
    return fd;
}

/* The forwarders */

static uint32_t links, first_sink;
static struct sockaddr_in addresses[MOST_LINKS];
static uint64_t tags[TABLES][MOST_LINKS][WORDS];

static void read_links(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fread(&links, sizeof links, 1, file) != 1 || links > MOST_LINKS ||
        fread(&first_sink, sizeof first_sink, 1, file) != 1 || first_sink >= links ||
        fread(addresses, sizeof *addresses, links, file) != links)
        fail(path);
    for (int table = 0; table < TABLES; table++)
        if (fread(tags[table], sizeof **tags, links, file) != links)
            fail(path);
    fclose(file);
}

/* The links that get a copy; 0 of them for bytes that are too short to be a packet. */
static unsigned match(const uint8_t *packet, size_t length, uint32_t *out) {
    uint64_t filter[WORDS];
    unsigned found = 0;
    if (length < FILTER + sizeof filter)
        return 0;
    memcpy(filter, packet + FILTER, sizeof filter);
    const uint64_t(*tag)[WORDS] = tags[packet[DESCRIPTOR] % TABLES];
    for (uint32_t link = 0; link < links; link++) {
        uint64_t missing = 0;
        for (int word = 0; word < WORDS; word++)
            missing |= tag[link][word] & ~filter[word];
        if (!missing)
            out[found++] = link;
    }
    return found;
}

static void forward_one_by_one(int fd) {
    static uint8_t packet[ROOM];
    uint32_t out[MOST_LINKS];
    for (;;) {
        ssize_t length = recv(fd, packet, sizeof packet, 0);
        if (length < 0)
            continue;
        unsigned copies = match(packet, (size_t)length, out);
        packet[HOP_LIMIT]--;
        for (unsigned copy = 0; copy < copies; copy++)
            sendto(fd, packet, (size_t)length, 0, (struct sockaddr *)&addresses[out[copy]],
                   sizeof *addresses);
    }
}

static struct mmsghdr incoming[BURST], outgoing[MOST_LINKS];
static struct iovec in_room[BURST], out_bytes[MOST_LINKS];
static uint8_t packets[BURST][ROOM];

static void send_all(int fd, unsigned count) {
    unsigned done = 0;
    while (done < count) {
        int sent = sendmmsg(fd, outgoing + done, count - done, 0);
        done += sent > 0 ? (unsigned)sent : 1; /* an error concerns the first of them */
    }
}

static void forward_in_bursts(int fd, int look) {
    uint32_t out[MOST_LINKS] = {first_sink};
    for (int slot = 0; slot < BURST; slot++) {
        in_room[slot] = (struct iovec){packets[slot], ROOM};
        incoming[slot].msg_hdr = (struct msghdr){.msg_iov = &in_room[slot], .msg_iovlen = 1};
    }
    for (int slot = 0; slot < MOST_LINKS; slot++)
        outgoing[slot].msg_hdr = (struct msghdr){
            .msg_namelen = sizeof *addresses, .msg_iov = &out_bytes[slot], .msg_iovlen = 1};
    for (;;) {
        unsigned queued = 0;
        int count = recvmmsg(fd, incoming, BURST, MSG_WAITFORONE, NULL);
        for (int slot = 0; slot < count; slot++) {
            size_t length = incoming[slot].msg_len;
            unsigned copies = look ? match(packets[slot], length, out) : 1;
            packets[slot][HOP_LIMIT]--;
            for (unsigned copy = 0; copy < copies; copy++) {
                if (queued == MOST_LINKS) {
                    send_all(fd, queued);
                    queued = 0;
                }
                out_bytes[queued] = (struct iovec){packets[slot], length};
                outgoing[queued++].msg_hdr.msg_name = &addresses[out[copy]];
            }
        }
        send_all(fd, queued);
    }
}

/* The load */

static struct {
    uint32_t sinks;
    uint8_t packet[PACKET];
} templates[TEMPLATES_IN_ALL];

static int sender, sink[MOST_SINKS];
static unsigned sinks;
static uint64_t next_id; /* of the packet sent next, */
static uint64_t first_id; /* the first of this run, */
static uint64_t oldest_id; /* and of all */
static uint8_t arrived[MOST_SINKS][MOST_PACKETS / 8];
static uint64_t right, wrong;
static int segments; /* the kernel cuts what is sent into packets: much cheaper */
static int one_cpu; /* the forwarder has to run on this one too */

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static uint64_t get_id(const uint8_t *packet) {
    uint64_t id = 0;
    for (int byte = 0; byte < 8; byte++)
        id = id << 8 | packet[PACKET_ID + byte];
    return id;
}

static void check(unsigned number, const uint8_t *packet, size_t length) {
    uint64_t id = length == PACKET ? get_id(packet) : 0, offset = id - first_id;
    const uint8_t *sent = templates[id % TEMPLATES_IN_ALL].packet;
    if (length == PACKET && id - oldest_id < first_id - oldest_id)
        return; /* given up for lost in an earlier run, and came after all */
    if (length != PACKET || offset >= next_id - first_id || offset >= MOST_PACKETS ||
        !(templates[id % TEMPLATES_IN_ALL].sinks >> number & 1) ||
        arrived[number][offset / 8] >> offset % 8 & 1 || packet[0] != sent[0] ||
        packet[1] != sent[1] || packet[HOP_LIMIT] + 1 != sent[HOP_LIMIT] ||
        packet[DESCRIPTOR] != sent[DESCRIPTOR] ||
        memcmp(packet + PACKET_ID + 8, sent + PACKET_ID + 8, PACKET - PACKET_ID - 8)) {
        wrong++;
        return;
    }
    arrived[number][offset / 8] |= (uint8_t)(1 << offset % 8);
    right++;
}

static unsigned take_in(void) {
    unsigned taken = 0;
    for (unsigned number = 0; number < sinks; number++) {
        int count = recvmmsg(sink[number], incoming, BURST, MSG_DONTWAIT, NULL);
        for (int slot = 0; slot < count; slot++)
            check(number, packets[slot], incoming[slot].msg_len);
        taken += count > 0 ? (unsigned)count : 0;
    }
    return taken;
}

/* One burst: every template once. The copies that are due. */
static unsigned send_burst(struct sockaddr_in *to) {
    unsigned due = 0;
    for (unsigned slot = 0; slot < TEMPLATES_IN_ALL; slot++, next_id++) {
        unsigned number = next_id % TEMPLATES_IN_ALL;
        uint8_t *packet = templates[number].packet;
        for (int byte = 0; byte < 8; byte++)
            packet[PACKET_ID + byte] = (uint8_t)(next_id >> (56 - 8 * byte));
        out_bytes[slot] = (struct iovec){packet, PACKET};
        outgoing[slot].msg_hdr = (struct msghdr){
            .msg_name = to, .msg_namelen = sizeof *to, .msg_iov = &out_bytes[slot], .msg_iovlen = 1};
        due += (unsigned)__builtin_popcount(templates[number].sinks);
    }
    if (segments) { /* all of them in one piece, which the kernel cuts up */
        struct msghdr all = {.msg_name = to,
                             .msg_namelen = sizeof *to,
                             .msg_iov = out_bytes,
                             .msg_iovlen = TEMPLATES_IN_ALL};
        sendmsg(sender, &all, 0);
    } else
        send_all(sender, TEMPLATES_IN_ALL);
    return due;
}

static void run(uint16_t port, double seconds, unsigned window) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    uint64_t due = 0, given_up = 0;
    unsigned copies = 0; /* of one burst */
    /* How long to wait for a copy until the rest is given up for lost: rarely are any, or many.
     * Before the first one the forwarder may not have had its turn yet. */
    int64_t patience = window ? 1000000000 : 100000000, first_patience = 10000000000;
    while (take_in()) /* what an earlier run left behind */
        ;
    memset(arrived, 0, sizeof arrived);
    right = wrong = 0;
    first_id = next_id;
    int64_t begun = now(), end = begun + (int64_t)(seconds * 1e9), heard = begun, time = begun;
    while (time < end || (right < due - given_up &&
                          time - heard < (right || wrong ? patience : first_patience))) {
        int64_t on_their_way = (int64_t)(due - given_up - right); /* less than 0: came after all */
        if (time < end && next_id - first_id <= MOST_PACKETS - TEMPLATES_IN_ALL &&
            (!window || on_their_way * BURST <= (int64_t)copies * (window - BURST)))
            due += copies = send_burst(&to);
        if (take_in())
            heard = now();
        else if (window && (right || wrong) && time - heard > patience)
            given_up = due - right; /* lost: go on without them */
        else if (one_cpu)
            sched_yield();
        time = now();
    }
    printf("%llu %llu %llu %llu %lld\n", (unsigned long long)(next_id - first_id),
           (unsigned long long)due, (unsigned long long)right, (unsigned long long)wrong,
           (long long)(heard - begun));
    fflush(stdout);
}

static void load(unsigned wanted) {
    uint16_t port;
    char path[1024];
    unsigned to, window;
    double seconds;
    for (int slot = 0; slot < BURST; slot++) {
        in_room[slot] = (struct iovec){packets[slot], ROOM};
        incoming[slot].msg_hdr = (struct msghdr){.msg_iov = &in_room[slot], .msg_iovlen = 1};
    }
    sender = open_socket(&port);
#ifdef UDP_SEGMENT
    int size = PACKET;
    segments = setsockopt(sender, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size) == 0;
#endif
    printf("%u", port);
    for (sinks = 0; sinks < wanted && sinks < MOST_SINKS; sinks++) {
        sink[sinks] = open_socket(&port);
        printf(" %u", port);
    }
    puts("");
    fflush(stdout);
    if (getrandom(&next_id, sizeof next_id, 0) != sizeof next_id)
        fail("getrandom");
    oldest_id = next_id = next_id / 2 / TEMPLATES_IN_ALL * TEMPLATES_IN_ALL;
    while (scanf("%u %1023s %lf %u", &to, path, &seconds, &window) == 4) {
        FILE *file = fopen(path, "rb");
        if (!file || fread(templates, sizeof *templates, TEMPLATES_IN_ALL, file) != TEMPLATES_IN_ALL)
            fail(path);
        fclose(file);
        run((uint16_t)to, seconds, window);
    }
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "load")) {
        one_cpu = atoi(argv[3]) == 1;
        load((unsigned)atoi(argv[2]));
        return 0;
    }
    if (argc != 3 || !strstr("recv mmsg echo", argv[1])) {
        fprintf(stderr, "usage: %s recv|mmsg|echo LINKS | load SINKS CPUS\n", argv[0]);
        return 2;
    }
    uint16_t port;
    int fd = open_socket(&port);
    read_links(argv[2]);
    printf("%u\n", port);
    fflush(stdout);
    if (!strcmp(argv[1], "recv"))
        forward_one_by_one(fd);
    else
        forward_in_bursts(fd, !strcmp(argv[1], "mmsg"));
}
