/* Partitioning alone: tuples into message buffers, and no transport. What is left of a shuffle when
 * moving data between nodes is free. */
#include "nodes.h"

#include <stdlib.h>

static struct tuple *count_only(void *context, unsigned destination, size_t tuples) {
    struct partitioner *partitioner = context;
    (void)tuples;
    return partitioner->start[destination];
}

/* What is checked: that the tuples of an untimed scan are in the buffers of their destinations. */
struct checker {
    struct partitioner partitioner;
    struct totals totals[MAX_DESTINATIONS];
};

static struct tuple *count_and_sum(void *context, unsigned destination, size_t tuples) {
    struct checker *checker = context;
    struct tuple *start = checker->partitioner.start[destination];
    consume(&checker->totals[destination], start, tuples);
    return start;
}

static void set_buffers(struct partitioner *partitioner, const struct options *options) {
    for (unsigned d = 0; d < partitioner->destinations; d++)
        partitioner_set_buffer(partitioner, d, allocate(options->message_bytes));
}

/* Counts as received what was partitioned for destination `node`, times all nodes and scans. */
static void check(struct worker *worker) {
    struct checker *checker = calloc(1, sizeof *checker);
    if (!checker)
        fail("no memory");
    partitioner_init(&checker->partitioner, worker->options, count_and_sum, checker);
    set_buffers(&checker->partitioner, worker->options);
    partitioner_scan(&checker->partitioner, &worker->table, 1);
    unsigned mine = worker->options->pattern == BROADCAST ? 0 : worker->node;
    struct totals totals = checker->totals[mine];
    uint64_t times = (uint64_t)worker->options->nodes * worker->options->scans;
    worker->received = (struct totals){totals.tuples * times, totals.sum_a * times, totals.sum_b * times};
    free(checker);
}

static void work(struct worker *worker) {
    struct partitioner partitioner;
    partitioner_init(&partitioner, worker->options, count_only, &partitioner);
    set_buffers(&partitioner, worker->options);
    partitioner_scan(&partitioner, &worker->table, worker->options->scans);
}

int main(int count, char **arguments) {
    struct options options = parse_options(count, arguments, 64 << 10, NULL, NULL);
    return run_nodes(&options, "partition", "no transport", NULL, check, work);
}
