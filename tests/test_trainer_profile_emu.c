/* A profile of training on a device (cuda_emulator_memory.h): the same losses
 * as without, the device's lane beside the host's, graphs before and after the
 * range and none within. */
#include <jansson.h>

#include "src/base/log.h"
#include "src/model/model.h"
#include "src/train/loop/trainer.h"
#include "tests/data_fixture.h"
#include "tests/run_settings.h"

#define SAMPLES 24
#define SEQ_LEN 16
#define FILE_OF "%s/on/profile/steps-3-4/%s"

struct result {
    double loss;
    int64_t launches; /* of leaves as graphs */
};

static enum err run(struct comm *comm, const char *folder, const char *name,
                    const char *profile, struct result *out)
{
    enum err rc = ERR_OK;
    struct run *run = NULL;
    struct train_settings *settings = calloc(1, sizeof *settings);
    TRY_OUT(run_settings(
        settings,
        "model.d_model=32 model.n_heads=2 model.n_layers=2 "
        "model.vocab_size=257 train.max_duration=6ba train.global_batch=4 "
        "parallel.slots=2 train.microbatch=1 data.seq_len=16 "
        "hardware.threads=1 optimizer.lr=3e-3 hardware.backend=cuda "
        "hardware.kernel_set=emulated run.dir=%s/%s data.train=%s/data "
        "data.eval=%s/data train.profile=%s",
        folder, name, folder, folder, profile));
    settings->eval.interval = (struct duration){ 2, UNIT_BA };
    TRY_OUT(fsio_mkdirs(settings->run.dir));
    TRY_OUT(trainer_create(comm, settings, 1, &run));
    TRY_OUT(events_listen_table(&run->events, "evaluation", run));
    TRY_OUT(trainer_start(run));
    TRY_OUT(trainer_fit(run));
    out->loss = run->now.record.loss;
    out->launches = model_graph_launches(run->engine.model);
out:
    if (rc != ERR_OK)
        tap_note("%s: %s", name, err_text());
    trainer_destroy(run);
    free(settings);
    return rc;
}

static int64_t count_of(const json_t *kinds, const char *name)
{
    return json_integer_value(
        json_object_get(json_object_get(kinds, name), "count"));
}

/* Of a lane: spans follow each other. */
static void test_lane(const json_t *events, int lane)
{
    double end = 0;
    int64_t count = 0, wrong = 0;
    size_t i;
    const json_t *event;
    json_array_foreach(events, i, event)
    {
        double ts = json_number_value(json_object_get(event, "ts"));
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0 ||
            json_integer_value(json_object_get(event, "tid")) != lane)
            continue;
        count++;
        wrong += ts < end - 0.01;
        end = ts + json_number_value(json_object_get(event, "dur"));
    }
    tap_ok(count > 0 && wrong == 0,
           "%lld spans of the device's stream, one after the other",
           (long long)count);
}

static void test_trace(const char *folder)
{
    char path[FSIO_PATH_MAX + 64];
    int lane = -1;
    size_t i;
    const json_t *event;
    snprintf(path, sizeof path, FILE_OF, folder, "rank-0.json");
    json_t *file = json_load_file(path, 0, NULL);
    const json_t *events = json_object_get(file, "traceEvents");
    const json_t *profile = json_object_get(file, "profile");
    const json_t *host = json_object_get(profile, "host_kinds");
    const json_t *device = json_object_get(profile, "device_kinds");
    tap_ok(json_is_array(events), "there is a trace");
    json_array_foreach(events, i, event)
    {
        const char *name = json_string_value(
            json_object_get(json_object_get(event, "args"), "name"));
        if (name != NULL && strcmp(name, "device stream 0") == 0)
            lane = (int)json_integer_value(json_object_get(event, "tid"));
    }
    test_lane(events, lane);
    tap_ok(json_number_value(
               json_object_get(profile, "device_clock_error_us")) > 0,
           "how exactly it lies beside the host's is told");
    tap_is_int(json_integer_value(json_object_get(profile, "lost")), 0,
               "nothing is lost");
    tap_ok(count_of(device, "gemm") > 0 && count_of(device, "adamw") > 0 &&
               count_of(device, "cross_entropy") > 0,
           "ops are counted there");
    tap_ok(count_of(host, "gemm") == 0 && count_of(host, "launch") > 0 &&
               count_of(host, "device wait") > 0,
           "what the host does are launches and waits");
    tap_is_int(count_of(host, "evaluation"), 2 * 2,
               "a listener's two events in each of two steps");
    tap_ok(json_number_value(json_object_get(
               json_object_get(device, "evaluation"), "seconds")) > 0,
           "and the device's time for an evaluation is its own");
    json_decref(file);
}

static void test_table(const char *folder)
{
    char path[FSIO_PATH_MAX + 64];
    char *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, FILE_OF, folder, "table.txt");
    enum err rc = fsio_read_file(path, 1 << 20, &text, &bytes);
    tap_ok(rc == ERR_OK && strstr(text, "on the device ") != NULL &&
               strstr(text, "  idle ") != NULL &&
               strstr(text, "on the host ") != NULL,
           "the table has both");
    free(text);
}

int main(int argc, char **argv)
{
    struct comm *comm = NULL;
    struct result off = { 0 }, on = { 0 };
    int64_t lengths[SAMPLES];
    const struct kernels *table = NULL;
    log_init("test", 0, LOG_ERROR);
    if (kernels_find("cuda", "emulated", &table) != ERR_OK) {
        tap_skip("no emulated device: %s", err_text());
        return tap_done();
    }
    if (comm_create("self", &argc, &argv, 60.0, &comm) != ERR_OK)
        return 1;
    for (int i = 0; i < SAMPLES; i++)
        lengths[i] = SEQ_LEN;
    const char *folder = tap_folder();
    fixture_dataset(folder, "data", lengths, SAMPLES, 1 << 20, false);
    tap_is_int(run(comm, folder, "off", "", &off), ERR_OK, "a run without");
    tap_is_int(run(comm, folder, "on", "3ba-4ba", &on), ERR_OK, "and with");
    tap_ok(on.loss == off.loss, "the same loss: %.9g", on.loss);
    tap_is_int(off.launches - on.launches, 2 * 4,
               "no graphs in two steps of four microbatches, of %lld",
               (long long)off.launches);
    test_trace(folder);
    test_table(folder);
    comm_destroy(comm);
    return tap_done();
}
