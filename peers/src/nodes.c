#define _GNU_SOURCE
#include "nodes.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct run {
    pthread_barrier_t barrier;
    worker_function prepare, work;
    struct worker workers[]; /* by node, then thread */
};

static pid_t children[MAX_DESTINATIONS];

static struct run *run_of_node; /* in a node's process */

static double thread_cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void *run_worker(void *argument) {
    struct worker *worker = argument;
    const struct options *options = worker->options;
    pin_to_core(options, worker->node * options->threads + worker->thread);
    worker->table = generate_table(options, worker->node, worker->thread);
    worker->expected = expected_totals(options, worker->thread, worker->node);
    if (run_of_node->prepare)
        run_of_node->prepare(worker);
    pthread_barrier_wait(&run_of_node->barrier);
    double cpu_seconds = thread_cpu_seconds();
    worker->start_seconds = now_seconds();
    run_of_node->work(worker);
    worker->end_seconds = now_seconds();
    worker->cpu_seconds = thread_cpu_seconds() - cpu_seconds;
    return NULL;
}

static _Noreturn void run_node(struct run *run, const struct options *options, unsigned node, pid_t parent) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* It died before that call. */
        exit(1);
    run_of_node = run;
    pthread_t threads[MAX_DESTINATIONS];
    for (unsigned thread = 0; thread < options->threads; thread++)
        if ((errno = pthread_create(&threads[thread], NULL, run_worker,
                                    &run->workers[node * options->threads + thread])))
            fail("cannot start a thread");
    for (unsigned thread = 0; thread < options->threads; thread++)
        pthread_join(threads[thread], NULL);
    exit(0);
}

/* Zero is "not started" or "has ended": kill(0) would reach this process's group. */
static void kill_children(void) {
    for (unsigned node = 0; node < MAX_DESTINATIONS; node++)
        if (children[node] > 0)
            kill(children[node], SIGKILL);
}

static void stop(int signal_number) {
    static const char late[] = "error: not done in time (--timeout)\n";
    kill_children();
    if (signal_number == SIGALRM && write(2, late, sizeof late - 1) < 0)
        _exit(1);
    _exit(signal_number == SIGALRM ? 1 : 128 + signal_number);
}

static bool wait_for_nodes(unsigned nodes) {
    bool good = true;
    for (unsigned left = nodes; left > 0; left--) {
        int status;
        pid_t child = wait(&status);
        for (unsigned node = 0; node < nodes; node++) {
            if (children[node] != child)
                continue;
            children[node] = 0;
            if (status != 0 && good) {
                fprintf(stderr, "error: node %u ended with status %d\n", node, status);
                good = false;
                kill_children(); /* The others would wait for it. */
            }
        }
    }
    return good;
}

static struct result summarize(const struct run *run, unsigned workers) {
    struct result result = {.checks_passed = true};
    double start = run->workers[0].start_seconds, end = 0;
    for (const struct worker *worker = run->workers; worker < run->workers + workers; worker++) {
        start = worker->start_seconds < start ? worker->start_seconds : start;
        end = worker->end_seconds > end ? worker->end_seconds : end;
        result.cpu_seconds += worker->cpu_seconds;
        if (!same_totals(worker->received, worker->expected)) {
            result.checks_passed = false;
            fprintf(stderr, "error: node %u thread %u received %lu tuples, sums %lu %lu, not %lu, %lu %lu\n",
                    worker->node, worker->thread, worker->received.tuples, worker->received.sum_a,
                    worker->received.sum_b, worker->expected.tuples, worker->expected.sum_a, worker->expected.sum_b);
        }
    }
    result.seconds = end - start;
    return result;
}

int run_nodes(const struct options *options, const char *program, const char *variant, void *shared,
              worker_function prepare, worker_function work) {
    unsigned workers = options->nodes * options->threads;
    struct run *run = allocate_shared(sizeof *run + workers * sizeof *run->workers);
    run->prepare = prepare;
    run->work = work;
    for (unsigned i = 0; i < workers; i++)
        run->workers[i] = (struct worker){.options = options, .node = i / options->threads,
                                          .thread = i % options->threads, .shared = shared};
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if ((errno = pthread_barrier_init(&run->barrier, &attributes, workers)))
        fail("no barrier");

    int signals[] = {SIGINT, SIGTERM, SIGALRM};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], stop);
    alarm(options->timeout_seconds);
    pid_t parent = getpid();
    for (unsigned node = 0; node < options->nodes; node++) {
        children[node] = fork();
        if (children[node] == 0)
            run_node(run, options, node, parent);
        if (children[node] < 0) {
            children[node] = 0;
            kill_children();
            fail("cannot start a process");
        }
    }
    if (!wait_for_nodes(options->nodes))
        return 1;
    struct result result = summarize(run, workers);
    result.program = program;
    result.variant = variant;
    print_result(options, &result);
    return result.checks_passed ? 0 : 1;
}
