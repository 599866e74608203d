/* The link driver in C: what runtime/driver.py and the Python half of runtime/udp.py do, in bursts.
 *
 * A Driver reads the node's UDP socket, decides about data packets exactly as ForwardingTable.decide
 * does (forwarding/table.py lists the checks and their order; tests compare the two packet by
 * packet), sends the copies on, and returns what is left to do in Python: packets for the core, and
 * copies the kernel did not take. It owns no socket and calls no Python code.
 *
 * It keeps the GIL. Its system calls never wait and a burst lasts a fraction of a millisecond; who
 * gives the GIL up has to wait for it again, up to five milliseconds whenever another thread is
 * computing, and that for every burst.
 *
 * How a filter is matched: each tag is filed under its lowest bit. Only tags that are filed under
 * a bit that is set in the filter are looked at, and of those the other bits, until one is missing.
 * So the cost is that of the bits set, not of the length of the filter, and little of the number
 * of links.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h> /* defines _GNU_SOURCE, which recvmmsg needs */

#ifdef __linux__

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    BURST = 64,   /* packets taken */
    COPIES = 256, /* and copies sent by one system call */
    LARGEST_DATAGRAM = 65535,
    AHEAD = 8,
    HERE = -1,    /* forwarding.table.HERE */
    DECIDED = -1, /* the verdict that is no drop */
};

enum { /* wire.data */
    VERSION = 1,
    DATA = 1,
    KIND = 1,
    HOP_LIMIT = 2,
    DESCRIPTOR = 3,
    PACKET_ID = 4,
    NUMBERING = 12,
    HEADER = 16,
};

enum { /* zfilters.filters */
    BLOOM_DESCRIPTORS = 32, /* four sizes, eight tables */
    EXACT = 64,
    NO_MODE = 128,
};

enum { /* forwarding.table.Count */
    SHORT_HEADER,
    WRONG_VERSION,
    NO_HOPS_LEFT,
    WRONG_SIZE,
    UNKNOWN_NUMBERING,
    FULL,
    LOOP,
    NOWHERE,
    RECEIVED,
    FORWARDED,
    DELIVERED,
    REFUSED,
    COUNTS,
};

/* Bits and bytes */

static uint64_t word_at(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint32_t number_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* The builtin is a call of a slower function unless compiled for newer processors only. */
static unsigned bit_count(uint64_t word) {
    word -= word >> 1 & 0x5555555555555555u;
    word = (word & 0x3333333333333333u) + (word >> 2 & 0x3333333333333333u);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (unsigned)(word * 0x0101010101010101u >> 56);
}

static uint64_t mix(uint64_t key) {
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdu;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53u;
    return key ^ key >> 33;
}

/* The loop cache, as forwarding.table.LoopCache: two generations of ids, here open hash tables that
 * are at most half full and lie interleaved, so that one look fetches both. A place with 0 is free,
 * so the id 0 is kept apart. The secret is there because strangers choose the ids, and could choose
 * them to collide. */

typedef struct {
    uint64_t (*places)[2]; /* by generation */
    bool zero[2];          /* the id 0 was seen */
    int new;               /* generation; the other is the old one */
    size_t room, used, mask;
    uint64_t secret;
} LoopCache;

static int cache_init(LoopCache *cache, size_t room) {
    size_t places = 2;
    while (places < 2 * room)
        places *= 2;
    cache->room = room;
    cache->mask = places - 1;
    cache->places = PyMem_Calloc(places, sizeof *cache->places);
    if (!cache->places) {
        PyErr_NoMemory();
        return -1;
    }
    if (getrandom(&cache->secret, sizeof cache->secret, 0) != sizeof cache->secret) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    return 0;
}

/* The first place to look for the id at. */
static uint64_t (*cache_home(const LoopCache *cache, uint64_t id))[2] {
    return &cache->places[mix(id ^ cache->secret) & cache->mask];
}

/* Where the id is, or would be. */
static uint64_t *cache_place(const LoopCache *cache, int generation, uint64_t id) {
    size_t place = (size_t)(cache_home(cache, id) - cache->places);
    while (cache->places[place][generation] && cache->places[place][generation] != id)
        place = (place + 1) & cache->mask;
    return &cache->places[place][generation];
}

/* Whether the id was seen before; it has been from now on. */
static bool cache_seen(LoopCache *cache, uint64_t id) {
    int new = cache->new, old = !new;
    if (id == 0) {
        if (cache->zero[new] || cache->zero[old])
            return true;
        cache->zero[new] = true;
    } else {
        uint64_t *place = cache_place(cache, new, id);
        if (*place || *cache_place(cache, old, id))
            return true;
        *place = id;
    }
    if (++cache->used >= cache->room) { /* the old one is forgotten and becomes the new one */
        for (size_t place = 0; place <= cache->mask; place++)
            cache->places[place][old] = 0;
        cache->zero[old] = false;
        cache->new = old;
        cache->used = 0;
    }
    return false;
}

/* The table, as forwarding.table.ForwardingTable */

typedef struct {
    uint32_t lowest;     /* bit, under which the tag is filed */
    uint32_t position;   /* among the tags as the table lists them: the order of the copies */
    uint32_t first, end; /* of its bits, which ascend */
} Tag;

typedef struct {
    uint32_t key;    /* descriptor or numbering */
    uint32_t words;  /* of the filter that have tags filed under them */
    uint32_t count;  /* of tags */
    uint64_t *filed; /* the bits that have tags filed under them */
    uint32_t *under; /* the first tag filed under a bit; the last is before that of the next bit */
    Tag *tags;       /* by lowest bit */
    uint32_t *bits;
    int32_t *links; /* by position */
    Tag local;
    bool delivers;
} Row;

typedef struct {
    Py_ssize_t links, rows, exacts;
    const Row *bloom[BLOOM_DESCRIPTORS];
    const Row *exact; /* by numbering */
    uint64_t *matched; /* scratch: the positions that match, */
    int32_t *out;      /* and the links that get a copy */
    Row row[];
} Table;

static void table_free(Table *table) {
    if (!table)
        return;
    for (Py_ssize_t number = 0; number < table->rows; number++) {
        Row *row = &table->row[number];
        PyMem_Free(row->filed);
        PyMem_Free(row->under);
        PyMem_Free(row->tags);
        PyMem_Free(row->bits);
        PyMem_Free(row->links);
    }
    PyMem_Free(table->matched);
    PyMem_Free(table->out);
    PyMem_Free(table);
}

/* How many bits are set in little-endian bytes; -1 and an exception when it is none. */
static Py_ssize_t tag_size(PyObject *bytes) {
    Py_ssize_t size = 0;
    if (!PyBytes_Check(bytes)) {
        PyErr_SetString(PyExc_TypeError, "a tag is given as bytes");
        return -1;
    }
    for (Py_ssize_t byte = 0; byte < PyBytes_GET_SIZE(bytes); byte++)
        size += bit_count((uint8_t)PyBytes_AS_STRING(bytes)[byte]);
    if (size)
        return size;
    PyErr_SetString(PyExc_ValueError, "a tag has at least one bit");
    return -1;
}

/* Puts the bits into the row from `first` on; the place behind the last. */
static uint32_t tag_init(Tag *tag, PyObject *bytes, uint32_t position, Row *row, uint32_t first) {
    uint32_t next = first;
    for (Py_ssize_t byte = 0; byte < PyBytes_GET_SIZE(bytes); byte++)
        for (unsigned bit = 0; bit < 8; bit++)
            if ((uint8_t)PyBytes_AS_STRING(bytes)[byte] >> bit & 1)
                row->bits[next++] = (uint32_t)byte * 8 + bit;
    *tag = (Tag){row->bits[first], position, first, next};
    return next;
}

static int by_lowest_bit(const void *left, const void *right) {
    const Tag *a = left, *b = right;
    return a->lowest < b->lowest ? -1 : a->lowest > b->lowest;
}

static bool is_tuple(PyObject *source) {
    if (!PyTuple_Check(source))
        PyErr_SetString(PyExc_TypeError, "rows, links and lists of them are given as tuples");
    return PyTuple_Check(source);
}

/* From (key, tags, links, local): the bytes of the tags, the index of the link of each, the bytes
 * of the tag of the node's own delivery or None. */
static int row_init(Row *row, PyObject *source, Py_ssize_t links) {
    PyObject *key, *tags, *indices, *local;
    if (!is_tuple(source) ||
        !PyArg_ParseTuple(source, "O!O!O!O;a row is (key, tags, links, local)", &PyLong_Type, &key,
                          &PyTuple_Type, &tags, &PyTuple_Type, &indices, &local))
        return -1;
    unsigned long plain_key = PyLong_AsUnsignedLong(key);
    if (PyErr_Occurred())
        return -1;
    if (plain_key > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the key of a row has 32 bits");
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(tags), bits = 0;
    if (PyTuple_GET_SIZE(indices) != count) {
        PyErr_SetString(PyExc_ValueError, "a row has one link for each tag");
        return -1;
    }
    row->key = (uint32_t)plain_key;
    row->count = (uint32_t)count;
    row->delivers = local != Py_None;
    for (Py_ssize_t number = 0; number < count + row->delivers; number++) {
        Py_ssize_t size = tag_size(number < count ? PyTuple_GET_ITEM(tags, number) : local);
        if (size < 0)
            return -1;
        bits += size;
    }
    row->tags = PyMem_Calloc((size_t)count, sizeof *row->tags);
    row->links = PyMem_Calloc((size_t)count, sizeof *row->links);
    row->bits = PyMem_Calloc((size_t)bits, sizeof *row->bits);
    if (!row->tags || !row->links || !row->bits)
        goto no_memory;
    uint32_t next = 0;
    for (Py_ssize_t number = 0; number < count; number++) {
        long link = PyLong_AsLong(PyTuple_GET_ITEM(indices, number));
        if (link < 0 || link >= links) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "the table has no link %ld", link);
            return -1;
        }
        row->links[number] = (int32_t)link;
        next = tag_init(&row->tags[number], PyTuple_GET_ITEM(tags, number), (uint32_t)number, row,
                        next);
    }
    if (row->delivers)
        tag_init(&row->local, local, 0, row, next);
    if (!count)
        return 0;
    qsort(row->tags, (size_t)count, sizeof *row->tags, by_lowest_bit);
    row->words = row->tags[count - 1].lowest / 64 + 1;
    row->filed = PyMem_Calloc(row->words, sizeof *row->filed);
    row->under = PyMem_Calloc(64 * (size_t)row->words + 1, sizeof *row->under);
    if (!row->filed || !row->under)
        goto no_memory;
    uint32_t filed = 0;
    for (uint32_t bit = 0; bit < 64 * row->words; bit++) {
        row->under[bit] = filed;
        while (filed < row->count && row->tags[filed].lowest == bit)
            filed++;
        if (filed > row->under[bit])
            row->filed[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    row->under[64 * row->words] = filed;
    return 0;
no_memory:
    PyErr_NoMemory();
    return -1;
}

static int by_key(const void *left, const void *right) {
    const Row *a = left, *b = right;
    return a->key < b->key ? -1 : a->key > b->key;
}

/* From the rows of Bloom filters and those of exact ones; NULL and an exception if they are bad. */
static Table *table_new(Py_ssize_t links, PyObject *bloom, PyObject *exact) {
    Py_ssize_t blooms = PyTuple_GET_SIZE(bloom), exacts = PyTuple_GET_SIZE(exact);
    size_t most = 1;
    Table *table = PyMem_Calloc(1, sizeof *table + (size_t)(blooms + exacts) * sizeof(Row));
    if (!table)
        goto no_memory;
    table->links = links;
    table->rows = blooms + exacts;
    table->exacts = exacts;
    table->exact = table->row + blooms;
    for (Py_ssize_t number = 0; number < table->rows; number++) {
        Row *row = &table->row[number];
        PyObject *source = number < blooms ? PyTuple_GET_ITEM(bloom, number)
                                           : PyTuple_GET_ITEM(exact, number - blooms);
        if (row_init(row, source, links) < 0)
            goto failed;
        if (number < blooms) {
            if (row->key >= BLOOM_DESCRIPTORS) {
                PyErr_Format(PyExc_ValueError, "%u describes no Bloom filter", row->key);
                goto failed;
            }
            table->bloom[row->key] = row;
        }
        if (most < row->count)
            most = row->count;
    }
    if (exacts)
        qsort(table->row + blooms, (size_t)exacts, sizeof(Row), by_key);
    table->matched = PyMem_Calloc(most / 64 + 1, sizeof *table->matched);
    table->out = PyMem_Calloc(most, sizeof *table->out);
    if (table->matched && table->out)
        return table;
no_memory:
    PyErr_NoMemory();
failed:
    table_free(table);
    return NULL;
}

/* Deciding */

/* Bytes of the filter that a descriptor announces; 0 for a descriptor that means nothing. */
static size_t filter_length(uint8_t descriptor) {
    if (descriptor < BLOOM_DESCRIPTORS)
        return (size_t)32 << (descriptor >> 3);
    return EXACT <= descriptor && descriptor < NO_MODE ? 8 * (size_t)(descriptor - EXACT) : 0;
}

/* Whether the filter has these bits of the row. */
static bool has_bits(const Row *row, uint32_t first, uint32_t end, const uint8_t *filter,
                     size_t length) {
    for (uint32_t place = first; place < end; place++) {
        uint32_t bit = row->bits[place];
        if (bit / 8 >= length || !(filter[bit / 8] >> bit % 8 & 1))
            return false;
    }
    return true;
}

/* Puts the links that match into table->out, in the order of the row; how many there are. */
static uint32_t match(Table *table, const Row *row, const uint8_t *filter, size_t length,
                      int32_t arrived) {
    uint32_t words = row->words < length / 8 ? row->words : (uint32_t)(length / 8), found = 0;
    memset(table->matched, 0, (row->count / 64 + 1) * sizeof *table->matched);
    for (uint32_t word = 0; word < words; word++) {
        uint64_t set = word_at(filter + 8 * word) & row->filed[word];
        for (; set; set &= set - 1) {
            uint32_t bit = 64 * word + (uint32_t)__builtin_ctzll(set);
            for (uint32_t number = row->under[bit]; number < row->under[bit + 1]; number++) {
                const Tag *tag = &row->tags[number];
                if (has_bits(row, tag->first + 1, tag->end, filter, length))
                    table->matched[tag->position / 64] |= UINT64_C(1) << tag->position % 64;
            }
        }
    }
    for (uint32_t word = 0; word <= row->count / 64; word++)
        for (uint64_t set = table->matched[word]; set; set &= set - 1) {
            int32_t link = row->links[64 * word + (uint32_t)__builtin_ctzll(set)];
            if (link != arrived)
                table->out[found++] = link;
        }
    return found;
}

typedef struct {
    uint32_t copies; /* their links are in table->out */
    bool local;
} Decision;

/* As ForwardingTable.decide: a drop, or DECIDED. */
static int decide(Table *table, LoopCache *cache, const uint8_t *packet, size_t length,
                  int32_t arrived, Decision *decision) {
    if (length < HEADER)
        return SHORT_HEADER;
    if (packet[0] != VERSION)
        return WRONG_VERSION;
    if (packet[HOP_LIMIT] == 0)
        return NO_HOPS_LEFT;
    uint8_t descriptor = packet[DESCRIPTOR];
    const uint8_t *filter = packet + HEADER;
    size_t size = filter_length(descriptor);
    if (size == 0 || HEADER + size > length)
        return WRONG_SIZE;
    const Row *row;
    if (descriptor < EXACT) {
        row = table->bloom[descriptor];
        if (!row)
            return WRONG_SIZE;
        unsigned set = 0;
        for (size_t byte = 0; byte < size; byte += 8)
            set += bit_count(word_at(filter + byte));
        if (set > size * 4)
            return FULL;
    } else {
        Row wanted = {.key = number_at(packet + NUMBERING)};
        row = table->exacts
                  ? bsearch(&wanted, table->exact, (size_t)table->exacts, sizeof *row, by_key)
                  : NULL;
        if (!row)
            return UNKNOWN_NUMBERING;
    }
    if (cache_seen(cache, word_at(packet + PACKET_ID)))
        return LOOP;
    decision->copies = match(table, row, filter, size, arrived);
    decision->local = row->delivers && has_bits(row, row->local.first, row->local.end, filter, size);
    return decision->copies || decision->local ? DECIDED : NOWHERE;
}

/* Links and their addresses */

typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} Address;

typedef struct {
    PyObject *name;
    Address address;
    socklen_t length;
    int32_t index; /* in the table, or HERE */
    unsigned int mtu;
} Link;

typedef struct {
    size_t count, mask;
    int32_t *places; /* numbers of links, by hash of the address; -1 for a free place */
    Link link[];
} Links;

static void links_free(Links *links) {
    if (!links)
        return;
    for (size_t number = 0; number < links->count; number++)
        Py_XDECREF(links->link[number].name);
    PyMem_Free(links->places);
    PyMem_Free(links);
}

static bool same_address(const Address *a, const Address *b) {
    if (a->any.sa_family != b->any.sa_family)
        return false;
    if (a->any.sa_family == AF_INET)
        return a->v4.sin_port == b->v4.sin_port &&
               a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    return a->v6.sin6_port == b->v6.sin6_port && a->v6.sin6_scope_id == b->v6.sin6_scope_id &&
           !memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof a->v6.sin6_addr);
}

/* Where the number of the link with this address is, or would be. */
static int32_t *link_place(const Links *links, const Address *address) {
    uint64_t key;
    if (address->any.sa_family == AF_INET)
        key = (uint64_t)address->v4.sin_addr.s_addr << 16 | address->v4.sin_port;
    else
        key = mix(word_at(address->v6.sin6_addr.s6_addr)) ^
              word_at(address->v6.sin6_addr.s6_addr + 8) ^ address->v6.sin6_port;
    size_t place = mix(key) & links->mask;
    while (links->places[place] >= 0 &&
           !same_address(&links->link[links->places[place]].address, address))
        place = (place + 1) & links->mask;
    return &links->places[place];
}

/* From (name, family, host, port, scope, mtu), the host as inet_pton has it. */
static int link_init(Link *link, PyObject *source) {
    PyObject *name;
    Py_buffer host;
    int family;
    unsigned short port;
    unsigned int scope, mtu;
    if (!is_tuple(source) ||
        !PyArg_ParseTuple(source, "Uiy*HII;a link is (name, family, host, port, scope, mtu)", &name,
                          &family, &host, &port, &scope, &mtu))
        return -1;
    int known = family == AF_INET    ? host.len == sizeof link->address.v4.sin_addr
                : family == AF_INET6 ? host.len == sizeof link->address.v6.sin6_addr
                                     : 0;
    if (!known)
        PyErr_SetString(PyExc_ValueError, "a link needs an IPv4 or IPv6 address");
    else if (family == AF_INET) {
        link->length = sizeof link->address.v4;
        link->address.v4.sin_family = AF_INET;
        link->address.v4.sin_port = htons(port);
        memcpy(&link->address.v4.sin_addr, host.buf, (size_t)host.len);
    } else {
        link->length = sizeof link->address.v6;
        link->address.v6.sin6_family = AF_INET6;
        link->address.v6.sin6_port = htons(port);
        link->address.v6.sin6_scope_id = scope;
        memcpy(&link->address.v6.sin6_addr, host.buf, (size_t)host.len);
    }
    PyBuffer_Release(&host);
    link->name = Py_NewRef(name);
    link->index = HERE;
    link->mtu = mtu;
    return known ? 0 : -1;
}

static Links *links_new(PyObject *sources) {
    size_t count = (size_t)PyTuple_GET_SIZE(sources), places = 2;
    while (places < 2 * count)
        places *= 2;
    Links *links = PyMem_Calloc(1, sizeof *links + count * sizeof(Link));
    if (!links)
        goto no_memory;
    links->count = count;
    links->mask = places - 1;
    links->places = PyMem_Malloc(places * sizeof *links->places);
    if (!links->places)
        goto no_memory;
    for (size_t place = 0; place < places; place++)
        links->places[place] = -1;
    for (size_t number = 0; number < count; number++) {
        if (link_init(&links->link[number], PyTuple_GET_ITEM(sources, number)) < 0)
            goto failed;
        *link_place(links, &links->link[number].address) = (int32_t)number;
    }
    return links;
no_memory:
    PyErr_NoMemory();
failed:
    links_free(links);
    return NULL;
}

/* The driver */

typedef struct {
    PyObject_HEAD
    int fd;
    bool busy; /* an allocation may run foreign code (finalizers), which must not come in here */
    LoopCache cache;
    Table *table;
    Py_buffer counters;
    PyObject *index;      /* of each link of the table, by name */
    Links *links;
    const Link **targets; /* the link of each index of the table; NULL where there is none now */

    uint8_t *packets; /* room for BURST of them, */
    size_t stride;    /* so far apart */
    struct mmsghdr incoming[BURST];
    struct iovec bytes_in[BURST];
    Address sources[BURST];

    unsigned queued; /* copies that wait for the end of the burst */
    struct mmsghdr outgoing[COPIES];
    struct iovec bytes_out[COPIES];
    const Link *out[COPIES];
} Driver;

static uint64_t *counts(Driver *self) {
    return self->counters.buf;
}

/* What came of a call, for Python to finish. */
typedef struct {
    PyObject *up;     /* [(link, packet)] for the core */
    PyObject *unsent; /* [(link, packet)]: copies the kernel did not take */
    bool blocked;     /* it takes no more */
    unsigned long received, strangers, oversized, sent, errors;
} Outcome;

static int append_pair(PyObject *list, PyObject *name, PyObject *packet) {
    PyObject *pair = PyTuple_Pack(2, name, packet);
    int failed = !pair || PyList_Append(list, pair) < 0;
    Py_XDECREF(pair);
    return failed ? -1 : 0;
}

/* Gives the copies from `first` on back; those of the same packet share its bytes. */
static int give_back(Driver *self, unsigned first, Outcome *outcome) {
    PyObject *packet = NULL;
    int failed = 0;
    for (unsigned number = first; number < self->queued && !failed; number++) {
        const struct iovec *bytes = &self->bytes_out[number];
        if (number == first || bytes->iov_base != bytes[-1].iov_base) {
            Py_XDECREF(packet);
            packet = PyBytes_FromStringAndSize(bytes->iov_base, (Py_ssize_t)bytes->iov_len);
        }
        failed = !packet || append_pair(outcome->unsent, self->out[number]->name, packet) < 0;
    }
    Py_XDECREF(packet);
    return failed ? -1 : 0;
}

static int send_queued(Driver *self, Outcome *outcome) {
    unsigned done = 0;
    int result = 0;
    while (done < self->queued && !outcome->blocked) {
        int sent = sendmmsg(self->fd, self->outgoing + done, self->queued - done, MSG_DONTWAIT);
        if (sent > 0) {
            done += (unsigned)sent;
            outcome->sent += (unsigned)sent;
            counts(self)[FORWARDED] += (unsigned)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            outcome->blocked = true;
        } else if (errno != EINTR) { /* concerns the first of them only */
            done++;
            outcome->errors++;
            counts(self)[REFUSED]++;
        }
    }
    if (done < self->queued)
        result = give_back(self, done, outcome);
    self->queued = 0;
    return result;
}

static int send_copies(Driver *self, const uint8_t *packet, size_t length, uint32_t copies,
                       Outcome *outcome) {
    for (uint32_t copy = 0; copy < copies; copy++) {
        const Link *link = self->targets[self->table->out[copy]];
        if (!link || length > link->mtu) {
            outcome->oversized += link != NULL;
            counts(self)[REFUSED]++;
            continue;
        }
        if (self->queued == COPIES && send_queued(self, outcome) < 0)
            return -1;
        self->out[self->queued] = link;
        self->bytes_out[self->queued] = (struct iovec){(void *)packet, length};
        self->outgoing[self->queued].msg_hdr.msg_name = (void *)&link->address;
        self->outgoing[self->queued].msg_hdr.msg_namelen = link->length;
        self->queued++;
    }
    return 0;
}

/* As LinkDriver.arrived. */
static int packet_arrived(Driver *self, const Link *link, uint8_t *packet, size_t length,
                          Outcome *outcome) {
    bool up = true;
    Decision decision = {0};
    outcome->received++;
    if (self->table && length > KIND && packet[KIND] == DATA) {
        counts(self)[RECEIVED]++;
        int verdict = decide(self->table, &self->cache, packet, length, link->index, &decision);
        if (verdict != DECIDED) {
            counts(self)[verdict]++;
            return 0;
        }
        counts(self)[DELIVERED] += up = decision.local;
    }
    if (up) {
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)packet, (Py_ssize_t)length);
        int failed = !bytes || append_pair(outcome->up, link->name, bytes) < 0;
        Py_XDECREF(bytes);
        if (failed)
            return -1;
    }
    if (!decision.copies)
        return 0;
    packet[HOP_LIMIT]--;
    return send_copies(self, packet, length, decision.copies, outcome);
}

static uint8_t *packet_in(const Driver *self, int slot) {
    return self->packets + (size_t)slot * self->stride;
}

static int burst_arrived(Driver *self, int count, Outcome *outcome) {
    for (int slot = -AHEAD; slot < count; slot++) {
        /* Waiting for memory in the loop cache would be most of the time of a decision. */
        if (slot + AHEAD < count)
            __builtin_prefetch(
                cache_home(&self->cache, word_at(packet_in(self, slot + AHEAD) + PACKET_ID)), 1);
        if (slot < 0)
            continue;
        struct mmsghdr *message = &self->incoming[slot];
        size_t length = message->msg_len;
        int32_t number = *link_place(self->links, &self->sources[slot]);
        message->msg_hdr.msg_namelen = sizeof self->sources[slot];
        if (number < 0)
            outcome->strangers++;
        else if (length > self->links->link[number].mtu)
            outcome->oversized++;
        else if (packet_arrived(self, &self->links->link[number], packet_in(self, slot), length,
                                outcome) < 0)
            return -1;
    }
    return send_queued(self, outcome);
}

static bool enter(Driver *self) {
    if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "the driver is at work already");
    return !self->busy && (self->busy = true);
}

PyDoc_STRVAR(drain_doc,
"drain(limit, blocked)\n--\n\n"
"Take at most `limit` packets from the socket, and forward those that are to be forwarded; with\n"
"`blocked` nothing is sent. Less than `limit` once the kernel takes no more.\n\n"
"Returns (up, unsent, received, strangers, oversized, sent, errors): what the core is to see and\n"
"the copies the kernel did not take, both as [(link, packet)], and numbers of packets.");

static PyObject *driver_drain(Driver *self, PyObject *args) {
    int limit, blocked, failed = 0;
    if (!PyArg_ParseTuple(args, "ip:drain", &limit, &blocked) || !enter(self))
        return NULL;
    Outcome outcome = {.blocked = blocked, .up = PyList_New(0), .unsent = PyList_New(0)};
    failed = !outcome.up || !outcome.unsent;
    self->queued = 0; /* an earlier call may have failed half-way */
    while (limit > 0 && !failed) {
        int wanted = limit < BURST ? limit : BURST;
        int count = recvmmsg(self->fd, self->incoming, (unsigned)wanted, MSG_DONTWAIT, NULL);
        if (count >= 0) {
            failed = burst_arrived(self, count, &outcome) < 0;
            limit -= count;
            if (count < wanted || outcome.blocked)
                break; /* nothing is left, or nowhere to send it */
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) { /* an ICMP error answered an earlier packet */
            outcome.errors++;
            limit--;
        }
    }
    self->busy = false;
    if (!failed)
        return Py_BuildValue("NNkkkkk", outcome.up, outcome.unsent, outcome.received,
                             outcome.strangers, outcome.oversized, outcome.sent, outcome.errors);
    Py_XDECREF(outcome.up);
    Py_XDECREF(outcome.unsent);
    return NULL;
}

PyDoc_STRVAR(inject_doc,
"inject(packet, blocked)\n--\n\n"
"Send a data packet of the node's own; with `blocked` nothing is sent.\n\n"
"Returns (local, unsent, oversized, sent, errors), as LinkDriver.inject and drain do.");

static PyObject *driver_inject(Driver *self, PyObject *args) {
    PyObject *packet;
    int blocked, failed;
    Decision decision = {0};
    if (!PyArg_ParseTuple(args, "Sp:inject", &packet, &blocked) || !enter(self))
        return NULL;
    Outcome outcome = {.blocked = blocked, .unsent = PyList_New(0)};
    failed = !outcome.unsent;
    if (self->table && !failed) {
        const uint8_t *bytes = (const uint8_t *)PyBytes_AS_STRING(packet);
        size_t length = (size_t)PyBytes_GET_SIZE(packet);
        int verdict = decide(self->table, &self->cache, bytes, length, HERE, &decision);
        self->queued = 0;
        if (verdict != DECIDED)
            counts(self)[verdict]++;
        failed = send_copies(self, bytes, length, decision.copies, &outcome) < 0 ||
                 send_queued(self, &outcome) < 0;
    }
    self->busy = false;
    if (!failed)
        return Py_BuildValue("ONkkk", decision.local ? Py_True : Py_False, outcome.unsent,
                             outcome.oversized, outcome.sent, outcome.errors);
    Py_XDECREF(outcome.unsent);
    return NULL;
}

PyDoc_STRVAR(decide_doc,
"decide(packet, arrived)\n--\n\n"
"As ForwardingTable.decide, by the table and the loop cache of this driver: the number of the\n"
"drop, or (links, local).");

static PyObject *driver_decide(Driver *self, PyObject *args) {
    const char *packet;
    Py_ssize_t length;
    int arrived;
    Decision decision = {0};
    if (!PyArg_ParseTuple(args, "y#i:decide", &packet, &length, &arrived))
        return NULL;
    if (!self->table) {
        PyErr_SetString(PyExc_ValueError, "no table is installed");
        return NULL;
    }
    if (!enter(self))
        return NULL;
    int verdict = decide(self->table, &self->cache, (const uint8_t *)packet, (size_t)length,
                         arrived, &decision);
    PyObject *result = NULL, *links = NULL;
    if (verdict != DECIDED)
        result = PyLong_FromLong(verdict);
    else if ((links = PyTuple_New(decision.copies))) {
        for (uint32_t copy = 0; copy < decision.copies; copy++) {
            PyObject *link = PyLong_FromLong(self->table->out[copy]);
            if (!link)
                goto done;
            PyTuple_SET_ITEM(links, copy, link);
        }
        result = PyTuple_Pack(2, links, decision.local ? Py_True : Py_False);
    }
done:
    Py_XDECREF(links);
    self->busy = false;
    return result;
}

/* Which link each index of the table stands for, and back; NULL and an exception on failure. */
static const Link **aim(Links *links, PyObject *index, Py_ssize_t count) {
    const Link **targets = PyMem_Calloc((size_t)count, sizeof *targets);
    if (!targets) {
        PyErr_NoMemory();
        return NULL;
    }
    for (size_t number = 0; number < links->count; number++) {
        Link *link = &links->link[number];
        PyObject *found = index ? PyDict_GetItemWithError(index, link->name) : NULL;
        link->index = found ? (int32_t)PyLong_AsLong(found) : HERE;
        if (found)
            targets[link->index] = link;
        else if (PyErr_Occurred()) {
            PyMem_Free(targets);
            return NULL;
        }
    }
    return targets;
}

PyDoc_STRVAR(install_doc,
"install(links, bloom, exact, counters)\n--\n\n"
"Use another table: the names of its links; the rows of Bloom filters by descriptor and those of\n"
"exact filters by numbering, each (key, tags, links, local) with tags in bytes, little-endian;\n"
"and the array of counters to add to. The loop cache stays.");

static PyObject *driver_install(Driver *self, PyObject *args) {
    PyObject *names, *bloom, *exact, *counters;
    Py_buffer buffer = {0};
    Table *table = NULL;
    const Link **targets = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!O:install", &PyTuple_Type, &names, &PyTuple_Type, &bloom,
                          &PyTuple_Type, &exact, &counters) ||
        !enter(self))
        return NULL;
    PyObject *index = PyDict_New();
    if (!index)
        goto failed;
    for (Py_ssize_t number = 0; number < PyTuple_GET_SIZE(names); number++) {
        PyObject *value = PyLong_FromSsize_t(number);
        int bad = !value || PyDict_SetItem(index, PyTuple_GET_ITEM(names, number), value) < 0;
        Py_XDECREF(value);
        if (bad)
            goto failed;
    }
    if (PyObject_GetBuffer(counters, &buffer, PyBUF_WRITABLE | PyBUF_FORMAT) < 0)
        goto failed;
    if (buffer.itemsize != sizeof(uint64_t) || strcmp(buffer.format, "Q") ||
        buffer.len < (Py_ssize_t)(COUNTS * sizeof(uint64_t))) {
        PyErr_Format(PyExc_ValueError, "the counters are an array('Q') of at least %d", COUNTS);
        goto failed;
    }
    table = table_new(PyTuple_GET_SIZE(names), bloom, exact);
    if (!table || !(targets = aim(self->links, index, table->links)))
        goto failed;
    table_free(self->table);
    self->table = table;
    PyMem_Free(self->targets);
    self->targets = targets;
    Py_XSETREF(self->index, index);
    if (self->counters.obj)
        PyBuffer_Release(&self->counters);
    self->counters = buffer;
    self->busy = false;
    Py_RETURN_NONE;
failed:
    table_free(table);
    Py_XDECREF(index);
    if (buffer.obj)
        PyBuffer_Release(&buffer);
    self->busy = false;
    return NULL;
}

PyDoc_STRVAR(set_links_doc,
"set_links(links)\n--\n\n"
"These are the links now: a tuple of (name, family, host, port, scope, mtu), the host as\n"
"inet_pton has it.");

static PyObject *driver_set_links(Driver *self, PyObject *sources) {
    if (!is_tuple(sources) || !enter(self))
        return NULL;
    const Link **targets = NULL;
    uint8_t *packets = NULL;
    size_t largest = 0;
    Links *links = links_new(sources);
    if (!links || !(targets = aim(links, self->index, self->table ? self->table->links : 0)))
        goto failed;
    for (size_t number = 0; number < links->count; number++)
        if (largest < links->link[number].mtu)
            largest = links->link[number].mtu;
    /* One byte more, to see that a packet is too large; none is larger than UDP has them. */
    largest = (largest < LARGEST_DATAGRAM ? largest : LARGEST_DATAGRAM) + 1;
    size_t stride = (largest + 63) / 64 * 64;
    packets = PyMem_Calloc(BURST, stride);
    if (!packets) {
        PyErr_NoMemory();
        goto failed;
    }
    for (int slot = 0; slot < BURST; slot++)
        self->bytes_in[slot] = (struct iovec){packets + (size_t)slot * stride, largest};
    PyMem_Free(self->packets);
    self->packets = packets;
    self->stride = stride;
    PyMem_Free(self->targets);
    self->targets = targets;
    links_free(self->links);
    self->links = links;
    self->busy = false;
    Py_RETURN_NONE;
failed:
    links_free(links);
    PyMem_Free(targets);
    self->busy = false;
    return NULL;
}

/* The type and the module */

static void driver_dealloc(Driver *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(self->cache.places);
    table_free(self->table);
    links_free(self->links);
    PyMem_Free(self->targets);
    PyMem_Free(self->packets);
    Py_XDECREF(self->index);
    if (self->counters.obj)
        PyBuffer_Release(&self->counters);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *driver_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"fd", "remembered", NULL};
    int fd;
    Py_ssize_t remembered;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "in:Driver", names, &fd, &remembered))
        return NULL;
    if (remembered < 1 || remembered > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the loop cache remembers at least one packet");
        return NULL;
    }
    Driver *self = (Driver *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->fd = fd;
    for (int slot = 0; slot < BURST; slot++)
        self->incoming[slot].msg_hdr = (struct msghdr){
            .msg_name = &self->sources[slot],
            .msg_namelen = sizeof self->sources[slot],
            .msg_iov = &self->bytes_in[slot],
            .msg_iovlen = 1,
        };
    for (int slot = 0; slot < COPIES; slot++)
        self->outgoing[slot].msg_hdr =
            (struct msghdr){.msg_iov = &self->bytes_out[slot], .msg_iovlen = 1};
    PyObject *nothing = PyTuple_New(0);
    PyObject *done = nothing && cache_init(&self->cache, (size_t)remembered) == 0
                         ? driver_set_links(self, nothing)
                         : NULL;
    Py_XDECREF(nothing);
    Py_XDECREF(done);
    if (!done)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMethodDef driver_methods[] = {
    {"install", (PyCFunction)driver_install, METH_VARARGS, install_doc},
    {"set_links", (PyCFunction)driver_set_links, METH_O, set_links_doc},
    {"drain", (PyCFunction)driver_drain, METH_VARARGS, drain_doc},
    {"inject", (PyCFunction)driver_inject, METH_VARARGS, inject_doc},
    {"decide", (PyCFunction)driver_decide, METH_VARARGS, decide_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(driver_doc,
"Driver(fd, remembered)\n--\n\n"
"Forwards what arrives at a datagram socket, which stays the caller's; remembers that many packets\n"
"in each generation of its loop cache.");

static PyType_Slot driver_slots[] = {
    {Py_tp_doc, (void *)driver_doc},
    {Py_tp_new, driver_new},
    {Py_tp_dealloc, driver_dealloc},
    {Py_tp_methods, driver_methods},
    {0, NULL},
};

static PyType_Spec driver_spec = {
    .name = "psirp_sim.runtime._fastpath.Driver",
    .basicsize = sizeof(Driver),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = driver_slots,
};

static int module_exec(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &driver_spec, NULL);
    int failed = !type || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

#else

static int module_exec(PyObject *module) {
    PyErr_SetString(PyExc_ImportError, "the link driver in C needs recvmmsg and sendmmsg (Linux)");
    return -1;
}

#endif

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_fastpath",
    .m_doc = "The link driver in C.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__fastpath(void) {
    return PyModuleDef_Init(&module);
}
