/* A small HTTP server for tests: the files of a folder, each connection on a
 * thread, with ranges, entity tags and faults.
 *
 * Faults are rules, one a line: "NAME ACTION VALUE TIMES". NAME: part of the
 * path that is asked for, or "*"; TIMES: how often, or "-" for always. The
 * first rule that fits and is not used up yet applies. ACTION:
 *   delay S          answer S seconds later
 *   status N         answer so, with a body as S3 has it
 *   wait S           answer 503 with Retry-After: S
 *   stall B          say nothing more after B bytes, keep the connection
 *   cut B            close after B bytes
 *   drop -           close without an answer
 *   less B           the file without its last B bytes, all of it honest
 *   more B           B bytes behind the file, of which nothing is said
 *   change -         another entity tag
 *   redirect URL     to URL/NAME
 *   slow B           B bytes a second
 *   lose -           do it and close without an answer
 *   text T           answer 200 with this body
 *   chance S:P       in P of 100 requests one of these, drawn from the seed S
 *
 * Of S3 it knows what s3_server.h says; NAME may begin with the method there,
 * "PUT /bucket/". */
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define HTTP_RULES_MAX 16

struct http_server {
    char folder[1024];
    int fd, port;
    atomic_bool stop;
    atomic_int threads, requests, connections;
    pthread_t thread;
    pthread_mutex_t mutex;
    char rules[2048];
    unsigned drawn; /* of chance */
    atomic_int faults;
    int used[HTTP_RULES_MAX];
    char last[4096]; /* the last request */
};

struct http_fault {
    char action[16], value[256];
};

#include "tests/s3_server.h"

struct http_client {
    struct http_server *server;
    int fd;
};

/* From now on. */
static inline void http_server_rules(struct http_server *server,
                                     const char *rules)
{
    pthread_mutex_lock(&server->mutex);
    if (strcmp(server->rules, rules) != 0) {
        snprintf(server->rules, sizeof server->rules, "%s", rules);
        memset(server->used, 0, sizeof server->used);
    }
    pthread_mutex_unlock(&server->mutex);
}

static inline void http_server_draw(struct http_server *server,
                                    const char *value, struct http_fault *out)
{
    static const struct http_fault list[] = {
        { "drop", "-" },     { "lose", "-" },     { "cut", "1000" },
        { "status", "503" }, { "status", "500" }, { "delay", "0.05" },
        { "wait", "0" },     { "status", "429" },
    };
    unsigned seed = 0, percent = 0;
    sscanf(value, "%u:%u", &seed, &percent);
    server->drawn = server->drawn * 1664525u + 1013904223u + seed;
    bool hits = (server->drawn >> 8) % 100 < percent;
    *out = hits ? list[(server->drawn >> 20) % (sizeof list / sizeof *list)]
                : (struct http_fault){ "", "" };
    server->faults += hits;
}

static inline struct http_fault http_server_fault(struct http_server *server,
                                                  const char *path)
{
    struct http_fault fault = { "", "" };
    pthread_mutex_lock(&server->mutex);
    const char *line = server->rules;
    for (int r = 0; r < HTTP_RULES_MAX && *line != '\0'; r++) {
        char name[128], action[16], value[256], times[16];
        bool fits = sscanf(line, "%127s %15s %255s %15s", name, action, value,
                           times) == 4 &&
                    (strcmp(name, "*") == 0 || strstr(path, name) != NULL) &&
                    (times[0] == '-' || server->used[r] < atoi(times));
        if (fits) {
            server->used[r]++;
            memcpy(fault.action, action, sizeof action);
            memcpy(fault.value, value, sizeof value);
            if (strcmp(action, "chance") == 0)
                http_server_draw(server, value, &fault);
            break;
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    pthread_mutex_unlock(&server->mutex);
    return fault;
}

/* As long as the server is there. */
static inline void http_server_sleep(struct http_server *server, double seconds)
{
    for (double slept = 0.0; slept < seconds && !server->stop; slept += 0.005)
        usleep(5000);
}

static inline bool http_send(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static inline bool http_answer(int fd, int status, const char *more,
                               const char *body)
{
    char text[8192];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %d Fault\r\n%sContent-Length: %zu\r\n\r\n%s",
                     status, more, strlen(body), body);
    return http_send(fd, text, (size_t)n);
}

static inline bool http_is(const struct http_fault *fault, const char *action)
{
    return strcmp(fault->action, action) == 0;
}

/* The value of a header of the request; "" if there is none. */
static inline void http_header(const char *request, const char *name, char *out,
                               size_t bytes)
{
    out[0] = '\0';
    for (const char *line = strstr(request, "\r\n"); line != NULL;
         line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, strlen(name)) != 0 ||
            line[2 + strlen(name)] != ':')
            continue;
        const char *value = line + 2 + strlen(name) + 1;
        while (*value == ' ')
            value++;
        snprintf(out, bytes, "%.*s", (int)strcspn(value, "\r"), value);
        return;
    }
}

/* Whether the connection goes on. */
static inline bool http_send_file(struct http_server *server, int fd,
                                  const char *request, const char *data,
                                  size_t bytes, const char *tag,
                                  const struct http_fault *fault)
{
    char header[512], range[64], match[128];
    size_t begin = 0;
    double value = atof(fault->value);
    http_header(request, "Range", range, sizeof range);
    http_header(request, "If-Match", match, sizeof match);
    if (match[0] != '\0' && strcmp(match, tag) != 0)
        return http_answer(fd, 412, "", "");
    if (sscanf(range, "bytes=%zu-", &begin) == 1 && begin >= bytes)
        return http_answer(fd, 416, "", "");
    bool less = http_is(fault, "less"), more = http_is(fault, "more");
    size_t told = less ? bytes - (size_t)value : bytes;
    char length[64] = "", part[96] = "";
    if (!more)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n",
                 told - begin);
    if (range[0] != '\0')
        snprintf(part, sizeof part, "Content-Range: bytes %zu-%zu/%zu\r\n",
                 begin, told - 1, told);
    int n =
        snprintf(header, sizeof header, "HTTP/1.1 %s\r\nETag: %s\r\n%s%s\r\n",
                 range[0] != '\0' ? "206 Part" : "200 OK", tag, length, part);
    if (!http_send(fd, header, (size_t)n))
        return false;
    size_t end = told;
    bool stalls = http_is(fault, "stall"), cuts = http_is(fault, "cut");
    if ((stalls || cuts) && begin + (size_t)value < end)
        end = begin + (size_t)value;
    size_t piece = http_is(fault, "slow") ? (size_t)(value / 20) + 1 : end;
    for (size_t at = begin; at < end; at += piece) {
        if (!http_send(fd, data + at, end - at < piece ? end - at : piece))
            return false;
        if (piece < end)
            http_server_sleep(server, 0.05);
    }
    if (more)
        return http_send(fd, data,
                         (size_t)value < bytes ? (size_t)value : bytes) &&
               false;
    if (stalls)
        http_server_sleep(server, 1e6);
    return !cuts && !stalls;
}

/* So much of a request's body, at so many bytes a second (0: at once). */
static inline bool http_take(struct http_server *server, struct s3_call *call,
                             size_t bytes, double rate)
{
    for (size_t at = 0; at < bytes;) {
        size_t most = rate > 0.0 ? (size_t)(rate / 20) + 1 : bytes;
        ssize_t n = recv(call->fd, call->body + at,
                         most < bytes - at ? most : bytes - at, 0);
        if (n <= 0)
            return false;
        at += (size_t)n;
        if (rate > 0.0)
            http_server_sleep(server, 0.05);
    }
    return true;
}

static inline bool http_respond(struct http_server *server, int fd,
                                const char *request,
                                const struct http_fault *fault,
                                struct s3_call *call)
{
    char path[2048], more[1200], tag[64];
    if (http_is(fault, "delay"))
        http_server_sleep(server, atof(fault->value));
    if (http_is(fault, "drop"))
        return false;
    if (http_is(fault, "status"))
        return http_answer(fd, atoi(fault->value), "",
                           "<Error><Code>Injected</Code><Message>a fault"
                           "</Message></Error>");
    if (http_is(fault, "wait")) {
        snprintf(more, sizeof more, "Retry-After: %s\r\n", fault->value);
        return http_answer(fd, 503, more, "");
    }
    if (http_is(fault, "text"))
        return http_answer(fd, 200, "", fault->value);
    if (http_is(fault, "redirect")) {
        snprintf(more, sizeof more, "Location: %.250s%.900s\r\n", fault->value,
                 call->asked);
        return http_answer(fd, 302, more, "");
    }
    if (call->body != NULL) {
        if (http_is(fault, "lose")) /* the answer goes nowhere */
            call->fd = -1;
        return s3_serve(call);
    }
    snprintf(path, sizeof path, "%s%s", server->folder, call->asked);
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        if (file >= 0)
            close(file);
        return http_answer(fd, 404, "",
                           "<Error><Code>NoSuchKey</Code></Error>");
    }
    size_t bytes = (size_t)status.st_size;
    char *data = malloc(bytes + 1);
    bool whole = data != NULL && pread(file, data, bytes, 0) == (ssize_t)bytes;
    close(file);
    snprintf(tag, sizeof tag, "\"%zu-%ld%s\"", bytes, (long)status.st_mtime,
             http_is(fault, "change") ? "-new" : "");
    bool goes_on =
        whole && http_send_file(server, fd, request, data, bytes, tag, fault);
    free(data);
    return goes_on;
}

static inline bool http_serve(struct http_server *server, int fd,
                              const char *request)
{
    char asked[1024] = "", what[2200], length[32];
    struct s3_call call = { .server = server, .fd = fd };
    if (sscanf(request, "%15s %1023s", call.method, asked) != 2)
        return http_answer(fd, 400, "", "");
    char *query = strchr(asked, '?');
    if (query != NULL) {
        snprintf(call.query, sizeof call.query, "%s", query + 1);
        *query = '\0';
    }
    s3_decode(asked);
    snprintf(what, sizeof what, "%s %s%s%s", call.method, asked,
             query != NULL ? "?" : "", call.query);
    struct http_fault fault = http_server_fault(server, what);
    bool s3 = query != NULL || strcmp(call.method, "GET") != 0;
    if (s3) {
        http_header(request, "Content-Length", length, sizeof length);
        snprintf(call.path, sizeof call.path, "%s", asked);
        call.bytes = (size_t)atoll(length);
        call.body = calloc(1, call.bytes + 1);
        size_t most =
            http_is(&fault, "cut") ? (size_t)atoll(fault.value) : call.bytes;
        if (!http_take(server, &call, most < call.bytes ? most : call.bytes,
                       http_is(&fault, "slow") ? atof(fault.value) : 0.0) ||
            http_is(&fault, "cut")) {
            free(call.body);
            return false;
        }
    }
    snprintf(call.asked, sizeof call.asked, "%s", asked);
    bool goes_on = http_respond(server, fd, request, &fault, &call);
    free(call.body);
    return goes_on;
}

/* A request up to its empty line. */
static inline bool http_receive(struct http_server *server, int fd, char *text,
                                size_t room)
{
    size_t length = 0;
    while (!server->stop && length + 1 < room) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        if (poll(&ready, 1, 20) == 0)
            continue;
        ssize_t n = recv(fd, text + length, 1, 0);
        if (n <= 0)
            return false;
        length += (size_t)n;
        text[length] = '\0';
        if (length >= 4 && strcmp(text + length - 4, "\r\n\r\n") == 0)
            return true;
    }
    return false;
}

static inline void *http_connection(void *arg)
{
    struct http_client client = *(struct http_client *)arg;
    struct http_server *server = client.server;
    char request[8192];
    int on = 1;
    free(arg);
    setsockopt(client.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (http_receive(server, client.fd, request, sizeof request)) {
        server->requests++;
        pthread_mutex_lock(&server->mutex);
        snprintf(server->last, sizeof server->last, "%.4000s", request);
        pthread_mutex_unlock(&server->mutex);
        if (!http_serve(server, client.fd, request))
            break;
    }
    close(client.fd);
    server->threads--;
    return NULL;
}

static inline void *http_listen(void *arg)
{
    struct http_server *server = arg;
    while (!server->stop) {
        struct pollfd ready = { .fd = server->fd, .events = POLLIN };
        pthread_t thread;
        if (poll(&ready, 1, 20) <= 0)
            continue;
        struct http_client *client = malloc(sizeof *client);
        client->server = server;
        client->fd = accept(server->fd, NULL, NULL);
        server->connections++;
        server->threads++;
        if (client->fd < 0 ||
            pthread_create(&thread, NULL, http_connection, client) != 0) {
            free(client);
            server->threads--;
        } else {
            pthread_detach(thread);
        }
    }
    return NULL;
}

/* On a port of its own choice. */
static inline void http_server_start(struct http_server *server,
                                     const char *folder)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t length = sizeof address;
    memset(server, 0, sizeof *server);
    snprintf(server->folder, sizeof server->folder, "%s", folder);
    pthread_mutex_init(&server->mutex, NULL);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->fd < 0 ||
        bind(server->fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(server->fd, 128) != 0 ||
        getsockname(server->fd, (struct sockaddr *)&address, &length) != 0 ||
        pthread_create(&server->thread, NULL, http_listen, server) != 0) {
        perror("http server");
        exit(1);
    }
    server->port = ntohs(address.sin_port);
}

static inline void http_server_stop(struct http_server *server)
{
    server->stop = true;
    pthread_join(server->thread, NULL);
    while (server->threads > 0)
        usleep(1000);
    close(server->fd);
    pthread_mutex_destroy(&server->mutex);
}
