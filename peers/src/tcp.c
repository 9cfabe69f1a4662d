/* The shuffle over TCP on the loopback device, as the paper's IPoIB baseline: send() into a socket for each
 * destination, one poll of all sockets, recv() from those with data. A connection for each ordered pair of
 * nodes and each thread, the own node included; made before the nodes start, as the paper does not time it. */
#define _GNU_SOURCE
#include "nodes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct connection {
    int send, receive;
};

struct shuffle {
    struct worker *worker;
    struct partitioner partitioner;
    /* The sockets of all sources, and behind them the one that a send waits for. */
    struct pollfd polled[MAX_DESTINATIONS + 1];
    int send[MAX_DESTINATIONS];
    char *message[MAX_DESTINATIONS]; /* being received, by source */
    size_t bytes[MAX_DESTINATIONS];  /* received of it: a tuple may come in two pieces */
    unsigned open_streams;
};

static struct connection *connection_of(const struct worker *worker, unsigned source, unsigned destination) {
    const struct options *options = worker->options;
    struct connection *connections = worker->shared;
    return &connections[(worker->thread * (size_t)options->nodes + source) * options->nodes + destination];
}

/* Takes what there is of a message; the stream is tuples and nothing else. */
static void receive_from(struct shuffle *shuffle, unsigned source) {
    struct worker *worker = shuffle->worker;
    char *message = shuffle->message[source];
    size_t had = shuffle->bytes[source];
    ssize_t got = recv(shuffle->polled[source].fd, message + had, worker->options->message_bytes - had, MSG_DONTWAIT);
    if (got < 0) {
        if (errno != EAGAIN && errno != EINTR)
            fail("recv");
        return;
    }
    if (got == 0) {
        shuffle->polled[source].fd = -1; /* poll() ignores it. */
        shuffle->open_streams--;
        return;
    }
    size_t bytes = had + got, rest = bytes % sizeof(struct tuple);
    consume(&worker->received, (struct tuple *)message, bytes / sizeof(struct tuple));
    memmove(message, message + bytes - rest, rest);
    shuffle->bytes[source] = rest;
}

/* Receives from all sources with data; waits for that or, if `sending` is not -1, for room to send. */
static void receive(struct shuffle *shuffle, int sending, int timeout_milliseconds) {
    unsigned nodes = shuffle->worker->options->nodes;
    shuffle->polled[nodes] = (struct pollfd){.fd = sending, .events = POLLOUT};
    if (poll(shuffle->polled, nodes + 1, timeout_milliseconds) < 0 && errno != EINTR)
        fail("poll");
    for (unsigned source = 0; source < nodes; source++)
        if (shuffle->polled[source].fd >= 0 && shuffle->polled[source].revents)
            receive_from(shuffle, source);
}

static void send_to(struct shuffle *shuffle, unsigned destination, const char *message, size_t bytes) {
    while (bytes > 0) {
        ssize_t sent = send(shuffle->send[destination], message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) {
            message += sent;
            bytes -= sent;
        } else if (errno == EAGAIN) {
            receive(shuffle, shuffle->send[destination], -1);
        } else if (errno != EINTR) {
            fail("send");
        }
    }
}

static struct tuple *send_message(void *context, unsigned destination, size_t tuples) {
    struct shuffle *shuffle = context;
    struct tuple *start = shuffle->partitioner.start[destination];
    unsigned first = destination, end = destination + 1;
    if (shuffle->worker->options->pattern == BROADCAST)
        first = 0, end = shuffle->worker->options->nodes;
    for (unsigned to = first; to < end; to++)
        send_to(shuffle, to, (const char *)start, tuples * sizeof *start);
    receive(shuffle, -1, 0);
    return start; /* The kernel has a copy. */
}

static void work(struct worker *worker) {
    const struct options *options = worker->options;
    struct shuffle *shuffle = calloc(1, sizeof *shuffle);
    if (!shuffle)
        fail("no memory");
    shuffle->worker = worker;
    shuffle->open_streams = options->nodes;
    for (unsigned node = 0; node < options->nodes; node++) {
        shuffle->send[node] = connection_of(worker, worker->node, node)->send;
        shuffle->polled[node] = (struct pollfd){connection_of(worker, node, worker->node)->receive, POLLIN, 0};
        shuffle->message[node] = allocate(options->message_bytes);
    }
    partitioner_init(&shuffle->partitioner, options, send_message, shuffle);
    for (unsigned d = 0; d < shuffle->partitioner.destinations; d++)
        partitioner_set_buffer(&shuffle->partitioner, d, allocate(options->message_bytes));
    partitioner_scan(&shuffle->partitioner, &worker->table, options->scans);
    for (unsigned node = 0; node < options->nodes; node++)
        shutdown(shuffle->send[node], SHUT_WR);
    while (shuffle->open_streams > 0)
        receive(shuffle, -1, -1);
    free(shuffle);
}

static struct connection connect_loopback(int listener, const struct sockaddr_in *address) {
    struct connection connection;
    int on = 1;
    connection.send = socket(AF_INET, SOCK_STREAM, 0);
    if (connection.send < 0 || connect(connection.send, (const struct sockaddr *)address, sizeof *address))
        fail("connect");
    connection.receive = accept(listener, NULL, NULL);
    if (connection.receive < 0)
        fail("accept");
    setsockopt(connection.send, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connection;
}

/* One after the other, so that what is accepted is what was connected. */
static struct connection *connect_all(size_t count) {
    struct rlimit files = {2 * count + 64, 2 * count + 64};
    setrlimit(RLIMIT_NOFILE, &files); /* If that fails, so does socket(). */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        fail("listen");
    struct connection *connections = allocate(count * sizeof *connections);
    for (size_t i = 0; i < count; i++)
        connections[i] = connect_loopback(listener, &address);
    close(listener);
    return connections;
}

int main(int count, char **arguments) {
    struct options options = parse_options(count, arguments, 128 << 10, NULL, NULL);
    struct connection *connections = connect_all((size_t)options.nodes * options.nodes * options.threads);
    return run_nodes(&options, "tcp", "loopback", connections, NULL, work);
}
