/* The files of trackers, byte by byte: TensorBoard's frames and messages, read
 * here by hand, Prometheus' text, MLflow's folders; what an attempt that
 * was cut off leaves, links, and addresses that cannot be meant. */
#include <fcntl.h>
#include <sys/stat.h>

#include "src/base/log.h"
#include "src/tracking/tracking_events.h"
#include "src/tracking/tracking_sink.h"
#include "tests/tap.h"

static char folder[] = "/tmp/tessera-tracking.XXXXXX";
static struct tracking_options options;
static struct tracking_list *list;

/* --- helpers ----------------------------------------------------------------- */

static char *path_of(const char *name)
{
    static char paths[4][FSIO_PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, FSIO_PATH_MAX, "%s/%s", folder, name);
    return path;
}

/* Until the next call; "" where there is no file. */
static const char *read_text(const char *path)
{
    static char *data;
    size_t bytes;
    free(data);
    data = NULL;
    return path != NULL &&
                   fsio_read_file(path, 1 << 20, &data, &bytes) == ERR_OK
               ? data
               : "";
}

static void is_file(const char *path, const char *want, const char *what)
{
    tap_is_str(read_text(path), want, "%s", what);
}

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

/* A record of the list as it is. */
static struct tracking_record record_at(int64_t step)
{
    struct tracking_record record = *tracking_list_record(list);
    record.step = step;
    record.time_s = 1000 + (double)step;
    return record;
}

static enum err write_one(const struct tracking_sink_ops *ops, void *self,
                          int64_t step)
{
    struct tracking_record record = record_at(step);
    const struct tracking_record *const records[] = { &record };
    return ops->write(self, records, 1);
}

static void *sink_open(const struct tracking_sink_ops *ops, int64_t step)
{
    void *self = calloc(1, ops->bytes);
    enum err rc = ops->open(self, &options);
    if (rc == ERR_OK)
        rc = ops->begin(self, step);
    if (rc == ERR_OK)
        return self;
    tap_note("%s: %s", ops->name, err_text());
    ops->close(self);
    free(self);
    return NULL;
}

static void sink_close(const struct tracking_sink_ops *ops, void *self)
{
    ops->close(self);
    free(self);
}

static void set_loss(double loss)
{
    tracking_list_clear(list);
    tracking_list_add(list, "train/loss", loss);
}

/* --- TensorBoard ---------------------------------------------------------------- */

/* Messages as "1=... 5={1=...}" of fields: numbers of varints, %g of floats,
 * bytes as text, and those of `nested` depth as messages. */
static void describe(const uint8_t *at, const uint8_t *end, const char *nested,
                     char *out)
{
    char key[8];
    while (at < end) {
        int field = *at >> 3, wire = *at & 7;
        uint64_t value = 0;
        double d;
        float f;
        at++;
        sprintf(key, "%d", field);
        out += sprintf(out, "%s%d=", out[-1] == '{' || out[-1] == 0 ? "" : " ",
                       field);
        if (wire == 1) {
            memcpy(&d, at, 8);
            out += sprintf(out, "%g", d);
            at += 8;
            continue;
        }
        if (wire == 5) {
            memcpy(&f, at, 4);
            out += sprintf(out, "%g", f);
            at += 4;
            continue;
        }
        for (int shift = 0;; shift += 7) {
            value |= (uint64_t)(*at & 0x7f) << shift;
            if ((*at++ & 0x80) == 0)
                break;
        }
        if (wire == 0) {
            out += sprintf(out, "%lld", (long long)value);
        } else if (nested[0] == key[0] || (nested[0] == '*' && field != 2)) {
            out += sprintf(out, "{");
            describe(at, at + value, nested + 1, out);
            out += strlen(out);
            out += sprintf(out, "}");
            at += value;
        } else {
            out += sprintf(out, "%.*s", (int)value, (const char *)at);
            at += value;
        }
    }
}

/* The next frame's message; checks the frame. */
static const uint8_t *next_frame(const uint8_t **at, const uint8_t *end,
                                 size_t *bytes)
{
    uint64_t length;
    uint32_t crc[2];
    if (end - *at < 16)
        return NULL;
    memcpy(&length, *at, 8);
    memcpy(&crc[0], *at + 8, 4);
    if (length > (uint64_t)(end - *at - 16))
        return NULL;
    memcpy(&crc[1], *at + 12 + length, 4);
    const uint8_t *data = *at + 12;
    if (crc[0] != tracking_events_crc(*at, 8) ||
        crc[1] != tracking_events_crc(data, length))
        return NULL;
    *at += 16 + length;
    *bytes = length;
    return data;
}

static void test_events(void)
{
    static const uint8_t length[8] = { 24 };
    struct buffer out = { 0 };
    char text[1024] = "";
    size_t bytes;
    tap_is_int(tracking_events_crc(length, 8), 0x224b7fa3,
               "the checksum of TensorFlow's first frame");
    tap_ok(tracking_events_version(2.5, &out) == ERR_OK &&
               tracking_events_restart(3.0, 300, &out) == ERR_OK,
           "a file begins");
    tracking_list_clear(list);
    tracking_list_add(list, "train/loss", 1.5);
    tracking_list_add(list, "b", -INFINITY);
    tracking_list_text(list, "samples/0", "a\nb", 3);
    struct tracking_record record = record_at(1000000);
    tap_ok(tracking_events_record(&record, &out) == ERR_OK, "and goes on");
    const uint8_t *at = out.data, *end = out.data + out.bytes;
    static const char *const want[] = {
        "1=2.5 2=0 3=brain.Event:2",
        "1=3 2=300 7={1=1}",
        "1=1.001e+06 2=1000000 5={1={1=train/loss 2=1.5} 1={1=b 2=-inf}}",
        "1=1.001e+06 2=1000000 5={1={1=samples/0 9=\n\6\n\4text\x20\2 "
        "8=\10\7\22}}",
    };
    static const char *const nested[] = { "x", "7x", "51x", "51x" };
    for (int i = 0; i < 4; i++) {
        const uint8_t *data = next_frame(&at, end, &bytes);
        tap_ok(data != NULL, "frame %d is whole", i);
        if (data == NULL)
            break;
        memset(text, 0, sizeof text);
        describe(data, data + bytes, nested[i], text + 1);
        /* a tensor has an empty shape, and its text is looked at below */
        if (i == 3 && strlen(text + 1) > strlen(want[3]) - 1)
            tap_ok(strncmp(text + 1, want[3], strlen(want[3]) - 2) == 0 &&
                       memmem(data, bytes, "    a\n    b", 11) != NULL,
                   "a text, indented line by line");
        else
            tap_is_str(text + 1, want[i], "event %d", i);
    }
    tap_ok(at == end, "nothing follows");
    buffer_free(&out);
}

static void test_tensorboard(void)
{
    const struct tracking_sink_ops *ops = &tracking_tensorboard_ops;
    char command[FSIO_PATH_MAX + 100], name[3][300] = { "", "", "" };
    mkdir(path_of("tensorboard"), 0777);
    /* a clock that was ahead */
    put_file(path_of("tensorboard/events.out.tfevents.9000000000.x.1"), "");
    for (int i = 0; i < 2; i++) {
        /* as when the disk is full, try after try */
        void *self = sink_open(ops, 5);
        if (self != NULL)
            sink_close(ops, self);
        self = sink_open(ops, 5);
        set_loss(1);
        tap_ok(self != NULL && write_one(ops, self, 6) == ERR_OK, "written");
        sink_close(ops, self);
    }
    snprintf(command, sizeof command, "ls %s/tensorboard", folder);
    FILE *names = popen(command, "r");
    for (int i = 0; i < 3; i++)
        if (fgets(name[i], sizeof name[i], names) == NULL)
            name[i][0] = '\0';
    tap_ok(fgetc(names) == EOF, "a try that wrote nothing leaves no file");
    pclose(names);
    tap_ok(strncmp(name[1], "events.out.tfevents.9000000001.", 31) == 0 &&
               strncmp(name[2], "events.out.tfevents.9000000002.", 31) == 0,
           "each attempt's file comes behind those that are there");
    rename(path_of("tensorboard"), path_of("elsewhere"));
    tap_ok(symlink("elsewhere", path_of("tensorboard")) == 0 &&
               sink_open(ops, 0) == NULL,
           "a link in place of its folder is refused");
    unlink(path_of("tensorboard"));
}

/* --- Prometheus ------------------------------------------------------------------ */

static void test_prometheus(void)
{
    const struct tracking_sink_ops *ops = &tracking_prometheus_ops;
    strcpy(options.run_name, "a\"b\\c\nd");
    strcpy(options.job, "42");
    strcpy(options.settings.prometheus, path_of("run.prom"));
    void *self = sink_open(ops, 0);
    tracking_list_clear(list);
    tracking_list_add(list, "train/loss", 2.25);
    tracking_list_add(list, "x/a-b", INFINITY);
    tracking_list_add(list, "x/a_b", NAN);
    tap_ok(self != NULL && write_one(ops, self, 8) == ERR_OK, "written");
    is_file(options.settings.prometheus,
            "# HELP tessera_train_loss train/loss\n"
            "# TYPE tessera_train_loss gauge\n"
            "tessera_train_loss{run=\"a\\\"b\\\\c\\nd\",job=\"42\"} 2.25\n"
            "# HELP tessera_x_a_b x/a_b\n# TYPE tessera_x_a_b gauge\n"
            "tessera_x_a_b{run=\"a\\\"b\\\\c\\nd\",job=\"42\"} NaN\n"
            "# HELP tessera_step completed steps\n# TYPE tessera_step gauge\n"
            "tessera_step{run=\"a\\\"b\\\\c\\nd\",job=\"42\"} 8\n"
            "# HELP tessera_time_seconds time of the newest values\n"
            "# TYPE tessera_time_seconds gauge\n"
            "tessera_time_seconds{run=\"a\\\"b\\\\c\\nd\",job=\"42\"} 1008\n"
            "# HELP tessera_running 0 when the run has ended\n"
            "# TYPE tessera_running gauge\n"
            "tessera_running{run=\"a\\\"b\\\\c\\nd\",job=\"42\"} 1\n",
            "labels are escaped, and no series is there twice");
    tap_ok(
        ops->finish(self, TRACKING_FINISHED) == ERR_OK &&
            strstr(read_text(options.settings.prometheus),
                   "tessera_running{run=\"a\\\"b\\\\c\\nd\",job=\"42\"} 0\n") !=
                NULL,
        "the end is told");
    sink_close(ops, self);
    strcpy(options.run_name, "a run");
}

/* --- MLflow ------------------------------------------------------------------------ */

/* The one file of this pattern below the store. */
static const char *one_file(const char *pattern)
{
    static char path[FSIO_PATH_MAX];
    char command[2 * FSIO_PATH_MAX];
    snprintf(command, sizeof command, "ls -d %s/mlruns/%s", folder, pattern);
    FILE *names = popen(command, "r");
    path[0] = '\0';
    if (fgets(path, sizeof path, names) != NULL)
        path[strcspn(path, "\n")] = '\0';
    bool one = fgetc(names) == EOF;
    pclose(names);
    return one ? path : "several files";
}

static void test_mlflow(void)
{
    const struct tracking_sink_ops *ops = &tracking_mlflow_file_ops;
    static struct tracking_param params[] = { { "optimizer.lr", "0.001" } };
    snprintf(options.settings.mlflow, sizeof options.settings.mlflow,
             "file://%s/mlruns", folder);
    strcpy(options.settings.experiment, "first try");
    strcpy(options.run_name, "it's");
    options.params = params;
    options.param_count = 1;
    void *self = sink_open(ops, 0);
    tap_ok(self != NULL, "a store is made");
    for (int64_t step = 1; step <= 4; step++) {
        set_loss(1 / (double)step);
        tap_ok(write_one(ops, self, step) == ERR_OK, "step %d", (int)step);
    }
    sink_close(ops, self); /* killed */
    const char *loss = "*/*/metrics/train/loss";
    FILE *file = fopen(one_file(loss), "a");
    fputs("99", file);
    fclose(file);
    self = sink_open(ops, 2);
    for (int64_t step = 3; step <= 6; step++) {
        set_loss(1 / (double)step);
        tap_ok(write_one(ops, self, step) == ERR_OK, "step %d", (int)step);
    }
    tap_ok(ops->finish(self, TRACKING_FINISHED) == ERR_OK, "the end");
    sink_close(ops, self);
    is_file(one_file(loss),
            "1001000 1 1\n1002000 0.5 2\n1003000 0.33333333333333331 3\n"
            "1004000 0.25 4\n1005000 0.20000000000000001 5\n"
            "1006000 0.16666666666666666 6\n",
            "another attempt goes on in the same run, each step once");
    is_file(one_file("*/*/params/optimizer.lr"), "0.001", "settings");
    const char *meta = read_text(one_file("*/*/meta.yaml"));
    tap_ok(strstr(meta, "run_name: 'it''s'\n") != NULL &&
               strstr(meta, "\nstatus: 3\n") != NULL,
           "a name that has to be quoted; finished");
    strcpy(options.settings.experiment, "second");
    self = sink_open(ops, 0);
    tap_ok(self != NULL && strstr(read_text(path_of("tracking.json")),
                                  "\"second\"") != NULL,
           "another experiment, another run");
    sink_close(ops, self);
    put_file(path_of("tracking.json"),
             "{\"mlflow\": {\"address\": \"x\", \"run_id\": \"../../x\"}}");
    self = sink_open(ops, 0);
    tap_ok(self != NULL && one_file("*/*/meta.yaml")[0] == 's',
           "a run's id that is none is not followed");
    sink_close(ops, self);
    options.params = NULL;
    options.param_count = 0;
}

static void test_addresses(void)
{
    static const struct {
        const char *mlflow, *experiment, *prometheus, *says;
    } cases[] = {
        { "", "", "", NULL },
        { "http://localhost:5000", "a b", "", NULL },
        { "https://h/x/y", "a", "/x/y.prom", NULL },
        { "file:///tmp/x", "a", "", NULL },
        { "/tmp/x", "a", "", NULL },
        { "http://", "a", "", "names no host" },
        { "http://:5000", "a", "", "names no host" },
        { "http://me:secret@h/", "a", "", "user or password" },
        { "https://h/?token=secret", "a", "", "without blanks" },
        { "http://me:sec/secret@h/", "a", "", "user or password" },
        { "HTTP://me:secret@h/", "a", "", "user or password" },
        { "hTTps://h/?token=secret", "a", "", "without blanks" },
        { "HTTPS://h", "a", "", NULL },
        { "FILE:///tmp/x", "a", "", NULL },
        { "http://h/ ?token=secret", "a", "", "without blanks" },
        { "http:///?token=secret", "a", "", "without blanks" },
        { "postgresql://me:secret@h/db", "a", "",
          "give the address of a server" },
        { "ftp://h/?token=secret", "a", "", "give the address of a server" },
        { "http://h/\r\nX: y", "a", "", "without blanks" },
        { "sqlite:///x.db", "a", "", "give the address of a server" },
        { "file://x", "a", "", "give the address of a server" },
        { "/cwd/file:/x", "a", "", "give the address of a server" },
        { "/tmp/x", "", "", "1 to 128 letters" },
        { "/tmp/x", "a\nb: c", "", "1 to 128 letters" },
        { "/tmp/x", " a", "", "1 to 128 letters" },
        { "", "a", "/x/y.txt", "end in .prom" },
        { "", "a", ".prom", "end in .prom" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tracking_settings settings = { .tensorboard = false };
        strcpy(settings.mlflow, cases[i].mlflow);
        strcpy(settings.experiment, cases[i].experiment);
        strcpy(settings.prometheus, cases[i].prometheus);
        enum err rc = tracking_check(&settings);
        tap_ok(cases[i].says == NULL
                   ? rc == ERR_OK
                   : rc == ERR_USAGE && strstr(err_text(), cases[i].says) &&
                         strstr(err_text(), "secret") == NULL,
               "address %d: %s", (int)i, rc == ERR_OK ? "taken" : err_text());
    }
}

int main(void)
{
    log_init("test", -1, LOG_ERROR);
    if (mkdtemp(folder) == NULL || tracking_list_create(&list) != ERR_OK)
        return 1;
    strcpy(options.run_dir, folder);
    test_events();
    test_tensorboard();
    test_prometheus();
    test_mlflow();
    test_addresses();
    (void)read_text(NULL);
    tracking_list_destroy(list);
    fsio_remove_tree(folder);
    return tap_done();
}
