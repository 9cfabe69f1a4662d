#define _GNU_SOURCE
#include "workload.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

_Noreturn void fail(const char *what) {
    fprintf(stderr, "error: %s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

/* ---- options ---- */

static _Noreturn void usage(const char *program, const char *extra) {
    fprintf(stderr,
            "usage: %s [--nodes N] [--threads T] [--tuples M] [--scans S] [--message-bytes B]\n"
            "       [--pattern repartition|broadcast] [--timeout SECONDS] [--json]%s%s\n"
            "A node has M tuples of 16 bytes, shared by its T threads, and scans them S times.\n",
            program, extra ? "\n       " : "", extra ? extra : "");
    exit(2);
}

static size_t number(const char *name, const char *text, size_t minimum, size_t maximum) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || end == text || value < minimum || value > maximum) {
        fprintf(stderr, "error: %s must be a number from %zu to %zu, not %s\n", name, minimum, maximum, text);
        exit(2);
    }
    return value;
}

static bool parse_option(struct options *options, const char *name, const char *value) {
    if (!strcmp(name, "--nodes"))
        options->nodes = number(name, value, 1, MAX_DESTINATIONS);
    else if (!strcmp(name, "--threads"))
        options->threads = number(name, value, 1, MAX_DESTINATIONS);
    else if (!strcmp(name, "--tuples"))
        options->tuples = number(name, value, 1, (size_t)1 << 36);
    else if (!strcmp(name, "--scans"))
        options->scans = number(name, value, 1, 1u << 30);
    else if (!strcmp(name, "--message-bytes"))
        options->message_bytes = number(name, value, 1024, MAX_MESSAGE_BYTES);
    else if (!strcmp(name, "--timeout"))
        options->timeout_seconds = number(name, value, 1, 86400);
    else if (!strcmp(name, "--pattern") && !strcmp(value, "repartition"))
        options->pattern = REPARTITION;
    else if (!strcmp(name, "--pattern") && !strcmp(value, "broadcast"))
        options->pattern = BROADCAST;
    else
        return false;
    return true;
}

struct options parse_options(int count, char **arguments, size_t message_bytes, extra_option extra,
                             const char *extra_usage) {
    struct options options = {.nodes = 2, .threads = 1, .tuples = 4 << 20, .scans = 50,
                              .message_bytes = message_bytes, .timeout_seconds = 120};
    for (int i = 1; i < count; i++) {
        if (!strcmp(arguments[i], "--json")) {
            options.json = true;
            continue;
        }
        if (i + 1 == count)
            usage(arguments[0], extra_usage);
        const char *name = arguments[i], *value = arguments[++i];
        if (!parse_option(&options, name, value) && !(extra && extra(name, value)))
            usage(arguments[0], extra_usage);
    }
    return options;
}

/* ---- memory, time, cores ---- */

static void *map_memory(size_t bytes, int flags) {
    size_t huge_page = 2 << 20;
    bytes = (bytes + huge_page - 1) / huge_page * huge_page;
    /* One huge page more, so that the start can be aligned to one. */
    char *memory = mmap(NULL, bytes + huge_page, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("no memory");
    memory += -(uintptr_t)memory % huge_page;
    madvise(memory, bytes, MADV_HUGEPAGE); /* Only advice: without huge pages it is slower. */
    memset(memory, 0, bytes);              /* Page faults are not to be measured. */
    return memory;
}

void *allocate(size_t bytes) { return map_memory(bytes, MAP_PRIVATE); }
void *allocate_shared(size_t bytes) { return map_memory(bytes, MAP_SHARED); }

double now_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* A core for each worker; where there are too few, the scheduler does better without pins. */
void pin_to_core(const struct options *options, unsigned worker) {
    cpu_set_t allowed, chosen;
    if (sched_getaffinity(0, sizeof allowed, &allowed) || options->nodes * options->threads > (unsigned)CPU_COUNT(&allowed))
        return;
    CPU_ZERO(&chosen);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && worker-- == 0)
            CPU_SET(core, &chosen);
    sched_setaffinity(0, sizeof chosen, &chosen);
}

/* ---- table R ---- */

/* The finalizer of SplitMix64: a bijection, so that R.a is uniform and without duplicates. */
static inline uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}

static inline struct tuple tuple_at(uint64_t row) { return (struct tuple){mix(row), row}; }

static size_t first_row(const struct options *options, unsigned thread) {
    return options->tuples / options->threads * thread;
}

/* The last part takes the remainder. */
static size_t end_row(const struct options *options, unsigned thread) {
    return thread + 1 == options->threads ? options->tuples : first_row(options, thread + 1);
}

struct table generate_table(const struct options *options, unsigned node, unsigned thread) {
    size_t first = first_row(options, thread), tuples = end_row(options, thread) - first;
    struct table table = {allocate(tuples * 8), allocate(tuples * 8), tuples};
    uint64_t random = mix(node * (uint64_t)options->threads + thread);
    /* Fisher-Yates while filling: row `i` goes to a random place of the first `i + 1`. */
    for (size_t i = 0; i < tuples; i++) {
        random = mix(random);
        size_t place = (unsigned __int128)random * (i + 1) >> 64;
        struct tuple tuple = tuple_at(first + i);
        table.a[i] = table.a[place];
        table.b[i] = table.b[place];
        table.a[place] = tuple.a;
        table.b[place] = tuple.b;
    }
    return table;
}

/* ---- partitioning ---- */

/* A multiplicative hash, its upper half scaled to the destinations: no division, and it vectorises. */
static inline uint32_t destination_of(uint64_t key, uint32_t destinations) {
    return (key * 0x9e3779b97f4a7c15 >> 32) * destinations >> 32;
}

void partitioner_init(struct partitioner *partitioner, const struct options *options, flush_function flush,
                      void *context) {
    *partitioner = (struct partitioner){.destinations = options->pattern == BROADCAST ? 1 : options->nodes,
                                        .capacity = options->message_bytes / sizeof(struct tuple),
                                        .flush = flush, .context = context};
    /* A buffer is flushed when less than a batch is free: small messages need small batches. */
    size_t sixteenth = partitioner->capacity / 16;
    partitioner->batch = sixteenth < BATCH_TUPLES ? sixteenth : BATCH_TUPLES;
}

void partitioner_set_buffer(struct partitioner *partitioner, unsigned destination, struct tuple *buffer) {
    partitioner->start[destination] = partitioner->cursor[destination] = buffer;
}

static void flush(struct partitioner *partitioner, unsigned destination) {
    size_t tuples = partitioner->cursor[destination] - partitioner->start[destination];
    partitioner_set_buffer(partitioner, destination,
                           partitioner->flush(partitioner->context, destination, tuples));
}

/* Two destinations: write to both and advance one. The cursors stay in registers, where an array of
 * cursors would cost a store and a dependent load per tuple. */
static void scatter_two(struct tuple **cursor, const uint64_t *a, const uint64_t *b, size_t count) {
    struct tuple *zero = cursor[0], *one = cursor[1];
    for (size_t i = 0; i < count; i++) {
        struct tuple tuple = {a[i], b[i]};
        uint32_t destination = destination_of(tuple.a, 2);
        *zero = tuple;
        *one = tuple;
        zero += 1 - destination;
        one += destination;
    }
    cursor[0] = zero;
    cursor[1] = one;
}

static void scatter(struct tuple **cursor, uint32_t destinations, const uint64_t *a, const uint64_t *b,
                    size_t count) {
    uint32_t destination[BATCH_TUPLES];
    for (size_t i = 0; i < count; i++)
        destination[i] = destination_of(a[i], destinations);
    for (size_t i = 0; i < count; i++)
        *cursor[destination[i]]++ = (struct tuple){a[i], b[i]};
}

/* Batch by batch: nothing is checked in the loops over tuples. */
static void scan_repartition(struct partitioner *p, const struct table *table) {
    for (size_t row = 0; row < table->tuples; row += p->batch) {
        size_t count = table->tuples - row < p->batch ? table->tuples - row : p->batch;
        if (p->destinations == 2)
            scatter_two(p->cursor, table->a + row, table->b + row, count);
        else
            scatter(p->cursor, p->destinations, table->a + row, table->b + row, count);
        for (unsigned d = 0; d < p->destinations; d++)
            /* One tuple more: `scatter_two` writes one behind the end. */
            if (p->cursor[d] + p->batch + 1 > p->start[d] + p->capacity)
                flush(p, d);
    }
}

static void scan_broadcast(struct partitioner *p, const struct table *table) {
    for (size_t row = 0; row < table->tuples;) {
        struct tuple *cursor = p->cursor[0];
        size_t space = p->capacity - (cursor - p->start[0]), left = table->tuples - row;
        size_t count = space < left ? space : left;
        for (size_t i = 0; i < count; i++)
            cursor[i] = (struct tuple){table->a[row + i], table->b[row + i]};
        row += count;
        p->cursor[0] += count;
        if (count == space)
            flush(p, 0);
    }
}

void partitioner_scan(struct partitioner *partitioner, const struct table *table, unsigned scans) {
    for (unsigned scan = 0; scan < scans; scan++) {
        if (partitioner->destinations == 1)
            scan_broadcast(partitioner, table);
        else
            scan_repartition(partitioner, table);
    }
    for (unsigned d = 0; d < partitioner->destinations; d++)
        if (partitioner->cursor[d] > partitioner->start[d])
            flush(partitioner, d);
}

/* ---- totals ---- */

void consume(struct totals *totals, const struct tuple *tuples, size_t count) {
    uint64_t sum_a = 0, sum_b = 0;
    for (size_t i = 0; i < count; i++) {
        sum_a += tuples[i].a;
        sum_b += tuples[i].b;
    }
    totals->tuples += count;
    totals->sum_a += sum_a;
    totals->sum_b += sum_b;
}

bool same_totals(struct totals left, struct totals right) {
    return left.tuples == right.tuples && left.sum_a == right.sum_a && left.sum_b == right.sum_b;
}

struct totals expected_totals(const struct options *options, unsigned thread, unsigned me) {
    struct totals scan = {0};
    for (size_t row = first_row(options, thread); row < end_row(options, thread); row++) {
        struct tuple tuple = tuple_at(row);
        if (options->pattern == BROADCAST || destination_of(tuple.a, options->nodes) == me)
            consume(&scan, &tuple, 1);
    }
    uint64_t times = (uint64_t)options->nodes * options->scans;
    return (struct totals){scan.tuples * times, scan.sum_a * times, scan.sum_b * times};
}

/* ---- results ---- */

void print_result(const struct options *options, const struct result *result) {
    const char *pattern = options->pattern == BROADCAST ? "broadcast" : "repartition";
    /* Uniform keys: in a repartition a node receives as much as it sends. */
    double sent = (double)options->tuples * options->scans * sizeof(struct tuple);
    double received = options->pattern == BROADCAST ? sent * options->nodes : sent;
    double from_others = received * (options->nodes - 1) / options->nodes;
    double rate = received / result->seconds / 1e9;
    double cpu_per_gib = result->cpu_seconds / (received * options->nodes / (1 << 30));
    const char *checks = result->checks_passed ? "passed" : "failed";
    if (options->json)
        printf("{\"program\": \"%s\", \"variant\": \"%s\", \"pattern\": \"%s\", \"nodes\": %u, \"threads\": %u, "
               "\"tuples\": %zu, \"scans\": %u, \"message_bytes\": %zu, \"bytes_received_per_node\": %.0f, "
               "\"bytes_from_others_per_node\": %.0f, \"seconds\": %.6f, \"gb_per_second_per_node\": %.4f, "
               "\"cpu_seconds\": %.4f, \"cpu_seconds_per_gib\": %.4f, \"checks\": \"%s\"}\n",
               result->program, result->variant, pattern, options->nodes, options->threads, options->tuples,
               options->scans, options->message_bytes, received, from_others, result->seconds, rate,
               result->cpu_seconds, cpu_per_gib, checks);
    else
        printf("%s (%s), %s, %u nodes of %u threads: %.2f GB/s per node received (%.2f s for %.2f GB), "
               "%.3f CPU seconds per GiB, checks %s\n",
               result->program, result->variant, pattern, options->nodes, options->threads, rate,
               result->seconds, received / 1e9, cpu_per_gib, checks);
}
