/* The workload that all programs share: table R of two 8-byte integers, how it is partitioned into
 * messages, what a receiver must have got in the end, the command line, and the line that is printed. */
#ifndef PEERS_WORKLOAD_H
#define PEERS_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_DESTINATIONS = 256, MAX_MESSAGE_BYTES = 1 << 24, BATCH_TUPLES = 128 };

enum pattern { REPARTITION, BROADCAST };

struct options {
    unsigned nodes, threads;
    size_t tuples; /* of each node */
    unsigned scans;
    size_t message_bytes;
    enum pattern pattern;
    bool json;
    unsigned timeout_seconds;
};

/* Handles what only one program knows; returns false for an unknown option. */
typedef bool (*extra_option)(const char *name, const char *value);

/* Exits with a message when an option is wrong. `extra` may be NULL. */
struct options parse_options(int count, char **arguments, size_t message_bytes, extra_option extra,
                             const char *extra_usage);

/* A message is an array of these. */
struct tuple {
    uint64_t a, b;
};

/* A worker's part of its node's fragment of R, in columns as an engine has them. */
struct table {
    uint64_t *a, *b;
    size_t tuples;
};

/* Part `thread` of the fragment. The paper replicates R and lets every node permute its copy. */
struct table generate_table(const struct options *options, unsigned node, unsigned thread);

/* What a receiver saw. Sums wrap around. */
struct totals {
    uint64_t tuples, sum_a, sum_b;
};

void consume(struct totals *totals, const struct tuple *tuples, size_t count);
bool same_totals(struct totals left, struct totals right);

/* What worker `thread` of node `me` must receive of all nodes' workers `thread`. */
struct totals expected_totals(const struct options *options, unsigned thread, unsigned me);

/* Takes a finished message and returns where the next one for `destination` is to be written. */
typedef struct tuple *(*flush_function)(void *context, unsigned destination, size_t tuples);

/* Copies tuples into one buffer per destination. With one destination (broadcast) messages are exactly
 * full; else a buffer that may be too small for one more batch is flushed. */
struct partitioner {
    unsigned destinations;
    size_t capacity, batch; /* tuples */
    flush_function flush;
    void *context;
    struct tuple *start[MAX_DESTINATIONS], *cursor[MAX_DESTINATIONS];
};

/* The caller then sets `start` and `cursor` to the first buffers. */
void partitioner_init(struct partitioner *partitioner, const struct options *options, flush_function flush,
                      void *context);
void partitioner_set_buffer(struct partitioner *partitioner, unsigned destination, struct tuple *buffer);
void partitioner_scan(struct partitioner *partitioner, const struct table *table, unsigned scans);

/* Zeroed memory, in huge pages where there are any; exits when there is none. */
void *allocate(size_t bytes);
void *allocate_shared(size_t bytes);

double now_seconds(void);
void pin_to_core(const struct options *options, unsigned worker);
_Noreturn void fail(const char *what);

struct result {
    const char *program, *variant;
    double seconds, cpu_seconds;
    bool checks_passed;
};

void print_result(const struct options *options, const struct result *result);

#endif
