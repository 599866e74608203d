/* The table of forwarding/table.py in C: the same decisions about the same packets, for drivers that
 * are written in C. Nothing here does input or output.
 *
 * Tests compare the two packet by packet. What the checks are and in which order they come is said
 * in table.py.
 *
 * How a filter is matched: each tag is filed under its lowest bit, and only those are compared that
 * are filed under a bit which is set in the filter.
 */

#ifndef PSIRP_SIM_FORWARDING_TABLE_H
#define PSIRP_SIM_FORWARDING_TABLE_H

#include <Python.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { /* wire.data */
    VERSION = 1,
    DATA = 1,
    KIND = 1, /* from here on: where in the header */
    HOP_LIMIT = 2,
    DESCRIPTOR = 3,
    PACKET_ID = 4,
    NUMBERING = 12,
    HEADER = 16,
    SAMPLED = 0xA5, /* last byte of a packet id */
};

enum { /* zfilters.filters */
    BLOOM_DESCRIPTORS = 32, /* four sizes, eight tables */
    EXACT = 64,
    NO_MODE = 128,
    MOST_WORDS = 63, /* of 64 bits, in a filter */
};

enum { /* forwarding.table */
    HERE = -1,
    SHORT_HEADER = 0, /* from here on: Count */
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

enum { DECIDED = -1 }; /* the verdict that is no drop */

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

/* The loop cache, as LoopCache: two generations of ids, here open hash tables that are at most half
 * full and lie interleaved, so that one look fetches both. A place with 0 is free, so the id 0 is
 * kept apart. The secret is there because strangers choose the ids, and could choose them to
 * collide. */

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

/* The table, as ForwardingTable */

typedef struct {
    uint32_t key;        /* descriptor or numbering */
    uint32_t count;      /* of tags */
    uint32_t words;      /* of each tag */
    uint64_t *tags;      /* by lowest bit */
    uint64_t *filed;     /* the bits that tags are filed under */
    uint32_t *under;     /* for each bit the first tag filed under it, or under a later bit */
    uint32_t *positions; /* of the tags as the table lists them: the order of the copies */
    int32_t *links;      /* by position */
    uint64_t *local;     /* the tag of the node's own delivery, or NULL */
} Row;

typedef struct {
    Py_ssize_t links, rows, exacts;
    const Row *bloom[BLOOM_DESCRIPTORS];
    const Row *exact;  /* by numbering */
    uint64_t *matched; /* scratch: the positions that match, */
    int32_t *out;      /* and the links that get a copy */
    Row row[];
} Table;

static void table_free(Table *table) {
    if (!table)
        return;
    for (Py_ssize_t number = 0; number < table->rows; number++) {
        Row *row = &table->row[number];
        PyMem_Free(row->tags);
        PyMem_Free(row->filed);
        PyMem_Free(row->under);
        PyMem_Free(row->positions);
        PyMem_Free(row->links);
        PyMem_Free(row->local);
    }
    PyMem_Free(table->matched);
    PyMem_Free(table->out);
    PyMem_Free(table);
}

static bool is_tuple(PyObject *source) {
    if (!PyTuple_Check(source))
        PyErr_SetString(PyExc_TypeError, "rows, links and lists of them are given as tuples");
    return PyTuple_Check(source);
}

/* The lowest bit of a tag; -1 and an exception when it is none, or longer than any filter. */
static int lowest_bit(PyObject *tag) {
    if (PyBytes_Check(tag) && PyBytes_GET_SIZE(tag) % 8 == 0 &&
        PyBytes_GET_SIZE(tag) <= 8 * MOST_WORDS)
        for (int word = 0; word < PyBytes_GET_SIZE(tag) / 8; word++) {
            uint64_t bits = word_at((const uint8_t *)PyBytes_AS_STRING(tag) + 8 * word);
            if (bits)
                return 64 * word + __builtin_ctzll(bits);
        }
    PyErr_SetString(PyExc_ValueError, "a tag is 8 to 504 bytes, in words of 8, not all of them 0");
    return -1;
}

static void copy_tag(uint64_t *words, PyObject *tag) {
    for (Py_ssize_t word = 0; word < PyBytes_GET_SIZE(tag) / 8; word++)
        words[word] = word_at((const uint8_t *)PyBytes_AS_STRING(tag) + 8 * word);
}

typedef struct {
    uint32_t lowest, position;
} Order;

static int by_lowest_bit(const void *left, const void *right) {
    const Order *a = left, *b = right;
    return a->lowest < b->lowest ? -1 : a->lowest > b->lowest;
}

/* Files the tags; they and the links have been checked. */
static void row_fill(Row *row, PyObject *tags, PyObject *local, Order *order) {
    qsort(order, row->count, sizeof *order, by_lowest_bit);
    uint32_t number = 0;
    for (uint32_t bit = 0; bit < 64 * row->words; bit++) {
        for (row->under[bit] = number; number < row->count && order[number].lowest == bit; number++) {
            row->positions[number] = order[number].position;
            row->filed[bit / 64] |= UINT64_C(1) << bit % 64;
            copy_tag(row->tags + (size_t)number * row->words,
                     PyTuple_GET_ITEM(tags, order[number].position));
        }
    }
    row->under[64 * row->words] = number;
    if (row->local)
        copy_tag(row->local, local);
}

/* From (key, tags, links, local): tags in little-endian bytes, the index of the link of each, the
 * tag of the node's own delivery or None. */
static int row_init(Row *row, PyObject *source, Py_ssize_t links) {
    PyObject *key, *tags, *indices, *local;
    if (!is_tuple(source) ||
        !PyArg_ParseTuple(source, "O!O!O!O;a row is (key, tags, links, local)", &PyLong_Type, &key,
                          &PyTuple_Type, &tags, &PyTuple_Type, &indices, &local))
        return -1;
    unsigned long number = PyLong_AsUnsignedLong(key);
    size_t count = (size_t)PyTuple_GET_SIZE(tags);
    if (PyErr_Occurred())
        return -1;
    if (number > UINT32_MAX || count > INT32_MAX || (size_t)PyTuple_GET_SIZE(indices) != count) {
        PyErr_SetString(PyExc_ValueError, "a row has a key of 32 bits and a link for each tag");
        return -1;
    }
    row->key = (uint32_t)number;
    row->count = (uint32_t)count;
    if (local != Py_None) {
        if (lowest_bit(local) < 0)
            return -1;
        row->words = (uint32_t)(PyBytes_GET_SIZE(local) / 8);
    }
    Order *order = PyMem_Calloc(count, sizeof *order);
    row->links = PyMem_Calloc(count, sizeof *row->links);
    if (!order || !row->links)
        goto no_memory;
    for (size_t position = 0; position < count; position++) {
        PyObject *tag = PyTuple_GET_ITEM(tags, position);
        long link = PyLong_AsLong(PyTuple_GET_ITEM(indices, position));
        int lowest = PyErr_Occurred() ? -1 : lowest_bit(tag);
        if (lowest < 0)
            goto failed;
        if (link < 0 || link >= links) {
            PyErr_Format(PyExc_ValueError, "the table has no link %ld", link);
            goto failed;
        }
        row->links[position] = (int32_t)link;
        order[position] = (Order){(uint32_t)lowest, (uint32_t)position};
        if (row->words < PyBytes_GET_SIZE(tag) / 8)
            row->words = (uint32_t)(PyBytes_GET_SIZE(tag) / 8);
    }
    row->tags = PyMem_Calloc(count * row->words, sizeof *row->tags);
    row->filed = PyMem_Calloc(row->words, sizeof *row->filed);
    row->under = PyMem_Calloc(64 * (size_t)row->words + 1, sizeof *row->under);
    row->positions = PyMem_Calloc(count, sizeof *row->positions);
    row->local = local == Py_None ? NULL : PyMem_Calloc(row->words, sizeof *row->local);
    if (!row->tags || !row->filed || !row->under || !row->positions ||
        (local != Py_None && !row->local))
        goto no_memory;
    row_fill(row, tags, local, order);
    PyMem_Free(order);
    return 0;
no_memory:
    PyErr_NoMemory();
failed:
    PyMem_Free(order);
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

static inline bool lacks(const uint64_t *tag, const uint64_t *missing, uint32_t words) {
    uint64_t lacking = 0;
    for (uint32_t word = 0; word < words; word++)
        lacking |= tag[word] & missing[word];
    return lacking;
}

/* Sets the positions that match. Comparing all words of a tag is faster than to stop at the first
 * that differs, which the processor cannot foresee. Inlined, to be compiled for 4 words by itself. */
static inline __attribute__((always_inline)) void find(const Row *row, const uint64_t *missing,
                                                       uint64_t *matched, uint32_t words) {
    for (uint32_t word = 0; word < words; word++) {
        uint64_t set = ~missing[word] & row->filed[word];
        for (; set; set &= set - 1) {
            uint32_t bit = 64 * word + (uint32_t)__builtin_ctzll(set);
            for (uint32_t number = row->under[bit]; number < row->under[bit + 1]; number++) {
                uint32_t position = row->positions[number];
                if (!lacks(row->tags + (size_t)number * words, missing, words))
                    matched[position / 64] |= UINT64_C(1) << position % 64;
            }
        }
    }
}

/* Puts the links that match into table->out, in the order of the row; how many there are. */
static uint32_t match(Table *table, const Row *row, const uint64_t *missing, int32_t arrived) {
    uint32_t found = 0;
    memset(table->matched, 0, (row->count / 64 + 1) * sizeof *table->matched);
    if (row->words == 4)
        find(row, missing, table->matched, 4);
    else
        find(row, missing, table->matched, row->words);
    for (uint32_t word = 0; word <= row->count / 64; word++)
        for (uint64_t set = table->matched[word]; set; set &= set - 1) {
            int32_t link = row->links[64 * word + (uint32_t)__builtin_ctzll(set)];
            if (link != arrived)
                table->out[found++] = link;
        }
    return found;
}

static const Row *find_exact(const Table *table, uint32_t numbering) {
    Row wanted = {.key = numbering};
    if (!table->exacts)
        return NULL;
    return bsearch(&wanted, table->exact, (size_t)table->exacts, sizeof wanted, by_key);
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
    size_t size = filter_length(descriptor);
    if (size == 0 || HEADER + size > length)
        return WRONG_SIZE;
    uint64_t missing[MOST_WORDS]; /* in the filter */
    unsigned set = 0;
    for (size_t word = 0; word < size / 8; word++) {
        missing[word] = ~word_at(packet + HEADER + 8 * word);
        set += bit_count(~missing[word]);
    }
    const Row *row;
    if (descriptor < EXACT) {
        row = table->bloom[descriptor];
        if (!row)
            return WRONG_SIZE;
        if (set > size * 4)
            return FULL;
    } else {
        row = find_exact(table, number_at(packet + NUMBERING));
        if (!row)
            return UNKNOWN_NUMBERING;
    }
    if (cache_seen(cache, word_at(packet + PACKET_ID)))
        return LOOP;
    for (size_t word = size / 8; word < row->words; word++)
        missing[word] = UINT64_MAX;
    decision->copies = match(table, row, missing, arrived);
    decision->local = row->local && !lacks(row->local, missing, row->words);
    return decision->copies || decision->local ? DECIDED : NOWHERE;
}

#endif
