/* Our side of order.py: answers each line of stdin with one line.
 *
 *   rng SEED DRAW...          default_rng(SEED): "s N" shuffle, "p N"
 *                             permutation, "c POPULATION COUNT" choice, "i LOW
 *                             HIGH" integers, "u LOW HIGH" uniform, "r" random
 *   epoch ALGORITHM BATCHING FIXED SEED NODES BLOCK EPOCH_SIZE BATCH EPOCH
 *         STREAMS {WEIGHT AMOUNT SHARDS SAMPLES...}...
 *                             an epoch's samples, batch after batch, or
 *                             "error: ..." */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/data/set/numpy_rng.h"
#include "src/data/set/streaming_order.h"

static char *rest; /* of the line */

static const char *word(void)
{
    char *token = strtok_r(NULL, " \n", &rest);
    return token;
}

static int64_t number(void)
{
    const char *token = word();
    if (token == NULL) {
        fprintf(stderr, "order: a line is too short\n");
        exit(2);
    }
    return strtoll(token, NULL, 10);
}

static void print(const int64_t *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        printf("%" PRId64 " ", values[i]);
}

static void draw(struct numpy_rng *rng, char what)
{
    int64_t a = what == 'u' || what == 'r' ? 0 : number();
    int64_t count = what == 'c' ? number() : a;
    int64_t *values = NULL;
    if (what == 's' || what == 'p' || what == 'c')
        values = calloc((size_t)count + 1, sizeof *values);
    if (what == 's') {
        for (int64_t i = 0; i < count; i++)
            values[i] = i;
        numpy_rng_shuffle(rng, values, count);
    } else if (what == 'p') {
        numpy_rng_permutation(rng, count, values);
    } else if (what == 'c') {
        (void)numpy_rng_choice(rng, a, count, values);
    } else if (what == 'i') {
        printf("%" PRId64 " ", numpy_rng_integers(rng, a, number()));
    } else if (what == 'u') {
        double low = strtod(word(), NULL);
        double high = strtod(word(), NULL);
        printf("%.17g ", numpy_rng_uniform(rng, low, high));
    } else {
        printf("%.17g ", numpy_rng_uniform(rng, 0, 1));
    }
    if (values != NULL)
        print(values, count);
    free(values);
}

static void draws(void)
{
    struct numpy_rng rng;
    numpy_rng_seed(&rng, strtoull(word(), NULL, 10));
    for (const char *what = word(); what != NULL; what = word())
        draw(&rng, what[0]);
}

static void read_streams(struct stream *streams, int count)
{
    for (int i = 0; i < count; i++) {
        streams[i].weight = (enum stream_weight)number();
        streams[i].amount = strtod(word(), NULL);
        streams[i].shard_count = number();
        int64_t *shards =
            calloc((size_t)streams[i].shard_count + 1, sizeof *shards);
        streams[i].samples = 0;
        for (int64_t s = 0; s < streams[i].shard_count; s++) {
            shards[s] = number();
            streams[i].samples += shards[s];
        }
        streams[i].shards = shards;
    }
}

static void epoch(void)
{
    struct streaming_order_spec spec = { 0 };
    struct stream streams[STREAMS_MAX];
    struct streaming_order *order = NULL;
    int64_t *ids = NULL;
    spec.algorithm = (enum streaming_algorithm)number();
    spec.batching = (enum streaming_batching)number();
    spec.fixed = number() != 0;
    spec.seed = (uint64_t)number();
    spec.nodes = number();
    spec.block = number();
    spec.epoch_size = number();
    spec.batch = number();
    int64_t which = number();
    int count = (int)number();
    read_streams(streams, count);
    enum err rc = streaming_order_create(&spec, streams, count, &order);
    int64_t all =
        rc == ERR_OK ? streaming_order_batches(order) * spec.batch : 0;
    if (rc == ERR_OK) {
        ids = calloc((size_t)all, sizeof *ids);
        rc = streaming_order_epoch(order, which, ids);
    }
    if (rc == ERR_OK)
        print(ids, all);
    else
        printf("error: %s", err_text());
    free(ids);
    streaming_order_destroy(order);
    for (int i = 0; i < count; i++)
        free((void *)(uintptr_t)streams[i].shards);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        const char *what = strtok_r(line, " \n", &rest);
        if (what != NULL && strcmp(what, "rng") == 0)
            draws();
        else if (what != NULL)
            epoch();
        putchar('\n');
        fflush(stdout);
    }
    free(line);
    return 0;
}
