/* Reads batches ahead of a trainer that is a hundred times as fast as this
 * machine, from files and from a slow server; see bench_data_remote.h. */
#include "src/cmd/bench_data_remote.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/rng.h"
#include "src/data/set/loader_ahead.h"
#include "src/data/mds/mds_writer.h"

#define LATENCY_S 0.05
#define TIMES_FASTER 100.0
#define SEQ_LEN 2048
#define SAMPLES 1024
#define ROWS 8
#define SHARD_BYTES ((int64_t)256 << 10)
#define STEPS 150
#define DEPTH 2
#define VOCABULARY 50000

/* A server that thinks before it answers. */

struct remote_server {
    const char *folder;
    int fd, port;
    pthread_t thread;
};

struct remote_client {
    const char *folder;
    int fd;
};

static void send_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        data += n;
        bytes -= (size_t)n;
    }
}

static void answer(const struct remote_client *client, const char *name)
{
    char path[FSIO_PATH_MAX], head[128], *data = NULL;
    size_t bytes = 0;
    clock_sleep(LATENCY_S);
    bool found = fsio_path(path, "%s/%s", client->folder, name) == ERR_OK &&
                 fsio_read_file(path, 1 << 30, &data, &bytes) == ERR_OK;
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n",
                          found ? "200 OK" : "404 Not Found", bytes);
    send_all(client->fd, head, (size_t)length);
    send_all(client->fd, data, bytes);
    free(data);
}

static void *serve_client(void *arg)
{
    struct remote_client *client = arg;
    char request[4096], name[256];
    size_t used = 0;
    ssize_t n = 0;
    while (used + 1 < sizeof request &&
           (n = recv(client->fd, request + used, sizeof request - used - 1,
                     0)) > 0) {
        used += (size_t)n;
        request[used] = '\0';
        if (strstr(request, "\r\n\r\n") == NULL)
            continue;
        if (sscanf(request, "GET /%255s", name) == 1)
            answer(client, name);
        used = 0;
    }
    close(client->fd);
    free(client);
    return NULL;
}

static void *serve(void *arg)
{
    struct remote_server *server = arg;
    int fd = -1;
    while ((fd = accept(server->fd, NULL, NULL)) >= 0) {
        pthread_t thread;
        struct remote_client *client = malloc(sizeof *client);
        if (client == NULL) {
            close(fd);
            continue;
        }
        *client = (struct remote_client){ server->folder, fd };
        if (pthread_create(&thread, NULL, serve_client, client) == 0) {
            pthread_detach(thread);
        } else {
            close(fd);
            free(client);
        }
    }
    return NULL;
}

static enum err server_start(struct remote_server *server, const char *folder)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server->folder = folder;
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->fd < 0 ||
        bind(server->fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(server->fd, 64) != 0 ||
        getsockname(server->fd, (struct sockaddr *)&address, &length) != 0 ||
        pthread_create(&server->thread, NULL, serve, server) != 0) {
        if (server->fd >= 0)
            close(server->fd);
        return err_errno("a server on 127.0.0.1");
    }
    server->port = ntohs(address.sin_port);
    return ERR_OK;
}

static void server_stop(struct remote_server *server)
{
    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->fd);
}

static enum err make_set(const char *folder)
{
    enum err rc = ERR_OK;
    struct mds_writer *writer = NULL;
    struct sidecar sidecar = { .vocab_size = VOCABULARY,
                               .tokenizer = "made",
                               .samples = SAMPLES,
                               .tokens = (int64_t)SAMPLES * SEQ_LEN,
                               .eos_token = 0,
                               .bos_token = -1 };
    int32_t tokens[SEQ_LEN];
    memset(sidecar.tokenizer_sha256, '0', 64);
    TRY(fsio_mkdirs(folder));
    TRY(mds_writer_create_tokens(folder, SHARD_BYTES, true, &writer));
    for (int64_t s = 0; s < SAMPLES; s++) {
        for (int t = 0; t < SEQ_LEN; t++)
            tokens[t] =
                (int32_t)(rng_u64(1, (uint64_t)s, (uint64_t)t) % VOCABULARY);
        TRY_OUT(mds_writer_add(writer, tokens, SEQ_LEN));
    }
    TRY_OUT(mds_writer_finish(writer));
    TRY_OUT(sidecar_write(folder, &sidecar));
out:
    mds_writer_destroy(writer);
    return rc;
}

/* The share of waiting in `steps` steps of `step_s` from the position on. */
static enum err run_steps(struct loader_ahead *ahead, int64_t first, int steps,
                          double step_s, struct batch *batch, double *share)
{
    double waited = 0.0, begin = clock_now();
    for (int64_t s = first; s < first + steps; s++) {
        double asked = clock_now();
        TRY(loader_ahead_read(ahead, s * ROWS, batch));
        waited += clock_now() - asked;
        clock_sleep(step_s);
    }
    *share = waited / (clock_now() - begin);
    return ERR_OK;
}

/* shares[2]: of the first epoch and of what follows it. */
static enum err measure_ahead(struct dataset *data, double step_s,
                              double *shares, double *first_s)
{
    enum err rc = ERR_OK;
    int64_t offset = 0;
    struct order *order = NULL;
    struct batch *batch = NULL;
    struct loader_ahead *ahead = NULL;
    struct stream stream = { .samples = SAMPLES };
    struct order_spec spec = {
        .kind = ORDER_CANONICAL, .seed = 17, .count = 1, .streams = &stream
    };
    double begin = clock_now();
    TRY_OUT(order_create(&spec, &order));
    TRY_OUT(batch_create(ROWS, SEQ_LEN, &batch));
    struct loader_ahead_plan plan = {
        .datasets = &data,
        .dataset_count = 1,
        .order = order,
        .depth = DEPTH,
        .samples = ROWS,
        .seq_len = SEQ_LEN,
        .stride = ROWS,
        .offsets = &offset,
        .count = 1,
    };
    TRY_OUT(loader_ahead_create(&plan, &ahead));
    TRY_OUT(loader_ahead_read(ahead, 0, batch));
    *first_s = clock_now() - begin;
    TRY_OUT(run_steps(ahead, 1, SAMPLES / ROWS, step_s, batch, &shares[0]));
    TRY_OUT(
        run_steps(ahead, 1 + SAMPLES / ROWS, STEPS, step_s, batch, &shares[1]));
out:
    loader_ahead_destroy(ahead);
    batch_destroy(batch);
    order_destroy(order);
    return rc;
}

static enum err measure_alone(struct dataset *data, double *tokens_per_s)
{
    enum err rc = ERR_OK;
    struct order *order = NULL;
    struct batch *batch = NULL;
    struct stream stream = { .samples = SAMPLES };
    struct order_spec spec = {
        .kind = ORDER_CANONICAL, .seed = 17, .count = 1, .streams = &stream
    };
    TRY_OUT(order_create(&spec, &order));
    TRY_OUT(batch_create(ROWS, SEQ_LEN, &batch));
    double begin = clock_now();
    for (int64_t b = 0; b < SAMPLES / ROWS; b++)
        TRY_OUT(loader_read(&data, order, b * ROWS, ROWS, batch));
    *tokens_per_s = (double)SAMPLES * SEQ_LEN / (clock_now() - begin);
out:
    batch_destroy(batch);
    order_destroy(order);
    return rc;
}

static enum err measure_remote(const char *set, const char *cache,
                               double step_s, double shares[2], double *start_s)
{
    enum err rc = ERR_OK;
    char address[64];
    double first_s = 0.0;
    struct dataset *data = NULL;
    struct remote_server server;
    struct cache_options options = cache_defaults;
    TRY(server_start(&server, set));
    options.folder = cache;
    snprintf(address, sizeof address, "http://127.0.0.1:%d", server.port);
    double begin = clock_now();
    TRY_OUT(dataset_open_unseen(address, &options, &data));
    *start_s = clock_now() - begin;
    TRY_OUT(measure_ahead(data, step_s, shares, &first_s));
    *start_s += first_s;
out:
    dataset_close(data);
    server_stop(&server);
    return rc;
}

enum err bench_data_remote(const char *folder, json_t *result)
{
    enum err rc = ERR_OK;
    char set[FSIO_PATH_MAX], cache[FSIO_PATH_MAX];
    double local[2], remote[2], alone = 0.0, start_s = 0.0, first_s = 0.0;
    struct dataset *data = NULL;
    double rate = json_real_value(json_object_get(result, "step_tokens_per_s"));
    double step_s = ROWS * SEQ_LEN / (TIMES_FASTER * rate);
    TRY_OUT(fsio_path(set, "%s/remote", folder));
    TRY_OUT(fsio_path(cache, "%s/cache", folder));
    TRY_OUT(make_set(set));
    TRY_OUT(dataset_open(set, &data));
    TRY_OUT(measure_alone(data, &alone));
    TRY_OUT(measure_ahead(data, step_s, local, &first_s));
    TRY_OUT(measure_remote(set, cache, step_s, remote, &start_s));
    json_object_set_new(result, "loader_100x_share", json_real(local[1]));
    json_object_set_new(result, "loader_alone_tokens_per_s", json_real(alone));
    json_object_set_new(result, "remote_share", json_real(remote[1]));
    json_object_set_new(result, "remote_cold_share", json_real(remote[0]));
    json_object_set_new(result, "remote_start_s", json_real(start_s));
out:
    dataset_close(data);
    return rc;
}
