/* The shuffle over MPI, as in section 7.1 of the paper: MPI_Send (or MPI_Isend) to MPI_Irecv for
 * repartitioning, MPI_Ibcast (or MPI_Isend to all) for broadcasts.
 *
 * A worker partitions, sends and receives. Where workers are threads of a node's process, each talks to
 * the threads of the same number, over a communicator of its own. Where every worker is a process, all
 * processes are nodes: N nodes of T threads are N x T nodes of one. */
#include "workload.h"

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Messages under way from a worker to a destination, and posted receives for each source. With 2, both sides
 * often wait for each other; more than 8 leave the cache. */
static unsigned depth = 8;

static bool thread_multiple, blocking, collective;

static bool extra_option_of_mpi(const char *name, const char *value) {
    if (!strcmp(name, "--mode") && (!strcmp(value, "process") || !strcmp(value, "thread-multiple")))
        thread_multiple = *value == 't';
    else if (!strcmp(name, "--send") && (!strcmp(value, "blocking") || !strcmp(value, "nonblocking")))
        blocking = *value == 'b';
    else if (!strcmp(name, "--broadcast") && (!strcmp(value, "ibcast") || !strcmp(value, "isend")))
        collective = *value == 'i' && value[1] == 'b';
    else if (!strcmp(name, "--depth") && atoi(value) >= 1 && atoi(value) <= 64)
        depth = atoi(value);
    else
        return false;
    return true;
}

struct worker {
    const struct options *options; /* with processes for nodes where every worker is a process */
    unsigned thread;
    int me, peers;
    MPI_Comm communicator;
    struct table table;
    struct partitioner partitioner;
    struct totals received, expected;
    size_t capacity; /* of a message, in tuples */

    /* Point to point. Index of a buffer: peer * depth + turn. A zero-length message ends a stream. */
    struct tuple *send_buffers, *receive_buffers;
    MPI_Request *sends, *receives;
    unsigned *turn; /* of each destination */
    int open_streams;
    int *done;
    MPI_Status *statuses;

    /* Collective: a communicator for each root, because collectives of one start in one order everywhere. */
    MPI_Comm *of_root;
    size_t *posted, *consumed; /* messages of each root */
    size_t messages, last_tuples;
};

static struct tuple *buffer_at(const struct worker *worker, struct tuple *buffers, size_t index) {
    return buffers + index * worker->capacity;
}

/* ---- point to point ---- */

/* Receives are posted for each source by name: however many messages others send, this worker finds room
 * for the next of each once it has consumed the last, so that blocking sends cannot deadlock. */
static void post_receive(struct worker *worker, int index) {
    MPI_Irecv(buffer_at(worker, worker->receive_buffers, index), worker->capacity * sizeof(struct tuple), MPI_BYTE,
              index / depth, 0, worker->communicator, &worker->receives[index]);
}

static void receive(struct worker *worker) {
    int count;
    MPI_Testsome(worker->peers * depth, worker->receives, &count, worker->done, worker->statuses);
    for (int i = 0; i < count; i++) { /* count is MPI_UNDEFINED, negative, without receives. */
        int bytes, index = worker->done[i];
        MPI_Get_count(&worker->statuses[i], MPI_BYTE, &bytes);
        if (bytes == 0) {
            worker->open_streams--;
            continue;
        }
        consume(&worker->received, buffer_at(worker, worker->receive_buffers, index), bytes / sizeof(struct tuple));
        post_receive(worker, index);
    }
}

static void wait_for_send(struct worker *worker, int index) {
    int done;
    for (;;) {
        MPI_Test(&worker->sends[index], &done, MPI_STATUS_IGNORE);
        if (done)
            return;
        receive(worker);
    }
}

static void send_to(struct worker *worker, int peer, int index, const struct tuple *message, size_t tuples) {
    int bytes = tuples * sizeof(struct tuple);
    if (blocking)
        MPI_Send(message, bytes, MPI_BYTE, peer, 0, worker->communicator);
    else
        MPI_Isend(message, bytes, MPI_BYTE, peer, 0, worker->communicator, &worker->sends[index]);
}

static struct tuple *send_message(void *context, unsigned destination, size_t tuples) {
    struct worker *worker = context;
    unsigned turn = worker->turn[destination];
    send_to(worker, destination, destination * depth + turn, worker->partitioner.start[destination], tuples);
    worker->turn[destination] = turn = (turn + 1) % depth;
    receive(worker);
    wait_for_send(worker, destination * depth + turn);
    return buffer_at(worker, worker->send_buffers, destination * depth + turn);
}

/* One buffer to all: it is free when the last has it. */
static struct tuple *send_message_to_all(void *context, unsigned destination, size_t tuples) {
    struct worker *worker = context;
    unsigned turn = worker->turn[destination];
    for (int peer = 0; peer < worker->peers; peer++)
        send_to(worker, peer, peer * depth + turn, worker->partitioner.start[destination], tuples);
    worker->turn[destination] = turn = (turn + 1) % depth;
    receive(worker);
    for (int peer = 0; peer < worker->peers; peer++)
        wait_for_send(worker, peer * depth + turn);
    return buffer_at(worker, worker->send_buffers, turn);
}

static void prepare_point_to_point(struct worker *worker) {
    size_t buffers = (size_t)worker->peers * depth;
    worker->send_buffers = allocate(buffers * worker->options->message_bytes);
    worker->receive_buffers = allocate(buffers * worker->options->message_bytes);
    worker->sends = allocate(buffers * sizeof(MPI_Request));
    worker->receives = allocate(buffers * sizeof(MPI_Request));
    worker->done = allocate(buffers * sizeof(int));
    worker->statuses = allocate(buffers * sizeof(MPI_Status));
    worker->turn = allocate(worker->peers * sizeof(unsigned));
    worker->open_streams = worker->peers;
    partitioner_init(&worker->partitioner, worker->options,
                     worker->options->pattern == BROADCAST ? send_message_to_all : send_message, worker);
    for (unsigned d = 0; d < worker->partitioner.destinations; d++)
        partitioner_set_buffer(&worker->partitioner, d, buffer_at(worker, worker->send_buffers, d * depth));
    for (size_t i = 0; i < buffers; i++) {
        worker->sends[i] = MPI_REQUEST_NULL;
        post_receive(worker, i);
    }
}

static void work_point_to_point(struct worker *worker) {
    partitioner_scan(&worker->partitioner, &worker->table, worker->options->scans);
    for (int peer = 0; peer < worker->peers; peer++) {
        unsigned index = peer * depth;
        wait_for_send(worker, index);
        send_to(worker, peer, index, NULL, 0);
    }
    while (worker->open_streams > 0)
        receive(worker);
    for (unsigned i = 0; i < worker->peers * depth; i++) {
        wait_for_send(worker, i);
        if (worker->receives[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&worker->receives[i]);
            MPI_Request_free(&worker->receives[i]);
        }
    }
}

/* ---- broadcast by MPI_Ibcast ---- */

static size_t tuples_of_message(const struct worker *worker, size_t message) {
    return message + 1 == worker->messages ? worker->last_tuples : worker->capacity;
}

static void post_broadcast(struct worker *worker, int root) {
    size_t message = worker->posted[root]++, index = root * depth + message % depth;
    MPI_Ibcast(buffer_at(worker, worker->receive_buffers, index),
               tuples_of_message(worker, message) * sizeof(struct tuple), MPI_BYTE, root, worker->of_root[root],
               &worker->receives[index]);
}

/* Consumes finished messages in order and posts the next; a root posts its own when they are filled. */
static void progress_broadcasts(struct worker *worker) {
    for (int root = 0; root < worker->peers; root++) {
        while (worker->consumed[root] < worker->posted[root]) {
            size_t message = worker->consumed[root], index = root * depth + message % depth;
            int done;
            MPI_Test(&worker->receives[index], &done, MPI_STATUS_IGNORE);
            if (!done)
                break;
            worker->consumed[root]++;
            if (root == worker->me)
                continue;
            consume(&worker->received, buffer_at(worker, worker->receive_buffers, index),
                    tuples_of_message(worker, message));
            if (worker->posted[root] < worker->messages)
                post_broadcast(worker, root);
        }
    }
}

static struct tuple *broadcast_message(void *context, unsigned destination, size_t tuples) {
    struct worker *worker = context;
    int me = worker->me;
    consume(&worker->received, worker->partitioner.start[destination], tuples); /* Its own copy. */
    post_broadcast(worker, me);
    do
        progress_broadcasts(worker);
    while (worker->posted[me] - worker->consumed[me] == depth);
    return buffer_at(worker, worker->receive_buffers, me * depth + worker->posted[me] % depth);
}

static void prepare_broadcast(struct worker *worker) {
    size_t tuples = worker->table.tuples * worker->options->scans;
    worker->messages = (tuples + worker->capacity - 1) / worker->capacity;
    worker->last_tuples = tuples - (worker->messages - 1) * worker->capacity;
    worker->receive_buffers = allocate(worker->peers * depth * worker->options->message_bytes);
    worker->receives = allocate(worker->peers * depth * sizeof(MPI_Request));
    worker->of_root = allocate(worker->peers * sizeof(MPI_Comm));
    worker->posted = allocate(worker->peers * sizeof(size_t));
    worker->consumed = allocate(worker->peers * sizeof(size_t));
    for (int root = 0; root < worker->peers; root++)
        MPI_Comm_dup(worker->communicator, &worker->of_root[root]);
    partitioner_init(&worker->partitioner, worker->options, broadcast_message, worker);
    partitioner_set_buffer(&worker->partitioner, 0, buffer_at(worker, worker->receive_buffers, worker->me * depth));
}

static void work_broadcast(struct worker *worker) {
    for (int root = 0; root < worker->peers; root++)
        while (root != worker->me && worker->posted[root] < depth && worker->posted[root] < worker->messages)
            post_broadcast(worker, root);
    partitioner_scan(&worker->partitioner, &worker->table, worker->options->scans);
    for (int root = 0; root < worker->peers; root++)
        while (worker->consumed[root] < worker->messages)
            progress_broadcasts(worker);
}

/* ---- processes and threads ---- */

static void *work(void *argument) {
    struct worker *worker = argument;
    if (collective && worker->options->pattern == BROADCAST)
        work_broadcast(worker);
    else
        work_point_to_point(worker);
    return NULL;
}

/* Communicators are made in the same order everywhere: not in the threads. */
static void prepare(struct worker *worker, const struct options *options, unsigned thread, int rank) {
    worker->options = options;
    worker->thread = thread;
    worker->me = rank;
    worker->peers = options->nodes;
    worker->capacity = options->message_bytes / sizeof(struct tuple);
    MPI_Comm_dup(MPI_COMM_WORLD, &worker->communicator);
    worker->table = generate_table(options, rank, thread);
    worker->expected = expected_totals(options, thread, rank);
    if (collective && options->pattern == BROADCAST)
        prepare_broadcast(worker);
    else
        prepare_point_to_point(worker);
}

static double process_cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Returns whether this process received what it had to. */
static bool run(const struct options *options, int rank, struct result *result) {
    struct worker *workers = allocate(options->threads * sizeof *workers);
    for (unsigned thread = 0; thread < options->threads; thread++)
        prepare(&workers[thread], options, thread, rank);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_seconds(), cpu_seconds = process_cpu_seconds();
    pthread_t threads[MAX_DESTINATIONS];
    for (unsigned thread = 1; thread < options->threads; thread++)
        if (pthread_create(&threads[thread], NULL, work, &workers[thread]))
            fail("cannot start a thread");
    work(&workers[0]);
    for (unsigned thread = 1; thread < options->threads; thread++)
        pthread_join(threads[thread], NULL);
    double end = now_seconds();
    cpu_seconds = process_cpu_seconds() - cpu_seconds;
    bool passed = true;
    for (unsigned thread = 0; thread < options->threads; thread++)
        passed = passed && same_totals(workers[thread].received, workers[thread].expected);
    if (!passed)
        fprintf(stderr, "error: rank %d did not receive what it had to\n", rank);
    /* One host, one clock: from the first start to the last end. */
    double first, last;
    MPI_Allreduce(&start, &first, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&end, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&cpu_seconds, &result->cpu_seconds, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&passed, &result->checks_passed, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    result->seconds = last - first;
    return passed;
}

int main(int count, char **arguments) {
    collective = true;
    struct options options = parse_options(count, arguments, 64 << 10, extra_option_of_mpi,
                                           "[--mode process|thread-multiple] [--send blocking|nonblocking]\n"
                                           "       [--broadcast ibcast|isend] [--depth 1..64]; N or N x T processes by mpirun");
    alarm(options.timeout_seconds); /* mpirun ends all when one ends so. */
    int provided, rank, size;
    MPI_Init_thread(&count, &arguments, thread_multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    struct options here = options;
    if (!thread_multiple) {
        here.nodes *= options.threads;
        here.tuples /= options.threads;
        options.tuples = here.tuples * options.threads;
        here.threads = 1;
    }
    bool wrong = true;
    if (thread_multiple && provided < MPI_THREAD_MULTIPLE)
        fprintf(stderr, "error: this MPI has no MPI_THREAD_MULTIPLE\n");
    else if ((unsigned)size != here.nodes || size > MAX_DESTINATIONS)
        fprintf(stderr, "error: mpirun must start %u processes, not %d\n", here.nodes, size);
    else if (blocking && options.pattern == BROADCAST && !collective)
        fprintf(stderr, "error: blocking sends to all can deadlock\n");
    else if (!thread_multiple && options.pattern == BROADCAST && options.threads > 1)
        fprintf(stderr, "error: where processes are nodes, broadcast with --threads 1\n");
    else
        wrong = false;
    if (wrong)
        MPI_Abort(MPI_COMM_WORLD, 2);

    char variant[64];
    bool ibcast = options.pattern == BROADCAST && collective;
    snprintf(variant, sizeof variant, "%s, %s, depth %u", thread_multiple ? "thread-multiple" : "process per core",
             ibcast ? "ibcast" : blocking ? "blocking send" : "isend", depth);
    struct result result = {.program = "mpi", .variant = variant};
    bool passed = run(&here, rank, &result);
    if (rank == 0)
        print_result(&options, &result);
    MPI_Finalize();
    return passed ? 0 : 1;
}
