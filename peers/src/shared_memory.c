/* The shuffle through shared memory: a ring of messages for each pair of workers. By default a message is
 * filled in private memory and copied into the ring once, as a transport would; `--copies 0` scatters tuples
 * straight into the ring, which only shared memory allows. The receiver reads them where they are. */
#include "nodes.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4, CACHE_LINE = 64, SPINS = 100 };

/* Lengths in tuples. The two sides write to different cache lines. */
struct ring {
    _Alignas(CACHE_LINE) atomic_size_t filled;
    size_t lengths[SLOTS]; /* Zero ends the stream. */
    _Alignas(CACHE_LINE) atomic_size_t freed;
};

struct shared {
    struct ring *rings;
    struct tuple *slots;
};

static bool copy = true;

struct shuffle {
    struct worker *worker;
    struct shared *shared;
    struct partitioner partitioner;
    size_t capacity;
    unsigned open_streams, idle;
    size_t sent[MAX_DESTINATIONS], received[MAX_DESTINATIONS];
    bool ended[MAX_DESTINATIONS];
};

static size_t ring_index(const struct worker *worker, unsigned source, unsigned destination) {
    unsigned nodes = worker->options->nodes;
    return ((size_t)worker->thread * nodes + source) * nodes + destination;
}

static struct tuple *slot_at(const struct shuffle *shuffle, size_t ring, size_t message) {
    return shuffle->shared->slots + (ring * SLOTS + message % SLOTS) * shuffle->capacity;
}

/* Consumes at most one message of each source; returns whether there was one. */
static bool receive(struct shuffle *shuffle) {
    struct worker *worker = shuffle->worker;
    bool any = false;
    for (unsigned source = 0; source < worker->options->nodes; source++) {
        size_t index = ring_index(worker, source, worker->node), message = shuffle->received[source];
        struct ring *ring = &shuffle->shared->rings[index];
        if (shuffle->ended[source] || atomic_load_explicit(&ring->filled, memory_order_acquire) == message)
            continue;
        size_t tuples = ring->lengths[message % SLOTS];
        consume(&worker->received, slot_at(shuffle, index, message), tuples);
        atomic_store_explicit(&ring->freed, ++shuffle->received[source], memory_order_release);
        if (tuples == 0) {
            shuffle->ended[source] = true;
            shuffle->open_streams--;
        }
        any = true;
    }
    return any;
}

/* Nothing to do: leave the core to others after a while, in case they share it. */
static void receive_or_relax(struct shuffle *shuffle) {
    if (receive(shuffle))
        shuffle->idle = 0;
    else if (++shuffle->idle < SPINS)
        __builtin_ia32_pause();
    else
        sched_yield();
}

static struct tuple *wait_for_slot(struct shuffle *shuffle, unsigned destination) {
    size_t index = ring_index(shuffle->worker, shuffle->worker->node, destination);
    struct ring *ring = &shuffle->shared->rings[index];
    size_t message = shuffle->sent[destination];
    while (message - atomic_load_explicit(&ring->freed, memory_order_acquire) == SLOTS)
        receive_or_relax(shuffle);
    return slot_at(shuffle, index, message);
}

static void publish(struct shuffle *shuffle, unsigned destination, size_t tuples) {
    struct ring *ring = &shuffle->shared->rings[ring_index(shuffle->worker, shuffle->worker->node, destination)];
    size_t message = shuffle->sent[destination]++;
    ring->lengths[message % SLOTS] = tuples;
    atomic_store_explicit(&ring->filled, message + 1, memory_order_release);
}

static struct tuple *send_copy(void *context, unsigned destination, size_t tuples) {
    struct shuffle *shuffle = context;
    struct tuple *start = shuffle->partitioner.start[destination];
    unsigned first = destination, end = destination + 1;
    if (shuffle->worker->options->pattern == BROADCAST)
        first = 0, end = shuffle->worker->options->nodes;
    for (unsigned to = first; to < end; to++) {
        memcpy(wait_for_slot(shuffle, to), start, tuples * sizeof *start);
        publish(shuffle, to, tuples);
    }
    receive(shuffle);
    return start;
}

static struct tuple *send_in_place(void *context, unsigned destination, size_t tuples) {
    struct shuffle *shuffle = context;
    publish(shuffle, destination, tuples);
    receive(shuffle);
    return wait_for_slot(shuffle, destination);
}

static void work(struct worker *worker) {
    const struct options *options = worker->options;
    struct shuffle *shuffle = calloc(1, sizeof *shuffle);
    if (!shuffle)
        fail("no memory");
    shuffle->worker = worker;
    shuffle->shared = worker->shared;
    shuffle->capacity = options->message_bytes / sizeof(struct tuple);
    shuffle->open_streams = options->nodes;
    partitioner_init(&shuffle->partitioner, options, copy ? send_copy : send_in_place, shuffle);
    for (unsigned d = 0; d < shuffle->partitioner.destinations; d++)
        partitioner_set_buffer(&shuffle->partitioner, d,
                               copy ? allocate(options->message_bytes) : wait_for_slot(shuffle, d));
    partitioner_scan(&shuffle->partitioner, &worker->table, options->scans);
    for (unsigned to = 0; to < options->nodes; to++) {
        wait_for_slot(shuffle, to);
        publish(shuffle, to, 0);
    }
    while (shuffle->open_streams > 0)
        receive_or_relax(shuffle);
    free(shuffle);
}

static bool extra_option_of_shared_memory(const char *name, const char *value) {
    if (strcmp(name, "--copies") || (strcmp(value, "0") && strcmp(value, "1")))
        return false;
    copy = *value == '1';
    return true;
}

int main(int count, char **arguments) {
    struct options options = parse_options(count, arguments, 64 << 10, extra_option_of_shared_memory, "[--copies 0|1]");
    if (!copy && options.pattern == BROADCAST) {
        fprintf(stderr, "error: --copies 0 is for repartitioning: a broadcast must copy\n");
        return 2;
    }
    size_t rings = (size_t)options.nodes * options.nodes * options.threads;
    struct shared shared = {allocate_shared(rings * sizeof *shared.rings),
                            allocate_shared(rings * SLOTS * options.message_bytes)};
    return run_nodes(&options, "shared_memory", copy ? "one copy" : "in place", &shared, NULL, work);
}
