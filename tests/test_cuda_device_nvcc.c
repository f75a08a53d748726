/* The device layer. Where there is no GPU every entry says so, in words that
 * help, and leaves nothing behind; where there is one it is used. */
#include "kernels/cuda/device/cuda_device.h"

#include "src/base/timeline.h"
#include "tests/tap.h"

struct error_case {
    int code;
    enum err rc;
    const char *text; /* stands in the message */
};

static void check_errors(void)
{
    static const struct error_case cases[] = {
        { 0, ERR_OK, "" },
        { 34, ERR_UNSUPPORTED, "driver 580 or newer" },
        { 35, ERR_UNSUPPORTED, "cudaErrorInsufficientDriver" },
        { 100, ERR_UNSUPPORTED, "--gpus-per-node" },
        { 209, ERR_UNSUPPORTED, "no PTX for it" },
        { 2, ERR_MEMORY, "asking for 4096 bytes: CUDA error 2" },
        { 46, ERR_IO, "another process" },
        { 214, ERR_IO, "drain the node" },
        { 802, ERR_IO, "fabricmanager" },
        { 900, ERR_UNSUPPORTED, "hardware.graphs = off" },
        { 901, ERR_UNSUPPORTED, "cudaErrorStreamCaptureInvalidated" },
        { 907, ERR_UNSUPPORTED, "hardware.graphs = off" },
        { 700, ERR_INTERNAL, "compute-sanitizer" },
        { 123456, ERR_INTERNAL, "CUDA error 123456" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct error_case *c = &cases[i];
        enum err rc = cuda_device_error(c->code, "asking for %d bytes", 4096);
        tap_is_int(rc, c->rc, "error %d has its code", c->code);
        if (c->rc != ERR_OK)
            tap_ok(strstr(err_text(), c->text) != NULL, "its text: %s",
                   err_text());
    }
}

static void check_choice(void)
{
    static const struct {
        int local_rank, count;
        enum err rc;
        int device;
    } cases[] = {
        { 0, 1, ERR_OK, 0 }, { 5, 1, ERR_OK, 0 },    { 3, 4, ERR_OK, 3 },
        { 0, 8, ERR_OK, 0 }, { 4, 4, ERR_USAGE, 0 }, { 9, 2, ERR_USAGE, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int device = -1;
        enum err rc =
            cuda_device_choose(cases[i].local_rank, cases[i].count, &device);
        tap_ok(rc == cases[i].rc && device == cases[i].device,
               "rank %d of a node, %d GPUs visible", cases[i].local_rank,
               cases[i].count);
    }
}

static void check_describe(void)
{
    const struct cuda_device_info info = { .name = "NVIDIA H200",
                                           .major = 9,
                                           .multiprocessors = 132,
                                           .driver = 13010,
                                           .runtime = 13000 };
    char text[128];
    cuda_device_describe(&info, text, sizeof text);
    tap_is_str(text, "NVIDIA H200, 9.0, 132 SMs, driver 13.1, runtime 13.0",
               "a device in words");
}

/* The makers' figures, and what such a GPU would have if it were not named. */
static void check_peak(void)
{
    static const struct {
        const char *name;
        int major, multiprocessors;
        double clock_hz;
        bool fp32, fp8;
        double low, high; /* TFLOP/s */
        const char *source;
    } cases[] = {
        { "NVIDIA H100 80GB HBM3", 9, 132, 0, false, false, 989, 990, "table" },
        { "NVIDIA H100 80GB HBM3", 9, 132, 0, false, true, 1978, 1980,
          "table" },
        { "NVIDIA H100 80GB HBM3", 9, 132, 0, true, false, 66, 68, "table" },
        { "NVIDIA H100 MIG 3g.40gb", 9, 60, 0, false, false, 449, 450,
          "table" },
        { "NVIDIA H100 PCIe", 9, 114, 0, false, false, 755, 757, "table" },
        { "NVIDIA H200", 9, 132, 0, false, false, 989, 990, "table" },
        { "NVIDIA A100-SXM4-80GB", 8, 108, 0, false, false, 311, 313, "table" },
        { "NVIDIA A100-SXM4-80GB", 8, 108, 0, false, true, 0, 0, "table" },
        { "NVIDIA RTX A1000", 8, 18, 1.46e9, false, false, 53, 54, "clock" },
        { "NVIDIA H20", 9, 78, 1.98e9, false, false, 147, 149, "table" },
        { "NVIDIA B200", 10, 148, 0, false, false, 2249, 2251, "table" },
        { "NVIDIA GB200", 10, 152, 0, false, true, 4999, 5001, "table" },
        { "NVIDIA B300 SXM6 AC", 10, 160, 0, false, false, 2249, 2251,
          "table" },
        { "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 12, 188, 0,
          false, false, 439, 441, "table" },
        { "NVIDIA RTX PRO 6000 Blackwell Server Edition", 12, 188, 0, true,
          false, 124, 126, "table" },
        { "another", 10, 148, 1.86e9, false, false, 2240, 2270, "clock" },
        { "another", 12, 188, 2.6e9, true, false, 120, 130, "clock" },
        { "another", 9, 132, 1.83e9, false, false, 980, 1000, "clock" },
        { "another", 8, 108, 1.41e9, true, false, 19, 20, "clock" },
        { "another", 7, 80, 1.5e9, false, false, 0, 0, "clock" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *source = "";
        struct cuda_device_info info = { .major = cases[i].major,
                                         .multiprocessors =
                                             cases[i].multiprocessors,
                                         .clock_hz = cases[i].clock_hz };
        snprintf(info.name, sizeof info.name, "%s", cases[i].name);
        double peak = cuda_device_peak_flops(&info, cases[i].fp32, cases[i].fp8,
                                             &source) /
                      1e12;
        tap_ok(peak >= cases[i].low && peak <= cases[i].high &&
                   strcmp(source, cases[i].source) == 0,
               "%s, %d SMs: %.4g TFLOP/s (%s)", info.name, info.multiprocessors,
               peak, source);
    }
}

/* `made` is the entry's out-argument after it. */
static void refused(enum err rc, void *const *made, const char *entry)
{
    tap_ok(rc == ERR_UNSUPPORTED && (made == NULL || *made == NULL) &&
               strstr(err_text(), "CUDA error") != NULL &&
               strstr(err_text(), "use cpu") != NULL,
           "no GPU, %s says so: %s", entry, err_text());
}

static void check_without(void)
{
    struct cuda_device_info info = { .major = 7 };
    struct arena arena;
    void *made = &info;
    char bytes[8] = { 0 };
    double us = 1;
    int device = 7;
    refused(cuda_device_check(), NULL, "check");
    refused(cuda_device_use(0, &device), NULL, "use");
    tap_is_int(device, 0, "and tells no device");
    refused(cuda_device_info(&info), NULL, "info");
    tap_is_int(info.major, 0, "and tells nothing");
    refused(cuda_memory.stream_create(true, &made), &made, "stream_create");
    refused(cuda_memory.wait(NULL), NULL, "stream_wait");
    made = &info;
    refused(cuda_memory.event_create_timed(&made), &made, "event_create");
    refused(cuda_memory.tensors_create(4096, &arena), NULL,
            "memory of the device");
    tap_ok(arena.base == NULL, "and gives none");
    refused(cuda_memory.host_create(4096, &arena), NULL, "pinned memory");
    tap_ok(arena.base == NULL, "and gives none");
    tap_ok(strstr(err_text(), "4096 bytes of pinned") != NULL,
           "and names the bytes");
    refused(cuda_memory.upload(NULL, 4, bytes + 4, bytes), NULL, "upload");
    refused(cuda_memory.download(NULL, 4, bytes + 4, bytes), NULL, "download");
    refused(cuda_memory.capture_begin(NULL), NULL, "capture_begin");
    made = &info;
    refused(cuda_memory.capture_end(NULL, &made), &made, "capture_end");
    refused(cuda_memory.graph_launch(NULL, NULL), NULL, "graph_launch");
    cuda_memory.graph_destroy(NULL);
    (void)cuda_memory.event_elapsed(NULL, NULL, &us);
    tap_ok(us == 0, "no time between no events");
    cuda_memory.tensors_destroy(&arena);
    cuda_memory.host_destroy(&arena);
    cuda_memory.event_destroy(NULL);
    cuda_memory.stream_destroy(NULL);
}

static void check_copies(struct arena *device, struct arena *host)
{
    void *stream = NULL, *begin = NULL, *end = NULL;
    unsigned char *on = arena_take(device, 4096);
    unsigned char *here = arena_take(host, 4096);
    double us = -1;
    bool same = true, done = false;
    enum err rc = ERR_OK;
    TRY_OUT(cuda_memory.stream_create(false, &stream));
    TRY_OUT(cuda_memory.event_create_timed(&begin));
    TRY_OUT(cuda_memory.event_create_timed(&end));
    memset(here, 1, 4096);
    TRY_OUT(cuda_memory.event_record(begin, stream));
    TRY_OUT(cuda_memory.upload(stream, 2048, here, on + 2048));
    TRY_OUT(cuda_memory.copy(stream, 1024, on + 2048, on + 1024));
    TRY_OUT(cuda_memory.download(stream, 4096, on, here));
    TRY_OUT(cuda_memory.event_record(end, stream));
    TRY_OUT(cuda_memory.event_wait(end));
    TRY_OUT(cuda_memory.event_done(end, &done));
    TRY_OUT(cuda_memory.event_elapsed(begin, end, &us));
    TRY_OUT(cuda_memory.wait(stream));
    for (int i = 0; i < 4096; i++)
        same &= here[i] == (i < 1024 ? 0 : 1);
    tap_ok(same && done && us >= 0, "bytes go to the device and come back");
out:
    tap_ok(rc == ERR_OK, "streams, events and copies: %s", err_text());
    cuda_memory.event_destroy(end);
    cuda_memory.event_destroy(begin);
    cuda_memory.stream_destroy(stream);
}

/* A copy that is kept happens at each launch, and never before. */
static void check_graph(struct arena *device, struct arena *host)
{
    void *stream = NULL, *graph = NULL, *none = &graph;
    unsigned char *on = arena_take(device, 128);
    unsigned char *here = arena_take(host, 256);
    bool same = true;
    enum err rc = ERR_OK;
    TRY_OUT(cuda_memory.stream_create(false, &stream));
    TRY_OUT(cuda_memory.capture_begin(stream));
    TRY_OUT(cuda_memory.copy(stream, 64, on, on + 64));
    TRY_OUT(cuda_memory.capture_end(stream, &graph));
    for (int i = 0; i < 2; i++) {
        memset(here + 64 * i, i + 1, 64);
        TRY_OUT(cuda_memory.upload(stream, 64, here + 64 * i, on));
        TRY_OUT(cuda_memory.graph_launch(graph, stream));
        TRY_OUT(cuda_memory.download(stream, 64, on + 64, here + 128 + 64 * i));
    }
    TRY_OUT(cuda_memory.wait(stream));
    for (int i = 0; i < 128; i++)
        same &= here[128 + i] == i / 64 + 1;
    tap_ok(same, "a kept copy takes what is there at each launch");
    TRY_OUT(cuda_memory.capture_begin(stream));
    tap_is_int(cuda_memory.wait(stream), ERR_UNSUPPORTED,
               "nobody waits for what is only kept");
    tap_ok(cuda_memory.capture_end(stream, &none) == ERR_UNSUPPORTED &&
               none == NULL,
           "and then nothing is kept: %s", err_text());
    TRY_OUT(cuda_memory.copy(stream, 64, on, on + 64));
    TRY_OUT(cuda_memory.wait(stream));
out:
    tap_ok(rc == ERR_OK, "graphs: %s", err_text());
    cuda_memory.graph_destroy(graph);
    cuda_memory.stream_destroy(stream);
}

static void check_with(void)
{
    struct cuda_device_info info;
    struct arena device_memory = { 0 }, host = { 0 };
    int device;
    enum err rc = ERR_OK;
    TRY_OUT(cuda_device_use(0, &device));
    TRY_OUT(cuda_device_info(&info));
    tap_ok(info.multiprocessors > 0 && info.bytes_total > 0 &&
               info.bytes_free <= info.bytes_total,
           "GPU %d is known: %s", device, info.name);
    TRY_OUT(cuda_memory.tensors_create(8192, &device_memory));
    TRY_OUT(cuda_memory.host_create(8192, &host));
    check_copies(&device_memory, &host);
    check_graph(&device_memory, &host);
out:
    tap_ok(rc == ERR_OK, "a GPU can be used: %s", err_text());
    cuda_memory.tensors_destroy(&device_memory);
    cuda_memory.host_destroy(&host);
}

/* What a profiler asks for. */
static void check_surroundings(void)
{
    unsetenv("NVTX_INJECTION64_PATH");
    cuda_nvtx_start();
    bool quiet = timeline_marks == NULL;
    setenv("NVTX_INJECTION64_PATH", "/nowhere/libToolsInjection64.so", 1);
    cuda_nvtx_start();
    tap_ok(quiet && timeline_marks != NULL,
           "spans are ranges where a profiler has started the program");
    timeline_marks->begin("step");
    timeline_marks->end();
    timeline_marks = NULL;
}

int main(void)
{
    check_surroundings();
    check_errors();
    check_choice();
    check_describe();
    check_peak();
    if (cuda_device_check() == ERR_OK)
        check_with();
    else
        check_without();
    return tap_done();
}
