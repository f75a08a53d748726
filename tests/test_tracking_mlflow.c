/* What MLflow's server is sent and what its answers do, by a played server: a
 * run that is new, goes on, was deleted; limits of a request; credentials;
 * refusals. */
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

#include "src/base/log.h"
#include "src/tracking/tracking_sink.h"
#include "tests/tap.h"

#define REQUESTS_MAX 64

/* What it answers to a path that ends so; the last row that fits counts. */
struct answer {
    const char *path;
    int status;
    const char *body;
};

static struct {
    int fd, port;
    struct answer answers[16];
    atomic_int answer_count;
    struct request {
        char head[4096];
        char *body;
    } requests[REQUESTS_MAX];
    atomic_int count;
} server;

static const struct answer *answer_to(const char *head)
{
    static const struct answer none = { "", 404, "{}" };
    const struct answer *found = &none;
    char path[512] = "";
    sscanf(head, "%*s %511[^? ]", path);
    for (int i = 0; i < server.answer_count; i++) {
        const struct answer *answer = &server.answers[i];
        size_t length = strlen(answer->path), all = strlen(path);
        if (all >= length && strcmp(path + all - length, answer->path) == 0)
            found = answer;
    }
    return found;
}

static bool receive(int fd, struct request *request)
{
    size_t used = 0, length = 0;
    const char *end;
    memset(request->head, 0, sizeof request->head);
    while ((end = strstr(request->head, "\r\n\r\n")) == NULL) {
        if (used + 1 >= sizeof request->head ||
            recv(fd, request->head + used, 1, 0) != 1)
            return false;
        used++;
    }
    const char *field = strcasestr(request->head, "Content-Length:");
    if (field != NULL)
        length = (size_t)atol(field + 15);
    request->body = calloc(1, length + 1);
    return length == 0 ||
           recv(fd, request->body, length, MSG_WAITALL) == (ssize_t)length;
}

static void serve(int fd)
{
    char head[128];
    while (server.count < REQUESTS_MAX &&
           receive(fd, &server.requests[server.count])) {
        const struct answer *answer =
            answer_to(server.requests[server.count++].head);
        size_t length = strlen(answer->body);
        int bytes = snprintf(head, sizeof head,
                             "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n",
                             answer->status, length);
        if (send(fd, head, (size_t)bytes, MSG_NOSIGNAL | MSG_MORE) != bytes ||
            send(fd, answer->body, length, MSG_NOSIGNAL) != (ssize_t)length)
            return;
    }
}

static void *server_main(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept(server.fd, NULL, NULL);
        if (fd < 0)
            return NULL;
        serve(fd);
        close(fd);
    }
}

static pthread_t server_start(void)
{
    pthread_t thread;
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server.fd, (struct sockaddr *)&address, length) != 0 ||
        listen(server.fd, 8) != 0 ||
        getsockname(server.fd, (struct sockaddr *)&address, &length) != 0 ||
        pthread_create(&thread, NULL, server_main, NULL) != 0)
        exit(1);
    server.port = ntohs(address.sin_port);
    return thread;
}

/* --- a run ------------------------------------------------------------------------ */

static const struct tracking_sink_ops *const ops = &tracking_mlflow_rest_ops;
static char folder[] = "/tmp/tessera-mlflow.XXXXXX";
static struct tracking_options options;
static struct tracking_list *list;
static atomic_bool given_up;

static void answers(const char *path, int status, const char *body)
{
    server.answers[server.answer_count++] =
        (struct answer){ path, status, body };
}

/* As a server without the experiment. */
static void server_reset(void)
{
    for (int i = 0; i < server.count; i++)
        free(server.requests[i].body);
    server.count = 0;
    server.answer_count = 0;
    answers("experiments/get-by-name", 404,
            "{\"error_code\": \"RESOURCE_DOES_NOT_EXIST\"}");
    answers("experiments/create", 200, "{\"experiment_id\": \"7\"}");
    answers("runs/create", 200,
            "{\"run\": {\"info\": {\"run_id\": \"abc1\"}}}");
    answers("runs/get", 200,
            "{\"run\": {\"info\": {\"lifecycle_stage\": \"active\"}, "
            "\"data\": {\"metrics\": [{\"key\": \"train/loss\", \"value\": 1, "
            "\"step\": 5}]}}}");
    answers("runs/log-batch", 200, "{}");
    answers("runs/update", 200, "{}");
}

/* How many requests have this in their first line or body. */
static int requests_with(const char *text)
{
    int count = 0;
    for (int i = 0; i < server.count; i++)
        count += strstr(server.requests[i].head, text) != NULL ||
                 strstr(server.requests[i].body, text) != NULL;
    return count;
}

static enum err opens(void *self)
{
    enum err rc = ops->open(self, &options);
    return rc == ERR_OK ? ops->begin(self, 0) : rc;
}

static enum err write_step(void *self, int64_t step)
{
    struct tracking_record record = *tracking_list_record(list);
    record.step = step;
    record.time_s = 1000;
    const struct tracking_record *const records[] = { &record };
    return ops->write(self, records, 1);
}

static void closes(void *self)
{
    ops->close(self);
    memset(self, 0, ops->bytes);
    server_reset();
}

static void test_new(void *self)
{
    char name[32];
    tap_ok(opens(self) == ERR_OK, "a run is made: %s", err_text());
    tap_ok(requests_with("experiment_name=a%20b%2Fc ") == 1 &&
               requests_with("{\"name\":\"a b/c\"}") == 1 &&
               requests_with(
                   "\"experiment_id\":\"7\",\"run_name\":\"r\\\"1\"") == 1,
           "in an experiment that is made");
    tap_is_int(requests_with("\"params\""), 3,
               "250 settings in requests of 100");
    tracking_list_clear(list);
    tracking_list_add(list, "a", NAN);
    tracking_list_add(list, "b", -INFINITY);
    tracking_list_add(list, "train/loss", 0.1);
    tap_ok(write_step(self, 6) == ERR_OK &&
               requests_with("{\"key\":\"a\",\"value\":\"NaN\",\"timestamp\":"
                             "1000000,\"step\":6},{\"key\":\"b\",\"value\":"
                             "\"-Infinity\"") == 1 &&
               requests_with("{\"key\":\"train/loss\",\"value\":0.1,") == 1,
           "metrics");
    tracking_list_clear(list);
    for (int i = 0; i < 2500; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        tracking_list_add(list, name, i);
    }
    tap_ok(write_step(self, 7) == ERR_OK && requests_with("many/") == 3,
           "2500 of them in requests of 1000");
    tap_ok(ops->finish(self, TRACKING_GOES_ON) == ERR_OK &&
               requests_with("\"status\":\"SCHEDULED\",\"end_time\"") == 1,
           "its end");
    tap_is_int(requests_with("Authorization"), 0, "no credentials by default");
    closes(self);
}

static void test_goes_on(void *self)
{
    tracking_list_clear(list);
    tracking_list_add(list, "train/loss", 3);
    tracking_list_add(list, "eval/loss", 4);
    tap_ok(opens(self) == ERR_OK && requests_with("runs/create") == 0 &&
               requests_with("run_id=abc1") >= 1 &&
               requests_with("\"status\":\"RUNNING\"") == 1,
           "another attempt goes on in the same run");
    tap_ok(write_step(self, 5) == ERR_OK && write_step(self, 6) == ERR_OK &&
               requests_with("\"train/loss\"") == 1 &&
               requests_with("\"eval/loss\"") == 2,
           "and leaves out the steps that the server has");
    closes(self);
    answers("runs/get", 200,
            "{\"run\": {\"info\": {\"lifecycle_stage\": \"deleted\"}}}");
    tap_ok(opens(self) == ERR_OK && requests_with("runs/create") == 1,
           "a deleted run is not gone on with");
    closes(self);
    answers("runs/get", 404, "{\"error_code\": \"RESOURCE_DOES_NOT_EXIST\"}");
    tap_ok(ops->open(self, &options) == ERR_OK &&
               requests_with("runs/create") == 1,
           "nor is one that is gone");
    closes(self);
}

static void test_refusals(void *self)
{
    static const struct {
        int status;
        const char *body;
        enum err rc;
        const char *says;
    } cases[] = {
        { 500, "<html>", ERR_IO, "HTTP 500" },
        { 503, "{\"error_code\": \"TEMPORARILY_UNAVAILABLE\"}", ERR_IO,
          "TEMPORARILY" },
        { 429, "{\"error_code\": \"REQUEST_LIMIT_EXCEEDED\"}", ERR_IO, "429" },
        { 400,
          "{\"error_code\": \"INVALID_PARAMETER_VALUE\", \"message\": \"no "
          "such\\nname\"}",
          ERR_DATA, "no such name" },
        { 404, "not here", ERR_IO, "HTTP 404" },
        { 401, "", ERR_USAGE, "MLFLOW_TRACKING_TOKEN" },
        { 302, "", ERR_USAGE, "another address" },
        { 200, "[]", ERR_IO, "does not answer as MLflow does" },
        { 200, "", ERR_IO, "does not answer as MLflow does" },
        { 200, "{\"run\": 5", ERR_IO, "does not answer as MLflow does" },
    };
    if (opens(self) != ERR_OK)
        tap_ok(false, "open: %s", err_text());
    tracking_list_clear(list);
    tracking_list_add(list, "x", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        answers("runs/log-batch", cases[i].status, cases[i].body);
        enum err rc = write_step(self, 10 + (int64_t)i);
        tap_ok(rc == cases[i].rc && strstr(err_text(), cases[i].says) != NULL &&
                   strstr(err_text(), "s3cret") == NULL,
               "HTTP %d: %s", cases[i].status, err_text());
        server.answer_count--;
    }
    tap_ok(write_step(self, 30) == ERR_OK, "then it works again");
    closes(self);
    answers("runs/get", 404, "{\"error_code\": \"RESOURCE_DOES_NOT_EXIST\"}");
    answers("runs/create", 200,
            "{\"run\": {\"info\": {\"run_id\": \"../../etc\"}}}");
    tap_ok(opens(self) == ERR_IO, "a run's id that is none is refused");
    closes(self);
    atomic_store(&given_up, true);
    tap_ok(opens(self) == ERR_IO, "what is given up ends: %s", err_text());
    atomic_store(&given_up, false);
    closes(self);
}

/* A new run, whose first try ends before it has its parameters. */
static void test_params(void *self)
{
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%s/tracking.json", folder);
    for (int status = 400; status <= 500; status += 100) {
        unlink(path);
        answers("runs/log-batch", status, "{\"error_code\": \"X\"}");
        enum err rc = ops->open(self, &options);
        tap_ok(status == 500 ? rc == ERR_IO : rc == ERR_OK,
               "parameters get HTTP %d", status);
        closes(self);
        tap_ok(opens(self) == ERR_OK && requests_with("runs/create") == 0,
               "the run goes on");
        tap_is_int(requests_with("\"params\""), status == 500 ? 3 : 0,
                   "and gets again what may be taken");
        closes(self);
        tap_ok(opens(self) == ERR_OK && requests_with("\"params\"") == 0,
               "once");
        closes(self);
    }
}

/* What becomes of a model at a run's end, with these answers. */
static int registers(void *self, int made, const char *known, int created)
{
    if (opens(self) != ERR_OK)
        tap_ok(false, "open: %s", err_text());
    answers("registered-models/create", made,
            "{\"error_code\": \"RESOURCE_ALREADY_EXISTS\"}");
    answers("model-versions/search", 200, known);
    answers("model-versions/create", created,
            created == 200 ? "{\"model_version\": {\"version\": \"2\"}}"
                           : "{\"error_code\": \"INVALID_PARAMETER_VALUE\"}");
    tap_ok(ops->finish(self, TRACKING_FINISHED) == ERR_OK &&
               requests_with("\"status\":\"FINISHED\"") == 1,
           "the run is finished");
    return requests_with("POST /api/2.0/mlflow/model-versions/create");
}

static void test_register(void *self)
{
    strcpy(options.settings.mlflow_register, "my model");
    tap_is_int(registers(self, 200, "{}", 200), 0, "no model, nothing asked");
    closes(self);
    options.model = (struct tracking_model){ "s3://b/step-6", "/r/step-6", 6 };
    tap_ok(registers(self, 400, "{}", 200) == 1 &&
               requests_with("filter=name%3D%27my%20model%27%20and%20run_id"
                             "%3D%27abc1%27 ") == 1 &&
               requests_with(
                   "{\"name\":\"my model\",\"source\":\"s3://b/step-6\","
                   "\"run_id\":\"abc1\",\"tags\":[{\"key\":"
                   "\"tessera.checkpoint\",\"value\":\"/r/step-6\"}") == 1,
           "a version of a model that is there");
    closes(self);
    tap_is_int(registers(self, 200,
                         "{\"model_versions\": [{\"source\": 5}, "
                         "{\"source\": \"s3://b/step-5\", "
                         "\"version\": \"1\"}]}",
                         400),
               1,
               "another checkpoint is none of it, and a refusal ends nothing");
    closes(self);
    tap_is_int(registers(self, 400,
                         "{\"model_versions\": [{\"source\": "
                         "\"s3://b/step-6\", \"version\": "
                         "\"1\"}]}",
                         200),
               0, "the same one is there already");
    closes(self);
    tap_ok(registers(self, 500, "{}", 200) == 0 &&
               requests_with("model-versions/") == 0,
           "a server that has trouble is not asked for more");
    closes(self);
    options.model.source[0] = '\0';
    for (const char *const *name =
             (const char *const[]){ "a/b", "a:b", " a", "a'b", NULL };
         *name != NULL; name++) {
        strcpy(options.settings.mlflow_register, *name);
        tap_ok(ops->check(&options.settings) == ERR_USAGE, "%s", err_text());
    }
    options.settings.mlflow_register[0] = '\0';
}

/* An answer of so many bytes, all of them empty objects. */
static void long_answer(void *self, const char *path, size_t bytes,
                        const char *says)
{
    char *body = malloc(bytes + 1);
    memset(body, ' ', bytes);
    memcpy(body, "{\"a\":[{}", 8);
    for (size_t i = 8; i + 5 <= bytes; i += 3)
        memcpy(body + i, ",{}", 3);
    memcpy(body + bytes - 2, "]}", 3);
    answers(path, 200, body);
    enum err rc = opens(self);
    tap_ok(says == NULL ? rc == ERR_OK
                        : rc == ERR_IO && strstr(err_text(), says) != NULL,
           "%s answers with %zu bytes: %s", path, bytes,
           rc == ERR_OK ? "taken" : err_text());
    closes(self);
    free(body);
}

static void test_long_answers(void *self)
{
    long_answer(self, "runs/update", 1 << 20, NULL);
    long_answer(self, "runs/update", (1 << 20) + 1, "more than 1024 KiB");
    long_answer(self, "runs/get", (1 << 20) + 1, NULL);
    long_answer(self, "runs/get", (4 << 20) + 1, "more than 4096 KiB");
}

static void test_credentials(void *self)
{
    char *data = NULL;
    size_t bytes;
    char path[FSIO_PATH_MAX];
    setenv("MLFLOW_TRACKING_TOKEN", "s3cret", 1);
    tap_ok(opens(self) == ERR_OK && server.count > 0 &&
               requests_with("Authorization: Bearer s3cret\r\n") ==
                   server.count,
           "a token");
    closes(self);
    setenv("MLFLOW_TRACKING_TOKEN", "s3cret\r\nX-More: y", 1);
    tap_ok(opens(self) == ERR_USAGE && strstr(err_text(), "s3cret") == NULL,
           "one with a line end is refused");
    closes(self);
    setenv("MLFLOW_TRACKING_USERNAME", "me", 1);
    setenv("MLFLOW_TRACKING_PASSWORD", "s3cret", 1);
    tap_ok(opens(self) == ERR_OK &&
               requests_with("Authorization: Basic bWU6czNjcmV0\r\n") ==
                   server.count,
           "user and password");
    closes(self);
    test_refusals(self);
    snprintf(path, sizeof path, "%s/tracking.json", folder);
    tap_ok(fsio_read_file(path, 65536, &data, &bytes) == ERR_OK &&
               strstr(data, "abc1") != NULL && strstr(data, "s3cret") == NULL,
           "they are not stored");
    free(data);
}

int main(void)
{
    static struct tracking_param params[250];
    char key[32];
    log_init("test", -1, LOG_ERROR);
    unsetenv("MLFLOW_TRACKING_TOKEN");
    unsetenv("MLFLOW_TRACKING_USERNAME");
    unsetenv("MLFLOW_TRACKING_PASSWORD");
    unsetenv("http_proxy");
    if (mkdtemp(folder) == NULL || tracking_list_create(&list) != ERR_OK)
        return 1;
    pthread_t thread = server_start();
    for (int i = 0; i < 250; i++) {
        snprintf(key, sizeof key, "setting.%d", i);
        params[i] = (struct tracking_param){ strdup(key), key };
    }
    options.params = params;
    options.param_count = 250;
    options.given_up = &given_up;
    strcpy(options.run_dir, folder);
    strcpy(options.run_name, "r\"1");
    strcpy(options.settings.experiment, "a b/c");
    snprintf(options.settings.mlflow, sizeof options.settings.mlflow,
             "http://127.0.0.1:%d/", server.port);
    void *self = calloc(1, ops->bytes);
    server_reset();
    test_new(self);
    test_goes_on(self);
    test_refusals(self);
    test_params(self);
    test_register(self);
    test_long_answers(self);
    test_credentials(self);
    free(self);
    for (int i = 0; i < 250; i++)
        free(params[i].key);
    shutdown(server.fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(server.fd);
    tracking_list_destroy(list);
    fsio_remove_tree(folder);
    return tap_done();
}
