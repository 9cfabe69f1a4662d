// Counts the cycles of `qsort` for each row of 12 bytes and each time that the number of rows doubles (`rates.rs`).
//
// Use: cc -O2 record_sort.c -o record_sort -lm && ./record_sort
//
// A cycle is what a chain of additions takes for each. "in place" is what glibc does where it gets no memory for a copy.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define ROWS ((size_t)8000000)
#define RUNS 6

typedef struct {
    uint32_t key, value[2];
} row;

static int compare(const void *one, const void *other) {
    uint32_t a = ((const row *)one)->key, b = ((const row *)other)->key;
    return a < b ? -1 : a > b;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static double cycle(void) {
    const long additions = 20000000;
    double best = 1e9;
    for (int run = 0; run < 20; run++) {
        double began = now();
        uint64_t sum = 1;
        for (long i = 0; i < additions; i++)
            __asm__ volatile("add $1, %0" : "+r"(sum));
        double took = now() - began;
        best = took < best ? took : best;
    }
    return best / additions;
}

int main(void) {
    double one = cycle();
    printf("%.3f ns for a cycle\n", one * 1e9);
    for (int in_place = 0; in_place < 2; in_place++) {
        row *rows = malloc(ROWS * sizeof(row));
        if (in_place) {
            rlim_t most = ROWS * sizeof(row) + (60u << 20);
            struct rlimit limit = {most, most};
            setrlimit(RLIMIT_AS, &limit);
        }
        double best = 1e9;
        uint64_t random = 88172645463325252ull;
        for (int run = 0; run < RUNS; run++) {
            for (size_t i = 0; i < ROWS; i++) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                rows[i] = (row){(uint32_t)random, {(uint32_t)i, (uint32_t)i}};
            }
            double began = now();
            qsort(rows, ROWS, sizeof(row), compare);
            double took = now() - began;
            best = took < best ? took : best;
        }
        printf("%s: %.1f cycles\n", in_place ? "in place" : "with a copy", best / ROWS / log2(ROWS) / one);
        free(rows);
    }
    return 0;
}
