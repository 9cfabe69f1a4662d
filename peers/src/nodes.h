/* Nodes as processes of this host, each with threads: started, timed, checked and, whatever happens, ended. */
#ifndef PEERS_NODES_H
#define PEERS_NODES_H

#include "workload.h"

struct worker {
    const struct options *options;
    unsigned node, thread;
    void *shared; /* What the program made before the processes were started. */
    struct table table;
    struct totals received, expected;
    double start_seconds, end_seconds, cpu_seconds;
};

typedef void (*worker_function)(struct worker *worker);

/* Starts all nodes, calls `prepare` (may be NULL) and `work` in every worker, the latter timed from a barrier of
 * all workers. Prints the result and returns the exit status. */
int run_nodes(const struct options *options, const char *program, const char *variant, void *shared,
              worker_function prepare, worker_function work);

#endif
