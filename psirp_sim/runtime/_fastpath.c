/* The link driver in C: what runtime/driver.py and the Python half of runtime/udp.py do, in bursts.
 *
 * A Driver reads the node's UDP socket, decides about data packets (forwarding/table.h), sends the
 * copies on, and returns what is left to do in Python: packets for the core, and copies the kernel
 * did not take. It owns no socket and calls no Python code.
 *
 * It keeps the GIL: its system calls never wait and a burst takes a fraction of a millisecond. To
 * give the GIL up around them gains nothing when no other thread runs, and costs a quarter of the
 * packets when one computes, because it has to be waited for after every burst.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h> /* defines _GNU_SOURCE, which recvmmsg needs */

#ifdef __linux__

#include "../forwarding/table.h"
#include <netinet/in.h>
#include <sys/socket.h>

enum {
    BURST = 64,   /* packets taken, */
    COPIES = 256, /* and copies sent, by one system call */
    AHEAD = 8,    /* packets by which memory is asked for before it is needed */
    LARGEST_DATAGRAM = 65535,
    LEAST_ROOM = 1472, /* bytes read of a packet, however small the links: strangers may knock */
    CONTROL = 2,       /* wire.data: the kind of what neighbours say to each other */
};

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
    PyObject *knocks; /* [(packet, host, port, scope)]: strangers who may become neighbours, */
    int most_knocks;  /* so many more of them */
    bool blocked;     /* the kernel takes no more */
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
    int result = give_back(self, done, outcome);
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
        counts(self)[DELIVERED] += decision.local;
        /* The core writes a trace of where a sampled packet goes. */
        up = decision.local || (decision.copies && packet[PACKET_ID + 7] == SAMPLED);
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

/* A packet from an address that is no link's: whoever greets like a neighbour may be let in. */
static int stranger_came(const Address *source, const uint8_t *packet, size_t length,
                         Outcome *outcome) {
    if (!outcome->most_knocks || length <= KIND || packet[0] != VERSION || packet[KIND] != CONTROL) {
        outcome->strangers++;
        return 0;
    }
    bool six = source->any.sa_family == AF_INET6;
    const void *host = six ? (const void *)&source->v6.sin6_addr : &source->v4.sin_addr;
    PyObject *knock = Py_BuildValue(
        "y#y#HI", packet, (Py_ssize_t)length, host,
        (Py_ssize_t)(six ? sizeof source->v6.sin6_addr : sizeof source->v4.sin_addr),
        ntohs(six ? source->v6.sin6_port : source->v4.sin_port),
        six ? (unsigned)source->v6.sin6_scope_id : 0u);
    int failed = !knock || PyList_Append(outcome->knocks, knock) < 0;
    Py_XDECREF(knock);
    outcome->most_knocks--;
    return failed ? -1 : 0;
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
        if (number < 0) {
            if (stranger_came(&self->sources[slot], packet_in(self, slot), length, outcome) < 0)
                return -1;
        } else if (length > self->links->link[number].mtu)
            outcome->oversized++;
        else if (packet_arrived(self, &self->links->link[number], packet_in(self, slot), length,
                                outcome) < 0)
            return -1;
    }
    return send_queued(self, outcome);
}

static bool enter(Driver *self) {
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "the driver is at work already");
        return false;
    }
    self->busy = true;
    return true;
}

PyDoc_STRVAR(drain_doc,
"drain(limit, blocked, knocks)\n--\n\n"
"Take at most `limit` packets from the socket, and forward those that are to be forwarded; with\n"
"`blocked` nothing is sent. Less than `limit` once the kernel takes no more.\n\n"
"Returns (up, unsent, knocks, received, strangers, oversized, sent, errors): what the core is to\n"
"see and the copies the kernel did not take, both as [(link, packet)]; at most `knocks` control\n"
"packets of strangers as [(packet, host, port, scope)], the host as inet_pton has it; and numbers\n"
"of packets, those strangers not among them.");

static PyObject *driver_drain(Driver *self, PyObject *args) {
    int limit, blocked, knocks;
    if (!PyArg_ParseTuple(args, "ipi:drain", &limit, &blocked, &knocks) || !enter(self))
        return NULL;
    Outcome outcome = {
        .blocked = blocked,
        .most_knocks = knocks > 0 ? knocks : 0,
        .up = PyList_New(0),
        .unsent = PyList_New(0),
        .knocks = PyList_New(0),
    };
    bool failed = !outcome.up || !outcome.unsent || !outcome.knocks;
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
        return Py_BuildValue("NNNkkkkk", outcome.up, outcome.unsent, outcome.knocks,
                             outcome.received, outcome.strangers, outcome.oversized, outcome.sent,
                             outcome.errors);
    Py_XDECREF(outcome.up);
    Py_XDECREF(outcome.unsent);
    Py_XDECREF(outcome.knocks);
    return NULL;
}

PyDoc_STRVAR(inject_doc,
"inject(packet, blocked)\n--\n\n"
"Send a data packet of the node's own; with `blocked` nothing is sent.\n\n"
"Returns (local, unsent, oversized, sent, errors), as LinkDriver.inject and drain do.");

static PyObject *driver_inject(Driver *self, PyObject *args) {
    PyObject *packet;
    int blocked;
    Decision decision = {0};
    if (!PyArg_ParseTuple(args, "Sp:inject", &packet, &blocked) || !enter(self))
        return NULL;
    Outcome outcome = {.blocked = blocked, .unsent = PyList_New(0)};
    bool failed = !outcome.unsent;
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
        if (!found && PyErr_Occurred()) {
            PyMem_Free(targets);
            return NULL;
        }
        link->index = found ? (int32_t)PyLong_AsLong(found) : HERE;
        if (found)
            targets[link->index] = link;
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
    size_t largest = LEAST_ROOM;
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
